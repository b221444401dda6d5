"""RecBole files and GraphML: what is in them, and that hostile names can't break them."""

from __future__ import annotations

import io
from urllib.parse import unquote

import networkx as nx
import pandas as pd
import polars as pl
import pytest

from pipelines.errors import ContractError
from pipelines.graph import subgraph, write_graphml, write_recbole

NAMES = ["head", "head_type", "relation", "tail", "tail_type"]
BACK = {"rated": "rated-by", "belongs-to": "contains", "directed-by": "directed"}


def triples(*edges: tuple[str, str, str, str, str]) -> pl.DataFrame:
    back = [(t, tt, BACK[r], h, ht) for h, ht, r, t, tt in edges if r in BACK]
    return pl.DataFrame([*edges, *back], schema=NAMES, orient="row")


GRAPH = triples(
    ("u:1", "User", "rated", "ml:1", "Movie"),
    ("u:1", "User", "rated", "ml:2", "Movie"),
    ("u:2", "User", "rated", "ml:2", "Movie"),
    ("ml:1", "Movie", "belongs-to", "genre:Film-Noir", "Genre"),
    ("ml:2", "Movie", "belongs-to", "genre:Film-Noir", "Genre"),
    ("ml:1", "Movie", "directed-by", "director:Ann Lee", "Director"),
)
ITEMS = pl.DataFrame(
    {"item_id": ["ml:1", "ml:2", "ml:3"], "title": ["One & <Only>", "Two", "Three"]}
)


def as_recbole(path) -> pd.DataFrame:
    """The way RecBole reads an atomic file: typed header, tab-separated, types guessed."""
    frame = pd.read_csv(path, delimiter="\t")
    frame.columns = [column.partition(":")[0] for column in frame.columns]
    return frame


def test_recbole_files_have_typed_headers_and_each_fact_once(tmp_path):
    made = write_recbole(GRAPH, tmp_path / "deep" / "er", "movies")
    assert made.kg == tmp_path / "deep" / "er" / "movies.kg"
    assert made.kg.read_text() == (
        "head_id:token\trelation_id:token\ttail_id:token\n"
        "ml:1\tbelongs-to\tgenre:Film-Noir\n"
        "ml:1\tdirected-by\tdirector:Ann Lee\n"
        "ml:2\tbelongs-to\tgenre:Film-Noir\n"
    )
    assert made.link.read_text() == "item_id:token\tentity_id:token\nml:1\tml:1\nml:2\tml:2\n"
    assert (made.triples, made.links) == (3, 2)
    assert sorted(p.name for p in made.kg.parent.iterdir()) == ["movies.kg", "movies.link"]


def test_users_are_left_out(tmp_path):
    frame = as_recbole(write_recbole(GRAPH, tmp_path).kg)
    assert not frame["head_id"].str.startswith("u:").any()


HOSTILE = [
    'director:"Weird', "director:tab\there", "director:new\nline", "director:carriage\rreturn",
    "director:nul\x00", "director:100% sure", "director:next\x85line", "director:sep\u2028arator",
    "director:<b>&amp;</b>", "director:]]>", "director:'--", "director:\ufffe",
    "director:é 漢字 🎬",
    "director:=1+1", "director:NA", 'director:a"b"c', "director: edges ", "director:\\t",
]  # fmt: skip


def test_hostile_names_come_back_as_they_were(tmp_path):
    graph = triples(*(("ml:1", "Movie", "directed-by", name, "Director") for name in HOSTILE))
    made = write_recbole(graph, tmp_path)
    assert sorted(map(unquote, as_recbole(made.kg)["tail_id"])) == sorted(HOSTILE)
    assert made.kg.read_bytes().count(b"\n") == len(HOSTILE) + 1
    path = write_graphml(subgraph(graph, "ml:1", items=ITEMS), tmp_path / "g.graphml")
    read = nx.read_graphml(path)
    assert {unquote(n) for n in read} == {"ml:1", *HOSTILE}


def test_a_graph_without_facts_is_an_error(tmp_path):
    only_users = GRAPH.filter(pl.col("relation").is_in(["rated", "rated-by"]))
    with pytest.raises(ContractError, match="no facts to write"):
        write_recbole(only_users, tmp_path)
    assert list(tmp_path.iterdir()) == []


# Subgraphs.


def test_one_hop_holds_a_nodes_own_edges_and_those_among_its_neighbours():
    graph = subgraph(GRAPH, "ml:1", items=ITEMS)
    assert dict(graph.nodes(data="hop")) == {
        "ml:1": 0, "u:1": 1, "genre:Film-Noir": 1, "director:Ann Lee": 1
    }  # fmt: skip
    assert graph.nodes["ml:1"]["label"] == "One & <Only>"
    assert graph.nodes["director:Ann Lee"] == {"type": "Director", "label": "Ann Lee", "hop": 1}
    assert {(h, d["relation"], t) for h, t, d in graph.edges(data=True)} == {
        ("u:1", "rated", "ml:1"),
        ("ml:1", "belongs-to", "genre:Film-Noir"),
        ("ml:1", "directed-by", "director:Ann Lee"),
    }
    assert graph.graph == {"center": "ml:1", "hops": 1, "truncated": False, "domain": "movies"}


def test_two_hops_reach_the_items_that_share_something():
    graph = subgraph(GRAPH, "ml:1", hops=2)
    assert dict(graph.nodes(data="hop"))["ml:2"] == 2
    assert "u:2" not in graph
    assert graph.number_of_edges() == 5
    assert len({d["id"] for _, _, d in graph.edges(data=True)}) == 5


def test_what_does_not_fit_is_chosen_by_its_edges_and_said():
    graph = subgraph(GRAPH, "ml:2", hops=2, max_nodes=3)
    # genre:Film-Noir, u:1 and u:2 each have one edge to ml:2: the first two by id.
    assert set(graph) == {"ml:2", "genre:Film-Noir", "u:1"}
    assert graph.graph["truncated"]
    assert set(subgraph(GRAPH, "ml:2", max_nodes=1)) == {"ml:2"}
    wide = subgraph(GRAPH, "ml:2", hops=2, max_nodes=5)
    assert "ml:1" in wide, "of the second hop, what two of the first lead to"


def test_an_item_without_edges_is_alone_and_an_unknown_node_is_named():
    graph = subgraph(GRAPH, "ml:3", items=ITEMS)
    assert dict(graph.nodes(data="type")) == {"ml:3": "Movie"}
    with pytest.raises(ContractError, match="no node 'ml:9'"):
        subgraph(GRAPH, "ml:9", items=ITEMS)
    with pytest.raises(ContractError, match="start at 1"):
        subgraph(GRAPH, "ml:1", hops=0)


def test_graphml_is_read_back_with_types_labels_and_relations(tmp_path):
    graph = subgraph(GRAPH, "ml:1", items=ITEMS, hops=2)
    read = nx.read_graphml(write_graphml(graph, tmp_path / "g.graphml"))
    assert set(read) == set(graph)
    assert read.nodes["ml:1"]["label"] == "One & <Only>"
    assert read.nodes["ml:2"]["hop"] == 2
    assert {(h, t, d["relation"]) for h, t, d in read.edges(data=True)} == {
        (h, t, d["relation"]) for h, t, d in graph.edges(data=True)
    }
    again = io.BytesIO(write_graphml(graph, tmp_path / "h.graphml").read_bytes())
    assert again.getvalue() == (tmp_path / "g.graphml").read_bytes()
