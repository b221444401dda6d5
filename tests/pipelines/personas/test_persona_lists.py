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
from pipelines.personas import DOMAIN_NAMES, load_lists, read_lists, sample_attributes


@pytest.fixture
def folder(tmp_path) -> Path:
    source = Path(str(files("pipelines.personas") / "data"))
    return Path(shutil.copytree(source, tmp_path / "lists"))


@pytest.mark.parametrize("domain", DOMAIN_NAMES)
def test_packaged_lists_cover_every_age_and_share(domain):
    lists = load_lists(domain)
    for bands in (lists.age_bands, lists.gender_bands):
        assert (bands.low[0], bands.high[-1]) == (4, 94)
        assert bands.low[1:].tolist() == (bands.high[:-1] + 1).tolist()
    for ages, first, last in (
        (lists.hobby_ages, 4, 94),
        (lists.job_ages, 18, lists.job_ages.max()),
    ):
        assert all(((ages[:, 0] <= n) & (n <= ages[:, 1])).any() for n in range(first, last + 1))
    assert len(set(lists.genres)) == len(lists.genres)
    assert lists.genre_shares.min() >= 0
    assert lists.genre_shares.max() <= 1


def test_unknown_domain_is_named():
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
