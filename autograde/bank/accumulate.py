"""03a.accumulate: one update from micro-batches, the same as from one joined batch."""

from __future__ import annotations

import weakref

import torch
from torch import nn

from autograde.bank.harness import build_batches, draw_batches, draw_state, load_state, state_of
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number
from course.engine import train_one_epoch, train_step

FEATURES, CLASSES = 4, 3


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, CLASSES))


def draw(source: Draw, part: str) -> Case:
    """Micro-batches as the part asks for, weights and a learning rate."""
    size = source.integer(3, 5)
    sizes = {
        "equal": [size] * source.integer(2, 4),
        "short": [size, size, source.integer(1, 2)],
        "stale": [size, size],
        "many": [source.integer(1, 6) for _ in range(4)] + [7],
    }[part]
    model = _model()
    return {
        "state": draw_state(source, model),
        "micro_batches": draw_batches(source, sizes, FEATURES, CLASSES),
        "lr": source.uniform(0.1, 0.5),
        "stale": [source.normal(*p.shape) for p in model.parameters()] if part == "stale" else [],
    }


class _Graph:
    """Stands for the graph of one forward pass: a hook of the graph holds it."""


def run(function, case: Case, device: torch.device) -> Answer:
    """Weights after the call, the returned loss, and the sizes of the batches the model saw.

    `piled_up` tells whether a forward pass began while two earlier graphs waited for their
    backward(). One may wait: it does no harm before the next.
    """
    model = load_state(_model(), case["state"], device)
    for parameter, grad in zip(model.parameters(), case["stale"], strict=False):
        parameter.grad = grad.to(device)
    sizes: list[int] = []
    waiting: weakref.WeakSet[_Graph] = weakref.WeakSet()  # a graph that is dropped leaves by itself
    piled_up = []

    def before(_model, args):
        sizes.append(len(args[0]))
        piled_up.append(len(waiting) > 1)

    def after(_model, _args, logits):
        if logits.grad_fn is not None:
            graph = _Graph()
            waiting.add(graph)
            logits.grad_fn.register_hook(lambda *_: waiting.discard(graph))

    model.register_forward_pre_hook(before)
    model.register_forward_hook(after)
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"])
    micro_batches = build_batches(case["micro_batches"], device)
    returned = function(model, micro_batches, nn.CrossEntropyLoss(), optimizer)
    return {
        "weights": state_of(model),
        "loss": as_number(returned, "the mean loss of all examples"),
        "sizes": sorted(sizes),
        "piled_up": any(piled_up),
    }


def reference(model, micro_batches, criterion, optimizer) -> float:
    """The engine's own step."""
    return train_step(model, micro_batches, criterion, optimizer).loss


def _accumulate(model, micro_batches, criterion, optimizer, scale, *, clear_inside=False) -> float:
    """The right order with another factor on each loss; the wrong ones below vary it."""
    total = 0.0
    optimizer.zero_grad()
    for inputs, targets in micro_batches:
        if clear_inside:
            optimizer.zero_grad()
        loss = criterion(model(inputs), targets) * scale(targets)
        loss.backward()
        total += loss.item()
    return total


def _share(micro_batches):
    num_examples = sum(len(targets) for _, targets in micro_batches)
    return lambda targets: len(targets) / num_examples


def _mean_loss(model, micro_batches, criterion) -> float:
    with torch.no_grad():
        share = _share(micro_batches)
        return sum(criterion(model(x), y).item() * share(y) for x, y in micro_batches)


def not_divided(model, micro_batches, criterion, optimizer):
    total = _accumulate(model, micro_batches, criterion, optimizer, lambda _: 1.0)
    optimizer.step()
    return total / len(micro_batches)


def mean_of_means(model, micro_batches, criterion, optimizer):
    optimizer.zero_grad()
    share, total = _share(micro_batches), 0.0
    for inputs, targets in micro_batches:
        loss = criterion(model(inputs), targets)
        (loss * share(targets)).backward()
        total += loss.item()
    optimizer.step()
    return total / len(micro_batches)


def divided_by_k(model, micro_batches, criterion, optimizer):
    accum_steps = len(micro_batches)
    total = _accumulate(model, micro_batches, criterion, optimizer, lambda _: 1 / accum_steps)
    optimizer.step()
    return total


def cleared_inside(model, micro_batches, criterion, optimizer):
    share = _share(micro_batches)
    total = _accumulate(model, micro_batches, criterion, optimizer, share, clear_inside=True)
    optimizer.step()
    return total


def stepped_inside(model, micro_batches, criterion, optimizer):
    share, total = _share(micro_batches), 0.0
    for inputs, targets in micro_batches:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += loss.item() * share(targets)
    return total


def never_stepped(model, micro_batches, criterion, optimizer):
    return _accumulate(model, micro_batches, criterion, optimizer, _share(micro_batches))


def not_cleared(model, micro_batches, criterion, optimizer):
    share, total = _share(micro_batches), 0.0
    for inputs, targets in micro_batches:
        loss = criterion(model(inputs), targets) * share(targets)
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


def joined(model, micro_batches, criterion, optimizer):
    inputs, targets = (torch.cat(parts) for parts in zip(*micro_batches, strict=True))
    optimizer.zero_grad()
    loss = criterion(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


def one_backward(model, micro_batches, criterion, optimizer):
    optimizer.zero_grad()
    share = _share(micro_batches)
    loss = sum(criterion(model(x), y) * share(y) for x, y in micro_batches)
    loss.backward()
    optimizer.step()
    return loss.item()


def last_loss(model, micro_batches, criterion, optimizer):
    optimizer.zero_grad()
    share = _share(micro_batches)
    for inputs, targets in micro_batches:
        loss = criterion(model(inputs), targets)
        (loss * share(targets)).backward()
    optimizer.step()
    return loss.item()


def last_share(model, micro_batches, criterion, optimizer):
    optimizer.zero_grad()
    share = _share(micro_batches)
    for inputs, targets in micro_batches:
        loss = criterion(model(inputs), targets) * share(targets)
        loss.backward()
    optimizer.step()
    return loss.item()


def weighted_losses(model, micro_batches, criterion, optimizer):
    total = _accumulate(model, micro_batches, criterion, optimizer, _share(micro_batches))
    optimizer.step()
    return total


def sums_then_scaled_gradients(model, micro_batches, criterion, optimizer):
    num_examples, total = 0, 0.0
    optimizer.zero_grad(set_to_none=False)
    for inputs, targets in micro_batches:
        loss = criterion(model(inputs), targets) * len(targets)
        loss.backward()
        num_examples += len(targets)
        total = total + loss.detach()
    for parameter in model.parameters():
        parameter.grad /= num_examples
    optimizer.step()
    return total / num_examples


def gradients_added_by_hand(model, micro_batches, criterion, optimizer):
    parameters = list(model.parameters())
    sums = [torch.zeros_like(parameter) for parameter in parameters]
    sizes = [targets.shape[0] for _, targets in micro_batches]
    losses = []
    for (inputs, targets), size in zip(micro_batches, sizes, strict=True):
        loss = criterion(model(inputs), targets)
        for total, grad in zip(sums, torch.autograd.grad(loss, parameters), strict=True):
            total.add_(grad, alpha=size / sum(sizes))
        losses.append(float(loss) * size)
    for parameter, grad in zip(parameters, sums, strict=True):
        parameter.grad = grad
    optimizer.step()
    optimizer.zero_grad()
    return sum(losses) / sum(sizes)


EXERCISE = Exercise(
    id="03a.accumulate",
    title="accumulate gradients over micro-batches",
    source='Lecture 3, "Simulating a big batch"; ledger X05, C06, N19, F43',
    minutes=15,
    signature="accumulate(model, micro_batches, criterion, optimizer)",
    parts=(
        Part("equal", "micro-batches of equal size", points=1),
        Part("short", "a shorter last micro-batch", points=1),
        Part("stale", "gradients left over from before", points=1),
        Part("many", "micro-batches of any sizes", points=1, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "weights": "after the step",
        "loss": "the returned loss",
        "sizes": "the model saw batches of other sizes:",
        "piled_up": "whether the graphs of several micro-batches were held at once",
    },
    by_hand=(train_step, train_one_epoch),
    wrong=(
        Wrong(
            "mean-of-means",
            mean_of_means,
            "The update is right; the returned loss is the mean of the micro-batches' means, in "
            "which a short one counts as much as a full one. Weigh each by len(targets) / "
            "num_examples here too.",
        ),
        Wrong(
            "not-divided",
            not_divided,
            "Each loss counts in full, so the gradient is K times too long. Multiply each loss by "
            "its share of the examples before backward().",
        ),
        Wrong(
            "divided-by-k",
            divided_by_k,
            "Dividing by K makes a short micro-batch count as much as a full one. Weigh each loss "
            "by its number of examples: len(targets) / num_examples.",
        ),
        Wrong(
            "cleared-inside",
            cleared_inside,
            "Only the last micro-batch arrived: zero_grad() inside the loop erases the others. "
            "Call it once, before the loop.",
        ),
        Wrong(
            "stepped-inside",
            stepped_inside,
            "That is one update for each micro-batch. Let the gradients add up in the loop and "
            "call optimizer.step() once, after it.",
        ),
        Wrong(
            "never-stepped",
            never_stepped,
            "No weight moved: is there a backward() for each micro-batch, and one "
            "optimizer.step() after them?",
        ),
        Wrong(
            "not-cleared",
            not_cleared,
            "Gradients of an earlier step are mixed in: backward() adds to .grad. Call "
            "optimizer.zero_grad() before the first micro-batch.",
        ),
        Wrong(
            "joined",
            joined,
            "Right numbers, but the model saw the big batch that does not fit in memory. Send "
            "each micro-batch through on its own.",
        ),
        Wrong(
            "one-backward",
            one_backward,
            "Right numbers, but one backward() at the end keeps the graphs of all micro-batches "
            "until then, as much memory as the big batch. Call backward() on each loss in the "
            "loop: it frees its graph.",
        ),
        Wrong(
            "last-loss",
            last_loss,
            "The update is right; the returned loss is the last micro-batch's alone. Add up the "
            "weighted losses of all of them.",
        ),
        Wrong(
            "last-share",
            last_share,
            "The update is right; the returned loss is the last micro-batch's share of it. Add "
            "the shares up over the loop.",
        ),
    ),
    right=(weighted_losses, sums_then_scaled_gradients, gradients_added_by_hand),
)
