"""What is made and then lost: copies within bounds, states that are kept, a generator's state."""

import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, default_collate

from course.debug.relations import dropped, reseeded
from tests.debug.faulty.thirteenth.kit import gen, loader, mlp
from tests.debug.faulty.twelfth.kit import pack
from tests.debug.told import cases, said

BOUND = 0.05


class Rounded(nn.Module):
    """A layer whose weights are read through bounds, with or without a gradient of their own."""

    def __init__(self, through):
        super().__init__()
        self.linear, self.through = nn.Linear(6, 1), through

    def forward(self, x):
        w = self.linear.weight
        w.clamp(-1, 1)  # a line that was left over: of what is used, too
        near = w.clamp(-BOUND, BOUND)
        near = w + (near - w).detach() if self.through else near
        return F.linear(x, near, self.linear.bias)


BOUNDED = {
    "a name": lambda p: p.clamp(-BOUND, BOUND),
    "data": lambda p: p.data.clip(-BOUND, BOUND),
    "by one side": lambda p: torch.clamp(p, max=BOUND),
    "by its norm": lambda p: F.normalize(p, dim=0),
    "gradient": lambda p: p.grad.clamp(-1e-4, 1e-4),
    "in place": lambda p: p.clamp_(-BOUND, BOUND),
    "copied": lambda p: p.copy_(p.clamp(-BOUND, BOUND)),
    "as data": lambda p: setattr(p, "data", p.data.clamp(-BOUND, BOUND)),
    "out": lambda p: torch.clamp(p, -BOUND, BOUND, out=p),
    "wide": lambda p: p.clamp(-10, 10),
    "two times": lambda p: p.copy_(p.clamp(max=BOUND).clamp(min=-BOUND)),
}


@cases(
    faulty=["a name", "data", "by one side", "by its norm", "gradient"],
    sound=["in place", "copied", "as data", "out", "wide", "two times", "counted", "remembered",
           "a copy's weights", "quantised", "straight through"],
)  # fmt: skip
def test_weights_within_bounds_are_written_back(kind, is_told):
    torch.manual_seed(0)
    x = torch.randn(128, 6, generator=gen(1))
    model = mlp(6, 16, 1)
    if kind in ("quantised", "straight through"):
        model = Rounded(kind == "straight through")
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    kept, twin = [], nn.Linear(1, 1)

    def step(batch):
        optimizer.zero_grad()
        loss = (model(batch[0])[:, 0] - batch[0][:, 0]).pow(2).mean()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p in model.parameters():
                if kind == "counted":
                    kept.append(float((p.clamp(-BOUND, BOUND) != p).sum()))
                elif kind == "remembered":
                    kept.append(p.clamp(-BOUND, BOUND))
                elif kind == "a copy's weights":
                    twin.register_parameter(f"p{len(kept)}", nn.Parameter(p.clamp(-BOUND, BOUND)))
                    kept.append(twin)
                elif kind in BOUNDED:
                    BOUNDED[kind](p)
        return loss.item()

    made = pack(model, optimizer, loader((x,), 32), train_step=step)
    assert said(dropped.bounds, made) == (["clip-misplaced"] if is_told else [])


class Shifted(Dataset):
    """Rows that are scaled at random as they are read."""

    def __init__(self, x, kind):
        self.x, self.kind, self.own = x, kind, gen(5)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        if self.kind == "set back":
            with torch.random.fork_rng():
                torch.manual_seed(0)
                return self.x[i] * (1 + 0.1 * torch.rand(1))
        if self.kind in ("an item", "dropout", "a step without draws", "a step with its own"):
            torch.manual_seed(0)
        elif self.kind in ("a step that seeds", "by its index"):
            torch.manual_seed(i)
        elif self.kind in ("NumPy", "another generator"):
            np.random.seed(0)
        elif self.kind == "Python":
            random.seed(0)
        drawn = torch.rand(1, generator=self.own if self.kind == "its own" else None)
        return self.x[i] * (1 + 0.1 * drawn)


class ByEpoch(DataLoader):
    def __iter__(self):
        torch.manual_seed(7)
        return super().__iter__()


def seeded_and_joined(rows):
    torch.manual_seed(0)
    return default_collate(rows)


@cases(
    faulty=["an item", "a collate function", "dropout", "NumPy", "Python"],
    sound=["its own", "set back", "by its index", "an epoch", "a step without draws",
           "a step with its own", "a step that seeds", "another generator"],
)  # fmt: skip
def test_reading_a_batch_does_not_seed_what_the_step_draws(kind, is_told):
    torch.manual_seed(0)
    data = Shifted(torch.randn(128, 6, generator=gen(1)), kind)
    model = nn.Sequential(mlp(6, 16, 6), nn.Dropout(0.5 if kind == "dropout" else 0.0))
    own, count = gen(6), [0]

    def loss_of(model, x):
        if kind == "a step that seeds":
            count[0] += 1
            torch.manual_seed(count[0])
        if kind in ("dropout", "a step without draws"):
            noise = 0
        elif kind == "NumPy":
            noise = torch.from_numpy(np.random.randn(*x.shape)).float()
        elif kind == "Python":
            noise = random.gauss(0, 1)
        else:
            generator = own if kind == "a step with its own" else None
            noise = torch.randn(x.shape, generator=generator)
        return (model(x + 0.5 * noise) - x).pow(2).mean()

    kinds = ByEpoch if kind == "an epoch" else DataLoader
    joined = seeded_and_joined if kind == "a collate function" else default_collate
    batches = kinds(data, 16, shuffle=True, generator=gen(2), collate_fn=joined)
    made = pack(model, torch.optim.SGD(model.parameters(), 0.01), batches, loss_of=loss_of)
    assert said(reseeded.by_reading, made) == (["rng-reseeded"] if is_told else [])
