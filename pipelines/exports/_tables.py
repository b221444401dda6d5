"""Formats that hold every table as Parquet: a Hugging Face data set, and Croissant metadata."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import polars as pl

from pipelines.errors import ConfigError, SourceUnavailableError
from pipelines.exports._export import Export, licences
from pipelines.extras import missing_package
from pipelines.graph import load_schema
from pipelines.packaged import packaged_yaml
from pipelines.paths import ObjectPath
from pipelines.progress import add
from pipelines.store.files import sha256_of

if TYPE_CHECKING:
    from pipelines.store import Release


@dataclass(frozen=True, slots=True)
class _Part:
    """A Parquet file of a table in the export."""

    table: str
    path: str
    bytes: int
    sha256: str


def write_huggingface(export: Export) -> None:
    """A data set for the Hugging Face hub: a config per table, and the card as ``README.md``.

    ``datasets.load_dataset(folder, "items", split="full")`` opens it.
    """
    from huggingface_hub import DatasetCard, DatasetCardData

    release = export.release
    _write_tables(export)
    rows = sum(release.tables[table].rows for table in release.tables)
    sizes = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"))
    data = DatasetCardData(
        pretty_name=f"Understudy {release}",
        license="other",
        license_name="terms-of-the-sources",
        license_link="TERMS.md",
        task_categories=["other"],
        tags=["recommender-systems", "simulated-users", "personas", "synthetic", release.name],
        size_categories=[next((name for most, name in sizes if rows < most), "1M<n<10M")],
        configs=[
            {
                "config_name": table,
                "data_files": [{"split": "full", "path": f"data/{table}.parquet"}],
                **({"default": True} if table == "items" else {}),
            }
            for table in release.tables
        ],
    )
    DatasetCard(f"---\n{data.to_yaml()}\n---\n\n{release.card()}").save(export.folder / "README.md")


def write_croissant(export: Export) -> None:
    """Tables as Parquet with ``croissant.json``: Croissant 1.1, files by SHA-256."""
    from pipelines.contracts import CONTRACTS

    release = export.release
    parts = _write_tables(export)
    distribution = [
        {
            "@type": "cr:FileObject",
            "@id": part.path,
            "name": part.path,
            "contentUrl": part.path,
            "contentSize": f"{part.bytes} B",
            "encodingFormat": "application/x-parquet",
            "sha256": part.sha256,
        }
        for part in parts
    ]
    records = []
    for part in parts:
        table, source = part.table, {"fileObject": {"@id": part.path}}
        contract = CONTRACTS.get(release.tables[table].dataset)
        meanings = {c.name: c.description for c in contract.columns()} if contract else {}
        schema = pl.read_parquet_schema(export.folder / part.path)
        records.append(
            {
                "@type": "cr:RecordSet",
                "@id": table,
                "name": table,
                "description": contract.description if contract else table,
                "key": [
                    {"@id": f"{table}/{c}"} for c in release.snapshot(table).manifest.key or ()
                ],
                "field": [
                    {
                        "@type": "cr:Field",
                        "@id": f"{table}/{column}",
                        "name": column,
                        "description": meanings.get(column) or column,
                        **_croissant_type(dtype),
                        "source": {**source, "extract": {"column": column}},
                    }
                    for column, dtype in schema.items()
                ],
            }
        )
    named = licences(release) if not release.world.startswith("sample") else {}
    document = {
        "@context": packaged_yaml("pipelines.exports", "croissant.yaml"),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "name": f"understudy-{release.name}",
        "description": f"Simulated users for recommender systems: release {release}, made from the "
        f"world {release.world}. The card and the terms are in CARD.md and TERMS.md.",
        "url": f"urn:understudy:{release}",
        "version": _semantic(release.version),
        "datePublished": release.created_at,
        "license": [licence.url or licence.name for licence in named.values()] or ["TERMS.md"],
        "citeAs": "\n".join(licence.citation for licence in named.values() if licence.citation)
        or f"Understudy, release {release}",
        "creator": {"@type": "sc:Organization", "name": "Understudy"},
        "keywords": ["recommender systems", "simulated users", "personas"],
        "isLiveDataset": False,
        "distribution": distribution,
        "recordSet": records,
    }
    (export.folder / "croissant.json").write_bytes(
        orjson.dumps(document, option=orjson.OPT_INDENT_2)
    )


def push_to_hub(folder: Path, repository: str, release: Release, *, permitted: bool) -> str:
    """Upload an export in the format ``huggingface``, and return the data set's address.

    The token comes from ``HF_TOKEN``. New data sets are private.

    Raises
    ------
    ConfigError
        No token; or the release holds rows of sources whose terms restrict passing on, and
        ``permitted`` does not say that it is permitted.
    SourceUnavailableError
        The hub can't be reached or refuses.
    """
    token = os.environ.get("HF_TOKEN")
    if not release.world.startswith("sample") and not permitted:
        raise ConfigError(
            "the release holds rows of sources that may restrict redistribution",
            where=", ".join(licences(release)),
            hint="read TERMS.md; --may-redistribute confirms that you may",
        )
    if not token:
        raise ConfigError("no hub token", where="HF_TOKEN", hint="set it in the environment")
    try:
        from huggingface_hub import HfApi
        from huggingface_hub.errors import HfHubHTTPError
    except ModuleNotFoundError as error:
        raise missing_package(error, where="--push") from error
    hub = HfApi(token=token)
    try:
        address = hub.create_repo(repository, repo_type="dataset", private=True, exist_ok=True)
        hub.upload_folder(
            repo_id=repository, folder_path=folder, repo_type="dataset",
            commit_message=f"{release}",
        )  # fmt: skip
    except (HfHubHTTPError, OSError) as error:
        raise SourceUnavailableError(
            f"the upload to the hub failed ({error})",
            where=repository,
            hint="the export is on disk",
        ) from error
    return str(address)


def _write_tables(export: Export) -> list[_Part]:
    """Every table as ``data/<table>.parquet``.

    The release's own file where there is one on this machine and nothing is left out, else its
    rows.
    """
    (export.folder / "data").mkdir()
    parts = []
    for table in export.release.tables:
        snapshot = export.release.snapshot(table)
        file = export.folder / "data" / f"{table}.parquet"
        if table in export.left_out:
            export.ids[table] = {"file": f"data/{table}.parquet", "key": "item_id"}
            rows = snapshot.scan().drop(export.left_out[table])
        elif table == "graph_triples" and "items" in export.left_out:
            rows = public_facts(export)
        elif len(files := snapshot.files()) == 1 and not isinstance(files[0], ObjectPath):
            shutil.copyfile(files[0], file)
            rows = None
        else:
            rows = snapshot.scan()
        if rows is not None:
            rows.sink_parquet(file, engine="streaming", compression="zstd")
        name = str(file.relative_to(export.folder))
        parts.append(_Part(table, name, file.stat().st_size, sha256_of(file)))
        add(snapshot.rows)
    return parts


def public_facts(export: Export) -> pl.LazyFrame:
    """Triples of the release, but for those made of columns that are left out."""
    domain = export.release.tables["items"].dataset.partition(".")[0]
    hidden = []
    for edge in load_schema(domain).edges:
        if edge.origin == "items" and edge.column in export.left_out.get("items", ()):
            hidden.append((edge.head_type, edge.relation, edge.tail_type))
            if edge.inverse:
                hidden.append((edge.tail_type, edge.inverse, edge.head_type))
    columns = ["head_type", "relation", "tail_type"]
    excluded = pl.LazyFrame(hidden, schema=dict.fromkeys(columns, pl.String), orient="row")
    triples = export.release.snapshot("graph_triples").scan()
    return triples.join(excluded, on=columns, how="anti", maintain_order="left")


def _semantic(version: str) -> str:
    """A content hash as the build part of a version number, as Croissant requires."""
    return f"1.0.0+{version}"


def _croissant_type(dtype: pl.DataType) -> dict[str, Any]:
    if isinstance(dtype, pl.List):
        return {**_croissant_type(dtype.inner), "isArray": True, "arrayShape": "-1"}  # type: ignore[arg-type]
    if dtype.is_integer():
        return {"dataType": "cr:Int64"}
    if dtype.is_float():
        return {"dataType": "cr:Float32" if dtype == pl.Float32 else "cr:Float64"}
    if dtype == pl.Boolean:
        return {"dataType": "sc:Boolean"}
    if dtype == pl.Date:
        return {"dataType": "sc:Date"}
    return {"dataType": "sc:DateTime" if isinstance(dtype, pl.Datetime) else "sc:Text"}
