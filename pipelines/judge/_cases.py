"""Cases for human judges: pairs of a persona and an item, with the raters' replies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from pipelines.errors import ConfigError, ContractError
from pipelines.scales import scale_named
from pipelines.seeding import combine, hash_ids, hash_text, uniform

#: Name of the rater that draws at random: what judges say of it is what chance is worth.
CONTROL = "random control"
#: Characters of an item's prose that a judge is shown.
_PROSE = 700


@dataclass(frozen=True)
class Reply:
    """A rater's reply: a rating on a scale and, if given, an explanation; or a log of several."""

    #: Name of the rater.
    rater: str
    #: On `scale`; None where there is a log.
    rating: int | None
    #: Name of the scale.
    scale: str
    #: Why; None without one.
    explanation: str | None = None
    #: Lines of what was watched and rated, in their order.
    log: tuple[str, ...] = ()


@dataclass(frozen=True)
class Case:
    """A persona, an item, and every rater's reply."""

    #: Stable name of the pair.
    key: str
    #: Text about both, as a judge reads it.
    person: str
    item: str
    #: One per rater, the control included.
    replies: tuple[Reply, ...]


def draw_cases(
    scores: Mapping[str, pl.DataFrame],
    personas: pl.DataFrame,
    items: pl.DataFrame,
    *,
    count: int = 10,
    seed: int = 0,
) -> list[Case]:
    """Pairs that every rater scored, drawn at random, with a random control added.

    A failed answer is no reply: its pair is not asked about. Explanations are kept only if
    every rater gave one for every drawn pair, and dropped otherwise: a reply without one among
    others that have one would give its rater away. (The control has none, unless the caller
    puts in one: without a model to write it, no explanation is shown.)

    Parameters
    ----------
    scores
        Rows of `preference_scores` by name of the rater, all on one scale.
    personas, items
        Tables that hold everybody and everything in them.
    count, seed
        Number of pairs, and the seed of their choice.

    Raises
    ------
    ConfigError
        If no rater is given, or fewer pairs than asked for are common to all.
    ContractError
        If the raters answered on different scales.
    """
    if not scores:
        raise ConfigError("there is no rater to judge", where="judge export")
    usable = {
        name: frame.filter(pl.col("status") == "ok") for name, frame in sorted(scores.items())
    }
    scales = {s for frame in usable.values() for s in frame["scale"].unique()}
    if len(scales) != 1:
        raise ContractError(
            "raters must answer on one scale to be compared", where=", ".join(sorted(scales))
        )
    scale = scales.pop()
    keys = ["persona_id", "item_id"]
    common = next(iter(usable.values())).select(keys)
    for frame in usable.values():
        common = common.join(frame.select(keys), on=keys, how="semi")
    common = common.sort(keys)
    if common.height < count:
        raise ConfigError(
            f"{common.height} pairs were scored by every rater, {count} are requested",
            where=", ".join(usable),
            hint="request fewer, or score the same plan with all raters",
        )
    draw = combine(seed, hash_ids(common["persona_id"]), hash_ids(common["item_id"]))
    chosen = common[np.argsort(draw)[:count].tolist()]
    return [
        _case(row, usable, personas, items, scale, seed) for row in chosen.iter_rows(named=True)
    ]


def _case(
    pair: Mapping[str, str],
    scores: Mapping[str, pl.DataFrame],
    personas: pl.DataFrame,
    items: pl.DataFrame,
    scale: str,
    seed: int,
) -> Case:
    person = personas.filter(pl.col("persona_id") == pair["persona_id"])
    item = items.filter(pl.col("item_id") == pair["item_id"])
    if not person.height or not item.height:
        raise ContractError("a scored pair has an unknown persona or item", where=f"{dict(pair)}")
    replies = []
    for rater, frame in scores.items():
        row = frame.filter(
            (pl.col("persona_id") == pair["persona_id"]) & (pl.col("item_id") == pair["item_id"])
        ).row(0, named=True)
        replies.append(Reply(rater, int(row["mode"]), scale, row.get("explanation")))
    answers = scale_named(scale).answers
    key = f"{pair['persona_id']} {pair['item_id']}"
    drawn = float(np.asarray(uniform(seed, hash_text(key), 1)).ravel()[0])
    control = int(answers[int(drawn * len(answers))])
    replies.append(Reply(CONTROL, control, scale))
    return Case(
        key, person["description"][0], _item_text(item.row(0, named=True)), tuple(_blind(replies))
    )


def _blind(replies: Sequence[Reply]) -> Sequence[Reply]:
    """All explanations or none."""
    if all(r.explanation for r in replies):
        return replies
    return [Reply(r.rater, r.rating, r.scale) for r in replies]


def _item_text(item: Mapping[str, object]) -> str:
    year = f" ({item['year']})" if item.get("year") else ""
    genres = item.get("genres")
    listed = f" {', '.join(map(str, genres))}." if isinstance(genres, list) and genres else ""
    prose = str(item.get("overview") or item.get("description") or "")
    if len(prose) > _PROSE:
        prose = prose[:_PROSE].rsplit(" ", 1)[0] + " …"
    return f"{item['title']}{year}.{listed} {prose}".strip()
