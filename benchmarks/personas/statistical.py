"""Personas of the statistical writer: rate, memory and variety; prints a Markdown table.

python benchmarks/personas/statistical.py --count 100000 --repeat 3
"""

from __future__ import annotations

import argparse
import re
import resource
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

DOMAINS = ("movies", "books", "games")


def measure(domain: str, count: int) -> tuple[float, float, float]:
    """Make one cohort batch by batch: seconds, processor seconds, peak memory (MiB)."""
    from pipelines.config import PersonaSettings
    from pipelines.personas import generate_batches

    settings = PersonaSettings(count=count)
    wall, processor = time.perf_counter(), time.process_time()
    made = sum(frame.height for frame in generate_batches(settings, cohort=f"{domain}-benchmark"))
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    if made != count:
        raise SystemExit(f"{made} personas instead of {count}")
    return wall, processor, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def variety(texts: Iterable[str]) -> tuple[float, float, float]:
    """Share of sentences that come again; distinct words and pairs of words, over all of them.

    J. Li et al., "A Diversity-Promoting Objective Function for Neural Conversation Models", NAACL
    2016. Words are in lower case. Compare equal numbers of texts.
    """
    parts: Counter[str] = Counter()
    words: Counter[str] = Counter()
    pairs: Counter[tuple[str, str]] = Counter()
    for text in texts:
        # The town is the one abbreviation of our lists.
        parts.update(re.split(r"(?<=[.!?])(?<!St\.) +(?=[A-Z0-9])", text.strip()))
        found = re.findall(r"[\w'-]+", text.lower())
        words.update(found)
        pairs.update(pairwise(found))
    repeated = sum(n for n in parts.values() if n > 1) / parts.total()
    return repeated, len(words) / words.total(), len(pairs) / pairs.total()


def default_cohort(texts: Iterable[str]) -> tuple[float, float]:
    """Distinct 6-grams over all 6-grams, and the share of texts with the most frequent sentence."""
    grams: Counter[tuple[str, ...]] = Counter()
    sentences: Counter[str] = Counter()
    known = list(texts)
    for text in known:
        words = re.findall(r"\w+(?:'\w+)?", text.lower())
        grams.update(zip(*(words[n:] for n in range(6)), strict=False))
        sentences.update(set(re.split(r"(?<=[.!?])\s+", text)))
    return len(grams) / grams.total(), sentences.most_common(1)[0][1] / len(known)


def main() -> None:
    """Measure each domain in processes of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="personas per cohort (count)")
    parser.add_argument("--texts", type=int, default=10_000, help="texts whose variety is measured")
    parser.add_argument("--repeat", type=int, default=3, help="runs per domain (count)")
    parser.add_argument("--one", choices=DOMAINS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(*measure(given.one, given.count))
        return
    from pipelines.config import PersonaSettings
    from pipelines.personas import generate

    print(
        f"| domain | personas | personas/min | per processor minute | peak MiB | variety of | "
        f"equal texts | repeated sentences | distinct-1 | distinct-2 | distinct-6 of 1,000 "
        f"| top sentence of 1,000 |\n|---|{'---:|' * 11}"
    )
    for domain in DOMAINS:
        runs = []
        for _ in range(given.repeat):
            # A fresh process, so that peak memory is this cohort's.
            command = [sys.executable, __file__, "--one", domain, "--count", str(given.count)]
            reply = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            runs.append([float(value) for value in reply.split()])
        wall, processor, peak = (statistics.median(column) for column in zip(*runs, strict=True))
        texts = generate(PersonaSettings(count=given.texts), cohort=f"{domain}-benchmark")
        repeated, *distinct = variety(texts["description"])
        first = generate(PersonaSettings(count=1_000), cohort=domain)["description"]
        six, top = default_cohort(first)
        print(
            f"| {domain} | {given.count:,} | {60 * given.count / wall:,.0f} "
            f"| {60 * given.count / processor:,.0f} | {peak:,.0f} | {given.texts:,} "
            f"| {texts.height - texts['description'].n_unique()} | {repeated:.1%} "
            f"| {distinct[0]:.4f} | {distinct[1]:.4f} | {six:.3f} | {top:.1%} |"
        )


if __name__ == "__main__":
    main()
