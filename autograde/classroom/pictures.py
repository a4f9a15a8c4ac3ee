"""How large a picture is, read from its first bytes: a page that shows it decodes all of it.

A PNG of a few hundred kilobytes can hold 1.6 billion white pixels, which take a browser gigabytes.
What is read is what a browser goes by: the bytes, whatever the picture says it is.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from struct import error, unpack_from

MAX_SIDE = 20_000
"""Pixels of a picture's width, or its height."""
MAX_PIXELS = 64_000_000
"""Pixels of a picture: more than a phone's camera makes; 256 MB when a browser has decoded it."""
FIRST = 400
"""Characters of base64 that hold the head of most forms, white space included."""
FRAMES_OF_JPEG = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}
WITHOUT_LENGTH = {0x01, *range(0xD0, 0xDA)}
SIDE_OF_SVG = re.compile(rb"<svg\b[^>]*?>", re.IGNORECASE)
LENGTH_OF_SVG = re.compile(
    rb"\s(?:width|height)\s*=\s*[\"']?\s*([\d.]+(?:e\+?\d+)?)", re.IGNORECASE
)


def is_too_large(data: str) -> bool:
    """Whether a picture in base64 has more pixels, or a longer side, than a page should show.

    A picture whose size cannot be read is not: no browser reads it either.
    """
    raw = _bytes_of(data[:FIRST])
    if not raw.startswith((b"\x89PNG", b"RIFF")):
        raw = _bytes_of(data)
    try:
        return any(
            width > MAX_SIDE or height > MAX_SIDE or width * height > MAX_PIXELS
            for width, height in _sizes(raw)
        )
    except (error, IndexError):  # it ends too early
        return False


def _bytes_of(data: str) -> bytes:
    """What base64 stands for, as far as it is complete."""
    letters = "".join(data.split()).rstrip("=")
    letters = letters[: len(letters) - (len(letters) % 4 == 1)]
    try:
        return base64.b64decode(letters + "=" * (-len(letters) % 4))
    except ValueError:  # an equals sign in the middle
        return b""


def _sizes(raw: bytes) -> Iterator[tuple[float, float]]:
    """Widths and heights of what a picture consists of."""
    if raw.startswith(b"\x89PNG"):
        yield unpack_from(">II", raw, 16)
    elif raw.startswith(b"GIF8"):
        yield from _of_gif(raw)
    elif raw.startswith(b"\xff\xd8"):
        yield from _of_jpeg(raw)
    elif raw.startswith(b"RIFF") and raw[8:12] == b"WEBP":
        yield _of_webp(raw)
    elif raw.startswith(b"BM"):
        width, height = unpack_from("<ii", raw, 18)
        yield abs(width), abs(height)
    elif raw[4:8] == b"ftyp":  # AVIF, which a browser reads under any name
        for at in (found.end() for found in re.finditer(rb"ispe", raw)):
            yield unpack_from(">II", raw, at + 4)
    elif b"<svg" in raw.lower():
        for tag in SIDE_OF_SVG.findall(raw):
            yield from ((float(side), 1) for side in LENGTH_OF_SVG.findall(tag))


def _of_gif(raw: bytes) -> Iterator[tuple[int, int]]:
    """The screen's, and each frame's with its place on it."""
    yield unpack_from("<HH", raw, 6)
    at = 13 + _table(raw[10])
    while at < len(raw) and raw[at] in (0x21, 0x2C):
        if raw[at] == 0x2C:
            left, top, width, height = unpack_from("<4H", raw, at + 1)
            yield left + width, top + height
            at += 11 + _table(raw[at + 9])
        else:
            at += 2
        while raw[at]:
            at += 1 + raw[at]
        at += 1


def _table(flags: int) -> int:
    """Bytes of a table of colours."""
    return 3 * 2 ** (1 + flags % 8) if flags & 0x80 else 0


def _of_jpeg(raw: bytes) -> Iterator[tuple[int, int]]:
    at = 2
    while (at := raw.find(b"\xff", at)) >= 0:
        kind = raw[at + 1]
        if kind in FRAMES_OF_JPEG:
            height, width = unpack_from(">HH", raw, at + 5)
            yield width, height
            return
        if kind == 0xFF:  # one of several in a row
            at += 1
        elif kind in WITHOUT_LENGTH or not kind:
            at += 2
        else:
            at += 2 + unpack_from(">H", raw, at + 2)[0]


def _of_webp(raw: bytes) -> tuple[int, int]:
    if raw[12:16] == b"VP8X":
        width, height = (int.from_bytes(raw[at : at + 3], "little") for at in (24, 27))
        return width + 1, height + 1
    if raw[12:16] == b"VP8L":
        (bits,) = unpack_from("<I", raw, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    width, height = unpack_from("<HH", raw, 26)
    return width & 0x3FFF, height & 0x3FFF
