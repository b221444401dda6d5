"""Differences between personas beside those between people, with drawn and mean tastes.

    python benchmarks/raters/population.py --home HOME

The home is one that `understudy run` made from ml-latest-small. Personas rate the films that people
rated (one person's list each), so that both sides go through the same functions.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipelines.raters import fit_statistical, scale_named
from pipelines.raters.report import (
    genre_gap,
    headroom,
    ks_distance,
    split_half_covariance,
    user_moments,
    variance_shares,
)
from pipelines.store import Store

TABLES = ("items", "interactions", "splits", "item_stats")


def main() -> None:
    """Measure, and print one line per figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--personas", type=int, default=300, help="personas (count)")
    options = parser.parse_args()
    store = Store(options.home)
    tables = {name: store.current(f"movies.{name}").read() for name in TABLES}
    people = store.current("personas").read().filter(domain="movies").head(options.personas)
    drawn = fit_statistical(scale=scale_named("1-10"), **tables)
    items, genres = tables["items"], drawn.catalogue.genres
    has, likes, dislikes = (
        np.array([[g in row for g in genres] for row in column.to_list()], np.float64)
        for column in (items["genres"].fill_null([]), people["likes"], people["dislikes"])
    )
    place = {item: row for row, item in enumerate(items["item_id"].to_list())}
    rows = tables["interactions"].sort("user_id", "item_id")
    item = np.array([place[i] for i in rows["item_id"]])
    user = rows["user_id"].rank("dense").to_numpy().astype(np.int64) - 1
    stars = rows["rating"].to_numpy() * 2
    rng = np.random.default_rng(0)
    row_of = np.full(user.max() + 1, -1)
    row_of[rng.permutation(len(row_of))[: people.height]] = np.arange(people.height)
    kept = row_of[user] >= 0
    who, what = row_of[user[kept]], item[kept]
    print("people: split-half", split_half_covariance(user, item, stars, has)[0])
    theirs = user_moments(user, stars)
    print("people: spread of SDs", theirs[1].std())
    for taste in ("mean", "drawn"):
        rater = replace(drawn, taste=taste)
        parts = [rater.rate(people[n : n + 50], items) for n in range(0, people.height, 50)]
        expected = np.concatenate([p.expected for p in parts]).reshape(people.height, -1)
        squares = np.concatenate([p.probabilities @ p.scale.answers**2 for p in parts])
        within = squares.reshape(expected.shape) - expected**2
        sample = np.concatenate([p.sample(rng.random(len(p))) for p in parts])
        given = sample.reshape(expected.shape)[who, what]
        own = user_moments(who, given)
        print(f"{taste}: {variance_shares(expected, within)}")
        print(f"{taste}: split-half", split_half_covariance(who, what, given, has)[0])
        print(f"{taste}: gap, items' part", genre_gap(expected, likes, dislikes, has))
        print(f"{taste}: {headroom(expected)}")
        print(f"{taste}: spread of SDs", own[1].std(), "KS", ks_distance(theirs[1], own[1]))


if __name__ == "__main__":
    main()
