"""Relation on a model's inputs, whatever a batch looks like: its outputs change with them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import STEPS, NotChecked, Session, is_a_pair
from course.debug.relations.program import Program, changed, program_of
from course.debug.relations.steps import Call
from course.state.nested import cloned

LEAST_ROWS = 4
"""Different examples of a batch from which outputs that are all alike are no chance."""
FOR_ALL = 1e-5
"""Difference of outputs, over their size, that summing in another order makes of equal numbers."""


def inputs(session: Session) -> Iterator[Finding]:
    """After some steps, other examples give other outputs.

    Before them a last layer that starts at 0 gives all the same. Where a step calls the model with
    one tensor of a pair, `probes.pairing` sees it.
    """
    program = program_of(session)
    call = program.call()
    alone = len(call.tensors) == len(call.args) == 1 and isinstance(call.args[0], Tensor)
    if alone and is_a_pair(program.batches[0]):
        raise NotChecked("already checked for (inputs, targets)")
    rows = {len(t) if t.dim() else 0 for t in call.tensors}
    most = max((len(t.flatten(1).unique(dim=0)) for t in call.tensors if t.dim() > 1), default=0)
    if len(rows) != 1 or most < LEAST_ROWS:
        raise NotChecked("the model does not get one row for each of a few different examples")
    turned = Call(*changed((call.args, call.kwargs), lambda t: t.roll(1, 0)))
    size = max(rows)
    if not _unmoved(program.replay(call), program.replay(turned), size):
        return
    step = session.setup.train_step or session.plain_step
    with session.observe():
        session.model.train()
        try:
            for batch in islice(cycle(program.batches), STEPS):
                step(cloned(batch))
        except Exception as error:
            raise NotChecked(f"the step raises {type(error).__name__} here") from error
        with torch.no_grad():
            outputs = program.run(call)
            still = _unmoved(outputs, program.run(turned), size)
    if not still:
        return
    if layer := _along_the_batch(program, call):
        yield Finding(
            "rows-mixed", "warning",
            f"After {STEPS} steps {most} different examples get the same outputs, and "
            f"{layer} has batch_first=False but gets the batch in its first dimension: it treats "
            "the examples as a sequence.",
            {"different_examples": most, "layer": layer},
            "nn.TransformerEncoderLayer(..., batch_first=True)  # also nn.GRU, nn.LSTM",
        )  # fmt: skip
        return
    yield Finding(
        "inputs-ignored", "warning",
        f"After {STEPS} steps {most} different examples get the same outputs in eval mode: the "
        "inputs have no effect on the outputs.",
        {"different_examples": most},
        "for module in model.modules(): print(type(module), module)  # look for dead layers",
    )  # fmt: skip


def _unmoved(outputs: list[Tensor], others: list[Tensor], size: int) -> bool:
    """All outputs have one row for all examples, and the same for them in another order."""
    return all(
        a.dim() > 0 and len(a) == size and a.shape == b.shape
        and float(torch.maximum((a - a[:1]).abs().max(), (a - b).abs().max()))
        <= FOR_ALL * float(a.abs().max())
        for a, b in zip(outputs, others, strict=True)
    )  # fmt: skip


def _along_the_batch(program: Program, call: Call) -> str:
    """Name of a layer that takes time first and is given examples first; empty: there is none."""
    size = len(call.tensors[0])
    less = Call(*changed((call.args, call.kwargs), lambda t: t[:-1]))
    whole, fewer = (_given_time_first(program, one) for one in (call, less))
    return next(
        (name for name, (first, second) in whole.items()
         if first == size and fewer.get(name) == (first - 1, second)), ""
    )  # fmt: skip


def _given_time_first(program: Program, call: Call) -> dict[str, tuple[int, ...]]:
    """The first two sizes of what layers with batch_first=False get, by their names."""
    found: dict[str, tuple[int, ...]] = {}
    with program.session.observe(), torch.no_grad():
        for name, layer in program.model.named_modules():
            if getattr(layer, "batch_first", None) is False:  # hooks go where it is put back
                layer.register_forward_pre_hook(
                    lambda _, args, kwargs, name=name: _keep(found, name, args, kwargs),
                    with_kwargs=True,
                )  # fmt: skip
        program.run(call)
    return found


def _keep(found: dict[str, tuple[int, ...]], name: str, args: tuple, kwargs: dict) -> None:
    given = next((t for t in (*args, *kwargs.values()) if isinstance(t, Tensor)), None)
    if given is not None and given.dim() == 3:
        found[name] = tuple(given.shape[:2])
