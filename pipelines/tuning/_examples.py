"""The supervised set: people's ratings as lines of ledgers, without leaks.

Training rows are cut into windows of one person's consecutive ratings. A line of a training window
is a target and the history of those behind it. Rules:

- only training ratings of people and items that are not held out are targets;
- lines are in the order of time, then item: the history of a target is earlier than it;
- the mean beside a training line is of what others gave before that moment. The final training mean
  holds the target, and a mean without it gives the target away to who remembers the final one;
- a window's description of its person is made of that person's ratings before the window;
- a held-out line, and history before it, show training means, as prompts do when they are served.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl

from pipelines.errors import ContractError
from pipelines.personas import StatisticalWriter, load_lists, sample_attributes
from pipelines.prompts import PUBLIC_MEANS, PromptStyle, item_block, person_block, surpluses
from pipelines.scales import RatingScale, rescale, to_answers
from pipelines.seeding import combine, hash_ids, hash_text, uniform

#: Training ratings below which nothing is trained (count).
MIN_RATINGS = 5_000
#: What a window shows of its person.
SHOWS = ("both", "description", "history")
#: Columns of :func:`rating_examples`.
SCHEMA = {
    "window": pl.String,
    "position": pl.Int64,
    "user_id": pl.String,
    "item_id": pl.String,
    "rating": pl.Float64,
    "split": pl.String,
    "shows": pl.String,
    "votes": pl.Boolean,
    "description": pl.String,
    "line": pl.String,
    "after": pl.String,
    "text_sha256": pl.String,
}

#: Earlier ratings that a description needs (count), and pseudo-ratings of its means.
_DESCRIBED, _DAMPING = 5, 4.0
#: Share of the range of ratings beyond which a genre's mean surplus is stated.
_STATED = 0.1 / 4.5
#: Most liked and disliked genres that are stated (count).
_LIKES, _DISLIKES = 4, 2
_USERS, _ITEMS, _CUT, _SHOWS, _VOTES, _ATTRIBUTES = range(6)


@dataclass(frozen=True)
class HeldOut:
    """People and items that no training row is of, chosen by a hash of their ids."""

    users: frozenset[str]
    items: frozenset[str]

    @classmethod
    def of(
        cls, users: pl.Series, items: pl.Series, share_users: float, share_items: float
    ) -> HeldOut:
        """Hold out about these shares."""
        return cls(_drawn(users, share_users, _USERS), _drawn(items, share_items, _ITEMS))


def _drawn(ids: pl.Series, share: float, purpose: int) -> frozenset[str]:
    ids = ids.unique().sort()
    return frozenset(ids.filter(pl.Series(uniform(hash_ids(ids), purpose) < share)))


def training_rows(
    interactions: pl.DataFrame | pl.LazyFrame,
    splits: pl.DataFrame | pl.LazyFrame,
    held_out: HeldOut,
    split: str = "train",
) -> pl.DataFrame:
    """Ratings of a split of who and what is not held out, sorted by user, time and item."""
    return (
        interactions.lazy()
        .select("user_id", "item_id", "rating", "rated_at")
        .join(splits.lazy().filter(pl.col("split") == split), on=["user_id", "item_id"])
        .filter(
            ~pl.col("user_id").is_in(sorted(held_out.users)),
            ~pl.col("item_id").is_in(sorted(held_out.items)),
        )
        .drop("split")
        .sort("user_id", "rated_at", "item_id")
        .collect()
    )


def training_stats(items: pl.DataFrame, rows: pl.DataFrame) -> pl.DataFrame:
    """``item_id, train_ratings, train_mean_rating`` of all items, from training rows alone."""
    counts = rows.group_by("item_id").agg(
        train_ratings=pl.len().cast(pl.Int64), train_mean_rating=pl.col("rating").mean()
    )
    stats = items.select("item_id").join(counts, on="item_id", how="left", maintain_order="left")
    return stats.with_columns(pl.col("train_ratings").fill_null(0))


def earlier_means(rows: pl.DataFrame) -> pl.DataFrame:
    """Columns ``raters`` and ``mean`` of what was given to an item before each row's moment.

    Ratings of the same moment are left out, and with them the row's own.
    """
    moments = (
        rows.group_by("item_id", "rated_at")
        .agg(n=pl.len().cast(pl.Int64), total=pl.col("rating").sum())
        .sort("item_id", "rated_at")
        .with_columns(
            raters=pl.col("n").cum_sum().over("item_id") - pl.col("n"),
            total=pl.col("total").cum_sum().over("item_id") - pl.col("total"),
        )
        .select(
            "item_id",
            "rated_at",
            "raters",
            mean=pl.when(pl.col("raters") > 0).then(pl.col("total") / pl.col("raters")),
        )
    )
    return rows.join(moments, on=["item_id", "rated_at"], how="left", maintain_order="left")


def rating_examples(
    *,
    items: pl.DataFrame,
    interactions: pl.DataFrame | pl.LazyFrame,
    splits: pl.DataFrame | pl.LazyFrame,
    source: RatingScale,
    style: PromptStyle,
    held_out: HeldOut,
    window: int = 56,
    cuts: int = 4,
    history: int = 56,
    seed: int = 0,
) -> pl.DataFrame:
    """Rows of the `rating_examples` contract: targets and, before validation ones, their history.

    Parameters
    ----------
    items, interactions, splits
        Tables of those names.
    source
        Scale of the ratings.
    style
        A ledger's.
    held_out
        People and items that no row is of.
    window, cuts
        Lines of a training window at most (count), and cuts of the ratings into windows at
        different places (count): each has every training rating as a target once.
    history
        Lines before validation targets at most (count).
    seed
        Of cuts, of what windows show, and of the attributes that descriptions have beside tastes.

    Raises
    ------
    ContractError
        If there are fewer than 5,000 training ratings, one value only, or ratings without a time.
    """
    rows = training_rows(interactions, splits, held_out)
    values = rows["rating"].n_unique()
    if rows.height < MIN_RATINGS or values < 2:
        raise ContractError(
            f"{rows.height:,} training ratings of {values} different values, of "
            f"{rows['user_id'].n_unique():,} people who are not held out",
            where="interactions",
            hint=f"a rating model needs {MIN_RATINGS:,} ratings and two values",
        )
    if rows["rated_at"].null_count():
        raise ContractError(
            f"{rows['rated_at'].null_count():,} training ratings have no time",
            where="interactions",
            hint="the history of a rating can't be determined",
        )
    stats = training_stats(items, rows)
    final = rows.join(
        stats.select("item_id", raters="train_ratings", mean="train_mean_rating"), on="item_id"
    ).sort("user_id", "rated_at", "item_id")
    shown = earlier_means(rows)
    lines = LineWriter(items, source, style)
    people = Describer(items, shown, source, style, seed)
    parts = [_training(shown, lines, people, window, cut, seed) for cut in range(cuts)]
    targets = training_rows(interactions, splits, held_out, "validation").join(
        stats.select("item_id", raters="train_ratings", mean="train_mean_rating"),
        on="item_id",
        how="left",
        maintain_order="left",
    )
    trained = [pl.DataFrame(list(p), schema=SCHEMA, orient="row") for p in parts]
    return pl.concat([*trained, asked_rows(final, targets, lines, history=history)])


class LineWriter:
    """Writes an item's line with given means; equal ones are made once."""

    def __init__(self, items: pl.DataFrame, source: RatingScale, style: PromptStyle) -> None:
        votes = [c for pair in PUBLIC_MEANS for c in pair[:2] if c in items.columns]
        self._tables = {True: items, False: items.drop(votes)}
        self._row = {item: n for n, item in enumerate(items["item_id"])}
        self.source, self.style = source, style
        self._lines: dict[tuple[Any, ...], str] = {}

    def line(self, item: str, mean: float | None, raters: int, *, votes: bool = True) -> str:
        """The line of an item; ``mean`` of `raters` people is on the source's scale."""
        shown = None if mean is None else float(rescale(mean, self.source, self.style.scale))
        # Beyond a hundred raters the words are the same.
        key = (item, None if shown is None else round(shown, 6), min(raters, 100), votes)
        if key not in self._lines:
            row = self._tables[votes].row(self._row[item], named=True)
            self._lines[key] = item_block(row, self.style, mean=shown, raters=raters)
        return self._lines[key]


class Describer:
    """Describes people by what they rated, in the words of our personas.

    Liked and disliked genres are those of the largest shrunken mean surpluses over what others gave
    and over the person's own leniency; strictness is the outer quarters of people's leniency. Name,
    age, job and hobby are drawn and say nothing about the ratings, so that a model learns that they
    don't.
    """

    def __init__(
        self,
        items: pl.DataFrame,
        rows: pl.DataFrame,
        source: RatingScale,
        style: PromptStyle,
        seed: int,
    ) -> None:
        """``rows`` are training rows with the means that are shown beside them."""
        self._style, self._seed = style, seed
        genres = items.select("item_id", pl.col("genres").fill_null([]))
        self._genres = dict(genres.iter_rows())
        self._middle = float(rows["rating"].mean())  # type: ignore[arg-type]
        self._range = source.high - source.low
        by_user = rows.select("user_id", rest=self._rest(rows)).group_by("user_id")
        lenient = by_user.agg(pl.col("rest").sum() / (pl.len() + _DAMPING))["rest"]
        self._strict, self._kind = lenient.quantile(0.25) or 0.0, lenient.quantile(0.75) or 0.0

    def describe(self, people: Sequence[tuple[str, pl.DataFrame]]) -> list[dict[str, Any]]:
        """Persona rows of people by ids of their texts and their earlier rows with means.

        People of fewer than five ratings, or of none with a genre, are an empty row.
        """
        tastes = [self._taste(rows) for _, rows in people]
        described = [n for n, taste in enumerate(tastes) if taste is not None]
        out: list[dict[str, Any]] = [{} for _ in people]
        if not described:
            return out
        numbers = np.array(
            [int(combine(hash_text(people[n][0]), _ATTRIBUTES)) % 2**31 for n in described]
        )
        lists = load_lists(self._style.domain)
        drawn = sample_attributes(self._seed, "tuning", numbers, lists)
        stated = pl.DataFrame(
            [tastes[n] for n in described],
            schema={
                "likes": pl.List(pl.String),
                "dislikes": pl.List(pl.String),
                "leniency": pl.String,
            },
            orient="row",
        )
        rows = drawn.with_columns(
            *(stated[name] for name in stated.columns),
            manner=pl.lit("average"),
            activity=pl.lit("medium"),
            conformity=pl.lit("medium"),
        )
        texts = StatisticalWriter().write(rows)
        for n, row, text in zip(
            described, rows.iter_rows(named=True), texts["description"], strict=True
        ):
            out[n] = {**row, "description": text}
        return out

    def _rest(self, rows: pl.DataFrame) -> pl.Series:
        """Rating above what others gave, whose mean is shrunken to that of all."""
        given = pl.col("raters").fill_null(0)
        total = pl.col("mean").fill_null(0.0) * given + self._middle * _DAMPING
        return rows.select(rest=pl.col("rating") - total / (given + _DAMPING))["rest"]

    def _taste(self, rows: pl.DataFrame) -> tuple[list[str], list[str], str] | None:
        if rows.height < _DESCRIBED:
            return None
        residual = self._rest(rows).to_numpy()
        leniency = float(residual.sum()) / (len(residual) + _DAMPING)
        sums: dict[str, list[float]] = {}
        for item, above in zip(rows["item_id"], residual - leniency, strict=True):
            for genre in self._genres.get(item, ()):
                tally = sums.setdefault(genre, [0.0, 0.0])
                tally[0] += float(above)
                tally[1] += 1
        surplus = sorted(((s / (n + _DAMPING), g) for g, (s, n) in sums.items()), reverse=True)
        if not surplus:
            return None
        bound = _STATED * self._range
        likes = [g for s, g in surplus[:_LIKES] if s > bound] or [surplus[0][1]]
        dislikes = [g for s, g in surplus[::-1][:_DISLIKES] if s < -bound and g not in likes]
        strictness = (
            "harsh"
            if leniency < self._strict
            else "generous"
            if leniency > self._kind
            else "average"
        )
        return likes, dislikes, strictness


Row = tuple[Any, ...]


def _training(
    rows: pl.DataFrame, lines: LineWriter, people: Describer, window: int, cut: int, seed: int
) -> Iterator[Row]:
    """Windows of one cut; the first of a person is of a length of its own."""
    plan: list[tuple[str, pl.DataFrame, pl.DataFrame]] = []
    for (user,), part in rows.group_by("user_id", maintain_order=True):
        start = int(combine(seed, hash_text(str(user)), _CUT, cut)) % window
        edges = sorted({0, *range(start, part.height, window)} - {part.height})
        for n, (low, high) in enumerate(zip(edges, [*edges[1:], part.height], strict=True)):
            plan.append((f"{cut}:{user}:{n}", part[low:high], part[:low]))
    described = people.describe([(name, before) for name, _, before in plan])
    for (name, part, _), person in zip(plan, described, strict=True):
        number = hash_text(name)
        shows = SHOWS[int(combine(seed, number, _SHOWS)) % 3] if person else "history"
        votes = bool(combine(seed, number, _VOTES) % np.uint64(3))
        text = person_block(person, (), lines.style) if shows != "history" else ""
        yield from _window(name, part, "train", shows, votes, text, lines)


def asked_rows(
    known: pl.DataFrame,
    asked: pl.DataFrame,
    lines: LineWriter,
    *,
    history: int,
    people: Describer | None = None,
    votes: bool = True,
) -> pl.DataFrame:
    """Examples of held-out ratings, in their order, as a rater's prompts would ask about them.

    ``known`` and ``asked`` are earlier ratings and those to predict with the means that are shown,
    by user and time. At most the ``history`` latest earlier ratings (count) are shown. ``people``
    describes each person by all of `known` (None: no description); ``votes``: public votes are
    shown.
    """
    before = dict(iter(known.group_by("user_id", maintain_order=True)))
    empty = known.clear()
    by_person = list(asked.group_by("user_id", maintain_order=True))
    texts = [""] * len(by_person)
    if people is not None:
        personas = people.describe([(str(key[0]), before.get(key, empty)) for key, _ in by_person])
        texts = [person_block(row, (), lines.style) if row else "" for row in personas]

    def rows() -> Iterator[Row]:
        for (key, part), text in zip(by_person, texts, strict=True):
            past = before.get(key, empty).tail(history)
            name, shows = f"validation:{key[0]}", "history" if people is None else "description"
            yield from _window(name, past, "context", shows, votes, text, lines)
            yield from _window(name, part, "validation", shows, votes, text, lines, past)

    return pl.DataFrame(list(rows()), schema=SCHEMA, orient="row")


def _window(
    name: str,
    targets: pl.DataFrame,
    split: str,
    shows: str,
    votes: bool,
    text: str,
    lines: LineWriter,
    past: pl.DataFrame | None = None,
) -> Iterator[Row]:
    """Rows of a window; the digest is of the prompt up to where the rating goes."""
    style, source = lines.style, lines.source
    # Each target stands alone behind what was before, unless the window is a list to go on with.
    alone = shows == "description" or split == "validation"
    start = [text] if text else []
    first = 0
    if past is not None:
        first = past.height
        start += [
            f"{lines.line(i, m, r, votes=votes)} -> {_answer(g, source, style.scale)[1]}{after}"
            for (i, g, m, r), after in zip(
                past.select("item_id", "rating", "mean", "raters").iter_rows(),
                _after(past, source, style.scale),
                strict=True,
            )
        ]
    digest = hashlib.sha256("".join(f"{line}\n" for line in start).encode())
    columns = targets.select("user_id", "item_id", "rating", "mean", pl.col("raters").fill_null(0))
    after = [""] * targets.height if alone else list(_after(targets, source, style.scale))
    for n, (user, item, rating, mean, raters) in enumerate(columns.iter_rows()):
        line = lines.line(item, mean, raters, votes=votes)
        value, given = _answer(rating, source, style.scale)
        here = digest.copy()
        here.update(line.encode())
        if not alone:
            digest.update(f"{line} -> {given}{after[n]}\n".encode())
        yield (
            name,
            first + n,
            user,
            item,
            value,
            split,
            shows,
            votes,
            text,
            line,
            after[n],
            here.hexdigest(),
        )


def _after(rows: pl.DataFrame, source: RatingScale, scale: RatingScale) -> Iterator[str]:
    """Text after the rating of each line, for consecutive lines."""
    given = rescale(rows["rating"].to_numpy(), source, scale)
    means = rescale(rows["mean"].cast(pl.Float64).fill_null(np.nan).to_numpy(), source, scale)
    shown = [None if np.isnan(mean) else float(mean) for mean in means]
    return surpluses(zip(given.tolist(), shown, rows["raters"].fill_null(0), strict=True))


@lru_cache(maxsize=1024)
def _answer(rating: float, source: RatingScale, scale: RatingScale) -> tuple[float, str]:
    """The answer nearest to a rating, as a number and as it is spelt."""
    return float(to_answers([rating], source, scale)[0]), scale.text_of(
        float(rescale(rating, source, scale))
    )
