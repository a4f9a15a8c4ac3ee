"""Three tables to keep at hand: probes, common mistakes, and when a script should stop at once.

    PROBES          # in a notebook: questions to a program, and what a healthy one answers
    MISTAKES
    STOPS

Each row names where to find it in this course: an exhibit of the museum, or a function to call.
Tests look all of them up.

Source: Engineering module, §5 and "Common mistakes"; ledger T20, T36, T41.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields

from course.tables import code, html_table


@dataclass(frozen=True)
class Probe:
    """One question to a program that can be answered in a minute."""

    probe: str
    healthy: str
    """What a healthy program answers."""
    otherwise: str
    """The usual causes of another answer."""
    here: str
    """Where the course has it: an exhibit, or a function."""


@dataclass(frozen=True)
class Mistake:
    """A common mistake and the symptom it shows."""

    mistake: str
    symptom: str
    cause: str
    fix: str
    here: str


@dataclass(frozen=True)
class Stop:
    """A condition that makes a run worthless: stop it, and say why."""

    condition: str
    why: str
    """What happens if the run continues."""
    here: str


class Table(tuple):
    """Rows of one kind, shown as a table in a notebook."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        heads = [field.name for field in fields(self[0])]
        rows = [(*astuple(row)[:-1], code(row.here)) for row in self]
        return html_table(heads, rows)


PROBES = Table(
    (
        Probe("overfit one batch of a dozen examples", "its loss goes to nearly 0",
              "the step: loss, gradient, optimizer or data is wired wrongly",
              "course.debug.climb"),
        Probe("norm of the gradient, per layer", "finite and above 0 in every layer",
              "0: dead units, a detached tensor, a layer in a plain list; inf: rate or data",
              "course.debug.signals.read_signals"),
        Probe("count the parameters that the optimizer holds", "all that require a gradient",
              "a plain list of layers, super().__init__() forgotten, a layer replaced later",
              "B17"),
        Probe("validate twice without a step in between", "the same numbers, digit by digit",
              "train mode: dropout draws again, BatchNorm moves; or random augmentation",
              "B04"),
        Probe("save, load into a fresh program, predict", "the same outputs",
              "state that is not in the state_dict: a tensor that is not registered",
              "B13"),
        Probe("the same batch on CPU and GPU", "outputs equal up to rounding",
              "a tensor created inside forward() on a fixed device, or from fresh random numbers",
              "B14"),
    )
)  # fmt: skip
"""T20 in our words."""

MISTAKES = Table(
    (
        Mistake("gradients are not cleared", "the gradient's norm grows, the loss jumps",
                "backward() adds to .grad", "optimizer.zero_grad() per update", "B01"),
        Mistake("softmax before the cross-entropy", "the loss levels off well above 0",
                "cross_entropy() takes logits and applies its own softmax",
                "pass in the logits", "B08"),
        Mistake("layers in a plain Python list", "no parameters, or some that never move",
                "parameters() only finds registered modules", "nn.ModuleList", "B11"),
        Mistake("validation in train mode", "two validations of the same weights differ",
                "dropout is on, BatchNorm uses batch "
                "statistics", "model.eval(), then model.train()",
                "B04"),
        Mistake("validation builds graphs of its "
                "own", "more memory, and slower", "gradients are being recorded",
                "torch.no_grad() around validation", "B06"),
        Mistake("model and batch on different devices", "RuntimeError in the first step",
                "to(device) of one of the two is missing", "move each batch in the loop", "B15"),
        Mistake("losses kept as tensors", "memory grows with every step",
                "each tensor keeps its graph alive", "loss.item() or loss.detach()", "B07"),
        Mistake("only the weights are saved", "the loss jumps after resuming",
                "momentum, Adam's averages, schedule and epoch start from nothing",
                "save everything the next step depends on", "B27"),
    )
)  # fmt: skip
"""T36 in our words."""

STOPS = Table(
    (
        Stop("a loss of inf or nan", "the next step makes every weight nan",
             "course.engine.NonFiniteError"),
        Stop("inf or nan among the inputs", "the same, one step later",
             "course.data.check_batch"),
        Stop("targets outside 0 … classes − 1, or not integers",
             "an error on the GPU that does not name the cause, or a different loss from the one "
             "intended",
             "course.data.check_batch"),
        Stop("an optimizer without parameters, or without some of them",
             "those weights keep their initial values", "course.debug.diagnose"),
        Stop("a checkpoint that cannot be written", "at the end, hours of training are lost",
             "course.engine.checkpoint"),
        Stop("a score below that of the most common class", "the model has learned less than "
             "nothing: labels or metric are wrong", "course.debug.climb"),
    )
)  # fmt: skip
"""T41 in our words."""
