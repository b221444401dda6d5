"""Adapting a given language model by LoRA: checks, prompts in its own tokens, merging.

A model with a chat template is asked behind the template's marks, not in the middle of a list. So
its examples are whole prompts as they are served, and those of a window share their beginning.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import polars as pl

from pipelines.errors import AnswerError, ConfigError, EngineError
from pipelines.extras import install_hint
from pipelines.llm.engines.chat import render
from pipelines.llm.engines.checkpoints import Checkpoint, no_progress_bars
from pipelines.llm.engines.tokens import encode, load_tokenizer
from pipelines.prompts import PromptStyle, answer_start, rating_messages, scale_report
from pipelines.tuning._scratch import CONTEXT
from pipelines.tuning._train import Window

#: Rank of the added matrices, and factor of their product (LoRA, Hu et al. 2021).
RANK, ALPHA = 16, 32
#: Matrices that are adapted: all of attention and MLP.
_ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
#: Share of the context that a training window's history may take; the rest is for targets.
_HISTORY = 0.6
#: Room for a line that is asked about (tokens).
_ROOM = 128


@dataclass(frozen=True)
class Base:
    """A checkpoint to adapt, its tokenizer, and the token of each answer of the style."""

    checkpoint: Checkpoint
    tokenizer: Any
    answers: tuple[int, ...]
    style: PromptStyle

    def model(self, seed: int) -> Any:
        """The model in float32 with LoRA matrices, which alone are trained."""
        import torch
        from peft import LoraConfig, get_peft_model
        from transformers import AutoModelForCausalLM

        torch.manual_seed(seed)
        with no_progress_bars():
            model = AutoModelForCausalLM.from_pretrained(
                str(self.checkpoint.folder),
                dtype=torch.float32,
                local_files_only=True,
                use_safetensors=True,
            )
        known = {name.rpartition(".")[2] for name, _ in model.named_modules()}
        found = [name for name in _ADAPTED if name in known]
        if not found:
            raise ConfigError(
                f"the model has no matrix named {', '.join(_ADAPTED)}",
                where=f"tuning.base is {self.checkpoint.folder}",
                hint="use a model with the Llama architecture",
            )
        return get_peft_model(
            model, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=found, task_type="CAUSAL_LM")
        )

    def windows(self, rows: pl.DataFrame, *, limit: int | None = None) -> list[Window]:
        """Windows of examples as prompts of this model, of `limit` tokens together at least.

        Of a training window that shows a history, the first half of the lines is the history of
        the others. Examples whose prompt is longer than the context are left out.
        """
        out: list[Window] = []
        total = 0
        numbered = rows.with_row_index("number")
        for (_,), part in numbered.group_by("window", maintain_order=True):
            for window in self._windows(part):
                out.append(window)
                total += len(window.ids)
            if limit is not None and total >= limit:
                break
        return out

    def _windows(self, part: pl.DataFrame) -> Iterator[Window]:
        scale, start = self.style.scale, part["description"][0]
        if part["split"][0] == "train":
            first = 0 if part["shows"][0] == "description" else part.height // 2
            known, asked = part[:first], part[first:]
        else:
            first = part.filter(split="context").height
            known, asked = part[:first], part[first:]
        columns = known.select("line", "rating", "after")
        lines = [f"{line} -> {scale.text_of(r)}{after}" for line, r, after in columns.iter_rows()]
        room = CONTEXT * (_HISTORY if part["split"][0] == "train" else 1.0) - _ROOM
        room -= len(self._prompt(start, str(asked["line"][0])))
        kept = 0
        for line in reversed(lines):
            room -= len(encode(self.tokenizer, f"{line}\n"))
            if room < 0:
                break
            kept += 1
        person = "\n".join([start] * bool(start) + lines[len(lines) - kept :])
        prompts = [self._prompt(person, line) for line in asked["line"]]
        # The last token of each is its own: there the answer is read.
        common = min(len(prompt) for prompt in prompts) - 1
        while any(prompt[:common] != prompts[0][:common] for prompt in prompts):
            common -= 1
        window = Window()
        window.add(prompts[0][:common], 0, 0)
        branch = 0
        for prompt, rating, number in zip(prompts, asked["rating"], asked["number"], strict=True):
            if len(prompt) > CONTEXT:
                continue
            if branch and len(window.ids) + len(prompt) - common > CONTEXT:
                yield window
                window, branch = Window(), 0
                window.add(prompts[0][:common], 0, 0)
            branch += 1
            place = scale.texts.index(scale.text_of(rating))
            window.add(prompt[common:], common, branch, self.answers[place], number)
        if branch:
            yield window

    def _prompt(self, person: str, line: str) -> list[int]:
        messages = rating_messages({}, line, self.style, person=person)
        return list(render(self.tokenizer, messages))


def open_base(checkpoint: Checkpoint, style: PromptStyle) -> Base:
    """Check that a checkpoint can be adapted to answers of a style.

    Raises ConfigError if the extra `tune` is not installed; if the weights are no safetensors, the
    context is too short, an answer is not one token, or the chat template refuses the messages.
    """
    where = f"tuning.base is {checkpoint.folder}"
    if find_spec("peft") is None:
        raise ConfigError(
            "adapting a model needs the package peft",
            where="extra tune",
            hint=install_hint("tune"),
        )
    from transformers import AutoConfig

    try:
        checkpoint.weights_digest()
        context = getattr(
            AutoConfig.from_pretrained(str(checkpoint.folder), local_files_only=True),
            "max_position_embeddings",
            CONTEXT,
        )
        tokenizer = load_tokenizer(checkpoint.folder)
        reading = scale_report(tokenizer, style.scale, answer_start(style.scale, style.layout))
    except (EngineError, OSError, ValueError) as error:
        raise ConfigError(f"the model can't be adapted: {error}", where=where) from error
    if context < CONTEXT:
        raise ConfigError(
            f"the context of {context:,} tokens is too short",
            where=where,
            hint=f"examples have up to {CONTEXT:,}",
        )
    if reading.way != "tokens" or not reading.adds_up:
        raise ConfigError(
            f"an answer is not one token ({reading.describe()})",
            where=f"{where}; scoring.scale is {style.scale.name}",
            hint="use scoring.scale one-ten or 0-9",
        )
    base = Base(checkpoint, tokenizer, tuple(a.tokens[0] for a in reading.answers), style)
    try:
        base._prompt("", "Heat (1995)")
    except AnswerError as error:
        raise ConfigError(f"the chat template refuses prompts: {error}", where=where) from error
    return base
