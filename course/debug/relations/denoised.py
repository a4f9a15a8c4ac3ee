"""Relation on noise that a step adds to its inputs: what is scored as clean is trained as clean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import CHANGED, TINY
from course.debug.relations.joining import is_among
from course.debug.relations.noise import COMPARED
from course.debug.relations.program import program_of
from course.debug.relations.written import NOISED
from course.state.nested import tensors_in

PLACES = 4
"""Numbers of a row that are changed one by one: a model whose outputs see all inputs but their own
may learn from noisy targets."""


def own_input(session: Session) -> Iterator[Finding]:
    """A model that is scored on giving back clean data is not trained to give back its input.

    Training adds noise to a part of its batch, and compares outputs with the very sum that the
    model gets; `evaluate()` compares outputs for noisy inputs with the clean part of its batch.
    """
    program = program_of(session)
    batch, leaves = program.batches[0], list(tensors_in(program.batches[0]))
    known = program.first().calls
    if len(known) != 1 or all(is_among(t, leaves) for t in known[0].tensors):
        raise NotChecked("the model does not get an input that the step makes, in one call")
    heard = _Compared(program.model)
    step = program.step(batch, within=heard, prepare=heard.listen)
    if len(step.calls) != 1 or len(heard.pairs) != 1:
        raise NotChecked("a step does not compare the outputs of one call with one target")
    given, target = heard.pairs[0]
    clean = next((t for t in leaves if t.is_floating_point()
                  and t.shape == target.shape), None)  # fmt: skip
    if clean is None or not torch.equal(given, target) or torch.equal(clean.to(target), target):
        raise NotChecked("outputs are not compared with the input, changed by the step")
    noise = target - clean.to(target)
    size = float(noise.std() / clean.std().clamp_min(TINY))
    other = program.step(batch, seed=1).calls[0].tensors
    if size < NOISED or is_among(target, other):
        raise NotChecked("the change is small, or is not drawn at random")
    if not _scored_as_clean(session) or not _sees_itself(session):
        raise NotChecked("evaluate() does not compare outputs for noisy inputs with clean data")
    yield Finding(
        "wrong-targets", "error",
        f"The step adds noise, {size:.2g} times as large as the data, and compares the outputs "
        "with the noisy input itself, which the model need only copy; evaluate() compares outputs "
        "for noisy inputs with the clean data.",
        {"noise_over_data": size, "shape": list(target.shape)},
        "loss = criterion(model(x + noise), x)  # the clean x is the target",
    )  # fmt: skip


def _scored_as_clean(session: Session) -> bool:
    """Each comparison in `evaluate()` is of outputs for an input that is in no batch with a part of
    a batch, or of all batches joined."""
    if session.setup.evaluate is None:
        return False
    batches = [list(tensors_in(b)) for b in session.val_epoch.batches]
    leaves = [t for parts in batches for t in parts] + _joined(batches)
    heard = _Compared(session.model)
    with session.observe(), heard:
        heard.listen()
        session.setup.evaluate()
    return bool(heard.pairs) and all(
        is_among(target, leaves) and not is_among(given, leaves) for given, target in heard.pairs
    )


def _joined(batches: list[list[Tensor]]) -> list[Tensor]:
    """Each part of the batches as rows of all of them."""
    columns = zip(*batches, strict=False)
    return [torch.cat(c) for c in columns if len({(t.dtype, t.shape[1:]) for t in c}) == 1
            and c[0].dim()]  # fmt: skip


def _sees_itself(session: Session) -> bool:
    """A number of the outputs depends on the number in the same place of the inputs."""
    program = program_of(session)
    call = program.call()
    before = program.replay(call)[0].flatten(1)
    for place in range(min(PLACES, before.shape[1])):
        tensors = list(tensors_in(call.args))
        kept = tensors[0].clone()
        try:
            tensors[0].flatten(1)[:, place] += tensors[0].std()
            after = program.replay(call, again=True)[0].flatten(1)
        finally:
            tensors[0].copy_(kept)
        if float((after - before)[:, place].abs().max()) > CHANGED * float(before.std()):
            return True
    return False


class _Compared(TorchFunctionMode):
    """Inputs of the model, and what its outputs for them are compared with, of the same shape."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.pairs: list[tuple[Tensor, Tensor]] = []
        self._calls: list[tuple[Tensor, Tensor]] = []

    def listen(self) -> None:
        """Note each call; the hook is taken off where the model is put back."""

        def note(_: nn.Module, args: tuple, output: Any) -> None:
            given = next(tensors_in(args), None)
            if given is not None and isinstance(output, Tensor) and output.shape == given.shape:
                self._calls.append((given.detach().clone(), output))

        self.model.register_forward_hook(note)

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        if function in COMPARED and len(args) > 1:
            for output, target in (args[:2], args[1::-1]):
                given = next((g for g, o in self._calls if o is output), None)
                fixed = isinstance(target, Tensor) and not target.requires_grad
                if given is not None and fixed and target.shape == given.shape:
                    self.pairs.append((given, target.detach().clone()))
        return function(*args, **(kwargs or {}))
