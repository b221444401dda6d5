"""Answers that are distributions: how the model's probabilities are read from the server."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipelines.errors import AnswerError
from pipelines.llm.engines._protocol import Answer, Choice, Request, Sampling
from pipelines.llm.engines.choices import OptionTree, check_logprobs
from pipelines.llm.engines.openai._budget import Usage
from pipelines.llm.engines.openai._capabilities import Reading
from pipelines.llm.engines.openai._client import SERVED_BY, Client, Cost, One, together
from pipelines.llm.engines.openai._encodings import neutral, sampling_fields
from pipelines.llm.engines.openai._http import Failure
from pipelines.llm.engines.openai._replies import FLOOR, Place
from pipelines.llm.engines.openai._texts import Row, drawn_seed, failed_answer, write

__all__ = ["UNSEEN", "read_choices"]

#: Most tokens that a server gives the log-probabilities of in one request (vLLM's limit).
MAX_IDS = 128
#: Most prompts in one request.
MAX_PROMPTS = 128
#: Largest share of the options' probability that a list of ranks may leave open: an option below
#: the last rank then counts as 0; with more the answer is not used.
UNSEEN = 0.01

#: At temperature 1, so that a server that shows what it samples from shows the model's own. The
#: token that is drawn is not used and gets no seed: vLLM on a CPU dies of a seed in a prompt
#: that it computes in parts.
_ONE = Sampling(temperature=1.0, max_tokens=1)
_Node = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class _Reading:
    """Log-probabilities of the options' tokens, and the share that the server left open."""

    nodes: list[_Node]
    unseen: float
    cost: Cost


_Found = _Reading | Failure


async def read_choices(client: Client, rows: Sequence[Row], extra: dict[str, Any]) -> list[Answer]:
    """One answer per row; rows have the same options and are all with token ids, or all without.

    Parameters
    ----------
    client
        The server; its capabilities say how a choice is read.
    rows
        At least one.
    extra
        Fields that tell the server the options; used where answers are drawn.
    """
    reading = client.capabilities.reading
    if reading == "none":
        detail = (
            "the server shows no probabilities: set engine.draws to estimate them from answers "
            "drawn, or use a server that does"
        )
        return [Answer(row.request, "invalid", detail=detail) for row in rows]
    if reading == "draws":
        return await together([_estimate(client, row, extra) for row in rows])
    if rows[0].ids is None:
        return await together([_chat(client, row) for row in rows])
    return await _by_tokens(client, rows, reading)


async def _by_tokens(client: Client, rows: Sequence[Row], reading: Reading) -> list[Answer]:
    assert client.capabilities.tokens is not None
    options = _options(rows[0].request)
    spelled = await client.capabilities.tokens.spell(options)
    if isinstance(spelled, Failure):
        return [failed_answer(row.request, spelled) for row in rows]
    try:
        tree = OptionTree.of(spelled)
    except ValueError as error:
        detail = f"the model's tokenizer can't tell the options apart: {error}"
        return [Answer(row.request, "invalid", detail=detail) for row in rows]
    found = await _READERS[reading](client, rows, tree)
    again = [
        n for n, one in enumerate(found) if not isinstance(one, Failure) and one.unseen > UNSEEN
    ]
    fallback = client.capabilities.fallback
    if again and fallback != "none":
        second = await _READERS[fallback](client, [rows[n] for n in again], tree)
        for n, one in zip(again, second, strict=True):
            found[n] = one
    return [_settled(row.request, one, tree) for row, one in zip(rows, found, strict=True)]


def _settled(request: Request, found: _Found, tree: OptionTree) -> Answer:
    if isinstance(found, Failure):
        return failed_answer(request, found)
    if found.unseen > UNSEEN:
        return _unread(request, _open(found.unseen), found.cost)
    try:
        shares, mass = tree.distribution(found.nodes)
    except AnswerError as error:
        return _unread(request, _impossible(error), found.cost)
    return _chosen(request, [float(s) for s in shares], mass, found.cost)


def _open(unseen: float) -> str:
    return (
        f"the server's list of probable tokens leaves up to {unseen:.0%} of the options' "
        f"probability open (limit {UNSEEN:.0%})"
    )


def _impossible(error: AnswerError) -> str:
    return f"the server's log-probabilities can't be: {error}"


def _unread(request: Request, detail: str, cost: Cost) -> Answer:
    return Answer(request, "invalid", latency=cost.seconds, detail=cost.describe(detail))


def _chosen(
    request: Request, shares: list[float], mass: float | None, cost: Cost, detail: str = ""
) -> Answer:
    return Answer(
        request,
        "ok",
        text=_options(request)[shares.index(max(shares))],
        probabilities=tuple(shares),
        mass=mass,
        finish_reason="stop",
        prompt_tokens=cost.usage.prompt,
        completion_tokens=cost.usage.completion,
        cached_tokens=cost.usage.cached,
        latency=cost.seconds,
        detail=cost.describe(detail),
    )


async def _token_ids(client: Client, rows: Sequence[Row], tree: OptionTree) -> list[_Found]:
    """Ask for the log-probabilities of exactly the options' tokens, at every node."""
    wanted = sorted({t for step in tree.steps for t in step})
    if len(wanted) <= MAX_IDS:
        asked = [(list(range(len(tree.nodes))), wanted)]
    else:
        parts = [(n, step[at : at + MAX_IDS]) for n, step in enumerate(tree.steps)
                 for at in range(0, len(step), MAX_IDS)]  # fmt: skip
        asked = [([n], list(part)) for n, part in parts]
    results = await together(
        [_at_nodes(client, rows, tree, nodes, _exact(ids)) for nodes, ids in asked]
    )
    found: list[_Found] = []
    for n in range(len(rows)):
        merged: list[dict[int, float]] = [{} for _ in tree.nodes]
        cost, fault = Cost(), None
        for (nodes, ids), ones in zip(asked, results, strict=True):
            for node, one in zip(nodes, ones[n], strict=True):
                if isinstance(one, Failure):
                    fault = one
                    break
                place = _first_place(one)
                if isinstance(place, Failure):
                    fault = place
                    break
                merged[node] |= {t: place.ids[t] for t in ids if t in place.ids}
                cost += one.cost
        missing = any(t not in merged[n] for n, step in enumerate(tree.steps) for t in step)
        if fault is None and missing:
            fault = Failure(
                "engine_error", "the server left out probabilities that it was asked for"
            )
        found.append(fault or _Reading([*merged], 0.0, cost))
    return found


def _first_place(one: One) -> Place | Failure:
    """Log-probabilities at the first position of a reply, checked."""
    place = one.reply.places[0] if one.reply.places else Place(None)
    try:
        check_logprobs(place.ids.values())
        check_logprobs(place.texts.values())
    except AnswerError as error:
        return Failure("invalid", one.cost.describe(_impossible(error)))
    return place


def _exact(ids: Sequence[int]) -> dict[str, Any]:
    return {"logprobs": 1, "logprob_token_ids": list(ids), "return_tokens_as_token_ids": True}


async def _ranks(client: Client, rows: Sequence[Row], tree: OptionTree) -> list[_Found]:
    """Look for the options' tokens among the most probable ones, at every node."""
    fields = {"logprobs": client.capabilities.ranks, "return_tokens_as_token_ids": True}
    if client.capabilities.server != "vllm":
        del fields["return_tokens_as_token_ids"]
    results = await _at_nodes(client, rows, tree, list(range(len(tree.nodes))), fields)
    return [_ranked(tree, ones) for ones in results]


def _ranked(tree: OptionTree, ones: Sequence[One | Failure]) -> _Found:
    nodes: list[_Node] = []
    cost = Cost()
    bounds: dict[tuple[int, ...], float] = {(): 0.0}
    unknown = 0.0
    for node, step, one in zip(tree.nodes, tree.steps, ones, strict=True):
        if isinstance(one, Failure):
            return one
        place = _first_place(one)
        if isinstance(place, Failure):
            return place
        below = _below(place.ids.values())
        row = {token: place.ids.get(token, FLOOR) for token in step}
        begins = bounds[node]
        unknown += sum(math.exp(begins) * below for t in step if t not in place.ids)
        for token in step:
            bounds[*node, token] = begins + row[token]
        nodes.append(row)
        cost += one.cost
    _, mass = tree.distribution(nodes)
    return _Reading(nodes, _share(unknown, mass), cost)


def _below(ranked: Any) -> float:
    """The most probability that a token below the last rank can have."""
    values = [math.exp(v) for v in ranked]
    return min(min(values), max(0.0, 1.0 - sum(values))) if values else 1.0


def _share(unknown: float, known: float) -> float:
    return unknown / (unknown + known) if unknown > 0.0 else 0.0


async def _at_nodes(
    client: Client,
    rows: Sequence[Row],
    tree: OptionTree,
    nodes: Sequence[int],
    fields: dict[str, Any],
) -> list[list[One | Failure]]:
    """One reply per row and node, in as few requests as they fit into."""
    body = sampling_fields(_ONE, None, "max_tokens") | neutral(client.capabilities.server) | fields
    prompts = [(*row.ids, *tree.nodes[n]) for row in rows for n in nodes if row.ids is not None]
    flat = await _in_parts(client, prompts, body)
    return [flat[at : at + len(nodes)] for at in range(0, len(flat), len(nodes))]


async def _in_parts(
    client: Client, prompts: Sequence[tuple[int, ...]], body: dict[str, Any]
) -> list[One | Failure]:
    parts = [prompts[at : at + MAX_PROMPTS] for at in range(0, len(prompts), MAX_PROMPTS)]
    results = await together([client.complete(part, body, 1) for part in parts])
    return [one for part in results for one in part]


async def _echo(client: Client, rows: Sequence[Row], tree: OptionTree) -> list[_Found]:
    """Send every option as a part of the prompt and read its tokens' log-probabilities."""
    body = sampling_fields(_ONE, None, "max_tokens") | neutral(client.capabilities.server)
    body |= {"echo": True, "logprobs": 1}
    prompts = [(*row.ids, *option) for row in rows if row.ids for option in tree.options]
    flat = await _in_parts(client, prompts, body)
    step = len(tree.options)
    return [_echoed(row, tree, flat[n * step : (n + 1) * step]) for n, row in enumerate(rows)]


def _echoed(row: Row, tree: OptionTree, ones: Sequence[One | Failure]) -> _Found:
    at = {node: n for n, node in enumerate(tree.nodes)}
    nodes: list[dict[int, float]] = [{} for _ in tree.nodes]
    cost, begin = Cost(), len(row.ids or ())
    for option, one in zip(tree.options, ones, strict=True):
        if isinstance(one, Failure):
            return one
        places = one.reply.places[begin : begin + len(option)]
        values = [place.logprob for place in places]
        if len(values) < len(option) or None in values:
            return Failure("engine_error", "the server did not echo the prompt's probabilities")
        for n, value in enumerate(values):
            assert value is not None
            nodes[at[option[:n]]][option[n]] = value
        cost += one.cost
    return _Reading([*nodes], 0.0, cost)


_READERS = {"token_ids": _token_ids, "ranks": _ranks, "echo": _echo}


async def _chat(client: Client, row: Row) -> Answer:
    """Look for the options' texts among the most probable first tokens of a chat's answer."""
    request = row.request
    fields = sampling_fields(_ONE, None, client.capabilities.limit_field)
    fields |= neutral(client.capabilities.server)
    fields |= {"logprobs": True, "top_logprobs": client.capabilities.ranks}
    one = await client.chat(request.messages, fields, 1)
    if isinstance(one, Failure):
        return failed_answer(request, one)
    if one.reply.refusal:
        detail = one.cost.describe(one.reply.refusal[:120])
        return Answer(request, "refused", detail=detail, latency=one.cost.seconds)
    options = _options(request)
    place = _first_place(one)
    if isinstance(place, Failure):
        return replace(failed_answer(request, place), latency=one.cost.seconds)
    seen = {text: math.exp(value) for text, value in place.texts.items()}
    known = sum(seen.get(option, 0.0) for option in options)
    unknown = sum(_may_be(option, seen) for option in options if option not in seen)
    unseen = _share(unknown, known)
    if unseen > UNSEEN or known <= 0.0:
        return _unread(request, _open(unseen or 1.0), one.cost)
    shares = [seen.get(option, 0.0) / known for option in options]
    return _chosen(request, shares, min(1.0, known), one.cost)


def _may_be(option: str, seen: Mapping[str, float]) -> float:
    """The most probability that an option can have that is no token of the list.

    It may be a token below the last rank, or begin with one of those listed: the "1" of "10".
    """
    begun = sum(chance for text, chance in seen.items() if text and option.startswith(text))
    return begun + _below([math.log(chance) for chance in seen.values() if chance > 0.0])


async def _estimate(client: Client, row: Row, extra: dict[str, Any]) -> Answer:
    """Draw answers and count them."""
    request, draws = row.request, client.capabilities.draws
    options = _options(request)
    longest = max(len(option.encode()) for option in options) + 2
    drawn = [
        replace(
            request,
            constraint=None,
            sampling=Sampling(max_tokens=longest),
            seed=drawn_seed(request.seed, request.replicate) + n,
        )
        for n in range(draws)
    ]
    answers = [
        answer
        for part in await together([write(client, [replace(row, request=r)], extra) for r in drawn])
        for answer in part
    ]
    bad = next((a for a in answers if a.status not in ("ok", "truncated")), None)
    if bad is not None:
        return replace(bad, request=request, text=None)
    cost = Cost(served_by=tuple(sorted({a.detail.removeprefix(SERVED_BY) for a in answers} - {""})))
    for a in answers:
        cost += Cost(Usage(a.prompt_tokens, a.completion_tokens, a.cached_tokens), a.latency)
    counts = [0] * len(options)
    for answer in answers:
        said = _option_of(answer.text or "", options)
        if said is not None:
            counts[said] += 1
    total = sum(counts)
    if total == 0:
        detail = f"none of {draws} answers drawn is one of the options"
        return _unread(request, detail, cost)
    mass = None if extra else total / draws
    detail = f"an estimate: shares among {total} answers drawn"
    return _chosen(request, [c / total for c in counts], mass, cost, detail)


def _option_of(text: str, options: Sequence[str]) -> int | None:
    """The option that a free text begins with; the longest, so that "10" is not "1"."""
    text = text.strip()
    fitting = [n for n, option in enumerate(options) if text.startswith(option.strip())]
    return max(fitting, key=lambda n: len(options[n]), default=None)


def _options(request: Request) -> tuple[str, ...]:
    assert isinstance(request.constraint, Choice)
    return request.constraint.options
