"""Thresholds, noise, draws, scores and paired tests, worked out by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.ablations import suite_named
from pipelines.errors import ConfigError
from pipelines.scales import SCALES
from sim.ablations import aggregate, compare, configurations, kernel, score_of, seen
from sim.ablations._grid import STRENGTH, Cases, Human, Options, common_scale, scored, successes
from sim.ablations._run import mean_effect
from sim.environment.noise import perturb

MOVIES, BOOKS = suite_named("movies"), suite_named("books")
STARS = SCALES["0.5-5"]


# -- thresholds ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("suite", "test", "scale", "low", "high"),
    [
        ("movies", "genres", "1-10", {1, 2, 3, 4, 5}, {8, 9, 10}),
        ("movies", "raters", "1-10", {1, 2}, {9, 10}),
        ("movies", "collections", "1-10", {1, 2, 3, 4, 5}, {7, 8, 9, 10}),
        ("movies", "genres", "one-ten", {1, 2, 3, 4, 5}, {8, 9, 10}),
        ("movies", "genres", "0-9", {0, 1, 2, 3, 4}, {7, 8, 9}),
        ("movies", "raters", "0-9", {0, 1}, {8, 9}),
        ("movies", "collections", "0-9", {0, 1, 2, 3, 4}, {6, 7, 8, 9}),
        ("books", "genres", "1-5", {1, 2, 3}, {5}),
        ("books", "raters", "1-5", {1, 2, 3}, {5}),
        ("books", "collections", "1-5", {1, 2, 3}, {4, 5}),
    ],
)
def test_what_counts_as_low_and_high(
    suite: str, test: str, scale: str, low: set[int], high: set[int]
) -> None:
    found = successes(test, suite_named(suite), SCALES[scale])
    answers = SCALES[scale].answers
    assert (set(answers[found[0]]), set(answers[found[1]])) == (low, high)


def test_the_aggregate_of_books_leaves_the_similarity_out() -> None:
    assert MOVIES.aggregate == ("genres", "raters", "collections", "similarity")
    assert BOOKS.aggregate == ("genres", "raters", "collections")


# -- noise --------------------------------------------------------------------------------------


def test_greedy_noise_by_hand() -> None:
    found = kernel("greedy", SCALES["1-5"], 0.4)
    np.testing.assert_allclose(found[2], [0, 0.2, 0.6, 0.2, 0])
    np.testing.assert_allclose(found[0], [0.8, 0.2, 0, 0, 0])
    np.testing.assert_allclose(found[4], [0, 0, 0, 0.2, 0.8])


def test_gaussian_noise_by_hand() -> None:
    found = kernel("gaussian", SCALES["1-5"], 1.0)
    # P(-0.5 < z < 0.5) = 0.3829, P(0.5 < z < 1.5) = 0.2417, P(z > 1.5) = 0.0668.
    np.testing.assert_allclose(found[2], [0.0668, 0.2417, 0.3829, 0.2417, 0.0668], atol=5e-5)
    assert found[0, 0] == pytest.approx(0.6915, abs=5e-5)


@given(
    st.sampled_from(["none", "greedy", "gaussian"]),
    st.sampled_from(["1-5", "1-10", "0-9", "one-ten"]),
    st.floats(0, 1),
)
def test_noise_keeps_the_mass_and_its_symmetry(name: str, scale: str, strength: float) -> None:
    found = kernel(name, SCALES[scale], strength)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert (found >= 0).all()
    np.testing.assert_allclose(found, found[::-1, ::-1], atol=1e-12)


@pytest.mark.parametrize("name", ["greedy", "gaussian"])
def test_the_environments_noise_is_the_same(name: str) -> None:
    scale, draw = SCALES["1-10"], (np.arange(20_000) + 0.5) / 20_000
    matrix = kernel(name, scale)
    for answer in (1.0, 5.0, 10.0):
        theirs = perturb(np.full(len(draw), answer), draw, name, STRENGTH[name], scale)
        share = np.bincount(theirs.astype(int) - 1, minlength=10) / len(draw)
        np.testing.assert_allclose(share, matrix[int(answer) - 1], atol=1e-3)


def test_unknown_noise_and_strengths_are_errors() -> None:
    with pytest.raises(ConfigError, match="greedy"):
        kernel("loud", SCALES["1-5"])
    with pytest.raises(ConfigError, match="strength"):
        kernel("greedy", SCALES["1-5"], 1.5)


# -- cells --------------------------------------------------------------------------------------


def questions(test: str, want: list[int], users: list[str] | None = None) -> Cases:
    n = len(want)
    users = users or [f"p{k}" for k in range(n)]
    names = sorted(set(users))
    return Cases(
        test,
        pl.DataFrame({"persona_id": names}),
        np.array([names.index(u) for u in users]),
        np.zeros(n, dtype=np.int64),
        np.array(want),
        ["g"] * n,
        np.empty((n, 0), dtype=np.int64),
        np.empty((n, 0)),
        MOVIES.scale,
    )


def answered(rows: list[list[float] | None]) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "case": range(len(rows)),
            "status": ["ok" if r else "invalid" for r in rows],
            "probabilities": rows,
        },
        schema_overrides={"probabilities": pl.List(pl.Float64)},
    )


def certain(answer: int, answers: int = 10) -> list[float]:
    return [float(k == answer - 1) for k in range(answers)]


def cell(cases: Cases, rows: list[list[float] | None], **options: object) -> pl.DataFrame:
    given: dict = {"seed": 0, "noise": "none", "human": None, **options}
    return scored(cases, answered(rows), SCALES["1-10"], MOVIES, **given)


def test_a_drawn_rating_decides_and_its_chance_is_kept() -> None:
    rows: list[list[float] | None] = [certain(8), certain(7), certain(5), certain(6)]
    found = cell(questions("genres", [1, 1, 0, 0]), rows)
    assert found["success"].to_list() == [True, False, True, False]
    assert found["chance"].to_list() == [1.0, 0.0, 1.0, 0.0]
    half = [0.0] * 7 + [0.5, 0.0, 0.0]
    half[0] = 0.5
    many = cell(questions("genres", [1] * 4_000), [half] * 4_000)
    assert many["chance"].unique().to_list() == [0.5]
    assert many["success"].mean() == pytest.approx(0.5, abs=0.03)


def test_the_same_seed_draws_the_same_and_another_seed_other_ratings() -> None:
    cases, rows = questions("genres", [1] * 50), [[0.1] * 10] * 50
    one, same, other = (cell(cases, rows, seed=s)["answer"].to_list() for s in (0, 0, 1))
    assert one == same
    assert one != other


def test_the_chance_after_noise_by_hand() -> None:
    # 8 stays high with probability 0.7 and becomes 9 with 0.15: only 7 is a failure.
    found = cell(questions("genres", [1]), [certain(8)], noise="greedy")
    assert found["chance"].item() == pytest.approx(0.85)


def test_an_unreadable_reply_is_no_rating_and_above_all_not_the_lowest() -> None:
    found = cell(questions("raters", [0, 0, 1]), [None, certain(1), None])
    assert found["success"].to_list() == [None, True, None]
    assert found["answer"].to_list() == [None, 0, None]
    score = score_of(found, None)
    assert score.value == 1.0, "of the one reply that can be read"
    assert (score.cases, score.unreadable, score.users) == (3, 2, 1)
    assert score.flagged


def test_a_few_unreadable_replies_flag_nothing() -> None:
    rows: list[list[float] | None] = [certain(1)] * 39 + [None]
    assert not score_of(cell(questions("raters", [0] * 40), rows), None).flagged


def test_where_nothing_can_be_read_there_is_no_score() -> None:
    score = score_of(cell(questions("raters", [0, 0]), [None, None]), None)
    assert np.isnan(score.value)
    assert score.flagged


# -- similarity ---------------------------------------------------------------------------------


def test_the_similarity_by_hand() -> None:
    # People: half 4 stars (8), half 1 star (2). The rater: 8 three times of four, 10 once.
    shares = np.zeros(10)
    shares[[7, 1]] = 0.5
    cases = questions("similarity", [-1] * 4)
    rows: list[list[float] | None] = [certain(8)] * 3 + [certain(10)]
    found = cell(cases, rows, human=Human(STARS, shares))
    assert found["success"].null_count() == 4
    score = score_of(found, common_scale(SCALES["1-10"], Human(STARS, shares))[2])
    # 1 - (|0.75 - 0.5| + |0.25 - 0| + |0 - 0.5|) / 2
    assert score.value == pytest.approx(0.5)
    assert score.expected == pytest.approx(0.5)


def test_ratings_are_compared_on_the_scale_with_fewer_answers() -> None:
    human = Human(SCALES["1-5"], np.array([0.0, 0.0, 0.0, 0.0, 1.0]))
    scale, onto, shares = common_scale(SCALES["1-10"], human)
    assert scale == SCALES["1-5"]
    assert onto.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert shares.tolist() == [0, 0, 0, 0, 1]
    scale, onto, shares = common_scale(SCALES["1-5"], Human(STARS, np.full(10, 0.1)))
    assert scale == SCALES["1-5"]
    assert onto.tolist() == [0, 1, 2, 3, 4]
    assert shares.sum() == pytest.approx(1)


# -- intervals ----------------------------------------------------------------------------------


def frame(successes_by_user: dict[str, list[bool]], seed: int = 0, test: str = "genres"):
    users = [u for u, rows in successes_by_user.items() for _ in rows]
    won = [s for rows in successes_by_user.values() for s in rows]
    return pl.DataFrame(
        {
            "test": test, "seed": seed, "case": range(len(won)), "user": users, "group": "g",
            "want": 1, "status": "ok", "answer": 0, "success": won,
            "chance": [float(s) for s in won], "shares": None,
        },
        schema_overrides={"shares": pl.List(pl.Float64)},
    )  # fmt: skip


def test_the_interval_is_over_users_not_over_cases() -> None:
    # Eight users of 100 cases each, all alike within a user: 8 observations, not 800.
    alike = frame({f"p{n}": [n < 4] * 100 for n in range(8)})
    spread = frame({f"p{n}": [True, False] * 50 for n in range(8)})
    wide, none = score_of(alike, None), score_of(spread, None)
    assert wide.value == none.value == 0.5
    # Of 8 users half of which succeed: a standard error of sqrt(0.25 / 8) = 0.177.
    assert wide.high - wide.low == pytest.approx(2 * 1.96 * 0.177, abs=0.1)
    assert none.high == none.low == 0.5


def test_the_interval_over_seeds_by_hand() -> None:
    cases = pl.concat(
        [frame({"p": [True] * k + [False] * (10 - k)}, seed=n) for n, k in enumerate((4, 5, 6))]
    )
    score = score_of(cases, None)
    assert score.by_seed == (0.4, 0.5, 0.6)
    assert score.value == pytest.approx(0.5)
    # t(0.975, 2) = 4.303 times 0.1 / sqrt(3).
    assert score.seed_high - 0.5 == pytest.approx(4.303 * 0.1 / np.sqrt(3), abs=1e-3)


def test_one_seed_has_no_interval_over_seeds() -> None:
    assert score_of(frame({"p": [True]}), None).seed_low is None


def test_the_aggregate_is_the_mean_of_the_tests() -> None:
    parts = [
        score_of(frame({"p": [True], "q": [False]}), None),
        score_of(frame({"r": [True], "s": [True]}), None),
    ]
    whole = aggregate(parts)
    assert whole.value == 0.75
    assert whole.cases == 4
    # Genres are 0, 0.5 or 1 in the bootstrap, raters always 1.
    assert (whole.low, whole.high) == (0.5, 1.0)


def test_a_test_without_cases_is_left_out_of_the_aggregate() -> None:
    empty = score_of(frame({}), None)
    parts = [score_of(frame({"p": [True]}), None), empty]
    assert aggregate(parts).value == 1.0


# -- paired tests -------------------------------------------------------------------------------


def test_the_same_configuration_differs_by_nothing() -> None:
    one = frame({f"p{n}": [True, False] for n in range(6)})
    (genres, whole) = compare(one, one, (None, None), ("genres",))
    d = genres.difference
    assert (d.value, d.low, d.high, genres.p) == (0.0, 0.0, 0.0, 1.0)
    assert whole.figure == "aggregate"


def test_the_permutation_test_by_hand() -> None:
    # Five users, each better on the left: of 32 ways to exchange sides 2 are as extreme.
    left = frame({f"p{n}": [True] for n in range(5)})
    right = frame({f"p{n}": [False] for n in range(5)})
    genres, _ = compare(left, right, (None, None), ("genres",))
    assert genres.difference.value == 1.0
    assert genres.p == pytest.approx(2 / 32)


def test_only_cases_that_both_rated_are_compared() -> None:
    left = frame({"p": [True, True, True]})
    right = frame({"p": [True, False, False]}).with_columns(
        status=pl.when(pl.col("case") == 2).then(pl.lit("invalid")).otherwise("status")
    )
    genres, _ = compare(left, right, (None, None), ("genres",))
    assert genres.difference.value == 0.5, "of the first two"


def test_pairing_sees_what_separate_intervals_do_not() -> None:
    # Users differ much from each other, the configurations little but always.
    left = {f"p{n}": [k < n * 10 + 5 for k in range(100)] for n in range(9)}
    right = {f"p{n}": [k < n * 10 for k in range(100)] for n in range(9)}
    scores = [score_of(frame(rows), None) for rows in (left, right)]
    assert scores[0].low < scores[1].high, "the intervals overlap"
    genres, _ = compare(frame(left), frame(right), (None, None), ("genres",))
    assert genres.difference.low > 0
    assert genres.p < 0.01


def test_an_effect_is_the_mean_over_pairs_of_configurations_by_hand() -> None:
    # Two users, one with two cases; the option gains 0.5 in one pair and nothing in the other.
    plain = frame({"a": [False, False], "b": [False]}).with_columns(chance=pl.lit(0.2))
    better = plain.with_columns(chance=pl.lit(0.7))
    (genres,) = mean_effect([(better, plain), (plain, plain)])
    assert genres.difference.value == pytest.approx(0.25)
    assert (genres.difference.low, genres.difference.high) == (
        pytest.approx(0.25),
        pytest.approx(0.25),
    )
    assert (genres.n, genres.p) == (2, pytest.approx(0.5))


def test_an_effect_counts_cases_that_both_sides_rated() -> None:
    left = frame({"a": [True, True]}).with_columns(chance=pl.Series([0.9, None]))
    right = frame({"a": [True, True]}).with_columns(chance=pl.Series([0.4, 0.1]))
    (genres,) = mean_effect([(left, right)])
    assert genres.difference.value == pytest.approx(0.5)


# -- the grid -----------------------------------------------------------------------------------


def test_the_full_grid_is_every_combination() -> None:
    found, asked = configurations("movies", "llm", "full")
    wordings = 3
    assert len(found) == asked == 3 * 3 * 2 * 5 * 3 + wordings
    books, _ = configurations("books", "llm", "full")
    assert len(books) == 1 * 3 * 2 * 5 * 3 + wordings
    assert {o.scale for o in books} == {"1-5"}


def test_the_small_grid_changes_one_option_at_a_time() -> None:
    found, asked = configurations("movies", "llm", "small")
    base = found[0].metadata()
    assert len(found) == asked == 15
    changes = [sum(base[k] != v for k, v in o.metadata().items()) for o in found[1:]]
    assert changes == [1] * 14


def test_sealed_paraphrases_are_asked_only_on_request() -> None:
    def wordings(**options: bool) -> set[str]:
        found, _ = configurations("movies", "llm", "small", **options)
        return {o.wording for o in found}

    assert wordings() == {"own", "own-text", "open", "open-text"}
    assert wordings(sealed=True) == wordings() | {"sealed", "sealed-text"}


def test_options_that_a_rater_cant_see_make_one_configuration() -> None:
    statistical, asked = configurations("movies", "statistical", "full")
    assert asked == 273
    # It reads no text where there are fields.
    assert len(statistical) == 5 * 3 + 2
    assert {(o.shots, o.system) for o in statistical} == {("-", "-")}
    for baseline in ("random", "mean"):
        assert len(configurations("movies", baseline, "full")[0]) == 3
    assert seen(Options("0-9"), "llm") == Options("0-9")
