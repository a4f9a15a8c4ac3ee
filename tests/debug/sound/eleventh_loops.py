"""Ten more of the eleventh set, whose loops, steps or scores look odd, by the same author."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.eleventh.kit import (
    criterion,
    deep,
    grouped,
    groups,
    markov,
    mean_cost,
    of_classes,
    rows,
    scored,
    share_right,
)
from tests.debug.faulty.sixth.kit import looped, of_pairs, setup, stepper
from tests.debug.sound.programs import sound


def classified(model, opt, loaders, step=None, **more):
    """Four classes, scored by their accuracy."""
    loader, held = loaders
    step = step or stepper(model, opt, of_classes)
    more.setdefault("evaluate", scored(model, held, "val_acc"))
    return setup(model, opt, loader, held, step=step, num_classes=4, **more)


@sound
def lbfgs_full_batch():
    """LBFGS, which evaluates its closure several times in a step, on one batch of all rows."""
    _, held = grouped(384, 192, noise=1.5)
    loader = rows(*groups(192, seed=1, noise=1.5), batch=192)
    model = deep(8, 4, 24)
    opt = torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=2)

    def loss_of(model, batch):
        return of_classes(model, batch) + 1e-3 * sum(p.pow(2).sum() for p in model.parameters())

    def step(batch):
        model.train()

        def closure():
            opt.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        return float(opt.step(closure))

    return classified(model, opt, (loader, held), step, loss_of=loss_of)


class Bootstrapped(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.predict = deep(8, 16), deep(16, 16)
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, x):
        return self.predict(self.online(x))


@sound
def byol_target_follows():
    """The network that gives the targets has no gradient, and follows the other as an average."""
    x, y = groups(384, seed=1)
    loader = rows(x)
    model = Bootstrapped()
    opt = torch.optim.Adam([*model.online.parameters(), *model.predict.parameters()], 3e-3)

    def loss_of(model, batch):
        one, other = (batch[0] + 0.3 * torch.randn_like(batch[0]) for _ in range(2))
        with torch.no_grad():
            goal, goal_of_other = model.target(one), model.target(other)
        alike = F.cosine_similarity(model(one), goal_of_other).mean()
        return 2 - alike - F.cosine_similarity(model(other), goal).mean()

    def step(batch):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step()
        with torch.no_grad():
            both = zip(model.target.parameters(), model.online.parameters(), strict=True)
            for target, online in both:
                target.lerp_(online, 0.02)
        return loss.item()

    def evaluate():
        model.eval()
        with torch.no_grad():
            z = F.normalize(model.online(x), dim=1)
        alike = (z @ z.T).fill_diagonal_(-9)
        return {
            "knn1_acc": (y[alike.argmax(1)] == y).float().mean().item(),
            "embedding_std": z.std(0).mean().item(),
        }

    frozen = [name for name, _ in model.named_parameters() if name.startswith("target")]
    return setup(
        model, opt, loader, step=step, loss_of=loss_of, evaluate=evaluate,
        declared={"frozen": frozen},
    )  # fmt: skip


@sound
def wgan_weight_clip():
    """The critic's weights are clamped behind its steps, of which there are five for one of the
    generator; the loss has no floor."""
    spread, centre = torch.tensor([0.3, 0.6]), torch.tensor([1.0, -0.5])
    real = torch.randn(512, 2, generator=gen(1)) * spread + centre
    loader = rows(real)
    model = nn.ModuleDict({"g": deep(4, 2), "critic": deep(2, 1)})
    make, critic = model["g"], model["critic"]
    opt_c = torch.optim.RMSprop(critic.parameters(), 1e-3)
    opt_g = torch.optim.RMSprop(make.parameters(), 1e-3)

    def step(batch):
        model.train()
        x = batch[0]
        for _ in range(5):
            with torch.no_grad():
                fake = make(torch.randn(len(x), 4))
            loss_c = critic(fake).mean() - critic(x).mean()
            opt_c.zero_grad()
            loss_c.backward()
            opt_c.step()
            with torch.no_grad():
                for p in critic.parameters():
                    p.clamp_(-0.1, 0.1)
        loss_g = -critic(make(torch.randn(len(x), 4))).mean()
        opt_g.zero_grad()
        loss_g.backward()
        opt_g.step()
        return loss_c.item()

    def evaluate():
        model.eval()
        with torch.no_grad():
            made = make(torch.randn(1000, 4, generator=gen(3)))
        return {"mean_gap": (made.mean(0) - real.mean(0)).norm().item()}

    return setup(model, [opt_c, opt_g], loader, step=step, evaluate=evaluate)


@sound
def warm_restarts():
    """A cosine with restarts, stepped with each batch: the rate jumps up again."""
    model = deep(8, 4)
    opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 24, 2)

    def step(batch):
        model.train()
        opt.zero_grad()
        loss = of_classes(model, batch)
        loss.backward()
        opt.step()
        scheduler.step()
        return loss.item()

    return classified(
        model, opt, grouped(384, 192, noise=1.5), step, loss_fn=criterion, scheduler=scheduler,
        declared={"scheduler_unit": "batch"},
    )  # fmt: skip


class Stateful(nn.Module):
    """Its hidden state goes on to the next batch, without its graph."""

    def __init__(self, vocab=12):
        super().__init__()
        self.embed = nn.Embedding(vocab, 24)
        self.rnn = nn.GRU(24, 32, batch_first=True)
        self.head, self.state = nn.Linear(32, vocab), None

    def forward(self, tokens):
        kept = self.state is not None and self.state.size(1) == len(tokens)
        out, state = self.rnn(self.embed(tokens), self.state if kept else None)
        self.state = state.detach()
        return self.head(out)


def pieces(tokens, length=16):
    """A long text in pieces, with what comes next at each place."""
    ends = range(0, tokens.shape[1] - 1, length)
    return [(tokens[:, i : i + length], tokens[:, i + 1 : i + length + 1]) for i in ends]


@sound
def tbptt_stateful():
    """One long text is read in its order, piece by piece, with the state of the piece before; with
    each pass it begins again."""
    loader, held = pieces(markov(8, 257, 12, 3)), pieces(markov(8, 65, 12, 4))
    model = Stateful()
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def loss_fn(out, y):
        return F.cross_entropy(out.flatten(0, 1), y.flatten())

    def step(batch):
        model.train()
        loss = loss_fn(model(batch[0]), batch[1])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        return loss.item()

    def reset():
        model.state = None

    def train(steps):
        reset()
        return looped(loader, step, reset)(steps)

    def evaluate():
        kept = model.state
        reset()
        cost = mean_cost(model, held, of_pairs(loss_fn))
        model.state = kept
        return {"val_loss": cost}

    return setup(
        model, opt, loader, held, step=step, loss_fn=loss_fn, evaluate=evaluate, num_classes=12,
        train=train, declared={"max_grad_norm": 1.0},
    )  # fmt: skip


class Accumulating:
    """A loop as a class: four micro-batches make a step."""

    def __init__(self):
        self.loaders = grouped(384, 192, batch=8, noise=1.5)
        self.model = deep(8, 4)
        self.opt = torch.optim.AdamW(self.model.parameters(), 5e-3)
        self.done = 0

    def step(self, batch):
        self.model.train()
        loss = of_classes(self.model, batch)
        (loss / 4).backward()
        self.done += 1
        if self.done % 4 == 0:
            self.opt.step()
            self.opt.zero_grad()
        return loss.item()


@sound
def accumulation_class_trainer():
    """Weights stand still in three of four calls."""
    t = Accumulating()
    return classified(
        t.model, t.opt, t.loaders, t.step, loss_fn=criterion, declared={"accumulate": 4}
    )


@sound
def sam_two_passes():
    """Weights are pushed uphill, a second gradient is taken there, and the step is made from where
    they were."""
    model = deep(8, 4)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)

    def step(batch):
        model.train()
        weights = list(model.parameters())
        opt.zero_grad()
        loss = of_classes(model, batch)
        loss.backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in weights]).norm() + 1e-12
            pushes = [p.grad * (0.05 / norm) for p in weights]
            for p, push in zip(weights, pushes, strict=True):
                p.add_(push)
        opt.zero_grad()
        of_classes(model, batch).backward()
        with torch.no_grad():
            for p, push in zip(weights, pushes, strict=True):
                p.sub_(push)
        opt.step()
        return loss.item()

    return classified(model, opt, grouped(384, 192, noise=2.0), step, loss_fn=criterion)


class Lion(torch.optim.Optimizer):
    """Every weight moves by the rate, whatever its gradient's size; decay is decoupled."""

    def __init__(self, weights, lr=1e-3, betas=(0.9, 0.99), wd=1e-2):
        super().__init__(weights, {"lr": lr, "betas": betas, "wd": wd})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            now, later = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                mean = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["wd"])
                p.add_((now * mean + (1 - now) * p.grad).sign_(), alpha=-group["lr"])
                mean.lerp_(p.grad, 1 - later)


@sound
def custom_lion_optimizer():
    """An optimizer of one's own, which steps by signs."""
    model = deep(8, 4)
    loaders = grouped(384, 192, noise=1.5)
    return classified(model, Lion(model.parameters()), loaders, loss_fn=criterion)


@sound
def semi_supervised_mean_teacher():
    """Four of five labels are -1, and ignored; what a teacher says of these rows is learned, which
    is an average of the student and is scored, too."""
    x, y = groups(384, seed=1)
    y = torch.where(torch.arange(384) % 5 == 0, y, -1)
    loader, held = rows(x, y), rows(*groups(192, seed=2), shuffle=False)
    model = nn.Sequential(nn.Linear(8, 48), nn.ReLU(), nn.Dropout(0.2), nn.Linear(48, 4))
    teacher = copy.deepcopy(model).eval().requires_grad_(False)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(model, batch):
        x, y = batch
        out = model(x)
        known = F.cross_entropy(out, y, ignore_index=-1, reduction="sum")
        with torch.no_grad():
            told = teacher(x + 0.1 * torch.randn_like(x)).softmax(1)
        return known / (y >= 0).sum().clamp(min=1) + 0.5 * F.mse_loss(out.softmax(1), told)

    def step(batch):
        model.train()
        opt.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        opt.step()
        with torch.no_grad():
            for t, p in zip(teacher.parameters(), model.parameters(), strict=True):
                t.lerp_(p, 0.05)
        return loss.item()

    def evaluate():
        return {
            "teacher_acc": share_right(teacher, held),
            "student_acc": share_right(model, held),
        }

    return classified(model, opt, (loader, held), step, loss_of=loss_of, evaluate=evaluate)


@sound
def mc_dropout_evaluation():
    """Dropout stays on in evaluation, over twenty passes by one seed, and batch norm does not."""
    model = nn.Sequential(
        nn.Linear(8, 48),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(48, 4),
    )
    loader, held = grouped(384, 192, noise=2.0)

    def evaluate():
        model.eval()
        model[3].train()
        x, y = held.dataset.tensors
        with torch.no_grad(), torch.random.fork_rng():
            torch.manual_seed(0)
            p = torch.stack([model(x).softmax(1) for _ in range(20)])
        model.train()
        return {
            "val_acc": (p.mean(0).argmax(1) == y).float().mean().item(),
            "disagreement": p.std(0).mean().item(),
        }

    opt = torch.optim.Adam(model.parameters(), 3e-3)
    return classified(model, opt, (loader, held), loss_fn=criterion, evaluate=evaluate)
