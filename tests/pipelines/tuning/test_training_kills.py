"""SIGKILL during training: the same command goes on and ends with equal weights."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

from pipelines.progress import listening
from pipelines.tuning import Encoder, Recipe, pack, train, windows_of
from tests.pipelines.tuning.test_training import examples, tiny, tokenizer_of
from tests.pipelines.tuning.worlds import noise, world

pytestmark = [pytest.mark.night, pytest.mark.faults]

RECIPE = Recipe(steps=24, batch=2, warmup=2, every=4, rate=1e-2, patience=9)
KILLS = 10
#: Longest wait behind a step before the kill: about one and a half of its steps (seconds).
WAIT = 0.03


def train_whole(made, folder, out, steps):
    """Train to the end, report each step, and write the final weights."""
    torch.set_num_threads(1)
    tokenizer, data, validation = made
    model = tiny(tokenizer)
    with listening(lambda _, step, __: steps.send(step)):
        train(model, data, validation, RECIPE, folder)
    weights = {n: p.detach().clone() for n, p in model.named_parameters()}
    save_file(weights, out)


@pytest.fixture(scope="module")
def made():
    """Tokenizer, packed training and validation rows of a world of noise."""
    rows = examples(world(110, 150, 56, noise))
    tokenizer = tokenizer_of(rows)
    encoder = Encoder(tokenizer)
    data, validation = (
        pack(windows_of(part, encoder, 512), 512, tokenizer.pad_token_id)
        for part in (
            rows.filter(split="train").head(1_500),
            rows.filter(pl.col("split") != "train").head(200),
        )
    )
    return tokenizer, data, validation


@pytest.fixture(scope="module")
def server():
    """Processes that have imported what training needs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        [
            "tests.pipelines.tuning.test_training_kills",
            "transformers.models.llama.modeling_llama",
            "transformers.trainer",
        ]
    )
    return context


def run(server, made, folder: Path, out: Path, stop: int | None = None, wait: float = 0.0) -> int:
    """Exit code of a training, killed a moment after the step `stop`."""
    seen, steps = server.Pipe(duplex=False)
    child = server.Process(target=train_whole, args=(made, folder, out, steps))
    child.start()
    steps.close()
    try:
        while seen.recv() != stop:
            pass
        time.sleep(wait)
        os.kill(child.pid, signal.SIGKILL)
    except EOFError:
        pass
    child.join()
    return child.exitcode


def test_killed_training_ends_with_equal_weights(server, made, tmp_path):
    assert run(server, made, tmp_path / "whole", tmp_path / "whole.safetensors") == 0
    dice = np.random.default_rng(0)
    # The moments behind a step cover the step itself, a look and the writing of a checkpoint.
    stops = np.sort(dice.integers(1, RECIPE.steps, size=KILLS))
    killed = [
        run(
            *(server, made, tmp_path / "cut", tmp_path / "cut.safetensors"),
            *(int(stop), dice.uniform(0, WAIT)),
        )
        for stop in stops
    ]
    assert killed.count(-signal.SIGKILL) >= KILLS // 2
    assert run(server, made, tmp_path / "cut", tmp_path / "cut.safetensors") == 0
    whole, cut = (load_file(tmp_path / f"{name}.safetensors") for name in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[name], cut[name]) for name in whole)
