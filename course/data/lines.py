"""Lines of a file: a data set whose file is too large to load.

What is kept in memory is where each line begins: 8 bytes a line, however long the lines are. A line
is read when it is asked for, so the whole file is read once, to find the beginnings, and after that
only what a batch needs.

Places are counted in bytes, since a letter such as ü is two of them. No open file is kept: a
worker started by `spawn` gets the data set as a pickle, which an open file is not, and workers that
are forked would share one place in it and move it away from each other.

Source: Lecture 3, "Writing a custom Dataset"; ledger C16.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset


class LineFile(Dataset):
    """The lines of a text file in UTF-8, one example each, read when they are asked for.

    Args:
        path: Of the file. It must stay as it is while it is read.
        parse: Makes an example from a line without its newline, which is `\\n` or `\\r\\n`; without
            it, the text itself.

    Raises:
        ValueError: The file has no line.

    Source: Lecture 3, "Writing a custom Dataset"; ledger C16.
    """

    def __init__(
        self, path: str | os.PathLike, *, parse: Callable[[str], Any] | None = None
    ) -> None:
        self.path, self.parse = os.fspath(path), parse
        self.starts = array("q", [0])
        """Byte at which each line begins, and the one behind the last line."""
        with open(self.path, "rb") as file:
            for line in file:
                self.starts.append(self.starts[-1] + len(line))
        if len(self) == 0:
            raise ValueError(f"{self.path} has no line: expected one example per line.")

    def __getitem__(self, index: int) -> Any:
        """The example of one line.

        Raises:
            IndexError: There is no such line.
        """
        if not 0 <= index < len(self):
            raise IndexError(f"line {index} of {len(self)}: lines count from 0.")
        with open(self.path, "rb") as file:
            file.seek(self.starts[index])
            raw = file.read(self.starts[index + 1] - self.starts[index])
        text = raw.decode("utf-8").rstrip("\r\n")
        return text if self.parse is None else self.parse(text)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def index_bytes(self) -> int:
        """Memory that the beginnings of all lines take."""
        return len(self.starts) * self.starts.itemsize
