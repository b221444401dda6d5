"""Joint shares of people's attributes: write the aggregates, or compare personas with them.

python benchmarks/personas/joint_shares.py --data FOLDER     writes pipelines/personas/data/joint
python benchmarks/personas/joint_shares.py                   total variation, a Markdown table

The folder holds movielens/ml-100k.zip and personas/census_personas.jsonl.gz.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import zipfile
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
from scipy import sparse

from pipelines.config import TraitSettings
from pipelines.personas import (
    MIN_PEOPLE,
    OPINION,
    TRAITS,
    joint_distances,
    load_lists,
    sample_attributes,
)
from pipelines.raters.statistical import HumanRows, group_surplus

LISTS = Path(__file__).parents[2] / "pipelines" / "personas" / "data"
#: Shrunken mean surplus (stars) from which people like or dislike a genre, as in the statistical
#: rater, and the pseudo-ratings that means of films and people are shrunk with (count).
THRESHOLD, DAMPING = 0.1, 5.0
#: First ages (years) of the bands, and names of the levels of traits.
BANDS = {4: "4-17", 18: "18-24", 25: "25-34", 35: "35-44", 45: "45-94"}
#: Ages of the census records by the words that the records use (years).
CENSUS_BANDS = {
    "18 to 19 years": "18-19", "20 to 24 years": "20-24", "25 to 34 years": "25-34",
    "35 to 44 years": "35-44", "45 to 54 years": "45-54", "55 to 59 years": "55-59",
    "60 to 64 years": "60-64", "65 to 74 years": "65-74", "75 to 84 years": "75-94",
    "85 years and over": "75-94",
}  # fmt: skip


def people(archive: Path) -> pl.DataFrame:
    """Attributes of ml-100k's people by name of the attribute, one row per person."""
    with zipfile.ZipFile(archive) as files:

        def table(name: str, separator: str, columns: list[str]) -> pl.DataFrame:
            text = files.read(f"ml-100k/{name}").decode("iso-8859-1")
            return pl.read_csv(
                io.StringIO(text), separator=separator, has_header=False, new_columns=columns
            )

        ratings = table("u.data", "\t", ["user", "item", "rating", "time"])
        users = table("u.user", "|", ["user", "age", "gender", "job", "zip"]).sort("user")
        names = table("u.genre", "|", ["genre", "number"])["genre"].to_list()
        films = table("u.item", "|", [f"c{n}" for n in range(24)]).sort("c0")
    user = ratings["user"].to_numpy() - 1
    item = ratings["item"].to_numpy() - 1
    rating = ratings["rating"].to_numpy().astype(float)
    flags = films.select(f"c{n}" for n in range(5, 24)).to_numpy().astype(float)
    size = users.height

    def shrunken(by: np.ndarray, values: np.ndarray, length: int) -> np.ndarray:
        return np.bincount(by, values, length) / (np.bincount(by, minlength=length) + DAMPING)

    over = rating - rating.mean()
    over = over - shrunken(item, over, films.height)[item]
    leniency = shrunken(user, over, size)
    rows = HumanRows([str(n) for n in range(size)], user, item, rating)
    surplus, _ = group_surplus(rows, over - leniency[user], sparse.csr_matrix(flags))
    count = np.bincount(user, minlength=size)
    mean = np.bincount(user, rating, size) / count
    spread = np.sqrt(np.bincount(user, rating**2, size) / count - mean**2)
    item_mean = np.bincount(item, rating, films.height) / np.maximum(np.bincount(item), 1)
    apart = np.bincount(user, (rating - item_mean[item]) ** 2, size) / count
    tiers = TraitSettings()
    low, high = tiers.conformity
    values = {
        "gender": users["gender"].replace_strict({"M": "male", "F": "female"}).to_list(),
        "age": [BANDS[max(b for b in BANDS if b <= age)] for age in users["age"]],
        "leniency": levels("leniency", leniency, (0.25, 0.75)),
        "manner": levels("manner", spread, (0.25, 0.75)),
        "activity": levels("activity", count, tiers.activity),
        "conformity": levels("conformity", -apart, (1 - high, 1 - low)),
    }
    for genre in pl.read_csv(LISTS / "genres" / "movies.csv")["genre"]:
        at = surplus[:, names.index(genre)]
        place = (at > -THRESHOLD).astype(int) + (at > THRESHOLD)
        values[genre] = np.array(OPINION)[place].tolist()
    return pl.DataFrame(values)


def levels(trait: str, values: np.ndarray, ends: tuple[float, float]) -> list[str]:
    """Names of the three levels that two quantiles divide people into."""
    bounds = np.quantile(values, ends)
    names: list[str] = np.array(TRAITS[trait])[np.searchsorted(bounds, values)].tolist()
    return names


def tables(frame: pl.DataFrame, pairs: list[tuple[str, str]]) -> pl.DataFrame:
    """Published cells of two-way tables: people (count), at least `MIN_PEOPLE` each."""
    cells = [
        frame.group_by(pl.col(a).alias("first_level"), pl.col(b).alias("second_level"))
        .agg(people=pl.len())
        .select(first=pl.lit(a), first_level="first_level", second=pl.lit(b),
                second_level="second_level", people="people")
        for a, b in pairs
    ]  # fmt: skip
    whole = pl.concat(cells).filter(pl.col("people") >= MIN_PEOPLE)
    return whole.sort("first", "second", "first_level", "second_level")


def census(path: Path) -> pl.DataFrame:
    """Age, gender and occupation of the census records, one row per person."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]

    def career(row: dict[str, str]) -> str:
        if row["CAREER"] == "Student":
            return "student"
        if row["EMPLOYMENT STATUS"] != "Employed":
            return "none"
        name = row["CAREER"].split(",")[0].split(" including")[0].removesuffix(" occupations")
        return name[0].lower() + name[1:]

    return pl.DataFrame(
        {
            "age": [CENSUS_BANDS[row["AGE"]] for row in records],
            "gender": [row["SEX"].lower() for row in records],
            "career": [career(row) for row in records],
        }
    ).with_columns(
        status=pl.when(pl.col("career").is_in(["student", "none"]))
        .then(pl.col("career"))
        .otherwise(pl.lit("employed"))
    )


def report(cohorts: int, count: int) -> None:
    """Print the mean total variation by pair of attributes, over cohorts, and its 95 % interval."""
    found = [
        joint_distances(sample_attributes(0, f"movies-{n}", np.arange(count)), load_lists())
        .group_by("pair", maintain_order=True)
        .agg(pl.len(), pl.col("distance", "independent").mean())
        for n in range(cohorts)
    ]
    print(f"{cohorts} cohorts of {count:,} film personas.\n")
    print("| pair | tables | personas | independent (baseline) |\n|---|---:|---:|---:|")
    for (pair, tables_), rows in pl.concat(found).group_by("pair", "len", maintain_order=True):
        low, high = np.quantile(rows["distance"], [0.025, 0.975])
        print(
            f"| {pair} | {tables_} | {rows['distance'].mean():.3f} [{low:.3f}, {high:.3f}] "
            f"| {rows['independent'].mean():.3f} |"
        )


def main() -> None:
    """Write the tables, or print the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="folder of the source files")
    parser.add_argument("--to", type=Path, default=LISTS / "joint")
    parser.add_argument("--cohorts", type=int, default=20, help="compared cohorts (count)")
    parser.add_argument("--count", type=int, default=10_000, help="personas of each (count)")
    given = parser.parse_args()
    if given.data is None:
        report(given.cohorts, given.count)
        return
    frame = people(given.data / "movielens" / "ml-100k.zip")
    own = [c for c in frame.columns if c not in ("gender", "age")]
    pairs = [*combinations(own, 2), *((c, by) for c in own for by in ("gender", "age"))]
    tables(frame, pairs).write_csv(given.to / "movies.csv")
    records = census(given.data / "personas" / "census_personas.jsonl.gz")
    by_gender = [
        tables(part.rename({"age": f"age of {name}"}), [("status", f"age of {name}")])
        for (name,), part in sorted(records.group_by("gender"))
    ]
    working = tables(records.filter(status="employed"), [("career", "age"), ("career", "gender")])
    pl.concat([working, *by_gender]).write_csv(given.to / "careers.csv")


if __name__ == "__main__":
    main()
