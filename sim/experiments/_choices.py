"""Questions of experiments to the model of a brain, answered with one of some options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pipelines.llm.answers import Asking
from pipelines.llm.engines import Choice, Message, Request, Sampling
from sim.agents import Brain
from sim.experiments._context import ExperimentContext

Floats = npt.NDArray[np.float64]


def asking_brain(context: ExperimentContext) -> Brain | None:
    """The first brain of the context whose model can be asked; None without one."""
    brains = (context.brain(name) for name in context.brains)
    return next((b for b in brains if isinstance(b, Asking)), None)


def chosen(
    brain: Brain, questions: Sequence[tuple[Message, ...]], options: Sequence[str]
) -> Floats:
    """Probabilities of the options for each question, of shape (questions, options).

    A question whose answer can't be used has NaN. Answers go through the answer store.
    """
    assert isinstance(brain, Asking)

    def requests() -> Iterator[Request]:
        for n, messages in enumerate(questions):
            yield Request(
                messages, constraint=Choice(tuple(options)), sampling=Sampling(1.0, max_tokens=1),
                tag=n,
            )  # fmt: skip

    out = np.full((len(questions), len(options)), np.nan)
    for request, _, answer in brain.ask_all(requests()):
        if answer.status == "ok" and answer.probabilities is not None:
            shares = np.asarray(answer.probabilities, np.float64)
            out[request.tag] = shares / shares.sum()
    return out
