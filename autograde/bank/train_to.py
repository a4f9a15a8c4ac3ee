"""03g.resume: training that goes on from its checkpoint as if it had never been killed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR
from torch.utils.data import DataLoader

from autograde.apart import in_a_process, killed
from autograde.bank.common_wrong import common
from autograde.bank.harness import (
    build_criterion,
    build_model,
    build_optimizer,
    draw_state,
    draw_training,
    read_safely,
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
from autograde.sandbox.left_behind import remove
from course.engine import checkpoint

EPOCHS = 3
ALL = ("model", "optimizer", "scheduler", "torch", "loader", "epoch", "losses")


def draw(source: Draw, part: str) -> Case:
    """A run in which only what the part asks about carries anything from epoch to epoch."""
    whole = part in ("run", "twice")
    dropout = whole or (part == "random" and source.index == 0)
    case = draw_training(source, [3, 3, 2], vary=part in ("run", "optimizer"), dropout=dropout)
    if part in ("run", "twice"):
        case["optimizer"] = source.choice(["momentum", "adam"])
    case["shuffle"] = whole or (part == "random" and source.index == 1)
    case["schedule"] = "cosine" if whole or part == "schedule" else "constant"
    case["other"] = draw_state(source, build_model(case))
    first = source.integer(4, 6) + (
        3 * source.index if part != "twice" else 0
    )  # calls of the criterion: three make an epoch
    case["kills"] = {"run": [], "twice": [first, source.integer(4, 6)]}.get(part, [first])
    case["seeds"] = [source.integer(1, 10**6) for _ in range(4)]
    case["again"] = part in ("schedule", "twice")
    return case


class Killed(BaseException):
    """The process ends here: nothing that a program catches."""


class Process:
    """A new process: everything is built again, and nothing of the last one is known."""

    def __init__(self, case: Case, number: int, device: torch.device) -> None:
        dtype, self.device = getattr(torch, case["dtype"]), device
        torch.manual_seed(case["seeds"][number])
        self.model = build_model(case).to(device, dtype)
        state = case["other"] if number else case["state"]
        self.model.load_state_dict({k: v.to(device) for k, v in state.items()})
        self.optimizer = build_optimizer(case["optimizer"], self.model, case["lr"])
        shape = CosineAnnealingLR(self.optimizer, EPOCHS)
        self.scheduler = shape
        if case["schedule"] == "constant":
            self.scheduler = LambdaLR(self.optimizer, lambda _: 1.0)
        rows = [(x.to(device, dtype), y.to(device)) for batch in case["batches"]
                for x, y in zip(batch["inputs"], batch["targets"], strict=True)]  # fmt: skip
        own = torch.Generator().manual_seed(case["seeds"][number] + 1)
        self.loader = DataLoader(rows, batch_size=3, shuffle=case["shuffle"], generator=own)
        self.criterion = build_criterion(case, device, dtype)

    def run(self, function: Callable[..., Any], path: Path, kill_at: int | None) -> dict[str, Any]:
        """What is left of the process; the losses are None if it was killed in the middle."""
        calls, losses = 0, None

        def criterion(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            if calls == kill_at:
                killed()
                raise Killed
            return self.criterion(logits, targets)

        parts = self.model, self.optimizer, self.scheduler, self.loader
        with suppress(Killed):
            losses = function(*parts, criterion, EPOCHS, path)
        return {
            "losses": kept(as_numbers, losses, "losses", "the mean loss of each epoch"),
            "weights": _weights(self.model),
            "lr": self.optimizer.param_groups[0]["lr"],
            "calls": calls,
        }


def run(function, case: Case, device: torch.device) -> Answer:
    """An uninterrupted run, and one that is killed; both with files of their own.

    On the CPU always: elsewhere dropout draws from a generator of the device, which is not asked.
    """
    device = torch.device("cpu")

    def process(number: int, path: Path, kill_at: int | None) -> dict[str, Any]:
        path.parent.mkdir(exist_ok=True)
        return in_a_process(
            lambda: Process(case, number, device).run(function, path, kill_at), kept=path.parent
        )

    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        path = Path(folder) / "whole" / "run.pt"
        whole = last = process(0, path, None)
        found = "none"
        if case["kills"]:  # what a whole run leaves is no checkpoint of one that was killed
            remove(path.parent)
        for number, kill_at in enumerate([*case["kills"], None] if case["kills"] else []):
            path = Path(folder) / "killed" / "run.pt"
            found = "there" if path.exists() else "none"
            last = process(number, path, kill_at)
        again = process(3, path, 1) if case["again"] else None
        return {
            "found": found,
            "weights": torch.cat([value.flatten() for value in last["weights"]]),
            "equal": _equal(whole, last),
            "losses": last["losses"],
            "lr": last["lr"],
            "file": kept(_content, path),
            "again": "" if again is None else _of_a_finished_run(again, last),
        }


def _of_a_finished_run(again: dict[str, Any], last: dict[str, Any]) -> str:
    """What a process makes of the file of a run that is finished."""
    if again["calls"]:
        return "an update"
    return "nothing" if _equal(again, last) else "other weights"


def _equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(map(torch.equal, one["weights"], other["weights"]))


def _weights(model: nn.Module) -> list[torch.Tensor]:
    return [value.detach().cpu().clone() for value in model.parameters()]


def _content(path: Path) -> str:
    if not path.exists():
        raise AnswerError("After the last epoch there is no file at the path.")
    try:
        read_safely(path)
    except Exception as error:
        kind = type(error).__name__
        raise AnswerError(
            f"torch.load(path, weights_only=True) raises {kind}: put only tensors, numbers and "
            "plain containers into the file."
        ) from None
    return "loads safely"


def trained(
    parts=ALL, start=1, extra=0, saved="end", early=False, resumes=True, per="epoch", mean=True,
    least=0, clears=True, counted=False, replays=False,
):  # fmt: skip
    """A right answer; other arguments leave something out, or put it in another place."""

    def train_to(model, optimizer, scheduler, loader, criterion, epochs, path):
        losses, first, things = [], 0, {"model": model, "optimizer": optimizer,
                                        "scheduler": scheduler}  # fmt: skip
        if resumes and path.exists():
            state = torch.load(path, weights_only=True)
            for name, thing in things.items():
                if name in parts:
                    thing.load_state_dict(state[name])
            if "torch" in parts:
                torch.set_rng_state(state["torch"])
            if "loader" in parts:
                loader.generator.set_state(state["loader"])
            losses = state["losses"] if "losses" in parts else []
            first = state["epoch"] + start if "epoch" in parts else 0
            for _ in range(first if replays else 0):
                scheduler.step()

        def save(epoch, random):
            states = {name: thing.state_dict() for name, thing in things.items()}
            torch.save({**states, **random, "epoch": epoch, "losses": losses}, path)

        for epoch in range(first, first + epochs if extra else max(epochs, first + least)):
            random = {"torch": torch.get_rng_state(), "loader": loader.generator.get_state()}
            total, seen = 0.0, 0
            for inputs, targets in loader:
                if clears:
                    optimizer.zero_grad()
                loss = criterion(model(inputs), targets)
                loss.backward()
                optimizer.step()
                if counted:
                    loss, seen = loss.detach() * len(targets), seen + len(targets)
                if per == "update":
                    scheduler.step()
                total = total + loss.item() if mean else loss.item() * len(loader)
            losses.append(total / (seen or len(loader)))
            if not early:
                random = {"torch": torch.get_rng_state(), "loader": loader.generator.get_state()}
            if saved == "before schedule":
                save(epoch, random)
            if per == "epoch":
                scheduler.step()
            if saved == "end":
                save(epoch, random)
        if saved == "once":
            save(epochs - 1, random)
        return losses

    return train_to


def _epoch(model, optimizer, scheduler, loader, criterion) -> float:
    """One epoch and a step of the schedule; the mean over its batches' losses."""
    total = 0.0
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = criterion(model(inputs), targets)
        loss.backward()
        optimizer.step()
        total += loss.item()
    scheduler.step()
    return total / len(loader)


def lacking(*names: str) -> Callable[..., Any]:
    """Without some parts of the state."""
    return trained(parts=[name for name in ALL if name not in names])


def reference(model, optimizer, scheduler, loader, criterion, epochs, path):
    """The same with the course's own reader and writer."""
    losses = []
    if path.exists():
        state = checkpoint.load(path)
        for thing, part in zip((model, optimizer, scheduler), state["parts"], strict=True):
            thing.load_state_dict(part)
        losses = state["losses"]
        torch.set_rng_state(state["torch"])
        loader.generator.set_state(state["loader"])
    while len(losses) < epochs:
        losses.append(_epoch(model, optimizer, scheduler, loader, criterion))
        state = {"parts": [t.state_dict() for t in (model, optimizer, scheduler)]}
        state |= {"torch": torch.get_rng_state(), "loader": loader.generator.get_state()}
        checkpoint.save({**state, "losses": losses}, path)
    return losses


def with_whole_objects(model, optimizer, scheduler, loader, criterion, epochs, path):
    losses = []
    if path.exists():
        kept_model, losses, first, random = torch.load(path, weights_only=False)
        model.load_state_dict(kept_model.state_dict())
        optimizer.load_state_dict(first[0])
        scheduler.load_state_dict(first[1])
        torch.set_rng_state(random[0])
        loader.generator.set_state(random[1])
    for _ in range(len(losses), epochs):
        losses.append(_epoch(model, optimizer, scheduler, loader, criterion))
        random = torch.get_rng_state(), loader.generator.get_state()
        states = optimizer.state_dict(), scheduler.state_dict()
        torch.save((model, losses, states, random), path)
    return losses


def nothing_to_load(model, optimizer, scheduler, loader, criterion, epochs, path):
    """A finished run's losses come back at once, before anything is loaded."""
    if path.exists():
        losses = torch.load(path, weights_only=True)["losses"]
        if len(losses) == epochs:
            return losses
    return trained()(model, optimizer, scheduler, loader, criterion, epochs, path)


def by_the_count(model, optimizer, scheduler, loader, criterion, epochs, path):
    """The losses say which epoch is next; the state is a list."""
    things = [model, optimizer, scheduler]
    saved = torch.load(path, weights_only=True) if path.is_file() else None
    losses = saved[3] if saved else []
    if saved:
        for thing, state in zip(things, saved[:3], strict=True):
            thing.load_state_dict(state)
        torch.random.set_rng_state(saved[4])
        loader.generator.set_state(saved[5])
    model.train()
    while len(losses) < epochs:
        each = []
        for inputs, targets in loader:
            model.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            each.append(loss.detach())
        scheduler.step()
        losses.append(float(torch.stack(each).double().mean()))
        states = [thing.state_dict() for thing in things]
        random = [torch.get_rng_state(), loader.generator.get_state()]
        torch.save([*states, losses, *random], path)
    return losses


def in_memory_then_renamed(model, optimizer, scheduler, loader, criterion, epochs, path):
    state = {"epoch": -1, "losses": []}
    if path.exists():
        state = torch.load(path)
        loader.generator.set_state(state["order"])
        for name, thing in (("m", model), ("o", optimizer), ("s", scheduler)):
            thing.load_state_dict(state[name])
        torch.set_rng_state(state["cpu"])
    losses = list(state["losses"])
    for epoch in range(state["epoch"] + 1, epochs):
        total, count = torch.zeros(()), 0
        for inputs, targets in loader:
            loss = criterion(model(inputs), targets)
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            optimizer.step()
            total, count = total + loss.detach().cpu(), count + 1
        scheduler.step()
        losses.append((total / count).item())
        new = path.with_suffix(".new")
        torch.save({"m": model.state_dict(), "o": optimizer.state_dict(), "epoch": epoch,
                    "s": scheduler.state_dict(), "cpu": torch.get_rng_state(), "losses": losses,
                    "order": loader.generator.get_state()}, new)  # fmt: skip
        new.replace(path)
    return losses


EXERCISE = Exercise(
    id="03g.resume",
    title="killed, and still the same run",
    source="Training-loop chapter, c7, component 1; engineering module, quiz 6",
    ledger=("X20", "X35", "T34", "B27", "C12", "F108", "F110"),
    minutes=20,
    difficulty=3,
    read=("F108", "F110", "course.engine.resume"),
    hints=(
        "List everything that changes during an epoch. Which parts of it does the next epoch read?",
        "Seven things go into the file: three state_dicts, two generator states, the losses, and "
        "the number of finished epochs (the number of losses tells you).",
        "torch.get_rng_state() and loader.generator.get_state() at the end of the epoch, after "
        "scheduler.step(). Restore both last, after everything else is loaded.",
    ),
    signature="train_to(model, optimizer, scheduler, loader, criterion, epochs, path)",
    parts=(
        Part("run", "a run that nobody kills", points=1, cases=1,
             fields=("weights", "losses", "lr", "file")),
        Part("optimizer", "killed: what the optimizer remembers", points=1,
             fields=("found", "weights", "equal", "losses"), cases=2),
        Part("schedule", "killed: the schedule, the epochs and the losses", points=1,
             fields=("found", "weights", "equal", "losses", "lr", "again")),
        Part("random", "killed: dropout, and the order of the examples", points=1,
             fields=("found", "weights", "equal", "losses")),
        Part("twice", "everything at once, killed twice", points=1, hidden=True, cases=1,
             fields=("found", "weights", "equal", "losses", "lr", "file", "again")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "found": "the file that the last process finds at the path",
        "weights": "at the end of the last process, the weights",
        "equal": "the same bits as without a kill",
        "losses": "the losses returned by the last process",
        "lr": "the learning rate after the last epoch",
        "file": "the file",
        "again": "one more call on the finished run makes",
    },
    by_hand=(checkpoint.save, checkpoint.load),
    wrong=(
        Wrong("no-optimizer", lacking("optimizer"),
              "After the kill the optimizer started from scratch: its averages or velocity are not "
              "those of the uninterrupted run. Save and load optimizer.state_dict()."),
        Wrong("no-schedule", lacking("scheduler"),
              "After the kill the schedule started again. Save and load scheduler.state_dict()."),
        Wrong("schedule-replayed",
              trained(parts=[name for name in ALL if name != "scheduler"], replays=True),
              "After the kill scheduler.step() was called again for the finished epochs, on a "
              "learning rate that was loaded with the optimizer: it fell twice. Save and load "
              "scheduler.state_dict() instead."),
        Wrong("no-optimizer-no-schedule", lacking("optimizer", "scheduler"),
              "After the kill both optimizer and schedule started from scratch. Each has its own "
              "state_dict()."),
        Wrong("no-torch-generator", lacking("torch"),
              "After the kill dropout drew different numbers: torch's generator was not in its old "
              "state. Save torch.get_rng_state() at the end of the epoch.", sure=True),
        Wrong("no-loader-generator", lacking("loader"),
              "After the kill the order of the examples is different. It is drawn from "
              "loader.generator: save its get_state().", sure=True),
        Wrong("no-generators", lacking("torch", "loader"),
              "Neither dropout nor the order of the examples continued where it had stopped. Save "
              "the states of torch's generator and of loader.generator."),
        Wrong("weights-alone", lacking("optimizer", "scheduler", "torch", "loader"),
              "After the kill only the weights, the epoch and the losses match the uninterrupted "
              "run. What else does the next update read?"),
        Wrong("epoch-again", trained(start=0),
              "The last finished epoch was trained again. Continue with the next one."),
        Wrong("epochs-more", trained(extra=1),
              "After the kill, `epochs` more epochs were trained. `epochs` counts the whole run."),
        Wrong("one-more", trained(least=1),
              "A finished run was trained further when the function was called again. `epochs` "
              "counts the whole run: no epoch is left.", sure=True),
        Wrong("nothing-to-load", nothing_to_load,
              "Called again on a finished run, the model keeps the weights that it was built with. "
              "Load the file even if no epoch is left.", sure=True),
        Wrong("losses-since", lacking("losses"),
              "The losses of the epochs before the kill are missing from the returned list. Save "
              "them too."),
        Wrong("from-scratch", trained(resumes=False),
              "The last process started from scratch although there was a file. Check whether path "
              "exists."),
        Wrong("saved-once", trained(saved="once"),
              "After the kill there was no file at the path, although epochs had been finished. "
              "Save after each epoch, inside the loop."),
        Wrong("saved-too-early", trained(saved="before schedule"),
              "The schedule is one step behind after the kill: the file was written before "
              "scheduler.step(). Save at the very end of the epoch."),
        Wrong("drawn-again", trained(early=True),
              "The numbers drawn in the epoch before the kill are drawn again after it: the saved "
              "generator states are from before that epoch. Save the states from its end."),
        Wrong("whole-objects", with_whole_objects),
        Wrong("per-update", trained(per="update"),
              "The schedule moved after every update. It counts epochs: call scheduler.step() once "
              "at the end of each."),
        Wrong("last-batch-loss", trained(mean=False),
              "The loss of each epoch is that of its last batch. Take the mean over its batches."),
        Wrong("weighed-by-examples", trained(counted=True),
              "Each batch's loss was weighted by its number of examples. Here an epoch's loss is "
              "the plain mean over its batches, in which a short batch counts as much as a full "
              "one."),
        Wrong("uncleared", trained(clears=False),
              "Gradients of earlier batches were added to each batch's own. Clear them before each "
              "backward()."),
        *common(by_the_count, "own-criterion", "own-optimizer", "returns-none", "global-model"),
    ),
    right=(trained(), by_the_count, in_memory_then_renamed),
)  # fmt: skip
