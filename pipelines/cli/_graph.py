"""``understudy graph``: export the knowledge graph, and see what a user would be reminded of."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli import options as cli
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.config import GraphSettings
    from pipelines.graph import Neighbour

graph = cli.group("Export a release's knowledge graph, or show what is retrieved from it and why.")
#: Paths named per neighbour in text; JSON has all of them.
_NAMED = 3


@graph.command()
@cli.command(rows="neighbours")
def neighbours(
    call: cli.Call,
    item: Annotated[str, typer.Argument(help="Item id, such as ml:862.")],
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="A human user's or persona's id.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("-k", min=1, help="Number of neighbours (default: graph.k).")
    ] = None,
    picture: Annotated[Path | None, typer.Option(dir_okay=False, help="Also draw a PNG.")] = None,
    release: cli.ReleaseOption = "latest",
) -> None:
    """Show the items most similar to an item, with own or others' ratings, and why.

    Examples:
      understudy graph neighbours ml:1 --user ml-user:7

    JSON: {"release", "item", "title", "user", "scale", "weights": {"pathsim",
    "user_similarity", "cosine"}, "neighbours": [{"item_id", "title", "year",
    "rating", "rating_of": "own", "others" or null, "score", "parts", "basis":
    "paths", "user" or "embedding", "paths": {name: share of pathsim}}],
    "picture"}.
    """
    from pipelines.graph import GraphMemory, neighbourhood_picture, write_bytes

    stored = call.release(release)
    memory = GraphMemory.open(stored)
    nearest = memory.retrieve(user, item, k)
    if picture is not None:
        image = neighbourhood_picture(memory, item, user=user, k=k or memory.settings.k)
        write_bytes(picture, image)
    payload = {
        "release": str(stored),
        "item": item,
        "title": memory.title(item),
        "user": user,
        "scale": memory.scale.name,
        "weights": _weights(memory.settings),
        "neighbours": [neighbour.to_dict() for neighbour in nearest],
        "picture": None if picture is None else str(picture),
    }

    def render(screen: Console) -> None:
        who = f" for {user}" if user else ""
        screen.print(f"{payload['title']} ({item}){who}", style="bold")
        if not nearest:
            screen.print("No path and no embedding leads from it to another item.")
        else:
            rows = [
                (n.item_id, _titled(n), _rating(n), f"{n.score:.3f}", _why(n, memory.settings))
                for n in nearest
            ]
            columns = ("item", "title", "rating", "score", "why")
            screen.print(cli.table(*columns, rows=rows, numeric=["rating", "score"]))
            screen.print(
                f"Ratings on {memory.scale.name}: * is the user's own, others the mean of all "
                "others. The numbers under `why` add up to the score.",
                style="dim",
            )
        if picture is not None:
            screen.print(f"picture: {picture}", soft_wrap=True)

    call.emit(payload, render)


@graph.command()
@cli.command()
def export(
    call: cli.Call,
    out: Annotated[Path, typer.Option(dir_okay=False, help="GraphML file to write.")],
    node: Annotated[str | None, typer.Option(help="Centre (default: the most rated item).")] = None,
    hops: Annotated[int, typer.Option(min=1, help="Maximum distance from the centre (hops).")] = 1,
    max_nodes: Annotated[int, typer.Option(min=1, help="Maximum number of nodes.")] = 200,
    without: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="Node types to leave out; repeatable.")
    ] = None,
    release: cli.ReleaseOption = "latest",
) -> None:
    """Export the surroundings of a node as GraphML; special characters in names become %XX.

    `understudy release export --format recbole` writes the whole graph for RecBole.

    JSON: {"release", "files", "center", "nodes", "edges", "truncated"}.
    """
    from pipelines.graph import load_schema, sample_item, subgraph, write_graphml

    stored = call.release(release)
    triples = stored.snapshot("graph_triples").scan()
    items = stored.snapshot("items").read(["item_id", "title"])
    domain = stored.tables["graph_triples"].dataset.rpartition(".")[0]
    types = load_schema(domain).node_types
    unknown = sorted(set(without or ()) - set(types))
    if unknown:
        raise ConfigError(
            "no such node type", where=f"--without {unknown[0]}", hint=f"one of {', '.join(types)}"
        )
    center = sample_item(triples, items) if node is None else node
    drawn = subgraph(
        triples,
        center,
        items=items,
        hops=hops,
        max_nodes=max_nodes,
        without=without or (),
        domain=domain,
    )
    write_graphml(drawn, out)
    payload = {
        "release": str(stored),
        "files": [str(out)],
        "center": center,
        "nodes": drawn.number_of_nodes(),
        "edges": drawn.number_of_edges(),
        "truncated": drawn.graph["truncated"],
    }
    cut = "; not all nodes fit (--max-nodes)" if payload["truncated"] else ""
    call.emit(
        payload,
        str(out),
        f"{payload['nodes']} nodes and {payload['edges']} edges around {center}{cut}",
    )


def _weights(settings: GraphSettings) -> dict[str, float]:
    return {
        "pathsim": settings.alpha,
        "user_similarity": 1 - settings.alpha,
        "cosine": settings.embedding_weight,
    }


def _titled(neighbour: Neighbour) -> str:
    year = f" ({neighbour.year})" if neighbour.year else ""
    return f"{neighbour.title}{year}"


def _rating(neighbour: Neighbour) -> str:
    if neighbour.rating is None:
        return "-"
    return f"{neighbour.rating:.1f}" + ("*" if neighbour.rating_of == "own" else " ")


def _why(neighbour: Neighbour, settings: GraphSettings) -> str:
    """The parts of the score, paths first: what each adds to it."""
    weights, parts = _weights(settings), neighbour.parts
    shares = [(name, weights["pathsim"] * share) for name, share in neighbour.paths.items()]
    rest = sum(share for _, share in shares[_NAMED:])
    named = shares[:_NAMED]
    if rest:
        named.append((f"{len(shares) - _NAMED} more paths", rest))
    if parts.user_similarity:
        named.append(("user's community", weights["user_similarity"] * parts.user_similarity))
    if parts.cosine:
        named.append(("embedding", weights["cosine"] * parts.cosine))
    return "\n".join(f"{value:.3f} {name}" for name, value in named)
