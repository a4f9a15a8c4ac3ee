"""No attack earns a point, harms, or touches the next submission; each gets a clear reason."""

import time
from dataclasses import replace

import pytest

from autograde import bank
from autograde.referee import judge
from autograde.sandbox.isolation import Isolation
from autograde.sandbox.limits import Limits
from autograde.sandbox.session import StudentSession
from autograde.words import message
from tests.attacks.submissions import ATTACKS, HONEST
from tests.attacks.world import ENDS_S, processes_of
from tests.sampling import sample

CLIP = bank.load("03a.clip")
LIMITS = Limits(
    cell_s=12.0, answer_s=1.0, notebook_s=30.0, memory_bytes=2**31, file_bytes=2**26,
    disk_bytes=2**27,
)  # fmt: skip
FOLLOWED = 4
"""After every fourth attack an honest submission is graded; `make thorough`: after each."""
LESS = {
    "endless-cell": Limits(cell_s=1.0, answer_s=1.0),
    "memory-by-many": replace(LIMITS, memory_bytes=2**29),  # filled in time on a slow machine too
}


def graded(cells, submission=None, limits=LIMITS):
    """Run the cells, ask all parts: verdict and the cells' outputs."""
    isolation = Isolation(hidden=(submission,) if submission else ())
    with StudentSession(submission, limits, isolation) as session:
        outputs = [session.run(cell) for cell in cells]

        def ask(case):
            return session.ask(CLIP.id, CLIP.name, case)

        verdict = judge(CLIP, ask, seed=12345, parts="all")
    assert processes_of(session.process.pid) == []
    return verdict, outputs


@pytest.mark.parametrize("name", sample([*ATTACKS], 2))
def test_an_attack_earns_nothing_harms_nothing_and_is_told_why(name, world, tmp_path):
    attack = ATTACKS[name]
    for file, text in attack.files.items():
        (tmp_path / file).write_text(text)
    started = time.monotonic()
    cells = [world.filled(cell) for cell in attack.cells]
    verdict, _outputs = graded(cells, tmp_path, LESS.get(name, LIMITS))
    assert time.monotonic() - started < ENDS_S
    assert verdict.points == 0, message(verdict, CLIP)
    assert world.damage() == []
    reason = " ".join(message(verdict, CLIP).split())
    assert attack.says in reason and len(reason) > 60, reason
    if name in sample([*ATTACKS], FOLLOWED):
        assert graded([HONEST])[0].points == 4  # the next submission


def test_there_are_at_least_forty_attacks():
    assert len(ATTACKS) >= 40
