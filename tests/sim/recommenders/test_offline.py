"""Offline evaluation: right figures, masks and intervals, in Python and on the command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl
import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.errors import ConfigError
from sim import Release
from sim.metrics import mean_with_interval, ndcg, recall, user_weights
from sim.recommenders import evaluate_offline, open_recommender, people_release

CLAIRVOYANT = """
import polars as pl
import numpy as np

class Clairvoyant:
    \"\"\"Knows the test split.\"\"\"

    def fit(self, release, *, interactions=None):
        ids = sorted(release["items"].polars(["item_id"])["item_id"])
        users = release["matched_personas"].polars().sort("persona_id")["user_id"].to_list()
        held = release["splits"].polars().filter(pl.col("split") == "{split}")
        own = {{u: i for u, i in held.select("user_id", "item_id").iter_rows()}}
        self.first = [ids.index(own[u]) for u in users]
        self.items = len(ids)
        return self

    def recommend(self, users, k, *, seen=None, ratings=None):
        lists = np.full((len(users), k), -1)
        for row, user in enumerate(users):
            left = [self.first[user], *range(self.items)]
            past = set(np.asarray(seen)[row].tolist())
            left = [n for n in dict.fromkeys(left) if n not in past][:k]
            lists[row, :len(left)] = left
        return lists
"""


@pytest.fixture
def clairvoyant(tmp_path: Path) -> Path:
    path = tmp_path / "clairvoyant.py"
    path.write_text(CLAIRVOYANT.format(split="test"))
    return path


def opened(*names: str) -> dict[str, Any]:
    return {name: open_recommender(name) for name in names}


def test_recall_and_ndcg_of_lists_made_by_hand() -> None:
    hits = [[True, False, True, False], [False, False, False, False]]
    assert recall(hits, [4, 2], k=4).tolist() == [0.5, 0.0]
    ideal = 1 + 1 / np.log2(3) + 1 / np.log2(4) + 1 / np.log2(5)
    assert ndcg(hits, [9, 2], k=4)[0] == pytest.approx((1 + 1 / np.log2(4)) / ideal)
    assert ndcg([[True, True]], [2], k=2).tolist() == [1.0]
    assert np.isnan(recall([[True]], [0], k=1)[0])
    assert np.isnan(ndcg([[True]], [0], k=1)[0])


def test_paired_intervals_are_narrower_than_unpaired_ones() -> None:
    rng = np.random.default_rng(0)
    one = rng.random(400)
    weights = user_weights(400, 500, seed=1)
    gap = mean_with_interval(one + 0.01 - one, weights)
    assert gap.value == pytest.approx(0.01)
    assert gap.high - gap.low < 1e-9
    mean = mean_with_interval(one, weights)
    assert mean.high - mean.low == pytest.approx(4 * one.std() / 20, rel=0.1)


def test_a_recommender_that_knows_the_test_split_is_perfect(
    release: Release, clairvoyant: Path
) -> None:
    place = f"{clairvoyant}:Clairvoyant"
    report = evaluate_offline(opened("popular", place), release, k=3)
    best = report.rows[-1]
    assert (best.recall.value, best.ndcg.value) == (1.0, 1.0)
    assert best.ndcg_difference is not None
    assert best.ndcg_difference.value == pytest.approx(1 - report.rows[0].ndcg.value)
    assert report.rows[0].ndcg_difference is None


def test_validation_items_are_masked_on_test_and_judged_on_validation(
    release: Release, tmp_path: Path
) -> None:
    path = tmp_path / "later.py"
    path.write_text(CLAIRVOYANT.format(split="validation"))
    place = f"{path}:Clairvoyant"
    # Its first item is masked on test; on validation it is the right one.
    found = {
        split: evaluate_offline(opened("popular", place), release, k=1, split=split).rows[-1]  # type: ignore[arg-type]
        for split in ("validation", "test")
    }
    assert found["validation"].recall.value == 1.0
    assert found["test"].recall.value < 0.5


def test_popular_agrees_with_counting_by_hand(release: Release) -> None:
    splits = release["splits"].polars()
    train = splits.filter(pl.col("split") == "train")
    count = dict(train.group_by("item_id").len().iter_rows())
    items = sorted(release["items"].polars(["item_id"])["item_id"].to_list())
    hits = []
    for (user,), rows in splits.group_by("user_id", maintain_order=True):
        known = rows.filter(pl.col("split") != "test")["item_id"].to_list()
        (held,) = rows.filter(pl.col("split") == "test")["item_id"]
        left = sorted((i for i in items if i not in known), key=lambda i: -count.get(i, 0))
        hits.append(held in left[:5])
        assert user
    report = evaluate_offline(opened("popular"), release, k=5)
    assert report.rows[0].recall.value == pytest.approx(np.mean(hits))
    assert report.users == 40


def test_baselines_come_first(release: Release) -> None:
    report = evaluate_offline(opened("ease", "popular", "random"), release)
    assert [row.name for row in report.rows] == ["random", "popular", "ease"]
    assert [row.baseline for row in report.rows] == [True, True, False]


def test_people_without_a_row_are_counted(release: Release) -> None:
    pytest.importorskip("implicit")
    rows = release["interactions"].polars(["user_id", "item_id", "rating"])
    rows = rows.filter(pl.col("user_id") != "ml-user:1")
    report = evaluate_offline(opened("popular", "ease", "bpr"), release, interactions=rows)
    # EASE folds user 1 in from the masked items; BPR can't.
    assert {row.name: row.fallbacks for row in report.rows} == {"popular": 0, "ease": 0, "bpr": 1}


def test_fewer_people_are_drawn_by_seed(release: Release) -> None:
    a, b, c = (
        evaluate_offline(opened("popular"), release, k=5, users=15, seed=s).rows[0].recall.value
        for s in (1, 1, 2)
    )
    assert a == b
    assert a != c


def test_content_and_unknown_references_are_refused(release: Release) -> None:
    with pytest.raises(ConfigError, match="people state no likes"):
        evaluate_offline(opened("popular", "content"), release)
    with pytest.raises(ConfigError, match=r"against als \(one of popular\)"):
        evaluate_offline(opened("popular"), release, against="als")


def test_the_view_of_people_leaves_the_release_alone(release: Release) -> None:
    view = people_release(release, ["ml-user:3", "ml-user:1"])
    assert view["matched_personas"].polars()["user_id"].to_list() == ["ml-user:3", "ml-user:1"]
    assert view["personas"].rows == 2
    assert view["items"].version == release["items"].version
    assert "matched_personas" in view
    assert "matched_personas" not in release
    assert len(release["personas"]) == 6


def run(home: Path, *words: str) -> Any:
    return CliRunner().invoke(app, ["recommend", *words, "--home", str(home)])


def test_the_table_has_baselines_first_and_paired_intervals(home: Path) -> None:
    result = run(home, "evaluate", "--recommender", "ease", "--k", "5")
    assert result.exit_code == 0, result.output
    names = [n for n in re.findall(r"^(\S+)", result.stdout, re.M) if n[0].isalpha()]
    assert names[:5] == ["recommender", "random", "popular", "mean-rating", "ease"]
    assert "NDCG@5 minus popular" in result.stdout
    assert "40 people of movies@" in result.stdout


def test_the_document_holds_every_figure(home: Path, clairvoyant: Path) -> None:
    place = f"{clairvoyant}:Clairvoyant"
    result = run(home, "evaluate", "-r", place, "-r", "ease", "--option", "ease.regularization=5",
                 "--against", "ease", "--json")  # fmt: skip
    assert result.exit_code == 0, result.output
    payload = orjson.loads(result.stdout)
    assert payload["masked"] == ["train", "validation"]
    rows = {row["recommender"]: row for row in payload["rows"]}
    assert list(rows) == ["random", "popular", "mean-rating", "ease", place]
    assert rows["ease"]["ndcg_difference"] is None
    gap = rows[place]["ndcg_difference"]
    assert gap["low"] <= gap["value"] <= gap["high"]
    assert rows[place]["recall"]["value"] == 1.0


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("-r", "eaze"), 2, "did you mean ease"),
        (("-r", "ease", "--option", "als.factors=3"), 2, "NAME.KEY=VALUE"),
        (("-r", "ease", "--option", "ease.size=3"), 2, "options: regularization"),
        (("-r", "content"), 2, "people state no likes"),
        (("-r", "ease", "--release", "books"), 6, "books"),
    ],
)
def test_wrong_words_are_errors_of_one_line(
    home: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    result = run(home, "evaluate", *words)
    assert result.exit_code == code
    assert message in " ".join(result.output.split())


def test_help_teaches_by_example() -> None:
    result = CliRunner().invoke(app, ["recommend", "evaluate", "--help"], env={"COLUMNS": "120"})
    assert "understudy recommend evaluate --recommender ease" in result.output
    assert "mine.py:Mine" in result.output


def test_recommenders_are_listed_with_options() -> None:
    result = CliRunner().invoke(app, ["recommend", "list", "--json"])
    assert result.exit_code == 0, result.output
    rows = {row["recommender"]: row for row in orjson.loads(result.stdout)}
    assert rows["ease"]["options"] == {"regularization": 300.0}
    assert rows["random"]["baseline"]
    assert not rows["lightgcn"]["baseline"]
