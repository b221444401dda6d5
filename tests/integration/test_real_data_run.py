"""`understudy run --data` on the real files: what goes in comes out as published rows."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from support.fork_server import ForkServer

from pipelines.store import Store
from sim import open_release

pytestmark = [
    pytest.mark.pipeline,
    pytest.mark.shared_data,
    pytest.mark.timeout(3_600),
]


@pytest.fixture(scope="module")
def home(
    tmp_path_factory: pytest.TempPathFactory,
    forked: ForkServer,
    shared_data: Path,
    word_encoder: Path,
) -> Path:
    home = tmp_path_factory.mktemp("real")
    result = forked.run(
        *("run", "--home", str(home), "--data", str(shared_data), "--json"),
        *("--set", "personas.count=12", "--set", "scoring.max_pairs=2400"),
        *("--set", f"embedding.model={word_encoder}"),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    (home / "run.json").write_text(result.stdout, encoding="utf-8")
    return home


def test_all_films_ratings_and_users_are_published(home: Path) -> None:
    release = open_release("movies@latest", home=home, verify=True)
    assert release.world == "ml-latest-small"
    assert release["items"].rows == 9_742
    assert release["interactions"].rows == 100_836
    assert release["human_users"].rows == 610


def _counts_of_the_page(repository: Path) -> dict[str, tuple[int, ...]]:
    """Rows of the table under `| domain | items | ...` in docs/data.md."""
    lines = (repository / "docs/data.md").read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("| domain |"))
    found = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        found[name] = tuple(int(cell.replace(",", "")) for cell in cells)
    return found


def test_the_counts_of_all_four_domains_are_those_of_the_page(home: Path, repository: Path) -> None:
    written = _counts_of_the_page(repository)
    assert set(written) == {"movies", "books", "games", "products"}
    for domain, counts in written.items():
        release = open_release(f"{domain}@latest", home=home, verify=True)
        tables = ("items", "interactions", "human_users")
        assert tuple(release[table].rows for table in tables) == counts, domain


def test_the_choice_sets_of_products_are_those_of_the_page(home: Path, repository: Path) -> None:
    release = open_release("products@latest", home=home)
    sets, members = release["categories"].rows, release["product_category"].rows
    text = " ".join((repository / "docs/data.md").read_text(encoding="utf-8").split())
    assert f"{release['products'].rows:,} products in {sets} choice sets" in text
    assert members >= release["products"].rows


def test_plots_casts_and_directors_are_those_of_the_dump(home: Path) -> None:
    items = open_release("movies@latest", home=home)["items"].polars()
    # In the dump 7,226 records have a plot, 7,029 a cast and 7,038 a director; one record is
    # shared by two films, and eight films have no TMDB id.
    assert items["has_tmdb"].sum() == 9_734
    assert items["overview"].count() == 7_227
    assert items.filter(pl.col("actors").list.len() > 0).height == 7_030
    assert items.filter(pl.col("directors").list.len() > 0).height == 7_039


def test_known_films_read_as_a_person_would_write_them(home: Path) -> None:
    items = open_release("movies@latest", home=home)["items"].polars()
    by_id = {row["item_id"]: row for row in items.to_dicts()}
    assert (by_id["ml:1"]["title"], by_id["ml:1"]["year"]) == ("Toy Story", 1995)
    assert by_id["ml:1"]["directors"] == ["John Lasseter"]
    assert by_id["ml:1"]["actors"][:2] == ["Tom Hanks", "Tim Allen"]
    assert by_id["ml:2571"]["title"] == "The Matrix"


def test_nothing_was_rejected_or_lost_in_movielens(home: Path) -> None:
    assert Store(home).current("raw.movielens_rejected").rows == 0


def test_the_summary_shows_coverage_and_its_baselines(home: Path) -> None:
    text = json.dumps(json.loads((home / "run.json").read_text())["releases"]).lower()
    for word in ("plot", "cast", "director", "random", "mean", "statistical"):
        assert word in text
