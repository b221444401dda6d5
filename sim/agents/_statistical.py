"""The brain that needs no language model: fitted choices and ratings, assumed moods and exits.

What is fitted stands in :meth:`StatisticalBrain.metadata`, what is assumed in
``data/assumed.yaml``. Captions, descriptions, comments and its own memory are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import polars as pl
from scipy.optimize import brentq, minimize_scalar
from scipy.special import expit

from pipelines.raters import (
    RatingBatch,
    StatisticalRater,
    fit_statistical,
    persona_rows,
    to_answers,
)
from pipelines.seeding import hash_ids, uniform
from sim.agents._assumed import ASSUMED_FILE
from sim.agents._choice import (
    FEATURES,
    ChoiceFeatures,
    Fit,
    HeldOut,
    fit_choice,
    genre_shares,
    tastes_of,
)
from sim.agents._protocol import (
    Classification,
    Floats,
    Ints,
    Judgement,
    Opinion,
    Question,
    seeds_of,
)
from sim.agents._remarks import Remarks
from sim.agents._rules import VisitRules
from sim.agents._world import SCALE, AgentWorld, people_of_split, training_history

#: Users that weights are fitted on, and people that the intercept is set for (counts, by a hash
#: of the id), and unseen items of each.
_USERS, _PEOPLE, _UNSEEN = 2_000, 1_000, 100
#: Which question a draw is for.
_WATCH, _RATE = range(2)


class StatisticalBrain(VisitRules):
    """Chooses by a fitted model of what people choose, and rates as the statistical rater does.

    Watching: P(watch) of :mod:`sim.agents._choice`, with habits. Rating: drawn from (1 - w)·rater +
    w·histogram of the item's ratings, w per tier of conformity. Everything about moods, fatigue and
    leaving is assumed.

    With ``learns`` the rater takes in what is rated in the visit, as it does in the environment:
    later items are expected, chosen and rated with it.
    """

    name = "statistical"
    reads = False

    def __init__(self, *, learns: bool = False) -> None:
        self._learns = learns

    def open(self, world: AgentWorld) -> Self:
        """Fit the weights on the validation split of people; read nothing of the test split."""
        self._world = world
        tastes = tastes_of(world)
        self.set_rules(world, tastes)
        users = people_of_split(world.release, "validation", _USERS)
        cast = [] if not world.matched else world.people["user_id"].to_list()
        everybody = list(dict.fromkeys([*cast, *users]))
        rater, items = self._rater(world)
        history = training_history(world.release, everybody, world.catalogue)
        real = ChoiceFeatures(
            world,
            rater.bind(persona_rows(everybody, None), items),  # type: ignore[arg-type]
            ids=everybody,
            history=history,
            tastes=genre_shares(world, history),
        )
        held_out, ratings = self._held_out(world, everybody, users, history)
        self._fit = fit_choice(real, held_out)
        self._choices = real
        self._fold = Fit.fold(everybody)
        if not world.matched:
            self._choices = self._personas(world, rater, items)
            self._fold = np.full(len(world), len(self._fit.weights) - 1)
        self._tiers(world)
        self._set_intercept(world)
        self._histograms = world.item_histograms + self._set["histogram_prior"] * world.histogram
        self._histograms /= self._histograms.sum(axis=1, keepdims=True)
        self._mixture(world, real, everybody, ratings)
        self._remarks = Remarks(world, tastes)
        learning = ", which learns within the visit" if self._learns else ""
        self.note = (
            "Choices are fitted on people's held-out interactions and ratings are those of the "
            f"statistical rater{learning}; moods and exits are assumed ({ASSUMED_FILE}). No "
            "language model."
        )
        return self

    note = "Fitted choices and ratings, assumed moods and exits. No language model."

    def judge(self, questions: Sequence[Question]) -> list[Judgement]:
        """Watch with P(watch), rate, and say so with the reasons that agree."""
        row, people, items = _flat(questions)
        place = np.array([p for q in questions for p in q.positions], np.int64)
        batch = self._rated(questions, row, items)
        parts = self._parts(people, items, batch.expected)
        chance = expit(self._intercepts[people] + parts.sum(axis=1))
        seeds = seeds_of(questions)[row]
        experienced = np.array([q.experienced for q in questions], np.bool_)[row]
        watched = experienced | (uniform(seeds, place, _WATCH) < chance)
        w = self._weight[people[watched]][:, None]
        mixed = (1 - w) * batch.probabilities[watched] + w * self._histograms[items[watched]]
        below = np.cumsum(mixed, axis=1)[:, :-1] <= uniform(seeds, place, _RATE)[watched, None]
        ratings = np.full(len(row), np.nan)
        ratings[watched] = 1.0 + below.sum(axis=1)
        feelings = np.full(len(row), None, object)
        effects = self._choices.settled.effects(people[watched], items[watched])
        feelings[watched] = self._remarks.feelings(
            people[watched], items[watched], ratings[watched], effects, seeds[watched]
        )
        off = parts - self._usual[people]
        reasons = self._remarks.reasons(people, items, watched, off, self._weights[people], seeds)
        columns = (watched, ratings, chance, batch.expected, reasons, feelings)
        opinions = [
            Opinion(seen, int(rating) if seen else None, *others)
            for seen, rating, *others in zip(*(c.tolist() for c in columns), strict=True)
        ]
        return [Judgement(opinions=tuple(own)) for own in _parted(questions, opinions)]

    def classify(self, questions: Sequence[Question]) -> list[Classification]:
        """P(watch) with the fitted intercept and without habits."""
        _, people, items = _flat(questions)
        expected = self._choices.settled.rate(people, items).expected
        features = self._choices.features(people, items, expected)
        weights = self._fit.weights[self._fold[people]]
        chance = expit(weights[:, 0] + (features * weights[:, 1:]).sum(axis=1))
        own = _parted(questions, chance.tolist())
        return [Classification(probabilities=tuple(values)) for values in own]

    def metadata(self) -> dict[str, Any]:
        """Fitted values with their data, and the file of assumptions."""
        return {
            "choice": self._fit.metadata,
            "intercept": round(self._intercept, 6),
            "watched_of_random_unseen_items": round(self._reached, 6),
            "conformity": self._conformity,
            "rater": {"name": "statistical", "scale": SCALE.name},
            "habits": self._world.traits,
            "graph": self._world.graph,
            "assumed": self._set,
            "file": ASSUMED_FILE,
            **({"learns": True} if self._learns else {}),
        }

    # -- fitting -------------------------------------------------------------------------------

    def _rater(self, world: AgentWorld) -> tuple[StatisticalRater, pl.DataFrame]:
        release = world.release
        release.require("item_stats")
        items = release["items"].polars().sort("item_id")
        vectors: dict[str, Any] = {
            name: release[name].polars()
            for name in ("item_embeddings", "persona_embeddings")
            if name in release
        }
        found = fit_statistical(
            scale=SCALE,
            items=items,
            item_stats=release["item_stats"].polars(),
            interactions=release["interactions"].lazy(),
            splits=release["splits"].lazy(),
            seed=int(release.settings.get("scoring", {}).get("seed", 0)),
            **vectors,
        )
        return found, items

    def _personas(
        self, world: AgentWorld, rater: StatisticalRater, items: pl.DataFrame
    ) -> ChoiceFeatures:
        from sim.environment import PersonaTable

        frame = PersonaTable.read(world.release).frame[world.people["persona"].to_list()]
        return ChoiceFeatures(
            world,
            rater.bind(frame, items),  # type: ignore[arg-type]
            ids=world.graph_users,
            history=world.history,
            tastes=tastes_of(world),
        )

    def _held_out(
        self, world: AgentWorld, everybody: list[str], users: list[str], history: Any
    ) -> tuple[HeldOut, pl.DataFrame]:
        places = pl.DataFrame({"user_id": everybody}).with_row_index("person")
        numbers = pl.DataFrame({"item_id": world.catalogue.ids}).with_row_index("item")
        from sim.environment import split_rows

        rows = split_rows(world.release, ("validation",)).filter(pl.col("user_id").is_in(users))
        rows = rows.join(places, on="user_id").join(numbers, on="item_id").sort("person", "item")
        person = rows["person"].cast(pl.Int64).to_numpy()
        item = rows["item"].cast(pl.Int64).to_numpy()
        return HeldOut.draw(world, person, item, history), rows

    def _tiers(self, world: AgentWorld) -> None:
        tiers = world.people["diversity"]
        variety = tiers.replace_strict(self._set["diversity"], return_dtype=pl.Float64)
        self._weights = self._fit.weights[self._fold[: len(world)], 1:].copy()
        self._weights[:, FEATURES.index("genres")] *= variety.to_numpy()

    def _set_intercept(self, world: AgentWorld) -> None:
        """The intercept at which the mean P(watch) of random unseen items is the assumed one."""
        people = np.repeat(np.arange(min(len(world), _PEOPLE)), _UNSEEN)
        ids = hash_ids(world.people["persona_id"])[people]
        place = np.tile(np.arange(_UNSEEN), len(people) // _UNSEEN)
        items = (uniform(0, ids, place) * len(world.catalogue)).astype(np.int64)
        seen = (world.known[people] == items[:, None]).any(axis=1)
        people, items = people[~seen], items[~seen]
        expected = self._choices.settled.rate(people, items).expected
        parts = self._parts(people, items, expected)
        # Centred by person, so that a reason is about the item.
        count = np.maximum(np.bincount(people, minlength=len(world)), 1)
        mean = parts.mean(axis=0)
        self._usual = np.tile(mean, (len(world), 1))
        for column in range(parts.shape[1]):
            own = np.bincount(people, parts[:, column], minlength=len(world)) / count
            known = np.bincount(people, minlength=len(world)) > 0
            self._usual[known, column] = own[known]
        logits = parts.sum(axis=1) + self._habits[people]
        share = float(self._set["watch"])
        self._intercept = float(brentq(lambda b: expit(logits + b).mean() - share, -50.0, 50.0))
        self._reached = float(expit(logits + self._intercept).mean())
        self._intercepts = self._intercept + self._habits

    def _mixture(
        self, world: AgentWorld, real: ChoiceFeatures, everybody: list[str], rows: pl.DataFrame
    ) -> None:
        """Weight of the item's histogram by tier of conformity, by likelihood on validation."""
        from pipelines.raters import source_scale

        scale = source_scale(world.release["interactions"].lazy())
        answer = to_answers(rows["rating"].to_numpy(), scale, SCALE).astype(np.int64) - 1
        person = rows["person"].cast(pl.Int64).to_numpy()
        item = rows["item"].cast(pl.Int64).to_numpy()
        at = np.arange(len(rows))
        own = real.settled.rate(person, item).probabilities[at, answer]
        common = self._histograms[item][at, answer]
        tiers = np.full(len(everybody), "medium", object)
        if world.traits:
            table = world.release["training_traits"].polars(["user_id", "conformity_tier"])
            found = dict(table.iter_rows())
            tiers = np.array([found.get(user, "medium") for user in everybody], object)
        self._conformity: dict[str, Any] = {}
        for tier in ("low", "medium", "high"):
            rows_of = tiers[person] == tier
            self._conformity[tier] = _weight(own[rows_of], common[rows_of])
        values = {tier: found["weight"] for tier, found in self._conformity.items()}
        column = world.people["conformity"].replace_strict(values, return_dtype=pl.Float64)
        self._weight = column.to_numpy()

    # -- parts of replies ----------------------------------------------------------------------

    def _rated(self, questions: Sequence[Question], row: Ints, items: Ints) -> RatingBatch:
        """Ratings of the items of some rows, with the visit's own ratings where it learns."""
        people = np.array([q.visit.person for q in questions], np.int64)
        if not self._learns:
            return self._choices.settled.rate(people[row], items)
        memories = []
        for question in questions:
            known, stars = self._choices.history.of(question.visit.person)
            seen = question.visit.watched()
            own = [item for item, _ in seen], [float(o.rating or 0) for _, o in seen]
            memories.append(
                (
                    np.concatenate([known, np.array(own[0], np.int64)]),
                    np.concatenate([stars, np.array(own[1], np.float64)]),
                )
            )
        return self._choices.settled.rater.settle(memories, people).rate(row, items)

    def _parts(self, people: Ints, items: Ints, expected: Floats) -> Floats:
        """Terms of the log odds of watching, without intercept and habits, of shape (n, 5)."""
        return self._choices.features(people, items, expected) * self._weights[people]


def _flat(questions: Sequence[Question]) -> tuple[Ints, Ints, Ints]:
    """Question, person and item of every item that is asked about, of shape (items,) each."""
    row = np.repeat(np.arange(len(questions)), [len(q.items) for q in questions])
    people = np.array([q.visit.person for q in questions], np.int64)[row]
    return row, people, np.array([item for q in questions for item in q.items], np.int64)


def _parted(questions: Sequence[Question], values: list[Any]) -> list[list[Any]]:
    """Values of all items, by question."""
    ends = np.cumsum([len(q.items) for q in questions]).tolist()
    return [values[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def _weight(own: Floats, common: Floats) -> dict[str, Any]:
    """The weight of `common` with the best likelihood, with what it gains; 0 without a rating."""
    if not len(own):
        return {"weight": 0.0, "ratings": 0}

    def loss(w: float) -> float:
        return -float(np.log((1 - w) * own + w * common).mean())

    optimum = minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-6})
    best = min((float(optimum.x), 0.0, 1.0), key=loss)
    return {
        "weight": round(best, 6),
        "ratings": len(own),
        "log_loss": round(loss(best), 6),
        "log_loss_of_the_rater_alone": round(loss(0.0), 6),
    }
