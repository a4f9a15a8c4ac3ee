"""Ten of the sixteenth set, of unusual make, by someone who had not seen the doctor."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, IterableDataset

from tests.debug.faulty.sixteenth.kit import (
    Chained,
    Columns,
    blobs,
    by_cost,
    by_pairs,
    chain,
    classes,
    gen,
    loaders,
    manifold,
    mlp,
    named,
    ring,
    seed,
    set_up,
    split,
)
from tests.debug.faulty.thirteenth.kit import sup_step
from tests.debug.sound.programs import sound


@sound
def stateful_tbptt_unshuffled():
    """Chunks of long streams in their order; the state is carried over, detached, and begins anew
    with each pass."""
    seed(101)
    x = chain(20, 161, 10, 101)

    def chunks(t):
        return [
            {"inp": t[:, a : a + 8], "tgt": t[:, a + 1 : a + 9], "first": a == 0}
            for a in range(0, 160, 8)
        ]

    tl, vl = chunks(x[:14]), chunks(x[14:])
    m = Chained(10)
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    memory = {"h": None}

    def run(b, h):
        out, h = m.rnn(m.emb(b["inp"]), None if b["first"] else h)
        return m.out(out).flatten(0, 1), h.detach()

    def step(b):
        m.train()
        out, memory["h"] = run(b, memory["h"])
        loss = F.cross_entropy(out, b["tgt"].flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        m.eval()
        h, total, n = None, 0.0, 0
        with torch.no_grad():
            for b in vl:
                out, h = run(b, h)
                total += F.cross_entropy(out, b["tgt"].flatten(), reduction="sum").item()
                n += b["tgt"].numel()
        m.train()
        return {"val_nll": total / n}

    return set_up(m, opt, tl, step, val_loader=vl, evaluate=evaluate)


@sound
def autoencoder_target_is_input():
    """A bottleneck's target is the input itself."""
    seed(102)
    tl, vl = loaders(*named(700, x=manifold(900, 102)), 32)
    m = nn.Sequential(mlp(12, 32, 32, 3), mlp(3, 32, 32, 12))
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        return F.mse_loss(model(b["x"]), b["x"])

    def sums_of(model, b):
        return {"val_mse": (((model(b["x"]) - b["x"]) ** 2).sum(), b["x"].numel())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        self.nets = nn.ModuleList(mlp(1, 24, 24, 2) for _ in range(4))

    def forward(self, x):
        stretched = 0.0
        for k, net in enumerate(self.nets):
            a, b = x[:, k % 2], x[:, 1 - k % 2]
            t = net(a[:, None])
            scale = torch.tanh(t[:, 0])
            b = b * scale.exp() + t[:, 1]
            stretched = stretched + scale
            x = torch.stack([a, b] if k % 2 == 0 else [b, a], 1)
        return -0.5 * (x**2).sum(1) - math.log(2 * math.pi) + stretched


@sound
def flow_negative_loss():
    """A normalising flow on tightly clustered rows: the negative log density falls below 0."""
    seed(103)
    tl, vl = loaders(*named(700, x=0.2 * ring(900, 103)), 32)
    m = Flow()
    opt = torch.optim.Adam(m.parameters(), 2e-3)

    def loss_of(model, b):
        return -model(b["x"]).mean()

    def sums_of(model, b):
        return {"val_nll": (-model(b["x"]).sum(), len(b["x"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


@sound
def random_tanh_features():
    """The first layer is random and frozen on purpose; only the readout is in the optimizer."""
    tl, vl = classes(104)
    m = nn.Sequential(nn.Linear(10, 200), nn.Tanh(), nn.Linear(200, 5))
    m[0].requires_grad_(False)
    opt = torch.optim.Adam(m[2].parameters(), 5e-3)
    return by_pairs(m, opt, tl, vl, declared={"frozen": ["0.weight", "0.bias"]})


@sound
def mc_dropout_at_evaluation():
    """Dropout stays on in evaluate(), which takes the mean of 20 passes from the same seed; the
    model goes back to its mode."""
    tl, vl = classes(105)
    m = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 5))

    def evaluate():
        was = m.training
        # there is no batch norm to be woken
        m.train()
        hits = n = 0
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            for x, y in vl:
                p = torch.stack([m(x).softmax(1) for _ in range(20)]).mean(0)
                hits += (p.argmax(1) == y).sum().item()
                n += len(y)
        m.train(was)
        return {"mc_acc": hits / n}

    return by_pairs(m, torch.optim.Adam(m.parameters(), 5e-3), tl, vl, evaluate=evaluate)


@sound
def staged_unfreezing_lr_zero():
    """The backbone's group has a learning rate of 0 for 40 steps, then a small one."""
    tl, vl = classes(106)
    body, head = mlp(10, 32, 32, 32), nn.Linear(32, 5)
    m = nn.Sequential(body, nn.ReLU(), head)
    opt = torch.optim.AdamW(
        [{"params": body.parameters(), "lr": 1e-3}, {"params": head.parameters(), "lr": 5e-3}]
    )
    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, [lambda k: float(k >= 40), lambda k: 1.0])
    ce = nn.CrossEntropyLoss()
    step = sup_step(m, opt, ce, scheduler.step)
    declared = {"scheduler_unit": "batch"}
    return by_pairs(m, opt, tl, vl, ce, step, scheduler=scheduler, declared=declared)


@sound
def batch_statistics_in_evaluation():
    """Batch norm keeps no running statistics: those of the batch are used in validation too, in
    batches of 100."""
    seed(107)
    tl, vl = loaders(*split(*blobs(900, 10, 5, 107), val=200), 50, vbs=100)
    m = nn.Sequential(
        nn.Linear(10, 32),
        nn.BatchNorm1d(32, track_running_stats=False),
        nn.ReLU(),
        nn.Linear(32, 5),
    )
    return by_pairs(m, torch.optim.Adam(m.parameters(), 5e-3), tl, vl)


@sound
def tied_embedding_language_model():
    """The output layer has the embedding's weight: one parameter under two names."""
    seed(108)
    tl, vl = loaders(*named(600, ids=chain(800, 11, 12, 108)))
    m = Chained(12)
    nn.init.normal_(m.emb.weight, 0, 0.2)
    m.out.weight = m.emb.weight
    opt = torch.optim.Adam(m.parameters(), 5e-3)

    def loss_of(model, b, reduction="mean"):
        out = model(b["ids"][:, :-1]).flatten(0, 1)
        return F.cross_entropy(out, b["ids"][:, 1:].flatten(), reduction=reduction)

    def sums_of(model, b):
        return {"val_nll": (loss_of(model, b, "sum"), b["ids"][:, 1:].numel())}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Stream(IterableDataset):
    """Sums of ever more numbers, without an end."""

    def __init__(self):
        self.n, self.g = 0, gen(122)

    def __iter__(self):
        while True:
            self.n += 1
            length = min(8, 2 + self.n // 2000)
            v = torch.zeros(8)
            v[:length] = torch.randn(length, generator=self.g)
            yield {"seq": v, "y": v.sum()}


@sound
def endless_curriculum_stream():
    """A loader without length or end whose examples get harder, so the loss need not fall."""
    seed(118)
    tl = DataLoader(Stream(), 32)
    v = torch.randn(200, 8, generator=gen(123))
    vl = DataLoader(Columns(seq=v, y=v.sum(1)), 64)
    m = mlp(8, 32, 32, 1)
    opt = torch.optim.Adam(m.parameters(), 2e-3)

    def loss_of(model, b):
        return F.mse_loss(model(b["seq"])[:, 0], b["y"])

    def sums_of(model, b):
        error = (model(b["seq"])[:, 0] - b["y"]) ** 2
        return {"full_length_mse": (error.sum(), len(b["y"]))}

    return by_cost(m, opt, tl, vl, loss_of, sums_of)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.out = nn.Linear(10, 24), nn.Linear(24, 5)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(24), *mlp(24, 24, 24)) for _ in range(3)
        )
        for block in self.blocks:
            nn.init.zeros_(block[3].weight)
            nn.init.zeros_(block[3].bias)

    def forward(self, x):
        h = self.inp(x)
        for block in self.blocks:
            h = h + block(h)
        return self.out(h)


@sound
def zero_initialised_residuals():
    """The last layer of each residual block starts at 0: inner layers get no gradient in the first
    step."""
    tl, vl = classes(119)
    m = Residual()
    return by_pairs(m, torch.optim.Adam(m.parameters(), 3e-3), tl, vl)
