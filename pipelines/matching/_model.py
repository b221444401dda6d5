"""The matcher that asks a language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Self

import numpy as np
import polars as pl

from pipelines.config import MatchingSettings, ServingSettings
from pipelines.llm.answers import AnswerStore, Asking
from pipelines.llm.engines import Choice, Engine, Request, Sampling, Status
from pipelines.llm.grammars import TextLimits, closed_record, prose, vocabulary
from pipelines.matching._history import SEED, History, Ints, Lists
from pipelines.matching._protocol import (
    ATTRIBUTES,
    CANDIDATES,
    Rated,
    Taste,
    Trials,
    attribute_values,
)
from pipelines.matching._tastes import taste_profiles, taste_text
from pipelines.prompts import (
    MATCHING_PROMPT_VERSION,
    candidate_messages,
    history_block,
    likeness_messages,
    matching_prompt_digest,
    rating_options,
    taste_messages,
)
from pipelines.scales import SCALES
from pipelines.seeding import combine

_SCALE = SCALES["1-10"]
#: Seeds that every server takes: 31 bits.
_SEED_BITS = 0x7FFF_FFFF
_TASTE, _CANDIDATE = 31, 32
#: Sampling temperature of candidates and summaries; ratings are expectations.
_TEMPERATURE = 1.0


class ModelMatcher(Asking):
    """Proposes and rates personas with a language model (SimUSER, section 3.1).

    Summaries and candidates are replies under a grammar. A rating is the expected value of the
    model's own distribution over 1 to 10; the persona stands first in its prompt, so that its
    lists share a prefix. A reply that can't be used is a status, never a rating: a summary falls
    back to the statistical one, a candidate stays without attributes, and a candidate with a list
    that has no rating stays without a score. Answers go through the answer store: a rerun asks
    nothing again.

    ``tokenizer`` is the model's, to check that it can spell the grammars (None where it is out of
    reach).
    """

    name = "model"
    basis = "model"

    def __init__(
        self,
        engine: Engine,
        settings: MatchingSettings | None = None,
        *,
        store: AnswerStore | None = None,
        serving: ServingSettings | None = None,
        tokenizer: Any = None,
    ) -> None:
        super().__init__(engine, store, serving)
        self._settings = settings or MatchingSettings()
        self._model = engine.identity.model
        facts = engine.metadata()
        # A chat endpoint answers in a turn of its own: it can't go on from a begun answer.
        self._begun = facts.get("endpoint") != "chat"
        self._grammar = closed_record(
            "matching/persona", {name: attribute_values(name) for name in ATTRIBUTES}
        )
        self._prose = prose(limits=TextLimits((1, 3), (20, 150)))
        words = None if tokenizer is None else vocabulary(tokenizer)
        for grammar in (self._grammar, self._prose):
            grammar.check(words)
        self._longest = [g.longest(words) for g in (self._prose, self._grammar)]

    def fit(self, history: History) -> Self:
        """Take in the histories; nothing is fitted."""
        self._history = history
        return self

    def tastes(self, users: Ints, lists: Lists) -> list[Taste]:
        """Summaries that the model wrote; see :class:`pipelines.matching.Matcher`."""
        domain = self._history.domain
        profiles = taste_profiles(self._history, users)
        out = [Taste(taste_text(p, domain), "statistical", "engine_error") for p in profiles]
        sampling = Sampling(_TEMPERATURE, max_tokens=self._longest[0])

        def requests() -> Iterator[Request]:
            for n, user in enumerate(users):
                yield Request(
                    taste_messages(domain, self._block(lists.of(n))),
                    constraint=self._prose.constraint,
                    sampling=sampling,
                    seed=self._seed(_TASTE, user),
                    group=f"matching/{user}",
                    tag=n,
                )

        for n, key, status, answer in self._asked(requests()):
            summary = answer.text if status == "ok" else None
            if summary is not None and self._prose.parse(summary) is not None:
                out[n] = Taste(summary, self._model, "ok", key)
            else:
                refused: Status = "invalid" if status == "ok" else status
                out[n] = Taste(out[n].text, "statistical", refused, key)
        return out

    def candidates(
        self, users: Ints, lists: Lists, tastes: Sequence[Taste], count: int
    ) -> pl.DataFrame:
        """Replies under a grammar; see :class:`pipelines.matching.Matcher`."""
        ages, occupations = attribute_values("age_band"), attribute_values("occupation")
        rows: list[dict[str, Any]] = [
            {"user": n, "candidate": c, "status": "engine_error"}
            for n in range(len(users))
            for c in range(count)
        ]
        sampling = Sampling(_TEMPERATURE, max_tokens=self._longest[1])

        def requests() -> Iterator[Request]:
            for n, user in enumerate(users):
                messages = candidate_messages(
                    self._history.domain,
                    self._block(lists.of(n)),
                    tastes[n].text,
                    ages=ages,
                    occupations=occupations,
                )
                for c in range(count):
                    yield Request(
                        messages,
                        constraint=self._grammar.constraint,
                        sampling=sampling,
                        seed=self._seed(_CANDIDATE, user, c),
                        replicate=c,
                        group=f"matching/{user}",
                        tag=n * count + c,
                    )

        for row, key, status, answer in self._asked(requests()):
            record = self._grammar.parse(answer.text) if status == "ok" and answer.text else None
            rows[row] |= {"status": status, "answer_key": key}
            if record is not None:
                rows[row] |= {
                    name: value if ATTRIBUTES[name] == pl.String else int(value)
                    for name, value in record.items()
                }
            elif status == "ok":
                rows[row]["status"] = "invalid"
        return pl.DataFrame(rows, schema=CANDIDATES)

    def rate(
        self, users: Ints, candidates: pl.DataFrame, trials: Trials, tastes: Sequence[Taste]
    ) -> Rated:
        """Expected values of the model's choices; see :class:`pipelines.matching.Matcher`."""
        list_numbers = np.concatenate([trials.own, trials.others], axis=1)
        expected = np.full((candidates.height, list_numbers.shape[1]), np.nan)
        statuses = candidates["status"].to_list()
        keys: list[list[str]] = [[] for _ in statuses]
        options = Choice(rating_options(_SCALE, begun=self._begun))
        blocks: dict[int, str] = {}

        def requests() -> Iterator[Request]:
            for row, candidate in enumerate(candidates.iter_rows(named=True)):
                if candidate["status"] != "ok":
                    continue
                n = candidate["user"]
                person = {name: candidate[name] for name in ATTRIBUTES}
                for column, number in enumerate(list_numbers[n]):
                    if number < 0:
                        continue
                    if number not in blocks:
                        blocks[number] = self._block(trials.lists.of(number))
                    yield Request(
                        likeness_messages(
                            self._history.domain,
                            person,
                            tastes[n].text,
                            blocks[number],
                            begun=self._begun,
                        ),
                        constraint=options,
                        group=f"matching/{users[n]}/{candidate['candidate']}",
                        tag=(row, column),
                    )

        for (row, column), key, status, answer in self._asked(requests()):
            keys[row].append(key)
            if status == "ok" and answer.probabilities is not None:
                share = np.asarray(answer.probabilities)
                expected[row, column] = float(share @ _SCALE.answers / share.sum())
            elif statuses[row] == "ok":
                statuses[row] = "invalid" if status == "ok" else status
        return Rated(expected, statuses, [sorted(k) for k in keys])

    def metadata(self) -> dict[str, Any]:
        """Model, prompts and calls."""
        return {
            "method": self.name,
            "language_model": True,
            "basis": self.basis,
            "engine": asdict(self._engine.identity),
            "answered_by": self._engine.metadata().get("answered_by", []),
            "prompt_version": MATCHING_PROMPT_VERSION,
            "prompt_sha256": matching_prompt_digest(),
            "fitted": {},
            "calls": self.tally.to_dict(),
        }

    def _asked(self, requests: Iterator[Request]) -> Iterator[tuple[Any, str, Status, Any]]:
        for request, key, answer in self._ask(requests):
            yield request.tag, key, answer.status, answer

    def _block(self, rows: Ints) -> str:
        history = self._history
        titles = history.titles(rows)
        return history_block(
            history.domain, list(zip(titles, history.opinion[rows].tolist(), strict=True))
        )

    def _seed(self, purpose: int, user: int, *more: int) -> int:
        key = combine(SEED, purpose, self._history.keys[user], *more)
        return int(key) & _SEED_BITS
