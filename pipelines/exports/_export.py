"""Export of a release: the formats by name, what is left out, and the folder's placement."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import orjson

from pipelines.errors import ConfigError
from pipelines.extras import missing_package
from pipelines.progress import counting
from pipelines.seams import EXPORTS, SOURCES
from pipelines.store.files import placed

if TYPE_CHECKING:
    from pipelines.store import Release

#: Columns with texts that a source's terms do not let others pass on, by dataset.
_TEXTS: dict[str, tuple[str, ...]] = {
    "movies.items": (
        *("overview", "actors", "directors", "keywords", "collection", "original_title"),
        "poster_path",
    ),
    "books.items": ("description",),
    "games.items": ("tags", "specs", "sentiment"),
    "products.items": ("description", "features"),
    "products.products": ("description", "features"),
}


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Options of an export."""

    #: Source of the ratings in recommender libraries' formats; never both, so that simulated and
    #: human ratings are not confused.
    users: Literal["personas", "people"] = "personas"
    #: Column of the scores that is a persona's rating: a seeded draw, the mean or the mode.
    rating: Literal["sample", "expected", "mode"] = "sample"
    #: True if texts whose terms forbid redistribution are included.
    texts: bool = False
    #: For formats with played episodes: number, maximum length (steps) and seed of the episodes.
    episodes: int = 100
    steps: int = 50
    seed: int = 0


@dataclass
class Export:
    """An export that is being written."""

    #: The release.
    release: Release
    #: Folder to write to; it takes its name when everything is written.
    folder: Path
    #: Options of the export.
    options: ExportOptions
    #: Columns without their texts, by table.
    left_out: Mapping[str, tuple[str, ...]]
    #: By table with texts left out: the file and column that hold its keys.
    ids: dict[str, dict[str, str]] = field(default_factory=dict)


Exporter: TypeAlias = Callable[[Export], None]


def left_out(release: Release, *, texts: bool = False) -> dict[str, tuple[str, ...]]:
    """Columns of a release whose texts are not exported, by table; none of a generated world."""
    if texts or release.world.startswith("sample"):
        return {}
    omitted = {}
    for table, lock in release.tables.items():
        schema = {c["name"] for c in release.snapshot(table).manifest.schema}
        if columns := tuple(c for c in _TEXTS.get(lock.dataset, ()) if c in schema):
            omitted[table] = columns
    return omitted


def export_release(
    release: Release,
    form: str,
    target: Path,
    options: ExportOptions | None = None,
) -> dict[str, Any]:
    """Write a release in a format, with its card, its terms and, if needed, the join script.

    Returns
    -------
    dict
        ``release``, ``world``, ``format``, ``scale`` (of the ratings), ``options``, ``left_out``
        (per table: columns, and where its keys are) and ``files`` (relative path to bytes), as in
        the folder's ``export.json``.

    Raises
    ------
    ConfigError
        Unknown format, or something is at ``target``.
    ReleaseError
        The release lacks a table that the format needs.
    StoreError
        The folder can't be written; nothing is left behind.
    """
    options = options or ExportOptions()
    write: Exporter = EXPORTS[form]
    if target.exists():
        raise ConfigError("already exists", where=str(target), hint="choose another folder")
    with placed(target, "the export") as folder, counting(f"exporting {release}"):
        folder.mkdir()
        export = Export(release, folder, options, left_out(release, texts=options.texts))
        try:
            write(export)
        except ModuleNotFoundError as error:
            raise missing_package(error, where=f"export to {form}") from error
        (folder / "CARD.md").write_text(release.card(), "utf-8")
        (folder / "TERMS.md").write_text(_terms(export), "utf-8")
        if export.ids:
            shutil.copyfile(Path(__file__).with_name("join_texts.py.txt"), folder / "join_texts.py")
        sizes = {
            str(path.relative_to(folder)): path.stat().st_size
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        document = {
            "release": str(release),
            "world": release.world,
            "format": form,
            "scale": _scale(release, options),
            "options": {name: getattr(options, name) for name in options.__slots__},
            "left_out": {
                table: {"columns": export.left_out[table], **where}
                for table, where in export.ids.items()
            },
            "files": sizes,
        }
        (folder / "export.json").write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    return document


def _scale(release: Release, options: ExportOptions) -> str | None:
    """Scale of the exported ratings, such as ``1-10``; None where there are none."""
    table = "interactions" if options.users == "people" else "preference_scores"
    if table not in release.tables or not release.tables[table].rows:
        return None
    return str(release.snapshot(table).scan().select("scale").first().collect().item())


def licences(release: Release) -> dict[str, Any]:
    """Terms (:class:`pipelines.licences.Licence`) of the sources behind a release, by source."""
    raw = [dataset for dataset in release.lineage if dataset.startswith("raw.")]
    return {
        name: SOURCES[name].licence
        for name in SOURCES
        if any(dataset.startswith(f"raw.{name}") for dataset in raw)
    }


def _terms(export: Export) -> str:
    release = export.release
    lines = [f"# Terms of {release}", ""]
    if release.world.startswith("sample"):
        lines += [
            "The original files of this release were generated: its items, people and ratings are "
            "invented. Terms of real sources do not apply to it."
        ]
    else:
        lines += ["Items and people's ratings are subject to the terms of these sources:", ""]
        for name, licence in licences(release).items():
            cite = f" Cite: {licence.citation}" if licence.citation else ""
            lines.append(f"- **{name}**: {licence.line}{cite}")
    for table, columns in export.left_out.items():
        if table in export.ids:
            lines += [
                "",
                f"Left out of {table}, because its source does not allow redistribution: "
                f"{', '.join(columns)}. With the source's files, make a release (`understudy "
                "run`) and add these columns with `python join_texts.py RELEASE`.",
            ]
    return "\n".join(lines) + "\n"
