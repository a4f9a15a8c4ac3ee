"""From the results of all runs to a folder of pages: `python -m book`.

evidence -> Markdown -> Sphinx -> check links -> put in place, completely or not at all.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from book.evidence import ROOT, all_jobs, digest, gather
from book.links import check_links
from book.pages.api import PACKAGES, api_pages
from book.pages.evidence import Evidence
from book.pages.exercises import exercise_pages
from book.pages.figures import figures_of
from book.pages.front import about_page, index, trees
from book.pages.ids import id_index, id_pages
from book.pages.lists import list_pages
from book.pages.notebooks import Shown
from book.pages.parts import part_index, part_pages
from book.widget_pages import framed
from course.ledger import missing, rows
from course.released import released

WORK = ROOT / "build" / "book-work"
SITE = Path(__file__).with_name("site")
RESTS_ON = ("book", "course", "autograde", "notebooks", "requirements.lock")
"""What a book is made of; if none of it changed, nothing is built."""


class BookError(RuntimeError):
    """The book cannot be built; the message names the page and the reason."""


def build(
    target: Path,
    *,
    only: Iterable[str] | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Build the book.

    Args:
        target: The output folder; a book in it is replaced once the new one is complete.
        only: Run only these notebooks; the others are shown without outputs. None: all.
        say: Called with progress messages.

    Returns:
        The first page.

    Raises:
        EvidenceError: A cell, a number, a claim or a widget failed.
        BookError: An id has no home, Sphinx warned, or `target` holds something that is not a book.
        LinkError: A link leads nowhere.
    """
    target = target.absolute()
    check_target(target)
    only = None if only is None else check_names(only)
    if homeless := missing():
        raise BookError(f"Ids without a home: {', '.join(homeless)}. See course ledger --missing.")
    stamp = digest((*RESTS_ON,)) + ("" if only is None else "-" + "-".join(sorted(only)))
    marker = target / ".made-from"
    if marker.exists() and marker.read_text("utf-8") == stamp:
        say("nothing has changed since this book was built")
        return target / "index.html"
    found = gather(all_jobs(only), say)
    shutil.rmtree(
        WORK, ignore_errors=True
    )  # otherwise leftovers of an earlier book would be linked
    write_all(WORK / "source", Evidence.read(found), about_now())
    say("making pages")
    sphinx(WORK)
    count = check_links(WORK / "html")
    say(f"{count} links work")
    (WORK / "html" / ".made-from").write_text(stamp, "utf-8")
    put_in_place(WORK / "html", target)
    return target / "index.html"


def check_target(target: Path) -> None:
    """Refuse to replace a folder that is not a book.

    Raises:
        BookError: It holds something else, or is a file.
    """
    if target.is_file():
        raise BookError(f"{target} is a file. Name a folder, e.g. build/book.")
    if target.exists() and any(target.iterdir()) and not (target / ".made-from").exists():
        raise BookError(f"{target} holds something that is not a book. Name another folder.")


def check_names(only: Iterable[str]) -> list[str]:
    """Full names of notebooks that are given by name or by their first letters, e.g. `01a`.

    Raises:
        BookError: There is no such notebook.
    """
    names = []
    for wanted in only:
        found = [name for name in released() if wanted in (name, name.partition("-")[0])]
        if not found:
            raise BookError(f"No notebook '{wanted}'; the notebooks are {', '.join(released())}.")
        names += found
    return names


def about_now() -> dict[str, str]:
    """Versions, date and commit, as shown on every page."""
    git = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
    head = subprocess.run(git, capture_output=True, text=True)
    return {
        "torch": version("torch"),
        "Python": platform.python_version(),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": head.stdout.strip() or "unknown",
    }


def write_all(
    source: Path, evidence: Evidence, about: dict[str, str], reference: tuple[str, ...] = PACKAGES
) -> None:
    """Write everything that Sphinx reads.

    Args:
        source: The folder to make.
        evidence: The results of all jobs.
        about: Versions, date and commit.
        reference: Prefixes of the modules that the reference documents.
    """
    shutil.copytree(SITE, source, ignore=shutil.ignore_patterns("__pycache__"))
    files = {"about.json": json.dumps(about)}
    for name, path in evidence.widgets.items():
        files[f"_static/widgets/{name}.html"] = framed(path.read_text("utf-8"))
    files |= dict(pages(evidence, about)) | dict(api_pages(reference))
    files |= {f"extra/id/{id_}/index.html": leads_to(f"../{id_}.html") for id_ in rows()}
    for file, text in files.items():
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).write_text(text, "utf-8")


def leads_to(page: str) -> str:
    """A redirect page, so that any web server finds `/id/N19.html` under `/id/N19`."""
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Leads on</title>'
        f'<meta http-equiv="refresh" content="0; url={page}"><a href="{page}">{page}</a></html>\n'
    )


def pages(evidence: Evidence, about: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Pairs (file, text) for all pages."""
    import nbformat

    shown = {name: Shown.read(name, evidence.notebooks.get(name)) for name in released()}
    figures = {name: figures_of(name, one.notebook) for name, one in shown.items()}
    yield "index.md", index(evidence)
    yield "about.md", about_page(about)
    yield "parts/index.md", part_index()
    yield "id/index.md", id_index()
    yield from trees().items()
    yield from part_pages(evidence, figures)
    yield from exercise_pages(shown)
    yield from list_pages(evidence)
    yield from id_pages(evidence)
    for name, one in shown.items():
        yield f"notebooks/{name}.ipynb", nbformat.writes(one.notebook)


def sphinx(work: Path) -> None:
    """Build HTML from the sources in a folder that holds nothing else; any warning is an error.

    Raises:
        BookError: Sphinx failed; the message is its output.
    """
    words = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going"]
    words += ["-j", str(os.cpu_count() or 1), "-d", str(work / "doctrees")]
    words += [str(work / "source"), str(work / "html")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise BookError(f"Sphinx: {(done.stderr or done.stdout).strip()[-4000:]}")


def put_in_place(made: Path, target: Path) -> None:
    """Copy the book to a folder next to the target, then swap the two."""
    fresh, old = (target.with_name(f".{target.name}-{word}") for word in ("new", "old"))
    for folder in (fresh, old):
        shutil.rmtree(folder, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(made, fresh, ignore=shutil.ignore_patterns("*.map", ".buildinfo", "_sources"))
    if target.exists():
        target.rename(old)
    fresh.rename(target)
    shutil.rmtree(old, ignore_errors=True)
