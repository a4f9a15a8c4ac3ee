"""A typical training loop with three typical bugs as switches.

Two runs with switchable bugs go through it: `course.debug.signatures` logs each epoch of one, the
bug detector (`course.widgets.detector`) each update of another. Each validates in its own way, and
implements the bugs of validation itself.

Source: Training-loop chapter, c5; ledger S06, T19, B01, B15, B17.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from course.engine import grad_norm

OTHER_DEVICE = "meta"
"""It holds no numbers, and torch refuses to mix it with the CPU as it does a GPU."""


class SwitchedLoop:
    """A classifier that gets a new head, its optimizer, and their updates.

    Args:
        model: Its last layer is replaced.
        head: The new last layer.
        make_optimizer: Makes one from parameters.
        stale: The optimizer is built before the head is replaced (B17).
        uncleared: zero_grad() is never called (B01).
        elsewhere: Batches stay on another device (B15).
    """

    def __init__(
        self,
        model: nn.Sequential,
        head: nn.Module,
        make_optimizer: Callable[[Iterable[Tensor]], Optimizer],
        *,
        stale: bool,
        uncleared: bool,
        elsewhere: bool,
    ) -> None:
        self.model, self.uncleared, self.elsewhere = model, uncleared, elsewhere
        self.optimizer = make_optimizer(model.parameters())
        model[-1] = head
        if not stale:
            self.optimizer = make_optimizer(model.parameters())

    def update(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, float]:
        """Make one update; return the loss, maybe with its graph, and the gradient norm."""
        if self.elsewhere:
            inputs = inputs.to(OTHER_DEVICE)
        if not self.uncleared:
            self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(inputs), targets)
        loss.backward()
        norm = float(grad_norm(self.model.parameters()))
        self.optimizer.step()
        return loss, norm
