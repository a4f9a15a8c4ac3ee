"""B34: a batch of shape [features, B] is reshaped with view, which mixes its examples."""

from torch import nn

from course.debug.museum.exhibit import Exhibit, accuracy, digits


class Net(nn.Module):
    """Reads inputs of shape [64, B]; it needs their transpose, not a view."""

    def __init__(self, bug):
        super().__init__()
        self.bug = bug
        self.body = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, inputs):
        columns = inputs.flatten(1).T.contiguous()
        return self.body(columns.view(-1, 64) if self.bug else columns.T)


def make(bug):
    return digits(Net(bug))


EXHIBIT = Exhibit(
    id="B34", title="view() instead of transpose()", names=("rows-mixed",), make=make,
    symptom="validation accuracy after 150 steps", measure=accuracy, shows=lambda x: x < 0.5,
)  # fmt: skip
