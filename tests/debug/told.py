"""What every set of pairs asks of the doctor."""

from course.debug import diagnose


def assert_told_apart(pair) -> None:
    """The fault is named first, with what was seen and what to do; its twin has no alarm."""
    faulty, twin = diagnose(pair.make(True)), diagnose(pair.make(False))
    assert faulty.alarms and faulty.alarms[0].id in pair.ids, str(faulty)
    first = faulty.alarms[0]
    assert first.message and first.fix and first.evidence
    assert twin.ok, str(twin)
