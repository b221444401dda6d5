"""Wheel and sdist hold the whole program: it runs from an empty folder, outside the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from sim import open_release

pytestmark = [pytest.mark.slow, pytest.mark.integration]

#: Git's tracked files are copied, so that a build leaves nothing in the checkout.
_BUILD = (
    "import sys; from setuptools import build_meta as b; print(getattr(b, sys.argv[1])('dist'))"
)


def build(kind: str, source: Path) -> Path:
    """Build a distribution of a source folder; its file."""
    done = subprocess.run(
        [sys.executable, "-c", _BUILD, f"build_{kind}"],
        cwd=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return source / "dist" / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    source = tmp_path_factory.mktemp("checkout")
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repository, capture_output=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (repository / name).is_file():
            target = source / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(repository / name, target)
    return build("sdist", source)


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the sdist makes."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return build("wheel", source)


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`understudy` of a fresh environment that has the wheel, and this one's other packages."""
    folder = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", folder, "install", "--quiet", "--no-deps",
         "--no-index", "--disable-pip-version-check", wheel],
        check=True,
    )  # fmt: skip
    # Behind the wheel's own packages on the path; the checkout is not on it.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "understudy"


def test_wheel_holds_dbt_project_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "orchestration/dbt/dbt_project.yml" in names
    assert any(name.startswith("orchestration/dbt/models/marts/") for name in names)
    assert "orchestration/workspace.yaml" in names
    assert "understudy/__init__.py" in names
    tops = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"understudy", "pipelines", "sim", "orchestration"}
    assert not [name for name in names if "/target/" in name]


def test_installed_program_publishes_from_an_empty_folder(program: Path, tmp_path: Path) -> None:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("UNDERSTUDY_", "PYTHON"))}
    env = clean | {
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": "1",
        "PATH": f"{program.parent}:{Path(sys.executable).parent}:{clean['PATH']}",
    }
    empty = tmp_path / "empty"
    empty.mkdir()
    settings = ("personas.count=6", "world.sample.films=30", "world.sample.users=40",
                "world.sample.ratings=700", "scoring.max_pairs=60")  # fmt: skip
    done = subprocess.run(
        [program, "run", "--job", "movies", *(w for s in settings for w in ("--set", s))],
        cwd=empty, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert open_release("movies@latest", home=empty / ".understudy").domain == "movies"
    where = "import orchestration; print(orchestration.__file__)"
    python = program.with_name("python")
    shown = subprocess.run(
        [python, "-c", where], cwd=empty, env=env, capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith(str(program.parents[1]))
