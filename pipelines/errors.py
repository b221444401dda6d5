"""Every error the project raises on purpose, as one tree.

``UnderstudyError``
├── ``ConfigError``     a setting is missing, unknown or out of range (exit 2)
│   └── ``MissingPackageError``  an optional package is not installed; an ``ImportError`` too
├── ``SourceError``     an original file is unreadable, incomplete or not what it claims (exit 3)
│   └── ``SourceUnavailableError``  a remote source did not answer; worth another try
├── ``ContractError``   rows break a table's contract or a blocking check (exit 4)
├── ``StoreError``      the versioned store can't be read or written (exit 5)
│   ├── ``LockedError``     another process holds what this one needs
│   └── ``IntegrityError``  stored bytes are not the bytes that were committed
├── ``ReleaseError``    a release can't be found, made or trusted (exit 6)
│   └── ``UnknownTableError``  a release has no table of this name; a ``KeyError`` too
├── ``EngineError``     the model run as a whole: dead, over budget (exit 7)
└── ``AnswerError``     one row of a model run: truncated, invalid, refused (exit 7)

A row fault is a listed, counted row; a run fault is one of these. The text of each is one
line: what happened, where, and what to do. ``permanent`` marks faults that trying again without a
change cannot help: no retry mechanism may retry them.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "AnswerError",
    "ConfigError",
    "ContractError",
    "EngineError",
    "IntegrityError",
    "LockedError",
    "MissingPackageError",
    "NoChoiceSetError",
    "ReleaseError",
    "SourceError",
    "SourceUnavailableError",
    "StoreError",
    "UnderstudyError",
    "UnknownTableError",
]


class UnderstudyError(Exception):
    """A fault named in terms a user can act on.

    Parameters
    ----------
    what
        Fault, without a trailing full stop.
    where
        The file, table, row or setting it happened at.
    hint
        Remedy.
    details
        Extra facts for machines (``--json``): sample rows, expected and found values.
        Never secrets.

    Examples
    --------
    >>> print(UnderstudyError("the archive is corrupt", where="ml.zip", hint="download it again"))
    the archive is corrupt: ml.zip (download it again)
    """

    exit_code: ClassVar[int] = 1
    permanent: ClassVar[bool] = True

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        hint: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        # Libraries that pass a worker's error on wrap it in its own class: `type(error)(error)`.
        self.what = str(what)
        self.where = where
        self.hint = hint
        self.details = details or {}
        super().__init__(what, where, hint)

    def __str__(self) -> str:
        text = self.what
        if self.where:
            text += f": {self.where}"
        if self.hint:
            text += f" ({self.hint})"
        return " ".join(text.split())

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only arguments don't survive the default exception pickling, and Dagster's
        # multiprocess executor sends exceptions between processes.
        return _rebuild, (type(self), self.what, self.where, self.hint, self.details)


def _rebuild(
    cls: type[UnderstudyError],
    what: str,
    where: str | None,
    hint: str | None,
    details: dict[str, Any],
) -> UnderstudyError:
    return cls(what, where=where, hint=hint, details=details)


class ConfigError(UnderstudyError):
    """A setting is missing, unknown, of the wrong type or out of its range."""

    exit_code = 2


class MissingPackageError(ConfigError, ImportError):
    """An optional package is not installed; the hint names the extra that has it."""


class SourceError(UnderstudyError):
    """An original file or service is missing, unreadable, or not what it claims to be."""

    exit_code = 3


class SourceUnavailableError(SourceError):
    """A remote source did not answer (timeouts, 5xx, rate limits): worth another try later."""

    permanent = False


class ContractError(UnderstudyError):
    """Rows break a table's contract, or a blocking check did not pass."""

    exit_code = 4


class NoChoiceSetError(ContractError):
    """The products and the tree give no choice set: the tables, which are optional, are absent."""


class StoreError(UnderstudyError):
    """The versioned store can't be read or written (missing, full disk, permissions)."""

    exit_code = 5


class LockedError(StoreError):
    """Another process holds the run lock or the warehouse; wait for it or stop it."""

    permanent = False


class IntegrityError(StoreError):
    """Stored bytes differ from those that were committed."""


class ReleaseError(UnderstudyError):
    """A release is unknown, incomplete, inconsistent, or refused by its blocking checks."""

    exit_code = 6


class UnknownTableError(ReleaseError, KeyError):
    """A release has no table of this name; a ``KeyError``, as mappings raise."""


class EngineError(UnderstudyError):
    """A model run as a whole failed: engine dead, budget spent, model not loadable."""

    exit_code = 7


class AnswerError(UnderstudyError):
    """A model's answer is unusable: truncated, invalid or refused. Never a rating."""

    exit_code = 7
