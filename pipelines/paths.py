"""Addresses of homes: a folder of this machine, or a bucket and prefix of an object store."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path, PosixPath
from typing import Any, NoReturn, Self

from pipelines.errors import ConfigError, StoreError

__all__ = ["ObjectPath", "home_path", "needs_folder", "scratch_of"]

#: A path made of an address has one slash only.
_SCHEME = re.compile(r"s3:/{1,2}(?=[^/])")


class ObjectPath(PosixPath):
    """A name on an object store, ``s3://<bucket>/<prefix>/…``.

    It is joined, split and shown like any path. Operations on files are a StoreError: code that is
    not made for an object store would otherwise use a folder called ``s3:``.

    Examples
    --------
    >>> path = home_path("s3://bucket/team/home") / "refs"
    >>> str(path), path.bucket, path.key
    ('s3://bucket/team/home/refs', 'bucket', 'team/home/refs')
    """

    @property
    def bucket(self) -> str:
        """Name of the bucket."""
        return self.parts[1]

    @property
    def key(self) -> str:
        """Name within the bucket; empty for the bucket itself."""
        return "/".join(self.parts[2:])

    def __str__(self) -> str:
        return _SCHEME.sub("s3://", super().__str__(), count=1)

    def absolute(self) -> Self:
        """The path itself."""
        return self

    def expanduser(self) -> Self:
        """The path itself."""
        return self

    def resolve(self, strict: bool = False) -> Self:  # noqa: ARG002 (as of Path)
        """The path itself."""
        return self

    def _refused(self, *_: Any, **__: Any) -> NoReturn:
        needs_folder(self, "this")
        raise AssertionError


def needs_folder(home: Path, what: str) -> None:
    """Make sure that a home is a folder; StoreError, naming ``what`` needs one, if not."""
    if isinstance(home, ObjectPath):
        raise StoreError(
            f"{what} needs a folder on this machine",
            where=str(home),
            hint="set UNDERSTUDY_HOME to a folder for this command",
        )


for _name in (
    *("stat", "lstat", "exists", "is_dir", "is_file", "is_symlink", "iterdir", "glob", "rglob"),
    *("open", "read_bytes", "read_text", "write_bytes", "write_text", "mkdir", "touch"),
    *("rename", "replace", "unlink", "rmdir", "symlink_to", "hardlink_to", "chmod"),
):
    setattr(ObjectPath, _name, ObjectPath._refused)


def home_path(home: Path | str) -> Path:
    """The absolute path of a home, or an :class:`ObjectPath` if it is an address ``s3://…``.

    ConfigError if an address names no bucket.

    >>> home_path("s3://bucket/home").name, type(home_path("home")).__name__
    ('home', 'PosixPath')
    """
    text = str(home)
    if not _SCHEME.match(text):
        if text.startswith("s3:"):
            raise ConfigError("no bucket", where=text, hint="write s3://<bucket>/<prefix>")
        return Path(text).expanduser().absolute()
    return ObjectPath(text)


def scratch_of(home: Path) -> Path:
    """Folder of this machine for what a home keeps beside its tables and releases.

    The home itself if it is a folder, else one folder per address below ``$XDG_CACHE_HOME``
    (default ``~/.cache``).
    """
    if not isinstance(home, ObjectPath):
        return home
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    digest = hashlib.sha256(str(home).encode()).hexdigest()[:12]
    return cache / "understudy" / "homes" / f"{home.bucket}-{digest}"
