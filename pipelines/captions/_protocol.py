"""The seam of captioning: posters in, one caption or status each out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pipelines.captions._posters import Poster


@dataclass(frozen=True, slots=True)
class Caption:
    """Caption of one poster, or the reason that it has none."""

    #: One of `CAPTION_STATUSES`.
    status: str
    #: A single line; None unless `ok`.
    text: str | None = None


@runtime_checkable
class Captioner(Protocol):
    """Describes posters.

    Equal posters get equal captions, whatever else is asked in the same call.
    ``pipelines.captions.testing.CaptionerContract`` is the class that an implementation's tests
    inherit.
    """

    #: Value of the column ``captioner``.
    name: str

    def caption(self, posters: Sequence[Poster]) -> list[Caption]:
        """Caption posters, in their order; :func:`read_image` reads every one of them."""

    def metadata(self) -> dict[str, Any]:
        """Assumptions, and the model with its number of calls; JSON-ready."""
