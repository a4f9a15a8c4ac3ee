"""Relation on networks that only provide targets: they run in eval mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone, same
from course.debug.probes.tape import changes_by_mode
from course.debug.relations.program import program_of
from course.state.snapshot import reached

STEPS = 3
"""Steps in which the weights of a network that is not trained stay as they are."""


def in_eval_mode(session: Session) -> Iterator[Finding]:
    """A network next to the model whose weights never change is called in eval mode.

    A copy of the model may be updated later, and may be in train mode like the model.
    """
    others = _beside(session)
    if not others:
        raise NotChecked("no other network with dropout or batch norm is used with the model")
    program = program_of(session)
    called: dict[int, bool] = {}

    def listen(module: nn.Module, _: Any) -> None:
        if id(module) in {id(m) for m in others}:
            called[id(module)] = called.get(id(module), True) and _is_awake(module)

    with session.observe():
        before = [[p.detach().clone() for p in m.parameters()] for m in others]
        hook = register_module_forward_pre_hook(listen)
        try:
            for number in range(STEPS):
                program.make_step(clone(program.batches[number % len(program.batches)]))
        except Exception as error:
            raise NotChecked(f"the step raises {type(error).__name__}") from error
        finally:
            hook.remove()
        still = [all(same(p, old) for p, old in zip(m.parameters(), kept, strict=False))
                 for m, kept in zip(others, before, strict=True)]  # fmt: skip
    for module, stays in zip(others, still, strict=True):
        if stays and called.get(id(module), False):
            part = next(m for m in module.modules() if changes_by_mode(m) and m.training)
            yield Finding(
                "train-mode-in-eval", "warning",
                f"A step also calls a {type(module).__name__} whose weights never change, but its "
                f"{type(part).__name__} is in train mode: its outputs differ from those it would "
                "give in use.",
                {"layer": type(part).__name__, "steps": STEPS},
                "teacher.eval().requires_grad_(False)",
            )  # fmt: skip
            return


def _is_awake(module: nn.Module) -> bool:
    return any(changes_by_mode(part) and part.training for part in module.modules())


def _beside(session: Session) -> list[nn.Module]:
    """Outermost modules in reach that are no part of the model nor a copy of it, that no optimizer
    trains, and that answer otherwise in train mode."""
    things = reached(vars(session.setup))
    modules = [m for m in things if isinstance(m, nn.Module)]
    inside = {id(m) for m in session.model.modules()}
    parts = {id(part) for m in modules for part in m.modules() if part is not m}
    held = {id(p) for o in things if isinstance(o, torch.optim.Optimizer)
            for g in o.param_groups for p in g["params"]}  # fmt: skip
    own = _shapes(session.model)
    return [
        m for m in modules
        if not {id(m)} & (inside | parts) and not any(id(part) in inside for part in m.modules())
        and any(map(changes_by_mode, m.modules())) and _shapes(m) != own
        and not any(id(p) in held for p in m.parameters())
    ]  # fmt: skip


def _shapes(module: nn.Module) -> dict[str, torch.Size]:
    named: Iterator[tuple[str, Tensor]] = module.named_parameters()
    return {name: p.shape for name, p in named}
