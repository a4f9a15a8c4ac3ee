"""Faults of losses and targets."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.debug.faulty.eighth.kit import gen, predict
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import loaders, mlp, numbers, setup, trained, trained_pairs


class Bayes(nn.Module):
    """The teacher: the true posterior of round clouds."""

    def __init__(self, centres, spread):
        super().__init__()
        self.register_buffer("centres", centres)
        self.spread = spread

    def forward(self, x):
        return -(torch.cdist(x, self.centres) ** 2) / (2 * self.spread**2)


@pair("missing-log-softmax")
def student_probabilities_into_kl_div(bug):
    """F.kl_div wants the student's log-probabilities and is given its probabilities: the term is
    no divergence (it goes below zero) and hardly pulls the student towards the teacher, whose
    soft answers it should copy. The twin passes log_softmax."""
    g = gen(101)
    centres = 1.3 * torch.randn(5, 8, generator=g)
    label = torch.randint(0, 5, (400,), generator=g)
    x = centres[label] + 1.5 * torch.randn(400, 8, generator=g)
    loader, held = loaders(x, label, val=100, batch=20)
    teacher = Bayes(centres, 1.5).eval()
    student = mlp(8, 5)
    opt = torch.optim.Adam(student.parameters(), 5e-3, weight_decay=1e-4)
    cfg = {"T": 2.0, "alpha": 0.9}

    def loss_of(model, batch):
        x, y = batch
        with torch.no_grad():
            soft = F.softmax(teacher(x) / cfg["T"], -1)
        out = model(x)
        mine = F.softmax(out / cfg["T"], -1) if bug else F.log_softmax(out / cfg["T"], -1)
        kd = F.kl_div(mine, soft, reduction="batchmean") * cfg["T"] ** 2
        return cfg["alpha"] * kd + (1 - cfg["alpha"]) * F.cross_entropy(out, y)

    def evaluate():
        out, y = predict(student, held)
        with torch.no_grad():
            q = F.log_softmax(torch.cat([teacher(b[0]) for b in held]), -1)
        p = F.log_softmax(out, -1)
        return {
            "accuracy": (out.argmax(1) == y).float().mean().item(),
            "kl_to_teacher": (q.exp() * (q - p)).sum(1).mean().item(),
        }

    return trained(
        student,
        opt,
        (loader, held),
        loss_of,
        num_classes=5,
        evaluate=evaluate,
        extra={"teacher": teacher},
    )


class FocalLoss(nn.Module):
    def __init__(self, gamma=2.0, alpha=None, averaged_first=False):
        super().__init__()
        self.gamma, self.averaged_first = gamma, averaged_first
        self.register_buffer("alpha", alpha)

    def forward(self, logits, target):
        ce = F.cross_entropy(
            logits, target, weight=self.alpha, reduction="mean" if self.averaged_first else "none"
        )
        pt = torch.exp(-ce)
        return ((1 - pt) ** self.gamma * ce).mean()


@pair("weighed-after-the-mean")
def focal_weight_of_the_mean(bug):
    """The focal factor (1 - p)^gamma is worked out from the batch's mean cross-entropy, so hard
    and easy rows get one and the same weight and the loss is no focal loss; near the end all
    gradients fade together. The twin takes reduction="none" and averages last."""
    g = gen(111)
    n = 440
    y = (torch.rand(n, generator=g) < 0.2).long()
    x = torch.randn(n, 6, generator=g) + 1.0 * y[:, None] * torch.tensor([1.0, -1, 1, 0, 0, 0])
    loader, held = loaders(x, y, val=120, batch=20)
    model = mlp(6, 2, 16)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    criterion = FocalLoss(averaged_first=bug)

    def evaluate():
        out, t = predict(model, held)
        pred = out.argmax(1)
        return {
            "recall_rare": (pred[t == 1] == 1).float().mean().item(),
            "accuracy": (pred == t).float().mean().item(),
        }

    return trained_pairs(model, opt, (loader, held), criterion, num_classes=2, evaluate=evaluate)


class Pinball(nn.Module):
    def __init__(self, levels, swapped):
        super().__init__()
        self.register_buffer("q", torch.tensor(levels))
        self.swapped = swapped

    def forward(self, pred, y):
        e = pred - y if self.swapped else y - pred
        return torch.maximum(self.q * e, (self.q - 1) * e).mean()


@pair("quantiles-swapped")
def pinball_with_the_other_sign(bug):
    """The pinball loss is written for e = y - prediction and given prediction - y: the column
    meant as the 10% quantile learns the 90% one and the other way round, so the interval is
    inside out and covers nothing. The twin has the sign right."""
    g = gen(121)
    x = torch.rand(480, 2, generator=g) * 2 - 1
    y = torch.sin(2 * x[:, :1]) + (0.2 + 0.4 * (x[:, 1:] + 1)) * torch.randn(480, 1, generator=g)
    loader, held = loaders(x, y, val=120, batch=30)
    model = mlp(2, 3, 24)
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    criterion = Pinball([0.1, 0.5, 0.9], bug)

    def evaluate():
        out, t = predict(model, held)
        return {
            "covered_80": ((t[:, 0] > out[:, 0]) & (t[:, 0] < out[:, 2])).float().mean().item(),
            "below_q10": (t < out[:, :1]).float().mean().item(),
        }

    return trained_pairs(
        model, opt, (loader, held), criterion, task="regression", evaluate=evaluate
    )


class Patients(Dataset):
    def __init__(self, x, time, event):
        self.x, self.time, self.event = x, time, event

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"x": self.x[i], "time": self.time[i], "event": self.event[i]}


@pair("depends-on-order")
def risk_sets_of_an_unsorted_batch(bug):
    """The Cox partial likelihood takes a running logcumsumexp for "all still at risk", which holds
    only when rows are sorted by falling time; the batch comes shuffled, so the risk sets are
    whoever stood before and the loss changes with the order of the rows. The twin sorts."""
    g = gen(131)
    n = 420
    x = torch.randn(n, 6, generator=g)
    risk = x @ torch.tensor([1.0, -0.8, 0.6, 0.0, 0.0, 0.0])
    t = -torch.log(torch.rand(n, generator=g)) * torch.exp(-risk)
    c = -torch.log(torch.rand(n, generator=g)) * 2.0
    time, event = torch.minimum(t, c), (t <= c).float()
    loader = DataLoader(Patients(x[:320], time[:320], event[:320]), 32, shuffle=True)
    held = DataLoader(Patients(x[320:], time[320:], event[320:]), 50)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1, bias=False))
    opt = torch.optim.Adam(model.parameters(), 5e-3, weight_decay=1e-4)

    def cox(model, batch):
        h, time, event = model(batch["x"])[:, 0], batch["time"], batch["event"]
        if not bug:
            order = torch.argsort(time, descending=True)
            h, event = h[order], event[order]
        at_risk = torch.logcumsumexp(h, 0)
        return -((h - at_risk) * event).sum() / event.sum().clamp(min=1)

    def evaluate():
        model.eval()
        with torch.no_grad():
            h = torch.cat([model(b["x"])[:, 0] for b in held])
        model.train()
        t, e = time[320:], event[320:]
        usable = (t[:, None] < t[None]) & (e[:, None] > 0)
        return {"c_index": (h[:, None] > h[None])[usable].float().mean().item()}

    return trained(model, opt, (loader, held), cox, evaluate=evaluate)


class TwoViews(Dataset):
    """Each source twice, under different noise."""

    def __init__(self, x, noise):
        self.x, self.noise = x, noise

    def __len__(self):
        return len(self.x)

    def view(self, x):
        return x * (0.7 + 0.6 * torch.rand(())) + self.noise * torch.randn_like(x)

    def __getitem__(self, i):
        return self.view(self.x[i]), self.view(self.x[i])


class Encoder(nn.Module):
    def __init__(self, d, h=48, out=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, out))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


@pair("compared-with-itself")
def own_similarity_in_the_denominator(bug):
    """The diagonal of the 2N x 2N similarity matrix is not masked in NT-Xent: each view competes
    with itself at the highest similarity there is, the loss cannot fall below log 2 and most of
    the gradient goes into that hopeless contest. The twin fills the diagonal with -inf."""
    g = gen(141)
    basis = torch.randn(5, 24, generator=g)
    x = torch.randn(320, 5, generator=g) @ basis / 5**0.5
    loader = DataLoader(TwoViews(x[:256], 0.6), 32, shuffle=True, drop_last=True)
    held = DataLoader(
        TensorDataset(
            x[256:] + 0.6 * torch.randn(64, 24, generator=g),
            x[256:] + 0.6 * torch.randn(64, 24, generator=g),
        ),
        32,
    )
    model = Encoder(24)
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def nt_xent(model, batch, temperature=0.2):
        z = torch.cat([model(batch[0]), model(batch[1])])
        sim = z @ z.T / temperature
        if not bug:
            sim = sim.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))
        n = len(batch[0])
        return F.cross_entropy(sim, torch.cat([torch.arange(n, 2 * n), torch.arange(n)]))

    def evaluate():
        model.eval()
        with torch.no_grad():
            a, b = (torch.cat([model(p[k]) for p in held]) for k in (0, 1))
        model.train()
        sim = a @ b.T
        return {
            "retrieval": (sim.argmax(1) == torch.arange(len(a))).float().mean().item(),
            "positive": sim.diag().mean().item(),
        }

    return trained(model, opt, (loader, held), nt_xent, evaluate=evaluate)


class Uncertain(nn.Module):
    """Two regressions on one trunk, weighed by learnt log variances (Kendall et al.)."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 32), nn.ReLU())
        self.depth, self.slope = nn.Linear(32, 1), nn.Linear(32, 1)
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        h = self.trunk(x)
        return {"depth": self.depth(h), "slope": self.slope(h)}


@pair("loss-without-price")
def task_weights_cost_nothing(bug):
    """The two tasks are weighed by exp(-s), s being learnt, but the + s that makes a large s
    costly was left out: the optimizer raises s without end, the loss goes to zero and with it
    all gradients. The twin adds the price."""
    g = gen(151)
    x = torch.randn(360, 6, generator=g)
    depth = torch.tanh(x @ torch.randn(6, 1, generator=g)) + 0.1 * torch.randn(360, 1, generator=g)
    slope = 2 * torch.sin(x[:, :1]) * x[:, 1:2] + 0.3 * torch.randn(360, 1, generator=g)
    rows = [{"x": x[i], "depth": depth[i], "slope": slope[i]} for i in range(360)]
    loader, held = DataLoader(rows[:280], 20, shuffle=True), DataLoader(rows[280:], 20)
    model = Uncertain()
    opt = torch.optim.Adam(
        [
            {
                "params": [
                    *model.trunk.parameters(),
                    *model.depth.parameters(),
                    *model.slope.parameters(),
                ],
                "lr": 3e-3,
            },
            {"params": [model.log_var], "lr": 2e-2},
        ]
    )

    def loss_of(model, batch):
        out = model(batch["x"])
        total = 0.0
        for k, name in enumerate(("depth", "slope")):
            s = model.log_var[k]
            total = total + 0.5 * torch.exp(-s) * F.mse_loss(out[name], batch[name])
            if not bug:
                total = total + 0.5 * s
        return total

    def evaluate():
        model.eval()
        err = {"depth": [], "slope": []}
        with torch.no_grad():
            for b in held:
                out = model(b["x"])
                for k in err:
                    err[k].append((out[k] - b[k]) ** 2)
        model.train()
        return {f"mse_{k}": torch.cat(v).mean().item() for k, v in err.items()}

    return trained(model, opt, (loader, held), loss_of, evaluate=evaluate)


class ActorCritic(nn.Module):
    def __init__(self, d=4, actions=3):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(d, 32), nn.Tanh())
        self.pi, self.v = nn.Linear(32, actions), nn.Linear(32, 1)

    def forward(self, s):
        h = self.trunk(s)
        return self.pi(h), self.v(h)[:, 0]


@pair("loss-through-baseline")
def advantage_keeps_its_graph(bug):
    """The advantage R - V(s) multiplies the log-probability without detach(), so the policy loss
    also pushes the critic, upwards or downwards wherever it makes the loss smaller: the value
    estimates run away from the returns. The twin detaches the advantage."""
    g = gen(161)
    s = torch.randn(320, 4, generator=g)
    w = torch.randn(4, 3, generator=g)
    reward = torch.tanh(s @ w) + 0.5  # of each action, in each state
    loader, held = loaders(s, reward, val=80, batch=40)
    model = ActorCritic()
    opt = torch.optim.Adam(model.parameters(), 4e-3)
    cfg = {"value": 0.5, "entropy": 0.01}

    def loss_of(model, batch):
        s, table = batch
        logits, v = model(s)
        dist = torch.distributions.Categorical(logits=logits)
        a = dist.sample()
        ret = table.gather(1, a[:, None])[:, 0]
        adv = ret - v
        policy = -(dist.log_prob(a) * (adv if bug else adv.detach())).mean()
        return policy + cfg["value"] * F.mse_loss(v, ret) - cfg["entropy"] * dist.entropy().mean()

    def evaluate():
        model.eval()
        with torch.no_grad():
            s, table = (torch.cat(t) for t in zip(*held, strict=True))
            logits, v = model(s)
        model.train()
        expected = (logits.softmax(1) * table).sum(1)
        return {
            "reward": table.gather(1, logits.argmax(1, True)).mean().item(),
            "value_error": (v - expected).abs().mean().item(),
        }

    return trained(model, opt, (loader, held), loss_of, evaluate=evaluate)


@pair("terminal-bootstrapped")
def q_target_goes_on_after_the_end(bug):
    """The Q-learning target adds gamma * max Q(s') for last steps too, where nothing follows (the
    buffer's next state is the next episode's first): values grow towards r / (1 - gamma) instead
    of the true return. The twin multiplies by 1 - done."""
    g = gen(171)
    rows, length, gamma = [], 6, 0.95
    while len(rows) < 480:
        at = int(torch.randint(0, 3, (1,), generator=g))
        for _ in range(12):
            a = int(torch.randint(0, 2, (1,), generator=g))
            to = min(max(at + (1 if a else -1), 0), length - 1)
            done = to == length - 1
            rows.append((at, a, 1.0 if done else 0.0, 0 if done else to, float(done)))
            at = to
            if done:
                break
    s, a, r, s2, done = (torch.tensor(c) for c in zip(*rows[:480], strict=True))
    hot = torch.eye(length)
    data = [hot[s], a, r, hot[s2], done]
    order = torch.randperm(480, generator=g)
    loader, held = loaders(*(t[order] for t in data), val=96, batch=32)
    online = nn.Sequential(nn.Linear(length, 32), nn.ReLU(), nn.Linear(32, 2))
    target = copy.deepcopy(online).requires_grad_(False)
    opt = torch.optim.Adam(online.parameters(), 3e-3)

    def td(model, batch):
        s, a, r, s2, done = batch
        with torch.no_grad():
            follows = gamma * target(s2).max(1).values
            goal = r + (follows if bug else (1 - done) * follows)
        return F.smooth_l1_loss(model(s).gather(1, a[:, None])[:, 0], goal)

    count = [0]

    def train_step(batch):
        loss = td(online, batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        count[0] += 1
        if count[0] % 10 == 0:
            target.load_state_dict(online.state_dict())
        return loss.item()

    def evaluate():
        with torch.no_grad():
            v = online(hot[: length - 1]).max(1).values
        true = gamma ** torch.arange(length - 2, -1, -1.0)
        return {"value_error": (v - true).abs().mean().item()}

    return setup(
        online,
        opt,
        loader,
        held,
        step=train_step,
        loss_of=td,
        evaluate=evaluate,
        extra={"target": target},
    )


class Faces(Dataset):
    def __init__(self, features, age):
        self.features, self.age = features, age

    def __len__(self):
        return len(self.age)

    def __getitem__(self, i):
        return {"features": self.features[i], "age": self.age[i]}


class AgeTrainer:
    def __init__(self, model, cfg, flatten):
        self.model, self.flatten = model, flatten
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=cfg["lr"], weight_decay=cfg["wd"])
        self.criterion = nn.MSELoss()

    def loss(self, model, batch):
        out = model(batch["features"])
        return self.criterion(out.squeeze(-1) if self.flatten else out, batch["age"])

    def step(self, batch):
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.model, batch)
        loss.backward()
        self.optimizer.step()
        return loss.item()


@pair("broadcast-loss")
def age_column_against_age_row(bug):
    """The network gives [n, 1], the batch's "age" is [n]: MSELoss compares every prediction with
    every age (n x n) and the network learns the mean age for everybody. The twin squeezes the
    output."""
    import warnings

    warnings.filterwarnings("ignore", message="Using a target size")
    x, y = numbers(n=480, seed=181)
    y = 1.5 * y[:, 0]
    loader = DataLoader(Faces(x[:400], y[:400]), 16, shuffle=True)
    held = DataLoader(Faces(x[400:], y[400:]), 16)
    trainer = AgeTrainer(mlp(8, 1), {"lr": 5e-3, "wd": 1e-3}, flatten=not bug)
    model = trainer.model

    def evaluate():
        model.eval()
        with torch.no_grad():
            err = torch.cat([(model(b["features"])[:, 0] - b["age"]).abs() for b in held])
        model.train()
        return {"mae": err.mean().item()}

    return setup(
        model,
        trainer.optimizer,
        loader,
        held,
        step=trainer.step,
        loss_of=trainer.loss,
        evaluate=evaluate,
    )


class Tagger(nn.Module):
    """Which of six tags a picture's features carry; any number of them."""

    def __init__(self, d, tags, squash):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, 48), nn.ReLU(), nn.Linear(48, tags))
        self.squash = squash

    def forward(self, x):
        return self.squash(self.body(x))


@pair("classes-compete")
def tags_share_one_softmax(bug):
    """Several tags may hold at once, but the model ends in a softmax over tags (BCELoss follows):
    the probabilities share a sum of one, so rows with three tags get a third each and fall below
    the threshold. The twin ends in a sigmoid."""
    g = gen(191)
    x = torch.randn(400, 12, generator=g)
    y = (x @ torch.randn(12, 6, generator=g) + 0.5 * torch.randn(400, 6, generator=g) > 0).float()
    loader, held = loaders(x, y, val=100, batch=20)
    model = Tagger(12, 6, nn.Softmax(dim=-1) if bug else nn.Sigmoid())
    opt = torch.optim.Adam(model.parameters(), 5e-3, weight_decay=1e-4)
    criterion = nn.BCELoss()

    def evaluate():
        out, t = predict(model, held)
        p, t = out > 0.5, t > 0.5
        return {
            "f1": (2 * (p & t).sum() / (p.sum() + t.sum())).item(),
            "exact": (p == t).all(1).float().mean().item(),
        }

    return trained_pairs(
        model, opt, (loader, held), criterion, task="multilabel", evaluate=evaluate
    )


class Events(Dataset):
    """A noisy line with one to three bumps; where they are and how wide, from left to right."""

    def __init__(self, n, seed, length=32):
        g = gen(seed)
        self.rows = []
        at = torch.arange(length)
        for _ in range(n):
            k = int(torch.randint(1, 4, (1,), generator=g))
            centre = (
                torch.randperm(5, generator=g)[:k].sort().values * 6
                + 3
                + 2 * torch.rand(k, generator=g)
            )
            width = 1 + torch.rand(k, generator=g)
            line = torch.exp(-(((at[None] - centre[:, None]) / width[:, None]) ** 2)).sum(0)
            self.rows.append(
                (
                    line + 0.05 * torch.randn(length, generator=g),
                    torch.stack([centre / length, width / 4], 1),
                )
            )

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def pad_events(items, most=3):
    boxes = torch.full((len(items), most, 2), -1.0)
    for i, (_, b) in enumerate(items):
        boxes[i, : len(b)] = b
    count = torch.tensor([len(b) for _, b in items])
    return {
        "line": torch.stack([a for a, _ in items]),
        "boxes": boxes,
        "real": torch.arange(most)[None] < count[:, None],
    }


class SlotNet(nn.Module):
    def __init__(self, slots=3):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 12, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool1d(2),
            nn.Flatten(),
            nn.Linear(192, 64),
            nn.ReLU(),
        )
        self.box, self.there = nn.Linear(64, 2 * slots), nn.Linear(64, slots)

    def forward(self, line):
        h = self.body(line[:, None])
        return self.box(h).view(len(line), -1, 2), self.there(h)


@pair("padding-in-the-loss", "mask-ignored")
def boxes_of_minus_one_are_regressed(bug):
    """Targets are padded with boxes of -1 up to three per picture, and the box loss runs over all
    slots: the network spends its efforts on jumping to -1, and whenever a slot is in doubt its
    box is dragged out of the picture. The twin averages over real boxes only."""
    loader = DataLoader(Events(360, 201), 20, shuffle=True, collate_fn=pad_events)
    held = DataLoader(Events(80, 202), 20, collate_fn=pad_events)
    model = SlotNet()
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(model, batch):
        box, there = model(batch["line"])
        apart = F.l1_loss(box, batch["boxes"], reduction="none").mean(-1)
        real = batch["real"].float()
        located = apart.mean() if bug else (apart * real).sum() / real.sum()
        return 5 * located + F.binary_cross_entropy_with_logits(there, real)

    def evaluate():
        model.eval()
        apart, real = [], []
        with torch.no_grad():
            for b in held:
                apart.append((model(b["line"])[0] - b["boxes"]).abs().mean(-1))
                real.append(b["real"])
        model.train()
        return {"box_error": torch.cat(apart)[torch.cat(real)].mean().item()}

    return trained(model, opt, (loader, held), loss_of, evaluate=evaluate)


class Strokes(Dataset):
    """Frames of a written word over five letters, each letter lasting two or three frames."""

    def __init__(self, n, seed, first_id, letters=5, d=8):
        g, look = gen(seed), torch.randn(letters, d, generator=gen(999))
        self.rows = []
        for _ in range(n):
            word = torch.randint(
                0, letters, (int(torch.randint(2, 5, (1,), generator=g)),), generator=g
            )
            frames = [look[c].repeat(int(torch.randint(2, 4, (1,), generator=g)), 1) for c in word]
            frames = torch.cat([f for a in frames for f in (a, torch.zeros(1, d))])
            self.rows.append(
                (frames + 0.3 * torch.randn(frames.shape, generator=g), word + first_id)
            )

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def collate_strokes(items):
    return {
        "frames": nn.utils.rnn.pad_sequence([f for f, _ in items], batch_first=True),
        "n_frames": torch.tensor([len(f) for f, _ in items]),
        "word": torch.cat([w for _, w in items]),
        "n_word": torch.tensor([len(w) for _, w in items]),
    }


class LineReader(nn.Module):
    def __init__(self, d=8, h=32, classes=6):
        super().__init__()
        self.conv = nn.Conv1d(d, h, 3, padding=1)
        self.out = nn.Linear(h, classes)

    def forward(self, frames):
        h = F.relu(self.conv(frames.transpose(1, 2))).transpose(1, 2)
        return F.log_softmax(self.out(h), -1)


@pair("wrong-targets", "labels-merged")
def first_letter_is_the_blank(bug):
    """Letters are numbered from 0 while CTCLoss keeps 0 for the blank: the first letter of the
    alphabet and "nothing here" are one class, so no word with that letter is ever read. The twin
    numbers letters from 1."""
    first = 0 if bug else 1
    loader = DataLoader(Strokes(300, 211, first), 20, shuffle=True, collate_fn=collate_strokes)
    held = DataLoader(Strokes(80, 212, first), 20, collate_fn=collate_strokes)
    model = LineReader()
    opt = torch.optim.Adam(model.parameters(), 1e-2)
    ctc = nn.CTCLoss(blank=0)

    def loss_of(model, batch):
        return ctc(
            model(batch["frames"]).transpose(0, 1),
            batch["word"],
            batch["n_frames"],
            batch["n_word"],
        )

    def evaluate():
        model.eval()
        right = total = 0
        with torch.no_grad():
            for b in held:
                best = model(b["frames"]).argmax(-1)
                words = b["word"].split(b["n_word"].tolist())
                for row, n, word in zip(best, b["n_frames"], words, strict=True):
                    path = torch.unique_consecutive(row[:n])
                    right += path[path != 0].tolist() == word.tolist()
                    total += 1
        model.train()
        return {"words_right": right / total}

    return trained(model, opt, (loader, held), loss_of, evaluate=evaluate)
