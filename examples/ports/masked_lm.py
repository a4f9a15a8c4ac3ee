"""A masked language model: a loss per token, most of them ignored, in windows of micro-batches."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from course.engine import History, Trainer

EPOCHS, ACCUM, TOKENS, IGNORED = 3, 2, 7, -100


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS + 1, 16)  # and one for what is masked
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 1), nn.Linear(16, TOKENS)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.encoder(self.embedding(tokens)))


def criterion(outputs: Tensor, targets: Tensor) -> Tensor:
    """Of outputs [B, T, V] and targets [B, T]; the engine measures that it averages over tokens."""
    return F.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    found = []
    for _ in range(7):
        start = torch.randint(0, TOKENS, (6, 1), generator=generator)
        tokens = (start + torch.arange(5)) % TOKENS
        hidden = torch.rand(tokens.shape, generator=generator) < 0.3
        hidden[0, 0] = True
        found.append((tokens.masked_fill(hidden, TOKENS), tokens.masked_fill(~hidden, IGNORED)))
    return found


def parts():
    torch.manual_seed(0)
    model = Encoder().double()
    return model, SGD(model.parameters(), lr=0.3)


def train() -> tuple[nn.Module, History]:
    model, optimizer = parts()
    trainer = Trainer(model, criterion, optimizer, accum_steps=ACCUM, device="cpu")
    return model, trainer.fit(batches()[1:], batches()[:1], epochs=EPOCHS, progress=False)


def by_hand() -> tuple[nn.Module, list[float]]:
    model, optimizer = parts()
    losses = []
    for _ in range(EPOCHS):
        model.train()
        data = batches()[1:]
        for i in range(0, len(data), ACCUM):
            window = data[i : i + ACCUM]
            counted = sum((targets != IGNORED).sum() for _, targets in window)
            optimizer.zero_grad()
            for tokens, targets in window:
                share = (targets != IGNORED).sum() / counted
                (criterion(model(tokens), targets) * share.double()).backward()
            optimizer.step()
        model.eval()
        ((tokens, targets),) = batches()[:1]
        with torch.no_grad():
            losses.append(criterion(model(tokens), targets).item())
    return model, losses


if __name__ == "__main__":
    print(train()[1])
