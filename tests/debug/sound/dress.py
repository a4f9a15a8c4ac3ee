"""Sound programs that a relation could take for faulty."""

from __future__ import annotations

from tests.debug.faulty import kinds as k
from tests.debug.faulty.kit import F, nn, torch
from tests.debug.sound.programs import sound


@sound
def distributions_matched():
    """The batch's second part is compared as a whole: which row belongs to which means nothing."""

    def cost(model, batch):
        out = model(batch["source"])
        return ((out.mean(0) - batch["other"].mean(0)) ** 2).sum() + 0.1 * (out**2).mean()

    def rows(n, seed):
        return k.Rows(source=k.flat(n, seed), other=k.flat(n, seed + 9)[:, :4] + 1)

    return k.program(
        k.perceptron(4), k.load(rows(192, 0)), k.load(rows(64, 1), shuffle=False), cost
    )


@sound
def masked_tokens_guessed():
    """A sixth of the tokens is hidden and asked for; the model sees both sides of each."""

    class Guess(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = k.Causal(look_ahead=True)

        def forward(self, ids):
            return self.inner(ids)

    def cost(model, batch):
        ids = batch["ids"][:, :-1]
        hidden = torch.arange(ids.numel()).reshape(ids.shape) % 6 == 0
        asked = ids.masked_fill(~hidden, -100)
        return F.cross_entropy(model(ids.masked_fill(hidden, 0)).flatten(0, 1), asked.flatten())

    return k.language(Guess(), cost)


@sound
def text_through_convolutions():
    """Padding is embedded as zeros, convolved and outdone by a maximum."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(k.VOCAB, 12, padding_idx=0)
            self.wide, self.head = nn.Conv1d(12, 16, 3, padding=1), nn.Linear(16, 2)

        def forward(self, ids, mask):
            h = self.wide(self.embed(ids).mT).relu()
            return self.head(h.masked_fill(~mask[:, None], 0).amax(2))

    def cost(model, batch):
        return F.cross_entropy(model(batch["ids"], batch["mask"]), batch["label"])

    return k.text(Net(), cost)


@sound
def rows_weighed_and_numbered():
    """Batches carry an index that nothing uses, and a weight per example."""

    def rows(n, seed):
        x = k.flat(n, seed)
        return k.Rows(index=torch.arange(n), x=x, y=x[:, :3].argmax(1), weight=torch.rand(n) + 0.5)

    def cost(model, batch):
        each = F.cross_entropy(model(batch["x"]), batch["y"], reduction="none")
        return (each * batch["weight"]).sum() / batch["weight"].sum()

    return k.program(
        k.perceptron(3), k.load(rows(192, 0)), k.load(rows(64, 1), shuffle=False), cost
    )


@sound
def momentum_teacher():
    """A second copy follows slowly and gives the targets; it has no gradient and no optimizer."""
    student, teacher = k.perceptron(4), k.perceptron(4)
    teacher.load_state_dict(student.state_dict())
    teacher.requires_grad_(False)
    draws = k.own(1)

    def cost(model, batch):
        (x,) = batch
        noise = 0.1 * torch.randn(x.shape, generator=draws)
        return F.mse_loss(model(x + noise), teacher(x).detach() + 1)

    data = [torch.utils.data.TensorDataset(k.flat(n, s)) for n, s in ((192, 0), (64, 1))]
    s = k.program(student, k.load(data[0]), k.load(data[1], shuffle=False), cost)
    step = s["train_step"]

    def train_step(batch):
        loss = step(batch)
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
        return loss

    return s | {"train_step": train_step, "teacher": teacher}
