"""Means over people with bootstrap intervals, and paired differences over the same people."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from sim.experiments._protocol import Comparison, Row
from sim.metrics import RESAMPLES, Figure, mean_with_interval, paired_permutation, user_weights

Floats = npt.NDArray[np.float64]


@lru_cache(maxsize=16)
def _weights(users: int) -> Any:
    return user_weights(users, RESAMPLES, 0)


def mean_figure(values: Any) -> Figure | None:
    """Mean of one value per person with its 95 % interval; NaN is left out, None if all are.

    >>> mean_figure([1.0, 1.0, float("nan")])
    Figure(value=1.0, low=1.0, high=1.0, by_seed=(), seed_low=None, seed_high=None)
    """
    known = np.asarray(values, np.float64)
    known = known[~np.isnan(known)]
    if not len(known):
        return None
    found = mean_with_interval(known, _weights(len(known)))
    # Resampled means of equal values differ from theirs in the last bit.
    return Figure(found.value, min(found.low, found.value), max(found.high, found.value))


def by_person(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Means of columns per person, ordered by ``persona_id``: its agents are not independent."""
    means = [pl.col(n).cast(pl.Float64).fill_nan(None).mean() for n in names]
    return frame.group_by("persona_id").agg(means).sort("persona_id")


def person_figures(frame: pl.DataFrame, names: Sequence[str]) -> dict[str, Figure | float | None]:
    """Means over people with 95 % intervals, by column; parameters as of :func:`by_person`."""
    means = by_person(frame, names)
    return {n: mean_figure(means[n].fill_null(np.nan).to_numpy()) for n in names}


def paired(
    left: tuple[Row, pl.DataFrame], right: tuple[Row, pl.DataFrame], figure: str, *, seed: int = 0
) -> Comparison | None:
    """Paired difference of a column over the people of both sides; None without any.

    Sides are a row of the table and rows of agents with ``persona_id`` and the column ``figure``.
    """
    sides = [by_person(f, [figure]).drop_nulls() for _, f in (left, right)]
    both = sides[0].join(sides[1], on="persona_id", suffix="_right").sort("persona_id")
    if both.is_empty():
        return None
    values = both[figure].to_numpy(), both[f"{figure}_right"].to_numpy()
    difference = mean_figure(values[0] - values[1])
    assert difference is not None
    return Comparison(
        left[0].title,
        right[0].title,
        figure,
        difference,
        paired_permutation(*values, seed=seed),
        both.height,
    )


def bars(
    title: str, groups: Sequence[str], series: Mapping[str, Sequence[Any]], unit: str
) -> bytes:
    """Bars with intervals as PNG.

    ``groups`` are names along the horizontal axis, ``unit`` labels the vertical one. ``series`` has
    figures or numbers, one per group, by name; None leaves a gap.
    """
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(max(6.0, 1.1 * len(groups) + 2.5), 4))
    axes = picture.subplots()
    width = 0.8 / max(len(series), 1)
    for n, (name, values) in enumerate(series.items()):
        place = np.arange(len(groups)) + (n + 0.5) * width - 0.4
        heights = [np.nan if v is None else float(getattr(v, "value", v)) for v in values]
        off = np.array(
            [
                [v.value - v.low, v.high - v.value] if isinstance(v, Figure) else [0.0, 0.0]
                for v in values
            ]
        ).T
        axes.bar(place, heights, width, label=name)
        axes.errorbar(place, heights, yerr=np.maximum(off, 0.0), fmt="none", ecolor="black",
                      elinewidth=0.8, capsize=2)  # fmt: skip
    axes.set_xticks(range(len(groups)), groups, rotation=20 if len(groups) > 5 else 0)
    axes.set_ylabel(unit)
    # Beside the bars: above them it would hide some.
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return finish_picture(picture, axes, title)


def finish_picture(picture: Any, axes: Any, title: str) -> bytes:
    """A matplotlib figure as PNG, with a title and without upper and right borders."""
    axes.set_title(title)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    picture.tight_layout()
    data = io.BytesIO()
    # No date and no version: equal figures are equal bytes.
    picture.savefig(data, format="png", dpi=110, metadata={"Software": None})
    return data.getvalue()
