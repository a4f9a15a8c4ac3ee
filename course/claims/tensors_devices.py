"""Tensors and devices: what is shared, what is copied, and what happens if devices are mixed.

Without a GPU the `meta` device stands in for another device: it holds no numbers, but makes the
same checks.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from course.claims.lab import error_of, flat, interleaved
from course.claims.registry import claim
from course.claims.trial import Measured, needs_gpu, weigh, weigh_settings


def _other(device: torch.device) -> torch.device:
    """A device other than the CPU: this machine's GPU, or `meta`."""
    return device if device.type != "cpu" else torch.device("meta")


@claim(
    "F15",
    title="Mixed devices raise; nothing is copied silently",
    expected="holds if",
    says="An operation on tensors on two devices raises, and does not copy anything silently.",
    condition="if one excepts numbers (tensors without dimensions) and tensors used as an index, "
    "which are copied silently",
    gpu=True,
)
def mixed_devices_raise(device: torch.device) -> Measured:
    other = _other(device)
    layer = nn.Linear(3, 2, device=other)
    logits, targets = torch.randn(4, 2), torch.zeros(4, dtype=torch.long)
    there = logits.to(other)
    errors = {
        "Linear": error_of(layer, torch.randn(4, 3)),
        "cross-entropy": error_of(F.cross_entropy, there, targets),
        "sum": error_of(torch.add, there, logits),
        "sum with a number": error_of(torch.add, there, torch.tensor(1.0)),
        "index on the CPU": error_of(lambda: there[targets]),
    }
    if other.type != "meta":  # which does not check the device of these operands
        conv = nn.Conv2d(1, 2, 3, device=other)
        errors["Conv2d"] = error_of(conv, torch.randn(1, 1, 4, 4))
        errors["matrix product"] = error_of(torch.mm, there, logits.T)
    evidence = {
        "operations that pass silently": list(errors.values()).count(""),
        "raises": {name: error or "nothing" for name, error in errors.items()},
        "other device": str(other),
    }
    return weigh_settings(
        "operations that pass silently",
        evidence,
        {name: bool(error) for name, error in errors.items()},
        criterion="the operation raises",
        note="Without a GPU the meta device stands in: it holds no numbers, but makes the same "
        "checks here.",
    )


def _optimizer_holds(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    return sum(id(p) in held for p in model.parameters())


@claim(
    "F16",
    title="Converting the dtype leaves the optimizer with dead tensors",
    expected="does not hold",
    says="After .half(), an optimizer built before it updates tensors that no longer belong to the "
    "model.",
)
def dtype_after_optimizer() -> Measured:
    lost, moved = {}, {}
    for dtype in (torch.half, torch.bfloat16, torch.double):
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model.to(dtype)
        before = flat(model)
        model(torch.ones(1, 3, dtype=dtype)).sum().backward()
        optimizer.step()
        lost[str(dtype)] = 2 - _optimizer_holds(model, optimizer)
        moved[str(dtype)] = (flat(model) - before).norm().item()
    overwriting = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    try:
        model = nn.Linear(3, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        lost_when_overwriting = 2 - _optimizer_holds(model.double(), optimizer)
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(overwriting)
    evidence = {
        "tensors the optimizer lost, of 2": max(lost.values()),
        "weights moved by": moved,
        "lost with set_overwrite_module_params_on_conversion(True)": lost_when_overwriting,
    }
    stated = max(lost.values()) > 0 or min(moved.values()) == 0
    return weigh("tensors the optimizer lost, of 2", evidence, stated=stated)


@claim(
    "F17",
    title="The model must be moved before the optimizer is built",
    expected="holds if",
    says="Build the optimizer after moving the model, since it captures references to parameters.",
    condition="if Adam has already stepped and the dtype changes, or a layer is replaced; moving a "
    "fresh model keeps the same Parameter objects",
    gpu=True,
)
def move_before_optimizer(device: torch.device) -> Measured:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    fresh = torch.optim.Adam(model.parameters(), foreach=False)
    model.to(device, torch.float64)
    lost_by_moving = 4 - _optimizer_holds(model, fresh)

    def step(dtype: torch.dtype) -> None:
        model.zero_grad()
        model(torch.randn(4, 3, device=device, dtype=dtype)).sum().backward()
        fresh.step()

    step(torch.float64)
    model.float()
    stepped = error_of(step, torch.float32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[1] = nn.Linear(3, 2, device=device)
    before = flat(model[1])
    model(torch.randn(4, 3, device=device)).sum().backward()
    optimizer.step()
    replaced = (flat(model[1]) - before).norm().item()
    evidence = {
        "tensors lost by moving, of 4": lost_by_moving,
        "Adam steps in float64, then .float(): raises": stepped or "nothing",
        "replaced layer moved by": replaced,
        "moved to": f"{device}, float64",
    }
    return weigh(
        "tensors lost by moving, of 4",
        evidence,
        stated=lost_by_moving > 0,
        conditioned=bool(stepped) and replaced == 0,
    )


@claim(
    "F20",
    title="from_numpy shares memory, torch.tensor copies",
    expected="holds",
    says="torch.from_numpy shares memory with the array, torch.tensor copies it.",
)
def numpy_sharing() -> Measured:
    array = np.array([1, 2, 3])
    shared, copied = torch.from_numpy(array), torch.tensor(array)
    array[0] = 99
    shared[1] = -5
    evidence = {
        "first number of the copy": copied[0],
        "array": array,
        "shared": shared,
        "copy": copied,
    }
    stated = shared.tolist() == array.tolist() == [99, -5, 3] and copied.tolist() == [1, 2, 3]
    return weigh("first number of the copy", evidence, stated=stated)


@claim(
    "F21",
    title="tensor.to() returns a new tensor",
    expected="holds if",
    says="tensor.to(...) returns a new tensor and leaves the old one where it is.",
    condition="if something changes; otherwise it returns the same object",
)
def to_returns_new() -> Measured:
    tensor = torch.ones(3)
    same = [tensor.to("cpu"), tensor.to(torch.float32)]
    changed = [tensor.to(torch.float64), tensor.to("meta")]
    returned_itself = sum(one is tensor for one in same)
    evidence = {
        "times it returned itself, nothing to change, of 2": returned_itself,
        "times it returned itself, something to change, of 2": sum(t is tensor for t in changed),
    }
    new_where_changed = all(one is not tensor for one in changed)
    return weigh(
        "times it returned itself, nothing to change, of 2",
        evidence,
        stated=new_where_changed and not returned_itself,
        conditioned=new_where_changed,
    )


@claim(
    "F121",
    title="With targets left on the CPU, training runs silently, ten times slower",
    expected="does not hold",
    says="With targets left on the CPU, training silently continues, ten times slower.",
    gpu=True,
)
def targets_on_the_cpu(device: torch.device) -> Measured:
    other = _other(device)
    logits = torch.randn(8, 3, device=other, requires_grad=True)
    targets = torch.zeros(8, dtype=torch.long)
    errors = {
        "cross-entropy": error_of(F.cross_entropy, logits, targets),
        "mse": error_of(F.mse_loss, logits[:, 0], torch.zeros(8)),
        "bce": error_of(F.binary_cross_entropy_with_logits, logits[:, 0], torch.zeros(8)),
    }
    silent = sum(not error for error in errors.values())
    evidence = {
        "losses that train silently, of 3": silent,
        "raises": errors,
        "other device": str(other),
    }
    if other.type == "cuda":
        evidence["logits.cpu() first, raises"] = (
            error_of(lambda: F.cross_entropy(logits.cpu(), targets).backward()) or "nothing"
        )
    return weigh(
        "losses that train silently, of 3",
        evidence,
        stated=silent > 0,
        note="Silent only if the code itself moves the logits to the CPU.",
    )


@claim(
    "F122",
    title="non_blocking needs pinned memory",
    expected="needs GPU",
    says="A copy with non_blocking=True overlaps with computation only from pinned memory.",
    gpu=True,
)
def non_blocking_needs_pinning(device: torch.device) -> Measured:
    if device.type != "cuda":
        moved = torch.ones(3).to(device, non_blocking=True)
        evidence = {"CUDA devices here": 0, "result is correct": bool((moved == 1).all())}
        return needs_gpu("CUDA devices here", evidence)
    from course.data.stopwatch import seconds, waiter

    pageable = torch.randn(2**24)  # 64 MiB
    pinned = pageable.pin_memory()

    def returns_after(source: torch.Tensor) -> float:
        """Time until the call returns, while the copy may still be under way."""
        import time

        torch.cuda.synchronize()
        start = time.perf_counter()
        source.to(device, non_blocking=True)
        elapsed = time.perf_counter() - start
        torch.cuda.synchronize()
        return elapsed

    for source in (pageable, pinned):
        returns_after(source)
    share = {
        name: returns_after(source)
        / seconds(lambda s=source: s.to(device), synchronize=waiter(device))
        for name, source in (("pageable", pageable), ("pinned", pinned))
    }
    evidence = {
        "pinned: share of the copy's time that the call waits": share["pinned"],
        "pageable: share of the copy's time that the call waits": share["pageable"],
        "speed of the copy, pageable / pinned": interleaved(
            lambda: pageable.to(device), lambda: pinned.to(device), device=device
        ).as_list(),
    }
    return weigh(
        "pinned: share of the copy's time that the call waits",
        evidence,
        stated=share["pinned"] < 0.2 and share["pageable"] > 0.5,
    )
