"""What is carried along a stream, what is scored group by group, and who moves which network.

Relations are tried on dresses of a fault, and on what only looks like it.
"""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from course.debug.probes import structure
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.setup import as_setup
from course.debug.relations import attention, carried, rebatched
from tests.debug.faulty.thirteenth.kit import evaluating, gen, loader, mlp
from tests.debug.faulty.twelfth.kit import pack
from tests.debug.told import cases, said

ROWS, WINDOWS = 8, 6


def loud(relation, made) -> list[str]:
    """Classes that one relation alone finds, notes apart."""
    try:
        return [f.id for f in relation(Session(as_setup(made))) if f.severity != "note"]
    except NotChecked:
        return []


class Follows(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.out = nn.GRU(1, 8, batch_first=True), nn.Linear(8, 1)

    def forward(self, x, state=None):
        given, state = self.rnn(x, state)
        return self.out(given), state


def stream(carry, scored_with=None, *, shuffle=False):
    """Windows of eight series, in the order of time, scored in batches of one window each."""
    torch.manual_seed(0)
    x = torch.randn(ROWS, WINDOWS * 5, generator=gen(3)).cumsum(1)
    cut = x.view(ROWS, WINDOWS, 5).transpose(0, 1).reshape(ROWS * WINDOWS, 5, 1)
    data = TensorDataset(cut, cut * 0.5 + 1)
    train = DataLoader(data, ROWS, shuffle=shuffle, generator=gen(0))
    val = DataLoader(data, ROWS)
    model, kept = Follows(), [None]
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    carry_in_score = carry if scored_with is None else scored_with

    def step(batch):
        opt.zero_grad()
        out, state = model(batch[0], kept[0] if carry else None)
        loss = F.mse_loss(out, batch[1])
        loss.backward()
        opt.step()
        kept[0] = state.detach()
        return loss.item()

    def evaluate():
        state, total = None, 0.0
        with evaluating(model):
            for x, y in val:
                out, new = model(x, state)
                state = new if carry_in_score else None
                total += F.mse_loss(out, y, reduction="sum").item()
        return {"mse": total / (ROWS * WINDOWS * 5)}

    return pack(model, opt, train, step=step, evaluate=evaluate, val_loader=val)


@cases(faulty=["shuffled"], sound=["in order", "no state", "scored without"])
def test_a_state_is_carried_in_the_order_that_evaluate_keeps(kind, is_told):
    made = stream(
        kind != "no state", kind not in ("scored without", "no state"), shuffle=kind != "in order"
    )
    assert loud(carried.in_order, made) == ["state-carried"] * is_told


@cases(
    faulty=["mean of roots", "other network", "two calls"],
    sound=["a state", "a state of another network", "statistics of a batch", "groups by number",
           "groups by place", "spread of batches", "views of each"],
)  # fmt: skip
def test_a_score_is_by_batch_only_where_answers_are_the_same(kind, is_told):
    if kind == "a state":
        assert said(rebatched.in_one_batch, stream(True)) == []
        return
    torch.manual_seed(0)
    n, size = 96, 8
    x = torch.randn(n, 6, generator=gen(1)) * torch.linspace(0.2, 3, n)[:, None]
    y = x[:, :1] + 0.3 * torch.randn(n, 1, generator=gen(2))
    columns = [x, y]
    if kind == "groups by number":
        columns.append(torch.arange(n) // size)
    if kind == "groups by place":
        columns.append((torch.arange(n) % size == 0).float())
    val = DataLoader(TensorDataset(*columns), size)
    model, other, memory = mlp(6, 16, 1), mlp(6, 16, 1), nn.GRUCell(6, 1)
    opt = torch.optim.SGD(model.parameters(), 0.01)

    def evaluate():
        found, state, costs = [], None, []
        with evaluating(model, other, memory):
            for batch in val:
                a, b = batch[:2]
                out = other(a) if kind == "other network" else model(a)
                if kind == "two calls":
                    out = (out + model(-a)) / 2
                if kind == "a state of another network":
                    state = memory(a, None if state is None else state[: len(a)])
                    out = out + 3 * state
                if kind == "statistics of a batch":
                    out = model((a - a.mean(0)) / a.std(0))
                if kind == "views of each":
                    z = torch.cat([out, model(-a)])
                    costs.append((z @ z.T).abs().mean())
                found.append(F.mse_loss(out, b))
        costs = torch.stack(costs or found)
        if kind == "statistics of a batch":
            return {"mse": costs.mean().item()}
        if kind == "spread of batches":
            return {"mse_std": costs.std().item()}
        return {"rmse": costs.sqrt().mean().item()}

    train = DataLoader(TensorDataset(x, y), 16)
    made = pack(model, opt, train, lambda m, b: F.mse_loss(m(b[0]), b[1]), evaluate=evaluate,
                val_loader=val)  # fmt: skip
    assert said(rebatched.in_one_batch, made) == ["metric-batch-mean"] * is_told


@cases(
    faulty=["wrong network"],
    sound=["right", "a body", "two losses of a head", "by turns", "a frozen generator"],
)
def test_two_optimizers_do_not_hold_one_network_of_two(kind, is_told):
    torch.manual_seed(0)
    maker, judge = mlp(4, 16, 2), mlp(2, 16, 1)
    both, turn = nn.ModuleDict({"maker": maker, "judge": judge}), [0]
    one = torch.optim.Adam(judge.parameters(), 1e-3)
    two = torch.optim.Adam((maker if kind == "right" else judge).parameters(), 1e-3)
    bce, ones, zeros = F.binary_cross_entropy_with_logits, torch.ones(16, 1), torch.zeros(16, 1)

    def move(opt, loss):
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    def step(batch):
        x = batch[0]
        made, turn[0] = maker(torch.randn(16, 4)), turn[0] + 1
        if kind in ("right", "wrong network"):
            cost = move(one, bce(judge(x), ones) + bce(judge(made.detach()), zeros))
            return cost + move(two, bce(judge(maker(torch.randn(16, 4))), ones))
        if kind == "a frozen generator":
            made = made.detach()
        if kind == "by turns":
            return move((one, two)[turn[0] % 2], bce(judge(made), zeros) + bce(judge(x), ones))
        cost = move(one, bce(judge(x), ones) + bce(judge(made), zeros))
        again = maker(torch.randn(16, 4))
        again = again.detach() if kind == "a frozen generator" else again
        return cost + move(two, judge(again).square().mean())

    x = torch.randn(128, 2, generator=gen(4))
    made = pack(both, [one, two], loader((x,), 16), step=step)
    assert loud(structure.membership, made) == ["optimizer-stale-params"] * is_told


class Embeds(nn.Module):
    def __init__(self, axis):
        super().__init__()
        self.body, self.axis = mlp(10, 16, 4), axis

    def forward(self, x):
        return F.normalize(self.body(x), dim=self.axis)


@cases(faulty=["triplets", "pairs", "distances"], sound=["each row", "columns", "whole tables"])
def test_rows_that_are_compared_are_not_scaled_down_the_batch(kind, is_told):
    torch.manual_seed(0)
    a, b, c = (torch.randn(160, 10, generator=gen(n)) for n in range(3))
    model = Embeds(1 if kind == "each row" else 0)
    opt = torch.optim.Adam(model.parameters(), 1e-3)

    def loss_of(m, batch):
        u, v, w = (m(part) for part in batch)
        if kind == "pairs":
            return F.cosine_embedding_loss(u, v, torch.ones(len(u)))
        if kind == "distances":
            return F.relu(F.pairwise_distance(u, v) - F.pairwise_distance(u, w) + 0.5).mean()
        if kind == "columns":  # how alike two views are, feature by feature
            return (u.T @ v - torch.eye(4)).square().sum()
        if kind == "whole tables":
            return (u - v).square().sum() - 0.1 * (u - w).square().sum()
        return F.triplet_margin_loss(u, v, w)

    made = pack(model, opt, loader((a, b, c), 20), loss_of)
    assert said(attention.of_a_row, made) == ["rows-mixed"] * is_told
