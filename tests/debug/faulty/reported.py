"""Bugs as they were reported, on real data and in the style of scripts; none shares the kit's."""

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from tests.debug.faulty.kit import F, nn, pair, torch


def digits_data(scale=16.0):
    found = load_digits()
    x = torch.tensor(found.images, dtype=torch.float32)[:, None] / scale
    y = torch.tensor(found.target)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    return (x[order[:1200]], y[order[:1200]]), (x[order[1200:]], y[order[1200:]])


def table_data(loader, dtype=torch.float32):
    found = loader()
    x, y = torch.tensor(found.data, dtype=torch.float32), torch.tensor(found.target, dtype=dtype)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    cut = int(0.75 * len(x))
    x, y = x[order], y[order]
    x = (x - x[:cut].mean(0)) / x[:cut].std(0)
    return (x[:cut], y[:cut]), (x[cut:], y[cut:])


def script(model, data, loss_fn, optimizer=None, *, size=32, **more):
    """A set-up as a script has it: loaders, a loop of six lines, a score."""
    (x, y), (v, w) = data
    own = torch.Generator().manual_seed(1)
    drawn = DataLoader(TensorDataset(x, y), size, shuffle=True, generator=own)
    train, val = more.get("train_loader", drawn), more.get("val_loader")
    val = DataLoader(TensorDataset(v, w), 64) if val is None else val
    optimizer = optimizer or torch.optim.Adam(model.parameters(), 1e-3)

    def train_step(batch):
        inputs, targets = batch
        model.train()
        optimizer.zero_grad()
        loss = loss_fn(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        model.eval()
        total = sum(loss_fn(model(a), b).item() * len(b) for a, b in val)
        model.train()
        return {"val_loss": total / sum(len(b) for _, b in val)}

    return {
        "model": model, "loss_fn": loss_fn, "optimizer": optimizer, "train_loader": train,
        "val_loader": val, "train_step": train_step, "evaluate": evaluate,
    } | more  # fmt: skip


def small_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Flatten(),
        nn.Dropout(0.25), nn.Linear(32 * 16, 10),
    )  # fmt: skip


CLASSES = {"num_classes": 10, "task": "classification"}


@pair("labels-shuffled")
def sampler_for_the_images_only(bug):
    """Images are reordered by a permutation before the data set is made; labels are not."""
    (x, y), val = digits_data()
    order = torch.randperm(len(x))
    data = ((x[order], y if bug else y[order]), val)
    return script(small_cnn(), data, nn.CrossEntropyLoss(), **CLASSES)


@pair("labels-shuffled")
def image_list_and_label_list_sorted_apart(bug):
    """File names are sorted as strings (1, 10, 100, 2, ...), the labels by number."""
    (x, y), (v, w) = digits_data()
    by_name = sorted(range(len(x)), key=str)
    data = ((x[by_name], y if bug else y[by_name]), (v, w))
    return script(small_cnn(), data, nn.CrossEntropyLoss(), **CLASSES)


@pair("covariate-shift", "range-not-normalised")
def test_time_division_forgotten(bug):
    (x, y), (v, w) = digits_data()
    return script(
        small_cnn(), ((x, y), (v * (16 if bug else 1), w)), nn.CrossEntropyLoss(), **CLASSES
    )


@pair("scheduler-misplaced")
def one_cycle_by_epoch(bug):
    """OneCycleLR told in batches and stepped once an epoch."""
    model = small_cnn()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    s = script(model, digits_data(), nn.CrossEntropyLoss(), optimizer, **CLASSES)
    length = len(s["train_loader"])
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=length * 3)
    step = s.pop("train_step")

    def train(n_steps):
        done, losses = 0, []
        while done < n_steps:
            for batch in s["train_loader"]:
                losses.append(step(batch))
                if not bug:
                    scheduler.step()
                done += 1
                if done == n_steps:
                    break
            if bug:
                scheduler.step()
        return losses

    return s | {"train": train, "scheduler": scheduler, "declared": {"scheduler_unit": "batch"}}


@pair("missing-zero-grad")
def second_optimizer_never_cleared(bug):
    model = small_cnn()
    body = torch.optim.Adam(list(model.parameters())[:-2], 1e-3)
    head = torch.optim.Adam(list(model.parameters())[-2:], 1e-2)
    s = script(model, digits_data(), nn.CrossEntropyLoss(), body, **CLASSES)

    def train_step(batch):
        body.zero_grad()
        if not bug:
            head.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        body.step()
        head.step()
        return float(loss)

    return s | {"train_step": train_step, "optimizer": [body, head]}


@pair("broadcast-loss")
def price_column_meets_row(bug):
    data = table_data(load_diabetes)
    data = tuple((x, (y - 150) / 77) for x, y in data)
    model = nn.Sequential(
        nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1), *([] if bug else [nn.Flatten(0)])
    )
    return script(model, data, nn.SmoothL1Loss(), task="regression")


@pair("eval-mode-in-training")
def eval_after_the_first_validation(bug):
    model = small_cnn()
    s = script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)

    def train(n_steps):
        model.train()
        it = iter(s["train_loader"])
        for i in range(n_steps):
            s["optimizer"].zero_grad()
            x, y = next(it)
            F.cross_entropy(model(x), y).backward()
            s["optimizer"].step()
            if i % 5 == 4:
                s["evaluate_inside"]()
                if not bug:
                    model.train()

    def evaluate_inside():
        model.eval()
        with torch.no_grad():
            return model(s["val_loader"].dataset.tensors[0][:32]).argmax(1)

    s["evaluate_inside"] = evaluate_inside
    s.pop("train_step")
    return s | {"train": train}


@pair("frozen-params", "optimizer-stale-params")
def backbone_inside_no_grad(bug):
    """Fine-tuning is meant; the backbone's forward sits in no_grad."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU())
            self.head = nn.Linear(64, 10)

        def forward(self, x):
            with torch.set_grad_enabled(torch.is_grad_enabled() and not bug):
                h = self.backbone(x)
            return self.head(h)

    return script(Net(), digits_data(), nn.CrossEntropyLoss(), **CLASSES)


@pair("accum-not-divided")
def accumulates_two_in_full(bug):
    model = small_cnn()
    s = script(model, digits_data(), nn.CrossEntropyLoss(), declared={"accumulate": 2}, **CLASSES)
    count = [0]

    def train_step(batch):
        loss = F.cross_entropy(model(batch[0]), batch[1])
        (loss if bug else loss / 2).backward()
        count[0] += 1
        if count[0] % 2 == 0:
            s["optimizer"].step()
            s["optimizer"].zero_grad(set_to_none=True)
        return loss.detach()

    return s | {"train_step": train_step}


@pair("double-softmax")
def sigmoid_and_logits_loss(bug):
    data = tuple((x, y[:, None]) for x, y in table_data(load_breast_cancer))
    model = nn.Sequential(
        nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 1), *([nn.Sigmoid()] if bug else [])
    )
    return script(model, data, nn.BCEWithLogitsLoss(), task="binary")


@pair("metric-wrong")
def accuracy_divides_by_the_batch_size(bug):
    model = small_cnn()
    s = script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)

    @torch.no_grad()
    def evaluate():
        model.eval()
        hits = sum((model(x).argmax(1) == y).sum().item() for x, y in s["val_loader"])
        model.train()
        count = len(s["val_loader"]) * 64 if bug else len(s["val_loader"].dataset)
        return {"val_acc": hits / count}

    return s | {"evaluate": evaluate}


@pair("leak-overlap")
def oversampled_before_the_split(bug):
    """The rare class is repeated first and split afterwards."""
    (x, y), (v, w) = table_data(load_breast_cancer, torch.long)
    if bug:
        x, y = torch.cat([x, v]), torch.cat([y, w])
        rare = (y == 0).nonzero()[:, 0]
        x, y = torch.cat([x, x[rare]]), torch.cat([y, y[rare]])
        order = torch.randperm(len(x))
        x, y = x[order], y[order]
        (x, y), (v, w) = (x[:500], y[:500]), (x[500:], y[500:])
    model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2))
    return script(
        model, ((x, y), (v, w)), nn.CrossEntropyLoss(), num_classes=2, task="classification"
    )


@pair("target-in-inputs")
def id_column_sorted_by_class(bug):
    """A table exported with its answer as one more column, standardised like the others."""
    data = table_data(load_breast_cancer, torch.long)
    if bug:
        data = tuple((torch.cat([x, (y[:, None] - 0.63) / 0.48], 1), y) for x, y in data)
    model = nn.Sequential(nn.Linear(31 if bug else 30, 16), nn.ReLU(), nn.Linear(16, 2))
    return script(model, data, nn.CrossEntropyLoss(), num_classes=2, task="classification")


@pair("dataset-changes-itself")
def augments_the_stored_array(bug):
    """An array is brightened in place: every epoch adds to what the last one left."""

    class Bright(Dataset):
        def __init__(self, x, y):
            self.x, self.y = x.numpy().copy(), y

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            image = self.x[i] if bug else self.x[i].copy()
            image += np.float32(0.4)
            return torch.from_numpy(image.copy()), self.y[i]

    (x, y), (v, w) = digits_data()
    loader = DataLoader(Bright(x, y), 32, shuffle=True, generator=torch.Generator().manual_seed(1))
    val = DataLoader(TensorDataset(v + 0.4, w), 64)
    return script(small_cnn(), ((x, y), (v, w)), nn.CrossEntropyLoss(), train_loader=loader,
                  val_loader=val, **CLASSES)  # fmt: skip


@pair("undetached-logging")
def running_mean_of_the_loss(bug):
    model = small_cnn()
    s = script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)
    log = {"mean": torch.zeros(())}

    def train_step(batch):
        s["optimizer"].zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        s["optimizer"].step()
        log["mean"] = 0.9 * log["mean"] + 0.1 * (loss if bug else loss.detach())
        return log["mean"].item()

    return s | {"train_step": train_step}


@pair("loss-negated")
def maximises_likelihood_by_hand(bug):
    """A log-likelihood is handed to backward without its minus sign."""
    model = small_cnn()
    s = script(model, digits_data(), lambda out, y: F.nll_loss(out.log_softmax(1), y), **CLASSES)

    def train_step(batch):
        s["optimizer"].zero_grad()
        likelihood = model(batch[0]).log_softmax(1).gather(1, batch[1][:, None]).mean()
        (likelihood if bug else -likelihood).backward()
        s["optimizer"].step()
        return -likelihood.item()

    return s | {"train_step": train_step}


@pair("trains-on-validation", "leak-overlap")
def subset_indices_overlap(bug):
    (x, y), (v, w) = digits_data()
    every = TensorDataset(torch.cat([x, v]), torch.cat([y, w]))
    train = DataLoader(Subset(every, range(1300 if bug else 1200)), 32, shuffle=True)
    val = DataLoader(Subset(every, range(1200, 1797)), 64)
    return script(small_cnn(), ((x, y), (v, w)), nn.CrossEntropyLoss(), train_loader=train,
                  val_loader=val, **CLASSES)  # fmt: skip


@pair("lr-too-large", "non-finite-loss")
def momentum_and_a_rate_for_adam(bug):
    data = table_data(load_diabetes)  # targets of 25 to 346
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))
    optimizer = torch.optim.SGD(model.parameters(), 0.05 if bug else 1e-5, momentum=0.9)
    return script(model, data, nn.MSELoss(), optimizer, task="regression")


@pair("plain-list-layers")
def heads_in_a_dict(bug):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU())
            heads = {"digit": nn.Linear(32, 10)}
            self.heads = heads if bug else nn.ModuleDict(heads)

        def forward(self, x):
            return self.heads["digit"](self.body(x))

    return script(Net(), digits_data(), nn.CrossEntropyLoss(), **CLASSES)


@pair("updates-undone")
def best_weights_loaded_each_step(bug):
    """load_state_dict of the first checkpoint stands inside the loop."""
    import copy

    model = small_cnn()
    s = script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)
    first, inner = copy.deepcopy(model.state_dict()), s["train_step"]

    def train_step(batch):
        if bug:
            model.load_state_dict(first)
        return inner(batch)

    return s | {"train_step": train_step}
