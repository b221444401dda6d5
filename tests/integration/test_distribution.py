"""Wheel and sdist hold the whole program: it runs from an empty folder, outside the checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest
from support import small_release

from sim import open_release

pytestmark = pytest.mark.pipeline

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
    assert "understudy/__init__.py" in names
    assert any(name.startswith("pipelines/sample_release/data/movies.items/") for name in names)
    assert wheel.name.startswith("understudy_recsys-")
    (metadata,) = (name for name in names if name.endswith("/entry_points.txt"))
    scripts = zipfile.ZipFile(wheel).read(metadata).decode().split("[console_scripts]\n")[1]
    assert scripts.split("\n\n")[0].split() == ["understudy", "=", "pipelines.__main__:main"]
    tops = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"understudy", "pipelines", "sim", "orchestration"}
    assert not [name for name in names if "/target/" in name]


#: Options of a run that publishes a small world of films.
SMALL = (
    *("--job", "movies", "--set", "personas.count=6", "--set", "world.sample.films=30"),
    *("--set", "world.sample.users=40", "--set", "world.sample.ratings=700"),
    *("--set", "scoring.max_pairs=60"),
)


class NewUser:
    """Somebody with an empty home, an empty cache and a fresh environment, in an empty folder.

    The environment has the wheel, and for time's sake this one's other packages.
    """

    def __init__(self, program: Path, folder: Path) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("UNDERSTUDY_", "PYTHON"))}
        self.env = clean | {
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "HF_HUB_OFFLINE": "1",
            "PATH": f"{program.parent}:{Path(sys.executable).parent}:{clean['PATH']}",
        }
        self.folder = folder / "empty"
        self.folder.mkdir()

    def types(self, *words: str) -> str:
        """Run a program; its output."""
        done = subprocess.run(
            words, cwd=self.folder, env=self.env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def new_user(program: Path, tmp_path_factory: pytest.TempPathFactory) -> NewUser:
    """A new user who has published a small world."""
    user = NewUser(program, tmp_path_factory.mktemp("new-user"))
    user.types("understudy", "run", *SMALL)
    return user


def test_installed_program_publishes_from_an_empty_folder(new_user: NewUser, program: Path) -> None:
    assert open_release("movies@latest", home=new_user.folder / ".understudy").domain == "movies"
    where = new_user.types("python", "-c", "import orchestration; print(orchestration.__file__)")
    assert where.startswith(str(program.parents[1]))


def test_new_user_follows_the_readme_to_a_trained_recommender(
    new_user: NewUser, repository: Path, program: Path
) -> None:
    new_user.types("git", "clone", "--quiet", "--depth", "1", f"file://{repository}", "understudy")
    clone = new_user.folder / "understudy"
    readme = (clone / "README.md").read_text("utf-8")
    assert "understudy && cd understudy\n$ make run\n" in readme
    # `make` finds its environment installed; the run finds the tables of the run before.
    (clone / ".venv").symlink_to(program.parents[1])
    (program.parents[1] / ".installed").touch()
    said = new_user.types(
        *("make", "-C", "understudy", "run", f"HOME_DIR={new_user.folder / '.understudy'}"),
        f"ARGS={' '.join(SMALL)}",
    )
    assert "Published movies@" in said
    lines = re.findall(r"^\$ (understudy (?:episode|release|status|answers) [^#<\n]*?) *(?:#.*)?$",
                       readme, re.MULTILINE)  # fmt: skip
    assert len(lines) >= 4
    for line in lines:
        assert new_user.types(*line.split())
    pages = readme + (clone / "docs/training.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", pages, re.MULTILINE | re.DOTALL)
    code = "\n".join(blocks).replace("steps=100_000", "steps=2_000")
    assert "steps=2_000" in code
    shown = new_user.types("python", "-c", code)
    assert "| a2c |" in shown
    assert (new_user.folder / "training" / "seed-0" / "policy.safetensors").is_file()


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of a fresh environment into which uv has installed the wheel without extras."""
    folder = tmp_path_factory.mktemp("core") / "venv"
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    python = folder / "bin" / "python"
    done = subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", python, wheel],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "error sending request" in done.stderr or "dns error" in done.stderr:
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    return python


def test_core_installed_by_uv_reads_a_release(core: Path, tmp_path: Path) -> None:
    small_release.build(tmp_path / "home")
    code = """
import sys, importlib.metadata, understudy
release = understudy.open_release("movies@latest", home="home")
release.verify()
print(release["personas"].polars().height, sum(1 for _ in importlib.metadata.distributions()))
try:
    understudy.RecommendationEnv
except ImportError as error:
    print(error)
print([name for name in ("torch", "dagster", "dbt", "pandas") if name in sys.modules])
"""
    done = subprocess.run([core, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    counts, missing, heavy = done.stdout.splitlines()
    personas, packages = map(int, counts.split())
    assert personas == 6
    assert packages <= 20
    assert missing.endswith("(pip install 'understudy-recsys[env]')")
    assert heavy == "[]"


def test_command_of_the_core_names_the_extra(core: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [core.with_name("understudy"), "status"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.strip().endswith("(pip install 'understudy-recsys[env]')")
