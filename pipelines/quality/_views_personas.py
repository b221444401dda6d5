"""Views of the personas: a cohort against the shares it is sampled from, and its descriptions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import polars as pl

from pipelines.domains import DOMAINS
from pipelines.quality._spec import Evidence, View, ViewFunction
from pipelines.quality._stats import (
    ALPHA,
    concentration_bound,
    share_allowance,
    total_variation,
    tv_allowance,
)
from pipelines.renames import RENAMED

#: Tolerated distance of a correctly sampled share from its target, beyond chance.
MARGIN = 0.02
#: Tolerance of genre shares: a person who would like no genre is given one.
GENRE_MARGIN = 0.03
#: Additional tolerance of joint shares: the copula does not fit exactly (distances up to 0.043).
JOINT_MARGIN = 0.03
#: First age (years) of adults' jobs and hobbies, and of opinions that follow the targets: children
#: lack some likings.
ADULT = 18
#: Imported and matched personas whose description only lists what is known of them.
LISTED = pl.col("origin").is_in(["imported", "matched"]) & (
    pl.col("writer").replace(RENAMED) == "statistical"
)
#: Largest probability of one first name that the name list may give.
NAME_SHARE = 0.01
#: Rows listed at most.
MOST = 1_000

#: Text that must not occur in a description: reason, and pattern (Rust's dialect).
FOREIGN = {
    "control character": r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x{200b}-\x{200f}\x{202a}-\x{202e}]",
    "template token": r"<\|[^|]*\|>|\[/?INST\]|<</?SYS>>|</?s>|<(start|end)_of_turn>",
    "unfilled slot": r"\{[A-Za-z_ ]*\}|\[(name|age|job|hobby|genre)\]",
    "leaked instruction": r"(?i)\bas an ai\b|\blanguage model\b|\bthe user (asked|wants)\b"
    r"|\bhere is (a|the) (description|persona)\b|\bthis persona\b|^\s*(system|assistant|user):",
    "markup": r"```|^#{1,6} |\*\*",
}

#: Reasons that apply to texts written here only.
OURS = ("leaked instruction", "markup")

#: Words of dislike in a sentence.
AVERSION = (
    r"(?i)\b(avoids?|dislikes?|hates?|loathes?|detests?|despises?|bored by|tired of"
    r"|can(?:no|'|’)t stand|has no (?:patience|time|love) for|stays? away from|can do without"
    r"|refuses? to (?:watch|read|play))\b"
)

#: Spellings of genres whose adjective or short form differs from the name.
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


def _sampled(evidence: Evidence) -> pl.LazyFrame:
    """The personas that were drawn here; all others follow no targets."""
    return evidence.snapshot.scan().filter(pl.col("origin") == "sampled")


def _planned(evidence: Evidence) -> dict[str, int]:
    """Planned number of personas, by cohort that was generated here."""
    asked = evidence.settings.personas
    cohorts = evidence.snapshot.manifest.config.get("cohorts") or {
        DOMAINS[evidence.domain].cohort(asked.cohort): {"count": asked.count}
    }
    return {name: int(facts["count"]) for name, facts in cohorts.items() if "count" in facts}


def _sizes(evidence: Evidence) -> View:
    """One row per cohort: how many personas it lacks, or has too many.

    Those that a model could not describe, within the error budget, are not missing.
    """
    counts = dict(
        evidence.snapshot.scan()
        .group_by("cohort")
        .agg(n=pl.len())
        .collect(engine="streaming")
        .iter_rows()
    )
    planned = _planned(evidence)
    invalid = evidence.snapshot.manifest.stats.get("invalid") or {}
    if not planned:
        return View.skip("every cohort is imported, hand-made or matched")
    return View(
        pl.DataFrame(
            [
                {
                    "cohort": c,
                    "planned": n,
                    "found": counts.get(c, 0),
                    "invalid": invalid.get(c, 0),
                    "off": counts.get(c, 0) + invalid.get(c, 0) - n,
                }
                for c, n in sorted(planned.items())
            ],
            schema={
                "cohort": pl.String,
                "planned": pl.Int64,
                "found": pl.Int64,
                "invalid": pl.Int64,
                "off": pl.Int64,
            },
        )
    )


def _personas(evidence: Evidence) -> View:
    """One row per persona: its description as a hash and a length.

    People may be alike: imported and matched personas without a text of their own are left out.
    """
    return View.of(
        evidence.snapshot.scan()
        .filter(~LISTED)
        .select(
            "persona_id",
            "name",
            # Equal texts have equal hashes; a chance collision in a million personas has a
            # probability of 3e-8.
            description_hash=pl.col("description").hash(seed=0).reinterpret(signed=True),
            characters=pl.col("description").str.len_chars().cast(pl.Int64),
            starts=pl.col("description").str.slice(0, 80),
        )
    )


def _ages(evidence: Evidence) -> View:
    """One row per cohort: distance of its ages from the census'; examples are the bands."""
    counts = _sampled(evidence).group_by("cohort", "age").agg(n=pl.len())
    rows, examples = [], []
    for (cohort,), part in _by_cohort(counts):
        n = int(part["n"].sum())
        targets = evidence.targets_of(str(cohort)).ages
        census = {f"{low}-{high}": share for low, high, share in targets}
        found = {
            f"{low}-{high}": int(part.filter(pl.col("age").is_between(low, high))["n"].sum())
            for low, high, _ in targets
        }
        outside = n - sum(found.values())
        distance = total_variation(found | {"outside": outside}, census)
        allowed = MARGIN + tv_allowance(list(census.values()), n)
        rows.append({"cohort": cohort, "distance": distance, "allowed": allowed})
        examples += [
            {"cohort": cohort, "band": band, "share": k / max(1, n), "census": census[band]}
            for band, k in found.items()
        ]
    return _distances(rows, examples, "census")


def _genders(evidence: Evidence) -> View:
    """One row per cohort: distance of the gender shares from the target."""
    counts = _sampled(evidence).group_by("cohort", "gender").agg(n=pl.len())
    rows, examples = [], []
    for (cohort,), part in _by_cohort(counts):
        found = {str(g): int(n) for g, n in part.select("gender", "n").iter_rows()}
        n = sum(found.values())
        targets = evidence.targets_of(str(cohort)).genders
        allowed = MARGIN + tv_allowance(list(targets.values()), n)
        distance = total_variation(found, targets)
        rows.append({"cohort": cohort, "distance": distance, "allowed": allowed})
        examples += [
            {"cohort": cohort, "gender": g, "share": found.get(g, 0) / max(1, n), "census": s}
            for g, s in targets.items()
        ]
    return _distances(rows, examples, "census")


def _by_cohort(counts: pl.LazyFrame) -> list[tuple[tuple[object, ...], pl.DataFrame]]:
    frame = counts.collect(engine="streaming").sort("cohort")
    return list(frame.group_by("cohort", maintain_order=True))


def _distances(rows: list[dict[str, Any]], examples: list[dict[str, Any]], target: str) -> View:
    if not rows:
        return View.skip("no persona was sampled")
    listed = pl.DataFrame(examples)
    worst = (pl.col("share") - pl.col(target)).abs()
    return View(pl.DataFrame(rows), examples=listed.sort(worst, descending=True))


def _names(evidence: Evidence) -> View:
    """One row per cohort and first name: its share, most frequent first."""
    sizes = _sampled(evidence).group_by("cohort").agg(of=pl.len())
    frame = (
        _sampled(evidence)
        .drop_nulls("name")
        .with_columns(pl.col("name").str.split(" ").list.first())
        .group_by("cohort", "name")
        .agg(personas=pl.len())
        .join(sizes, on="cohort")
        .with_columns(share=pl.col("personas") / pl.col("of"))
        .sort("share", "cohort", "name", descending=[True, False, False])
        .collect(engine="streaming")
    )
    if not frame.height:
        return View.skip("no persona was sampled")
    bounds = {n: concentration_bound(int(n), NAME_SHARE) for n in frame["of"].unique()}
    return View(
        frame.with_columns(allowed=pl.col("of").replace_strict(bounds, return_dtype=pl.Float64))
    )


def _persona_genres(evidence: Evidence) -> View:
    """One row per cohort and genre: the favourable share of adults' opinions."""
    if not any(evidence.targets.favourable.values()):
        return View.skip("there are no genre targets")
    adults = _sampled(evidence).filter(pl.col("age") >= ADULT)
    sides = pl.concat(
        [
            adults.select("cohort", "domain", genre=side, liked=pl.lit(side == "likes"))
            .explode("genre")
            .drop_nulls("genre")
            for side in ("likes", "dislikes")
        ]
    )
    targets = pl.concat(
        [
            pl.LazyFrame({"genre": list(shares), "target": list(shares.values())}).with_columns(
                domain=pl.lit(domain)
            )
            for domain, shares in evidence.targets.favourable.items()
        ]
    )
    found = (
        sides.filter(~pl.col("cohort").is_in(_chosen_by_model(evidence)))
        .group_by("cohort", "domain", "genre")
        .agg(opinions=pl.len(), liked=pl.col("liked").sum())
    )
    frame = (
        found.join(targets, on=["domain", "genre"])
        .with_columns(share=pl.col("liked") / pl.col("opinions").clip(1))
        .with_columns(distance=(pl.col("share") - pl.col("target")).abs())
        .collect(engine="streaming")
    )
    if not frame.height:
        return View.skip("there are no opinions with a target")
    allowed = [GENRE_MARGIN + share_allowance(n, frame.height) for n in frame["opinions"]]
    return View(frame.with_columns(allowed=pl.Series(allowed)).sort("distance", descending=True))


def _joint_shares(evidence: Evidence) -> View:
    """One row per cohort and pair of attributes: distance from the source's joint shares."""
    from pipelines.personas import TRAITS, joint_distances, load_lists

    columns = {"job", "gender", "age", "likes", "dislikes", *TRAITS}
    chosen = _chosen_by_model(evidence)
    people = (
        _sampled(evidence)
        .select("cohort", "domain", pl.col(sorted(columns)))
        .filter(~pl.col("cohort").is_in(chosen))
        .collect(engine="streaming")
    )
    rows = []
    for (cohort, domain), part in people.sort("cohort").group_by("cohort", "domain"):
        found = joint_distances(part, load_lists(str(domain)))
        tests = max(1, found.height)
        allowed = [
            MARGIN + JOINT_MARGIN + tv_allowance(shares, n, ALPHA / tests)
            for shares, n in found.select("shares", "people").iter_rows()
        ]
        rows.append(
            found.drop("shares").select(
                pl.lit(cohort).alias("cohort"), pl.all(), pl.Series("allowed", allowed)
            )
        )
    if not rows:
        return View.skip("no persona was sampled")
    frame = pl.concat(rows)
    return View(frame, examples=frame.sort("distance", descending=True).head(10))


def _chosen_by_model(evidence: Evidence) -> list[str]:
    """Cohorts whose genres were left to the model: they follow no targets."""
    cohorts = evidence.snapshot.manifest.config.get("cohorts") or {}
    return sorted(name for name, facts in cohorts.items() if facts.get("genres") == "model")


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
    return View.of(
        evidence.snapshot.scan()
        .select("persona_id", problem=found, starts=text.str.slice(0, 160))
        .drop_nulls("problem")
        .head(MOST)
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
    """One row: share of personas whose text is negative about a genre that they like."""
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
    from pipelines.personas import genre_phrase

    forms = {re.escape(genre.lower()) + "s?"}
    forms |= {re.escape(genre_phrase(genre, d).lower()) for d in DOMAINS}
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
    return View.of(
        evidence.snapshot.scan()
        .filter(pl.col("age") < ADULT)
        .select("persona_id", "age", "job", "hobby", problem=problem)
        .drop_nulls("problem")
        .head(MOST)
    )


#: View functions by table, then by name.
PERSONA_VIEWS: Mapping[str, Mapping[str, ViewFunction]] = {
    "personas": {
        "personas": _personas,
        "ages": _ages,
        "genders": _genders,
        "names": _names,
        "genres": _persona_genres,
        "joint_shares": _joint_shares,
        "sizes": _sizes,
        "language": _language,
        "agreement": _agreement,
        "contradictions": _contradictions,
        "minors": _minors,
    }
}
