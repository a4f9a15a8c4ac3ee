"""B09: targets come as a column [B, 1], not as class indices [B]; cross-entropy refuses them."""

from course.debug.museum.exhibit import Exhibit, digits, steps_made


def make(bug):
    setup = digits()
    if bug:
        dataset = setup["train_loader"].dataset
        dataset.tensors = (dataset.tensors[0], dataset.tensors[1][:, None])
    return setup


EXHIBIT = Exhibit(
    id="B09", title="labels of the wrong shape", names=("one-hot-labels",), make=make,
    raises=RuntimeError, symptom="steps of 150 made", measure=steps_made,
    shows=lambda x: x == 0,
)  # fmt: skip
