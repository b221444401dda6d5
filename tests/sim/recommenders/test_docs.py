"""The example at the head of docs/recommenders.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

from sim import Release
from sim.recommenders import evaluate_offline, open_recommender


def test_the_first_example_is_a_recommender_of_ten_lines(
    repository: Path, tmp_path: Path, release: Release
) -> None:
    page = (repository / "docs" / "recommenders.md").read_text(encoding="utf-8")
    (code, *_) = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    assert page.index(code) < 400
    (tmp_path / "mine.py").write_text(code)
    place = f"{tmp_path / 'mine.py'}:Mine"
    mine = {"popular": open_recommender("popular"), place: open_recommender(place)}
    report = evaluate_offline(mine, release, k=5)
    assert report.rows[-1].ndcg.value > 0
