"""Figures of matched attributes, and Personality-2018 files in their published form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.hundred_k import hundred_k_tables

from pipelines.config import MatchingSettings
from pipelines.errors import SourceError
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.matching import (
    BIG_FIVE,
    History,
    ModelMatcher,
    StatisticalMatcher,
    attribute_study,
    match_users,
    personality_report,
    read_personality,
)
from pipelines.matching.testing import small_world

HEADER = (
    "userid, openness, agreeableness, emotional_stability, conscientiousness, extraversion, "
    "assigned metric, assigned condition, movie_1, predicted_rating_1, is_personalized, "
    "enjoy_watching \n"
)
#: As published: blanks after commas and an id twice.
ROWS = (
    "8e7cebf9, 5.0, 2.0, 3.0, 2.5, 6.5, serendipity, high, 77658, 4.32, 4, 4\n"
    "77c7d756, 7.0, 4.0, 6.0, 5.5, 4.0, all, default, 120138, 4.31, 2, 3\n"
    "77c7d756, 1.0, 1.0, 1.0, 1.0, 1.0, all, default, 120138, 4.31, 2, 3\n"
    "b7e8a92c, 4.0, 3.0, 4.5, 2.0, 2.5, serendipity, medium, 4, 3.0, 3, 3\n"
)


def personas_of(ages: list[str | None]) -> pl.DataFrame:
    count = len(ages)
    return pl.DataFrame(
        {
            "user_id": [f"ml-user:{n}" for n in range(count)],
            "method": ["statistical"] * count,
            "age_band": ages,
            "occupation": [None] * count,
        },
        schema=dict.fromkeys(("user_id", "method", "age_band", "occupation"), pl.String),
    )


def figures_of(history: History, personas: pl.DataFrame) -> dict[tuple[str, str], Any]:
    """Figures by attribute and predictor."""
    rows = attribute_study(history, personas, {}).rows
    return {(r.labels["attribute"], r.labels["predictor"]): r.figures for r in rows}


def test_figures_are_those_of_the_confusion(history: History) -> None:
    # Users 0 to 5 are 18-24, 25-34, 56+, 18-24, 25-34, 56+; two of three classes are answered.
    answers = ["18-24", "18-24", "18-24", "18-24", "25-34", "25-34"]
    rows = figures_of(history, personas_of(answers))
    row = rows["age_band", "statistical"]
    assert row["accuracy"].value == pytest.approx(3 / 6)
    # 18-24: 2 of 4 right, 2 of 2 found. 25-34: 1 of 2, 1 of 2. 56+: never answered.
    assert row["precision"].value == pytest.approx((0.5 + 0.5 + 0) / 3)
    assert row["recall"].value == pytest.approx((1 + 0.5 + 0) / 3)
    assert row["f1"].value == pytest.approx((2 / 3 + 0.5 + 0) / 3)
    assert row["accuracy"].low < row["accuracy"].value < row["accuracy"].high
    assert rows["age_band", "majority"]["accuracy"].value == pytest.approx(2 / 6)
    assert rows["age_band", "prior"]["accuracy"].value == pytest.approx(1 / 3)
    assert row["difference"].value == pytest.approx(1 / 6)


def test_a_report_without_a_model_says_what_is_assumed(history: History, world) -> None:
    settings = MatchingSettings(users=6, items=6, subset_size=4, others=4)
    matcher = StatisticalMatcher(settings)
    found = match_users(history, world["training_traits"], matcher, settings)
    footer = attribute_study(history, found.personas, found.metadata).footer
    assert footer.endswith("pipelines/matching/data/assumed.yaml.")
    assert footer.startswith("No language model")
    assert found.metadata["assumed"]["statistical"]["folds"] == 5


def write(folder: Path, rows: str = ROWS, header: str = HEADER) -> Path:
    path = folder / "personality-data.csv"
    path.write_text(header + rows)
    return path


def ratings(folder: Path) -> None:
    lines = ["useri, movie_id, rating, tstamp"]
    users = ("8e7cebf9", "77c7d756", "b7e8a92c", "unknown")
    lines += [
        f"{user}, {item}, {1 + (n + item) % 5}.0, 2001-09-10 17:19:56"
        for n, user in enumerate(users)
        for item in range(12)
    ]
    (folder / "ratings.csv").write_text("\n".join([*lines, "8e7cebf9, 999999, 3.0, 2001"]) + "\n")


def test_traits_are_read_on_zero_to_one(tmp_path: Path) -> None:
    answered = read_personality(write(tmp_path))
    assert answered.height == 4
    rows = {r["user_id"]: r for r in reversed(answered.to_dicts())}
    assert rows["8e7cebf9"]["openness"] == pytest.approx(4 / 6)
    assert rows["77c7d756"]["openness"] == 1.0
    # Emotional stability 6 of 7 is a neuroticism of 1/6.
    assert rows["77c7d756"]["neuroticism"] == pytest.approx(1 / 6)


def test_the_constant_median_stands_beside_a_model(tmp_path: Path) -> None:
    path = write(tmp_path)
    ratings(tmp_path)
    settings = MatchingSettings(users=3, candidates=1, items=4, subsets=1, subset_size=2, others=2)
    items = small_world()["items"]
    report = personality_report(path, items, ModelMatcher(ScriptedEngine(), settings), settings)
    assert (report["people"], report["repeated"]) == (3, 1)
    model, constant = report["rows"]
    assert (model["predictor"], constant["predictor"]) == ("model", "median")
    assert (model["users"], constant["users"]) == (3, 3)
    median = constant["errors"]
    # Openness 4/6, 1 and 1/2: distances from 4/6 are 0, 1/3 and 1/6.
    assert median["openness"]["value"] == pytest.approx((0 + 1 / 3 + 1 / 6) / 3)
    assert set(median) == {*BIG_FIVE, "mean"}
    assert 0 <= model["errors"]["mean"]["value"] <= 1


def test_broken_personality_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"can't be read .*personality-data.csv"):
        read_personality(tmp_path / "personality-data.csv")
    with pytest.raises(SourceError, match=r"no column userid, openness.*expected Personality-2018"):
        read_personality(write(tmp_path, "1,2\n", "a,b\n"))
    with pytest.raises(SourceError, match=r"the file has no row"):
        read_personality(write(tmp_path, ""))
    high = ROWS.replace("7.0, 4.0", "7.5, 4.0", 1)
    with pytest.raises(SourceError, match=r"openness is '7.5'.*line 3.*number from 1 to 7"):
        read_personality(write(tmp_path, high))


@pytest.fixture(scope="module")
def hundred_k(shared_data: Path, repository: Path):
    return hundred_k_tables(shared_data / "movielens" / "ml-100k.zip", repository)


@pytest.mark.shared_data
def test_baselines_of_ml_100k_are_the_known_ones(hundred_k) -> None:
    tables = dict(hundred_k)
    traits = tables.pop("training_traits")
    history = History.read("movies", **tables)
    matcher, settings = StatisticalMatcher(), MatchingSettings()
    found = match_users(history, traits, matcher, settings)
    assert found.personas.height == 943
    assert (found.personas["history"] == found.personas["activity"]).all()
    rows = figures_of(history, found.personas)
    assert rows["age_band", "majority"]["accuracy"].value == pytest.approx(0.329, abs=0.0005)
    assert found.metadata["published_majority"] == pytest.approx(0.208, abs=0.0005)
    assert found.metadata["unmapped_occupations"] == 0
    for name in ("age_band", "occupation"):
        assert rows[name, "statistical"]["f1"].low > rows[name, "majority"]["f1"].high
        assert rows[name, "statistical"]["accuracy"].value > rows[name, "prior"]["accuracy"].value
