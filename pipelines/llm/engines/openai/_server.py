"""What a server is and what it honours, as probes show, and the fields of its requests.

A server that does not know a field may refuse it, or leave it out without a word and answer as
if nothing had been asked. Every probe is therefore made so that an answer without the field is
another answer than one with it.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import AnswerError, ConfigError, EngineError
from pipelines.llm.engines._protocol import (
    Constraint,
    GrammarConstraint,
    JsonSchema,
    Message,
    Regex,
    Request,
    Sampling,
)
from pipelines.llm.engines.chat import read_template, render
from pipelines.llm.engines.checkpoints import Checkpoint
from pipelines.llm.engines.constraints import llguidance_grammar
from pipelines.llm.engines.openai._client import OPTIONAL, Client, gather, quote
from pipelines.llm.engines.openai._forms import JSON_MODE, FormStyle, json_format
from pipelines.llm.engines.openai._replies import Completion, Failure, Reply
from pipelines.llm.engines.tokens import encode_on, load_tokenizer

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
    "json_schema": "fields of JSON under a schema",
    "json_object": "fields of JSON",
    "lines": "lines with labels",
}
_QUESTION = (Message("user", "Name a colour."),)
_IN_JSON = (Message("user", 'Name a colour in JSON, in this form: {"colour": "..."}'),)
_MIXED = "Un été à Zürich: «日本» costs 10 or 100 €,\n  isn't it?\t5"
#: Texts whose first tokens are looked up; no model begins an answer with all of them.
_UNLIKELY = ("zq", "7", "K", "!", "Xv")
#: A character behind which every known tokenizer begins a new token.
_ANCHOR = "\n"
_RANKS = (100, 20, 5)
_BY_IDS, _LISTS = "logprob_token_ids", "top_logprobs (chat)"
_IGNORED, _HONOURED = "silently ignored", "honoured"
_GREEDY = Sampling(temperature=0.0, max_tokens=24)
_DRAWN = Sampling(temperature=1.0, max_tokens=16)
_SEED = 11
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
_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"zq": {"type": "string", "enum": ["vx"]}},
    "required": ["zq"],
    "additionalProperties": False,
}


# Fields --------------------------------------------------------------------------------------


def drawn_seed(seed: int, replicate: int) -> int:
    """The seed that a server is given: 31 bits that differ with the seed and the replicate.

    >>> drawn_seed(7, 0)
    7
    >>> drawn_seed(7, 1) == drawn_seed(7, 2)
    False
    """
    if replicate == 0 and 0 <= seed < 2**31:
        return seed
    digest = hashlib.sha256(f"{seed}/{replicate}".encode()).digest()
    return int.from_bytes(digest[:4]) >> 1


def sampling_fields(
    sampling: Sampling, seed: int | None, *, all_of_them: bool = False
) -> dict[str, Any]:
    """Fields of a request's body that say how tokens are drawn; seed None: any draw will do.

    The temperature is always sent, as servers differ in their default. The others are sent where
    they are not the interface's default, or ``all_of_them`` to a server with defaults of its own.

    >>> sampling_fields(Sampling(temperature=0.0), 7)
    {'temperature': 0.0}
    >>> sampling_fields(Sampling(top_p=0.9), 7)
    {'temperature': 1.0, 'top_p': 0.9, 'seed': 7}
    """
    fields: dict[str, Any] = {"temperature": sampling.temperature}
    values = {"top_p": sampling.top_p, "top_k": 0, "min_p": sampling.min_p}
    values["repetition_penalty"] = sampling.repetition_penalty
    fields |= {n: value for n, value in values.items() if all_of_them or value != OPTIONAL[n]}
    if sampling.stop:
        fields["stop"] = list(sampling.stop)
    if sampling.temperature > 0 and seed is not None:
        fields["seed"] = seed
    return fields


def lark(constraint: Constraint) -> str:
    r"""A constraint as one text in llguidance's dialect of Lark, which vLLM reads.

    White space in JSON is bounded so, and a regular expression read, as on the engines of this
    process.

    >>> print(lark(Regex(r"a/b\/c")))
    %llguidance {}
    <BLANKLINE>
    start: /a\/b\/c/
    """
    if isinstance(constraint, GrammarConstraint):
        return constraint.ll_grammar
    if isinstance(constraint, Regex):
        escaped = re.sub(r"(\\.)|/", lambda m: m[1] or r"\/", constraint.pattern, flags=re.DOTALL)
        rule = "/" + escaped.replace("\n", r"\n") + "/"
    else:
        schema = json.loads(llguidance_grammar(constraint))["grammars"][0]["json_schema"]
        rule = "%json " + json.dumps(schema)
    return f"%llguidance {{}}\n\nstart: {rule}"


# Token ids -----------------------------------------------------------------------------------


class LocalTokens:
    """The tokenizer of `serving.tokenizer`; ``digest`` is the SHA-256 (hex) of its files."""

    where = "serving.tokenizer"

    def __init__(self, place: Path, template: Path | None) -> None:
        self._tokenizer = load_tokenizer(place)
        self._template = text = read_template(template)
        if place.is_dir():
            self.digest = Checkpoint(place, place.name).tokenizer_digest(text)
        else:
            digest = hashlib.sha256(place.read_bytes()).hexdigest()
            both = hashlib.sha256(f"{digest}\n{text}".encode()).hexdigest()
            self.digest = both if text else digest

    async def render(self, messages: Sequence[Message]) -> list[int] | Failure:
        """The prompt of a conversation; a last assistant message is continued."""
        try:
            return render(self._tokenizer, messages, self._template)
        except AnswerError as error:
            return Failure("invalid", str(error))

    async def spell(self, options: Sequence[str]) -> list[list[int]] | Failure:
        """Each option's tokens as they follow a prompt."""
        return [encode_on(self._tokenizer, option) for option in options]


class VllmTokens:
    """vLLM's ``/tokenize``, which also renders conversations."""

    where, digest = "the server's /tokenize", ""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._spelled: dict[str, list[int]] = {}

    async def render(self, messages: Sequence[Message]) -> list[int] | Failure:
        """The prompt of a conversation; a last assistant message is continued."""
        continued = messages[-1].role == "assistant"
        return await self._encode(
            messages=[{"role": m.role, "content": m.content} for m in messages],
            add_generation_prompt=not continued,
            continue_final_message=continued,
        )

    async def spell(self, options: Sequence[str]) -> list[list[int]] | Failure:
        """Each option's tokens as they follow a prompt; requested once."""
        # SentencePiece puts a space before every text; behind a prompt there is none.
        if new := [option for option in options if option not in self._spelled]:
            texts = [_ANCHOR, *(_ANCHOR + option for option in new), *new]
            sent = [self._encode(prompt=text, add_special_tokens=False) for text in texts]
            encoded = []
            for ids in await gather(sent):
                if isinstance(ids, Failure):
                    return ids
                encoded.append(ids)
            anchor, anchored, alone = encoded[0], encoded[1 : 1 + len(new)], encoded[1 + len(new) :]
            for option, behind, bare in zip(new, anchored, alone, strict=True):
                begun = behind[: len(anchor)] == anchor
                self._spelled[option] = behind[len(anchor) :] if begun else bare
        return [self._spelled[option] for option in options]

    async def _encode(self, **body: Any) -> list[int] | Failure:
        url = self._client.root + "/tokenize"
        page = await self._client.page(url, {"model": self._client.model, **body})
        if isinstance(page, Failure):
            return page
        tokens = page.get("tokens")
        if not isinstance(tokens, list) or not all(type(t) is int for t in tokens):
            return Failure("engine_error", "the server's tokenizer gave no token ids")
        return tokens


# Probes --------------------------------------------------------------------------------------


class Server:
    """A server and its capabilities, which are empty until :meth:`probe` has run."""

    def __init__(self, client: Client, engine: EngineSettings, serving: ServingSettings) -> None:
        self.client = client
        self.kind: Literal["vllm", "llama.cpp", "ollama", "other"] = "other"
        self.version = ""
        #: Longest prompt and answer together (tokens); None where the server does not say.
        self.context = serving.max_context
        #: Tokenizer of prompts as token ids; None: every request goes to the chat endpoint.
        self.tokens: LocalTokens | VllmTokens | None = None
        self.reading: Reading = "none"
        #: Length of the list of most probable tokens; answers drawn for a choice that it does not
        #: hold; why there is no list.
        self.ranks, self.draws, self.reason = 0, engine.draws, ""
        #: How the fields of a form are asked for at the chat endpoint, and whether with patterns.
        self.style: FormStyle = "lines"
        self.patterns = True
        #: True if the model thinks before it answers, and the fields that turn this off, if any do.
        self.thinks = False
        self.switch: dict[str, Any] = {}
        #: Outcome of every probe, by its name.
        self.probed: dict[str, str] = {}
        self._engine, self._serving = engine, serving
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
    def constraints(self) -> str:
        """Description of the way that constraints are kept."""
        if self._grammars:
            return "structured_outputs"
        patterns = " with patterns" if self.patterns and self.style == "json_schema" else ""
        return f"checked here; grammars are asked for as {_STYLES[self.style]}{patterns}"

    @property
    def max_options(self) -> int | None:
        """Most options whose distribution can be given; None: any number."""
        return None if self.draws or self.reading == "token_ids" else self.ranks

    def metadata(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "server": self.kind,
            "server_version": self.version,
            "model": self.client.model,
            "context": self.context,
            "tokens": self.tokens.where if self.tokens else "none: chat endpoint only",
            "endpoint": "completions" if self.tokens else "chat",
            "reading": self.reading,
            "distributions": self.distributions,
            "max_options": self.max_options,
            "constraints": self.constraints,
            "thinks": self.thinks,
            "thinking_switch": self.switch or None,
            "left_out": dict(sorted(self.client.left_out.items())),
            "probes": dict(sorted(self.probed.items())),
            "answered_by": sorted(self.client.answered_by),
            "fingerprints": sorted(self.client.fingerprints),
        }

    def fields(
        self, sampling: Sampling, seed: int | None, *, chat: bool, room: int = 0
    ) -> tuple[dict[str, Any], int]:
        """Fields of a request's body that draw its answer, and the limit of its tokens.

        ``room`` is for tokens beside those of the answer (count); thoughts are added to it.
        """
        fields = sampling_fields(sampling, seed, all_of_them=self.kind in ("vllm", "llama.cpp"))
        limit = sampling.max_tokens + room
        if chat and self._thinking:
            limit += min(_THOUGHT, (self.context or 2 * _THOUGHT) // 2)
        return fields | {"max_tokens": limit} | (self.switch if chat else {}), limit

    def constraint_fields(self, constraint: Constraint | None) -> dict[str, Any]:
        """Fields of a request's body that hold an answer to a constraint; empty: none can."""
        if constraint is None or self._grammars:
            return {"structured_outputs": {"grammar": lark(constraint)}} if constraint else {}
        if not isinstance(constraint, JsonSchema) or self.style == "lines":
            return {}
        schema = self.style == "json_schema"
        return json_format(json.loads(constraint.schema)) if schema else JSON_MODE

    def form(self, constraint: Constraint | None) -> GrammarConstraint | None:
        """The grammar whose fields are asked for in its place, if the constraint is one."""
        if self._grammars or not isinstance(constraint, GrammarConstraint) or not constraint.form:
            return None
        return constraint

    def takes_ids(self, request: Request) -> bool:
        """True if a request goes to the completions endpoint, as token ids."""
        images = any(message.images for message in request.messages)
        return self.tokens is not None and not images and self.form(request.constraint) is None

    def note_reply(self, reply: Reply, *, patterns: bool) -> bool:
        """True if a reply shows what the probes did not, so that another try may succeed.

        It was cut in a thought, for which there is room from now on, or a form with patterns was
        refused, which are sent no longer.
        """
        if isinstance(reply, Completion):
            if not reply.thought or reply.finish != "length" or self._thinking:
                return False
            self.thinks, self.switch = True, {}
            return True
        if not patterns or reply.status != "invalid":
            return False
        self.patterns, self.probed["patterns of fields"] = False, reply.detail
        return True

    async def token_logprobs(
        self, prompts: Sequence[Sequence[int]], ids: Sequence[int], *, probe: bool = False
    ) -> list[Reply]:
        """Completions of prompts with the log-probabilities of exactly these first tokens."""
        fields, limit = self._first_token_fields(chat=False)
        fields |= {"logprobs": 1, _BY_IDS: [*ids], "return_tokens_as_token_ids": True}
        return await self.client.complete(prompts, fields, limit, probe=probe)

    async def listed(self, messages: Sequence[Message], *, probe: bool = False) -> Reply:
        """A chat's first token with the list of the most probable ones; sent again without one."""
        fields, limit = self._first_token_fields(chat=True)
        fields |= {"logprobs": True, "top_logprobs": self.ranks}
        reply = await self.client.chat(messages, fields, limit, probe=probe)
        if isinstance(reply, Failure) or reply.logprobs or reply.refusal:
            return reply
        again = await self.client.chat(messages, fields, limit, probe=probe)
        if isinstance(again, Completion):
            return replace(again, usage=reply.usage + again.usage)
        return again

    def _first_token_fields(self, *, chat: bool) -> tuple[dict[str, Any], int]:
        """Fields that draw the one token beside which probabilities are read.

        At temperature 1, so that a server that lists what it samples from lists the model's own.
        llama.cpp lists these at every temperature, and nothing beside a token that is a part of a
        character: there the most probable token is taken, which seldom is one. No seed: vLLM on a
        CPU dies of one in a prompt that it computes in parts.
        """
        sampling = Sampling(temperature=float(self.kind != "llama.cpp"), max_tokens=1)
        return self.fields(sampling, None, chat=chat)

    @property
    def _thinking(self) -> bool:
        return self.thinks and not self.switch

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
        await self._identify()
        prompt = await self._probe_token_ids()
        await self._probe_drawing(prompt)
        if prompt:
            grammar = {"structured_outputs": {"grammar": lark(_GRAMMAR)}}
            reply = await self._ask(_GREEDY, grammar, prompt=prompt)
            self._grammars = self._note_probe("structured_outputs", reply, "zq7vx")
        else:
            await self._probe_list()
        if not self._grammars:
            await self._probe_style()
        if self.client.over_budget is not None:
            raise self.client.over_budget

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

    def _note_probe(self, name: str, reply: Reply, expected: str) -> bool:
        """Note whether a probe's answer begins with the expected text."""
        if isinstance(reply, Failure):
            self.probed[name] = reply.detail
            return False
        text = "".join((reply.text or "").split())
        # A cut answer may be on the way: a model may fill JSON with white space.
        begun = reply.finish == "length" and len(text) >= 5 and expected.startswith(text)
        honoured = begun or text.startswith(expected)
        self.probed[name] = _HONOURED if honoured else _IGNORED
        return honoured

    async def _identify(self) -> None:
        """Find the kind of server, the model's name on it, and the context."""
        page = await self.client.page(self.client.address + "/models")
        data = page.get("data") if isinstance(page, dict) else None
        models = [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []
        if any(m.get("owned_by") == "vllm" for m in models):
            self.kind, self.version = "vllm", await self._stated("/version", "version")
        elif build := await self._stated("/props", "build_info"):
            # Its answers were read at the completions endpoint before: they have other keys.
            self.kind, self.version = "llama.cpp", f"{build} chat"
        elif version := await self._stated("/api/version", "version"):
            self.kind, self.version = "ollama", version
        names = [m["id"] for m in models if isinstance(m.get("id"), str)]
        self.client.model = self._find_model(names)
        for m in models:
            if m.get("id") == self.client.model:
                self._limit(m.get("max_model_len"))

    async def _stated(self, path: str, field: str) -> str:
        """A field of a page that is not of the interface; any fault means that there is none."""
        page: Any = {}
        with suppress(EngineError):
            page = await self.client.page(self.client.root + path)
        if not isinstance(page, dict):
            return ""
        stated = page.get("default_generation_settings")
        self._limit(stated.get("n_ctx") if isinstance(stated, dict) else None)
        return quote(str(page.get(field) or ""))

    def _find_model(self, names: list[str]) -> str:
        model = self._engine.model
        same = [n for n in names if model in (n, n.rsplit("/", 1)[-1], n.removesuffix(":latest"))]
        if model in names or len(same) == 1:
            self.probed["model"] = "listed"
            return model if model in names else same[0]
        if names and self.kind != "other":
            close = difflib.get_close_matches(model, names, n=3, cutoff=0.3) or names[:3]
            raise ConfigError(
                f"the server has no model {model}",
                where=f"engine.model; {self.client.address}",
                hint=f"it lists {', '.join(close)}",
            )
        # Hosted servers have names for models that they don't list.
        self.probed["model"] = "not listed" if names else "the server lists no models"
        return model

    def _limit(self, value: Any) -> None:
        if type(value) is int and value > 0:
            self.context = min(value, self.context or value)

    async def _probe_token_ids(self) -> list[int]:
        """Prompt with which the probabilities of chosen tokens are given; empty: they are not.

        Tokens are asked for that no list of the most probable would hold.
        """
        tokens = await self._find_tokens()
        if tokens is None:
            return []
        prompt, spelled = await tokens.render(_QUESTION), await tokens.spell(_UNLIKELY)
        if isinstance(prompt, Failure) or isinstance(spelled, Failure):
            failures = (r.detail for r in (prompt, spelled) if isinstance(r, Failure))
            self.probed[_BY_IDS] = next(failures)
            return []
        targets = [*dict.fromkeys(ids[0] for ids in spelled if ids)]
        [reply] = await self.token_logprobs([prompt], targets, probe=True)
        if isinstance(reply, Failure):
            self.probed[_BY_IDS] = reply.detail
            return []
        values = [reply.logprobs.get(f"token_id:{t}") for t in targets]
        if reply.usage.prompt != len(prompt):
            # A server that took the ids for text counts other tokens.
            self.probed[_BY_IDS] = f"misread: {reply.usage.prompt} tokens for {len(prompt)}"
        elif None in values:
            self.probed[_BY_IDS] = _IGNORED
        elif not _is_distribution(v for v in values if v is not None):
            self.probed[_BY_IDS] = "no probabilities"
        else:
            self.probed[_BY_IDS] = _HONOURED
            self.reading, self.tokens = "token_ids", tokens
            return prompt
        return []

    async def _find_tokens(self) -> LocalTokens | VllmTokens | None:
        server: VllmTokens | None = None
        if self.kind == "vllm":
            server = VllmTokens(self.client)
            try:
                mixed = await server.spell([_MIXED])
            except EngineError as error:  # a proxy that lets nothing through but the interface
                mixed = Failure("invalid", str(error))
            if isinstance(mixed, Failure):
                self.probed["server's tokens"] = mixed.detail
                server = None
        if self._serving.tokenizer is None:
            return server
        local = LocalTokens(self._serving.tokenizer, self._serving.chat_template)
        if server is not None:
            if await local.spell([_MIXED]) != mixed:
                raise ConfigError(
                    "the tokenizer does not belong to the server's model",
                    where=f"serving.tokenizer is {self._serving.tokenizer}",
                    hint="give the model's tokenizer, or unset it to use the server's",
                )
            self.probed["tokenizer"] = "the same as the server's"
        return local

    async def _probe_drawing(self, prompt: Sequence[int]) -> None:
        """Find fields that the server refuses, thoughts, and whether a seed repeats a draw.

        Most servers name the field that they refuse, and the client leaves it out. Where one does
        not, the request is tried without each optional field.
        """
        draw = await self._ask(_DRAWN, prompt=prompt)
        for name in OPTIONAL:
            if not isinstance(draw, Failure) or draw.status != "invalid":
                break
            words, self.client.left_out[name] = draw.detail, ""
            draw = await self._ask(_DRAWN, prompt=prompt)
            del self.client.left_out[name]
            if isinstance(draw, Completion):
                self.client.leave_out(name, words)
        if isinstance(draw, Failure):
            raise self.client.over_budget or EngineError(
                f"the server does not answer a question ({draw.detail})",
                where=self.client.address,
                hint="check serving.base_url, engine.model and serving.timeout",
            )
        if draw.thought and not prompt:
            await self._find_switch()
        replies = [await self._ask(_DRAWN, prompt=prompt) for _ in range(2)]
        texts = {reply.text if isinstance(reply, Completion) else None for reply in replies}
        repeats = len(texts) == 1 and None not in texts
        self.probed["seed"] = "repeats" if repeats else "does not repeat"

    async def _find_switch(self) -> None:
        """Try to turn the model's thinking off."""
        self.thinks = True
        self.probed["thinking"] = "can't be turned off"
        for self.switch in _SWITCHES:
            reply = await self._ask(_GREEDY)
            if not isinstance(reply, Failure) and reply.text and not reply.thought:
                self.probed["thinking"] = f"turned off by {next(iter(self.switch))}"
                return
        self.switch = {}

    async def _probe_list(self) -> None:
        """Find the longest list of most probable tokens that the server gives."""
        self.reading = "draws" if self.draws else "none"
        if self._thinking:
            self.reason = "the model thinks before it answers, and its first token is a thought's"
            return
        for self.ranks in _RANKS:
            reply = await self.listed(_QUESTION, probe=True)
            if isinstance(reply, Completion) or reply.detail.startswith("timeout"):
                break  # a shorter list would not be quicker
        if isinstance(reply, Failure):
            self.probed[_LISTS] = reply.detail
            self.reason = f"{_LISTS}: {reply.detail}"
        elif _is_distribution(reply.logprobs.values()):
            self.probed[_LISTS] = f"{_HONOURED} ({self.ranks} tokens)"
            self.reading = "ranks"
            return
        else:
            self.probed[_LISTS] = _IGNORED
            self.reason = "the server returns no log-probabilities of other tokens"
        self.ranks = 0

    async def _probe_style(self) -> None:
        """Find how the fields of a form are asked for."""
        reply = await self._ask(_GREEDY, json_format(_SCHEMA))
        if self._note_probe("json_schema", reply, '{"zq":"vx"}'):
            self.style = "json_schema"
            return
        reply = await self._ask(_GREEDY, JSON_MODE, messages=_IN_JSON)
        if self._note_probe("json_object", reply, "{"):
            self.style = "json_object"


def _is_distribution(values: Iterable[float]) -> bool:
    """True if numbers can be log-probabilities of different tokens."""
    numbers = list(values)
    if any(v > 1e-3 for v in numbers) or len({round(v, 6) for v in numbers}) < 2:
        return False
    return math.fsum(math.exp(v) for v in numbers) <= 1.01
