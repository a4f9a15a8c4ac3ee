"""Turn an archive or a folder of submissions into submitted/STUDENT/ASSIGNMENT/.

    entries -> whose -> which student -> which notebook and which files -> written whole

Existing files stay unless you ask to replace them, and then the old ones are kept in replaced/.
Doing it twice changes nothing the second time. What a student could forge is not trusted: a
timestamp.txt inside an upload is dropped, and a fault in one student's files does not stop the
others.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC
from filecmp import cmp
from itertools import count
from pathlib import Path

from autograde.class_dir import few
from autograde.classroom.collect.entries import (
    MAX_LISTED,
    Entry,
    RefusedError,
    copy_out,
    entries_of_folder,
    entries_of_zip,
    open_zip,
)
from autograde.classroom.collect.naming import Handed, Platform, is_junk, sort_by_student
from autograde.classroom.collect.people import (
    Listed,
    NotMatchedError,
    Person,
    Roster,
    read_time,
)
from autograde.classroom.names import shown, why_no_id
from autograde.classroom.submissions import MAX_FILES, MAX_FOLDER, MAX_NOTEBOOK

TIME = "timestamp.txt"
OTHER_PACKERS = (".rar", ".7z", ".tar", ".gz", ".tgz", ".bz2", ".xz")


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What happened to one student's part of an archive."""

    handed: str
    """The student's name in the archive."""
    student: str = ""
    """The student's id; empty if nobody was matched."""
    how: str = ""
    """How the student was matched."""
    became: str
    """new, replaced, unchanged, kept (what was there before), or not taken."""
    words: str = ""
    """Why a person is needed, if so."""
    time: str = ""
    late: bool = False

    @property
    def needs_you(self) -> bool:
        """Whether something is left to do."""
        return bool(self.words)


def collect(
    folder: Path,
    assignment: str,
    source: Path,
    *,
    listed: Sequence[Listed] = (),
    replaces: bool = False,
    take_new: bool = False,
    file_times: bool = False,
    platform: Platform | None = None,
) -> Iterator[Collected]:
    """Take submissions from an archive or a folder, and report what happened to each.

    Args:
        folder: A class directory, absolute.
        assignment: Its name.
        source: A zip from Canvas or Moodle, the same unpacked, or nbgrader's exchange.
        listed: Canvas's or Moodle's own list of students.
        replaces: Take files that differ from what is there; the old ones are kept in replaced/.
        take_new: Also take students that the gradebook does not know, under the archive's name.
        file_times: Take the files' own times as the times at which they were handed in.
        platform: Where the archive is from; None decides by its names.

    Raises:
        RefusedError: It is not an archive that can be read, its names are not of one platform, or
            the list is another platform's.
        FileNotFoundError: It does not exist.
    """
    roster = Roster(_people(folder), listed, take_new=take_new)
    with ExitStack() as stack:
        entries = _entries(source, stack)
        parts, left = sort_by_student(
            entries, assignment, roster.knows, platform, roster.people.keys()
        )
        _check_lists(parts, listed)
        yield from map(_nobodys, left)
        work = folder / "submitted"
        work.mkdir(exist_ok=True)
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=work, prefix=".collect-")))
        taker = _Taker(folder, assignment, place, replaces=replaces, file_times=file_times)
        for handed, matched in _matched(parts, roster):
            if isinstance(matched, Collected):
                yield matched
                continue
            row = roster.listed.get(handed.number)
            said = replace(handed, time=row.time) if row and row.time else handed
            yield taker.take(said, *matched)


def _check_lists(parts: list[Handed], listed: Sequence[Listed]) -> None:
    """Refuse the list of one platform for an archive of the other: their numbers differ."""
    archives = {one.platform for one in parts} & {"Canvas", "Moodle"}
    if archives and (wrong := {row.platform for row in listed} - archives):
        raise RefusedError(
            f"the names in the archive are {archives.pop()}'s, but --list gives a list of "
            f"{wrong.pop()}'s, which numbers students differently. Give the list of the same "
            "platform"
        )


def _people(folder: Path) -> list[Person]:
    """The gradebook's students, and those who have handed in something before."""
    from nbgrader import api

    from autograde.classroom.gradebook import open_gradebook

    one = api.Student
    with open_gradebook(folder) as gradebook:
        columns = (one.id, one.first_name, one.last_name, one.email, one.lms_user_id)
        rows = gradebook.db.query(*columns).all()
    people = [
        Person(
            id=id, first_name=first or "", last_name=last or "", email=email or "", number=no or ""
        )
        for id, first, last, email, no in rows
    ]
    known = {person.id for person in people}
    before = {path.name for path in (folder / "submitted").glob("*") if path.is_dir()}
    return people + [Person(id=id) for id in sorted(before - known) if not why_no_id(id)]


def _entries(source: Path, stack: ExitStack) -> list[Entry]:
    if source.is_dir():
        return list(entries_of_folder(source))
    if source.suffix.lower() in OTHER_PACKERS:
        raise RefusedError(f"{source}: only zip archives and folders can be read. Unpack it first.")
    file = stack.enter_context(source.open("rb"))
    return list(entries_of_zip(stack.enter_context(open_zip(file, str(source)))))


def _nobodys(entry: Entry) -> Collected:
    name = shown("/".join(entry.parts))
    words = entry.refused or "its name is not one from Canvas or Moodle, and names no student"
    return Collected(handed=name, became="not taken", words=f"{name}: {words}.")


def _matched(
    parts: list[Handed], roster: Roster
) -> Iterator[tuple[Handed, tuple[str, str] | Collected]]:
    """Each part with its student; whoever is meant by two parts gets neither."""
    found: list[tuple[Handed, tuple[str, str] | Collected]] = []
    for handed in parts:
        try:
            found.append((handed, roster.match(handed)))
        except NotMatchedError as fault:
            words = f"{shown(handed.label)}: {fault}."
            found.append((handed, Collected(handed=handed.label, became="not taken", words=words)))
    meant = Counter(who[0] for _, who in found if not isinstance(who, Collected))
    for handed, who in found:
        if isinstance(who, Collected) or meant[who[0]] == 1:
            yield handed, who
            continue
        same = [shown(h.label) for h, w in found if not isinstance(w, Collected) and w[0] == who[0]]
        words = (
            f"{shown(handed.label)}: {few(same)} would all match {who[0]}; none of them was taken."
        )
        yield handed, Collected(handed=handed.label, became="not taken", words=words)


class _Taker:
    """Writes what students handed in into submitted/, one after the other."""

    def __init__(
        self, folder: Path, assignment: str, place: Path, *, replaces: bool, file_times: bool
    ) -> None:
        self.folder, self.assignment, self.place = folder, assignment, place
        self.replaces, self.file_times = replaces, file_times
        self.numbers = count(1)

    def take(self, handed: Handed, student: str, how: str) -> Collected:
        """Take one student's part; a fault in it is said, and leaves what is there as it is."""
        about = Collected(handed=handed.label, student=student, how=how, became="not taken")
        made = self.place / str(next(self.numbers))
        try:
            with ExitStack() as stack:
                files, notebook = choose(self._unpacked(handed, stack), self.assignment)
                self._write(made, files, notebook)
            time, doubt = self._time(handed, notebook)
            return self._settle(replace(about, time=time, late=handed.late), made, doubt)
        except Exception as fault:  # whatever it is, those behind are taken
            shutil.rmtree(made, ignore_errors=True)
            words = (
                f"{shown(handed.label)} ({student}): {_why(fault)}. Nothing from this student was "
                "taken."
            )
            return replace(about, words=words)

    def _unpacked(self, handed: Handed, stack: ExitStack) -> list[Entry]:
        """The files handed in, with those inside a zip next to them.

        Raises:
            RefusedError: One of them is not taken.
        """
        files: list[Entry] = []
        bytes_left, names_left = MAX_FOLDER, MAX_LISTED
        for entry in handed.files:
            if entry.refused:
                raise RefusedError(f"{shown('/'.join(entry.parts))} {entry.refused}")
            if entry.suffix != ".zip":
                files.append(entry)
                continue
            spool = tempfile.TemporaryFile(dir=self.place)  # noqa: SIM115  the stack closes it
            stack.enter_context(spool)
            is_rest = bytes_left < MAX_FOLDER
            bytes_left -= copy_out(entry, spool, bytes_left, is_rest=is_rest)
            inner = stack.enter_context(open_zip(spool, shown(entry.name), names_left))
            names_left -= len(inner.infolist())
            found = [one for one in entries_of_zip(inner) if not is_junk(one)]
            if refused := [one for one in found if one.refused]:
                name = shown("/".join(refused[0].parts))
                raise RefusedError(f"{shown(entry.name)} holds {name}, which {refused[0].refused}")
            above = (*entry.parts[:-1], entry.name.rpartition(".")[0])
            inside = [one.below(*above, *one.parts) for one in found]
            files += [replace(one, time=entry.time) for one in inside]  # theirs are the student's
        return files

    def _write(self, made: Path, files: list[Entry], notebook: Entry) -> None:
        """Write the files as they lie around the notebook, which gets the assignment's name."""
        left = MAX_FOLDER
        for entry in files:
            at = made.joinpath(*entry.parts[len(notebook.parts) - 1 :])
            if entry is notebook:
                at = made / f"{self.assignment}.ipynb"
            at.parent.mkdir(parents=True, exist_ok=True)
            with at.open("xb") as file:
                most = min(left, MAX_NOTEBOOK) if entry is notebook else left
                is_rest = left < MAX_FOLDER and most == left
                left -= copy_out(entry, file, most, is_rest=is_rest)

    def _time(self, handed: Handed, notebook: Entry) -> tuple[str, str]:
        """When it was handed in, as nbgrader writes it, and what is doubtful; both may be empty."""
        if handed.time:
            time = read_time(f"{handed.time} UTC" if _is_bare_exchange(handed) else handed.time)
            if time is None:
                return "", f"its time '{shown(handed.time)}' cannot be read"
        elif self.file_times and notebook.time:
            time = notebook.time.astimezone(UTC)
        else:
            late = "was late according to Canvas, and the archive does not say by how much"
            return "", late if handed.late else ""
        return f"{time:%Y-%m-%d %H:%M:%S} UTC", ""

    def _settle(self, about: Collected, made: Path, doubt: str) -> Collected:
        """Move what was made into submitted/, if it may go there."""
        home = self._home(about.student)
        target = home / self.assignment
        if home.is_symlink() or target.is_symlink():
            raise RefusedError(f"submitted/{shown(about.student)} is a link. Remove it")
        became = "new"
        if target.exists():
            stamped = about.time and (target / TIME).exists()
            same_time = not stamped or (target / TIME).read_text("utf-8").strip() == about.time
            if _same_files(made, target) and same_time:
                if about.time and not stamped:
                    (target / TIME).write_text(f"{about.time}\n", "utf-8")
                return replace(about, became="unchanged")
            if not self.replaces:
                words = f"{about.student}: already has something else in submitted/, which was kept"
                return replace(about, became="kept", words=f"{words}. To take this: --replace.")
            became = "replaced"
        if about.time:
            (made / TIME).write_text(f"{about.time}\n", "utf-8")
        home.mkdir(exist_ok=True)
        if became == "replaced":
            self._keep(target, about.student)  # last: until here it stays where it is
        made.rename(target)
        path = f"submitted/{about.student}/{self.assignment}/{TIME}"
        words = f"{about.student}: {doubt}. Write the time into {path}." if doubt else ""
        return replace(about, became=became, words=words)

    def _home(self, student: str) -> Path:
        return self.folder / "submitted" / student

    def _keep(self, target: Path, student: str) -> None:
        names = (
            self.folder / "replaced" / "submitted" / f"{student}-{self.assignment}-{n}"
            for n in count(1)
        )
        kept = next(name for name in names if not name.exists())
        kept.parent.mkdir(parents=True, exist_ok=True)
        target.rename(kept)


def _why(fault: Exception) -> str:
    if isinstance(fault, RefusedError):
        return str(fault).rstrip(".")
    system = fault.strerror if isinstance(fault, OSError) else ""
    return f"it could not be taken ({shown(system or f'{type(fault).__name__}: {fault}', 200)})"


def _is_bare_exchange(handed: Handed) -> bool:
    """Whether a time is the exchange's without its zone, which is UTC there."""
    return handed.platform == "exchange" and not handed.time[-1:].isalpha()


def choose(files: list[Entry], assignment: str) -> tuple[list[Entry], Entry]:
    """Choose the files to take, and the notebook among them.

    The notebook is the one with the assignment's name, and the last of several attempts; else the
    only one. Files around it come along, but no other notebook, no timestamp and nothing hidden.

    Raises:
        RefusedError: There is none, or it is not clear which.
    """
    notebooks = [entry for entry in files if entry.suffix == ".ipynb"]
    if not notebooks:
        names = few([shown(entry.name) for entry in files], most=3)
        packed = any(entry.suffix in (*OTHER_PACKERS, ".zip") for entry in files)
        hint = "; ask for the notebook, or for a plain zip" if packed else ""
        raise RefusedError(f"no notebook was handed in{f', but {names}' if names else ''}{hint}")
    named = {id(one): n for one in notebooks if (n := attempt(one.name, assignment)) is not None}
    best = max(named.values(), default=None)
    wanted = [one for one in notebooks if named.get(id(one)) == best] if named else notebooks
    if len(wanted) > 1:
        names = few([shown("/".join(one.parts)) for one in wanted], most=4)
        raise RefusedError(f"{len(wanted)} notebooks, and it is unclear which counts: {names}")
    notebook = wanted[0]
    around = notebook.parts[:-1]
    taken = [
        entry
        for entry in files
        if entry.parts[: len(around)] == around
        and entry.suffix not in (".ipynb", ".zip")
        and TIME not in (part.casefold() for part in entry.parts[len(around) :])
    ]
    _check_names(taken, len(around), assignment)
    return [notebook, *taken], notebook


def attempt(name: str, assignment: str) -> int | None:
    """The attempt number in a notebook's name; 0 for the plain name, None for another name.

    >>> attempt("hw.ipynb", "hw"), attempt("hw-2.ipynb", "hw"), attempt("hw (1).ipynb", "hw")
    (0, 2, 1)
    >>> attempt("other.ipynb", "hw") is None
    True
    """
    again = r"(?:[-_ ]?\((?P<a>\d{1,3})\)|[-_ ](?P<b>\d{1,3})|[-_ ]copy(?P<c>\d{0,3}))?\.ipynb"
    match = re.fullmatch(re.escape(assignment) + again, name, re.IGNORECASE)
    if match is None:
        return None
    return int(match["a"] or match["b"] or match["c"] or 0)


def _check_names(files: list[Entry], above: int, assignment: str) -> None:
    """Refuse what one folder could not hold: too much, or two things of one name."""
    if len(files) > MAX_FILES:
        raise RefusedError(f"{len(files):,} files. Ask what they are for")
    names = [tuple(part.casefold() for part in entry.parts[above:]) for entry in files]
    names.append((f"{assignment}.ipynb".casefold(),))
    folders = {name[:depth] for name in names for depth in range(1, len(name))}
    if len(set(names)) < len(names) or folders & set(names):
        twice = [name for name, n in Counter(names).items() if n > 1] or sorted(folders & {*names})
        raise RefusedError(f"two files with the same name: {shown('/'.join(twice[0]))}")


def _same_files(made: Path, there: Path) -> bool:
    """Whether two folders hold the same, but for the time."""

    def files(folder: Path) -> dict[str, Path]:
        found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
        return {path.relative_to(folder).as_posix(): path for path in found}

    ours, theirs = files(made), files(there)
    theirs.pop(TIME, None)
    if ours.keys() != theirs.keys() or any(path.is_symlink() for path in theirs.values()):
        return False
    return all(cmp(path, theirs[name], shallow=False) for name, path in ours.items())
