"""The further attacks, as the others: no point, no harm, a reason, and the next one unaffected."""

import math
import time

import pytest
import torch

from autograde.compare import first_difference
from autograde.words import message
from tests.attacks.further import FURTHER
from tests.attacks.submissions import HONEST
from tests.attacks.test_attacks import CLIP, FOLLOWED, graded
from tests.attacks.world import ENDS_S
from tests.sampling import sample


@pytest.mark.parametrize("name", sample([*FURTHER], 2))
def test_a_further_attack_earns_nothing_harms_nothing_and_is_told_why(name, world):
    attack = FURTHER[name]
    started = time.monotonic()
    verdict, _outputs = graded([world.filled(cell) for cell in attack.cells])
    assert time.monotonic() - started < ENDS_S
    assert world.damage() == []
    reason = " ".join(message(verdict, CLIP).split())
    reason.encode()  # it can be written to a file
    assert verdict.points == 0, reason
    assert attack.says in reason and len(reason) > 60, reason
    if name in sample([*FURTHER], FOLLOWED):
        assert graded([HONEST])[0].points == 4  # the next submission


@pytest.mark.parametrize("got", [0, None, math.nan, math.inf, "", [], {}, torch.zeros(0)])
def test_what_is_no_tensor_differs_from_one_and_stops_nothing(got):
    difference = first_difference({"y": torch.ones(2)}, {"y": got})
    assert difference.expected in ("a tensor [2]", "shape [2]")
    assert first_difference({"y": 1.0}, {"y": torch.ones(2)}).got == "a tensor [2]"


@pytest.mark.parametrize("got", [5, True, "text", [1], None, float("nan")])
def test_what_is_no_dict_differs_from_one_and_stops_nothing(got):
    difference = first_difference({"state": {"weight": 1.0}}, {"state": got})
    assert difference.field == "state" and difference.expected == "['weight']"
