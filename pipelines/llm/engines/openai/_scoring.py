"""Answers that are distributions, from the probabilities that the server shows."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipelines.errors import AnswerError
from pipelines.llm.engines._protocol import Answer, Choice, Request, Sampling
from pipelines.llm.engines.choices import OptionTree, check_logprobs
from pipelines.llm.engines.openai._budget import Usage
from pipelines.llm.engines.openai._capabilities import Capabilities
from pipelines.llm.engines.openai._client import (
    FLOOR,
    SERVED_BY,
    Client,
    Completion,
    Cost,
    Failure,
    gather,
)
from pipelines.llm.engines.openai._encoding import Row, drawn_seed
from pipelines.llm.engines.openai._writing import failed_answer, write
from pipelines.statuses import Status

#: Most tokens that a server gives the log-probabilities of in one request (vLLM's limit).
MAX_IDS = 128
#: Most prompts in one request.
MAX_PROMPTS = 128
#: Largest share of the options' probability that a list of ranks may leave open: an option below
#: the last rank then counts as 0; with more the answer is not used.
MAX_UNSEEN = 0.01

#: First words of the detail of an answer that a list was too short for.
_LISTED = "the server's list of probable tokens"
#: Tokens of a drawn answer beside those of its option: "**8**", "Rating: 8".
_AROUND = 16


@dataclass(frozen=True, slots=True)
class _Scores:
    """Log-probabilities per node of the option tree, and the share that the ranks left open."""

    nodes: list[Mapping[int, float]]
    unseen: float
    cost: Cost


async def score(
    client: Client, capabilities: Capabilities, rows: Sequence[Row], extra: dict[str, Any]
) -> list[Answer]:
    """One answer per row; rows share their options and endpoint.

    ``extra`` holds the fields that encode the options, used where answers are drawn.
    """
    options = _options(rows[0].request)
    if fault := capabilities.choice_fault(len(options)):
        detail = f"{fault}; set engine.draws to estimate it from sampled answers"
        return [Answer(row.request, "invalid", detail=detail) for row in rows]
    by_text = rows[0].ids is None
    short = by_text and len(options) > capabilities.ranks
    if capabilities.reading == "draws" or (capabilities.reading == "ranks" and short):
        return await gather([_estimate(client, capabilities, row, extra) for row in rows])
    if by_text:
        asked = [_score_by_text(client, capabilities, row.request) for row in rows]
        answers = await gather(asked)
    else:
        answers = await _score_by_ids(client, capabilities, rows)
    if not capabilities.draws:
        return answers
    return await gather(
        [
            _estimate(client, capabilities, row, extra, answer)
            for row, answer in zip(rows, answers, strict=True)
        ]
    )


async def _score_by_ids(
    client: Client, capabilities: Capabilities, rows: Sequence[Row]
) -> list[Answer]:
    """Read the options' tokens at the completions endpoint."""
    assert capabilities.tokens is not None
    spelled = await capabilities.tokens.spell(_options(rows[0].request))
    if isinstance(spelled, Failure):
        return [failed_answer(row.request, spelled) for row in rows]
    try:
        tree = OptionTree.of(spelled)
    except ValueError as error:
        detail = f"the model's tokenizer can't tell the options apart: {error}"
        return [Answer(row.request, "invalid", detail=detail) for row in rows]
    read = _read_token_ids if capabilities.reading == "token_ids" else _read_ranks
    found = await read(client, capabilities, rows, tree)
    return [_answer(row.request, one, tree) for row, one in zip(rows, found, strict=True)]


def _answer(request: Request, found: _Scores | Failure, tree: OptionTree) -> Answer:
    if isinstance(found, Failure):
        return failed_answer(request, found)
    if found.unseen > MAX_UNSEEN:
        return _invalid(request, _open(found.unseen), found.cost)
    try:
        shares, mass = tree.distribution(found.nodes)
    except AnswerError as error:
        return _invalid(request, _impossible(error), found.cost)
    return _chosen(request, [float(s) for s in shares], mass, found.cost)


async def _read_token_ids(
    client: Client, capabilities: Capabilities, rows: Sequence[Row], tree: OptionTree
) -> list[_Scores | Failure]:
    """Ask for the log-probabilities of exactly the options' tokens, at every node."""
    wanted = sorted({t for step in tree.steps for t in step})
    parts: list[tuple[Sequence[int], Sequence[int]]] = [(range(len(tree.nodes)), wanted)]
    if len(wanted) > MAX_IDS:
        parts = [
            ([n], step[at : at + MAX_IDS])
            for n, step in enumerate(tree.steps)
            for at in range(0, len(step), MAX_IDS)
        ]
    asked = []
    for nodes, ids in parts:
        fields = {"logprobs": 1, "logprob_token_ids": [*ids], "return_tokens_as_token_ids": True}
        asked.append(_at_nodes(client, capabilities, rows, tree, nodes, fields))
    results = await gather(asked)
    found: list[_Scores | Failure] = []
    for row in range(len(rows)):
        merged: list[dict[int, float]] = [{} for _ in tree.nodes]
        cost, failure = Cost(), None
        for (nodes, ids), ones in zip(parts, results, strict=True):
            for node, one in zip(nodes, map(_checked, ones[row]), strict=True):
                if isinstance(one, Failure):
                    failure = failure or one
                    continue
                merged[node] |= {t: one.ids[t] for t in ids if t in one.ids}
                cost += one.cost
        missing = any(t not in merged[n] for n, step in enumerate(tree.steps) for t in step)
        if missing and failure is None:
            detail = "the server omitted requested probabilities"
            failure = Failure("engine_error", detail)
        found.append(failure or _Scores([*merged], 0.0, cost))
    return found


async def _read_ranks(
    client: Client, capabilities: Capabilities, rows: Sequence[Row], tree: OptionTree
) -> list[_Scores | Failure]:
    """Look for the options' tokens among the most probable ones, at every node."""
    fields: dict[str, Any] = {"logprobs": capabilities.ranks}
    if capabilities.server == "vllm":
        fields["return_tokens_as_token_ids"] = True
    nodes = range(len(tree.nodes))
    results = await _at_nodes(client, capabilities, rows, tree, nodes, fields)
    return [_ranked(tree, [_checked(one) for one in ones]) for ones in results]


def _ranked(tree: OptionTree, ones: Sequence[Completion | Failure]) -> _Scores | Failure:
    nodes: list[Mapping[int, float]] = []
    cost, unknown = Cost(), 0.0
    bounds: dict[tuple[int, ...], float] = {(): 0.0}
    for node, step, one in zip(tree.nodes, tree.steps, ones, strict=True):
        if isinstance(one, Failure):
            return one
        below = _below(one.ids.values())
        row = {token: one.ids.get(token, FLOOR) for token in step}
        unknown += sum(math.exp(bounds[node]) * below for t in step if t not in one.ids)
        bounds |= {(*node, token): bounds[node] + row[token] for token in step}
        nodes.append(row)
        cost += one.cost
    _, mass = tree.distribution(nodes)
    return _Scores(nodes, _share(unknown, mass), cost)


async def _at_nodes(
    client: Client,
    capabilities: Capabilities,
    rows: Sequence[Row],
    tree: OptionTree,
    nodes: Sequence[int],
    fields: dict[str, Any],
) -> list[list[Completion | Failure]]:
    """One completion per row and node, in as few requests as they fit into."""
    # No seed: vLLM on a CPU dies of one in a prompt that it computes in parts.
    body = capabilities.fields(capabilities.first_token, None, "completions")[0] | fields
    prompts = [(*(row.ids or ()), *tree.nodes[n]) for row in rows for n in nodes]
    parts = [prompts[at : at + MAX_PROMPTS] for at in range(0, len(prompts), MAX_PROMPTS)]
    results = await gather([client.complete(part, body, 1) for part in parts])
    flat = [one for part in results for one in part]
    return [flat[at : at + len(nodes)] for at in range(0, len(flat), len(nodes))]


async def _score_by_text(client: Client, capabilities: Capabilities, request: Request) -> Answer:
    """Look for the options' texts among the most probable first tokens of a chat's answer."""
    fields, limit = capabilities.fields(capabilities.first_token, None, "chat")
    fields |= {"logprobs": True, "top_logprobs": capabilities.ranks}
    sent = await client.chat(request.messages, fields, limit)
    if isinstance(sent, Failure):
        return failed_answer(request, sent)
    if sent.refusal:
        return _invalid(request, sent.refusal[:120], sent.cost, refused=True)
    one = _checked(sent)
    if isinstance(one, Failure):
        return replace(failed_answer(request, one), latency=sent.cost.seconds)
    options = _options(request)
    seen: dict[str, float] = {}
    for token, value in one.texts.items():
        # One with a space before it begins the same answer.
        text = token if token in options else token.lstrip()
        seen[text] = seen.get(text, 0.0) + math.exp(value)
    known = sum(seen.get(option, 0.0) for option in options)
    unseen = _share(sum(_may_be(option, seen) for option in options if option not in seen), known)
    if unseen > MAX_UNSEEN or known <= 0.0:
        return _invalid(request, _open(unseen or 1.0), one.cost)
    shares = [seen.get(option, 0.0) / known for option in options]
    return _chosen(request, shares, min(1.0, known), one.cost)


def _may_be(option: str, seen: Mapping[str, float]) -> float:
    """The most probability that an option can have that is no token of the list.

    It may be a token below the last rank, or begin with one of those listed: the "1" of "10".
    """
    begun = sum(chance for text, chance in seen.items() if text and option.startswith(text))
    return begun + _below([math.log(chance) for chance in seen.values() if chance > 0.0])


def _below(ranked: Collection[float]) -> float:
    """The most probability that a token below the last rank can have."""
    values = [math.exp(v) for v in ranked]
    return min(min(values), max(0.0, 1.0 - sum(values))) if values else 1.0


def _share(unknown: float, known: float) -> float:
    return unknown / (unknown + known) if unknown > 0.0 else 0.0


def _checked(one: Completion | Failure) -> Completion | Failure:
    """A completion whose log-probabilities can be, or the failure."""
    if isinstance(one, Completion):
        try:
            check_logprobs(one.ids.values())
            check_logprobs(one.texts.values())
        except AnswerError as error:
            return Failure("invalid", one.cost.describe(_impossible(error)))
    return one


async def _estimate(
    client: Client,
    capabilities: Capabilities,
    row: Row,
    extra: dict[str, Any],
    read: Answer | None = None,
) -> Answer:
    """Draw answers and count them, unless a list of tokens was ``read`` and left little open.

    A draw that is empty, cut, refused or none of the options is lost; the others count.
    """
    if read is not None and not read.detail.startswith(_LISTED):
        return read
    request, draws = row.request, capabilities.draws
    options = _options(request)
    longest = max(len(option.encode()) for option in options) + _AROUND
    seed = drawn_seed(request.seed, request.replicate)
    free = replace(request, constraint=None, sampling=Sampling(max_tokens=longest))
    drawn = [replace(row, request=replace(free, seed=seed + n)) for n in range(draws)]
    parts = await gather([write(client, capabilities, [one], extra) for one in drawn])
    answers = [answer for part in parts for answer in part]
    failed = next((a for a in answers if a.status == "engine_error"), None)
    if failed is not None:
        return replace(failed, request=request, text=None)
    cost = Cost(served_by=tuple(sorted({_server_of(a.detail) for a in answers} - {""})))
    for a in answers:
        cost += Cost(Usage(a.prompt_tokens, a.completion_tokens, a.cached_tokens), a.latency)
    counts = [0] * len(options)
    for a in answers:
        option = _option_of(a.text or "", options)
        if option is not None:
            counts[option] += 1
    total = sum(counts)
    if total == 0:
        first = answers[0]
        why = client.address.quote(first.text) if first.text else first.detail or "no text"
        detail = f"none of {draws} answers drawn is one of the options; the first: {why}"
        return _invalid(request, detail, cost, refused=all(a.status == "refused" for a in answers))
    detail = f"an estimate: shares among {total} answers drawn"
    mass = None if extra else total / sum(bool(a.text) for a in answers)
    return _chosen(request, [c / total for c in counts], mass, cost, detail)


def _server_of(detail: str) -> str:
    return detail.rpartition(SERVED_BY)[2] if SERVED_BY in detail else ""


def _option_of(text: str, options: Sequence[str]) -> int | None:
    """The option that a free text begins with, else the only one that it names.

    >>> [_option_of(text, ("1", "7", "10")) for text in ("10", "**7**/10", "Rating: 7", "7.5")]
    [2, 1, 1, None]
    """
    numbers = {option.strip(): n for n, option in enumerate(options)}
    names = "|".join(map(re.escape, sorted(numbers, key=len, reverse=True)))
    whole = re.compile(rf"(?<![\w-])(?<!\d[.,])(?:{names})(?!\w|[.,]\d)")
    found = [*whole.finditer(text)]
    begins = found and not re.search(r"\w", text[: found[0].start()])
    if begins or len({match[0] for match in found}) == 1:
        return numbers[found[0][0]]
    return None


def _options(request: Request) -> tuple[str, ...]:
    assert isinstance(request.constraint, Choice)
    return request.constraint.options


def _open(unseen: float) -> str:
    return (
        f"{_LISTED} leaves up to {unseen:.0%} of the options' "
        f"probability open (limit {MAX_UNSEEN:.0%})"
    )


def _impossible(error: AnswerError) -> str:
    return f"the server's log-probabilities are invalid: {error}"


def _invalid(request: Request, detail: str, cost: Cost, *, refused: bool = False) -> Answer:
    status: Status = "refused" if refused else "invalid"
    return Answer(request, status, latency=cost.seconds, detail=cost.describe(detail))


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
