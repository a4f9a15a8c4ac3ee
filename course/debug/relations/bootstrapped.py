"""Relations on bootstrapped returns: the value of the next state is left out when an episode ends.

The target is a reward plus a part of what a network predicts for the next state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.joining import read_by_the_model
from course.debug.relations.program import SAME, close, exchanged, program_of
from course.state.nested import tensors_in

DISTANCES = {"mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"}
FEW = 0.4
"""Share of rows with a flag below which it is taken for the end of an episode, not for its going
on: episodes are longer than two steps."""
LEAST_ROWS = 8
"""Rows of a batch from which both answers of a flag are no chance."""


def ends(session: Session) -> Iterator[Finding]:
    """Where flags say that an episode ends, the target leaves out the next state's value."""
    program = program_of(session)
    batch = max(program.batches, key=lambda one: len(_flags(one)))  # ends may be rare
    leaves, flags = list(tensors_in(batch)), _flags(batch)
    if not flags:
        raise NotChecked("no batch has flags")
    met = _targets(session, batch)
    rows = len(met)
    flags = [n for n in flags if len(leaves[n]) == rows]
    if rows < LEAST_ROWS or not flags:
        raise NotChecked("a batch does not have one flag for each target")

    def after(place: int, change: Callable[[Tensor], Tensor]) -> Tensor:
        return _targets(session, _with(batch, place, change))

    numbers = [n for n, t in enumerate(leaves) if t.is_floating_point()]
    rewards = [n for n in numbers if leaves[n].dim() and leaves[n].numel() == rows
               and _is(after(n, lambda t: t + 1), met + 1)]  # fmt: skip
    flags = [n for n in flags if n not in rewards]  # a reward of 0 or 1 is none
    numbers = [n for n in numbers if n not in flags]
    read = read_by_the_model(session)
    states = [n for n in numbers if n not in rewards and leaves[n].dim() > 1
              and any(leaves[n].shape == leaves[m].shape and n != m for m in read)
              and not _is(after(n, lambda t: t.roll(1, 0)), met)]  # fmt: skip
    if len(rewards) != 1 or not states:
        raise NotChecked("no target is a reward and the value of a next state")
    turned = {n: _with(batch, n, lambda t: (1 - t.int()).to(t)) for n in flags}
    base = program.step(batch).loss
    read_flags = [n for n, other in turned.items() if not _is(_targets(session, other), met)]
    if read_flags:
        yield from _only_at_ends(met, leaves[rewards[0]], [leaves[n] for n in read_flags])
        return
    flags = [n for n, other in turned.items() if close(base, program.step(other).loss)]
    if flags:  # and no action, of which there may be two
        number = float(leaves[flags[0]].double().mean())
        yield Finding(
            "terminal-bootstrapped", "error",
            "Targets are a reward plus the value of a next state, and they do not change when the "
            f"batch's flags (1 in {number:.0%} of the rows) are inverted: the value is also added "
            "after the end of an episode.",
            {"flags": len(flags), "ends": number, "rows": rows},
            "target = reward + gamma * (1 - done) * next_value",
        )  # fmt: skip


def _only_at_ends(met: Tensor, reward: Tensor, flags: list[Tensor]) -> Iterator[Finding]:
    """The next state's value counts in the few rows in which a flag is up, and in no other."""
    alone = (met - reward.flatten().to(met)).abs() < SAME
    for flag in flags:
        up = flag.flatten().bool()
        number = float(up.double().mean())
        if number < FEW and bool(alone[~up].all()) and not bool(alone[up].any()):
            yield Finding(
                "terminal-bootstrapped", "error",
                f"Targets contain the value of a next state where a flag is set, in {number:.0%} "
                "of the rows, and only the reward in all others: the value is added after the end "
                "of an episode, and nowhere else.",
                {"flag_is_up": number, "rows": len(met)},
                "target = reward + gamma * (1 - done) * next_value  # not gamma * done",
            )  # fmt: skip
            return


def chosen(session: Session) -> Iterator[Finding]:
    """Of the values of all actions, the target is compared with that of the action taken."""
    program = program_of(session)
    batch = program.batches[0]
    leaves, met = list(tensors_in(batch)), _targets(session, batch)
    rewards = [t for n, t in enumerate(leaves) if t.is_floating_point() and t.dim()
               and t.numel() == len(t) == len(met)
               and _is(_targets(session, _with(batch, n, lambda t: t + 1)), met + 1)]  # fmt: skip
    outputs = [e.output for e in program.first().tape.of("output") if e.graph]
    if len(rewards) != 1 or _is(met, rewards[0].flatten().to(met)) or len(outputs) != 1:
        raise NotChecked("no target is a reward and the value of a next state")
    values = outputs[0]
    if values is None or values.dim() != 2 or values.shape[1] < 2:
        raise NotChecked("the model does not give one value for each action")
    base = program.steady_loss(batch)
    actions = [
        n for n, t in enumerate(leaves)
        if not t.is_floating_point() and t.dtype != torch.bool and t.numel() == len(t) == len(met)
        and 0 <= int(t.min()) < int(t.max()) < values.shape[1]
    ]  # fmt: skip
    unread = [
        n for n in actions
        if close(base, program.step(_with(batch, n, lambda t: values.shape[1] - 1 - t)).loss)
    ]  # fmt: skip
    if actions and unread == actions:
        yield Finding(
            "wrong-formula", "error",
            "Targets are a reward plus the value of a next state, the model gives "
            f"{values.shape[1]} values for each state, but the batch's actions do not enter the "
            "loss: it trains a value other than that of the action taken.",
            {"values": values.shape[1], "rows": len(met)},
            "value = model(states).gather(1, actions[:, None])[:, 0]  # not .max(1).values",
        )  # fmt: skip


def through(session: Session) -> Iterator[Finding]:
    """The value of a next state, as part of a target, has no gradient: only the outputs move.

    Residual-gradient methods have a gradient there on purpose; they are rare.
    """
    program = program_of(session)
    batch = program.batches[0]
    met = _targets(session, batch)
    if not any(e.learned for e in program.first().losses if e.name in DISTANCES):
        raise NotChecked("targets have no gradient")
    rewards = [n for n, t in enumerate(tensors_in(batch)) if t.is_floating_point() and t.dim()
               and t.numel() == len(t) == len(met)
               and _is(_targets(session, _with(batch, n, lambda t: t + 1)), met + 1)]  # fmt: skip
    if rewards:
        yield Finding(
            "loss-through-target", "warning",
            "A target is a number from the batch plus what the network predicts for another state, "
            "and it has a gradient: training also moves the target towards the outputs.",
            {"rows": len(met)},
            "with torch.no_grad():\n    target = reward + gamma * (1 - done) * next_value",
        )  # fmt: skip


def _targets(session: Session, batch: Any) -> Tensor:
    """What the one distance of a step pulls its outputs to [B]."""
    losses = [e for e in program_of(session).step(batch).losses if e.name in DISTANCES]
    if len(losses) != 1 or losses[0].targets.numel() != len(losses[0].targets):
        raise NotChecked("a step has no single distance with one number for each row")
    return losses[0].targets.flatten().cpu()


def _flags(batch: Any) -> list[int]:
    """Places of the parts that hold a 0 or a 1 for each row, and both."""
    return [n for n, t in enumerate(tensors_in(batch)) if t.dim() and t.numel() == len(t)
            and set(t.unique().tolist()) == {0, 1}]  # fmt: skip


def _with(batch: Any, place: int, change: Callable[[Tensor], Tensor]) -> Any:
    chosen = list(tensors_in(batch))[place]
    return exchanged(batch, chosen, change(chosen))


def _is(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=SAME, atol=SAME)
