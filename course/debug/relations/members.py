"""Relation on the members of a list of modules: each is separate, and learns separately."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor, nn

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, as_list
from course.debug.relations.program import far, program_of
from course.debug.relations.steps import SAME
from course.state.nested import tensors_in

PLAIN = (nn.Linear, nn.modules.conv._ConvNd)
"""Layers that are seldom one step of something repeated, as a whole block or a cell may be."""
MOST_NODES = 20_000
"""Nodes of a graph that are gone through to see whether one call reads what another gave."""


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
                found = _of_one(session, name, members)
                yield from found
                if any(f.is_alarm for f in found):
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


def _of_one(session: Session, name: str, members: list[nn.Module]) -> list[Finding]:
    """A list whose entries are one module. A block applied several times may be meant, as may one
    head for several inputs; entries that all give the same output, and a plain layer that reads
    what it gave, are what [layer] * n makes by mistake."""
    if name in [str(n) for n in as_list(session.declared.get("shared", []))]:
        return []
    count, calls = len(members), _calls(session, members[0])
    useless = len(calls) >= count and all(
        far(one, other) < SAME for a, b in pairwise(calls)
        for one, other in zip(a[:2], b[:2], strict=True)
    )  # fmt: skip
    deep = isinstance(members[0], PLAIN) and len(calls) >= count and _in_succession(calls)
    said = (f"The {count} entries of {name} are the same module, as made by [layer] * {count}: "
            "they share all their weights")  # fmt: skip
    fix = "nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])  # not [layer] * 4"
    evidence = {"entries": count, "modules": 1, "calls_in_a_step": len(calls)}
    if useless:
        said += f", and in a step all {len(calls)} calls have the same inputs and the same outputs."
    elif deep:
        said += f", although in a step one reads what the other gave, as {count} layers do."
    else:
        said += ". This is right if one block is to be applied several times."
        fix += f'\ndeclared = {{"shared": ["{name}"]}}  # if it is meant'
    return [Finding("bad-start", "warning" if useless or deep else "note", said, evidence, fix)]


Called = tuple[list[Tensor], list[Tensor], list[Tensor], list[Tensor]]
"""Inputs and outputs of a call, copied, and the same as they were."""


def _calls(session: Session, module: nn.Module) -> list[Called]:
    """All calls of a module with a gradient in one step, without dropout; none where it raises."""
    calls: list[Called] = []

    def listen(module: nn.Module, args: tuple, kwargs: dict, output: object) -> None:
        if torch.is_grad_enabled():
            given, made = list(tensors_in([args, kwargs])), list(tensors_in([output]))
            calls.append((*([t.detach().clone() for t in ts] for ts in (given, made)), given, made))

    try:
        program = program_of(session)
        program.step(
            program.batches[0],
            prepare=lambda: module.register_forward_hook(listen, with_kwargs=True),
        )
    except NotChecked:
        return []
    return calls


def _in_succession(calls: list[Called]) -> bool:
    """Each call reads what the one before gave."""
    return all(
        _reads(after[2], {t.grad_fn for t in before[3] if t.grad_fn is not None})
        for before, after in pairwise(calls)
    )


def _reads(given: list[Tensor], wanted: set) -> bool:
    """One of these nodes is in the graph that made these tensors."""
    left, seen = [t.grad_fn for t in given], set()
    while left and len(seen) < MOST_NODES:
        node = left.pop()
        if node in wanted:
            return True
        if node is not None and node not in seen:
            seen.add(node)
            left += [after for after, _ in node.next_functions]
    return False


def _alike(values: list[Tensor], held: list[list[int]]) -> bool:
    return all(
        values[a].shape == values[b].shape and torch.equal(values[a], values[b])
        for own in held[1:] for a, b in zip(held[0], own, strict=True)
    )  # fmt: skip


def _moved(start: list[Tensor], end: list[Tensor], places: list[int]) -> bool:
    return any(not torch.equal(start[place], end[place]) for place in places)
