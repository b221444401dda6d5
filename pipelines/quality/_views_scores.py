"""Views of the score plan and of the preference scores."""

from __future__ import annotations

import polars as pl

from pipelines.domains import DOMAINS, cohort_domain
from pipelines.quality._spec import Evidence, View, ViewFunction, view
from pipelines.scales import SCALES, coarser, scale_named, to_answers

#: Raters without a taste by design.
BASELINE_RATERS = frozenset({"random", "mean"})
#: Least standard deviation of a persona's expected ratings (share of the scale); below it the
#: persona has no taste.
LEAST_SPREAD = 0.01
#: The same as a share of the standard deviation of the human ratings, where these hardly differ:
#: of recommendations that are nearly all positive, no rater can foretell much.
LEAST_OF_HUMAN_SPREAD = 0.05
#: Largest share of a cohort's pairs with one most probable rating.
MOST_OF_ONE_ANSWER = 0.9
#: Largest share of a cohort's personas without a spread, unless more people have none.
MOST_FLAT = 0.05
#: Factor between personas and people where personas have no taste at all.
NO_TASTE = 1_000.0
#: Least worth of knowing the customer in most choice sets (points): asking costs something.
LEAST_WORTH = 5.0
#: Mean standard deviation of a persona's scores within a choice set (points; BIEL: 25.4).
SET_SPREAD = (15.0, 30.0)
#: Share of personas whose best score in a set is 60 or more: dialogues skip the others.
LEAST_REACHED = 0.8
_WIDTHS = {name: scale.high - scale.low for name, scale in SCALES.items()}


def _cohort() -> pl.Expr:
    """The cohort that a persona's id names, as a column of that name."""
    from pipelines.cohorts import cohort_of

    return cohort_of().alias("cohort")


@view("score_plan", "personas")
def _planned_personas(evidence: Evidence) -> View:
    """One row per persona without a planned pair.

    Required are all personas of every cohort that is planned at all, and of the domain's default
    cohort.
    """
    personas = evidence.needed(evidence.sibling_name("personas"))
    key, default = "persona_id", evidence.settings.personas.domain
    people = personas.scan().select(key, "cohort")
    cohorts, planned = pl.collect_all(
        [people.select("cohort").unique(), evidence.snapshot.scan().select(_cohort()).unique()],
        engine="streaming",
    )
    standing = DOMAINS[evidence.domain].cohort(evidence.settings.personas.cohort)
    demanded = [
        name
        for name in sorted({*planned["cohort"], standing} & {*cohorts["cohort"]})
        if cohort_domain(name, default) == evidence.domain
    ]
    return View(
        people.filter(pl.col("cohort").is_in(demanded))
        .join(evidence.snapshot.scan().select(key), on=key, how="anti")
        .sort(key)
        .collect(engine="streaming"),
        facts={"cohorts": demanded},
    )


@view("preference_scores", "answers")
def _answers(evidence: Evidence) -> View:
    """One row per cohort and rating with its share of the cohort's scored pairs.

    The most probable rating is counted. Where more people than the bound allows give one
    and the same rating (a store of thumbs up), it is no evidence: for a rater that is right about
    everyone it is that rating, too. There sampled ratings are counted, against a bound midway
    between the people's share and all.
    """
    column, most = "mode", MOST_OF_ONE_ANSWER
    commonest = _commonest_human_share(evidence)
    if commonest > MOST_OF_ONE_ANSWER:
        column, most = "sample", (1 + commonest) / 2
    shares = (
        evidence.snapshot.scan()
        .filter(pl.col("status") == "ok")
        .group_by(_cohort(), "scale", column)
        .agg(answers=pl.len())
        .with_columns(pairs=pl.col("answers").sum().over("cohort"))
        .with_columns(share=pl.col("answers") / pl.col("pairs"))
        .sort("share", "cohort", "scale", column, descending=[True, False, False, False])
        .collect(engine="streaming")
    )
    return View(shares, facts={"most": most})


def _commonest_human_share(evidence: Evidence) -> float:
    """Share of human ratings that are the most given one; 0 if there are none."""
    human = evidence.sibling("interactions")
    if human is None:
        return 0.0
    counts = human.scan().group_by("scale", "rating").agg(n=pl.len()).collect(engine="streaming")
    return max(counts["n"].to_list(), default=0) / max(1, int(counts["n"].sum()))


def _human_spread(evidence: Evidence) -> float | None:
    """Standard deviation of the human ratings as a share of their scale; None without them."""
    human = evidence.sibling("interactions")
    if human is None:
        return None
    share = pl.col("rating") / pl.col("scale").replace_strict(_WIDTHS, return_dtype=pl.Float64)
    deviation = human.scan().select(share.std(ddof=0)).collect(engine="streaming").item()
    return None if deviation is None else float(deviation)


@view("preference_scores", "personas")
def _persona_spread(evidence: Evidence) -> View:
    """One row per cohort: share of its personas whose expected ratings hardly differ.

    A persona's spread is the standard deviation of its expected ratings as a share of the
    scale; one without any score has none. Who has a single planned pair can't be judged. The
    bound is the share of people whose ratings are all the same, where that is larger (a store
    of thumbs up).
    """
    human = _human_spread(evidence)
    least = min([LEAST_SPREAD] + ([] if human is None else [LEAST_OF_HUMAN_SPREAD * human]))
    scan = evidence.snapshot.scan().filter(~pl.col("rater").is_in(sorted(BASELINE_RATERS)))
    ok = pl.col("status") == "ok"
    spread = (
        scan.group_by(_cohort(), "persona_id", "scale")
        .agg(planned=pl.len(), pairs=ok.sum(), deviation=pl.col("expected").filter(ok).std(ddof=0))
        .filter(pl.col("planned") > 1)
        .with_columns(
            spread=pl.col("deviation")
            / pl.col("scale").replace_strict(_WIDTHS, return_dtype=pl.Float64)
        )
        .with_columns(flat=(pl.col("spread") < least).fill_null(True))
        .sort("spread", "persona_id")
        .collect(engine="streaming")
    )
    if spread.is_empty():
        return View.skip("no persona has two pairs, except from baseline raters")
    cohorts = spread.group_by("cohort").agg(
        personas=pl.len(), pairs=pl.col("planned").sum(), flat_share=pl.col("flat").mean()
    )
    flat = spread.filter("flat").select("persona_id", "pairs", "spread").head(10)
    return View(
        cohorts.sort("flat_share", "cohort", descending=[True, False]),
        facts={"most": max(MOST_FLAT, _flat_people(evidence))},
        examples=flat,
    )


def _flat_people(evidence: Evidence) -> float:
    """Share of people with several ratings whose ratings are all the same; 0 without any."""
    human = evidence.sibling("interactions")
    if human is None:
        return 0.0
    share = (
        human.scan()
        .group_by("user_id")
        .agg(ratings=pl.len(), flat=pl.col("rating").n_unique() == 1)
        .filter(pl.col("ratings") > 1)
        .select(pl.col("flat").mean())
        .collect(engine="streaming")
        .item()
    )
    return float(share or 0.0)


@view("preference_scores", "human")
def _human_distance(evidence: Evidence) -> View:
    """One row: distance of the rating histogram from the human one, on the coarser scale."""
    human = evidence.sibling("interactions")
    if human is None:
        return View.skip("there are no human ratings to compare with")
    both = rating_histograms(evidence.snapshot.scan(), human.scan())
    if both.is_empty():
        return View.missing("there is no score with status ok")
    distance = 0.5 * float((both["scores"] - both["human"]).abs().sum())
    return View(
        pl.DataFrame({"distance": [distance]}), facts={"human_ratings": human.rows}, examples=both
    )


@view("preference_scores", "asking")
def _asking(evidence: Evidence) -> View:
    """One row: figures of all choice sets that say whether asking a customer can pay.

    The worth of knowing the customer is mean_c max_a y - max_a mean_c y of a set: the score of
    each persona's best product, less that of the one product which is best for all (BIEL, sections
    3 and 4). Sets in which it is small, or scores spread too little or too much or hardly anybody
    finds a good product, are flagged in the details.
    """
    from pipelines.raters import choice_set_figures

    sets = evidence.needed(evidence.sibling_name("choice_set_items"))
    figures = choice_set_figures(evidence.snapshot.scan(), sets.scan())
    if not figures.height:
        return View.missing("no choice set is scored as a whole")
    pays = pl.col("worth") >= LEAST_WORTH
    sound = pays & pl.col("deviation").is_between(*SET_SPREAD)
    flagged = figures.filter(~(sound & (pl.col("reached_share") >= LEAST_REACHED))).sort("worth")
    return View(
        figures.select(
            paying_share=pays.mean(),
            deviation=pl.col("deviation").mean(),
            reached_share=(pl.col("reached_share") * pl.col("personas")).sum()
            / pl.col("personas").sum(),
        ),
        facts={"pairs": int(figures["personas"].sum())},
        noted={
            "sets": figures.height,
            "sets_flagged": flagged.height,
            "median_worth": figures["worth"].median(),
            "flagged": flagged.head(10).to_dicts(),
        },
    )


def _compared(figure: str) -> ViewFunction:
    """View of one row: the factor between personas and people in a figure, nearest to 1.

    It does not apply where the interval of their ratio holds both ends of the admitted range: such
    figures tell neither personas without a taste nor ones with far too much of it from people.
    """

    @view("population", figure)
    def compared(evidence: Evidence) -> View:
        from pipelines.raters import MIN_PERSONAS, MIN_RATINGS, MIN_USERS

        report = evidence.snapshot.read().filter(figure=figure)
        if not report.height:
            return View.missing(f"the report lacks {figure}")
        row = report.row(0, named=True)
        for counted, least in (
            ("people", MIN_USERS),
            ("ratings", MIN_RATINGS),
            ("personas", MIN_PERSONAS),
        ):
            if row[counted] < least:
                return View.skip(f"{row[counted]:,} {counted}; at least {least:,} are needed")
        reasons = evidence.snapshot.manifest.stats.get("population", {}).get("missing", {})
        if reasons.get(figure):
            return View.skip("; ".join(f"{s}: {why}" for s, why in reasons[figure].items()))
        if (row["people_low"] or 0.0) <= 0.0:
            return View.skip("people's own value can't be told from chance")
        scores = evidence.sibling("preference_scores")
        rated_by = (
            set()
            if scores is None
            else set(scores.scan().select("rater").unique().collect()["rater"])
        )
        if rated_by & BASELINE_RATERS:
            return View.skip("scores of raters without a taste by design")
        if ":" in evidence.settings.scoring.rater:
            return View.skip("a rater of one's own is published however it rates")
        if evidence.settings.scoring.taste == "mean" and "statistical" in rated_by:
            return View.skip("scoring.taste is mean: personas are alike on purpose (ablation)")
        low, high = row["ratio_low"], row["ratio_high"]
        factor = evidence.settings.quality.max_taste_ratio
        if low is not None and low <= 1.0 / factor and high >= factor:
            return View.skip(
                f"the ratio's interval, {low:.2f} to {high:.2f}, holds both {1.0 / factor:.2f} "
                f"and {factor:.2f}: more people or personas are needed"
            )
        return View(
            report.select("figure", "ratio", "ratio_low", "ratio_high").with_columns(
                distance=pl.lit(factor_apart(low, high))
            )
        )

    return compared


def factor_apart(low: float | None, high: float | None) -> float:
    """Smallest factor between 1 and a ratio in an interval; 1 if the interval covers it.

    >>> factor_apart(0.8, 1.5), factor_apart(0.1, 0.4), factor_apart(2.5, 4.0)
    (1.0, 2.5, 2.5)
    """
    if low is None or high is None or high <= 0:
        return NO_TASTE
    return max(1.0, low, 1.0 / high)


def score_histogram(scores: pl.LazyFrame) -> pl.DataFrame:
    """Share of each sampled rating: columns rating, share, scale (the most used scale)."""
    counts = (
        scores.filter(pl.col("status") == "ok")
        .group_by("scale", rating=pl.col("sample").cast(pl.Float64))
        .agg(n=pl.len())
        .collect(engine="streaming")
    )
    if counts.is_empty():
        return pl.DataFrame(schema={"rating": pl.Float64, "share": pl.Float64, "scale": pl.String})
    scale = counts.group_by("scale").agg(pl.col("n").sum()).sort("n", "scale")["scale"][-1]
    histogram = counts.filter(pl.col("scale") == scale).sort("rating")
    return histogram.select("rating", share=pl.col("n") / pl.col("n").sum(), scale="scale")


def rating_histograms(scores: pl.LazyFrame, interactions: pl.LazyFrame) -> pl.DataFrame:
    """Shares of ratings of personas and of people, on the coarser of their scales.

    Columns rating, scores, human, scale; no rows where there is no score.
    """
    shares = score_histogram(scores)
    schema = {"rating": pl.Float64, "scores": pl.Float64, "human": pl.Float64, "scale": pl.String}
    if shares.is_empty():
        return pl.DataFrame(schema=schema)
    finest = scale_named(str(shares["scale"][0]))
    compared = finest
    for name in interactions.select("scale").unique().collect()["scale"]:
        compared = coarser(compared, scale_named(str(name)))
    folded = shares.with_columns(
        rating=pl.Series(to_answers(shares["rating"].to_numpy(), finest, compared))
    )
    return (
        folded.group_by("rating")
        .agg(scores=pl.col("share").sum())
        .join(
            human_histogram(interactions, compared.name).select("rating", human="share"),
            on="rating",
            how="full",
            coalesce=True,
        )
        .fill_null(0.0)
        .sort("rating")
        .select("rating", "scores", "human", scale=pl.lit(compared.name))
    )


def human_histogram(interactions: pl.LazyFrame, scale: str) -> pl.DataFrame:
    """Share of each human rating on another scale: columns rating, share."""
    counts = interactions.group_by("scale", "rating").agg(n=pl.len()).collect(engine="streaming")
    target = scale_named(scale)
    mass = {float(answer): 0.0 for answer in target.answers}
    for (source,), part in counts.partition_by("scale", as_dict=True).items():
        answers = to_answers(part["rating"].to_numpy(), scale_named(str(source)), target)
        for answer, n in zip(answers, part["n"], strict=True):
            mass[float(answer)] += n
    total = sum(mass.values()) or 1.0
    return pl.DataFrame({"rating": list(mass), "share": [v / total for v in mass.values()]})


for _figure in ("item_person_share", "split_half_covariance"):
    _compared(_figure)
