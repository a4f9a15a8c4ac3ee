"""Sequences of unequal length as dictionaries of padded tensors, as Hugging Face gives them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Adam

from course.engine import History, Loss, Trainer

EPOCHS, TOKENS = 3, 9


class Classifier(nn.Module):
    """The mean of the embeddings that are not padding, then one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(TOKENS, 8, padding_idx=0), nn.Linear(8, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        mask = attention_mask[..., None]
        mean = (self.embedding(input_ids) * mask).sum(1) / mask.sum(1)
        return {"logits": self.head(mean)}


def cost(model: nn.Module, batch: dict[str, Tensor]) -> Loss:
    labels = batch["labels"]
    logits = model(batch["input_ids"], batch["attention_mask"])["logits"]
    return Loss(F.cross_entropy(logits, labels), len(labels), logits, labels)


def batches() -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    rows = [
        torch.randint(1, TOKENS, (int(torch.randint(2, 9, (), generator=generator)),),
                      generator=generator) for _ in range(44)
    ]  # fmt: skip
    found = []
    for i in range(0, len(rows), 8):
        ids = nn.utils.rnn.pad_sequence(rows[i : i + 8], batch_first=True)
        labels = torch.tensor([int((row > 4).float().mean() > 0.5) for row in rows[i : i + 8]])
        found.append({"input_ids": ids, "attention_mask": (ids != 0).float(), "labels": labels})
    return found


def parts():
    torch.manual_seed(0)
    model = Classifier()
    return model, Adam(model.parameters(), lr=0.05)


def train() -> tuple[nn.Module, History]:
    model, optimizer = parts()
    trainer = Trainer(model, optimizer=optimizer, loss_of=cost, device="cpu")
    return model, trainer.fit(batches()[1:], batches()[:1], epochs=EPOCHS, progress=False)


def by_hand() -> tuple[nn.Module, list[float]]:
    model, optimizer = parts()
    losses = []
    for _ in range(EPOCHS):
        model.train()
        for batch in batches()[1:]:
            optimizer.zero_grad()
            logits = model(batch["input_ids"], batch["attention_mask"])["logits"]
            F.cross_entropy(logits, batch["labels"]).backward()
            optimizer.step()
        model.eval()
        (batch,) = batches()[:1]
        with torch.no_grad():
            logits = model(batch["input_ids"], batch["attention_mask"])["logits"]
            losses.append(F.cross_entropy(logits, batch["labels"]).item())
    return model, losses


if __name__ == "__main__":
    print(train()[1])
