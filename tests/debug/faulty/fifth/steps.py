"""Bugs of the step: what is zeroed, clipped, thrown away or lost by rounding."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.fifth.kit import ActorCritic, TwoTasks, classes, loaders, mlp, table
from tests.debug.faulty.kit import pair


@pair("missing-zero-grad")
def gan_stale_d_grads(bug):
    """The generator's step leaves its gradient in the discriminator, whose step then takes
    it along: gradients of D are not zeroed."""
    real = torch.randn(96, 2) * 0.3 + torch.tensor([2.0, -1.0])
    net = nn.ModuleDict({"g": mlp(4, 2, 16), "d": mlp(2, 1, 16)})
    og, od = (torch.optim.Adam(net[k].parameters(), 2e-3) for k in "gd")
    loader = DataLoader(TensorDataset(real), 16, shuffle=True)
    bce = nn.BCEWithLogitsLoss()

    def train_step(batch):
        (x,) = batch
        one, zero = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        fake = net["g"](torch.randn(len(x), 4))
        if not bug:
            od.zero_grad()
        d_loss = bce(net["d"](x), one) + bce(net["d"](fake.detach()), zero)
        d_loss.backward()
        od.step()
        if bug:
            od.zero_grad()
        og.zero_grad()
        g_loss = bce(net["d"](fake), one)
        g_loss.backward()
        og.step()
        return (d_loss + g_loss).item()

    return dict(model=net, optimizer=[og, od], train_loader=loader, train_step=train_step)


@pair("clip-misplaced")
def clipped_after_the_step(bug):
    """Clipping comes after step(): the update is not clipped, though max norm 1 is
    meant."""
    x, y = table()
    y = y * 5
    tl, vl = loaders(x, y)
    model = mlp(8, 1)
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def train_step(batch):
        loss = F.mse_loss(model(batch[0]), batch[1])
        opt.zero_grad()
        loss.backward()
        if not bug:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if bug:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return loss.item()

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.MSELoss(),
        train_step=train_step,
        task="regression",
        declared={"max_grad_norm": 1.0},
    )


@pair("grads-cleared-before-step")
def zero_between_tasks(bug):
    """Zero_grad() between the two backward() calls: the first task's gradient is thrown
    away."""
    x, y = classes()
    size = x[:, 0] + 0.5 * x[:, 1]
    rows = [{"x": a, "kind": b, "size": c} for a, b, c in zip(x, y, size, strict=True)]
    tl, vl = DataLoader(rows[:64], 16, shuffle=True), DataLoader(rows[64:], 16)
    model = TwoTasks()
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def train_step(batch):
        opt.zero_grad()
        kind = F.cross_entropy(model(batch["x"])["kind"], batch["kind"])
        kind.backward()
        if bug:
            opt.zero_grad()
        size = F.mse_loss(model(batch["x"])["size"], batch["size"])
        size.backward()
        opt.step()
        return kind.item() + size.item()

    return dict(model=model, optimizer=opt, train_loader=tl, val_loader=vl, train_step=train_step)


@pair("missing-zero-grad")
def fgsm_grads_kept(bug):
    """FGSM: the attack's backward() leaves its gradient in the weights, so the step is on
    the sum of both."""
    x, y = classes()
    tl, vl = loaders(x, y)
    model = mlp()
    opt = torch.optim.SGD(model.parameters(), 0.1)

    def train_step(batch):
        x, y = batch
        opt.zero_grad()
        x = x.clone().requires_grad_()
        F.cross_entropy(model(x), y).backward()
        attacked = (x + 0.1 * x.grad.sign()).detach()
        if not bug:
            opt.zero_grad()
        loss = F.cross_entropy(model(attacked), y)
        loss.backward()
        opt.step()
        return loss.item()

    return dict(
        model=model,
        optimizer=opt,
        train_loader=tl,
        val_loader=vl,
        loss_fn=nn.CrossEntropyLoss(),
        train_step=train_step,
        num_classes=4,
    )


@pair("loss-through-baseline")
def critic_through_advantage(bug):
    """The advantage is not detached: the policy's loss trains the critic, away from the
    returns."""
    s = torch.randn(96, 6)
    a = torch.randint(0, 3, (96,))
    best = s[:, :3].argmax(1)
    ret = (a == best).float() + 0.1 * torch.randn(96)
    loader = DataLoader(TensorDataset(s, a, ret), 16, shuffle=True)
    model = ActorCritic()
    opt = torch.optim.Adam(model.parameters(), 3e-3)

    def loss_of(model, batch):
        s, a, ret = batch
        logits, value = model(s)
        advantage = ret - (value if bug else value.detach())
        logp = F.log_softmax(logits, 1).gather(1, a[:, None]).squeeze(1)
        return -(logp * advantage).mean() + 0.5 * F.mse_loss(value, ret)

    return dict(model=model, optimizer=opt, train_loader=loader, loss_of=loss_of)


@pair("updates-rounded-away")
def bf16_updates_lost(bug):
    """Weights are bfloat16 and the lr is small: most updates are lost by rounding."""
    x, y = classes()
    tl, vl = loaders(x, y)
    model = mlp()
    if bug:
        model = model.to(torch.bfloat16)
    opt = torch.optim.SGD(model.parameters(), 2e-3)

    def loss_of(model, batch):
        x, y = batch
        if bug:
            return F.cross_entropy(model(x.to(torch.bfloat16)).float(), y)
        with torch.autocast("cpu", torch.bfloat16):
            out = model(x)
        return F.cross_entropy(out.float(), y)

    return dict(
        model=model, optimizer=opt, train_loader=tl, val_loader=vl, loss_of=loss_of, num_classes=4
    )
