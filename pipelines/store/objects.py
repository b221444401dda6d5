"""Files on an object store: conditional writes in place of ``rename`` and ``link``, and leases.

A table's parts are uploaded first and its manifest last, by a put that refuses to replace: without
a manifest a version does not exist. Parts of one cohort lie under their hash, beside the versions
that share them. Pointers move by compare-and-swap on the entity tag. Rows are written on this
machine before they are uploaded.

Credentials, region and endpoint are the ``AWS_*`` environment variables. Texts of the server are
not shown, because they may repeat a key or a token.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import orjson

from pipelines.errors import LockedError, StoreError
from pipelines.extras import missing_package
from pipelines.paths import ObjectPath, scratch_of
from pipelines.store._layout import Layout
from pipelines.store._manifest import MANIFEST
from pipelines.store.files import Change, Files, LocalFiles, Staging, copied, storage_errors
from pipelines.store.locks import holder_record

if TYPE_CHECKING:
    import obstore
    import polars as pl
    import pyarrow.dataset as pads

    from pipelines.store._manifest import FileEntry

__all__ = ["Lease", "ObjectFiles", "open_files"]

#: How long a lock outlives the last sign of its holder (seconds).
LEASE = 30.0
#: Largest difference of clocks between machines that does not shorten a lock (seconds).
SKEW = 5.0

#: Interval at which a waiting process looks again (seconds).
_POLL = 0.2
#: Folder of a dataset's parts that versions share.
PARTS = "parts"
#: Further tries of a conditional write whose answer did not arrive.
_TRIES = 3
#: Entry of an object's metadata that identifies the write.
_WRITER = "understudy-write"
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
_CREDENTIALS = {
    *("AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired"),
    *("RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "AuthFailure"),
}

_Mode = Literal["create", "overwrite"] | dict[str, str]


def open_files(home: Path) -> Files:
    """The files of a home, on this machine or on an object store.

    MissingPackageError if the latter's client is not installed.
    """
    return ObjectFiles(home) if isinstance(home, ObjectPath) else LocalFiles(home)


@contextmanager
def _object_errors(path: Path) -> Iterator[None]:
    """Turn an error of the client into a StoreError; conditions that do not hold pass."""
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

    try:
        yield
    except (AlreadyExistsError, PreconditionError):
        raise
    except (BaseError, FileNotFoundError, PermissionError) as error:
        if isinstance(error, FileNotFoundError) and "<Code>NoSuchBucket<" not in str(error):
            raise
        # Without its cause: the server's text may repeat a key or a token.
        raise _store_error(str(error), path) from None


def _retried(call: Callable[[], bool]) -> bool:
    """Retry a request for about ten seconds while the server closes connections unanswered.

    The client itself retries answers such as 503 only.
    """
    from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential

    return Retrying(
        retry=retry_if_exception(
            lambda e: isinstance(e, StoreError) and e.details.get("reason") == "no answer"
        ),
        wait=wait_exponential(0.2, max=3),
        stop=stop_after_attempt(7),
        reraise=True,
    )(call)


def _store_error(text: str, path: Path) -> StoreError:
    """The error behind an answer of the server, or of one that did not come."""
    code, status = _CODE.search(text), _STATUS.search(text)
    reason = code[1] if code else f"HTTP {status[1]}" if status else "no answer"
    what, hint = "the object store can't be used", "check AWS_ENDPOINT_URL and the network"
    if reason in _CREDENTIALS or reason in {"HTTP 401", "HTTP 403"}:
        what, hint = "the object store refuses access", "renew the AWS_* credentials, run again"
    elif reason == "NoSuchBucket":
        hint = "create the bucket, or correct the address"
    return StoreError(
        f"{what} ({reason})",
        where=str(path),
        hint=hint,
        details={"path": str(path), "reason": reason},
    )


def _plain_http() -> bool:
    return os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")


def _client(bucket: str) -> obstore.store.S3Store:
    """The client of a bucket; shared as long as the environment's ``AWS_*`` stay."""
    environment = {k: v for k, v in os.environ.items() if k.startswith("AWS_")}
    return _opened(bucket, tuple(sorted(environment.items())))


@lru_cache(maxsize=8)
def _opened(bucket: str, environment: tuple[tuple[str, str], ...]) -> obstore.store.S3Store:  # noqa: ARG001 (cache key)
    try:
        from obstore.store import S3Store
    except ModuleNotFoundError as error:
        raise missing_package(error, where=f"s3://{bucket}", extra="s3") from error
    return S3Store(
        bucket,
        client_options={"allow_http": _plain_http(), "timeout": timedelta(seconds=30)},
        retry_config={
            "max_retries": 8,
            "backoff": {
                "init_backoff": timedelta(seconds=0.1),
                "max_backoff": timedelta(seconds=5),
                "base": 2,
            },
            "retry_timeout": timedelta(seconds=60),
        },
    )


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    tag: str
    writer: str | None


#: Addresses whose server is known to have conditional writes.
_probed: set[tuple[str, str | None]] = set()


class ObjectFiles:
    """File operations below one prefix of a bucket; see :class:`~pipelines.store.files.Files`.

    The first write checks that the server has conditional writes: StoreError if not.
    """

    def __init__(self, root: ObjectPath) -> None:
        self.root: Path = root
        self._local = LocalFiles(scratch_of(root))
        self._client = _client(root.bucket)
        self._leases: list[Lease] = []

    @property
    def scratch(self) -> Path:
        """Folder of this machine."""
        return self._local.root

    # -- reading ---------------------------------------------------------------------------

    def read(self, path: Path) -> bytes | None:
        """Content of a small object, or None if there is none."""
        found = self._fetch(path)
        return None if found is None else found.data

    def names(self, folder: Path) -> list[str]:
        """Sorted names below a prefix, up to the next slash."""
        found = self._list(folder)
        prefixes = [str(p).rstrip("/") for p in found["common_prefixes"]]
        objects = [str(o["path"]) for o in found["objects"]]
        return sorted(name.rpartition("/")[2] for name in prefixes + objects)

    def sizes(self, folder: Path) -> dict[str, int]:
        """Size (bytes) of each object below a prefix by name."""
        return {o["path"].rpartition("/")[2]: o["size"] for o in self._list(folder)["objects"]}

    def has(self, path: Path) -> bool:
        """Return True if the object exists."""
        import obstore

        def asked() -> bool:
            try:
                with _object_errors(path):
                    obstore.head(self._client, _key(path))
            except FileNotFoundError:
                return False
            return True

        return _retried(asked)

    def digest(self, path: Path) -> str | None:
        """SHA-256 (hex) of an object, or None if there is none."""
        import obstore

        digest = hashlib.sha256()
        try:
            with _object_errors(path):
                for chunk in obstore.get(self._client, _key(path)).stream():
                    digest.update(bytes(chunk))
        except FileNotFoundError:
            return None
        return digest.hexdigest()

    def copy(self, path: Path, made: Path) -> str | None:
        """Download an object; see :meth:`Files.copy`."""
        import obstore

        try:
            with _object_errors(path):
                stream = obstore.get(self._client, _key(path)).stream()
                return copied((bytes(chunk) for chunk in stream), made)
        except FileNotFoundError:
            return None

    def part(self, folder: Path, entry: FileEntry) -> Path:
        """Place of a file of a version: that of one cohort's part is its hash."""
        if entry.cohort is None:
            return folder / entry.name
        return folder.parent / PARTS / f"{entry.sha256}.parquet"

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        """A lazy frame over Parquet objects: filters and columns are pushed into ranged reads."""
        import polars as pl

        options = {"aws_allow_http": "true"} if _plain_http() else {}
        if endpoint := os.environ.get("AWS_ENDPOINT_URL"):
            # Polars keeps clients by their options, and reads the environment for a new one only.
            options["aws_endpoint_url"] = endpoint
        files = [str(path) for path in paths]
        return pl.scan_parquet(files, hive_partitioning=False, glob=False, storage_options=options)

    def dataset(self, paths: Sequence[Path]) -> pads.Dataset:
        """An Arrow dataset over Parquet objects, read in ranges."""
        import pyarrow.dataset as pads
        from obstore.fsspec import FsspecStore
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        # fsspec keeps instances by their arguments, and with them endpoint and credentials of then.
        options: dict[str, Any] = {"skip_instance_cache": True}
        files = FsspecStore("s3", client_options={"allow_http": _plain_http()}, **options)
        names = [str(path).removeprefix("s3://") for path in paths]
        return pads.dataset(names, format="parquet", filesystem=PyFileSystem(FSSpecHandler(files)))

    @contextmanager
    def reading(self, folder: Path) -> Iterator[None]:
        """Turn errors of Polars and Arrow into a StoreError: their texts repeat the server's."""
        from obstore.exceptions import BaseError
        from polars.exceptions import PolarsError

        try:
            yield
        except (BaseError, OSError, PolarsError) as error:
            text = str(error)
            if not (_CODE.search(text) or _STATUS.search(text)):
                # Arrow hides the reason: ask again.
                self.read(folder / MANIFEST)
            raise _store_error(text, folder) from None

    # -- writing ---------------------------------------------------------------------------

    def put(self, path: Path, data: bytes) -> None:
        """Give a small object this content."""
        self._put(path, data, "overwrite")

    def put_new(self, path: Path, data: bytes) -> bool:
        """Create a small object unless it exists; whether this call created it."""
        return self._put(path, data, "create") is not None

    def update(self, path: Path, change: Change, *, lock: Path) -> None:  # noqa: ARG002
        """Change a small object by compare-and-swap, as often as another process was faster."""
        self._swap(path, lambda found: change(found.data if found else None))

    def move(self, path: Path, change: Change) -> None:
        """Change a pointer by compare-and-swap.

        It carries the fencing number of every lease that this object holds. LockedError if one of
        them was lost: by time, or because the pointer carries a later number of it.
        """

        def moved(found: _Object | None) -> bytes | None:
            # After the pointer was read: a process that takes a lease over changes the pointers
            # first, so that the swap below fails if the lease is lost between this line and the
            # swap.
            self.check_held()
            data = change(found.data if found else None)
            return None if data is None else self._fenced(found, data)

        self._swap(path, moved)

    def check_held(self) -> None:
        """Make sure that no lease of this object was lost; else LockedError."""
        for lease in tuple(self._leases):
            lease.check()

    def remove(self, path: Path) -> None:
        """Delete an object; nothing happens if it does not exist."""
        import obstore

        with suppress(FileNotFoundError), _object_errors(path):
            obstore.delete(self._client, _key(path))

    def place_file(self, made: Path, path: Path, *, replace: bool = False) -> bool:
        """Upload a finished file; see :meth:`Files.place_file`."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        def upload() -> bool:
            with storage_errors(made), _object_errors(path):
                try:
                    obstore.put(
                        self._client,
                        _key(path),
                        made,
                        mode="overwrite" if replace else "create",
                        use_multipart=replace,  # a condition holds for one request only
                    )
                except AlreadyExistsError:
                    # Also of this very call, if the answer to an earlier try was lost.
                    return False
            return True

        self.probe()
        created = _retried(upload)
        made.unlink()
        return created

    # -- folders that appear whole ---------------------------------------------------------

    def stage(self, owner: dict[str, object]) -> Staging:
        """A new staging folder in the scratch folder."""
        return self._local.stage(owner)

    def write_staged(self, path: Path, data: bytes) -> None:
        """Write a read-only file into a staging folder and sync it."""
        self._local.write_staged(path, data)

    def share(self, source: Path, staged: Path) -> None:
        """Do nothing: the object stays under its hash."""

    def place(self, staged: Path, target: Path, entries: Sequence[FileEntry] = ()) -> bool:
        """Upload a written folder, its manifest last, unless there is one; whether it was created.

        Parts that a dead process left are replaced by the same bytes: the target's name is their
        hash. Parts of one cohort that are there under their hash are not uploaded again.
        """
        import obstore

        if self.read(target / MANIFEST) is not None:
            return False
        self.probe()
        shared = {e.name: e for e in entries if e.cohort is not None}
        there = self.sizes(target.parent / PARTS) if shared else {}
        for name in self._local.names(staged):
            path, entry = target / name, shared.get(name)
            if entry is not None:
                path = self.part(target, entry)
                if there.get(path.name) == entry.bytes:
                    continue
            if name != MANIFEST:
                with storage_errors(staged / name), _object_errors(path):
                    obstore.put(self._client, _key(path), staged / name)
        return self.put_new(target / MANIFEST, (staged / MANIFEST).read_bytes())

    def set_aside(self, folder: Path, staging: Staging) -> None:  # noqa: ARG002
        """Delete a broken version, its manifest first; parts under their hash stay."""
        self.remove(folder / MANIFEST)
        for name in self.names(folder):
            self.remove(folder / name)

    def sweep(self) -> int:
        """Remove what dead processes staged on this machine; how many things were removed."""
        return self._local.sweep()

    # -- locks -----------------------------------------------------------------------------

    def lock(
        self, path: Path, *, timeout: float = 60.0, shared: bool = False
    ) -> AbstractContextManager[object]:
        """A lease; shared locks exclude no other, because nothing removes versions here."""
        return nullcontext() if shared else Lease(self, path, timeout=timeout)

    def run_lock(self, path: Path) -> AbstractContextManager[Any]:
        """A lease that is not waited for."""
        return Lease(self, path, timeout=0)

    # -- inside ----------------------------------------------------------------------------

    def _list(self, folder: Path) -> Any:
        import obstore

        key = _key(folder)
        with _object_errors(folder):
            return obstore.list_with_delimiter(self._client, f"{key}/" if key else None)

    def _fetch(self, path: Path) -> _Object | None:
        import obstore

        try:
            with _object_errors(path):
                found = obstore.get(self._client, _key(path))
                data = bytes(found.bytes())
        except FileNotFoundError:
            return None
        return _Object(data, str(found.meta["e_tag"]), found.attributes.get(_WRITER))

    def _put(self, path: Path, data: bytes, mode: _Mode) -> str | None:
        """Write a small object; its new entity tag, or None if the condition does not hold."""
        if (str(self.root), os.environ.get("AWS_ENDPOINT_URL")) not in _probed:
            self.probe()
        return self._write(path, data, mode)

    def _write(self, path: Path, data: bytes, mode: _Mode) -> str | None:
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        writer = uuid.uuid4().hex
        for left in reversed(range(_TRIES)):
            try:
                with _object_errors(path):
                    written = obstore.put(
                        self._client,
                        _key(path),
                        data,
                        mode=mode,  # type: ignore[arg-type]
                        attributes={_WRITER: writer},
                        use_multipart=False,
                    )
                return str(written["e_tag"])
            except (AlreadyExistsError, PreconditionError, FileNotFoundError):
                # Perhaps by this very write, whose answer was lost before the client repeated it.
                found = self._fetch(path)
                return found.tag if found is not None and found.writer == writer else None
            except StoreError as error:
                if error.details.get("reason") != "no answer" or not left:
                    raise
        raise AssertionError

    def _swap(self, path: Path, change: Callable[[_Object | None], bytes | None]) -> None:
        while True:
            found = self._fetch(path)
            data = change(found)
            if data is None:
                return
            mode: _Mode = "create" if found is None else {"e_tag": found.tag}
            if self._put(path, data, mode) is not None:
                return

    def _fenced(self, found: _Object | None, data: bytes) -> bytes:
        """The content of a pointer, with fencing numbers."""
        fences = dict(_fences(found))
        for lease in tuple(self._leases):
            if fences.get(lease.name, 0) > lease.fence:
                raise lease.lost_error()
            fences[lease.name] = lease.fence
        if not fences:
            return data
        return orjson.dumps(
            {**orjson.loads(data), "fences": fences},
            option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE,
        )

    def _fence_pointers(self) -> None:
        """Write the fencing numbers of new leases into every pointer."""
        refs = Layout(self.root).refs
        for folder in (refs, refs / "releases"):
            for name in self.sizes(folder):
                self.move(folder / name, lambda data: data)

    def probe(self) -> None:
        """Make sure that the server has conditional writes; StoreError if not."""
        known = (str(self.root), os.environ.get("AWS_ENDPOINT_URL"))
        if known in _probed:
            return
        path = self.root / "_probe" / uuid.uuid4().hex
        try:
            tag = self._write(path, b"1", "create")
            created_twice = self._write(path, b"2", "create") is not None
            swapped = self._write(path, b"3", {"e_tag": str(tag)})
            swapped_twice = self._write(path, b"4", {"e_tag": str(tag)}) is not None
        except StoreError as error:
            if error.details.get("reason") not in {"NotImplemented", "HTTP 501"}:
                raise
            created_twice = True
        finally:
            with suppress(StoreError):
                self.remove(path)
        if created_twice or tag is None or swapped is None or swapped_twice:
            raise StoreError(
                "the object store has no conditional writes",
                where=str(self.root),
                hint="use a server that honours If-None-Match and If-Match of PUT",
            )
        _probed.add(known)


def _key(path: Path) -> str:
    assert isinstance(path, ObjectPath)
    return path.key


def _fences(found: _Object | None) -> Mapping[str, int]:
    """Fencing numbers that a pointer carries; a damaged pointer carries none."""
    with suppress(ValueError, AttributeError):
        return dict(orjson.loads(found.data if found else b"{}").get("fences", {}))
    return {}


def _clock() -> float:
    """Seconds that go on while the process, and on Linux the machine, is suspended."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class Lease:
    """A lock as an object that names its owner, when it expires, and a fencing number.

    The number grows by one with every owner; the object is never removed. A thread of the holder
    renews the lease. A holder that was paused or cut off for longer than the lease has lost it for
    good, also if it was not taken over. A new owner of an expired lease writes its number into
    every pointer before it goes on, and a pointer refuses lower numbers (:meth:`ObjectFiles.move`).
    """

    def __init__(self, files: ObjectFiles, path: Path, *, timeout: float) -> None:
        self.path = path
        self.name = path.stem
        self.fence = 0
        self._files = files
        self._timeout = timeout
        self._owner = uuid.uuid4().hex
        self._record: dict[str, Any] = {}
        self._tag: str | None = None
        self._expires = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def held(self) -> bool:
        """Whether this object holds the lease, as far as it knows."""
        return self._tag is not None and _clock() < self._expires

    def __enter__(self) -> Self:
        deadline = time.monotonic() + self._timeout
        while True:
            found = self._files._fetch(self.path)
            record = {} if found is None else _lease_record(found, self.path)
            if _is_free(record):
                self.fence = int(record.get("fence", 0)) + 1
                self._record = {**holder_record(), "owner": self._owner, "fence": self.fence}
                if self._renew("create" if found is None else {"e_tag": found.tag}):
                    break
            if time.monotonic() >= deadline:
                raise self._locked_error(record)
            time.sleep(_POLL)
        self._files._leases.append(self)
        self._thread = threading.Thread(target=self._keep, name=f"lease-{self.name}", daemon=True)
        self._thread.start()
        try:
            if record.get("expires"):
                self._files._fence_pointers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._files._leases.remove(self)
        if self.held:
            # Where it can't be given back, it expires.
            with suppress(StoreError):
                self._renew({"e_tag": str(self._tag)}, expires=False)
        self._tag = None

    def check(self) -> None:
        """Make sure that this object still holds the lease; else LockedError."""
        if self.held:
            found = self._files._fetch(self.path)
            if found is not None and orjson.loads(found.data).get("owner") == self._owner:
                return
        raise self.lost_error()

    def lost_error(self) -> LockedError:
        """The error of a holder that lost the lease."""
        return LockedError(
            "this process lost its lock and publishes nothing",
            where=str(self.path),
            hint=f"it was paused or cut off for longer than {LEASE:g} s; run again",
        )

    def _renew(self, mode: _Mode, *, expires: bool = True) -> bool:
        """Write the lease; whether it is this object's now."""
        # Before the request: the server may answer late.
        until = _clock() + LEASE
        end = (datetime.now(UTC) + timedelta(seconds=LEASE)).isoformat() if expires else None
        data = orjson.dumps({**self._record, "expires": end})
        tag = self._files._put(self.path, data, mode)
        if tag is None and self._tag is not None:
            # Perhaps an earlier renewal arrived after all.
            found = self._files._fetch(self.path)
            if found is not None and orjson.loads(found.data).get("owner") == self._owner:
                tag = self._files._put(self.path, data, {"e_tag": found.tag})
        self._tag, self._expires = tag, until if tag else 0.0
        return tag is not None

    def _keep(self) -> None:
        while not self._ended.wait(LEASE / 4):
            if not self.held:
                return
            # While the server does not answer, the lease goes on until it expires.
            with suppress(StoreError):
                self._renew({"e_tag": str(self._tag)})

    def _locked_error(self, record: Mapping[str, Any]) -> LockedError:
        ends = f"the lock of a dead process ends after {LEASE + SKEW:g} s"
        holder = (
            f"process {record.get('pid')} on {record.get('host')} since {record.get('since')}"
            if record
            else "another process was faster"
        )
        waited = f" for {self._timeout:g} s" if self._timeout else ""
        return LockedError(
            f"another process has held this lock{waited} ({holder})",
            where=str(self.path),
            hint=f"wait for it or stop it; {ends}",
            details={k: record.get(k) for k in ("pid", "host", "since", "expires", "fence")},
        )


def _lease_record(found: _Object, path: Path) -> dict[str, Any]:
    with suppress(ValueError, KeyError):
        record = orjson.loads(found.data)
        if isinstance(record, dict) and isinstance(record["fence"], int):
            return record
    raise StoreError(
        "the lock is damaged",
        where=str(path),
        hint="restore it: without its number the lock is invalid",
    )


def _is_free(record: Mapping[str, Any]) -> bool:
    """Whether a lease is free: given back, or its holder shows no sign of life."""
    end = record.get("expires")
    if end is None:
        return True
    return datetime.now(UTC) > datetime.fromisoformat(str(end)) + timedelta(seconds=SKEW)
