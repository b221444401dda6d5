"""Customers by name and from ``module:Class``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines import plugins
from sim.dialogue._protocol import Customer

if TYPE_CHECKING:
    from pipelines.config import Settings

__all__ = ["CUSTOMERS", "open_customer"]

#: The project's customers by name; imported on first use.
CUSTOMERS: dict[str, str] = {
    "statistical": "sim.dialogue.customers.statistical:StatisticalCustomer",
    "model": "sim.dialogue.customers.model:ModelCustomer",
}


def open_customer(name: str, *, settings: Settings | None = None, **options: Any) -> Customer:
    """A customer by name, before `open`.

    A name is one of `CUSTOMERS`, ``module:Class`` or ``path/to/file.py:Class``. Options are
    arguments of its class; one that takes ``settings``, such as for its engine, is given them.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with the methods of
        :class:`Customer`, or an option is unknown.
    """
    customer: Customer = plugins.open_plugin(
        name,
        CUSTOMERS,
        options,
        offered=None if settings is None else {"settings": settings},
        kind="customer",
        methods=("open", "answer", "feedback", "metadata"),
        implement="sim.dialogue.Customer (docs/dialogue.md)",
    )
    return customer
