"""Which cells of a submission no exercise needs: they are shown as handed in, not run.

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

import ast
import builtins
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autograde.classroom.cell_code import (
    SETTINGS,
    Code,
    Statement,
    dotted,
    exposed,
    read_code,
    surely_bound,
    with_own_names,
    words_of,
)
from autograde.classroom.cells import Cell, as_read, grade_id, is_check
from autograde.sources import check_calls

RANDOM, FILE = "<random numbers>", "<files>"
"""What cells share besides names."""
LIBRARIES = frozenset(
    {
        *("course", "autograde", "torch", "torchvision", "numpy", "matplotlib", "sklearn"),
        *("scipy", "pandas", "ipywidgets", "IPython"),
    }
)
"""Packages of which it is known by what words they set something for everybody; of others, and of
modules that stand beside the notebook, importing may do anything."""
KIT = frozenset({"autograde.student", "autograde.ask"})
"""Whose numbers are asked for is kept in the kit, not in a name."""
HARMLESS_MODULES = frozenset(
    {"math", "cmath", "itertools", "functools", "operator", "collections", "dataclasses", "typing"}
    | {"fractions", "decimal", "string", "re", "textwrap", "autograde"}
)
"""All that is called of them leaves the state of random numbers alone."""
HARMLESS = frozenset(
    {
        *("torch.no_grad", "torch.inference_mode", "torch.enable_grad", "torch.tensor"),
        *("torch.arange", "torch.zeros", "torch.ones", "torch.linspace", "torch.stack"),
        *("torch.device", "torch.nn.CrossEntropyLoss", "torch.nn.MSELoss"),
        *("course.engine.choose_device", "course.engine.devices.choose_device"),
        *("math.prod", "copy.deepcopy", "time.perf_counter"),
    }
)
METHODS = frozenset(
    {
        *("append", "extend", "items", "keys", "values", "get", "join", "split", "format", "strip"),
        *("item", "tolist", "sum", "mean", "abs", "sqrt", "exp", "log", "numel", "size", "dim"),
        *("norm", "round", "lower", "upper", "startswith", "endswith", "index", "count"),
    }
)
"""Methods that draw nothing, whatever has them."""
SETTLED = frozenset({"course.engine.choose_device", "torch.device"})
"""What these return cannot be changed."""
BUILTINS = frozenset(dir(builtins)) - {"open", "input", "exec", "eval", "breakpoint", "next"}
SEEDERS = frozenset(
    {"torch.manual_seed", "course.engine.seed_everything", "course.engine.seeding.seed_everything"}
)
RANDOM_STATE = frozenset({"torch.set_rng_state", "torch.cuda.set_rng_state", "torch.enable_grad"})


@dataclass(frozen=True)
class Place:
    """A code cell of a submission."""

    source: str
    released: bool
    """Ungraded, and handed in as it was given, where it was given."""
    asks: str = ""
    """Of a check: the name of what it asks for. Its source does not run."""

    @property
    def code(self) -> Code:
        return read_code(self.source)


def unneeded(cells: Sequence[Cell], released: Sequence[Sequence[str]], calls: dict) -> set[int]:
    """Cells that are not run: their places in the notebook.

    Args:
        cells: Of a submission, those with a grade_id as the assignment has them.
        released: grade_id and source of each code cell as everybody was given it, in order.
        calls: The check calls of the assignment, by grade_id.
    """
    code = [number for number, cell in enumerate(cells) if cell["cell_type"] == "code"]
    as_given = unchanged([cells[number] for number in code], released)
    places = [
        Place(
            source=_text(cells[number]),
            released=number in {code[place] for place in as_given},
            asks=calls[grade_id(cells[number])]["function"] if is_check(cells[number]) else "",
        )
        for number in code
    ]
    return {code[place] for place in not_needed(places)}


def exercises_alone(cells: Sequence[Cell]) -> list[Cell]:
    """A source notebook's prose, its exercises, and the other code that they need."""
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
            same = (n for n in range(at, end) if as_read(released[n][1]) == as_read(_text(cell)))
            if (place := next(same, None)) is not None:
                found.add(number)
                at = place + 1
    return found


def _text(cell: Cell) -> str:
    return "".join(cell["source"])


def not_needed(places: Sequence[Place]) -> set[int]:
    """Places whose cells no check needs; nothing where the student's own code looks around."""
    own = [place for place in places if not (place.released or place.asks)]
    if any(place.code.looks_around for place in own):
        return set()
    return _Slice(places).left_out()


class _Slice:
    """Follows names from the checks and the student's own code back to the cells they need."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.places = places
        codes = [Code() if place.asks else place.code for place in places]
        self.codes = with_own_names(codes, [place.asks for place in places if place.asks])
        self.names = _Names(self.codes)
        self.end = max((n for n, place in enumerate(places) if place.asks), default=-1)
        """Nothing is asked after the last check."""
        self.needed: dict[str, set[tuple[int, int]]] = {}
        """Names, and from where to where what happens to them matters."""
        self.bound = [
            set() if place.released or place.asks else surely_bound(place.code) for place in places
        ]
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
        for name in exposed(code):
            later = any(name in statement.later for statement in code.statements)
            self._need(name, self.end if later else number)
        for statement in code.statements:
            if self.names.lasts(statement):
                for name in statement.binds:
                    self._need(name, self.end)
        if self.names.may_draw(code):
            self._need_random_numbers(number)
        if code.may_read_files:
            self._need(FILE, self.end)

    def _need(self, name: str, until: int) -> None:
        since = self._surely_bound(name, until)
        for one in self.names.together_with(name):
            self.needed.setdefault(one, set()).add((since, until))

    def _surely_bound(self, name: str, until: int) -> int:
        """The last place where the student's own code surely binds a name that is read."""
        places = range(min(until, len(self.places) - 1), -1, -1)
        return next((n for n in places if name in self.bound[n]), -1)

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


class _Names:
    """What the names of a notebook stand for, all its cells together."""

    def __init__(self, cells: Iterable[Code]) -> None:
        self.statements = [statement for code in cells for statement in code.statements]
        self.bound: dict[str, list[Statement]] = {}
        for statement in self.statements:
            for name in statement.binds | statement.changes:
                self.bound.setdefault(name, []).append(statement)
        self.read = set().union(*(statement.reads for statement in self.statements))
        self.fixed: dict[str, bool] = {}
        self.harmless: dict[str, bool] = {}
        self.seeding: dict[str, bool] = {}
        self.groups = self._grouped()

    def is_fixed(self, name: str) -> bool:
        """Whether nobody who merely reads a name can change what it stands for.

        So it is of an import, a constant, and a function or class that keeps nothing from one call
        to the next.
        """
        if name not in self.fixed:
            self.fixed[name] = True  # while it is found out: it may call itself
            binders = self.bound.get(name, [])
            self.fixed[name] = all(self._binds_fixed(name, statement) for statement in binders)
        return self.fixed[name]

    def _binds_fixed(self, name: str, statement: Statement) -> bool:
        node = statement.node
        if name in statement.changes:
            return False
        if name in statement.imports:
            return True
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return self.keeps_nothing(statement)
        return isinstance(node, ast.Assign) and self._is_constant(node.value)

    def _is_constant(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Call):
            plain = [*node.args, *(keyword.value for keyword in node.keywords)]
            return self.full(dotted(node.func)) <= SETTLED and all(map(self._is_constant, plain))
        if isinstance(node, (ast.Tuple, ast.UnaryOp, ast.BinOp)):
            parts = (p for p in ast.iter_child_nodes(node) if isinstance(p, ast.expr))
            return all(map(self._is_constant, parts))
        return isinstance(node, ast.Constant)

    def keeps_nothing(self, statement: Statement) -> bool:
        """Whether a function or class of a notebook is the same after a call as before."""
        if statement.hides or statement.changes or self.lasts(statement):
            return False
        if not all(self.is_fixed(name) for name in statement.reads):
            return False
        inner = list(ast.walk(statement.node))
        defaults = [d for node in inner if isinstance(node, ast.arguments) for d in _values(node)]
        classes = [node for node in inner if isinstance(node, ast.ClassDef)]
        decorated = [d for node in inner for d in getattr(node, "decorator_list", ())]
        return (
            not any(isinstance(node, ast.Global) for node in inner)
            and all(map(self._is_constant, defaults))
            and all(map(self._is_plain_class, classes))
            and all(map(self._is_plain_decorator, decorated))
        )

    def _is_plain_class(self, node: ast.ClassDef) -> bool:
        assigned = [p for p in node.body if isinstance(p, (ast.Assign, ast.AnnAssign))]
        known = (ast.FunctionDef, ast.Pass, ast.Assign, ast.AnnAssign, ast.Expr)
        return (
            not node.keywords
            and all(isinstance(part, known) for part in node.body)
            and all(part.value is None or self._is_constant(part.value) for part in assigned)
        )

    def _is_plain_decorator(self, node: ast.expr) -> bool:
        name = dotted(node.func if isinstance(node, ast.Call) else node)
        plain = {"staticmethod", "property", "torch.no_grad", "torch.inference_mode"}
        return self.full(name) <= plain

    def full(self, name: str) -> set[str]:
        """A dotted name from its package on, by each import that binds its first part."""
        root, dot, rest = name.partition(".")
        binders = [s for s in self.bound.get(root, []) if root in s.binds]
        return {f"{s.imports.get(root, root)}{dot}{rest}" for s in binders} or {name}

    def is_import(self, name: str) -> bool:
        """Whether it stands for something imported, wherever it is bound."""
        binders = [s for s in self.bound.get(name, []) if name in s.binds]
        return bool(binders) and all(name in statement.imports for statement in binders)

    def lasts(self, statement: Statement) -> bool:
        """Whether it sets something for all that comes later, or makes a function that does."""
        called = statement.calls - statement.contexts
        named = set().union(*map(self.full, called))
        strangers = {m.partition(".")[0] for m in statement.modules} - LIBRARIES
        return (
            any(self.is_import(name) for name in statement.changes)
            or bool(strangers - sys.stdlib_module_names)
            or bool(statement.words & {"rcParams", "environ", "default_generator"})
            or any(self._sets(name) for name in named)
        )

    def _sets(self, name: str) -> bool:
        """Whether a function of a library, by its name, sets something."""
        if name in KIT or name in RANDOM_STATE:
            return name in KIT
        root, _, rest = name.partition(".")
        if not rest or root not in LIBRARIES | sys.stdlib_module_names:
            return False
        first = words_of(rest.rpartition(".")[2])[:1]
        return bool(SETTINGS & set(first))

    def sets_something(self, code: Code) -> bool:
        """Whether a released cell runs whoever needs it."""
        return code.looks_around or any(map(self.lasts, code.statements))

    def may_draw(self, code: Code) -> bool:
        """Whether running it may draw a random number, or set from where they come."""
        return any(not self._is_harmless(name) for name in code.union("calls_now"))

    def seeds(self, code: Code) -> bool:
        """Whether running it seeds, by itself or by a function of the notebook's own."""
        return any(self._seeds(name) for name in code.union("calls_now"))

    def _seeds(self, name: str) -> bool:
        if name not in self.seeding:
            self.seeding[name] = False  # one that calls itself is not looked into
            made = [s for s in self.bound.get(name, []) if isinstance(s.node, ast.FunctionDef)]
            self.seeding[name] = bool(self.full(name) & SEEDERS) or any(
                self._seeds(called) for statement in made for called in statement.calls
            )
        return self.seeding[name]

    def _is_harmless(self, name: str) -> bool:
        root, _, rest = name.partition(".")
        if root in self.bound and not rest and not self.is_import(root):
            return self._made_harmless(root)
        if root in BUILTINS and root not in self.bound:
            return not rest
        if all(map(_is_harmless, self.full(name))):
            return True
        return bool(rest) and not self.is_import(root) and rest.rpartition(".")[2] in METHODS

    def _made_harmless(self, name: str) -> bool:
        """Whether a function of the notebook's own calls nothing that may draw."""
        if name not in self.harmless:
            self.harmless[name] = False  # one that calls itself is not looked into
            binders = self.bound[name]
            self.harmless[name] = all(
                isinstance(binder.node, ast.FunctionDef)
                and all(map(self._is_harmless, binder.calls))
                for binder in binders
            )
        return self.harmless[name]

    def touched(self, code: Code, before: Iterable[Code]) -> set[str]:
        """What a cell would have bound, or might have changed, were it run.

        Args:
            code: The cell's.
            before: Of the released cells before it that run: what they import is there.
        """
        found = {name for name in code.union("names") & self.read if not self.is_fixed(name)}
        found |= code.union("binds") - self._imported_before(code, before)
        if self.may_draw(code):
            found.add(RANDOM)
        if code.may_write_files:
            found.add(FILE)
        return found

    def _imported_before(self, code: Code, before: Iterable[Code]) -> set[str]:
        made = {pair for one in before for s in one.statements for pair in s.imports.items()}
        own = {pair for statement in code.statements for pair in statement.imports.items()}
        return {name for name, _ in own & made if self.is_import(name)}

    def together_with(self, name: str) -> set[str]:
        """Names that may stand for the same object, or hold it."""
        return self.groups.get(name, {name})

    def _grouped(self) -> dict[str, set[str]]:
        groups: dict[str, set[str]] = {}
        for statement in self.statements:
            names = {name for name in statement.names & self.read if not self.is_fixed(name)}
            if len(names) > 1:
                joined = names.union(*(groups.get(name, ()) for name in names))
                groups |= dict.fromkeys(joined, joined)
        return groups


def _is_harmless(name: str) -> bool:
    """Whether a library's function draws no random number."""
    package, _, rest = name.partition(".")
    plain = package == "numpy" and not rest.startswith("random")
    return plain or name in HARMLESS or package in HARMLESS_MODULES


def _values(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *filter(None, arguments.kw_defaults)]
