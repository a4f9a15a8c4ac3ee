"""What every set of pairs asks of the doctor, and of one relation alone."""

import pytest

from course.debug import diagnose
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.setup import as_setup


def assert_told_apart(pair) -> None:
    """The fault is named first, with what was seen and what to do; its twin has no alarm."""
    faulty, twin = diagnose(pair.make(True)), diagnose(pair.make(False))
    assert faulty.alarms and faulty.alarms[0].id in pair.ids, str(faulty)
    first = faulty.alarms[0]
    assert first.message and first.fix and first.evidence
    assert twin.ok, str(twin)


def said(relation, made) -> list[str]:
    """Classes that one relation alone finds; none where it does not apply."""
    try:
        return [finding.id for finding in relation(Session(as_setup(made)))]
    except NotChecked:
        return []


def cases(**told):
    """Each case with whether it is a fault."""
    return pytest.mark.parametrize(
        ("kind", "is_told"), [(k, told == "faulty") for told, ks in told.items() for k in ks]
    )
