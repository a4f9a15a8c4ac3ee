"""Docstrings are plain prose with `code` in it: nothing else of theirs is markup."""

import re

MARKUP = re.compile(r"(?<!\\)(\*|\||_(?!\w))")
NAME = re.compile(r"[\w.]+")
SECTIONS = ("Args:", "Returns:", "Raises:", "Yields:", "Attributes:", "Example:", "Examples:")


def plain(app, what, name, obj, options, lines):
    """Escape what would be markup, and make of an indented block the code that it is."""
    out, code = [], False
    for place, line in enumerate(lines):
        indented = line.startswith("    ")
        if indented and not code and place and not lines[place - 1].strip() and _after_prose(out):
            out += ["::", ""]
            code = True
        elif line.strip() and not indented:
            code = False
        literal = code or line.lstrip().startswith((">>>", "..."))
        out.append(line if literal else _escaped(line))
    lines[:] = out


def _after_prose(out):
    """The last line that says something begins at the margin and opens no section."""
    said = [line for line in out if line.strip()]
    return bool(said) and not said[-1].startswith(" ") and said[-1].strip() not in SECTIONS


def _escaped(line):
    """Prose escaped; `a.name` is left to become a link, other code made plain code."""
    pieces = line.split("`")
    pieces[::2] = [MARKUP.sub(r"\\\1", piece) for piece in pieces[::2]]
    if len(pieces) % 2 and all(pieces[1::2]):
        pieces[1::2] = [p if NAME.fullmatch(p) else f"`{p.strip()}`" for p in pieces[1::2]]
    return re.sub(r"(`[^`]+`)(?=\w)", r"\1\\ ", "`".join(pieces))


def setup(app):
    app.connect("autodoc-process-docstring", plain, priority=400)  # napoleon reads it after this
    return {"parallel_read_safe": True, "parallel_write_safe": True}
