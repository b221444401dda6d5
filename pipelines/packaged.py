"""Data files that packages bring along."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["packaged_yaml"]


@cache
def packaged_yaml(package: str, name: str) -> Any:
    """Content of a YAML file in the folder ``data`` of a package, read once: do not change it.

    >>> packaged_yaml("pipelines.products", "facets.yaml")["material"]["question"]
    'Which material should it be made of?'
    """
    import yaml

    return yaml.safe_load(files(package).joinpath("data", name).read_text("utf-8"))
