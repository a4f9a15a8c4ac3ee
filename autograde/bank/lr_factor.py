"""04a.warmup-cosine: the factor of the learning rate at a step, warm-up first and then a cosine."""

from __future__ import annotations

import math

import torch

from autograde.bank.common_wrong import common, named
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number, kept
from course.engine.schedules import warmup_cosine_factor


def draw(source: Draw, part: str) -> Case:
    """Steps of one run: the rise, the fall, both without a rise, after the end, with a floor."""
    warmup, total = source.integer(3, 9), source.integer(24, 60)
    floor = source.uniform(0.05, 0.3) if part == "floor" else 0.0
    steps = {
        "rise": [0, 1, warmup - 1, source.integer(0, warmup - 1)],
        "fall": [warmup, warmup + 1, (warmup + total) // 2, total - 1, total],
        "floor": [warmup, (warmup + total) // 2, (warmup + 3 * total) // 4, total],
        "after": [warmup, total + 1, total + warmup, 2 * total, 3 * total - warmup],
        "none": [],
    }[part]
    if part == "none":  # 0 and 1 steps of it; then a rise that begins below the floor
        warmup, floor = ((0, 0.0), (1, 0.1), (5, 0.5))[source.index]
        steps = [0, 1, total // 2, total, total + 3]
    return {"steps": steps, "warmup": warmup, "total": total, "floor": floor}


def run(function, case: Case, device: torch.device) -> Answer:
    """The factor at each step."""
    about = case["warmup"], case["total"], case["floor"]
    steps = case["steps"]
    return {"factors": {str(t): kept(as_number, function(t, *about), "the factor") for t in steps}}


def reference(step, warmup, total, floor):
    """The course's own."""
    return warmup_cosine_factor(step, warmup=warmup, total=total, floor=floor)


def _done(step, warmup, total):
    return min((step - warmup) / (total - warmup), 1.0)


def _cosine(done, floor):
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * done))


def _factor(name, *, rise=lambda step, warmup: (step + 1) / warmup, done=_done, fall=_cosine):
    """The right factor with one thing of it exchanged."""

    def factor(step, warmup, total, floor):
        if step < warmup:
            return rise(step, warmup)
        return fall(done(step, warmup, total), floor)

    return named(name, factor)


def _cut(name, done=_done, fall=_cosine):
    """The same for the fall alone, and the floor from `total` on."""
    falling = _factor(name, done=done, fall=fall)

    def factor(step, warmup, total, floor):
        return floor if step >= total else falling(step, warmup, total, floor)

    return named(name, factor)


def _in_degrees(done, floor):
    return floor + (1 - floor) * 0.5 * (1 + math.cos(180 * done))


def rise_too_long(step, warmup, total, floor):
    if warmup and step <= warmup:
        return (step + 1) / warmup
    return _cosine(_done(step, warmup, total), floor)


def no_rise_at_all(step, warmup, total, floor):
    return _cosine(_done(max(step, warmup), warmup, total), floor)


def floor_under_the_rise(step, warmup, total, floor):
    if step < warmup:
        return floor + (1 - floor) * (step + 1) / warmup
    return _cosine(_done(step, warmup, total), floor)


def not_below_the_floor(step, warmup, total, floor):
    if step < warmup:
        return max(floor, (step + 1) / warmup)
    return _cosine(_done(step, warmup, total), floor)


def always_a_rise(step, warmup, total, floor):
    return min((step + 1) / warmup, _cosine(_done(max(step, warmup), warmup, total), floor))


def rise_times_cosine(step, warmup, total, floor):
    return min((step + 1) / max(warmup, 1), 1.0) * _cosine(min(step / total, 1.0), floor)


def rise_goes_on(step, warmup, total, floor):
    rise = (step + 1) / warmup if warmup else 1.0
    return rise * _cosine(_done(max(step, warmup), warmup, total), floor)


def rise_goes_on_without_warmup(step, warmup, total, floor):
    return rise_goes_on(step, max(warmup, 1), total, floor)


def compares_the_rise(step, warmup, total, floor):
    rise = (step + 1) / warmup
    return rise if rise < 1 else _cosine(_done(step, warmup, total), floor)


def rise_too_short(step, warmup, total, floor):
    if step < warmup - 1:
        return (step + 1) / warmup
    return _cosine(_done(step, warmup, total), floor)


def in_two_branches(step, warmup, total, floor):
    if step < warmup:
        return (step + 1) / warmup
    done = (step - warmup) / (total - warmup)
    return floor + (1 - floor) * (1 + math.cos(math.pi * min(done, 1.0))) / 2


def three_branches(step, warmup, total, floor):
    if step >= total:
        return floor
    if step < warmup:
        return (1 + step) / warmup
    angle = math.pi * (step - warmup) / (total - warmup)
    return (1 + floor) / 2 + (1 - floor) / 2 * math.cos(angle)


def with_torch(step, warmup, total, floor):
    if step < warmup:
        return torch.tensor((step + 1) / warmup, dtype=torch.float64)
    done = torch.tensor((step - warmup) / (total - warmup), dtype=torch.float64).clamp(max=1.0)
    return torch.lerp(done.new_tensor(floor), done.new_ones(()), torch.cos(done * math.pi / 2) ** 2)


EXERCISE = Exercise(
    id="04a.warmup-cosine",
    title="warm-up, then a fall along a cosine",
    source='Annotated-loop essay, "Learning rate schedules"',
    ledger=("X55", "N26", "N28", "T18"),
    minutes=10,
    difficulty=2,
    read=("course.engine.schedules", "N28", "N26"),
    hints=(
        "There are two formulas, with an `if` between them. First sketch the factor against the "
        "step.",
        "For the fall, let `done` run from 0 at step = warmup to 1 at step = total, and stay 1.",
        "(step + 1) / warmup below warmup; else floor + (1 - floor) * (1 + cos(pi * done)) / 2.",
    ),
    signature="lr_factor(step, warmup, total, floor)",
    parts=(
        Part("rise", "the warm-up", points=1, fields=("factors",)),
        Part("fall", "the fall to 0", points=1, fields=("factors",)),
        Part("floor", "the fall to a floor", points=0.5, fields=("factors",)),
        Part("after", "steps after the end", points=0.5, fields=("factors",)),
        Part("none", "no warm-up, or one of a single step or with a floor", 1, hidden=True, cases=3,
             fields=("factors",)),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"factors": "the factor at step"},
    wrong=(
        Wrong(
            "begins-at-0",
            _factor("begins_at_0", rise=lambda step, warmup: step / warmup),
            "The first step has the factor 0 and would move nothing. The rise should begin at 1 / "
            "warmup: (step + 1) / warmup.",
            sure=True,
        ),
        Wrong(
            "no-rise",
            no_rise_at_all,
            "The factor is 1 all through the warm-up. It should rise there from 1 / warmup to 1.",
            sure=True,
        ),
        Wrong(
            "rise-too-long",
            rise_too_long,
            "At step = warmup the factor is above 1: the rise was still used. It is only for step "
            "< warmup.",
            sure=True,
        ),
        Wrong(
            "rise-too-short",
            compares_the_rise,
            "The last step of the warm-up got the cosine's value, a little below 1. The rise is "
            "for every step < warmup: check that first, which also keeps warmup = 0 out of the "
            "division.",
            raises="ZeroDivisionError",
            sure=True,
        ),
        Wrong("rise-too-short", rise_too_short, sure=True),
        Wrong(
            "rise-a-step-flat",
            _factor("flat", rise=lambda step, warmup: (step + 1) / (warmup + 1)),
            "The rise does not reach 1. In the last step of the warm-up, (step + 1) / warmup is 1.",
        ),
        Wrong(
            "rounded-down",
            _factor("rounded_down", rise=lambda step, warmup: (step + 1) // warmup),
            "The rise was rounded down to a whole number: / divides, // rounds.",
            sure=True,
        ),
        Wrong(
            "cosine-from-the-start",
            _factor("from_the_start", done=lambda step, warmup, total: min(step / total, 1.0)),
            "The cosine counted from step 0, so after the warm-up it had already begun. Count "
            "from warmup: (step - warmup) / (total - warmup).",
        ),
        Wrong(
            "cosine-a-step-early",
            _factor("a_step_early", done=lambda step, warmup, total: min(
                (step + 1 - warmup) / (total - warmup), 1.0)),
            "At step = warmup the cosine had already begun; the factor should be 1 there. Only "
            "the rise has + 1; the fall is (step - warmup) / (total - warmup).",
        ),
        Wrong(
            "ends-too-late",
            _factor("late", done=lambda step, warmup, total: min((step - warmup) / total, 1.0)),
            "The cosine is as long as the whole run, but it starts after the warm-up. It should "
            "have total - warmup steps.",
        ),
        Wrong("ends-too-late", _cut("late_and_cut", lambda step, warmup, total: (
            step - warmup) / total)),
        Wrong(
            "ends-too-early",
            _factor("early", done=lambda step, warmup, total: min(
                (step - warmup) / (total - warmup - 1), 1.0)),
            "The cosine reaches its end one step too early. (step - warmup) / (total - warmup) is "
            "1 at step = total.",
        ),
        Wrong(
            "ends-a-step-late",
            _factor("a_step_late", done=lambda step, warmup, total: min(
                (step - warmup) / (total - warmup + 1), 1.0)),
            "The cosine reaches its end one step too late. (step - warmup) / (total - warmup) is 1 "
            "at step = total.",
        ),
        Wrong(
            "climbs-again",
            _factor("climbs", done=lambda step, warmup, total: (step - warmup) / (total - warmup)),
            "After the end the factor climbs again, as a cosine does. Keep it at the floor: let "
            "(step - warmup) / (total - warmup) be at most 1.",
        ),
        Wrong(
            "whole-wave",
            _factor("wave", fall=lambda done, floor: _cosine(2 * done, floor)),
            "That is a whole wave, down and up again. Use half a wave: the cosine of pi * (step - "
            "warmup) / (total - warmup).",
        ),
        Wrong("whole-wave", _cut("wave_and_cut", fall=lambda done, at: _cosine(2 * done, at))),
        Wrong(
            "quarter-wave",
            _factor("quarter", fall=lambda done, floor: floor
                    + (1 - floor) * math.cos(math.pi / 2 * done)),
            "That is a quarter of a wave. Use half a wave: (1 + cos(pi * share)) / 2, where share "
            "is (step - warmup) / (total - warmup).",
        ),
        Wrong(
            "straight-down",
            _factor("straight", fall=lambda done, floor: floor + (1 - floor) * (1 - done)),
            "The factor falls along a straight line. Take (1 + cos(pi * share)) / 2, where share "
            "is (step - warmup) / (total - warmup).",
        ),
        Wrong(
            "not-halved",
            _factor("not_halved", fall=lambda done, floor: floor
                    + (1 - floor) * (1 + math.cos(math.pi * done))),
            "The fall begins at 2: 1 + cos goes from 2 to 0. Halve it.",
        ),
        Wrong(
            "upside-down",
            _factor("upside_down", fall=lambda done, floor: _cosine(1 - done, floor)),
            "It rises where it should fall: use 1 plus the cosine, not 1 minus.",
        ),
        Wrong("upside-down", _cut("rising", fall=lambda done, floor: _cosine(1 - done, floor))),
        Wrong(
            "floor-on-top",
            _factor("on_top", fall=lambda done, floor: floor + _cosine(done, 0.0)),
            "The floor was added on top, so the fall begins above 1. The cosine has only 1 - "
            "floor to fall.",
        ),
        Wrong(
            "floor-on-top-cut-off",
            _factor("on_top_cut", fall=lambda done, floor: min(1.0, floor + _cosine(done, 0.0))),
            "The floor was added on top and the result cut off at 1, so the fall begins late. The "
            "cosine has only 1 - floor to fall: floor + (1 - floor) times the cosine's factor.",
        ),
        Wrong(
            "cut-off-at-the-floor",
            _factor("cut_off", fall=lambda done, floor: max(floor, _cosine(done, 0.0))),
            "The cosine falls to 0 and is cut off at the floor. It should reach the floor only at "
            "the end: floor + (1 - floor) times the cosine's factor.",
        ),
        Wrong(
            "floor-ignored",
            _factor("no_floor", fall=lambda done, floor: _cosine(done, 0.0)),
            "The fall goes down to 0, whatever the floor.",
        ),
        Wrong("in-degrees", _factor("degrees", fall=_in_degrees),
              "math.cos takes radians: half a wave is math.pi, not 180."),
        Wrong("in-degrees", _cut("degrees_and_cut", fall=_in_degrees)),
        Wrong(
            "nothing-after-the-end",
            lambda step, warmup, total, floor: 0.0 if step > total
            else in_two_branches(step, warmup, total, floor),
            "At the end, or after it, the factor is 0, whatever the floor. It stays at the floor.",
            sure=True,
        ),
        Wrong("nothing-after-the-end", lambda step, warmup, total, floor: 0.0 if step >= total
              else in_two_branches(step, warmup, total, floor), sure=True),
        Wrong("rise-times-cosine", rise_times_cosine),
        Wrong(
            "rise-goes-on",
            rise_goes_on,
            "After the warm-up the fall was multiplied by a rise that went on above 1. Keep the "
            "rise at 1 from step = warmup on, or use it for step < warmup alone.",
        ),
        Wrong("rise-goes-on", rise_goes_on_without_warmup),
        Wrong(
            "rise-from-the-floor",
            floor_under_the_rise,
            "The warm-up began above 1 / warmup: the floor belongs to the fall alone.",
            sure=True,
        ),
        Wrong(
            "not-below-the-floor",
            not_below_the_floor,
            "The warm-up stayed at the floor until it rose above it. The floor applies to the "
            "fall alone: below warmup the factor is (step + 1) / warmup.",
            sure=True,
        ),
        Wrong(
            "divides-by-no-warmup",
            always_a_rise,
            "Without a warm-up it divided by 0. First check whether step < warmup.",
            raises="ZeroDivisionError",
            sure=True,
        ),
        *common(in_two_branches, "returns-none", "returns-text", "returns-graph"),
    ),
    right=(in_two_branches, three_branches, with_torch),
)  # fmt: skip
