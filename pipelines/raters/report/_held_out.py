"""Human users as raters see them: persona rows from traits, training ratings as the history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import ContractError
from pipelines.raters.protocol import OK, Floats, Ints, Rater, RatingBatch
from pipelines.raters.report._metrics import HeldOut, Predictions
from pipelines.raters.statistical import (
    HUMAN,
    Catalogue,
    HumanRows,
    StatisticalRater,
    collect_rows,
    source_scale,
)
from pipelines.scales import RatingScale, rescale, to_answers

Table: TypeAlias = pl.DataFrame | pl.LazyFrame

#: Pairs that a rater is asked at once (count); whole users.
_BATCH = 65_536
_GENDERS = {"F": "female", "M": "male", "female": "female", "male": "male"}
_NOUNS = {"female": "woman", "male": "man"}


@dataclass(frozen=True)
class People:
    """Held-out ratings of some users, and what is known of these users."""

    #: Rows of the `items` contract.
    items: pl.DataFrame
    #: Training ratings of those whom predictors may learn from, and the ratings to predict; who is
    #: in `held_out` is in `train`.
    train: HumanRows
    held_out: HumanRows
    #: The source's scale.
    scale: RatingScale
    #: Rows of `human_users`, or None.
    traits: pl.DataFrame | None = None

    def person(self) -> Ints:
        """Row of each held-out rating's user among those of `train`, of shape (held out,)."""
        place = {user: n for n, user in enumerate(self.train.users)}
        return np.array([place[u] for u in self.held_out.users], dtype=np.int64)[self.held_out.user]

    def truth(self, chosen: npt.NDArray[np.bool_] | None = None) -> HeldOut:
        """The ratings to predict, or those of a mask; users are numbered without gaps."""
        mask = np.ones(len(self.held_out), dtype=np.bool_) if chosen is None else chosen
        user = np.unique(self.held_out.user[mask], return_inverse=True)[1]
        return HeldOut(user.astype(np.int64), self.held_out.rating[mask], self.scale)

    def first(self, most: int | None) -> npt.NDArray[np.bool_]:
        """Mask of as many whole users' ratings as `most` allows, but of one user at least."""
        if most is None or len(self.held_out) <= most:
            return np.ones(len(self.held_out), dtype=np.bool_)
        ends = np.cumsum(np.bincount(self.held_out.user))
        return np.asarray(self.held_out.user <= max(int((ends <= most).sum()) - 1, 0))


@dataclass(frozen=True)
class RaterAnswers:
    """A rater's predictions of the held-out ratings of the mask `answered`."""

    predictions: Predictions
    answered: npt.NDArray[np.bool_]
    failed: int


def collect_people(
    *,
    items: pl.DataFrame,
    interactions: Table,
    splits: Table,
    split: str,
    human_users: pl.DataFrame | None = None,
    most_train: int,
    most: int,
) -> People:
    """Ratings of one split, and the training ratings of their users and of others.

    ``split`` is ``validation`` or ``test``; large tables may be lazy. At most ``most_train``
    training and ``most`` held-out ratings (counts) are taken: whole users, chosen by hash. Raises
    ContractError if the split has no rating.
    """
    index = Catalogue.build(items, np.zeros(items.height), None)
    train = collect_rows(interactions, splits, "train", index, most=most_train)
    held = collect_rows(interactions, splits, split, index, users=train.users, most=most)
    if not len(held):
        raise ContractError("there is no held-out rating", where=f"splits, {split}")
    return People(items, train, held, source_scale(interactions), human_users)


def time_split(
    items: pl.DataFrame, interactions: Table
) -> tuple[pl.DataFrame, pl.DataFrame] | None:
    """Split at one point in time for everybody: earlier ratings train, later ones are held out.

    A split per user by time lets an item's later ratings by others explain an earlier one. The
    point is the ninth decile of the times of rating. Returns `item_stats` (its `train_`
    columns) and `splits`; None if no user has ratings on both sides.
    """
    rows = interactions.lazy().select("user_id", "item_id", "rating", "rated_at")
    point = rows.select(pl.col("rated_at").quantile(0.9, "lower")).collect().item()
    if point is None:
        return None
    part = pl.when(pl.col("rated_at") <= point).then(pl.lit("train")).otherwise(pl.lit("test"))
    marked = rows.with_columns(split=part)
    splits, stats = pl.collect_all(
        [
            marked.select("user_id", "item_id", "split"),
            marked.filter(pl.col("split") == "train")
            .group_by("item_id")
            .agg(train_ratings=pl.len().cast(pl.Int64), train_mean_rating=pl.col("rating").mean()),
        ],
        engine="streaming",
    )
    sides = splits.group_by("user_id").agg(pl.col("split").n_unique())
    if (sides["split"] < 2).all():
        return None
    filled = items.select("item_id").join(stats, on="item_id", how="left", maintain_order="left")
    return filled.with_columns(pl.col("train_ratings").fill_null(0)), splits


def persona_rows(users: list[str], traits: pl.DataFrame | None) -> pl.DataFrame:
    """Rows like those of the `personas` contract, with the source's attributes of each user.

    The description holds age band, gender and occupation where they are known and nothing
    else; tastes are not stated, and nothing is guessed. ``origin`` is ``human``.
    """
    frame = pl.DataFrame({"persona_id": users}, schema={"persona_id": pl.String})
    columns = ("age_band", "gender", "occupation")
    if traits is None:
        persons = frame.with_columns(pl.lit(None, dtype=pl.String).alias(c) for c in columns)
    else:
        persons = frame.join(
            traits.select(pl.col("user_id").alias("persona_id"), *columns),
            on="persona_id",
            how="left",
            maintain_order="left",
        )
    persons = persons.with_columns(
        pl.col("gender").replace_strict(_GENDERS, default=None, return_dtype=pl.String)
    )
    noun = pl.col("gender").replace_strict(_NOUNS, default="person", return_dtype=pl.String)
    text = pl.concat_str(
        pl.lit("A "),
        noun,
        (pl.lit(" aged ") + pl.col("age_band")).fill_null(""),
        (pl.lit(", by occupation: ") + pl.col("occupation")).fill_null(""),
        pl.lit("."),
    )
    anything = pl.any_horizontal(pl.col(*columns).is_not_null())
    empty = pl.lit([], dtype=pl.List(pl.String))
    return persons.select(
        "persona_id",
        pl.lit("people").alias("cohort"),
        pl.lit(HUMAN).alias("origin"),
        pl.lit("none").alias("writer"),
        pl.lit(None, dtype=pl.String).alias("name"),
        pl.lit(None, dtype=pl.Int64).alias("age"),
        pl.col("gender"),
        pl.col("occupation").alias("job"),
        pl.lit(None, dtype=pl.String).alias("hobby"),
        empty.alias("likes"),
        empty.alias("dislikes"),
        pl.when(anything).then(text).otherwise(pl.lit("")).alias("description"),
    )


def ask_about(
    rater: Rater, people: People, *, most: int | None = None, histories: bool = True
) -> RaterAnswers:
    """Predictions of the held-out ratings, given each user's training history if `histories`."""
    held, chosen = people.held_out, people.first(most)
    rows = np.flatnonzero(chosen)
    batches: list[RatingBatch] = []
    for part in _whole_users(held.user[rows]):
        place = rows[part]
        local, person = np.unique(held.user[place], return_inverse=True)
        users = [held.users[n] for n in local]
        pairs = np.stack([person, held.item[place]], axis=1)
        batches.append(
            rater.rate(
                persona_rows(users, people.traits),
                people.items,
                _histories(people, users, rater) if histories else None,
                pairs=pairs,
            )
        )
    probabilities = np.concatenate([b.probabilities for b in batches])
    ok = np.array([s == OK for b in batches for s in b.status], dtype=np.bool_)
    answered = np.zeros(len(held), dtype=np.bool_)
    answered[rows[ok]] = True
    expected, mapped = in_source_units(probabilities[ok], rater.scale, people.scale)
    return RaterAnswers(Predictions(rater.name, expected, mapped), answered, int((~ok).sum()))


def in_source_units(
    probabilities: Floats, scale: RatingScale, source: RatingScale
) -> tuple[Floats, Floats]:
    """Expected ratings on `source`, and the distribution over its answers.

    Each answer of a `scale` with as many answers or more gives its probability to the nearest
    answer of `source`. On a coarser one it is shared equally by the answers that are nearest to
    it: a scale without half stars is no evidence against them.
    """
    expected = np.asarray(rescale(probabilities @ scale.answers, scale, source))
    if len(scale) >= len(source):
        onto = _nearest(scale, source)
    else:
        back = _nearest(source, scale).T
        onto = back / back.sum(axis=1, keepdims=True)
    return expected, np.asarray(probabilities @ onto)


def _nearest(scale: RatingScale, target: RatingScale) -> Floats:
    """1 for the answers of `target` that are nearest to each of `scale`, of shape (from, to)."""
    answers = to_answers(scale.answers, scale, target)
    position = np.rint((answers - target.low) / target.step).astype(np.int64)
    return np.eye(len(target))[position]


def _histories(people: People, users: list[str], rater: Rater) -> pl.DataFrame:
    train = people.train
    user_set = set(users)
    who = np.array([u in user_set for u in train.users], dtype=np.bool_)
    selected = who[train.user]
    ids = people.items["item_id"]
    stars = train.rating[selected]
    # A prompt shows answers of the scale; the model of the statistical rater takes any number.
    exact = isinstance(rater, StatisticalRater)
    convert = rescale if exact else to_answers
    return pl.DataFrame(
        {
            "persona_id": pl.Series(train.users, dtype=pl.String).gather(train.user[selected]),
            "item_id": ids.gather(train.item[selected]),
            "rating": np.asarray(convert(stars, people.scale, rater.scale), dtype=np.float64),
        }
    )


def _whole_users(user: Ints) -> list[slice]:
    """Slices of about `_BATCH` rows that end where a user ends."""
    ends = np.append(np.flatnonzero(np.diff(user)) + 1, len(user))
    out, start = [], 0
    while start < len(user):
        end = int(ends[min(int(np.searchsorted(ends, start + _BATCH)), len(ends) - 1)])
        out.append(slice(start, end))
        start = end
    return out
