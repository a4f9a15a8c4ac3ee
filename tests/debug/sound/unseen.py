"""Twenty sound programs of many kinds, written before the doctor was tried on them."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from course.engine.loss_of import Loss
from tests.debug.faulty.unseen.kit import (
    blobs,
    both,
    dicts,
    loader,
    mlp,
    pictures,
    rows,
    series,
    stepper,
    text,
    tokens,
)
from tests.debug.faulty.unseen.pictures import GAN, Tuned, info_nce
from tests.debug.faulty.unseen.sequences import Forecaster, Reader, TinyLM, windows
from tests.debug.faulty.unseen.tables import Fit, TwoHeads, houses
from tests.debug.sound.programs import sound


@sound
def lm_tied_weights():
    train, val = both(list(text(seed=20)))
    model = TinyLM()
    model.head.weight = model.tok.weight
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    nn.init.normal_(model.tok.weight, std=0.05)

    def loss_of(model, ids):
        out = model(ids[:, :-1])
        return Loss(F.cross_entropy(out.transpose(1, 2), ids[:, 1:]), ids[:, 1:].numel())

    return dict(
        model=model, optimizer=optimizer, train_loader=train, val_loader=val, loss_of=loss_of
    )


@sound
def masked_lm():
    ids = text(seed=21)
    model = TinyLM(words=13, causal=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def collate(batch):
        ids = torch.stack(batch)
        hide = torch.rand(ids.shape) < 0.2
        return {"input_ids": ids.masked_fill(hide, 12), "labels": ids.masked_fill(~hide, -100)}

    train, val = both(list(ids), collate_fn=collate)

    def cost(batch):
        return F.cross_entropy(model(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten())

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=stepper(model, optimizer, cost),
    )


@sound
def packed_gru():
    ids, lengths, y = tokens(seed=22)

    class Packed(Reader):
        def forward(self, ids, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(
                self.emb(ids), lengths, batch_first=True, enforce_sorted=False
            )
            return self.head(self.gru(packed)[1][0])

    train, val = both(dicts(ids=ids, lengths=lengths, label=y))
    model = Packed("packed")
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=stepper(
            model, optimizer, lambda b: F.cross_entropy(model(b["ids"], b["lengths"]), b["label"])
        ),
    )


@sound
def forecast_residual():
    x, y = windows(series(seed=23))

    class Residual(Forecaster):
        def forward(self, x):
            return x[:, -1] + super().forward(x)

    train, val = loader(rows(x[:400], y[:400])), loader(rows(x[420:], y[420:]), shuffle=False)
    model = Residual()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.SmoothL1Loss(),
    )


@sound
def truncated_bptt():
    """Carried state on purpose: chunks of parallel streams, in order."""
    stream = series(16 * 200, seed=24).view(16, 200, 1)
    chunks = [(stream[:, t : t + 10], stream[:, t + 1 : t + 11]) for t in range(0, 180, 10)]

    class Carry(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(1, 16, batch_first=True), nn.Linear(16, 1)

        def forward(self, x, h=None):
            out, h = self.rnn(x, h)
            return self.head(out), h

    model = Carry()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def train(n_steps):
        losses = []
        while len(losses) < n_steps:
            h = None
            for x, y in chunks[: n_steps - len(losses)]:
                out, h = model(x, h)
                h = h.detach()
                loss = F.mse_loss(out, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
        return losses

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=chunks,
        train=train,
        loss_of=lambda m, b: Loss(F.mse_loss(m(b[0])[0], b[1]), len(b[0])),
    )


@sound
def gaussian_nll():
    """A loss that goes below zero."""
    x, y = houses(seed=25)
    train, val = both(rows(x, 0.05 * y))
    model = mlp(8, 32, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def cost(batch):
        mean, log_var = model(batch[0]).unbind(1)
        return F.gaussian_nll_loss(mean, batch[1], log_var.exp().clamp(min=1e-4))

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=stepper(model, optimizer, cost),
    )


@sound
def weighted_tasks():
    x, y = houses(seed=26)
    kind = (x[:, 4] > -0.4).long() + (x[:, 4] > 0.4).long()
    train, val = both(dicts(x=x, price=y, kind=kind))
    model = TwoHeads()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def loss_of(model, batch):
        out = model(batch["x"])
        price = F.mse_loss(out["price"], batch["price"])
        return Loss(price + 0.3 * F.cross_entropy(out["kind"], batch["kind"]), len(batch["x"]))

    return dict(
        model=model, optimizer=optimizer, train_loader=train, val_loader=val, loss_of=loss_of
    )


@sound
def gan_plain():
    data = torch.randn(384, 2) * torch.tensor([1.0, 0.3])
    model = GAN()
    opt_g = torch.optim.Adam(model.gen.parameters(), lr=1e-3, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(model.disc.parameters(), lr=1e-3, betas=(0.5, 0.9))

    def train_step(real):
        fake = model.gen(torch.randn(len(real), 4))
        d_loss = F.softplus(-model.disc(real)).mean() + F.softplus(model.disc(fake.detach())).mean()
        opt_d.zero_grad()
        d_loss.backward()
        opt_d.step()
        g_loss = F.softplus(-model.disc(fake)).mean()
        opt_g.zero_grad()
        g_loss.backward()
        opt_g.step()
        return d_loss.item()

    return dict(
        model=model, optimizer=opt_g, train_loader=loader(list(data)), train_step=train_step
    )


@sound
def simclr():
    x, _, _ = pictures(seed=27)
    x = x.flatten(1)

    def collate(batch):
        x = torch.stack(batch)
        return [x + 0.1 * torch.randn_like(x), x * (0.8 + 0.4 * torch.rand(len(x), 1))]

    train, val = both(list(x), val=64, collate_fn=collate)
    model = nn.Sequential(nn.Linear(144, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Linear(48, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=stepper(model, optimizer, lambda b: info_nce(model(b[0]), model(b[1]))),
    )


@sound
def triplets():
    x, y = blobs(seed=28)
    side = torch.arange(len(x)) >= len(x) - 128
    pos, neg = torch.empty_like(y), torch.empty_like(y)
    for i in range(len(x)):
        for like, into in ((y == y[i], pos), (y != y[i], neg)):
            choice = (like & (side == side[i])).nonzero()[:, 0]
            into[i] = choice[torch.randint(len(choice), ())]
    train, val = both(rows(x, x[pos], x[neg]))
    model = mlp(12, 32, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    crit = nn.TripletMarginLoss()

    def loss_of(model, batch):
        return Loss(crit(*(model(part) for part in batch)), len(batch[0]))

    return dict(
        model=model, optimizer=optimizer, train_loader=train, val_loader=val, loss_of=loss_of
    )


@sound
def denoiser():
    x, _, _ = pictures(seed=29)
    train, val = both(list(x), val=64)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def cost(x):
        return F.mse_loss(model(x + 0.2 * torch.randn_like(x)), x)

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=stepper(model, optimizer, cost),
    )


@sound
def frozen_backbone_groups():
    x, _, q = pictures(seed=30)
    train, val = both(rows(x, q), val=64)
    model = Tuned()
    model.backbone[0].requires_grad_(False)
    optimizer = torch.optim.SGD(
        [
            {"params": model.backbone[1].parameters(), "lr": 1e-3},
            {"params": model.head.parameters(), "lr": 5e-2},
        ],
        momentum=0.9,
    )
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.CrossEntropyLoss(label_smoothing=0.1),
        num_classes=4,
        train_step=stepper(
            model, optimizer, lambda b: F.cross_entropy(model(b[0]), b[1], label_smoothing=0.1)
        ),
    )


@sound
def autocast_clipped():
    train, val = both(rows(*blobs(seed=31)))
    model = mlp(12, 64, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    def train_step(batch):
        x, y = batch
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.CrossEntropyLoss(),
        train_step=train_step,
        num_classes=4,
    )


@sound
def whole_trainer():
    return Fit(None, 32).setup("train", "scheduler", "evaluate", "save", "load")


@sound
def weighted_sampler():
    """Rare rows are drawn more often, so a batch repeats them."""
    x, y = blobs(500, classes=3, seed=33)
    keep = (y > 0) | (torch.rand(len(y)) < 0.2)
    x, y = x[keep], y[keep]
    cut = len(x) - 96
    weight = 1 / torch.bincount(y[:cut]).float()[y[:cut]]
    sampler = torch.utils.data.WeightedRandomSampler(weight, cut)
    train = torch.utils.data.DataLoader(rows(x[:cut], y[:cut]), 32, sampler=sampler)
    val = loader(rows(x[cut:], y[cut:]), shuffle=False)
    model = mlp(12, 32, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=3,
    )


@sound
def mixup_of_rows():
    x, y = blobs(seed=34)
    train, val = both(rows(x, y))
    model = mlp(12, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def train_step(batch):
        x, y = batch
        model.train()
        order, lam = torch.randperm(len(x)), torch.distributions.Beta(0.4, 0.4).sample()
        out = model(lam * x + (1 - lam) * x[order])
        loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[order])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.CrossEntropyLoss(),
        train_step=train_step,
        num_classes=4,
    )


@sound
def actor_critic():
    contexts = torch.randn(512, 6)
    pay = contexts @ torch.randn(6, 4)
    model = nn.ModuleDict({"actor": mlp(6, 24, 4), "critic": mlp(6, 24, 1)})
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def train_step(batch):
        context, pay = batch["context"], batch["pay"]
        policy = torch.distributions.Categorical(logits=model["actor"](context))
        arm = policy.sample()
        reward = pay.gather(1, arm[:, None])[:, 0]
        value = model["critic"](context)[:, 0]
        loss = -(policy.log_prob(arm) * (reward - value.detach())).mean()
        loss = loss + F.mse_loss(value, reward) - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=loader(dicts(context=contexts, pay=pay)),
        train_step=train_step,
    )


@sound
def teacher_average():
    """Mean teacher: consistency with an average of one's own weights."""
    x, y = blobs(seed=35)
    train, val = both(rows(x, y))
    model = mlp(12, 32, 4)
    teacher = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def train_step(batch):
        x, y = batch
        out = model(x + 0.1 * torch.randn_like(x))
        soft = F.mse_loss(out.softmax(1), teacher(x).softmax(1))
        loss = F.cross_entropy(out, y) + soft
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), model.parameters(), strict=True):
                slow.lerp_(fast, 0.02)
        return loss.item()

    def save():
        return copy.deepcopy(
            {
                "model": model.state_dict(),
                "teacher": teacher.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
        )

    def load(state):
        model.load_state_dict(state["model"])
        teacher.load_state_dict(state["teacher"])
        optimizer.load_state_dict(state["optimizer"])

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=train_step,
        save=save,
        load=load,
    )


@sound
def ctc_like_counts():
    """Poisson regression of counts."""
    x, y = houses(seed=36)
    counts = torch.poisson((0.4 * y).clamp(max=3).exp())
    train, val = both(rows(x, counts))
    model = nn.Sequential(mlp(8, 32, 1), nn.Flatten(0))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.PoissonNLLLoss(),
    )


@sound
def accumulated_generator():
    x, y = blobs(seed=37)

    class Endless:
        def __iter__(self):
            while True:
                part = torch.randint(0, len(x), (32,))
                yield {"x": x[part], "y": y[part]}

    model = mlp(12, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def train_step(batch):
        optimizer.zero_grad()
        total = 0.0
        for xs, ys in zip(batch["x"].split(8), batch["y"].split(8), strict=True):
            loss = F.cross_entropy(model(xs), ys) * len(xs) / len(batch["y"])
            loss.backward()
            total += loss.item()
        optimizer.step()
        return total

    return dict(model=model, optimizer=optimizer, train_loader=Endless(), train_step=train_step)


# The rest was written with the relations that the third set asked for, against false alarms.


@sound
def adversarial_rows():
    """A first backward for the inputs' gradient; its share of the weights' is cleared."""
    train, val = both(rows(*blobs(seed=38)))
    model = mlp(12, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def train_step(batch):
        x, y = batch[0].clone().requires_grad_(), batch[1]
        F.cross_entropy(model(x), y).backward()
        worse = (x + 0.1 * x.grad.sign()).detach()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(worse), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return dict(model=model, optimizer=optimizer, train_loader=train, val_loader=val,
                train_step=train_step, num_classes=4)  # fmt: skip


@sound
def last_window_validates():
    """Each series' last window: all but its end was seen in training."""
    many = [windows(series(n=60 + 9 * s, seed=s)[-60:]) for s in range(24)]
    train = loader(rows(torch.cat([x[:-1] for x, _ in many]), torch.cat([y[:-1] for _, y in many])))
    last = rows(torch.cat([x[-1:] for x, _ in many]), torch.cat([y[-1:] for _, y in many]))
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return dict(model=model, optimizer=optimizer, train_loader=train,
                val_loader=loader(last, shuffle=False), loss_fn=nn.MSELoss())  # fmt: skip


@sound
def negatives_of_the_batch():
    """Collating gives each row the next one as its negative."""
    x, y = blobs(seed=39)

    def collate(batch):
        anchors, labels = torch.stack([a for a, _ in batch]), torch.stack([b for _, b in batch])
        return anchors, anchors.roll(1, 0), labels

    train, val = both(rows(x, y), collate_fn=collate)
    model = mlp(12, 32, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def cost(batch):
        out, other = model(batch[0]), model(batch[1])
        return F.cross_entropy(out, batch[2]) + 0.01 * F.cosine_similarity(out, other).mean()

    return dict(model=model, optimizer=optimizer, train_loader=train, val_loader=val,
                train_step=stepper(model, optimizer, cost))  # fmt: skip


@sound
def views_flipped_apart():
    """Two views of a picture, each flipped by a draw of its own."""
    x, _, _ = pictures(n=128, seed=40)

    class Views(torch.utils.data.Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            return tuple(x[i].flip(-1) if torch.rand(()) < 0.5 else x[i] for _ in range(2))

    train = loader(Views())
    model = nn.Sequential(nn.Flatten(), mlp(144, 48, 16))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def cost(batch):
        return info_nce(model(batch[0]), model(batch[1]))

    return dict(model=model, optimizer=optimizer, train_loader=train,
                train_step=stepper(model, optimizer, cost))  # fmt: skip
