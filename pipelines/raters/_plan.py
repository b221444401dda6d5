"""Plan of the scored pairs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import polars as pl

from pipelines.config import ScoringSettings
from pipelines.errors import ConfigError, ContractError
from pipelines.raters._exposure import draw_sample, inclusion
from pipelines.raters.protocol import Floats, Ints
from pipelines.seeding import U64, combine, hash_ids, uniform

#: Popularity strata and the share of items (most rated first) at which each ends.
STRATA = (("head", 0.1), ("torso", 0.4), ("tail", 1.0))
_CHUNK = 64
#: Part of a persona's draw, as a key of the generator.
_START = 7

Exposure: TypeAlias = Callable[..., Floats]


def pairs_each(personas: int, items: int, settings: ScoringSettings) -> int:
    """Items of each persona in a plan of so many personas and items (counts); 0 is too few."""
    return min(settings.max_pairs // max(personas, 1), items)


def plan_pairs(
    personas: pl.DataFrame,
    items: pl.DataFrame,
    item_stats: pl.DataFrame,
    settings: ScoringSettings,
    exposure: Exposure | None = None,
    *,
    cohort: int | None = None,
) -> pl.DataFrame:
    """All personas with all items, or equally many items for each persona.

    Above ``max_pairs`` every persona gets the same number of items. With ``plan: stratified`` they
    are a third of each popularity stratum (the tenth of items rated most, the next three tenths,
    the rest); what a small stratum can't fill goes to the next. With ``plan: exposure`` they are
    drawn with probabilities proportional to the persona's exposure, but at most 1. Items are drawn
    by hashes of (persona, item, seed), so that another persona in the cohort changes the plans of
    the others by the share only.

    Parameters
    ----------
    personas, items, item_stats
        Tables of those names; an item without statistics is least popular.
    settings
        ``plan``, ``max_pairs`` and ``seed``.
    exposure
        P(watch) of persona ids with item ids, or with those at places of shape (personas, places);
        None where no model can be fitted.
    cohort
        Personas of the whole cohort (count), if these are a block of it.

    Returns
    -------
    The `score_plan` contract, in its order.

    Raises
    ------
    ContractError
        If there is no persona or no item.
    ConfigError
        If ``max_pairs`` does not give each persona one item, or ``plan: exposure`` lacks a model.
    """
    if not personas.height or not items.height:
        raise ContractError("there is nothing to score", where="personas or items: no rows")
    people = personas["persona_id"].sort()
    films = items["item_id"].sort()
    count = len(people) if cohort is None else cohort
    share = pairs_each(count, len(films), settings)
    if share < 1:
        raise ConfigError(
            f"scoring.max_pairs is {settings.max_pairs} for {count} personas",
            where="scoring.max_pairs",
            hint="at least one pair per persona",
        )
    if settings.plan == "exposure" and exposure is None:
        raise ConfigError(
            "no exposure to plan by: there are no training interactions",
            where="scoring.plan",
            hint="scoring.plan=stratified",
        )
    popularity = _popularity(films, item_stats)
    all_items = share == len(films)
    names = pl.Series(["all", "exposure", *(name for name, _ in STRATA)])
    frames = []
    for start in range(0, len(people), _CHUNK):
        part = people[start : start + _CHUNK]
        watched: Floats | None = None
        keys = combine(settings.seed, hash_ids(part))[:, None]
        if all_items:
            film = np.tile(np.arange(len(films)), (len(part), 1))
            chance, stratum = np.ones(film.shape), np.zeros(film.shape, np.int64)
        elif settings.plan == "exposure":
            assert exposure is not None
            everything = exposure(part, films)
            chance = inclusion(everything, share)
            order = combine(keys, hash_ids(films)[None, :])
            film = draw_sample(chance, order, uniform(keys[:, 0], _START), share)
            chance, watched = (np.take_along_axis(a, film, axis=1) for a in (chance, everything))
            stratum = np.ones(film.shape, np.int64)
        else:
            film, chance, stratum = _stratified(keys, hash_ids(films), popularity, share)
        if exposure is not None and watched is None:
            # A plan of few pairs needs no probability of all.
            watched = exposure(part, films, None if all_items else film)
        frames.append(
            pl.DataFrame(
                {
                    "persona_id": part.gather(np.repeat(np.arange(len(part)), share)),
                    "item_id": films.gather(film.ravel()),
                    "stratum": names.gather(stratum.ravel()),
                    "inclusion": chance.ravel(),
                    "exposure": None if watched is None else watched.ravel(),
                },
                schema_overrides={"exposure": pl.Float64},
            )
        )
    # The last digits of a matrix product differ between machines.
    return pl.concat(frames).with_columns(pl.col("inclusion", "exposure").round_sig_figs(6))


def plan_choice_sets(
    personas: pl.DataFrame,
    choice_set_items: pl.DataFrame,
    settings: ScoringSettings,
    *,
    cohort: int | None = None,
) -> pl.DataFrame:
    """All personas with all products of choice sets: of every set, or of as many as fit.

    Above ``max_pairs``, sets are taken in the order of their hashes while the products of all taken
    ones, times the personas, fit. All personas score the same sets, so that dialogues in a set find
    the scores of every persona. ``choice_set_items`` has ``category_id, item_id``; ``cohort``
    counts the personas of the whole cohort, if these are a block of it. Rows are the `score_plan`
    contract, in its order, without exposure: a set is shown as a whole.

    Raises
    ------
    ContractError
        If there is no persona or no choice set.
    ConfigError
        If ``max_pairs`` does not suffice for one set.
    """
    if not personas.height or not choice_set_items.height:
        raise ContractError("there is nothing to score", where="personas or choice sets: no rows")
    people = personas["persona_id"].sort()
    count = len(people) if cohort is None else cohort
    sets = choice_set_items["category_id"].unique().sort()
    order = sets.gather(np.argsort(combine(settings.seed, hash_ids(sets)), kind="stable"))
    ranked = pl.DataFrame({"category_id": order}).with_row_index("rank")
    # Of an item in several sets, the first one adds it.
    new = (
        choice_set_items.join(ranked, on="category_id")
        .group_by("item_id")
        .agg(pl.col("rank").min(), sets=pl.len())
        .sort("rank")
    )
    size = np.cumsum(np.bincount(new["rank"].to_numpy(), minlength=len(sets)))
    taken = int((size * count <= settings.max_pairs).sum())
    if not taken:
        raise ConfigError(
            f"product_scoring.max_pairs is {settings.max_pairs} for {count} personas and a "
            f"choice set of {size[0]} products",
            where="product_scoring.max_pairs",
            hint="at least all personas with one choice set",
        )
    # The sets that are left out are a sample without replacement: P(it holds k sets), k = 1 ...
    left = np.arange(len(sets), 0, -1)
    lost = np.cumprod(np.maximum(left - taken, 0) / left)
    chosen = (
        new.filter(pl.col("rank") < taken)
        .select("item_id", inclusion=1.0 - pl.lit(pl.Series(lost)).gather(pl.col("sets") - 1))
        .sort("item_id")
    )
    return (
        pl.DataFrame({"persona_id": people})
        .join(chosen, how="cross")
        .select(
            "persona_id",
            "item_id",
            pl.lit("choice_set").alias("stratum"),
            pl.col("inclusion").round_sig_figs(6),
            pl.lit(None, pl.Float64).alias("exposure"),
        )
    )


def planned_sets(choice_set_items: pl.DataFrame, items: pl.Series) -> pl.DataFrame:
    """Rows of the choice sets all of whose products are among `items`."""
    complete = pl.col("item_id").is_in(items.implode()).all().over("category_id")
    return choice_set_items.filter(complete)


def _popularity(films: pl.Series, item_stats: pl.DataFrame) -> Ints:
    """Rows of `films`, most rated first."""
    rank = (
        pl.DataFrame({"item_id": films})
        .with_row_index("row")
        .join(item_stats.select("item_id", "popularity_rank"), on="item_id", how="left")
        .sort("popularity_rank", "item_id", nulls_last=True)
    )
    return rank["row"].cast(pl.Int64).to_numpy()


def _stratified(
    keys: U64, film_keys: U64, popularity: Ints, share: int
) -> tuple[Ints, Floats, Ints]:
    """Items of each persona, ascending, their inclusion probabilities and rows of the strata."""
    size = len(film_keys)
    edges = [0, *(round(end * size) for _, end in STRATA)]
    members = [popularity[a:b] for a, b in itertools.pairwise(edges)]
    quotas = _quotas([len(m) for m in members], share)
    chance, stratum = np.empty(size), np.empty(size, dtype=np.int64)
    chosen = []
    for number, (rows, quota) in enumerate(zip(members, quotas, strict=True)):
        chance[rows], stratum[rows] = quota / max(len(rows), 1), number + 2
        if not quota:
            continue
        order = combine(keys, film_keys[rows][None, :])
        if quota < len(rows):
            chosen.append(rows[np.argpartition(order, quota - 1, axis=1)[:, :quota]])
        else:
            chosen.append(np.broadcast_to(rows, order.shape))
    film = np.sort(np.concatenate(chosen, axis=1), axis=1)
    return film, chance[film], stratum[film]


def _quotas(sizes: list[int], share: int) -> list[int]:
    """Equal parts of `share`, at most the size of each stratum; the rest flows on.

    >>> _quotas([10, 30, 60], 31)
    [10, 11, 10]
    >>> _quotas([10, 30, 60], 90)
    [10, 30, 50]
    """
    quotas = [0] * len(sizes)
    left = min(share, sum(sizes))
    while left:
        room = [n for n, size in enumerate(sizes) if quotas[n] < size]
        part, extra = divmod(left, len(room))
        for place, n in enumerate(room):
            taken = min(part + (place < extra), sizes[n] - quotas[n])
            quotas[n] += taken
            left -= taken
    return quotas
