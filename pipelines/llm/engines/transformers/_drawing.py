"""Drawing the next token of several answers, each by its own numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

    from pipelines.llm.engines._protocol import Sampling

__all__ = ["draw_tokens"]


def draw_tokens(
    logits: torch.Tensor,
    allowed: npt.NDArray[np.bool_] | None,
    sampling: Sequence[Sampling],
    numbers: Sequence[float],
) -> list[int]:
    """The next token of each answer.

    The token is where a uniform number falls among the probabilities laid end to end in the
    order of the vocabulary, in double precision: an answer's draw depends on its own logits and
    number only.

    Parameters
    ----------
    logits
        Float32, shape (answers, vocabulary).
    allowed
        Tokens that the constraints allow, of the same shape; None allows all.
    sampling
        Temperature and nucleus of each answer. At temperature 0 the most probable token is
        taken (of equals the first).
    numbers
        A uniform number in [0, 1) for each.

    Returns
    -------
    list of int
        Token ids; -1 where no token is allowed or the logits are not numbers.
    """
    import torch

    with torch.inference_mode():
        if allowed is not None:
            hidden = torch.from_numpy(~allowed).to(logits.device)
            logits = logits.masked_fill(hidden, float("-inf"))
        best = logits.argmax(dim=-1)
        top = logits.gather(1, best[:, None])[:, 0]
        chosen = torch.where(torch.isfinite(top), best, -1)
        warm = [n for n, s in enumerate(sampling) if s.temperature > 0]
        if warm:
            rows = torch.tensor(warm, device=logits.device)
            drawn = _drawn(
                logits[rows].double(),
                [sampling[n] for n in warm],
                [numbers[n] for n in warm],
            )
            chosen[rows] = torch.where(chosen[rows] >= 0, drawn, -1)
        return [int(t) for t in chosen.tolist()]


def _drawn(
    logits: torch.Tensor, sampling: Sequence[Sampling], numbers: Sequence[float]
) -> torch.Tensor:
    import torch

    heat = torch.tensor([s.temperature for s in sampling], dtype=torch.float64)
    shares = torch.softmax(logits / heat.to(logits.device)[:, None], dim=-1)
    for row, one in enumerate(sampling):
        if one.top_p < 1.0:
            shares[row] = _nucleus(shares[row], one.top_p)
    ends = shares.cumsum(dim=-1)
    total = ends[:, -1]
    points = torch.tensor(numbers, dtype=torch.float64, device=logits.device) * total
    # Rounding may not lift a number to the end of the last share.
    points = torch.minimum(points, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(ends, points[:, None], right=True)[:, 0]


def _nucleus(shares: torch.Tensor, top_p: float) -> torch.Tensor:
    """The fewest most probable tokens that have ``top_p`` together, the others at 0."""
    import torch

    ordered, order = shares.sort(descending=True, stable=True)
    before = ordered.cumsum(dim=0) - ordered
    kept = torch.zeros_like(shares)
    inside = before < top_p
    kept[order[inside]] = ordered[inside]
    return kept
