"""What `evaluate()` trains besides the model: a copy that adapts to each task, a probe on features.

That is right as long as it is scored on other rows than it was trained on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from course.debug.probes.answers import rows_of
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.tape import patched
from course.state.nested import tensors_in


class _Seen:
    """One call of a network that is no part of the model, and whether it went into a backward."""

    def __init__(self, network: nn.Module, rows: set[bytes]) -> None:
        self.network, self.rows = network, rows
        self.graph, self.trained = torch.is_grad_enabled(), False


def share_trained_on(session: Session) -> float:
    """Of the rows on which `evaluate()` scores networks of its own, the share on which the same
    network was trained before, in the same `evaluate()`.

    Raises:
        NotChecked: It raises, or none is scored.
    """
    seen: list[_Seen] = []
    with session.observe(), _listening(session.model, seen):
        try:
            session.setup.evaluate()
        except Exception as error:
            raise NotChecked(f"evaluate() raises {type(error).__name__} now") from error
    again = scored = 0
    known: dict[int, set[bytes]] = {}
    for call in seen:
        trained = known.setdefault(id(call.network), set())
        if call.trained:
            trained |= call.rows
        elif trained:
            scored += len(call.rows)
            again += len(call.rows & trained)
    if not scored:
        raise NotChecked("no network that evaluate() trains is scored")
    return again / scored


@contextlib.contextmanager
def _listening(model: nn.Module, seen: list[_Seen]) -> Iterator[None]:
    """Calls of other networks from outside, as they come."""
    own, depth = {id(part) for part in model.modules()}, 0

    def counts(module: nn.Module) -> bool:
        return id(module) not in own and any(True for _ in module.parameters())

    def before(module: nn.Module, args: tuple) -> None:
        nonlocal depth
        if counts(module):
            first = next((t for t in tensors_in(args) if t.dim()), None)
            if not depth and first is not None:
                seen.append(_Seen(module, set(rows_of(_with_rows(first)))))
            depth += 1

    def after(module: nn.Module, args: tuple, output: Any) -> None:
        nonlocal depth
        depth -= counts(module)

    def backward(original: Callable, *args: Any, **kwargs: Any) -> Any:
        for call in reversed(seen):
            if call.network is not seen[-1].network or not call.graph or call.trained:
                break
            call.trained = True
        return original(*args, **kwargs)

    hooks = (register_module_forward_pre_hook(before), register_module_forward_hook(after))
    try:
        with patched(torch.autograd, "backward", backward):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def _with_rows(first: Tensor) -> Tensor:
    return first.unsqueeze(1) if first.dim() == 1 else first
