"""Paths of homes, which are folders, and addresses of releases on an object store."""

from __future__ import annotations

import re
from pathlib import Path, PosixPath

from pipelines.errors import ConfigError

__all__ = ["ObjectPath", "home_path", "release_path"]

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
