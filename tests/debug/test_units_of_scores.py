"""An error in the unit of the outputs or of the targets, and in no mixture of both."""

import torch
import torch.nn.functional as F

from course.debug.relations import units
from tests.debug.faulty.eighth.kit import gen
from tests.debug.faulty.fourth.kit import batches, mlp
from tests.debug.told import cases, said

SD, MEAN = 60.0, 250.0


def columns(n, seed):
    x = torch.randn(n, 6, generator=gen(seed))
    return x, torch.tanh(x[:, :1] + x[:, 1:2]) + 0.2 * torch.randn(n, 1, generator=gen(seed + 50))


SCORES = {
    "scaled outputs": lambda out, y: (out * SD + MEAN - y).pow(2).mean().sqrt(),
    "by a loss": lambda out, y: F.l1_loss(y, out * SD + MEAN),
    "moved alone": lambda out, y: F.mse_loss((out + MEAN).squeeze(1), y.squeeze(1)),
    "spread alone": lambda out, y: (y - out * SD).abs().mean(),
    "both scaled": lambda out, y: (out * SD + MEAN - (y * SD + MEAN)).pow(2).mean().sqrt(),
    "difference scaled": lambda out, y: SD * (out - y).pow(2).mean().sqrt(),
    "as they are": lambda out, y: F.l1_loss(out, y),
    "calibrated": lambda out, y: (1.3 * out + 0.2 - y).pow(2).mean().sqrt(),
    "an interval": lambda out, y: ((y - (out - 1.5)) * (y - (out + 1.5))).relu().mean(),
    "a raw split": lambda out, y: (out * SD + MEAN - y).pow(2).mean().sqrt(),
    "raw in training": lambda out, y: (out * SD + MEAN - y).pow(2).mean().sqrt(),
    "logarithms": lambda out, y: (out.exp() - y).abs().mean(),
    "exchanged at last": lambda out, y: F.mse_loss(out * SD + MEAN, y * SD + MEAN),
}


@cases(
    faulty=["scaled outputs", "by a loss", "moved alone", "spread alone", "all at once"],
    sound=["both scaled", "difference scaled", "as they are", "calibrated", "an interval",
           "a raw split", "raw in training", "logarithms", "exchanged at last"],
)  # fmt: skip
def test_outputs_are_scored_in_the_unit_of_the_targets(kind, is_told):
    torch.manual_seed(0)
    (x, y), (xv, yv) = columns(160, 1), columns(70, 2)
    raw = kind == "raw in training"
    if raw or kind == "a raw split":
        y, yv = y * SD + MEAN if raw else y, yv * SD + MEAN
    model = mlp(6, 16, 1)
    train, held = batches(x, y), batches(xv, yv, shuffle=False)

    def cost(out, y):
        return F.mse_loss(out, (y - MEAN) / SD if raw else y)

    def evaluate():
        model.eval()
        with torch.no_grad():
            pairs = [(model(x), y) for x, y in held]
        model.train()
        if kind == "all at once":
            out, y = (torch.cat(side) for side in zip(*pairs, strict=True))
            return {"error": F.mse_loss(out.mul(SD).add(MEAN), y).item()}
        return {"error": sum(SCORES[kind](*pair).item() for pair in pairs) / len(pairs)}

    made = dict(model=model, optimizer=torch.optim.Adam(model.parameters(), 3e-3), loss_fn=cost,
                train_loader=train, val_loader=held, evaluate=evaluate)  # fmt: skip
    assert said(units.of_outputs_alone, made) == (["metric-wrong"] if is_told else [])
