"""03b.early-freeze: a loss curve that falls and then stops for good; fix the schedule."""

from __future__ import annotations

import torch

from autograde.bank.common_wrong import TRAINS, common
from autograde.bank.harness import TRAINED, Training, draw_training
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_numbers, kept
from course.engine import train_one_epoch


def draw(source: Draw, part: str) -> Case:
    """Some batches, a schedule that counts epochs, and more epochs than the notebook's four."""
    sizes = [source.integer(2, 4) for _ in range(source.integer(3, 4))]
    case = draw_training(source, sizes, vary=part == "weights", across_batches=False)
    kinds = {"steps": ("steps", "linear")}.get(part, ("cosine", "steps", "linear"))
    if part == "rates" and source.index == 1:
        case["optimizer"] = "groups"
    case["moved"] = part == "rates" and source.index == 2
    return {**case, "epochs": source.integer(5, 6), "schedule": kinds[source.index % len(kinds)]}


def run(function, case: Case, device: torch.device) -> Answer:
    """The learning rate of each epoch, where the schedule ended, and the weights."""
    t, schedules = Training(case, device), torch.optim.lr_scheduler
    make = {
        "cosine": lambda o: schedules.CosineAnnealingLR(o, T_max=case["epochs"]),
        "steps": lambda o: schedules.StepLR(o, step_size=2, gamma=0.3),
        "linear": lambda o: schedules.LinearLR(o, 0.25, total_iters=case["epochs"] - 1),
    }
    scheduler = make[case["schedule"]](t.optimizer)
    if case["moved"]:  # an epoch was trained before
        t.optimizer.step()
        scheduler.step()
    t.remember()
    given = (t.model, t.batches, t.criterion, t.optimizer, scheduler, case["epochs"])
    returned = function(*given)
    hint = "get_last_lr() gives a list: take [0]"
    return {
        "lrs": kept(as_numbers, returned, "lrs", "the learning rates, one per epoch", hint=hint),
        "after": float(t.optimizer.param_groups[0]["lr"]),
        "state": t.state(),
        "in_eval": "eval for at least one module" if False in t.modes else "train",
        "disturbed": t.changed(TRAINED - {"modes"} | {"options"}),
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


def every_fourth_epoch(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for epoch in range(epochs):
        lrs += no_schedule(model, loader, criterion, optimizer, scheduler, 1)
        if (epoch + 1) % 4 == 0:
            scheduler.step()
    return lrs


def own_decay(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for epoch in range(epochs):
        lrs += no_schedule(model, loader, criterion, optimizer, scheduler, 1)
        if (epoch + 1) % 4 == 0:
            for group in optimizer.param_groups:
                group["lr"] *= 0.3
    return lrs


def from_the_first_on(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for epoch in range(epochs):
        lrs += no_schedule(model, loader, criterion, optimizer, scheduler, 1)
        if epoch % 4 == 0:
            scheduler.step()
    return lrs


def every_second_epoch(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for epoch in range(epochs):
        lrs += no_schedule(model, loader, criterion, optimizer, scheduler, 1)
        if epoch % 2 == 1:
            scheduler.step()
    return lrs


def in_eval_mode(model, loader, criterion, optimizer, scheduler, epochs):
    model.eval()
    lrs = []
    for _ in range(epochs):
        lrs += no_schedule(model, loader, criterion, optimizer, scheduler, 1)
        scheduler.step()
    model.train()
    return lrs


def counts_again(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for epoch in range(epochs):
        lrs += no_schedule(model, loader, criterion, optimizer, scheduler, 1)
        scheduler.step(epoch + 1)
    return lrs


def every_fourth_batch(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        lrs.append(optimizer.param_groups[0]["lr"])
        for number, (inputs, targets) in enumerate(loader):
            _update(model, inputs, targets, criterion, optimizer)
            if number % 4 == 3:
                scheduler.step()
    return lrs


def not_after_the_last(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for epoch in range(epochs):
        lrs += no_schedule(model, loader, criterion, optimizer, scheduler, 1)
        if epoch < epochs - 1:
            scheduler.step()
    return lrs


def not_after_the_first(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for epoch in range(epochs):
        lrs += no_schedule(model, loader, criterion, optimizer, scheduler, 1)
        if epoch:
            scheduler.step()
    return lrs


def of_the_last_group(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        lrs.append(optimizer.param_groups[-1]["lr"])
        no_schedule(model, loader, criterion, optimizer, scheduler, 1)
        scheduler.step()
    return lrs


def base_rate(model, loader, criterion, optimizer, scheduler, epochs):
    with_the_group(model, loader, criterion, optimizer, scheduler, epochs)
    return [scheduler.base_lrs[0]] * epochs


def noted_then_moved(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        lrs.append(optimizer.param_groups[0]["lr"])
        for number, (inputs, targets) in enumerate(loader):
            if number == 0:
                scheduler.step()
            _update(model, inputs, targets, criterion, optimizer)
    return lrs


def rate_of_each_batch(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        for inputs, targets in loader:
            lrs.append(optimizer.param_groups[0]["lr"])
            _update(model, inputs, targets, criterion, optimizer)
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


def cleared_per_epoch(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        lrs.append(optimizer.param_groups[0]["lr"])
        optimizer.zero_grad()
        for inputs, targets in loader:
            criterion(model(inputs), targets).backward()
            optimizer.step()
        scheduler.step()
    return lrs


def left_in_eval(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = with_the_group(model, loader, criterion, optimizer, scheduler, epochs)
    model.eval()
    return lrs


def stepped_per_epoch(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        lrs.append(optimizer.param_groups[0]["lr"])
        for inputs, targets in loader:
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
        optimizer.step()
        scheduler.step()
    return lrs


def before_the_last_update(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        lrs.append(optimizer.param_groups[0]["lr"])
        for number, (inputs, targets) in enumerate(loader):
            optimizer.zero_grad()
            criterion(model(inputs), targets).backward()
            if number == len(loader) - 1:
                scheduler.step()
            optimizer.step()
    return lrs


def after_the_first_batch(model, loader, criterion, optimizer, scheduler, epochs):
    lrs = []
    for _ in range(epochs):
        lrs.append(optimizer.param_groups[0]["lr"])
        for number, (inputs, targets) in enumerate(loader):
            _update(model, inputs, targets, criterion, optimizer)
            if number == 0:
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
    title="fix the loop behind a frozen curve",
    source='Training-loop chapter, "Schedules"',
    ledger=("B24", "F59", "N27", "C31"),
    minutes=10,
    difficulty=1,
    read=("F59", "N27"),
    hints=(
        "Print the learning rate after every batch of the first epoch, and compare it with the "
        "intended schedule.",
        "Two loops, two units: which of them does the schedule count?",
        "Move scheduler.step() out of the loop over batches, to the end of the loop over epochs; "
        "record the rate before the batches.",
    ),
    signature="fixed_fit(model, loader, criterion, optimizer, scheduler, epochs)",
    parts=(
        Part("rates", "the learning rate of each epoch", points=1, cases=3, fields=("lrs",)),
        Part(
            "weights",
            "the weights after the run, with any criterion and optimizer",
            points=1,
            cases=3,
            fields=("state", "in_eval", "disturbed"),
        ),
        Part("steps", "other schedules", points=1, fields=("state",)),
        Part(
            "end", "the state of the schedule at the end", points=1, fields=("after",), hidden=True
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "lrs": "the learning rates",
        "after": "the learning rate after the run",
        "in_eval": "the modules' mode during the forward passes",
        "state": "after the run,",
    },
    by_hand=(train_one_epoch,),
    wrong=(
        Wrong(
            "still-planted",
            still_planted,
            "The schedule counts epochs, but it still moves after every batch: after a few batches "
            "the rate is 0, or rises again. One scheduler.step() per epoch, outside the inner "
            "loop.",
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
            "The rates are right, but zero_grad() got lost, so the gradients of all batches add "
            "up.",
        ),
        Wrong(
            "cleared-per-epoch",
            cleared_per_epoch,
            "The rates are right, but zero_grad() is called once per epoch, so the gradients of an "
            "epoch's batches add up. Call it for each batch.",
        ),
        Wrong(
            "rate-after",
            rate_after,
            "Those are the rates after each epoch. Return the rate that the epoch was trained "
            "with: record it before the loop over batches.",
        ),
        Wrong(
            "no-schedule",
            no_schedule,
            "All epochs have the rate of the first. Is there a scheduler.step() inside the loop "
            "over epochs, once per epoch, after its batches?",
        ),
        Wrong("no-schedule", after_the_run),
        Wrong(
            "every-fourth-epoch",
            every_fourth_epoch,
            "The schedule stood still until the end of the fourth epoch. A scheduler does its own "
            "counting (StepLR up to its step_size): call scheduler.step() after every epoch.",
        ),
        Wrong(
            "own-decay",
            own_decay,
            "The rate was multiplied by 0.3 after the fourth epoch, but the schedules here have "
            "other factors and lengths. Call step() of the scheduler that is passed in.",
        ),
        Wrong(
            "not-after-the-last",
            not_after_the_last,
            "Only the step after the last epoch is missing, so the next call would begin with a "
            "rate that has already been used.",
            sure=True,
        ),
        Wrong(
            "not-after-the-first",
            not_after_the_first,
            "The first two epochs have the same rate: scheduler.step() was not called after the "
            "first. Call it after every epoch.",
        ),
        Wrong(
            "of-the-last-group",
            of_the_last_group,
            "When the optimizer has two groups, the rates are those of the last. Return those of "
            "the first: param_groups[0].",
            sure=True,
        ),
        Wrong(
            "base-rate",
            base_rate,
            "The weights are right, but all rates returned are the one that the run began with. "
            "Record param_groups[0]['lr'] in each epoch.",
        ),
        Wrong(
            "noted-then-moved",
            noted_then_moved,
            "The returned rates are right, but each epoch was trained with the next epoch's rate: "
            "the schedule moved before the first update of the epoch. Train first, then "
            "scheduler.step().",
        ),
        Wrong(
            "rate-of-each-batch",
            rate_of_each_batch,
            "There is one rate per batch; the exercise asks for one per epoch. Record it before "
            "the loop over batches.",
        ),
        Wrong(
            "from-the-first-on",
            from_the_first_on,
            "The schedule moved after the first epoch, then stood still until the end of the "
            "fifth. Call scheduler.step() after every epoch, without an if.",
        ),
        Wrong(
            "every-second-epoch",
            every_second_epoch,
            "The schedule moved after every second epoch. Call scheduler.step() after each.",
        ),
        Wrong(
            "in-eval-mode",
            in_eval_mode,
            "The rates and weights are right, but batches went through the model in eval mode, in "
            "which dropout is off and BatchNorm learns no statistics. The model arrives in train "
            "mode: leave it there.",
            sure=True,
        ),
        Wrong(
            "counts-again",
            counts_again,
            "A schedule that had already moved before the call started again from the beginning. "
            "Call scheduler.step() without a number: it does its own counting.",
            sure=True,
        ),
        Wrong("every-fourth-batch", every_fourth_batch),
        Wrong("left-in-eval", left_in_eval),
        Wrong(
            "stepped-per-epoch",
            stepped_per_epoch,
            "The rates are right, but the weights moved only once per epoch, by the last batch's "
            "gradient. Call optimizer.step() in every batch, scheduler.step() in every epoch.",
        ),
        Wrong(
            "before-the-last-update",
            before_the_last_update,
            "The returned rates are right, but the last batch of each epoch was trained with the "
            "next epoch's rate. Call scheduler.step() after the loop over the batches.",
        ),
        Wrong(
            "after-the-first-batch",
            after_the_first_batch,
            "The returned rates are right, but all batches except the first of each epoch were "
            "trained with the next epoch's rate. Call scheduler.step() after the loop over the "
            "batches.",
        ),
        *common(
            with_the_group,
            *(name for name in TRAINS if name not in ("changes-lr", "own-optimizer")),
            *("first-batch-only", "last-batch-missing", "first-batch-missing"),
        ),
    ),
    right=(with_the_group, with_last_lr, counting_updates),
)
