"""Terms that files, models and tables come under."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Licence"]


@dataclass(frozen=True, slots=True)
class Licence:
    """The terms a source's files come under."""

    #: Short name, such as ``GroupLens research terms``.
    name: str
    #: Address of the terms.
    url: str
    #: One or two sentences: what they allow and ask for.
    terms: str
    #: Citation of the data, or an empty string.
    citation: str = ""

    @property
    def line(self) -> str:
        """Name, terms and address in one line."""
        return f"{self.name}: {self.terms} {self.url}".strip()
