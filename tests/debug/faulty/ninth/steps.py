"""Faults of steps."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.eighth.kit import gen, predict
from tests.debug.faulty.kit import pair
from tests.debug.faulty.seventh.kit import saved
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    mlp,
    numbers,
    setup,
    trained_pairs,
)


class HalfTrainer:
    """Mixed precision with a loss scale, and a limit on the gradient's norm."""

    def __init__(self, model, cfg, unscale_first):
        self.model, self.cfg, self.unscale_first = model, cfg, unscale_first
        self.optimizer = torch.optim.SGD(model.parameters(), lr=cfg["lr"], momentum=0.9)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=cfg["scale"], growth_interval=10**6)

    def step(self, batch):
        self.model.train()
        self.optimizer.zero_grad()
        x, y = batch
        with torch.autocast("cpu", dtype=torch.float16):
            loss = F.cross_entropy(self.model(x).float(), y)
        self.scaler.scale(loss).backward()
        if self.unscale_first:
            self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg["max_norm"])
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss.item()


@pair("clip-misplaced")
def clips_the_scaled_gradient(bug):
    """clip_grad_norm_ is called on gradients that still carry the loss scale of 512: they are cut
    to norm 1 and then divided by 512, so every update is hundreds of times too small and nothing
    is learnt. The twin calls scaler.unscale_ first."""
    x, y = blobs(n=320, d=10, k=4, seed=401, spread=1.5)
    loader, held = loaders(x / 2, y, val=80)
    model = mlp(10, 4)
    trainer = HalfTrainer(model, {"lr": 0.05, "max_norm": 1.0, "scale": 512.0}, not bug)
    return setup(
        model,
        trainer.optimizer,
        loader,
        held,
        step=trainer.step,
        num_classes=4,
        evaluate=accuracy(model, held),
        declared={"max_grad_norm": 1.0},
        extra={"scaler": trainer.scaler},
    )


class Average:
    """A moving average of a model's weights, kept in a copy of it."""

    def __init__(self, model, decay, buffers):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay, self.buffers = decay, buffers

    @torch.no_grad()
    def update(self, source):
        for mine, theirs in zip(self.model.parameters(), source.parameters(), strict=True):
            mine.lerp_(theirs, 1 - self.decay)
        if self.buffers:
            for mine, theirs in zip(self.model.buffers(), source.buffers(), strict=True):
                mine.copy_(theirs)


@pair("average-without-statistics")
def deployed_average_has_newborn_batchnorm(bug):
    """The averaged model that is evaluated (and shipped) averages weights only; its batch-norm
    statistics are those of the day it was copied, mean 0 and variance 1, and its answers are far
    worse than those of the trained model. The twin copies the buffers too."""
    x, y = blobs(n=400, d=8, k=4, seed=412, spread=1.2)
    x = torch.tensor([40.0, -3, 90, 5, -20, 8, 0, 60]) + x * torch.tensor(
        [4.0, 1, 9, 2, 3, 1, 5, 6]
    )
    loader, held = loaders(x, y, val=80, batch=20)
    model = nn.Sequential(
        nn.BatchNorm1d(8), nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4)
    )
    average = Average(model, 0.9, buffers=not bug)
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def train_step(batch):
        model.train()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        average.update(model)
        return loss.item()

    def evaluate():
        out, t = predict(average.model, held)
        return {"accuracy": (out.argmax(1) == t).float().mean().item()}

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        evaluate=evaluate,
        extra={"average": average.model},
        **saved(model=model, average=average.model, optimizer=opt),
    )


class Backbone(nn.Module):
    def __init__(self, d=10, h=32, classes=10):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, h), nn.ReLU())
        self.fc = nn.Linear(h, classes)

    def forward(self, x):
        return self.fc(self.features(x))


def adapt(model, classes):
    """A new head for a new problem; the features stay as they are."""
    for p in model.features.parameters():
        p.requires_grad_(False)
    model.fc = nn.Linear(model.fc.in_features, classes)
    return model


@pair("optimizer-stale-params", "optimizer-holds-another")
def head_swapped_behind_the_optimizer(bug):
    """The optimizer is made first and the head is replaced after: it holds the old head, and of the
    new one, the only part meant to learn, nothing moves. The twin adapts the model first."""
    x, y = blobs(n=320, d=10, k=3, seed=421, spread=1.5)
    loader, held = loaders(x / 2, y, val=80)
    model = Backbone()
    if bug:
        opt = torch.optim.Adam(model.parameters(), 1e-2)
        model = adapt(model, 3)
    else:
        model = adapt(model, 3)
        opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    return trained_pairs(model, opt, (loader, held), nn.CrossEntropyLoss(), num_classes=3)


class TwoTasks(nn.Module):
    """A trunk that serves an old task and gets a head for a new one."""

    def __init__(self, lock_modes):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(8, 32),
            nn.BatchNorm1d(32),
            nn.ReLU(),
            nn.Linear(32, 32),
            nn.BatchNorm1d(32),
            nn.ReLU(),
        )
        self.old, self.new = nn.Linear(32, 4), nn.Linear(32, 3)
        self.lock_modes = lock_modes

    def lock(self):
        for part in (self.trunk, self.old):
            part.requires_grad_(False)
            part.eval()
        self.locked = True

    def train(self, mode=True):
        super().train(mode)
        if self.lock_modes and getattr(self, "locked", False):
            self.trunk.eval()
            self.old.eval()
        return self

    def forward(self, x):
        return self.new(self.trunk(x))


@pair("frozen-params-drift")
def locked_trunk_keeps_counting(bug):
    """The trunk is frozen by requires_grad=False, but model.train() in each step puts its batch
    norms back to work: their running statistics move to the new task's data, and the old task,
    which was to stay as it is, breaks. The twin's train() keeps the frozen parts in eval mode."""
    old_x, old_y = blobs(n=200, seed=431)
    new_x, new_y = blobs(n=320, k=3, seed=432)
    new_x = 2.5 + 1.5 * new_x
    model = TwoTasks(lock_modes=not bug)
    first = torch.optim.Adam(model.parameters(), 1e-2)
    for i in range(60):
        rows = torch.randint(0, 200, (32,), generator=gen(i))
        first.zero_grad()
        F.cross_entropy(model.old(model.trunk(old_x[rows])), old_y[rows]).backward()
        first.step()
    model.lock()
    loader, held = loaders(new_x, new_y, val=80)
    opt = torch.optim.Adam(model.new.parameters(), 1e-2)

    def evaluate():
        found = accuracy(model, held)()
        model.eval()
        with torch.no_grad():
            found["old_task"] = (
                (model.old(model.trunk(old_x)).argmax(1) == old_y).float().mean().item()
            )
        model.train()
        return found

    frozen = [n for n, _ in model.named_parameters() if not n.startswith("new")]
    return trained_pairs(
        model,
        opt,
        (loader, held),
        nn.CrossEntropyLoss(),
        num_classes=3,
        evaluate=evaluate,
        declared={"frozen": frozen},
    )


class GAN(nn.Module):
    def __init__(self, z=4, d=2, h=32):
        super().__init__()
        self.z = z
        self.generator = nn.Sequential(
            nn.Linear(z, h), nn.LeakyReLU(0.2), nn.Linear(h, h), nn.LeakyReLU(0.2), nn.Linear(h, d)
        )
        self.critic = nn.Sequential(
            nn.Linear(d, h), nn.LeakyReLU(0.2), nn.Linear(h, h), nn.LeakyReLU(0.2), nn.Linear(h, 1)
        )


class GANTrainer:
    def __init__(self, gan, lr, clear_first):
        self.gan, self.clear_first = gan, clear_first
        self.opt_g = torch.optim.Adam(gan.generator.parameters(), lr, betas=(0.5, 0.99))
        self.opt_d = torch.optim.Adam(gan.critic.parameters(), lr, betas=(0.5, 0.99))

    def step(self, batch):
        (real,) = batch
        gan = self.gan
        fake = gan.generator(torch.randn(len(real), gan.z))

        if self.clear_first:
            self.opt_d.zero_grad()
        loss_d = (F.softplus(-gan.critic(real)) + F.softplus(gan.critic(fake.detach()))).mean()
        loss_d.backward()
        self.opt_d.step()
        if not self.clear_first:
            self.opt_d.zero_grad()

        self.opt_g.zero_grad()
        loss_g = F.softplus(-gan.critic(fake)).mean()
        loss_g.backward()
        self.opt_g.step()
        return loss_d.item() + loss_g.item()


@pair("missing-zero-grad")
def critic_cleared_at_the_wrong_place(bug):
    """The critic's gradients are cleared right after its own step; then the generator's backward
    fills them again through the critic, and the critic's next step takes that along: it is pushed
    to praise fakes as much as to tell them. The twin clears right before the critic's
    backward."""
    g = gen(441)
    angle = 6.283 * torch.rand(480, generator=g)
    real = torch.stack([1 + 1.5 * angle.cos(), angle.sin()], 1) + 0.1 * torch.randn(
        480, 2, generator=g
    )
    loader = DataLoader(TensorDataset(real), 48, shuffle=True)
    gan = GAN()
    trainer = GANTrainer(gan, 2e-3, not bug)
    fixed = torch.randn(400, 4, generator=g)

    def evaluate():
        gan.eval()
        with torch.no_grad():
            made = gan.generator(fixed)
            fakes_refused = (gan.critic(made) < 0).float().mean().item()
        gan.train()
        near = torch.cdist(made, real)
        return {
            "chamfer": (near.min(0).values.mean() + near.min(1).values.mean()).item(),
            "fakes_refused": fakes_refused,
        }

    return setup(gan, [trainer.opt_g, trainer.opt_d], loader, step=trainer.step, evaluate=evaluate)


class RunningMean:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n):
        self.total = self.total + value * n
        self.count += n

    @property
    def mean(self):
        return self.total / self.count


class LoggedTrainer:
    def __init__(self, model, cfg, as_number):
        self.model, self.as_number = model, as_number
        self.optimizer = torch.optim.Adam(model.parameters(), cfg["lr"])
        self.meter = RunningMean()

    def step(self, batch):
        self.model.train()
        x, y = batch["x"], batch["y"]
        loss = F.huber_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.meter.update(loss.item() if self.as_number else loss, len(x))
        return loss.item()


@pair("undetached-logging")
def meter_sums_live_losses(bug):
    """The meter is handed the loss tensor and adds it up: every step's graph, with all its
    activations, hangs on the running total for the whole training, and memory grows until it is
    out. The twin gives it loss.item()."""
    x, y = numbers(n=400, seed=451)
    rows = [{"x": a, "y": b} for a, b in zip(x, y, strict=True)]
    loader, held = DataLoader(rows[:320], 16, shuffle=True), DataLoader(rows[320:], 16)
    model = mlp(8, 1)
    trainer = LoggedTrainer(model, {"lr": 4e-3}, not bug)

    def evaluate():
        model.eval()
        with torch.no_grad():
            err = torch.cat([(model(b["x"]) - b["y"]).abs() for b in held])
        model.train()
        return {"mae": err.mean().item()}

    return setup(model, trainer.optimizer, loader, held, step=trainer.step, evaluate=evaluate)
