"""Publishing, finding, verifying and comparing releases."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from pipelines.errors import IntegrityError, ReleaseError, StoreError
from pipelines.store import CheckRecord, Release, Snapshot, Store

SPLITS, STATS = "movies.splits", "movies.item_stats"


def splits(*rows: tuple[int, int, str]) -> pl.DataFrame:
    return pl.DataFrame(
        [(f"ml-user:{u}", f"ml:{i}", s) for u, i, s in rows],
        schema=["user_id", "item_id", "split"],
        orient="row",
    )


def stats(*items: int) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "item_id": [f"ml:{i}" for i in items],
            "ratings": [1 for _ in items],
            "mean_rating": [3.0 for _ in items],
            "train_ratings": [1 for _ in items],
            "train_mean_rating": [3.0 for _ in items],
            "popularity_rank": list(range(1, len(items) + 1)),
        },
        schema_overrides={"ratings": pl.Int64},
    )


THREE = splits((1, 10, "train"), (1, 20, "test"), (2, 10, "train"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


@pytest.fixture
def snapshot(store: Store) -> Snapshot:
    return store.commit(SPLITS, THREE, code_version="1")


def publish(store: Store, snapshot: Snapshot, *required: str, name: str = "movies") -> Release:
    return store.publish(
        name,
        {"splits": snapshot},
        world="sample",
        required={snapshot.dataset: required},
        card="# Card\n",
        settings={"splits": {"test": 0.1}},
        run_id="run-1",
    )


def test_a_release_pins_its_tables_checks_and_card(store: Store, snapshot: Snapshot) -> None:
    record = CheckRecord("keys", passed=True, kind="dbt", details={"rows": 3})
    store.record_checks(SPLITS, snapshot.version, [record])
    release = publish(store, snapshot, "keys")
    assert str(release) == f"movies@{release.version}"
    assert release.world == "sample"
    assert release.run_id == "run-1"
    assert release.settings == {"splits": {"test": 0.1}}
    assert release.snapshot("splits") == snapshot
    assert release.tables["splits"].rows == 3
    assert release.checks == {SPLITS: {"keys": record}}
    assert release.lineage == {SPLITS: snapshot.version}
    assert release.card() == "# Card\n"
    assert release.path == store.home / "releases" / f"{release}.json"
    with pytest.raises(ReleaseError, match=r"no table 'items'.*it has splits"):
        release.snapshot("items")


def test_a_release_is_found_by_every_kind_of_reference(store: Store, snapshot: Snapshot) -> None:
    release = publish(store, snapshot)
    for reference in (
        "movies",
        "movies@latest",
        "latest",
        f"movies@{release.version}",
        f"movies@{release.version[:4]}",
        release.path,
        str(release.path),
    ):
        assert store.release(reference) == release
    assert store.releases() == store.releases("movies") == [release]
    assert store.releases("books") == []


def test_unknown_releases_are_answered_with_what_there_is(store: Store, snapshot: Snapshot) -> None:
    for reference in ("movies", "latest", "movies@latest"):
        with pytest.raises(ReleaseError, match=r"no releases match.*understudy run"):
            store.release(reference)
    release = publish(store, snapshot)
    with pytest.raises(ReleaseError, match=f"no releases match 'movies@zz'.*published: {release}"):
        store.release("movies@zz")
    with pytest.raises(ReleaseError, match=f"no releases match 'books'.*{release}"):
        store.release("books")
    with pytest.raises(ReleaseError, match=r"no such release.*nowhere"):
        store.release("/nowhere/x.json")
    with pytest.raises(ReleaseError, match="not a release name"):
        store.release("Not A Name")


def test_a_lock_file_of_another_store_opens_with_that_stores_tables(
    store: Store, snapshot: Snapshot, tmp_path: Path
) -> None:
    release = publish(store, snapshot)
    opened = Store(tmp_path / "elsewhere").release(release.path)
    assert opened.snapshot("splits").read().equals(THREE)
    # A copied store is whole in its new place.
    shutil.copytree(store.home, tmp_path / "copy")
    assert Store(tmp_path / "copy").verify("movies").ok
    # A lock file that was copied alone needs the store.
    alone = shutil.copy(release.path, tmp_path / "movies.json")
    assert store.release(alone).snapshot("splits") == snapshot


def test_publishing_the_same_again_returns_the_first_and_moves_latest_back(store: Store) -> None:
    old = publish(store, store.commit(SPLITS, THREE, code_version="1"))
    new = publish(store, store.commit(SPLITS, THREE.head(1), code_version="1"))
    assert store.releases() == [old, new]
    assert store.release("movies") == new
    before = {f: f.read_bytes() for f in (store.home / "releases").iterdir()}
    again = publish(store, store.get(SPLITS, old.tables["splits"].version))
    assert again == old
    assert store.release("movies") == old
    assert {f: f.read_bytes() for f in (store.home / "releases").iterdir()} == before


def test_the_same_content_published_elsewhere_is_the_same_version(
    store: Store, snapshot: Snapshot, tmp_path: Path
) -> None:
    other = Store(tmp_path / "other")
    copy = other.commit(SPLITS, THREE.reverse(), code_version="9", run_id="x")
    assert publish(other, copy).version == publish(store, snapshot).version


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([], "movies.splits: keys did not run on"),
        ([CheckRecord("keys", passed=False)], "movies.splits: keys failed on"),
        (
            [CheckRecord("keys", passed=True), CheckRecord("other", passed=False, kind="dbt")],
            "movies.splits: other failed on",
        ),
    ],
    ids=["a required check did not run", "a required check failed", "another check failed"],
)
def test_a_refused_publish_leaves_latest_and_writes_nothing(
    store: Store, records: list[CheckRecord], reason: str
) -> None:
    good = publish(store, store.commit(SPLITS, THREE, code_version="1"))
    bad = store.commit(SPLITS, THREE.head(2), code_version="1")
    store.record_checks(SPLITS, bad.version, records)
    before = sorted(store.home.rglob("*"))
    with pytest.raises(ReleaseError, match="refused") as caught:
        publish(store, bad, "keys")
    assert caught.value.details["problems"] == [f"{reason} {bad.version}"]
    assert store.release("movies@latest") == good
    assert sorted(store.home.rglob("*")) == before


def test_checks_of_another_version_do_not_count(store: Store, snapshot: Snapshot) -> None:
    store.record_checks(SPLITS, snapshot.version, [CheckRecord("keys", passed=True)])
    publish(store, snapshot, "keys")
    newer = store.commit(SPLITS, THREE.head(2), code_version="1")
    with pytest.raises(ReleaseError, match=f"keys did not run on {newer.version}"):
        publish(store, newer, "keys")


def test_a_warning_does_not_block(store: Store, snapshot: Snapshot) -> None:
    warning = CheckRecord("drift", passed=False, severity="warn", kind="expectations")
    store.record_checks(SPLITS, snapshot.version, [warning])
    assert publish(store, snapshot, "drift").checks[SPLITS]["drift"] == warning


def test_a_newer_outcome_replaces_an_older_of_the_same_name(
    store: Store, snapshot: Snapshot
) -> None:
    store.record_checks(SPLITS, snapshot.version, [CheckRecord("keys", passed=False)])
    store.record_checks(SPLITS, snapshot.version, [CheckRecord("rows", passed=True)])
    store.record_checks(SPLITS, snapshot.version, [CheckRecord("keys", passed=True)])
    found = store.checks(SPLITS, snapshot.version)
    assert {n: c.passed for n, c in found.items()} == {"keys": True, "rows": True}
    assert store.checks(SPLITS, "0" * 16) == {}
    with pytest.raises(StoreError, match="no versions"):
        store.record_checks(SPLITS, "0" * 16, [])


def test_check_that_does_not_apply_is_stored_and_does_not_block(
    store: Store, snapshot: Snapshot
) -> None:
    store.record_checks(SPLITS, snapshot.version, [CheckRecord("keys", passed=None)])
    path = store.home / "checks" / SPLITS / f"{snapshot.version}.json"
    (stored,) = json.loads(path.read_text())["checks"]
    assert stored["status"] == "not applicable"
    release = publish(store, snapshot, "keys")
    assert release.checks[SPLITS]["keys"].passed is None
    assert store.release(str(release)) == release
    store.record_checks(SPLITS, snapshot.version, [CheckRecord("keys", passed=True)])
    assert publish(store, snapshot, "keys").version == release.version


def test_records_of_checks_without_status_are_read(store: Store, snapshot: Snapshot) -> None:
    store.record_checks(SPLITS, snapshot.version, [CheckRecord("keys", passed=False)])
    path = store.home / "checks" / SPLITS / f"{snapshot.version}.json"
    path.write_text(path.read_text().replace('"status": "failed"', '"passed": false'))
    assert store.checks(SPLITS, snapshot.version)["keys"].blocks


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"checks": [{"name": "a", "passed": true, "severity": "fatal"}]}']
)
def test_a_damaged_record_of_checks_is_named_and_stops_a_release(
    store: Store, snapshot: Snapshot, content: str
) -> None:
    store.record_checks(SPLITS, snapshot.version, [CheckRecord("keys", passed=True)])
    path = store.home / "checks" / SPLITS / f"{snapshot.version}.json"
    path.write_text(content)
    with pytest.raises(IntegrityError, match=f"record of checks is damaged: {path}"):
        store.checks(SPLITS, snapshot.version)
    with pytest.raises(IntegrityError, match=f"record of checks is damaged: {path}"):
        publish(store, snapshot, "keys")
    assert store.releases() == []


def test_checks_of_ancestors_count_and_can_be_required(store: Store) -> None:
    raw = store.commit("raw.tmdb_missing", missing(1), code_version="1")
    table = store.commit(SPLITS, THREE, code_version="1", inputs={"raw.tmdb_missing": raw.version})
    arguments = {"world": "w", "card": "c", "settings": {}}
    with pytest.raises(ReleaseError, match=r"raw\.tmdb_missing: rows did not run"):
        store.publish("m", {"s": table}, required={"raw.tmdb_missing": ["rows"]}, **arguments)
    store.record_checks("raw.tmdb_missing", raw.version, [CheckRecord("rows", passed=False)])
    with pytest.raises(ReleaseError, match=r"raw\.tmdb_missing: rows failed"):
        store.publish("m", {"s": table}, required={}, **arguments)
    store.record_checks("raw.tmdb_missing", raw.version, [CheckRecord("rows", passed=True)])
    release = store.publish("m", {"s": table}, required={"raw.tmdb_missing": ["rows"]}, **arguments)
    assert set(release.lineage) == {SPLITS, "raw.tmdb_missing"}
    with pytest.raises(ReleaseError, match=r"personas: checks are required.*nothing pinned uses"):
        store.publish("m", {"s": table}, required={"personas": ["x"]}, **arguments)


def missing(*ids: int) -> pl.DataFrame:
    return pl.DataFrame({"tmdb_id": list(ids), "reason": ["not_found" for _ in ids]})


def damage(file: Path) -> None:
    """Change one byte in the middle, keeping the size."""
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


def of_raw_files(store: Store) -> tuple[Release, Snapshot]:
    """A release over two steps: an original file, a raw snapshot, a table."""
    raw = store.commit(
        "raw.tmdb_missing", missing(1), code_version="1", inputs={"file:tmdb.json": "a" * 64}
    )
    table = store.commit(SPLITS, THREE, code_version="1", inputs={raw.dataset: raw.version})
    return publish(store, table), raw


def test_lineage_verification_reads_raw_snapshots(store: Store) -> None:
    release, raw = of_raw_files(store)
    report = store.verify(release, lineage=True)
    assert (report.ok, report.files, report.upstream, report.originals) == (True, 2, 1, 1)
    damage(*raw.files())
    assert store.verify(release).ok
    (problem,) = store.verify(release, lineage=True).problems
    assert str(raw.files()[0]) in problem


def test_lineage_verification_names_a_missing_upstream_snapshot(store: Store) -> None:
    release, raw = of_raw_files(store)
    shutil.rmtree(raw.path)
    (problem,) = store.verify(release, lineage=True).problems
    assert str(raw.path) in problem


def test_lineage_verification_finds_a_lost_build_record(store: Store) -> None:
    # A table is built twice with one result: only the record of the second build names its input.
    name = "raw.tmdb_missing"
    for rows in (missing(1), missing(1, 2)):
        raw = store.commit(name, rows, code_version="1")
        again = store.commit(SPLITS, THREE, code_version="1", inputs={name: raw.version})
    tables = {"splits": again, "missing": raw}
    release = store.publish("m", tables, world="w", required={}, card="c", settings={})
    assert store.verify(release, lineage=True).ok
    shutil.rmtree(store.home / "builds" / SPLITS)
    (problem,) = store.verify(release, lineage=True).problems
    assert f"no recorded build of {SPLITS}@{again.version}" in problem


def two_tables(store: Store, first_input: str, second_input: str) -> dict[str, Snapshot]:
    made = {"raw.tmdb_missing": first_input}, {"raw.tmdb_missing": second_input}
    return {
        "splits": store.commit(SPLITS, THREE, code_version="1", inputs=made[0]),
        "stats": store.commit(STATS, stats(10, 20), code_version="1", inputs=made[1]),
    }


def test_tables_made_from_different_versions_of_one_dataset_are_refused(store: Store) -> None:
    old = store.commit("raw.tmdb_missing", missing(1), code_version="1").version
    new = store.commit("raw.tmdb_missing", missing(1, 2), code_version="1").version
    arguments = {"world": "w", "required": {}, "card": "c", "settings": {}}
    with pytest.raises(ReleaseError, match=r"raw\.tmdb_missing has 2 versions") as caught:
        store.publish("m", two_tables(store, old, new), **arguments)
    for part in (old, new, f"used by {SPLITS}", f"used by {STATS}"):
        assert part in caught.value.details["problems"][0]
    # The splits are built again from the new input and come out the same: the snapshot keeps
    # its first manifest, and the record of the second build settles the lineage.
    tables = two_tables(store, new, new)
    assert tables["splits"].manifest.inputs == {"raw.tmdb_missing": old}
    release = store.publish("m", tables, **arguments)
    assert release.lineage["raw.tmdb_missing"] == new


def test_one_dataset_pinned_twice_must_be_one_version(store: Store) -> None:
    tables = {
        "a": store.commit(SPLITS, THREE, code_version="1"),
        "b": store.commit(SPLITS, THREE.head(1), code_version="1"),
    }
    with pytest.raises(ReleaseError, match=r"movies\.splits is pinned as"):
        store.publish("m", tables, world="w", required={}, card="c", settings={})


@pytest.mark.parametrize("name", ["latest", "Movies", "a/b", "", "a@b", "-a", "a" * 64])
def test_bad_release_names_are_refused(store: Store, snapshot: Snapshot, name: str) -> None:
    with pytest.raises(ReleaseError, match="not a release name"):
        publish(store, snapshot, name=name)


def test_corrupt_and_foreign_files_among_releases_are_left_out(
    store: Store, snapshot: Snapshot
) -> None:
    release = publish(store, snapshot)
    folder = store.home / "releases"
    (folder / "movies@0000000000000000.json").write_text("{")
    (folder / "notes.txt").write_text("mine")
    assert store.releases() == [release]
    with pytest.raises(IntegrityError, match=r"damaged.*movies@0000000000000000\.json"):
        store.release("movies@0000")


def test_a_damaged_latest_pointer_is_named_and_mended_by_publishing(
    store: Store, snapshot: Snapshot
) -> None:
    release = publish(store, snapshot)
    pointer = store.home / "refs" / "releases" / "movies.json"
    pointer.write_text("{")
    with pytest.raises(IntegrityError, match=r"refs/releases/movies\.json"):
        store.release("movies")
    assert publish(store, snapshot) == release
    assert store.release("movies") == release


# -- damage ------------------------------------------------------------------------------------


def test_changed_bytes_are_found_and_their_file_named(store: Store, snapshot: Snapshot) -> None:
    release = publish(store, snapshot)
    file = snapshot.files()[0]
    damage(file)
    with pytest.raises(IntegrityError, match=str(file)):
        snapshot.verify()
    report = store.verify("movies")
    assert not report.ok
    assert len(report.problems) == 1
    assert str(file) in report.problems[0]
    assert release.snapshot("splits").rows == 3  # opening is cheap and sees sizes only


def test_changed_bytes_are_not_published(store: Store, snapshot: Snapshot) -> None:
    good = publish(store, store.commit(SPLITS, THREE.head(1), code_version="1"))
    damage(snapshot.files()[0])
    with pytest.raises(IntegrityError, match=str(snapshot.files()[0])):
        publish(store, snapshot)
    assert store.release("movies") == good


def test_cut_missing_and_added_files_are_named(store: Store, snapshot: Snapshot) -> None:
    publish(store, snapshot)
    file = snapshot.files()[0]
    shutil.copy(file, snapshot.path / "part-99999.parquet")
    assert "never committed" in store.verify("movies").problems[0]
    (snapshot.path / "part-99999.parquet").unlink()
    file.chmod(0o644)
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    assert f"{len(whole) - 1:,} bytes, not {len(whole):,}" in store.verify("movies").problems[0]
    with pytest.raises(IntegrityError, match=str(file)):
        store.current(SPLITS)
    file.unlink()
    assert "missing" in store.verify("movies").problems[0]
    (snapshot.path / "_manifest.json").unlink()
    assert "no manifest" in store.verify("movies").problems[0]


@pytest.mark.parametrize("field", ["rows", "code_version", "inputs", "files", "version"])
def test_a_changed_manifest_is_found(store: Store, snapshot: Snapshot, field: str) -> None:
    publish(store, snapshot)
    path = snapshot.path / "_manifest.json"
    content = json.loads(path.read_bytes())
    content[field] = {"rows": 4, "code_version": "2", "inputs": {"a": "b"}}.get(
        field, [] if field == "files" else "0" * 16
    )
    path.chmod(0o644)
    path.write_text(json.dumps(content))
    with pytest.raises(IntegrityError, match=f"changed after it was written.*{path}"):
        store.current(SPLITS)
    with pytest.raises(IntegrityError, match=str(path)):
        snapshot.verify()
    assert str(path) in store.verify("movies").problems[0]


def test_a_manifest_rewritten_with_a_fitting_digest_is_not_the_released_one(
    store: Store, snapshot: Snapshot
) -> None:
    publish(store, snapshot)
    path = snapshot.path / "_manifest.json"
    path.chmod(0o644)
    path.write_bytes(replace(snapshot.manifest, code_version="forged").to_json())
    assert store.current(SPLITS).manifest.code_version == "forged"
    with pytest.raises(IntegrityError, match="not the one that was released"):
        store.release("movies").snapshot("splits")


def test_a_changed_lock_file_or_card_is_found(store: Store, snapshot: Snapshot) -> None:
    release = publish(store, snapshot)
    card = release.path.with_name(f"{release}.md")
    card.write_text("# Other\n")
    assert str(card) in store.verify("movies").problems[0]
    with pytest.raises(IntegrityError, match=str(card)):
        release.card()
    release.path.chmod(0o644)
    release.path.write_text(release.path.read_text().replace('"sample"', '"real"'))
    with pytest.raises(IntegrityError, match=f"changed after it was published: {release.path}"):
        store.release("movies")


# -- differences -------------------------------------------------------------------------------


def test_a_difference_counts_rows_by_key_and_names_some(store: Store) -> None:
    before = splits(*((1, i, "train") for i in range(10, 30)), (2, 10, "test"))
    after = splits(*((1, i, "train") for i in range(17, 30)), (2, 10, "train"), (3, 1, "test"))
    a = publish(store, store.commit(SPLITS, before, code_version="1"))
    b = publish(store, store.commit(SPLITS, after, code_version="1"))
    diff = store.diff(a, "movies@latest")
    table = diff.tables["splits"]
    assert not diff.same
    assert (diff.a, diff.b) == (str(a), str(b))
    assert (table.status, table.rows_before, table.rows_after) == ("changed", 21, 15)
    assert (table.rows_added, table.rows_removed, table.rows_changed) == (1, 7, 1)
    assert table.samples == {
        "added": [{"user_id": "ml-user:3", "item_id": "ml:1"}],
        "removed": [{"user_id": "ml-user:1", "item_id": f"ml:{i}"} for i in range(10, 15)],
        "changed": [{"user_id": "ml-user:2", "item_id": "ml:10"}],
    }
    assert (table.columns_added, table.columns_removed, table.columns_retyped) == ((), (), ())


def test_a_difference_measures_shifts_of_columns(store: Store) -> None:
    def rows(mean: float, words: str) -> Release:
        frame = stats(*range(100)).with_columns(mean_rating=pl.int_range(100) / 50 + mean)
        parts = splits(*((1, i, {"a": "train", "b": "test"}[w]) for i, w in enumerate(words)))
        tables = {
            "stats": store.commit(STATS, frame, code_version="1"),
            "splits": store.commit(SPLITS, parts, code_version="1"),
        }
        return store.publish("m", tables, world="w", required={}, card="", settings={})

    a, b = rows(1.0, "aabb"), rows(1.5, "abbb")
    tables = store.diff(a, b).tables
    (part,) = tables["splits"].shifts
    assert (part.column, part.bins) == ("split", ("test", "train"))
    assert (part.before, part.after) == ((0.5, 0.5), (0.75, 0.25))
    # (3/4 - 1/2) ln(3/2) + (1/4 - 1/2) ln(1/2) = 0.25 ln 3
    assert part.psi == pytest.approx(0.25 * math.log(3))
    assert part.wasserstein is None
    shifts = {s.column: s for s in tables["stats"].shifts}
    mean = shifts["mean_rating"]
    assert mean.wasserstein == pytest.approx(0.5, abs=0.02)
    assert (mean.mean_before, mean.mean_after) == (pytest.approx(1.99), pytest.approx(2.49))
    assert len(mean.bins) == 10
    assert mean.before == pytest.approx([0.1] * 10, abs=0.02)
    # A quarter of a range of two moves out of the two lowest bins and a half, past the last edge.
    assert mean.after[0] == mean.after[1] == 0
    assert mean.after[-1] == pytest.approx(0.35, abs=0.02)
    assert shifts["ratings"].psi == 0
    assert tables["stats"].shifts[0] == mean


def test_a_difference_names_what_caused_it_furthest_upstream(store: Store) -> None:
    def made(*items: int, file: str, code: str = "1", limit: int = 5) -> Release:
        above = store.commit(STATS, stats(*items), code_version="1", inputs={"file:a.csv": file})
        below = store.commit(
            SPLITS,
            splits(*((limit, i, "train") for i in items), (int(code), 1, "test")),
            code_version=code,
            config={"deep": {"limit": limit}},
            inputs={STATS: above.version},
        )
        return store.publish("m", {"splits": below}, world="w", required={}, card="", settings={})

    first = made(1, 2, file="f" * 64)
    other_file = made(1, 3, file="e" * 64)
    (cause,) = store.diff(first, other_file).tables["splits"].causes
    assert cause == f"file:a.csv {'f' * 16} → {'e' * 16}"
    setting = made(1, 2, file="f" * 64, limit=7)
    assert store.diff(first, setting).tables["splits"].causes == (
        "movies.splits: deep.limit 5 → 7",
    )
    code = made(1, 2, file="f" * 64, code="2")
    assert store.diff(first, code).tables["splits"].causes == ("movies.splits: code 1 → 2",)


def test_releases_of_different_domains_are_compared_on_demand_only(
    store: Store, snapshot: Snapshot
) -> None:
    movies = publish(store, snapshot)
    books = store.publish(
        "books", {"splits": store.commit("books.splits", THREE.head(0), code_version="1",
                                         allow_empty=True)},
        world="w", required={}, card="", settings={},
    )  # fmt: skip
    with pytest.raises(ReleaseError, match=r"different domains.*--force"):
        store.diff(movies, books)
    assert store.diff(movies, books, force=True).tables["splits"].status == "changed"


def test_a_release_does_not_differ_from_itself(store: Store, snapshot: Snapshot) -> None:
    release = publish(store, snapshot)
    diff = store.diff(release, release)
    assert diff.same
    assert diff.tables["splits"].rows_changed == 0


def test_tables_that_come_and_go_are_named(store: Store, snapshot: Snapshot) -> None:
    arguments = {"world": "w", "required": {}, "card": "c", "settings": {}}
    other = store.commit(STATS, stats(1), code_version="1")
    a = store.publish("m", {"splits": snapshot}, **arguments)
    b = store.publish("m", {"stats": other}, **arguments)
    tables = store.diff(a, b).tables
    assert (tables["splits"].status, tables["splits"].after) == ("removed", None)
    assert (tables["stats"].status, tables["stats"].rows_after) == ("added", 1)


def test_columns_that_come_go_or_change_type_are_named(store: Store) -> None:
    import pandera.polars as pa_polars

    from pipelines.contracts import Contract

    class Old(pa_polars.DataFrameModel):
        key: pl.Int64
        value: pl.Int64
        gone: pl.String
        kept: pl.String = pa_polars.Field(nullable=True)

    class New(pa_polars.DataFrameModel):
        key: pl.Int64
        value: pl.Float64
        kept: pl.String = pa_polars.Field(nullable=True)
        came: pl.String

    def commit(frame: pl.DataFrame, model: type, key: tuple[str, ...]) -> Release:
        contract = Contract("t", model, key, ("key",))
        snapshot = store.commit("t", frame, code_version="1", contract=contract)
        return store.publish("m", {"t": snapshot}, world="w", required={}, card="", settings={})

    first = pl.DataFrame({"key": [1, 2], "value": [1, 2], "gone": ["", ""], "kept": ["a", None]})
    second = first.select(
        "key", pl.col("value").cast(pl.Float64), pl.lit("b").alias("kept"), came=pl.lit("")
    )
    a, b = commit(first, Old, ("key",)), commit(second, New, ("key",))
    table = store.diff(a, b).tables["t"]
    assert table.columns_added == ("came",)
    assert table.columns_removed == ("gone",)
    assert table.columns_retyped == ("value",)
    assert (table.rows_added, table.rows_removed, table.rows_changed) == (0, 0, 2)
    c = commit(second.with_columns(came=pl.lit("x")), New, ("key", "came"))
    assert store.diff(b, c).tables["t"].rows_added is None
