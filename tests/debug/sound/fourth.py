"""Nine of the fourth set: odd data, losses and models, written before the doctor was read."""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler, Subset

from tests.debug.faulty.fourth.kit import Dicts, accuracy, batches, blobs, markov, mlp
from tests.debug.sound.programs import sound


@sound
def simclr_in_batch_negatives():
    """Two views of each example; the others of the batch are the negatives, so rows mix."""
    x, _ = blobs(320, d=12, c=40, noise=0.3)

    class Views(Dataset):
        def __len__(self):
            return 256

        def __getitem__(self, i):
            return x[i] + 0.2 * torch.randn(12), x[i] * (torch.rand(12) > 0.1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(12, 32, 16)
            self.head = nn.Sequential(nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
            self.scale = nn.Parameter(torch.tensor(math.log(10.0)))

        def forward(self, a):
            return F.normalize(self.head(self.body(a)), dim=1)

    def loss_of(m, b):
        z = torch.cat([m(b[0]), m(b[1])])
        n = len(b[0])
        sim = z @ z.T * m.scale.exp()
        sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
        return F.cross_entropy(sim, (torch.arange(2 * n) + n) % (2 * n))

    model = Net()
    return dict(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), 3e-3, weight_decay=1e-4),
        train_loader=DataLoader(Views(), batch_size=32, shuffle=True, drop_last=True),
        loss_of=loss_of,
    )


@sound
def curriculum_easy_first():
    """The sampler opens the data from easy to hard, and the loss rises between epochs."""
    x, y = blobs(384, c=3, noise=1.2)
    centres = torch.stack([x[y == c].mean(0) for c in range(3)])
    hard = (x[:256] - centres[y[:256]]).norm(dim=1).argsort()

    class EasyFirst(Sampler):
        def __init__(self):
            self.epoch = 0

        def __iter__(self):
            self.epoch += 1
            n = min(256, 64 + 32 * self.epoch)
            yield from hard[:n][torch.randperm(n)].tolist()

        def __len__(self):
            return min(256, 64 + 32 * (self.epoch + 1))

    model = mlp(10, 24, 3, nn.Dropout(0.2))
    val = batches(x[256:], y[256:], shuffle=False)
    data = torch.utils.data.TensorDataset(x[:256], y[:256])
    return dict(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), 0.05, momentum=0.9),
        loss_fn=nn.CrossEntropyLoss(),
        train_loader=DataLoader(data, batch_size=32, sampler=EasyFirst()),
        val_loader=val,
        num_classes=3,
        evaluate=accuracy(model, val),
    )


@sound
def reinforce_bandit():
    """Rewards are drawn; the loss is a surrogate around 0 that need not fall."""
    states = torch.randn(256, 5)
    w = torch.randn(5, 4)

    def loss_of(m, b):
        dist = torch.distributions.Categorical(logits=m(b[0]))
        a = dist.sample((4,))
        pay = (b[0] @ w).softmax(1).expand(4, -1, -1).gather(2, a.unsqueeze(2)).squeeze(2)
        pay = torch.bernoulli(pay)
        others = (pay.sum(0, keepdim=True) - pay) / 3
        return -(dist.log_prob(a) * (pay - others)).mean() - 0.003 * dist.entropy().mean()

    model = mlp(5, 24, 4)

    def evaluate():
        with torch.no_grad():
            p = model(states).softmax(1)
        return {"expected_reward": (p * (states @ w).softmax(1)).sum(1).mean().item()}

    return dict(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), 1e-2),
        train_loader=batches(states),
        loss_of=loss_of,
        evaluate=evaluate,
    )


@sound
def discrete_hazard_survival():
    """Censored spells; the likelihood takes the intervals a subject was at risk in."""
    x = torch.randn(320, 6)
    t = (
        (torch.distributions.Exponential(torch.exp(0.7 * x[:, 0] - 0.5 * x[:, 2])).sample() * 3)
        .long()
        .clamp(max=7)
    )
    c = torch.randint(1, 9, (320,))
    data = Dicts(features=x, interval=torch.minimum(t, c - 1), observed=(t < c).float())

    def loss_of(m, b):
        h = m(b["features"])
        k = torch.arange(8)
        at_risk = (k <= b["interval"][:, None]).float()
        event = (k == b["interval"][:, None]).float() * b["observed"][:, None]
        bce = F.binary_cross_entropy_with_logits(h, event, reduction="none")
        return (bce * at_risk).sum(1).mean()

    model = mlp(6, 24, 8)
    nn.init.constant_(model[-1].bias, -1.5)
    return dict(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), 5e-3),
        loss_of=loss_of,
        train_loader=DataLoader(Subset(data, range(256)), batch_size=32, shuffle=True),
        val_loader=DataLoader(Subset(data, range(256, 320)), batch_size=32),
    )


@sound
def lora_on_frozen():
    """Adapters beside frozen layers; the second matrix starts at 0: the first has no gradient."""
    x, y = blobs(640, c=4)

    class LoRA(nn.Module):
        def __init__(self, base, r=2):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.a = nn.Parameter(torch.randn(r, base.in_features) / math.sqrt(base.in_features))
            self.b = nn.Parameter(torch.zeros(base.out_features, r))

        def forward(self, x):
            return self.base(x) + 2 * (x @ self.a.T) @ self.b.T

    model = nn.Sequential(
        nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4)
    )
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    for _ in range(40):
        opt.zero_grad()
        F.cross_entropy(model(x[384:]), y[384:]).backward()
        opt.step()
    model.zero_grad()
    model[0], model[2] = LoRA(model[0]), LoRA(model[2])
    shift = x[:384] @ torch.linalg.qr(torch.randn(10, 10))[0]
    trainable = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(trainable, 5e-3)

    def save(path):
        kept = {n: p for n, p in model.state_dict().items() if ".base." not in n}
        torch.save({"adapters": kept, "optimizer": opt.state_dict()}, path)

    def load(path):
        d = torch.load(path)
        missing, unexpected = model.load_state_dict(d["adapters"], strict=False)
        assert not unexpected and all(".base." in n for n in missing)
        opt.load_state_dict(d["optimizer"])

    val = batches(shift[288:], y[288:384], shuffle=False)
    return dict(
        model=model,
        optimizer=opt,
        loss_fn=nn.CrossEntropyLoss(),
        train_loader=batches(shift[:288], y[:288]),
        val_loader=val,
        save=save,
        load=load,
        num_classes=4,
        evaluate=accuracy(model, val),
    )


@sound
def truncated_bptt_tied_lm():
    """State carried on purpose over contiguous streams; embedding and head are one matrix."""
    stream = markov(8, 16 * 24 + 1, vocab=10)

    class Streams:
        def __init__(self, model, tokens):
            self.model, self.tokens = model, tokens

        def __iter__(self):
            self.model.state = None
            for i in range(0, self.tokens.shape[1] - 16, 16):
                yield self.tokens[:, i : i + 16], self.tokens[:, i + 1 : i + 17]

        def __len__(self):
            return (self.tokens.shape[1] - 1) // 16

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(10, 24)
            self.rnn = nn.GRU(24, 24, batch_first=True)
            self.out = nn.Linear(24, 10)
            self.out.weight = self.emb.weight
            self.state = None

        def forward(self, ids):
            fits = self.state is not None and self.state.shape[1] == len(ids)
            state = self.state if fits else None
            h, new = self.rnn(self.emb(ids), state)
            self.state = new.detach()
            return self.out(h)

    model = LM()
    nn.init.normal_(model.emb.weight, std=0.2)
    smooth = nn.CrossEntropyLoss(label_smoothing=0.05)
    return dict(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), 1e-2),
        num_classes=10,
        loss_fn=lambda out, y: smooth(out.transpose(1, 2), y),
        train_loader=Streams(model, stream),
        val_loader=Streams(model, markov(8, 16 * 6 + 1, vocab=10)),
    )


@sound
def uint8_segmentation_with_void():
    """uint8 images scaled inside the model; 255 marks void pixels; smaller targets."""
    x = torch.randint(0, 90, (160, 1, 16, 16))
    m = torch.zeros(160, 8, 8, dtype=torch.long)
    for i in range(160):
        r, c = torch.randint(1, 5, (2,)).tolist()
        m[i, r - 1 : r + 3, c - 1 : c + 3] = 255
        m[i, r : r + 2, c : c + 2] = 1 + i % 2
        x[i, 0, 2 * r : 2 * r + 4, 2 * c : 2 * c + 4] += 80 + 70 * (i % 2)
    x = x.to(torch.uint8)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.tensor(50.0), persistent=False)
            self.net = nn.Sequential(
                nn.Conv2d(1, 8, 3, 2, 1),
                nn.GroupNorm(2, 8),
                nn.ReLU(),
                nn.Conv2d(8, 3, 3, padding=1),
            )

        def forward(self, x):
            return self.net((x.float() - self.mean) / 50)

    model = Net()
    loss = nn.CrossEntropyLoss(weight=torch.tensor([0.2, 1.0, 1.0]), ignore_index=255)
    return dict(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), 1e-2),
        loss_fn=loss,
        num_classes=3,
        train_loader=batches(x[:128], m[:128], bs=16),
        val_loader=batches(x[128:], m[128:], bs=16, shuffle=False),
    )


@sound
def transductive_graph():
    """One graph, one batch an epoch; training and validation differ by their mask alone."""
    n = 120
    y = torch.randint(3, (n,))
    x = F.one_hot(y, 3).float() * 0.8 + torch.randn(n, 3)
    same = (y[:, None] == y[None]) & (torch.rand(n, n) < 0.12) | (torch.rand(n, n) < 0.01)
    a = (same | same.T).float()
    a.fill_diagonal_(1)
    d = a.sum(1).rsqrt()
    adj = d[:, None] * a * d[None]
    mask = torch.rand(n) < 0.5

    class GCN(nn.Module):
        def __init__(self):
            super().__init__()
            self.one, self.two = nn.Linear(3, 16), nn.Linear(16, 3)

        def forward(self, g):
            return g["adj"] @ self.two(
                F.dropout(torch.relu(g["adj"] @ self.one(g["x"])), 0.3, self.training)
            )

    def loss_of(m, g):
        return F.cross_entropy(m(g)[g["mask"]], g["y"][g["mask"]])

    model = GCN()
    graph = {"adj": adj, "x": x, "y": y}

    def evaluate():
        model.eval()
        with torch.no_grad():
            p = model(graph).argmax(1)
        model.train()
        return {"accuracy": (p == y)[~mask].float().mean().item()}

    return dict(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), 1e-2, weight_decay=5e-4),
        loss_of=loss_of,
        train_loader=[{**graph, "mask": mask}],
        val_loader=[{**graph, "mask": ~mask}],
        evaluate=evaluate,
        num_classes=3,
    )


@sound
def several_targets_with_gaps():
    """Mixture density and a multi-label head; NaN marks a gap; the loss goes below 0."""
    x = torch.randn(320, 6)
    sign = torch.randint(2, (320, 1)) * 2.0 - 1
    dose = 0.05 * torch.randn(320, 1) + sign * x[:, :1].abs() * 0.2
    tags = (x @ torch.randn(6, 4) > 0.5).float()
    tags[torch.rand(320, 4) < 0.3] = float("nan")

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Sequential(nn.Linear(6, 32), nn.Tanh())
            self.mix, self.tags = nn.Linear(32, 9), nn.Linear(32, 4)

        def forward(self, x):
            h = self.trunk(x)
            w, mu, s = self.mix(h).chunk(3, 1)
            return {
                "logw": w.log_softmax(1),
                "mu": mu,
                "sd": F.softplus(s) + 0.02,
                "tags": self.tags(h),
            }

    def loss_of(m, b):
        out = m(b["x"])
        nll = (
            -(out["logw"] + torch.distributions.Normal(out["mu"], out["sd"]).log_prob(b["dose"]))
            .logsumexp(1)
            .mean()
        )
        known = ~b["tags"].isnan()
        bce = F.binary_cross_entropy_with_logits(
            out["tags"], b["tags"].nan_to_num(), reduction="none"
        )
        return nll + (bce * known).sum() / known.sum().clamp(min=1)

    model = Net()
    data = Dicts(x=x, dose=dose, tags=tags)
    return dict(
        model=model,
        optimizer=torch.optim.Adam(model.parameters(), 5e-3),
        loss_of=loss_of,
        train_loader=DataLoader(Subset(data, range(256)), batch_size=32, shuffle=True),
        val_loader=DataLoader(Subset(data, range(256, 320)), batch_size=32),
    )
