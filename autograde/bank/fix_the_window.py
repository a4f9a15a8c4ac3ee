"""03d.fix-the-window: K for every window, a trailing window dropped, a ceiling per micro-batch."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_numbers, kept
from autograde.kinds.fix import change_size, variant

GIVEN = """
def fit_epoch(model, loader, criterion, optimizer, accum_steps, max_norm, ignore_index):
    batches, losses = list(loader), []
    for start in range(0, len(batches) - accum_steps + 1, accum_steps):
        window = batches[start : start + accum_steps]
        optimizer.zero_grad()
        total = 0.0
        for inputs, targets in window:
            loss = criterion(model(inputs), targets) / accum_steps
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
            total += loss.item()
        optimizer.step()
        losses.append(total)
    return losses
"""
MOST = 10
"""Lines that may differ: one changed, one moved, and three or four for the counts."""
FREE = 1e6
"""A ceiling that no gradient here reaches."""


def draw(source: Draw, part: str) -> Case:
    """Micro-batches in which only what the part asks about can be wrong.

    `shares`: full windows, unlike numbers of ignored targets. `trailing`: equal micro-batches, the
    last window short of one or two. `clip`: full windows of equal micro-batches, a low ceiling.
    """
    accum_steps, size, classes = source.integer(2, 3), source.integer(4, 6), source.integer(3, 5)
    everything = part == "little"
    short = part == "trailing" or everything
    num = 2 * accum_steps + (source.integer(1, accum_steps - 1) if short else 0)
    ignore_index = -100 if source.index else 0
    batches = []
    for number in range(num):
        rows = size + (number % 3 if everything else 0)
        targets = source.integers(classes - 1, rows) + 1  # never 0, which may be ignored
        if part in ("shares", "little"):
            ignored = (1, size - 1, 2)[number % 3]
            targets[source.shuffled(range(rows))[:ignored]] = ignore_index
        batches.append([source.normal(rows, 3), targets])
    return {
        "batches": batches,
        "weights": [source.normal(4, 3), source.normal(4), source.normal(classes, 4)],
        "accum_steps": accum_steps,
        "max_norm": source.uniform(0.05, 0.15) if part in ("clip", "little") else FREE,
        "ignore_index": ignore_index,
        "criterion": ("focal", "smoothing")[source.index],
        "optimizer": source.choice(["sgd", "momentum", "adam"]),
    }


class Focal(nn.Module):
    """A loss that is not in torch, its mean over the targets that are not ignored."""

    def __init__(self, ignore_index: int) -> None:
        super().__init__()
        self.ignored = ignore_index

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        counted = targets != self.ignored
        loss = F.cross_entropy(logits[counted], targets[counted], reduction="none")
        return ((1 - torch.exp(-loss)).square() * loss).mean()


def run(function, case: Case, device: torch.device) -> Answer:
    """The weights after the epoch, the number of updates, the losses, and the lines changed."""
    first, bias, last = case["weights"]
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, len(last), bias=False))
    for parameter, value in zip(model.parameters(), (first, bias, last), strict=True):
        parameter.data.copy_(value)
    model.to(device)
    options = {"lr": 0.3, "momentum": 0.9 if case["optimizer"] == "momentum" else 0.0}
    if case["optimizer"] == "adam":
        optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), 0.1, eps=0.01)
    else:
        optimizer = torch.optim.SGD(model.parameters(), **options)
    steps: list[int] = []
    optimizer.register_step_pre_hook(lambda *_: steps.append(1))
    called_on: list[int] = []
    model.register_forward_pre_hook(lambda _, args: called_on.append(len(args[0])))
    ignored = case["ignore_index"]
    criterion = nn.CrossEntropyLoss(ignore_index=ignored, label_smoothing=0.1)
    criterion = Focal(ignored) if case["criterion"] == "focal" else criterion
    loader = [(x.to(device), y.to(device)) for x, y in case["batches"]]
    handed = (case["accum_steps"], case["max_norm"], ignored)
    losses = function(model, loader, criterion, optimizer, *handed)
    return {
        "weights": [parameter.detach().cpu() for parameter in model.parameters()],
        "steps": len(steps),
        "losses": kept(as_numbers, losses, "losses", "the losses, one per window"),
        "joined": max(called_on, default=0) > max(len(x) for x, _ in loader),
        "changed": change_size(GIVEN, function, most=MOST),
    }


RANGE = "range(0, len(batches) - accum_steps + 1, accum_steps)"
CLEAR, TOTAL = "        optimizer.zero_grad()\n", "        total = 0.0\n"
CLIP = "            nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
STEP, LOSS = "        optimizer.step()\n", "criterion(model(inputs), targets)"
COUNT = "        count = sum((targets != ignore_index).sum().item() for _, targets in window)\n"
SHARE = "            share = (targets != ignore_index).sum().item() / count\n"
LINE = "            loss = "
BACKWARD, ADD = "            loss.backward()\n", "            total += loss.item()\n"
FIXED = GIVEN
for old, new in (
    (RANGE, "range(0, len(batches), accum_steps)"),
    (CLEAR, COUNT + CLEAR),
    (LINE, SHARE + LINE),
    ("targets) / accum_steps", "targets) * share"),
    (CLIP, ""),
    (STEP, CLIP[4:] + STEP),
):
    FIXED = FIXED.replace(old, new)

fixed = partial(variant, FIXED, __file__)
reference = fixed()
divided_by_k = fixed((" * share", " / accum_steps"))
divided_by_length = fixed((" * share", " / len(window)"))
share_of_examples = fixed(
    (COUNT, "        count = sum(len(targets) for _, targets in window)\n"),
    (SHARE, "            share = len(targets) / count\n"),
)
share_of_ignored = fixed(
    (COUNT, COUNT.replace("!=", "==").replace("sum((", "1e-9 + sum((")),
    (SHARE, SHARE.replace("!=", "==")),
)
window_joined = fixed(
    (COUNT, ""),
    ("        for inputs, targets in window:\n",
     "        inputs, targets = (torch.cat(side) for side in zip(*window, strict=True))\n"),
    (SHARE, ""), (LINE, LINE[4:]), (" * share", ""), (BACKWARD, BACKWARD[4:]), (ADD, ADD[4:]),
)  # fmt: skip
share_of_epoch = fixed((COUNT, COUNT.replace("in window", "in batches")))
in_full = fixed((" * share", ""))
trailing_dropped = fixed(("range(0, len(batches), accum_steps)", RANGE))
clipped_inside = fixed(
    (CLIP[4:] + STEP, STEP), ("            total +=", CLIP + "            total +=")
)
never_clipped = fixed((CLIP[4:], ""))
clipped_late = fixed((CLIP[4:] + STEP, STEP + CLIP[4:]))
clipped_to_one = fixed(("model.parameters(), max_norm", "model.parameters(), 1.0"))
by_tensor = fixed(
    (CLIP[4:], "        for p in model.parameters():\n"
     "            nn.utils.clip_grad_norm_(p, max_norm)\n"),
)  # fmt: skip
by_value = fixed(("clip_grad_norm_", "clip_grad_value_"))
cleared_inside = fixed((CLEAR, ""), (SHARE, "            optimizer.zero_grad()\n" + SHARE))
stepped_inside = fixed(
    (CLIP[4:] + STEP, ""),
    ("            total +=", CLIP + "    " + STEP + "            total +="),
)
never_cleared = fixed((CLEAR, ""))
mean_of_shares = fixed(("losses.append(total)", "losses.append(total / len(window))"))
last_of_window = fixed(("total += loss.item()", "total = loss.item()"))

single_dropped = fixed(("range(0, len(batches), ", "range(0, len(batches) - 1, "))
counts_so_far = fixed(
    (COUNT, "        count = 0\n"),
    (SHARE, "            count += (targets != ignore_index).sum().item()\n" + SHARE),
)
plain_mean = fixed(
    (LOSS + " * share", LOSS), ("loss.backward()", "(loss * share).backward()"),
    ("losses.append(total)", "losses.append(total / len(window))"),
)  # fmt: skip
examples_over_counted = fixed((SHARE, "            share = len(targets) / count\n"))
usual_index = fixed((COUNT, COUNT.replace("ignore_index", "-100")),
                    (SHARE, SHARE.replace("ignore_index", "-100")))  # fmt: skip
own_criterion = fixed((LOSS, "nn.functional.cross_entropy(model(inputs), targets, "
                       "ignore_index=ignore_index)"))  # fmt: skip
sum_of_means = fixed((LOSS + " * share", LOSS), ("loss.backward()", "(loss * share).backward()"))
ceiling_divided = fixed(("max_norm)\n", "max_norm / len(window))\n"))
clipped_at_the_end = fixed((CLIP[4:], ""), ("    return", CLIP[8:] + "    return"))
trailing_joined = fixed(
    ("range(0, len(batches), accum_steps)",
     "range(0, len(batches) - len(batches) % accum_steps, accum_steps)"),
    ("start + accum_steps]",
     "start + accum_steps if start + 2 * accum_steps <= len(batches) else None]"),
)  # fmt: skip

divided_late = fixed(
    (SHARE, "            weight = (targets != ignore_index).sum().item()\n"),
    (LOSS + " * share", LOSS + " * weight"),
    (CLIP[4:], CLIP[4:] + "        for p in model.parameters():\n            p.grad /= count\n"),
    ("losses.append(total)", "losses.append(total / count)"),
)
clipped_by_hand = fixed(
    (CLIP[4:], "        norm = torch.cat([p.grad.flatten() for p in model.parameters()]).norm()\n"
     "        for p in model.parameters():\n"
     "            p.grad.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))\n"),
)  # fmt: skip
only_the_range = partial(variant, GIVEN, __file__)(
    (RANGE, "range(0, len(batches), accum_steps)"),
)
only_the_ceiling = fixed((RANGE.replace(" - accum_steps + 1", ""), RANGE), (COUNT, ""), (SHARE, ""),
                         (" * share", " / accum_steps"))  # fmt: skip
never_divided = fixed(
    (SHARE, "            weight = (targets != ignore_index).sum().item()\n"),
    (LOSS + " * share", LOSS + " * weight"),
    ("losses.append(total)", "losses.append(total / count)"),
)
gradients_divided = fixed(
    (SHARE, "            weight = (targets != ignore_index).sum().item()\n"),
    (LOSS + " * share", LOSS + " * weight"),
    (CLIP[4:], "        for p in model.parameters():\n            p.grad /= count\n" + CLIP[4:]),
    ("losses.append(total)", "losses.append(total / count)"),
)
counts_listed = fixed(
    (COUNT, "        counts = [int(y.ne(ignore_index).sum()) for _, y in window]\n"),
    ("for inputs, targets in window:", "for n, (inputs, targets) in zip(counts, window):"),
    (SHARE, ""),
    (LOSS + " * share", "n / sum(counts) * " + LOSS),
)
joined_targets = fixed(
    (COUNT, "        joined = torch.cat([y for _, y in window])\n"
     "        count = (joined != ignore_index).sum().item()\n"),
)  # fmt: skip


EXERCISE = Exercise(
    id="03d.fix-the-window",
    title="a window that is not its batch",
    source='Lecture 3, "Simulating a big batch"; training-loop chapter, c7',
    kind="fix",
    ledger=("X05", "N47", "N55", "F43", "F39", "B26"),
    minutes=12,
    difficulty=3,
    read=("F43", "F39", "N19"),
    hints=(
        "One bug is in which windows there are, one in how much a micro-batch counts, one in when "
        "the gradient is clipped.",
        "Take five micro-batches and K = 2: which of them are never used? Over which targets does "
        "the criterion take its mean?",
        "Before the inner loop, count the targets of the whole window that are not ignore_index; "
        "multiply each loss by its own count over that total. Clip once, after the loop.",
    ),
    signature="fit_epoch(model, loader, criterion, optimizer, accum_steps, max_norm, ignore_index)",
    parts=(
        Part("shares", "windows with different numbers of ignored targets", points=1,
             fields=("weights",)),
        Part("trailing", "a last window with fewer micro-batches", points=1,
             fields=("weights", "steps")),
        Part("clip", "the ceiling, once per window", points=1, fields=("weights",)),
        Part("little", f"all of it and the losses, with at most {MOST} lines changed", points=1,
             fields=("weights", "steps", "losses", "joined", "changed")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "weights": "after the epoch, parameter (counted from 0) and place, the weight",
        "steps": "the number of optimizer.step() calls",
        "losses": "the losses: window (counted from 0)",
        "joined": "whether the model was called on several micro-batches at once",
        "changed": "the number of lines changed",
    },
    wrong=(
        Wrong("divided-by-k", divided_by_k,
              "Every loss was divided by accum_steps: a micro-batch with few valid targets counts "
              "as much as any other, and a short window's update is too small."),
        Wrong("divided-by-length", divided_by_length,
              "Every loss was divided by the number of micro-batches in its window: one with few "
              "valid targets has as much weight as one with many."),
        Wrong("share-of-examples", share_of_examples,
              "Each loss was weighted by its share of the examples. The criterion's mean is over "
              "the targets that are not ignored: count those."),
        Wrong("share-of-ignored", share_of_ignored,
              "Each loss was weighted by its share of the targets that are ignored. Count the "
              "others: targets != ignore_index."),
        Wrong("window-joined", window_joined,
              "The updates are right, but the model was called on the joined batch, which a window "
              "is there to avoid. Send each micro-batch through on its own.", sure=True),
        Wrong("share-of-epoch", share_of_epoch,
              "The weights moved as if the counts had been divided by that of the whole epoch. An "
              "update depends only on its own window."),
        Wrong("in-full", in_full,
              "Each loss entered unweighted: the gradient is the sum over the micro-batches' "
              "means."),
        Wrong("trailing-dropped", trailing_dropped,
              "The last window, which has fewer micro-batches, made no update.", sure=True),
        Wrong("clipped-inside", clipped_inside,
              "The weights moved as if the gradients had been clipped after each micro-batch. Clip "
              "the window's gradient, once."),
        Wrong("never-clipped", never_clipped,
              "The weights moved as if there were no ceiling. Clip once per window, after its last "
              "backward() and before step()."),
        Wrong("never-clipped", clipped_late),
        Wrong("clipped-to-one", clipped_to_one),
        Wrong("by-value", by_value,
              "The weights moved as if each number had been clipped separately. max_norm is a "
              "ceiling for the joint norm."),
        Wrong("by-tensor", by_tensor,
              "The weights moved as if each tensor had been clipped separately. max_norm is a "
              "ceiling for the joint norm."),
        Wrong("divided-late", divided_late,
              "The weights moved as if the gradients had been clipped first and then divided by "
              "the count. The ceiling is for the gradient of the mean: divide, then clip."),
        Wrong("only-the-range", only_the_range,
              "The last window makes an update now. Every loss is still divided by accum_steps, "
              "and the gradients are clipped after each micro-batch."),
        Wrong("only-the-ceiling", only_the_ceiling,
              "The window's gradient is clipped once now. Every loss is still divided by "
              "accum_steps, and the last window, if it is short, makes no update."),
        Wrong("never-divided", never_divided,
              "The gradient is the sum over a window's valid targets, not their mean. Divide each "
              "weight by the window's count before backward()."),
        Wrong("counts-so-far", counts_so_far,
              "Each loss was weighted by its count over the counts so far. Count the whole window "
              "before its first micro-batch."),
        Wrong("cleared-inside", cleared_inside,
              "The weights moved by each window's last micro-batch alone: the gradients of the "
              "others were cleared."),
        Wrong("stepped-inside", stepped_inside,
              "optimizer.step() came once per micro-batch. A window makes one update."),
        Wrong("never-cleared", never_cleared,
              "Gradients of earlier windows were mixed in. Clear before each window."),
        Wrong("examples-over-counted", examples_over_counted,
              "Each loss was weighted by its examples over the valid targets: if some are ignored, "
              "the shares of a window add up to more than 1."),
        Wrong("usual-index", usual_index,
              "Only targets of -100 were left out of the counts, but ignore_index is another "
              "number here."),
        Wrong("own-criterion", own_criterion,
              "The weights moved by plain cross_entropy. Call the criterion that is passed in: it "
              "is another loss."),
        Wrong("sum-of-means", sum_of_means,
              "The updates are right. The reported loss is the sum of the micro-batches' means: "
              "add up what entered backward()."),
        Wrong("plain-mean", plain_mean,
              "The updates are right. The reported loss is the plain mean of the micro-batches' "
              "means: add up what entered backward()."),
        Wrong("trailing-dropped", single_dropped),
        Wrong("ceiling-divided", ceiling_divided),
        Wrong("never-clipped", clipped_at_the_end),
        Wrong("trailing-joined", trailing_joined),
        Wrong("mean-of-shares", mean_of_shares,
              "The updates are right. The reported loss was divided by the number of "
              "micro-batches, though its parts are shares already."),
        Wrong("last-of-window", last_of_window,
              "The updates are right. The reported loss is the last micro-batch's share alone."),
    ),
    right=(gradients_divided, counts_listed, joined_targets, clipped_by_hand),
)  # fmt: skip
