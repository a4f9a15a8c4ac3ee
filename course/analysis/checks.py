"""Checks of the analysis functions' arguments, made before a library fails on them."""

from __future__ import annotations

from collections.abc import Sequence


def names_of_classes(class_names: Sequence[str] | None, num_classes: int) -> tuple[str, ...]:
    """One name per class; the class indices if none are given.

    Raises:
        ValueError: There is not one name per class; a string counts as its letters.
    """
    if class_names is None:
        return tuple(map(str, range(num_classes)))
    names = tuple(map(str, class_names))
    if len(names) != num_classes:
        raise ValueError(
            f"{len(names)} class_names for {num_classes} classes: give one per class, in the order "
            "of the logits."
        )
    return names
