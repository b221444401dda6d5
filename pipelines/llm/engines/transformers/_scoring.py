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
from pipelines.llm.engines.transformers._model import Model
from pipelines.llm.engines.transformers._packing import BatchPacker
from pipelines.llm.engines.transformers._requests import PreparedRequest
from pipelines.llm.engines.transformers._trie import PrefixTrie

if TYPE_CHECKING:
    import torch

#: Log-probability of each step token of a node.
_Step = dict[int, float]


@dataclass(slots=True)
class _Part:
    """Some nodes of a request's options: all of them, unless they fill more than a row."""

    prepared: PreparedRequest
    nodes: list[int]


def score_plainly(model: Model, prepared: PreparedRequest) -> Answer:
    """Answer a choice by one forward pass for each place of its options, nothing shared."""
    import torch

    prepared.began = time.perf_counter()
    tree = _tree(prepared)
    rows = [model.plain([*prepared.prompt.tolist(), *node]) for node in tree.nodes]
    return _answer(prepared, _log_probabilities(torch.stack(rows), tree.steps))


def score(packer: BatchPacker, requests: Sequence[PreparedRequest]) -> Iterator[Answer]:
    """Answer choices in any order, packed into rows."""
    parts = [
        _Part(prepared, nodes)
        for prepared in requests
        for nodes in _split(_tree(prepared), packer.part_tokens)
    ]
    missing = {id(prepared): 0 for prepared in requests}
    for part in parts:
        missing[id(part.prepared)] += 1
    scored: dict[int, dict[int, _Step]] = {id(prepared): {} for prepared in requests}
    extra = [_extra(part) for part in parts]
    for row in packer.rows([part.prepared for part in parts], extra):
        reads: list[int] = []
        part_nodes: list[tuple[_Part, int]] = []
        for number, end in row.ends:
            places = _add_nodes(row.trie, end, parts[number])
            reads += places
            part_nodes += [(parts[number], node) for node in parts[number].nodes]
        steps = [_tree(part.prepared).steps[node] for part, node in part_nodes]
        logits = row.run(reads, tokens=[list(step) for step in steps]).logits
        for (part, node), step in zip(part_nodes, _log_probabilities(logits, steps), strict=True):
            scored[id(part.prepared)][node] = step
        for number, _ in row.ends:
            prepared = parts[number].prepared
            missing[id(prepared)] -= 1
            if not missing[id(prepared)]:
                yield _answer(
                    prepared, [step for _, step in sorted(scored.pop(id(prepared)).items())]
                )


def _tree(prepared: PreparedRequest) -> OptionTree:
    assert prepared.tree is not None
    return prepared.tree


def _split(tree: OptionTree, size: int) -> list[list[int]]:
    """Nodes in parts that each fit a row with the nodes they hang from."""
    if tree.extra_tokens + 1 <= size:
        return [list(range(len(tree.nodes)))]
    return [[node] for node in range(len(tree.nodes))]


def _extra(part: _Part) -> int:
    """Most tokens that a part adds behind its prompt (count)."""
    tree = _tree(part.prepared)
    if len(part.nodes) == len(tree.nodes):
        return tree.extra_tokens
    return sum(len(tree.nodes[node]) for node in part.nodes)


def _add_nodes(trie: PrefixTrie, end: int, part: _Part) -> list[int]:
    """Lay out a part's nodes behind their prompt; return their places."""
    tree = _tree(part.prepared)
    places: list[int] = []
    for node in part.nodes:
        at = end
        for token in tree.nodes[node]:
            at = trie.append(at, token)
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


def _answer(prepared: PreparedRequest, steps: list[_Step]) -> Answer:
    constraint = prepared.request.constraint
    assert isinstance(constraint, Choice)
    reply = Answer(
        prepared.request,
        "engine_error",
        prompt_tokens=len(prepared.prompt),
        cached_tokens=prepared.cached,
        latency=time.perf_counter() - prepared.began,
    )
    if not np.isfinite([v for step in steps for v in step.values()]).all():
        return replace(reply, detail="the model's probabilities are not numbers")
    try:
        shares, mass = _tree(prepared).distribution(steps)
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
        completion_tokens=len(_tree(prepared).options[best]),
    )
