"""The recorded runs are real: they can be run again, and their curves say what was done."""

import numpy as np
import pytest

from course.analysis.curves import read_curves
from course.analysis.recorded import RUNS, record, recorded

READ = {
    "run 1": "underfit", "run 2": "sweet spot", "run 3": "overfit", "run 4": "sweet spot",
    "run 5": "sweet spot", "run 6": "not learning",
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
def test_a_recording_is_read_as_its_recipe_says(name):
    epochs = recorded(name)
    assert len(epochs) == RUNS[name].epochs
    assert read_curves(epochs).verdict == READ[name]


@pytest.mark.parametrize("name", ["run 1", "run 5"])
def test_a_run_comes_out_again_as_it_was_recorded(name):
    again, kept = record(name), recorded(name)
    for column in ("train_loss", "val_loss"):
        first, second = ([epoch[column] for epoch in run] for run in (again, kept))
        np.testing.assert_allclose(first, second, rtol=0.02)  # other CPUs round otherwise


def test_an_unknown_run_is_named_with_those_there_are():
    with pytest.raises(ValueError, match=r"'run 9' is not a recorded run; they are run 1, run 2"):
        recorded("run 9")
