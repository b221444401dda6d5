"""From histories to tables: what is read, what is told, and what is refused."""

from __future__ import annotations

import json

import polars as pl
import pytest

from pipelines.config import MatchingSettings, Settings, load_settings
from pipelines.contracts import CONTRACTS
from pipelines.errors import ConfigError, ContractError
from pipelines.matching import (
    History,
    StatisticalMatcher,
    match_users,
    occupation_values,
    occupations_of,
    taste_profiles,
    taste_text,
)
from pipelines.matching.testing import small_world
from pipelines.packaged import packaged_yaml
from pipelines.personas import matched_personas

SETTINGS = MatchingSettings(users=8, items=6, subset_size=4, others=5)


def matched(tables, settings=SETTINGS, *, domain="movies", users=None):
    tables = dict(tables)
    traits = tables.pop("training_traits")
    history = History.read(domain, **tables)
    return match_users(history, traits, StatisticalMatcher(settings), settings, users=users)


def test_held_out_ratings_change_nothing(world) -> None:
    held = world["splits"].filter(pl.col("split") == "test")
    changed = world["interactions"].join(
        held.select("user_id", "item_id", held=pl.lit(value=True)),
        on=["user_id", "item_id"],
        how="left",
        maintain_order="left",
    )
    changed = changed.with_columns(
        rating=pl.when("held").then(6 - pl.col("rating")).otherwise("rating")
    ).drop("held")
    assert not changed.equals(world["interactions"])
    one, other = matched(world), matched({**world, "interactions": changed})
    assert one.personas.equals(other.personas)
    assert one.candidates.equals(other.candidates)


def test_a_training_rating_does_change_something(world) -> None:
    first = world["splits"].filter(pl.col("split") == "train").head(1)
    key = (pl.col("user_id") == first["user_id"][0]) & (pl.col("item_id") == first["item_id"][0])
    changed = world["interactions"].with_columns(
        rating=pl.when(key).then(6 - pl.col("rating")).otherwise("rating")
    )
    everybody = SETTINGS.model_copy(update={"users": 30})
    one, other = matched(world, everybody), matched({**world, "interactions": changed}, everybody)
    assert not one.personas.equals(other.personas)


def test_scores_can_be_computed_again(world) -> None:
    found = matched(world)
    rows = found.candidates
    assert (rows["score"] - (rows["own"] - rows["others"])).abs().max() < 1e-9
    best = rows.sort(["user_id", "score", "candidate"], descending=[False, True, False])
    best = best.group_by("user_id", maintain_order=True).first()
    chosen = rows.filter("chosen")
    assert best.select("user_id", "candidate").equals(chosen.select("user_id", "candidate"))
    joined = found.personas.join(chosen, on="user_id")
    assert (joined["score"] == joined["score_right"]).all()
    attributes = [json.loads(text) for text in joined["attributes"]]
    assert joined["occupation"].to_list() == [a["occupation"] for a in attributes]


def test_a_world_that_tells_nothing_gets_no_attributes() -> None:
    found = matched(small_world(stated=False))
    CONTRACTS["movies.matched_personas"].validate(found.personas)
    CONTRACTS["movies.persona_candidates"].validate(found.candidates)
    assert set(found.personas["basis"]) == {"none"}
    for column in ("age_band", "occupation", "openness", "score", "margin"):
        assert found.personas[column].null_count() == 8, column
    assert set(found.personas["candidates"]) == {0}
    assert set(found.candidates["status"]) == {"none"}
    assert found.personas["taste"].str.len_chars().min() > 20


@pytest.mark.parametrize(
    ("domain", "cohort"), [("books", "books-matched"), ("games", "games-matched")]
)
def test_other_domains_have_cohorts_of_their_own(domain, cohort) -> None:
    found = matched(small_world(stated=False, domain=domain), domain=domain)
    assert set(found.personas["cohort"]) == {cohort}
    people = matched_personas(found.personas)
    CONTRACTS["movies.personas"].validate(people)
    assert set(people["domain"]) == {domain}


def test_personas_state_what_was_matched(world) -> None:
    found = matched(world)
    people = matched_personas(found.personas)
    CONTRACTS["movies.personas"].validate(people)
    assert set(people["origin"]) == {"matched"}
    assert people["persona_id"].to_list() == found.personas["persona_id"].to_list()
    for text, row in zip(people["description"], found.personas.to_dicts(), strict=True):
        assert row["age_band"] in text
        assert row["occupation"] in text
        assert row["taste"] in text
    assert people["age"].null_count() == people["name"].null_count() == people.height


def test_personas_keep_their_numbers_whoever_else_is_matched(world) -> None:
    few = matched(world, users=["ml-user:3", "ml-user:11"])
    many = matched(world, SETTINGS.model_copy(update={"users": 30}))
    both = few.personas.join(many.personas, on="persona_id", suffix="_many")
    assert both.height == 2
    for column in ("user_id", "age_band", "occupation", "score", "taste"):
        assert both[column].to_list() == both[f"{column}_many"].to_list(), column


def test_a_user_without_history_is_named(world) -> None:
    nobody = world["splits"].with_columns(
        split=pl.when(pl.col("user_id") == "ml-user:2").then(pl.lit("test")).otherwise("split")
    )
    with pytest.raises(ConfigError, match=r"without a training interaction.*movies ml-user:2"):
        matched({**world, "splits": nobody}, users=["ml-user:2", "ml-user:3"])


def test_no_candidates_and_no_users_are_refused(world) -> None:
    with pytest.raises(ConfigError, match=r"matching.candidates"):
        load_settings(None, {"matching": {"candidates": 0}})
    with pytest.raises(ConfigError, match=r"no users to match: movies matching.users"):
        matched(world, users=[])


def test_no_training_rows_and_unknown_items_are_named(world) -> None:
    held = world["splits"].with_columns(split=pl.lit("test"))
    with pytest.raises(ContractError, match=r"no training interaction: movies.interactions"):
        matched({**world, "splits": held})
    with pytest.raises(ContractError, match=r"items that are not in `items`: movies.interactions"):
        matched({**world, "items": world["items"].head(3)})


def test_every_mapped_occupation_is_one_of_the_21() -> None:
    values = set(occupation_values())
    assert len(values) == 21
    words = packaged_yaml("pipelines.matching", "occupations.yaml")["ml-100k"]
    assert len(words) == 21
    assert set(words.values()) <= values
    mapped = occupations_of(pl.Series(["under 18", None]), pl.Series(["student", "student"]))
    assert mapped.to_list() == ["K-12 student", "college/grad student"]


def test_summaries_name_what_stands_out(history) -> None:
    profile = taste_profiles(history, [0])[0]
    assert profile.likes == ("Comedy",)
    assert "Comedy" not in profile.dislikes
    text = taste_text(profile, "movies")
    assert text.startswith("Likes Comedy")
    assert f"{profile.count} ratings" in text


def test_matching_is_no_part_of_the_identity_of_releases() -> None:
    assert "matching" not in Settings().identity()
