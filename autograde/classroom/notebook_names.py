"""What the names of a notebook stand for, all its cells together, as far as syntax tells.

A name is *fixed* if nobody who merely reads it can change what it stands for. All others may share
what they stand for with names that they ever stood in one statement with. Of what is called it is
told by name whether it sets something for everybody, and whether it may draw random numbers.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterable

from autograde.classroom.cell_code import Code
from autograde.classroom.cell_reader import Statement, dotted, words_of

RANDOM, FILE = "<random numbers>", "<files>"
"""What cells share besides names."""
SETTINGS = frozenset(
    {
        *("set", "use", "enable", "disable", "register", "patch", "install", "configure", "setup"),
        *("init", "rc", "rcdefaults", "style", "environ", "putenv", "rcparams", "follow", "hang"),
        *("filterwarnings", "simplefilter", "resetwarnings", "basicconfig", "switch", "ion"),
        *("destroy", "reset", "monkeypatch", "override", "share", "chdir", "add", "append"),
        *("ioff", "update", "insert", "extend", "clear", "pop", "remove"),
    }
)
"""First words of a library's functions that set something for everybody who comes later."""
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
"""Functions that draw nothing."""
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
DATA = re.compile("[A-Z][A-Z0-9_]+")
"""How a module calls data that it hands out, which whoever imports it may change."""
SEEDERS = frozenset(
    {"torch.manual_seed", "course.engine.seed_everything", "course.engine.seeding.seed_everything"}
)
"""What makes the random numbers that come after it the same in every run."""
RANDOM_STATE = frozenset({"torch.set_rng_state", "torch.cuda.set_rng_state", "torch.enable_grad"})
"""What by its first word would set something that lasts, and does not: random numbers are followed
by themselves, and a decorator's setting ends with the call."""


class Names:
    """What the names of a notebook stand for, all its cells together."""

    def __init__(self, cells: Iterable[Code]) -> None:
        self.statements = [statement for code in cells for statement in code.statements]
        self.bound: dict[str, list[Statement]] = {}
        for statement in self.statements:
            for name in statement.binds | statement.changes:
                self.bound.setdefault(name, []).append(statement)
        self.read = set().union(*(statement.reads for statement in self.statements))
        self.imported = {
            name
            for name, binders in self.bound.items()
            if all(name in one.imports for one in binders if name in one.binds)
        }
        self.kinds = {name: self._kinds(name) for name in self.bound}
        """What a name is imported as, or itself where it is otherwise bound."""
        self.loose = self._find_loose()
        """Names that are not fixed."""
        self.harmless: dict[str, bool] = {}
        self.seeding: dict[str, bool] = {}
        self.joined: dict[str, str] = {}
        self._join()

    def is_fixed(self, name: str) -> bool:
        """Whether nobody who merely reads a name can change what it stands for.

        So it is of an import, a constant, and a function or class that keeps nothing from one call
        to the next.
        """
        return name not in self.loose

    def _find_loose(self) -> set[str]:
        """Names that are not fixed, and with them every function that reads one."""
        readers: dict[str, set[str]] = {}
        for name, binders in self.bound.items():
            for read in set().union(*(one.reads for one in binders if _is_definition(one))):
                readers.setdefault(read, set()).add(name)
        waiting = [
            name
            for name, binders in self.bound.items()
            if not all(self._binds_fixed(name, statement) for statement in binders)
        ]
        found = set(waiting)
        while waiting:
            more = readers.get(waiting.pop(), set()) - found
            found |= more
            waiting += more
        return found

    def _binds_fixed(self, name: str, statement: Statement) -> bool:
        node = statement.node
        if name in statement.changes:
            return False
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return not DATA.fullmatch(name)
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
        """Whether a function or class is the same after a call as before, if what it reads is."""
        if statement.changes or self.lasts(statement):
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

    def _kinds(self, name: str) -> set[str]:
        return {one.imports.get(name, name) for one in self.bound[name] if name in one.binds}

    def full(self, name: str) -> set[str]:
        """A dotted name from its package on, by each import that binds its first part."""
        root, dot, rest = name.partition(".")
        return {f"{kind}{dot}{rest}" for kind in self.kinds.get(root, ())} or {name}

    def is_import(self, name: str) -> bool:
        """Whether it stands for something imported, wherever it is bound."""
        return bool(self.kinds.get(name)) and name in self.imported

    def lasts(self, statement: Statement) -> bool:
        """Whether it sets something for all that comes later, or makes a function that does."""
        called = statement.calls - statement.contexts
        named = set().union(*map(self.full, called))
        return (
            statement.hides
            or any(self.is_import(name) for name in statement.changes)
            or imports_a_stranger(statement)
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
        first, *_ = [*words_of(rest.rpartition(".")[2]), ""]
        return first in SETTINGS or first.startswith("set")

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
        found = code.union("names") & self.read & self.loose
        found |= code.union("binds") - self._imported_before(code, before)
        found = {self.one_of(name) for name in found}
        if self.may_draw(code):
            found.add(RANDOM)
        if code.may_write_files:
            found.add(FILE)
        return found

    def _imported_before(self, code: Code, before: Iterable[Code]) -> set[str]:
        made = {pair for one in before for s in one.statements for pair in s.imports.items()}
        own = {pair for statement in code.statements for pair in statement.imports.items()}
        return {name for name, _ in own & made if self.is_import(name)}

    def one_of(self, name: str) -> str:
        """The name that stands for all that may be, or hold, the same object as a name."""
        way = []
        while name != (other := self.joined.get(name, name)):
            way.append(name)
            name = other
        self.joined |= dict.fromkeys(way, name)
        return name

    def _join(self) -> None:
        for statement in self.statements:
            first, *others = sorted(statement.names & self.read & self.loose) or [""]
            for name in others:
                self.joined[self.one_of(name)] = self.one_of(first)


def _is_harmless(name: str) -> bool:
    """Whether a library's function draws no random number."""
    package, _, rest = name.partition(".")
    plain = package == "numpy" and not rest.startswith("random")
    return plain or name in HARMLESS or package in HARMLESS_MODULES


def _is_definition(statement: Statement) -> bool:
    return isinstance(statement.node, (ast.FunctionDef, ast.ClassDef))


def imports_a_stranger(statement: Statement) -> bool:
    """Whether it imports what is neither Python's nor a library that is known here."""
    packages = {module.partition(".")[0] for module in statement.modules}
    return bool(packages - LIBRARIES - sys.stdlib_module_names)


def _values(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *filter(None, arguments.kw_defaults)]
