"""Linear layers of a model on a CPU, their weights in the order in which oneDNN reads them.

Torch multiplies by MKL, which is slow for a few rows: the layers of SmolLM2-135M take 1.7 times as
long as by oneDNN for 4 to 20 rows. From 512 rows on, as prompts are read, the two are level
(``benchmarks/scoring``).
"""

from __future__ import annotations

import platform

import torch


class PackedLinear(torch.nn.Module):
    """A linear layer for inference in float32, equal to the given one but for the order of sums."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        bias = layer.bias
        self.bias = None if bias is None else bias.detach()
        # Opaque: neither saved nor moved to another device.
        self._packed = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), None)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Rows, of shape (..., features in), as (..., features out)."""
        output: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            rows, self._packed, self.bias, "none", [], ""
        )
        return output


def can_pack(model: torch.nn.Module) -> bool:
    """True if this torch, this processor and the precision of the model allow it."""
    return (
        platform.machine().lower() in ("x86_64", "amd64")
        and torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        and all(
            hasattr(torch.ops.mkldnn, name)
            for name in ("_reorder_linear_weight", "_linear_pointwise")
        )
        and all(p.dtype == torch.float32 and p.device.type == "cpu" for p in model.parameters())
    )


def pack_linear_layers(model: torch.nn.Module) -> None:
    """Replace every plain linear layer, one after the other; the model is for inference then.

    Weights that are those of an embedding too stay there, and are held twice.
    """
    model.requires_grad_(False)
    for parent in list(model.modules()):
        for name, layer in list(parent.named_children()):
            if type(layer) is torch.nn.Linear:
                setattr(parent, name, PackedLinear(layer))
