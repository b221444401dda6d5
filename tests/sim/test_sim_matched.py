"""Personas that stand for real users: what is masked for them, and whose traits they have."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest

from pipelines.errors import ReleaseError
from pipelines.seeding import hash_ids
from sim import Release, open_release
from sim.environment import (
    RecommendationEnv,
    RecommendationVectorEnv,
    World,
    histories,
    known_items,
    persona_traits,
)
from sim.episodes import collect
from sim.recommenders import RECOMMENDERS, OracleRecommender, open_recommender

#: Personas 0-5 are sampled; 6, 7 and 8 are users 1, 2 and 3.
USERS = (None, None, None, None, None, None, "ml-user:1", "ml-user:2", "ml-user:3")


@pytest.fixture(scope="module")
def matched(small: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The small release with three matched personas."""
    home = tmp_path_factory.mktemp("matched") / "home"
    small.build(home, without=("persona_embeddings",), replace=small.matched_frames())
    return open_release("movies", home=home)


@pytest.fixture(scope="module")
def world(matched: Release) -> World:
    return World.open(matched)


def rated(release: Release, user: str | None, *splits: str) -> set[int]:
    """Item numbers of a user's rows, counted by hand."""
    if user is None:
        return set()
    ids = sorted(release["items"].polars(["item_id"])["item_id"])
    rows = (
        release["splits"]
        .polars()
        .filter((pl.col("user_id") == user) & pl.col("split").is_in(splits))
    )
    return {ids.index(item) for item in rows["item_id"]}


def test_known_items_are_training_rows_of_matched_users(world: World) -> None:
    for row, user in zip(world.known.tolist(), USERS, strict=True):
        assert {n for n in row if n >= 0} == rated(world.release, user, "train")
    both = known_items(world.release, ("train", "test"))
    assert {n for n in both[7].tolist() if n >= 0} == rated(
        world.release, "ml-user:2", "train", "test"
    )


def test_an_unknown_item_in_a_history_is_named() -> None:
    rows = pl.DataFrame({"user_id": ["a"], "item_id": ["ml:99"]})
    with pytest.raises(ReleaseError, match=r"unknown item: interactions, ml:99"):
        histories(rows, ["a"], ["ml:1"])


@pytest.mark.parametrize("observation", ["recent", "ratings"])
def test_observations_mark_training_items_as_seen(world: World, observation: Any) -> None:
    env = RecommendationVectorEnv(3, world=world, observation=observation, leave_probability=0.0)
    seen = env.reset(seed=1, options={"personas": [0, 6, 8]})[0]["seen"]
    for row, user in zip(seen, (None, "ml-user:1", "ml-user:3"), strict=True):
        assert set(np.flatnonzero(row).tolist()) == rated(world.release, user, "train")
    free = int(np.flatnonzero(seen[1] == 0)[0])
    after = env.step([free] * 3)[0]["seen"]
    assert (after[1] - seen[1]).tolist() == [int(n == free) for n in range(24)]
    other = RecommendationVectorEnv(3, world=world, observation=observation)
    other.reset(seed=5)
    other.restore(env.state())
    assert (other.observe()["seen"] == after).all()


@pytest.mark.parametrize("policy", ["random", "popular"])
def test_collected_episodes_leave_out_training_items(world: World, policy: Any) -> None:
    env = RecommendationVectorEnv(3, world=world, length_limit=6, leave_probability=0.0)
    log = collect(env, 12, policy=policy, seed=3)
    who = {f"persona:{p}": user for p, user in zip(world.cast.ids, USERS, strict=True)}
    met = 0
    for episode in log.episodes:
        user = who[f"persona:{world.cast.ids[int(episode.observations['persona'][0])]}"]
        known = rated(world.release, user, "train")
        assert not known & set(np.asarray(episode.actions).tolist())
        met += bool(known)
    assert met > 0


@pytest.mark.parametrize("name", [*RECOMMENDERS, "oracle"])
def test_simulated_lists_leave_out_training_items(world: World, name: str) -> None:
    from sim.recommenders import Audience

    needs = {"als": "implicit", "bpr": "implicit", "item-knn": "implicit"}
    needs |= {"multvae": "cornac", "lightgcn": "torch_geometric"}
    if name in needs:
        pytest.importorskip(needs[name])
    fast: dict[str, Any] = {"multvae": {"epochs": 2}, "lightgcn": {"epochs": 2}}
    made = (
        OracleRecommender(world.rater)
        if name == "oracle"
        else open_recommender(name, **fast.get(name, {}))
    )
    played = Audience(world).play(made.fit(world.release), seed=2)
    for row, user in zip(played.items.tolist(), USERS, strict=True):
        assert not rated(world.release, user, "train") & set(row)
        assert len(set(row) - {-1}) == min(10, 24 - len(rated(world.release, user, "train")))


@pytest.mark.parametrize("algo", ["a2c", "dqn"])
def test_training_recommends_no_training_or_test_items(
    world: World, algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sim.training import RunSettings, Training
    from sim.training._adapter import SB3VecEnv

    met: dict[int, set[int]] = {}
    step = SB3VecEnv.step_wait

    def recorded(self: SB3VecEnv) -> Any:
        for persona, item in zip(self.env.core.persona, self._actions, strict=True):
            met.setdefault(int(persona), set()).add(int(item))
        return step(self)

    monkeypatch.setattr(SB3VecEnv, "step_wait", recorded)
    settings = RunSettings(
        algo=algo, components=2, length_limit=6, seed=4, steps=1536, evaluate_every=10**6
    )
    policy = Training(world, settings, tmp_path / algo).run().policy
    sampled = set[int]().union(*(met[n] for n in range(6)))
    for number, user in enumerate(USERS[6:], 6):
        masked = rated(world.release, user, "train", "test")
        assert met[number]
        assert not met[number] & masked
        assert sampled & masked
    # The policy itself masks only what its caller does.
    lists = policy.recommend([6], 24)
    assert set(lists[0].tolist()) == set(range(24))


def test_matched_personas_have_the_traits_of_their_users(matched: Release) -> None:
    traits = matched["training_traits"].polars()
    found = persona_traits(matched)
    assert found["persona_id"].to_list() == sorted(matched["personas"].polars()["persona_id"])
    assert found["matched"].to_list() == [user is not None for user in USERS]
    assert found["user_id"].to_list()[6:] == list(USERS[6:])
    rows = found.drop("persona_id", "matched")
    assert rows.join(traits, on=traits.columns, how="semi").height == 9


def test_sampled_personas_borrow_the_traits_of_one_person(matched: Release) -> None:
    people = sorted(matched["training_traits"].polars()["user_id"])
    ids = [f"persona:default:{n}" for n in range(6)]
    expected = [people[int(key) % 40] for key in hash_ids(ids)]
    assert persona_traits(matched)["user_id"].to_list()[:6] == expected
    assert len(set(expected)) > 1


def test_resets_report_the_traits_of_the_persona(world: World, release: Release) -> None:
    _, info = RecommendationEnv(world=world).reset(
        seed=0, options={"persona_id": world.cast.ids[7]}
    )
    assert info["traits"]["user_id"] == "ml-user:2"
    assert info["traits"]["activity"] == len(rated(world.release, "ml-user:2", "train"))
    assert RecommendationEnv(release).reset(seed=0)[1]["traits"] is None
