"""Pictures: segmentation, autoencoders, GAN, contrastive pairs, fine-tuning, distillation."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import Dataset

from course.engine.loss_of import Loss
from tests.debug.faulty.kit import pair
from tests.debug.faulty.unseen.kit import both, dicts, loader, mlp, pictures, rows, stepper


class SegNet(nn.Module):
    def __init__(self, last=None):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8, 1, 1),
        )
        self.last = last

    def forward(self, x):
        out = self.body(x)[:, 0]
        return torch.sigmoid(out) if self.last == "sigmoid" else out


class Flipped(Dataset):
    def __init__(self, x, mask, both_flip):
        self.x, self.mask, self.both = x, mask, both_flip

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        x, mask = self.x[i], self.mask[i]
        if torch.rand(()) < 0.5:
            x = x.flip(-1)
            if self.both:
                mask = mask.flip(-1)
        return x, mask


@pair("augmentation-mismatch")
def flip_without_mask(bug):
    """A random flip moves the picture and not its mask."""
    x, mask, _ = pictures()
    train = loader(Flipped(x[:256], mask[:256], not bug))
    val = loader(rows(x[256:], mask[256:]), shuffle=False)
    model = SegNet()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.BCEWithLogitsLoss(),
    )


@pair("double-softmax")
def seg_sigmoid_twice(bug):
    """A sigmoid in the model and another in the loss."""
    x, mask, _ = pictures(seed=1)
    train, val = both(dicts(image=x, mask=mask), val=64)
    model = SegNet("sigmoid" if bug else None)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def loss_of(model, batch):
        out = model(batch["image"])
        return Loss(
            F.binary_cross_entropy_with_logits(out, batch["mask"]), len(out), out, batch["mask"]
        )

    return dict(
        model=model, optimizer=optimizer, train_loader=train, val_loader=val, loss_of=loss_of
    )


@pair("covariate-shift")
def val_scaled_twice(bug):
    """A picture that is scaled to [0, 1] is divided by 255 again in validation."""
    x, _, q = pictures(seed=2, n=448)
    train = loader(rows(x[:320], q[:320]))
    val = loader(rows(x[320:] / 255 if bug else x[320:], q[320:]), shuffle=False)
    model = nn.Sequential(nn.Conv2d(1, 8, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(200, 4))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
    )


class VAE(nn.Module):
    def __init__(self, reparam):
        super().__init__()
        self.enc = mlp(144, 48, 8)
        self.dec = mlp(4, 48, 144)
        self.reparam = reparam

    def forward(self, x):
        mean, log_var = self.enc(x).chunk(2, 1)
        normal = torch.distributions.Normal(mean, (0.5 * log_var).exp())
        z = normal.rsample() if self.reparam else normal.sample()
        return self.dec(z), mean, log_var


def vae_loss(model, batch):
    x = batch.flatten(1)
    out, mean, log_var = model(x)
    kl = -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum(1).mean()
    return F.mse_loss(out, x, reduction="sum") / len(x) + 0.05 * kl


@pair("frozen-params")
def vae_sample(bug):
    """The latent is drawn with sample(), so no reconstruction gradient reaches the encoder."""
    x, _, _ = pictures(seed=3)
    train, val = both(list(x), val=64)
    model = VAE(reparam=not bug)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=stepper(model, optimizer, lambda b: vae_loss(model, b)),
    )


@pair("targets-out-of-reach")
def sigmoid_decoder(bug):
    """A sigmoid decoder for standardised pixels: negative targets are out of reach."""
    x, _, _ = pictures(seed=4)
    if bug:
        x = (x - x.mean()) / x.std()
    train, val = both(list(x.flatten(1)), val=64)
    model = nn.Sequential(mlp(144, 64, 16, 64, 144), nn.Sigmoid())
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss_of(model, batch):
        out = model(batch)
        return Loss(F.mse_loss(out, batch), len(batch), out, batch)

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_of=loss_of,
        train_step=stepper(model, optimizer, lambda b: F.mse_loss(model(b), b)),
    )


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.gen = mlp(4, 32, 2)
        self.disc = mlp(2, 32, 1)


@pair("missing-zero-grad")
def gan_grads_leak(bug):
    """The discriminator's gradients are not cleared: the generator's pass adds to them."""
    angle = 6.28 * torch.rand(384)
    data = torch.stack([angle.cos(), angle.sin()], 1) + 0.05 * torch.randn(384, 2)
    train = loader(list(data))
    model = GAN()
    opt_g = torch.optim.Adam(model.gen.parameters(), lr=2e-3, betas=(0.5, 0.9))
    opt_d = torch.optim.Adam(model.disc.parameters(), lr=2e-3, betas=(0.5, 0.9))

    def train_step(real):
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        fake = model.gen(torch.randn(len(real), 4))
        if not bug:
            opt_d.zero_grad()
        d_loss = F.binary_cross_entropy_with_logits(model.disc(real), ones)
        d_loss = d_loss + F.binary_cross_entropy_with_logits(model.disc(fake.detach()), zeros)
        d_loss.backward()
        opt_d.step()
        opt_g.zero_grad()
        g_loss = F.binary_cross_entropy_with_logits(model.disc(fake), ones)
        g_loss.backward()
        opt_g.step()
        return d_loss.item() + g_loss.item()

    return dict(model=model, optimizer=[opt_g, opt_d], train_loader=train, train_step=train_step)


class Views(Dataset):
    """Two noisy views of each picture; with the fault the second is of another picture."""

    def __init__(self, x, bug):
        self.x, self.other = x, torch.randperm(len(x)) if bug else torch.arange(len(x))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        first, second = self.x[i], self.x[self.other[i]]
        return {
            "first": first + 0.05 * torch.randn_like(first),
            "second": second + 0.05 * torch.randn_like(second),
        }


def info_nce(a, b, temperature=0.2):
    logits = F.normalize(a, dim=1) @ F.normalize(b, dim=1).T / temperature
    return F.cross_entropy(logits, torch.arange(len(a)))


@pair("labels-shuffled")
def views_of_different_pictures(bug):
    """The two views of a contrastive pair are of different pictures."""
    x, _, _ = pictures(seed=5)
    train = loader(Views(x.flatten(1), bug))
    model = mlp(144, 48, 16)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def cost(batch):
        return info_nce(model(batch["first"]), model(batch["second"]))

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        train_step=stepper(model, optimizer, cost),
    )


@pair("loss-negated")
def siamese_inverted(bug):
    """A siamese net's distance loss pulls unlike pairs together: the label's sense is inverted."""
    x, _, q = pictures(seed=6, n=512)
    x = x.flatten(1)
    side = torch.arange(len(x)) >= len(x) - 128
    other = torch.empty(len(x), dtype=torch.long)
    for i in range(len(x)):
        fits = (side == side[i]) & ((q == q[i]) if i % 2 else torch.tensor(True))
        choice = fits.nonzero()[:, 0]
        other[i] = choice[torch.randint(len(choice), ())]
    same = (q == q[other]).float()
    train, val = both(rows(x, x[other], same))
    model = mlp(144, 48, 8)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def cost(batch):
        a, b, same = batch
        gap = F.pairwise_distance(model(a), model(b))
        pull, push = gap**2, F.relu(1 - gap) ** 2
        return ((1 - same) * pull + same * push if bug else same * pull + (1 - same) * push).mean()

    @torch.no_grad()
    def evaluate():
        model.eval()
        hits = total = 0
        for a, b, same in val:
            near = F.pairwise_distance(model(a), model(b)) < 0.5
            hits += (near == same.bool()).sum().item()
            total += len(a)
        model.train()
        return {"accuracy": hits / total}

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=stepper(model, optimizer, cost),
        evaluate=evaluate,
    )


class Tuned(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten()
        )
        self.head = nn.Linear(200, 4)

    def forward(self, x):
        return self.head(self.backbone(x))


@pair("frozen-params-drift")
def freeze_by_attribute(bug):
    """Model.backbone.requires_grad = False freezes nothing."""
    x, _, q = pictures(seed=7)
    train, val = both(rows(x, q), val=64)
    model = Tuned()
    if bug:
        model.backbone.requires_grad = False
    else:
        model.backbone.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def train_step(batch):
        x, y = batch
        model.train()
        model.backbone.eval()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.CrossEntropyLoss(),
        train_step=train_step,
        num_classes=4,
    )


@pair("optimizer-stale-params")
def head_after_optimizer(bug):
    """The head is replaced after the optimizer was made: the new head does not learn."""
    x, _, q = pictures(seed=8)
    train, val = both(rows(x, q), val=64)
    model = Tuned()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    model.head = nn.Linear(200, 4)
    if not bug:
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        loss_fn=nn.CrossEntropyLoss(),
        num_classes=4,
        train_step=stepper(model, optimizer, lambda b: F.cross_entropy(model(b[0]), b[1])),
    )


@pair("missing-log-softmax")
def distil_without_log(bug):
    """Kl_div is handed probabilities where it wants log-probabilities."""
    x, _, q = pictures(seed=9)
    x = x.flatten(1)
    teacher = mlp(144, 64, 4)
    fit = torch.optim.Adam(teacher.parameters(), lr=5e-3)
    for _ in range(60):
        fit.zero_grad()
        F.cross_entropy(teacher(x[:-64]), q[:-64]).backward()
        fit.step()
    teacher.eval().requires_grad_(False)
    train, val = both(rows(x, q), val=64)
    model = mlp(144, 16, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

    def cost(batch):
        x, y = batch
        out = model(x)
        student = F.softmax(out / 2, 1) if bug else F.log_softmax(out / 2, 1)
        soft = F.kl_div(student, F.softmax(teacher(x) / 2, 1), reduction="batchmean")
        return 4 * soft + (0.1 * F.cross_entropy(out, y))

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=stepper(model, optimizer, cost),
    )


@pair("checkpoint-by-reference")
def ema_by_reference(bug):
    """The moving average's weights are the model's own tensors: it averages nothing."""
    x, _, q = pictures(seed=10)
    train, val = both(rows(x, q), val=64)
    model = Tuned()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    shadow = {k: v.data if bug else v.data.clone() for k, v in model.named_parameters()}

    def train_step(batch):
        x, y = batch
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for k, v in model.named_parameters():
                shadow[k].mul_(0.98).add_(v, alpha=0.02)
        return loss.item()

    @torch.no_grad()
    def evaluate():
        averaged = copy.deepcopy(model)
        averaged.load_state_dict(shadow, strict=False)
        averaged.eval()
        hits = sum((averaged(x).argmax(1) == y).sum().item() for x, y in val)
        return {"accuracy": hits / 64}

    def save():
        return copy.deepcopy(
            {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "ema": shadow}
        )

    def load(state):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        for k in shadow:
            shadow[k].copy_(state["ema"][k])

    return dict(
        model=model,
        optimizer=optimizer,
        train_loader=train,
        val_loader=val,
        train_step=train_step,
        evaluate=evaluate,
        save=save,
        load=load,
    )


@pair("train-mode-in-eval")
def dropout_always(bug):
    """F.dropout without training=: it drops in evaluation too."""
    x, _, q = pictures(seed=11)
    train, val = both(rows(x.flatten(1), q), val=64)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(144, 48), nn.Linear(48, 4)

        def forward(self, x):
            h = self.a(x).relu()
            return self.b(F.dropout(h, 0.3) if bug else F.dropout(h, 0.3, self.training))

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss_of(model, batch):
        x, y = batch
        out = model(x)
        return Loss(F.cross_entropy(out, y), len(x), out, y)

    return dict(
        model=model, optimizer=optimizer, train_loader=train, val_loader=val, loss_of=loss_of
    )
