"""Bugs in the loop and the schedule: clipping, groups, modes, rates."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.debug.faulty.fourth.kit import accuracy, batches, blobs, mlp, sentences
from tests.debug.faulty.kit import pair


@pair("clip-misplaced")
def clip_list_spent(bug):
    """Clipping is given a filter object that is spent after the first step."""
    x = torch.randn(256, 8)
    heavy = torch.distributions.StudentT(1.5).sample((256, 1))
    y = x[:, :1] * 2 + 0.3 * torch.randn(256, 1) * heavy

    class Trainer:
        def __init__(self):
            self.model = mlp(8, 24, 1)
            self.params = filter(lambda p: p.requires_grad, self.model.parameters())
            if not bug:
                self.params = list(self.params)
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.02)
            self.loss = nn.MSELoss()
            self.max_norm = 0.5

        def step(self, batch):
            self.model.train()
            self.optimizer.zero_grad()
            loss = self.loss(self.model(batch[0]), batch[1])
            loss.backward()
            nn.utils.clip_grad_norm_(self.params, self.max_norm)
            self.optimizer.step()
            return loss.item()

    t = Trainer()
    return dict(
        model=t.model,
        optimizer=t.optimizer,
        loss_fn=t.loss,
        train_loader=batches(x, y),
        train_step=t.step,
    )


@pair("missing-zero-grad")
def gan_not_detached(bug):
    """The discriminator's loss runs back into the generator, which it should not move."""
    real = torch.randn(256, 2) * 0.3 + torch.tensor([2.0, -1.0])
    model = nn.ModuleDict({"G": mlp(4, 16, 2), "D": mlp(2, 16, 1)})
    opt_g = torch.optim.Adam(model["G"].parameters(), 2e-3, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(model["D"].parameters(), 2e-3, betas=(0.5, 0.9))
    bce = F.binary_cross_entropy_with_logits

    def train_step(batch):
        (x,) = batch
        g, d = model["G"], model["D"]
        opt_g.zero_grad()
        opt_d.zero_grad()
        fake = g(torch.randn(len(x), 4))
        seen = fake if bug else fake.detach()
        one, zero = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        loss_d = bce(d(x), one) + bce(d(seen), zero)
        loss_d.backward(retain_graph=True)
        opt_d.step()
        loss_g = bce(d(g(torch.randn(len(x), 4))), one)
        loss_g.backward()
        opt_g.step()
        return loss_d.item() + loss_g.item()

    return dict(
        model=model, optimizer=[opt_g, opt_d], train_loader=batches(real), train_step=train_step
    )


@pair("optimizer-stale-params")
def groups_drop_params(bug):
    """Parameter groups by name: norm weights and positions fall in neither group."""
    ids, length = sentences(320)
    y = ((ids > 6).sum(1) * 2 > length).long()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(12, 16)
            self.pos = nn.Parameter(0.02 * torch.randn(1, 14, 16))
            self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
            self.out = nn.Linear(16, 2)

        def forward(self, ids):
            pad = ids == 0
            h = self.layer(self.emb(ids) + self.pos, src_key_padding_mask=pad)
            keep = (~pad).unsqueeze(-1).float()
            return self.out((h * keep).sum(1) / keep.sum(1))

    model = Net()
    decay, rest = [], []
    for n, p in model.named_parameters():
        if n.endswith("weight") and p.ndim >= 2:
            decay.append(p)
        elif n.endswith("bias") or not bug:
            rest.append(p)
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=3e-3
    )
    val = batches(ids[256:], y[256:], shuffle=False)
    return dict(
        model=model,
        loss_fn=nn.CrossEntropyLoss(),
        optimizer=opt,
        num_classes=2,
        train_loader=batches(ids[:256], y[:256]),
        val_loader=val,
        evaluate=accuracy(model, val),
    )


@pair("frozen-params-drift")
def teacher_in_train_mode(bug):
    """model.train() puts the teacher in train mode too: its dropout and batch norm run."""
    x, y = blobs(384)
    teacher = nn.Sequential(
        nn.Linear(10, 48), nn.BatchNorm1d(48), nn.ReLU(), nn.Dropout(0.3), nn.Linear(48, 3)
    )
    opt = torch.optim.Adam(teacher.parameters(), 5e-3)
    for _ in range(60):
        opt.zero_grad()
        F.cross_entropy(teacher(x[:256]), y[:256]).backward()
        opt.step()
    for p in teacher.parameters():
        p.requires_grad_(False)
        p.grad = None

    class Distiller(nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher, self.student = teacher, mlp(10, 12, 3)

        def train(self, mode=True):
            super().train(mode)
            if not bug:
                self.teacher.eval()
            return self

        def forward(self, x):
            with torch.no_grad():
                soft = self.teacher(x)
            return self.student(x), soft

    def loss_of(m, b):
        s, t = m(b[0])
        kd = F.kl_div(F.log_softmax(s / 2, 1), F.softmax(t / 2, 1), reduction="batchmean") * 4
        return 0.5 * kd + 0.5 * F.cross_entropy(s, b[1])

    model = Distiller()
    model.train()
    val = batches(x[256:], y[256:], shuffle=False)

    def evaluate():
        model.eval()
        with torch.no_grad():
            right = torch.cat([model.student(a).argmax(1) == b for a, b in val])
        model.train()
        return {"accuracy": right.float().mean().item()}

    return dict(
        model=model,
        loss_of=loss_of,
        optimizer=torch.optim.Adam(model.student.parameters(), 5e-3),
        num_classes=3,
        train_loader=batches(x[:256], y[:256]),
        val_loader=val,
        evaluate=evaluate,
    )


@pair("lr-too-small")
def lambda_returns_lr(bug):
    """LambdaLR's function returns the rate itself and not a factor: lr is squared."""
    x, y = blobs(384, c=4)
    model = mlp(10, 32, 4)
    lr = 3e-3
    opt = torch.optim.AdamW(model.parameters(), lr)

    def warm_cosine(step):
        f = min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * min(step / 400, 1)))
        return lr * f if bug else f

    sched = torch.optim.lr_scheduler.LambdaLR(opt, warm_cosine)

    def train_step(batch):
        model.train()
        opt.zero_grad()
        loss = F.cross_entropy(model(batch[0]), batch[1])
        loss.backward()
        opt.step()
        sched.step()
        return loss.item()

    val = batches(x[256:], y[256:], shuffle=False)
    return dict(
        model=model,
        optimizer=opt,
        loss_fn=nn.CrossEntropyLoss(),
        train_loader=batches(x[:256], y[:256]),
        val_loader=val,
        scheduler=sched,
        train_step=train_step,
        num_classes=4,
        evaluate=accuracy(model, val),
    )


@pair("scheduler-misplaced")
def plateau_wrong_way(bug):
    """ReduceLROnPlateau in mode 'min' is told the accuracy: it cuts lr while all goes well."""
    x, y = blobs(384, c=4, noise=1.6)

    class Trainer:
        def __init__(self):
            self.model = mlp(10, 32, 4)
            self.train_loader = batches(x[:256], y[:256])
            self.val_loader = batches(x[256:], y[256:], shuffle=False)
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.02, momentum=0.9)
            self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
                self.optimizer, mode="min" if bug else "max", factor=0.3, patience=1
            )
            self.evaluate = accuracy(self.model, self.val_loader)

        def train(self, n_steps):
            done, losses = 0, []
            while done < n_steps:
                self.model.train()
                for a, b in self.train_loader:
                    self.optimizer.zero_grad()
                    loss = F.cross_entropy(self.model(a), b)
                    loss.backward()
                    self.optimizer.step()
                    losses.append(loss.item())
                    done += 1
                    if done >= n_steps:
                        break
                self.scheduler.step(self.evaluate()["accuracy"])
            return losses

    t = Trainer()
    return dict(
        model=t.model,
        optimizer=t.optimizer,
        loss_fn=nn.CrossEntropyLoss(),
        train_loader=t.train_loader,
        val_loader=t.val_loader,
        scheduler=t.scheduler,
        train=t.train,
        evaluate=t.evaluate,
        num_classes=4,
    )
