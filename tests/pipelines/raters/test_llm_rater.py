"""The rater that asks a model: statuses, keys, notes, order and what it costs."""

from collections import Counter

import numpy as np
import polars as pl
import pytest

from pipelines.config import ServingSettings
from pipelines.errors import ContractError, EngineError
from pipelines.llm.answers import AnswerStore, answer_key
from pipelines.llm.engines import Answer, Choice
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.prompts import RATING_PROMPT_VERSION
from pipelines.raters import SCALES, LLMRater, score_pairs
from pipelines.raters.testing import check_rater, contract_items, contract_personas

LENIENT = ServingSettings(error_budget=1.0)
PERSONAS = pl.DataFrame(
    {
        "persona_id": ["persona:a:0", "persona:a:1"],
        "name": ["Ana", "Ben"],
        "gender": ["female", None],
        "likes": [["Drama"], ["Crime"]],
        "dislikes": [[], ["Drama"]],
        "description": ["Ana reads slowly.", "Ben sleeps late."],
    },
    schema_overrides={"dislikes": pl.List(pl.String)},
)
ITEMS = pl.DataFrame(
    {
        "item_id": ["ml:1", "ml:2", "ml:3"],
        "title": ["One", "Two", "Three"],
        "overview": ["A plot of some words in all.", None, " ".join(f"w{n}" for n in range(400))],
        "vote_average": [5.25, None, 0.0],
        "vote_count": [10, 0, 0],
    }
)


def user_text(request):
    return next(m.content for m in reversed(request.messages) if m.role == "user")


@pytest.mark.parametrize(
    "options", [{"scale": "1-10"}, {"scale": "one-ten", "domain": "books", "shots": 2}]
)
def test_scripted_rater_conforms(options):
    options = dict(options)
    check_rater(LLMRater(ScriptedEngine(), SCALES[options.pop("scale")], **options))


def test_the_choice_is_over_the_scale_and_the_row_is_its_distribution():
    seen = []

    def rule(request):
        seen.append(request)
        return {" one": 0.1, " ten": 0.3}

    rater = LLMRater(ScriptedEngine(rule, name="ends"), SCALES["one-ten"])
    batch = rater.rate(PERSONAS[:1], ITEMS[:1])
    assert seen[0].constraint == Choice(tuple(f" {w}" for w in SCALES["one-ten"].words))
    assert seen[0].group == "persona:a:0"
    np.testing.assert_allclose(batch.probabilities, [[0.25, *[0] * 8, 0.75]])
    assert batch.expected[0] == pytest.approx(7.75)
    assert batch.status == ["ok"]
    assert batch.prompt_version == RATING_PROMPT_VERSION
    assert rater.name == "llm:ends"
    assert rater.metadata()["mean_mass"] == pytest.approx(0.4)


def test_pairs_are_asked_persona_by_persona_and_answered_in_their_order():
    pairs = np.array([[1, 2], [0, 0], [1, 0], [0, 2]])
    rater = LLMRater(ScriptedEngine(), SCALES["1-5"])
    assert [r.group for r in rater.requests(PERSONAS, ITEMS, pairs=pairs)] == [
        "persona:a:0", "persona:a:0", "persona:a:1", "persona:a:1",
    ]  # fmt: skip
    batch = rater.rate(PERSONAS, ITEMS, pairs=pairs)
    for row, (person, item) in enumerate(pairs):
        alone = rater.rate(PERSONAS[int(person)], ITEMS[int(item)])
        np.testing.assert_array_equal(batch.probabilities[row], alone.probabilities[0])


@pytest.mark.parametrize("status", ["truncated", "invalid", "refused", "engine_error"])
def test_a_failed_answer_is_never_a_rating(status):
    def rule(request):
        if "Title: Two" in user_text(request):
            # A careless engine's: failed, yet with a distribution.
            shares = (0.0, 0.0, 0.0, 0.0, 1.0)
            return Answer(request, status, text="5", probabilities=shares, detail="went wrong")
        return "4"

    batch = LLMRater(ScriptedEngine(rule), SCALES["1-5"], serving=LENIENT).rate(PERSONAS, ITEMS)
    assert batch.status == ["ok", status, "ok"] * 2
    assert np.isnan(batch.probabilities[[1, 4]]).all()
    assert np.isnan(batch.expected[[1, 4]]).all()
    assert batch.expected[[0, 2, 3, 5]].tolist() == [4.0] * 4
    assert batch.notes[1] == "went wrong"
    assert batch.notes[0] is None


def test_what_is_no_distribution_is_no_rating():
    def rule(request):
        return Answer(request, "ok", text="4", probabilities=(0.5, 0.5, 0.5, 0.0, 0.0))

    batch = LLMRater(ScriptedEngine(rule), SCALES["1-5"], serving=LENIENT).rate(PERSONAS, ITEMS)
    assert set(batch.status) == {"invalid"}
    assert np.isnan(batch.probabilities).all()


def test_too_many_failures_stop_the_run():
    items = pl.DataFrame({"item_id": [f"ml:{n}" for n in range(60)], "title": ["x"] * 60})
    items = items.with_columns(title=pl.col("item_id"))
    engine = ScriptedEngine(lambda r: Answer(r, "engine_error", detail="HTTP 500"))
    with pytest.raises(EngineError, match=r"failed.*error_budget.*HTTP 500"):
        LLMRater(engine, SCALES["1-5"]).rate(PERSONAS, items)


def test_a_second_run_calls_nobody_and_keys_are_those_of_the_store(tmp_path):
    calls = Counter()

    def rule(request):
        calls["n"] += 1
        return "3"

    def run():
        with AnswerStore(tmp_path) as store:
            engine = ScriptedEngine(rule, name="three")
            rater = LLMRater(engine, SCALES["1-5"], store=store)
            keys = [answer_key(engine.identity, r) for r in rater.requests(PERSONAS, ITEMS)]
            return keys, rater.rate(PERSONAS, ITEMS), rater.metadata()["calls"]

    keys, first, _ = run()
    assert calls["n"] == 6
    assert first.answer_keys == keys
    _, second, tally = run()
    assert calls["n"] == 6
    assert (tally["calls"], tally["hits"]) == (0, 6)
    np.testing.assert_array_equal(first.probabilities, second.probabilities)
    more = pl.concat([ITEMS, ITEMS[:1].with_columns(item_id=pl.lit("ml:4"), title=pl.lit("Four"))])
    with AnswerStore(tmp_path) as store:
        LLMRater(ScriptedEngine(rule, name="three"), SCALES["1-5"], store=store).rate(
            PERSONAS, more
        )
    assert calls["n"] == 8, "only the new item's pairs"


def prompts_with(histories, **more):
    seen = {}
    engine = ScriptedEngine(lambda r: seen.update({r.group: user_text(r)}) or "3")
    rater = LLMRater(engine, SCALES["1-10"], **more)
    return seen, rater.rate(PERSONAS, ITEMS[:1], histories)


def test_history_is_the_latest_in_order_converted_and_counts_viewings():
    histories = pl.DataFrame(
        {
            "persona_id": ["persona:a:0"] * 4,
            "item_id": ["ml:1", "ml:2", "ml:404", "ml:3"],
            "rating": [1.0, 4.5, 5.0, 0.5],
            "scale": ["0.5-5"] * 4,
        }
    )
    seen, batch = prompts_with(histories, catalogue=ITEMS, history=3)
    assert "<ratings>\n9 | Two\n1 | Three\n</ratings>" in seen["persona:a:0"]
    assert "her 2nd viewing" in seen["persona:a:0"], "the first is beyond what is shown"
    assert "<ratings>" not in seen["persona:a:1"]
    assert "their 1st viewing" in seen["persona:a:1"]
    assert batch.notes == ["1 past ratings are of unknown items and left out", None]


def test_a_history_off_its_scale_is_refused():
    histories = pl.DataFrame({"persona_id": ["persona:a:0"], "item_id": ["ml:1"], "rating": [11.0]})
    with pytest.raises(ContractError, match="1 past ratings are not on their scale"):
        prompts_with(histories)


def test_average_ratings_are_rescaled_and_never_made_up():
    def rated(**more):
        rater = LLMRater(ScriptedEngine(), SCALES["1-10"], **more)
        return [user_text(r) for r in rater.requests(PERSONAS[:1], ITEMS)]

    one, two, three = rated()
    # TMDB's 0.5-10: half of the way is half of the way on 1-10, 5.5.
    assert "Average rating: 5.5 (from 1 to 10)" in one
    assert "Average rating" not in two + three
    stats = pl.DataFrame(
        {"item_id": ["ml:1", "ml:2"], "train_ratings": [4, 0], "train_mean_rating": [4.5, None]}
    )
    one, two, _ = rated(item_stats=stats)
    assert "Average rating: 9.0 (from 1 to 10)" in one
    assert "Average rating" not in two


@pytest.mark.parametrize("known", [True, False], ids=["measured", "refused"])
def test_a_long_prompt_loses_history_first_then_plot_and_says_so(known):
    """With a tokenizer lengths are measured before; without one the engine's refusals tell."""

    class Bytes:
        bos_token_id = None
        all_special_tokens = ()

        def encode(self, text, **_):
            return [0] * -(-len(text) // 4)

    histories = pl.DataFrame(
        {
            "persona_id": ["persona:a:0"] * 40,
            "item_id": ["ml:3", "ml:2"] * 20,
            "rating": [5.0] * 40,
        }
    )
    engine = ScriptedEngine(lambda r: "3", context=560)
    rater = LLMRater(
        engine,
        SCALES["1-10"],
        history=40,
        tokenizer=Bytes() if known else None,
        serving=ServingSettings(error_budget=0.01),
    )
    batch = rater.rate(PERSONAS, ITEMS, histories)
    assert batch.status == ["ok"] * 6
    assert batch.notes[0] is None
    assert (
        "history cut from 40 to 0 ratings to fit the context; plot cut from 400 to"
        in (batch.notes[2])
    )
    assert "history" not in batch.notes[5]
    assert "plot cut from 400 to" in batch.notes[5]
    assert rater.metadata()["cut_prompts"] == 2
    assert (rater.tally.failed == 0) == known


def test_a_prompt_that_can_never_fit_is_invalid_with_the_reason():
    rater = LLMRater(ScriptedEngine(context=40), SCALES["1-5"], serving=LENIENT)
    batch = rater.rate(PERSONAS, ITEMS)
    assert set(batch.status) == {"invalid"}
    assert "longer than the context of 40" in batch.notes[0]
    assert "plot cut from 7 to 0 words" in batch.notes[0]


def test_refusals_for_other_reasons_still_stop_the_run_without_a_tokenizer():
    items = pl.DataFrame({"item_id": [f"ml:{n}" for n in range(80)]}).with_columns(
        title=pl.col("item_id")
    )
    engine = ScriptedEngine(lambda r: Answer(r, "refused", detail="no"), context=10_000)
    with pytest.raises(EngineError, match="100 of 100 pairs failed"):
        LLMRater(engine, SCALES["1-5"]).rate(PERSONAS, items)


def test_a_chat_endpoint_gets_no_begun_answer():
    class Chat(ScriptedEngine):
        def metadata(self):
            return {**super().metadata(), "endpoint": "chat"}

    rater = LLMRater(Chat(), SCALES["one-ten"])
    request = next(rater.requests(PERSONAS, ITEMS))
    assert request.messages[-1].role == "user"
    assert request.constraint.options[0] == "one"
    assert rater.rate(PERSONAS, ITEMS).status == ["ok"] * 6


def test_reasons_are_written_on_request_and_kept(tmp_path):
    asked = []

    def rule(request):
        asked.append(request)
        if "Title: Two" in user_text(request):
            return "no sentence"
        return "She likes quiet films about people."

    pairs = np.array([[0, 0], [1, 1], [0, 2]])
    for _ in range(2):
        with AnswerStore(tmp_path) as store:
            rater = LLMRater(
                ScriptedEngine(rule, name="why"), SCALES["1-5"], store=store, serving=LENIENT
            )
            explained = rater.explain(PERSONAS, ITEMS, pairs, [4.0, 2.0, float("nan")])
    assert len(asked) == 2, "nothing is asked about a pair without a rating, or twice"
    sent = "".join(map(user_text, asked))
    assert "She rates it 4, on the scale from 1 to 5." in sent
    assert "They rate it 2, on the scale from 1 to 5." in sent
    assert asked[0].sampling.max_tokens < 1000
    assert explained["status"].to_list() == ["ok", "invalid", "invalid"]
    assert explained["explanation"].to_list() == ["She likes quiet films about people.", None, None]
    assert explained["rating"].to_list() == [4.0, 2.0, None]
    assert explained["note"][2] == "there is no rating to explain"
    assert explained["answer_key"].null_count() == 1


def test_contract_rows_without_most_columns_make_prompts():
    rater = LLMRater(ScriptedEngine(), SCALES["0-100"], domain="games")
    batch = rater.rate(contract_personas(), contract_items())
    assert batch.probabilities.shape == (12, 101)
    assert set(batch.status) == {"ok"}


def test_scores_hold_the_reason_or_a_note_that_there_is_none(tmp_path):
    def rule(request):
        if isinstance(request.constraint, Choice):
            if "Title: Three" in user_text(request):
                return Answer(request, "refused", detail="no")
            return {"4": 1.0}
        return "no sentence" if "Title: Two" in user_text(request) else "She likes quiet films."

    plan = PERSONAS[:1].select("persona_id").join(ITEMS.select("item_id"), how="cross")
    rater = LLMRater(ScriptedEngine(rule, name="why"), SCALES["1-5"], serving=LENIENT)
    (explained,) = score_pairs(rater, plan, PERSONAS, ITEMS, explain=True)
    assert explained["status"].to_list() == ["ok", "ok", "refused"]
    assert explained["mode"].to_list() == [4, 4, None]
    assert explained["explanation"].to_list() == ["She likes quiet films.", None, None]
    assert explained["note"][0] is None
    assert "no explanation: the rule's text breaks" in explained["note"][1]
    assert "explanation" not in explained["note"][2]
    (silent,) = score_pairs(rater, plan, PERSONAS, ITEMS)
    assert silent["explanation"].null_count() == 3


def test_a_share_of_the_pairs_is_explained_whatever_the_batch():
    def rule(request):
        return {"4": 1.0} if isinstance(request.constraint, Choice) else "She likes quiet films."

    plan = PERSONAS.select("persona_id").join(ITEMS.select("item_id"), how="cross")
    rater = LLMRater(ScriptedEngine(rule, name="why"), SCALES["1-5"])
    (whole,) = score_pairs(rater, plan, PERSONAS, ITEMS, explain=0.5)
    parts = score_pairs(rater, plan, PERSONAS, ITEMS, explain=0.5, batch=2)
    assert 0 < whole["explanation"].null_count() < plan.height
    assert pl.concat(parts)["explanation"].to_list() == whole["explanation"].to_list()
    # Not being asked needs no excuse.
    assert whole["note"].null_count() == plan.height
