"""The environment: ask a customer about facets, then recommend a product; and its vector form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from pipelines.errors import ConfigError
from sim._release import Release, open_release
from sim.dialogue._lifetimes import Cell, Setting
from sim.dialogue._protocol import MAX_QUESTIONS, Action, Customer, Feedback
from sim.dialogue._sessions import (
    MAX_FACETS,
    MAX_PRODUCTS,
    NOT_ASKED,
    Rules,
    Session,
    advance,
    opened,
)
from sim.dialogue._world import DialogueWorld
from sim.environment import check_arguments, check_keys, seeds_of, supported_render_mode

Observation: TypeAlias = "dict[str, Any]"

#: Number of actions: a question per facet, then a recommendation per product.
ACTIONS = MAX_FACETS + MAX_PRODUCTS


@lru_cache(maxsize=1)
def _shared(release: Release, home: Path) -> DialogueWorld:  # noqa: ARG001
    """The latest world; as with `World.open`, environments and forked workers share it."""
    return DialogueWorld.open(release)


class _Step:
    """An action in a lifetime: ``asked``, ``wasted``, ``sold`` or ``unsold``."""

    def __init__(self, session: Session, number: int) -> None:
        self.session, self.episode = session, session.episode
        left = session.dialogue.questions_left
        self.repeated = number in session.dialogue.asked and left > 0
        if number >= MAX_FACETS and session.allowed[number]:
            self.status = "sold"
            self.action = Action(product=number - MAX_FACETS)
        elif number < MAX_FACETS and (session.allowed[number] or self.repeated):
            self.status = "asked"
            self.action = Action(ask=True, facet=number)
        else:
            # Nothing can be sold for it: an impossible action ends the episode.
            self.status, self.action = ("wasted" if left > 0 else "unsold"), Action()
        if self.status == "wasted":
            session.waste()

    def result(self, question_cost: float) -> tuple[float, dict[str, Any]]:
        """Reward, and the info of the step."""
        episode, turns = self.episode, self.episode.dialogue.turns
        info: dict[str, Any] = {
            # `episode` is the name that monitors of training libraries use.
            "episode_number": episode.dialogue.episode,
            "questions": len(turns),
            "status": self.status,
            "repeated": self.repeated and self.status == "asked",
        }
        if self.status == "asked":
            info["answer"] = turns[-1].words[1]
        if self.status in ("asked", "wasted"):
            return -question_cost / 100, info
        score = np.float32(episode.y[episode.sold] if self.status == "sold" else 0)
        words = episode.comment.text if episode.comment is not None else None
        info |= {"regret": episode.best - score, "feedback": words or ""}
        if self.status == "sold":
            info["item_id"] = episode.shelf.item_ids[episode.sold]
        return float((score - episode.best) / 100), info


class DialogueEnv(gymnasium.Env[Observation, Any]):
    """Question a customer and sell one product of a choice set; then, perhaps, the next one.

    Registered as `Understudy/Dialogue-v0`; the vector form is `DialogueVectorEnv`.

    ## Description
    An episode is a *lifetime* of `episodes` shopping episodes (default 1). In each, a customer
    wants one product of a category. The agent asks about facets of the products, such as
    *material*, and ends the shopping episode by recommending a product; the next one follows.
    After BIEL, "Benchmarking In-Context Experiential Learning Through Repeated Product
    Recommendations" (sections 3-5); questions in words are left to `sim.dialogue.ShoppingTools`.

    ## Action Space
    `Discrete(80)`: 0-29 asks about that facet of the choice set, 30-79 recommends product
    `action - 30`. Products are numbered by a shuffled order. `action_masks()` and
    `info["action_mask"]` say what makes sense: facets that the set has and that were not asked
    about, while questions are left, and products that it has. A facet that was asked about is
    answered as before. Any other action outside the mask is a wasted question; without questions
    left it ends the shopping episode with nothing sold.

    ## Observation Space
    A flat `Dict`:

    | key          | space                        | meaning                                       |
    |--------------|------------------------------|-----------------------------------------------|
    | `answers`    | `Box(-3, 5, (30,), int8)`    | number of the value that the customer prefers |
    |              |                              | by facet; -1 no preference, -2 no answer that |
    |              |                              | fits a value, -3 not asked                    |
    | `products`   | `Box(-2, 5, (1500,), int8)`  | value of facet f of product p at 30 p + f; -1 |
    |              |                              | none, -2 no such product or facet             |
    | `turns_left` | `Box(0, n, (1,), int64)`     | questions that may still be asked             |
    | `feedback`   | `Box(-1, 100, (1,), float32)`| of the last shopping episode: regret, stars,  |
    |              |                              | or the tone of the text from 0 (delighted) to |
    |              |                              | 3 (disappointed); -1 where there is none      |

    ## Rewards
    `-regret / 100` of a recommendation, regret being the best score of the choice set minus that
    of the product (points); a score of 0 where nothing was sold. `-question_cost / 100` per
    question.

    ## Starting State
    A lifetime drawn by hash from a seed, which is drawn from `self.np_random` or given by
    `reset(options={"lifetime": …})`: the one of the same seed in `understudy dialogue`. Customers
    and choice sets don't repeat within it.

    ## Episode End
    - Terminated: the last shopping episode ended.
    - Truncated: never.

    ## Arguments
    - `release`: a `sim.Release`, or a reference such as `"products@latest"`.
    - `home`: the store's folder for a reference.
    - `world`: an opened `sim.dialogue.DialogueWorld` in place of `release` and `home`, to share it.
    - `customer`: `"statistical"` (no language model), or an object as `sim.dialogue.Customer`.
    - `setting`: what the lifetime keeps: `"customer"` (one customer, many categories),
      `"category"` (one category, many customers) or `"both"` (both vary).
    - `cell`: customers and categories that are played, such as `"unseen/seen"`.
    - `episodes`: shopping episodes of a lifetime.
    - `feedback`: `"none"`, `"regret"`, `"stars"` or `"text"`.
    - `max_questions`: of a shopping episode.
    - `question_cost`: points that a question costs.
    - `render_mode`: `"ansi"` gives readable lines; any other is ignored with a warning.

    Answers are the customer's own and don't depend on the lifetime: the same customer gives the
    same answer to the same question. The same seed and actions give the same trajectory, alone
    and in the vector form.

    ## Version History
    - v0: first version; the interface may still change.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}  # type: ignore[misc]

    def __init__(
        self,
        release: Release | Path | str = "products@latest",
        *,
        home: Path | str | None = None,
        world: DialogueWorld | None = None,
        customer: str | Customer = "statistical",
        setting: Setting = "customer",
        cell: Cell = "unseen/seen",
        episodes: int = 1,
        feedback: Feedback = "stars",
        max_questions: int = MAX_QUESTIONS,
        question_cost: float = 0.0,
        render_mode: str | None = None,
        **unknown: Any,
    ) -> None:
        check_arguments(type(self), unknown)
        #: Setting, cell, episodes, feedback and limits.
        self.rules = Rules(setting, cell, episodes, feedback, max_questions, question_cost)
        if world is None:
            if not isinstance(release, Release):
                release = open_release(release, home=home)
            world = _shared(release, release.home)
        #: Choice sets and customers; can be shared with other environments.
        self.world, self._customer = opened(world, customer)
        self.session: Session | None = None
        self.observation_space = spaces.Dict(
            {
                "answers": spaces.Box(NOT_ASKED, 5, (MAX_FACETS,), np.int8),
                "feedback": spaces.Box(-1, 100, (1,), np.float32),
                "products": spaces.Box(-2, 5, (MAX_PRODUCTS * MAX_FACETS,), np.int8),
                "turns_left": spaces.Box(0, max_questions, (1,), np.int64),
            }
        )
        self.action_space = spaces.Discrete(ACTIONS)
        self.render_mode = supported_render_mode(self, render_mode)
        self._frame = ""

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start a lifetime.

        ``seed`` is that of the environment's generator; ``None`` goes on with the present one. The
        option ``lifetime`` is the lifetime's own seed, from 0; any other is a ConfigError.
        """
        given = dict(options or {})
        check_keys(given, ("lifetime",))
        super().reset(seed=seed)
        number = given.get("lifetime")
        number = int(self.np_random.integers(2**62)) if number is None else int(number)
        self.session = session = Session(self.world, self._customer, self.rules, number)
        shelf = session.episode.shelf
        self._frame = f"{shelf.name}: {len(shelf)} products, {len(shelf.facets)} facets"
        info = {"lifetime": number, "category": shelf.name, "action_mask": _mask(session)}
        return _observed(session), info

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Ask about a facet, or recommend a product.

        Returns
        -------
        tuple
            Observation, reward, terminated, truncated, and info: ``status`` (``asked``, ``sold``,
            ``wasted`` or ``unsold``), ``answer`` (words), ``repeated``, ``episode_number`` (from
            0), ``questions`` (of the episode so far), and of an end ``item_id``, ``regret``
            (points) and ``feedback`` (words); ``action_mask`` of the next step.

        Raises
        ------
        ConfigError
            If the action is out of range, or no lifetime is going on.
        AnswerError
            If the customer is a language model and its reply can't be used; nothing has changed.
        """
        if not self.action_space.contains(action):
            raise ConfigError(
                f"{action!r} is not an action",
                where=type(self).__name__,
                hint=f"a whole number from 0 to {ACTIONS - 1}",
            )
        if self.session is None or self.session.over:
            raise ConfigError("call reset() before step()", where=type(self).__name__)
        [(reward, info)] = _steps([self.session], [int(action)], self.rules.question_cost)
        if self.render_mode == "ansi":
            self._frame = self._line(int(action), info)
        info = {k: v.item() if isinstance(v, np.generic) else v for k, v in info.items()}
        return _observed(self.session), reward, self.session.over, False, info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Actions that make sense now, of shape (80,); for ``sb3_contrib.MaskablePPO``."""
        assert self.session is not None, "call reset() before action_masks()"
        return self.session.allowed

    def render(self) -> str | None:
        """The last step (or, after a reset, the category) as text; ``None`` without a mode."""
        return self._frame if self.render_mode == "ansi" else None

    def _line(self, action: int, info: dict[str, Any]) -> str:
        status = info["status"]
        if status == "asked":
            return f"facet {action}: {info['answer']}"
        if status == "sold":
            return f"sold {info['item_id']}, regret {info['regret']:.1f}. {info['feedback']}"
        return str(status)


def _observed(session: Session) -> Observation:
    return {
        "answers": session.answers,
        "feedback": np.array([session.feedback], np.float32),
        "products": session.products.ravel(),
        "turns_left": np.array([session.dialogue.questions_left], np.int64),
    }


def _mask(session: Session) -> npt.NDArray[np.int8]:
    return session.allowed.astype(np.int8)


def _steps(
    sessions: Sequence[Session], actions: Sequence[int], question_cost: float
) -> list[tuple[float, dict[str, Any]]]:
    """Reward and info of one action in each of some lifetimes; customers answer in batches."""
    steps = [_Step(*pair) for pair in zip(sessions, actions, strict=True)]
    active = [step for step in steps if step.status != "wasted"]
    advance([step.session for step in active], [step.action for step in active])
    results = [step.result(question_cost) for step in steps]
    return [
        (reward, info | {"action_mask": _mask(session)})
        for session, (reward, info) in zip(sessions, results, strict=True)
    ]


class DialogueVectorEnv(VectorEnv[Observation, npt.NDArray[np.int64], npt.NDArray[Any]]):
    """Many independent :class:`DialogueEnv`, stepped together without a loop over customers.

    Spaces, rewards, episode ends and arguments are those of :class:`DialogueEnv`, with a leading
    axis of `num_envs` (count). Environment ``i`` of ``reset(seed=s)`` lives exactly the trajectory
    of a single environment with ``reset(seed=s + i)``. Lifetimes that end are started again in the
    same step (``AutoresetMode.SAME_STEP``), as in ``sim.environment.RecommendationVectorEnv``.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": [],
        "autoreset_mode": AutoresetMode.SAME_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        release: Release | Path | str = "products@latest",
        *,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.render_mode = supported_render_mode(self, render_mode)
        if num_envs < 1:
            raise ConfigError(f"num_envs is {num_envs}", where="environment", hint="at least 1")
        single = DialogueEnv(release, **options)
        # The copies share the world and the customer.
        self.envs = [copy(single) for _ in range(num_envs)]
        self.world, self.rules, self.num_envs = single.world, single.rules, num_envs
        self.single_observation_space = single.observation_space
        self.single_action_space = single.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> tuple[Observation, dict[str, Any]]:
        """Start a lifetime in every environment.

        Environment i is seeded ``seed + i``, or by the i-th of a sequence; ``None`` goes on with
        the present generators. The option ``lifetime`` is a lifetime's seed for each environment,
        of shape (num_envs,); any other is a ConfigError.
        """
        given = dict(options or {})
        check_keys(given, ("lifetime",))
        lifetimes = given.get("lifetime")
        lifetimes = [None] * self.num_envs if lifetimes is None else lifetimes
        if np.shape(lifetimes) != (self.num_envs,):
            raise ConfigError(
                f"lifetimes of shape {np.shape(lifetimes)}",
                where="reset(options=…)",
                hint=f"seeds of shape {(self.num_envs,)}",
            )
        begun = [
            env.reset(seed=env_seed, options={"lifetime": lifetime})
            for env, env_seed, lifetime in zip(
                self.envs, seeds_of(seed, self.num_envs), lifetimes, strict=True
            )
        ]
        self._np_random = self.envs[0].np_random
        return _stacked([row for row, _ in begun]), self._infos([info for _, info in begun])

    def step(
        self, actions: npt.ArrayLike
    ) -> tuple[
        Observation,
        npt.NDArray[np.float64],
        npt.NDArray[np.bool_],
        npt.NDArray[np.bool_],
        dict[str, Any],
    ]:
        """One action in every environment; infos as of :meth:`DialogueEnv.step`, with masks."""
        given = np.asarray(actions)
        sessions = [env.session for env in self.envs if env.session is not None]
        if not sessions:
            raise ConfigError("call reset() before step()", where=type(self).__name__)
        if given.shape != (self.num_envs,) or not np.issubdtype(given.dtype, np.integer):
            raise ConfigError(
                f"actions of shape {given.shape} and type {given.dtype} are not valid actions",
                where=f"{type(self).__name__}.step",
                hint=f"whole numbers from 0 to {ACTIONS - 1}, of shape {(self.num_envs,)}",
            )
        bad = np.flatnonzero((given < 0) | (given >= ACTIONS))
        if len(bad):
            raise ConfigError(
                f"the action {given[bad[0]]} of environment {bad[0]} is out of range",
                where=f"{type(self).__name__}.step",
                hint=f"an integer from 0 to {ACTIONS - 1}",
            )
        results = _steps(sessions, given.tolist(), self.rules.question_cost)
        over = np.array([session.over for session in sessions])
        rows = [_observed(session) for session in sessions]
        infos = self._infos([info for _, info in results], _STEP)
        if over.any():
            infos["final_info"], infos["_final_info"] = dict(infos), over
            infos["final_obs"], infos["_final_obs"] = _stacked(rows), over
            fresh = [{"action_mask": info["action_mask"]} for _, info in results]
            for n in np.flatnonzero(over).tolist():
                rows[n], fresh[n] = self.envs[n].reset()
            infos |= self._infos(fresh)
        rewards = np.array([reward for reward, _ in results])
        return _stacked(rows), rewards, over, np.zeros(self.num_envs, np.bool_), infos

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Actions that make sense now, of shape (num_envs, 80)."""
        return np.stack([env.action_masks() for env in self.envs])

    def _infos(self, rows: Sequence[dict[str, Any]], always: Sequence[str] = ()) -> dict[str, Any]:
        """Infos by name, each with the mask of the environments that have it."""
        infos: dict[str, Any] = {}
        for name in dict.fromkeys([*always, *(name for row in rows for name in row)]):
            missing = _MISSING.get(name)
            values = [row.get(name, missing) for row in rows]
            words = missing is None or isinstance(missing, str)
            infos[name] = np.array(values, dtype=object if words else None)
            infos[f"_{name}"] = np.array([name in row for row in rows])
        return infos


def _stacked(rows: Sequence[Observation]) -> Observation:
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


#: Values of infos where an environment has none; of the others there is always one, or it is None.
_MISSING: dict[str, Any] = {
    "action_mask": 0, "answer": "", "episode_number": 0, "feedback": "", "lifetime": 0,
    "questions": 0, "regret": np.float32(np.nan), "repeated": False,
}  # fmt: skip
#: Infos of a step that are given even where no environment has one.
_STEP = ("answer", "feedback", "item_id", "regret")
