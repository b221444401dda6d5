"""The reading side of a graph memory: look up, retrieve, explain."""

from __future__ import annotations

from pipelines.config import GraphSettings
from pipelines.errors import ContractError
from pipelines.graph._memory_base import Base
from pipelines.graph._memory_blocks import Kept, Vector
from pipelines.graph._memory_growth import Growth
from pipelines.graph._memory_meaning import RatingMeaning
from pipelines.graph._memory_retrieve import Query, others_mean, search
from pipelines.graph._memory_tables import Catalogue, Ratings
from pipelines.graph._memory_types import Neighbour
from pipelines.graph._memory_user import user_counts
from pipelines.scales import RatingScale

__all__ = ["KEPT_USERS", "MemoryReader"]

#: Users whose counts a memory keeps until something is added (count).
KEPT_USERS = 8


class MemoryReader:
    """Everything a memory does that changes nothing; see :class:`pipelines.graph.GraphMemory`.

    Parameters
    ----------
    base
        The shared graph.
    catalogue, ratings
        Titles, and who rated what, of the base.
    settings
        Weights, thresholds and number of neighbours.
    """

    def __init__(
        self,
        base: Base,
        catalogue: Catalogue,
        ratings: Ratings,
        settings: GraphSettings,
    ) -> None:
        self._base = base
        self._catalogue = catalogue
        self._ratings = ratings
        self._settings = settings
        self._meaning = RatingMeaning(base.index.schema, settings, ratings.scale)
        self._growth = Growth(base)
        self._owns = True
        self._users = Kept(KEPT_USERS)

    @property
    def domain(self) -> str:
        """Such as ``movies``."""
        return self._base.index.domain

    @property
    def scale(self) -> RatingScale:
        """Scale of ratings in answers and additions."""
        return self._ratings.scale

    @property
    def settings(self) -> GraphSettings:
        """Weights, thresholds and number of neighbours."""
        return self._settings

    @property
    def edges_added(self) -> int:
        """Edges added since the graph was opened (count, inverses not included)."""
        return self._growth.edges

    def title(self, item: str) -> str:
        """Title of an item.

        Raises
        ------
        ContractError
            If the item is unknown, naming it.
        """
        return self._catalogue.titles[self._item(item)]

    def retrieve(self, user: str | None, item: str, k: int | None = None) -> list[Neighbour]:
        """The items most like one item, from where a user stands, with their ratings.

        The score is ``alpha·s(x, y) + (1 - alpha)·s(u, y) + embedding_weight·cos(e_x, e_y)``.
        An item from which no path leads anywhere is answered for by its embedding alone, and
        neighbours say so (`basis`). Ties are broken by id.

        Parameters
        ----------
        user
            A human user, persona or added user; None leaves s(u, y) out.
        item
            The query item.
        k
            How many (at least 1); default the settings' ``k``.

        Returns
        -------
        At most `k` neighbours, best first, never the item itself.

        Raises
        ------
        ContractError
            If the user or item is unknown, naming it, or `k` is below 1.
        """
        wanted = self._settings.k if k is None else k
        if wanted < 1:
            raise ContractError("at least one neighbour must be asked for", where=f"k={wanted}")
        code = self._item(item)
        reader = None if user is None else self._user(user)
        counts = None if reader is None else self._user_counts(reader)
        query = Query(self._base, self._growth, self._settings, code, counts)
        names = self._base.index.ids(self._base.index.item_type)
        out = []
        for found in search(query, wanted):
            rating = None if reader is None else self._own(reader, found.item)
            mean = others_mean(self._ratings, self._growth, found.item) if rating is None else None
            out.append(
                Neighbour(
                    item_id=names[found.item],
                    title=self._catalogue.titles[found.item],
                    year=self._catalogue.years[found.item],
                    rating=mean if rating is None else rating,
                    rating_of="own" if rating is not None else None if mean is None else "others",
                    score=found.score,
                    parts=found.parts,
                    basis=found.basis,
                    paths=found.paths,
                )
            )
        return out

    def __repr__(self) -> str:
        index = self._base.index
        return (
            f"<GraphMemory {self.domain}: {self._base.items:,} items, "
            f"{index.count('User'):,} users, {self.edges_added:,} edges added>"
        )

    def _user_counts(self, user: int) -> Vector:
        base, growth = self._base, self._growth
        shared = not growth.edges and user < base.index.count("User")
        kept = base.users if shared else self._users
        found = kept.get(user)
        return kept.put(user, user_counts(base, growth, user)) if found is None else found

    def _own(self, user: int, item: int) -> float | None:
        given = self._growth.ratings.get(user)
        if given and item in given:
            return given[item]
        return self._ratings.own(user, item)

    def _item(self, item: str) -> int:
        kind = self._base.index.item_type
        code = self._base.index.codes(kind).get(item)
        if code is None:
            raise ContractError(
                f"the {self.domain} graph has no item {item!r}",
                hint="item ids are those of the release's table `items`",
                details={"item": item},
            )
        return code

    def _user(self, user: str) -> int:
        code = self._growth.code("User", user)
        if code is None:
            raise ContractError(
                f"the {self.domain} graph has no user {user!r}",
                hint="ids are those of human users and personas of the release; "
                "others are made known with add_user",
                details={"user": user},
            )
        return code
