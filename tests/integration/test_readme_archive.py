"""README's commands on ml-latest-small, downloaded from a local mirror, without TMDB."""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sim import open_release

pytestmark = [
    pytest.mark.pipeline,
    pytest.mark.shared_data,
    pytest.mark.timeout(3_600),
]

Command = Callable[..., subprocess.CompletedProcess[str]]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def mirror(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a server with the archive at the publisher's path."""
    folder = tmp_path_factory.mktemp("mirror")
    (folder / "datasets").mkdir()
    (folder / "datasets/movielens").symlink_to(shared_data / "movielens")
    serve = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def command(mirror: str, repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """A command line of README, and further words, run in one home."""
    home = tmp_path_factory.mktemp("readme") / "home"
    program = (
        "from pipelines.__main__ import main; from pipelines.worlds import prepare_world; "
        f"prepare_world.__kwdefaults__['base_url'] = {mirror!r}; main()"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("UNDERSTUDY_", "TMDB_"))}
    readme = (repository / "README.md").read_text(encoding="utf-8").splitlines()

    def run(begin: str, *more: str) -> subprocess.CompletedProcess[str]:
        line = next(line for line in readme if line.startswith(f"$ understudy {begin}"))
        words = shlex.split(line.removeprefix("$ understudy "), comments=True)
        return subprocess.run(
            [sys.executable, "-c", program, *words, *more],
            env=clean | {"UNDERSTUDY_HOME": str(home)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_archive_without_tmdb_is_published_and_the_remedy_named(
    command: Command, word_encoder: Path
) -> None:
    # Smaller than in README, and in the process whose publisher is the mirror.
    small = ("personas.count=12", "scoring.max_pairs=2400", f"embedding.model={word_encoder}")
    words = [word for one in (*small, "runtime.executor=in_process") for word in ("--set", one)]
    done = command("run --job movies --source ml-latest-small", *words)
    assert done.returncode == 0, done.stderr
    for said in (done.stdout, done.stderr):
        assert "no TMDB records: plots, casts, directors" in said
        assert "UNDERSTUDY_TMDB__TOKEN" in said
    assert "plot_coverage" not in done.stdout

    shown = command("release show")
    assert shown.returncode == 0, shown.stderr
    text = " ".join(shown.stdout.split())
    assert "World: `ml-latest-small` (real files). It holds 9,742 films" in text
    episode = command("episode --steps 5")
    assert episode.returncode == 0, episode.stderr
    assert "/10" in episode.stdout

    release = open_release(shown.stdout.split()[0], home=_home(shown.stdout))
    items = release["items"].polars()
    assert items.height == 9_742
    assert items["tmdb_id"].count() > 9_700
    assert items["has_tmdb"].sum() == 0
    assert items["overview"].count() == items["runtime"].count() == 0
    assert items["actors"].list.len().sum() == items["directors"].list.len().sum() == 0
    assert release["interactions"].rows == 100_836


def _home(shown: str) -> Path:
    """The home, of the line `lock file <home>/releases/...`."""
    line = next(line for line in shown.splitlines() if line.startswith("lock file "))
    return Path(line.removeprefix("lock file ")).parents[1]
