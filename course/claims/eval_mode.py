"""eval(), train(), no_grad and inference_mode: four switches that do different things."""

from __future__ import annotations

import copy
import statistics

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.claims.lab import (
    accuracy,
    digits,
    error_of,
    fit,
    flat,
    full_loss,
    interleaved,
    mlp,
    saved_bytes,
    spirals,
)
from course.claims.registry import claim
from course.claims.settings import CONV, DIGITS, SPIRAL, conv
from course.claims.trial import Measured, weigh, weigh_settings


def _changes(layer: nn.Module, *inputs: Tensor) -> bool:
    """Whether the layer's output differs between train and eval mode, under the same seed."""

    def output(training: bool) -> Tensor:
        torch.manual_seed(0)
        result = copy.deepcopy(layer).train(training)(*inputs)
        return result[0] if isinstance(result, tuple) else result

    return not torch.equal(output(True), output(False))


@claim(
    "F23",
    title="eval() changes only dropout and BatchNorm",
    expected="does not hold",
    says="eval() changes dropout and BatchNorm only; attention and all other layers behave the "
    "same.",
)
def what_eval_changes() -> Measured:
    x, sequence, image = torch.randn(8, 4), torch.randn(2, 5, 4), torch.randn(2, 3, 6, 6)
    others = {
        "RReLU": _changes(nn.RReLU(), x),
        "LSTM with dropout between layers": _changes(nn.LSTM(4, 4, 2, dropout=0.5), sequence),
        "attention with dropout": _changes(
            nn.MultiheadAttention(4, 2, dropout=0.5), sequence, sequence, sequence
        ),
        "TransformerEncoderLayer, default": _changes(nn.TransformerEncoderLayer(4, 2, 8), sequence),
        "InstanceNorm with tracked statistics": _changes(
            nn.InstanceNorm2d(3, track_running_stats=True), image
        ),
        "AlphaDropout": _changes(nn.AlphaDropout(0.5), x),
    }
    same = {
        "Linear": _changes(nn.Linear(4, 4), x),
        "Conv2d": _changes(nn.Conv2d(3, 4, 3), image),
        "ReLU": _changes(nn.ReLU(), x),
        "GELU": _changes(nn.GELU(), x),
        "LayerNorm": _changes(nn.LayerNorm(4), x),
        "GroupNorm": _changes(nn.GroupNorm(3, 3), image),
    }
    evidence = {
        "other kinds of layer that change": sum(others.values()),
        "change": [name for name, changes in others.items() if changes],
        "stay the same": [name for name, changes in same.items() if not changes],
    }
    return weigh("other kinds of layer that change", evidence, stated=not any(others.values()))


@claim(
    "F134",
    title="LayerNorm, GELU, ReLU and others do not depend on the mode",
    expected="holds",
    says="LayerNorm, GELU, ReLU and most other layers give the same output in train and eval mode.",
)
def layer_norm_and_mode() -> Measured:
    x, image = torch.randn(8, 4), torch.randn(2, 4, 6, 6)
    named = {
        "LayerNorm": _changes(nn.LayerNorm(4), x),
        "GELU": _changes(nn.GELU(), x),
        "ReLU": _changes(nn.ReLU(), x),
        "GroupNorm": _changes(nn.GroupNorm(2, 4), image),
        "RMSNorm": _changes(nn.RMSNorm(4), x),
        "Conv2d": _changes(nn.Conv2d(4, 4, 3), image),
        "LSTM": _changes(nn.LSTM(4, 4), x),
    }
    batch_norm = _changes(nn.BatchNorm1d(4), x)
    evidence = {
        "layers that change with the mode, of 7": sum(named.values()),
        "changes": named,
        "BatchNorm1d, for comparison": batch_norm,
    }
    stated = not any(named.values()) and batch_norm
    return weigh("layers that change with the mode, of 7", evidence, stated=stated)


@claim(
    "F25",
    title="no_grad does not change how layers behave",
    expected="holds",
    says="no_grad switches off only the graph: dropout and BatchNorm still behave as in training.",
)
def no_grad_and_layers() -> Measured:
    norm, dropout = nn.BatchNorm1d(4), nn.Dropout(0.5)
    with torch.no_grad():
        output = norm(torch.randn(32, 4) + 5)
        dropped = (dropout(torch.ones(1000)) == 0).float().mean().item()
    evidence = {
        "running mean moved under no_grad by": norm.running_mean.abs().max(),
        "share dropped under no_grad": dropped,
        "output requires grad": output.requires_grad,
    }
    moved = norm.running_mean.abs().max().item() > 0.1
    stated = moved and 0.3 < dropped < 0.7 and not output.requires_grad
    return weigh("running mean moved under no_grad by", evidence, stated=stated)


@claim(
    "F52",
    title="inference_mode is about 10 % faster than no_grad",
    expected="holds if",
    says="inference_mode is about 10 % faster than no_grad.",
    condition="if the work consists of many small operators; with large operators the time is the "
    "same",
    gpu=True,
)
def inference_mode_speed(device: torch.device) -> Measured:
    x = torch.randn(2, 4, device=device)
    model, wide = mlp(512, 512, 512).to(device), torch.randn(512, 512, device=device)

    def small(context) -> None:
        """Views and tiny operators: mostly torch's overhead around the arithmetic."""
        with context():
            y = x
            for _ in range(200):
                y = y.t().add(1.0)

    def large(context) -> None:
        with context():
            model(wide)

    inference, no_grad = torch.inference_mode, torch.no_grad
    times = {
        "small operators": interleaved(
            lambda: small(inference), lambda: small(no_grad), rounds=41, device=device
        ),
        "large operators": interleaved(
            lambda: large(inference), lambda: large(no_grad), rounds=15, device=device
        ),
    }
    evidence = {
        "time, inference_mode / no_grad, small operators": times["small operators"].median,
        "quartiles": {name: ratio.as_list() for name, ratio in times.items()},
    }
    return weigh_settings(
        "time, inference_mode / no_grad, small operators",
        evidence,
        {name: ratio.high < 0.95 for name, ratio in times.items()},
        criterion="the upper quartile of its time is below 0.95 of no_grad's",
        note="About 10 % lies between the two cases; the share of small operators decides.",
    )


@claim(
    "F53",
    title="inference_mode forbids changing views and using the tensors in backward()",
    expected="holds if",
    says="Inference tensors forbid in-place changes of views, and cannot be used in backward().",
    condition="if they are changed outside the block, or if backward() must save them; inside, "
    "views may be changed, and a sum saves nothing",
)
def inference_mode_forbids() -> Measured:
    weight = torch.ones(3, requires_grad=True)

    def inside() -> None:
        with torch.inference_mode():
            torch.ones(3)[1:].add_(1)

    with torch.inference_mode():
        tensor = torch.ones(3)
    errors = {
        "view changed in place, inside": error_of(inside),
        "changed in place, outside": error_of(lambda: tensor[1:].add_(1)),
        "w * tensor": error_of(lambda: (weight * tensor).sum().backward()),
        "w + tensor": error_of(lambda: (weight + tensor).sum().backward()),
        "w * tensor.clone()": error_of(lambda: (weight * tensor.clone()).sum().backward()),
    }
    evidence = {
        "uses that raise, of 5": sum(map(bool, errors.values())),
        "raises": {name: error or "nothing" for name, error in errors.items()},
    }
    return weigh(
        "uses that raise, of 5",
        evidence,
        stated=bool(errors["view changed in place, inside"] and errors["w + tensor"]),
        conditioned=bool(errors["changed in place, outside"] and errors["w * tensor"]),
        note="The chapter's statement fails inside the block, the essay's if nothing is saved.",
    )


@claim(
    "F79",
    title="Validation in train mode is noisy and lower",
    expected="holds",
    says="Validation with dropout on gives a lower accuracy, and a different one every time.",
)
def validation_in_train_mode(seed: int) -> Measured:
    found, held = {}, {}
    for one in (
        SPIRAL.but(optimizer="Adam", rate=0.01, model="MLP with dropout 0.3", make_model=_dropped),
        CONV.but(model="conv net with dropout 0.5", make_model=_dropped_conv),
    ):
        _, _, inputs, targets = one.make_data(seed)
        model = one.train(100 * seed).model
        noisy, steady = ([], [])
        for passes, training in ((noisy, True), (steady, False)):
            model.train(training)
            with torch.no_grad():
                for _ in range(50):
                    passes.append((model(inputs).argmax(1) == targets).float().mean().item())
        found[one.data] = {
            "spread in train mode": statistics.stdev(noisy),
            "spread in eval mode": statistics.pstdev(steady),
            "mean accuracy in both": [statistics.fmean(noisy), statistics.fmean(steady)],
        }
        held[one] = (
            statistics.stdev(noisy) > 0
            and statistics.pstdev(steady) < 1e-9
            and statistics.fmean(noisy) < statistics.fmean(steady)
        )
    evidence = {
        "spirals: spread of 50 passes in train mode": found["spirals"]["spread in train mode"],
        "by data": found,
    }
    return weigh_settings(
        "spirals: spread of 50 passes in train mode",
        evidence,
        held,
        criterion="50 passes scatter in train mode and not in eval mode, and are lower on average",
    )


def _dropped(seed: int) -> nn.Module:
    return mlp(2, 128, 128, 3, dropout=0.3, seed=seed)


def _dropped_conv(seed: int) -> nn.Module:
    return conv(dropout=0.5, seed=seed)


@claim(
    "F154",
    title="Validation without no_grad gives the same numbers",
    expected="holds",
    says="Forgetting no_grad in validation wastes memory but does not affect the result.",
)
def without_no_grad(seed: int) -> Measured:
    apart, kept, held = {}, {}, {}
    for one in (SPIRAL.but(steps=20), CONV.but(steps=20)):
        _, _, inputs, _ = one.make_data(seed)
        model = one.train(100 * seed).model.eval()
        with torch.no_grad():
            free = model(inputs)
        tracked = model(inputs)
        apart[one.data] = (tracked - free).abs().max().item()
        kept[one.data] = saved_bytes(lambda m=model, x=inputs: m(x), without=model.parameters())
        held[one] = apart[one.data] == 0 and kept[one.data] > 0
    evidence = {
        "outputs differ by": max(apart.values()),
        "bytes kept for a backward pass that never comes": kept,
    }
    return weigh_settings(
        "outputs differ by",
        evidence,
        held,
        criterion="the outputs are equal in every bit, and memory is held for nothing",
    )


@claim(
    "F144",
    title="Training in eval mode lets BatchNorm use stale statistics",
    expected="holds",
    says="A model trained in eval mode silently normalises by old running statistics.",
)
def stale_batch_norm(seed: int) -> Measured:
    found, held = {}, {}
    for one in (
        SPIRAL.but(model="MLP with BatchNorm", make_model=_normed(2, 3), rate=0.1),
        DIGITS.but(model="MLP with BatchNorm", make_model=_normed(64, 10)),
    ):
        x, y, *rest = one.make_data(seed)
        data = (x * 3 + 2, y, *rest)  # inputs off the fresh layer's mean 0 and variance 1
        off = {}
        for training in (True, False):
            model = one.make_model(100 * seed).train(training)
            one.train(100 * seed, model=model, data=data)
            with torch.no_grad():
                hidden = model[0](data[0])
            norm = model[1]
            off[training] = {
                "running mean off by": (norm.running_mean - hidden.mean(0)).abs().max().item(),
                "batches counted": int(norm.num_batches_tracked),
            }
        found[one.data] = {"train mode": off[True], "eval mode": off[False]}
        stale = off[False]["running mean off by"] > 3 * off[True]["running mean off by"]
        held[one] = off[False]["batches counted"] == 0 and stale
    evidence = {
        "spirals: error of the running mean, in eval mode": found["spirals"]["eval mode"][
            "running mean off by"
        ],
        "by data": found,
    }
    return weigh_settings(
        "spirals: error of the running mean, in eval mode",
        evidence,
        held,
        criterion="no batch is counted, and the running mean ends 3 times as far off as in train "
        "mode",
    )


def _normed(width: int, classes: int):
    def make(seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(width, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, classes)
        )

    return make


@claim(
    "F80",
    title="Forgetting model.train() lowers training loss and worsens validation",
    expected="holds if",
    says="Continuing to train in eval mode lowers the training loss and worsens validation.",
    condition="if there are wrong labels to memorise; on clean data both improve",
)
def training_in_eval_mode(seed: int) -> Measured:
    def trained(training: bool, data: tuple[Tensor, ...], sizes: tuple[int, ...], lr: float):
        """[training loss, validation accuracy, validation loss] after 400 steps."""
        inputs, targets, val_inputs, val_targets = data
        model = mlp(*sizes, dropout=0.5, seed=seed).train(training)
        fit(model, torch.optim.Adam(model.parameters(), lr), inputs, targets, steps=400)
        model.eval()
        right = accuracy(model, val_inputs, val_targets)
        val_loss = full_loss(model, val_inputs, val_targets)
        return [full_loss(model, inputs, targets), right, val_loss]

    inputs, targets, *val = digits(seed)
    inputs, targets = inputs[:400], targets[:400]
    other = (targets + torch.randint(1, 10, targets.shape)) % 10
    noisy = inputs, torch.where(torch.rand(400) < 0.2, other, targets), *val
    right, forgotten = (trained(mode, noisy, (64, 128, 10), 3e-3) for mode in (True, False))
    clean = [trained(mode, spirals(seed), (2, 128, 128, 3), 1e-2) for mode in (True, False)]
    evidence = {
        "validation accuracy lost, 400 digits with 20 % wrong labels": right[1] - forgotten[1],
        "training loss, with train() and without": [right[0], forgotten[0]],
        "validation loss, train mode and forgotten": [right[2], forgotten[2]],
        "clean spiral: validation accuracy, with train() and without": [clean[0][1], clean[1][1]],
        "clean spiral: validation loss, with train() and without": [clean[0][2], clean[1][2]],
    }

    def as_claimed(right: list[float], forgotten: list[float]) -> bool:
        """Lower training loss, but worse validation accuracy and validation loss."""
        worse = forgotten[1] < right[1] - 0.01 and forgotten[2] > right[2]
        return forgotten[0] < right[0] and worse

    held = {
        "MLP 64-128-10, dropout 0.5, on 400 digits with 20 % wrong labels, Adam 0.003": (
            as_claimed(right, forgotten)
        ),
        "MLP 2-128-128-3, dropout 0.5, on clean spirals, Adam 0.01": as_claimed(*clean),
    }
    return weigh_settings(
        "validation accuracy lost, 400 digits with 20 % wrong labels",
        evidence,
        held,
        criterion="without train() the training loss ends lower, while validation loses a point of "
        "accuracy and ends at a higher loss",
    )


@claim(
    "F127",
    title="evaluate() must end in train mode",
    expected="holds if",
    says="evaluate() must end with model.train().",
    condition="if every module was in train mode before; otherwise it also switches modules that "
    "were deliberately in eval mode",
)
def ends_in_train_mode() -> Measured:
    def modes_kept(*, frozen: bool, training: bool, ends_in_train: bool = True) -> int:
        """How many modules still have their old mode after an evaluate()."""
        model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5)).train(training)
        if frozen:
            model[1].eval()
        before = [module.training for module in model.modules()]
        model.eval()
        F.cross_entropy(model(torch.randn(4, 2)), torch.zeros(4, dtype=torch.long))
        if ends_in_train:
            model.train()
        after = [module.training for module in model.modules()]
        return sum(a == b for a, b in zip(before, after, strict=True))

    kept = {
        "all in train mode": modes_kept(frozen=False, training=True),
        "BatchNorm frozen": modes_kept(frozen=True, training=True),
        "all in eval mode": modes_kept(frozen=False, training=False),
    }
    without = modes_kept(frozen=False, training=True, ends_in_train=False)
    evidence = {"modes kept if BatchNorm is frozen, of 4": kept["BatchNorm frozen"], "kept": kept}
    evidence["modes kept without the call, all in train mode"] = without
    return weigh(
        "modes kept if BatchNorm is frozen, of 4",
        evidence,
        stated=without == 0 and all(count == 4 for count in kept.values()),
        conditioned=without == 0 and kept["all in train mode"] == 4,
    )


@claim(
    "F24",
    title="eval() neither stops gradients nor freezes",
    expected="holds",
    says="A model in eval mode still builds graphs, and its weights can still be trained.",
)
def eval_keeps_gradients() -> Measured:
    model = mlp(4, 16, 3, dropout=0.5).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = flat(model)
    inputs = torch.randn(8, 4, requires_grad=True)
    error = error_of(lambda: model(inputs).square().mean().backward())
    optimizer.step()
    evidence = {
        "weights moved by": (flat(model) - before).norm(),
        "gradient norm of the input": inputs.grad.norm(),
        "backward raises": error or "nothing",
    }
    stated = not error and (flat(model) != before).any() and inputs.grad.norm() > 0
    return weigh("weights moved by", evidence, stated=bool(stated))
