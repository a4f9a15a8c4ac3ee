"""Gradients: where they are large, how they differ between layers, and where their sum points."""

from __future__ import annotations

import statistics

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from course.claims.lab import flat_grad
from course.claims.registry import claim
from course.claims.settings import CONV, DIABETES, DIGITS, SPIRAL, Setting
from course.claims.trial import Measured, weigh_settings


@claim(
    "F140",
    title="A saturated attention softmax sends large gradients to earlier layers",
    expected="holds if",
    says="If the softmax of attention saturates until it is nearly one-hot, large gradients reach "
    "the parameters before it.",
    condition="if the effect of the large queries and keys that saturate it is included; the "
    "softmax itself passes on less the more it saturates",
)
def saturated_attention(seed: int) -> Measured:
    found, held = {}, {}
    for heads, length in ((1, 8), (4, 16)):
        name = f"{heads} head{'s' * (heads > 1)}, {length} tokens"
        calm, saturated = (_attention(heads, length, scale, seed) for scale in (1.0, 100.0))
        found[name] = {"calm": calm, "saturated": saturated}
        for part in ("gradient of the query weights", "gradient of the scores"):
            held[f"attention, {name}, squared error, {part}"] = saturated[part] > 2 * calm[part]
    one = found["1 head, 8 tokens"]
    part = "gradient of the query weights"
    evidence = {
        "query weights: gradient saturated / unsaturated": one["saturated"][part]
        / one["calm"][part],
        "by network": found,
    }
    return weigh_settings(
        "query weights: gradient saturated / unsaturated",
        evidence,
        held,
        criterion="nearly one-hot attention gives more than twice the gradient",
    )


def _attention(heads: int, length: int, scale: float, seed: int) -> dict[str, float]:
    """Sharpness of attention and gradients before it, its scores multiplied by `scale`."""
    torch.manual_seed(seed)
    inputs, targets = torch.randn(64, length, 32), torch.randn(64, length, 32)
    query, key, value, out = (nn.Linear(32, 32) for _ in range(4))
    q, k, v = (
        part(inputs).view(64, length, heads, -1).transpose(1, 2) for part in (query, key, value)
    )
    scores = scale * (q @ k.transpose(-1, -2)) / (32 / heads) ** 0.5
    scores.retain_grad()
    weights = scores.softmax(-1)
    outputs = (weights @ v).transpose(1, 2).flatten(2)
    F.mse_loss(out(outputs), targets).backward()
    return {
        "largest attention weight per token, mean": weights.max(-1).values.mean().item(),
        "gradient of the query weights": query.weight.grad.norm().item(),
        "gradient of the scores": scores.grad.norm().item(),
    }


@claim(
    "F145",
    title="Uncleared gradients point in a random direction",
    expected="holds",
    says="Without zero_grad the applied gradient points in a random direction, not in the batch's.",
)
def piled_direction(seed: int) -> Measured:
    cosines, held = {}, {}
    for one in (SPIRAL, DIGITS, CONV):
        one = one.but(steps=150)
        cosines[f"{one.data} {one.optimizer}"] = median = statistics.median(
            _piled_cosines(one, 100 * seed)[50:]
        )
        held[one] = abs(median) < 0.35
    evidence = {
        "digits SGD: median cosine with the batch's own gradient": cosines["digits SGD"],
        "by setting": cosines,
    }
    return weigh_settings(
        "digits SGD: median cosine with the batch's own gradient",
        evidence,
        held,
        criterion="after 50 steps, the median cosine between the accumulated and the batch's own "
        "gradient is within 0.35 of 0",
    )


def _piled_cosines(one: Setting, seed: int) -> list[float]:
    """Cosine between the applied gradient and the batch's own, per step, without clearing."""
    inputs, targets, *_ = one.make_data(seed // 100)
    model = one.make_model(seed)
    optimizer = one.make_optimizer(model)
    found, before = [], None
    for _ in range(one.steps):
        rows = torch.randint(0, len(targets), (one.batch_size,))
        one.loss_fn(model(inputs[rows]), targets[rows]).backward()
        pile = flat_grad(model)
        own = pile if before is None else pile - before
        found.append((pile @ own / (pile.norm() * own.norm() + 1e-30)).item())
        before = pile.clone()
        optimizer.step()
    return found


@claim(
    "F152",
    title="Early and late layers of a deep network have gradients of different sizes",
    expected="holds if",
    says="In deep networks early and late layers often have gradients of very different sizes.",
    condition="if nothing evens them out, such as a suitable initialisation, skip connections or "
    "normalisation",
)
def sizes_by_layer(seed: int) -> Measured:
    ratios, held = {}, {}
    for data in (DIGITS, DIABETES):
        for name, make in (
            ("torch's initialisation", lambda width, out: _deep(width, out)),
            ("He initialisation", lambda width, out: _deep(width, out, he=True)),
            ("skip connections", lambda width, out: _deep(width, out, skip=True)),
        ):
            inputs, targets, *_ = data.make_data(seed)
            torch.manual_seed(seed)
            model = make(inputs.shape[1], 10 if data is DIGITS else 1)
            data.loss_fn(model(inputs), targets).backward()
            norms = [
                p.grad.norm().item() / p.numel() ** 0.5
                for key, p in model.named_parameters()
                if key.endswith("weight")
            ][1:-1]
            ratio = max(norms) / min(norms)
            ratios[f"{data.data}, {name}"] = ratio
            held[f"MLP of 12 layers on {data.data}, {name}"] = ratio > 10
    evidence = {
        "digits, torch's initialisation: largest / smallest": ratios[
            "digits, torch's initialisation"
        ],
        "root mean square gradient, largest layer / smallest": ratios,
    }
    return weigh_settings(
        "digits, torch's initialisation: largest / smallest",
        evidence,
        held,
        criterion="the layers' gradients differ by more than a factor of 10",
    )


class _Block(nn.Module):
    def __init__(self, width: int, skip: bool) -> None:
        super().__init__()
        self.linear, self.skip = nn.Linear(width, width), skip

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.linear(inputs).relu()
        return inputs + 0.2 * outputs if self.skip else outputs


def _deep(width: int, out: int, *, he: bool = False, skip: bool = False) -> nn.Sequential:
    blocks = [_Block(32, skip) for _ in range(10)]
    model = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), *blocks, nn.Linear(32, out))
    for module in model.modules():
        if he and isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)
    return model
