"""Make other people's HTML harmless: nothing in it runs, is fetched, or covers the rest.

A student's notebook can hold any HTML: as an output, in Markdown, in an attachment's name. What is
left of it here is text, tables, pictures that are part of the page, and links that want a click;
formulas are drawn as pictures. nh3 (the Rust library ammonia) does the cleaning; a content security
policy in the page's head says the same to the browser once more.
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from functools import lru_cache
from html import escape

from autograde.classroom.formulas import STYLE, draw_formulas
from autograde.classroom.pictures import is_too_large

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
"""No script of any kind, no request of any kind."""
POLICY_TAG = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'

# fmt: off
TAGS = {
    "a", "abbr", "b", "blockquote", "br", "caption", "code", "col", "colgroup", "dd", "del",
    "details", "div", "dl", "dt", "em", "figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6",
    "hr", "i", "img", "ins", "kbd", "li", "mark", "ol", "p", "pre", "q", "s", "samp", "small",
    "span", "strong", "sub", "summary", "sup", "table", "tbody", "td", "tfoot", "th", "thead",
    "tr", "tt", "u", "ul", "var",
}
ATTRIBUTES = {
    "alt", "class", "colspan", "height", "id", "lang", "name", "rowspan", "scope", "style", "title",
    "width",
}
STYLES = {
    "background-color", "border", "border-bottom", "border-color", "border-left", "border-right",
    "border-style", "border-top", "border-width", "color", "font-style", "font-weight", "padding",
    "text-align", "text-decoration", "white-space",
}
"""No position, no size, no margin, nothing that takes a url(); of widths see WIDEST."""
# fmt: on
NAMES = frozenset({"class", "id", "name"})
"""By which a page's own scripts and styles find their elements: a page with scripts gives none."""
GONE = ("script", "style", "iframe", "object", "embed", "template", "noscript", "svg", "math")
"""Left out with all they hold; of other unknown tags only the tag goes."""
PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/=\s]*\Z")
LINK = re.compile(r"(https?://|mailto:|#)", re.IGNORECASE)


MAX_DEPTH = 1000
"""Elements inside one another; a parser's time grows with the square of this."""


FEW_TAGS = 5000
"""With so many a parser is quick however deep they lie."""


class TooDeepError(ValueError):
    """Nobody writes HTML like this by hand; it is not shown."""


def sanitize(html: str, *, own_page: bool = True) -> str:
    """Clean an HTML fragment of anything that runs, fetches, or covers the rest of the page.

    Args:
        html: Anybody's.
        own_page: It goes into a page of ours, without scripts, whose formulas are drawn here. Else
            into somebody's page with scripts: there elements also lose what these would find.

    Raises:
        TooDeepError: More than MAX_DEPTH elements lie inside one another.
    """
    believed = own_page or html.count("<") <= FEW_TAGS  # a page's outputs have been through this
    if _depth(html, believed=believed) > MAX_DEPTH:
        raise TooDeepError(f"HTML with more than {MAX_DEPTH} elements inside one another.")
    if own_page:
        return _cleaner(NAMES).clean(_with_formulas(html))
    return _cleaner(frozenset()).clean(html)


def sanitize_part(html: str) -> str:
    """Clean a part of a page that nbconvert is making, which classes make colourful."""
    if _depth(html, believed=html.count("<") <= FEW_TAGS) > MAX_DEPTH:
        return f"<pre>{escape(html)}</pre>"
    return _cleaner(frozenset({"class"})).clean(html)


def _with_formulas(html: str) -> str:
    from bs4 import BeautifulSoup

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it looks like XML, or like a file's name
        soup = BeautifulSoup(html, "html.parser")
    for element in soup(list(GONE)):  # for looks: nh3 is what protects
        element.decompose()
    draw_formulas(soup)
    return str(soup)


def sanitize_page(page: str, top: str = "") -> str:
    """Clean a page that nbconvert made from a student's notebook, and put `top` before its body.

    Args:
        page: Its head holds the template's own words only, and no student's.
        top: HTML of ours, escaped already.
    """
    head, start, body = page.partition("<body")
    if not start:
        raise ValueError(
            "the page has no <body>: nbgrader's template has changed. Please report it."
        )
    body = body.partition(">")[2].rpartition("</body>")[0]
    head = re.sub(r"<script\b.*?</script\s*>", "", head, flags=re.DOTALL | re.IGNORECASE)
    head = re.sub(r"<link\b[^>]*>", "", head, flags=re.IGNORECASE)
    ours = f"{POLICY_TAG}<style>{STYLE}</style>"
    head = re.sub(r"(<head[^>]*>)", rf"\1{ours}", head, count=1, flags=re.IGNORECASE)
    return f"{head}<body>\n{top}{sanitize(body)}</body></html>\n"


VOID = frozenset(("area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"))


VOID = frozenset(("area", "base", "br", "col", "hr", "img", "input", "link", "meta", "wbr"))
SKIPPED = re.compile(r"<!--[^<>]*?-->|<(style|script)\b[^<>]*+>[^<]*+</\1>", re.IGNORECASE)
MARKUP = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9]*+)([^<>]*+)(>?)|<[!?/]")
ATTRIBUTES_PLAIN = re.compile(
    r"(?:\s++[a-zA-Z][\w:.-]*+(?:\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s\"'=`]++))?+)*+\s*+/?"
)
"""Quotation marks in which nothing looks like a tag."""
RAW = frozenset(("noembed", "noframes", "plaintext", "textarea", "title", "xmp", *GONE))
"""What they hold is text, or read by rules of its own."""
SCOPES = frozenset(("button", "caption", "ol", "table", "td", "th", "ul"))
"""A closing tag inside one of these closes nothing outside of it."""


def _depth(html: str, *, believed: bool) -> int:
    """How deep elements lie at most, seen from their tags; too high where tags are left open.

    A closing tag of what was not opened closes nothing, and neither does one in an attribute: after
    the first tag that may hide one, all of them count as text, unless the tags are `believed`.
    """
    depth = most = 0
    plain, scopes = True, list[str]()
    opened: dict[str, list[int]] = defaultdict(list)
    for slash, name, attributes, end in MARKUP.findall(SKIPPED.sub("", html)):
        name = name.lower()
        plain = plain and bool(name and end and ATTRIBUTES_PLAIN.fullmatch(attributes))
        plain = plain and name not in RAW
        if not name or name in VOID:
            continue
        if not slash:
            depth += 1
            opened[name].append(len(scopes))
            if name in SCOPES:
                scopes.append(name)
        elif plain or believed:
            depth -= _closed(name, opened[name], scopes)
        most = max(most, depth)
    return most


def _closed(name: str, places: list[int], scopes: list[str]) -> int:
    """How many elements a closing tag closes at least.

    Args:
        name: Of the tag.
        places: In how many scopes each open element of this name lies.
        scopes: Those that are open.
    """
    if name in SCOPES:
        if not scopes or scopes[-1] != name:
            return 0
        scopes.pop()
    while places and places[-1] > len(scopes):
        places.pop()  # it went with the scope that it lay in, and is counted too often
    if not places or places[-1] != len(scopes):
        return 0
    places.pop()
    return 1


@lru_cache
def _cleaner(names: frozenset[str]):
    """One that keeps some of NAMES."""
    import nh3

    return nh3.Cleaner(
        tags=TAGS,
        clean_content_tags=set(GONE),
        attributes={
            "*": ATTRIBUTES - (NAMES - names),
            "a": {"href"},
            "img": {"src"},
        },
        tag_attribute_values={} if names else {"table": {"class": {"dataframe"}}},
        attribute_filter=_filtered,
        filter_style_properties=STYLES,
        url_schemes={"http", "https", "mailto", "data"},
        link_rel="noopener noreferrer",
    )


def _filtered(tag: str, name: str, value: str) -> str | None:
    """An attribute's value; None where it goes."""
    if name == "src":
        return value if PICTURE.match(value) and not is_too_large(value.partition(",")[2]) else None
    if name == "href":
        return value if LINK.match(value) else None
    if name == "style":
        return None if CSS_FUNCTION.search(value) else _without_wide(value)
    if name in ("width", "height"):
        number = re.match(r"\s*\+?(\d*\.?\d*)", value)
        return value if number and float(number[1].strip(".") or 0) <= LONGEST else None
    return value


def _without_wide(style: str) -> str:
    """A style without declarations of paddings and borders that would push the rest away."""
    kept = []
    for declaration in CSS_COMMENT.sub(" ", style).split(";"):
        name, _, value = declaration.lower().partition(":")
        wide = ("padding" in name or "border" in name) and any(
            float(number) * PIXELS.get(unit, WIDEST + 1) > WIDEST
            for number, unit in CSS_LENGTH.findall(re.sub(r"\([^()]*+\)", "", value))
            if float(number)
        )
        if not wide:
            kept.append(declaration)
    return ";".join(kept)


LONGEST = 4000
"""Pixels, or percent, that a picture or a column may say it is wide or high."""
WIDEST = 48
"""Pixels of a padding or a border."""
PIXELS = {
    **{"": 1, "px": 1, "pt": 4 / 3, "pc": 16, "em": 16, "rem": 16, "ex": 8, "ch": 8, "%": 8},
    **{"in": 96, "cm": 38, "mm": 3.8, "q": 1},
}
"""Of each of CSS's units, about; others are of the window, and are wide."""
CSS_COMMENT = re.compile(r"/\*.*?(?:\*/|\Z)", re.DOTALL)
CSS_LENGTH = re.compile(
    r"(?<![#\w.])\+?((?:\d++(?:\.\d*+)?|\.\d++)(?:e[+-]?\d{1,3}(?!\d))?)([a-z%]*+)", re.IGNORECASE
)

CSS_FUNCTION = re.compile(r"\\|(?<!\brgb)(?<!\brgba)(?<!\bhsl)(?<!\bhsla)\(", re.IGNORECASE)
"""What could fetch, in any spelling; colours cannot."""
