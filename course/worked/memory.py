"""Memory and cost: bytes of weights and optimizer state, size of a checkpoint, FLOPs of a matmul.

Seven billion weights are counted on torch's meta device, which allocates nothing; Adam's state per
weight is measured on a few weights.
"""

import io
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import nn
from torch.utils.flop_counter import mm_flop

from course.worked.registry import worked
from course.worked.step import Step

GB, MB, GIB, MIB = 10**9, 10**6, 2**30, 2**20


def _bytes(num: int, dtype: torch.dtype = torch.float32) -> int:
    return torch.empty(num, dtype=dtype, device="meta").nbytes


def _adam_state(num: int, measured: int = 64) -> dict[str, int]:
    """Bytes of what Adam keeps for `num` float32 parameters, by name, as measured on a few."""
    weight = nn.Parameter(torch.zeros(measured))
    weight.grad = torch.ones_like(weight)
    optimizer = torch.optim.Adam([weight])
    optimizer.step()
    state = optimizer.state[weight]
    return {key: value.nbytes * num // measured for key, value in state.items() if key != "step"}


@worked(
    "N13",
    title="Memory of 100 million and of 7 billion weights",
    perturb={"small": 200_000_000},
)
def weight_memory(
    small: int = 100_000_000, large: int = 7_000_000_000, graph: tuple[int, int] = (2, 3)
) -> Iterator[Step]:
    """Memory for weights, for the graph (the chapter's factor of 2-3), and for training by Adam."""
    weights = _bytes(small)
    yield Step(
        f"{small / 1e6:g} M weights in FP32, MB",
        weights / MB,
        400.0,
        formula="4 bytes each",
        as_printed="400 MB",
    )
    yield Step("the same in MiB", weights / MIB, formula="bytes / 2²⁰")
    activations = [times * weights / MB for times in graph]
    yield Step(
        f"activations, {'-'.join(map(str, graph))} times the weights, MB",
        activations,
        [800.0, 1200.0],
        as_printed="800 MB; 1.2 GB",
        formula=f"{' or '.join(map(str, graph))} · {weights / MB:g}",
    )
    full, half = _bytes(large), _bytes(large, torch.bfloat16)
    name = f"{large / 1e9:g} B weights"
    yield Step(f"{name} in FP32, GB", full / GB, formula="4 bytes each")
    yield Step(
        "the same without a graph, GB",
        full / GB,
        14.0,
        as_printed="14 GB",
        formula="no_grad does not change the weights",
        correction=(
            "In FP32 the weights alone take 28 GB, without a graph; in 16 bits they take 14 GB. "
            "The graph comes on top and grows with the batch (F58)."
        ),
    )
    yield Step(f"{name} in 16 bits, GB", half / GB, formula="2 bytes each")
    moments = sum(_adam_state(large).values())
    yield Step("Adam's m and v, GB", moments / GB, formula=f"2 · {full / GB:g}")
    yield Step(
        "weights, gradients, m and v, GB", (2 * full + moments) / GB, formula=f"4 · {full / GB:g}"
    )


@worked(
    "N48",
    title="Adam's state for 7 billion weights",
    perturb={"num_parameters": 13_000_000_000},
)
def adam_memory(num_parameters: int = 7_000_000_000) -> Iterator[Step]:
    """The state that a real Adam step leaves per weight, times the number of weights."""
    state = _adam_state(num_parameters)
    yield Step("m, GB", state["exp_avg"] / GB, formula="4 bytes each")
    yield Step("v, GB", state["exp_avg_sq"] / GB, formula="4 bytes each")
    yield Step("both, GB", sum(state.values()) / GB, 56.0, formula="m + v", as_printed="56GB")
    yield Step("both, GiB", sum(state.values()) / GIB, formula="bytes / 2³⁰")


@worked(
    "N49",
    title="Size of a checkpoint relative to the weights",
    perturb={"width": 16},
)
def checkpoint_size(width: int = 400) -> Iterator[Step]:
    """Size of model and optimizer saved after one step, relative to the model alone.

    The chapter's table says twice the model's size, but not whether that includes the weights. For
    Adam, which its script uses, the state saved in addition to the weights is twice their size.
    """
    for name, optimizer, options in (
        ("SGD", torch.optim.SGD, {}),
        ("SGD with momentum", torch.optim.SGD, {"momentum": 0.9}),
        ("Adam", torch.optim.Adam, {}),
    ):
        ratio = _size_ratio(optimizer, options, width)
        yield Step(
            f"{name}: checkpoint / weights",
            ratio,
            formula="saved bytes of model and optimizer / of the model",
        )
    yield Step(
        "Adam: saved in addition / weights",
        ratio - 1,
        2.0,
        0.05,
        formula="m and v, if x2 means in addition to the weights; the whole file is x3 (F56)",
        as_printed="x2",
    )


def _size_ratio(optimizer_class: type, options: dict, width: int) -> float:
    model = nn.Linear(width, width)
    optimizer = optimizer_class(model.parameters(), lr=1e-3, **options)
    model(torch.ones(1, width)).sum().backward()
    optimizer.step()
    weights = _saved_bytes(model.state_dict())
    return _saved_bytes([model.state_dict(), optimizer.state_dict()]) / weights


def _saved_bytes(state: object) -> int:
    file = io.BytesIO()
    torch.save(state, file)
    return file.tell()


@worked(
    "N57",
    title="FLOPs of a product of square matrices",
    tells="per doubling",
    perturb={"sizes": (256, 512, 1024)},
)
def matmul_flops(sizes: tuple[int, ...] = (512, 1024, 2048)) -> Iterator[Step]:
    """One multiplication and one addition for each of n³ terms; then the count by torch."""
    yield Step("FLOPs", [2 * n**3 for n in sizes], formula="2 n³")
    counted = [mm_flop((n, n), (n, n)) for n in sizes]
    yield Step("counted by torch", counted)
    ratios = [after / before for before, after in pairwise(counted)]
    yield Step("per doubling", ratios, formula="2³")
