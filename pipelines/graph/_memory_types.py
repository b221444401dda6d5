"""What a graph memory answers with."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Basis", "Neighbour", "Parts", "RatingOf"]

#: What a neighbour was found by: `paths` join it to the query; none does, but to the `user`;
#: or there is only its `embedding` (always so if the query has no edge that a path begins with).
Basis = Literal["paths", "user", "embedding"]
#: Whose rating a neighbour carries.
RatingOf = Literal["own", "others"]


@dataclass(frozen=True, slots=True)
class Parts:
    """What the score of a neighbour y of the query x for the user u is made of.

    ``score = alpha * pathsim + (1 - alpha) * user_similarity + embedding_weight * cosine``
    (SimUSER, formula 5 and appendix D); a part that is None counts as 0.

    Attributes
    ----------
    pathsim
        s(x, y), 0-1: paths between the two items over the mean of their paths to themselves.
    user_similarity
        s(u, y), 0-1, by the same counts; None if there is no user or the search is by
        embedding alone.
    cosine
        Of the two node embeddings, -1 to 1; None if either item has none.
    """

    pathsim: float
    user_similarity: float | None
    cosine: float | None


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An item that was retrieved, and why.

    Attributes
    ----------
    item_id, title, year
        Which item.
    rating
        On the memory's scale; None if nobody in the graph rated it.
    rating_of
        ``own``: the user's own; ``others``: the mean of everybody else's; None: no rating.
    score
        What neighbours are ranked by; see :class:`Parts`.
    parts
        The three similarities in it, before their weights.
    basis
        What it was found by.
    paths
        Share of each meta-path in ``parts.pathsim`` (they sum to it), largest first; only
        those that join the two items.
    """

    item_id: str
    title: str
    year: int | None
    rating: float | None
    rating_of: RatingOf | None
    score: float
    parts: Parts
    basis: Basis
    paths: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)
