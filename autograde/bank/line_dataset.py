"""03c.lines: a data set over the lines of a file that is too large to load."""

from __future__ import annotations

import copy
import io
import mmap
import tempfile
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from autograde.bank.common_wrong import named
from autograde.exercise import (
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_index,
    kept,
)
from course.data.lines import LineFile

PLAIN = ("a short line", "the loss is flat", "clip, then step", "x", "one epoch has 313 batches")
LETTERS = ("größer als 0", "η · ∇L, then −", "⌈N / B⌉", "naïve café", "Δ of 3 µs", "ein Übergang")
"""Texts whose letters are one byte each, and texts with letters of two or three."""


def draw(source: Draw, part: str) -> Case:
    """Lines with labels of one, two and three digits, and the order in which to ask for them."""
    texts = [source.choice(LETTERS if part == "bytes" else PLAIN) for _ in range(6)]
    if part == "bytes":
        texts[0] = LETTERS[source.index]  # the very first: all others are shifted by it
    if part == "ends":
        texts = [
            f"{texts[0]}\rand on",
            f" {texts[1]}\r",
            f"{texts[2]} ",
            f"{texts[3]}\tand\t{texts[4]}",
            "",
            "at the end",
        ]
    labels = [source.integer(10, 99) if i % 2 else source.integer(0, 9) for i in range(6)]
    labels[3] += 100
    lines = [f"{label}\t{text}" for label, text in zip(labels, texts, strict=True)]
    order = source.shuffled(range(6))
    return {
        "lines": lines,
        "newline_at_end": part != "ends" or source.index == 1,
        "order": [*order, order[0]],
        "later": source.integer(100, 999),
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """Examples of one file while another data set is open next to it; then of the file, changed.

    Line 2 is overwritten by as many bytes, some of them another text. Before that one data set has
    read it and another has not. A third stands before a line that now holds a newline.
    """
    with tempfile.TemporaryDirectory() as folder:
        text = "\n".join(case["lines"]) + "\n" * case["newline_at_end"]
        path, other = _write(folder, "lines.txt", text), _write(folder, "other.txt", "7\tother\n")
        dataset, unread, beside = function(path), function(path), function(other)
        length, ascii_only = kept(_length, dataset), text.isascii()
        told = {"strict": ascii_only and "\r" not in text, "empty": ascii_only}
        answer = {"length": length, "items": _items(dataset, case["order"], **told)}
        if told["strict"]:
            answer["copied"] = kept(_copied, dataset, case["order"])
            answer |= _changed(case, Path(path), dataset, unread)
        for one in (dataset, unread, beside):
            _close(one)
        return answer


def _close(dataset: Any) -> None:
    """Close the files that a data set has kept open."""
    for value in vars(dataset).values() if hasattr(dataset, "__dict__") else ():
        if isinstance(value, io.IOBase):
            value.close()


def _write(folder: str, name: str, text: str) -> str:
    path = Path(folder, name)
    path.write_bytes(text.encode("utf-8"))
    return str(path)


def _changed(case: Case, path: Path, dataset: Any, unread: Any) -> Answer:
    """What is read after a line was overwritten, by as many bytes as it had."""
    raw = path.read_bytes().split(b"\n")
    label, _, text = raw[2].partition(b"\t")
    later = (str(case["later"]).encode() * len(text))[: len(text)]
    kept(lambda: dataset[2])  # now, so that a file kept open has the line in its buffer
    path.write_bytes(b"\n".join([*raw[:2], label + b"\t" + later, *raw[3:]]))
    read = {"again": _items(dataset, [2]), "first": _items(unread, [2])}
    raw[0] = raw[0].replace(b"\t", b"\n", 1)  # one line more, and no byte moved
    path.write_bytes(b"\n".join(raw))
    return read | {"behind": _items(unread, [3])}


def _length(dataset: Any) -> int:
    if not hasattr(type(dataset), "__len__"):
        raise AnswerError("Your data set has no __len__().")
    return len(dataset)


GARBLED = ["missing: it raised a ValueError, or the text is empty", -1]
"""Stands for a line that was not read, whatever that raised."""


def _items(dataset: Any, order: list[int], *, strict: bool = True, empty: bool = True) -> Any:
    """The examples; where it is not strict, one that raises a ValueError costs only itself.

    If no text is `empty`, one that came back so is half a line, read without its tab.
    """
    return kept(
        lambda: [_example(dataset[i]) if strict else _garbled(dataset, i, empty) for i in order]
    )


def _garbled(dataset: Any, index: int, empty: bool) -> list[Any]:
    try:
        found = _example(dataset[index])
    except ValueError:  # also of decode(): what many slips in counting bytes come to
        return GARBLED
    return found if found[0] or empty else GARBLED


def _example(example: Any) -> list[Any]:
    """The text and the label of one example.

    Raises:
        AnswerError: It is not a pair of a text and a whole number.
    """
    if not isinstance(example, (tuple, list)) or len(example) != 2:
        raise AnswerError(
            f"An example is a pair of text and label; yours is a {type(example).__name__}."
        )
    text, label = example
    if not isinstance(text, str):
        raise AnswerError(f"The first of an example is its text; yours is a {type(text).__name__}.")
    if isinstance(label, str):
        raise AnswerError("The label is a string; make it a number: int(label).")
    return [text, as_index(label, "the label")]


def _copied(dataset: Any, order: list[int]) -> Any:
    """Examples of a copy, as a worker gets one.

    Raises:
        AnswerError: It cannot be copied.
    """
    try:
        other = copy.deepcopy(dataset)
    except TypeError as fault:
        raise AnswerError(
            f"A worker is given a copy of the data set, and copying yours raised '{fault}'. Open "
            "the file where a line is read."
        ) from None
    try:
        return [_example(other[index]) for index in order]
    finally:
        _close(other)


class Reference(Dataset):
    r"""The course's places of the lines; a line read from there, and split at the first tab.

    Its own lines would lose a `\r` at their ends, which is a part of the text here.
    """

    def __init__(self, path: str) -> None:
        self.path, self.starts = path, LineFile(path).starts

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> tuple[str, int]:
        with open(self.path, "rb") as file:
            file.seek(self.starts[index])
            raw = file.read(self.starts[index + 1] - self.starts[index])
        return split(raw.decode("utf-8").removesuffix("\n"))


def reference(path: str) -> Reference:
    """What `run` builds."""
    return Reference(path)


def split(line: str) -> tuple[str, int]:
    label, _, text = line.partition("\t")
    return text, int(label)


class Offsets(Dataset):
    """A right answer; the wrong ones change one method of it."""

    def __init__(self, path):
        self.path, self.starts = path, self.find(path)

    def find(self, path):
        starts, at = [], 0
        with open(path, "rb") as file:
            for line in file:
                starts.append(at)
                at += len(line)
        return starts

    def __len__(self):
        return len(self.starts)

    def read(self, index):
        with open(self.path, "rb") as file:
            file.seek(self.starts[index])
            return file.readline()

    def text_of(self, raw):
        return raw.decode("utf-8").removesuffix("\n")

    def __getitem__(self, index):
        return split(self.text_of(self.read(index)))


class Loaded(Dataset):
    def __init__(self, path):
        self.lines = Path(path).read_bytes().decode().removesuffix("\n").split("\n")

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        return split(self.lines[index])


class Remembered(Offsets):
    def __init__(self, path):
        super().__init__(path)
        self.seen = {}

    def __getitem__(self, index):
        if index not in self.seen:
            self.seen[index] = super().__getitem__(index)
        return self.seen[index]


class InLetters(Offsets):
    """Counts letters, in a file opened with `newline`."""

    newline: str | None = "\n"

    def find(self, path):
        starts, at = [], 0
        with open(path, encoding="utf-8", newline=self.newline) as file:
            for line in file:
                starts.append(at)
                at += len(line)
        return starts


class SplitLines(Offsets):
    """Takes for the end of a line what str.splitlines() does."""

    def find(self, path):
        starts, at = [], 0
        for line in Path(path).read_bytes().decode("utf-8").splitlines(keepends=True):
            starts.append(at)
            at += len(line.encode("utf-8"))
        return starts


class InLettersOfAnyLine(InLetters):
    """Counts letters, and takes \r for the end of a line."""

    newline = None


class InLettersAndReturns(InLetters):
    """Counts letters in a file opened with newline="", where a return also ends a line."""

    newline = ""

    def read(self, index):
        with open(self.path, encoding="utf-8", newline=self.newline) as file:
            file.seek(self.starts[index])
            return file.readline().encode("utf-8")


class KeptOpen(Offsets):
    def __init__(self, path):
        super().__init__(path)
        self.file = open(path, "rb")  # noqa: SIM115

    def read(self, index):
        self.file.seek(self.starts[index])
        return self.file.readline()


class KeptOpenAsText(KeptOpen):
    def __init__(self, path):
        Offsets.__init__(self, path)
        self.file = open(path, encoding="utf-8", newline="\n")  # noqa: SIM115

    def text_of(self, raw):
        return raw.removesuffix("\n")


class Counted(Offsets):
    """Goes through the file from its beginning for each line."""

    def read(self, index):
        with open(self.path, "rb") as file:
            for number, line in enumerate(file):
                if number == index:
                    return line
        return b"-1\t"


class WithNewline(Offsets):
    def text_of(self, raw):
        return raw.decode("utf-8")


class Stripped(Offsets):
    def __getitem__(self, index):
        text, label = super().__getitem__(index)
        return text.strip(), label


class StrippedBehind(Offsets):
    def __getitem__(self, index):
        text, label = super().__getitem__(index)
        return text.rstrip(), label


class StrippedLine(Offsets):
    """Also the tab of an empty text is gone then."""

    def text_of(self, raw):
        return raw.decode("utf-8").strip()

    def __getitem__(self, index):
        label, text = self.text_of(self.read(index)).split("\t", 1)
        return text, int(label)


class StrippedInFront(Offsets):
    def __getitem__(self, index):
        text, label = super().__getitem__(index)
        return text.lstrip(" "), label


class ReturnCut(Offsets):
    def text_of(self, raw):
        return raw.decode("utf-8").rstrip("\r\n")


class ReturnReplaced(Offsets):
    def text_of(self, raw):
        return raw.decode("utf-8").replace("\r\n", "\n").removesuffix("\n")


class CutAtReturn(Offsets):
    def text_of(self, raw):
        return raw.decode("utf-8").splitlines()[0]


class SecondField(Offsets):
    def __getitem__(self, index):
        label, text = self.text_of(self.read(index)).split("\t")[:2]
        return text, int(label)


class LastTab(Offsets):
    def __getitem__(self, index):
        label, _, text = self.text_of(self.read(index)).rpartition("\t")
        return text, int(label.partition("\t")[0])


class SplitAtEveryTab(Offsets):
    def __getitem__(self, index):
        label, text = self.text_of(self.read(index)).split("\t")
        return text, int(label)


class SplitFromTheRight(Offsets):
    def __getitem__(self, index):
        label, text = self.text_of(self.read(index)).rsplit("\t", 1)
        return text, int(label)


class FirstDigit(Offsets):
    def __getitem__(self, index):
        line = self.text_of(self.read(index))
        return line.partition("\t")[2], int(line[0])


class TwoLetterLabel(Offsets):
    """int() drops the tab behind a single digit."""

    def __getitem__(self, index):
        line = self.text_of(self.read(index))
        return line.split("\t", 1)[1], int(line[:2])


class OneLetterLabel(Offsets):
    def __getitem__(self, index):
        line = self.text_of(self.read(index))
        return line[2:], int(line[0])


class FromOne(Offsets):
    def read(self, index):
        return super().read(index - 1)


class NewlinesCounted(Offsets):
    def __len__(self):
        with open(self.path, "rb") as file:
            return file.read().count(b"\n")


class EmptyLineAtTheEnd(Offsets):
    def __len__(self):
        with open(self.path, "rb") as file:
            return len(file.read().split(b"\n"))


class OneLineMore(Offsets):
    def __len__(self):
        return super().__len__() + 1


class JoinedWords(Offsets):
    def __getitem__(self, index):
        label, *words = self.text_of(self.read(index)).split()
        return " ".join(words), int(label)


class LastCut(Offsets):
    """Cuts the last byte of a line, whatever it is."""

    def text_of(self, raw):
        return raw[:-1].decode("utf-8")


class Swapped(Offsets):
    def __getitem__(self, index):
        return super().__getitem__(index)[::-1]


class LabelAsText(Offsets):
    def __getitem__(self, index):
        text, label = super().__getitem__(index)
        return text, str(label)


class WholeLine(Offsets):
    def __getitem__(self, index):
        line = self.text_of(self.read(index))
        return line, split(line)[1]


class SharedPlaces(Offsets):
    """The list of places belongs to the class, so every data set adds to it."""

    shared: list = []  # noqa: RUF012

    def __init__(self, path):
        if len(self.shared) > 30:  # of a case before this one
            self.shared.clear()
        self.path, self.starts = path, self.shared
        self.shared += self.find(path)


class Latin(Offsets):
    def text_of(self, raw):
        return raw.decode("latin-1").removesuffix("\n")


class OneBehind(Offsets):
    """Places noted after a line was read: each is that of the next one."""

    def find(self, path):
        places = super().find(path)
        return [*places[1:], places[-1]]


class ReadsNothing(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return "", 0


class WithTell(Dataset):
    """Places from tell(), lines with readline()."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self.places = [0]
            while file.readline():
                self.places.append(file.tell())

    def __len__(self):
        return len(self.places) - 1

    def __getitem__(self, index):
        with open(self.path, "rb") as file:
            file.seek(self.places[index])
            raw = file.read(self.places[index + 1] - self.places[index])
        label, text = raw.decode().rstrip("\n").split("\t", 1)
        return text, int(label)


class Mapped:
    """Places of the newlines in a map of the file."""

    def __init__(self, path):
        self.path, self.ends = path, array("q")
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as all_:
            at = all_.find(b"\n")
            while at >= 0:
                self.ends.append(at)
                at = all_.find(b"\n", at + 1)
            if not self.ends or self.ends[-1] != len(all_) - 1:
                self.ends.append(len(all_))

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, index):
        start = self.ends[index - 1] + 1 if index else 0
        with open(self.path, "rb") as file:
            file.seek(start)
            raw = file.read(self.ends[index] - start)
        label, _, text = raw.partition(b"\t")
        return text.decode(), torch.tensor(int(label))


class OpenedLate(Offsets):
    """Keeps the file open once it is read, and leaves it out of a copy."""

    def __init__(self, path):
        super().__init__(path)
        self.file = None

    def __getstate__(self):
        return {**vars(self), "file": None}

    def read(self, index):
        self.file = self.file or open(self.path, "rb", buffering=0)  # noqa: SIM115
        self.file.seek(self.starts[index])
        return self.file.readline()


class CutAsText(Offsets):
    """Opened as text with newline="": a return stays, and still ends a line."""

    def read(self, index):
        with open(self.path, encoding="utf-8", newline="") as file:
            file.seek(self.starts[index])
            return file.readline().encode("utf-8")


class AsciiAlone(Offsets):
    def text_of(self, raw):
        return raw.decode("ascii", errors="ignore").removesuffix("\n")


class TabsAsBlanks(Offsets):
    def __getitem__(self, index):
        label, *texts = self.text_of(self.read(index)).split("\t")
        return " ".join(texts), int(label)


class StrippedAndSplit(Offsets):
    """Strips the line first, and so loses an empty text with its tab."""

    def __getitem__(self, index):
        label, text = self.read(index).decode("utf-8").strip().split("\t")
        return text, int(label)


WRONG: tuple[tuple[str, Callable[..., Any], str], ...] = (
    ("loaded", Loaded,
     "A line was overwritten in the file, and the data set returned the old text, although it had "
     "never been asked for that line. Keep only where the lines begin, and read a line in "
     "__getitem__."),
    ("remembered", Remembered,
     "A line was read, then overwritten in the file, and still came back in its first version. "
     "Read it each time: remembered lines add up to the whole file within one epoch."),
    ("in-letters", InLetters,
     "Lines after one with letters such as ü came back cut or shifted. Such a letter takes two or "
     "three bytes, and seek() counts bytes: open the file with 'rb', add up lengths in bytes, and "
     "decode last."),
    ("in-letters", InLettersOfAnyLine, ""),
    ("in-letters", InLettersAndReturns, ""),
    ("other-line-ends", SplitLines,
     "A \\r inside a text was treated as the end of a line. Only \\n ends one: splitlines() splits "
     "at many other characters, a file opened with 'rb' does not."),
    ("kept-open", KeptOpen,
     "A file is kept open: a worker gets no copy of it, and a line that was overwritten after it "
     "was read came back from its buffer. Open the file where a line is read."),
    ("kept-open", KeptOpenAsText, ""),
    ("counted", Counted,
     "After an earlier line was overwritten by one with a newline in it, a later line came back "
     "changed, though its bytes had not moved. Record in __init__ where each line begins, and jump "
     "there with seek()."),
    ("with-newline", WithNewline,
     "The texts still end with their newline. Remove it, and nothing else."),
    ("stripped", Stripped,
     "Blanks or \\r at the ends of a text are gone. strip() removes more than the newline."),
    ("stripped-behind", StrippedBehind,
     "Blanks or \\r at the end of a text are gone. strip() and rstrip() remove more than the "
     "newline, even when applied to the whole line."),
    ("stripped-behind", StrippedLine, ""),
    ("stripped-in-front", StrippedInFront,
     "Blanks at the beginning of a text are gone. The text begins right after the tab: split at "
     "the tab, not at blanks."),
    ("return-cut", ReturnCut,
     "A \\r at the end of a text is gone. It belongs to the text: remove one \\n only, as "
     "removesuffix('\\n') does."),
    ("return-cut", ReturnReplaced, ""),
    ("cut-at-return", CutAtReturn,
     "A text was cut at a \\r inside it: splitlines() treats that as the end of a line, and so "
     "does a file opened as text. Read bytes, 'rb', and remove one \\n from the end."),
    ("cut-at-return", CutAsText, ""),
    ("second-field", SecondField,
     "A text that contains tabs was cut at the first of them. Split the line only once."),
    ("last-tab", LastTab,
     "A text that contains tabs lost everything before the last of them. Split at the first tab."),
    ("one-tab-expected", SplitAtEveryTab,
     "The line whose text contains tabs could not be read, though the others could. Split a line "
     "once, at its first tab: split('\\t', 1)."),
    ("one-tab-expected", SplitFromTheRight, ""),
    ("first-digit", FirstDigit,
     "Labels of two digits came back as their first digit. The label is everything before the "
     "tab."),
    ("two-letter-label", TwoLetterLabel, ""),
    ("one-letter-label", OneLetterLabel,
     "Of a label of two digits only the first was read, and the second is now in the text. The "
     "label is everything before the tab."),
    ("from-one", FromOne,
     "Each index gave the line before it, and index 0 gave the last line. Lines are counted from "
     "0."),
    ("one-behind", OneBehind,
     "Each index gave the line after it. Record the position before the line is read."),
    ("newlines-counted", NewlinesCounted,
     "The number of lines is one too small when the file does not end with a newline: the last "
     "line counts, too."),
    ("empty-line-at-the-end", EmptyLineAtTheEnd,
     "The number of lines is one too large when the file ends with a newline: there is no line "
     "after it."),
    ("one-line-more", OneLineMore,
     "The number of lines is one too large, however the file ends. The position after the last "
     "line does not begin a line."),
    ("joined-words", JoinedWords,
     "Blanks at the ends of a text are gone, and its tabs have become blanks. Split a line once, "
     "at its first tab."),
    ("last-cut", LastCut,
     "The last line lost its last letter, in a file that does not end with a newline."),
    ("swapped", Swapped, ""),
    ("label-as-text", LabelAsText, ""),
    ("whole-line", WholeLine,
     "The texts begin with the label and the tab. The text is what follows the first tab."),
    ("shared-places", SharedPlaces,
     "A second data set, for another file, changed the first one. Create the list in __init__: a "
     "list in the class body is shared by all objects."),
    ("latin", Latin,
     "Letters such as ü came back as two other characters: the file is in UTF-8."),
    ("letters-lost", AsciiAlone,
     "Letters such as ü are gone. Decode as utf-8, in which the file is written, and do not ignore "
     "errors."),
    ("tabs-as-blanks", TabsAsBlanks,
     "The tabs in a text have become blanks. Split a line once, at its first tab."),
    ("stripped-and-split", StrippedAndSplit,
     "A line whose text is empty or holds a tab was not read, and blanks at the ends are gone. "
     "Remove only the \"\\n\", and split once, at the first tab: split(\"\\t\", 1)."),
    ("reads-nothing", ReadsNothing, ""),
)  # fmt: skip


EXERCISE = Exercise(
    id="03c.lines",
    title="a file too large to load",
    source='Lecture 3, "Writing a custom Dataset"',
    kind="class",
    ledger=("C16",),
    minutes=12,
    difficulty=2,
    read=("course.data.LineFile", "C16"),
    hints=(
        "You know two things about a line: where it begins, and that it ends with a newline. Which "
        "of them do you have to store?",
        "open(path, 'rb') yields lines as bytes; their lengths add up to positions for seek(). "
        "What you read back from the file is bytes, too.",
        "__init__: for line in file: starts.append(at); at += len(line). __getitem__: open, "
        "seek(starts[index]), readline(), decode, remove the newline, partition at the tab.",
    ),
    signature="LineDataset(path)",
    parts=(
        Part("items", "the examples and their number", points=1, fields=("length", "items")),
        Part("bytes", "letters of more than one byte", points=1, fields=("length", "items")),
        Part("ends", "blanks, tabs and the end of the file", points=0.5, cases=3,
             fields=("length", "items")),
        Part("asked", "each line read from its place whenever it is asked for", points=1,
             fields=("items", "again", "first", "behind")),
        Part("copies", "a copy for a worker", points=0.5, fields=("items", "copied")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "length": "len() of the data set",
        "items": "the examples asked for, as [text, label],",
        "copied": "the examples of a copy of the data set",
        "again": "line 2, overwritten after it was read,",
        "first": "line 2, overwritten before it was read,",
        "behind": "line 3, after line 0 was overwritten by one with a newline in it,",
    },
    by_hand=(LineFile.__getitem__,),
    wrong=tuple(
        Wrong(name, named(name, function), message, sure=name in ("counted", "in-letters"))
        for name, function, message in WRONG
    ),
    right=(WithTell, Mapped, OpenedLate, Offsets),
)  # fmt: skip
