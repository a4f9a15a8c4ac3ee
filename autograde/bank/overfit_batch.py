"""03b.overfit-batch: overfit one batch, and one that proves something."""

from __future__ import annotations

import torch

from autograde.bank.common_wrong import TRAINS, common
from autograde.bank.harness import TRAINED, Training, draw_training
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_numbers, kept
from course.engine import train_step

FAINT = 0.01
"""Factor of a loss that is below the notebook's 0.05 before anything is learned."""


def draw(source: Draw, part: str) -> Case:
    """Batches of one class, two or three, then mixed ones; in one part the first is mixed already.

    The first mixed one holds two classes, and begins with two alike or ends as it begins. Two later
    ones hold three classes, and more if there are so many; the last holds two again.
    """
    sizes = [source.integer(4, 6) for _ in range(7)]
    if part == "mixed" and source.index == 1:
        sizes[0] = source.integer(9, 11)
    if part == "small":  # one example cannot be told from one class
        sizes[0] = 1
    case = draw_training(source, sizes, vary=part == "weights", across_batches=False)
    case["steps"] = source.integer(3, 6)
    case["faint"] = part == "weights" and source.index == 2
    first = 0 if part == "mixed" else 2 + source.index % 2
    for number, batch in enumerate(case["batches"]):
        targets = batch["targets"]
        targets[:] = number == 0  # not 0 alone first, which a loss may ignore
        if number == 1:  # and a class that is neither 0 nor 1
            targets[:] = case["layers"][-1] - 1
        if number == first:
            targets[1 if source.index % 2 else -1] = 1 - targets[0]
        elif number > first:
            targets[:] = source.choice((0, 1))
            targets[0], targets[1] = 0, 1
        if number == first and part == "weights" and source.index == 0:
            targets[2] = 2  # no batch of two classes alone comes first
        if number == first and part == "weights" and source.index == 1:
            targets[:] = case["layers"][-1] - 1 - targets  # neither 0 nor 1
        if number == 4:
            targets[-1] = case["layers"][-1] - 1
        if number == 5:
            targets[:] = torch.arange(len(targets)) % case["layers"][-1]
    return case


def run(function, case: Case, device: torch.device) -> Answer:
    """The losses, one per step, the weights after the last, and the mode they were trained in."""
    t, modes = Training(case, device), set()
    forwards: list[bool] = []
    used: list[str] = []
    handed = list(t.batches)  # an answer may change the list that it gets
    t.model.register_forward_pre_hook(lambda *_: forwards.append(t.model.training))
    t.model.register_forward_pre_hook(lambda _, args: used.append(_which(args[0], handed)))
    t.model.register_forward_pre_hook(
        lambda model, _: (
            modes.add("train" if model.training else "eval") if torch.is_grad_enabled() else None
        )
    )
    t.remember()
    criterion = t.criterion
    if case["faint"]:  # a loss that is small from the start says nothing about what is learned
        criterion = lambda logits, targets: FAINT * t.criterion(logits, targets)  # noqa: E731
    returned = function(t.model, t.batches, criterion, t.optimizer, case["steps"])
    what = f"the {case['steps']} losses, one per step"
    return {
        "losses": kept(as_numbers, returned, "losses", what),
        "state": t.state(),
        "modes": sorted(modes),
        "left": "train" if t.model.training else "eval",
        "forwards": sum(forwards),
        "used": ", ".join(sorted(set(used))),
        "disturbed": t.changed(TRAINED),
    }


def _which(inputs: torch.Tensor, batches: list) -> str:
    """The batch of these inputs, in words."""
    flat = inputs.detach().flatten()
    for number, (own, _) in enumerate(batches):
        if own.numel() == flat.numel() and torch.equal(own.flatten(), flat.to(own)):
            return f"batches[{number}]"
    return "inputs of no single batch"


def _first_mixed(batches):
    return next(batch for batch in batches if len(batch[1].unique()) > 1)


def reference(model, batches, criterion, optimizer, steps) -> list[float]:
    """The engine's step, on the first batch that holds two classes."""
    batch = _first_mixed(batches)
    return [train_step(model, [batch], criterion, optimizer).loss for _ in range(steps)]


def _repeat(model, batch, criterion, optimizer, steps):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = criterion(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def the_first_batch(model, batches, criterion, optimizer, steps):
    return _repeat(model, batches[0], criterion, optimizer, steps)


def more_than_0_or_1_alone(model, batches, criterion, optimizer, steps):
    mixed = (batch for batch in batches if batch[1].double().mean().item() not in (0.0, 1.0))
    return _repeat(model, next(mixed), criterion, optimizer, steps)


def another_batch_each_step(model, batches, criterion, optimizer, steps):
    mixed = [batch for batch in batches if len(batch[1].unique()) > 1]
    return [_repeat(model, mixed[i % len(mixed)], criterion, optimizer, 1)[0] for i in range(steps)]


def more_than_two_classes(model, batches, criterion, optimizer, steps):
    three = (batch for batch in batches if len(batch[1].unique()) > 2)
    return _repeat(model, next(three, batches[-1]), criterion, optimizer, steps)


def most_classes(model, batches, criterion, optimizer, steps):
    batch = max(batches, key=lambda batch: len(batch[1].unique()))
    return _repeat(model, batch, criterion, optimizer, steps)


def first_two_labels(model, batches, criterion, optimizer, steps):
    batch = next(b for b in batches if len(b[1]) > 1 and b[1][0] != b[1][1])
    return _repeat(model, batch, criterion, optimizer, steps)


def first_and_last_label(model, batches, criterion, optimizer, steps):
    batch = next(b for b in batches if b[1][0] != b[1][-1])
    return _repeat(model, batch, criterion, optimizer, steps)


def differs_from_the_first(model, batches, criterion, optimizer, steps):
    batch = next(b for b in batches if (b[1] != batches[0][1][0]).any())
    return _repeat(model, batch, criterion, optimizer, steps)


def largest_mixed(model, batches, criterion, optimizer, steps):
    mixed = [batch for batch in batches if len(batch[1].unique()) > 1]
    return _repeat(model, max(mixed, key=lambda b: len(b[1])), criterion, optimizer, steps)


def all_joined(model, batches, criterion, optimizer, steps):
    joined = [torch.cat(side) for side in zip(*batches, strict=True)]
    return _repeat(model, joined, criterion, optimizer, steps)


def in_eval_mode(model, batches, criterion, optimizer, steps):
    model.eval()
    return _repeat(model, _first_mixed(batches), criterion, optimizer, steps)


def two_classes_alone(model, batches, criterion, optimizer, steps):
    batch = next(batch for batch in batches if len(batch[1].unique()) == 2)
    return _repeat(model, batch, criterion, optimizer, steps)


def zero_and_one(model, batches, criterion, optimizer, steps):
    both = (batch for batch in batches if 0 in batch[1] and 1 in batch[1])
    return _repeat(model, next(both), criterion, optimizer, steps)


def zero_and_another(model, batches, criterion, optimizer, steps):
    batch = next(b for b in batches if (b[1] != 0).any() and (b[1] == 0).any())
    return _repeat(model, batch, criterion, optimizer, steps)


def left_in_eval_mode(model, batches, criterion, optimizer, steps):
    losses = _repeat(model, _first_mixed(batches), criterion, optimizer, steps)
    model.eval()
    return losses


def called_twice(model, batches, criterion, optimizer, steps):
    inputs, targets = _first_mixed(batches)
    losses = []
    for _ in range(steps):
        losses.append(criterion(model(inputs), targets).item())
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()
    return losses


def until_small(model, batches, criterion, optimizer, steps):
    losses = []
    for _ in range(steps):
        losses += _repeat(model, _first_mixed(batches), criterion, optimizer, 1)
        if losses[-1] < 0.05:
            break
    return losses


def one_forward_pass(model, batches, criterion, optimizer, steps):
    inputs, targets = _first_mixed(batches)
    loss, losses = criterion(model(inputs), targets), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        losses.append(loss.item())
    return losses


def the_last_mixed(model, batches, criterion, optimizer, steps):
    mixed = [batch for batch in batches if len(batch[1].unique()) > 1]
    return _repeat(model, mixed[-1], criterion, optimizer, steps)


def not_cleared(model, batches, criterion, optimizer, steps):
    inputs, targets = _first_mixed(batches)
    losses = []
    for _ in range(steps):
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def no_step(model, batches, criterion, optimizer, steps):
    inputs, targets = _first_mixed(batches)
    return [criterion(model(inputs), targets).item() for _ in range(steps)]


def loss_after_the_step(model, batches, criterion, optimizer, steps):
    batch = _first_mixed(batches)
    losses = []
    for _ in range(steps):
        _repeat(model, batch, criterion, optimizer, 1)
        losses.append(criterion(model(batch[0]), batch[1]).item())
    return losses


def one_step_too_many(model, batches, criterion, optimizer, steps):
    return _repeat(model, _first_mixed(batches), criterion, optimizer, steps + 1)


def first_batch_of_two_rows(model, batches, criterion, optimizer, steps):
    batch = next(batch for batch in batches if len(batch[1]) > 1)
    return _repeat(model, batch, criterion, optimizer, steps)


def empties_the_list(model, batches, criterion, optimizer, steps):
    while len(batches[0][1].unique()) < 2:
        batches.pop(0)
    return _repeat(model, batches[0], criterion, optimizer, steps)


def most_classes_sorted_first(model, batches, criterion, optimizer, steps):
    batches.sort(key=lambda batch: -len(batch[1].unique()))
    return _repeat(model, batches[0], criterion, optimizer, steps)


def with_unique(model, batches, criterion, optimizer, steps):
    index = 0
    while batches[index][1].unique().numel() < 2:
        index += 1
    inputs, targets = batches[index]
    losses = []
    for _ in range(steps):
        loss = criterion(model(inputs), targets)
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def with_min_and_max(model, batches, criterion, optimizer, steps):
    inputs, targets = next(b for b in batches if b[1].min() != b[1].max())
    history = []
    while len(history) < steps:
        model.zero_grad()
        loss = criterion(model(inputs), targets)
        history.append(float(loss))
        loss.backward()
        optimizer.step()
    return tuple(history)


def with_a_set(model, batches, criterion, optimizer, steps):
    chosen = None
    for batch in batches:
        if chosen is None and len(set(batch[1].tolist())) >= 2:
            chosen = batch
    return _repeat(model, chosen, criterion, optimizer, steps)


EXERCISE = Exercise(
    id="03b.overfit-batch",
    title="overfit one batch that proves something",
    source='Lecture 1, "The debug ladder", rung 3',
    ledger=("C25", "S17", "F78"),
    minutes=15,
    difficulty=2,
    read=("course.debug.climb", "F78"),
    hints=(
        "Two jobs: choose a batch, then repeat one training step on it.",
        "Choose before the loop: how many different classes does a batch hold? After that it is "
        "the usual training loop, with the same batch every time.",
        "inputs, targets = next(b for b in batches if len(b[1].unique()) > 1); then "
        "`steps` times: zero_grad(), loss, backward(), step(), "
        "losses.append(loss.item()).",
    ),
    signature="overfit_one_batch(model, batches, criterion, optimizer, steps)",
    parts=(
        Part("losses", "the loss of each step", points=1, fields=("losses",)),
        Part(
            "weights",
            "weights and mode, one forward pass per step, any loss and optimizer",
            points=1,
            cases=3,
            fields=("forwards", "used", "state", "modes", "left", "disturbed"),
        ),
        Part(
            "mixed",
            "a first batch that already has several classes",
            points=1,
            fields=("used", "state"),
        ),
        Part(
            "small",
            "a batch of one example among the others",
            points=1,
            fields=("used", "state"),
            hidden=True,
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "left": "the mode in which the model was left",
        "forwards": "the number of forward passes in train mode",
        "losses": "the losses",
        "used": "the batch that was used",
        "state": "after the last step,",
        "modes": "the model's mode during the steps",
    },
    by_hand=(train_step,),
    wrong=(
        Wrong(
            "no-step",
            no_step,
            "The loss does not change. The loop needs zero_grad(), the loss, backward() and "
            "step(), in this order.",
        ),
        Wrong(
            "the-first-batch",
            the_first_batch,
            "The first batch holds only one class: a model that always answers this class has "
            "already overfitted it. Take the first batch with at least two classes.",
        ),
        Wrong(
            "another-batch-each-step",
            another_batch_each_step,
            "Each step used a different batch, which is ordinary training. Choose one batch before "
            "the loop and stay with it.",
        ),
        Wrong(
            "more-than-two-classes",
            more_than_two_classes,
            "A batch of two classes was skipped in favour of one with three. Two are enough: no "
            "single answer is right for both.",
        ),
        Wrong(
            "most-classes",
            most_classes,
            "That is the batch with the most classes; the exercise asks for the first with at "
            "least two.",
        ),
        Wrong(
            "first-two-labels",
            first_two_labels,
            "A batch whose first two labels are equal was skipped, although it holds two classes. "
            "Look at all labels of a batch: len(targets.unique()) > 1.",
        ),
        Wrong(
            "first-and-last-label",
            first_and_last_label,
            "A batch that ends with the label it begins with was skipped, although it holds two "
            "classes. Look at all labels of a batch: len(targets.unique()) > 1.",
        ),
        Wrong(
            "in-eval-mode",
            in_eval_mode,
            "The model was in eval mode during the steps. It arrived in train mode: leave it "
            "there, or dropout and BatchNorm do not behave as they will in training.",
        ),
        Wrong(
            "two-classes-alone",
            two_classes_alone,
            "A batch of three classes was skipped in favour of one with two. Any number from two "
            "on will do: len(targets.unique()) > 1.",
            sure=True,
        ),
        Wrong(
            "zero-and-one",
            zero_and_one,
            "A batch of two other classes than 0 and 1 was skipped. Which classes they are does "
            "not matter: len(targets.unique()) > 1.",
            sure=True,
        ),
        Wrong("zero-and-one", zero_and_another, sure=True),
        Wrong(
            "left-in-eval-mode",
            left_in_eval_mode,
            "The model was left in eval mode. It arrived in train mode: leave it there.",
            sure=True,
        ),
        Wrong(
            "called-twice",
            called_twice,
            "The model was called more than once per step in train mode. Call it once, and use its "
            "output for the returned loss and for backward().",
            sure=True,
        ),
        Wrong("until-small", until_small),
        Wrong("differs-from-the-first", differs_from_the_first),
        Wrong("largest-mixed", largest_mixed),
        Wrong(
            "all-joined",
            all_joined,
            "All batches were joined into one. Choose a single batch: the first with at least two "
            "classes.",
        ),
        Wrong(
            "one-forward-pass",
            one_forward_pass,
            "backward() found that weights had changed since the forward pass. Each step needs a "
            "forward pass of its own: compute the loss inside the loop, then backward(), then "
            "step(). No graph has to be retained.",
            raises="^RuntimeError: .*modified by an inplace operation",
        ),
        Wrong(
            "the-last-mixed",
            the_last_mixed,
            "That is the last batch with two classes; the exercise asks for the first.",
        ),
        Wrong(
            "not-cleared",
            not_cleared,
            "The gradients of earlier steps add up: clear them in every step.",
        ),
        Wrong(
            "loss-after-the-step",
            loss_after_the_step,
            "Those are the losses after each step. Return the loss that each step was computed "
            "from, so that the first is the untrained model's.",
        ),
        Wrong(
            "one-step-too-many",
            one_step_too_many,
            "That is one step more than asked for.",
        ),
        Wrong("the-first-batch", first_batch_of_two_rows),
        Wrong(
            "list-changed",
            empties_the_list,
            "The list `batches` itself was changed, and the caller still needs it. Leave it as it "
            "is: go through it with a for loop, or work on a copy, list(batches).",
            sure=True,
        ),
        Wrong("list-changed", most_classes_sorted_first, sure=True),
        Wrong("more-than-0-or-1-alone", more_than_0_or_1_alone),
        *common(with_a_set, *TRAINS, alike={"global-optimizer": "no-step"}),
    ),
    right=(with_unique, with_min_and_max, with_a_set),
)
