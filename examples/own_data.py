"""Ratings of your own as a domain of their own: three public shapes, one command each.

    python examples/own_data.py FOLDER

The rows below are drawn at random in the shapes of RecBole's atomic files, of Book-Crossing and of
recipes as JSON lines: take your own files instead. Their columns have usual names; others are named
in a few lines of YAML (``--columns``, see docs/data.md).
"""

import json
import random
import sys
from pathlib import Path

draw = random.Random(0)
folder = Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
pairs = [(user, item) for user in range(60) for item in draw.sample(range(48), 20)]


def write(name: str, lines: list[str], encoding: str = "utf-8") -> str:
    """Write a file of the folder; return its place."""
    (folder / name).write_text("\n".join(lines) + "\n", encoding=encoding)
    return str(folder / name)


films = [
    "item_id:token\tmovie_title:token_seq\trelease_year:token\tclass:token_seq",
    *(
        f"{n}\tFilm {n}\t{1980 + n % 40}\t{' '.join(draw.sample(['Comedy', 'Crime', 'War'], 2))}"
        for n in range(48)
    ),
]
seen = [
    "user_id:token\titem_id:token\trating:float\ttimestamp:float",
    *(f"{u}\t{n}\t{draw.randint(1, 5)}\t{880_000_000 + 1000 * u + n}" for u, n in pairs),
]
people = [
    "user_id:token\tage:token\tgender:token\toccupation:token",
    *(f"{u}\t{18 + u}\t{'FM'[u % 2]}\twriter" for u in range(60)),
]
books = [
    '"ISBN";"Book-Title";"Book-Author";"Year-Of-Publication"',
    *(
        f'"{n:09}X";"Band {n}; Café";"{["Jane Doe", "Ann Poe"][n % 2]}";{1950 + n}'
        for n in range(48)
    ),
]
read = [
    '"User-ID";"ISBN";"Book-Rating"',
    *(f'"{u}";"{n:09}X";"{draw.randint(0, 10)}"' for u, n in pairs),
]
dishes = [
    json.dumps(
        {
            "recipe_id": n,
            "name": f"Dish {n}",
            "minutes": 10 * (1 + n % 4),
            "cuisine": ["Italian", "Thai", "Mexican"][n % 3],
            "ingredients": draw.sample(["salt", "rice", "basil", "lime"], 2),
        }
    )
    for n in range(48)
]
cooked = [
    json.dumps(
        {"user": f"cook {u}", "recipe_id": n, "stars": draw.randint(0, 5), "date": "2021-05-01"}
    )
    for u, n in pairs
]

shapes = {
    "films": (write("f.item", films), write("f.inter", seen), write("f.user", people)),
    "crossing": (write("BX-Books.csv", books, "cp1252"), write("BX-Book-Ratings.csv", read)),
    "recipes": (write("recipes.jsonl", dishes), write("cooked.jsonl", cooked)),
}
for name, files in shapes.items():
    options = " ".join(
        f"--{kind} {file}" for kind, file in zip(("items", "ratings", "users"), files, strict=False)
    )
    print(f"understudy run --domain {name} {options}")
