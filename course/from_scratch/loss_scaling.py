"""FP16's loss scaling, written out: scale up before backward, down before the step, skip overflows.

    scaler.scaled(loss).backward()      # gradients `scale` times as large: none underflows
    scaler.unscale(optimizer)           # true size again: now they can be clipped
    scaler.step(optimizer)              # only if every gradient was finite
    scaler.update()                     # shrink after an overflow, grow after many good updates

torch has it as `torch.amp.GradScaler`, which a test compares this with.

Source: Annotated-loop essay, "Mixed precision"; ledger N34, X64, F114, F116.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer


class LossScaler:
    """A loss scale that adapts itself.

    Args:
        scale: The first scale.
        growth: The scale is multiplied by this after `interval` good updates in a row.
        backoff: The scale is multiplied by this after an update whose gradients were not all
            finite.
        interval: Good updates in a row before the scale grows.
    """

    def __init__(
        self,
        scale: float = 2.0**16,
        growth: float = 2.0,
        backoff: float = 0.5,
        interval: int = 2000,
    ) -> None:
        self.scale, self.growth, self.backoff, self.interval = scale, growth, backoff, interval
        self.good = 0
        """Good updates since the scale last changed."""
        self.finite: bool | None = None
        """Whether all gradients of this update are finite; None before they are unscaled."""

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss times the scale, with its graph; a 16-bit loss is first converted to float32."""
        return (loss.float() if loss.dtype.itemsize < 4 else loss) * self.scale

    @torch.no_grad()
    def unscale(self, optimizer: Optimizer) -> None:
        """Divide every gradient of the optimizer by the scale; note whether all are finite.

        Raises:
            RuntimeError: The gradients of this update are already unscaled.
        """
        if self.finite is not None:
            raise RuntimeError("unscale() was called twice since the last update().")
        grads = [p.grad for group in optimizer.param_groups for p in group["params"]]
        grads = [grad for grad in grads if grad is not None]
        for grad in grads:
            grad.div_(self.scale)
        self.finite = all(bool(grad.isfinite().all()) for grad in grads)

    def step(self, optimizer: Optimizer) -> bool:
        """Unscale if not done yet, and step unless a gradient is inf or nan; True if it stepped."""
        if self.finite is None:
            self.unscale(optimizer)
        if self.finite:
            optimizer.step()
        return bool(self.finite)

    def update(self) -> None:
        """Choose the scale of the next update."""
        self.good = self.good + 1 if self.finite else 0
        if not self.finite:
            self.scale *= self.backoff
        elif self.good == self.interval:
            self.scale, self.good = self.scale * self.growth, 0
        self.finite = None
