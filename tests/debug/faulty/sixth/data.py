"""Faults of the data: what is drawn, how it is joined, what it gives away."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.data import (
    DataLoader,
    Dataset,
    DistributedSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
)

from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    looped,
    mean_loss,
    mlp,
    of_pairs,
    pictures,
    sentences,
    setup,
    small_conv,
    split,
    stepper,
)


@pair("few-examples-drawn")
def class_weights_for_the_sampler(bug):
    """Sampler weights per class where one per example is due: only the first few are drawn."""
    x, y = blobs(200)
    keep = (y != 3) | (torch.arange(200) % 5 == 0)
    train, val = split(x[keep], y[keep])
    labels = train.tensors[1]
    per_class = 1.0 / torch.bincount(labels, minlength=4)
    weights = per_class if bug else per_class[labels]
    loader = DataLoader(train, 16, sampler=WeightedRandomSampler(weights, len(train)))
    model = mlp()
    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held := DataLoader(val, 16),
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        evaluate=accuracy(model, held),
    )


class Shifted(Dataset):
    """Pictures moved by up to two pixels, drawn at each access."""

    def __init__(self, images, labels, reseeded):
        self.images, self.labels, self.reseeded = images, labels, reseeded

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(42) if self.reseeded else None
        down, right = torch.randint(-2, 3, (2,), generator=g).tolist()
        image = torch.roll(self.images[i], (down, right), (1, 2))
        return image + 0.3 * torch.randn(image.shape, generator=g), self.labels[i]


@pair("same-draws")
def reseeded_augmentation(bug):
    """The augmentation is seeded inside __getitem__: the same shift and noise every time."""
    images, y, _ = pictures(120)
    train, val = split(images, y, val=80)
    model = nn.Sequential(nn.Flatten(), *mlp(64, 2))
    loader = DataLoader(Shifted(*train.tensors, bug), 16, shuffle=True)
    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held := DataLoader(val, 16),
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
        evaluate=accuracy(model, held),
    )


class Reader(nn.Module):
    """GRU over packed sequences, which must come longest first."""

    def __init__(self, vocab=12, k=2):
        super().__init__()
        self.embed, self.gru = nn.Embedding(vocab, 12), nn.GRU(12, 24, batch_first=True)
        self.head = nn.Linear(24, k)

    def forward(self, x):
        lengths = (x != 0).sum(1)
        packed = pack_padded_sequence(self.embed(x), lengths, batch_first=True)
        return self.head(self.gru(packed)[1][-1])


@pair("labels-shuffled")
def collate_sorts_only_inputs(bug):
    """Collation sorts the sequences by length and leaves the labels in the old order."""
    x, _ = sentences(160)
    y = ((x > 6).sum(1) > ((x > 0) & (x <= 6)).sum(1)).long()

    def collate(batch):
        xs, ys = torch.stack([b[0] for b in batch]), torch.stack([b[1] for b in batch])
        order = (xs != 0).sum(1).argsort(descending=True)
        return xs[order], (ys if bug else ys[order])

    train, val = split(x, y)
    loader = DataLoader(train, 16, shuffle=True, collate_fn=collate)
    model = Reader()
    return setup(
        model,
        torch.optim.Adam(model.parameters(), 1e-2),
        loader,
        held := DataLoader(val, 16, collate_fn=collate),
        num_classes=2,
        loss_fn=nn.CrossEntropyLoss(),
        evaluate=accuracy(model, held),
    )


@pair("labels-renamed")
def label_names_numbered_per_split(bug):
    """Each split numbers its own label names: a class missing from val shifts its codes."""
    x, y = blobs(160, k=5)
    names = ["ant", "bee", "cat", "dog", "elk"]
    order = torch.cat([torch.nonzero(y == 0)[:, 0], torch.nonzero(y != 0)[:, 0]])
    x, y = x[order], y[order]  # the 32 last, taken for val, hold no ant
    words = [names[i] for i in y.tolist()]

    def codes(part, known):
        known = sorted(set(known))
        return torch.tensor([known.index(w) for w in part])

    train_y = codes(words[:-32], words[:-32])
    val_y = codes(words[-32:], words[-32:] if bug else words[:-32])
    loader = DataLoader(TensorDataset(x[:-32], train_y), 16, shuffle=True)
    held = DataLoader(TensorDataset(x[-32:], val_y), 16)
    model = mlp(8, 5)
    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=5,
        evaluate=accuracy(model, held),
    )


class Graphs(nn.Module):
    def __init__(self):
        super().__init__()
        self.into, self.pass_on = nn.Linear(4, 16), nn.Linear(16, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, nodes, edges, graph):
        h = torch.relu(self.into(nodes))
        for _ in range(2):
            h = h + torch.relu(
                torch.zeros_like(h).index_add(0, edges[1], self.pass_on(h)[edges[0]])
            )
        return self.out(h.new_zeros(int(graph.max()) + 1, 16).index_add(0, graph, h))


def graph_list(n=96):
    g = torch.Generator().manual_seed(3)
    made = []
    for _ in range(n):
        k = int(torch.randint(4, 8, (1,), generator=g))
        nodes = torch.randn(k, 4, generator=g)
        edges = torch.randint(0, k, (2, 2 * k), generator=g)
        target = (nodes[edges[0], 0] * nodes[edges[1], 1]).sum() / k
        made.append((nodes, edges, target))
    return made


@pair("rows-mixed")
def graphs_joined_without_offsets(bug):
    """Graphs are joined without moving the node numbers of their edges."""

    def collate(batch):
        sizes = torch.tensor([len(nodes) for nodes, _, _ in batch])
        starts = torch.zeros_like(sizes) if bug else sizes.cumsum(0) - sizes
        edges = torch.cat([e + s for (_, e, _), s in zip(batch, starts, strict=True)], 1)
        graph = torch.repeat_interleave(torch.arange(len(batch)), sizes)
        targets = torch.stack([t for _, _, t in batch])[:, None]
        return (torch.cat([nodes for nodes, _, _ in batch]), edges, graph), targets

    made = graph_list()
    loader = DataLoader(made[:72], 12, shuffle=True, collate_fn=collate)
    held = DataLoader(made[72:], 12, collate_fn=collate)
    model = Graphs()

    def loss_of(net, batch):
        return F.mse_loss(net(*batch[0]), batch[1])

    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held,
        loss_of=loss_of,
        evaluate=mean_loss(model, held, loss_of),
    )


@pair("target-in-inputs")
def window_holds_its_target(bug):
    """The window of a forecast holds the value that is to be forecast."""
    t = torch.arange(240) / 6
    series = torch.sin(t) + 0.5 * torch.sin(2.3 * t) + 0.3 * torch.randn(240)
    windows = series.unfold(0, 9, 1)
    x, y = (windows[:, 1:] if bug else windows[:, :-1]), windows[:, -1:]
    loader, held = loaders(x, y, val=60)
    model = mlp(8, 1)
    loss_fn = nn.MSELoss()
    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held,
        loss_fn=loss_fn,
        evaluate=mean_loss(model, held, of_pairs(loss_fn)),
    )


@pair("same-order")
def sampler_without_set_epoch(bug):
    """Set_epoch is never called: each rank sees the same half of the data in every epoch."""
    x, y = blobs(128, spread=2.5)
    train, val = split(x, y)
    sampler = DistributedSampler(train, num_replicas=2, rank=0, shuffle=True, seed=1)
    loader = DataLoader(train, 8, sampler=sampler)
    held = DataLoader(val, 16)
    model = mlp()
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_fn = nn.CrossEntropyLoss()
    step = stepper(model, opt, of_pairs(loss_fn))

    def next_epoch():
        if not bug:
            sampler.set_epoch(sampler.epoch + 1)

    return setup(
        model,
        opt,
        loader,
        held,
        loss_fn=loss_fn,
        num_classes=4,
        train_step=step,
        train=looped(loader, step, next_epoch),
        evaluate=accuracy(model, held),
    )


@pair("augmented-validation")
def validation_is_augmented(bug):
    """Validation is a split of the augmented dataset: it is shifted and noised too."""
    images, y, _ = pictures(96)
    augmented, plain = Shifted(images, y, False), TensorDataset(images, y)
    order = torch.randperm(96, generator=torch.Generator().manual_seed(1)).tolist()
    loader = DataLoader(Subset(augmented, order[:64]), 16, shuffle=True)
    held = DataLoader(Subset(augmented if bug else plain, order[64:]), 16)
    model = small_conv()
    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=2,
        evaluate=accuracy(model, held),
    )
