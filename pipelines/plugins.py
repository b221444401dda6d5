"""Classes of a seam by name: our own, entry points, ``module:Class``, ``file.py:Class``."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from pipelines.errors import ConfigError, UnderstudyError
from pipelines.hints import nearest

__all__ = [
    "LazyClasses",
    "closing",
    "closing_on_error",
    "code_of",
    "construct",
    "open_plugin",
    "plugin_class",
    "plugin_names",
    "plugin_object",
]

T = TypeVar("T")
#: Packages of this project: their classes state versions that are raised with every change.
_OURS = ("pipelines", "sim", "orchestration", "understudy")


class LazyClasses(Mapping[str, T]):
    """Classes by name, each given as ``module:Class`` and imported when it is first asked for."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = dict(places)

    def __getitem__(self, name: str) -> T:
        module, _, attribute = self._places[name].partition(":")
        found: T = getattr(importlib.import_module(module), attribute)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def plugin_names(group: str) -> list[str]:
    """Names of the entry points of a group, alphabetical."""
    return sorted(entry.name for entry in entry_points(group=group))


def plugin_object(
    name: str, own: Mapping[str, str], *, kind: str, group: str | None = None
) -> tuple[Any, str]:
    """What a name stands for, a class or another object, and how errors name it.

    Parameters and errors are those of :func:`plugin_class`.
    """
    found = {entry.name: entry.value for entry in entry_points(group=group)} if group else {}
    found |= own
    place = found.get(name, name)
    if ":" not in place:
        hint = nearest(name, found)
        raise ConfigError(
            f"unknown {kind}", where=repr(name), hint=f"{hint}; or module:Class of your own"
        )
    where = f"{kind} {name}" if name == place else f"{kind} {name} ({place})"
    module, _, attribute = place.rpartition(":")
    try:
        holder = _file(Path(module)) if module.endswith(".py") else _module(module)
    except Exception as error:
        raise ConfigError(
            f"the module can't be imported ({type(error).__name__}: {error})", where=where
        ) from error
    target = getattr(holder, attribute, None)
    if target is None:
        names = [n for n in vars(holder) if not n.startswith("_")]
        hint = nearest(attribute, names) if names else "the module has no names"
        raise ConfigError(f"the module has no {attribute}", where=where, hint=hint)
    return target, where


def plugin_class(
    name: str,
    own: Mapping[str, str],
    *,
    kind: str,
    methods: Sequence[str],
    implement: str,
    group: str | None = None,
) -> type[Any]:
    """The class behind a name.

    Parameters
    ----------
    name
        One of `own`, the name of an entry point of `group`, ``module:Class``, or
        ``path/to/file.py:Class``.
    own
        The project's classes by name, as ``module:Class``; imported on first use.
    kind
        Name of the seam in errors, such as ``recommender``.
    methods
        Methods that it must have.
    implement
        The protocol that errors point to.
    group
        Entry-point group of other distributions; None: there is none.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), its module can't be imported, or it is
        no class with these methods.
    """
    target, where = plugin_object(name, own, kind=kind, group=group)
    attribute = getattr(target, "__name__", name.rpartition(":")[2])
    if not inspect.isclass(target):
        raise ConfigError(
            f"{attribute} is not a class ({type(target).__name__})",
            where=where,
            hint=f"give module:Class; implement {implement}",
        )
    missing = [n for n in methods if not callable(getattr(target, n, None))]
    if missing:
        raise ConfigError(
            f"the class has no {' and no '.join(missing)}",
            where=where,
            hint=f"implement {implement}",
        )
    cls: type[Any] = target
    return cls


def open_plugin(
    name: str,
    own: Mapping[str, str],
    options: Mapping[str, Any],
    *,
    offered: Mapping[str, Any] | None = None,
    **seam: Any,
) -> Any:
    """An object of the class behind a name, with the keyword arguments ``options``.

    Arguments of ``offered`` are given to a class whose parameters name them. ``seam`` has the other
    parameters of :func:`plugin_class`; errors are those of it and of :func:`construct`.
    """
    cls = plugin_class(name, own, **seam)
    wanted = inspect.signature(cls).parameters
    given = {key: value for key, value in (offered or {}).items() if key in wanted}
    return construct(cls, f"{seam['kind']} {name}", {**options, **given})


def construct(target: Any, where: str, options: Mapping[str, Any]) -> Any:
    """An object of a class, with these keyword arguments.

    Raises ConfigError if an argument is unknown or missing, or the class raises.
    """
    try:
        inspect.signature(target).bind(**options)
    except TypeError as error:
        known = ", ".join(inspect.signature(target).parameters) or "none"
        raise ConfigError(str(error), where=where, hint=f"options: {known}") from None
    try:
        return target(**options)
    except UnderstudyError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the class can't be opened ({type(error).__name__}: {error})", where=where
        ) from error


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

    >>> code_of(LazyClasses)
    '1'
    """
    stated = str(getattr(cls, "code_version", "1"))
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if cls.__module__.partition(".")[0] in _OURS or not file:
        return stated
    return f"{stated}+{hashlib.sha256(Path(file).read_bytes()).hexdigest()[:8]}"


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
