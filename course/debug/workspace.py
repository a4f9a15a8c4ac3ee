"""Check that this is the workspace the code expects: its packages are there, and new enough.

    problems({"torch": "2.11", "numpy": "2.0"}) # {} if all is well

A check that cannot fail proves nothing, so also give it a package that does not exist.

Source: Engineering module, lab 1; ledger X23.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version

MISSING, TOO_OLD = "missing", "too old"


def problems(
    needs: Mapping[str, str], version_of: Callable[[str], str] = version
) -> dict[str, str]:
    """Find what is wrong with the installed packages, by name; empty if nothing is.

    Args:
        needs: Lowest version that will do, by package name, e.g. `{"torch": "2.11"}`.
        version_of: Returns the installed version, e.g. `2.11.0+cpu`, or raises
            PackageNotFoundError.

    Returns:
        `missing` or `too old` by name, in the order of `needs`.

    >>> problems({"torch": "1.0", "no-such-package": "1.0"})
    {'no-such-package': 'missing'}
    """
    found = {}
    for name, least in needs.items():
        try:
            installed = version_of(name)
        except PackageNotFoundError:
            found[name] = MISSING
            continue
        if numbers(installed) < numbers(least):
            found[name] = TOO_OLD
    return found


def numbers(release: str) -> tuple[int, ...]:
    """The numbers of a version, for comparison: no trailing zeros, and nothing after a `+`.

    >>> numbers("2.10.0+cu128") > numbers("2.9")
    True
    >>> numbers("2.11") == numbers("2.11.0")
    True

    Raises:
        ValueError: It does not start with a number.
    """
    plain = re.match(r"\d+(\.\d+)*", release)
    if plain is None:
        raise ValueError(f"{release!r} is not a version: expected numbers and dots, e.g. 2.11.0.")
    parts = [int(part) for part in plain[0].split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    return tuple(parts)
