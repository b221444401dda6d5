"""A folder that may not be read is an error that names it, for every source: never an absence."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from pipelines.sources import SOURCES

#: The folder of each source in a data folder, and a file of it.
PLACES = {
    "movielens": "movielens/ml-1m/movies.dat",
    "tmdb": "tmdb/movies.jsonl",
    "steam": "steam/steam_games.json",
    "amazon": "amazon/2018/Books.json",
    "taxonomy": "taxonomy/tree.txt",
    "own": "own/items.csv",
    "persona_files": "personas/a.txt",
}

EXPECTED = {
    "movielens": "movielens/ml-latest-small.zip",
    "tmdb": "movies.jsonl.gz",
    "steam": "steam_games.json.gz",
    "amazon": "amazon/2018/<Category>.json.gz",
    "taxonomy": "one file that ends in .txt",
    "own": "items, ratings and users as .csv",
    "persona_files": "files that end in",
}

#: Another user than the one who made the folder looks for files: root may read everything.
CODE = """
import os, sys
from pathlib import Path
from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.sources import open_source
name, folder = sys.argv[1], Path(sys.argv[2])
settings = Settings(world={"folder": folder}, runtime={"home": folder / "home"})
source = open_source(name, settings)
try: source.files(folder / "elsewhere")  # everything is imported before rights are given up
except SourceError: pass
if os.geteuid() == 0: os.seteuid(65534)
for look in (source.present, source.feeds, source.files):
    try: print("found", look(folder))
    except SourceError as error: print("refused", error)
"""

READ_FIRST = """
from pipelines.sources._files import sha256_of
def read_first(folder):
    return [sha256_of(path) for path in source.files(folder)]
"""


def test_every_source_has_a_place() -> None:
    assert set(PLACES) == set(SOURCES)


@pytest.mark.pipeline
@pytest.mark.parametrize("mode", [0o000, 0o444], ids=["closed", "listed but not entered"])
@pytest.mark.parametrize("name", PLACES)
def test_a_closed_folder_is_named_and_is_no_absent_source(name: str, mode: int) -> None:
    # Not pytest's folders: those are closed to other users.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, PLACES[name])
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x\n")
        closed = Path(folder, Path(PLACES[name]).parts[0])
        closed.chmod(mode)
        command = [sys.executable, "-c", CODE, name, folder]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        closed.chmod(0o755)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    refused = [line for line in lines if line.startswith("refused")]
    assert refused, lines
    assert lines[-1].startswith("refused"), lines
    for line in refused:
        assert "can't be read (Permission denied)" in line
        assert str(closed) in line
        assert f"expected {EXPECTED[name]}" in line


#: Folders below a source's, and a file in each.
INNER = {
    "movielens": "movielens/ml-1m/movies.dat",
    "amazon": "amazon/2023/Books.jsonl",
}


@pytest.mark.pipeline
@pytest.mark.parametrize("mode", [0o000, 0o444], ids=["closed", "listed but not entered"])
@pytest.mark.parametrize("name", INNER)
def test_closed_inner_folder_is_named(name: str, mode: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, INNER[name])
        file.parent.mkdir(parents=True)
        file.write_bytes(b"x\n")
        file.parent.chmod(mode)
        command = [sys.executable, "-c", CODE, name, folder]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        file.parent.chmod(0o755)
    assert result.returncode == 0, result.stderr
    last = result.stdout.splitlines()[-1]
    assert last.startswith("refused the folder can't be read (Permission denied)"), result.stdout
    assert str(file.parent) in last


@pytest.mark.pipeline
@pytest.mark.parametrize("name", PLACES)
def test_closed_file_is_named(name: str) -> None:
    code = CODE.replace("source.present, source.feeds, source.files", "read_first,")
    code += "    except Exception as error: print('unexpected', type(error))\n"
    code = code.replace("for look in", READ_FIRST + "for look in")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder, PLACES[name])
        file.parent.mkdir(parents=True)
        for other in ("movies.dat", "users.dat", "ratings.dat", "australian_user_reviews.json"):
            (file.parent / other).write_bytes(b"x\n")
        file.write_bytes(b"x\n")
        file.chmod(0)
        command = [sys.executable, "-c", code, name, folder]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.stdout.startswith("refused the file can't be read (Permission denied)"), result
    assert file.name in result.stdout


@pytest.mark.pipeline
@pytest.mark.parametrize("mode", [0o000, 0o444], ids=["closed", "listed but not entered"])
def test_a_closed_data_folder_is_named(mode: int) -> None:
    code = (
        "import os, sys\n"
        "from pipelines.config import Settings\n"
        "from pipelines.errors import SourceError\n"
        "from pipelines.sources import SOURCES\n"
        "from pipelines.worlds import prepare_world\n"
        "list(SOURCES.values())\n"
        "if os.geteuid() == 0: os.seteuid(65534)\n"
        "try: print('found', prepare_world(Settings(world={'folder': sys.argv[1]})))\n"
        "except SourceError as error: print('refused', error)\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        closed = Path(folder, "data")
        (closed / "movielens").mkdir(parents=True)
        closed.chmod(mode)
        command = [sys.executable, "-c", code, str(closed)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        closed.chmod(0o755)
    assert result.stdout.startswith("refused the folder can't be read"), result
    assert str(closed) in result.stdout
