"""Which exercise is being asked: a number that the grader writes and a student's process reads.

The guards in a student's process look at it. The page that it stands on is mapped there for reading
only, so nothing that runs in that process, however it got hold of it, can write another number; the
number stays from one question until the next cell is run.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from mmap import PAGESIZE, mmap
from multiprocessing.connection import Connection

from autograde import bank


@cache
def numbers() -> dict[str, int]:
    """Of the exercises that ask for code, from 1; 0 is none."""
    return {id: number for number, id in enumerate(bank.asks_for_code(), start=1)}


class Board:
    """The grader's end; where there is no memory without a name, nothing is written anywhere."""

    def __init__(self) -> None:
        self.descriptor = -1
        if sys.platform.startswith("linux"):
            self.descriptor = os.memfd_create("board")
            os.truncate(self.descriptor, PAGESIZE)
            self.page = mmap(self.descriptor, PAGESIZE)

    def show(self, exercise: str = "") -> None:
        """From now on this exercise is asked; none, while a cell runs."""
        if self.descriptor >= 0:
            self.page[:2] = numbers().get(exercise, 0).to_bytes(2, sys.byteorder)

    def reading_end(self) -> Connection | None:
        """A descriptor to be sent to the student's process, which can't write through it."""
        if self.descriptor < 0:
            return None
        end = os.open(f"/proc/self/fd/{self.descriptor}", os.O_RDONLY)
        return Connection(end, writable=False)

    def close(self) -> None:
        """Give the memory back."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.page.close()
            self.descriptor = -1
