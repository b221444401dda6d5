"""Free-text tags: a few users label some of what they rate, mostly with its keywords."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipelines.sample_world._films import Film, keyword_numbers
from pipelines.sample_world._ratings import RatingBlock, RatingModel
from pipelines.sample_world._text import lexicon

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["TagBlock", "TagModel"]

#: Share of users who tag at all (ml-latest-small: 58 of 610), and how much of what they rate.
_TAGGERS = 0.095
_TAGGED = 0.2
#: Share of tags that are an opinion and not a keyword.
_OPINIONS = 0.2


@dataclass(frozen=True, slots=True)
class TagBlock:
    """Tags of consecutive users, by user, film and text.

    ``text`` is a position in :attr:`TagModel.texts`; ``film`` one in the catalogue.
    """

    user: NDArray[np.int64]
    film: NDArray[np.int64]
    text: NDArray[np.int64]
    timestamp: NDArray[np.int64]


class TagModel:
    """The tags of a world.

    Parameters
    ----------
    films
        The catalogue, by MovieLens id.
    model
        Its ratings.

    Attributes
    ----------
    texts
        Every tag there is, in alphabetical order without regard to case.
    """

    def __init__(self, films: Sequence[Film], model: RatingModel) -> None:
        self._model = model
        keywords = list(keyword_numbers())
        opinions = list(lexicon()["tags"])
        # Some people capitalise.
        texts = keywords + [k.capitalize() for k in keywords] + opinions
        order = sorted(range(len(texts)), key=lambda i: (texts[i].lower(), texts[i]))
        self.texts = [texts[i] for i in order]
        self._place = np.empty(len(texts), dtype=np.int64)
        self._place[order] = np.arange(len(texts))
        self._n_keywords, self._n_opinions = len(keywords), len(opinions)
        self._count = np.array([len(f.keywords) for f in films], dtype=np.int64)
        self._table = np.zeros((len(films), max(1, int(self._count.max()))), dtype=np.int64)
        for i, film in enumerate(films):
            self._table[i, : len(film.keywords)] = film.keywords

    def block(self, block: int, ratings: RatingBlock) -> TagBlock:
        """Tags on the ratings of one block of users."""
        rng = self._model.rng(block, "tags")
        user = ratings.user - ratings.user[0]
        people = int(user[-1]) + 1
        # A tagger's zeal differs: most tag a little, a few tag nearly everything.
        zeal = np.where(rng.random(people) < _TAGGERS, rng.beta(0.6, 0.6 / _TAGGED, people), 0.0)
        capitals = rng.random(people) < 0.2
        row = np.flatnonzero(rng.random(len(user)) < zeal[user])
        count = 1 + rng.poisson(0.9, len(row))
        row = np.repeat(row, count)
        film = ratings.film[row]
        which = self._table[film, (rng.random(len(row)) * self._count[film]).astype(np.int64)]
        which = which + np.where(capitals[user[row]], self._n_keywords, 0)
        opinion = (rng.random(len(row)) < _OPINIONS) | (self._count[film] == 0)
        said = 2 * self._n_keywords + rng.integers(0, self._n_opinions, len(row))
        text = self._place[np.where(opinion, said, which)]
        # The same tag twice on a film says nothing more.
        key = row * len(self.texts) + text
        key, first = np.unique(key, return_index=True)
        row, text = row[first], text[first]
        time = ratings.timestamp[row] + rng.integers(5, 120, len(row))
        return TagBlock(ratings.user[row], ratings.film[row], text, time)
