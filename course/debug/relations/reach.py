"""Relation on outputs: the loss asks for nothing that they cannot give."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.utils.parametrize import is_parametrized

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import ROUNDED, TINY
from course.debug.relations.program import Program, program_of

DISTANCES = {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy"}
LARGE, LARGER = 10.0, 100.0
"""Weights are drawn at random with these times their own size: an end of the outputs' range that is
the same for both is a bound of the model's."""
DRAWS = 5
"""Draws of the weights for each size: a linear output of either sign would stay on one side in all
of them about once in 30 times where it were the same for all rows, and hardly ever as it is."""
STILL = 0.05
"""Of the range for the smaller weights: by less has a bound moved that is one."""
BEYOND = 0.05
"""Of the targets' own spread: a target further out than that is beyond a bound, not on it."""
OUT_OF_REACH = 0.1
"""Share of the targets from which they are out of reach by nature, not as outliers."""
LEAST_VALUES = 4
"""Different values out of reach, from which they are targets and not a mark for what is missing."""
OFF_ONE = 0.5
"""Distance from 1 of a sum of targets of 0 and 1 that is not 1."""


def within(session: Session) -> Iterator[Finding]:
    """Targets lie within what the outputs can reach."""
    program = program_of(session)
    if any(is_parametrized(module) for module in program.model.modules()):
        raise NotChecked("weights are normalised: their size says nothing")
    place = _the_distance(program)
    targets = program.first().losses[place].targets.float()
    large, larger = (_drawn(program, place, size) for size in (LARGE, LARGER))
    if len(large) < DRAWS or len(larger) < DRAWS:
        raise NotChecked("the outputs are not finite with larger weights")
    yield from _sums(program.first().losses[place].inputs.float(), targets, [*large, *larger])
    low, high = _bounds(torch.stack(large), torch.stack(larger))
    margin = BEYOND * float(targets.std()) + TINY
    outside = (targets < low - margin) | (targets > high + margin)
    share = float(outside.float().mean())
    if share > OUT_OF_REACH and targets[outside].unique().numel() >= LEAST_VALUES:
        yield Finding(
            "targets-out-of-reach", "warning",
            f"{share:.0%} of the targets lie outside of {low:.3g} to {high:.3g}, and no weights "
            "bring the outputs there: the last layer's activation does not fit the targets.",
            {"out_of_reach": share, "lowest_target": float(targets.min()),
             "highest_target": float(targets.max()), "least_output": low, "most_output": high},
            "return self.head(x)  # no ReLU, sigmoid or tanh, or targets scaled to its range",
        )  # fmt: skip


def _the_distance(program: Program) -> int:
    """The place, among the losses of a step, of the one between outputs and targets alike."""
    losses = program.first().losses
    found = [
        n for n, e in enumerate(losses)
        if e.name in DISTANCES and e.inputs.shape == e.targets.shape and e.targets.numel() > 1
        and e.targets.is_floating_point() and bool(torch.isfinite(e.targets).all())
    ]  # fmt: skip
    if len(losses) != 1 or not found:
        raise NotChecked("the step has no single distance between outputs and targets")
    return found[0]


def _drawn(program: Program, place: int, size: float) -> list[Tensor]:
    """Outputs that meet the loss with random weights, as far as they are finite."""
    found = []
    for draw in range(DRAWS):
        own = torch.Generator().manual_seed(draw)

        def redraw(own: torch.Generator = own) -> None:
            for p in program.model.parameters():
                noise = torch.randn(p.shape, generator=own).to(p)
                p.copy_(size * (p.float().pow(2).mean().sqrt() + ROUNDED).to(p) * noise)

        losses = program.step(program.batches[0], prepare=redraw).losses
        if len(losses) > place and bool(torch.isfinite(losses[place].inputs).all()):
            found.append(losses[place].inputs.detach().float())
    return found


def _bounds(large: Tensor, larger: Tensor) -> tuple[float, float]:
    """Ends of the range that do not move with the weights' size; infinite where they do."""
    low, high = float(large.min()), float(large.max())
    still = STILL * (high - low) + TINY
    least = low if float(larger.min()) > low - still else -torch.inf
    most = high if float(larger.max()) < high + still else torch.inf
    return min(least, float(larger.min())), max(most, float(larger.max()))


def _sums(outputs: Tensor, targets: Tensor, drawn: list[Tensor]) -> Iterator[Finding]:
    """Rows of outputs that add up to 1 whatever the weights, and rows of targets that do not."""
    if outputs.dim() < 2 or outputs.shape[1] < 3:
        return
    off = max(float((t.sum(1) - 1).abs().max()) for t in [outputs, *drawn])
    answers = bool(((targets == 0) | (targets == 1)).all())
    share = float(((targets.sum(1) - 1).abs() > OFF_ONE).float().mean())
    if off < ROUNDED and answers and share > OUT_OF_REACH:
        yield Finding(
            "targets-out-of-reach", "warning",
            f"Each row of outputs adds up to 1, as of a softmax, and {share:.0%} of the rows of "
            "targets hold no label or several: a row can never give two labels a probability of 1.",
            {"rows_of_targets_not_1": share, "sum_of_outputs_off_1": off},
            "loss = F.binary_cross_entropy_with_logits(logits, targets)  # no softmax",
        )  # fmt: skip
