"""Asking a rater the questions of a test, block by block, each kept as soon as it is answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.errors import ContractError
from pipelines.raters import layers
from pipelines.scales import rescale
from sim.ablations._cases import Cases

if TYPE_CHECKING:
    import polars as pl

    from pipelines.ablations import Kept
    from pipelines.raters import Rater
    from pipelines.retrieval import Retriever

__all__ = ["BLOCK", "answers", "blocks", "recall"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

#: Cases that are asked and kept together at most (count).
BLOCK = 1_000
_RATINGS, _PARTS = "ratings", "parts"


def recall(cases: Cases, retriever: Retriever | None, k: int) -> tuple[Ints, Floats]:
    """The past items that each case shows, oldest first, and their ratings.

    Each case has its own memory: nothing that another case asked is in it.

    Returns
    -------
    Item numbers, -1 padding, and ratings on the cases' scale, each of shape (n, k).
    """
    if retriever is None or not cases.history.shape[1]:
        return np.empty((len(cases), 0), dtype=np.int64), np.empty((len(cases), 0))
    ratings = np.nan_to_num(cases.ratings)
    at = retriever.select(cases.item, cases.history, ratings, k)
    there = at >= 0
    safe = np.where(there, at, 0)
    items = np.where(there, np.take_along_axis(cases.history, safe, axis=1), -1)
    shown = np.take_along_axis(cases.ratings, safe, axis=1)
    return items, np.where(there, shown, np.nan)


def blocks(person: Ints, *, alone: bool, most: int = BLOCK) -> Iterator[Ints]:
    """Rows of the cases that are asked together, together each once.

    Parameters
    ----------
    person
        Who is asked in each case, of shape (n,).
    alone
        Whether nobody may be in a block twice: a rater knows histories by persona, so two
        memories of one persona must not meet in a call.
    most
        Cases of a block at most (count).

    >>> [b.tolist() for b in blocks(np.array([7, 7, 8]), alone=True)]
    [[0, 2], [1]]
    >>> [b.tolist() for b in blocks(np.array([7, 7, 8]), alone=False, most=2)]
    [[0, 1], [2]]
    """
    order = np.argsort(person, kind="stable")
    turn = layers(person)[order] if alone else np.zeros(len(order), dtype=np.int64)
    for round_ in range(int(turn.max()) + 1 if len(turn) else 0):
        rows = order[turn == round_]
        for start in range(0, len(rows), most):
            yield rows[start : start + most]


def answers(
    key: str,
    cases: Cases,
    shown: tuple[Ints, Floats],
    rater: Callable[[], Rater],
    items: pl.DataFrame,
    kept: Kept,
    *,
    most: int = BLOCK,
    progress: Callable[[int], None] = lambda _: None,
) -> pl.DataFrame:
    """What the rater says in each case, asked only where it is not kept yet.

    Parameters
    ----------
    key
        Identity of rater, cases and what is shown.
    cases, shown
        The questions, and :func:`recall`'s answer for them.
    rater
        Opens the rater; not called if everything is kept.
    items
        The release's items in the order of their ids.
    kept
        Where answers are.
    most
        Cases that are asked together at most (count).
    progress
        Called with the number of cases done, kept ones too.

    Returns
    -------
    ``case`` (0 to n - 1, ascending), ``status`` and ``probabilities`` (null unless ``ok``).
    """
    import polars as pl

    found = kept.frame(_RATINGS, key)
    if found is not None:
        progress(len(cases))
        return found
    parts = []
    for number, rows in enumerate(blocks(cases.person, alone=shown[0].shape[1] > 0, most=most)):
        name = f"{key}-{number:05d}"
        part = kept.frame(_PARTS, name)
        if part is None or part.height != len(rows):
            part = _asked(cases, rows, shown, rater(), items)
            kept.put(_PARTS, name, part)
        parts.append(part)
        progress(len(rows))
    schema: dict[str, Any] = {
        "case": pl.Int64,
        "status": pl.String,
        "probabilities": pl.List(pl.Float64),
    }
    whole = (pl.concat(parts) if parts else pl.DataFrame(schema=schema)).sort("case")
    if whole.height != len(cases) or whole["case"].n_unique() != len(cases):
        raise ContractError(
            f"{whole.height} stored answers for {len(cases)} cases",
            where=f"{cases.test}, key {key[:16]}",
            hint="remove the folder `ablations` of the home and run again",
        )
    # A call that failed is asked again by the next run; the blocks without one are not.
    if not (whole["status"] == "engine_error").any():
        kept.put(_RATINGS, key, whole)
        kept.drop(_PARTS, [f"{key}-{n:05d}" for n in range(len(parts))])
    else:
        kept.drop(
            _PARTS,
            [
                f"{key}-{n:05d}"
                for n, part in enumerate(parts)
                if (part["status"] == "engine_error").any()
            ],
        )
    return whole


def _asked(
    cases: Cases, rows: Ints, shown: tuple[Ints, Floats], rater: Rater, items: pl.DataFrame
) -> pl.DataFrame:
    import polars as pl

    who, person = np.unique(cases.person[rows], return_inverse=True)
    what, item = np.unique(cases.item[rows], return_inverse=True)
    people = cases.personas[who.tolist()]
    past_items, past_ratings = shown[0][rows], shown[1][rows]
    there = past_items >= 0
    histories = None
    if there.any():
        ratings = rescale(past_ratings[there], cases.scale, rater.scale)
        at = np.nonzero(there)[0]
        histories = pl.DataFrame(
            {
                "persona_id": people["persona_id"].gather(person[at]),
                "item_id": items["item_id"].gather(past_items[there]),
                # A conversion of 1-10 to 0-9 and back is exact but for rounding.
                "rating": np.clip(ratings, rater.scale.low, rater.scale.high),
            }
        )
    batch = rater.rate(
        people, items[what.tolist()], histories, pairs=np.stack([person, item], axis=1)
    )
    status = pl.Series("status", list(batch.status), dtype=pl.String)
    return pl.DataFrame(
        {
            "case": rows,
            "status": status,
            "probabilities": pl.Series(batch.probabilities).arr.to_list(),
        }
    ).with_columns(probabilities=pl.when(pl.col("status") == "ok").then("probabilities"))
