"""Varied options, the grids over them, and which options a rater can see."""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from pipelines.errors import ConfigError

Grid = Literal["words", "small", "full"]
GRIDS: tuple[Grid, ...] = ("words", "small", "full")
#: Placeholder for an option that the rater can't see.
UNSEEN = "-"

_SHOTS = ("0", "1", "2")
_SYSTEMS = ("default", "custom")
_RETRIEVALS = ("none", "recent", "features", "embedding", "graph")
_PERTURBATIONS = ("none", "greedy", "gaussian")
_SCALES = {"movies": ("1-10", "0-9", "one-ten"), "books": ("1-5",)}
#: Options that each kind of rater can see: only prompts have examples and a system text, and
#: only raters that use a history can tell how it was chosen.
_SEEN = {
    "statistical": frozenset({"retrieval", "wording"}),
    "random": frozenset[str](),
    "mean": frozenset[str](),
    "llm": frozenset({"shots", "system", "retrieval", "wording"}),
    "closed question": frozenset({"system", "retrieval", "wording"}),
}
#: Wordings of hand-made personas beside our own words with fields; each is asked of the baseline
#: only. Those of the sealed half are for final runs.
_WORDINGS = ("own-text", "open", "open-text")
_SEALED = ("sealed", "sealed-text")


@dataclass(frozen=True)
class Options:
    """Options of a configuration other than its rater.

    ``shots`` is ``0``, ``1`` or ``2`` worked examples, ``system`` is ``default`` or ``custom``;
    ``wording`` of the hand-made personas is ``own`` words with fields, ``open`` or ``sealed``
    paraphrases with fields, or one of these with ``-text``, without fields.
    """

    scale: str
    shots: str = "2"
    system: str = "custom"
    retrieval: str = "embedding"
    perturbation: str = "none"
    wording: str = "own"

    @property
    def prompt(self) -> tuple[int, str]:
        """Examples and system text of a prompt; what the rater can't see is at its default."""
        shots = 0 if self.shots == UNSEEN else int(self.shots)
        return shots, "default" if self.system == UNSEEN else self.system

    def metadata(self) -> dict[str, Any]:
        """The options, ready for JSON."""
        return asdict(self)


def scales_of(suite: str) -> tuple[str, ...]:
    """The scales of a suite, the usual one first."""
    if suite not in _SCALES:
        raise ConfigError("no ablation suite", where=suite, hint=f"one of {', '.join(_SCALES)}")
    return _SCALES[suite]


def seen(options: Options, kind: str) -> Options:
    """The options with what the rater can't see left out.

    Configurations that differ only in what the rater can't see are one. How the ten answers are
    written is seen by models only: for other raters ``one-ten`` and ``0-9`` are ``1-10``, from
    which they are converted.

    The statistical rater reads no text of a persona with fields.

    >>> found = seen(Options("one-ten", shots="1", wording="open"), "statistical")
    >>> found.scale, found.shots, found.retrieval, found.wording
    ('1-10', '-', 'embedding', 'own')
    """
    axes = ("shots", "system", "retrieval", "wording")
    hidden = {name: UNSEEN for name in axes if name not in _SEEN[kind]}
    if kind == "statistical" and not options.wording.endswith("-text"):
        hidden["wording"] = "own"
    if kind != "llm" and options.scale in ("one-ten", "0-9"):
        hidden["scale"] = "1-10"
    return replace(options, **hidden)


def configurations(
    suite: str, kind: str, grid: Grid, *, sealed: bool = False
) -> tuple[list[Options], int]:
    """The different configurations of a rater, the baseline first, and how many were asked for.

    The grid ``words`` is the baseline without examples and with the default system text, in each
    wording of the personas. The grid ``full`` is every combination; ``small`` is the baseline (two
    examples, custom system text, retrieval by embedding, no noise: SUBER's, section 4.2) and what
    differs from it in one option. With `sealed` the paraphrases of the sealed half are asked too.
    The second number is that before those which the rater can't tell apart were collapsed.
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
    if grid == "words":
        base = replace(base, shots="0", system="default")
        requested = [base]
    elif grid == "full":
        requested = [
            base,
            *(
                Options(**dict(zip(axes, values, strict=True)))
                for values in itertools.product(*axes.values())
            ),
        ]
        requested = list(dict.fromkeys(requested))
    elif grid == "small":
        requested = [base]
        for axis, values in axes.items():
            requested += [replace(base, **{axis: v}) for v in values if v != getattr(base, axis)]
    else:
        raise ConfigError("unknown grid", where=str(grid), hint=f"one of {', '.join(GRIDS)}")
    words = (*_WORDINGS, *(_SEALED if sealed else ()))
    requested += [replace(base, wording=wording) for wording in words]
    return list(dict.fromkeys(seen(options, kind) for options in requested)), len(requested)
