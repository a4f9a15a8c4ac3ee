"""Probe on the range of inputs: what the first layer with weights gets, and its effect there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.data.contract import check_batch
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.shifted import seen_inputs

LARGER = 4.0
"""Outputs so many times larger than for normalised inputs are too large."""
FLAT = 5.0
"""Beyond it the slope of tanh is under 0.0002, that of the sigmoid under 0.007."""
SATURATED, MILD = 0.5, 0.2
"""Shares of flat units: above the one for the inputs as they are and below the other for the same
inputs normalised, it is their range that saturates a layer."""
BOUNDED = (nn.Tanh, nn.Sigmoid)
RECURRENT = (nn.RNNBase, nn.RNNCellBase)


def unnormalised(session: Session) -> Iterator[Finding]:
    """The first layer with weights does not get raw 0-255 pixels or features in the thousands."""
    inputs = seen_inputs(session, "train")
    if inputs is None:
        raise NotChecked("inputs are not floating-point numbers")
    if not _is_raw(inputs):
        return
    sample = inputs[:64]
    reached, raw, flat = _look(session, sample)
    if reached is not None and not _is_raw(reached):
        return  # normalised inside
    _, mild, flat_mild = _look(session, (sample - sample.mean()) / sample.std())
    if raw.dim() < 1:
        raise NotChecked("outputs are not numbers")
    ratio = float(raw.std() / mild.std().clamp_min(1e-12))
    saturated = flat > SATURATED and flat_mild < MILD
    if ratio > LARGER or saturated:
        yield Finding(
            "range-not-normalised", "warning",
            "The model gets inputs as large as raw pixels from 0 to 255, and nothing inside it "
            "normalises them: "
            + (f"{flat:.0%} of its gates or units are saturated and pass no gradient."
               if saturated else "the outputs and the first losses are huge."),
            {"input_std": float(inputs.std()), "input_max": float(inputs.abs().max()),
             "outputs_larger_than_normalised": ratio, "saturated": flat,
             "saturated_if_normalised": flat_mild},
            "inputs = inputs.float() / 255\ninputs = (inputs - mean) / std  # of the training part",
        )  # fmt: skip


def _is_raw(inputs: Tensor) -> bool:
    """By the batch contract's own rule."""
    rows = (inputs.reshape(len(inputs), -1), torch.zeros(len(inputs)))
    return "range-not-normalised" in check_batch(rows, task="regression").ids


def _look(session: Session, inputs: Tensor) -> tuple[Tensor | None, Tensor, float]:
    """What the first layer with parameters gets (of a normalisation layer, what it gives), the
    outputs, and the largest share of saturated units in a layer."""
    first: list[Tensor] = []
    flat = [0.0]
    with session.observe(), torch.no_grad():  # which takes the hooks off again
        for module in session.model.modules():
            weighted = any(True for _ in module.parameters(recurse=False))
            if weighted or "Norm" in type(module).__name__ or isinstance(module, BOUNDED):
                module.register_forward_hook(_noting(first, flat))
        session.model.train()
        outputs = session.call_model(inputs)
    if not isinstance(outputs, Tensor):
        raise NotChecked("the model gives no tensor")
    return (first[0] if first else None), outputs.float(), max(flat)


def _noting(first: list[Tensor], flat: list[float]) -> Callable[..., None]:
    def note(module: nn.Module, args: Any, output: Any) -> None:
        given = next((a for a in args if isinstance(a, Tensor)), None)
        value = output if "Norm" in type(module).__name__ else given
        if not isinstance(value, Tensor) or not value.is_floating_point():
            return
        if not first and not isinstance(module, BOUNDED):
            first.append(value.detach())
        if isinstance(module, BOUNDED):
            flat.append(float((value.abs() > FLAT).float().mean()))
        elif isinstance(module, RECURRENT):
            flat.append(_saturated_gates(module, value))

    return note


def _saturated_gates(module: nn.Module, inputs: Tensor) -> float:
    """Share of the gates' first summands, W x + b, that are flat already."""
    weight = getattr(module, "weight_ih_l0", getattr(module, "weight_ih", None))
    if weight is None or inputs.shape[-1] != weight.shape[1]:
        return 0.0
    bias = getattr(module, "bias_ih_l0", getattr(module, "bias_ih", None))
    before = torch.nn.functional.linear(inputs, weight, bias if module.bias else None)
    return float((before.abs() > FLAT).float().mean())
