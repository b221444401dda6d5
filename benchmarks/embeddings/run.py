"""CPU seconds of the text encoders, on texts of a published release.

    understudy run --home HOME
    python benchmarks/embeddings/run.py --home HOME

Each encoder is loaded in a process of its own, with one thread, and encodes the same texts
`--repeat` times; the median of the times is shown, and its ratio to the bundled encoder's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from pipelines.config import EmbeddingSettings, RuntimeSettings
from pipelines.embeddings import (
    SentenceTransformersEmbedder,
    item_text,
    load_embedder,
    persona_text,
)
from sim import open_release

ENCODERS = ("NumPy (bundled)", "torch, batches of 64")
DOMAINS = ("games", "movies")
TEXTS = 48


def measure(encoder: str, home: Path, repeat: int) -> dict[str, list[float]]:
    """Seconds of every repetition by kind of text, and of loading the encoder."""
    start = time.process_time()
    if encoder == ENCODERS[0]:
        loaded = load_embedder(EmbeddingSettings(), RuntimeSettings(threads=1))
    else:
        loaded = SentenceTransformersEmbedder(threads=1)
    loaded.encode(["a first text"])
    found = {"load": [time.process_time() - start]}
    for domain in DOMAINS:
        release = open_release(f"{domain}@latest", home=home)
        for table, text in (("items", item_text), ("personas", persona_text)):
            texts = text(release[table].polars().head(TEXTS)).to_list()
            seconds = found.setdefault(f"{len(texts)} {domain} {table}", [])
            for _ in range(repeat):
                start = time.process_time()
                loaded.encode(texts)
                seconds.append(time.process_time() - start)
    return found


def main() -> None:
    """Print the rows of the README's table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--home", type=Path, required=True, help="home with published releases")
    parser.add_argument("--repeat", type=int, default=5, help="encodings of the same texts")
    parser.add_argument("--encoder", choices=ENCODERS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.encoder:
        print(json.dumps(measure(args.encoder, args.home, args.repeat)))
        return
    found = {}
    for encoder in ENCODERS:
        command = [sys.executable, __file__, "--home", str(args.home), "--encoder", encoder]
        command += ["--repeat", str(args.repeat)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        found[encoder] = json.loads(done.stdout.splitlines()[-1])
    ours, other = (found[encoder] for encoder in ENCODERS)
    print("| texts | NumPy (bundled), CPU s | torch, CPU s | torch to NumPy |")
    print("|---|--:|--:|--:|")
    for kind in ours:
        numpy_s, torch_s = statistics.median(ours[kind]), statistics.median(other[kind])
        print(f"| {kind} | {numpy_s:.2f} | {torch_s:.2f} | {torch_s / numpy_s:.2f} |")


if __name__ == "__main__":
    main()
