"""Downloads over HTTP: resumed, retried, and named only after their checksum was compared."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from pipelines.errors import LockedError, SourceError, SourceUnavailableError, StoreError
from pipelines.progress import advance
from pipelines.retrying import TRANSIENT_STATUS, backoff, retry_after

if TYPE_CHECKING:
    import httpx
    import tenacity

__all__ = ["Download", "fetch"]

_BLOCK = 1 << 20
#: Tries in a row that bring no new byte before giving up.
_MAX_STALLED = 6
#: The same, while no connection can be made at all.
_MAX_UNREACHABLE = 2
#: No published archive is near this; a server that sends on and on is stopped.
_MAX_BYTES = 64 << 30
#: Longest pause that a server may ask for (seconds).
_MAX_WAIT = 120.0
_BY_HAND = "download it manually into <folder>/<source>/ and use --data <folder>"


@dataclass(frozen=True, slots=True)
class Download:
    """A published file."""

    #: File name it gets.
    name: str
    #: Path below the publisher's address.
    path: str
    #: Algorithm of the published checksum, such as ``md5``.
    algorithm: str = ""
    #: The published checksum (hex); empty if none is published. Then the file counts as whole when
    #: it has the length that the server states.
    checksum: str = ""
    #: Remedy without the download, for error messages.
    by_hand: str = _BY_HAND
    #: Sent with every request; never shown or stored.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def fetch(
    download: Download,
    folder: Path,
    *,
    base_url: str,
    timeout: float = 30.0,
    wait: Callable[[int], float] | None = None,
) -> Path:
    """Bring a published file into ``folder`` and return its path.

    A file that is there already is verified, not fetched. Bytes arrive in ``<name>.part``; a cut
    connection, now or in an earlier run, goes on from there if the server states by its validator
    (``ETag`` or ``Last-Modified``) that it still has the same file. Only after its checksum was
    compared (or, if none is published, all bytes that the server announced have come) does it get
    its name; a file with another checksum is kept as ``<name>.wrong``.

    Parameters
    ----------
    download
        File to fetch.
    folder
        Target folder; made if absent.
    base_url
        The publisher's address.
    timeout
        Longest silence of the server (seconds).
    wait
        Seconds to wait after the n-th attempt in a row that brought nothing; default
        exponential, up to 30, or what the server's ``Retry-After`` asks, up to 120.

    Raises
    ------
    SourceUnavailableError
        If the server can't be reached or keeps failing.
    SourceError
        If it refuses, or the file has another checksum than the published one.
    LockedError
        If another process is fetching the same file.
    StoreError
        If the disk is full or the folder can't be written.
    """
    import filelock

    target = folder / download.name
    url = f"{base_url.rstrip('/')}/{download.path}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / f"{download.name}.lock")
        with lock.acquire(timeout=0):
            if target.exists():
                _verify(target, download, url)
                return target
            part = _Part(folder, download, url)
            _fetch_all(part, timeout, wait)
            try:
                _verify(part.path, download, url)
            except SourceError:
                part.rename(target.with_name(f"{download.name}.wrong"))
                raise
            part.rename(target)
    except filelock.Timeout:
        raise LockedError("another process is downloading this file", where=str(target)) from None
    except OSError as error:
        raise StoreError(
            f"the download can't be stored ({error.strerror or type(error).__name__})",
            where=str(target),
            hint="check the disk's free space and the folder's permissions",
        ) from None
    return target


def _fetch_all(part: _Part, timeout: float, wait: Callable[[int], float] | None) -> None:
    import httpx
    import tenacity

    stalled, before = 0, part.size()

    def give_up(state: tenacity.RetryCallState) -> bool:
        nonlocal stalled, before
        fault = state.outcome.exception() if state.outcome else None
        grown = part.size() > before
        stalled, before = (0 if grown else stalled + 1), part.size()
        # A host that can't even be reached is most often a machine without a network: its user
        # should hear so within seconds.
        unreachable = isinstance(fault, SourceUnavailableError) and fault.details.get("unreachable")
        return stalled >= (_MAX_UNREACHABLE if unreachable else _MAX_STALLED)

    def pause(state: tenacity.RetryCallState) -> float:
        if wait:
            return wait(stalled)
        fault = state.outcome.exception() if state.outcome else None
        requested = fault.details.get("retry_after") if isinstance(fault, SourceError) else None
        return backoff(stalled + 1, 1.0) if requested is None else min(requested, _MAX_WAIT)

    limits = httpx.Timeout(timeout)
    with httpx.Client(timeout=limits, follow_redirects=True) as client:
        for attempt in tenacity.Retrying(
            stop=give_up,
            wait=pause,
            retry=tenacity.retry_if_exception_type(SourceUnavailableError),
            reraise=True,
        ):
            with attempt:
                _fetch_once(client, part)


def _fetch_once(client: httpx.Client, part: _Part) -> None:
    """Request the rest of a file, from the end of the part on disk."""
    import httpx

    validator = part.validator()
    # Without one, bytes of two editions can't be told apart.
    start = part.size() if validator else 0
    headers = {**part.download.headers, "Accept-Encoding": "identity"}
    if start:
        headers |= {"Range": f"bytes={start}-", "If-Range": validator}
    try:
        with client.stream("GET", part.url, headers=headers) as response:
            continues = response.headers.get("Content-Range", "").startswith(f"bytes {start}-")
            if start and (
                response.status_code == 416 or (response.status_code == 206 and not continues)
            ):
                part.clear()
                raise SourceUnavailableError(
                    "the server does not have the rest of the file",
                    where=part.url,
                    details={"retry_after": 0.0},
                )
            if response.status_code not in (200, 206):
                raise _refusal(response, part)
            if response.status_code == 200:
                start = 0
                part.remember(response.headers)
            length = response.headers.get("Content-Length", "")
            part.write(response, start, start + int(length) if length.isdigit() else None)
    except (httpx.TransportError, httpx.DecodingError, httpx.TooManyRedirects) as error:
        unreachable = httpx.ConnectError | httpx.ConnectTimeout | httpx.ProxyError
        raise SourceUnavailableError(
            f"the download failed ({error or type(error).__name__})",
            where=part.url,
            hint=f"try again later (the download resumes); or {part.download.by_hand}",
            details={"unreachable": isinstance(error, unreachable)},
        ) from None


def _refusal(response: httpx.Response, part: _Part) -> SourceError:
    kind = SourceUnavailableError if response.status_code in TRANSIENT_STATUS else SourceError
    return kind(
        f"the server answered {response.status_code} {response.reason_phrase}".rstrip(),
        where=part.url,
        hint=part.download.by_hand,
        details={
            "status": response.status_code,
            "retry_after": retry_after(response.headers.get("Retry-After")),
        },
    )


class _Part:
    """A download on its way: ``<name>.part`` and what identifies the server's edition."""

    def __init__(self, folder: Path, download: Download, url: str) -> None:
        self.download = download
        self.url = url
        self.path = folder / f"{download.name}.part"
        self._facts = folder / f"{download.name}.part.json"

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def validator(self) -> str:
        """Return the strong validator of the edition the bytes are from, or ''."""
        try:
            facts = orjson.loads(self._facts.read_bytes())
        except (FileNotFoundError, orjson.JSONDecodeError):
            return ""
        usable = isinstance(facts, dict) and facts.get("url") == self.url
        return str(facts.get("validator", "")) if usable else ""

    def remember(self, headers: httpx.Headers) -> None:
        etag = headers.get("ETag", "")
        # A weak tag may not be used to join bytes.
        validator = headers.get("Last-Modified", "") if etag.startswith("W/") or not etag else etag
        self._facts.write_bytes(orjson.dumps({"url": self.url, "validator": validator}))

    def write(self, response: httpx.Response, start: int, total: int | None) -> None:
        done, stage = start, f"downloading {self.download.name}"
        with self.path.open("ab" if start else "wb") as file:
            for block in response.iter_raw():
                file.write(block)
                done += len(block)
                advance(stage, done, total)
                if done > _MAX_BYTES:
                    raise SourceError(f"the server sent over {_MAX_BYTES:,} bytes", where=self.url)

    def clear(self) -> None:
        self.path.unlink(missing_ok=True)
        self._facts.unlink(missing_ok=True)

    def rename(self, target: Path) -> None:
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(target)
        self._facts.unlink(missing_ok=True)


def _verify(path: Path, download: Download, url: str) -> None:
    if not download.checksum:
        return
    digest = hashlib.new(download.algorithm, usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != download.checksum:
        raise SourceError(
            f"{download.algorithm} is {digest.hexdigest()} but {download.checksum} is published",
            where=f"{path.name.removesuffix('.part')} from {url}, stored in {path.parent}",
            hint="the publisher may have changed the file: remove it and try again, or "
            + download.by_hand,
            details={"expected": download.checksum, "found": digest.hexdigest()},
        )
