"""An episode of a simple policy, as data and as text: the output of ``understudy episode``."""

from __future__ import annotations

from collections.abc import Iterator
from textwrap import fill
from typing import Any, Literal

import numpy as np

from pipelines.errors import AnswerError, ConfigError
from pipelines.raters import OK
from pipelines.scales import RatingScale
from sim.environment import RecommendationEnv, World
from sim.environment.text import persona_lines, step_line

Policy = Literal["random", "popular", "best"]

#: Seeds of the policy and of the persona are kept apart from those of the environment.
_POLICY_STREAM, _PERSONA_STREAM = 1, 2
#: Personas whose mean is the average viewer's rating at most (count).
_VIEWERS = 200
#: Width of descriptions (characters).
_WIDTH = 80


class Player:
    """Plays one episode in a world of at most ``steps`` steps.

    ``policy`` is ``random``: any item; ``popular``: the most rated;
    ``best``: the highest expected rating of this persona, which no recommender can see. No policy
    recommends an item twice, and with the rater ``replay`` only items with a stored rating are
    recommended.

    Raises ReleaseError if the release lacks a table that is needed, ConfigError if the policy is
    ``best`` and the rater a language model, AnswerError if a step gets no rating.
    """

    def __init__(
        self,
        world: World,
        *,
        policy: Policy = "popular",
        steps: int = 10,
    ) -> None:
        if policy == "popular":
            world.release.require("item_stats")
        self._env = RecommendationEnv(world=world, length_limit=steps, explain=True)
        if policy == "best" and self._env.rater.language_model:
            raise ConfigError(
                "policy best asks the language model about every item at every step",
                where="episode",
                hint="--policy popular or random",
            )
        self._policy = policy
        self._sampled = self._sampled_personas()
        self._rng = np.random.default_rng(0)
        self._played: list[dict[str, Any]] = []
        self._end = "not started"

    @property
    def scale(self) -> RatingScale:
        """The scale of the ratings."""
        return self._env.scale

    def start(self, *, seed: int, persona: str | None = None) -> dict[str, Any]:
        """Reset the environment and return what is going to be played.

        ``seed`` is that of the environment and of the policy. Without a ``persona`` (id) one of the
        sampled personas is drawn (of all, where a release has no sampled ones).
        """
        if persona is None:
            rng = np.random.default_rng([seed, _PERSONA_STREAM])
            persona = self._env.cast.ids[int(rng.choice(self._sampled))]
        options = {"persona_id": persona}
        observation, info = self._env.reset(seed=seed, options=options)
        self._rng = np.random.default_rng([seed, _POLICY_STREAM])
        self._played, self._end = [], "not finished"
        return {
            "release": info["release"],
            "rater": info["rater"],
            "language_model": self._env.rater.language_model,
            "note": self._env.rater.note,
            "policy": self._policy,
            "seed": seed,
            "scale": info["scale"],
            "persona": self._env.cast.describe(int(observation["persona"])),
        }

    def play(self) -> Iterator[dict[str, Any]]:
        """The steps as they are taken, each with its item and the step's ``info``."""
        over = False
        while not over:
            action = self._choose()
            if action is None:
                self._end = "nothing left to recommend"
                return
            try:
                _, _, terminated, truncated, info = self._env.step(action)
            except AnswerError as error:
                hint = "requested twice; `understudy doctor` checks the model"
                raise AnswerError(error.what, where=error.where, hint=hint) from error
            del info["action_mask"]
            step = {
                **self._env.catalogue.describe(action),
                **info,
                "average": self._average(action),
            }
            self._played.append(step)
            yield step
            over = terminated or truncated
            if terminated:
                self._end = "the persona left"
            elif truncated:
                self._end = "length limit"

    def summary(self) -> dict[str, Any]:
        """Steps and ratings (counts), their mean and sum on the scale, and how it ended."""
        ratings = [s["rating"] for s in self._played if s["rating"] is not None]
        return {
            "steps": len(self._played),
            "rated": len(ratings),
            "mean_rating": sum(ratings) / len(ratings) if ratings else None,
            "total": sum(ratings),
            "end": self._end,
        }

    def text(self, *, seed: int, persona: str | None = None) -> Iterator[str]:
        """Play an episode of :meth:`start`, in lines that a person reads, as they come."""
        opening = self.start(seed=seed, persona=persona)
        yield from persona_lines(opening["persona"])
        yield ""
        for step in self.play():
            yield step_line(step, step, self.scale)
        summary = self.summary()
        mean = summary["mean_rating"]
        shown = "none" if mean is None else f"{mean:.2f} on {self.scale.name}"
        yield (
            f"\n{summary['steps']} steps ({summary['end']}), mean reward {shown}, "
            f"policy {opening['policy']}, seed {opening['seed']}"
        )
        yield f"{opening['note']} Release {opening['release']}."

    def _sampled_personas(self) -> np.ndarray:
        """Numbers of the personas drawn from the census, or of all where there are none."""
        frame = self._env.cast.frame
        everybody = np.arange(frame.height)
        if "origin" not in frame.columns:
            return everybody
        sampled = np.flatnonzero((frame["origin"] == "sampled").to_numpy())
        return sampled if len(sampled) else everybody

    def _average(self, item: int) -> float | None:
        """Mean expected rating of an item over personas without a memory; None without any."""
        chosen = self._sampled[:: max(1, len(self._sampled) // _VIEWERS)][:_VIEWERS]
        if self._env.rater.language_model:
            return None  # two hundred requests for one figure
        nothing = np.full((len(chosen), 1), -1, np.int64)
        batch = self._env.rater.rate(
            chosen, np.full(len(chosen), item), nothing, np.full(nothing.shape, np.nan)
        )
        rated = np.array([s == OK for s in batch.status])
        return float(batch.expected[rated].mean()) if rated.any() else None

    def _choose(self) -> int | None:
        if self._env.rater.language_model:  # one request per item: any of them can be rated
            expected = np.zeros(len(self._env.catalogue))
        else:
            expected = self._env.expected()
        allowed = ~np.isnan(expected)
        allowed[[self._env.catalogue.row(s["item_id"]) for s in self._played]] = False
        if not allowed.any():
            return None
        if self._policy == "random":
            return int(self._rng.choice(np.flatnonzero(allowed)))
        if self._policy == "popular":
            order = self._env.catalogue.popularity
            return int(order[allowed[order]][0])
        return int(np.argmax(np.where(allowed, expected, -np.inf)))


def play_episode(
    world: World,
    persona: str | None = None,
    *,
    policy: Policy = "popular",
    steps: int = 5,
    seed: int = 0,
) -> str:
    """Play an episode and return it as text: the persona, and each rating with its reasons.

    Parameters
    ----------
    world
        The opened release with its rater.
    persona
        Id of the persona; default: one is drawn with `seed`.
    policy, steps
        As of :class:`Player`.
    seed
        The same seed gives the same episode.
    """
    lines = Player(world, policy=policy, steps=steps).text(seed=seed, persona=persona)
    return "\n".join(line if "\n" in line else fill(line, _WIDTH) for line in lines)
