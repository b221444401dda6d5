"""The movie environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import polars as pl
import pytest

from pipelines.errors import AnswerError, ConfigError, ReleaseError
from pipelines.raters import BoundRater, RatingBatch
from pipelines.scales import SCALES
from sim import ENVIRONMENTS, Release, open_release
from sim.environment import (
    Catalogue,
    PersonaTable,
    RecommendationEnv,
    RecommendationVectorEnv,
    World,
)

Step = tuple[dict[str, Any], float, bool, bool, dict[str, Any]]


class Fixed(BoundRater):
    """A rater that gives what it is told, and remembers what it was asked."""

    name, language_model, note = "fixed", False, "A test."

    def __init__(self, reply: Sequence[float] | str, items: int = 24) -> None:
        self.reply, self.items, self.scale = reply, items, SCALES["1-5"]
        self.asked: list[tuple[int, int, list[int], list[float]]] = []

    def rate(
        self,
        personas: np.ndarray,
        items: np.ndarray,
        past: np.ndarray,
        ratings: np.ndarray,
        met: np.ndarray | None = None,
    ) -> RatingBatch:
        for persona, item, row, given in zip(personas, items, past, ratings, strict=True):
            there = row >= 0
            self.asked.append((int(persona), int(item), row[there].tolist(), given[there].tolist()))
        n = len(items)
        if isinstance(self.reply, str):
            return RatingBatch(self.scale, np.full((n, 5), np.nan), [self.reply] * n)
        return RatingBatch(self.scale, np.tile(np.array(self.reply, float), (n, 1)), ["ok"] * n)

    def sweep(self, persona: int, past: np.ndarray, ratings: np.ndarray) -> np.ndarray:
        return np.zeros(self.items)

    def explain(
        self, persona: int, item: int, past: np.ndarray, ratings: np.ndarray
    ) -> dict[str, float]:
        return {"whim": 1.0}


def certain(answer: int) -> list[float]:
    return [float(a == answer) for a in range(1, 6)]


@pytest.fixture(scope="module")
def statistical(release: Release) -> Any:
    return World.open(release).rater


def play(env: Any, seed: int, actions: Sequence[int], **options: str) -> list[Any]:
    out: list[Any] = [env.reset(seed=seed, options=options)]
    for action in actions:
        out.append(env.step(action))
        if out[-1][2] or out[-1][3]:
            break
    return out


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))


def test_the_registry_holds_exactly_what_we_say() -> None:
    ours = {name for name in gymnasium.registry if name.startswith("Understudy/")}
    assert ours == set(ENVIRONMENTS)


def test_observations_lie_in_their_space_through_whole_episodes(
    release: Release, statistical: Any
) -> None:
    env = RecommendationEnv(release, rater=statistical, history_length=3)
    rng = np.random.default_rng(1)
    for seed in range(5):
        observation, _ = env.reset(seed=seed)
        over = False
        while not over:
            assert env.observation_space.contains(observation)
            observation, reward, terminated, truncated, _ = env.step(int(rng.integers(24)))
            assert reward in env.scale.answers
            over = terminated or truncated


def test_the_same_seed_gives_the_same_trajectory(release: Release, statistical: Any) -> None:
    actions = [3, 9, 3, 0, 23, 11, 11, 5] * 10
    first = play(RecommendationEnv(release, rater=statistical), 7, actions)
    second = play(RecommendationEnv(release), 7, actions)
    assert same(first, second)
    other = play(RecommendationEnv(release, rater=statistical), 8, actions)
    assert not same(first, other)


def test_resetting_without_a_seed_goes_on_with_the_generator(
    release: Release, statistical: Any
) -> None:
    env = RecommendationEnv(release, rater=statistical)
    env.reset(seed=5)
    once = [env.reset()[1]["persona_id"] for _ in range(8)]
    env.reset(seed=5)
    assert [env.reset()[1]["persona_id"] for _ in range(8)] == once
    assert len(set(once)) > 1


def test_global_random_state_plays_no_part(release: Release, statistical: Any) -> None:
    env = RecommendationEnv(release, rater=statistical)
    np.random.seed(1)  # noqa: NPY002 - what must not matter
    first = play(env, 3, [1, 2, 3])
    np.random.seed(2)  # noqa: NPY002
    state = np.random.get_state()[1].copy()  # noqa: NPY002
    assert same(first, play(env, 3, [1, 2, 3]))
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_the_persona_can_be_chosen_and_is_observed(release: Release, statistical: Any) -> None:
    env = RecommendationEnv(release, rater=statistical)
    observation, info = env.reset(seed=0, options={"persona_id": "persona:default:3"})
    assert info["persona_id"] == "persona:default:3"
    assert info["memory"] == "episode"
    assert info["rater"] == "statistical"
    assert (observation["persona"], observation["age"].tolist()) == (3, [53.0])
    assert observation["gender"] == PersonaTable.GENDERS.index("male")
    assert "Dan" in info["description"]


def test_choosing_the_drawn_persona_changes_nothing_else(
    release: Release, statistical: Any
) -> None:
    env = RecommendationEnv(release, rater=statistical)
    drawn = play(env, 4, [1, 2, 3])
    chosen = play(env, 4, [1, 2, 3], persona_id=drawn[0][1]["persona_id"])
    assert same(drawn, chosen)


def test_an_unknown_persona_or_option_names_the_nearest(release: Release, statistical: Any) -> None:
    env = RecommendationEnv(release, rater=statistical)
    with pytest.raises(ReleaseError, match="persona:default:3"):
        env.reset(options={"persona_id": "persona:defualt:3"})
    with pytest.raises(ConfigError, match="did you mean persona_id"):
        env.reset(options={"persona": "x"})


def test_memory_is_newest_first_padded_and_passed_to_the_rater(release: Release) -> None:
    rater = Fixed(certain(4))
    env = RecommendationEnv(release, rater=rater, history_length=3, leave_probability=0.0)
    observation, _ = env.reset(seed=0)
    assert observation["recent_items"].tolist() == [-1, -1, -1]
    assert observation["recent_ratings"].tolist() == [-1, -1, -1]
    assert observation["seen"].sum() == 0
    for action in (5, 6, 7, 8):
        observation = env.step(action)[0]
    assert observation["recent_items"].tolist() == [8, 7, 6]
    assert observation["recent_ratings"].tolist() == [4, 4, 4]
    assert np.flatnonzero(observation["seen"]).tolist() == [5, 6, 7, 8]
    assert rater.asked[-1][1:] == (8, [5, 6, 7], [4.0, 4.0, 4.0])
    observation, _ = env.reset()
    assert observation["seen"].sum() == 0
    env.step(0)
    assert rater.asked[-1][2:] == ([], [])


def test_ratings_of_the_episode_move_the_statistical_rater(
    release: Release, statistical: Any
) -> None:
    low, high = np.full(10, 1.0), np.full(10, 10.0)
    seen = np.arange(10)
    assert statistical.sweep(0, seen, low).mean() < statistical.sweep(0, seen, high).mean()


def test_the_statistical_rater_agrees_with_itself_in_bulk_and_alone(
    release: Release, statistical: Any
) -> None:
    bulk = statistical.sweep(2, np.array([4]), np.array([9.0]))
    memory = np.array([[4]]), np.array([[9.0]])
    alone = [
        statistical.rate(np.array([2]), np.array([item]), *memory).expected[0] for item in range(24)
    ]
    np.testing.assert_array_equal(bulk, alone)
    # Persona 2 likes Drama and Romance and dislikes Action and Thriller.
    genres = Catalogue.read(release).frame["genres"].to_list()
    liked = [bulk[n] for n, g in enumerate(genres) if "Drama" in g]
    disliked = [bulk[n] for n, g in enumerate(genres) if "Action" in g]
    assert min(liked) > max(disliked)


def test_the_statistical_rater_uses_the_scale_the_release_was_scored_on(
    small: ModuleType, tmp_path: Path
) -> None:
    small.build(tmp_path, settings={"scoring": {"scale": "1-5", "seed": 3}})
    env = RecommendationEnv("movies", home=tmp_path)
    assert env.scale.name == "1-5"
    assert env.observation_space["recent_ratings"].high.max() == 5


def test_a_repeated_film_is_allowed_and_flagged(release: Release) -> None:
    env = RecommendationEnv(release, rater=Fixed(certain(2)), leave_probability=0.0)
    env.reset(seed=0)
    assert [env.step(a)[4]["repeated"] for a in (1, 2, 1, 1)] == [False, False, True, True]


@pytest.mark.parametrize("observation", ["recent", "compact"])
def test_mask_is_false_for_items_met_before(observation: str, release: Release) -> None:
    env = RecommendationEnv(
        release, rater=Fixed(certain(2)), leave_probability=0.0, observation=observation
    )
    _, info = env.reset(seed=0)
    assert env.action_masks().all()
    assert ("action_mask" in info) == (observation == "recent")
    for item in (5, 2, 5):
        _, _, _, _, info = env.step(item)
    assert np.flatnonzero(~env.action_masks()).tolist() == [2, 5]
    if observation == "recent":
        assert np.array_equal(info["action_mask"], env.action_masks())


def test_the_reward_is_a_draw_from_the_distribution(release: Release) -> None:
    shares = np.array([0.1, 0.0, 0.2, 0.0, 0.7])
    env = RecommendationEnv(
        release,
        rater=Fixed(shares),
        leave_probability=0.0,
        length_limit=10_000,
    )
    env.reset(seed=11)
    counts = Counter(env.step(0)[1] for _ in range(4000))
    assert set(counts) == {1.0, 3.0, 5.0}
    for answer, share in ((1.0, 0.1), (3.0, 0.2), (5.0, 0.7)):
        # Four standard errors of a share of 4000 draws.
        assert abs(counts[answer] / 4000 - share) < 4 * np.sqrt(share * (1 - share) / 4000)


def test_the_length_limit_truncates_and_does_not_terminate(release: Release) -> None:
    env = RecommendationEnv(release, rater=Fixed(certain(1)), leave_probability=0.0, length_limit=3)
    steps = play(env, 0, [1, 2, 3, 4, 5])[1:]
    assert [(s[2], s[3]) for s in steps] == [(False, False), (False, False), (False, True)]


def test_leaving_terminates_with_the_given_probability(release: Release) -> None:
    env = RecommendationEnv(release, rater=Fixed(certain(1)), leave_probability=1.0)
    assert [(s[2], s[3]) for s in play(env, 0, [1, 2])[1:]] == [(True, False)]
    env = RecommendationEnv(release, rater=Fixed(certain(1)), length_limit=100_000)
    env.reset(seed=2)
    left = sum(env.step(0)[2] for _ in range(4000))
    # Binomial(4000, 0.025): 100 with a standard deviation of 9.9.
    assert abs(left - 100) < 40


@pytest.mark.parametrize("status", ["refused", "truncated", "invalid", "engine_error"])
def test_a_failed_rating_is_never_a_rating(status: str, release: Release) -> None:
    rater = Fixed(certain(5))
    env = RecommendationEnv(release, rater=rater, leave_probability=0.0, on_unrated="truncate")
    env.reset(seed=0)
    env.step(1)
    rater.reply = status
    observation, reward, terminated, truncated, info = env.step(2)
    assert (reward, terminated, truncated) == (0.0, False, True)
    assert info["rating"] is None
    assert info["rating_status"] == status
    assert observation["seen"].sum() == 1
    assert observation["recent_items"].tolist()[:2] == [1, -1]


def test_a_failed_rating_aborts_by_default_and_names_the_pair(release: Release) -> None:
    env = RecommendationEnv(release, rater=Fixed("refused"))
    env.reset(seed=0, options={"persona_id": "persona:default:1"})
    item = env.catalogue.row("ml:2")
    with pytest.raises(AnswerError, match=r"refused.*persona:default:1 for ml:2"):
        env.step(item)


def test_replay_gives_stored_distributions_and_reasons(release: Release, small: ModuleType) -> None:
    env = RecommendationEnv(release, rater="replay", on_unrated="truncate", leave_probability=0.0)
    assert env.scale.name == "1-5"
    assert env.rater.name == "replay of statistical"
    assert env.rater.language_model is False
    env.reset(seed=0, options={"persona_id": "persona:default:2"})
    assert [env.step(a)[1] for a in (0, 5, 9)] == [3.0, 3.0, 3.0]
    for (persona, item), status in ((small.REFUSED, "refused"), (small.UNSCORED, "invalid")):
        env.reset(seed=0, options={"persona_id": persona})
        assert env.step(env.catalogue.row(item))[4]["rating_status"] == status
        expected = env.expected()
        absent = {env.catalogue.row(small.REFUSED[1]), env.catalogue.row(small.UNSCORED[1])}
        assert set(np.flatnonzero(np.isnan(expected))) == absent
        assert set(expected[~np.isnan(expected)]) == {2.0}


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [("rater", "other", "no single rater"), ("probabilities", [1.0], "do not have 5 answers")],
)
def test_replay_refuses_scores_it_cannot_use(
    column: str, value: Any, what: str, small: ModuleType, tmp_path: Path
) -> None:
    scores = small.frames()["movies.preference_scores"]
    first = pl.int_range(pl.len()) == 0
    kind = scores.schema[column]
    changed = scores.with_columns(
        pl.when(first).then(pl.lit(value, dtype=kind)).otherwise(pl.col(column)).alias(column)
    )
    small.build(tmp_path, replace={"movies.preference_scores": changed})
    with pytest.raises(ReleaseError, match=what):
        RecommendationEnv("movies", home=tmp_path, rater="replay")


def test_release_with_the_old_rater_name_opens(small: ModuleType, tmp_path: Path) -> None:
    old = pl.lit("embedded")
    small.build(
        tmp_path,
        replace={
            "movies.preference_scores": small.frames()["movies.preference_scores"].with_columns(
                rater=old
            ),
            "movies.personas": small.frames()["movies.personas"].with_columns(writer=old),
        },
        settings={"scoring": {"rater": "embedded", "scale": "1-5"}},
    )
    replay = RecommendationEnv("movies", home=tmp_path, rater="replay", on_unrated="truncate")
    assert (replay.rater.name, replay.rater.language_model) == ("replay of statistical", False)
    replay.reset(seed=0, options={"persona_id": "persona:default:2"})
    assert replay.step(0)[1] == 3.0
    with pytest.warns(FutureWarning, match="statistical"):
        fitted = RecommendationEnv("movies", home=tmp_path, rater="embedded")
    assert (fitted.rater.name, fitted.scale.name) == ("statistical", "1-5")


@pytest.mark.parametrize("action", [-1, 24, 1.5, "ml:1", None])
def test_an_action_that_is_no_item_is_a_named_error_and_changes_nothing(
    action: Any, release: Release
) -> None:
    env = RecommendationEnv(release, rater=Fixed(certain(3)), leave_probability=0.0)
    twin = RecommendationEnv(release, rater=Fixed(certain(3)), leave_probability=0.0)
    env.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(ConfigError, match=r"not an item.*0 to 23"):
        env.step(action)
    assert same(env.step(4), twin.step(4))


def test_stepping_before_a_reset_is_a_named_error(release: Release) -> None:
    env = RecommendationEnv(release, rater=Fixed(certain(3)))
    with pytest.raises(ConfigError, match="reset"):
        env.step(0)
    with pytest.raises(ConfigError, match="reset"):
        env.expected()


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("length_limit", 0),
        ("leave_probability", 1.5),
        ("leave_probability", float("nan")),
        ("history_length", 0),
        ("on_unrated", "ignore"),
        ("rater", "statisticl"),
        ("retriever", "embeddings"),
        ("retrieved", -1),
        ("memory", "forever"),
        ("perturbation", "gauss"),
        ("perturbation_strength", 0.5),
        ("reward_shaping", 1.5),
        ("observation", "rating"),
    ],
)
def test_a_bad_argument_is_named(argument: str, value: Any, release: Release) -> None:
    with pytest.raises(ConfigError, match=argument):
        RecommendationEnv(release, **{argument: value})


@pytest.mark.parametrize("mode", ["rgb_array", "human"])
def test_unsupported_render_mode_is_ignored_with_a_warning(mode: str, release: Release) -> None:
    with pytest.warns(UserWarning, match=f"'{mode}' is not supported by RecommendationEnv"):
        env = RecommendationEnv(release, render_mode=mode)
    env.reset(seed=0)
    assert (env.render_mode, env.render()) == (None, None)


@pytest.mark.parametrize(
    ("rater", "without", "missing"),
    [
        ("statistical", ("interactions",), "interactions"),
        ("statistical", ("splits", "item_stats"), "item_stats, splits"),
        ("replay", ("preference_scores",), "preference_scores"),
        ("replay", ("personas",), "personas"),
    ],
)
def test_a_release_without_the_needed_tables_names_them(
    rater: Any, without: tuple[str, ...], missing: str, small: ModuleType, tmp_path: Path
) -> None:
    small.build(tmp_path, without=without)
    with pytest.raises(ReleaseError, match=missing):
        RecommendationEnv("movies", home=tmp_path, rater=rater)


def test_embeddings_are_optional(small: ModuleType, tmp_path: Path) -> None:
    small.build(tmp_path, without=("item_embeddings", "persona_embeddings"))
    env = RecommendationEnv("movies", home=tmp_path)
    env.reset(seed=0)
    assert env.step(0)[4]["rating_status"] == "ok"


def test_ansi_rendering_is_readable(release: Release) -> None:
    env = RecommendationEnv(
        release, rater=Fixed(certain(4)), leave_probability=0.0, render_mode="ansi"
    )
    env.reset(seed=0, options={"persona_id": "persona:default:1"})
    assert env.render() == (
        "Ben, 31, male, nurse (persona:default:1)\n"
        "likes Comedy\n"
        "dislikes Horror, Sci-Fi\n"
        "Ben lives in a town by the river and sees a film every week."
    )
    env.step(env.catalogue.row("ml:1"))
    assert env.render() == ("  1. Film 1 (1972) · Action, Thriller\n     ★★★★☆ 4/5  expected 4.0")
    env.step(env.catalogue.row("ml:1"))
    assert "(again)" in (env.render() or "")
    assert RecommendationEnv(release, rater=Fixed(certain(4))).render() is None


def test_drivers_come_when_asked_for(release: Release, statistical: Any) -> None:
    env = RecommendationEnv(release, rater=statistical, explain=True)
    env.reset(seed=0, options={"persona_id": "persona:default:2"})
    liked = env.step(env.catalogue.row("ml:13"))[4]["drivers"]
    assert liked["agreement"] > 0.5
    assert RecommendationEnv(release, rater=statistical).explain is False


def test_popularity_orders_by_rank_then_by_id(release: Release) -> None:
    catalogue = Catalogue.read(release)
    stats = release["item_stats"].polars().sort("popularity_rank")
    assert [catalogue.ids[n] for n in catalogue.popularity] == stats["item_id"].to_list()


def test_an_environment_works_in_gymnasiums_vector_form(release: Release, statistical: Any) -> None:
    envs = gymnasium.make_vec(
        "Understudy/Movies-v0",
        num_envs=3,
        vectorization_mode="sync",
        release=open_release(release.path),
        rater=statistical,
    )
    observation, _ = envs.reset(seed=[1, 2, 3])
    assert observation["seen"].shape == (3, 24)
    observation, reward, *_ = envs.step(np.array([0, 1, 2]))
    assert reward.shape == (3,)
    envs.close()


def test_personas_of_other_domains_are_not_in_the_cast(small: ModuleType, tmp_path: Path) -> None:
    others = pl.Series("domain", ["movies", "books", "movies", "games", "movies", "books"])
    personas = small.frames()["movies.personas"].with_columns(others)
    small.build(tmp_path / "home", replace={"movies.personas": personas})
    cast = PersonaTable.read(open_release("movies@latest", home=tmp_path / "home"))
    assert cast.ids == ["persona:default:0", "persona:default:2", "persona:default:4"]


def test_a_watched_past_is_remembered_and_observed(release: Release) -> None:
    rater = Fixed(certain(4))
    env = RecommendationEnv(release, rater=rater, watched=5, observation="ratings")
    seen, info = env.reset(seed=3)
    assert int(seen["seen"].sum()) == 5
    assert (seen["ratings"][seen["seen"] == 1] == 4.0).all()
    assert {persona for persona, *_ in rater.asked} == {env.cast.index(info["persona_id"])}
    env.step(0)
    assert len(rater.asked[-1][2]) == 5


def test_past_items_are_drawn_in_proportion_to_exposure(release: Release) -> None:
    env = RecommendationEnv(release, rater=Fixed(certain(4)), watched=1, observation="compact")
    ids = env.catalogue.ids
    env.reset(seed=1)
    first = [ids[env.reset()[0]["recent_items"][0]] for _ in range(2_000)]
    weight = {item: 1.0 / int(item.removeprefix("ml:")) for item in ids}
    for item in ("ml:1", "ml:2", "ml:24"):
        share = weight[item] / sum(weight.values())
        # Four standard errors of 2,000 draws.
        assert abs(first.count(item) / 2_000 - share) < 4 * np.sqrt(share * (1 - share) / 2_000)


def test_past_is_the_same_alone_and_in_the_vector_form(release: Release, statistical: Any) -> None:
    options: dict[str, Any] = {"rater": statistical, "watched": 4, "leave_probability": 0.3}
    many = RecommendationVectorEnv(3, release, **options)
    together = [many.reset(seed=5)[0]] + [many.step(np.array([n, n, n]))[0] for n in range(8)]
    for row in range(3):
        alone = RecommendationEnv(release, **options)
        seen = [alone.reset(seed=5 + row)[0]]
        for n in range(8):
            after, _, terminated, truncated, _ = alone.step(n)
            seen.append(alone.reset()[0] if terminated or truncated else after)
        for step, found in zip(together, seen, strict=True):
            assert same({key: values[row] for key, values in step.items()}, found)


def test_a_lasting_memory_gets_one_past(release: Release) -> None:
    env = RecommendationEnv(release, rater=Fixed(certain(4)), watched=3, memory="persistent")
    who = {"persona_id": "persona:default:2"}
    first = env.reset(seed=1, options=who)[0]["recent_items"]
    again = env.reset(options=who)[0]["recent_items"]
    assert np.array_equal(first, again)


def test_a_past_needs_exposure(small: ModuleType, tmp_path: Path) -> None:
    small.build(tmp_path, without=("score_plan",))
    bare = open_release("movies@latest", home=tmp_path)
    with pytest.raises(ReleaseError, match="score_plan"):
        RecommendationEnv(bare, rater=Fixed(certain(4)), watched=2)
    with pytest.raises(ConfigError, match="watched is 251"):
        RecommendationEnv(bare, rater=Fixed(certain(4)), watched=251)
