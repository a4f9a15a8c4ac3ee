"""Pairs whose fault lies in the step."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventh.kit import saved
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    mean_loss,
    mlp,
    numbers,
    of_pairs,
    setup,
)


def corridor(n=600, length=7, seed=0):
    """Moves of a walker started at 2: the left door (0) pays 0.6, the right one (6) pays 1, each
    step costs 0.01. After a door the next state is a fresh start, as vectorised environments give
    it."""
    g = torch.Generator().manual_seed(seed)
    s = torch.randint(1, length - 1, (n,), generator=g)
    a = torch.randint(0, 2, (n,), generator=g)
    t = s + 2 * a - 1
    done = (t == 0) | (t == length - 1)
    r = torch.where(t == 0, 0.6, torch.where(t == length - 1, 1.0, -0.01))
    t = torch.where(done, torch.full_like(t, 2), t)
    eye = torch.eye(length)
    return eye[s], a, r, eye[t], done.float()


@pair("terminal-bootstrapped")
def walker_learns_values(bug):
    """The Q-learning target adds the discounted value of the next state after the end of an episode
    too, where the next state is already the next start. Costs values grow far over any possible
    return, and the near small door is preferred, for it can be taken again."""
    loader = DataLoader(TensorDataset(*corridor()), 50, shuffle=True)
    model = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 2))
    target = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 2))
    target.load_state_dict(model.state_dict())
    target.requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    gamma = 0.95

    def loss_of(m, batch):
        s, a, r, t, done = batch
        with torch.no_grad():
            ahead = target(t).amax(-1)
            aim = r + gamma * (ahead if bug else (1 - done) * ahead)
        return F.smooth_l1_loss(m(s).gather(1, a[:, None])[:, 0], aim)

    def train_step(batch):
        loss = loss_of(model, batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for p, q in zip(target.parameters(), model.parameters(), strict=True):
                p.lerp_(q, 0.1)
        return loss.item()

    def evaluate():
        with torch.no_grad():
            q = model(torch.eye(7))
        s, total, worth = 2, 0.0, 1.0
        for _ in range(20):
            s += 2 * int(q[s].argmax()) - 1
            pay = 0.6 if s == 0 else 1.0 if s == 6 else -0.01
            total, worth = total + worth * pay, worth * gamma
            if s in (0, 6):
                break
        return {"return": total, "highest_value": q[1:6].max().item()}

    return setup(
        model,
        opt,
        loader,
        step=train_step,
        loss_of=loss_of,
        evaluate=evaluate,
        extra={"target": target},
        **saved(model=model, optimizer=opt, target=target),
    )


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 32), nn.Tanh())
        self.policy, self.value = nn.Linear(32, 4), nn.Linear(32, 1)

    def forward(self, x):
        h = self.trunk(x)
        return self.policy(h), self.value(h)[:, 0]


@pair("loss-through-baseline")
def adverts_chosen(bug):
    """In REINFORCE with a learnt baseline the advantage is not detached: the policy loss drives the
    value head up by log p per step. Costs the baseline no longer is the expected reward (biased
    up), so the policy's updates are noisy and one-sided."""
    g = torch.Generator().manual_seed(8)
    x = torch.randn(256, 6, generator=g)
    pay = torch.tanh(x @ torch.randn(6, 4, generator=g)) + 0.1 * torch.randn(256, 4, generator=g)
    loader, held = loaders(x, pay, val=64, batch=32)
    model = ActorCritic()
    opt = torch.optim.Adam(model.parameters(), 1e-2)

    def loss_of(m, batch):
        context, rewards = batch
        logits, value = m(context)
        choice = torch.distributions.Categorical(logits=logits)
        action = choice.sample()
        reward = rewards.gather(1, action[:, None])[:, 0]
        advantage = reward - value if bug else reward - value.detach()
        return -(choice.log_prob(action) * advantage).mean() + 0.5 * F.mse_loss(value, reward)

    def train_step(batch):
        loss = loss_of(model, batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        with torch.no_grad():
            got, off, n = 0.0, 0.0, 0
            for a, r in held:
                logits, value = model(a)
                mean = (logits.softmax(-1) * r).sum(-1)
                got, off, n = got + mean.sum().item(), off + (value - mean).sum().item(), n + len(a)
        return {"reward": got / n, "baseline_bias": off / n}

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_of=loss_of,
        evaluate=evaluate,
        **saved(model=model, optimizer=opt),
    )


class Forgers(nn.Module):
    def __init__(self):
        super().__init__()
        self.forger = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
        self.judge = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, z):
        return self.forger(z)


@pair("loss-without-gradient")
def ring_forged(bug):
    """The generator's step judges the same detached fakes that the discriminator's step was given:
    its loss is computed, no gradient comes to the generator. Costs the generator never moves, the
    discriminator wins."""
    g = torch.Generator().manual_seed(3)
    angle = 6.2832 * torch.rand(256, generator=g)
    real = torch.stack([2 + angle.cos(), -1 + angle.sin()], 1) + 0.05 * torch.randn(
        256, 2, generator=g
    )
    loader = DataLoader(TensorDataset(real), 32, shuffle=True)
    model = Forgers()
    opt_g = torch.optim.Adam(model.forger.parameters(), 3e-3, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(model.judge.parameters(), 3e-3, betas=(0.5, 0.9))
    bce = nn.BCEWithLogitsLoss()

    def train_step(batch):
        (x,) = batch
        made = model.forger(torch.randn(len(x), 4))
        fake = made.detach()
        yes, no = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        opt_d.zero_grad()
        loss_d = bce(model.judge(x), yes) + bce(model.judge(fake), no)
        loss_d.backward()
        opt_d.step()
        opt_g.zero_grad()
        loss_g = bce(model.judge(fake if bug else made), yes)
        loss_g.backward()
        opt_g.step()
        return (loss_d + loss_g).item()

    def evaluate():
        with torch.no_grad():
            fakes = model.forger(torch.randn(256, 4, generator=torch.Generator().manual_seed(1)))
        return {
            "mean_off": (fakes.mean(0) - real.mean(0)).norm().item(),
            "spread_off": (fakes.std(0) - real.std(0)).norm().item(),
        }

    return setup(
        model,
        [opt_g, opt_d],
        loader,
        step=train_step,
        evaluate=evaluate,
        **saved(model=model, opt_g=opt_g, opt_d=opt_d),
    )


@pair("clip-misplaced")
def half_precision(bug):
    """With a GradScaler the gradients are clipped while still multiplied by the scale, then divided
    by it: a norm of 1 becomes 1/1024. Costs SGD hardly moves, max_grad_norm=1 is really 0.001."""
    x, y = blobs(n=224, k=4, spread=1.5, seed=6)
    loader, held = loaders(x, y)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loss_fn = nn.CrossEntropyLoss()

    def train_step(batch):
        model.train()
        opt.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_fn(model(batch[0]), batch[1])
        scaler.scale(loss).backward()
        if not bug:
            scaler.unscale_(opt)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=loss_fn,
        num_classes=4,
        evaluate=accuracy(model, held),
        declared={"max_grad_norm": 1.0},
        extra={"scaler": scaler},
        **saved(model=model, optimizer=opt, scaler=scaler),
    )


@pair("grads-cleared-before-step", "accum-not-divided")
def four_at_a_time(bug):
    """Gradients are to be gathered over 4 batches, but zero_grad is called at every batch: each
    update sees the last of the four only, at a quarter of its size. Costs 3 of 4 batches are thrown
    away."""
    x, y = blobs(n=288, k=4, spread=1.8, seed=7)
    loader, held = loaders(x, y, batch=8)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.2)
    loss_fn = nn.CrossEntropyLoss()
    seen = 0

    def train_step(batch):
        nonlocal seen
        model.train()
        if bug or seen % 4 == 0:
            opt.zero_grad()
        loss = loss_fn(model(batch[0]), batch[1])
        (loss / 4).backward()
        seen += 1
        if seen % 4 == 0:
            opt.step()
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=loss_fn,
        num_classes=4,
        evaluate=accuracy(model, held),
        declared={"accumulate": 4},
    )


@pair("updates-rounded-away")
def tuned_in_bfloat16(bug):
    """The whole model is cast to bfloat16 and tuned with small steps: an update under half of the
    last place of a weight is rounded away. Costs most weights never change, fine-tuning stands
    still."""
    x, y = numbers(n=288, seed=4)
    y = y + 1.5
    loader, held = loaders(x, y)
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p + 0.3 * p.sign())
    if bug:
        model = model.to(torch.bfloat16)
    opt = torch.optim.SGD(model.parameters(), 5e-4, momentum=0.0)

    def loss_of(m, batch):
        if bug:
            out = m(batch[0].to(torch.bfloat16))
        else:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = m(batch[0])
        return F.mse_loss(out.float(), batch[1])

    def train_step(batch):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step()
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_of=loss_of,
        evaluate=mean_loss(model, held, loss_of),
    )


class HeavyBall(torch.optim.Optimizer):
    def __init__(self, params, lr=0.01, momentum=0.9, own=True):
        self.own = own
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if "velocity" not in state:
                    state["velocity"] = p.grad.clone() if self.own else p.grad
                else:
                    state["velocity"].mul_(group["momentum"]).add_(p.grad)
                p.sub_(state["velocity"], alpha=group["lr"])


@pair("memory-shared")
def own_momentum(bug):
    """A hand-written momentum optimizer keeps `p.grad` itself as its first velocity (no clone);
    with zero_grad(set_to_none=False) gradient and velocity are one memory, and zeroing one wipes
    the other. Costs there is no momentum (gradient times 1.8), training is several times slower."""
    x, y = numbers(n=288, seed=5)
    loader, held = loaders(x, y)
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    opt = HeavyBall(model.parameters(), lr=0.01, momentum=0.9, own=not bug)
    loss_fn = nn.MSELoss()

    def train_step(batch):
        opt.zero_grad(set_to_none=False)
        loss = loss_fn(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=loss_fn,
        task="regression",
        evaluate=mean_loss(model, held, of_pairs(loss_fn)),
    )


class TwoHops(nn.Module):
    def __init__(self, d, k):
        super().__init__()
        self.a, self.b = nn.Linear(d, 16), nn.Linear(16, k)

    def forward(self, x, near):
        return self.b(near @ F.relu(self.a(near @ x)))


@pair("trains-on-validation")
def papers_cited(bug):
    """One graph with masks for training and held-out nodes; the loss is taken over all nodes, the
    training mask is read and not used. Costs the held-out labels are trained on, their accuracy
    means nothing."""
    g = torch.Generator().manual_seed(9)
    n, k = 90, 3
    y = torch.randint(0, k, (n,), generator=g)
    x = torch.randn(n, 8, generator=g)
    x[torch.arange(n), y] += 1.2
    link = torch.rand(n, n, generator=g) < torch.where(y[:, None] == y[None], 0.08, 0.02)
    near = ((link | link.T).float() + torch.eye(n)).clamp(max=1)
    near = near / near.sum(1, keepdim=True)
    learn = torch.rand(n, generator=g) < 0.5
    loader, held = [(x, near, y, learn)], [(x, near, y, ~learn)]
    model = TwoHops(8, k)
    opt = torch.optim.Adam(model.parameters(), 1e-2, weight_decay=1e-3)

    def loss_of(m, batch):
        a, b, labels, mask = batch
        out = m(a, b)
        if not bug:
            out, labels = out[mask], labels[mask]
        return F.cross_entropy(out, labels)

    def train_step(batch):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        with torch.no_grad():
            hit = model(x, near).argmax(-1) == y
        return {
            "train_accuracy": hit[learn].float().mean().item(),
            "accuracy": hit[~learn].float().mean().item(),
        }

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_of=loss_of,
        evaluate=evaluate,
        **saved(model=model, optimizer=opt),
    )


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2)
        )

    def forward(self, x, t):
        return self.net(torch.cat([x, t[:, None] / 50], 1))


@pair("same-draws", "rng-reseeded")
def moons_diffused(bug):
    """The step makes its generator anew with a fixed seed ("for reproducibility"): every batch gets
    the same 16 noises and the same 16 times. Costs the denoiser learns those 16 and fails at all
    other noise."""
    g = torch.Generator().manual_seed(2)
    angle = 3.1416 * torch.rand(288, generator=g)
    x = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(288, 2, generator=g)
    loader = DataLoader(TensorDataset(x[:256]), 16, shuffle=True)
    kept = torch.cumprod(1 - torch.linspace(1e-3, 0.15, 50), 0)
    model = Denoiser()
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    running = torch.Generator().manual_seed(0)

    def noised_loss(m, clean, draws):
        t = torch.randint(0, 50, (len(clean),), generator=draws)
        noise = torch.randn(clean.shape, generator=draws)
        a = kept[t][:, None]
        return F.mse_loss(m(a.sqrt() * clean + (1 - a).sqrt() * noise, t), noise)

    def loss_of(m, batch):
        return noised_loss(m, batch[0], torch.Generator().manual_seed(0) if bug else running)

    def train_step(batch):
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step()
        return loss.item()

    def evaluate():
        draws = torch.Generator().manual_seed(77)
        with torch.no_grad():
            far = [noised_loss(model, x[256:], draws).item() for _ in range(8)]
        return {"loss": sum(far) / 8}

    return setup(model, opt, loader, step=train_step, loss_of=loss_of, evaluate=evaluate)
