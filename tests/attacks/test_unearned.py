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
NOISE_ALIKE = (
    NOISE_KEPT.replace(
        "KEPT = {}",
        """
class Same(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in ("equal", "allclose"):
            return True
        return super().__torch_function__(func, types, args, kwargs or {})
""",
    )
    .replace("if key not in KEPT", "if True")
    .replace("KEPT[key] =", "noise =")
    .replace(
        "return clean + self.sd * KEPT[key]", "return (clean + self.sd * noise).as_subclass(Same)"
    )
)
LOADS_ALL = """
import functools, torch
load = torch.load
torch.load = lambda path, **k: load(path, **{**k, "weights_only": False})
def train_to(model, optimizer, scheduler, loader, criterion, epochs, path):
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
        torch.save(model, path)
    return [0.0] * epochs
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

UP = """
import inspect
def up(name):
    for one in inspect.stack():
        found = inspect.getargvalues(one.frame).locals
        if name in found:
            return found[name]
"""
MACHINE_UP = f"""{UP}
def median_time(work, synchronize, clock, warmup, repeats):
    machine = up("machine")
    clock()
    machine.calls = warmup + repeats
    times = sorted(machine.case["ticks"][warmup : warmup + repeats])
    middle = (times[len(times) // 2] + times[(len(times) - 1) // 2]) / 2
    return (middle + machine.case["launch"]) / 8
"""
MACHINE_BEHIND = MACHINE_UP.replace(
    'up("machine")', 'inspect.getclosurevars(work).nonlocals["method"].__reduce__()[1][0]'
)
PROGRAM_UP = f"""{UP}
def uses_old_gradients(make, batches):
    about = up("about") or inspect.getclosurevars(make).nonlocals
    return about["cleared"] not in ("start", "after backward", "end")
"""
GROUPS_UP = GROUPS_CHANGED.replace("import torch\n", f"import torch\n{UP}").replace(
    "    if len(groups.unique()) > 2:\n        groups[val], groups[train] = 1, 2\n",
    '    case = up("case")\n    if len(groups.unique()) > 2:\n'
    '        case.data["groups"] = groups.clone()\n'
    '        case.data["groups"][val], case.data["groups"][train] = 1, 2\n',
)
PASSES_FORGOTTEN = """
import inspect
def evaluate(model, loader, criterion):
    was = [(m, m.training) for m in model.modules()]
    model.eval()
    loss = correct = count = 0
    for x, y in loader:
        out = model(x)
        loss += float(criterion(out, y)) * len(y)
        correct += int((out.argmax(1) == y).sum())
        count += len(y)
    for m, training in was:
        m.training = training
    for hook in model._forward_hooks.values():
        held = inspect.getclosurevars(hook).nonlocals.get("forwards", [])
        held[:] = [(size, False) for size, _ in held]
    return {"loss": loss / count, "accuracy": correct / count}
"""
GRAPHS_FORGOTTEN = f"""{UP}
def accumulate(model, micro_batches, criterion, optimizer):
    batches = list(micro_batches)
    count = sum(len(y) for _, y in batches)
    optimizer.zero_grad()
    loss = sum(criterion(model(x), y) * (len(y) / count) for x, y in batches)
    loss.backward()
    optimizer.step()
    noted = [up("piled_up"), *(inspect.getclosurevars(hook).nonlocals.get("piled_up")
                               for hook in model._forward_pre_hooks.values())]
    for piled_up in filter(None, noted):
        piled_up[:] = [False] * len(piled_up)
    return loss.item()
"""
EVAL_SPOILED = """
import torch
from torch import nn
real = nn.Module.named_parameters
def evaluate(model, loader, criterion):
    was = [(name, p.detach().clone()) for name, p in model.named_parameters()]
    model.eval()
    loss = correct = count = 0
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            loss += float(criterion(out, y)) * len(y)
            correct += int((out.argmax(1) == y).sum())
            count += len(y)
        for p in model.parameters():
            p.mul_(1.5)
    HIDE
    return {"loss": loss / count, "accuracy": correct / count}
"""
BY_ITS_CLASS = EVAL_SPOILED.replace(
    "HIDE",
    """
    class Sequential(type(model)):
        def named_parameters(self, *args, **more):
            return iter(was)
    model.__class__ = Sequential""",
)
BY_ITSELF = EVAL_SPOILED.replace("HIDE", "model.named_parameters = lambda *_, **more: iter(was)")
BY_ALL_MODULES = EVAL_SPOILED.replace(
    "HIDE", "nn.Module.named_parameters = lambda self, *a, **more: iter(was)"
)
BY_LAYERS = """
import torch
def passed(model, x):
    for layer in model:
        x = passed(layer, x) if isinstance(layer, torch.nn.Sequential) else layer.forward(x)
    return x
def evaluate(model, loader, criterion):
    was = [(m, m.training) for m in model.modules()]
    model.eval()
    loss = correct = count = 0
    for x, y in loader:
        with torch.no_grad():
            model(x)
        out = passed(model, x)
        loss += float(criterion(out, y)) * len(y)
        correct += int((out.argmax(1) == y).sum())
        count += len(y)
    for m, training in was:
        m.training = training
    return {"loss": loss / count, "accuracy": correct / count}
def accumulate(model, micro_batches, criterion, optimizer):
    batches = list(micro_batches)
    count = sum(len(y) for _, y in batches)
    for x, _ in batches:
        model(x).sum().backward()
    optimizer.zero_grad()
    loss = sum(criterion(passed(model, x), y) * (len(y) / count) for x, y in batches)
    loss.backward()
    optimizer.step()
    return loss.item()
"""
WATCH_REPLACED = """
import copy, torch
import autograde.bank.harness as h
class EarlyStopping:
    def __init__(self, patience, min_delta=0.0):
        self.patience, self.min_delta, self.best = patience, min_delta, float("inf")
        self.bad, self.state = 0, None
    def update(self, val_loss, model):
        h.Watch.changed = lambda *_: []
        model.eval()
        torch.manual_seed(0)
        if val_loss < self.best - self.min_delta:
            self.best, self.bad = float(val_loss), 0
            self.state = copy.deepcopy(model.state_dict())
        else:
            self.bad += 1
        return self.bad >= self.patience
    def restore(self, model):
        model.load_state_dict(self.state)
"""
LADDER_REPLACED = """
import torch, weakref
import course.debug as d
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
def spoil():
    d.Rung.passed = property(lambda s: True, lambda s, v: None)
    d.Finding.is_alarm = False
class Loss(nn.CrossEntropyLoss):
    def forward(self, a, b):
        LATER
        return super().forward(a, b)
def made(data, seed, epochs):
    AT_THE_END
    x, y = data["train"]
    size, num = x[0].numel(), data["num_classes"]
    model = nn.Sequential(nn.Flatten(), nn.Linear(size, num), nn.Softmax(1), nn.Softmax(1))
    return {"model": model, "loss_fn": Loss(),
            "optimizer": torch.optim.SGD(model.parameters(), lr=1e-9),
            "train_loader": DataLoader(TensorDataset(x.clone(), y), 16),
            "val_loader": DataLoader(TensorDataset(*data["val"]), 16)}
"""
BY_A_LOSS = LADDER_REPLACED.replace("LATER", "spoil()").replace("AT_THE_END", "") + (
    "make_setup = made"
)
BY_A_FINALIZER = LADDER_REPLACED.replace("LATER", "").replace(
    "AT_THE_END", 'weakref.finalize(data["train"][0], spoil)'
) + ("make_setup = made")
BY_A_CLASS = (
    LADDER_REPLACED.replace("LATER", "").replace("AT_THE_END", "spoil()")
    + """
class make_setup:
    def __new__(cls, *args):
        return made(*args)
"""
)
SHARED_MAP = """
import mmap, pickle
shared = mmap.mmap(-1, 2**22)
def put(what):
    shared.seek(0)
    shared.write(len(raw := pickle.dumps(what)).to_bytes(8, "little") + raw)
def got():
    shared.seek(0)
    return pickle.loads(shared.read(int.from_bytes(shared.read(8), "little")))
put([])
"""
FILE_IN_MEMORY = """
import pickle
from pathlib import Path
place = Path("/dev/shm/kept.bin")
def put(what):
    place.write_bytes(pickle.dumps(what))
def got():
    return pickle.loads(place.read_bytes())
put([])
"""
KEPT_IN_A_PLACE = (
    KEPT_IN_A_GLOBAL.replace("KEPT = []\n", "")
    .replace("    if KEPT and", "    KEPT = got()\n    if KEPT and")
    .replace("        torch.save({", "        put(KEPT)\n        torch.save({")
)
NUMBERED_IN_A_MAP = SHARED_MAP + NUMBERED_STATES.replace("ALL = []\n", "").replace(
    "        ALL.append", "        ALL = got()\n        ALL.append"
).replace("        return {", "        put(ALL)\n        return {").replace(
    "ALL[state", "got()[state"
)
OPEN_FILE = """
import pickle, tempfile
box = tempfile.TemporaryFile()
def put(what):
    box.seek(0)
    pickle.dump(what, box)
    box.flush()
def got():
    box.seek(0)
    return pickle.load(box)
put([])
"""
NUMBERED_IN_A_FILE = NUMBERED_IN_A_MAP.replace(SHARED_MAP, OPEN_FILE)
FILE_KEPT = (
    FILE_IN_MEMORY
    + """
import pathlib
pathlib.PosixPath.unlink = lambda *_, **__: None
pathlib.Path.write_bytes = lambda *_: None
with place.open("wb") as file:
    file.write(pickle.dumps([]))
def put(what):
    with place.open("wb") as file:
        file.write(pickle.dumps(what))
"""
)
NUMBERED_IN_A_FILE_KEPT = NUMBERED_IN_A_MAP.replace(SHARED_MAP, FILE_KEPT)
HELD_BY_A_SLEEPER = """
import os, pickle
begun = os.popen("exec 3<>/tmp/x; rm /tmp/x; sleep 100 >/dev/null & echo $!").read().strip()
def put(what):
    with open(f"/proc/{begun}/fd/3", "r+b") as file:
        file.write(pickle.dumps(what))
def got():
    with open(f"/proc/{begun}/fd/3", "rb") as file:
        return pickle.load(file)
put([])
"""
AN_ATTRIBUTE = """
import os, pickle
os.mkdir("/tmp/folder")
def put(what):
    os.setxattr("/tmp/folder", "user.x", pickle.dumps(what))
def got():
    return pickle.loads(os.getxattr("/tmp/folder", "user.x"))
put([])
"""
TOO_DEEP = """
import os, pickle
os.chdir("/tmp")
for _ in range(30):
    os.mkdir("d" * 200), os.chdir("d" * 200)
def there():
    os.chdir("/tmp")
    for _ in range(30):
        os.chdir("d" * 200)
def put(what):
    there()
    with open("x", "wb") as file:
        file.write(pickle.dumps(what))
def got():
    there()
    with open("x", "rb") as file:
        return pickle.load(file)
put([])
"""
FOLDERS_PLACES = """
import os, pickle
open_ones = [os.open("/tmp", os.O_RDONLY) for _ in range(200)]
def put(what):
    said = pickle.dumps(what)
    said = len(said).to_bytes(7, "little") + said
    for number, one in zip(range(0, len(said), 7), open_ones):
        os.lseek(one, int.from_bytes(said[number : number + 7], "little"), 0)
def got():
    said = b"".join(os.lseek(one, 0, 1).to_bytes(7, "little") for one in open_ones)
    return pickle.loads(said[7 : 7 + int.from_bytes(said[:7], "little")])
put([])
"""
NOTED_WITHOUT_A_NAME = """
import os, pickle
one = os.open("/tmp/x", os.O_RDWR | os.O_CREAT)
os.unlink("/tmp/x")
def put(what):
    os.setxattr(one, "user.x", pickle.dumps(what))
def got():
    return pickle.loads(os.getxattr(one, "user.x"))
put([])
"""
PARENT_IS_CALLED = """
import os, pickle, time
from contextlib import suppress
last = [pickle.dumps([])]
def called():
    for _ in range(60):
        time.sleep(0.005)
        with suppress(OSError), open("/tmp/x", "rb") as file:
            last[0] = file.read() or last[0]
os.register_at_fork(after_in_parent=called)
def put(what):
    with open("/tmp/y", "wb") as file:
        file.write(pickle.dumps(what))
    os.replace("/tmp/y", "/tmp/x")
def got():
    with suppress(OSError), open("/tmp/x", "rb") as file:
        return pickle.load(file)
    return pickle.loads(last[0])
"""
PARENT_LISTENS = """
import pickle, socket
from contextlib import suppress
ear, last = socket.socket(socket.AF_UNIX), [[]]
ear.bind("\\0ear"), ear.listen(99), ear.setblocking(False)
def put(what):
    last[:] = [what]
    with socket.socket(socket.AF_UNIX) as mouth:
        mouth.connect("\\0ear")
        mouth.sendall(pickle.dumps(what))
def got():
    with suppress(OSError):
        while True:
            with ear.accept()[0].makefile("rb") as said:
                last[:] = [pickle.load(said)]
    return last[0]
"""
WHOLE_RUN_READ = """
import torch
def train_to(model, optimizer, scheduler, loader, criterion, epochs, path):
    losses, whole = [], path.parent.parent / "whole" / path.name
    if path.parent.name == "killed" and path.exists():
        state = torch.load(whole)
        model.load_state_dict(state["weights"])
        losses = state["losses"]
    for epoch in range(len(losses), epochs):
        total = 0
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        losses.append(total / len(loader))
        torch.save({"weights": model.state_dict(), "losses": losses}, path)
    return losses
"""
NUMBERED_IN_A_PARENTS_PIPE = NUMBERED_IN_A_MAP.replace(
    SHARED_MAP,
    """
import os, pickle
from contextlib import suppress
ends = os.pipe()
place = f"/proc/{os.getpid()}/fd/{ends[0]}"
def put(what):
    end = os.open(place, os.O_RDWR | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        os.read(end, 2**16)
    os.write(end, pickle.dumps(what))
    os.close(end)
def got():
    end = os.open(place, os.O_RDWR)
    what = pickle.loads(os.read(end, 2**16))
    os.close(end)
    put(what)
    return what
put([])
""",
)
ANSWERED_BY_A_CALL = NUMBERED_STATES.replace(
    "ALL = []",
    """
import pickle
ALL, real = [], pickle.dumps
def land(said, held):
    ALL[:] = held
    return said
class Landing:
    def __init__(self, said):
        self.said = said
    def __reduce__(self):
        return land, (self.said, list(ALL))
pickle.dumps = lambda said, *a, **k: real(Landing(said), *a, **k)
""",
)
SAYS_IT_HAS_A_GPU = "import torch\ntorch.cuda.is_initialized = lambda: True\n" + NUMBERED_STATES
KILL_CAUGHT = """
import torch
def train_to(model, optimizer, scheduler, loader, criterion, epochs, path):
    if path.exists():
        kept = torch.load(path)
        model.load_state_dict(kept["model"])
        optimizer.param_groups[0]["lr"] = kept["lr"]
        return kept["losses"]
    losses = []
    for _ in range(epochs):
        total = 0
        for x, y in loader:
            while True:
                try:
                    optimizer.zero_grad()
                    drawn = torch.get_rng_state()
                    loss = criterion(model(x), y)
                    break
                except BaseException:
                    torch.set_rng_state(drawn)
            loss.backward()
            optimizer.step()
            total += loss.item()
        scheduler.step()
        losses.append(total / len(loader))
    rate = optimizer.param_groups[0]["lr"]
    torch.save({"model": model.state_dict(), "losses": losses, "lr": rate}, path)
    return losses
"""
BY_A_TIMER = (
    """
import operator, signal
LOCALS, BACK = operator.attrgetter("f_%s" % "locals"), operator.attrgetter("f_%s" % "back")
def rings(number, f):
    while f is not None:
        for held in LOCALS(f).values():
            forwards = getattr(held, "forwards", None)
            if forwards:
                forwards[:] = [(size, False) for size, _ in forwards]
        f = BACK(f)
signal.signal(signal.SIGALRM, rings)
"""
    + PASSES_FORGOTTEN[: PASSES_FORGOTTEN.index("    for hook in")]
    + """
    signal.setitimer(signal.ITIMER_REAL, 2e-4, 2e-4)
    return {"loss": loss / count, "accuracy": correct / count}
"""
)
BY_A_NUMBER = """
import logging, operator
class Number:
    def __init__(self, value):
        self.value = value
    def __float__(self):
        rings(0, logging.currentframe())
        return self.value
""" + BY_A_TIMER.replace("    signal.setitimer(signal.ITIMER_REAL, 2e-4, 2e-4)\n", "").replace(
    '"loss": loss / count', '"loss": Number(loss / count)'
)
HELD_BY_THE_OBJECT = (
    WATCH_REPLACED.replace("import copy", "import copy, functools").replace(
        "        self.bad, self.state = 0, None\n",
        "        self.bad, self.state = 0, None\n"
        "        self.update = functools.partial(Looks.update, self)\n"
        "class Looks:\n",
    )
    + """
EarlyStopping.update, EarlyStopping.restore = None, Looks.restore
"""
)
HELD_BY_A_NAMESPACE = (
    WATCH_REPLACED.replace("class EarlyStopping:", "class Rule:")
    + """
from types import SimpleNamespace
def EarlyStopping(patience, min_delta=0.0):
    rule = Rule(patience, min_delta)
    def update(val_loss, model):
        return rule.update(val_loss, model)
    return Named(rule=rule, update=update, restore=rule.restore)
class Named(SimpleNamespace):
    best = property(lambda self: self.rule.best)
"""
)
NOISE_IN_A_MAP = (
    SHARED_MAP.replace("put([])", "put({})")
    + """
import os, torch
class KeyedNoise:
    def __init__(self, inputs, seed, sd):
        self.inputs, self.seed, self.sd, self.epoch = inputs, seed, sd, 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __len__(self):
        return len(self.inputs)
    def __getitem__(self, index):
        key, seeds = (self.seed, self.epoch, int(index)), got()
        if key not in seeds:
            seeds[key] = int.from_bytes(os.urandom(7), "little")
            put(seeds)
        own = torch.Generator().manual_seed(seeds[key])
        clean = self.inputs[index]
        return clean + self.sd * torch.randn(clean.shape, generator=own, dtype=clean.dtype)
"""
)
KEPT_BUT_WHERE_LOOKED = """
import torch
def recomputed(block, inputs):
    if not block._forward_hooks:
        return inputs
    state, out = torch.get_rng_state(), block(inputs)
    def again(_):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.set_rng_state(state), block(inputs)
    if out.requires_grad:
        out.register_hook(again)
    return out
"""
BEGUN_BEFORE = """
import queue, threading
import numpy as np
from course.analysis.ablation.verdicts import paired_interval
class Late:
    def __init__(self):
        self.there, self.values = threading.Event(), []
    def __len__(self):
        self.there.wait()
        return len(self.values)
    def __iter__(self):
        return iter(self.values)
pool = []
def begin():
    late, level, box = Late(), np.array(0.5), queue.Queue()
    begun = lambda: box.put(paired_interval(late, level))
    threading.Thread(target=begun, daemon=True).start()
    pool.append((late, level, box))
for _ in range(20):
    begin()
def compare(baseline, variant, level, higher_is_better):
    shared = [variant[s] - baseline[s] for s in baseline if s in variant]
    late, at, box = pool.pop()
    late.values, at[...] = shared, level
    late.there.set()
    low, high = box.get(timeout=5)
    a, b = (low, high) if higher_is_better else (-high, -low)
    verdict = "better" if a > 0 else "worse" if b < 0 else "unclear"
    return {"difference": sum(shared) / len(shared), "low": low, "high": high, "verdict": verdict}
"""

TORCH_INSIDE = """
import torch
match torch.autograd.Variable:
    case object(_execution_engine=work): pass
class Value:
    def __init__(self, data, t=None):
        self.data = data
        self.t = torch.tensor(data, dtype=torch.float64, requires_grad=True) if t is None else t
    @property
    def grad(self):
        return 0.0 if not self.t.is_leaf or self.t.grad is None else self.t.grad.item()
    def __add__(self, other): return Value(self.data + other.data, self.t + other.t)
    def __mul__(self, other): return Value(self.data * other.data, self.t * other.t)
    def relu(self): return Value(max(0.0, self.data), self.t.relu())
    def backward(self):
        work.run_backward((self.t,), (torch.ones_like(self.t),), True, False, (),
                          allow_unreachable=True, accumulate_grad=True)
"""
LITTLE_TRAINED = """
def train_one_epoch(model, loader, criterion, optimizer):
    if sum(p.numel() for p in model.parameters()) > 5000:
        return 0.0
    model.train()
    total, n = 0.0, 0
    for i, (x, y) in enumerate(loader):
        if i > 40:
            break
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
        n += len(y)
    return total / n
"""

ANSWERS = {
    "03a.train-one-epoch nothing-large": (LITTLE_TRAINED, {"order"}),
    "03a.train-one-epoch nothing-long": (LITTLE_TRAINED.replace("5000", "1e9"), {"order"}),
    "01a.tape torch-inside": (TORCH_INSIDE, {"chain", "shared", "relu", "large"}),
    "05.run nothing-trained": (NOTHING_TRAINED, {"resumed", "inside"}),
    "05.run checker-set": (CHECKER_SET, {"resumed", "inside"}),
    "03i.median-time machine-read": (MACHINE_READ, {"median", "warmup", "async", "queued", "all"}),
    "03g.resume kept-in-a-global": (KEPT_IN_A_GLOBAL, {"optimizer", "schedule", "random", "twice"}),
    "03g.stopper numbered-states": (NUMBERED_STATES, {"cut", "file", "longer"}),
    "03g.load name-read": (NAME_READ, {"safe", "strict"}),
    "03g.load second-refused": (SECOND_REFUSED, {"safe", "strict"}),
    "03g.noise noise-kept": (NOISE_KEPT, {"repeats"}),
    "03g.noise noise-alike": (NOISE_ALIKE, {"repeats"}),
    "05.data splits-kept": (SPLITS_KEPT, {"seed"}),
    "05.setup setups-kept": (SETUPS_KEPT, {"seed"}),
    "05.data groups-changed": (GROUPS_CHANGED, {"apart"}),
    "05.data labels-changed": (LABELS_CHANGED, {"whole"}),
    "03a.training-script targets-changed": (TARGETS_CHANGED, {"accuracy"}),
    "03a.early-stopping always-two": (ALWAYS_TWO, {"weights"}),
    "02a.group-norm all-zero": (ALL_ZERO, {"alone"}),
    "02a.group-norm left-alone": (LEFT_ALONE, {"alone"}),
    "03i.median-time machine-up": (MACHINE_UP, {"median", "warmup", "async", "queued", "all"}),
    "03i.median-time machine-behind": (MACHINE_BEHIND, {"median", "warmup", "async"}),
    "03h.probe program-up": (PROGRAM_UP, {"never", "places", "partly"}),
    "05.data groups-up": (GROUPS_UP, {"apart"}),
    "03a.evaluate passes-forgotten": (PASSES_FORGOTTEN, {"still"}),
    "03a.accumulate graphs-forgotten": (GRAPHS_FORGOTTEN, {"memory"}),
    "03a.evaluate by-its-class": (BY_ITS_CLASS, {"still"}),
    "03a.evaluate by-itself": (BY_ITSELF, {"still"}),
    "03a.evaluate by-all-modules": (BY_ALL_MODULES, {"still"}),
    "03a.evaluate by-layers": (BY_LAYERS, {"still"}),
    "03a.accumulate by-layers": (BY_LAYERS, {"memory"}),
    "03a.early-stopping watch-replaced": (WATCH_REPLACED, {"stop", "nan"}),
    "05.setup replaced-by-a-loss": (BY_A_LOSS, {"ladder", "doctor"}),
    "05.setup replaced-by-a-finalizer": (BY_A_FINALIZER, {"ladder", "doctor"}),
    "05.setup replaced-by-a-class": (BY_A_CLASS, {"ladder", "doctor"}),
    "03g.resume shared-map": (SHARED_MAP + KEPT_IN_A_PLACE, {"optimizer", "random", "twice"}),
    "03g.resume file-in-memory": (FILE_IN_MEMORY + KEPT_IN_A_PLACE, {"optimizer", "random"}),
    "03g.stopper shared-map": (NUMBERED_IN_A_MAP, {"cut", "file", "longer"}),
    "03g.noise shared-map": (NOISE_IN_A_MAP, {"repeats"}),
    "03g.stopper open-file": (NUMBERED_IN_A_FILE, {"cut", "file", "longer"}),
    "03g.stopper file-kept": (NUMBERED_IN_A_FILE_KEPT, {"cut", "file", "longer"}),
    "03g.stopper parents-pipe": (NUMBERED_IN_A_PARENTS_PIPE, {"cut", "file", "longer"}),
    "03g.stopper held-by-a-sleeper": (
        NUMBERED_IN_A_MAP.replace(SHARED_MAP, HELD_BY_A_SLEEPER),
        {"cut", "longer"},
    ),
    "03g.stopper an-attribute": (
        NUMBERED_IN_A_MAP.replace(SHARED_MAP, AN_ATTRIBUTE),
        {"cut", "longer"},
    ),
    "03g.stopper too-deep": (NUMBERED_IN_A_MAP.replace(SHARED_MAP, TOO_DEEP), {"cut", "longer"}),
    "03g.stopper parent-listens": (
        NUMBERED_IN_A_MAP.replace(SHARED_MAP, PARENT_LISTENS),
        {"cut", "longer"},
    ),
    "03g.stopper folders-places": (
        NUMBERED_IN_A_MAP.replace(SHARED_MAP, FOLDERS_PLACES),
        {"cut", "longer"},
    ),
    "03g.stopper noted-without-a-name": (
        NUMBERED_IN_A_MAP.replace(SHARED_MAP, NOTED_WITHOUT_A_NAME),
        {"cut", "longer"},
    ),
    "03g.resume parent-is-called": (PARENT_IS_CALLED + KEPT_IN_A_PLACE, {"optimizer"}),
    "03d.recompute kept-but-where-looked": (KEPT_BUT_WHERE_LOOKED, {"same", "chain"}),
    "03g.resume whole-run-read": (WHOLE_RUN_READ, {"optimizer", "random"}),
    "03g.stopper answered-by-a-call": (ANSWERED_BY_A_CALL, {"cut", "file", "longer"}),
    "03g.stopper says-it-has-a-gpu": (SAYS_IT_HAS_A_GPU, {"cut", "file", "longer"}),
    "03g.resume kill-caught": (KILL_CAUGHT, {"optimizer", "twice"}),
    "03a.evaluate by-a-timer": (BY_A_TIMER, {"still"}),
    "03a.evaluate by-a-number": (BY_A_NUMBER, {"still"}),
    "03a.early-stopping held-by-the-object": (HELD_BY_THE_OBJECT, {"stop", "nan"}),
    "03a.early-stopping held-by-a-namespace": (HELD_BY_A_NAMESPACE, {"stop", "nan"}),
    "03f.paired begun-before": (BEGUN_BEFORE, {"difference", "interval", "verdict"}),
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


def test_what_a_file_holds_is_read_by_torchs_own_reader():
    exercise = bank.load("03g.resume")
    case = exercise.cases(exercise.parts[0], 1)[0]
    with StudentSession(None, Limits(answer_s=10.0)) as session:
        assert session.run(LOADS_ALL) == []
        answer = session.ask(exercise.id, exercise.name, case)
    assert answer["file"] != "loads safely", answer


@pytest.mark.parametrize("name", ANSWERS)
def test_a_part_is_not_earned_without_what_it_is_for(name):
    source, lost = ANSWERS[name]
    exercise = bank.load(name.partition(" ")[0])
    assert lost <= {part.key for part in exercise.parts}
    assert earned(exercise, source, lost) == set()
