"""Conformance tests for writers: inherit, and return yours from ``make``."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod

import numpy as np
import polars as pl

from pipelines.personas._attributes import sample_attributes
from pipelines.personas._writers import Writer
from pipelines.statuses import STATUSES

__all__ = ["WriterContract"]

_TEMPLATE_TOKENS = re.compile(r"<\|.*?\|>|\[/?INST\]|</?s>|[{}\x00-\x1f]")


class WriterContract(ABC):
    """Conformance tests of a :class:`pipelines.personas.Writer`."""

    #: Personas that the tests describe (count); fewer for a slow model.
    size = 40
    #: True if equal attributes give equal texts; a model that samples may say no.
    deterministic = True

    @abstractmethod
    def make(self) -> Writer:
        """The writer under test."""

    def attributes(self) -> pl.DataFrame:
        """Attributes that the tests describe."""
        return sample_attributes(5, "contract", np.arange(self.size, dtype=np.int64))

    def test_there_is_one_row_per_persona_with_text_exactly_where_ok(self) -> None:
        """Columns ``description, status``; no text without the status ok, and none missing."""
        written = self.make().write(self.attributes())
        assert written.columns == ["description", "status"]
        assert written.height == self.size
        assert set(written["status"]) <= set(STATUSES)
        assert (
            written.filter(pl.col("description").is_null() == (pl.col("status") == "ok")).height
            == 0
        )

    def test_nobody_gives_no_text(self) -> None:
        """Zero rows are not an error."""
        written = self.make().write(self.attributes().head(0))
        assert (written.height, written.columns) == (0, ["description", "status"])

    def test_texts_fit_the_contract_and_hold_no_template_tokens(self) -> None:
        """40 to 2,000 characters, no control characters, slots or chat tokens."""
        for text in self.make().write(self.attributes())["description"].drop_nulls():
            assert 40 <= len(text) <= 2000, text
            assert not _TEMPLATE_TOKENS.search(text), text

    def test_the_text_names_who_it_is_about(self) -> None:
        """Name, age, and job or hobby appear."""
        attributes = self.attributes()
        written = self.make().write(attributes)
        for row, text in zip(attributes.iter_rows(named=True), written["description"], strict=True):
            if text is None:
                continue
            assert row["name"] in text
            assert re.search(rf"\b{row['age']}\b", text), text
            assert row["job"].lower() in text.lower() or row["hobby"].lower() in text.lower()

    def test_two_personas_are_not_described_alike(self) -> None:
        """No text twice."""
        texts = self.make().write(self.attributes())["description"].drop_nulls()
        assert texts.n_unique() == len(texts)

    def test_a_text_does_not_depend_on_the_batch(self) -> None:
        """The whole, in one go or in two, in either order."""
        if not self.deterministic:
            return
        writer, attributes = self.make(), self.attributes()
        together = writer.write(attributes)
        cut = self.size // 3
        parts = [writer.write(attributes[cut:]), writer.write(attributes[:cut])]
        assert pl.concat(reversed(parts)).equals(together)

    def test_the_writer_has_a_name(self) -> None:
        """It goes into the ``writer`` column."""
        assert self.make().name
