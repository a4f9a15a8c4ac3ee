"""What a cell's code binds, reads and changes, found from its syntax alone: nothing is run.

A notebook's cells share one set of names. A statement binds some (assignment, `def`, `import`),
reads some, at once or later in a function's body, and may change the objects behind all that it
names. What reaches further than names is told by words: settings of a library, files, and code that
looks at names without naming them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from autograde.classroom.cell_reader import (
    SCOPES,
    Statement,
    computed_when_made,
    is_literal,
    read_statement,
    targets_in,
    words_of,
)
from autograde.syntax import tree_of

MAX_SOURCE = 100_000
"""Characters of a cell that are read; a longer one is code that cannot be read."""
SHORT = 4000
"""Characters up to which a cell that was read is kept: a hundred times its size in memory."""

BY_NAME = frozenset(
    {
        *("globals", "locals", "vars", "dir", "exec", "eval", "compile", "get_ipython"),
        *("setattr", "delattr", "__import__", "__builtins__", "__loader__", "__spec__", "sys"),
    }
)
"""Names by which code may read or set a name without naming it."""
BY_MODULE = frozenset(
    {
        *("__main__", "builtins", "sys", "importlib", "inspect", "gc", "ctypes", "IPython"),
        *("pickle", "marshal", "dis", "traceback", "threading", "multiprocessing", "subprocess"),
        *("atexit", "signal", "linecache", "runpy", "code", "weakref", "_thread", "concurrent"),
    }
)
"""Modules by which it may, or by which it may run when no cell does."""
BY_ATTRIBUTE = frozenset(
    {
        *("__main__", "__dict__", "__builtins__", "__globals__", "__code__", "__closure__"),
        *("__subclasses__", "__class__", "__import__", "user_ns", "settrace", "setprofile"),
        *("_getframe", "f_globals", "f_locals", "f_back", "tb_frame", "gi_frame"),
    }
)
"""Attributes, or texts for getattr, by which it may."""
HISTORY = re.compile(r"_+|_\d+|_i+\d*|_[iod]h|In|Out|exit|quit")
"""Names that IPython binds by itself."""
READING = frozenset(
    {
        *("open", "load", "loads", "read", "exists", "glob", "rglob", "iterdir", "listdir"),
        *("walk", "scandir", "stat", "memmap", "fromfile", "loadtxt", "genfromtxt", "resume"),
    }
)
"""First words of what reads a file, or looks for one."""
FILE_MODULES = frozenset(
    {"os", "io", "pathlib", "shutil", "tempfile", "glob", "zipfile", "tarfile", "sqlite3", "shelve"}
)
WRITING = frozenset(
    {
        *("open", "path", "pathlib", "os", "io", "file", "files", "folder", "dir", "directory"),
        *("save", "savefig", "savez", "dump", "write", "export", "tempfile", "shutil", "mkdir"),
        *("checkpoint", "checkpoints", "csv", "unlink", "store", "memmap", "tofile", "sqlite3"),
        *("zipfile", "summarywriter", "tensorboard", "rename", "replace", "touch", "remove"),
    }
)
"""Words of names that stand where a file may be written."""


@dataclass(frozen=True)
class Code:
    """A cell's code; `readable` is False of what is no plain Python."""

    statements: tuple[Statement, ...] = ()
    readable: bool = True

    def union(self, what: str) -> set[str]:
        """One field of all statements together."""
        return set().union(*(getattr(statement, what) for statement in self.statements))

    @property
    def looks_around(self) -> bool:
        """Whether it may reach names that it does not name."""
        if not self.readable or self.union("words") & BY_ATTRIBUTE:
            return True
        if self.union("modules") & BY_MODULE or self.union("reads") & BY_NAME:
            return True
        asked = self.union("reads") - self.union("binds")
        return "*" in self.union("binds") or any(map(HISTORY.fullmatch, asked))

    @property
    def may_read_files(self) -> bool:
        """Whether what a file holds may matter to it."""
        names = {name.rpartition(".")[2] for name in self.union("calls")} - {"load_state_dict"}
        last = [words_of(name)[:1] for name in names]
        return (
            any(set(first) & READING for first in last)
            or any(s.modules & FILE_MODULES for s in self.statements if not s.imports)
            or bool(self.union("reads") & (FILE_MODULES | {"open", "Path"}))
        )

    @property
    def may_write_files(self) -> bool:
        """Whether a word of its names has to do with files."""
        return any(set(words_of(word)) & WRITING for word in self.union("words"))


def read_code(source: str) -> Code:
    """A cell's source as code; of short ones, which come again and again, what it was before."""
    if len(source) > MAX_SOURCE:
        return Code(readable=False)
    return _read_short(source) if len(source) <= SHORT else _read(source)


def _read(source: str) -> Code:
    try:
        return Code(tuple(map(read_statement, tree_of(source).body)))
    except SyntaxError:
        return Code(readable=False)


def surely_bound(code: Code) -> set[str]:
    """Names that the first statements bind, before any that could raise."""
    names: set[str] = set()
    for statement in code.statements:
        node = statement.node
        if isinstance(node, ast.Assign) and is_literal(node.value):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif (
            isinstance(node, ast.FunctionDef)
            and not statement.calls_now
            and not computed_when_made(node)
        ):
            names.add(node.name)
        elif not (isinstance(node, ast.Expr) and is_literal(node.value)):
            break
    return names


def exposed(code: Code) -> set[str]:
    """Names that a cell reads before it has bound them itself; in a function, at any time."""
    found: set[str] = set()
    bound: set[str] = set()
    for statement in code.statements:
        found |= statement.later | (statement.reads | statement.changes) - bound
        bound |= _always_bound(statement)
    return found


def _always_bound(statement: Statement) -> set[str]:
    """Names that a statement has bound unless it raised, and ended the cell."""
    node = statement.node
    if isinstance(node, ast.Assign):
        return set().union(*map(targets_in, node.targets))
    if isinstance(node, (ast.AnnAssign, ast.AugAssign)):
        return targets_in(node.target) if node.value else set()
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return set(statement.imports)
    return {node.name} if isinstance(node, (ast.FunctionDef, ast.ClassDef)) else set()


def with_own_names(cells: Sequence[Code], shared: Iterable[str]) -> list[Code]:
    """The cells, in which a name that every cell binds before reading it is each cell's own.

    Two figures are then no longer one because both are called `figure`.

    Args:
        cells: Of a notebook, all of them.
        shared: Names that are read from outside.
    """
    kept = set(shared).union(*map(exposed, cells))
    statements = [statement for code in cells for statement in code.statements]
    for statement in statements:
        if isinstance(statement.node, (*SCOPES, ast.Import, ast.ImportFrom)):
            kept |= statement.binds
    private = set().union(*(statement.binds for statement in statements)) - kept
    return [_renamed(code, number, private) for number, code in enumerate(cells)]


def _renamed(code: Code, number: int, private: set[str]) -> Code:
    def own(names: set[str]) -> set[str]:
        return {f"{name} in {number}" if name in private else name for name in names}

    return replace(
        code,
        statements=tuple(
            replace(s, binds=own(s.binds), reads=own(s.reads), changes=own(s.changes))
            for s in code.statements
        ),
    )


_read_short = lru_cache(maxsize=256)(_read)
