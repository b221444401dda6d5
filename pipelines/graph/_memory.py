"""The live knowledge graph that simulated users remember by (SimUSER, §3.2.3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.config import GraphSettings, load_settings
from pipelines.errors import ContractError, ReleaseError
from pipelines.graph._build import rescaled
from pipelines.graph._index import GraphIndex
from pipelines.graph._pathsim import Codes, Floats, PathSim
from pipelines.graph._schema import DomainSchema, EdgeType, MetaPaths, load_metapaths
from pipelines.graph._search import (
    Basis,
    Neighbours,
    Parts,
    Reader,
    UserActs,
    path_shares,
    search_many,
    user_similarities,
)
from pipelines.graph._similarity import ItemScores, Vectors
from pipelines.packaged import open_stored
from pipelines.scales import SCALES, RatingScale, rescale, scale_named
from pipelines.store import Release

__all__ = ["Basis", "GraphMemory", "Neighbour", "Neighbours", "Parts", "RatingOf"]


@dataclass(frozen=True)
class Catalogue:
    """Titles and years of items, by code."""

    titles: list[str]
    years: list[int | None]

    @classmethod
    def of(cls, items: pl.DataFrame, ids: pl.Series) -> Catalogue:
        """Titles in the order of `ids`; an item that the table lacks is called by its id."""
        year = pl.col("year").cast(pl.Int64) if "year" in items.columns else pl.lit(None, pl.Int64)
        titled = items.select(pl.col("item_id").alias("id"), "title", year.alias("year"))
        frame = ids.to_frame("id").join(titled, on="id", how="left", maintain_order="left")
        titles = frame.select(pl.col("title").fill_null(pl.col("id")))["title"].to_list()
        return cls(titles, frame["year"].to_list())


class Ratings:
    """Ratings of pairs that are joined in the graph; by code, on one scale.

    Ratings of pairs that the graph does not join (held-out ones) are left out. ``interactions`` has
    columns ``user_id, item_id, rating, scale``, or is None if ratings are unknown. The scale is by
    default that of the interactions, or 1-5 if they are on several. Raises ConfigError for an
    unknown one.
    """

    def __init__(
        self, index: GraphIndex, interactions: pl.DataFrame | pl.LazyFrame | None, scale: str | None
    ) -> None:
        names: list[str] = []
        if interactions is not None:
            scales = interactions.lazy().select(pl.col("scale").unique().sort())
            names = scales.collect(engine="streaming")["scale"].to_list()
        single = names[0] if len(names) == 1 else "1-5"
        self.scale: RatingScale = scale_named(scale or single)
        matrix = index.adjacency("User", _first_interaction(index.schema))
        users, items = matrix.shape
        values = np.full(matrix.nnz, np.nan)
        if interactions is not None and matrix.nnz:
            heads = np.repeat(np.arange(users, dtype=np.int64), np.diff(matrix.indptr))
            joined = heads * items + matrix.indices
            pairs, given = self._pairs(index, interactions.lazy(), names)
            at = np.minimum(joined.searchsorted(pairs), len(joined) - 1)
            matched = joined[at] == pairs
            values[at[matched]] = given[matched]
        self._starts, self._items, self._values = matrix.indptr, matrix.indices, values
        present = ~np.isnan(values)
        rated = matrix.indices[present]
        self.sums: Floats = np.asarray(
            np.bincount(rated, values[present], minlength=items), dtype=np.float64
        )
        self.counts: npt.NDArray[np.intp] = np.bincount(rated, minlength=items)

    def own_of(self, users: Codes, items: Codes) -> Floats:
        """Ratings of pairs of a user and an item, NaN where there is none."""
        width = len(self.counts)
        pairs = np.repeat(np.arange(len(self._starts) - 1), np.diff(self._starts)) * width
        pairs += self._items
        out = np.full(len(users), np.nan)
        if len(pairs):
            keys = users * width + items
            at = np.minimum(pairs.searchsorted(keys), len(pairs) - 1)
            matched = (users >= 0) & (pairs[at] == keys)
            out[matched] = self._values[at[matched]]
        return out

    def _pairs(
        self, index: GraphIndex, interactions: pl.LazyFrame, names: list[str]
    ) -> tuple[npt.NDArray[np.int64], Floats]:
        """Pairs as ``user * items + item`` and their ratings on the scale."""
        rating = rescaled(names, self.scale)
        user = _code("user_id", index.ids("User"))
        item = _code("item_id", index.ids(index.item_type))
        frame = (
            interactions.select(
                pair=user * index.count(index.item_type) + item, rating=rating.cast(pl.Float64)
            )
            .drop_nulls()
            .collect(engine="streaming")
        )
        return frame["pair"].to_numpy(), frame["rating"].to_numpy()


def _first_interaction(schema: DomainSchema) -> str:
    """The relation that every interaction has, such as `rated`."""
    return next(e.relation for e in schema.edges if e.origin == "interactions" and e.where == "all")


def _code(column: str, ids: pl.Series) -> pl.Expr:
    """Codes of a column's ids (Int64), null for ids that are not there."""
    return pl.col(column).cast(pl.Enum(ids), strict=False).to_physical().cast(pl.Int64)


#: Author of a neighbour's rating.
RatingOf = Literal["own", "others"]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An item that was retrieved, and why."""

    #: Item id.
    item_id: str
    title: str
    year: int | None
    #: On the memory's scale; None for an unrated item.
    rating: float | None
    #: ``own``: the user's own; ``others``: the mean of everybody else's; None: no rating.
    rating_of: RatingOf | None
    #: Ranking score; see :class:`Parts`.
    score: float
    #: The three similarities in it, before their weights.
    parts: Parts
    #: Basis of the match.
    basis: Basis
    #: Share of each meta-path in ``parts.pathsim`` (they sum to it), largest first; only those that
    #: join the two items.
    paths: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


#: The scale on which thresholds and rating nodes are.
_GRAPH_SCALE = SCALES["1-5"]


class GraphMemory:
    """A graph that answers what a user and the community think of items like this one.

    Open one with :meth:`open` or :meth:`from_tables`; give every simulated user a
    :meth:`copy`. Copies share the graph they were opened with and keep only what they add.

    What a user adds changes how that user sees the items, s(u, x), as if the graph had been built
    with it. How items are like each other and what others think of them stays as in the release,
    also when one memory holds the acts of several users.

    Reading from several threads is safe; adding is not.

    Parameters
    ----------
    scores
        Similarities of items, shared by all copies.
    catalogue, ratings
        Titles, and the ratings of the release's human users.
    settings
        Weights, thresholds and number of neighbours.

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
    >>> mine.rate("me", "m:2", 4)
    >>> [(n.title, n.rating, n.rating_of) for n in mine.retrieve("me", "m:1")]
    [('Two', 4.0, 'own')]
    """

    def __init__(
        self, scores: ItemScores, catalogue: Catalogue, ratings: Ratings, settings: GraphSettings
    ) -> None:
        self._scores = scores
        self._index = scores.sim.index
        self._catalogue = catalogue
        self._ratings = ratings
        self._settings = settings
        #: By user code.
        self._acts: dict[int, UserActs] = {}
        #: Codes of added nodes by type and id; they go on where the release's end.
        self._nodes: dict[str, dict[str, int]] = {}
        #: Type, and ids of head and tail.
        self._added: set[tuple[EdgeType, str, str]] = set()
        self._shared = False

    @property
    def domain(self) -> str:
        """Such as ``movies``."""
        return self._index.domain

    @property
    def scale(self) -> RatingScale:
        """Scale of ratings in answers and additions."""
        return self._ratings.scale

    @property
    def settings(self) -> GraphSettings:
        """Weights, thresholds and number of neighbours."""
        return self._settings

    def title(self, item: str) -> str:
        """Title of an item.

        Raises ContractError if the item is unknown, naming it.
        """
        return self._catalogue.titles[self._item(item)]

    def retrieve(self, user: str | None, item: str, k: int | None = None) -> list[Neighbour]:
        """The items most like one item, from where a user stands, with their ratings.

        At most ``k`` neighbours (at least 1, by default the settings'), best first, never the item
        itself. The score is ``alpha·s(x, y) + (1 - alpha)·s(u, y) + embedding_weight·cos(e_x,
        e_y)``; without a ``user`` (a human user, persona or added user) s(u, y) is left out. An
        item from which no path leads anywhere is answered for by its embedding alone (see `basis`).
        Ties are broken by id.

        Raises
        ------
        ContractError
            If the user or item is unknown, naming it, or `k` is below 1.
        """
        nearby = self.retrieve_many([user], [item], k)
        codes = nearby.items[0][nearby.items[0] >= 0].tolist()
        out = []
        for rank, (code, shares) in enumerate(
            zip(codes, path_shares(self._scores, self._item(item), codes), strict=True)
        ):
            rating, mine, pathsim, similar, cosine = (
                _number(values[0, rank])
                for values in (
                    nearby.rating, nearby.own, nearby.pathsim, nearby.user_similarity, nearby.cosine
                )
            )  # fmt: skip
            out.append(
                Neighbour(
                    item_id=str(nearby.ids[code]),
                    title=self._catalogue.titles[code],
                    year=self._catalogue.years[code],
                    rating=rating,
                    rating_of=None if rating is None else "own" if mine else "others",
                    score=float(nearby.score[0, rank]),
                    parts=Parts(pathsim or 0.0, similar, cosine),
                    basis="paths" if pathsim else "user" if similar else "embedding",
                    paths=shares,
                )
            )
        return out

    def retrieve_many(
        self,
        users: Sequence[str | None],
        items: Sequence[str],
        k: int | None = None,
        memories: Sequence[GraphMemory] | None = None,
    ) -> Neighbours:
        """:meth:`retrieve` for many pairs of a user and an item, as arrays.

        Shares of paths are left out. ``memories`` are those that each query is answered from:
        copies of this one, such as those of agents (default: this one).

        Raises
        ------
        ContractError
            If a user or item is unknown, naming it, `k` is below 1, the arguments differ in length
            or a memory is of another graph.
        """
        count = self._settings.k if k is None else k
        if count < 1:
            raise ContractError("at least one neighbour must be requested", where=f"k={count}")
        readers, reader_of, codes = self._readers(users, items, memories)
        nearest, values = search_many(self._scores, readers, reader_of, codes, count)
        query, rank = np.nonzero(nearest >= 0)
        ratings, by_user = self._ratings_of(readers, reader_of[query], nearest[query, rank])
        rating, mine = np.full(nearest.shape, np.nan), np.zeros(nearest.shape, dtype=np.bool_)
        rating[query, rank], mine[query, rank] = ratings, by_user
        score, pathsim, similar, cosine = values
        ids = self._index.ids(self._index.item_type)
        return Neighbours(nearest, score, rating, mine, pathsim, similar, cosine, ids)

    def user_similarity(
        self,
        users: Sequence[str | None],
        items: Sequence[str],
        memories: Sequence[GraphMemory] | None = None,
    ) -> Floats:
        """s(u, x) of pairs of a user and an item (SimUSER, formula 5), of shape (pairs,), 0 to 1.

        Parameters and errors are those of :meth:`retrieve_many`. A user of None has 0.
        """
        return user_similarities(self._scores, *self._readers(users, items, memories))

    def _readers(
        self,
        users: Sequence[str | None],
        items: Sequence[str],
        memories: Sequence[GraphMemory] | None,
    ) -> tuple[list[Reader], Codes, Codes]:
        """Distinct readers, the number of each query's, and codes of the items."""
        of = [self] * len(users) if memories is None else memories
        if not len(users) == len(items) == len(of):
            raise ContractError(
                "queries need one user, item and memory each",
                where=f"{len(users)} users, {len(items)} items, {len(of)} memories",
            )
        numbers: dict[tuple[int, str | None], int] = {}
        readers: list[Reader] = []
        reader_of = np.empty(len(users), dtype=np.intp)
        for at, (memory, user) in enumerate(zip(of, users, strict=True)):
            key = (id(memory), user)
            number = numbers.get(key)
            if number is None:
                if memory._scores is not self._scores:
                    raise ContractError("a query's memory is of another graph", where=repr(memory))
                number = numbers[key] = len(readers)
                code = None if user is None else memory._user(user)
                readers.append(Reader(code, None if code is None else memory._acts.get(code)))
            reader_of[at] = number
        codes = np.fromiter(map(self._item, items), dtype=np.intp, count=len(items))
        return readers, reader_of, codes

    def _ratings_of(
        self, readers: Sequence[Reader], reader_of: Codes, items: Codes
    ) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Ratings of pairs, and whether they are the reader's own; NaN for unrated items."""
        pooled = self._ratings
        out = np.full(len(items), np.nan)
        np.divide(pooled.sums[items], pooled.counts[items], out=out, where=pooled.counts[items] > 0)
        users = np.asarray([-1 if r.user is None else r.user for r in readers], dtype=np.intp)
        given = pooled.own_of(users[reader_of], items)
        for at, reader in enumerate(readers):
            latest = reader.acts.ratings if reader.acts else {}
            for pair in np.flatnonzero(reader_of == at).tolist() if latest else ():
                given[pair] = latest.get(int(items[pair]), given[pair])
        rated = ~np.isnan(given)
        return np.where(rated, given, out), rated

    def __repr__(self) -> str:
        return (
            f"<GraphMemory {self.domain}: {self._scores.sim.items:,} items, "
            f"{self._index.count('User'):,} users, {len(self._added):,} edges added>"
        )

    def _item(self, item: str) -> int:
        code = self._index.codes(self._index.item_type).get(item)
        if code is None:
            raise ContractError(
                f"the {self.domain} graph has no item {item!r}",
                hint="item ids are those of the release's table `items`",
                details={"item": item},
            )
        return code

    def _user(self, user: str) -> int:
        code = self._code("User", user)
        if code is None:
            raise ContractError(
                f"the {self.domain} graph has no user {user!r}",
                hint="ids are those of human users and personas of the release; "
                "add others with add_user",
                details={"user": user},
            )
        return code

    @classmethod
    def open(
        cls,
        release: object = "latest",
        home: Path | str | None = None,
        *,
        settings: GraphSettings | None = None,
        scale: str | None = None,
    ) -> GraphMemory:
        """The graph of a published release; its personas are known users without edges.

        ``release`` is a reference (``movies@latest``, a lock file's path), a release of the store
        or of ``sim``, or a mapping of table names to frames. Needed are ``graph_triples`` and
        ``items``; ``interactions`` (for ratings), ``item_embeddings``, ``human_users`` and
        ``personas`` are used if they are there. Weights and thresholds are by default those that
        the release was made with, the scale of ratings is that of the interactions.

        Raises ReleaseError if the release or a needed table is not there, ContractError if the
        tables don't fit each other.
        """
        source = release
        if isinstance(release, str | Path):
            named = {"runtime": {"home": str(home)}} if home else None
            source = open_stored(release, load_settings(overrides=named))
        if not isinstance(source, Release | Mapping):
            raise ReleaseError("neither a release nor tables", where=type(source).__name__)
        tables: Mapping[str, Any] = source.tables if isinstance(source, Release) else source

        def scan(name: str) -> pl.LazyFrame | None:
            if name not in tables:
                return None
            if isinstance(source, Release):
                return source.snapshot(name).scan()
            frame: pl.LazyFrame = tables[name].lazy()
            return frame

        triples, items = scan("graph_triples"), scan("items")
        if triples is None or items is None:
            raise ReleaseError(
                f"a graph memory needs the table {'items' if items is None else 'graph_triples'}",
                where=str(getattr(source, "ref", source if isinstance(source, Release) else "")),
            )
        users: list[str] = []
        for name, key in (("human_users", "user_id"), ("personas", "persona_id")):
            frame = scan(name)
            users += [] if frame is None else frame.select(key).collect()[key].to_list()
        embeddings = scan("item_embeddings")
        # Also of bare frames, which name no dataset and no settings.
        dataset = str(getattr(tables["graph_triples"], "dataset", ""))
        recorded: Any = getattr(source, "settings", {})
        section = recorded.get("graph", {}) if isinstance(recorded, Mapping) else {}
        made_with = {key: section[key] for key in GraphSettings.model_fields if key in section}
        return cls.from_tables(
            triples,
            items.collect(),
            interactions=scan("interactions"),
            embeddings=None if embeddings is None else embeddings.collect(),
            users=users,
            domain=dataset.rpartition(".")[0] or "movies",
            settings=settings or GraphSettings.model_validate(made_with),
            scale=scale,
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
    ) -> GraphMemory:
        """A memory over frames.

        ``items`` has ``item_id``, ``title`` and maybe ``year``; of ``interactions`` (``user_id,
        item_id, rating, scale``) only ratings of pairs that the triples join are read, so that
        held-out ones can't come in; ``embeddings`` has ``item_id`` and ``vector`` (unit vectors).
        ``users`` may have no edge yet. Other arguments are as for :meth:`open`.

        Raises ConfigError if the domain has no schema or a scale is unknown, ContractError if no
        triple fits the schema or vectors differ in length.
        """
        settings = settings or GraphSettings()
        paths = paths or load_metapaths(domain)
        kind = paths.items[0].start_type
        nodes = {kind: items["item_id"].to_list(), "User": list(users)}
        index = GraphIndex.from_triples(triples, domain, nodes=nodes)
        ids, sim = index.ids(kind), PathSim(index, paths)
        # Several threads may read.
        sim.warm()
        return cls(
            ItemScores(sim, Vectors.of(embeddings).aligned(ids), settings),
            Catalogue.of(items, ids),
            Ratings(index, interactions, scale),
            settings,
        )

    def add_user(self, user: str) -> None:
        """Make a user known, such as a persona that is not in the release."""
        self._unshare()
        self._new_node("User", user)

    def add(self, user: str, relation: str, item: str) -> bool:
        """Add what a user did (SimUSER, formula 4), with the inverse edge; copies don't see it.

        Edges never go away. Returns whether the graph has a new edge. The user must be known
        (:meth:`add_user`), the relation lead from a user, such as ``rated`` or ``liked``, to a
        known item or, for relations that lead elsewhere, any node's id. :meth:`rate` adds all that
        a rating means.

        Raises
        ------
        ContractError
            If the user or item is unknown, naming it.
        ConfigError
            If no such relation leads from a user.
        """
        self._user(user)
        step = self._index.schema.step("User", relation)
        if step.tail_type == self._index.item_type:
            self._item(item)
        self._unshare()
        return self._add(step.edge, *((item, user) if step.backward else (user, item)))

    def rate(self, user: str, item: str, rating: float) -> None:
        """Add everything that a rating means: what the graph's builder makes of one.

        In the movie graph: rated, viewed, liked or disliked by the settings' thresholds (on
        1-5), and the user's rating node. Rating an item again adds the new rating's edges, and the
        newest rating is the one that is answered.

        Raises ContractError if the user or item is unknown (naming it) or the rating is off the
        memory's scale.
        """
        rater, item_code = self._user(user), self._item(item)
        if not self.scale.low <= rating <= self.scale.high:
            raise ContractError(
                f"a rating of {rating:g} is off the scale", where=f"scale {self.scale.name}"
            )
        self._unshare()
        for edge, *ends in self._edges_of(user, item, float(rating)):
            self._add(edge, *ends)
        self._acts.setdefault(rater, UserActs()).ratings[item_code] = float(rating)

    def copy(self) -> GraphMemory:
        """A memory with the same graph and additions; from here on each keeps its own.

        Takes no time or memory to speak of: the first of the two that adds something copies
        the additions (not the graph) before it does.
        """
        self._shared = True
        return copy(self)

    def _unshare(self) -> None:
        """Copy what was added, if a copy has it, too."""
        if self._shared:
            self._acts = {user: acts.copy() for user, acts in self._acts.items()}
            self._nodes = {kind: dict(codes) for kind, codes in self._nodes.items()}
            self._added = set(self._added)
            self._shared = False

    def _code(self, kind: str, name: str) -> int | None:
        """Code of a node of the release or added, or None."""
        code = self._index.codes(kind).get(name)
        return self._nodes.get(kind, {}).get(name) if code is None else code

    def _new_node(self, kind: str, name: str) -> int:
        """Code of a node, which is made if there is none."""
        code = self._code(kind, name)
        if code is None:
            added = self._nodes.setdefault(kind, {})
            code = added[name] = self._index.count(kind) + len(added)
        return code

    def _add(self, edge: EdgeType, head: str, tail: str) -> bool:
        """Add an edge; False if it was there before."""
        start, end = self._new_node(edge.head_type, head), self._new_node(edge.tail_type, tail)
        forward = self._index.schema.step(edge.head_type, edge.relation)
        if (edge, head, tail) in self._added or end in self._index.neighbours(forward, start):
            return False
        self._added.add((edge, head, tail))
        for step, code, other in ((forward, start, end), (forward.inverse, end, start)):
            if step.head_type == "User":
                self._acts.setdefault(code, UserActs()).ends.setdefault(step, []).append(other)
        return True

    def _edges_of(self, user: str, item: str, rating: float) -> Iterator[tuple[EdgeType, str, str]]:
        """Edges that a rating stands for: type, head and tail."""
        on_five = rescale(rating, self.scale, _GRAPH_SCALE)
        liked = bool(on_five >= self._settings.liked_from)
        disliked = bool(on_five <= self._settings.disliked_to)
        true = {"all": True, "liked": liked, "disliked": disliked}
        labels = {
            # The nearest whole rating, ties up, as in the triples.
            "ratings": str(math.floor(on_five + 0.5 + 1e-9)),
            "sentiments": ("neutral", "positive", "negative")[liked - disliked],
        }
        for edge in self._index.schema.edges:
            if edge.origin == "interactions" and true.get(edge.where, False):
                yield edge, user, item
            elif edge.origin in labels:
                # One of the two edges user → node → item.
                node = f"{edge.node}:{user}:{labels[edge.origin]}"
                yield (edge, user, node) if edge.head_type == "User" else (edge, node, item)


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
