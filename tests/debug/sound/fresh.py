"""A last round of sound scripts, written after the probes."""

from __future__ import annotations

import copy

from sklearn.datasets import load_breast_cancer, load_diabetes

from tests.debug.faulty.kit import F, nn, torch
from tests.debug.faulty.reported import CLASSES, digits_data, script, small_cnn, table_data
from tests.debug.sound.programs import sound


@sound
def sorted_regression_targets():
    """A table in which one feature nearly, but not wholly, gives the target."""
    (x, y), (v, w) = table_data(load_diabetes)

    def near(inputs, targets):
        own = torch.Generator().manual_seed(0)
        noisy = targets + 8 * torch.randn(len(targets), generator=own)
        return torch.cat([inputs, (noisy[:, None] - 150) / 77], 1), (targets - 150) / 77

    model = nn.Sequential(nn.Linear(11, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))
    return script(model, (near(x, y), near(v, w)), nn.MSELoss(), task="regression")


@sound
def segmentation_by_pixels():
    """A class a pixel: logits [B, C, H, W], flattened with their classes last."""
    (x, _), (v, _) = digits_data()
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 3, 1))

    def loss_fn(out, y):
        return F.cross_entropy(out.movedim(1, -1).reshape(-1, 3), y.reshape(-1))

    data = tuple((t, (t[:, 0] * 2.99).long()) for t in (x, v))
    return script(model, data, loss_fn, num_classes=3, task="classification")


@sound
def time_major_throughout():
    """Logits and targets both turned to [T, B] before they are flattened."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.head = nn.GRU(8, 16, batch_first=True), nn.Linear(16, 3)

        def forward(self, x):
            return self.head(self.gru(x[:, 0])[0])

    def loss_fn(out, y):
        return F.cross_entropy(out.transpose(0, 1).reshape(-1, 3), y.T.reshape(-1))

    (x, _), (v, _) = digits_data()
    data = tuple((t, (t[:, 0].mean(2) * 5.9).long().clamp(max=2)) for t in (x, v))
    return script(Net(), data, loss_fn, num_classes=3, task="classification")


@sound
def lookahead():
    """Every fifth step the weights are drawn back half the way to where they were."""
    model = small_cnn()
    s = script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)
    slow, count, inner = [p.detach().clone() for p in model.parameters()], [0], s["train_step"]

    def train_step(batch):
        loss = inner(batch)
        count[0] += 1
        if count[0] % 5 == 0:
            with torch.no_grad():
                for a, p in zip(slow, model.parameters(), strict=True):
                    a.lerp_(p, 0.5)
                    p.copy_(a)
        return loss

    return s | {"train_step": train_step}


@sound
def warm_up_from_zero():
    """The first rates are 0 and rise; the first updates move nothing."""
    model = small_cnn()
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, i / 100))
    s = script(model, digits_data(), nn.CrossEntropyLoss(), optimizer, **CLASSES)
    inner = s["train_step"]

    def train_step(batch):
        loss = inner(batch)
        scheduler.step()
        return loss

    return s | {"train_step": train_step, "scheduler": scheduler,
                "declared": {"scheduler_unit": "batch"}}  # fmt: skip


@sound
def best_kept_in_memory():
    """save() copies all; load() gives it back; the best is kept by validation loss."""
    model = small_cnn()
    s = script(model, digits_data(), nn.CrossEntropyLoss(), **CLASSES)
    names = ("model", "optimizer")
    return s | {
        "save": lambda: copy.deepcopy({n: s[n].state_dict() for n in names}),
        "load": lambda state: [s[n].load_state_dict(state[n]) for n in names],
    }


@sound
def very_wide_range_of_features():
    """Money and ages side by side, put right by a batch norm at the front."""
    (x, y), (v, w) = table_data(load_breast_cancer, torch.long)
    spread = torch.logspace(0, 4, 30)
    model = nn.Sequential(nn.BatchNorm1d(30), nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2))
    data = ((x * spread, y), (v * spread, w))
    return script(model, data, nn.CrossEntropyLoss(), num_classes=2, task="classification")


@sound
def small_val_of_other_shares():
    """Twenty validation rows, drawn at random: shares differ by chance."""
    (x, y), (v, w) = table_data(load_breast_cancer, torch.long)
    model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2))
    data = ((x, y), (v[:20], w[:20]))
    return script(model, data, nn.CrossEntropyLoss(), num_classes=2, task="classification")


@sound
def hinge_with_plus_and_minus_one():
    """Labels are -1 and 1, as a margin loss wants them."""
    (x, y), (v, w) = table_data(load_breast_cancer)
    model = nn.Sequential(nn.Linear(30, 1), nn.Flatten(0))
    data = ((x, 2 * y - 1), (v, 2 * w - 1))
    return script(model, data, lambda out, t: F.relu(1 - t * out).mean(), task="binary")


@sound
def multiplicative_noise_of_labels():
    """Stochastic targets: each call rounds a soft target anew."""
    (x, y), (v, w) = table_data(load_diabetes)
    model = nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(0))

    class Rounded(torch.utils.data.Dataset):
        def __len__(self):
            return len(x)

        def __getitem__(self, i):
            return x[i], (y[i] / 350 > torch.rand(())).float()

    loader = torch.utils.data.DataLoader(Rounded(), 32, shuffle=True)
    data = ((x, y), (v, (w / 350 > 0.43).float()))
    return script(model, data, nn.BCEWithLogitsLoss(), task="binary", train_loader=loader)
