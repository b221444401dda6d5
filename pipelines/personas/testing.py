"""Conformance check of writers."""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from pipelines.personas._attributes import sample_attributes
from pipelines.personas._writers import Writer
from pipelines.statuses import STATUSES

__all__ = ["check_writer"]

_TEMPLATE_TOKENS = re.compile(r"<\|.*?\|>|\[/?INST\]|</?s>|[{}\x00-\x1f]")


def check_writer(writer: Writer, *, size: int = 40, deterministic: bool = True) -> None:
    """Assert the behaviour required of every :class:`pipelines.personas.Writer`.

    It describes ``size`` personas (count; fewer for a slow model). Equal attributes must give equal
    texts, in whatever batches, unless ``deterministic`` is false. AssertionError names what is
    wrong.
    """
    assert writer.name
    attributes = sample_attributes(5, "contract", np.arange(size, dtype=np.int64))
    none = writer.write(attributes.head(0))
    assert (none.height, none.columns) == (0, ["description", "status"])
    written = writer.write(attributes)
    assert written.columns == ["description", "status"]
    assert written.height == size
    assert set(written["status"]) <= set(STATUSES)
    described = written["description"].is_not_null()
    assert (described == (written["status"] == "ok")).all(), "a text goes with the status ok"
    texts = written["description"].drop_nulls()
    assert texts.n_unique() == len(texts), "two personas are described alike"
    for row, text in zip(attributes.iter_rows(named=True), written["description"], strict=True):
        if text is None:
            continue
        assert 40 <= len(text) <= 2000, text
        assert not _TEMPLATE_TOKENS.search(text), text
        assert row["name"] in text
        assert re.search(rf"\b{row['age']}\b", text), text
        assert row["job"].lower() in text.lower() or row["hobby"].lower() in text.lower()
    if deterministic:
        cut = size // 3
        parts = [writer.write(attributes[:cut]), writer.write(attributes[cut:])]
        assert pl.concat(parts).equals(written), "a text depends on the batch"
