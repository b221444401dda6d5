"""The rater that needs no language model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import ContractError
from pipelines.personas import read_fields
from pipelines.raters.protocol import OK, BoundRater, Floats, Ints, RatingBatch, TableRater
from pipelines.raters.statistical._drawn import Conditioner, PersonaTastes, StatementModel
from pipelines.raters.statistical._ordinal import OrdinalModel, tilt
from pipelines.raters.statistical._people import (
    GENRE_STRENGTH,
    GENRE_THRESHOLD,
    HumanRows,
    collect_rows,
    genre_surplus,
)
from pipelines.raters.statistical._profiles import (
    EFFECTS,
    Catalogue,
    Profiles,
    Singles,
    StatedMarks,
    genre_matrix,
    pair_features,
    vector_matrix,
)
from pipelines.raters.statistical._quality import VOTES_HALF, QualityModel, item_table
from pipelines.raters.statistical._tastes import COMPONENTS, TasteModel
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
        from pipelines.raters.statistical._live import LiveStatistical

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
        stated = self._profiles(personas, None).stated
        assert stated is not None
        return stated.liked + stated.disliked + stated.drawn

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

    def genre_affinity(
        self,
        interactions: pl.DataFrame | pl.LazyFrame,
        splits: pl.DataFrame | pl.LazyFrame,
        users: list[str],
    ) -> Floats:
        """Shrunken mean surplus of users' training ratings by genre, of shape (users, genres)."""
        rows = self.training_rows(interactions, splits, users=users)
        surplus = rows.rating - self.quality.mean - self.catalogue.quality[rows.item]
        observations = (self.catalogue.taste, len(rows.users), rows.user, rows.item, surplus)
        leniency = self.tastes.posterior(*observations).mean[:, 0]
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
        return parts, (self._widths(profiles)[person], self._extremes(profiles)[person])

    def _extremes(self, profiles: Profiles) -> Floats:
        """Log odds of the scale's ends of each profile, and their variance, of shape (n, 2)."""
        stated = profiles.stated
        return np.zeros((len(profiles.leniency), 2)) if stated is None else stated.extremes

    def _widths(self, profiles: Profiles) -> Floats:
        """Width of each profile's distributions, of shape (n,)."""
        stated = profiles.stated
        if stated is None:
            return width_of(profiles.variance, self.tastes, self.usual_variance)
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
        catalogue = self.catalogue.joined(
            np.zeros((1, len(self.catalogue.genres)), dtype=np.float32),
            np.zeros((1, self.catalogue.features.shape[1])),
            np.zeros(1),
        )
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
