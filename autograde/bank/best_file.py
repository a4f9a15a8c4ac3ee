"""03g.best-file: a run that writes two files, and keeps the best checkpoint by reference."""

from __future__ import annotations

from functools import partial
from io import BytesIO
from typing import Any

import torch

from autograde.bank.harness import Watch, read_safely
from autograde.bank.scripts import (
    EPOCHS,
    SAYS,
    build_counting,
    draw_early_best,
    outcome,
    sent,
    state_of,
)
from autograde.exercise import (
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_numbers,
    kept,
)
from autograde.kinds.fix import variant

GIVEN = """
def train_with_two_files(model, train_batches, val_batches, criterion, optimizer, epochs, save):
    history, best_loss, best = [], float("inf"), None
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
                total += criterion(model(inputs), targets).item() * len(targets)
                seen += len(targets)
        history.append(total / seen)

        checkpoint = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "history": history,
            "epoch": epoch,
        }
        save("last", checkpoint)
        if history[-1] < best_loss:
            best_loss, best = history[-1], checkpoint
    save("best", best)
    return history
"""
MOST = 6
"""Lines that may differ: one and an import for a deep copy; copies written out in loops, six."""
FIELDS = ("model", "optimizer", "history", "epoch")


def draw(source: Draw, part: str) -> Case:
    """Data whose best epoch is neither the first nor the last; both optimizers keep averages.

    But for one hidden case of a single epoch: the first may be the best, too. Another ends right
    after its best epoch, when the last is not yet the worst; in a third no weight moves, and all
    epochs validate alike.
    """
    adam = source.index % 2 == 1
    case = {
        **draw_early_best(source),
        "lr": source.uniform(0.045, 0.06) if adam else source.uniform(0.06, 0.1),
        "adam": adam,
        "smoothing": source.choice([0.0, 0.02]),
        "epochs": 1 if part == "whole" and source.index == 2 else EPOCHS,
    }
    if part == "whole" and source.index == 3:
        case["lr"] = 0.0
    if part == "core" and adam:
        history = run(reference, case, torch.device("cpu"))["history"]
        case["epochs"] = history.index(min(history)) + 2
    return case


def run(function, case: Case, device: torch.device) -> Answer:
    """Both files as they lie on the disk in the end, the history and the model."""
    model = build_counting(case["weight"], device)
    train, val = sent(case["train"], device), sent(case["val"], device)
    make = torch.optim.Adam if case["adam"] else partial(torch.optim.SGD, momentum=0.6)
    optimizer = make(model.parameters(), lr=case["lr"])
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=case["smoothing"])
    watch = Watch(model, optimizer, [tensor for both in (*train, *val) for tensor in both])
    files: dict[str, bytes] = {}

    def save(name, checkpoint) -> None:
        file = BytesIO()
        torch.save(checkpoint, file)
        files[name] = file.getvalue()

    history = function(model, train, val, criterion, optimizer, case["epochs"], save)
    best = kept(_opened, files, "best")
    whole = "model" in best
    entries = {
        "history": kept(as_numbers, history, "history", "the validation losses, one per epoch"),
        "best_model": best["model"] if whole else best,
        "best_rest": {k: v for k, v in best.items() if k != "model"} if whole else best,
        "last": kept(_opened, files, "last"),
    }
    return outcome(function, state_of(model), entries, watch, given=GIVEN, most=MOST)


def _opened(files: dict[str, bytes], name: str) -> dict:
    """What a file holds."""
    if name not in files:
        raise AnswerError(f"save({name!r}, ...) was not called.")
    try:
        content = read_safely(BytesIO(files[name]), map_location="cpu")
    except Exception as error:
        raise AnswerError(f"The file {name!r} cannot be read with weights_only=True: "
                          f"{type(error).__name__}.") from None  # fmt: skip
    if not isinstance(content, dict) or set(content) != set(FIELDS):
        shown = list(content) if isinstance(content, dict) else type(content).__name__
        raise AnswerError(f"The file {name!r} holds {shown}; the given code saves {list(FIELDS)}.")
    return _plainly(content)


def _plainly(value: Any) -> Any:
    """A checkpoint as plain data: a state dict is an OrderedDict, an optimizer's has int keys."""
    if isinstance(value, dict):
        return {str(key): _plainly(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plainly(one) for one in value]
    return value


KEEP = "            best_loss, best = history[-1], checkpoint\n"
LOWER = "if history[-1] < best_loss:"
SAVE_LAST = '        save("last", checkpoint)\n'
SAVE_BEST = '    save("best", best)\n'
MODEL = '            "model": model.state_dict(),\n'
OPTIMIZER = '            "optimizer": optimizer.state_dict(),\n'
HISTORY = '            "history": history,\n'
DEEP = "            import copy\n" + KEEP.replace("checkpoint", "copy.deepcopy(checkpoint)")
CLONES = '            "model": {name: t.clone() for name, t in model.state_dict().items()},\n'
MOMENTS = """            "optimizer": {
                "state": {
                    i: {name: t.clone() for name, t in moments.items()}
                    for i, moments in optimizer.state_dict()["state"].items()
                },
                "param_groups": optimizer.state_dict()["param_groups"],
            },
"""
IMPORT = ("    history, best_loss", "    import copy\n    history, best_loss")
FIXED = GIVEN.replace(KEEP, DEEP)

given = partial(variant, GIVEN, __file__)
fixed = partial(variant, FIXED, __file__)
reference = fixed()
shallow = given((KEEP, KEEP.replace("checkpoint", "checkpoint.copy()")))
as_a_dict = given((KEEP, KEEP.replace("checkpoint", "dict(checkpoint)")))
copied_at_the_end = given((SAVE_BEST, '    import copy\n    save("best", copy.deepcopy(best))\n'))
shallow_state = given((MODEL, MODEL.replace("state_dict()", "state_dict().copy()")),
                      (HISTORY, HISTORY.replace("history,", "list(history),")))  # fmt: skip
detached = given((MODEL, CLONES.replace("clone", "detach")))
weights_alone = given((MODEL, CLONES))
weights_by_reference = given((MODEL, CLONES.replace("clone", "detach")), (OPTIMIZER, MOMENTS),
                             (HISTORY, HISTORY.replace("history,", "history[:],")))  # fmt: skip
weights_and_history = given((MODEL, CLONES), (HISTORY, HISTORY.replace("history,", "history[:],")))
moments_shallow = given(
    (MODEL, CLONES), (HISTORY, HISTORY.replace("history,", "history.copy(),")),
    (OPTIMIZER, OPTIMIZER.replace("optimizer.state_dict()", "dict(optimizer.state_dict())")),
)  # fmt: skip
history_alone = given((HISTORY, HISTORY.replace("history,", "list(history),")))
history_forgotten = given((MODEL, CLONES), (OPTIMIZER, MOMENTS))
saved_each_epoch = given((KEEP, "            best_loss = history[-1]\n"
                          '        save("best", checkpoint)\n'), (SAVE_BEST, ""))  # fmt: skip
saved_twice = given((KEEP, KEEP + '            save("best", best)\n'))
BOTH = '            save("best", best)\n            save("last", best)\n'
best_alone = given((SAVE_BEST, ""), (SAVE_LAST, ""), (KEEP, KEEP + BOTH))
parameters_alone = fixed((MODEL, '            "model": {n: p.detach().clone() '
                          "for n, p in model.named_parameters()},\n"))  # fmt: skip
weights_in_the_file = fixed((SAVE_BEST, '    save("best", best["model"])\n'))
loaded_at_the_end = fixed((SAVE_BEST, SAVE_BEST + '    model.load_state_dict(best["model"])\n'))
worst = fixed((LOWER, "if history[-1] > best_loss:"),
              ('float("inf")', '-float("inf")'))  # fmt: skip
uncleared = fixed(("            optimizer.zero_grad()\n", ""))
first_left_out = fixed((LOWER, "if history[-1] < min(history[:-1], default=0.0):"))
later_of_equals = fixed((LOWER, "if history[-1] <= best_loss:"))
never_saved = fixed((SAVE_BEST, ""))

at_once = given((KEEP, "            best_loss = history[-1]\n"
                 '            save("best", checkpoint)\n'), (SAVE_BEST, ""))  # fmt: skip
always_deep = given(IMPORT, (SAVE_LAST, "        checkpoint = copy.deepcopy(checkpoint)\n"
                             + SAVE_LAST))  # fmt: skip
through_bytes = given(
    (KEEP, "            import io\n            best_loss, best = history[-1], io.BytesIO()\n"
     "            torch.save(checkpoint, best)\n"),
    (SAVE_BEST, '    save("best", torch.load(io.BytesIO(best.getvalue())))\n'),
)  # fmt: skip
piece_by_piece = given(
    (MODEL, CLONES), (OPTIMIZER, MOMENTS), (HISTORY, HISTORY.replace("history,", "history[:],"))
)


EXERCISE = Exercise(
    id="03g.best-file",
    title="the best file that holds the last epoch",
    source="Training-loop chapter, c7; museum B39",
    kind="fix",
    ledger=("B39", "T34"),
    minutes=8,
    difficulty=2,
    read=("B39", "course.engine.checkpoint"),
    hints=(
        "Which of the four things in a checkpoint does the next epoch write into?",
        "Both files get the same dictionary. One file is written before the next epoch, the other "
        "after the last.",
        'best = copy.deepcopy(checkpoint), or save("best", checkpoint) as soon as it is found.',
    ),
    signature="train_with_two_files(model, train_batches, val_batches, criterion, optimizer, "
    "epochs, save)",
    parts=(
        Part("core", "the weights in the best file", points=1, fields=("best_model",)),
        Part("rest", "everything else in the best "
                     "file", points=1, fields=("best_model", "best_rest")),
        Part("whole", "both files, the history, and the model afterwards", points=1, hidden=True,
             cases=4,
             fields=("best_model", "best_rest", "last", "history", "weights",
                     "trained", "disturbed")),
        Part("little", f"the same, with at most {MOST} lines changed", points=1,
             fields=("best_model", "best_rest", "last", "history", "changed")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        **SAYS,
        "weights": "the model's weights afterwards:",
        "best_model": "in the best file, of the model",
        "best_rest": "in the best file,",
        "last": "in the last file,",
        "history": "the validation losses:",
    },
    wrong=(
        Wrong("all-of-the-last", shallow,
              "The best file holds the weights of the last epoch. The last call of "
              "save(\"best\", ...) comes after the run, when later epochs have written into the "
              "same tensors: save only in the best epoch, or copy everything there, tensor by "
              "tensor."),
        Wrong("all-of-the-last", saved_twice),
        Wrong("all-of-the-last", as_a_dict),
        Wrong("all-of-the-last", copied_at_the_end),
        Wrong("all-of-the-last", detached),
        Wrong("history-alone", history_alone,
              "The history in the best file ends with the best epoch, but the weights are those of "
              "the last: the list was copied, and the tensors were not."),
        Wrong("history-alone", shallow_state),
        Wrong("weights-by-reference", weights_by_reference,
              "Everything in the best file except the weights belongs to the best epoch. The "
              "weights are those of the last: detach() and dict() share the memory that step() "
              "writes into; clone() does not."),
        Wrong("weights-alone", weights_alone,
              "The weights in the best file are right. But the optimizer's averages and the "
              "history are those of the last epoch: they are stored by reference too."),
        Wrong("moments", weights_and_history,
              "Weights and history in the best file are right, but the optimizer's averages are "
              "those of the last epoch: its state_dict() holds the tensors that step() writes "
              "into."),
        Wrong("moments", moments_shallow),
        Wrong("history-forgotten", history_forgotten,
              "All tensors in the best file are right. But its history continues to the last "
              "epoch: append() writes into the same list that the checkpoint holds."),
        Wrong("every-epoch", saved_each_epoch,
              "Everything in the best file, including the epoch number, comes from the last epoch: "
              "it was written although validation had not improved."),
        Wrong("best-alone", best_alone,
              "The best file is right. But the last file also holds the best epoch; write it after "
              "each epoch, as in the given code."),
        Wrong("parameters-alone", parameters_alone),
        Wrong("weights-in-the-file", weights_in_the_file),
        Wrong("loaded-at-the-end", loaded_at_the_end,
              "Both files are right. But the model ends with the best weights; in the given code "
              "it ends with the last ones."),
        Wrong("worst", worst,
              "The epoch with the highest validation loss was kept. A lower loss is better."),
        Wrong("uncleared", uncleared),
        Wrong("first-left-out", first_left_out),
        Wrong("later-of-equals", later_of_equals,
              "If all epochs have the same validation loss, the best file holds the last one. In "
              "the given code a later epoch has to be better.", sure=True),
        Wrong("never-saved", never_saved),
    ),
    right=(at_once, always_deep, through_bytes, piece_by_piece),
)  # fmt: skip
