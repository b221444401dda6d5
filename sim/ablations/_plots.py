"""Pictures of a suite: scores by component, ratings beside people's."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from pipelines.scales import scale_named
from sim.ablations._cases import TESTS
from sim.ablations._grid import UNSEEN, Options
from sim.ablations._run import Configuration, SuiteResult

#: Colours that people with red-green blindness can tell apart (Okabe and Ito).
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#333333")
_COMPONENTS = ("retrieval", "perturbation", "scale", "shots", "system", "wording")


def plots_of(result: SuiteResult) -> dict[str, bytes]:
    """PNG bytes: ``scores`` and, where there are people to compare with, ``ratings``."""
    out = {"scores": _scores(result)}
    if any(c.human is not None for c in result.configurations):
        out["ratings"] = _ratings(result)
    return out


def _scores(result: SuiteResult) -> bytes:
    """Tests by rater, then for each component that some rater sees the scores of its values."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    panels = [("rater", [(name, result.baseline(name)) for name in result.raters])]
    for name in result.raters:
        base = result.baseline(name)
        mine = [c for c in result.configurations if c.rater == name]
        for axis in _COMPONENTS:
            # Only this one differs from the baseline.
            varied = [c for c in mine if _others(c.options, axis) == _others(base.options, axis)]
            if (
                len(varied) > 1
                and getattr(base.options, axis) != UNSEEN
                and name not in ("random", "mean")
            ):
                panels.append((f"{name}: {axis}", [(getattr(c.options, axis), c) for c in varied]))
    columns = 2
    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(12, 3.1 * rows + 0.7), layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns, sharey=True)).ravel()
    for axis, (title, shown) in zip(axes, panels, strict=False):
        _bars(axis, title, shown)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    figure.suptitle(
        f"Ablation suite {result.suite.domain}: score by component (95 % intervals over users)"
    )
    return _png(figure)


def _others(options: Options, axis: str) -> dict[str, Any]:
    return {k: v for k, v in options.metadata().items() if k != axis}


def _bars(axis: Any, title: str, shown: list[tuple[str, Configuration]]) -> None:
    tests = (*TESTS, "aggregate")
    width = 0.8 / len(tests)
    for n, test in enumerate(tests):
        scores = [c.scores[test] for _, c in shown]
        value = np.array([s.score for s in scores])
        low = np.array([s.low for s in scores])
        high = np.array([s.high for s in scores])
        place = np.arange(len(shown)) + (n - (len(tests) - 1) / 2) * width
        margin = np.nan_to_num(np.clip([value - low, high - value], 0, None))
        axis.bar(
            place, np.nan_to_num(value), width, yerr=margin, label=test, color=_COLOURS[n],
            error_kw={"linewidth": 0.8},
        )  # fmt: skip
    axis.set_xticks(np.arange(len(shown)), [name for name, _ in shown])
    axis.set_ylim(0, 1.02)
    axis.set_ylabel("score")
    axis.set_title(title, fontsize=10)
    axis.spines[["top", "right"]].set_visible(False)


def _ratings(result: SuiteResult) -> bytes:
    """Histogram of each rater's baseline in the similarity test, people's beside it."""
    import matplotlib
    import polars as pl

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    shown = [result.baseline(name) for name in result.raters]
    figure = Figure(figsize=(3.4 * len(shown), 3.4), layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(shown), sharey=True))
    for axis, c in zip(axes, shown, strict=True):
        rated = c.cases.filter((pl.col("test") == "similarity") & (pl.col("status") == "ok"))
        human = c.human
        if human is None or not rated.height:
            axis.set_visible(False)
            continue
        count = np.bincount(rated["answer"].to_numpy(), minlength=len(human))
        place = np.arange(len(human))
        axis.bar(place - 0.2, count / count.sum(), 0.4, label=c.rater, color=_COLOURS[0])
        axis.bar(place + 0.2, human, 0.4, label="people", color=_COLOURS[1])
        scale = scale_named(c.options.scale)
        names = scale.texts if len(scale) == len(human) else [str(n + 1) for n in place]
        axis.set_xticks(place, names)
        axis.set_title(f"{c.rater}: similarity {c.scores['similarity'].score:.3f}", fontsize=10)
        axis.set_xlabel("rating")
        axis.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.2))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("share of ratings")
    figure.suptitle(f"Ratings beside people's ({result.suite.domain})")
    return _png(figure)


def _png(figure: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110)
    return out.getvalue()
