"""Questions with two answers: what is asked, what it is set against, and the ratings made of it."""

import numpy as np
import polars as pl
import pytest

from pipelines.config import ScoringSettings, ServingSettings
from pipelines.llm.engines import Answer, Choice
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.prompts import anchor_items
from pipelines.raters import SCALES, LLMRater
from pipelines.raters.testing import check_rater

PERSONAS = pl.DataFrame(
    {
        "persona_id": ["persona:a:0", "persona:a:1"],
        "name": ["Ana", "Ben"],
        "gender": ["female", None],
    }
)
ITEMS = pl.DataFrame({"item_id": ["ml:1", "ml:2"], "title": ["One", "Two"]})
LENIENT = ServingSettings(error_budget=1.0)


def user_text(request):
    return request.messages[-2].content


@pytest.mark.parametrize(("question", "domain"), [("like", "movies"), ("compare", "books")])
def test_questions_keep_what_is_required_of_a_rater(question, domain):
    scale = SCALES["1-10" if question == "like" else "one-ten"]
    check_rater(LLMRater(ScriptedEngine(), scale, domain=domain, question=question))


def says(yes):
    """Engine that says yes with a probability that depends on the request's text."""
    return lambda request: {" Yes": yes(user_text(request)), " No": 1 - yes(user_text(request))}


def test_a_like_is_asked_in_a_few_lines_with_two_answers():
    seen = []

    def rule(request):
        seen.append(request)
        return " Yes"

    LLMRater(ScriptedEngine(rule), SCALES["1-5"], question="like").rate(PERSONAS[:1], ITEMS[:1])
    assert user_text(seen[0]) == (
        "Name: Ana (she/her)\n\nThe film: One\n\nWill she like this film? Answer Yes or No."
    )
    assert seen[0].messages[-1].content == "Answer:"
    assert seen[0].constraint == Choice((" Yes", " No"))
    assert len(seen) == 1 + len(anchor_items("movies"))


def liking(ready, steps):
    """Expected ratings of two items, the second more likely to be liked, by two persons.

    The persons say yes with the chances `ready`; of the anchors, one genre's with log odds that are
    higher by `steps`.
    """

    def yes(text):
        odds = ready["Ana" in text] / (1 - ready["Ana" in text])
        odds *= 5.0 if "Two" in text else np.exp(steps) if "Horror" in text else 1.0
        return odds / (1 + odds)

    rater = LLMRater(ScriptedEngine(says(yes)), SCALES["1-10"], question="like")
    return rater.rate(PERSONAS, ITEMS).expected.reshape(2, 2)


def test_who_says_alike_of_all_anchors_rates_high_or_low():
    low, high = liking({True: 0.8, False: 0.2}, 0.0)[::-1]
    assert (low < 2.5).all()
    assert (high > 8.5).all()


def test_whose_answers_about_anchors_differ_is_rated_by_the_distance_to_their_mean():
    expected = liking({True: 0.7, False: 0.4}, 3.0)
    np.testing.assert_allclose(expected[0], expected[1], atol=0.6)
    assert (expected[:, 1] > expected[:, 0] + 2).all()


def test_past_ratings_stand_in_words_right_before_the_question():
    seen = []

    def rule(request):
        seen.append(user_text(request))
        return " Yes"

    items = pl.concat([ITEMS, pl.DataFrame({"item_id": ["ml:9"], "title": ["New"]})])
    histories = pl.DataFrame(
        {"persona_id": PERSONAS["persona_id"][0], "item_id": ITEMS["item_id"], "rating": [9.0, 2.0]}
    )
    stats = items.select("item_id", train_mean_rating=pl.lit(4.0), train_ratings=pl.lit(9))
    rater = LLMRater(ScriptedEngine(rule), SCALES["1-10"], question="like", item_stats=stats)
    rater.rate(PERSONAS[:1], items, histories, pairs=np.array([[0, 2]]))
    assert "New\n\nShe liked One. She disliked Two. Will she like this film?" in seen[0]
    assert not any(digit in seen[0] for digit in "0123456789")


def test_the_level_of_a_person_is_asked_once():
    engine = ScriptedEngine(lambda request: " Yes")
    rater = LLMRater(engine, SCALES["1-5"], question="like")
    rater.rate(PERSONAS, ITEMS)
    before = rater.tally.calls
    rater.rate(PERSONAS, ITEMS)
    assert (before, rater.tally.calls - before) == (4 + 2 * len(anchor_items("movies")), 4)


def test_an_item_is_compared_in_both_places():
    seen = []

    def rule(request):
        seen.append(user_text(request).split("\n\n")[1])
        return {" A": 0.9, " B": 0.1}

    rater = LLMRater(ScriptedEngine(rule), SCALES["1-5"], question="compare")
    batch = rater.rate(PERSONAS[:1], ITEMS[:1])
    assert [text.startswith("Film A: One\nFilm B: a film (") for text in seen] == [True, False] * 2
    assert all(text.endswith("\nFilm B: One") for text in seen[1::2])
    # A model that always takes the first one says nothing of either.
    assert batch.expected[0] == pytest.approx(3.0)


@pytest.mark.parametrize("question", ["like", "compare"])
def test_a_failed_answer_is_no_rating_of_its_item_alone(question):
    def rule(request):
        if "Two" in user_text(request):
            return Answer(request, "refused", detail="went wrong")
        return request.constraint.options[0]

    rater = LLMRater(ScriptedEngine(rule), SCALES["1-5"], serving=LENIENT, question=question)
    batch = rater.rate(PERSONAS, ITEMS)
    assert batch.status == ["ok", "refused"] * 2
    assert np.isnan(batch.probabilities[1]).all()


def test_a_person_without_a_level_has_no_rating():
    def rule(request):
        known = "One" in user_text(request)
        return " Yes" if known else Answer(request, "engine_error", detail="HTTP 500")

    rater = LLMRater(ScriptedEngine(rule), SCALES["1-5"], serving=LENIENT, question="like")
    batch = rater.rate(PERSONAS[:1], ITEMS[:1])
    assert batch.status == ["engine_error"]
    assert "depends on" in batch.notes[0]


def test_questions_have_names_keys_and_identities_of_their_own():
    raters = [
        LLMRater(ScriptedEngine(name="m"), SCALES["1-5"], layout="plain", question=question)
        for question in ("scale", "like", "compare")
    ]
    assert [rater.name for rater in raters] == ["llm:m", "llm:m:like", "llm:m:compare"]
    keys = {rater.rate(PERSONAS[:1], ITEMS[:1]).answer_keys[0] for rater in raters}
    digests = {rater.metadata()["prompt_sha256"] for rater in raters}
    assert len(keys) == len(digests) == 3
    plain = ScoringSettings(rater="llm").identity_values()
    assert "question" not in plain
    assert ScoringSettings(rater="llm", question="like").identity_values()["question"] == "like"
