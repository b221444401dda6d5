"""Files of pushed releases on an object store; the only module that imports its client.

A release has the names there that it has below a home; parts of one cohort lie under their hash,
so that versions share them. Credentials, region and endpoint are the ``AWS_*`` environment
variables. Texts of the server are not shown, because they may repeat a key or a token.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import StoreError
from pipelines.extras import missing_package
from pipelines.paths import ObjectPath
from pipelines.store._manifest import MANIFEST
from pipelines.store.files import Files, LocalFiles, storage_errors

if TYPE_CHECKING:
    import obstore
    import polars as pl
    import pyarrow.dataset as pads

    from pipelines.store._manifest import FileEntry

__all__ = ["RemoteFiles", "open_files"]

#: Folder of a dataset's parts that versions share.
_PARTS = "parts"
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
_CREDENTIALS = {
    *("AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "TokenRefreshRequired"),
    *("RequestExpired", "RequestTimeTooSkewed", "SignatureDoesNotMatch", "AuthFailure"),
    *("HTTP 401", "HTTP 403"),
}


def open_files(root: Path) -> Files:
    """The files below a folder or an address; MissingPackageError without the latter's client."""
    return RemoteFiles(root) if isinstance(root, ObjectPath) else LocalFiles(root)


class RemoteFiles:
    """File operations below one prefix of a bucket; see :class:`~pipelines.store.files.Files`."""

    def __init__(self, root: ObjectPath) -> None:
        self.root: Path = root
        environment = sorted((k, v) for k, v in os.environ.items() if k.startswith("AWS_"))
        self._client = _client(root.bucket, tuple(environment))

    def read(self, path: Path) -> bytes | None:
        """Content of a small object, or None if there is none."""
        import obstore

        try:
            with _object_errors(path):
                return bytes(obstore.get(self._client, _key(path)).bytes())
        except FileNotFoundError:
            return None

    def names(self, folder: Path) -> list[str]:
        """Sorted names below a prefix, up to the next slash."""
        listed = self._list(folder)
        paths = [*listed["common_prefixes"], *(o["path"] for o in listed["objects"])]
        return sorted(str(path).rstrip("/").rpartition("/")[2] for path in paths)

    def sizes(self, folder: Path) -> dict[str, int]:
        """Size (bytes) of each object below a prefix by name."""
        return {o["path"].rpartition("/")[2]: o["size"] for o in self._list(folder)["objects"]}

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

    def part(self, folder: Path, entry: FileEntry) -> Path:
        """Place of a file of a version: that of one cohort's part is its hash."""
        if entry.cohort is None:
            return folder / entry.name
        return folder.parent / _PARTS / f"{entry.sha256}.parquet"

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

    def put(self, path: Path, data: bytes) -> None:
        """Give a small object this content."""
        import obstore

        with _object_errors(path):
            obstore.put(self._client, _key(path), data)

    def put_new(self, path: Path, data: bytes) -> bytes:
        """Create a small object unless it exists; the content that it has now."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            with _object_errors(path):
                obstore.put(self._client, _key(path), data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return self.read(path) or b""
        return data

    def upload(self, file: Path, path: Path) -> None:
        """Upload a file of this machine; the object appears whole."""
        import obstore

        with storage_errors(file), _object_errors(path):
            obstore.put(self._client, _key(path), file)

    def _list(self, folder: Path) -> Any:
        import obstore

        key = _key(folder)
        with _object_errors(folder):
            return obstore.list_with_delimiter(self._client, f"{key}/" if key else None)


def _key(path: Path) -> str:
    assert isinstance(path, ObjectPath)
    return path.key


def _plain_http() -> bool:
    return os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")


@lru_cache(maxsize=8)
def _client(bucket: str, environment: tuple[tuple[str, str], ...]) -> obstore.store.S3Store:  # noqa: ARG001 (cache key)
    """The client of a bucket; shared as long as the environment's ``AWS_*`` stay."""
    try:
        from obstore.store import S3Store
    except ModuleNotFoundError as error:
        raise missing_package(error, where=f"s3://{bucket}", extra="s3") from error
    return S3Store(bucket, client_options={"allow_http": _plain_http()})


@contextmanager
def _object_errors(path: Path) -> Iterator[None]:
    """Turn an error of the client into a StoreError; what does or does not exist passes."""
    from obstore.exceptions import AlreadyExistsError, BaseError

    try:
        yield
    except AlreadyExistsError:
        raise
    except (BaseError, FileNotFoundError, PermissionError) as error:
        if isinstance(error, FileNotFoundError) and "<Code>NoSuchBucket<" not in str(error):
            raise
        # Without its cause: the server's text may repeat a key or a token.
        raise _store_error(str(error), path) from None


def _store_error(text: str, path: Path) -> StoreError:
    """The error behind an answer of the server, or of one that did not come."""
    code, status = _CODE.search(text), _STATUS.search(text)
    reason = code[1] if code else f"HTTP {status[1]}" if status else "no answer"
    what, hint = "the object store can't be used", "check AWS_ENDPOINT_URL and the network"
    if reason in _CREDENTIALS:
        what, hint = "the object store refuses access", "renew the AWS_* credentials, run again"
    elif reason == "NoSuchBucket":
        hint = "create the bucket, or correct the address"
    elif reason in {"NotImplemented", "HTTP 501"}:
        hint = "use a server that honours If-None-Match of PUT"
    return StoreError(f"{what} ({reason})", where=str(path), hint=hint)
