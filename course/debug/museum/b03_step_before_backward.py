"""B03: the step comes before backward, so the first moves nothing and the others use old gradients.

With hidden layers autograd would raise: the step changes weights that backward still needs. A
single layer needs only its inputs, so nothing is reported.
"""

from torch import nn

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits, healthy_step


def make(bug):
    setup = digits(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    weight, moved = setup["model"][1].weight, []
    inner = late_step(setup) if bug else healthy_step(setup)

    def train_step(batch):
        before = weight.detach().clone()
        loss = inner(batch)
        moved.append(float((weight.detach() - before).abs().max()))
        return loss

    return setup | {"train_step": train_step, "moved": moved}


def late_step(setup):
    def train_step(batch):
        inputs, targets = batch
        setup["model"].train()
        loss = setup["loss_fn"](setup["model"](inputs), targets)
        setup["optimizer"].step()
        setup["optimizer"].zero_grad()
        loss.backward()
        return loss.item()

    return train_step


def first_move(run: ExhibitRun) -> float:
    return run.setup["moved"][0]


EXHIBIT = Exhibit(
    id="B03", title="step() before backward()", names=("step-before-backward",), make=make,
    symptom="largest change of a weight in the first step", measure=first_move,
    shows=lambda x: x == 0,
    trace=lambda run: run.setup["moved"], trace_label="largest change of a weight",
)  # fmt: skip
