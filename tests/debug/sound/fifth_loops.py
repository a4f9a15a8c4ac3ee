"""Eleven of the fifth set: odd loops, averages and evaluations, by an author who had not read the
doctor."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.fifth.kit import (
    VAE,
    Stateful,
    TinyLM,
    Trainer,
    average_with_batch_norm,
    classes,
    counting,
    loaders,
    mlp,
)
from tests.debug.sound.programs import sound


@sound
def dqn_soft_target():
    """A target network follows slowly, is never stepped and never scored."""
    s, a = torch.randn(96, 6), torch.randint(0, 3, (96,))
    nxt, r, done = (
        s + 0.1 * torch.randn(96, 6),
        (a == s[:, :3].argmax(1)).float(),
        (torch.rand(96) < 0.2).float(),
    )
    loader = DataLoader(TensorDataset(s, a, r, nxt, done), 16, shuffle=True)
    q = mlp(6, 3)
    target = copy.deepcopy(q).requires_grad_(False)
    opt = torch.optim.Adam(q.parameters(), 3e-3)

    def train_step(batch):
        s, a, r, nxt, done = batch
        with torch.no_grad():
            goal = r + 0.9 * (1 - done) * target(nxt).gather(
                1, q(nxt).argmax(1, keepdim=True)
            ).squeeze(1)
        loss = F.smooth_l1_loss(q(s).gather(1, a[:, None]).squeeze(1), goal)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(q.parameters(), 10.0)
        opt.step()
        with torch.no_grad():
            for p, t in zip(q.parameters(), target.parameters(), strict=True):
                t.lerp_(p, 0.05)
        return loss.item()

    return dict(
        model=q, optimizer=opt, train_loader=loader, train_step=train_step, extra={"target": target}
    )


@sound
def ema_evaluated_with_buffers():
    """An average is scored; its buffers are copied, and it is saved with the rest."""
    found, average = average_with_batch_norm(buffers=True)
    kept = {"model": found["model"], "optimizer": found["optimizer"], "average": average}

    def save():
        return copy.deepcopy({name: part.state_dict() for name, part in kept.items()})

    def load(state):
        for name, part in kept.items():
            part.load_state_dict(state[name])

    return found | {"save": save, "load": load}


@sound
def trunk_shared_on_purpose():
    """Two optimizers, two heads, one trunk that both losses train."""
    x, y = classes()
    size = (x[:, 0] + x[:, 1])[:, None]
    size = (size - size.mean()) / size.std()
    tl, vl = loaders(x, y, size)
    net = nn.ModuleDict(
        {
            "trunk": nn.Sequential(nn.Linear(8, 32), nn.ReLU()),
            "kind": nn.Linear(32, 4),
            "size": nn.Linear(32, 1),
        }
    )
    opts = [
        torch.optim.Adam([*net["trunk"].parameters(), *net["kind"].parameters()], 3e-3),
        torch.optim.SGD(net["size"].parameters(), 1e-2),
    ]

    def train_step(batch):
        x, y, size = batch
        h = net["trunk"](x)
        loss = F.cross_entropy(net["kind"](h), y) + F.mse_loss(net["size"](h), size)
        for o in opts:
            o.zero_grad()
        loss.backward()
        for o in opts:
            o.step()
        return loss.item()

    return dict(model=net, optimizer=opts, train_loader=tl, val_loader=vl, train_step=train_step)


@sound
def evaluate_keeps_the_best():
    """evaluate() copies the best weights aside on purpose; training ends by restoring them."""
    x, y = classes(spread=2.0)
    tl, vl = loaders(x, y)
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    t = Trainer(model, opt, tl, vl)
    kept = {"loss": math.inf, "state": None}

    def evaluate():
        now = t.evaluate()
        if now["loss"] < kept["loss"]:
            kept.update(loss=now["loss"], state=copy.deepcopy(model.state_dict()))
        return now

    def train(steps):
        losses = []
        for _ in range(max(1, steps // 4)):
            losses += t.train(4)
            evaluate()
        model.load_state_dict(kept["state"])
        return losses

    return t.setup(train=train, evaluate=evaluate, extra={"kept": kept})


@sound
def mc_dropout_with_a_seed():
    """Dropout stays on while scoring, over ten passes from a seed of its own."""
    x, y = classes(spread=1.5)
    tl, vl = loaders(x, y)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 4))
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    @torch.no_grad()
    def evaluate():
        model.train()
        with torch.random.fork_rng():
            torch.manual_seed(5)
            right = [
                torch.stack([model(x).softmax(1) for _ in range(10)]).mean(0).argmax(1) == y
                for x, y in vl
            ]
        return {"accuracy": torch.cat(right).float().mean().item()}

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        evaluate=evaluate,
        num_classes=4,
    )


@sound
def accumulation_with_short_last():
    """Sums over a window are divided by its rows; the last window is short."""
    x, y = classes(98)
    tl, vl = loaders(x, y, batch=6)
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def train(steps):
        losses = []
        while len(losses) < steps:
            batches = list(tl)
            for i in range(0, len(batches), 4):
                window = batches[i : i + 4]
                rows = sum(len(b[1]) for b in window)
                opt.zero_grad()
                total = 0.0
                for a, b in window:
                    loss = F.cross_entropy(model(a), b, reduction="sum") / rows
                    loss.backward()
                    total += loss.item()
                opt.step()
                losses.append(total)
                if len(losses) == steps:
                    break
        return losses

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        train=train,
        num_classes=4,
        declared={"accumulate": 4},
    )


@sound
def truncated_bptt_in_order():
    """A state is carried from window to window of one series, in order."""
    wave = torch.sin(torch.arange(8 * 97) * 0.37) + torch.sin(torch.arange(8 * 97) * 0.051)
    parts = wave.view(8, 97)
    x = parts[:, :-1].reshape(8, 12, 8).transpose(0, 1).reshape(96, 8, 1)
    y = parts[:, 1:].reshape(8, 12, 8).transpose(0, 1).reshape(96, 8, 1)
    tl, vl = (
        DataLoader(TensorDataset(x[:64], y[:64]), 8),
        DataLoader(TensorDataset(x[64:], y[64:]), 8),
    )
    model = Stateful()
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def train(steps):
        losses = []
        while len(losses) < steps:
            model.h = None
            for a, b in tl:
                loss = F.mse_loss(model(a), b)
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                losses.append(loss.item())
                if len(losses) == steps:
                    break
        return losses

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.MSELoss(),
        train=train,
        task="regression",
        declared={"max_grad_norm": 1.0},
    )


@sound
def wgan_five_critic_steps():
    """Five critic steps for each of the generator's, weights clamped, losses below 0."""
    real = torch.randn(96, 2) * 0.3 + torch.tensor([2.0, -1.0])
    g, d = mlp(4, 2, 16), mlp(2, 1, 16)
    net = nn.ModuleDict({"g": g, "d": d})
    og, od = torch.optim.RMSprop(g.parameters(), 1e-3), torch.optim.RMSprop(d.parameters(), 1e-3)
    loader = DataLoader(TensorDataset(real), 16, shuffle=True)

    def train_step(batch):
        (x,) = batch
        for _ in range(5):
            od.zero_grad()
            with torch.no_grad():
                fake = g(torch.randn(len(x), 4))
            d_loss = d(fake).mean() - d(x).mean()
            d_loss.backward()
            od.step()
            with torch.no_grad():
                for p in d.parameters():
                    p.clamp_(-0.1, 0.1)
        og.zero_grad()
        d.requires_grad_(False)
        g_loss = -d(g(torch.randn(len(x), 4))).mean()
        g_loss.backward()
        d.requires_grad_(True)
        og.step()
        return {"d": d_loss.item(), "g": g_loss.item()}["d"]

    return dict(model=net, optimizer=[og, od], train_loader=loader, train_step=train_step)


@sound
def tied_lm_with_warm_up():
    """Tied weights, two groups, clipping and a warm-up by factors."""
    t = counting()
    tl, vl = loaders(t[:, :-1].contiguous(), t[:, 1:].contiguous())
    model = TinyLM()
    nn.init.normal_(model.emb.weight, std=0.2)
    model.out.weight = model.emb.weight
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}],
        5e-3,
        betas=(0.9, 0.95),
    )
    sched = torch.optim.lr_scheduler.LambdaLR(
        opt, lambda s: min(1.0, (s + 1) / 10) * max(0.1, 1 - s / 500)
    )

    def train_step(batch):
        loss = F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        return loss.item()

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        train_step=train_step,
        scheduler=sched,
        loss_fn=lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()),
        declared={"max_grad_norm": 1.0, "scheduler_unit": "batch"},
    )


@sound
def reinforce_with_baseline():
    """The loss is a surrogate, and its value means nothing."""
    s = torch.randn(96, 6)
    loader = DataLoader(TensorDataset(s), 16, shuffle=True)
    policy = mlp(6, 3)
    opt = torch.optim.Adam(policy.parameters(), 1e-2)
    run = {"baseline": 0.0}

    def train_step(batch):
        (s,) = batch
        dist = torch.distributions.Categorical(logits=policy(s))
        a = dist.sample()
        r = (a == s[:, :3].argmax(1)).float()
        loss = -(dist.log_prob(a) * (r - run["baseline"])).mean() - 0.01 * dist.entropy().mean()
        run["baseline"] = 0.9 * run["baseline"] + 0.1 * r.mean().item()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return dict(
        model=policy, optimizer=opt, train_loader=loader, train_step=train_step, extra={"run": run}
    )


@sound
def vae_kl_warm_up():
    """The KL term weighs more with every step."""
    x, _ = classes()
    tl = DataLoader(TensorDataset(x[:64]), 16, shuffle=True)
    vl = DataLoader(TensorDataset(x[64:]), 16)
    model = VAE()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    beta = {"now": 0.0}

    def train_step(batch):
        out, mu, logvar = model(batch[0])
        kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        loss = ((out - batch[0]) ** 2).sum(1).mean() + beta["now"] * kl
        opt.zero_grad()
        loss.backward()
        opt.step()
        beta["now"] = min(1.0, beta["now"] + 0.01)
        return loss.item()

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        train_step=train_step,
        extra={"beta": beta},
    )
