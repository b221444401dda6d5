"""The engine ``guidance``: Guidance's own decoding loop, the reference for grammars."""

from __future__ import annotations

import time
from dataclasses import replace
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError
from pipelines.hints import first_line
from pipelines.llm.engines import Answer, EngineIdentity
from pipelines.llm.engines.constraints import llguidance_grammar, obeys
from pipelines.llm.engines.transformers import Model, PreparedRequest, TransformersEngine

__all__ = ["GuidanceEngine"]


class GuidanceEngine(TransformersEngine):
    """A checkpoint in this process whose constrained answers are written by Guidance.

    One request at a time, nothing batched. Choices and free texts, and constrained answers with
    stop strings, are computed by plain forward passes of the transformers engine.
    """

    def __init__(self, *given: Any) -> None:
        from pipelines.llm.grammars._guided_engine import CroppingEngine

        super().__init__(*given)
        _, model, tokenizer, *_ = given
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigError(
                "Guidance needs a fast tokenizer",
                where=self._identity.model,
                hint="use the transformers engine, or a checkpoint with a tokenizer.json",
            )
        self._guidance: CroppingEngine | None = CroppingEngine(model.causal, tokenizer)
        self._identity = replace(
            self._identity,
            engine="guidance",
            engine_version=f"{version('guidance')}, transformers {self._identity.engine_version}",
        )

    @classmethod
    def open(cls, engine: EngineSettings, serving: ServingSettings) -> GuidanceEngine:
        """Load the checkpoint that the settings name; raises as the transformers engine does."""
        alone = serving.model_copy(update={"prefix_reuse": False, "window": 1})
        opened = super().open(engine, alone)
        assert isinstance(opened, cls)
        return opened

    @property
    def identity(self) -> EngineIdentity:
        """As of the transformers engine, with Guidance's version."""
        return self._identity

    def metadata(self) -> dict[str, Any]:
        """As of the transformers engine."""
        return {**super().metadata(), "constraints": "guidance"}

    def close(self) -> None:
        """Free the model."""
        self._guidance = None
        super().close()

    def _write(self, model: Model, prepared: PreparedRequest) -> Answer:
        from guidance._parser import TokenParserException
        from guidance.models._engine import EngineInterpreter

        from pipelines.llm.grammars._guided_engine import LimitReachedError

        request, sampling = prepared.request, prepared.request.sampling
        guidance = self._guidance
        if request.constraint is None or sampling.stop or guidance is None:
            return super()._write(model, prepared)
        began = time.perf_counter()
        prompt, seed = tuple(prepared.prompt.tolist()), int(prepared.dice().integers(2**63))
        guidance.begin(prompt, seed, sampling, prepared.limit)
        interpreter = EngineInterpreter(guidance)
        grammar: Any = SimpleNamespace(ll_grammar=lambda: llguidance_grammar(request.constraint))
        cut: list[int] | None = None
        reply = Answer(request, "engine_error", prompt_tokens=len(prompt))
        try:
            for _ in interpreter.grammar(grammar):
                pass
        except LimitReachedError as reached:
            cut = reached.tokens
        except (TokenParserException, RuntimeError, ValueError) as error:
            guidance.forget()
            line = first_line(error)
            return replace(
                reply, latency=time.perf_counter() - began, detail=f"Guidance broke off: {line}"
            )
        text = str(interpreter.state.prompt)
        tokens = guidance.tokenizer.encode(text.encode())
        if cut is None and len(tokens) > prepared.limit:
            cut = tokens[: prepared.limit]
        reply = replace(reply, latency=time.perf_counter() - began)
        if cut is not None:
            return replace(
                reply,
                status="truncated",
                text=guidance.tokenizer.decode(cut).decode(errors="ignore"),
                finish_reason="length",
                completion_tokens=len(cut),
            )
        reply = replace(reply, finish_reason="stop", completion_tokens=len(tokens))
        if not obeys(request.constraint, text):
            return replace(reply, status="invalid", detail="the answer breaks the constraint")
        return replace(reply, status="ok", text=text)
