"""Training: what a token sees, what the loss is of, leaks, and runs that are cut off."""

import math

import numpy as np
import polars as pl
import pytest
import torch

from pipelines.errors import EngineError
from pipelines.llm.engines.chat import render
from pipelines.progress import listening
from pipelines.prompts import PromptStyle, rating_messages, rating_options, scale_report
from pipelines.scales import SCALES
from pipelines.tuning import (
    Encoder,
    HeldOut,
    Recipe,
    make_model,
    pack,
    rating_examples,
    train,
    train_tokenizer,
    windows_of,
)
from pipelines.tuning._train import answer_logits, answer_loss, validation_loss
from tests.pipelines.tuning.worlds import noise, world

STYLE = PromptStyle("movies", SCALES["1-10"], layout="ledger")
NOBODY = HeldOut(frozenset(), frozenset())


def examples(tables, **more):
    more = {"cuts": 1, "window": 12, "history": 12, **more}
    return rating_examples(**tables, source=SCALES["0.5-5"], style=STYLE, held_out=NOBODY, **more)


def tokenizer_of(rows):
    texts = rows.filter(split="train")
    return train_tokenizer(
        [*texts["line"].unique().sort(), *texts["description"].unique().sort()],
        ["Film 3 (1953)"],
        STYLE.scale,
    )


@pytest.fixture(scope="module")
def small():
    """Rows, tokenizer, packed training and validation rows of a world of noise."""
    rows = examples(world(110, 150, 56, noise))
    tokenizer = tokenizer_of(rows)
    encoder = Encoder(tokenizer)
    data, validation = (
        pack(windows_of(part, encoder, 512), 512, tokenizer.pad_token_id)
        for part in (
            rows.filter(split="train"),
            rows.filter(pl.col("split") != "train").head(400),
        )
    )
    return rows, tokenizer, data, validation


def tiny(tokenizer, seed=0):
    return make_model(tokenizer, width=32, layers=2, seed=seed)


def test_answers_means_phrases_and_titles_are_one_token_each(small):
    tokenizer = small[1]
    reading = scale_report(tokenizer, SCALES["1-10"], "Film 3 (1953) -> ")
    assert (reading.way, reading.adds_up) == ("tokens", True)
    for text in (
        "10",
        "7.3",
        "10.0",
        " -> ",
        " | mean ",
        " of very many",
        "Film 3 (1953)",
        " | above others -0.3",
    ):
        assert len(tokenizer.encode(text, add_special_tokens=False)) == 1, text
    assert rating_options(SCALES["1-10"])[-1] == "10"
    # Any text can be written and read back: pieces are bytes.
    assert tokenizer.decode(tokenizer.encode("Amélie \U0001f3ac 7.31")) == "Amélie \U0001f3ac 7.31"


def test_ids_served_are_those_trained_on(small):
    rows, tokenizer, data, _ = small
    shown = rows.filter(split="train", shows="both")
    window = shown.filter(window=shown["window"][0])
    target = window.row(3, named=True)
    lines = rated(window.head(3))
    person = "\n".join([target["description"], *lines])
    served = render(tokenizer, rating_messages({}, target["line"], STYLE, person=person))
    whole = [
        part[part != tokenizer.pad_token_id].tolist()
        for part in (data.ids[n] for n in range(len(data)))
    ]
    answer = tokenizer.encode(f"{target['rating']:g}", add_special_tokens=False)
    assert any(contains(row, served + answer) for row in whole)


def rated(rows):
    """Lines of a history."""
    columns = rows.select("line", "rating", "after")
    return [f"{line} -> {rating:g}{after}" for line, rating, after in columns.iter_rows()]


def contains(row, part):
    return any(row[n : n + len(part)] == part for n in range(len(row) - len(part) + 1))


def test_a_packed_answer_is_that_of_a_plain_pass(small):
    """Windows of a row, and lines that stand alone in them, do not see each other."""
    rows, tokenizer, _, validation = small
    model = tiny(tokenizer).eval()
    batch = validation.batch([0])
    with torch.inference_mode():
        logits, labels = answer_logits(model, batch)
    window = rows.filter(split="validation")["window"][0]
    own = rows.filter(window=window)
    past = rated(own.filter(split="context"))
    for n, row in enumerate(own.filter(split="validation").iter_rows(named=True)):
        ids = render(tokenizer, rating_messages({}, row["line"], STYLE, person="\n".join(past)))
        with torch.inference_mode():
            plain = model(torch.tensor([ids])).logits[0, -1]
        assert torch.allclose(plain, logits[n], atol=1e-5)
        assert tokenizer.decode([labels[n]]) == f"{row['rating']:g}"


def test_attention_by_window_is_that_under_a_mask(small, monkeypatch):
    """Of lists and of lines that stand alone, in one batch; other architectures take the mask."""
    _, tokenizer, data, _ = small
    model = tiny(tokenizer).eval()
    batch = data.batch(range(6))
    assert (batch["branch"] > 0).any(1).sum() not in (0, 6)
    with torch.inference_mode():
        windows = answer_logits(model, batch)
        monkeypatch.setattr(model.config, "model_type", "other")
        masked = answer_logits(model, batch)
    assert torch.equal(windows[1], masked[1])
    assert torch.allclose(windows[0], masked[0], atol=1e-4)


def test_numbers_begin_near_their_neighbours(small):
    tokenizer = small[1]
    weights = tiny(tokenizer).get_input_embeddings().weight.detach()

    def alike(one, other):
        ids = [tokenizer.encode(text, add_special_tokens=False)[0] for text in (one, other)]
        return torch.cosine_similarity(*weights[ids], dim=0).item()

    for one, near, far in (
        ("7.0", "7.1", "2.0"),
        ("9", "8.9", "1"),
        (" | above others +0.3", " | above others +0.4", " | above others -3.0"),
    ):
        assert alike(one, near) > 0.9 > alike(one, far)
    assert alike("7", "7.0") == pytest.approx(1.0)
    assert alike("3.0", " | above others +3.0") < 0.9


def test_loss_is_over_the_whole_vocabulary_at_answers_only(small):
    _, tokenizer, data, _ = small
    model = tiny(tokenizer)
    batch = data.batch([0, 1])
    losses = answer_loss(model, batch)
    assert len(losses) == int((data.labels[:2] >= 0).sum())
    # Random weights spread the mass over all tokens, not over ten answers.
    assert abs(losses.mean().item() - math.log(len(tokenizer))) < 0.5


@pytest.mark.pipeline
@pytest.mark.parametrize("means", ["earlier", "training"])
def test_noise_can_not_be_predicted_unless_the_mean_holds_the_target(means):
    """The leak probe: loss of rows at first sight, over the first pass.

    A linear model of each line's tokens learns within a pass what a small transformer would need
    many for: that the mean of few people holds the target.
    """
    rows = examples(world(340, 3_000, 40, noise), means=means).filter(split="train")
    encoder = Encoder(tokenizer_of(rows))
    lines = [torch.tensor(encoder.ids(line)) for line in rows["line"]]
    answers = torch.from_numpy(rows["rating"].to_numpy() - 1).long()
    weights = torch.nn.EmbeddingBag(len(encoder.tokenizer), 10, mode="sum")
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
    assert (below > 0.01) == (means == "training"), f"{below:.3f} nats below the entropy"


RECIPE = Recipe(steps=12, batch=2, warmup=2, every=4, rate=1e-2)


def final(small, folder, stops=(), recipe=RECIPE):
    """Weights after a training that is cut off behind each of these steps."""
    _, tokenizer, data, validation = small
    for stop in [*stops, None]:

        def cut(_, step, __, stop=stop):
            if step == stop:
                raise KeyboardInterrupt

        model = tiny(tokenizer)
        try:
            with listening(cut):
                course = train(model, data, validation, recipe, folder)
        except KeyboardInterrupt:
            assert stop is not None
    return {n: p.detach().clone() for n, p in model.named_parameters()}, course


@pytest.mark.pipeline
def test_cut_off_training_ends_with_the_same_weights(small, tmp_path):
    whole, course = final(small, tmp_path / "whole")
    cut, again = final(small, tmp_path / "cut", stops=(3, 6, 6, 11))
    assert course.looks == again.looks
    assert [look["step"] for look in course.looks] == [4, 8, 12]
    for name, weight in whole.items():
        assert torch.equal(weight, cut[name]), name
    # A finished one is not trained again.
    assert final(small, tmp_path / "whole")[1].looks == course.looks


@pytest.mark.pipeline
def test_half_written_checkpoint_is_not_taken(small, tmp_path):
    whole, _ = final(small, tmp_path / "whole")
    folder = tmp_path / "cut"
    (folder / "checkpoint-8").mkdir(parents=True)
    (folder / "checkpoint-8" / "model.safetensors").write_bytes(b"half")
    cut, _ = final(small, folder)
    assert all(torch.equal(weight, cut[name]) for name, weight in whole.items())


def broken_at(calls):
    """A loss that is not finite in these calls (counted from 0; None: in all)."""
    seen, real = [], answer_loss

    def broken(model, batch, dropout=0.0):
        if dropout == 0.0:  # a look at the validation loss
            return real(model, batch, dropout)
        seen.append(1)
        loss = real(model, batch, dropout)
        return loss * float("nan") if calls is None or len(seen) - 1 in calls else loss

    return broken, seen


def rates_of(monkeypatch):
    """Learning rates of the optimiser's steps from now on."""
    rates, real = [], torch.optim.AdamW.step

    def step(self, *args, **kwargs):
        rates.append(self.param_groups[0]["lr"])
        return real(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    return rates


def test_loss_that_is_not_finite_twice_is_an_error(small, tmp_path, monkeypatch):
    broken, seen = broken_at(None)
    monkeypatch.setattr("pipelines.tuning._train.answer_loss", broken)
    with pytest.raises(EngineError, match="not finite"):
        final(small, tmp_path)
    assert len(seen) == 2


@pytest.mark.pipeline
@pytest.mark.parametrize(("call", "last"), [(2, 0), (6, 4)])
def test_loss_that_is_not_finite_once_goes_on_from_the_last_checkpoint_at_half_the_rate(
    small, tmp_path, monkeypatch, call, last
):
    rates = rates_of(monkeypatch)
    final(small, tmp_path / "whole")
    whole = rates.copy()
    rates.clear()
    monkeypatch.setattr("pipelines.tuning._train.answer_loss", broken_at({call})[0])
    _, course = final(small, tmp_path / "broken")
    assert course.retried
    assert rates == pytest.approx(whole[:call] + [rate / 2 for rate in whole[last:]])
    assert [look["step"] for look in course.looks] == [4, 8, 12]


@pytest.mark.pipeline
def test_half_the_rate_outlives_a_kill(small, tmp_path, monkeypatch):
    broken, _ = broken_at({2})
    monkeypatch.setattr("pipelines.tuning._train.answer_loss", broken)
    whole, _ = final(small, tmp_path / "whole")
    broken, _ = broken_at({2})
    monkeypatch.setattr("pipelines.tuning._train.answer_loss", broken)
    cut, course = final(small, tmp_path / "cut", stops=(6,))
    assert course.retried
    assert all(torch.equal(weight, cut[name]) for name, weight in whole.items())


def test_validation_loss_is_of_the_best_averaged_weights(small, tmp_path):
    _, tokenizer, data, validation = small
    model = tiny(tokenizer)
    course = train(model, data, validation, RECIPE, tmp_path)
    assert validation_loss(model, validation) == pytest.approx(course.nll, abs=1e-9)
    assert course.nll == min(look["nll"] for look in course.looks)
