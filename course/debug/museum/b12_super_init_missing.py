"""B12: without super().__init__() a module cannot register its layers, and raises at once."""

from torch import nn

from course.debug.museum.exhibit import Exhibit, digits, steps_made


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def forward(self, inputs):
        return self.body(inputs)


class NetWithoutInit(Net):
    def __init__(self):
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def make(bug):
    return digits(NetWithoutInit() if bug else Net())


EXHIBIT = Exhibit(
    id="B12", title="super().__init__() forgotten", make=make, raises=AttributeError,
    why_not="there is no model to diagnose; the error names the missing call.",
    mend="super().__init__()  # first line of __init__",
    symptom="steps of 150 made", measure=steps_made, shows=lambda x: x == 0,
)  # fmt: skip
