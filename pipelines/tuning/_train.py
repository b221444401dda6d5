"""Training: windows packed into rows, cross entropy at answers, averaged weights, early stopping.

transformers' ``Trainer`` does the loop, the schedule and checkpoints. Lines that stand alone behind
a description (and held-out lines behind a history) are branches of their row: they see what is
before them and themselves, at the positions that they have when they are served.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import orjson
import polars as pl

from pipelines.errors import ConfigError, EngineError
from pipelines.extras import install_hint
from pipelines.llm.engines.checkpoints import no_progress_bars
from pipelines.progress import advance

if TYPE_CHECKING:
    import torch

Ints = npt.NDArray[np.int64]
#: Label of a place that is not judged.
_IGNORED = -100
#: Record of the averaged weights in a checkpoint, written last.
_AVERAGED = "averaged.json"


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of training."""

    #: Optimiser steps at most, and rows of a step (count).
    steps: int = 1_500
    batch: int = 4
    #: Tokens of a row.
    row: int = 1_024
    #: Highest learning rate, steps until it is reached, weight decay.
    rate: float = 3e-3
    warmup: int = 100
    decay: float = 0.1
    #: Dropout rate of the embeddings and of the last hidden states.
    dropout: float = 0.1
    #: Decay of the moving average of the weights that is judged and kept.
    average: float = 0.995
    #: Steps between two looks at the validation loss, and looks without a better one after which
    #: training ends (count).
    every: int = 100
    patience: int = 4
    #: Seed of the order of windows and of dropout.
    seed: int = 0


@dataclass(frozen=True)
class Packed:
    """Rows of tokens, each array of shape (rows, tokens).

    ``segment`` numbers the windows of a row from 1 (0: padding), ``branch`` the lines that stand
    alone (0: seen by all behind it); ``labels`` are the answers' tokens at the places before them,
    and ``rows`` the numbers of their examples.
    """

    ids: Ints
    position: Ints
    segment: Ints
    branch: Ints
    labels: Ints
    rows: Ints

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, row: int) -> dict[str, Ints]:
        return {name: getattr(self, name)[row] for name in self.__dataclass_fields__}

    def batch(self, rows: Sequence[int]) -> dict[str, torch.Tensor]:
        """Rows as tensors."""
        import torch

        return {
            name: torch.from_numpy(getattr(self, name)[list(rows)])
            for name in self.__dataclass_fields__
        }


@dataclass
class Encoder:
    """Texts as tokens; a line's tokens do not depend on the lines around it."""

    tokenizer: Any
    #: Tokens between a line and its rating, and behind a rating.
    arrow: list[int] = field(init=False)
    newline: list[int] = field(init=False)
    _made: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.arrow, self.newline = self.ids(" -> "), self.ids("\n")

    def ids(self, text: str) -> list[int]:
        """Tokens of a text that ends with its line."""
        if text not in self._made:
            self._made[text] = list(self.tokenizer.encode(text, add_special_tokens=False))
        return self._made[text]


@dataclass
class Window:
    """Tokens of a text, their positions and branches, answers and the numbers of examples."""

    ids: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    branch: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)

    def add(
        self, ids: Sequence[int], start: int, branch: int, label: int | None = None, row: int = -1
    ) -> None:
        """Tokens from a position; the last one is judged if there is a label."""
        self.ids += ids
        self.position += range(start, start + len(ids))
        self.branch += [branch] * len(ids)
        self.labels += [_IGNORED] * (len(ids) - 1) + [_IGNORED if label is None else label]
        self.rows += [-1] * (len(ids) - 1) + [row]


#: Room that a history leaves for the line that is asked about (tokens).
_ROOM = 128


def windows_of(rows: pl.DataFrame, encoder: Encoder, longest: int) -> list[Window]:
    """Windows of examples, in the order of rows, of `longest` tokens at most.

    Of a history that is too long the oldest lines are left out; training lines that reach beyond
    are no targets.
    """
    out: list[Window] = []
    answers: dict[float, int] = {}
    last, end, branch = None, 0, 0
    past: list[list[int]] = []
    columns = rows.select("window", "split", "shows", "description", "line", "after", "rating")
    for number, (name, split, shows, text, line, after, rating) in enumerate(columns.iter_rows()):
        if name != last:
            out.append(Window())
            last, end, branch, past = name, 0, 0, []
            if text:
                shown = encoder.ids(text) + encoder.newline
                out[-1].add(shown, 0, 0)
                end = len(shown)
        if rating not in answers:
            (answers[rating],) = encoder.ids(f"{rating:g}")
        answer = answers[rating]
        asked = encoder.ids(line) + encoder.arrow
        behind = [answer, *(encoder.ids(after) if after else ()), *encoder.newline]
        if split == "context":
            past.append(asked + behind)
            continue
        for ids in _latest(past, longest - end - _ROOM):
            out[-1].add(ids, end, 0)
            end += len(ids)
        past = []
        if end + len(asked) + len(behind) > longest:
            continue
        if split == "train" and shows != "description":
            out[-1].add(asked, end, 0, answer, number)
            out[-1].add(behind, end + len(asked), 0)
            end += len(asked) + len(behind)
            continue
        branch += 1
        if branch > 1 and len(out[-1].ids) + len(asked) > longest:
            # Further lines behind the same beginning go into a window of their own.
            before = [n for n, b in enumerate(out[-1].branch) if b == 0]
            again = Window()
            again.add([out[-1].ids[n] for n in before], 0, 0)
            out.append(again)
            branch = 1
        out[-1].add(asked, end, branch, answer, number)
    return [w for w in out if any(label != _IGNORED for label in w.labels)]


def _latest(lines: list[list[int]], room: int) -> list[list[int]]:
    """The last lines that fit."""
    kept: list[list[int]] = []
    for ids in reversed(lines):
        room -= len(ids)
        if room < 0:
            break
        kept.append(ids)
    return kept[::-1]


def pack(windows: Sequence[Window], row: int, pad: int) -> Packed:
    """Put windows into rows, each into the first that has room, in order."""
    rows: list[list[Window]] = []
    room: list[int] = []
    for window in windows:
        # The last rows only: older ones are as good as full.
        found = next(
            (n for n in range(max(0, len(rows) - 64), len(rows)) if room[n] >= len(window.ids)),
            None,
        )
        if found is None:
            rows.append([])
            room.append(row)
            found = len(rows) - 1
        rows[found].append(window)
        room[found] -= len(window.ids)
    shape = (len(rows), row)
    ids, position = np.full(shape, pad, np.int64), np.zeros(shape, np.int64)
    segment, branch = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    labels, numbers = np.full(shape, _IGNORED, np.int64), np.full(shape, -1, np.int64)
    for n, inside in enumerate(rows):
        at = 0
        for number, window in enumerate(inside, start=1):
            part = slice(at, at + len(window.ids))
            ids[n, part], position[n, part] = window.ids, window.position
            branch[n, part], labels[n, part] = window.branch, window.labels
            segment[n, part], numbers[n, part] = number, window.rows
            at = part.stop
    return Packed(ids, position, segment, branch, labels, numbers)


def answer_loss(model: Any, batch: dict[str, torch.Tensor], dropout: float = 0.0) -> torch.Tensor:
    """Cross entropy of each answer over the whole vocabulary (nats), in the order of places."""
    from torch.nn import functional

    logits, labels = answer_logits(model, batch, dropout)
    return functional.cross_entropy(logits, labels, reduction="none")


def answer_logits(
    model: Any, batch: dict[str, torch.Tensor], dropout: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits at the places of answers, of shape (answers, vocabulary), and the answers."""
    from torch.nn import functional

    embedded = model.get_input_embeddings()(batch["ids"])
    if dropout:
        embedded = functional.dropout(embedded, dropout, model.training)
    asked = batch["labels"] != _IGNORED
    if model.config.model_type == "llama":
        states = _llama_states(model.get_decoder(), embedded, asked, batch)
    else:
        hidden = model.get_decoder()(
            inputs_embeds=embedded,
            attention_mask=_seen(batch)[:, None],
            position_ids=batch["position"],
            use_cache=False,
        ).last_hidden_state
        states = hidden[asked]
    if dropout:
        states = functional.dropout(states, dropout, model.training)
    return model.get_output_embeddings()(states), batch["labels"][asked]


def _seen(batch: dict[str, torch.Tensor], places: torch.Tensor | None = None) -> torch.Tensor:
    """Attention mask, of shape (rows, tokens, tokens), or (rows, places, tokens) of some."""
    import torch

    segment, branch = batch["segment"], batch["branch"]
    every = torch.arange(segment.shape[1]).expand_as(segment)
    places = every if places is None else places
    seen = segment.gather(1, places)[:, :, None] == segment[:, None, :]
    own = branch.gather(1, places)[:, :, None] == branch[:, None, :]
    seen &= own | (branch[:, None, :] == 0)
    return seen & (places[:, :, None] >= every[:, None, :])


def _llama_states(
    decoder: Any, hidden: torch.Tensor, asked: torch.Tensor, batch: dict[str, torch.Tensor]
) -> torch.Tensor:
    """Last hidden states at the places of answers, of shape (answers, width).

    Windows are attended to one by one, not by a mask over whole rows; and behind the last layer's
    keys and values only places that are judged matter, about one in fifteen.
    """
    import torch
    from torch.nn import functional
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    cos, sin = decoder.rotary_emb(hidden, position_ids=batch["position"])
    # Places of a row, filled up with its other ones.
    count = asked.sum(1)
    places = asked.to(torch.int8).argsort(dim=1, descending=True, stable=True)
    places = places[:, : int(count.max())]
    row = torch.arange(len(places))[:, None]
    spans = _spans(batch["segment"], batch["branch"])
    for number, layer in enumerate(decoder.layers, start=1):
        whole = number < len(decoder.layers)
        attention, normed = layer.self_attn, layer.input_layernorm(hidden)
        here = slice(None) if whole else (row, places)
        queries, keys, values = (
            states.unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)
            for states in (
                attention.q_proj(normed[here]),
                attention.k_proj(normed),
                attention.v_proj(normed),
            )
        )
        keys, _ = apply_rotary_pos_emb(keys, keys, cos, sin)
        queries, _ = apply_rotary_pos_emb(queries, queries, cos[here], sin[here])
        if whole:
            found = _attend(queries, keys, values, spans)
        else:
            found = functional.scaled_dot_product_attention(
                queries,
                keys,
                values,
                attn_mask=_seen(batch, places)[:, None],
                enable_gqa=keys.shape[1] != queries.shape[1],
            )
        hidden = hidden[here] + attention.o_proj(found.transpose(1, 2).flatten(2))
        if not whole:
            hidden = hidden[torch.arange(places.shape[1]) < count[:, None]]
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    states: torch.Tensor = decoder.norm(hidden)
    return states


def _spans(segment: torch.Tensor, branch: torch.Tensor) -> list[list[list[int]]]:
    """Lengths of a window's beginning and of its branches (tokens), per window and row."""
    import torch

    out: list[list[list[int]]] = []
    for windows, lines in zip(segment, branch, strict=True):
        lengths = torch.unique_consecutive(windows, return_counts=True)[1].tolist()
        out.append([])
        for part in torch.split(lines, lengths):
            numbers, counts = torch.unique_consecutive(part, return_counts=True)
            out[-1].append([0] * int(numbers[0] > 0) + counts.tolist())
    return out


def _attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, spans: list[list[list[int]]]
) -> torch.Tensor:
    """Causal attention within windows, of shape (rows, heads, tokens, width of a head)."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    rows = []
    gqa = keys.shape[1] != queries.shape[1]
    for row, windows in enumerate(spans):
        lengths = [sum(window) for window in windows]
        parts = (torch.split(states[row], lengths, 1) for states in (queries, keys, values))
        found = []
        for (first, *lines), q, k, v in zip(windows, *parts, strict=True):
            if first:
                start = [states[None, :, :first] for states in (q, k, v)]
                found.append(
                    scaled_dot_product_attention(
                        start[0], start[1], start[2], is_causal=True, enable_gqa=gqa
                    )[0]
                )
            if lines:
                # Lines as a batch, filled up on the right, each behind the same beginning.
                count, longest = torch.tensor(lines), max(lines)
                at = torch.arange(longest)
                real = at < count[:, None]
                place = first + (count.cumsum(0) - count)[:, None] + at
                place = place.where(real, first)
                before = torch.ones(longest, first, dtype=torch.bool)
                sees = torch.cat([before, torch.ones(longest, longest, dtype=torch.bool).tril()], 1)
                q, k, v = (
                    torch.cat(
                        [
                            states[:, :beginning].expand(len(lines), -1, -1, -1),
                            states[:, place].transpose(0, 1),
                        ],
                        2,
                    )
                    for states, beginning in ((q, 0), (k, first), (v, first))
                )
                answer = scaled_dot_product_attention(q, k, v, attn_mask=sees, enable_gqa=gqa)
                found.append(answer.transpose(0, 1)[:, real])
        rows.append(torch.cat(found, 1))
    return torch.stack(rows)


def answer_distributions(
    model: Any, packed: Packed, answers: Sequence[int], batch: int = 4
) -> tuple[Ints, npt.NDArray[np.float64], float]:
    """Distributions over the answers' tokens at the places that are judged.

    Returns numbers of the examples, of shape (n,), their distributions, of shape (n, answers), and
    the mean mass of the answers in the whole vocabulary.
    """
    import torch

    model.eval()
    found, mass = [], 0.0
    with torch.inference_mode():
        for start in range(0, len(packed), batch):
            part = range(start, min(start + batch, len(packed)))
            logits, _ = answer_logits(model, packed.batch(part))
            all_of_it = logits.double().softmax(-1)[:, list(answers)]
            mass += float(all_of_it.sum())
            found.append((all_of_it / all_of_it.sum(-1, keepdim=True)).numpy())
    model.train()
    rows = packed.rows[packed.labels != _IGNORED]
    return rows, np.concatenate(found), mass / max(1, len(rows))


def validation_loss(model: Any, packed: Packed, batch: int = 4) -> float:
    """Mean nats per answer."""
    import torch

    model.eval()
    total, count = 0.0, 0
    with torch.inference_mode():
        for start in range(0, len(packed), batch):
            part = range(start, min(start + batch, len(packed)))
            losses = answer_loss(model, packed.batch(part))
            total += float(losses.double().sum())
            count += len(losses)
    model.train()
    return total / count


@dataclass
class Trained:
    """Course of a training: the best validation loss (nats), its step, and all looks."""

    nll: float
    step: int
    looks: list[dict[str, float]]
    retried: bool = False


def train(
    model: Any,
    data: Packed,
    validation: Packed,
    recipe: Recipe,
    folder: Path,
) -> Trained:
    """Train a model in place; it ends with the best averaged weights.

    A killed run goes on from the last checkpoint in `folder` and ends with the same weights. Rows
    of `data` are taken in order, `batch` per step, from the start again after the last.

    Raises
    ------
    ConfigError
        If the extra `tune` is not installed, or `folder` is of other settings.
    EngineError
        If the loss is not finite, and once more so at half the rate from the last checkpoint.
    """
    if find_spec("accelerate") is None:
        raise ConfigError(
            "training needs the package accelerate",
            where="extra tune",
            hint=install_hint("tune"),
        )
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    # A file, so that a run that is killed after it goes on at half the rate.
    halved = folder / "halved"
    start = {name: weight.detach().clone() for name, weight in _weights(model)}
    try:
        with no_progress_bars():
            while True:
                rate = 0.5 if halved.exists() else 1.0
                try:
                    found = _run(model, data, validation, recipe, folder, rate)
                except FloatingPointError as error:
                    if rate < 1.0:
                        raise EngineError(
                            "the training loss is not finite, even at half the rate",
                            where=f"{error}; {folder}",
                            hint="lower tuning.rate",
                        ) from None
                    folder.mkdir(parents=True, exist_ok=True)
                    halved.touch()
                    _put(model, start)
                else:
                    return replace(found, retried=rate < 1.0)
    finally:
        torch.set_num_threads(threads)


def _run(
    model: Any,
    data: Packed,
    validation: Packed,
    recipe: Recipe,
    folder: Path,
    factor: float,
) -> Trained:
    import torch
    from torch.utils.data import SequentialSampler
    from transformers import Trainer, TrainerCallback, TrainingArguments

    needed = recipe.steps * recipe.batch
    averages = _Averages(recipe)

    class Rows(torch.utils.data.Dataset[dict[str, Any]]):
        def __len__(self) -> int:
            return needed

        def __getitem__(self, row: int) -> dict[str, Any]:
            return data[row % len(data)]

    class Run(Trainer):
        def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
            loss = answer_loss(model, inputs, recipe.dropout).mean()
            if not torch.isfinite(loss):
                raise FloatingPointError(f"step {self.state.global_step}")
            return loss

        def _get_train_sampler(self, *_: Any) -> Any:
            return SequentialSampler(Rows())

    class Callback(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            del args, state, control
            # Here: a checkpoint brings the rates of its own optimiser and schedule.
            rates = more["lr_scheduler"].get_last_lr()
            for group, rate in zip(more["optimizer"].param_groups, rates, strict=True):
                group["lr"] = rate * factor

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args
            averages.update(model)
            if state.global_step % recipe.every == 0 or state.global_step == recipe.steps:
                if averages.look(model, validation, state.global_step):
                    control.should_training_stop = True
                control.should_save = True
            advance("training", state.global_step, recipe.steps)

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            del args, control
            averages.save(folder / f"checkpoint-{state.global_step}")

    last = _last_checkpoint(folder)
    if last is not None:
        averages.load(last)
        if averages.done:
            averages.restore(model)
            return averages.result()
    else:
        averages.start(model)
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=recipe.steps,
        per_device_train_batch_size=recipe.batch,
        learning_rate=recipe.rate,
        warmup_steps=min(recipe.warmup, recipe.steps // 5),
        lr_scheduler_type="cosine",
        weight_decay=recipe.decay,
        adam_beta2=0.98,
        max_grad_norm=1.0,
        optim="adamw_torch",
        seed=recipe.seed,
        use_cpu=True,
        report_to=[],
        logging_strategy="no",
        save_strategy="no",
        save_total_limit=2,
        remove_unused_columns=False,
        dataloader_pin_memory=False,
        disable_tqdm=True,
    )
    run = Run(
        model,
        arguments,
        data_collator=lambda rows: {
            name: torch.from_numpy(np.stack([row[name] for row in rows])) for name in rows[0]
        },
        train_dataset=Rows(),
        callbacks=[Callback()],
    )
    from transformers.trainer_callback import PrinterCallback

    run.remove_callback(PrinterCallback)
    run.train(resume_from_checkpoint=None if last is None else str(last))
    averages.restore(model)
    return averages.result()


def _last_checkpoint(folder: Path) -> Path | None:
    """The last whole checkpoint; half written ones are deleted."""
    found = None
    for path in folder.glob("checkpoint-*"):
        if not (path / _AVERAGED).is_file():
            shutil.rmtree(path)
        elif found is None or int(path.name[11:]) > int(found.name[11:]):
            found = path
    return found


class _Averages:
    """Moving average of the weights, and the best of it by the validation loss."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._now: dict[str, torch.Tensor] = {}
        self._best: dict[str, torch.Tensor] = {}
        self._looks: list[dict[str, float]] = []
        self._count = 0

    def start(self, model: Any) -> None:
        self._now = {n: p.detach().clone() for n, p in _weights(model)}
        self._best = dict(self._now)

    def update(self, model: Any) -> None:
        import torch

        self._count += 1
        # A young average follows faster, so that it forgets the random start.
        keep = min(self._recipe.average, self._count / (self._count + 10))
        with torch.no_grad():
            for name, weight in _weights(model):
                self._now[name].lerp_(weight, 1 - keep)

    def look(self, model: Any, validation: Packed, step: int) -> bool:
        """Judge the average; whether training is to end."""
        kept = {n: p.detach().clone() for n, p in _weights(model)}
        _put(model, self._now)
        nll = validation_loss(model, validation)
        _put(model, kept)
        if not self._looks or nll < min(one["nll"] for one in self._looks):
            self._best = {n: w.clone() for n, w in self._now.items()}
        self._looks.append({"step": step, "nll": nll})
        return self.done

    @property
    def done(self) -> bool:
        """Whether the last look was at the last step, or none of the last few was better."""
        if not self._looks:
            return False
        best = min(range(len(self._looks)), key=lambda n: self._looks[n]["nll"])
        return (
            self._looks[-1]["step"] >= self._recipe.steps
            or len(self._looks) - 1 - best >= self._recipe.patience
        )

    def result(self) -> Trained:
        best = min(self._looks, key=lambda one: one["nll"])
        return Trained(best["nll"], int(best["step"]), self._looks)

    def restore(self, model: Any) -> None:
        _put(model, self._best)

    def save(self, folder: Path) -> None:
        from safetensors.torch import save_file

        for name, weights in (("now", self._now), ("best", self._best)):
            whole = {n: w.contiguous() for n, w in weights.items()}
            save_file(whole, folder / f"{name}.safetensors")
        record = {"looks": self._looks, "count": self._count, "recipe": asdict(self._recipe)}
        part = folder / f"{_AVERAGED}.part"
        part.write_bytes(orjson.dumps(record))
        part.rename(folder / _AVERAGED)

    def load(self, folder: Path) -> None:
        from safetensors.torch import load_file

        self._now = load_file(folder / "now.safetensors")
        self._best = load_file(folder / "best.safetensors")
        record = orjson.loads((folder / _AVERAGED).read_bytes())
        if record["recipe"] != asdict(self._recipe):
            raise ConfigError(
                "the checkpoint was made with other settings",
                where=str(folder),
                hint="remove the folder",
            )
        self._looks, self._count = record["looks"], record["count"]


def _put(model: Any, weights: dict[str, torch.Tensor]) -> None:
    import torch

    with torch.no_grad():
        for name, weight in _weights(model):
            weight.copy_(weights[name])


def _weights(model: Any) -> list[tuple[str, torch.nn.Parameter]]:
    """Weights that are trained."""
    return [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
