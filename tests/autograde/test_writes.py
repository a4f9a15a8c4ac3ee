"""Whether a dictionary was written to: no way of writing is missed."""

import sys

import pytest

from autograde.sandbox import writes
from autograde.sandbox.writes import COUNTED_BY, counts_of

PAIRS = (("a", 1), ("b", 2))
WAYS = {
    "another value": lambda held: held.update(a=3),
    "another value, then the same": lambda held: (held.update(a=3), held.update(a=1)),
    "a new name": lambda held: held.setdefault("c", 3),
    "one name less": lambda held: held.pop("b"),
    "deleted": lambda held: held.__delitem__("a"),
    "joined": lambda held: held.__ior__({"a": 4}),
    "emptied": lambda held: held.clear(),
    "the last one taken": lambda held: held.popitem(),
    "a global assigned": lambda held: exec("a = 5", held),
}


@pytest.mark.parametrize("write", WAYS.values(), ids=WAYS)
def test_each_way_to_write_to_a_dictionary_counts(write):
    held = dict(PAIRS)
    counts = counts_of([{}, held])
    before = counts()
    write(held)
    assert counts() != before


class Base:
    """Looks."""

    def look(self) -> int:
        """One."""
        return 1


class Kind(Base):
    """Looks as well."""

    also = 1


OF_A_CLASS = {
    "by name": lambda: setattr(Kind, "look", None),
    "by type": lambda: type.__setattr__(Kind, "look", None),
    "taken away": lambda: delattr(Kind, "also"),
    "special": lambda: setattr(Kind, "__getattribute__", lambda *_: 1),
}


@pytest.mark.parametrize("write", OF_A_CLASS.values(), ids=OF_A_CLASS)
def test_each_way_to_write_to_a_class_counts(write):
    counts = counts_of([vars(Kind)])
    before, held = counts(), dict(vars(Kind))
    write()
    after = counts()
    for name in vars(Kind).keys() - held.keys():
        delattr(Kind, name)
    Kind.also = 1
    assert after != before


@pytest.mark.skipif(sys.version_info[:2] not in COUNTED_BY, reason="it compares everything")
def test_who_only_reads_is_not_compared():
    held = dict(PAIRS)
    counts = counts_of([held, vars(Base), vars(Kind)])
    before = counts()
    assert [held.get("c"), held["a"], Kind().look(), *dict(held).items()] == [None, 1, 1, *PAIRS]
    assert counts() == before


def test_where_writes_are_not_counted_everything_is_compared_each_time(monkeypatch):
    monkeypatch.setattr(writes, "COUNTED_BY", ())
    counts = counts_of([{"a": 1}])
    assert counts() != counts()
