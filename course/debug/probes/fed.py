"""Inputs that a model is fed from its own outputs: such as points that it denoises step by step.

They are as good as the model is, so their scale says nothing about how data is preprocessed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from course.debug.probes.draws import DRAWS
from course.debug.probes.session import NotChecked, Session
from course.state.nested import tensors_in

OWN, DRAWN = "own", "drawn"
"""What hangs on an output of the model, and what is made of random numbers alone."""


def inputs_of_data(session: Session, run: Callable[[], object], most: int) -> list[Tensor]:
    """First inputs of the model while something runs, without those that hang on its outputs; none
    if it is not called.

    Where there are such, those made of random numbers alone are left out as well: what is denoised
    starts as noise.

    Args:
        session: Everything is put back afterwards.
        run: Calls the model, e.g. `evaluate`.
        most: Inputs from which no more are kept.

    Raises:
        NotChecked: It raises, or calls the model and none of its inputs is data.
    """
    fed = Fed()
    with session.observe():
        hooks = (session.model.register_forward_pre_hook(fed.take),
                 session.model.register_forward_hook(fed.give))  # fmt: skip
        try:
            with fed:
                run()
        except Exception as error:
            raise NotChecked(f"it raises {type(error).__name__} where it is listened to") from error
        finally:
            for hook in hooks:
                hook.remove()
    left_out = {OWN, DRAWN} if any(kind == OWN for _, kind in fed.inputs) else set()
    found = [t for t, kind in fed.inputs if kind not in left_out]
    if fed.inputs and not found:
        raise NotChecked("the model is fed what it gave itself, and no data")
    return found[:most]


class Fed(TorchFunctionMode):
    """Follows the model's outputs and random numbers through torch's functions."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[tuple[Tensor, str]] = []
        """First inputs of the model, each with what it is; "" for data."""
        self._kinds: Any = WeakIdKeyDictionary()

    def take(self, _: nn.Module, args: tuple) -> None:
        if args and isinstance(args[0], Tensor):
            self.inputs.append((args[0].detach(), self._kinds.get(args[0], "")))

    def give(self, _: nn.Module, args: tuple, output: Any) -> None:
        self._mark(output, OWN)

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        given = [(t, self._kinds.get(t, "")) for t in tensors_in((args, kwargs))]
        of_rows = {kind for t, kind in given if t.dim()}  # and no number that scales them
        result = function(*args, **kwargs)
        is_drawn = function in DRAWS or of_rows == {DRAWN}
        kind = OWN if any(k == OWN for _, k in given) else DRAWN if is_drawn else ""
        self._mark(args[0] if function is Tensor.__setitem__ and kind == OWN else result, kind)
        return result

    def _mark(self, value: Any, kind: str) -> None:
        for t in tensors_in(value):
            self._kinds[t] = kind
