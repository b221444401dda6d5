"""Conformance tests for captioners: inherit, and return yours from ``make``."""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod

import orjson

from pipelines.captions import Captioner, Poster
from pipelines.statuses import CAPTION_STATUSES

__all__ = ["CaptionerContract", "poster_of"]


def poster_of(colour: str, item: str = "ml:1", size: tuple[int, int] = (40, 60)) -> Poster:
    """A poster of one colour (a name that Pillow knows)."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "JPEG")
    data = file.getvalue()
    return Poster(item, data, hashlib.sha256(data).hexdigest(), "ok")


class CaptionerContract(ABC):
    """Behaviour required of every :class:`pipelines.captions.Captioner`."""

    @abstractmethod
    def make(self) -> Captioner:
        """The captioner under test."""

    def test_it_says_what_it_is(self) -> None:
        """A name, and facts that can be stored."""
        captioner = self.make()
        assert isinstance(captioner, Captioner)
        assert captioner.name
        assert orjson.dumps(captioner.metadata())

    def test_each_poster_has_one_caption_or_status(self) -> None:
        """In order; a text where and only where the status is `ok`."""
        posters = [poster_of(c, f"ml:{n}") for n, c in enumerate(("red", "blue", "white"))]
        found = self.make().caption(posters)
        assert len(found) == len(posters)
        for caption in found:
            assert caption.status in CAPTION_STATUSES
            assert bool(caption.text) == (caption.status == "ok")

    def test_a_caption_depends_on_its_poster_alone(self) -> None:
        """Alone, among others and in another order it is the same."""
        posters = [poster_of(c, f"ml:{n}") for n, c in enumerate(("red", "blue", "white"))]
        together = self.make().caption(posters)
        assert self.make().caption(posters[::-1])[::-1] == together
        assert self.make().caption(posters[:1]) == together[:1]

    def test_a_broken_picture_has_a_status(self) -> None:
        """The posters around it are described all the same."""
        broken = Poster("ml:2", b"\xff\xd8 damaged", "0" * 64, "ok")
        found = self.make().caption([poster_of("red"), broken, poster_of("red", "ml:3")])
        assert found[1].status not in ("ok", "missing")
        assert found[1].text is None
        assert found[0] == found[2]

    def test_no_posters_have_no_captions(self) -> None:
        """An empty call gives an empty list."""
        assert self.make().caption([]) == []
