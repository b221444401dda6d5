"""Requests, answers and the engine protocol.

Everything here is plain frozen data: a request can be hashed, stored, sent to another process
and compared. Which engine serves it is no part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from pipelines.statuses import Status

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Image:
    """A picture in a message, as the bytes of its file."""

    #: Such as ``image/jpeg``.
    media_type: str
    data: bytes = field(repr=False)

    @property
    def sha256(self) -> str:
        """SHA-256 (hex) of the file, which stands for it in the key of an answer."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True, slots=True)
class Message:
    """A turn of a conversation.

    Attributes
    ----------
    role
        Speaker. An `assistant` message in last place is the beginning of the answer: the
        model goes on from it.
    content
        The text, rendered; engines add nothing to it but the model's own chat template.
    images
        Pictures that follow the text. An engine that takes none answers `invalid`.
    """

    role: Role
    content: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer is one of these strings.

    The engine returns the distribution over them (`Answer.probabilities`), read from the model's
    own probabilities at temperature 1 and normalised over the options; `Answer.mass` is their sum
    before that. An option of several tokens is read as a whole sequence, so that "10" is not "1".
    """

    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """The answer is JSON that obeys a schema (given as canonical JSON text)."""

    schema: str


@dataclass(frozen=True, slots=True)
class Regex:
    """The whole answer matches a regular expression (llguidance's dialect: no look-around)."""

    pattern: str


@dataclass(frozen=True, slots=True)
class GrammarConstraint:
    """The answer is a sentence of a grammar, as Guidance's ``ll_grammar()`` serialises it."""

    ll_grammar: str


Constraint = Choice | JsonSchema | Regex | GrammarConstraint


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling of tokens.

    Attributes
    ----------
    temperature
        0 takes the most probable token; 1 draws from the model's distribution. Ignored for
        `Choice`, whose distribution is always stored at temperature 1.
    top_p
        Nucleus of the distribution that is drawn from, in (0, 1].
    max_tokens
        Longest answer (tokens).
    stop
        Strings that end the answer; they are not part of it.
    min_p
        Least probability of a token that is drawn, as a share of the most probable one's, 0 to 1.
        Applied after the temperature and before the nucleus.
    repetition_penalty
        Above 0: logits of tokens that the prompt or the answer so far holds are divided by it
        where positive and multiplied where negative (Keskar et al., "CTRL", section 4.1, as
        vLLM and transformers have it); 1 leaves them. Applied before the temperature. Like the
        temperature it does not touch a `Choice`.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    min_p: float = 0.0
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to a model, with its constraint and sampling.

    Attributes
    ----------
    messages, tokens
        The rendered conversation, or its token ids; exactly one of the two is given.
    constraint
        Constraint on the answer; None leaves it free.
    sampling
        Sampling of the answer.
    seed
        Seed of the draw: the same request gives the same answer on the same engine, whatever
        it is batched with.
    replicate
        Number of this answer among several to the same question.
    group
        Requests of one group begin alike (one user's, say). Engines use it to share work; it
        changes no answer and is not part of the answer's key.
    tag
        The caller's own name for the request; carried through, never hashed.
    """

    messages: tuple[Message, ...] = ()
    tokens: tuple[int, ...] = ()
    constraint: Constraint | None = None
    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    replicate: int = 0
    group: str | None = None
    tag: Any = field(default=None, hash=False, compare=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request.

    Attributes
    ----------
    request
        The request.
    status
        `ok`, or why the reply can't be used. `truncated`: cut by ``max_tokens``. `invalid`:
        the request can't be served, or the reply breaks the constraint. `refused`: the server
        or model declined. `engine_error`: the call failed for this row after its retries.
    text
        The reply; for `Choice` the most probable option. None unless `ok` or `truncated`.
    probabilities
        For `Choice`: one per option, in order, sum 1. None otherwise.
    mass
        For `Choice`: probability of all options together under the model, 0-1; None where the
        engine can't tell.
    finish_reason
        In the engine's words: ``stop``, ``length`` ...
    prompt_tokens, completion_tokens
        Tokens in and out (count).
    cached_tokens
        Prompt tokens that were not computed anew, because their prefix was (count).
    latency
        Seconds from handing the request to the model to the reply.
    detail
        One line about a fault; never a secret.
    """

    request: Request
    status: Status
    text: str | None = None
    probabilities: tuple[float, ...] | None = None
    mass: float | None = None
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    latency: float = 0.0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """Identity of an answer apart from the request; part of every answer's key.

    Attributes
    ----------
    engine, engine_version
        Name of the engine (``transformers``) and version of what computes.
    model, revision
        Public name of the model, never a path of this machine; its commit or tag, or "".
    weights, tokenizer
        SHA-256 (hex) of the weight and tokenizer files; "" where a server does not show them.
    dtype, quantisation
        Such as ``float32`` and ``none``.
    """

    engine: str
    engine_version: str
    model: str
    revision: str = ""
    weights: str = ""
    tokenizer: str = ""
    dtype: str = ""
    quantisation: str = "none"


@runtime_checkable
class Engine(Protocol):
    """Serves requests.

    ``pipelines.llm.engines.testing.EngineContract`` is the class that an implementation's tests
    inherit.
    """

    @property
    def identity(self) -> EngineIdentity:
        """Identity in the keys of its answers."""
        ...

    def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """Answer requests in completion order, one answer for each.

        Requests are drawn lazily: at most a window of them (a runtime setting) is in flight or
        waiting. A request that can't be served (no message, longer than the context, a
        constraint that the model's tokenizer can't encode) is one `invalid` answer. Leaving the
        iteration early stops the work.

        Raises
        ------
        EngineError
            If the engine as a whole can't go on: dead, unreachable, out of budget. Answers
            yielded before are complete.
        """
        ...

    def metadata(self) -> dict[str, Any]:
        """Device, window, how distributions are read, ...; JSON-ready, for metadata."""
        ...

    def close(self) -> None:
        """Release the model or the connections; a closed engine serves no more."""
        ...
