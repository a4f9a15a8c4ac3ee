"""Probes on frozen layers: some do not move although they should train, or move although frozen."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from course.debug.probes.loop import written_by_hand
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, as_list, same
from course.debug.probes.thresholds import ROUNDED

TRAINS = 0.2
"""Share of the parameters that train, above which frozen last layers are an oversight: where less
trains, most of the model is frozen on purpose, as for adapters."""

LEAST_WEIGHTS = 24
"""Weights of a layer from which their spread says whether it was ever trained."""
EVENLY = 3.0
"""Distance of the mean square of n random weights from what torch makes it, in units of 1/sqrt(n):
one in a thousand is so far away, and what was trained goes beyond the ends, too."""


def gets_gradient(session: Session) -> set[int]:
    """Parameters that got a gradient other than zero in some backward of the loop."""
    if (known := session.memory.get("gets gradient")) is not None:
        return known
    tape, found = session.loop.tape, set()
    session.memory["gets gradient"] = found
    for event in tape.of("backward"):
        found |= event.info.get("arrived", set())
        for parameter, gradient in zip(tape.watched, event.info.get("after", ()), strict=False):
            if gradient is not None and id(parameter) not in found and bool(gradient.any()):
                found.add(id(parameter))
    return found


def is_declared_frozen(session: Session, name: str) -> bool:
    said = session.declared.get("frozen", [])
    if said is True:
        return True
    prefixes = [str(item) for item in as_list(said)]
    return any(name == p or name.startswith(p.rstrip(".*") + ".") or p in name for p in prefixes)


def frozen(session: Session) -> Iterator[Finding]:
    """What should train gets gradients."""
    loop = session.loop
    if loop.error is not None and "does not require grad" in str(loop.error):
        yield Finding(
            "frozen-params", "error",
            "The loss depends on no parameter that requires a gradient: everything on the way is "
            "frozen or detached.",
            {"frozen": sum(not p.requires_grad for p in session.model.parameters())},
            "for p in model.head.parameters():\n    p.requires_grad_(True)",
        )  # fmt: skip
        return
    named = list(session.model.named_parameters())
    undeclared = [n for n, p in named if not p.requires_grad and not is_declared_frozen(session, n)]
    trainable = sum(p.numel() for _, p in named if p.requires_grad)
    total = sum(p.numel() for _, p in named)
    # what moves without an optimizer is written by the author: an average of the weights, a target
    undeclared = [n for n in undeclared if n not in loop.moved_while_frozen]
    undeclared = [n for n in undeclared if not _is_adapted(session.model, n)]
    undeclared = [n for n in undeclared if _shapes_outputs(session, session.model, n)]
    undeclared = undeclared if _shape_the_loss(session, undeclared) else []
    last = {n for n, _ in named[-2:]}
    if undeclared and last & set(undeclared) and TRAINS * total < trainable:
        yield Finding(
            "frozen-params", "warning",
            f"The last layers do not train: requires_grad is False for {len(undeclared)} "
            f"parameters, {undeclared[-1]} among them.",
            {"frozen": len(undeclared), "parameters": len(named)},
            "for p in model.parameters():\n    p.requires_grad_(True)",
        )  # fmt: skip
        return
    if (place := _last_at_its_start(session, undeclared)) is not None:
        said = as_list(session.declared.get("frozen", []))
        yield Finding(
            "frozen-params", "warning",
            f"{place} is the last layer that is called, and it does not train: requires_grad is "
            "False"
            + (", although declared[\"frozen\"] does not name it." if said else ".")
            + " Its weights lie as a layer's first random ones do, so that nothing says which "
            "output is which.",
            {"frozen": len(undeclared), "trainable": trainable, "parameters": len(named)},
            f"model.{place}.requires_grad_(True)  # before its parameters go to the optimizer",
        )  # fmt: skip
        return
    if undeclared and not last & set(undeclared) and undeclared[0] != named[0][0]:
        yield Finding(
            "frozen-params", "warning",
            f"Layers in the middle do not train: requires_grad is False for {undeclared[0]}.",
            {"frozen": len(undeclared), "parameters": len(named)},
            f'model.get_parameter("{undeclared[0]}").requires_grad_(True)',
        )  # fmt: skip
        return
    yield from _cut_graph(session, named)


def _last_at_its_start(session: Session, undeclared: list[str]) -> str | None:
    """The last layer of the model that is called, if it is frozen at random weights while others
    are frozen that are not, or are declared to be: a body that was trained before, with a head that
    was not."""
    named = {id(module): name for name, module in session.model.named_modules()}
    parts = [named[m] for m in session.loop.tape.calls_within if named.get(m)]
    called = [session.model.get_submodule(part) for part in parts]
    called = [m for m in called if any(True for _ in m.parameters(recurse=False))]
    if not called or not _is_at_its_start(called[-1]):
        return None
    place = named[id(called[-1])]
    frozen = [m for m in called[:-1] if not any(p.requires_grad for p in m.parameters())]
    trained_before = any(_is_at_its_start(m) is False for m in frozen)
    said = as_list(session.declared.get("frozen", []))
    is_odd = f"{place}.weight" in undeclared and (bool(said) or trained_before)
    return place if is_odd else None


def _is_at_its_start(module: nn.Module) -> bool | None:
    """The weights are as evenly spread between two ends as torch makes them; None where another
    way of making them is usual."""
    if not isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)):
        return None
    weight = module.weight.detach().double()
    end = 1 / weight[0].numel() ** 0.5
    if weight.numel() < LEAST_WEIGHTS:
        return None
    inside = float(weight.abs().max()) <= end * (1 + ROUNDED)
    spread = float(weight.pow(2).mean()) * 3 / end**2  # 1, give or take 0.9 / sqrt(n)
    return inside and abs(spread - 1) < EVENLY / math.sqrt(weight.numel())


def _is_adapted(model: nn.Module, name: str) -> bool:
    """Beside the frozen layer stand two trained matrices whose product has the shape of its weight
    and which are smaller together: an adapter, which freezes the layer on purpose. In a Sequential
    one layer follows another and none stands beside."""
    path = name.rpartition(".")[0]
    weight = getattr(model.get_submodule(path), "weight", None)
    parent = model.get_submodule(path.rpartition(".")[0])
    if not path or isinstance(parent, nn.Sequential):
        return False
    if not isinstance(weight, Tensor) or weight.dim() != 2:
        return False
    rows, columns = weight.shape
    shapes = {tuple(p.shape) for p in parent.parameters() if p.requires_grad and p.dim() == 2}
    return any(
        (rank, columns) in shapes and (rows, rank) in shapes
        for rank in range(1, min(rows, columns))
        if rank * (rows + columns) < rows * columns
    )


def _shapes_outputs(session: Session, model: nn.Module, name: str) -> bool:
    """What the model gives in a step, in eval mode, changes with this parameter."""
    from course.debug.relations.program import program_of

    program = program_of(session)
    call = program.call()
    before = program.replay(call)
    with session.observe(), torch.no_grad():
        _nudge(model, [name])
        after = program.run(call)
    return not all(map(same, before, after))


def _shape_the_loss(session: Session, names: list[str]) -> bool:
    """The loss of a step changes with these parameters: they are not only for evaluation."""
    from course.debug.relations.program import program_of
    from course.debug.relations.steps import close

    program = program_of(session)
    moved = program.step(program.batches[0], prepare=lambda: _nudge(session.model, names)).loss
    return bool(names) and not close(program.first().loss, moved)


def _nudge(model: nn.Module, names: list[str]) -> None:
    own = torch.Generator().manual_seed(0)  # the global one draws for the step
    for parameter in map(model.get_parameter, names):
        noise = torch.randn(parameter.shape, generator=own).to(parameter)
        parameter.add_(noise * (parameter.abs().mean() + 0.1))


def _cut_graph(session: Session, named: list[tuple[str, Tensor]]) -> Iterator[Finding]:
    """Parameters in the optimizer that shape the loss and still get no gradient at all."""
    loop = session.loop
    if len(loop.tape.of("backward")) < 4:
        raise NotChecked("fewer than 4 backwards were seen")
    held = {id(p) for o in session.optimizers for g in o.param_groups for p in g["params"]}
    trained = gets_gradient(session)
    never: set[int] = set()
    for event in loop.tape.of("backward"):
        for p, g in zip(loop.tape.watched, event.info.get("after", ()), strict=False):
            if g is not None:
                never.add(id(p))
    silent = [
        (n, p) for n, p in named
        if id(p) in held and p.requires_grad and id(p) not in never and id(p) not in trained
        and not is_declared_frozen(session, n)
    ]  # fmt: skip
    if not silent:
        return
    moved = [name for name, _ in silent[:4] if _shapes_outputs(session, session.model, name)]
    if moved:
        yield Finding(
            "frozen-params", "warning",
            f"{len(silent)} parameters shape the outputs and are in the optimizer, but no gradient "
            f"reaches them ({moved[0]}): the graph is cut by detach(), no_grad(), .data or numpy.",
            {"without_gradient": len(silent), "first": moved[0]},
            "x = self.encoder(x)  # no .detach(), .data or torch.no_grad() on the way to the loss",
        )  # fmt: skip


def freezes_nothing(session: Session) -> Iterator[Finding]:
    """requires_grad is a flag of parameters; set on a module, it does nothing."""
    for path, module in session.model.named_modules():
        trains = sum(p.requires_grad for p in module.parameters())
        if vars(module).get("requires_grad") is False and trains:
            yield Finding(
                "frozen-params-drift", "error",
                f"{path or 'model'}.requires_grad = False froze nothing: {trains} parameters below "
                "it still require a gradient.",
                {"module": path or "model", "parameters_that_train": trains},
                f"{'model.' + path if path else 'model'}.requires_grad_(False)  # note the _",
            )  # fmt: skip
            return


def _moved_by_a_step(session: Session) -> set[str]:
    """Names of parameters that were other after an optimizer step than before it."""
    tape = session.loop.tape
    names = {id(p): n for n, p in session.model.named_parameters()}
    found, before = set(), None
    for event in tape.events:
        if event.kind == "step":
            before = event.weights
        elif event.kind == "stepped" and before is not None:
            for p, a, b in zip(tape.watched, before, event.weights, strict=True):
                if id(p) in names and not torch.equal(a, b):
                    found.add(names[id(p)])
    return found


def frozen_drift(session: Session) -> Iterator[Finding]:
    """What is frozen does not change, as long as it is frozen."""
    loop = session.loop
    stepped = _moved_by_a_step(session)
    moved = [n for n in loop.moved_while_frozen if n in stepped and n not in loop.thawed]
    if moved:
        named, by_hand = dict(session.model.named_parameters()), written_by_hand(loop.tape)
        moved = [
            n for n in moved if id(named[n]) not in by_hand or is_declared_frozen(session, n)
        ]  # fmt: skip
    if moved:
        yield Finding(
            "frozen-params-drift", "error",
            f"{moved[0]} is frozen but still changed: weight decay, momentum or an old gradient "
            "moves it.",
            {"moved": len(moved)},
            "trained = [p for p in model.parameters() if p.requires_grad]\n"
            "optimizer = torch.optim.SGD(trained, lr=lr)  # and .grad = None for the others",
        )  # fmt: skip
        return
    drifting = []
    for path, module in session.model.named_modules():
        parameters = list(module.named_parameters(recurse=False))
        still = parameters and all(
            not p.requires_grad or is_declared_frozen(session, f"{path}.{n}") for n, p in parameters
        )
        # what moves without an optimizer is written by the author: a target network, an average
        other = {*loop.moved_while_frozen, *loop.thawed}
        still = still and not any(f"{path}.{n}" in other for n, _ in parameters)
        if still:
            drifting += [
                f"{path}.{n}" for n, _ in module.named_buffers(recurse=False)
                if f"{path}.{n}" in loop.buffers_moved and "running" in n
            ]  # fmt: skip
    if drifting:
        meant = all(_has_a_group_to_thaw(session, n.rpartition(".")[0]) for n in drifting)
        yield Finding(
            "frozen-params-drift", "note" if meant else "warning",
            f"A frozen batch norm still updates its running statistics ({drifting[0]}): while its "
            "weights stand still, the frozen part does not stay the same function in eval mode.",
            {"moved_buffers": len(drifting)},
            "backbone.eval()  # after every model.train()",
        )  # fmt: skip


def _has_a_group_to_thaw(session: Session, path: str) -> bool:
    """An optimizer has a group of frozen parameters alone, these among them, next to one that
    trains: of no use unless they are thawed later."""
    own = {id(p) for p in session.model.get_submodule(path).parameters(recurse=False)}
    groups = [g["params"] for o in session.optimizers for g in o.param_groups]
    still = [not any(p.requires_grad for p in group) for group in groups]
    named = (own & {id(p) for p in group} for group, frozen in zip(groups, still, strict=True)
             if frozen)  # fmt: skip
    return not all(still) and any(named)
