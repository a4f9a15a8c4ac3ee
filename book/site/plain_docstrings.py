"""The reference shows what our files contain: docstrings as plain prose, signatures, values.

In docstrings only `code` is markup. Anything specific to the machine that built the book, such as a
memory address or a folder, is left out.
"""

import re

from sphinx.addnodes import desc_annotation

MARKUP = re.compile(r"(?<!\\)(\*|\||_(?!\w))")
NAME = re.compile(r"[\w.]+")
OURS = ("course", "autograde")
SHOWN = (
    (re.compile(r"(?:~?\w+\.)?Annotated\[(.*?), <typer\.[^>]*>\]"), r"\1"),
    (re.compile(r"PosixPath\('(?:/[^']*/)?([^']*)'\)"), r"Path('\1')"),
)
PLACE = re.compile(r" at 0x[0-9a-f]+|'/")
OWN = ("module", "property")
"""Written where they are shown; everything else may be another's under a name of ours."""
SECTIONS = ("Args:", "Returns:", "Raises:", "Yields:", "Attributes:", "Example:", "Examples:")


def plain(app, what, name, obj, options, lines):
    """Escape what would be markup, and turn indented blocks into code blocks."""
    if lines and what not in OWN and lines[0] in _of_others(obj):
        lines.clear()  # what torch says of `F.cross_entropy` stands on torch's pages
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


def _of_others(obj):
    """First lines of what others wrote about a function, class or value that has a name of ours."""
    others = (one for one in (obj, type(obj)) if not _module_of(one).startswith(OURS))
    texts = [one.__doc__ for one in others if isinstance(one.__doc__, str)]
    return [text.strip().split("\n")[0] for text in texts]


def _module_of(one):
    return str(getattr(one, "__module__", ""))


def signed_plainly(app, what, name, obj, options, signature, returns):
    """A signature without typer's annotations and without folders of this machine."""
    for written, shown in SHOWN:
        signature = signature and written.sub(shown, signature)
    return signature, returns


def without_places(app, doctree):
    """Hide values that contain a memory address or a folder of this machine."""
    for value in list(doctree.findall(desc_annotation)):
        if PLACE.search(value.astext()):
            value.parent.remove(value)


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
    app.connect("autodoc-process-signature", signed_plainly)
    app.connect("doctree-read", without_places)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
