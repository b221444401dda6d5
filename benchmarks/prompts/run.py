"""Layout, scale, history and examples of rating prompts, judged on validation ratings of people.

    python benchmarks/prompts/run.py --home HOME --models MODELS --rows plain,1-5,8,0

HOME is one that `understudy run` made from ml-latest-small; MODELS holds the checkpoint. A row is
layout, scale, past ratings, worked examples, and perhaps another order of a plain prompt's blocks:
`item-first` (the film before the person; such prompts share no beginning) or `question-first` (the
question before the film). Answers are kept in HOME, but not those of another order: rows that
were measured cost no call, and a stopped run goes on. Test ratings are not read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.answers import AnswerStore
from pipelines.llm.engines import Answer, Engine, Request, load_engine
from pipelines.llm.engines.tokens import model_tokenizer
from pipelines.raters import LLMRater, fit_rater
from pipelines.raters.report.calibration import fit_calibration
from pipelines.raters.report.held_out import (
    BIAS,
    People,
    ask_about,
    collect_people,
    predict_baseline,
)
from pipelines.raters.report.metrics import Predictions, evaluate
from pipelines.scales import SCALES
from pipelines.store import Store

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import harness

ROWS = ("letter,1-10,10,0", "letter,1-5,10,0", "plain,1-10,8,0", "plain,1-5,8,0")
_FOLDS = 5
_SHOWN = ("rmse", "pairwise", "ece", "similarity")


ORDERS = ("item-first", "question-first")


class Reordered:
    """An engine that is asked with the blocks of plain prompts in another order."""

    def __init__(self, engine: Engine, order: str) -> None:
        self._engine, self.identity, self._order = engine, engine.identity, order
        self.metadata, self.close = engine.metadata, engine.close

    def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """Answers of the changed prompts, as if to the given ones."""
        asked: dict[int, tuple[Request, Request]] = {}

        def changed() -> Iterator[Request]:
            for request in requests:
                other = self._changed(request)
                asked[id(other)] = request, other
                yield other

        for answer in self._engine.submit(changed()):
            yield replace(answer, request=asked.pop(id(answer.request))[0])

    def _changed(self, request: Request) -> Request:
        user = max(n for n, message in enumerate(request.messages) if message.role == "user")
        *person, item, question = request.messages[user].content.split("\n\n")
        blocks = [item, *person, question]
        if self._order == "question-first":
            blocks = [*person, question.replace(" this film", " the film below"), item]
        text = "\n\n".join(blocks)
        messages = list(request.messages)
        messages[user] = replace(messages[user], content=text)
        return replace(request, messages=tuple(messages))


def sample(people: People, users: int, each: int) -> People:
    """Some held-out ratings of some users, drawn with a fixed seed."""
    held, rng = people.held_out, np.random.default_rng(0)
    chosen = np.sort(rng.permutation(len(held.users))[:users])
    rows = [rng.permutation(np.flatnonzero(held.user == user))[:each] for user in chosen]
    kept = np.sort(np.concatenate(rows))
    few = replace(held, user=held.user[kept], item=held.item[kept], rating=held.rating[kept])
    return replace(people, held_out=few)


def cross_calibrated(found: Predictions, people: People) -> Predictions:
    """Predictions of each fold of users by a calibration that was fitted on the other folds."""
    assert found.probabilities is not None
    truth, scale = people.truth(), people.scale
    answer = np.rint((truth.rating - scale.low) / scale.step).astype(np.int64)
    better = np.empty_like(found.probabilities)
    for fold in range(_FOLDS):
        out = truth.user % _FOLDS == fold
        fitted = fit_calibration(found.probabilities[~out], answer[~out], truth.user[~out])
        better[out] = fitted(found.probabilities[out])
    return Predictions(found.name, better @ scale.answers, better)


def line(name: str, found: Predictions, people: People, *more: str) -> None:
    """Print a row of the table."""
    truth = people.truth()
    figures = evaluate(found, truth)
    cells = [
        f"{f['value']:.3f} [{f['low']:.3f}, {f['high']:.3f}]" if (f := figures.get(m)) else "-"
        for m in _SHOWN
    ]
    spread = float(found.expected.std())
    r = f"{np.corrcoef(found.expected, truth.rating)[0, 1]:.2f}" if spread > 1e-9 else "-"
    print(f"| {' | '.join([name, *cells, r, *(more or ('-', '-', '-'))])} |", flush=True)


def main() -> None:
    """Measure the rows and print Markdown."""
    parser = harness.parser(__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--rows", nargs="*", default=ROWS)
    parser.add_argument("--users", type=int, default=100)
    parser.add_argument("--each", type=int, default=2, help="ratings per user (count)")
    given = parser.parse_args()
    store = Store(given.home)
    names = ("items", "interactions", "splits", "item_stats")
    tables: dict[str, Any] = {name: store.current(f"movies.{name}").read() for name in names}
    stats = tables.pop("item_stats")
    whole = collect_people(**tables, split="validation")
    people = sample(whole, given.users, given.each)
    held = people.held_out
    print(f"{harness.heading(given)}\n\n{len(held)} validation ratings\n")
    print("| prompt | RMSE | pairwise | ECE | 1 - TV | r | commonest mode | tokens | CPU s |")
    print("|---|" + "--:|" * 8)
    for name in ("global mean", "item mean", BIAS):
        line(name, predict_baseline(name, people), people)
    statistical = fit_rater("statistical", scale="1-10", item_stats=stats, **tables)
    line("statistical", ask_about(statistical, people).predictions, people)
    engine = EngineSettings(kind="transformers", model=given.model, dtype=given.dtype)
    serving = ServingSettings(models=given.models, batch_tokens=16_384)
    loaded, tokenizer = load_engine(engine, serving), model_tokenizer(engine, serving)
    answers = AnswerStore(given.home, serving)
    for row in given.rows:
        layout, scale, history, shots, *order = row.split(",")
        if len(order) > 1 or not {*order} <= {*ORDERS} or (order and layout != "plain"):
            parser.error(f"no such order of blocks: {row}")
        rater = LLMRater(
            Reordered(loaded, *order) if order else loaded,
            SCALES[scale], layout=layout, shots=int(shots), history=int(history),
            store=None if order else answers, serving=serving,
            catalogue=tables["items"], item_stats=stats, tokenizer=tokenizer,
        )  # fmt: skip
        modes: list[int] = []
        asked = rater.rate

        def rate(*args: Any, asked: Any = asked, modes: list[int] = modes, **named: Any) -> Any:
            batch = asked(*args, **named)
            modes.extend(np.nanargmax(batch.probabilities, axis=1).tolist())
            return batch

        rater.rate = rate  # type: ignore[method-assign]
        with harness.Clock() as clock:
            found = ask_about(rater, people).predictions
        share = np.bincount(modes).max() / len(modes)
        tokens = rater.tally.prompt_tokens // max(1, rater.tally.answers)
        line(row, found, people, f"{share:.2f}", str(tokens), f"{clock.cpu_s:.0f}")
        line(f"{row}, calibrated", cross_calibrated(found, people), people)
    answers.close()
    loaded.close()


if __name__ == "__main__":
    harness.start(main)
