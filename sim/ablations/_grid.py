"""What is varied: options, the grids over them, and which options a rater can see."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pipelines.errors import ConfigError

__all__ = ["GRIDS", "UNSEEN", "Grid", "Options", "configurations", "scales_of", "seen"]

Grid = Literal["small", "full"]
GRIDS: tuple[Grid, ...] = ("small", "full")
#: What stands for an option that the rater can't see.
UNSEEN = "-"

_SHOTS = ("0", "1", "2")
_SYSTEMS = ("default", "custom")
_RETRIEVALS = ("none", "recent", "features", "embedding", "graph")
_PERTURBATIONS = ("none", "greedy", "gaussian")
_SCALES = {"movies": ("1-10", "0-9", "one-ten"), "books": ("1-5",)}
#: Options that each kind of rater can see: only prompts have examples and a system text, and
#: only raters that use a history can tell how it was chosen.
_SEEN = {
    "statistical": frozenset({"retrieval"}),
    "random": frozenset[str](),
    "mean": frozenset[str](),
    "llm": frozenset({"shots", "system", "retrieval"}),
}


@dataclass(frozen=True)
class Options:
    """One configuration beside its rater.

    Attributes
    ----------
    scale
        Rating scale.
    shots
        Worked examples: ``0``, ``1`` or ``2``.
    system
        ``default`` or ``custom``.
    retrieval
        How past items are chosen.
    perturbation
        Noise on the rating.
    """

    scale: str
    shots: str = "2"
    system: str = "custom"
    retrieval: str = "embedding"
    perturbation: str = "none"

    def metadata(self) -> dict[str, Any]:
        """The options, ready for JSON."""
        return asdict(self)


def scales_of(suite: str) -> tuple[str, ...]:
    """The scales of a suite, the usual one first.

    Raises
    ------
    ConfigError
        If there is no such suite.
    """
    if suite not in _SCALES:
        raise ConfigError("no ablation suite", where=suite, hint=f"one of {', '.join(_SCALES)}")
    return _SCALES[suite]


def seen(options: Options, kind: str) -> Options:
    """The options with what the rater can't see left out.

    Configurations that differ only in what the rater can't see are one. How the ten answers are
    written is seen by models only: for other raters ``one-ten`` and ``0-9`` are ``1-10``, from
    which they are converted.

    >>> seen(Options("one-ten", shots="1"), "statistical")
    Options(scale='1-10', shots='-', system='-', retrieval='embedding', perturbation='none')
    """
    hidden = {name: UNSEEN for name in ("shots", "system", "retrieval") if name not in _SEEN[kind]}
    if kind != "llm" and options.scale in ("one-ten", "0-9"):
        hidden["scale"] = "1-10"
    return replace(options, **hidden)


def configurations(suite: str, kind: str, grid: Grid) -> tuple[list[Options], int]:
    """The different configurations of a rater, the baseline first, and how many were asked for.

    Parameters
    ----------
    suite
        ``movies`` or ``books``.
    kind
        Kind of the rater.
    grid
        ``full``: every combination; ``small``: the baseline (two examples, custom system text,
        retrieval by embedding, no noise: SUBER's, section 4.2) and what differs from it in one
        option.

    Returns
    -------
    tuple
        Those that the rater can tell apart, and the number before they were collapsed.
    """
    scales = scales_of(suite)
    base = Options(scales[0])
    axes = {
        "scale": scales,
        "shots": _SHOTS,
        "system": _SYSTEMS,
        "retrieval": _RETRIEVALS,
        "perturbation": _PERTURBATIONS,
    }
    if grid == "full":
        asked = [
            base,
            *(
                Options(**dict(zip(axes, values, strict=True)))
                for values in itertools.product(*axes.values())
            ),
        ]
        asked = list(dict.fromkeys(asked))
    elif grid == "small":
        asked = [base]
        for axis, values in axes.items():
            asked += [replace(base, **{axis: v}) for v in values if v != getattr(base, axis)]
    else:
        raise ConfigError("unknown grid", where=str(grid), hint=f"one of {', '.join(GRIDS)}")
    return list(dict.fromkeys(seen(options, kind) for options in asked)), len(asked)
