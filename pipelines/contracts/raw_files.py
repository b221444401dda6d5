"""Contracts of what users bring as files of their own: category trees and personas."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts.raw import Rejected

__all__ = ["RAW_FILES"]


class _Model(pa.DataFrameModel):
    class Config:
        strict = True
        ordered = True


class TaxonomyCategories(_Model):
    """Categories of a tree as its file lists them, one path each."""

    path: pl.String = pa.Field(
        unique=True,
        str_length={"min_value": 1},
        description="Names from the top level down, ` > ` between them, as published.",
    )
    name: pl.String = pa.Field(str_length={"min_value": 1}, description="Name of the last level.")
    depth: pl.Int64 = pa.Field(ge=1, description="Levels of the path (count).")


class PersonaFileRows(_Model):
    """Personas as the files state them: a text, attributes, or both."""

    file: pl.String = pa.Field(description="Name of the file, relative to the data folder.")
    line: pl.Int64 = pa.Field(ge=1, description="Line in the file; the first line is 1.")
    text: pl.String = pa.Field(
        nullable=True,
        description="Who the persona is, as prose; null if there are attributes only.",
    )
    name: pl.String = pa.Field(nullable=True, description="Name, if the file states one.")
    age: pl.String = pa.Field(nullable=True, description="Age or age band, as published.")
    gender: pl.String = pa.Field(nullable=True, description="Sex or gender, as published.")
    job: pl.String = pa.Field(nullable=True, description="Job or field of work, as published.")
    writer: pl.String = pa.Field(
        nullable=True, description="Who or what wrote the text, if the file states it."
    )
    attributes: pl.String = pa.Field(
        description="All attributes with their published names, as a JSON object of texts."
    )


#: Raw tables of given files by dataset name.
RAW_FILES: dict[str, Contract] = contracts(
    "raw",
    taxonomy_categories=(TaxonomyCategories, "path"),
    taxonomy_rejected=(Rejected, "file", "line", "reason"),
    persona_files=(PersonaFileRows, "file", "line"),
    persona_files_rejected=(Rejected, "file", "line", "reason"),
)
