"""Matching users: from training histories to the tables of matched personas and candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl

from pipelines.config import MatchingSettings
from pipelines.contracts import CONTRACTS
from pipelines.contracts.models import TRAITS
from pipelines.errors import ConfigError, ContractError
from pipelines.matching._history import SEED, Floats, History, Ints, Lists
from pipelines.matching._protocol import ATTRIBUTES, CANDIDATES, Matcher, Taste, Trials
from pipelines.matching._tastes import taste_profiles
from pipelines.personas import matched_cohort
from pipelines.plugins import closing_on_error
from pipelines.progress import advance
from pipelines.seams import MATCHERS
from pipelines.seeding import combine

if TYPE_CHECKING:
    from pipelines.config import Settings

# A purpose per draw, so that adding one changes no other.
_OWN, _OTHERS, _THEIRS = 41, 42, 43


def list_sizes(counts: Ints, size: int) -> Ints:
    """Interactions of a user's list: `size`, or half of all where there are fewer than two lists.

    >>> list_sizes(np.array([1, 5, 99, 100]), 50).tolist()
    [1, 3, 50, 50]
    """
    return np.where(counts < 2 * size, -(-counts // 2), size)


def draw_trials(
    history: History, users: Ints, *, subsets: int, size: int, others: int, seed: int
) -> Trials:
    """Lists that the candidates of each user are scored on.

    Own lists are drawn one by one from all interactions of the user and may overlap. The other
    users are drawn from everybody with a training interaction; each has one list for all
    comparisons. ``users`` are ascending numbers of shape (n,); ``subsets`` (the paper's j),
    ``size`` and ``others`` count own lists, interactions of a list and other users.

    Raises ContractError if there is no other user to compare with.
    """
    everybody = len(history.users)
    if everybody < 2:
        raise ContractError(
            "a single user can't be compared with others", where=f"{history.domain}.interactions"
        )
    own_lists = [
        history.draw(users, list_sizes(history.counts[users], size), seed, _OWN, subset)
        for subset in range(subsets)
    ]
    compared = np.empty((len(users), min(others, everybody - 1)), np.int64)
    for n, (user, key) in enumerate(zip(users, history.keys[users], strict=True)):
        rng = np.random.default_rng(int(combine(seed, _OTHERS, key)))
        drawn = rng.choice(everybody - 1, compared.shape[1], replace=False)
        compared[n] = drawn + (drawn >= user)
    people, place = np.unique(compared, return_inverse=True)
    theirs = history.draw(people, list_sizes(history.counts[people], size), seed, _THEIRS)
    first = np.cumsum([0, *(len(lists) for lists in own_lists)])
    numbers = first[:-1][None, :] + np.arange(len(users))[:, None]
    return Trials(_joined([*own_lists, theirs]), numbers, first[-1] + place.reshape(compared.shape))


def self_consistency(expected: Floats, own: int) -> tuple[Floats, Floats, Floats]:
    """s(p, u): mean rating of own lists less mean rating of others' lists.

    Means, because there are ten times as many lists of others as own ones. ``expected`` has ratings
    on 1-10 of shape (candidates, lists), the ``own`` lists first, NaN where there is none. Returns
    means of own lists, of others' lists, and their difference; NaN for a candidate that lacks one
    of its ratings.

    >>> self_consistency(np.array([[8.0, 7.0, 9.0, 5.0, 5.0]]), 3)[2].tolist()
    [3.0]
    """
    mine, others = expected[:, :own].mean(axis=1), expected[:, own:].mean(axis=1)
    return mine, others, mine - others


def choose(user: Ints, score: Floats, users: int) -> tuple[Ints, Floats]:
    """Row of the best candidate of each user, and how much better it is than the next.

    ``user`` is the position of each candidate's user, ascending; ``score`` is NaN where there is
    none. Rows (-1 where no candidate has a score; of equal scores the lower number) and margins
    (NaN with fewer than two scores) are of shape (users,).
    """
    order = np.lexsort((np.arange(len(user)), -np.nan_to_num(score, nan=-np.inf), user))
    first = np.searchsorted(user[order], np.arange(users))
    best, margin = np.full(users, -1), np.full(users, np.nan)
    for n, place in enumerate(first):
        rows = order[place : place + 2]
        rows = rows[(user[rows] == n) & ~np.isnan(score[rows])]
        if len(rows):
            best[n] = rows[0]
        if len(rows) == 2:
            margin[n] = score[rows[0]] - score[rows[1]]
    return best, margin


def _joined(parts: list[Lists]) -> Lists:
    sizes = np.concatenate([np.diff(part.start) for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    return Lists(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), rows)


def open_matcher(settings: Settings, name: str | None = None) -> Matcher:
    """The matcher that the settings name, before `fit`.

    A name is one of :data:`pipelines.seams.MATCHERS`; default ``matching.method``. A
    matcher with a `close` is to be closed.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with the methods of
        :class:`Matcher`, or it can't be opened.
    EngineError
        If the model can't be loaded.
    """
    name = name or settings.matching.method
    if name != "model":
        matcher: Matcher = MATCHERS.open(name, settings=settings.matching)
        return matcher
    from pipelines.llm.answers import AnswerStore
    from pipelines.llm.engines import load_engine
    from pipelines.llm.engines.tokens import model_tokenizer
    from pipelines.matching._model import ModelMatcher

    with closing_on_error(load_engine(settings.engine, settings.serving)) as engine:
        return ModelMatcher(
            engine,
            settings.matching,
            store=AnswerStore(settings.runtime.home, settings.serving),
            serving=settings.serving,
            tokenizer=model_tokenizer(settings.engine, settings.serving),
        )


_ITEMS = 44
#: Digits of a persona's number, as in the ids of other cohorts.
_DIGITS = 7


@dataclass(frozen=True)
class Matched:
    """Personas of some users."""

    #: Rows of the tables `matched_personas` and `persona_candidates`, in their order.
    personas: pl.DataFrame
    candidates: pl.DataFrame
    #: The matcher's metadata, and counts of statuses; JSON-ready.
    metadata: dict[str, Any]


def match_users(
    history: History,
    traits: pl.DataFrame,
    matcher: Matcher,
    settings: MatchingSettings,
    *,
    users: Sequence[str] | None = None,
) -> Matched:
    """Give users the candidate persona that is most consistent with their history.

    The matcher is fitted here. Without ``users``, ``matching.users`` of them are drawn by hash.

    Raises
    ------
    ConfigError
        If there is no user to match, or one has no training interaction.
    ContractError
        If a user has no traits, there is no other user to compare with, or a plug-in's answer
        breaks the protocol.
    """
    chosen = (
        history.sample(settings.users, SEED) if users is None else np.sort(history.numbers(users))
    )
    if not len(chosen):
        raise ConfigError("there are no users to match", where=f"{history.domain} matching.users")
    user_traits = _traits(traits, [history.users[n] for n in chosen], history.domain)
    scored = scored_candidates(history, matcher, settings, chosen)
    rows = _candidate_rows(history, scored)
    personas = _persona_rows(history, matcher, user_traits, scored)
    metadata = {
        **matcher.metadata(),
        "users": len(chosen),
        "unmapped_occupations": history.unmapped,
        "published_majority": None
        if np.isnan(history.published_majority)
        else history.published_majority,
        "candidate_status": dict(rows["status"].value_counts().sort("status").rows()),
        "taste_status": {
            status: sum(t.status == status for t in scored.tastes)
            for status in sorted({t.status for t in scored.tastes})
        },
    }
    return Matched(personas, rows, metadata)


@dataclass(frozen=True)
class Scored:
    """Candidates of some users with their scores."""

    #: User numbers, of shape (n,).
    users: Ints
    #: Summaries, by user.
    tastes: Sequence[Taste]
    #: Columns of `CANDIDATES`.
    candidates: pl.DataFrame
    #: By candidate, 6 decimals; NaN where there is none.
    own: Floats
    others: Floats
    score: Floats
    #: Row of each user's best candidate (-1: none), and its lead (NaN: no second).
    best: Ints
    margin: Floats
    #: By candidate.
    status: Sequence[str]
    answer_keys: Sequence[Sequence[str]]


def scored_candidates(
    history: History,
    matcher: Matcher,
    settings: MatchingSettings,
    users: Ints,
) -> Scored:
    """Fit a matcher, and score its candidates of some users; see :func:`match_users`."""
    advance("matching, fit")
    matcher.fit(history)
    trials = draw_trials(
        history,
        users,
        subsets=settings.subsets,
        size=settings.subset_size,
        others=settings.others,
        seed=SEED,
    )
    lists = history.draw(users, np.full(len(users), settings.items), SEED, _ITEMS)
    advance("matching, tastes")
    tastes = matcher.tastes(users, lists)
    advance("matching, candidates")
    candidates = matcher.candidates(users, lists, tastes, settings.candidates)
    _check(matcher, candidates, tastes, len(users), settings.candidates)
    advance("matching, ratings")
    rated = matcher.rate(users, candidates, trials, tastes)
    size = candidates.height, settings.subsets + trials.others.shape[1]
    if rated.expected.shape != size:
        raise ContractError(
            f"rate returned ratings of shape {rated.expected.shape}",
            where=f"matcher {matcher.name}",
            hint=f"expected {size}",
        )
    mine, other, _ = (
        np.round(values, 6) for values in self_consistency(rated.expected, settings.subsets)
    )
    ok = np.array([status == "ok" for status in rated.status], bool)
    # From the rounded means, so that the table's score can be computed again from its columns.
    score = np.where(ok, np.round(mine - other, 6), np.nan)
    best, margin = choose(candidates["user"].to_numpy(), score, len(users))
    return Scored(
        users, tastes, candidates, mine, other, score, best, margin, rated.status, rated.answer_keys
    )


def posterior_of(
    matcher: Matcher, history: History, settings: MatchingSettings, personas: pl.DataFrame
) -> dict[str, Floats] | None:
    """Probabilities of the values of matched users' attributes, of a matcher that has them.

    From the same lists as the candidates of :func:`match_users`; None of a matcher without a
    `posterior`.
    """
    posterior = getattr(matcher, "posterior", None)
    if posterior is None:
        return None
    users = history.numbers(personas["user_id"].to_list())
    lists = history.draw(users, np.full(len(users), settings.items), SEED, _ITEMS)
    probabilities: dict[str, Floats] = posterior(users, lists)
    return probabilities


def _traits(traits: pl.DataFrame, users: list[str], domain: str) -> pl.DataFrame:
    rows = pl.DataFrame({"user_id": users}).join(
        traits.select("user_id", *TRAITS), on="user_id", how="left", maintain_order="left"
    )
    missing = rows.filter(pl.col("activity").is_null())
    if missing.height:
        raise ContractError(
            f"{missing.height:,} users have no traits, such as {missing['user_id'][0]}",
            where=f"{domain}.training_traits",
            hint="build the domain's tables from the same files",
        )
    return rows


def _check(
    matcher: Matcher, candidates: pl.DataFrame, tastes: Sequence[Taste], users: int, count: int
) -> None:
    where = f"matcher {matcher.name}"
    if dict(candidates.schema) != dict(pl.Schema(CANDIDATES)):
        raise ContractError(
            f"candidates returned columns {dict(candidates.schema)}",
            where=where,
            hint=f"the columns of CANDIDATES: {', '.join(CANDIDATES)}",
        )
    expected = np.repeat(np.arange(users), 0 if matcher.basis == "none" else count)
    if candidates["user"].to_list() != expected.tolist() or len(tastes) != users:
        raise ContractError(
            f"{candidates.height:,} candidates and {len(tastes):,} summaries for {users:,} users",
            where=where,
            hint=f"{count} candidates per user, in order, or none where basis is none",
        )


def _candidate_rows(history: History, scored: Scored) -> pl.DataFrame:
    contract = CONTRACTS[f"{history.domain}.persona_candidates"]
    ids = np.array([history.users[n] for n in scored.users], dtype=object)
    candidates = scored.candidates
    if not candidates.height:
        # A user without proposals has a single row, which is chosen.
        nothing = {"candidate": 0, "chosen": True, "status": "none"}
        rows = [{"user_id": user, **nothing} for user in ids]
        return pl.DataFrame(rows, schema=contract.polars_schema()).sort(contract.order)
    given = [n for n in ATTRIBUTES if candidates[n].null_count() < candidates.height]
    texts = [
        orjson.dumps(row).decode() if any(v is not None for v in row.values()) else None
        for row in candidates.select(given).iter_rows(named=True)
    ]
    unknown = np.isnan(scored.score)
    columns = {
        name: pl.Series(np.where(unknown, np.nan, values)).fill_nan(None)
        for name, values in (
            ("own", scored.own),
            ("others", scored.others),
            ("score", scored.score),
        )
    }
    return pl.DataFrame(
        {
            "user_id": ids[candidates["user"].to_numpy()].tolist(),
            "candidate": candidates["candidate"],
            "attributes": texts or [None] * candidates.height,
            **columns,
            "chosen": np.isin(np.arange(candidates.height), scored.best),
            "status": list(scored.status),
        },
        schema=contract.polars_schema(),
    ).sort(contract.order)


def _persona_rows(
    history: History, matcher: Matcher, traits: pl.DataFrame, scored: Scored
) -> pl.DataFrame:
    contract = CONTRACTS[f"{history.domain}.matched_personas"]
    cohort = matched_cohort(history.domain)
    users, candidates, best = scored.users, scored.candidates, scored.best
    profiles = taste_profiles(history, users)
    # A user without a scored candidate has row -1, and finds nothing.
    rows = pl.DataFrame({"row": best}, schema={"row": pl.Int64})
    matched = rows.join(
        candidates.select(
            *ATTRIBUTES, score=pl.Series(scored.score), row=pl.int_range(candidates.height)
        ),
        on="row",
        how="left",
        maintain_order="left",
    )
    counts = candidates["user"].to_numpy()[~np.isnan(scored.score)]
    keys = []
    for taste, row in zip(scored.tastes, best, strict=True):
        row_keys = [] if row < 0 else [candidates["answer_key"][int(row)], *scored.answer_keys[row]]
        keys.append([key for key in (taste.answer_key, *row_keys) if key is not None])
    lists = pl.List(pl.String)
    frame = traits.with_columns(
        *matched.drop("row"),
        persona_id=pl.Series([f"persona:{cohort}:{n:0{_DIGITS}}" for n in users]),
        cohort=pl.lit(cohort),
        method=pl.lit(matcher.name),
        basis=pl.when(matched["row"] < 0).then(pl.lit("none")).otherwise(pl.lit(matcher.basis)),
        margin=pl.Series(np.round(scored.margin, 6)).fill_nan(None),
        candidates=pl.Series(np.bincount(counts, minlength=len(users)), dtype=pl.Int64),
        likes=pl.Series([sorted(p.likes) for p in profiles], dtype=lists),
        dislikes=pl.Series([sorted(p.dislikes) for p in profiles], dtype=lists),
        taste=pl.Series([t.text for t in scored.tastes]),
        taste_writer=pl.Series([t.writer for t in scored.tastes]),
        history=pl.Series(history.counts[users], dtype=pl.Int64),
        answer_keys=pl.Series(keys, dtype=lists),
    )
    return frame.select(list(contract.polars_schema())).sort(contract.order)
