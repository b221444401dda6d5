"""Answers of a server: distributions over choices, and texts that are checked here."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pipelines.errors import AnswerError
from pipelines.llm.engines._protocol import (
    Answer,
    Choice,
    Constraint,
    GrammarConstraint,
    JsonSchema,
    Regex,
    Request,
    Sampling,
)
from pipelines.llm.engines.choices import OptionTree, check_logprobs
from pipelines.llm.engines.constraints import obeys
from pipelines.llm.engines.openai._client import gather, quote
from pipelines.llm.engines.openai._forms import (
    form_format,
    form_messages,
    form_room,
    json_part,
    read_form,
)
from pipelines.llm.engines.openai._replies import Completion, Failure, Reply, Usage
from pipelines.llm.engines.openai._server import Server, drawn_seed
from pipelines.statuses import Status

#: Most tokens that a server gives the log-probabilities of in one request (vLLM's limit).
MAX_IDS = 128
#: Largest share of the options' probability that a list of ranks may leave open: an option below
#: the last rank then counts as 0; with more the answer is not used.
MAX_UNSEEN = 0.01

#: First words of the detail of an answer that a list was too short for.
_LISTED = "the server's list of probable tokens"
#: Tokens of a drawn answer beside those of its option: "**8**", "Rating: 8".
_AROUND = 16
_IMPOSSIBLE = "the server's log-probabilities are invalid"
_KINDS: dict[type, str] = {JsonSchema: "json", Regex: "regex", GrammarConstraint: "grammar"}
_NO_USAGE = Usage()

Ids = tuple[int, ...]


async def answer(server: Server, requests: Sequence[Request]) -> list[Answer]:
    """One answer per request; those that go as token ids share constraint, sampling and seed."""
    first = requests[0]
    options = _options(first)
    if server.max_options is not None and len(options) > server.max_options:
        reason = server.reason or f"the server lists {server.ranks} probable tokens"
        detail = (
            f"no distribution over {len(options)} answers ({reason}); "
            "set engine.draws to estimate it from sampled answers"
        )
        return [_ended(request, "invalid", detail) for request in requests]
    if not server.takes_ids(first):
        return await gather([_at_chat(server, request) for request in requests])
    prompts = await gather([_prompt(server, request) for request in requests])
    pairs = list(zip(requests, prompts, strict=True))
    rows = [(request, ids) for request, ids in pairs if not isinstance(ids, Failure)]
    answers = [_failed(request, fault) for request, fault in pairs if isinstance(fault, Failure)]
    if rows:
        answers += await (_score_by_ids(server, rows) if options else _write_by_ids(server, rows))
    return answers


# Token ids -----------------------------------------------------------------------------------


async def _prompt(server: Server, request: Request) -> Ids | Failure:
    assert server.tokens is not None
    ids = request.tokens or await server.tokens.render(request.messages)
    if isinstance(ids, Failure):
        return ids
    if server.context is None or len(ids) < server.context:
        return tuple(ids)
    detail = f"the prompt of {len(ids)} tokens is longer than the context of {server.context}"
    return Failure("invalid", detail)


async def _score_by_ids(server: Server, rows: Sequence[tuple[Request, Ids]]) -> list[Answer]:
    """Ask for the log-probabilities of exactly the options' tokens, at every node of their tree."""
    assert server.tokens is not None
    spelled = await server.tokens.spell(_options(rows[0][0]))
    if isinstance(spelled, Failure):
        return [_failed(request, spelled) for request, _ in rows]
    try:
        tree = OptionTree.of(spelled)
    except ValueError as error:
        detail = f"the model's tokenizer can't tell the options apart: {error}"
        return [_ended(request, "invalid", detail) for request, _ in rows]
    parts = [
        (node, step[at : at + MAX_IDS])
        for node, step in enumerate(tree.steps)
        for at in range(0, len(step), MAX_IDS)
    ]
    replies = await gather(
        [
            server.token_logprobs([(*prompt, *tree.nodes[node]) for _, prompt in rows], ids)
            for node, ids in parts
        ]
    )
    by_row = zip(*replies, strict=True)
    return [
        _by_tree(request, tree, parts, row) for (request, _), row in zip(rows, by_row, strict=True)
    ]


def _by_tree(
    request: Request,
    tree: OptionTree,
    parts: Sequence[tuple[int, Ids]],
    replies: Sequence[Reply],
) -> Answer:
    """The answer to a request that the completions at the tree's nodes make."""
    logprobs: list[dict[int, float]] = [{} for _ in tree.nodes]
    usage = Usage()
    for (node, ids), reply in zip(parts, replies, strict=True):
        if isinstance(reply, Failure):
            return _failed(request, reply)
        usage += reply.usage
        for token in ids:
            if (value := reply.logprobs.get(f"token_id:{token}")) is None:
                return _ended(request, "engine_error", "the server omitted requested probabilities")
            logprobs[node][token] = value
    try:
        shares, mass = tree.distribution(logprobs)
    except AnswerError as error:
        return _ended(request, "invalid", f"{_IMPOSSIBLE}: {error}", usage)
    return _chosen(request, [float(s) for s in shares], mass, usage)


async def _write_by_ids(server: Server, rows: Sequence[tuple[Request, Ids]]) -> list[Answer]:
    first = rows[0][0]
    seed = drawn_seed(first.seed, first.replicate)
    fields, limit = server.fields(first.sampling, seed, chat=False)
    fields |= server.constraint_fields(first.constraint)
    by_limit: dict[int, list[tuple[Request, Ids]]] = {}
    for row in rows:
        # The context may have room for a shorter answer only.
        room = limit if server.context is None else server.context - len(row[1])
        by_limit.setdefault(min(limit, room), []).append(row)
    parts = [
        server.client.complete([ids for _, ids in part], fields | {"max_tokens": limit}, limit)
        for limit, part in by_limit.items()
    ]
    return [
        _text(request, reply)
        for part, replies in zip(by_limit.values(), await gather(parts), strict=True)
        for (request, _), reply in zip(part, replies, strict=True)
    ]


# The chat endpoint ---------------------------------------------------------------------------


async def _at_chat(server: Server, request: Request) -> Answer:
    options = _options(request)
    fault = ""
    if request.tokens:
        fault = "the server does not accept token ids"
    elif request.messages[-1].role == "assistant":
        fault = "the server's chat endpoint can't continue a partial answer"
    elif options and any(message.images for message in request.messages):
        fault = "the engine reads no distribution over options about an image"
    if fault:
        return _ended(request, "invalid", fault)
    if not options:
        return _text(request, await _write(server, request))
    if server.reading == "draws" or len(options) > server.ranks:
        return await _estimate(server, request)
    answered = _by_list(request, await server.listed(request.messages))
    if server.draws and answered.detail.startswith(_LISTED):
        return await _estimate(server, request)
    return answered


async def _write(server: Server, request: Request) -> Reply:
    """Ask for a text, or for the fields of a grammar that the server does not take."""
    messages, room, patterns = request.messages, 0, False
    extra = server.constraint_fields(request.constraint)
    form = server.form(request.constraint)
    if form is not None:
        patterns = server.patterns and server.style == "json_schema"
        messages = form_messages(messages, server.style, form)
        room, extra = form_room(form), form_format(server.style, form, patterns=patterns)
    seed = drawn_seed(request.seed, request.replicate)
    fields, limit = server.fields(request.sampling, seed, chat=True, room=room)
    reply = await server.client.chat(messages, fields | extra, limit)
    if server.note_reply(reply, patterns=patterns):
        return await _write(server, request)
    if form is not None and isinstance(reply, Completion) and reply.text:
        filled = read_form(form, reply.text)
        if filled is not None and obeys(form, filled):
            return replace(reply, text=filled, finish="stop")
    return reply


def _by_list(request: Request, reply: Reply) -> Answer:
    """Look for the options' texts among the most probable first tokens of a chat's answer."""
    if isinstance(reply, Failure):
        return _failed(request, reply)
    if reply.refusal:
        return _ended(request, "refused", reply.refusal[:120], reply.usage)
    try:
        check_logprobs(reply.logprobs.values())
    except AnswerError as error:
        return _ended(request, "invalid", f"{_IMPOSSIBLE}: {error}", reply.usage)
    options = _options(request)
    seen: dict[str, float] = {}
    for token, value in reply.logprobs.items():
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
        return _ended(request, "invalid", detail, reply.usage)
    shares = [seen.get(option, 0.0) / listed for option in options]
    return _chosen(request, shares, min(1.0, listed), reply.usage)


def _may_be(option: str, seen: Mapping[str, float]) -> float:
    """The most probability that an option can have that is no token of the list.

    It may be a token below the last rank, or begin with one of those listed: the "1" of "10".
    """
    begun = sum(chance for text, chance in seen.items() if text and option.startswith(text))
    chances = seen.values()
    return begun + (min(min(chances), max(0.0, 1.0 - sum(chances))) if chances else 1.0)


async def _estimate(server: Server, request: Request) -> Answer:
    """Draw answers and count them.

    A draw that is empty, cut, refused or none of the options is lost; the others count.
    """
    options = _options(request)
    longest = max(len(option.encode()) for option in options) + _AROUND
    seed = drawn_seed(request.seed, request.replicate)
    free = replace(request, constraint=None, sampling=Sampling(max_tokens=longest))
    drawn = [replace(free, seed=seed + n) for n in range(server.draws)]
    replies = await gather([_write(server, draw) for draw in drawn])
    usage = Usage()
    for reply in replies:
        if isinstance(reply, Completion):
            usage += reply.usage
        elif reply.status == "engine_error":
            return _failed(request, reply)
    answers = [_text(draw, reply) for draw, reply in zip(drawn, replies, strict=True)]
    counts = [0] * len(options)
    for drawing in answers:
        option = _option_of(drawing.text or "", options)
        if option is not None:
            counts[option] += 1
    total = sum(counts)
    if total == 0:
        text = answers[0].text
        why = quote(text) if text else answers[0].detail or "no text"
        detail = f"none of {server.draws} answers drawn is one of the options; the first: {why}"
        refused = all(a.status == "refused" for a in answers)
        return _ended(request, "refused" if refused else "invalid", detail, usage)
    detail = f"an estimate: shares among {total} answers drawn"
    mass = total / sum(bool(a.text) for a in answers)
    return _chosen(request, [c / total for c in counts], mass, usage, detail)


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


# Answers -------------------------------------------------------------------------------------


def _options(request: Request) -> tuple[str, ...]:
    """The options of a choice; empty for a text."""
    return request.constraint.options if isinstance(request.constraint, Choice) else ()


def _text(request: Request, reply: Reply) -> Answer:
    """The answer that a text makes: as it is, shortened to its stop string, or refused."""
    if isinstance(reply, Failure):
        return _failed(request, reply)
    text, constraint, detail = reply.text, request.constraint, ""
    status: Status = "ok"
    cut = [text.index(s) for s in request.sampling.stop if s in text] if text else []
    if reply.refusal:
        status, text, detail = "refused", None, quote(reply.refusal)
    elif reply.finish == "length" and not cut:
        detail = "" if text or not reply.thought else "the thought used up the limit of the answer"
        status, text = "truncated", text or ""
    elif text is None:
        status, detail = "invalid", "the reply has no text"
    else:
        given = text[: min(cut)] if cut else text  # where a server left a stop string in
        text = _in_style(constraint, given)
        if text is None:
            kind = _KINDS.get(type(constraint), "")
            status = "invalid"
            detail = f"the reply breaks its constraint ({kind}): {quote(given)!r}"
    return replace(
        _ended(request, status, detail, reply.usage), text=text, finish_reason=reply.finish
    )


def _in_style(constraint: Constraint | None, text: str) -> str | None:
    """The text, if it obeys; JSON in a fence or other white space in the usual one."""
    if obeys(constraint, text):
        return text
    again = text.strip()
    if isinstance(constraint, JsonSchema):
        try:
            again = json.dumps(json.loads(json_part(text)), ensure_ascii=False)
        except ValueError:
            return None
    return again if obeys(constraint, again) else None


def _failed(request: Request, failure: Failure) -> Answer:
    return Answer(request, failure.status, detail=failure.detail)


def _ended(request: Request, status: Status, detail: str, usage: Usage = _NO_USAGE) -> Answer:
    """An answer without a text; its detail ends with the models that answered."""
    origin = "served by " + ", ".join(usage.served_by) if usage.served_by else ""
    return Answer(
        request,
        status,
        prompt_tokens=usage.prompt,
        completion_tokens=usage.completion,
        cached_tokens=usage.cached,
        latency=usage.seconds,
        detail="; ".join(filter(None, (detail, origin))),
    )


def _chosen(
    request: Request, shares: list[float], mass: float, usage: Usage, detail: str = ""
) -> Answer:
    return replace(
        _ended(request, "ok", detail, usage),
        text=_options(request)[shares.index(max(shares))],
        probabilities=tuple(shares),
        mass=mass,
        finish_reason="stop",
    )
