"""A release opened for agents: items, people with their training histories and habits."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import orjson
import polars as pl

from pipelines.contracts import MATCHED_DOMAINS
from pipelines.errors import ConfigError
from pipelines.hints import nearest
from pipelines.raters import rescale, scale_named, source_scale
from pipelines.seeding import hash_ids
from sim._release import Release
from sim.agents._matching import how_to_match
from sim.agents._protocol import Floats, Ints
from sim.environment import (
    Catalogue,
    PersonaTable,
    known_items,
    persona_traits,
    persona_users,
    split_rows,
)

if TYPE_CHECKING:
    from pipelines.graph import GraphMemory

CastName = Literal["matched", "personas"]
CASTS: tuple[CastName, ...] = ("matched", "personas")
#: Habits of people by column, with the value that stands for no habit.
TRAITS = {
    "activity": "medium",
    "conformity": "medium",
    "diversity": "medium",
    "pickiness": "moderately_picky",
}
#: The scale of agents' ratings (SimUSER, section 3.3).
SCALE = scale_named("1-5")


@dataclass(frozen=True)
class History:
    """Training interactions of people, person by person."""

    #: First row of each person, and the end of the last, of shape (people + 1,).
    starts: Ints
    #: Item numbers, oldest first, of shape (interactions,).
    items: Ints
    #: On 1-5, not rounded, of the same shape.
    ratings: Floats

    def of(self, person: int) -> tuple[Ints, Floats]:
        """Items and ratings of one person, oldest first."""
        part = slice(self.starts[person], self.starts[person + 1])
        return self.items[part], self.ratings[part]

    @property
    def lengths(self) -> Ints:
        """Interactions of each person (count), of shape (people,)."""
        return np.diff(self.starts)


@dataclass(frozen=True)
class ItemTexts:
    """Texts on cards in the place of the release's, for experiments."""

    #: Caption by item id; an item without one has none. None: those of the release.
    captions: Mapping[str, str] | None = None
    #: Author and text of comments by item id, in the order of preference. An agent is never shown
    #: its own: the author is an id in the graph, None for a text without an author.
    comments: Mapping[str, Sequence[tuple[str | None, str]]] = field(default_factory=dict)
    #: Reviews by item id (count); None: not shown.
    reviews: Mapping[str, int] | None = None

    def comment(self, item: str, user: str) -> str:
        """First comment on an item that is not the user's own; empty without one."""
        others = (text for author, text in self.comments.get(item, ()) if author != user)
        return next(others, "")

    def count(self, item: str) -> int | None:
        """Number of reviews of an item; None where it is not shown."""
        return None if self.reviews is None else self.reviews.get(item, 0)

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of all texts."""
        content = {name: getattr(self, name) for name in ("captions", "comments", "reviews")}
        return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()


@dataclass(frozen=True)
class AgentWorld:
    """A release as agents and brains use it; opened with :meth:`open`."""

    #: The release.
    release: Release
    #: ``matched``: personas that stand for real users, with their training history; ``personas``:
    #: the others, who have none.
    cast: CastName
    #: Items by number.
    catalogue: Catalogue
    #: Possible agents, in an order that no other column predicts (a hash of the id):
    #: ``persona_id``, ``user_id`` (null without a match), ``persona`` (row in the release's
    #: cast), and the tiers of `TRAITS`.
    people: pl.DataFrame
    #: Training interactions of `people`.
    history: History
    #: Items of a page, and pages of a visit at most (counts).
    per_page: int
    pages: int
    #: Whether habits and the graph may be used; without, habits are those of `TRAITS`.
    traits: bool
    graph: bool
    #: In the place of the release's; None: the release's own, without comments.
    texts: ItemTexts | None = None

    @classmethod
    def open(
        cls,
        release: Release,
        *,
        cast: str = "matched",
        per_page: int = 4,
        pages: int = 5,
        traits: bool = True,
        graph: bool = True,
    ) -> AgentWorld:
        """Open a release.

        Raises
        ------
        ConfigError
            If the cast is unknown or empty, a count is below 1 or above the items, or the release
            is of products.
        ReleaseError
            If the release lacks a table that is needed.
        """
        if cast not in CASTS:
            raise ConfigError("unknown cast", where=repr(cast), hint=nearest(cast, CASTS))
        for name, value in (("per_page", per_page), ("pages", pages)):
            if value < 1:
                raise ConfigError(f"{name} is {value}", where="agents", hint="at least 1")
        if release.domain not in MATCHED_DOMAINS:
            raise ConfigError(
                f"agents do not visit {release.domain}",
                where=release.ref,
                hint=f"releases of {', '.join(MATCHED_DOMAINS)}; shoppers: understudy dialogue run",
            )
        release.require("items", "personas", "interactions", "splits")
        catalogue = Catalogue.read(release)
        if len(catalogue) < per_page:
            raise ConfigError(
                f"a page of {per_page} items from {len(catalogue)}",
                where=release.ref,
                hint=f"per_page is at most {len(catalogue)}",
            )
        people = _people(release, cast == "matched", traits)
        history = training_history(release, people["user_id"].to_list(), catalogue)
        return cls(
            release=release,
            cast="matched" if cast == "matched" else "personas",
            catalogue=catalogue,
            people=people,
            history=history,
            per_page=per_page,
            pages=pages,
            traits=traits,
            graph=graph,
        )

    def __len__(self) -> int:
        return self.people.height

    @property
    def matched(self) -> bool:
        """Whether people are real users with a history."""
        return self.cast == "matched"

    @cached_property
    def known(self) -> Ints:
        """Training items of people, of shape (people, h), -1 at the end: never recommended."""
        rows = self.people["persona"].to_numpy()
        return np.asarray(known_items(self.release)[rows], np.int64)

    @cached_property
    def graph_users(self) -> list[str]:
        """Ids of people in the graph: the real user's where there is one."""
        return self.people.select(pl.coalesce("user_id", "persona_id")).to_series().to_list()

    @cached_property
    def memory(self) -> GraphMemory:
        """The graph of training interactions, with ratings on 1-5; copy it before adding.

        Raises ReleaseError if the release has no graph.
        """
        from pipelines.graph import GraphMemory

        self.release.require("graph_triples")
        return GraphMemory.open(self.release, scale=SCALE.name)

    @cached_property
    def training(self) -> tuple[Ints, Ints]:
        """Users and items of all training interactions, by number, of shape (n,) each.

        Users are numbered in the order of their ids; the order of the rows is arbitrary.
        """
        rows = split_rows(self.release, ("train",))
        users = rows["user_id"].rank("dense").cast(pl.Int64).to_numpy() - 1
        return np.asarray(users, np.int64), _numbers(rows["item_id"], self.catalogue)

    @cached_property
    def histogram(self) -> Floats:
        """Shares of the ratings 1-5 among all training ratings, of shape (5,)."""
        counts = self.item_histograms.sum(axis=0)
        return np.asarray(counts / counts.sum())

    @cached_property
    def item_histograms(self) -> Floats:
        """Training ratings of each item by answer 1-5 (counts), of shape (items, 5)."""
        from pipelines.raters import to_answers

        rows = split_rows(self.release, ("train",))
        scale = source_scale(self.release["interactions"].lazy())
        answers = to_answers(rows["rating"].to_numpy(), scale, SCALE).astype(np.int64)
        items = _numbers(rows["item_id"], self.catalogue)
        out = np.bincount(items * 5 + answers - 1, minlength=5 * len(self.catalogue))
        return np.asarray(out.reshape(-1, 5), np.float64)

    @cached_property
    def mean_ratings(self) -> Floats:
        """Mean training rating of each item on 1-5; NaN without one, of shape (items,)."""
        rows = split_rows(self.release, ("train",))
        scale = source_scale(self.release["interactions"].lazy())
        items = _numbers(rows["item_id"], self.catalogue)
        count = np.bincount(items, minlength=len(self.catalogue))
        total = np.bincount(items, rows["rating"].to_numpy(), minlength=len(self.catalogue))
        with np.errstate(invalid="ignore"):
            return np.asarray(rescale(total / count, scale, SCALE))

    @cached_property
    def titles(self) -> list[str]:
        """Titles with years, by item number, one harmless line each."""
        from pipelines.prompts import one_line

        rows = self.catalogue.frame.select("title", "year").iter_rows()
        return [one_line(title) + (f" ({year})" if year else "") for title, year in rows]

    @cached_property
    def genre_names(self) -> list[str]:
        """Genres of the items, alphabetical."""
        names = self.catalogue.frame["genres"].explode().drop_nulls().unique().sort()
        return [str(name) for name in names]

    @cached_property
    def genres(self) -> Floats:
        """1 where an item has a genre, of shape (items, genres), in the order of `genre_names`."""
        lists = self.catalogue.frame["genres"]
        places = {name: n for n, name in enumerate(self.genre_names)}
        out = np.zeros((len(self.catalogue), len(places)))
        long = pl.DataFrame({"row": np.arange(len(lists)), "name": lists}).explode("name")
        long = long.drop_nulls()
        out[long["row"].to_numpy(), [places[n] for n in long["name"]]] = 1.0
        return out


def _people(release: Release, matched: bool, traits: bool) -> pl.DataFrame:
    frame = pl.DataFrame(
        {"persona_id": PersonaTable.read(release).ids, "user_id": persona_users(release)},
        schema={"persona_id": pl.String, "user_id": pl.String},
    ).with_columns(persona=pl.int_range(pl.len(), dtype=pl.Int64))
    chosen = pl.col("user_id").is_not_null() == matched
    if frame.filter(chosen).is_empty():
        raise ConfigError(
            "no persona is matched to a real user" if matched else "every persona is a real user",
            where=f"{release.ref}, personas",
            hint=f"{how_to_match(release.domain)} publish some, or use the cast personas"
            if matched
            else "use the cast matched",
        )
    tiers: dict[str, pl.Expr | pl.Series] = {n: pl.lit(v) for n, v in TRAITS.items()}
    if traits and "training_traits" in release:
        found = persona_traits(release)
        columns = dict(zip(TRAITS, _TIER_COLUMNS, strict=True))
        tiers = {name: found[column] for name, column in columns.items()}
    elif traits:
        release.require("training_traits")
    frame = frame.with_columns(**tiers)
    frame = frame.filter(chosen)
    rank = pl.Series("rank", hash_ids(frame["persona_id"]))
    return frame.with_columns(rank).sort("rank", "persona_id").drop("rank")


#: Columns of `training_traits` in the order of `TRAITS`. Variety is that of Agent4Rec's code: the
#: genres of nearly everybody's whole history are all genres.
_TIER_COLUMNS = ("activity_tier", "conformity_tier", "diversity_80_tier", "pickiness")


def people_of_split(release: Release, split: str, most: int) -> list[str]:
    """Users with an interaction of a split, the first `most` of them by a hash of the id."""
    rows = release["splits"].lazy().filter(pl.col("split") == split)
    users = rows.select(pl.col("user_id").unique()).collect()["user_id"]
    order = np.lexsort((users.to_numpy(), hash_ids(users)))[:most]
    return users.gather(order).to_list()


def training_history(
    release: Release, users: Sequence[str | None], catalogue: Catalogue
) -> History:
    """Training interactions of users, in their order; None has none."""
    numbered = pl.DataFrame({"user_id": users}, schema={"user_id": pl.String})
    people = numbered.with_columns(person=pl.int_range(pl.len(), dtype=pl.Int64)).drop_nulls()
    train = release["splits"].lazy().filter(pl.col("split") == "train")
    found = (
        release["interactions"]
        .lazy()
        .join(people.lazy(), on="user_id")
        .join(train.select("user_id", "item_id"), on=["user_id", "item_id"])
        .select("person", "item_id", "rating", "rated_at")
        .sort("person", "rated_at", "item_id")
        .collect()
    )
    counts = np.bincount(found["person"].to_numpy(), minlength=len(users))
    scale = source_scale(release["interactions"].lazy())
    stars = np.asarray(rescale(found["rating"].to_numpy(), scale, SCALE), np.float64)
    return History(
        np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        _numbers(found["item_id"], catalogue),
        stars,
    )


def _numbers(ids: pl.Series, catalogue: Catalogue) -> Ints:
    places = pl.DataFrame({"item_id": catalogue.ids}).with_row_index("item")
    rows = pl.DataFrame({"item_id": ids})
    found = rows.join(places, on="item_id", how="left", maintain_order="left")
    return np.asarray(found["item"].cast(pl.Int64).to_numpy())
