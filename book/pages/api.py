"""The reference: one page per module of `course` and `autograde`, from its docstrings."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from book.evidence import ROOT
from course.ledger.homes import module_at

PACKAGES = ("course", "autograde")
LEFT_OUT = ("autograde/bank/", "autograde/skeletons/", "autograde/classroom/example/")
"""Solutions of exercises and their skeletons, which nobody imports."""


def modules() -> Iterator[tuple[str, Path]]:
    """Pairs (dotted name, file) for all modules, packages first."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            shown = path.relative_to(ROOT).as_posix()
            if shown.startswith(LEFT_OUT) and not shown.endswith("bank/__init__.py"):
                continue
            if path.stem == "__main__":
                continue
            yield module_at(shown), path


def api_pages(whole: tuple[str, ...] = PACKAGES) -> Iterator[tuple[str, str]]:
    """Pairs (file, reStructuredText) for all modules and their index.

    Args:
        whole: Prefixes of the modules whose members are shown; the others are only named.
    """
    listed: dict[str, list[tuple[str, str]]] = {}
    for name, path in modules():
        line = (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").partition("\n")[0]
        listed.setdefault(_room(name), []).append((name, line))
        yield f"api/{name}.rst", _page(name, path, members=name.startswith(whole))
    yield "api/index.rst", _index(listed)


def _room(name: str) -> str:
    """`course.engine.step` is in the room `course.engine`, `course.cli` in `course`."""
    names = name.split(".")
    inside = (ROOT / names[0] / names[1]).is_dir() if len(names) > 1 else False
    return ".".join(names[: 2 if inside else 1])


def _page(name: str, path: Path, *, members: bool) -> str:
    """A module's page; what a package only re-exports is on the page of its own module."""
    lines = [f".. automodule:: {name}", "   :members:", "   :member-order: bysource"]
    if not members:
        lines = []
    elif path.stem == "__init__":
        inside = sorted(other.stem for other in path.parent.iterdir() if other != path)
        lines += ["   :ignore-module-all:", f"   :exclude-members: {', '.join(inside)}"]
        lines += _handed_on(name)
    file = path.relative_to(ROOT).as_posix()
    return "\n".join([":orphan:", "", name, "=" * len(name), "", f"``{file}``", "", *lines, ""])


def _handed_on(package: str) -> list[str]:
    """Links to what a package re-exports."""
    module = importlib.import_module(package)
    names = [name for name in getattr(module, "__all__", ()) if written_in(module, name)]
    if not names:
        return []
    links = [f"* :py:obj:`{name} <{written_in(module, name)}>`" for name in names]
    return ["", "Gives", "", *links]


def written_in(module: Any, name: str) -> str:
    """The dotted name of a module's attribute `name`; empty if it is not ours.

    Only functions and classes of ours have one.
    """
    found = getattr(module, name, None)
    home = getattr(found, "__module__", "") or ""
    own = home.partition(".")[0] in PACKAGES and home != module.__name__
    return f"{home}.{found.__qualname__}" if own and hasattr(found, "__qualname__") else ""


def _index(listed: dict[str, list[tuple[str, str]]]) -> str:
    lines = ["Reference", "=========", ""]
    for room, inside in listed.items():
        lines += [room, "-" * len(room), ""]
        for name, line in inside:
            lines += [f"* :doc:`/api/{name}`: {_plain(line)}"]
        lines.append("")
    return "\n".join(lines)


def _plain(line: str) -> str:
    """A line in which nothing is markup."""
    return "".join(f"\\{letter}" if letter in "\\*|_" else letter for letter in line)
