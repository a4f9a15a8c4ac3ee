"""Kinds of exercise whose answer is a value: a number, an option, an order.

One `check`, one verdict, one shape in the bank for all of them. A module of the bank says

    EXERCISE = Number(id=..., inputs=..., answer=..., wrong=(...), ...)
    EXERCISE = Choice(id=..., options=(Option("key", "text", right=True), ...), ...)

and a notebook asks and checks:

    q = ask("03a.windows")          # this student's own inputs
    windows = ...                   # the answer
    check("03a.windows", windows)

    value       what they share: reading a student's value, the verdict, its words
    number      inputs drawn for each student, wrong answers as functions of the inputs
    choice      one option, or all that apply; options shuffled for each student
    order       put in order; a partial order accepts several
    tune        settings that reach a quality in few updates
    write       a text that a person grades with a rubric, and facts in it
    fix         how little of a given loop was changed (an `Exercise` with kind="fix")
"""

from __future__ import annotations

from autograde.kinds.choice import Choice, Choices, Option
from autograde.kinds.number import Number
from autograde.kinds.order import Order, Rule, Step
from autograde.kinds.tune import Tune
from autograde.kinds.value import Reason, ValueExercise
from autograde.kinds.write import Fact, Write

__all__ = [
    "Choice",
    "Choices",
    "Fact",
    "Number",
    "Option",
    "Order",
    "Reason",
    "Rule",
    "Step",
    "Tune",
    "ValueExercise",
    "Write",
]
