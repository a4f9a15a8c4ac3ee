"""The results of all jobs, as the pages use them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from book.evidence import Job


@dataclass(frozen=True)
class Evidence:
    """The loaded results of all jobs."""

    worked: Mapping[str, Mapping[str, Any]]
    """By id: `verdict` and `html`."""
    claims: Mapping[str, Mapping[str, Any]]
    """By id: a trial as plain data, `html`, and `decides`."""
    contradictions: Mapping[str, Mapping[str, Any]]
    bugs: Mapping[str, Mapping[str, Any]]
    """By id: `title` and `html`."""
    widgets: Mapping[str, Path]
    """By the widget's id: its page."""
    notebooks: Mapping[str, Path] = field(default_factory=dict)
    """The notebooks that were run, by name."""

    @classmethod
    def read(cls, found: Mapping[Job, Path]) -> Evidence:
        """Load the results of `gather`."""
        one = {job.kind: path for job, path in found.items() if job.name == "-"}
        tried = json.loads(one["claims"].read_text("utf-8"))
        return cls(
            worked=json.loads(one["worked"].read_text("utf-8")),
            claims=tried["claims"],
            contradictions=tried["contradictions"],
            bugs=json.loads(one["museum"].read_text("utf-8")),
            widgets={job.name: path for job, path in found.items() if job.kind == "widget"},
            notebooks={job.name: path for job, path in found.items() if job.kind == "notebook"},
        )
