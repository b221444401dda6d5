"""People of a data set in the shape of personas."""

from __future__ import annotations

import polars as pl

from pipelines.raters import persona_rows

__all__ = ["human_personas"]


def human_personas(users: list[str], human_users: pl.DataFrame | None) -> pl.DataFrame:
    """Rows like those of `personas` for people, with what the source tells of each.

    Parameters
    ----------
    users
        Their ids.
    human_users
        The table of that name; None tells nothing.
    """
    return persona_rows(users, human_users)
