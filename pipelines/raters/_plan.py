"""Which pairs are scored."""

from __future__ import annotations

import itertools

import numpy as np
import polars as pl

from pipelines.config import ScoringSettings
from pipelines.errors import ConfigError, ContractError
from pipelines.raters.protocol import Ints
from pipelines.seeding import combine, hash_ids

__all__ = ["STRATA", "plan_pairs"]

#: Popularity strata and the share of items (most rated first) at which each ends.
STRATA = (("head", 0.1), ("torso", 0.4), ("tail", 1.0))
_CHUNK = 64


def plan_pairs(
    personas: pl.DataFrame,
    items: pl.DataFrame,
    item_stats: pl.DataFrame,
    settings: ScoringSettings,
) -> pl.DataFrame:
    """All personas with all items, or an equal share of items for each persona.

    Above ``max_pairs`` every persona gets the same number of items, a third of each popularity
    stratum (the tenth of items rated most, the next three tenths, the rest); what a small
    stratum can't fill goes to the next. Which items is decided by hashes of (persona, item,
    seed), so that another persona in the cohort changes nobody's plan but by the share.

    Parameters
    ----------
    personas, items, item_stats
        Tables of those names; an item without statistics is least popular.
    settings
        ``max_pairs`` and ``seed``.

    Returns
    -------
    The `score_plan` contract, in its order.

    Raises
    ------
    ContractError
        If there is no persona or no item.
    ConfigError
        If ``max_pairs`` does not give each persona one item.
    """
    if not personas.height or not items.height:
        raise ContractError("there is nothing to score", where="personas or items: no rows")
    people = personas["persona_id"].sort()
    films = items["item_id"].sort()
    if len(people) * len(films) <= settings.max_pairs:
        frame = pl.DataFrame({"persona_id": people}).join(
            pl.DataFrame({"item_id": films}), how="cross", maintain_order="left_right"
        )
        return frame.with_columns(pl.lit("all").alias("stratum"))
    share = settings.max_pairs // len(people)
    if share < 1:
        raise ConfigError(
            f"scoring.max_pairs is {settings.max_pairs} for {len(people)} personas",
            where="scoring.max_pairs",
            hint="at least one pair per persona",
        )
    return _sampled(people, films, _popularity(films, item_stats), share, settings.seed)


def _popularity(films: pl.Series, item_stats: pl.DataFrame) -> Ints:
    """Rows of `films`, most rated first."""
    rank = (
        pl.DataFrame({"item_id": films})
        .with_row_index("row")
        .join(item_stats.select("item_id", "popularity_rank"), on="item_id", how="left")
        .sort("popularity_rank", "item_id", nulls_last=True)
    )
    return rank["row"].cast(pl.Int64).to_numpy()


def _sampled(
    people: pl.Series, films: pl.Series, popularity: Ints, share: int, seed: int
) -> pl.DataFrame:
    size = len(films)
    edges = [0, *(round(end * size) for _, end in STRATA)]
    members = [popularity[a:b] for a, b in itertools.pairwise(edges)]
    quotas = _quotas([len(m) for m in members], share)
    person_key = combine(seed, hash_ids(people))
    film_key = hash_ids(films)
    stratum_of = np.empty(size, dtype=np.int64)
    for number, rows in enumerate(members):
        stratum_of[rows] = number
    names = pl.Series([name for name, _ in STRATA])
    frames = []
    for start in range(0, len(people), _CHUNK):
        keys = person_key[start : start + _CHUNK]
        chosen = []
        for rows, quota in zip(members, quotas, strict=True):
            if not quota:
                continue
            order = combine(keys[:, None], film_key[rows][None, :])
            if quota < len(rows):
                chosen.append(rows[np.argpartition(order, quota - 1, axis=1)[:, :quota]])
            else:
                chosen.append(np.broadcast_to(rows, order.shape))
        film = np.sort(np.concatenate(chosen, axis=1), axis=1)
        person = np.repeat(np.arange(start, start + len(keys)), film.shape[1])
        frames.append(
            pl.DataFrame(
                {
                    "persona_id": people.gather(person),
                    "item_id": films.gather(film.ravel()),
                    "stratum": names.gather(stratum_of[film.ravel()]),
                }
            )
        )
    return pl.concat(frames)


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
