"""Joint shares of people's attributes: write the aggregates, or compare personas with them.

python benchmarks/personas/joint_shares.py --data FOLDER     writes pipelines/personas/data/joint
python benchmarks/personas/joint_shares.py                   total variation, a Markdown table
python benchmarks/personas/joint_shares.py --against FOLDER  likes and jobs of people and personas

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
from pipelines.raters.statistical.profiles import HumanRows, group_surplus
from pipelines.warehouse import TIER_ENDS

LISTS = Path(__file__).parents[2] / "pipelines" / "personas" / "data"
GENRES = sorted(pl.read_csv(LISTS / "genres" / "movies.csv")["genre"])
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


#: Groups of jobs that ml-100k's occupations and the sampler's careers share; all else is `other`.
OCCUPATIONS = {
    "student": "student", "retired": "retired", "none": "not working", "homemaker": "not working",
    "programmer": "technical", "engineer": "technical", "technician": "technical",
    "scientist": "technical", "educator": "education", "librarian": "education",
    "healthcare": "health", "doctor": "health", "artist": "arts", "entertainment": "arts",
    "writer": "arts", "executive": "office", "administrator": "office", "lawyer": "law",
    "marketing": "sales", "salesman": "sales",
}  # fmt: skip
CAREERS = {
    "computer and mathematical": "technical", "architecture and engineering": "technical",
    "life": "technical", "education": "education", "arts": "arts", "management": "office",
    "business and financial operations": "office", "office and administrative support": "office",
    "legal": "law", "sales and related": "sales", "healthcare support": "health",
    "health technologists and technicians": "health",
    "health diagnosing and treating practitioners and other technical": "health",
}  # fmt: skip


def people(data: Path) -> pl.DataFrame:
    """Attributes of ml-100k's people by name of the attribute, one row per person."""
    users, films, ratings = read_100k(data)
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


def film_tables(data: Path) -> pl.DataFrame:
    """Rows of ``joint/movies.csv``."""
    frame = people(data)
    own = [c for c in frame.columns if c not in ("gender", "age")]
    pairs = [*combinations(own, 2), *((c, by) for c in own for by in ("gender", "age"))]
    return tables(frame, pairs)


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


def above_expected(rows: pl.DataFrame) -> pl.DataFrame:
    """Ratings with ``over``, their surplus (stars) over the shrunken means of film and person."""
    rows = rows.with_columns(over=pl.col("rating") - pl.col("rating").mean())
    for one in ("item", "user"):
        mean = pl.col("over").sum().over(one) / (pl.len().over(one) + DAMPING)
        rows = rows.with_columns(over=pl.col("over") - mean)
    return rows


def surpluses(rows: pl.DataFrame, by: str) -> pl.DataFrame:
    """Mean surplus (stars) of a group's ratings of a genre over the mean of the groups.

    Parameters
    ----------
    rows
        Ratings with columns ``user, item, rating, genres`` and that of the groups.
    by
        Column of the groups.
    """
    rows = above_expected(rows).explode("genres")
    found = rows.group_by("genres", by).agg(surplus=pl.col("over").mean())
    return found.with_columns(pl.col("surplus") - pl.col("surplus").mean().over("genres"))


def favourable(users: pl.DataFrame, films: pl.DataFrame, ratings: pl.DataFrame) -> pl.DataFrame:
    """Share of women and men whose ratings of a genre are above those of film and person.

    One row per genre of the sampler: ``genre, women, men, difference`` (men less women) and
    ``half``, half of its 95 % interval's width. People without a rating of a genre don't count.
    """
    rows = above_expected(ratings.join(films, on="item"))
    rows = rows.explode("genres").group_by("user", genre="genres").agg(pl.col("over").mean())
    rows = rows.join(users, on="user").with_columns(likes=pl.col("over") > 0)
    return by_gender(rows.with_columns(male=pl.col("gender") == "M"))


def likes(personas: pl.DataFrame) -> pl.DataFrame:
    """Share of personas who like a genre, as in `favourable`."""
    rows = pl.concat(
        personas.select(
            genre=pl.lit(genre), male=pl.col("gender") == "male",
            likes=pl.col("likes").list.contains(genre),
        )
        for genre in GENRES
    )  # fmt: skip
    return by_gender(rows)


def by_gender(rows: pl.DataFrame) -> pl.DataFrame:
    """Shares of ``likes`` by ``genre`` and ``male``, with their difference."""
    like, variance = pl.col("likes").cast(pl.Float64), pl.lit(0.0)
    columns = {}
    for name, group in (("women", ~pl.col("male")), ("men", pl.col("male"))):
        columns[name] = like.filter(group).mean()
        variance = variance + like.filter(group).var(ddof=0) / group.sum()
    half = (1.96 * variance.sqrt()).alias("half")
    shares = rows.filter(pl.col("genre").is_in(GENRES)).group_by("genre").agg(half, **columns)
    return shares.with_columns(difference=pl.col("men") - pl.col("women")).sort("genre")


def against(folder: Path) -> None:
    """Print how far people of ml-100k and ml-1m and personas agree on genres and jobs."""
    sources = [read_100k(folder)]
    with zipfile.ZipFile(folder / "movielens" / "ml-1m-partial.zip") as files:
        sources.append(_one_m(files))
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
        both = first.join(second, on=["genres", by]).filter(pl.col("genres").is_in(GENRES))
        # Two genders mirror each other.
        both = both.filter("gender") if by == "gender" else both
        r = np.corrcoef(both["surplus"], both["surplus_right"])[0, 1]
        low, high = np.tanh(np.arctanh(r) + np.array([-1.96, 1.96]) / (both.height - 3) ** 0.5)
        print(f"| {by} | {both.height} | {r:.2f} [{low:.2f}, {high:.2f}] |")
    personas = sample_attributes(0, "movies-0", np.arange(100_000))
    likes_against([favourable(*source) for source in sources], likes(personas))
    jobs_against(sources[0][0], personas)


def likes_against(sources: list[pl.DataFrame], personas: pl.DataFrame) -> None:
    """Print shares who like a genre, men less women: people of two sources and personas."""
    print(
        "\n| genre | ml-100k: women, men | difference | ml-1m | personas: women, men | difference |"
    )
    print("|---|---|---|---|---|---|")
    for genre, *rows in zip(
        GENRES, *(t.rows(named=True) for t in (*sources, personas)), strict=True
    ):
        cells = [f"{r['difference']:+.3f} ± {r['half']:.3f}" for r in rows]
        first, _, last = (f"{r['women']:.3f}, {r['men']:.3f}" for r in rows)
        print(f"| {genre} | {first} | {cells[0]} | {cells[1]} | {last} | {cells[2]} |")
    ours = np.sign(personas["difference"])
    for name, people_ in zip(("ml-100k", "ml-1m"), sources, strict=True):
        same = (np.sign(people_["difference"]) == ours).to_numpy()
        clear = (people_["difference"].abs() > people_["half"]).to_numpy()
        print(
            f"{name}: same sign in {same.sum()} of {len(same)}, "
            f"{(same & clear).sum()} of {clear.sum()} whose interval leaves out 0"
        )


def jobs_against(users: pl.DataFrame, personas: pl.DataFrame) -> None:
    """Print the total variation of jobs between ml-100k's people and personas by age and gender.

    *All* compares with personas of all ages and both genders, *chance* is that of as many people
    drawn from the personas of the row. Intervals are those of a bootstrap over people.
    """
    lists = load_lists()
    career = {
        job: lists.careers.names[n] for job, n in zip(lists.jobs, lists.job_careers, strict=True)
    }
    groups = {job: CAREERS.get(name, "other") for job, name in career.items()}
    groups |= {job: job for job in ("student", "retired", "not working")}
    names = sorted(set(groups.values()))
    rng, ends = np.random.default_rng(0), (18, 25, 35, 45, 65)

    def codes(frame: pl.DataFrame, words: dict[str, str]) -> pl.DataFrame:
        group = pl.col("job").replace_strict(words, default="other")
        return frame.select(
            male=pl.col("gender").str.to_lowercase().str.starts_with("m"),
            band=sum((pl.col("age") >= end).cast(pl.Int64) for end in ends),
            group=group.replace_strict({name: n for n, name in enumerate(names)}),
        ).filter(pl.col("band").is_between(1, len(ends) - 1))

    def shares(values: np.ndarray) -> np.ndarray:
        return np.bincount(values, minlength=len(names)) / max(len(values), 1)

    people_, ours = codes(users, OCCUPATIONS), codes(personas, groups)
    everybody = shares(ours["group"].to_numpy())
    print("\n| age, gender | people | personas | all | chance |\n|---|---:|---|---|---|")
    for band, first in enumerate(ends[:-1], start=1):
        for male in (False, True):
            cell = pl.col("band").eq(band) & pl.col("male").eq(male)
            job = people_.filter(cell)["group"].to_numpy()
            expected = shares(ours.filter(cell)["group"].to_numpy())
            drawn = [shares(rng.choice(job, len(job))) for _ in range(1_000)]
            chance = rng.multinomial(len(job), expected, 1_000) / len(job)
            figures = [
                f"{0.5 * np.abs(target - share).sum():.3f} [{low:.3f}, {high:.3f}]"
                for target, share, draws in (
                    (expected, shares(job), drawn), (everybody, shares(job), drawn),
                )
                for low, high in [np.quantile(0.5 * np.abs(draws - target).sum(1), [0.025, 0.975])]
            ]  # fmt: skip
            far = 0.5 * np.abs(chance - expected).sum(axis=1)
            figures.append(f"{far.mean():.3f} (95 %: {np.quantile(far, 0.95):.3f})")
            gender = "men" if male else "women"
            print(f"| {first}-{ends[band] - 1}, {gender} | {len(job)} | {' | '.join(figures)} |")


def read_100k(data: Path) -> tuple[pl.DataFrame, ...]:
    """Users, films and ratings of ml-100k."""
    archive = zipfile.ZipFile(data / "movielens" / "ml-100k.zip")

    def table(name: str, separator: str, columns: list[str]) -> pl.DataFrame:
        text = archive.read(f"ml-100k/{name}").decode("iso-8859-1")
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
        against(given.against)
        return
    if given.data is None:
        report(given.cohorts, given.count)
        return
    film_tables(given.data).write_csv(given.to / "movies.csv")
    records = census(given.data / "personas" / "census_personas.jsonl.gz")
    by_gender = [
        tables(part.rename({"age": f"age of {name}"}), [("status", f"age of {name}")])
        for (name,), part in sorted(records.group_by("gender"))
    ]
    working = tables(records.filter(status="employed"), [("career", "age"), ("career", "gender")])
    pl.concat([working, *by_gender]).write_csv(given.to / "careers.csv")


if __name__ == "__main__":
    main()
