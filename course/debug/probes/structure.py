"""Probes on what belongs where: model, optimizer, lists, plain tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from course.analysis.reach import held_in
from course.debug.probes.frozen import gets_gradient, is_declared_frozen
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, clone, same


def _held(session: Session) -> dict[int, Tensor]:
    """Parameters in any optimizer: handed in, or seen stepping."""
    optimizers = list(session.optimizers)
    optimizers += [e.optimizer for e in session.loop.tape.of("step")]
    return {id(p): p for o in optimizers for g in o.param_groups for p in g["params"]}


def membership(session: Session) -> Iterator[Finding]:
    """The optimizer holds the parameters that the model uses."""
    held, own = _held(session), {id(p): n for n, p in session.model.named_parameters()}
    trained = gets_gradient(session)
    stale = [p for key, p in held.items() if key not in own and key not in trained]
    used = [
        (n, p) for n, p in session.model.named_parameters()
        if (p.requires_grad or n in session.loop.thawed)
        and id(p) in trained and not is_declared_frozen(session, n)
    ]  # fmt: skip
    handed = set().union(*(e.handed for e in session.loop.tape.of("step")))
    left_out = [(n, p) for n, p in used if id(p) not in {*held, *handed}]
    if not left_out:
        return
    evidence = {
        "parameters_left_out": len(left_out),
        "first": left_out[0][0],
        "optimizer_holds_of_no_model": len(stale),
    }
    fix = (
        "optimizer = torch.optim.Adam(model.parameters(), lr=lr)  # after the last change of model"
    )
    if stale:
        moved = _are_moved(stale, [p for _, p in left_out])
        yield Finding(
            "model-moved-after-optimizer" if moved else "optimizer-stale-params", "error",
            f"{len(left_out)} parameters get gradients but no optimizer holds them, and the "
            f"optimizer holds {len(stale)} tensors that the model no longer uses: it was built "
            "before the model was changed.",
            evidence, fix,
        )  # fmt: skip
        return
    if twins := _built_from_one(session, [p for _, p in left_out]):
        yield Finding(
            "optimizer-stale-params", "error",
            f"Two optimizers hold the very same {twins} tensors, and none holds the "
            f"{len(left_out)} others ({left_out[0][0]}, ...), which get gradients from the loss of "
            "one of the two alone: it moves the wrong network, and these never change.",
            evidence | {"held_twice": twins},
            "opt_d = torch.optim.Adam(discriminator.parameters())\n"
            "opt_g = torch.optim.Adam(generator.parameters())",
        )  # fmt: skip
        return
    meant = _is_a_body(session.model, [n for n, _ in used], [n for n, _ in left_out])
    if any(n in session.loop.thawed for n, _ in left_out):  # on purpose, for training them
        meant, fix = False, 'optimizer.add_param_group({"params": body.parameters(), "lr": lr})'
    yield Finding(
        "optimizer-stale-params", "note" if meant else "warning",
        f"{len(left_out)} parameters get gradients but no optimizer holds them "
        f"({left_out[0][0]}, ...): they never change.",
        evidence, fix,
    )  # fmt: skip


def another_model(session: Session) -> Iterator[Finding]:
    """The model that was passed in is the one that is trained, not a copy of it."""
    loop, held = session.loop, _held(session)
    own = [p for p in session.model.parameters() if p.requires_grad]
    if not own or not loop.tape.of("step"):
        raise NotChecked("the model has no parameters to train, or no step is made")
    if any(id(p) in held for p in own) or any(id(p) in gets_gradient(session) for p in own):
        return
    shapes = [tuple(p.shape) for p in held.values()]
    if all(tuple(p.shape) in shapes for p in own) and len(shapes) >= len(own):
        yield Finding(
            "optimizer-holds-another", "error",
            f"The optimizer holds {len(shapes)} tensors with the shapes of the model's parameters, "
            "but none of the parameters themselves, which get no gradient in any step: a copy of "
            "the model is trained.",
            {"held": len(shapes), "of_the_model": len(own), "steps": len(loop.tape.of("step"))},
            "optimizer = torch.optim.Adam(model.parameters())  # of the model that is evaluated",
        )  # fmt: skip


def _are_moved(stale: list[Tensor], left_out: list[Tensor]) -> bool:
    """Is one the same shape as a tensor that the optimizer holds, on another device or dtype?"""
    shapes, held = {tuple(p.shape) for p in stale}, (stale[0].dtype, stale[0].device)
    return any(tuple(p.shape) in shapes and (p.dtype, p.device) != held for p in left_out)


def _built_from_one(session: Session, left_out: list[Tensor]) -> int:
    """How many tensors two optimizers both hold, where all of these, which none holds, get a
    gradient before each step of one of the two and none before each step of the other.

    A body that is left as it is gets one from both losses, or from neither.
    """
    tape, ids = session.loop.tape, {id(p) for p in left_out}
    places = [n for n, p in enumerate(tape.watched) if id(p) in ids]
    reached: dict[int, set[bool]] = {}
    optimizers, now = {}, []
    for event in tape.events:
        if event.kind == "backward":
            now += [_differ(event.before[n], event.info.get("after", event.before)[n])
                    for n in places]  # fmt: skip
        elif event.kind == "step":
            optimizers[id(event.optimizer)] = event.optimizer
            reached.setdefault(id(event.optimizer), set()).update(now)
            now = []
    if len(optimizers) != 2 or sorted(map(sorted, reached.values())) != [[False], [True]]:
        return 0
    one, other = ({id(p) for g in o.param_groups for p in g["params"]}
                  for o in optimizers.values())  # fmt: skip
    return len(one) if one == other else 0


def _differ(before: Tensor | None, after: Tensor | None) -> bool:
    """Backward added something to a gradient."""
    if before is None or after is None:
        return after is not None and bool(after.any())
    return not same(before, after)


def _is_a_body(model: nn.Module, order: list[str], names: list[str]) -> bool:
    """Are these the first parameters alone, as when a pretrained body is left as it is?

    A body has a layer. Parameters that stand bare next to layers, such as a class token, have none.
    """
    owners = {name.rpartition(".")[0] for name in names} - {""}
    has_layer = any(
        all(f"{owner}.{name}" in names for name, _ in model.get_submodule(owner).named_parameters())
        for owner in owners
    )
    return has_layer and order[: len(names)] == names and not set(order[-2:]) & set(names)


def hidden_modules(session: Session) -> Iterator[Finding]:
    """Layers are not hidden in a plain list or dict."""
    registered = {id(m) for m in session.model.modules()}
    own = {id(p) for p in session.model.parameters()}
    hidden: list[tuple[str, Tensor]] = []
    places: set[str] = set()
    for path, module in session.model.named_modules():
        for name, value in vars(module).items():
            if name.startswith("_") and name in TORCHS_OWN:
                continue
            for _, part in held_in(value, deep=2):
                if isinstance(part, Tensor) or id(part) in registered:
                    continue
                found = [p for p in part.parameters() if id(p) not in own and p.requires_grad]
                hidden += [(name, p) for p in found]
                if found:
                    places.add(f"{path}.{name}".strip("."))
            if isinstance(value, (list, tuple, dict)):
                for item in value.values() if isinstance(value, dict) else value:
                    if isinstance(item, nn.Parameter) and id(item) not in own:
                        hidden.append((name, item))
                        places.add(f"{path}.{name}".strip("."))
    if not hidden:
        return
    held = _held(session)
    if all(id(p) in held for _, p in hidden):
        severity, note = "note", "the optimizer holds them, but state_dict() and to() miss them"
    elif _receives(session, [p for _, p in hidden]):
        severity, note = "error", "no optimizer trains them and state_dict() misses them"
    else:
        return
    yield Finding(
        "plain-list-layers", severity,
        f"{len(hidden)} parameters are in a plain list or dict ({', '.join(sorted(places))}): "
        f"{note}.",
        {"hidden_parameters": len(hidden), "registered": len(own)},
        f"self.{hidden[0][0]} = nn.ModuleList(self.{hidden[0][0]})",
    )  # fmt: skip


TORCHS_OWN = {
    "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_backward_hooks",
    "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks", "_state_dict_hooks",
}  # fmt: skip


def _receives(session: Session, leaves: list[Tensor]) -> bool:
    """A step brings them a gradient, whatever its batches look like."""
    step = session.setup.train_step or session.plain_step
    if not session.epoch.batches:
        raise NotChecked("the train_loader gave no batch")
    arrived: list[bool] = []
    with session.observe(), contextlib.ExitStack() as stack:
        for leaf in leaves:
            handle = leaf.register_hook(lambda g: arrived.append(bool((g != 0).any())))
            stack.callback(handle.remove)
        with contextlib.suppress(Exception):  # what raises is said elsewhere
            step(clone(session.epoch.batches[0]))
    return any(arrived)


def plain_tensors(session: Session) -> Iterator[Finding]:
    """The tensors of the model are parameters or buffers."""
    held = _held(session)
    registered = {id(t) for t in session.model.parameters()}
    registered |= {id(t) for t in session.model.buffers()}
    for path, module in session.model.named_modules():
        for name, value in list(vars(module).items()):
            if not isinstance(value, Tensor) or id(value) in registered:
                continue
            full = f"{path}.{name}".strip(".")
            if value.requires_grad and value.is_leaf:
                if id(value) not in held and _receives(session, [value]):
                    yield Finding(
                        "tensor-not-parameter", "error",
                        f"{full} gets gradients but is a plain tensor: no optimizer sees it, "
                        "state_dict() and to() miss it.",
                        {"shape": list(value.shape)},
                        f"self.{name} = nn.Parameter({name})",
                    )  # fmt: skip
            elif value.is_floating_point() and not value.requires_grad:
                yield from _unregistered_buffer(session, module, name, full, value)


def _unregistered_buffer(
    session: Session, module: nn.Module, name: str, full: str, value: Tensor
) -> Iterator[Finding]:
    inputs, _ = session.batch
    with session.observe(), torch.no_grad():
        session.model.eval()
        try:
            before = session._first_tensor(session.call_model(inputs)).float()
            kept = vars(module)[name]
            kept.copy_(torch.randn_like(kept) + kept)
            after = session._first_tensor(session.call_model(inputs)).float()
        except (NotChecked, RuntimeError):
            return
    if before.shape != after.shape or same(before, after):
        return
    with session.observe():
        session.model.train()
        old = vars(module)[name].clone()
        session.call_model(inputs)
        stateful = not same(vars(module)[name], old)
    if value.numel() < 2 and not stateful:
        return
    yield Finding(
        "buffer-not-registered", "warning",
        f"{full} changes the outputs but is a plain tensor: state_dict() does not save it and "
        "to(device) does not move it.",
        {"shape": list(value.shape), "changes_in_forward": stateful},
        f'self.register_buffer("{name}", {name})',
    )  # fmt: skip
