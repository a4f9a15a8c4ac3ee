"""B11: layers in a plain list are used, but never trained, moved or saved."""

from torch import nn

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits


class Stack(nn.Module):
    def __init__(self, bug):
        super().__init__()
        layers = [nn.Linear(64, 64), nn.Linear(64, 64)]
        self.layers = layers if bug else nn.ModuleList(layers)
        self.head = nn.Linear(64, 10)

    def forward(self, inputs):
        hidden = inputs.flatten(1)
        for layer in self.layers:
            hidden = layer(hidden).relu()
        return self.head(hidden)


def make(bug):
    return digits(Stack(bug))


def trained(run: ExhibitRun) -> float:
    groups = run.setup["optimizer"].param_groups
    return float(sum(p.numel() for group in groups for p in group["params"]))


EXHIBIT = Exhibit(
    id="B11", title="layers in a plain list", names=("plain-list-layers",), make=make,
    symptom="parameters the optimizer holds, of 8970", measure=trained, shows=lambda x: x < 8970,
)  # fmt: skip
