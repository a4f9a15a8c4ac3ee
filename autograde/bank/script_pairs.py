"""03h.pairs: a script that shuffles inputs and labels apart."""

from __future__ import annotations

from functools import partial

import torch

from autograde.bank.harness import Watch
from autograde.bank.scripts import (
    SAYS,
    build_moded,
    draw_net,
    draw_optimizer,
    made,
    outcome,
    paid,
    reported,
    state_of,
)
from autograde.exercise import Answer, Case, Draw, Exercise, Wrong
from autograde.kinds.fix import variant

GIVEN = """
def train_tabular(model, features, labels, optimizer, epochs, batch_size, generator):
    mean, std = features.mean(dim=0), features.std(dim=0)
    rows = (features - mean) / std
    weights = labels.bincount().float().reciprocal()
    criterion = nn.CrossEntropyLoss(weight=weights / weights.sum())

    losses = []
    for _ in range(epochs):
        order = torch.randperm(len(rows), generator=generator).to(rows.device)
        epoch_rows = rows[order]
        epoch_labels = labels[torch.randperm(len(rows), generator=generator).to(rows.device)]

        model.train()
        running = 0.0
        for start in range(0, len(rows), batch_size):
            inputs = epoch_rows[start : start + batch_size]
            targets = epoch_labels[start : start + batch_size]
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            running += loss.item() * len(targets)
        losses.append(running / len(rows))

    model.eval()
    with torch.no_grad():
        right = (model(rows).argmax(dim=1) == labels).float().mean().item()
    return {"losses": losses, "accuracy": right}
"""
MOST = 6
"""Lines that may differ: one has to. Indexing per batch changes four, cutting the order itself into
batches five, and six if the order is drawn in that line."""


APART = 4.0
"""Of the classes' centres, in deviations of a class: they are learnt at once if rows meet their
own labels, so that an accuracy of shuffled rows is another."""


def draw(source: Draw, part: str) -> Case:
    """Rows of columns on different scales; every class occurs; the last batch is short."""
    features, classes = source.integer(2, 4), source.integer(2, 4)
    num_rows = 2 * source.integer(7, 9) + 1
    labels = torch.tensor(source.shuffled([i % classes for i in range(num_rows)]))
    centres, scales = source.normal(classes, features, scale=APART), torch.arange(1, features + 1)
    return {
        "net": draw_net(source, (features, source.integer(3, 5), classes)),
        "features": (source.normal(num_rows, features) + centres[labels]) * scales + 2,
        "labels": labels,
        "optimizer": draw_optimizer(source),
        "epochs": source.integer(2, 3),
        "batch_size": 4,
        "seed": source.integer(0, 10_000),
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """Weights and report."""
    model = build_moded(case["net"], device)
    features, labels = case["features"].to(device), case["labels"].to(device)
    optimizer = made(case["optimizer"], model)
    watch = Watch(model, optimizer, [features, labels])
    generator = torch.Generator().manual_seed(case["seed"])
    torch.rand(3, generator=generator)  # handed over in use, as after a split
    report = function(
        model, features, labels, optimizer, case["epochs"], case["batch_size"], generator
    )
    entries = reported(report, {"losses": "the losses, one per epoch", "accuracy": "the accuracy"},
                       lists=("losses",))  # fmt: skip
    return outcome(function, state_of(model), entries, watch, given=GIVEN, most=MOST)


SECOND = "labels[torch.randperm(len(rows), generator=generator).to(rows.device)]"
ORDER = "        order = torch.randperm(len(rows), generator=generator).to(rows.device)\n"
ROWS = "        epoch_rows = rows[order]\n"
FIXED = GIVEN.replace(SECOND, "labels[order]")

given = partial(variant, GIVEN, __file__)
fixed = partial(variant, FIXED, __file__)
reference = fixed()
in_place = fixed(("epoch_labels = labels[order]", "epoch_labels = labels"))
neither = fixed(("epoch_labels = labels[order]", "epoch_labels = labels"),
                (ROWS, ROWS.replace("rows[order]", "rows")))  # fmt: skip
unchanged = given(("    losses = []\n", "    losses = list()\n"))
inverse = fixed(("labels[order]", "labels[order.argsort()]"))
twice = fixed(("labels[order]", "labels[order][order]"))
drawn_once = fixed((ORDER, ""), ("    losses = []\n", "    losses = []\n" + ORDER[4:]))
first_of_generator = given(
    (
        SECOND,
        SECOND.replace("generator=generator", "generator=torch.Generator().manual_seed(0)"),
    )
)
begun_again = fixed(
    ("    losses = []\n", "    losses = []\n"
     "    generator = torch.Generator().manual_seed(generator.initial_seed())\n")
)  # fmt: skip
drawn_and_dropped = given((SECOND, "labels[order]"), (ROWS, ROWS + "        torch.randperm("
                           "len(rows), generator=generator)\n"))  # fmt: skip
second_of_two = fixed((ROWS, ROWS + ORDER + ROWS))
redrawn_for_labels = given((ROWS, ""), (SECOND, "labels[order]"), (ORDER, ORDER + ORDER + ROWS))
without_generator = fixed(("(len(rows), generator=generator)", "(len(rows))"))
own_generator = fixed(
    ("(len(rows), generator=generator)", "(len(rows), generator=torch.Generator())")
)
seeded_each_time = fixed(
    (
        "(len(rows), generator=generator)",
        "(len(rows), generator=torch.Generator().manual_seed(0))",
    )
)
passed_in_and_seeded = fixed((ORDER, "        generator.manual_seed(0)\n" + ORDER))
shuffled_on = fixed(("epoch_labels = labels[order]", "epoch_labels = labels = labels[order]"))
compounded = fixed(
    (ROWS, ROWS.replace("epoch_rows", "rows")),
    ("epoch_labels = labels[order]", "labels = labels[order]"),
    ("epoch_rows[", "rows["), ("epoch_labels[", "labels["),
)  # fmt: skip
rows_in_place = fixed((ROWS, ROWS.replace("rows[order]", "rows")))
rows_in_place_twice_drawn = given((ROWS, ROWS.replace("rows[order]", "rows")))
labels_then_rows = given((ROWS, ROWS.replace("[order]", "[order.roll(1)]")))
unscaled = fixed(("(features - mean) / std", "features - mean"))
evaluated_in_training = fixed(("    model.eval()\n", ""))
train_left_out = fixed(("        model.train()\n", ""))
uncleared = fixed(("            optimizer.zero_grad()\n", ""))
full_batches = fixed(("range(0, len(rows), batch_size)",
                      "range(0, len(rows) - batch_size + 1, batch_size)"))  # fmt: skip
PLAIN = ("nn.CrossEntropyLoss(weight=weights / weights.sum())", "nn.CrossEntropyLoss()")
unweighted = fixed(PLAIN)
unweighted_and_apart = given(PLAIN)
order_of_the_order = given((SECOND, SECOND.replace("labels[", "labels[order[") + "]"))
scored_shuffled = fixed(("model(rows).argmax", "model(epoch_rows).argmax"))
flipped = fixed(("labels[order]", "labels[order.flip(0)]"))

gathered = fixed(("labels[order]", "labels.index_select(0, order.to(labels.device))"))
taken = fixed(("labels[order]", "labels.take(order.to(labels.device))"))
by_batch = fixed(
    ("epoch_rows[start : start + batch_size]", "rows[order[start : start + batch_size]]"),
    ("epoch_labels[start : start + batch_size]", "labels[order[start : start + batch_size]]"),
)
LOOP = """        for start in range(0, len(rows), batch_size):
            inputs = epoch_rows[start : start + batch_size]
            targets = epoch_labels[start : start + batch_size]
"""
PIECES = """        for picked in order.split(batch_size):
            inputs, targets = rows[picked], labels[picked]
"""
NO_EPOCH_ROWS = ((ROWS, ""), ("        epoch_labels = labels[order]\n", ""))
in_pieces = fixed(*NO_EPOCH_ROWS, (LOOP, PIECES))
drawn_in_pieces = fixed(
    *NO_EPOCH_ROWS,
    (ORDER, ""),
    (LOOP, PIECES.replace("order", ORDER.strip().removeprefix("order = "))),
)


EXERCISE = Exercise(
    id="03h.pairs",
    title="script 3: a table that nobody can learn",
    source='Lecture 3, "Rung 3 · overfit one batch"',
    kind="fix",
    ledger=("S17",),
    minutes=8,
    difficulty=2,
    read=("course.debug.one_batch.one_batch_losses",),
    hints=(
        "Follow one row through an epoch: which label is it paired with?",
        "Two permutations are drawn in each epoch. What makes sure that they are the same?",
        "One order for both: epoch_labels = labels[order].",
    ),
    signature="train_tabular(model, features, labels, optimizer, epochs, batch_size, generator)",
    parts=paid("the weights after the run", ("weights",), ("weights", "losses", "accuracy"), MOST),
    reference=reference,
    draw=draw,
    run=run,
    says={
        **SAYS,
        "losses": "the losses:",
        "accuracy": "the accuracy",
    },
    wrong=(
        Wrong("labels-in-place", in_place,
              "Rows are shuffled but labels are not: each row is still paired with another row's "
              "label."),
        Wrong("rows-in-place", rows_in_place,
              "Labels are shuffled but rows are not: each row is still paired with another row's "
              "label."),
        Wrong("rows-in-place", rows_in_place_twice_drawn),
        Wrong("shuffled-on", shuffled_on,
              "The first epoch is right. But labels was overwritten with shuffled ones, which the "
              "next epoch shuffles again: give the shuffled labels a different name."),
        Wrong("compounded", compounded,
              "Each row keeps its label, but rows and labels are overwritten, so each epoch "
              "shuffles the order of the epoch before. In the given code each order is of the rows "
              "as they were passed in: give the shuffled ones names of their own."),
        Wrong("drawn-and-dropped", drawn_and_dropped,
              "The pairs are right, but the orders differ: the generator is still used twice per "
              "epoch. Draw only one permutation."),
        Wrong("drawn-and-dropped", second_of_two),
        Wrong("drawn-and-dropped", redrawn_for_labels),
        Wrong("unshuffled", neither,
              "Rows and labels match, but they come in the same order in every epoch. Keep the "
              "shuffling, with one order for both."),
        Wrong("unchanged", unchanged,
              "Rows are still shuffled by one permutation and labels by another, both drawn from "
              "the generator. Draw one order per epoch, and index both by it."),
        Wrong("without-generator", without_generator,
              "The pairs are right, but the orders come from torch's global generator. Pass "
              "`generator` to randperm(), so that a run can be repeated."),
        Wrong("own-generator", own_generator,
              "The pairs are right, but every epoch has the same order, that of a newly seeded "
              "generator. Draw from the one that is passed in, and do not seed it."),
        Wrong("own-generator", seeded_each_time),
        Wrong("own-generator", passed_in_and_seeded),
        Wrong("inverse", inverse,
              "Labels are shuffled by the inverse of the rows' order. Index both by the same "
              "order."),
        Wrong("twice", twice),
        Wrong("drawn-once", drawn_once,
              "The pairs are right. But the order is now drawn only once; it was drawn in every "
              "epoch."),
        Wrong("another-generator", first_of_generator),
        Wrong("generator-begun-again", begun_again,
              "The pairs are right, but the orders are those that the generator gives when it "
              "starts again from its seed. It was passed in already in use: draw from it as it "
              "is."),
        Wrong("still-apart", labels_then_rows,
              "Rows still do not belong to their labels: two different orders. Index both by the "
              "same order."),
        Wrong("still-apart", order_of_the_order),
        Wrong("still-apart", flipped),
        Wrong("unscaled", unscaled,
              "The pairs are right. But the columns are no longer divided by their standard "
              "deviation."),
        Wrong("evaluated-in-training", evaluated_in_training,
              "The accuracy was computed in train mode: model.eval() is gone."),
        Wrong("train-left-out", train_left_out,
              "The model was trained in eval mode, in which it came: model.train() is gone.",
              sure=True),
        Wrong("uncleared", uncleared,
              "Gradients of earlier batches were added to each step's: zero_grad() is gone."),
        Wrong("full-batches", full_batches,
              "The last, shorter batch of each epoch is now left out; the script trained on it."),
        Wrong("unweighted", unweighted,
              "The pairs are right. But the class weights are gone from the loss."),
        Wrong("unweighted-and-apart", unweighted_and_apart,
              "Rows still do not belong to their labels: two different orders. The class weights "
              "were right, and are now gone from the loss."),
        Wrong("scored-shuffled", scored_shuffled,
              "The weights are right. But the accuracy compares shuffled rows with unshuffled "
              "labels."),
    ),
    right=(gathered, taken, by_batch, in_pieces, drawn_in_pieces),
)  # fmt: skip
