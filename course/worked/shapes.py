"""Shapes, shared memory and parameter counts of the course's small networks."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from course.worked.registry import worked
from course.worked.step import Step


def _mlp(sizes: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


@worked(
    "N41",
    title="An array shared with a tensor",
    perturb={"first": 98},
)
def shared_memory(
    values: tuple[int, ...] = (1, 2, 3), first: int = 99, second: int = -5
) -> Iterator[Step]:
    """from_numpy shares memory; torch.tensor copies."""
    array = np.array(values)
    shared = torch.from_numpy(array)
    array[0] = first
    yield Step(f"shared tensor after array[0] = {first}".replace("-", "−"), shared)
    copied = torch.tensor(array)
    array[1] = second
    yield Step(f"shared tensor after array[1] = {second}".replace("-", "−"), shared)
    yield Step("copied tensor after that", copied)


@worked(
    "N42",
    title="From a batch of images to logits",
    perturb={"batch_size": 32},
)
def image_shapes(
    batch_size: int = 64,
    image: tuple[int, ...] = (1, 28, 28),
    hidden: int = 128,
    num_classes: int = 10,
    loss_batch: int = 32,
) -> Iterator[Step]:
    """Shapes when flattened, after two layers, and of the pair that cross-entropy takes."""
    images = torch.zeros(batch_size, *image)
    flat = images.flatten(1)
    diagram = {"at": "module §3"}
    shape, flattened = list(images.shape), list(flat.shape)
    yield Step("images", shape, [64, 1, 28, 28], as_printed="64 x 1 x 28 x 28", **diagram)
    formula = " · ".join(map(str, image))
    yield Step("flattened", flattened, [64, 784], as_printed="64 x 784", formula=formula, **diagram)
    model = _mlp((flat.shape[1], hidden, num_classes))
    widths = [flat.shape[1]] + [m.out_features for m in model if isinstance(m, nn.Linear)]
    words = "784 to 128; 128 to 10"
    yield Step("widths", widths, [784, 128, 10], as_printed=words, **diagram)
    yield Step("logits", list(model(flat).shape), formula="[B, classes]")
    logits = model(flat[:1].expand(loss_batch, -1))
    labels = torch.zeros(loss_batch, dtype=torch.long)
    nn.functional.cross_entropy(logits, labels)  # takes this pair
    yield Step("the loss's logits", list(logits.shape), formula="as the module draws them")
    yield Step("the loss's labels", list(labels.shape))


@worked(
    "N43",
    title="Parameters of seven networks",
    perturb={"networks": ((784, 128, 64, 10), (784, 10))},
)
def parameter_counts(
    networks: tuple[tuple[int, ...], ...] = (
        (784, 128, 10),
        (2, 128, 128, 3),
        (784, 10),
        (128, 256, 10),
        (32, 64, 2),
        (4, 16, 3),
        (4, 2),
    ),
) -> Iterator[Step]:
    """Numbers in `parameters()` of real modules, built without storage."""
    for number, sizes in enumerate(networks):
        with torch.device("meta"):
            parameters = list(_mlp(sizes).parameters())
        what = "-".join(map(str, sizes))
        yield Step(what, sum(p.numel() for p in parameters), formula="Σ (in + 1) · out")
        if number == 0:
            yield Step("tensors in the first", len(parameters), formula="weight and bias per layer")
