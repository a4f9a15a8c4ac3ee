"""Relation on the members of a list of modules: each is separate, and learns separately."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session


def apart(session: Session) -> Iterator[Finding]:
    """Members of a list that training moves do not stay identical."""
    lists = [(name, list(m)) for name, m in session.model.named_modules()
             if isinstance(m, nn.ModuleList) and len(m) > 1]  # fmt: skip
    if not lists:
        raise NotChecked("the model has no list of modules")
    tape = session.loop.tape
    place = {id(p): i for i, p in enumerate(tape.watched)}
    for name, members in lists:
        held = [[place.get(id(p)) for p in member.parameters()] for member in members]
        if any(not own or None in own or len(own) != len(held[0]) for own in held):
            continue
        if len({id(m) for m in members}) < len(members):
            if len({id(m) for m in members}) == 1:
                yield Finding(
                    "bad-start", "warning",
                    f"The {len(members)} entries of {name} are the same module, as made by [layer] "
                    f"* {len(members)}: they share all their weights.",
                    {"entries": len(members), "modules": 1},
                    "nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])  # not [layer] * 4",
                )  # fmt: skip
                return
            continue
        start, end = session.loop.start, session.loop.end
        if _alike(start, held) and _alike(end, held) and _moved(start, end, held[0]):
            yield Finding(
                "bad-start", "warning",
                f"The {len(members)} members of {name} start with the same weights and are still "
                f"the same after {tape.call or len(session.loop.losses)} steps that moved them: "
                f"they are {len(members)} copies of one member.",
                {"members": len(members)},
                "torch.manual_seed(member)  # a different seed for each, or none in between",
            )  # fmt: skip
            return


def _alike(values: list[Tensor], held: list[list[int]]) -> bool:
    return all(
        values[a].shape == values[b].shape and torch.equal(values[a], values[b])
        for own in held[1:] for a, b in zip(held[0], own, strict=True)
    )  # fmt: skip


def _moved(start: list[Tensor], end: list[Tensor], places: list[int]) -> bool:
    return any(not torch.equal(start[place], end[place]) for place in places)
