"""A picture of one query: what was retrieved, and which paths it is owed to."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from functools import cache

import polars as pl

from pipelines.graph._memory import GraphMemory, Neighbour

#: Largest picture (bytes): it is stored in the metadata of a run.
MAX_BYTES = 80_000
#: Paths with a colour of their own; the rest share one (count).
_NAMED = 7
#: Colours that people who see colours differently can tell apart (Okabe and Ito 2008).
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
#: Comes with matplotlib, so pictures are the same everywhere.
_FONT = "DejaVu Sans"
_OTHERS, _USER, _COSINE = "#999999", "#444444", "#BBBBBB"


def sample_item(triples: pl.DataFrame | pl.LazyFrame, items: pl.DataFrame) -> str:
    """Default item to show: the one with the most raters, ties by id.

    The first of ``items`` is taken if nothing was rated.
    """
    raters = (
        triples.lazy()
        .filter(pl.col("relation") == "rated-by")
        .join(items.lazy().select(head="item_id"), on="head", how="semi")
        .group_by("head")
        .len()
        .sort(["len", "head"], descending=[True, False])
        .head(1)
        .collect()
    )
    return str(raters["head"][0] if raters.height else items["item_id"].min())


def neighbourhood_picture(
    memory: GraphMemory, item: str, *, user: str | None = None, k: int = 10
) -> bytes:
    """Draw the neighbours of an item, each a bar made of what its score is made of.

    Scores are from the point of view of ``user``, or everybody's. A PNG of less than 80 kB: per
    neighbour its title, year and rating, and its score divided among the meta-paths, the user's
    part and the embedding. Raises ContractError if the item or user is unknown.
    """
    nearest = memory.retrieve(user, item, k)
    image = b""
    for dots in (110, 80, 60, 45):
        image = _draw(memory, item, user, nearest, dots)
        if len(image) < MAX_BYTES:
            break
    return image


def _draw(
    memory: GraphMemory, item: str, user: str | None, nearest: Sequence[Neighbour], dots: int
) -> bytes:
    # Not pyplot: it keeps global state, and a step may run in any thread.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    weights = memory.settings
    named = _largest(nearest)
    colours = dict(zip(named, _COLOURS, strict=False))
    figure = Figure(figsize=(9, 1.8 + 0.42 * max(1, len(nearest))), dpi=dots, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    seen: dict[str, str] = {}
    for row, neighbour in enumerate(nearest):
        pieces = [
            (path if path in colours else "other paths", weights.alpha * share)
            for path, share in neighbour.paths.items()
        ]
        parts = neighbour.parts
        pieces.append(("the user's community", (1 - weights.alpha) * (parts.user_similarity or 0)))
        pieces.append(("embedding", weights.embedding_weight * (parts.cosine or 0)))
        left, below = 0.0, 0.0
        for label, width in pieces:
            if width == 0:
                continue
            colour = colours.get(label) or {
                "the user's community": _USER, "embedding": _COSINE
            }.get(label, _OTHERS)  # fmt: skip
            # A negative cosine goes to the left of zero.
            start = left if width > 0 else below
            axes.barh(row, width, left=start, color=colour, height=0.7)
            left, below = (left + width, below) if width > 0 else (left, below + width)
            seen[label] = colour
        axes.text(left, row, f" {neighbour.score:.3f}", va="center", fontsize=8)
    axes.set_yticks(range(len(nearest)), [_label(n) for n in nearest], fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="x", labelsize=8)
    axes.set_xlabel("score, by contribution", fontsize=8)
    who = f" for {user}" if user else ""
    title = f"Nearest to {memory.title(item)}{who}"
    axes.set_title(_plain("\n".join(textwrap.wrap(title, 80)[:2])), fontsize=11, loc="left")
    if not nearest:
        axes.text(0.5, 0.5, "no path or embedding leads to another item", ha="center", va="center",
                  transform=axes.transAxes)  # fmt: skip
    if seen:
        from matplotlib.patches import Patch

        order = [*named, "other paths", "the user's community", "embedding"]
        figure.legend(
            handles=[Patch(color=seen[name], label=name) for name in order if name in seen],
            loc="outside lower center",
            ncols=3,
            fontsize=8,
            frameon=False,
        )
    out = io.BytesIO()
    # Without the default text chunk, which names the version of matplotlib.
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()


def _largest(nearest: Sequence[Neighbour]) -> list[str]:
    """Paths that get a colour: those with the largest shares over all neighbours."""
    total: dict[str, float] = {}
    for neighbour in nearest:
        for path, share in neighbour.paths.items():
            total[path] = total.get(path, 0.0) + share
    return sorted(total, key=lambda path: (-total[path], path))[:_NAMED]


def _label(neighbour: Neighbour) -> str:
    year = f" ({neighbour.year})" if neighbour.year else ""
    title = textwrap.shorten(" ".join(neighbour.title.split()), 42, placeholder="…")
    if neighbour.rating is None:
        rating = "not rated"
    else:
        whose = "own rating" if neighbour.rating_of == "own" else "others' mean"
        rating = f"{whose} {neighbour.rating:.1f}"
    return _plain(f"{title}{year}\n{rating}")


def _plain(text: str) -> str:
    """Text that matplotlib draws as it is: no formulas, and only what its font has."""
    drawable = _drawable()
    visible = "".join(
        c if ord(c) in drawable or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text
    )
    return visible.replace("\\", "\\\\").replace("$", r"\$")


@cache
def _drawable() -> frozenset[int]:
    """Code points that the font of the picture can draw (the one that comes with matplotlib)."""
    from matplotlib.font_manager import findfont, get_font

    return frozenset(get_font(findfont(_FONT)).get_charmap())
