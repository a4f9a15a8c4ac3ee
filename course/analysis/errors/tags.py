"""The file of buckets assigned by hand: {"17": {"bucket": "blur", "target": 4}, ...}."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path


def read_tags(path: Path) -> dict[int, tuple[str, int]]:
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
        return {int(i): (str(e["bucket"]), int(e["target"])) for i, e in entries.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f'{path} is not a file of tags ({error}): expected {{"17": {{"bucket": "blur", '
            '"target": 4}}. Choose another tags_path, or move the file.'
        ) from error


def write_tags(path: Path, changes: Mapping[int, tuple[str | None, int]]) -> None:
    """Change some entries of the file and keep the rest; written completely or not at all."""
    entries = dict(read_tags(path)) if path.exists() else {}
    for index, (bucket, target) in changes.items():
        entries.pop(index, None)
        if bucket:
            entries[index] = (bucket, target)
    plain = {str(i): {"bucket": b, "target": t} for i, (b, t) in sorted(entries.items())}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(plain, indent=1, ensure_ascii=False), encoding="utf-8")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
