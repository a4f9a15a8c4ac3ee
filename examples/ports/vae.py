"""A variational autoencoder: three outputs, and a loss that sums over pixels and the batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Adam

from course.data import load
from course.engine import History, Loss, Trainer

EPOCHS, BATCH_SIZE = 3, 50


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.Linear(64, 16), nn.Linear(8, 64)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean, log_var = self.encoder(images.flatten(1)).chunk(2, dim=1)
        hidden = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        return self.decoder(hidden), mean, log_var


def cost(decoded: Tensor, mean: Tensor, log_var: Tensor, images: Tensor) -> Tensor:
    error = F.binary_cross_entropy_with_logits(decoded, images.flatten(1), reduction="sum")
    return error - 0.5 * (1 + log_var - mean.square() - log_var.exp()).sum()


def vae_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Loss:
    images = batch[0].sigmoid()
    decoded, mean, log_var = model(images)
    return Loss(cost(decoded, mean, log_var, images) / len(images), len(images))


def parts():
    torch.manual_seed(0)
    model = VAE()
    train_loader, _ = load("digits", num_examples=400).loaders(BATCH_SIZE)
    return model, Adam(model.parameters(), lr=0.01), train_loader


def train() -> tuple[nn.Module, History]:
    model, optimizer, train_loader = parts()
    trainer = Trainer(model, optimizer=optimizer, loss_of=vae_loss, seed=1, device="cpu")
    return model, trainer.fit(train_loader, epochs=EPOCHS, progress=False)


def by_hand() -> tuple[nn.Module, list[float]]:
    model, optimizer, train_loader = parts()
    torch.manual_seed(1)
    losses = []
    for _ in range(EPOCHS):
        model.train()
        total = num = 0
        for images, _ in train_loader:
            images = images.sigmoid()
            optimizer.zero_grad()
            loss = cost(*model(images), images) / len(images)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(images)
            num += len(images)
        losses.append(total / num)
    return model, losses


if __name__ == "__main__":
    print(train()[1])
