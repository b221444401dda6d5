"""The factorised Fisher matrix is that of twice differentiating the divergence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch as th
from sb3_contrib import TRPO

from sim.environment import World
from sim.training import RunSettings, Training
from sim.training import _policies as trpo


def test_fisher_products_equal_those_of_the_differentiated_divergence(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trpo, "_EVERY", 1)
    settings = RunSettings(algo="trpo", length_limit=20, components=3, envs=4)
    model, env = Training(world, settings, tmp_path / "run")._model()
    model.set_logger(_quiet())
    model.rollout_buffer.reset()
    model._last_obs = env.reset()
    model._last_episode_starts = [True] * 4
    with th.no_grad():
        for parameter in model.policy.actor.parameters():
            parameter.normal_(std=0.3, generator=th.Generator().manual_seed(2))
    model._setup_learn(10)
    model.collect_rollouts(env, _callback(model), model.rollout_buffer, model.n_steps)
    (batch,) = model.rollout_buffer.get(batch_size=None)
    one, two, three = (model.policy.get_distribution(batch.observations) for _ in range(3))
    two.distribution.logits = two.distribution.logits.detach()
    two.distribution.log_norm = two.distribution.log_norm.detach()
    divergence = th.distributions.kl_divergence(two.distribution, one.distribution).mean()
    params = list(model.policy.actor.parameters())
    slow: list[Any] = list(th.autograd.grad(divergence, params, create_graph=True))
    gradient = th.cat([g.reshape(-1) for g in slow])
    objective = three.log_prob(batch.actions.long().flatten()).mean()
    _, _, fisher, shapes = model._compute_actor_grad(divergence, objective)
    assert shapes == [p.shape for p in params]
    vector = th.randn(len(gradient), generator=th.Generator().manual_seed(3))
    fast = model.hessian_vector_product(params, fisher, vector)
    wanted = TRPO.hessian_vector_product(model, params, gradient, vector)
    assert th.allclose(fast, wanted, atol=1e-4)
    assert float((fast - model.cg_damping * vector).abs().max()) > 0.01


def _quiet() -> Any:
    from stable_baselines3.common.logger import Logger

    return Logger(folder=None, output_formats=[])


def _callback(model: Any) -> Any:
    from stable_baselines3.common.callbacks import CallbackList

    callback = CallbackList([])
    callback.init_callback(model)
    return callback
