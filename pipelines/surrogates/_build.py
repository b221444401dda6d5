"""A surrogate from a teacher's stored scores: split, learned, judged, and asked about states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.config import SurrogateSettings
from pipelines.errors import ConfigError, ContractError
from pipelines.raters import (
    KINDS,
    BoundRater,
    BoundSurrogate,
    Facts,
    Rater,
    ReplayRater,
    Side,
    SurrogateModel,
    SurrogateRater,
    bind,
)
from pipelines.raters.protocol import OK, Floats, Ints
from pipelines.seeding import combine, hash_ids, uniform
from pipelines.surrogates._fidelity import Floors, compare, fidelity_markdown
from pipelines.surrogates._learn import Pairs, fit_memory, fit_pairs

#: Kind of the states with a memory that a policy visits; baseline: the surrogate without it.
VISITED = "visited states"
#: Steps of a visit, remembered ratings at most, items that the policy chooses the best of, and
#: share of its steps at random (set by hand).
_STEPS, _REMEMBERED, _SLATE, _RANDOM = 10, 10, 50, 0.2
#: Least number of answers that a surrogate is learned from.
_MIN_PAIRS = 100
#: Purposes of the draws by id, and share of the visiting personas that are judged.
_HELD, _PAIR, _VISITOR, _JUDGED = 1, 2, 3, 0.2


@dataclass(frozen=True)
class Teacher:
    """A teacher's usable answers, with its counts."""

    #: Rater of the scores.
    name: str
    #: Their scale and distributions.
    rater: ReplayRater
    #: ``persona_id, item_id, place`` of the answers, sorted by ids.
    rows: pl.DataFrame
    #: Rater, language model or not, pairs and failures, ready for JSON.
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Taught:
    """A surrogate, its fidelity (rows of `surrogate_fidelity`), and how its training went."""

    model: SurrogateModel
    fidelity: pl.DataFrame
    course: list[float]

    def markdown(self) -> str:
        """The fidelity as a table."""
        return fidelity_markdown(self.fidelity)


def teacher_of(scores: pl.DataFrame, *, rater: str | None, error_budget: float) -> Teacher:
    """The answers of ``scores`` (`preference_scores`) that a surrogate is learned from.

    ``rater`` selects them, if the table holds several raters'; above a share of ``error_budget``
    failed answers nothing is learned.

    Raises
    ------
    ConfigError
        If the table holds several raters and none is named, or the teacher is itself a surrogate.
    ContractError
        If too many answers failed, there are too few, or all are one value.
    """
    replay = ReplayRater(scores, rater=rater)
    if replay.of.startswith("surrogate"):
        raise ConfigError(
            "a surrogate can't teach another one",
            where=f"rater {replay.of}",
            hint="score with another rater first, or name it in surrogate.teacher",
        )
    batch = replay.at(np.arange(replay.places.height))
    ok = np.array([status == OK for status in batch.status], dtype=bool)
    failed = int((~ok).sum())
    if failed > error_budget * len(ok):
        raise ContractError(
            f"{failed:,} of the teacher's {len(ok):,} answers failed",
            where=f"preference_scores, rater {replay.of}",
            hint="above serving.error_budget: score again first",
        )
    if int(ok.sum()) < _MIN_PAIRS:
        raise ContractError(
            f"the teacher has {int(ok.sum()):,} answers; {_MIN_PAIRS} are needed",
            where=f"preference_scores, rater {replay.of}",
        )
    probabilities = batch.probabilities[ok]
    if float(np.ptp(probabilities, axis=0).max()) < 1e-9:
        raise ContractError(
            "the teacher gives every pair the same answer: there is nothing to learn",
            where=f"preference_scores, rater {replay.of}",
        )
    rows = replay.places.filter(pl.Series(ok)).sort("persona_id", "item_id")
    metadata = {
        "rater": replay.of,
        "language_model": replay.language_model,
        "pairs": int(ok.sum()),
        "failed": failed,
    }
    return Teacher(replay.of, replay, rows, metadata)


def teach(
    teacher: Teacher,
    *,
    personas: pl.DataFrame,
    items: pl.DataFrame,
    settings: SurrogateSettings,
    item_stats: pl.DataFrame | None = None,
    item_embeddings: pl.DataFrame | None = None,
    persona_embeddings: pl.DataFrame | None = None,
    ask: Callable[[], Rater] | None = None,
) -> Taught:
    """Learn a surrogate and judge it on pairs that it has not seen.

    By hashes of ids, some personas and items are in no pair that is learned from, nor are some
    pairs of the others. What is judged is what is returned: nothing is fitted again on all pairs.

    Parameters
    ----------
    teacher
        Answers of :func:`teacher_of`.
    personas, items, item_stats, item_embeddings, persona_embeddings
        Tables of those names; the last three are used where there are any.
    settings
        Shares that are held out, rank, sweeps, rounds and seed.
    ask
        Opens the teacher itself, for ``settings.rounds``.

    Raises
    ------
    ContractError
        If pairs are of personas or items that are not in the tables, or all lack facts.
    ConfigError
        If `rounds` are asked for and the teacher can't be opened under the name of its scores.
    """
    frames = {"personas": personas.sort("persona_id"), "items": items.sort("item_id")}
    genres = items["genres"].explode().drop_nulls().unique().sort().to_list()
    tables: dict[str, tuple[pl.DataFrame | None, pl.DataFrame | None]] = {
        "personas": (persona_embeddings, None),
        "items": (item_embeddings, item_stats),
    }
    pairs = _pairs(teacher, frames)
    held: dict[str, Any] = {}
    facts: dict[str, Facts] = {}
    columns: dict[str, Floats] = {}
    complete: dict[str, Any] = {}
    for side, key, share in (
        ("personas", "persona_id", settings.hold_out_personas),
        ("items", "item_id", settings.hold_out_items),
    ):
        ids = frames[side][key]
        rated = np.unique(pairs.person if side == "personas" else pairs.item)
        chance = uniform(settings.seed, hash_ids(ids), _HELD)
        out = rated[np.argsort(chance[rated], kind="stable")][: round(share * len(rated))]
        held[side] = np.isin(np.arange(len(ids)), out)
        # Columns and text components are of those that are learned from.
        learned = np.setdiff1d(rated, out).tolist()
        facts[side] = Facts.fit(side, frames[side][learned], genres, *tables[side])
        columns[side], complete[side] = facts[side].read(frames[side], *tables[side])
    there = complete["personas"][pairs.person] & complete["items"][pairs.item]
    if not there.any():
        raise ContractError(
            "no pair has the facts that are learned from", where="preference_scores"
        )
    pairs = pairs.take(there)
    kind = 2 * held["personas"][pairs.person] + held["items"][pairs.item]
    hashes = [hash_ids(frames[s][k]) for s, k in (("personas", "persona_id"), ("items", "item_id"))]
    chance = uniform(settings.seed, combine(hashes[0][pairs.person], hashes[1][pairs.item]), _PAIR)
    learned_from = (kind == 0) & (chance >= settings.hold_out_pairs)
    train = pairs.take(learned_from)
    # An item all of whose pairs are held out is not seen either.
    kind = 2 * ~np.isin(pairs.person, train.person) + ~np.isin(pairs.item, train.item)
    fit = fit_pairs(
        train,
        columns["personas"],
        columns["items"],
        rank=settings.rank,
        sweeps=settings.sweeps,
        seed=settings.seed,
    )
    sides = {
        side: _side(facts[side], frames[side], np.unique(rows), values, weights)
        for side, rows, values, weights in (
            ("personas", train.person, fit.people, fit.people_weights),
            ("items", train.item, fit.things, fit.things_weights),
        )
    }
    metadata = {
        "teacher": {**teacher.metadata, "histories": settings.rounds > 0},
        "counts": {
            "learned_from": len(train),
            "lacking_facts": int((~there).sum()),
            "personas": len(sides["personas"].ids),
            "items": len(sides["items"].ids),
        },
        "settings": settings.identity_values(),
    }
    scale = teacher.rater.scale
    model = SurrogateModel(
        scale,
        personas=sides["personas"],
        items=sides["items"],
        anchor=fit.anchor,
        metadata=metadata,
    )

    def bound(made: SurrogateModel) -> BoundSurrogate:
        rater = SurrogateRater(
            made,
            item_stats=item_stats,
            item_embeddings=item_embeddings,
            persona_embeddings=persona_embeddings,
        )
        return rater.bind(frames["personas"], frames["items"])

    published = bound(model)
    floors = Floors.fit(train, scale, len(frames["personas"]), len(frames["items"]))
    rows: list[dict[str, Any]] = []
    for number, name in enumerate(KINDS):
        judged = pairs.take((kind == number) & ~learned_from)
        answers = published.rate(judged.person, judged.item)
        rows += compare(
            name,
            judged,
            (answers.expected, answers.probabilities),
            floors.of(number, judged, scale),
            scale,
            seed=settings.seed,
        )
    if settings.rounds:
        model, more = _rounds(model, bound, teacher, ask, frames, train, settings)
        rows += more
    model = replace(model, metadata={**metadata, "fidelity": rows})
    return Taught(model, pl.DataFrame(rows, infer_schema_length=None), fit.course)


def _pairs(teacher: Teacher, frames: dict[str, pl.DataFrame]) -> Pairs:
    rows = teacher.rows
    for key, side in (("persona_id", "personas"), ("item_id", "items")):
        known = frames[side].select(key).with_row_index(side)
        rows = rows.join(known, on=key, how="left", maintain_order="left")
        lost = rows.filter(pl.col(side).is_null())[key]
        if len(lost):
            raise ContractError(
                f"{len(lost):,} scores of {side} that are not in the table",
                where=f"preference_scores: {lost[0]}",
            )
    batch = teacher.rater.at(rows["place"].cast(pl.Int64).to_numpy())
    return Pairs(
        rows["personas"].cast(pl.Int64).to_numpy(),
        rows["items"].cast(pl.Int64).to_numpy(),
        batch.probabilities,
    )


def _side(facts: Facts, frame: pl.DataFrame, rows: Ints, values: Floats, weights: Floats) -> Side:
    own = frame[rows.tolist()]
    # As they are stored, so that what is judged is what is read again.
    stored = values[rows].astype(np.float32).astype(np.float64)
    return Side.taught(facts, own, stored, weights)


def _rounds(
    model: SurrogateModel,
    bound: Callable[[SurrogateModel], BoundSurrogate],
    teacher: Teacher,
    ask: Callable[[], Rater] | None,
    frames: dict[str, pl.DataFrame],
    train: Pairs,
    settings: SurrogateSettings,
) -> tuple[SurrogateModel, list[dict[str, Any]]]:
    """The model after rounds in which the teacher rates states that a policy on it visits.

    As in DAgger (Ross, Gordon and Bagnell, AISTATS 2011), each round's policy acts on the last
    round's surrogate, and the memory's effect is fitted on the states of all rounds. Visits of a
    fifth of the personas are left out and judged.
    """
    if ask is None:
        raise ConfigError("the teacher itself is needed", where="surrogate.rounds")
    rater = ask()
    try:
        if rater.name != teacher.name:
            raise ConfigError(
                f"the settings open the rater {rater.name}, the scores are of {teacher.name}",
                where="surrogate.rounds",
                hint="use the scoring settings of the scores, or surrogate.rounds=0",
            )
        answering = bind(rater, frames["personas"], frames["items"])
        people, things = np.unique(train.person), np.unique(train.item)
        states: list[tuple[Ints, Ints, Ints, Floats, Floats]] = []
        published = bound(model)
        ids = frames["personas"]["persona_id"].gather(people)
        order = np.argsort(uniform(settings.seed, hash_ids(ids), _VISITOR), kind="stable")
        left_out = people[order[: round(_JUDGED * len(people))]]
        for number in range(settings.rounds):
            rng = np.random.default_rng((settings.seed, number))
            visits = max(1, settings.visited // _STEPS)
            who = people[rng.permutation(np.resize(np.arange(len(people)), visits))]
            states += _visit(published, answering, who, things, rng)
            person, item, past, ratings, target = (
                np.concatenate([state[n] for state in states]) for n in range(5)
            )
            judged = np.isin(person, left_out)
            own = ~judged
            location, cuts = published.locations(person[own], item[own])
            told = (person[own], item[own], past[own], ratings[own])
            memory = fit_memory(location, cuts, target[own], partial(published.surplus, *told))
            model = replace(model, memory=memory)
            published = bound(model)
        plain = bound(replace(model, memory=None)).rate(person[judged], item[judged])
        found = published.rate(person[judged], item[judged], past[judged], ratings[judged])
        rows = compare(
            VISITED,
            Pairs(person[judged], item[judged], target[judged]),
            (found.expected, found.probabilities),
            (plain.expected, plain.probabilities),
            model.scale,
            seed=settings.seed,
        )
        return model, rows
    finally:
        close = getattr(rater, "close", None)
        if close is not None:
            close()


def _visit(
    surrogate: BoundSurrogate, teacher: BoundRater, who: Ints, things: Ints, rng: Any
) -> list[tuple[Ints, Ints, Ints, Floats, Floats]]:
    """States of visits of these personas, step by step, with the teacher's distributions.

    The policy shows the item that the surrogate expects to be liked best of a random slate, and now
    and then any other; ratings are drawn from the surrogate. Failed answers are left out.
    """
    past = np.full((len(who), _STEPS), -1, np.int64)
    ratings = np.full((len(who), _STEPS), surrogate.scale.low)
    found = []
    for step in range(_STEPS):
        recent = slice(max(0, step - _REMEMBERED), step)
        slate = things[rng.integers(len(things), size=(len(who), min(_SLATE, len(things))))]
        again = np.repeat(who, slate.shape[1])
        memory = (
            np.repeat(past[:, recent], slate.shape[1], axis=0),
            np.repeat(ratings[:, recent], slate.shape[1], axis=0),
        )
        expected = surrogate.rate(again, slate.ravel(), *memory).expected.reshape(slate.shape)
        met = (slate[:, :, None] == past[:, None, :]).any(axis=2)
        chosen = np.where(met, -np.inf, expected).argmax(axis=1)
        chosen = np.where(rng.random(len(who)) < _RANDOM, 0, chosen)
        item = slate[np.arange(len(who)), chosen]
        batch = surrogate.rate(who, item, past[:, recent], ratings[:, recent])
        if step:
            asked = teacher.rate(who, item, past[:, recent], ratings[:, recent])
            ok = np.array([status == OK for status in asked.status], dtype=bool)
            state = np.full((len(who), _STEPS), -1, np.int64)
            marks = np.full((len(who), _STEPS), surrogate.scale.low)
            state[:, :step], marks[:, :step] = past[:, :step], ratings[:, :step]
            found.append((who[ok], item[ok], state[ok], marks[ok], asked.probabilities[ok]))
        past[:, step], ratings[:, step] = item, batch.sample(rng.random(len(who)))
    return found


def save_surrogate(taught: Taught, folder: Path) -> list[Path]:
    """Write the files of a surrogate: arrays, metadata with fidelity, and a card."""
    files = taught.model.save(folder)
    made = taught.model.metadata
    teacher, counts = made["teacher"], made["counts"]
    below = [kind for kind in KINDS if not taught.model.beats_floor(kind)]
    histories = (
        "It was also asked about states with memories, whose effect is learned."
        if taught.model.memory
        else "It was asked without histories: memories change nothing here."
    )
    card = f"""# Surrogate of the rater {teacher["rater"]}

A latent factor model of the distributions that the rater gave to {counts["learned_from"]:,} pairs
of {counts["personas"]:,} personas and {counts["items"]:,} items; {teacher["failed"]:,} failed
answers were left out. It is a small statistical model and no language model. {histories}

## Fidelity

On pairs that were held out, against the teacher (not against people), with 95 % intervals over
personas. {"Not better than its floor: " + "; ".join(below) + "." if below else ""}

{taught.markdown()}
"""
    (folder / "README.md").write_text(card, encoding="utf-8")
    return sorted([*files, folder / "README.md"])
