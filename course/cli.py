"""The `course` command: the lecture's numbers and claims, recomputed and tested; runs on disk.

Nothing heavy is imported before it is needed: `course worked --list` answers without torch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from course.catalogue import Entry, UnknownIdError

if TYPE_CHECKING:
    from course.worked.step import Worked

app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__.splitlines()[0])


@app.callback()
def course() -> None:
    """Recompute every number of the lecture, test every claim, compare recorded runs."""


@app.command()
def worked(
    id: Annotated[
        str | None, typer.Argument(help="A ledger id, e.g. N19. None: all of them.")
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Only ids and titles; computes nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Plain JSON on standard output.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The table of all numbers as Markdown.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Also write one offline page to this file.")
    ] = None,
    device: Annotated[str, typer.Option(help="Where torch computes: cpu or cuda.")] = "cpu",
    seed: Annotated[
        int | None,
        typer.Option(help="Seed for the rows that draw random numbers. None: their own seeds."),
    ] = None,
) -> None:
    """Recompute the lecture's worked numbers. Exit code 1: an unexplained difference."""
    from course.worked import registry

    one_way_to_show(id, "worked", list_=list_, json=as_json and not list_, markdown=markdown)
    if list_:
        print_titles(registry.catalogue().values(), as_json=as_json)
        return
    use_device(device)
    if html is not None:
        from course.pages import check_page

        check_page(html)
    if seed is not None:
        from course.whole import check_seed

        check_seed(seed)
    found = [registry.compute(id, seed=seed)] if id else list(registry.compute_all(seed))
    print_numbers(found, alone=bool(id), as_json=as_json, markdown=markdown)
    if html is not None:
        from course.worked.show import as_page

        html.write_text(as_page(found), "utf-8")
        print(f"page written to {html}", file=sys.stderr)
    raise typer.Exit(any(numeric.verdict == "differs" for numeric in found))


@app.command()
def claims(
    id: Annotated[
        str | None,
        typer.Argument(help="A claim, e.g. F26, or a contradiction, e.g. K17. None: all claims."),
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Only ids and titles; tests nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Plain JSON on standard output.")] = False,
    html: Annotated[
        Path | None, typer.Option(help="Also write one offline page to this file.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The verdicts on record as Markdown.")
    ] = False,
    verdict: Annotated[
        str | None,
        typer.Option(help="Only claims with this verdict on record, e.g. 'does not hold'."),
    ] = None,
    part: Annotated[
        str | None,
        typer.Option(
            help="Only claims from this part of the sources, e.g. 'lecture' or 'chapter c5'."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every experiment.")] = 0,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda. None: whatever each claim needs.")
    ] = None,
) -> None:
    """Test what the lecture asserts. Exit code 1: a verdict differs from the one on record."""
    from course.claims.command import run_command
    from course.claims.page import markdown_record

    one_way_to_show(id, "claims", list_=list_, json=as_json and not list_, markdown=markdown)
    if markdown:
        print(markdown_record())
        return
    code = run_command(
        id, list_only=list_, as_json=as_json, html=html, verdict=verdict, part=part, seed=seed,
        device=device,
    )  # fmt: skip
    raise typer.Exit(code)


@app.command()
def ledger(
    id: Annotated[
        str | None, typer.Argument(help="An id, e.g. N20, or a series, e.g. F. None: all of them.")
    ] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Only ids that nothing here covers yet.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Plain JSON on standard output.")] = False,
) -> None:
    """Show what an id stands for, where the sources have it, and where it is covered here."""
    from course.ledger.show import answer

    print(answer(id, only_missing=missing, as_json=as_json))


@app.command()
def museum(
    bug: Annotated[
        str | None, typer.Argument(help="An exhibit, e.g. B08. None: all of them.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Plot both runs to this file.")] = None,
) -> None:
    """Show a bug next to the healthy run: symptom, evidence, diagnosis, fix."""
    from course.debug.museum_cli import museum as show

    show(bug, plot)


@app.command()
def widgets(
    as_json: Annotated[bool, typer.Option("--json", help="Plain JSON on standard output.")] = False,
) -> None:
    """List the interactive widgets in the lecture's order: id, what it shows, and its source."""
    from course.widgets import catalogue

    entries = catalogue().values()
    if as_json:
        listed = [
            {"id": e.id, "ledger": [*e.ledger], "class": e.name, "title": e.title,
             "source": e.source} for e in entries
        ]  # fmt: skip
        print(json.dumps(listed, indent=2, ensure_ascii=False))
        return
    wide = max(len(entry.id) for entry in entries)
    for entry in entries:
        print(f"{entry.id:<{wide}}  {entry.title} ({', '.join(entry.ledger)}; {entry.source})")
    print("In a notebook: from course.widgets import", next(iter(entries)).name)


@app.command(
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    add_help_option=False,
)
def runs(context: typer.Context) -> None:
    """List, show or compare recorded training runs: course runs list|show|compare."""
    from course.engine.runs_cli import app as runs_app

    runs_app(context.args, prog_name="course runs")


@app.command()
def curves(
    run_dir: Annotated[Path, typer.Argument(help="A run directory, e.g. runs/digits.")],
    as_json: Annotated[bool, typer.Option("--json", help="Plain JSON on standard output.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Plot the curves to this file.")] = None,
) -> None:
    """Say whether a recorded run underfits, overfits or diverged, and what to try next."""
    from course.analysis.curves_cli import show

    print(show(run_dir, as_json=as_json, plot=plot))


@app.command()
def lab(
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Your folder; created if it does not exist. None: "
            "deep-training in your home folder."
        ),
    ] = None,
    browser: Annotated[
        bool, typer.Option(help="Open a browser, or only print the address.")
    ] = True,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the server. None: a free one.")
    ] = None,
) -> None:
    """Open JupyterLab on your own copies of the notebooks. Your work is never overwritten."""
    from course.desk import lay_out, open_lab

    folder = (folder or Path.home() / "deep-training").expanduser()
    print(f"Your notebooks are in {lay_out(folder)}", flush=True)
    raise typer.Exit(open_lab(folder, browser=browser, port=port))


@app.command()
def book(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Output folder; a book there is replaced. None: build/book."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Run only this notebook, e.g. 03a; may be repeated.")
    ] = None,
) -> None:
    """Build the book: the whole course as pages that need neither network nor kernel."""
    import os
    import subprocess

    clone = Path(__file__).resolve().parents[1]
    if not (clone / "book" / "__main__.py").is_file():
        raise ValueError(
            "the book can only be built in a clone of the repository; this is an installation."
        )
    words = [sys.executable, "-m", "book", str((folder or Path("build/book")).absolute())]
    words += [word for name in only or () for word in ("--only", name)]
    path = os.pathsep.join(filter(None, (str(clone), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path})
    raise typer.Exit(done.returncode)


def one_way_to_show(id: str | None, command: str, *, markdown: bool, **ways: bool) -> None:
    """Refuse options that would silently override each other.

    Raises:
        ValueError: Two output formats at once, or a table of all when one id was given.
    """
    asked = [f"--{way.rstrip('_')}" for way, wanted in ways.items() if wanted]
    asked += ["--markdown"] if markdown else []
    if len(asked) > 1:
        raise ValueError(
            f"{' and '.join(asked)}: use one at a time, e.g. course {command} {asked[0]}."
        )
    if id is not None and (markdown or ways["list_"]):
        raise ValueError(
            f"{asked[0]} shows all of them, but {id} is only one. For all: course {command} "
            f"{asked[0]}; for this one: course {command} {id}."
        )


def print_titles(entries: Iterable[Entry], *, as_json: bool) -> None:
    """Ids and titles of a catalogue."""
    if as_json:
        print(json.dumps([{"id": e.id, "title": e.title, "source": e.source} for e in entries]))
    else:
        print("\n".join(f"{entry.id:<4} {entry.title}" for entry in entries))


def print_numbers(found: Sequence[Worked], *, alone: bool, as_json: bool, markdown: bool) -> None:
    """Print worked numbers in the requested format; `alone` if only one was requested."""
    if as_json:
        document = [numeric.to_json() for numeric in found]
        print(json.dumps(document[0] if alone else document, indent=2, ensure_ascii=False))
    elif alone:
        print(found[0])
    elif markdown:
        from course.worked.show import as_markdown

        print(as_markdown(found))
    else:
        print_overview(found)


def print_overview(found: list) -> None:
    """Print the table of all worked numbers, then a line that counts the verdicts."""
    from collections import Counter

    from rich.console import Console

    from course.worked.show import overview

    Console(width=None if sys.stdout.isatty() else 140).print(overview(found))
    counts = Counter(numeric.verdict for numeric in found)
    print(
        f"{len(found)} worked numbers: "
        + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    )


def use_device(device: str) -> None:
    """Make `device` torch's default, so that every example is computed on it.

    Raises:
        ValueError: This torch cannot compute on `device`.
    """
    if device == "cpu":
        return
    import torch

    from course.engine import choose_device

    torch.set_default_device(choose_device(device))


def main() -> None:
    """Entry point: a user's error is one line on stderr and exit code 2."""
    try:
        app()
    except (UnknownIdError, ValueError, OSError) as fault:
        print(f"course: {fault}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
