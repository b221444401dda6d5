"""The keywords that every form of the environment takes, checked in one place."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import gymnasium
import numpy as np

from pipelines.errors import ConfigError
from pipelines.hints import nearest
from sim.environment.noise import PERTURBATIONS

MemoryKind = Literal["episode", "persistent"]
ObservationKind = Literal["recent", "ratings", "compact"]
Perturbation = Literal["none", "greedy", "gaussian"]
Unrated = Literal["abort", "truncate"]
#: Items watched before an episode at most (count): two numbers each are fetched at once.
MAX_WATCHED = 250


@dataclass(frozen=True)
class Options:
    """Behaviour of an environment; see ``RecommendationEnv``. ConfigError if out of range."""

    length_limit: int = 200
    leave_probability: float = 0.025
    history_length: int = 10
    observation: ObservationKind = "recent"
    retrieved: int = 10
    memory: MemoryKind = "episode"
    perturbation: Perturbation = "none"
    perturbation_strength: float = 0.0
    reward_shaping: float | None = None
    on_unrated: Unrated = "abort"
    watched: int = 0

    def __post_init__(self) -> None:
        _within("length_limit", self.length_limit, 1, None)
        _within("leave_probability", self.leave_probability, 0, 1)
        _within("history_length", self.history_length, 1, None)
        _one_of("observation", self.observation, get_args(ObservationKind))
        _within("retrieved", self.retrieved, 0, None)
        _one_of("memory", self.memory, get_args(MemoryKind))
        _one_of("perturbation", self.perturbation, PERTURBATIONS)
        highest = 1.0 if self.perturbation == "greedy" else None
        _within("perturbation_strength", self.perturbation_strength, 0, highest)
        if self.perturbation == "none" and self.perturbation_strength:
            raise ConfigError(
                f"perturbation_strength is {self.perturbation_strength} without a perturbation",
                where="environment",
                hint="perturbation is 'greedy' or 'gaussian'",
            )
        if self.reward_shaping is not None:
            _within("reward_shaping", self.reward_shaping, 0, 1)
        _one_of("on_unrated", self.on_unrated, get_args(Unrated))
        _within("watched", self.watched, 0, MAX_WATCHED)


def check_keys(options: dict[str, object], known: tuple[str, ...]) -> None:
    """Refuse unknown keys of ``reset(options=…)``, naming the nearest known one."""
    for key in options:
        if key not in known:
            hint = nearest(key, known, cutoff=0.4)
            raise ConfigError(f"unknown option {key!r}", where="reset(options=…)", hint=hint)


def check_arguments(environment: type, unknown: Mapping[str, object]) -> None:
    """Refuse unknown keyword arguments of an environment, naming the nearest known one."""
    if unknown:
        names = dict.fromkeys(
            name
            for kind in environment.__mro__
            if "__init__" in vars(kind)
            for name, parameter in inspect.signature(kind).parameters.items()
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
        )
        first = next(iter(unknown))
        raise ConfigError(
            f"unknown argument {first!r}",
            where=environment.__name__,
            hint=nearest(first, names, cutoff=0.4),
        )


def supported_render_mode(environment: Any, mode: str | None) -> str | None:
    """The render mode, or None with a warning if the environment does not have it.

    Libraries ask for images unless told otherwise; gymnasium goes on without them, too.
    """
    modes = environment.metadata["render_modes"]
    if mode is None or mode in modes:
        return mode
    gymnasium.logger.warn(
        f"render_mode {mode!r} is not supported by {type(environment).__name__} and is ignored "
        f"(it has: {', '.join(map(repr, modes)) or 'none'})"
    )
    return None


def seeds_of(seed: int | Sequence[int | None] | None, envs: int) -> list[int | None]:
    """Seed of each environment of ``reset(seed=…)``: ``seed + i``, or the i-th of a sequence."""
    if seed is None:
        return [None] * envs
    if isinstance(seed, int | np.integer):
        return [int(seed) + n for n in range(envs)]
    if len(seed) != envs:
        raise ConfigError(f"{len(seed)} seeds for {envs} environments", where="reset(seed=…)")
    return list(seed)


def _within(name: str, value: float, low: float, high: float | None) -> None:
    # Not a number compares false with everything.
    if not low <= value <= (float("inf") if high is None else high):
        limits = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ConfigError(f"{name} is {value}", where="environment", hint=limits)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ConfigError(f"{name} is {value!r}", where="environment", hint=nearest(value, allowed))
