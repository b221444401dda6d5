"""What a server can do, as the probes found it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from pipelines.llm.engines.openai._encodings import ConstraintEncoding
from pipelines.llm.engines.openai._tokens import Tokens

__all__ = ["Capabilities", "Endpoint", "Reading"]

Endpoint = Literal["completions", "chat"]

#: How the distribution over the options of a choice is read.
#: ``token_ids``: the server gives the log-probability of exactly the tokens that are asked for.
#: ``ranks``: the options are looked for among the most probable tokens that it lists.
#: ``echo``: each option is sent as a part of the prompt and its tokens' probabilities are read.
#: ``draws``: answers are drawn and counted; an estimate. ``none``: not at all.
Reading = Literal["token_ids", "ranks", "echo", "draws", "none"]

_DISTRIBUTIONS: dict[Reading, str] = {
    "token_ids": "exact: log-probabilities of the options' own tokens (logprob_token_ids)",
    "ranks": "from the {ranks} most probable tokens that the server lists",
    "echo": "exact: every option scored as part of the prompt (echo)",
    "draws": "ESTIMATE: shares among {draws} answers drawn",
    "none": "not readable: a choice is answered invalid",
}


@dataclass(slots=True)
class Capabilities:
    """Findings of the probes; all but ``encodings`` is fixed once the engine is open.

    Attributes
    ----------
    server, version
        Kind (``vllm``, ``llama.cpp``, ``ollama``, ``other``) and version as it reports them.
    model
        The model's name on the server.
    context
        Longest prompt and answer together (tokens); None where it does not say.
    tokens
        Who makes token ids; None: nobody, so that only the chat endpoint is used.
    endpoint, choice_endpoint
        Where texts, and choices, are asked for.
    many
        Whether a request may hold many prompts.
    reading, fallback
        How a choice is read, and how one is that the first way can't settle.
    ranks
        Length of the list of most probable tokens.
    draws
        Answers drawn per choice where it is estimated.
    limit_field
        Name of the field for the longest answer.
    probed
        Outcome of every probe, by its name.
    answered_by, fingerprints
        Models and configurations that the server's replies name.
    """

    server: str = "other"
    version: str = ""
    model: str = ""
    context: int | None = None
    tokens: Tokens | None = None
    endpoint: Endpoint = "chat"
    choice_endpoint: Endpoint = "chat"
    many: bool = False
    reading: Reading = "none"
    fallback: Reading = "none"
    ranks: int = 0
    draws: int = 0
    limit_field: str = "max_tokens"
    probed: dict[str, str] = field(default_factory=dict)
    answered_by: set[str] = field(default_factory=set)
    fingerprints: set[str] = field(default_factory=set)
    _encodings: dict[tuple[Endpoint, str], ConstraintEncoding | None] = field(default_factory=dict)
    _locks: dict[tuple[Endpoint, str], asyncio.Lock] = field(default_factory=dict)

    @property
    def distributions(self) -> str:
        """How a choice is read, for people."""
        said = _DISTRIBUTIONS[self.reading].format(ranks=self.ranks, draws=self.draws)
        if self.fallback != "none":
            said += "; where they do not settle it, " + _DISTRIBUTIONS[self.fallback]
        return said

    async def encoding(
        self,
        endpoint: Endpoint,
        kind: str,
        probe: Callable[[Endpoint, str], Awaitable[ConstraintEncoding | None]],
    ) -> ConstraintEncoding | None:
        """How the server is told a kind of constraint, or None; probed once."""
        place = (endpoint, kind)
        async with self._locks.setdefault(place, asyncio.Lock()):
            if place not in self._encodings:
                self._encodings[place] = await probe(endpoint, kind)
        return self._encodings[place]

    def facts(self) -> dict[str, Any]:
        """JSON-ready."""
        named = {
            f"{kind} ({endpoint})": encoding.name if encoding else None
            for (endpoint, kind), encoding in sorted(self._encodings.items())
        }
        return {
            "server": self.server,
            "server_version": self.version,
            "model": self.model,
            "context": self.context,
            "tokens": self.tokens.where if self.tokens else "none: chat endpoint only",
            "endpoint": self.endpoint,
            "choice_endpoint": self.choice_endpoint,
            "prompts_per_request": "many" if self.many else "one",
            "reading": self.reading,
            "fallback": self.fallback,
            "distributions": self.distributions,
            "constraints": named,
            "probes": dict(sorted(self.probed.items())),
            "answered_by": sorted(self.answered_by),
            "fingerprints": sorted(self.fingerprints),
        }
