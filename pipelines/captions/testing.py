"""Conformance check of captioners."""

from __future__ import annotations

import hashlib
import io

import orjson

from pipelines.captions import Captioner, Poster
from pipelines.statuses import CAPTION_STATUSES

__all__ = ["check_captioner", "poster_of"]


def poster_of(colour: str, item: str = "ml:1", size: tuple[int, int] = (40, 60)) -> Poster:
    """A poster of one colour (a name that Pillow knows)."""
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", size, colour).save(file, "JPEG")
    data = file.getvalue()
    return Poster(item, data, hashlib.sha256(data).hexdigest(), "ok")


def check_captioner(captioner: Captioner) -> None:
    """Assert the behaviour required of every :class:`pipelines.captions.Captioner`.

    It captions posters of one colour; AssertionError names what is wrong.
    """
    assert isinstance(captioner, Captioner)
    assert captioner.name
    assert orjson.dumps(captioner.metadata())
    assert captioner.caption([]) == []
    posters = [poster_of(c, f"ml:{n}") for n, c in enumerate(("red", "blue", "white"))]
    together = captioner.caption(posters)
    assert len(together) == len(posters)
    for caption in together:
        assert caption.status in CAPTION_STATUSES
        assert bool(caption.text) == (caption.status == "ok"), "a text goes with the status ok"
    assert captioner.caption(posters[::-1])[::-1] == together, "the order changes captions"
    assert captioner.caption(posters[:1]) == together[:1], "other posters change a caption"
    broken = Poster("ml:2", b"\xff\xd8 damaged", "0" * 64, "ok")
    first, none, third = captioner.caption([poster_of("red"), broken, poster_of("red", "ml:3")])
    assert none.status not in ("ok", "missing")
    assert none.text is None
    assert first == third, "a broken picture changes others' captions"
