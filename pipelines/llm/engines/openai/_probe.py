"""What the server really does with what it is asked for.

A server that does not know a field may refuse it, or leave it out without a word and answer as
if nothing had been asked. Every probe is therefore made so that an answer without the field is
another answer than one with it.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Sequence
from typing import Any

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
from pipelines.llm.engines.openai._capabilities import Capabilities, Endpoint
from pipelines.llm.engines.openai._client import Client, One
from pipelines.llm.engines.openai._encodings import (
    ENCODINGS,
    ConstraintEncoding,
    neutral,
    sampling_fields,
)
from pipelines.llm.engines.openai._http import Connection, Failure
from pipelines.llm.engines.openai._replies import Place
from pipelines.llm.engines.openai._tokens import LlamaCppTokens, LocalTokens, Tokens, VllmTokens

__all__ = ["CapabilityProbe", "find_server"]

_ASKED = (Message("user", "Name a colour."),)
_BARE = "The sky is"
#: Texts whose first tokens are looked up; no model begins an answer with all of them.
_UNLIKELY = ("zq", "7", "K", "!", "Xv")
_RANKS = (100, 20, 5)
_BY_IDS = "logprob_token_ids"
_FIRST = Sampling(temperature=1.0, max_tokens=1)
#: What the logarithm of one probability may move between two requests (16-bit weights).
_SAME = 0.5
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


class CapabilityProbe:
    """Finds out what a server can do.

    Parameters
    ----------
    client
        The server; its capabilities are filled in.
    engine, serving
        The settings.
    """

    def __init__(self, client: Client, engine: EngineSettings, serving: ServingSettings) -> None:
        self._client = client
        self._can: Capabilities = client.capabilities
        self._engine = engine
        self._serving = serving
        self._prompt: list[int] | None = None

    async def run(self) -> None:
        """Probe everything.

        Raises
        ------
        ConfigError
            If the configured tokenizer is not the model's.
        EngineError
            If the server can't answer at all.
        """
        self._can.tokens = await self._find_tokens()
        prompt = self._prompt = await self._make_prompt()
        if prompt is not None and await self._completes(prompt):
            self._can.endpoint = "completions"
        else:
            self._can.tokens = None
            await self._chats()
        await self._find_reading(prompt)
        kinds = ["regex", "json", "grammar"]
        if self._can.reading == "draws":
            kinds.append("choice")
        for kind in kinds:
            await self._can.encoding(self._can.endpoint, kind, self.find_encoding)
        await self._find_seed(prompt)
        if self._client.spent is not None:
            raise self._client.spent

    # Token ids ---------------------------------------------------------------------------

    async def _find_tokens(self) -> Tokens | None:
        server = await self._server_tokens()
        if self._serving.tokenizer is None:
            return server
        local = LocalTokens(self._serving)
        if server is not None:
            ours, theirs = await local.spell([_MIXED]), await server.spell([_MIXED])
            if ours != theirs:
                raise ConfigError(
                    "the tokenizer is not the one of the server's model",
                    where=f"serving.tokenizer is {self._serving.tokenizer}",
                    hint="give the tokenizer of the model, or leave it out to use the server's",
                )
            self._can.probed["tokenizer"] = "the same as the server's"
        return local

    async def _server_tokens(self) -> Tokens | None:
        connection, model = self._client.connection, self._can.model
        tokens: VllmTokens | LlamaCppTokens
        if self._can.server == "vllm":
            tokens = VllmTokens(connection, model)
        elif self._can.server == "llama.cpp":
            tokens = LlamaCppTokens(connection, model)
        else:
            return None
        spelled = await tokens.spell([_BARE])
        if isinstance(spelled, Failure) or not spelled[0]:
            self._can.probed["server's tokens"] = _why(spelled)
            return None
        return tokens

    async def _make_prompt(self) -> list[int] | None:
        if self._can.tokens is None:
            return None
        rendered = await self._can.tokens.render(_ASKED)
        if not isinstance(rendered, Failure) and rendered:
            return rendered
        self._can.probed["chat template"] = _why(rendered)
        spelled = await self._can.tokens.spell([_BARE])
        return None if isinstance(spelled, Failure) else spelled[0]

    # Endpoints ---------------------------------------------------------------------------

    async def _completes(self, prompt: list[int]) -> bool:
        """Whether token ids can be sent, and many prompts at once."""
        longer = [*prompt, prompt[-1]]
        fields = sampling_fields(_FIRST, None, "max_tokens")
        for many, prompts in ((True, [prompt, longer]), (False, [longer])):
            self._can.many = many
            sent = await self._client.complete(
                prompts, fields, 1, tries=2, mode="probe", divide=False
            )
            name = "many prompts" if many else "token ids"
            fault = next((one for one in sent if isinstance(one, Failure)), None)
            if fault is None:
                counts = sum(one.cost.usage.prompt for one in sent if isinstance(one, One))
                # A server that took the ids for text would count other tokens.
                if counts == sum(map(len, prompts)):
                    self._can.probed[name] = "honoured"
                    return True
                self._can.probed[name] = f"misread: {counts} tokens for {sum(map(len, prompts))}"
            else:
                self._can.probed[name] = fault.detail
        return False

    async def _chats(self) -> None:
        """Whether the chat endpoint answers, and what it calls the longest answer."""
        for field in ("max_tokens", "max_completion_tokens"):
            fields = {field: 4}
            one = await self._client.chat(_ASKED, fields, 4, tries=2, mode="probe")
            if not isinstance(one, Failure):
                self._can.limit_field = field
                self._can.probed["chat"] = f"honoured ({field})"
                return
            self._can.probed["chat"] = one.detail
        raise EngineError(
            f"the server answers neither completions nor chat ({self._can.probed['chat']})",
            where=self._client.connection.address.api,
            hint="check serving.base_url and engine.model",
        )

    # Distributions -----------------------------------------------------------------------

    async def _find_reading(self, prompt: list[int] | None) -> None:
        if prompt is not None and self._can.endpoint == "completions":
            self._can.choice_endpoint = "completions"
            if await self._takes_token_ids(prompt):
                self._can.reading = "token_ids"
                return
            ranks = await self._lists_ranks(prompt)
            echoes = await self._echoes(prompt)
            if ranks:
                self._can.reading = "ranks"
                self._can.fallback = "echo" if echoes else "none"
                return
            if echoes:
                self._can.reading = "echo"
                return
        if await self._chat_ranks():
            self._can.choice_endpoint, self._can.reading = "chat", "ranks"
            return
        self._can.choice_endpoint = self._can.endpoint
        if self._engine.draws:
            self._can.reading, self._can.draws = "draws", self._engine.draws

    async def _takes_token_ids(self, prompt: list[int]) -> bool:
        """Ask for tokens that no list of the most probable would hold; twice, overlapping."""
        wanted = await self._unlikely()
        if len(wanted) < 4:
            self._can.probed[_BY_IDS] = "no tokens to try it with"
            return False
        places = []
        for ids in (wanted[:3], wanted[1:4]):
            fields = {
                "logprobs": 1,
                "logprob_token_ids": ids,
                "return_tokens_as_token_ids": True,
            }
            one = await self._first(prompt, fields)
            if isinstance(one, Failure):
                self._can.probed[_BY_IDS] = one.detail
                return False
            place = one.reply.places[0] if one.reply.places else Place(None)
            if any(t not in place.ids for t in ids):
                self._can.probed[_BY_IDS] = "ignored without a word"
                return False
            places.append({t: place.ids[t] for t in ids})
        one_said, other = places
        same = all(abs(one_said[t] - other[t]) <= _SAME for t in wanted[1:3])
        sane = all(_is_distribution(p.values()) for p in places)
        self._can.probed[_BY_IDS] = "honoured" if same and sane else "no probabilities"
        return same and sane

    async def _unlikely(self) -> list[int]:
        assert self._can.tokens is not None
        spelled = await self._can.tokens.spell(_UNLIKELY)
        if isinstance(spelled, Failure):
            return []
        return list(dict.fromkeys(s[0] for s in spelled if s))

    async def _lists_ranks(self, prompt: list[int]) -> bool:
        for most in _RANKS:
            fields: dict[str, Any] = {"logprobs": most}
            if self._can.server == "vllm":
                fields["return_tokens_as_token_ids"] = True
            one = await self._first(prompt, fields)
            if isinstance(one, Failure):
                self._can.probed["logprobs"] = one.detail
                continue
            place = one.reply.places[0] if one.reply.places else Place(None)
            if _is_list(place.ids.values()):
                self._can.ranks = most
                self._can.probed["logprobs"] = f"honoured ({len(place.ids)} tokens)"
                return True
            named = len(place.texts) > 1 and not place.ids
            self._can.probed["logprobs"] = (
                "without token ids" if named else "ignored without a word"
            )
            return False
        return False

    async def _echoes(self, prompt: list[int]) -> bool:
        one = await self._first(prompt, {"echo": True, "logprobs": 1})
        if isinstance(one, Failure):
            self._can.probed["echo"] = one.detail
            return False
        places = one.reply.places
        values = [p.logprob for p in places[1 : len(prompt)] if p.logprob is not None]
        enough = len(places) >= len(prompt) and len(values) == len(prompt) - 1
        right = enough and len(set(values)) > 1 and max(values) <= 1e-3
        self._can.probed["echo"] = "honoured" if right else "ignored without a word"
        return right

    async def _chat_ranks(self) -> bool:
        for most in _RANKS:
            fields = sampling_fields(_FIRST, None, self._can.limit_field)
            fields |= neutral(self._can.server) | {"logprobs": True, "top_logprobs": most}
            one = await self._client.chat(_ASKED, fields, 1, tries=2, mode="probe")
            if isinstance(one, Failure):
                self._can.probed["top_logprobs (chat)"] = one.detail
                continue
            place = one.reply.places[0] if one.reply.places else Place(None)
            if _is_list(place.texts.values()):
                self._can.ranks = most
                said = f"honoured ({len(place.texts)} tokens)"
                self._can.probed["top_logprobs (chat)"] = said
                return True
            self._can.probed["top_logprobs (chat)"] = "ignored without a word"
            return False
        return False

    async def _first(self, prompt: Sequence[int], fields: dict[str, Any]) -> One | Failure:
        body = sampling_fields(_FIRST, None, "max_tokens") | neutral(self._can.server) | fields
        [one] = await self._client.complete([prompt], body, 1, tries=2, mode="probe")
        return one

    # Constraints -------------------------------------------------------------------------

    async def find_encoding(self, endpoint: Endpoint, kind: str) -> ConstraintEncoding | None:
        """The first way to say a kind of constraint that the server honours."""
        constraint, wanted = _WANTED[kind]
        outcomes = []
        for encoding in ENCODINGS[kind]:
            one = await self._constrained(endpoint, encoding.fields(constraint))
            if isinstance(one, Failure):
                outcomes.append(f"{encoding.name} refused")
                continue
            said = "".join((one.reply.text or "").split())
            if said.startswith(wanted) or (one.reply.finish == "length" and _begun(said, wanted)):
                outcomes.append(f"{encoding.name} honoured")
                self._can.probed[f"{kind} ({endpoint})"] = "; ".join(outcomes)
                return encoding
            outcomes.append(f"{encoding.name} ignored without a word")
        self._can.probed[f"{kind} ({endpoint})"] = "; ".join(outcomes)
        return None

    async def _constrained(self, endpoint: Endpoint, extra: dict[str, Any]) -> One | Failure:
        greedy = Sampling(temperature=0.0, max_tokens=24)
        field = self._can.limit_field if endpoint == "chat" else "max_tokens"
        fields = sampling_fields(greedy, None, field) | neutral(self._can.server) | extra
        if endpoint == "chat":
            return await self._client.chat(_ASKED, fields, 24, tries=1, mode="probe")
        if self._prompt is None:
            return Failure("invalid", "no prompt to try it with")
        [one] = await self._client.complete([self._prompt], fields, 24, tries=1, mode="probe")
        return one

    # Seeds -------------------------------------------------------------------------------

    async def _find_seed(self, prompt: list[int] | None) -> None:
        """Whether the same seed draws the same answer; nothing can be done if it does not."""
        drawn = Sampling(temperature=1.0, max_tokens=8)
        texts = []
        for _ in range(2):
            fields = neutral(self._can.server)
            if prompt is not None and self._can.endpoint == "completions":
                fields |= sampling_fields(drawn, 11, "max_tokens")
                [one] = await self._client.complete([prompt], fields, 8, tries=2, mode="probe")
            else:
                fields |= sampling_fields(drawn, 11, self._can.limit_field)
                one = await self._client.chat(_ASKED, fields, 8, tries=2, mode="probe")
            texts.append(None if isinstance(one, Failure) else one.reply.text)
        same = texts[0] is not None and texts[0] == texts[1]
        self._can.probed["seed"] = "repeats" if same else "does not repeat"


def _why(found: Any) -> str:
    return found.detail if isinstance(found, Failure) else "no token ids"


def _is_list(values: Any) -> bool:
    """Whether numbers can be the most probable tokens' log-probabilities."""
    numbers = list(values)
    return len(numbers) > 1 and _is_distribution(numbers)


def _is_distribution(values: Any) -> bool:
    numbers = list(values)
    if any(v > 1e-3 for v in numbers) or len({round(v, 6) for v in numbers}) < 2:
        return False
    return sum(math.exp(v) for v in numbers) <= 1.01


def _begun(said: str, wanted: str) -> bool:
    """Whether a cut answer is on the way: a model may fill JSON with white space."""
    return len(said) >= 5 and json.dumps(wanted[: len(said)]) == json.dumps(said)


# Server and model ------------------------------------------------------------

_OWNERS = {"vllm": "vllm", "llamacpp": "llama.cpp", "library": "ollama"}


async def find_server(
    connection: Connection,
    capabilities: Capabilities,
    engine: EngineSettings,
    serving: ServingSettings,
) -> None:
    """Fill in server, version, model and context.

    Raises
    ------
    ConfigError
        If the server lists its models and the configured one is not among them.
    EngineError
        If nothing answers, or the key is refused.
    """
    api, root = connection.address.api, connection.address.root
    listed = await connection.get(api + "/models", mode="probe")
    models: list[dict[str, Any]] = []
    if not isinstance(listed, Failure):
        data = listed.body.get("data")
        models = [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []
    owners = {m.get("owned_by") for m in models}
    capabilities.server = next((k for o, k in _OWNERS.items() if o in owners), "other")
    if capabilities.server == "vllm":
        capabilities.version = await _text(connection, root + "/version", "version")
    elif capabilities.server in ("llama.cpp", "other"):
        await _llama_cpp(connection, capabilities)
    if capabilities.server in ("ollama", "other"):
        version = await _text(connection, root + "/api/version", "version")
        if version:
            capabilities.server, capabilities.version = "ollama", version
    capabilities.model = _model(engine.model, models, capabilities, connection.address.api)
    own = next((m for m in models if m.get("id") == capabilities.model), {})
    _limit(capabilities, own.get("max_model_len"))
    _limit(capabilities, serving.max_context)


async def _llama_cpp(connection: Connection, capabilities: Capabilities) -> None:
    got = await connection.get(connection.address.root + "/props")
    if isinstance(got, Failure):
        return
    settings = got.body.get("default_generation_settings")
    if isinstance(settings, dict):
        capabilities.server = "llama.cpp"
        build = got.body.get("build_info")
        capabilities.version = build if isinstance(build, str) else ""
        _limit(capabilities, settings.get("n_ctx"))


async def _text(connection: Connection, url: str, field: str) -> str:
    got = await connection.get(url)
    value = None if isinstance(got, Failure) else got.body.get(field)
    return connection.address.quote(value) if isinstance(value, str) else ""


def _model(
    wanted: str, models: list[dict[str, Any]], capabilities: Capabilities, where: str
) -> str:
    names = [m["id"] for m in models if isinstance(m.get("id"), str)]
    same = [n for n in names if wanted in (n, n.rsplit("/", 1)[-1], n.removesuffix(":latest"))]
    if wanted in names or len(same) == 1:
        capabilities.probed["model"] = "listed"
        return wanted if wanted in names else same[0]
    if names and capabilities.server != "other":
        close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.3) or names[:3]
        raise ConfigError(
            f"the server has no model {wanted}",
            where=f"engine.model; {where}",
            hint=f"it lists {', '.join(close)}",
        )
    # Hosted servers have names for models that they don't list.
    capabilities.probed["model"] = "not listed" if names else "the server lists no models"
    return wanted


def _limit(capabilities: Capabilities, value: Any) -> None:
    if type(value) is int and value > 0:
        capabilities.context = min(value, capabilities.context or value)
