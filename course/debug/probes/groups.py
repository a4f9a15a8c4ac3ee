"""Probes on parameter groups: weight decay only where intended, and no group left at rate 0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from course.debug.probes.frozen import gets_gradient, is_declared_frozen
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, as_list
from course.debug.probes.thresholds import OFTEN

FLAT = ("bias", "norm")
"""What `no_weight_decay=True` stands for: biases, and the scales of normalisation layers."""


def weight_decay(session: Session) -> Iterator[Finding]:
    """What was declared as excluded from weight decay is excluded."""
    said = session.declared.get("no_weight_decay")
    if not said:
        raise NotChecked('no declared["no_weight_decay"]')
    words = FLAT if said is True else tuple(map(str, as_list(said)))
    kinds = {
        f"{path}.{name}".strip("."): type(module).__name__.lower()
        for path, module in session.model.named_modules()
        for name, _ in module.named_parameters(recurse=False)
    }
    decayed = {
        id(p): float(group["weight_decay"])
        for optimizer in session.optimizers for group in optimizer.param_groups
        for p in group["params"] if group.get("weight_decay")
    }  # fmt: skip
    hit = [
        name for name, p in session.model.named_parameters()
        if id(p) in decayed and p.requires_grad
        and any(word in name or (word == "norm" and "norm" in kinds[name]) for word in words)
    ]  # fmt: skip
    if hit:
        yield Finding(
            "weight-decay-misplaced", "error",
            f"{len(hit)} parameters that should not decay are in a group with weight decay "
            f"({hit[0]}).",
            {"decayed": len(hit), "first": hit[0],
             "weight_decay": decayed[id(session.model.get_parameter(hit[0]))]},
            "flat = [p for p in model.parameters() if p.dim() < 2]\n"
            'optimizer = AdamW([{"params": rest}, {"params": flat, "weight_decay": 0.0}], lr)',
        )  # fmt: skip


def zero_rate(session: Session) -> Iterator[Finding]:
    """No group that gets gradients stays at learning rate 0 while others learn."""
    if session.setup.scheduler is not None:
        raise NotChecked("a schedule may wake the group")
    names = {id(p): n for n, p in session.model.named_parameters()}
    moving = gets_gradient(session)
    for optimizer in session.optimizers:
        rates = [float(group["lr"]) for group in optimizer.param_groups if "lr" in group]
        if not any(rates) or all(rates) or not _stay(session, optimizer, rates):
            continue
        still = [
            names[id(p)] for group in optimizer.param_groups if group["lr"] == 0
            for p in group["params"] if id(p) in moving and id(p) in names
        ]  # fmt: skip
        still = [name for name in still if not is_declared_frozen(session, name)]
        if still:
            yield Finding(
                "lr-too-small", "warning",
                f"{len(still)} parameters ({still[0]}, ...) are in a group with learning rate 0: "
                "they get gradients and never move.",
                {"parameters": len(still), "first": still[0], "rates": rates},
                'for group in optimizer.param_groups:\n    print(group["lr"])',
            )  # fmt: skip


def _stay(session: Session, optimizer: Any, rates: list[float]) -> bool:
    """The rates of the group were 0 at every step of the loop too."""
    steps = [e for e in session.loop.tape.of("step") if e.optimizer is optimizer]
    zeros = [i for i, rate in enumerate(rates) if rate == 0]
    return all(e.lrs[i] == 0 for e in steps for i in zeros if len(e.lrs) == len(rates))


def batch_of_one(session: Session) -> Iterator[Finding]:
    """Batch norm in train mode has more than one example to compute its statistics from."""
    norms = [
        name for name, module in session.model.named_modules()
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats
    ]  # fmt: skip
    if not norms:
        raise NotChecked("the model has no batch norm")
    events = [e for e in session.loop.tape.of("forward") if e.grad and e.inputs is not None]
    alone = [e for e in events if e.inputs.dim() > 1 and len(e.inputs) == 1
             and any(e.submodes.get(n) for n in norms)]  # fmt: skip
    sizes = [len(b[0]) for b in session.epoch.batches if isinstance(b, (list, tuple)) and len(b)]
    if alone and len(alone) >= OFTEN * len(events):
        yield Finding(
            "batch-of-one", "warning",
            f"Batch norm is trained on batches of a single example ({len(alone)} of {len(events)} "
            "forwards): each example is normalised by its own statistics, but in eval mode by "
            "others.",
            {"forwards_with_one": len(alone), "forwards": len(events), "first": norms[0]},
            "nn.GroupNorm(groups, channels)  # or a larger batch_size",
        )  # fmt: skip
    elif session.epoch.whole and sizes and sizes[-1] == 1 and max(sizes) > 1 and events:
        flat = events[0].inputs.dim() == 2
        yield Finding(
            "batch-of-one", "warning" if flat else "note",
            "The last batch of an epoch holds a single example, and batch norm computes its "
            "statistics from it" + (": it raises." if flat else "."),
            {"batches": len(sizes), "largest": max(sizes), "last": 1},
            "DataLoader(dataset, batch_size, shuffle=True, drop_last=True)",
        )  # fmt: skip
