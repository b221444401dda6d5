"""Which personas, items and series a suite asks about, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines import stages
from pipelines.ablations import (
    CASE_TABLES,
    CaseRule,
    check_cases,
    find_series,
    item_sets,
    needs,
    suite_named,
    suite_personas,
)
from pipelines.config import Settings
from pipelines.contracts import CONTRACTS
from pipelines.errors import ConfigError, ContractError
from pipelines.stages import PipelineContext, case_stage
from pipelines.store import Store

MOVIES = suite_named("movies")
ALL = CaseRule(least_ratings=1)


def catalogue(rows: dict[str, list[str]], **columns: list[Any]) -> pl.DataFrame:
    """Items by id with these genres; further columns as given."""
    blank = {
        "title": list(rows), "year": [2000] * len(rows), "collection": [None] * len(rows),
        "keywords": [[]] * len(rows), "directors": [[]] * len(rows), "actors": [[]] * len(rows),
    }  # fmt: skip
    lists = dict.fromkeys(("genres", "keywords", "directors", "actors"), pl.List(pl.String))
    return pl.DataFrame(
        {"item_id": list(rows), "genres": list(rows.values()), **blank, **columns},
        schema_overrides={**lists, "collection": pl.String},
    )


def rated(items: pl.DataFrame, counts: list[int] | int = 10) -> pl.DataFrame:
    n = items.height
    return pl.DataFrame(
        {
            "item_id": items["item_id"],
            "train_ratings": counts if isinstance(counts, list) else [counts] * n,
            "train_mean_rating": [3.5] * n,
        }
    )


# -- personas -----------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", ["movies", "books"])
def test_four_personas_of_each_of_eight_genres_and_eight_who_rate_alike(domain: str) -> None:
    people = CONTRACTS[f"ablations.{domain}_personas"].validate(suite_personas(suite_named(domain)))
    genres = people.filter(pl.col("suite") == "genres")
    assert genres["group"].n_unique() == 8
    for _, four in genres.group_by("group"):
        assert sorted(four["gender"]) == ["female", "female", "male", "male"]
        for _, two in four.group_by("gender"):
            young, old = sorted(two["age"])
            assert young < 35
            assert old > 60
    raters = people.filter(pl.col("suite") == "raters")
    assert raters.group_by("group", "gender").len()["len"].to_list() == [2] * 4


@pytest.mark.parametrize("domain", ["movies", "books"])
def test_no_description_has_the_wrong_pronouns(domain: str) -> None:
    people = suite_personas(suite_named(domain))
    assert check_cases("personas", people, {})[0].passed
    swapped = people.with_columns(
        gender=pl.when(pl.col("gender") == "male").then(pl.lit("female")).otherwise(pl.lit("male"))
    )
    (record,) = check_cases("personas", swapped, {})
    assert not record.passed
    assert " 0 rows" not in record.details["message"]


@pytest.mark.parametrize("domain", ["movies", "books"])
def test_no_description_names_a_scale(domain: str) -> None:
    # On any scale of the answers, no number of a text would have to change.
    people = suite_personas(suite_named(domain))
    for age, text in people.select("age", "description").iter_rows():
        assert not any(c.isdigit() for c in text.replace(f", {age}, ", ", ", 1))


# -- item sets ----------------------------------------------------------------------------------


def sets_of(items: pl.DataFrame, rule: CaseRule, name: str) -> dict[str, list[str]]:
    people = suite_personas(MOVIES)
    sets = item_sets(people, items, rated(items), MOVIES, rule)
    CONTRACTS["ablations.movies_item_sets"].validate(sets)
    one = people.filter(pl.col("name") == name)["persona_id"].item()
    mine = sets.filter(pl.col("persona_id") == one)
    return {w: sorted(mine.filter(pl.col("want") == w)["item_id"]) for w in ("high", "low")}


FILMS = catalogue(
    {
        "ml:1": ["Action"],
        "ml:2": ["Action", "Drama"],
        "ml:3": ["Action", "Comedy"],  # liked and disliked at once: not asked
        "ml:4": ["Comedy"],
        "ml:5": ["Drama"],  # nobody said anything about drama: not asked
        "ml:6": ["Horror", "Thriller"],
        "ml:7": [],  # of no genre: not asked
        "ml:8": ["Animation", "Children"],
        "ml:9": ["Animation"],
        "ml:10": ["Children", "Comedy"],
    }
)


def test_liked_items_have_the_genre_and_no_disliked_one() -> None:
    assert sets_of(FILMS, ALL, "Nadia") == {
        "high": ["ml:1", "ml:2"],
        "low": ["ml:10", "ml:4", "ml:6", "ml:8", "ml:9"],
    }


def test_what_is_akin_to_the_genre_is_no_disliked_item() -> None:
    # For those who like animation: films for children are neither asked as liked nor disliked.
    assert sets_of(FILMS, ALL, "Mira") == {
        "high": ["ml:8", "ml:9"],
        "low": ["ml:1", "ml:2", "ml:3", "ml:4", "ml:6"],
    }


def test_who_rates_alike_is_asked_about_any_item() -> None:
    asked = sets_of(FILMS, ALL, "Jasmine")
    assert len(asked["high"]) == FILMS.height
    assert not asked["low"]


def test_so_many_items_as_asked_for_and_never_more_than_there_are() -> None:
    rule = CaseRule(liked=1, disliked=3, everything=4, least_ratings=1)
    found = sets_of(FILMS, rule, "Nadia")
    assert (len(found["high"]), len(found["low"])) == (1, 3)
    assert len(sets_of(FILMS, rule, "Jasmine")["high"]) == 4
    full = {w: set(v) for w, v in sets_of(FILMS, ALL, "Nadia").items()}
    assert all(set(found[w]) <= full[w] for w in full)


def test_items_that_hardly_anybody_rated_are_not_asked() -> None:
    people = suite_personas(MOVIES)
    counts = [10] * FILMS.height
    counts[0] = 2
    sets = item_sets(people, FILMS, rated(FILMS, counts), MOVIES, CaseRule(least_ratings=3))
    assert "ml:1" not in set(sets["item_id"])


def test_another_seed_draws_others_and_the_same_seed_the_same() -> None:
    one, same, other = (
        sets_of(FILMS, CaseRule(everything=4, least_ratings=1, seed=s), "Jasmine")["high"]
        for s in (0, 0, 1)
    )
    assert one == same
    assert one != other


# -- series -------------------------------------------------------------------------------------


def series_of(items: pl.DataFrame, counts: Any = 10, **rule: Any) -> dict[str, list[str]]:
    found = find_series(items, rated(items, counts), MOVIES, CaseRule(**rule))
    CONTRACTS["ablations.movies_series"].validate(found)
    held = found.group_by("series").agg(pl.col("held_out").sum())
    assert (held["held_out"] == 1).all()
    groups = found.group_by("series", maintain_order=True)
    return {str(key[0]): rows["item_id"].to_list() for key, rows in groups}


def titled(*titles: str, **columns: list[Any]) -> pl.DataFrame:
    rows = {f"ml:{n}": ["Action"] for n in range(1, len(titles) + 1)}
    return catalogue(rows, title=list(titles), **columns)


def test_a_series_by_its_titles() -> None:
    items = titled("Rocky II", "Rocky", "Rocky III", "Alone", year=[1979, 1976, 1982, 2000])
    assert series_of(items) == {"rocky": ["ml:2", "ml:1", "ml:3"]}, "in the order of the years"


def test_subtitles_and_chapters_are_marks_too() -> None:
    items = titled("Star Wars: Episode IV - A New Hope", "Star Wars: The Return", "Star Wars")
    assert list(series_of(items)) == ["star wars"]


def test_remakes_are_no_series() -> None:
    assert series_of(titled("Hamlet", "Hamlet", "Hamlet")) == {}


def test_two_items_are_no_series() -> None:
    assert series_of(titled("Rocky", "Rocky II")) == {}


def test_of_equal_titles_the_best_known_stands_for_the_first_part() -> None:
    items = titled("Godzilla", "Godzilla", "Godzilla 2", "Godzilla 3")
    assert sorted(series_of(items, [5, 50, 9, 9])["godzilla"]) == ["ml:2", "ml:3", "ml:4"]


def test_titles_that_share_no_genre_are_no_series() -> None:
    items = titled("Love: A", "Love: B", "Love: C", genres=[["War"], ["Comedy"], ["Horror"]])
    assert series_of(items) == {}


def test_a_collection_goes_before_titles() -> None:
    items = titled(
        "X-Men", "X2", "Logan", "Rocky",
        collection=["X-Men Collection"] * 3 + [None],
    )  # fmt: skip
    assert series_of(items) == {"x-men": ["ml:1", "ml:2", "ml:3"]}


def test_a_keyword_of_few_items_by_one_person() -> None:
    bond = {
        "keywords": [["james bond", "spy"]] * 4 + [["spy"]],
        "actors": [["Moore"]] * 3 + [["Dalton"], ["Moore"]],
    }
    items = titled("Octopussy", "Moonraker", "A View", "Licence", "Other", **bond)
    found = find_series(items, rated(items), MOVIES, CaseRule())
    assert found["basis"].unique().to_list() == ["keyword"]
    assert set(found.filter(pl.col("series") == "james bond")["item_id"]) == {
        "ml:1", "ml:2", "ml:3", "ml:4",
    }  # fmt: skip


def test_a_keyword_without_a_common_person_is_a_subject() -> None:
    items = titled("A", "B", "C", keywords=[["spy"]] * 3, actors=[["X"], ["Y"], ["Z"]])
    assert series_of(items) == {}


def test_the_best_known_series_are_taken() -> None:
    items = titled("A 1", "A 2", "A 3", "Big 1", "Big 2", "Big 3", "Cat 1", "Cat 2", "Cat 3")
    counts = [5, 5, 5, 90, 9, 9, 20, 20, 20]
    assert list(series_of(items, counts, series=2)) != []
    known = find_series(items, rated(items, counts), MOVIES, CaseRule(series=1))
    assert known["series"].unique().to_list() == ["cat"], "by the median, not by one known part"


# -- tables -------------------------------------------------------------------------------------


def test_there_is_no_suite_of_games() -> None:
    with pytest.raises(ConfigError, match="movies, books"):
        suite_named("games")


@pytest.fixture
def made(tmp_path: Path, small_release: Any) -> tuple[Store, Any]:
    return Store(tmp_path), small_release(tmp_path)


def build(store: Store, release: Any, rule: CaseRule) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for table in CASE_TABLES:
        inputs = {
            name: out[name[1:]][0] if name.startswith(".") else release.snapshot(name)
            for name in needs(table, "movies")
        }
        context = PipelineContext.of(store, Settings())
        built = stages.build(case_stage("movies", table, rule), context, inputs=inputs)
        out[table] = next(iter(built.snapshots.values())), built.reused
    return out


def test_tables_are_snapshots_that_are_made_once(made: tuple[Store, Any]) -> None:
    store, release = made
    rule = CaseRule(users=3, fillers=2, people=20, draws=2, past=4)
    first = build(store, release, rule)
    assert not any(reused for _, reused in first.values())
    again = build(store, release, rule)
    assert all(reused for _, reused in again.values())
    for table, (snapshot, _) in first.items():
        assert again[table][0].version == snapshot.version
        assert snapshot.manifest.config["users"] == 3
        assert set(snapshot.manifest.inputs.values()) <= {
            *(release.snapshot(t).version for t in release.tables),
            *(s.version for s, _ in first.values()),
        }
        assert all(r.passed for r in store.checks(snapshot.dataset, snapshot.version).values())
    other = build(store, release, CaseRule(users=3, fillers=2, people=20, draws=2, past=4, seed=9))
    assert other["human_cases"][0].version != first["human_cases"][0].version


def test_a_history_that_shows_the_answer_stops_the_table(
    made: tuple[Store, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.ablations import _build

    maker = _build._MAKERS["series_cases"]

    def leaking(*args: Any) -> Any:
        frame, facts = maker(*args)
        return frame.with_columns(
            history=pl.concat_list(pl.col("item_id"), pl.col("history").list.slice(1))
        ), facts

    monkeypatch.setitem(_build._MAKERS, "series_cases", leaking)
    store, release = made
    with pytest.raises(ContractError, match="the_answer_is_not_shown"):
        build(store, release, CaseRule(users=3, fillers=2, people=20, draws=1))
    assert not store.has("ablations.movies_series_cases")
