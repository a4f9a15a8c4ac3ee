"""Which cells of a submission no exercise needs: they are not run, but shown as handed in.

    the released notebook     which ungraded code cells everybody was given, section by section
    the submission            which of these are handed in unchanged, at their place
    what checks ask for       the students' functions and values, and through them, name by name,
                              every cell that binds or may change what they read

Everything else is a cell that trains or shows for the reader. A name is never followed by halves:
two variables that stand in one statement may hold the same object, so who touches one may change
the other. What is no name is one here: the state of random numbers, and files. Whatever sets
something for all that comes later runs, as does all code of the student's own; where that looks
around without naming, everything runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from autograde.classroom.cell_code import (
    Code,
    exposed,
    read_code,
    surely_bound,
    with_own_names,
)
from autograde.classroom.cells import Cell, as_read, grade_id, is_check
from autograde.classroom.notebook_names import FILE, RANDOM, Names, imports_a_stranger
from autograde.sources import check_calls

MOST_CELLS, MOST_CODE = 500, 300_000
"""Code cells of a submission, and characters of its own code, that are read; the largest chapter's
solutions have 80 and 40,000. Of more every cell runs, so that reading stays a moment."""


@dataclass(frozen=True)
class Place:
    """A code cell of a submission."""

    source: str
    released: bool
    """Ungraded, and handed in as it was given, where it was given."""
    asks: str = ""
    """Of a check: the name of what it asks for. Its source does not run."""

    @cached_property
    def code(self) -> Code:
        """What its source does with names."""
        return read_code(self.source)


def unneeded(cells: Sequence[Cell], released: Sequence[Sequence[str]], calls: dict) -> set[int]:
    """Cells that are not run, by their position in the notebook.

    Args:
        cells: Of a submission, those with a grade_id as the assignment has them.
        released: grade_id and source of each code cell as everybody was given it, in order.
        calls: The check calls of the assignment, by grade_id.
    """
    code = [number for number, cell in enumerate(cells) if cell["cell_type"] == "code"]
    if len(code) > MOST_CELLS:
        return set()
    as_given = {code[at] for at in unchanged([cells[number] for number in code], released)}
    places = [
        Place(
            source=_text(cells[number]),
            released=number in as_given,
            asks=calls[grade_id(cells[number])]["function"] if is_check(cells[number]) else "",
        )
        for number in code
    ]
    return {code[place] for place in not_needed(places)}


def exercises_alone(cells: Sequence[Cell]) -> list[Cell]:
    """Keep a source notebook's prose, its exercises, and the other code that they need."""
    places, numbers = [], []
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            asks = check_calls(cell["source"])[-1].function if is_check(cell) else ""
            places.append(Place(cell["source"], released=not grade_id(cell), asks=asks))
            numbers.append(number)
    out = {numbers[place] for place in not_needed(places)}
    return [cell for number, cell in enumerate(cells) if number not in out]


def unchanged(cells: Sequence[Cell], released: Sequence[Sequence[str]]) -> set[int]:
    """Which ungraded code cells are as given: alike, in order, between the same graded cells."""
    found, at = set(), 0
    names = [name for name, _ in released]
    for number, cell in enumerate(cells):
        name = grade_id(cell)
        if name in names:
            at = max(at, names.index(name) + 1)
        elif not name:
            end = next((n for n in range(at, len(names)) if names[n]), len(names))
            source = as_read(_text(cell))
            same = (n for n in range(at, end) if as_read(released[n][1]) == source)
            if (place := next(same, None)) is not None:
                found.add(number)
                at = place + 1
    return found


def _text(cell: Cell) -> str:
    return "".join(cell["source"])


def not_needed(places: Sequence[Place]) -> set[int]:
    """Places whose cells no check needs; none where the student's own code cannot be followed."""
    own = [place for place in places if not (place.released or place.asks)]
    if sum(len(place.source) for place in own) > MOST_CODE or any(map(_cannot_be_followed, own)):
        return set()
    try:
        return _Slice(places).left_out()
    except RecursionError:  # functions that call each other, a thousand deep
        return set()


def _cannot_be_followed(place: Place) -> bool:
    """Whether it looks at names without naming them, or runs a file that came along."""
    return place.code.looks_around or any(map(imports_a_stranger, place.code.statements))


class _Slice:
    """Follows names from the checks and the student's own code back to the cells they need."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = places
        codes = [Code() if place.asks else place.code for place in places]
        self.codes = with_own_names(codes, [place.asks for place in places if place.asks])
        self.names = Names(self.codes)
        self.end = max((n for n, place in enumerate(places) if place.asks), default=-1)
        """Nothing is asked after the last check."""
        self.needed: dict[str, set[tuple[int, int]]] = {}
        """Names, and from where to where what happens to them matters."""
        self.bound: dict[str, list[int]] = {}
        """Where the student's own code binds a name before anything can go wrong."""
        for number, place in enumerate(places):
            if not (place.released or place.asks):
                for name in surely_bound(place.code):
                    self.bound.setdefault(name, []).append(number)
        self.run: set[int] = set()

    def left_out(self) -> set[int]:
        """The places that are not run."""
        for number, place in enumerate(self.places):
            if place.asks:
                self._need(place.asks, number)
            elif not place.released or self.names.sets_something(self.codes[number]):
                self._run(number)
        while more := [n for n in range(len(self.places)) if self._is_needed(n)]:
            for number in more:
                self._run(number)
        return {n for n, place in enumerate(self.places) if not place.asks} - self.run

    def _run(self, number: int) -> None:
        self.run.add(number)
        code = self.codes[number]
        later = code.union("later")
        for name in later:
            self._need(name, max(self.end, number), later=True)
        for name in exposed(code) - later:
            self._need(name, number)
        for statement in code.statements:
            if self.names.lasts(statement):
                for name in statement.binds:
                    self._need(name, self.end, later=True)
        if self.names.may_draw(code):
            self._need_random_numbers(number)
        if code.may_read_files:
            self._need(FILE, self.end, later=True)

    def _need(self, name: str, until: int, *, later: bool = False) -> None:
        """Note that a name is read at a place; later, in a body, it is at any place up to there."""
        since = -1 if later else self._surely_bound(name, until)
        self.needed.setdefault(self.names.one_of(name), set()).add((since, until))

    def _surely_bound(self, name: str, until: int) -> int:
        """The last place up to there where the student's own code surely binds a name."""
        return max((n for n in self.bound.get(name, ()) if n <= until), default=-1)

    def _need_random_numbers(self, number: int) -> None:
        """Of a released cell from the last seed on: without one its draws are anybody's guess."""
        if not self.places[number].released:
            self.needed.setdefault(RANDOM, set()).add((-1, number))
            return
        seeds = (n for n in range(number, -1, -1) if self.names.seeds(self.codes[n]))
        if (since := next(seeds, number)) < number:
            self.needed.setdefault(RANDOM, set()).add((since - 1, number))

    def _is_needed(self, number: int) -> bool:
        if number in self.run or self.places[number].asks:
            return False
        made = [self.codes[n] for n in sorted(self.run) if n < number and self.places[n].released]
        touched = self.names.touched(self.codes[number], made)
        spans = (span for name in touched for span in self.needed.get(name, ()))
        return any(since < number < until for since, until in spans)
