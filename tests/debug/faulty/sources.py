"""Bugs of data, split, range and learning rate."""

from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.debug.faulty.kit import examples, nn, pair, parts, torch, whole  # noqa: F401


@pair("single-class-batches", style=["mlp", "cnn"])
def sorted_and_unshuffled(bug, style):
    x, y = examples(style)
    order = y.argsort()
    train = TensorDataset(x[order], y[order])
    s = parts(style)
    own = torch.Generator().manual_seed(0)
    return s | {"train_loader": DataLoader(train, 16, shuffle=not bug, generator=own)}


@pair("leak-overlap", style=["mlp", "cnn", "regression"])
def same_rows_in_validation(bug, style):
    s = parts(style)
    if bug:
        x, y = s["train_loader"].dataset.tensors
        v, w = s["val_loader"].dataset.tensors
        mixed = TensorDataset(torch.cat([v[:60], x[:12]]), torch.cat([w[:60], y[:12]]))
        s["val_loader"] = DataLoader(mixed, 16)
    return whole(s)


@pair("leak-group")
def split_by_row(bug):
    ids = torch.arange(248) // 4 if not bug else torch.arange(248) % 62
    return parts("mlp", groups={"train": ids[:176].tolist(), "val": ids[176:].tolist()})


@pair("leak-time")
def split_at_random(bug):
    when = torch.arange(248.0)
    when = when[torch.randperm(248)] if bug else when
    times = {"train": when[:176].tolist(), "val": when[176:].tolist()}
    return parts("regression", declared={"times": times})


@pair("leak-preprocessing", style=["mlp", "regression"])
def scaled_on_everything(bug, style):
    s = parts(style)
    x, y = s["train_loader"].dataset.tensors
    v, w = s["val_loader"].dataset.tensors
    base = torch.cat([x, v]) if bug else x
    mean, std = base.mean(0), base.std(0)
    s["train_loader"].dataset.tensors = ((x - mean) / std, y)
    s["val_loader"].dataset.tensors = ((v - mean) / std, w)
    return whole(s)


@pair("label-shift", how=["missing", "skewed"])
def other_classes_in_validation(bug, how):
    s = parts("mlp")
    x, y = examples("mlp", 300, seed=5)
    if bug:
        keep = y != 2 if how == "missing" else (y == 0) | (torch.rand(300) < 0.1)
        x, y = x[keep], y[keep]
    return s | {"val_loader": DataLoader(TensorDataset(x[:72], y[:72]), 16)}


@pair("covariate-shift", where=["loader", "evaluate"])
def validation_not_normalised(bug, where):
    s = parts("cnn")
    s = whole(s)
    v, w = s["val_loader"].dataset.tensors
    if where == "loader":
        if bug:
            s["val_loader"].dataset.tensors = (v * 40 + 100, w)
        return s
    step, model = s["train_step"], s["model"]

    def train_step(batch):
        return step(((batch[0] - 0.2) / 0.7, batch[1]))

    def evaluate():
        model.eval()
        hits = 0
        with torch.no_grad():
            for x, y in s["val_loader"]:
                x = (x * 3.0 + 4.0) if bug else (x - 0.2) / 0.7
                hits += (model(x).argmax(1) == y).sum().item()
        model.train()
        return {"correct": hits}

    return s | {"train_step": train_step, "evaluate": evaluate}


@pair("range-not-normalised", style=["mlp", "rnn"])
def pixels_to_255(bug, style):
    s = parts(style, 1e-4 if bug else 0.05)
    for loader in (s["train_loader"], s["val_loader"]):
        x, y = loader.dataset.tensors
        loader.dataset.tensors = ((x * 40 + 128).clamp(0, 255) if bug else x, y)
    return s


class Bytes(Dataset):
    """uint8 images, brightened in __getitem__."""

    def __init__(self, bug):
        x, self.y = examples("cnn")
        self.x, self.bug = (x * 40 + 120).clamp(0, 255).to(torch.uint8), bug

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i] if self.bug else self.x[i].float()
        return ((x + 60).float() - 150) / 40, self.y[i]


@pair("uint8-arithmetic")
def brightened_bytes(bug):
    s = parts("cnn")
    own = torch.Generator().manual_seed(0)
    loader = DataLoader(Bytes(bug), 16, shuffle=True, generator=own)
    return {k: v for k, v in s.items() if k != "val_loader"} | {"train_loader": loader}


class InPlace(Dataset):
    def __init__(self, bug):
        self.x, self.y = examples("mlp")
        self.bug = bug

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        x = self.x[i] if self.bug else self.x[i].clone()
        x.mul_(2.0).add_(0.3)
        return x.clone(), self.y[i]


@pair("dataset-changes-itself")
def normalised_in_place(bug):
    own = torch.Generator().manual_seed(0)
    s = {k: v for k, v in parts("mlp", 0.01).items() if k != "val_loader"}
    return s | {"train_loader": DataLoader(InPlace(bug), 16, shuffle=True, generator=own)}


@pair("loader-exhausted")
def iterator_for_training(bug):
    s = parts("mlp")
    batches = list(s["train_loader"])

    class Once:
        def __init__(self):
            self.left = iter(batches)

        def __iter__(self):
            yield from self.left if bug else batches

    return s | {"train_loader": Once()}


@pair("lr-too-large", "non-finite-loss", kind=["SGD", "Adam", "momentum"])
def too_fast(bug, kind):
    lr = {"SGD": 200.0, "Adam": 10.0, "momentum": 60.0}[kind] if bug else 0.005
    words = {"momentum": 0.9} if kind == "momentum" else {}
    return whole(parts("mlp", lr, "Adam" if kind == "Adam" else "SGD", words=words))


@pair("lr-too-small", kind=["SGD", "Adam", "zero"])
def too_slow(bug, kind):
    lr = {"SGD": 1e-7, "Adam": 1e-9, "zero": 0.0}[kind] if bug else 0.01
    return whole(parts("mlp", lr, "Adam" if kind == "Adam" else "SGD"))


@pair("dead-relu", "lr-too-large")
def shifted_biases(bug):
    s = parts("mlp")
    with torch.no_grad():
        s["model"][0].bias.sub_(50.0 if bug else 0.0)
    return whole(s)
