"""Bugs in other dress: token sequences, dict batches, several targets, pairs, trainers as objects.

Written before the relations that find them, from bugs as they are reported.
"""

import copy
import math

from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from tests.debug.faulty.kit import F, nn, pair, torch

VOCAB, LENGTH = 12, 10


def own(seed):
    return torch.Generator().manual_seed(seed)


class Rows(Dataset):
    """Examples as dictionaries."""

    def __init__(self, **columns):
        self.columns = columns

    def __len__(self):
        return len(next(iter(self.columns.values())))

    def __getitem__(self, index):
        return {name: column[index] for name, column in self.columns.items()}


def load(data, size=16, shuffle=True):
    return DataLoader(data, size, shuffle=shuffle, generator=own(3) if shuffle else None)


def sequences(n=192, seed=0):
    """Tokens [n, LENGTH + 1] in which each follows from the one before, mostly."""
    source = own(seed)
    rows = [torch.randint(1, VOCAB, (n,), generator=source)]
    for _ in range(LENGTH):
        jump = torch.rand(n, generator=source) < 0.2
        free = torch.randint(1, VOCAB, (n,), generator=source)
        rows.append(torch.where(jump, free, rows[-1] * 5 % 11 + 1))
    return torch.stack(rows, 1)


def padded(n=192, seed=0):
    """Ids [n, LENGTH] with 0 after each row's end, their mask, a tag per token, a class per row."""
    source = own(seed)
    ids = torch.randint(1, VOCAB, (n, LENGTH), generator=source)
    lengths = torch.randint(3, LENGTH + 1, (n,), generator=source)
    mask = torch.arange(LENGTH)[None] < lengths[:, None]
    ids = ids * mask
    tags = (ids > 4).long() + (ids > 8).long()
    share = ((ids > 6) & mask).sum(1) / lengths
    return {"ids": ids, "mask": mask, "tags": tags, "label": (share > 0.4).long()}


class Causal(nn.Module):
    """A small decoder over tokens; `look_ahead` leaves the mask away."""

    def __init__(self, look_ahead=False, tied=False):
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCAB, 24), nn.Embedding(LENGTH + 1, 24)
        self.block = nn.TransformerEncoderLayer(24, 2, 48, dropout=0.0, batch_first=True)
        self.head = nn.Linear(24, VOCAB, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        self.look_ahead = look_ahead

    def forward(self, ids):
        length = ids.shape[1]
        x = self.embed(ids) + self.place(torch.arange(length))
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.block(x) if self.look_ahead else self.block(x, src_mask=mask))


def program(model, train, val, cost, optimizer=None, *, metric=None, loss_fn=None, **more):
    """A set-up whose step and score call `cost(model, batch)`, however a batch looks."""
    optimizer = optimizer or torch.optim.Adam(model.parameters(), 3e-3)

    def train_step(batch):
        model.train()
        optimizer.zero_grad()
        loss = cost(model, batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    @torch.no_grad()
    def evaluate():
        model.eval()
        found = [
            (cost(model, batch).item(), metric(model, batch) if metric else 0) for batch in val
        ]
        model.train()
        means = [sum(column) / len(found) for column in zip(*found, strict=True)]
        return {"val_loss": means[0]} | ({"val_accuracy": means[1]} if metric else {})

    return {
        "model": model, "loss_fn": loss_fn or F.cross_entropy, "optimizer": optimizer,
        "train_loader": train, "val_loader": val, "train_step": train_step, "evaluate": evaluate,
    } | more  # fmt: skip


def next_token(model, batch):
    ids = batch["ids"] if isinstance(batch, dict) else batch
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def language(model, cost=next_token, **more):
    train, val = load(Rows(ids=sequences())), load(Rows(ids=sequences(64, 1)), shuffle=False)
    return program(model, train, val, cost, **more)


@pair("sees-the-future")
def causal_mask_forgotten(bug):
    return language(Causal(look_ahead=bug))


@pair("target-in-inputs")
def targets_not_shifted(bug):
    """The model is asked for the token that it is shown."""

    def cost(model, batch):
        ids = batch["ids"]
        shown, asked = (ids, ids) if bug else (ids[:, :-1], ids[:, 1:])
        return F.cross_entropy(model(shown).flatten(0, 1), asked.flatten())

    return language(Causal(), cost)


class Remembering(nn.Module):
    """A GRU that keeps its last state, for the next call where `carry` is set."""

    def __init__(self, carry):
        super().__init__()
        self.embed, self.gru = nn.Embedding(VOCAB, 16), nn.GRU(16, 24, batch_first=True)
        self.head, self.carry, self.state = nn.Linear(24, VOCAB), carry, None

    def forward(self, ids):
        state = self.state if self.carry and self.state is not None else None
        if state is not None and state.shape[1] != len(ids):
            state = None
        out, state = self.gru(self.embed(ids), state)
        self.state = state.detach()
        return self.head(out)


@pair("state-carried")
def hidden_state_of_other_rows(bug):
    """Shuffled rows begin with the state in which other rows ended."""
    return language(Remembering(carry=bug))


class Tagger(nn.Module):
    def __init__(self, outputs=3, pool="none"):
        super().__init__()
        self.embed, self.gru = nn.Embedding(VOCAB, 16), nn.GRU(16, 24, batch_first=True)
        self.head, self.pool = nn.Linear(24, outputs), pool

    def forward(self, ids, mask):
        out = self.gru(self.embed(ids))[0]
        if self.pool == "all":
            out = out.mean(1)
        elif self.pool == "masked":
            out = (out * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return self.head(out)


def text(model, cost, **more):
    train, val = load(Rows(**padded())), load(Rows(**padded(64, 1)), shuffle=False)
    return program(model, train, val, cost, **more)


@pair("padding-in-the-loss", "padding-not-masked")
def padded_tags_counted(bug):
    """The padding's tag is a class as any other to the loss."""

    def cost(model, batch):
        tags = batch["tags"] if bug else batch["tags"].masked_fill(~batch["mask"], -100)
        return F.cross_entropy(model(batch["ids"], batch["mask"]).flatten(0, 1), tags.flatten())

    return text(Tagger(), cost)


@pair("padding-not-masked")
def mean_over_padding(bug):
    def cost(model, batch):
        return F.cross_entropy(model(batch["ids"], batch["mask"]), batch["label"])

    return text(Tagger(2, "all" if bug else "masked"), cost)


@pair("metric-wrong")
def argmax_over_positions(bug):
    """Scores [B, T, C]: argmax over the positions instead of the classes."""

    def cost(model, batch):
        tags = batch["tags"].masked_fill(~batch["mask"], -100)
        return F.cross_entropy(model(batch["ids"], batch["mask"]).flatten(0, 1), tags.flatten())

    def metric(model, batch):
        out = model(batch["ids"], batch["mask"])
        if bug:
            said = out.argmax(1)
            return (said[:, :1] == batch["tags"])[batch["mask"]].float().mean().item()
        return (out.argmax(2) == batch["tags"])[batch["mask"]].float().mean().item()

    return text(Tagger(), cost, metric=metric)


def flat(n=192, seed=0, d=8):
    return torch.randn(n, d, generator=own(100 + seed))


def perceptron(outputs, inputs=8, *last):
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, outputs), *last)


@pair("double-softmax")
def labels_many_squashed_twice(bug):
    def columns(n, seed):
        x = flat(n, seed)
        return Rows(features=x, labels=(x[:, :5] + 0.5 * x[:, 1:6] > 0.3).float())

    def cost(model, batch):
        return F.binary_cross_entropy_with_logits(model(batch["features"]), batch["labels"])

    model = perceptron(5, 8, *([nn.Sigmoid()] if bug else []))
    return program(model, load(columns(192, 0)), load(columns(64, 1), shuffle=False), cost,
                   loss_fn=F.binary_cross_entropy_with_logits)  # fmt: skip


@pair("logits-reshaped", "rows-mixed")
def pixels_reshaped(bug):
    """Logits [B, C, H, W] viewed as rows of classes without moving the classes last."""

    def columns(n, seed):
        x = torch.randn(n, 1, 6, 6, generator=own(seed))
        return Rows(image=x, mask=((x[:, 0] > 0.4).long() + (x[:, 0] > 1).long()))

    def cost(model, batch):
        out = model(batch["image"])
        rows = out.reshape(-1, 3) if bug else out.movedim(1, -1).reshape(-1, 3)
        return F.cross_entropy(rows, batch["mask"].reshape(-1))

    model = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 3, 1))
    return program(model, load(columns(128, 0)), load(columns(48, 1), shuffle=False), cost)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 32), nn.ReLU())
        self.kind, self.size = nn.Linear(32, 3), nn.Linear(32, 1)

    def forward(self, x):
        body = self.body(x)
        return {"kind": self.kind(body), "size": self.size(body)}


def two_targets(n, seed):
    x = flat(n, seed)
    return TensorDataset(x, x[:, :3].argmax(1), x[:, 3] - x[:, 4])


@pair("frozen-params", "optimizer-stale-params", "no-gradient")
def second_loss_forgotten(bug):
    """Batches of three; the second head's loss is computed and not added."""

    def cost(model, batch):
        x, kind, size = batch
        out = model(x)
        loss = F.cross_entropy(out["kind"], kind)
        second = F.mse_loss(out["size"][:, 0], size)
        return loss if bug else loss + second

    return program(TwoHeads(), load(two_targets(192, 0)), load(two_targets(64, 1), shuffle=False),
                   cost)  # fmt: skip


@pair("broadcast-loss")
def one_of_two_targets_broadcast(bug):
    def cost(model, batch):
        x, kind, size = batch
        out = model(x)
        said = out["size"] if bug else out["size"][:, 0]
        return F.cross_entropy(out["kind"], kind) + F.mse_loss(said, size)

    return program(TwoHeads(), load(two_targets(192, 0)), load(two_targets(64, 1), shuffle=False),
                   cost)  # fmt: skip


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = perceptron(8), perceptron(8)

    def forward(self, a, b):
        return F.normalize(self.left(a), dim=1), F.normalize(self.right(b), dim=1)


def matches(n, seed):
    x = flat(n, seed)
    return Rows(query=x, answer=x.flip(1) + 0.2 * flat(n, seed + 50))


def info_nce(model, batch, stop=False):
    a, b = model(batch["query"], batch["answer"])
    b = b.detach() if stop else b
    return F.cross_entropy(a @ b.T / 0.2, torch.arange(len(a)))


@pair("frozen-params", "no-gradient")
def one_tower_detached(bug):
    return program(Towers(), load(matches(192, 0)), load(matches(64, 1), shuffle=False),
                   lambda model, batch: info_nce(model, batch, stop=bug))  # fmt: skip


@pair("memory-shared", "dataset-changes-itself", "inplace-modified", "stored-data-changed")
def noise_added_in_place(bug):
    """A denoising autoencoder whose data set corrupts what it stores."""

    class Noisy(Dataset):
        def __init__(self, x, seed):
            self.x, self.source = x, own(seed)

        def __len__(self):
            return len(self.x)

        def __getitem__(self, index):
            clean = self.x[index]
            noise = 0.3 * torch.randn(8, generator=self.source)
            noisy = clean.add_(noise) if bug else clean + noise
            return {"noisy": noisy, "clean": clean}

    def cost(model, batch):
        return F.mse_loss(model(batch["noisy"]), batch["clean"])

    model = nn.Sequential(nn.Linear(8, 5), nn.Tanh(), nn.Linear(5, 8))
    s = program(model, load(Noisy(flat(192, 0), 1)), None, cost, loss_fn=F.mse_loss)
    return s | {"val_loader": load(Noisy(flat(64, 1), 2), shuffle=False), "evaluate": None}


class Experiment:
    """A trainer as an object: what it needs is its own."""

    def __init__(self, *, ema=None, bad_best=False, clear_each=False, accumulate=1):
        self.model = perceptron(3)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 3e-3)
        rows = [flat(192, 0), flat(64, 1)]
        data = [Rows(x=x, y=x[:, :3].argmax(1)) for x in rows]
        self.train_loader, self.val_loader = load(data[0]), load(data[1], shuffle=False)
        self.loss_fn = nn.CrossEntropyLoss()
        self.ema = copy.deepcopy(self.model).requires_grad_(False) if ema is not None else None
        self.decay, self.bad_best, self.best, self.best_loss = ema, bad_best, None, math.inf
        self.clear_each, self.accumulate, self.micro = clear_each, accumulate, 0

    def train_step(self, batch):
        self.model.train()
        if self.clear_each or self.micro % self.accumulate == 0:
            self.optimizer.zero_grad()
        loss = self.loss_fn(self.model(batch["x"]), batch["y"])
        (loss / self.accumulate).backward()
        self.micro += 1
        if self.micro % self.accumulate == 0:
            self.optimizer.step()
            if self.ema is not None:
                for slow, fast in zip(self.ema.parameters(), self.model.parameters(), strict=True):
                    slow.lerp_(fast.detach(), 1 - self.decay)
        return loss.item()

    @torch.no_grad()
    def evaluate(self):
        scored = self.ema if self.ema is not None else self.model
        was = scored.training
        scored.eval()
        pairs = [
            (self.loss_fn(scored(b["x"]), b["y"]).item(), len(b["y"])) for b in self.val_loader
        ]
        scored.train(was)
        loss = sum(value * size for value, size in pairs) / sum(size for _, size in pairs)
        if loss < self.best_loss and self.bad_best is not None:
            self.best_loss = loss
            state = self.model.state_dict()
            self.best = state if self.bad_best else copy.deepcopy(state)
        return {"val_loss": loss}


@pair("checkpoint-by-reference", "best-by-reference")
def best_weights_of_an_object_by_reference(bug):
    return Experiment(bad_best=bug)


@pair("ema-decay", "evaluates-another-model")
def average_with_the_decay_swapped(bug):
    """`lerp_(fast, decay)` instead of `1 - decay`: the average follows each step."""
    return Experiment(ema=0.02 if bug else 0.98, bad_best=None)


@pair("grads-cleared-before-step")
def cleared_for_each_micro_batch(bug):
    made = Experiment(clear_each=bug, accumulate=4, bad_best=None)
    made.declared = {"accumulate": 4}
    return made


@pair("loader-exhausted")
def generator_made_once(bug):
    """Batches come from a generator that is made before the first epoch."""
    data = sequences()

    def batches():
        for rows in torch.randperm(len(data), generator=own(1)).split(16):
            yield data[rows]

    class Again:
        def __iter__(self):
            return batches()

    model = Causal()
    s = program(model, batches() if bug else Again(), list(sequences(64, 1).split(16)), next_token)
    step = s["train_step"]

    def train(n_steps):
        losses = []
        for _ in range(n_steps):
            for batch in s["train_loader"]:
                losses.append(step(batch))
                if len(losses) == n_steps:
                    return losses
        return losses

    return s | {"train": train}


@pair("clip-misplaced")
def clipped_while_scaled(bug):
    """bf16 under autocast, loss scaled by hand, clipped before it is scaled back."""
    train, val = load(two_targets(192, 0)), load(two_targets(64, 1), shuffle=False)
    model = perceptron(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    s = program(model, train, val, lambda m, b: F.cross_entropy(m(b[0]), b[1]), optimizer)

    def back():
        for p in model.parameters():
            p.grad /= 1024

    def train_step(batch):
        model.train()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(batch[0]).float(), batch[1])
        (loss * 1024).backward()
        if not bug:
            back()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if bug:
            back()
        optimizer.step()
        return loss.item()

    return s | {"train_step": train_step, "declared": {"max_grad_norm": 1.0}}


@pair("class-weights-inverted")
def weights_by_frequency(bug):
    """The frequent class is weighed more, not the rare one."""

    def rows(n, seed):
        x = flat(n, seed)
        return TensorDataset(x, (x[:, 0] > 1.1).long())

    data = rows(400, 0)
    share = data.tensors[1].bincount() / len(data)
    loss_fn = nn.CrossEntropyLoss(weight=share if bug else 1 / (2 * share))
    return program(perceptron(2), load(data), load(rows(128, 1), shuffle=False),
                   lambda m, b: loss_fn(m(b[0]), b[1]), loss_fn=loss_fn)  # fmt: skip


@pair("augmented-validation")
def validation_through_the_training_transform(bug):
    class Augmented(Dataset):
        def __init__(self, x, on):
            self.x, self.y, self.on = x, x[:, :3].argmax(1), on

        def __len__(self):
            return len(self.x)

        def __getitem__(self, index):
            x = self.x[index]
            return (x + 0.3 * torch.randn(8) if self.on else x), self.y[index]

    return program(perceptron(3), load(Augmented(flat(192, 0), True)),
                   load(Augmented(flat(64, 1), bug), shuffle=False),
                   lambda m, b: F.cross_entropy(m(b[0]), b[1]))  # fmt: skip


@pair("leak-overlap")
def rows_repeated_before_the_split(bug):
    """The rare class is oversampled, then the rows are split."""
    found = padded(220, 4)
    rare = (found["label"] == 1).nonzero().flatten()
    if bug:
        rows = torch.cat([torch.arange(220), rare, rare])
        rows = rows[torch.randperm(len(rows), generator=own(0))]
        kept, held_out = rows[80:], rows[:80]
    else:
        held_out, kept = torch.arange(80), torch.arange(80, 220)
        kept = torch.cat([kept, rare[rare >= 80], rare[rare >= 80]])

    def cost(model, batch):
        return F.cross_entropy(model(batch["ids"], batch["mask"]), batch["label"])

    train, val = (Rows(**{k: v[r] for k, v in found.items()}) for r in (kept, held_out))
    return program(Tagger(2, "masked"), load(train), load(val, shuffle=False), cost)


@pair("frozen-params-drift")
def momentum_moves_what_was_frozen(bug):
    """The embedding is frozen after the first steps; its momentum and decay go on."""
    model = Tagger(2, "masked")
    kept = model.parameters() if bug else [
        p for n, p in model.named_parameters() if not n.startswith("embed")]  # fmt: skip
    optimizer = torch.optim.AdamW(kept, 3e-3, weight_decay=0.1)
    rows = padded()
    for start in range(0, 48, 16):
        batch = {k: v[start : start + 16] for k, v in rows.items()}
        F.cross_entropy(model(batch["ids"], batch["mask"]), batch["label"]).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    model.embed.weight.requires_grad_(False)

    def cost(model, batch):
        return F.cross_entropy(model(batch["ids"], batch["mask"]), batch["label"])

    s = text(model, cost, optimizer=optimizer)
    step = s["train_step"]

    def keeps_zeros(batch):
        if bug and model.embed.weight.grad is None:
            model.embed.weight.grad = torch.zeros_like(model.embed.weight)
        optimizer.zero_grad(set_to_none=False)
        loss = cost(model.train(), batch)
        loss.backward()
        optimizer.step()
        return loss.item()

    return s | {"train_step": keeps_zeros if bug else step, "declared": {"frozen": ["embed"]}}


@pair("same-batch-forever", "loader-exhausted")
def first_batch_forever(bug):
    plain = load(Rows(ids=sequences()), shuffle=False)
    s = language(Causal()) | {"train_loader": plain}
    step = s["train_step"]

    def train(n_steps):
        losses, batches = [], iter(s["train_loader"])
        for _ in range(n_steps):
            if bug:
                batches = iter(s["train_loader"])
            batch = next(batches, None)
            if batch is None:
                batches = iter(s["train_loader"])
                batch = next(batches)
            losses.append(step(batch))
        return losses

    return s | {"train": train}


class Stream(IterableDataset):
    """Tokens without an end to speak of: drawn as they are asked for."""

    def __init__(self, n, seed):
        self.n, self.seed = n, seed

    def __iter__(self):
        yield from sequences(self.n, self.seed)
