"""Terms that files, models and tables come under."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Licence"]


@dataclass(frozen=True, slots=True)
class Licence:
    """The terms a source's files come under.

    Attributes
    ----------
    name
        Short name, such as ``GroupLens research terms``.
    url
        Address of the terms.
    terms
        One or two sentences: what they allow and ask for.
    citation
        Citation of the data, or an empty string.
    """

    name: str
    url: str
    terms: str
    citation: str = ""

    @property
    def line(self) -> str:
        """Name, terms and address in one line."""
        return f"{self.name}: {self.terms} {self.url}".strip()
