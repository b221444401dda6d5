"""Your own ratings as a world: four CSV files in MovieLens' layout, then one command.

    python examples/own_data.py FOLDER

The films and ratings below are drawn at random: write yours instead.
"""

import random
import sys
from pathlib import Path

draw = random.Random(0)
genres = ["Action", "Comedy", "Drama", "Horror", "Romance"]
films = [(n, f"Film {n} ({1980 + n % 40})", "|".join(draw.sample(genres, 2))) for n in range(1, 41)]
ratings = [
    (user, film[0], draw.randint(1, 10) / 2, 1_000_000_000 + 1000 * user + film[0])
    for user in range(1, 61)
    for film in draw.sample(films, 20)
]
tables = {
    "movies": ("movieId,title,genres", films),
    "ratings": ("userId,movieId,rating,timestamp", ratings),
    "links": ("movieId,imdbId,tmdbId", [(film[0], f"{film[0]:07}", "") for film in films]),
    "tags": ("userId,movieId,tag,timestamp", []),
}
folder = Path(sys.argv[1])
files = folder / "movielens" / "mine"
files.mkdir(parents=True, exist_ok=True)
for name, (header, rows) in tables.items():
    lines = [header, *(",".join(map(str, row)) for row in rows)]
    (files / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")

print(f"understudy run --job movies --data {folder}")
