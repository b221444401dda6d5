"""State that all environments on a release share: items, personas, the rater, the retriever."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import ConfigError, ContractError, ReleaseError
from pipelines.packaged import SAMPLE_HOME
from pipelines.paths import ObjectPath
from pipelines.renames import current_setting
from pipelines.retrieval import Retriever, open_retriever
from pipelines.seams import RATERS
from pipelines.seeding import hash_ids
from sim._release import Release, open_release

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.llm.engines import Engine
    from pipelines.raters import BoundRater, Rater


@dataclass(frozen=True)
class Catalogue:
    """The items that can be recommended; action ``n`` is row ``n``."""

    #: ``item_id``, ``title``, ``year``, ``genres`` and ``popularity_rank`` (1 is the most rated;
    #: null if the release has no ``item_stats``), ordered by ``item_id``.
    frame: pl.DataFrame

    @classmethod
    def read(cls, release: Release) -> Catalogue:
        """Read the items of a release; ReleaseError if it has none."""
        release.require("items")
        items = release["items"].polars(["item_id", "title", "year", "genres"])
        if "item_stats" in release:
            ranks = release["item_stats"].polars(["item_id", "popularity_rank"])
            items = items.join(ranks, on="item_id", how="left", validate="1:1")
        else:
            items = items.with_columns(popularity_rank=pl.lit(None, pl.Int64))
        if items.is_empty():
            raise ReleaseError("the release has no items", where=release.ref)
        return cls(items.sort("item_id"))

    def __len__(self) -> int:
        return self.frame.height

    @cached_property
    def ids(self) -> list[str]:
        """Item ids by action."""
        return self.frame["item_id"].to_list()

    @cached_property
    def popularity(self) -> npt.NDArray[np.int64]:
        """Actions, the most rated first; items without a rank come last, by id."""
        order = self.frame.select(
            pl.arg_sort_by("popularity_rank", "item_id", nulls_last=True)
        ).to_series()
        return order.cast(pl.Int64).to_numpy()

    @cached_property
    def _row(self) -> dict[str, int]:
        return {item: n for n, item in enumerate(self.ids)}

    def row(self, item_id: str) -> int:
        """The action that recommends an item; ReleaseError if there is no such item."""
        if item_id not in self._row:
            raise ReleaseError(f"no item {item_id!r}", where="items")
        return self._row[item_id]

    def describe(self, item: int) -> dict[str, Any]:
        """Id, title, year and genres of an item, for people to read."""
        row = self.frame.row(item, named=True)
        return {key: row[key] for key in ("item_id", "title", "year", "genres")}


@dataclass(frozen=True)
class PersonaTable:
    """The personas of a release's domain; persona ``n`` is row ``n``.

    ``frame`` holds their rows of the table ``personas``, ordered by ``persona_id``.
    """

    frame: pl.DataFrame

    #: Genders by their code in observations; 0 stands for any other.
    GENDERS = ("", "female", "male")

    @classmethod
    def read(cls, release: Release) -> PersonaTable:
        """Read the personas of a release's domain; ReleaseError if there are none.

        Those of other domains are left out: what they like are not the genres of these items.
        """
        release.require("personas")
        frame = release["personas"].polars()
        if "domain" in frame.columns:
            frame = frame.filter(pl.col("domain") == release.domain)
        if frame.is_empty():
            raise ReleaseError(
                f"the release has no personas for {release.domain}", where=release.ref
            )
        return cls(frame.sort("persona_id"))

    def __len__(self) -> int:
        return self.frame.height

    @cached_property
    def ids(self) -> list[str]:
        """Persona ids by index."""
        return self.frame["persona_id"].to_list()

    @cached_property
    def ages(self) -> npt.NDArray[np.float32]:
        """Ages (years), of shape (personas,); 0 stands for an unknown one."""
        # Polars' own expressions can't run in a forked worker.
        return np.array([age or 0 for age in self.frame["age"].to_list()], np.float32)

    @cached_property
    def genders(self) -> npt.NDArray[np.int64]:
        """Gender codes, of shape (personas,); see ``GENDERS``."""
        codes = {name: code for code, name in enumerate(self.GENDERS) if name}
        return np.array([codes.get(name, 0) for name in self.frame["gender"].to_list()], np.int64)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {persona: n for n, persona in enumerate(self.ids)}

    def index(self, persona_id: str) -> int:
        """Index of a persona; ReleaseError, naming the nearest, if there is no such persona."""
        number = self._index.get(persona_id)
        if number is None:
            near = difflib.get_close_matches(persona_id, self.ids, n=3)
            shown = ", ".join(near or self.ids[:3])
            raise ReleaseError(
                f"no persona {persona_id!r}", where="personas", hint=f"such as {shown}"
            )
        return number

    @cached_property
    def _tastes(self) -> npt.NDArray[np.float64]:
        """Liked genres as 1 and disliked ones as -1, of length 1, of shape (personas, genres)."""
        likes, dislikes = self.frame["likes"].to_list(), self.frame["dislikes"].to_list()
        genres = {g: n for n, g in enumerate(sorted({*chain(*likes), *chain(*dislikes)}))}
        out = np.zeros((len(self), len(genres)))
        for sign, lists in ((1.0, likes), (-1.0, dislikes)):
            for n, names in enumerate(lists):
                out[n, [genres[g] for g in names]] = sign
        return np.asarray(out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1.0))

    def nearest(self, persona_id: str, count: int) -> npt.NDArray[np.int64]:
        """Personas with the most similar tastes, the persona itself first.

        Similarity is the cosine of liked (1) and disliked (-1) genres. Ties are broken by the
        difference in age, then by id.

        Returns
        -------
        array
            Indices of shape (count,), or of all personas if there are fewer.
        """
        number = self.index(persona_id)
        similarity = (self._tastes @ self._tastes[number]).round(9)
        order = np.lexsort((np.abs(self.ages - self.ages[number]), -similarity))
        return np.concatenate([[number], order[order != number]])[:count].astype(np.int64)

    def describe(self, persona: int) -> dict[str, Any]:
        """A persona's row, for people to read."""
        return self.frame.row(persona, named=True)


@dataclass(frozen=True)
class Exposures:
    """Items that personas may have watched, by the exposure of their planned pairs.

    Pairs of persona n begin at ``starts[n]``, of shape (personas + 1,); ``items`` are their item
    numbers and ``weights`` what they count in a draw: exposure over the probability that the pair
    was planned, each of shape (pairs,).
    """

    starts: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]

    @classmethod
    def read(cls, release: Release, catalogue: Catalogue, cast: PersonaTable) -> Exposures:
        """Read `score_plan` of a release; ReleaseError if no planned pair has an exposure."""
        release.require("score_plan")
        plan = release["score_plan"].lazy()
        columns = plan.collect_schema().names()
        if "exposure" not in columns:
            raise ReleaseError("its score_plan has no exposure", where=release.ref)
        numbers = (
            pl.DataFrame({"persona_id": cast.ids}).with_row_index("persona").lazy(),
            pl.DataFrame({"item_id": catalogue.ids}).with_row_index("item").lazy(),
        )
        pairs = (
            plan.drop_nulls(["exposure", "inclusion"])
            .join(numbers[0], on="persona_id")
            .join(numbers[1], on="item_id")
            .select("persona", "item", weight=pl.col("exposure") / pl.col("inclusion"))
            .sort("persona", "item")
            .collect()
        )
        if pairs.is_empty():
            raise ReleaseError("no planned pair has an exposure", where=release.ref)
        persona = pairs["persona"].to_numpy()
        starts = np.searchsorted(persona, np.arange(len(cast) + 1))
        item = pairs["item"].cast(pl.Int64).to_numpy()
        return cls(starts.astype(np.int64), item, pairs["weight"].to_numpy())

    def draw(self, persona: int, uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Distinct items of a persona, one after the other in proportion to their weights.

        `uniform` holds numbers in [0, 1), one per item, of shape (count,). Returns item numbers of
        the same shape, -1 at the end if there are fewer.
        """
        part = slice(self.starts[persona], self.starts[persona + 1])
        items, left = self.items[part], self.weights[part].copy()
        out = np.full(len(uniform), -1, np.int64)
        for n, share in enumerate(uniform[: len(items)]):
            below = np.cumsum(left)
            place = int(np.searchsorted(below, share * below[-1], side="right"))
            # A product that is rounded up to the sum leads beyond the last item that is left.
            place = min(place, int(np.flatnonzero(left)[-1]))
            out[n], left[place] = items[place], 0.0
        return out


def split_rows(release: Release, splits: Sequence[str]) -> pl.DataFrame:
    """Interactions of the named splits: ``user_id``, ``item_id``, ``rating``."""
    release.require("interactions", "splits")
    selected = release["splits"].lazy().filter(pl.col("split").is_in(list(splits)))
    rows = release["interactions"].lazy().select("user_id", "item_id", "rating")
    return rows.join(selected.select("user_id", "item_id"), on=["user_id", "item_id"]).collect()


def persona_users(release: Release) -> list[str | None]:
    """The ``user_id`` that each persona is matched to, in PersonaTable order; None for the others.

    Matches are the rows of the table ``matched_personas``; a release without it has none.
    """
    ids = PersonaTable.read(release).ids
    if "matched_personas" not in release:
        return [None] * len(ids)
    rows = release["matched_personas"].polars(["persona_id", "user_id"])
    users = dict(zip(rows["persona_id"].to_list(), rows["user_id"].to_list(), strict=True))
    return [users.get(persona) for persona in ids]


def known_items(release: Release, splits: Sequence[str] = ("train",)) -> npt.NDArray[np.int64]:
    """Items that matched personas have rated in the named splits: what to mask.

    Simulations mask ``train``, and ``test`` too where their feedback is trained on (as Agent4Rec
    does). Offline metrics mask ``train`` and ``validation``.

    Item numbers of shape (personas, h), padded with -1 at the end, in the form that ``seen`` of
    :meth:`sim.recommenders.Recommender.recommend` takes; h is 0 if no persona is matched.
    """
    users = persona_users(release)
    if not any(users):
        return np.zeros((len(users), 0), np.int64)
    return histories(split_rows(release, splits), users, Catalogue.read(release).ids)


def histories(
    rows: pl.DataFrame, users: Sequence[str | None], items: Sequence[str]
) -> npt.NDArray[np.int64]:
    """Item numbers of each user's rows, ascending, of shape (users, h), padded with -1."""
    numbers = pl.DataFrame({"item_id": items}).with_row_index("item")
    pairs = rows.select("user_id", "item_id").unique().join(numbers, on="item_id", how="left")
    if pairs["item"].null_count():
        item = pairs.filter(pl.col("item").is_null())["item_id"].sort()[0]
        raise ReleaseError("an interaction with an unknown item", where=f"interactions, {item}")
    lists = pairs.sort("user_id", "item").group_by("user_id", maintain_order=True).agg("item")
    per_user = pl.DataFrame({"user_id": users}, schema={"user_id": pl.String}).join(
        lists, on="user_id", how="left", maintain_order="left"
    )["item"]
    sizes = per_user.list.len().fill_null(0).to_numpy()
    out = np.full((len(users), int(sizes.max(initial=0))), -1, np.int64)
    out[np.arange(out.shape[1]) < sizes[:, None]] = per_user.explode().drop_nulls().to_numpy()
    return out


def persona_traits(release: Release) -> pl.DataFrame:
    """Traits of every persona: activity, conformity, diversity, mean rating, pickiness.

    A matched persona has those of its user. Any other borrows those of one person of
    ``training_traits``, chosen by a hash of its id: the same id has the same person as long as the
    table has the same users.

    One row per persona, in PersonaTable order: ``persona_id``, ``user_id`` (whose traits they are),
    ``matched``, and the other columns of the table ``training_traits``.

    Raises
    ------
    ReleaseError
        If the release lacks ``training_traits``, or a matched user is not in it.
    """
    release.require("training_traits")
    people = release["training_traits"].polars().sort("user_id")
    if people.is_empty():
        raise ReleaseError("no user has traits to borrow", where=f"{release.ref}, training_traits")
    ids, users = PersonaTable.read(release).ids, persona_users(release)
    borrowed = people["user_id"].gather((hash_ids(ids) % np.uint64(people.height)).astype(np.int64))
    matched = pl.Series(users, dtype=pl.String)
    frame = pl.DataFrame(
        {
            "persona_id": ids,
            "user_id": matched.fill_null(borrowed),
            "matched": matched.is_not_null(),
        }
    ).join(people, on="user_id", how="left", maintain_order="left")
    missing = frame.filter(pl.col("activity").is_null())["user_id"]
    if len(missing):
        raise ReleaseError("a matched user has no traits", where=f"training_traits, {missing[0]}")
    return frame


#: Columns of `preference_scores` that are replayed.
_REPLAYED = [
    *("persona_id", "item_id", "rater", "scale", "status", "probabilities", "prompt_version")
]


#: Raters that are made from a release alone, without the present settings.
_SETTINGLESS = ("statistical", "replay", "random", "mean")


@dataclass(frozen=True)
class World:
    """A release, opened for environments: items and personas by number, rater, retriever."""

    release: Release
    catalogue: Catalogue
    cast: PersonaTable
    rater: BoundRater
    retriever: Retriever

    @cached_property
    def exposures(self) -> Exposures:
        """Exposure of the planned pairs; ReleaseError if none has one."""
        return Exposures.read(self.release, self.catalogue, self.cast)

    @cached_property
    def known(self) -> npt.NDArray[np.int64]:
        """Training items of matched personas, which are not recommended to them.

        Item numbers of shape (personas, h), padded with -1; h is 0 if no persona is matched.
        """
        return known_items(self.release)

    @cached_property
    def traits(self) -> pl.DataFrame | None:
        """:func:`persona_traits`; None if the release has no table ``training_traits``."""
        return persona_traits(self.release) if "training_traits" in self.release else None

    @classmethod
    def open(
        cls,
        release: Release | Path | str = "latest",
        *,
        home: Path | str | None = None,
        domain: str | None = None,
        rater: str | Rater | Engine | BoundRater = "statistical",
        retriever: str | Retriever = "recent",
    ) -> World:
        """Open a release.

        Parameters
        ----------
        release, home
            A release, or a reference and the store's folder, as of :func:`sim.open_release`.
        domain
            Required kind of items, such as ``movies``; default any.
        rater
            As of :func:`sim.environment.open_rater`.
        retriever
            A name of :data:`pipelines.seams.RETRIEVERS`, or a retriever over the same items.

        Raises
        ------
        ReleaseError
            If there is no such release, it lacks a table, or it is of another domain.
        """
        opened = release if isinstance(release, Release) else open_release(release, home=home)
        opened.require("items", "personas")
        if domain is not None and opened.domain != domain:
            raise ReleaseError(
                f"a release of {opened.domain}, not of {domain}",
                where=opened.ref,
                hint=f'such as release="{domain}@latest"',
            )
        if isinstance(rater, str) and rater in _SETTINGLESS and isinstance(retriever, str):
            return _shared(opened, opened.home, rater, retriever)
        return _opened_world(opened, rater, retriever)


@lru_cache(maxsize=1)
def _shared(release: Release, home: Path, rater: str, retriever: str) -> World:  # noqa: ARG001
    """The latest world that depends on nothing but its release.

    Environments that are made one after the other share it; a forked worker, in which Polars can't
    read tables, finds that of its parent.
    """
    return _opened_world(release, rater, retriever)


def _opened_world(
    release: Release, rater: str | Rater | Engine | BoundRater, retriever: str | Retriever
) -> World:
    catalogue, cast = Catalogue.read(release), PersonaTable.read(release)
    if isinstance(retriever, str):
        retriever = _retriever(retriever, release, catalogue)
    world = World(release, catalogue, cast, open_rater(rater, release, cast), retriever)
    # Read now: a forked worker that gets this world can't read tables.
    _ = world.known, world.traits
    return world


def open_rater(
    rater: str | Rater | Engine | BoundRater, release: Release, cast: PersonaTable
) -> BoundRater:
    """A rater on a release, over its items in the order of their ids.

    Parameters
    ----------
    rater
        A name of :data:`pipelines.seams.RATERS`: opened with the scale, seed
        and prompts that the release was scored with, so that a persona here is as lenient as in
        ``preference_scores``. ``llm`` asks the engine of the release's settings, or, if it was
        scored without a model, of the present ones. Or a rater, an engine, or the result of
        this function.
    release, cast
        The release, and its personas as the environment numbers them.

    Raises
    ------
    ConfigError
        If there is no such rater, or its engine can't be opened; if a surrogate is not shown to be
        better than a mean on some kind of pairs here, unless the present settings have
        ``surrogate.allow_below_floor``: then the rater carries a ``warning``.
    ReleaseError
        If the release lacks a table that the rater needs.
    """
    from pipelines.llm.engines import Engine
    from pipelines.raters import BoundRater, Rater, bind

    if isinstance(rater, BoundRater):
        return rater
    items = release["items"].polars().sort("item_id")
    if isinstance(rater, str | Engine):
        return _faithful(bind(_opened(rater, release, items), cast.frame, items))
    if isinstance(rater, Rater):
        return _faithful(bind(rater, cast.frame, items))
    raise ConfigError(
        "neither a rater nor an engine", where=type(rater).__name__, hint="see open_rater"
    )


def _faithful(bound: BoundRater) -> BoundRater:
    """The rater, unless it is a surrogate that is no better than a mean on pairs at hand."""
    from pipelines.config import load_settings
    from pipelines.raters import BoundSurrogate

    if not isinstance(bound, BoundSurrogate) or not bound.below_baseline:
        return bound
    kinds = "; ".join(bound.below_baseline)
    if not load_settings().surrogate.allow_below_floor:
        raise ConfigError(
            f"it is not shown to be better than a mean on pairs of {kinds}",
            where=bound.name,
            hint="surrogate.allow_below_floor=true opens it with a warning",
        )
    bound.warning = f"This surrogate is not shown to be better than a mean on pairs of {kinds}."
    bound.note = f"{bound.note} {bound.warning}"
    return bound


def _opened(rater: str | Engine, release: Release, items: pl.DataFrame) -> Rater:
    from pipelines import raters
    from pipelines.config import ScoringSettings, Settings, load_settings

    name = current_setting(rater, "rater") if isinstance(rater, str) else "llm"
    needs = raters.needs_of(name, optional=False)
    recorded = release.settings
    names = ScoringSettings.model_fields
    scoring = {k: v for k, v in recorded.get("scoring", {}).items() if k in names}
    scoring |= {"rater": name, "replay": None}
    if name != "ensemble":
        scoring["ensemble"] = ()
    # Answers are stored in a home; that of a pushed or packaged release is read only.
    read_only = isinstance(release.home, ObjectPath) or release.home == SAMPLE_HOME
    runtime = {"home": load_settings().runtime.home if read_only else release.home}
    settings = Settings(scoring=scoring, runtime=runtime)
    if name == "surrogate":
        settings = Settings(scoring=scoring, runtime=runtime, surrogate=load_settings().surrogate)
    if isinstance(rater, str) and name in ("llm", "ensemble"):
        named = recorded.get("engine", {}).get("kind", "none") != "none"
        engine = {"engine": recorded["engine"]} if named else {}
        settings = load_settings(overrides={"scoring": scoring, **engine})
    if name in RATERS:
        release.require(*needs)
    tables: dict[str, Any] = {}
    for table in raters.needs_of(name):
        if table in release and table != "items":
            read = release[table]
            tables[table] = (
                read.lazy()
                if table in ("interactions", "splits")
                else read.polars(_REPLAYED if table == "preference_scores" else None)
            )
    try:
        return raters.open_rater(
            settings,
            items=items,
            domain=release.domain,
            engine=None if isinstance(rater, str) else rater,
            **tables,
        )
    except (ConfigError, ContractError) as error:
        if name != "replay":
            raise
        raise ReleaseError(str(error), where=f"{release.ref} preference_scores") from error


def _retriever(name: str, release: Release, catalogue: Catalogue) -> Retriever:
    """The retriever of that name, with the tables it needs."""
    more: dict[str, Any] = {}
    if name == "features":
        items = release["items"].polars().sort("item_id")
        if "item_stats" in release and "interactions" in release:
            from pipelines.raters import source_scale

            more["item_stats"] = release["item_stats"].polars()
            more["scale"] = source_scale(release["interactions"].lazy())
    else:
        items = catalogue.frame
        if name == "embedding":
            release.require("item_embeddings")
            more["item_embeddings"] = release["item_embeddings"].polars(["item_id", "vector"])
        elif name == "graph":
            release.require("graph_triples")
            more["release"] = release
    return open_retriever(name, items=items, **more)
