"""Capabilities of a server, found by probes.

A server that does not know a field may refuse it, or leave it out without a word and answer as
if nothing had been asked. Every probe is therefore made so that an answer without the field is
another answer than one with it.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines._protocol import (
    Constraint,
    GrammarConstraint,
    JsonSchema,
    Message,
    Request,
    Sampling,
)
from pipelines.llm.engines.openai._client import OPTIONAL, Client
from pipelines.llm.engines.openai._encoding import (
    LocalTokens,
    Tokens,
    VllmTokens,
    lark,
    sampling_fields,
)
from pipelines.llm.engines.openai._forms import JSON_MODE, FormStyle, json_format
from pipelines.llm.engines.openai._replies import Completion, Failure, Reply

#: Ways to read the distribution over the options of a choice.
#: ``token_ids``: the server gives the log-probability of exactly the tokens that are asked for.
#: ``ranks``: the options are looked for among the most probable tokens that a chat lists.
#: ``draws``: answers are drawn and counted; an estimate. ``none``: not at all.
Reading = Literal["token_ids", "ranks", "draws", "none"]

_DISTRIBUTIONS: dict[Reading, str] = {
    "token_ids": "exact: log-probabilities of the options' own tokens (logprob_token_ids)",
    "ranks": "from the {ranks} most probable tokens that the server lists",
    "draws": "ESTIMATE: shares among {draws} answers drawn ({reason})",
    "none": "not readable ({reason})",
}
_STYLES: dict[FormStyle, str] = {
    "json_pattern": "fields of JSON under a schema with patterns",
    "json_schema": "fields of JSON under a schema",
    "json_object": "fields of JSON",
    "lines": "lines with labels",
}
_QUESTION = (Message("user", "Name a colour."),)
_IN_JSON = (Message("user", 'Name a colour in JSON, in this form: {"colour": "..."}'),)
_BARE = "The sky is"
_MIXED = "Un été à Zürich: «日本» costs 10 or 100 €,\n  isn't it?\t5"
#: Texts whose first tokens are looked up; no model begins an answer with all of them.
_UNLIKELY = ("zq", "7", "K", "!", "Xv")
_RANKS = (100, 20, 5)
_BY_IDS, _LISTS = "logprob_token_ids", "top_logprobs (chat)"
_IGNORED, _HONOURED = "silently ignored", "honoured"
_GREEDY = Sampling(temperature=0.0, max_tokens=24)
_DRAWN = Sampling(temperature=1.0, max_tokens=16)
_SEED = 11
#: Tolerance of a log-probability between two equal requests (16-bit weights).
_SAME = 0.5
#: Longest thought that is waited for (tokens).
_THOUGHT = 2048
#: Fields that turn a model's thinking off: in its template (vLLM, llama.cpp), and the interface's.
_SWITCHES: tuple[dict[str, Any], ...] = (
    {"chat_template_kwargs": {"enable_thinking": False}},
    {"reasoning_effort": "none"},
    {"think": False},
)
#: Constraints under which the answer has nothing to do with the question.
_GRAMMAR = GrammarConstraint('%llguidance {}\n\nstart: "zq" "7" "vx"')
_RULES: dict[FormStyle, dict[str, Any]] = {
    "json_pattern": {"pattern": "^(vx)$"},
    "json_schema": {"enum": ["vx"]},
}


class Capabilities:
    """Capabilities of a server; empty until :meth:`probe` has run.

    Attributes
    ----------
    client
        Client of the server.
    server, version
        Kind (``vllm``, ``llama.cpp``, ``ollama``, ``other``) and version as it reports them.
    context
        Longest prompt and answer together (tokens); None where it does not say.
    tokens
        Tokenizer of prompts as token ids; None: every request goes to the chat endpoint.
    reading, ranks, draws, reason
        Way to read a choice; length of the list of most probable tokens; answers drawn per choice
        where the list does not hold it, or there is none; why there is none.
    style
        How the fields of a form are asked for at the chat endpoint.
    thinks, switch
        Whether the model thinks before it answers; the fields that turn this off, if any do.
    probed
        Outcome of every probe, by its name.
    """

    def __init__(self, client: Client, engine: EngineSettings, serving: ServingSettings) -> None:
        self.client = client
        self.server, self.version = "other", ""
        self.context: int | None = None
        self.tokens: Tokens | None = None
        self.reading: Reading = "none"
        self.ranks, self.draws = 0, engine.draws
        self.thinks, self.reason = False, ""
        self.switch: dict[str, Any] = {}
        self.style: FormStyle = "lines"
        self.probed: dict[str, str] = {}
        self._engine, self._serving = engine, serving
        #: The server's defaults of sampling, where they are not those of the interface.
        self._defaults: dict[str, Any] = {}
        #: Name of the chat endpoint's field for the longest answer.
        self._limit_field = "max_tokens"
        self._grammars = False

    @property
    def distributions(self) -> str:
        """Description of the way that choices are read."""
        text = _DISTRIBUTIONS[self.reading].format(
            ranks=self.ranks, draws=self.draws, reason=self.reason
        )
        if self.reading == "ranks" and self.draws:
            text += f"; where that leaves too much open, shares among {self.draws} answers drawn"
        return text

    @property
    def max_options(self) -> int | None:
        """Most options whose distribution can be given; None: any number."""
        return None if self.draws or self.reading == "token_ids" else self.ranks

    @property
    def _thinking(self) -> bool:
        return self.thinks and not self.switch

    def fields(
        self, sampling: Sampling, seed: int | None, *, chat: bool, room: int = 0
    ) -> tuple[dict[str, Any], int]:
        """Fields of a request's body that draw its answer, and the limit of its tokens.

        ``room`` is for tokens beside those of the answer (count); thoughts are added to it.
        """
        fields = sampling_fields(sampling, seed, self._defaults)
        limit = sampling.max_tokens + room
        if not chat:
            return fields | {"max_tokens": limit}, limit
        if self._thinking:
            limit += min(_THOUGHT, (self.context or 2 * _THOUGHT) // 2)
        return fields | self.switch | {self._limit_field: limit}, limit

    def first_token_fields(self, *, chat: bool) -> tuple[dict[str, Any], int]:
        """Fields that draw the one token beside which probabilities are read.

        At temperature 1, so that a server that lists what it samples from lists the model's own.
        llama.cpp lists these at every temperature, and nothing beside a token that is a part of a
        character: there the most probable token is taken, which seldom is one. No seed: vLLM on a
        CPU dies of one in a prompt that it computes in parts.
        """
        sampling = Sampling(temperature=float(self.server != "llama.cpp"), max_tokens=1)
        return self.fields(sampling, None, chat=chat)

    def takes_ids(self, request: Request) -> bool:
        """True if a request goes to the completions endpoint, as token ids."""
        images = any(message.images for message in request.messages)
        return self.tokens is not None and not images and self.form(request.constraint) is None

    def form(self, constraint: Constraint | None) -> GrammarConstraint | None:
        """The grammar whose fields are asked for in its place, if the constraint is one."""
        if self._grammars or not isinstance(constraint, GrammarConstraint) or not constraint.form:
            return None
        return constraint

    def constraint_fields(self, constraint: Constraint | None) -> dict[str, Any]:
        """Fields of a request's body that hold an answer to a constraint; empty: none can."""
        if constraint is None or self._grammars:
            return {"structured_outputs": {"grammar": lark(constraint)}} if constraint else {}
        if not isinstance(constraint, JsonSchema) or self.style == "lines":
            return {}
        schema = self.style in _RULES
        return json_format(json.loads(constraint.schema)) if schema else JSON_MODE

    def note_thoughts(self, reply: Reply) -> bool:
        """Whether a reply was cut in a thought that the probes had not shown: there is room now."""
        cut = isinstance(reply, Completion) and reply.thought and reply.finish == "length"
        if not cut or self._thinking:
            return False
        self.thinks, self.switch = True, {}
        return True

    def note_pattern(self, reply: Reply, sent: FormStyle) -> bool:
        """Whether a form was refused whose patterns the server may not read: none are sent now."""
        if not isinstance(reply, Failure) or reply.status != "invalid" or sent != "json_pattern":
            return False
        self.style, self.probed["json_pattern"] = "json_schema", reply.detail
        return True

    async def listed(self, messages: Sequence[Message], *, probe: bool = False) -> Reply:
        """A chat's first token with the list of the most probable ones; sent again without one."""
        fields, limit = self.first_token_fields(chat=True)
        fields |= {"logprobs": True, "top_logprobs": self.ranks}
        reply = await self.client.chat(messages, fields, limit, probe=probe)
        if isinstance(reply, Failure) or reply.logprobs or reply.refusal:
            return reply
        again = await self.client.chat(messages, fields, limit, probe=probe)
        if isinstance(again, Completion):
            return replace(again, usage=reply.usage + again.usage)
        return again

    def metadata(self) -> dict[str, Any]:
        """JSON-ready."""
        forms = f"checked here; grammars are asked for as {_STYLES[self.style]}"
        return {
            "server": self.server,
            "server_version": self.version,
            "model": self.client.model,
            "context": self.context,
            "tokens": self.tokens.where if self.tokens else "none: chat endpoint only",
            "endpoint": "completions" if self.tokens else "chat",
            "reading": self.reading,
            "distributions": self.distributions,
            "max_options": self.max_options,
            "constraints": "structured_outputs" if self._grammars else forms,
            "thinks": self.thinks,
            "thinking_switch": self.switch or None,
            "left_out": dict(sorted(self.client.left_out.items())),
            "probes": dict(sorted(self.probed.items())),
            "answered_by": sorted(self.client.answered_by),
            "fingerprints": sorted(self.client.fingerprints),
        }

    async def probe(self) -> None:
        """Probe everything.

        Raises
        ------
        ConfigError
            If the configured tokenizer is not the model's, or the server lists its models and
            the configured one is not among them.
        EngineError
            If nothing answers, or the key is refused, or the budget is too small.
        """
        await self._find_server()
        self.tokens = tokens = await self._find_tokens()
        prompt = await self._probe_token_ids(tokens) if tokens else []
        if not prompt:
            self.tokens = None
        await self._probe_drawing(prompt)
        if prompt:
            grammar = {"structured_outputs": {"grammar": lark(_GRAMMAR)}}
            self.probed["structured_outputs"] = outcome = _obeyed(
                await self._ask(_GREEDY, grammar, prompt=prompt), "zq7vx"
            )
            self._grammars = outcome == _HONOURED
        else:
            await self._probe_list()
        if not self._grammars:
            await self._probe_style()
        if self.client.spent is not None:
            raise self.client.spent

    async def _ask(
        self,
        sampling: Sampling,
        extra: dict[str, Any] | None = None,
        *,
        prompt: Sequence[int] = (),
        messages: Sequence[Message] = _QUESTION,
    ) -> Reply:
        """Ask a probe's question: the prompt's, as token ids, else the messages'."""
        fields, limit = self.fields(sampling, _SEED, chat=not prompt)
        fields |= extra or {}
        if not prompt:
            return await self.client.chat(messages, fields, limit, probe=True)
        [reply] = await self.client.complete([prompt], fields, limit, probe=True)
        return reply

    # Server and model -------------------------------------------------------------------------

    async def _find_server(self) -> None:
        address = self.client.address
        page = await self.client.page(address.api + "/models")
        data = page.get("data") if isinstance(page, dict) else None
        models = [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []
        if any(m.get("owned_by") == "vllm" for m in models):
            self.server, self.version = "vllm", self._text(await self._page("/version"))
            # Those of the model's files, which the server does not tell.
            self._defaults = dict.fromkeys(("top_k", "top_p", "min_p", "repetition_penalty"))
        elif isinstance(
            stated := (props := await self._page("/props")).get("default_generation_settings"), dict
        ):
            # Its answers were read at the completions endpoint before: they have other keys.
            self.server = "llama.cpp"
            self.version = f"{self._text(props, 'build_info')} chat".strip()
            self._limit(stated.get("n_ctx"))
            params = stated.get("params")
            for name, value in params.items() if isinstance(params, dict) else ():
                if name in OPTIONAL and type(value) in (int, float):
                    self._defaults[name] = value
        elif version := self._text(await self._page("/api/version")):
            self.server, self.version = "ollama", version
        self.client.model = self._find_model(
            [m["id"] for m in models if isinstance(m.get("id"), str)]
        )
        for m in models:
            if m.get("id") == self.client.model:
                self._limit(m.get("max_model_len"))
        self._limit(self._serving.max_context)

    async def _page(self, path: str) -> Mapping[str, Any]:
        """A page that is not of the interface: any fault means that the server has none."""
        try:
            page = await self.client.page(self.client.address.root + path)
        except EngineError:
            return {}
        return page if isinstance(page, dict) else {}

    def _text(self, page: Mapping[str, Any], field: str = "version") -> str:
        value = page.get(field)
        return self.client.address.quote(value) if isinstance(value, str) else ""

    def _find_model(self, names: list[str]) -> str:
        model = self._engine.model
        same = [n for n in names if model in (n, n.rsplit("/", 1)[-1], n.removesuffix(":latest"))]
        if model in names or len(same) == 1:
            self.probed["model"] = "listed"
            return model if model in names else same[0]
        if names and self.server != "other":
            close = difflib.get_close_matches(model, names, n=3, cutoff=0.3) or names[:3]
            raise ConfigError(
                f"the server has no model {model}",
                where=f"engine.model; {self.client.address.api}",
                hint=f"it lists {', '.join(close)}",
            )
        # Hosted servers have names for models that they don't list.
        self.probed["model"] = "not listed" if names else "the server lists no models"
        return model

    def _limit(self, value: Any) -> None:
        if type(value) is int and value > 0:
            self.context = min(value, self.context or value)

    # Token ids: vLLM --------------------------------------------------------------------------

    async def _find_tokens(self) -> Tokens | None:
        server: VllmTokens | None = None
        if self.server == "vllm":
            server = VllmTokens(self.client)
            try:
                spelled = await server.spell([_BARE])
            except EngineError as error:  # a proxy that lets nothing through but the interface
                spelled = Failure("invalid", str(error))
            if isinstance(spelled, Failure):
                self.probed["server's tokens"] = spelled.detail
                server = None
        if self._serving.tokenizer is None:
            return server
        local = LocalTokens(self._serving.tokenizer, self._serving.chat_template)
        if server is not None:
            if await local.spell([_MIXED]) != await server.spell([_MIXED]):
                raise ConfigError(
                    "the tokenizer does not belong to the server's model",
                    where=f"serving.tokenizer is {self._serving.tokenizer}",
                    hint="give the model's tokenizer, or unset it to use the server's",
                )
            self.probed["tokenizer"] = "the same as the server's"
        return local

    async def _probe_token_ids(self, tokens: Tokens) -> list[int]:
        """Prompt with which the probabilities of chosen tokens are given; empty: they are not.

        Tokens are asked for that no list of the most probable would hold; twice, overlapping.
        """
        prompt = await tokens.render(_QUESTION)
        if isinstance(prompt, Failure) or not prompt:
            self.probed["chat template"] = _why(prompt)
            [prompt] = _ids(await tokens.spell([_BARE])) or [[]]
        targets = [*dict.fromkeys(ids[0] for ids in _ids(await tokens.spell(_UNLIKELY)) if ids)]
        outcome = "no tokens to try it with"
        if prompt and len(targets) >= 4:
            outcome = await self._read_token_ids(prompt, targets)
        self.probed[_BY_IDS] = outcome
        if outcome != _HONOURED:
            return []
        self.reading = "token_ids"
        return prompt

    async def _read_token_ids(self, prompt: list[int], targets: list[int]) -> str:
        prompts, logprobs = [prompt, [*prompt, prompt[-1]]], []
        for ids in (targets[:3], targets[1:4]):
            sent = await self.token_logprobs(prompts, ids, probe=True)
            ones = [completion for completion in sent if isinstance(completion, Completion)]
            if len(ones) < len(sent):
                return _why(sent[0])
            # A server that took the ids for text would count other tokens.
            counted, count = sum(c.usage.prompt for c in ones), sum(map(len, prompts))
            if counted != count:
                return f"misread: {counted} tokens for {count}"
            values = [ones[0].logprobs.get(f"token_id:{t}") for t in ids]
            if None in values:
                return _IGNORED
            logprobs.append([v for v in values if v is not None])
        first, second = logprobs
        same = all(abs(a - b) <= _SAME for a, b in zip(first[1:], second, strict=False))
        honoured = same and _is_distribution(first) and _is_distribution(second)
        return _HONOURED if honoured else "no probabilities"

    async def token_logprobs(
        self, prompts: Sequence[Sequence[int]], ids: Sequence[int], *, probe: bool = False
    ) -> list[Reply]:
        """Completions of prompts with the log-probabilities of exactly these first tokens."""
        fields, limit = self.first_token_fields(chat=False)
        fields |= {"logprobs": 1, _BY_IDS: [*ids], "return_tokens_as_token_ids": True}
        return await self.client.complete(prompts, fields, limit, probe=probe)

    # The chat endpoint ------------------------------------------------------------------------

    async def _probe_drawing(self, prompt: Sequence[int]) -> None:
        """Find fields that the server refuses, thoughts, and whether a seed repeats a draw.

        Most servers name the field that they refuse, and the client leaves it out. Where one does
        not, the request is tried with the other name of the limit, and without each optional field.
        """
        draw = first = await self._ask(_DRAWN, prompt=prompt)
        names = () if prompt else ("max_completion_tokens",)
        for name in (*names, *OPTIONAL):
            if not isinstance(draw, Failure) or draw.status != "invalid":
                break
            before, limit_field = dict(self.client.left_out), self._limit_field
            if name in OPTIONAL:
                self.client.left_out[name] = draw.detail
            else:
                self._limit_field = name
            other = await self._ask(_DRAWN, prompt=prompt)
            self.client.left_out = before
            if isinstance(other, Failure):
                self._limit_field = limit_field
            elif name in OPTIONAL:
                self.client.leave_out(name, draw.detail)
            draw = draw if isinstance(other, Failure) else other
        if isinstance(draw, Failure):
            raise EngineError(
                f"the server does not answer a question ({draw.detail})",
                where=self.client.address.api,
                hint="check serving.base_url, engine.model and serving.timeout",
            )
        if not prompt:
            self.probed["chat"] = f"honoured ({self._limit_field})"
            if draw.thought:
                await self._find_switch()
                first = await self._ask(_DRAWN)
        again = await self._ask(_DRAWN, prompt=prompt)
        self.probed["seed"] = "repeats" if _same_text(first, again) else "does not repeat"

    async def _find_switch(self) -> None:
        """Try to turn the model's thinking off."""
        self.thinks = True
        outcome = "can't be turned off"
        for switch in _SWITCHES:
            self.switch = switch
            reply = await self._ask(_GREEDY)
            if not isinstance(reply, Failure) and reply.text and not reply.thought:
                outcome = f"turned off by {next(iter(switch))}"
                break
            self.switch = {}
        self.probed["thinking"] = outcome

    async def _probe_list(self) -> None:
        """Find the longest list of most probable tokens that the server gives."""
        self.reading = "draws" if self.draws else "none"
        if self._thinking:
            self.reason = "the model thinks before it answers, and its first token is a thought's"
            return
        for self.ranks in _RANKS:
            reply = await self.listed(_QUESTION, probe=True)
            if not isinstance(reply, Failure):
                break
            self.probed[_LISTS] = reply.detail
            self.reason = f"{_LISTS}: {reply.detail}"
            if reply.detail.startswith("timeout"):
                break  # a shorter list would not be quicker
        if isinstance(reply, Completion) and _is_distribution(reply.logprobs.values()):
            self.probed[_LISTS] = f"honoured ({self.ranks} tokens)"
            self.reading, self.reason = "ranks", ""
            return
        self.ranks = 0
        if isinstance(reply, Completion):
            self.probed[_LISTS] = _IGNORED
            self.reason = "the server returns no log-probabilities of other tokens"

    async def _probe_style(self) -> None:
        """Find how the fields of a form are asked for."""
        for style, rule in _RULES.items():
            field = {"type": "string"} | rule
            schema: dict[str, Any] = {"type": "object", "properties": {"zq": field}}
            schema |= {"required": ["zq"], "additionalProperties": False}
            reply = await self._ask(_GREEDY, json_format(schema))
            self.probed[style] = outcome = _obeyed(reply, '{"zq":"vx"}')
            if outcome == _HONOURED:
                self.style = style
                return
        reply = await self._ask(_GREEDY, JSON_MODE, messages=_IN_JSON)
        self.probed["json_object"] = outcome = _obeyed(reply, "{")
        self.style = "json_object" if outcome == _HONOURED else "lines"


def _obeyed(reply: Reply, expected: str) -> str:
    """Outcome of a probe after which a text begins with the wanted one."""
    if isinstance(reply, Failure):
        return reply.detail
    text = "".join((reply.text or "").split())
    # A cut answer may be on the way: a model may fill JSON with white space.
    begun = reply.finish == "length" and len(text) >= 5 and expected.startswith(text)
    return _HONOURED if text.startswith(expected) or begun else _IGNORED


def _same_text(one: Reply, other: Reply) -> bool:
    texts = [r.text for r in (one, other) if isinstance(r, Completion)]
    return len(texts) == 2 and texts[0] is not None and texts[0] == texts[1]


def _why(reply: Any) -> str:
    return reply.detail if isinstance(reply, Failure) else "no token ids"


def _ids(spelled: list[list[int]] | Failure) -> list[list[int]]:
    return [] if isinstance(spelled, Failure) else spelled


def _is_distribution(values: Iterable[float]) -> bool:
    """Whether numbers can be log-probabilities of different tokens."""
    numbers = list(values)
    if any(v > 1e-3 for v in numbers) or len({round(v, 6) for v in numbers}) < 2:
        return False
    return math.fsum(math.exp(v) for v in numbers) <= 1.01
