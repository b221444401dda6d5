"""`understudy run` on the sample world: from generated files to a published release."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.fork_server import ForkServer
from support.running import published_options, run_understudy

from pipelines.store import Store
from sim import open_release

pytestmark = pytest.mark.pipeline

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(forked: ForkServer, published_home: Path, word_encoder: Path) -> Run:
    words = ("run", "--home", str(published_home), "--json", *published_options(word_encoder))

    def call(*args: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        return forked.run(*words, *args, **kwargs)

    return call


@pytest.fixture
def first(published_home: Path) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads((published_home / "run.json").read_text())
    return payload


@pytest.fixture
def truth(published_home: Path) -> dict[str, Any]:
    """The answer key of the world."""
    (world,) = (published_home / "worlds").glob("sample-*/sample_world.json")
    answer: dict[str, Any] = json.loads(world.read_text())
    return answer


def _bytes_of(home: Path) -> dict[Path, int]:
    return {p: p.stat().st_mtime_ns for p in (home / "data").rglob("*") if p.is_file()}


def test_the_published_counts_are_those_that_were_generated(published_home: Path) -> None:
    release = open_release("movies@latest", home=published_home, verify=True)
    assert release["items"].rows == 300
    assert release["human_users"].rows == 200
    assert release["interactions"].rows == 20_000
    assert release["splits"].rows == 20_000


RATINGS = "movielens/sample/ratings.csv"


def test_every_broken_row_is_listed_with_its_file_and_line(
    published_home: Path, truth: dict[str, Any]
) -> None:
    store = Store(published_home)
    tables = [name for name in store.datasets() if name.endswith("_rejected")]
    listed = pl.concat([store.current(name).read() for name in tables])
    found = {(Path(r["file"]).name, r["line"], r["reason"]) for r in listed.to_dicts()}
    expected = {
        (Path(b["file"]).name, b["line"], b["reason"])
        for b in truth["broken"]
        # An older rating of a film is counted, and not rejected.
        if b.get("rejected", True) and (b["reason"], b["file"]) != ("duplicate_key", RATINGS)
    }
    assert expected <= found


def test_rejected_rows_are_in_result_and_card(
    published_home: Path, first: dict[str, Any], truth: dict[str, Any]
) -> None:
    rejected = {entry["file"]: entry["rejected"] for entry in first["rejected"]}
    store = Store(published_home)
    tables = [name for name in store.datasets() if name.endswith("_rejected")]
    assert sum(rejected.values()) == sum(store.current(name).rows for name in tables)
    broken = {Path(b["file"]).name for b in truth["broken"] if b.get("rejected", True)}
    assert broken <= {Path(file).name for file in rejected}
    ratings = next(entry for entry in first["rejected"] if entry["file"].endswith("ratings.csv"))
    assert ratings["share"] == ratings["rejected"] / ratings["rows"]
    counts = f"{ratings['rejected']} of {ratings['rows']:,} rows rejected"
    card = store.release("movies@latest").card()
    assert counts in card.partition("\n## ")[0]
    assert f"line {ratings['first'][0]['line']} " in card
    assert counts not in store.release("games@latest").card()


def test_features_are_counted_as_generated(published_home: Path, first: dict[str, Any]) -> None:
    items = open_release("movies@latest", home=published_home)["items"].polars()
    # A film that is linked to another's record shows that record's features as well.
    shared = 1
    assert items["has_tmdb"].sum() == 284 + shared
    assert items["overview"].count() == 264 + shared
    with_cast = items.filter(pl.col("actors").list.len() > 0).height
    with_director = items.filter(pl.col("directors").list.len() > 0).height
    assert with_cast == 274 + shared
    assert with_director == 271 + shared
    shown = first["releases"][0]["summary"]["items_with"]
    assert (shown["plot"], shown["cast"], shown["director"]) == (
        items["overview"].count(),
        with_cast,
        with_director,
    )


def test_a_second_run_publishes_the_same_version_writes_nothing_new_and_keeps_secrets(
    published_home: Path, run: Run, first: dict[str, Any]
) -> None:
    token = "tok-8f3b2c-never-stored"
    before = _bytes_of(published_home)
    result = run(env={"TMDB_TOKEN": token})
    assert result.returncode == 0, result.stdout + result.stderr
    releases = json.loads(result.stdout)["releases"]
    # Drift has no earlier release at the first run: these checks apply from the second run on.
    for again, once in zip(releases, first["releases"], strict=True):
        counts, earlier = again["summary"].pop("checks"), dict(once["summary"]["checks"])
        assert counts["passed"] + counts["not_applicable"] == (
            earlier["passed"] + earlier["not_applicable"]
        )
        assert counts["not_applicable"] <= earlier["not_applicable"]
        for name in ("failed", "warned", "failing"):
            assert counts[name] == earlier[name]
        rest = {k: v for k, v in once["summary"].items() if k != "checks"}
        assert again == once | {"summary": rest}
    assert _bytes_of(published_home) == before
    assert token not in result.stdout + result.stderr
    for path in published_home.rglob("*"):
        if path.is_file():
            assert token.encode() not in path.read_bytes(), path


def test_a_failing_blocking_check_stops_the_release_even_when_it_is_run_by_hand(
    published_home: Path, forked: ForkServer, word_encoder: Path, tmp_path: Path
) -> None:
    (world,) = (published_home / "worlds").glob("sample-*")
    for name in ("movielens", "tmdb"):
        shutil.copytree(world / name, tmp_path / "data" / name)
    home = tmp_path / "home"
    options = (*published_options(word_encoder), "--set", "personas.count=20")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        files = ("--home", str(home), "--data", str(tmp_path / "data"))
        return forked.run("run", *files, "--json", *options, *words)

    result = run("--job", "movies")
    assert result.returncode == 0, result.stdout + result.stderr
    latest = Store(home).release("movies@latest").version
    # The check fails: exit code 4, and the failing check is named.
    (films,) = (tmp_path / "data/movielens").rglob("movies.csv")
    text = films.read_text("utf-8")
    films.write_text(re.sub(r",[^,\n]*$", ",(no genres listed)", text, flags=re.M), "utf-8")
    films.write_text(films.read_text("utf-8").replace("title,(no genres listed)", "title,genres"))
    result = run("--job", "movies")
    assert result.returncode == 4, result.stderr
    assert "movies/items: genre_coverage" in json.loads(result.stdout)["error"]["where"]
    # A run of the release alone is refused, with the reason.
    result = run("--select", "releases/movies")
    assert result.returncode == 6, result.stderr
    assert "genre_coverage" in json.loads(result.stdout)["error"]["what"]
    assert Store(home).release("movies@latest").version == latest
    # With the file as it was the same version passes and is published again.
    films.write_text(text, "utf-8")
    result = run("--job", "movies")
    assert result.returncode == 0, result.stderr
    assert Store(home).release("movies@latest").version == latest


def test_an_unknown_source_names_the_known_ones(run: Run) -> None:
    result = run("--source", "ml-26m")
    assert result.returncode == 2
    assert "ml-latest-small" in json.loads(result.stdout)["error"]["what"]


def test_two_runs_at_once_are_one_run_and_one_clear_error(published_home: Path, run: Run) -> None:
    with Store(published_home).run_lock():
        result = run()
    assert result.returncode == 5
    assert "another" in json.loads(result.stdout)["error"]["what"].lower()


def test_card_and_command_count_checks_alike(published_home: Path, forked: ForkServer) -> None:
    found = json.loads(
        forked.run("release", "show", "movies", "--home", str(published_home), "--json").stdout
    )
    checks = found["checks"]
    warned = sum(failure["severity"] == "warn" for failure in checks["failures"])
    assert checks["warned"] == warned
    assert (
        f"Checks: {checks['passed']} passed, {checks['failed']} failed, {warned} warned, "
        f"{checks['not_applicable']} not applicable."
    ) in found["card"].splitlines()


def test_films_alone_without_avx512_are_the_films_of_a_run_of_everything(
    published_home: Path, word_encoder: Path, understudy: Path, tmp_path: Path
) -> None:
    # Other kernels of the C library, and other numbers of threads, must give the same bytes.
    other = {
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW",
        "OMP_NUM_THREADS": "3",
        "POLARS_MAX_THREADS": "3",
    }
    options = ("--home", str(tmp_path / "home"), *published_options(word_encoder))
    done = run_understudy(understudy, "run", "--job", "movies", *options, env=other)
    assert done.returncode == 0, done.stderr
    (movies, *_) = json.loads((published_home / "run.json").read_text())["releases"]
    whole = open_release(movies["release"], home=published_home)
    alone = open_release("movies@latest", home=tmp_path / "home")
    assert {name: table.version for name, table in alone.items()} == {
        name: table.version for name, table in whole.items()
    }
    assert alone.version == whole.version
