"""The cost of a network's training step (arithmetic, memory, operations), without running it.

The networks are built on torch's meta device, which has shapes but no numbers, so a step with
billions of weights takes only a moment and no memory. torch counts the floating-point operations;
the tensors that autograd saves and the operations launched are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

FLOAT = 4
"""Bytes of a float32: weights, gradients and optimizer states stay float32 under autocast."""


@dataclass(frozen=True)
class Cost:
    """The cost of one training step."""

    parameters: int
    flops: float
    """Floating-point operations per example, forward and backward."""
    operations: int
    """Kernel launches or calls, forward and backward, for any batch size."""
    fixed_saved: float
    """Bytes saved for backward for any batch size."""
    saved: float
    """Bytes saved for backward per example."""
    input_bytes: float
    """Per example."""


class Lm(nn.Module):
    """Embedding, transformer layers, and logits for every token."""

    def __init__(self, layers: int, width: int, vocabulary: int = 50_000) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, width // 64, 4 * width, dropout=0.0, batch_first=True, norm_first=True
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = layer(hidden)
        return self.head(hidden).transpose(1, 2)


def perceptron(*sizes: int) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def convolutions(*widths: int) -> nn.Sequential:
    """Two 3 × 3 convolutions with batch norm per width; each pair halves the image."""
    layers: list[nn.Module] = []
    channels = 3
    for width in widths:
        for _ in range(2):
            layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False),
                       nn.BatchNorm2d(width), nn.ReLU()]  # fmt: skip
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


@dataclass(frozen=True)
class Network:
    """How a network is made, and the shape of one input; a single number is a row of tokens."""

    make: Callable[[int], nn.Module]
    """Makes the network from a number of equal layers, if it has any."""
    shape: tuple[int, ...]
    layers: int = 1


NETWORKS = {
    "perceptron, 8 × 8": Network(lambda _: perceptron(64, 64, 10), (1, 8, 8)),
    "perceptron, 28 × 28": Network(lambda _: perceptron(784, 512, 512, 10), (1, 28, 28)),
    "convolutions, 32 × 32": Network(lambda _: convolutions(64, 128, 256), (3, 32, 32)),
    "convolutions, 224 × 224": Network(
        lambda _: convolutions(64, 128, 256, 512, 512), (3, 224, 224)
    ),
    "transformer, 12 layers": Network(lambda layers: Lm(layers, 768), (512,), 12),
    "transformer, 32 layers": Network(lambda layers: Lm(layers, 4096), (512,), 32),
}


@cache
def cost(network: str, bf16: bool) -> Cost:
    """The cost of a step of one of `NETWORKS`.

    Equal layers are counted for one and two of them: each further one costs the same.
    """
    known = NETWORKS[network]
    first = _counted(known, 1, bf16)
    if known.layers == 1:
        return Cost(**first)
    second = _counted(known, 2, bf16)
    more = known.layers - 1
    return Cost(**{name: first[name] + more * (second[name] - first[name]) for name in first})


def _counted(network: Network, layers: int, bf16: bool) -> dict[str, float]:
    """The numbers of `Cost` for so many layers, from batches of one and of two."""
    dtype = torch.bfloat16 if bf16 else torch.float32
    with torch.device("meta"):
        model = network.make(layers).to(dtype)
    one, two = (_step(model, network.shape, size, dtype) for size in (1, 2))
    size = torch.Size(network.shape).numel()
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "flops": two["flops"] - one["flops"],
        "operations": one["operations"],
        "fixed_saved": 2 * one["saved"] - two["saved"],
        "saved": two["saved"] - one["saved"],
        "input_bytes": size * (torch.long.itemsize if len(network.shape) == 1 else FLOAT),
    }


class _Count(TorchDispatchMode):
    """How many operations are carried out; views cost nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations += not func.is_view
        return func(*args, **(kwargs or {}))


def _step(
    model: nn.Module, shape: tuple[int, ...], size: int, dtype: torch.dtype
) -> dict[str, float]:
    """Forward and backward of a batch on the meta device."""
    with torch.device("meta"):
        if len(shape) == 1:
            inputs = targets = torch.zeros(size, *shape, dtype=torch.long)
        else:
            inputs = torch.zeros(size, *shape, dtype=dtype)
            targets = torch.zeros(size, dtype=torch.long)
    own = {p.untyped_storage()._cdata for p in model.parameters()}
    saved: dict[int, int] = {}
    alive = []  # or an address could be used twice

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            saved[storage._cdata] = storage.nbytes()
            alive.append(storage)
        return tensor

    flops, count = FlopCounterMode(display=False), _Count()
    with flops, count:
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
    model.zero_grad()
    return {
        "flops": flops.get_total_flops(), "operations": count.operations,
        "saved": sum(saved.values()),
    }  # fmt: skip
