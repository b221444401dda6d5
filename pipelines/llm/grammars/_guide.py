"""One reply at a time, written by Guidance itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import ConfigError, EngineError
from pipelines.hints import first_line
from pipelines.llm.engines import Message, Sampling
from pipelines.llm.engines.chat import render
from pipelines.llm.grammars._grammar import Grammar
from pipelines.llm.grammars._vocabulary import vocabulary

if TYPE_CHECKING:
    from pipelines.llm.grammars._guided_engine import CroppingEngine


@dataclass(frozen=True)
class Guided:
    """A reply that Guidance wrote.

    ``captures`` are by name, as Guidance read them while writing; ``completion_tokens`` counts the
    reply as the tokenizer spells it, forced tokens included; ``forward_passes`` counts calls of the
    model: fast-forwarding forced tokens saves some. ``seconds`` is from prompt to reply.
    """

    text: str
    captures: dict[str, str]
    prompt_tokens: int
    completion_tokens: int
    forward_passes: int
    seconds: float


class Guide:
    """A transformers model in this process, run by Guidance; one reply at a time.

    Batches go through an engine with :attr:`Grammar.constraint`; this is for a look at one record,
    and the reference that the batched runs are compared with.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        from pipelines.llm.grammars._guided_engine import CroppingEngine

        self._engine: CroppingEngine = CroppingEngine(model, tokenizer)
        self._tokenizer = tokenizer
        self._words = vocabulary(tokenizer)
        self._context = getattr(model.config, "max_position_embeddings", None)
        # One KV cache, so one reply at a time, whatever thread asks.
        self._lock = threading.Lock()

    @classmethod
    def open(cls, folder: Path | str, *, dtype: str = "float32", device: str = "cpu") -> Guide:
        """Load a Hugging Face checkpoint from a folder; ConfigError if that can't be done."""
        from pipelines.llm.grammars._guided_engine import load

        if not Path(folder).is_dir():
            raise ConfigError("no such model folder", where=str(folder))
        try:
            return cls(*load(str(folder), dtype, device))
        except (OSError, ValueError) as error:
            raise ConfigError(
                "the model can't be loaded",
                where=str(folder),
                hint=str(error).splitlines()[0],
            ) from None

    def write(
        self,
        grammar: Grammar,
        prompt: str | Sequence[Message],
        *,
        seed: int = 0,
        temperature: float = 1.0,
        top_p: float = 1.0,
    ) -> Guided:
        """Write one reply.

        Parameters
        ----------
        grammar
            Allowed replies.
        prompt
            Text as the model is to see it (special tokens in their written form), or messages,
            which go through the tokenizer's chat template.
        seed
            Seed of the draw; nothing outside this call is seeded or drawn from.
        temperature, top_p
            0 takes the most probable token, 1 (the default) draws from the distribution; nucleus
            in (0, 1]. (Guidance's own default is 0.)

        Raises
        ------
        ConfigError
            If the tokenizer can't spell the grammar, a sampling parameter is out of range, or
            prompt and longest reply don't fit the context.
        EngineError
            If the run broke off.
        """
        if temperature < 0 or not 0 < top_p <= 1:
            raise ConfigError(
                "temperature must not be negative and top_p must be in (0, 1]",
                where=f"temperature {temperature}, top_p {top_p}",
            )
        if isinstance(prompt, str):
            tokens = tuple(self._tokenizer.encode(prompt))
        else:
            tokens = tuple(render(self._tokenizer, prompt))
        size = len(tokens)
        if not tokens:
            raise ConfigError("the prompt is empty", where=f"grammar {grammar.name}")
        room = None if self._context is None else self._context - size - 1
        grammar.check(self._words)
        if room is not None and (longest := grammar.longest(self._words)) > room:
            raise ConfigError(
                f"the longest reply takes {longest} tokens, the context has room for "
                f"{max(room, 0)}",
                where=f"grammar {grammar.name}, prompt of {size} tokens",
                hint="shorten the prompt or the grammar's texts",
            )
        with self._lock:
            return self._run(grammar, tokens, seed, Sampling(temperature, top_p))

    def _run(
        self,
        grammar: Grammar,
        prompt: tuple[int, ...],
        seed: int,
        sampling: Sampling,
    ) -> Guided:
        from guidance._parser import TokenParserException
        from guidance.models._engine import EngineInterpreter

        started = time.perf_counter()
        self._engine.begin(prompt, seed, sampling)
        interpreter = EngineInterpreter(self._engine)
        try:
            for _ in interpreter.run(grammar.node):
                pass
        except (TokenParserException, RuntimeError, ValueError) as error:
            self._engine.forget()
            raise EngineError(
                "Guidance broke off",
                where=f"grammar {grammar.name}",
                hint=first_line(error),
            ) from error
        state = interpreter.state
        captures: dict[str, Any] = dict(state.captures)
        return Guided(
            text=state.prompt,
            captures={key: value["value"] for key, value in captures.items()},
            prompt_tokens=len(prompt),
            completion_tokens=len(self._engine.tokenizer.encode(state.prompt.encode())),
            forward_passes=state.get_usage().forward_passes,
            seconds=time.perf_counter() - started,
        )


def guide(
    model: Guide | Path | str,
    grammar: Grammar,
    prompt: str | Sequence[Message],
    *,
    seed: int = 0,
    temperature: float = 1.0,
) -> Guided:
    """One reply of a model (an open :class:`Guide`, or a checkpoint's folder)."""
    opened = model if isinstance(model, Guide) else Guide.open(model)
    return opened.write(grammar, prompt, seed=seed, temperature=temperature)
