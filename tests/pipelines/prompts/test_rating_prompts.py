"""Rating prompts: golden texts, what they share, and what no data can do to them."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import ConfigError
from pipelines.llm.engines import Message
from pipelines.prompts import (
    RATING_PROMPT_VERSION,
    SUBJECTS,
    Past,
    PromptStyle,
    answer_start,
    explain_messages,
    item_block,
    one_line,
    rating_messages,
    rating_options,
    rating_prompt_digest,
)
from pipelines.scales import SCALES

GOLDEN = Path(__file__).parent / "golden"
#: Change both, and the golden files, with every change of wording.
FROZEN = ("1", "958a897201626325f584a3db850206b7b1d1f09abac580059dbd13ec1447d325")

MARTA = {
    "persona_id": "persona:a:0",
    "name": "Marta",
    "age": 34,
    "gender": "female",
    "job": "nurse",
    "hobby": "rowing",
    "likes": ["Crime", "Drama"],
    "dislikes": ["Horror"],
    "description": "Marta, 34, grew up on films of the 80s and watches 2 a week.",
}
ITEMS = {
    "own": {
        "title": "Dish 7",
        "genres": ["Thai"],
        "attributes": ["minutes: 20"],
        "description": "Rice with lime.",
    },
    "movies": {
        "title": "Heat",
        "year": 1995,
        "genres": ["Action", "Crime"],
        "actors": ["Al Pacino", "Robert De Niro", "Val Kilmer"],
        "overview": "A detective and a thief of the 80s, 9 lives between them.",
    },
    "books": {
        "title": "The Long 80s",
        "authors": ["Ann Author"],
        "year": 2009,
        "category_path": ["Books", "History"],
        "genres": ["History"],
        "description": "Ten years in 7 towns.",
    },
    "games": {
        "title": "Rail 4",
        "developer": "Lantern",
        "year": 2014,
        "genres": ["Simulation"],
        "tags": ["Trains"],
        "specs": ["Single-player"],
    },
    "products": {
        "title": "Kettle 2000",
        "brand": "Norr",
        "category_path": ["Home", "Kitchen"],
        "price": 24.5,
        "description": "Boils 1.7 litres.",
    },
}


def texts_of(messages):
    return "".join(f"[{m.role}]\n{m.content}\n\n" for m in messages)


def past(domain):
    item = dict(ITEMS[domain], title="Nine to Five, 1 and 8")
    return [Past(item, 4.5, SCALES["0.5-5"]), Past(ITEMS[domain], 1.0, SCALES["0.5-5"])]


CASES = {
    "movies_1-10_history_two_shots": ("movies", "1-10", 2, {"viewing": 2}, None),
    "movies_one-ten_they": ("movies", "one-ten", 1, {}, None),
    "books_0-9": ("books", "0-9", 0, {}, "female"),
    "games_1-5_he_custom": ("games", "1-5", 0, {}, "male"),
    "products_0-100": ("products", "0-100", 1, {}, "female"),
}


@pytest.mark.parametrize("name", CASES)
def test_prompts_are_the_golden_ones(name):
    domain, scale, shots, more, gender = CASES[name]
    if "history" in name:
        gender, more = "female", {**more, "past": past(domain), "mean": 7.25}
    system = "You are a shopkeeper who knows everybody." if "custom" in name else None
    style = PromptStyle(domain, SCALES[scale], shots, system)
    made = texts_of(rating_messages({**MARTA, "gender": gender}, ITEMS[domain], style, **more))
    assert made == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def test_a_plain_prompt_is_a_few_lines_without_role_rules_and_plot():
    style = PromptStyle("movies", SCALES["1-5"], layout="plain")
    asked = rating_messages(MARTA, ITEMS["movies"], style, past=past("movies"), mean=3.62)
    assert texts_of(asked) == (GOLDEN / "movies_1-5_plain.txt").read_text(encoding="utf-8")
    again = rating_messages({"gender": "male"}, ITEMS["movies"], style, viewing=2)
    assert again[0].content == (
        "The film: Heat (1995; Action, Crime)\n\n"
        "How does he rate this film at his 2nd viewing? Answer with a number from 1 to 5."
    )


def test_the_digest_of_a_plain_prompt_is_its_own():
    assert len({rating_prompt_digest(name) for name in ("letter", "plain", "ledger")}) == 3


def test_the_version_and_the_digest_change_together():
    assert (RATING_PROMPT_VERSION, rating_prompt_digest()) == FROZEN


@pytest.mark.parametrize("domain", SUBJECTS)
@pytest.mark.parametrize("shots", [0, 1, 2])
def test_prompts_of_one_person_and_history_differ_from_the_item_on(domain, shots):
    style = PromptStyle(domain, SCALES["1-10"], shots)
    first, second = (
        rating_messages(MARTA, {"title": title}, style, past=past(domain))
        for title in ("Alpha", "Omega")
    )
    assert len(first) == len(second) == 3 + 2 * shots
    assert first[:-2] == second[:-2]
    assert first[-1] == second[-1] == Message("assistant", "Rating: ")
    before, after = (m[-2].content for m in (first, second))
    opening = f"<{style.subject.item}>\nTitle: "
    assert before.split(opening)[0] == after.split(opening)[0]
    assert "Nine to Five" in before.split(opening)[0]


def test_examples_are_one_high_then_one_low_on_the_scale_in_use():
    for name, high, low in (("1-5", 5, 1), ("0-100", 89, 11), ("0-9", 8, 1)):
        style = PromptStyle("books", SCALES[name], 2)
        answers = [
            m.content for m in rating_messages(MARTA, ITEMS["books"], style) if m.role != "user"
        ][1:3]
        assert answers == [f"Rating: {high}", f"Rating: {low}"]


def test_pronouns_follow_the_persona():
    style = PromptStyle("movies", SCALES["1-5"])
    for gender, phrase in (
        ("female", "This is her 3rd viewing of this film. How does she rate it"),
        ("male", "This is his 3rd viewing of this film. How does he rate it"),
        (None, "This is their 3rd viewing of this film. How do they rate it"),
    ):
        messages = rating_messages({**MARTA, "gender": gender}, ITEMS["movies"], style, viewing=3)
        assert phrase in messages[-2].content


def test_a_persona_and_an_item_of_which_nothing_is_known_make_a_prompt():
    style = PromptStyle("movies", SCALES["1-5"])
    text = texts_of(rating_messages({}, {"title": None, "actors": []}, style))
    assert "Name: unknown (they/them)" in text
    assert "None" not in text


def test_no_example_beyond_two_and_no_unknown_domain():
    with pytest.raises(ConfigError, match="shots is 3"):
        PromptStyle("movies", SCALES["1-5"], 3)
    with pytest.raises(ConfigError, match="one of movies"):
        PromptStyle("songs", SCALES["1-5"])
    with pytest.raises(ConfigError, match="viewing 0"):
        rating_messages(MARTA, ITEMS["movies"], PromptStyle("movies", SCALES["1-5"]), viewing=0)


def test_without_a_system_role_its_text_opens_the_first_user_message():
    for shots in (0, 1):
        style = PromptStyle("games", SCALES["1-5"], shots, system_role=False)
        messages = rating_messages(MARTA, ITEMS["games"], style)
        assert [m.role for m in messages] == ["user", "assistant"] * (shots + 1)
        assert messages[0].content.startswith("You predict")
        assert "<person>" in messages[0].content


def test_without_a_begun_answer_the_conversation_ends_with_the_question():
    style = PromptStyle("games", SCALES["one-ten"], 1, begun=False)
    messages = rating_messages(MARTA, ITEMS["games"], style)
    assert [m.role for m in messages] == ["system", "user", "assistant", "user"]
    assert messages[2].content == "nine"
    assert "Rating:" not in texts_of(messages)
    assert rating_options(style.scale, begun=False)[0] == "one"


def test_words_follow_the_start_with_a_space_of_their_own():
    for scale in SCALES.values():
        assert f"{answer_start(scale)}{rating_options(scale)[-1]}" == f"Rating: {scale.texts[-1]}"


def test_an_explanation_is_asked_with_the_rating_and_no_begun_answer():
    style = PromptStyle("movies", SCALES["one-ten"], 2)
    system, user = explain_messages({**MARTA, "gender": None}, ITEMS["movies"], 7.0, style)
    assert "Reply with the reason, nothing else." in system.content
    assert "They rate it seven, on the scale from one to ten." in user.content


@given(st.text(max_size=200), st.sampled_from([n for n in SCALES if n != "0.5-5"]))
@settings(max_examples=60, deadline=None)
def test_only_ratings_are_converted(text, scale):
    """The words of persona and item are the same whatever the scale: "80s" stays."""
    data = f"80s 4.5 {text} 10/10"
    persona, item = {**MARTA, "description": data}, {**ITEMS["movies"], "overview": data}
    style = PromptStyle("movies", SCALES[scale])
    messages = rating_messages(persona, item, style, past=[Past(item, 4.5, SCALES["0.5-5"])])
    body = messages[-2].content
    assert f"Who this is: {one_line(data)}\n" in body
    assert f"Plot: {one_line(data)}\n" in body
    expected = {"1-5": "5", "1-10": "9", "0-9": "8", "one-ten": "nine", "0-100": "89"}[scale]
    assert f"<ratings>\n{expected} | Heat (1995; Action, Crime)\n</ratings>" in body


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_data_is_one_visible_line_and_harmless_twice_over(text):
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert one_line(line) == line
    line.encode()


def test_a_cut_plot_says_so_by_its_dots():
    style = PromptStyle("movies", SCALES["1-5"])
    assert "Plot: A detective and ...\n" in item_block(ITEMS["movies"], style, words=3)
    assert "Plot" not in item_block(ITEMS["movies"], style, words=0)
    assert "lives between them.\n" in item_block(ITEMS["movies"], style, words=99)
