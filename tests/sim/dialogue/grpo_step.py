"""One GRPO step of TRL on the CPU; replies are scripted, everything else is TRL's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import trl
from datasets import Dataset
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from sim.dialogue import Rules, ShoppingTools, tasks
from sim.dialogue.testing import sample_world

SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>"]
BOOK = sample_world()


def tokenizer() -> PreTrainedTokenizerFast:
    """Bytes as tokens, under one of TRL's own chat templates: it knows no other's tool calls."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    built = Tokenizer(models.BPE({c: n for n, c in enumerate([*SPECIAL, *letters])}, []))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in SPECIAL])
    template = Path(trl.__file__).parent / "chat_templates" / "qwen3.jinja"
    return PreTrainedTokenizerFast(
        tokenizer_object=built, eos_token=SPECIAL[1], pad_token=SPECIAL[2],
        chat_template=template.read_text(encoding="utf-8"),
    )  # fmt: skip


def call(name: str, **arguments: Any) -> str:
    text = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{text}\n</tool_call><|im_end|>"


SCRIPTS = [
    [call("ask", question="Which material?"), call("recommend", product=99),
     call("recommend", product=1), "Goodbye.<|im_end|>"],
    [call("ask", question="Which size?"), call("recommend", product=2), "Goodbye.<|im_end|>"],
]  # fmt: skip


class ScriptedTrainer(GRPOTrainer):
    """The trainer with replies of `SCRIPTS`, one per rollout, in place of the model's."""

    def _generate_single_turn(self, prompt_ids: list[Any], *_: Any, **__: Any) -> Any:
        pending: list[list[str]] = self.__dict__.setdefault("pending", [list(s) for s in SCRIPTS])
        replies = [script.pop(0) for script in pending if script]
        assert len(replies) == len(prompt_ids)
        return [self.processing_class(r)["input_ids"] for r in replies], None


def main(folder: str) -> None:
    words = tokenizer()
    shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 8192}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(words), **shape, **heads))
    row = next(tasks(BOOK, [7], Rules(cell="seen/seen")))
    before = [p.detach().clone() for p in model.parameters()]
    trainer = ScriptedTrainer(
        model=model,
        args=GRPOConfig(
            output_dir=folder, per_device_train_batch_size=2, num_generations=2, max_steps=1,
            max_completion_length=4096, learning_rate=1e-2, logging_steps=1, use_cpu=True,
            bf16=False, save_strategy="no", report_to="none", disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list([row]),
        processing_class=words,
        environment_factory=lambda: ShoppingTools(world=BOOK),
    )  # fmt: skip
    trainer.train()
    expected = []
    for product in (1, 2):
        alone = ShoppingTools(world=BOOK)
        alone.reset(**row)
        alone.recommend(product)
        expected.append(alone.get_reward())
    logged = trainer.state.log_history[0]
    changed = any((a != b).any() for a, b in zip(before, model.parameters(), strict=True))
    result = {**logged, "changed": bool(changed), "expected": sum(expected) / 2}
    print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
