"""The rater that needs no language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import ContractError
from pipelines.personas import read_fields
from pipelines.raters.protocol import OK, BoundRater, Floats, Ints, RatingBatch, TableRater
from pipelines.raters.statistical.ordinal import OrdinalModel, tilt
from pipelines.raters.statistical.profiles import (
    EFFECTS,
    GENRE_STRENGTH,
    GENRE_THRESHOLD,
    Catalogue,
    HumanRows,
    Profiles,
    Singles,
    StatedMarks,
    collect_rows,
    genre_matrix,
    genre_surplus,
    pair_features,
    vector_matrix,
)
from pipelines.raters.statistical.quality import VOTES_HALF, QualityModel, item_table
from pipelines.raters.statistical.tastes import (
    COMPONENTS,
    Conditioner,
    PersonaTastes,
    StatementModel,
    TasteModel,
    Tastes,
)
from pipelines.scales import RatingScale, rescale
from pipelines.seeding import hash_ids, uniform

#: Weight of a persona's description beside a watch history: the fitted weight of text similarity
#: is multiplied by this for personas (set by hand).
TEXT_TRUST = 0.5
#: Shares of people, from the least to the most lenient or varied, that a value of `leniency` and
#: `manner` stands for.
BANDS = {
    "harsh": (0.0, 0.25),
    "narrow": (0.0, 0.25),
    "average": (0.25, 0.75),
    "generous": (0.75, 1.0),
    "wide": (0.75, 1.0),
}
#: Share of average items that a persona of the manner `polar` or `uniform` rates as it states,
#: and the meaning as shares of the scale's length: from the first on the best ratings, from
#: the second on good ones, and as far from the other end bad ones (set by hand).
KEPT, BEST, GOOD = 0.9, 0.8, 0.6
#: Reciprocal of the variance of the standard logistic distribution.
_LOGISTIC = 3.0 / np.pi**2
#: Width that no distribution falls below (set by hand).
_NARROWEST = 0.4
_TASTE = EFFECTS.index("taste")
#: Value of the column `origin` for people of the data set, such as those of a report.
HUMAN = "human"


@dataclass(frozen=True)
class StatisticalRater(TableRater):
    """An ordinal model over quality, genres, text similarity, rating history and leniency.

    Make it with :func:`pipelines.raters.fit_statistical`. The weights, cutpoints, quality prior,
    distribution of leniency and covariance of taste are fitted on training ratings of people;
    `metadata` lists what is set by hand.

    A persona is rated by its fields; those that it lacks are read from its text
    (:func:`pipelines.personas.read_fields`). Its leniency and the width of its distributions are
    draws from people's, fixed by its id, within the share of people that the fields `leniency` and
    `manner` name. With the manners `polar` and `uniform` ratings are polar and uniform, and nothing
    is drawn. Ratings in its history move all of it, as they move what is expected of people. An
    item that was not there at fitting is rated by its genres, its year and its votes.
    """

    scale: RatingScale
    source: RatingScale
    catalogue: Catalogue
    quality: QualityModel
    tastes: TasteModel
    model: OrdinalModel
    leniency_quantiles: Floats
    usual_variance: float
    persona_vectors: pl.DataFrame | None
    statements: StatementModel
    drawn: TasteModel
    width_level: float
    width_spread: float
    extremes_spread: float
    fitted_on: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    taste: str = "drawn"
    name: str = "statistical"
    needs: ClassVar = ("items", "item_stats", "interactions", "splits")
    uses: ClassVar = ("item_embeddings", "persona_embeddings")

    def for_personas(self, persona_embeddings: pl.DataFrame) -> StatisticalRater:
        """The same model with the vectors of other personas."""
        return replace(self, persona_vectors=persona_embeddings)

    def bind(self, personas: pl.DataFrame, items: pl.DataFrame) -> BoundRater:
        """Its array form, without tables."""
        return LiveStatistical(self, personas, items)

    def rate_pairs(
        self, personas: pl.DataFrame, items: pl.DataFrame, past: pl.DataFrame | None, pairs: Ints
    ) -> RatingBatch:
        """Distributions of the fitted model."""
        parts, style = self._parts(personas, items, past, pairs)
        probabilities = self.distributions(parts.sum(axis=1), *style)
        return RatingBatch(self.scale, probabilities, [OK] * len(parts))

    def distributions(self, location: Floats, width: Floats, extremes: Floats) -> Floats:
        """Distributions of shape (rows, answers) at locations, widths and log odds of the ends."""
        return tilt(self.model.probabilities(location, width), extremes)

    def effects(
        self,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        histories: pl.DataFrame | None = None,
        *,
        pairs: npt.NDArray[np.integer[Any]] | None = None,
    ) -> dict[str, Floats]:
        """Effects on the expected rating of each pair; parameters as for :meth:`rate`.

        By effect: the expected rating minus what it would be without the effect, on the scale, of
        shape (pairs,). Effects interact, so that they need not add up.
        """
        parts, style = self._parts(personas, items, histories, pairs)
        location = parts.sum(axis=1)
        answers = self.scale.answers
        expected = self.distributions(location, *style) @ answers
        return {
            effect: expected - self.distributions(location - parts[:, n], *style) @ answers
            for n, effect in enumerate(EFFECTS)
        }

    def persona_tastes(self, personas: pl.DataFrame) -> Floats:
        """Weights of personas over the catalogue's taste columns, leniency left out.

        Rating units per unit of each column, of shape (personas, 1 + features).
        """
        return self._profiles(personas, None).persona.mean_and_draw

    def training_rows(
        self,
        interactions: pl.DataFrame | pl.LazyFrame,
        splits: pl.DataFrame | pl.LazyFrame,
        *,
        users: list[str] | None = None,
        most_users: int | None = None,
    ) -> HumanRows:
        """Training ratings of these users, or of the first of them in the order of a hash."""
        if users is None:
            train = splits.lazy().filter(pl.col("split") == "train").select("user_id").unique()
            user_ids = train.collect(engine="streaming")["user_id"]
            order = np.argsort(hash_ids(user_ids), kind="stable")
            users = user_ids.gather(order[:most_users]).sort().to_list()
        return collect_rows(interactions, splits, "train", self.catalogue, users=users)

    def beliefs_of(self, rows: HumanRows) -> Tastes:
        """Posterior of people's leniency and tastes given ratings."""
        surplus = rows.rating - self.quality.mean - self.catalogue.quality[rows.item]
        return self.tastes.posterior(
            self.catalogue.taste, len(rows.users), rows.user, rows.item, surplus
        )

    def genre_affinity(
        self,
        interactions: pl.DataFrame | pl.LazyFrame,
        splits: pl.DataFrame | pl.LazyFrame,
        users: list[str],
    ) -> Floats:
        """Shrunken mean surplus of users' training ratings by genre, of shape (users, genres)."""
        rows = self.training_rows(interactions, splits, users=users)
        leniency = self.beliefs_of(rows).mean[:, 0]
        affinity, _ = genre_surplus(rows, self.catalogue, self.quality.mean, leniency)
        place = {user: n for n, user in enumerate(rows.users)}
        out = np.zeros((len(users), affinity.shape[1]))
        for n, user in enumerate(users):
            if user in place:
                out[n] = affinity[place[user]]
        return out

    def _parts(
        self,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        histories: pl.DataFrame | None,
        pairs: npt.NDArray[np.integer[Any]] | None,
    ) -> tuple[Floats, tuple[Floats, Floats]]:
        """Locations by effect (pairs, effects), and widths and log odds of the ends (pairs,)."""
        person, item = self.pairs_of(personas, items, pairs).T
        catalogue, rows = self._place(items)
        profiles = self._profiles(personas, histories)
        placed = np.stack([person, rows[item]], axis=1)
        parts = pair_features(profiles, catalogue, placed) * self._weights
        return parts, (self._widths(profiles)[person], profiles.persona.extremes[person])

    def _widths(self, profiles: Profiles) -> Floats:
        """Width of each persona's distributions, of shape (n,)."""
        stated = profiles.persona
        # A drawn taste is known whatever ratings there are: without its spread the logistic
        # distribution is narrower, so that the mean over draws is the one at the mean taste.
        drawn = stated.variance > 0
        unknown = np.where(drawn, stated.variance, profiles.variance)
        width = width_of(unknown, self.tastes, self.usual_variance)
        width *= stated.level
        spread = _LOGISTIC * self._weights[_TASTE] ** 2 * stated.variance
        return np.asarray(np.sqrt(np.maximum(width**2 - spread, _NARROWEST**2)) * stated.width)

    @property
    def conditioner(self) -> Conditioner:
        """Posterior of a persona's taste given the genres that it states."""
        return Conditioner.of(self.drawn, self.statements)

    @property
    def persona_prior(self) -> TasteModel:
        """Prior of a persona that states nothing: leniency and taste are independent."""
        covariance = self.conditioner.covariance
        covariance[0, 0] = self.drawn.covariance[0, 0]
        return replace(self.drawn, covariance=covariance)

    @property
    def _weights(self) -> Floats:
        weights = self.model.weights.copy()
        weights[EFFECTS.index("similarity")] *= TEXT_TRUST
        # Stated and drawn tastes are in rating units, as the quality is. (A history's weight is
        # lower: its posterior means miss later changes of taste.)
        for effect in ("agreement", "conflict", "taste"):
            weights[EFFECTS.index(effect)] = weights[0]
        return weights

    def metadata(self) -> dict[str, Any]:
        """Fitted values with their basis, and constants set by hand."""
        numbers = {
            "mean_rating": self.quality.mean,
            "quality_strength": self.quality.strength,
            "vote_weight": self.quality.vote_weight,
            "taste_spread": np.sqrt(self.tastes.taste_variance),
            "drawn_spread": np.sqrt(self.drawn.taste_variance),
            "noise_spread": np.sqrt(self.tastes.noise),
            "width_level": self.width_level,
            "width_spread": self.width_spread,
            "extremes_spread": self.extremes_spread,
            "leniency_spread": self.leniency_quantiles.std(),
        }
        statements = {n: getattr(self.statements, n) for n in ("liked", "disliked", "noise")}
        return self.described(
            {
                **self.fitted_on,
                "weights": dict(zip(EFFECTS, self.model.weights.round(6).tolist(), strict=True)),
                "cutpoints": self.model.cutpoints.round(6).tolist(),
                "taste": self.taste,
                "statements": {name: round(value, 6) for name, value in statements.items()},
                **{name: round(float(value), 6) for name, value in numbers.items()},
            },
            {
                "text_trust": TEXT_TRUST,
                "bands": {name: list(band) for name, band in BANDS.items()},
                "word_kept": KEPT,
                "word_bands": [BEST, GOOD],
                "text_components": COMPONENTS,
                "genre_threshold": GENRE_THRESHOLD,
                "genre_strength": GENRE_STRENGTH,
                "votes_half": VOTES_HALF,
            },
        )

    def _place(self, items: pl.DataFrame) -> tuple[Catalogue, Ints]:
        """A catalogue that holds all of `items`, and the row of each in it."""
        index = self.catalogue.index
        ids = items["item_id"].to_list()
        rows = np.array([index.get(i, -1) for i in ids], dtype=np.int64)
        new = np.flatnonzero(rows < 0)
        if not len(new):
            return self.catalogue, rows
        fresh = items[new.tolist()]
        shares, features = self.catalogue.unrated(fresh)
        quality = self.quality.of(item_table(fresh, None), features)
        rows[new] = np.arange(len(index), len(index) + len(new))
        return self.catalogue.joined(shares, features, quality), rows

    def _profiles(self, personas: pl.DataFrame, histories: pl.DataFrame | None) -> Profiles:
        genres = self.catalogue.genres
        fields = read_fields(personas, genres)
        likes = genre_matrix(fields["likes"], genres)
        dislikes = genre_matrix(fields["dislikes"], genres)
        low, high = _band(fields["leniency"])
        draw = low + (high - low) * uniform(self.seed, hash_ids(personas["persona_id"]))
        marks = self._marks(fields, likes, dislikes)
        by_marks = fields["manner"].is_in(["polar", "uniform"]).fill_null(value=False).to_numpy()
        human = is_human(personas)
        steps = len(self.leniency_quantiles) - 1
        leniency = np.interp(draw * steps, np.arange(steps + 1), self.leniency_quantiles)
        # No draws for people: tastes beyond their ratings are unknown.
        leniency[by_marks | human] = 0.0
        stated, unknown = self._stated(
            personas["persona_id"], likes, dislikes, by_marks | human, _band(fields["manner"])
        )
        profiles = Profiles(
            leniency=leniency,
            likes=likes,
            dislikes=dislikes,
            vectors=vector_matrix(personas["persona_id"], self.persona_vectors, "persona_id"),
            tastes=np.zeros((personas.height, self.catalogue.taste.shape[1])),
            variance=np.where(human, self.tastes.taste_variance, unknown),
            marks=marks,
            stated=stated,
        )
        if histories is None or not histories.height:
            return profiles
        return self._moved(profiles, personas, histories, human)

    def _stated(
        self,
        ids: pl.Series,
        likes: Singles,
        dislikes: Singles,
        fixed: npt.NDArray[np.bool_],
        widths: tuple[Floats, Floats],
    ) -> tuple[PersonaTastes, Floats]:
        """Tastes given stated genres, and what these leave unknown (n,); `fixed` are not drawn."""
        tastes = self.conditioner.of_personas(
            likes.astype(np.float64),
            dislikes.astype(np.float64),
            hash_ids(ids),
            self.seed,
            width_spread=self.width_spread,
            extremes_spread=self.extremes_spread,
            widths=widths,
        )
        undrawn = fixed | (self.taste != "drawn")
        adjusted = replace(
            tastes,
            drawn=np.where(undrawn[:, None], 0.0, tastes.drawn),
            variance=np.where(undrawn, 0.0, tastes.variance),
            width=np.where(undrawn, 1.0, tastes.width),
            extremes=np.where(undrawn[:, None], 0.0, tastes.extremes),
            level=np.where(fixed, 1.0, self.width_level),
        )
        return adjusted, tastes.variance

    def _marks(self, fields: pl.DataFrame, likes: Singles, dislikes: Singles) -> StatedMarks | None:
        """Manners `polar` and `uniform` as shifts of the location; None without any."""
        manner = fields["manner"].fill_null("").to_numpy()
        polar, uniform_ = manner == "polar", manner == "uniform"
        if not (polar | uniform_).any():
            return None
        best, bad = self._shift(2), self._shift(-1)
        shifts = np.zeros((len(manner), 4))
        some = likes.any(axis=1)
        shifts[polar, 0], shifts[polar, 1] = best, bad
        shifts[polar & some, 2] = bad
        tone = fields["leniency"].fill_null("").to_numpy()
        shifts[uniform_ & (tone == "generous"), 3] = best
        shifts[uniform_ & (tone == "harsh"), 3] = self._shift(-2)
        praised, panned = likes * polar[:, None], dislikes * polar[:, None]
        return StatedMarks(praised.astype(np.float32), panned.astype(np.float32), shifts)

    def _shift(self, level: int) -> float:
        """Shift of an average item's rating into the band of a statement, in logits."""
        if not level:
            return 0.0
        answers = self.scale.answers
        share = (answers - self.scale.low) / (self.scale.high - self.scale.low)
        edge = BEST if abs(level) == 2 else GOOD
        odds = float(np.log(KEPT / (1 - KEPT)))
        if level > 0:
            first = int(np.argmax(share >= edge - 1e-9))
            return float(self.model.cutpoints[first - 1]) + odds
        last = int(np.flatnonzero(share <= 1 - edge + 1e-9)[-1])
        return float(self.model.cutpoints[last]) - odds

    def _moved(
        self,
        profiles: Profiles,
        personas: pl.DataFrame,
        histories: pl.DataFrame,
        human: npt.NDArray[np.bool_],
    ) -> Profiles:
        """Profiles after the ratings of a history.

        The prior of a persona is conditioned on its statements.
        """
        beyond = ~self.scale.covers(histories["rating"].to_numpy())
        if beyond.any():
            raise ContractError(
                f"{int(beyond.sum())} ratings of a history are not on the scale",
                where=self.scale.name,
                details={"rows": histories.filter(beyond).head(10).to_dicts()},
            )
        place = pl.DataFrame({"persona_id": personas["persona_id"]}).with_row_index("person")
        placed = histories.select("persona_id", "item_id", "rating").join(
            place, on="persona_id", how="inner", maintain_order="left"
        )
        if not placed.height:
            return profiles
        person = placed["person"].cast(pl.Int64).to_numpy()
        index = self.catalogue.index
        item = np.array([index.get(i, -1) for i in placed["item_id"]], dtype=np.int64)
        # An item without a place is an average one, the last row here.
        catalogue = self.catalogue.with_average()
        item = np.where(item >= 0, item, len(catalogue.quality) - 1)
        # The expectation before was that of the text and the fields, in rating units.
        parts = pair_features(profiles, catalogue, np.stack([person, item], axis=1))
        expected = (parts * self._weights).sum(axis=1) / max(float(self._weights[0]), 0.1)
        stars = rescale(placed["rating"].to_numpy(), self.scale, self.source)
        surplus = np.asarray(stars - self.quality.mean - expected)
        stated = np.minimum(profiles.likes + profiles.dislikes, 1.0).astype(np.float64)
        tastes, variance = np.zeros_like(profiles.tastes), profiles.variance
        for who, prior, given in (
            (human, self.tastes, None),
            (~human, self.persona_prior, (self.conditioner.observed, stated)),
        ):
            selected = who[person]
            if selected.any():
                rows = (person[selected], item[selected], surplus[selected])
                learned = prior.posterior(catalogue.taste, personas.height, *rows, given)
                tastes += learned.mean
                rated = np.isin(np.arange(personas.height), rows[0])
                variance = np.where(rated, np.minimum(learned.variance, variance), variance)
        leniency = profiles.leniency + tastes[:, 0]
        tastes[:, 0] = 0.0
        return replace(profiles, leniency=leniency, tastes=tastes, variance=variance)


def is_human(personas: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Rows of people of the data set, as booleans of shape (n,)."""
    if "origin" not in personas.columns:
        return np.zeros(personas.height, dtype=np.bool_)
    return (personas["origin"] == HUMAN).fill_null(value=False).to_numpy()


def width_of(variance: Floats, tastes: TasteModel, usual: float) -> Floats:
    """Widths of the distributions of those of whom this much is not known, beside the usual."""
    return np.asarray(np.sqrt((tastes.noise + variance) / (tastes.noise + usual)))


def _band(values: pl.Series) -> tuple[Floats, Floats]:
    """Shares of people between which each persona's draw lies, each of shape (n,)."""
    bands = [BANDS.get(v or "", (0.0, 1.0)) for v in values]
    ends = np.array(bands, dtype=np.float64).reshape(len(bands), 2)
    return ends[:, 0], ends[:, 1]


_LENIENCY, _HISTORY = EFFECTS.index("leniency"), EFFECTS.index("history")
#: Persona-item values that are kept as a table (count, 8 bytes each); more are computed when
#: they are asked for.
_TABLE = 16_000_000


class LiveStatistical(BoundRater):
    """The distributions of :meth:`StatisticalRater.rate` from arrays, without frames.

    The posterior of taste given k past ratings (`TasteModel`) is computed in its dual form: with
    whitened item features Z (Z·Zᵀ is the prior covariance of two items' surpluses) and past
    surpluses y, the weights are Zₖᵀ·(Zₖ·Zₖᵀ + σ²·1)⁻¹·y, so that a memory of k items costs a k by k
    solve per row, all rows at once; where k exceeds the number of features, the primal form is the
    smaller one. Each row's result is the same to the last bit whatever stands in the other rows.
    """

    def __init__(
        self, rater: StatisticalRater, personas: pl.DataFrame, items: pl.DataFrame
    ) -> None:
        super().__init__(rater, personas, items)
        self.note = (
            "The rater is statistical: a model fitted on human ratings; no language model was used."
        )
        self._fitted = rater
        catalogue, rows = rater._place(items)
        self._known = rows < len(rater.catalogue.index)
        self._every_known = bool(self._known.all())
        self._profiles = rater._profiles(personas, None)
        self._catalogue, self._rows = catalogue, rows
        self._weights = rater._weights
        self._per_star = max(float(self._weights[0]), 0.1)
        self._static = _Static(self._profiles, catalogue, rows, self._weights)
        model = rater.tastes if is_human(personas).all() else rater.persona_prior
        # Σ = L·Lᵀ; a flat direction of Σ is one that ratings can't tell about: no jitter needed
        # beyond rounding.
        lower = np.linalg.cholesky(
            model.covariance + 1e-12 * np.trace(model.covariance) * np.eye(len(model.covariance))
        )
        white = catalogue.taste[rows] @ lower
        inner = lower.T @ model.typical @ lower
        self._items_white = white
        # An item that was not there at fitting is an average one as far as memories go, and the
        # last row, where the number -1 leads, is nothing: it teaches nothing.
        average = np.zeros(catalogue.taste.shape[1])
        average[0] = 1.0
        taught = np.where(self._known[:, None], white, average @ lower)
        # A statement on a genre is one more observation, with a rating's noise, that says what
        # was expected: it narrows the prior.
        observed = np.sqrt(model.noise) * rater.conditioner.observed @ lower
        self._white = np.vstack([taught, observed, np.zeros(white.shape[1])])
        stated = (self._profiles.likes + self._profiles.dislikes) > 0
        most = int(stated.sum(axis=1).max(initial=0))
        order = np.argsort(~stated, axis=1, kind="stable")[:, :most]
        listed = np.take_along_axis(stated, order, axis=1)
        self._stated = np.where(listed, len(rows) + order, -1)
        self._whitened_typical = np.ascontiguousarray(self._white @ inner)
        self._inner = inner
        self._lower00 = float(lower[0, 0])
        self._prior = float((model.covariance * model.typical).sum())
        self._most = self._profiles.variance
        self._unread = rater._widths(self._profiles)
        persona = self._profiles.persona
        self._extremes, self._level = persona.extremes, persona.level
        self._drawn = persona.variance > 0
        self._all_drawn = bool(self._drawn.all())

    def rate(
        self,
        personas: Ints,
        items: Ints,
        past: Ints,
        ratings: Floats,
        met: Ints | None = None,  # noqa: ARG002 (base)
    ) -> RatingBatch:
        """Rate one pair per row; see :class:`pipelines.raters.BoundRater`.

        ContractError if a past rating is off the scale.
        """
        static = self._static.of(personas, items)
        # Without memories, the result is the same from what follows, to the last bit.
        if not past.size or int(past.max()) < 0:
            return self._batch(personas, static, self._unread[personas])
        taste, variance = self.beliefs(personas, past, ratings)
        location = static + self._moved(taste, items)
        return self._batch(personas, location, self._widths(personas, variance))

    def sweep(self, persona: int, past: Ints, ratings: Floats) -> Floats:
        """Expected rating of every item for one persona with one memory of shape (k,)."""
        everything = np.arange(len(self._rows), dtype=np.int64)
        again = np.full(len(everything), persona)
        static = self._static.of(again, everything)
        if not len(past):
            return self._batch(again, static, self._unread[again]).expected
        taste, variance = self.beliefs(again[:1], past[None], ratings[None])
        moved = self._moved(np.broadcast_to(taste, (len(everything), taste.shape[1])), everything)
        width = self._widths(again[:1], variance)
        return self._batch(again, static + moved, np.repeat(width, len(everything))).expected

    def explain(self, persona: int, item: int, past: Ints, ratings: Floats) -> dict[str, float]:
        """Effects on the expected rating of one pair, by name, in units of the scale."""
        who, taste, width = np.array([persona]), None, self._unread[[persona]]
        if len(past):
            taste, variance = self.beliefs(who, past[None], ratings[None])
            width = self._widths(who, variance)
        parts = self._parts(who, np.array([item]), taste)[0]
        # Row 0 is the whole, the others are without one effect each.
        location = parts.sum() - np.concatenate([[0.0], parts])
        again = np.full(len(location), persona)
        expected = self._batch(again, location, np.repeat(width, len(location))).expected
        return {e: float(expected[0] - expected[n + 1]) for n, e in enumerate(EFFECTS)}

    def _parts(self, personas: Ints, items: Ints, taste: Floats | None) -> Floats:
        """Parts of the location of each pair after beliefs, of shape (n, effects)."""
        pairs = np.stack([personas, self._rows[items]], axis=1)
        parts = pair_features(self._profiles, self._catalogue, pairs) * self._weights
        if taste is not None:
            moved = self._moved_by(taste, items)
            parts[:, _LENIENCY] += moved[0]
            parts[:, _HISTORY] += moved[1]
        return np.asarray(parts, np.float64)

    def settle(
        self, memories: Sequence[tuple[Ints, Floats]], personas: Ints | None = None
    ) -> Settled:
        """The rater with memories that no longer change.

        ``memories`` are item numbers, oldest first, and ratings on `scale`; ``personas`` those of
        the memories (default every persona once, in their order). Raises ContractError if a rating
        is off the scale, or there is not one memory per persona.
        """
        who = np.arange(len(self._unread)) if personas is None else personas
        if len(memories) != len(who):
            raise ContractError(
                f"{len(memories)} memories for {len(who)} personas", where=self.name
            )
        taste = np.zeros((len(memories), self._items_white.shape[1]))
        widths = self._unread[who]
        # Singly: padding to the longest would make a row depend on the others.
        for n, (past, ratings) in enumerate(memories):
            if len(past):
                persona = who[n : n + 1]
                learned, variance = self.beliefs(persona, past[None], ratings[None])
                taste[n], widths[n] = learned[0], self._widths(persona, variance)[0]
        return Settled(self, taste, widths, who)

    def beliefs(self, personas: Ints, past: Ints, ratings: Floats) -> tuple[Floats, Floats]:
        """Posterior of taste after memories (as of :meth:`rate`, with at least one column).

        Returns weights over whitened features, of shape (n, features), the first of which carries
        leniency; and the variance of the surplus over a typical item in squared rating units, of
        shape (n,); where every persona's taste is drawn and known, what was unknown before the
        draw.
        """
        present = past >= 0
        if not (self.scale.covers(ratings) | ~present).all():
            raise ContractError("a past rating is not on the scale", where=self.scale.name)
        rater, noise = self._fitted, self._fitted.tastes.noise
        stars = rescale(ratings, self.scale, rater.source)
        placed = None if self._every_known else self._known
        expected = self._static.past(personas, past, placed) / self._per_star
        surplus = np.where(present, stars - rater.quality.mean - expected, 0.0)
        observed = np.concatenate([past, self._stated[personas]], axis=1)
        surplus = np.concatenate([surplus, np.zeros((len(past), self._stated.shape[1]))], axis=1)
        # Wrapping leads -1 to the last row, which is nothing.
        white = self._white.take(observed, axis=0, mode="wrap")
        most = self._most[personas]
        if observed.shape[1] <= white.shape[2]:
            turned = white.transpose(0, 2, 1)
            gram = np.matmul(white, turned)
            # A view of the diagonals.
            np.einsum("nii->ni", gram)[...] += noise
            if self._all_drawn:  # no width depends on what is left unknown
                solved = np.linalg.solve(gram, surplus[:, :, None])
                return np.matmul(turned, solved)[:, :, 0], most
            # As well-conditioned as the noise is large, and the inverse serves twice.
            inverse = np.linalg.inv(gram)
            taste = np.matmul(turned, np.matmul(inverse, surplus[:, :, None]))[:, :, 0]
            reading = self._whitened_typical.take(observed, axis=0, mode="wrap")
            read = np.matmul(reading, turned)
            shape = (len(past), -1)
            variance = self._prior - np.vecdot(inverse.reshape(shape), read.reshape(shape))
        else:
            gram = np.matmul(white.transpose(0, 2, 1), white) / noise
            np.einsum("nii->ni", gram)[...] += 1.0
            moment = np.matmul(white.transpose(0, 2, 1), surplus[:, :, None]) / noise
            inner = np.broadcast_to(self._inner, gram.shape)
            solved = np.linalg.solve(gram, np.concatenate([moment, inner], axis=2))
            taste = np.ascontiguousarray(solved[:, :, 0])
            variance = np.einsum("nii->n", solved[:, :, 1:])
        return taste, np.where(present.any(axis=1), np.minimum(variance, most), most)

    def _moved(self, taste: Floats, items: Ints) -> Floats:
        """Addition of beliefs to locations, of shape (n,)."""
        leniency, history = self._moved_by(taste, items)
        return leniency + history

    def _moved_by(self, taste: Floats, items: Ints) -> tuple[Floats, Floats]:
        """The addition's parts: leniency by its weight, the rest by history's."""
        leniency = self._lower00 * taste[:, 0]
        surplus = np.vecdot(self._items_white[items], np.ascontiguousarray(taste))
        return self._weights[_LENIENCY] * leniency, self._weights[_HISTORY] * (surplus - leniency)

    def _widths(self, personas: Ints, variance: Floats) -> Floats:
        # A drawn taste is known: ratings leave no less unknown.
        width = width_of(variance, self._fitted.tastes, self._fitted.usual_variance)
        width *= self._level[personas]
        return np.asarray(np.where(self._drawn[personas], self._unread[personas], width))

    def _batch(self, personas: Ints, location: Floats, width: Floats) -> RatingBatch:
        probabilities = self._fitted.distributions(location, width, self._extremes[personas])
        return RatingBatch(self.scale, probabilities, [OK] * len(location))


@dataclass(frozen=True)
class Settled:
    """Ratings with memories that no longer change; made by `LiveStatistical.settle`.

    A row's result is the same to the last bit whatever stands in the other rows. Pairs name a
    memory by its number, which is the persona's own where every persona has one.
    """

    #: The bound rater.
    rater: LiveStatistical
    #: Features and widths that memories teach, of shape (personas, features) and (personas,).
    taste: Floats
    widths: Floats
    personas: Ints

    def rate(self, memories: Ints, items: Ints) -> RatingBatch:
        """Rate one pair of a memory and an item per row."""
        live, personas = self.rater, self.personas[memories]
        location = live._static.of(personas, items) + live._moved(self.taste[memories], items)
        return live._batch(personas, location, self.widths[memories])

    def effects(self, memories: Ints, items: Ints) -> Floats:
        """Parts of the location of each pair, in logits, of shape (n, effects).

        In the order of `EFFECTS`. The expected rating grows with the location, so that the
        largest part is the effect without which it would be lowest, and the smallest the one
        without which it would be highest.
        """
        return self.rater._parts(self.personas[memories], items, self.taste[memories])


class _Static:
    """The prior of a pair before any rating: a table if it is small, else on demand."""

    def __init__(
        self, profiles: Profiles, catalogue: Catalogue, rows: Ints, weights: Floats
    ) -> None:
        self._profiles, self._catalogue, self._rows = profiles, catalogue, rows
        self._weights = weights
        self._lenient = profiles.leniency * weights[_LENIENCY]
        self._quality = catalogue.quality[rows] * weights[0]
        self._blank = self._of_nothing()
        self._word = weights[EFFECTS.index("word")]
        self._felt = profiles.persona.mean_and_draw * weights[EFFECTS.index("taste")]
        self._columns = catalogue.taste[rows]
        self._shares = catalogue.shares[rows].astype(np.float64)
        self._textual = bool(profiles.vectors.shape[1] and catalogue.vectors.shape[1])
        if self._textual:
            self._mean, spread = profiles.standard(catalogue)
            self._told = spread > 1e-6
            self._spread = np.where(self._told, spread, 1.0)
            self._vectors = catalogue.vectors[rows]
            self._embedded = catalogue.embedded[rows]
        self._table: Floats | None = None
        if len(self._lenient) * len(rows) <= _TABLE:
            self._table = self._whole()

    def _of_nothing(self) -> Floats:
        """Locations of an item of which nothing is known, of shape (personas,)."""
        none = self._catalogue.with_average()
        people = np.arange(len(self._lenient))
        pairs = np.stack([people, np.full(len(people), len(none.quality) - 1)], axis=1)
        features = pair_features(self._profiles, none, pairs)
        return np.asarray((features * self._weights).sum(axis=1), np.float64)

    def _whole(self) -> Floats:
        people = np.arange(len(self._lenient))
        things = np.arange(len(self._rows))
        out = np.empty((len(people), len(things)))
        for start in range(0, len(people), 64):
            part = people[start : start + 64]
            pairs = np.stack([np.repeat(part, len(things)), np.tile(self._rows, len(part))], axis=1)
            features = pair_features(self._profiles, self._catalogue, pairs)
            out[part] = (features * self._weights).sum(axis=1).reshape(len(part), -1)
        return out

    def of(self, personas: Ints, items: Ints) -> Floats:
        """Locations of pairs; the two broadcast against each other."""
        if self._table is not None:
            return self._table[personas, items]
        out = self._quality[items] + self._lenient[personas]
        shares = self._shares[items]
        out = out + np.vecdot(self._felt[personas], self._columns[items])
        if self._profiles.marks is not None:
            marks = self._profiles.marks
            praised = np.vecdot(marks.praised[personas], shares)
            panned = np.vecdot(marks.panned[personas], shares)
            out = out + self._word * marks.of(personas, praised, panned)
        if self._textual:
            cosine = np.vecdot(self._profiles.vectors[personas], self._vectors[items])
            standard = np.clip((cosine - self._mean[personas]) / self._spread[personas], -4.0, 4.0)
            comparable = self._told[personas] & self._embedded[items]
            out = out + self._weights[4] * np.where(comparable, standard, 0.0)
        return np.asarray(out, np.float64)

    def past(self, personas: Ints, past: Ints, placed: np.ndarray | None) -> Floats:
        """Locations of remembered pairs (n, k); what stands where there is none is arbitrary.

        `placed` is a mask of the items that were there at fitting; None: all of them.
        """
        out = self.of(personas[:, None], past)
        if placed is None:
            return out
        return np.where(placed[past], out, self._blank[personas][:, None])
