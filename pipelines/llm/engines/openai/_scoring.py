"""Answers that are distributions, from the probabilities that the server shows."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pipelines.errors import AnswerError
from pipelines.llm.engines._protocol import Answer, Choice, Request, Sampling
from pipelines.llm.engines.choices import OptionTree, check_logprobs
from pipelines.llm.engines.openai._budget import Usage
from pipelines.llm.engines.openai._capabilities import Capabilities
from pipelines.llm.engines.openai._client import (
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


async def score(client: Client, capabilities: Capabilities, rows: Sequence[Row]) -> list[Answer]:
    """One answer per row; rows share their options and endpoint."""
    options = _options(rows[0].request)
    longest = capabilities.max_options
    if longest is not None and len(options) > longest:
        reason = capabilities.reason or f"the server lists {capabilities.ranks} probable tokens"
        detail = (
            f"no distribution over {len(options)} answers ({reason}); "
            "set engine.draws to estimate it from sampled answers"
        )
        return [Answer(row.request, "invalid", detail=detail) for row in rows]
    if rows[0].ids is not None:
        return await _score_by_ids(client, capabilities, rows)
    return await gather([_score_by_text(client, capabilities, row.request) for row in rows])


async def _score_by_ids(
    client: Client, capabilities: Capabilities, rows: Sequence[Row]
) -> list[Answer]:
    """Ask for the log-probabilities of exactly the options' tokens, at every node of their tree."""
    assert capabilities.tokens is not None
    spelled = await capabilities.tokens.spell(_options(rows[0].request))
    if isinstance(spelled, Failure):
        return [failed_answer(row.request, spelled) for row in rows]
    try:
        tree = OptionTree.of(spelled)
    except ValueError as error:
        detail = f"the model's tokenizer can't tell the options apart: {error}"
        return [Answer(row.request, "invalid", detail=detail) for row in rows]
    token_ids = sorted({t for step in tree.steps for t in step})
    parts: list[tuple[Sequence[int], Sequence[int]]] = [(range(len(tree.nodes)), token_ids)]
    if len(token_ids) > MAX_IDS:
        parts = [
            ([n], step[at : at + MAX_IDS])
            for n, step in enumerate(tree.steps)
            for at in range(0, len(step), MAX_IDS)
        ]
    results = await gather(
        [_at_nodes(client, capabilities, rows, tree, nodes, ids) for nodes, ids in parts]
    )
    answers = []
    for n, row in enumerate(rows):
        replies = [
            (node, ids, reply)
            for (nodes, ids), by_row in zip(parts, results, strict=True)
            for node, reply in zip(nodes, by_row[n], strict=True)
        ]
        answers.append(_merged(row.request, tree, replies))
    return answers


def _merged(
    request: Request,
    tree: OptionTree,
    replies: Sequence[tuple[int, Sequence[int], Completion | Failure]],
) -> Answer:
    """The answer to a request that the completions at the tree's nodes make."""
    merged: list[dict[int, float]] = [{} for _ in tree.nodes]
    cost = Cost()
    for node, ids, reply in replies:
        if isinstance(reply, Failure):
            return failed_answer(request, reply)
        merged[node] |= {t: reply.ids[t] for t in ids if t in reply.ids}
        cost += reply.cost
    if any(t not in merged[n] for n, step in enumerate(tree.steps) for t in step):
        detail = "the server omitted requested probabilities"
        return failed_answer(request, Failure("engine_error", detail))
    try:
        for values in merged:
            check_logprobs(values.values())
        shares, mass = tree.distribution(merged)
    except AnswerError as error:
        return _invalid(request, _impossible(error), cost)
    return _chosen(request, [float(s) for s in shares], mass, cost)


async def _at_nodes(
    client: Client,
    capabilities: Capabilities,
    rows: Sequence[Row],
    tree: OptionTree,
    nodes: Sequence[int],
    ids: Sequence[int],
) -> list[list[Completion | Failure]]:
    """One completion per row and node, in as few requests as they fit into."""
    # No seed: vLLM on a CPU dies of one in a prompt that it computes in parts.
    body = capabilities.fields(capabilities.first_token, None, "completions")[0] | {
        "logprobs": 1,
        "logprob_token_ids": [*ids],
        "return_tokens_as_token_ids": True,
    }
    prompts = [(*(row.ids or ()), *tree.nodes[n]) for row in rows for n in nodes]
    parts = [prompts[at : at + MAX_PROMPTS] for at in range(0, len(prompts), MAX_PROMPTS)]
    results = await gather([client.complete(part, body, 1) for part in parts])
    flat = [reply for part in results for reply in part]
    return [flat[at : at + len(nodes)] for at in range(0, len(flat), len(nodes))]


async def _score_by_text(client: Client, capabilities: Capabilities, request: Request) -> Answer:
    """Read a chat's list of probable tokens; draw answers where it leaves too much open."""
    if capabilities.reading == "draws" or len(_options(request)) > capabilities.ranks:
        return await _estimate(client, capabilities, request)
    answer = _read_list(request, await capabilities.listed(request.messages))
    if capabilities.draws and answer.detail.startswith(_LISTED):
        return await _estimate(client, capabilities, request)
    return answer


def _read_list(request: Request, reply: Completion | Failure) -> Answer:
    """Look for the options' texts among the most probable first tokens of a chat's answer."""
    if isinstance(reply, Failure):
        return failed_answer(request, reply)
    if reply.refusal:
        return _invalid(request, reply.refusal[:120], reply.cost, refused=True)
    try:
        check_logprobs(reply.texts.values())
    except AnswerError as error:
        return _invalid(request, _impossible(error), reply.cost)
    options = _options(request)
    seen: dict[str, float] = {}
    for token, value in reply.texts.items():
        # One with a space before it begins the same answer.
        text = token if token in options else token.lstrip()
        seen[text] = seen.get(text, 0.0) + math.exp(value)
    listed = sum(seen.get(option, 0.0) for option in options)
    unknown = sum(_may_be(option, seen) for option in options if option not in seen)
    unseen = unknown / (unknown + listed) if unknown > 0.0 else 0.0
    if unseen > MAX_UNSEEN or listed <= 0.0:
        detail = (
            f"{_LISTED} leaves up to {unseen or 1.0:.0%} of the options' "
            f"probability open (limit {MAX_UNSEEN:.0%})"
        )
        return _invalid(request, detail, reply.cost)
    shares = [seen.get(option, 0.0) / listed for option in options]
    return _chosen(request, shares, min(1.0, listed), reply.cost)


def _may_be(option: str, seen: Mapping[str, float]) -> float:
    """The most probability that an option can have that is no token of the list.

    It may be a token below the last rank, or begin with one of those listed: the "1" of "10".
    """
    begun = sum(chance for text, chance in seen.items() if text and option.startswith(text))
    return begun + _below(seen.values())


def _below(chances: Collection[float]) -> float:
    """The most probability that a token below the last rank can have."""
    return min(min(chances), max(0.0, 1.0 - sum(chances))) if chances else 1.0


async def _estimate(client: Client, capabilities: Capabilities, request: Request) -> Answer:
    """Draw answers and count them.

    A draw that is empty, cut, refused or none of the options is lost; the others count.
    """
    options, draws = _options(request), capabilities.draws
    longest = max(len(option.encode()) for option in options) + _AROUND
    seed = drawn_seed(request.seed, request.replicate)
    free = replace(request, constraint=None, sampling=Sampling(max_tokens=longest))
    drawn = [Row(replace(free, seed=seed + n), None) for n in range(draws)]
    answers = await write(client, capabilities, drawn)
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
    mass = total / sum(bool(a.text) for a in answers)
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
    pattern = re.compile(rf"(?<![\w-])(?<!\d[.,])(?:{names})(?!\w|[.,]\d)")
    matches = [*pattern.finditer(text)]
    begins = matches and not re.search(r"\w", text[: matches[0].start()])
    if begins or len({match[0] for match in matches}) == 1:
        return numbers[matches[0][0]]
    return None


def _options(request: Request) -> tuple[str, ...]:
    assert isinstance(request.constraint, Choice)
    return request.constraint.options


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
