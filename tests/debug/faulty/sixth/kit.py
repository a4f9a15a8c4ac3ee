"""What the programs of the sixth and seventh sets share: small data, small networks, a loop."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def blobs(n=128, d=8, k=4, seed=0, spread=1.0):
    """Classes round their centres, in random order: [n, d], [n]."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, k, (n,), generator=g)
    centres = 2 * torch.randn(k, d, generator=g)
    return centres[y] + spread * torch.randn(n, d, generator=g), y


def numbers(n=128, d=8, seed=0):
    """A smooth function of the inputs with some noise: [n, d], [n, 1]."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=g)
    w = torch.randn(d, 1, generator=g)
    return x, torch.tanh(x @ w) + 0.1 * torch.randn(n, 1, generator=g)


def pictures(n=96, size=8, seed=0):
    """One bright bar per picture, lying (0) or standing (1), and where it is: images, labels,
    masks."""
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 2, (n,), generator=g)
    at = torch.randint(1, size - 1, (n,), generator=g)
    masks = torch.zeros(n, size, size)
    for i in range(n):
        masks[i, at[i], 1:6] = 1
        if y[i]:
            masks[i] = masks[i].T.clone()
    return masks[:, None] + 0.3 * torch.randn(n, 1, size, size, generator=g), y, masks


def sentences(n=96, length=10, vocab=12, seed=0):
    """Token ids padded with 0 behind a random length; at least one place is padding."""
    g = torch.Generator().manual_seed(seed)
    x = torch.randint(1, vocab, (n, length), generator=g)
    lengths = torch.randint(3, length, (n,), generator=g)
    x[torch.arange(length)[None] >= lengths[:, None]] = 0
    return x, lengths


def chain(n=96, length=10, vocab=12, seed=0):
    """Sentences of a language: each token mostly follows from the last. Padded with 0."""
    g = torch.Generator().manual_seed(seed)
    follows = torch.randperm(vocab - 1, generator=g) + 1
    x = torch.randint(1, vocab, (n, length), generator=g)
    for t in range(1, length):
        keep = torch.rand(n, generator=g) < 0.85
        x[:, t] = torch.where(keep, follows[x[:, t - 1] - 1], x[:, t])
    lengths = torch.randint(4, length + 1, (n,), generator=g)
    x[torch.arange(length)[None] >= lengths[:, None]] = 0
    return x


def split(*tensors, val=32):
    return TensorDataset(*(t[:-val] for t in tensors)), TensorDataset(*(t[-val:] for t in tensors))


def loaders(*tensors, val=32, batch=16):
    train, held = split(*tensors, val=val)
    return DataLoader(train, batch, shuffle=True), DataLoader(held, batch)


def mlp(d=8, k=4, h=32):
    return nn.Sequential(nn.Linear(d, h), nn.ReLU(), nn.Linear(h, k))


def small_conv(k=2):
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32, k),
    )


def looped(loader, step, each_epoch=None):
    """train(steps): goes round the loader; `each_epoch()` follows each whole pass."""

    def train(steps):
        losses = []
        while True:
            for batch in loader:
                losses.append(step(batch))
                if len(losses) == steps:
                    return losses
            if each_epoch:
                each_epoch()

    return train


def stepper(model, optimizer, loss_of):
    def train_step(batch):
        model.train()
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return train_step


def of_pairs(loss_fn):
    """loss_of for batches of inputs and targets."""
    return lambda model, batch: loss_fn(model(batch[0]), batch[1])


def setup(model, optimizer, loader, held=None, *, step=None, **more):
    """A set-up by its parts; a step comes with a train() that goes round the loader."""
    found = {"model": model, "optimizer": optimizer, "train_loader": loader}
    if held is not None:
        found["val_loader"] = held
    if step is not None:
        found |= {"train_step": step, "train": looped(loader, step)}
    return found | more


def trained(model, optimizer, loaders, loss_of, **more):
    """A set-up of `stepper`'s steps on what a batch costs. Scored, unless told otherwise, by its
    accuracy where it has a loss_fn and classes, else by the mean of what batches cost."""
    train, held = loaders
    known = {} if "loss_fn" in more else {"loss_of": loss_of}
    if "evaluate" not in more:
        classes = "loss_fn" in more and "num_classes" in more
        known["evaluate"] = accuracy(model, held) if classes else mean_loss(model, held, loss_of)
    step = stepper(model, optimizer, loss_of)
    return setup(model, optimizer, train, held, step=step, **known, **more)


def trained_pairs(model, optimizer, loaders, loss_fn, **more):
    """The same for batches of inputs and targets."""
    return trained(model, optimizer, loaders, of_pairs(loss_fn), loss_fn=loss_fn, **more)


def accuracy(model, loader):
    def evaluate():
        model.eval()
        hits = total = 0
        with torch.no_grad():
            for x, y in loader:
                hits += (model(x).argmax(-1) == y).sum().item()
                total += len(y)
        model.train()
        return {"accuracy": hits / total}

    return evaluate


def mean_loss(model, loader, loss_of):
    def evaluate():
        model.eval()
        total = count = 0
        with torch.no_grad():
            for batch in loader:
                n = len(batch[-1])
                total += loss_of(model, batch).item() * n
                count += n
        model.train()
        return {"loss": total / count}

    return evaluate
