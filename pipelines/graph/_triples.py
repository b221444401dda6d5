"""Triples of the movie graph (SimUSER, appendix D), and the check that nothing leaked.

Relations are there in both directions, as the paper names them: rated / rated-by, viewed /
viewed-by, liked / liked-by, disliked / disliked-by, belongs-to / contains, released-in /
contains, directed-by / directed, features / acts-in, has-occupation / has-users, has-age /
has-users. gives-rating leads from a user to a rating node and given-to from there to films.

A rating node belongs to one user and one whole rating on 1-5 (``rating:ml-user:7:4``): its
films are those to which that user gave that rating. So Movie-User-Rating-Movie counts people
who rated both films, each by the node of the rating given to the second, and two films share
a rating node only if somebody rated them alike. (With a node per rating alone, shared by all,
that path would join nearly every film to every other and count nothing but popularity; and the
graph would not say who gave what.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from pipelines.config import GraphSettings
from pipelines.errors import ContractError
from pipelines.graph._build import triple_batches
from pipelines.graph._edges import Table
from pipelines.graph._schema import load_schema

__all__ = ["RELATIONS", "Relation", "leaked", "movie_triples"]


@dataclass(frozen=True)
class Relation:
    """A pair of inverse relations between two types."""

    head_type: str
    forward: str
    backward: str
    tail_type: str


#: Every relation that a movie graph may have and that has an inverse.
RELATIONS: tuple[Relation, ...] = tuple(
    Relation(edge.head_type, edge.relation, edge.inverse, edge.tail_type)
    for edge in load_schema("movies").edges
    if edge.inverse
)


def movie_triples(
    items: Table,
    interactions: Table,
    splits: Table,
    users: Table,
    settings: GraphSettings,
) -> pl.DataFrame:
    """Triples of films, people and what they did in the training split, as one frame.

    :func:`triple_batches` yields the same rows in bounded memory. Tables are frames or scans.

    Raises
    ------
    ContractError
        As :func:`triple_batches`, or if a held-out pair got into the result.
    """
    tables: Mapping[str, Table] = {
        "items": items,
        "interactions": interactions,
        "splits": splits,
        "users": users,
    }
    triples = pl.concat(triple_batches("movies", tables, settings))
    held_out = splits.lazy().filter(pl.col("split") != "train").collect()
    found = leaked(triples, held_out)
    if found.height:
        raise ContractError(
            f"{found.height} held-out interactions are in the graph",
            where="movies.graph_triples",
            details={"rows": found.head(10).to_dicts()},
        )
    return triples


def leaked(triples: pl.DataFrame, splits: pl.DataFrame, domain: str = "movies") -> pl.DataFrame:
    """Triples that say of a user and an item what only the validation or test split knows.

    These join a held-out pair in either direction, or join the item with a rating (or
    sentiment) node of that user.

    Returns
    -------
    The triples' columns and ``split``; no rows if nothing leaked.
    """
    schema = load_schema(domain)
    item = schema.item_type
    held_out = splits.filter(pl.col("split") != "train")
    columns = triples.columns
    # `rating:<user>:<rating>` names its user.
    nodes = {
        edge.head_type: f"^{edge.node}:(.*):[^:]*$"
        for edge in schema.edges
        if edge.origin in {"ratings", "sentiments"} and edge.tail_type == item
    }
    sides = [
        (triples.filter(head_type="User", tail_type=item), pl.col("head"), "tail"),
        (triples.filter(head_type=item, tail_type="User"), pl.col("tail"), "head"),
        *(
            (
                triples.filter(head_type=kind, tail_type=item),
                pl.col("head").str.extract(form),
                "tail",
            )
            for kind, form in nodes.items()
        ),
    ]
    return pl.concat(
        [
            frame.with_columns(user_id=user, item_id=pl.col(other))
            .join(held_out, on=["user_id", "item_id"], how="inner")
            .select(*columns, "split")
            for frame, user, other in sides
        ]
    ).sort("head", "relation", "tail")
