"""The `autograde` command: from the notebooks' sources to a graded class.

Exit code 0: done. 2: something needs your attention, one line each; everything else was done.
"""

from __future__ import annotations

import json
import math
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated

import typer

from autograde.class_dir import (
    ClassDirError,
    check_assignment,
    check_class_dir,
    check_students,
    did_you_mean,
    few,
    unknown_students,
)
from autograde.classroom.names import shown
from autograde.classroom.release import NbgraderFault
from autograde.sandbox import parent
from course.catalogue import UnknownIdError
from course.startup import put_off_addresses

if TYPE_CHECKING:
    from autograde.classroom.collect.collecting import Collected
    from autograde.classroom.crew import Crew
    from autograde.classroom.grading import Outcome
    from autograde.classroom.report import Row

put_off_addresses()  # of the commands that import nbformat
app = typer.Typer(no_args_is_help=True, add_completion=False, help=__doc__.splitlines()[0])

Assignment = Annotated[
    str | None,
    typer.Argument(help="E.g. 03b-debug-ladder; not needed if only one was handed in."),
]
Dir = Annotated[Path, typer.Option("--dir", help="The class directory.")]
Device = Annotated[
    str, typer.Option("--device", help="Where answers are computed: cpu, cuda, cuda:1, or auto.")
]
Students = Annotated[
    str | None, typer.Option(help="Only these students, separated by commas: --students ada,ben")
]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(help="A new or empty folder for the class.")],
    assignment: Annotated[
        list[str] | None, typer.Option(help="Only this assignment; may be repeated.")
    ] = None,
) -> None:
    """Make a class directory: a plain nbgrader course with this course's notebooks."""
    from autograde import class_dir

    written = class_dir.init(folder, assignment, say=print)
    for path in written:
        print(f"wrote {path}")
    print(f"Next: autograde release --dir {folder}")


@app.command()
def notebooks(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table as Markdown.")
    ] = False,
) -> None:
    """List the notebooks that come with the course: exercises, points, minutes."""
    from autograde.kit.overview import as_markdown, overviews

    rows = overviews()
    if markdown:
        print(as_markdown(rows), end="")
        return
    from rich.table import Table

    table = Table("notebook", "exercises", "guesses", "points", "minutes", "kinds")
    for row in rows:
        numbers = (row.exercises, row.guesses, f"{row.points:g}", row.minutes)
        table.add_row(row.name, *map(str, numbers), ", ".join(row.kinds))
    print_table(table)


@app.command()
def release(assignment: Assignment = None, folder: Dir = Path(".")) -> None:
    """Make the student version, without solutions and hidden checks. (nbgrader generate_assignment)

    Without a name, of every assignment.
    """
    from autograde.class_dir import assignments
    from autograde.classroom.release import release as make

    folder = check_class_dir(folder)
    wanted = assignments(folder) if assignment is None else []
    wanted = wanted or [check_assignment(folder, assignment)]
    for name in wanted:
        print(f"released {make(folder, name)}")
    name = wanted[0] if len(wanted) == 1 else "ASSIGNMENT"
    print(f"Submissions go to {folder}/submitted/STUDENT/{name}/{name}.ipynb")


@app.command()
def collect(
    source: Annotated[
        Path,
        typer.Argument(
            help="The zip from Canvas or Moodle, the same unpacked, or nbgrader's inbound/"
        ),
    ],
    assignment: Annotated[str, typer.Argument(help="e.g. 03b-debug-ladder")],
    folder: Dir = Path("."),
    listed: Annotated[
        list[Path] | None,
        typer.Option(
            "--list",
            help="Canvas's gradebook export or Moodle's grading worksheet; may be repeated.",
        ),
    ] = None,
    replaces: Annotated[
        bool,
        typer.Option(
            "--replace", help="Also take files that differ; the old ones go to replaced/."
        ),
    ] = False,
    take_new: Annotated[
        bool, typer.Option("--new", help="Also take students the gradebook does not know.")
    ] = False,
    file_times: Annotated[
        bool, typer.Option("--file-times", help="Use the files' own times as submission times.")
    ] = False,
    origin: Annotated[
        str,
        typer.Option(
            "--from",
            help="canvas, moodle, exchange or folder; default: as the names in the archive say.",
        ),
    ] = "",
) -> None:
    """Take submissions from an archive into submitted/, and say who was matched, and how.

    Existing files are not overwritten unless you use --replace.
    """
    from autograde.classroom.collect.collecting import collect as take
    from autograde.classroom.collect.entries import RefusedError
    from autograde.classroom.collect.naming import READERS
    from autograde.classroom.collect.people import read_list

    folder = check_class_dir(folder)
    assignment = check_assignment(folder, assignment)
    rows = [row for path in listed or [] for row in read_list(path)]
    platforms = {platform.lower(): platform for platform in READERS}
    if origin and origin.lower() not in platforms:
        raise ValueError(f"--from {origin}: choose one of {', '.join(platforms)}.")
    how = {"replaces": replaces, "take_new": take_new, "file_times": file_times}
    how["platform"] = platforms.get(origin.lower())
    try:
        became = _say_collected(take(folder, assignment, source, listed=rows, **how))
    except RefusedError as fault:
        raise ValueError(str(fault)) from None
    lines = became.pop("lines", 0)
    print(", ".join(f"{number} {word}" for word, number in became.items()) or "nothing was found")
    print(f"Next: autograde grade {assignment} --dir {folder}")
    raise typer.Exit(2 if lines or not became else 0)


def _say_collected(found: Iterable[Collected]) -> Counter[str]:
    """Print what was taken and what needs you; returns how many became what, and the lines."""
    became: Counter[str] = Counter()
    for one in found:
        became[one.became] += 1
        if one.became in ("new", "replaced"):
            when = " ".join(filter(None, (one.time, "late" if one.late else "")))
            print(f"{one.became:<9} {one.student:<20} by {one.how}: {shown(one.handed)}  {when}")
        if one.needs_you:
            became["lines"] += 1
            print(f"autograde: {one.words}", file=sys.stderr)
    return became


@app.command()
def grade(
    assignment: Assignment = None,
    folder: Dir = Path("."),
    students: Students = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that grade at the same time; default: one per core."),
    ] = None,
    scheduler: Annotated[
        str, typer.Option(help="A Dask scheduler whose workers grade, as tcp://HOST:PORT.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Also grade unchanged work.")] = False,
    cell_timeout: Annotated[
        float, typer.Option(help="Seconds per cell; the notebook gets 5 times that, or 300.")
    ] = 60.0,
    answer_timeout: Annotated[float, typer.Option(help="Seconds for one call by a check.")] = 10.0,
    device: Device = "cpu",
    run_all: Annotated[
        bool, typer.Option("--run-all", help="Also run unchanged cells that no exercise needs.")
    ] = False,
    trust_submissions: Annotated[
        bool, typer.Option("--trust-submissions", help="Run them with your own rights. Dangerous.")
    ] = False,
) -> None:
    """Grade submissions into nbgrader's gradebook, and keep the reasons next to it.

    Only new or changed work is graded; a run that was stopped continues where it was.
    """
    if scheduler and jobs:
        raise ValueError(
            "--jobs is for processes on this machine; with --scheduler, start that many workers."
        )
    _check_timeouts(cell=cell_timeout, answer=answer_timeout)
    folder = check_class_dir(folder)
    assignment = check_assignment(folder, assignment)
    device = device if scheduler else _chosen(device)
    known = _handed_in(folder, assignment)
    names, needs_you = _asked_for(students, known, assignment)

    from autograde.classroom import grading
    from autograde.sandbox.limits import Limits

    notebook_s = max(Limits.notebook_s, 5 * cell_timeout)
    limits = Limits(cell_s=cell_timeout, answer_s=answer_timeout, notebook_s=notebook_s)
    plan = grading.make_plan(folder, assignment, names, limits, force=force, run_all=run_all)
    how = {"scheduler": scheduler, "trusted": trust_submissions, "device": device}
    with grading.crew_for(jobs, limits, device) as crew:
        if plan.num_to_do and not scheduler:  # a cluster's machines refuse by themselves
            parent.start(plan.num_to_do)
            how["crew"] = crew
            if not trust_submissions:
                _refuse_without_isolation(crew)
        outcomes = _all_of(grading.carry_out(plan, **how), len(plan.submissions))
    needs_you += _needing_you(outcomes, folder, assignment)
    for line in needs_you:
        print(f"autograde: {line}", file=sys.stderr)
    print(_graded(outcomes))
    print(f"Next: autograde report --dir {folder}")
    raise typer.Exit(2 if needs_you else 0)


def _asked_for(
    students: str | None, known: list[str], assignment: str
) -> tuple[list[str] | None, list[str]]:
    """Whom to grade, None for all, and what to say of names that handed in nothing."""
    asked, needs_you = _names(students), []
    what = f"handed in nothing for {assignment}"
    if strangers := unknown_students(asked or [], known):
        asked = [name for name in asked or [] if name not in strangers] or asked
        named = few([f"'{name}'{did_you_mean(name, known)}" for name in strangers])
        needs_you = [f"--students: {named} {what}; the others were processed"]
    return check_students(asked, known, what), needs_you


def _all_of(run: Iterator[Outcome], count: int) -> list[Outcome]:
    """All outcomes of a run, with its progress shown; Ctrl-C ends the command."""
    outcomes = []
    try:
        for outcome in _with_progress(run, count):
            outcomes.append(outcome)
    except KeyboardInterrupt:
        print(f"\nStopped after {len(outcomes)} of {count}; run it again to continue.")
        raise typer.Exit(130) from None
    return outcomes


def _needing_you(outcomes: list[Outcome], folder: Path, assignment: str) -> Iterator[str]:
    """What a person must look at; of unchanged work an earlier run has said it."""
    new = [outcome for outcome in outcomes if not outcome.unchanged]
    yield from (line for o in new for line in (*o.notes, o.reason) if line)
    looked_at = [outcome.student for outcome in new]
    yield from _unprotected(folder)
    yield from _doubtful_times(folder, assignment, looked_at)
    yield from _off_roster(folder, looked_at)


@app.command()
def regrade(
    assignment: Assignment = None,
    folder: Dir = Path("."),
    since: Annotated[
        str,
        typer.Option(
            help="Only work graded since this version (as listed without --since) or "
            "day (2026-03-01)."
        ),
    ] = "",
    apply: Annotated[bool, typer.Option("--apply", help="Also change the points.")] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes that grade at the same time.")
    ] = None,
    trust_submissions: Annotated[
        bool, typer.Option("--trust-submissions", help="Run them with your own rights. Dangerous.")
    ] = False,
) -> None:
    """Show whose points a change of the exercises affects, and how; --apply changes them.

    Work graded under an older version is graded again on the same cases, with the time limits and
    on the device that it had, and compared.
    """
    from autograde.classroom import grading, regrade
    from autograde.classroom.assignment import read_assignment

    folder = check_class_dir(folder)
    assignment = check_assignment(folder, assignment)
    about = read_assignment(folder, assignment)
    grading.check_release(folder, about)
    for line in regrade.describe_versions(folder, about):
        print(line)
    parent.start(len(regrade.concerned(folder, about, since)))
    if not trust_submissions:
        _refuse_without_isolation()
    how = {"jobs": jobs, "trusted": trust_submissions}
    found = list(regrade.preview(folder, about, since=since, **how))
    for line in regrade.sentences(found):
        print(line)
    needs_you = [one.reason for one in found if one.reason]
    students = [one.student for one in found if not one.left]
    if apply and students:
        outcomes = list(regrade.apply(folder, assignment, students, **how))
        for reason in (outcome.reason for outcome in outcomes if outcome.reason):
            print(f"autograde: {reason}", file=sys.stderr)
            needs_you.append(reason)
        graded = sum(outcome.graded for outcome in outcomes)
        print(f"{graded} graded again. Next: autograde report --dir {folder}")
    elif students:
        print("Nothing was changed. To change the points, run the same command with --apply.")
    raise typer.Exit(2 if needs_you else 0)


def _check_timeouts(**options: float) -> None:
    for option, seconds in options.items():
        if not 0 < seconds < math.inf:
            raise ValueError(
                f"--{option}-timeout {seconds:g}: expected seconds above 0, e.g. "
                f"--{option}-timeout 30."
            )


def _graded(outcomes: Sequence[Outcome]) -> str:
    """How many were graded, by this run and by earlier ones."""
    graded = sum(outcome.graded for outcome in outcomes)
    unchanged = sum(outcome.unchanged for outcome in outcomes)
    before = f", {unchanged} of them before and unchanged since" if unchanged else ""
    return f"{graded} of {len(outcomes)} submissions graded{before}."


def _chosen(device: str) -> str:
    """The device's name, looked for on this machine; the CPU needs no torch to be found."""
    if device == "cpu":
        return device
    from course.engine import choose_device

    return str(choose_device(device))


def _unprotected(folder: Path) -> Iterator[str]:
    from autograde.class_dir import is_protected

    if not is_protected(folder):
        yield (
            f"{folder}/nbgrader_config.py lacks the lines that stop students' HTML from running in "
            f"formgrader. Add them: autograde init {folder}"
        )


def _doubtful_times(folder: Path, assignment: str, looked_at: list[str]) -> Iterator[str]:
    from autograde.classroom.export import doubtful_times

    for student, words in doubtful_times(folder, assignment).items():
        if student in looked_at:
            yield f"{folder}/submitted/{shown(student)}/{assignment}: {words}."


def _off_roster(folder: Path, graded: list[str]) -> Iterator[str]:
    from autograde.classroom.lookups import off_roster

    for student in off_roster(folder, graded):
        yield (
            f"{folder}/submitted/{student}: '{student}' is not on the gradebook's class list. If "
            f"new: nbgrader db student add {quote(student)} --first-name=NAME. If the id is "
            "misspelt or the student has left: rename the folder, or move it out of submitted/, "
            f"then nbgrader db student remove {quote(student)} --force, and grade again."
        )


def _with_progress(outcomes: Iterator[Outcome], count: int) -> Iterator[Outcome]:
    """A bar with rate and time left in a terminal; elsewhere a line for each submission.

    The bar counts what is graded now: with what was graded before, the rate would mean nothing.
    """
    from tqdm import tqdm

    with tqdm(total=count, unit=" submissions", smoothing=0.1, disable=None) as bar:
        for outcome in outcomes:
            if outcome.unchanged:
                bar.total -= 1
            else:
                bar.update()
            if bar.disable and not outcome.unchanged:
                word = "graded" if outcome.graded else "not graded"
                print(f"{word:<10}  {outcome.student}  {outcome.seconds:.1f} s", flush=True)
            yield outcome


def _pages_bar(students: list[str]) -> Iterator[str]:
    from tqdm import tqdm

    return iter(tqdm(students, unit=" pages", disable=None))


def _refuse_without_isolation(crew: Crew | None = None) -> None:
    if lacking := [name for name, given, _ in _protections(crew) if not given]:
        print(
            f"autograde: nothing was graded: this machine does not provide {', '.join(lacking)}. "
            "To see what is needed, run autograde protections. --trust-submissions runs "
            "submissions with your own rights.",
            file=sys.stderr,
        )
        raise typer.Exit(2)


def _protections(crew: Crew | None = None) -> list[tuple[str, bool, str]]:
    """What `protections` found, in a crew's process or one of its own: torch is not loaded here."""
    from autograde.classroom.crew import once

    told = crew.ask({}) if crew else {"failed": "nobody was asked"}
    if "failed" in told:
        told = once("autograde.sandbox.protections:tell", {})
    if "failed" in told:
        raise ClassDirError(f"the protections could not be tested: {told['failed']}")
    return told["protections"]


@app.command("doctor", hidden=True)  # its name until 0.1
@app.command()
def protections(device: Device = "cpu") -> None:
    """Test which protections against hostile submissions this machine provides.

    With --device cuda, also list the device files that a student's process can see.
    """
    from autograde.devices import files

    let_in = files(_chosen(device))
    found = _protections()
    if let_in:
        why = f"device files let in: {', '.join(f'/dev/{name}' for name in let_in)}"
        found = [*found, (device, True, why)]
    for name, given, why in found:
        print(f"{'yes' if given else 'NO':<4} {name:<18} {why}")
    lacking = sum(not given for _, given, _ in found)
    if lacking:
        print(f"autograde: {lacking} protections are missing", file=sys.stderr)
    raise typer.Exit(2 if lacking else 0)


@app.command()
def feedback(
    assignment: Assignment = None, folder: Dir = Path("."), students: Students = None
) -> None:
    """Write the feedback pages. (nbgrader generate_feedback, plus a page for ungraded work)"""
    from autograde.classroom.feedback import write_feedback
    from autograde.classroom.reasons import read_verdicts

    folder = check_class_dir(folder)
    assignment = check_assignment(folder, assignment)
    looked_at = read_verdicts(folder, assignment)
    names = check_students(_names(students), looked_at, f"has no grade for {assignment}")
    pages = write_feedback(folder, assignment, names, watch=_pages_bar)
    print(f"{len(pages)} feedback pages, such as {pages[0]}")


@app.command()
def report(
    assignment: Assignment = None,
    folder: Dir = Path("."),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print plain JSON instead of a table.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="File for the page; default: report/ASSIGNMENT.html.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="The whole course on one page: report/course.html")
    ] = False,
) -> None:
    """Print the class table, and write the class page: plots, misconceptions, who needs you.

    With --all: every assignment on one page, who falls behind, recurring misconceptions.
    """
    from autograde.classroom.export import nothing_handed_in
    from autograde.classroom.report import as_table, read_rows

    folder = check_class_dir(folder)
    if everything:
        _report_course(folder, html, alone=not (assignment or as_json))
        return
    assignment = check_assignment(folder, assignment)
    rows = read_rows(folder, assignment)
    if as_json:
        print(json.dumps([row.to_json() for row in rows], indent=2, ensure_ascii=False))
    else:
        print_table(as_table(rows))
        for line in _class_needs(rows, nothing_handed_in(folder, assignment), folder):
            print(line)
    if html or not as_json:
        from autograde.classroom.page import write_page

        path = write_page(folder, assignment, html)
        if not as_json:
            print(f"wrote {path}")


def _class_needs(rows: list[Row], missing: list[str], folder: Path) -> Iterator[str]:
    """Students who handed in nothing, and how many answers a person has to grade."""
    if missing:
        yield f"{len(missing)} on the class list handed in nothing: {few(missing, most=20)}"
    if waiting := sum(len(row.to_grade_by_hand) for row in rows):
        yield (
            f"{'1 answer waits' if waiting == 1 else f'{waiting} answers wait'} to be graded by "
            f"hand: start jupyter lab in {folder}, then menu Nbgrader > Formgrader."
        )


def _report_course(folder: Path, html: Path | None, *, alone: bool) -> None:
    """Write the page of the whole course, and print what stands out."""
    from autograde.classroom.course_page import write_course_page

    if not alone:
        raise ValueError(
            "--all makes a page of the whole course: leave out the assignment and --json."
        )
    for sentence in write_course_page(folder, html):
        print(sentence)


@app.command()
def export(
    assignment: Assignment = None,
    folder: Dir = Path("."),
    to: Annotated[str, typer.Option(help="canvas, moodle or csv.")] = "csv",
    output: Annotated[
        Path | None, typer.Option(help="The output file; default: export/ASSIGNMENT-TO.csv.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 2 if any mark is not final.")
    ] = False,
) -> None:
    """Write the marks for import into Canvas or Moodle, or as a plain table (CSV).

    Marks that are not final are listed on stderr; the file is still written.
    """
    from autograde.classroom import export

    folder = check_class_dir(folder)
    assignment = check_assignment(folder, assignment)
    marks = export.read_marks(folder, assignment)
    path = export.write_marks(folder, assignment, to, output, marks=marks)
    late = [
        f"{shown(student)}: {words}"
        for found in (export.doubtful_times, export.stale_penalties)
        for student, words in found(folder, assignment).items()
    ]
    for line in (*export.open_questions(marks, to), *late):
        print(f"autograde: {line}", file=sys.stderr)
    print(f"wrote {path}")
    if strict and (late or not export.is_final(marks)):
        raise typer.Exit(2)


@app.command()
def exercises() -> None:
    """List the exercise bank."""
    from autograde import bank

    for entry in bank.catalogue().values():
        print(f"{entry.id:<22} {entry.title}")


@app.command()
def new_exercise(
    id: Annotated[str, typer.Argument(help="e.g. 03a.windows")],
    kind: Annotated[
        str,
        typer.Option(help="function, class, fix, number, choice, choices, order, tune or write."),
    ] = "function",
) -> None:
    """Write a small working exercise into the bank, to be replaced line by line."""
    from autograde import new

    print(f"wrote {new.new_exercise(id, kind)}")
    print(f"Next: # %% exercise {id} in a notebook's source, then make notebooks")


@app.command()
def new_notebook(name: Annotated[str, typer.Argument(help="e.g. 03c-precision")]) -> None:
    """Write a small working notebook source, to be replaced line by line."""
    from autograde import new

    print(f"wrote {new.new_notebook(name)}")
    print("Next: make notebooks")


def print_table(table: object) -> None:
    """Print a rich table, as wide as the terminal, or 140 columns without one."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else 140).print(table)


def _names(students: str | None) -> list[str] | None:
    if students is None:
        return None
    return [name.strip() for name in students.split(",") if name.strip()]


def _handed_in(folder: Path, assignment: str) -> list[str]:
    return [path.parent.name for path in folder.glob(f"submitted/*/{assignment}")]


def _unnamed(fault: OSError) -> str:
    """What was being done, where the system says no more than what went wrong; our own errors say
    it themselves."""
    if fault.errno is None:
        return str(fault)
    ours = Path(__file__).parent
    places = [
        f"{Path(frame.filename).relative_to(ours.parent)}, line {frame.lineno}, in {frame.name}()"
        for frame in traceback.extract_tb(fault.__traceback__)
        if Path(frame.filename).is_relative_to(ours)
    ]
    return f"{fault.strerror}, in {places[-1]}. Run it again; if that does not help, report this."


def main() -> None:
    """Entry point: a user's fault is one line on stderr and exit code 2."""
    try:
        app()
    except OSError as fault:
        words = f"{fault.filename}: {fault.strerror}" if fault.filename else _unnamed(fault)
        hint = ". Nothing else was done; fix that, then run it again." if fault.filename else ""
        print(f"autograde: {words}{hint}", file=sys.stderr)
        raise SystemExit(2) from None
    except NbgraderFault as fault:
        print(f"autograde: nbgrader failed: {fault}", file=sys.stderr)
        raise SystemExit(2) from None
    except (ClassDirError, UnknownIdError, ValueError) as fault:
        print(f"autograde: {fault}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
