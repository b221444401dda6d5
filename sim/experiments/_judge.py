"""Experiment ``judge``: how much logs of agents look like those of people, to blind judges."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from pipelines.judge import Case, Reply, export_questionnaire
from pipelines.prompts import experiment_prompt_digest, log_line, log_messages
from pipelines.raters import to_answers
from pipelines.scales import scale_named
from pipelines.seeding import hash_ids
from sim.agents import AgentWorld, Brain, Cards, Simulation, logistic
from sim.experiments._choices import asking_brain, chosen
from sim.experiments._context import ExperimentContext
from sim.experiments._figures import Floats, bars, mean_figure, paired
from sim.experiments._held_out import judged, rated_rows
from sim.experiments._protocol import Comparison, Result, Row, TooFew
from sim.metrics import Figure

#: Meanings of the figures by name.
_FIGURES = {
    "score": "mean grade of likeness to the real person, 1-5",
    "power": "grade of people's logs less that of random ones, -4 to 4",
}
_PEOPLE, _RANDOM = "people", "random"
#: Items of the logs: those that each source watched, or those of people for all.
_CHOSEN, _SAME = "chosen", "people's"
_GRADES = ("1", "2", "3", "4", "5")
_FOLDS = 5
#: Features of a log that the statistical judge weighs.
FEATURES = ("level", "spread", "off", "liked", "popular", "taste", "agrees")


@dataclass(frozen=True)
class JudgeSettings:
    """Settings of ``judge``."""

    #: Visited by the agents.
    recommender: str = "ease"
    #: Entries that a log needs, and at most has (counts).
    least: int = 3
    most: int = 8
    #: Training interactions that stand before each log (count).
    history: int = 6
    #: People with a log of every kind that figures need (count).
    min_people: int = 10
    #: People on the sheets for human judges (count).
    sheet_cases: int = 10


@dataclass(frozen=True)
class Logs:
    """Logs of several sources for the same people, in one form."""

    #: Items and people.
    world: AgentWorld
    #: By source: ``person, place, item, rating``, ordered by person and place.
    entries: Mapping[str, pl.DataFrame]

    def people(self, source: str) -> Any:
        """People with a log of a source, ascending."""
        return self.entries[source]["person"].unique().sort().to_numpy()

    def lines(self, source: str) -> dict[int, list[str]]:
        """Lines of the logs of a source by person."""
        titles, genres = Cards(self.world).titles, self.world.catalogue.frame["genres"].to_list()
        out: dict[int, list[str]] = {}
        for person, _, item, rating in self.entries[source].iter_rows():
            line = log_line(titles[item], genres[item] or [], rating)
            out.setdefault(person, []).append(line)
        return out

    def history(self, person: int, most: int) -> list[str]:
        """Lines of a person's latest training interactions."""
        titles, genres = Cards(self.world).titles, self.world.catalogue.frame["genres"].to_list()
        items, ratings = self.world.history.of(person)
        latest = zip(items[-most:].tolist(), ratings[-most:].tolist(), strict=True)
        return [log_line(titles[i], genres[i] or [], round(r, 1)) for i, r in latest]


class Judge:
    """Likeness of logs to those of real people, by judges that recognise random logs."""

    name = "judge"
    question = (
        "How much do logs of agents look like those of the people whom they stand for, to judges "
        "who tell people's logs from random ones?"
    )
    anchor = "SimUSER, Tables 4 and 10, Fig. 12"
    figures = _FIGURES

    def __init__(self, settings: JudgeSettings | None = None) -> None:
        self.settings = settings or JudgeSettings()

    def run(self, context: ExperimentContext) -> Result:
        """Let every judge grade logs of people, baselines and agents, blind to their source."""
        rows: list[Row] = []
        comparisons: list[Comparison] = []
        counts: dict[str, int] = {}
        unable, sheets = [], []
        model = asking_brain(context)
        for items in (_CHOSEN, _SAME):
            logs, sources, sizes = self._logs(context, items)
            counts |= sizes
            sheets.append(self._sheets(context, logs))
            judges: dict[str, tuple[str, dict[str, pl.DataFrame]]] = {
                "always 3": ("baseline", _constant(logs)),
                "statistical": ("statistical", _statistical(logs)),
            }
            if model is not None:
                judges[model.name] = ("model", self._model(context, model, logs))
            for judge, (source, graded) in judges.items():
                labels = {"judge": judge, "items": items}
                own, found, able = _reported(labels, source, graded, sources, context.seed)
                rows, comparisons = rows + own, comparisons + found
                if not able:
                    unable.append(f"{judge} ({items})")
                for log, frame in graded.items():
                    missing = frame["score"].null_count()
                    if missing:
                        counts[f"without a grade, {judge}, {items}, {log}"] = missing
        notes = [
            "A log is what was watched and how it was rated, in one form and of one length per "
            "person, after the person's latest training interactions: people left no words, so "
            "that agents' words would give them away.",
            f"Items `{_CHOSEN}`: people's test interactions beside what agents watched on a visit "
            f"to `{self.settings.recommender}`, so that a judge may tell the recommender and not "
            f"the agent. Items `{_SAME}`: every log has the person's own test items, and only the "
            "ratings differ.",
            "The statistical judge is a logistic regression on seven features of a log, fitted to "
            "tell people's logs from random ones on the other four fifths of the people.",
            f"Sheets for human judges: {' and '.join(f'`{place}`' for place in sheets)} below the "
            "home, see `understudy judge score`.",
        ]
        if unable:
            notes.append(
                "Unable to tell people from random, so that nothing else is reported of them: "
                f"{', '.join(unable)}."
            )
        if model is None:
            notes.append("No language model judged: it needs `--brain model`.")
        return Result(rows, comparisons, notes, {"scores": _picture(rows)}, counts)

    # -- logs ----------------------------------------------------------------------------------

    def _logs(
        self, context: ExperimentContext, items: str
    ) -> tuple[Logs, dict[str, str], dict[str, int]]:
        """Logs of all sources, the source of each, and logs that are there or left out."""
        world, chosen_ = context.world(), self.settings
        number = min(len(world), context.agents)
        real = _of_people(world).filter(pl.col("person") < number)
        found, sources, counts = {_PEOPLE: real}, {_PEOPLE: "people"}, {}
        for name in context.brains:
            mind = context.brain(name)
            sources[name] = context.source(mind)
            if items == _CHOSEN:
                run = context.visits(mind, chosen_.recommender)
                found[name] = context.cell(
                    self.name, {"visits": run.identity}, partial(_of_agents, run, world)
                )
                continue
            pairs = real.filter(pl.col("place") < chosen_.most)
            if sources[name] == "model":
                pairs = pairs.filter(pl.col("person") < context.agents_of(mind))
            given = judged(context, mind, pairs.select("person", "place", "item"))
            rated = given.filter(pl.col("status") == "ok").drop_nulls("rating")
            found[name] = rated.select("person", "place", "item", "rating")
        entries = equal_lengths(
            found,
            least=chosen_.least,
            most=chosen_.most,
            needed=[n for n, s in sources.items() if s != "model"],
        )
        for name, frame in entries.items():
            before = found[name]["person"].n_unique()
            counts[f"logs, {items}, {name}"] = frame["person"].n_unique()
            counts[f"logs left out, {items}, {name}"] = before - frame["person"].n_unique()
        people = entries[_PEOPLE]["person"].n_unique()
        if people < chosen_.min_people:
            raise TooFew(
                f"people with {chosen_.least} entries in every log",
                found=people,
                needed=chosen_.min_people,
                where=f"experiment {self.name}, {context.release.ref}",
                hint="more --agents or --pages",
            )
        return Logs(world, entries), sources, counts

    def _sheets(self, context: ExperimentContext, logs: Logs) -> str:
        """Folder of the sheets below the home; written once."""
        lines = {source: logs.lines(source) for source in logs.entries}
        everywhere = set.intersection(*(set(own) for own in lines.values()))
        people = sorted(everywhere)[: self.settings.sheet_cases]
        cases = []
        for person in people:
            # Persona ids would name the real user.
            before = "; ".join(logs.history(person, self.settings.history))
            replies = tuple(
                Reply(source, None, "1-5", log=tuple(own[person])) for source, own in lines.items()
            )
            cases.append(Case(f"person {person}", "Before.", before, replies))
        text = repr([asdict(case) for case in cases])
        place = f"experiments/judge-sheets/{hashlib.sha256(text.encode()).hexdigest()[:16]}"
        folder = context.home / place
        if cases and not (folder / "key.json").exists():
            export_questionnaire(cases, folder, seed=context.seed)
        return place if cases else "none: no person has a log of every kind"

    # -- judges --------------------------------------------------------------------------------

    def _model(
        self, context: ExperimentContext, brain: Brain, logs: Logs
    ) -> dict[str, pl.DataFrame]:
        """Expected grades of a sample of people; kept."""
        number = context.agents_of(brain)
        own = [name for name in logs.entries if name in context.brains and name == brain.name]
        first = logs.people(own[0] if own else _PEOPLE)[:number]
        out = {}
        domain = context.release.domain
        for source in logs.entries:
            lines = logs.lines(source)
            people = [int(p) for p in first if p in lines]
            questions = [
                log_messages(domain, logs.history(p, self.settings.history), lines[p])
                for p in people
            ]

            def compute(questions: Any = questions) -> pl.DataFrame:
                return pl.DataFrame(chosen(brain, questions, _GRADES), schema=list(_GRADES))

            key = {
                "brain": context.identity(brain),
                "prompt": experiment_prompt_digest(),
                "questions": hashlib.sha256(repr(questions).encode()).hexdigest(),
            }
            shares = context.cell(self.name, key, compute).to_numpy()
            scores = shares @ np.arange(1.0, 6.0)
            out[source] = _graded(logs, np.array(people, np.int64), scores)
        return out


def _reported(
    labels: dict[str, str],
    source: str,
    graded: Mapping[str, pl.DataFrame],
    sources: Mapping[str, str],
    seed: int,
) -> tuple[list[Row], list[Comparison], bool]:
    """Rows and comparisons of one judge, and whether it separates people from random."""
    power = can_tell(graded)
    able = power is not None and power.low > 0
    people = graded[_PEOPLE].drop_nulls("score").height
    rows = [Row({**labels, "log": "people less random"}, source, {"power": power}, people)]
    frames = {}
    for log, frame in graded.items():
        score = mean_figure(frame["score"].fill_null(np.nan).to_numpy()) if able else None
        note = "" if able else "Not reported: this judge can't tell people from random."
        number = frame.drop_nulls("score").height
        rows.append(Row({**labels, "log": log}, sources[log], {"score": score}, number, note))
        frames[log] = rows[-1], frame
    if not able:
        return rows, [], False
    pairs = [(_PEOPLE, log) for log in graded if log != _PEOPLE]
    pairs += [(log, _RANDOM) for log in graded if log not in (_PEOPLE, _RANDOM)]
    found = [paired(frames[left], frames[right], "score", seed=seed) for left, right in pairs]
    return rows, [c for c in found if c is not None], True


def equal_lengths(
    found: Mapping[str, pl.DataFrame], *, least: int, most: int, needed: list[str]
) -> dict[str, pl.DataFrame]:
    """Logs cut to one length per person, so that the length does not reveal a log's source.

    ``found`` has entries by source, with columns ``person`` and ``place``. Logs have ``least`` to
    ``most`` entries; shorter ones are left out. A person must have a log of the sources ``needed``,
    and may lack one of the others.
    """
    lengths = {
        name: dict(frame.group_by("person").len().filter(pl.col("len") >= least).iter_rows())
        for name, frame in found.items()
    }
    people = set.intersection(*(set(lengths[name]) for name in needed))
    size = {
        person: min([most, *(own[person] for own in lengths.values() if person in own)])
        for person in people
    }
    sizes = pl.DataFrame(
        {"person": list(size), "size": list(size.values())},
        schema={"person": pl.Int64, "size": pl.Int64},
    )
    out = {}
    for name, frame in found.items():
        kept = frame.filter(pl.col("person").is_in(list(lengths[name])))
        kept = kept.join(sizes, on="person").sort("person", "place")
        place = pl.int_range(pl.len()).over("person")
        out[name] = kept.filter(place < pl.col("size")).drop("size")
    return out


def can_tell(graded: Mapping[str, pl.DataFrame]) -> Figure | None:
    """Grade of people's logs less that of random ones, over people; able where its low is above 0.

    >>> flat = pl.DataFrame({"persona_id": ["a", "b"], "score": [3.0, 3.0]})
    >>> found = can_tell({"people": flat, "random": flat})
    >>> found.value, found.low > 0
    (0.0, False)
    """
    both = graded[_PEOPLE].join(graded[_RANDOM], on="persona_id", suffix="_random")
    known = both.drop_nulls(["score", "score_random"]).sort("persona_id")
    return mean_figure((known["score"] - known["score_random"]).to_numpy())


def features(logs: Logs, source: str) -> Floats:
    """Features of the logs of a source, of shape (people, 7), in the order of `FEATURES`.

    Mean rating less that of the person's history; standard deviation of the ratings; mean distance
    of rating and item mean; mean of the item means; mean log of the items' training ratings; mean
    share of the history that has the item's genres; covariance of rating and item mean.
    """
    world, frame = logs.world, logs.entries[source]
    _, place = np.unique(frame["person"].to_numpy(), return_inverse=True)
    size = np.bincount(place).astype(np.float64)
    item, rating = frame["item"].to_numpy(), frame["rating"].to_numpy()

    def mean(values: Floats) -> Floats:
        return np.asarray(np.bincount(place, values) / size)

    overall = float(np.nanmean(world.mean_ratings))
    usual = np.nan_to_num(world.mean_ratings, nan=overall)[item]
    lengths = world.history.lengths
    owner = np.repeat(np.arange(len(lengths)), lengths)
    total = np.bincount(owner, world.history.ratings, minlength=len(lengths))
    own = np.where(lengths > 0, total / np.maximum(lengths, 1), overall)
    tastes = np.stack(
        [np.bincount(owner, genre[world.history.items], minlength=len(lengths))
         for genre in world.genres.T], axis=1,
    ) / np.maximum(lengths, 1)[:, None]  # fmt: skip
    person = frame["person"].to_numpy()
    kinds = np.maximum(world.genres[item].sum(axis=1), 1.0)
    taste = (tastes[person] * world.genres[item]).sum(axis=1) / kinds
    level, liked = mean(rating), mean(usual)
    return np.column_stack(
        [
            mean(rating - own[person]),
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
    found = {source: features(logs, source) for source in logs.entries}
    people = {source: logs.people(source) for source in logs.entries}
    ids = np.asarray(hash_ids(logs.world.people["persona_id"]))
    fold = (ids % np.uint64(_FOLDS)).astype(np.int64)
    both = np.concatenate([found[_PEOPLE], found[_RANDOM]])
    real = np.repeat([1.0, 0.0], [len(found[_PEOPLE]), len(found[_RANDOM])])
    folds = fold[np.concatenate([people[_PEOPLE], people[_RANDOM]])]
    scores = {source: np.full(len(own), np.nan) for source, own in found.items()}
    for number in range(_FOLDS):
        rows = folds != number
        if not rows.any():
            continue
        centre = both[rows].mean(axis=0)
        spread = np.maximum(both[rows].std(axis=0), 1e-9)
        inside = (both[rows] - centre) / spread
        weights, _ = logistic(np.column_stack([np.ones(len(inside)), inside]), real[rows])
        for source, own in found.items():
            here = fold[people[source]] == number
            logit = weights[0] + (own[here] - centre) / spread @ weights[1:]
            chance = 1.0 / (1.0 + np.exp(-np.clip(logit, -50, 50)))
            scores[source][here] = 1.0 + np.minimum(4.0, np.floor(5.0 * chance))
    return {source: _graded(logs, people[source], score) for source, score in scores.items()}


def _constant(logs: Logs) -> dict[str, pl.DataFrame]:
    """A grade of 3 for every log: the control that the report must find unable."""
    people = {source: logs.people(source) for source in logs.entries}
    return {s: _graded(logs, own, np.full(len(own), 3.0)) for s, own in people.items()}


def _graded(logs: Logs, people: Any, scores: Floats) -> pl.DataFrame:
    names = logs.world.people["persona_id"].gather(people)
    frame = pl.DataFrame({"persona_id": names, "score": scores})
    return frame.with_columns(pl.col("score").fill_nan(None))


def _of_people(world: AgentWorld) -> pl.DataFrame:
    """Test interactions, oldest first."""
    numbers = world.people.select("user_id").with_columns(
        person=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    places = pl.DataFrame({"item_id": world.catalogue.ids}).with_row_index("item")
    times = (
        world.release["interactions"]
        .lazy()
        .select("user_id", "item_id", "rated_at")
        .join(places.lazy().with_columns(pl.col("item").cast(pl.Int64)), on="item_id")
        .select("user_id", "item", "rated_at")
        .collect()
    )
    rows = rated_rows(world, "test")
    # Agents answer in whole numbers: half stars would tell people's logs from theirs.
    scale = scale_named("1-5")
    answers = np.asarray(to_answers(rows["truth"].to_numpy(), scale, scale), np.float64)
    return (
        rows.with_columns(truth=pl.Series(answers))
        .join(numbers, on="user_id")
        .join(times, on=["user_id", "item"])
        .sort("person", "rated_at", "item")
        .select("person", place=pl.int_range(pl.len()).over("person"), item="item", rating="truth")
    )


def _of_agents(run: Simulation, world: AgentWorld) -> pl.DataFrame:
    """Watched items of agents that did not fail, in the order of the visit."""
    ids = pl.DataFrame({"item_id": world.catalogue.ids}).with_row_index("item")
    whole = run.table("agents").filter(pl.col("exit_reason") != "failed").select("agent")
    return (
        run.table("views")
        .filter(pl.col("watched") & (pl.col("agent") < len(world)))
        .join(whole, on="agent", how="semi")
        .select("agent", "page", "position", "item_id", "rating")
        .unique(["agent", "item_id"], keep="first", maintain_order=True)
        .sort("agent", "page", "position")
        .collect()
        .join(ids.with_columns(pl.col("item").cast(pl.Int64)), on="item_id", maintain_order="left")
        .select(
            person=pl.col("agent").cast(pl.Int64),
            place=pl.int_range(pl.len()).over("agent"),
            item="item",
            rating=pl.col("rating").cast(pl.Float64),
        )
    )


def _picture(rows: list[Row]) -> bytes:
    judges = list(dict.fromkeys((row.labels["judge"], row.labels["items"]) for row in rows))
    logs = list(dict.fromkeys(row.labels["log"] for row in rows if "score" in row.figures))
    found = {(*list(row.labels.values()),): row.figures.get("score") for row in rows}
    series = {log: [found.get((*judge, log)) for judge in judges] for log in logs}
    names = [f"{judge},\n{items}" for judge, items in judges]
    return bars("Grades of logs by judge (none where it can't tell)", names, series, "grade (1-5)")
