"""Estimate of what a run asks of a language model: requests, tokens, time and price, before it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pipelines.config import Settings
from pipelines.domains import cohort_domain
from pipelines.llm.engines import Request
from pipelines.stages._stage import Stage
from pipelines.store import Store

if TYPE_CHECKING:
    from pipelines.llm.engines.scripted import ScriptedEngine

#: Characters of a prompt per token, as of English text in current vocabularies.
_CHARACTERS = 4
#: Assumed speed of a server: seconds until an answer begins, tokens a second of one answer.
_SECONDS, _PER_SECOND = 0.5, 50
#: Tokens of a written reply, as a share of the longest that its grammar allows, and of an
#: explanation of a rating.
_REPLY, _EXPLANATION = 0.25, 60
#: Personas and items whose prompts are built to be counted.
_PERSONAS, _ITEMS = 4, 25


@dataclass(frozen=True)
class Expected:
    """Expected requests for one table; stored answers that are reused are not subtracted."""

    #: Table that the answers go into.
    table: str
    #: Requests, prompt tokens and completion tokens of all of them (counts).
    requests: int
    prompt_tokens: int
    completion_tokens: int
    #: Time with ``serving.concurrency`` requests at once (s), and price in the currency of
    #: ``serving.input_price``; None without prices.
    seconds: float
    price: float | None

    def as_json(self) -> dict[str, Any]:
        """The estimate as plain values."""
        return asdict(self)


def expect_calls(
    stages: Iterable[Stage], store: Store, settings: Settings, cohort: str | None
) -> list[Expected]:
    """Estimate the calls of a model that the stages make for a cohort, by table.

    Prompts of a few generated personas, about films of the packaged release, are built and counted
    at four characters a token. Personas count one text each, although rejected ones are drawn
    again. Matching and captions are not estimated. Empty if no model is asked.
    """
    expected = []
    for stage in stages:
        table = stage.datasets[0]
        if stage.left_out is not None and stage.left_out(settings, cohort) is not None:
            continue
        uses_model = stage.asks is not None and any(stage.asks(settings, cohort))
        if uses_model and table.endswith(".personas"):
            expected.append(_written(table, settings, str(cohort)))
        elif uses_model and table.endswith(".preference_scores"):
            expected += _rated(table, store, settings, stage.domain)
    return expected


def _expected(
    table: str, settings: Settings, requests: int, prompt: float, completion: float
) -> Expected:
    """An estimate from tokens per request."""
    serving = settings.serving
    prompts, completions = round(requests * prompt), round(requests * completion)
    prices = (serving.input_price, serving.output_price)
    price = (prompts * prices[0] + completions * prices[1]) / 1e6 if any(prices) else None
    seconds = requests * (_SECONDS + completion / _PER_SECOND) / min(serving.concurrency, requests)
    return Expected(table, requests, prompts, completions, seconds, price)


def _tokens(requests: Iterable[Request]) -> float:
    """Mean prompt tokens of requests."""
    sizes = [sum(len(m.content) for m in request.messages) for request in requests]
    return sum(sizes) / len(sizes) / _CHARACTERS


def _written(table: str, settings: Settings, cohort: str) -> Expected:
    """Texts that a model writes for a generated cohort."""
    import numpy as np

    from pipelines.personas import ModelWriter, load_lists, sample_attributes

    chosen = settings.personas
    lists = load_lists(cohort_domain(cohort, chosen.domain))
    people = sample_attributes(chosen.seed, cohort, np.arange(_PERSONAS), lists)
    requests = list(ModelWriter(_engine(), chosen).requests(people))
    longest = max(request.sampling.max_tokens for request in requests)
    completion = chosen.max_tokens or _REPLY * longest
    return _expected(table, settings, chosen.count, _tokens(requests), completion)


def _pairs(store: Store, settings: Settings, domain: str) -> int:
    """Planned pairs (count); at most as many where the items are not in the store yet."""
    from pipelines.raters import pairs_each

    scoring, personas = settings.scoring_of(domain), settings.personas.count
    items = scoring.max_pairs
    if store.has(f"{domain}.items"):
        items = store.current(f"{domain}.items").rows
    elif domain == "movies" and settings.world.source == "sample":
        items = settings.world.sample.films
    return max(1, personas * pairs_each(personas, items, scoring))


def _rated(table: str, store: Store, settings: Settings, domain: str) -> list[Expected]:
    """Ratings of planned pairs and of people's held-out ratings, and explanations of the former."""
    from pipelines.packaged import SAMPLE_HOME
    from pipelines.raters import open_rater

    sample = Store(SAMPLE_HOME).release("movies")
    items, people = (sample.snapshot(name).read() for name in ("items", "personas"))
    llm = settings.model_copy(
        update={
            "scoring": settings.scoring.model_copy(
                update={"rater": "llm", "calibration": "none", "ensemble": ()}
            )
        }
    )
    rater: Any = open_rater(llm, items=items, engine=_engine())
    prompt = _tokens(rater.requests(people.head(_PERSONAS), items.head(_ITEMS)))
    scoring, draws = settings.scoring_of(domain), max(1, settings.engine.draws)
    pairs = _pairs(store, settings, domain)
    out = [_expected(table, settings, pairs, prompt * draws, draws)]
    if domain == "movies":
        report = f"{domain}.rater_report"
        out.append(_expected(report, settings, scoring.judged, prompt * draws, draws))
    if scoring.explain:
        explained = max(1, round(pairs * scoring.explained))
        out.append(_expected(table, settings, explained, prompt, _EXPLANATION))
    return out


def _engine() -> ScriptedEngine:
    from pipelines.llm.engines.scripted import ScriptedEngine

    return ScriptedEngine()
