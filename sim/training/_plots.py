"""Evaluation curves as pictures."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["PICTURES", "curve_picture"]

#: Pictures by name: title, label of the vertical axis, figures with how their lines are drawn.
PICTURES: dict[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    "reward": ("Average reward of ten recommendations", "rating", (("average_reward", "-"),)),
    "ranking": (
        "Ranking and personalization",
        "0 to 1",
        (("map@10", "-"), ("mrr@10", "--"), ("personalization@10", ":")),
    ),
    "genres": (
        "Recommendations of liked and of disliked genres",
        "share",
        (("liked@10", "-"), ("disliked@10", "--")),
    ),
}

_COLOURS = ("#2a6f97", "#bc4749", "#6a994e", "#7b5ea7", "#d68c45", "#4a4e69")


def curve_picture(
    name: str,
    curves: Mapping[str, Sequence[Mapping[str, float]]],
    *,
    floors: Mapping[str, Mapping[str, float]] | None = None,
    subtitle: str = "",
) -> bytes:
    """One of `PICTURES` as PNG bytes.

    Parameters
    ----------
    name
        Which one.
    curves
        Rows of the evaluation curve by label, such as a seed.
    floors
        Values of recommenders that are not trained, drawn as horizontal lines (reward only).
    subtitle
        Second line of the title: on what it was measured, and by which rater.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    title, label, lines = PICTURES[name]
    figure = Figure(figsize=(7.0, 4.0), dpi=110, layout="constrained")
    axes: Any = figure.subplots()
    for n, (who, rows) in enumerate(curves.items()):
        steps = [row["steps"] for row in rows]
        for key, style in lines:
            text = who if len(lines) == 1 else f"{key}, {who}"
            axes.plot(
                steps,
                [row[key] for row in rows],
                style,
                color=_COLOURS[n % len(_COLOURS)],
                label=text,
                linewidth=1.6,
            )
    if len(lines) == 1:
        for n, (who, figures) in enumerate((floors or {}).items()):
            axes.axhline(
                figures[lines[0][0]], color="0.45", linewidth=1, linestyle=((0, (1 + n, 2)))
            )
            axes.annotate(
                who,
                (0.99, figures[lines[0][0]]),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                fontsize=7,
                color="0.35",
            )
    axes.set_title(f"{title}\n{subtitle}" if subtitle else title, fontsize=10, loc="left")
    axes.set_xlabel("steps")
    axes.set_ylabel(label)
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize=7, frameon=False)
    out = io.BytesIO()
    canvas: Any = FigureCanvasAgg(figure)
    canvas.print_png(out)
    return out.getvalue()
