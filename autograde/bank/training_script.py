"""03a.training-script: the whole of training in one function, graded by what it does.

Each part is tried where only it can be wrong: what an update does in a single epoch, the validation
loss with a learning rate of 0, the best epoch with validation losses that are laid down beforehand.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from autograde.bank.common_wrong import common
from autograde.bank.harness import (
    TRAINED,
    Counted,
    Training,
    draw_batches,
    draw_training,
    plainly,
)
from autograde.exercise import (
    Answer,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_index,
    as_numbers,
    kept_entries,
)
from autograde.kinds.fix import variant
from course.data import InMemoryLoader, load
from course.engine import EarlyStopping, evaluate, train_step
from course.engine.loss_of import as_loss_of

STEP = 100.0
"""Between two laid-down validation losses."""
HARDLY = 1e-6
"""Of such a step: a lower loss all the same, and no least difference of anybody's is below it."""
BY_HAND = 1e-6
"""What torch adds to the norm it divides by; clipping written by hand need not, and is as right."""
GOOD = 0.93
"""Accuracy on validation that 60 updates reach with every seed (lowest of 200 seeds: 0.955)."""


OVER_EPOCHS = ("modes", "losses", "best")
"""Parts about what happens between epochs: two batches in each are enough, and soon done."""
BAD_BATCH = 1
"""The batch, counted from 0, whose loss is not finite."""
HUGE = 1e36
"""A loss that float32 still holds, of the batch before: it is finite, and no reason to stop."""


def draw(source: Draw, part: str) -> Case:
    """Batches of unlike size, and what the part asks about."""
    if part == "accuracy":
        return {"part": part, "seed": source.integer(0, 100_000)}
    most = 1 if part in OVER_EPOCHS else source.integer(2, 3)
    sizes = [source.integer(3, 5) for _ in range(most)] + [2]
    vary, norm = part == "weights", part == "modes"
    stale = part == "weights"
    case = draw_training(source, sizes, vary=vary, norm=norm, dropout=norm, stale=stale)
    features, classes = case["layers"][0], case["layers"][-1]
    val = draw_batches(source, [source.integer(4, 6), source.integer(1, 2)], features, classes)
    case |= {"part": part, "val": val, "epochs": 3, "patience": 5, "levels": []}
    if part == "weights":
        case["epochs"] = 1
        for batch in case["batches"]:
            batch["inputs"] *= 4  # gradients longer than 1
        _answer_right(case, case["batches"][1])
    if part == "weights" and case["criterion"] == "function":  # it is 0 where all is well
        for batch in case["batches"]:
            _answer_wrong(case, batch)
    if part == "losses":
        case["lr"] = 0.0
    if part == "finite" and source.index == 0:
        case["batches"][BAD_BATCH]["inputs"][0, 0] = math.nan
    elif part == "finite":
        case["batches"][BAD_BATCH]["targets"] += classes  # the loss is inf: see Overflowing
        case["overflows"] = ("", "times", "minus")[source.index]
    if case.get("overflows") == "minus":
        case["batches"][BAD_BATCH - 1]["targets"] += 2 * classes
    if part == "best":
        case |= _levels(source) | {"counted": True}
    return case


def _answer_right(case: Case, batch: dict[str, Tensor]) -> None:
    """Give a batch the targets that the model answers: most gradients are then shorter than 1."""
    model = Training(case, torch.device("cpu")).model
    with torch.no_grad():
        batch["targets"] = model(batch["inputs"].to(next(model.parameters()).dtype)).argmax(dim=1)


def _answer_wrong(case: Case, batch: dict[str, Tensor]) -> None:
    """Give one example a target that the model excludes: no norm to divide by is then 0."""
    model = Training(case, torch.device("cpu")).model
    with torch.no_grad():
        logits = model(batch["inputs"].to(next(model.parameters()).dtype))
    batch["targets"][0] = logits[0].argmin()


def _levels(source: Draw) -> Case:
    """How high validation lies in each epoch: better at the last moment, then worse until the end.

    The epoch after the best one is as good, and no better. The second case is over before patience
    is, at an epoch that is not the best. In the third one loss is inf, and one is hardly lower.
    """
    patience = source.integer(2, 3)
    rises = [5 + source.integer(1, 3) for _ in range(patience - 1)]
    tail = [7 - i for i in range(patience + 2)]
    if source.index != 1:
        tail[0] = 2
    levels = [8, 5, *rises, 2, *tail]
    if source.index == 2:
        levels[2:3] = [5 - HARDLY, math.inf]
    epochs = len(levels) if source.index != 1 else patience + 3
    return {"patience": patience, "levels": levels, "epochs": epochs}


class Overflowing(nn.Module):
    """Cross entropy; not finite for a batch with targets beyond the classes, HUGE for twice beyond.

    Args:
        kind: `times` inf, so that the gradient is inf, too; or `minus` inf, which leaves it finite.
    """

    def __init__(self, classes: int, kind: str) -> None:
        super().__init__()
        self.classes, self.kind = classes, kind

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        loss = F.cross_entropy(logits, targets % self.classes)
        beyond = int((targets // self.classes).max())
        if beyond == 0:
            return loss
        if beyond == 2:
            return loss + HUGE
        return loss * math.inf if self.kind == "times" else loss - math.inf


class Leveled(nn.Module):
    """Cross entropy; of targets with a level in them, that level, so that two can be equal."""

    def __init__(self, classes: int, levels: list[float]) -> None:
        super().__init__()
        self.classes, self.levels = classes, torch.tensor([0, *levels], dtype=torch.float64)

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        at = (targets // self.classes).clamp(0, len(self.levels) - 1)  # the engine tries others
        level = self.levels.to(targets.device)[at].mean()
        loss = F.cross_entropy(logits, targets % self.classes)
        return loss if level == 0 else 0 * loss + STEP * level


class Validation:
    """The validation loader: notes the model's state whenever a pass begins."""

    def __init__(self, t: Training, case: Case, device: torch.device) -> None:
        dtype = getattr(torch, case["dtype"])
        self.batches = [
            (batch["inputs"].to(device, dtype), batch["targets"].to(device))
            for batch in case["val"]
        ]
        self.t, self.levels, self.classes = t, case["levels"], case["layers"][-1]
        self.states: list[dict[str, Tensor]] = []
        self.loader = Counted(plainly(self._begin), len(self.batches))

    def _begin(self) -> Iterator[tuple[Tensor, Tensor]]:
        with torch.inference_mode(False):  # the answer may validate under it
            self.states.append(self.t.state())
        shift = self.classes * min(len(self.states), len(self.levels))
        return iter([(inputs, targets + shift) for inputs, targets in self.batches])


def run(function, case: Case, device: torch.device) -> Answer:
    """What came back, where it stopped, whose weights are left, and in which modes it ran."""
    if case["part"] == "accuracy":
        return {"accuracy": _on_digits(function, case["seed"], device)}
    t = Training(case, device)
    val = Validation(t, case, device)
    criterion = t.criterion
    if case["levels"]:
        criterion = Leveled(val.classes, case["levels"])
    if case.get("overflows"):
        criterion = Overflowing(val.classes, case["overflows"])
    if case.get("counted"):
        t.model.register_buffer("passes", torch.zeros((), device=device))
    scheduler = torch.optim.lr_scheduler.StepLR(t.optimizer, step_size=1, gamma=0.5)
    t.remember()
    trained, validated, passes = _watch_modes(t, val)
    raised, returned = "", None
    try:
        given = (t.model, t.batches, val.loader, criterion, t.optimizer, scheduler)
        returned = function(*given, case["epochs"], case["patience"])
    except FloatingPointError as fault:
        if type(fault).__name__ == "NotAllowedError":
            raise
        raised = "FloatingPointError"
        if case["part"] == "finite" and len(trained) < BAD_BATCH + 1:
            raised += ", before the model was given the batch with that loss"
    state = t.state()
    finite = all(value.isfinite().all() for value in state.values())
    return {
        "state": state,
        "lr": [float(group["lr"]) for group in t.optimizer.param_groups],
        "disturbed": t.changed(TRAINED | {"options"}),
        "training": _one(trained),
        "validation": _one(validated),
        "order": ", ".join(kind for kind, _ in groupby(passes)),
        "epochs": len(val.states),
        "left": _left(val.states, state),
        "unscheduled": _between(len(val.states) - scheduler.last_epoch, len(val.states)),
        "raised": raised or "nothing",
        "finite": "free of nan and inf" if finite else "one with nan or inf in its state_dict()",
        **(dict.fromkeys(RETURNED, raised) if raised else kept_entries(returned, RETURNED)),
    }


RETURNED = {
    "best_epoch": (as_index, "the best epoch, counted from 0"),
    "val_losses": (
        lambda value, what: as_numbers(value, "val_losses", what),  # a helper would be guarded
        "the validation losses, one per epoch",
    ),
}


def _watch_modes(t: Training, val: Validation) -> tuple[list[str], list[str], list[str]]:
    """Of each forward pass in training and in validation: the mode, and whether it made a graph.

    And of all of them, in order, which of the two it was.
    """
    ours = {inputs.data_ptr() for inputs, _ in val.batches}
    trained: list[str] = []
    validated: list[str] = []
    passes: list[str] = []

    def note(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        modes = {"train" if m.training else "eval" for m in module.modules()}
        mode = f"{modes.pop()} mode" if len(modes) == 1 else "train mode in some modules only"
        passes.append("validation" if args[0].data_ptr() in ours else "training")
        if args[0].data_ptr() in ours:
            validated.append(f"{mode}, {'with' if output.requires_grad else 'without'} a graph")
        else:
            trained.append(mode)
            if hasattr(module, "passes"):  # a buffer, as a BatchNorm's
                module.passes += 1

    t.model.register_forward_hook(note)
    t.remember()
    return trained, validated, passes


def _between(lacking: int, epochs: int) -> int:
    """How many epochs lack a scheduler.step() where some have one; else 0: other parts see that."""
    return lacking if 0 < lacking < epochs else 0


def _one(said: list[str]) -> str:
    """The same everywhere, or the first that is otherwise."""
    kinds = list(dict.fromkeys(said))
    return ", then ".join(kinds) if kinds else "no pass at all"


def _left(states: list[dict[str, Tensor]], state: dict[str, Tensor]) -> str:
    """Which epoch's weights a run has left in the model."""
    for names, but in ((set(state), ""), (set(state) - {"passes"}, ", but for its buffer")):
        for epoch, kept in enumerate(states):
            if all(torch.equal(kept[name], state[name]) for name in names):
                return f"those of epoch {epoch}{but}"
    return "those of none of the epochs"


def _on_digits(function, seed: int, device: torch.device) -> str:
    """Whether a small network reads handwritten digits after 60 updates."""
    torch.manual_seed(seed)
    data = load("digits")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)
    inputs, targets = data.train_inputs[:640].to(device), data.train_targets[:640].to(device)
    loader = InMemoryLoader(inputs, targets, batch_size=64, shuffle=True, seed=seed)
    val = [(data.val_inputs.clone().to(device), data.val_targets.clone().to(device))]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    function(model, loader, val, nn.CrossEntropyLoss(), optimizer, scheduler, 6, 3)
    model.eval()
    with torch.no_grad():
        said = model(data.val_inputs.to(device)).argmax(dim=1).cpu()
        accuracy = (said == data.val_targets).double().mean().item()
    return f"at least {GOOD:.0%}" if accuracy >= GOOD else f"{accuracy:.0%}"


def reference(
    model, train_loader, val_loader, criterion, optimizer, scheduler, max_epochs, patience
) -> dict[str, Any]:
    """The engine's step, evaluation and stopping rule."""
    rule, losses, weights = EarlyStopping(patience), [], {}
    loss_of = as_loss_of(criterion, None)  # measures how the criterion weighs once, not per step
    for epoch in range(max_epochs):
        model.train()
        for batch in train_loader:
            train_step(model, [batch], loss_of=loss_of, optimizer=optimizer, max_norm=1.0)
        scheduler.step()
        losses.append(evaluate(model, val_loader, loss_of=loss_of)["loss"])
        over = rule.update(losses[-1], epoch=epoch)
        if rule.best_epoch == epoch:
            weights = copy.deepcopy(model.state_dict())
        if over:
            break
    model.load_state_dict(weights)
    return {"best_epoch": rule.best_epoch, "val_losses": losses}


SCRIPT = """
def train_model(
    model, train_loader, val_loader, criterion, optimizer, scheduler, max_epochs, patience
):
    best, best_epoch, waited, weights, val_losses = float("inf"), None, 0, None, []
    for epoch in range(max_epochs):
        model.train()
        for inputs, targets in train_loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            if not torch.isfinite(loss):
                raise FloatingPointError(f"epoch {epoch}: the loss is {loss.item()}")
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        scheduler.step()
        model.eval()
        total, num_examples = 0.0, 0
        with torch.no_grad():
            for inputs, targets in val_loader:
                total += criterion(model(inputs), targets).item() * len(targets)
                num_examples += len(targets)
        val_losses.append(total / num_examples)
        if val_losses[-1] < best:
            best, best_epoch, waited = val_losses[-1], epoch, 0
            weights = {name: value.clone() for name, value in model.state_dict().items()}
        else:
            waited += 1
            if waited >= patience:
                break
    model.load_state_dict(weights)
    return {"best_epoch": best_epoch, "val_losses": val_losses}
"""
CLEAR = "            optimizer.zero_grad()\n"
CHECK = "            if not torch.isfinite(loss):\n"
RAISE = '                raise FloatingPointError(f"epoch {epoch}: the loss is {loss.item()}")\n'
BACKWARD = "            loss.backward()\n"
CLIP = "            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
UPDATE = "            optimizer.step()\n"
EPOCHS, TRAIN = "    for epoch in range(max_epochs):\n", "        model.train()\n"
SCHEDULE, EVAL = "        scheduler.step()\n", "        model.eval()\n"
CLONED = "{name: value.clone() for name, value in model.state_dict().items()}"
LOAD = "    model.load_state_dict(weights)\n"
SIZED = ".item() * len(targets)"
SCORED = "        val_losses.append(total / num_examples)\n"

script = partial(variant, SCRIPT, __file__)
whole = script()
not_cleared = script((CLEAR, ""))
cleared_after_the_step = script((CLEAR, ""), (UPDATE, UPDATE + CLEAR))
cleared_per_epoch = script((CLEAR, ""), (TRAIN, TRAIN + "        optimizer.zero_grad()\n"))
equal_is_better = script(("val_losses[-1] < best:", "val_losses[-1] <= best:"))
judged_by_training = script(
    (TRAIN, TRAIN + "        trained = []\n"),
    (UPDATE, UPDATE + "            trained.append(loss.item())\n"),
    ("if val_losses[-1] < best:", "if sum(trained) / len(trained) < best:"),
    ("best, best_epoch, waited = val_losses[-1], epoch, 0",
     "best, best_epoch, waited = sum(trained) / len(trained), epoch, 0"),
)  # fmt: skip
nan_alone = script(("not torch.isfinite(loss)", "torch.isnan(loss)"))
plus_inf_alone = script(("not torch.isfinite(loss)", "loss.isnan() or loss == float('inf')"))
above_a_bound = script(("not torch.isfinite(loss)", "loss.isnan() or loss > 1e30"))
either_side_of_a_bound = script(("not torch.isfinite(loss)", "not loss.abs() < 1e30"))
clipped_by_hand = script(
    (CLIP, "            norm = sum(p.grad.square().sum() for p in model.parameters()) ** 0.5\n"
           "            for p in model.parameters():\n"
           "                p.grad.mul_(min(1.0, 1.0 / norm.item()))\n")
)  # fmt: skip
cleared_too_early = script((CLEAR, ""), (CLIP, CLEAR + CLIP))
never_steps = script((UPDATE, ""))
not_clipped = script((CLIP, ""))
always_of_length_1 = script(
    (CLIP, "            norm = nn.utils.get_total_norm([p.grad for p in model.parameters()])\n"
           "            for p in model.parameters():\n"
           "                p.grad.div_(norm + 1e-6)\n")
)  # fmt: skip
clipped_to_a_tenth = script((CLIP, CLIP.replace("1.0", "0.1")))
clipped_too_late = script((CLIP + UPDATE, UPDATE + CLIP))
clipped_too_early = script((CLIP, ""), (BACKWARD, CLIP + BACKWARD))
clipped_by_value = script(("clip_grad_norm_(", "clip_grad_value_("))
clipped_one_by_one = script(
    (CLIP, "            for p in model.parameters():\n"
           "                nn.utils.clip_grad_norm_([p], 1.0)\n")
)  # fmt: skip
schedule_per_batch = script((SCHEDULE, ""), (UPDATE, UPDATE + "    " + SCHEDULE))
schedule_first = script((SCHEDULE, ""), (TRAIN, SCHEDULE + TRAIN))
scheduled_after_validation = script((SCHEDULE, ""), (SCORED, SCHEDULE + SCORED))
scheduled_by_the_loss = script(
    (SCHEDULE, ""), (SCORED, SCORED + SCHEDULE.replace("()", "(val_losses[-1])"))
)
no_schedule = script((SCHEDULE, ""))
train_once = script((TRAIN, ""), (EPOCHS, "    model.train()\n" + EPOCHS))
never_eval = script((EVAL, ""))
graph_built = script(("torch.no_grad()", "torch.enable_grad()"))
batch_means = script((SIZED, ".item()"), ("num_examples += len(targets)", "num_examples += 1"))
means_over_examples = script((SIZED, ".item()"))
last_batch = script(("total += criterion", "total = criterion"))
last_weights = script((LOAD, ""))
alias_kept = script((CLONED, "model.state_dict()"))
one_too_late = script(("waited >= patience", "waited > patience"))
never_reset = script(("best_epoch, waited = val_losses[-1], epoch, 0",
                      "best_epoch = val_losses[-1], epoch"))  # fmt: skip
against_the_last = script(
    ("val_losses[-1] < best:", "val_losses[-1] < (val_losses[-2:-1] or [best])[0]:")
)
never_stops = script(("                break\n", "                pass\n"))
validated_twice = script((EVAL, EVAL + "        len(list(val_loader))\n"))
counted_from_one = script(("epoch, 0\n", "epoch + 1, 0\n"))
last_epoch_returned = script(('"best_epoch": best_epoch', '"best_epoch": epoch'))
best_loss_only = script(('"val_losses": val_losses', '"val_losses": best'))
not_checked = script((CHECK + RAISE, ""))
checked_too_late = script((CHECK + RAISE, ""), (UPDATE, UPDATE + CHECK + RAISE))
bad_batch_skipped = script((RAISE, "                continue\n"))
stops_quietly = script((RAISE, "                break\n"))


break_before_schedule = script(
    (SCHEDULE, ""), ("                break\n", "                break\n" + SCHEDULE)
)
scheduled_when_better = script((SCHEDULE, ""), ("epoch, 0\n", "epoch, 0\n    " + SCHEDULE))
one_too_early = script(("waited >= patience", "waited >= patience - 1"))
one_epoch_more = script(("range(max_epochs)", "range(max_epochs + 1)"))
losses_to_the_best = script(
    ('"val_losses": val_losses', '"val_losses": val_losses[: best_epoch + 1]')
)
validation_raises = script(
    ("        val_losses.append(",
     "        if total == float('inf'):\n            raise FloatingPointError('validation')\n"
     "        val_losses.append(")
)  # fmt: skip
parameters_only = script(
    (CLONED, "{name: value.detach().clone() for name, value in model.named_parameters()}"),
    (LOAD, LOAD.replace("weights)", "weights, strict=False)")),
)
restored_at_the_break = script(
    (LOAD, ""), ("                break\n", "            " + LOAD + "                break\n")
)
least_fall = script(("val_losses[-1] < best:", "val_losses[-1] < best - 1e-3:"))
gradient_looked_at = script(
    (CHECK + RAISE, ""),
    (CLIP, CLIP.replace("nn.utils", "norm = nn.utils") + CHECK.replace("(loss)", "(norm)") + RAISE),
)


VALIDATE = SCRIPT[SCRIPT.index(EVAL) : SCRIPT.index("        val_losses.append")]
JUDGE = SCRIPT[SCRIPT.index("        val_losses.append") : SCRIPT.index(LOAD)]
TRAINING = SCRIPT[SCRIPT.index(TRAIN) : SCRIPT.index(EVAL)]
validated_first = script((TRAINING + VALIDATE + JUDGE, VALIDATE + JUDGE + TRAINING))
judged_after_training = script((TRAINING + VALIDATE + JUDGE, VALIDATE + TRAINING + JUDGE))


def in_small_functions(
    model, train_loader, val_loader, criterion, optimizer, scheduler, max_epochs, patience
):
    def update(inputs, targets):
        loss = criterion(model(inputs), targets)
        if not math.isfinite(loss.item()):
            raise FloatingPointError("the loss is not finite")
        model.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(model.parameters()), max_norm=1)
        optimizer.step()

    @torch.inference_mode()
    def validate():
        model.train(False)
        pairs = [(criterion(model(x), y), y.shape[0]) for x, y in val_loader]
        return float(sum(loss * size for loss, size in pairs) / sum(size for _, size in pairs))

    losses: list[float] = []
    kept: dict[str, Tensor] = {}
    for _ in range(max_epochs):
        model.train(True)
        for inputs, targets in train_loader:
            update(inputs, targets)
        scheduler.step()
        losses.append(validate())
        best = losses.index(min(losses))
        if best == len(losses) - 1:
            kept = {name: value.detach().clone() for name, value in model.state_dict().items()}
        if len(losses) - 1 - best >= patience:
            break
    model.load_state_dict(kept)
    return {"val_losses": losses, "best_epoch": best}


def another_exception(
    model, train_loader, val_loader, criterion, optimizer, scheduler, max_epochs, patience
):
    given = (model, train_loader, val_loader, criterion, optimizer, scheduler)
    try:
        return whole(*given, max_epochs, patience)
    except FloatingPointError:
        raise ValueError("the loss is not finite") from None


def cleared_at_the_end(
    model, train_loader, val_loader, criterion, optimizer, scheduler, max_epochs, patience
):
    optimizer.zero_grad()
    record = []
    best = copy.deepcopy(model)
    while len(record) < max_epochs:
        model.train()
        for inputs, targets in train_loader:
            loss = criterion(model(inputs), targets)
            if loss.isnan() or loss.isinf():
                raise FloatingPointError(str(loss))
            loss.backward()
            grads = [p.grad for p in model.parameters() if p.grad is not None]
            norm = torch.stack([grad.norm() for grad in grads]).norm()
            for grad in grads:
                grad.mul_(min(1.0, 1.0 / (norm.item() + 1e-6)))
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()
        model.eval()
        pairs = list(val_loader)
        with torch.no_grad():
            losses = torch.stack([criterion(model(x), y) for x, y in pairs]).double()
        sizes = torch.tensor([len(y) for _, y in pairs], device=losses.device)
        record.append(float((losses * sizes).sum() / sizes.sum()))
        if record[-1] == min(record) and record.count(record[-1]) == 1:
            best, waited = copy.deepcopy(model), 0
            best_epoch = len(record) - 1
        else:
            waited += 1
        if waited == patience:
            break
    model.load_state_dict(best.state_dict())
    return {"best_epoch": best_epoch, "val_losses": record}


OTHER = (
    r"^(Value|Runtime|Arithmetic|Overflow|Assertion)Error: .*at the line: (if .*: )?(raise|assert) "
)
"""Another exception, out of a statement that raises one on purpose."""
NOTHING_KEPT = "^TypeError: Expected state_dict to be dict-like, got <class 'NoneType'>"
"""What load_state_dict raises where no epoch was the best."""

EXERCISE = Exercise(
    id="03a.training-script",
    title="the whole training script, from memory",
    source='Lecture 3, "The training recipe"; module lab 3',
    ledger=("X10", "X25", "C01", "C10", "C13", "F28", "F111", "B39"),
    minutes=30,
    difficulty=3,
    read=("course.engine.train_step", "course.engine.EarlyStopping", "F28"),
    hints=(
        "Write it as comments first: before the epochs, in each batch, after the batches, after "
        "the last epoch. Every line belongs in one of these four places.",
        "Per batch: clear, forward, loss, is it finite, backward, clip, step. Per epoch: train(), "
        "the batches, the schedule, eval(), validation, then: better, or keep waiting?",
        "Whenever the loss is below the best, keep {name: value.clone() ...} of state_dict() and "
        "set the waiting count to 0; otherwise add 1 to it, and break at patience. After the loop, "
        "load what was kept.",
    ),
    signature="train_model(model, train_loader, val_loader, criterion, optimizer, scheduler, "
    "max_epochs, patience)",
    parts=(
        Part(
            "weights",
            "the updates of one epoch, with any criterion and optimizer",
            points=2,
            cases=3,
            fields=("state", "lr", "disturbed"),
        ),
        Part(
            "modes",
            "train mode for training, eval mode without a graph for validation",
            points=1,
            fields=("training", "validation"),
        ),
        Part("losses", "the validation losses", points=1, fields=("order", "val_losses")),
        Part(
            "best",
            "where it stops, and the best epoch's weights in the model",
            points=2,
            cases=3,
            fields=("epochs", "left", "best_epoch", "unscheduled"),
        ),
        Part(
            "finite",
            "a training loss that is not finite",
            points=1,
            cases=3,
            fields=("raised", "finite"),
        ),
        Part(
            "accuracy",
            "digits read after 60 updates",
            points=1,
            cases=1,
            hidden=True,
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "state": "after one epoch,",
        "lr": "after one epoch, the learning rate",
        "training": "at the training batches the model's mode",
        "validation": "at the validation batches the model's mode",
        "order": "the passes over training and validation, in order:",
        "val_losses": "val_losses",
        "epochs": "the number of passes over val_loader until it stopped",
        "left": "the weights left in the model",
        "best_epoch": "best_epoch",
        "unscheduled": "the number of epochs without a scheduler.step():",
        "raised": "the exception raised at a training loss of nan or inf",
        "finite": "after a training loss of nan or inf, the model",
        "accuracy": "the accuracy on validation",
    },
    wrong=(
        Wrong(
            "not-cleared",
            not_cleared,
            "The weights are those of a loop in which gradients are never cleared. Call "
            "optimizer.zero_grad() before each backward().",
        ),
        Wrong(
            "cleared-per-epoch",
            cleared_per_epoch,
            "The gradients were cleared before the first batch only, and then added up from batch "
            "to batch. Call optimizer.zero_grad() before each backward(), not once per epoch.",
        ),
        Wrong(
            "begins-with-old-gradients",
            cleared_after_the_step,
            "The first update included gradients left over from before. Clear before the first "
            "backward(), too.",
        ),
        Wrong("never-steps", never_steps),
        Wrong("never-steps", cleared_too_early),
        Wrong(
            "not-clipped",
            not_clipped,
            "The weights are those of unclipped gradients. Between backward() and step(), clip "
            "the joint norm of all gradients to 1.",
        ),
        Wrong(
            "clipped-to-a-tenth",
            clipped_to_a_tenth,
            "The gradients were clipped to a norm of 0.1. The ceiling here is 1.",
        ),
        Wrong("not-clipped", clipped_too_late),
        Wrong("not-clipped", clipped_too_early),
        Wrong(
            "always-of-length-1",
            always_of_length_1,
            "All gradients were scaled to length 1, even short ones. Clipping never lengthens a "
            "gradient: the factor is 1 if the joint norm is below the ceiling.",
            sure=True,
        ),
        Wrong(
            "clipped-by-value",
            clipped_by_value,
            "Each entry of the gradients was clipped separately, which changes their direction. "
            "Clip the joint norm: clip_grad_norm_.",
        ),
        Wrong(
            "clipped-one-by-one",
            clipped_one_by_one,
            "Each tensor's gradient was clipped separately, which changes the direction of the "
            "whole. A single call of clip_grad_norm_ with all parameters clips their joint norm.",
        ),
        Wrong(
            "schedule-per-batch",
            schedule_per_batch,
            "The weights are those of a learning rate that changes after every batch. The "
            "scheduler counts epochs: call scheduler.step() once per epoch, after its batches.",
        ),
        Wrong(
            "schedule-first",
            schedule_first,
            "The epoch was trained with the rate of the next one, as if scheduler.step() came at "
            "its start. Train first, then call scheduler.step(): the first epoch uses the first "
            "rate.",
        ),
        Wrong(
            "scheduled-by-the-loss",
            scheduled_by_the_loss,
            "The learning rates are those of scheduler.step(val_loss), which sets the scheduler's "
            "epoch to the loss. This scheduler counts epochs: call scheduler.step() without an "
            "argument. Only ReduceLROnPlateau takes a loss.",
        ),
        Wrong(
            "no-schedule",
            no_schedule,
            "The learning rate is the same after the epoch as before it. Call scheduler.step() "
            "once per epoch, after its batches.",
        ),
        Wrong(
            "train-once",
            train_once,
            "The first epoch trained in train mode, but later ones in eval mode, in which "
            "validation had left the model. Call model.train() at the start of every epoch.",
        ),
        Wrong(
            "never-eval",
            never_eval,
            "Validation ran in train mode, in which dropout is on and BatchNorm uses the batch's "
            "own statistics, moves the running ones and refuses a batch of one. Call model.eval() "
            "before it.",
            raises="Expected more than 1 value per channel when training",
        ),
        Wrong(
            "graph-built",
            graph_built,
            "Validation built a graph that is never used and costs memory. Put the pass under "
            "`with torch.no_grad():`.",
        ),
        Wrong(
            "batch-means",
            batch_means,
            "val_losses holds means of the batches' means, in which a short batch counts as much "
            "as a full one. Multiply each loss by len(targets), and divide by the number of "
            "examples.",
        ),
        Wrong(
            "means-over-examples",
            means_over_examples,
            "val_losses holds sums of batch means over the number of examples. Multiply each "
            "batch's mean by len(targets) first.",
        ),
        Wrong("last-batch", last_batch),
        Wrong(
            "last-weights",
            last_weights,
            "The model was left with the weights of the last epoch. Keep a clone of every tensor "
            "in state_dict() at the best epoch, and load the clones at the end.",
        ),
        Wrong("last-weights", alias_kept),
        Wrong(
            "one-too-late",
            one_too_late,
            "It stopped one epoch late: with patience 3 the third epoch in a row without a lower "
            "loss is the last.",
        ),
        Wrong(
            "never-reset",
            never_reset,
            "It stopped too early: patience counts epochs in a row, so a lower loss resets the "
            "count.",
        ),
        Wrong(
            "equal-is-better",
            equal_is_better,
            "An epoch as good as the best one counted as better. Better means lower; after an "
            "equal loss, keep waiting.",
        ),
        Wrong(
            "judged-by-training",
            judged_by_training,
            "Epochs whose validation loss was higher counted as better. Does the training loss "
            "decide? Better means a lower validation loss.",
        ),
        Wrong(
            "against-the-last",
            against_the_last,
            "An epoch counted as better because its validation loss was lower than in the epoch "
            "before. Better means lower than in all epochs before: compare with the lowest so far.",
        ),
        Wrong(
            "validated-twice",
            validated_twice,
            "val_loader was read twice per epoch. One pass is enough: count the examples in the "
            "loop that adds up their losses.",
        ),
        Wrong(
            "never-stops",
            never_stops,
            "All epochs were run, although the validation loss had not been lower for `patience` "
            "epochs in a row. Count these epochs, and break.",
        ),
        Wrong(
            "counted-from-one",
            counted_from_one,
            "best_epoch is one too high: epochs are counted from 0.",
        ),
        Wrong(
            "last-epoch-returned",
            last_epoch_returned,
            "best_epoch is the last epoch that was run. Remember the one whose validation loss is "
            "lowest.",
        ),
        Wrong("best-loss-only", best_loss_only),
        Wrong(
            "break-before-schedule",
            break_before_schedule,
            "The epoch in which it stops has no scheduler.step(). Every epoch needs one, after its "
            "batches and before a break.",
            sure=True,
        ),
        Wrong(
            "scheduled-when-better",
            scheduled_when_better,
            "Only the epochs with a lower validation loss had a scheduler.step(). Every epoch "
            "needs one, after its batches.",
            sure=True,
        ),
        Wrong(
            "validated-first",
            validated_first,
            "Validation came before the epoch's training batches, so each loss is that of the "
            "epoch before. Train first, then validate.",
            sure=True,
        ),
        Wrong("validated-first", judged_after_training, sure=True),
        Wrong(
            "one-too-early",
            one_too_early,
            "It stopped one epoch early: with patience 3 the third epoch in a row without a lower "
            "loss is the last.",
        ),
        Wrong(
            "one-epoch-more",
            one_epoch_more,
            "One epoch more than max_epochs was run.",
            sure=True,
        ),
        Wrong(
            "losses-to-the-best",
            losses_to_the_best,
            "val_losses ends at the best epoch. Give one loss for every epoch that was run.",
            sure=True,
        ),
        Wrong(
            "validation-raises",
            validation_raises,
            "In a run with a validation loss of inf, a FloatingPointError was raised. Only a "
            "training loss should do that; a validation loss of inf is not lower, so keep waiting.",
            sure=True,
        ),
        Wrong(
            "parameters-only",
            parameters_only,
            "The best epoch's parameters are back, but a buffer comes from a later epoch. "
            "state_dict() holds both; parameters() leaves the buffers out.",
            sure=True,
        ),
        Wrong(
            "restored-at-the-break",
            restored_at_the_break,
            "When all epochs were run, the weights of the last one were left in the model. Load "
            "the best after the loop, however it ended.",
            sure=True,
        ),
        Wrong(
            "least-fall",
            least_fall,
            "An epoch with a slightly lower loss did not count as better. Better means lower, by "
            "any amount.",
            sure=True,
        ),
        Wrong(
            "gradient-looked-at",
            gradient_looked_at,
            "A loss of -inf was let through when its gradient was finite. Check the loss itself: "
            "torch.isfinite(loss).",
            sure=True,
        ),
        Wrong(
            "not-checked",
            not_checked,
            "Training went on after a loss of nan or inf: then every validation loss is nan, no "
            "epoch is ever better, and there are no weights to load. Check torch.isfinite(loss) "
            "before backward(), and raise a FloatingPointError.",
            raises=NOTHING_KEPT,
        ),
        Wrong(
            "nan-alone",
            nan_alone,
            "A loss of inf was let through: isnan() only detects nan. torch.isfinite() catches "
            "both.",
            raises=NOTHING_KEPT,
            sure=True,
        ),
        Wrong(
            "plus-inf-alone",
            plus_inf_alone,
            "A loss of -inf was let through. torch.isfinite() catches nan, and inf of either sign.",
            sure=True,
        ),
        Wrong("above-a-bound", above_a_bound),
        Wrong("above-a-bound", either_side_of_a_bound),
        Wrong(
            "another-exception",
            another_exception,
            "It stopped at a loss that is not finite, but with another exception. Raise a "
            "FloatingPointError.",
            raises=OTHER,
        ),
        Wrong(
            "checked-too-late",
            checked_too_late,
            "It raised, but after step(), when the weights were already nan. Check the loss before "
            "backward().",
        ),
        Wrong(
            "bad-batch-skipped",
            bad_batch_skipped,
            "Nothing was raised, although a loss was not finite. Raise a FloatingPointError, "
            "before backward().",
        ),
        Wrong("bad-batch-skipped", stops_quietly),
        *common(
            whole,
            *("own-criterion", "own-optimizer", "first-group-only", "float-targets"),
            *("global-model", "global-optimizer", "returns-none", "returns-text"),
            *("changes-lr", "changes-requires-grad", "changes-dtype", "leaves-a-hook"),
        ),
    ),
    right=(
        whole,
        in_small_functions,
        cleared_at_the_end,
        clipped_by_hand,
        scheduled_after_validation,
    ),
    tolerance={torch.float64: (BY_HAND, BY_HAND)},
)
