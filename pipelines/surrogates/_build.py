"""A surrogate from a teacher's stored scores: split, learned, judged, and asked about states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.config import SurrogateSettings
from pipelines.errors import ConfigError, ContractError
from pipelines.markdown import escape_markdown
from pipelines.raters import (
    KINDS,
    BoundRater,
    BoundSurrogate,
    Rater,
    ReplayRater,
    SurrogateModel,
    SurrogateRater,
    bind,
    total_variation,
)
from pipelines.raters.protocol import OK, Floats, Ints
from pipelines.raters.surrogate import id_column, stated_digests, with_stats
from pipelines.scales import RatingScale
from pipelines.seeding import combine, hash_ids, uniform
from pipelines.surrogates._learn import Pairs, fit_memory, fit_pairs, side_of

#: Figures, and whether a larger one is better.
FIGURES = {"rmse": False, "correlation": True, "total_variation": False, "ndcg@10": True}
#: Passes of the additive fit, pairs that a persona's correlation needs, cut of NDCG, and resamples
#: of the bootstrap (counts).
_PASSES, _MIN_PAIRS, _CUT, _RESAMPLES = 20, 5, 10, 1_000


def baseline(train: Pairs, judged: Pairs, kind: str, scale: RatingScale) -> tuple[Floats, Floats]:
    """Expected ratings and distributions of pairs by means of those that were learned from.

    Those of a seen persona and item are the additive fit of both (its distribution the mean of both
    means), of an unseen persona the item's mean, of an unseen item the persona's mean, and a
    constant where both are unseen.
    """
    overall = train.target.mean(axis=0)
    rows = {"person": (train.person, judged.person), "item": (train.item, judged.item)}
    size = {n: 1 + max(int(r.max(initial=0)) for r in both) for n, both in rows.items()}
    count = {n: np.bincount(rows[n][0], minlength=size[n]) for n in rows}

    def means(name: str) -> Floats:
        sums = np.stack(
            [np.bincount(rows[name][0], column, size[name]) for column in train.target.T], axis=1
        )
        averages = sums / np.maximum(count[name], 1)[:, None]
        return np.where(count[name][:, None] > 0, averages, overall)[rows[name][1]]

    if kind == KINDS[3]:
        shares = np.broadcast_to(overall, judged.target.shape)
    elif kind == KINDS[0]:
        shares = (means("person") + means("item")) / 2
        level, effect = float(overall @ scale.answers), {n: np.zeros(size[n]) for n in rows}
        above = train.target @ scale.answers - level
        for _ in range(_PASSES):
            for name, other in (("person", "item"), ("item", "person")):
                gaps = np.bincount(rows[name][0], above - effect[other][rows[other][0]], size[name])
                effect[name] = gaps / np.maximum(count[name], 1)
        both = level + effect["person"][judged.person] + effect["item"][judged.item]
        return np.clip(both, scale.low, scale.high), shares
    else:
        shares = means("person" if kind == KINDS[1] else "item")
    return shares @ scale.answers, shares


def compare(
    kind: str,
    pairs: Pairs,
    answers: tuple[Floats, Floats],
    baseline: tuple[Floats, Floats],
    scale: RatingScale,
    *,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Figures of predicted answers beside a baseline's, with 95 % intervals over personas.

    ``rmse`` is of expected ratings, on the scale; ``correlation`` Pearson's within a persona of
    five pairs or more, 0 where the prediction is constant, mean over personas; ``total_variation``
    the mean distance of distributions; ``ndcg@10`` by the teacher's order (gain: expected rating
    above the scale's lowest; ties share their mean discount), mean over personas.

    ``pairs`` are held-out pairs with the teacher's distributions, on its ``scale``; ``answers`` and
    ``baseline`` are expected ratings (pairs,) and distributions (pairs, answers). The
    bootstrap draws personas. Rows are those of the `surrogate_fidelity` contract; none without
    pairs.
    """
    if not len(pairs):
        return []
    people, person = np.unique(pairs.person, return_inverse=True)
    truth = pairs.target @ scale.answers
    size = np.bincount(person).astype(np.float64)
    drawn = np.random.default_rng(seed).multinomial(
        len(people), np.full(len(people), 1 / len(people)), _RESAMPLES
    )
    weights = np.vstack([np.ones(len(people)), drawn])

    def resampled(given: tuple[Floats, Floats]) -> dict[str, Floats]:
        """Each figure of all personas, then of each draw of them."""
        expected, shares = given
        by_persona = _by_persona(person, truth, expected, scale.low)
        apart = np.bincount(person, total_variation(shares, pairs.target))
        return {
            "rmse": np.sqrt(
                weights @ np.bincount(person, (expected - truth) ** 2) / (weights @ size)
            ),
            "correlation": _mean(weights, by_persona[0]),
            "total_variation": weights @ apart / (weights @ size),
            "ndcg@10": _mean(weights, by_persona[1]),
        }

    predicted, other = resampled(answers), resampled(baseline)
    rows = []
    for figure in FIGURES:
        row: dict[str, Any] = {"kind": kind, "figure": figure}
        for name, values in (
            ("value", predicted[figure]),
            ("floor", other[figure]),
            ("difference", predicted[figure] - other[figure]),
        ):
            valid = values[1:][~np.isnan(values[1:])]
            ends = np.quantile(valid, [0.025, 0.975]) if len(valid) else (np.nan, np.nan)
            prefix = "" if name == "value" else f"{name}_"
            numbers = zip((name, f"{prefix}low", f"{prefix}high"), (values[0], *ends), strict=True)
            row |= {key: None if np.isnan(v) else float(v) for key, v in numbers}
        rows.append({**row, "pairs": len(pairs), "personas": len(people)})
    return rows


def _by_persona(person: Ints, truth: Floats, expected: Floats, low: float) -> Floats:
    """Correlation and NDCG@10 of each persona, of shape (2, personas); NaN where undefined."""
    from sklearn.metrics import ndcg_score

    order = np.argsort(person, kind="stable")
    groups = np.split(order, np.unique(person[order], return_index=True)[1][1:])
    out = np.full((2, len(groups)), np.nan)
    for n, rows in enumerate(groups):
        right, given = truth[rows], expected[rows]
        if len(rows) >= _MIN_PAIRS and right.std() >= 1e-9:
            out[0, n] = np.corrcoef(right, given)[0, 1] if given.std() >= 1e-9 else 0.0
        if len(rows) > 1 and np.ptp(right) >= 1e-9:
            out[1, n] = ndcg_score([right - low], [given], k=_CUT)
    return out


def _mean(weights: Floats, values: Floats) -> Floats:
    """Weighted means of the values that are numbers, for every row of weights."""
    valid = ~np.isnan(values)
    count = weights[:, valid].sum(axis=1)
    return np.where(count > 0, weights[:, valid] @ values[valid] / np.maximum(count, 1), np.nan)


def fidelity_markdown(table: pl.DataFrame) -> str:
    """The table of fidelity as Markdown, a row per kind and figure."""
    lines = ["| pairs | figure | surrogate | floor | difference |", "|---|---|--:|--:|--:|"]
    for row in table.iter_rows(named=True):
        cells = [
            "-" if row[name] is None
            else f"{row[name]:.3f} [{row[f'{prefix}low']:.3f}, {row[f'{prefix}high']:.3f}]"
            for name, prefix in (("value", ""), ("floor", "floor_"), ("difference", "difference_"))
        ]  # fmt: skip
        pairs = f"{row['kind']} ({row['pairs']:,} of {row['personas']:,} personas)"
        lines.append(f"| {' | '.join([escape_markdown(pairs), row['figure'], *cells])} |")
    return "\n".join(lines)


#: Kind of the states with a memory that a policy visits; baseline: the surrogate without it.
VISITED = "visited states"
#: Steps of a visit, items that the policy chooses the best of, and share of its steps at random
#: (set by hand).
_STEPS, _SLATE, _RANDOM = 10, 50, 0.2
#: Fewest answers that a surrogate is learned from.
_MIN_PAIRS = 100
#: Share of the other pairs that are held out, by hash.
_HELD_PAIRS = 0.05
#: Purposes of the draws by id, and share of the visiting personas that are judged.
_HELD, _PAIR, _VISITOR, _JUDGED = 1, 2, 3, 0.2


@dataclass(frozen=True)
class Teacher:
    """A teacher's usable answers."""

    #: Rater of the scores, and its scale.
    name: str
    scale: RatingScale
    #: ``persona_id, item_id`` of the answers, sorted, and their distributions (rows, answers).
    rows: pl.DataFrame
    target: Floats
    #: Rater, language model or not, pairs and failures, ready for JSON.
    metadata: dict[str, Any]


@dataclass(frozen=True)
class Taught:
    """A surrogate, its fidelity (rows of `surrogate_fidelity`), and its loss after each sweep."""

    model: SurrogateModel
    fidelity: pl.DataFrame
    course: list[float]

    def markdown(self) -> str:
        """The fidelity as a table."""
        return fidelity_markdown(self.fidelity)


def teacher_of(scores: pl.DataFrame, *, rater: str | None, error_budget: float) -> Teacher:
    """The answers of ``scores`` (`preference_scores`) that a surrogate is learned from.

    ``rater`` selects them, if the table holds several raters'.

    Raises
    ------
    ConfigError
        If the table holds several raters and none is named, or the teacher is itself a surrogate.
    ContractError
        If a share above ``error_budget`` failed, there are too few answers, or all are one value.
    """
    replay = ReplayRater(scores, rater=rater)
    where = f"preference_scores, rater {replay.of}"
    if replay.of.startswith("surrogate"):
        raise ConfigError(
            "a surrogate can't teach another one",
            where=where,
            hint="score with another rater first, or name it in surrogate.teacher",
        )
    status = np.array(replay.at(np.arange(replay.places.height)).status)
    failed, count = int((status != OK).sum()), int((status == OK).sum())
    if failed > error_budget * len(status):
        raise ContractError(
            f"{failed:,} of the teacher's {len(status):,} answers failed",
            where=where,
            hint="above serving.error_budget: score again first",
        )
    rows = replay.places.filter(pl.Series(status == OK)).sort("persona_id", "item_id")
    target = replay.at(rows["place"].cast(pl.Int64).to_numpy()).probabilities
    if count < _MIN_PAIRS:
        raise ContractError(
            f"the teacher has {count:,} answers; {_MIN_PAIRS} are needed",
            where=where,
            hint="score more pairs: scoring.max_pairs",
        )
    if float(np.ptp(target, axis=0).max()) < 1e-9:
        raise ContractError(
            "the teacher gives every pair the same answer: there is nothing to learn",
            where=where,
            hint="score with another rater",
        )
    metadata = {
        "rater": replay.of,
        "language_model": replay.language_model,
        "pairs": count,
        "failed": failed,
    }
    return Teacher(replay.of, replay.scale, rows.drop("place"), target, metadata)


@dataclass(frozen=True)
class Recipe:
    """Size of a surrogate, and what is held out of its training."""

    #: Factors of personas and items (count).
    rank: int = 32
    #: Passes over the pairs at most (count).
    sweeps: int = 15
    #: Shares of personas and of items, by hash, whose pairs are all held out.
    hold_out_personas: float = 0.1
    hold_out_items: float = 0.05
    #: Seed of the held-out sets and the visits.
    seed: int = 29


#: The recipe of the stage.
RECIPE = Recipe()


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
    recipe: Recipe = RECIPE,
) -> Taught:
    """Learn a surrogate and judge it on pairs that it has not seen.

    By hashes of ids, some personas and items are in no pair that is learned from, nor are some
    pairs of the others. What is judged is what is returned: nothing is fitted again on all pairs.

    Tables are those of their names; the last three are used where there are any. ``ask`` opens the
    teacher itself, for ``settings.rounds``.

    Raises
    ------
    ContractError
        If pairs are of personas or items that are not in the tables, or all lack facts.
    ConfigError
        If `rounds` are asked for and the teacher can't be opened under the name of its scores.
    """
    frames = [personas.sort("persona_id"), with_stats(items, item_stats).sort("item_id")]
    vectors = [persona_embeddings, item_embeddings]
    hashes = [hash_ids(frame[id_column(frame)]) for frame in frames]
    pairs = _pairs(teacher, frames)
    learned, usable = np.ones(len(pairs), bool), np.ones(len(pairs), bool)
    sides, columns = [], []
    shares = recipe.hold_out_personas, recipe.hold_out_items
    for n, (rows, share) in enumerate(zip((pairs.person, pairs.item), shares, strict=True)):
        rated = np.unique(rows)
        chance = uniform(recipe.seed, hashes[n][rated], _HELD)
        held = rated[np.argsort(chance, kind="stable")][: round(share * len(rated))]
        # Columns and text components are of those that are learned from.
        sides.append(side_of(frames[n][np.setdiff1d(rated, held).tolist()], vectors[n]))
        read, complete = sides[n].columns(frames[n], vectors[n])
        columns.append(read)
        usable &= complete[rows]
        learned &= ~np.isin(rows, held)
    if not usable.any():
        raise ContractError(
            "no pair has the facts that are learned from",
            where="preference_scores",
            hint="personas and items need genres or text vectors",
        )
    chance = uniform(recipe.seed, combine(hashes[0][pairs.person], hashes[1][pairs.item]), _PAIR)
    learned = (learned & (chance >= _HELD_PAIRS))[usable]
    pairs = pairs.take(usable)
    train = pairs.take(learned)
    fit = fit_pairs(train, *columns, rank=recipe.rank, sweeps=recipe.sweeps, seed=recipe.seed)
    for n, (rows, values, weights) in enumerate(
        (
            (train.person, fit.people, fit.people_weights),
            (train.item, fit.things, fit.things_weights),
        )
    ):
        distinct = np.unique(rows)
        frame = frames[n][distinct.tolist()]
        sides[n] = replace(
            sides[n],
            ids=np.array(frame[id_column(frame)].to_list()),
            digests=stated_digests(frame),
            values=values[distinct],
            weights=weights,
        )
    metadata = {
        "teacher": {**teacher.metadata, "histories": settings.rounds > 0},
        "counts": {
            "learned_from": len(train),
            "lacking_facts": int((~usable).sum()),
            "personas": len(sides[0].ids),
            "items": len(sides[1].ids),
        },
        "settings": {**settings.identity_values(), **asdict(recipe)},
    }
    model = SurrogateModel(teacher.scale, sides[0], sides[1], fit.anchor, metadata=metadata)

    def bound(surrogate: SurrogateModel) -> BoundSurrogate:
        return SurrogateRater(
            surrogate, item_embeddings=item_embeddings, persona_embeddings=persona_embeddings
        ).bind(*frames)

    published = bound(model)
    # An item all of whose pairs are held out is not seen either.
    kind = 2 * ~np.isin(pairs.person, train.person) + ~np.isin(pairs.item, train.item)
    fidelity: list[dict[str, Any]] = []
    for number, name in enumerate(KINDS):
        judged = pairs.take((kind == number) & ~learned)
        given = published.rate(judged.person, judged.item)
        means = baseline(train, judged, name, model.scale)
        answers = given.expected, given.probabilities
        fidelity += compare(name, judged, answers, means, model.scale, seed=recipe.seed)
    if settings.rounds:
        model, more = _rounds(model, bound, teacher, ask, frames, train, settings, recipe)
        fidelity += more
    model = replace(model, metadata={**metadata, "fidelity": fidelity})
    return Taught(model, pl.DataFrame(fidelity, infer_schema_length=None), fit.course)


def _pairs(teacher: Teacher, frames: Sequence[pl.DataFrame]) -> Pairs:
    rows = []
    for frame in frames:
        key = id_column(frame)
        numbers = frame.select(key).with_row_index("row")
        joined = teacher.rows.join(numbers, on=key, how="left", maintain_order="left")
        if joined["row"].null_count():
            raise ContractError(
                f"{joined['row'].null_count():,} scores whose {key} is not in the table",
                where=f"preference_scores: {joined.filter(pl.col('row').is_null())[key][0]}",
                hint="score again with the present tables",
            )
        rows.append(joined["row"].cast(pl.Int64).to_numpy())
    return Pairs(rows[0], rows[1], teacher.target)


def _rounds(
    model: SurrogateModel,
    bound: Callable[[SurrogateModel], BoundSurrogate],
    teacher: Teacher,
    ask: Callable[[], Rater] | None,
    frames: Sequence[pl.DataFrame],
    train: Pairs,
    settings: SurrogateSettings,
    recipe: Recipe,
) -> tuple[SurrogateModel, list[dict[str, Any]]]:
    """The model after rounds in which the teacher rates states that a policy on it visits.

    As in DAgger (Ross, Gordon and Bagnell, AISTATS 2011), each round's policy acts on the last
    round's surrogate, and the memory's effect is fitted on the states of all rounds. Visits of a
    fifth of the personas are left out and judged.
    """
    if ask is None:
        raise ConfigError(
            "the teacher itself is needed", where="surrogate.rounds", hint="give `ask`"
        )
    rater = ask()
    try:
        if rater.name != teacher.name:
            raise ConfigError(
                f"the settings open the rater {rater.name}, the scores are of {teacher.name}",
                where="surrogate.rounds",
                hint="use the scoring settings of the scores, or surrogate.rounds=0",
            )
        answering = bind(rater, *frames)
        people, things = np.unique(train.person), np.unique(train.item)
        ids = frames[0]["persona_id"].gather(people)
        order = np.argsort(uniform(recipe.seed, hash_ids(ids), _VISITOR), kind="stable")
        left_out = people[order[: round(_JUDGED * len(people))]]
        states: list[tuple[Any, ...]] = []
        for number in range(settings.rounds):
            rng = np.random.default_rng((recipe.seed, number))
            visits = max(1, settings.visited // _STEPS)
            who = people[rng.permutation(np.resize(np.arange(len(people)), visits))]
            published = bound(model)
            states += _visit(published, answering, who, things, rng)
            *state, target = map(np.concatenate, zip(*states, strict=True))
            judged = np.isin(state[0], left_out)
            who, item, past, ratings = (values[~judged] for values in state)
            location, cuts = published.locations(who, item)
            surplus = partial(published.surplus, who, item, past, ratings)
            memory = fit_memory(location, cuts, target[~judged], surplus)
            model = replace(model, memory=memory)
        out = [values[judged] for values in state]
        given, plain = bound(model).rate(*out), bound(replace(model, memory=None)).rate(*out[:2])
        return model, compare(
            VISITED,
            Pairs(out[0], out[1], target[judged]),
            (given.expected, given.probabilities),
            (plain.expected, plain.probabilities),
            model.scale,
            seed=recipe.seed,
        )
    finally:
        if (close := getattr(rater, "close", None)) is not None:
            close()


def _visit(
    surrogate: BoundSurrogate, teacher: BoundRater, who: Ints, things: Ints, rng: Any
) -> list[tuple[Any, ...]]:
    """States of visits of these personas, step by step, with the teacher's distributions.

    The policy shows the item that the surrogate expects to be liked best of a random slate, and now
    and then any other; ratings are drawn from the surrogate. Failed answers are left out.
    """
    past = np.full((len(who), _STEPS), -1, np.int64)
    ratings = np.full((len(who), _STEPS), surrogate.scale.low)
    states = []
    for step in range(_STEPS):
        slate = things[rng.integers(len(things), size=(len(who), min(_SLATE, len(things))))]
        wide = slate.shape[1]
        expected = surrogate.rate(
            np.repeat(who, wide),
            slate.ravel(),
            np.repeat(past, wide, 0),
            np.repeat(ratings, wide, 0),
        ).expected.reshape(slate.shape)
        met = (slate[:, :, None] == past[:, None, :]).any(axis=2)
        chosen = np.where(met, -np.inf, expected).argmax(axis=1)
        chosen = np.where(rng.random(len(who)) < _RANDOM, 0, chosen)
        item = slate[np.arange(len(who)), chosen]
        if step:
            answers = teacher.rate(who, item, past[:, :step], ratings[:, :step])
            ok = np.array(answers.status) == OK
            states.append((who[ok], item[ok], past[ok], ratings[ok], answers.probabilities[ok]))
        batch = surrogate.rate(who, item, past, ratings)
        past[:, step], ratings[:, step] = item, batch.sample(rng.random(len(who)))
    return states


def save_surrogate(taught: Taught, folder: Path) -> list[Path]:
    """Write the files of a surrogate: arrays, metadata with fidelity, and a card."""
    files = taught.model.save(folder)
    metadata = taught.model.metadata
    teacher, counts = metadata["teacher"], metadata["counts"]
    below = [kind for kind in KINDS if not taught.model.beats_baseline(kind)]
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
personas. {"Not better than its baseline: " + "; ".join(below) + "." if below else ""}

{taught.markdown()}
"""
    (folder / "README.md").write_text(card, encoding="utf-8")
    return sorted([*files, folder / "README.md"])
