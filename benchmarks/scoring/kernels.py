"""Time of a model's linear layers on a CPU: torch's own, and the same packed for oneDNN.

    python benchmarks/scoring/kernels.py FOLDER

FOLDER holds a checkpoint; it is read in float32. All linear layers, the head too, are timed
together for some numbers of rows, both kinds in turn.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from pipelines.llm.engines.transformers._linear import PackedLinear, can_pack, pack_linear_layers


def milliseconds(each: dict[str, Callable[[], Any]], repeat: int) -> dict[str, float]:
    """Median time of each way, measured in turn."""
    found: dict[str, list[float]] = {name: [] for name in each}
    for number in range(repeat + 1):
        for name, way in each.items():
            began = time.perf_counter()
            way()
            if number:
                found[name].append(1e3 * (time.perf_counter() - began))
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 4, 8, 20, 64, 512, 1024])
    parser.add_argument("--repeat", type=int, default=7)
    given = parser.parse_args()
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_grad_enabled(False)
    model: Any = AutoModelForCausalLM.from_pretrained(given.checkpoint, dtype=torch.float32).eval()
    if not can_pack(model):
        parser.error("layers are not packed on this machine")
    packed: Any = deepcopy(model)
    pack_linear_layers(packed)
    kinds = {"torch": (model, torch.nn.Linear), "packed": (packed, PackedLinear)}
    layers = {
        name: [layer for layer in whole.modules() if isinstance(layer, kind)]
        for name, (whole, kind) in kinds.items()
    }
    print(f"{torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}\n")
    print("| rows | torch, ms | packed, ms | ratio |\n|--:|--:|--:|--:|")
    for rows in given.rows:
        inputs = {
            layer.in_features: torch.randn(rows, layer.in_features) for layer in layers["torch"]
        }

        def through(name: str, inputs: Any = inputs) -> None:
            for layer in layers[name]:
                layer(inputs[layer.in_features])

        ms = milliseconds({n: (lambda n=n: through(n)) for n in layers}, given.repeat)  # type: ignore[misc]
        ratio = ms["torch"] / ms["packed"]
        print(f"| {rows:,} | {ms['torch']:,.1f} | {ms['packed']:,.1f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
