"""The population report on a small world of known ratings."""

import numpy as np
import polars as pl
import pytest

from pipelines.errors import ContractError
from pipelines.raters import (
    POPULATION_FIGURES,
    fit_statistical,
    population_markdown,
    population_pictures,
    population_report,
    scale_named,
    score_pairs,
)
from pipelines.raters.report.population import headroom_by_person, variance_shares


@pytest.fixture(scope="module")
def scored(small_world):
    rater = fit_statistical(scale=scale_named("1-10"), **small_world.tables)
    people, items = small_world.personas.sort("persona_id"), small_world.items
    plan = people.select("persona_id").join(items.select("item_id"), how="cross")
    return rater, pl.concat(score_pairs(rater, plan, people, items))


def report_of(world, rater, scores, **more):
    return population_report(
        scores.lazy(),
        personas=world.personas,
        items=world.items,
        interactions=world.interactions.lazy(),
        splits=world.splits.lazy(),
        rater=rater,
        **more,
    )


@pytest.fixture(scope="module")
def report(small_world, scored):
    return report_of(small_world, *scored)


def figure(report, name):
    return report.table.row(by_predicate=pl.col("figure") == name, named=True)


def test_headroom_and_shares_equal_those_of_the_whole_table(report, scored, small_world):
    rater, scores = scored
    table = scores.sort("persona_id", "item_id")["expected"].to_numpy().reshape(20, -1)
    own, common, _ = headroom_by_person(table).mean(axis=0)
    assert figure(report, "headroom")["personas_value"] == pytest.approx(own - common)
    assert figure(report, "oracle")["personas_value"] == pytest.approx(own)
    batch = rater.rate(small_world.personas.sort("persona_id"), small_world.items)
    within = (batch.probabilities @ rater.scale.answers**2).reshape(table.shape) - table**2
    found = figure(report, "table_item_person_share")["personas_value"]
    assert found == pytest.approx(variance_shares(table, within)[2])


@pytest.fixture(scope="module")
def planted(small_world, scored):
    """Scores of personas whose tastes are known: expected ratings, and their taste's variance."""
    rater, scores = scored
    rng = np.random.default_rng(5)
    genres = rater.catalogue.taste[:, 1:7]
    quality, leniency = rng.normal(0, 0.5, (1, 80)), rng.normal(0, 0.4, (20, 1))
    felt = rng.normal(0, 1.5, (20, 6)) @ genres.T
    truth = 6.0 + quality + leniency + felt
    order = small_world.personas["persona_id"].sort()
    person = scores["persona_id"].replace_strict({p: n for n, p in enumerate(order)})
    item = scores["item_id"].replace_strict(rater.catalogue.index)
    expected = truth[person.cast(pl.Int64), item.cast(pl.Int64)]
    given = expected + rng.normal(0, 1.0, len(expected))
    made = scores.with_columns(expected=pl.Series(expected), sample=pl.Series(given))
    return truth, report_of(small_world, rater, made)


def test_headroom_of_planted_tastes_is_the_exact_one(planted):
    truth, found = planted
    own = np.sort(truth, axis=1)[:, -10:].mean()
    common = truth[:, np.argsort(-truth.mean(axis=0))[:10]].mean()
    assert figure(found, "oracle")["personas_value"] == pytest.approx(own)
    assert figure(found, "headroom")["personas_value"] == pytest.approx(own - common)


def test_share_of_planted_tastes_is_in_its_interval_and_lost_by_shuffling(planted):
    truth, found = planted
    rest = truth - truth.mean(axis=0) - truth.mean(axis=1, keepdims=True) + truth.mean()
    share = rest.var() / (truth.var() + 1.0)
    row = figure(found, "item_person_share")
    assert row["personas_low"] < share < row["personas_high"]
    assert row["personas_low"] > 0.05 > abs(row["chance"])


def test_both_sides_rate_the_same_lists(report, small_world):
    assert report.metadata["ratings"] == small_world.interactions.height
    assert report.metadata["people"] == 150
    assert report.metadata["personas"] == 20
    assert "6,000 ratings of the same lists" in report.metadata["statement"]
    assert report.metadata["missing"] == {}


@pytest.fixture(scope="module")
def sparse(small_world, scored):
    """Report with scores of 24 of the 80 items for each persona."""
    rater, scores = scored
    order = np.argsort(np.random.default_rng(6).random((20, 80)), axis=1)
    some = scores.sort("persona_id", "item_id").filter(pl.Series((order < 24).ravel()))
    return some, report_of(small_world, rater, some)


@pytest.mark.parametrize("name", ["item_person_share", "split_half_covariance", "genre_gap"])
def test_tastes_of_people_do_not_depend_on_what_personas_scored(report, sparse, name):
    ends = [f"people_{end}" for end in ("value", "low", "high")]
    whole, some = figure(report, name), figure(sparse[1], name)
    assert [some[end] for end in ends] == [whole[end] for end in ends]
    assert some["personas_value"] != whole["personas_value"]


def test_both_sides_choose_from_the_same_catalogue(report, sparse):
    scores, found = sparse
    kept = scores.pivot("item_id", index="persona_id", values="expected", sort_columns=True)
    own = headroom_by_person(kept.drop("persona_id").to_numpy()).mean(axis=0)
    for value, name in zip(own, ("oracle", "common_list", "random_items"), strict=True):
        assert figure(found, name)["personas_value"] == pytest.approx(value)
    # The best of 24 items is not as good as that of 80.
    assert figure(found, "oracle")["people_value"] < figure(report, "oracle")["people_value"] - 0.2
    usual = figure(report, "random_items")["people_value"]
    assert figure(found, "random_items")["people_value"] == pytest.approx(usual, abs=0.1)


def test_lists_too_short_for_a_figure_give_the_reason(small_world, scored):
    rater, scores = scored
    few = scores.sort("item_id").group_by("persona_id", maintain_order=True).head(6)
    found = report_of(small_world, rater, few)
    text = population_markdown(found.table, found.metadata)
    numbers = ("personas_value", "personas_low", "personas_high", "ratio", "ratio_low", "chance")
    for name in ("item_person_share", "split_half_covariance"):
        row = figure(found, name)
        assert [row[n] for n in numbers] == [None] * len(numbers)
        assert row["people_low"] < row["people_value"] < row["people_high"]
        reason = found.metadata["missing"][name]["personas"]
        assert reason.startswith("0 lists with ")
        assert f"{POPULATION_FIGURES[name][0]}: personas, {reason}." in text
    assert figure(found, "headroom")["people_value"] is None
    assert found.metadata["missing"]["headroom"]["people"].startswith("0 personas with 10 scores")


def test_intervals_hold_their_value(report):
    known = report.table.drop_nulls(["personas_low"])
    assert known.height >= 15
    assert (known["personas_low"] <= known["personas_value"]).all()
    assert (known["personas_value"] <= known["personas_high"]).all()


def test_shuffled_personas_have_no_taste(report):
    row = figure(report, "item_person_share")
    assert abs(row["chance"]) < 0.03 < row["personas_value"]


def test_personas_without_a_drawn_taste_are_told_apart(small_world, scored):
    rater = fit_statistical(scale=scale_named("1-10"), **small_world.tables, taste="mean")
    people, items = small_world.personas.sort("persona_id"), small_world.items
    plan = people.select("persona_id").join(items.select("item_id"), how="cross")
    alike = report_of(small_world, rater, pl.concat(score_pairs(rater, plan, people, items)))
    drawn = report_of(small_world, *scored)
    name = "table_item_person_share"
    assert figure(alike, name)["personas_value"] < 0.5 * figure(drawn, name)["personas_value"]


def test_table_and_page_hold_the_same_figures(report):
    noted = {"fields": 15, "text": 4, "nothing": 1, "compared": 10, "contradictions": 2,
             "all_liked": 0, "none_liked": 0}  # fmt: skip
    text = population_markdown(report.table, report.metadata | {"reading": noted})
    assert "Rated by fields: 15 of 20; by what the reader finds in the text: 4; 1 state" in text
    assert "contradict the fields: 2 of 10 compared; fields win." in text
    assert f"{figure(report, 'headroom')['personas_value']:.3f}" in text
    assert set(report.table["figure"]) <= set(POPULATION_FIGURES)
    for picture in population_pictures(report.table, report.metadata).values():
        assert picture.startswith(b"\x89PNG")


def test_failed_scores_are_on_neither_side(small_world, scored):
    rater, scores = scored
    values = ("probabilities", "expected", "mode", "sample", "entropy")
    bad = pl.col("item_id") == small_world.items["item_id"][0]
    failed = scores.with_columns(
        pl.when(bad).then(pl.lit("invalid")).otherwise("status").alias("status"),
        *(pl.when(~bad).then(c).alias(c) for c in values),
    )
    found = report_of(small_world, rater, failed)
    first = small_world.interactions.filter(item_id=small_world.items["item_id"][0]).height
    assert f"{6_000 - first:,} ratings of the same lists" in found.metadata["statement"]
    assert "1,580 scores of personas" in found.metadata["statement"]


def test_nothing_scored_is_an_error(small_world, scored):
    rater, scores = scored
    with pytest.raises(ContractError, match="no score"):
        report_of(small_world, rater, scores.clear())


def test_equal_input_gives_equal_figures(report, small_world, scored):
    again = report_of(small_world, *scored)
    assert again.table.equals(report.table)
    assert np.isfinite(report.table["personas_value"].to_numpy()).all()
