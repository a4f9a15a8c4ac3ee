"""Make a student's notebook harmless before anybody opens it: nothing in it runs or is fetched.

    Markdown      tags, links and pictures that a browser would act on: written so that it won't
    outputs       text, tables, pictures; HTML through nh3; scripts, widgets, other types left out
    attachments   pictures; names and metadata: what nbgrader needs, in letters it expects
    pictures      none with so many pixels that it fills a browser's memory
    headings      small: the large ones are the assignment's, and tell of points

formgrader, JupyterLab and nbconvert read Markdown each in their own way, so it isn't parsed here:
what could begin something active in any of them is broken by a blank, wherever it stands. What
the reader sees is nearly what was typed; what was handed in is kept as text (`files_beside`).
"""

from __future__ import annotations

import base64
import copy
import html
import os
import re
from collections.abc import Callable, Container, Iterable
from itertools import count
from pathlib import Path
from typing import Any

from autograde.classroom.cells import Cell, grade_id, marked
from autograde.classroom.pictures import is_too_large
from autograde.classroom.safe_html import sanitize

ORIGINAL = "as-handed-in.txt"
"""The notebook as it came, as text, in the folder where the cleaned one lies."""
PLAIN_TYPES = ("text/plain", "text/html", "text/markdown", "text/latex")
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
HARMLESS = frozenset(
    {
        *(".txt", ".log", ".csv", ".tsv", ".dat", ".png", ".jpg", ".jpeg", ".gif", ".webp"),
        *(".npy", ".npz", ".pt"),
    }
)
"""Files that keep their names: text, tables, pictures, and arrays that only a program opens.

Anything else may be run, rendered or taken for a setting by a browser, Jupyter, Python or a desktop
that finds it: which they are grows with every version, so those that do nothing are listed.
Markdown is none: a button in JupyterLab's preview of it runs a command."""
MAX_STEM = 240
"""Bytes of a file's name to which .txt is added."""
MAX_NAMED = 40
"""Things taken out that are named one by one."""
MAX_WORDS = 500_000
"""Characters of any other text that is shown."""
MAX_HTML = 2 * 2**20
"""Characters of one HTML output that is shown."""

# Each pattern below takes time in proportion to a text's length, whatever the text: a run that
# could be read again from each of its places is read once (`*+`), or begins where nothing like it
# stands before it.
NOT_INLINE = r"(?!/?(?:b|i|em|strong|sub|sup|u|s|del|ins|kbd|code|mark|small|br|hr)\s*/?>)"
TAG = re.compile(rf"<(?=[A-Za-z/!?]){NOT_INLINE}")
"""What begins a tag, a comment, an autolink; of tags without attributes a few are let through."""
KNOWN_TAG = re.compile(r"</?[a-z][a-z0-9-]*[\s/>]|<[!?]|<[a-z][a-z0-9+.-]*:", re.IGNORECASE)
OWN_PICTURE = re.compile(
    r"<img\b[^<>]{0,300}?\bsrc=[\"']?attachment:([\w.-]{1,200}+)[\"']?+[^<>]{0,300}+>",
    re.IGNORECASE,
)
"""As JupyterLab users write a picture of another size."""
PICTURE = re.compile(
    r"!\[(?![^\[\]\\<>]*\]\((?:attachment:(?P<name>[\w.-]+)"
    r"|data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+)\))"
)
ATTACHED = re.compile(r"!\[(?=[^\[\]\\<>]*\]\(attachment:([\w.-]+)\))")
SAFE_URL = r"(?:https?://|mailto:)[\w\-.~:/?#@!$'*+,;=%&()]*"
DESTINATION = re.compile(
    rf"\]\((?!{SAFE_URL}(?:\s+\"[^\"<>\\]*\")?\)|#[\w.-]*\)|attachment:[\w.-]+\)"
    r"|data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+\))"
)
DEFINITION = re.compile(rf"\]:(?!\s*{SAFE_URL}\s*$)", re.MULTILINE)
WITH_SCHEME = re.compile(r"\s*+<?\s*+([a-z][a-z0-9+.\s-]{1,30})(?::|&)", re.IGNORECASE)
FENCE = re.compile(r"(?<![`~])([`~]{3,}+[ \t]*+)(mermaid\w*)", re.IGNORECASE)
REFERENCE = re.compile(r"&(?=#0*(\d{1,7})|#[xX]0*([0-9a-fA-F]{1,6})|([A-Za-z]{2,31});)")
TEX = re.compile(
    r"\\(?=(?:href|url|require|unicode|cssId|class|style|data|html[A-Z]\w*|includegraphics|input"
    r"|include|toggle|texttip|mathtip|tooltip|mmlToken|bbox|csname|def|gdef|edef|xdef|let|futurelet"
    r"|newcommand|renewcommand|providecommand|newenvironment|renewenvironment|DeclareMathOperator"
    r"|Newextarrow|catcode|write|immediate|openout|read|special)(?![a-zA-Z]))"
)
"""TeX by which MathJax makes links, styles, elements and commands."""
CONTROL = re.compile(r"\x1b(?!\[[0-9;]*m)|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f\x80-\x9f]")
"""Everything that moves a terminal's cursor or makes links; colours stay."""
OSC = re.compile(r"\x1b[\]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|\x9d[^\x07\x1b\x9c]*\x9c?")
BASE64 = re.compile(r"[A-Za-z0-9+/\s]*+={0,2}\s*+\Z")
CELL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
MIME = re.compile(r"[a-z]{1,20}/[a-z0-9.+-]{1,60}\Z", re.IGNORECASE | re.ASCII)
GRADE_ID = re.compile(r"[\w.-]{1,128}\Z", re.ASCII)
DATA_PICTURE = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,([A-Za-z0-9+/=]++)")
TOO_LARGE = "an image of too many pixels"
LEFT_OUT = "an-image-of-too-many-pixels"
"""Stands where its data stood."""
LINE_END = re.compile(r"\r\n?|\n")
FENCE_EDGE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)\Z")
LIST_ITEM = re.compile(r"[ \t>]*(?:[-*+]|\d{1,9}[.)])[ \t]")
BEFORE_A_HEADING = r"\A((?:[ \t]*(?:>|(?:[-*+]|\d{1,9}[.)])[ \t]))*"
HEADING = re.compile(rf"{BEFORE_A_HEADING} {{0,3}})#{{1,3}}(?=[ \t]|\Z)")
HEADING_IN_LIST = re.compile(rf"{BEFORE_A_HEADING}[ \t]*)#{{1,3}}(?=[ \t]|\Z)")
UNDERLINE = re.compile(r"[ \t>]*(?:=+|-+)[ \t]*\Z")
LARGE_HEADING = re.compile(r"(</?)h[1-3](?=[\s>])")
MARKS = ("grade", "solution", "locked", "task", "remove", "points", "schema_version", "grade_id")
MARKS += ("cell_type", "checksum")

Say = Callable[[str], None]


def clean_notebook(
    cells: Iterable[Cell],
    metadata: dict[str, Any],
    given: Container[str],
    *,
    all_headings: bool = True,
) -> None:
    """Clean everything in a student's notebook except the outputs, in place.

    Args:
        cells: As they came, the assignment's own ones restored.
        metadata: The notebook's; what names a kernel or draws widgets goes.
        given: Sources that everybody was given: ours, and left alone.
        all_headings: See `clean_cell`.
    """
    for cell in cells:
        clean_cell(cell, given, lambda _what: None, all_headings=all_headings)
    for name in set(metadata) - {"kernelspec"}:
        metadata.pop(name)
    metadata["language_info"] = {"name": "python"}
    if "kernelspec" in metadata:
        metadata["kernelspec"] = {
            "name": "python3",
            "display_name": "Python 3",
            "language": "python",
        }


def given_sources(assignment: dict[str, Any]) -> frozenset[str]:
    """Sources that everybody was given, of an assignment as plain data."""
    return frozenset(
        [*assignment.get("given", ()), *(cell["source"] for cell in assignment["cells"])]
    )


def clean_cell(cell: Cell, given: Container[str], say: Say, *, all_headings: bool = True) -> None:
    """Clean a cell's text, attachments, names and metadata, in place.

    Args:
        cell: Of any kind; a code cell's source stays, since nobody renders it.
        given: Sources that everybody was given.
        say: Told what was taken out, in words.
        all_headings: Whether headings become small in cells that are no answers, too; not where
            `given` lacks the assignment's own.
    """
    if cell["cell_type"] != "code":
        _clean_attachments(cell, say)
        source = "".join(cell["source"])
        if source not in given:
            source = (clean_markup if cell["cell_type"] == "raw" else clean_markdown)(source, say)
            if all_headings or marked(cell, "solution") or marked(cell, "task"):
                source = with_small_headings(source)
        known = cell.get("attachments") or {}  # nbconvert raises where a page needs another
        cell["source"] = ATTACHED.sub(lambda m: m[0] if m[1] in known else "! [", source)
    _clean_metadata(cell)
    if "id" in cell and not CELL_ID.match(str(cell["id"])):
        cell["id"] = "odd-id"


class Removed:
    """What was removed from a submission's cells, for a person to read.

    Args:
        cells: Of a submission; looked at and left as they are.
        given: Sources that everybody was given.
    """

    def __init__(self, cells: list[Cell], given: Container[str]) -> None:
        self.cells, self.found = cells, dict[str, None]()
        for cell in cells:
            if cell["cell_type"] != "code":
                clean_cell(copy.deepcopy(cell), given, self.say(cell))

    def say(self, cell: Cell) -> Say:
        """A place to say what was taken out of a cell."""
        number = next(n for n, other in enumerate(self.cells, start=1) if other is cell)
        id = grade_id(cell) or ""
        name = id if GRADE_ID.match(id) else f"cell {number}"
        return lambda what: self.found.setdefault(f"{name}: {what}")

    def words(self) -> list[str]:
        """Each thing once, e.g. `cell 3: HTML`."""
        return list(self.found)[:MAX_NAMED]


def clean_markdown(text: str, say: Say = lambda _what: None) -> str:
    """Markdown in which nothing runs or is fetched, whatever renders it."""
    text = OWN_PICTURE.sub(r"![\1](attachment:\1)", text)
    text = DATA_PICTURE.sub(lambda found: _small_enough(found, say), text)
    text = _broken(text, PICTURE, "! [", say, _fetched)
    text = _broken(text, DESTINATION, "] (", say, _odd_link)
    text = _broken(text, DEFINITION, "] :", say, _odd_link)
    text = FENCE.sub(r"\1text", text)
    return clean_markup(text, say)


def _small_enough(found: re.Match[str], say: Say) -> str:
    if not is_too_large(found[1]):
        return found[0]
    say(TOO_LARGE)
    return LEFT_OUT


def with_small_headings(text: str) -> str:
    """Markdown with its headings of the levels 1 to 3 at level 4, and underlined ones as text: a
    page's own title and its points look otherwise. What stands in a fence is code."""
    lines, fence, in_list = list[str](), "", False
    for line in LINE_END.split(text):
        edge = FENCE_EDGE.match(line)
        if fence:
            closes = edge and edge[1].startswith(fence) and not edge[2].strip()
            fence = "" if closes else fence
        elif edge and not (edge[1][0] == "`" and "`" in edge[2]):
            fence = edge[1]
        else:
            in_list = in_list or LIST_ITEM.match(line) is not None
            line = (HEADING_IN_LIST if in_list else HEADING).sub(r"\1####", line)
            if lines and lines[-1].strip() and UNDERLINE.match(line):
                lines.append("")  # so that it is a line across, or one of equals signs
        lines.append(line)
    return "\n".join(lines)


def clean_markup(text: str, say: Say = lambda _what: None) -> str:
    """Text without tags, numbered characters, TeX that makes links, or control characters."""
    text = _broken(text, TAG, "< ", say, lambda t, at: "HTML" if KNOWN_TAG.match(t, at) else "")
    return _tame_tex(REFERENCE.sub(_reference, CONTROL.sub("", OSC.sub("", text))), say)


def _tame_tex(text: str, say: Say) -> str:
    return _broken(text, TEX, "\\ ", say, lambda t, at: "TeX with links or styles")


def _broken(
    text: str, what: re.Pattern[str], by: str, say: Say, named: Callable[[str, int], str]
) -> str:
    def broken(found: re.Match[str]) -> str:
        if words := named(text, found.start()):
            say(words)
        return by

    return what.sub(broken, text)


def _fetched(text: str, at: int) -> str:
    _, is_picture, source = text[at : at + 2000].partition("](")
    return "an image from elsewhere" if is_picture and not source.startswith(LEFT_OUT) else ""


def _odd_link(text: str, at: int) -> str:
    scheme = WITH_SCHEME.match(text, at + 2)
    return f"a link to {''.join(scheme[1].split())[:20].lower()}:" if scheme else ""


def _reference(found: re.Match[str]) -> str:
    """A character written by number or name: broken where it stands for one of ASCII's signs."""
    decimal, hexadecimal, name = found.groups()
    if name is not None:
        letters = html.unescape(f"&{name};")
        kept = name in ("lt", "gt", "amp", "quot", "apos", "nbsp") or ord(letters[0]) > 127
        return "&" if kept or letters == f"&{name};" else "& "
    number = int(decimal) if decimal else int(hexadecimal, 16)
    return "&" if number > 0x9F else "& "


def _clean_attachments(cell: Cell, say: Say) -> None:
    if "attachments" not in cell:
        return
    kept: dict[str, dict[str, str]] = {}
    attached = cell["attachments"] if isinstance(cell["attachments"], dict) else {}
    for name, forms in attached.items():
        pictures = {
            kind: data
            for kind, data in (forms.items() if isinstance(forms, dict) else ())
            if kind in PICTURES and is_base64(data)
        }
        if any(map(is_too_large, pictures.values())):
            say(TOO_LARGE)
        elif pictures and re.fullmatch(r"[\w.-]+", name):
            kept[name] = pictures
        else:
            say("an attachment that is not an image")
    cell["attachments"] = type(cell["attachments"])(kept) if attached else {}


def is_base64(data: Any) -> bool:
    """Whether a picture's data is that: a page writes it between quotation marks."""
    return isinstance(data, str) and BASE64.match(data) is not None


def _clean_metadata(cell: Cell) -> None:
    marks = cell["metadata"].get("nbgrader")
    cell["metadata"].clear()
    if isinstance(marks, dict) and GRADE_ID.match(
        grade_id({"metadata": {"nbgrader": marks}}) or ""
    ):
        cell["metadata"]["nbgrader"] = {k: v for k, v in marks.items() if k in MARKS}


def clean_output(output: dict[str, Any], say: Say = lambda _what: None) -> dict[str, Any]:
    """An output as it may be shown: its forms cleaned, or left out and named."""
    kind = output["output_type"]
    if kind == "stream":
        return {**output, "text": _plain(output["text"])}
    if kind == "error":
        lines = [_plain(line) for line in output["traceback"]]
        name, value = _plain(output["ename"]), _plain(output["evalue"])
        return {**output, "ename": name, "evalue": value, "traceback": lines}
    return {**output, "data": clean_data(output["data"], say), "metadata": _sizes(output)}


def clean_data(data: dict[str, Any], say: Say = lambda _what: None) -> dict[str, Any]:
    """An output's forms, by MIME type: text, clean HTML, pictures; a drawing becomes a picture."""
    kept: dict[str, Any] = {}
    forms = {k: "".join(map(str, v)) if isinstance(v, list) else v for k, v in data.items()}
    if any(kind in PICTURES and is_base64(v) and is_too_large(v) for kind, v in forms.items()):
        say(TOO_LARGE)
        forms = {kind: value for kind, value in forms.items() if kind not in PICTURES}
    has_picture = any(is_base64(value) for kind, value in forms.items() if kind in PICTURES)
    for kind, value in forms.items():
        if kind in PICTURES and is_base64(value):
            kept[kind] = value
        elif has_picture and _is_drawn_too(kind, value):
            if kind == "text/html" and _is_active(value):
                say("HTML")
        elif kind in PLAIN_TYPES and isinstance(value, str):
            kept[kind] = CLEANERS[kind](value, say)
        elif kind == "image/svg+xml" and isinstance(value, str):
            continue
        else:
            say(f"an output of type {kind}" if MIME.match(kind) else "an output of an odd type")
    drawing = forms.get("image/svg+xml")
    if isinstance(drawing, str) and not kept.keys() & PICTURES and len(drawing) <= MAX_HTML:
        coded = base64.b64encode(drawing.encode("utf-8", "replace")).decode()
        if is_too_large(coded):
            say(TOO_LARGE)
            return kept or {"text/plain": "(nothing here can be shown)"}
        kept["text/html"] = f'<img alt="a drawing" src="data:image/svg+xml;base64,{coded}">'
    return kept or {"text/plain": "(nothing here can be shown)"}


def _is_drawn_too(kind: str, value: Any) -> bool:
    """Whether a form shows what the picture beside it shows: a live widget, or a figure as SVG."""
    if kind == "text/html":
        return isinstance(value, str) and value.lstrip()[:4].lower() == "<svg"
    return kind == "application/vnd.jupyter.widget-view+json"


def clean_html(text: str, say: Say = lambda _what: None) -> str:
    """An HTML output without anything that runs, fetches, uses a page's code, or covers it."""
    if len(text) > MAX_HTML:
        say("an HTML output that is too long")
        return f"<p>(HTML of {len(text):,} characters is not shown)</p>"
    try:
        cleaned = sanitize(text, own_page=False)
    except ValueError:
        say("an HTML output that is nested too deeply")
        return "<p>(HTML that is nested too deeply is not shown)</p>"
    if _is_active(text):
        say("HTML")
    if any(is_too_large(found[1]) for found in DATA_PICTURE.finditer(text)):
        say(TOO_LARGE)
    return _tame_tex(LARGE_HEADING.sub(r"\1h4", cleaned), say)


QUOTED = r"=\s*+(?:\"[^\"]*+(?:\"|\Z)|'[^']*+(?:'|\Z))"
ANY_TAG = re.compile(rf"<(?=[a-z/!?])(?:[^=>]++|{QUOTED}|=)*+", re.IGNORECASE)
"""A tag with its attributes; one that is never closed goes on to the end."""
ACTIVE_TAG = re.compile(
    r"</?(?:script|iframe|object|embed|form|base|meta|link|style|template|input|button"
    r"|video|audio|frame|applet|portal|marquee|noscript|xmp|plaintext|textarea|title|select)\b",
    re.IGNORECASE,
)
ACTIVE_URL = re.compile(
    r"(?:href|src|srcset|action|data|poster|background|cite|ping|to)\s*+=\s*+[\"']?\s*+"
    r"(?:javascript:|vbscript:|data:(?!image/(?:png|jpe?g|gif|webp|svg)))"
    r"|\burl\s*+\(\s*+[\"']?(?!#)",
    re.IGNORECASE,
)
HANDLER = re.compile(r"[\s\"'/]on[a-z]++\s*+=", re.IGNORECASE)


def _is_active(text: str) -> bool:
    """Whether something is named that was taken out; that tables lose a class is not.

    Only tags count: between them a page shows words, whatever they are.
    """
    return any(
        ACTIVE_TAG.search(tag)
        or ACTIVE_URL.search(tag)
        or HANDLER.search(re.sub(QUOTED, "= ", tag))
        for tag in ANY_TAG.findall(text)
    )


def _plain(text: Any) -> str:
    text = "".join(map(str, text)) if isinstance(text, list) else str(text)
    return CONTROL.sub("", OSC.sub("", text))


CLEANERS: dict[str, Callable[[str, Say], str]] = {
    "text/plain": lambda text, _say: _plain(text[:MAX_WORDS]),
    "text/html": clean_html,
    "text/markdown": lambda text, say: with_small_headings(clean_markdown(text[:MAX_WORDS], say)),
    "text/latex": lambda text, say: clean_markup(text[:MAX_WORDS], say),
}


def _sizes(output: dict[str, Any]) -> dict[str, Any]:
    """Of an output's metadata only how large a picture is shown."""
    metadata = output.get("metadata")
    found = {}
    for kind in PICTURES:
        about = metadata.get(kind) if isinstance(metadata, dict) else None
        sizes = {
            name: about[name]
            for name in ("width", "height")
            if isinstance(about, dict) and type(about.get(name)) is int and 0 < about[name] < 4000
        }
        if sizes:
            found[kind] = sizes
    return found


def files_beside(folder: Path, notebook: str, original: bytes | None, ours: Container[str]) -> None:
    """Rename the files handed in with a notebook to text, except those of a form that does nothing.

    formgrader sends what lies in autograded/ from its own address, with the instructor's rights.

    Args:
        folder: Of one submission, in autograded/.
        notebook: Name of the notebook that was graded.
        original: What was handed in under that name, to be kept as text; None if it was clean.
        ours: Files that come from the assignment itself, relative to the folder.
    """
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        name = path.relative_to(folder).as_posix()
        if name != notebook and name not in ours and not is_inert(path.name):
            path.rename(_as_text(path))
    if original is not None:
        (folder / ORIGINAL).write_bytes(original)


def _as_text(path: Path) -> Path:
    """Its name with .txt, cut to what a file's name has room for; one that is still free."""
    stem = os.fsdecode(os.fsencode(path.name)[:MAX_STEM])
    names = (f"{stem}{n or ''}.txt" for n in count())
    return next(new for name in names if not (new := path.with_name(name)).exists())


def is_inert(name: str) -> bool:
    """Whether a file of this name does nothing for a browser, Jupyter or Python that finds it."""
    return Path(name).suffix.lower() in HARMLESS and not name.startswith(".")
