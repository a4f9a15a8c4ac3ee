"""`course runs`: list the recorded runs, show one, compare two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

app = typer.Typer(no_args_is_help=True, help=__doc__)

RunPath = Annotated[Path, typer.Argument(help="A run directory, e.g. runs/digits")]
AsJson = Annotated[bool, typer.Option("--json", help="Print plain JSON to standard output.")]


@app.command("list")
def list_runs(
    directory: Annotated[
        Path, typer.Argument(help="The directory that contains the run directories.")
    ] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """One line per run, oldest first: status, epochs, seed and best metric.

    A record that cannot be read is named on stderr, and the exit code is 2; the others are listed.
    """
    if not directory.is_dir():
        _fail(f"{directory}: no such directory. Give the one that contains the runs, e.g. `runs`.")
    runs, faults = _readable(directory)
    rows = [_row(run) for run in runs]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    elif not rows and not faults:
        typer.echo(
            f"no runs in {directory}. A run is recorded in the directory given by "
            "Trainer(run_dir=...)."
        )
    elif rows:
        typer.echo(_table(rows))
    if faults:
        _fail("\ncourse runs: ".join(faults))


@app.command()
def show(run: RunPath, as_json: AsJson = False) -> None:
    """Show everything that is recorded about one run, and its epochs."""
    found = _read(run)
    if as_json:
        typer.echo(json.dumps(found.content | {"metrics": found.metrics()}, indent=2))
        return
    typer.echo(f"{found.name}: {found.status}" + _because(found.content.get("reason")))
    for name, value in found.identity().items():
        typer.echo(f"  {name:<28} {_text(value)}")
    epochs = [line for line in found.metrics() if line.pop("kind", None) == "epoch"]
    if epochs:
        typer.echo("\n" + _table(epochs))
        typer.echo(f"\nbest: {', '.join(f'{k} {_text(v)}' for k, v in found.best.items())}")


@app.command()
def compare(first: RunPath, second: RunPath, as_json: AsJson = False) -> None:
    """Show what differs between two runs, and their metrics. Change one thing at a time."""
    from course.engine.runs import compare as compare_runs

    one, two = _read(first), _read(second)
    # two columns also where both directories have one name, as a/digits and b/digits
    names = (one.name, two.name) if one.name != two.name else (str(first), str(second))
    if names[0] == names[1]:
        _fail(f"{first} was given twice, and a run does not differ from itself. Name another one.")
    found = compare_runs(one, two)
    if as_json:
        typer.echo(json.dumps(vars(found) | {"verdict": found.verdict}, indent=2))
        return
    rows = [
        {"": name, names[0]: _text(a), names[1]: _text(b)}
        for name, (a, b) in {
            f"best {found.metric}": found.values,
            **found.changed,
            **found.surroundings,
        }.items()
    ]
    typer.echo(_table(rows))
    typer.echo("\n" + found.verdict)


def _readable(directory: Path) -> tuple[list[Any], list[str]]:
    """The runs that can be read, the oldest first, and what is wrong with the others."""
    from course.engine.errors import EngineError
    from course.engine.record import RECORD
    from course.engine.runs import read_run

    runs, faults = [], []
    for file in sorted(directory.glob(f"*/{RECORD}")):
        try:
            runs.append(read_run(file.parent))
        except EngineError as error:
            faults.append(str(error))
    return sorted(runs, key=lambda run: (run.content["started"], run.name)), faults


def _row(run: Any) -> dict[str, Any]:
    return {
        "run": run.name,
        "started": run.content["started"],
        "status": run.status,
        "epoch": run.best.get("epoch"),
        "seed": run.content["seed"],
        f"best {run.monitor}": run.best.get(run.monitor),
    }


def _read(path: Path) -> Any:
    from course.engine.runs import read_run

    return _or_fail(read_run, path)


def _or_fail(read: Any, path: Path) -> Any:
    from course.engine.errors import EngineError

    try:
        return read(path)
    except EngineError as error:
        _fail(str(error))


def _fail(message: str) -> None:
    typer.echo(f"course runs: {message}", err=True)
    raise typer.Exit(2)


def _because(reason: str | None) -> str:
    return f" ({reason})" if reason else ""


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return "-" if value is None else str(value)


def _table(rows: list[dict[str, Any]]) -> str:
    """Columns as wide as they need to be."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [names, *([_text(row.get(name)) for name in names] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
