"""Original files become raw tables: the world's list of files, then each source's tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pipelines import __version__
from pipelines.config import Settings
from pipelines.sources import SOURCES, ingest_build, inventory_build, open_source
from pipelines.stages._stage import Inputs, Report, Stage
from pipelines.store import Build
from pipelines.worlds import prepare_world

__all__ = ["ORIGINALS", "STAGES"]

_WORLD = "raw.world_files"
#: Asset of the original files as they are on disk.
ORIGINALS = "sources.original_files"


@contextmanager
def world_files(inputs: Inputs, settings: Settings, report: Report) -> Iterator[Build]:
    """Find, generate or download the world's files and list them."""
    world = prepare_world(settings)
    report.shown.update(world=world.name, folder=str(world.folder))
    yield inventory_build(world, settings)


def _source(name: str) -> Stage:
    source = SOURCES[name]

    @contextmanager
    def tables(inputs: Inputs, settings: Settings, report: Report) -> Iterator[Build]:
        licence = source.licence
        report.shown.update(licence=f"{licence.name}: {licence.url}", terms=licence.terms)
        world, store = prepare_world(settings), inputs.context.store
        with ingest_build(name, world, store, settings) as build:
            yield build

    def left_out(settings: Settings, _: str | None) -> str | None:
        folder = prepare_world(settings).folder
        return (
            None
            if open_source(name, settings).present(folder)
            else f"no files of this source in {folder}"
        )

    return Stage(
        datasets=tuple(source.datasets),
        code_version=source.code_version,
        settings=lambda settings: settings.identity("ingest"),
        open=tables,
        name=f"ingest_{name}",
        after=(_WORLD, *source.needs),
        kinds=(name, "parquet"),
        left_out=left_out,
        retry=True,
        description=f"Read the original files of {name}. Terms: {source.licence.terms}",
    )


STAGES = [
    Stage(
        datasets=(_WORLD,),
        code_version=__version__,
        open=world_files,
        name="world_files",
        # Another folder has other files; what changes in it is seen by looking.
        settings=lambda settings: {
            **settings.identity("world"),
            "folder": str(settings.world.folder),
            "own": list(settings.data.own.named),
        },
        after=(ORIGINALS,),
        kinds=("file", "parquet"),
        # No retries of the step: the download has its own, which go on where it stopped.
        asset_description="Original files of this run: generated (sample world), given (a folder) "
        "or downloaded and verified; with checksums and terms.",
    ),
    *map(_source, SOURCES),
]
