"""A release's simulated users beside people: one table, one page with pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from scipy.sparse import csr_matrix

from pipelines.errors import ContractError
from pipelines.personas import reading_statement
from pipelines.raters.protocol import OK, Floats, Ints
from pipelines.raters.report._held_out import Table, persona_rows
from pipelines.raters.report._population import (
    Estimate,
    Lists,
    genre_correlation,
    headroom_by_person,
    histogram_similarity,
    ks_distance,
    liked_gap,
    moments,
    popularity_slope,
    split_half,
    taste_shares,
    variance_shares,
)
from pipelines.raters.statistical import (
    StatisticalRater,
    genre_matrix,
    other_means,
    stated_genres,
)
from pipelines.scales import RatingScale, coarser, rescale, scale_named
from pipelines.seeding import combine, hash_ids

#: Figures by name: what they are called, and their unit.
POPULATION_FIGURES: dict[str, tuple[str, str]] = {
    "item_person_share": ("item x person share of the variance", "share"),
    "leniency_share": ("person share of the variance (leniency)", "share"),
    "item_share": ("item share of the variance", "share"),
    "rest_share": ("the rest of the variance", "share"),
    "split_half_covariance": ("split-half covariance of users' genre deviations", "points²"),
    "genre_gap": ("liked minus disliked genres", "points"),
    "genre_gap_items": ("of which by the items' own means", "points"),
    "mean_rating": ("mean of users' means", "points"),
    "user_mean_spread": ("standard deviation of users' means", "points"),
    "user_spread_mean": ("mean of users' standard deviations", "points"),
    "user_spread_spread": ("standard deviation of users' standard deviations", "points"),
    "user_mean_ks": ("KS distance of users' means", "distance"),
    "user_spread_ks": ("KS distance of users' standard deviations", "distance"),
    "popularity_slope": ("rating per tenfold popularity", "points"),
    "similarity": ("1 - total variation of the ratings", "share"),
    "genre_correlation": ("agreement of the correlations between genres", "correlation"),
    "headroom": ("headroom: own top ten over the common one", "points"),
    "oracle": ("mean rating of own top ten", "points"),
    "common_list": ("mean rating of the best common ten", "points"),
    "random_items": ("mean rating of any item", "points"),
    "table_item_person_share": ("item x person share, all scored pairs", "share"),
    "watched_any": ("mean rating of what people watched, any personas", "points"),
    "watched": ("mean rating of what people watched, personas who would", "points"),
    "choice_gap_any": ("people above any personas, on what people watched", "points"),
    "choice_gap": ("people above personas who would watch it", "points"),
    "exposure_matched": ("AUC of exposure, against equally popular items", "share"),
    "exposure_matched_popularity": ("AUC of popularity, against equally popular items", "share"),
    "exposure_uniform": ("AUC of exposure, against any items", "share"),
    "exposure_uniform_popularity": ("AUC of popularity, against any items", "share"),
    "exposure_slope": ("calibration slope of exposure", "slope"),
}
#: Figures whose ratio to people's is bounded (`quality.max_taste_ratio`).
COMPARED = ("item_person_share", "split_half_covariance")
#: Users, ratings of people and personas from which figures are compared (counts): as many as a
#: covariance of tastes is fitted on.
MIN_USERS, MIN_RATINGS, MIN_PERSONAS = 200, 5_000, 50
#: People's ratings, personas and their scores that are compared at most, and cells of the table of
#: expected ratings (counts).
_MAX_RATINGS, _MAX_PERSONAS, _MAX_SCORES, _MAX_CELLS = 200_000, 1_000, 1_000_000, 4_000_000
#: Personas and people in that table at most (count).
_MAX_TABLE = 300
#: Items of a list (count).
_LIST = 10
#: Figures of headroom.
_HEADROOM = ("headroom", "oracle", "common_list", "random_items")
#: Draws of the bootstrap (count).
_DRAWS = 200


@dataclass(frozen=True)
class PopulationReport:
    """The report."""

    #: The `population` contract, in its order.
    table: pl.DataFrame
    #: Counts, statement and what the pictures show; ready for JSON.
    metadata: dict[str, Any]


def population_report(
    scores: Table,
    *,
    personas: pl.DataFrame,
    items: pl.DataFrame,
    interactions: Table,
    splits: Table,
    rater: StatisticalRater,
    plan: Table | None = None,
    selection: Mapping[str, Mapping[str, float]] | None = None,
    seed: int = 0,
    draws: int = _DRAWS,
) -> PopulationReport:
    """Compare the scores of a release's personas with people's ratings.

    Tastes are those of all ratings of a person and all scores of a persona. For levels, spreads
    and distributions, each person's list of rated items is given to a persona, so that both sides
    rate the same items in lists of the same lengths and differ in nothing but who rates. A persona
    may get several lists; pairs that have no score are left out of both sides. Intervals are
    bootstraps over people and over personas. Where lists are too few or too short for a figure, it
    is null, and the metadata holds the reason (``missing``, by figure and side).

    People choose what they rate. Like is compared with like where an item that people watched is
    rated by all personas with a score of it, each counting by its exposure: those who would watch
    it.

    Parameters
    ----------
    scores
        Rows of the `preference_scores` contract of one scale; may be lazy.
    personas, items, interactions, splits
        Tables of those names; the large ones may be lazy.
    rater
        A statistical rater fitted on the same tables, for the features of items and for people's
        headroom by their own training ratings.
    plan
        Rows of the `score_plan` contract, for the personas' exposure; may be lazy.
    selection
        Held-out figures of the selection model (:func:`pipelines.raters.judge_exposure`).
    seed, draws
        Of the assignment of lists, and draws of the bootstraps (count).

    Raises
    ------
    ContractError
        If no persona has a score, or no person rated a scored item.
    """
    sides = _Sides(scores, personas, items, interactions, splits, rater, seed, draws)
    sides.compare_tastes()
    sides.compare_gaps()
    sides.compare_levels()
    sides.compare_correlations()
    sides.compare_tables(plan)
    for name, figure in (selection or {}).items():
        ends = figure["value"], figure["low"], figure["high"]
        sides.rows[f"exposure_{name}"] = _cells(f"exposure_{name}", (None,) * 3, ends)
    return sides.report()


_NUMBERS = [
    *(f"{side}{end}" for side in ("personas_", "people_") for end in ("value", "low", "high")),
    *("ratio", "ratio_low", "ratio_high", "chance"),
]
_SCHEMA = {"figure": pl.String, "unit": pl.String, **dict.fromkeys(_NUMBERS, pl.Float64)}


def _cells(name: str, personas: tuple[Any, ...], people: tuple[Any, ...]) -> dict[str, Any]:
    """A figure's values and intervals of both sides."""
    out: dict[str, Any] = dict.fromkeys(_NUMBERS)
    out |= {"figure": name, "unit": POPULATION_FIGURES[name][1]}
    for side, values in (("personas_", personas), ("people_", people)):
        out |= dict(zip((f"{side}value", f"{side}low", f"{side}high"), values, strict=True))
    return out


def _scale_of(scored: pl.LazyFrame) -> RatingScale:
    names = scored.select(pl.col("scale").unique()).collect(engine="streaming")["scale"].to_list()
    if len(names) != 1:
        raise ContractError(
            f"scores on {len(names)} scales" if names else "there is no score to compare",
            where="preference_scores",
        )
    return scale_named(str(names[0]))


class _Sides:
    """Ratings of people and of personas (all of them, and those of the same lists), compared."""

    def __init__(
        self,
        scores: Table,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        interactions: Table,
        splits: Table,
        rater: StatisticalRater,
        seed: int,
        draws: int,
    ) -> None:
        self.rater, self.items, self.seed, self.draws = rater, items, seed, draws
        self.interactions, self.splits = interactions.lazy(), splits.lazy()
        self.genres = (rater.catalogue.shares > 0).astype(np.float64)
        self.rows: dict[str, dict[str, Any]] = {}
        self.missing: dict[str, dict[str, str]] = {}
        self.metadata: dict[str, Any] = {}
        self.scored = scores.lazy().filter(pl.col("status") == OK)
        self.scale = _scale_of(self.scored)
        ids = self.scored.select(pl.col("persona_id").unique()).collect(engine="streaming")
        scored = pl.col("persona_id").is_in(ids["persona_id"].implode())
        #: Personas with a score.
        self.all_personas = personas.filter(scored).sort("persona_id")
        if not self.all_personas.height:
            raise ContractError("no persona has a score", where="preference_scores")
        self._read_lists()

    def _read_lists(self) -> None:
        """Ratings of people, given to personas as lists, and scores of personas."""
        personas, seed = self.all_personas, self.seed
        counts = self.interactions.group_by("user_id").len().collect(engine="streaming")
        order = combine(seed, hash_ids(counts["user_id"]))
        counts = counts.with_columns(pl.Series("order", order)).sort("order")
        counts = counts.filter(pl.col("len").cast(pl.Int64).cum_sum() <= _MAX_RATINGS)
        # Neighbouring lists go to different personas.
        users = counts.select("user_id").with_row_index("list").cast({"list": pl.Int64})
        users = users.with_columns(person=pl.col("list") % personas.height)
        named = personas.select("persona_id").with_row_index("person").cast({"person": pl.Int64})
        rated = (
            self.interactions.select("user_id", "item_id", "rating")
            .join(users.join(named, on="person").lazy(), on="user_id")
            .join(self.splits.select("user_id", "item_id", "split"), on=["user_id", "item_id"])
            .collect(engine="streaming")
            .sort("list", "item_id")
        )
        on_scale = rescale(rated["rating"].to_numpy(), self.rater.source, self.scale)
        rated = rated.with_columns(rating=pl.Series(on_scale, dtype=pl.Float64))
        samples = self.scored.select("persona_id", "item_id", pl.col("sample").cast(pl.Float64))
        same = (
            rated.lazy()
            .join(samples, on=["persona_id", "item_id"])
            .collect(engine="streaming")
            .sort("list", "item_id")
        )
        if not same.height:
            raise ContractError("no person rated a scored item", where="preference_scores")
        #: Personas and scores that tastes are of, and person of each list of `people`.
        self.chosen = personas[_first(personas["persona_id"], _MAX_PERSONAS, seed)]
        self.users = users["user_id"].to_list()
        #: Whether a rating of `people` is held out, of shape (ratings,).
        self.held_out = (rated["split"] != "train").to_numpy()
        rater_of = np.unique(same["list"].to_numpy()) % personas.height
        self.people = self._lists(rated, "rating", seed)
        self.personas = self._lists(self._all_scores(samples), "sample", seed + 1)
        self.same_people = self._lists(same, "rating", seed)
        self.same_personas = self._lists(same, "sample", seed + 1, rater_of)

    def _lists(
        self, rows: pl.DataFrame, rating: str, seed: int, rater_of: Ints | None = None
    ) -> Lists:
        item = rows["item_id"].replace_strict(self.rater.catalogue.index, return_dtype=pl.Int64)
        user = np.unique(rows["list"].to_numpy(), return_inverse=True)[1].astype(np.int64)
        values = rows[rating].to_numpy()
        return Lists.of(user, item.to_numpy(), values, rater_of, draws=self.draws, seed=seed)

    def _all_scores(self, samples: pl.LazyFrame) -> pl.DataFrame:
        """Scores of every item, or of items drawn by hash if these are too many.

        Columns list (row of the persona among `chosen`), item_id, sample.
        """
        named = self.chosen.select("persona_id").with_row_index("list").cast({"list": pl.Int64})
        scored = samples.join(named.lazy(), on="persona_id")
        items = scored.group_by("item_id").len().collect(engine="streaming")
        order = combine(self.seed, hash_ids(items["item_id"]))
        items = items.with_columns(pl.Series("order", order)).sort("order")
        items = items.filter(pl.col("len").cast(pl.Int64).cum_sum() <= _MAX_SCORES)
        rows = scored.join(items.select("item_id").lazy(), on="item_id")
        return rows.collect(engine="streaming").sort("list", "item_id")

    def add(
        self, name: str, figure: Estimate, human: Estimate | None, control: Estimate | None = None
    ) -> None:
        """Add a figure of personas, of people, and of a control."""
        sides = [(None,) * 3 if d is None else (d.value, *d.interval) for d in (figure, human)]
        row = _cells(name, *sides)
        ratio = figure.over(human) if human is not None and name in COMPARED else (None,) * 3
        row |= dict(zip(("ratio", "ratio_low", "ratio_high"), ratio, strict=True))
        row["chance"] = None if control is None else control.value
        nan = {k for k, v in row.items() if isinstance(v, float) and not np.isfinite(v)}
        self.rows[name] = row | dict.fromkeys(nan)
        reasons = {"personas": figure.missing, "people": human.missing if human else ""}
        if any(reasons.values()):
            self.missing[name] = {side: reason for side, reason in reasons.items() if reason}

    def report(self) -> PopulationReport:
        """All figures so far."""
        counts = {
            "personas": self.all_personas.height,
            "people": len(self.users),
            "ratings": len(self.people.rating),
        }
        table = pl.DataFrame(list(self.rows.values()), _SCHEMA).with_columns(
            **{key: pl.lit(value, pl.Int64) for key, value in counts.items()}
        )
        statement = (
            f"{counts['personas']:,} personas and {counts['people']:,} people on "
            f"{self.scale.name}. Tastes: all {counts['ratings']:,} ratings of people, "
            f"{len(self.personas.rating):,} scores of personas. Levels, spreads and "
            f"distributions: {len(self.same_people.rating):,} ratings of the same lists, each "
            "person's list of rated items being given to a persona."
        )
        metadata = self.metadata | counts | {"scale": self.scale.name, "statement": statement}
        return PopulationReport(table.sort("figure"), metadata | {"missing": self.missing})

    def compare_tastes(self) -> None:
        """Shares of the variance, and covariance of halves."""
        catalogue, seed = self.rater.catalogue, self.seed
        personas, people, chance = (
            taste_shares(lists, catalogue.taste, catalogue.taste_groups)
            for lists in (self.personas, self.people, self.personas.shuffled(seed))
        )
        self.add("item_person_share", personas["taste"], people["taste"], chance["taste"])
        for name in ("leniency", "item", "rest"):
            self.add(f"{name}_share", personas[name], people[name])
        halves, mixed = split_half(self.personas, self.genres, seed=seed)
        theirs, _ = split_half(self.people, self.genres, seed=seed)
        self.add("split_half_covariance", halves, theirs, mixed)

    def compare_gaps(self) -> None:
        """Gap between liked and disliked genres; people's are those of their training ratings."""
        genres, side, late = self.rater.catalogue.genres, self.people, self.held_out
        stated = [genre_matrix(self.chosen[c], genres) for c in ("likes", "dislikes")]
        likes, dislikes = (np.asarray(field, np.float64) for field in stated)
        usual = other_means(self.personas.item, self.personas.rating)
        personas = liked_gap(self.personas, likes, dislikes, self.genres, usual)
        affinity = self.rater.genre_affinity(self.interactions, self.splits, self.users)
        # Ratings that show which genres a person likes can't also say how much more it gives them.
        held = Lists.of(
            side.user[late], side.item[late], side.rating[late], side.rater, draws=self.draws
        )
        usual = other_means(side.item, side.rating)[late]
        people = liked_gap(held, *stated_genres(affinity), self.genres, usual)
        self.add("genre_gap", personas[0], people[0])
        self.add("genre_gap_items", personas[1], people[1])

    def compare_levels(self) -> None:
        """Levels, spreads and distributions of the same lists."""
        personas, human = moments(self.same_personas), moments(self.same_people)
        self.add("mean_rating", personas["mean"][1], human["mean"][1])
        self.add("user_mean_spread", personas["mean"][2], human["mean"][2])
        self.add("user_spread_mean", personas["spread"][1], human["spread"][1])
        self.add("user_spread_spread", personas["spread"][2], human["spread"][2])
        for name in ("mean", "spread"):
            a, b = personas[name][0], human[name][0]
            none = Estimate.none(personas[name][1].missing or human[name][1].missing)
            both = (_ks(a, b, self.seed), _ks_of_halves(b, self.seed)) if not none.missing else None
            self.add(f"user_{name}_ks", *(both or (none, none)))
            self.metadata[f"user_{name}s"] = {
                side: np.quantile(values, np.linspace(0.0, 1.0, 51)).round(4).tolist()
                if len(values)
                else []
                for side, values in (("personas", a), ("people", b))
            }
        # Answers between those of the people's scale would make any personas unlike people.
        coarse = coarser(self.scale, self.rater.source)
        answers = np.asarray(rescale(coarse.answers, coarse, self.scale))
        halves = _halves(self.same_people, self.seed)
        self.add(
            "similarity",
            histogram_similarity(self.same_personas, self.same_people, answers),
            histogram_similarity(*halves, answers),
        )
        # Training ratings of every item.
        basis, features = self.rater.catalogue.basis, self.rater.catalogue.features
        weights = np.expm1(np.asarray(np.maximum(features[:, -1] + basis.popularity, 0.0)))
        lists = self.same_personas, self.same_people
        self.add("popularity_slope", *(popularity_slope(s, weights) for s in lists))

    def compare_correlations(self) -> None:
        """Correlations between genres."""
        sides = {"personas": self.personas, "people": self.people}
        matrices = {name: genre_correlation(lists, self.genres) for name, lists in sides.items()}
        apart = np.triu_indices(self.genres.shape[1], 1)
        if len(apart[0]) > 2:
            halves = (genre_correlation(h, self.genres) for h in _halves(self.people, self.seed))
            self.add(
                "genre_correlation",
                *(
                    Estimate(_correlation(*(m[apart] for m in pair)), np.zeros(0))
                    for pair in (matrices.values(), halves)
                ),
            )
        self.metadata["genres"] = list(self.rater.catalogue.genres)
        self.metadata["correlations"] = {n: m.round(4).tolist() for n, m in matrices.items()}

    def compare_tables(self, plan: Table | None) -> None:
        """Figures of every persona's expected rating of every item."""
        most = min(_MAX_TABLE, max(2, _MAX_CELLS // max(self.items.height, 1)))
        ids = self.all_personas["persona_id"]
        chosen = ids.gather(_first(ids, most, self.seed))
        rows = (
            self.scored.filter(pl.col("persona_id").is_in(chosen.implode()))
            .select("persona_id", "item_id", "expected", "probabilities")
            .collect(engine="streaming")
        )
        if plan is not None:
            once, keys = 1.0 / pl.col("inclusion"), ["persona_id", "item_id"]
            weights = plan.lazy().drop_nulls(["inclusion", "exposure"])
            weights = weights.select(*keys, every=once, watching=once * pl.col("exposure"))
            rows = rows.lazy().join(weights, on=keys, how="left", maintain_order="left").collect()
        index = self.rater.catalogue.index
        person = rows["persona_id"].replace_strict({p: n for n, p in enumerate(chosen)})
        item = rows["item_id"].replace_strict(index)
        place = person.cast(pl.Int64).to_numpy(), item.cast(pl.Int64).to_numpy()
        expected, within = np.full((2, len(chosen), len(index)), np.nan)
        expected[place] = rows["expected"].to_numpy()
        chances = rows["probabilities"].explode().to_numpy().reshape(rows.height, -1)
        within[place] = chances @ self.scale.answers**2 - expected[place] ** 2
        if plan is not None and rows["every"].count():
            every, watching = np.zeros((2, *expected.shape))
            every[place] = rows["every"].fill_null(0.0).to_numpy()
            watching[place] = rows["watching"].fill_null(0.0).to_numpy()
            self._compare_choices(np.nan_to_num(expected), every, watching)
        enough = (~np.isnan(expected)).sum(axis=1) >= _LIST
        if enough.sum() < 2:
            none = Estimate.none(
                f"{enough.sum()} personas with {_LIST} scores; at least 2 are needed"
            )
            for name in _HEADROOM:
                self.add(name, none, none)
            return
        human = self._expected_of_people(most)
        # A longer list to choose from has better items: people choose from what a persona has.
        scores = ~np.isnan(expected[enough])
        human = np.where(scores[np.arange(len(human)) % len(scores)], human, np.nan)
        sides = (_headroom(table, self.draws, self.seed) for table in (expected[enough], human))
        for name, of_personas, of_people in zip(_HEADROOM, *sides, strict=True):
            self.add(name, of_personas, of_people)
        exact = variance_shares(expected[enough], within[enough]).interaction
        self.add("table_item_person_share", Estimate(exact, np.zeros(0)), None)

    def _compare_choices(self, expected: Floats, every: Floats, watching: Floats) -> None:
        """Mean rating of people's items by people, any personas, and those who would watch them.

        Every person counts equally. `every` and `watching`, of the shape of `expected`, (personas,
        items), are what a persona counts for an item on either side; 0 without a score.
        """
        lists = self.same_people
        scored = (every.sum(axis=0) > 0)[lists.item]
        user, item = lists.user[scored], lists.item[scored]
        size = np.bincount(user, minlength=len(lists.group))
        drawn = np.vstack([np.ones(lists.weights.shape[1]), lists.weights])[:, lists.group]
        drawn *= size > 0
        drawn /= drawn.sum(axis=1, keepdims=True)
        of_user = 1.0 / np.maximum(size, 1)[user]
        shape = (len(size), expected.shape[1])
        on_item = np.asarray(drawn @ csr_matrix((of_user, (user, item)), shape=shape))
        totals = np.bincount(user, of_user * lists.rating[scored], minlength=len(size))
        rated: Floats = drawn @ totals
        people = Estimate(float(rated[0]), rated[1:])
        rng, count = np.random.default_rng(self.seed), len(expected)
        times = np.ones((len(drawn), count))
        times[1:] = rng.multinomial(count, np.full(count, 1.0 / count), size=len(drawn) - 1)
        for name, weight in (("_any", every), ("", watching)):
            total = times @ weight
            # An item whose personas a draw leaves out has its usual mean.
            mean = (times @ (weight * expected)) / np.where(total > 0, total, np.nan)
            mean = np.where(np.isnan(mean), np.nan_to_num(mean[0]), mean)
            alone, both = mean @ on_item[0], np.einsum("di,di->d", mean, on_item)
            self.add(f"watched{name}", Estimate(float(alone[0]), alone[1:]), people)
            gap = rated - both
            self.add(f"choice_gap{name}", Estimate(float(gap[0]), gap[1:]), None)

    def _expected_of_people(self, most: int) -> Floats:
        """Expected ratings of people of all items, given their training ratings."""
        rater = self.rater
        rows = rater.training_rows(self.interactions, self.splits, most_users=most)
        stars = np.asarray(rescale(rows.rating, rater.source, rater.scale), np.float64)
        users = pl.Series(rows.users, dtype=pl.String).gather(rows.user)
        ids = pl.Series(list(rater.catalogue.index), dtype=pl.String).gather(rows.item)
        histories = pl.DataFrame({"persona_id": users, "item_id": ids, "rating": stars})
        batch = rater.rate(persona_rows(rows.users, None), self.items, histories)
        return batch.expected.reshape(len(rows.users), -1)


def _first(ids: pl.Series, count: int, seed: int) -> Ints:
    """Rows of at most `count` ids, the first by hash, ascending."""
    order = np.argsort(combine(seed, hash_ids(ids)), kind="stable")
    return np.sort(order[:count])


def _ks(first: Floats, second: Floats, seed: int) -> Estimate:
    rng = np.random.default_rng(seed)
    drawn = [ks_distance(rng.choice(first, len(first)), second) for _ in range(100)]
    return Estimate(ks_distance(first, second), np.array(drawn))


def _ks_of_halves(values: Floats, seed: int) -> Estimate:
    """Mean distance between random halves of the values: what chance gives."""
    rng = np.random.default_rng(seed)
    parts = (rng.permutation(values) for _ in range(100))
    drawn = np.array([ks_distance(p[: len(p) // 2], p[len(p) // 2 :]) for p in parts])
    return Estimate(float(drawn.mean()), drawn)


def _halves(lists: Lists, seed: int) -> tuple[Lists, Lists]:
    """Two sides of a random half of the raters each."""
    rng = np.random.default_rng(seed)
    first = rng.permutation(len(lists.rater)) % 2 == 0
    out = []
    for side in (first, ~first):
        selected = side[lists.user]
        place = np.cumsum(side) - 1
        rows = (place[lists.user[selected]], lists.item[selected], lists.rating[selected])
        out.append(Lists.of(*rows, lists.rater[side], draws=len(lists.weights), seed=seed))
    return out[0], out[1]


def _correlation(first: Floats, second: Floats) -> float:
    if first.std() == 0 or second.std() == 0:
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def _headroom(expected: Floats, draws: int, seed: int) -> list[Estimate]:
    """Headroom and its parts (`_HEADROOM`), with a bootstrap over the persons of the table."""
    by_person = headroom_by_person(expected, size=_LIST)
    size = len(by_person)
    rng = np.random.default_rng(seed)
    means = rng.multinomial(size, np.full(size, 1.0 / size), size=draws) @ by_person / size
    parts = np.vstack([by_person.mean(axis=0), means]).T
    return [Estimate(float(v[0]), v[1:]) for v in (parts[0] - parts[1], *parts)]


def population_markdown(table: pl.DataFrame, metadata: Mapping[str, Any]) -> str:
    """The report as a table for people, with what the figures mean."""
    lines = [
        str(metadata["statement"]),
        "",
        "| figure | unit | personas | people | ratio |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    lines += ["| " + " | ".join(row) + " |" for row in population_rows(table)]
    chance = dict(table.select("figure", "chance").drop_nulls().iter_rows())
    lines += [
        "",
        "Intervals: 95 %, bootstrap over people and over personas. Shares of the variance are "
        "moments of products of ratings (Haseman and Elston, 1972); taste is what is linear in "
        "genres, text, year, popularity and quality, for both sides."
        + (
            f" With personas shuffled among the scores of each item it is {share:.3f}."
            if (share := chance.get("item_person_share")) is not None
            else ""
        )
        + (
            " Split-half covariances are those beyond a shuffle of each list's items "
            f"({covariance:.3f} for personas)."
            if (covariance := chance.get("split_half_covariance")) is not None
            else ""
        ),
        "",
        "For distances, similarity and agreement of correlations, the column of people compares "
        "random halves of the people: what chance gives. People's gap is on held-out ratings, the "
        "genres being those of the largest and smallest surpluses in training. People's headroom "
        "is as far as their training ratings tell, a lower bound, over the items that a persona "
        "has a score of. Personas who would watch an "
        "item: all who were scored, each counting by its exposure. AUC and slope of exposure: "
        "people's latest ratings (split test) against items that they never rated.",
    ]
    for name, reasons in metadata.get("missing", {}).items():
        text = "; ".join(f"{side}, {reason}" for side, reason in reasons.items())
        lines += ["", f"No figure of {POPULATION_FIGURES[name][0]}: {text}."]
    if metadata.get("reading"):
        lines += ["", f"Personas: {reading_statement(metadata['reading'])}"]
    return "\n".join(lines)


def population_rows(table: pl.DataFrame) -> list[tuple[str, str, str, str, str]]:
    """Figures as text: name, unit, personas, people, ratio; values with their 95 % intervals."""
    figures = {row["figure"]: row for row in table.iter_rows(named=True)}
    return [
        (title, unit, _cell(row, "personas_"), _cell(row, "people_"), _ratio_cell(row))
        for name, (title, unit) in POPULATION_FIGURES.items()
        if (row := figures.get(name)) is not None
    ]


def _cell(row: Mapping[str, Any], side: str) -> str:
    value, low, high = (row[f"{side}{end}"] for end in ("value", "low", "high"))
    if value is None:
        return "-"
    return f"{value:.3f}" + ("" if low is None else f" [{low:.3f}, {high:.3f}]")


def _ratio_cell(row: Mapping[str, Any]) -> str:
    if row["ratio"] is None:
        return ""
    return f"{row['ratio']:.2f}" + (
        "" if row["ratio_low"] is None else f" [{row['ratio_low']:.2f}, {row['ratio_high']:.2f}]"
    )


def population_pictures(table: pl.DataFrame, metadata: Mapping[str, Any]) -> dict[str, bytes]:
    """PNG pictures by title."""
    from pipelines.figures import grouped_bars

    values = {
        side: dict(table.select("figure", pl.col(f"{side}_value").fill_null(np.nan)).iter_rows())
        for side in ("personas", "people")
    }

    def bars(title: str, y: str, names: Sequence[str], labels: Sequence[str]) -> bytes:
        sides = [(side, [v.get(name, np.nan) for name in names]) for side, v in values.items()]
        return grouped_bars(title, "", y, labels, sides)

    shares = ("item_share", "leniency_share", "item_person_share", "rest_share")
    lists = ("random_items", "common_list", "oracle")
    return {
        "variance": bars(
            "Shares of the variance of ratings",
            "share",
            shares,
            ("item", "leniency", "item x person", "rest"),
        ),
        "headroom": bars(
            "Mean expected rating of ten items",
            f"rating on {metadata['scale']}",
            lists,
            ("any", "best for all", "own best"),
        ),
        **{
            f"user {name}s": _distributions(f"Users' {title}", metadata[f"user_{name}s"])
            for name, title in (("mean", "means"), ("spread", "standard deviations"))
        },
        "genres": _heatmaps(metadata["genres"], metadata["correlations"]),
    }


def _distributions(title: str, quantiles: Mapping[str, Sequence[float]]) -> bytes:
    from pipelines.figures import BLUE, ORANGE, canvas, empty, png

    if not quantiles["personas"] or not quantiles["people"]:
        return empty(title)
    figure, axes = canvas(title, "points", "share of users below")
    for side, colour in (("personas", BLUE), ("people", ORANGE)):
        values = quantiles[side]
        axes.plot(values, np.linspace(0, 1, len(values)), color=colour, label=side, linewidth=2)
    axes.legend(fontsize=9, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return png(figure)


def _heatmaps(genres: Sequence[str], correlations: Mapping[str, Any]) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from pipelines.figures import empty, label, png

    if not genres:
        return empty("Correlation of genres")
    figure = Figure(figsize=(10, 5), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    names = [label(g) for g in genres]
    for n, (side, matrix) in enumerate(correlations.items()):
        axes: Any = figure.add_subplot(1, 2, n + 1)
        drawn = axes.imshow(np.array(matrix), vmin=-1, vmax=1, cmap="RdBu_r")
        axes.set_title(f"Correlation of genres: {side}", fontsize=11, loc="left")
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=7)
    figure.colorbar(drawn, ax=figure.axes, shrink=0.7)
    return png(figure)
