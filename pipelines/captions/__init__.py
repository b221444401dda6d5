"""Captions of items' posters: what an agent sees of an item (SimUSER, section 3.2.2).

A :class:`Captioner` describes one poster at a time. The statistical one reports facts of its pixels
and never guesses what is in the picture; the model one asks a language model that takes images.
"""

from pipelines.captions._caption import caption_items
from pipelines.captions._posters import (
    Poster,
    poster_files,
    posters_digest,
    read_image,
    read_posters,
)
from pipelines.captions._protocol import Caption, Captioner
from pipelines.captions._registry import open_captioner
from pipelines.captions._statistical import StatisticalCaptioner, facts_of

#: Bumped whenever the same posters and settings give other captions.
CODE_VERSION = "1"

__all__ = [
    "CODE_VERSION",
    "Caption",
    "Captioner",
    "Poster",
    "StatisticalCaptioner",
    "caption_items",
    "facts_of",
    "open_captioner",
    "poster_files",
    "posters_digest",
    "read_image",
    "read_posters",
]
