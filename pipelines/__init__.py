"""All logic of Understudy, as a library: it never imports dagster, dbt or ``sim``."""

__version__ = "0.1.0"
