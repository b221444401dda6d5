"""Requests in vLLM's terms: sampling parameters, and what a distribution needs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pipelines.errors import AnswerError
from pipelines.llm.engines._protocol import Constraint, Request
from pipelines.llm.engines.choices import OptionTree
from pipelines.llm.engines.constraints import llguidance_grammar

if TYPE_CHECKING:
    from vllm import SamplingParams

__all__ = ["MAX_IDS", "draw_seed", "reading_params", "readings", "structured", "writing_params"]

#: Most token ids whose log-probability vLLM reads at one place in one request.
MAX_IDS = 128


def draw_seed(request: Request, prompt: Sequence[int]) -> int:
    """The seed of a request's draws, 0 to 2**63 - 1.

    It depends on the prompt, the seed and the replicate, and on nothing else: two users who are
    asked with the same seed don't draw the same numbers.

    >>> from pipelines.llm.engines import Request
    >>> draw_seed(Request(seed=1), [5]) == draw_seed(Request(seed=1, replicate=1), [5])
    False
    """
    said = f"{request.seed}:{request.replicate}:{','.join(map(str, prompt))}".encode()
    return int.from_bytes(hashlib.sha256(said).digest()[:8]) >> 1


def readings(tree: OptionTree) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """What is to be read for a tree: number of the place, tokens before it, token ids there.

    A place with more than :data:`MAX_IDS` tokens is read in several goes.

    >>> list(readings(OptionTree.of([(16,), (17,), (16, 15)])))
    [(0, (), (16, 17)), (1, (16,), (15,))]
    """
    for place, (before, ids) in enumerate(zip(tree.nodes, tree.steps, strict=True)):
        for start in range(0, len(ids), MAX_IDS):
            yield place, before, ids[start : start + MAX_IDS]


def reading_params(ids: Sequence[int]) -> SamplingParams:
    """Parameters of a request that reads log-probabilities of tokens and draws nothing."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind

    return SamplingParams(
        temperature=0.0,
        max_tokens=1,
        logprob_token_ids=list(ids),
        detokenize=False,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )


def structured(constraint: Constraint) -> dict[str, str]:
    """A constraint as the one field of vLLM's structured outputs that takes it as it is.

    The compiled grammar is taken apart, so that vLLM decodes by exactly what the `transformers`
    engine decodes by; its own forms of JSON and choices allow other white space.

    >>> from pipelines.llm.engines import Regex
    >>> structured(Regex("[1-5]"))
    {'grammar': 'start: /[1-5]/'}
    """
    compiled = llguidance_grammar(constraint)
    if not compiled.lstrip().startswith("{"):
        return {"grammar": compiled}
    parts = json.loads(compiled)["grammars"]
    if len(parts) == 1 and (schema := parts[0].get("json_schema")) is not None:
        return {"json": json.dumps(schema, ensure_ascii=False)}
    if len(parts) == 1 and (lark := parts[0].get("lark_grammar")) is not None:
        return {"grammar": lark}
    raise AnswerError("vLLM takes no grammar that is made of several")


def writing_params(request: Request, prompt: Sequence[int]) -> SamplingParams:
    """Parameters of a request that writes.

    Raises
    ------
    AnswerError
        If vLLM has no form for the constraint.
    VLLMValidationError
        If vLLM does not take them, such as a temperature above 2.
    """
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    rule = None
    if request.constraint is not None:
        rule = StructuredOutputsParams(**structured(request.constraint))
    sampling = request.sampling
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_tokens=sampling.max_tokens,
        stop=list(sampling.stop),
        seed=draw_seed(request, prompt),
        structured_outputs=rule,
        output_kind=RequestOutputKind.FINAL_ONLY,
        skip_clone=True,
    )
