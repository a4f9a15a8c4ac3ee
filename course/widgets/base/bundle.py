"""One ES module of a widget: plot.js and base.js, then its own widget.js, without comments.

anywidget takes a single module without relative imports, and an exported page must not load
anything. So the files are joined, each wrapped in its own function, so that names in different
files cannot clash. Under Node and in an editor they remain ordinary modules with imports.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

BASE = Path(__file__).parent
IMPORT = re.compile(r"^import (\{[^}]*\}) from \"\.{1,2}/(?:base/)?(\w+)\.js\";$", re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:const|class|function) (\w+)", re.MULTILINE)


@lru_cache
def bundle(widget_js: Path) -> str:
    """The module text for `_esm`; its default export is the widget's."""
    shared = [module("plot"), module("base")]
    own = _body(widget_js.read_text("utf-8"))
    assert own.count("export default ") == 1, f"{widget_js}: one `export default mount(...)`"
    own = own.replace("export default ", "return ", 1)
    return "\n".join([*shared, f"export default (() => {{\n{own}\n}})();"])


def module(stem: str) -> str:
    """A module of the base as a constant `$stem` that holds its exports."""
    text = (BASE / f"{stem}.js").read_text("utf-8")
    names = ", ".join(EXPORT.findall(text))
    return f"const ${stem} = (() => {{\n{_body(text)}\nreturn {{ {names} }};\n}})();"


@lru_cache
def style() -> str:
    """The style sheet of all widgets."""
    return _squeezed((BASE / "base.css").read_text("utf-8"))


def _body(text: str) -> str:
    """A module's text inside a function: what it imports comes from the constants before it."""
    text = IMPORT.sub(r"const \1 = $\2;", text)
    return _squeezed(re.sub(r"^export (?!default)", "", text, flags=re.MULTILINE))


def _squeezed(text: str) -> str:
    """Without indentation, empty lines, and comments that fill whole lines."""
    text = re.sub(r"^\s*/\*.*?\*/\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = (line.strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))
