"""Relations on outputs: the loss does not ask for values they cannot take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import ROUNDED, TINY
from course.debug.relations.joining import is_among
from course.debug.relations.led import in_a_step, in_eval_mode, led
from course.debug.relations.program import Program, program_of
from course.debug.relations.steps import Step
from course.state.nested import tensors_in

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
MISSES = 0.02
"""Of the least loss of a constant: by so much more costs the nearest that is in reach."""
FURTHEST, HALF, HALVINGS = 20.0, 20, 8
"""Constants are tried up to 20 times the size of targets and outputs, 20 on either side, closer
together near 0, and then between the two beside the best one."""
HEARD, LEAST_HEARD = 3, 8
"""Batches that are listened to, and rows with each answer among them."""
OFF_ONE = 0.5
"""Distance from 1 of a sum of targets of 0 and 1 that is not 1."""


def within(session: Session) -> Iterator[Finding]:
    """Targets lie within the range of the outputs."""
    program = program_of(session)
    if any(is_parametrized(module) for module in program.model.modules()):
        raise NotChecked("weights are normalised, so their size says nothing")
    place = _the_distance(program)
    targets = program.first().losses[place].targets.float()
    large, larger = (_drawn(program, place, size) for size in (LARGE, LARGER))
    if len(large) < DRAWS or len(larger) < DRAWS:
        raise NotChecked("the outputs are not finite with larger weights")
    yield from _sums(program.first().losses[place].inputs.float(), targets, [*large, *larger])
    low, high = _bounds(torch.stack(large), torch.stack(larger))
    margin = BEYOND * float(targets.std()) + TINY

    def outside() -> Tensor:
        return (targets < low - margin) | (targets > high + margin)

    if float(outside().float().mean()) > OUT_OF_REACH:
        look = partial(in_a_step, program, place)
        if bool((targets < low - margin).any()):
            low = led(program.model, look, -1, low)
        if bool((targets > high + margin).any()):
            high = led(program.model, look, 1, high)
    share = float(outside().float().mean())
    if share > OUT_OF_REACH and targets[outside()].unique().numel() >= LEAST_VALUES:
        yield Finding(
            "targets-out-of-reach", "warning",
            f"{share:.0%} of the targets lie outside {low:.3g} to {high:.3g}, where none of the "
            "weights that were tried brings an output, not even those that were led there: it "
            "seems that the last layer's activation does not fit the targets.",
            {"out_of_reach": share, "lowest_target": float(targets.min()),
             "highest_target": float(targets.max()), "least_output": low, "most_output": high},
            "return self.head(x)  # no ReLU, sigmoid or tanh, or targets scaled to its range",
        )  # fmt: skip


def constant(session: Session) -> Iterator[Finding]:
    """The constant output with the smallest loss lies within the range of the outputs.

    Works for any loss of outputs and targets that has such a constant.
    """
    if any(is_parametrized(module) for module in session.model.modules()):
        raise NotChecked("weights are normalised, so their size says nothing")
    outputs, targets = session.outputs, session.batch[1]
    if not outputs.is_floating_point():
        raise NotChecked("outputs are not numbers")

    def cost(value: float) -> float:
        found = float(session.loss(torch.full_like(outputs, value), targets))
        return found if math.isfinite(found) else math.inf

    size = max(1.0, float(targets.float().abs().max()), float(outputs.abs().max()))
    with session.observe(), torch.no_grad():
        best = _least(cost, size)
        low, high = _bounds(*(_predicted(session, scale) for scale in (LARGE, LARGER)))
        if low <= best <= high:
            return
    way = -1 if best < low else 1
    end = led(session.model, partial(in_eval_mode, session), way, low if way < 0 else high)
    with session.observe(), torch.no_grad():
        costs, at_end = cost(best), cost(end)
    if (best - end) * way > 0 and at_end - costs > MISSES * max(abs(costs), MISSES):
        yield Finding(
            "targets-out-of-reach", "warning",
            f"The loss of constant outputs is smallest at {best:.3g}, but none of the weights that "
            f"were tried brings an output {'below' if way < 0 else 'above'} {end:.3g}, not even "
            "those that were led there: it seems that the last layer's activation does not fit "
            "what the loss expects.",
            {"best_constant": best, "its_loss": costs, "nearest_in_reach": end,
             "loss_there": at_end},
            "return self.head(x)  # no activation if the loss takes logits or log-rates",
        )  # fmt: skip


def shares(session: Session) -> Iterator[Finding]:
    """Targets of a binary cross-entropy are between 0 and 1."""
    losses = [e for e in program_of(session).first().losses if e.name == "bce_with_logits"]
    if not losses:
        raise NotChecked("the step has no binary cross-entropy")
    for event in losses:
        low, high = float(event.targets.min()), float(event.targets.max())
        if low < -ROUNDED or high > 1 + ROUNDED:
            yield Finding(
                "targets-out-of-reach", "error",
                f"Targets of a binary cross-entropy lie between {low:.3g} and {high:.3g}: it "
                "expects targets between 0 and 1, and has no minimum for others.",
                {"least_target": low, "most_target": high},
                "targets = (signs + 1) / 2  # -1 and 1 to 0 and 1",
            )  # fmt: skip
            return


def heard(session: Session) -> Iterator[Finding]:
    """Both of two answers move the outputs: a loss does not ignore all rows with one of them."""
    program, rows = program_of(session), {0: [], 1: []}
    for batch in program.batches[:HEARD]:
        step, gradients = output_gradients(program, batch)
        columns = [t for t in tensors_in(batch)
                   if t.numel() == len(t) > 1 and bool(((t == 0) | (t == 1)).all())]  # fmt: skip
        given = [t for call in step.calls for t in call.tensors]
        rest = [t for t in tensors_in(batch) if all(t is not c for c in columns)]
        if len(columns) != 1 or len(gradients) != 1 or len(step.calls) != 1:
            raise NotChecked("batches do not have one column with two answers for one output")
        if not all(is_among(t, given) for t in rest):
            raise NotChecked("a column that the model does not read may hold the answers")
        answers, gradient = columns[0].flatten().cpu(), gradients[0]
        if len(gradient) != len(answers) or gradient.numel() != len(answers):
            raise NotChecked("the model does not give one number for each row")
        for answer, found in rows.items():
            found += gradient.flatten()[answers == answer].tolist()
    for answer, found in rows.items():
        others = rows[1 - answer]
        if min(len(found), len(others)) >= LEAST_HEARD and not any(found) and all(others):
            yield Finding(
                "wrong-targets", "warning",
                f"{len(found)} rows with target {answer} have no gradient at all, but those with "
                f"{1 - answer} have one: the loss ignores one of the two answers, like a hinge "
                "loss that expects -1 and 1, or a cross-entropy without its (1 - y) term.",
                {"silent": answer, "rows": len(found)},
                "loss = F.relu(1 - (2 * y - 1) * score).mean()  # signs, not 0 and 1",
            )  # fmt: skip
            return


def output_gradients(program: Program, batch: object) -> tuple[Step, list[Tensor]]:
    """A step, and the gradients at the model's outputs."""
    step = program.step(batch)
    return step, [slope.cpu() for slope in step.slopes]


def _least(cost: Callable[[float], float], size: float) -> float:
    """Where a loss of constants is least, to a hundredth of the step between those tried.

    Raises:
        NotChecked: It is least at an end, or the same everywhere.
    """
    values = [size * FURTHEST * (k / HALF) ** 3 for k in range(-HALF, HALF + 1)]
    costs = [cost(v) for v in values]
    place = min(range(len(costs)), key=costs.__getitem__)
    if place in (0, len(costs) - 1) or not costs[place] < min(costs[place - 1], costs[place + 1]):
        raise NotChecked("no single constant has the smallest loss")
    low, high = values[place - 1], values[place + 1]
    for _ in range(HALVINGS):
        a, b = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, b) if cost(a) < cost(b) else (a, high)
    return (low + high) / 2


def _predicted(session: Session, size: float) -> Tensor:
    """Outputs [draws, ...] in eval mode with random weights."""
    model = session.model.eval()
    kept = [p.detach().clone() for p in model.parameters()]
    found = []
    for draw in range(DRAWS):
        _redraw(model, size, draw)
        found.append(session._first_tensor(session.call_model(session.batch[0])).float())
        for p, old in zip(model.parameters(), kept, strict=True):
            p.copy_(old)
    drawn = torch.stack(found)
    if not bool(torch.isfinite(drawn).all()):
        raise NotChecked("the outputs are not finite with larger weights")
    return drawn


def _redraw(model: nn.Module, size: float, draw: int) -> None:
    """Random weights of these times their own size."""
    own = torch.Generator().manual_seed(draw)
    for p in model.parameters():
        noise = torch.randn(p.shape, generator=own).to(p)
        p.copy_(size * (p.float().pow(2).mean().sqrt() + ROUNDED).to(p) * noise)


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
        redraw = partial(_redraw, program.model, size, draw)
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
            "classes-compete", "warning",
            f"Each row of outputs adds up to 1, as after a softmax, but {share:.0%} of the rows of "
            "targets hold no label or several: a row can never give two labels a probability of 1.",
            {"rows_of_targets_not_1": share, "sum_of_outputs_off_1": off},
            "loss = F.binary_cross_entropy_with_logits(logits, targets)  # no softmax",
        )  # fmt: skip
