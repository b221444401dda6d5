"""Implementations of a seam by name: built-in, registered, of entry points, ``module:Class``."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from pipelines.errors import ConfigError, UnderstudyError
from pipelines.extras import extra_of, missing_package
from pipelines.hints import nearest

__all__ = ["Registry", "closing", "closing_on_error", "code_of"]

T = TypeVar("T")
#: Packages of this project: their classes state versions that are raised with every change.
_OURS = ("pipelines", "sim", "orchestration", "understudy")


class Registry(Mapping[str, Any]):
    """Implementations of a seam by name.

    As a mapping it holds the built-in ones, imported on first use. An item may have any name that
    :meth:`__getitem__` takes.

    Parameters
    ----------
    kind
        Name of the seam in errors, such as ``recommender``.
    builtin
        The project's own, as ``module:Class``.
    group
        Entry-point group of other distributions, if there is one.
    methods
        Methods that an implementation's class has; none: it is no class.
    implement
        Protocol that errors point to.

    Examples
    --------
    >>> raters = Registry("rater", {"mean": "pipelines.raters.statistical.baselines:MeanRater"})
    >>> @raters.register("mine")
    ... class Mine: ...
    >>> list(raters), raters.names(), raters["mine"].__name__
    (['mean'], ['mean', 'mine'], 'Mine')
    """

    def __init__(
        self,
        kind: str,
        builtin: Mapping[str, str],
        *,
        group: str | None = None,
        methods: Sequence[str] = (),
        implement: str = "",
    ) -> None:
        self.kind, self._group, self._methods, self._implement = kind, group, methods, implement
        self._builtin = dict(builtin)
        self._registered: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers a class under a name, in this process.

        Raises ConfigError if a built-in one has the name.
        """
        if name in self._builtin:
            raise ConfigError(f"the {self.kind} {name} is built in", hint="take another name")

        def decorate(target: T) -> T:
            self._registered[name] = target
            return target

        return decorate

    def names(self) -> list[str]:
        """Names: built-in, registered, then those of entry points."""
        return list(dict.fromkeys([*self._builtin, *self._registered, *sorted(self._entries())]))

    def checked(self, name: str) -> str:
        """The name, if it is known or has the form of a place.

        Raises ValueError otherwise: settings are validated with it, without an import.
        """
        # Entry points last: reading those of all distributions takes some 20 ms.
        place = re.fullmatch(r"(?:[\w.]+|.+\.py):\w+", name)
        given = name in self._builtin or name in self._registered or place
        if not given and name not in self._entries():
            raise ValueError(
                f"one of {', '.join(self.names())}, or module:Class or file.py:Class of your own"
            )
        return name

    def __getitem__(self, name: Any) -> Any:
        """Class or function behind a name.

        A name is built-in, registered, that of an entry point, ``module:Class``, or
        ``path/to/file.py:Class``; a class stands for itself.

        Raises
        ------
        ConfigError
            If there is none of that name (naming the nearest), its module can't be imported, or it
            is no class with the seam's methods.
        """
        place = self._registered.get(name) or self._builtin.get(name)
        place = place or (self._entries().get(name, name) if isinstance(name, str) else name)
        where = f"{self.kind} {getattr(name, '__name__', name)}"
        if not isinstance(place, str):
            return self._conforming(place, where)
        if ":" not in place:
            hint = f"{nearest(name, self.names())}; or module:Class of your own"
            raise ConfigError(f"unknown {self.kind}", where=repr(name), hint=hint)
        where += "" if name == place else f" ({place})"
        return self._conforming(_imported(place, where), where)

    def open(
        self, name: Any, /, *, offered: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """Object of the class behind a name, with these keyword arguments.

        Those of ``offered`` are given to a class whose parameters name them.

        Raises
        ------
        ConfigError
            As for ``registry[name]``; if an argument is unknown or missing, or the class raises.
        """
        target, where = self[name], f"{self.kind} {getattr(name, '__name__', name)}"
        parameters = inspect.signature(target).parameters
        options |= {key: value for key, value in (offered or {}).items() if key in parameters}
        try:
            inspect.signature(target).bind(**options)
        except TypeError as error:
            accepted = ", ".join(dict.fromkeys([*parameters, *(offered or {})])) or "none"
            raise ConfigError(str(error), where=where, hint=f"options: {accepted}") from None
        try:
            return target(**options)
        except UnderstudyError:
            raise
        except Exception as error:
            raise ConfigError(
                f"the class can't be opened ({type(error).__name__}: {error})", where=where
            ) from error

    def __contains__(self, name: object) -> bool:
        return name in self._builtin

    def __iter__(self) -> Iterator[str]:
        return iter(self._builtin)

    def __len__(self) -> int:
        return len(self._builtin)

    def _entries(self) -> dict[str, str]:
        entries = entry_points(group=self._group) if self._group else ()
        return {entry.name: entry.value for entry in entries}

    def _conforming(self, target: Any, where: str) -> Any:
        hint = f"implement {self._implement}"
        if self._methods and not inspect.isclass(target):
            what = getattr(target, "__name__", where.rpartition(":")[2].rstrip(")"))
            raise ConfigError(
                f"{what} is not a class ({type(target).__name__})",
                where=where,
                hint=f"give module:Class; {hint}",
            )
        missing = [n for n in self._methods if not callable(getattr(target, n, None))]
        if missing:
            raise ConfigError(
                f"the class has no {' and no '.join(missing)}", where=where, hint=hint
            )
        return target


@contextmanager
def closing(made: T) -> Iterator[T]:
    """An object that may have a ``close``, which is called afterwards."""
    try:
        yield made
    finally:
        close = getattr(made, "close", None)
        if close is not None:
            close()


@contextmanager
def closing_on_error(opened: T) -> Iterator[T]:
    """An open object that is closed if the block raises; else its new owner closes it."""
    try:
        yield opened
    except BaseException:
        opened.close()  # type: ignore[attr-defined]
        raise


def code_of(cls: type[Any]) -> str:
    """Identity of a class's code: its ``code_version``, and a hash of its file if it isn't ours.

    What was made with a class of somebody's own is made again after an edit of its file.

    >>> code_of(Registry)
    '1'
    """
    stated = str(getattr(cls, "code_version", "1"))
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if cls.__module__.partition(".")[0] in _OURS or not file:
        return stated
    return f"{stated}+{hashlib.sha256(Path(file).read_bytes()).hexdigest()[:8]}"


def _imported(place: str, where: str) -> Any:
    """Attribute of a module or file, given as ``module:name``."""
    module, _, attribute = place.rpartition(":")
    try:
        holder = _file(Path(module)) if module.endswith(".py") else _module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and extra_of(error.name or ""):
            raise missing_package(error, where=where) from error
        raise ConfigError(
            f"the module can't be imported ({type(error).__name__}: {error})", where=where
        ) from error
    try:
        return getattr(holder, attribute)
    except AttributeError:
        names = [n for n in vars(holder) if not n.startswith("_")]
        hint = nearest(attribute, names) if names else "the module has no names"
        raise ConfigError(f"the module has no {attribute}", where=where, hint=hint) from None


def _module(name: str) -> ModuleType:
    """A module that is installed, or else lies in the folder that the command runs in."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)  # workers that are given its objects look it up, too
        importlib.invalidate_caches()
    return importlib.import_module(name)


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    name = f"understudy_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    spec.loader.exec_module(module)
    return module
