"""B19: a learning rate that is far too large makes the loss shoot up."""

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits


def make(bug):
    return digits(lr=500.0 if bug else 0.1)


def worst(run: ExhibitRun) -> float:
    return max(loss if loss == loss else float("inf") for loss in run.losses)


EXHIBIT = Exhibit(
    id="B19", title="learning rate too large", names=("lr-too-large",), make=make,
    symptom="largest loss", measure=worst, shows=lambda x: x > 20,
)  # fmt: skip
