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
    Drawn,
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


@dataclass(frozen=True)
class _Sides:
    """Ratings of people and of personas: all of them, and those of the same lists."""

    people: Lists
    personas: Lists
    same_people: Lists
    same_personas: Lists
    #: Person of each list of `people`, persona of each list of `personas`.
    users: list[str]
    chosen: pl.DataFrame
    #: Whether a rating of `people` is held out, of shape (ratings,).
    held_out: np.ndarray


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
    scored = scores.lazy().filter(pl.col("status") == OK)
    scale = _scale_of(scored)
    ids = scored.select(pl.col("persona_id").unique()).collect(engine="streaming")["persona_id"]
    people = personas.filter(pl.col("persona_id").is_in(ids.implode())).sort("persona_id")
    if not people.height:
        raise ContractError("no persona has a score", where="preference_scores")
    sides = _sides(scored, people, interactions, splits, rater, scale, seed, draws)
    rows: dict[str, dict[str, Any]] = {}
    missing: dict[str, dict[str, str]] = {}

    def add(name: str, figure: Drawn, human: Drawn | None, control: Drawn | None = None) -> None:
        rows[name] = _row(name, figure, human, control)
        reasons = {"personas": figure.missing, "people": human.missing if human else ""}
        if any(reasons.values()):
            missing[name] = {side: reason for side, reason in reasons.items() if reason}

    features, groups = rater.catalogue.taste, rater.catalogue.taste_groups
    shares, human = (taste_shares(s, features, groups) for s in (sides.personas, sides.people))
    chance = taste_shares(sides.personas.shuffled(seed), features, groups)
    for name, part in (
        ("item_person_share", "taste"),
        ("leniency_share", "leniency"),
        ("item_share", "item"),
        ("rest_share", "rest"),
    ):
        add(name, shares[part], human[part], chance[part] if part == "taste" else None)
    has = (rater.catalogue.shares > 0).astype(np.float64)
    (persona_halves, mixed), (theirs, _) = (
        split_half(s, has, seed=seed) for s in (sides.personas, sides.people)
    )
    add("split_half_covariance", persona_halves, theirs, mixed)
    for name, gap, human_gap in _gaps(sides, interactions, splits, rater, has, draws):
        add(name, gap, human_gap)
    # Answers between those of the people's scale would make any personas unlike people.
    coarse = coarser(scale, rater.source)
    metadata = _moments(sides, add, seed, np.asarray(rescale(coarse.answers, coarse, scale)))
    weights = np.expm1(_popularity(rater))
    lists = sides.same_personas, sides.same_people
    add("popularity_slope", *(popularity_slope(s, weights) for s in lists))
    metadata["genres"] = list(rater.catalogue.genres)
    metadata["correlations"] = _correlations(sides, has, add, seed)
    _tables(
        scored, plan, sides, people, items, interactions, splits, rater, scale, add, seed, draws
    )
    for name, figure in (selection or {}).items():
        ends = figure["value"], figure["low"], figure["high"]
        rows[f"exposure_{name}"] = _cells(f"exposure_{name}", (None,) * 3, ends)
    counts = {
        "personas": people.height,
        "people": len(sides.users),
        "ratings": len(sides.people.rating),
    }
    table = pl.DataFrame([rows[name] for name in POPULATION_FIGURES if name in rows], _SCHEMA)
    table = table.with_columns(**{key: pl.lit(value, pl.Int64) for key, value in counts.items()})
    lengths = {"scores": len(sides.personas.rating), "same": len(sides.same_people.rating)}
    metadata |= counts | {"scale": scale.name, "statement": _statement(counts | lengths, scale)}
    return PopulationReport(table.sort("figure"), metadata | {"missing": missing})


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


def _row(name: str, figure: Drawn, human: Drawn | None, control: Drawn | None) -> dict[str, Any]:
    sides = [(None,) * 3 if d is None else (d.value, *d.interval) for d in (figure, human)]
    out = _cells(name, *sides)
    ratio = figure.over(human) if human is not None and name in COMPARED else (None,) * 3
    out |= dict(zip(("ratio", "ratio_low", "ratio_high"), ratio, strict=True))
    out["chance"] = None if control is None else control.value
    return {k: None if isinstance(v, float) and not np.isfinite(v) else v for k, v in out.items()}


def _scale_of(scored: pl.LazyFrame) -> RatingScale:
    names = scored.select(pl.col("scale").unique()).collect(engine="streaming")["scale"].to_list()
    if len(names) != 1:
        raise ContractError(
            f"scores on {len(names)} scales" if names else "there is no score to compare",
            where="preference_scores",
        )
    return scale_named(str(names[0]))


def _sides(
    scored: pl.LazyFrame,
    people: pl.DataFrame,
    interactions: Table,
    splits: Table,
    rater: StatisticalRater,
    scale: RatingScale,
    seed: int,
    draws: int,
) -> _Sides:
    counts = interactions.lazy().group_by("user_id").len().collect(engine="streaming")
    order = combine(seed, hash_ids(counts["user_id"]))
    counts = counts.with_columns(pl.Series("order", order)).sort("order")
    counts = counts.filter(pl.col("len").cast(pl.Int64).cum_sum() <= _MAX_RATINGS)
    # Neighbouring lists go to different personas.
    users = counts.select("user_id").with_row_index("list").cast({"list": pl.Int64})
    users = users.with_columns(person=pl.col("list") % people.height)
    named = people.select("persona_id").with_row_index("person").cast({"person": pl.Int64})
    rated = (
        interactions.lazy()
        .select("user_id", "item_id", "rating")
        .join(users.join(named, on="person").lazy(), on="user_id")
        .join(splits.lazy().select("user_id", "item_id", "split"), on=["user_id", "item_id"])
        .collect(engine="streaming")
        .sort("list", "item_id")
    )
    rated = rated.with_columns(
        rating=pl.Series(rescale(rated["rating"].to_numpy(), rater.source, scale), dtype=pl.Float64)
    )
    samples = scored.select("persona_id", "item_id", pl.col("sample").cast(pl.Float64))
    same = (
        rated.lazy()
        .join(samples, on=["persona_id", "item_id"])
        .collect(engine="streaming")
        .sort("list", "item_id")
    )
    if not same.height:
        raise ContractError("no person rated a scored item", where="preference_scores")
    chosen, given = _all_scores(samples, people, seed)

    def lists(rows: pl.DataFrame, rating: str, rater_of: Ints | None, seed: int) -> Lists:
        item = rows["item_id"].replace_strict(rater.catalogue.index, return_dtype=pl.Int64)
        user = np.unique(rows["list"].to_numpy(), return_inverse=True)[1].astype(np.int64)
        values = rows[rating].to_numpy()
        return Lists.of(user, item.to_numpy(), values, rater_of, draws=draws, seed=seed)

    persona = np.unique(same["list"].to_numpy()) % people.height
    return _Sides(
        lists(rated, "rating", None, seed),
        lists(given, "sample", None, seed + 1),
        lists(same, "rating", None, seed),
        lists(same, "sample", persona, seed + 1),
        users["user_id"].to_list(),
        chosen,
        (rated["split"] != "train").to_numpy(),
    )


def _all_scores(
    samples: pl.LazyFrame, people: pl.DataFrame, seed: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Personas, and their scores of every item, or of items drawn by hash if these are too many.

    Columns of the scores: list (row of the persona), item_id, sample.
    """
    order = np.argsort(combine(seed, hash_ids(people["persona_id"])), kind="stable")
    chosen = people[np.sort(order[:_MAX_PERSONAS])]
    named = chosen.select("persona_id").with_row_index("list").cast({"list": pl.Int64})
    scored = samples.join(named.lazy(), on="persona_id")
    items = scored.group_by("item_id").len().collect(engine="streaming")
    items = items.with_columns(pl.Series("order", combine(seed, hash_ids(items["item_id"]))))
    items = items.sort("order").filter(pl.col("len").cast(pl.Int64).cum_sum() <= _MAX_SCORES)
    rows = scored.join(items.select("item_id").lazy(), on="item_id")
    return chosen, rows.collect(engine="streaming").sort("list", "item_id")


def _gaps(
    sides: _Sides,
    interactions: Table,
    splits: Table,
    rater: StatisticalRater,
    has: Floats,
    draws: int,
) -> list[tuple[str, Drawn, Drawn]]:
    """Gap between liked and disliked genres; people's are those of their training ratings."""
    genres = rater.catalogue.genres
    fields = (genre_matrix(sides.chosen[c], genres) for c in ("likes", "dislikes"))
    likes, dislikes = (np.asarray(field, np.float64) for field in fields)
    usual = other_means(sides.personas.item, sides.personas.rating)
    persona_gap = liked_gap(sides.personas, likes, dislikes, has, usual)
    affinity = rater.genre_affinity(interactions, splits, sides.users)
    theirs = stated_genres(affinity)
    side, late = sides.people, sides.held_out
    # Ratings that show which genres a person likes can't also say how much more it gives them.
    held = Lists.of(side.user[late], side.item[late], side.rating[late], side.rater, draws=draws)
    human = liked_gap(held, *theirs, has, other_means(side.item, side.rating)[late])
    return [("genre_gap", persona_gap[0], human[0]), ("genre_gap_items", persona_gap[1], human[1])]


def _moments(sides: _Sides, add: Any, seed: int, answers: Floats) -> dict[str, Any]:
    personas, human = moments(sides.same_personas), moments(sides.same_people)
    add("mean_rating", personas["mean"][1], human["mean"][1])
    add("user_mean_spread", personas["mean"][2], human["mean"][2])
    add("user_spread_mean", personas["spread"][1], human["spread"][1])
    add("user_spread_spread", personas["spread"][2], human["spread"][2])
    metadata: dict[str, Any] = {}
    shares = np.linspace(0.0, 1.0, 51)
    for name in ("mean", "spread"):
        a, b = personas[name][0], human[name][0]
        none = Drawn.none(personas[name][1].missing or human[name][1].missing)
        distances = (none, none) if none.missing else (_ks(a, b, seed), _ks_of_halves(b, seed))
        add(f"user_{name}_ks", *distances)
        metadata[f"user_{name}s"] = {
            side: [round(float(v), 4) for v in np.quantile(values, shares)] if len(values) else []
            for side, values in (("personas", a), ("people", b))
        }
    add(
        "similarity",
        histogram_similarity(sides.same_personas, sides.same_people, answers),
        histogram_similarity(*_halves(sides.same_people, seed), answers),
    )
    return metadata


def _ks(first: Floats, second: Floats, seed: int) -> Drawn:
    rng = np.random.default_rng(seed)
    drawn = [ks_distance(rng.choice(first, len(first)), second) for _ in range(100)]
    return Drawn(ks_distance(first, second), np.array(drawn))


def _ks_of_halves(values: Floats, seed: int) -> Drawn:
    """Mean distance between random halves of the values: what chance gives."""
    rng = np.random.default_rng(seed)
    parts = (rng.permutation(values) for _ in range(100))
    drawn = np.array([ks_distance(p[: len(p) // 2], p[len(p) // 2 :]) for p in parts])
    return Drawn(float(drawn.mean()), drawn)


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


def _correlations(sides: _Sides, has: Floats, add: Any, seed: int) -> dict[str, list[list[float]]]:
    personas, human = (genre_correlation(s, has) for s in (sides.personas, sides.people))
    apart = np.triu_indices(len(personas), 1)
    if len(apart[0]) > 2:
        first, second = (genre_correlation(s, has)[apart] for s in _halves(sides.people, seed))
        none = np.zeros(0)
        add(
            "genre_correlation",
            Drawn(_correlation(personas[apart], human[apart]), none),
            Drawn(_correlation(first, second), none),
        )
    return {name: m.round(4).tolist() for name, m in (("personas", personas), ("people", human))}


def _correlation(first: Floats, second: Floats) -> float:
    if first.std() == 0 or second.std() == 0:
        return float("nan")
    return float(np.corrcoef(first, second)[0, 1])


def _popularity(rater: StatisticalRater) -> Floats:
    """log(1 + training ratings) of every item."""
    basis, features = rater.catalogue.basis, rater.catalogue.features
    return np.asarray(np.maximum(features[:, -1] + basis.popularity, 0.0))


def _tables(
    scored: pl.LazyFrame,
    plan: Table | None,
    sides: _Sides,
    people: pl.DataFrame,
    items: pl.DataFrame,
    interactions: Table,
    splits: Table,
    rater: StatisticalRater,
    scale: RatingScale,
    add: Any,
    seed: int,
    draws: int,
) -> None:
    """Figures of every persona's expected rating of every item."""
    most = min(_MAX_TABLE, max(2, _MAX_CELLS // max(items.height, 1)))
    order = np.argsort(combine(seed, hash_ids(people["persona_id"])), kind="stable")
    chosen = people["persona_id"].gather(np.sort(order[:most]))
    rows = (
        scored.filter(pl.col("persona_id").is_in(chosen.implode()))
        .select("persona_id", "item_id", "expected", "probabilities")
        .collect(engine="streaming")
    )
    if plan is not None:
        once, keys = 1.0 / pl.col("inclusion"), ["persona_id", "item_id"]
        weights = plan.lazy().drop_nulls(["inclusion", "exposure"])
        weights = weights.select(*keys, every=once, watching=once * pl.col("exposure"))
        rows = rows.lazy().join(weights, on=keys, how="left", maintain_order="left").collect()
    person = rows["persona_id"].replace_strict({p: n for n, p in enumerate(chosen)})
    item = rows["item_id"].replace_strict(rater.catalogue.index)
    place = person.cast(pl.Int64).to_numpy(), item.cast(pl.Int64).to_numpy()
    expected, within = np.full((2, len(chosen), len(rater.catalogue.index)), np.nan)
    expected[place] = rows["expected"].to_numpy()
    chances = rows["probabilities"].explode().to_numpy().reshape(rows.height, -1)
    within[place] = chances @ scale.answers**2 - expected[place] ** 2
    if plan is not None and rows["every"].count():
        every, watching = np.zeros((2, *expected.shape))
        every[place] = rows["every"].fill_null(0.0).to_numpy()
        watching[place] = rows["watching"].fill_null(0.0).to_numpy()
        _choices(sides.same_people, np.nan_to_num(expected), every, watching, add, seed)
    enough = (~np.isnan(expected)).sum(axis=1) >= _LIST
    if enough.sum() < 2:
        none = Drawn.none(f"{enough.sum()} personas with {_LIST} scores; at least 2 are needed")
        for name in _HEADROOM:
            add(name, none, none)
        return
    human = _expected_of_people(interactions, splits, rater, items, most)
    # A longer list to choose from has better items: people choose from what a persona has.
    scores = ~np.isnan(expected[enough])
    human = np.where(scores[np.arange(len(human)) % len(scores)], human, np.nan)
    sides_of = (_headroom(table, draws, seed) for table in (expected[enough], human))
    for name, of_personas, of_people in zip(_HEADROOM, *sides_of, strict=True):
        add(name, of_personas, of_people)
    exact = variance_shares(expected[enough], within[enough]).interaction
    add("table_item_person_share", Drawn(exact, np.zeros(0)), None)


def _choices(
    lists: Lists, expected: Floats, every: Floats, watching: Floats, add: Any, seed: int
) -> None:
    """Mean rating of people's items by people, by any personas and by those who would watch them.

    Every person counts equally. `every` and `watching`, of the shape of `expected`, (personas,
    items), are what a persona counts for an item on either side; 0 without a score.
    """
    scored = (every.sum(axis=0) > 0)[lists.item]
    user, item = lists.user[scored], lists.item[scored]
    size = np.bincount(user, minlength=len(lists.group))
    drawn = np.vstack([np.ones(lists.weights.shape[1]), lists.weights])[:, lists.group] * (size > 0)
    drawn /= drawn.sum(axis=1, keepdims=True)
    of_user = 1.0 / np.maximum(size, 1)[user]
    shape = (len(size), expected.shape[1])
    on_item = np.asarray(drawn @ csr_matrix((of_user, (user, item)), shape=shape))
    rated: Floats = drawn @ np.bincount(user, of_user * lists.rating[scored], minlength=len(size))
    people = Drawn(float(rated[0]), rated[1:])
    rng = np.random.default_rng(seed)
    crowd = len(expected)
    times = np.ones((len(drawn), crowd))
    times[1:] = rng.multinomial(crowd, np.full(crowd, 1.0 / crowd), size=len(drawn) - 1)
    for name, weight in (("_any", every), ("", watching)):
        total = times @ weight
        # An item whose personas a draw leaves out has its usual mean.
        mean = (times @ (weight * expected)) / np.where(total > 0, total, np.nan)
        mean = np.where(np.isnan(mean), np.nan_to_num(mean[0]), mean)
        alone, both = mean @ on_item[0], np.einsum("di,di->d", mean, on_item)
        add(f"watched{name}", Drawn(float(alone[0]), alone[1:]), people)
        gap = rated - both
        add(f"choice_gap{name}", Drawn(float(gap[0]), gap[1:]), None)


def _headroom(expected: Floats, draws: int, seed: int) -> list[Drawn]:
    """Headroom and its parts (`_HEADROOM`), with a bootstrap over the persons of the table."""
    by_person = headroom_by_person(expected, size=_LIST)
    size = len(by_person)
    rng = np.random.default_rng(seed)
    means = rng.multinomial(size, np.full(size, 1.0 / size), size=draws) @ by_person / size
    parts = np.vstack([by_person.mean(axis=0), means]).T
    return [Drawn(float(v[0]), v[1:]) for v in (parts[0] - parts[1], *parts)]


def _expected_of_people(
    interactions: Table, splits: Table, rater: StatisticalRater, items: pl.DataFrame, most: int
) -> Floats:
    """Expected ratings of people of all items, given their training ratings."""
    rows = rater.training_rows(interactions, splits, most_users=most)
    stars = np.asarray(rescale(rows.rating, rater.source, rater.scale), np.float64)
    users = pl.Series(rows.users, dtype=pl.String)
    ids = pl.Series(list(rater.catalogue.index), dtype=pl.String)
    histories = pl.DataFrame(
        {"persona_id": users.gather(rows.user), "item_id": ids.gather(rows.item), "rating": stars}
    )
    batch = rater.rate(persona_rows(rows.users, None), items, histories)
    return batch.expected.reshape(len(rows.users), -1)


def _statement(counts: Mapping[str, int], scale: RatingScale) -> str:
    return (
        f"{counts['personas']:,} personas and {counts['people']:,} people on {scale.name}. Tastes: "
        f"all {counts['ratings']:,} ratings of people, {counts['scores']:,} scores of personas. "
        f"Levels, spreads and distributions: {counts['same']:,} ratings of the same lists, each "
        "person's list of rated items being given to a persona."
    )


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
