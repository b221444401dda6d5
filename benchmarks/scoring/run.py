"""Bulk scoring against a loop that asks one prompt at a time, with the same model in one run.

    .venv/bin/python benchmarks/scoring/run.py                          # about three minutes
    python benchmarks/scoring/run.py --shape 7b --device cuda --personas 64 --items 64
    python benchmarks/scoring/run.py --checkpoint FOLDER --dtype bfloat16 --repeat 1 --warm 0

The model is a Llama with random weights made on the spot: about 15 million parameters, or with
``--shape 7b`` the shape of a 7B one (13 GB of weights in bfloat16). The loop is what SUBER does:
one pair, one prompt, one pass, nothing reused (``serving.prefix_reuse: false``). The bulk path is
`LLMRater` over the same engine with prefixes shared. Figures are medians of --repeat runs, each
over personas that no run saw before, after one run that is not counted; the answer store is off.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness

sys.path[:0] = [str(harness.REPOSITORY), str(harness.REPOSITORY / "tests")]

Row = harness.Figures
COLUMNS = {
    "path": "{path}", "pairs/s": "{pairs_s:,.1f}", "prompt tokens/s": "{tokens_s:,.0f}",
    "tokens computed": "{computed:.1%}", "x loop": "{ratio:,.1f}",
}  # fmt: skip

SHAPES: dict[str, Row] = {
    "15m": {
        "hidden_size": 384,
        "intermediate_size": 1152,
        "num_hidden_layers": 8,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "max_position_embeddings": 2048,
    },
    "7b": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 4096,
        "vocab_size": 32000,
        "tie_word_embeddings": False,
    },
}


def main() -> None:
    """Measure and print Markdown."""
    parser = harness.parser(__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="15m")
    parser.add_argument("--checkpoint", type=Path, help="folder of a Llama instead of a shape")
    parser.add_argument("--dtype", default="float32", help="of a checkpoint's weights")
    parser.add_argument("--layout", default="letter", help="layout of the prompts")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--personas", type=int, default=4, help="personas of each run")
    parser.add_argument("--items", type=int, default=40, help="items that each of them rates")
    parser.add_argument("--history", type=int, default=10, help="past ratings in each prompt")
    parser.add_argument("--loop-pairs", type=int, default=16, help="pairs of the loop in each run")
    parser.add_argument("--scale", default="1-10")
    parser.add_argument("--window", type=int, default=256)
    parser.add_argument("--batch-tokens", type=int, default=16_384)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--warm", type=int, default=1, help="runs before that are not counted")
    parser.add_argument(
        "--mapped", action="store_true", help="map blocks of a MiB anew, as during an ingest"
    )
    args = parser.parse_args()
    import torch

    from pipelines.sources._ingest import large_blocks_given_back

    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as place, ExitStack() as during:
        if args.mapped:
            during.enter_context(large_blocks_given_back())
        model = args.checkpoint or make_model(Path(place) / f"llama-{args.shape}", args)
        rows = measure(model, args)
    print(f"{rows['model']}; prompts of {rows['prompt']} tokens")
    harness.report(args, rows["paths"], COLUMNS)
    line = rows["roofline"]
    print(
        f"\nMatrix products of the computed tokens: {line['achieved']:.2f} TFLOP/s, "
        f"{line['share']:.0%} of the {line['peak']:.2f} this device reaches."
    )


def make_model(folder: Path, args: argparse.Namespace) -> Path:
    """A checkpoint of the shape; a large one is saved in the precision it runs in."""
    import torch
    from support.tiny_models import tiny_checkpoint

    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16 if args.shape == "7b" else torch.float32)
    try:
        return tiny_checkpoint(folder, shape=SHAPES[args.shape])
    finally:
        torch.set_default_dtype(before)


def tables(run: int, args: argparse.Namespace) -> tuple[Any, Any, Any]:
    """Personas, items and histories: text of the sample world's generators."""
    import numpy as np
    import polars as pl

    from pipelines.config import PersonaSettings
    from pipelines.personas import generate
    from pipelines.sample_world._films import draw_films
    from pipelines.scales import scale_named

    films = draw_films(seed=2, count=args.items + 200)
    items = pl.DataFrame(
        {
            "item_id": [f"ml:{n}" for n in range(len(films))],
            "title": [f.title for f in films],
            "genres": [list(f.genres) for f in films],
            "overview": [f.overview for f in films],
        }
    )
    people = generate(PersonaSettings(count=max(args.personas, 20), seed=100 + run))
    people = people.head(args.personas)
    dice, scale = np.random.default_rng(run), scale_named(args.scale)
    past = [
        (person, f"ml:{item}", float(dice.choice(scale.answers)))
        for person in people["persona_id"]
        for item in dice.choice(np.arange(args.items, len(films)), args.history, replace=False)
    ]
    histories = pl.DataFrame(past, schema=["persona_id", "item_id", "rating"], orient="row")
    return people, items, histories


def measure(model: Path, args: argparse.Namespace) -> Row:
    """Figures of the loop and of the bulk path in both orders."""
    import numpy as np

    from pipelines.config import EngineSettings, ServingSettings
    from pipelines.llm.engines import load_engine
    from pipelines.llm.engines.tokens import load_tokenizer
    from pipelines.raters import LLMRater
    from pipelines.scales import scale_named

    dtype = {"dtype": args.dtype} if args.checkpoint else {}
    settings = EngineSettings(kind="transformers", model=str(model), **dtype)
    serving = ServingSettings(
        device=args.device, window=args.window, batch_tokens=args.batch_tokens
    )
    bulk = load_engine(settings, serving)
    alone = load_engine(settings, serving.model_copy(update={"prefix_reuse": False, "window": 1}))
    figures: dict[str, list[tuple[float, float, float]]] = {}
    sizes: list[int] = []
    computed_rate: list[float] = []
    for run in range(1 - args.warm, args.repeat + 1):
        people, items, histories = tables(run, args)
        every = np.array([(p, i) for p in range(people.height) for i in range(args.items)])

        def rater(engine: Any, items: Any = items) -> LLMRater:
            return LLMRater(
                engine, scale_named(args.scale), history=args.history, catalogue=items,
                tokenizer=load_tokenizer(model), serving=serving, layout=args.layout,
            )  # fmt: skip

        def note(
            path: str, began: float, pairs: int, tokens: int, cached: int, run: int = run
        ) -> None:
            seconds = time.perf_counter() - began
            if run:
                figures.setdefault(path, []).append(
                    (pairs / seconds, tokens / seconds, 1 - cached / tokens)
                )
                if path.startswith("bulk, user"):
                    computed_rate.append((tokens - cached) / seconds)

        one = rater(alone)
        few = every[np.random.default_rng(run).permutation(len(every))[: args.loop_pairs]]
        began = time.perf_counter()
        for pair in few:
            answer = one.rate(people, items, histories, pairs=pair[None, :])
            assert list(answer.status) == ["ok"], answer.notes
        note("loop", began, len(few), one.tally.prompt_tokens, one.tally.cached_tokens)

        for path, by in (("bulk, user-major", 0), ("bulk, item-major", 1)):
            requests = list(rater(bulk).requests(people, items, histories, pairs=every))
            if by:
                requests.sort(key=lambda r: (r.tag.item, r.tag.person))
            if not by:
                asked = rater(bulk)
                began = time.perf_counter()
                found = asked.rate(people, items, histories, pairs=every)
                assert set(found.status) == {"ok"}
                tokens, cached = asked.tally.prompt_tokens, asked.tally.cached_tokens
                sizes.append(tokens // len(every))
            else:
                # The engine anew, else it would know these personas' prefixes already.
                bulk.close()
                bulk = load_engine(settings, serving)
                began = time.perf_counter()
                answers = list(bulk.submit(requests))
                assert {a.status for a in answers} == {"ok"}
                tokens = sum(a.prompt_tokens for a in answers)
                cached = sum(a.cached_tokens for a in answers)
            note(path, began, len(every), tokens, cached)
    rows: Row = {"paths": [], "prompt": int(statistics.median(sizes))}
    for path, runs in figures.items():
        columns = [statistics.median(column) for column in zip(*runs, strict=True)]
        pairs_s, tokens_s, computed = columns
        rows["paths"].append(
            {"path": path, "pairs_s": pairs_s, "tokens_s": tokens_s, "computed": computed}
        )
    harness.add_ratios(rows["paths"], "pairs_s", rows["paths"][0])
    shape = SHAPES[args.shape]
    if args.checkpoint:
        shape = json.loads((args.checkpoint / "config.json").read_text(encoding="utf-8"))
    weights = matrix_weights(shape)
    name = args.checkpoint.name if args.checkpoint else f"Llama {args.shape}"
    rows["model"] = f"{name} ({weights / 1e6:,.1f} M weights in matrix products)"
    peak = matmul_peak(args.device, "float32" if args.device == "cpu" and not dtype else args.dtype)
    achieved = 2 * weights * statistics.median(computed_rate) / 1e12
    rows["roofline"] = {"achieved": achieved, "peak": peak, "share": achieved / peak}
    bulk.close()
    alone.close()
    return rows


def matrix_weights(shape: Row) -> int:
    """Weights that every computed token is multiplied by (the output layer is not: few are)."""
    hidden, heads = shape["hidden_size"], shape["num_attention_heads"]
    keys = hidden // heads * shape["num_key_value_heads"]
    attention = 2 * hidden * hidden + 2 * hidden * keys
    return int(shape["num_hidden_layers"] * (attention + 3 * hidden * shape["intermediate_size"]))


def matmul_peak(device: str, dtype: str) -> float:
    """TFLOP/s of large matrix products on the device."""
    import torch

    on_gpu = device.startswith("cuda")
    size, times = 8192 if on_gpu else 2048, []
    kind = torch.bfloat16 if on_gpu else getattr(torch, dtype)
    left, right = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    for _ in range(12):
        began = time.perf_counter()
        left @ right
        if on_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return 2 * size**3 / statistics.median(times[2:]) / 1e12


if __name__ == "__main__":
    harness.start(main)
