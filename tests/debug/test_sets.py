"""Sets of forty faults with their twins and twenty sound programs, each by somebody who had not
seen the doctor.

How many were told apart at first sight stands in each set's own module. The relations that a set
asked for are tried on other dresses of its faults, and on what only looks like them, in the tests
of the relations (test_forms_of_... and others). Older sets have tests of their own.
"""

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

import pytest

from course.debug import diagnose
from tests.debug.faulty import PAIRS, Pair
from tests.debug.sound import SOUND
from tests.debug.told import assert_told_apart
from tests.sampling import sample


@dataclass(frozen=True)
class Set:
    """A set by its name, and what of it `make test` tries."""

    name: str
    told: int = 40
    """Faults that are told apart; the others are in its module's MISSED."""
    every: int = 40
    """Of these, `make test` tries every so many."""
    every_missed: int = 5
    """Likewise of the missed; 0 where they have a test of their own."""

    @property
    def module(self) -> ModuleType:
        return import_module(f"tests.debug.faulty.{self.name}")

    @property
    def pairs(self) -> dict[str, Pair]:
        parts = self.module.PARTS
        return {p.name: p for p in PAIRS if any(hasattr(part, p.name) for part in parts)}

    @property
    def missed(self) -> dict[str, str]:
        """Faults that are not told apart, and why."""
        return getattr(self.module, "MISSED", {})

    @property
    def sound(self) -> list[str]:
        modules = [import_module(f"tests.debug.sound.{self.name}{end}") for end in ("", "_loops")]
        return [name for name in SOUND if any(hasattr(module, name) for module in modules)]


SETS = (
    Set("eleventh", every=20),
    Set("fourteenth"),
    Set("fifteenth", told=39, every=20, every_missed=0),
    Set("sixteenth", told=38, every_missed=2),
    Set("seventeenth", told=39, every_missed=1),
    Set("eighteenth"),
    Set("nineteenth"),
    Set("twentieth"),
    Set("twenty_first", told=39),
    Set("twenty_second"),
    Set("twenty_third", told=39),
    Set("twenty_fourth", told=39),
    Set("twenty_fifth", told=39),
    Set("twenty_sixth"),
    Set("twenty_seventh", told=39),
)
PAIR = {pair.name: pair for pair in PAIRS}
TOLD = [
    (one, name)
    for one in SETS
    for name in sample([name for name in one.pairs if name not in one.missed], one.every)
]
MISSED = [
    (one, name)
    for one in SETS
    if one.every_missed
    for name in sample([*one.missed], one.every_missed)
]


@pytest.mark.parametrize("one", SETS, ids=lambda one: one.name)
def test_all_programs_of_a_set_are_tried(one):
    assert len(one.pairs) == 40 and set(one.missed) <= set(one.pairs)
    assert len(one.pairs) - len(one.missed) == one.told
    assert len(one.sound) == 20  # test_diagnose diagnoses them, with the others that are sound


@pytest.mark.parametrize(("one", "name"), TOLD, ids=[name for _, name in TOLD])
def test_the_fault_is_named_first_and_its_twin_is_left_alone(one, name):
    assert_told_apart(one.pairs[name])


@pytest.mark.parametrize(("one", "name"), MISSED, ids=[name for _, name in MISSED])
def test_what_is_missed_is_not_said_to_be_another_fault(one, name):
    faulty = diagnose(one.pairs[name].make(True))
    assert faulty.ok, f"{one.missed[name]}: {faulty}"


def test_labels_that_moved_are_told_where_a_class_is_lacking_too():
    """The validation part lacks a class whether its names are numbered again or not."""
    faulty, twin = (diagnose(PAIR["refit_labels"].make(bug)) for bug in (True, False))
    assert [a.id for a in faulty.alarms] == ["labels-renamed", "label-shift"], str(faulty)
    assert [a.id for a in twin.alarms] == ["label-shift"], str(twin)


def test_weights_that_come_after_the_mean_are_told_beside_what_follows_from_them():
    faulty = diagnose(PAIR["trust_that_weighs_a_mean"].make(True))
    assert "weighed-after-the-mean" in [a.id for a in faulty.alarms], str(faulty)


@pytest.mark.parametrize(
    "name", ["prefixes_scored_without_a_mask", "point_told_in_place_of_the_noise"]
)
def test_a_twin_that_was_alarmed_at_first_sight_is_left_alone(name):
    report = diagnose(PAIR[name].make(False))
    assert report.ok, str(report)


@pytest.mark.parametrize(
    "name",
    [
        "mc_dropout_of_a_seeded_layer",
        "tied_lm_token_weighted",
        "triplets_of_sorted_batches",
        "density_whose_loss_is_below_zero",
        "hardest_of_the_batch",
    ],
)
def test_a_sound_program_that_was_alarmed_at_first_sight_is_left_alone(name):
    report = diagnose(SOUND[name]())
    assert report.ok, str(report)
