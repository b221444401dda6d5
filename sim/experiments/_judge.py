"""Experiment ``judge``: how much logs of agents look like those of people, to blind judges."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import polars as pl

from pipelines.judge import Case, Reply, export_questionnaire
from pipelines.prompts import experiment_prompt_digest, log_line, log_messages
from pipelines.raters import to_answers
from pipelines.scales import scale_named
from pipelines.seeding import hash_ids
from pipelines.study import Figure, Study, mean_figure
from sim.agents import AgentWorld, Brain, Simulation, genre_shares, logistic
from sim.experiments._context import ExperimentContext
from sim.experiments._data import (
    Floats,
    asking_brain,
    chosen,
    held_out_pairs,
    item_frame,
    judged,
    training_means,
    watched_items,
)
from sim.experiments._experiment import experiment, page

_PEOPLE, _RANDOM = "people", "random"
#: Items of the logs: those that each source watched, or those of people for all.
_CHOSEN, _SAME = "chosen", "people's"
_GRADES = ("1", "2", "3", "4", "5")
_FOLDS = 5
#: Features of a log that the statistical judge weighs.
FEATURES = ("level", "spread", "off", "liked", "popular", "taste", "agrees")


@experiment(
    question="How much do logs of agents look like those of the people whom they stand for, to "
    "judges who tell people's logs from random ones?",
    paper="SimUSER, Tables 4 and 10, Fig. 12",
    conditions=("judge", "items", "log"),
    **page("judge"),
)
def judge(
    study: Study,
    context: ExperimentContext,
    *,
    recommender: str = "ease",  # visited by the agents
    least: int = 3,  # entries that a log needs,
    most: int = 8,  # and has at most
    history: int = 6,  # training interactions that stand before each log (count)
    min_people: int = 10,  # with a log of every kind
    sheet_cases: int = 10,  # people on the sheets for human judges (count)
) -> None:
    """Let every judge grade logs of people, baselines and agents, blind to their source."""
    unable, sheets = [], []
    model = asking_brain(context)
    for items in (_CHOSEN, _SAME):
        logs, sources = _logs(study, context, items, recommender, least, most)
        study.require(
            f"people with {least} entries in every log", len(logs.people(_PEOPLE)), min_people,
            "more --agents or --pages",
        )  # fmt: skip
        sheets.append(_sheets(context, logs, history, sheet_cases))
        judges = {
            "always 3": ("baseline", _constant(logs)),
            "statistical": ("statistical", _statistical(logs)),
        }
        if model is not None:
            judges[model.name] = ("model", _model(context, model, logs, history))
        for name, (source, graded) in judges.items():
            if not _report(study, (name, items), source, graded, sources):
                unable.append(f"{name} ({items})")
            for log, frame in graded.items():
                if missing := frame["score"].null_count():
                    study.counts[f"without a grade, {name}, {items}, {log}"] = missing
    study.notes += [
        f"Sheets for human judges: {' and '.join(f'`{place}`' for place in sheets)} below the "
        "home, see `understudy judge score`.",
    ]
    if unable:
        study.notes.append(
            "Unable to tell people from random, so that nothing else is reported of them: "
            f"{', '.join(unable)}."
        )
    if model is None:
        study.notes.append("No language model judged: it needs `--brain model`.")


@dataclass(frozen=True)
class Logs:
    """Logs of several sources for the same people, in one form."""

    #: Items and people.
    world: AgentWorld
    #: By source: ``person, place, item, rating``, ordered by person and place.
    entries: Mapping[str, pl.DataFrame]

    @cached_property
    def _names(self) -> list[tuple[str, list[str] | None]]:
        """Title and genres of each item."""
        genres = self.world.catalogue.frame["genres"].to_list()
        return list(zip(self.world.titles, genres, strict=True))

    def _line(self, item: int, rating: float) -> str:
        title, genres = self._names[item]
        return log_line(title, genres or [], rating)

    def people(self, source: str) -> Any:
        """People with a log of a source, ascending."""
        return self.entries[source]["person"].unique().sort().to_numpy()

    def lines(self, source: str) -> dict[int, list[str]]:
        """Lines of the logs of a source by person."""
        by_person = self.entries[source].rows_by_key("person", named=True)
        return {
            person: [self._line(row["item"], row["rating"]) for row in rows]
            for person, rows in by_person.items()
        }

    def history(self, person: int, most: int) -> list[str]:
        """Lines of a person's latest training interactions."""
        items, ratings = self.world.history.of(person)
        latest = zip(items[-most:].tolist(), ratings[-most:].tolist(), strict=True)
        return [self._line(i, round(r, 1)) for i, r in latest]


def _logs(
    study: Study,
    context: ExperimentContext,
    items: str,
    recommender: str,
    least: int,
    most: int,
) -> tuple[Logs, dict[str, str]]:
    """Logs of people and of every brain, and the sources of their rows."""
    world = context.world()
    number = min(len(world), context.agents)
    real = _of_people(world).filter(pl.col("person") < number)
    logs, sources = {_PEOPLE: real}, {_PEOPLE: "people"}
    for name, brain, source in context.players():
        sources[name] = source
        if items == _CHOSEN:
            logs[name] = context.of_visits(study, brain, recommender, partial(_of_agents, world))
            continue
        pairs = real.filter(pl.col("place") < most)
        if source == "model":
            pairs = pairs.filter(pl.col("person") < context.agents_of(brain))
        given = judged(context, brain, pairs.select("person", "place", "item"))
        rated = given.filter(pl.col("status") == "ok").drop_nulls("rating")
        logs[name] = rated.select("person", "place", "item", "rating")
    needed = [n for n, s in sources.items() if s != "model"]
    entries = equal_lengths(logs, least=least, most=most, needed=needed)
    for name, frame in entries.items():
        count = frame["person"].n_unique()
        study.counts[f"logs, {items}, {name}"] = count
        left_out = logs[name]["person"].n_unique() - count
        study.counts[f"logs left out, {items}, {name}"] = left_out
    return Logs(world, entries), sources


def _sheets(context: ExperimentContext, logs: Logs, history: int, sheet_cases: int) -> str:
    """Folder of the sheets below the home; written once."""
    lines = {source: logs.lines(source) for source in logs.entries}
    everywhere = set.intersection(*map(set, lines.values()))
    cases = []
    for person in sorted(everywhere)[:sheet_cases]:
        # Persona ids would name the real user.
        before = "; ".join(logs.history(person, history))
        replies = tuple(
            Reply(source, None, "1-5", log=tuple(logged[person]))
            for source, logged in lines.items()
        )
        cases.append(Case(f"person {person}", "Before.", before, replies))
    text = repr([asdict(case) for case in cases])
    place = f"experiments/judge-sheets/{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    folder = context.home / place
    if cases and not (folder / "key.json").exists():
        export_questionnaire(cases, folder, seed=context.seed)
    return place if cases else "none: no person has a log of every kind"


def _model(
    context: ExperimentContext, brain: Brain, logs: Logs, history: int
) -> dict[str, pl.DataFrame]:
    """Expected grades of a sample of people."""
    source = brain.name if brain.name in logs.entries else _PEOPLE
    first = logs.people(source)[: context.agents_of(brain)]
    domain, out = context.release.domain, {}
    for source in logs.entries:
        lines = logs.lines(source)
        people = [int(p) for p in first if p in lines]
        questions = [log_messages(domain, logs.history(p, history), lines[p]) for p in people]
        shares = chosen(context, brain, questions, _GRADES, prompt=experiment_prompt_digest())
        out[source] = _graded(logs, np.array(people, np.int64), shares @ np.arange(1.0, 6.0))
    return out


def _report(
    study: Study,
    labels: tuple[str, str],
    source: str,
    graded: Mapping[str, pl.DataFrame],
    sources: Mapping[str, str],
) -> bool:
    """Add rows and comparisons of one judge; False if it can't tell people from random."""
    power = can_tell(graded)
    able = power is not None and power.low > 0
    people = graded[_PEOPLE].drop_nulls("score").height
    study.add((*labels, "people less random"), source, figures={"power": power}, n=people)
    note = "" if able else "Not reported: this judge can't tell people from random."
    rows = {}
    for log, frame in graded.items():
        # In the order of people, as `can_tell`: intervals of rows and differences share draws.
        score = mean_figure(frame["score"].fill_null(np.nan).to_numpy()) if able else None
        rows[log] = study.add(
            (*labels, log),
            sources[log],
            frame if able else None,
            {"score": score},
            n=frame.drop_nulls("score").height,
            note=note,
        )
    pairs = [(_PEOPLE, log) for log in graded if log != _PEOPLE]
    pairs += [(log, _RANDOM) for log in graded if log not in (_PEOPLE, _RANDOM)]
    for left, right in pairs:
        study.compare(rows[left], rows[right], "score")
    return able


def equal_lengths(
    logs: Mapping[str, pl.DataFrame], *, least: int, most: int, needed: list[str]
) -> dict[str, pl.DataFrame]:
    """Logs cut to one length per person, so that the length does not reveal a log's source.

    ``logs`` has entries by source, with columns ``person`` and ``place``. Logs have ``least`` to
    ``most`` entries; shorter ones are left out. A person must have a log of the sources ``needed``,
    and may lack one of the others.
    """
    long = {
        name: frame.group_by("person").len("size").filter(pl.col("size") >= least)
        for name, frame in logs.items()
    }
    sizes = (
        pl.concat(long.values()).group_by("person").agg(pl.col("size").min().clip(upper_bound=most))
    )
    for name in needed:
        sizes = sizes.join(long[name], on="person", how="semi")
    place = pl.int_range(pl.len()).over("person")
    return {
        name: frame.join(long[name].select("person"), on="person", how="semi")
        .join(sizes, on="person")
        .sort("person", "place")
        .filter(place < pl.col("size"))
        .drop("size")
        for name, frame in logs.items()
    }


def can_tell(graded: Mapping[str, pl.DataFrame]) -> Figure | None:
    """Grade of people's logs less that of random ones, over people; able where its low is above 0.

    >>> flat = pl.DataFrame({"persona_id": ["a", "b"], "score": [3.0, 3.0]})
    >>> power = can_tell({"people": flat, "random": flat})
    >>> power.value, power.low > 0
    (0.0, False)
    """
    both = graded[_PEOPLE].join(graded[_RANDOM], on="persona_id", suffix="_random")
    pairs = both.drop_nulls(["score", "score_random"]).sort("persona_id")
    return mean_figure((pairs["score"] - pairs["score_random"]).to_numpy())


def features(logs: Logs, source: str) -> Floats:
    """Features of the logs of a source, of shape (people, 7), in the order of `FEATURES`.

    Mean rating less that of the person's history; standard deviation of the ratings; mean distance
    of rating and item mean; mean of the item means; mean log of the items' training ratings; mean
    share of the history that has the item's genres; covariance of rating and item mean.
    """
    world, frame = logs.world, logs.entries[source]
    person, item, rating = (frame[name].to_numpy() for name in ("person", "item", "rating"))
    _, place = np.unique(person, return_inverse=True)
    size = np.bincount(place).astype(np.float64)

    def mean(values: Floats) -> Floats:
        return np.asarray(np.bincount(place, values) / size)

    overall = float(np.nanmean(world.mean_ratings))
    usual = np.nan_to_num(world.mean_ratings, nan=overall)[item]
    usual_level = np.nan_to_num(training_means(world), nan=overall)
    kinds = np.maximum(world.genres[item].sum(axis=1), 1.0)
    shares = genre_shares(world, world.history)[person]
    taste = (shares * world.genres[item]).sum(axis=1) / kinds
    level, liked = mean(rating), mean(usual)
    return np.column_stack(
        [
            mean(rating - usual_level[person]),
            np.sqrt(np.maximum(mean(rating**2) - level**2, 0.0)),
            mean(np.abs(rating - usual)),
            liked,
            mean(np.log1p(world.item_histograms.sum(axis=1))[item]),
            mean(taste),
            mean(rating * usual) - level * liked,
        ]
    )


def _statistical(logs: Logs) -> dict[str, pl.DataFrame]:
    """Grades 1-5 by the fitted probability that a log is a person's; each out of its fold."""
    values = {source: features(logs, source) for source in logs.entries}
    people = {source: logs.people(source) for source in logs.entries}
    ids = np.asarray(hash_ids(logs.world.people["persona_id"]))
    fold = (ids % np.uint64(_FOLDS)).astype(np.int64)
    both = np.concatenate([values[_PEOPLE], values[_RANDOM]])
    real = np.repeat([1.0, 0.0], [len(values[_PEOPLE]), len(values[_RANDOM])])
    folds = fold[np.concatenate([people[_PEOPLE], people[_RANDOM]])]
    scores = {source: np.full(len(rows), np.nan) for source, rows in values.items()}
    for number in range(_FOLDS):
        rows = folds != number
        if not rows.any():
            continue
        centre = both[rows].mean(axis=0)
        spread = np.maximum(both[rows].std(axis=0), 1e-9)
        inside = (both[rows] - centre) / spread
        weights, _ = logistic(np.column_stack([np.ones(len(inside)), inside]), real[rows])
        for source, columns in values.items():
            held_out = fold[people[source]] == number
            logit = weights[0] + (columns[held_out] - centre) / spread @ weights[1:]
            chance = 1.0 / (1.0 + np.exp(-np.clip(logit, -50, 50)))
            scores[source][held_out] = 1.0 + np.minimum(4.0, np.floor(5.0 * chance))
    return {source: _graded(logs, people[source], score) for source, score in scores.items()}


def _constant(logs: Logs) -> dict[str, pl.DataFrame]:
    """A grade of 3 for every log: the control that the report must find unable."""
    people = {source: logs.people(source) for source in logs.entries}
    return {s: _graded(logs, group, np.full(len(group), 3.0)) for s, group in people.items()}


def _graded(logs: Logs, people: Any, scores: Floats) -> pl.DataFrame:
    names = logs.world.people["persona_id"].gather(people)
    frame = pl.DataFrame({"persona_id": names, "score": scores})
    return frame.with_columns(pl.col("score").fill_nan(None))


def _of_people(world: AgentWorld) -> pl.DataFrame:
    """Test interactions, oldest first."""
    times = world.release["interactions"].polars(["user_id", "item_id", "rated_at"])
    rows = held_out_pairs(world).join(item_frame(world), on="item")
    users = world.people.select("user_id", person=pl.int_range(pl.len(), dtype=pl.Int64))
    dated = rows.join(users, on="person").join(times, on=["user_id", "item_id"])
    # Agents answer in whole numbers: half stars would tell people's logs from theirs.
    scale = scale_named("1-5")
    stars = np.asarray(to_answers(dated["truth"].to_numpy(), scale, scale), np.float64)
    return _entries(dated.with_columns(rating=stars).sort("person", "rated_at", "item"))


def _of_agents(world: AgentWorld, run: Simulation) -> pl.DataFrame:
    """Watched items of agents that did not fail, in the order of the visit."""
    watched = watched_items(run).filter(pl.col("agent") < len(world))
    once = watched.sort("agent", "page", "position").unique(
        ["agent", "item_id"], keep="first", maintain_order=True
    )
    numbered = once.join(item_frame(world), on="item_id", maintain_order="left")
    return _entries(numbered.with_columns(person=pl.col("agent").cast(pl.Int64)))


def _entries(rows: pl.DataFrame) -> pl.DataFrame:
    """Entries of logs, in the order of the rows."""
    place = pl.int_range(pl.len()).over("person")
    return rows.select("person", "item", pl.col("rating").cast(pl.Float64), place=place).select(
        "person", "place", "item", "rating"
    )
