"""More sound set-ups, as a reviewer would try them; each docstring says what looks odd."""

from __future__ import annotations

import copy

from torch.utils.data import DataLoader, TensorDataset

from tests.debug.faulty.kit import (
    F,
    Recurrent,
    examples,
    network,
    nn,
    parts,
    plain,
    score,
    torch,
    whole,
)
from tests.debug.sound.programs import sound


@sound
def mixup():
    """Inputs of two examples mixed, with both their labels weighed."""
    s = parts("cnn")

    def train_step(batch):
        x, y = batch
        share, order = 0.7, torch.randperm(len(x))
        s["optimizer"].zero_grad()
        out = s["model"](share * x + (1 - share) * x[order])
        loss = share * F.cross_entropy(out, y) + (1 - share) * F.cross_entropy(out, y[order])
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step, "evaluate": score(s)}


@sound
def cutmix_with_soft_labels():
    """Targets are rows of probabilities."""
    s = parts("cnn")

    def train_step(batch):
        x, y = batch
        order = torch.randperm(len(x))
        x = torch.cat([x[..., :4], x[order][..., 4:]], -1)
        soft = (F.one_hot(y, 3) + F.one_hot(y[order], 3)) / 2.0
        s["optimizer"].zero_grad()
        loss = F.cross_entropy(s["model"](x), soft)
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step, "evaluate": score(s)}


@sound
def two_heads_one_loss():
    """A class and a number from one body; outputs are a dictionary."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.kind, self.size = nn.Linear(8, 32), nn.Linear(32, 3), nn.Linear(32, 1)

        def forward(self, x):
            h = self.body(x).relu()
            return {"kind": self.kind(h), "size": self.size(h).squeeze(1)}

    def loss_fn(out, y):
        return F.cross_entropy(out["kind"], y) + 0.1 * F.mse_loss(out["size"], y.float())

    s = parts("mlp", model=Net(), loss_fn=loss_fn)

    def evaluate():
        s["model"].eval()
        with torch.no_grad():
            hits = sum(
                (s["model"](x)["kind"].argmax(1) == y).sum().item() for x, y in s["val_loader"]
            )
        s["model"].train()
        return {"accuracy": hits / 72}

    return s | {"train_step": plain(s), "evaluate": evaluate}


@sound
def siamese_margin():
    """One network sees both halves of a pair; the loss is a distance with a margin."""
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 4))
    s = parts("binary", model=model, loss_fn=nn.BCEWithLogitsLoss())

    def train_step(batch):
        (a, b), same = batch[0].chunk(2, 1), batch[1][:, 0]
        s["optimizer"].zero_grad()
        distance = (model(a) - model(b)).norm(dim=1)
        loss = (same * distance**2 + (1 - same) * F.relu(1 - distance) ** 2).mean()
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@sound
def denoising_autoencoder():
    """Noise on the inputs, the clean inputs as targets; the loader gives (x, x)."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    s = parts("regression", model=model)
    for loader in (s["train_loader"], s["val_loader"]):
        x, _ = loader.dataset.tensors
        loader.dataset.tensors = (x, x)

    def train_step(batch):
        x, y = batch
        s["optimizer"].zero_grad()
        loss = F.mse_loss(model(x + 0.3 * torch.randn_like(x)), y)
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step, "evaluate": score(s)}


@sound
def sequences_with_a_mask():
    """Padded tokens, masked in the attention and in the mean."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 16, padding_idx=0)
            self.block = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.head = nn.Linear(16, 3)

        def forward(self, tokens):
            pad = tokens == 0
            h = self.block(self.embed(tokens), src_key_padding_mask=pad)
            return self.head((h * ~pad[..., None]).sum(1) / (~pad).sum(1, keepdim=True))

    s = parts("mlp", model=Net())
    own = torch.Generator().manual_seed(5)
    for loader in (s["train_loader"], s["val_loader"]):
        n = len(loader.dataset)
        x = torch.randint(1, 20, (n, 10), generator=own)
        x[torch.arange(10) >= torch.randint(3, 11, (n, 1), generator=own)] = 0
        loader.dataset.tensors = (x, x[:, 0] % 3)
    return whole(s)


@sound
def tagging_with_ignored_positions():
    """A class a position; padded positions are -100."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.head = nn.GRU(4, 16, batch_first=True), nn.Linear(16, 3)

        def forward(self, x):
            return self.head(self.gru(x)[0]).transpose(1, 2)

    s = parts("rnn", model=Net())
    for loader in (s["train_loader"], s["val_loader"]):
        x, _ = loader.dataset.tensors
        y = x[..., :3].argmax(2)
        y[::3, 4:] = -100
        loader.dataset.tensors = (x, y)
    return whole(s)


@sound
def language_model():
    """Next token: inputs and targets come from one row, shifted by one."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.gru = nn.Embedding(12, 16), nn.GRU(16, 32, batch_first=True)
            self.head = nn.Linear(32, 12)

        def forward(self, tokens):
            return self.head(self.gru(self.embed(tokens))[0])

    s = parts(
        "mlp", model=Net(), loss_fn=lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten())
    )
    own = torch.Generator().manual_seed(5)
    for loader in (s["train_loader"], s["val_loader"]):
        start = torch.randint(0, 12, (len(loader.dataset), 1), generator=own)
        rows = (start + torch.randint(1, 3, (len(start), 9), generator=own).cumsum(1)) % 12
        loader.dataset.tensors = (rows[:, :-1].clone(), rows[:, 1:].clone())
    return whole(s | {"num_classes": 12})


@sound
def cosine_by_batch_over_epochs():
    """A cosine stepped each batch, with warm restarts of one epoch."""
    s = parts("mlp", declared={"scheduler_unit": "batch"})
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(s["optimizer"], T_0=11)
    inner = plain(s)

    def train_step(batch):
        loss = inner(batch)
        scheduler.step()
        return loss

    return s | {"train_step": train_step, "evaluate": score(s), "scheduler": scheduler}


@sound
def quantile_regression():
    """Three quantiles of one target: outputs [B, 3] meet targets [B, 1] by broadcast, as meant."""
    levels = torch.tensor([0.1, 0.5, 0.9])

    def pinball(out, y):
        off = y - out
        return torch.maximum(levels * off, (levels - 1) * off).mean()

    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
    return whole(parts("regression", model=model, loss_fn=pinball))


@sound
def gaussian_likelihood():
    """Mean and variance from one network; the loss may be negative."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))

    def loss_fn(out, y):
        return F.gaussian_nll_loss(out[:, :1], y, F.softplus(out[:, 1:]) + 1e-3)

    return whole(parts("regression", 0.01, model=model, loss_fn=loss_fn))


@sound
def missing_targets_masked():
    """Targets hold nan where nothing was measured; the loss leaves them out."""

    def loss_fn(out, y):
        known = torch.isfinite(y)
        return F.mse_loss(out[known], y[known])

    s = parts("regression", model=nn.Linear(8, 2), loss_fn=loss_fn)
    for loader in (s["train_loader"], s["val_loader"]):
        x, y = loader.dataset.tensors
        y = torch.cat([y, -y], 1)
        y[::3, 0], y[1::4, 1] = float("nan"), float("nan")
        loader.dataset.tensors = (x, y)
    return whole(s)


@sound
def pixels_divided_inside():
    """Pixels of 0 to 255; the first line of forward divides and centres them."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network("cnn")

        def forward(self, x):
            return self.net((x / 255 - 0.5) / 0.25)

    s = parts("cnn", model=Net())
    for loader in (s["train_loader"], s["val_loader"]):
        x, y = loader.dataset.tensors
        loader.dataset.tensors = ((x * 40 + 100).clamp(0, 255), y)
    return whole(s)


@sound
def discriminative_rates():
    """The body learns a hundred times slower than the head."""
    s = parts("mlp")
    groups = [
        {"params": s["model"][0].parameters(), "lr": 5e-4},
        {"params": s["model"][-1].parameters()},
    ]
    return whole(s | {"optimizer": torch.optim.AdamW(groups, 0.05)})


@sound
def gradual_unfreezing():
    """A group starts with rate 0 and a schedule wakes it later."""
    s = parts("mlp")
    groups = [{"params": s["model"][0].parameters()}, {"params": s["model"][-1].parameters()}]
    optimizer = torch.optim.SGD(groups, 0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, [lambda e: float(e >= 2), lambda e: 1.0]
    )
    return whole(s | {"optimizer": optimizer, "scheduler": scheduler})


@sound
def scaler_and_clip():
    """A gradient scaler: unscaled, then clipped, then stepped."""
    s = parts("mlp", declared={"max_grad_norm": 1.0})
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)

    def train_step(batch):
        s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        scaler.scale(loss).backward()
        scaler.unscale_(s["optimizer"])
        nn.utils.clip_grad_norm_(s["model"].parameters(), 1.0)
        scaler.step(s["optimizer"])
        scaler.update()
        return loss.item()

    return s | {"train_step": train_step, "evaluate": score(s)}


@sound
def inplace_activations():
    """nn.ReLU(inplace=True) after layers that do not need their outputs."""
    model = nn.Sequential(
        nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(inplace=True), nn.Linear(32, 3)
    )
    return whole(parts("mlp", model=model))


@sound
def one_image_at_a_time():
    """A batch of 1 with instance normalisation, as style transfer has it."""
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.InstanceNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 3)
    )
    return whole(parts("cnn", 0.005, model=model, loader={"batch_size": 1}))


@sound
def hard_parity():
    """Labels that neither neighbours nor lines tell: the parity of three signs."""
    s = parts("binary", 0.01, "Adam")
    for loader in (s["train_loader"], s["val_loader"]):
        x, _ = loader.dataset.tensors
        loader.dataset.tensors = (x, ((x[:, :3] > 0).sum(1) % 2).float()[:, None])
    return whole(s)


@sound
def noisy_labels_each_epoch():
    """A tenth of the labels is drawn anew in every epoch, as regularisation (DisturbLabel)."""
    s = parts("mlp")
    x, y = examples("mlp")

    class Disturbed(torch.utils.data.Dataset):
        def __len__(self):
            return len(y)

        def __getitem__(self, i):
            drawn = int(torch.randint(3, ())) if torch.rand(()) < 0.1 else int(y[i])
            return x[i], drawn

    return whole(s | {"train_loader": DataLoader(Disturbed(), 16, shuffle=True)})


@sound
def swapped_pairs_as_negatives():
    """Half of the rows meet a wrong partner on purpose, with label 0, anew each epoch."""
    s = parts("binary")

    def train_step(batch):
        a, b = batch[0].chunk(2, 1)
        wrong = b[torch.randperm(len(b))]
        x = torch.cat([torch.cat([a, b], 1), torch.cat([a, wrong], 1)])
        y = torch.cat([torch.ones(len(a), 1), torch.zeros(len(a), 1)])
        s["optimizer"].zero_grad()
        loss = F.binary_cross_entropy_with_logits(s["model"](x), y)
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@sound
def lagged_target_among_inputs():
    """A time series: the value of yesterday is an input, the value of today the target."""
    noise = torch.randn(260, generator=torch.Generator().manual_seed(1))
    series = torch.sin(torch.arange(260) / 5) + 0.2 * noise
    x, y = series.unfold(0, 9, 1)[:, :8], series.unfold(0, 9, 1)[:, 8:]
    s = parts("regression", 0.01)
    train, val = TensorDataset(x[:180], y[:180]), TensorDataset(x[190:], y[190:])
    return whole(
        s | {"train_loader": DataLoader(train, 16, shuffle=True), "val_loader": DataLoader(val, 16)}
    )


@sound
def snapshot_ensemble():
    """Scored by the mean of three networks, one of which is being trained."""
    s = parts("mlp")
    others = [network("mlp").eval().requires_grad_(False) for _ in range(2)]

    def evaluate():
        s["model"].eval()
        hits = 0
        with torch.no_grad():
            for x, y in s["val_loader"]:
                mean = sum(net(x).softmax(1) for net in (s["model"], *others))
                hits += (mean.argmax(1) == y).sum().item()
        s["model"].train()
        return {"ensemble_hits": hits}

    return whole(s) | {"evaluate": evaluate}


@sound
def teacher_scored_after_copying():
    """The copy that is scored is refreshed at the start of each evaluate()."""
    s = whole(parts("mlp"))
    copied = copy.deepcopy(s["model"])
    ask = score(s | {"model": copied})

    def evaluate():
        copied.load_state_dict(s["model"].state_dict())
        return ask()

    return s | {"evaluate": evaluate}


@sound
def gradient_penalty():
    """Double backward: the norm of the input's gradient is a part of the loss."""
    s = parts("regression", 0.01)

    def train_step(batch):
        x, y = batch[0].clone().requires_grad_(), batch[1]
        s["optimizer"].zero_grad()
        out = s["model"](x)
        (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        loss = F.mse_loss(out, y) + 0.1 * grad.pow(2).sum(1).mean()
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@sound
def truncated_steps_of_a_sequence():
    """One batch, three windows of time, an update after each."""
    s = parts("rnn", model=Recurrent())
    gru, head = s["model"].gru, s["model"].head

    def train_step(batch):
        h, total = None, 0.0
        for window in batch[0].split(2, 1):
            s["optimizer"].zero_grad()
            out, h = gru(window, None if h is None else h.detach())
            loss = F.cross_entropy(head(out[:, -1]), batch[1])
            loss.backward()
            s["optimizer"].step()
            total += loss.item()
        return total / 3

    return s | {"train_step": train_step}


def resumable(s):
    """With `save` and `load` of everything, copied."""

    def save():
        return copy.deepcopy({k: s[k].state_dict() for k in ("model", "optimizer")})

    def load(state):
        for name, value in state.items():
            s[name].load_state_dict(value)

    return s | {"save": save, "load": load}


@sound
def loads_into_eval_mode():
    """load() leaves eval mode, for scoring; every training step calls train() itself."""
    s = resumable(whole(parts("cnn", 0.01, "AdamW")))
    inner = s["load"]

    def load(state):
        inner(state)
        s["model"].eval()

    return s | {"load": load}


@sound
def saved_while_accumulating():
    """Windows of 4 micro-batches; the checkpoint is taken at the end of one."""
    s = parts("mlp", 0.01, "Adam", declared={"accumulate": 4})
    state = {"i": 0}

    def train_step(batch):
        state["i"] += 1
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        (loss / 4).backward()
        if state["i"] % 4 == 0:
            s["optimizer"].step()
            s["optimizer"].zero_grad()
        return loss.item()

    return resumable(s | {"train_step": train_step})


@sound
def weights_alone_for_plain_sgd():
    """Plain SGD remembers nothing, so the weights are the whole checkpoint."""
    s = whole(parts("regression"))
    return s | {
        "save": lambda: {k: v.clone() for k, v in s["model"].state_dict().items()},
        "load": s["model"].load_state_dict,
    }


@sound
def written_to_a_file():
    """save(path) and load(path), with a scheduler and the generator's state."""
    s = whole(parts("transformer", 0.01, "AdamW"))

    def save(path):
        parts_of_it = {k: s[k].state_dict() for k in ("model", "optimizer")}
        torch.save(parts_of_it | {"rng": torch.get_rng_state()}, path)

    def load(path):
        state = torch.load(path, weights_only=True)
        torch.set_rng_state(state.pop("rng"))
        for name, value in state.items():
            s[name].load_state_dict(value)

    return s | {"save": save, "load": load}
