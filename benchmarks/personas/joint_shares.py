"""Joint shares of people's attributes: write the aggregates, or compare personas with them.

python benchmarks/personas/joint_shares.py --data FOLDER     writes pipelines/personas/data/joint
python benchmarks/personas/joint_shares.py                   total variation, a Markdown table
python benchmarks/personas/joint_shares.py --against FOLDER  what ml-1m's people say of the same

The folder holds movielens/ml-100k.zip and personas/census_personas.jsonl.gz; the last command
reads movielens/ml-1m-partial.zip, too.
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

from pipelines.personas import (
    MIN_PEOPLE,
    OPINION,
    TRAITS,
    joint_distances,
    load_lists,
    sample_attributes,
)
from pipelines.raters.statistical import HumanRows, group_surplus
from pipelines.warehouse import TIER_ENDS

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
        users, films, ratings = _hundred_k(files)
    users, films = users.sort("user"), films.sort("item")
    names = sorted(set(films["genres"].explode().drop_nulls()))
    user = ratings["user"].to_numpy() - 1
    item = ratings["item"].to_numpy() - 1
    rating = ratings["rating"].to_numpy().astype(float)
    flags = np.array([[g in own for g in names] for own in films["genres"]], dtype=float)
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
    low, high = TIER_ENDS["conformity"]
    values = {
        "gender": users["gender"].replace_strict({"M": "male", "F": "female"}).to_list(),
        "age": [BANDS[max(b for b in BANDS if b <= age)] for age in users["age"]],
        "leniency": levels("leniency", leniency, (0.25, 0.75)),
        "manner": levels("manner", spread, (0.25, 0.75)),
        "activity": levels("activity", count, TIER_ENDS["activity"]),
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


def surpluses(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """Mean surplus (stars) of a group's ratings of a genre over the mean of the groups.

    Parameters
    ----------
    rows
        Ratings with columns ``user, item, rating, genres`` and that of the groups.
    by
        Column of the groups.
    """
    rows = rows.with_columns(over=pl.col("rating") - pl.col("rating").mean())
    for one in ("item", "user"):
        mean = pl.col("over").sum().over(one) / (pl.len().over(one) + DAMPING)
        rows = rows.with_columns(over=pl.col("over") - mean)
    found = rows.explode("genres").group_by("genres", by).agg(surplus=pl.col("over").mean())
    return found.with_columns(pl.col("surplus") - pl.col("surplus").mean().over("genres"))


def against(folder: Path) -> None:
    """Print how far ml-1m's people agree with ml-100k's on genres by gender and by age."""
    with zipfile.ZipFile(folder / "ml-100k.zip") as files:
        sources = [_hundred_k(files)]
    with zipfile.ZipFile(folder / "ml-1m-partial.zip") as files:
        sources.append(_one_m(files))
    genres = pl.read_csv(LISTS / "genres" / "movies.csv")["genre"].to_list()
    groups = {"gender": pl.col("gender") == "F"}
    groups["age"] = sum((pl.col("age") >= first).cast(pl.Int64) for first in (25, 35, 45))
    print("| genres by | cells | correlation |\n|---|---:|---:|")
    for by, group in groups.items():
        first, second = (
            surpluses(
                ratings.join(films, on="item").join(users, on="user").with_columns(group.alias(by)),
                by,
            )
            for users, films, ratings in sources
        )
        both = first.join(second, on=["genres", by]).filter(pl.col("genres").is_in(genres))
        # Two genders mirror each other.
        both = both.filter("gender") if by == "gender" else both
        r = np.corrcoef(both["surplus"], both["surplus_right"])[0, 1]
        low, high = np.tanh(np.arctanh(r) + np.array([-1.96, 1.96]) / (both.height - 3) ** 0.5)
        print(f"| {by} | {both.height} | {r:.2f} [{low:.2f}, {high:.2f}] |")


def _hundred_k(files: zipfile.ZipFile) -> tuple[pl.DataFrame, ...]:
    def table(name: str, separator: str, columns: list[str]) -> pl.DataFrame:
        text = files.read(f"ml-100k/{name}").decode("iso-8859-1")
        return pl.read_csv(
            io.StringIO(text), separator=separator, has_header=False, new_columns=columns
        )

    names = table("u.genre", "|", ["genre", "number"])["genre"].drop_nulls().to_list()
    films = table("u.item", "|", ["item", *(f"c{n}" for n in range(1, 24))])
    flags = films.select(f"c{n}" for n in range(5, 24)).rows()
    genres = [[g for g, has in zip(names, row, strict=True) if has] for row in flags]
    return (
        table("u.user", "|", ["user", "age", "gender", "job", "zip"]),
        films.select("item", genres=pl.Series(genres)),
        table("u.data", "\t", ["user", "item", "rating", "time"]),
    )


def _one_m(files: zipfile.ZipFile) -> tuple[pl.DataFrame, ...]:
    def table(name: str, columns: dict[str, int]) -> pl.DataFrame:
        lines = files.read(f"ml-1m/{name}").decode("iso-8859-1").splitlines()
        parts = [line.split("::") for line in lines]
        return pl.DataFrame({name: [p[n] for p in parts] for name, n in columns.items()})

    users = table("users.dat", {"user": 0, "gender": 1, "age": 2})
    films = table("movies.dat", {"item": 0, "genres": 2})
    ratings = table("ratings.dat", {"user": 0, "item": 1, "rating": 2})
    return (
        users.cast({"user": pl.Int64, "age": pl.Int64}),
        films.cast({"item": pl.Int64}).with_columns(pl.col("genres").str.split("|")),
        ratings.cast(pl.Int64),
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
    parser.add_argument("--against", type=Path, help="folder of the source files, to compare")
    parser.add_argument("--to", type=Path, default=LISTS / "joint")
    parser.add_argument("--cohorts", type=int, default=20, help="compared cohorts (count)")
    parser.add_argument("--count", type=int, default=10_000, help="personas of each (count)")
    given = parser.parse_args()
    if given.against is not None:
        against(given.against / "movielens")
        return
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
