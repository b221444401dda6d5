"""Hard limits of a run in tokens and money, and what it has spent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pipelines.config import ServingSettings
from pipelines.errors import ConfigError, EngineError

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
    """Upper bound of the tokens of a request in flight (counts)."""

    prompt: int
    completion: int
    open: bool = True


class Budget:
    """Token and money limits of a run: no request is sent that could take it over them.

    A request reserves its upper bound before it is sent and settles its real cost when it is
    answered. One whose answer was lost (a time-out, a cut connection) counts in full: a server
    that bills has billed it. A limit in money without a price is a :class:`ConfigError`.
    """

    def __init__(self, serving: ServingSettings) -> None:
        self._max_tokens = serving.max_tokens
        self._max_cost = serving.max_cost
        self._prices = (serving.input_price, serving.output_price)
        if self._max_cost is not None and not any(self._prices):
            raise ConfigError(
                "serving.max_cost needs prices to count with",
                where="serving.input_price, serving.output_price",
                hint="set the prices of a million tokens, or limit serving.max_tokens",
            )
        self._reserved = Usage()
        self.spent = Usage()
        self.lost = 0

    @property
    def tokens(self) -> int:
        """Tokens spent, in and out (count)."""
        return self.spent.prompt + self.spent.completion

    @property
    def cost(self) -> float:
        """Money spent, in the currency of the prices."""
        return self._price(self.spent)

    def reserve(self, prompt: int, completion: int) -> Reservation | None:
        """Reserve a request's upper bound; None: wait until another request has settled.

        Raises :class:`EngineError` if it would not fit even when nothing else is in flight.
        """
        reserved = self._reserved + Usage(prompt, completion)
        if self._fits(self.spent + reserved):
            self._reserved = reserved
            return Reservation(prompt, completion)
        if self._reserved != Usage():
            return None
        raise self._over_budget(prompt, completion)

    def settle(self, reservation: Reservation, usage: Usage | None) -> None:
        """Book the cost of a request; None: its answer was lost, it counts in full."""
        self.release(reservation)
        if usage is None:
            self.lost += 1
            usage = Usage(reservation.prompt, reservation.completion)
        self.spent += usage

    def release(self, reservation: Reservation) -> None:
        """Give back the reservation of a request that cost nothing (refused, not sent)."""
        if reservation.open:
            reservation.open = False
            self._reserved += Usage(-reservation.prompt, -reservation.completion)

    def metadata(self) -> dict[str, Any]:
        """Tokens and money spent; JSON-ready."""
        return {
            "prompt_tokens": self.spent.prompt,
            "completion_tokens": self.spent.completion,
            "cached_tokens": self.spent.cached,
            "cost": round(self.cost, 6),
            "requests_without_usage": self.lost,
        }

    def _price(self, usage: Usage) -> float:
        return (usage.prompt * self._prices[0] + usage.completion * self._prices[1]) / _MILLION

    def _fits(self, usage: Usage) -> bool:
        if self._max_tokens is not None and usage.prompt + usage.completion > self._max_tokens:
            return False
        return self._max_cost is None or self._price(usage) <= self._max_cost

    def _over_budget(self, prompt: int, completion: int) -> EngineError:
        limits = []
        if self._max_tokens is not None:
            limits.append(f"serving.max_tokens {self._max_tokens}")
        if self._max_cost is not None:
            limits.append(f"serving.max_cost {self._max_cost:g}")
        return EngineError(
            f"the budget is spent: {self.spent.prompt} tokens in, {self.spent.completion} out, "
            f"cost {self.cost:.4f}; the next request can take up to {prompt} in and "
            f"{completion} out",
            where=", ".join(limits),
            hint="received answers are stored: raise the limit and run again to go on",
            details={"over_budget": True, **self.metadata()},
        )


def is_over_budget(error: BaseException) -> bool:
    """True for the error of a spent budget (requests in flight may then finish)."""
    return isinstance(error, EngineError) and bool(error.details.get("over_budget"))
