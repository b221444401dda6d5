"""Views of the personas: a cohort against the shares it is sampled from, its texts and vectors."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from pipelines.domains import DOMAINS
from pipelines.quality._spec import Evidence, View, view
from pipelines.quality._stats import (
    ALPHA,
    concentration_bound,
    share_allowance,
    total_variation,
    tv_allowance,
)

#: Tolerated distance of a correctly sampled share from its target, beyond chance.
MARGIN = 0.02
#: Tolerance of genre shares: a person who would like no genre is given one.
GENRE_MARGIN = 0.03
#: Additional tolerance of joint shares: the copula does not fit exactly (distances up to 0.043).
JOINT_MARGIN = 0.03
#: First age (years) of adults' jobs and hobbies, and of opinions that follow the targets: children
#: lack some likings.
ADULT = 18
#: Largest probability of one first name that the name list may give.
NAME_SHARE = 0.01
#: Vectors read at once (8,192 of 384 numbers are 25 MB as float64).
BATCH = 8192
#: Cosine from which two descriptions say the same, and vectors compared with all others.
TWIN, PROBES = 0.97, 2_000
#: Rows listed at most.
MOST = 1_000

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
    settings = evidence.settings.personas
    cohorts = evidence.snapshot.manifest.config.get("cohorts") or {
        DOMAINS[evidence.domain].cohort(settings.cohort): {"count": settings.count}
    }
    return {name: int(facts["count"]) for name, facts in cohorts.items() if "count" in facts}


@view("personas", "sizes")
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


@view("personas", "ages")
def _ages(evidence: Evidence) -> View:
    """One row per cohort: distance of its ages from the census'; examples are the bands."""
    counts = _sampled(evidence).group_by("cohort", "age").agg(n=pl.len())
    rows, examples = [], []
    for (cohort,), part in _by_cohort(counts):
        n = int(part["n"].sum())
        targets = evidence.targets_of(str(cohort)).ages
        census = {f"{low}-{high}": share for low, high, share in targets}
        observed = {
            f"{low}-{high}": int(part.filter(pl.col("age").is_between(low, high))["n"].sum())
            for low, high, _ in targets
        }
        outside = n - sum(observed.values())
        distance = total_variation(observed | {"outside": outside}, census)
        allowed = MARGIN + tv_allowance(list(census.values()), n)
        rows.append({"cohort": cohort, "distance": distance, "allowed": allowed})
        examples += [
            {"cohort": cohort, "band": band, "share": k / max(1, n), "census": census[band]}
            for band, k in observed.items()
        ]
    return _distances(rows, examples, "census")


@view("personas", "genders")
def _genders(evidence: Evidence) -> View:
    """One row per cohort: distance of the gender shares from the target."""
    counts = _sampled(evidence).group_by("cohort", "gender").agg(n=pl.len())
    rows, examples = [], []
    for (cohort,), part in _by_cohort(counts):
        observed = {str(g): int(n) for g, n in part.select("gender", "n").iter_rows()}
        n = sum(observed.values())
        targets = evidence.targets_of(str(cohort)).genders
        allowed = MARGIN + tv_allowance(list(targets.values()), n)
        distance = total_variation(observed, targets)
        rows.append({"cohort": cohort, "distance": distance, "allowed": allowed})
        examples += [
            {"cohort": cohort, "gender": g, "share": observed.get(g, 0) / max(1, n), "census": s}
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


@view("personas", "names")
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


@view("personas", "genres")
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
    opinions = (
        sides.filter(~pl.col("cohort").is_in(_chosen_by_model(evidence)))
        .group_by("cohort", "domain", "genre")
        .agg(opinions=pl.len(), liked=pl.col("liked").sum())
    )
    frame = (
        opinions.join(targets, on=["domain", "genre"])
        .with_columns(share=pl.col("liked") / pl.col("opinions").clip(1))
        .with_columns(distance=(pl.col("share") - pl.col("target")).abs())
        .collect(engine="streaming")
    )
    if not frame.height:
        return View.skip("there are no opinions with a target")
    allowed = [GENRE_MARGIN + share_allowance(n, frame.height) for n in frame["opinions"]]
    return View(frame.with_columns(allowed=pl.Series(allowed)).sort("distance", descending=True))


@view("personas", "joint_shares")
def _joint_shares(evidence: Evidence) -> View:
    """One row per cohort and pair of attributes: distance from the source's joint shares."""
    from pipelines.personas import DOMAIN_NAMES, TRAITS, joint_distances, load_lists

    columns = {"job", "gender", "age", "likes", "dislikes", *TRAITS}
    chosen = _chosen_by_model(evidence)
    people = (
        _sampled(evidence)
        .select("cohort", "domain", pl.col(sorted(columns)))
        .filter(~pl.col("cohort").is_in(chosen), pl.col("domain").is_in(DOMAIN_NAMES))
        .collect(engine="streaming")
    )
    rows = []
    for (cohort, domain), part in people.sort("cohort").group_by("cohort", "domain"):
        distances = joint_distances(part, load_lists(str(domain)))
        tests = max(1, distances.height)
        allowed = [
            MARGIN + JOINT_MARGIN + tv_allowance(shares, n, ALPHA / tests)
            for shares, n in distances.select("shares", "people").iter_rows()
        ]
        rows.append(
            distances.drop("shares").select(
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


@view("personas", "contradictions")
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
    parts = []
    for genre in sorted({g for row in averse["likes"] for g in row}):
        mine = averse.filter(pl.col("likes").list.contains(genre))
        about = pl.col("sentence").str.contains(spelling(genre))
        # A sentence that is about a disliked genre may mention a liked one in passing.
        others = pl.any_horizontal(
            pl.col("dislikes").list.contains(g) & pl.col("sentence").str.contains(spelling(g))
            for g in sorted({g for row in mine["dislikes"] for g in row}) or [genre]
        )
        parts.append(mine.filter(about & ~others).with_columns(genre=pl.lit(genre)))
    rows = pl.concat(parts).select("persona_id", "genre", "sentence") if parts else averse.head(0)
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


@view("personas", "minors")
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


@view("persona_embeddings", "twins")
def _twins(evidence: Evidence) -> View:
    """One row: share of sampled vectors that have a near copy; examples are the pairs.

    All vectors are compared with at most two thousand of them, drawn evenly: the cost grows
    with the number of vectors, not with its square.
    """
    frame = evidence.snapshot.read(["persona_id", "vector"])
    people = evidence.sibling("personas")
    if people is not None:
        # Imported texts may be alike, and so may summaries of real ratings.
        alike = pl.col("origin").is_in(["imported", "matched"])
        imported = people.scan().filter(alike).select("persona_id")
        foreign = imported.collect(engine="streaming")
        frame = frame.join(foreign, on="persona_id", how="anti", maintain_order="left")
    if not frame.height:
        return View.skip("there is no written description")
    ids = frame["persona_id"]
    size = frame["vector"].list.len()
    if size.n_unique() != 1 or not size[0]:
        return View.missing("the vectors differ in length")
    vectors = frame["vector"].list.to_array(int(size[0])).to_numpy().astype(np.float32)
    probe = np.linspace(0, len(vectors) - 1, min(len(vectors), PROBES)).astype(np.int64)
    twin = np.full(len(probe), -1, dtype=np.int64)
    nearest = np.full(len(probe), -1.0, dtype=np.float32)
    for start in range(0, len(vectors), BATCH):
        block = vectors[probe] @ vectors[start : start + BATCH].T
        here = (probe >= start) & (probe < start + block.shape[1])
        block[here, probe[here] - start] = -1.0
        best = block.argmax(axis=1)
        value = block[np.arange(len(probe)), best]
        closer = value > nearest
        nearest[closer], twin[closer] = value[closer], start + best[closer]
    same = nearest >= TWIN
    pairs = pl.DataFrame(
        {
            "persona_id": ids.gather(probe[same]),
            "other": ids.gather(twin[same]),
            "cosine": nearest[same].astype(np.float64),
        }
    ).sort("cosine", descending=True)
    share = float(same.mean()) if len(probe) else 0.0
    return View(pl.DataFrame({"share": [share]}), examples=pairs.head(10))
