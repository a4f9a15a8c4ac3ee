"""Faults of runs: what is averaged, blended and kept."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import (
    accuracy,
    blobs,
    loaders,
    mean_loss,
    mlp,
    numbers,
    of_pairs,
    setup,
    stepper,
    trained,
    trained_pairs,
)


class Recordings(Dataset):
    """Recordings of one length or of many, with a number for each step."""

    def __init__(self, n, seed, lengths):
        g = gen(seed)
        w = torch.randn(4, generator=gen(5))
        self.items = []
        for _ in range(n):
            length = int(torch.randint(*lengths, (), generator=g))
            noise = 3.0 if length < 12 else 0.3
            x = torch.randn(length, 4, generator=g)
            self.items.append((x, x @ w + noise * torch.randn(length, generator=g)))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class PerStep(nn.Module):
    def __init__(self, d=4):
        super().__init__()
        self.net = mlp(d, 1)

    def forward(self, x):
        return self.net(x)[..., 0]


@pair("metric-batch-mean")
def pieces_of_unlike_length_averaged(bug):
    """Trained on pieces of 12 steps, scored on recordings, whose errors are averaged with equal
    weight though one is far longer than another. The twin adds errors and steps."""
    train = DataLoader(Recordings(240, 301, (12, 13)), batch_size=12, shuffle=True)
    held = DataLoader(Recordings(30, 302, (3, 60)), batch_size=1)
    model = PerStep()
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def evaluate():
        model.eval()
        total, count = 0.0, 0
        with torch.no_grad():
            for x, y in held:
                error = F.mse_loss(model(x), y).item()
                n = 1 if bug else y.numel()
                total, count = total + error * n, count + n
        model.train()
        return {"mse": total / count}

    loss_of = of_pairs(F.mse_loss)
    return trained(model, opt, (train, held), loss_of, evaluate=evaluate)


@pair("metric-batch-mean")
def chunks_of_a_file_averaged(bug):
    """A file is scored in chunks of 100 rows, the last of which has 12; their accuracies are
    averaged."""
    x, y = blobs(n=712, d=6, k=3, seed=303, spread=2.5)
    held = [(x[400:][at : at + 100], y[400:][at : at + 100]) for at in range(0, 312, 100)]
    train = DataLoader(TensorDataset(x[:400], y[:400]), 20, shuffle=True)
    model = mlp(6, 3)
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def evaluate():
        model.eval()
        with torch.no_grad():
            hits = [(model(a).argmax(1) == b).float() for a, b in held]
        model.train()
        if bug:
            return {"accuracy": sum(h.mean().item() for h in hits) / len(hits)}
        return {"accuracy": torch.cat(hits).mean().item()}

    return trained_pairs(
        model, opt, (train, held), nn.CrossEntropyLoss(), num_classes=3, evaluate=evaluate
    )


@pair("updates-undone", "ema-decay")
def average_blended_into_the_model(bug):
    """lerp_ is called on the model and not on its average: each step goes back nearly to where
    training began."""
    train, held = loaders(*blobs(n=416, d=10, seed=305), val=96)
    model = mlp(10, 4)
    average = copy.deepcopy(model)
    opt = torch.optim.Adam(model.parameters(), 5e-3)

    def train_step(batch):
        model.train()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            for kept, new in zip(average.parameters(), model.parameters(), strict=True):
                if bug:
                    new.lerp_(kept, 0.05)
                else:
                    kept.lerp_(new, 0.05)
        return loss.item()

    return setup(
        model, opt, train, held, step=train_step, loss_fn=nn.CrossEntropyLoss(), num_classes=4,
        evaluate=accuracy(model, held), average=average,
    )  # fmt: skip


def blend_(target, source, share):
    for a, b in zip(target.parameters(), source.parameters(), strict=True):
        a.data.mul_(1 - share).add_(b.data, alpha=share)


@pair("updates-undone", "ema-decay")
def teacher_and_student_exchanged(bug):
    """blend_(student, teacher) in a class-based trainer; the teacher never moves."""
    x, y = numbers(n=420, seed=307)
    train, held = loaders(x, y, val=84, batch=12)

    class Trainer:
        def __init__(self):
            self.student = mlp(8, 1)
            self.teacher = copy.deepcopy(self.student).requires_grad_(False)
            self.opt = torch.optim.Adam(self.student.parameters(), 5e-3)

        def train_step(self, batch):
            self.student.train()
            out = self.student(batch[0] + 0.1 * torch.randn_like(batch[0]))
            near = F.mse_loss(out, self.teacher(batch[0]))
            loss = F.mse_loss(out, batch[1]) + 0.05 * near
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            one, two = self.student, self.teacher
            blend_(*((one, two) if bug else (two, one)), 0.02)
            return loss.item()

    t = Trainer()
    evaluate = mean_loss(t.student, held, of_pairs(F.mse_loss))
    return setup(t.student, t.opt, train, held, step=t.train_step, evaluate=evaluate, trainer=t)


@pair("keeps-worse-weights", "scheduler-misplaced")
def keeper_told_max_for_a_loss(bug):
    """A keeper of the best weights, in mode max, is handed the validation loss after each epoch and
    brings back the worst at the end."""
    train, held = loaders(*blobs(n=416, d=10, seed=309), val=96, batch=32)
    model = mlp(10, 4)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    loss_of = of_pairs(F.cross_entropy)
    score = mean_loss(model, held, loss_of)
    step = stepper(model, opt, loss_of)

    class Keeper:
        def __init__(self, mode):
            self.sign, self.best, self.state = 1 if mode == "max" else -1, None, None

        def __call__(self, value):
            if self.best is None or self.sign * value > self.sign * self.best:
                self.best, self.state = value, copy.deepcopy(model.state_dict())

    def train_for(steps):
        keeper, done, losses = Keeper("max" if bug else "min"), 0, []
        while done < steps:
            for batch in train:
                losses.append(step(batch))
                done += 1
                if done == steps:
                    break
            keeper(score()["loss"])
        model.load_state_dict(keeper.state)
        return losses

    made = setup(model, opt, train, held, step=step, evaluate=score, loss_of=loss_of)
    return made | {"train": train_for}


@pair("keeps-worse-weights", "scheduler-misplaced")
def rate_cut_in_mode_max_of_a_loss(bug):
    """ReduceLROnPlateau(mode="max") is told a loss, in the epoch's train()."""
    x, y = numbers(n=400, seed=311)
    train, held = loaders(x, y, val=80, batch=32)
    model = mlp(8, 1)
    opt = torch.optim.Adam(model.parameters(), 5e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
    scheduler = plateau(opt, mode="max" if bug else "min", patience=1)
    loss_of = of_pairs(F.mse_loss)
    step = stepper(model, opt, loss_of)
    score = mean_loss(model, held, loss_of)

    def train_for(steps):
        done = 0
        while done < steps:
            total = number = 0
            for batch in train:
                total, number, done = total + step(batch), number + 1, done + 1
                if done == steps:
                    break
            scheduler.step(total / number)

    made = setup(model, opt, train, held, evaluate=score, loss_of=loss_of, scheduler=scheduler)
    return made | {"train": train_for}
