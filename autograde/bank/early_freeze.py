"""03b.early-freeze: a curve that falls and then stands still for ever; mend the schedule."""

from __future__ import annotations

import torch
from torch import nn

from autograde.bank.harness import build_batches, draw_batches, draw_state, load_state, state_of
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_numbers
from course.engine import train_one_epoch

FEATURES, CLASSES = 4, 3


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, CLASSES))


def draw(source: Draw, part: str) -> Case:
    """Some batches, a schedule that counts epochs, a number of epochs."""
    sizes = [source.integer(4, 6) for _ in range(source.integer(3, 5))]
    return {
        "state": draw_state(source, _model()),
        "batches": draw_batches(source, sizes, FEATURES, CLASSES),
        "lr": source.uniform(0.1, 0.3),
        "epochs": source.integer(4, 6),
        "kind": "step" if part == "steps" else "cosine",
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The learning rate of each epoch, where the schedule ended, and the weights."""
    model = load_state(_model(), case["state"], device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"])
    make = torch.optim.lr_scheduler
    if case["kind"] == "step":
        scheduler = make.StepLR(optimizer, step_size=2, gamma=0.3)
    else:
        scheduler = make.CosineAnnealingLR(optimizer, T_max=case["epochs"])
    batches = build_batches(case["batches"], device)
    returned = function(model, batches, nn.CrossEntropyLoss(), optimizer, scheduler, case["epochs"])
    hint = "get_last_lr() gives a list: take [0]"
    return {
        "lrs": as_numbers(returned, "lrs", "the learning rates, one an epoch", hint=hint),
        "after": float(optimizer.param_groups[0]["lr"]),
        "state": state_of(model),
    }


def reference(model, loader, criterion, optimizer, scheduler, epochs) -> list[float]:
    """The engine's epoch, and the schedule after it."""
    lrs = []
    for _ in range(epochs):
        lrs.append(scheduler.get_last_lr()[0])
        train_one_epoch(model, loader, criterion, optimizer)
        scheduler.step()
    return lrs


def _update(model, inputs, targets, criterion, optimizer):
    optimizer.zero_grad()
    criterion(model(inputs), targets).backward()
    optimizer.step()


def still_planted(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        lrs.append(optimizer.param_groups[0]["lr"])
        for inputs, targets in loader:
            _update(model, inputs, targets, criterion, optimizer)
            scheduler.step()
    return lrs


def before_the_epoch(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        scheduler.step()
        lrs.append(optimizer.param_groups[0]["lr"])
        for inputs, targets in loader:
            _update(model, inputs, targets, criterion, optimizer)
    return lrs


def no_schedule(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        lrs.append(optimizer.param_groups[0]["lr"])
        for inputs, targets in loader:
            _update(model, inputs, targets, criterion, optimizer)
    return lrs


def rate_after(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        for inputs, targets in loader:
            _update(model, inputs, targets, criterion, optimizer)
        scheduler.step()
        lrs.append(optimizer.param_groups[0]["lr"])
    return lrs


def after_the_run(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = no_schedule(model, loader, criterion, optimizer, scheduler, epochs)
    scheduler.step()
    return lrs


def clearing_lost(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        lrs.append(optimizer.param_groups[0]["lr"])
        for inputs, targets in loader:
            criterion(model(inputs), targets).backward()
            optimizer.step()
        scheduler.step()
    return lrs


def with_the_group(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        lrs.append(optimizer.param_groups[0]["lr"])
        for inputs, targets in loader:
            _update(model, inputs, targets, criterion, optimizer)
        scheduler.step()
    return lrs


def with_last_lr(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = torch.zeros(epochs)
    for epoch in range(epochs):
        lrs[epoch] = scheduler.get_last_lr()[0]
        for batch in loader:
            loss = criterion(model(batch[0]), batch[1])
            model.zero_grad()
            loss.backward()
            optimizer.step()
        scheduler.step()
    return lrs


def counting_updates(model, loader, criterion, optimizer, scheduler, epochs):
    lrs, update = [], 0
    while update < epochs * len(loader):
        if update % len(loader) == 0:
            lrs.append(scheduler.get_last_lr()[0])
        inputs, targets = loader[update % len(loader)]
        _update(model, inputs, targets, criterion, optimizer)
        update += 1
        if update % len(loader) == 0:
            scheduler.step()
    return tuple(lrs)


EXERCISE = Exercise(
    id="03b.early-freeze",
    title="mend the loop behind a curve that freezes",
    source='Training-loop chapter, "Schedules"; ledger B06, C10, F35',
    minutes=10,
    signature="mended_fit(model, loader, criterion, optimizer, scheduler, epochs)",
    parts=(
        Part("rates", "the learning rate of each epoch", points=1, fields=("lrs",)),
        Part("weights", "the weights after the run", points=1, fields=("state",)),
        Part("steps", "a schedule in steps", points=1),
        Part(
            "end", "where the schedule stands at the end", points=1, fields=("after",), hidden=True
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "lrs": "the learning rates",
        "after": "the learning rate after the run",
        "state": "after the run,",
    },
    by_hand=(train_one_epoch,),
    wrong=(
        Wrong(
            "still-planted",
            still_planted,
            "The schedule still moves after every batch, and it counts epochs: after a few batches "
            "the rate is 0, or comes back up again. One scheduler.step() an epoch, outside the "
            "inner loop.",
        ),
        Wrong(
            "before-the-epoch",
            before_the_epoch,
            "The schedule moves before the epoch, so the first rate is never used. Train first, "
            "then scheduler.step().",
        ),
        Wrong(
            "clearing-lost",
            clearing_lost,
            "The rates are right; zero_grad() got lost, so the gradients of all batches add up.",
        ),
        Wrong(
            "rate-after",
            rate_after,
            "Those are the rates after each epoch. Give the one that the epoch was trained with: "
            "note it before the loop over the batches.",
        ),
        Wrong(
            "no-schedule",
            no_schedule,
            "The rate stays where it began: scheduler.step() is never called inside the epochs' "
            "loop. Once an epoch, after its batches.",
        ),
        Wrong(
            "after-the-run",
            after_the_run,
            "The schedule moved once, after all epochs. It wants one step after each.",
        ),
    ),
    right=(with_the_group, with_last_lr, counting_updates),
)
