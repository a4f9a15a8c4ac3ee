"""Ten of the ninth set, of unusual make, by an author who had not read the doctor."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tests.debug.faulty.eighth.kit import gen, predict
from tests.debug.faulty.seventh.kit import saved, texts
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    chain,
    loaders,
    mean_loss,
    mlp,
    numbers,
    of_pairs,
    pictures,
    setup,
    small_conv,
    split,
    stepper,
    trained,
    trained_pairs,
)
from tests.debug.sound.programs import sound


class ShiftsInside(nn.Module):
    """labels are the input ids; the model shifts them itself and gives its own loss."""

    def __init__(self, vocab, d=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, d)
        self.rnn = nn.GRU(d, d, batch_first=True)
        self.head = nn.Linear(d, vocab)

    def forward(self, input_ids, labels=None):
        logits = self.head(self.rnn(self.embed(input_ids))[0])
        out = {"logits": logits}
        if labels is not None:
            out["loss"] = F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return out


@sound
def labels_are_the_input_ids():
    """The loader gives labels equal to the inputs (-100 on padding): the model shifts them by
    one, as in a well-known library. Nothing is leaked."""
    ids = texts(500, seed=601)
    rows = [{"input_ids": r, "labels": torch.where(r == 0, -100, r)} for r in ids]
    loader, held = DataLoader(rows[:420], 30, shuffle=True), DataLoader(rows[420:], 20)
    model = ShiftsInside(12)
    opt = torch.optim.AdamW(model.parameters(), 5e-3, weight_decay=0.05)

    def loss_of(model, batch):
        return model(**batch)["loss"]

    def evaluate():
        model.eval()
        total = count = 0.0
        with torch.no_grad():
            for b in held:
                n = (b["labels"][:, 1:] != -100).sum().item()
                total, count = total + n * loss_of(model, b).item(), count + n
        model.train()
        return {"nll": total / count}

    return trained(model, opt, (loader, held), loss_of, evaluate=evaluate)


@sound
def micro_batches_by_token_count():
    """Each batch is cut into four and the gradients are summed; every part is divided by the tokens
    of the whole batch, not by four, which gives exactly the whole batch's mean."""
    x = chain(n=460, length=12, seed=611)
    loader, held = loaders(x, val=80, batch=32)
    model = nn.Sequential(
        nn.Embedding(12, 24, padding_idx=0), nn.Linear(24, 48), nn.ReLU(), nn.Linear(48, 12)
    )
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def total_nll(model, ids):
        return F.cross_entropy(
            model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0, reduction="sum"
        )

    def train_step(batch):
        model.train()
        opt.zero_grad()
        tokens = (batch[0][:, 1:] != 0).sum()
        reported = 0.0
        for part in batch[0].chunk(4):
            loss = total_nll(model, part) / tokens
            loss.backward()
            reported += loss.item()
        opt.step()
        return reported

    def evaluate():
        with torch.no_grad():
            nll = sum(total_nll(model, b[0]).item() for b in held)
        return {
            "perplexity": 2.718281828 ** (nll / sum((b[0][:, 1:] != 0).sum().item() for b in held))
        }

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        evaluate=evaluate,
        loss_of=lambda m, b: total_nll(m, b[0]) / (b[0][:, 1:] != 0).sum(),
    )


@sound
def climbs_before_it_descends():
    """Sharpness-aware minimisation: the weights are pushed uphill, the gradient is taken there, the
    weights are put back, and only then comes the step. Two backward passes a step."""
    x, y = blobs(n=320, seed=621, spread=2.0)
    loader, held = loaders(x / 2, y, val=80)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    params = list(model.parameters())

    def train_step(batch):
        model.train()
        opt.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        with torch.no_grad():
            norm = torch.stack([p.grad.norm() for p in params]).norm()
            up = [0.05 * p.grad / (norm + 1e-12) for p in params]
            for p, e in zip(params, up, strict=True):
                p.add_(e)
        opt.zero_grad()
        F.cross_entropy(model(batch[0]), batch[1]).backward()
        with torch.no_grad():
            for p, e in zip(params, up, strict=True):
                p.sub_(e)
        opt.step()
        return loss.item()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        evaluate=accuracy(model, held),
    )


@sound
def lbfgs_on_the_whole_table():
    """One batch holds all training rows and L-BFGS asks for the loss several times a step through a
    closure; the same batch each time is what it wants."""
    x, y = numbers(n=400, d=6, seed=631)
    train, val = split(x, y, val=100)
    loader, held = DataLoader(train, len(train)), DataLoader(val, len(val))
    model = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 1))
    opt = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4, line_search_fn="strong_wolfe")

    def penalised(model, batch):
        decay = sum((p**2).sum() for n, p in model.named_parameters() if n.endswith("weight"))
        return F.mse_loss(model(batch[0]), batch[1]) + 1e-3 * decay

    def train_step(batch):
        def closure():
            opt.zero_grad()
            loss = penalised(model, batch)
            loss.backward()
            return loss

        return opt.step(closure).item()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_of=penalised,
        evaluate=mean_loss(model, held, of_pairs(F.mse_loss)),
    )


class Streams(IterableDataset):
    """Eight long series side by side, cut into consecutive pieces; the first of each pass is
    marked."""

    def __init__(self, series, piece):
        self.series, self.piece = series, piece

    def __len__(self):
        return (self.series.shape[1] - 1) // self.piece

    def __iter__(self):
        for k in range(len(self)):
            part = self.series[:, k * self.piece : (k + 1) * self.piece + 1]
            yield {"x": part[:, :-1, None], "y": part[:, 1:, None], "first": k == 0}


class Follower(nn.Module):
    def __init__(self, h=24):
        super().__init__()
        self.rnn, self.out = nn.GRU(1, h, batch_first=True), nn.Linear(h, 1)

    def forward(self, x, state=None):
        h, state = self.rnn(x, state)
        return self.out(h), state


@sound
def streams_read_in_order():
    """Truncated backpropagation through time: pieces come in their order, never shuffled, and the
    (detached) state goes on from piece to piece, since each is the sequel of the last; it starts
    anew where a pass starts."""
    g = gen(641)
    t = torch.arange(301)
    phase, speed = 6.28 * torch.rand(12, 1, generator=g), 0.2 + 0.3 * torch.rand(12, 1, generator=g)
    series = torch.sin(phase + speed * t) + 0.1 * torch.randn(12, 301, generator=g)
    loader = DataLoader(Streams(series[:8], 20), batch_size=None)
    held = DataLoader(Streams(series[8:], 20), batch_size=None)
    model = Follower()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    kept = {"state": None}

    def train_step(batch):
        model.train()
        start = None if batch["first"] else kept["state"]
        out, state = model(batch["x"], start)
        loss = F.mse_loss(out, batch["y"])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        kept["state"] = state.detach()
        return loss.item()

    def evaluate():
        model.eval()
        state, err = None, []
        with torch.no_grad():
            for b in held:
                out, state = model(b["x"], None if b["first"] else state)
                err.append(((out - b["y"]) ** 2).mean())
        model.train()
        return {"mse": torch.stack(err).mean().item()}

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        evaluate=evaluate,
        declared={"max_grad_norm": 1.0},
    )


class Noisy(Dataset):
    def __init__(self, x, y, noise):
        self.x, self.y, self.noise = x, y, noise

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        a, b = (self.x[i] + self.noise * torch.randn_like(self.x[i]) for _ in "ab")
        return a, b, self.y[i]


class Byol(nn.Module):
    def __init__(self, d=20, h=32, out=8):
        super().__init__()
        self.online = nn.Sequential(
            nn.Linear(d, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, out)
        )
        self.predictor = nn.Sequential(
            nn.Linear(out, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, out)
        )
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def forward(self, x):
        return self.online(x)

    @torch.no_grad()
    def follow(self, rate):
        for t, o in zip(self.target.parameters(), self.online.parameters(), strict=True):
            t.lerp_(o, rate)


@sound
def learns_from_its_own_shadow():
    """BYOL: no labels and no negatives; the online network predicts what a slow copy of itself
    says of another view. The copy gets no gradient and is no member of the optimizer, on
    purpose."""
    g = gen(651)
    y = torch.randint(0, 4, (400,), generator=g)
    x = 0.8 * torch.randn(4, 20, generator=g)[y] + torch.randn(400, 20, generator=g)
    loader = DataLoader(Noisy(x[:320], y[:320], 0.5), 40, shuffle=True)
    held = DataLoader(TensorDataset(x[320:], x[320:], y[320:]), 40)
    model = Byol()
    opt = torch.optim.Adam(
        [*model.online.parameters(), *model.predictor.parameters()], 3e-3, weight_decay=1e-5
    )

    def loss_of(model, batch):
        a, b = batch[:2]
        with torch.no_grad():
            ta, tb = model.target(a), model.target(b)
        pa, pb = model.predictor(model.online(a)), model.predictor(model.online(b))
        return 2 - F.cosine_similarity(pa, tb).mean() - F.cosine_similarity(pb, ta).mean()

    def train_step(batch):
        model.train()
        loss = loss_of(model, batch)
        opt.zero_grad()
        loss.backward()
        opt.step()
        model.follow(0.05)
        return loss.item()

    def evaluate():
        model.eval()
        with torch.no_grad():
            bank = F.normalize(model(x[:320]), dim=1)
            hits = [
                y[:320][(F.normalize(model(a), dim=1) @ bank.T).argmax(1)] == t for a, _, t in held
            ]
        model.train()
        return {"nearest_neighbour": torch.cat(hits).float().mean().item()}

    return setup(model, opt, loader, held, step=train_step, loss_of=loss_of, evaluate=evaluate)


class ReZero(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.gate = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x + self.gate * self.body(x)


@sound
def branches_begin_at_zero():
    """Each residual branch is multiplied by a learnt scalar that starts at 0, and the last layer
    starts at 0 too: in the first step most gradients are exactly 0, and then they are not."""
    x, y = numbers(n=480, d=6, seed=661)
    loader, held = loaders(x, y, val=100, batch=20)
    last = nn.Linear(16, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    model = nn.Sequential(nn.Linear(6, 16), *(ReZero(16) for _ in range(4)), last)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    return trained_pairs(model, opt, (loader, held), nn.MSELoss())


def si_snr(estimate, clean):
    """Decibels; the more the better."""
    estimate = estimate - estimate.mean(-1, keepdim=True)
    clean = clean - clean.mean(-1, keepdim=True)
    share = (
        (estimate * clean).sum(-1, keepdim=True)
        / (clean.pow(2).sum(-1, keepdim=True) + 1e-8)
        * clean
    )
    rest = estimate - share
    return 10 * torch.log10((share.pow(2).sum(-1) + 1e-8) / (rest.pow(2).sum(-1) + 1e-8))


@sound
def loss_in_negative_decibels():
    """Denoising by the negative signal-to-noise ratio: the loss is below zero and falls without a
    floor in sight; the output's scale is free, as the measure does not see it."""
    g = gen(671)
    n, t = 360, torch.arange(64) / 64
    f = 2 + 4 * torch.rand(n, 1, generator=g)
    clean = torch.sin(2 * torch.pi * (f * t + torch.rand(n, 1, generator=g)))
    noisy = clean + 0.7 * torch.randn(n, 64, generator=g)
    loader, held = loaders(noisy[:, None], clean[:, None], val=80, batch=20)
    model = nn.Sequential(
        nn.Conv1d(1, 12, 9, padding=4),
        nn.PReLU(),
        nn.Conv1d(12, 12, 9, padding=4),
        nn.PReLU(),
        nn.Conv1d(12, 1, 9, padding=4),
    )
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_fn(out, clean):
        return -si_snr(out, clean).mean()

    def evaluate():
        out, clean = predict(model, held)
        return {"db": si_snr(out, clean).mean().item()}

    return trained_pairs(model, opt, (loader, held), loss_fn, evaluate=evaluate)


class SignDescent(torch.optim.Optimizer):
    """Lion: steps by the sign of an interpolated momentum, decoupled decay."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(torch.sign(m.lerp(p.grad, 1 - b1)), alpha=-group["lr"])
                m.lerp_(p.grad, 1 - b2)


@sound
def steps_by_sign_only():
    """A home-made optimizer: all weights move by the same length each step, whatever the gradient's
    size, and the state is a single momentum."""
    x, y, _ = pictures(n=320, seed=681)
    loader, held = loaders(x, y, val=80)
    model = small_conv()
    opt = SignDescent(model.parameters(), 2e-3, weight_decay=0.01)
    return trained_pairs(
        model,
        opt,
        (loader, held),
        nn.CrossEntropyLoss(),
        num_classes=2,
        **saved(model=model, optimizer=opt),
    )


class Shadow:
    """Averaged weights, exchanged for the live ones while the block lasts."""

    def __init__(self, model, decay):
        self.model, self.decay, self.count = model, decay, 0
        self.mean = {n: p.detach().clone() for n, p in model.named_parameters()}

    @torch.no_grad()
    def update(self):
        self.count += 1
        d = min(self.decay, (1 + self.count) / (10 + self.count))
        for n, p in self.model.named_parameters():
            self.mean[n].lerp_(p, 1 - d)

    @torch.no_grad()
    def exchange(self):
        for n, p in self.model.named_parameters():
            live = p.clone()
            p.copy_(self.mean[n])
            self.mean[n].copy_(live)

    def __enter__(self):
        self.exchange()

    def __exit__(self, *error):
        self.exchange()

    def state_dict(self):
        return {"mean": {n: m.clone() for n, m in self.mean.items()}, "count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]
        for n, m in self.mean.items():
            m.copy_(state["mean"][n])


@sound
def averaged_weights_lent_for_evaluation():
    """evaluate() exchanges the live weights for averaged ones and back; the decay is warmed up, so
    the average is of use from early on. Afterwards the model is bit for bit what it was."""
    x, y = blobs(n=360, d=10, k=4, seed=691, spread=1.8)
    loader, held = loaders(x / 2, y, val=80)
    model = nn.Sequential(
        nn.Linear(10, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4)
    )
    opt = torch.optim.AdamW(model.parameters(), 5e-3, weight_decay=0.05)
    shadow = Shadow(model, 0.98)
    plain = stepper(model, opt, of_pairs(F.cross_entropy))

    def train_step(batch):
        loss = plain(batch)
        shadow.update()
        return loss

    def evaluate():
        with shadow:
            return accuracy(model, held)()

    return setup(
        model,
        opt,
        loader,
        held,
        step=train_step,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        evaluate=evaluate,
        **saved(model=model, optimizer=opt, shadow=shadow),
    )
