"""Every expectation passes on a good table and stops a bad one."""

from __future__ import annotations

from typing import Any

import orjson
import polars as pl
import pytest
from support.bad_domain_tables import bad_domain
from support.bad_tables import BAD

from pipelines.config import PersonaSettings
from pipelines.domains import DOMAINS
from pipelines.errors import ContractError
from pipelines.personas import generate
from pipelines.quality import SUITES, check_dataset, required_checks
from pipelines.store import CheckRecord, Snapshot

DRIFT = {"row_drop", "schema_unchanged"}
EVERY = BAD | bad_domain("books")
#: Games and products are judged by the suites of books; choice sets have a test of their own.
TESTED = [d for d in SUITES if d.partition(".")[0] not in ("games", "products", "own")]
CHOICE_SETS = set(DOMAINS["products"].optional)
CASES = [
    pytest.param(dataset, check, change, id=f"{dataset}-{check}-{n}")
    for dataset, checks in EVERY.items()
    for check, changes in checks.items()
    for n, change in enumerate(changes)
]


def _check(world: Any, snapshot: Snapshot, **options: Any) -> dict[str, CheckRecord]:
    records = check_dataset(
        snapshot.dataset, snapshot, store=world.store, settings=world.settings, **options
    )
    return {r.name: r for r in records}


@pytest.mark.parametrize("dataset", TESTED)
def test_good_tables_pass_every_check(world: Any, dataset: str) -> None:
    records = _check(world, world.tables[dataset])
    assert [r.name for r in records.values()] == [e.name for e in SUITES[dataset]]
    assert {n: r.details for n, r in records.items() if r.passed is False} == {}
    judged = [r for r in records.values() if r.passed]
    assert {r.name for r in records.values()} - {r.name for r in judged} == {
        e.name
        for e in SUITES[dataset]
        if e.view.startswith("drift_")
        or (e.applies_from == ("rows", 1000) and dataset == "books.items")
    }
    assert all(r.details["observed"] is not None for r in judged)


@pytest.mark.parametrize(("dataset", "check", "change"), CASES)
def test_bad_table_is_stopped_with_its_failing_rows(
    world: Any, dataset: str, check: str, change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = next(e for e in SUITES[dataset] if e.name == check)
    required = required_checks(dataset)
    monkeypatch.setitem(SUITES, dataset, (declared,))  # the others are not asked: a second each
    (record,) = _check(world, world.broken(dataset, change)).values()
    assert not record.passed
    assert record.severity == declared.severity
    assert record.name == check
    assert record.blocks == (check in required)
    details = record.details
    assert details["expected"]
    assert details["because"] in details["message"]
    rows = details.get("rows", [])
    assert len(rows) <= 10
    assert all(v is None or isinstance(v, str) for row in rows for v in row.values())
    # Something to look at: failing rows, why there are none, or the figure of the whole.
    assert rows or details.get("problem") or details["observed"] is not None
    assert orjson.loads(orjson.dumps(details)) == details


def test_every_declared_check_has_a_bad_table() -> None:
    # Domains share most expectations: each is broken once, in the table that it is about.
    broken = [
        (dataset.rpartition(".")[2], e)
        for dataset, checks in EVERY.items()
        for e in SUITES[dataset]
        if e.name in checks
    ]
    unbroken = {
        (dataset, e.name)
        for dataset, suite in SUITES.items()
        for e in suite
        if not e.view.startswith("drift_")
        and dataset not in CHOICE_SETS
        and (dataset.rpartition(".")[2], e) not in broken
    }
    assert unbroken == set()


def test_failing_rows_are_the_rows_that_fail(world: Any) -> None:
    bad = world.broken(
        "movies.items",
        lambda f: f.with_columns(
            genres=pl.when(pl.int_range(pl.len()) >= 100)
            .then(pl.lit([], pl.List(pl.String)))
            .otherwise("genres")
        ),
    )
    record = _check(world, bad)["genre_coverage"]
    assert (record.details["failing"], record.details["of"]) == (50, 150)
    assert record.details["observed"] == pytest.approx(2 / 3)
    assert record.details["bound"] == {"min_value": 1, "mostly": 0.85}
    expected = {f"ml:{n}" for n in range(100, 150)}
    assert {row["item_id"] for row in record.details["rows"]} <= expected
    assert all(row["genres"] == "0" for row in record.details["rows"])


def test_leaks_show_the_triple_and_the_versions_compared(world: Any) -> None:
    change = BAD["movies.graph_triples"]["no_leaks"][0]
    record = _check(world, world.broken("movies.graph_triples", change))["no_leaks"]
    (row,) = record.details["rows"]
    assert (row["head"], row["tail"]) == ("ml-user:0", "ml:22")
    assert record.details["compared_with"] == {
        "movies.splits": world.tables["movies.splits"].version
    }


def test_bounds_follow_the_settings(world: Any) -> None:
    strict = world.settings.model_copy(
        update={"quality": world.settings.quality.model_copy(update={"min_tmdb_coverage": 0.9})}
    )
    table = world.tables["movies.items"]
    records = check_dataset("movies.items", table, store=world.store, settings=strict)
    record = next(r for r in records if r.name == "plot_coverage")
    assert not record.passed
    assert record.details["bound"]["mostly"] == 0.9


def _films_without_plots(frame: pl.DataFrame, records: pl.Expr) -> pl.DataFrame:
    nothing = pl.lit([], pl.List(pl.String))
    return frame.with_columns(
        has_tmdb=records,
        overview=pl.lit(None, pl.String),
        actors=nothing,
        directors=nothing,
    )


def test_links_without_any_record_owe_no_features(world: Any) -> None:
    none = world.broken("movies.items", lambda f: _films_without_plots(f, pl.lit(False)))
    records = _check(world, none)
    for name in ("plot_coverage", "cast_coverage", "director_coverage"):
        assert records[name].status == "not applicable"
        assert "no item has a TMDB record" in records[name].details["skipped"]


def test_few_records_warn_and_name_the_remedy(world: Any) -> None:
    one = pl.int_range(pl.len()) == 0
    few = world.broken("movies.items", lambda f: _films_without_plots(f, one))
    records = _check(world, few)
    for name in ("plot_coverage", "cast_coverage", "director_coverage"):
        assert records[name].passed is False
        assert not records[name].blocks
        message = records[name].details["message"]
        assert "tmdb/movies.jsonl" in message
        assert "UNDERSTUDY_TMDB__TOKEN" in message


def test_given_context_wins_over_the_current_table(world: Any) -> None:
    fewer = world.broken("movies.items", lambda f: f.head(140))
    table = world.tables["movies.item_embeddings"]
    assert _check(world, table)["ids_covered"].passed
    record = _check(world, table, context={"movies.items": fewer})["ids_covered"]
    assert not record.passed
    assert record.details["observed"] == 10


def test_a_missing_related_table_fails_what_needs_it(world: Any, tmp_path: Any) -> None:
    from pipelines.store import Store

    store = Store(tmp_path / "alone")
    frame = world.frames["movies.item_embeddings"]
    alone = store.commit("movies.item_embeddings", frame, code_version="1")
    records = check_dataset(alone.dataset, alone, store=store, settings=world.settings)
    record = next(r for r in records if r.name == "ids_covered")
    assert not record.passed
    assert "no snapshot of movies.items" in record.details["problem"]


def test_baseline_raters_may_score_everybody_alike(world: Any) -> None:
    flat = world.broken(
        "movies.preference_scores",
        lambda f: f.with_columns(rater=pl.lit("random"), expected=pl.lit(5.5)),
    )
    record = _check(world, flat)["persona_variance"]
    assert record.status == "not applicable"
    assert "baseline raters" in record.details["skipped"]


@pytest.mark.parametrize(("drawn_from", "stated"), [(18, 18), (4, 4), (4, 18), (40, 18), (4, None)])
def test_ages_are_compared_with_people_from_the_minimum_age_on(
    world: Any, drawn_from: int, stated: int | None
) -> None:
    # Equal rows would be one version.
    seed = 100 * drawn_from + (stated or 0)
    people = generate(PersonaSettings(count=2_000, seed=seed, min_age=drawn_from))
    cohort = {"count": 2_000} | ({} if stated is None else {"min_age": stated})
    snapshot = world.store.commit(
        "movies.personas", people, code_version="aged", config={"cohorts": {"default": cohort}}
    )
    world.store.point("movies.personas", world.tables["movies.personas"].version)
    records = _check(world, snapshot)
    # A cohort of before the setting states none, and has children.
    assert records["age_distribution"].passed == (drawn_from == (stated or 4))


def test_unknown_dataset_and_wrong_snapshot_are_errors(world: Any) -> None:
    items = world.tables["movies.items"]
    options = {"store": world.store, "settings": world.settings}
    with pytest.raises(ContractError, match="no expectations are declared"):
        check_dataset("raw.movielens_movies", items, **options)
    with pytest.raises(ContractError, match=r"the snapshot is of movies\.items"):
        check_dataset("movies.personas", items, **options)


def test_names_and_severities_are_fit_for_asset_checks() -> None:
    for dataset, suite in SUITES.items():
        names = [e.name for e in suite]
        assert len(set(names)) == len(names), dataset
        assert all(n.isidentifier() and n != "contract" for n in names)
        assert {n for n in required_checks(dataset) if n != "contract"} == {
            e.name for e in suite if e.severity == "error"
        }
        assert set(names) >= DRIFT
        assert all(e.because for e in suite)
