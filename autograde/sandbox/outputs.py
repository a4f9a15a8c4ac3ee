"""What an untrusted process reports as a cell's outputs, checked and cut before it is used.

A reply of sixteen megabytes can hold millions of keys, lines or lists; whoever checks them one by
one is held for minutes. So values are counted in the bytes, before they are parsed, and of what was
parsed only the parts that a notebook has are taken, each up to its size.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

MAX_VALUES = 100_000
"""Values in one reply; the words of a text are none."""
MAX_OUTPUTS = 1000
"""Outputs of one cell that are kept; each takes the gradebook's writer a millisecond."""
MAX_TEXT = 210_000
"""Characters of a text that was printed or raised; the student's side cuts at 200,000."""
MAX_FORM = 4_000_000
"""Characters of one form of a display: a picture in base64, say."""
MAX_LINES, MAX_FORMS, MAX_NAME = 1000, 30, 200
TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""Also one that never ends: it would be looked for again from each quotation mark inside."""


def values_in(raw: bytes) -> int:
    """How many values a reply in JSON holds at most, found without parsing it."""
    count = _separators(raw)
    return count if count <= MAX_VALUES else _separators(TEXT.sub(b"", raw))


def _separators(raw: bytes) -> int:
    return sum(map(raw.count, (b",", b"[", b"{", b":")))


def plain_outputs(reported: Any) -> list[dict[str, Any]]:
    """Outputs as a notebook stores them, of whatever was reported as such."""
    reported = reported if isinstance(reported, list) else []
    kept = [_plain(output) for output in reported[:MAX_OUTPUTS] if isinstance(output, dict)]
    if len(reported) > MAX_OUTPUTS:
        kept.append(_printed(f"{len(reported) - MAX_OUTPUTS:,} more outputs are not kept.\n"))
    return kept


def _plain(output: dict[str, Any]) -> dict[str, Any]:
    kind = output.get("output_type")
    if kind == "stream":
        name = "stderr" if output.get("name") == "stderr" else "stdout"
        return {**_printed(_text(output.get("text"), MAX_TEXT)), "name": name}
    if kind in ("display_data", "execute_result"):
        data = output.get("data")
        forms = islice(data.items() if isinstance(data, dict) else (), MAX_FORMS)
        shown = {str(form)[:MAX_NAME]: _text(value, MAX_FORM) for form, value in forms}
        metadata = _sizes(output.get("metadata"))
        return {"output_type": "display_data", "data": shown, "metadata": metadata}
    if kind == "error":
        lines = output.get("traceback")
        lines = lines[:MAX_LINES] if isinstance(lines, list) else []
        return {
            "output_type": "error",
            "ename": _text(output.get("ename"), MAX_NAME),
            "evalue": _text(output.get("evalue"), MAX_TEXT),
            "traceback": _text(lines, MAX_TEXT, between="\n").split("\n") if lines else [],
        }
    return _printed(f"(an output of kind {kind!r:.60} that a notebook cannot hold)")


def _printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def _text(value: Any, most: int, *, between: str = "") -> str:
    """A text, or a list of lines joined; cut, with a word about it; empty for anything else."""
    if isinstance(value, list):
        value = between.join(line[:most] for line in value[:most] if isinstance(line, str))
    if not isinstance(value, str):
        return ""
    if len(value) <= most:
        return value
    return f"{value[:most]}\n... {len(value) - most:,} more characters are not kept."


def _sizes(metadata: Any) -> dict[str, Any]:
    """How large pictures are shown, of all that an output's metadata may say."""
    about = islice(metadata.items() if isinstance(metadata, dict) else (), MAX_FORMS)
    return {
        kind: {n: v for n, v in sizes.items() if n in ("width", "height") and type(v) is int}
        for kind, sizes in about
        if isinstance(sizes, dict) and len(sizes) < MAX_FORMS and len(kind) < MAX_NAME
    }
