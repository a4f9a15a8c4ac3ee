"""The `course` command: the lecture's numbers and claims, tried; and the runs on disk.

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
    """Every number of the lecture recomputed, every claim tried, every run compared."""


@app.command()
def worked(
    id: Annotated[
        str | None, typer.Argument(help="A ledger id, as N19. None: all of them.")
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Ids and titles only, computes nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Plain JSON on standard output.")] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The table of all as Markdown.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Write one offline page as well.")] = None,
    device: Annotated[str, typer.Option(help="Where torch computes: cpu or cuda.")] = "cpu",
    seed: Annotated[
        int | None, typer.Option(help="For the rows that draw at random; none: their own.")
    ] = None,
) -> None:
    """Recompute the lecture's worked numbers. Exit 1: one of ours differs, unexplained."""
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
        str | None, typer.Argument(help="A claim, as F26, or a contradiction, as K17.")
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="Ids and titles only, tries nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Plain JSON on standard output.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write one offline page as well.")] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The verdicts on record as Markdown.")
    ] = False,
    verdict: Annotated[
        str | None, typer.Option(help="Only this verdict on record, e.g. 'does not hold'.")
    ] = None,
    part: Annotated[
        str | None, typer.Option(help="Only from there, e.g. 'lecture' or 'chapter c5'.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every experiment.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; none: as each needs.")] = None,
) -> None:
    """Try what the lecture asserts. Exit 1: a verdict is not the one on record."""
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
    """Say what an id of the sources stands for, where they have it, and where it lives here."""
    from course.ledger.show import answer

    print(answer(id, only_missing=missing, as_json=as_json))


@app.command()
def museum(
    bug: Annotated[
        str | None, typer.Argument(help="An exhibit, as B08. None: all of them.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw both runs into this file.")] = None,
) -> None:
    """Show a bug next to the healthy run: symptom, evidence, diagnosis, fix."""
    from course.debug.museum_cli import museum as show

    show(bug, plot)


@app.command()
def widgets(
    as_json: Annotated[bool, typer.Option("--json", help="Plain JSON on standard output.")] = False,
) -> None:
    """List the interactive views in the lecture's order: id, what it shows, where it is from."""
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
    run_dir: Annotated[Path, typer.Argument(help="A run directory, as runs/digits.")],
    as_json: Annotated[bool, typer.Option("--json", help="Plain JSON on standard output.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the curves into this file.")] = None,
) -> None:
    """Say whether a recorded run underfits, overfits, diverged or has come to rest; what to try."""
    from course.analysis.curves_cli import show

    print(show(run_dir, as_json=as_json, plot=plot))


@app.command()
def lab(
    folder: Annotated[
        Path | None, typer.Argument(help="Yours; made if need be. None: deep-training, at home.")
    ] = None,
    browser: Annotated[
        bool, typer.Option(help="Open a browser, or only print the address.")
    ] = True,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Of the server; none: a free one.")
    ] = None,
) -> None:
    """Open JupyterLab on your own copies of the notebooks. What you wrote is never overwritten."""
    from course.desk import lay_out, open_lab

    folder = (folder or Path.home() / "deep-training").expanduser()
    print(f"Your notebooks are in {lay_out(folder)}", flush=True)
    raise typer.Exit(open_lab(folder, browser=browser, port=port))


@app.command()
def book(
    folder: Annotated[
        Path | None, typer.Argument(help="Where to; a book there is replaced. None: build/book.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option(help="Run this notebook alone, e.g. 03a; may be repeated.")
    ] = None,
) -> None:
    """Make the book: the whole course as pages that need no network and no kernel."""
    import os
    import subprocess

    clone = Path(__file__).resolve().parents[1]
    if not (clone / "book" / "__main__.py").is_file():
        raise ValueError("the book is made in a clone of the repository; this is an installation.")
    words = [sys.executable, "-m", "book", str((folder or Path("build/book")).absolute())]
    words += [word for name in only or () for word in ("--only", name)]
    path = os.pathsep.join(filter(None, (str(clone), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path})
    raise typer.Exit(done.returncode)


def one_way_to_show(id: str | None, command: str, *, markdown: bool, **ways: bool) -> None:
    """Refuse options that would silently win over each other.

    Raises:
        ValueError: Two ways of showing at once, or a table of all where one id was named.
    """
    asked = [f"--{way.rstrip('_')}" for way, wanted in ways.items() if wanted]
    asked += ["--markdown"] if markdown else []
    if len(asked) > 1:
        raise ValueError(f"{' and '.join(asked)}: one at a time, as course {command} {asked[0]}.")
    if id is not None and (markdown or ways["list_"]):
        raise ValueError(
            f"{asked[0]} shows all of them, and {id} is one. For all: course {command} "
            f"{asked[0]}, for the one: course {command} {id}."
        )


def print_titles(entries: Iterable[Entry], *, as_json: bool) -> None:
    """Ids and titles of a catalogue."""
    if as_json:
        print(json.dumps([{"id": e.id, "title": e.title, "source": e.source} for e in entries]))
    else:
        print("\n".join(f"{entry.id:<4} {entry.title}" for entry in entries))


def print_numbers(found: Sequence[Worked], *, alone: bool, as_json: bool, markdown: bool) -> None:
    """Worked numbers as they were asked for; `alone` if one was."""
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
    """The table of all numerics, then a line that counts the verdicts."""
    from collections import Counter

    from rich.console import Console

    from course.worked.show import overview

    Console(width=None if sys.stdout.isatty() else 140).print(overview(found))
    counts = Counter(numeric.verdict for numeric in found)
    print(
        f"{len(found)} worked numerics: "
        + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    )


def use_device(device: str) -> None:
    """Make `device` torch's default, so that every example is computed there.

    Raises:
        ValueError: This torch cannot compute there.
    """
    if device == "cpu":
        return
    import torch

    from course.engine import choose_device

    torch.set_default_device(choose_device(device))


def main() -> None:
    """Entry point: a user's fault is one line on stderr and exit code 2."""
    try:
        app()
    except (UnknownIdError, ValueError, OSError) as fault:
        print(f"course: {fault}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
