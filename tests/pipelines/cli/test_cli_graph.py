"""`graph neighbours` and `graph export` on a real store."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import polars as pl
import pytest
from support import small_release
from support.graphs import movie_triples
from typer.testing import CliRunner, Result

from pipelines.cli.main import app
from pipelines.config import GraphSettings
from pipelines.graph import GraphMemory
from pipelines.store import Store


@pytest.fixture(scope="module")
def graph_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose release has the graph of its own tables; never write to it."""
    folder = tmp_path_factory.mktemp("graph") / "home"
    frames = small_release.frames()
    tables = [
        small_release.conform(f"movies.{name}", frames[f"movies.{name}"])
        for name in ("items", "interactions", "splits", "human_users")
    ]
    triples = movie_triples(*tables, GraphSettings())
    small_release.build(
        folder,
        replace={"movies.graph_triples": triples},
        settings={"graph": GraphSettings(k=4, alpha=0.5).model_dump() | {"later": 1}},
    )
    return folder


def call(home: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["graph", *words, "--home", str(home)])


def payload(home: Path, *words: str) -> Any:
    result = call(home, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_memory_of_a_release_knows_its_humans_personas_and_settings(graph_home: Path) -> None:
    memory = GraphMemory.open(home=graph_home)
    assert (memory.domain, memory.scale.name, memory.settings.k) == ("movies", "0.5-5", 4)
    assert memory.settings.alpha == 0.5, "as the release was made"
    assert len(memory.retrieve("ml-user:3", "ml:1")) == 4
    new = memory.retrieve("persona:default:2", "ml:1")
    assert {n.rating_of for n in new} == {"others"}
    assert all(n.parts.user_similarity == 0 for n in new), "it did nothing yet"
    store = Store(graph_home)
    same = GraphMemory.open(store.release("movies"))
    by_path = GraphMemory.open(store.release("movies").path)
    for other in (same, by_path, GraphMemory.open("movies@latest", graph_home)):
        assert other.retrieve("ml-user:3", "ml:1") == memory.retrieve("ml-user:3", "ml:1")


def test_no_rating_of_a_held_out_pair_is_answered(graph_home: Path) -> None:
    frames = small_release.frames()
    splits = frames["movies.splits"].filter(pl.col("split") != "train")
    memory = GraphMemory.open(home=graph_home)
    for user, item in splits.select("user_id", "item_id").head(20).iter_rows():
        for neighbour in memory.retrieve(user, "ml:1" if item != "ml:1" else "ml:2", k=24):
            if neighbour.item_id == item:
                assert neighbour.rating_of == "others"


def test_neighbours_are_those_of_the_memory(graph_home: Path) -> None:
    shown = payload(graph_home, "neighbours", "ml:1", "--user", "ml-user:3", "-k", "2")
    found = GraphMemory.open(home=graph_home).retrieve("ml-user:3", "ml:1", 2)
    assert shown["neighbours"] == json.loads(json.dumps([n.to_dict() for n in found]))
    assert shown["title"] == "Film 1"
    assert shown["release"].startswith("movies@")
    assert shown["weights"] == {"pathsim": 0.5, "user_similarity": 0.5, "cosine": 0.25}
    first = shown["neighbours"][0]
    parts = first["parts"]
    assert first["score"] == pytest.approx(
        0.5 * parts["pathsim"] + 0.5 * parts["user_similarity"] + 0.25 * parts["cosine"], abs=1e-6
    )


def test_the_text_says_why(graph_home: Path) -> None:
    text = call(graph_home, "neighbours", "ml:1", "--user", "ml-user:3", "-k", "24").stdout
    assert "Film 1 (ml:1) for ml-user:3" in text
    assert "user's community" in text
    assert "The [bold]Bracket" in " ".join(text.split()), "brackets of titles are no markup"
    assert "*" in text
    assert max(map(len, text.splitlines())) <= 80
    assert "for" not in call(graph_home, "neighbours", "ml:1").stdout.splitlines()[0]


def test_a_picture_is_drawn_when_asked_for(graph_home: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "near.png"
    shown = payload(graph_home, "neighbours", "ml:1", "--picture", str(path))
    assert shown["picture"] == str(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert len(path.read_bytes()) < 80_000


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (["neighbours", "ml:999"], 4, "no item 'ml:999'"),
        (["neighbours", "ml:1", "--user", "me"], 4, "no user 'me'"),
        (["neighbours", "ml:1", "-k", "0"], 2, "greater than or equal to 1"),
        (["neighbours", "ml:1", "--release", "songs"], 6, "songs"),
        (["export", "--out", "x.graphml", "--node", "x:1"], 4, "'x:1'"),
        (["export", "--out", "x", "--without", "Users"], 2, "Users"),
    ],
)
def test_faults_are_one_line_and_write_nothing(
    graph_home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    part: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(graph_home, *words)
    assert result.exit_code == code, result.output
    assert part in result.stderr
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_graphml_of_a_release(graph_home: Path, tmp_path: Path) -> None:
    path = tmp_path / "near.graphml"
    shown = payload(
        graph_home, "export", "--out", str(path), "--without", "User",
        "--without", "Rating", "--hops", "2", "--max-nodes", "12",
    )  # fmt: skip
    read = nx.read_graphml(path)
    assert (len(read), read.number_of_edges()) == (shown["nodes"], shown["edges"])
    assert shown["truncated"]
    assert shown["nodes"] == 12
    assert "User" not in {kind for _, kind in read.nodes(data="type")}
    text = call(graph_home, "export", "--out", str(path), "--max-nodes", "3").stdout
    assert "not all nodes fit" in " ".join(text.split())
