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
    """A turn of a conversation."""

    #: Speaker. An `assistant` message in last place is the beginning of the answer: the model goes
    #: on from it.
    role: Role
    #: The text, rendered; engines add nothing to it but the model's own chat template.
    content: str
    #: Pictures that follow the text. An engine that takes none answers `invalid`.
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
class FormField:
    """A part of a form that the model writes."""

    name: str
    #: Regular expression (Python's) that the whole text matches.
    pattern: str
    #: The texts that it may be, if they are few; else empty.
    options: tuple[str, ...] = ()
    #: First words of the text, which are settled.
    opening: str = ""


@dataclass(frozen=True, slots=True)
class GrammarConstraint:
    """The answer is a sentence of a grammar, as Guidance's ``ll_grammar()`` serialises it."""

    ll_grammar: str
    #: The grammar as a form: fixed texts and fields in turn. For servers without grammars; it adds
    #: nothing to the grammar and is not part of the answer's key. Empty if the grammar is no form.
    form: tuple[str | FormField, ...] = field(default=(), compare=False)


Constraint = Choice | JsonSchema | Regex | GrammarConstraint


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling of tokens."""

    #: 0 takes the most probable token; 1 draws from the model's distribution. Ignored for `Choice`,
    #: whose distribution is always stored at temperature 1.
    temperature: float = 1.0
    #: Nucleus of the distribution that is drawn from, in (0, 1].
    top_p: float = 1.0
    #: Longest answer (tokens).
    max_tokens: int = 256
    #: Strings that end the answer; they are not part of it.
    stop: tuple[str, ...] = ()
    #: Least probability of a token that is drawn, as a share of the most probable one's, 0 to 1.
    #: Applied after the temperature and before the nucleus.
    min_p: float = 0.0
    #: Above 0: logits of tokens that the prompt or the answer so far holds are divided by it where
    #: positive and multiplied where negative (Keskar et al., "CTRL", section 4.1, as vLLM and
    #: transformers have it); 1 leaves them. Applied before the temperature. Like the temperature it
    #: does not touch a `Choice`.
    repetition_penalty: float = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to a model, with its constraint and sampling."""

    #: The rendered conversation, or its token ids; exactly one of the two is given.
    messages: tuple[Message, ...] = ()
    tokens: tuple[int, ...] = ()
    #: Constraint on the answer; None leaves it free.
    constraint: Constraint | None = None
    #: Sampling of the answer.
    sampling: Sampling = field(default_factory=Sampling)
    #: Seed of the draw: the same request gives the same answer on the same engine, whatever it is
    #: batched with.
    seed: int = 0
    #: Number of this answer among several to the same question.
    replicate: int = 0
    #: Requests of one group begin alike (one user's, say). Engines use it to share work; it changes
    #: no answer and is not part of the answer's key.
    group: str | None = None
    #: The caller's own name for the request; carried through, never hashed.
    tag: Any = field(default=None, hash=False, compare=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request."""

    #: The request.
    request: Request
    #: `ok`, or why the reply can't be used. `truncated`: cut by ``max_tokens``. `invalid`: the
    #: request can't be served, or the reply breaks the constraint. `refused`: the server or model
    #: declined. `engine_error`: the call failed for this row after its retries.
    status: Status
    #: The reply; for `Choice` the most probable option. None unless `ok` or `truncated`.
    text: str | None = None
    #: For `Choice`: one per option, in order, sum 1. None otherwise.
    probabilities: tuple[float, ...] | None = None
    #: For `Choice`: probability of all options together under the model, 0-1; None where the engine
    #: can't tell.
    mass: float | None = None
    #: In the engine's words: ``stop``, ``length`` ...
    finish_reason: str = ""
    #: Tokens in and out (count).
    prompt_tokens: int = 0
    completion_tokens: int = 0
    #: Prompt tokens that were not computed anew, because their prefix was (count).
    cached_tokens: int = 0
    #: Seconds from handing the request to the model to the reply.
    latency: float = 0.0
    #: One line about a fault; never a secret.
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EngineIdentity:
    """Identity of an answer apart from the request; part of every answer's key."""

    #: Name of the engine (``transformers``) and version of what computes.
    engine: str
    engine_version: str
    #: Public name of the model, never a path of this machine; its commit or tag, or "".
    model: str
    revision: str = ""
    #: SHA-256 (hex) of the weight and tokenizer files; "" where a server does not show them.
    weights: str = ""
    tokenizer: str = ""
    #: Such as ``float32`` and ``none``.
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

    def metadata(self) -> dict[str, Any]:
        """Device, window, how distributions are read, ...; JSON-ready, for metadata."""

    def close(self) -> None:
        """Release the model or the connections; a closed engine takes no requests."""
