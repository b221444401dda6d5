"""The masked categorical: laws, and what sb3-contrib's does at 10,000 items."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from hypothesis import given, settings
from hypothesis import strategies as st
from sb3_contrib.common.maskable.distributions import MaskableCategorical
from torch.distributions import Categorical, kl_divergence

from sim.training._networks import MASKED, MaskedCategorical, MaskedCategoricalDistribution

ITEMS = 10_000


@pytest.fixture(autouse=True)
def one_thread() -> None:
    th.set_num_threads(1)


def masked(logits: th.Tensor, mask: th.Tensor) -> MaskedCategorical:
    return MaskedCategorical(logits.masked_fill(mask, MASKED))


def drawn(seed: int, rows: int, items: int, spread: float) -> tuple[th.Tensor, th.Tensor]:
    generator = th.Generator().manual_seed(seed)
    logits = th.randn(rows, items, generator=generator) * spread
    mask = th.rand(rows, items, generator=generator) < 0.5
    mask[:, int(seed) % items] = False
    return logits, mask


cases = {
    "seed": st.integers(0, 10_000),
    "items": st.integers(1, 40),
    "spread": st.sampled_from([0.0, 1.0, 30.0]),
}


@given(**cases)
@settings(max_examples=50, deadline=None)
def test_masked_items_have_probability_exactly_zero_and_the_rest_sums_to_one(
    seed: int, items: int, spread: float
) -> None:
    logits, mask = drawn(seed, 4, items, spread)
    probs = masked(logits, mask).probs
    assert bool((probs[mask] == 0).all())
    assert bool((probs >= 0).all())
    assert th.allclose(probs.sum(-1), th.ones(4), atol=1e-5)


@given(**cases)
@settings(max_examples=50, deadline=None)
def test_it_is_the_categorical_over_what_is_left(seed: int, items: int, spread: float) -> None:
    logits, mask = drawn(seed, 3, items, spread)
    ours = masked(logits, mask)
    for row in range(3):
        free = th.nonzero(~mask[row]).ravel()
        other = Categorical(logits=logits[row, free].double())
        assert ours.entropy()[row].item() == pytest.approx(other.entropy().item(), abs=1e-4)
        for at, item in enumerate(free.tolist()):
            log_prob = ours.log_prob(th.tensor([item] * 3))[row].item()
            assert log_prob == pytest.approx(other.log_prob(th.tensor(at)).item(), abs=1e-4)


@given(**cases)
@settings(max_examples=50, deadline=None)
def test_entropy_and_every_gradient_are_finite(seed: int, items: int, spread: float) -> None:
    logits, mask = drawn(seed, 4, items, spread)
    logits.requires_grad_()
    ours = masked(logits, mask)
    action = ours.sample()
    loss = ours.log_prob(action).sum() + ours.entropy().sum()
    loss.backward()
    assert bool(th.isfinite(ours.entropy()).all())
    assert logits.grad is not None
    assert bool(th.isfinite(logits.grad).all())
    assert bool((logits.grad[mask] == 0).all())


@given(**cases)
@settings(max_examples=100, deadline=None)
def test_a_masked_item_is_never_drawn(seed: int, items: int, spread: float) -> None:
    logits, mask = drawn(seed, 200, items, spread)
    th.manual_seed(seed)
    action = masked(logits, mask).sample()
    assert not bool(mask[th.arange(200), action].any())


def test_the_largest_uniform_number_still_draws_an_item(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 1.0 - 2.0**-24
    monkeypatch.setattr(th, "rand_like", lambda x: th.full_like(x, largest))
    logits, mask = drawn(5, 50, 1_000, 3.0)
    mask[:, -1] = True  # the last item must not be what is left over
    action = masked(logits, mask).sample()
    assert bool((action < 1_000).all())
    assert not bool(mask[th.arange(50), action].any())


def test_draws_follow_the_probabilities() -> None:
    th.manual_seed(0)
    probs = th.tensor([0.5, 0.0, 0.3, 0.2])
    logits = probs.log().masked_fill(probs == 0, MASKED).repeat(40_000, 1)
    counts = th.bincount(MaskedCategorical(logits).sample(), minlength=4) / 40_000
    assert counts.tolist() == pytest.approx(probs.tolist(), abs=0.01)  # 4 standard deviations


def test_divergence_is_that_of_what_is_left_and_can_be_differentiated_twice() -> None:
    logits, mask = drawn(3, 2, 12, 1.0)
    other, _ = drawn(4, 2, 12, 1.0)
    logits.requires_grad_()
    found = kl_divergence(masked(logits, mask), masked(other, mask))
    for row in range(2):
        free = ~mask[row]
        p, q = (Categorical(logits=x[row, free].detach()) for x in (logits, other))
        assert found[row].item() == pytest.approx(kl_divergence(p, q).item(), abs=1e-5)
    (first,) = th.autograd.grad(found.sum(), logits, create_graph=True)
    (second,) = th.autograd.grad((first**2).sum(), logits)
    assert bool(th.isfinite(second).all())


def test_the_wrapper_gives_the_most_probable_item_when_asked_for_no_chance() -> None:
    logits, mask = drawn(1, 3, 9, 1.0)
    wrapper = MaskedCategoricalDistribution()
    action = wrapper.actions_from_params(logits.masked_fill(mask, MASKED), deterministic=True)
    assert action.tolist() == logits.masked_fill(mask, -np.inf).argmax(1).tolist()


def test_entropy_without_a_gradient_is_the_same_number() -> None:
    logits, mask = drawn(2, 3, 9, 1.0)
    logits.requires_grad_()
    filled = logits.masked_fill(mask, MASKED)
    cheap = MaskedCategorical(filled, entropy_gradient=False).entropy()
    assert not cheap.requires_grad
    assert th.equal(cheap, MaskedCategorical(filled).entropy().detach())


def at_ten_thousand() -> tuple[th.Tensor, th.Tensor]:
    return drawn(0, 256, ITEMS, 5.0)


def test_ten_thousand_items_keep_the_laws() -> None:
    logits, mask = at_ten_thousand()
    ours = masked(logits, mask)
    assert bool((ours.probs[mask] == 0).all())
    assert th.allclose(ours.probs.sum(-1), th.ones(256), atol=1e-5)
    assert bool(th.isfinite(ours.entropy()).all())
    assert not bool(mask[th.arange(256), ours.sample()].any())


def test_a_softmax_over_ten_thousand_items_misses_torchs_tolerance_of_a_simplex() -> None:
    # The cause of sb3-contrib's issue 322: its distribution was made a second time while it
    # still held the softmax of the first, which torch then checked to 1e-6.
    logits, mask = at_ten_thousand()
    stale = Categorical(logits=logits.masked_fill(mask, -1e8))
    assert (stale.probs.sum(-1) - 1).abs().max() > 1e-6  # the attribute is kept on the instance
    with pytest.raises(ValueError, match="Simplex"):
        Categorical.__init__(stale, logits=logits, validate_args=True)


def test_the_installed_sb3_contrib_has_mended_it_and_agrees_with_ours() -> None:
    # If this fails after an update, the documentation's sentence on sb3-contrib is out of date.
    logits, mask = at_ten_thousand()
    theirs = MaskableCategorical(logits=logits, masks=(~mask).numpy())
    assert theirs.probs.shape == (256, ITEMS)
    theirs.apply_masking((~mask).numpy())
    action = masked(logits, mask).sample()
    expected = masked(logits, mask).log_prob(action)
    assert th.allclose(theirs.log_prob(action), expected, atol=1e-4)
