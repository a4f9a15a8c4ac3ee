"""Rungs 3 and 4: a loop that cannot memorise one batch cannot learn anything.

Neither rung may be passed trivially: a batch of one class is "learned" by always predicting that
class, a loss that starts near 0 proves nothing, and a subset model that is no better than the dumb
baseline has not learned.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from course.debug.probes.session import clone, pair
from course.debug.probes.thresholds import ZERO
from course.debug.relations.program import without_dropout
from course.debug.rungs.climbing import Climb, Fall, Outcome, Picture, Scores, shares
from course.debug.rungs.moves import TOO_SMALL_A_STEP, Moves

SHARE_LEFT = 0.05
"""Of the loss at the start: what may be left of it above the floor when a batch is learned."""
ENOUGH = 0.2
"""Share of `SHARE_LEFT` at which no further step is made: the batch is learned by a margin."""
AT_ONCE, LEAST_LOSS = 0.02, 1e-3
"""Share of the first loss (or of the least one to speak of) that lies above the floor, up to which
the batch is right before any step."""
RIGHT = 0.99
"""Accuracy on the batch above which all of it is right: one wrong of `MOST_ROWS` leaves 0.97."""
BETTER = 1e-3
"""Share of the best loss by which the next must be lower to count as better: one per mille."""
HARDLY, NOT_AT_ALL = 0.9, 0.98
"""Lowest loss over the first, above which a tiny step explains what little it fell, and above which
it did not fall."""
LEAST_CURVE = 20
"""Losses from which a tail of ten is set against what came before."""
PACE = 0.5
"""Share of the whole curve's pace at which its tail falls, from which it has not slowed down."""
AT_REST = 0.02
"""Spread of the tail, as a share of what could be learned, below which the loss is at rest."""
MOST_ROWS = 32
PATIENCE = 150
"""Steps without a better loss after which no more is expected."""
MOST_STEPS = 3000
EARLY_STEPS = 10
"""Steps over which the size of an update is measured: before the loss is flat, beyond the first."""
SURE = 0.05
"""p-value up to which a model counts as better than the baseline."""


def overfit_one_batch(climb: Climb) -> Outcome:
    """Rung 3: the loss of one repeated batch falls to its floor, and every weight moves."""
    inputs, targets, number = _telling_batch(climb)
    with climb.from_the_start(), without_dropout(climb.model):
        moves = Moves(climb, inputs, targets)
        losses = _repeat(climb, inputs, targets, moves)
        moves.end()
        right = _score_in_train_mode(climb, inputs, targets)
    floor = _floor(climb, targets)
    start, best = losses[0], min(losses, key=lambda v: v if math.isfinite(v) else math.inf)
    left = (best - floor) / max(start - floor, 1e-12)
    numbers = {
        "rows": len(inputs), "steps": len(losses), "loss at the start": start,
        "lowest loss": best, "floor": floor, "batch": number,
    }  # fmt: skip
    if math.isfinite(moves.per_step):  # not measured where a few steps were enough
        numbers["update per step / size of the weights"] = moves.per_step
    if climb.task == "classification":
        numbers["classes in the batch"] = len(shares(targets))
    if right is not None:
        numbers["accuracy on the batch"] = right
    picture = functools.partial(_picture, tuple(losses), floor)
    if not math.isfinite(losses[-1]):
        raise Fall(f"the loss of one batch is {losses[-1]} after {len(losses)} steps.", numbers,
                   "optimizer.param_groups[0]['lr'] /= 10", picture=picture)  # fmt: skip
    if start - floor <= AT_ONCE * max(abs(start), LEAST_LOSS) and (right is None or right > RIGHT):
        raise Fall(
            f"the batch is right from the start (loss {start:.3g}): overfitting it proves nothing.",
            numbers, "model = make_model()  # a fresh one, not a trained one", picture=picture,
        )  # fmt: skip
    if left > SHARE_LEFT or (right is not None and right < 1):
        said, fix, cause = _why_not(losses, floor, left, right, moves)
        raise Fall(said, numbers, fix, cause=cause, picture=picture)
    warnings = _all_move(climb, moves, numbers)
    return Outcome(
        f"{len(inputs)} examples are memorised in {len(losses)} steps: loss {start:.3g} to "
        f"{best:.2g}" + (f" (floor {floor:.2g})." if floor > ZERO else "."),
        numbers,
        warnings,
        picture,
    )


def _picture(losses: tuple[float, ...], floor: float) -> object:
    from course.plots.one_batch import plot_one_batch

    return plot_one_batch(losses, floor)


def _all_move(climb: Climb, moves: Moves, numbers: dict) -> tuple[str, ...]:
    """A learned batch does not prove that every layer learns: the others can make up for one.

    Raises:
        Fall: A weight has a gradient and stays where it is although one before it moves.
    """
    meant = climb.declared.get("frozen") or "optimizer-stale-params" in climb.allowed
    if not moves.left_behind or meant:
        return ()
    names = ", ".join(moves.left_behind[:3])
    said = f"the optimizer does not hold {names}: it has a gradient, but no step moves it"
    if moves.head_only:  # only the last layers are trained: often meant
        return (f"{said}. If it is frozen on purpose, declare frozen=[...].",)
    numbers["weights that never move"] = moves.left_behind
    raise Fall(
        f"one batch is learned, but {said}.", numbers,
        "optimizer = torch.optim.SGD(model.parameters(), lr=lr)  # all of them",
        cause="optimizer-stale-params",
    )  # fmt: skip


def _telling_batch(climb: Climb) -> tuple[Tensor, Tensor, int]:
    """The first batch that can prove something.

    Raises:
        Fall: No batch can prove anything: each has one example, one class, or contradictory
            targets.
    """
    reason = "there is no batch"
    for number, batch in enumerate(climb.session.epoch.batches):
        inputs, targets = (part[:MOST_ROWS] for part in pair(clone(batch)))
        if len(inputs) < 2:
            reason = "every batch holds one example"
        elif len(targets.flatten(1).unique(dim=0) if targets.dim() > 1 else targets.unique()) < 2:
            reason = "every batch holds only one target: always predicting it would pass"
        elif _contradicts_itself(inputs, targets):
            reason = "equal inputs have unequal targets in every batch: no model can learn that"
        else:
            return inputs, targets, number
    raise Fall(
        f"No batch can prove anything: {reason}.",
        {"batches looked at": len(climb.session.epoch.batches)},
        "DataLoader(dataset, batch_size=32, shuffle=True)",
    )


def _contradicts_itself(inputs: Tensor, targets: Tensor) -> bool:
    rows = inputs.reshape(len(inputs), -1)
    both = torch.cat([rows.double(), targets.reshape(len(targets), -1).double()], dim=1)
    return len(rows.unique(dim=0)) < len(both.unique(dim=0))


def _repeat(climb: Climb, inputs: Tensor, targets: Tensor, moves: Moves) -> list[float]:
    """Losses of step after step on one batch, until it is learned or nothing more comes."""
    losses: list[float] = []
    floor, best, since = _floor(climb, targets), math.inf, 0
    climb.model.train()
    while len(losses) < climb.steps and since < PATIENCE:
        if len(losses) == EARLY_STEPS:
            moves.early(EARLY_STEPS)
        losses.append(climb.step([inputs.clone(), targets.clone()]))
        if not math.isfinite(losses[-1]):
            break
        better = losses[-1] < best - BETTER * max(abs(best), ZERO) if best < math.inf else True
        since = 0 if better else since + 1
        best = min(best, losses[-1])
        if best - floor < ENOUGH * SHARE_LEFT * (losses[0] - floor):
            break
    return losses


def _score_in_train_mode(climb: Climb, inputs: Tensor, targets: Tensor) -> float | None:
    """Accuracy on the batch as training sees it; None for numbers."""
    if climb.task == "regression":
        return None
    with torch.no_grad():
        climb.model.train()
        outputs = climb.model(climb.session.place(inputs)).detach().cpu()
    return climb.scores_of(outputs, targets.cpu()).mean


def _floor(climb: Climb, targets: Tensor) -> float:
    """Least loss that smoothed labels allow: their entropy; 0 otherwise.

    >>> smoothing, classes = 0.1, 10
    >>> right, other = 1 - smoothing + smoothing / classes, smoothing / classes
    >>> round(-(right * math.log(right) + 9 * other * math.log(other)), 4)
    0.5003
    """
    smoothing = getattr(climb.setup.loss_fn, "label_smoothing", 0.0)
    smoothing = smoothing or float(climb.declared.get("label_smoothing", 0.0))
    if not smoothing or climb.task != "classification":
        return 0.0
    classes = climb.setup.num_classes or climb.session.outputs.shape[1]
    other = smoothing / classes
    right = 1 - smoothing + other
    return -(right * math.log(right) + (classes - 1) * other * math.log(other))


def _why_not(
    losses: list[float], floor: float, left: float, right: float | None, moves: Moves
) -> tuple[str, str, str]:
    """What curve and weights say (figure "overfit one batch": which bug gives which curve).

    Returns:
        The sentence, what to try first, and the cause where it was measured.
    """
    start, best = losses[0], min(losses)
    said = f"one batch is not learned: loss {start:.3g} to {best:.3g} in {len(losses)} steps"
    if moves.per_step == 0:
        return _nothing_moves(said, moves)
    if moves.per_step < TOO_SMALL_A_STEP and best > HARDLY * start:
        return (
            f"{said}. Each step moves the weights by {moves.per_step:.0e} of their size: the "
            "learning rate is too small (about 1e-3 of their size per step is usual).",
            "\n".join(f"optimizer.param_groups[{i}]['lr'] = {lr:.0e}  # was {was:.0e}"
                      for i, (was, lr) in enumerate(moves.larger_rates)),
            "lr-too-small",
        )  # fmt: skip
    doctor = "report.diagnosis  # the doctor looks at the loop"
    slower = "optimizer.param_groups[0]['lr'] /= 10"
    if best > NOT_AT_ALL * start:
        return said + ". The weights move, but the loss does not fall.", doctor, ""
    if losses[-1] > 2 * start:
        return said + f" and up to {losses[-1]:.3g}: the steps are too large.", slower, ""
    if left <= SHARE_LEFT and right is not None:
        said += (
            f", but only {right:.0%} of the predictions are right: loss and prediction disagree."
        )
        return said, doctor, ""
    tail = losses[-max(10, len(losses) // 5) :]
    pace = (start - losses[-1]) / len(losses)
    if len(losses) >= LEAST_CURVE and tail[0] - tail[-1] > PACE * pace * len(tail) > 0:
        said += " and still falls at the same pace: the steps are small."
    elif max(tail) - min(tail) < AT_REST * (start - floor):
        said += ". It settles on a plateau: the model or the loss cannot go lower."
    elif len(losses) >= LEAST_CURVE and tail[-1] < tail[0]:
        said += " and still falls: the steps are small."
    else:
        said += " and jumps: the steps are large, or the batch changes between steps."
    return said, doctor, ""


def _nothing_moves(said: str, moves: Moves) -> tuple[str, str, str]:
    said += ". It does not move at all: "
    if not moves.with_gradient:
        return (
            f"{said}no weight gets a gradient.",
            "[name for name, p in model.named_parameters() if p.grad is None]",
            "",
        )
    if not moves.held:
        return (
            f"{said}the optimizer holds none of the model's weights.",
            "optimizer = torch.optim.SGD(model.parameters(), lr=lr)  # this model's parameters; "
            "built last",
            "optimizer-stale-params",
        )
    if all(was == 0 for was, _ in moves.larger_rates):
        return f"{said}the learning rate is 0.", "optimizer.param_groups[0]['lr'] = 1e-3", "zero-lr"
    return (
        f"{said}the weights have gradients, but no step changes them.",
        "optimizer.step()  # after loss.backward(), and no zero_grad() between the two",
        "",
    )


def small_subset(climb: Climb) -> Outcome:
    """Rung 4: a few examples are enough to beat the dumb baseline."""
    inputs, targets = _subset(climb)
    size = min(len(pair(climb.session.epoch.batches[0])[0]), len(inputs))
    steps = max(150, 10 * math.ceil(len(inputs) / size))
    with climb.from_the_start():
        order = torch.Generator().manual_seed(climb.seed)
        climb.model.train()
        made = 0
        while made < steps:
            for rows in torch.randperm(len(inputs), generator=order).split(size):
                if len(rows) < 2 <= size:
                    continue
                loss = climb.step(climb.as_loaded(inputs[rows], targets[rows]))
                made += 1
        on_subset = climb.score(inputs, targets)
        on_val = climb.score(*climb.val_rows)
    numbers = {
        "examples": len(inputs), "steps": made, f"{on_val.name} on the subset": on_subset.mean,
        f"{on_val.name} on validation": on_val.mean,
    }  # fmt: skip
    if not math.isfinite(loss):
        raise Fall(f"the loss is {loss} after {made} steps.", numbers,
                   "optimizer.param_groups[0]['lr'] /= 10")  # fmt: skip
    must_beat_the_baseline(climb, on_val, numbers, f"trained on {len(inputs)} examples")
    return Outcome(
        f"{len(inputs)} examples give {on_val.name} {on_subset.mean:.3g} on the subset itself and "
        f"{on_val.mean:.3g} on validation; the baseline has {climb.baseline.mean:.3g}.",
        numbers,
    )


def must_beat_the_baseline(
    climb: Climb, scores: Scores, numbers: dict, when: str, picture: Picture | None = None
) -> None:
    """Compare the scores with the dumb baseline's; both go into `numbers`.

    Raises:
        Fall: The scores are not better than the baseline's (p above SURE).
    """
    if climb.baseline is None:
        return
    p = scores.beats(climb.baseline)
    numbers |= {"baseline": climb.baseline.mean, "p": p}
    if p > SURE:
        raise Fall(
            f"{when}, the model has {scores.name} {scores.mean:.3g} on validation and the dumb "
            f"baseline {climb.baseline.mean:.3g}: not better (p = {p:.2g}).",
            numbers,
            "compare inputs and targets of one validation example by eye; then report.diagnosis",
            picture=picture,
        )


def _subset(climb: Climb) -> tuple[Tensor, Tensor]:
    """A share of the rows read, every class with at least four where there are classes."""
    inputs, targets = climb.train_rows
    source = torch.Generator().manual_seed(climb.seed)
    count = max(round(climb.subset * len(inputs)), min(32, len(inputs)))
    if climb.task != "classification" or targets.dim() != 1:
        rows = torch.randperm(len(inputs), generator=source)[:count]
        return inputs[rows], targets[rows]
    kept = []
    for label, share in shares(targets).items():
        rows = (targets == label).nonzero().flatten()
        drawn = rows[torch.randperm(len(rows), generator=source)]
        kept.append(drawn[: max(4, round(share * count))])
    rows = torch.cat(kept)
    return inputs[rows], targets[rows]
