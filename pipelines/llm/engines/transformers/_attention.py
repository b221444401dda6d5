"""Attention on a CPU: each query reads the tokens that it sees, and common ones once.

Results differ from those of transformers' ``sdpa`` by the order of sums only.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from pipelines.llm.engines.transformers._trie import Run

#: Name of this attention in transformers.
GROUPED = "sdpa_grouped"
#: Fewest tokens of a run of a packed row, on average, to read it by itself (count).
_MIN_RUN = 16


@cache
def attention_on(device: str) -> str:
    """Name of the attention implementation for a device, registered in transformers.

    On a CPU it differs from transformers' ``sdpa`` in four things. That one copies keys and values
    for every query head of a group, given a mask; results are equal bit by bit. It reads the
    keys of a single token, of 16 bits, several times as slowly as a matrix product does: there the
    scores are rounded as transformers' ``eager`` rounds them. Prefixes that several answers have
    in common are read once (:func:`attend`). And a prompt of a packed row does not read the
    others (:func:`attend_by_runs`).
    """
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward
    from transformers.masking_utils import sdpa_mask

    if device != "cpu":
        return "sdpa"

    def grouped(
        module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **options: Any
    ) -> tuple[Any, None]:
        groups = getattr(module, "num_key_value_groups", 1)
        scaling = options.get("scaling")
        if options.get("position_bias") is not None:
            return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        layer = getattr(key, "layer", None)
        if layer is not None:
            return attend(query, key, value, layer, scaling), None
        if query.shape[2] == 1 and query.dtype in (torch.bfloat16, torch.float16):
            return _one_token(query, key, value, attention_mask, scaling), None
        runs = getattr(attention_mask, "runs", None)
        if runs is not None and _fused() is not None:
            return attend_by_runs(query, key, value, runs, scaling), None
        if groups == 1 or attention_mask is None:
            return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=attention_mask, scale=scaling, enable_gqa=True
        )
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register(GROUPED, grouped)
    AttentionMaskInterface.register(GROUPED, sdpa_mask)
    return GROUPED


def mark_runs(mask: torch.Tensor, runs: list[Run]) -> None:
    """Let the attention of a packed row, given its mask, read by runs where these are long."""
    if runs and runs[-1].stop >= _MIN_RUN * len(runs):
        mask.runs = runs  # type: ignore[attr-defined]


def attend_by_runs(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    runs: list[Run],
    scaling: float | None,
) -> torch.Tensor:
    """Attention over a packed row, of shape (1, heads, tokens, size), to (1, tokens, heads, size).

    ``key`` and ``value`` hold the base, which every token sees, before the row. A run sees itself
    up to each token, and the parts of the row that its prompt begins with. Parts are joined by
    their sums of exponentials.
    """
    import torch

    fused = _fused()
    _, heads, tokens, size = query.shape
    held = key.shape[1]
    groups = heads // held
    scale = size**-0.5 if scaling is None else scaling
    base = key.shape[2] - tokens

    def part(queries: torch.Tensor, start: int, stop: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention over places that all of ``queries`` see, and logarithms of its sums."""
        shape = queries.shape
        # Query heads of a group ask the same keys: one product for all of them.
        rows = queries.reshape(1, held, groups * shape[2], size)
        seen = slice(start, stop)
        out, sums = fused(rows, key[:, :, seen], value[:, :, seen], 0.0, False, scale=scale)
        return out.view(shape).float(), sums.reshape(*shape[:3], 1)

    of_base = part(query, 0, base) if base else None
    result = torch.empty(query.shape, dtype=torch.float32)
    for run in runs:
        queries = query[:, :, run.start : run.stop]
        itself = slice(base + run.start, base + run.stop)
        keys_values = [x[:, :, itself].repeat_interleave(groups, dim=1) for x in (key, value)]
        out, sums = fused(queries, *keys_values, 0.0, True, scale=scale)
        out, sums = out.float(), sums[..., None]
        parts = [part(queries, base + start, base + stop) for start, stop in run.before]
        if of_base is not None:
            parts.append(
                (of_base[0][:, :, run.start : run.stop], of_base[1][:, :, run.start : run.stop])
            )
        for more, more_sums in parts:
            out = torch.lerp(out, more, torch.sigmoid(more_sums - sums))
            sums = torch.logaddexp(sums, more_sums)
        result[:, :, run.start : run.stop] = out
    return result.to(query.dtype).transpose(1, 2).contiguous()


@cache
def _fused() -> Any:
    """Torch's fused attention, which gives the logarithms of its sums; None if it has none."""
    import torch

    return getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)


def _one_token(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
) -> torch.Tensor:
    """Attention of one token per row: (rows, heads, 1, size) to (rows, 1, heads, size).

    ``key`` and ``value``: (rows, heads of them, tokens, size); ``mask``: None, or (rows, 1, 1,
    tokens), boolean (True: seen) or to be added.
    """
    import torch

    rows, heads, _, size = query.shape
    held, tokens = key.shape[1:3]
    scale = size**-0.5 if scaling is None else scaling
    grouped = (query * scale).reshape(rows * held, heads // held, size)
    products = torch.bmm(grouped, _room(key).transpose(1, 2))
    scores = products.view(rows, held, heads // held, -1)[..., :tokens]
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores + mask
    shares = torch.zeros_like(products)
    shares.view(rows, held, heads // held, -1)[..., :tokens] = torch.softmax(
        scores, dim=-1, dtype=torch.float32
    )
    return torch.bmm(shares, _room(value)).reshape(rows, 1, heads, size)


def _room(held: torch.Tensor) -> torch.Tensor:
    """Keys or values (rows, heads, tokens, size) as (rows * heads, room, size), with their room.

    A matrix product copies its operands unless they are contiguous, as the whole room is; what
    lies behind the tokens there is 0.
    """
    rows, heads, _, size = held.shape
    room = held.stride(1) // size
    if held.stride() != (heads * room * size, room * size, size, 1):
        return held.reshape(rows * heads, -1, size)
    return held.as_strided((rows * heads, room, size), (room * size, size, 1))


def attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layer: Any, scaling: float | None
) -> torch.Tensor:
    """Attention of one token per row, of shape (rows, heads, 1, size), to (rows, 1, heads, size).

    ``key`` and ``value`` are what rows have of their own, of shape (rows, heads of them, tokens,
    size); ``layer`` knows the rest. The two parts are joined by their sums of exponentials.
    """
    import torch

    rows, heads, _, size = query.shape
    held, tokens = key.shape[1:3]
    queries = query * (size**-0.5 if scaling is None else scaling)
    queries = queries.reshape(rows, held, heads // held, size)
    place = torch.arange(tokens)
    tail, tail_sum = _attended(queries, key, value, place >= layer.pads[:, None])
    prefix_out, prefix_sum = torch.zeros_like(tail), torch.full_like(tail_sum, float("-inf"))
    for prefix in layer.prefixes:
        part = slice(prefix.start, prefix.stop)
        together = queries[part].transpose(0, 1)
        attended = _attended(together.flatten(1, 2)[None], prefix.keys[None], prefix.values[None])
        for target, source in zip((prefix_out, prefix_sum), attended, strict=True):
            target[part] = source.view(*together.shape[:3], -1).transpose(0, 1)
    out = torch.lerp(tail, prefix_out, torch.sigmoid(prefix_sum - tail_sum))
    return out.to(query.dtype).reshape(rows, 1, heads, size)


def _attended(
    queries: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    seen: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention, and the logarithms of its sums of exponentials; float32.

    ``queries``, ``keys`` and ``values`` are of shape (rows, heads, n, size), ``seen`` (rows, n).
    """
    import torch

    bias = None
    if seen is not None:
        bias = torch.zeros(seen.shape).masked_fill_(~seen, float("-inf"))[:, None, None]
    fused = _fused()
    if fused is not None and queries.dtype == torch.float32:
        out, sums = fused(queries, keys, values, 0.0, False, attn_mask=bias, scale=1.0)
        return out, sums[..., None]
    # In 16 bits it takes several times as long as matrix products.
    scores = torch.matmul(queries, keys.transpose(2, 3)).float()
    if bias is not None:
        scores += bias
    sums = scores.logsumexp(dim=-1, keepdim=True)
    shares = scores.sub_(sums).exp_().to(values.dtype)
    return torch.matmul(shares, values).float(), sums
