"""Tastes of personas are draws from people's, given what they state."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from pipelines.raters import LiveStatistical, fit_rater
from pipelines.raters.statistical.ordinal import OrdinalModel, fit_styles, match_spread, tilt
from pipelines.raters.statistical.tastes import (
    Conditioner,
    StatementModel,
    TasteModel,
    drawn_covariance,
    fit_statements,
    fit_tastes,
    genre_beliefs,
    packaged_prior,
    pooled_covariance,
    stated_genres,
)
from pipelines.scales import rescale


@pytest.fixture(scope="module")
def rater(small_world):
    found = fit_rater("statistical", scale="1-10", **small_world.tables)
    # The same leniency for everybody: these tests are about taste.
    return replace(found, leniency_quantiles=np.zeros(201))


def personas(count, likes=("Comedy",), dislikes=("Horror",), text=""):
    return pl.DataFrame(
        {
            "persona_id": [f"persona:drawn:{n:07d}" for n in range(count)],
            "likes": [list(likes)] * count,
            "dislikes": [list(dislikes)] * count,
            "description": [text] * count,
        },
        schema_overrides={"likes": pl.List(pl.String), "dislikes": pl.List(pl.String)},
    )


def remembered(people, world, ratings):
    """The first items of the world, rated by each persona as given."""
    items = world.items["item_id"].head(len(ratings))
    rated = pl.DataFrame({"item_id": items, "rating": ratings})
    return people.select("persona_id").join(rated, how="cross")


@pytest.mark.parametrize("history", [(), (9.0, 2.0, 10.0, 5.0, 8.0, 1.0, 9.0, 9.0)])
@pytest.mark.parametrize(("likes", "dislikes"), [((), ()), (("Comedy",), ("Horror",))])
def test_mean_over_draws_is_the_rating_at_the_mean(rater, small_world, likes, dislikes, history):
    people = personas(1_500, likes, dislikes)
    past = remembered(people, small_world, history) if history else None
    drawn = rater.rate(people, small_world.items, past).expected.reshape(1_500, -1)
    mean = replace(rater, taste="mean").rate(people[:1], small_world.items, past).expected
    error = drawn.std(axis=0, ddof=1) / np.sqrt(len(drawn))
    # Five standard errors, and what a mixture of logistic distributions differs from one.
    assert (np.abs(drawn.mean(axis=0) - mean) < 5 * error + 0.03).all()
    assert drawn.std(axis=0).mean() > 0.1, "draws differ"


def test_history_moves_taste_by_what_statements_leave_unknown(rater, small_world):
    """Gaussian conditioning on statements and ratings together, by the textbook."""
    ratings = (9.0, 2.0, 10.0, 5.0, 8.0, 1.0)
    one = personas(1)
    mean = replace(rater, taste="mean")
    before = mean._profiles(one, None)
    after = mean._profiles(one, remembered(one, small_world, ratings))
    taste, prior = rater.catalogue.taste, rater.persona_prior
    # Rows: six ratings, then the statements, each with its own noise.
    rows = [rater.catalogue.index[i] for i in small_world.items["item_id"].head(6)]
    columns = [rater.catalogue.genres.index(g) for g in ("Comedy", "Horror")]
    contrasts = rater.statements.contrasts[columns]
    scale = np.sqrt(np.diag(contrasts @ prior.covariance @ contrasts.T))
    seen = np.vstack([taste[rows], contrasts])
    noise = np.diag([prior.noise] * 6 + list((rater.statements.noise * scale) ** 2))
    stated = np.array([rater.statements.liked, -rater.statements.disliked]) * scale
    stars = rescale(np.array(ratings), rater.scale, rater.source) - rater.quality.mean
    # The rating model's own weights of quality and stated taste are 1 in rating units.
    value = np.concatenate([stars - rater.catalogue.quality[rows], stated])
    gain = prior.covariance @ seen.T @ np.linalg.inv(seen @ prior.covariance @ seen.T + noise)
    found = before.stated.liked[0] + before.stated.disliked[0] + after.tastes[0]
    np.testing.assert_allclose(found[1:], (gain @ value)[1:], atol=1e-5)
    assert after.leniency[0] == pytest.approx((gain @ value)[0], abs=1e-5)


def test_draw_is_fixed_by_id_and_seed(rater, small_world):
    people = personas(40)
    first = rater.rate(people, small_world.items).expected.reshape(40, -1)
    alone = rater.rate(people[7:8], small_world.items).expected
    np.testing.assert_allclose(alone, first[7], rtol=0, atol=1e-9)
    other = replace(rater, seed=1).rate(people, small_world.items).expected.reshape(40, -1)
    assert (np.abs(other - first).max(axis=1) > 1e-3).all()


def test_personas_with_equal_fields_differ(rater, small_world):
    two = rater.rate(personas(2), small_world.items).expected.reshape(2, -1)
    order = np.corrcoef(two - two.mean(axis=1, keepdims=True))[0, 1]
    assert order < 1 - 1e-4, "not by a shift only"
    same = replace(rater, taste="mean").rate(personas(2), small_world.items).expected
    np.testing.assert_array_equal(same.reshape(2, -1)[0], same.reshape(2, -1)[1])


def test_persona_that_states_its_marks_is_not_drawn(rater, small_world):
    people = personas(2, (), (), "Rates every film with the lowest marks.")
    found = rater.rate(people, small_world.items).expected.reshape(2, -1)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize(("likes", "dislikes"), [(18, 0), (0, 0), (0, 18)])
def test_every_genre_liked_or_none_works(rater, small_world, likes, dislikes):
    genres = list(rater.catalogue.genres)
    people = personas(5, genres[:likes], genres[:dislikes])
    found = rater.rate(people, small_world.items)
    assert np.isfinite(found.probabilities).all()
    # Also with a memory: every statement is an observation beside the ratings.
    past = np.tile([0, 4, -1], (5, 1))
    live = LiveStatistical(rater, people, small_world.items)
    moved = live.rate(np.arange(5), np.full(5, 9), past, np.full((5, 3), 10.0)).expected
    history = remembered(people, small_world, (10.0,)).vstack(
        remembered(people, small_world, (10.0,) * 5).filter(item_id=small_world.items["item_id"][4])
    )
    pairs = np.stack([np.arange(5), np.full(5, 9)], axis=1)
    same = rater.rate(people, small_world.items, history, pairs=pairs).expected
    np.testing.assert_allclose(moved, same, atol=1e-6)


def planted(people=1_200, seed=3):
    """Tastes over an intercept and four genres, drawn from a known covariance, and ratings."""
    rng = np.random.default_rng(seed)
    root = rng.normal(0, 0.25, (4, 4)) + 0.35 * np.eye(4)
    covariance = np.zeros((5, 5))
    covariance[0, 0] = 0.15
    covariance[1:, 1:] = root @ root.T
    features = np.column_stack([np.ones(200), rng.random((200, 4)) < 0.4])
    features[:, 1:] -= features[:, 1:].mean(axis=0)
    taste = rng.multivariate_normal(np.zeros(5), covariance, people)
    person = np.repeat(np.arange(people), 60)
    item = rng.integers(0, 200, len(person))
    surplus = (features[item] * taste[person]).sum(axis=1) + rng.normal(0, 0.7, len(person))
    return covariance, features, taste, person, item, surplus


CONTRASTS = np.column_stack([np.zeros(4), np.eye(4)])


@pytest.mark.parametrize("stated", [False, True])
def test_draws_recover_a_planted_covariance(stated):
    """Of personas that state nothing, and of personas that state what such people state."""
    covariance, features, taste, person, item, surplus = planted()
    model = fit_tastes(features, person, item, surplus)
    _, mean, second = genre_beliefs(model, features, CONTRASTS, (person, item, surplus))
    fields = [np.tile(f, (5, 1)) * stated for f in stated_genres(mean)]
    made = Conditioner.of(model, fit_statements(model, CONTRASTS, mean, mean, second))
    found = made.of_personas(*fields, np.arange(6_000, dtype=np.uint64), 0, width_spread=0.0)
    drawn = found.liked + found.disliked + found.drawn
    # 95 % interval of the people's own covariance, by bootstrap over people.
    rng = np.random.default_rng(0)
    spread = np.array(
        [np.cov(taste[rng.integers(0, len(taste), len(taste)), 1:].T) for _ in range(200)]
    ).std(axis=0)
    gap = np.abs(np.cov(drawn[:, 1:].T) - covariance[1:, 1:])
    assert (gap < 4 * spread + 0.01).all()


def test_moments_correct_the_variances_of_an_early_stopped_fit(monkeypatch):
    covariance, features, taste, person, item, surplus = planted()
    monkeypatch.setattr("pipelines.raters.statistical.tastes._PASSES", 2)
    stopped = fit_tastes(features, person, item, surplus)
    quality = np.random.default_rng(8).normal(0, 0.5, len(features))
    rows = (person, item, 3.5 + quality[item] + surplus)
    found = drawn_covariance(stopped, features, [np.arange(1, 5)], rows, len(taste))
    typical = np.diag(stopped.typical)[1:]
    truth = (np.diag(covariance)[1:] * typical).sum()
    before, after = ((np.diag(c)[1:] * typical).sum() for c in (stopped.covariance, found))
    assert abs(after - truth) < min(0.15 * truth, abs(before - truth))
    np.testing.assert_allclose(
        found[1:, 1:] / stopped.covariance[1:, 1:], found[1, 1] / stopped.covariance[1, 1]
    )


def test_conditioned_draws_have_the_posterior_covariance():
    covariance, features, *_ = planted(people=20)
    typical = features.T @ features / len(features)
    made = Conditioner.of(
        TasteModel(covariance, 0.5, typical), StatementModel(CONTRASTS, 1.5, 1.2, 0.7)
    )
    size = 20_000
    likes, dislikes = np.zeros((size, 4)), np.zeros((size, 4))
    likes[:, 1] = dislikes[:, 3] = 1.0
    found = made.of_personas(likes, dislikes, np.arange(size, dtype=np.uint64), 0, width_spread=0.2)
    # The textbook posterior of the two observations.
    prior = covariance.copy()
    prior[0] = prior[:, 0] = 0.0
    seen = CONTRASTS[[1, 3]]
    scale = np.sqrt(np.diag(seen @ prior @ seen.T))
    gain = prior @ seen.T @ np.linalg.inv(seen @ prior @ seen.T + np.diag((0.7 * scale) ** 2))
    after = prior - gain @ seen @ prior
    mean = gain @ (np.array([1.5, -1.2]) * scale)
    np.testing.assert_allclose((found.liked + found.disliked)[0], mean, atol=1e-6)
    np.testing.assert_allclose(np.cov(found.drawn.T), after, atol=0.012)
    np.testing.assert_allclose(found.drawn.mean(axis=0), 0.0, atol=0.02)
    np.testing.assert_allclose(found.variance, (after * typical).sum(), rtol=1e-5)
    assert (found.width**2).mean() == pytest.approx(1.0, abs=0.02)


def test_statements_are_fitted_to_the_people_who_make_them():
    _, features, _, person, item, surplus = planted()
    model = fit_tastes(features, person, item, surplus)
    who, mean, second = genre_beliefs(model, features, CONTRASTS, (person, item, surplus))
    assert who.tolist() == list(range(1_200))
    found = fit_statements(model, CONTRASTS, mean, mean, second)
    likes, dislikes = stated_genres(mean)
    made = Conditioner.of(model, found).of_personas(
        likes, dislikes, np.arange(1_200, dtype=np.uint64), 0, width_spread=0.0
    )
    facts = (made.liked + made.disliked) @ CONTRASTS.T
    for stated in (likes, dislikes):
        assert (facts * stated).sum() == pytest.approx((mean * stated).sum(), rel=0.1)


def drawn_ends(spread, normal):
    return np.stack([spread * normal, np.full(len(normal), spread**2)], axis=1)


def styled(width_spread, extremes_spread, people=400, each=40, seed=1):
    """Ratings of people whose widths and use of the end answers spread as given."""
    rng = np.random.default_rng(seed)
    cuts = np.linspace(-3.5, 3.0, 9)
    user = np.repeat(np.arange(people), each)
    location = rng.normal(0, 1.2, len(user))
    shift, wide, ends = rng.normal(0, 1, (3, people))
    found = OrdinalModel(np.zeros(0), cuts).probabilities(
        location + 0.4 * shift[user], np.exp(width_spread * wide)[user]
    )
    share = tilt(found, drawn_ends(extremes_spread, ends[user]))
    answer = (rng.random((len(user), 1)) > share.cumsum(axis=1)).sum(axis=1).clip(0, 9)
    return user, answer, location, np.ones(len(user)), cuts


@pytest.mark.parametrize("planted", [(0.3, 0.0), (0.0, 0.8), (0.3, 0.8)])
def test_spread_of_styles_is_that_of_the_people(planted):
    width, extremes = fit_styles(*styled(*planted))
    assert width == pytest.approx(planted[0], abs=0.06 if planted[0] else 0.12)
    assert extremes == pytest.approx(planted[1], abs=0.12 if planted[1] else 0.2)


@pytest.mark.parametrize(("level", "spread"), [(0.8, 0.3), (1.0, 0.4), (1.3, 0.3), (1.0, 0.2)])
def test_level_and_spread_of_widths_are_those_of_the_people(level, spread):
    user, answer, location, width, cuts = styled(spread, 0.8)
    given = (user, answer + 1.0, np.arange(1.0, 11.0), location, width / level)
    found = match_spread(*given, cuts, (0.3, 0.8))
    # The mean log of their factors is 0; that of the model's, whose mean square is 1, is lower.
    assert found[0] == pytest.approx(level * np.exp(spread**2), rel=0.06)
    assert found[1] == pytest.approx(spread, abs=0.07)


def test_widths_of_few_people_are_not_matched():
    user, answer, location, width, cuts = styled(0.5, 0.8, people=40)
    given = (user, answer + 1.0, np.arange(1.0, 11.0), location, width / 2)
    assert match_spread(*given, cuts, (0.3, 0.8)) == (1.0, 0.3)


def test_styles_of_few_people_are_not_fitted():
    assert fit_styles(*styled(0.3, 0.8, people=40)) is None
    assert fit_styles(*styled(0.3, 0.8, each=9)) is None


def test_tilt_changes_the_odds_of_the_ends_by_hand():
    # Odds of the ends 0.5 : 0.5 are doubled to 2 : 1; the share of 0.5 leaves them uncorrected.
    ends = np.array([[np.log(2.0), 0.7], [0.0, 0.0]])
    found = tilt(np.array([[0.2, 0.5, 0.3]] * 2), ends)
    np.testing.assert_allclose(found, [[0.4 / 1.5, 0.5 / 1.5, 0.6 / 1.5], [0.2, 0.5, 0.3]])


@pytest.mark.parametrize("ends", [0.02, 0.13, 0.3, 0.7])
def test_tilted_people_use_the_ends_as_much_on_average(ends):
    draws = np.random.default_rng(0).normal(0, 1, 40_000)
    flat = np.tile([ends / 4, 1 - ends, 3 * ends / 4], (40_000, 1))
    found = tilt(flat, drawn_ends(0.8, draws))[:, [0, 2]].sum(axis=1)
    assert found.mean() == pytest.approx(ends, rel=0.06)
    assert found.std() > 0.3 * ends * (1 - ends)


def test_small_world_says_that_its_prior_is_pooled(rater):
    facts = rater.metadata()["fitted"]["taste_prior"]
    assert facts == "pooled with 610 people of ml-latest-small"


@pytest.mark.parametrize(
    ("users", "per_user", "own"), [(200, 44, True), (199, 44, False), (200, 30, False)]
)
def test_prior_is_pooled_below_200_users_or_5000_ratings(world_of, users, per_user, own):
    """Of each user 36, 36 and 24 ratings are for training: 7,200, 7,164 and 4,800."""
    world = world_of(users=users, per_user=per_user)
    found = fit_rater("statistical", scale="1-10", **world.tables)
    facts = found.metadata()["fitted"]
    assert (facts["taste_prior"] == "its own people") == own
    packaged = packaged_prior()
    assert (found.extremes_spread == packaged.extremes_spread) == (not own)
    assert np.isfinite(found.rate(world.personas, world.items).probabilities).all()


def test_packaged_covariance_is_laid_out_for_other_genres():
    prior = packaged_prior()
    first = prior.genres[0]
    found = pooled_covariance(prior, ("Nowhere", first), 3)
    assert found.shape == (1 + 2 + 3 + 3,) * 2
    assert found[0, 0] == prior.covariance[0, 0]
    assert found[2, 0] == prior.covariance[1, 0]
    assert found[1, 2] == 0.0 < found[1, 1]
    assert np.diag(found)[3:6].tolist() == [prior.component] * 3
    assert found[-1, -1] == prior.covariance[-1, -1]
    assert np.linalg.eigvalsh(found).min() > -1e-9
