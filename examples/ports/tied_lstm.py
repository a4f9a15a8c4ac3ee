"""A language model on a stream cut into pieces: the hidden state is carried over and detached."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import SGD

from course.engine import History, Loss, Trainer

EPOCHS, STREAMS, PIECE, TOKENS = 3, 4, 8, 11


class TiedLSTM(nn.Module):
    """The output layer is the embedding itself."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 12)
        self.lstm = nn.LSTM(12, 12, batch_first=True)

    def forward(self, tokens: Tensor, state=None):
        hidden, state = self.lstm(self.embedding(tokens), state)
        return hidden @ self.embedding.weight.T, state


class Truncated:
    """What a piece costs, from the state that the piece before it has left."""

    def __init__(self) -> None:
        self.state = None

    def start_pass(self) -> None:
        self.state = None

    def state_dict(self) -> dict:
        return {"state": self.state}

    def load_state_dict(self, kept: dict) -> None:
        self.state = kept["state"]

    def __call__(self, model: nn.Module, piece: Tensor) -> Loss:
        logits, state = model(piece[:, :-1], self.state)
        self.state = tuple(part.detach() for part in state)
        targets = piece[:, 1:]
        return Loss(F.cross_entropy(logits.transpose(1, 2), targets), targets.numel(),
                    logits.transpose(1, 2), targets)  # fmt: skip


def pieces() -> list[Tensor]:
    start = torch.randint(0, TOKENS, (STREAMS, 1), generator=torch.Generator().manual_seed(0))
    stream = (start + 3 * torch.arange(6 * PIECE + 1)) % TOKENS
    return [stream[:, i : i + PIECE + 1] for i in range(0, 6 * PIECE, PIECE)]


def parts():
    torch.manual_seed(0)
    model = TiedLSTM()
    return model, SGD(model.parameters(), lr=2.0)


def train(run_dir=None, **options) -> tuple[nn.Module, History]:
    model, optimizer = parts()
    trainer = Trainer(
        model, optimizer=optimizer, loss_of=Truncated(), max_norm=0.25, device="cpu",
        run_dir=run_dir,
    )  # fmt: skip
    return model, trainer.fit(pieces(), pieces(), epochs=EPOCHS, progress=False, **options)


def by_hand() -> tuple[nn.Module, list[float]]:
    model, optimizer = parts()
    losses = []
    for _ in range(EPOCHS):
        model.train()
        state = None
        for piece in pieces():
            optimizer.zero_grad()
            logits, state = model(piece[:, :-1], state)
            state = tuple(part.detach() for part in state)
            F.cross_entropy(logits.transpose(1, 2), piece[:, 1:]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
        model.eval()
        state, costs = None, []
        with torch.no_grad():
            for piece in pieces():
                logits, state = model(piece[:, :-1], state)
                costs.append(F.cross_entropy(logits.transpose(1, 2), piece[:, 1:]).item())
        losses.append(sum(costs) / len(costs))
    return model, losses


if __name__ == "__main__":
    print(train()[1])
