"""03h.resume: a script that saves half of what the next step depends on."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from io import BytesIO
from typing import Any

import torch

from autograde.bank.harness import Watch, build_optimizer, read_safely
from autograde.bank.scripts import (
    SAYS,
    build_net,
    draw_net,
    model_of,
    outcome,
    paid,
    sent,
    state_of,
)
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Wrong, as_numbers, kept
from autograde.kinds.fix import variant

GIVEN = """
def train_in_two_sittings(make, batches, save, load, first, second):
    def run_epochs(model, optimizer, epochs):
        losses = []
        for _ in range(epochs):
            total, seen = 0.0, 0
            for inputs, targets in batches:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(inputs), targets)
                loss.backward()
                optimizer.step()
                total += loss.item() * len(targets)
                seen += len(targets)
            losses.append(total / seen)
        return losses

    # monday
    model, optimizer = make()
    losses = run_epochs(model, optimizer, first)
    checkpoint = {"model": model.state_dict(), "losses": losses}
    save(checkpoint)

    # tuesday, in a new process
    model, optimizer = make()
    checkpoint = load()
    model.load_state_dict(checkpoint["model"])
    losses = checkpoint["losses"] + run_epochs(model, optimizer, second)
    return model, losses
"""
MOST = 6
"""Lines that may differ: one is changed and one is new; entries set one by one are more."""


def draw(source: Draw, part: str) -> Case:
    """Momentum or Adam, which remember; a run of some epochs before and after the night."""
    features, classes = source.integer(2, 4), source.integer(2, 4)
    return {
        "net": draw_net(source, (features, source.integer(3, 5), classes)),
        "batches": [
            [source.normal(size, features), source.integers(classes, size)]
            for size in (source.integer(4, 6), source.integer(3, 5), 3)
        ],
        "kind": ("momentum", "adam", "groups")[source.index % 3],
        "lr": source.uniform(0.05, 0.2),
        "first": source.integer(2, 3),
        "second": source.integer(2, 3),
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The model that comes back, and the losses; what is saved goes through a file in memory.

    A new process has nothing of the old one: what was made before save() turns to 0 with the next
    make() or load(), and with it a checkpoint that never went through the file.

    Raises:
        AnswerError: After save() came neither, so that there was no second process.
    """
    saved: list[bytes] = []
    built: list[tuple] = []
    monday: list[tuple] = []
    asked: list[int] = []  # how many checkpoints there were at each make() and load()
    held: list[str] = []  # what the last checkpoint has of what the optimizer remembers
    updates = [0, 0]  # before and after the last save()

    def counted(optimizer, *_) -> None:
        updates[1] += 1

    def new_process() -> None:
        for one in monday:
            _emptied(*one)
        asked.append(len(saved))

    def make():
        new_process()
        model = build_net(case["net"], device)
        built.append((model, build_optimizer(case["kind"], model, case["lr"])))
        built[-1][1].register_step_post_hook(counted)
        return built[-1]

    def save(checkpoint) -> None:
        file = BytesIO()
        torch.save(checkpoint, file)
        saved.append(file.getvalue())
        updates[:] = [sum(updates), 0]
        monday[:] = built
        held[:] = [_holds(checkpoint, built[-1][1]) if built else NOT_ALL]

    def load():
        new_process()
        return read_safely(BytesIO(saved[-1]))

    batches = sent(case["batches"], device)
    watch = Watch(data=[tensor for both in batches for tensor in both])
    returned = function(make, batches, save, load, case["first"], case["second"])
    if saved and asked[-1] == 0:
        raise AnswerError(
            "After save() neither make() nor load() was called. Tuesday is a new process: all it "
            "has from Monday is what load() returns."
        )
    model, losses = model_of(returned)
    entries = {"losses": kept(as_numbers, losses, "losses", "the losses, one per epoch"),
               "updates": updates, "held": held}  # fmt: skip
    may = frozenset({"random"})  # make() draws weights
    return outcome(function, state_of(model), entries, watch, given=GIVEN, most=MOST, may=may)


NOT_ALL, EMPTY = "not all of it", "an empty optimizer state"


def _holds(checkpoint: Any, optimizer: torch.optim.Optimizer) -> str:
    """Whether every average of an optimizer is somewhere in a checkpoint, in words."""
    averages = [list(_tensors(state)) for state in optimizer.state.values()]
    found = list(_tensors(checkpoint))
    if averages and all(
        any(a.shape == b.shape and torch.equal(a, b.to(a.device)) for b in found)
        for state in averages for a in state
    ):  # fmt: skip
        return "all of it"
    return EMPTY if any(one.get("state") == {} for one in _states(checkpoint)) else NOT_ALL


def _states(value: Any) -> Iterator[dict[str, Any]]:
    """The state_dicts of optimizers in a nested value."""
    if isinstance(value, dict) and {"state", "param_groups"} <= set(value):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _states(one)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a nested value, apart from counts of steps."""
    if isinstance(value, torch.Tensor) and value.ndim:
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors(one)


def _emptied(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Weights, and what the optimizer remembers."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    value.zero_()


CHECKPOINT = '    checkpoint = {"model": model.state_dict(), "losses": losses}\n'
WITH = CHECKPOINT.replace('"losses"', '"optimizer": optimizer.state_dict(), "losses"')
LOAD = '    model.load_state_dict(checkpoint["model"])\n'
MORE = '    optimizer.load_state_dict(checkpoint["optimizer"])\n'
AGAIN = "    model, optimizer = make()\n    checkpoint"
FIXED = GIVEN.replace(CHECKPOINT, WITH).replace(LOAD, LOAD + MORE)

given = partial(variant, GIVEN, __file__)
fixed = partial(variant, FIXED, __file__)
reference = fixed()
saved_alone = fixed((MORE, ""))
settings_alone = fixed((MORE, '    optimizer.param_groups[0]["lr"] = '
                       'checkpoint["optimizer"]["param_groups"][0]["lr"]\n'))  # fmt: skip
rate_saved = given(
    (CHECKPOINT, CHECKPOINT.replace('"losses"', '"lr": optimizer.param_groups[0]["lr"], "losses"')),
    (LOAD, LOAD + '    optimizer.param_groups[0]["lr"] = checkpoint["lr"]\n'),
)
AT_FIRST = (
    (WITH, CHECKPOINT.replace('"losses"', '"optimizer": at_first, "losses"')),
    ("    losses = run_epochs(model, optimizer, first)\n",
     "    at_first = optimizer.state_dict()\n    losses = run_epochs(model, optimizer, first)\n"),
)  # fmt: skip
saved_at_first = fixed(*AT_FIRST)
empty_and_not_loaded = fixed(*AT_FIRST, (MORE, ""))
object_saved = fixed(("optimizer.state_dict()", "optimizer"),
                     (MORE, '    optimizer = checkpoint["optimizer"]\n'))  # fmt: skip
loaded_alone = fixed((WITH, CHECKPOINT))
old_optimizer = given((AGAIN, "    model, _ = make()\n    checkpoint"))
begun_again = fixed(('checkpoint["losses"] + run', "run"), (LOAD, ""), (MORE, ""))
weights_forgotten = fixed((LOAD, ""))
losses_forgotten = fixed(('checkpoint["losses"] + ', ""))
all_epochs = fixed(("optimizer, second)", "optimizer, first + second)"))
uncleared = fixed(("                optimizer.zero_grad()\n", ""))
epoch_more = fixed(("optimizer, second)", "optimizer, second + 1)"))

all_on_monday = given(
    ("optimizer, first)", "optimizer, first + second)"),
    (" + run_epochs(model, optimizer, second)", ""),
)
still_monday = given((AGAIN, "    checkpoint"), (LOAD, ""))
no_tuesday = given((AGAIN + " = load()\n" + LOAD, ""))
never_read = fixed(("    checkpoint = load()\n", ""))
made_after_loading = fixed((MORE, MORE + "    _, optimizer = make()\n"))
begun_again_unsaved = given(('checkpoint["losses"] + run', "run"), (LOAD, ""))
all_saved_on_monday = fixed(
    ("optimizer, first)", "optimizer, first + second)"),
    (" + run_epochs(model, optimizer, second)", ""),
)
in_a_variable = fixed(
    (WITH, CHECKPOINT + "    kept = optimizer.state_dict()\n"),
    (MORE, "    optimizer.load_state_dict(kept)\n"),
)

by_state = given(
    (CHECKPOINT, CHECKPOINT.replace('"losses"', '"state": optimizer.state_dict(), "losses"')),
    (LOAD, '    optimizer.load_state_dict(checkpoint["state"])\n' + LOAD),
)
in_a_line_of_its_own = given(
    (CHECKPOINT, CHECKPOINT + '    checkpoint["optimizer"] = optimizer.state_dict()\n'),
    (LOAD, LOAD + MORE),
)
as_a_pair = given(
    (CHECKPOINT, CHECKPOINT.replace("model.state_dict()",
                                    "[model.state_dict(), optimizer.state_dict()]")),
    (LOAD, '    model.load_state_dict(checkpoint["model"][0])\n'
     '    optimizer.load_state_dict(checkpoint["model"][1])\n'),
)  # fmt: skip


EXERCISE = Exercise(
    id="03h.resume",
    title="script 4: a jump after the night",
    source='Engineering module, "Common mistakes"; museum B27',
    kind="fix",
    ledger=("B27", "T36"),
    minutes=8,
    difficulty=2,
    read=("B27", "course.engine.Trainer"),
    hints=(
        "Compare the losses with those of a run that never stopped: from which update on do they "
        "differ?",
        "What does the next step depend on besides the weights and the batch?",
        "Save optimizer.state_dict() next to the model's, and load it on Tuesday.",
    ),
    signature="train_in_two_sittings(make, batches, save, load, first, second)",
    parts=paid("the weights after both sittings", ("weights", "updates", "held"),
               ("weights", "updates", "losses", "held"), MOST),
    reference=reference,
    draw=draw,
    run=run,
    says={
        **SAYS,
        "weights": "after both sittings, the weights",
        "updates": "the updates before and after save():",
        "losses": "the losses:",
        "held": "what the last checkpoint holds of what the optimizer remembers:",
    },
    wrong=(
        Wrong("not-loaded", saved_alone,
              "The optimizer's state is in the checkpoint, but after the night the weights "
              "continue as with an optimizer that remembers nothing. Only the loading is missing: "
              "load that state into the optimizer from Tuesday's make()."),
        Wrong("not-loaded", settings_alone),
        Wrong("saved-empty", saved_at_first,
              "The saved optimizer state is empty: it was taken before the optimizer had made a "
              "step. Take optimizer.state_dict() after Monday's epochs."),
        Wrong("saved-empty", empty_and_not_loaded),
        Wrong("nothing-remembered", rate_saved,
              "After the night the weights continue as with an optimizer that remembers nothing. "
              "Tuesday has nothing of Monday's but what load() returns: save the optimizer's "
              "state as well, and load it into an optimizer from Tuesday's make()."),
        Wrong("nothing-remembered", in_a_variable),
        Wrong("object-saved", object_saved,
              "The checkpoint holds an object that load() refuses, such as the optimizer itself. "
              "Save its state_dict().", raises="UnpicklingError"),
        Wrong("not-in-the-checkpoint", loaded_alone,
              "load() returns what was saved, and that has no such entry. Put the optimizer's "
              "state_dict() into the checkpoint.", raises="KeyError: 'opt"),
        Wrong("old-optimizer", old_optimizer,
              "On Tuesday the model does not change: its optimizer holds tensors that are not the "
              "model's, such as Monday's. Make both again, and load the optimizer's state."),
        Wrong("old-optimizer", made_after_loading),
        Wrong("still-monday", still_monday,
              "Tuesday continued with tensors from Monday's memory, a model's or a checkpoint's. A "
              "new process does not have them, so here they are set to 0. Call make() again, and "
              "load the state from load() into what it returns."),
        Wrong("still-monday", never_read),
        Wrong("no-tuesday", no_tuesday),
        Wrong("begun-again", begun_again,
              "Tuesday starts with the initial weights, as if there had been no Monday."),
        Wrong("begun-again", begun_again_unsaved),
        Wrong("weights-forgotten", weights_forgotten,
              "Tuesday continues with Monday's optimizer state but with the initial weights. Load "
              "both."),
        Wrong("losses-forgotten", losses_forgotten,
              "The weights are right. But the losses of the first sitting are missing."),
        Wrong("all-epochs", all_epochs,
              "Tuesday trains for all epochs, but Monday's are already done."),
        Wrong("uncleared", uncleared),
        Wrong("all-on-monday", all_on_monday,
              "Every update was made before save(), and Tuesday only loaded the result. Monday "
              "trains for `first` epochs, Tuesday for `second` more.", sure=True),
        Wrong("all-on-monday", all_saved_on_monday, sure=True),
        Wrong("epoch-more", epoch_more),
    ),
    right=(by_state, in_a_line_of_its_own, as_a_pair),
)  # fmt: skip
