"""Conformance tests of engines, as a class to inherit.

A new engine is one class and one test class::

    class TestMyEngine(EngineContract):
        def make(self) -> Engine:
            return MyEngine(...)
"""

# ruff: noqa: D102 (the name of a test says what it shows)

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import ClassVar

from pipelines.errors import EngineError
from pipelines.llm.engines._protocol import (
    Answer,
    Choice,
    Constraint,
    Engine,
    EngineIdentity,
    GrammarConstraint,
    JsonSchema,
    Message,
    Regex,
    Request,
    Sampling,
)
from pipelines.llm.engines.choices import answer_fault
from pipelines.llm.engines.constraints import obeys
from pipelines.statuses import STATUSES

__all__ = ["CONSTRAINTS", "EngineContract", "question"]

#: A constraint of each kind but choices. None of them can be met by fewer than three
#: characters or by more than 64.
CONSTRAINTS: dict[str, Constraint] = {
    "regex": Regex("(red|green|blue) [0-9]{2}"),
    "json": JsonSchema(
        json.dumps(
            {
                "type": "object",
                "properties": {
                    "genre": {"enum": ["drama", "comedy"]},
                    "liked": {"type": "boolean"},
                },
                "required": ["genre", "liked"],
                "additionalProperties": False,
            }
        )
    ),
    "grammar": GrammarConstraint('%llguidance {}\n\nstart: "I like " ("tea" | "milk") "."'),
}

_STARS = Choice(("1", "2", "3", "4", "5"))
_LONG = Choice(("1", "10", "one", "one and a half"))


def question(text: str, constraint: Constraint | None = None, **fields: object) -> Request:
    """A request of one user's message, for tests."""
    return Request((Message("user", text),), constraint=constraint, **fields)  # type: ignore[arg-type]


class _Endless:
    """Endless questions, with a count of those drawn."""

    def __init__(self, constraint: Constraint | None) -> None:
        self.drawn = 0
        self._constraint = constraint

    def __iter__(self) -> Iterator[Request]:
        while True:
            self.drawn += 1
            yield question(f"Item {self.drawn}: how many stars?", self._constraint)


class EngineContract(ABC):
    """Tests of the promises of :class:`~pipelines.llm.engines.Engine`.

    Set the class attributes to what the engine under test can do; what it can't do must be
    answered `invalid`, and that is tested instead.
    """

    #: Kinds of :data:`CONSTRAINTS` that it serves.
    constraints: ClassVar[frozenset[str]] = frozenset(CONSTRAINTS)
    #: Tolerance of a probability when the request is batched otherwise.
    tolerance: ClassVar[float] = 1e-4
    #: Whether the engine samples by seed and replicate.
    samples: ClassVar[bool] = True
    #: Strings that must appear in no fact and no identity, such as an API key it was given.
    secrets: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def make(self) -> Engine:
        """An engine to test; one that is slow to make may be the same each time."""

    def make_disposable(self) -> Engine:
        """An engine that the test may close."""
        return self.make()

    def ask(self, *requests: Request) -> dict[int, Answer]:
        """Answers by position of their request; fails unless there is one for each."""
        answers: dict[int, Answer] = {}
        places = {id(r): n for n, r in enumerate(requests)}
        for answer in self.make().submit(iter(requests)):
            place = places.get(id(answer.request))
            assert place is not None, f"an answer to no request of ours: {answer}"
            assert place not in answers, f"a second answer to one request: {answer}"
            assert answer.status in STATUSES, answer
            answers[place] = answer
        assert len(answers) == len(requests), "a request has no answer"
        return answers

    def test_each_request_has_one_answer_with_its_request_and_tag(self) -> None:
        requests = [question(f"Film {n}?", _STARS, tag=("row", n)) for n in range(20)]
        answers = self.ask(*requests)
        assert [answers[n].request.tag for n in range(20)] == [("row", n) for n in range(20)]
        assert {a.status for a in answers.values()} == {"ok"}, answers

    def test_no_request_no_answer(self) -> None:
        assert list(self.make().submit([])) == []

    def test_equal_requests_are_answered_each(self) -> None:
        same = [question("Again?", _STARS) for _ in range(3)]
        answers = self.ask(*same)
        assert len({a.text for a in answers.values()}) == 1, answers

    def test_a_choice_is_a_distribution_and_its_text_the_most_probable_option(self) -> None:
        for choice in (_STARS, _LONG):
            answer = self.ask(question("How many stars?", choice))[0]
            assert answer.status == "ok", answer
            shares = answer.probabilities
            assert shares is not None, answer
            assert len(shares) == len(choice.options), answer
            assert min(shares) >= 0.0, answer
            assert abs(sum(shares) - 1.0) < 1e-9, answer
            assert answer.text == choice.options[shares.index(max(shares))], answer
            assert answer_fault(answer) == "", answer

    def test_a_choice_ignores_temperature_and_seed(self) -> None:
        plain, hot = (
            question("How many?", _STARS, sampling=Sampling(temperature=t), seed=s)
            for t, s in ((1.0, 0), (0.2, 9))
        )
        answers = self.ask(plain, hot)
        if self._by_model():
            self._close(answers[0], answers[1])

    def test_the_order_of_the_options_moves_no_probability(self) -> None:
        if not self._by_model():
            return
        forward = self.ask(question("How many?", _LONG))[0]
        back = self.ask(question("How many?", Choice(_LONG.options[::-1])))[0]
        assert forward.probabilities is not None, forward
        assert back.probabilities is not None, back
        pairs = zip(forward.probabilities, back.probabilities[::-1], strict=True)
        assert max(abs(a - b) for a, b in pairs) <= self.tolerance, (forward, back)

    def test_answers_obey_their_constraint_or_say_that_they_cannot(self) -> None:
        for kind, constraint in CONSTRAINTS.items():
            questions = [question(f"Say {n}.", constraint, seed=n) for n in range(4)]
            for answer in self.ask(*questions).values():
                if kind not in self.constraints:
                    assert answer.status == "invalid", answer
                    assert answer.detail, answer
                    continue
                assert answer.status == "ok", answer
                assert answer.text is not None, answer
                assert obeys(constraint, answer.text), answer

    def test_free_answers_end_and_count_their_tokens(self) -> None:
        questions = [question(f"Tell {n}.", sampling=_short(8)) for n in range(3)]
        for answer in self.ask(*questions).values():
            assert answer.status in ("ok", "truncated"), answer
            assert answer.text is not None, answer
            assert 0 <= answer.completion_tokens <= 8, answer
            assert answer.prompt_tokens > 0, answer
            assert 0 <= answer.cached_tokens <= answer.prompt_tokens, answer
            assert answer.latency >= 0.0, answer
            assert answer.finish_reason, answer

    def test_an_answer_longer_than_max_tokens_is_truncated(self) -> None:
        if "regex" not in self.constraints:
            return
        answer = self.ask(question("Go on.", Regex("[a-z]{400}"), sampling=_short(3)))[0]
        assert answer.status == "truncated", answer
        assert 0 < answer.completion_tokens <= 3, answer
        assert answer.text, answer

    def test_a_stop_string_ends_the_answer_and_is_no_part_of_it(self) -> None:
        free = Sampling(temperature=1.0 if self.samples else 0.0, max_tokens=24)
        full = self.ask(question("Tell me.", seed=5, sampling=free))[0].text or ""
        places = [n for n in range(1, len(full) - 2) if full[n : n + 2].isascii()]
        assert places, f"the model wrote nothing to cut: {full!r}"
        stop = full[places[len(places) // 2] :][:2]
        cut = replace(free, stop=("no such words", stop))
        answer = self.ask(question("Tell me.", seed=5, sampling=cut))[0]
        assert answer.status == "ok", answer
        assert answer.text == full[: full.index(stop)], (answer, full)

    def test_seed_and_replicate_decide_what_is_drawn(self) -> None:
        if not self.samples or "regex" not in self.constraints:
            return
        rule = Regex("[a-z]{12}")
        first = [question("Draw.", rule, seed=s, replicate=r) for s in range(3) for r in range(3)]
        texts = [a.text for _, a in sorted(self.ask(*first).items())]
        again = [a.text for _, a in sorted(self.ask(*first).items())]
        assert texts == again, (texts, again)
        assert len(set(texts)) >= 7, texts

    def test_an_answer_does_not_depend_on_its_batch_or_its_place(self) -> None:
        mixed = self._mixed()
        together = self.ask(*mixed)
        backwards = self.ask(*reversed(mixed))
        for n, request in enumerate(mixed):
            alone = self.ask(request)[0]
            for other in (together[n], backwards[len(mixed) - 1 - n]):
                assert (alone.status, alone.text) == (other.status, other.text), (alone, other)
                self._close(alone, other)

    def test_requests_of_one_group_are_answered_as_without_it(self) -> None:
        story = "She saw a long film about a quiet town. " * 4
        plain = [question(f"{story} Item {n}?", _STARS) for n in range(6)]
        grouped = [question(f"{story} Item {n}?", _STARS, group="her") for n in range(6)]
        without, within = self.ask(*plain), self.ask(*grouped)
        if self._by_model():
            for n in range(6):
                self._close(without[n], within[n])

    def test_what_no_model_can_serve_is_one_invalid_answer_each(self) -> None:
        bad = [
            Request(),
            Request((Message("user", ""),)),
            Request((Message("user", "both"),), tokens=(1, 2)),
            question("no option", Choice(())),
            question("twice", Choice(("a", "a"))),
            question("empty option", Choice(("a", ""))),
            question("foreign", object()),  # type: ignore[arg-type]
            question("pattern", Regex("(")),
            question("schema", JsonSchema("{")),
            question("grammar", GrammarConstraint("start: nothing_here")),
            question("no room", sampling=Sampling(max_tokens=0)),
            question("cold", sampling=Sampling(temperature=-1.0)),
        ]
        good = question("Good?", _STARS)
        answers = self.ask(*bad[:6], good, *bad[6:])
        assert answers.pop(6).status == "ok"
        for answer in answers.values():
            assert answer.status == "invalid", answer
            assert answer.detail, answer
            assert "\n" not in answer.detail, answer
            assert answer.text is None, answer

    def test_a_prompt_beyond_the_context_is_one_invalid_answer(self) -> None:
        context = self.make().metadata().get("context")
        if context is None:
            return
        answers = self.ask(question("film " * (2 * context), _STARS), question("Short?", _STARS))
        assert (answers[0].status, answers[1].status) == ("invalid", "ok"), answers
        assert "context" in answers[0].detail, answers[0]

    def test_requests_are_drawn_lazily_within_the_window(self) -> None:
        engine = self.make()
        window = engine.metadata()["window"]
        source = _Endless(_STARS)
        answers = engine.submit(source)
        assert source.drawn <= window, "drawn before anything was asked for"
        for taken in range(1, 4):
            assert next(answers).status == "ok"
            assert source.drawn <= window + taken, (source.drawn, window, taken)
        answers.close()  # type: ignore[attr-defined]
        drawn = source.drawn
        assert self.ask(question("Still there?", _STARS))[0].status == "ok"
        assert source.drawn == drawn, "requests were drawn after the iteration was left"

    def test_a_fault_of_the_caller_comes_through_and_the_engine_goes_on(self) -> None:
        class TheirsError(Exception):
            pass

        def broken() -> Iterator[Request]:
            yield question("First?", _STARS)
            raise TheirsError

        raised = ""
        try:
            list(self.make().submit(broken()))
        except TheirsError:
            raised = "theirs"
        assert raised == "theirs", "the caller's own exception was swallowed"
        assert self.ask(question("Still there?", _STARS))[0].status == "ok"

    def test_facts_are_json_and_tell_no_secret(self) -> None:
        engine = self.make()
        facts = json.dumps(engine.metadata())
        assert {"window", "distributions"} <= set(json.loads(facts)), facts
        for text in (facts, repr(engine.identity), repr(engine)):
            for secret in self.secrets:
                assert secret not in text, "a secret is shown"

    def test_the_identity_stays_and_names_no_path_of_this_machine(self) -> None:
        engine = self.make()
        identity = engine.identity
        assert isinstance(identity, EngineIdentity), identity
        assert identity.engine, identity
        assert identity.engine_version, identity
        assert identity.model, identity
        assert not identity.model.startswith(("/", "~", ".")), identity
        self.ask(question("Does it move?", _STARS))
        assert engine.identity == identity

    def test_a_closed_engine_serves_no_more(self) -> None:
        engine = self.make_disposable()
        with closing(engine):
            assert [a.status for a in engine.submit([question("Open?", _STARS)])] == ["ok"]
        died = ""
        try:
            list(engine.submit([question("Closed?", _STARS)]))
        except EngineError as error:
            died = str(error)
        assert died, "a closed engine answered"
        engine.close()

    def _mixed(self) -> list[Request]:
        story = "A quiet film about two friends and a boat. " * 3
        mixed = [question(f"{story} Item {n}?", _STARS) for n in range(4)]
        mixed += [question("Quite another question, and short.", _LONG)]
        mixed += [
            question("Say it.", constraint, seed=7, sampling=_short(40))
            for kind, constraint in CONSTRAINTS.items()
            if kind in self.constraints
        ]
        if self.samples:
            mixed += [question("Tell me more.", seed=3, sampling=_short(6))]
        mixed += [question("Tell me less.", sampling=Sampling(temperature=0.0, max_tokens=6))]
        return mixed

    def _by_model(self) -> bool:
        """Whether a model answers, which knows nothing of seeds, groups and orders."""
        return self.make().identity.engine != "scripted"

    def _close(self, first: Answer, other: Answer) -> None:
        """Two answers have the same distribution, within the tolerance."""
        assert (first.probabilities is None) == (other.probabilities is None), (first, other)
        if first.probabilities is None or other.probabilities is None:
            return
        gap = max(abs(a - b) for a, b in zip(first.probabilities, other.probabilities, strict=True))
        assert gap <= self.tolerance, (gap, first, other)
        if first.mass is not None and other.mass is not None:
            assert abs(first.mass - other.mass) <= self.tolerance, (first, other)


def _short(tokens: int) -> Sampling:
    return Sampling(max_tokens=tokens)
