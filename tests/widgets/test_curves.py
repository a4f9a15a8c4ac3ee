"""The readings of recorded runs: against NumPy, SciPy, a count by hand, and what the page says."""

import numpy as np
import pytest
from scipy.stats import binomtest

from course.analysis.recorded import RUNS, recorded
from course.widgets.curves.state import LONGEST, Settings, curves, frame, says, stopped_at


def seen(**settings) -> dict:
    return frame(Settings(**settings))["shown"][0]


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("epochs", [1, 7, LONGEST])
def test_the_best_epoch_is_numpys_and_lies_among_those_seen(run, epochs):
    losses = [epoch["val_loss"] for epoch in recorded(run)][:epochs]
    one = seen(run=run, epochs=epochs)
    assert one["seen"] == len(losses) and one["best_epoch"] == np.argmin(losses) + 1
    assert (one["best"], one["val"]) == (min(losses), losses[-1])


def test_intervals_are_scipys():
    for name, run in curves().items():
        for accuracy, low, high in zip(run["accuracy"], run["low"], run["high"], strict=True):
            right = round(accuracy * run["num_val"])
            expected = binomtest(right, run["num_val"]).proportion_ci(0.95, method="wilson")
            assert (low, high) == pytest.approx(tuple(expected)), name


def test_a_run_is_stopped_by_the_first_bad_epochs_in_a_row():
    losses = [1.0, 0.9, 0.95, 0.8, 0.85, 0.81, 0.79, 0.8]
    assert [stopped_at(losses, patience) for patience in (0, 1, 2, 3)] == [None, 3, 6, None]


def test_what_is_read_does_not_depend_on_later_epochs():
    verdicts = [seen(run="run 3", epochs=epochs)["verdict"] for epochs in (3, 6, LONGEST)]
    assert verdicts == ["undecided", "sweet spot", "overfit"]


def test_a_hidden_reading_is_nowhere_in_the_frame_or_the_sentence():
    settings = Settings(run="run 3", reading=False)
    shown = frame(settings)
    assert "overfit" not in says(settings, shown) + str(shown["shown"])


def test_what_the_page_says_of_runs_3_4_and_5():
    runs = curves()
    assert seen(run="run 3")["best_epoch"] < LONGEST / 2
    assert np.argmin(runs["run 3"]["train"]) > LONGEST * 0.9
    width = {name: np.subtract(run["high"], run["low"]).min() for name, run in runs.items()}
    assert width["run 4"] > 5 * width["run 2"]
    jumps = {name: np.abs(np.diff(run["train"])) > 1 for name, run in runs.items()}
    assert jumps["run 5"].nonzero()[0].tolist() == [16, 17] and not jumps["run 4"].any()


def test_a_run_is_not_compared_with_itself_and_an_unknown_one_is_refused():
    assert len(frame(Settings(run="run 3", other="run 3"))["shown"]) == 1
    with pytest.raises(ValueError, match=r"run = 'run 7': expected one of 'run 1'"):
        Settings(run="run 7")
