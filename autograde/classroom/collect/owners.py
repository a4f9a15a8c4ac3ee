"""Whose attempts in nbgrader's exchange really are: a folder's name there is anybody's to choose.

Every user of a machine can write into inbound/, and the folder's name alone says for whom. Only its
owner cannot be chosen. nbgrader compares both and warns (`CollectApp.check_owner`); here an attempt
is not taken if another student owns it, or if one student's attempts have several owners. Where all
have one (everybody is `jovyan` in a container) owners say nothing. What belongs to you, who may
have copied the exchange, or to the administrator is trusted.

Source: nbgrader 0.9.6, exchange/default/collect.py.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Container, Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING
from zipfile import ZipInfo

from autograde.class_dir import few

if TYPE_CHECKING:
    from autograde.classroom.collect.naming import Handed

UNIX_OWNER = 0x7875
"""The zip format's field for a file's owner: version 1, then a length and a number, twice."""


@lru_cache
def owner_name(uid: int) -> str:
    """A user of this machine; empty for those that are trusted."""
    if uid == 0 or uid == os.getuid():
        return ""
    try:
        import pwd

        return pwd.getpwuid(uid).pw_name
    except (ImportError, KeyError):
        return f"user {uid}"


def owner_in_zip(info: ZipInfo) -> str:
    """The owner of a packed file, by number: names are another machine's. Empty if untold."""
    rest = info.extra
    while len(rest) >= 4:
        kind, size = struct.unpack("<HH", rest[:4])
        field, rest = rest[4 : 4 + size], rest[4 + size :]
        if kind == UNIX_OWNER and len(field) >= 2 and field[0] == 1:
            uid = int.from_bytes(field[2 : 2 + field[1]], "little")
            return f"user {uid}" if uid else ""
    return ""


def not_theirs(found: Iterable[Handed], ids: Container[str]) -> Iterator[tuple[Handed, str]]:
    """The attempts that are not certainly the named student's, and why.

    Args:
        found: Attempts, as their names say.
        ids: The class's students: where one owns an attempt, it is that one's.
    """
    attempts: dict[str, list[Handed]] = {}
    for one in found:
        attempts.setdefault(one.name, []).append(one)
    for student, each in attempts.items():
        kept = []
        for one in each:
            if others := sorted(o for o in _owners(one) if o != student and o in ids):
                yield one, f"holds files of {others[0]}, who is another student. It was not taken"
            else:
                kept.append(one)
        owners = {owner for one in kept for owner in _owners(one)}
        who = few(sorted(owners))
        for one in kept if len(owners) > 1 else ():
            if student not in owners:
                yield one, NOBODYS.format(student=student, owners=who)
            elif others := sorted(_owners(one) - {student}):
                yield one, f"holds files of {others[0]}, not only of {student}. It was not taken"


NOBODYS = (
    "the attempts in {student}'s name belong to {owners}. None of them was taken. Find out which "
    "is whose, and copy that one into submitted/"
)
"""Said of each of a student's attempts where several users own them."""


def _owners(one: Handed) -> set[str]:
    return {owner for entry in one.files for owner in entry.owners if owner}
