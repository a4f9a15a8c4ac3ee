"""03h.dropout: a script whose dropout never rests."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from autograde.bank.harness import TRAINED, Watch
from autograde.bank.scripts import (
    SAYS,
    build_net,
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
def train_with_dropout(body, head, train_batches, val_batches, make_optimizer, epochs, p):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = body
            self.head = head

        def forward(self, inputs):
            hidden = self.body(inputs).tanh()
            hidden = nn.functional.dropout(hidden, p)
            return self.head(hidden)

    model = Net()
    optimizer = make_optimizer(model)
    criterion = nn.CrossEntropyLoss()
    losses = []
    for _ in range(epochs):
        model.train()
        total, seen = 0.0, 0
        for inputs, targets in train_batches:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(targets)
            seen += len(targets)
        losses.append(total / seen)

    model.eval()
    total, hits, seen = 0.0, 0, 0
    with torch.no_grad():
        for inputs, targets in val_batches:
            logits = model(inputs)
            total += criterion(logits, targets).item() * len(targets)
            hits += (logits.argmax(dim=1) == targets).sum().item()
            seen += len(targets)
    return {"losses": losses, "val_loss": total / seen, "val_accuracy": hits / seen}
"""
MOST = 5
"""Lines that may differ: one has to; a module made in __init__ is two, an if with two ways out
four."""


def draw(source: Draw, part: str) -> Case:
    """Many hidden units, so that no mask leaves all of them; validation of several batches."""
    features, hidden, classes = source.integer(2, 4), source.integer(10, 14), source.integer(3, 5)

    def batch(size: int) -> list:
        return [source.normal(size, features), source.integers(classes, size)]

    return {
        "net": draw_net(source, (features, hidden, classes)),
        "train": [batch(source.integer(4, 6)) for _ in range(2)],
        "val": [batch(source.integer(5, 7)), batch(3)],
        "optimizer": draw_optimizer(source),
        "epochs": source.integer(2, 3),
        "p": source.uniform(0.3, 0.6),
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The weights of both layers, and the report."""
    body, head = (build_net([layer], device)[0] for layer in case["net"])
    train, val = sent(case["train"], device), sent(case["val"], device)
    watch = Watch(data=[tensor for both in (*train, *val) for tensor in both])
    torch.manual_seed(17)  # the same masks for every answer
    report = function(
        body, head, train, val, lambda model: made(case["optimizer"], model), case["epochs"],
        case["p"],
    )  # fmt: skip
    entries = reported(report, {"losses": "the losses, one per epoch",
                        "val_loss": "the validation loss",
                        "val_accuracy": "the validation accuracy"}, lists=("losses",))  # fmt: skip
    weights = state_of(nn.ModuleList([body, head]))
    return outcome(function, weights, entries, watch, given=GIVEN, most=MOST, may=TRAINED)


DROP = "            hidden = nn.functional.dropout(hidden, p)\n"
FIXED = GIVEN.replace("dropout(hidden, p)", "dropout(hidden, p, training=self.training)")
LOSSES = "    losses = []\n"

given = partial(variant, GIVEN, __file__)
fixed = partial(variant, FIXED, __file__)
reference = fixed()
never = given((DROP, DROP.replace("p)", "p, training=False)")))
taken_out = given((DROP, ""))
scaled_by_hand = given((DROP, DROP.replace("(hidden, p)", "(hidden, p) if self.training "
                        "else hidden * (1 - p)")))  # fmt: skip
module_each_time = given((DROP, DROP.replace("nn.functional.dropout(hidden, p)",
                          "nn.Dropout(p)(hidden)")))  # fmt: skip
by_grad_in_reverse = given((DROP, DROP.replace("p)", "p, training=not self.training)")))
on_the_inputs = fixed(("self.body(inputs).tanh()", "self.body(nn.functional.dropout(inputs, p, "
                       "training=self.training)).tanh()"), (DROP.replace(
                           "p)", "p, training=self.training)"), ""))  # fmt: skip
other_share = fixed(("dropout(hidden, p,", "dropout(hidden, 1 - p,"))
no_eval = fixed(("    model.eval()\n", ""))
seeded = given(("    model.eval()\n", "    model.eval()\n    torch.manual_seed(0)\n"))
before_tanh = given((".tanh()", ""), (DROP, DROP.replace("p)", "p, self.training).tanh()")))
averaged = given(("            logits = model(inputs)\n",
                  "            logits = sum(model(inputs) for _ in range(50)) / 50\n"))  # fmt: skip
uncleared = fixed(("            optimizer.zero_grad()\n", ""))
after_head = fixed((DROP.replace("p)", "p, training=self.training)"), ""),
                   ("self.head(hidden)\n", "nn.functional.dropout(self.head(hidden), p, "
                    "self.training)\n"))  # fmt: skip

as_a_module = given(
    (
        "            self.head = head\n",
        "            self.head = head\n            self.drop = nn.Dropout(p)\n",
    ),
    (DROP, "            hidden = self.drop(hidden)\n"),
)
with_an_if = given((DROP, "            if self.training:\n    " + DROP))
by_position = given((DROP, DROP.replace("p)", "p, self.training)")))
share_of_none = given((DROP, DROP.replace("p)", "p if self.training else 0.0)")))


EXERCISE = Exercise(
    id="03h.dropout",
    title="script 8: a validation that never gives the same result twice",
    source='Lecture 3, "Debug checklist"; museum B04',
    kind="fix",
    ledger=("B04", "T20"),
    minutes=6,
    difficulty=1,
    read=("B04",),
    hints=(
        "Validate twice without a step in between. eval() is called, but what reacts to it?",
        "The module nn.Dropout knows its own mode. What argument does the function take instead?",
        "nn.functional.dropout(hidden, p, training=self.training).",
    ),
    signature="train_with_dropout(body, head, train_batches, val_batches, make_optimizer, "
    "epochs, p)",
    parts=paid("the validation loss", ("val_loss",),
               ("weights", "losses", "val_loss", "val_accuracy"), MOST),
    reference=reference,
    draw=draw,
    run=run,
    says={
        **SAYS,
        "losses": "the losses:",
        "val_loss": "the validation loss",
        "val_accuracy": "the validation accuracy",
    },
    wrong=(
        Wrong("never", never,
              "Training now runs without dropout. It should be on in train mode, and off only in "
              "eval mode."),
        Wrong("never", taken_out),
        Wrong("scaled-again", scaled_by_hand,
              "In eval mode hidden values are multiplied by 1 - p. torch already scales them up in "
              "train mode: leave them as they are."),
        Wrong("still-on", module_each_time,
              "Validation still draws masks, with or without a seed. Is eval() called before it, "
              "and does it reach the dropout? It does not reach a module that forward() makes."),
        Wrong("turned-round", by_grad_in_reverse,
              "Dropout is off in train mode and on in eval mode: it should be the other way "
              "round."),
        Wrong("on-the-inputs", on_the_inputs,
              "Both modes are right, but the dropout now acts on the inputs. It acted on the "
              "hidden values: leave the line in its place."),
        Wrong("before-tanh", before_tanh),
        Wrong("after-the-head", after_head,
              "Both modes are right, but the dropout now acts on the logits. It acted on the "
              "hidden values: leave the line in its place."),
        Wrong("other-share", other_share,
              "The dropped share is now 1 - p; p is the share that is dropped, not the share that "
              "is kept."),
        Wrong("still-on", no_eval),
        Wrong("still-on", seeded),
        Wrong("averaged", averaged),
        Wrong("uncleared", uncleared,
              "Gradients of earlier batches were added to each step's: zero_grad() is gone."),
    ),
    right=(as_a_module, with_an_if, by_position, share_of_none),
)  # fmt: skip
