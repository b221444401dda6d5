"""Recommenders by people's held-out items and by personas, on one scale."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.errors import ReleaseError
from pipelines.packaged import SAMPLE_HOME
from sim import Release, open_release
from sim.agents import match_people
from sim.recommenders import Leaderboard, leaderboard, open_recommender


@pytest.fixture(scope="module")
def board() -> Leaderboard:
    """Four recommenders, of which one reads what personas like."""
    names = ("popular", "random", "content", "mean-rating")
    recommenders = {name: partial(open_recommender, name) for name in names}
    release, _ = match_people(open_release(home=SAMPLE_HOME))
    return leaderboard(release, recommenders, users=60, k=10)


def test_scale_runs_from_random_to_oracle(board: Leaderboard) -> None:
    score = {row.name: row.score.value for row in board.rows}
    assert (score["random"], score["oracle"]) == (0.0, 1.0)
    reward = {row.name: row.reward.value for row in board.rows}
    share = (reward["popular"] - reward["random"]) / (reward["oracle"] - reward["random"])
    assert score["popular"] == pytest.approx(share)
    assert [*reward.values()] == sorted(reward.values(), reverse=True)


def test_who_reads_likes_is_judged_by_personas_alone(board: Leaderboard) -> None:
    judged = {row.name: row.ndcg is not None for row in board.rows}
    assert {name for name, on_people in judged.items() if not on_people} == {"content", "oracle"}
    assert board.ranked == 2


def test_agreement_is_between_orders_and_beside_chance(board: Leaderboard) -> None:
    ndcg = {row.name: row.ndcg.value for row in board.rows if row.ndcg is not None}
    reward = {row.name: row.reward.value for row in board.rows}
    same = (ndcg["mean-rating"] > ndcg["popular"]) == (reward["mean-rating"] > reward["popular"])
    assert board.agreement.value == pytest.approx(1.0 if same else -1.0)
    assert -1.0 <= board.agreement.low <= board.agreement.high <= 1.0
    assert board.chance == 1.0


def test_release_without_matched_personas_is_refused(release: Release) -> None:
    with pytest.raises(ReleaseError, match="no persona is matched"):
        leaderboard(release, {"random": partial(open_recommender, "random")}, k=3)


@pytest.mark.pipeline
def test_command_ranks_all_recommenders_and_one_more(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from sim.recommenders import MeanRatingRecommender\n\n"
        "class Mine(MeanRatingRecommender):\n    name = 'mine'\n"
    )
    home = str(SAMPLE_HOME)
    words = ["leaderboard", "--home", home, "-r", f"{mine}:Mine", "--users", "20", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    shown = orjson.loads(result.stdout)
    rows = {row["recommender"]: row for row in shown["rows"]}
    assert len(rows) == 12, "ten recommenders, the oracle and mine"
    assert rows[f"{mine}:Mine"]["reward"] == rows["mean-rating"]["reward"]
    assert 0 < shown["chance"] < 1
