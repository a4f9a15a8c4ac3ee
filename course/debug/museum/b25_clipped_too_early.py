"""B25: clipping before backward clips nothing."""

from torch import nn

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits, norms

MAX_NORM = 0.1


def make(bug):
    setup = digits()

    def clip():
        nn.utils.clip_grad_norm_(setup["model"].parameters(), MAX_NORM)

    def train_step(batch):
        inputs, targets = batch
        setup["model"].train()
        setup["optimizer"].zero_grad()
        loss = setup["loss_fn"](setup["model"](inputs), targets)
        if bug:
            clip()
        loss.backward()
        if not bug:
            clip()
        setup["optimizer"].step()
        return loss.item()

    return setup | {"train_step": train_step}


def largest(run: ExhibitRun) -> float:
    return max(run.grad_norms)


EXHIBIT = Exhibit(
    id="B25", title="clipping before backward()", names=("clip-misplaced",), make=make,
    symptom="largest gradient norm used, ceiling 0.1", measure=largest,
    shows=lambda x: x > 1.01 * MAX_NORM,
    trace=norms, trace_label="gradient norm",
)  # fmt: skip
