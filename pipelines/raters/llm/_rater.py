"""The rater that asks a language model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl

from pipelines.config import ServingSettings
from pipelines.errors import EngineError
from pipelines.llm.answers import AnswerStore, Tally
from pipelines.llm.engines import Choice, Engine, Request, Sampling
from pipelines.prompts import (
    PUBLIC_MEANS,
    RATING_PROMPT_VERSION,
    Layout,
    PromptStyle,
    Question,
    anchor_items,
    answer_start,
    person_block,
    rating_options,
    rating_prompt_digest,
)
from pipelines.raters.llm._asking import Asker, Catalogue, ModelRater, Others, PairPrompts, Pairs
from pipelines.raters.protocol import OK, BoundRater, Floats, Ints, RatingBatch, all_pairs, layers
from pipelines.raters.statistical.ordinal import OrdinalModel
from pipelines.scales import SCALES, RatingScale, rescale


def item_means(
    items: pl.DataFrame, item_stats: pl.DataFrame | None, source: RatingScale, target: RatingScale
) -> Floats:
    """Mean rating of each item on `target`, NaN where unknown, of shape (items,).

    The ``train_`` columns of `item_stats`, on the scale `source`, come first, the value in the
    item's own row second.
    """
    out = np.full(items.height, np.nan)
    for column, count, scale, _ in reversed(PUBLIC_MEANS):
        if column in items.columns:
            counted = pl.col(count).fill_null(1) > 0 if count in items.columns else pl.lit(True)
            means = items.select(pl.when(counted).then(pl.col(column).cast(pl.Float64)))
            values = means.to_series().to_numpy()
            valid = scale.covers(values)
            out[valid] = rescale(values[valid], scale, target)
    if item_stats is not None:
        rated = item_stats.filter(pl.col("train_ratings") > 0)
        train_means = items.select("item_id").join(
            rated.select("item_id", "train_mean_rating"),
            on="item_id",
            how="left",
            maintain_order="left",
        )
        values = train_means["train_mean_rating"].cast(pl.Float64).to_numpy()
        out = np.where(np.isnan(values), out, rescale(values, source, target))
    return out


#: Width of the distribution (log odds of a rating).
_WIDTH = 0.35
#: How the log odds of a yes become a liking, set by hand on hand-made personas in our own words and
#: the open half of the paraphrases, with Qwen2.5-Coder-1.5B (decision 44): the spread of answers
#: about the anchors at which half of a person's level is taste, the log odds by which a titled item
#: exceeds an anchor, and the weights of taste and level.
_SPREAD, _TITLED, _TASTE, _LEVEL = 0.2, 0.6, 2.0, 6.0
#: Anchors that an item is compared with at most (count).
_COMPARED = 4
_TINY = 1e-9


def llm_name(model: str, question: Question) -> str:
    """Name of the rater that asks a model.

    >>> llm_name("m", "scale"), llm_name("m", "like")
    ('llm:m', 'llm:m:like')
    """
    return f"llm:{model}" if question == "scale" else f"llm:{model}:{question}"


def rating_shares(liking: Floats, scale: RatingScale) -> Floats:
    """Distributions over a scale's answers at log odds of a liking, of shape (pairs, answers).

    Without ratings of the persons nothing is fitted: a cumulative logit model whose cutpoints
    divide the scale evenly, the same for all persons and items.

    >>> rating_shares(np.array([-2.0, 2.0]), SCALES["1-5"]).round(2).argmax(axis=1).tolist()
    [0, 4]
    """
    share = np.arange(1, len(scale)) / len(scale)
    model = OrdinalModel(np.zeros(0), np.log(share) - np.log1p(-share))
    return model.probabilities(liking, np.full(len(liking), _WIDTH))


def yes_liking(odds: Floats, level: Floats, spread: Floats) -> Floats:
    """Log odds of a liking from those of a yes.

    `level` and `spread` are mean and standard deviation of the person's log odds over the anchors.
    Where they differ by anchor, the person has a taste: the distance to their mean counts, in units
    of their spread. Where they are all alike, the person rates all items high or low: their mean
    counts.

    >>> odds, level = np.array([1.0, 0.2, 1.0, -1.0]), np.array([0.0, 0.0, 1.0, -1.0])
    >>> yes_liking(odds, level, np.array([0.5, 0.5, 0.1, 0.1])).round(1).tolist()
    [1.4, -1.4, 2.4, -7.2]
    """
    total = spread**2 + _SPREAD**2
    taste = (odds - level - _TITLED) * spread / total
    return np.asarray(_TASTE * taste + _LEVEL * level * _SPREAD**2 / total)


@dataclass
class _Answers:
    """Answers to pairs: shares of shape (pairs, options), NaN where there is none."""

    shares: Floats
    status: list[str]
    keys: list[str | None]
    notes: list[str | None]

    @classmethod
    def of(cls, pairs: int, options: int) -> _Answers:
        """No answer yet."""
        shares = np.full((pairs, options), np.nan)
        return cls(shares, ["engine_error"] * pairs, [None] * pairs, [None] * pairs)

    def log_odds(self) -> Floats:
        """Log odds of the first option against the second, of shape (pairs,)."""
        logs = np.log(np.maximum(self.shares, _TINY))
        return np.asarray(logs[:, 0] - logs[:, 1])


#: Columns of what :meth:`LLMRater.explain` returns.
EXPLANATIONS = {
    "persona_id": pl.String,
    "item_id": pl.String,
    "rating": pl.Float64,
    "explanation": pl.String,
    "status": pl.String,
    "answer_key": pl.String,
    "note": pl.String,
}


class LLMRater(ModelRater):
    """Reads a persona's rating of an item from a language model's probabilities of the answers.

    Each pair is one prompt (:mod:`pipelines.prompts`) that ends where the rating goes, answered by
    a closed choice over the scale's answers: the model's own distribution at temperature 1, nothing
    generated. Pairs are asked persona by persona, so that engines compute what a persona's prompts
    have in common once. Answers go through the answer store (None: in memory), where a stored one
    costs no call.

    A prompt that is longer than the context loses past ratings, oldest first, then words of the
    plot, with a note of the pair. With the model's tokenizer this is measured before; without it,
    what the engine refuses as too long is asked again, shorter.

    Parameters
    ----------
    shots, system, system_role, layout, question
        See :class:`pipelines.prompts.PromptStyle`. Questions other than `scale` leave examples and
        layout aside.
    history
        Past ratings shown at most, the latest of those given (count).
    catalogue
        Items that histories are of; default: the items that are rated.
    item_stats, source
        Training means shown as average rating, and their scale; default: those in the items' rows.
    tokenizer, chat_template
        The model's, to measure prompts; None where it is out of reach.
    calibration
        Map from the model's distributions to calibrated ones; stored answers stay as given.
    name
        Value of the ``rater`` column; default ``llm:<model>``.

    Examples
    --------
    >>> from pipelines.llm.engines.scripted import ScriptedEngine
    >>> personas = pl.DataFrame({"persona_id": ["persona:a:0"], "description": ["Likes trains."]})
    >>> items = pl.DataFrame({"item_id": ["ml:1"], "title": ["The General"]})
    >>> rater = LLMRater(ScriptedEngine(lambda r: {"5": 0.6, "4": 0.2}), SCALES["1-5"])
    >>> rater.name, rater.rate(personas, items).expected.tolist()
    ('llm:scripted', [4.75])
    """

    uses = ("item_stats", "interactions")

    def __init__(
        self,
        engine: Engine,
        scale: RatingScale,
        *,
        domain: str = "movies",
        store: AnswerStore | None = None,
        serving: ServingSettings | None = None,
        shots: int = 0,
        system: str | None = None,
        system_role: bool = True,
        layout: Layout = "letter",
        question: Question = "scale",
        history: int = 10,
        catalogue: pl.DataFrame | None = None,
        item_stats: pl.DataFrame | None = None,
        source: RatingScale = SCALES["0.5-5"],
        tokenizer: Any = None,
        chat_template: str | None = None,
        calibration: Callable[[Floats], Floats] | None = None,
        name: str | None = None,
    ) -> None:
        facts = engine.metadata()
        self._calibration = calibration
        # A chat endpoint answers in a turn of its own: it can't go on from a begun answer.
        begun = facts.get("endpoint") != "chat"
        if question != "scale":
            # Questions with two answers are a few lines.
            shots, layout = 0, "plain"
        self.scale = scale
        self.style = PromptStyle(domain, scale, shots, system, begun, system_role, layout, question)
        self.tally = Tally()
        self._history = history
        self._item_stats, self._source = item_stats, source
        self._catalogue = None if catalogue is None else self._known(catalogue)
        self.name = name or llm_name(engine.identity.model or engine.identity.engine, question)
        self._asker = Asker(
            engine,
            store,
            serving or ServingSettings(),
            self.tally,
            tokenizer,
            chat_template,
            facts.get("context"),
        )
        self._options = rating_options(scale, begun=begun, question=question)
        longest = facts.get("max_options")
        if longest is not None and len(self._options) > longest:
            raise EngineError(
                f"the engine can't give the probabilities of {len(self._options)} answers: "
                f"{facts.get('distributions')}",
                where=f"{engine.identity.engine}:{engine.identity.model}",
                hint="set engine.draws, such as 16, to estimate them from sampled answers",
            )
        self._cut = 0
        self._mass = (0.0, 0)
        #: Mean and spread of the answers about the anchors, by the text of the person.
        self._levels: dict[str, tuple[float, float]] = {}
        # Several threads may ask one live question each; a tally is one run's.
        self._lock = threading.Lock()

    def rate_pairs(
        self,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        past: pl.DataFrame | None,
        pairs: Ints,
        met: Ints | None = None,
    ) -> RatingBatch:
        """Distributions read from the model.

        `met` counts each pair's earlier meetings, where the past ratings do not hold everything;
        default: those in them.

        Raises
        ------
        EngineError
            If the engine died or failed too often: answers until then are stored, and the same
            call goes on from them.
        ContractError
            If a past rating is off its scale.
        """
        prompts = self._prompts_of(personas, items, past)
        if met is not None:
            keys = map(tuple, pairs.tolist())
            prompts.viewings.update(dict(zip(keys, met.tolist(), strict=True)))
        with self._lock:
            if self.style.question == "scale":
                answers = self._answers(prompts, pairs)
                probabilities = answers.shares
            else:
                liking, answers = self._liking(prompts, personas, pairs)
                probabilities = rating_shares(liking, self.scale)
                for row in np.flatnonzero(np.isnan(liking)):
                    if answers.status[row] == OK:
                        answers.status[row] = "engine_error"
                        answers.notes[row] = "an answer that its liking depends on failed"
        answered = ~np.isnan(probabilities[:, 0])
        if self._calibration is not None and answered.any():
            probabilities[answered] = self._calibration(probabilities[answered])
        return RatingBatch(
            self.scale,
            probabilities,
            answers.status,
            answers.keys,
            answers.notes,
            prompt_version=RATING_PROMPT_VERSION,
        )

    def _answers(self, prompts: PairPrompts, pairs: Pairs) -> _Answers:
        """The model's answer to each pair."""
        answers = _Answers.of(len(pairs), len(self._options))
        for place, key, answer, note in self._asker.rows(
            prompts, pairs, Choice(self._options), Sampling()
        ):
            row = place.row
            self._cut += place.step > 0
            answers.status[row], answers.keys[row], answers.notes[row] = answer.status, key, note
            if answer.status == OK and answer.probabilities is not None:
                shares = np.asarray(answer.probabilities, dtype=np.float64)
                answers.shares[row] = shares / shares.sum()
                if answer.mass is not None:
                    self._mass = (self._mass[0] + answer.mass, self._mass[1] + 1)
        return answers

    def _liking(
        self, prompts: PairPrompts, personas: pl.DataFrame, pairs: Pairs
    ) -> tuple[Floats, _Answers]:
        """Log odds that each pair's item is liked; see :func:`yes_liking`.

        A comparison is with some anchors, which stand first and second in turn: their mean is the
        person's level already.
        """
        if self.style.question == "like":
            answers = self._answers(prompts, pairs)
            level, spread = self._levels_of(personas)[pairs[:, 0]].T
            return yes_liking(answers.log_odds(), level, spread), answers
        total, answers = np.zeros(len(pairs)), _Answers.of(len(pairs), 2)
        anchors = self._anchors[:: len(self._anchors) // _COMPARED or 1][:_COMPARED]
        for number, anchor in enumerate(anchors):
            prompts.against = (anchor, number % 2 == 1)
            answers = self._answers(prompts, pairs)
            total += answers.log_odds() * (-1.0 if number % 2 else 1.0)
        return total / len(anchors), answers

    def _levels_of(self, personas: pl.DataFrame) -> Floats:
        """Mean and standard deviation of the log odds of a yes over the anchors, (personas, 2)."""
        rows = list(personas.iter_rows(named=True))
        texts = [person_block(row, (), self.style) for row in rows]
        first = {text: n for n, text in enumerate(texts) if text not in self._levels}
        if first:
            anchors = pl.DataFrame(self._anchors).with_columns(item_id=pl.lit("anchor"))
            who = personas[list(first.values())]
            pairs = all_pairs(len(first), anchors.height)
            odds = self._answers(self._prompts_of(who, anchors, None), pairs).log_odds()
            for text, persona_odds in zip(first, odds.reshape(len(first), -1), strict=True):
                answered = persona_odds[~np.isnan(persona_odds)]
                if len(answered):
                    self._levels[text] = float(answered.mean()), float(answered.std())
        return np.array([self._levels.get(text, (np.nan, np.nan)) for text in texts]).reshape(-1, 2)

    @property
    def _anchors(self) -> list[dict[str, Any]]:
        return anchor_items(self.style.domain)

    def explain(
        self,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        pairs: Pairs,
        ratings: Floats | Sequence[float],
        histories: pl.DataFrame | None = None,
        *,
        seed: int = 0,
        temperature: float = 0.0,
    ) -> pl.DataFrame:
        """The model's reasons for a persona's rating, in one or two sentences.

        Only this generates text: :meth:`rate` ends with the rating. Replies are bound by a grammar
        and stored. Parameters are those of :meth:`rate`, with the rating of each pair on the
        rater's scale (NaN: no explanation) and seed and temperature of the draw. Returns one row
        per pair, in order, with the columns of :data:`EXPLANATIONS`; `explanation` is null unless
        `status` is ``ok``.
        """
        from pipelines.llm.grammars import prose, vocabulary

        grammar = prose()
        vocab = None if self._asker.tokenizer is None else vocabulary(self._asker.tokenizer)
        grammar.check(vocab)
        sampling = Sampling(temperature=temperature, max_tokens=grammar.longest(vocab))
        ratings = np.asarray(ratings, dtype=np.float64)
        rows: list[tuple[str | None, str, str | None, str | None]]
        rows = [(None, "invalid", None, "there is no rating to explain")] * len(pairs)
        prompts = self._prompts_of(personas, items, histories)
        with self._lock:
            for place, key, answer, note in self._asker.rows(
                prompts, pairs, grammar.constraint, sampling, ratings=ratings, seed=seed
            ):
                text = answer.text if answer.status == OK else None
                if text is not None and grammar.parse(text) is None:
                    text, broken = None, "the reply breaks the grammar"
                    rows[place.row] = (None, "invalid", key, broken)
                    continue
                rows[place.row] = (text, answer.status, key, note)
        texts = pl.DataFrame(
            rows,
            schema={c: EXPLANATIONS[c] for c in ("explanation", "status", "answer_key", "note")},
            orient="row",
        )
        return pl.DataFrame(
            {
                "persona_id": personas["persona_id"].gather(pairs[:, 0].tolist()),
                "item_id": items["item_id"].gather(pairs[:, 1].tolist()),
                "rating": pl.Series(ratings).fill_nan(None),
            }
        ).hstack(texts)

    def metadata(self) -> dict[str, Any]:
        """Model, prompt and calls; nothing is fitted."""
        mean_mass = self._mass[0] / self._mass[1] if self._mass[1] else None
        style = self.style
        begin = answer_start(self.scale, style.layout, style.question) if style.begun else None
        return self.described(
            by_hand={
                "shots": style.shots,
                "system": "default" if style.system is None else "custom",
                "layout": style.layout,
                "history": self._history,
                **({} if style.question == "scale" else {"question": style.question}),
            },
            engine=asdict(self._asker.engine.identity),
            answered_by=self._asker.engine.metadata().get("answered_by", []),
            prompt_version=RATING_PROMPT_VERSION,
            prompt_sha256=rating_prompt_digest(style.layout, style.question),
            answer_start=begin,
            calibrated=self._calibration is not None,
            mean_mass=mean_mass,
            cut_prompts=self._cut,
            calls=self.tally.to_dict(),
        )

    def requests(
        self,
        personas: pl.DataFrame,
        items: pl.DataFrame,
        histories: pl.DataFrame | None = None,
        *,
        pairs: Pairs | None = None,
    ) -> Iterator[Request]:
        """Requests of :meth:`rate` in order, before any is repeated shorter."""
        prompts = self._prompts_of(personas, items, histories)
        chosen = self.pairs_of(personas, items, pairs)
        return self._asker.requests(prompts, chosen, Choice(self._options), Sampling())

    def bind(self, personas: pl.DataFrame, items: pl.DataFrame) -> BoundRater:
        """Its array form: one call per batch."""
        return _BoundLLM(self, personas, items)

    def _prompts_of(
        self, personas: pl.DataFrame, items: pl.DataFrame, histories: pl.DataFrame | None
    ) -> PairPrompts:
        prompts = PairPrompts(
            self.style,
            personas,
            items,
            histories,
            catalogue=self._catalogue or self._known(items),
            means=self._others(items),
            most=self._history,
        )
        if self.style.question == "compare":
            prompts.against = (self._anchors[0], False)
        return prompts

    def _known(self, items: pl.DataFrame) -> Catalogue:
        return Catalogue(items, self._others(items) if self.style.layout == "ledger" else None)

    def _others(self, items: pl.DataFrame) -> Others:
        """Number and mean of other people's ratings per item.

        Layout ``letter`` takes the items' own columns where no statistics are at hand.
        """
        ledger, raters = self.style.layout == "ledger", np.zeros(items.height, np.int64)
        stats = self._item_stats
        if ledger and stats is not None:
            joined = items.select("item_id").join(
                stats.select("item_id", "train_ratings"),
                on="item_id",
                how="left",
                maintain_order="left",
            )
            raters = joined["train_ratings"].fill_null(0).to_numpy()
        shown = items.select("item_id") if ledger else items
        return Others(item_means(shown, stats, self._source, self.scale), raters)


class _BoundLLM(BoundRater):
    """A model over fixed personas and items, asked about all rows of a batch in one call.

    Prompts show no ids: a persona in several rows is a copy under another id in each.
    """

    def __init__(self, rater: LLMRater, personas: pl.DataFrame, items: pl.DataFrame) -> None:
        super().__init__(rater, personas, items)
        self._llm = rater

    def rate(
        self, personas: Ints, items: Ints, past: Ints, ratings: Floats, met: Ints | None = None
    ) -> RatingBatch:
        """Rate one pair per row; see :class:`pipelines.raters.BoundRater`."""
        copy = pl.Series("layer", layers(personas))
        numbered = pl.format("{}#{}", "persona_id", copy)
        who = self._personas[personas.tolist()].with_columns(
            persona_id=pl.when(copy > 0).then(numbered).otherwise("persona_id")
        )
        pairs = np.stack([np.arange(len(personas)), items], axis=1)
        histories = self._histories(who, past, ratings)
        return self._llm.rate_pairs(who, self._items, histories, pairs, met)
