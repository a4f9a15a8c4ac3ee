"""03b.plateau: a loss that rests on a plateau; find the planted bug and mend the step."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from autograde.bank.harness import build_batches, draw_batches, draw_state, load_state, state_of
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number
from course.engine import train_step

FEATURES, CLASSES = 4, 5


def _model() -> nn.Module:
    return nn.Sequential(nn.Linear(FEATURES, 6), nn.ReLU(), nn.Linear(6, CLASSES))


def draw(source: Draw, part: str) -> Case:
    """A few batches; the last may be short; the first gradient may be left over."""
    sizes = [source.integer(5, 8) for _ in range(3)] + [3 if part == "short" else 6]
    return {
        "state": draw_state(source, _model()),
        "batches": draw_batches(source, sizes, FEATURES, CLASSES),
        "lr": source.uniform(0.1, 0.3),
        "left_over": part == "left-over",
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The losses step by step and the weights at the end."""
    model = load_state(_model(), case["state"], device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=case["lr"], momentum=0.9)
    batches = build_batches(case["batches"], device)
    if case["left_over"]:
        model(batches[0][0]).square().sum().backward()
    losses = [
        as_number(function(model, inputs, targets, optimizer), "the loss of the step")
        for inputs, targets in batches
    ]
    return {"losses": losses, "state": state_of(model)}


def reference(model, inputs, targets, optimizer) -> float:
    """The engine's step with the logits themselves."""
    return train_step(model, [(inputs, targets)], nn.CrossEntropyLoss(), optimizer).loss


def _step(model, inputs, targets, optimizer, loss_of, *, clear=True):
    if clear:
        optimizer.zero_grad()
    loss = loss_of(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


def still_planted(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer,
        lambda out, y: F.cross_entropy(out.softmax(dim=1), y),
    )  # fmt: skip


def log_forgotten(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer, lambda out, y: F.nll_loss(out.softmax(dim=1), y)
    )


def over_the_batch(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer, lambda out, y: F.nll_loss(out.log_softmax(dim=0), y)
    )


def logits_as_log(model, inputs, targets, optimizer):
    return _step(model, inputs, targets, optimizer, F.nll_loss)


def squared_error(model, inputs, targets, optimizer):
    def loss_of(out, y):
        return F.mse_loss(out.softmax(dim=1), F.one_hot(y, out.shape[1]).float())

    return _step(model, inputs, targets, optimizer, loss_of)


def summed(model, inputs, targets, optimizer):
    return _step(
        model, inputs, targets, optimizer,
        lambda out, y: F.cross_entropy(out, y, reduction="sum"),
    )  # fmt: skip


def clearing_lost(model, inputs, targets, optimizer):
    return _step(model, inputs, targets, optimizer, F.cross_entropy, clear=False)


def with_logits(model, inputs, targets, optimizer):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


def with_log_softmax(model, inputs, targets, optimizer):
    logs = model(inputs).log_softmax(dim=-1)
    loss = F.nll_loss(logs, targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def by_hand(model, inputs, targets, optimizer):
    logits = model(inputs)
    right = logits.gather(1, targets[:, None]).squeeze(1)
    loss = (logits.logsumexp(dim=1) - right).mean()
    model.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return float(loss)


EXERCISE = Exercise(
    id="03b.plateau",
    title="mend the step behind a plateau",
    source='Lecture 1, "Overfit one batch: which bug gives which curve"; ledger B02, S17, N38, F78',
    minutes=10,
    signature="mended_step(model, inputs, targets, optimizer)",
    parts=(
        Part("loss", "the loss of each step", points=1, fields=("losses",)),
        Part("weights", "the weights after some steps", points=1, fields=("state",)),
        Part("short", "a shorter last batch", points=1),
        Part("left-over", "gradients left over by somebody else", points=1, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"losses": "the losses", "state": "after the steps,"},
    by_hand=(train_step,),
    wrong=(
        Wrong(
            "still-planted",
            still_planted,
            "The bug is still there: cross_entropy applies softmax itself. Of probabilities it "
            "makes a loss that cannot fall below ln(1 + (C - 1) / e). Hand it the logits.",
        ),
        Wrong(
            "log-forgotten",
            log_forgotten,
            "nll_loss wants log-probabilities: of plain probabilities it gives a negative loss. "
            "log_softmax, or cross_entropy of the logits.",
        ),
        Wrong(
            "over-the-batch",
            over_the_batch,
            "The softmax runs over the examples (dim=0) and lets them compete with each other. "
            "It belongs over the classes.",
        ),
        Wrong(
            "logits-as-log",
            logits_as_log,
            "nll_loss of raw logits has no floor: it falls for ever while nothing is learned. It "
            "wants log_softmax before it; cross_entropy does both.",
        ),
        Wrong(
            "squared-error",
            squared_error,
            "The squared error of probabilities hardly moves a class that is surely wrong. Use "
            "cross_entropy of the logits.",
        ),
        Wrong(
            "summed",
            summed,
            "The loss is summed over the batch: the step grows with the batch size. Take the mean.",
        ),
        Wrong(
            "clearing-lost",
            clearing_lost,
            "While mending the loss, zero_grad() got lost: the gradients add up now.",
        ),
    ),
    right=(with_logits, with_log_softmax, by_hand),
)
