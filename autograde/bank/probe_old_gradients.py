"""03h.probe: a probe that tells a step which uses old gradients from its healthy twin."""

from __future__ import annotations

import inspect

import numpy as np
import torch
from torch import Tensor

from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, kept
from course.debug.twins import BUGGY, HEALTHY, program

PROGRAMS = {
    "never": (("start", "never"), {}),
    "places": (("end", "never", "zeros", "first", "none"), {}),
    "partly": (("start", "third", "model", "head", "body", "short"), {}),
    "chance": (("start", "never", "end"), {"dropout": 0.5}),
    "unseen": (("end", "third", "model", "body", "zeros", "never"), {"dropout": 0.3}),
}
"""Of each part: programs, a bug and a twin at least, and what all of them have."""


KINDS = (("momentum", "adam"), ("sgd", "adamw"))
"""Optimizers of a part's first and second round of programs."""
SHORT = (("body", 0), ("head", 1))
"""Programs, and their round, that have two batches."""


def draw(source: Draw, part: str) -> Case:
    """One program; a part goes twice through its own, in an order that its seed decides.

    `third` does not clear for its third batch. Where that is the last one, as in the first round,
    what it spoils is to be seen in the weights alone; where a fourth one comes, in a loss, too.
    `body` and `head` have two batches in one round each: the second update spoils the last layer
    and no other, or all the others. `short` does not clear for its third batch, the only one that
    is shorter than the first.
    """
    names, shared = PROGRAMS[part]
    lap, position = divmod(source.index, len(names))
    order = torch.Generator().manual_seed(source.generator.initial_seed())
    features, classes = source.integer(2, 4), source.integer(2, 5)
    cleared = names[torch.randperm(len(names), generator=order)[position]]
    sizes = (8, 8, 6, 8) if cleared == "short" else (source.integer(6, 8), 6, 8, 7)
    return {
        "program": {
            "cleared": cleared,
            "kind": KINDS[lap][position % 2], "seed": source.integer(0, 1000),
            "lr": source.uniform(0.2, 0.4), "norm": part == "unseen" and position % 2 == 0,
            "halves": part == "unseen" and position % 3 == 0, **shared,
        },
        "widths": [features, source.integer(4, 7), classes],
        "batches": [
            [source.normal(size, features), source.integers(classes, size)]
            for size in sizes[: 2 if (cleared, lap) in SHORT else 3 + lap]
        ],
    }  # fmt: skip


def run(function, case: Case, device: torch.device) -> Answer:
    """What the probe says of the program, by how that clears."""
    batches = [(x.to(device), y.to(device)) for x, y in case["batches"]]
    named = {f"the {name} of batch {place}": tensor for place, pair in enumerate(batches)
             for name, tensor in zip(("inputs", "targets"), pair, strict=True)}  # fmt: skip
    watch = Watch(data={**named, "the list of batches": batches})
    about = case["program"]
    make = program(**about, widths=tuple(case["widths"]), device=device)
    said = kept(as_flag, function(make, batches))
    clears = {**HEALTHY, **BUGGY}[about["cleared"]]
    return {
        "said": said if isinstance(said, dict) else {f'"{clears}" ({about["kind"]})': said},
        "disturbed": watch.changed(frozenset({"random"})),
    }


def as_flag(value) -> bool:
    """True or False, as Python, NumPy or torch say it."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, Tensor) and value.dtype == torch.bool and value.numel() == 1:
        return bool(value)
    raise AnswerError(f"It returned a {type(value).__name__}; return True or False.")


def weights_after(make, batches, *, clear: bool, seed: int | None = 0, steps: int | None = None):
    """All weights after the steps, with gradients cleared before each or not."""
    if seed is not None:
        torch.manual_seed(seed)
    step, model, _ = make()
    for batch in batches[:steps]:
        for parameter in model.parameters() if clear else ():
            parameter.grad = None
        step(batch)
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def reference(make, batches):
    plain, cleared = (weights_after(make, batches, clear=clear) for clear in (False, True))
    return not torch.equal(plain, cleared)


def by_one_tensor(make, batches):
    """Looks at the first tensor of the weights alone."""
    size = next(make()[1].parameters()).numel()
    plain, cleared = (weights_after(make, batches, clear=clear)[:size] for clear in (False, True))
    return not torch.equal(plain, cleared)


def by_the_last_tensor(make, batches):
    size = list(make()[1].parameters())[-1].numel()
    plain, cleared = (weights_after(make, batches, clear=clear)[-size:] for clear in (False, True))
    return not torch.equal(plain, cleared)


def gradient_left(make, batches):
    step, model, _ = make()
    step(batches[0])
    return any(p.grad is not None and bool(p.grad.any()) for p in model.parameters())


def norm_grows(make, batches):
    step, model, _ = make()
    norms = []
    for batch in batches:
        step(batch)
        norms.append(sum(float(p.grad.norm()) for p in model.parameters() if p.grad is not None))
    return norms[-1] > norms[0]


def reads_the_source(make, batches):
    step, _, _ = make()
    return "zero_grad" not in inspect.getsource(step)


def unseeded(make, batches):
    plain, cleared = (weights_after(make, batches, clear=c, seed=None) for c in (False, True))
    return not torch.equal(plain, cleared)


def two_steps(make, batches):
    plain, cleared = (weights_after(make, batches, clear=c, steps=2) for c in (False, True))
    return not torch.equal(plain, cleared)


def one_step(make, batches):
    plain, cleared = (weights_after(make, batches, clear=c, steps=1) for c in (False, True))
    return not torch.equal(plain, cleared)


def by_losses(make, batches, seed=0):
    def losses(clear):
        if seed is not None:
            torch.manual_seed(seed)
        step, model, _ = make()
        found = []
        for batch in batches:
            if clear:
                model.zero_grad()
            found.append(step(batch))
        return found

    return losses(False) != losses(True)


def by_unseeded_losses(make, batches):
    return by_losses(make, batches, seed=None)


def poisoned_at_first(make, batches):
    def after(poison):
        torch.manual_seed(0)
        step, model, _ = make()
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, poison) if poison else None
        step(batches[0])
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    return not torch.equal(after(0.0), after(100.0))


def poisoned_each_step(make, batches):
    def after(poison):
        torch.manual_seed(0)
        step, model, _ = make()
        for batch in batches:
            for parameter in model.parameters() if poison else ():
                parameter.grad = torch.full_like(parameter, 100.0)
            step(batch)
        return torch.cat([p.detach().flatten() for p in model.parameters()])

    return not torch.equal(after(False), after(True))


def one_program_for_both(make, batches):
    torch.manual_seed(0)
    step, model, _ = make()
    before = [p.detach().clone() for p in model.parameters()]
    for batch in batches:
        step(batch)
    after = [p.detach().clone() for p in model.parameters()]
    return any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))


def repeats_a_batch(make, batches):
    """The same batch from the same weights: but momentum, too, makes two steps differ."""
    torch.manual_seed(0)
    step, model, _ = make()
    start = [p.detach().clone() for p in model.parameters()]
    moves = []
    for _ in range(2):
        with torch.no_grad():
            for parameter, value in zip(model.parameters(), start, strict=True):
                parameter.copy_(value)
        torch.manual_seed(0)
        step(batches[0])
        moves.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    return not torch.allclose(*moves)


def each_step_in_a_fresh_program(make, batches):
    """The same weights and batch in a program just made: but its optimizer remembers nothing."""
    step, model, _ = make()
    for batch in batches:
        fresh_step, fresh, _ = make()
        fresh.load_state_dict(model.state_dict())
        for one in (step, fresh_step):
            torch.manual_seed(0)
            one(batch)
        ours, theirs = (torch.nn.utils.parameters_to_vector(m.parameters()) for m in (model, fresh))
        if not torch.allclose(ours, theirs):
            return True
    return False


def all_but_the_last_step(make, batches):
    return reference(make, batches[:-1])


def cleared_before_the_last(make, batches):
    def after(clear):
        torch.manual_seed(0)
        step, model, _ = make()
        for number, batch in enumerate(batches, start=1):
            if clear and number == len(batches):
                model.zero_grad()
            step(batch)
        return torch.nn.utils.parameters_to_vector(model.parameters()).detach()

    return not torch.allclose(after(False), after(True))


def one_batch(make, batches):
    """The first batch, as often as there are batches."""
    return reference(make, [batches[0] for _ in batches])


def the_other_way_round(make, batches):
    return not reference(make, batches)


def step_by_step(make, batches):
    """Right: all weights compared after each step, gradients set to zeros."""
    torch.manual_seed(1)
    step, model, _ = make()
    seen = []
    for batch in batches:
        step(batch)
        seen += [p.detach().clone() for p in model.parameters()]
    torch.manual_seed(1)
    step, model, _ = make()
    again = []
    for batch in batches:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        step(batch)
        again += [p.detach().clone() for p in model.parameters()]
    return any(not torch.allclose(a, b) for a, b in zip(seen, again, strict=True))


def order_turned(make, batches):
    said = step_by_step(make, batches)
    batches.reverse()
    return said


def last_taken_out(make, batches):
    said = step_by_step(make, batches)
    batches.pop()
    return said


def at_the_step(make, batches):
    """Right: the gradients that optimizer.step() finds, seen by a hook, in both runs."""

    def used(clear):
        torch.manual_seed(0)
        step, model, optimizer = make()
        found = []
        optimizer.register_step_pre_hook(
            lambda *_: found.extend(p.grad.clone() for p in model.parameters())
        )
        for batch in batches:
            if clear:
                optimizer.zero_grad()
            step(batch)
        return torch.cat([grad.flatten() for grad in found])

    return bool((used(True) - used(False)).abs().max() > 1e-6)


def poisoned_each_time(make, batches):
    """Right: what is left over is multiplied; nothing changes where nothing is used."""
    ends = []
    for factor in (1.0, -3.0):
        torch.manual_seed(2)
        step, model, _ = make()
        for batch in batches:
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad *= factor
            step(batch)
        ends.append(torch.nn.utils.parameters_to_vector(model.parameters()).detach())
    return not torch.allclose(*ends)


EXERCISE = Exercise(
    id="03h.probe",
    title="a probe for old gradients",
    source="Engineering module, §5",
    ledger=("T20", "B01", "F27"),
    minutes=20,
    difficulty=3,
    read=("course.debug.twins.program", "B01", "F27"),
    hints=(
        "A healthy program clears `.grad` itself. What could you do to `.grad` between two of its "
        "steps, then, without changing its weights?",
        "Make the program twice, with the same seed. Run it once as it is, and once with every "
        ".grad cleared before every step.",
        "torch.manual_seed(0), make(), the steps; then the same again with p.grad = None before "
        "each step; then compare all weights after the last step.",
    ),
    signature="uses_old_gradients(make, batches)",
    parts=(
        Part("never", "never cleared, or cleared at the start", points=1, cases=4),
        Part("places", "cleared at the end, to zeros, to None, or once", points=1, cases=10),
        Part("partly", "cleared in some steps, or in some layers", points=2, cases=12),
        Part("chance", "with dropout in the model", points=1, cases=6),
        Part("unseen", "programs of a different kind", points=1, cases=12, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"said": "what your probe says about the program"},
    wrong=(
        Wrong("gradient-left", gradient_left,
              "Healthy programs that clear at the start were called buggy. They leave .grad behind "
              "after a step but do not use it. Check whether it is used."),
        Wrong("norm-grows", norm_grows),
        Wrong("unseeded", unseeded,
              "A healthy program with dropout was called buggy: two runs of it draw different "
              "masks. Seed torch before each run."),
        Wrong("one-tensor", by_one_tensor,
              "A program whose last update spoils only its last layer was called healthy. Compare "
              "all weights after the steps.", sure=True),
        Wrong("last-tensor", by_the_last_tensor,
              "A program whose last update spoils all layers but the last was called healthy. "
              "Compare all weights after the steps.", sure=True),
        Wrong("two-steps", two_steps,
              "A program that clears before its first two steps but not before the third was "
              "called healthy. Use all the batches."),
        Wrong("last-step-alone", cleared_before_the_last,
              "A program in which only a step before the last uses old gradients was called "
              "healthy. In one of the two runs, clear before every step."),
        Wrong("all-healthy", one_step,
              "Every program was called healthy. In its first step a program has no old gradients "
              "to use, and its source need not show what it clears: watch what later steps do."),
        Wrong("all-healthy", reads_the_source),
        Wrong("one-batch", one_batch,
              "A program that clears before full batches but not before a short one was called "
              "healthy. Give it all the batches, each once and in order.", sure=True),
        Wrong("last-step-missed", by_losses,
              "A program in which only the last step uses old gradients was called healthy. Run "
              "all the steps and compare the weights after them: no loss is computed after the "
              "last step.",
              sure=True),
        Wrong("last-step-missed", all_but_the_last_step),
        Wrong("by-unseeded-losses", by_unseeded_losses,
              "A program in which only the last step uses old gradients was called healthy, and a "
              "healthy one with dropout was called buggy. Compare weights after all steps, since "
              "no loss is computed after the last step, and seed torch before each run."),
        Wrong("poisoned-at-first", poisoned_at_first,
              "Healthy programs that clear at the end were called buggy: what you put into .grad "
              "before the first step was not left by them."),
        Wrong("poisoned-each-step", poisoned_each_step,
              "A program that clears at the end was called buggy: its step uses what you put into "
              ".grad, but no earlier step left that there. Change only what an earlier step "
              "leaves."),
        Wrong("all-buggy", one_program_for_both,
              "Every program was called buggy. Make two runs of each that differ only in what is "
              "cleared: start each with make(), from the same weights, and with the same seed."),
        Wrong("repeats-a-batch", repeats_a_batch,
              "A healthy program with momentum or Adam was called buggy: its optimizer's state may "
              "change its steps. Compare two runs with the same optimizer state."),
        Wrong("repeats-a-batch", each_step_in_a_fresh_program),
        Wrong("changes-the-list", order_turned),
        Wrong("changes-the-list", last_taken_out),
        Wrong("the-other-way-round", the_other_way_round,
              "Every verdict is reversed: return True for programs that use old gradients."),
    ),
    right=(step_by_step, at_the_step, poisoned_each_time),
)  # fmt: skip

assert all(
    part.cases == len(KINDS) * len(PROGRAMS[part.key][0])
    and {**HEALTHY, **BUGGY}.keys() >= set(PROGRAMS[part.key][0])
    for part in EXERCISE.parts
)
