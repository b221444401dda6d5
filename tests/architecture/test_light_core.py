"""The core needs few packages, reads releases with them, and names the extra of what it lacks."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from support.core_only import CORE, in_core

import understudy
from pipelines.errors import MissingPackageError
from pipelines.extras import extra_of, missing_package


def test_core_has_at_most_ten_dependencies(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    names = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}  # type: ignore[index]
    assert len(names) <= 10
    assert not names & {"torch", "dagster", "dbt-core", "transformers"}


def test_every_extra_is_part_of_all(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert set(extras) == {
        "env",
        "pipeline",
        "models",
        "tune",
        "train",
        "agents",
        "s3",
        "cluster",
        "all",
        "dev",
        "docs",
        "ui",
    }
    assert extras["all"] == ["understudy-recsys[pipeline,models,tune,train,agents,s3,cluster]"]


@pytest.mark.pipeline
def test_core_reads_a_release(repository: Path, tmp_path: Path) -> None:
    from support import small_release

    small_release.build(tmp_path)
    code = f"""
import understudy
release = understudy.open_release("movies@latest", home={str(tmp_path)!r})
assert release["items"].polars().height == release["items"].arrow().num_rows == 24
assert release["items"].lazy().collect().height == 24
release.verify()
print(release.card.splitlines()[0])
"""
    done = in_core(code, repository)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("#")


@pytest.mark.pipeline
def test_environment_needs_gymnasium_and_scipy_alone(repository: Path, tmp_path: Path) -> None:
    from support import small_release

    small_release.build(tmp_path)
    code = f"""
import understudy
env = understudy.RecommendationEnv("movies@latest", home={str(tmp_path)!r})
env.reset(seed=0)
print(env.step(3)[4]["rating_status"])
"""
    done = in_core(code, repository, "gymnasium", "cloudpickle", "farama_notifications", "scipy")
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@pytest.mark.pipeline
@pytest.mark.parametrize(
    ("code", "extra"),
    [
        ("import understudy; understudy.RecommendationEnv", "env"),
        ("import understudy; understudy.train", "train"),
        ("import sim._release as r; r.Table('items', None).duckdb()", "env"),
        ("from pipelines.__main__ import main; main()", "env"),
    ],
)
def test_missing_package_names_its_extra(code: str, extra: str, repository: Path) -> None:
    done = in_core(code, repository)
    assert done.returncode != 0
    assert f"pip install 'understudy-recsys[{extra}]'" in done.stderr.splitlines()[-1]


def test_every_imported_package_has_an_extra(repository: Path) -> None:
    ours = {"pipelines", "sim", "orchestration", "understudy"}
    files = [file for top in ours for file in (repository / top).rglob("*.py")]
    line = re.compile(r"^ *(?:from (\w+)[\w.]* import |import (\w+)[\w.]*(?: as \w+)?$)", re.M)
    modules = {a or b for file in files for a, b in line.findall(file.read_text("utf-8"))}
    imported = modules - ours - CORE - set(sys.stdlib_module_names)
    # vLLM has an environment of its own; contracts for others' tests are run by pytest.
    assert {name for name in imported if extra_of(name) is None} == {"vllm", "pytest"}


def test_missing_package_is_an_import_error_too() -> None:
    error = missing_package(ModuleNotFoundError("no", name="dagster.core"), where="here")
    assert isinstance(error, ImportError)
    expected = (
        "the package dagster is not installed: here (pip install 'understudy-recsys[pipeline]')"
    )
    assert str(error) == expected


def test_facade_offers_what_it_lists() -> None:
    assert {name for name in understudy.__all__ if getattr(understudy, name, None) is None} == set()
    assert set(understudy.__all__) <= set(dir(understudy))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        understudy.nothing  # noqa: B018
    with pytest.raises(MissingPackageError):
        raise missing_package(ModuleNotFoundError("no", name="torch"), where="x")
