"""01a.tape: a class that remembers how a number was made, and walks back along it."""

from __future__ import annotations

from itertools import count

import torch

from autograde.bank.harness import numpy_only
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, as_attribute
from course.from_scratch import tape


def draw(source: Draw, part: str) -> Case:
    """A small graph: numbers of the leaves, operations on earlier values, where backward starts.

    Numbers have one decimal and are neither 0 nor ±1, so that slopes differ from one another.
    """

    def number() -> float:
        sign = source.choice([-1, 1])
        return sign * source.choice([0.4, 0.6, 1.4, 1.6, 2.2, 2.6, 3.2])

    leaves = [number() for _ in range(4)]
    ops: list[list] = [["*", 0, 1], ["+", 4, 2], ["*", 5, 3]]
    ends = [6]
    if part == "chain":  # two leaves with the same number are still two
        same, other = ((3, 0), (2, 1))[source.index % 2]
        leaves[same] = leaves[other]
    if part == "shared":  # a square and a double; then a value used twice, at two depths
        square = source.index % 2 == 0
        ops = [["*", 0, 0], ["+", 4, 1], ["*", 5, 5], ["+", 6, 6]] if square else \
            [["*", 0, 1], ["*", 4, 2], ["+", 5, 4], ["*", 6, 4], ["+", 7, 3]]  # fmt: skip
        ends = [3 + len(ops)]
    if part == "relu":  # one gate open, one closed, one at 0; the slope that comes is negative once
        leaves = [abs(leaves[0]), -abs(leaves[1]), 0.0, -abs(leaves[3]), abs(number())]
        ops = [["relu", 0], ["relu", 1], ["relu", 2], ["*", 5, 3], ["+", 6, 7], ["+", 9, 8]]
        ops += [["*", 10, 4]] if source.index % 2 else [["*", 10, 3]]
        ends = [4 + len(ops)]
    if part == "again":  # the same end twice; or another end on the same values, and a leaf
        ops = [["*", 0, 1], ["*", 4, 2], ["+", 4, 3], ["*", 5, 6]]
        ends = [7, 7] if source.index % 2 else [7, 6, 0]
    if part == "large":
        ops = [["*", 0, 1], ["+", 4, 2], ["relu", 5], ["+", 6, 4]]
        for at in range(8, 14):
            name = source.choice(["+", "*", "+"])
            ops.append([name, source.choice(range(at)), at - 1 - source.choice([0, 1])])
        ends = [13, 12]
    return {"leaves": leaves, "ops": ops, "ends": ends}


def run(function, case: Case, device: torch.device) -> Answer:
    """Every value's number, and every leaf's gradient after all the backward passes."""
    with numpy_only("in plain Python"):
        values = [function(number) for number in case["leaves"]]
        leaves = values.copy()
        for value in leaves:
            for name in ("data", "grad", "backward", "relu"):
                if not hasattr(value, name):
                    raise AnswerError(
                        f"Value(data) returned a {_kind(value)} that has no `{name}`."
                    )
        for name, *at in case["ops"]:
            a, b = values[at[0]], values[at[-1]]
            values.append(a.relu() if name == "relu" else a * b if name == "*" else a + b)
            if values[-1] is a or values[-1] is b:
                raise AnswerError(f"`{name}` returned one of its operands; return a new Value.")
            if not hasattr(values[-1], "backward"):
                raise AnswerError(f"`{name}` returned a {_kind(values[-1])}; return a new Value.")
        for end in case["ends"]:
            values[end].backward()
        return {
            "data": [_plain(value, "data") for value in values],
            "grads": [_plain(value, "grad") for value in leaves],
        }


def _kind(value: object) -> str:
    return type(value).__name__


def _plain(value: object, name: str) -> float:
    if isinstance(getattr(value, name, None), torch.Tensor):
        raise AnswerError(f".{name} is a tensor; keep a plain number, a float.")
    return as_attribute(value, name)


def reference(data: float) -> tape.Value:
    """What `run` builds."""
    return tape.Value(data)


class Value:
    """A right answer; the wrong ones change a method of it."""

    def __init__(self, data, sources=()):
        self.data, self.grad, self.sources = data, 0.0, sources

    def new(self, data, *sources):
        return type(self)(data, sources)

    def __add__(self, other):
        return self.new(self.data + other.data, (self, 1.0), (other, 1.0))

    def __mul__(self, other):
        return self.new(self.data * other.data, (self, other.data), (other, self.data))

    def relu(self):
        return self.new(max(0.0, self.data), (self, 1.0 if self.data > 0 else 0.0))

    def order(self):
        order, seen = [], set()

        def visit(value):
            if id(value) not in seen:
                seen.add(id(value))
                for source, _ in value.sources:
                    visit(source)
                order.append(value)

        visit(self)
        return order[::-1]

    def start(self, order):
        for value in order:
            if value.sources:
                value.grad = 0.0
        self.grad += 1.0

    def receive(self, slope):
        self.grad += slope

    def backward(self):
        order = self.order()
        self.start(order)
        for value in order:
            for source, local in value.sources:
                source.receive(value.grad * local)


class Overwrites(Value):
    def receive(self, slope):
        self.grad = slope


class OverwritesWithItsStart(Overwrites):
    def start(self, order):
        self.grad = 1.0


class ProductOverwrites(Value):
    """A product sets the slopes of its factors; what else is made of them adds."""

    sets = False

    def __mul__(self, other):
        made = super().__mul__(other)
        made.sets = True
        return made

    def backward(self):
        order = self.order()
        self.start(order)
        for value in order:
            for source, local in value.sources:
                slope = value.grad * local
                source.grad = slope if value.sets else source.grad + slope


class SumOverwrites(ProductOverwrites):
    def __mul__(self, other):
        return Value.__mul__(self, other)

    def __add__(self, other):
        made = super().__add__(other)
        made.sets = True
        return made


class SumTakesTheLeft(Value):
    def __add__(self, other):
        return self.new(self.data + other.data, (self, 1.0))


class OwnFactor(Value):
    def __mul__(self, other):
        return self.new(self.data * other.data, (self, self.data), (other, other.data))


class GateMissing(Value):
    def relu(self):
        return self.new(max(0.0, self.data), (self, 1.0))


class OpenAtZero(Value):
    def relu(self):
        return self.new(max(0.0, self.data), (self, 1.0 if self.data >= 0 else 0.0))


class GateByData(Value):
    def relu(self):
        return self.new(max(0.0, self.data), (self, max(0.0, self.data)))


class PushesWhileItGathers(Value):
    """Each call hands on all that has come so far, so a value used twice hands some on twice."""

    def backward(self):
        self.grad = 1.0
        self.push()

    def push(self):
        for source, local in self.sources:
            source.grad += self.grad * local
            source.push()


class PushesAndAdds(PushesWhileItGathers):
    """The same, where a second pass adds to what the first has left at its end."""

    def backward(self):
        self.grad += 1.0
        self.push()


class PushesFromWhatIsLeft(PushesWhileItGathers):
    """The same, where the end keeps what a first pass has left there."""

    def backward(self):
        self.grad = self.grad or 1.0
        self.push()


class CallsBackwardOfEachSource(Value):
    """The same by recursion: a grad of 0 is taken for the end's."""

    def backward(self):
        self.grad = (self.grad or 1.0) if self.sources else self.grad + 1.0
        for source, local in self.sources:
            source.grad += self.grad * local
            if source.sources:
                source.backward()


class PushesAndLeavesAdd(PushesWhileItGathers):
    def backward(self):
        self.grad = 1.0 if self.sources else self.grad + 1.0
        self.push()


class PushesAfresh(PushesWhileItGathers):
    """The same, where each pass begins with fresh slopes in between."""

    def backward(self):
        self.start(self.order())
        self.push()


class StaleBetween(Value):
    def start(self, order):
        self.grad = 1.0


class StartsAllOver(Value):
    def start(self, order):
        for value in order:
            value.grad = 0.0
        self.grad = 1.0


class OneStepOnly(Value):
    def order(self):
        return [self]


class NeverStarted(Value):
    def start(self, order):
        pass


class WrongWayRound(Value):
    def order(self):
        return super().order()[::-1]


class SetAtLeaves(Value):
    def backward(self, slope=1.0):
        if not self.sources:
            self.grad = slope
        for source, local in self.sources:
            source.backward(slope * local)


class SourcesInADict(Value):
    def new(self, data, *sources):
        return super().new(data, *dict(sources).items())


class TermsInADict(Value):
    """Of a value plus itself one term is left."""

    def __add__(self, other):
        return self.new(self.data + other.data, *{self: 1.0, other: 1.0}.items())


class FirstVisit(Value):
    """Before its sources instead of after them, which is another order than the reverse."""

    def order(self):
        order = []

        def visit(value):
            if value not in order:
                order.append(value)
                for source, _ in value.sources:
                    visit(source)

        visit(self)
        return order


class NearestFirst(Value):
    """By the number of steps from the end, each value once."""

    def order(self):
        order = [self]
        for value in order:
            order += [source for source in dict(value.sources) if source not in order]
        return order


class LeavesWhenMet(NearestFirst):
    """The same, and a leaf keeps what had come when its turn was."""

    def backward(self):
        order = self.order()
        slopes = dict.fromkeys(order, 0.0) | {self: 1.0}
        for value in order:
            value.grad += 0.0 if value.sources else slopes[value]
            for source, local in value.sources:
                slopes[source] += slopes[value] * local


class ReluOffTheTape(Value):
    def relu(self):
        return self.new(max(0.0, self.data))


class LeafLeftOut(Value):
    def backward(self):
        if self.sources:
            super().backward()


class LeafSetToOne(Value):
    def start(self, order):
        super().start(order)
        self.grad = 1.0


class TapeFreed(Value):
    def backward(self):
        order = self.order()
        super().backward()
        for value in order:
            value.sources = ()


class VisitedForGood(Value):
    visited = False

    def order(self):
        order = [value for value in super().order() if not value.visited]
        for value in order:
            value.visited = True
        return order


class FirstCallOnly(Value):
    def backward(self):
        if not getattr(self, "done", False):
            super().backward()
        self.done = True


class EqualNumbersAreOne(Value):
    """Kept under its number, as in a set or a dictionary if a Value has an __eq__ of numbers."""

    def backward(self):
        order, seen = [], set()

        def visit(value):
            if value.data not in seen:
                seen.add(value.data)
                for source, _ in value.sources:
                    visit(source)
                order.append(value)

        visit(self)
        slopes = {self.data: 1.0}
        for value in order[::-1]:
            value.grad += 0.0 if value.sources else slopes[value.data]
            for source, local in value.sources:
                slopes[source.data] = slopes.get(source.data, 0.0) + slopes[value.data] * local


class OverwritesWithin(Value):
    """In the slopes of the pass; leaves add up."""

    def backward(self):
        slopes = {self: 1.0}
        for value in self.order():
            value.grad += 0.0 if value.sources else slopes[value]
            slopes |= {source: slopes[value] * local for source, local in value.sources}


class RootAddsUp(Value):
    def start(self, order):
        self.grad += 1.0


class StaleInside(Value):
    def start(self, order):
        self.grad = 1.0 if self.sources else self.grad + 1.0


class PushesWithin(Value):
    """As `PushesWhileItGathers`, with the slopes of the pass."""

    def backward(self):
        slopes = {}

        def push(value, slope):
            slopes[value] = slopes.get(value, 0.0) + slope
            value.grad += 0.0 if value.sources else slope
            for source, local in value.sources:
                push(source, slopes[value] * local)

        push(self, 1.0)


class PassesAgainAtEveryVisit(Value):
    """Both sources get their share, then each is visited: all that has come is passed on again."""

    fresh = False

    def backward(self):
        if self.fresh:
            self.start(self.order())
        else:
            self.grad = 1.0
        self.visit()

    def visit(self):
        for source, local in self.sources:
            source.grad += self.grad * local
        for source, _ in self.sources:
            source.visit()


class PassesAgainWithFreshSlopes(PassesAgainAtEveryVisit):
    fresh = True


class FirstSlopeOnly(Value):
    """A value in between that was met before is not gone through again."""

    def backward(self):
        seen = set()

        def push(value, slope):
            if not value.sources:
                value.grad += slope
            elif value not in seen:
                seen.add(value)
                for source, local in value.sources:
                    push(source, slope * local)

        push(self, 1.0)


class HalfAtZero(Value):
    def relu(self):
        slope = 0.5 if self.data == 0 else float(self.data > 0)
        return self.new(max(0.0, self.data), (self, slope))


class GatesTheSlope(Value):
    """Negative slopes do not pass a relu, as in guided backpropagation."""

    is_gate = False

    def relu(self):
        made = super().relu()
        made.is_gate = True
        return made

    def backward(self):
        order = self.order()
        self.start(order)
        for value in order:
            slope = max(0.0, value.grad) if value.is_gate else value.grad
            for source, local in value.sources:
                source.receive(slope * local)


class ReluOfItself(Value):
    def relu(self):
        return self if self.data > 0 else super().relu()


class SumInPlace(Value):
    def __add__(self, other):
        old = self.new(self.data, *self.sources)
        self.data, self.sources = self.data + other.data, ((old, 1.0), (other, 1.0))
        return self


class ReluInPlace(Value):
    def relu(self):
        made = super().relu()
        self.data = made.data
        return made


def started_otherwise(overwrites):
    """The same where a pass begins without clearing, or with a slope of 1 at a leaf as well."""
    return [type(overwrites.__name__, (overwrites, start), {}) for start in (
        StaleBetween, LeafSetToOne, RootAddsUp)]  # fmt: skip


class ByPaths:
    """Every path from the end to a leaf brings its product of slopes."""

    def __init__(self, data, parents=()):
        self.data, self.grad, self.parents = data, 0.0, parents

    def __add__(self, other):
        return ByPaths(self.data + other.data, [(self, 1.0), (other, 1.0)])

    def __mul__(self, other):
        return ByPaths(self.data * other.data, [(self, other.data), (other, self.data)])

    def relu(self):
        return ByPaths(max(self.data, 0.0), [(self, float(self.data > 0.0))])

    def backward(self, slope=1.0):
        self.grad += slope
        for parent, local in self.parents:
            parent.backward(slope * local)


class ByAge:
    """Every value has a number; backward goes from the youngest to the oldest."""

    born = count()

    def __init__(self, data):
        self.data, self.grad, self.number, self.pull = data, 0.0, next(self.born), ()

    def _made(self, data, *pull):
        made = ByAge(data)
        made.pull = pull
        return made

    def __add__(self, other):
        return self._made(self.data + other.data, (self, lambda g: g), (other, lambda g: g))

    def __mul__(self, other):
        a, b = self.data, other.data
        return self._made(a * b, (self, lambda g: g * b), (other, lambda g: g * a))

    def relu(self):
        return self._made(max(self.data, 0), (self, lambda g: g if self.data > 0 else 0.0))

    def backward(self):
        waiting = {self.number: (self, 1.0)}
        while waiting:
            value, slope = waiting.pop(max(waiting))
            value.grad += slope
            for source, back in value.pull:
                _, so_far = waiting.get(source.number, (source, 0.0))
                waiting[source.number] = (source, so_far + back(slope))


EXERCISE = Exercise(
    id="01a.tape",
    title="a tape of your own",
    source='Lecture 1, "Autograd by hand"; Module 2, "Autograd"',
    kind="class",
    ledger=("N14", "N15", "S12", "X58"),
    minutes=20,
    difficulty=3,
    read=("N14", "N15", "N17"),
    hints=(
        "A value needs to know two things about each value it was made from: which one it was, "
        "and its own slope with respect to that one.",
        "A value used twice gets slopes from two sides. When may it pass its own slope on?",
        "backward(): order all values so that each comes before those it was made from. In a "
        "dictionary for this pass alone, start with slope 1 here and 0 elsewhere. Go through the "
        "order and add slope · local slope to each source; at a leaf, add the slope to grad.",
    ),
    signature="Value(data)",
    parts=(
        Part("forward", "the values of sums and products", points=1, fields=("data",)),
        Part("chain", "gradients where each value is used once", points=1, fields=("grads",)),
        Part("shared", "gradients where a value is used twice", points=1, fields=("grads",)),
        Part("relu", "relu: one gate open, one closed, one at 0", points=1),
        Part("again", "two backward passes add up", points=1, fields=("grads",)),
        Part("large", "a larger graph with all of these", points=1, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"data": ".data of value", "grads": ".grad of leaf"},
    by_hand=(
        tape.Value.backward,
        torch.autograd.backward,
        torch.autograd.grad,
        "torch.autograd",
        "torch.autograd.graph",
        "torch.autograd.forward_ad",
        "torch._functorch.eager_transforms",
        "sympy.core.expr",
        "sympy.core.function",
        "sympy.polys.polytools",
        "sympy.polys.rings",
        "mpmath.calculus.differentiation",
    ),
    wrong=(
        Wrong(
            "overwrites",
            Overwrites,
            "A value used twice kept only the slope that arrived last. Slopes from all sides add "
            "up: +=, not =.",
        ),
        Wrong(
            "sum-takes-the-left",
            SumTakesTheLeft,
            "The right-hand term of a sum got no slope. Both terms of a + b have slope 1.",
            sure=True,
        ),
        Wrong(
            "own-factor",
            OwnFactor,
            "In a * b each factor got itself as its slope. The slope of a is b, and that of b is "
            "a.",
        ),
        Wrong(
            "gate-missing",
            GateMissing,
            "A slope passed through a relu whose input was negative. Where the input is not above "
            "0 the slope is 0.",
        ),
        Wrong(
            "open-at-zero",
            OpenAtZero,
            "A slope passed through a relu whose input was exactly 0. There torch's slope is 0, "
            "and so is ours.",
        ),
        Wrong(
            "gate-by-data",
            GateByData,
            "The relu multiplied the slope by its own output. An open gate has slope 1.",
        ),
        Wrong(
            "pushes-while-it-gathers",
            PushesWhileItGathers,
            "A value used twice was visited twice, and passed on again what it had passed on "
            "before. Visit each value once, when all of its slope has arrived: go through the "
            "values in order, latest first.",
        ),
        Wrong(
            "stale-between",
            StaleBetween,
            "The second pass also passed on what the first had left in intermediate values. Begin "
            "every pass with fresh slopes; only the leaves add up over passes.",
            sure=True,
        ),
        Wrong(
            "starts-all-over",
            StartsAllOver,
            "The second backward() erased what the first had added. It should add to .grad of the "
            "leaves.",
            sure=True,
        ),
        Wrong(
            "product-overwrites",
            ProductOverwrites,
            "A product replaced the slope that its factors already had, from elsewhere or, in "
            "x * x, from the other factor. Slopes from all sides add up: +=, not =, in __mul__ "
            "as well.",
        ),
        *(Wrong("product-overwrites", value) for value in started_otherwise(ProductOverwrites)),
        Wrong(
            "sum-overwrites",
            SumOverwrites,
            "A sum replaced the slope that its terms already had from elsewhere. Slopes from all "
            "sides add up: +=, not =, in __add__ as well.",
        ),
        *(Wrong("sum-overwrites", value) for value in started_otherwise(SumOverwrites)),
        Wrong("overwrites", SetAtLeaves),
        Wrong("overwrites", OverwritesWithItsStart),
        Wrong("overwrites", OverwritesWithin),
        Wrong("stale-between", RootAddsUp, sure=True),
        Wrong("stale-between", StaleInside, sure=True),
        Wrong("pushes-while-it-gathers", PushesWithin),
        Wrong("pushes-while-it-gathers", PushesAndAdds),
        Wrong("pushes-while-it-gathers", PushesFromWhatIsLeft),
        Wrong("pushes-while-it-gathers", CallsBackwardOfEachSource),
        Wrong("pushes-while-it-gathers", PushesAndLeavesAdd),
        Wrong("pushes-while-it-gathers", PushesAfresh),
        Wrong("pushes-while-it-gathers", PassesAgainAtEveryVisit),
        Wrong("pushes-while-it-gathers", PassesAgainWithFreshSlopes),
        Wrong(
            "first-slope-only",
            FirstSlopeOnly,
            "An intermediate value that is used twice passed on only one of its slopes. Collect "
            "all of them first, then pass on their sum.",
        ),
        Wrong(
            "half-at-zero",
            HalfAtZero,
            "Half of the slope passed through a relu whose input was exactly 0. There torch's "
            "slope is 0, and so is ours.",
        ),
        Wrong(
            "gates-the-slope",
            GatesTheSlope,
            "An open relu let no negative slope pass. What opens or closes it is the number that "
            "went in: an open one has slope 1, whatever arrives.",
            sure=True,
        ),
        Wrong(
            "not-a-new-value",
            ReluOfItself,
            "An operation returned the Value that it was called on. Make a new one each time, so "
            "that the old one stays as it was.",
            raises="AnswerError: .* returned one of its operands",
            sure=True,
        ),
        Wrong(
            "not-a-new-value",
            SumInPlace,
            raises="AnswerError: .* returned one of its operands",
            sure=True,
        ),
        Wrong(
            "one-operand-twice",
            SourcesInADict,
            "x * x kept one of its two slopes: a dictionary holds x once. Keep a list of pairs.",
            sure=True,
        ),
        Wrong("one-term-twice", TermsInADict),
        Wrong(
            "nearest-first",
            NearestFirst,
            "A value passed its slope on before all of it had arrived: the value nearer to the "
            "end is not always the one made later. Append a value to the list after its sources, "
            "and go through the list from its end.",
            sure=True,
        ),
        Wrong("nearest-first", LeavesWhenMet, sure=True),
        Wrong(
            "first-visit",
            FirstVisit,
            "A value passed its slope on before all of it had arrived: in the order of first "
            "visits, a value may come before one that was made from it. Append it after its "
            "sources, and go through the list from its end.",
        ),
        Wrong(
            "relu-off-the-tape",
            ReluOffTheTape,
            "No slope passed through an open relu. It has to remember the value it was made from, "
            "as + and * do.",
            sure=True,
        ),
        Wrong(
            "leaf-left-out",
            LeafLeftOut,
            "backward() on a leaf did not add 1 to its grad. Its slope with respect to itself is "
            "1, and this is added to what is there.",
            sure=True,
        ),
        Wrong("leaf-left-out", LeafSetToOne, sure=True),
        Wrong(
            "second-call-stops",
            FirstCallOnly,
            "The second backward() did not add again what the first one had added. Leave nothing "
            "behind in the values that would stop it: keep the visited values in a local variable.",
            sure=True,
        ),
        Wrong("second-call-stops", TapeFreed),
        Wrong("second-call-stops", VisitedForGood),
        Wrong(
            "one-step-only",
            OneStepOnly,
            "Slopes reached the values that the last one was made from, but went no further. Pass "
            "each value's slope on to its own sources, beginning with the last value.",
            sure=True,
        ),
        Wrong("one-step-only", WrongWayRound, sure=True),
        Wrong("never-started", NeverStarted),
        Wrong(
            "equal-numbers-are-one",
            EqualNumbersAreOne,
            "Two leaves with the same number shared one slope. A Value is not its number: tell "
            "them apart by identity, id(value), and do not write an __eq__.",
        ),
        Wrong(
            "relu-in-place",
            ReluInPlace,
            "relu() changed the number of the value that it was called on. Put the result into a "
            "new Value and leave the old one alone.",
            sure=True,
        ),
    ),
    right=(Value, ByPaths, ByAge),
)
