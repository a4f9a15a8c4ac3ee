"""05.setup: model, loss, optimizer and loaders, looked at by the contract, the ladder, the doctor.

How they are made is the student's choice. What is asked is what any sound set-up has.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from autograde.apart import in_a_process
from autograde.bank.harness import looking_after
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, seen
from autograde.kinds.fix import variant
from course.data import check_batch
from course.data.datasets import raw_images
from course.debug import climb, diagnose
from course.engine.schedules import schedule_length
from course.state import undisturbed

KEYS = ("model", "loss_fn", "optimizer", "train_loader", "val_loader")
MORE = ("scheduler", "schedule_per")
"""What a set-up may have besides."""
UNITS = {"epoch": "epoch", "update": "batch"}
"""What a schedule may count, and how the doctor calls it."""
OUT = 0.01
"""Share of its peak at which a rate has run out: a cosine over n steps ends below it."""
EPOCHS = 8
"""For which a schedule is made; nothing here trains that long."""
SUBSET = 0.6
"""Share of the training images on rung 4: about sixty, as many as tell a model from chance."""
PASSES = 24
"""Which images never come: one that drop_last leaves out by halves is missed in 1e-7 of cases."""

FIRST_UPDATES, EXPLODES = 6, 100
"""In which no loss may be so many times the first: Adam at 1 gives 144 with 64 units and more with
more, at 0.1 at most 35 with 512."""
CRAWLS = 1e-5
"""A rate below which a set-up that learns nothing is told of its rate."""

RUNS_WITH = "absent, or as long as the run"
ALL = "all of its images, unchanged"
CHANGED = "images that are not in data"


def draw(source: Draw, part: str) -> Case:
    """Which digits, how many, and how they are cut; a contract is looked at with any sizes."""
    sizes = (520, 60, 60)  # several batches for a batch size of up to 256
    return {
        "part": part,
        "classes": source.integer(4, 9),
        "num": source.integer(130, 150) if part in ("ladder", "doctor") else sizes[source.index],
        "cut": [source.integer(0, 2) * (source.index > 0 or part == "contract"),
                source.integer(1, 2)],
        "seed": source.integer(1, 10_000),
    }  # fmt: skip


def digits_data(case: Case) -> dict[str, Any]:
    """What `make_data` gives: some of the digits, cut to a height and a width, normalised."""
    images, labels = raw_images("digits")
    own = torch.Generator().manual_seed(case["seed"])
    chosen = (labels < case["classes"]).nonzero().flatten()
    chosen = chosen[torch.randperm(len(chosen), generator=own)[: case["num"]]]
    high, wide = (8 - rows for rows in case["cut"])
    inputs, targets = images[chosen, None, :high, :wide].float(), labels[chosen].long()
    count = len(chosen) // 4
    mean, std = inputs[count:].mean(), inputs[count:].std()
    inputs = (inputs - mean) / std
    return {"train": (inputs[count:], targets[count:]), "val": (inputs[:count], targets[:count]),
            "mean": mean.item(), "std": std.item(), "num_classes": case["classes"]}  # fmt: skip


def run(function, case: Case, device: torch.device) -> Answer:
    """What the part looks at. Images and set-up are on the CPU; a trainer moves them."""
    as_it_was, data = looking_after(function), digits_data(case)
    make = partial(_made, function, data, epochs=EPOCHS)
    if case["part"] == "contract":
        return _contract(make(case["seed"]), data)
    if case["part"] == "seed":
        return _seeded(make, case["seed"])
    other = make(case["seed"])  # what is done to it is not undone
    _outputs(other["model"], data["val"][0])
    setup = make(case["seed"])
    if case["part"] == "ladder":
        return {"rungs": _rungs(setup, other, data, as_it_was)}
    report = diagnose(_known(setup, data))
    as_it_was()
    return {"findings": [found.id for found in report.findings if found.is_alarm]}


def _made(function, data: dict[str, Any], seed: int, *, epochs: int) -> dict[str, Any]:
    """The set-up.

    Raises:
        AnswerError: It is not a dictionary with the keys, or a part is of another kind.
    """
    setup = function(copy.deepcopy(data), seed, epochs)
    if not isinstance(setup, dict) or not set(KEYS) <= set(setup):
        raise AnswerError(f"Return a dictionary with the keys {', '.join(KEYS)}; {seen(setup)}")
    for key, kind in (("model", nn.Module), ("optimizer", torch.optim.Optimizer)):
        if not isinstance(setup[key], kind):
            got = type(setup[key]).__name__
            raise AnswerError(f"'{key}' must be a torch {kind.__name__}; yours is a {got}.")
    if not callable(setup["loss_fn"]):
        raise AnswerError(f"'loss_fn' is called with logits and targets; {seen(setup['loss_fn'])}")
    if isinstance(setup.get("scheduler"), torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise AnswerError(
            "ReduceLROnPlateau needs a number at each step, and 'schedule_per' does not pass one. "
            "Use a schedule that counts updates or epochs."
        )
    if (per := setup.get("schedule_per", "epoch")) not in UNITS:
        raise AnswerError(f"'schedule_per' must be 'epoch' or 'update'; yours is {per!r:.30}.")
    for key in KEYS[3:]:
        if not isinstance(setup[key], DataLoader):
            got = type(setup[key]).__name__
            raise AnswerError(f"'{key}' must be a DataLoader; yours is a {got}.")
        batch = next(iter(setup[key]), None)
        if batch is None:
            raise AnswerError(
                f"'{key}' gives no batch at all. drop_last=True leaves out an incomplete batch, "
                "and here there may be no other."
            )
        if not isinstance(batch, (list, tuple)) or len(batch) != 2:
            what = f"{len(batch)} things" if isinstance(batch, (list, tuple)) else "something else"
            raise AnswerError(f"'{key}' must give pairs of inputs and targets; a batch was {what}.")
    return setup


def _known(setup: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    """The set-up as ladder and doctor take it."""
    unit = UNITS[setup.get("schedule_per", "epoch")]
    known = {key: setup[key] for key in (*KEYS, "scheduler") if setup.get(key) is not None}
    return known | {"num_classes": data["num_classes"], "declared": {"scheduler_unit": unit}}


def _contract(setup: dict[str, Any], data: dict[str, Any]) -> Answer:
    """Breaches of the batches, what the model gives, and which images a pass brings."""
    passes = {key: list(setup[key]) for key in KEYS[3:]}
    check = partial(check_batch, num_classes=data["num_classes"], ndim=4)
    breaches = {breach for batches in passes.values() for b in batches for breach in check(b).ids}
    inputs, targets = passes["val_loader"][0]
    outputs = _outputs(setup["model"], inputs)
    shape = list(outputs.shape)
    per_image = len(shape) == 2 and shape[0] == len(targets)
    rest = len(passes["train_loader"][0][1])  # drop_last may leave out less than a batch
    more = (batch for _ in range(PASSES) for batch in setup["train_loader"])
    return {
        "untrained": untrained(setup),
        "breaches": sorted(breaches),
        "outputs": f"{shape[1]} per image" if per_image
        else f"a tensor {shape} for {len(targets)} images",
        "train_images": _held(passes["train_loader"], data, "train", spare=rest - 1, more=more),
        "val_images": _held(passes["val_loader"], data, "val"),
        "shuffled": (order := _order(passes["train_loader"])) != data["train"][1].tolist()[
            : len(order)],
        "schedule": _schedule(setup),
    }  # fmt: skip


def _outputs(model: nn.Module, images: Tensor) -> Tensor:
    """What the model gives in eval mode, without a graph.

    Raises:
        AnswerError: It raised, so that not the student's function did.
    """
    model.eval()
    try:
        with torch.no_grad():
            return model(images)
    except Exception as fault:
        high, wide = images.shape[-2:]
        raise AnswerError(
            f"The model raised {type(fault).__name__} on images of {high} by {wide} ({fault}): "
            "take the sizes from data."
        ) from fault


def _schedule(setup: dict[str, Any]) -> str:
    """Whether a schedule that has an end ends with the run, in the unit in which it steps.

    One whose length torch does not tell is walked: its rate must not run out before half the run.
    """
    scheduler, per = setup.get("scheduler"), setup.get("schedule_per", "epoch")
    if scheduler is None:
        return RUNS_WITH
    batches = len(setup["train_loader"])
    planned = EPOCHS * (batches if per == "update" else 1)
    length = schedule_length(scheduler)
    if length is not None and abs(length - planned) > 1:  # n rates are n - 1 steps apart
        units = {"update": EPOCHS, "epoch": EPOCHS * batches}
        other = {"update": "epoch", "epoch": "update"}[per]
        if per == "update" and length == EPOCHS * (batches - 1) > EPOCHS:
            return "a batch per epoch shorter than the run"
        if length == units[per] and (per == "epoch" or batches > 2):  # 2 rounded down are 1
            return f"as many steps as {other}s, taken once per {per}"
        return f"{length} steps long, in a run of {planned}"
    if length is None and _runs_out(_rates(setup["optimizer"], scheduler, planned)):
        return "at a rate of almost 0 before half of the run"
    return RUNS_WITH


def _runs_out(rates: list[float]) -> bool:
    """Whether a rate is next to nothing before half of the run, and does not start again."""
    peak = max(rates)
    low = [at for at, rate in enumerate(rates) if at > rates.index(peak) and rate < OUT * peak]
    again = any(before < OUT * peak and after > peak / 2 for before, after in pairwise(rates))
    return bool(low) and 2 * low[0] <= len(rates) and not again


def _rates(optimizer: torch.optim.Optimizer, scheduler: Any, steps: int) -> list[float]:
    """The largest rate of each step; the schedule alone is stepped."""
    rates = []
    with warnings.catch_warnings():  # torch misses the optimizer's steps
        warnings.simplefilter("ignore")
        for _ in range(steps):
            rates.append(max(group["lr"] for group in optimizer.param_groups))
            scheduler.step()
    return rates


def untrained(setup: dict[str, Any]) -> list[str]:
    """Parameters that are frozen, or that the optimizer does not hold."""
    held = {id(p) for group in setup["optimizer"].param_groups for p in group["params"]}
    return [
        name + ("" if p.requires_grad else ", frozen")
        for name, p in setup["model"].named_parameters()
        if id(p) not in held or not p.requires_grad
    ]


def joined(batches: list[Any]) -> Tensor:
    """The inputs of all batches."""
    return torch.cat([inputs for inputs, _ in batches])


def _order(batches: list[Any]) -> list[Any]:
    """The targets of all batches, which tell an order of the images from one of other pixels."""
    return [t for _, targets in batches for t in torch.as_tensor(targets).flatten().tolist()]


def _held(
    batches: list[Any], data: dict[str, Any], side: str, *, spare: int = 0, more: Iterable[Any] = ()
) -> str:
    """Which images of data the batches of a pass hold; `spare` may be missing, if `more` do."""
    images = data[side][0]
    if not is_unchanged(batches, data):
        return CHANGED
    missing = _missing(batches, images)
    if missing in (0, len(images)):
        return "none of its images" if missing else ALL
    never = _missing([*batches, *more], images)
    return "only some of its images" if never or missing > spare else ALL


def is_unchanged(batches: list[Any], data: dict[str, Any]) -> bool:
    """Whether each image in the batches is one of data."""
    got, known = joined(batches), torch.cat([data[side][0] for side in ("train", "val")])
    return got.shape[1:] == known.shape[1:] and _rows(got) <= _rows(known)


def _missing(batches: list[Any], images: Tensor) -> int:
    """How many of the images no batch of a pass holds."""
    held = _rows(joined(batches))
    return sum(row.numpy().tobytes() not in held for row in images.contiguous())


def _rows(images: Tensor) -> set[bytes]:
    return {row.numpy().tobytes() for row in images.float().contiguous()}


def _seeded(make, seed: int) -> Answer:
    """Weights and orders of two epochs, with the global generator in another state."""

    def seen_in(number: int, own: int) -> tuple[list[Tensor], list[list[Any]], nn.Module]:
        torch.manual_seed(1000 + number)
        setup = make(own)
        torch.rand(number + 1)  # somebody else draws
        orders = [_order(list(setup["train_loader"])) for _ in range(2)]
        return [p.detach().clone() for p in setup["model"].parameters()], orders, setup["model"]

    elsewhere = in_a_process(lambda: seen_in(3, seed)[:2])
    first, again, other = map(seen_in, range(3), (seed, seed, seed + 1))
    return {
        "same_weights": _equal(first[0], again[0]) and _equal(first[0], elsewhere[0]),
        "same_order": first[1] == again[1] == elsewhere[1],
        "other_weights": not _equal(first[0], other[0]),
        "other_order": first[1][0] != other[1][0],
        "another_order": first[1][0] != first[1][1],
        "fresh": first[2] is not again[2],
    }


def _equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(map(torch.equal, first, second))


def _rungs(
    setup: dict[str, Any], other: dict[str, Any], data: dict[str, Any], as_it_was: Any
) -> str:
    """How far the ladder is climbed, of the four rungs below the learning-rate finder.

    What keeps luck from deciding comes first: images that are not those of data, updates that are
    far too large. The other set-up is spent on that.
    """
    if not is_unchanged(list(other["train_loader"]), data):
        return f"not climbed: batches hold {CHANGED}"
    if not _why(other, data) and _explodes(other):
        as_it_was()
        return f"not climbed: the loss is soon {EXPLODES} times the first"
    known = _known(setup, data)
    known.pop("scheduler", None)
    report = climb(known, top=4, subset=SUBSET, explain=False)
    as_it_was()
    failed = [rung for rung in report.rungs if rung.passed is False]
    if not failed:
        return "passed"
    why = _why(setup, data)
    return f"stopped, {why or f'at rung {failed[0].number}, {failed[0].title}'}"


def _why(setup: dict[str, Any], data: dict[str, Any]) -> str:
    """What is seen of a set-up that would keep any model from learning."""
    loss_fn = setup["loss_fn"]
    if all(not p.any() for p in setup["model"].parameters()):
        return "with parameters that are all 0"
    with torch.no_grad():
        outputs = setup["model"].eval()(data["val"][0])
    if outputs.ndim != 2:
        return ""
    sums = outputs.sum(1) if (outputs >= 0).all() else None
    if isinstance(loss_fn, nn.NLLLoss) and not _are_ones(outputs.exp().sum(1)):
        return "with a loss that takes log-probabilities"
    if isinstance(loss_fn, nn.CrossEntropyLoss) and sums is not None:
        return "with probabilities" if _are_ones(sums) else "without any negative output"
    if max(group["lr"] for group in setup["optimizer"].param_groups) < CRAWLS:
        return f"at a rate below {CRAWLS:g}"
    return ""


def _are_ones(sums: Tensor) -> bool:
    return torch.allclose(sums, torch.ones_like(sums))


def _explodes(setup: dict[str, Any]) -> bool:
    """Whether a loss of the first updates is far above the first; the schedule does not step."""
    model, optimizer, losses = setup["model"].train(), setup["optimizer"], []
    batches = (batch for _ in range(FIRST_UPDATES) for batch in setup["train_loader"])
    with undisturbed():
        for inputs, targets in islice(batches, FIRST_UPDATES):
            optimizer.zero_grad()
            loss = setup["loss_fn"](model(inputs), targets)
            losses.append(loss.item())
            loss.backward()
            optimizer.step()
    return max(losses) > EXPLODES * losses[0] > 0


SOUND = """
def make_setup(data, seed, epochs):
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(seed)
    inputs, targets = data["train"]
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(inputs[0].numel(), 48), nn.ReLU(),
        nn.Linear(48, data["num_classes"]),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    own = torch.Generator().manual_seed(seed)
    train_set, val_set = (TensorDataset(*data[side]) for side in ("train", "val"))
    train_loader = DataLoader(train_set, 32, shuffle=True, generator=own)
    val_loader = DataLoader(val_set, 64)
    loss_fn = nn.CrossEntropyLoss()
    return dict(
        model=model, loss_fn=loss_fn, optimizer=optimizer,
        train_loader=train_loader, val_loader=val_loader,
    )
"""
sound = partial(variant, SOUND, __file__)
plain = sound()
LAST = 'nn.Linear(48, data["num_classes"])'
LOADER = "DataLoader(train_set, 32, shuffle=True, generator=own)"
LOSS = "nn.CrossEntropyLoss()"
RATE = "lr=0.01"


def reference(data, seed, epochs) -> dict[str, Any]:
    """The set-up that the wrong ones spoil."""
    return plain(data, seed, epochs)


class Convolutional(nn.Module):
    """A convolution with BatchNorm, pooled to a fixed size, so that any image will do."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.AdaptiveAvgPool2d(4)
        )
        self.head = nn.Linear(12 * 16, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.features(inputs).flatten(1))


def with_a_convolution(data, seed, epochs):
    with undisturbed():
        torch.manual_seed(seed)
        model = Convolutional(data["num_classes"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    own = torch.Generator().manual_seed(seed + 1)
    train_loader = DataLoader(
        TensorDataset(*data["train"]), 24, shuffle=True, generator=own, drop_last=True
    )
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, 0.1, total_steps=epochs * len(train_loader)
    )
    return {"model": model, "loss_fn": nn.CrossEntropyLoss(), "optimizer": optimizer,
            "train_loader": train_loader, "val_loader": DataLoader(TensorDataset(*data["val"]), 16),
            "scheduler": scheduler, "schedule_per": "update"}  # fmt: skip


def with_dropout_and_smoothing(data, seed, epochs):
    torch.manual_seed(seed)
    inputs, _ = data["train"]
    layers = [nn.Linear(inputs[0].numel(), 64), nn.LayerNorm(64), nn.GELU(), nn.Dropout(0.1)]
    model = nn.Sequential(nn.Flatten(), *layers, nn.Linear(64, int(data["num_classes"])))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    rows = {side: list(zip(*data[side], strict=True)) for side in ("train", "val")}
    own = torch.Generator().manual_seed(seed)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)
    return {"model": model, "loss_fn": nn.CrossEntropyLoss(label_smoothing=0.05),
            "optimizer": optimizer, "scheduler": scheduler, "schedule_per": "epoch",
            "train_loader": DataLoader(rows["train"], batch_size=16, shuffle=True, generator=own),
            "val_loader": DataLoader(rows["val"], batch_size=50)}  # fmt: skip


softmax_last = sound((LAST, LAST + ", nn.Softmax(dim=1)"))
head_only = sound(("AdamW(model.parameters()", "AdamW(model[3].parameters()"))
tiny_rate = sound((RATE, "lr=1e-6"))
huge_rate = sound((RATE, "lr=3.0"))
ten_outputs = sound((LAST, "nn.Linear(48, 10)"))
seen_outputs = sound((LAST, "nn.Linear(48, int(targets.max()))"))
eight_by_eight = sound(("inputs[0].numel()", "64"))
not_shuffled = sound(("shuffle=True, ", ""))
no_generator = sound((", generator=own", ""))
never_seeded = sound(("    torch.manual_seed(seed)\n", ""))
seed_ignored = sound(
    ("torch.manual_seed(seed)\n    inputs", "torch.manual_seed(0)\n    inputs"),
    ("Generator().manual_seed(seed)", "Generator().manual_seed(0)"),
)
order_ignores_seed = sound(("Generator().manual_seed(seed)", "Generator().manual_seed(0)"))
trains_on_validation = sound(
    ("train_loader = DataLoader(train_set", "train_loader = DataLoader(val_set")
)
validates_on_training = sound(("DataLoader(val_set, 64)", "DataLoader(train_set, 64)"))
likelihood_of_logits = sound((LOSS, "nn.NLLLoss()"))
END = "        train_loader=train_loader, val_loader=val_loader,\n"
cosine_of_epochs = sound((END, END + """
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs),
        schedule_per="update",
"""))  # fmt: skip
one_cycle_of_epochs = sound((END, END + """
        scheduler=torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, total_steps=epochs),
        schedule_per="update",
"""))  # fmt: skip
cosine_of_updates = sound((END, END + """
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(
            optimizer, T_max=epochs * len(train_loader)),
        schedule_per="epoch",
"""))  # fmt: skip
lambda_of_epochs = sound((END, END + """
        scheduler=torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: max(0.0, 1 - step / epochs)),
        schedule_per="update",
"""))  # fmt: skip
fixed_length = sound((END, END + """
        scheduler=torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100),
        schedule_per="epoch",
"""))  # fmt: skip
frozen_layer = sound(
    ("    optimizer =", "    model[1].weight.requires_grad_(False)\n    optimizer =")
)
doubled = sound(("TensorDataset(*data[side])", "TensorDataset(data[side][0] * 80, data[side][1])"))

_kept: dict[str, Any] = {}


def kept_from_before(data, seed, epochs):
    """The first set-up ever, as from a global variable."""
    return _kept.setdefault(f"{data['train'][0].shape}", plain(data, seed, epochs))


def only_some(rows: str) -> Callable[..., Any]:
    """A set-up whose training leaves images out."""
    return sound(("    train_loader =", f"    train_set = {rows}\n    train_loader ="))


tenth_left_out = only_some(
    "TensorDataset(*(part[len(targets) // 10 :] for part in train_set.tensors))"
)
weighted_draws = sound(("shuffle=True, generator=own", "generator=own, sampler=torch.utils.data."
                        "WeightedRandomSampler(1 / torch.bincount(targets)[targets], len(targets), "
                        "generator=own)"))  # fmt: skip
incomplete_validation = sound(("DataLoader(val_set, 64)", "DataLoader(val_set, 8, drop_last=True)"))
normalised_again = sound(("TensorDataset(*data[side])",
                          "TensorDataset((data[side][0] - data['mean']) / data['std'], "
                          "data[side][1])"))  # fmt: skip
clipped = sound(("TensorDataset(*data[side])",
                 "TensorDataset(data[side][0].clamp(-1, 1), data[side][1])"))  # fmt: skip
only_training_normalised = only_some(
    "TensorDataset((inputs - data['mean']) / data['std'], targets)"
)


def collated(change: str) -> Callable[..., Any]:
    """A set-up that changes the training images of each batch, by the global generator."""
    return sound(
        (
            LOADER,
            LOADER[:-1] + ", collate_fn=lambda pairs: (torch.stack("
            f"[{change} for x, _ in pairs]), torch.stack([y for _, y in pairs])))",
        )
    )


noisy = collated("x + 0.1 * torch.randn_like(x)")
flipped = collated("x.flip(-1) if torch.rand(()) < 0.5 else x")
relu_last = sound((LAST, LAST + ", nn.ReLU()"))
zero_weights = sound(("    optimizer =", "    for p in model.parameters():\n"
                      "        nn.init.zeros_(p)\n    optimizer ="))  # fmt: skip
exploding = sound((RATE, "lr=1.0"))
one_cycle_rounded_down = sound((END, END + """
        scheduler=torch.optim.lr_scheduler.OneCycleLR(
            optimizer, 0.02, total_steps=epochs * (len(targets) // 32)),
        schedule_per="update",
"""))  # fmt: skip
half_of_training = sound(('*data[side]) for side in ("train", "val"))',
                          '*(part[:: 1 + (side == "train")] for part in data[side])) '
                          'for side in ("train", "val"))'))  # fmt: skip


WRONG = (
    ("softmax-last", softmax_last,
     "The model's outputs are already probabilities. CrossEntropyLoss applies the softmax itself: "
     "end the model with logits."),
    ("head-only", head_only,
     "Some parameters of the model are not in the optimizer, so they would keep their initial "
     "values. Pass model.parameters() to the optimizer."),
    ("tiny-rate", tiny_rate,
     "The learning rate is below 0.00001, and one batch is not memorised with it. Take one about a "
     "thousand times larger; lr_find suggests which."),
    ("huge-rate", huge_rate,
     "A loss of the first updates is more than a hundred times the first one, so the updates are "
     "far too large. Take a smaller learning rate; lr_find suggests which."),
    ("huge-rate", exploding, ""),
    ("relu-last", relu_last,
     "No output of the model is negative, as after a ReLU. Logits may be any numbers: leave out "
     "what comes after the last linear layer."),
    ("zero-weights", zero_weights,
     "All of the model's parameters begin at 0, so the units of a layer stay alike. Leave the "
     "layers as torch initialises them."),
    ("ten-outputs", ten_outputs,
     "The model gives ten numbers per image, whatever the data. It should give num_classes."),
    ("one-output-short", seen_outputs, ""),
    ("eight-by-eight", eight_by_eight, ""),
    ("not-shuffled", not_shuffled,
     "A training epoch has the images in the order of the data. Use shuffle=True."),
    ("no-generator", no_generator,
     "Two set-ups with the same seed have different orders of the batches. Give the training "
     "loader its own generator=torch.Generator().manual_seed(seed), a new one at each call."),
    ("never-seeded", never_seeded,
     "Two set-ups with the same seed start with different weights. Call torch.manual_seed(seed) "
     "before you build the model."),
    ("seed-ignored", seed_ignored,
     "Another seed gave the same weights and the same order. Use the seed that is passed in."),
    ("order-ignores-seed", order_ignores_seed, ""),
    ("trains-on-validation", trains_on_validation,
     "The training batches hold none of the training images, only validation images. Make "
     "train_loader of data['train']."),
    ("validates-on-training", validates_on_training,
     "The validation batches hold none of the validation images, only training images. Make "
     "val_loader of data['val']."),
    ("some-left-out", tenth_left_out,
     "Some training images are in no batch of an epoch. Each epoch should have all of them: keep "
     "none back, and draw without replacement, with shuffle=True."),
    ("some-left-out", half_of_training, ""),
    ("some-left-out", weighted_draws, ""),
    ("validation-left-out", incomplete_validation,
     "Some validation images are in no batch. Each validation should have all of them, also those "
     "of an incomplete last batch."),
    ("images-changed", normalised_again,
     "The batches hold images that are not in data, so something changes them. They are already "
     "normalised: pass them on as they are, without noise or flips."),
    ("images-changed", only_training_normalised, ""),
    ("images-changed", noisy, ""),
    ("images-changed", flipped, ""),
    ("images-changed", clipped, ""),
    ("images-changed", doubled, ""),
    ("likelihood-of-logits", likelihood_of_logits,
     "NLLLoss expects log-probabilities, and the model's outputs are none. Use CrossEntropyLoss, "
     "which takes logits."),
    ("frozen-layer", frozen_layer,
     "Some parameters of the model do not require a gradient, so they would keep their initial "
     "values. All of them should train: leave requires_grad as it is."),
    ("length-in-epochs", cosine_of_epochs,
     "The length of the schedule is the number of epochs, but it steps per update, so it ends long "
     "before the run. Make its length epochs * len(train_loader), or schedule_per 'epoch'."),
    ("length-in-epochs", one_cycle_of_epochs, ""),
    ("length-in-updates", cosine_of_updates,
     "The length of the schedule is the number of updates, but it steps per epoch, so it has "
     "hardly begun when the run ends. Make its length epochs, or schedule_per 'update'."),
    ("runs-out", lambda_of_epochs,
     "The schedule's learning rate is almost 0 before half of the run is over. In which unit does "
     "its formula count, and in which does it step?"),
    ("length-rounded-down", one_cycle_rounded_down,
     "The schedule has one step per epoch less than there are updates: an incomplete last batch is "
     "an update, too. Make its length epochs * len(train_loader)."),
    ("fixed-length", fixed_length, ""),
    ("kept-from-before", kept_from_before,
     "Two calls gave the same model. Build everything inside make_setup, at each call."),
)  # fmt: skip


SURE = ("no-generator", "never-seeded", "seed-ignored", "kept-from-before", "softmax-last",
        "huge-rate", "relu-last", "zero-weights", "tiny-rate", "likelihood-of-logits",
        "some-left-out", "length-rounded-down")  # fmt: skip
"""One case is enough: orders, weights and findings are not alike by accident."""

EXERCISE = Exercise(
    id="05.setup",
    title="a sound set-up",
    source='Lecture 1, "The debug ladder"; engineering module, outcomes',
    ledger=("X09", "X11", "T21", "C25"),
    minutes=25,
    difficulty=2,
    read=("course.debug.climb", "course.debug.diagnose", "course.lr_finder.lr_find"),
    hints=(
        "Start simple: Flatten, two Linear layers, AdamW. climb(setup, top=4) and diagnose(setup) "
        "tell you what is wrong with it.",
        "Take the sizes from data: the number of pixels from data['train'][0][0].numel(), the "
        "number of outputs from data['num_classes'].",
        "Call torch.manual_seed(seed) before you build the model; use "
        "DataLoader(TensorDataset(*data['train']), 64, shuffle=True, "
        "generator=torch.Generator().manual_seed(seed)).",
    ),
    signature="make_setup(data, seed, epochs)",
    parts=(
        Part("contract", "batches and outputs, for any size of image", points=1, cases=3),
        Part("seed", "the same seed gives the same weights and order, whatever else is "
                     "drawn", points=1, cases=1),
        Part("ladder", "rungs 1 to 4 of the debug ladder", points=1, cases=1),
        Part("doctor", "the doctor's findings", points=1, cases=1, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "untrained": "the list of parameters that would not train",
        "breaches": "what breaks the contract of a batch (check_batch shows how)",
        "outputs": "the number of the model's outputs",
        "train_images": "what the training batches hold of data['train']",
        "val_images": "what the validation batches hold of data['val']",
        "shuffled": "whether a training epoch has a different order from the data",
        "schedule": "the schedule",
        "same_weights": "whether two set-ups with one seed have the same weights",
        "same_order": "whether they have the same order of the images",
        "other_weights": "whether another seed gives different weights",
        "other_order": "whether another seed gives a different order",
        "another_order": "whether two epochs have different orders",
        "fresh": "whether each call builds a new model",
        "rungs": "the ladder (climb(setup, top=4) shows why)",
        "findings": "the doctor's list of findings (diagnose(setup) explains each)",
    },
    wrong=tuple(
        Wrong(name, function, message, sure=name in SURE) for name, function, message in WRONG
    ),
    right=(plain, with_a_convolution, with_dropout_and_smoothing),
)  # fmt: skip
