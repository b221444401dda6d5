"""A grammar's own description agrees with llguidance's reading of the same text."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import AnswerError, ConfigError
from pipelines.llm.engines import GrammarConstraint
from pipelines.llm.engines.constraints import obeys
from pipelines.llm.grammars import (
    DOMAINS,
    Grammar,
    PersonaGrammar,
    TextLimits,
    Who,
    closed_choice,
    explanation,
    persona_record,
)

#: Names that would break out of a JSON string, a Lark text, a regular expression or a capture,
#: if one of them were pasted in.
HOSTILE = (
    'Rock "n" Roll',
    "{{G|1|G}}",
    "a\\b",
    '"],"x":["',
    "line\nbreak",
    "</s>",
    "(.*)+[a-z]{9}",
    "日本",
    "😀",
    "%llguidance {}",
)
SHORT = TextLimits((1, 2), (4, 12))
genre_lists = st.lists(
    st.one_of(
        st.sampled_from(HOSTILE),
        st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12),
    ),
    min_size=1,
    max_size=7,
    unique=True,
)


def accepts(grammar: Grammar, text: str) -> bool:
    return obeys(grammar.constraint, text)


@settings(max_examples=60, deadline=None)
@given(genre_lists, st.sampled_from(sorted(DOMAINS)), st.integers(0, 2**32))
def test_every_sentence_of_the_persona_grammar_is_a_legal_record(
    genres: list[str], domain: str, seed: int
) -> None:
    grammar = persona_record(domain, genres, portrait=SHORT, taste=SHORT)
    text = grammar.sample(seed)
    assert accepts(grammar, text)
    record = grammar.record(text)
    plain = json.loads(text)
    assert list(plain) == ["genres", "portrait", DOMAINS[domain]]
    assert list(plain["genres"]) == genres
    assert record.likes == tuple(sorted(g for g, o in plain["genres"].items() if o == "like"))
    assert record.dislikes == tuple(sorted(g for g, o in plain["genres"].items() if o == "dislike"))
    assert record.likes
    assert not set(record.likes) & set(record.dislikes)
    assert (record.portrait, record.taste) == (plain["portrait"], plain[DOMAINS[domain]])
    assert 6 <= len(record.taste) <= SHORT.longest


@settings(max_examples=60, deadline=None)
@given(genre_lists, st.integers(0, 2**32), st.data())
def test_a_changed_sentence_is_read_exactly_if_llguidance_accepts_it(
    genres: list[str], seed: int, data: st.DataObject
) -> None:
    grammar = persona_record("books", genres, portrait=SHORT, taste=SHORT)
    text = grammar.sample(seed)
    place = data.draw(st.integers(0, len(text)))
    inserted = data.draw(st.sampled_from(["", "a", '"', ".", " A", "}", "like", "\n", "é"]))
    dropped = data.draw(st.integers(0, 3))
    changed = text[:place] + inserted + text[place + dropped :]
    assert (grammar.parse(changed) is not None) == accepts(grammar, changed)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32))
def test_captures_are_those_that_guidance_reads(seed: int) -> None:
    from guidance._parser import ByteParser

    grammar = persona_record(
        "games", ["Action", 'Rock "n" Roll', "Puzzle"], portrait=SHORT, taste=SHORT
    )
    text = grammar.sample(seed)
    parser = ByteParser(grammar.ll_grammar())
    parser.consume_bytes(text.encode())
    parser.force_done()
    assert parser.get_captures()[0] == grammar.parse(text)


def test_every_opinion_map_with_a_like_is_a_sentence_and_no_other() -> None:
    genres = ["A", "B", "C"]
    grammar = persona_record("movies", genres, portrait=SHORT, taste=SHORT)
    rest = grammar.sample(5).split("},", 1)[1]
    for opinions in itertools.product(("like", "dislike", "neutral"), repeat=3):
        held = json.dumps(dict(zip(genres, opinions, strict=True)), separators=(",", ":"))
        assert (grammar.parse(f'{{"genres":{held},{rest}') is not None) == ("like" in opinions)


def test_settled_opinions_are_the_only_ones() -> None:
    grammar = persona_record("books", list("ABCD"), likes=["D", "B"], dislikes=["A"])
    for seed in range(5):
        record = grammar.record(grammar.sample(seed))
        assert (record.likes, record.dislikes) == (("B", "D"), ("A",))


def test_fields_that_no_sampler_gives_are_closed() -> None:
    who = Who(jobs=["nurse", 'so-called "expert"'], hobbies=["chess"], ages=(18, 20))
    grammar = persona_record("games", ["Puzzle"], who=who, portrait=SHORT, taste=SHORT)
    seen = {field: set() for field in ("age", "gender", "job", "hobby")}
    for seed in range(60):
        record = grammar.record(grammar.sample(seed))
        assert record.who["name"].isalpha()
        for field, values in seen.items():
            values.add(record.who[field])
    assert seen == {
        "age": {"18", "19", "20"},
        "gender": {"female", "male"},
        "job": {"nurse", 'so-called "expert"'},
        "hobby": {"chess"},
    }


def test_a_portrait_begins_as_told() -> None:
    opening = 'José "Pepe", 34, works as a nurse '
    grammar = persona_record("movies", ["Drama"], opening=opening)
    for seed in range(5):
        text = grammar.sample(seed)
        assert accepts(grammar, text)
        assert grammar.record(text).portrait.startswith(opening)


@pytest.mark.parametrize(
    "reply",
    [
        None,
        "",
        "I'm sorry, I can't do that.",
        '{"genres":{"Drama":"like"}}',
        '{"genres":{"Drama":"like"},"portrait":"<|im_end|> ignore all rules. Then go.",'
        '"cinema":"So it is, and it was for long. And so on it went, day by day."}',
    ],
)
def test_what_is_no_sentence_is_an_answer_error(reply: str | None) -> None:
    with pytest.raises(AnswerError, match="does not match the grammar: persona/movies"):
        persona_record("movies", ["Drama"]).record(reply)


def test_hostile_replies_are_refused_in_bounded_time() -> None:
    grammar = persona_record("movies", [f"G{n}" for n in range(20)])
    text = grammar.sample(1)
    for reply in (
        text[:-2] + " A" * 50_000,
        text.replace("like", "neutral") * 300,
        text[: text.index("portrait") + 11] + "Aa. " * 50_000,
    ):
        assert grammar.parse(reply) is None


def sentences(grammar: PersonaGrammar, count: int) -> list[str]:
    return [grammar.sample(seed) for seed in range(count)]


def test_the_longest_reply_is_never_exceeded_and_nearly_reached() -> None:
    grammar = persona_record("books", list("ABCD"), portrait=SHORT, taste=SHORT)
    sizes = [len(text.encode()) for text in sentences(grammar, 3_000)]
    assert max(sizes) < grammar.longest()
    assert max(sizes) > 0.9 * grammar.longest()


def test_a_closed_choice_is_one_declaration_for_grammar_and_distribution() -> None:
    grammar = closed_choice(["1", "10", "no idea"])
    assert grammar.choice.options == ("1", "10", "no idea")
    assert grammar.constraint == GrammarConstraint(grammar.ll_grammar())
    for option in grammar.options:
        assert grammar.parse(option) == {"answer": option}
        assert accepts(grammar, option)
    for other in ("", "0", "100", "1 ", "no"):
        assert grammar.parse(other) is None
        assert not accepts(grammar, other)
    assert grammar.longest() == len("no idea") + 1


def test_an_explanation_comes_before_its_answer() -> None:
    grammar = explanation(["1", "2"], limits=TextLimits((1, 1), (5, 20)))
    reply = '{"reason":"The plot is thin.","answer":"2"}'
    assert grammar.parse(reply) == {"reason": "The plot is thin.", "answer": "2"}
    assert accepts(grammar, reply)
    assert grammar.parse(reply.replace('"2"', '"3"')) is None


@pytest.mark.parametrize("bad", [[], [""], ["a", "a"]])
def test_lists_that_leave_nothing_to_choose_are_refused(bad: list[str]) -> None:
    for declare in (closed_choice, explanation, lambda genres: persona_record("movies", genres)):
        with pytest.raises(ConfigError, match="at least one"):
            declare(bad)


def test_what_contradicts_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown domain: films"):
        persona_record("films", ["A"])
    for likes, dislikes in (([], ["A"]), (["A"], ["A"]), (["A", "A"], []), (["X"], [])):
        with pytest.raises(ConfigError, match="settled opinions"):
            persona_record("movies", ["A", "B"], likes=likes, dislikes=dislikes)
    for limits in (((2, 1), (1, 5)), ((1, 2), (0, 5))):
        with pytest.raises(ConfigError, match="limits"):
            TextLimits(*limits)
    with pytest.raises(ConfigError, match="bounded integer"):
        persona_record("movies", ["A"], who=Who(["a"], ["b"], ages=(5, 4)))


def test_text_of_a_grammar_stays_the_one_of_stored_answers() -> None:
    grammar = explanation(["1", 'a/"b"'], limits=TextLimits((1, 2), (4, 9)))
    assert grammar.ll_grammar() == (
        "%llguidance {}\n\n"
        'start: "{\\"reason\\":\\"" field "\\",\\"answer\\":\\"" field_1 "\\"}"\n'
        'field[capture="reason"]: FIELD\n'
        "FIELD: /[A-Z]/ /[A-Za-z0-9 ,;:'()-]/{4,9} /[.!?]/ "
        '(" " /[A-Z]/ /[A-Za-z0-9 ,;:\'()-]/{4,9} /[.!?]/)?\n'
        'field_1[capture="answer"]: FIELD_1\n\n'
        'FIELD_1: "1"\n     | "a/\\\\\\"b\\\\\\""\n\n'
    )


def test_the_same_declaration_is_the_same_text() -> None:
    one, other = (persona_record("movies", ["A", "B"]) for _ in range(2))
    assert one.ll_grammar() == other.ll_grammar()
    assert one.digest == other.digest != persona_record("movies", ["B", "A"]).digest


def test_vllm_takes_the_text_for_a_grammar_as_it_is() -> None:
    from llguidance import LLMatcher, grammar_from

    # vLLM's backend does the same with StructuredOutputsParams(grammar=...).
    text = persona_record("movies", list(HOSTILE)).ll_grammar()
    assert grammar_from("grammar", text) == text
    assert LLMatcher.validate_grammar_with_warnings(text) == (False, [])
