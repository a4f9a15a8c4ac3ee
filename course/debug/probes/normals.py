"""Numbers that torch.normal draws around outputs of the model: it gives them a gradient of zeros.

What it returns has a graph, so nothing looks cut off; `mean + std * noise` would hand the gradient
on, and a density of the drawn number, as policies have it, would take its place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

if TYPE_CHECKING:
    from course.debug.probes.tape import Event


class Normals:
    """What torch.normal drew since the model was last called, with the numbers it was drawn by."""

    def __init__(self) -> None:
        self.drawn: list[tuple[int, list[Tensor]]] = []
        """Where the numbers lie, and what they were drawn by."""

    def clear(self) -> None:
        self.drawn = []

    def see(self, args: Any, kwargs: Any, result: Any) -> None:
        """torch.normal was called."""
        given = [t for t in [*args, *kwargs.values()] if isinstance(t, Tensor)]
        if isinstance(result, Tensor) and result.requires_grad and any(map(_is_learned, given)):
            self.drawn.append((result.data_ptr(), [t.detach() for t in given]))

    def is_priced(self, args: Any) -> bool:
        """Drawn numbers are compared with what they were drawn by: the beginning of a density."""
        places = {t.data_ptr() for t in args if isinstance(t, Tensor)}
        return any(
            place in places and any(t.data_ptr() in places for t in by) for place, by in self.drawn
        )

    def read(self, args: Any) -> Tensor | None:
        """Drawn numbers with their graph among what a layer gets."""
        places = {place for place, _ in self.drawn}
        return next((a for a in args if isinstance(a, Tensor) and a.requires_grad
                     and a.data_ptr() in places), None)  # fmt: skip

    @staticmethod
    def follow(drawn: Tensor, event: Event) -> None:
        """Note whether a loss has a slope in them, which ends there."""
        event.info["reached"] = False

        def hear(slope: Tensor) -> None:
            event.info["reached"] |= bool(slope.detach().any())

        drawn.register_hook(hear)


def _is_learned(tensor: Tensor) -> bool:
    return tensor.grad_fn is not None or (isinstance(tensor, nn.Parameter) and tensor.requires_grad)
