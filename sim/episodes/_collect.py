"""Episodes of simple policies, for logs."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from sim.environment import RecommendationVectorEnv
from sim.episodes._log import EpisodeLog, VectorEpisodeRecorder

CollectPolicy = Literal["random", "popular"]

#: Seeds of the policy are kept apart from those of the environments.
_STREAM = 1


def collect(
    env: RecommendationVectorEnv, episodes: int, *, policy: CollectPolicy = "random", seed: int = 0
) -> EpisodeLog:
    """Play until some episodes are over.

    Those are taken that begin first, so that short ones are not preferred. The policy ``random``
    plays any item that the persona has not rated, nor the user that it is matched to in training;
    ``popular`` plays the most rated of those. Items are met again where all have been. Environment
    i gets the seed ``seed + i``.
    """
    recorder = VectorEpisodeRecorder(env)
    rng = np.random.default_rng([seed, _STREAM])
    recorder.reset(seed=seed)
    began = env.num_envs
    # The first episodes in the order in which they begin, by environment among equals.
    number = np.arange(began)
    wanted: list[int] = []
    rank = env.catalogue.popularity
    while sum(w < episodes for w in wanted) < episodes:
        _, _, terminated, truncated, _ = recorder.step(_actions(env, policy, rng, rank))
        for row in np.flatnonzero(terminated | truncated).tolist():
            wanted.append(int(number[row]))
            number[row] = began
            began += 1
    order = sorted((w, place) for place, w in enumerate(wanted) if w < episodes)
    recorder.log.episodes = [recorder.log.episodes[place] for _, place in order]
    return recorder.log


def _actions(
    env: RecommendationVectorEnv,
    policy: CollectPolicy,
    rng: np.random.Generator,
    rank: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    items = len(env.catalogue)
    met = env.core.memory.items[:, : env.core.memory.width]
    seen = np.zeros((env.num_envs, items + 1), np.bool_)
    # Padding is -1: the last column, which is cut off.
    np.put_along_axis(seen, met, True, axis=1)
    np.put_along_axis(seen, env.world.known[env.core.persona], True, axis=1)
    fresh = ~seen[:, :items]
    fresh |= ~fresh.any(axis=1, keepdims=True)
    if policy == "popular":
        return np.asarray(rank[fresh[:, rank].argmax(axis=1)], np.int64)
    return np.asarray((rng.random(fresh.shape) * fresh).argmax(axis=1), np.int64)
