"""Probes on how the loss pairs outputs with targets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course.debug.probes.draws import draws_for_itself
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import CHANGED, ENOUGH_STEPS, ROUNDED, TINY, ZERO

MIXED = 1e-5
"""Change of one row's gradient over the largest of all rows, above which other rows' targets take
part in it: rounding of float32 is a hundred times less."""
COSTS = 1e-3
"""Loss of outputs that are 1 off their targets, above which it grows with the distance."""
NOISE = 1e-4
"""Relative difference of two calls with the same inputs, above which the model draws at random:
`CHANGED` stays a hundred times above."""
SPREAD = 1e-6
"""Spread of the outputs over the examples, over their size, that rounding alone makes."""
LEAST_SIZE = 1e-6
"""Size of outputs below which they are taken as so large: of outputs near 0 a relative spread says
nothing."""


def met_by_the_loss(session: Session) -> list[dict[str, Any]]:
    """(outputs, targets) that a loss got: in the user's loop, else in our own call of loss_fn."""
    met = []
    setup = session.setup
    if any(own is not None for own in (setup.train_step, setup.train, setup.loss_of)):
        met = [
            event.info for event in session.loop.tape.of("loss")[:40]
            if event.inputs.shape[:1] and event.graph
        ]  # fmt: skip
    if not met:
        outputs, targets = session.outputs, session.batch[1]
        met = [{"inputs": outputs, "targets": session.place(targets), "name": ""}]
    return met


def broadcast(session: Session) -> Iterator[Finding]:
    """Outputs [B, 1] are not compared with targets [B]."""
    for one in met_by_the_loss(session)[:1]:
        a, b = one["inputs"], one["targets"]
        if a.numel() == b.numel() or b.is_complex() or (a.dim() == b.dim() and a.shape == b.shape):
            pass
        shapes = tuple(a.shape), tuple(b.shape)
        if a.dim() + b.dim() == 3 and a.numel() == b.numel() and len(a) == len(b) > 1:
            mixed = one["name"] in ELEMENTWISE or (not one["name"] and _mixes_rows(session, a, b))
            if mixed:
                yield Finding(
                    "mse-for-classes" if _is_class(session) else "broadcast-loss", "error",
                    f"Outputs {list(shapes[0])} are compared with targets {list(shapes[1])}: they "
                    f"are broadcast to a {len(a)} x {len(a)} table, and every output is pulled "
                    "towards the mean.",
                    {"outputs": list(shapes[0]), "targets": list(shapes[1])},
                    "loss = loss_fn(outputs.squeeze(1), targets)",
                )  # fmt: skip


ELEMENTWISE = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}


def _is_class(session: Session) -> bool:
    said = (session.setup.task or "").lower()
    return "class" in said or bool(session.setup.num_classes and "regress" not in said)


def _mixes_rows(session: Session, outputs: Tensor, targets: Tensor) -> bool:
    """The gradient of one row's output changes when only another row's target does."""
    base = torch.linspace(-1, 1, len(outputs), device=outputs.device).reshape(outputs.shape)
    grads = []
    with session.observe():
        for other in (targets, torch.cat([targets[:1], targets[1:].flip(0) + 1])):
            leaf = base.clone().requires_grad_()
            loss = session.loss(leaf, other.to(targets.dtype))
            grads.append(torch.autograd.grad(loss, leaf)[0].flatten())
    change = (grads[0] - grads[1]).abs()
    return bool(change[0] > MIXED * change.max().clamp_min(TINY) and change[0] > ZERO)


def classes_as_numbers(session: Session) -> Iterator[Finding]:
    """Class indices are not regressed as if 9 were three times 3."""
    if not _is_class(session):
        raise NotChecked("the task is not declared as classification")
    one = met_by_the_loss(session)[0]
    a, b = one["inputs"], one["targets"]
    classes = session.setup.num_classes or 0
    if one["name"] not in ELEMENTWISE and not (not one["name"] and _zero_at_target(session, a, b)):
        raise NotChecked("the loss is not a distance between numbers")
    whole = bool((b.float() == b.float().round()).all())
    if classes > 2 and whole and a.numel() == len(a) and float(b.max()) >= 2:
        yield Finding(
            "mse-for-classes", "error",
            f"A distance pulls a single output towards the class index: class {classes - 1} then "
            f"counts as {classes - 1} times as far from class 0 as class 1 is.",
            {"outputs": list(a.shape), "targets": list(b.shape), "classes": classes},
            "model.head = nn.Linear(features, num_classes)\n"
            "loss = F.cross_entropy(logits, targets)",
        )  # fmt: skip
    elif a.dim() == 2 and a.shape[1] > 1 and a.shape == b.shape and one_hot_like(b):
        softmaxed = bool((a >= 0).all()) and float((a.sum(1) - 1).abs().max()) < ROUNDED
        yield Finding(
            "mse-for-classes", "note" if softmaxed else "warning",
            "Classes are learned by squared distance to one-hot rows, so confident mistakes get "
            "only a small gradient.",
            {"outputs": list(a.shape), "rows_are_probabilities": softmaxed},
            "loss = F.cross_entropy(logits, targets)",
        )  # fmt: skip


def one_hot_like(targets: Tensor) -> bool:
    return bool(((targets == 0) | (targets == 1)).all()) and bool((targets.sum(1) == 1).all())


def _zero_at_target(session: Session, outputs: Tensor, targets: Tensor) -> bool:
    if outputs.numel() != targets.numel() or not outputs.is_floating_point():
        return False
    with session.observe(), torch.no_grad():
        exact = targets.reshape(outputs.shape).to(outputs.dtype)
        try:
            near, far = (float(session.loss(exact + d, targets)) for d in (0.0, 1.0))
        except NotChecked:
            return False
    return abs(near) < ZERO and far > COSTS


def rows_mixed(session: Session) -> Iterator[Finding]:
    """In eval mode, an example's output does not depend on the other examples of its batch."""
    inputs, _ = session.batch
    size = len(inputs)
    if size < 4:
        raise NotChecked("the batch has fewer than 4 examples")
    outputs = session.predict(inputs, seed=0)
    half = size // 2
    parts = session.predict(inputs[:half]), session.predict(inputs[half:])
    if outputs.shape[0] != size or any(p.shape[1:] != outputs.shape[1:] for p in parts):
        raise NotChecked("outputs are not one row per example")
    if any(_uses_batch_statistics(m) for m in session.model.modules()):
        raise NotChecked("a normalisation layer uses batch statistics even in eval mode")
    again = session.predict(inputs, seed=1)
    scale = float(outputs.float().abs().mean()) + 1e-12
    noise = float((outputs - again).float().abs().max()) / scale
    if noise > NOISE or draws_for_itself(session, lambda: session.call_model(inputs)):
        raise NotChecked("outputs differ from call to call")
    if sum(map(len, parts)) != size:
        raise NotChecked("outputs are not one row per example")
    change = float((outputs - torch.cat(parts)).float().abs().max()) / scale
    if change > CHANGED:
        yield Finding(
            "rows-mixed", "warning",
            "An example's output changes with the other examples of its batch, even in eval mode: "
            "a layer works along the batch dimension (softmax(dim=0), batch_first, a wrong view).",
            {"relative_change": change, "batch": size},
            "nn.LSTM(..., batch_first=True)  # softmax(dim=-1); x.flatten(1), not x.view(-1, d)",
        )  # fmt: skip


def _uses_batch_statistics(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None


def reads_inputs(session: Session) -> Iterator[Finding]:
    """After a few steps, different inputs give different outputs."""
    inputs, _ = session.batch
    loop = session.loop
    if loop.error is not None:
        raise NotChecked("the loop raised")
    events = [e for e in loop.tape.of("output") if e.output is not None]
    if len(events) < ENOUGH_STEPS or len(inputs) < 4 or len(inputs.unique(dim=0)) < 4:
        raise NotChecked("too few steps or different inputs")
    last = events[-1].output.float()
    if last.dim() < 1 or len(last) < 4:
        raise NotChecked("outputs are not one row per example")
    spread = float((last - last.mean(0)).abs().max())
    size = float(last.abs().max())
    if spread <= SPREAD * max(size, LEAST_SIZE):
        if layer := _along_the_batch(session):
            yield Finding(
                "rows-mixed", "warning",
                f"{layer} has batch_first=False but gets the batch in its first dimension: it "
                "treats the examples as a sequence, and every example gets the same output.",
                {"spread_of_outputs": spread, "layer": layer},
                "nn.TransformerEncoderLayer(..., batch_first=True)  # also nn.GRU, nn.LSTM",
            )  # fmt: skip
            return
        yield Finding(
            "inputs-ignored", "warning",
            "Every example gets the same output: the inputs have no effect on the outputs.",
            {"spread_of_outputs": spread, "size_of_outputs": size},
            "for module in model.modules(): print(type(module), module)  # look for dead layers",
        )  # fmt: skip


def _along_the_batch(session: Session) -> str:
    """Name of a layer that takes time first and is given examples first; empty: there is none."""
    inputs, _ = session.batch
    whole, less = (_given_time_first(session, part) for part in (inputs, inputs[:-1]))
    return next(
        (name for name, (first, second) in whole.items()
         if first == len(inputs) and less.get(name) == (first - 1, second)), ""
    )  # fmt: skip


def _given_time_first(session: Session, inputs: Tensor) -> dict[str, tuple[int, ...]]:
    """The first two sizes of what layers with batch_first=False get, by their names."""
    layers = {m: n for n, m in session.model.named_modules()
              if getattr(m, "batch_first", None) is False}  # fmt: skip
    seen: dict[str, tuple[int, ...]] = {}

    def listen(layer: nn.Module, args: tuple, kwargs: dict) -> None:
        given = args[0] if args else next(iter(kwargs.values()), None)
        if isinstance(given, Tensor) and given.dim() == 3:
            seen[layers[layer]] = tuple(given.shape[:2])

    with session.observe(), torch.no_grad():
        session.model.eval()
        for layer in layers:  # the hooks are taken off where all is put back
            layer.register_forward_pre_hook(listen, with_kwargs=True)
        session.call_model(inputs)
    return seen
