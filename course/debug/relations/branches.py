"""The two outputs of a step that looks at pairs, e.g. two views of an example or two pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.session import NotChecked
from course.state.nested import mapped, tensors_in


class Branches:
    """A hook that exchanges both outputs of each batch, however the model gives them.

    In two calls, in one call that returns two tensors, or in one call on both halves of what was
    concatenated.

    Args:
        rows: Rows of each batch.
        make: What stands in for the output of a side, from the number of the batch, the side (0 or
            1) and the output; its gradient goes on to the weights.
        gradients: Takes the gradient at what stands in for each side.
        joined: A side is all that one call gives, e.g. a projection and its prediction: its
            tensors are handed over next to each other [rows, columns of all].
    """

    def __init__(
        self,
        rows: list[int],
        make: Callable[[int, int, Tensor], Tensor],
        gradients: dict[int, Tensor] | None = None,
        *,
        joined: bool = False,
    ) -> None:
        self.rows, self.make, self.gradients, self.joined = rows, make, gradients, joined
        self.batch = self.side = 0

    @property
    def is_done(self) -> bool:
        """Both outputs of each batch were exchanged."""
        return self.batch == len(self.rows) and not self.side

    def __call__(self, _: nn.Module, args: tuple, output: Any) -> Any:
        leaves = [t for t in tensors_in(output) if t.is_floating_point() and t.dim() == 2]
        rows = self.rows[self.batch] if self.batch < len(self.rows) else 0
        if not rows or not leaves:
            raise NotChecked("a step does not give two outputs for each row")
        lengths = [len(t) for t in leaves]
        if lengths == [rows] or (self.joined and set(lengths) == {rows}):
            made = self._made(self.side, torch.cat(leaves, 1))
            parts = made.split([t.shape[1] for t in leaves], 1)
            new = {id(t): part for t, part in zip(leaves, parts, strict=True)}
            self.side = 1 - self.side
        elif lengths == [rows, rows] and leaves[0].shape == leaves[1].shape and not self.side:
            new = {id(t): self._made(side, t) for side, t in enumerate(leaves)}
        elif lengths == [2 * rows] and not self.side:
            halves = [self._made(side, t) for side, t in enumerate(leaves[0].chunk(2))]
            new = {id(leaves[0]): torch.cat(halves)}
        else:
            raise NotChecked("a step does not give two outputs for each row")
        self.batch += not self.side
        return mapped(lambda t: new.get(id(t), t), output)

    def _made(self, side: int, output: Tensor) -> Tensor:
        made = self.make(self.batch, side, output.detach()).to(output)
        made = made + output - output.detach()
        if self.gradients is not None and made.requires_grad:
            made.register_hook(lambda g: self._take(side, g.detach().cpu()))
        return made

    def _take(self, side: int, gradient: Tensor) -> None:
        self.gradients[side] = self.gradients.get(side, 0) + gradient
