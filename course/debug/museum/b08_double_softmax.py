"""B08: softmax before cross-entropy; the loss cannot fall below ln(1 + 9/e) = 1.461 (N38)."""

from torch import nn

from course.debug.museum.exhibit import Exhibit, digits, final_loss


def make(bug):
    layers = [nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)]
    return digits(nn.Sequential(*layers, *([nn.Softmax(dim=1)] if bug else [])))


EXHIBIT = Exhibit(
    id="B08", title="softmax before cross-entropy", names=("double-softmax",), make=make,
    symptom="loss after 150 steps", measure=final_loss, shows=lambda x: x > 1.461,
)  # fmt: skip
