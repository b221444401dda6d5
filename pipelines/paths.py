"""Folders of a process: homes (of this machine or an object store), the user's and the caches."""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path, PosixPath
from typing import Any, NoReturn, Self

from pipelines.errors import ConfigError, StoreError

__all__ = [
    "ObjectPath",
    "cache_folder",
    "ensure_user_home",
    "home_path",
    "needs_folder",
    "scratch_of",
]

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

    The home itself if it is a folder, else one folder per address in :func:`cache_folder`.
    """
    if not isinstance(home, ObjectPath):
        return home
    digest = hashlib.sha256(str(home).encode()).hexdigest()[:12]
    return cache_folder() / "homes" / f"{home.bucket}-{digest}"


def cache_folder() -> Path:
    """Folder of this user for files that can be made again; it need not exist.

    ``understudy`` in ``$XDG_CACHE_HOME`` (default ``~/.cache``), or in :func:`_private_folder`
    where that can't be written.
    """
    caches = os.environ.get("XDG_CACHE_HOME")
    with suppress(RuntimeError):  # neither HOME nor an entry of the user in the password file
        caches = caches or str(Path.home() / ".cache")
    if caches and _writable(Path(caches)):
        return Path(caches) / "understudy"
    return _private_folder() / ".cache" / "understudy"


def ensure_user_home() -> None:
    """Set HOME and LOGNAME for this process and those that it starts, where there is none.

    A container's user may have no entry in the password file, no HOME, or the root folder as HOME.
    Libraries (dbt, Matplotlib, Torch) fail there when they look for their caches. A home that can
    be read is left, even if it can't be written: it has the user's credentials and models.
    """
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises where there is none
    usable = Path(home).is_absolute() and os.access(home, os.R_OK | os.X_OK)
    if not usable or (home == "/" and not os.access(home, os.W_OK)):
        os.environ["HOME"] = str(_private_folder())
    elif not _writable(Path(home)):
        # Matplotlib would make a temporary folder in each process, and Surprise fail.
        caches = _private_folder() / ".cache"
        os.environ.setdefault("MPLCONFIGDIR", str(caches / "matplotlib"))
        os.environ.setdefault("SURPRISE_DATA_FOLDER", str(caches / "surprise"))
    if not any(os.environ.get(name) for name in ("LOGNAME", "USER", "LNAME", "USERNAME")):
        import pwd

        try:
            pwd.getpwuid(os.getuid())
        except KeyError:
            os.environ["LOGNAME"] = f"user{os.getuid()}"


def _writable(folder: Path) -> bool:
    """True if the folder, or the nearest existing one above it, can be written."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


@cache
def _private_folder() -> Path:
    """Folder of this user in the temporary folder, the same for each process."""
    folder = Path(tempfile.gettempdir()) / f"understudy-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022:
        return folder
    # The name has been taken by another user.
    return Path(tempfile.mkdtemp(prefix=f"understudy-{os.getuid()}-"))
