"""A last round of bugs, written after the probes; how the first look went, bench/diagnose says."""

from sklearn.datasets import load_breast_cancer, load_diabetes
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.kit import F, nn, pair, torch
from tests.debug.faulty.reported import CLASSES, digits_data, script, small_cnn, table_data


@pair("no-optimizer-step", "grads-cleared-before-step", "lr-too-small", "missing-zero-grad")
def scheduler_stepped_instead_of_optimizer(bug):
    model = small_cnn()
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1000)
    s = script(model, digits_data(), nn.CrossEntropyLoss(), optimizer, **CLASSES)

    def train_step(batch):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        if not bug:
            optimizer.step()
        scheduler.step()
        return loss.item()

    return s | {"train_step": train_step, "scheduler": scheduler}


@pair("eval-mode-in-training")
def frozen_by_eval_for_the_whole_model(bug):
    """eval() is called to freeze batch norm, and takes dropout with it."""
    model = small_cnn()
    s = script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)

    def train_step(batch):
        model.train()
        if bug:
            model.apply(lambda m: m.eval())
        s["optimizer"].zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@pair("rows-mixed")
def flattened_before_the_batch(bug):
    """[B, 1, 8, 8] is read as [B, 64] through a transpose: pixels of several images in one row."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))

        def forward(self, x):
            x = x.permute(2, 3, 0, 1).reshape(-1, 64) if bug else x.reshape(-1, 64)
            return self.net(x)

    return script(Net(), digits_data(), nn.CrossEntropyLoss(), **CLASSES)


@pair("label-shift", "single-class-batches")
def split_before_shuffling(bug):
    """Rows sorted by class, the last quarter for validation."""
    (x, y), (v, w) = table_data(load_breast_cancer, torch.long)
    if bug:
        x, y = torch.cat([x, v]), torch.cat([y, w])
        order = y.argsort(stable=True)
        x, y = x[order], y[order]
        x, y, v, w = x[:426], y[:426], x[426:], y[426:]
    model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2))
    data = ((x, y), (v, w))
    return script(model, data, nn.CrossEntropyLoss(), num_classes=2, task="classification")


@pair("dead-relu")
def biases_far_below_zero(bug):
    model = small_cnn()
    with torch.no_grad():
        model[1].bias.fill_(-30.0 if bug else 0.0)
    return script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)


@pair("covariate-shift", "metric-wrong", "evaluates-training-data")
def validation_standardised_by_itself_and_squeezed(bug):
    (x, y), (v, w) = table_data(load_diabetes)
    if bug:
        v = (v - v.min(0).values) / (v.max(0).values - v.min(0).values)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    data = ((x, (y - 150) / 77), (v, (w - 150) / 77))
    return script(model, data, nn.MSELoss(), task="regression")


@pair("tensor-not-parameter", "optimizer-stale-params")
def scale_made_a_tensor_by_to(bug):
    """nn.Parameter(...) * 1.0 is no parameter any more."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
            scale = torch.ones(10)
            self.scale = scale.requires_grad_() if bug else nn.Parameter(scale)

        def forward(self, x):
            return self.net(x) * self.scale

    return script(Net(), digits_data(), nn.CrossEntropyLoss(), **CLASSES)


@pair("checkpoint-incomplete")
def scheduler_left_behind(bug):
    model = small_cnn()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 500)
    s = script(model, digits_data(), nn.CrossEntropyLoss(), optimizer, **CLASSES)
    inner = s["train_step"]

    def train_step(batch):
        loss = inner(batch)
        scheduler.step()
        return loss

    def save(path):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state | ({} if bug else {"scheduler": scheduler.state_dict()}), path)

    def load(path):
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if not bug:
            scheduler.load_state_dict(state["scheduler"])

    return s | {"train_step": train_step, "scheduler": scheduler, "save": save, "load": load,
                "declared": {"scheduler_unit": "batch"}}  # fmt: skip


@pair("labels-shuffled")
def labels_of_a_shuffled_loader(bug):
    """Predictions of a teacher, gathered with shuffle=True, are taken for labels in order."""
    (x, y), (v, w) = digits_data()
    loader = DataLoader(TensorDataset(x, y), 64, shuffle=bug)
    taught = torch.cat([labels for _, labels in loader])  # a perfect teacher
    return script(small_cnn(), ((x, taught), (v, w)), nn.CrossEntropyLoss(), **CLASSES)


@pair("inputs-ignored", "frozen-params", "dead-relu")
def mask_that_wipes_everything(bug):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 10)

        def forward(self, x):
            h = self.a(x.flatten(1)).relu()
            return self.b(h * (h < 0).float() if bug else h)

    return script(Net(), digits_data(), nn.CrossEntropyLoss(), **CLASSES)


@pair("clip-misplaced")
def clips_the_head_only(bug):
    model = small_cnn()
    s = script(
        model, digits_data(), nn.CrossEntropyLoss(), declared={"max_grad_norm": 0.05}, **CLASSES
    )

    def train_step(batch):
        s["optimizer"].zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        nn.utils.clip_grad_norm_((model[-1] if bug else model).parameters(), 0.05)
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@pair("metric-not-reset")
def torchmetrics_never_reset(bug):
    from torchmetrics.classification import MulticlassAccuracy

    model = small_cnn()
    s = script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)
    metric = MulticlassAccuracy(10, average="micro")

    @torch.no_grad()
    def evaluate():
        if not bug:
            metric.reset()
        model.eval()
        for x, y in s["val_loader"]:
            metric.update(model(x), y)
        model.train()
        return {"seen": float(metric.tp.sum() + metric.fn.sum()), "acc": float(metric.compute())}

    return s | {"evaluate": evaluate}
