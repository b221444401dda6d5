"""The live knowledge graph that simulated users remember by (SimUSER, §3.2.3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from pipelines.config import GraphSettings
from pipelines.errors import ContractError
from pipelines.graph._index import GraphIndex
from pipelines.graph._memory_base import Base
from pipelines.graph._memory_blocks import Kept
from pipelines.graph._memory_growth import Growth
from pipelines.graph._memory_reader import KEPT_USERS, MemoryReader
from pipelines.graph._memory_tables import (
    Catalogue,
    Ratings,
    ReleaseTables,
    unit_vectors,
)
from pipelines.graph._metapaths import MetaPaths, load_metapaths

__all__ = ["GraphMemory"]


class GraphMemory(MemoryReader):
    """A graph that answers what a user and the community think of items like this one.

    Open one with :meth:`open` or :meth:`from_tables`; give every simulated user a
    :meth:`copy`. Copies share the graph they were opened with and keep only what they add.
    Whatever was added, answers are those of a graph built from scratch with the same edges.

    Reading from several threads is safe; adding is not.

    Examples
    --------
    >>> import polars as pl
    >>> edges = [("u:1", "User", "rated", m, "Movie") for m in ("m:1", "m:2")]
    >>> names = ["head", "head_type", "relation", "tail", "tail_type"]
    >>> memory = GraphMemory.from_tables(
    ...     pl.DataFrame(edges, schema=names, orient="row"),
    ...     pl.DataFrame({"item_id": ["m:1", "m:2"], "title": ["One", "Two"]}),
    ... )
    >>> mine = memory.copy()
    >>> mine.add_user("me")
    >>> mine.add("me", "rated", "m:2", rating=4)
    True
    >>> [(n.title, n.rating, n.rating_of) for n in mine.retrieve("me", "m:1")]
    [('Two', 4.0, 'own')]
    """

    @classmethod
    def open(
        cls,
        release: object = "latest",
        home: Path | str | None = None,
        *,
        settings: GraphSettings | None = None,
        scale: str | None = None,
        cache_mb: int = 128,
    ) -> GraphMemory:
        """The graph of a published release; its personas are known users without edges.

        Parameters
        ----------
        release
            A reference (``movies@latest``, a lock file's path), a release of the store or of
            ``sim``, or a mapping of table names to frames. Needed are ``graph_triples`` and
            ``items``; ``interactions`` (for ratings), ``item_embeddings``, ``human_users`` and
            ``personas`` are used if they are there.
        home
            The store's folder, for a reference.
        settings
            Weights and thresholds; default those the release was made with.
        scale
            Scale of ratings in answers and additions; default that of the interactions.
        cache_mb
            How much may be kept of what was computed for items, by all copies together (MiB).

        Raises
        ------
        ReleaseError
            If the release or a needed table is not there.
        ContractError
            If the tables don't fit each other.
        """
        tables = ReleaseTables(release, home)
        users: list[str] = []
        for name, key in (("human_users", "user_id"), ("personas", "persona_id")):
            frame = tables.optional(name)
            users += [] if frame is None else frame.select(key).collect()[key].to_list()
        embeddings = tables.optional("item_embeddings")
        return cls.from_tables(
            tables.scan("graph_triples"),
            tables.scan("items").collect(),
            interactions=tables.optional("interactions"),
            embeddings=None if embeddings is None else embeddings.collect(),
            users=users,
            domain=tables.domain,
            settings=settings or tables.settings,
            scale=scale,
            cache_mb=cache_mb,
        )

    @classmethod
    def from_tables(
        cls,
        triples: pl.DataFrame | pl.LazyFrame,
        items: pl.DataFrame,
        *,
        interactions: pl.DataFrame | pl.LazyFrame | None = None,
        embeddings: pl.DataFrame | None = None,
        users: Iterable[str] = (),
        domain: str = "movies",
        settings: GraphSettings | None = None,
        paths: MetaPaths | None = None,
        scale: str | None = None,
        cache_mb: int = 128,
    ) -> GraphMemory:
        """A memory over frames.

        Parameters
        ----------
        triples
            The `graph_triples` contract, a frame or a scan.
        items
            Columns ``item_id``, ``title`` and maybe ``year``.
        interactions
            Columns ``user_id, item_id, rating, scale``. Only ratings of pairs that the triples
            join are read, so held-out ones can't come in.
        embeddings
            Columns ``item_id`` and ``vector`` (unit vectors).
        users
            Users that may have no edge yet.
        domain
            Such as ``movies``.
        settings
            Weights, thresholds and number of neighbours.
        paths
            Meta-paths; default the domain's.
        scale, cache_mb
            As for :meth:`open`.

        Raises
        ------
        ConfigError
            If the domain has no schema or a scale is unknown.
        ContractError
            If no triple fits the schema or vectors differ in length.
        """
        settings = settings or GraphSettings()
        paths = paths or load_metapaths(domain, settings.max_path_length)
        kind = paths.items[0].start_type
        known = {kind: items["item_id"].to_list(), "User": list(users)}
        index = GraphIndex.from_triples(triples, domain, nodes=known)
        ids = index.ids(kind)
        return cls(
            Base(index, paths, unit_vectors(embeddings, ids), cache_mb * 2**20),
            Catalogue.of(items, ids),
            Ratings(index, interactions, scale),
            settings,
        )

    def add_user(self, user: str, traits: Mapping[str, str] | None = None) -> None:
        """Make a user known, such as a persona that is not in the release.

        Parameters
        ----------
        user
            Its id; nothing changes if it is known.
        traits
            Values by the column of the users' table that relations are made from, such as
            ``{"occupation": "artist", "age_band": "25-34"}``.

        Raises
        ------
        ContractError
            If no relation of the domain is made from a trait.
        """
        edges = {e.column: e for e in self._base.index.schema.edges if e.origin == "users"}
        unknown = sorted(set(traits or {}) - {str(column) for column in edges})
        if unknown:
            raise ContractError(
                f"no relation of a user is made from {unknown[0]}",
                where=user,
                hint=f"there are {', '.join(sorted(str(c) for c in edges)) or 'none'}",
            )
        growth = self._writable()
        code = growth.new_node("User", user)
        for column, value in (traits or {}).items():
            edge = edges[column]
            node = growth.new_node(edge.tail_type, f"{edge.node}:{value.strip()}")
            growth.add(self._base.edge_numbers[edge], code, node)

    def add(self, user: str, relation: str, item: str, rating: float | None = None) -> bool:
        """Add what a user did (SimUSER, formula 4), with the inverse edge; copies don't see it.

        Costs the degree of the two ends, whatever the size of the graph. Edges never go away:
        rating an item again adds the new rating's edges, and the newest rating is the one
        that is answered.

        Parameters
        ----------
        user
            A known user, see :meth:`add_user`.
        relation
            From a user, such as ``rated``, ``viewed`` or ``liked``.
        item
            A known item, or, for relations that lead elsewhere, any node's id.
        rating
            On the memory's scale; also adds the edges to and from the user's node of this
            rating.

        Returns
        -------
        Whether the graph has a new edge.

        Raises
        ------
        ContractError
            If the user or item is unknown (naming it) or the rating is off the scale.
        ConfigError
            If no such relation leads from a user.
        """
        code = self._user(user)
        step = self._base.index.schema.step("User", relation)
        if step.tail_type == self._base.index.item_type:
            end: int | None = self._item(item)
        elif rating is not None:
            raise ContractError(f"a rating of {relation} has no meaning", where=item)
        else:
            end = None
        if rating is not None:
            self._on_scale(rating)
        growth = self._writable()
        if end is None:
            end = growth.new_node(step.tail_type, item)
        number = self._base.edge_numbers[step.edge]
        ends = (end, code) if step.backward else (code, end)
        new = growth.add(number, *ends)
        if rating is not None:
            new |= self._add_rating(growth, user, code, end, float(rating))
        return new

    def rate(self, user: str, item: str, rating: float) -> None:
        """Add everything that a rating means: what the graph's builder makes of one.

        In the movie graph: rated, viewed, liked or disliked by the settings' thresholds (on
        1-5), and the user's rating node.

        Parameters and errors as for :meth:`add`.
        """
        code, end = self._user(user), self._item(item)
        self._on_scale(rating)
        growth = self._writable()
        for number in self._meaning.interactions(float(rating)):
            growth.add(number, code, end)
        self._add_rating(growth, user, code, end, float(rating))

    def copy(self) -> GraphMemory:
        """A memory with the same graph and additions; from here on each keeps its own.

        Takes no time or memory to speak of: the first of the two that adds something copies
        the additions (not the graph) before it does.
        """
        other = GraphMemory.__new__(GraphMemory)
        other._base, other._catalogue, other._ratings = self._base, self._catalogue, self._ratings
        other._settings, other._meaning = self._settings, self._meaning
        other._growth = self._growth
        other._users = self._users
        self._owns = other._owns = False
        return other

    def added(self) -> pl.DataFrame:
        """Edges that were added, in both directions: the `graph_triples` contract, ordered."""
        index = self._base.index
        rows = []
        for number, head, tail in self._growth.added():
            edge = index.schema.edges[number]
            ends = self._name(edge.head_type, head), self._name(edge.tail_type, tail)
            rows.append((ends[0], edge.head_type, edge.relation, ends[1], edge.tail_type))
            if edge.inverse:
                rows.append((ends[1], edge.tail_type, edge.inverse, ends[0], edge.head_type))
        names = ["head", "head_type", "relation", "tail", "tail_type"]
        frame = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row")
        return frame.sort("head", "relation", "tail")

    def _writable(self) -> Growth:
        if not self._owns:
            self._growth = self._growth.clone()
            self._owns = True
        # Not emptied: a copy without this addition may share it.
        self._users = Kept(KEPT_USERS)
        return self._growth

    def _add_rating(self, growth: Growth, user: str, code: int, item: int, rating: float) -> bool:
        new = False
        for number, edge, node in self._meaning.nodes(user, rating):
            # One of the two edges user → node → item.
            if edge.head_type == "User":
                new |= growth.add(number, code, growth.new_node(edge.tail_type, node))
            else:
                new |= growth.add(number, growth.new_node(edge.head_type, node), item)
        growth.rate(code, item, rating, self._own(code, item))
        return new

    def _on_scale(self, rating: float) -> None:
        if not self.scale.low <= rating <= self.scale.high:
            raise ContractError(
                f"a rating of {rating:g} is off the scale", where=f"scale {self.scale.name}"
            )

    def _name(self, kind: str, code: int) -> str:
        ids = self._base.index.ids(kind)
        if code < len(ids):
            return str(ids[code])
        return list(self._growth.nodes[kind])[code - len(ids)]
