"""Experiment ``causal``: graph of quality, popularity, exposure, views and rating of items."""

from __future__ import annotations

import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy import stats

from pipelines.study import Figure, Study, TooFew
from sim.agents import AgentWorld, Simulation
from sim.experiments._context import ExperimentContext
from sim.experiments._data import Floats, finished, item_frame
from sim.experiments._experiment import experiment, page

#: Variables of an item, in the order of columns.
VARIABLES = ("quality", "ln popularity", "exposure", "views", "rating")


@experiment(
    question="Does DirectLiNGAM find the causes that the simulation has by construction: what "
    "raises an item's exposure, views and rating?",
    paper="Agent4Rec, Fig. 9",
    conditions=("brain", "edge", "by construction"),
    **page("causal"),
)
def causal(
    study: Study,
    context: ExperimentContext,
    *,
    recommender: str = "als",  # ``als`` stands for Agent4Rec's MF
    min_ratings: int = 3,  # by agents that an item needs for its mean (count)
    min_items: int = 50,  # with that many that a graph needs (count)
    resamples: int = 100,  # bootstrap samples of items (count)
    share: float = 0.95,  # of the resamples from which a direction is claimed
) -> None:
    """Fit the graph on the items that agents of each brain rated."""
    for name, brain, source in context.players():
        run = context.visits(brain, recommender)
        values = item_values(context.world_of(brain), run, min_ratings)
        constant = any(not np.ptp(column) for column in values.T) if len(values) else False
        try:
            study.require(
                f"items with {min_ratings} ratings by agents", 0 if constant else len(values),
                min_items, "more --agents or --pages", of=f"brain {name}",
            )  # fmt: skip
        except TooFew as error:
            # A model is asked for a sample that can be too small for a graph.
            if source != "model":
                raise
            study.notes.append(f"No graph of `{name}`: {error}.")
            continue
        frame = context.cell(
            study, {"visits": run.identity}, partial(_edges, values, resamples, share)
        )
        study.counts[f"items, {name}"] = len(values)
        study.notes.append(_diagnosis(name, frame, resamples, share))
        for edge in frame.drop_nulls("source").iter_rows(named=True):
            pair = edge["source"], edge["target"]
            study.add(
                (name, " -> ".join(pair), by_construction(name, *pair)),
                source,
                figures={
                    # A found edge may be outside of the percentiles of its resamples.
                    "weight": Figure(edge["weight"], min(edge["low"], edge["weight"]),
                                     max(edge["high"], edge["weight"])),
                    "share": edge["share"],
                    "claimed": float(edge["claimed"]),
                },
                n=len(values),
            )  # fmt: skip


def _edges(values: Floats, resamples: int, share: float) -> pl.DataFrame:
    """Edges with their shares; tests of the assumptions stand in every row."""
    scaled = (values - values.mean(axis=0)) / values.std(axis=0)
    graph, stable, tested = edges(scaled, resamples=resamples, share=share)
    names = dict(enumerate(VARIABLES))
    # Without an edge one row has the tests.
    frame = stable if stable.height else stable.clear(1)
    return frame.with_columns(
        pl.col("source", "target").replace_strict(names, return_dtype=pl.String),
        order=pl.lit(" -> ".join(VARIABLES[n] for n in graph.order)),
        normal=pl.lit(sum(p >= 0.01 / len(VARIABLES) for p in tested.normal)),
        dependent=pl.lit(tested.dependent),
    )


def _diagnosis(brain: str, frame: pl.DataFrame, resamples: int, share: float) -> str:
    row = frame.row(0, named=True)
    claimed = int(frame["claimed"].fill_null(False).sum())
    stability = frame.filter(pl.col("share") >= share)
    wrong = [
        f"{source} -> {target}"
        for source, target in stability.select("source", "target").iter_rows()
        if by_construction(brain, source, target) == "false"
    ]
    return (
        f"`{brain}`: order {row['order']}; {stability.height} edges in at least {share:.0%} "
        f"of {resamples} resamples, of which {len(wrong)} are false by construction"
        f"{' (' + ', '.join(wrong) + ')' if wrong else ''}; {row['normal']} of {len(VARIABLES)} "
        f"residuals may be normal; p of independent residuals {row['dependent']:.2g} (HSIC, "
        f"Bonferroni); {claimed} directions claimed."
    )


def by_construction(brain: str, source: str, target: str) -> str:
    """``true`` or ``false`` where the simulation decides an edge, else ``open``.

    Quality and popularity are there before the visits, and an item is shown before it is watched
    and watched before it is rated, so that no edge leads back.

    >>> by_construction("statistical", "views", "exposure"), by_construction("random", "quality",
    ...     "rating")
    ('false', 'false')
    """
    stage = {"quality": 0, "ln popularity": 0, "exposure": 1, "views": 2, "rating": 3}
    if stage[source] > stage[target] or (brain in ("random", "always") and target == "rating"):
        return "false"
    certain = {("ln popularity", "exposure"), ("exposure", "views")}
    if brain == "statistical":
        certain.add(("quality", "rating"))
    return "true" if (source, target) in certain else "open"


def item_values(world: AgentWorld, run: Simulation, min_ratings: int) -> Floats:
    """Columns of `VARIABLES` for each item with enough ratings by agents, of shape (items, 5).

    Quality is the mean training rating, popularity one more than the training ratings, exposure
    and views the shares of agents that were shown the item and watched it, rating the mean of
    theirs.
    """
    agents = finished(run)
    views = run.table("views").collect().join(agents, on="agent", how="semi")
    per_agent = views.group_by("item_id", "agent").agg(
        pl.col("watched").any(), pl.col("rating").drop_nulls().mean()
    )
    per_item = per_agent.group_by("item_id").agg(
        exposure=pl.len() / agents.height,
        views=pl.col("watched").sum() / agents.height,
        ratings=pl.col("rating").count(),
        rating=pl.col("rating").mean(),
    )
    popularity = np.log1p(world.item_histograms.sum(axis=1))
    items = item_frame(world, quality=world.mean_ratings, popularity=popularity)
    rated = items.filter(pl.col("quality").is_not_nan()).join(
        per_item.filter(pl.col("ratings") >= min_ratings), on="item_id", maintain_order="left"
    )
    columns = ["quality", "popularity", "exposure", "views", "rating"]
    return np.asarray(rated.select(columns).to_numpy(), np.float64)


class Graph(NamedTuple):
    """Linear acyclic graph of some variables."""

    #: Variables, causes before effects.
    order: tuple[int, ...]
    #: Effect of variable j on variable i at [i, j], of shape (variables, variables).
    weights: Floats


class Diagnosis(NamedTuple):
    """Assumptions of LiNGAM, tested on the residuals of the graph."""

    #: p of each residual under a normal distribution (D'Agostino and Pearson).
    normal: tuple[float, ...]
    #: Smallest p of the pairs of residuals under independence (HSIC), times the pairs.
    dependent: float
    #: Whether at most one residual may be normal: else no direction is identified.
    identified: bool
    #: Whether directions are identified and no dependence of the residuals contradicts them.
    holds: bool


def discover(values: Floats) -> Graph:
    """Fit DirectLiNGAM on rows of variables, of shape (n, variables)."""
    from causallearn.search.FCMBased.lingam import DirectLiNGAM

    model = DirectLiNGAM()
    with warnings.catch_warnings():
        # Path lengths of the lasso within a rounding error of each other.
        warnings.simplefilter("ignore")
        model.fit(values)
    return Graph(tuple(int(n) for n in model.causal_order_), np.array(model.adjacency_matrix_))


def diagnose(values: Floats, graph: Graph, *, level: float = 0.01) -> Diagnosis:
    """Test whether the residuals of a graph identify directions.

    Directions follow from non-normal independent residuals; with two normal ones both directions
    fit equally well (Shimizu et al. 2006).
    """
    from causallearn.search.FCMBased.lingam.hsic import hsic_test_gamma

    centred = values - values.mean(axis=0)
    residuals = centred - centred @ graph.weights.T
    normal = [float(stats.normaltest(column).pvalue) for column in residuals.T]
    size = residuals.shape[1]
    pairs = [(i, j) for i in range(size) for j in range(i)]
    dependent = [float(hsic_test_gamma(residuals[:, [i]], residuals[:, [j]])[1]) for i, j in pairs]
    corrected = min(1.0, min(dependent) * len(pairs))
    identified = sum(p >= level / size for p in normal) <= 1
    return Diagnosis(tuple(normal), corrected, identified, identified and corrected >= level)


def edges(
    values: Floats, *, resamples: int = 100, share: float = 0.95, seed: int = 0
) -> tuple[Graph, pl.DataFrame, Diagnosis]:
    """Graph of some variables with the stability of each edge under resampling of the rows.

    ``values`` are of shape (n, variables); ``resamples`` are bootstrap samples of the rows (count),
    ``share`` is the share of them from which a direction is claimed. Edges have ``source`` and
    ``target`` (numbers of variables), ``weight`` with its 95 % interval over the resamples (``low``
    and ``high``), the ``share`` of the resamples with the edge, and ``claimed``: whether the share
    is large enough, and the residuals identify directions and don't contradict the model.
    """
    rng = np.random.default_rng(seed)
    graph = discover(values)
    drawn = np.stack(
        [discover(values[rng.integers(0, len(values), len(values))]).weights
         for _ in range(resamples)]
    )  # fmt: skip
    tested = diagnose(values, graph)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    shares = (drawn != 0).mean(axis=0)
    at = np.nonzero(((shares > 0) | (graph.weights != 0)) & ~np.eye(len(shares), dtype=bool))
    columns = {"weight": graph.weights, "low": low, "high": high, "share": shares}
    frame = pl.DataFrame(
        {"source": at[1], "target": at[0], **{name: values[at] for name, values in columns.items()}}
    )
    claimed = pl.lit(tested.holds) & (pl.col("share") >= share)
    return graph, frame.with_columns(claimed=claimed), tested
