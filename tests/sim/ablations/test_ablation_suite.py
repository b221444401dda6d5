"""Running a suite on a small release: what is asked, kept, reused and reported."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.ablation_release import Opened, settings_of

from pipelines.ablations import WORDINGS
from pipelines.config import EngineSettings
from pipelines.errors import ConfigError, IntegrityError, ReleaseError
from pipelines.llm.answers import AnswerStore
from pipelines.llm.engines import Answer, Request
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.progress import listening
from pipelines.raters import OK, RatingBatch
from pipelines.scales import SCALES
from pipelines.store import Store
from sim.ablations import (
    Options,
    RaterSpec,
    configurations,
    option_study,
    run_suite,
    scores_frame,
    suite_study,
    table,
)
from sim.ablations._context import answers, blocks, recall, system_text
from sim.ablations._grid import TESTS, Cases

BASE = Options("1-10", "-", "-", "embedding", "none")
STATISTICAL = RaterSpec("statistical")
LLM = RaterSpec("llm", EngineSettings(kind="scripted", model="rule"))


N = st.integers(1, 50)


def _questions(cases: list[tuple[int, int]]) -> Cases:
    """Cases of (person, want), each about an item of its own, without histories."""
    count = len(cases)
    return Cases(
        "genres",
        pl.DataFrame({"persona_id": [f"p{n}" for n in range(5)]}),
        np.array([person for person, _ in cases], dtype=np.int64),
        np.arange(count),
        np.array([want for _, want in cases], dtype=np.int64),
        ["comedy"] * count,
        np.empty((count, 0), dtype=np.int64),
        np.empty((count, 0)),
        SCALES["1-10"],
    )


class Witness:
    """A rater that writes down what it is asked, and gives everything the answer 8."""

    name = "witness"

    def __init__(self, scale: str = "1-10") -> None:
        self.scale = SCALES[scale]
        self.calls: list[tuple[pl.DataFrame, pl.DataFrame | None, list[tuple[str, str]]]] = []

    def rate(
        self, personas: Any, items: Any, histories: Any = None, *, pairs: Any = None
    ) -> RatingBatch:
        named = [(personas["persona_id"][p], items["item_id"][i]) for p, i in pairs.tolist()]
        self.calls.append((personas, histories, named))
        found = np.zeros((len(pairs), len(self.scale)))
        found[:, 7] = 1.0
        return RatingBatch(self.scale, found, [OK] * len(pairs))

    def metadata(self) -> dict[str, Any]:
        return {}


# -- what is asked ------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ["genres", "raters"])
def test_hand_made_personas_have_no_history(opened: Opened, test: str) -> None:
    cases = opened().questions(test, 0)
    assert cases.history.shape[1] == 0
    assert len(cases)


def test_no_history_leaks_from_one_case_to_another(opened: Opened) -> None:
    shop = opened()
    cases = shop.questions("collections", 0)
    shown = recall(cases, shop._retriever("recent"), 100)
    witness = Witness()
    answers(cases, shown, witness, shop.raters.frame("items"))
    ids = shop.raters.frame("items")["item_id"].to_list()
    expected: Counter[Any] = Counter()
    for n in range(len(cases)):
        past = [
            (ids[item], float(rating))
            for item, rating in zip(cases.history[n], cases.ratings[n], strict=True)
            if item >= 0
        ]
        expected[cases.users[n], ids[cases.item[n]], tuple(past)] += 1
    asked: Counter[Any] = Counter()
    for _, histories, named in witness.calls:
        assert histories is not None
        assert len({p for p, _ in named}) == len(named), "one memory per persona in a call"
        for persona, item in named:
            rows = histories.filter(pl.col("persona_id") == persona)
            asked[persona, item, tuple(rows.select("item_id", "rating").iter_rows())] += 1
    assert asked == expected, "each case its own history, whole and in order, and nothing else"


def test_high_and_low_of_a_user_differ_in_the_series_only(opened: Opened) -> None:
    cases = opened().questions("collections", 1)
    half = len(cases) // 2
    assert cases.want.tolist() == [0] * half + [1] * half
    np.testing.assert_array_equal(cases.history[:half], cases.history[half:])
    low, high = cases.ratings[:half], cases.ratings[half:]
    moved = low != high
    moved &= ~np.isnan(low)
    assert set(np.unique(low[moved])) <= {1.0, 2.0}
    assert set(np.unique(high[moved])) <= {9.0, 10.0}
    assert (moved.sum(axis=1) >= 2).all(), "every other item of a series of three at least"


def test_people_have_a_history_so_that_retrieval_matters(opened: Opened) -> None:
    shop = opened()
    cases = shop.questions("similarity", 0)
    assert ((cases.history >= 0).sum(axis=1) > 0).all()
    some, none = (
        shop.cell(STATISTICAL, Options("1-10", "-", "-", name, "none"), 0)[0]
        for name in ("embedding", "none")
    )
    of = pl.col("test") == "similarity"
    assert some.filter(of)["shares"].to_list() != none.filter(of)["shares"].to_list()
    # Without a history, the way to choose it can't matter.
    for test in ("genres", "raters"):
        rows = [f.filter(pl.col("test") == test)["answer"].to_list() for f in (some, none)]
        assert rows[0] == rows[1]


def test_nobody_is_in_a_block_twice() -> None:
    person = np.array([3, 1, 3, 3, 1, 2])
    found = list(blocks(person, alone=True, max_block=2))
    assert sorted(np.concatenate(found).tolist()) == list(range(6))
    for rows in found:
        assert len(set(person[rows])) == len(rows) <= 2


def test_retrieved_histories_are_as_long_as_asked_for(opened: Opened) -> None:
    shop = opened()
    cases = shop.questions("collections", 0)
    for name in ("recent", "features", "embedding", "graph"):
        items, ratings = recall(cases, shop._retriever(name), 2)
        assert items.shape[1] == 2
        assert not np.isnan(ratings[items >= 0]).any()
    assert recall(cases, None, 2)[0].shape[1] == 0


# -- what a model is asked ----------------------------------------------------------------------


def scripted(log: list[Request], rule: Any = None) -> Any:
    def answer(request: Request) -> Any:
        log.append(request)
        return rule(request) if rule else dict.fromkeys(request.constraint.options, 1.0)

    return lambda _: ScriptedEngine(answer, name="rule")


def prompts_by_scale(opened: Opened, tmp_path: Path, home: Path) -> dict[str, list[str]]:
    out = {}
    for scale in ("1-10", "0-9", "one-ten"):
        log: list[Request] = []
        where = tmp_path / scale
        shutil.copytree(home, where)
        opened(where, engines=scripted(log)).cell(LLM, Options(scale, "0", "custom"), 0)
        out[scale] = ["\n".join(m.content for m in request.messages) for request in log]
    return out


def test_no_number_in_a_text_changes_with_the_scale(
    opened: Opened, tmp_path: Path, home: Path
) -> None:
    shop = opened()
    texts = shop.questions("genres", 0).personas["description"].to_list()
    texts += shop.questions("raters", 0).personas["description"].to_list()
    for scale, prompts in prompts_by_scale(opened, tmp_path, home).items():
        assert len(prompts) > 100
        for text in texts:
            assert any(text in prompt for prompt in prompts), (scale, text)


def test_past_ratings_do_change_with_the_scale(opened: Opened, tmp_path: Path, home: Path) -> None:
    found = prompts_by_scale(opened, tmp_path, home)
    sizes = {scale: len(prompts) for scale, prompts in found.items()}
    assert len(set(sizes.values())) == 1
    assert any("ten" in p.split("The {}")[0] and "nine" in p for p in found["one-ten"])
    assert not any("from 1 to 10" in p for p in found["0-9"])


def test_prompts_speak_of_a_persona_with_its_pronouns(
    opened: Opened, tmp_path: Path, home: Path
) -> None:
    log: list[Request] = []
    shop = opened(shutil.copytree(home, tmp_path / "h"), engines=scripted(log))
    shop.cell(LLM, Options("1-10", "0", "custom"), 0)
    people = pl.concat(
        [shop.questions(t, 0).personas.select("name", "gender") for t in ("genres", "raters")]
    )
    pronouns = {"female": "she/her", "male": "he/him"}
    seen = 0
    for request in log:
        shown = "\n".join(m.content for m in request.messages)
        for name, gender in people.iter_rows():
            if f"{name} (" in shown:
                assert f"{name} ({pronouns[gender]})" in shown
                seen += 1
    assert seen > 100


def test_shots_and_system_are_seen_by_models(opened: Opened, tmp_path: Path, home: Path) -> None:
    texts = {}
    for shots, system in (("0", "default"), ("2", "default"), ("0", "custom")):
        log: list[Request] = []
        shop = opened(shutil.copytree(home, tmp_path / f"{shots}{system}"), engines=scripted(log))
        shop.cell(LLM, Options("1-10", shots, system), 0)
        texts[shots, system] = [m.content for m in log[0].messages]
    assert len(texts["2", "default"]) == len(texts["0", "default"]) + 4, "two examples of two turns"
    assert texts["0", "custom"][0] != texts["0", "default"][0]
    assert "You predict how one particular person rates films" in texts["0", "custom"][0]


def test_text_only_personas_keep_their_cases_and_lose_their_fields(opened: Opened) -> None:
    shop = opened()
    own, text = (shop.questions("genres", 0, wording) for wording in ("own", "own-text"))
    assert own.users == text.users
    assert own.item.tolist() == text.item.tolist()
    assert own.personas["description"].equals(text.personas["description"])
    assert text.personas["likes"].list.len().sum() == 0
    assert text.personas["manner"].null_count() == text.personas.height
    assert not set(own.personas["persona_id"]) & set(text.personas["persona_id"])


def test_paraphrases_are_other_texts_in_every_seed(opened: Opened) -> None:
    shop = opened()
    first, second = (shop.questions("genres", seed, "open") for seed in (0, 1))
    own = shop.questions("genres", 0)
    assert first.personas["likes"].equals(own.personas["likes"])
    for one, other in ((first, own), (second, own), (first, second)):
        same = (one.personas["description"] == other.personas["description"]).sum()
        assert same == 0
    keys = {shop.cell_key(STATISTICAL, replace(BASE, wording=w), 0) for w in WORDINGS}
    assert len(keys) == len(WORDINGS)


def test_a_model_sees_the_wording_and_no_field_in_text_only(
    opened: Opened, tmp_path: Path, home: Path
) -> None:
    log: list[Request] = []
    shop = opened(shutil.copytree(home, tmp_path / "h"), engines=scripted(log))
    shop.cell(LLM, Options("1-10", "0", "custom", wording="open-text"), 0)
    texts = shop.questions("raters", 0, "open-text").personas["description"].to_list()
    prompts = ["\n".join(m.content for m in request.messages) for request in log]
    about = [p for p in prompts if any(text in p for text in texts)]
    assert len(about) == 8 * 3
    assert not any("Likes:" in p or "Dislikes:" in p for p in about)


# -- failures -----------------------------------------------------------------------------------


@pytest.mark.pipeline
def test_unreadable_replies_are_left_out_counted_and_flagged(
    opened: Opened, tmp_path: Path, home: Path
) -> None:
    log: list[Request] = []

    def rule(request: Request) -> Any:
        # The tenth of each ten is a refusal; the others say 8.
        if len(log) % 10 == 0:
            return Answer(request, status="refused", detail="I'd rather not")
        return {"8": 1.0}

    settings = settings_of(tmp_path / "h", serving={"error_budget": 0.5})
    shop = opened(
        shutil.copytree(home, tmp_path / "h"), engines=scripted(log, rule), settings=settings
    )
    result = run_suite(shop, [LLM], seeds=(0,))
    base = result.baselines["llm:rule"]
    raters = base.scores["raters"]
    assert raters.unreadable > 0
    assert raters.flagged
    # 8 is neither >= 9 nor <= 2: had they counted as the lowest rating, the harsh raters would
    # have had successes.
    assert raters.value == 0.0
    text = suite_study(result).markdown(release="movies@1")
    assert f"raters: {raters.unreadable:,} of {raters.cases:,} replies unreadable" in text
    assert f"{sum(c.scores['aggregate'].unreadable for c in result.configurations):,}" in text


def test_a_cell_with_a_failed_call_is_asked_again(
    opened: Opened, tmp_path: Path, home: Path
) -> None:
    where = shutil.copytree(home, tmp_path / "h")
    broken: list[Request] = []

    def rule(request: Request) -> Any:
        if len(broken) == 7:
            return Answer(request, status="engine_error", detail="the server hung up")
        return {"8": 1.0}

    settings = settings_of(where, serving={"error_budget": 0.5})
    options = Options("1-10", "0", "custom")
    with AnswerStore(where) as store:
        first = opened(where, engines=scripted(broken, rule), settings=settings, answer_store=store)
        found, _ = first.cell(LLM, options, 0)
    assert (found["status"] == "engine_error").sum() == 1
    again: list[Request] = []
    with AnswerStore(where) as store:
        second = opened(where, engines=scripted(again, lambda _: {"8": 1.0}), answer_store=store)
        healed, known = second.cell(LLM, options, 0)
    assert not known
    assert (healed["status"] == OK).all()
    assert len(again) == 1, "only the failed call"


def test_a_stored_result_that_was_cut_short_is_named(
    opened: Opened, tmp_path: Path, home: Path
) -> None:
    where = shutil.copytree(home, tmp_path / "h")
    shop = opened(where)
    shop.cell(STATISTICAL, BASE, 0)
    (file,) = list(where.glob(f"ablations/cells/*/{shop.cell_key(STATISTICAL, BASE, 0)}.parquet"))
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(IntegrityError, match="remove the file") as caught:
        opened(where).cell(STATISTICAL, BASE, 0)
    assert file.name in str(caught.value)
    file.unlink()
    assert not opened(where).cell(STATISTICAL, BASE, 0)[1], "and it is made again"


# -- what is kept -------------------------------------------------------------------------------


@pytest.mark.pipeline
def test_a_second_run_makes_nothing_and_gives_the_same(
    opened: Opened, tmp_path: Path, home: Path
) -> None:
    where = shutil.copytree(home, tmp_path / "h")
    first = run_suite(opened(where), [], seeds=(0, 1))
    again = run_suite(opened(where), [], seeds=(0, 1))
    assert first.made > 0
    assert (again.made, again.reused) == (0, first.made + first.reused)
    assert scores_frame(again).equals(scores_frame(first))
    more = run_suite(opened(where), [], seeds=(0, 1, 2))
    assert more.made == len(more.configurations), "one new cell per configuration for the new seed"


def test_a_sample_is_spread_over_users_and_wants_and_is_the_same_in_every_wording(
    opened: Opened,
) -> None:
    shop, whole = opened(sample=64), opened()
    found = shop.questions("genres", 0)
    assert len(found) == 64 < len(whole.questions("genres", 0))
    every = whole.questions("genres", 0)
    assert set(zip(found.users, found.want.tolist(), strict=True)) == set(
        zip(every.users, every.want.tolist(), strict=True)
    )
    assert set(zip(found.users, found.item.tolist(), strict=True)) <= set(
        zip(every.users, every.item.tolist(), strict=True)
    )
    other = shop.questions("genres", 0, "open-text")
    assert other.users == found.users
    assert other.item.tolist() == found.item.tolist()


@given(cases=st.lists(st.tuples(st.integers(0, 4), st.integers(-1, 1)), max_size=40), count=N)
def test_no_user_has_two_cases_more_than_another_that_has_cases_left(
    cases: list[tuple[int, int]], count: int
) -> None:
    questions = _questions(cases)
    kept = questions.sample(count)
    assert len(kept) == min(count, len(cases))
    left, asked = (
        Counter(cases),
        Counter(zip(kept.person.tolist(), kept.want.tolist(), strict=True)),
    )
    fewest = [asked[k] for k in left if asked[k] < left[k]]
    assert all(n <= min(fewest, default=n) + 1 for n in asked.values())
    assert set(kept.item.tolist()) <= set(questions.item.tolist())
    assert len(set(kept.item.tolist())) == len(kept)


@pytest.mark.pipeline
def test_a_report_of_a_sample_says_so_and_shares_no_cell_with_the_whole(
    opened: Opened, tmp_path: Path, home: Path
) -> None:
    where = shutil.copytree(home, tmp_path / "h")
    few = run_suite(opened(where, sample=8), [], seeds=(0,))
    assert "at most 8 cases of each test and seed" in "".join(suite_study(few).notes)
    assert {c.scores["genres"].cases for c in few.configurations} == {8}
    again = run_suite(opened(where, sample=8), [], seeds=(0,))
    assert again.reused == few.made + few.reused
    assert opened(where).cell_key(STATISTICAL, BASE, 0) != opened(where, sample=8).cell_key(
        STATISTICAL, BASE, 0
    )
    whole = run_suite(opened(where), [], seeds=(0,))
    assert whole.sample is None
    assert "at most" not in "".join(suite_study(whole).notes)


def test_a_full_grid_reports_what_each_option_is_worth_over_the_others(
    opened: Opened, tmp_path: Path, home: Path
) -> None:
    where = shutil.copytree(home, tmp_path / "h")
    full = run_suite(opened(where, sample=8), [], seeds=(0,), grid="full")
    effects = option_study(full)
    assert effects is not None
    found = {(c.left, c.right): c for c in effects.comparisons if c.figure == "collections"}
    # Each of four other retrievals under each of three kinds of noise.
    assert sorted(found)[-6:] == [
        ("statistical: perturbation gaussian", "none (5 pairs)"),
        ("statistical: perturbation greedy", "none (5 pairs)"),
        ("statistical: retrieval features", "embedding (3 pairs)"),
        ("statistical: retrieval graph", "embedding (3 pairs)"),
        ("statistical: retrieval none", "embedding (3 pairs)"),
        ("statistical: retrieval recent", "embedding (3 pairs)"),
    ]
    retrieval = [c for c in effects.comparisons if "retrieval" in c.left]
    assert {c.figure for c in retrieval} == {"collections"}
    assert option_study(run_suite(opened(where, sample=8), [], seeds=(0,))) is None


def test_progress_counts_the_cases_of_each_cell(opened: Opened, tmp_path: Path, home: Path) -> None:
    seen: dict[str, list[tuple[int, int | None]]] = {}

    def note(cell: str, done: int, total: int | None) -> None:
        seen.setdefault(cell, []).append((done, total))

    fresh = shutil.copytree(home, tmp_path / "h")
    shutil.rmtree(fresh / "ablations", ignore_errors=True)  # cells of other tests
    with listening(note):
        run_suite(opened(fresh), [STATISTICAL], grid="words", seeds=(0,))
    names = list(seen)
    assert names[0] == f"statistical: 1-10, embedding, none, own, seed 0 (1 of {len(names)})"
    for counts in seen.values():
        done = [at for at, _ in counts]
        assert done == sorted(done)
        assert counts[-1][0] == counts[-1][1]
    assert max(map(len, seen.values())) > 4, "blocks of cases are heard one by one"


def test_a_cell_is_known_by_what_decides_it(opened: Opened) -> None:
    shop = opened()
    keys = [
        shop.cell_key(STATISTICAL, BASE, 0),
        shop.cell_key(STATISTICAL, BASE, 1),
        shop.cell_key(RaterSpec("mean"), BASE, 0),
        shop.cell_key(STATISTICAL, Options("1-10", "-", "-", "recent", "none"), 0),
        shop.cell_key(STATISTICAL, Options("1-10", "-", "-", "embedding", "greedy"), 0),
        opened(k=4).cell_key(STATISTICAL, BASE, 0),
        opened(settings=settings_of(shop.results._files.root, scoring={"seed": 5})).cell_key(
            STATISTICAL, BASE, 0
        ),
    ]
    assert len(set(keys)) == len(keys)
    assert shop.cell_key(STATISTICAL, BASE, 0) == keys[0]


def test_models_and_prompts_are_part_of_the_identity(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options("1-10", "0", "custom")
    shop = opened(engines=scripted([]))
    key = shop.cell_key(LLM, options, 0)
    other = opened(engines=lambda _: ScriptedEngine(lambda r: {"1": 1.0}, name="other"))
    assert other.cell_key(LLM, options, 0) != key
    monkeypatch.setattr("sim.ablations._context.RATING_PROMPT_VERSION", "next")
    assert shop.cell_key(LLM, options, 0) != key


def test_noise_and_seeds_of_the_draw_cost_no_further_call(
    opened: Opened, tmp_path: Path, home: Path
) -> None:
    log: list[Request] = []
    where = shutil.copytree(home, tmp_path / "h")
    answer_store = AnswerStore(where)
    shop = opened(where, engines=scripted(log), answer_store=answer_store)
    shop.cell(LLM, Options("1-10", "0", "custom"), 0)
    asked = len(log)
    shop.cell(LLM, Options("1-10", "0", "custom", perturbation="gaussian"), 0)
    assert len(log) == asked
    shop.cell(LLM, Options("1-10", "0", "custom", "recent"), 0)
    # Tests of hand-made personas have no history: how it is chosen asks nothing new of them.
    histories = sum(len(shop.questions(t, 0)) for t in ("collections", "similarity"))
    assert 0 < len(log) - asked <= histories
    shop.raters.close()


def test_ten_answers_are_ten_answers_for_a_rater_without_a_model(opened: Opened) -> None:
    # Why 0-9 is no configuration of its own for them.
    shop = opened()
    ten, nine = (
        shop.cell(STATISTICAL, Options(scale, "-", "-", "embedding", "none"), 0)[0]
        for scale in ("1-10", "0-9")
    )
    assert ten["answer"].to_list() == nine["answer"].to_list()
    assert ten["success"].to_list() == nine["success"].to_list()


# -- the result ---------------------------------------------------------------------------------


def test_the_statistical_the_random_and_the_mean_rater_are_always_rows(opened: Opened) -> None:
    result = run_suite(opened(), [], seeds=(0,))
    assert list(result.baselines) == ["statistical", "random", "mean"]
    assert result.asked == {"statistical": 15, "random": 15, "mean": 15}
    for c in result.configurations:
        assert set(c.scores) == {*TESTS, "aggregate"}
        whole = np.mean([c.scores[t].value for t in TESTS])
        assert c.scores["aggregate"].value == pytest.approx(whole)


def test_the_random_raters_expected_scores_by_hand(opened: Opened) -> None:
    base = run_suite(opened(), [], seeds=(0,)).baselines["random"]
    # P(>= 8) = 0.3 and P(<= 5) = 0.5, in the same numbers; P(>= 9) = P(<= 2) = 0.2;
    # P(>= 7) = 0.4 and P(<= 5) = 0.5.
    genres = base.cases.filter(pl.col("test") == "genres")
    share = float((genres["want"] == 1).mean())  # type: ignore[arg-type]
    assert base.scores["genres"].expected == pytest.approx(0.3 * share + 0.5 * (1 - share))
    assert base.scores["raters"].expected == pytest.approx(0.2)
    assert base.scores["collections"].expected == pytest.approx(0.45)


def test_the_table_has_the_published_rows_beside_the_measured(opened: Opened) -> None:
    result = run_suite(opened(), [], seeds=(0,))
    found = table(result)
    published = found.filter(pl.col("source") != "measured")
    assert published.filter(
        (pl.col("rater") == "GPT-4") & (pl.col("source") == "SUBER, table 7")
    ).select("genres", "raters", "collections", "similarity", "aggregate").row(0) == (
        0.96, 1.0, 0.98, 0.69, 0.91,
    )  # fmt: skip
    # The aggregate of every published row is the mean of its tests, to the rounding.
    means = published.select((pl.sum_horizontal(*TESTS) / 4 - pl.col("aggregate")).abs())
    assert means.to_series().max() < 0.013  # type: ignore[operator]
    assert not found.filter(pl.col("source") == "measured")["language_model"].any()


def test_comparisons_are_with_the_baseline_and_with_the_statistical_rater(opened: Opened) -> None:
    result = run_suite(opened(), [], seeds=(0, 1))
    found = suite_study(result).tables["paired"]
    assert set(found["against"]) == {"its baseline", "statistical's baseline"}
    same = found.filter(rater="statistical", retrieval="none", test="genres")
    assert same.select("difference", "p").row(0) == (0.0, 1.0)
    tested = found.filter(pl.col("p").is_not_null())
    assert (tested["p_adjusted"] >= tested["p"] - 1e-12).all()


# -- bad input ----------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [(), (0, 0), (3,), (-1,)])
def test_seeds_without_a_draw_are_errors(opened: Opened, seeds: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match="0 to 2"):
        run_suite(opened(), [], seeds=seeds)


def test_a_release_without_a_needed_table_is_named(tmp_path: Path) -> None:
    from support.ablation_release import build_with_series

    from sim.ablations import SuiteContext

    release = build_with_series(tmp_path, without=("splits", "human_users"))
    with pytest.raises(ReleaseError, match="lacks splits, human_users"):
        SuiteContext.open(Store(tmp_path), release, "movies", settings_of(tmp_path))
    with pytest.raises(ReleaseError, match=r"holds movies\.items"):
        SuiteContext.open(
            Store(tmp_path), build_with_series(tmp_path), "books", settings_of(tmp_path)
        )


def test_an_unknown_rater_and_one_without_its_model_are_errors() -> None:
    with pytest.raises(ConfigError, match="statistical"):
        RaterSpec("statisticl")
    with pytest.raises(ConfigError, match="engine"):
        RaterSpec("llm")


def test_each_question_is_a_rater_and_sees_what_its_prompt_shows() -> None:
    engine = EngineSettings(kind="scripted", model="m")
    like, scale = RaterSpec("llm", engine, "like"), RaterSpec("llm", engine)
    assert (scale.name, like.name) == ("llm:m", "llm:m:like")
    plans = [configurations("movies", spec.sight, "words")[0] for spec in (scale, like)]
    assert [(o.shots, o.system, o.wording) for o in plans[0]] == [
        ("0", "default", wording) for wording in ("own", "own-text", "open", "open-text")
    ]
    assert [o.wording for o in plans[1]] == [o.wording for o in plans[0]]
    assert {o.shots for o in plans[1]} == {"-"}
    assert len(configurations("movies", like.sight, "small")[0]) < 14


@pytest.mark.parametrize("domain", ["movies", "books"])
def test_custom_system_text_serves_every_scale(domain: str) -> None:
    text = system_text(domain, "custom")
    assert text is not None
    assert not any(c.isdigit() for c in text)
    assert {"movies": "films", "books": "books"}[domain] in text
    assert system_text(domain, "default") is None
    with pytest.raises(ConfigError, match="default or custom"):
        system_text(domain, "grand")
