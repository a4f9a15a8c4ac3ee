"""Relations on scoring: a metric equals the same metric recomputed from the same outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from course.debug.probes.classes import is_plain
from course.debug.probes.metric import PERCENT
from course.debug.probes.modes import evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.rescored import redrawn
from course.debug.probes.session import Evaluation, NotChecked, Session, pair
from course.debug.probes.tape import Event
from course.debug.probes.thresholds import YES
from course.debug.relations.padding import only_behind
from course.debug.relations.program import program_of
from course.debug.relations.reach import output_gradients
from course.state.nested import tensors_in

OFF = 0.05
"""Distance of an accuracy from every way of averaging it that we know: further away it counts
something else. Top-k and balanced accuracies are not judged: their names say so."""
SAME_RATE = 0.002
"""Distance of two accuracies that print alike."""
ROUNDING = SAME_RATE / 10
"""Distance of two that are the same but for the digits that are printed."""
RIGHT = {"cross_entropy", "bce_with_logits", "binary_cross_entropy"}
OTHER_WORDS = ("top", "balanced", "macro", "class", "train", "f1", "iou", "seq", "exact")


def accuracy(session: Session) -> Iterator[Finding]:
    """An accuracy is a share of the answers that the loss of the same evaluation got."""
    targets = _targets_of_a_pair(session)
    in_pairs = targets is not None
    if in_pairs and targets.dim() == 1 and not targets.is_floating_point():
        raise NotChecked("already checked for (inputs, targets)")  # metric.accuracy evaluates these
    seen = evaluation_of(session)
    yield from _off(session, seen, in_pairs=in_pairs)
    if any(e.name == "bce_with_logits" for e in session.loop.tape.of("loss")):
        yield from _off(session, redrawn(session, 0), in_pairs=in_pairs)  # some between 0 and 0.5


def _off(session: Session, seen: Evaluation, *, in_pairs: bool) -> Iterator[Finding]:
    """Accuracies of an evaluation that its outputs and targets do not give.

    Raises:
        NotChecked: There is none, or no loss to tell what was met.
    """
    named = {k: v for k, v in seen.first.items()
             if "acc" in k.lower() and not any(w in k.lower() for w in OTHER_WORDS)}  # fmt: skip
    losses = [e for e in seen.tape.of("loss") if e.call == 0 and e.name in RIGHT]
    losses = losses or _as_met(session, seen)
    if not named or not losses:
        raise NotChecked("no accuracy next to a loss of classes in evaluate()")
    hits = [_hits(event.name, event.inputs, event.targets) for event in losses]
    if any(h is None or not h.numel() for h in hits):
        raise NotChecked("targets are not class indices")
    per = _for_each_batch(losses, session)
    known = [way for k in range(per) for way in _ways(hits[k::per])]
    known = known if per == 1 else [*_ways(hits), *known]
    elsewhere = in_pairs or _answers_elsewhere(seen, losses)
    logits = [e for e in losses if e.name == "bce_with_logits"]
    halves = _ways([(e.inputs > YES) == (e.targets > YES) for e in logits]) if logits else []
    for name, value in named.items():
        value = value / 100 if value > PERCENT else value
        near = min(abs(value - k) for k in known)
        taken = near > SAME_RATE and any(abs(value - k) < ROUNDING for k in halves)
        if (near > OFF and value > 0 and not elsewhere and is_plain(name)) or taken:
            yield Finding(
                "metric-wrong", "warning",
                f"{name} = {value:.4g}, but the outputs and targets that the loss got in the same "
                f"evaluation give {known[0]:.4g}"
                + (": logits are compared with 0.5, which is for probabilities." if taken else "."),
                {name: value, "recomputed": known[0], "answers": sum(h.numel() for h in hits)},
                "hits = (logits > 0) == targets  # logits of several labels" if taken else
                "hits = (logits.argmax(dim=-1) == targets)[mask]  # dim: the axis of the classes",
            )  # fmt: skip


def _for_each_batch(losses: list[Event], session: Session) -> int:
    """How many losses are computed of each batch: an accuracy may be of the outputs of one."""
    batches = len(session.val_epoch.batches) if session.val_epoch.whole else 0
    return len(losses) // batches if batches and len(losses) % batches == 0 else 1


def _answers_elsewhere(seen: Evaluation, losses: list[Event]) -> bool:
    """There are outputs that no loss got: an accuracy may be of these, e.g. of shorter inputs or of
    an average of the weights. Outputs that come twice count once; where each has a loss of its own,
    some of its numbers may be left out there by a mask."""
    outputs: list[Tensor] = []
    for event in seen.tape.of("output"):
        new = event.output
        if event.call == 0 and new is not None and not any(
            new.shape == old.shape and torch.equal(new, old) for old in outputs
        ):  # fmt: skip
            outputs.append(new)
    more = sum(t.numel() for t in outputs) > sum(e.inputs.numel() for e in losses)
    return (len(outputs) > len(losses) and more) or bool(seen.tape.other_networks)


def ignored(session: Session) -> Iterator[Finding]:
    """Positions that the loss ignores are not counted as answers."""
    seen = evaluation_of(session)
    named = {k: v for k, v in seen.first.items()
             if "acc" in k.lower() and not any(w in k.lower() for w in OTHER_WORDS)}  # fmt: skip
    outputs = [e.output for e in seen.tape.of("output") if e.call == 0]
    batches = session.val_epoch.batches
    if not named or not outputs or len(outputs) != len(batches):
        raise NotChecked("no accuracy of outputs for each batch of the val_loader")
    left_out, counted = _counting(session)
    hits, counts = _answers(outputs, batches, counted)
    said, left = hits.numel(), int((~counts).sum())
    if not left or left == said:
        raise NotChecked("no position that the loss ignores")
    right = int((hits & counts).sum())
    plain = right / (said - left)
    ways = {
        "right": (right + left) / said, "wrong": right / said,
        "answers": float(hits.double().mean()),
    }  # fmt: skip
    for name, value in named.items():
        value = value / 100 if value > PERCENT else value
        way = next((k for k, v in ways.items() if abs(value - v) < ROUNDING), None)
        if way and abs(value - plain) > SAME_RATE:
            yield Finding(
                "metric-wrong", "warning",
                f"{name} = {value:.4g} counts {left} positions {left_out} as {way}, although the "
                f"loss ignores them; of the others {plain:.4g} are right.",
                {name: value, "recomputed": plain, "left_out": left, "positions": said},
                "hits = (predicted == targets)[kept]  # kept: positions that the loss counts",
            )  # fmt: skip
            return


Counted = Callable[[list[Tensor]], Tensor]
"""Which positions [B, T] the loss counts, of a batch's tensors."""


def _counting(session: Session) -> tuple[str, Counted]:
    """What the training's loss leaves out, in words, and what it counts.

    Raises:
        NotChecked: It has no padding mask, and there is no cross-entropy.
    """
    place = _mask_of_the_loss(session)
    if place is not None:
        return "of padding", lambda leaves: leaves[place].bool()
    losses = [e for e in session.loop.tape.of("loss")
              if e.graph and e.name == "cross_entropy" and e.call_again is not None]  # fmt: skip
    if not losses:
        raise NotChecked("no cross-entropy was seen")
    left_out = int(losses[0].call_again.keywords.get("ignore_index", -100))
    return f"with target {left_out}", lambda leaves: leaves[-1] != left_out


def _mask_of_the_loss(session: Session) -> int | None:
    """The place in a batch of a mask [B, T] of padding behind rows, where no output has a gradient
    and elsewhere all have one."""
    program = program_of(session)
    _, gradients = output_gradients(program, program.batches[0])
    for place, mask in enumerate(tensors_in(program.batches[0])):
        hidden = mask == 0
        if mask.dim() != 2 or not _is_mask(mask) or not only_behind(hidden):
            continue
        given = gradients[0] if len(gradients) == 1 else mask
        if given.dim() == 3 and given.shape[:2] == mask.shape:
            silent = (given == 0).all(2)
            return place if torch.equal(silent, hidden.cpu()) else None
    return None


def _is_mask(t: Tensor) -> bool:
    return bool(((t == 0) | (t == 1)).all())


def _answers(outputs: list[Tensor], batches: list, counted: Counted) -> tuple[Tensor, Tensor]:
    """Which answers are right, and which of them the loss counts."""
    hits, counts = [], []
    for output, batch in zip(outputs, batches, strict=True):
        leaves = [t.to(output.device) for t in tensors_in(batch)]
        targets = [t for t in leaves if not t.is_floating_point() and t.dim() == 2
                   and t.shape == output.shape[:2] and not _is_mask(t)]  # fmt: skip
        if output.dim() != 3 or not targets:
            raise NotChecked("outputs are not [B, T, C] with targets [B, T]")
        hits.append((output.argmax(2) == targets[-1]).flatten())
        counts.append(counted([*leaves, targets[-1]]).flatten())
    return torch.cat(hits), torch.cat(counts)


def _as_met(session: Session, seen: Evaluation) -> list[Event]:
    """What the training's loss of several labels would have met in evaluate(), which has none."""
    name = next((e.name for e in session.loop.tape.of("loss") if e.graph), "")
    outputs = [e.output for e in seen.tape.of("output") if e.call == 0]
    if name != "bce_with_logits" or len(outputs) != len(session.val_epoch.batches):
        return []
    targets = [session.place(pair(batch)[1]) for batch in session.val_epoch.batches]
    if any(a is None or a.numel() != b.numel() for a, b in zip(outputs, targets, strict=True)):
        return []
    return [Event("loss", 0, {"name": name, "inputs": a.reshape(b.shape), "targets": b})
            for a, b in zip(outputs, targets, strict=True)]  # fmt: skip


def _targets_of_a_pair(session: Session) -> Tensor | None:
    """Targets where batches are pairs: what is scored of several per row is then the author's."""
    try:
        return pair(session.val_epoch.batches[0] if session.val_epoch.batches else None)[1]
    except NotChecked:
        return None


def _ways(hits: list[Tensor]) -> list[float]:
    """The mean over all answers, over batches, and of rows that are right in every answer."""
    by_batch = [float(h.float().mean()) for h in hits]
    whole = torch.cat([h.flatten(1).all(1) if h.dim() > 1 else h for h in hits])
    every = torch.cat([h.flatten() for h in hits])
    return [float(every.float().mean()), sum(by_batch) / len(by_batch), float(whole.float().mean())]


def _hits(name: str, outputs: Tensor, targets: Tensor) -> Tensor | None:
    """Which counted targets are answered right; None where there are no classes."""
    if name != "cross_entropy":
        limit = 0.0 if name == "bce_with_logits" else YES
        same = outputs.shape == targets.shape
        return (outputs > limit) == (targets > YES) if same else None
    if targets.is_floating_point() or outputs.dim() != targets.dim() + 1:
        return None
    counted = targets >= 0
    return (outputs.argmax(1) == targets)[counted]
