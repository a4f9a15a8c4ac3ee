"""Relations on the weights in a loss: rare classes weigh more, and each row has its own weight."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import OFTEN
from course.debug.relations.joining import read_by_the_model
from course.debug.relations.program import Program, changed, program_of
from course.debug.relations.steps import close
from course.state.nested import tensors_in

TURNED = 1.4
"""Ratio of a weight and the one that would be turned over, up to which it is taken for that."""
RARER, HEAVIER = 1.5, 1.2
"""Ratios of two classes' frequencies, and of their weights, from which their order means something:
rounding and smoothed counts stay below."""

POWERS = (1.0, 0.5)
"""Weights of classes are one over their counts, or over the roots of these."""
FITS = 0.02
"""Largest distance of logarithms of weights from such a rule that rounding and a few examples held
out make; three or more weights of another origin do not all come so near."""
LEAST_CLASSES = 3
"""Classes of which weights in another order are told from weights turned over."""
LEAST_ROWS = 8
"""Rows of a batch among which weights are dealt out in another order."""
EXACT = 1e-5
"""Relative change of a loss whose terms are only added in another order."""
TWICE = 2.0
MOST_ITEMS, MOST_CLASSES = 4096, 50
"""Examples that are read one by one to count their classes, and classes there may be."""
RARE_YES = 0.35
"""Share of the rarer answer below which it should not weigh less."""


def each_its_own(session: Session) -> Iterator[Finding]:
    """Weights of rows that scale the loss belong to their own rows: permuted, they change the loss.

    If they multiply a mean loss, only their mean counts. Lengths by which the loss is divided do
    not scale it.
    """
    program = program_of(session)
    batch, read = program.batches[0], read_by_the_model(session)
    rows = {len(t) for call in program.first().calls for t in call.tensors if t.dim()}
    met = [e.targets for e in program.first().losses]
    columns = [
        t for n, t in enumerate(tensors_in(batch))
        if n not in read and t.is_floating_point() and t.dim() and len(t) == t.numel() in rows
        and len(t) >= LEAST_ROWS and float(t.std()) > 0
        and not any(t.shape == m.shape and torch.equal(t, m.to(t.device)) for m in met)
    ]  # fmt: skip
    if not columns:
        raise NotChecked("no column of a batch could be weights of its rows")
    base = program.steady_loss(batch)
    for column in columns:
        if not close(_cost(program, batch, column, TWICE * column), TWICE * base, EXACT):
            continue
        if all(close(_cost(program, batch, column, column.roll(by, 0)), base, EXACT)
               for by in (1, len(column) // 2)):  # fmt: skip
            yield Finding(
                "weighed-after-the-mean", "warning",
                f"Twice the weights of {len(column)} rows double the loss, but it does not matter "
                "which row has which weight: the losses were averaged before they were weighted.",
                {"rows": len(column), "loss": base, "mean_weight": float(column.mean())},
                'each = F.cross_entropy(logits, y, reduction="none")\n'
                "loss = (weight * each).mean()",
            )  # fmt: skip
            return


def _cost(program: Program, batch: object, column: Tensor, new: Tensor) -> float:
    return program.step(changed(batch, lambda t: new if t is column else t)).loss


def classes(session: Session) -> Iterator[Finding]:
    """If classes are weighted, a rarer one weighs no less than a more frequent one."""
    weighed = [e for e in program_of(session).first().losses if e.info.get("weight") is not None]
    if not weighed:
        raise NotChecked("no torch loss gets class weights")
    event = weighed[0]
    weight = event.weight.flatten().double()
    if event.name == "bce_with_logits":
        raise NotChecked("weights of positive and negative answers, not of classes")
    counts = torch.zeros(len(weight), dtype=torch.double)
    like = [t for b in session.epoch.batches for t in tensors_in(b)
            if t.dtype == event.targets.dtype and t.dim() == event.targets.dim()
            and t.numel() and int(t.min()) >= 0 and int(t.max()) < len(weight)]  # fmt: skip
    for t in like:
        counts += torch.bincount(t.flatten(), minlength=len(weight)).double()
    known = (counts > 0) & (weight > 0)
    if int(known.sum()) < 2:
        raise NotChecked("fewer than two classes are weighted")
    counts, weight = counts[known], weight[known]
    often, rare = int(counts.argmax()), int(counts.argmin())
    if counts[often] > RARER * counts[rare] and weight[often] > HEAVIER * weight[rare]:
        yield Finding(
            "class-weights-inverted", "warning",
            f"The most frequent class has {counts[often] / counts[rare]:.3g} times the examples of "
            f"the rarest, and {weight[often] / weight[rare]:.3g} times its weight: rare classes "
            "should weigh more, not less.",
            {"examples": [int(counts[often]), int(counts[rare])],
             "weights": [float(weight[often]), float(weight[rare])]},
            "weight = 1 / class_counts  # not class_counts; then weight / weight.mean()",
        )  # fmt: skip
    elif session.epoch.whole and (off := _of_another_class(counts, weight)) > RARER:
        yield Finding(
            "class-weights-inverted", "warning",
            "The weights are those that the counts of the classes ask for, but of other classes: "
            f"sorted, they match the sorted counts {[int(c) for c in counts.sort().values]} "
            f"exactly; in the classes' own order they are off by up to {off:.3g} times.",
            {"examples": counts.tolist(), "weights": weight.tolist(), "off": off},
            "counts = Counter(labels)  # most_common() is by count\n"
            "weight = 1 / torch.tensor([counts[k] for k in range(num_classes)])",
        )  # fmt: skip


def _of_another_class(counts: Tensor, weight: Tensor) -> float:
    """By how many times weights are off that follow the counts exactly when both are sorted; 1 if
    they do not."""
    often, heavy = counts.log(), weight.log()
    for power in POWERS if len(counts) >= LEAST_CLASSES else ():
        rest = heavy.sort(descending=True).values + power * often.sort().values
        if float(rest.max() - rest.min()) < FITS:
            return math.exp(float((heavy + power * often - rest.mean()).abs().max()))
    return 1.0


def positives(session: Session) -> Iterator[Finding]:
    """pos_weight is negatives over positives, not the inverse."""
    events = [e for e in session.loop.tape.of("loss")
              if e.graph and e.call_again is not None
              and e.call_again.keywords.get("pos_weight") is not None]  # fmt: skip
    if not events:
        raise NotChecked("no torch loss gets a pos_weight")
    weight = events[0].call_again.keywords["pos_weight"].flatten().double().cpu()
    answers = torch.cat([e.targets.double().flatten(1) if e.targets.dim() > 1
                         else e.targets.double()[:, None] for e in events]).cpu()  # fmt: skip
    yes = answers.mean(0) if weight.numel() == answers.shape[1] else answers.mean()[None]
    known = (yes > 0) & (yes < 1) & (weight > 0)
    if not bool(known.any()) or len(weight) != len(yes):
        raise NotChecked("no column has both answers")
    rarer = ((1 - yes) / yes).log()[known]
    heavier = weight.log()[known]
    telling = rarer.abs() > math.log(RARER)
    turned = telling & ((rarer + heavier).abs() < math.log(TURNED))
    if int(turned.sum()) > OFTEN * int(telling.sum()) > 0:
        place = int(turned.nonzero()[0])
        yield Finding(
            "class-weights-inverted", "warning",
            f"{float(yes[known][place]):.0%} of the answers are positive, and a positive weighs "
            f"{float(weight[known][place]):.3g}: pos_weight is positives over negatives but should "
            "be negatives over positives.",
            {"share_of_yes": float(yes[known][place]), "pos_weight": float(weight[known][place])},
            "pos_weight = (y == 0).sum() / (y == 1).sum()",
        )  # fmt: skip
    elif len(weight) == int(known.sum()) and (off := _of_another_column(session, weight)) > RARER:
        yield Finding(
            "class-weights-inverted", "warning",
            "Each label's pos_weight is the negatives over the positives of another label: sorted, "
            f"they match exactly; in the labels' own order they are off by up to {off:.3g} times.",
            {"pos_weight": weight.tolist(), "off": off},
            "pos_weight = (y == 0).sum(0) / (y == 1).sum(0)  # in the order of the columns of y",
        )  # fmt: skip


def _of_another_column(session: Session, weight: Tensor) -> float:
    """The same of the weights of positive answers, one for each column of 0 and 1 in the data."""
    rows = [t for b in session.epoch.batches for t in tensors_in(b)
            if t.dim() == 2 and t.shape[1] == len(weight) and _is_yes_or_no(t)]  # fmt: skip
    if len(rows) != len(session.epoch.batches) or not session.epoch.whole:
        return 1.0
    yes = torch.cat(rows).double().mean(0).cpu()
    inside = bool(((yes > 0) & (yes < 1)).all())
    return _of_another_class(yes / (1 - yes), weight) if inside else 1.0


def drawn(session: Session) -> Iterator[Finding]:
    """A weighted sampler draws an example of a rare class no less often than any other."""
    loader = session.setup.train_loader
    sampler, data = getattr(loader, "sampler", None), getattr(loader, "dataset", None)
    weights = getattr(sampler, "weights", None)
    if weights is None or not hasattr(data, "__len__") or len(weights) != len(data):
        raise NotChecked("no sampler with a weight for each example")
    if len(data) > MOST_ITEMS:
        raise NotChecked("too many examples to read one by one")
    with session.observe():
        classes = [_class_of(data[index]) for index in range(len(data))]
    names, numbers = torch.tensor(classes).unique(return_inverse=True)
    if not 2 <= len(names) <= MOST_CLASSES:
        raise NotChecked("examples have no classes to count")
    weight = torch.as_tensor(weights).double().cpu()
    counts = torch.bincount(numbers).double()
    each = torch.zeros(len(names)).double().index_add(0, numbers, weight) / counts
    often, rare = int(counts.argmax()), int(counts.argmin())
    if counts[often] > RARER * counts[rare] and each[often] > HEAVIER * each[rare]:
        yield Finding(
            "class-weights-inverted", "warning",
            "The sampler draws an example of the most frequent class "
            f"{each[often] / each[rare]:.3g} times as often as one of the rarest (there are "
            f"{int(counts[rare])} against {int(counts[often])}): rare classes get even rarer.",
            {"examples": [int(counts[often]), int(counts[rare])],
             "weights": [float(each[often]), float(each[rare])]},
            "weights = (1 / class_counts)[labels]  # not class_counts[labels]",
        )  # fmt: skip
    elif bool((each > 0).all()) and (off := _of_another_class(counts, each)) > RARER:
        yield Finding(
            "class-weights-inverted", "warning",
            "The sampler's weights are those that the counts of the classes ask for, but of other "
            "classes: sorted, they match the sorted counts exactly; in the classes' own order they "
            f"are off by up to {off:.3g} times.",
            {"examples": counts.tolist(), "weights": each.tolist(), "off": off},
            "weights = (1 / torch.bincount(labels))[labels]  # counts in the classes' order",
        )  # fmt: skip


def _class_of(item: object) -> int:
    """The one whole number of an item.

    Raises:
        NotChecked: There is none, or several.
    """
    found = [
        leaf for leaf in tree_leaves(item)
        if type(leaf) is int
        or (isinstance(leaf, Tensor) and leaf.numel() == 1 and not leaf.is_floating_point())
    ]  # fmt: skip
    if len(found) != 1:
        raise NotChecked("items do not hold one class each")
    return int(found[0])


def answers(session: Session) -> Iterator[Finding]:
    """If positives are rare, a hand-written loss weights them no less than negatives.

    Checked with undecided outputs: the loss if all answers are positive, negative, or half of each.
    A loss for which half is not the mean of the other two, such as Dice, is not judged.
    """
    program = program_of(session)
    if program.first().losses and any(e.graph and e.reduction != "none"
                                      for e in program.first().losses):  # fmt: skip
        raise NotChecked("a torch loss is judged by its own weights")
    batch, shares = program.batches[0], []
    columns = [t for t in tensors_in(batch) if _is_yes_or_no(t)]
    if len(columns) != 1 or any(len([t for t in tensors_in(b) if _is_yes_or_no(t)]) != 1
                                for b in program.batches):  # fmt: skip
        raise NotChecked("batches do not hold one column of 0 and 1")
    for b in program.batches:
        shares += [float(t.double().mean()) for t in tensors_in(b) if _is_yes_or_no(t)]
    yes = sum(shares) / len(shares)
    if not RARE_YES > min(yes, 1 - yes) > 0:
        raise NotChecked("neither answer is rare")
    (column,) = columns
    half = (torch.arange(column.numel()) % 2).to(column).reshape(column.shape)
    costs = [
        _undecided(program, changed(batch, lambda t, new=new: new if t is column else t))
        for new in (torch.ones_like(column), torch.zeros_like(column), half)
    ]
    share = float(half.double().mean())
    mean = costs[0] * share + costs[1] * (1 - share)
    if not all(math.isfinite(c) and c > 0 for c in costs) or not close(costs[2], mean, EXACT):
        raise NotChecked("the loss is not a mean over answers")
    rare, often = (costs[0], costs[1]) if yes < 1 / 2 else (costs[1], costs[0])
    if often > HEAVIER * rare:
        yield Finding(
            "class-weights-inverted", "warning",
            f"{yes:.0%} of the answers are positive; if the model is undecided, the loss is "
            f"{costs[0]:.3g} for a positive and {costs[1]:.3g} for a negative: the rare answer "
            "weighs less, not more.",
            {"share_of_yes": yes, "cost_of_yes": costs[0], "cost_of_no": costs[1]},
            "alpha = torch.where(y > 0, 1 - share_of_yes, share_of_yes)",
        )  # fmt: skip


def _is_yes_or_no(tensor: Tensor) -> bool:
    return tensor.numel() >= LEAST_ROWS and bool(((tensor == 0) | (tensor == 1)).all())


def _undecided(program: Program, batch: object) -> float:
    """What a batch costs where the model's outputs are all 0, or one half where they are shares.

    Raises:
        NotChecked: The model gives more than one output.
    """

    def neither(_: object, args: object, output: object) -> object:
        (first, *more) = tensors_in(output)
        if more or not first.is_floating_point():
            raise NotChecked("the model gives more than one output")
        shares = bool(((first >= 0) & (first <= 1)).all())
        return changed(output, lambda t: 0 * t + (1 / 2 if shares else 0))

    def listen() -> None:  # before the step: what is hooked earlier, the snapshot takes away
        program.model.register_forward_hook(neither)

    return program.step(batch, prepare=listen).loss
