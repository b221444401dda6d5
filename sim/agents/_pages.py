"""Pages of recommendations, and what agents read of their items (SimUSER, appendix C.7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import ContractError
from pipelines.prompts import one_line
from sim.agents._protocol import Ints
from sim.agents._world import AgentWorld

if TYPE_CHECKING:
    from pipelines.graph import GraphMemory
    from sim.recommenders import Recommender

#: Similar items with ratings that a card lists (SimUSER's k2).
SIMILAR = 3
#: Longest short and long description (characters).
_SHORT, _LONG = 160, 1_000
#: Columns that hold an item's story, by domain.
_STORIES = ("overview", "description")
#: People whose lists are asked for at once (count).
_AT_ONCE = 1_024


@dataclass(frozen=True, slots=True)
class ItemDisplay:
    """Texts of one item on a page. Foreign texts are one line each."""

    #: Place on the page, from 0: an answer names it, never the title.
    position: int
    #: Item id; the title includes the year.
    item_id: str
    title: str
    #: Mean training rating on 1-5; None without one.
    mean_rating: float | None
    #: First sentence of the story, or after a click all of it; empty where there is none.
    description: str
    #: Caption of its poster; empty where the release has none.
    caption: str
    #: Items like it with the agent's own rating, else that of others, on 1-5; None without one.
    similar: tuple[tuple[str, float | None], ...]
    #: Comment by another user who rated it (:class:`ItemTexts`); empty where none is shown.
    comment: str = ""
    #: Number of reviews (:class:`ItemTexts`); None where it is not shown.
    reviews: int | None = None


class ItemDisplays:
    """Texts of items on a release."""

    def __init__(self, world: AgentWorld) -> None:
        self._world = world

    def of(
        self,
        items: npt.ArrayLike,
        detailed: npt.ArrayLike,
        *,
        users: Sequence[str],
        memories: Sequence[GraphMemory] | None,
    ) -> list[list[ItemDisplay]]:
        """The cards of some agents' items.

        ``items`` are numbers by position, -1 for a position without a card, and ``detailed``
        whether the long description is shown, both of shape (n, places). ``users`` are the agents'
        ids in the graph, ``memories`` their graphs, copies of ``world.memory``; None without
        similar items.
        """
        numbers, long = np.asarray(items, np.int64), np.asarray(detailed, np.bool_)
        rows, places = np.nonzero(numbers >= 0)
        asked = numbers[rows, places].tolist()
        ids = [self._world.catalogue.ids[item] for item in asked]
        similar: list[tuple[tuple[str, float | None], ...]] = [()] * len(ids)
        if memories is not None and ids:
            found = self._world.memory.retrieve_many(
                [users[n] for n in rows.tolist()],
                ids,
                SIMILAR,
                [memories[n] for n in rows.tolist()],
            )
            stars = [[None if math.isnan(r) else r for r in row] for row in found.rating.tolist()]
            similar = [
                tuple((self._names[name], star) for name, star in zip(near, row, strict=False))
                for near, row in zip(found.item_ids(), stars, strict=True)
            ]
        given = self._world.texts
        out: list[list[ItemDisplay]] = [[] for _ in numbers]
        for n, (row, place) in enumerate(zip(rows.tolist(), places.tolist(), strict=True)):
            mean = float(self._world.mean_ratings[asked[n]])
            out[row].append(
                ItemDisplay(
                    place,
                    ids[n],
                    self._world.titles[asked[n]],
                    None if math.isnan(mean) else mean,
                    self._descriptions[asked[n]][int(long[row, place])],
                    self._captions.get(ids[n], ""),
                    similar[n],
                    "" if given is None else one_line(given.comment(ids[n], users[row])),
                    None if given is None else given.count(ids[n]),
                )
            )
        return out

    @cached_property
    def _names(self) -> dict[str, str]:
        """Titles by item id."""
        frame = self._world.catalogue.frame
        return {i: one_line(t) for i, t in frame.select("item_id", "title").iter_rows()}

    @cached_property
    def _descriptions(self) -> list[tuple[str, str]]:
        table = self._world.release["items"]
        column = next((c for c in _STORIES if c in table.columns), None)
        if column is None:
            return [("", "")] * len(self._world.catalogue)
        texts = table.polars(["item_id", column]).sort("item_id")[column].to_list()
        return [short_and_long(text or "") for text in texts]

    @cached_property
    def _captions(self) -> dict[str, str]:
        given = self._world.texts
        if given is not None and given.captions is not None:
            return {item: one_line(caption) for item, caption in given.captions.items()}
        if "captions" not in self._world.release:
            return {}
        rows = self._world.release["captions"].polars(["item_id", "caption", "status"])
        rows = rows.filter(pl.col("status") == "ok").drop_nulls("caption")
        return {i: one_line(c) for i, c in rows.select("item_id", "caption").iter_rows()}


def short_and_long(text: str) -> tuple[str, str]:
    """First sentence and whole text, each cut at its longest length.

    >>> short_and_long("A boy and his dog. They run. ")
    ('A boy and his dog.', 'A boy and his dog. They run.')
    """
    line = one_line(text)
    first = line.partition(". ")[0]
    if first != line:
        first += "."
    return _cut(first, _SHORT), _cut(line, _LONG)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def page_lists(world: AgentWorld, recommender: Recommender, people: Ints) -> Ints:
    """Items that a recommender shows to some people, of shape (n, pages, per_page).

    Lists are asked for once, before the visit: what an agent rates in it does not change its later
    pages (as in Agent4Rec's figures). Training items are masked; -1 where nothing is left.
    ``people`` are rows of ``world.people``. Raises ContractError if nothing at all is recommended
    to a person.
    """
    # Agents that share a person share its list.
    distinct, place = np.unique(people, return_inverse=True)
    personas = world.people["persona"].to_numpy()[distinct]
    out = np.empty((len(distinct), world.pages * world.per_page), np.int64)
    for start in range(0, len(distinct), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        out[part] = recommender.recommend(
            personas[part], out.shape[1], seen=world.known[distinct[part]]
        )
    empty = np.flatnonzero(out[:, 0] < 0)
    if len(empty):
        person = world.people["persona_id"][int(distinct[empty[0]])]
        raise ContractError(
            "nothing is left to recommend",
            where=f"recommender {recommender.name}, {person}",
            hint="the person has rated every item",
        )
    return out.reshape(-1, world.pages, world.per_page)[place]
