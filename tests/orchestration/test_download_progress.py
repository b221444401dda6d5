"""A run without a browser says how far the download of a configured address is."""

from __future__ import annotations

import functools
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from orchestration.headless import run_job
from pipelines.progress import listening

pytestmark = pytest.mark.pipeline

GAMES = b"{'id': '10', 'app_name': 'Game'}\n" * 9000
REVIEWS = b"{'user_id': 'a', 'reviews': []}\n" * 4000


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def test_a_headless_run_hears_of_the_downloads_of_its_world(tmp_path: Path) -> None:
    shop, folder = tmp_path / "shop", tmp_path / "data"
    shop.mkdir()
    folder.mkdir()
    (shop / "games.json").write_bytes(GAMES)
    (shop / "reviews.json").write_bytes(REVIEWS)
    reported: list[tuple[str, int, int | None]] = []
    serve = functools.partial(_Quiet, directory=str(shop))
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        files = {"games": f"{url}/games.json", "reviews": f"{url}/reviews.json"}
        with listening(lambda *event: reported.append(event)):
            run_job(
                "games",
                overrides={
                    "world": {"folder": str(folder)},
                    "runtime": {"home": str(tmp_path / "home")},
                    "data": {"steam": files},
                },
                select=("sources/world_files",),
            )
        server.shutdown()
    ends = [(stage, done) for stage, done, total in reported if done == total]
    assert ends[:2] == [
        ("downloading games.json", len(GAMES)),
        ("downloading reviews.json", len(REVIEWS)),
    ]
