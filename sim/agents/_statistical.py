"""The brain that needs no language model: fitted choices and ratings, assumed moods and exits.

What is fitted stands in :meth:`StatisticalBrain.metadata`, what is assumed in
``data/assumed.yaml``. Captions, descriptions, comments and its own memory are not read.
"""

from __future__ import annotations

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
from sim.agents._assumed import ASSUMED_FILE, assumed
from sim.agents._choice import FEATURES, Crowd, Fit, HeldOut, fit_choice, genre_shares, liked_genres
from sim.agents._protocol import (
    CLICK,
    EMOTIONS,
    EXIT,
    NEXT,
    PREVIOUS,
    Bools,
    Classifications,
    ClassifyRequests,
    DecideRequests,
    Decisions,
    Floats,
    InterviewRequests,
    Interviews,
    Ints,
    Judgements,
    JudgeRequests,
    Past,
    Reflections,
    ReflectRequests,
    Replies,
)
from sim.agents._remarks import Remarks, opinion
from sim.agents._world import SCALE, AgentWorld, people_of_split, training_history

#: Users that weights are fitted on, and people that the intercept is set for (counts, by a hash
#: of the id), and unseen items of each.
_USERS, _PEOPLE, _UNSEEN = 2_000, 1_000, 100
#: Which question a draw is for.
_WATCH, _RATE, _LEAVE, _ROUND = range(4)
_CURIOUS, _FRUSTRATED, _EXCITED, _NEUTRAL, _OVERWHELMED = range(5)
assert EMOTIONS == ("CURIOUS", "FRUSTRATED", "EXCITED", "NEUTRAL", "OVERWHELMED")


class StatisticalBrain:
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
        self._set: dict[str, Any] = assumed()["statistical"]
        users = people_of_split(world.release, "validation", _USERS)
        cast = [] if not world.matched else world.people["user_id"].to_list()
        everybody = list(dict.fromkeys([*cast, *users]))
        rater, items = self._rater(world)
        history = training_history(world.release, everybody, world.catalogue)
        real = Crowd(
            world,
            rater.bind(persona_rows(everybody, None), items),  # type: ignore[arg-type]
            ids=everybody,
            history=history,
            tastes=genre_shares(world, history),
        )
        held_out, ratings = self._held_out(world, everybody, users, history)
        self._fit = fit_choice(real, held_out)
        self._crowd = real
        self._fold = Fit.fold(everybody)
        if not world.matched:
            self._crowd = self._personas(world, rater, items)
            self._fold = np.full(len(world), len(self._fit.weights) - 1)
        self._tiers(world)
        self._set_intercept(world)
        self._histograms = world.item_histograms + self._set["histogram_prior"] * world.histogram
        self._histograms /= self._histograms.sum(axis=1, keepdims=True)
        self._mixture(world, real, everybody, ratings)
        self._phrases()
        learning = ", which learns within the visit" if self._learns else ""
        self.note = (
            "Choices are fitted on people's held-out interactions and ratings are those of the "
            f"statistical rater{learning}; moods and exits are assumed ({ASSUMED_FILE}). No "
            "language model."
        )
        return self

    note = "Fitted choices and ratings, assumed moods and exits. No language model."

    def judge(self, requests: JudgeRequests) -> Judgements:
        """Watch with P(watch), rate, and say so with the reasons that agree."""
        shape = requests.items.shape
        row, place = np.nonzero(requests.asked)
        people, items = requests.people[row], requests.items[row, place]
        batch = self._rated(requests, row, items)
        parts = self._parts(people, items, batch.expected)
        chance = expit(self._intercepts[people] + parts.sum(axis=1))
        seeds = requests.seeds[row]
        watched = requests.experienced | (uniform(seeds, place, _WATCH) < chance)
        ratings = np.full(len(row), np.nan)
        w = self._weight[people[watched]][:, None]
        mixed = (1 - w) * batch.probabilities[watched] + w * self._histograms[items[watched]]
        below = np.cumsum(mixed, axis=1)[:, :-1] <= uniform(seeds, place, _RATE)[watched, None]
        ratings[watched] = 1.0 + below.sum(axis=1)
        valence, feelings = np.zeros(len(row), np.int64), np.full(len(row), None, object)
        valence[watched] = opinion(ratings[watched])
        effects = self._crowd.settled.effects(people[watched], items[watched])
        feelings[watched] = self._remarks.feelings(
            people[watched], items[watched], ratings[watched], effects, seeds[watched]
        )
        off = parts - self._usual[people]
        reasons = self._remarks.reasons(people, items, watched, off, self._weights[people], seeds)

        def placed(values: Any, empty: Any, kind: Any) -> Any:
            out = np.full(shape, empty, kind)
            out[row, place] = values
            return out

        return Judgements(
            watched=placed(watched, False, np.bool_),
            ratings=placed(ratings, np.nan, np.float64),
            expected=placed(batch.expected, np.nan, np.float64),
            valence=placed(valence, 0, np.int64),
            feelings=placed(feelings, None, object),
            reasons=placed(reasons, None, object),
            **Replies.fine(len(requests)),
        )

    def decide(self, requests: DecideRequests) -> Decisions:
        """CLICK on an item it is unsure of; else leave with P(EXIT); else back or on."""
        n, chosen = len(requests), self._set
        past = requests.past
        shares, last = page_shares(past, chosen["liked_above"])
        content = satisfaction(shares, last, chosen["exit"]["start"])
        pages = last.sum(axis=1)
        fatigue = pages / self._budget[requests.people]
        x = shares[np.arange(n), requests.views - 1]
        target = self._unsure(requests)
        leaves = uniform(requests.seeds, _LEAVE) < exit_probability(fatigue, content)
        action = np.where(self._returns(requests, x), PREVIOUS, NEXT)
        action = np.where(leaves, EXIT, action)
        action = np.where(target >= 0, CLICK, action)
        tired = np.searchsorted([chosen["tired"]["a_little"], chosen["tired"]["very"]], fatigue,
                                side="right")  # fmt: skip
        going = np.where(tired == 2, 0, np.where(content > chosen["exit"]["neutral"], 1, 2))
        reasons = np.where(action == EXIT, self._leaving[going], self._deciding[action])
        return Decisions(
            actions=action,
            targets=target,
            moods=(content > chosen["exit"]["neutral"]).astype(np.int64),
            fatigue=tired.astype(np.int64),
            emotions=self._emotions(requests, x, fatigue),
            satisfaction=content,
            reasons=reasons,
            **Replies.fine(n),
        )

    def reflect(self, requests: ReflectRequests) -> Reflections:
        """Three fixed questions, answered by the page's outcome; evidence is its entries."""
        n, past = len(requests), requests.past
        last = page_shares(past, self._set["liked_above"])[1]
        own = self._present_page(past, requests.views)
        watched = past.watched & own[:, :, None]
        number = watched.sum(axis=(1, 2))
        liked = (watched & (past.ratings > self._set["liked_above"])).sum(axis=(1, 2))
        first = np.where(number == 0, 0, np.where(liked == 0, 1, np.where(liked < number, 2, 3)))
        stars = np.where(watched, past.ratings, 0.0).sum(axis=(1, 2))
        mean = np.where(watched, self._expected(requests, watched), 0.0).sum(axis=(1, 2))
        second = np.where(number == 0, 0, 2 + np.sign(np.round(stars - mean, 6)).astype(np.int64))
        fatigue = last.sum(axis=1) / self._budget[requests.people]
        third = np.searchsorted(list(self._set["tired"].values()), fatigue, side="right")
        insights = np.stack(
            [self._insights[k][codes] for k, codes in enumerate((first, second, third))], axis=1
        )
        # The newest entries are those of the items watched on the page.
        most = int(number.max(initial=0))
        back = np.arange(most)
        entries = requests.memory[:, None] - number[:, None] + back
        evidence = np.where(back < number[:, None], entries, -1)
        both = np.repeat(evidence[:, None, :], 3, axis=1)
        both[:, 2] = -1
        questions = np.tile(self._questions, (n, 1))
        return Reflections(questions=questions, insights=insights, evidence=both, **Replies.fine(n))

    def interview(self, requests: InterviewRequests) -> Interviews:
        """1 + 6·x, x the mean share of likes; rounded by chance so that the mean stays."""
        shares, last = page_shares(requests.past, self._set["liked_above"])
        mean = np.where(last, shares, 0.0).sum(axis=1) / last.sum(axis=1)
        exact = self._set["interview"]["low"] + self._set["interview"]["span"] * mean
        whole = np.floor(exact)
        up = uniform(requests.seeds, _ROUND) < exact - whole
        scores = np.clip(whole + up, 1, 10).astype(np.int64)
        level = np.searchsorted(self._set["content"], mean, side="right")
        return Interviews(
            scores=scores, reasons=self._interviews[level], **Replies.fine(len(requests))
        )

    def classify(self, requests: ClassifyRequests) -> Classifications:
        """P(watch) with the fitted intercept and without habits."""
        row, place = np.nonzero(requests.items >= 0)
        people, items = requests.people[row], requests.items[row, place]
        expected = self._crowd.settled.rate(people, items).expected
        features = self._crowd.features(people, items, expected)
        weights = self._fit.weights[self._fold[people]]
        out = np.full(requests.items.shape, np.nan)
        out[row, place] = expit(weights[:, 0] + (features * weights[:, 1:]).sum(axis=1))
        return Classifications(probabilities=out, **Replies.fine(len(requests)))

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

    def _personas(self, world: AgentWorld, rater: StatisticalRater, items: pl.DataFrame) -> Crowd:
        from sim.environment import Cast

        frame = Cast.read(world.release).frame[world.people["persona"].to_list()]
        return Crowd(
            world,
            rater.bind(frame, items),  # type: ignore[arg-type]
            ids=world.graph_users,
            history=world.history,
            tastes=liked_genres(world, frame["likes"]),
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
        people, chosen = world.people, self._set

        def of(column: str, values: dict[str, float]) -> Floats:
            return people[column].replace_strict(values, return_dtype=pl.Float64).to_numpy()

        weights = self._fit.weights[self._fold[: len(people)]]
        self._weights = weights[:, 1:].copy()
        self._weights[:, FEATURES.index("genres")] *= of("diversity", chosen["diversity"])
        self._habits = of("activity", chosen["activity"]) + of("pickiness", chosen["pickiness"])
        self._budget = of("activity", chosen["budget"])

    def _set_intercept(self, world: AgentWorld) -> None:
        """The intercept at which the mean P(watch) of random unseen items is the assumed one."""
        people = np.repeat(np.arange(min(len(world), _PEOPLE)), _UNSEEN)
        ids = hash_ids(world.people["persona_id"])[people]
        place = np.tile(np.arange(_UNSEEN), len(people) // _UNSEEN)
        items = (uniform(0, ids, place) * len(world.catalogue)).astype(np.int64)
        seen = (world.known[people] == items[:, None]).any(axis=1)
        people, items = people[~seen], items[~seen]
        expected = self._crowd.settled.rate(people, items).expected
        parts = self._parts(people, items, expected)
        # Centred by person, so that a reason is about the item.
        count = np.maximum(np.bincount(people, minlength=len(world)), 1)
        whole = parts.mean(axis=0)
        self._usual = np.tile(whole, (len(world), 1))
        for column in range(parts.shape[1]):
            own = np.bincount(people, parts[:, column], minlength=len(world)) / count
            known = np.bincount(people, minlength=len(world)) > 0
            self._usual[known, column] = own[known]
        logits = parts.sum(axis=1) + self._habits[people]
        wanted = float(self._set["watch"])
        self._intercept = float(brentq(lambda b: expit(logits + b).mean() - wanted, -50.0, 50.0))
        self._reached = float(expit(logits + self._intercept).mean())
        self._intercepts = self._intercept + self._habits

    def _mixture(
        self, world: AgentWorld, real: Crowd, everybody: list[str], rows: pl.DataFrame
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

    def _phrases(self) -> None:
        texts = assumed()
        self._remarks = Remarks(self._world, self._crowd.tastes)
        decisions = texts["decisions"]
        self._deciding = np.array(
            [decisions["NEXT"], decisions["PREVIOUS"], decisions["CLICK"], ""], object
        )
        self._leaving = np.array(list(decisions["EXIT"].values()), object)
        self._interviews = np.array(list(texts["interviews"].values()), object)
        reflections = texts["reflections"]
        self._questions = np.array(reflections["questions"], object)
        self._insights = [
            np.array(reflections[name], object) for name in ("liked", "expected", "going")
        ]

    # -- parts of replies ----------------------------------------------------------------------

    def _rated(self, requests: JudgeRequests, row: Ints, items: Ints) -> RatingBatch:
        """Ratings of the items of some rows, with the visit's own ratings where it learns."""
        if not self._learns:
            return self._crowd.settled.rate(requests.people[row], items)
        past = requests.past
        # Rows of an agent at one view have one past.
        keys = np.stack([requests.agents, requests.views], axis=1)
        _, first, memory = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        memories = []
        for n in first.tolist():
            known, stars = self._crowd.history.of(int(requests.people[n]))
            own = past.watched[n]
            memories.append(
                (
                    np.concatenate([known, past.items[n][own]]),
                    np.concatenate([stars, past.ratings[n][own]]),
                )
            )
        settled = self._crowd.settled.rater.settle(memories, requests.people[first])
        return settled.rate(memory.ravel()[row], items)

    def _parts(self, people: Ints, items: Ints, expected: Floats) -> Floats:
        """Terms of the log odds of watching, without intercept and habits, of shape (n, 5)."""
        return self._crowd.features(people, items, expected) * self._weights[people]

    def _unsure(self, requests: DecideRequests) -> Ints:
        """Position of the item that is clicked; -1 where there is none."""
        chance = self._chances(requests, requests.clickable)
        off = np.where(np.isnan(chance), np.inf, np.abs(chance - 0.5))
        nearest = off.argmin(axis=1)
        near = off[np.arange(len(off)), nearest] <= self._set["click_within"]
        return np.where(near & requests.allowed[:, CLICK], nearest, -1)

    def _chances(
        self, requests: DecideRequests, wanted: Bools, views: Ints | None = None
    ) -> Floats:
        """P(watch) of the wanted positions of a view, the present one by default; else NaN."""
        at = (requests.views if views is None else views) - 1
        shown = requests.past.items[np.arange(len(requests)), at]
        row, place = np.nonzero(wanted & (shown >= 0))
        people, items = requests.people[row], shown[row, place]
        out = np.full(shown.shape, np.nan)
        expected = self._crowd.settled.rate(people, items).expected
        logit = self._intercepts[people] + self._parts(people, items, expected).sum(axis=1)
        out[row, place] = expit(logit)
        return out

    def _returns(self, requests: DecideRequests, x: Floats) -> Bools:
        """Whether the rule for PREVIOUS holds."""
        past = requests.past
        pages = past.pages
        # Unused views are page 0.
        went_back = ((pages[:, 1:] < pages[:, :-1]) & (pages[:, 1:] > 0)).any(axis=1)
        possible = requests.allowed[:, PREVIOUS] & (x == 0.0) & ~went_back
        before = (pages == requests.pages[:, None] - 1) & (pages > 0)
        view = pages.shape[1] - before[:, ::-1].argmax(axis=1)
        seen = (past.watched & before[:, :, None]).any(axis=1)
        wanted = ~seen & possible[:, None] & before.any(axis=1)[:, None]
        chance = self._chances(requests, wanted, view)
        return np.asarray((np.nan_to_num(chance) >= self._set["previous_from"]).any(axis=1))

    def _emotions(self, requests: DecideRequests, x: Floats, fatigue: Floats) -> Ints:
        shown = requests.past.items[np.arange(len(requests)), requests.views - 1]
        genres = self._world.genres[shown] * (shown >= 0)[:, :, None]
        unknown = (self._crowd.tastes[requests.people] == 0)[:, None, :]
        new, whole = (genres * unknown).sum(axis=(1, 2)), genres.sum(axis=(1, 2))
        curious = (whole > 0) & (new >= self._set["curious"] * whole)
        conditions = [
            fatigue >= self._set["tired"]["very"], x == 0.0, x >= self._set["excited"], curious
        ]  # fmt: skip
        emotions = [_OVERWHELMED, _FRUSTRATED, _EXCITED, _CURIOUS]
        return np.asarray(np.select(conditions, emotions, _NEUTRAL), np.int64)

    def _present_page(self, past: Past, views: Ints) -> Bools:
        """Views of the page that was opened last, clicks included, of shape (n, views)."""
        place = np.arange(past.pages.shape[1])
        opened = ~past.clicked & (place < views[:, None])
        last = past.pages.shape[1] - 1 - opened[:, ::-1].argmax(axis=1)
        return np.asarray((place >= last[:, None]) & (place < views[:, None]), np.bool_)

    def _expected(self, requests: ReflectRequests, wanted: Bools) -> Floats:
        row, view, place = np.nonzero(wanted)
        items = requests.past.items[row, view, place]
        out = np.zeros(wanted.shape)
        found = self._crowd.settled.rate(requests.people[row], items)
        out[row, view, place] = found.expected
        return out


def page_shares(past: Past, above: float) -> tuple[Floats, Bools]:
    """Share of the page's items that are liked (rated above ``above``), after every view.

    Returns the shares, and which views are the last ones of a page before another is opened, both
    of shape (n, views).
    """
    views = past.pages.shape[1]
    there = past.pages > 0
    likes = past.watched & (past.ratings > above)
    out = np.zeros(past.pages.shape)
    for view in range(views):
        same = past.pages[:, : view + 1] == past.pages[:, view : view + 1]
        liked = (likes[:, : view + 1] & same[:, :, None]).any(axis=1).sum(axis=1)
        shown = (past.items[:, view] >= 0).sum(axis=1)
        out[:, view] = liked / np.maximum(shown, 1)
    follows = np.zeros_like(there)
    follows[:, :-1] = past.clicked[:, 1:] & there[:, 1:]
    return np.where(there, out, 0.0), there & ~follows


def satisfaction(shares: Floats, last: Bools, start: float) -> Floats:
    """S after the last page: S becomes S/2 + x/2 with every page's share x of likes; (n,)."""
    out = np.full(len(shares), start)
    for view in range(shares.shape[1]):
        out = np.where(last[:, view], 0.5 * out + 0.5 * shares[:, view], out)
    return out


def exit_probability(fatigue: Floats, content: Floats) -> Floats:
    """P(EXIT) of agents with this fatigue and satisfaction.

    >>> float(exit_probability(np.array(0.5), np.array(0.5)).round(3))
    0.19
    """
    rule = assumed()["statistical"]["exit"]
    logit = rule["base"] + rule["fatigue"] * fatigue
    return np.asarray(expit(logit - rule["satisfaction"] * (content - rule["neutral"])))


def _weight(own: Floats, common: Floats) -> dict[str, Any]:
    """The weight of `common` with the best likelihood, with what it gains; 0 without a rating."""
    if not len(own):
        return {"weight": 0.0, "ratings": 0}

    def loss(w: float) -> float:
        return -float(np.log((1 - w) * own + w * common).mean())

    found = minimize_scalar(loss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-6})
    best = min((float(found.x), 0.0, 1.0), key=loss)
    return {
        "weight": round(best, 6),
        "ratings": len(own),
        "log_loss": round(loss(best), 6),
        "log_loss_of_the_rater_alone": round(loss(0.0), 6),
    }
