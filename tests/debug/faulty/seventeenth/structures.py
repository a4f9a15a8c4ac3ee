"""Faults of series, graphs, lists, teachers and tasks: windows, states, masks, axes, terms."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventeenth.kit import (
    Columns,
    averaged,
    begun,
    blobs,
    by_cost,
    by_pairs,
    costed,
    evaluating,
    loaders,
    mlp,
    plain_step,
    set_up,
    squares,
)
from tests.debug.faulty.seventh.kit import windows


@pair("target-in-inputs")
def window_contains_target(bug):
    """The number to forecast is the window's last instead of the one after it. After 300 steps mse
    is 0.001 instead of 0.276."""
    g = begun(31)
    t = torch.arange(900.0)
    series = torch.sin(t / 5) + 0.6 * torch.sin(t / 2.3) + 0.4 * torch.randn(900, generator=g)

    def data(part):
        x, after = windows(part, 8)
        return x[..., None], x[:, -1:] if bug else after

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(1, 16, batch_first=True)
            self.out = nn.Linear(16, 1)

        def forward(self, x):
            return self.out(self.gru(x)[0][:, -1])

    m = Net()
    tl, vl = loaders(data(series[:700]), data(series[700:]))
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, nn.MSELoss(), evaluate=averaged(m, vl, squares))


@pair("state-carried")
def lstm_state_across_shuffled_batches(bug):
    """The state of an LSTM goes on from batch to batch although their rows are shuffled and
    unrelated. After 300 steps mse is 0.388 instead of 0.002."""
    g = begun(32)

    def data(n):
        x = torch.randn(n, 8, 2, generator=g)
        return Columns(x=x, y=x[:, :, 0].cumsum(1) * 0.5)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(2, 24, batch_first=True)
            self.out = nn.Linear(24, 1)
            self.state = None

        def forward(self, x):
            goes_on = bug and self.state is not None and self.state[0].shape[1] == len(x)
            h, state = self.lstm(x, self.state if goes_on else None)
            self.state = tuple(part.detach() for part in state)
            return self.out(h).squeeze(-1)

    m = Net()
    tl, vl = loaders(data(512), data(128), drop_last=True)

    def loss_of(model, b):
        return F.mse_loss(model(b["x"]), b["y"])

    opt = torch.optim.Adam(m.parameters(), 5e-3)
    return by_cost(m, opt, tl, vl, loss_of, costed(loss_of, "x", "mse"))


@pair("trains-on-validation")
def gcn_trains_on_test_nodes(bug):
    """The training mask of a graph is not applied to the loss: the labels of the test nodes are
    learned. After 300 steps test_acc is 1 instead of 0.817."""
    g = begun(34)
    n, d = 120, 40
    y = torch.randint(0, 3, (n,), generator=g)
    chance = torch.where(y[:, None] == y[None], 0.12, 0.03)
    edges = (torch.rand(n, n, generator=g) < chance).float().triu(1)
    edges = edges + edges.T + torch.eye(n)
    scale = edges.sum(1).rsqrt()
    edges = scale[:, None] * edges * scale[None]
    x = torch.randn(n, d, generator=g) + 0.4 * F.one_hot(y, d)
    own = torch.zeros(n, dtype=torch.bool)
    own[torch.randperm(n, generator=g)[:60]] = True

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(d, 32)
            self.b = nn.Linear(32, 3)

        def forward(self, x, adj):
            return self.b(adj @ F.relu(self.a(adj @ x)))

    m = GCN()
    opt = torch.optim.Adam(m.parameters(), 1e-2)
    graph = {"x": x, "adj": edges, "y": y, "train_mask": own, "test_mask": ~own}

    def loss_of(model, b):
        out, y = model(b["x"], b["adj"]), b["y"]
        if not bug:
            out, y = out[b["train_mask"]], y[b["train_mask"]]
        return F.cross_entropy(out, y)

    def evaluate():
        with evaluating(m):
            hits = (m(x, edges).argmax(1) == y).float()
            return {"train_acc": hits[own].mean().item(), "test_acc": hits[~own].mean().item()}

    step = plain_step(m, opt, loss_of)
    return set_up(m, opt, [graph], step, loss_of=loss_of, num_classes=3, evaluate=evaluate)


@pair("rows-mixed")
def listwise_softmax_over_batch(bug):
    """The softmax of a ranking runs down the queries of the batch instead of over each query's
    documents. After 300 steps top1 is 0.594 instead of 0.758."""
    g = begun(35)

    def data(n):
        x = torch.randn(n, 8, 6, generator=g)
        # what a query's documents share says nothing of their order
        shared = 2 * torch.randn(n, 1, 6, generator=g)
        noise = 0.3 * torch.randn(n, 8, generator=g)
        return Columns(docs=x + shared, rel=(x[..., 0] - 0.5 * x[..., 1] + noise) * 1.5)

    m = mlp(6, 32, 1)
    tl, vl = loaders(data(400), data(128))
    dim = 0 if bug else 1

    def loss_of(model, b):
        scores = model(b["docs"]).squeeze(-1)
        return -(F.softmax(b["rel"], dim) * F.log_softmax(scores, dim)).sum(dim).mean()

    def sums_of(model, b):
        hits = model(b["docs"]).squeeze(-1).argmax(1) == b["rel"].argmax(1)
        return {"top1": (hits.sum(), len(hits)), **costed(loss_of, "docs")(model, b)}

    return by_cost(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl, loss_of, sums_of)


@pair("missing-log-softmax")
def distill_kl_of_probabilities(bug):
    """kl_div gets the student's probabilities instead of their logarithms. After 300 steps
    kl_to_teacher is 0.412 instead of 0.024."""
    g = begun(36)
    x, y = blobs(g, 512, 12, 5, 0.7)
    vx, vy = blobs(g, 200, 12, 5, 0.7)
    teacher = mlp(12, 48, 5)
    fits = torch.optim.Adam(teacher.parameters(), 1e-2)
    for _ in range(60):
        fits.zero_grad()
        F.cross_entropy(teacher(x), y).backward()
        fits.step()
    teacher.eval().requires_grad_(False)
    m = mlp(12, 16, 5)
    tl, vl = loaders(Columns(x=x), Columns(x=vx, y=vy))

    def loss_of(model, b):
        s, t = model(b["x"]) / 2, teacher(b["x"]) / 2
        s = F.softmax(s, 1) if bug else F.log_softmax(s, 1)
        return 4 * F.kl_div(s, F.softmax(t, 1), reduction="batchmean")

    def sums_of(model, b):
        out, n = model(b["x"]), len(b["x"])
        of_teacher = F.softmax(teacher(b["x"]), 1)
        apart = F.kl_div(F.log_softmax(out, 1), of_teacher, reduction="sum")
        return {"acc": ((out.argmax(1) == b["y"]).sum(), n), "kl_to_teacher": (apart, n)}

    return by_cost(m, torch.optim.Adam(m.parameters(), 5e-3), tl, vl, loss_of, sums_of)


@pair("frozen-params")
def second_loss_overwrites_first(bug):
    """The second task's loss takes the place of the first's instead of being added: the first head
    is never trained. After 300 steps kind_acc is 0.407 instead of 0.94."""
    g = begun(37)
    w = torch.randn(8, 3, generator=g)

    def data(n):
        x = torch.randn(n, 8, generator=g)
        age = (x[:, 0] - x[:, 3]) * 0.7 + 0.1 * torch.randn(n, generator=g)
        return Columns(x=x, kind=(x @ w).argmax(1), age=age)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
            self.kind = nn.Linear(32, 3)
            self.age = nn.Linear(32, 1)

        def forward(self, x):
            h = self.trunk(x)
            return {"kind": self.kind(h), "age": self.age(h).squeeze(1)}

    m = Net()
    tl, vl = loaders(data(512), data(150))

    def loss_of(model, b):
        out = model(b["x"])
        loss = F.cross_entropy(out["kind"], b["kind"])
        if bug:
            loss = F.mse_loss(out["age"], b["age"])
        else:
            loss = loss + F.mse_loss(out["age"], b["age"])
        return loss

    def sums_of(model, b):
        out, n = model(b["x"]), len(b["x"])
        hits = out["kind"].argmax(1) == b["kind"]
        return {"kind_acc": (hits.sum(), n), "age_mse": (((out["age"] - b["age"]) ** 2).sum(), n)}

    return by_cost(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl, loss_of, sums_of)
