"""Leakage and misleading numbers: what a split, a mean and an accuracy may hide."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.claims.lab import digits, mlp
from course.claims.registry import claim
from course.claims.trial import Measured, weigh, weigh_settings

Learner = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Maps training inputs, their classes and queries to a class for each query."""


def _nearest(inputs: Tensor, targets: Tensor, queries: Tensor) -> Tensor:
    """Targets of the nearest training example of each query."""
    return targets[torch.cdist(queries, inputs).argmin(1)]


def _linear_by_adam(inputs: Tensor, targets: Tensor, queries: Tensor) -> Tensor:
    """Predictions of a linear layer after 60 updates by Adam on all examples."""
    model = mlp(inputs.shape[1], int(targets.max()) + 1, seed=0)
    return _guesses(model, torch.optim.Adam(model.parameters(), lr=0.05), inputs, targets, queries)


def _mlp_by_sgd(inputs: Tensor, targets: Tensor, queries: Tensor) -> Tensor:
    """Predictions of a network with 32 hidden units after 60 updates by SGD with momentum."""
    model = mlp(inputs.shape[1], 32, int(targets.max()) + 1, seed=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return _guesses(model, optimizer, inputs, targets, queries)


def _guesses(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    inputs: Tensor,
    targets: Tensor,
    queries: Tensor,
) -> Tensor:
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    with torch.no_grad():
        return model(queries).argmax(1)


def _random_split(num: int, num_val: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(num)
    return order[num_val:], order[:num_val]


@claim(
    "F99",
    title="Leakage inflates validation",
    expected="holds",
    says="Information that leaks from validation into training makes validation look too good.",
)
def leakage_inflates() -> Measured:
    grouped, series, features = _grouped(), _series(), _features()
    held = {
        "groups of near copies, coin-flip labels, nearest neighbour": grouped[0] > grouped[1] + 0.2,
        "random walks, nearest point in time": series[0] < 0.5 * series[1],
        "noise, the best of 2,000 features, nearest centre": features[0] > features[1] + 0.15,
    }
    evidence = {
        "accuracy gained by splitting groups, where 0.5 is the truth": grouped[0] - grouped[1],
        "groups: random split, split by group": grouped,
        "series: error with a random split, with a split in time": series,
        "accuracy with features chosen by all labels, by training labels": features,
    }
    return weigh_settings(
        "accuracy gained by splitting groups, where 0.5 is the truth",
        evidence,
        held,
        criterion="the leak gains 15 points of accuracy (groups: 20), or halves the error",
    )


def _grouped() -> list[float]:
    """Accuracy on 100 groups of near copies with coin-flip labels: random split, group split."""
    groups = torch.arange(100).repeat_interleave(10)
    labels = torch.randint(0, 2, (100,))[groups]
    inputs = torch.randn(100, 10)[groups] + 0.1 * torch.randn(1000, 10)
    train, val = _random_split(1000, 200)
    train_groups, val_groups = _random_split(100, 50)
    by_group = torch.isin(groups, train_groups), torch.isin(groups, val_groups)
    return [
        (_nearest(inputs[a], labels[a], inputs[b]) == labels[b]).float().mean().item()
        for a, b in ((train, val), by_group)
    ]


def _series() -> list[float]:
    """Error of the nearest point in time on random walks: split at random, split in time."""
    errors = []
    for _ in range(20):
        walk, time = torch.randn(500).cumsum(0), torch.arange(500.0)[:, None]
        splits = _random_split(500, 100), (torch.arange(400), torch.arange(400, 500))
        errors.append([
            (_nearest(time[a], walk[a], time[b]) - walk[b]).square().mean().sqrt().item()
            for a, b in splits
        ])  # fmt: skip
    return [statistics.fmean(column) for column in zip(*errors, strict=True)]


def _features() -> list[float]:
    """Accuracy on pure noise, the 20 best of 2,000 features chosen by all or training labels."""
    results = []
    for _ in range(10):
        inputs, labels = torch.randn(100, 2000), torch.arange(100) % 2
        train, val = _random_split(100, 30)
        results.append([])
        for seen in (torch.arange(100), train):
            centred = inputs[seen] - inputs[seen].mean(0)
            best = (centred * (labels[seen, None] - 0.5)).sum(0).abs().topk(20).indices
            chosen = inputs[:, best]
            centres = torch.stack([chosen[train][labels[train] == c].mean(0) for c in (0, 1)])
            guesses = torch.cdist(chosen[val], centres).argmin(1)
            results[-1].append((guesses == labels[val]).float().mean().item())
    return [statistics.fmean(column) for column in zip(*results, strict=True)]


@claim(
    "F100",
    title="Mean and std over all data explain 95 % instead of 70 %",
    expected="does not hold",
    says="Normalising by the mean and std of all data inflates validation, e.g. from 70 to 95 %.",
)
def normalisation_leak(seed: int) -> Measured:
    learners = {
        "nearest neighbour": _nearest,
        "linear, Adam": _linear_by_adam,
        "MLP, SGD": _mlp_by_sgd,
    }
    scores, held = {}, {}
    for name, data, splits in (
        ("nearest neighbour", "digits", 30),
        ("nearest neighbour", "wine", 30),
        ("linear, Adam", "wine", 4),
        ("MLP, SGD", "digits", 4),
    ):
        inputs, targets = _some_digits(seed) if data == "digits" else _wine()
        leaked, clean = _normalised_by_all_or_part(learners[name], inputs, targets, splits)
        setting = f"{name} on {data}, {splits} random splits"
        scores[setting], held[setting] = [leaked, clean], leaked - clean > 0.1
    evidence = {
        "largest accuracy gain from the leak": max(a - b for a, b in scores.values()),
        "accuracy with statistics of all data, with those of the training part": scores,
    }
    return weigh_settings(
        "largest accuracy gain from the leak",
        evidence,
        held,
        criterion="validation gains more than 10 points of the 25",
        note="Wrong in principle, but without a visible effect: look for another leak, or a shift.",
    )


def _normalised_by_all_or_part(
    learner: Learner, inputs: Tensor, targets: Tensor, splits: int
) -> list[float]:
    """Mean validation accuracy with the mean and std of all data, and of the training part."""
    scores = [[], []]
    for _ in range(splits):
        train, val = _random_split(len(targets), len(targets) // 4)
        for place, seen in enumerate((torch.arange(len(targets)), train)):
            mean, std = inputs[seen].mean(0), inputs[seen].std(0).clamp_min(1e-6)
            x = (inputs - mean) / std
            guesses = learner(x[train], targets[train], x[val])
            scores[place].append((guesses == targets[val]).float().mean().item())
    return [statistics.fmean(column) for column in scores]


def _some_digits(seed: int) -> tuple[Tensor, Tensor]:
    """600 digits, each feature on a different scale, so that normalising matters."""
    inputs, targets, val_inputs, val_targets = digits(seed)
    inputs, targets = torch.cat([inputs, val_inputs])[:600], torch.cat([targets, val_targets])[:600]
    return inputs * torch.exp(torch.randn(64)), targets


def _wine() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_wine

    inputs, targets = load_wine(return_X_y=True)
    return torch.tensor(inputs, dtype=torch.float32), torch.tensor(targets)


@claim(
    "F143",
    title="The same random crop for training and test images leaks its position",
    expected="holds",
    says="Cropping training and test images at the same random place lets the model learn that "
    "place, and validation looks too good.",
)
def shared_crop(seed: int) -> Measured:
    found, held = {}, {}
    for name, by_class, learner in (
        ("one place for all images, nearest neighbour", False, _nearest),
        ("one place per class, nearest neighbour", True, _nearest),
        ("one place for all images, MLP, SGD", False, _mlp_by_sgd),
    ):
        found[name] = scores = _cropped(seed, learner, num_places=10 if by_class else 1)
        held[f"digits on a 16x16 canvas, {name}"] = scores["shared"] > scores["anywhere"] + 0.25
    first = next(iter(found.values()))
    evidence = {
        "one place: accuracy lost in production": first["shared"] - first["anywhere"],
        "accuracy validated at the shared place, anywhere, and with training anywhere as "
        "well": found,
    }
    return weigh_settings(
        "one place: accuracy lost in production",
        evidence,
        held,
        criterion="validation at the shared place is 25 points above validation on images placed "
        "anywhere",
    )


def _cropped(seed: int, learner: Learner, num_places: int) -> dict[str, float]:
    """Accuracy validated at the places of training, anywhere, and when trained anywhere too."""
    inputs, targets, val_inputs, val_targets = digits(seed)
    places = torch.randint(0, 9, (num_places, 2))
    anywhere = torch.randint(0, 9, (len(val_targets), 2))
    train = _placed(inputs, places[targets % num_places])
    shared = _placed(val_inputs, places[val_targets % num_places])
    free = _placed(val_inputs, anywhere)
    everywhere = _placed(inputs, torch.randint(0, 9, (len(targets), 2)))
    queries = learner(train, targets, torch.cat([shared, free]))
    honest = learner(everywhere, targets, free)
    guesses = {"shared": queries[: len(shared)], "anywhere": queries[len(shared) :]}
    guesses["trained anywhere"] = honest
    return {name: (g == val_targets).float().mean().item() for name, g in guesses.items()}


def _placed(images: Tensor, places: Tensor) -> Tensor:
    """Each 8x8 image at its place on an empty 16x16 canvas, flattened."""
    canvas = torch.full((len(images), 16, 16), images.min().item())
    for image, (top, left), target in zip(images, places.tolist(), canvas, strict=True):
        target[top : top + 8, left : left + 8] = image.view(8, 8)
    return canvas.flatten(1)


@claim(
    "F101",
    title="Accuracy hides class imbalance",
    expected="holds",
    says="On imbalanced classes a useless model can have a high accuracy.",
)
def accuracy_and_imbalance() -> Measured:
    targets = torch.tensor([0] * 900 + [1] * 100)
    guesses = torch.zeros_like(targets)
    right = (guesses == targets).double().mean().item()
    true_positive = ((guesses == 1) & (targets == 1)).sum().item()
    f1 = 2 * true_positive / ((guesses == 1).sum() + (targets == 1).sum()).item()
    evidence = {"accuracy of always predicting the majority": right, "F1 of the minority": f1}
    return weigh(
        "accuracy of always predicting the majority", evidence, stated=right >= 0.9 and f1 == 0
    )


@claim(
    "F124",
    title="running_loss / len(loader) is the epoch's loss",
    expected="holds if",
    says="The sum of batch losses divided by the number of batches is the epoch's loss.",
    condition="if all batches have the same size",
)
def mean_of_batch_means() -> Measured:
    def gap(num: int) -> float:
        losses = torch.cat([torch.ones(num - num % 16), 2 * torch.ones(num % 16)]).double()
        running = sum(batch.mean().item() for batch in losses.split(16))
        return running / len(losses.split(16)) - losses.mean().item()

    even, uneven = gap(96), gap(100)
    evidence = {"error with a short last batch": uneven, "error with equal batches": even}
    return weigh(
        "error with a short last batch",
        evidence,
        stated=abs(even) < 1e-12 and abs(uneven) < 1e-12,
        conditioned=abs(even) < 1e-12,
    )


@claim(
    "F125",
    title="Loss times batch size averages exactly",
    expected="holds if",
    says="Weighting each batch's loss by its size gives the exact mean over the epoch.",
    condition="if there are no class weights; with them, each batch must be weighted by the sum of "
    "its examples' weights",
)
def sample_weighted_loss(seed: int) -> Measured:
    inputs, targets, _, _ = digits(seed)
    inputs, targets = inputs[:100].double(), targets[:100]
    model = mlp(64, 32, 10, seed=seed).double()

    def gap(weight: Tensor | None) -> float:
        with torch.no_grad():
            logits = model(inputs)
        total = 0.0
        for z, y in zip(logits.split(16), targets.split(16), strict=True):
            total += F.cross_entropy(z, y, weight).item() * len(y)
        return abs(total / len(targets) - F.cross_entropy(logits, targets, weight).item())

    plain = gap(None)
    weighted = gap(torch.linspace(0.1, 10.0, 10, dtype=torch.float64))
    evidence = {"error with class weights": weighted, "error without": plain}
    return weigh(
        "error with class weights",
        evidence,
        stated=plain < 1e-12 and weighted < 1e-9,
        conditioned=plain < 1e-12,
    )


@claim(
    "F126",
    title="The logged train_loss is the epoch's loss",
    expected="does not hold",
    says="The train_loss that the production script logs is the training loss.",
)
def logged_train_loss() -> Measured:
    """The script keeps `loss = criterion(...) / accum_steps` and logs the last one."""
    accum_steps, losses = 4, [4.0, 3.0, 1.0, 2.0]
    weight = torch.ones(1, requires_grad=True)
    for value in losses:
        loss = (weight * value).sum() / accum_steps
        loss.backward()
    logged, true_mean = loss.item(), sum(losses) / len(losses)
    evidence = {
        "logged": logged,
        "mean loss": true_mean,
        "loss of the last micro-batch": losses[-1],
    }
    return weigh(
        "logged",
        evidence,
        stated=abs(logged - true_mean) < 1e-6,
        note="It logs the last micro-batch's loss, already divided by K = 4.",
    )
