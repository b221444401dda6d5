"""Vectors of every domain's items and personas."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import polars as pl

from pipelines import embeddings
from pipelines.config import Settings
from pipelines.domains import DOMAINS
from pipelines.stages._stage import Inputs, Report, Stage

__all__ = ["STAGES"]


def _stage(source: str, target: str, key: str, text: Callable[[pl.DataFrame], pl.Series]) -> Stage:
    def make(inputs: Inputs, settings: Settings, report: Report) -> pl.DataFrame:
        """Encode every row's text; unchanged texts keep their vectors."""
        frame, previous = inputs["rows"].read(), inputs.previous
        if previous is not None and previous.manifest.code_version != embeddings.CODE_VERSION:
            previous = None
        embedder = embeddings.load_embedder(settings.embedding, settings.runtime)
        report.stats.update(model=embedder.name, dimension=embedder.dimension)
        vectors = embeddings.embed_table(
            frame.select(key),
            key,
            text(frame),
            embedder,
            previous=previous.read() if previous is not None else None,
            # Parts of another code are not taken up.
            folder=inputs.scratch / embeddings.CODE_VERSION,
        )
        shutil.rmtree(inputs.scratch, ignore_errors=True)
        return vectors

    return Stage(
        datasets=(target,),
        inputs={"rows": source},
        identity=("embedding",),
        code_version=embeddings.CODE_VERSION,
        make=make,
        kinds=("huggingface", "parquet"),
        preview=False,
        by_cohort=key == "persona_id",
        # Personas alone can be added: whoever is in a release has a vector.
        all_cohorts=key == "persona_id",
    )


STAGES = [
    *(
        _stage(
            f"{name}.personas",
            f"{name}.persona_embeddings",
            "persona_id",
            embeddings.persona_text,
        )
        for name in DOMAINS
    ),
    *(
        _stage(f"{name}.items", f"{name}.item_embeddings", "item_id", embeddings.item_text)
        for name in DOMAINS
    ),
]
