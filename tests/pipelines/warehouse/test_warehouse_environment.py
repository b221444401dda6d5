from __future__ import annotations

import os
import re
from pathlib import Path

import duckdb
import polars as pl
import pytest

from pipelines.config import Settings, load_settings
from pipelines.warehouse import dbt_environment, dbt_vars
from pipelines.warehouse._folder import sql_glob

PROJECT = Path(__file__).resolve().parents[3] / "dbt"


def test_every_variable_that_dbt_reads_is_given(tmp_path: Path) -> None:
    text = "".join(
        f.read_text(encoding="utf-8")
        for pattern in ("*.yml", "models/**/*", "macros/*")
        for f in PROJECT.glob(pattern)
        if f.is_file()
    )
    asked = set(re.findall(r"env_var\('(\w+)'", text))
    assert "WAREHOUSE_FILE" in asked
    assert asked <= set(dbt_environment(Settings(runtime={"home": tmp_path})))


def test_paths_are_absolute_and_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    environment = dbt_environment(Settings(runtime={"home": Path("home"), "threads": 3}))
    assert environment["UNDERSTUDY_HOME"] == str(tmp_path / "home")
    assert Path(environment["WAREHOUSE_FILE"]).parent.is_dir()
    assert Path(environment["DBT_TARGET_PATH"]).is_dir()
    assert environment["WAREHOUSE_THREADS"] == "3"
    assert environment["WAREHOUSE_MEMORY_LIMIT"] == "4096MiB"


def test_a_process_with_these_variables_can_still_load_its_settings(tmp_path: Path) -> None:
    environment = dbt_environment(Settings(runtime={"home": tmp_path}))
    assert load_settings(environ=environment).runtime.home == tmp_path


def test_every_dbt_variable_has_the_default_of_the_settings() -> None:
    import yaml

    project = yaml.safe_load((PROJECT / "dbt_project.yml").read_text(encoding="utf-8"))
    assert project["vars"] == dbt_vars(Settings())


@pytest.mark.parametrize(("rows", "jobs"), [(0, "4"), (8_388_608, "4"), (8_388_609, "1")])
def test_models_are_built_one_by_one_where_one_would_fill_the_memory(
    tmp_path: Path, rows: int, jobs: str
) -> None:
    """A join takes 64 bytes a row: 8,388,608 of them fill a limit of 512 MiB."""
    table = tmp_path / "version"
    table.mkdir()
    for part, count in enumerate((rows // 2, rows - rows // 2)):
        frame = pl.select(rating=pl.repeat(1, count, dtype=pl.Int8))
        frame.write_parquet(table / f"part-{part}.parquet")
    sources = tmp_path / "home" / "warehouse" / "sources"
    sources.mkdir(parents=True)
    (sources / "movielens_ratings").symlink_to(table)
    settings = Settings(runtime={"home": tmp_path / "home", "memory_limit_mb": 512})
    assert dbt_environment(settings)["WAREHOUSE_JOBS"] == jobs


@pytest.mark.parametrize("name", ["plain", "a b", "o'h", "[x]", "a*b?", "{y}", "(z)"])
def test_any_home_can_be_read_through_a_glob(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (tmp_path / "x").mkdir()
    for place, value in ((folder, 1), (tmp_path / "x", 2)):
        file = str(place / "0.parquet").replace("'", "''")
        duckdb.sql(f"copy (select {value} as n) to '{file}'")
    found = duckdb.sql(f"from read_parquet('{sql_glob(folder)}/*.parquet')").fetchall()
    assert found == [(1,)]


def test_the_parent_environment_is_not_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMDB_TOKEN", "secret")
    given = dbt_environment(Settings(runtime={"home": tmp_path}, tmdb={"token": "secret"}))
    assert "secret" not in given.values()
    assert len(given) < len(os.environ)
