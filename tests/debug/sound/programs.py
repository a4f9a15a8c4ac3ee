"""Each function makes one sound set-up; its docstring says what looks odd and why it is right."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

from tests.debug.faulty.kit import (
    STYLES,
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
)  # fmt: skip

SOUND: dict[str, Callable[[], dict[str, Any]]] = {}


def sound(make: Callable[..., dict], **words: Any) -> Callable:
    def seeded() -> dict[str, Any]:
        torch.manual_seed(0)
        return make(**words)

    SOUND[make.__name__ + (str(list(words.values())) if words else "")] = seeded
    return make


def every_style(style: str) -> dict:
    return whole(parts(style))


for _style in STYLES:
    sound(every_style, style=_style)


@sound
def only_four_things():
    """Nothing but what is needed."""
    s = parts("mlp")
    return {k: s[k] for k in ("model", "loss_fn", "optimizer", "train_loader")}


@sound
def cleared_after_the_update():
    """Buffers cleared after the update instead of before (F27)."""
    s = parts("cnn", 0.01, "AdamW")

    def train_step(batch):
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        loss.backward()
        s["optimizer"].step()
        s["model"].zero_grad(set_to_none=False)
        return loss.item()

    return s | {"train_step": train_step, "evaluate": score(s)}


@sound
def accumulates_over_calls():
    """An update every fourth call, weighted, clipped once, cleared after."""
    s = parts("mlp", declared={"accumulate": 4})
    state = {"i": 0}

    def train_step(batch):
        state["i"] += 1
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        (loss / 4).backward()
        if state["i"] % 4 == 0:
            nn.utils.clip_grad_norm_(s["model"].parameters(), 1.0)
            s["optimizer"].step()
            s["optimizer"].zero_grad()
        return loss.item()

    return s | {"train_step": train_step}


@sound
def two_losses_two_backwards():
    """Two losses of one batch, each with a backward of its own: a sum, no accumulation."""
    s = parts("mlp")

    def train_step(batch):
        s["optimizer"].zero_grad()
        out = s["model"](batch[0])
        first = F.cross_entropy(out, batch[1])
        first.backward(retain_graph=True)
        (0.01 * out.pow(2).mean()).backward()
        s["optimizer"].step()
        return first.item()

    return s | {"train_step": train_step}


@sound
def frozen_backbone():
    """The first layers frozen and in eval mode, a head trained."""
    s = parts("cnn")
    body = s["model"][:3]
    for p in body.parameters():
        p.requires_grad_(False)
    s["optimizer"] = torch.optim.Adam((p for p in s["model"].parameters() if p.requires_grad), 0.01)

    def train_step(batch):
        s["model"].train()
        body.eval()
        s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step, "declared": {"frozen": ["0", "1"]}}


@sound
def probe_on_a_backbone_left_alone():
    """Only the head is given to the optimizer."""
    s = parts("rnn")
    s["optimizer"] = torch.optim.SGD(s["model"].head.parameters(), 0.05)
    return whole(s)


@sound
def shared_towers():
    """One tower for both halves of the input, also kept in a list by a second name."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.tower = nn.Sequential(nn.Linear(4, 16), nn.ReLU())
            self.towers = [self.tower, self.tower]
            self.head = nn.Linear(16, 3)

        def forward(self, x):
            a, b = (t(h) for t, h in zip(self.towers, x.chunk(2, 1), strict=True))
            return self.head(a + b)

    return whole(parts("mlp", model=Net()))


@sound
def teacher_in_a_list():
    """A frozen teacher hidden on purpose, so that it is not saved or trained."""

    class Student(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network("mlp")
            self.teacher = [network("mlp").eval().requires_grad_(False)]

        def forward(self, x):
            return self.net(x)

    s = parts("mlp", model=Student())

    def train_step(batch):
        s["optimizer"].zero_grad()
        out = s["model"](batch[0])
        with torch.no_grad():
            soft = s["model"].teacher[0](batch[0]).softmax(1)
        loss = F.cross_entropy(out, batch[1]) + 0.1 * F.kl_div(out.log_softmax(1), soft)
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@sound
def weighted_loss_balanced_sampler():
    """Few of one class: weights in the loss, batches drawn evenly, validation as it is."""
    x, y = examples("mlp", 400)
    keep = (y != 2) | (torch.rand(400) < 0.2)
    x, y = x[keep], y[keep]
    counts = y.bincount().float()
    weights = counts.sum() / counts
    s = parts("mlp", loss_fn=nn.CrossEntropyLoss(weight=weights))
    own = torch.Generator().manual_seed(0)
    sampler = WeightedRandomSampler(weights[y], len(y), generator=own)
    return whole(s | {"train_loader": DataLoader(TensorDataset(x, y), 16, sampler=sampler)})


@sound
def monte_carlo_dropout():
    """Dropout on purpose while scoring, over many passes."""
    s = parts("mlp")

    def evaluate():
        s["model"].eval()
        for m in s["model"].modules():
            if isinstance(m, nn.Dropout):
                m.train()
        hits = 0
        with torch.no_grad():
            for x, y in s["val_loader"]:
                mean = torch.stack([s["model"](x).softmax(1) for _ in range(8)]).mean(0)
                hits += (mean.argmax(1) == y).sum().item()
        s["model"].train()
        return {"accuracy": hits / 72}

    return whole(s) | {"evaluate": evaluate}


@sound
def label_smoothing():
    """A loss that cannot reach zero."""
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.2)
    return whole(parts("mlp", loss_fn=loss_fn, declared={"label_smoothing": 0.2}))


@sound
def two_optimizers_of_a_gan():
    """A discriminator with two backwards a step, and a generator with an optimizer of its own."""
    model = nn.ModuleDict({"g": nn.Linear(4, 8), "d": nn.Sequential(nn.Linear(8, 16), nn.ReLU(),
                                                                    nn.Linear(16, 1))})  # fmt: skip
    model.forward = lambda x: model["d"](x)
    og = torch.optim.Adam(model["g"].parameters(), 1e-3)
    od = torch.optim.Adam(model["d"].parameters(), 1e-3)
    s = parts("binary", model=model)

    def train_step(batch):
        x = batch[0]
        fake = model["g"](torch.randn(len(x), 4))
        od.zero_grad()
        one, zero = torch.ones(len(x), 1), torch.zeros(len(x), 1)
        F.binary_cross_entropy_with_logits(model(x), one).backward()
        F.binary_cross_entropy_with_logits(model(fake.detach()), zero).backward()
        od.step()
        og.zero_grad()
        loss = F.binary_cross_entropy_with_logits(model(fake), one)
        loss.backward()
        og.step()
        return loss.item()

    return s | {"optimizer": [od, og], "train_step": train_step}


@sound
def lbfgs():
    """An optimizer that calls a closure many times a step."""
    s = parts("regression", 0.5, "LBFGS", words={"max_iter": 4}, model=nn.Linear(8, 1))

    def train_step(batch):
        def closure():
            s["optimizer"].zero_grad()
            loss = s["loss_fn"](s["model"](batch[0]), batch[1])
            loss.backward()
            return loss

        return s["optimizer"].step(closure).item()

    return s | {"train_step": train_step}


@sound
def gradient_checkpointing():
    """Forwards run again inside backward."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 3)

        def forward(self, x):
            h = checkpoint(lambda t: self.a(t).relu(), x, use_reentrant=False)
            return self.b(h)

    return whole(parts("mlp", model=Net()))


@sound
def averaged_weights():
    """Scored with an average of the weights, which are put back afterwards."""
    s = parts("mlp")
    average = copy.deepcopy(s["model"]).requires_grad_(False)
    step, ask = plain(s), score(s)

    def train_step(batch):
        loss = step(batch)
        with torch.no_grad():
            for a, p in zip(average.parameters(), s["model"].parameters(), strict=True):
                a.lerp_(p, 0.1)
        return loss

    def evaluate():
        own = copy.deepcopy(s["model"].state_dict())
        s["model"].load_state_dict(average.state_dict())
        found = ask()
        s["model"].load_state_dict(own)
        return found

    return s | {"train_step": train_step, "evaluate": evaluate}


@sound
def warmup_by_batch():
    """A schedule stepped inside the step, that starts near zero."""
    s = parts("transformer", 0.01, "AdamW", declared={"scheduler_unit": "batch"})
    scheduler = torch.optim.lr_scheduler.OneCycleLR(s["optimizer"], 0.01, total_steps=330)
    step = plain(s)

    def train_step(batch):
        loss = step(batch)
        scheduler.step()
        return loss

    return s | {"train_step": train_step, "scheduler": scheduler}


@sound
def schedule_by_epoch():
    """A scheduler that the step does not touch."""
    s = parts("mlp")
    scheduler = torch.optim.lr_scheduler.StepLR(s["optimizer"], 3)
    return whole(s) | {"scheduler": scheduler}


@sound
def log_softmax_and_nll():
    """Cross-entropy in two pieces."""
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3), nn.LogSoftmax(1))
    return whole(parts("mlp", model=model, loss_fn=nn.NLLLoss()))


@sound
def class_indices_regressed_on_purpose():
    """Ratings 0 to 4, learned as numbers: the task is said to be regression."""
    s = parts("regression")
    for loader in (s["train_loader"], s["val_loader"]):
        x, y = loader.dataset.tensors
        loader.dataset.tensors = (x, (y * 1.5 + 2).round().clamp(0, 4))
    return whole(s)


@sound
def autoencoder():
    """The target is the input, and the labels are not used."""
    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, 8))
    s = parts("mlp", model=model, task="regression", loss_fn=lambda out, y: out.pow(2).mean())
    s.pop("num_classes")

    def train_step(batch):
        s["optimizer"].zero_grad()
        loss = F.mse_loss(model(batch[0]), batch[0])
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@sound
def contrastive():
    """Rows of a batch meet each other in the loss, as they should."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    s = parts("mlp", model=model, loss_fn=lambda out, y: F.cross_entropy(out @ out.T, y * 0))

    def train_step(batch):
        s["optimizer"].zero_grad()
        a, b = (F.normalize(model(batch[0] + 0.1 * torch.randn_like(batch[0]))) for _ in range(2))
        loss = F.cross_entropy(a @ b.T / 0.2, torch.arange(len(a)))
        loss.backward()
        s["optimizer"].step()
        return loss.item()

    s.pop("num_classes")
    s.pop("task")
    return s | {"train_step": train_step}


@sound
def raw_pixels_normalised_inside():
    """Pixels of 0 to 255; the model starts with a batch norm."""
    s = parts("cnn", model=nn.Sequential(nn.BatchNorm2d(1), *network("cnn")))
    for loader in (s["train_loader"], s["val_loader"]):
        x, y = loader.dataset.tensors
        loader.dataset.tensors = ((x * 40 + 100).clamp(0, 255), y)
    return whole(s)


@sound
def zero_initialised_head():
    """Every output is 0 before the first step."""
    s = parts("mlp")
    nn.init.zeros_(s["model"][-1].weight)
    nn.init.zeros_(s["model"][-1].bias)
    return whole(s)


@sound
def fine_tuning_slowly():
    """A small learning rate with Adam, as fine-tuning wants it."""
    return whole(parts("transformer", 2e-5, "AdamW"))


@sound
def step_at_the_start_of_the_next_call():
    """Pipelined: the update of a batch is made when the next one comes."""
    s = parts("mlp")
    state = {"ready": False}

    def train_step(batch):
        if state["ready"]:
            s["optimizer"].step()
            s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        loss.backward()
        state["ready"] = True
        return loss.item()

    return s | {"train_step": train_step}


@sound
def sharpness_aware():
    """Two forwards and backwards a step, the weights moved to and fro between them."""
    s = parts("mlp")
    ps = list(s["model"].parameters())

    def train_step(batch):
        s["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        loss.backward()
        shift = [0.01 * p.grad for p in ps]
        with torch.no_grad():
            for p, d in zip(ps, shift, strict=True):
                p.add_(d)
        s["optimizer"].zero_grad()
        s["loss_fn"](s["model"](batch[0]), batch[1]).backward()
        with torch.no_grad():
            for p, d in zip(ps, shift, strict=True):
                p.sub_(d)
        s["optimizer"].step()
        return loss.item()

    return s | {"train_step": train_step}


@sound
def adversarial_score():
    """Scoring needs input gradients, so a graph is built on purpose."""
    s = parts("mlp")

    def evaluate():
        s["model"].eval()
        hits = 0
        for x, y in s["val_loader"]:
            x = x.clone().requires_grad_()
            loss = s["loss_fn"](s["model"](x), y)
            (grad,) = torch.autograd.grad(loss, x)
            with torch.no_grad():
                hits += (s["model"](x + 0.1 * grad.sign()).argmax(1) == y).sum().item()
        s["model"].train()
        return {"robust_hits": hits}

    return whole(s) | {"evaluate": evaluate}


@sound
def wrapped_model():
    """The model inside another, the step a partial of a free function."""

    class Wrapper(nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, *args):
            return self.module(*args)

    s = parts("rnn", model=Wrapper(Recurrent()))

    def step(parts_of_it, batch):
        return plain(parts_of_it)(batch)

    return s | {"train_step": partial(step, s), "evaluate": score(s)}


@sound
def carried_state():
    """A hidden state carried from batch to batch, detached."""
    s = parts("rnn")
    gru, head = s["model"].gru, s["model"].head
    state = {"h": None}

    def train_step(batch):
        h = state["h"]
        if h is not None and h.shape[1] != len(batch[0]):
            h = None
        s["optimizer"].zero_grad()
        out, h = gru(batch[0], h)
        loss = F.cross_entropy(head(out[:, -1]), batch[1])
        loss.backward()
        s["optimizer"].step()
        state["h"] = h.detach()
        return loss.item()

    return s | {"train_step": train_step}


@sound
def brier_score():
    """A squared distance between probabilities and one-hot rows: a proper score."""
    s = parts("mlp", loss_fn=lambda out, y: F.mse_loss(out.softmax(1), F.one_hot(y, 3).float()))
    return whole(s)


@sound
def sum_reduction_small_rate():
    """A loss summed over the batch, with a rate to match."""
    return whole(parts("mlp", 0.002, loss_fn=nn.CrossEntropyLoss(reduction="sum")))


@sound
def random_labels():
    """Synthetic data in which there is nothing to learn."""
    s = parts("mlp")
    for loader in (s["train_loader"], s["val_loader"]):
        x, y = loader.dataset.tensors
        loader.dataset.tensors = (torch.randn_like(x), torch.randint(0, 3, y.shape))
    return whole(s)


@sound
def batches_in_a_list():
    """No DataLoader at all."""
    s = parts("binary")
    return s | {"train_loader": list(s["train_loader"]), "val_loader": list(s["val_loader"])}


@sound
def target_network():
    """A slowly following copy inside the model, without gradients and outside the optimizer."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.online = nn.Linear(8, 3)
            self.target = copy.deepcopy(self.online).requires_grad_(False)

        def forward(self, x):
            return self.online(x)

    model = Net()
    s = parts("mlp", model=model)
    s["optimizer"] = torch.optim.SGD(model.online.parameters(), 0.05)

    def train_step(batch):
        s["optimizer"].zero_grad()
        out = model(batch[0])
        loss = F.cross_entropy(out, batch[1]) + 0.1 * F.mse_loss(out, model.target(batch[0]))
        loss.backward()
        s["optimizer"].step()
        with torch.no_grad():
            for t, p in zip(model.target.parameters(), model.online.parameters(), strict=True):
                t.lerp_(p, 0.01)
        return loss.item()

    return s | {"train_step": train_step, "declared": {"frozen": []}}
