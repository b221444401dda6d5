"""Capabilities of a server, found by probes.

A server that does not know a field may refuse it, or leave it out without a word and answer as
if nothing had been asked. Every probe is therefore made so that an answer without the field is
another answer than one with it.
"""

from __future__ import annotations

import asyncio
import difflib
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines._protocol import (
    Choice,
    Constraint,
    GrammarConstraint,
    JsonSchema,
    Message,
    Regex,
    Sampling,
)
from pipelines.llm.engines.openai._client import OPTIONAL, Client, Completion, Failure
from pipelines.llm.engines.openai._encoding import (
    DEFAULTS,
    ENCODINGS,
    ConstraintEncoding,
    Endpoint,
    LlamaCppTokens,
    LocalTokens,
    Tokens,
    VllmTokens,
    sampling_fields,
)
from pipelines.llm.engines.openai._forms import FormStyle

#: Ways to read the distribution over the options of a choice.
#: ``token_ids``: the server gives the log-probability of exactly the tokens that are asked for.
#: ``ranks``: the options are looked for among the most probable tokens that it lists.
#: ``draws``: answers are drawn and counted; an estimate. ``none``: not at all.
Reading = Literal["token_ids", "ranks", "draws", "none"]

_DISTRIBUTIONS: dict[Reading, str] = {
    "token_ids": "exact: log-probabilities of the options' own tokens (logprob_token_ids)",
    "ranks": "from the {ranks} most probable tokens that the server lists",
    "draws": "ESTIMATE: shares among {draws} answers drawn ({reason})",
    "none": "not readable ({reason})",
}
_OWNERS = {"vllm": "vllm", "llamacpp": "llama.cpp", "library": "ollama"}
_QUESTION = (Message("user", "Name a colour."),)
_BARE = "The sky is"
#: Texts whose first tokens are looked up; no model begins an answer with all of them.
_UNLIKELY = ("zq", "7", "K", "!", "Xv")
_RANKS = (100, 20, 5)
_BY_IDS = "logprob_token_ids"
_IGNORED = "silently ignored"
_GREEDY = Sampling(temperature=0.0, max_tokens=24)
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
_JSON = (Message("user", 'Name a colour in JSON, in this form: {"colour": "..."}'),)
_MIXED = "Un été à Zürich: «日本» costs 10 or 100 €,\n  isn't it?\t5"

#: Per kind, a constraint under which the answer has nothing to do with the question.
_WANTED: dict[str, tuple[Constraint, str]] = {
    "regex": (Regex("zq[7]vx"), "zq7vx"),
    "json": (
        JsonSchema(
            '{"type": "object", "properties": {"zq": {"type": "string", "enum": ["vx"]}}, '
            '"required": ["zq"], "additionalProperties": false}'
        ),
        '{"zq":"vx"}',
    ),
    "grammar": (GrammarConstraint('%llguidance {}\n\nstart: "zq" "7" "vx"'), "zq7vx"),
    "choice": (Choice(("zq7vx", "zq8vx")), "zq"),
}


class Capabilities:
    """Capabilities of a server; empty until :meth:`probe` has run.

    Attributes
    ----------
    defaults
        The server's defaults of sampling, where they are not those of the interface.
    thinks, switch
        Whether the model thinks before it answers; the fields that turn this off, if any do.
    reason
        Why no distribution is read from probabilities; empty if one is.
    server, version
        Kind (``vllm``, ``llama.cpp``, ``ollama``, ``other``) and version as it reports them.
    context
        Longest prompt and answer together (tokens); None where it does not say.
    tokens
        Tokenizer in use; None: there is none, so that only the chat endpoint is used.
    endpoint, choice_endpoint
        Endpoints that texts, and choices, are asked for at.
    reading, ranks, draws
        Way to read a choice; length of the list of most probable tokens; answers drawn per choice
        where the list does not hold it, or there is none.
    limit_field
        Name of the chat endpoint's field for the longest answer.
    probed
        Outcome of every probe, by its name.
    """

    def __init__(self, client: Client, engine: EngineSettings, serving: ServingSettings) -> None:
        self.server, self.version = "other", ""
        self.context: int | None = None
        self.tokens: Tokens | None = None
        self.endpoint: Endpoint = "chat"
        self.choice_endpoint: Endpoint = "chat"
        self.reading: Reading = "none"
        self.ranks, self.draws = 0, engine.draws
        self.defaults: dict[str, Any] = {}
        self.thinks, self.reason = False, ""
        self.switch: dict[str, Any] = {}
        self.limit_field = "max_tokens"
        self.probed: dict[str, str] = {}
        self._client, self._engine, self._serving = client, engine, serving
        self._style: FormStyle | None = None
        self._prompt: list[int] | None = None
        self._encodings: dict[tuple[Endpoint, str], ConstraintEncoding | None] = {}
        self._locks: dict[tuple[Endpoint, str], asyncio.Lock] = {}

    @property
    def distributions(self) -> str:
        """Description of the way that choices are read."""
        text = _DISTRIBUTIONS[self.reading].format(
            ranks=self.ranks, draws=self.draws, reason=self.reason
        )
        if self.reading == "ranks" and self.draws:
            text += f"; where that leaves too much open, shares among {self.draws} answers drawn"
        return text

    def choice_fault(self, options: int) -> str:
        """Why a choice among so many options can't be answered; empty if it can."""
        if self.max_options is None or options <= self.max_options:
            return ""
        listed = f"the server lists {self.ranks} probable tokens"
        return f"no distribution over {options} answers ({self.reason or listed})"

    @property
    def max_options(self) -> int | None:
        """Most options whose distribution can be given; None: any number."""
        if self.draws or self.reading == "token_ids" or self.choice_endpoint == "completions":
            return None if self.reading != "none" else 0
        return self.ranks

    @property
    def first_token(self) -> Sampling:
        """Sampling of the one token whose list of probable tokens is read; it is not used itself.

        At temperature 1, so that a server that lists what it samples from lists the model's own.
        llama.cpp lists these at every temperature, and nothing beside a token that is a part of a
        character: there the most probable token is taken, which seldom is one.
        """
        return Sampling(temperature=float(self.server != "llama.cpp"), max_tokens=1)

    def fields(
        self, sampling: Sampling, seed: int | None, endpoint: Endpoint, room: int = 0
    ) -> tuple[dict[str, Any], int]:
        """Fields of a request's body that draw its answer, and the limit of its tokens.

        ``room`` is for tokens beside those of the answer (count); thoughts are added to it.
        """
        fields = sampling_fields(sampling, seed, self.server, self.defaults)
        if "repeat_penalty" in fields and self.context is not None:
            fields["repeat_last_n"] = self.context
        limit = sampling.max_tokens + room
        if endpoint == "completions":
            return fields | {"max_tokens": limit}, limit
        if self.thinks and not self.switch:
            limit += min(_THOUGHT, (self.context or 2 * _THOUGHT) // 2)
        return fields | self.switch | {self.limit_field: limit}, limit

    def note_thoughts(self, ones: Sequence[Completion | Failure]) -> bool:
        """Whether a reply was cut in a thought that the probes had not shown: there is room now."""
        cut = any(isinstance(o, Completion) and o.thought and o.finish == "length" for o in ones)
        if not cut or (self.thinks and not self.switch):
            return False
        self.thinks, self.switch = True, {}
        return True

    async def form_style(self) -> FormStyle:
        """How the fields of a form are asked for at the chat endpoint; probed once."""
        if await self.encoding("chat", "json") is not None:
            return "json_schema"
        async with self._locks.setdefault(("chat", "form"), asyncio.Lock()):
            if self._style is None:
                extra = {"response_format": {"type": "json_object"}}
                one = await self._ask("chat", _GREEDY, extra, messages=_JSON)
                text = "" if isinstance(one, Failure) else (one.text or "").strip()
                self._style = "json_object" if text.startswith("{") else "lines"
                self.probed["json_object"] = _outcome(one) if text[:1] != "{" else "honoured"
        return self._style

    async def encoding(self, endpoint: Endpoint, kind: str) -> ConstraintEncoding | None:
        """Encoding of a kind of constraint for the server, or None; probed once."""
        place = (endpoint, kind)
        async with self._locks.setdefault(place, asyncio.Lock()):
            if place not in self._encodings:
                self._encodings[place] = await self._probe_encoding(endpoint, kind)
        return self._encodings[place]

    def metadata(self) -> dict[str, Any]:
        """JSON-ready."""
        named = {
            f"{kind} ({endpoint})": encoding.name if encoding else None
            for (endpoint, kind), encoding in sorted(self._encodings.items())
        }
        return {
            "server": self.server,
            "server_version": self.version,
            "model": self._client.model,
            "context": self.context,
            "tokens": self.tokens.where if self.tokens else "none: chat endpoint only",
            "endpoint": self.endpoint,
            "choice_endpoint": self.choice_endpoint,
            "prompts_per_request": "many" if self._client.many else "one",
            "reading": self.reading,
            "distributions": self.distributions,
            "max_options": self.max_options,
            "constraints": named,
            "thinks": self.thinks,
            "thinking_switch": self.switch or None,
            "left_out": dict(sorted(self._client.left_out.items())),
            "probes": dict(sorted(self.probed.items())),
            "answered_by": sorted(self._client.answered_by),
            "fingerprints": sorted(self._client.fingerprints),
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
        self.tokens = await self._find_tokens()
        self._prompt = await self._make_prompt()
        if self._prompt is not None and await self._probe_completions(self._prompt):
            self.endpoint = "completions"
        else:
            self.tokens = None
            await self._probe_chat()
        await self._probe_sampling()
        await self._find_reading()
        for kind in ("regex", "json", "grammar", *(["choice"] if self.reading == "draws" else [])):
            await self.encoding(self.endpoint, kind)
        if self._client.spent is not None:
            raise self._client.spent

    # Server and model -------------------------------------------------------------------------

    async def _find_server(self) -> None:
        api, root = self._client.address.api, self._client.address.root
        listed = await self._client.request(api + "/models", tries=2, mode="probe")
        data = None if isinstance(listed, Failure) else listed.body.get("data")
        models = [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []
        owners = {m.get("owned_by") for m in models}
        self.server = next((k for o, k in _OWNERS.items() if o in owners), "other")
        if self.server == "vllm":
            self.version = await self._field(root + "/version", "version")
        elif self.server in ("llama.cpp", "other"):
            found = await self._client.request(root + "/props", tries=2)
            settings = {} if isinstance(found, Failure) else found.body
            if isinstance(own := settings.get("default_generation_settings"), dict):
                build = settings.get("build_info")
                self.server, self.version = "llama.cpp", build if isinstance(build, str) else ""
                self._limit(own.get("n_ctx"))
                stated = own.get("params")
                numbers = stated.items() if isinstance(stated, dict) else ()
                self.defaults = {k: v for k, v in numbers if k in OPTIONAL and _is_number(v)}
        if self.server in ("ollama", "other"):
            version = await self._field(root + "/api/version", "version")
            if version:
                self.server, self.version = "ollama", version
        self.defaults = DEFAULTS.get(self.server, {}) | self.defaults
        self._client.model = self._find_model([m for m in models if isinstance(m.get("id"), str)])
        own = next((m for m in models if m.get("id") == self._client.model), {})
        self._limit(own.get("max_model_len"))
        self._limit(self._serving.max_context)

    async def _field(self, url: str, field: str) -> str:
        found = await self._client.request(url, tries=2)
        value = None if isinstance(found, Failure) else found.body.get(field)
        return self._client.address.quote(value) if isinstance(value, str) else ""

    def _find_model(self, models: list[dict[str, Any]]) -> str:
        wanted, names = self._engine.model, [m["id"] for m in models]
        same = [n for n in names if wanted in (n, n.rsplit("/", 1)[-1], n.removesuffix(":latest"))]
        if wanted in names or len(same) == 1:
            self.probed["model"] = "listed"
            return wanted if wanted in names else str(same[0])
        if names and self.server != "other":
            close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.3) or names[:3]
            raise ConfigError(
                f"the server has no model {wanted}",
                where=f"engine.model; {self._client.address.api}",
                hint=f"it lists {', '.join(close)}",
            )
        # Hosted servers have names for models that they don't list.
        self.probed["model"] = "not listed" if names else "the server lists no models"
        return wanted

    def _limit(self, value: Any) -> None:
        if type(value) is int and value > 0:
            self.context = min(value, self.context or value)

    # Token ids --------------------------------------------------------------------------------

    async def _find_tokens(self) -> Tokens | None:
        server = await self._server_tokens()
        if self._serving.tokenizer is None:
            return server
        local = LocalTokens(self._serving)
        if server is not None:
            if await local.spell([_MIXED]) != await server.spell([_MIXED]):
                raise ConfigError(
                    "the tokenizer does not belong to the server's model",
                    where=f"serving.tokenizer is {self._serving.tokenizer}",
                    hint="give the model's tokenizer, or unset it to use the server's",
                )
            self.probed["tokenizer"] = "the same as the server's"
        return local

    async def _server_tokens(self) -> Tokens | None:
        kind = {"vllm": VllmTokens, "llama.cpp": LlamaCppTokens}.get(self.server)
        if kind is None:
            return None
        tokens: Tokens = kind(self._client)
        spelled = await tokens.spell([_BARE])
        if isinstance(spelled, Failure) or not spelled[0]:
            self.probed["server's tokens"] = _why(spelled)
            return None
        return tokens

    async def _make_prompt(self) -> list[int] | None:
        if self.tokens is None:
            return None
        rendered = await self.tokens.render(_QUESTION)
        if not isinstance(rendered, Failure) and rendered:
            return rendered
        self.probed["chat template"] = _why(rendered)
        spelled = await self.tokens.spell([_BARE])
        return None if isinstance(spelled, Failure) else spelled[0]

    # Endpoints --------------------------------------------------------------------------------

    async def _probe_completions(self, prompt: list[int]) -> bool:
        """Probe prompts as token ids, and several prompts per request."""
        longer = [*prompt, prompt[-1]]
        fields, _ = self.fields(self.first_token, None, "completions")
        for many, prompts in ((True, [prompt, longer]), (False, [longer])):
            self._client.many = many
            sent = await self._client.complete(
                prompts, fields, 1, tries=2, mode="probe", divide=False
            )
            name = "many prompts" if many else "token ids"
            failure = next((one for one in sent if isinstance(one, Failure)), None)
            if failure is not None:
                self.probed[name] = failure.detail
                continue
            # A server that took the ids for text would count other tokens.
            counted = sum(one.cost.usage.prompt for one in sent if isinstance(one, Completion))
            if counted == sum(map(len, prompts)):
                self.probed[name] = "honoured"
                return True
            self.probed[name] = f"misread: {counted} tokens for {sum(map(len, prompts))}"
        return False

    async def _probe_chat(self) -> None:
        """Probe the chat endpoint, and its name for the maximum number of tokens."""
        for field in ("max_tokens", "max_completion_tokens"):
            one = await self._client.chat(_QUESTION, {field: 16}, 16, tries=2, mode="probe")
            if isinstance(one, Failure):
                self.probed["chat"] = one.detail
                if one.status == "engine_error":
                    break
                continue
            self.limit_field = field
            self.probed["chat"] = f"honoured ({field})"
            if one.thought:
                await self._find_switch()
            return
        raise EngineError(
            f"the server answers neither completions nor chat ({self.probed['chat']})",
            where=self._client.address.api,
            hint="check serving.base_url, engine.model and serving.timeout",
        )

    async def _find_switch(self) -> None:
        """Try to turn the model's thinking off."""
        self.thinks = True
        outcome = "can't be turned off"
        for switch in _SWITCHES:
            self.switch = switch
            one = await self._ask("chat", _GREEDY, {})
            if not isinstance(one, Failure) and one.text and not one.thought:
                outcome = f"turned off by {next(iter(switch))}"
                break
            self.switch = {}
        self.probed["thinking"] = outcome

    async def _ask(
        self,
        endpoint: Endpoint,
        sampling: Sampling,
        extra: dict[str, Any],
        *,
        seed: int | None = None,
        tries: int = 2,
        messages: Sequence[Message] = _QUESTION,
    ) -> Completion | Failure:
        """Ask the probes' question in few tokens."""
        fields, limit = self.fields(sampling, seed, endpoint)
        fields |= extra
        if endpoint == "chat":
            return await self._client.chat(messages, fields, limit, tries=tries, mode="probe")
        if self._prompt is None:
            return Failure("invalid", "no prompt to try it with")
        [one] = await self._client.complete(
            [self._prompt], fields, limit, tries=tries, mode="probe"
        )
        return one

    async def _probe_sampling(self) -> None:
        """Find optional fields that the server refuses, and whether a seed repeats a draw.

        Most servers name the field that they refuse, and the client leaves it out. Where one does
        not, the request is tried without each.
        """
        drawn = Sampling(temperature=1.0, max_tokens=8)
        one = await self._ask(self.endpoint, drawn, {}, seed=11)
        if isinstance(one, Failure) and one.status == "invalid":
            sent, _ = self.fields(drawn, 11, self.endpoint)
            for name in (n for n in OPTIONAL if n in sent):
                before = dict(self._client.left_out)
                self._client.left_out[name] = one.detail
                without = await self._ask(self.endpoint, drawn, {}, seed=11)
                self._client.left_out = before
                if not isinstance(without, Failure):
                    self._client.leave_out(name, one.detail)
                    one = without
                    break
        if isinstance(one, Failure):
            raise EngineError(
                f"the server does not draw an answer ({one.detail})",
                where=self._client.address.api,
                hint="check engine.model, and serving.timeout if it is slow",
            )
        again = await self._ask(self.endpoint, drawn, {}, seed=11)
        same = not isinstance(again, Failure) and one.text is not None and one.text == again.text
        self.probed["seed"] = "repeats" if same else "does not repeat"

    # Distributions ----------------------------------------------------------------------------

    async def _find_reading(self) -> None:
        if self.endpoint == "completions":
            if await self._probe_token_ids():
                self.choice_endpoint, self.reading = "completions", "token_ids"
                return
            if await self._probe_ranks("completions"):
                self.choice_endpoint, self.reading = "completions", "ranks"
                return
        if self.thinks and not self.switch:
            self.reason = "the model thinks before it answers, and its first token is a thought's"
        elif await self._probe_ranks("chat"):
            self.choice_endpoint, self.reading, self.reason = "chat", "ranks", ""
            return
        self.choice_endpoint = self.endpoint
        if self.draws:
            self.reading = "draws"

    async def _probe_token_ids(self) -> bool:
        """Ask for tokens that no list of the most probable would hold; twice, overlapping."""
        assert self.tokens is not None
        spelled = await self.tokens.spell(_UNLIKELY)
        wanted = [] if isinstance(spelled, Failure) else [s[0] for s in spelled if s]
        wanted = list(dict.fromkeys(wanted))
        if len(wanted) < 4:
            self.probed[_BY_IDS] = "no tokens to try it with"
            return False
        found = []
        for ids in (wanted[:3], wanted[1:4]):
            extra = {"logprobs": 1, _BY_IDS: ids, "return_tokens_as_token_ids": True}
            one = await self._ask("completions", self.first_token, extra)
            if isinstance(one, Failure) or any(t not in one.ids for t in ids):
                self.probed[_BY_IDS] = one.detail if isinstance(one, Failure) else _IGNORED
                return False
            found.append({t: one.ids[t] for t in ids})
        same = all(abs(found[0][t] - found[1][t]) <= _SAME for t in wanted[1:3])
        honoured = same and all(_is_distribution(f.values()) for f in found)
        self.probed[_BY_IDS] = "honoured" if honoured else "no probabilities"
        return honoured

    async def _probe_ranks(self, endpoint: Endpoint) -> bool:
        """Find the longest list of most probable tokens that the server gives."""
        chat = endpoint == "chat"
        name = "top_logprobs (chat)" if chat else "logprobs"
        for count in _RANKS:
            extra: dict[str, Any] = {"logprobs": True, "top_logprobs": count}
            if not chat:
                extra = {"logprobs": count}
                if self.server == "vllm":
                    extra["return_tokens_as_token_ids"] = True
            one = await self._ask(endpoint, self.first_token, extra)
            if isinstance(one, Failure):
                self.probed[name] = one.detail
                self.reason = f"{name}: {one.detail}"
                if one.detail.startswith("timeout"):
                    return False  # a shorter list would not be quicker
                continue
            ranks = [*(one.texts if chat else one.ids).values()]
            if _is_distribution(ranks):
                self.ranks = count
                self.probed[name] = f"honoured ({len(ranks)} tokens)"
                return True
            named = not chat and len(one.texts) > 1 and not one.ids
            self.probed[name] = "without token ids" if named else _IGNORED
            self.reason = "the server returns no log-probabilities of other tokens"
            return False
        return False

    # Constraints and seeds --------------------------------------------------------------------

    async def _probe_encoding(self, endpoint: Endpoint, kind: str) -> ConstraintEncoding | None:
        """The first encoding of a kind of constraint that the server honours."""
        constraint, wanted = _WANTED[kind]
        outcomes, found = [], None
        for encoding in ENCODINGS[kind]:
            if encoding.server not in ("", self.server):
                continue
            one = await self._ask(endpoint, _GREEDY, encoding.fields(constraint), tries=1)
            if isinstance(one, Failure):
                outcomes.append(f"{encoding.name}: {one.detail}")
                continue
            text = "".join((one.text or "").split())
            # A cut answer may be on the way: a model may fill JSON with white space.
            begun = one.finish == "length" and len(text) >= 5 and wanted.startswith(text)
            if text.startswith(wanted) or begun:
                outcomes.append(f"{encoding.name} honoured")
                found = encoding
                break
            outcomes.append(f"{encoding.name} {_IGNORED}")
        self.probed[f"{kind} ({endpoint})"] = "; ".join(outcomes) or "checked here"
        return found


def _outcome(one: Completion | Failure) -> str:
    return one.detail if isinstance(one, Failure) else _IGNORED


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _why(found: Any) -> str:
    return found.detail if isinstance(found, Failure) else "no token ids"


def _is_distribution(values: Iterable[float]) -> bool:
    """Whether numbers can be log-probabilities of different tokens."""
    numbers = list(values)
    if any(v > 1e-3 for v in numbers) or len({round(v, 6) for v in numbers}) < 2:
        return False
    return math.fsum(math.exp(v) for v in numbers) <= 1.01
