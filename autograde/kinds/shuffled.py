"""Options in a different order for each student, answered by letter or by key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import torch

from autograde.exercise import AnswerError, Draw

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def permuted(draw: Draw, keys: Sequence[str]) -> list[str]:
    """The keys in a drawn order."""
    order = torch.randperm(len(keys), generator=draw.generator)
    return [keys[i] for i in order.tolist()]


def check_keys(id: str, keys: Sequence[str]) -> None:
    """Keys are words of at least two letters, each once: a letter could be mistaken for a key."""
    assert 2 <= len(keys) <= len(LETTERS) and len(set(map(str.lower, keys))) == len(keys), id
    for key in keys:
        assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", key) and len(key) > 1, (
            f"{id}: '{key}' cannot be a key: at least two of a-z, 0-9 and dashes between them"
        )


def key_of(given: object, shown: Sequence[str]) -> str:
    """The option's key that a student means by a letter or a key.

    Raises:
        AnswerError: It is neither.
    """
    last = LETTERS[len(shown) - 1]
    if not isinstance(given, str):
        raise AnswerError(
            f"{str(given)[:40]!r} is not an option: give a letter from A to {last} as a string, "
            f'e.g. "{last}", or the option\'s key, e.g. "{shown[0]}".'
        )
    word = given.strip().strip(".)(").lower()
    by_key = {key.lower(): key for key in shown}
    by_key |= {letter.lower(): key for letter, key in zip(LETTERS, shown, strict=False)}
    if word in by_key:
        return by_key[word]
    raise AnswerError(
        f"'{given[:40]}' is not an option. The letters go from A to {last}; the keys are "
        f"{', '.join(shown)}."
    )


def keys_of(given: object, shown: Sequence[str]) -> list[str]:
    """Several options: a list, or one string such as "B, D" or "BD".

    Raises:
        AnswerError: One of them is not an option, or is given twice.
    """
    if isinstance(given, str):
        words: Iterable[object] = [word for word in re.split(r"[\s,;>]+", given) if word]
        letters = {letter.lower() for letter in LETTERS[: len(shown)]}
        if len(list(words)) == 1 and set(given.strip().lower()) <= letters:
            words = list(given.strip())
    elif isinstance(given, list):
        words = given
    else:
        raise AnswerError(
            f"{str(given)[:40]!r} should be a list of letters or keys, e.g. "
            f'["A", "{LETTERS[len(shown) - 1]}"].'
        )
    keys = [key_of(word, shown) for word in words]
    twice = [key for key in keys if keys.count(key) > 1]
    if twice:
        raise AnswerError(f"'{twice[0]}' is given twice.")
    return keys
