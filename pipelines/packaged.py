"""Data that comes with the package: YAML files, and a small release of the sample world."""

from __future__ import annotations

import logging
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.config import Settings
    from pipelines.store import Release

__all__ = ["SAMPLE_HOME", "open_stored", "packaged_yaml"]

_log = logging.getLogger(__name__)

#: Home with small releases, written by ``docs/sample_release.py``; read only.
SAMPLE_HOME = Path(__file__).with_name("sample_release")


@cache
def packaged_yaml(package: str, name: str) -> Any:
    """Content of a YAML file in the folder ``data`` of a package, read once: do not change it.

    >>> packaged_yaml("pipelines.products", "facets.yaml")["material"]["question"]
    'Which material should it be made of?'
    """
    import yaml

    return yaml.safe_load(files(package).joinpath("data", name).read_text("utf-8"))


def open_stored(reference: str | Path, settings: Settings) -> Release:
    """Open a release of the home, or one that comes with the package where there is no home.

    Parameters
    ----------
    reference
        As of :meth:`pipelines.store.Store.release`. ``latest`` is the newest release of the
        configured name.
    settings
        Their ``runtime.home`` is the home. If it is not set (by an option, the environment or a
        file) and the default folder holds no tables, the packaged releases are opened, and a line
        is logged.

    Raises
    ------
    ReleaseError
        If there is no such release.
    """
    from pipelines.store import Store

    ref = f"{settings.release.name}@latest" if str(reference) == "latest" else reference
    store = Store(settings.runtime.home)
    named = "home" in settings.runtime.model_fields_set
    if named or (store.home / "data").exists() or not _is_packaged(ref):
        return store.release(ref)
    release = Store(SAMPLE_HOME).release(ref)
    _announce(str(release), str(settings.runtime.home))
    return release


def _is_packaged(ref: str | Path) -> bool:
    """Return True if the name, and the version if one is given, is that of a packaged release."""
    name, _, version = str(ref).partition("@")
    prefix = f"{name}@{'' if version == 'latest' else version}"
    return any(p.stem.startswith(prefix) for p in (SAMPLE_HOME / "releases").glob("*@*.json"))


@cache
def _announce(release: str, home: str) -> None:
    """Log once per process that a packaged release is used."""
    _log.warning(
        "no release in %s: opened %s, a small one of a generated world that comes with the package "
        "(`understudy run` makes your own)",
        home,
        release,
    )
