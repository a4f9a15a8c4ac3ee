"""Precision: fp32, bf16 autocast, or fp16 autocast with a gradient scaler.

Autocast runs forward and loss in 16 bits where that is safe; parameters, `.grad` and the optimizer
stay fp32 (F112). fp16 cannot hold small gradients, so its loss is scaled up before `backward` and
the gradients are unscaled before they are used. bf16 has fp32's range and never gets a scaler
(F115).

Source: Lecture 3, "FP32, FP16, BF16"; ledger C08, C09, N34, N35, F112-F117, K03.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial

import torch
from torch import Tensor
from torch.optim import Optimizer

from course.engine.errors import EngineError
from course.engine.nonfinite import step_unless
from course.engine.unprofiled import step

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


has_bf16 = partial(torch.cuda.is_bf16_supported, including_emulation=False)
"""Whether the GPU computes in bfloat16; older ones emulate it, slower than float32."""


class Precision:
    """How forward, backward and step work in one of the three precisions."""

    def __init__(self, name: str = "fp32", device: torch.device | str = "cpu") -> None:
        if name not in DTYPES:
            raise EngineError(f"precision = {name!r}: expected fp32, bf16 or fp16.")
        self.name = name
        device_type = torch.device(device).type
        dtype = DTYPES[name]
        if name == "bf16" and device_type == "cuda" and not has_bf16():
            raise EngineError("precision = 'bf16': this GPU has no bfloat16. Use 'fp16'.")
        self.autocast: AbstractContextManager = (
            torch.autocast(device_type, dtype) if dtype else nullcontext()
        )
        self.plain: AbstractContextManager = (
            torch.autocast(device_type, enabled=False) if dtype else nullcontext()
        )
        """For a backward pass inside a forward one."""
        self.scaler = torch.amp.GradScaler(device_type) if name == "fp16" else None

    def backward(self, loss: Tensor, *, retain_graph: bool | None = None) -> None:
        """Add the loss's gradients to `.grad`, scaled up under fp16."""
        (self.scaler.scale(loss) if self.scaler else loss).backward(retain_graph=retain_graph)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Bring `.grad` back to its true scale, so that clipping sees real norms."""
        if self.scaler:
            self.scaler.unscale_(optimizer)

    def step(
        self, optimizer: Optimizer, *, unless: bool | Tensor = False, update_scale: bool = True
    ) -> None:
        """Update the weights; under fp16 the scale may grow afterwards.

        Args:
            unless: False, or a 0-d tensor by which a fused optimizer decides on the device.
            update_scale: False where other optimizers step under the same scale.
        """
        if self.scaler:
            self.scaler.step(optimizer)
            if update_scale:
                self.scaler.update()
        elif unless is False:
            step(optimizer)
        else:
            step_unless(optimizer, unless)

    def overflowed(self) -> None:
        """Skip the step: under fp16 the gradients were too large, so the scale is halved."""
        if self.scaler:
            self.scaler.update()


FP32 = Precision()
