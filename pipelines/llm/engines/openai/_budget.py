"""What a run may spend, in tokens and in money, and what it has spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipelines.config import ServingSettings
from pipelines.errors import ConfigError, EngineError

__all__ = ["Budget", "Reservation", "Usage", "is_over_budget"]

_MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more requests, as the server counts them (counts)."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
        )


@dataclass(slots=True)
class Reservation:
    """What a request in flight can cost at most (tokens)."""

    prompt: int
    completion: int
    open: bool = True


class Budget:
    """Keeps a run below its limits: no request is sent that could take it over.

    A request reserves what it can cost at most before it is sent and settles what it did cost
    when it is answered. One whose answer was lost (a time-out, a cut connection) counts in full:
    a server that bills has billed it.

    Parameters
    ----------
    serving
        `max_tokens`, `max_cost` and the prices.

    Raises
    ------
    ConfigError
        If there is a limit in money but no price.
    """

    def __init__(self, serving: ServingSettings) -> None:
        self._most_tokens = serving.max_tokens
        self._most_cost = serving.max_cost
        self._prices = (serving.input_price, serving.output_price)
        if self._most_cost is not None and not any(self._prices):
            raise ConfigError(
                "serving.max_cost needs prices to count with",
                where="serving.input_price, serving.output_price",
                hint="set the prices of a million tokens, or limit serving.max_tokens",
            )
        self._reserved = [0, 0]
        self.prompt = 0
        self.completion = 0
        self.cached = 0
        self.lost = 0

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return self._most_tokens is not None or self._most_cost is not None

    @property
    def tokens(self) -> int:
        """Tokens spent, in and out (count)."""
        return self.prompt + self.completion

    @property
    def cost(self) -> float:
        """Money spent, in the currency of the prices."""
        return self._price(self.prompt, self.completion)

    def reserve(self, prompt: int, completion: int) -> Reservation | None:
        """Set aside what a request can cost; None: wait until another one has settled.

        Raises
        ------
        EngineError
            If it would not fit even when nothing else is in flight.
        """
        if self._fits(prompt + self._reserved[0], completion + self._reserved[1]):
            self._reserved[0] += prompt
            self._reserved[1] += completion
            return Reservation(prompt, completion)
        if any(self._reserved):
            return None
        raise self._spent(prompt, completion)

    def settle(self, reservation: Reservation, usage: Usage | None) -> None:
        """Book what a request did cost; None: its answer was lost, it counts in full."""
        self._close(reservation)
        if usage is None:
            self.lost += 1
            usage = Usage(reservation.prompt, reservation.completion)
        self.prompt += usage.prompt
        self.completion += usage.completion
        self.cached += usage.cached

    def release(self, reservation: Reservation) -> None:
        """Give back what a request set aside that cost nothing (refused, not sent)."""
        self._close(reservation)

    def facts(self) -> dict[str, Any]:
        """What was spent; JSON-ready."""
        return {
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "cached_tokens": self.cached,
            "cost": round(self.cost, 6),
            "requests_without_usage": self.lost,
        }

    def _close(self, reservation: Reservation) -> None:
        if reservation.open:
            reservation.open = False
            self._reserved[0] -= reservation.prompt
            self._reserved[1] -= reservation.completion

    def _price(self, prompt: int, completion: int) -> float:
        return (prompt * self._prices[0] + completion * self._prices[1]) / _MILLION

    def _fits(self, prompt: int, completion: int) -> bool:
        prompt, completion = prompt + self.prompt, completion + self.completion
        if self._most_tokens is not None and prompt + completion > self._most_tokens:
            return False
        return self._most_cost is None or self._price(prompt, completion) <= self._most_cost

    def _spent(self, prompt: int, completion: int) -> EngineError:
        limits = []
        if self._most_tokens is not None:
            limits.append(f"serving.max_tokens {self._most_tokens}")
        if self._most_cost is not None:
            limits.append(f"serving.max_cost {self._most_cost:g}")
        return EngineError(
            f"the budget is spent: {self.prompt} tokens in, {self.completion} out, cost "
            f"{self.cost:.4f}; the next request can take up to {prompt} in and {completion} out",
            where=", ".join(limits),
            hint="received answers are stored: raise the limit and run again to go on",
            details={"over_budget": True, **self.facts()},
        )


def is_over_budget(fault: BaseException) -> bool:
    """Whether an error says that the budget is spent (what is in flight may then finish)."""
    return isinstance(fault, EngineError) and bool(fault.details.get("over_budget"))
