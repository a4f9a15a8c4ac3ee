"""05.run: a run with its record, which goes on after a kill as if it had not been killed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from autograde.apart import in_a_process
from autograde.bank.harness import Focal, build_optimizer, plainly, read_safely, scratch
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_numbers, kept
from autograde.kinds.fix import variant
from course.engine import Callback, Trainer
from course.state import undisturbed

EPOCHS = 3
BATCH = 6
VAL_BATCH = 5
TRIED = 2_000
"""Label vectors among which `record` looks for one that tells rules for best.pt apart."""
CLEAR = 0.005
"""How far the losses are apart: rounding on another device moves them by 1e-6."""
TILT = 4.0
"""How much, at most, one of the tried label vectors prefers labels that fit the order asked for."""
LEARNT, FALLS = "clearly below that before", 0.9
"""A run has learnt where the loss on training falls below this share; the highest of 360 ends at
0.75 of where it began."""
LOSSES = ("plain", "smoothing", "focal")
OPTIMIZERS = ("momentum", "adam", "groups")


def draw(source: Draw, part: str) -> Case:
    """Small images in clusters; loss, optimizer and schedule vary from case to case.

    Dropout only where two runs of the same function are compared: its draws are an answer's own.
    """
    classes, wide = source.integer(3, 4) + 8 * (source.index % 2), source.integer(3, 4)
    means = 1.5 * source.normal(classes, 1, 3, wide)
    sides = {}
    for side, count in (("train", source.integer(20, 23)), ("val", source.integer(11, 12))):
        targets = source.integers(classes, count)
        sides[side] = [means[targets] + source.normal(count, 1, 3, wide), targets]
    begin = source.integer(0, 2)
    batches = -(-len(sides["train"][1]) // BATCH)
    case = {
        **sides,
        "part": part,
        "classes": classes,
        "loss": LOSSES[(begin + source.index) % 3],
        "optimizer": OPTIMIZERS[source.index % 3],
        "per": ("update", "epoch")[source.index % 2],
        "dropout": part in ("resumed", "inside"),
        "seed": source.integer(1, 10_000),
        "after": source.integer(0, 1),
        "identify": part == "record" and source.index == 0,
        # inside the second epoch, and inside the first, before anything is kept
        "at": batches * (1 - source.index % 2) + source.integer(1, batches - 1),
    }  # fmt: skip
    if part == "record":
        case["val"] = _telling_validation(source, case, (_by_a_hair, _up_and_down)[source.index])
    return case


def _telling_validation(source: Draw, case: Case, order: Callable[..., Any]) -> list[Tensor]:
    """Validation on which the rules by which best.pt may be written keep different epochs.

    The training does not see any of it, so the epochs' models are known before it is drawn.
    """
    with scratch() as folder, undisturbed():
        kit = Kit(case, folder)
        kit.call(reference, 71)
    shape, classes = case["val"][0].shape, case["classes"]
    best = torch.tensor(-torch.inf)
    while best < CLEAR:
        inputs = source.normal(*shape)  # between the classes, where the epochs disagree
        found = [_by_label(kit, kit.states[epoch], inputs, classes) for epoch in range(EPOCHS)]
        labels, apart = order(source, *(torch.stack(part) for part in zip(*found, strict=True)))
        best = apart.max()
    return [inputs, labels[apart.argmax()]]


def _by_a_hair(source: Draw, costs: Tensor, hits: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest loss in the second epoch, the highest accuracy in the first.

    The mean of the batches' mean losses is the lowest in the third. Of losses and hits, both
    [epochs, N, C], come label vectors and how well each fits.
    """
    rows = torch.arange(costs.shape[1])
    labels = torch.where(
        source.integers(2, TRIED, len(rows)).bool(),
        hits[0].argmax(dim=1),
        source.integers(costs.shape[2], TRIED, len(rows)),
    )
    first, middle, last = (epoch[rows, labels].mean(dim=1) for epoch in costs)
    apart = torch.minimum(first, last) - middle
    first, middle, last = (_mean_of_means(epoch[rows, labels]) for epoch in costs)
    apart = torch.minimum(apart, torch.minimum(first, middle) - last)
    most, fewer, fewest = (epoch[rows, labels].sum(dim=1) for epoch in hits)
    apart[(most <= fewer) | (most <= fewest)] = -torch.inf
    return labels, apart


def _up_and_down(source: Draw, costs: Tensor, hits: Tensor) -> tuple[Tensor, Tensor]:
    """The loss rises and falls, but not below the first epoch's; the second's accuracy is highest.

    So a loss below that of the epoch before is not the lowest, and accuracy rises with the loss.
    """
    rows = torch.arange(costs.shape[1])
    dearer = costs[1] - torch.maximum(costs[0], costs[2])
    likes = [TILT * torch.rand(TRIED, 1, 1, generator=source.generator) for _ in range(3)]
    logits = likes[0] * dearer + likes[1] * hits[1] - likes[2] * hits[0]
    chance = torch.rand(logits.shape, generator=source.generator).clamp(1e-6, 1 - 1e-6)
    labels = (logits - (-chance.log()).log()).argmax(dim=2)  # drawn by their odds
    first, middle, last = (epoch[rows, labels].mean(dim=1) for epoch in costs)
    apart = torch.minimum(middle - last, last - first)
    first, _, last = (_mean_of_means(epoch[rows, labels]) for epoch in costs)
    apart = torch.minimum(apart, last - first)  # so the batches' means do not choose the last
    few, most, fewer = (epoch[rows, labels].sum(dim=1) for epoch in hits)
    apart[(most <= few) | (most < fewer)] = -torch.inf
    return labels, apart


def _by_label(kit: Kit, state: Any, inputs: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Loss and hit of each input, were its label each of the classes; both [N, C]."""
    kit.model.load_state_dict(state)
    kit.model.eval()
    with torch.no_grad():
        logits = kit.model(inputs)
    costs = [[kit.loss_fn(row[None], torch.tensor([c])) for c in range(classes)] for row in logits]
    return torch.tensor(costs), nn.functional.one_hot(logits.argmax(dim=1), classes)


def _mean_of_means(costs: Tensor) -> Tensor:
    """The mean of the batches' means, of costs [tries, N]: a short batch counts as a whole one."""
    return torch.stack([part.mean(dim=1) for part in costs.split(VAL_BATCH, dim=1)]).mean(dim=0)


class KilledError(Exception):
    """What a kill is made of here."""


class Rows(Dataset):
    """Images by position; before one is given, a plain function is told of it.

    What the check notes is no attribute: these lead from the set-up to the images alone.
    """

    def __init__(self, inputs: Tensor, targets: Tensor, tell: Callable[[int], None]) -> None:
        self.inputs, self.targets, self._tell = inputs, targets, tell

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        self._tell(index)
        return self.inputs[index], self.targets[index]


_seen: list[tuple[bool, Tensor]] = []
"""By the first layers of models: the mode, and the first image."""


class Look(nn.Flatten):
    """The first layer: notes the mode it is in, and the first image. A copy of it does, too."""

    def forward(self, images: Tensor) -> Tensor:
        _seen.append((self.training, images[0].detach().cpu().clone()))
        return super().forward(images)


NOTES = ("asked", "told", "losses", "states", "begins", "updates", "killed", "dies_at",
         "dies_after", "told_at", "told_late", "final", "learnt", "mode")  # fmt: skip
"""What a kit has noted in another process, and knows in this one afterwards."""


class Kit:
    """The `make_setup` and `after_epoch` that a function is handed, and what they saw."""

    def __init__(self, case: Case, folder: str) -> None:
        self.case, self.folder = case, Path(folder) / "run"
        self.data = {side: tuple(case[side]) for side in ("train", "val")}
        self.data |= {"mean": 91.5, "std": 62.25, "num_classes": case["classes"]}
        self.asked: list[list[int]] = []
        self.told: list[int] = []
        self.losses: dict[int, float] = {}
        self.states: dict[int, dict[str, Tensor]] = {}
        self.fetched: list[int] = []
        self.begins: dict[int, dict[str, Any]] = {}
        self.updates, self.killed, self.epochs = 0, False, EPOCHS
        self.dies_at: int | None = None
        self.dies_after: int | None = None
        self.told_at, self.told_late = -1, False
        self.final: dict[str, Tensor] = {}
        self.learnt = self.mode = ""

    def make_setup(self, data: Any, seed: int, epochs: int) -> dict[str, Any]:
        """A set-up of the case, from scratch."""
        case = self.case
        self.asked.append([int(seed), int(epochs)])
        inputs, targets = data["train"]
        size = inputs[0].numel()
        layers = [nn.Dropout(0.3)] if case["dropout"] else []
        with torch.random.fork_rng(devices=[]):  # what dropout draws is the run's to seed
            torch.manual_seed(seed)
            self.model = nn.Sequential(
                Look(), nn.Linear(size, 6), nn.Tanh(), *layers, nn.Linear(6, case["classes"])
            )
        self.initial = self.state()
        self.optimizer = build_optimizer(case["optimizer"], self.model, 0.2)
        self.optimizer.register_step_pre_hook(lambda *_: self._steps())
        self.optimizer.register_step_post_hook(lambda *_: self._stepped())
        loss_fn = Focal() if case["loss"] == "focal" else nn.CrossEntropyLoss(
            label_smoothing=0.2 * (case["loss"] == "smoothing"))  # fmt: skip
        own = torch.Generator().manual_seed(seed)
        self.loss_fn = loss_fn
        self.scheduler = torch.optim.lr_scheduler.StepLR(
            self.optimizer, {"update": 3, "epoch": 1}[case["per"]], 0.8
        )
        return {
            "model": self.model, "loss_fn": loss_fn, "optimizer": self.optimizer,
            "train_loader": DataLoader(Rows(inputs, targets, plainly(self._fetches)), BATCH,
                                       shuffle=True, generator=own),
            "val_loader": DataLoader(list(zip(*data["val"], strict=True)), VAL_BATCH),
            "scheduler": self.scheduler,
            "schedule_per": case["per"],
        }  # fmt: skip

    def _fetches(self, index: int) -> None:
        """Note which image is asked for; one that is asked for too often kills the run."""
        if self.updates == self.dies_at:
            self.dies_at, self.killed = None, True
            raise KilledError
        self.fetched = [*self.fetched[1 - BATCH :], index]

    def _steps(self) -> None:
        """Before an epoch's first update: all that it depends on."""
        if len(self.told) in self.begins:
            return
        self.begins[len(self.told)] = {
            "the weights": self.state(),
            "the model's mode": self.model.training,
            "the optimizer's averages": _averages(self.optimizer),
            "the schedule's place": self.scheduler.last_epoch,
            "the order of the images": self.fetched,
            "torch's generator": torch.get_rng_state(),
        }

    def _stepped(self) -> None:
        self.updates += 1

    def after_epoch(self, epoch: int) -> None:
        """Note where the run is; die where the case says so."""
        self.told.append(int(epoch))
        self.told_late |= self.told_at == self.updates  # no update since the epoch before
        self.told_at = self.updates
        self.losses[int(epoch)] = self._loss("val")
        self.states[int(epoch)] = self.state()
        if self.dies_after == epoch:
            self.dies_after, self.killed = None, True
            raise KilledError

    def _loss(self, side: str) -> float:
        """The mean loss of one side, with the weights as they are."""
        device = next(self.model.parameters()).device  # a trainer may have moved the model
        inputs, targets = (part.to(device) for part in self.data[side])
        mode, before = self.model.training, len(_seen)
        self.model.eval()
        with torch.no_grad():
            loss = self.loss_fn(self.model(inputs), targets).item()
        self.model.train(mode)
        del _seen[before:]
        return loss

    def state(self) -> dict[str, Tensor]:
        """The weights now."""
        return {name: value.cpu().clone() for name, value in self.model.state_dict().items()}

    def _mode_of_validation(self) -> str:
        """The mode in which validation images went through the model."""
        images = self.data["val"][0]
        modes = {training for training, row in _seen if (images == row).flatten(1).all(1).any()}
        return "train" if True in modes else "eval"

    def call(self, function: Any, seed: int) -> Any:
        """One call of the function, with the global generator in an own state, as a new process.

        Returns:
            The accuracies, or why they are none; None if it was killed.
        """
        returned, notes = in_a_process(partial(self._called, function, seed), kept=self.folder)
        vars(self).update({name: notes[name] for name in NOTES})
        return returned

    def _called(self, function: Any, seed: int) -> tuple[Any, dict[str, Any]]:
        torch.default_generator.manual_seed(seed)
        self.updates, self.killed, self.told_at = 0, False, -1
        _seen.clear()
        returned = None
        try:
            said = function(plainly(self.make_setup), copy.deepcopy(self.data), self.folder,
                            self.case["seed"], self.epochs, plainly(self.after_epoch))  # fmt: skip
            returned = kept(_accuracies, said)
        except Exception:
            if not self.killed:
                raise
        if self.asked:
            self.final, self.mode = self.state(), self._mode_of_validation()
            after = self._loss("train")
            self.model.load_state_dict(self.initial)
            self.learnt = LEARNT if after < FALLS * self._loss("train") else f"not {LEARNT}"
        return returned, {name: getattr(self, name) for name in NOTES}


def _averages(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """What an optimizer remembers of earlier gradients, by parameter and name."""
    return {
        f"{number} {name}": torch.as_tensor(value).cpu().clone()
        for number, held in optimizer.state_dict()["state"].items()
        for name, value in held.items()
        if value is not None
    }


def _unlike(first: dict[str, Any], second: dict[str, Any]) -> str:
    """What of two beginnings of an epoch differs; `nothing` if all is equal."""
    found = [name for name in first if not _equal(first[name], second.get(name))]
    return ", ".join(found) or "nothing"


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return set(one) == set(other) and all(_equal(one[name], other[name]) for name in one)
    return torch.equal(one, other) if isinstance(one, Tensor) else one == other


def run(function, case: Case, device: torch.device) -> Answer:
    """One run; where the part asks for it, another that is killed on the way and called again."""
    with scratch() as folder:
        kit = Kit(case, folder)
        accuracies = kit.call(function, 71)
        if case["part"] == "trained":
            return {"asked": kit.asked, "state": kit.final, "accuracies": accuracies,
                    "told": kit.told, "mode": kit.mode}  # fmt: skip
        if case["part"] == "record":
            with scratch() as other:
                resumed = _best_after_a_kill(function, case, other)
            blind = _blind_to(function, case) if case["identify"] else []
            return {"lacks": _lacks(kit), "best": _best(kit), "ends": _ends(kit), **resumed,
                    "blind": blind}  # fmt: skip
    with scratch() as folder:
        return _killed(function, case, folder, kit, accuracies)


def _best_after_a_kill(function, case: Case, folder: str) -> Answer:
    """Of a run that was killed after its second epoch: best.pt's weights, the record."""
    kit = Kit(case, folder)
    kit.dies_after = 1
    kit.call(function, 75)
    kit.call(function, 76)
    return {"best_resumed": _best(kit), "lacks_resumed": _lacks(kit)}


def _another_pixel(inputs: Tensor, targets: Tensor) -> None:
    inputs[3, 0, 0, 0] += 1.0


def _another_target(inputs: Tensor, targets: Tensor) -> None:
    targets[3] = int(targets[3] == 0)


def _blind_to(function, case: Case) -> list[str]:
    """Changes of the training data that run.json does not tell; or that it tells where none is."""
    marks = {}
    for change in (None, lambda *_: None, _another_pixel, _another_target):
        with scratch() as folder:
            kit = Kit(case, folder)
            kit.epochs = 1
            if change:
                kit.data["train"] = tuple(part.clone() for part in kit.data["train"])
                change(*kit.data["train"])
            kit.call(function, 77)
            marks[change] = _mark(kit.folder / "run.json")
    first, again, pixel, target = marks.values()
    faults = {"the same data": first != again, "an image": first == pixel,
              "a target": first == target}  # fmt: skip
    return [name for name, found in faults.items() if found]


def _mark(path: Path) -> str:
    """What a record says of the training data."""
    content = json.loads(path.read_text()) if path.is_file() else {}
    return json.dumps((content.get("data") or {}).get("train"), sort_keys=True)


def _killed(function, case: Case, folder: str, whole: Kit, accuracies: Any) -> Answer:
    """The same run, killed once, called again, and called once more when it is finished."""
    kit = Kit(case, folder)
    kit.dies_after = case["after"] if case["part"] == "resumed" else None
    kit.dies_at = case["at"] if case["part"] == "inside" else None
    kit.call(function, 72)
    died, first = kit.killed, list(kit.told)
    kit.begins = {}
    returned = kit.call(function, 73)
    state, made, second = kit.final, kit.updates, kit.told[len(first) :]
    more = _finished(function, kit, returned) if case["part"] == "resumed" else {}
    apart = max(((state[name] - value).abs().max().item() for name, value in
                 whole.final.items()), default=float("inf"))  # fmt: skip
    begins = (one.begins.get(len(first), {}) for one in (whole, kit))
    return {
        "died": died,
        "learnt": whole.learnt,
        "begins": _unlike(*begins) if apart else "nothing",
        "told": [first, second],
        "made": made,
        "apart": "nothing" if apart == 0 else f"{apart:.2g}",
        "as_whole": returned == accuracies,
        **more,
    }  # fmt: skip


def _finished(function, kit: Kit, returned: Any) -> Answer:
    """What one more call makes of a run that is finished."""
    again = kit.call(function, 74)
    return {"more": kit.updates, "repeats": again == returned}


def _accuracies(returned: Any) -> list[float]:
    return as_numbers(returned, "the list", "validation accuracies, one per epoch")


def _lacks(kit: Kit) -> list[str]:
    """What run.json does not say of the run."""
    path = kit.folder / "run.json"
    if not path.is_file():
        return ["run.json"]
    content = json.loads(path.read_text())
    settings = content.get("settings") or {}
    right = {
        "seed": content.get("seed") == kit.case["seed"],
        "status": content.get("status") == "finished",
        "settings.epochs": settings.get("epochs") == EPOCHS,
        "settings.mean": settings.get("mean") == kit.data["mean"],
        "settings.std": settings.get("std") == kit.data["std"],
        "data.train": bool((content.get("data") or {}).get("train")),
        "versions.torch": (content.get("versions") or {}).get("torch") is not None,
    }
    return [name for name, fine in right.items() if not fine]


def _best(kit: Kit) -> str:
    """Whose weights best.pt holds."""
    path = kit.folder / "best.pt"
    if not path.is_file() or not kit.losses:
        return "there is no best.pt"
    if kit.told_late:
        return "unknown, as after_epoch came only after the run"
    held = read_safely(path, map_location="cpu")
    if isinstance(held, dict) and "model" not in held:
        return "missing: the file has no key 'model'"
    weights = held.get("model") if isinstance(held, dict) else None
    lowest = min(kit.losses, key=kit.losses.get)
    for epoch in (lowest, *kit.states):
        state = kit.states[epoch]
        if isinstance(weights, dict) and set(weights) == set(state) and all(
            torch.equal(weights[name], value) for name, value in state.items()
        ):  # fmt: skip
            return "those of the lowest loss" if epoch == lowest else f"those of epoch {epoch}"
    return "those of none of the epochs"


def _ends(kit: Kit) -> str:
    """Whose weights the model has when the call returns; the last epoch is not the best here.

    An epoch is called by the number that after_epoch got, which may be counted otherwise: the last
    one is that of the last call.
    """
    if not kit.told:
        return "unknown, as after_epoch was never called"
    for epoch in reversed(kit.told):
        if all(torch.equal(kit.states[epoch][n], value) for n, value in kit.final.items()):
            return "the last one" if epoch == kit.told[-1] else f"epoch {epoch}"
    return "none of them"


class Tell(Callback):
    """Says when an epoch's checkpoint is written."""

    def __init__(self, after_epoch: Any) -> None:
        self.after_epoch = after_epoch

    def on_checkpoint(self, trainer: Trainer) -> None:
        self.after_epoch(len(trainer.history) - 1)


def with_the_engine(make_setup, data, folder, seed, epochs, after_epoch, **chosen_by):
    setup = make_setup(data, seed, epochs)
    trainer = Trainer(
        setup["model"], setup["loss_fn"], setup["optimizer"], scheduler=setup.get("scheduler"),
        schedule_per=setup.get("schedule_per", "epoch"), device="cpu", seed=seed, run_dir=folder,
        callbacks=[Tell(after_epoch)],
    )  # fmt: skip
    history = trainer.fit(
        setup["train_loader"], setup["val_loader"], epochs=epochs, resume="auto", progress=False,
        config={"mean": data["mean"], "std": data["std"]}, **chosen_by,
    )  # fmt: skip
    return [line["val_accuracy"] for line in history]


def best_by_accuracy(make_setup, data, folder, seed, epochs, after_epoch):
    given = make_setup, data, folder, seed, epochs, after_epoch
    return with_the_engine(*given, monitor="val_accuracy")


SCRIPT = '''
def train(make_setup, data, folder, seed, epochs, after_epoch):
    import hashlib
    import json
    from pathlib import Path
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    setup = make_setup(data, seed, epochs)
    model, loss_fn, optimizer = setup["model"], setup["loss_fn"], setup["optimizer"]
    scheduler, per = setup["scheduler"], setup["schedule_per"]
    own, start, best, accuracies = setup["train_loader"].generator, 0, float("inf"), []
    torch.manual_seed(seed)
    mark = hashlib.sha256()
    for part in data["train"]:
        mark.update(part.numpy().tobytes())
    record = {"seed": seed, "status": "running", "data": {"train": mark.hexdigest()},
              "settings": {"epochs": epochs, "mean": data["mean"], "std": data["std"]},
              "versions": {"torch": str(torch.__version__)}}
    if (folder / "last.pt").exists():
        kept = torch.load(folder / "last.pt", weights_only=True)
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        scheduler.load_state_dict(kept["scheduler"])
        own.set_state(kept["own"])
        torch.set_rng_state(kept["rng"])
        start = kept["epoch"] + 1
        best = kept["best"]
        accuracies = kept["accuracies"]
    for epoch in range(start, epochs):
        model.train()
        for inputs, targets in setup["train_loader"]:
            optimizer.zero_grad()
            loss_fn(model(inputs), targets).backward()
            optimizer.step()
            if per == "update":
                scheduler.step()
        if per == "epoch":
            scheduler.step()
        model.eval()
        with torch.no_grad():
            pairs = [(model(x), y) for x, y in setup["val_loader"]]
        logits, targets = (torch.cat(part) for part in zip(*pairs))
        loss = sum(loss_fn(out, y).item() * len(y) for out, y in pairs) / len(targets)
        accuracies.append((logits.argmax(dim=1) == targets).double().mean().item())
        if loss < best:
            best = loss
            torch.save({"model": model.state_dict()}, folder / "best.pt")
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                 "scheduler": scheduler.state_dict(), "own": own.get_state(),
                 "rng": torch.get_rng_state(), "epoch": epoch, "best": best,
                 "accuracies": accuracies}
        torch.save(state, folder / "last.pt")
        after_epoch(epoch)
    record["status"] = "finished"
    (folder / "run.json").write_text(json.dumps(record))
    return accuracies
'''  # fmt: skip
script = partial(variant, SCRIPT, __file__)
by_hand = script()


def reference(make_setup, data, folder, seed, epochs, after_epoch) -> list[float]:
    """The loop that the wrong ones spoil; the engine gives the same."""
    return by_hand(make_setup, data, folder, seed, epochs, after_epoch)


END = "    return accuracies\n"
LAST_PT = '        torch.save(state, folder / "last.pt")\n'
BEST_PT = '            torch.save({"model": model.state_dict()}, folder / "best.pt")\n'
TOLD = "        after_epoch(epoch)\n"
GOT = "accuracies.append((logits.argmax(dim=1) == targets).double().mean().item())"


def with_explicit_resume(make_setup, data, folder, seed, epochs, after_epoch):
    setup = make_setup(data, seed, epochs)
    last = Path(folder) / "last.pt"
    keys = ("model", "loss_fn", "optimizer")
    trainer = Trainer(
        *(setup[key] for key in keys), scheduler=setup["scheduler"], seed=seed,
        schedule_per=setup["schedule_per"], run_dir=folder, callbacks=(Tell(after_epoch),),
    )  # fmt: skip
    history = trainer.fit(
        setup["train_loader"], setup["val_loader"], epochs=epochs, monitor="val_loss",
        resume=last if last.exists() else None, progress=False,
        config={name: data[name] for name in ("mean", "std")},
    )  # fmt: skip
    return tuple(line["val_accuracy"] for line in history)


WRONG = (
    ("starts-again", script(('if (folder / "last.pt").exists():', "if False:")),
     "A killed run started again from its first epoch. Continue from the folder's checkpoint if "
     "there is one."),
    ("optimizer-forgotten", script(('        optimizer.load_state_dict(kept["optimizer"])\n', "")),
     "After the kill the optimizer started from scratch. Save and load optimizer.state_dict()."),
    ("schedule-forgotten", script(('        scheduler.load_state_dict(kept["scheduler"])\n', "")),
     "After the kill the schedule started again. Save and load scheduler.state_dict()."),
    ("order-forgotten", script(('        own.set_state(kept["own"])\n', "")),
     "After the kill the images came in a different order. The order is drawn from "
     "train_loader.generator: save its get_state()."),
    ("draws-forgotten", script(('        torch.set_rng_state(kept["rng"])\n', "")),
     "After the kill torch's generator was not in its old state, so dropout drew different "
     "numbers. Save torch.get_rng_state() at the end of the epoch."),
    ("train-mode-once", script(("        model.train()\n", ""),
                               ("    for epoch in range(start", "    model.train()\n"
                                "    for epoch in range(start")),
     "After the kill the model is in a different mode from the uninterrupted run: the eval() of a "
     "validation lasts until train() is called. Call train() in every epoch."),
    ("best-forgotten", script(('        best = kept["best"]\n', "")),
     "After a kill a worse epoch replaced the best one in best.pt: the lowest loss was forgotten. "
     "Keep it in the checkpoint."),
    ("best-at-the-end", script(("    for epoch in range(start", "    held = None\n"
                                "    for epoch in range(start"),
                               (BEST_PT, "            held = {n: v.clone() for n, v in "
                                "model.state_dict().items()}\n"),
                               (END, "    if held:\n        torch.save({'model': held}, "
                                "folder / 'best.pt')\n" + END)),
     "The best weights were lost in a kill: they were only in memory. Write best.pt in every epoch "
     "that is the best so far."),
    ("dropout-unseeded", script(("    torch.manual_seed(seed)\n", "")),
     "Two processes with the same seed drew different numbers for dropout: torch's generator was "
     "not seeded. Seed it before the first epoch."),
    ("epochs-left", script(('    record["status"]', '    record["settings"]["epochs"] -= start\n'
                            '    record["status"]')),
     "After a kill run.json gives the number of remaining epochs. settings.epochs should be that "
     "of the whole run."),
    ("data-not-identified", script(("mark.hexdigest()", 'len(data["train"][1])')),
     "data.train in run.json is the same for different training data, where an image or a target "
     "differs. Write something that tells them apart, such as a hash over both; the engine does."),
    ("data-not-identified", script(('in data["train"]:', 'in data["train"][:1]:')), ""),
    ("data-not-identified", script(('in data["train"]:', 'in data["train"][1:]:')), ""),
    ("epoch-forgotten", script(('        start = kept["epoch"] + 1\n', "")), ""),
    ("epoch-repeated", script(('kept["epoch"] + 1', 'kept["epoch"]')),
     "After the kill, an epoch that was already in the checkpoint was trained again. Continue with "
     "the next one."),
    ("list-forgotten", script(('        accuracies = kept["accuracies"]\n', "")),
     "The list starts after the kill. Keep the accuracies of earlier epochs in the checkpoint."),
    ("told-too-early", script((LAST_PT + TOLD, TOLD + LAST_PT)),
     "after_epoch was called for an epoch whose checkpoint was not written yet: after a kill at "
     "that moment, the epoch was trained again. Save first."),
    ("never-told", script((TOLD, "")), "after_epoch was never called."),
    ("validates-in-train-mode", script(("        model.eval()\n", "")),
     "Validation images went through the model in train mode, where dropout is on. Call "
     "model.eval() before each validation."),
    ("batch-means-of-loss", script(("out, y).item() * len(y) for", "out, y).item() for"),
                                   ("in pairs) / len(targets)", "in pairs) / len(pairs)")), ""),
    ("told-after-the-run", script((TOLD, ""), (END, "    for epoch in range(epochs):\n"
                                  + TOLD + END)),
     "after_epoch came only after the run, for all epochs at once. Call it in each epoch, once "
     "that epoch's checkpoint is written."),
    ("told-from-one", script(("after_epoch(epoch)", "after_epoch(epoch + 1)")),
     "after_epoch was called with epochs counted from 1, as the engine's history has them. Count "
     "from 0: the first call is after_epoch(0)."),
    ("schedule-per-epoch", script(('if per == "update"', 'if per == "never"'),
                                  ('if per == "epoch"', "if True")),
     "The weights are those of a schedule that steps once per epoch, although schedule_per was "
     "'update'. Step it as schedule_per says."),
    ("no-schedule", script(('if per == "update"', 'if per == "never"'),
                           ('if per == "epoch"', 'if per == "never"')),
     "The weights are those of a constant learning rate: the set-up's scheduler did not step. "
     "schedule_per says when it should."),
    ("schedule-first", script(
        ("            optimizer.step()\n            if per == \"update\":\n"
         "                scheduler.step()\n",
         "            if per == \"update\":\n                scheduler.step()\n"
         "            optimizer.step()\n")),
     "The weights are those of a schedule that steps before the optimizer in each update, so that "
     "the first learning rate is never used. Call optimizer.step() first."),
    ("own-loss", script(("loss_fn(model(inputs), targets).backward()",
                         "nn.functional.cross_entropy(model(inputs), targets).backward()")), ""),
    ("never-cleared", script(("            optimizer.zero_grad()\n", "")), ""),
    ("another-seed", script(("make_setup(data, seed, epochs)", "make_setup(data, 0, epochs)")),
     "make_setup was called with a different seed from the one passed in."),
    ("another-length", script(("make_setup(data, seed, epochs)", "make_setup(data, seed, 10)")),
     ""),
    ("batch-means", script(("accuracies.append((logits.argmax(dim=1) == targets).double().mean()",
                            "accuracies.append(torch.stack([(out.argmax(1) == y).double().mean() "
                            "for out, y in pairs]).mean()")),
     ""),
    ("best-is-last", script(("if loss < best:", "if True:")),
     "best.pt holds the last epoch's weights. Write it only if the validation loss is the lowest "
     "so far."),
    ("best-by-accuracy", script(("if loss < best:",
                                 "if accuracies[-1] > max(accuracies[:-1], default=-1):")),
     "best.pt holds the weights of the epoch with the highest validation accuracy. Save those with "
     "the lowest validation loss, which here is a different epoch."),
    ("best-by-accuracy", best_by_accuracy, ""),
    ("best-rises", script(("            best = loss\n", ""),
                          ("        state = {", "        best = loss\n        state = {")),
     "best.pt was overwritten in an epoch whose validation loss is below that of the epoch before, "
     "but not the lowest so far. The loss to beat must never rise: keep the lowest of all epochs."),
    ("best-rises", script(("if loss < best:",
                           "if loss <= best or accuracies[-1] >= max(accuracies):")), ""),
    ("best-by-either", script(("if loss < best:", "if loss < best or "
                               "accuracies[-1] > max(accuracies[:-1], default=-1):"),
                              ("  best = loss\n", "  best = min(best, loss)\n")),
     "best.pt was also overwritten in an epoch whose validation accuracy was the highest so far, "
     "although its loss was not the lowest. Let the validation loss alone decide."),
    ("best-by-reference", script((BEST_PT, "            reference = model.state_dict()\n"),
                                 (LAST_PT, LAST_PT + "        if 'reference' in locals():\n"
                                  "            torch.save({'model': reference}, "
                                  "folder / 'best.pt')\n")),
     "best.pt holds the last epoch's weights, but after a kill it keeps those from before. Were "
     "the best weights kept as model.state_dict()? Its tensors are the model's own and go on "
     "changing: save them at once, or clone each."),
    ("no-model-key", script(('torch.save({"model": model.state_dict()}, folder / "best.pt")',
                             'torch.save(model.state_dict(), folder / "best.pt")')),
     "best.pt has no key 'model'. Save a dictionary: {'model': model.state_dict()}."),
    ("no-model-key", script(('torch.save({"model": model.state_dict()}, folder / "best.pt")',
                             'torch.save({"state_dict": model.state_dict()}, '
                             'folder / "best.pt")')), ""),
    ("best-is-loaded", script((END, "    best_state = torch.load(folder / 'best.pt')\n"
                                    "    model.load_state_dict(best_state['model'])\n" + END)),
     "The model ends with the weights of an earlier epoch. best.pt keeps those; leave the model "
     "itself as it was after the last epoch."),
    ("no-best", script((BEST_PT, "")),
     "There is no best.pt in the folder."),
    ("no-record", script(('    (folder / "run.json").write_text(json.dumps(record))\n', "")),
     "There is no run.json in the folder."),
    ("seed-not-noted", script(('"seed": seed, ', "")), ""),
    ("still-running", script(('    record["status"] = "finished"\n', "")),
     "run.json says that the run is still running. Update the status at the end."),
    ("scale-not-noted", script((', "mean": data["mean"], "std": data["std"]}', "}")),
     "run.json does not say with which mean and std the inputs were normalised; without them the "
     "checkpoint cannot be used."),
    ("epochs-more", script(("range(start, epochs)", "range(start, start + epochs)")),
     "After the kill, `epochs` more epochs were trained. epochs counts the whole run."),
    ("losses-for-accuracies", script((GOT, "accuracies.append(loss)")),
     "The list holds the validation losses. Return the validation accuracies."),
    ("in-percent", script((GOT, GOT.replace("append(", "append(100 * "))),
     "Those are percentages. Give accuracies from 0 to 1."),
    ("one-epoch", script(("range(start, epochs)", "range(start, 1)")), ""),
)  # fmt: skip
SURE = ("starts-again", "list-forgotten", "epoch-repeated", "told-too-early", "never-told",
        "told-after-the-run", "told-from-one", "no-best", "no-record",
        "still-running", "scale-not-noted", "best-is-last",
        "best-is-loaded", "best-by-accuracy", "best-rises", "best-by-either", "no-model-key",
        "best-by-reference", "schedule-first", "best-forgotten", "best-at-the-end",
        "optimizer-forgotten", "schedule-forgotten", "order-forgotten", "draws-forgotten",
        "train-mode-once", "validates-in-train-mode", "epochs-more", "dropout-unseeded",
        "epochs-left", "data-not-identified")  # fmt: skip
"""Their traces are counts, names of epochs and of files: no accident gives the same."""


EXERCISE = Exercise(
    id="05.run",
    title="a run that survives a kill",
    source='Lecture 3, "Saving and loading"; "Reproducibility in five layers"',
    ledger=("X09", "X11", "T25", "C37", "F110"),
    minutes=30,
    difficulty=3,
    read=("course.engine.Trainer", "course.engine.read_run", "T25"),
    hints=(
        "The engine does all of it: run_dir, seed, resume, config, and a callback. You only have "
        "to connect them.",
        'resume="auto" continues if there is a checkpoint, and starts if there is none. A '
        "Callback's on_checkpoint runs right after the checkpoint is written.",
        'in it, len(trainer.history) - 1 is the epoch that has just ended; config={"mean": '
        'data["mean"], ...}; return [line["val_accuracy"] for line in history].',
    ),
    signature="train(make_setup, data, folder, seed, epochs, after_epoch)",
    parts=(
        Part("trained", "the weights and accuracies of a run", points=1, cases=2,
             fields=("asked", "state", "accuracies", "told", "mode")),
        Part("resumed", "killed after an epoch, and called again", points=2, cases=1),
        Part("record", "the record, and the best weights", points=1, cases=2),
        Part("inside", "killed inside an epoch", points=1, cases=2, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "asked": "the seed and the epochs that make_setup was called with",
        "state": "after the last epoch,",
        "accuracies": "the accuracies",
        "mode": "the mode in which validation images go through the model",
        "told": "the epochs that after_epoch was called with",
        "died": "whether the kill ended the first call",
        "learnt": "the training loss after the uninterrupted run",
        "begins": "what the first update after the kill finds different from the uninterrupted run",
        "best_resumed": "the weights in best.pt of a run that was killed after its second epoch",
        "apart": "the largest difference of a weight from the uninterrupted run",
        "made": "the number of updates in the second call",
        "as_whole": "whether the accuracies are those of the uninterrupted run",
        "more": "the number of updates in a call on a finished run",
        "repeats": "whether that call gives the same list",
        "lacks": "what run.json lacks",
        "lacks_resumed": "what run.json lacks after a kill and a second call",
        "blind": "what data.train in run.json misses, or reports although nothing differs,",
        "best": "the weights in best.pt",
        "ends": "the epoch whose weights the model ends with",
    },
    wrong=tuple(
        Wrong(name, function, message, sure=name in SURE) for name, function, message in WRONG
    ),
    right=(with_the_engine, by_hand, with_explicit_resume),
)  # fmt: skip
