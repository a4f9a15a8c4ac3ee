"""02a.deep-net: thirty layers that learn, in as few updates as possible."""

import torch
from torch import nn

from autograde.kinds import Tune
from course.data import InMemoryLoader, load
from course.from_scratch.deep import DeepNet
from course.from_scratch.initialisation import initialise_


def train(settings, seed):
    """One run on the digits; the accuracy on validation after every update."""
    data = load("digits")
    model = DeepNet(64, 10, width=32, depth=30, norm=settings["norm"],
                    residual=settings["kind"] == "residual")  # fmt: skip
    initialise_(model)
    for layer in list(model)[2:-1]:
        layer.linear.weight.data.mul_(settings["scale"])
    model.double()
    inputs, val_inputs = data.train_inputs.double(), data.val_inputs.double()
    loader = InMemoryLoader(inputs, data.train_targets, batch_size=64, shuffle=True, seed=seed)
    optimizer = torch.optim.SGD(model.parameters(), settings["lr"], momentum=0.9)
    while True:
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model.train()(inputs), targets).backward()
            optimizer.step()
            with torch.no_grad():
                right = model.eval()(val_inputs).argmax(dim=1) == data.val_targets
            yield right.double().mean().item()


EXERCISE = Tune(
    id="02a.deep-net", title="thirty layers that learn",
    source='Lecture 3, "Debug checklist · why won\'t loss go down? · part 2"',
    ledger=("T22",), minutes=10, difficulty=2, read=("F81", "F96"),
    hints=(
        "First try thirty plain layers: does any rate make them learn? Then change the path of "
        "the signal, not the rate.",
        "With shortcuts, what does each block add to the mean square? Make its weights smaller.",
        "The kind residual, with a scale of about 0.1; then the largest rate that does not "
        "explode.",
    ),
    question="Digits, and 30 layers of 32 units with relu, drawn by He's rule; the weights of "
             "these 30 layers are then multiplied by `scale`. SGD with momentum 0.9, batches of "
             "64. `norm` comes before each relu; a residual network adds each layer's input to "
             "its output.",
    settings={"kind": ["plain", "residual"], "norm": ["none", "batch", "layer"],
              "scale": (0.05, 3.0), "lr": (1e-5, 1.0)},
    train=train, quality=0.9, unit="validation accuracy of 90 %", most=100,
    thresholds=((100, 1), (45, 1), (20, 1)),
    good={"kind": "residual", "norm": "none", "scale": 0.1, "lr": 0.01},
)  # fmt: skip
