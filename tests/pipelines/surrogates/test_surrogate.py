"""A surrogate learns a teacher's distributions, says how well, and never guesses."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from pipelines.config import SurrogateSettings
from pipelines.errors import ConfigError, ContractError
from pipelines.raters import (
    KINDS,
    SCALES,
    BoundSurrogate,
    RatingBatch,
    SurrogateModel,
    SurrogateRater,
    all_pairs,
    bind,
)
from pipelines.raters.statistical.ordinal import cumulative
from pipelines.raters.surrogate import cuts_of
from pipelines.raters.testing import check_rater, contract_items, contract_personas
from pipelines.surrogates import (
    Pairs,
    Recipe,
    compare,
    fit_pairs,
    save_surrogate,
    teach,
    teacher_of,
)

GENRES = ["Action", "Comedy", "Drama", "Horror", "Western"]
PEOPLE, FILMS = 120, 90
SETTINGS = SurrogateSettings()
RECIPE = Recipe(rank=6, sweeps=8, hold_out_items=0.1)


def facts(seed=0):
    """Personas that like two genres and dislike one, and films of two genres and a year."""
    rng = np.random.default_rng(seed)
    liked = [rng.choice(GENRES, 3, replace=False).tolist() for _ in range(PEOPLE)]
    personas = pl.DataFrame(
        {
            "persona_id": [f"persona:test:{n:03d}" for n in range(PEOPLE)],
            "likes": [sorted(g[:2]) for g in liked],
            "dislikes": [g[2:] for g in liked],
            "description": ["Somebody who sees films."] * PEOPLE,
        }
    )
    items = pl.DataFrame(
        {
            "item_id": [f"ml:{n}" for n in range(1, FILMS + 1)],
            "title": [f"Film {n}" for n in range(FILMS)],
            "year": rng.integers(1960, 2020, FILMS),
            "genres": [sorted(rng.choice(GENRES, 2, replace=False)) for _ in range(FILMS)],
        }
    )
    return personas, items


class Planted:
    """A teacher whose answers follow from facts: each liked genre adds a logit, disliked takes."""

    name, scale = "planted", SCALES["1-5"]

    def rate(self, personas, items, histories=None, *, pairs=None):
        pairs = all_pairs(personas.height, items.height) if pairs is None else pairs
        likes, dislikes = personas["likes"].to_list(), personas["dislikes"].to_list()
        genres, years = items["genres"].to_list(), items["year"].to_list()
        location = np.array(
            [
                len({*likes[p]} & {*genres[i]}) - len({*dislikes[p]} & {*genres[i]})
                + (years[i] - 1990) / 30
                for p, i in pairs
            ]
        )  # fmt: skip
        if histories is not None and histories.height:
            # Moved by the mean surplus of what is remembered over what it would have said.
            every = self.rate(personas, items).expected.reshape(personas.height, items.height)
            person = {name: n for n, name in enumerate(personas["persona_id"])}
            item = {name: n for n, name in enumerate(items["item_id"])}
            surplus = [[0.0] for _ in range(personas.height)]
            for name, film, rating in histories.select("persona_id", "item_id", "rating").rows():
                surplus[person[name]].append(rating - every[person[name], item[film]])
            location += [np.sum(surplus[p]) / len(surplus[p]) for p, _ in pairs]
        cuts = np.tile([-2.0, -0.5, 0.5, 2.0], (len(pairs), 1))
        return RatingBatch(
            self.scale, cumulative(cuts - np.asarray(location)[:, None]), ["ok"] * len(pairs)
        )

    def metadata(self):
        return {"rater": self.name, "fitted": {}, "by_hand": {}}


def scores_of(rater, personas, items, share=0.6):
    """Rows of `preference_scores`: a random share of all pairs."""
    pairs = all_pairs(personas.height, items.height)
    pairs = pairs[np.random.default_rng(1).random(len(pairs)) < share]
    batch = rater.rate(personas, items, pairs=pairs)
    return pl.DataFrame(
        {
            "persona_id": personas["persona_id"].gather(pairs[:, 0]),
            "item_id": items["item_id"].gather(pairs[:, 1]),
            "rater": rater.name,
            "scale": rater.scale.name,
            "status": "ok",
            "probabilities": batch.probabilities.tolist(),
            "prompt_version": None,
            "answer_key": None,
        }
    )


def failing(scores, rows):
    status = ["refused"] * rows + ["ok"] * (scores.height - rows)
    kept = pl.when(pl.Series(status) == "ok").then("probabilities")
    return scores.with_columns(status=pl.Series(status), probabilities=kept)


@pytest.fixture(scope="module")
def scores():
    return scores_of(Planted(), *facts())


@pytest.fixture(scope="module")
def taught(scores):
    personas, items = facts()
    teacher = teacher_of(scores, rater=None, error_budget=0.01)
    return teach(teacher, personas=personas, items=items, settings=SETTINGS, recipe=RECIPE)


def rmse(taught):
    rows = taught.fidelity.filter(figure="rmse")
    return {row["kind"]: row for row in rows.iter_rows(named=True)}


def test_planted_facts_are_recovered_for_all_kinds_of_pairs(taught):
    """Everything follows from facts, so that unseen personas and items are answered too."""
    found = rmse(taught)
    assert list(found) == list(KINDS)
    for kind, row in found.items():
        assert row["value"] < 0.25 * row["floor"], kind
        assert row["difference_high"] < 0
        assert taught.model.beats_baseline(kind)


def test_shuffled_features_fall_to_the_floors(scores):
    """Facts of others tell nothing: an unseen persona is an average one."""
    personas, items = facts()
    order = np.random.default_rng(5).permutation(PEOPLE).tolist()
    mixed = personas.with_columns(personas[order].select("likes", "dislikes"))
    films = np.random.default_rng(6).permutation(FILMS).tolist()
    other = items.with_columns(items[films].select("genres", "year"))
    teacher = teacher_of(scores, rater=None, error_budget=0.01)
    found = teach(teacher, personas=mixed, items=other, settings=SETTINGS, recipe=RECIPE)
    for kind, row in rmse(found).items():
        if "unseen" in kind:
            assert row["value"] > 0.9 * row["floor"], kind
            assert not found.model.beats_baseline(kind), kind
    # What was taught of each pair's own persona and item is as good as before.
    assert found.model.beats_baseline(KINDS[0])


def test_equal_inputs_give_equal_bytes_and_read_back_equal(taught, scores, tmp_path):
    personas, items = facts()
    teacher = teacher_of(scores, rater=None, error_budget=0.01)
    again = teach(teacher, personas=personas, items=items, settings=SETTINGS, recipe=RECIPE)
    first, second = tmp_path / "a", tmp_path / "b"
    files, others = save_surrogate(taught, first), save_surrogate(again, second)
    assert [f.read_bytes() for f in files] == [f.read_bytes() for f in others]
    read = SurrogateRater(SurrogateModel.load(first))
    expected = SurrogateRater(taught.model).rate(personas, items)
    np.testing.assert_array_equal(read.rate(personas, items).probabilities, expected.probabilities)
    assert "no language model" in (first / "README.md").read_text()


def test_teacher_and_fidelity_go_with_the_scores(taught):
    rater = SurrogateRater(taught.model)
    facts_of = rater.metadata()
    assert rater.name == facts_of["rater"] == "surrogate:planted"
    assert facts_of["teacher"]["rater"] == "planted"
    assert set(facts_of["fidelity"]) == set(KINDS)
    bound = bind(rater, *facts())
    assert not bound.language_model
    assert "no language model" in bound.note
    assert "taught without histories" in bound.note


def test_pair_that_lacks_facts_is_invalid(taught):
    """No genre and no text: nothing is known, and nothing is guessed."""
    personas, items = facts()
    bare = items[:1].with_columns(item_id=pl.lit("ml:900"), genres=pl.lit([], pl.List(pl.String)))
    batch = SurrogateRater(taught.model).rate(personas[:1], pl.concat([items[:1], bare]))
    assert list(batch.status) == ["ok", "invalid"]
    assert np.isnan(batch.probabilities[1]).all()
    assert batch.notes == [None, "the surrogate lacks facts or a text vector"]


def test_same_id_with_other_facts_is_not_the_one_that_was_taught(taught):
    personas, _ = facts()
    known = taught.model.personas.ids[0]
    one = personas.filter(persona_id=known)
    other = one.with_columns(likes=pl.lit(["Western"]), dislikes=pl.lit(["Drama"]))
    seen = taught.model.personas.of(pl.concat([one, other]), None)[1]
    assert seen.tolist() == [True, False]


def test_failed_answers_are_left_out_and_counted(scores):
    budget = 30.5 / scores.height
    found = teacher_of(failing(scores, 30), rater=None, error_budget=budget)
    assert found.metadata["failed"] == 30
    assert found.metadata["pairs"] == found.rows.height == scores.height - 30
    with pytest.raises(ContractError, match=r"31 of the teacher's .* answers failed"):
        teacher_of(failing(scores, 31), rater=None, error_budget=budget)


def test_teacher_that_gives_one_answer_to_everything_is_refused(scores):
    flat = scores.with_columns(probabilities=pl.lit([0.2] * 5))
    with pytest.raises(ContractError, match="nothing to learn"):
        teacher_of(flat, rater=None, error_budget=0.0)


def test_surrogate_is_no_teacher(scores):
    own = scores.with_columns(rater=pl.lit("surrogate:planted"))
    with pytest.raises(ConfigError, match="can't teach another"):
        teacher_of(own, rater=None, error_budget=0.0)


def test_round_teaches_the_effect_of_memories(scores, taught):
    """The planted teacher moves with the surplus of what is remembered; one round learns it."""
    personas, items = facts()
    settings = SurrogateSettings(rounds=1, visited=1_000)
    teacher = teacher_of(scores, rater=None, error_budget=0.01)
    found = teach(
        teacher, personas=personas, items=items, settings=settings, recipe=RECIPE, ask=Planted
    )
    visited = rmse(found)["visited states"]
    assert visited["value"] < 0.7 * visited["floor"]
    bound = bind(SurrogateRater(found.model), personas, items)
    past = np.array([[3, 4, 5]])
    high, low = (
        bound.rate(np.array([0]), np.array([1]), past, np.full((1, 3), mark)).expected[0]
        for mark in (5.0, 1.0)
    )
    assert high > low + 1
    still = bind(SurrogateRater(taught.model), personas, items)
    assert (
        still.rate(np.array([0]), np.array([1]), past, np.full((1, 3), 5.0)).expected[0]
        == (still.rate(np.array([0]), np.array([1])).expected[0])
    )
    other = replace(teacher, name="somebody else")
    with pytest.raises(ConfigError, match="open the rater planted"):
        teach(other, personas=personas, items=items, settings=settings, recipe=RECIPE, ask=Planted)


def test_cutpoints_ascend_and_distributions_are_exact():
    """Gaps 1 and 2 around 0.5; at location 0.5 half of the mass is below the middle cutpoint."""
    cuts = cuts_of(np.log([[1.0, 2.0]]), 0.5)
    np.testing.assert_allclose(cuts, [[-0.5, 0.5, 2.5]])
    found = cumulative(cuts - 0.5)[0]
    below = 1 / (1 + np.e)
    np.testing.assert_allclose(found, [below, 0.5 - below, 1 / (1 + np.exp(-2)) - 0.5, 0.119203],
                               atol=1e-6)  # fmt: skip


def test_fit_recovers_interactions_that_no_fact_tells():
    """Two planted factors, constant facts: half of the pairs tell the others."""
    rng = np.random.default_rng(3)
    u, v = rng.normal(size=(60, 2)), rng.normal(size=(50, 2))
    every = all_pairs(60, 50)
    location = (u @ v.T).ravel()
    target = cumulative(np.array([-1.0, 1.0]) - location[:, None])
    known = rng.random(len(every)) < 0.5
    pairs = Pairs(every[:, 0], every[:, 1], target)
    fit = fit_pairs(
        pairs.take(known), np.zeros((60, 1)), np.zeros((50, 1)), rank=2, sweeps=30, seed=0
    )
    out = pairs.take(~known)
    error = fit.probabilities(out) @ [1, 2, 3] - out.target @ [1, 2, 3]
    assert np.sqrt((error**2).mean()) < 0.1 * (out.target @ [1, 2, 3]).std()


def test_figures_of_fidelity_by_hand():
    """Two personas, teachers' means 1, 3 and 3, 1; the surrogate has the second one reversed."""
    scale = SCALES["1-5"]
    sure = np.eye(5)
    pairs = Pairs(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), sure[[0, 2, 2, 0]])
    shares = sure[[0, 2, 0, 2]]
    constant = np.full(4, 2.0), sure[[1, 1, 1, 1]]
    rows = {r["figure"]: r for r in compare("k", pairs, (shares @ scale.answers, shares), constant,
                                            scale)}  # fmt: skip
    assert rows["rmse"]["value"] == pytest.approx(np.sqrt(2))
    assert rows["rmse"]["floor"] == pytest.approx(1.0)
    assert rows["total_variation"]["value"] == pytest.approx(0.5)
    # First in order is worth 1, second 1 / log2(3); a tie has the mean of both.
    second = 1 / np.log2(3)
    assert rows["ndcg@10"]["value"] == pytest.approx((1 + second) / 2)
    assert rows["ndcg@10"]["floor"] == pytest.approx((1 + second) / 2)
    # Two pairs are too few for a correlation.
    assert rows["correlation"]["value"] is None
    assert (rows["rmse"]["pairs"], rows["rmse"]["personas"]) == (4, 2)


@pytest.fixture(scope="module")
def remembering(scores):
    """A surrogate with a memory."""
    personas, items = facts()
    settings = SurrogateSettings(rounds=1, visited=200)
    teacher = teacher_of(scores, rater=None, error_budget=0.01)
    return teach(
        teacher, personas=personas, items=items, settings=settings, recipe=RECIPE, ask=Planted
    ).model


def test_surrogate_conforms(remembering):
    check_rater(SurrogateRater(remembering))


def test_contract_covers_answers_and_refusals(remembering):
    """The conformance world has pairs of both kinds for it: two films without a known genre."""
    bound = bind(SurrogateRater(remembering), contract_personas(), contract_items())
    assert isinstance(bound, BoundSurrogate)
    who, what = all_pairs(3, 4).T
    assert set(bound.rate(who, what).status) == {"ok", "invalid"}
