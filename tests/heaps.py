"""How tests are shared out among processes: a file at a time, the long ones first.

Tests of a file share its fixtures (a class, a site, a JupyterLab), which cost more than the tests.
pytest-xdist's own `--dist loadgroup` writes a test's group into its node id, which pytest 9.2 made
read-only: every test then goes its own way, in silence. So the groups are told here, from the ids.
"""

import re
import zlib
from pathlib import PurePath

from xdist.scheduler import LoadScopeScheduling

SPLIT = {
    "test_attacks.py": 3,
    "test_bank.py": 12,
    "test_kinds.py": 4,
    "test_diagnose.py": 4,
    "test_verdicts.py": 4,
    "test_resume.py": 2,
    "test_sets.py": 4,
}
"""Files whose tests are shared out among processes, and into how many heaps; others stay whole."""
LONGEST = (
    "test_attacks.py",
    "test_classroom.py",
    "test_widgets.py",
    "test_notebooks_look.py",
    "test_book.py",
    "test_notebooks.py",
    "test_bank.py",
    "test_students_html.py",
    "test_handed_in.py",
    "test_resume.py",
    "test_verdicts.py",
    "test_devices.py",
    "test_diagnose.py",
    "test_further.py",
    "test_floods.py",
    "test_keepers.py",
    "test_spinners.py",
    "test_distributed_resume.py",
    "test_kinds_graded.py",
    "test_sandbox.py",
    "test_one_graph.py",
    "test_distributed.py",
    "test_class_killed.py",
)
"""Begun first, so that no process is left with one of them while the other has ended."""
SUBJECT = re.compile(r"\b(?:\d\d[a-z]?\.[a-z-]+|F\d+)")
"""An exercise or a claim in a test's parameters: tests of one use what was computed for it."""


def heap(node_id: str) -> str:
    """The tests that one process runs: a file's, or a part of them by what a test is about."""
    file, _, test = node_id.partition("::")
    parts = SPLIT.get(PurePath(file).name, 1)
    about = SUBJECT.search(test)
    return f"{file}:{zlib.crc32((about[0] if about else test).encode()) % parts}"


def place(node_id: str) -> int:
    """Where in the queue a test's heap stands."""
    file = PurePath(node_id.partition("::")[0]).name
    return LONGEST.index(file) if file in LONGEST else len(LONGEST)


class Heaps(LoadScopeScheduling):
    """Hands each process a heap at a time, in the order in which they were collected."""

    def __init__(self, config, log=None) -> None:
        config.option.loadscopereorder = False  # by number of tests: a class of two takes a minute
        super().__init__(config, log)

    def _split_scope(self, nodeid: str) -> str:
        return heap(nodeid)
