"""Training by the recipe: what a token sees, what the loss is of, leaks, and resuming."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch

from pipelines.config import TuningSettings
from pipelines.errors import EngineError
from pipelines.llm.engines.chat import render
from pipelines.progress import listening
from pipelines.prompts import PromptStyle, rating_messages, rating_options, scale_report
from pipelines.scales import SCALES
from pipelines.tuning import (
    HeldOut,
    Prompts,
    Recipe,
    batch_of,
    make_model,
    rating_examples,
    train_rating_model,
    train_tokenizer,
)
from pipelines.tuning._recipe import answer_logits
from tests.pipelines.tuning.worlds import noise, world

STYLE = PromptStyle("movies", SCALES["1-10"], layout="ledger")
NOBODY = HeldOut(frozenset(), frozenset())
SETTINGS = TuningSettings(steps=12, batch=2, every=4, rate=1e-2, dropout=0.1)
RECIPE = Recipe(width=32, looked_at=40, patience=9)


def examples(tables, **more):
    more = {"cuts": 1, "window": 12, "history": 12, **more}
    return rating_examples(**tables, source=SCALES["0.5-5"], style=STYLE, held_out=NOBODY, **more)


def prompts_of(rows):
    texts = rows.filter(split="train")
    tokenizer = train_tokenizer(
        [*texts["line"].unique().sort(), *texts["description"].unique().sort()],
        ["Film 3 (1953)"],
        STYLE.scale,
    )
    answers = tuple(tokenizer.encode(text)[0] for text in STYLE.scale.texts)
    return Prompts(tokenizer, answers, STYLE, lists=True)


@pytest.fixture(scope="module")
def small():
    """Rows of a world of noise, and how a model of it is asked."""
    rows = examples(world(110, 150, 56, noise)).sort("window", "position")
    return rows, prompts_of(rows)


def tiny(prompts):
    return make_model(prompts.tokenizer, width=32, layers=2, seed=0).eval()


def rated(rows):
    """Lines of a history."""
    columns = rows.select("line", "rating", "after")
    return [f"{line} -> {rating:g}{after}" for line, rating, after in columns.iter_rows()]


def test_answers_means_phrases_and_titles_are_one_token_each(small):
    tokenizer = small[1].tokenizer
    reading = scale_report(tokenizer, SCALES["1-10"], "Film 3 (1953) -> ")
    assert (reading.way, reading.adds_up) == ("tokens", True)
    for text in ("10", "7.3", " -> ", " | mean ", "Film 3 (1953)", " | above others -0.3"):
        assert len(tokenizer.encode(text, add_special_tokens=False)) == 1, text
    assert rating_options(SCALES["1-10"])[-1] == "10"
    # Any text can be written and read back: pieces are bytes.
    assert tokenizer.decode(tokenizer.encode("Amélie \U0001f3ac 7.31")) == "Amélie \U0001f3ac 7.31"


def test_ids_served_are_those_trained_on(small):
    rows, prompts = small
    shown = rows.filter(split="train", shows="both")
    part = shown.filter(window=shown["window"][0])
    (window,) = prompts.windows(part)
    assert window.rows == list(range(part.height))
    judged = [n for n, label in enumerate(window.labels) if label >= 0]
    target = part.row(3, named=True)
    person = "\n".join([target["description"], *rated(part.head(3))])
    served = render(prompts.tokenizer, rating_messages({}, target["line"], STYLE, person=person))
    assert window.ids[: judged[3] + 1] == list(served)
    assert prompts.tokenizer.decode([window.labels[judged[3]]]) == f"{target['rating']:g}"


def test_answer_of_a_branch_is_that_of_a_plain_pass(small):
    """Lines that stand alone behind a history or a description do not see each other."""
    rows, prompts = small
    model = tiny(prompts)
    names = [
        rows.filter(**kind)["window"][0]
        for kind in ({"split": "validation"}, {"split": "train", "shows": "description"})
    ]
    part = rows.filter(pl.col("window").is_in(names))
    windows = list(prompts.windows(part))
    with torch.inference_mode():
        logits, labels = answer_logits(model, batch_of(windows))
    numbers = [row for window in windows for row in window.rows]
    assert len(numbers) == len(logits)
    for number, found, label in zip(numbers, logits, labels, strict=True):
        row = part.row(number, named=True)
        own = part.filter(window=row["window"])
        person = "\n".join(
            [row["description"]] * bool(row["description"]) + rated(own.filter(split="context"))
        )
        ids = render(prompts.tokenizer, rating_messages({}, row["line"], STYLE, person=person))
        with torch.inference_mode():
            plain = model(torch.tensor([ids])).logits[0, -1]
        assert torch.allclose(plain, found, atol=1e-5)
        assert prompts.tokenizer.decode([label]) == f"{row['rating']:g}"


def test_loss_is_over_the_whole_vocabulary_at_answers_only(small):
    rows, prompts = small
    windows = list(prompts.windows(rows.filter(split="train").head(24)))
    logits, labels = answer_logits(tiny(prompts), batch_of(windows))
    assert len(labels) == sum(len(window.rows) for window in windows) == 24
    # Random weights spread the mass over all tokens, not over ten answers.
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    assert abs(loss - math.log(len(prompts.tokenizer))) < 0.5


@pytest.mark.pipeline
@pytest.mark.parametrize("leaks", [False, True])
def test_noise_can_not_be_predicted_unless_the_mean_holds_the_target(leaks, monkeypatch):
    """The leak probe: loss of rows at first sight, over the first pass.

    A linear model of each line's tokens learns within a pass what a small transformer would need
    many for: that the mean of few people holds the target.
    """

    def final_means(rows):
        of_all = {"raters": pl.len().cast(pl.Int64), "mean": pl.col("rating").mean()}
        means = rows.group_by("item_id").agg(**of_all)
        return rows.join(means, on="item_id").sort("user_id", "rated_at", "item_id")

    if leaks:
        monkeypatch.setattr("pipelines.tuning._examples.earlier_means", final_means)
    rows = examples(world(340, 3_000, 40, noise)).filter(split="train")
    tokenizer = prompts_of(rows).tokenizer
    lines = [torch.tensor(tokenizer.encode(line)) for line in rows["line"]]
    answers = torch.from_numpy(rows["rating"].to_numpy() - 1).long()
    weights = torch.nn.EmbeddingBag(len(tokenizer), 10, mode="sum")
    torch.nn.init.zeros_(weights.weight)
    optimiser = torch.optim.Adagrad(weights.parameters(), lr=0.03)
    losses = []
    for part in np.array_split(np.random.default_rng(0).permutation(len(lines)), 400):
        ends = np.cumsum([0, *(len(lines[n]) for n in part)])[:-1]
        logits = weights(torch.cat([lines[n] for n in part]), torch.from_numpy(ends))
        loss = torch.nn.functional.cross_entropy(logits, answers[part])
        losses.append(loss.item())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    below = math.log(10) - float(np.mean(losses))
    assert (below > 0.01) == leaks, f"{below:.3f} nats below the entropy"


def weights(model):
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


@pytest.mark.pipeline
def test_killed_training_goes_on_from_the_last_checkpoint_to_equal_weights(small, tmp_path):
    """Also over a checkpoint whose writing was cut off."""
    rows, _ = small
    whole = train_rating_model(rows, STYLE, SETTINGS, tmp_path / "whole", recipe=RECIPE)
    folder = tmp_path / "cut"
    for stop in (3, 6, 11):

        def cut(_, step, __, stop=stop):
            if step == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), listening(cut):
            train_rating_model(rows, STYLE, SETTINGS, folder, recipe=RECIPE)
    (folder / "checkpoint-11").mkdir()
    (folder / "checkpoint-11" / "model.safetensors").write_bytes(b"half")
    cut_off = train_rating_model(rows, STYLE, SETTINGS, folder, recipe=RECIPE)
    assert whole.course == cut_off.course
    assert [look["step"] for look in whole.course] == [4, 8, 12]
    for name, weight in weights(whole.model).items():
        assert torch.equal(weight, weights(cut_off.model)[name]), name


@pytest.mark.pipeline
def test_model_has_the_weights_of_its_best_evaluation_and_stops_early(small, tmp_path):
    """A rate at which the loss rises again."""
    rows, _ = small
    settings = SETTINGS.model_copy(update={"steps": 40, "dropout": 0.0})
    recipe = replace(RECIPE, patience=2)
    model = train_rating_model(rows, STYLE, settings, tmp_path, recipe=recipe)
    assert model.best["nll"] == min(look["nll"] for look in model.course)
    last, best = model.course[-1]["step"], model.best["step"]
    assert last == min(40, best + 2 * settings.every)


def test_loss_that_is_not_finite_is_an_error(small, tmp_path, monkeypatch):
    def broken(model, batch):
        logits, labels = answer_logits(model, batch)
        return logits * float("nan"), labels

    monkeypatch.setattr("pipelines.tuning._recipe.answer_logits", broken)
    with pytest.raises(EngineError, match=r"not finite.*lower tuning\.rate"):
        train_rating_model(small[0], STYLE, SETTINGS, tmp_path, recipe=RECIPE)
