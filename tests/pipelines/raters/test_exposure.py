"""The selection model on worlds whose choices are planted."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

from pipelines.raters import (
    fit_exposure,
    fit_statistical,
    judge_exposure,
    population_report,
    scale_named,
    score_pairs,
)
from pipelines.raters._exposure import draw_sample, inclusion

GENRES = ("Action", "Comedy", "Drama", "Horror", "Romance", "Western")
#: Log odds of choosing a film per star of taste for its genre.
CHOICE = 1.5


def planted(
    choice: float, *, users: int = 400, films: int = 600, per_user: int = 40, seed: int = 5
):
    """Tables of people who choose films by popularity and by `choice` times their taste."""
    rng = np.random.default_rng(seed)
    genre = rng.integers(0, len(GENRES), films)
    popularity = rng.normal(0, 1, films)
    taste = rng.normal(0, 0.6, (users, len(GENRES)))
    ids = np.array([f"ml:{n}" for n in range(films)])
    start = datetime(2020, 1, 1, tzinfo=UTC)
    rows = []
    for user in range(users):
        liking = taste[user, genre]
        # Gumbel's trick: the first k are drawn one after the other by these log odds.
        order = np.argsort(-(popularity + choice * liking + rng.gumbel(size=films)))[:per_user]
        for time, film in enumerate(rng.permutation(order)):
            stars = np.clip(np.round(2 * (3.2 + liking[film] + rng.normal(0, 0.5))) / 2, 0.5, 5)
            part = "train" if time < 0.8 * per_user else "test"
            when = start + timedelta(hours=time)
            rows.append((f"ml-user:{user}", ids[film], float(stars), "0.5-5", when, part))
    columns = ["user_id", "item_id", "rating", "scale", "rated_at", "split"]
    table = pl.DataFrame(rows, schema=columns, orient="row").sort("user_id", "item_id")
    items = pl.DataFrame({"item_id": ids, "genres": [[GENRES[g]] for g in genre]}).sort("item_id")
    stats = table.filter(split="train").group_by("item_id")
    stats = stats.agg(train_ratings=pl.len().cast(pl.Int64), train_mean_rating=pl.mean("rating"))
    return {
        "items": items,
        "item_stats": items.select("item_id").join(stats, on="item_id", how="left"),
        "interactions": table.drop("split"),
        "splits": table.select("user_id", "item_id", "split"),
    }


def fitted(tables):
    rater = fit_statistical(scale=scale_named("1-10"), **tables)
    return rater, fit_exposure(rater, tables["interactions"], tables["splits"])


def judged(tables, rater, model):
    return judge_exposure(model, rater, tables["interactions"], tables["splits"])


@pytest.fixture(scope="module")
def chosen():
    tables = planted(CHOICE)
    return tables, *fitted(tables)


def test_planted_weight_of_taste_is_recovered(chosen):
    _, _, model = chosen
    weight = model.metadata["weights"]["genres"]
    assert weight["low"] <= CHOICE <= weight["high"]
    assert weight["high"] - weight["low"] < 1.0
    assert (model.metadata["people"], model.metadata["positives"]) == (400, 400 * 9)


def test_people_who_choose_at_random_show_no_taste():
    tables = planted(0.0)
    rater, model = fitted(tables)
    weight = model.metadata["weights"]["genres"]
    assert weight["low"] <= 0.0 <= weight["high"]
    found = judged(tables, rater, model)
    # The rest of popularity among its neighbours in rank, and no more.
    assert found["matched"]["value"] == pytest.approx(
        found["matched_popularity"]["value"], abs=0.02
    )


def test_taste_tells_choices_where_popularity_can_not(chosen):
    tables, rater, model = chosen
    found = judged(tables, rater, model)
    assert found["matched"]["low"] > found["matched_popularity"]["high"]
    assert found["matched_popularity"]["value"] == pytest.approx(0.5, abs=0.08)
    assert found["uniform"]["low"] > found["uniform_popularity"]["value"] > 0.6
    # All training ratings tell a taste better than the earlier ones that weights are fitted on.
    assert found["slope"]["value"] == pytest.approx(1.0, abs=0.25)


def test_mean_exposure_is_the_share_of_people_who_watched(chosen):
    tables, rater, model = chosen
    rng = np.random.default_rng(0)
    tastes = rng.multivariate_normal(
        np.zeros(len(rater.drawn.covariance)), rater.drawn.covariance, 4_000
    )
    tastes[:, 0] = 0.0
    mean = model.probabilities(tastes).mean(axis=0)
    counts = tables["splits"].filter(split="train").group_by("item_id").len()
    share = tables["items"].join(counts, on="item_id", how="left")["len"].fill_null(0) / 400
    # A single pseudo-person, and 4,000 draws.
    assert np.abs(mean - share.to_numpy()).max() < 0.02
    assert mean.sum() == pytest.approx(32, rel=0.01)


def test_held_out_ratings_change_nothing(chosen):
    tables, _, model = chosen
    held = tables["splits"].filter(split="test").select("user_id", "item_id", held=pl.lit(1.0))
    moved = tables["interactions"].join(held, on=["user_id", "item_id"], how="left")
    swapped = 5.5 - pl.col("rating")
    moved = moved.with_columns(
        pl.when(pl.col("held").is_null()).then("rating").otherwise(swapped).alias("rating")
    ).drop("held")
    assert not moved.equals(tables["interactions"])
    _, again = fitted(tables | {"interactions": moved})
    assert again.metadata == model.metadata
    assert np.array_equal(again.offsets, model.offsets)
    assert np.array_equal(again.columns, model.columns)


def test_few_people_leave_popularity_alone():
    tables = planted(CHOICE, users=20, films=100)
    _, model = fitted(tables)
    assert model.metadata["basis"].startswith("popularity alone: 20 people")
    assert not model.columns.any()
    assert model.offsets.std() > 0


def test_people_who_watched_everything_have_no_negatives():
    tables = planted(CHOICE, users=60, films=40, per_user=40)
    # Held-out films are unseen to the fit, so that all are trained on.
    tables["splits"] = tables["splits"].with_columns(split=pl.lit("train"))
    rater, model = fitted(tables)
    assert model.metadata["without_negatives"] == 60 * 12
    assert model.metadata["people"] == 0
    assert model.metadata["basis"].startswith("popularity alone")
    assert judged(tables, rater, model) == {}


@pytest.fixture(scope="module")
def scored(chosen):
    tables, rater, model = chosen
    people = pl.DataFrame({"persona_id": [f"persona:p:{n:07d}" for n in range(200)]})
    # They state nothing: their tastes are drawn as people's are.
    none = pl.lit([], dtype=pl.List(pl.String))
    text = pl.lit("Somebody who goes to the cinema by the river every week.")
    people = people.with_columns(likes=none, dislikes=none, description=text)
    plan = people.select("persona_id").join(tables["items"].select("item_id"), how="cross")
    exposure = model.of(people["persona_id"], rater.persona_tastes(people))
    watched = exposure(people["persona_id"], tables["items"]["item_id"]).ravel()
    plan = plan.with_columns(exposure=watched, inclusion=1.0)
    scores = pl.concat(score_pairs(rater, plan, people, tables["items"]))
    return people, plan, scores


def test_items_of_each_person_have_the_probabilities_of_the_whole(chosen, scored):
    tables, rater, model = chosen
    people, ids = scored[0].head(5), tables["items"]["item_id"]
    exposure = model.of(people["persona_id"], rater.persona_tastes(people))
    places = np.array([[n, n + 7, 3] for n in range(5)])
    whole = exposure(people["persona_id"], ids)
    found = exposure(people["persona_id"], ids, places)
    assert found == pytest.approx(np.take_along_axis(whole, places, axis=1), rel=1e-12)


def figures(chosen, scored, **more):
    tables, rater, _ = chosen
    people, plan, scores = scored
    named = {name: tables[name] for name in ("items", "interactions", "splits")}
    inputs = {"personas": people, "rater": rater, "plan": plan} | named | more
    found = population_report(scores, **inputs)
    return {row["figure"]: row for row in found.table.iter_rows(named=True)}


def test_weighing_by_exposure_closes_the_gap_of_choice(chosen, scored):
    rows = figures(chosen, scored)
    any_, gap = rows["choice_gap_any"], rows["choice_gap"]
    assert any_["personas_low"] > 0.2
    assert abs(gap["personas_value"]) < 0.3 * any_["personas_value"]
    assert gap["personas_high"] < any_["personas_low"]
    people, personas = rows["watched"]["people_value"], rows["watched"]["personas_value"]
    assert gap["personas_value"] == pytest.approx(people - personas)
    assert rows["watched_any"]["people_value"] == pytest.approx(people)


def test_equal_exposure_changes_no_mean(chosen, scored):
    people, plan, scores = scored
    rows = figures(chosen, (people, plan.with_columns(exposure=0.2), scores))
    assert rows["watched"]["personas_value"] == pytest.approx(rows["watched_any"]["personas_value"])


def test_figures_of_the_selection_model_are_rows_of_people(chosen, scored):
    tables, rater, model = chosen
    found = judged(tables, rater, model)
    rows = figures(chosen, scored, selection=found)
    assert rows["exposure_matched"]["people_value"] == found["matched"]["value"]
    assert rows["exposure_matched"]["personas_value"] is None


def test_inclusion_probabilities_sum_to_the_sample():
    rng = np.random.default_rng(1)
    chance = inclusion(rng.exponential(size=(50, 30)) ** 3, 12)
    assert chance.sum(axis=1) == pytest.approx(np.full(50, 12.0))
    assert (chance <= 1.0).all()
    assert (inclusion(np.ones((2, 3)), 3) == 1.0).all()


def test_systematic_samples_have_their_size_and_chances():
    chance = inclusion(np.tile([5.0, 1.0, 1.0, 0.5, 0.5], (4_000, 1)), 3)
    rng = np.random.default_rng(2)
    order = rng.integers(0, 2**63, chance.shape).astype(np.uint64)
    drawn = draw_sample(chance, order, rng.random(4_000), 3)
    assert drawn.shape == (4_000, 3)
    assert (np.diff(drawn, axis=1) > 0).all()
    share = np.bincount(drawn.ravel(), minlength=5) / 4_000
    assert share == pytest.approx(chance[0], abs=0.03)
