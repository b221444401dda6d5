"""The environment: ask a customer about facets, then recommend a product."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from pipelines.errors import ConfigError
from sim._release import Release, open_release
from sim.dialogue._book import Book, Ints
from sim.dialogue._lifetimes import Cell, Setting
from sim.dialogue._protocol import MAX_QUESTIONS, Customer, Feedback
from sim.dialogue._sessions import MAX_FACETS, MAX_PRODUCTS, NOT_ASKED, Rules, Sessions, Sold
from sim.dialogue.customers import open_customer
from sim.environment import check_arguments, check_keys, supported_render_mode

Observation: TypeAlias = "dict[str, Any]"

#: Number of actions: a question per facet, then a recommendation per product.
ACTIONS = MAX_FACETS + MAX_PRODUCTS
_ONE = np.zeros(1, np.int64)
_MASKS = np.array(["asked", "wasted", "sold", "unsold"], dtype=object)
_ASKED, _WASTED, _SOLD, _UNSOLD = range(4)


@dataclass(frozen=True, slots=True)
class Step:
    """Results of a step, one per dialogue; those of a sale are of the episode that it ended."""

    #: -regret/100 of a sale, -question_cost/100 of a question.
    reward: npt.NDArray[np.float64]
    #: Whether the lifetime is over.
    terminated: npt.NDArray[np.bool_]
    #: Arrays by name; with a mask of the rows that they are about, or None for all.
    infos: dict[str, tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]]


@lru_cache(maxsize=1)
def _shared(release: Release, home: Path) -> Book:  # noqa: ARG001
    """The latest book; as with `World.open`, environments and forked workers share it."""
    return Book.open(release)


class DialogueViews:
    """Spaces, observations and steps that the single and the vector form share."""

    sessions: Sessions

    def _open(
        self,
        release: Release | Path | str,
        home: Path | str | None,
        book: Book | None,
        customer: str | Customer,
        rules: Rules,
        rows: int,
    ) -> None:
        if book is None:
            if not isinstance(release, Release):
                release = open_release(release, home=home)
            book = _shared(release, release.home)
        opened = open_customer(customer) if isinstance(customer, str) else customer
        opened.open(book, 0)
        self.sessions = Sessions(book, opened, rows, rules)

    @property
    def book(self) -> Book:
        """Choice sets and customers; can be shared with other environments."""
        return self.sessions.book

    @property
    def rules(self) -> Rules:
        """Setting, cell, episodes, feedback and limits."""
        return self.sessions.rules

    def _space(self) -> spaces.Dict:
        count = MAX_PRODUCTS * MAX_FACETS
        return spaces.Dict(
            {
                "answers": spaces.Box(NOT_ASKED, 5, (MAX_FACETS,), np.int8),
                "feedback": spaces.Box(-1, 100, (1,), np.float32),
                "products": spaces.Box(-2, 5, (count,), np.int8),
                "turns_left": spaces.Box(0, self.rules.max_questions, (1,), np.int64),
            }
        )

    def _observations(self, rows: Ints) -> Observation:
        sessions = self.sessions
        return {
            "answers": sessions.answers[rows],
            "feedback": sessions.feedback[rows, None],
            "products": sessions.products(rows).reshape(len(rows), -1),
            "turns_left": sessions.questions_left[rows, None],
        }

    def _advance(self, rows: Ints, actions: Ints) -> Step:
        """One action of each row; a single row is as it was after an error of a model's reply."""
        sessions = self.sessions
        allowed = sessions.allowed(rows)[np.arange(len(rows)), actions]
        sale, left = actions >= MAX_FACETS, sessions.questions_left[rows] > 0
        asked_before = ~sale & (
            sessions.answers[rows, np.minimum(actions, MAX_FACETS - 1)] != NOT_ASKED
        )
        kind = np.where(sale, _SOLD, _ASKED)
        kind[~allowed & ~(asked_before & left)] = _WASTED
        kind[(kind == _WASTED) & ~left] = _UNSOLD
        asking, selling = np.flatnonzero(kind == _ASKED), np.flatnonzero(kind >= _SOLD)
        turn, episode = sessions.turn[rows], sessions.episode[rows]
        sets = sessions.now(rows)
        answer = np.full(len(rows), "", dtype=object)
        text = np.full(len(rows), "", dtype=object)
        reward = np.full(len(rows), -sessions.rules.question_cost / 100)
        regret, item = np.full(len(rows), np.nan, np.float32), np.full(len(rows), -1)
        if len(selling):
            sold = kind[selling] == _SOLD
            numbers = np.where(sold, actions[selling] - MAX_FACETS, -1)
            ends: Sold = sessions.sell(rows[selling], numbers)
            reward[selling] = (ends.score - ends.best) / 100
            regret[selling], item[selling], text[selling] = ends.regret, ends.product, ends.text
        if len(asking):
            answer[asking] = sessions.ask(rows[asking], actions[asking])
        if (wasted := kind == _WASTED).any():
            sessions.waste(rows[wasted])
        over = sessions.over[rows]
        ended = kind >= _SOLD
        ids = np.full(len(rows), None, dtype=object)
        for n in np.flatnonzero(item >= 0):
            ids[n] = self.book.sets[sets[n]].item_ids[item[n]]
        infos: dict[str, tuple[npt.NDArray[Any], npt.NDArray[np.bool_] | None]] = {
            "action_mask": (self._masks(rows), None),
            "answer": (answer, kind == _ASKED),
            # `episode` is the name that monitors of training libraries use.
            "episode_number": (episode, None),
            "feedback": (text, ended),
            "item_id": (ids, item >= 0),
            "questions": (np.where(ended, turn, turn + 1), None),
            "regret": (regret, ended),
            "repeated": (asked_before & (kind == _ASKED), None),
            "status": (_MASKS[kind], None),
        }
        return Step(reward, over, infos)

    def _masks(self, rows: Ints) -> npt.NDArray[np.int8]:
        return self.sessions.allowed(rows).astype(np.int8)


class DialogueEnv(DialogueViews, gymnasium.Env[Observation, Any]):
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
    - `book`: an opened `sim.dialogue.Book` in place of `release` and `home`, to share it.
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
        book: Book | None = None,
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
        rules = Rules(setting, cell, episodes, feedback, max_questions, question_cost)
        self._open(release, home, book, customer, rules, 1)
        self.observation_space = self._space()
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
        lifetime = given.get("lifetime")
        number = draw_lifetime(self.np_random) if lifetime is None else int(lifetime)
        self.sessions.begin(_ONE, np.array([number]))
        shelf = self.book.sets[int(self.sessions.now(_ONE)[0])]
        self._frame = f"{shelf.name}: {len(shelf)} products, {len(shelf.facets)} facets"
        info = {"lifetime": number, "category": shelf.name, "action_mask": self._masks(_ONE)[0]}
        return self._observation(), info

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
        if self.sessions.over[0]:
            raise ConfigError("call reset() before step()", where=type(self).__name__)
        step = self._advance(_ONE, np.array([int(action)]))
        info = {
            name: values[0] if isinstance(values[0], np.ndarray) else _plain(values[0])
            for name, (values, mask) in step.infos.items()
            if mask is None or mask[0]
        }
        if self.render_mode == "ansi":
            self._frame = self._line(int(action), info)
        return self._observation(), float(step.reward[0]), bool(step.terminated[0]), False, info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Actions that make sense now, of shape (80,); for ``sb3_contrib.MaskablePPO``."""
        allowed: npt.NDArray[np.bool_] = self.sessions.allowed(_ONE)[0]
        return allowed

    def render(self) -> str | None:
        """The last step (or, after a reset, the category) as text; ``None`` without a mode."""
        return self._frame if self.render_mode == "ansi" else None

    def _observation(self) -> Observation:
        return {key: values[0] for key, values in self._observations(_ONE).items()}

    def _line(self, action: int, info: dict[str, Any]) -> str:
        status = info["status"]
        if status == "asked":
            return f"facet {action}: {info['answer']}"
        if status == "sold":
            return f"sold {info['item_id']}, regret {info['regret']:.1f}. {info['feedback']}"
        return str(status)


def draw_lifetime(generator: np.random.Generator) -> int:
    """Seed of a lifetime, drawn from an environment's generator."""
    return int(generator.integers(2**62))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
