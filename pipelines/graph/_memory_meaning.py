"""Which edges a rating stands for, as the builder of the graph makes them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pipelines.config import GraphSettings
from pipelines.graph._schema import DomainSchema, EdgeType
from pipelines.scales import SCALES, RatingScale, rescale

__all__ = ["RatingMeaning"]

#: The scale on which thresholds and rating nodes are.
_GRAPH_SCALE = SCALES["1-5"]


@dataclass(frozen=True)
class RatingMeaning:
    """What ratings on one scale are in a domain's graph.

    Attributes
    ----------
    schema
        The domain's edge types.
    settings
        Thresholds of liked and disliked, on 1-5.
    scale
        The scale of the ratings.
    """

    schema: DomainSchema
    settings: GraphSettings
    scale: RatingScale

    def interactions(self, rating: float) -> Iterator[int]:
        """Numbers of the edge types that lead from the user to the item."""
        liked, disliked = self._mood(rating)
        true = {"all": True, "liked": liked, "disliked": disliked}
        for number, edge in enumerate(self.schema.edges):
            if edge.origin == "interactions" and true.get(edge.where, False):
                yield number

    def nodes(self, user: str, rating: float) -> Iterator[tuple[int, EdgeType, str]]:
        """Number and type of the edges through a node of the user's own, and its id."""
        liked, disliked = self._mood(rating)
        on_five = rescale(rating, self.scale, _GRAPH_SCALE)
        labels = {
            # The nearest whole rating, ties up, as in the triples.
            "ratings": str(math.floor(on_five + 0.5 + 1e-9)),
            "sentiments": ("neutral", "positive", "negative")[liked - disliked],
        }
        for number, edge in enumerate(self.schema.edges):
            if edge.origin in labels:
                yield number, edge, f"{edge.node}:{user}:{labels[edge.origin]}"

    def _mood(self, rating: float) -> tuple[bool, bool]:
        on_five = rescale(rating, self.scale, _GRAPH_SCALE)
        return on_five >= self.settings.liked_from, on_five <= self.settings.disliked_to
