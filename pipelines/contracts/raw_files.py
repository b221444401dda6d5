"""Contracts of what users bring as files of their own: category trees and personas."""

from __future__ import annotations

import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import Model, column
from pipelines.contracts.raw import Rejected

__all__ = ["RAW_FILES"]


class TaxonomyCategories(Model):
    """Categories of a tree as its file lists them, one path each."""

    path: pl.String = column(
        "Names from the top level down, ` > ` between them, as published.",
        unique=True,
        str_length={"min_value": 1},
    )
    name: pl.String = column("Name of the last level.", str_length={"min_value": 1})
    depth: pl.Int64 = column("Levels of the path (count).", ge=1)


class PersonaFileRows(Model):
    """Personas as the files state them: a text, attributes, or both."""

    file: pl.String = column("Name of the file, relative to the data folder.")
    line: pl.Int64 = column("Line in the file; the first line is 1.", ge=1)
    text: pl.String = column(
        "Description of the persona, as prose; null if there are attributes only.", null=True
    )
    name: pl.String = column("Name, if the file states one.", null=True)
    age: pl.String = column("Age or age band, as published.", null=True)
    gender: pl.String = column("Sex or gender, as published.", null=True)
    job: pl.String = column("Job or field of work, as published.", null=True)
    writer: pl.String = column("Author or model of the text, if the file states it.", null=True)
    attributes: pl.String = column(
        "All attributes with their published names, as a JSON object of texts."
    )


#: Raw tables of given files by dataset name.
RAW_FILES: dict[str, Contract] = contracts(
    "raw",
    taxonomy_categories=(TaxonomyCategories, "path"),
    taxonomy_rejected=(Rejected, "file", "line", "reason"),
    persona_files=(PersonaFileRows, "file", "line"),
    persona_files_rejected=(Rejected, "file", "line", "reason"),
)
