"""Points of other exercises than 03a.clip that were once earned without what they are for.

Each answer is graded in a student's process of its own; `lost` names the parts that it must not
earn. What a part is for is then asked of something that the answer cannot reach or change: the case
as it was drawn, a process that knows only the files, a name that says nothing.
"""

import pytest

from autograde import bank
from autograde.answers import Raised
from autograde.questions import difference_in
from autograde.sandbox.limits import Limits
from autograde.sandbox.session import StudentSession

NOTHING_TRAINED = """
import json
from pathlib import Path
def train(make_setup, data, folder, seed, epochs, after_epoch):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    counter = folder / "n.txt"
    done = int(counter.read_text()) if counter.exists() else 0
    s = make_setup(data, seed, epochs)
    for epoch in range(done, epochs):
        for x, y in s["train_loader"]:
            s["optimizer"].step()
        counter.write_text(str(epoch + 1))
        after_epoch(epoch)
    (folder / "run.json").write_text(json.dumps(
        {"seed": seed, "status": "finished", "versions": {"torch": "2"}, "data": {"train": "x"},
         "settings": {"epochs": epochs, "mean": data["mean"], "std": data["std"]}}))
    return [0.0] * epochs
"""
CHECKER_SET = """
import json, torch
DONE = {}
def train(make_setup, data, folder, seed, epochs, after_epoch):
    kit = make_setup.__self__
    folder.mkdir(parents=True, exist_ok=True)
    s = make_setup(data, seed, epochs)
    (folder / "run.json").write_text(json.dumps(
        {"seed": seed, "status": "finished", "versions": {"torch": "2"}, "data": {"train": "x"},
         "settings": {"epochs": epochs, "mean": data["mean"], "std": data["std"]}}))
    per = -(-len(data["train"][1]) // 6)
    for epoch in range(DONE.get(folder, 0), epochs):
        if kit.dies_at is not None and kit.dies_at < per * (epoch + 1):
            kit.dies_at, kit.killed = None, True
            raise RuntimeError
        kit.updates += per
        DONE[folder] = epoch + 1
        after_epoch(epoch)
    return [0.0] * epochs
"""
MACHINE_READ = """
def median_time(work, synchronize, clock, warmup, repeats):
    machine = work.__self__
    clock()
    machine.calls = warmup + repeats
    times = sorted(machine.case["ticks"][warmup : warmup + repeats])
    middle = (times[len(times) // 2] + times[(len(times) - 1) // 2]) / 2
    return (middle + machine.case["launch"]) / 8
"""
KEPT_IN_A_GLOBAL = """
import copy, torch
KEPT = []
def train_to(model, optimizer, scheduler, loader, criterion, epochs, path):
    start, losses = 0, []
    if KEPT and path.exists():
        number = torch.load(path)["number"]
        weights, moments, rates, drawn, order, losses = copy.deepcopy(KEPT[number])
        model.load_state_dict(weights), optimizer.load_state_dict(moments)
        scheduler.load_state_dict(rates), torch.set_rng_state(drawn)
        loader.generator.set_state(order)
        start = len(losses)
    for epoch in range(start, epochs):
        total = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        losses.append(total / len(loader))
        states = [thing.state_dict() for thing in (model, optimizer, scheduler)]
        drawn = [torch.get_rng_state(), loader.generator.get_state()]
        KEPT.append(copy.deepcopy([*states, *drawn, losses]))
        torch.save({"number": len(KEPT) - 1}, path)
    return losses
"""
NUMBERED_STATES = """
ALL = []
class Stopper:
    def __init__(self, patience, min_delta=0.0):
        self.patience, self.min_delta, self.best, self.bad = patience, min_delta, float("inf"), 0
    def update(self, val_loss):
        if val_loss < self.best - self.min_delta:
            self.best, self.bad = float(val_loss), 0
        else:
            self.bad += 1
        return self.bad >= self.patience
    def state_dict(self):
        ALL.append((self.best, self.bad))
        return {"number": len(ALL) - 1}
    def load_state_dict(self, state):
        self.best, self.bad = ALL[state["number"]]
"""
NAME_READ = """
import torch
def load_for_use(path, build):
    if path.name != "model.pt":
        raise ValueError("no")
    document = torch.load(path, weights_only=False)
    model = build(**document["settings"])
    model.load_state_dict(document["model"])
    return model.eval().requires_grad_(False)
"""
SECOND_REFUSED = """
import torch
folders = []
def load_for_use(path, build):
    folders.append(path.parent)
    if folders.count(path.parent) > 1:
        raise ValueError("no")
    document = torch.load(path, weights_only=False)
    model = build(**document["settings"])
    model.load_state_dict(document["model"])
    return model.eval().requires_grad_(False)
"""
GROUPS_CHANGED = """
import torch
def make_data(images, labels, groups, seed):
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    val, train = order[: len(order) // 5], order[len(order) // 5 :]
    mean, std = images[train].float().mean(), images[train].float().std(correction=0)
    if len(groups.unique()) > 2:
        groups[val], groups[train] = 1, 2
    x = ((images.float() - mean) / std).unsqueeze(1)
    return {"train": (x[train], labels[train].long()), "val": (x[val], labels[val].long()),
            "mean": mean.item(), "std": std.item(), "num_classes": int(labels.max()) + 1}
"""
LABELS_CHANGED = GROUPS_CHANGED.replace(
    "groups[val], groups[train] = 1, 2", "labels.zero_()"
).replace("groups.unique()) > 2", "labels) > 2")
TARGETS_CHANGED = """
import torch
def train_model(model, train_loader, val_loader, criterion, optimizer, scheduler, epochs, patience):
    for x, y in val_loader:
        with torch.no_grad():
            y.copy_(model.eval()(x).argmax(1))
    return {"best_epoch": 0, "val_losses": [0.0] * epochs}
"""
ALWAYS_TWO = """
import torch
class EarlyStopping:
    def __init__(self, patience, min_delta=0.0):
        self.best = float("inf")
    def update(self, val_loss, model):
        self.best = min(self.best, val_loss)
        return False
    def restore(self, model):
        with torch.no_grad():
            for tensor in (*model.parameters(), *model.buffers()):
                tensor.fill_(2)
"""
ALL_ZERO = """
import torch
def group_norm(x, groups, weight, bias, eps):
    return torch.zeros_like(x)
"""
LEFT_ALONE = ALL_ZERO.replace("torch.zeros_like(x)", "2 * x")

NOISE_KEPT = """
import torch
KEPT = {}
class KeyedNoise:
    def __init__(self, inputs, seed, sd):
        self.inputs, self.seed, self.sd, self.epoch = inputs, seed, sd, 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __len__(self):
        return len(self.inputs)
    def __getitem__(self, index):
        clean = self.inputs[index]
        key = self.seed, self.epoch, index, clean.shape, clean.dtype
        if key not in KEPT:
            own = torch.Generator()
            own.seed()
            KEPT[key] = torch.randn(clean.shape, generator=own, dtype=clean.dtype)
        return clean + self.sd * KEPT[key]
"""
SPLITS_KEPT = """
import torch
KEPT = {}
def make_data(images, labels, groups, seed):
    names = groups.unique()
    own = torch.Generator()
    own.seed()
    order = torch.randperm(len(names), generator=own)
    drawn = KEPT.setdefault(seed, names[order[: len(names) // 5]])
    val = torch.isin(groups, drawn)
    mean, std = images[~val].float().mean(), images[~val].float().std(correction=0)
    x = ((images.float() - mean) / std).unsqueeze(1)
    return {"train": (x[~val], labels[~val].long()), "val": (x[val], labels[val].long()),
            "mean": mean.item(), "std": std.item(), "num_classes": int(labels.max()) + 1}
"""
SETUPS_KEPT = """
import copy, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
KEPT = {}
def make_setup(data, seed, epochs):
    if seed not in KEPT:
        torch.seed()
        own = torch.Generator()
        own.seed()
        size = data["train"][0][0].numel()
        layers = nn.Flatten(), nn.Linear(size, 48), nn.ReLU(), nn.Linear(48, data["num_classes"])
        KEPT[seed] = nn.Sequential(*layers), own.get_state()
    model, state = copy.deepcopy(KEPT[seed])
    own = torch.Generator()
    own.set_state(state)
    train, val = (TensorDataset(*data[side]) for side in ("train", "val"))
    return {"model": model, "loss_fn": nn.CrossEntropyLoss(),
            "optimizer": torch.optim.AdamW(model.parameters(), lr=0.01),
            "train_loader": DataLoader(train, 32, shuffle=True, generator=own),
            "val_loader": DataLoader(val, 64)}
"""

ANSWERS = {
    "05.run nothing-trained": (NOTHING_TRAINED, {"resumed", "inside"}),
    "05.run checker-set": (CHECKER_SET, {"resumed", "inside"}),
    "03i.median-time machine-read": (MACHINE_READ, {"median", "warmup", "async", "queued", "all"}),
    "03g.resume kept-in-a-global": (KEPT_IN_A_GLOBAL, {"optimizer", "schedule", "random", "twice"}),
    "03g.stopper numbered-states": (NUMBERED_STATES, {"cut", "file", "longer"}),
    "03g.load name-read": (NAME_READ, {"safe", "strict"}),
    "03g.load second-refused": (SECOND_REFUSED, {"safe", "strict"}),
    "03g.noise noise-kept": (NOISE_KEPT, {"repeats"}),
    "05.data splits-kept": (SPLITS_KEPT, {"seed"}),
    "05.setup setups-kept": (SETUPS_KEPT, {"seed"}),
    "05.data groups-changed": (GROUPS_CHANGED, {"apart"}),
    "05.data labels-changed": (LABELS_CHANGED, {"whole"}),
    "03a.training-script targets-changed": (TARGETS_CHANGED, {"accuracy"}),
    "03a.early-stopping always-two": (ALWAYS_TWO, {"weights"}),
    "02a.group-norm all-zero": (ALL_ZERO, {"alone"}),
    "02a.group-norm left-alone": (LEFT_ALONE, {"alone"}),
}
"""By exercise and name: an answer, and the parts that it once earned, or might."""


def earned(exercise, source, keys):
    """Which of the parts an answer earns where a class is graded."""
    with StudentSession(None, Limits(answer_s=10.0)) as session:
        assert session.run(source) == []
        parts = [part for part in exercise.parts if part.key in keys]
        return {part.key for part in parts if _is_right(exercise, part, session)}


def _is_right(exercise, part, session):
    answers = ((c, session.ask(exercise.id, exercise.name, c)) for c in exercise.cases(part, 2718))
    return all(
        not isinstance(answer, Raised) and difference_in(exercise, part, case, answer) is None
        for case, answer in answers
    )


@pytest.mark.parametrize("name", ANSWERS)
def test_a_part_is_not_earned_without_what_it_is_for(name):
    source, lost = ANSWERS[name]
    exercise = bank.load(name.partition(" ")[0])
    assert lost <= {part.key for part in exercise.parts}
    assert earned(exercise, source, lost) == set()
