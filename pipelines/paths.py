"""Paths of homes and of the user's caches, and addresses of releases on an object store."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path, PosixPath

from pipelines.errors import ConfigError

__all__ = ["ObjectPath", "cache_folder", "ensure_user_home", "home_path", "release_path"]

#: A path made from an address has one slash only.
_ADDRESS = re.compile(r"([a-z][a-z0-9+.-]+):(?:/{1,2}|$)")


class ObjectPath(PosixPath):
    """A name on an object store, ``s3://<bucket>/<prefix>/…``, joined and split like a path.

    >>> path = ObjectPath("s3://bucket/team") / "releases"
    >>> str(path), path.bucket, path.key
    ('s3://bucket/team/releases', 'bucket', 'team/releases')
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
        return super().__str__().replace("s3:/", "s3://", 1)


def home_path(home: Path | str) -> Path:
    """The absolute path of a home; ConfigError for an address, because homes are folders."""
    text = str(home)
    if _ADDRESS.match(text):
        raise ConfigError(
            "a home is a folder on a local disk",
            where=_ADDRESS.sub(r"\1://", text, count=1),
            hint="give a folder; `understudy release push s3://…` copies a release to an object "
            'store, and open_release("s3://…/movies") reads it there',
        )
    return Path(text).expanduser().absolute()


def release_path(text: str) -> Path:
    """An absolute path, or an :class:`ObjectPath` if the text is an address ``s3://…``.

    ConfigError for addresses of other kinds, and for one that names no bucket.
    """
    scheme = _ADDRESS.match(text)
    if scheme is None:
        return Path(text).expanduser().absolute()
    path = ObjectPath(text)
    if scheme[1] != "s3" or len(path.parts) == 1:
        raise ConfigError(
            "releases are on S3-compatible object stores only, in a bucket",
            where=text,
            hint="write s3://<bucket>/<prefix>",
        )
    return path


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
    """Return True if the folder, or the nearest existing one above it, can be written."""
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
