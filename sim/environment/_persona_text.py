"""A wrapper that puts the persona's text into the observation."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from sim.environment._env import Observation, RecommendationEnv
from sim.environment.text import persona_lines

#: Characters that texts are made of besides those that the personas use.
_LEAST = frozenset("abcdefghijklmnopqrstuvwxyz ")


class PersonaText(
    gymnasium.ObservationWrapper[Observation, Any, Observation],
    gymnasium.utils.RecordConstructorArgs,
):
    """Adds ``text``: who the persona is, in words, for policies that read.

    A ``Text`` space is not for Stable-Baselines3's standard policies; they take the environment
    without this wrapper.

    Examples
    --------
    >>> env = PersonaText(gymnasium.make("Understudy/Movies-v0"))       # doctest: +SKIP
    >>> env.reset(seed=0)[0]["text"]                                     # doctest: +SKIP
    'Ada, 20, female, student (persona:default:0)…'
    """

    def __init__(self, env: gymnasium.Env[Observation, Any]) -> None:
        gymnasium.utils.RecordConstructorArgs.__init__(self)
        gymnasium.ObservationWrapper.__init__(self, env)
        base = env.unwrapped
        assert isinstance(base, RecommendationEnv)
        self._base = base
        cast = base.cast
        self._texts = ["\n".join(persona_lines(row)) for row in cast.frame.iter_rows(named=True)]
        inner = env.observation_space
        assert isinstance(inner, spaces.Dict)
        text = spaces.Text(
            max_length=max(len(text) for text in self._texts),
            min_length=1,
            charset=frozenset().union(_LEAST, *self._texts),
        )
        self.observation_space = spaces.Dict({**inner.spaces, "text": text})

    def observation(self, observation: Observation) -> Observation:
        """The observation with the persona's text."""
        return {**observation, "text": self._texts[int(observation["persona"])]}
