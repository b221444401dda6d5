"""The seam of captioning: posters in, one caption or status each out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pipelines.captions._posters import Poster

__all__ = ["STATUSES", "Caption", "Captioner"]

#: How captioning of an item can end. Only `ok` has a caption. `missing`: there is no poster;
#: `corrupt`: it is torn or no picture; `too_large`: in bytes or pixels; `animated`; `cmyk`: inks
#: without a profile, whose colours can't be told. The others are those of a model's answers.
STATUSES = (
    "ok",
    "missing",
    "corrupt",
    "too_large",
    "animated",
    "cmyk",
    "truncated",
    "invalid",
    "refused",
    "engine_error",
)


@dataclass(frozen=True, slots=True)
class Caption:
    """What became of one poster."""

    #: One of `STATUSES`.
    status: str
    #: One line; None unless `ok`.
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
        """One caption per poster, in order. Posters are pictures that :func:`read_image` reads."""
        ...

    def metadata(self) -> dict[str, Any]:
        """What is assumed, and which model was asked how often; JSON-ready."""
        ...
