"""A rating model by transformers' ``Trainer``: from random weights, or a base model by PEFT.

The loss is the cross entropy at answers over the whole vocabulary. The trainer keeps the weights of
the lowest validation loss, and goes on from its own last checkpoint.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.config import TuningSettings
from pipelines.errors import AnswerError, ConfigError, EngineError
from pipelines.extras import install_hint
from pipelines.llm.engines.checkpoints import Checkpoint, no_progress_bars
from pipelines.llm.engines.tokens import load_tokenizer
from pipelines.progress import advance
from pipelines.prompts import MAX_SURPLUS, PromptStyle, answer_start, scale_report, surplus_text
from pipelines.scales import RatingScale
from pipelines.tuning._windows import CONTEXT, IGNORED, Prompts, Window, batch_of

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

#: Byte-level pieces of the vocabulary (count).
PIECES = 4_096
#: Training ratings from which a title is one token (count).
TITLED = 8
#: Contents without marks. The system message is the same in all prompts and left out.
CHAT_TEMPLATE = (
    "{%- for message in messages if message['role'] != 'system' %}"
    "{{- message['content'] }}"
    "{%- if not loop.last or add_generation_prompt %}{{- ' ' }}{%- endif %}"
    "{%- endfor %}"
)
#: Pieces never reach over a line, a field or an entry of a list.
_SPLIT = r"(?: \| |, )[A-Z][\w'\-]*|\n| ?\p{L}+|\d| ?[^\s\p{L}\d]+|\s+"
#: Padding of rows, which no text contains.
_PAD = "<|pad|>"
#: Phrases of a ledger's line that are one token.
_PHRASES = (
    *(" -> ", "\n", " | mean ", " | TMDB ", " | public "),
    *(f" of {count}" for count in ("one", "few", "some", "many", "very many")),
)


def tokenizer_of(rows: pl.DataFrame, scale: RatingScale) -> PreTrainedTokenizerFast:
    """A tokenizer of the texts of training examples."""
    first = rows.filter(pl.col("window").str.starts_with("0:"))
    titles = first.group_by(title=pl.col("line").str.split(" | ").list.first()).len()
    titled = titles.filter(pl.col("len") >= TITLED)["title"].sort().to_list()
    texts = [*first["line"], *first["description"].unique().sort()]
    return train_tokenizer(texts, titled, scale)


def train_tokenizer(
    texts: Iterable[str], titles: Sequence[str], scale: RatingScale
) -> PreTrainedTokenizerFast:
    """Byte-level BPE of training texts, with titles, means, phrases and answers as tokens.

    Titles are as they stand in lines; means have one decimal.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[_PAD],
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    low, high = round(scale.low * 10), round(scale.high * 10)
    means = [f"{n / 10:.1f}" for n in range(low, high + 1)]
    tenths = range(-round(10 * MAX_SURPLUS), round(10 * MAX_SURPLUS) + 1)
    added = [*_PHRASES, *(surplus_text(n / 10) for n in tenths), *titles]
    bpe.add_tokens(
        [AddedToken(t, normalized=False) for t in dict.fromkeys(added)]
        + [AddedToken(t, normalized=False, single_word=True) for t in (*scale.texts, *means)]
    )
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bpe,
        pad_token=_PAD,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model(
    tokenizer: PreTrainedTokenizerFast, *, width: int, layers: int, seed: int, dropout: float = 0.0
) -> Any:
    """A Llama with tied embeddings, from random weights, in float32.

    Its attention has no dropout, which would take a path that is four times slower on a CPU; the
    embeddings and the last states have it in training. An answer ends with its line. Embeddings of
    numbers begin near those of their neighbours, so that their order need not be learned from
    ratings alone.
    """
    import torch
    from torch.nn import functional
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    model: Any = LlamaForCausalLM(  # type: ignore[no-untyped-call]
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=layers,
            # Transformers wants a number of heads that divides the width.
            num_attention_heads=max(n for n in range(1, max(1, width // 32) + 1) if width % n == 0),
            head_dim=32,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.encode("\n", add_special_tokens=False)[0],
            initializer_range=width**-0.5,
            dtype="float32",
        )
    )
    # Tied, so no checkpoint holds it: the trainer need not warn that it is missing.
    model._keys_to_ignore_on_save = ["lm_head.weight"]
    embeddings = model.get_input_embeddings().weight.data
    embeddings *= _EMBEDDED / embeddings.std()
    _order_numbers(embeddings, tokenizer)

    def dropped(module: Any, _: Any, out: torch.Tensor) -> torch.Tensor:
        return functional.dropout(out, dropout, module.training)

    if dropout:
        model.get_input_embeddings().register_forward_hook(dropped)
        model.get_decoder().norm.register_forward_hook(dropped)
    return model


#: First standard deviation of embeddings, which are the output's rows, too; matrices have that of
#: their width, since with the usual 0.02 a narrow model attends to all tokens alike for long.
_EMBEDDED = 0.02
#: Distance of numbers at which their first embeddings correlate by exp(-1/2).
_NEAR = 1.0
#: A token that is a number, perhaps behind words.
_NUMBER = re.compile(r"(|.* )([+-]?\d+(?:\.\d)?)")


def _order_numbers(embeddings: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    """Smooth the rows of tokens that are numbers behind the same words, in place."""
    import torch

    groups: dict[str, dict[int, float]] = {}
    for text, index in tokenizer.get_added_vocab().items():
        if match := _NUMBER.fullmatch(text):
            groups.setdefault(match[1], {})[index] = float(match[2])
    scale = embeddings.std()
    for _, numbers in sorted(groups.items()):
        value = torch.tensor(list(numbers.values()))
        levels, place = torch.unique(value, return_inverse=True)
        near = torch.exp(-((levels[:, None] - levels) ** 2) / _NEAR**2)
        near /= near.norm(dim=1, keepdim=True)
        drawn = torch.randn(len(levels), embeddings.shape[1]) * scale
        embeddings[list(numbers)] = (near @ drawn)[place]


Floats = npt.NDArray[np.float64]
#: Rank of the added matrices, factor of their product (LoRA, Hu et al. 2021), and the matrices.
RANK, ALPHA = 16, 32
_ADAPTED = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
#: Steps until the highest learning rate, and windows that are judged at once (counts).
_WARMUP, _JUDGED = 100, 4


@dataclass(frozen=True)
class Base:
    """A checkpoint to adapt, and how it is asked."""

    checkpoint: Checkpoint
    prompts: Prompts

    def model(self, seed: int, dropout: float = 0.0) -> Any:
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
        names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
        targets = [name for name in _ADAPTED if name in names]
        if not targets:
            raise ConfigError(
                f"the model has no matrix named {', '.join(_ADAPTED)}",
                where=f"tuning.base is {self.checkpoint.folder}",
                hint="use a model with the Llama architecture",
            )
        lora = LoraConfig(
            r=RANK,
            lora_alpha=ALPHA,
            lora_dropout=dropout,
            target_modules=targets,
            task_type="CAUSAL_LM",
        )
        return get_peft_model(model, lora)


def open_base(checkpoint: Checkpoint, style: PromptStyle) -> Base:
    """Check that a checkpoint can be adapted to answers of a style.

    Raises ConfigError if the extra `tune` is not installed; if the weights are no safetensors, the
    context is too short, an answer is not one token, or the chat template refuses the messages.
    """
    where = f"tuning.base is {checkpoint.folder}"
    _require("peft")
    from transformers import AutoConfig

    try:
        checkpoint.weights_digest()
        config = AutoConfig.from_pretrained(str(checkpoint.folder), local_files_only=True)
        context = getattr(config, "max_position_embeddings", CONTEXT)
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
    answers = tuple(answer.tokens[0] for answer in reading.answers)
    prompts = Prompts(tokenizer, answers, style, lists=False)
    try:
        prompts.prompt("", "Heat (1995)")
    except AnswerError as error:
        raise ConfigError(f"the chat template refuses prompts: {error}", where=where) from error
    return Base(checkpoint, prompts)


def _require(package: str) -> None:
    if find_spec(package) is None:
        raise ConfigError(
            f"training needs the package {package}",
            where="extra tune",
            hint=install_hint("tune"),
        )


@dataclass(frozen=True)
class RatingModel:
    """A trained model, how it is asked, and the course of its training."""

    model: Any
    prompts: Prompts
    #: Step and validation loss (nats per answer) of each evaluation; the best one is kept.
    course: Sequence[dict[str, float]] = ()
    #: Training windows' tokens and answers (counts).
    tokens: int = 0
    targets: int = 0
    #: Adapted base model; None for a model from random weights.
    base: Base | None = None

    @property
    def best(self) -> dict[str, float]:
        """The evaluation with the lowest loss."""
        return min(self.course, key=lambda look: look["nll"])

    def ask(self, examples: pl.DataFrame) -> Floats:
        """Distributions over the style's answers, one per target of examples, in their order."""
        return self._ask(examples)[0]

    def mass(self, examples: pl.DataFrame) -> float:
        """Mean probability of all answers together in the whole vocabulary."""
        return self._ask(examples)[1]

    def _ask(self, examples: pl.DataFrame) -> tuple[Floats, float]:
        import torch

        out = np.full((examples.height, len(self.prompts.answers)), np.nan)
        windows = self.prompts.windows(examples)
        self.model.eval()
        with torch.inference_mode():
            while part := list(islice(windows, _JUDGED)):
                logits, _ = answer_logits(self.model, batch_of(part))
                shares = logits.double().softmax(-1)[:, list(self.prompts.answers)]
                out[[row for window in part for row in window.rows]] = shares.numpy()
        out = out[(examples["split"] != "context").to_numpy()]
        if np.isnan(out).any():
            raise ConfigError(
                "a line is longer than the context",
                where=f"{CONTEXT} tokens",
                hint="take a smaller window in the recipe",
            )
        mass = out.sum(axis=1, keepdims=True)
        return out / mass, float(mass.mean())


def answer_logits(model: Any, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits at the places of answers, of shape (answers, vocabulary), and the answers."""
    labels = batch["labels"]
    places = (labels != IGNORED).any(0).nonzero()[:, 0]
    more = {name: values for name, values in batch.items() if name != "labels"}
    logits = model(**more, logits_to_keep=places, use_cache=False).logits
    judged = labels[:, places] != IGNORED
    return logits[judged], labels[:, places][judged]


@dataclass(frozen=True)
class Recipe:
    """Sizes of examples and of a small model, and the rule of stopping."""

    #: Shares of people and of items, by hash, that are in no training row.
    hold_out_users: float = 0.1
    hold_out_items: float = 0.05
    #: Lines per training window and per history, 2-80 (count).
    window: int = 56
    #: Passes that cut the ratings into windows at different positions (count).
    cuts: int = 6
    #: Width, a multiple of 16, and layers (count) of a model that is trained from random weights.
    width: int = 64
    layers: int = 2
    #: Validation ratings per evaluation, all those of sampled people (count, approximate).
    looked_at: int = 2_000
    #: Evaluations without a lower loss after which training stops (count).
    patience: int = 4
    #: Seed of windows, weights, order and dropout.
    seed: int = 23


#: The recipe of the stages.
RECIPE = Recipe()


def train_rating_model(
    examples: pl.DataFrame,
    style: PromptStyle,
    settings: TuningSettings,
    folder: Path,
    *,
    base: Base | None = None,
    recipe: Recipe = RECIPE,
) -> RatingModel:
    """Train a model on rating examples, from random weights or by LoRA on a base.

    Parameters
    ----------
    examples
        Rows of the `rating_examples` contract.
    style
        The style that they were made with.
    settings, recipe
        Schedule, and sizes.
    folder
        For checkpoints: a run that was killed goes on from the last one.
    base
        Model that is adapted (:func:`open_base`), by matrices that are merged at the end; None
        trains a small one from random weights.

    Raises
    ------
    ConfigError
        If the extra `tune` is not installed.
    EngineError
        If the loss is not finite.
    """
    _require("accelerate")
    rows = examples.filter(split="train")
    if base is None:
        tokenizer = tokenizer_of(rows, style.scale)
        answers = tuple(tokenizer.encode(t, add_special_tokens=False)[0] for t in style.scale.texts)
        prompts = Prompts(tokenizer, answers, style, lists=True)
        model = make_model(
            tokenizer,
            width=recipe.width,
            layers=recipe.layers,
            seed=recipe.seed,
            dropout=settings.dropout,
        )
    else:
        prompts, model = base.prompts, base.model(recipe.seed, settings.dropout)
    data: list[Window] = []
    room = settings.steps * settings.batch * CONTEXT
    for window in prompts.windows(_shuffled(rows, recipe.seed)):
        data.append(window)
        room -= len(window.ids)
        if room < 0:
            break
    course = _train(model, data, list(prompts.windows(_looked_at(examples, recipe))), settings,
                    recipe, folder)  # fmt: skip
    if base is not None:
        model = model.merge_and_unload()
    tokens, targets = sum(len(w.ids) for w in data), sum(len(w.rows) for w in data)
    return RatingModel(model.eval(), prompts, course, tokens, targets, base)


def _train(
    model: Any,
    data: Sequence[Window],
    validation: Sequence[Window],
    settings: TuningSettings,
    recipe: Recipe,
    folder: Path,
) -> list[dict[str, float]]:
    """Train in place; the model ends with the best weights. Returns all evaluations."""
    import torch
    from torch.nn import functional
    from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments
    from transformers.trainer_callback import PrinterCallback

    class AnswerTrainer(Trainer):
        def compute_loss(
            self,
            model: Any,
            inputs: Any,
            return_outputs: bool = False,
            num_items_in_batch: Any = None,  # noqa: ARG002 (base)
        ) -> Any:
            loss = functional.cross_entropy(*answer_logits(model, inputs))
            if not torch.isfinite(loss):
                raise EngineError(
                    "the training loss is not finite",
                    where=f"step {self.state.global_step}; {folder}",
                    hint="lower tuning.rate",
                )
            return (loss, {}) if return_outputs else loss

    class Progress(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            advance("training", state.global_step, settings.steps)

    every = min(settings.every, settings.steps)
    # Windows of as many tokens as `batch` contexts: most are shorter.
    tokens = sum(len(window.ids) for window in data) / len(data)
    batch = max(1, round(settings.batch * CONTEXT / tokens))
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=settings.steps,
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=_JUDGED,
        learning_rate=settings.rate,
        warmup_steps=min(_WARMUP, settings.steps // 5),
        lr_scheduler_type="cosine",
        weight_decay=0.1,
        adam_beta2=0.98,
        seed=recipe.seed,
        eval_strategy="steps",
        eval_steps=every,
        save_steps=every,
        save_total_limit=2,
        load_best_model_at_end=True,
        metric_for_best_model="loss",
        restore_callback_states_from_checkpoint=True,
        prediction_loss_only=True,
        remove_unused_columns=False,
        logging_strategy="no",
        disable_tqdm=True,
        report_to=[],
        dataloader_pin_memory=False,
        use_cpu=True,
    )
    trainer = AnswerTrainer(
        model,
        arguments,
        data_collator=batch_of,
        train_dataset=data,
        eval_dataset=validation,
        callbacks=[Progress(), EarlyStoppingCallback(recipe.patience)],
    )
    trainer.remove_callback(PrinterCallback)
    with no_progress_bars():
        trainer.train(resume_from_checkpoint=_last_checkpoint(folder))
    return [
        {"step": entry["step"], "nll": entry["eval_loss"]}
        for entry in trainer.state.log_history
        if "eval_loss" in entry
    ]


def _last_checkpoint(folder: Path) -> str | None:
    """The last complete checkpoint, whose state the trainer writes last; others are deleted."""
    complete = {}
    for path in folder.glob("checkpoint-*"):
        if (path / "trainer_state.json").is_file():
            complete[int(path.name.rpartition("-")[2])] = str(path)
        else:
            shutil.rmtree(path)
    return complete[max(complete)] if complete else None


def _shuffled(rows: pl.DataFrame, seed: int) -> pl.DataFrame:
    names = rows["window"].unique().sort().sample(fraction=1, shuffle=True, seed=seed)
    places = names.to_frame().with_row_index("place")
    return rows.join(places, on="window").sort("place", "position").drop("place")


def _looked_at(examples: pl.DataFrame, recipe: Recipe) -> pl.DataFrame:
    """All validation ratings of people drawn by the seed."""
    rows = examples.filter(pl.col("split") != "train")
    counts = rows.filter(split="validation").group_by("window").len().sort("window")
    counts = counts.sample(fraction=1, shuffle=True, seed=recipe.seed)
    selected = counts.filter(pl.col("len").cum_sum() <= recipe.looked_at)["window"]
    selected = selected if len(selected) else counts["window"].head(1)
    return rows.filter(pl.col("window").is_in(selected.implode()))
