"""Docstrings are plain prose with `code` in it: nothing else of theirs is markup."""

import re

MARKUP = re.compile(r"(?<!\\)(\*|\||_(?!\w))")
NAME = re.compile(r"[\w.]+")
OURS = ("course", "autograde")
SECTIONS = ("Args:", "Returns:", "Raises:", "Yields:", "Attributes:", "Example:", "Examples:")


def plain(app, what, name, obj, options, lines):
    """Escape what would be markup, and make of an indented block the code that it is."""
    markup = any(">`_" in line for line in lines)  # a link of reStructuredText: none of ours
    if markup or (lines and what in ("attribute", "data") and lines[0] in _of_the_value(obj)):
        lines.clear()  # torch says so of its class; nothing is written of this attribute
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


def _of_the_value(obj):
    """First lines of what others wrote about a value: its class's docstring, or its own."""
    others = (one for one in (obj, type(obj)) if not _module_of(one).startswith(OURS))
    texts = [one.__doc__ for one in others if isinstance(one.__doc__, str)]
    return [text.strip().split("\n")[0] for text in texts]


def _module_of(one):
    return str(getattr(one, "__module__", ""))


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
