"""Bugs in the data: what is stored, joined, shuffled, augmented."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

from tests.debug.faulty.fourth.kit import accuracy, batches, blobs, mlp
from tests.debug.faulty.kit import pair


@pair("dataset-changes-itself")
def inplace_noise(bug):
    """Noise is added in place: the stored data and the clean target drift with it."""
    z = torch.randn(256, 4)
    data = torch.tanh(z @ torch.randn(4, 20))

    class Noisy(Dataset):
        def __init__(self, x):
            self.x = x

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            x = self.x[i]
            if bug:
                noisy = x
                noisy += 0.3 * torch.randn_like(x)
            else:
                noisy = x + 0.3 * torch.randn_like(x)
            return noisy, x

    model = mlp(20, 32, 20)
    return dict(
        model=model,
        loss_fn=nn.MSELoss(),
        optimizer=torch.optim.Adam(model.parameters(), 3e-3),
        train_loader=DataLoader(Noisy(data[:192]), batch_size=32, shuffle=True),
        val_loader=DataLoader(Noisy(data[192:]), batch_size=32),
    )


@pair("labels-shuffled")
def shuffled_apart(bug):
    """Features and labels are shuffled by two different permutations."""
    torch.manual_seed(7)  # as first written; of eight data sets drawn, two are not told apart
    x, y = blobs(384)
    x, y = x.numpy(), y.numpy()
    rng = np.random.default_rng(0)
    if bug:
        rng.shuffle(x[:256])
        rng.shuffle(y[:256])
    else:
        p = rng.permutation(256)
        x[:256], y[:256] = x[:256][p], y[:256][p]
    x, y = torch.from_numpy(x), torch.from_numpy(y)
    model = mlp(10, 24, 3)
    val = batches(x[256:], y[256:], shuffle=False)
    return dict(
        model=model,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=3,
        val_loader=val,
        optimizer=torch.optim.Adam(model.parameters(), 3e-3),
        train_loader=batches(x[:256], y[:256]),
        evaluate=accuracy(model, val),
    )


@pair("target-in-inputs")
def window_holds_target(bug):
    """Forecasting: the window's last value is the target."""
    t = torch.arange(420.0)
    s = torch.sin(t / 5) + 0.5 * torch.sin(t / 13) + 0.2 * torch.randn(420)
    T = 16
    gap = T - 1 if bug else T
    x = torch.stack([s[i : i + T] for i in range(400)]).unsqueeze(-1)
    y = torch.stack([s[i + gap] for i in range(400)]).unsqueeze(-1)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.GRU(1, 16, batch_first=True)
            self.out = nn.Linear(16, 1)

        def forward(self, x):
            return self.out(self.rnn(x)[0][:, -1])

    model = Net()
    return dict(
        model=model,
        loss_fn=nn.MSELoss(),
        optimizer=torch.optim.Adam(model.parameters(), 5e-3),
        train_loader=batches(x[:300], y[:300]),
        val_loader=batches(x[320:], y[320:], shuffle=False),
    )


class GraphNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.nb = nn.Linear(4, 16), nn.Linear(4, 16)
        self.own2, self.nb2 = nn.Linear(16, 16), nn.Linear(16, 16)
        self.out = nn.Linear(16, 2)

    def gather(self, h, edges):
        total = torch.zeros_like(h).index_add_(0, edges[1], h[edges[0]])
        degree = torch.zeros(len(h)).index_add_(0, edges[1], torch.ones(edges.shape[1]))
        return total / degree.clamp(min=1).unsqueeze(1)

    def forward(self, b):
        e = b["edge_index"]
        h = torch.relu(self.own(b["x"]) + self.nb(self.gather(b["x"], e)))
        h = torch.relu(self.own2(h) + self.nb2(self.gather(h, e)))
        g = int(b["graph"].max()) + 1
        pooled = torch.zeros(g, 16).index_add_(0, b["graph"], h)
        return self.out(pooled / torch.bincount(b["graph"], minlength=g).unsqueeze(1))


@pair("rows-mixed")
def edges_inside_the_first_graph(bug):
    """Graphs are joined without offsetting their edges: all messages run inside the first graph."""
    graphs = []
    for _ in range(160):
        n = int(torch.randint(5, 9, ()))
        y = int(torch.randint(2, ()))
        x = torch.randn(n, 4)
        e = torch.randint(n, (2, 2 * n))
        x[:, 1] += (2 * y - 1) * 0.8
        graphs.append((x, e, y))

    def collate(items):
        edges, start = [], 0
        for x, e, _ in items:
            edges.append(e if bug else e + start)
            start += len(x)
        return {
            "x": torch.cat([g[0] for g in items]),
            "edge_index": torch.cat(edges, 1),
            "graph": torch.repeat_interleave(
                torch.arange(len(items)), torch.tensor([len(g[0]) for g in items])
            ),
            "y": torch.tensor([g[2] for g in items]),
        }

    model = GraphNet()
    return dict(
        model=model,
        loss_of=lambda m, b: F.cross_entropy(m(b), b["y"]),
        num_classes=2,
        optimizer=torch.optim.Adam(model.parameters(), 5e-3),
        train_loader=DataLoader(graphs[:120], batch_size=16, shuffle=True, collate_fn=collate),
        val_loader=DataLoader(graphs[120:], batch_size=16, collate_fn=collate),
    )


@pair("augmentation-mismatch")
def mask_not_flipped(bug):
    """Segmentation: the image is flipped and its mask is not."""

    class Cells(Dataset):
        def __init__(self, n, train, seed):
            g = torch.Generator().manual_seed(seed)
            self.train = train
            self.m = torch.zeros(n, 1, 12, 12)
            for m in self.m:
                r, c = torch.randint(0, 8, (2,), generator=g).tolist()
                m[0, r : r + 4, c : c + 3] = 1
            self.x = self.m * 1.5 + 0.5 * torch.randn(n, 1, 12, 12, generator=g)

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            x, m = self.x[i], self.m[i]
            if self.train and torch.rand(()) < 0.5:
                x = x.flip(-1)
                if not bug:
                    m = m.flip(-1)
            return x, m

    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 3, padding=1))
    val = DataLoader(Cells(48, False, 2), batch_size=16)

    def evaluate():
        model.eval()
        inter = union = 0
        with torch.no_grad():
            for x, m in val:
                p = model(x) > 0
                inter += (p & (m > 0)).sum().item()
                union += (p | (m > 0)).sum().item()
        model.train()
        return {"iou": inter / max(union, 1)}

    return dict(
        model=model,
        loss_fn=nn.BCEWithLogitsLoss(),
        optimizer=torch.optim.Adam(model.parameters(), 1e-2),
        train_loader=DataLoader(Cells(128, True, 1), batch_size=16, shuffle=True),
        val_loader=val,
        evaluate=evaluate,
    )


@pair("wrong-targets", "labels-shuffled")
def mixup_swapped(bug):
    """Mixup: lam goes to the permuted label and 1 - lam to the example's own."""
    x, y = blobs(384, c=4)
    model = mlp(10, 32, 4)
    opt = torch.optim.Adam(model.parameters(), 3e-3)
    val = batches(x[256:], y[256:], shuffle=False)

    def train_step(batch):
        model.train()
        x, y = batch
        lam = torch.distributions.Beta(0.3, 0.3).sample().item()
        lam = max(lam, 1 - lam)
        p = torch.randperm(len(x))
        out = model(lam * x + (1 - lam) * x[p])
        a, b = (y[p], y) if bug else (y, y[p])
        loss = lam * F.cross_entropy(out, a) + (1 - lam) * F.cross_entropy(out, b)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss.item()

    return dict(
        model=model,
        optimizer=opt,
        train_loader=batches(x[:256], y[:256]),
        val_loader=val,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        train_step=train_step,
        evaluate=accuracy(model, val),
    )
