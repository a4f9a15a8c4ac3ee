"""Faults of the loss: what is compared with what, and what is left out."""

import torch
from torch import nn
from torch.nn import functional as F

from tests.debug.faulty.kit import pair
from tests.debug.faulty.sixth.kit import blobs, loaders, mlp, pictures, setup


@pair("compared-with-itself")
def contrast_with_itself(bug):
    """Each example is its own negative: the diagonal of the similarities is not masked."""
    loader, held = loaders(torch.randn(160, 6))
    model = mlp(12, 8)

    def view(x, g=None):  # half of what is seen has nothing to do with the thing
        return torch.cat([x, 4 * torch.randn(x.shape, generator=g)], 1)

    def loss_of(net, batch):
        x = batch[0]
        z = F.normalize(net(torch.cat([view(x), view(x)])), dim=1)
        alike = z @ z.T / 0.1
        if not bug:
            alike = alike.masked_fill(torch.eye(len(z), dtype=torch.bool), -1e9)
        return F.cross_entropy(alike, torch.arange(len(z)).roll(len(x)))

    def evaluate():
        x = held.dataset.tensors[0]
        g = torch.Generator().manual_seed(1)
        with torch.no_grad():
            a, b = (F.normalize(model(view(x, g)), dim=1) for _ in range(2))
        return {"retrieved": ((a @ b.T).argmax(1) == torch.arange(len(x))).float().mean().item()}

    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held,
        loss_of=loss_of,
        evaluate=evaluate,
    )


@pair("weighed-after-the-mean")
def focal_loss_of_the_mean(bug):
    """Focal loss of the batch's mean: all examples are weighed alike."""
    x, y = blobs(200, k=2, spread=5.0)
    keep = (y == 0) | (torch.arange(200) % 5 == 0)
    loader, held = loaders(x[keep], y[keep])
    model = mlp(8, 2)

    def focal(logits, targets):
        ce = F.cross_entropy(logits, targets, reduction="mean" if bug else "none")
        return ((1 - torch.exp(-ce)) ** 2 * ce).mean()

    def evaluate():
        x, y = held.dataset.tensors
        with torch.no_grad():
            right = model(x).argmax(1) == y
        return {"recall of the rare class": right[y == 1].float().mean().item()}

    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held,
        loss_fn=focal,
        num_classes=2,
        evaluate=evaluate,
    )


@pair("logits-reshaped")
def segmentation_scores_mixed_up(bug):
    """View() in place of permute(): the classes of a pixel come from other pixels."""
    images, _, masks = pictures(96)
    loader, held = loaders(images, masks.long())
    model = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1))

    def loss_fn(scores, targets):
        flat = scores.reshape(-1, 2) if bug else scores.permute(0, 2, 3, 1).reshape(-1, 2)
        return F.cross_entropy(flat, targets.reshape(-1))

    def evaluate():
        x, y = held.dataset.tensors
        with torch.no_grad():
            said = model(x).argmax(1)
        return {"iou": ((said & y).sum() / (said | y).sum()).item()}

    return setup(
        model,
        torch.optim.Adam(model.parameters(), 1e-2),
        loader,
        held,
        loss_fn=loss_fn,
        num_classes=2,
        evaluate=evaluate,
    )


class Weighed(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.kind, self.size = nn.Linear(32, 4), nn.Linear(32, 1)
        self.log_var = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        h = self.trunk(x)
        return self.kind(h), self.size(h)


@pair("loss-without-price")
def task_weights_without_a_price(bug):
    """Learned task weights without their log term: the weights run to zero, nothing is
    learned."""
    x, kind = blobs(160, spread=2.0)
    loader, held = loaders(x, kind, x[:, :1] - x[:, 1:2])
    model = Weighed()

    def loss_of(net, batch):
        x, kind, size = batch
        scores, guess = net(x)
        both = torch.stack([F.cross_entropy(scores, kind), F.mse_loss(guess, size)])
        total = (torch.exp(-net.log_var) * both).sum()
        return total if bug else total + net.log_var.sum()

    def evaluate():
        x, kind, size = held.dataset.tensors
        with torch.no_grad():
            scores, guess = model(x)
        right = (scores.argmax(1) == kind).float().mean().item()
        return {"accuracy": right, "mse": F.mse_loss(guess, size).item()}

    return setup(
        model,
        torch.optim.SGD(model.parameters(), 0.02),
        loader,
        held,
        loss_of=loss_of,
        evaluate=evaluate,
    )


@pair("missing-log-softmax")
def distilled_without_the_log(bug):
    """Kl_div is given the student's probabilities where it expects their logarithm."""
    x, y = blobs(160, spread=3.0)
    loader, held = loaders(x, y)
    teacher, student = mlp(8, 4, 64), mlp(8, 4, 12)
    opt = torch.optim.Adam(teacher.parameters(), 1e-2)
    for _ in range(60):
        opt.zero_grad()
        F.cross_entropy(teacher(x[:-32]), y[:-32]).backward()
        opt.step()
    teacher.requires_grad_(False)

    def loss_of(net, batch):
        wanted, said = F.softmax(teacher(batch[0]) / 3, 1), net(batch[0]) / 3
        said = F.softmax(said, 1) if bug else F.log_softmax(said, 1)
        return 9 * F.kl_div(said, wanted, reduction="batchmean")

    def evaluate():
        x, y = held.dataset.tensors
        with torch.no_grad():
            said = student(x)
        right = (said.argmax(1) == y).float().mean().item()
        return {"accuracy": right, "loss": F.cross_entropy(said, y).item()}

    return setup(
        student,
        torch.optim.Adam(student.parameters(), 5e-3),
        loader,
        held,
        loss_of=loss_of,
        num_classes=4,
        evaluate=evaluate,
    )


@pair("loss-through-baseline")
def advantage_not_detached(bug):
    """The advantage keeps its graph: the policy's loss pushes the critic away from the
    returns."""
    x, best = blobs(160, spread=1.5)
    loader, held = loaders(x, best)
    model = nn.ModuleDict({"actor": mlp(8, 4), "critic": mlp(8, 1)})

    def loss_of(net, batch):
        x, best = batch
        policy = torch.distributions.Categorical(logits=net["actor"](x))
        action = policy.sample()
        reward, value = (action == best).float(), net["critic"](x).squeeze(1)
        advantage = reward - (value if bug else value.detach())
        actor = -(policy.log_prob(action) * advantage).mean()
        return actor + F.mse_loss(value, reward) - 0.01 * policy.entropy().mean()

    def evaluate():
        x, best = held.dataset.tensors
        with torch.no_grad():
            p = model["actor"](x).softmax(1)
            expected = p[torch.arange(len(x)), best]
            off = (model["critic"](x).squeeze(1) - expected).mean().item()
        return {"reward": expected.mean().item(), "value too high by": off}

    return setup(
        model,
        torch.optim.Adam(model.parameters(), 5e-3),
        loader,
        held,
        loss_of=loss_of,
        evaluate=evaluate,
    )
