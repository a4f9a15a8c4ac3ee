"""The memory of training that does not depend on the batch: weights, gradients, optimizer state.

Activations are extra and grow with the batch: `course.claims.lab.saved_bytes` counts them.

Source: Training-loop chapter, c4; annotated-loop essay, "The weight update"; ledger N13, N48, F55,
F57.
"""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer

from course.state.nested import tensors_in


def footprint(model: nn.Module, optimizer: Optimizer) -> dict[str, int]:
    """Current bytes of weights, gradients and the optimizer's state.

    Before the first step there is no state, and before the first backward() there are no
    gradients.

    Args:
        model: Its parameters and buffers count as weights; a shared one counts once.
        optimizer: Its state counts, including its step counters.
    """
    state = tensors_in(list(optimizer.state.values()))
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    weights = [*model.parameters(), *model.buffers()]
    return {
        "weights": sum(value.nbytes for value in weights),
        "gradients": sum(grad.nbytes for grad in grads),
        "optimizer": sum(value.nbytes for value in state),
    }
