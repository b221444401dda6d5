"""The statistical rater: what it learns, what it must not see, how it reacts."""

import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from pipelines.errors import ContractError
from pipelines.raters import fit_rater, fit_statistical, scale_named
from pipelines.raters.statistical.fit import MAX_FIT_ROWS, PRIOR_WEIGHTS
from pipelines.raters.statistical.profiles import collect_rows


@pytest.fixture(scope="module")
def rater(small_world):
    return fit_rater("statistical", scale="1-10", **small_world.tables, **small_world.vectors)


def person(likes=(), dislikes=(), key="persona:small:0000000"):
    return pl.DataFrame(
        {"persona_id": [key], "likes": [list(likes)], "dislikes": [list(dislikes)]},
        schema_overrides={"likes": pl.List(pl.String), "dislikes": pl.List(pl.String)},
    )


def film(*genres, key="ml:777777", votes=None):
    return pl.DataFrame(
        {"item_id": [key], "genres": [list(genres)], "vote_average": [votes], "vote_count": [300]},
        schema_overrides={"genres": pl.List(pl.String), "vote_average": pl.Float64},
    )


def test_a_liked_genre_raises_and_a_disliked_one_lowers_the_rating(rater):
    item = film("Comedy")
    # Of the mean taste: a draw of one persona may well go the other way.
    rater = replace(rater, taste="mean")
    neutral, liked, disliked = (
        rater.rate(p, item).expected[0]
        for p in (person(), person(likes=["Comedy"]), person(dislikes=["Comedy"]))
    )
    assert disliked < neutral < liked
    both = rater.rate(person(likes=["Comedy"]), film("Comedy", "Drama")).expected[0]
    assert neutral < both < liked, "half of its genres are liked"


def test_every_effect_of_the_world_is_found(rater):
    weights = rater.metadata()["fitted"]["weights"]
    assert weights["quality"] > 1
    assert weights["leniency"] > 1
    assert weights["agreement"] > 0.2
    assert weights["conflict"] > 0.2
    assert weights["similarity"] > 0.02


def test_quality_follows_the_truth_and_votes_speak_for_unrated_films(rater, small_world):
    index = rater.catalogue.index
    truth = [small_world.true_quality[i] for i in index]
    assert np.corrcoef(rater.catalogue.quality, truth)[0, 1] > 0.9
    poor, good = (rater.rate(person(), film("Drama", votes=v)).expected[0] for v in (4.0, 8.0))
    assert poor < good


def test_the_mean_distribution_over_the_fitted_rows_is_the_human_histogram(rater, small_world):
    human = small_world.interactions.join(
        small_world.splits.filter(split="train"), on=["user_id", "item_id"]
    )
    share = human["rating"].value_counts(normalize=True, sort=False).sort("rating")
    personas = small_world.personas
    found = rater.rate(personas, small_world.items).probabilities.mean(axis=0)
    # Personas are other people than the users, so this is near, not exact.
    assert 0.5 * np.abs(found - share["proportion"].to_numpy()).sum() < 0.12


def test_the_fit_is_the_same_whatever_the_order_of_rows_and_is_lazy_or_not(small_world):
    first = fit_rater("statistical", scale="1-10", **small_world.tables)
    tables = {
        n: t.sample(fraction=1.0, shuffle=True, seed=5) for n, t in small_world.tables.items()
    }
    tables["interactions"] = tables["interactions"].lazy()
    tables["splits"] = tables["splits"].lazy()
    second = fit_rater("statistical", scale="1-10", **tables)
    one = first.rate(small_world.personas, small_world.items)
    two = second.rate(small_world.personas, small_world.items)
    np.testing.assert_allclose(one.probabilities, two.probabilities, atol=1e-6)


def test_held_out_ratings_have_no_influence(small_world, rater):
    held = small_world.splits.filter(pl.col("split") != "train").select("user_id", "item_id")
    wrong = small_world.interactions.join(
        held.with_columns(x=1), on=["user_id", "item_id"], how="left"
    )
    wrong = wrong.with_columns(rating=pl.when(pl.col("x") == 1).then(0.5).otherwise("rating")).drop(
        "x"
    )
    spoiled = fit_rater(
        "statistical",
        scale="1-10",
        **{**small_world.tables, "interactions": wrong},
        **small_world.vectors,
    )
    a = rater.rate(small_world.personas, small_world.items).probabilities
    b = spoiled.rate(small_world.personas, small_world.items).probabilities
    np.testing.assert_array_equal(a, b)


def test_a_persona_is_as_lenient_in_every_batch_and_others_are_not(rater, small_world):
    item = small_world.items.head(1)
    personas = small_world.personas.with_columns(
        likes=pl.lit([], dtype=pl.List(pl.String)), dislikes=pl.lit([], dtype=pl.List(pl.String))
    )
    bare = fit_rater("statistical", scale="1-10", **small_world.tables)
    whole = bare.rate(personas, item).expected
    assert bare.rate(personas[5], item).expected[0] == pytest.approx(whole[5])
    assert len(set(whole.round(6))) > 10
    other = fit_rater("statistical", scale="1-10", seed=1, **small_world.tables)
    assert not np.allclose(other.rate(personas, item).expected, whole)


def test_low_ratings_in_the_history_make_a_persona_harsher(rater, small_world):
    items = small_world.items.head(20)
    who = small_world.personas.head(2)

    def history(rating):
        ids = items["item_id"].to_list()
        return pl.DataFrame(
            {"persona_id": [who["persona_id"][0]] * 20, "item_id": ids, "rating": [rating] * 20}
        )

    before = rater.rate(who, items).expected.reshape(2, 20)
    harsh = rater.rate(who, items, history(1.0)).expected.reshape(2, 20)
    kind = rater.rate(who, items, history(10.0)).expected.reshape(2, 20)
    assert (harsh[0] < before[0]).all()
    assert (before[0] < kind[0]).all()
    np.testing.assert_allclose(harsh[1], before[1]), "the other's history is none of hers"


def test_a_history_on_another_scale_is_refused(rater, small_world):
    who = small_world.personas.head(1)
    history = pl.DataFrame({"persona_id": who["persona_id"], "item_id": ["ml:1"], "rating": [0.5]})
    with pytest.raises(ContractError, match="not on the scale"):
        rater.rate(who, small_world.items, history)


def test_text_that_resembles_a_film_speaks_for_it(small_world):
    """A persona whose vector is that of film 0 likes film 0 better than without a vector."""
    vector = small_world.item_embeddings.filter(item_id="ml:1")["vector"]
    people = pl.DataFrame(
        {
            "persona_id": ["persona:small:0000000"],
            "model": "t",
            "text_sha256": "0",
            "vector": vector,
        }
    )
    with_text = fit_rater(
        "statistical",
        scale="1-10",
        item_embeddings=small_world.item_embeddings,
        persona_embeddings=people,
        **small_world.tables,
    )
    without = fit_rater(
        "statistical",
        scale="1-10",
        item_embeddings=small_world.item_embeddings,
        **small_world.tables,
    )
    item = small_world.items.filter(item_id="ml:1")
    assert with_text.rate(person(), item).expected[0] > without.rate(person(), item).expected[0]


def test_the_explanation_adds_up_in_direction(rater, small_world):
    drivers = rater.effects(small_world.personas, small_world.items)
    stated_effects = {"quality", "leniency", "agreement", "conflict", "similarity"}
    assert set(drivers) == stated_effects | {"history", "word", "taste"}
    assert not drivers["history"].any(), "nobody has one"
    assert not drivers["word"].any(), "nobody says what marks it gives"
    # Relative to all items: what is not of a liked genre is liked less than average.
    for effect, column, sign in (("agreement", "likes", 1), ("conflict", "dislikes", -1)):
        moved = drivers[effect].reshape(small_world.personas.height, -1)
        for row, stated in zip(moved, small_world.personas[column].to_list(), strict=True):
            of = [bool(set(stated) & set(g)) for g in small_world.items["genres"].to_list()]
            assert not stated or sign * (row[of].mean() - row[~np.array(of)].mean()) > 0
    assert np.abs(drivers["quality"]).max() > 0.5


def test_a_world_of_few_ratings_has_the_weights_that_were_set_by_hand(small_world):
    few = small_world.splits.filter(pl.col("user_id") == "ml-user:1").head(7)
    few = few.with_columns(split=pl.lit("train"))
    found = fit_rater("statistical", scale="1-10", **{**small_world.tables, "splits": few})
    weights = list(found.metadata()["fitted"]["weights"].values())
    assert weights == pytest.approx(PRIOR_WEIGHTS)
    assert found.metadata()["fitted"]["weights_on"] == 0
    liked, not_liked = (
        found.rate(person(likes=g), film("Comedy")).expected[0] for g in (["Comedy"], [])
    )
    assert liked > not_liked


def test_no_rating_at_all_is_an_error(small_world):
    tables = {**small_world.tables, "splits": small_world.splits.clear()}
    with pytest.raises(ContractError, match="no rating to fit"):
        fit_rater("statistical", scale="1-10", **tables)


def test_interactions_of_unknown_films_are_an_error(small_world):
    tables = {**small_world.tables, "items": small_world.items.head(10)}
    with pytest.raises(ContractError, match="not in `items`"):
        fit_rater("statistical", scale="1-10", **tables)


def test_large_sources_are_thinned_by_whole_users(small_world, rater):
    assert small_world.interactions.height < MAX_FIT_ROWS
    tables = (small_world.interactions, small_world.splits)
    rows = collect_rows(*tables, "train", rater.catalogue, most=500)
    whole = collect_rows(*tables, "train", rater.catalogue)
    assert 400 < len(rows) <= 500
    per_user = {u: int((whole.user == n).sum()) for n, u in enumerate(whole.users)}
    assert all((rows.user == n).sum() == per_user[u] for n, u in enumerate(rows.users))
    assert rows.users == sorted(rows.users)
    again = collect_rows(*(t.reverse() for t in tables), "train", rater.catalogue, most=500)
    assert again.users == rows.users


def test_no_torch_is_needed(small_world):
    before = "torch" in sys.modules
    fit_statistical(scale=scale_named("0-9"), **small_world.tables, **small_world.vectors)
    assert ("torch" in sys.modules) == before


def test_a_text_speaks_like_the_fields_and_the_fields_count_more(rater):
    item = film("Horror")

    def rated(text="", **fields):
        who = person(**fields).with_columns(description=pl.lit(text))
        return rater.rate(who, item).expected[0]

    neutral = rated("A nurse from Ohio.")
    assert rated("She loves horror films.") == pytest.approx(rated(likes=["Horror"]))
    assert rated("She can't stand horror.") == pytest.approx(rated(dislikes=["Horror"]))
    assert rated("She can't stand horror.") < neutral < rated("She loves horror films.")
    both = rated("She loves horror films.", dislikes=["Horror"])
    assert both == pytest.approx(rated(dislikes=["Horror"]))


def test_who_is_said_to_be_generous_or_harsh_rates_so_whatever_the_draw(rater, small_world):
    nothing = pl.lit([], dtype=pl.List(pl.String))
    people = small_world.personas.with_columns(likes=nothing, dislikes=nothing)
    items = small_world.items.head(3)

    def rated(text):
        return rater.rate(people.with_columns(description=pl.lit(text)), items).expected

    plain = rated("Somebody from Ohio.")
    assert (rated("Rates generously.") > plain).all()
    assert (rated("A harsh critic.") < plain).all()


def test_ratings_of_one_genre_move_films_of_that_genre_most(rater, small_world):
    """Two liked and two disliked genres: the history tells them apart, leniency does not."""
    who = person()
    genres = small_world.items.explode("genres")
    horror = genres.filter(genres="Horror")["item_id"].unique().to_list()
    others = [i for i in small_world.items["item_id"] if i not in horror]
    past = pl.DataFrame(
        {
            "persona_id": who["persona_id"][0],
            "item_id": horror + others,
            "rating": [9.0] * len(horror) + [4.0] * len(others),
        }
    )
    rise = [
        rater.rate(who, film(g), past).expected[0] - rater.rate(who, film(g)).expected[0]
        for g in ("Horror", "Romance")
    ]
    assert rise[0] > rise[1] + 0.5
    drivers = rater.effects(who, film("Horror"), past)
    assert drivers["history"][0] > 0.2


def test_a_longer_history_leaves_less_open(rater, small_world):
    who, item = person(), film("Drama")
    ids = small_world.items["item_id"].to_list()

    def entropy(count):
        past = pl.DataFrame(
            {"persona_id": who["persona_id"][0], "item_id": ids[:count], "rating": 5.0}
        )
        spread = rater.rate(who, item, past).probabilities[0]
        return float(np.sqrt(spread @ (np.arange(10) - spread @ np.arange(10)) ** 2))

    assert entropy(60) < entropy(2)


def test_a_domain_without_votes_years_and_text_is_fitted_too(small_world):
    bare = small_world.items.select("item_id", "title", "genres")
    found = fit_rater("statistical", scale="1-5", **{**small_world.tables, "items": bare})
    assert found.metadata()["fitted"]["vote_weight"] == 0
    batch = found.rate(small_world.personas, bare.head(5))
    np.testing.assert_allclose(batch.probabilities.sum(axis=1), 1)


def test_held_out_ratings_change_no_fitted_number(small_world, rater):
    train = small_world.splits.filter(split="train").select("user_id", "item_id")
    seen = small_world.interactions.join(train, on=["user_id", "item_id"], how="semi")
    alone = fit_rater(
        "statistical",
        scale="1-10",
        **{**small_world.tables, "interactions": seen},
        **small_world.vectors,
    )
    assert alone.metadata() == rater.metadata()
    np.testing.assert_array_equal(alone.tastes.covariance, rater.tastes.covariance)
    np.testing.assert_array_equal(alone.catalogue.quality, rater.catalogue.quality)
