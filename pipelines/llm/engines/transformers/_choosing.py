"""Distributions over closed answers, many prompts to a forward pass."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipelines.errors import AnswerError
from pipelines.llm.engines._protocol import Answer, Choice
from pipelines.llm.engines.choices import OptionTree
from pipelines.llm.engines.transformers._forest import Forest
from pipelines.llm.engines.transformers._jobs import Job
from pipelines.llm.engines.transformers._model import Model
from pipelines.llm.engines.transformers._packing import Packer

if TYPE_CHECKING:
    import torch

__all__ = ["choose", "choose_plainly"]

#: Log-probability of each step token of a node.
_Step = dict[int, float]


@dataclass(slots=True)
class _Part:
    """Some nodes of a job's options: all of them, unless they fill more than a row."""

    job: Job
    nodes: list[int]


def choose_plainly(model: Model, job: Job) -> Answer:
    """Answer a choice by one forward pass for each place of its options, nothing shared."""
    import torch

    job.began = time.perf_counter()
    tree = _tree(job)
    rows = [model.plain([*job.prompt.tolist(), *node]) for node in tree.nodes]
    return _answer(job, _log_probabilities(torch.stack(rows), tree.steps))


def choose(packer: Packer, jobs: Sequence[Job]) -> Iterator[Answer]:
    """Answer choices, packed into rows.

    Parameters
    ----------
    packer
        Lays out the rows.
    jobs
        Requests with a choice, in any order.
    """
    parts = [_Part(job, nodes) for job in jobs for nodes in _split(_tree(job), packer.part_tokens)]
    missing = {id(job): 0 for job in jobs}
    for part in parts:
        missing[id(part.job)] += 1
    found: dict[int, dict[int, _Step]] = {id(job): {} for job in jobs}
    extra = [_extra(part) for part in parts]
    for row in packer.rows([part.job for part in parts], extra):
        reads: list[int] = []
        wanted: list[tuple[_Part, int]] = []
        for number, leaf in row.leaves:
            places = _branches(row.forest, leaf, parts[number])
            reads += places
            wanted += [(parts[number], node) for node in parts[number].nodes]
        logits = row.run(reads).logits
        steps = [_tree(part.job).steps[node] for part, node in wanted]
        for (part, node), step in zip(wanted, _log_probabilities(logits, steps), strict=True):
            found[id(part.job)][node] = step
        for number, _ in row.leaves:
            job = parts[number].job
            missing[id(job)] -= 1
            if not missing[id(job)]:
                yield _answer(job, [step for _, step in sorted(found.pop(id(job)).items())])


def _tree(job: Job) -> OptionTree:
    assert job.tree is not None
    return job.tree


def _split(tree: OptionTree, size: int) -> list[list[int]]:
    """Nodes in parts that each fit a row with the nodes they hang from."""
    if tree.extra_tokens + 1 <= size:
        return [list(range(len(tree.nodes)))]
    return [[node] for node in range(len(tree.nodes))]


def _extra(part: _Part) -> int:
    """Most tokens that a part adds behind its prompt (count)."""
    tree = _tree(part.job)
    if len(part.nodes) == len(tree.nodes):
        return tree.extra_tokens
    return sum(len(tree.nodes[node]) for node in part.nodes)


def _branches(forest: Forest, leaf: int, part: _Part) -> list[int]:
    """Lay out a part's nodes behind their prompt; return their places."""
    tree = _tree(part.job)
    places: list[int] = []
    for node in part.nodes:
        at = leaf
        for token in tree.nodes[node]:
            at = forest.branch(at, token)
        places.append(at)
    return places


def _log_probabilities(logits: torch.Tensor, steps: Sequence[Sequence[int]]) -> list[_Step]:
    """Log-probabilities of some tokens of each row of logits, over the whole vocabulary."""
    import torch

    with torch.inference_mode():
        totals = torch.logsumexp(logits, dim=-1)
        rows = torch.tensor([n for n, step in enumerate(steps) for _ in step], device=logits.device)
        tokens = torch.tensor([t for step in steps for t in step], device=logits.device)
        values: npt.NDArray[np.float64] = (
            (logits[rows, tokens].double() - totals[rows].double()).cpu().numpy()
        )
    out: list[_Step] = []
    at = 0
    for step in steps:
        out.append(dict(zip(step, map(float, values[at : at + len(step)]), strict=True)))
        at += len(step)
    return out


def _answer(job: Job, steps: list[_Step]) -> Answer:
    constraint = job.request.constraint
    assert isinstance(constraint, Choice)
    reply = Answer(
        job.request,
        "engine_error",
        prompt_tokens=len(job.prompt),
        cached_tokens=job.cached,
        latency=time.perf_counter() - job.began,
    )
    if not np.isfinite([v for step in steps for v in step.values()]).all():
        return replace(reply, detail="the model's probabilities are not numbers")
    try:
        shares, mass = _tree(job).distribution(steps)
    except AnswerError as error:
        return replace(reply, status="invalid", detail=str(error))
    best = int(shares.argmax())
    return replace(
        reply,
        status="ok",
        text=constraint.options[best],
        probabilities=tuple(float(p) for p in shares),
        mass=mass,
        finish_reason="stop",
        completion_tokens=len(_tree(job).options[best]),
    )
