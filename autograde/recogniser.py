"""Which known mistake a student's answers show: named if the cases single it out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from autograde.answers import Raised
from autograde.exercise import Answer, Case, Exercise, Part, Wrong
from autograde.questions import Oracle, Questions, difference_from
from autograde.verdict import PartResult

EVIDENCE = 2
"""Cases in which a misconception must show before it is named: one may be a coincidence."""
SAYS_RIGHT = re.compile(r"\b(?:is|are|was|were) right\b")
"""A message that calls something right, which two mistakes at once may belie."""
Scope = list[tuple[Part, tuple[str, ...]]]
"""Parts, and the fields in them that are looked at."""


def recognised(
    exercise: Exercise,
    results: list[PartResult],
    asked: dict[str, list[Case]],
    answers: dict[str, list[Any]],
    questions: Questions,
    device: Any,
) -> list[PartResult]:
    """Name for each failed part the misconception that its answers show, if that is certain."""
    failed = [result for result in results if not result.passed]
    if not failed:
        return results
    look = Recogniser(exercise, results, asked, answers, questions, device)
    whole = look.shown_by([(result.part, result.part.fields) for result in failed])
    return [
        result if result.passed else replace(result, shows=whole or look.by_itself(result))
        for result in results
    ]


class Recogniser:
    """Looks for the wrong function in the bank that answers as the student did.

    A misconception is named if its wrong function answers alike, in at least `EVIDENCE` cases in a
    way that is neither right nor trivial, and no other wrong function of the bank does. One that
    answers alike in every case explains all of it. Otherwise each failed part is looked at by
    itself, in the field that differs, since answers often show two mistakes at once. Nothing else
    in the same answers may then deny the name: it explains that field in every part, and it would
    not have failed in a field that came out right. A message that calls something right is left
    out where anything is wrong that the wrong function has right.
    """

    def __init__(
        self,
        exercise: Exercise,
        results: list[PartResult],
        asked: dict[str, list[Case]],
        answers: dict[str, list[Any]],
        questions: Questions,
        device: Any,
    ) -> None:
        self.exercise, self.right, self.device = exercise, questions.right, device
        self.parts = [result.part for result in results]
        self.passed = [result.part for result in results if result.passed]
        self.pairs = {
            key: list(zip(asked[key], given, strict=True)) for key, given in answers.items()
        }
        self.bank = questions.wrong

    def by_itself(self, result: PartResult) -> Wrong | None:
        """What a failed part shows in the field that differs, if nothing else denies it."""
        if result.difference is None:
            return self.shown_by([(result.part, result.part.fields)], deniable=True)
        field = result.difference.field
        looks_at = [(part, (field,)) for part in self.parts if field in (part.fields or (field,))]
        here = (result.part, result.part.fields)  # tells those apart that are alike in the field
        return self.shown_by(looks_at, deniable=True) or self.shown_by(
            [*looks_at, here], deniable=True
        )

    def shown_by(self, scope: Scope, *, deniable: bool = False) -> Wrong | None:
        """The one misconception that the answers show in a scope, or None."""
        candidates = [
            (wrong, oracle)
            for wrong, oracle in self.bank
            if all(self.alike(wrong, oracle, *where, skip_raised=deniable) for where in scope)
            and all(self.alike(wrong, oracle, part, part.fields) for part in self.passed)
            and not (deniable and self.denied(oracle))
            and not (deniable and self.belied(wrong, oracle))
        ]
        names = {wrong.name for wrong, _ in candidates}
        if len(names) != 1 or not any(self.evident(*one, scope) for one in candidates):
            return None
        return next((wrong for wrong in self.exercise.wrong
                     if wrong.name in names and wrong.message), None)  # fmt: skip

    def alike(
        self,
        wrong: Wrong,
        oracle: Oracle,
        part: Part,
        fields: tuple[str, ...],
        *,
        skip_raised: bool = False,
    ) -> bool:
        """Whether it answers alike in all cases of a part, apart from those without a value."""
        valued = [
            (case, answer)
            for case, answer in self.pairs[part.key]
            if not (skip_raised and fields != part.fields and isinstance(answer, Raised))
        ]
        if any(isinstance(answer, Raised) and not _told(wrong, answer) for _, answer in valued):
            return False  # what is blank is like nothing: the wrong function need not be called
        return all(
            _alike(self.exercise, wrong, fields, oracle(case), answer, self.device)
            for case, answer in valued
        )

    def denied(self, oracle: Oracle) -> bool:
        """Whether an answer came, and is right, where the wrong function's is not."""
        return any(
            not isinstance(answer, Raised)
            and (isinstance(oracle(case), Raised) or self.right_where_not(oracle, case, answer, f))
            for part in self.parts
            for case, answer in self.pairs[part.key]
            for f in part.fields or self.right(case)
        )

    def belied(self, wrong: Wrong, oracle: Oracle) -> bool:
        """Whether its message calls something right, and an answer is wrong where its is not."""
        return bool(SAYS_RIGHT.search(wrong.message)) and any(
            not isinstance(answer, Raised)
            and not isinstance(known := oracle(case), Raised)
            and self.differs(case, answer, field)
            and not self.differs(case, known, field)
            for part in self.parts
            for case, answer in self.pairs[part.key]
            for field in part.fields or self.right(case)
        )

    def differs(self, case: Case, answer: Answer, field: str) -> bool:
        """Whether a field of an answer is wrong."""
        right = self.right(case)
        return difference_from(self.exercise, (field,), right, answer, self.device) is not None

    def right_where_not(self, oracle: Oracle, case: Case, answer: Answer, field: str) -> bool:
        """Whether a field of an answer is right, and not that of the wrong function."""
        return self.differs(case, oracle(case), field) and not self.differs(case, answer, field)

    def evident(self, wrong: Wrong, oracle: Oracle, scope: Scope) -> bool:
        """Whether the wrong function shows in enough cases for more than a coincidence."""
        shown = 0
        for part, fields in scope:
            for case, _ in self.pairs[part.key]:
                known = oracle(case)
                if isinstance(known, Raised):
                    shown += bool(wrong.raises)
                elif any(
                    (found := difference_from(
                        self.exercise, (field,), self.right(case), known, self.device
                    ))
                    and not found.trivial
                    for field in fields or self.right(case)
                ):  # fmt: skip
                    shown += 1
        return wrong.sure or shown >= EVIDENCE


def _alike(
    exercise: Exercise,
    wrong: Wrong,
    fields: tuple[str, ...],
    known: Any,
    answer: Any,
    device: Any,
) -> bool:
    """Whether an answer is a wrong function's: equal fields, or an exception known to be its."""
    if isinstance(known, Raised) or isinstance(answer, Raised):
        return all(isinstance(one, Raised) and _told(wrong, one) for one in (known, answer))
    return difference_from(exercise, fields, known, answer, device) is None


def _told(wrong: Wrong, raised: Raised) -> bool:
    """Whether an exception is one that is known to be a wrong function's."""
    about = f"{raised.kind}: {raised.text}"
    return bool(wrong.raises) and re.search(wrong.raises, about) is not None
