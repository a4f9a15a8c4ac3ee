"""03h.pooling: a script whose attention weights are shared out among the wrong things."""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial

import torch
from torch import nn

from autograde.bank.harness import Watch
from autograde.bank.scripts import (
    SAYS,
    draw_optimizer,
    made,
    outcome,
    paid,
    reported,
    sent,
    state_of,
)
from autograde.exercise import UNFIT, Answer, Case, Draw, Exercise, Wrong
from autograde.kinds.fix import variant

GIVEN = """
def train_reader(model, train_batches, val_batches, optimizer, epochs):
    embedding, scorer, head = model
    criterion = nn.CrossEntropyLoss()

    def logits_of(tokens, lengths):
        vectors = embedding(tokens)
        scores = scorer(vectors).squeeze(2)
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        padded = positions >= lengths.unsqueeze(1)
        scores = scores.masked_fill(padded, float("-inf"))
        weights = scores.softmax(dim=0)
        pooled = (weights.unsqueeze(2) * vectors).sum(dim=1)
        return head(pooled)

    losses = []
    for _ in range(epochs):
        model.train()
        total, seen = 0.0, 0
        for tokens, lengths, targets in train_batches:
            optimizer.zero_grad()
            loss = criterion(logits_of(tokens, lengths), targets)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(targets)
            seen += len(targets)
        losses.append(total / seen)

    model.eval()
    total, seen = 0.0, 0
    with torch.no_grad():
        for tokens, lengths, targets in val_batches:
            loss = criterion(logits_of(tokens, lengths), targets)
            total += loss.item() * len(targets)
            seen += len(targets)
    return {"losses": losses, "val_loss": total / seen}
"""
MOST = 6
"""Lines that may differ: one has to; scores that keep their last axis change four."""


def draw(source: Draw, part: str) -> Case:
    """Padded sequences; in each batch one fills its length and others do not.

    The two batches are of unequal size, so that their mean is not the examples'.
    """
    words, size, classes = source.integer(5, 8), source.integer(3, 4), source.integer(2, 4)

    def batch(count: int) -> list:
        longest = source.integer(3, 5)
        lengths = torch.tensor([longest, *(source.integer(2, longest) for _ in range(count - 1))])
        tokens = source.integers(words, count, longest)
        padded = torch.arange(longest) >= lengths[:, None]
        return [tokens.masked_fill(padded, 0), lengths, source.integers(classes, count)]

    return {
        "embedding": source.normal(words, size),
        "scorer": source.normal(1, size),
        "head": source.normal(classes, size),
        "train": [batch(source.integer(4, 5)), batch(3)],
        "val": [batch(source.integer(3, 4)), batch(2)],
        "optimizer": draw_optimizer(source),
        "epochs": source.integer(2, 3),
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """Weights and report."""
    model = nn.Sequential(
        nn.Embedding(*case["embedding"].shape),
        nn.Linear(case["scorer"].shape[1], 1, bias=False),
        nn.Linear(*case["head"].T.shape, bias=False),
    ).to(device)
    for layer, name in zip(model, ("embedding", "scorer", "head"), strict=True):
        layer.weight.data.copy_(case[name])
    train, val = sent(case["train"], device), sent(case["val"], device)
    optimizer = made(case["optimizer"], model)
    watch = Watch(model, optimizer, [tensor for batch in (*train, *val) for tensor in batch])
    report = function(model, train, val, optimizer, case["epochs"])
    entries = reported(report, {"losses": "the losses, one per epoch",
                        "val_loss": "the validation loss"}, lists=("losses",))  # fmt: skip
    left = outcome(function, state_of(model), entries, watch, given=GIVEN, most=MOST)
    return {**left, "alone": alone(partial(function, model), train[0])}


PADDING = 2
"""Columns put behind a sentence: more than the one that an off-by-one mask lets in."""
SEEN = 1e-3
"""Relative difference of two losses that shows in three digits, and is no rounding."""


def alone(train_reader, batch) -> list | dict[str, str]:
    """What else than itself a sentence's loss depends on, seen at a rate of 0; empty if nothing."""
    tokens, lengths, targets = batch
    short = int(lengths.min())
    equal = tokens[:, :short], lengths.clamp(max=short), targets
    one = tuple(tensor[:1] for tensor in equal)
    wider = nn.functional.pad(one[0], (0, PADDING)), *one[1:]
    each = list(zip(*(tensor.split(1) for tensor in equal), strict=True))
    with suppress(ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):
        for stage in ("training", "validation"):
            losses = (loss_of(train_reader, b, stage) for b in ([equal], each, [one], [wider]))
            together, apart, unpadded, padded = losses
            if math.isnan(unpadded):
                return {UNFIT: f"In {stage}, the loss of a sentence without padding is nan. Is a "
                        "word of it masked, or minus infinity multiplied?"}  # fmt: skip
            if abs(together - apart) > SEEN * apart:
                return {UNFIT: f"In {stage}, {len(targets)} sentences of equal length have "
                        f"the mean loss {together:.3f} in one batch, and {apart:.3f} each in a "
                        "batch of its own: a neighbour changes an answer."}  # fmt: skip
            if not abs(padded - unpadded) <= SEEN * unpadded:
                return {UNFIT: f"In {stage}, a sentence has the loss {unpadded:.3f}, and "
                        f"{padded:.3f} with {PADDING} columns of padding behind it: padding "
                        "changes an answer."}  # fmt: skip
    return []


def loss_of(train_reader, batches: list, stage: str) -> float:
    """The mean loss in training or in validation, with weights that a rate of 0 leaves alone."""
    model = train_reader.args[0]
    report = train_reader(batches, batches, torch.optim.SGD(model.parameters(), 0.0), 1)
    return float(report["losses"][0] if stage == "training" else report["val_loss"])


WEIGHTS = "        weights = scores.softmax(dim=0)\n"
MASK = '        scores = scores.masked_fill(padded, float("-inf"))\n'
POOLED = "        pooled = (weights.unsqueeze(2) * vectors).sum(dim=1)\n"
FIXED = GIVEN.replace("softmax(dim=0)", "softmax(dim=1)")

given = partial(variant, GIVEN, __file__)
fixed = partial(variant, FIXED, __file__)
reference = fixed()
over_everything = given((WEIGHTS, "        weights = scores.flatten().softmax(dim=0)"
                         ".view_as(scores)\n"))  # fmt: skip
sigmoid = given((WEIGHTS, "        weights = scores.sigmoid()\n"))
unmasked = fixed((MASK, ""))
masked_with_zero = fixed(('float("-inf")', "0.0"))
masked_late = fixed((MASK, ""), (WEIGHTS.replace("0", "1"), WEIGHTS.replace("0", "1")
                    + "        weights = weights.masked_fill(padded, 0.0)\n"))  # fmt: skip
plain_mean = given((WEIGHTS, "        weights = (~padded).float() / lengths.unsqueeze(1)\n"))
over_the_words = given((WEIGHTS, "        weights = scores.unsqueeze(2).softmax(dim=2).squeeze(2)\n"
                        "        weights = weights.masked_fill(padded, 0.0)\n"))  # fmt: skip
pooled_by_mean = fixed((POOLED, POOLED.replace("sum", "mean")))
over_the_batch = fixed((POOLED, POOLED.replace("dim=1", "dim=0")))
one_shorter = fixed(("positions >= lengths.unsqueeze(1)", "positions >= lengths.unsqueeze(1) - 1"))
batch_means = fixed(
    ("            total += loss.item() * len(targets)\n            seen += len(targets)\n"
     "        losses", "            total += loss.item()\n            seen += 1\n        losses"),
)  # fmt: skip
uncleared = fixed(("            optimizer.zero_grad()\n", ""))
hardest = given((WEIGHTS, "        weights = nn.functional.one_hot(scores.argmax(dim=1), "
                 "scores.shape[1]).float()\n"))  # fmt: skip

SHARED_OUT_AGAIN = "        weights = weights / weights.sum(dim=1, keepdim=True)\n"
renormalised = given((WEIGHTS, WEIGHTS + SHARED_OUT_AGAIN))
right_in_validation = given(("softmax(dim=0)", "softmax(dim=0 if model.training else 1)"))
mask_turned = fixed(("positions >= lengths", "positions < lengths"))
logarithms = fixed(("softmax(dim=1)", "log_softmax(dim=1)"))
one_longer = fixed(("positions >= lengths", "positions > lengths"))

last_axis = given((WEIGHTS, WEIGHTS.replace("dim=0", "dim=-1")))
as_a_function = given((WEIGHTS, "        weights = torch.softmax(scores, 1)\n"))
transposed = given((WEIGHTS, "        weights = scores.T.softmax(dim=0).T\n"))
written_out = given((WEIGHTS, "        odds = (scores - scores.amax(dim=1, keepdim=True)).exp()\n"
                     "        weights = odds / odds.sum(dim=1, keepdim=True)\n"))  # fmt: skip


EXERCISE = Exercise(
    id="03h.pooling",
    title="script 5: answers that depend on the other sentences",
    source='Lecture 3, "Debug checklist"; engineering module, §5',
    kind="fix",
    ledger=("T20",),
    minutes=8,
    difficulty=2,
    read=("course.debug.diagnose",),
    hints=(
        "Run one sentence through the model alone, then with others. Is the answer the same?",
        "Write the shape next to every line, and along which axis the weights add up to 1.",
        "Scores are [B, T]; the weights of one sentence add up to 1 along T: softmax(dim=1).",
    ),
    signature="train_reader(model, train_batches, val_batches, optimizer, epochs)",
    parts=paid("the weights after the run", ("alone", "weights"),
               ("weights", "losses", "val_loss"), MOST),
    reference=reference,
    draw=draw,
    run=run,
    says={
        **SAYS,
        "losses": "the training losses:",
        "val_loss": "the validation loss",
    },
    wrong=(
        Wrong("over-everything", over_everything,
              "The weights of the whole batch add up to 1, so an answer still depends on the other "
              "sentences. The weights of each sentence should add up to 1."),
        Wrong("sigmoid", sigmoid,
              "Each word's weight is a sigmoid of its score, so the weights of a sentence need not "
              "add up to 1. Use a softmax along the words."),
        Wrong("unmasked", unmasked,
              "Padding gets a share of the weight: the mask before the softmax is gone."),
        Wrong("masked-with-zero", masked_with_zero,
              "Padding has a score of 0, and exp(0) is not 0, so it gets a share of the weight. "
              "Leave its score at minus infinity."),
        Wrong("masked-late", masked_late,
              "Padding is masked only after the softmax, so the weights of a short sentence add up "
              "to less than 1."),
        Wrong("plain-mean", plain_mean,
              "All words of a sentence now have the same weight, and the scores are not used."),
        Wrong("plain-sum", over_the_words),
        Wrong("pooled-by-mean", pooled_by_mean,
              "The weighted vectors are averaged over all columns, padding included. The weights "
              "of a sentence already add up to 1, so sum the vectors."),
        Wrong("over-the-batch", over_the_batch,
              "There is one row of logits per column of words, not per sentence: vectors were "
              "summed over the sentences. The words of one sentence are along dim=1.",
              raises="Expected input batch_size"),
        Wrong("one-shorter", one_shorter),
        Wrong("batch-means", batch_means),
        Wrong("uncleared", uncleared,
              "Gradients of earlier batches were added to each step's: zero_grad() is gone."),
        Wrong("hardest", hardest),
        Wrong("renormalised", renormalised,
              "The softmax still runs over the sentences of a batch. Dividing by each sentence's "
              "sum afterwards makes its weights add up to 1, but its neighbours remain in them. "
              "Take the softmax along the words."),
        Wrong("right-in-validation", right_in_validation),
        Wrong("mask-turned", mask_turned,
              "Sentences without padding gave nan too. Either their words are masked: padding is "
              "at positions >= the length. Or minus infinity is multiplied: the weights are "
              "shares, from softmax() and not from its logarithm.", sure=True),
        Wrong("mask-turned", logarithms, sure=True),
        Wrong("one-longer", one_longer,
              "One column of padding gets a share of the weight: positions count from 0, so "
              "padding starts at the length itself."),
    ),
    right=(last_axis, as_a_function, transposed, written_out),
)  # fmt: skip
