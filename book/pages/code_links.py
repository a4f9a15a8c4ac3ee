"""Names in a notebook's code as links to the reference.

Python's own parser finds our names and the objects they refer to; the highlighted code on the page
is the same text with tags around its words, so a word is found by its position in the text.
"""

from __future__ import annotations

import ast
import html
import importlib
import re
import symtable
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import accumulate
from types import ModuleType
from typing import Any

from book.pages.api import PACKAGES, written_in

CELL = re.compile(
    r'(<div class="cell_input[^>]*>\s*<div class="highlight-[^>]*>\s*<div class="highlight"><pre>)'
    r"(.*?)(</pre>)",
    re.S,
)
"""The code of a cell, as Sphinx writes it."""
TAG = re.compile(r"(<[^>]*>)")
"""Pygments writes no other `<`, since those in the code are escaped."""
MAGIC = re.compile(r"^[ \t]*[%!].*$", re.M)
"""Lines that only IPython understands."""
Known = dict[str, tuple[str, Any]]
"""Our names that are known so far in a notebook's code: dotted name and object."""


def with_links(page: str, address: Callable[[str], str | None]) -> str:
    """A notebook's page with links on our names in its code.

    Args:
        page: HTML.
        address: The link to a dotted name; None if the reference does not have it.
    """
    known: Known = {}

    def linked_cell(found: re.Match[str]) -> str:
        code = html.unescape(TAG.sub("", found[2]))
        return found[1] + _linked(found[2], names_in(code, known), address) + found[3]

    return CELL.sub(linked_cell, page)


def _linked(
    highlighted: str, names: dict[tuple[int, int], str], address: Callable[[str], str | None]
) -> str:
    pieces, end = TAG.split(highlighted), 0
    for number, piece in enumerate(pieces):
        if piece.startswith("<"):
            continue
        start, end = end, end + len(html.unescape(piece))
        name = names.get((start, end))
        if name is not None and (link := address(name)):
            pieces[number] = f'<a class="api" href="{html.escape(link)}" title="{name}">{piece}</a>'
    return "".join(pieces)


def names_in(code: str, known: Known) -> dict[tuple[int, int], str]:
    """Our names in a cell: (start, end) in its text, and the dotted name.

    A name that the cell binds itself is not linked there, nor afterwards if it is bound for the
    whole notebook.

    Args:
        code: The cell's text. If it is not valid Python (yet), it has no names.
        known: The imports of the cells above; this cell's imports are added.
    """
    code = MAGIC.sub(lambda line: "#" * len(line[0]), code)
    try:
        tree, table = ast.parse(code), symtable.symtable(code, "cell", "exec")
    except SyntaxError:
        return {}
    for name in {s.get_name() for s in table.get_symbols() if s.is_assigned()} & set(known):
        del known[name]
    imports = [one for node in ast.walk(tree) for one in _imported(node)]
    known |= {name: target for _, name, target in imports if name}
    own = set(_bound(tree))
    here = {name: target for name, target in known.items() if name not in own}
    used = ((node, _meant(node, here)) for node in ast.walk(tree))
    places = _Places(code)
    return dict(
        [(places.of_import(node, target[0]), target[0]) for node, _, target in imports]
        + [(places.of_use(node), target[0]) for node, target in used if target]
    )


class _Places:
    """From the parser's lines, and bytes within them, to offsets in the text."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.lines = code.splitlines(keepends=True)
        self.starts = [0, *accumulate(map(len, self.lines))]

    def at(self, line: int, byte: int) -> int:
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:byte].decode())

    def of_import(self, node: Any, dotted: str) -> tuple[int, int]:
        """The module's name behind `from`, or what is imported."""
        start = self.at(node.lineno, node.col_offset)
        word = dotted if isinstance(node, ast.ImportFrom) else node.name
        start = self.code.index(word, start)
        return start, start + len(word)

    def of_use(self, node: Any) -> tuple[int, int]:
        """The name, or what stands behind the last dot."""
        end = self.at(node.end_lineno, node.end_col_offset)
        return end - len(node.id if isinstance(node, ast.Name) else node.attr), end


def _imported(node: ast.AST) -> Iterator[tuple[ast.AST, str, tuple[str, Any]]]:
    """(node, name that it binds, what it is) of imports of ours; of `from` also its module."""
    if isinstance(node, ast.ImportFrom) and not node.level and _ours(node.module or ""):
        module = importlib.import_module(node.module)
        yield node, "", (node.module, module)
        for alias in node.names:
            if target := _given(module, alias.name):
                yield alias, alias.asname or alias.name, target
    if isinstance(node, ast.Import):
        for alias in filter(lambda alias: _ours(alias.name), node.names):
            module = importlib.import_module(alias.name)
            top = importlib.import_module(alias.name.partition(".")[0])
            bound = (alias.name, module) if alias.asname else (top.__name__, top)
            yield alias, alias.asname or top.__name__, bound


def _ours(module: str) -> bool:
    return module.partition(".")[0] in PACKAGES


def _given(module: ModuleType, name: str) -> tuple[str, Any] | None:
    """What a module of ours gives as `name`: a module, or where a function or class is written."""
    value = getattr(module, name, None)
    if value is None and hasattr(module, "__path__") and find_spec(f"{module.__name__}.{name}"):
        value = importlib.import_module(f"{module.__name__}.{name}")
    if value is None:
        return None
    if isinstance(value, ModuleType):
        return (value.__name__, value) if _ours(value.__name__) else None
    return written_in(module, name) or f"{module.__name__}.{name}", value


def _meant(node: ast.AST, known: Known) -> tuple[str, Any] | None:
    """What a name, or a name of a module with a dot before it, stands for."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        return known.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _meant(node.value, known)):
        return _given(owner[1], node.attr) if isinstance(owner[1], ModuleType) else None
    return None


def _bound(tree: ast.AST) -> Iterator[str]:
    """Names that the code binds other than by an import: also arguments, and inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
