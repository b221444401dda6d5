"""Plans: everything while it fits, else an equal share from every stratum."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.config import ScoringSettings
from pipelines.contracts import CONTRACTS
from pipelines.errors import ConfigError, ContractError
from pipelines.raters import plan_choice_sets, plan_pairs, planned_sets


def people(count: int) -> pl.DataFrame:
    return pl.DataFrame({"persona_id": [f"persona:p:{n:07d}" for n in range(count)]})


def films(count: int) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Film n has rank n + 1."""
    ids = [f"ml:{n}" for n in range(count)]
    stats = pl.DataFrame({"item_id": ids, "popularity_rank": range(1, count + 1)})
    return pl.DataFrame({"item_id": ids}).reverse(), stats


def plan(persons: int, items: int, most: int, seed: int = 1) -> pl.DataFrame:
    return plan_pairs(people(persons), *films(items), ScoringSettings(max_pairs=most, seed=seed))


def test_all_pairs_are_planned_while_they_fit():
    frame = plan(5, 20, 100)
    assert frame.height == 100
    assert frame["stratum"].unique().to_list() == ["all"]
    assert CONTRACTS["movies.score_plan"].validate(frame).equals(frame)
    assert frame.equals(frame.sort("persona_id", "item_id"))


@settings(max_examples=40, deadline=None)
@given(
    persons=st.integers(1, 70),
    items=st.integers(1, 120),
    share=st.integers(1, 100),
    seed=st.integers(0, 9),
)
def test_every_persona_gets_the_same_number_of_distinct_films(persons, items, share, seed):
    most = persons * share
    frame = plan(persons, items, most, seed)
    assert frame.height == persons * min(share, items)
    counts = frame.group_by("persona_id").agg(pl.len(), pl.col("item_id").n_unique().alias("films"))
    assert counts["len"].unique().to_list() == [min(share, items)]
    assert (counts["films"] == counts["len"]).all()
    assert frame.equals(frame.sort("persona_id", "item_id"))


def test_strata_are_a_tenth_three_tenths_and_the_rest_in_equal_parts():
    frame = plan(10, 100, 10 * 24)
    by = frame.group_by("stratum").agg(
        pl.len(), pl.col("item_id").str.slice(3).cast(pl.Int64).min().alias("first"),
        pl.col("item_id").str.slice(3).cast(pl.Int64).max().alias("last"),
    )  # fmt: skip
    found = {row["stratum"]: row for row in by.iter_rows(named=True)}
    assert {name: row["len"] for name, row in found.items()} == {
        "head": 80,
        "torso": 80,
        "tail": 80,
    }
    assert found["head"]["last"] <= 9
    assert found["torso"]["first"] >= 10
    assert found["torso"]["last"] <= 39
    assert found["tail"]["first"] >= 40
    CONTRACTS["movies.score_plan"].validate(frame)


def test_another_persona_changes_nobody_elses_plan():
    small, large = plan(10, 100, 10 * 24), plan(11, 100, 11 * 24)
    assert large.filter(pl.col("persona_id") != "persona:p:0000010").equals(small)


def test_the_seed_decides_the_sample():
    assert plan(10, 100, 240, seed=1).equals(plan(10, 100, 240, seed=1))
    assert not plan(10, 100, 240, seed=1).equals(plan(10, 100, 240, seed=2))


def test_films_without_statistics_are_least_popular():
    items, stats = films(100)
    known = stats.filter(pl.col("item_id") != "ml:0")
    frame = plan_pairs(people(1), items, known, ScoringSettings(max_pairs=99, seed=1))
    strata = dict(frame.select("item_id", "stratum").rows())
    assert strata.get("ml:0", "tail") == "tail"
    assert strata["ml:1"] == "head"


def test_fewer_pairs_than_personas_is_an_error():
    with pytest.raises(ConfigError, match="at least one pair per persona"):
        plan(11, 100, 10)


def test_nothing_to_plan_is_an_error():
    with pytest.raises(ContractError, match="nothing to score"):
        plan_pairs(people(0), *films(3), ScoringSettings())


def drawn(persons: int, share: int, seed: int = 1) -> pl.DataFrame:
    """Plan of 20 films, film n watched with probability 1 / (n + 2) by everybody."""
    chosen = ScoringSettings(max_pairs=persons * share, seed=seed, plan="exposure")

    def exposure(ids: pl.Series, items: pl.Series) -> np.ndarray:
        by_film = 1.0 / (items.str.slice(3).cast(pl.Float64).to_numpy() + 2.0)
        return np.tile(by_film, (len(ids), 1))

    return plan_pairs(people(persons), *films(20), chosen, exposure)


def test_films_are_drawn_in_proportion_to_exposure():
    frame = drawn(2_000, 4)
    assert CONTRACTS["movies.score_plan"].validate(frame).equals(frame)
    assert frame.group_by("persona_id").len()["len"].unique().to_list() == [4]
    assert frame["stratum"].unique().to_list() == ["exposure"]
    by = frame.group_by("item_id").agg(pl.len(), pl.col("inclusion", "exposure").first())
    chance = by["inclusion"].to_numpy()
    assert chance == pytest.approx(np.minimum(1.0, 4 * by["exposure"].to_numpy() / 2.645359), 1e-5)
    # Four standard errors of a share of 2,000 personas.
    error = 4 * np.sqrt(chance * (1 - chance) / 2_000)
    assert (np.abs(by["len"].to_numpy() / 2_000 - chance) <= error).all()


def test_inclusion_weights_give_back_the_whole():
    frame = drawn(2_000, 4)
    number = frame["item_id"].str.slice(3).cast(pl.Float64).to_numpy()
    found = (number / frame["inclusion"].to_numpy()).sum() / 2_000
    assert found == pytest.approx(190, rel=0.02)
    weight = 1 / plan(10, 100, 240)["inclusion"]
    assert weight.sum() == pytest.approx(1_000, rel=1e-5)


def test_plan_by_exposure_needs_exposure():
    with pytest.raises(ConfigError, match="no training interaction"):
        plan_pairs(people(2), *films(5), ScoringSettings(max_pairs=4, plan="exposure"))


def test_exposure_is_null_without_a_model():
    assert plan(2, 5, 10)["exposure"].null_count() == 10


def shelves(**sizes: list[int]) -> pl.DataFrame:
    return pl.DataFrame(
        [(f"category:{name}", f"asin:{n}") for name, items in sizes.items() for n in items],
        schema=["category_id", "item_id"],
        orient="row",
    )


def test_every_persona_scores_every_product_of_every_set_once():
    frame = plan_choice_sets(people(3), shelves(a=[1, 2], b=[2, 3]), ScoringSettings(max_pairs=9))
    assert CONTRACTS["movies.score_plan"].validate(frame).equals(frame)
    assert frame.equals(frame.sort("persona_id", "item_id"))
    assert frame.height == 9
    assert frame["stratum"].unique().to_list() == ["choice_set"]
    assert frame["inclusion"].unique().to_list() == [1.0]
    assert frame["exposure"].null_count() == 9


def test_above_the_limit_all_personas_score_the_same_whole_sets():
    many = {f"s{n}": [10 * n + k for k in range(4)] for n in range(6)}
    frame = plan_choice_sets(people(5), shelves(**many), ScoringSettings(max_pairs=5 * 4 * 2 + 19))
    assert frame.height == 40
    by_persona = frame.group_by("persona_id").agg(pl.col("item_id").sort())
    assert by_persona["item_id"].n_unique() == 1
    assert planned_sets(shelves(**many), frame["item_id"].unique())["category_id"].n_unique() == 2
    assert frame["inclusion"].unique().to_list() == [0.333333]


@pytest.mark.pipeline
def test_an_item_of_several_sets_is_planned_with_the_chance_that_one_of_them_is_taken():
    """Two of four sets are taken; an item in two of the four is left out with (2/4)(1/3)."""
    sets = {"a": [0, 1], "b": [0, 2], "c": [0, 3], "d": [0, 4]}
    frame = plan_choice_sets(people(1), shelves(**sets), ScoringSettings(max_pairs=3))
    shared = frame.filter(pl.col("item_id") == "asin:0")["inclusion"].item()
    assert shared == 1.0, "three of four sets can't be left out"
    assert set(frame.filter(pl.col("item_id") != "asin:0")["inclusion"]) == {0.5}
    twice = {"a": [0, 1], "b": [0, 2], "c": [3, 4], "d": [5, 6]}
    taken = []
    for seed in range(400):
        plan = plan_choice_sets(
            people(1), shelves(**twice), ScoringSettings(max_pairs=4, seed=seed)
        )
        taken.append("asin:0" in plan["item_id"])
    assert np.mean(taken) == pytest.approx(5 / 6, abs=0.06)


def test_a_limit_below_one_set_is_refused():
    with pytest.raises(ConfigError, match="choice set of 2 products"):
        plan_choice_sets(people(2), shelves(a=[1, 2]), ScoringSettings(max_pairs=3))
    with pytest.raises(ContractError, match="nothing to score"):
        plan_choice_sets(people(2), shelves(), ScoringSettings())
