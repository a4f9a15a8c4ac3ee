"""What chapter 3h's scripts to fix share: small nets, batches, optimizers, and how they are paid.

Each script runs without an error and has one bug. `paid` makes its parts: what the bug spoils, all
that the script reports and leaves behind (in a hidden check), and the same with few lines changed.
The bug shows in every case of every part, so a script that still has it earns nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from autograde.bank.harness import TRAINED, Watch, build_optimizer
from autograde.exercise import (
    Answer,
    AnswerError,
    Draw,
    Part,
    as_index,
    as_number,
    as_numbers,
    kept_entries,
    pair,
)
from autograde.kinds.fix import change_size

SAYS = {
    "weights": "after the run, the weights",
    "trained": "the batches that the model counted in train mode:",
    "changed": "the number of lines changed",
}
"""How the fields that every script has are called in a message."""
BY_TRAINING = TRAINED - {"random"}
"""What training changes; a script's draws come from a generator of its own, or none is due."""
OPTIMIZERS = ("momentum", "adam", "groups")


def paid(
    title: str, fields: tuple[str, ...], all_fields: tuple[str, ...], most: int, *, cases: int = 2
):
    """The three parts of a script: what the bug spoils, the whole, the whole with few lines.

    Args:
        title: Of the first part.
        fields: What the bug spoils.
        all_fields: What the script leaves behind and reports.
        most: Lines that may differ.
        cases: Of the hidden part.
    """
    return (
        Part("core", title, points=1, fields=(*fields, *counted_with(fields))),
        Part("whole", "everything it returns and changes", points=1, hidden=True,
             fields=(*all_fields, *counted_with(all_fields), "disturbed"), cases=cases),
        Part("little", f"the same, with at most {most} lines changed", points=1,
             fields=(*all_fields, *counted_with(all_fields), "changed")),
    )  # fmt: skip


def counted_with(fields: tuple[str, ...]) -> tuple[str, ...]:
    """What a part that is judged by the weights is judged by as well, where a layer counts."""
    return ("trained",) if "weights" in fields else ()


def draw_net(source: Draw, widths: Sequence[int]) -> list[list[Tensor]]:
    """Weights and biases of linear layers, as plain data."""
    return [
        [source.normal(wide, fan_in, scale=0.6), source.normal(wide, scale=0.3)]
        for fan_in, wide in pairwise(widths)
    ]


def build_net(layers: list[list[Tensor]], device: torch.device, *between: nn.Module) -> nn.Module:
    """Linear layers with these weights, tanh (and modules) between them."""
    built: list[nn.Module] = []
    for weight, bias in layers:
        linear = nn.Linear(*weight.T.shape, device=device)
        linear.weight.data.copy_(weight)
        linear.bias.data.copy_(bias)
        built += [linear, nn.Tanh(), *between]
    return nn.Sequential(*built[: -1 - len(between)])


def draw_optimizer(source: Draw) -> dict[str, Any]:
    """A kind, another for the next case, and a rate."""
    return {"kind": OPTIMIZERS[source.index % len(OPTIMIZERS)], "lr": source.uniform(0.05, 0.2)}


def made(about: dict[str, Any], model: nn.Module) -> torch.optim.Optimizer:
    """The optimizer that a case says."""
    return build_optimizer(about["kind"], model, about["lr"])


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """Weights and buffers as an answer."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def sent(pairs: list, device: torch.device) -> list[tuple[Tensor, ...]]:
    """Batches on the device."""
    return [tuple(tensor.to(device) for tensor in pair) for pair in pairs]


EPOCHS = 6
"""Of a run that is to be best before its last one."""
FLIPPED = 4
"""One of so many validation labels is wrong: being too sure costs, so an early epoch is best."""


class Counting(nn.Module):
    """Counts the batches that it was trained on, as BatchNorm does, in a buffer."""

    BUFFER = "training_batches"

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer(self.BUFFER, torch.zeros((), dtype=torch.long))

    def forward(self, inputs: Tensor) -> Tensor:
        self.training_batches += int(self.training)
        return inputs


def build_moded(layers: list[list[Tensor]], device: torch.device) -> nn.Module:
    """The net of `build_net` with a count of its training batches, handed over in eval mode.

    A script that no longer says train() or eval() leaves another count.
    """
    return build_net(layers, device, Counting().to(device)).eval()


def build_counting(weight: Tensor, device: torch.device) -> nn.Sequential:
    """A linear layer of two classes with this weight, and a count of its batches."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(*weight.T.shape), Counting()).to(device)
    model[1].weight.data.copy_(weight)
    model[1].bias.data.zero_()
    return model


def draw_early_best(source: Draw) -> dict[str, Any]:
    """Two classes apart along one direction, which training grows surer of in every epoch."""
    features = source.integer(2, 4)
    towards = source.normal(features)
    towards = towards / towards.norm()

    def batch(size: int, flip: bool) -> list[Tensor]:
        targets = torch.arange(size) % 2
        inputs = (2 * targets - 1)[:, None] * towards + source.normal(size, features, scale=0.1)
        if flip:
            targets = torch.where(torch.arange(size) % FLIPPED == 0, 1 - targets, targets)
        return [inputs, targets]

    return {
        "weight": source.normal(2, features, scale=0.02),
        "train": [batch(4 + 2 * source.integer(0, 1), False) for _ in range(3)],
        "val": [batch(8, True), batch(4, True)],
    }


def outcome(
    function: Callable[..., Any],
    state: dict[str, Tensor],
    entries: dict[str, Any],
    watch: Watch,
    *,
    given: str,
    most: int,
    may: frozenset[str] = BY_TRAINING,
    named: bool = True,
) -> Answer:
    """What every script is judged by: what it left, what it reports, and how much was changed.

    What a layer counted is a field of its own: its buffer's name would mean nothing to a student.
    `named=False` compares tensors by their order alone.
    """
    buffers = [name for name in state if name.endswith(Counting.BUFFER)]
    counts = [state.pop(name).item() for name in buffers]
    return {
        "weights": state if named else list(state.values()),
        **({"trained": counts[0] if len(counts) == 1 else counts} if counts else {}),
        **entries,
        "disturbed": watch.changed(may),
        "changed": change_size(given, function, most=most),
    }


def reported(
    report: Any, what: Mapping[str, str], *, lists: tuple[str, ...], counts: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The entries of a script's report, each a list of numbers, a whole number, or a number.

    Args:
        report: What the script returned.
        what: What is in each entry, by its key, in the order in which a message lists them.
        lists: Keys of lists.
        counts: Keys of whole numbers.
    """
    readers = {name: partial(_listed, name) for name in lists} | dict.fromkeys(counts, as_index)
    return kept_entries(
        report, {name: (readers.get(name, as_number), words) for name, words in what.items()}
    )


def _listed(name: str, value: Any, what: str) -> list[float]:
    return as_numbers(value, name, what)


def model_of(returned: Any) -> tuple[nn.Module, Any]:
    """The model and the losses that a script returned.

    Raises:
        AnswerError: There are not two things, or the first is not a model.
    """
    model, losses = pair(returned, "the model and the losses")
    if not isinstance(model, nn.Module):
        raise AnswerError(f"The first value returned is a {type(model).__name__}, not the model.")
    return model, losses
