"""The second round of answers: no point, no harm, a reason, and the next one unaffected."""

import time
from dataclasses import replace

import pytest

from autograde.words import message
from tests.attacks.answers import ANSWERS
from tests.attacks.submissions import HONEST
from tests.attacks.test_attacks import CLIP, FOLLOWED, LIMITS, graded
from tests.attacks.world import ENDS_S
from tests.sampling import sample


@pytest.mark.parametrize("name", sample([*ANSWERS], 2))
def test_a_hostile_answer_earns_nothing_harms_nothing_and_is_told_why(name, world):
    attack = ANSWERS[name]
    started = time.monotonic()
    limits = replace(LIMITS, cell_s=1.0) if name == "pipe-patched" else LIMITS
    verdict, _outputs = graded([world.filled(cell) for cell in attack.cells], limits=limits)
    assert time.monotonic() - started < ENDS_S
    assert world.damage() == []
    reason = " ".join(message(verdict, CLIP).split())
    assert reason.isprintable() and 60 < len(reason) < 2500, reason
    assert attack.says in reason, reason
    assert verdict.points == 0, reason
    if name in sample([*ANSWERS], FOLLOWED):
        assert graded([HONEST])[0].points == 4  # the next submission
