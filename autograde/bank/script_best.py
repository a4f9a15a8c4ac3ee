"""03h.best: a script that keeps the best weights under another name, and no copy of them."""

from __future__ import annotations

from functools import partial

import torch

from autograde.bank.harness import Watch
from autograde.bank.scripts import (
    EPOCHS,
    SAYS,
    build_counting,
    draw_early_best,
    outcome,
    paid,
    reported,
    sent,
    state_of,
)
from autograde.exercise import Answer, Case, Draw, Exercise, Wrong
from autograde.kinds.fix import variant

GIVEN = """
def train_and_keep_best(model, train_batches, val_batches, optimizer, epochs):
    criterion = nn.CrossEntropyLoss()
    best_loss, best_epoch, best_state = float("inf"), -1, None
    history = []
    for epoch in range(epochs):
        model.train()
        for inputs, targets in train_batches:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()

        model.eval()
        total, seen = 0.0, 0
        with torch.no_grad():
            for inputs, targets in val_batches:
                loss = criterion(model(inputs), targets)
                total += loss.item() * len(targets)
                seen += len(targets)
        val_loss = total / seen
        history.append(val_loss)

        if val_loss < best_loss:
            best_loss, best_epoch = val_loss, epoch
            best_state = model.state_dict()

    model.load_state_dict(best_state)
    return {"history": history, "best_epoch": best_epoch, "best_loss": best_loss}
"""
MOST = 6
"""Lines that may differ: one has to; an import, a loop or a comprehension is welcome."""


def draw(source: Draw, part: str) -> Case:
    """Two classes; at a rate of 0 all epochs validate alike: the first of them is the best."""
    return {
        **draw_early_best(source),
        "lr": source.uniform(0.2, 0.25) * (part != "whole" or source.index == 0),
        "decay": source.choice([0.0, 0.02]),
        "momentum": 0.1 * source.index,
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """Weights that are left, and the report."""
    model = build_counting(case["weight"], device)
    train, val = sent(case["train"], device), sent(case["val"], device)
    optimizer = torch.optim.SGD(
        model.parameters(), case["lr"], momentum=case["momentum"], weight_decay=case["decay"]
    )
    watch = Watch(model, optimizer, [tensor for pair in (*train, *val) for tensor in pair])
    report = function(model, train, val, optimizer, EPOCHS)
    entries = reported(report, {"history": "the validation losses",
                        "best_epoch": "the best epoch", "best_loss": "the best loss"},
                       lists=("history",), counts=("best_epoch",))  # fmt: skip
    entries["training"] = any(module.training for module in model.modules())
    return outcome(function, state_of(model), entries, watch, given=GIVEN, most=MOST)


STATE = "            best_state = model.state_dict()\n"
LOAD = "    model.load_state_dict(best_state)\n"
LOWER = "if val_loss < best_loss:"
CLONED = "{name: value.clone() for name, value in model.state_dict().items()}"
FIXED = GIVEN.replace("model.state_dict()\n", CLONED + "\n")

given = partial(variant, GIVEN, __file__)
fixed = partial(variant, FIXED, __file__)
reference = fixed()
KEPT = FIXED[FIXED.index("            best_state =") :].partition("\n")[0] + "\n"
shallow = given((STATE, STATE.replace("state_dict()", "state_dict().copy()")))
as_a_dict = given((STATE, STATE.replace("model.state_dict()", "dict(model.state_dict())")))
detached = given((STATE, STATE.replace("model.state_dict()", CLONED.replace("clone", "detach"))))
in_every_epoch = fixed((KEPT, ""), ("        history.append(val_loss)\n",
                       "        history.append(val_loss)\n" + KEPT[4:]))  # fmt: skip
not_loaded = fixed((LOAD, ""))
another_name = given(
    ("    criterion =", "    import copy\n    criterion ="),
    (STATE, "            best_state = copy.deepcopy(model)\n"),
    (LOAD, "    model = best_state\n"),
)
loaded_in_the_loop = fixed((LOAD, ""), (KEPT, KEPT + "        model.load_state_dict(best_state)\n"))
parameters_alone = fixed(
    ("model.state_dict().items()", "model.named_parameters()"),
    ("load_state_dict(best_state)", "load_state_dict(best_state, strict=False)"),
)
later_of_equals = fixed((LOWER, "if val_loss <= best_loss:"))
before_training = fixed((KEPT, ""), ("    history = []\n", "    history = []\n" + KEPT[8:]))
first_epoch = fixed((KEPT, "            best_state = best_state or " + CLONED + "\n"))
worst = fixed((LOWER, "if val_loss > best_loss:"), ('float("inf")', '-float("inf")'))
stops = fixed((KEPT, KEPT + "        else:\n            break\n"))
counted_from_one = fixed(("val_loss, epoch\n", "val_loss, epoch + 1\n"))
uncleared = fixed(("            optimizer.zero_grad()\n", ""))
not_noted = fixed(("            best_loss, best_epoch = val_loss, epoch\n",
                   "            best_epoch = epoch\n"))  # fmt: skip
back_in_training = fixed((LOAD, LOAD + "    model.train()\n"))

deep = given(
    (STATE, "            import copy\n            best_state = copy.deepcopy(model.state_dict())\n")
)
detached_clones = fixed(("value.clone()", "value.detach().cpu().clone()"))
another_model = given(
    ("    criterion =", "    import copy\n    criterion ="),
    (STATE, "            best_state = copy.deepcopy(model).state_dict()\n"),
)
through_a_file = given((STATE, "            import io\n            best_state = io.BytesIO()\n"
                        "            torch.save(model.state_dict(), best_state)\n"),
                       (LOAD, "    model.load_state_dict(torch.load("
                        "io.BytesIO(best_state.getvalue())))\n"))  # fmt: skip


EXERCISE = Exercise(
    id="03h.best",
    title="script 2: the best epoch that is always the last",
    source='Training-loop chapter, c7; museum B39',
    kind="fix",
    ledger=("B39",),
    minutes=8,
    difficulty=2,
    read=("B39",),
    hints=(
        "Validate once more after the script: is the loss best_loss, or the last one in the "
        "history?",
        "state_dict() holds the same tensors that step() changes in place.",
        "Keep clones: {name: value.clone() for name, value in model.state_dict().items()}.",
    ),
    signature="train_and_keep_best(model, train_batches, val_batches, optimizer, epochs)",
    parts=paid("the model's final weights", ("weights",),
               ("weights", "history", "best_epoch", "best_loss", "training"), MOST),
    reference=reference,
    draw=draw,
    run=run,
    says={
        **SAYS,
        "weights": "the model's final weights:",
        "history": "the validation losses:",
        "best_epoch": "best_epoch",
        "best_loss": "best_loss",
        "training": "whether the model ends in train mode",
    },
    wrong=(
        Wrong("last-weights", shallow,
              "The model that was handed over ends with the weights of the last epoch, not of the "
              "best. In the best epoch, copy each tensor; at the end, load the copies into the "
              "model that was handed over."),
        Wrong("last-weights", as_a_dict),
        Wrong("last-weights", detached),
        Wrong("last-weights", in_every_epoch),
        Wrong("last-weights", not_loaded),
        Wrong("last-weights", another_name),
        Wrong("loaded-in-the-loop", loaded_in_the_loop,
              "After an epoch that did not improve, the next one started from the best weights so "
              "far. Load them once, after the loop: the run itself stays as it was."),
        Wrong("untrained", before_training,
              "The model ends with the weights from before training. Keep a copy whenever "
              "validation improves."),
        Wrong("first-epoch", first_epoch,
              "The model ends with the weights of the first epoch, but a better epoch came later."),
        Wrong("worst", worst,
              "The epoch with the highest validation loss was kept. A lower loss is better."),
        Wrong("stops", stops,
              "The history ends with the first epoch that does not improve. The script runs all of "
              "its epochs."),
        Wrong("parameters-alone", parameters_alone,
              "The final parameters are the best ones, but a buffer comes from the last epoch: "
              "here a count of batches, in BatchNorm the running means. Copy everything in "
              "state_dict()."),
        Wrong("later-of-equals", later_of_equals,
              "Several epochs had the same validation loss, and a later one was kept. The script "
              "requires a lower loss: the first of them stays the best.", sure=True),
        Wrong("counted-from-one", counted_from_one,
              "The weights are right. But best_epoch is one too high: epochs count from 0."),
        Wrong("back-in-training", back_in_training,
              "The weights and the report are right. But the script left its model in eval mode, "
              "ready for use; now it is left in train mode."),
        Wrong("uncleared", uncleared),
        Wrong("not-noted", not_noted),
    ),
    right=(deep, detached_clones, another_model, through_a_file),
)  # fmt: skip
