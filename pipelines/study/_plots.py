"""Pictures of rows: bars or lines with intervals, one panel for each thing that is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipelines.figures import label, png
from pipelines.study._statistics import Figure
from pipelines.study._study import Row

#: Okabe and Ito's palette: distinguishable with any kind of colour blindness.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#333333")
#: Styles of lines, for series beyond those colours.
STYLES = ("-", "--", ":")
#: Lines of a panel up to which their intervals are drawn (count).
MAX_BANDS = 8
#: Width of a row of panels (inches).
MAX_WIDTH = 24.0
#: Points of a series: place on the horizontal axis, and a figure or a number.
Points = Mapping[str, Figure | float | None]
#: Panels of a picture: its title, and the points of each series by name.
Panels = Mapping[str, Mapping[str, Points]]


@dataclass(frozen=True)
class Plot:
    """How figures of rows are drawn: x and series by labels, a panel for each measure."""

    #: Title, and label of the vertical axis with its unit.
    title: str
    y: str
    #: Names of figures: several are series, or panels.
    figures: tuple[str, ...]
    #: Labels whose values are the places on the horizontal axis, and those of the series.
    x: tuple[str, ...]
    by: tuple[str, ...] = ()
    #: Lines in place of bars.
    lines: bool = False
    #: Labels whose values have panels of their own; ``figure`` stands for the name of the figure.
    panels: tuple[str, ...] = ()
    #: Rows that are drawn; all by default.
    where: Callable[[Row], bool] = lambda _: True

    def png(self, rows: Sequence[Row]) -> bytes:
        """The picture as PNG."""
        panels = self.grouped(rows)
        return draw(panels, title=self.title, x=", ".join(self.x), y=self.y, lines=self.lines)

    def grouped(self, rows: Sequence[Row]) -> Panels:
        """Points by panel and series; rows of different measures are in panels of their own."""
        panels: dict[str, dict[str, dict[str, Figure | float | None]]] = {}
        for row in sorted(filter(self.where, rows), key=lambda row: row.measure != ""):
            for name in self.figures:
                if row.figures.get(name) is None:
                    continue
                labels = {**row.labels, "figure": name}
                parts = self.by
                if len(self.figures) > 1 and "figure" not in self.panels:
                    parts = (*self.by, "figure")
                panel = ": ".join(filter(None, (_joined(labels, self.panels), row.measure)))
                series = panels.setdefault(panel, {}).setdefault(_joined(labels, parts), {})
                series[_joined(labels, self.x)] = row.figures[name]
        return panels


def _joined(labels: Mapping[str, str], names: Sequence[str]) -> str:
    return ", ".join(filter(None, (labels.get(name, "") for name in names)))


def draw(panels: Panels, *, title: str, x: str, y: str, lines: bool = False) -> bytes:
    """Panels side by side as PNG, in rows of at most 24 inches, each with its own vertical axis."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    panels = panels or {"no rows": {}}
    widths = [len({p for points in s.values() for p in points}) for s in panels.values()]
    across = sum(max(4.0, (0.5 if lines else 0.9) * n + 1.5) for n in widths)
    rows = min(math.ceil(across / MAX_WIDTH), len(panels))
    columns = math.ceil(len(panels) / rows)
    size = min(max(across / rows + 2.0, 7.0), 40.0), 4.2 * rows
    picture = Picture(figsize=size, dpi=110, layout="constrained")
    FigureCanvasAgg(picture)
    ratios = [max(3, *widths[n::columns]) for n in range(columns)]
    grid = picture.subplots(rows, columns, squeeze=False, width_ratios=ratios).ravel()
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes, (panel, series) in zip(grid, panels.items(), strict=False):
        _panel(axes, series, names, lines=lines)
        axes.set_title(
            label(panel) if len(panel) < 25 else panel, fontsize=9, loc="left", wrap=True
        )
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.spines[["top", "right"]].set_visible(False)
    picture.suptitle(title)
    shown = {n: h for axes in grid for h, n in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(names) > 1 or names not in ([], [""]):
        # Beside the axes: above bars it would hide some.
        picture.legend(shown.values(), shown, fontsize=8, loc="outside right center", frameon=False)
    return png(picture)


def _panel(axes: Any, series: Mapping[str, Points], names: Sequence[str], *, lines: bool) -> None:
    places = list(dict.fromkeys(place for points in series.values() for place in points))
    numeric = lines and all(_numeric(place) for place in places)
    at = {p: float(p) if numeric else float(n) for n, p in enumerate(places)}
    width = 0.8 / max(len(series), 1)
    for n, (name, points) in enumerate(series.items()):
        valid = {p: v for p, v in points.items() if v is not None and not np.isnan(_value(v))}
        values = [_value(v) for v in valid.values()]
        ends = [_ends(v) for v in valid.values()]
        off = [
            [max(v - low, 0.0) for v, (low, _) in zip(values, ends, strict=True)],
            [max(high - v, 0.0) for v, (_, high) in zip(values, ends, strict=True)],
        ]
        turn, place = divmod(names.index(name), len(COLOURS))
        colour = COLOURS[place]
        ranged = any(isinstance(v, Figure) for v in valid.values())
        if lines:
            x = [at[p] for p in valid]
            error = off if ranged and len(series) <= MAX_BANDS else None
            axes.errorbar(x, values, yerr=error, marker="o", capsize=2, color=colour, label=name,
                          linestyle=STYLES[turn % len(STYLES)])  # fmt: skip
            continue
        x = [at[p] + (n + 0.5) * width - 0.4 for p in valid]
        axes.bar(x, values, width, yerr=off if ranged else None, color=colour, label=name,
                 error_kw={"elinewidth": 0.8, "capsize": 2})  # fmt: skip
    if not numeric:
        turned = sum(map(len, places)) > 60
        axes.set_xticks(
            range(len(places)), [label(p) for p in places], fontsize=8,
            rotation=30 if turned else 0, ha="right" if turned else "center",
        )  # fmt: skip


def _numeric(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _value(figure: Figure | float) -> float:
    return figure.value if isinstance(figure, Figure) else float(figure)


def _ends(figure: Figure | float) -> tuple[float, float]:
    """Ends of the interval; the value itself where it has none."""
    value = _value(figure)
    if not isinstance(figure, Figure):
        return value, value
    low, high = figure.low, figure.high
    return (low if low == low else value), (high if high == high else value)
