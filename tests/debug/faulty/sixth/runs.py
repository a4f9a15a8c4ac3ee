"""Faults around the steps: what is measured, kept as the best, saved and brought back."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    chain,
    loaders,
    looped,
    mean_loss,
    mlp,
    numbers,
    of_pairs,
    setup,
    split,
    stepper,
)
from tests.debug.faulty.sixth.steps import Writer


@pair("checkpoint-by-reference")
def best_weights_by_reference(bug):
    """The best weights are kept by reference: what is brought back are the last ones."""
    x, y = blobs(96, spread=3.0)
    loader, held = loaders(x, y)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.5, momentum=0.9)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))
    evaluate = accuracy(model, held)
    best = {"accuracy": -1.0, "weights": None}

    def keep():
        now = evaluate()["accuracy"]
        if now > best["accuracy"]:
            weights = model.state_dict()
            best.update(accuracy=now, weights=weights if bug else copy.deepcopy(weights))

    run = looped(loader, step, keep)

    def train(steps):
        best.update(accuracy=-1.0)
        losses = run(steps)
        if best["accuracy"] >= 0:
            model.load_state_dict(best["weights"])
        return losses

    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=loss_fn,
        num_classes=4,
        train_step=step,
        train=train,
        evaluate=evaluate,
        extra={"best": best},
    )


@pair("metric-wrong")
def threshold_of_logits(bug):
    """Logits are compared with 0.5: a probability of 62 % still counts as no."""
    x, y = blobs(400, k=2, spread=9.0)
    loader, held = loaders(x, y.float()[:, None], val=200)
    model = nn.Linear(8, 1)

    def evaluate():
        hits = total = 0
        with torch.no_grad():
            for x, y in held:
                hits += ((model(x) > (0.5 if bug else 0.0)) == y.bool()).sum().item()
                total += len(y)
        return {"accuracy": hits / total}

    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held,
        loss_fn=nn.BCEWithLogitsLoss(),
        evaluate=evaluate,
    )


@pair("metric-wrong")
def perplexity_over_all_places(bug):
    """The sum over real tokens is divided by all places, padding too: perplexity too low."""
    x = chain(128)
    loader, held = loaders(x[:, :-1], x[:, 1:])
    model = Writer()

    def evaluate():
        total = count = 0
        with torch.no_grad():
            for x, y in held:
                total += F.cross_entropy(model(x), y, ignore_index=0, reduction="sum")
                count += y.numel() if bug else (y != 0).sum()
        return {"perplexity": torch.exp(total / count).item()}

    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held,
        loss_fn=lambda scores, y: F.cross_entropy(scores, y, ignore_index=0),
        evaluate=evaluate,
    )


@pair("metric-wrong")
def predictions_against_unshuffled_labels(bug):
    """Predictions from a shuffled loader are compared with the labels in file order."""
    x, y = blobs(160)
    train, val = split(x, y)
    loader, held = DataLoader(train, 16, shuffle=True), DataLoader(val, 16, shuffle=True)
    model = mlp()

    def evaluate():
        said, labels = [], []
        with torch.no_grad():
            for x, y in held:
                said.append(model(x).argmax(1))
                labels.append(y)
        labels = val.tensors[1] if bug else torch.cat(labels)
        return {"accuracy": (torch.cat(said) == labels).float().mean().item()}

    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        evaluate=evaluate,
    )


def simple(model, opt, loader, held, step=None):
    loss_fn = nn.MSELoss()
    step = step or stepper(model, opt, of_pairs(loss_fn))
    return setup(
        model,
        opt,
        loader,
        held,
        step=step,
        loss_fn=loss_fn,
        evaluate=mean_loss(model, held, of_pairs(loss_fn)),
    )


@pair("checkpoint-incomplete")
def prefix_and_not_strict(bug):
    """Saved with a prefix and loaded with strict=False: no weight is brought back."""
    loader, held = loaders(*numbers())
    model = mlp(8, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def save():
        weights = {"module." + k: v.clone() for k, v in model.state_dict().items()}
        return {"model": weights, "optimizer": copy.deepcopy(opt.state_dict())}

    def load(state):
        weights = state["model"]
        if not bug:
            weights = {k.removeprefix("module."): v for k, v in weights.items()}
        model.load_state_dict(weights, strict=False)
        opt.load_state_dict(state["optimizer"])

    return simple(model, opt, loader, held) | {"save": save, "load": load}


class Scaled(nn.Module):
    """Scales its inputs by mean and variance counted while it trains."""

    def __init__(self, plain):
        super().__init__()
        self.net = mlp(8, 1)
        for name, value in (("mean", torch.zeros(8)), ("var", torch.ones(8))):
            setattr(self, name, value) if plain else self.register_buffer(name, value)

    def forward(self, x):
        if self.training:
            self.mean = 0.95 * self.mean + 0.05 * x.mean(0)
            self.var = 0.95 * self.var + 0.05 * x.var(0)
        return self.net((x - self.mean) / (self.var + 1e-5).sqrt())


@pair("buffer-not-registered", "checkpoint-incomplete")
def input_statistics_not_saved(bug):
    """The running statistics of the inputs are plain attributes: no state_dict holds them."""
    x, y = numbers()
    loader, held = loaders(5 * x + 10, y)
    model = Scaled(bug)
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def save():
        return copy.deepcopy({"model": model.state_dict(), "optimizer": opt.state_dict()})

    def load(state):
        fresh = Scaled(bug)  # a new process builds the model and loads into it
        model.mean, model.var = fresh.mean, fresh.var
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["optimizer"])

    return simple(model, opt, loader, held) | {"save": save, "load": load}


@pair("checkpoint-incomplete")
def warm_up_again_after_resuming(bug):
    """The step count is not saved: after resuming, the warm-up starts again."""
    loader, held = loaders(*numbers())
    model = mlp(8, 1)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    loss_fn = nn.MSELoss()
    inner = stepper(model, opt, of_pairs(loss_fn))
    progress = {"step": 0}

    def train_step(batch):
        progress["step"] += 1
        opt.param_groups[0]["lr"] = 1e-2 * min(1.0, progress["step"] / 40)
        return inner(batch)

    def save():
        state = {"model": model.state_dict(), "optimizer": opt.state_dict()}
        return copy.deepcopy(state if bug else state | {"progress": progress})

    def load(state):
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["optimizer"])
        progress.update(state.get("progress", {"step": 0}))

    return simple(model, opt, loader, held, train_step) | {"save": save, "load": load}


@pair("checkpoint-incomplete")
def average_left_behind(bug):
    """The averaged weights are not saved: after resuming, the average starts from the raw
    ones."""
    loader, held = loaders(*numbers())
    model = mlp(8, 1)
    opt = torch.optim.SGD(model.parameters(), 0.1)
    average = copy.deepcopy(model).requires_grad_(False)
    loss_fn = nn.MSELoss()
    inner = stepper(model, opt, of_pairs(loss_fn))

    def train_step(batch):
        loss = inner(batch)
        with torch.no_grad():
            for slow, fast in zip(average.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.05)
        return loss

    def save():
        state = {"model": model.state_dict(), "optimizer": opt.state_dict()}
        return copy.deepcopy(state if bug else state | {"average": average.state_dict()})

    def load(state):
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["optimizer"])
        average.load_state_dict(state.get("average", state["model"]))

    evaluate = mean_loss(average, held, of_pairs(loss_fn))
    return simple(model, opt, loader, held, train_step) | {
        "save": save,
        "load": load,
        "evaluate": evaluate,
    }


@pair("checkpoint-incomplete")
def best_score_not_saved(bug):
    """The best score is not saved: after resuming, a worse model replaces the best one."""
    loader, held = loaders(*numbers())
    model = mlp(8, 1)
    opt = torch.optim.SGD(model.parameters(), 0.2)
    parts = simple(model, opt, loader, held)
    now = parts["evaluate"]
    best = {"loss": float("inf"), "weights": copy.deepcopy(model.state_dict())}

    def keep():
        loss = now()["loss"]
        if loss < best["loss"]:
            best.update(loss=loss, weights=copy.deepcopy(model.state_dict()))

    def evaluate():  # of the best weights so far
        last = copy.deepcopy(model.state_dict())
        model.load_state_dict(best["weights"])
        result = now()
        model.load_state_dict(last)
        return result

    def save():
        state = {"model": model.state_dict(), "optimizer": opt.state_dict()}
        state["best"] = {"weights": best["weights"]} if bug else best
        return copy.deepcopy(state)

    def load(state):
        model.load_state_dict(state["model"])
        opt.load_state_dict(state["optimizer"])
        best.update({"loss": float("inf")} | state["best"])

    return parts | {
        "train": looped(loader, parts["train_step"], keep),
        "evaluate": evaluate,
        "save": save,
        "load": load,
    }
