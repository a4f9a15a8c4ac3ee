"""Lines of a file: a data set whose file is too large to load.

Only the start of each line is kept in memory: 8 bytes per line, however long the lines are. The
whole file is read once to find these starts; after that, lines are read on demand, so only what a
batch needs.

Positions are counted in bytes, because a letter such as ü takes two. No file is kept open: a worker
started by `spawn` gets the data set as a pickle, and an open file cannot be pickled; forked workers
would share one file position and move it for each other.

Source: Lecture 3, "Writing a custom Dataset"; ledger C16.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from typing import Any

from torch.utils.data import Dataset


class LineFile(Dataset):
    r"""The lines of a UTF-8 text file, one example each, read on demand.

    Args:
        path: Path of the file, which must not change while it is in use.
        parse: Makes an example from a line without its newline, which is `\n` or `\r\n`; without
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
        """Byte at which each line starts, and the byte after the last line."""
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
            raise IndexError(f"line {index} of {len(self)}: lines are numbered from 0.")
        with open(self.path, "rb") as file:
            file.seek(self.starts[index])
            raw = file.read(self.starts[index + 1] - self.starts[index])
        text = raw.decode("utf-8").rstrip("\r\n")
        return text if self.parse is None else self.parse(text)

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def index_bytes(self) -> int:
        """Memory used by the line starts."""
        return len(self.starts) * self.starts.itemsize
