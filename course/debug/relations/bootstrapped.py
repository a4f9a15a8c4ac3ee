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
from course.debug.relations.program import exchanged, program_of
from course.debug.relations.steps import SAME, close
from course.state.nested import tensors_in

DISTANCES = {"mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"}
FEW = 0.4
"""Share of rows with a flag below which it is taken for the end of an episode, not for its going
on: episodes are longer than two steps."""
LEAST_ROWS = 8
"""Rows of a batch from which both answers of a flag are no chance."""
MOST_KINDS = 0.5
"""Kinds of transitions over the rows in which an episode ends, so that each is seen twice."""


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
    pairs = {n: [m for m in read if m != n and leaves[n].shape == leaves[m].shape]
             for n, t in enumerate(leaves) if n not in [*flags, *rewards]
             and (t.dim() > 1 or _are_ids(t))}  # fmt: skip
    states = [n for n, m in pairs.items() if m and not _is(after(n, lambda t: t.roll(1, 0)), met)]
    if len(rewards) != 1 or not states:
        raise NotChecked("no target is a reward and the value of a next state")
    turned = {n: _with(batch, n, lambda t: (1 - t.int()).to(t)) for n in flags}
    base = program.step(batch).loss
    read_flags = [n for n, other in turned.items() if not _is(_targets(session, other), met)]
    if read_flags:
        yield from _only_at_ends(met, leaves[rewards[0]], [leaves[n] for n in read_flags])
        return
    if bool(_alone(met, leaves[rewards[0]]).any()):
        raise NotChecked("some targets leave the next state's value out, by another part")
    flags = [
        n
        for n, other in turned.items()
        if close(base, program.step(other).loss)
        and all(leaves[s].dim() > 1 or _ends_there(session, n, s, pairs[s]) for s in states)
    ]
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
    alone = _alone(met, reward)
    for flag in flags:
        up = flag.flatten().bool().cpu()
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


def _alone(met: Tensor, reward: Tensor) -> Tensor:
    """Which targets [B] are the reward and nothing else."""
    return (met - reward.flatten().to(met)).abs() < SAME


def _are_ids(t: Tensor) -> bool:
    """One number for each row, which counts states."""
    return t.dim() == 1 and not t.is_floating_point() and t.dtype != torch.bool


def _ends_there(session: Session, flag: int, after: int, before: list[int]) -> bool:
    """The flag ends an episode: it is up wherever one state follows another by one action.

    A time limit cuts the same transition in some rows and not in others, and what begins an episode
    is told by a row's own state.
    """
    parts = [list(tensors_in(batch)) for batch in program_of(session).batches]
    whole = [torch.cat(column) for column in zip(*parts, strict=True) if column[0].dim()]
    if len(whole) != len(parts[0]) or len({len(t) for t in whole}) != 1:
        return False
    up = whole[flag].bool()
    columns = [t.double() for n, t in enumerate(whole) if _are_ids(t) and n != flag]
    kind = torch.stack(columns, 1).unique(dim=0, return_inverse=True)[1]
    number = int(up.sum())
    repeated = number >= LEAST_ROWS and len(kind[up].unique()) <= MOST_KINDS * number
    return repeated and _is_told(kind, up) and not any(_is_told(whole[n], up) for n in before)


def _is_told(kind: Tensor, up: Tensor) -> bool:
    """Rows of one kind have one answer."""
    return not bool(torch.isin(kind[up], kind[~up]).any())


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
