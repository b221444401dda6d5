"""Customers by name and from ``module:Class``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.plugins import Registry
from sim.dialogue._protocol import Customer

if TYPE_CHECKING:
    from pipelines.config import Settings

__all__ = ["CUSTOMERS", "customer", "open_customer"]

CUSTOMERS = Registry(
    "customer",
    {
        "statistical": "sim.dialogue.customers.statistical:StatisticalCustomer",
        "model": "sim.dialogue.customers.model:ModelCustomer",
    },
    methods=("open", "answer", "feedback", "metadata"),
    implement="sim.dialogue.Customer (docs/dialogue.md)",
)
#: Decorator that registers a customer in this process: ``@customer("mine")``.
customer = CUSTOMERS.register


def open_customer(name: str, *, settings: Settings | None = None, **options: Any) -> Customer:
    """A customer by name, before `open`.

    A name is one of `CUSTOMERS`, or your own (:class:`pipelines.plugins.Registry`). Options are
    arguments of its class; one that takes ``settings``, such as for its engine, is given them.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with the methods of
        :class:`Customer`, or an option is unknown.
    """
    opened: Customer = CUSTOMERS.open(
        name, offered=None if settings is None else {"settings": settings}, **options
    )
    return opened
