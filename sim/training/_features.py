"""Features of items and personas that policies generalise over; read from the release's tables.

A softmax over 10,000 free item vectors learns an item's worth only by recommending it. With
fixed item features a policy learns one weight per feature and persona instead, and every rating
informs the scores of all items (Li et al., "A contextual-bandit approach to personalized news
article recommendation", WWW 2010, section 5.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from sim.recommenders import (
    MeanRatingRecommender,
    genre_tables,
    known_items,
    rating_stats,
    text_vectors,
)

if TYPE_CHECKING:
    from sim.environment import World
    from sim.recommenders import Floats, Ints

Singles: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Features:
    """Features of a release's items and personas; every column has mean 0."""

    #: Genres (0 or 1), year, damped mean and number (logarithm) of training ratings in standard
    #: deviations, and principal components of the text vectors, of shape (items, features). Tables
    #: that the release lacks give no columns.
    items: Singles
    #: Liked and disliked genres, genders (0 or 1), age in standard deviations, principal components
    #: of the text vectors, of shape (personas, features).
    personas: Singles
    #: Training and test items of the users that personas are matched to, which training never
    #: recommends, as it learns from the ratings of what it recommends: numbers of shape (personas,
    #: h), padded with -1.
    known: Ints

    @classmethod
    def read(cls, world: World, components: int) -> Features:
        """Read the features of an opened release; `components` limits those of text vectors."""
        release, cast = world.release, world.cast
        genres, likes, dislikes = genre_tables(release)
        year = world.catalogue.frame["year"].cast(float).to_numpy()
        items = [genres, _standard(year)]
        if "item_stats" in release:
            damped = MeanRatingRecommender().fit(release)
            count, _ = rating_stats(release)
            items += [_standard(damped.means), _standard(np.log1p(count))]
        if "item_embeddings" in release:
            items.append(
                _principal(text_vectors(release, "item_embeddings", "item_id"), components)
            )
        ages = np.where(cast.ages > 0, cast.ages, np.nan).astype(np.float64)
        genders = np.eye(len(cast.GENDERS))[cast.genders][:, 1:]
        personas = [likes, dislikes, genders, _standard(ages)]
        if "persona_embeddings" in release:
            vectors = text_vectors(release, "persona_embeddings", "persona_id")
            personas.append(_principal(vectors, components))
        return cls(_centred(items), _centred(personas), known_items(release, ("train", "test")))


def _centred(columns: list[Floats]) -> Singles:
    joined = np.column_stack(columns)
    return np.asarray(joined - joined.mean(axis=0), np.float32)


def _standard(values: Floats) -> Floats:
    """In standard deviations from the mean; unknown (NaN) values are at the mean.

    >>> _standard(np.array([1.0, 3.0, np.nan]))
    array([-1.,  1.,  0.])
    """
    valid = ~np.isnan(values)
    if not valid.any():
        return np.zeros(len(values))
    spread = values[valid].std()
    off = np.where(valid, values - values[valid].mean(), 0.0)
    return np.asarray(off / (spread if spread > 0 else 1.0))


def _principal(vectors: Floats, components: int) -> Floats:
    """Leading principal components, with a mean variance of 1; fewer where the rank is lower."""
    valid = np.asarray(vectors.any(axis=1))
    if not valid.any():
        return np.zeros((len(vectors), 0))
    off = np.where(valid[:, None], vectors - vectors[valid].mean(axis=0), 0.0)
    values, directions = np.linalg.eigh(off.T @ off / max(int(valid.sum()), 1))
    values, directions = values[::-1], directions[:, ::-1]
    count = max(min(components, int((values > 1e-9).sum())), 1)
    # The sign of a direction is arbitrary; fixed so that equal input gives equal bits.
    signs = np.sign(directions[np.abs(directions).argmax(axis=0), range(len(values))])
    out = off @ (directions * signs)[:, :count]
    return np.asarray(out / np.sqrt(max(float(values[:count].mean()), 1e-9)))
