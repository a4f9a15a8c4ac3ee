"""Bugs that a reviewer would try: each line looks harmless where it stands."""

import copy

from torch.utils.data import DataLoader

from tests.debug.faulty.kit import (
    Attentive,
    F,
    examples,
    nn,
    pair,
    parts,
    plain,
    score,
    torch,
    whole,
)


class Tagger(nn.Module):
    """A class for every position of [B, T, D]: logits [B, T, C]."""

    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(4, 16, batch_first=True), nn.Linear(16, 3)

    def forward(self, x):
        return self.head(self.gru(x)[0])


@pair("logits-reshaped", how=["view", "flatten"])
def classes_and_positions_swapped(bug, how):
    """[B, T, C] read as [B, C, T] without moving an axis; or targets flattened in another order."""
    s = parts("rnn", model=Tagger(), task="classification")
    for loader in (s["train_loader"], s["val_loader"]):
        x, _ = loader.dataset.tensors
        loader.dataset.tensors = (x, x[..., :3].argmax(2))

    def loss_fn(out, y):
        if how == "view":
            logits = out.reshape(len(out), 3, -1) if bug else out.transpose(1, 2)
            return F.cross_entropy(logits, y)
        flat = out.transpose(1, 2).reshape(-1, 3) if bug else out.reshape(-1, 3)
        return F.cross_entropy(flat, y.reshape(-1))

    return whole(s | {"loss_fn": loss_fn})


@pair("frozen-params", "mse-for-classes", how=["argmax", "tensor", "numpy"])
def graph_lost_before_the_loss(bug, how):
    """What goes into the loss has no way back to the weights, but requires a gradient."""
    s = parts("mlp" if how == "argmax" else "regression")

    def train_step(batch):
        x, y = batch
        s["optimizer"].zero_grad()
        out = s["model"](x)
        if bug and how == "argmax":
            loss = F.mse_loss(out.argmax(1).float().requires_grad_(), y.float())
        elif bug and how == "tensor":
            loss = F.mse_loss(torch.tensor(out.tolist(), requires_grad=True), y)
        elif bug:
            loss = F.mse_loss(torch.from_numpy(out.detach().numpy()).requires_grad_(), y)
        else:
            loss = s["loss_fn"](out, y)
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@pair("clip-misplaced")
def clipped_before_unscale(bug):
    s = parts("mlp", declared={"max_grad_norm": 1.0})
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def train_step(batch):
        s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        scaler.scale(loss).backward()
        if not bug:
            scaler.unscale_(s["optimizer"])
        nn.utils.clip_grad_norm_(s["model"].parameters(), 1.0)
        scaler.step(s["optimizer"])
        scaler.update()
        return loss.item()

    return s | {"train_step": train_step}


@pair("weight-decay-misplaced")
def decay_on_bias_and_norm(bug):
    s = parts("cnn", declared={"no_weight_decay": ["bias", "norm"]})
    model = s["model"]
    flat = [p for p in model.parameters() if p.dim() <= 1]
    deep = [p for p in model.parameters() if p.dim() > 1]
    groups = (
        model.parameters() if bug
        else [{"params": deep, "weight_decay": 0.1}, {"params": flat, "weight_decay": 0.0}]
    )  # fmt: skip
    return whole(s | {"optimizer": torch.optim.AdamW(groups, 1e-3, weight_decay=0.1)})


@pair("inplace-modified")
def inplace_on_a_saved_tensor(bug):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 3)

        def forward(self, x):
            h = torch.sigmoid(self.a(x))
            h = h.mul_(2.0) if bug else h * 2.0
            return self.b(h)

    return whole(parts("mlp", model=Net()))


@pair("batch-of-one")
def last_batch_of_one(bug):
    model = nn.Sequential(nn.Linear(8, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
    s = parts("mlp", model=model, loader={"batch_size": 25, "drop_last": not bug})  # 176 = 7·25 + 1
    return whole(s)


@pair("batch-of-one")
def norm_over_single_images(bug):
    s = parts("cnn", 0.01, loader={"batch_size": 1 if bug else 16})
    return whole(s)


@pair("lr-too-small", "lr-zero-group")
def a_group_with_rate_zero(bug):
    s = parts("mlp")
    model = s["model"]
    groups = [{"params": model[0].parameters(), "lr": 0.0 if bug else 0.05},
              {"params": model[-1].parameters()}]  # fmt: skip
    return whole(s | {"optimizer": torch.optim.SGD(groups, 0.05)})


@pair("target-in-inputs", style=["regression", "mlp"])
def the_target_is_a_column(bug, style):
    """A feature of the table is the answer itself."""
    outputs = 1 if style == "regression" else 3
    s = parts(style, model=nn.Sequential(nn.Linear(9, 32), nn.ReLU(), nn.Linear(32, outputs)))
    for loader in (s["train_loader"], s["val_loader"]):
        x, y = loader.dataset.tensors
        column = y.reshape(len(y), -1)[:, :1].float() if bug else torch.randn(len(x), 1)
        loader.dataset.tensors = (torch.cat([x, column], 1), y)
    return whole(s)


@pair("metric-wrong")
def only_the_last_batch_is_counted(bug):
    s = whole(parts("mlp"))

    def evaluate():
        s["model"].eval()
        hits = count = 0
        with torch.no_grad():
            for x, y in s["val_loader"]:
                right = (s["model"](x).argmax(1) == y).sum().item()
                hits, count = (right, len(y)) if bug else (hits + right, count + len(y))
        s["model"].train()
        return {"accuracy": hits / count}

    return s | {"evaluate": evaluate}


@pair("evaluates-another-model", how=["ema", "copy"])
def scores_a_copy_that_never_moves(bug, how):
    s = parts("mlp")
    average = copy.deepcopy(s["model"]).eval().requires_grad_(False)
    inner = plain(s)

    def train_step(batch):
        loss = inner(batch)
        if not bug:
            with torch.no_grad():
                for a, p in zip(average.parameters(), s["model"].parameters(), strict=True):
                    a.lerp_(p, 0.1 if how == "ema" else 1.0)
        return loss

    return s | {"train_step": train_step, "evaluate": score(s | {"model": average})}


@pair("scheduler-misplaced")
def schedule_stepped_twice(bug):
    s = parts("mlp", declared={"scheduler_unit": "batch"})
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(s["optimizer"], T_max=220)
    inner = plain(s)

    def train_step(batch):
        loss = inner(batch)
        scheduler.step()
        if bug:
            scheduler.step()
        return loss

    return s | {"train_step": train_step, "scheduler": scheduler}


@pair("labels-shuffled", how=["step", "train", "both", "loaders"])
def labels_do_not_belong_to_inputs(bug, how):
    style = "cnn" if how == "both" else "mlp"
    s = parts(style)
    own = torch.Generator().manual_seed(3)
    if not bug:
        return whole(s)
    if how in ("train", "both"):
        for loader in [s["train_loader"], s["val_loader"]][: 1 if how == "train" else 2]:
            x, y = loader.dataset.tensors
            loader.dataset.tensors = (x, y[torch.randperm(len(y), generator=own)])
        return whole(s)
    if how == "loaders":

        class Zipped:
            def __init__(self, x, y):
                self.x, self.y = DataLoader(x, 16, shuffle=True), DataLoader(y, 16, shuffle=True)

            def __iter__(self):
                return iter(zip(self.x, self.y, strict=True))

            def __len__(self):
                return len(self.x)

        return whole(s | {"train_loader": Zipped(*examples(style))})
    inner = plain(s)

    def train_step(batch):
        x, y = batch
        return inner((x, y[torch.randperm(len(y))]))

    return s | {"train_step": train_step, "evaluate": score(s)}


@pair("mask-ignored", "padding-not-masked")
def attention_over_padding(bug):
    class Net(Attentive):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 4, padding_idx=0)

        def forward(self, tokens):
            pad = tokens == 0
            x = self.project(self.embed(tokens))
            h = self.block(x, src_key_padding_mask=None if bug else pad)
            keep = torch.ones_like(pad) if bug else ~pad
            return self.head((h * keep[..., None]).sum(1) / keep.sum(1, keepdim=True))

    s = parts("mlp", model=Net(), declared={"padding": 0})
    own = torch.Generator().manual_seed(5)
    for loader in (s["train_loader"], s["val_loader"]):
        n = len(loader.dataset)
        x = torch.randint(1, 20, (n, 10), generator=own)
        lengths = torch.randint(3, 11, (n, 1), generator=own)
        x[torch.arange(10) >= lengths] = 0
        loader.dataset.tensors = (x, (x[:, 0] % 3))
    return whole(s)
