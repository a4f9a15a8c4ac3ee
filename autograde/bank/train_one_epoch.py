"""03a.train-one-epoch: the operations of a training step, in the right order, for each batch."""

from __future__ import annotations

import torch

from autograde.bank.common_wrong import TRAINS, common
from autograde.bank.harness import TRAINED, Training, draw_training
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number, kept
from course.engine import train_one_epoch as engine_train_one_epoch
from course.engine import train_step

LONG_AND_WIDE = 3
"""Index of the case in which nothing is small: some 45 batches, and more than 5000 weights."""
WIDE = 1200
"""Units of its hidden layer."""


def draw(source: Draw, part: str) -> Case:
    """Full batches and a short one; for the loss also a last batch of a single example. The last
    case of the weights is an epoch of many batches through a wide model."""
    if part == "order" and source.index == LONG_AND_WIDE:
        sizes = [2] * source.integer(42, 45) + [1]
        case = draw_training(source, sizes, widths=(WIDE,))
        return {**case, "lr": source.uniform(0.001, 0.002), "dtype": "float64", "train": True}
    size = source.integer(4, 7)
    sizes = [size] * source.integer(2, 3) + [source.integer(2, 3)]
    if part == "loss" and source.index == 1:
        sizes[-1] = 1  # BatchNorm takes no batch of one
    case = draw_training(
        source,
        sizes,
        vary=part == "order",
        norm=sizes[-1] > 1,
        held=part == "order",
        loader="DataLoader" if source.index == 1 else "list",
    )
    return {**case, "train": part != "mode"}


def run(function, case: Case, device: torch.device) -> Answer:
    """State after the epoch and the returned loss."""
    t = Training(case, device, train=case["train"])
    returned = function(t.model, t.loader, t.criterion, t.optimizer)
    return {
        "state": t.state(),
        "disturbed": t.changed(TRAINED),
        "in_eval": "eval for at least one module" if False in t.modes else "train",
        "loss": kept(as_number, returned, "the mean loss of the epoch"),
    }


def reference(model, loader, criterion, optimizer) -> float:
    """The engine's own."""
    return engine_train_one_epoch(model, loader, criterion, optimizer)


def _epoch(model, loader, step) -> float:
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

    return _epoch(model, loader, step)


def never_moves(model, loader, criterion, optimizer):
    def step(inputs, targets):
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
        return loss

    return _epoch(model, loader, step)


def one_step_late(model, loader, criterion, optimizer):
    def step(inputs, targets):
        loss = criterion(model(inputs), targets)
        optimizer.step()
        optimizer.zero_grad()
        loss.backward()
        return loss

    return _epoch(model, loader, step)


def one_step_per_epoch(model, loader, criterion, optimizer):
    def step(inputs, targets):
        loss = criterion(model(inputs), targets)
        loss.backward()
        return loss

    optimizer.zero_grad()
    mean = _epoch(model, loader, step)
    optimizer.step()
    return mean


def train_forgotten(model, loader, criterion, optimizer):
    total = count = 0
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(targets)
        count += len(targets)
    return total / count


def means_over_examples(model, loader, criterion, optimizer):
    model.train()
    total = count = 0
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += loss.item()
        count += len(targets)
    return total / count


def not_divided(model, loader, criterion, optimizer):
    return plain_loop(model, loader, criterion, optimizer) * sum(len(y) for _, y in loader)


def _reporting(total):
    """The right updates; `total(sum over the examples, loader)` is returned."""

    def epoch(model, loader, criterion, optimizer):
        return total(not_divided(model, loader, criterion, optimizer), loader)

    return epoch


divided_by_batches = _reporting(lambda total, loader: total / len(loader))
as_if_all_were_full = _reporting(
    lambda total, loader: total / (len(loader) * len(next(iter(loader))[1]))
)
as_if_all_were_the_last = _reporting(
    lambda total, loader: total / (len(loader) * len(list(loader)[-1][1]))
)
asks_for_its_data_set = _reporting(lambda total, loader: total / len(loader.dataset))
asks_for_its_batch_size = _reporting(lambda total, loader: total / (loader.batch_size * 9))


def times_its_examples(model, loader, criterion, optimizer):
    def step(inputs, targets):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        (loss * len(targets)).backward()
        optimizer.step()
        return loss

    return _epoch(model, loader, step)


def thaws_what_was_frozen(model, loader, criterion, optimizer):
    model.requires_grad_(True)
    return plain_loop(model, loader, criterion, optimizer)


def seeds_by_itself(model, loader, criterion, optimizer):
    torch.manual_seed(0)
    return plain_loop(model, loader, criterion, optimizer)


def _with_loss(change):
    """The right loop with another loss."""

    def epoch(model, loader, criterion, optimizer):
        def loss_of(logits, targets):
            return change(criterion, logits, targets)

        return plain_loop(model, loader, loss_of, optimizer)

    return epoch


softmax_first = _with_loss(lambda criterion, z, y: criterion(z.softmax(dim=1), y))


def always_the_first(model, loader, criterion, optimizer):
    first = next(iter(loader))
    return plain_loop(model, [first for _ in loader], criterion, optimizer)


def loss_after_the_step(model, loader, criterion, optimizer):
    def step(inputs, targets):
        optimizer.zero_grad()
        criterion(model(inputs), targets).backward()
        optimizer.step()
        with torch.no_grad():
            return criterion(model(inputs), targets)

    return _epoch(model, loader, step)


def clipped(model, loader, criterion, optimizer):
    def step(inputs, targets):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        return loss

    return _epoch(model, loader, step)


def plain_loop(model, loader, criterion, optimizer):
    def step(inputs, targets):
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    return _epoch(model, loader, step)


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
    source='Training-loop chapter, "Anatomy of one step"',
    ledger=("C01", "C02", "C04", "T14", "F27", "F28", "F29"),
    minutes=15,
    difficulty=1,
    read=("course.engine.train_one_epoch", "N09", "N10"),
    hints=(
        "Each batch takes five operations. Say them aloud, then write one line for each.",
        "The weights depend on the order: clear, forward, loss, backward, step. The mean depends "
        "on the size of each batch.",
        "model.train(); then for each batch zero_grad(), loss = criterion(model(inputs), "
        "targets), backward(), step(), and total += loss.item() * len(targets). Divide "
        "the total by the number of examples after the loop.",
    ),
    signature="train_one_epoch(model, loader, criterion, optimizer)",
    parts=(
        Part(
            "order",
            "the weights after the epoch, with any criterion and optimizer",
            points=2,
            cases=4,
            fields=("state", "disturbed"),
        ),
        Part("loss", "the mean loss of the epoch", points=1, cases=3, fields=("loss",)),
        Part("mode", "a model that arrives in eval mode", points=1, fields=("in_eval", "state")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "state": "after the epoch,",
        "loss": "the returned loss",
        "in_eval": "the modules' mode during the forward passes",
    },
    by_hand=(engine_train_one_epoch, train_step),
    wrong=(
        Wrong(
            "not-cleared",
            not_cleared,
            "The weights are those of a loop in which the gradients of all batches add up: "
            "backward() adds to .grad. Call optimizer.zero_grad() for each batch.",
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
            "backward() found that something it needs had been changed since the forward pass. Is "
            "there an optimizer.step() between the two? It comes after backward().",
            raises="^RuntimeError: .*modified by an inplace operation",
        ),
        Wrong(
            "times-its-examples",
            times_its_examples,
            "The weights are those of a loop that multiplies each loss by its number of examples "
            "before backward(). Call backward() on the loss as the criterion returns it, and "
            "multiply only for the reported mean.",
        ),
        Wrong(
            "asks-the-list",
            asks_for_its_data_set,
            "The loader was a plain list, which lacks the attributes of a DataLoader. Count the "
            "examples in the loop: num_examples += len(targets).",
            raises="^AttributeError: 'list' object has no attribute '(dataset|batch_size)'",
        ),
        Wrong(
            "asks-the-list",
            asks_for_its_batch_size,
            raises="^AttributeError: 'list' object has no attribute '(dataset|batch_size)'",
        ),
        Wrong(
            "divided-by-batches",
            divided_by_batches,
            "A sum over the examples was divided by the number of batches. If each batch's mean is "
            "multiplied by len(targets), divide by the number of examples.",
        ),
        Wrong(
            "as-if-all-were-full",
            as_if_all_were_full,
            "The sum over the examples was divided as if every batch were as long as the first. "
            "The last is shorter: add up len(targets) in the loop.",
        ),
        Wrong(
            "as-if-all-were-the-last",
            as_if_all_were_the_last,
            "The sum over the examples was divided as if every batch were as long as the last. "
            "After the loop, `targets` is still the last batch's: add up len(targets) in the loop.",
        ),
        Wrong(
            "train-forgotten",
            train_forgotten,
            "The model arrived in eval mode and was trained in it. Call model.train() before the "
            "loop.",
        ),
        Wrong(
            "means-over-examples",
            means_over_examples,
            "The batch means were added up and divided by the number of examples. Multiply each "
            "batch's mean by its size first.",
        ),
        Wrong(
            "not-divided",
            not_divided,
            "The returned loss is a sum over the examples. Divide it by the number of examples.",
        ),
        Wrong(
            "one-step-per-epoch",
            one_step_per_epoch,
            "The weights moved once, after the last batch. optimizer.step() belongs inside the "
            "loop: one update for each batch.",
        ),
        Wrong(
            "thaws-what-was-frozen",
            thaws_what_was_frozen,
            "A parameter with requires_grad False was trained anyway: the loop must not change "
            "requires_grad.",
            sure=True,
        ),
        Wrong("seeds-by-itself", seeds_by_itself),
        Wrong(
            "softmax-first",
            softmax_first,
            "The criterion was given softmax(logits). cross_entropy applies softmax itself, and "
            "another criterion may expect logits too: pass it the model's output as it is.",
        ),
        Wrong(
            "always-the-first",
            always_the_first,
            "Every step used the first batch. next(iter(loader)) starts again each time: write for "
            "inputs, targets in loader.",
        ),
        Wrong(
            "loss-after-the-step",
            loss_after_the_step,
            "The returned loss comes from a second forward pass after the step, which also moves "
            "BatchNorm's statistics again. Add up the loss that backward() was called on.",
        ),
        Wrong("clipped", clipped),
        *common(
            plain_loop,
            *TRAINS,
            *("batch-means", "sum-of-means", "last-value", "first-value"),
            *("returns-graph", "first-batch-only", "last-batch-missing", "first-batch-missing"),
            alike={"global-optimizer": "never-moves"},
        ),
    ),
    right=(plain_loop, cleared_after_the_step, cleared_before_backward),
)
