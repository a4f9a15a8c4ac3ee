"""03a.fix-the-loop: three bugs in a loop that trains and validates."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_numbers
from autograde.kinds.fix import change_size, variant

GIVEN = """
def fit(model, train_loader, val_loader, criterion, optimizer, epochs):
    model.train()
    val_losses = []
    for _ in range(epochs):
        for inputs, targets in train_loader:
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.zero_grad()
            optimizer.step()
        model.eval()
        total, num_examples = 0.0, 0
        with torch.no_grad():
            for inputs, targets in val_loader:
                total += criterion(model(inputs), targets).item()
                num_examples += len(targets)
        val_losses.append(total / num_examples)
    return val_losses
"""
MOST = 10
"""Lines that may differ: three bugs take one or two each, another way to add up a few more."""


def draw(source: Draw, part: str) -> Case:
    """Batches of unlike size; only what the part asks about can be wrong."""
    sizes = [source.integer(3, 6) for _ in range(source.integer(2, 3))]

    def batch(size: int) -> list:
        return [source.normal(size, 4), source.integers(3, size)]

    return {
        "train": [batch(size) for size in sizes],
        "val": [batch(source.integer(5, 7)), batch(source.integer(1, 2))],
        "weight": source.normal(3, 4, scale=0.5),
        "momentum": source.choice([0.0, 0.9]),
        "lr": 0.0 if part == "loss" else 0.3,
        "epochs": 1 if part == "weights" else 3,
        "running": part != "loss",
        "smoothing": source.choice([0.0, 0.2]),
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The weights, the modes of training and validation batches, and the report."""
    linear = nn.Linear(4, 3, bias=False)
    norm = nn.BatchNorm1d(4, affine=False, momentum=0.1 if case["running"] else 0.0)
    model = nn.Sequential(norm, linear).to(device)
    linear.weight.data.copy_(case["weight"])
    train, val = ([(x.to(device), y.to(device)) for x, y in case[k]] for k in ("train", "val"))
    criterion = nn.CrossEntropyLoss(label_smoothing=case["smoothing"])
    optimizer = torch.optim.SGD(model.parameters(), case["lr"], momentum=case["momentum"])
    model.eval()
    modes: dict[bool, list[bool]] = {True: [], False: []}  # of batches with a graph, and without
    norm.register_forward_pre_hook(lambda *_: modes[torch.is_grad_enabled()].append(norm.training))
    losses = function(model, train, val, criterion, optimizer, case["epochs"])
    return {
        "weights": linear.weight.detach().cpu(),
        "train_modes": ["train" if training else "eval" for training in modes[True]],
        "val_modes": "train" if any(modes[False]) else "eval",
        "losses": as_numbers(losses, "val_losses", "the validation losses, one per epoch"),
        "changed": change_size(GIVEN, function, most=MOST),
    }


CLEAR, STEP = "            optimizer.zero_grad()\n", "            optimizer.step()\n"
BACKWARD = "            loss.backward()\n"
EPOCHS, TRAIN = "    for _ in range(epochs):\n", "        model.train()\n"
MEAN = "criterion(model(inputs), targets).item()"
FIXED = GIVEN
for old, new in (
    ("    model.train()\n", ""),
    (EPOCHS, EPOCHS + TRAIN),
    (BACKWARD + CLEAR, CLEAR + BACKWARD),
    (MEAN, f"{MEAN} * len(targets)"),
):
    FIXED = FIXED.replace(old, new)

fixed = partial(variant, FIXED, __file__)
reference = fixed()
cleared_too_early = fixed((CLEAR + BACKWARD, BACKWARD + CLEAR))
never_cleared = fixed((CLEAR, ""))
train_mode_once = fixed((EPOCHS + TRAIN, "    model.train()\n" + EPOCHS))
means_over_examples = fixed((" * len(targets)", ""))
mean_of_batch_means = fixed((" * len(targets)", ""), ("+= len(targets)", "+= 1"))
train_mode_too_late = fixed((TRAIN, ""), ("/ num_examples)\n", "/ num_examples)\n" + TRAIN))
cleared_per_epoch = fixed((CLEAR, ""), (TRAIN, TRAIN + "        optimizer.zero_grad()\n"))
one_epoch_only = fixed(("    return", "        return"))
weighted_over_batches = fixed(("total / num_examples", "total / len(val_loader)"))
weighted_by_the_last_size = fixed(
    ("total / num_examples", "total / (len(val_loader) * len(targets))")
)
in_train_mode_again = fixed(
    (EPOCHS + TRAIN, "    model.train()\n" + EPOCHS),
    ("        model.eval()\n", "        model.eval()\n" + TRAIN),
)
scored_in_train_mode = fixed(("        model.eval()\n", ""))

never_in_train_mode = fixed((TRAIN, ""))
not_divided = fixed(("total / num_examples", "total"))
with_a_graph = fixed(("with torch.no_grad():", "if True:"))
total_of_all_epochs = fixed(
    ("        total, num_examples = 0.0, 0\n", ""),
    ("    val_losses = []\n", "    val_losses = []\n    total, num_examples = 0.0, 0\n"),
)

by_the_model = fixed(("optimizer.zero", "model.zero"), (" * len(targets)", " * len(inputs)"))
before_and_after = fixed(
    (EPOCHS + TRAIN, "    model.train()\n    optimizer.zero_grad()\n" + EPOCHS),
    (CLEAR + BACKWARD + STEP, BACKWARD + STEP + CLEAR),
    ("/ num_examples)\n", "/ num_examples)\n" + TRAIN),
)
cleared_after_the_step = fixed((CLEAR + BACKWARD + STEP, BACKWARD + STEP + CLEAR))
pairs_first = fixed(
    ("        total, num_examples = 0.0, 0\n", ""),
    ("            for inputs, targets in val_loader:\n                total += " + MEAN
     + " * len(targets)\n                num_examples += len(targets)\n",
     "            parts = [(criterion(model(x), y).item(), len(y)) for x, y in val_loader]\n"),
    ("total / num_examples", "sum(a * b for a, b in parts) / sum(b for _, b in parts)"),
)  # fmt: skip
with_the_flag = fixed(
    (CLEAR + BACKWARD, "            optimizer.zero_grad(set_to_none=True)\n" + BACKWARD),
    (TRAIN, "        model.train(True)\n"),
)


EXERCISE = Exercise(
    id="03a.fix-the-loop",
    title="three bugs in a loop",
    source='Chapter 3, "Bug museum"',
    kind="fix",
    ledger=("B02", "B05", "B37"),
    minutes=10,
    difficulty=2,
    read=("B02", "B05", "N55"),
    hints=(
        "One bug is in the updates, one is between two epochs, one is in the validation loss.",
        "For each line, write down which mode the model is in during epoch 2, and what .grad "
        "holds.",
        "Clear before backward(), train() at the start of every epoch, and each batch's mean loss "
        "times its number of examples.",
    ),
    signature="fit(model, train_loader, val_loader, criterion, optimizer, epochs)",
    parts=(
        Part("weights", "the updates of an epoch", points=1, fields=("weights",)),
        Part("modes", "train mode in every epoch", points=1, fields=("train_modes",)),
        Part("loss", "the validation loss", points=1, fields=("losses", "val_modes")),
        Part(
            "little",
            f"everything right, with at most {MOST} lines changed",
            points=1,
            fields=("weights", "train_modes", "val_modes", "losses", "changed"),
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "weights": "after the run, the weight",
        "train_modes": "the mode at each training batch:",
        "val_modes": "the mode at a validation batch",
        "losses": "the validation losses:",
        "changed": "the number of lines changed",
    },
    wrong=(
        Wrong(
            "cleared-too-early",
            cleared_too_early,
            "zero_grad() is still between backward() and step(), so the step finds no gradient.",
        ),
        Wrong(
            "never-cleared",
            never_cleared,
            "Each step also used the gradients of earlier batches. Clear before every backward().",
        ),
        Wrong("never-cleared", cleared_per_epoch),
        Wrong(
            "train-mode-once",
            train_mode_once,
            "After the first validation the model stayed in eval mode, so the later epochs trained "
            "in it. Call train() at the start of every epoch.",
        ),
        Wrong(
            "train-mode-too-late",
            train_mode_too_late,
            "The first epoch trained in eval mode, in which the model had arrived; the later ones "
            "trained in train mode. Call train() at the start of every epoch.",
        ),
        Wrong(
            "never-in-train-mode",
            never_in_train_mode,
            "Training batches went through the model in eval mode in every epoch. Call train() at "
            "the start of each.",
        ),
        Wrong(
            "not-divided",
            not_divided,
            "The validation losses are sums over the examples. Divide by num_examples.",
        ),
        Wrong("with-a-graph", with_a_graph),
        Wrong(
            "total-of-all-epochs",
            total_of_all_epochs,
            "From the second epoch on, the losses of earlier epochs count, too. Start the sum "
            "again in every epoch.",
        ),
        Wrong(
            "one-epoch-only",
            one_epoch_only,
            "The run ended after one epoch. Is the return inside the loop over the epochs?",
        ),
        Wrong(
            "scored-in-train-mode",
            scored_in_train_mode,
            "Validation batches also went through the model in train mode. eval() must be the last "
            "switch before them.",
            raises="Expected more than 1 value per channel when training",
        ),
        Wrong(
            "scored-in-train-mode",
            in_train_mode_again,
            raises="Expected more than 1 value per channel when training",
        ),
        Wrong(
            "weighted-over-batches",
            weighted_over_batches,
            "Sums over examples were divided by the number of batches. Divide them by the number "
            "of examples.",
        ),
        Wrong(
            "means-over-examples",
            means_over_examples,
            "The batch means were added up and divided by the number of examples. Multiply each "
            "batch's mean by its size first.",
        ),
        Wrong(
            "last-size-for-all",
            weighted_by_the_last_size,
            "Sums over the examples were divided by the number of batches times the size of the "
            "last one, which is shorter. Divide them by num_examples.",
        ),
        Wrong(
            "mean-of-batch-means",
            mean_of_batch_means,
            "The mean of the batches' means gives a short batch too much weight. Multiply each "
            "batch's mean by its size, and divide by all examples.",
        ),
    ),
    right=(by_the_model, before_and_after, with_the_flag, cleared_after_the_step, pairs_first),
)
