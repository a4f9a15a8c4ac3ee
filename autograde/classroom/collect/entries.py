"""Read the contents of an archive or a folder without trusting a name, a size or a link.

Nothing is unpacked under the name that it has in an archive: an entry is a name cut into parts, and
bytes that are counted as they are read. So a name that leads out of the folder leads nowhere, and
an archive that falsely claims to be small is stopped.

Source: the zip format's own description, PKWARE's APPNOTE 6.3.10 (flags, modes, names).
"""

from __future__ import annotations

import os
import re
import stat
import struct
import unicodedata
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from io import BytesIO
from pathlib import Path
from typing import BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from autograde.classroom.collect.owners import owner_in_zip, owner_name
from autograde.classroom.names import shown
from autograde.classroom.submissions import MAX_FOLDERS_DEEP
from autograde.sandbox.bounds import TooMuchError, at_most

UTF8_NAME = 0x800
ENCRYPTED = 0x1
"""Bits of an entry's flags."""
LIST_S, LIST_BYTES = 60.0, 2**30
"""Processor time and memory that an archive's list of contents may take; 100,000 entries take 1 s
and 100 MiB."""
INNER_S, INNER_BYTES = 10.0, 2**28
"""The same of an archive that a student packed."""
MAX_LISTED = 50_000
"""Names that all archives of one student may list: more than a submission may have files, because
what a system leaves in folders is listed, too, and not taken."""
MAX_NAME_BYTES = 255
"""Bytes that a file's name has room for on common file systems."""
MAX_PATH_BYTES = 2000
"""Bytes of a name with its folders: a system has room for 4096, the class directory's included."""
BOMB_TIMES, BOMB_BYTES = 100, 100 * 2**20
"""Unpacks to so many times its size, and to so much: a bomb. A notebook packs to a tenth or so."""
DRIVE = re.compile(r"[A-Za-z]:")
PIECE = 2**20
NOT_READ = (OSError, OverflowError, UnicodeError, ValueError, struct.error)
"""What zipfile raises, besides its own, for an offset, a date or a name that cannot be."""


class RefusedError(Exception):
    """Something is refused; the message says why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A file in an archive or a folder."""

    parts: tuple[str, ...]
    """Its name, cut at each slash; none of them leads up."""
    size: int
    """Bytes, as claimed."""
    packed: int
    """Bytes that it occupies in the archive."""
    time: datetime | None
    """When it was last changed, as claimed; local time."""
    opens: Callable[[], BinaryIO]
    refused: str = ""
    """Why it is not taken; empty if it may be."""
    owners: tuple[str, ...] = ()
    """Whose it is and whose the folder it lies in, where that is told; see owners.py."""

    @property
    def name(self) -> str:
        """Its last part."""
        return self.parts[-1]

    @property
    def suffix(self) -> str:
        """The suffix, such as `.ipynb`, in lower case."""
        return os.path.splitext(self.name)[1].lower()

    def below(self, *parts: str) -> Entry:
        """The same file under a different name."""
        return replace(self, parts=parts)


class _Listed(list[ZipInfo]):
    """An archive's entries, counted as zipfile lists them."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def append(self, info: ZipInfo) -> None:
        if len(self) >= self.most:
            raise TooMuchError(f"more names than one student may hand in ({MAX_LISTED:,})")
        super().append(info)


class _ShortZip(ZipFile):
    """An archive whose list of contents is read only as far as it may go."""

    def __init__(self, file: BinaryIO, most: int) -> None:
        self._listed = _Listed(most)
        super().__init__(file)

    @property
    def filelist(self) -> list[ZipInfo]:
        """The entries; the empty list that zipfile begins with is ours."""
        return self._listed

    @filelist.setter
    def filelist(self, _empty: list[ZipInfo]) -> None:
        pass


def open_zip(file: BinaryIO | Path, name: str, most: int | None = None) -> ZipFile:
    """Read an archive's list of contents, within bounds.

    Args:
        file: The archive.
        name: What to call it.
        most: How many names it may still list, of a student's MAX_LISTED; None for a platform's.

    Raises:
        RefusedError: It is not a zip, or its list is too long.
    """
    bounds = (LIST_S, LIST_BYTES) if most is None else (INNER_S, INNER_BYTES)
    try:
        with at_most(*bounds):
            return ZipFile(file) if most is None else _ShortZip(file, most)
    except TooMuchError as fault:
        raise RefusedError(f"{name}: its list of contents takes {fault}. It is not read.") from None
    except (BadZipFile, NotImplementedError, *NOT_READ) as fault:
        raise RefusedError(f"{name} is not a readable zip file ({fault}).") from None


def entries_of_zip(archive: ZipFile) -> Iterator[Entry]:
    """Every file of an archive, including those that are refused."""
    for info in archive.infolist():
        if info.is_dir():
            continue
        parts, why = safe_parts(_name(info))
        time = None
        if info.date_time[0] > 1980:  # the format's zero: no time was written
            with suppress(ValueError):
                time = datetime(*info.date_time)
        yield Entry(
            parts=parts,
            size=info.file_size,
            packed=info.compress_size,
            time=time,
            opens=lambda info=info: archive.open(info),
            refused=why or _why_not(info),
            owners=(owner_in_zip(info),),
        )


def _name(info: ZipInfo) -> str:
    """An entry's name; one in UTF-8 that does not say so, as Canvas writes, is read as UTF-8."""
    if not info.flag_bits & UTF8_NAME:
        with suppress(UnicodeError):
            return unicodedata.normalize("NFC", info.filename.encode("cp437").decode("utf-8"))
    return unicodedata.normalize("NFC", info.filename)


def _why_not(info: ZipInfo) -> str:
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind == stat.S_IFLNK:
        return "is a link; only files are taken"
    if kind not in (0, stat.S_IFREG):
        return "is neither a file nor a folder"
    if info.flag_bits & ENCRYPTED:
        return "is protected by a password; ask for it without one"
    if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        return (
            "is compressed in an unusual way; ask for an ordinary zip, or for the notebook itself"
        )
    if info.file_size > BOMB_BYTES and info.file_size > BOMB_TIMES * info.compress_size:
        return f"would unpack to {info.file_size // 2**20:,} MiB (a zip bomb)"
    return ""


def safe_parts(name: str) -> tuple[tuple[str, ...], str]:
    """A name cut into parts, and why it is refused; empty if it is not.

    >>> safe_parts("ada_1_2_hw.ipynb")
    (('ada_1_2_hw.ipynb',), '')
    >>> safe_parts("../../.bashrc")[1]
    'leads out of the archive'
    """
    pieces = name.replace("\\", "/").split("/")
    parts = tuple(piece for piece in pieces if piece not in ("", "."))
    why = ""
    if not parts:
        why = "has no name"
    elif pieces[0] == "" or DRIVE.match(name):
        why = "has an absolute path"
    elif ".." in parts:
        why = "leads out of the archive"
    elif any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        why = "has a name with characters that cannot be shown"
    elif len(parts) > MAX_FOLDERS_DEEP:
        why = f"lies {len(parts)} folders deep"
    elif any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        why = f"has a name longer than {MAX_NAME_BYTES} bytes"
    elif len(name.encode()) > MAX_PATH_BYTES:
        why = f"has a path longer than {MAX_PATH_BYTES:,} bytes"
    return parts or ("?",), why


def entries_of_folder(folder: Path) -> Iterator[Entry]:
    """Every file below a folder, in order; links are named and not followed."""
    closed: list[OSError] = []
    for place, folders, files in os.walk(folder, onerror=closed.append):
        folders.sort()
        links = [name for name in folders if os.path.islink(os.path.join(place, name))]
        above = owner_name(os.stat(place).st_uid)
        for name in sorted([*files, *links]):
            path = Path(place, name)
            about = path.lstat()
            parts, why = safe_parts(path.relative_to(folder).as_posix())
            if stat.S_ISLNK(about.st_mode):
                why = "is a link; only files are taken"
            elif not stat.S_ISREG(about.st_mode):
                why = "is neither a file nor a folder"
            elif about.st_nlink > 1:
                why = "is a hard link to another file; copy the folder first"
            yield Entry(
                parts=tuple(unicodedata.normalize("NFC", part) for part in parts),
                size=about.st_size,
                packed=about.st_size,
                time=_local_time(about.st_mtime),
                opens=lambda path=path: open(path, "rb", opener=_no_link),  # noqa: SIM115
                refused=why,
                owners=(owner_name(about.st_uid), above),
            )
    for fault in closed:
        parts, why = safe_parts(Path(fault.filename).relative_to(folder).as_posix())
        why = why or f"is a folder that cannot be read ({fault.strerror})"
        yield Entry(parts=parts, size=0, packed=0, time=None, opens=_nothing, refused=why)


def _local_time(seconds: float) -> datetime | None:
    """A file's time; None where there is no such year."""
    try:
        return datetime.fromtimestamp(seconds)
    except (OverflowError, ValueError, OSError):
        return None


def _nothing() -> BinaryIO:
    return BytesIO()


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW)


def copy_out(entry: Entry, to: BinaryIO, most: int, *, is_rest: bool = False) -> int:
    """Write an entry's bytes, and count them as they are read.

    Args:
        entry: Which.
        to: A file open for writing.
        most: Bytes that it may have.
        is_rest: Whether others had their part of them.

    Returns:
        How many they were.

    Raises:
        RefusedError: They are more, or cannot be read.
    """
    count = 0
    for piece in _pieces(entry):
        count += len(piece)
        if count > most:
            room = f"{most // 2**20:,} MiB{' that are left' if is_rest else ''}"
            raise RefusedError(f"{shown(entry.name)} unpacks to more than {room}")
        if count > BOMB_BYTES and count > BOMB_TIMES * max(1, entry.packed):
            raise RefusedError(f"{shown(entry.name)} is a zip bomb")
        to.write(piece)
    return count


def _pieces(entry: Entry) -> Iterator[bytes]:
    """An entry's bytes; what goes wrong with them is said, and not what goes wrong in writing."""
    try:
        with entry.opens() as source:
            while piece := source.read(PIECE):
                yield piece
    except (BadZipFile, zlib.error, EOFError, RuntimeError, *NOT_READ) as fault:
        raise RefusedError(
            f"{shown(entry.name)} cannot be read ({shown(str(fault), 120)})"
        ) from None
