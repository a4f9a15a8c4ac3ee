"""Ten of the eighteenth set, of unusual make, by someone who had not seen the doctor."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.eighteenth.decisions import one_graph, q_learning
from tests.debug.faulty.eighteenth.kit import (
    Columns,
    Transfer,
    averaged,
    begun,
    blobs,
    by_cost,
    by_pairs,
    chain,
    costed,
    evaluating,
    fit_old_task,
    gen,
    leaky,
    loaders,
    mlp,
    plain_step,
    points,
    saving,
    set_up,
    shifted,
    squares,
)
from tests.debug.faulty.fourteenth.kit import pairloss
from tests.debug.faulty.sixteenth.kit import Chained
from tests.debug.sound.programs import sound
from tests.debug.sound.sixteenth_loops import Reversed


@sound
def tied_embeddings_without_bias():
    """The table of the inputs is that of the outputs; the rate warms up and falls by the batch."""
    g = begun(10)
    V, T = 14, 12
    tl, vl = loaders((chain(g, 512, T, V),), (chain(g, 100, T, V),), vbs=32)
    m = Chained(V, 24)
    m.out = nn.Linear(24, V, bias=False)
    nn.init.normal_(m.emb.weight, std=0.2)
    m.out.weight = m.emb.weight
    opt = torch.optim.AdamW(m.parameters(), 1e-2)

    def factor(s):
        falling = 0.5 * (1 + math.cos(math.pi * min(s, 600) / 600)) + 0.02
        return min((s + 1) / 20, falling)

    scheduler = torch.optim.lr_scheduler.LambdaLR(opt, factor)
    mean = averaged(m, vl, costed(shifted, 0))

    def evaluate():
        loss = mean()["loss"]
        return {"val_loss": loss, "perplexity": math.exp(loss)}

    return by_cost(
        m,
        opt,
        tl,
        vl,
        shifted,
        None,
        step=plain_step(m, opt, shifted, scheduler),
        evaluate=evaluate,
        scheduler=scheduler,
        num_classes=V,
        declared={"scheduler_unit": "batch"},
    )


class Stretches:
    """A long text in 16 rows: each batch goes on where the last one ended."""

    def __init__(self, tokens, width=12):
        self.tokens = tokens[: len(tokens) // 16 * 16].view(16, -1)
        self.width = width

    def __len__(self):
        return (self.tokens.shape[1] - 1) // self.width

    def __iter__(self):
        for k in range(len(self)):
            part = self.tokens[:, k * self.width : (k + 1) * self.width + 1]
            yield {"x": part[:, :-1], "y": part[:, 1:], "start": k == 0}


@sound
def stateful_bptt():
    """The batches are not shuffled on purpose: the state goes from one to the next, detached
    between them only."""
    g = begun(11)
    V = 12
    tl, vl = (Stretches(chain(g, 1, n, V)[0]) for n in (6000, 1600))
    m = nn.ModuleDict(
        {
            "emb": nn.Embedding(V, 20),
            "rnn": nn.GRU(20, 24, batch_first=True),
            "out": nn.Linear(24, V),
        }
    )
    opt = torch.optim.Adam(m.parameters(), 5e-3)
    state = None

    def forward(b, h):
        h, last = m["rnn"](m["emb"](b["x"]), None if b["start"] else h)
        return m["out"](h).flatten(0, 1), last

    def loss_of(model, b):
        return F.cross_entropy(forward(b, None)[0], b["y"].flatten())

    def step(b):
        nonlocal state
        m.train()
        opt.zero_grad()
        out, last = forward(b, state)
        loss = F.cross_entropy(out, b["y"].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        state = last.detach()
        return loss.item()

    def evaluate():
        h, total, count = None, 0.0, 0
        with evaluating(m):
            for b in vl:
                out, h = forward(b, h)
                total += F.cross_entropy(out, b["y"].flatten(), reduction="sum").item()
                count += b["y"].numel()
        return {"val_loss": total / count}

    declared = {"max_grad_norm": 1.0, "shuffle": False}
    more = {"evaluate": evaluate, "declared": declared, "num_classes": V}
    return by_cost(m, opt, tl, vl, loss_of, None, step=step, **more)


@sound
def wgan_clipped():
    """A critic whose weights are clipped to 0.05 after each of its steps, three to one of the
    generator; its loss has no bound."""
    g = begun(31)
    tl, vl = loaders((points(g, 512),), (points(g, 150),), 32)
    real = vl.dataset.tensors[0]
    m = nn.ModuleDict({"G": mlp(4, 24, 2), "D": mlp(2, 48, 48, 1, act=leaky)})
    og, od = (torch.optim.RMSprop(m[k].parameters(), 2e-3) for k in "GD")
    steps = 0

    def step(b):
        nonlocal steps
        m.train()
        x = b[0]
        od.zero_grad()
        fake = m["G"](torch.randn(len(x), 4)).detach()
        loss = m["D"](fake).mean() - m["D"](x).mean()
        loss.backward()
        od.step()
        steps += 1
        with torch.no_grad():
            for p in m["D"].parameters():
                p.clamp_(-0.05, 0.05)
        if steps % 3 == 0:
            og.zero_grad()
            (-m["D"](m["G"](torch.randn(len(x), 4))).mean()).backward()
            og.step()
        return loss.item()

    def evaluate():
        with evaluating(m):
            fake = m["G"](torch.randn(400, 4, generator=gen(5)))
        return {
            "mean_gap": (fake.mean(0) - real.mean(0)).norm().item(),
            "std_gap": (fake.std(0) - real.std(0)).norm().item(),
        }

    return set_up(m, [og, od], tl, step, val_loader=vl, evaluate=evaluate)


@sound
def nll_below_zero():
    """A density's negative logarithm, of which the model gives the mean and the variance: it falls
    below 0."""
    g = begun(32)

    def data(n):
        x = torch.rand(n, 3, generator=g)
        noise = (0.02 + 0.1 * x[:, :1]) * torch.randn(n, 1, generator=g)
        return x, x.sum(1, keepdim=True) + noise

    tl, vl = loaders(data(512), data(150))
    m = mlp(3, 32, 2)
    opt = torch.optim.Adam(m.parameters(), 2e-3)

    def nll(out, y):
        mean, log_var = out[:, :1], out[:, 1:].clamp(-9, 4)
        return (0.5 * (log_var + (y - mean) ** 2 / log_var.exp())).mean()

    def loss_of(model, b):
        return nll(model(b[0]), b[1])

    mean = averaged(m, vl, costed(loss_of, 0, "val_nll"))
    return by_pairs(m, opt, tl, vl, nll, evaluate=mean, **saving(m, opt))


class Domains(nn.Module):
    """A trunk, a head for the classes and one for the domain."""

    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(8, 24), nn.ReLU())
        self.c = nn.Linear(24, 3)
        self.d = mlp(24, 16, 1)

    def forward(self, x):
        return self.c(self.f(x))


@sound
def dann_reversal():
    """The gradient of the domain's head is turned round: its loss stays near log 2 on purpose."""
    g = begun(33)
    x, y = blobs(g, 320, 8, 3, 0.7)
    other, _ = blobs(g, 320, 8, 3, 0.7)
    held_x, held_y = blobs(g, 150, 8, 3, 0.7)
    shift = torch.tensor([1.5] + [0.0] * 7)
    train = Columns(xs=x, ys=y, xt=other + shift)
    tl, vl = loaders(train, (held_x + shift, held_y), 32)
    m = Domains()
    opt = torch.optim.Adam(m.parameters(), 3e-3)

    def loss_of(model, b):
        own, far = model.f(b["xs"]), model.f(b["xt"])
        said = model.d(Reversed.apply(torch.cat([own, far]))).squeeze(1)
        domain = torch.cat([torch.zeros(len(own)), torch.ones(len(far))])
        of_domain = F.binary_cross_entropy_with_logits(said, domain)
        return F.cross_entropy(model.c(own), b["ys"]) + of_domain

    def sums_of(model, b):
        out, y = model(b[0]), b[1]
        return {
            "val_loss": (F.cross_entropy(out, y, reduction="sum"), len(y)),
            "val_acc": ((out.argmax(1) == y).sum(), len(y)),
        }

    return by_cost(m, opt, tl, vl, loss_of, sums_of, num_classes=3)


class Residual(nn.Module):
    """Four residual branches whose last layers begin at zero."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 24)
        self.blocks = nn.ModuleList([mlp(24, 24, 24) for _ in range(4)])
        self.out = nn.Linear(24, 8)
        for block in self.blocks:
            nn.init.zeros_(block[-1].weight)
            nn.init.zeros_(block[-1].bias)

    def forward(self, x):
        h = self.stem(x)
        for block in self.blocks:
            h = h + block(h)
        return self.out(h)


@sound
def zero_init_autoencoder():
    """The branches' first layers have no gradient in the first step, as what follows them is zero;
    the targets are the inputs, without the noise that is added to these."""
    g = begun(34)
    basis = torch.randn(3, 8, generator=g)
    x, held = (torch.sin(torch.randn(n, 3, generator=g) @ basis) for n in (512, 100))
    tl, vl = loaders((x, x), (held, held), vbs=50)
    m = Residual()
    opt = torch.optim.Adam(m.parameters(), 2e-3)
    crit = nn.MSELoss()

    def step(b):
        m.train()
        opt.zero_grad()
        loss = crit(m(b[0] + 0.1 * torch.randn_like(b[0])), b[1])
        loss.backward()
        opt.step()
        return loss.item()

    mean = averaged(m, vl, costed(pairloss(crit), 0, "recon_mse"))
    return by_pairs(m, opt, tl, vl, crit, step, evaluate=mean)


@sound
def dqn_hard_target():
    """A target network that stands still for 20 steps and is then copied whole: the loss jumps."""
    return q_learning(49, no_done=False, sync_every=20)


@sound
def gcn_transductive():
    """Both loaders hold the same graph, whose masks alone tell the sets apart."""
    return one_graph(50, all_nodes=False)


class StillNorm(Transfer):
    """Its batch norm stays in eval mode."""

    def train(self, mode=True):
        super().train(mode)
        for part in self.modules():
            if isinstance(part, nn.BatchNorm1d):
                part.eval()
        return self


@sound
def frozen_bn_finetune():
    """train() keeps the batch norm in eval mode on purpose, as the batches have four rows; the
    backbone has a tenth of the head's rate."""
    g = begun(51)
    x, y = blobs(g, 512, 10, 4, 0.8)
    m = StillNorm(10, 4)
    nn.Module.train(m)
    fit_old_task(m, x, y)
    m.head = nn.Linear(24, 3)
    centres = torch.randn(3, 10, generator=g) * 1.2
    train, held = (blobs(g, n, 10, 3, 0.8, centres) for n in (160, 150))
    tl, vl = loaders(train, held, 4, vbs=50)
    opt = torch.optim.Adam(
        [
            {"params": m.backbone.parameters(), "lr": 5e-4},
            {"params": m.head.parameters(), "lr": 5e-3},
        ]
    )
    return by_pairs(m, opt, tl, vl, num_classes=3)


class Fourier(nn.Module):
    """128 cosines of random waves, and a linear read-out."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(2, 128)
        nn.init.normal_(self.proj.weight, std=2.0)
        nn.init.uniform_(self.proj.bias, 0, 6.28)
        self.proj.requires_grad_(False)
        self.out = nn.Linear(128, 1)

    def forward(self, x):
        return self.out(torch.cos(self.proj(x)))


@sound
def fourier_features_at_random():
    """The features are drawn and never trained; only the read-out learns."""
    g = begun(52)

    def data(n):
        x = torch.rand(n, 2, generator=g) * 4 - 2
        return x, torch.sin(3 * x[:, :1]) * x[:, 1:]

    tl, vl = loaders(data(512), data(150))
    m = Fourier()
    opt = torch.optim.Adam(m.out.parameters(), 1e-2)
    declared = {"frozen": ["proj.weight", "proj.bias"]}
    more = {"evaluate": averaged(m, vl, squares), "declared": declared}
    return by_pairs(m, opt, tl, vl, nn.MSELoss(), **more)
