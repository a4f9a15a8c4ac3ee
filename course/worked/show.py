"""How a worked numeric looks: a text table in a terminal, an HTML table in a notebook."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from typing import Any

from course.worked.registry import Step, Worked

LEFT = "<td style='text-align:left'>"
"""A notebook sets the cells of a table to the right, as for numbers; these hold sentences."""
NOT_COMPARED = "so none of its numbers stands beside these."
"""What is said where the inputs are others than the lecture's."""


def as_text(worked: Worked) -> str:
    """Title, inputs, and one block a step, at most 100 columns wide."""
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
        printed = f"   lecture {short(step.printed)}: {step.verdict}" if has_printed(step) else ""
        yield f"  {step.what:<{width}}  {short(step.computed)}{printed}"
        if step.formula:
            yield f"  {'':<{width}}    = {step.formula}"
        if step.correction:
            yield from _wrapped("which is right", step.correction)


def _listed(inputs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {short(value)}" for name, value in inputs.items())


def _wrapped(label: str, text: str) -> list[str]:
    indent = " " * 5
    return textwrap.wrap(
        f"{label}: {text}", 100, initial_indent=indent, subsequent_indent=indent + "  "
    )


def as_html(worked: Worked) -> str:
    """The same as a table; everything escaped."""
    rows = "".join(
        f"<tr>{LEFT}{escape(step.what)}</td>{LEFT}{_code(step.formula)}</td>"
        f"{LEFT}{escape(short(step.computed))}</td>"
        f"{LEFT}{escape(short(step.printed)) if has_printed(step) else '–'}</td>"
        f"{LEFT}{escape(': '.join(filter(None, (step.verdict, step.correction))))}</td></tr>"
        for step in worked.steps
    )
    heads = "".join(
        f"<th style='text-align:left'>{head}</th>"
        for head in ("what", "formula", "computed", "lecture", "verdict")
    )
    note = f"<p><em>Given:</em> {escape(_listed(worked.inputs))}</p>" if worked.inputs else ""
    if worked.lecture_inputs:
        other = f"{_listed(worked.lecture_inputs)}; {NOT_COMPARED}"
        note += f"<p><em>The lecture has:</em> {escape(other)}</p>"
    note += (
        f"<p><em>Rebuilt:</em> {escape(worked.reconstructed)}</p>" if worked.reconstructed else ""
    )
    return (
        f"<h4>{escape(worked.entry.id)} · {escape(worked.entry.title)}</h4>"
        f"<p>{escape(worked.entry.source)}</p>{note}<table><thead><tr>{heads}</tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


HEADS = ("id", "title", "shown here", "lecture prints", "computed here", "verdict")


def overview(all_worked: Iterable[Worked]) -> Any:
    """One row a numeric as a rich Table: one telling step of each, and the verdict on all."""
    from rich.table import Table

    style = {"agrees": "green", "differs": "bold red", "lecture differs": "yellow"}
    table = Table(*HEADS)
    for worked in all_worked:
        table.add_row(*_row(worked), style=style.get(worked.verdict))
    return table


def as_markdown(all_worked: Iterable[Worked]) -> str:
    """The same rows as a Markdown table, for the README."""
    rows = [HEADS, ["---"] * len(HEADS), *map(_row, all_worked)]
    cells = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in cells)


def _row(worked: Worked) -> list[str]:
    step = telling_step(worked)
    lecture = short(step.printed, 5) if has_printed(step) else "–"
    computed = short(step.computed, 5)
    return [worked.entry.id, worked.entry.title, step.what, lecture, computed, worked.verdict]


def telling_step(worked: Worked) -> Step:
    """The step to show when only one can be: the last of the gravest verdict.

    Where the lecture prints nothing, the first: what follows it are consequences.
    """
    graves = [step for step in worked.steps if step.verdict == worked.verdict]
    return graves[0] if worked.verdict == "lecture silent" else graves[-1]


def _code(formula: str) -> str:
    return f"<code>{escape(formula)}</code>" if formula else ""


def has_printed(step: Step) -> bool:
    """Whether the lecture prints a value for this step."""
    return step.printed is not None


def short(value: Any, digits: int = 10) -> str:
    """A value in at most so many significant digits, thousands apart."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, float):
        return f"{value:.{digits}g}" if abs(value) < 1e6 else f"{value:.6g}"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(short(item, digits) for item in value) + "]"
    return str(value)
