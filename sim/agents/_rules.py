"""Satisfaction, fatigue, emotions, exits and interviews: assumed rules over what happened.

The numbers stand in ``data/assumed.yaml``. Every brain whose opinions have probabilities of
watching can share them, so that how an agent feels agrees with what it watched and liked.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from scipy.special import expit

from pipelines.seeding import uniform
from sim.agents._assumed import assumed
from sim.agents._protocol import (
    CLICK,
    EXIT,
    FATIGUE,
    MOODS,
    NEXT,
    PREVIOUS,
    Decision,
    Floats,
    Interview,
    Question,
    Reflection,
    seeds_of,
)
from sim.agents._visit import View, Visit
from sim.agents._world import AgentWorld

#: Which question a draw is for.
_LEAVE, _ROUND = 2, 3


class VisitRules:
    """Methods of a brain that follow from the visit: decide, reflect and interview."""

    def set_rules(self, world: AgentWorld, tastes: Floats) -> None:
        """Take in people: ``tastes`` is the share of each one's history that has each genre.

        Of shape (people, genres).
        """
        texts = assumed()
        self._set: dict[str, Any] = texts["statistical"]
        self._decisions, self._insights = texts["decisions"], texts["reflections"]
        self._genres, self._unknown = world.genres, tastes == 0

        def of(column: str, values: dict[str, float]) -> Floats:
            tiers = world.people[column].replace_strict(values, return_dtype=pl.Float64)
            return np.asarray(tiers.to_numpy())

        activity, pickiness = (of(name, self._set[name]) for name in ("activity", "pickiness"))
        self._habits: Floats = activity + pickiness
        self._budget = of("activity", self._set["budget"])

    def decide(self, questions: Sequence[Question]) -> list[Decision]:
        """CLICK on an item it is unsure of; else leave with P(EXIT); else back or on."""
        shares = [page_shares(q.visit.views, self._set["liked_above"]) for q in questions]
        content = np.array([satisfaction(s, self._set["exit"]["start"]) for s in shares])
        fatigue = np.array(
            [self._fatigue(q, own) for q, own in zip(questions, shares, strict=True)]
        )
        leaves = uniform(seeds_of(questions), _LEAVE) < exit_probability(fatigue, content)
        return [
            self._decided(q, s[-1], *values)
            for q, s, *values in zip(
                questions, shares, content.tolist(), fatigue.tolist(), leaves.tolist(), strict=True
            )
        ]

    def _decided(
        self, question: Question, liked: float, content: float, fatigue: float, leaves: bool
    ) -> Decision:
        target = self._unsure(question)
        action = PREVIOUS if self._returns(question, liked) else NEXT
        if target is not None:
            action = CLICK
        elif leaves:
            action = EXIT
        tired, pleased = self._tired(fatigue), content > self._set["exit"]["neutral"]
        reason = self._decisions[action]
        if action == EXIT:
            why = "satisfied" if pleased else "dissatisfied"
            reason = reason["tired" if tired == len(FATIGUE) - 1 else why]
        return Decision(
            action=action,
            target=target,
            mood=MOODS[pleased],
            fatigue=FATIGUE[tired],
            emotion=self._emotion(question, liked, fatigue),
            satisfaction=content,
            reason=reason,
        )

    def reflect(self, questions: Sequence[Question]) -> list[Reflection]:
        """Three insights from the page's outcome; the entries of its items are the evidence."""
        return [self._reflection(question) for question in questions]

    def _reflection(self, question: Question) -> Reflection:
        visit = question.visit
        seen = [view.opinions[place] for view in _present(visit) for place in view.watched()]
        above, number = self._set["liked_above"], len(seen)
        liked = sum((o.rating or 0) > above for o in seen)
        first = 0 if not seen else 1 if not liked else 2 if liked < number else 3
        off = sum((o.rating or 0) - (o.expected or 0.0) for o in seen)
        second = 2 + int(np.sign(round(off, 6))) if seen else 0
        third = self._tired(self._fatigue(question, page_shares(visit.views, above)))
        # The newest entries are those of the items watched on the page.
        evidence = tuple(range(visit.memory - number, visit.memory))
        codes = {"liked": first, "expected": second, "going": third}
        texts = [self._insights[name][code] for name, code in codes.items()]
        return Reflection(insights=tuple(zip(texts, (evidence, evidence, ()), strict=True)))

    def interview(self, questions: Sequence[Question]) -> list[Interview]:
        """1 + 6·x, x the mean share of likes; rounded by chance so that the mean stays."""
        rule, above = self._set["interview"], self._set["liked_above"]
        shares = [page_shares(question.visit.views, above) for question in questions]
        exact = rule["low"] + rule["span"] * np.array([sum(s) / len(s) for s in shares])
        up = uniform(seeds_of(questions), _ROUND) < exact - np.floor(exact)
        scores = np.clip(np.floor(exact) + up, 1, 10).astype(int)
        return [Interview(score=score) for score in scores.tolist()]

    def _fatigue(self, question: Question, shares: list[float]) -> float:
        return float(len(shares) / self._budget[question.visit.person])

    def _tired(self, fatigue: float) -> int:
        """Level of fatigue."""
        return int(np.searchsorted(list(self._set["tired"].values()), fatigue, side="right"))

    def _unsure(self, question: Question) -> int | None:
        """Position of the item that is clicked; None where there is none."""
        chances = _chances(question.visit.views, question.page)
        known = [(abs(chances[p] - 0.5), p) for p in question.clickable if p in chances]
        off, place = min(known, default=(1.0, -1))
        return place if off <= self._set["click_within"] else None

    def _returns(self, question: Question, liked: float) -> bool:
        """Whether the rule for PREVIOUS holds."""
        views = question.visit.views
        went_back = any(b.page < a.page for a, b in pairwise(views))
        if PREVIOUS not in question.actions or liked > 0 or went_back:
            return False
        chances = _chances(views, question.page - 1).values()
        return any(chance >= self._set["previous_from"] for chance in chances)

    def _emotion(self, question: Question, liked: float, fatigue: float) -> str:
        genres = self._genres[list(question.visit.views[-1].items)]
        new = (genres * self._unknown[question.visit.person]).sum()
        if fatigue >= self._set["tired"]["very"]:
            return "OVERWHELMED"
        if liked == 0:
            return "FRUSTRATED"
        if liked >= self._set["excited"]:
            return "EXCITED"
        curious = 0 < genres.sum() * self._set["curious"] <= new
        return "CURIOUS" if curious else "NEUTRAL"


def page_shares(views: Sequence[View], above: float) -> list[float]:
    """Share of the items that are liked (rated above ``above``), by page in the order of opening.

    Clicks belong to their page; a page that is seen again counts again, with all likes so far.
    """
    out = []
    for n, view in enumerate(views):
        if n + 1 < len(views) and views[n + 1].clicked:
            continue
        liked = {
            place
            for earlier in views[: n + 1]
            if earlier.page == view.page
            for place, opinion in earlier.opinions.items()
            if opinion.watched and (opinion.rating or 0) > above
        }
        out.append(len(liked) / max(len(view.items), 1))
    return out


def satisfaction(shares: Sequence[float], start: float) -> float:
    """S after the last page: S becomes S/2 + x/2 with every page's share x of likes.

    >>> satisfaction([0.5, 0.0], start=0.5)
    0.25
    """
    for share in shares:
        start = 0.5 * start + 0.5 * share
    return start


def exit_probability(fatigue: Floats, content: Floats) -> Floats:
    """P(EXIT) of agents with this fatigue and satisfaction.

    >>> float(exit_probability(np.array(0.5), np.array(0.5)).round(3))
    0.19
    """
    rule = assumed()["statistical"]["exit"]
    logit = rule["base"] + rule["fatigue"] * fatigue
    return np.asarray(expit(logit - rule["satisfaction"] * (content - rule["neutral"])))


def _chances(views: Sequence[View], page: int) -> dict[int, float]:
    """P(watch) of the unwatched items of a page by position, as last judged."""
    page_views = [view for view in views if view.page == page]
    seen = {place for view in page_views for place in view.watched()}
    return {
        place: opinion.chance
        for view in page_views
        for place, opinion in view.opinions.items()
        if place not in seen and opinion.chance is not None
    }


def _present(visit: Visit) -> list[View]:
    """Views of the page that was opened last, clicks included."""
    opened = max(n for n, view in enumerate(visit.views) if not view.clicked)
    return visit.views[opened:]
