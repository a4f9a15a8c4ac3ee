"""03b.overfit-batch: learn one batch by heart, and one that proves something."""

from __future__ import annotations

import torch
from torch import nn

from autograde.bank.harness import build_batches, draw_state, load_state, state_of
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_numbers
from course.engine import train_step

FEATURES, CLASSES, STEPS = 4, 3, 6


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, CLASSES))


def draw(source: Draw, part: str) -> Case:
    """Two batches of one class each, then mixed ones; in one part the first is mixed already.

    The first mixed one holds two classes, and a later one that is not the last all three.
    """
    sizes = [source.integer(4, 6) for _ in range(6)]
    batches = []
    for number, size in enumerate(sizes):
        targets = source.integers(CLASSES - 1, size)
        targets[0], targets[1] = 0, 1
        if number == 4:
            targets[2] = CLASSES - 1
        if number < 2 and part != "mixed":
            targets[:] = number
        batches.append({"inputs": source.normal(size, FEATURES), "targets": targets})
    if part == "small":  # one example cannot be told from one class
        batches[2] = {"inputs": source.normal(1, FEATURES), "targets": source.integers(CLASSES, 1)}
    return {"state": draw_state(source, _model()), "batches": batches,
            "lr": source.uniform(0.2, 0.4)}  # fmt: skip


def run(function, case: Case, device: torch.device) -> Answer:
    """The losses, one a step, and the weights after the last."""
    model = load_state(_model(), case["state"], device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9)
    batches = build_batches(case["batches"], device)
    returned = function(model, batches, nn.CrossEntropyLoss(), optimizer, STEPS)
    losses = as_numbers(returned, "losses", f"the {STEPS} losses, one a step")
    return {"losses": losses, "state": state_of(model)}


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


def another_batch_each_step(model, batches, criterion, optimizer, steps):
    mixed = [batch for batch in batches if len(batch[1].unique()) > 1]
    return [_repeat(model, mixed[i % len(mixed)], criterion, optimizer, 1)[0] for i in range(steps)]


def more_than_two_classes(model, batches, criterion, optimizer, steps):
    batch = next(batch for batch in batches if len(batch[1].unique()) > 2)
    return _repeat(model, batch, criterion, optimizer, steps)


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
    source='Lecture 1, "The debug ladder", rung 3; ledger C25, S17, F78',
    minutes=15,
    signature="overfit_one_batch(model, batches, criterion, optimizer, steps)",
    parts=(
        Part("losses", "the loss of each step", points=1, fields=("losses",)),
        Part("weights", "the weights after the last step", points=1, fields=("state",)),
        Part("mixed", "a first batch that is mixed already", points=1),
        Part("small", "a batch of one example on the way", points=1, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"losses": "the losses", "state": "after the last step,"},
    by_hand=(train_step,),
    wrong=(
        Wrong(
            "no-step",
            no_step,
            "The loss stands still: backward() and optimizer.step() are missing in the loop, or in "
            "the wrong order. First backward(), then step().",
        ),
        Wrong(
            "the-first-batch",
            the_first_batch,
            "The first batch holds one class only: a model that always answers this class has "
            "overfitted it. Take the first batch with at least two classes.",
        ),
        Wrong(
            "another-batch-each-step",
            another_batch_each_step,
            "Another batch came in each step: that is training. Choose one before the loop and "
            "stay with it.",
        ),
        Wrong(
            "more-than-two-classes",
            more_than_two_classes,
            "That is the first batch with three classes. Two are enough: no single answer is right "
            "for both. Ask for > 1, not for > 2.",
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
            "Those are the losses after each step. Give the one that the step was computed from: "
            "the first is then the untrained model's.",
        ),
        Wrong(
            "one-step-too-many",
            one_step_too_many,
            "That is one step more than asked for.",
        ),
    ),
    right=(with_unique, with_min_and_max, with_a_set),
)
