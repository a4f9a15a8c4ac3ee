"""Activation checkpointing, written out: keep a block's inputs, recompute the rest in backward.

A forward pass keeps every activation that backward needs. Here only the inputs of a block are
kept: the block runs without a graph, and backward runs it once more, with one. That costs a second
forward pass and saves the activations inside the block. torch has it as
`torch.utils.checkpoint.checkpoint`, which a test compares this with.

Source: Annotated-loop essay, "The forward pass"; ledger C30, F51.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def recomputed(block: nn.Module, inputs: Tensor) -> Tensor:
    """The same as `block(inputs)`, with the same gradients, but keeping only the inputs.

    Dropout inside the block draws the same mask both times, and backward restores the state of the
    random number generator. A BatchNorm counts the batch twice: its buffers see both passes.

    Args:
        block: Any module that takes one tensor; it must return the same result both times.
        inputs: On the CPU, whose random number generator is restored; with or without a gradient.
    """
    parameters = [p for p in block.parameters() if p.requires_grad]
    return _Recomputed.apply(block, inputs, *parameters)


class _Recomputed(torch.autograd.Function):
    """Parameters are arguments; otherwise they would get no gradient if the inputs need none."""

    @staticmethod
    def forward(ctx: Any, block: nn.Module, inputs: Tensor, *parameters: Tensor) -> Tensor:
        ctx.block, ctx.random = block, torch.get_rng_state()
        ctx.save_for_backward(inputs, *parameters)
        return block(inputs)  # inside forward() there is no graph

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inputs, *parameters = ctx.saved_tensors
        again = inputs.detach().requires_grad_(ctx.needs_input_grad[1])
        wanted = [again, *parameters] if again.requires_grad else parameters
        with torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.set_rng_state(ctx.random)
            outputs = ctx.block(again)
        grads = torch.autograd.grad(outputs, wanted, grad, allow_unused=True)
        return (None, *([] if again.requires_grad else [None]), *grads)
