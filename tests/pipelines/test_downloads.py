"""Downloads against a real HTTP server that misbehaves on demand."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import filelock
import pytest

from pipelines.downloads import Download, fetch
from pipelines.errors import LockedError, SourceError, SourceUnavailableError

CONTENT = bytes(range(256)) * 12_000  # 3 MB: several blocks
OTHER = CONTENT[::-1]
DOWNLOAD = Download("file.zip", "data/file.zip", "md5", hashlib.md5(CONTENT).hexdigest())


class Server:
    """Serves ``content``; ``faults`` are used up one per request, first to last."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.etag = '"one"'
        self.ranges = True
        self.faults: list[str] = []
        self.requests: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.requests.append(dict(self.headers))
                outer.answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    def answer(self, to: BaseHTTPRequestHandler) -> None:
        fault = self.faults.pop(0) if self.faults else ""
        status, _, seconds = fault.partition(" after ")
        if status.isdigit():
            to.send_response(int(status))
            if seconds:
                to.send_header("Retry-After", seconds)
            to.send_header("Content-Length", "0")
            to.end_headers()
            return
        start = 0
        asked = to.headers.get("Range", "")
        fresh = to.headers.get("If-Range", self.etag) == self.etag
        if asked and self.ranges and fresh:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(self.content):
                to.send_response(416)
                to.send_header("Content-Range", f"bytes */{len(self.content)}")
                to.end_headers()
                return
            to.send_response(206)
            at = 0 if fault == "wrong range" else start
            end = len(self.content) - 1
            to.send_header("Content-Range", f"bytes {at}-{end}/{len(self.content)}")
        else:
            to.send_response(200)
        body = self.content[start:]
        to.send_header("Content-Length", str(len(body)))
        to.send_header("ETag", self.etag)
        to.end_headers()
        to.wfile.write(body[: len(body) // 2] if fault == "cut" else body)
        if fault == "cut":
            to.wfile.flush()
            to.connection.close()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
def get(server: Server, tmp_path: Path) -> Callable[[], Path]:
    return lambda: fetch(DOWNLOAD, tmp_path, base_url=server.url, timeout=10, wait=lambda n: 0.0)


def left(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir() if p.suffix != ".lock"}


def test_a_file_arrives_and_is_not_fetched_again(
    server: Server, get: Callable[[], Path], tmp_path: Path
) -> None:
    path = get()
    assert path.read_bytes() == CONTENT
    assert left(tmp_path) == {"file.zip"}
    assert get() == path
    assert len(server.requests) == 1


@pytest.mark.faults
def test_a_cut_connection_is_resumed_where_it_stopped(
    server: Server, get: Callable[[], Path]
) -> None:
    server.faults = ["cut", "cut"]
    assert get().read_bytes() == CONTENT
    half = len(CONTENT) // 2
    assert server.requests[1]["Range"] == f"bytes={half}-"
    assert server.requests[1]["If-Range"] == '"one"'
    assert server.requests[2]["Range"] == f"bytes={half + half // 2}-"


@pytest.mark.faults
def test_a_later_run_goes_on_with_what_an_earlier_one_left(
    server: Server, get: Callable[[], Path], tmp_path: Path
) -> None:
    server.faults = ["cut", *["503"] * 20]
    with pytest.raises(SourceUnavailableError, match="503"):
        get()
    assert left(tmp_path) == {"file.zip.part", "file.zip.part.json"}
    server.faults = []
    assert get().read_bytes() == CONTENT
    assert server.requests[-1]["Range"] == f"bytes={len(CONTENT) // 2}-"
    assert left(tmp_path) == {"file.zip"}


@pytest.mark.faults
def test_a_part_of_another_edition_is_not_joined(server: Server, get: Callable[[], Path]) -> None:
    server.content, server.etag, server.faults = OTHER, '"old"', ["cut", *["503"] * 20]
    with pytest.raises(SourceUnavailableError):
        get()
    server.content, server.etag, server.faults = CONTENT, '"one"', []
    assert get().read_bytes() == CONTENT


@pytest.mark.faults
def test_a_part_longer_than_the_file_is_fetched_anew(
    server: Server, get: Callable[[], Path], tmp_path: Path
) -> None:
    server.faults = ["cut", *["503"] * 20]
    with pytest.raises(SourceUnavailableError):
        get()
    server.faults = []
    (tmp_path / "file.zip.part").write_bytes(CONTENT + b"more")
    assert get().read_bytes() == CONTENT
    assert "Range" not in server.requests[-1]


@pytest.mark.faults
def test_a_server_without_ranges_sends_all_again(server: Server, get: Callable[[], Path]) -> None:
    server.ranges, server.faults = False, ["cut"]
    assert get().read_bytes() == CONTENT


@pytest.mark.faults
def test_transient_refusals_are_retried(server: Server, get: Callable[[], Path]) -> None:
    server.faults = ["503", "429", "500"]
    assert get().read_bytes() == CONTENT
    assert len(server.requests) == 4


@pytest.mark.faults
def test_pause_that_the_server_asks_for_is_kept(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("tenacity.nap.time.sleep", pauses.append)
    server.faults = ["429 after 7", "503 after 9000", "500"]
    assert fetch(DOWNLOAD, tmp_path, base_url=server.url, timeout=10).read_bytes() == CONTENT
    # The requested pause, at most two minutes; without a header, back-off after the third failure.
    assert pauses[:2] == [7.0, 120.0]
    assert 2.0 <= pauses[2] <= 8.0


@pytest.mark.faults
def test_a_final_refusal_is_not_retried(server: Server, get: Callable[[], Path]) -> None:
    server.faults = ["404", "404"]
    with pytest.raises(SourceError, match=r"404.*data/file\.zip.*--data") as caught:
        get()
    assert caught.value.permanent
    assert len(server.requests) == 1


@pytest.mark.faults
def test_wrong_bytes_are_never_published_and_both_sums_are_named(
    server: Server, get: Callable[[], Path], tmp_path: Path
) -> None:
    server.content = OTHER
    with pytest.raises(SourceError) as caught:
        get()
    message = str(caught.value)
    assert hashlib.md5(OTHER).hexdigest() in message
    assert DOWNLOAD.checksum in message
    assert server.url in message
    assert str(tmp_path) in message
    assert caught.value.permanent
    assert left(tmp_path) == {"file.zip.wrong"}
    server.content = CONTENT
    assert get().read_bytes() == CONTENT


@pytest.mark.faults
def test_a_file_that_was_changed_on_disk_is_an_error_and_stays(
    server: Server, get: Callable[[], Path]
) -> None:
    path = get()
    path.write_bytes(OTHER)
    with pytest.raises(SourceError, match="is published"):
        get()
    assert path.read_bytes() == OTHER
    assert len(server.requests) == 1


@pytest.mark.faults
def test_without_a_network_the_error_says_how_to_go_on_by_hand(
    server: Server, get: Callable[[], Path]
) -> None:
    server.close()
    with pytest.raises(SourceUnavailableError, match=r"manually.*--data") as caught:
        get()
    assert not caught.value.permanent


@pytest.mark.faults
def test_two_downloads_of_a_file_at_once_are_refused(
    get: Callable[[], Path], tmp_path: Path
) -> None:
    with (
        filelock.FileLock(tmp_path / "file.zip.lock"),
        pytest.raises(LockedError, match="another process"),
    ):
        get()


# --- files without a published checksum -----------------------------------------------------

BARE = Download("Books.jsonl.gz", "data/Books.jsonl.gz")


def fetch_bare(server: Server, folder: Path) -> Path:
    return fetch(BARE, folder, base_url=server.url, timeout=10, wait=lambda n: 0.0)


def test_without_a_checksum_a_cut_download_goes_on_and_ends_whole(
    server: Server, tmp_path: Path
) -> None:
    server.faults = ["cut"]
    assert fetch_bare(server, tmp_path).read_bytes() == CONTENT
    assert [r.get("Range") for r in server.requests] == [None, f"bytes={len(CONTENT) // 2}-"]
    assert left(tmp_path) == {"Books.jsonl.gz"}


def test_without_a_checksum_half_a_file_never_gets_its_name(server: Server, tmp_path: Path) -> None:
    server.faults = ["cut", "404"]
    with pytest.raises(SourceError, match="404"):
        fetch_bare(server, tmp_path)
    assert not (tmp_path / BARE.name).exists()
    assert (tmp_path / f"{BARE.name}.part").stat().st_size == len(CONTENT) // 2
    # A later run goes on from there.
    assert fetch_bare(server, tmp_path).read_bytes() == CONTENT


@pytest.mark.parametrize("download", [BARE, DOWNLOAD])
def test_without_a_validator_a_part_is_not_trusted(
    server: Server, tmp_path: Path, download: Download
) -> None:
    (tmp_path / f"{download.name}.part").write_bytes(OTHER[:1000])
    path = fetch(download, tmp_path, base_url=server.url)
    assert path.read_bytes() == CONTENT
    assert "Range" not in server.requests[0]
