"""Speed of training and where the time goes; memory of the replay buffer.

    python benchmarks/training/run.py --home HOME --steps 100000
    python benchmarks/training/run.py --parts masked buffer

Parts: `train` (A2C, or --algo, end to end on the release of HOME), `masked` (our masked categorical
beside sb3-contrib's at 10,000 items), `buffer` (memory of 250,000 transitions).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from pipelines.progress import listening

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness

PARTS = ("train", "masked", "buffer")
#: Training steps of SUBER (appendix F), and the goal for that many steps.
FULL, GOAL_MINUTES = 1_600_000, 30


class Sections:
    """CPU and wall seconds by section; a section inside another counts for itself alone."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = defaultdict(float)
        self.wall: dict[str, float] = defaultdict(float)
        self._inside: list[list[float]] = []

    def around(self, section: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The call, timed as part of a section."""

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._inside.append([0.0, 0.0])
            started = time.process_time(), time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                spent = time.process_time() - started[0], time.perf_counter() - started[1]
                inner = self._inside.pop()
                self.cpu[section] += spent[0] - inner[0]
                self.wall[section] += spent[1] - inner[1]
                if self._inside:
                    self._inside[-1][0] += spent[0]
                    self._inside[-1][1] += spent[1]

        return timed


def train(args: argparse.Namespace) -> None:
    import torch as th

    from sim.environment import World
    from sim.training import RunSettings, Training

    clock = Sections()
    world = World.open(args.release, home=args.home)
    rater: Any = world.rater
    rater.rate = clock.around("rater", rater.rate)

    class Timed(Training):
        def _model(self) -> tuple[Any, Any]:
            model, env = super()._model()
            policy = model.policy
            env.env.step = clock.around("environment without the rater", env.env.step)
            env.step_wait = clock.around("adapter", env.step_wait)
            policy.optimizer.step = clock.around("optimiser", policy.optimizer.step)
            if args.algo == "dqn":
                buffer = model.replay_buffer
                policy.predict = clock.around("policy: choosing", policy.predict)
                buffer.add = clock.around("buffer", buffer.add)
                buffer.sample = clock.around("buffer", buffer.sample)
                return model, env
            policy.forward = clock.around("policy: choosing", policy.forward)
            policy.predict_values = clock.around("policy: choosing", policy.predict_values)
            policy.evaluate_actions = clock.around("policy: loss", policy.evaluate_actions)
            buffer = model.rollout_buffer
            buffer.add = clock.around("buffer", buffer.add)
            buffer.get = clock.around("buffer", buffer.get)
            return model, env

    th.Tensor.backward = clock.around("backward", th.Tensor.backward)  # type: ignore[method-assign]
    clip = th.nn.utils.clip_grad_norm_
    th.nn.utils.clip_grad_norm_ = clock.around("optimiser", clip)
    marks: list[tuple[int, float, float]] = []

    def mark(_: str, done: int, __: int | None) -> None:
        if not marks:
            clock.cpu.clear()
            clock.wall.clear()
        marks.append((done, time.process_time(), time.perf_counter()))

    settings = RunSettings(
        algo=args.algo, steps=args.steps, envs=args.envs, users=50,
        evaluate_every=10 * args.steps, checkpoint_every=50_000,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        run = Timed(world, settings, Path(folder) / "run")
        with listening(mark):
            run.run()
    (first, cpu0, wall0), (last, cpu1, wall1) = marks[0], marks[-2]
    steps, cpu, wall = last - first, cpu1 - cpu0, wall1 - wall0
    print(
        f"\n{args.algo}, {run.settings.envs} environments, {len(world.catalogue):,} items x "
        f"{len(world.cast):,} personas, rater {world.rater.name}: {steps:,} steps in {wall:.0f} s "
        f"({steps / wall:,.0f} steps/s), {cpu:.0f} s of CPU ({steps / cpu:,.0f} steps/s of CPU).\n"
        f"Extrapolated to {FULL:,} steps: {FULL / steps * wall / 60:.0f} minutes at this load, "
        f"{FULL / steps * cpu / 60:.0f} minutes of CPU (goal: {GOAL_MINUTES} minutes). "
        f"Peak memory of the process: {harness.peak_mib():,.0f} MiB.\n"
    )
    rest = cpu - sum(clock.cpu.values())
    sections = [*clock.cpu.items(), ("stable-baselines3's loop, rest", rest)]
    rows = [
        {"where": name, "share": spent / cpu, "each": spent / steps * 1e6}
        for name, spent in sorted(sections, key=lambda section: -section[1])
    ]
    columns = {"where": "{where}", "share of CPU": "{share:.0%}", "CPU, µs per step": "{each:,.0f}"}
    harness.report(args, rows, columns)


def masked() -> None:
    import torch as th
    from sb3_contrib.common.maskable.distributions import MaskableCategorical

    from sim.training._networks import MASKED, MaskedCategorical

    th.set_num_threads(1)
    print("\n| masked categorical, 80 x 10,000 | CPU, ms |\n|---|--:|")
    weight = th.randn(32, 10_000) * 0.1
    user, mask = th.randn(80, 32), th.rand(80, 10_000) < 0.01
    free, action = (~mask).numpy(), th.where(mask, 0, 1).argmax(1)
    made = {
        "ours": lambda x: MaskedCategorical(x.masked_fill_(mask, MASKED), entropy_gradient=False),
        "sb3-contrib": lambda x: MaskableCategorical(logits=x, masks=free),
    }
    for name, make in made.items():
        for what, call in {
            "draw and log-probability": lambda d: d.log_prob(d.sample()),
            "log-probability, entropy, backward": lambda d: (
                d.log_prob(action).mean() + 0.0 * d.entropy().mean()
            ).backward(),
        }.items():
            spent = []
            for _ in range(30):
                leaf = weight.clone().requires_grad_("backward" in what)
                started = time.process_time()
                call(make(user @ leaf))
                spent.append(time.process_time() - started)
            print(f"| {name}: {what} | {sorted(spent)[15] * 1000:.1f} |")


def buffer() -> None:
    import numpy as np
    from gymnasium import spaces

    from sim.training._dqn import CompactReplayBuffer

    history, items, size = 200, 10_000, 250_000
    space = spaces.Dict(
        {
            "persona": spaces.Discrete(600),
            "age": spaces.Box(0, 120, (1,), np.float32),
            "gender": spaces.Discrete(3),
            "recent_items": spaces.Box(-1, items - 1, (history,), np.int64),
            "recent_ratings": spaces.Box(-1, 10, (history,), np.float32),
        }
    )
    process = psutil.Process()
    before = process.memory_info().rss
    made = CompactReplayBuffer(size, space, spaces.Discrete(items), n_envs=4)
    for name in made.ARRAYS:
        getattr(made, name)[...] = 1  # touch every page
    grown = process.memory_info().rss - before
    dense = size * items * (4 + 1) * 2
    print(
        f"\n{size:,} transitions at {items:,} items, history {history}: {made.nbytes / 1e9:.2f} GB "
        f"of arrays ({size * (history * 8 + 27) / 1e9:.2f} by arithmetic), the process grew by "
        f"{grown / 1e9:.2f} GB. Dense ratings and seen masks: {dense / 1e9:.0f} GB."
    )


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--home", help="store's folder")
    parser.add_argument("--release", default="movies@latest")
    parser.add_argument("--algo", default="a2c")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--envs", type=int)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    args = parser.parse_args()
    print(harness.heading(args))
    if "masked" in args.parts:
        masked()
    if "buffer" in args.parts:
        buffer()
    if "train" in args.parts:
        train(args)


if __name__ == "__main__":
    harness.start(main)
