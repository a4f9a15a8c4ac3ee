"""What is made and then lost: copies within bounds, states that are kept, a generator's state."""

import torch
from torch import nn
from torch.nn import functional as F

from course.debug.relations import dropped
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
