"""Relations on targets: an output is compared with the target of its own example and position."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from course.debug.probes.answers import is_renaming
from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session, pair
from course.debug.probes.tape import Event
from course.debug.probes.thresholds import MOST, OFTEN, TINY
from course.debug.relations.ahead import left_out
from course.debug.relations.joining import read_by_the_model
from course.debug.relations.program import program_of
from course.debug.relations.steps import Step
from course.state.nested import tensors_in

OF_CLASSES = {"cross_entropy", "nll_loss"}
SAME_LABELS = 0.5
"""Share of the counted labels that are the inputs at their positions, from which the next input is
what is forecast, and moving the labels by one is right: by chance few are, else all."""
MOVES = (1, 2)
PULLED, MOST_PULLED = 4, 12
"""Batches in which it is seen where the loss pulls the outputs, and at most so many where few
inputs of these are clearly one example's."""
LEAST_ROWS = 4
"""Examples of a batch among which the nearest two say something."""
LEAST_PULLED = 48
"""Rows from which a share below one half is no chance where 9 of 10 are right."""
NEARER = 0.8
"""Ratio of the distances to the nearest and the second nearest example, below which an input is
the former's; of two that are mixed half and half neither is."""
HALF = 0.4
"""Share of a class in a row's target, from which the row may be pulled to it rather than to another
with as much."""
MIXED_OFF = 1e-3
"""Difference of a class's share among the targets met and in the batch that rounding makes; mixing
the rows of a batch leaves these shares as they are."""


def positions(session: Session) -> Iterator[Finding]:
    """Labels in a batch that are not its inputs are compared at their own position."""
    program = program_of(session)
    step = program.first()
    outputs = [e.output for e in step.tape.of("output") if e.output is not None and e.graph]
    losses = [e for e in step.losses if e.name in OF_CLASSES and e.inputs.dim() > 1]
    if len(outputs) != 1 or len(losses) != 1 or outputs[0].dim() != 3:
        raise NotChecked("no single cross-entropy of outputs [B, T, C]")
    (event,), (given,) = losses, outputs
    read, leaves = read_by_the_model(session), list(tensors_in(program.batches[0]))
    inputs = [t for t in step.calls[0].tensors if t.dim() == 2 and not t.is_floating_point()]
    classes = event.inputs.shape[1]
    rows = event.inputs.movedim(1, -1).reshape(-1, classes)
    met = event.targets.flatten()
    for out in (given, given.transpose(1, 2)):
        labels = [
            t.to(out.device)
            for n, t in enumerate(leaves)
            if n not in read and t.shape == out.shape[:2] and not t.is_floating_point()
        ]
        for y in labels if out.shape[-1] == classes else []:
            moved = _moved(out, y, rows, met)
            if moved and not any(_alike(y, x) for x in inputs):
                yield Finding(
                    "labels-moved", "warning",
                    "Labels of the batch [B, T] that are not the inputs themselves are compared "
                    f"with the outputs {moved} position{'s' * (moved > 1)} earlier: labels that "
                    "were shifted when the data was made are shifted again.",
                    {"positions": moved, "labels": list(y.shape), "met": len(met)},
                    "loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())  # no slices",
                )  # fmt: skip
                return


def _moved(out: Tensor, labels: Tensor, rows: Tensor, met: Tensor) -> int:
    """By how many positions the labels that the loss met stand behind its outputs; 0: none."""
    for by in MOVES:
        a, b = out[:, :-by].flatten(0, 1), labels[:, by:].flatten()
        if a.shape == rows.shape and torch.equal(a, rows) and torch.equal(b, met.to(b)):
            return by
    return 0


def _alike(labels: Tensor, inputs: Tensor) -> bool:
    counted = labels >= 0
    if labels.shape != inputs.shape or not bool(counted.any()):
        return False
    return float((labels == inputs)[counted].float().mean()) > SAME_LABELS


def merged(session: Session) -> Iterator[Finding]:
    """Different labels have different targets, if the loss makes several from each label."""
    loop = session.loop
    if loop.unit != "step":
        raise NotChecked("the batches of train() are not seen one by one")
    codes: dict[int, set[tuple]] = {}
    columns: list[Tensor] = []
    for call, batch in enumerate(loop.batches):
        met = [e for e in loop.tape.in_call(call) if e.kind == "loss" and e.graph]
        labels = [t for t in tensors_in(batch) if t.dim() == 1 and t.dtype == torch.long]
        if len(met) != 1 or len(labels) != 1 or met[0].targets.dim() != 2:
            raise NotChecked("no single loss with targets [B, K] made from labels [B]")
        targets, y = met[0].targets.cpu(), labels[0].cpu()
        if len(targets) != len(y) or not bool(((targets == 0) | (targets == 1)).all()):
            raise NotChecked("targets are not rows of 0 and 1, one for each label")
        columns.append(targets)
        for label, row in zip(y.tolist(), targets.tolist(), strict=True):
            codes.setdefault(label, set()).add(tuple(row))
    if len(codes) < 3 or any(len(rows) > 1 for rows in codes.values()):
        raise NotChecked("targets are not made from the label alone")
    rows = [next(iter(row)) for _, row in sorted(codes.items())]
    every = torch.cat(columns)
    still = [n for n in range(every.shape[1]) if len(every[:, n].unique()) == 1]
    if len(set(rows)) < len(rows) and 0 < len(still) < every.shape[1]:
        yield Finding(
            "labels-merged", "warning",
            f"{len(rows)} labels have only {len(set(rows))} different rows of targets, and column "
            f"{still[0]} is the same in all of them: some labels can never be distinguished.",
            {"labels": len(rows), "rows_of_targets": len(set(rows)), "column": still[0]},
            "levels = (y[:, None] > torch.arange(grades - 1)).float()  # one threshold between two",
        )  # fmt: skip


def own_label(session: Session) -> Iterator[Finding]:
    """The loss pulls an output towards the label of the example that makes up most of its input.

    Only where output column y is seen to be class y's: the loss pulls most outputs to the column of
    the target that it compares them with. With learned centres, proxies or codes of the classes in
    the loss a column is no class's; and where each label goes to one column it is renamed, not
    shuffled.
    """
    first = program_of(session).first()
    if len(first.calls) != 1 or not all(e.name in OF_CLASSES for e in first.losses):
        raise NotChecked("a step does not call the model once for a cross-entropy")
    right = away = seen = compared = as_met = 0
    met: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    columns: list[tuple[Tensor, Tensor]] = []
    ahead = [len(pair(b)[0]) for b in session.epoch.batches[:PULLED]]
    for number, batch in enumerate(session.epoch.batches[:MOST_PULLED]):
        if seen >= LEAST_PULLED and right >= OFTEN * (seen + sum(ahead[number:])):
            return  # whatever the batches ahead are like
        if number >= PULLED and seen >= LEAST_PULLED:
            break
        x, y = pair(batch)
        inputs, pull, targets = _pulled(session, batch)
        if (
            not x.is_floating_point()
            or len(x) < LEAST_ROWS
            or inputs.shape != x.shape
            or len(pull) != len(y)
        ):
            raise NotChecked("inputs [B, ...] do not reach the model in their original shape")
        if y.dim() != 1 or y.is_floating_point() or pull.dim() != 2 or not _of_batch(targets, y):
            raise NotChecked(
                "the loss's targets are not the labels of the batch, or mixtures of them"
            )
        if int(y.max()) >= pull.shape[1] or not _are_scored(program_of(session).step(batch)):
            raise NotChecked("outputs do not have one column per class, e.g. positions in a plane")
        nearest, clear = _origin(inputs, x)
        own = y.to(pull.device)[nearest]
        clear &= (pull.abs().amax(1) > 0) & _is_label(own, first.losses)
        right += int((pull.argmin(1) == own)[clear].sum())
        away += int((pull.argmax(1) == own)[clear].sum())
        seen += int(clear.sum())
        counts = clear & _has_a_class(targets, first.losses).to(clear.device)
        compared += int(counts.sum())
        as_met += int(_is_met(pull.argmin(1), targets)[counts].sum())
        columns.append((own[clear].cpu(), pull.argmin(1)[clear].cpu()))
        met.append((inputs, x, nearest, clear))
    if seen < LEAST_PULLED:
        raise NotChecked(f"fewer than {LEAST_PULLED} inputs are clearly one example's")
    if not compared or as_met < MOST * compared:
        raise NotChecked("output column y is not seen to be class y's")
    if is_renaming(*(torch.cat(part) for part in zip(*columns, strict=True))):
        raise NotChecked("each label goes to one column: labels are renamed")
    if right < OFTEN * seen and away < OFTEN * seen:  # else a loss with the other sign
        mixtures = sum(int(_between_two(*three)[clear].sum()) for *three, clear in met)
        mixed = mixtures > OFTEN * seen
        yield Finding(
            "wrong-targets" if mixed else "labels-shuffled", "error",
            f"Of {seen} inputs only {right} are pulled towards the label of the example that they "
            "are, or mostly consist of: "
            + ("they are mixtures of two examples, but the shares of the two labels are swapped."
               if mixed else "inputs and labels are in different orders."),
            {"inputs": seen, "pulled_to_their_label": right, "mixtures": mixtures},
            "loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[p])",
        )  # fmt: skip


def _are_scored(step: Step) -> bool:
    """What each cross-entropy gets is in the order of the outputs: not e.g. distances of places in
    a plane from those of other rows."""
    outputs = step.outputs[0]
    return all(
        e.inputs.shape == outputs.shape
        and float((e.inputs.argmax(1) == outputs.argmax(1)).double().mean()) > OFTEN
        for e in step.losses
    )


def _pulled(session: Session, batch: object) -> tuple[Tensor, Tensor, list[Tensor]]:
    """What the model got in a step, the gradient at its outputs, and the targets met."""
    step = program_of(session).step(batch)
    inputs = [call.args[0] for call in step.calls if call.args]
    if len(inputs) != len(step.calls) != 1 or not len(step.outputs) == len(step.slopes) == 1:
        raise NotChecked("a step does not call the model once")
    if not isinstance(inputs[0], Tensor):
        raise NotChecked("the model's first input is not a tensor")
    return inputs[0], step.slopes[0], [e.targets for e in step.losses]


def _is_met(columns: Tensor, targets: list[Tensor]) -> Tensor:
    """Which rows are pulled to the column of a target that a loss compared them with."""
    found = torch.zeros(len(columns), dtype=torch.bool, device=columns.device)
    for t in targets:
        of_row = t.argmax(1) if t.is_floating_point() else t
        found |= columns == of_row.to(columns)
        if t.is_floating_point():  # of a mixture of two, half and half
            found |= t.to(columns.device)[torch.arange(len(t)), columns] >= HALF
    return found


def _has_a_class(targets: list[Tensor], losses: list[Event]) -> Tensor:
    """Which rows a loss compares with a class, and does not leave out."""
    of_rows = [t.argmax(1) if t.is_floating_point() else t for t in targets]
    return torch.stack([_is_label(t.cpu(), losses) for t in of_rows]).any(0)


def _is_label(labels: Tensor, losses: list[Event]) -> Tensor:
    """Which are a class that the losses count. A row without a label may still have a gradient, of
    a term that asks for none."""
    marks = torch.tensor([left_out(event) for event in losses]).to(labels.device)
    return (labels >= 0) & (labels[:, None] != marks).all(1)


def _of_batch(targets: list[Tensor], labels: Tensor) -> bool:
    """Targets are the labels in any order, or shares with as much of each class."""
    own = labels.cpu().sort().values
    return bool(targets) and all(
        _shares_of(t.cpu(), own) if t.is_floating_point()
        else t.shape == own.shape and torch.equal(t.cpu().sort().values, own)
        for t in targets
    )  # fmt: skip


def _shares_of(shares: Tensor, labels: Tensor) -> bool:
    if shares.dim() != 2 or len(shares) != len(labels) or int(labels[-1]) >= shares.shape[1]:
        return False
    if int(labels[0]) < 0:  # no row has a share of what is no class
        return False
    own = torch.bincount(labels, minlength=shares.shape[1]) / len(labels)
    return bool((shares.mean(0) - own).abs().max() < MIXED_OFF)


def _between_two(inputs: Tensor, examples: Tensor, nearest: Tensor) -> Tensor:
    """Which inputs are made of their nearest example and one other, number by number: mixed in
    shares, or cut out of the one and pasted into the other. The example itself is no mixture."""
    a, b = (t.flatten(1).double() for t in (inputs, examples.to(inputs.device)))
    own = b[nearest]
    slack = MIXED_OFF * float(b.std())
    found = torch.zeros(len(a), dtype=torch.bool, device=a.device)
    for other in b:
        low, high = torch.minimum(own, other) - slack, torch.maximum(own, other) + slack
        found |= ((a >= low) & (a <= high)).all(1)
    return found & ((a - own).abs().amax(1) > slack)


def _origin(inputs: Tensor, examples: Tensor) -> tuple[Tensor, Tensor]:
    """The example of the batch that each input is most like, and whether it is clearly so.

    By direction from the mean, so that scaling them or moving them all says nothing.
    """
    a, b = (t.flatten(1).double() for t in (inputs, examples.to(inputs.device)))
    a, b = (t - t.mean(0) for t in (a, b))
    a, b = (t / t.norm(dim=1, keepdim=True).clamp_min(TINY) for t in (a, b))
    two = torch.cdist(a, b).topk(2, dim=1, largest=False)
    return two.indices[:, 0], two.values[:, 0] < NEARER * two.values[:, 1]
