"""The distribution over closed answers, from the model's probabilities of tokens.

An option is the event that the model's continuation begins with the option's tokens and does
not go on to a longer option. Where no option begins another this is the probability of the
option's tokens. Where one does ("1" and "10", of which Qwen's tokenizer makes ``1`` and
``1 0``), the shorter has the probability of its tokens less that of the longer ones:

    P("10") = p(1) p(0 | 1)          P("1") = p(1) (1 - p(0 | 1))

The events exclude each other, so that their sum, the *mass*, is at most 1. No token for the end
of the answer is read: base models and chat templates end answers in many ways, and a digit in a
sentence is the same answer as a digit before the end of the turn. An option is scored in the
tokenizer's own spelling; other ways to cut the same text into tokens count as other text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipelines.errors import AnswerError
from pipelines.llm.engines._protocol import Answer, Choice

__all__ = ["OptionTree", "answer_fault", "check_logprobs"]

Tokens = tuple[int, ...]

#: Tolerance of a log-probability above 0, and of a sum of probabilities above 1: rounding of
#: 16-bit weights, and of servers that print few digits.
MAX_LOGPROB = 1e-3
MAX_EXCESS = 0.01
#: Largest departure of a distribution's sum from 1.
_TOLERANCE = 1e-6


def check_logprobs(values: Iterable[float]) -> None:
    """Check natural log-probabilities of different tokens at one position (-inf: probability 0).

    Raises AnswerError if one is not a number or above 0, or their probabilities add up to more than
    1.

    Examples
    --------
    >>> check_logprobs([-0.7, -1.2, float("-inf")])
    >>> check_logprobs([5.0, 5.0])
    Traceback (most recent call last):
    pipelines.errors.AnswerError: a log-probability of 5 is above 0
    """
    numbers = list(values)
    if any(math.isnan(v) for v in numbers):
        raise AnswerError("a log-probability is not a number")
    if any(v > MAX_LOGPROB for v in numbers):
        raise AnswerError(f"a log-probability of {max(numbers):g} is above 0")
    total = math.fsum(math.exp(v) for v in numbers)
    if total > 1.0 + MAX_EXCESS:
        raise AnswerError(f"the probabilities of different tokens add up to {total:.3g}")


def answer_fault(answer: Answer) -> str:
    """Return why an answer whose status is `ok` can't be used, or "" if it can.

    An answer to a `Choice` needs one of the options, probabilities that are a distribution over
    them, and a mass between 0 and 1 (or None).
    """
    if answer.text is None:
        return "the engine gave no text"
    constraint, shares, mass = answer.request.constraint, answer.probabilities, answer.mass
    if not isinstance(constraint, Choice):
        return ""
    if answer.text not in constraint.options:
        return "the engine chose something that is not an option"
    if shares is None or len(shares) != len(constraint.options):
        return "the engine gave no distribution over the options"
    if not all(math.isfinite(p) and p >= 0 for p in shares):
        return "the engine returned invalid probabilities"
    if abs(math.fsum(shares) - 1) > _TOLERANCE:
        return "the engine gave probabilities that don't add up to 1"
    if mass is not None and not 0.0 <= mass <= 1.0:
        return f"the engine gave a mass of {mass:g}, not between 0 and 1"
    return ""


@dataclass(frozen=True, slots=True)
class OptionTree:
    """The tokens of a closed choice as a tree.

    ``options`` are token ids per option. Raises ValueError if two options have the same tokens, or
    one has none.

    Examples
    --------
    >>> tree = OptionTree.of([(16,), (17,), (16, 15)])
    >>> tree.nodes
    ((), (16,))
    >>> tree.steps
    ((16, 17), (15,))
    """

    options: tuple[Tokens, ...]
    #: Proper beginnings of options, shortest first, beginning with the empty one: the places at
    #: which the model's next-token distribution is needed.
    nodes: tuple[Tokens, ...]
    #: Per node, the tokens that some option has there.
    steps: tuple[Tokens, ...]

    @classmethod
    def of(cls, options: Sequence[Sequence[int]]) -> OptionTree:
        """The tree of these options."""
        spelled = tuple(tuple(o) for o in options)
        if not all(spelled):
            raise ValueError("an option has no token")
        if len(set(spelled)) != len(spelled):
            raise ValueError("two options have the same tokens")
        children: dict[Tokens, set[int]] = {}
        for option in spelled:
            for at in range(len(option)):
                children.setdefault(option[:at], set()).add(option[at])
        nodes = sorted(children, key=lambda n: (len(n), n))
        return cls(spelled, tuple(nodes), tuple(tuple(sorted(children[n])) for n in nodes))

    @property
    def one_token(self) -> bool:
        """Whether every option is one token, so that one next-token distribution covers all."""
        return len(self.nodes) == 1

    @property
    def extra_tokens(self) -> int:
        """Tokens to compute beyond the prompt (count): the nodes but the empty one."""
        return len(self.nodes) - 1

    @property
    def depth(self) -> int:
        """Length of the longest node (tokens beyond the prompt that are read)."""
        return len(self.nodes[-1])

    def distribution(
        self, logprobs: Sequence[Mapping[int, float]]
    ) -> tuple[npt.NDArray[np.float64], float]:
        """Probability of each option, in order, sum 1; and of all together, the mass, 0-1.

        ``logprobs`` has, per node of :attr:`nodes`, the natural log-probability of each token of
        :attr:`steps`, normalised over the whole vocabulary. Should all options underflow to
        nothing, the distribution is taken from the logarithms. Raises AnswerError if the numbers
        can't be log-probabilities; see :func:`check_logprobs`.

        Examples
        --------
        >>> import math
        >>> tree = OptionTree.of([(16,), (17,), (16, 15)])
        >>> p, mass = tree.distribution(
        ...     [{16: math.log(0.5), 17: math.log(0.3)}, {15: math.log(0.2)}]
        ... )
        >>> [round(float(x), 3) for x in p * mass], round(mass, 3)
        ([0.4, 0.3, 0.1], 0.8)
        """
        for step, row in zip(self.steps, logprobs, strict=True):
            check_logprobs(row[token] for token in step)
        begins: dict[Tokens, float] = {(): 0.0}
        for node, step, row in zip(self.nodes, self.steps, logprobs, strict=True):
            for token in step:
                begins[(*node, token)] = begins[node] + row[token]
        logs = np.array([begins[o] + np.log1p(-self._onward(o, logprobs)) for o in self.options])
        top = float(logs.max())
        if not np.isfinite(top):
            return np.full(len(logs), 1.0 / len(logs)), 0.0
        weights = np.exp(logs - top)
        mass = min(1.0, float(np.exp(top) * weights.sum()))
        return weights / weights.sum(), mass

    def _onward(self, option: Tokens, logprobs: Sequence[Mapping[int, float]]) -> float:
        """Probability, given the option's tokens, of going on to a longer option (below 1)."""
        if option not in self.nodes:
            return 0.0
        at = self.nodes.index(option)
        return min(1.0 - 1e-12, self._longer(at, logprobs))

    def _longer(self, at: int, logprobs: Sequence[Mapping[int, float]]) -> float:
        """Probability, at a node, of completing any option that goes through it."""
        node, total = self.nodes[at], 0.0
        ends = set(self.options)
        for token in self.steps[at]:
            chance = float(np.exp(logprobs[at][token]))
            longer = (*node, token)
            if longer not in ends:
                chance *= self._longer(self.nodes.index(longer), logprobs)
            total += chance
        return total
