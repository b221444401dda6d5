"""Drawing without global state: small PNG figures that read alike."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BLUE", "ORANGE", "bars", "canvas", "empty", "grouped_bars", "png", "to_markdown_image"]

# Okabe and Ito's palette: distinguishable with any kind of colour blindness, and in grey.
BLUE, ORANGE = "#0072B2", "#E69F00"
_TITLE, _LABEL, _TICK = 12, 11, 9
_LONGEST = 24


def canvas(
    title: str, x: str, y: str, *, height: float = 3.4, width: float = 6.4
) -> tuple[Figure, Axes]:
    """A figure with one labelled pair of axes (inches)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=_TITLE, loc="left")
    axes.set_xlabel(x, fontsize=_LABEL)
    axes.set_ylabel(y, fontsize=_LABEL)
    axes.tick_params(labelsize=_TICK)
    axes.grid(visible=True, color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def png(figure: Figure) -> bytes:
    """The figure as PNG bytes, the same for the same drawing."""
    from PIL import Image

    # `savefig` lays the figure out and draws it twice.
    drawn: Any = figure.canvas
    drawn.draw()
    buffer = io.BytesIO()
    Image.frombuffer("RGBA", drawn.get_width_height(), drawn.buffer_rgba()).save(buffer, "png")
    return buffer.getvalue()


def empty(title: str) -> bytes:
    """A figure with a note that there is nothing to draw."""
    figure, axes = canvas(title, "", "")
    axes.text(0.5, 0.5, "no rows", ha="center", va="center", fontsize=_LABEL)
    axes.set_xticks([])
    axes.set_yticks([])
    return png(figure)


def label(text: Any) -> str:
    """A tick label: short, one line, and never read as TeX."""
    shown = " ".join(str(text).split())
    cut = shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"
    return "".join(c if c.isprintable() else "?" for c in cut).replace("$", r"\$")


def bars(
    title: str,
    x: str,
    y: str,
    labels: Sequence[Any],
    values: Sequence[float],
    *,
    share: bool = False,
) -> bytes:
    """Horizontal bars, first on top, each with its number."""
    if not labels:
        return empty(title)
    figure, axes = canvas(title, x, y, height=max(2.0, 1.3 + 0.24 * len(labels)))
    places = range(len(labels))
    drawn = axes.barh(places, values, color=BLUE, height=0.75)
    axes.set_yticks(places, [label(t) for t in labels], fontsize=_TICK)
    axes.invert_yaxis()
    axes.bar_label(drawn, fmt="{:.0%}" if share else "{:,.0f}", padding=3, fontsize=_TICK)
    axes.margins(x=0.14)
    if share:
        axes.set_xlim(0, 1.12)
    return png(figure)


def grouped_bars(
    title: str,
    x: str,
    y: str,
    labels: Sequence[Any],
    groups: Sequence[tuple[str, Sequence[float]]],
    *,
    rotate: bool = False,
) -> bytes:
    """Two series of vertical bars side by side."""
    if not labels:
        return empty(title)
    figure, axes = canvas(title, x, y)
    width = 0.8 / len(groups)
    for n, (name, values) in enumerate(groups):
        places = [i + (n - (len(groups) - 1) / 2) * width for i in range(len(labels))]
        hatch = "" if n == 0 else "//"
        axes.bar(
            places,
            values,
            width=width,
            label=name,
            color=(BLUE, ORANGE)[n % 2],
            hatch=hatch,
            edgecolor="white",
            linewidth=0.3,
        )
    axes.set_xticks(
        range(len(labels)),
        [label(t) for t in labels],
        rotation=45 if rotate else 0,
        ha="right" if rotate else "center",
        fontsize=_TICK,
    )
    # Above the axes, where no bar is.
    axes.legend(
        fontsize=_TICK, frameon=False, ncols=len(groups), loc="lower right", bbox_to_anchor=(1, 1)
    )
    return png(figure)


def to_markdown_image(image: bytes, alt: str) -> str:
    """A PNG inside Markdown, as a data address.

    >>> to_markdown_image(b"png", "ratings")
    '![ratings](data:image/png;base64,cG5n)'
    """
    from pipelines.markdown import escape_markdown

    return f"![{escape_markdown(alt)}](data:image/png;base64,{base64.b64encode(image).decode()})"


def share(counts: pl.Series) -> list[float]:
    """Counts as shares of their sum."""
    return [float(c) for c in counts / max(1, counts.sum())]
