"""Relations on running means of weights and batch norm: they are slow and cover all that moves."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from course.debug.probes.modes import evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.session import STEPS, NotChecked, Session, clone, same
from course.debug.relations.program import program_of
from course.state.snapshot import reached

SLOW = 0.5
"""An average that goes more than half of the way to the weights in one step is none. Warm-ups such
as min(decay, (1 + step) / (10 + step)) are below it from the eighth step on."""
COPIES = 0.999
"""Share of the way from which the second model is a copy, e.g. a target network, not a mean."""


def average(session: Session) -> Iterator[Finding]:
    """A running mean of the weights moves only a small part of the way to them in each step."""
    step = session.setup.train_step
    if step is None:
        raise NotChecked("needs train_step")
    means = _averages(session)
    if not means:
        raise NotChecked("no second copy of the model is seen")
    batches = program_of(session).batches
    with session.observe():
        for number in range(STEPS):
            before = [_flat(mean) for mean in means]
            step(clone(batches[number % len(batches)]))
        now, model = [_flat(mean) for mean in means], _flat(session.model)
    for old, new in zip(before, now, strict=True):
        way = (model - old).norm()
        went = float((new - old).norm() / way.clamp_min(1e-12))
        straight = torch.allclose(new, old + went * (model - old), atol=1e-5, rtol=1e-4)
        if way > 0 and straight and SLOW < went < COPIES:
            yield Finding(
                "ema-decay", "warning",
                f"The average of the weights moves {went:.0%} of the way to them in each step: "
                "decay and 1 - decay are swapped.",
                {"share_of_the_way": went},
                "average.lerp_(weight, 1 - decay)  # decay = 0.999",
            )  # fmt: skip
            return


def from_zero(session: Session) -> Iterator[Finding]:
    """A running mean of the weights that is scored does not start from zero.

    One that starts at zero reaches only a share 1 - decay ** steps of the weights. Divided by that
    share it is right, and then the numbers scored are not those of the mean itself.
    """
    step = session.setup.train_step
    if step is None:
        raise NotChecked("needs train_step")
    evaluation_of(session)
    means = [mean for mean in _averages(session) if not _flat(mean).any()]
    if not means or not _flat(session.model).any():
        raise NotChecked("no second copy of the model whose weights are all 0")
    batches = program_of(session).batches
    scored: list[Tensor] = []
    with session.observe():
        for number in range(STEPS):
            step(clone(batches[number % len(batches)]))
        handles = [m.register_forward_pre_hook(lambda one, _: scored.append(_flat(one)))
                   for m in (session.model, *means)]  # fmt: skip
        try:
            session.setup.evaluate()
        finally:
            for handle in handles:
                handle.remove()
        now, model = [_flat(mean) for mean in means], _flat(session.model)
    for mean in now:
        share = float(mean.norm() / model.norm())
        if 0 < share < SLOW and any(map(mean.equal, scored)):
            yield Finding(
                "ema-decay", "error",
                f"The average of the weights that evaluate() scores starts at 0: after {STEPS} "
                f"steps it has only {share:.0%} of their size, and most of what is scored is still "
                "the initial 0.",
                {"share_of_the_size": share, "steps": STEPS},
                "average = copy.deepcopy(model)  # or divide by 1 - decay ** steps",
            )  # fmt: skip
            return


def whole(session: Session) -> Iterator[Finding]:
    """If a second copy follows the weights and is scored, its statistics follow too.

    If only the weights are averaged, they are scored with the batch norm statistics of an untrained
    model.
    """
    step = session.setup.train_step
    if step is None:
        raise NotChecked("needs train_step")
    evaluation_of(session)
    outside = [(mean, session.model) for mean in _averages(session)]
    pairs = [pair for pair in [*outside, *_copies_inside(session)] if all(map(_statistics, pair))]
    if not pairs:
        raise NotChecked("no second copy of the model with batch norm is seen")
    means, models = zip(*pairs, strict=True)
    batches = program_of(session).batches
    scored: set[int] = set()
    with session.observe():
        start = [(_flat(mean), clone(_statistics(mean))) for mean in means]
        own = [clone(_statistics(model)) for model in models]
        for number in range(STEPS):
            step(clone(batches[number % len(batches)]))
        if session.setup.train is not None and session.epoch.whole and all(
                same(_flat(m), old) for m, (old, _) in zip(means, start, strict=True)):  # fmt: skip
            session.setup.train(len(batches) + 1)  # averaged at the end of an epoch
        handles = [mean.register_forward_pre_hook(_listener(scored)) for mean in means]
        try:
            session.setup.evaluate()
        finally:
            for handle in handles:
                handle.remove()
        moved = [_moved(old, model) for old, model in zip(own, models, strict=True)]
        follows = [(not same(_flat(m), old), _moved(s, m)) for m, (old, s) in zip(
            means, start, strict=True)]  # fmt: skip
    for mean, trained, (weights, statistics) in zip(means, moved, follows, strict=True):
        if id(mean) in scored and weights and trained and not statistics:
            yield Finding(
                "average-without-statistics", "error",
                f"evaluate() scores a copy whose weights follow the model, but in {STEPS} steps "
                "none of its batch norm statistics moved, while the model's did: they are still "
                "those from before training.",
                {"statistics": len(_statistics(mean)), "steps": STEPS},
                "for kept, new in zip(average.buffers(), model.buffers()):\n    kept.copy_(new)",
            )  # fmt: skip
            return


def _listener(scored: set[int]) -> object:
    def listen(module: nn.Module, _: object) -> None:
        if not module.training:
            scored.add(id(module))

    return listen


def _statistics(module: nn.Module) -> dict[str, Tensor]:
    """What batch norm remembers of its inputs, without a graph."""
    norms = {n for n, m in module.named_modules() if isinstance(m, nn.modules.batchnorm._NormBase)}
    return {n: b.detach() for n, b in module.named_buffers()
            if n.rpartition(".")[0] in norms and b.is_floating_point()}  # fmt: skip


def _moved(old: dict[str, Tensor], module: nn.Module) -> bool:
    now = _statistics(module)
    return any(name in now and not same(now[name], tensor) for name, tensor in old.items())


def statistics(session: Session) -> Iterator[Finding]:
    """Batch norm's running statistics cover more than the last batch."""
    norms = {
        name: module for name, module in session.model.named_modules()
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats
    }  # fmt: skip
    if not norms:
        raise NotChecked("the model has no batch norm")
    if len(session.epoch.batches) < 2:
        raise NotChecked(
            "the train_loader yields one batch: its statistics are those of all the data"
        )
    loop = session.loop
    if not loop.buffers_moved:
        raise NotChecked("no running statistics move")
    fast = [n for n, m in norms.items() if m.momentum is not None and m.momentum > SLOW
            and any(moved.startswith(n) for moved in loop.buffers_moved)]  # fmt: skip
    if fast:
        share = norms[fast[0]].momentum
        yield Finding(
            "ema-decay", "warning",
            f"The running statistics of {fast[0]} move {share:.0%} of the way to those of the last "
            "batch in each step, so eval mode uses the statistics of a single batch. In torch, "
            "momentum is the share that is new; in other libraries it is the share that is kept.",
            {"momentum": share, "layers": len(fast)},
            "nn.BatchNorm1d(width, momentum=0.01)  # 0.99 if momentum is the share kept",
        )  # fmt: skip


def _averages(session: Session) -> list[nn.Module]:
    """Modules within reach with the model's own names and shapes that no optimizer holds."""
    shapes = {n: p.shape for n, p in session.model.named_parameters()}
    held = {id(p) for o in session.optimizers for g in o.param_groups for p in g["params"]}
    inside = {id(m) for m in session.model.modules()}
    return [
        thing for thing in reached(vars(session.setup))
        if isinstance(thing, nn.Module) and id(thing) not in inside
        and {n: p.shape for n, p in thing.named_parameters()} == shapes
        and not any(id(p) in held for p in thing.parameters())
    ]  # fmt: skip


def _copies_inside(session: Session) -> list[tuple[nn.Module, nn.Module]]:
    """Parts of the model that no optimizer holds, each with a trained one of the same make."""
    held = {id(p) for o in session.optimizers for g in o.param_groups for p in g["params"]}
    trained: dict[str, list[nn.Module]] = {"all": [], "none": []}
    for part in session.model.modules():
        holds = {id(p) in held for p in part.parameters()}
        if len(holds) == 1:
            trained["all" if holds.pop() else "none"].append(part)
    return [
        (copy, part) for copy in trained["none"] for part in trained["all"]
        if {n: p.shape for n, p in copy.named_parameters()}
        == {n: p.shape for n, p in part.named_parameters()}
    ]  # fmt: skip


def _flat(module: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten().double() for p in module.parameters()])
