"""Share of texts that pass the gates, by source; prints Markdown rows and quotes.

python benchmarks/personas/text_gates.py --personas llm_written_personas.jsonl.gz
python benchmarks/personas/text_gates.py --models .understudy/models --write 200 --style free
python benchmarks/personas/text_gates.py --models .understudy/models --write 40 --style slots
python benchmarks/personas/text_gates.py --models .understudy/models --write 60 --first 100 --best
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.config import PersonaSettings, Settings
from pipelines.domains import cohort_domain
from pipelines.personas import generate, load_lists, sample_attributes
from pipelines.personas._gates import TextGates

COHORTS = ("pilot", "books-pilot", "games-pilot")
#: Style, temperature, least probability and repetition penalty of each sweep's row.
WAYS = (
    ("free", 1.0, 0.0, 1.0),
    ("free", 0.4, 0.0, 1.0),
    ("slots", 0.4, 0.1, 1.0),
    ("slots", 0.6, 0.1, 1.0),
    ("slots", 0.6, 0.1, 1.1),
    ("slots", 0.8, 0.1, 1.1),
)
#: The way that is the default of models that `understudy models get` fetched.
BEST = ("slots", 0.6, 0.1, 1.1)
MODEL = "smollm2-135m"
_GENDERS = {"Female": "female", "Male": "male"}


def wilson(hits: int, of: int) -> tuple[float, float]:
    """95 % interval of a share (Wilson 1927)."""
    z, p = 1.96, hits / of
    middle, half = p + z * z / (2 * of), z * np.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return (middle - half) / (1 + z * z / of), (middle + half) / (1 + z * z / of)


def report(
    name: str, gates: TextGates, texts: Sequence[str], rows: Sequence[Any]
) -> Sequence[Sequence[str]]:
    """Print a row: share that passes, and the reasons of the others. Returns each text's faults."""
    faults = gates(texts, rows)
    passed = sum(not f for f in faults)
    low, high = wilson(passed, len(texts))
    why = ", ".join(f"{k} {n}" for k, n in Counter(f for fs in faults for f in fs).most_common())
    share = f"{passed / len(texts):.3f} [{low:.3f}, {high:.3f}]"
    print(f"| {name} | {len(texts)} | {share} | {why} |", flush=True)
    return faults


def statistical(count: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Texts and attributes of statistical personas of three domains."""
    for cohort in COHORTS:
        lists = load_lists(cohort_domain(cohort, "movies"))
        rows = sample_attributes(7, cohort, np.arange(count), lists).to_dicts()
        texts = generate(PersonaSettings(count=count), cohort=cohort)["description"]
        yield from zip(texts, rows, strict=True)


def shuffled(text: str, rng: np.random.Generator) -> str:
    """The words of every sentence in another order."""
    out = []
    for sentence in re.split(r"(?<=[.!?]) ", text):
        words = sentence.rstrip(".").split(" ")
        rng.shuffle(words)
        out.append(" ".join(words) + ".")
    return " ".join(out)


def written(
    models: Path, people: range, chosen: str, dtype: str, best: bool
) -> Iterator[tuple[str, list[str], list[dict[str, Any]]]]:
    """Texts of the model per way of drawing in the chosen style, each drawn once."""
    from pipelines.personas import load_writer

    for style, temperature, least, penalty in WAYS:
        if style != chosen or (best and (style, temperature, least, penalty) != BEST):
            continue
        settings = Settings(
            engine={"kind": "transformers", "model": MODEL, "dtype": dtype},
            serving={"models": models, "batch_tokens": 65_536},
            personas={
                "writer": "model",
                "style": style,
                "temperature": temperature,
                "min_p": least,
                "repetition_penalty": penalty,
                "gates": "none",
            },
        )
        rows = sample_attributes(7, "slots", np.array(people))
        with load_writer("model", settings) as writer:  # type: ignore[attr-defined]
            texts = writer.write(rows)["description"].to_list()
        pairs = [(t, r) for t, r in zip(texts, rows.to_dicts(), strict=True) if t]
        name = f"{MODEL}, {style}, temperature {temperature}, min_p {least}, penalty {penalty}"
        yield name, [t for t, _ in pairs], [r for _, r in pairs]


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--personas", type=Path, help="JSON lines with PERSONA, gzipped")
    parser.add_argument("--models", type=Path, help="folder with smollm2-135m: measure perplexity")
    parser.add_argument("--write", type=int, default=0, help="texts of the model per setting")
    parser.add_argument("--first", type=int, default=0, help="number of the first persona")
    parser.add_argument("--best", action="store_true", help="the default way only")
    parser.add_argument("--every", type=int, default=1, help="judge every n-th known text only")
    parser.add_argument("--style", choices=("free", "slots"), default="slots", help="of --write")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    given = parser.parse_args()
    nats = None
    if given.models:
        from pipelines.llm.models import ModelFolder, TextScorer

        nats = TextScorer(ModelFolder(given.models).get(MODEL))
    gates, plain = TextGates(nats), TextGates(nats, plain=True)
    print(f"gates: {', '.join(gates.names)}\n\n| texts | n | passed | faults |\n|---|--:|--:|---|")
    known = [] if given.write else list(statistical(200))
    if not given.write:
        some = known[:: given.every]
        report("statistical, three domains", gates, *map(list, zip(*some, strict=True)))
        rng = np.random.default_rng(1)
        noise = [(shuffled(text, rng), row) for text, row in known[::3]]
        name = "the same, words of each sentence shuffled"
        report(name, gates, *map(list, zip(*noise, strict=True)))
    if given.personas:
        with gzip.open(given.personas, "rt") as lines:
            people = [json.loads(line) for line in lines][:: given.every]
        about = [{"gender": _GENDERS.get(p.get("Sex", ""))} for p in people]
        report("written by a large model for others", gates, [p["PERSONA"] for p in people], about)
    if given.write:
        quotes = []
        people = range(given.first, given.first + given.write)
        for name, texts, rows in written(
            given.models, people, given.style, given.dtype, given.best
        ):
            judge = plain if ", slots" in name else gates
            faults = report(name, judge, texts, rows)
            quotes += [
                f"{name}; {', '.join(f) or 'passed'}: {t}"
                for t, f in zip(texts, faults, strict=True)
            ]
        print("\n" + "\n\n".join(quotes))


if __name__ == "__main__":
    main()
