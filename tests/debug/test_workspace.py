"""The workspace check, against the packaging library and against packages that are not there."""

import itertools

import pytest
from packaging.version import Version

from course.debug.workspace import numbers, problems

RELEASES = ("2.9", "2.10", "2.10.0", "2.10.1", "2.2.12", "10.0", "3", "2.10.1+cu128", "0.26")


def test_numbers_order_releases_as_the_packaging_library_does():
    for a, b in itertools.product(RELEASES, repeat=2):
        plain = [Version(text.partition("+")[0]) for text in (a, b)]
        assert (numbers(a) < numbers(b)) == (plain[0] < plain[1]), (a, b)


def test_here_torch_is_there_and_an_invented_package_is_missing():
    assert problems({"torch": "2.11", "no-such-package": "1.0"}) == {"no-such-package": "missing"}
    assert problems({"torch": "99.0"}) == {"torch": "too old"}


def test_what_is_no_version_is_named():
    with pytest.raises(ValueError, match="'nightly' is not a version"):
        numbers("nightly")
