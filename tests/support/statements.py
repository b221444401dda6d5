"""The bank of statements about taste, and how many a reader gets right."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.personas import Reading, read_text

__all__ = ["FILM_GENRES", "SEALED_SHA256", "Tally", "statements", "tally"]

FILM_GENRES = (
    "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary", "Drama",
    "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi", "Thriller", "War",
    "Western",
)  # fmt: skip
#: Of the sealed half, as it was before the reader was developed.
SEALED_SHA256 = "f7b540a5debbb61fa0c06c4b8b859d326d64a546d245867b245c7bc5bb37bc74"
_FOLDER = Path(__file__).parents[1] / "pipelines/personas/statements"


@dataclass(frozen=True)
class Tally:
    """Counts over some statements.

    Attributes
    ----------
    statements, labels
        Statements, and labels of genre, leniency and manner on them.
    right
        Labels that were read.
    inverted
        Statements with a genre or leniency read as its opposite.
    invented
        Genres, leniencies and manners that were read and not labelled.
    labelled, unread
        Statements with a label, and those of them of which nothing was read.
    whole
        Statements that were read exactly as labelled.
    """

    statements: int
    labels: int
    right: int
    inverted: int
    invented: int
    labelled: int
    unread: int
    whole: int


def statements(half: str) -> list[dict[str, str]]:
    """Rows of a half of the bank; the sealed half is checked against its hash."""
    data = (_FOLDER / f"{half}.tsv").read_bytes()
    if half == "sealed":
        assert hashlib.sha256(data).hexdigest() == SEALED_SHA256
    lines = data.decode("utf-8").splitlines()
    return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


def tally(
    rows: Iterable[Mapping[str, str]],
    reader: Callable[[str, tuple[str, ...]], Reading] = read_text,
) -> Tally:
    """Compare what a reader reads with the labels."""
    total = [0] * 8
    for row in rows:
        reading = reader(row["text"], FILM_GENRES)
        gold = {(g, 1) for g in row["likes"].split(",") if g}
        gold |= {(g, -1) for g in row["dislikes"].split(",") if g}
        gold |= {(k, row[k]) for k in ("leniency", "manner") if row[k]}
        got = {(g, 1) for g in reading.likes} | {(g, -1) for g in reading.dislikes}
        got |= {
            (k, v) for k, v in (("leniency", reading.leniency), ("manner", reading.manner)) if v
        }
        known = dict(gold)
        opposite = [k for k, v in got - gold if k in known and k != "manner"]
        total[0] += 1
        total[1] += len(gold)
        total[2] += len(gold & got)
        total[3] += bool(opposite)
        total[4] += sum(k not in known for k, _ in got)
        total[5] += bool(gold)
        total[6] += bool(gold) and not got
        total[7] += got == gold
    return Tally(*total)
