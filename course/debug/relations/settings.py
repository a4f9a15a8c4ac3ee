"""Relation on optimizer settings: two numbers that are swapped."""

from __future__ import annotations

from collections.abc import Iterator

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session


def betas(session: Session) -> Iterator[Finding]:
    """The average of gradients does not reach further back than that of their squares."""
    groups = [g for o in session.optimizers for g in o.param_groups if "betas" in g]
    if not groups:
        raise NotChecked("no optimizer has two betas")
    for group in groups:
        first, second = (float(beta) for beta in group["betas"][:2])
        if first > second:
            yield Finding(
                "wrong-formula", "warning",
                f"betas = ({first:g}, {second:g}): the gradient's average reaches back "
                f"{1 / (1 - first):.3g} steps and that of its squares {1 / (1 - second):.3g}. The "
                "two betas are swapped.",
                {"betas": [first, second]},
                f"betas=({second:g}, {first:g})",
            )  # fmt: skip
            return
