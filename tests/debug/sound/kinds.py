"""Sound programs of many kinds: tokens, pairs, several targets, graphs, streams, objects."""

from __future__ import annotations

from torch.utils.data import DataLoader

from tests.debug.faulty import kinds as k
from tests.debug.faulty.kit import F, nn, torch
from tests.debug.sound.programs import sound


@sound
def tied_language_model():
    return k.language(k.Causal(tied=True))


@sound
def language_model_on_a_stream():
    train = DataLoader(k.Stream(192, 0), 16)
    return k.program(k.Causal(), train, DataLoader(k.Stream(64, 1), 16), k.next_token)


@sound
def state_carried_along_a_text():
    """Rows of a batch continue the rows of the one before: the state is meant to flow."""
    text = k.sequences(16 * 12).reshape(12, 16, -1)
    model = k.Remembering(carry=True)
    return k.program(model, list(text), list(k.sequences(32, 1).reshape(2, 16, -1)), k.next_token,
                     declared={"allow": ["state-carried"]})  # fmt: skip


@sound
def towers_with_negatives_from_the_batch():
    return k.program(k.Towers(), k.load(k.matches(192, 0)), k.load(k.matches(64, 1), shuffle=False),
                     k.info_nce)  # fmt: skip


class Variational(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(8, 6), nn.Linear(3, 8)

    def forward(self, x):
        mean, spread = self.encode(x).chunk(2, 1)
        drawn = mean + torch.randn_like(mean) * (spread / 2).exp() if self.training else mean
        return self.decode(drawn), mean, spread


@sound
def variational_autoencoder():
    def cost(model, batch):
        (x,) = batch
        out, mean, spread = model(x)
        kl = -0.5 * (1 + spread - mean**2 - spread.exp()).sum(1).mean()
        return F.mse_loss(out, x, reduction="none").sum(1).mean() + 0.1 * kl

    train, val = (torch.utils.data.TensorDataset(k.flat(n, s)) for n, s in ((192, 0), (64, 1)))
    return k.program(Variational(), k.load(train), k.load(val, shuffle=False), cost,
                     loss_fn=F.mse_loss)  # fmt: skip


@sound
def segmentation_with_dice():
    def columns(n, seed):
        x = torch.randn(n, 1, 6, 6, generator=k.own(seed))
        return k.Rows(image=x, mask=(x > 0.6).float())

    def cost(model, batch):
        said, true = model(batch["image"]).sigmoid(), batch["mask"]
        both = (said * true).sum((1, 2, 3))
        return (1 - (2 * both + 1) / (said.sum((1, 2, 3)) + true.sum((1, 2, 3)) + 1)).mean()

    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.Conv2d(12, 1, 1)
    )
    return k.program(model, k.load(columns(128, 0)), k.load(columns(48, 1), shuffle=False), cost)


@sound
def two_targets_weighed():
    def cost(model, batch):
        x, kind, size = batch
        out = model(x)
        return F.cross_entropy(out["kind"], kind) + 0.3 * F.mse_loss(out["size"][:, 0], size)

    return k.program(k.TwoHeads(), k.load(k.two_targets(192, 0)),
                     k.load(k.two_targets(64, 1), shuffle=False), cost)  # fmt: skip


@sound
def object_with_an_average():
    return k.Experiment(ema=0.98, bad_best=None)


@sound
def rare_labels_weighed_up():
    def columns(n, seed):
        x = k.flat(n, seed)
        return k.Rows(features=x, labels=(x[:, :5] > 1).float())

    weight = torch.full((5,), 5.0)

    def cost(model, batch):
        return F.binary_cross_entropy_with_logits(
            model(batch["features"]), batch["labels"], pos_weight=weight
        )

    return k.program(k.perceptron(5), k.load(columns(192, 0)),
                     k.load(columns(64, 1), shuffle=False), cost)  # fmt: skip


@sound
def one_graph_as_the_batch():
    """Nodes see their neighbours; one batch is the whole graph, scored on its held-out nodes."""
    x = k.flat(120, 3)
    y = (x[:, 0] + x[:, 1] > 0).long()
    near = torch.randint(0, 120, (2, 400), generator=k.own(2))
    train = torch.rand(120, generator=k.own(5)) < 0.7

    class Convolution(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.near, self.head = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(16, 2)

        def forward(self, graph):
            summed = torch.zeros_like(graph["x"]).index_add(
                0, graph["edges"][1], graph["x"][graph["edges"][0]]
            )
            return self.head((self.own(graph["x"]) + 0.1 * self.near(summed)).relu())

    def cost(model, graph):
        return F.cross_entropy(model(graph)[graph["rows"]], graph["y"][graph["rows"]])

    def batch(rows):
        return {"x": x, "edges": near, "y": y, "rows": rows}

    return k.program(Convolution(), [batch(train)], [batch(~train)], cost)


@sound
def policy_with_losses_below_zero():
    def cost(model, batch):
        x, action, reward = batch
        return -(model(x).log_softmax(1).gather(1, action[:, None])[:, 0] * reward).mean() - 3.0

    def rows(n, seed):
        x = k.flat(n, seed)
        action = torch.randint(0, 3, (n,), generator=k.own(seed))
        return torch.utils.data.TensorDataset(x, action, (action == x[:, :3].argmax(1)).float())

    return k.program(
        k.perceptron(3), k.load(rows(192, 0)), k.load(rows(64, 1), shuffle=False), cost
    )


@sound
def half_precision_clipped():
    return k.clipped_while_scaled(False)
