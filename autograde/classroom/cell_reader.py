"""A statement of a cell by its syntax: what it binds, reads, changes and calls.

Names are those that a notebook's cells share. What a function, a class or a comprehension calls its
own stays out, and of the others it is known whether they are read at once or later, in a body.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
SCOPES = (*FUNCTIONS, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])")


@dataclass
class Statement:
    """A statement of a cell, at its outermost level."""

    node: ast.stmt
    binds: set[str] = field(default_factory=set)
    reads: set[str] = field(default_factory=set)
    """Names of the notebook that it reads, at once or later."""
    later: set[str] = field(default_factory=set)
    """Of these, those that a function's body reads."""
    changes: set[str] = field(default_factory=set)
    """Of these, those whose attribute or item it sets or deletes."""
    imports: dict[str, str] = field(default_factory=dict)
    """Names bound by an import, and what they are, e.g. `torch.nn`."""
    modules: set[str] = field(default_factory=set)
    """Modules that it imports, with their packages."""
    calls: set[str] = field(default_factory=set)
    """What it calls, dotted; an empty text for what has no name. In functions' bodies, too."""
    calls_now: set[str] = field(default_factory=set)
    """What it calls when it is run."""
    contexts: set[str] = field(default_factory=set)
    """What it calls as `with f():`, which is undone at its end."""
    words: set[str] = field(default_factory=set)
    """Names, attributes, keywords and short texts."""
    hides: bool = False
    """It sets an attribute of something that has no name, or of a class from inside."""

    @property
    def names(self) -> set[str]:
        """All names of the notebook that stand in it."""
        return self.binds | self.reads | self.changes


def read_statement(node: ast.stmt) -> Statement:
    """What a statement does with names."""
    statement = Statement(node)
    _Reader(statement).visit(node)
    return statement


def dotted(node: ast.AST) -> str:
    """`nn.init.normal_` of an expression that is that; what is called or indexed inside is left
    out, as is all of it where there is no name at the root."""
    names = []
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        elif isinstance(node, ast.Subscript):
            node = node.value
        else:
            return ""
    return ".".join([node.id, *reversed(names)])


class _Reader(ast.NodeVisitor):
    """Fills in a statement; knows which names are a function's own."""

    def __init__(self, statement: Statement) -> None:
        self.found = statement
        self.own: list[set[str]] = []
        """Names of the functions and comprehensions around the place, from the outside in."""
        self.later = 0
        """How many function bodies are around it."""
        self.in_class = False
        """Directly in a class's body, whose names nobody else sees."""

    def visit_Name(self, node: ast.Name) -> None:
        self.found.words.add(node.id)
        if isinstance(node.ctx, ast.Load):
            if not self._is_own(node.id):
                self.found.reads.add(node.id)
                if self.later:
                    self.found.later.add(node.id)
        elif not self.in_class:
            self._binds(node.id)

    def _is_own(self, name: str) -> bool:
        return any(name in names for names in self.own)

    def _binds(self, name: str | None) -> None:
        if name and not self._is_own(name):
            self.found.binds.add(name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.found.words.add(node.attr)
        self._changed(node)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._changed(node)
        self.generic_visit(node)

    def _changed(self, node: ast.Attribute | ast.Subscript) -> None:
        if isinstance(node.ctx, ast.Load):
            return
        root = dotted(node).partition(".")[0]
        if not root or root == "cls":
            self.found.hides = True
        elif not self._is_own(root):
            self.found.changes.add(root)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.visit_Name(ast.Name(node.target.id, ast.Load()))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = dotted(node.func)
        if not name and isinstance(node.func, ast.Attribute):
            name = f".{node.func.attr}"  # of something without a name
        if self._is_own(name.partition(".")[0]):
            name = f".{name}"  # of something local
        if name in ("setattr", "delattr") and node.args and self._sets_own(node.args[0]):
            node = ast.Call(ast.Constant(None), node.args, node.keywords)
        self.found.calls.add(name)
        if not self.later:
            self.found.calls_now.add(name)
        self.generic_visit(node)

    def _sets_own(self, target: ast.AST) -> bool:
        """Whether setattr is of something local to a function; else it may be of anything."""
        return self._is_own(dotted(target).partition(".")[0])

    def visit_withitem(self, node: ast.withitem) -> None:
        if isinstance(node.context_expr, ast.Call):
            self.found.contexts.add(dotted(node.context_expr.func))
        self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        self.found.words.add(node.arg or "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and len(node.value) <= 40:
            self.found.words.add(node.value)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            self._imported(alias.asname or root, alias.name if alias.asname else root)
            self._loads(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = "." * node.level + (node.module or "")
        self._loads(module)
        for alias in node.names:
            self._imported(alias.asname or alias.name, f"{module}.{alias.name}")
            self.found.words.add(alias.name)

    def _loads(self, module: str) -> None:
        if module == "importlib.metadata":  # which versions are there
            return
        self.found.words.update(module.split("."))
        parts = module.split(".")
        self.found.modules |= {".".join(parts[: n + 1]) for n in range(len(parts))}

    def _imported(self, name: str, what: str) -> None:
        if not self._is_own(name) and not self.in_class:
            self.found.binds.add(name)
            self.found.imports[name] = what

    def visit_Global(self, node: ast.Global) -> None:
        self.found.binds |= set(node.names)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        self._binds(node.name)
        self.generic_visit(node)

    def visit_MatchAs(self, node: ast.MatchAs) -> None:
        self._binds(node.name)
        self.generic_visit(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> None:
        self._binds(node.name)

    def visit_MatchMapping(self, node: ast.MatchMapping) -> None:
        self._binds(node.rest)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self.visit(node.iter)
        self.visit(node.target)
        self._with_own(targets_in(node.target), node.body)
        for part in node.orelse:
            self.visit(part)

    visit_AsyncFor = visit_For

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            self.visit(item)
        given = [item.optional_vars for item in node.items if item.optional_vars]
        self._with_own(set().union(*map(targets_in, given)), node.body)

    visit_AsyncWith = visit_With

    def _with_own(self, names: set[str], body: Iterable[ast.AST]) -> None:
        """Read a block that has been given its names by its first line."""
        self.own.append(names)
        for part in body:
            self.visit(part)
        self.own.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not self.in_class:
            self._binds(node.name)
        self._decorated(node)
        for outside in (*_defaults(node.args), *_notes(node)):
            self.visit(outside)
        self._inside(own_names(node), node.body, later=True)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        for outside in _defaults(node.args):
            self.visit(outside)
        self._inside(own_names(node), [node.body], later=True)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not self.in_class:
            self._binds(node.name)
        self._decorated(node)
        for outside in (*node.bases, *node.keywords):
            self.visit(outside)
        before, self.in_class = self.in_class, True
        for part in node.body:
            self.visit(part)
        self.in_class = before

    def _decorated(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            self.found.calls.add(dotted(called))
            self.found.calls_now.add(dotted(called))

    def _inside(self, own: set[str], body: Iterable[ast.AST], *, later: bool) -> None:
        before, self.in_class = self.in_class, False
        self.own.append(own)
        self.later += later
        for part in body:
            self.visit(part)
        self.later -= later
        self.own.pop()
        self.in_class = before

    def _comprehension(self, node: ast.ListComp | ast.DictComp) -> None:
        first = node.generators[0].iter
        self.visit(first)  # read outside: `[x for x in x]`
        parts = [part for one in node.generators for part in ast.iter_child_nodes(one)]
        shown = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        inside = [part for part in (*parts, *shown) if part is not first]
        self._inside(own_names(node) - _walruses(node), inside, later=False)

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension


def _defaults(arguments: ast.arguments) -> Iterator[ast.AST]:
    yield from arguments.defaults
    yield from filter(None, arguments.kw_defaults)


def _notes(node: ast.FunctionDef) -> Iterator[ast.AST]:
    """Annotations, which are computed when the function is made."""
    arguments = node.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    rest = filter(None, (arguments.vararg, arguments.kwarg))
    yield from filter(None, (node.returns, *(a.annotation for a in (*every, *rest))))


def own_names(scope: ast.AST) -> set[str]:
    """Names that are local to a function, a class's body or a comprehension."""
    names: set[str] = set()
    shared: set[str] = set()
    if isinstance(scope, FUNCTIONS):
        arguments = scope.args
        every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
        names |= {a.arg for a in (*every, *filter(None, (arguments.vararg, arguments.kwarg)))}
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Global):
            shared |= set(node.names)
        elif isinstance(node, SCOPES):
            names |= {getattr(node, "name", "")} - {""}
            continue
        elif isinstance(node, COMPREHENSIONS) and node is not scope:
            names |= _walruses(node)
            continue
        names |= set(_bound_by(node))
        waiting += ast.iter_child_nodes(node)
    return names - shared


def _bound_by(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, (ast.Import, ast.ImportFrom)):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)):
        yield from filter(None, [node.name])
    elif isinstance(node, ast.MatchMapping):
        yield from filter(None, [node.rest])


def _walruses(node: ast.AST) -> set[str]:
    return {one.target.id for one in ast.walk(node) if isinstance(one, ast.NamedExpr)}


def targets_in(node: ast.AST) -> set[str]:
    """Names that an assignment's left side binds; of `x[i] = ...` none."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return set().union(*map(targets_in, node.elts))
    if isinstance(node, ast.Starred):
        return targets_in(node.value)
    return {node.id} if isinstance(node, ast.Name) else set()


def is_literal(node: ast.AST) -> bool:
    """Whether an expression is a constant, or a list, tuple, set or dict of them."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp)):
        parts = (part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr))
        return all(map(is_literal, parts))
    return isinstance(node, ast.Constant)


def computed_when_made(node: ast.FunctionDef) -> list[ast.AST]:
    """What is computed when a function is made, apart from constants."""
    parts = (*node.decorator_list, *_defaults(node.args), *_notes(node))
    return [part for part in parts if not is_literal(part)]


def words_of(name: str) -> list[str]:
    """`savefig_all` and `saveAll` by their words, in small letters."""
    return [word.lower() for word in WORD.findall(name)]
