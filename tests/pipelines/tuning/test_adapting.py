"""A given language model, adapted by LoRA and merged."""

import shutil

import numpy as np
import polars as pl
import pytest
import torch

from pipelines.config import EngineSettings, ServingSettings, TuningSettings
from pipelines.errors import ConfigError
from pipelines.llm.engines import Choice, Request, Sampling
from pipelines.llm.engines.checkpoints import Checkpoint
from pipelines.llm.engines.transformers import TransformersEngine
from pipelines.prompts import PromptStyle, rating_messages, rating_options
from pipelines.raters.report.calibration import Calibration
from pipelines.scales import SCALES
from pipelines.tuning import (
    HeldOut,
    Judged,
    Recipe,
    open_base,
    rating_examples,
    save_model,
    train_rating_model,
)
from tests.pipelines.tuning.worlds import noise, world

STYLE = PromptStyle("movies", SCALES["0-9"], layout="ledger")
SETTINGS = TuningSettings(steps=2, every=2, batch=1, rate=1e-2)
FACTS = {
    "source": "noise",
    "terms": "",
    "redistributed": True,
    "held_out_users": 0,
    "held_out_items": 0,
}


def checkpoint(folder):
    return Checkpoint(folder, folder.name)


@pytest.mark.night
def test_adapted_model_is_merged_and_served_as_it_was_trained(tiny_model, tmp_path):
    nobody = HeldOut(frozenset(), frozenset())
    examples = rating_examples(
        **world(110, 150, 56, noise),
        source=SCALES["0.5-5"],
        style=STYLE,
        held_out=nobody,
        cuts=1,
        window=12,
        history=6,
    ).sort("window", "position")
    base = open_base(checkpoint(tiny_model), STYLE)
    model = train_rating_model(
        examples, STYLE, SETTINGS, tmp_path / "training", base=base, recipe=Recipe(looked_at=4)
    )
    assert not [name for name, _ in model.model.named_parameters() if "lora" in name]
    figures = Judged(
        pl.DataFrame(schema=dict.fromkeys(("slice", "predictor", "metric"), pl.String))
    )
    folder = tmp_path / "model"
    save_model(model, Calibration("none"), figures, FACTS, folder)
    assert checkpoint(folder).tokenizer_digest() == checkpoint(tiny_model).tokenizer_digest()
    assert checkpoint(folder).weights_digest() != checkpoint(tiny_model).weights_digest()
    # A person's validation ratings, through the engine and as they were judged.
    name = examples.filter(split="validation")["window"][0]
    own = examples.filter(window=name)
    columns = own.filter(split="context").select("line", "rating", "after")
    past = "\n".join(f"{line} -> {rating:g}{after}" for line, rating, after in columns.iter_rows())
    engine = TransformersEngine.open(
        EngineSettings(kind="transformers", model=str(folder), dtype="float32"),
        ServingSettings(device="cpu"),
    )
    asked = [
        Request(
            messages=rating_messages({}, line, STYLE, person=past),
            constraint=Choice(rating_options(STYLE.scale)),
            sampling=Sampling(max_tokens=1),
            tag=str(n),
        )
        for n, line in enumerate(own.filter(split="validation")["line"])
    ]
    # Answers come in the engine's own order.
    served = {int(answer.request.tag): answer.probabilities for answer in engine.submit(asked)}
    assert np.abs(model.ask(own) - np.array([served[n] for n in range(len(asked))])).max() < 1e-5


def test_history_of_a_training_window_is_no_target(tiny_model):
    rows = pl.DataFrame(
        {
            "window": ["0:a:0"] * 4,
            "split": ["train"] * 4,
            "shows": ["history"] * 4,
            "description": [""] * 4,
            "line": ["Heat (1995)", "Up (2009)", "Saw (2004)", "Alien (1979)"],
            "after": [""] * 4,
            "rating": [1.0, 2.0, 3.0, 4.0],
        }
    )
    prompts = open_base(checkpoint(tiny_model), STYLE).prompts
    (window,) = prompts.windows(rows)
    assert window.rows == [2, 3]
    text = prompts.tokenizer.decode(window.ids)
    assert "Heat (1995) -> 1\nUp (2009) -> 2\n" in text
    assert "Saw (2004) -> 3" not in text


def without_safetensors(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def of_short_context(folder):
    config = folder / "config.json"
    text = config.read_text()
    assert '"max_position_embeddings": 1024' in text
    config.write_text(
        text.replace('"max_position_embeddings": 1024', '"max_position_embeddings": 512')
    )


@pytest.mark.parametrize(
    ("spoil", "scale", "message"),
    [
        (without_safetensors, "0-9", r"no \.safetensors file"),
        (of_short_context, "0-9", "context of 512 tokens is too short"),
        (lambda _: None, "1-10", r'an answer is not one token.*"10" is 2 tokens'),
    ],
)
def test_model_that_can_not_be_adapted_is_refused_before_training(
    tiny_model, tmp_path, spoil, scale, message
):
    folder = shutil.copytree(tiny_model, tmp_path / "base")
    spoil(folder)
    with pytest.raises(ConfigError, match=message):
        open_base(checkpoint(folder), PromptStyle("movies", SCALES[scale], layout="ledger"))


def test_only_added_matrices_are_trained(tiny_model):
    model = open_base(checkpoint(tiny_model), STYLE).model(seed=0)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert trained
    assert all("lora_" in name for name in trained)
    # Before the first step nothing is changed: the second matrix of each pair is zero.
    assert all(not torch.any(p) for name, p in model.named_parameters() if "lora_B" in name)
