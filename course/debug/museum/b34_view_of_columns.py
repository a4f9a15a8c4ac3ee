"""B34: a batch that comes as [features, B] is brought to shape with view, and rows get mixed."""

from torch import nn

from course.debug.museum.exhibit import Exhibit, accuracy, digits


class Net(nn.Module):
    """Reads columns, as [64, B]; what it needs is their transpose, not another view."""

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
    id="B34", title="view() where transpose() is meant", names=("rows-mixed",), make=make,
    symptom="validation accuracy after 150 steps", measure=accuracy, shows=lambda x: x < 0.5,
)  # fmt: skip
