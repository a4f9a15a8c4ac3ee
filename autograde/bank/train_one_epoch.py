"""03a.train-one-epoch: the operations of a training step, in the right order, for each batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from autograde.bank.harness import build_batches, draw_batches, draw_state, load_state, state_of
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number
from course.engine import train_one_epoch as engine_train_one_epoch
from course.engine import train_step

FEATURES, CLASSES = 4, 3


def _model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, CLASSES)
    )


def draw(source: Draw, part: str) -> Case:
    """Two or three full batches and a short one."""
    size = source.integer(6, 9)
    sizes = [size] * source.integer(2, 3) + [source.integer(2, 4)]
    return {
        "state": draw_state(source, _model()),
        "batches": draw_batches(source, sizes, FEATURES, CLASSES),
        "lr": source.uniform(0.1, 0.3),
        "train": part != "mode",
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """State after the epoch, the returned loss, and whether it still holds a graph."""
    model = load_state(_model(), case["state"], device).train(case["train"])
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9)
    batches = build_batches(case["batches"], device)
    returned = function(model, batches, nn.CrossEntropyLoss(), optimizer)
    return {
        "state": state_of(model),
        "loss": as_number(returned, "the mean loss of the epoch"),
        "graph": isinstance(returned, Tensor) and returned.requires_grad,
    }


def reference(model, loader, criterion, optimizer) -> float:
    """The engine's own."""
    return engine_train_one_epoch(model, loader, criterion, optimizer)


def _epoch(model, loader, criterion, optimizer, step) -> float:
    """Train mode, `step` on each batch, mean loss over the examples."""
    model.train()
    total = count = 0
    for inputs, targets in loader:
        total += step(inputs, targets).item() * len(targets)
        count += len(targets)
    return total / count


def not_cleared(model, loader, criterion, optimizer):
    def step(inputs, targets):
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    return _epoch(model, loader, criterion, optimizer, step)


def never_moves(model, loader, criterion, optimizer):
    def step(inputs, targets):
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
        return loss

    return _epoch(model, loader, criterion, optimizer, step)


def one_step_late(model, loader, criterion, optimizer):
    def step(inputs, targets):
        loss = criterion(model(inputs), targets)
        optimizer.step()
        optimizer.zero_grad()
        loss.backward()
        return loss

    return _epoch(model, loader, criterion, optimizer, step)


def _right_step(model, criterion, optimizer):
    def step(inputs, targets):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    return step


def no_train_mode(model, loader, criterion, optimizer):
    step, total, count = _right_step(model, criterion, optimizer), 0.0, 0
    for inputs, targets in loader:
        total += step(inputs, targets).item() * len(targets)
        count += len(targets)
    return total / count


def batch_means(model, loader, criterion, optimizer):
    model.train()
    step = _right_step(model, criterion, optimizer)
    return sum(step(inputs, targets).item() for inputs, targets in loader) / len(loader)


def last_loss(model, loader, criterion, optimizer):
    model.train()
    step = _right_step(model, criterion, optimizer)
    for inputs, targets in loader:
        loss = step(inputs, targets)
    return loss.item()


def sum_of_means(model, loader, criterion, optimizer):
    return batch_means(model, loader, criterion, optimizer) * len(loader)


def not_divided(model, loader, criterion, optimizer):
    mean = _epoch(model, loader, criterion, optimizer, _right_step(model, criterion, optimizer))
    return mean * sum(len(targets) for _, targets in loader)


def one_step_an_epoch(model, loader, criterion, optimizer):
    def step(inputs, targets):
        loss = criterion(model(inputs), targets)
        loss.backward()
        return loss

    optimizer.zero_grad()
    mean = _epoch(model, loader, criterion, optimizer, step)
    optimizer.step()
    return mean


def graph_kept(model, loader, criterion, optimizer):
    model.train()
    step = _right_step(model, criterion, optimizer)
    losses = [(step(inputs, targets), len(targets)) for inputs, targets in loader]
    return sum(loss * size for loss, size in losses) / sum(size for _, size in losses)


def plain_loop(model, loader, criterion, optimizer):
    return _epoch(model, loader, criterion, optimizer, _right_step(model, criterion, optimizer))


def cleared_after_the_step(model, loader, criterion, optimizer):
    model.train()
    total, count = torch.zeros(()), 0
    for inputs, targets in loader:
        logits = model(inputs)
        loss = criterion(logits, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        total = total.to(loss.device) + loss.detach() * targets.shape[0]
        count += targets.shape[0]
    return total / count


def cleared_before_backward(model, loader, criterion, optimizer):
    model.train()
    losses, sizes = [], []
    for batch in loader:
        loss = criterion(model(batch[0]), batch[1])
        for parameter in model.parameters():
            parameter.grad = None
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(float(loss))
        sizes.append(len(batch[1]))
    return sum(a * b for a, b in zip(losses, sizes, strict=True)) / sum(sizes)


EXERCISE = Exercise(
    id="03a.train-one-epoch",
    title="train one epoch",
    source='Training-loop chapter, "Anatomy of one step"; ledger C01, C02, C04, T14, F27-F29',
    minutes=15,
    signature="train_one_epoch(model, loader, criterion, optimizer)",
    parts=(
        Part("order", "the weights after the epoch", points=2, fields=("state",)),
        Part("loss", "the mean loss of the epoch", points=1, fields=("loss", "graph")),
        Part("mode", "a model that comes in eval mode", points=1, fields=("state",)),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "state": "after the epoch,",
        "loss": "the returned loss",
        "graph": "whether the returned loss still holds a graph",
    },
    by_hand=(engine_train_one_epoch, train_step),
    wrong=(
        Wrong(
            "not-cleared",
            not_cleared,
            "backward() adds to .grad, and nothing clears it, so each step uses the gradients of "
            "all batches before. Call optimizer.zero_grad() for each batch.",
        ),
        Wrong(
            "never-moves",
            never_moves,
            "No weight moved. Is there an optimizer.step() for each batch, after its backward(), "
            "and nothing between the two that clears the gradients?",
        ),
        Wrong(
            "one-step-late",
            one_step_late,
            "Each step used the gradient of the batch before: step() must come after backward(), "
            "not before it.",
        ),
        Wrong(
            "no-train-mode",
            no_train_mode,
            "The model came in eval mode and stayed in it, so BatchNorm did not learn and dropout "
            "would be off. Call model.train() first.",
        ),
        Wrong(
            "batch-means",
            batch_means,
            "The returned loss is the mean of the batches' means, in which a short last batch "
            "counts as much as a full one. Weigh each by len(targets).",
        ),
        Wrong(
            "last-loss",
            last_loss,
            "The training is right; the returned loss is the last batch's alone. Add up loss times "
            "examples over the loop, divide after it.",
        ),
        Wrong(
            "sum-of-means",
            sum_of_means,
            "The training is right; the returned loss is the sum of the batches' means. Multiply "
            "each by len(targets), and divide the sum by the number of examples.",
        ),
        Wrong(
            "not-divided",
            not_divided,
            "The training is right; the returned loss is a sum. Divide it by the number of "
            "examples.",
        ),
        Wrong(
            "one-step-an-epoch",
            one_step_an_epoch,
            "The weights moved once, after the last batch. optimizer.step() belongs inside the "
            "loop: one update for each batch.",
        ),
        Wrong(
            "graph-kept",
            graph_kept,
            "What was returned is a tensor that holds the graphs of all batches in "
            "memory. Add up loss.item() or loss.detach() instead.",
        ),
    ),
    right=(plain_loop, cleared_after_the_step, cleared_before_backward),
)
