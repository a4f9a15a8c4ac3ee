"""B04: the model is scored in train mode, so the same weights get a different score each time."""

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits, evaluation


def make(bug):
    setup = digits()
    return setup | {"evaluate": evaluation(setup, train_mode=bug)}


def spread(run: ExhibitRun) -> float:
    scores = [run.setup["evaluate"]()["val_loss"] for _ in range(5)]
    return max(scores) - min(scores)


EXHIBIT = Exhibit(
    id="B04", title="validation in train mode", names=("train-mode-in-eval",), make=make,
    symptom="spread of five scores of the same weights", measure=spread, shows=lambda x: x > 1e-4,
)  # fmt: skip
