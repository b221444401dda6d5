"""Views of what personas' descriptions say: language, agreement with the fields, minors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

import polars as pl

from pipelines.quality._spec import Evidence, View, ViewFunction

__all__ = ["TEXT_VIEWS"]

#: Rows listed at most.
MOST = 1_000
#: First age (years) of adults' jobs and hobbies.
ADULT = 18

#: What has no place in a description: why, and a pattern (Rust's dialect).
FOREIGN = {
    "control character": r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x{200b}-\x{200f}\x{202a}-\x{202e}]",
    "template token": r"<\|[^|]*\|>|\[/?INST\]|<</?SYS>>|</?s>|<(start|end)_of_turn>",
    "unfilled slot": r"\{[A-Za-z_ ]*\}|\[(name|age|job|hobby|genre)\]",
    "leaked instruction": r"(?i)\bas an ai\b|\blanguage model\b|\bthe user (asked|wants)\b"
    r"|\bhere is (a|the) (description|persona)\b|\bthis persona\b|^\s*(system|assistant|user):",
    "markup": r"```|^#{1,6} |\*\*",
}

#: What only texts that were written here must not have.
OURS = ("leaked instruction", "markup")

#: Words by which a sentence says that its subject is not liked.
AVERSION = (
    r"(?i)\b(avoids?|dislikes?|hates?|loathes?|detests?|despises?|bored by|tired of"
    r"|can(?:no|'|’)t stand|has no (?:patience|time|love) for|stays? away from|can do without"
    r"|refuses? to (?:watch|read|play))\b"
)

#: How texts spell genres whose adjective or short form differs from the name.
SPELLINGS = {
    "Animation": r"animat(?:ed|ion)",
    "Comedy": r"comed(?:y|ies)",
    "Children": r"children.s",
    "Documentary": r"documentar(?:y|ies)",
    "Fantasy": r"fantas(?:y|ies)",
    "Mystery": r"myster(?:y|ies)",
    "Romance": r"roman(?:ce|ces|tic)",
    "Sci-Fi": r"sci-fi|science[ -]fiction",
    "Strategy": r"strateg(?:y|ies|ic)",
}


def _language(evidence: Evidence) -> View:
    """One row per description with something that does not belong there (the first thousand).

    Imported texts are not ours: they may speak of "this persona" and have mark-up.
    """
    text = pl.col("description")
    ours = pl.col("origin") != "imported"
    found = pl.coalesce(
        pl.when(text.str.contains(pattern) & (ours | pl.lit(why not in OURS))).then(pl.lit(why))
        for why, pattern in FOREIGN.items()
    )
    return View(
        evidence.snapshot.scan()
        .select("persona_id", problem=found, starts=text.str.slice(0, 160))
        .drop_nulls("problem")
        .head(MOST)
        .collect(engine="streaming")
    )


def _agreement(evidence: Evidence) -> View:
    """One row per persona with fields: whether its text names the job or the hobby."""
    text = pl.col("description").str.to_lowercase()
    stated = pl.col("job").is_not_null() | pl.col("hobby").is_not_null()
    named = pl.any_horizontal(
        text.str.contains(pl.col(c).str.to_lowercase(), literal=True).fill_null(False)
        for c in ("job", "hobby")
    )
    frame = (
        evidence.snapshot.scan()
        .filter(stated & pl.col("origin").ne("imported"))
        .select(
            "persona_id",
            "job",
            "hobby",
            named=named.cast(pl.Int64),
            starts=pl.col("description").str.slice(0, 160),
        )
        .collect(engine="streaming")
    )
    if not frame.height:
        return View.skip("no persona states a job or hobby")
    return View(frame, examples=frame.filter(pl.col("named") == 0).head(10))


def _contradictions(evidence: Evidence) -> View:
    """One row: share of personas whose text speaks ill of a genre that they like."""
    scan = evidence.snapshot.scan().filter(pl.col("likes").list.len() > 0)
    total = int(scan.select(pl.len()).collect(engine="streaming").item())
    if not total:
        return View.skip("no persona states what it likes")
    averse = (
        scan.select(
            "persona_id", "likes", "dislikes", sentence=pl.col("description").str.split(". ")
        )
        .explode("sentence")
        .filter(pl.col("sentence").str.contains(AVERSION))
        .collect(engine="streaming")
    )
    found = []
    for genre in sorted({g for row in averse["likes"] for g in row}):
        mine = averse.filter(pl.col("likes").list.contains(genre))
        about = pl.col("sentence").str.contains(spelling(genre))
        # A sentence that is about a disliked genre may mention a liked one in passing.
        others = pl.any_horizontal(
            pl.col("dislikes").list.contains(g) & pl.col("sentence").str.contains(spelling(g))
            for g in sorted({g for row in mine["dislikes"] for g in row}) or [genre]
        )
        found.append(mine.filter(about & ~others).with_columns(genre=pl.lit(genre)))
    rows = pl.concat(found).select("persona_id", "genre", "sentence") if found else averse.head(0)
    share = rows["persona_id"].n_unique() / total
    return View(pl.DataFrame({"share": [share]}), examples=rows.head(10))


@cache
def spelling(genre: str) -> str:
    """Pattern of a genre in running text: its name, other forms of it, and our writers' words.

    >>> bool(re.search(spelling("Comedy"), "She avoids comedies"))
    True
    """
    from pipelines.domains import DOMAINS
    from pipelines.personas import genre_phrase

    forms = {re.escape(genre.lower()) + "s?"}
    forms |= {re.escape(genre_phrase(genre, d).lower()) for d in DOMAINS if DOMAINS[d].personas}
    if genre in SPELLINGS:
        forms.add(SPELLINGS[genre])
    return rf"(?i)\b(?:{'|'.join(sorted(forms))})\b"


def _minors(evidence: Evidence) -> View:
    """One row per minor with a job, or with a hobby that only adults have."""
    from pipelines.personas import load_lists

    lists = load_lists()
    # A hobby may be listed twice, for children and for adults.
    spans = zip(lists.hobbies, lists.hobby_ages, strict=True)
    childrens = {hobby for hobby, (low, _) in spans if low < ADULT}
    adult = sorted(set(lists.hobbies) - childrens)
    working = pl.col("job").is_not_null() & (pl.col("job") != "student")
    problem = (
        pl.when(working)
        .then(pl.lit("has a job"))
        .when(pl.col("hobby").is_in(adult))
        .then(pl.lit("has a hobby of adults"))
    )
    return View(
        evidence.snapshot.scan()
        .filter(pl.col("age") < ADULT)
        .select("persona_id", "age", "job", "hobby", problem=problem)
        .drop_nulls("problem")
        .head(MOST)
        .collect(engine="streaming")
    )


#: View functions of the personas by name.
TEXT_VIEWS: Mapping[str, ViewFunction] = {
    "language": _language,
    "agreement": _agreement,
    "contradictions": _contradictions,
    "minors": _minors,
}
