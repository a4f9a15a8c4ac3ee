"""Relations on memory: what is kept from one step is not overwritten by the next."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_pre_hook

from course.debug.probes.loop import own_loop
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

STEPS = 4
"""Steps after which a state that began as the first gradient has met a second one."""


def optimizer_state(session: Session) -> Iterator[Finding]:
    """An optimizer's state does not share memory with the gradients."""
    step = session.setup.train_step
    if own_loop(session).unit != "step" or step is None:
        raise NotChecked("needs train_step")
    own = [o for o in session.optimizers if hasattr(o, "state")
           and not type(o).__module__.startswith("torch.optim")]  # fmt: skip
    if not own:
        raise NotChecked("the optimizers are torch's own")
    batches, shared = program_of(session).batches, 0
    with session.observe():
        for number in range(STEPS):
            step(clone(batches[number % len(batches)]))
        for optimizer in own:
            for p in [p for g in optimizer.param_groups for p in g["params"]]:
                places = {t.data_ptr() for t in (p.grad, p) if t is not None and t.numel()}
                kept = optimizer.state.get(p, {})
                shared += any(t.numel() and t.data_ptr() in places and t is not p
                              for t in tensors_in(kept))  # fmt: skip
    if shared:
        yield Finding(
            "memory-shared", "error",
            f"After {STEPS} steps the optimizer's state of {shared} parameters shares memory with "
            "their gradient or with the parameters themselves: changing the one overwrites the "
            "other, and nothing is carried from step to step.",
            {"parameters": shared, "steps": STEPS},
            'state["velocity"] = p.grad.clone()  # its own copy',
        )  # fmt: skip


def states(session: Session) -> Iterator[Finding]:
    """States of one module, taken at different times and kept together, are copies."""
    program, seen = program_of(session), _States()
    if not program.first().tape.took_states:
        raise NotChecked("a step takes no state_dict()")
    with session.observe():
        original = nn.Module.state_dict
        hooks = (register_module_forward_pre_hook(seen.look),
                 register_optimizer_step_pre_hook(seen.look))  # fmt: skip
        nn.Module.state_dict = seen.listening(original)
        try:
            program.make_step(clone(program.batches[0]))
        except Exception as error:
            raise NotChecked(f"the step raises {type(error).__name__}") from error
        finally:
            nn.Module.state_dict = original
            for hook in hooks:
                hook.remove()
    if not seen.taken:
        raise NotChecked("a step takes no state_dict()")
    if seen.together:
        yield Finding(
            "checkpoint-by-reference", "error",
            f"A step keeps {seen.together} states of one {seen.kind} together, taken when its "
            "weights were different, but all of them share its memory: each of them is the last.",
            {"states": seen.together},
            "states.append(copy.deepcopy(worker.state_dict()))",
        )  # fmt: skip


class _States:
    """Which states of one module are alive at a time, and what they held when they were taken.

    They are looked at when a module is called or an optimizer steps: the name that held the last
    one may hold it until the next has been taken.
    """

    def __init__(self) -> None:
        self.taken: list[tuple[weakref.ref, nn.Module, dict[str, Tensor]]] = []
        self.together, self.kind = 0, ""

    def listening(self, original: Callable) -> Callable:
        def state_dict(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            state = original(module, *args, **kwargs)
            if not args and not kwargs and isinstance(state, OrderedDict):  # no part of another's
                held = {n: t.detach().clone() for n, t in state.items() if isinstance(t, Tensor)}
                self.taken.append((weakref.ref(state), module, held))
            return state

        return state_dict

    def look(self, *_: Any) -> None:
        alive = [(ref(), module, then) for ref, module, then in self.taken if ref() is not None]
        for state, module, then in alive[:-1]:
            last, _, now = alive[-1]
            if module is alive[-1][1] and _shares(state, last) and _differ(then, now):
                self.together, self.kind = len(alive), type(module).__name__


def _shares(one: Mapping, other: Mapping) -> bool:
    return any(isinstance(t, Tensor) and isinstance(other.get(n), Tensor) and t.numel()
               and t.data_ptr() == other[n].data_ptr() for n, t in one.items())  # fmt: skip


def _differ(then: Mapping, now: Mapping) -> bool:
    return any(n in now and not torch.equal(t, now[n]) for n, t in then.items())
