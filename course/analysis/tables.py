"""Tables as text for other programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A header of `columns`, then one line per row."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
