"""How a worked number is shown: a text table in a terminal, an HTML table in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING, Any

from course.ledger import same_place
from course.pages import page, verdict_cell
from course.report import markdown_table, short, wrapped
from course.tables import Markup, code, folded, html_table
from course.view import StudentView, view

if TYPE_CHECKING:
    from course.worked.step import Step, Worked

EXACT = 10
"""Digits of a step's values, which a reader may want to check by hand."""
LONG = 60
"""Characters of a value that a student's table shows before it is expanded."""
NOT_COMPARED = "so its numbers are not compared with these."
"""The remark shown if the inputs differ from the lecture's."""


def as_text(worked: Worked) -> str:
    """Title, inputs, and one block per step, at most 100 columns wide."""
    return "\n".join(_text_lines(worked))


def _text_lines(worked: Worked) -> Iterator[str]:
    yield f"{worked.entry.id}  {worked.entry.title}: {worked.verdict}"
    yield f"     {worked.entry.source}"
    yield from _wrapped("inputs", _listed(worked.inputs))
    if worked.lecture_inputs:
        yield from _wrapped("the lecture has", f"{_listed(worked.lecture_inputs)}; {NOT_COMPARED}")
    if worked.reconstructed:
        yield from _wrapped("rebuilt", worked.reconstructed)
    width = max(len(step.what) for step in worked.steps)
    for step in worked.steps:
        yield f"  {step.what:<{width}}  {short(step.computed, EXACT)}{_from_the_lecture(step)}"
        if step.formula:
            yield f"  {'':<{width}}    = {step.formula}"
        if step.correction:
            yield from _wrapped("which is right", step.correction)
    if others := same_place(worked.entry.id):
        yield from _wrapped("in the same place", ", ".join(others))
    yield from _wrapped("computed by", worked.code)


def _from_the_lecture(step: Step) -> str:
    if has_printed(step):
        words = f" ({step.as_printed})" if step.as_printed else ""
        return f"   printed {short(step.printed, EXACT)}{words}: {step.verdict}"
    return f"   rebuilt {short(step.rebuilt, EXACT)}" if step.rebuilt is not None else ""


def _listed(inputs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {short(value, EXACT)}" for name, value in inputs.items())


def _wrapped(label: str, text: str) -> list[str]:
    return wrapped(f"{label}: {text}", start=" " * 5)


def as_html(worked: Worked) -> str:
    """The same as a table, for a reader or for a student (`course.view`)."""
    head = f"<h4>{escape(worked.entry.id)} · {escape(worked.entry.title)}</h4>"
    given = f"<p><em>Given:</em> {escape(_listed(worked.inputs))}</p>" if worked.inputs else ""
    if worked.lecture_inputs:
        other = f"{_listed(worked.lecture_inputs)}; {NOT_COMPARED}"
        given += f"<p><em>The lecture has:</em> {escape(other)}</p>"
    student = view()
    if student is not None:
        return head + given + _students_table(worked, student)
    rebuilt = f"<p><em>Rebuilt:</em> {escape(worked.reconstructed)}</p>"
    rows = (
        (
            step.what,
            code(step.formula),
            short(step.computed, EXACT),
            _printed_or_rebuilt(step),
            ": ".join(filter(None, (step.verdict, step.correction))),
        )
        for step in worked.steps
    )
    return (
        f"{head}<p>{escape(worked.entry.source)}</p>{given}"
        f"{rebuilt if worked.reconstructed else ''}"
        f"{html_table(('what', 'formula', 'computed', 'lecture', 'verdict'), rows)}"
    )


def _printed_or_rebuilt(step: Step) -> str:
    if has_printed(step):
        return step.as_printed or short(step.printed, EXACT)
    return "–" if step.rebuilt is None else f"{short(step.rebuilt, EXACT)} (rebuilt)"


def _students_table(worked: Worked, student: StudentView) -> str:
    """Four digits, provenance folded; the numbers are hidden until the student has made a guess."""
    compared = any(has_printed(step) for step in worked.steps)
    heads = ("what", "formula", "computed", *(("lecture",) if compared else ()))
    rows = [
        (step.what, code(step.formula), _rounded(step.computed), _lectures(step))[: len(heads)]
        for step in worked.steps
    ]
    shown = html_table(heads, rows)
    if question := student.curtain(worked):
        covered = html_table(("what", "formula"), (row[:2] for row in rows))
        return f"{covered}<p>{escape(question)}</p>{_provenance(worked)}"
    said = student.afterword(worked)
    return f"{shown}{f'<p>{escape(said)}</p>' if said else ''}{_provenance(worked)}"


def _rounded(value: Any) -> Markup:
    """Four digits, all of them on hover; a long list is folded."""
    text, exact = short(value), short(value, EXACT)
    if len(text) > LONG:
        return folded(f"{text[:LONG]} …", exact)
    return Markup(escape(text) if text == exact else f'<span title="{exact}">{text}</span>')


def _lectures(step: Step) -> Markup:
    """The lecture's value, and the explanation if it is wrong."""
    if not has_printed(step):
        return Markup("")
    return Markup(f"{_rounded(step.printed)}{folded('which is right?', step.correction)}")


def _provenance(worked: Worked) -> Markup:
    """Where the numbers come from, in a folded section."""
    said = [f"{worked.entry.source}."]
    if worked.reconstructed:
        said.append(f"Rebuilt: {worked.reconstructed}")
    return folded("Where the numbers come from", " ".join(said))


HEADS = ("id", "title", "shown here", "the lecture has", "computed here", "verdict")
GROUPS = {
    "printed": "Numbers that the sources print, so that you can look them up.",
    "rebuilt": "Numbers that are missing from the sources' text, rebuilt from what is left.",
    "derived": "Numbers that the sources ask for or imply, computed here.",
}
"""The order of the overview: first the numbers that a reader can find in the lecture."""


def grouped(all_worked: Iterable[Worked]) -> dict[str, list[Worked]]:
    """The worked numbers, grouped by the provenance of the step that is shown for each."""
    found: dict[str, list[Worked]] = {group: [] for group in GROUPS}
    for worked in all_worked:
        found[telling_step(worked).provenance].append(worked)
    return found


def overview(all_worked: Iterable[Worked]) -> Any:
    """A rich Table, one row per worked number: its telling step, and the verdict on all steps."""
    from rich.table import Table

    style = {"agrees": "green", "differs": "bold red", "lecture differs": "yellow"}
    table = Table(*HEADS)
    for group, members in grouped(all_worked).items():
        table.add_section()
        table.add_row("", f"[bold]{GROUPS[group]}[/bold]")
        for worked in members:
            table.add_row(*_row(worked), style=style.get(worked.verdict))
    return table


def as_markdown(all_worked: Iterable[Worked]) -> str:
    """The same rows as Markdown tables, for docs/worked-numbers.md."""
    parts = []
    for group, members in grouped(all_worked).items():
        parts += [GROUPS[group], "", markdown_table(HEADS, map(_row, members)), ""]
    return "\n".join(parts).rstrip()


def as_page(all_worked: Iterable[Worked]) -> str:
    """All of them as one offline HTML page, each with its steps in a folded section."""
    body = ""
    for group, members in grouped(all_worked).items():
        rows = "".join(
            f"<tr id='{worked.entry.id}'><td>{worked.entry.id}</td>{verdict_cell(worked.verdict)}"
            f"<td>{escape(worked.entry.title)}<details><summary>steps</summary>{as_html(worked)}"
            f"<p>Computed by <code>{escape(worked.code)}</code></p></details></td>"
            + "".join(f"<td>{escape(cell)}</td>" for cell in _row(worked)[2:5])
            + "</tr>"
            for worked in members
        )
        heads = "".join(f"<th>{head}</th>" for head in ("id", "verdict", *HEADS[1:5]))
        body += (
            f"<h2>{escape(GROUPS[group])}</h2><table class='rows'><thead><tr>{heads}</tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )
    return page("The lecture's numbers, recomputed", body)


def _row(worked: Worked) -> list[str]:
    step = telling_step(worked)
    lecture = step.as_printed or short(step.printed if has_printed(step) else step.rebuilt, 5)
    computed = short(step.computed, 5)
    return [worked.entry.id, worked.entry.title, step.what, lecture, computed, worked.verdict]


def telling_step(worked: Worked) -> Step:
    """The step to show if there is room for only one.

    The last step with the gravest verdict among those that the lecture prints. If it prints none,
    the step that the example names as the one that matters, else the first.
    """
    graves = [step for step in worked.steps if step.verdict == worked.verdict]
    if worked.verdict != "lecture silent":
        return graves[-1]
    return next((step for step in graves if step.what == worked.tells), graves[0])


def has_printed(step: Step) -> bool:
    """Whether the lecture prints a value for this step."""
    return step.printed is not None
