"""The sampler's lists: what is broken is refused, what is small works, ages are the census's."""

from __future__ import annotations

import csv
import re
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest

from pipelines.errors import ConfigError
from pipelines.personas import load_lists, read_lists, sample_attributes


@pytest.fixture
def folder(tmp_path) -> Path:
    source = Path(str(files("pipelines.personas") / "data"))
    return Path(shutil.copytree(source, tmp_path / "lists"))


def drop_line(file: Path, start: str) -> None:
    lines = file.read_text("utf-8").splitlines()
    kept = [line for line in lines if not line.startswith(start)]
    assert len(kept) == len(lines) - 1
    file.write_text("\n".join(kept) + "\n", "utf-8")


@pytest.mark.parametrize("band", ["4,4,", "25,34,", "85,94,"])
def test_a_census_file_with_a_missing_band_is_refused(folder, band):
    drop_line(folder / "ages.csv", band)
    with pytest.raises(ConfigError, match=r"without gap or overlap.*ages\.csv"):
        read_lists(folder)


def test_a_missing_band_of_genders_is_refused(folder):
    drop_line(folder / "genders.csv", "18,64,")
    with pytest.raises(ConfigError, match=re.compile("without gap.*genders.csv: 18-64", re.S)):
        read_lists(folder)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("ages.csv", "low,high\n4,94\n", "no persons"),
        ("ages.csv", "low,high,persons\n4,94,many\n", "persons must be a number"),
        ("ages.csv", "low,high,persons\n", "is empty"),
        ("genres/movies.csv", "genre,liked,from_age\nDrama,1.5,4\n", "between 0 and 1"),
        ("genres/movies.csv", "genre,liked,from_age\nA,0.5,4\nA,0.5,4\n", "must differ"),
        ("hobbies.csv", "hobby,low,high\nhiking,18,100\n", "nothing to draw from"),
        ("names.csv", "name,gender,peak,spread\nAnn,female,1980,10\n", "is empty"),
    ],
)
def test_a_broken_list_is_refused_by_name(folder, name, text, message):
    (folder / name).write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=message):
        read_lists(folder)


def test_an_absent_list_and_an_unknown_domain_are_named(folder):
    (folder / "jobs.csv").unlink()
    with pytest.raises(ConfigError, match=r"missing.*jobs\.csv"):
        read_lists(folder)
    with pytest.raises(ConfigError, match=r"no persona lists.*music"):
        load_lists("music")


@pytest.mark.parametrize("share", ["0", "0.5", "1"])
def test_a_list_with_one_genre_is_liked_by_everybody(folder, share):
    (folder / "genres" / "games.csv").write_text(f"genre,liked,from_age\nRPG,{share},18\n", "utf-8")
    people = sample_attributes(1, "one", np.arange(500), read_lists(folder, "games"))
    assert people["likes"].to_list() == [["RPG"]] * 500
    assert people["dislikes"].list.len().sum() == 0


@pytest.mark.shared_data
def test_packaged_ages_are_the_census_table_s(shared_data):
    table = shared_data / "census" / "us_age_sex_acs2023_sum_of_50_states.csv"
    with table.open(encoding="utf-8") as lines:
        persons = {row["label"]: int(row["persons"]) for row in csv.DictReader(lines)}
    bands = {
        (int(m[1]), int(m[2]) if m[2] else 94): count
        for label, count in persons.items()
        if (m := re.fullmatch(r"(\d+) (?:to (\d+) years|years and over)", label))
        and (m[2] or m[1] == "85")
    }
    bands[4, 4] = round(persons["Under 5 years"] / 5)
    lists = load_lists()
    packaged = dict(
        zip(
            zip(lists.age_bands.low.tolist(), lists.age_bands.high.tolist(), strict=True),
            lists.age_shares,
            strict=True,
        )
    )
    assert set(packaged) == set(bands)
    total = sum(bands.values())
    for band, count in bands.items():
        assert packaged[band] == pytest.approx(count / total, rel=1e-6), band
    over = persons["65 years and over!!Male"] / persons["65 years and over"]
    assert lists.male_shares[-1] == pytest.approx(over, rel=1e-6)
