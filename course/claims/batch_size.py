"""Batch size: how fast training converges, and whether small batches regularise."""

from __future__ import annotations

import statistics

from course.claims.registry import claim
from course.claims.settings import DIABETES, DIGITS, SPIRAL
from course.claims.trial import Measured, weigh_settings


@claim(
    "F142",
    title="Updating after small batches converges faster than updating on the whole data set",
    expected="holds",
    says="Updating after every small batch converges faster than one update per pass over the data "
    "set.",
)
def mini_batches(seed: int) -> Measured:
    found, held = {}, {}
    for one in (SPIRAL, DIGITS, DIABETES):
        inputs = one.make_data(seed)[0]
        epochs = 8
        per_epoch = -(-len(inputs) // 32)
        small = one.but(batch_size=32, steps=epochs * per_epoch)
        losses = {"batches of 32": small.full_loss(small.train(100 * seed).model, 100 * seed)}
        for factor in (1, 3):  # the full gradient is exact and may allow a larger step
            full = one.but(batch_size=len(inputs), steps=epochs, rate=factor * one.rate)
            loss = full.full_loss(full.train(100 * seed).model, 100 * seed)
            losses[f"all at once, rate × {factor}"] = loss
        found[one.data] = losses
        held[small] = losses["batches of 32"] < 0.9 * min(
            loss for name, loss in losses.items() if name != "batches of 32"
        )
    evidence = {
        "digits: loss after 8 epochs of small batches": found["digits"]["batches of 32"],
        "loss after 8 epochs": found,
    }
    return weigh_settings(
        "digits: loss after 8 epochs of small batches",
        evidence,
        held,
        criterion="after the same number of examples, its loss is below 0.9 times the full "
        "batch's, at 1 and at 3 times the rate",
    )


@claim(
    "F151",
    title="Small batches regularise",
    expected="holds if",
    says="The noise of small batches acts as a regulariser.",
    condition="if the full batch overfits, as on the diabetes records; on digits, batches of 8 do "
    "not validate better",
)
def small_batches_regularise(seed: int) -> Measured:
    found, held = {}, {}
    for one in (
        DIABETES.but(optimizer="Adam", rate=0.003, options=()),
        DIGITS.but(rate=0.02),
    ):
        x, y, val_x, val_y = one.make_data(seed)
        few = (x[:120], y[:120], val_x, val_y)
        gaps = {}
        for size in (8, 120):
            runs = []
            for index in range(100 * seed, 100 * seed + 2):
                there = one.but(batch_size=size, steps=450 if size == 8 else 300)
                model = there.train(index, data=few).model.eval()
                losses = [
                    one.loss_fn(model(inputs), targets).item()
                    for inputs, targets in ((few[0], few[1]), (val_x, val_y))
                ]
                runs.append(losses)
            gaps[f"batch {size}"] = [statistics.fmean(column) for column in zip(*runs, strict=True)]
        found[f"{one.data} {one.optimizer}"] = gaps
        held[one.but(data=f"120 {one.data}")] = gaps["batch 8"][1] < 0.95 * gaps["batch 120"][1]
    evidence = {
        "settings of 2 in which batches of 8 validate better": sum(held.values()),
        "training and validation loss": found,
    }
    return weigh_settings(
        "settings of 2 in which batches of 8 validate better",
        evidence,
        held,
        criterion="after training, batches of 8 reach a validation loss 5 % below that of all 120 "
        "examples at once",
    )
