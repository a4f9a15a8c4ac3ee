"""The time in a timestamp.txt, as nbgrader reads it, and whether that is the time written there.

nbgrader takes the last of three words for a time zone, and one that it does not know for UTC: PST,
but also the PM of 11:30 PM. Of +0100 it makes 100 seconds.
"""

from __future__ import annotations

import warnings
from datetime import datetime, tzinfo


class MisreadError(ValueError):
    """nbgrader would read another time than is written; the message says which."""


def read_stamp(text: str) -> datetime:
    """Read a time as nbgrader does, in UTC and without a zone.

    Raises:
        MisreadError: That is not the time written, or its zone is not known here.
        ValueError, OverflowError: It is no time.
    """
    from dateutil import parser, tz
    from nbgrader.utils import parse_utc

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", parser.UnknownTimezoneWarning)
        read = parse_utc(text)
    words = text.split(" ")
    if len(words) == 3 and not words[2].lstrip("+-").isdecimal() and tz.gettz(words[2]):
        return read
    try:
        written = parser.parse(text, tzinfos=_zone)
        if written.tzinfo:
            written = (written - written.utcoffset()).replace(tzinfo=None)
    except (ValueError, OverflowError):
        written = None
    if read != written:
        raise MisreadError(f"which nbgrader would read as {read:%Y-%m-%d %H:%M:%S} UTC")
    return read


def _zone(name: str | None, offset: int | None) -> tzinfo | None:
    """The zone that a time names, if it names one.

    Raises:
        ValueError: The name is not known here.
    """
    from dateutil import tz

    if offset is not None:
        return tz.tzoffset(name, offset)
    if name and not tz.gettz(name):
        raise ValueError(f"{name} is not known here")
    return tz.gettz(name) if name else None
