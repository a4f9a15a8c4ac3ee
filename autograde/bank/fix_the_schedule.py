"""04a.fix-the-schedule: a cosine in the wrong unit, made again each epoch, stepped too early."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import nn

from autograde.bank.harness import Counted
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_numbers
from autograde.kinds.fix import change_size, variant

GIVEN = """
def fit(model, loader, criterion, optimizer, epochs):
    lrs = []
    for _ in range(epochs):
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            scheduler.step()
            optimizer.step()
            lrs.append(optimizer.param_groups[0]["lr"])
    return lrs
"""
MOST = 8
"""Lines that may differ: two are moved, one is changed, and a name for the length is welcome."""


def draw(source: Draw, part: str) -> Case:
    """Loaders in which only what the part asks about can be wrong.

    `unit`: one epoch, in which a schedule made per epoch is made once. `once`: one batch per epoch,
    in which epochs and updates are the same number. The first rate tells the order by itself.
    """
    batches, epochs = source.integer(2, 3) * 2, source.integer(3, 5)
    if part == "unit":
        epochs = 1
    if part == "once":
        batches = 1
    sizes = [source.integer(2, 4) for _ in range(batches)]
    return {
        "batches": [[source.normal(size, 3), source.integers(2, size)] for size in sizes],
        "weight": source.normal(2, 3, scale=0.5),
        "bias": source.normal(2, scale=0.5),
        "lr": source.uniform(0.1, 0.5),
        "epochs": epochs,
        "momentum": source.choice([0.0, 0.9]),
        "smoothing": source.choice([0.0, 0.2]),
        "groups": source.index == 1,
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The rates that the updates used, as seen at optimizer.step(); those reported; the weights."""
    model = nn.Linear(3, 2).to(device)
    model.weight.data.copy_(case["weight"])
    model.bias.data.copy_(case["bias"])
    groups = [{"params": [model.weight]}, {"params": [model.bias]}]
    if case["groups"]:
        groups[1]["lr"] = case["lr"] / 4
    optimizer = torch.optim.SGD(groups, case["lr"], momentum=case["momentum"])
    used: list[float] = []
    optimizer.register_step_pre_hook(lambda made, *_: used.append(made.param_groups[0]["lr"]))
    batches, passes = [(x.to(device), y.to(device)) for x, y in case["batches"]], []

    def begin() -> Iterator:  # in the same order each time: who counts them first changes nothing
        passes.append(len(batches))
        yield from batches

    loader = Counted(begin, len(batches))
    criterion = nn.CrossEntropyLoss(label_smoothing=case["smoothing"])
    returned = function(model, loader, criterion, optimizer, case["epochs"])
    return {
        "first": used[:1],
        "falls": _falls([*used, optimizer.param_groups[0]["lr"]], case["lr"]),
        "left": optimizer.param_groups[0]["lr"],
        "used": used,
        "lrs": as_numbers(returned, "lrs", "the rates, one per update"),
        "weights": torch.cat([model.weight.flatten(), model.bias]).detach().cpu(),
        "passes": min(len(passes), case["epochs"]),
        "changed": change_size(GIVEN, function, most=MOST),
    }


def _falls(rates: list[float], full: float) -> list[float]:
    """The rates that a run went through below the full one, whichever update used them."""
    below = [rate for rate in rates if rate < full * (1 - 1e-6)]
    return [rate for i, rate in enumerate(below) if i == 0 or abs(rate - below[i - 1]) > 1e-9]


MAKE = "        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)\n"
EPOCHS = "    for _ in range(epochs):\n"
TURN, STEP = "            scheduler.step()\n", "            optimizer.step()\n"
CLEAR = "            optimizer.zero"
NOTE = '            lrs.append(optimizer.param_groups[0]["lr"])\n'
MADE = MAKE[4:].replace("T_max=epochs", "T_max=epochs * len(loader)")
FIXED = GIVEN
for old, new in ((MAKE, ""), (EPOCHS, MADE + EPOCHS), (TURN, ""), (NOTE, NOTE + TURN)):
    FIXED = FIXED.replace(old, new)

fixed = partial(variant, FIXED, __file__)
reference = fixed()
in_epochs = fixed(("epochs * len(loader)", "epochs"))
one_epoch_long = fixed(("epochs * len(loader)", "len(loader)"))
added_up = fixed(("epochs * len(loader)", "epochs + len(loader)"))
half_as_long = fixed(("epochs * len(loader)", "epochs * len(loader) // 2"))
made_each_epoch = fixed((MADE + EPOCHS, EPOCHS + "    " + MADE))
made_each_batch = fixed((MADE, ""), (CLEAR, "        " + MADE + CLEAR))
order_alone = fixed((MADE + EPOCHS, EPOCHS + "    " + MADE), ("epochs * len(loader)", "epochs"))
turned_first = fixed((NOTE + TURN, NOTE), (STEP, TURN + STEP))
turned_at_the_top = fixed((NOTE + TURN, NOTE), (CLEAR, TURN + CLEAR))
turned_per_epoch = fixed((NOTE + TURN, NOTE + TURN[4:]))
turned_per_epoch_in_epochs = fixed(
    (NOTE + TURN, NOTE + TURN[4:]), ("epochs * len(loader)", "epochs")
)
never_turned = fixed((NOTE + TURN, NOTE))
noted_after = fixed((NOTE + TURN, TURN + NOTE))
noted_and_turned_first = fixed((NOTE + TURN, ""), (STEP, NOTE + TURN + STEP))
one_update_long = fixed(("epochs * len(loader)", "epochs * len(loader) + 1"))
of_examples = fixed(("epochs * len(loader)", "epochs * sum(len(y) for _, y in loader)"))
back_each_epoch = fixed(
    (NOTE + TURN, NOTE + TURN + "        optimizer.param_groups[0]['lr'] = lrs[0]\n")
)
one_update_short = fixed(("epochs * len(loader)", "epochs * len(loader) - 1"))
another_schedule = fixed(
    ("CosineAnnealingLR(optimizer, T_max=epochs * len(loader))",
     "LinearLR(optimizer, 1.0, 0.0, total_iters=epochs * len(loader))")
)  # fmt: skip
with_a_floor = fixed(("len(loader))", "len(loader), eta_min=0.01)"))

batches_kept = fixed((MADE, "    batches = list(loader)\n" + MADE), ("in loader:", "in batches:"))
one_epoch_made_each_epoch = fixed(
    (MADE + EPOCHS, EPOCHS + "    " + MADE), ("epochs * len(loader)", "len(loader)")
)
with_a_total = fixed((MADE, "    total = len(loader) * epochs\n" + MADE.replace(
    "epochs * len(loader)", "total")))  # fmt: skip
noted_first = fixed((NOTE + TURN, TURN), (CLEAR, NOTE + CLEAR))
asked_of_the_schedule = fixed((NOTE, "            lrs.append(scheduler.get_last_lr()[0])\n"))
with_a_lambda = fixed(
    (MADE, "    total = epochs * len(loader)\n    scheduler = torch.optim.lr_scheduler.LambdaLR(\n"
     "        optimizer, lambda t: 0.5 + 0.5 * torch.tensor(t / total * torch.pi).cos().item())\n"),
)  # fmt: skip


EXERCISE = Exercise(
    id="04a.fix-the-schedule",
    title="a schedule that falls too often",
    source='Annotated-loop essay, "Learning rate schedules"',
    kind="fix",
    ledger=("F59", "F60", "N27", "B24", "T18"),
    minutes=10,
    difficulty=2,
    read=("F59", "F60", "N27"),
    hints=(
        "Plot what it returns for 3 epochs of 8 batches: how often does the rate come down?",
        "Ask three questions: how often is the schedule created, what does T_max count, and which "
        "rate does the first update get?",
        "Create it once, before the loop over epochs, with T_max = epochs * len(loader), and step "
        "it after optimizer.step() and after lrs.append().",
    ),
    signature="fit(model, loader, criterion, optimizer, epochs)",
    parts=(
        Part("unit", "one epoch of several batches", points=1, fields=("falls", "left")),
        Part("once", "several epochs of one batch", points=1, fields=("falls", "left")),
        Part("first", "the first update, at the full rate", points=1, fields=("first",)),
        Part(
            "little",
            f"rates, report and weights of a whole run, at most {MOST} lines changed",
            points=1,
            fields=("used", "lrs", "weights", "passes", "changed"),
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "first": "the rate of the first update",
        "falls": "the rates below the full one, up to the one after the run, counted from 0:",
        "left": "the rate after the run",
        "used": "the rates that the updates used, counted from 0:",
        "lrs": "the returned list of rates, counted from 0:",
        "passes": "how often the loader was gone through, up to the number of epochs:",
        "weights": "after the run, the weights at",
        "changed": "the number of lines changed",
    },
    wrong=(
        Wrong(
            "in-epochs",
            in_epochs,
            "The schedule's length is the number of epochs, but it is stepped after every batch, "
            "so it falls and climbs many times. T_max counts calls of scheduler.step().",
        ),
        Wrong(
            "one-epoch-long",
            one_epoch_long,
            "The schedule is one epoch long: it climbs in the second. The run has epochs * "
            "len(loader) updates.",
        ),
        Wrong(
            "one-epoch-long-each-epoch",
            one_epoch_made_each_epoch,
            "A new schedule, one epoch long, is created in every epoch: after the first epoch the "
            "rate is 0, and the next schedule starts there. Create one before the loop over the "
            "epochs, with T_max = epochs * len(loader).",
        ),
        Wrong(
            "batches-kept",
            batches_kept,
            "The batches of the first epoch were used in every epoch: the loader was gone through "
            "once. One that shuffles has others each time, so go through the loader itself.",
            sure=True,
        ),
        Wrong("half-as-long", half_as_long),
        Wrong(
            "added-up",
            added_up,
            "The schedule's length is the number of epochs plus the number of batches. Each epoch "
            "has len(loader) updates: multiply.",
        ),
        Wrong(
            "made-each-epoch",
            made_each_epoch,
            "A new schedule is created in every epoch and begins at step 0. Create one, before "
            "the loop over the epochs.",
        ),
        Wrong("made-each-batch", made_each_batch),
        Wrong(
            "order-alone",
            order_alone,
            "The first update now has the full rate. But a new schedule is still created in every "
            "epoch, and its T_max counts epochs while step() comes after every batch.",
        ),
        Wrong(
            "turned-first",
            turned_first,
            "The schedule moved before the first update, which never had the full rate. Step it "
            "after optimizer.step().",
        ),
        Wrong("turned-first", turned_at_the_top),
        Wrong("turned-first", noted_and_turned_first),
        Wrong(
            "one-update-short",
            one_update_short,
            "The rate reaches 0 one update too early, so the last one moves nothing. It should be "
            "0 after the last update: T_max is the number of updates.",
        ),
        Wrong(
            "turned-per-epoch",
            turned_per_epoch,
            "The schedule's length is the number of updates, but it is stepped once per epoch: it "
            "has hardly begun when the run ends.",
        ),
        Wrong(
            "in-stairs",
            turned_per_epoch_in_epochs,
            "The rate stays the same throughout an epoch. Here the schedule should move after "
            "each update.",
        ),
        Wrong("never-turned", never_turned, "The rate is the same all along: nothing steps the "
              "schedule."),
        Wrong(
            "noted-after",
            noted_after,
            "The rates that the updates used are right. But the reported rate is the next "
            "update's: append it before scheduler.step().",
        ),
        Wrong(
            "one-update-long",
            one_update_long,
            "The rate is not quite 0 after the last update: T_max is one too large. It should be "
            "the number of updates.",
        ),
        Wrong(
            "of-examples",
            of_examples,
            "The schedule's length is the number of examples seen. It moves once per update: "
            "epochs * len(loader).",
        ),
        Wrong("back-each-epoch", back_each_epoch),
        Wrong("another-schedule", another_schedule),
        Wrong("with-a-floor", with_a_floor),
    ),
    right=(with_a_total, noted_first, asked_of_the_schedule, with_a_lambda),
)  # fmt: skip
