"""03h.regressor: a script whose outputs [B, 1] meet targets [B]."""

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
    sent,
    state_of,
)
from autograde.exercise import Answer, Case, Draw, Exercise, Wrong
from autograde.kinds.fix import variant

GIVEN = """
def train_regressor(model, train_batches, val_batches, optimizer, epochs):
    count, total, squares = 0, 0.0, 0.0
    for _, targets in train_batches:
        count += len(targets)
        total += targets.sum().item()
        squares += targets.square().sum().item()
    mean = total / count
    std = (squares / count - mean**2) ** 0.5

    history = {"loss": [], "val_error": []}
    for _ in range(epochs):
        model.train()
        running, seen = 0.0, 0
        for inputs, targets in train_batches:
            optimizer.zero_grad()
            outputs = model(inputs)
            scaled = (targets - mean) / std
            loss = (outputs - scaled).square().mean()
            loss.backward()
            optimizer.step()
            running += loss.item() * len(targets)
            seen += len(targets)
        history["loss"].append(running / seen)

        model.eval()
        error, seen = 0.0, 0
        with torch.no_grad():
            for inputs, targets in val_batches:
                predicted = model(inputs).squeeze(1) * std + mean
                error += (predicted - targets).abs().sum().item()
                seen += len(targets)
        history["val_error"].append(error / seen)
    return history
"""
MOST = 4
"""Lines that may differ: one has to, and a line for the shape is welcome."""


def draw(source: Draw, part: str) -> Case:
    """Prices of a scale of their own; every batch has at least three, so that the bug shows.

    The first is the largest, so that the mean over batches is not that over examples.
    """
    features, scale = source.integer(2, 4), source.uniform(5.0, 20.0)
    more = source.integer(1, 2)

    def batch(size: int) -> list:
        return [source.normal(size, features), scale * (3 + source.normal(size))]

    return {
        "net": draw_net(source, (features, source.integer(3, 5), 1)),
        "train": [batch(source.integer(5, 6)), *(batch(source.integer(3, 4)) for _ in range(more))],
        "val": [batch(source.integer(3, 5)), batch(2)],
        "optimizer": draw_optimizer(source),
        "epochs": source.integer(2, 3),
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """Weights and history."""
    model = build_moded(case["net"], device)
    train, val = sent(case["train"], device), sent(case["val"], device)
    optimizer = made(case["optimizer"], model)
    watch = Watch(model, optimizer, [tensor for pair in (*train, *val) for tensor in pair])
    history = function(model, train, val, optimizer, case["epochs"])
    entries = reported(history, {"loss": "the losses, one per epoch",
                        "val_error": "one error per epoch"},
                       lists=("loss", "val_error"))  # fmt: skip
    return outcome(function, state_of(model), entries, watch, given=GIVEN, most=MOST)


OUTPUTS = "            outputs = model(inputs)\n"
SCALED = "            scaled = (targets - mean) / std\n"
LOSS = "(outputs - scaled).square().mean()"
FIXED = GIVEN.replace(OUTPUTS, OUTPUTS.replace("(inputs)", "(inputs).squeeze(1)"))

given = partial(variant, GIVEN, __file__)
fixed = partial(variant, FIXED, __file__)
reference = fixed()
by_row = given((LOSS, "((outputs - scaled[None]) ** 2).mean()"))
squeezed_first = given((OUTPUTS, OUTPUTS.replace("(inputs)", "(inputs).squeeze(0)")))
row_means = given((LOSS, "(outputs - scaled).square().mean(dim=1).mean()"))
summed_table = given((LOSS, LOSS.replace("mean", "sum")))
other_std = given(("    std = (squares / count - mean**2) ** 0.5\n",
                   "    std = ((squares - count * mean**2) / (count - 1)) ** 0.5\n"))  # fmt: skip
diagonal_only = given((LOSS, "(outputs - scaled).square().diagonal().sum() / len(targets) ** 2"))
UNSCALED = (SCALED, "            scaled = targets\n")
NOT_BACK = (".squeeze(1) * std + mean", ".squeeze(1)")
unscaled = fixed(UNSCALED)
unscaled_throughout = fixed(UNSCALED, NOT_BACK)
BACK = "outputs = model(inputs).squeeze(1)"
outputs_scaled_back = fixed((BACK, BACK + " * std + mean"), UNSCALED)
unscaled_pairs = given(UNSCALED, NOT_BACK)
unscaled_pairs_scaled_back = given(UNSCALED)
unbiased = fixed(("    std = (squares / count - mean**2) ** 0.5\n",
                  "    std = ((squares - count * mean**2) / (count - 1)) ** 0.5\n"))  # fmt: skip
only_centred = fixed((SCALED, "            scaled = targets - mean\n"))
mean_output = given((LOSS, "(outputs.mean() - scaled).square().mean()"))
absolute = fixed((LOSS, "(outputs - scaled).abs().mean()"))
summed = fixed((LOSS, "(outputs - scaled).square().sum()"))
summed_rows = given((LOSS, "(outputs - scaled).square().mean(dim=0).sum()"))
evaluated_in_training = fixed(("        model.eval()\n", ""))
train_left_out = fixed(("        model.train()\n", ""))
uncleared = fixed(("            optimizer.zero_grad()\n", ""))
validated_in_scale = fixed(NOT_BACK)
validated_in_pairs = fixed(("model(inputs).squeeze(1) * std", "model(inputs) * std"))
batch_means = fixed(
    ("loss.item() * len(targets)", "loss.item()"),
    ("(running / seen)", "(running / len(train_batches))"),
)
means_by_examples = fixed(("loss.item() * len(targets)", "loss.item()"))

by_column = given((OUTPUTS, OUTPUTS.replace("(inputs)", "(inputs)[:, 0]")))
by_targets = given(
    (SCALED, SCALED.replace("std\n", "std\n            scaled = scaled.unsqueeze(1)\n"))
)
flattened = given((LOSS, "nn.functional.mse_loss(outputs.flatten(), scaled)"))
viewed = given((LOSS, "(outputs - scaled.view_as(outputs)).square().mean()"))


EXERCISE = Exercise(
    id="03h.regressor",
    title="script 1: prices that all come out alike",
    source='Lecture 3, "Debug checklist"; museum B10',
    kind="fix",
    ledger=("B10",),
    minutes=8,
    difficulty=2,
    read=("B10",),
    hints=(
        "Print the shape of every tensor in the line that computes the loss, and of their "
        "difference.",
        "A column [B, 1] minus a row [B] is a table [B, B]: each output is compared with each "
        "target.",
        "Give the outputs the targets' shape: model(inputs).squeeze(1).",
    ),
    signature="train_regressor(model, train_batches, val_batches, optimizer, epochs)",
    parts=paid("the weights after the run", ("weights",), ("weights", "loss", "val_error"), MOST),
    reference=reference,
    draw=draw,
    run=run,
    says={
        **SAYS,
        "loss": "the training losses:",
        "val_error": "the validation errors:",
    },
    wrong=(
        Wrong("still-pairs", by_row,
              "Each output is still compared with each target of its batch. Outputs and targets "
              "need the same shape before they are subtracted."),
        Wrong("still-pairs", squeezed_first),
        Wrong("still-pairs", row_means),
        Wrong("still-pairs", summed_table),
        Wrong("still-pairs", other_std),
        Wrong("still-pairs", summed_rows),
        Wrong("mean-output", mean_output,
              "Every output of a batch gets the same gradient, as if its mean were the output. "
              "Compare example by example."),
        Wrong("unscaled", unscaled,
              "The network learns unscaled prices, but validation still scales its outputs back. "
              "Leave the scaling as it was."),
        Wrong("unscaled-throughout", unscaled_throughout,
              "The shapes are right. But the network now learns unscaled prices, at a learning "
              "rate that was chosen for scaled ones. Leave the scaling as it was."),
        Wrong("outputs-scaled-back", outputs_scaled_back,
              "The shapes are right. But the loss now compares prices, not scaled prices, so each "
              "gradient is std ** 2 times as large. Leave the scaling as it was."),
        Wrong("unscaled-pairs", unscaled_pairs,
              "Each output is still compared with each target of its batch, and the network now "
              "learns unscaled prices. The scaling was right; give outputs and targets the same "
              "shape."),
        Wrong("unscaled-pairs", unscaled_pairs_scaled_back),
        Wrong("only-centred", only_centred),
        Wrong("unbiased", unbiased,
              "The shapes are right. But the standard deviation now divides by count - 1; the "
              "script divides by count. Leave it as it was."),
        Wrong("absolute", absolute,
              "The loss is now the absolute error; it was the mean of squares. Fix only the "
              "shape."),
        Wrong("summed", summed,
              "The loss is a sum over the batch, so a larger batch makes a longer step. It was a "
              "mean."),
        Wrong("part-of-the-mean", diagonal_only),
        Wrong("evaluated-in-training", evaluated_in_training,
              "Validation ran in train mode: model.eval() is gone."),
        Wrong("train-left-out", train_left_out,
              "The model was trained in eval mode, in which it came: model.train() is gone.",
              sure=True),
        Wrong("uncleared", uncleared,
              "Gradients of earlier batches were added to each step's: zero_grad() is gone."),
        Wrong("validated-in-scale", validated_in_scale,
              "The weights are right. But the validation error compares scaled outputs with "
              "unscaled prices: scale the outputs back, as the script did."),
        Wrong("validated-in-pairs", validated_in_pairs,
              "The weights are right. But validation now compares each output with each price: its "
              "squeeze(1) was right."),
        Wrong("batch-means", batch_means),
        Wrong("means-by-examples", means_by_examples,
              "The weights are right. But the reported training loss adds up the batch means and "
              "divides by the number of examples: multiply each mean by its batch size, as "
              "before."),
    ),
    right=(by_column, by_targets, flattened, viewed),
)  # fmt: skip
