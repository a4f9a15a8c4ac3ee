"""A loss that branches on its input: the graph holds only the branch that ran.

Source: engineering module, §2; ledger C38.
"""

from __future__ import annotations

from torch import Tensor


def branching_loss(inputs: Tensor) -> Tensor:
    """The mean of the squares if the mean is positive, else the mean of the absolute values.

    At (1, 2) the gradient is (1, 2), at (−1, −2) it is (−0.5, −0.5): the branch that was not taken
    leaves nothing on the tape, and the condition itself has no gradient.

    Args:
        inputs: (N,), float.

    Returns:
        A scalar.
    """
    if inputs.mean() > 0:
        return inputs.square().mean()
    return inputs.abs().mean()
