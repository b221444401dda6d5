"""Making raters from the tables of a release."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from pipelines.errors import ConfigError, ContractError
from pipelines.raters.protocol import FITTED_RATERS, Floats, Ints, Rater
from pipelines.raters.statistical.baselines import MeanRater, RandomRater
from pipelines.raters.statistical.ordinal import (
    OrdinalModel,
    calibrate,
    finer_cutpoints,
    fit_ordinal,
    fit_styles,
    match_spread,
)
from pipelines.raters.statistical.profiles import (
    EFFECTS,
    Catalogue,
    HumanRows,
    collect_rows,
    genre_surplus,
    pair_features,
    source_scale,
    stand_ins,
)
from pipelines.raters.statistical.quality import ItemTable, QualityModel, fit_quality, item_table
from pipelines.raters.statistical.rater import StatisticalRater, width_of
from pipelines.raters.statistical.tastes import (
    Prior,
    StatementModel,
    TasteModel,
    Tastes,
    drawn_covariance,
    fit_statements,
    fit_tastes,
    genre_beliefs,
    genre_contrasts,
    packaged_prior,
    pooled_covariance,
)
from pipelines.scales import RatingScale, scale_named, to_answers

#: Ratings that the rater is fitted on at most (count); whole users, chosen by hash.
MAX_FIT_ROWS = 300_000
#: Users whose tastes the covariance is fitted on at most (count).
MAX_FIT_USERS = 3_000
#: Weights of the effects without any rating, in the order of `EFFECTS` (set by hand, in logits
#: per rating unit, per genre share and per standard deviation of similarity). Statements about
#: marks are in logits already: people of the data sets state nothing, and the weight stays 1.
PRIOR_WEIGHTS = (2.0, 2.0, 0.5, 0.5, 0.1, 2.0, 1.0, 2.0)
#: Users and ratings below which the covariance of tastes is pooled with the packaged one (set by
#: hand).
MIN_USERS, MIN_RATINGS = 200, 5_000
#: Length of the scale that the packaged fit is in (0.5-5).
_PACKAGED_RANGE = 4.5
#: Earlier share of each user's training ratings that makes the profile; the later ones are
#: what the weights are fitted on, so that no rating explains itself.
_PROFILE_SHARE = 0.7
#: Least training ratings of a user whose later ones are fitted on (count).
_LEAST = 8


def fit_rater(
    name: str,
    *,
    scale: str | RatingScale,
    items: pl.DataFrame,
    item_stats: pl.DataFrame,
    interactions: pl.DataFrame | pl.LazyFrame,
    splits: pl.DataFrame | pl.LazyFrame,
    item_embeddings: pl.DataFrame | None = None,
    persona_embeddings: pl.DataFrame | None = None,
    seed: int = 0,
    taste: str = "drawn",
) -> Rater:
    """The rater of that name, fitted on the training split where it learns anything.

    Parameters
    ----------
    name
        `statistical`, `random` or `mean`.
    scale
        The scale of its answers: ``1-5``, ``1-10`` or ``0-9``.
    items, item_stats, interactions, splits, item_embeddings, persona_embeddings
        Tables of those names; the embeddings may be missing (no text similarity then). The
        large ones may be lazy.
    seed
        Decides personas' leniency and taste, together with their ids.
    taste
        `drawn`: a persona's taste is a draw from people's; `mean`: it is the mean of what its
        statements tell, for ablation.

    Raises
    ------
    ConfigError
        For an unknown name or scale.
    ContractError
        If interactions are on several scales or of unknown items, or there are too few.
    """
    rating_scale = scale_named(scale) if isinstance(scale, str) else scale
    if name == "random":
        return RandomRater(rating_scale)
    if name == "mean":
        return MeanRater(item_stats, rating_scale, source_scale(interactions))
    if name == "statistical":
        return fit_statistical(
            scale=rating_scale,
            items=items,
            item_stats=item_stats,
            interactions=interactions,
            splits=splits,
            item_embeddings=item_embeddings,
            persona_embeddings=persona_embeddings,
            seed=seed,
            taste=taste,
        )
    raise ConfigError("unknown rater", where=name, hint=f"one of {', '.join(FITTED_RATERS)}")


def fit_statistical(
    *,
    scale: RatingScale,
    items: pl.DataFrame,
    item_stats: pl.DataFrame,
    interactions: pl.DataFrame | pl.LazyFrame,
    splits: pl.DataFrame | pl.LazyFrame,
    item_embeddings: pl.DataFrame | None = None,
    persona_embeddings: pl.DataFrame | None = None,
    seed: int = 0,
    taste: str = "drawn",
) -> StatisticalRater:
    """Fit the statistical rater; the same tables give the same rater.

    Each user's earlier training ratings make a profile; the weights are those under which the
    later ones are most likely. Weights of history are fitted on profiles that know it; those of
    agreement, conflict and similarity on profiles that know only which genres were rated above
    and below expectation and what the liked items' texts are about, as if the user had stated it.
    The cutpoints are then moved so that the mean predicted distribution over these rows is
    exactly their histogram. Where there are few ratings the weights stay
    near what is set by hand (`PRIOR_WEIGHTS`).
    """
    source = source_scale(interactions)
    table = item_table(items, item_stats)
    flat = Catalogue.build(items, table.counts, item_embeddings)
    rows = collect_rows(interactions, splits, "train", flat, most=MAX_FIT_ROWS)
    if not len(rows):
        raise ContractError(
            "there is no rating to fit the statistical rater on",
            where="splits, train",
            hint="rater random or mean needs none",
        )
    several = np.bincount(rows.user)[rows.user] >= _LEAST
    late = several & ~rows.earlier(_PROFILE_SHARE)
    early, target = rows.take(~late), rows.take(late)
    packaged = packaged_prior()
    few = len(rows.users) < MIN_USERS or len(rows) < MIN_RATINGS
    pooled = _pooled(packaged, flat, source) if few else None
    # The explained ratings must not have entered the quality that explains them.
    first = learn(early, flat, _without(table, target), pooled=pooled)
    pairs = np.stack([target.user, target.item], axis=1)
    # People gave no answers between those of their scale: a finer one is made of the fitted one.
    finer = len(scale) > len(source)
    fitted = source if finer else scale
    answer = _positions(target.rating, source, fitted)
    base = stand_ins(early, first.catalogue, first.quality.mean, first.believed)
    features = pair_features(base, first.catalogue, pairs)
    prior = np.array(PRIOR_WEIGHTS)
    stated = fit_ordinal(features, answer, len(fitted), prior=prior).weights
    tastes = first.believed.mean.copy()
    tastes[:, 0] = 0.0
    usual = float(first.believed.variance[target.user].mean()) if len(target) else 0.0
    width = width_of(base.variance, first.tastes, usual)[target.user]
    features = pair_features(replace(base, tastes=tastes), first.catalogue, pairs)
    # A history is more informative than the stand-ins made of it: they are left out beside it.
    stating = [EFFECTS.index(e) for e in ("agreement", "conflict", "similarity")]
    features[:, stating] = 0.0
    ordinal = fit_ordinal(features, answer, len(fitted), prior=prior, width=width)
    weights = ordinal.weights
    weights[stating] = stated[stating] * weights[0] / max(float(stated[0]), 0.1)
    cutpoints = ordinal.cutpoints
    if len(target):
        # Of the same rows: people first rate what they like, so that all their ratings together
        # have more of the best answers than the later ones that are predicted.
        share = np.bincount(answer, minlength=len(fitted)) / len(answer)
        cutpoints = calibrate(features @ weights, share, width)
    styles = None
    if pooled is None:
        styles = fit_styles(target.user, answer, features @ weights, width, cutpoints)
    learned = learn(rows, flat, table, start=first.tastes, rounds=2, pooled=pooled)
    # A persona is one person, so each user counts once, however many ratings it gave. Leniency is
    # relative to the items' qualities, so that both are of the same fit.
    leniency = np.quantile(learned.believed.mean[np.unique(rows.user), 0], np.linspace(0, 1, 201))
    # Few people: the packaged variances stand.
    drawn = learned.tastes.covariance if few else _drawn(rows, learned)
    statements = _statements(rows, learned, table.counts, packaged if few else None)
    widths, extremes = styles or (packaged.width_spread, packaged.extremes_spread)
    drawn_tastes = replace(learned.tastes, covariance=drawn)
    # Later ratings are less spread, and people differ less in that, than in whole lists, which
    # are what personas rate.
    expected = weights[0] * learned.catalogue.quality[rows.item]
    expected += weights[1] * learned.believed.mean[rows.user, 0]
    unknown = np.full(len(rows), drawn_tastes.taste_variance)
    level, widths = match_spread(
        rows.user,
        to_answers(rows.rating, source, fitted),
        fitted.answers,
        expected,
        width_of(unknown, learned.tastes, usual),
        cutpoints,
        (widths, extremes),
    )
    if finer:
        cutpoints = finer_cutpoints(cutpoints, source, scale)
    return StatisticalRater(
        scale=scale,
        source=source,
        catalogue=learned.catalogue,
        quality=learned.quality,
        tastes=learned.tastes,
        model=OrdinalModel(weights, cutpoints),
        leniency_quantiles=leniency,
        usual_variance=usual,
        persona_vectors=persona_embeddings,
        statements=statements,
        drawn=drawn_tastes,
        width_level=level,
        width_spread=widths,
        extremes_spread=extremes,
        fitted_on={
            "users": len(rows.users),
            "ratings": len(rows),
            "weights_on": len(target),
            "split": "train",
            "taste_prior": "its own people"
            if pooled is None
            else f"pooled with {packaged.people} people of {packaged.source}",
        },
        seed=seed,
        taste=taste,
    )


@dataclass(frozen=True)
class Learned:
    """Items' quality and people's tastes, fitted together, and beliefs about the people."""

    catalogue: Catalogue
    quality: QualityModel
    tastes: TasteModel
    believed: Tastes


def learn(
    rows: HumanRows,
    flat: Catalogue,
    table: ItemTable,
    *,
    start: TasteModel | None = None,
    rounds: int = 3,
    pooled: Floats | None = None,
) -> Learned:
    """Fit qualities and tastes in turn: each explains what the other leaves.

    Tastes are fitted on ``rows``, from ``start``; ``flat`` and ``table`` are the items with the
    sums of all training ratings. A round is quality, then tastes. The tastes are pooled with the
    covariance ``pooled`` where the world is too small for its own.
    """
    size, people = len(table.counts), len(rows.users)
    mean = float(table.totals.sum() / table.counts.sum())
    sampled = np.bincount(rows.item, minlength=size).astype(np.float64)
    # Before tastes are known: surplus over items' means, shrunk as five ratings do.
    gap = rows.rating - mean - _means(table, mean)[rows.item]
    count = np.bincount(rows.user, minlength=people)
    lenient = np.bincount(rows.user, gap, minlength=people) / (count + 5.0)
    explained = lenient[rows.user]
    noise = start.noise if start else max(float(gap.var()), 1e-3)
    tastes, believed, catalogue, quality = start, None, flat, None
    fitted = rows.user < MAX_FIT_USERS
    for _ in range(rounds):
        sums = np.bincount(rows.item, explained, minlength=size).astype(np.float64)
        unexplained = table.beyond(sampled, sums)
        quality = fit_quality(unexplained, flat.features, noise, mean)
        catalogue = flat.judged(quality.of(unexplained, flat.features))
        surplus = rows.rating - mean - catalogue.quality[rows.item]
        observed = (catalogue.taste, rows.user[fitted], rows.item[fitted], surplus[fitted])
        tastes = fit_tastes(*observed, start=tastes, pooled=pooled)
        noise = tastes.noise
        believed = tastes.posterior(catalogue.taste, people, rows.user, rows.item, surplus)
        explained = np.einsum("ij,ij->i", catalogue.taste[rows.item], believed.mean[rows.user])
    assert tastes is not None
    assert quality is not None
    assert believed is not None
    return Learned(catalogue, quality, tastes, believed)


def _pooled(prior: Prior, flat: Catalogue, source: RatingScale) -> Floats:
    """The packaged covariance for this world's columns, in its rating units."""
    components = flat.features.shape[1] - len(flat.genres) - 2
    unit = (source.high - source.low) / _PACKAGED_RANGE
    # A flat direction can't be inverted.
    floor = 1e-4 * np.eye(flat.taste.shape[1])
    return (pooled_covariance(prior, flat.genres, components) + floor) * unit**2


def _drawn(rows: HumanRows, learned: Learned) -> Floats:
    """The covariance of drawn tastes, its variances by moments."""
    catalogue = learned.catalogue
    return drawn_covariance(
        learned.tastes,
        catalogue.taste,
        catalogue.taste_groups,
        (rows.user, rows.item, rows.rating),
        len(rows.users),
    )


def _statements(
    rows: HumanRows, learned: Learned, counts: Floats, packaged: Prior | None
) -> StatementModel:
    """The observation model of stated genres, fitted on the people or the packaged one."""
    catalogue = learned.catalogue
    contrasts = genre_contrasts(catalogue.taste, (catalogue.shares > 0).astype(np.float64), counts)
    if packaged is not None:
        return StatementModel(contrasts, *packaged.statements)
    mean = learned.quality.mean
    affinity, _ = genre_surplus(rows, catalogue, mean, learned.believed.mean[:, 0])
    surplus = rows.rating - mean - catalogue.quality[rows.item]
    who, first, second = genre_beliefs(
        learned.tastes, catalogue.taste, contrasts, (rows.user, rows.item, surplus)
    )
    return fit_statements(learned.tastes, contrasts, affinity[who], first, second)


def _without(table: ItemTable, rows: HumanRows) -> ItemTable:
    size = len(table.counts)
    return table.without(
        np.bincount(rows.item, minlength=size).astype(np.float64),
        np.bincount(rows.item, rows.rating, minlength=size).astype(np.float64),
    )


def _means(table: ItemTable, mean: float) -> Floats:
    """Items' means relative to `mean`, shrunk as three ratings do."""
    return np.asarray((table.totals - table.counts * mean) / (table.counts + 3.0))


def _positions(rating: Floats, source: RatingScale, scale: RatingScale) -> Ints:
    return np.asarray((to_answers(rating, source, scale) - scale.low) / scale.step).astype(np.int64)
