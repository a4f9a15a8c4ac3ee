"""What is made and then lost: copies within bounds, states that are kept, a generator's state."""

import copy
import random

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, default_collate

from course.debug.relations import dropped, reseeded, standing
from tests.debug.faulty.thirteenth.kit import Columns, gen, loader, mlp
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


class Values(nn.Module):
    """Values of two actions, for states that are rows of numbers or ids."""

    def __init__(self, of_ids):
        super().__init__()
        self.first = nn.Embedding(7, 16) if of_ids else nn.Linear(7, 16)
        self.last = nn.Linear(16, 2)

    def forward(self, state):
        return self.last(self.first(state).relu())


@cases(
    faulty=["kept by reference", "ids", "of one network", "two losses", "scaled rewards"],
    sound=["moves", "mostly stays", "one state", "no next value", "a teacher's answers",
           "the row itself", "always ended"],
)  # fmt: skip
def test_a_state_and_the_next_are_not_the_same_in_every_row(kind, is_told):
    torch.manual_seed(0)
    of_ids = kind == "ids"
    place = torch.randint(7, (256,), generator=gen(1))
    if kind == "one state":
        place = torch.full((256,), 3)
    after = place.clone()
    if kind in ("moves", "mostly stays"):
        moved = torch.rand(256, generator=gen(2)) < (1.0 if kind == "moves" else 0.1)
        after = torch.where(moved, (place + 1) % 7, place)
    state, later = (p if of_ids else F.one_hot(p, 7).float() for p in (place, after))
    action = torch.randint(2, (256,), generator=gen(3))
    done = torch.rand(256, generator=gen(4)) < (2.0 if kind == "always ended" else 0.2)
    reward = torch.randn(256, generator=gen(5))
    net = Values(of_ids)
    target = net if kind == "of one network" else copy.deepcopy(net).requires_grad_(False)

    def loss_of(net, b):
        with torch.no_grad():
            best = target(b["later"]).max(1).values
            y = b["reward"] * (0.1 if kind == "scaled rewards" else 1.0)
            y = y + (0.0 if kind == "no next value" else 0.9) * (1 - b["done"].float()) * best
        said = net(b["state"])
        taken = said.gather(1, b["action"][:, None])[:, 0]
        if kind == "a teacher's answers":
            return F.mse_loss(said.amax(1), best)
        if kind == "the row itself":
            return F.mse_loss(said.sum(1), b["later"].argmax(1).float())
        more = F.mse_loss(said.mean(1), b["reward"]) if kind == "two losses" else 0.0
        return F.smooth_l1_loss(taken, y) + more

    rows = Columns(state=state, action=action, reward=reward, later=later, done=done)
    batches = DataLoader(rows, 32, shuffle=True, generator=gen(6))
    made = pack(net, torch.optim.Adam(net.parameters(), 3e-3), batches, loss_of=loss_of)
    assert said(standing.still, made) == (["memory-shared"] if is_told else [])
