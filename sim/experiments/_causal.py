"""Experiment ``causal``: graph of quality, popularity, exposure, views and rating of items."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
from scipy import stats

from pipelines.figures import png
from pipelines.study import Claim, Figure, Row, Study, TooFew
from sim.agents import AgentWorld, Simulation
from sim.experiments._context import ExperimentContext
from sim.experiments._experiment import experiment
from sim.experiments._feedback import Floats

#: Variables of an item, in the order of columns.
VARIABLES = ("quality", "ln popularity", "exposure", "views", "rating")


@experiment(
    question="Does DirectLiNGAM find the causes that the simulation has by construction: what "
    "raises an item's exposure, views and rating?",
    paper="Agent4Rec, Fig. 9",
    conditions=("brain", "edge", "by construction"),
    figures={
        "weight": "effect of the first variable on the second in standard deviations; interval "
        "over resampled items",
        "share": "share of the resamples of items in which the edge is found, 0-1",
        "claimed": "1 where the direction is claimed, else 0",
    },
    claim=Claim(
        "Quality and popularity of an item cause its exposure, views and rating, and views raise "
        "popularity: a causal graph found among agents.",
        figure="weight",
        row={"edge": "quality -> rating"},
        control=0.0,
        above="Quality raises the rating, as the simulation has it; whether the direction may be "
        "claimed is said in the column `claimed`, and false edges are listed below.",
        below="Contradicted: quality lowers the rating.",
        equal="Not found: no effect of quality on the rating.",
    ),
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
    study.notes += _NOTES
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
        items = int(frame["items"][0])
        study.counts[f"items, {name}"] = items
        study.notes.append(_diagnosis(name, frame, resamples, share))
        for edge in frame.drop_nulls("source").iter_rows(named=True):
            study.add(
                (
                    name,
                    f"{edge['source']} -> {edge['target']}",
                    by_construction(name, edge["source"], edge["target"]),
                ),
                source,
                figures={
                    "weight": Figure(edge["weight"], edge["low"], edge["high"]),
                    "share": edge["share"],
                    "claimed": float(edge["claimed"]),
                },
                n=items,
            )
    study.pictures["graphs"] = _picture(study.rows)


def _edges(values: Floats, resamples: int, share: float) -> pl.DataFrame:
    """Edges with their shares; items and tests of the assumptions stand in every row."""
    scaled = (values - values.mean(axis=0)) / values.std(axis=0)
    graph, found, tested = edges(scaled, resamples=resamples, share=share)
    rows = [
        {
            "source": VARIABLES[edge.source],
            "target": VARIABLES[edge.target],
            "weight": edge.weight,
            # A found edge may be outside of the percentiles of its resamples.
            "low": min(edge.low, edge.weight),
            "high": max(edge.high, edge.weight),
            "share": edge.share,
            "claimed": edge.claimed,
        }
        for edge in found
    ]
    frame = pl.DataFrame(rows or [dict.fromkeys(_EDGES)], schema=_EDGES)
    return frame.with_columns(
        items=pl.lit(len(values)),
        order=pl.lit(" -> ".join(VARIABLES[n] for n in graph.order)),
        normal=pl.lit(sum(p >= 0.01 / len(VARIABLES) for p in tested.normal)),
        dependent=pl.lit(tested.dependent),
    )


_EDGES = {
    "source": pl.String,
    "target": pl.String,
    "weight": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "share": pl.Float64,
    "claimed": pl.Boolean,
}
_NOTES = [
    "Known by construction: no edge leads back from what came later; exposure comes from the "
    "recommender, which was fitted on counts, never on ratings; views are draws among exposures; a "
    "rating is drawn after watching. The brain `random` rates from one histogram, so that every "
    "edge into its rating is false.",
    "DirectLiNGAM assumes linear effects, non-normal independent residuals and no hidden cause. A "
    "direction is claimed where the edge is in nearly all resamples of the items, at most one "
    "residual may be normal, and no dependence of the residuals contradicts the model.",
]


def _diagnosis(brain: str, frame: pl.DataFrame, resamples: int, share: float) -> str:
    row = frame.row(0, named=True)
    claimed = int(frame["claimed"].fill_null(False).sum())
    found = frame.filter(pl.col("share") >= share)
    wrong = [
        f"{source} -> {target}"
        for source, target in found.select("source", "target").iter_rows()
        if by_construction(brain, source, target) == "false"
    ]
    return (
        f"`{brain}`: order {row['order']}; {found.height} edges in at least {share:.0%} "
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
    whole = run.table("agents").filter(pl.col("exit_reason") != "failed").select("agent")
    agents = int(whole.select(pl.len()).collect().item())
    per_agent = (
        run.table("views")
        .join(whole, on="agent", how="semi")
        .group_by("item_id", "agent")
        .agg(watched=pl.col("watched").any(), rating=pl.col("rating").drop_nulls().mean())
    )
    per_item = (
        per_agent.group_by("item_id")
        .agg(
            exposure=pl.len() / agents,
            views=pl.col("watched").sum() / agents,
            ratings=pl.col("rating").count(),
            rating=pl.col("rating").mean(),
        )
        .filter(pl.col("ratings") >= min_ratings)
        .collect()
    )
    known = pl.DataFrame(
        {
            "item_id": world.catalogue.ids,
            "quality": world.mean_ratings,
            "popularity": np.log1p(world.item_histograms.sum(axis=1)),
        }
    ).filter(pl.col("quality").is_not_nan())
    found = known.join(per_item, on="item_id", how="inner", maintain_order="left")
    columns = ["quality", "popularity", "exposure", "views", "rating"]
    return np.asarray(found.select(columns).to_numpy(), np.float64)


@dataclass(frozen=True)
class Graph:
    """Linear acyclic graph of some variables."""

    #: Variables, causes before effects.
    order: tuple[int, ...]
    #: Effect of variable j on variable i at [i, j], of shape (variables, variables).
    weights: Floats


@dataclass(frozen=True)
class Edge:
    """Directed edge between two variables."""

    #: Numbers of the variables.
    source: int
    target: int
    #: Effect, and its 95 % interval over the resamples.
    weight: float
    low: float
    high: float
    #: Share of the resamples with this edge.
    share: float
    #: Whether its direction is claimed: `share` is large enough, and the residuals identify it and
    #: don't contradict the model.
    claimed: bool


@dataclass(frozen=True)
class Diagnosis:
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
) -> tuple[Graph, list[Edge], Diagnosis]:
    """Graph of some variables with the stability of each edge under resampling of the rows.

    ``values`` are of shape (n, variables); ``resamples`` are bootstrap samples of the rows (count),
    ``share`` is the share of them from which a direction is claimed.
    """
    rng = np.random.default_rng(seed)
    graph = discover(values)
    drawn = np.stack(
        [discover(values[rng.integers(0, len(values), len(values))]).weights
         for _ in range(resamples)]
    )  # fmt: skip
    found = diagnose(values, graph)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    shares = (drawn != 0).mean(axis=0)
    out = [
        Edge(
            j,
            i,
            float(graph.weights[i, j]),
            float(low[i, j]),
            float(high[i, j]),
            float(shares[i, j]),
            bool(found.holds and shares[i, j] >= share),
        )
        for i in range(len(shares))
        for j in range(len(shares))
        if i != j and (shares[i, j] > 0 or graph.weights[i, j] != 0)
    ]
    return graph, out, found


def _picture(edges_found: list[Row]) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Picture

    found: dict[str, list[Row]] = {}
    for row in edges_found:
        found.setdefault(row.labels["brain"], []).append(row)
    picture = Picture(figsize=(5.5 * max(len(found), 1), 4.8), dpi=110, layout="constrained")
    FigureCanvasAgg(picture)
    grid = picture.subplots(1, max(len(found), 1), squeeze=False)[0]
    size = len(VARIABLES)
    for axes, (brain, rows) in zip(grid, found.items(), strict=True):
        shares = np.zeros((size, size))
        for row in rows:
            source, target = row.labels["edge"].split(" -> ")
            at = VARIABLES.index(target), VARIABLES.index(source)
            share, weight = row.figures["share"], row.figures["weight"]
            assert isinstance(share, float)
            assert isinstance(weight, Figure)
            shares[at] = share
            if weight.value:
                mark = "*" if row.figures["claimed"] else ""
                axes.text(at[1], at[0], f"{weight.value:.2f}{mark}", ha="center", va="center",
                          fontsize=8, color="white" if share > 0.6 else "black")  # fmt: skip
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set_xticks(range(size), VARIABLES, rotation=30, fontsize=8)
        axes.set_yticks(range(size), VARIABLES, fontsize=8)
        axes.set_xlabel("cause")
        axes.set_ylabel("effect")
        axes.set_title(brain)
    picture.suptitle("Weights (* claimed) over the share of resamples with the edge")
    return png(picture)
