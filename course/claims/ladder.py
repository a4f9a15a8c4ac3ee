"""The debug ladder and the arena: healthy runs, planted bugs, and how fast one can be."""

from __future__ import annotations

import statistics

import torch
from torch import nn
from torch.nn import functional as F

from course.claims.lab import accuracy, fit, flat, full_loss, mlp, spirals
from course.claims.optimizers import steps_to
from course.claims.registry import Measured, claim, weigh


@claim(
    "F81",
    title="A dead ReLU never recovers",
    source="Lecture 3, debug ladder",
    expected="holds",
    says="A ReLU whose input is negative for every example gets no gradient and stays dead.",
)
def dead_relu(seed: int) -> Measured:
    model = mlp(4, 16, 3, seed=seed)
    with torch.no_grad():
        model[0].bias.fill_(-100.0)
    inputs, targets = torch.randn(48, 4), (torch.arange(48) % 4) // 2
    before, first_loss = flat(model[0]), full_loss(model, inputs, targets)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    fit(model, optimizer, inputs, targets, steps=100)
    largest = max(p.grad.abs().max().item() for p in model[0].parameters())
    evidence = {
        "largest gradient in the dead layer": largest,
        "dead layer moved by": (flat(model[0]) - before).norm(),
        "loss before and after": [first_loss, full_loss(model, inputs, targets)],
    }
    stated = largest == 0 and bool((flat(model[0]) == before).all())
    note = "The bias of the next layer still learns how often each class occurs."
    return weigh("largest gradient in the dead layer", evidence, stated=stated, note=note)


@claim(
    "F84",
    title="The arena's baseline can be beaten, 90 % in under 50 steps",
    source="Training-loop chapter, c8",
    expected="holds",
    says="The arena's baseline can be beaten, and 90 % accuracy within 50 steps is possible.",
)
def arena(seed: int) -> Measured:
    inputs, targets, _, _ = spirals(seed)
    baseline, best = [], []
    for index in range(5):
        model = mlp(2, 128, 128, 3, seed=100 * seed + index)
        fit(model, torch.optim.SGD(model.parameters(), 0.01), inputs, targets, steps=300)
        baseline.append(accuracy(model, inputs, targets))
        model = mlp(2, 128, 128, 3, seed=100 * seed + index)
        adam = torch.optim.Adam(model.parameters(), lr=0.03)
        best.append(steps_to(0.9, adam, model, seed, 100, batch_size=len(targets)))
    evidence = {
        "steps to 90 %, Adam 0.03, full batch, median of 5": statistics.median(best),
        "steps by run": best,
        "baseline SGD 0.01, batch 32, 20 epochs: accuracy by run": baseline,
    }
    stated = statistics.median(best) < 50 and max(baseline) < 0.9
    name = "steps to 90 %, Adam 0.03, full batch, median of 5"
    return weigh(name, evidence, stated=stated)


@claim(
    "F78",
    title="A healthy loop overfits one batch to almost 0",
    source="Lecture 3, debug ladder rung 3; engineering module, §5",
    expected="holds",
    says="A healthy loop drives the loss on one small batch to almost 0; a broken one does not.",
)
def overfit_one_batch(seed: int) -> Measured:
    def final(index: int, **bug) -> float:
        torch.manual_seed(1000 * seed + index)
        model = mlp(4, 16, 3)
        inputs, targets = torch.randn(12, 4), torch.arange(12) % 3
        if bug.get("dead"):
            nn.init.constant_(model[0].bias, -100.0)
        optimizer = torch.optim.Adam(model.parameters(), lr=bug.get("lr", 0.05))
        for _ in range(200):
            labels = targets[torch.randperm(12)] if bug.get("reshuffled") else targets
            logits = model(inputs).softmax(1) if bug.get("twice") else model(inputs)
            loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            loss.backward()
            if not bug.get("no_step"):
                optimizer.step()
        return full_loss(model, inputs, targets) if not bug.get("twice") else loss.item()

    healthy = [final(index) for index in range(10)]
    bugs = {
        "softmax twice": final(0, twice=True),
        "dead ReLU": final(0, dead=True),
        "lr 1e-5": final(0, lr=1e-5),
        "no step": final(0, no_step=True),
        "labels reshuffled": final(0, reshuffled=True),
    }
    evidence = {
        "highest loss of 10 healthy runs": max(healthy),
        "median": statistics.median(healthy),
        "loss with a bug": bugs,
    }
    stated = max(healthy) < 0.01 and min(bugs.values()) > 0.1
    return weigh("highest loss of 10 healthy runs", evidence, stated=stated)
