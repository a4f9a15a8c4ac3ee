"""`course curves RUN_DIR`: the state of a recorded run, its numbers, and what to try next."""

from __future__ import annotations

import json
from pathlib import Path

from course.analysis.curves import CurveReading, epochs_in_words, read_curves
from course.engine.errors import EngineError
from course.engine.record import METRICS, RECORD
from course.plots.files import check_figure_file

MOST_NAMES = 5


def show(run_dir: Path, *, as_json: bool = False, plot: Path | None = None) -> str:
    """The output of `course curves`.

    Args:
        run_dir: A directory written by `Trainer(run_dir=...)`.
        as_json: One JSON object with `run`, `epochs` and the contents of `CurveReading.to_json`.
        plot: Plot the curves to this file.

    Raises:
        ValueError: There is no run directory, it cannot be read, or the figure's file type is
        unknown.

    Source: Lecture 3, "Reading training curves"; ledger S15.
    """
    if plot is not None:
        check_figure_file(plot, example="curves.png")
    reading = read(run_dir)
    if plot is not None:
        draw(reading, plot)
    num_epochs = len(reading.history.epochs)
    if as_json:
        document = {"run": str(run_dir), "epochs": num_epochs, **reading.to_json()}
        return json.dumps(document, indent=2, ensure_ascii=False)
    lines = [f"{run_dir}, {epochs_in_words(num_epochs)}", str(reading)]
    return "\n".join([*lines, *([f"plot: {plot}"] if plot is not None else [])])


def read(run_dir: Path) -> CurveReading:
    """The reading of a run directory, or an error that says what the path is instead.

    Raises: ValueError: As for `show`.
    """
    if wrong := _is_no_run(run_dir):
        raise ValueError(wrong)
    try:
        return read_curves(run_dir)
    except EngineError as error:
        raise ValueError(f"{error} Train again with Trainer(run_dir=...).") from error
    except ValueError as error:
        raise ValueError(f"{run_dir / METRICS}: {error}") from error


def draw(reading: CurveReading, file: Path) -> None:
    """Write the figure.

    Raises:
        ValueError: It cannot be written there.
    """
    try:
        reading.plot().savefig(file)
    except OSError as error:
        raise ValueError(f"--plot {file}: {error}. Try another file, e.g. curves.png.") from error


def _is_no_run(path: Path) -> str:
    """What the path is instead of a run directory; empty if it is one."""
    if not path.exists():
        return f"{path}: no such directory. Recorded runs are listed by: course runs list runs"
    if path.is_file():
        return f"{path}: a file. Give the directory that it is in: course curves {path.parent}"
    if (path / RECORD).is_file():
        return ""
    inside = sorted(item.name for item in path.iterdir())
    if not inside:
        return (
            f"{path}: empty, nothing was recorded there. Trainer(run_dir=...) records a run there "
            "from its first update on."
        )
    if runs := sorted(file.parent.name for file in path.glob(f"*/{RECORD}")):
        return (
            f"{path}: not a run, but it contains {len(runs)}: {_some(runs)}. Read one of them: "
            f"course curves {path / runs[0]}"
        )
    return (
        f"{path}: there is no {RECORD} in it, so it is not a run directory; it contains "
        f"{_some(inside)}. For curves that another program logged, call "
        "course.analysis.read_curves with a list of one dictionary per epoch: {'train_loss': "
        "..., 'val_loss': ...}."
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")
