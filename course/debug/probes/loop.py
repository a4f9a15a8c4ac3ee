"""Probes on the loop itself: clear, forward, backward, clip, step, schedule, in their order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import median

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import Loop, NotChecked, Session
from course.debug.probes.tape import Event, Tape


def norm(gradients: list[Tensor | None]) -> float:
    """Joint L2 norm; None counts as nothing."""
    return math.sqrt(sum(float(g.double().pow(2).sum()) for g in gradients if g is not None))


def own_loop(session: Session) -> Loop:
    """The user's own loop.

    Raises:
        NotChecked: There is no callable, or it raised before two updates.
    """
    if session.setup.train_step is None and session.setup.train is None:
        raise NotChecked("no train_step or train")
    loop = session.loop
    if loop.error is not None and len(loop.tape.of("stepped")) < 2:
        raise NotChecked(f"the loop raised {type(loop.error).__name__}")
    return loop


def _of_optimizer(tape: Tape, optimizer: object) -> list[int]:
    held = {id(p) for g in optimizer.param_groups for p in g["params"]}  # type: ignore[attr-defined]
    return [i for i, p in enumerate(tape.watched) if id(p) in held]


def _pick(gradients: list[Tensor | None], index: list[int]) -> list[Tensor | None]:
    return [gradients[i] for i in index]


def _windows(tape: Tape, optimizer: object) -> Iterator[tuple[Event | None, list[Event], Event]]:
    """(step before, backwards since, step) for each step of one optimizer."""
    last, since = None, []
    for event in tape.events:
        if event.kind == "backward" and not event.inside_step:
            since.append(event)
        elif event.kind == "step" and event.optimizer is optimizer:
            yield last, since, event
            last, since = event, []


def _steppers(tape: Tape) -> list:
    unique = {id(e.optimizer): e.optimizer for e in tape.of("step")}
    return list(unique.values())


def clearing(session: Session) -> Iterator[Finding]:
    """Each update starts from cleared gradients."""
    tape = own_loop(session).tape
    for optimizer in _steppers(tape):
        index = _of_optimizer(tape, optimizer)
        if not index:
            continue
        if any(e.inside_step for e in tape.of("backward")):
            inner = [e for e in tape.of("backward") if e.inside_step]
            dirty = [e for e in inner[1:] if norm(_pick(e.before, index)) > 0]
            if len(inner) >= 4 and len(dirty) >= 0.8 * (len(inner) - 1):
                yield _not_cleared(len(dirty), len(inner) - 1, inner, index)
            continue
        seen, left = 0, []
        for before, since, _step in _windows(tape, optimizer):
            if before is None or not since:
                continue
            adding = next((e for e in since if _adds(e, index)), None)
            if adding is None:
                continue
            seen += 1
            stale = [i for i in index if _never_cleared(before.gradient[i], since, i)]
            if stale:
                left.append(len(stale))
        if seen >= 3 and len(left) >= 0.8 * seen:
            events = [e for e in tape.of("backward") if "after" in e.info]
            yield _not_cleared(len(left), seen, events, index, part=median(left) < 0.9 * len(index))
            return


def _never_cleared(used: Tensor | None, since: list[Event], i: int) -> bool:
    """The gradient of the step before is there at every backward of this window."""
    found = [event.before[i] for event in since]
    if used is None or any(g is None or not bool(g.any()) for g in found):
        return False
    return torch.allclose(found[0], used, rtol=1e-3, atol=0)


def _adds(event: Event, index: list[int]) -> bool:
    """This backward reaches the optimizer's parameters."""
    before, after = (_pick(event.info.get(k, []), index) for k in ("before", "after"))
    return any(
        b is not None and (a is None or not torch.equal(a, b))
        for a, b in zip(before, after, strict=False)
    )


def _not_cleared(
    dirty: int, seen: int, events: list[Event], index: list[int], part: bool = False
) -> Finding:
    first = norm(_pick(events[0].info.get("after", []), index))
    last = norm(_pick(events[-1].info.get("after", []), index))
    what = "some of the gradients" if part else "the gradients"
    return Finding(
        "missing-zero-grad", "error",
        f"In {dirty} of {seen} updates {what} of the update before were still there when backward "
        "added to them.",
        {"updates_with_old_gradients": dirty, "updates": seen, "norm_first": first,
         "norm_last": last},
        "optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
    )  # fmt: skip


def erased(session: Session) -> Iterator[Finding]:
    """A step finds the gradients that backward made."""
    loop = own_loop(session)
    tape = loop.tape
    for optimizer in _steppers(tape):
        index = _of_optimizer(tape, optimizer)
        lost = seen = late = 0
        for _, since, step in _windows(tape, optimizer):
            made = [e for e in since if norm(_pick(e.info.get("after", []), index)) > 0]
            if not made:
                late += 1
                continue
            seen += 1
            lost += norm(_pick(step.gradient, index)) == 0
        if seen >= 3 and lost >= 0.9 * seen and not _steps_late(tape):
            yield Finding(
                "grads-cleared-before-step", "error",
                f"In {lost} of {seen} updates the gradients were cleared between backward and "
                "step: no weight moves.",
                {"updates_without_gradient": lost, "updates": seen},
                "optimizer.zero_grad()\nloss.backward()\noptimizer.step()",
            )  # fmt: skip
            return
    if _steps_late(tape):
        yield Finding(
            "step-before-backward", "error",
            "optimizer.step() runs between the forward and its backward: it uses the gradients "
            "of an older batch, or none.",
            {"steps": len(tape.of("step")), "backwards": len(tape.of("backward"))},
            "loss.backward()\noptimizer.step()",
        )  # fmt: skip


def _steps_late(tape: Tape) -> bool:
    """forward, step, backward in most calls."""
    late = seen = 0
    state = ""
    for event in tape.events:
        if event.kind == "forward" and event.grad:
            state = "f"
        elif event.kind == "step" and not event.has_closure:
            state = "fs" if state.startswith("f") and "b" not in state else state + "s"
        elif event.kind == "backward" and not event.inside_step:
            seen += 1
            late += state == "fs"
            state += "b"
    return seen >= 3 and late >= 0.8 * seen


def stepping(session: Session) -> Iterator[Finding]:
    """Somebody makes steps, and with the optimizer that was handed in."""
    loop = own_loop(session)
    tape = loop.tape
    steps, backwards = tape.of("step"), tape.of("backward")
    if not steps and len(backwards) >= 8:
        accumulate = int(session.declared.get("accumulate", 1) or 1)
        if accumulate <= len(backwards):
            moved = any(not torch.equal(a, b) for a, b in zip(loop.start, loop.end, strict=False))
            if not moved:
                yield Finding(
                    "no-optimizer-step", "error",
                    f"{len(backwards)} backwards and not one optimizer.step(): no weight moves.",
                    {"backwards": len(backwards), "steps": 0},
                    "optimizer.step()  # after loss.backward()",
                )  # fmt: skip
        return
    if not backwards and len(tape.of("forward")) >= 8 and not tape.of("autograd_grad"):
        yield Finding(
            "no-backward", "error",
            "Forwards and no backward: no gradient is ever made.",
            {"forwards": len(tape.of("forward")), "steps": len(steps)},
            "loss.backward()\noptimizer.step()",
        )  # fmt: skip
        return
    steppers = _steppers(tape)
    strange = [o for o in steppers if all(o is not own for own in session.optimizers)]
    if len(strange) >= 5 and len(strange) >= 0.8 * len(steps):
        yield Finding(
            "optimizer-rebuilt", "error",
            "Every step is made by a new optimizer: momentum and Adam's moments start from zero "
            "each time.",
            {"optimizers": len(strange), "steps": len(steps)},
            "optimizer = torch.optim.Adam(model.parameters())  # once, before the loop",
        )  # fmt: skip


def clip_place(session: Session) -> Iterator[Finding]:
    """Clipping comes after backward and before step."""
    tape = own_loop(session).tape
    clips = tape.of("clip")
    if not clips:
        if session.declared.get("max_grad_norm"):
            yield from _never_clipped(session, tape)
            return
        raise NotChecked("no clipping was seen")
    early = late = partial = good = 0
    unscaled = bool(tape.of("unscale"))
    events = [e for e in tape.events if e.kind in ("clip", "step", "backward", "unscale")]
    events = [e for e in events if not (e.kind == "backward" and e.inside_step)]
    for before, event, after in zip([None, *events], events, [*events[1:], None], strict=False):
        if event.kind != "clip":
            continue
        if norm(event.before) == 0 and (after is None or after.kind == "backward"):
            early += 1
        elif (
            after is not None
            and after.kind == "backward"
            and (before is None or before.kind == "step")
        ) or (before is not None and before.kind == "step" and after is None):
            late += 1
        elif after is not None and after.kind == "unscale":
            early += 1
        elif after is not None and after.kind == "backward":
            partial += 1
        else:
            good += 1
    seen = len(clips)
    if early + late >= 0.7 * seen and seen >= 3:
        where = (
            "before backward, where there are no gradients yet"
            if early > late
            else ("after the step, when the weights have already moved")
        )
        yield Finding(
            "clip-misplaced", "error",
            f"Gradients are clipped {where}: the update is the same as without."
            + (" It also comes before unscale_()." if unscaled and early else ""),
            {"clips": seen, "too_early": early, "too_late": late},
            "loss.backward()\ntorch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)\n"
            "optimizer.step()",
        )  # fmt: skip
    elif partial >= 2 and partial >= good and _changed(clips):
        yield Finding(
            "clip-misplaced", "warning",
            "Gradients are clipped after every micro-batch: a sum of clipped parts is no clipped "
            "sum.",
            {"clips": seen, "inside_windows": partial},
            "if (i + 1) % accum_steps == 0:\n    clip_grad_norm_(model.parameters(), max_norm)\n"
            "    optimizer.step()",
        )  # fmt: skip


def _changed(clips: list[Event]) -> bool:
    return any(norm(e.after) < 0.999 * norm(e.before) for e in clips)


def _never_clipped(session: Session, tape: Tape) -> Iterator[Finding]:
    ceiling = float(session.declared["max_grad_norm"])
    norms = [norm(e.gradient) for e in tape.of("step")]
    above = sum(n > 1.01 * ceiling for n in norms)
    if above >= 2:
        yield Finding(
            "clip-misplaced", "error",
            f"Gradients should be clipped to {ceiling:g}, yet {above} of {len(norms)} steps use "
            "larger ones.",
            {"largest": max(norms), "max_grad_norm": ceiling},
            "torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)  # before step()",
        )  # fmt: skip


def accumulation(session: Session) -> Iterator[Finding]:
    """A window of K micro-batches moves the weights as one batch of all of them."""
    loop = own_loop(session)
    tape = loop.tape
    if not tape.of("step"):
        raise NotChecked("no step was seen")
    windows = list(_batch_windows(loop, session.optimizers[0]))
    full = max((len(w) for w, _ in windows), default=0)
    if full < 2 or sum(len(w) == full for w, _ in windows) < 2:
        raise NotChecked("one batch an update")
    yield from _not_divided(session, windows, full)
    yield from _trailing(windows, full)


def _batch_windows(loop: Loop, optimizer: object) -> Iterator[tuple[list[float], list[int]]]:
    """Share of its own loss with which each micro-batch of a window counted; epochs it spans."""
    shares: list[float] = []
    epochs: list[int] = []
    loss, reduction, iterator, rows, whole = math.nan, "mean", 0, 0, 0
    graph = 0
    ready = False
    for event in loop.tape.events:
        if event.kind == "fetch":
            iterator = event.iterator
            ready = True
        elif event.kind == "loss" and event.graph:
            loss, reduction = event.value, event.reduction
        elif event.kind == "forward" and event.inputs is not None and event.grad:
            rows = len(event.inputs) if event.inputs.dim() else 0
            graph += 1
        elif event.kind == "backward" and not event.inside_step:
            batch = loop.batches[event.call] if loop.unit == "step" and event.call < len(
                loop.batches) else None  # fmt: skip
            first = _first_row_count(batch)
            whole = first or rows
            if reduction == "mean" and loss and math.isfinite(loss) and graph:
                shares.append(event.loss / loss)
                epochs.append(iterator)
            graph = 0
        elif event.kind == "step" and event.optimizer is optimizer:
            distinct = _distinct_batches(loop, event, shares)
            if distinct:
                yield list(shares), list(epochs)
            shares, epochs = [], []
    _ = whole, ready


def _first_row_count(batch: object) -> int:
    from course.debug.probes.tape import _tensors

    first = next(_tensors(batch), None) if batch is not None else None
    return len(first) if first is not None and first.dim() else 0


def _distinct_batches(loop: Loop, step: Event, shares: list[float]) -> bool:
    """The backwards of this window belong to different batches, or to parts of one."""
    events = loop.tape.events
    end = events.index(step) if loop.unit != "step" else None
    if loop.unit == "step":
        position = next(i for i, e in enumerate(events) if e is step)
    else:
        position = end
    since: list[Event] = []
    for event in reversed(events[:position]):
        if event.kind == "step" and event.optimizer is step.optimizer:
            break
        since.append(event)
    backwards = [e for e in since if e.kind == "backward"]
    if len(backwards) != len(shares):
        return False
    if loop.unit == "step":
        calls = {e.call for e in backwards}
        if len(calls) == len(backwards):
            return True
        sizes = [len(e.inputs) for e in since if e.kind == "forward" and e.inputs is not None
                 and e.inputs.dim() and e.grad]  # fmt: skip
        whole = _first_row_count(loop.batches[step.call]) if step.call < len(loop.batches) else 0
        return len(calls) == 1 and len(sizes) == len(backwards) and sum(sizes) == whole
    return sum(e.kind == "fetch" for e in since) >= len(backwards)


def _not_divided(
    session: Session, windows: list[tuple[list[float], list[int]]], full: int
) -> Iterator[Finding]:
    whole = [shares for shares, _ in windows if len(shares) == full]
    total = median([sum(shares) for shares in whole])
    tape = session.loop.tape
    steps = tape.of("step")
    kept = []
    for _, since, step in _windows(tape, steps[0].optimizer):
        made = [e.info["after"] for e in since if "after" in e.info]
        if made and norm(made[-1]) > 0:
            kept.append(norm(step.gradient) / norm(made[-1]))
    rescaled = bool(kept) and median(kept) < 0.9 and not tape.of("clip")
    if total > 0.75 * full and total > 1.5 and not rescaled:
        yield Finding(
            "accum-not-divided", "warning",
            f"{full} micro-batches make one update and each counts in full: the gradient is "
            f"{total:.3g} times the mean's.",
            {"micro_batches": full, "sum_of_weights": total},
            "loss = loss_fn(model(x), y) * len(x) / num_examples_of_the_window",
        )  # fmt: skip


def _trailing(windows: list[tuple[list[float], list[int]]], full: int) -> Iterator[Finding]:
    whole = [sum(s) for s, _ in windows if len(s) == full]
    fair = 0.8 < median(whole) < 1.25
    short = [s for s, _ in windows if 0 < len(s) < full]
    if fair and short and any(sum(s) < 0.9 for s in short):
        worst = min(short, key=sum)
        yield Finding(
            "accum-trailing-window", "warning",
            f"The last window of an epoch holds {len(worst)} of {full} micro-batches and still "
            f"divides by {full}: it counts {sum(worst):.2f} instead of 1.",
            {"micro_batches": len(worst), "window": full, "sum_of_weights": sum(worst)},
            "in_window = min(accum_steps, num_batches - start)\nloss = loss / in_window",
        )  # fmt: skip
        return
    mixed = sum(len(set(epochs)) > 1 for _, epochs in windows)
    if mixed:
        yield Finding(
            "accum-trailing-window", "warning",
            f"{mixed} updates mix micro-batches of two epochs: the remainder of an epoch is not "
            "flushed.",
            {"updates_over_the_border": mixed, "window": full},
            "if (i + 1) % accum_steps == 0 or i + 1 == len(train_loader):\n    optimizer.step()\n"
            "    optimizer.zero_grad()",
        )  # fmt: skip


def wasted(session: Session) -> Iterator[Finding]:
    """Gradients that were made are used."""
    loop = own_loop(session)
    if loop.unit != "train" or len(session.optimizers) > 1:
        raise NotChecked("needs train(n_steps) with one optimizer")
    tape, lost, seen = loop.tape, 0, 0
    for _, since, _step in _windows(tape, session.optimizers[0]):
        for earlier, later in pairwise(since):
            seen += 1
            lost += norm(earlier.info.get("after", [])) > 0 and norm(later.before) == 0
    if lost and seen and len(tape.of("epoch")) > 1 and lost <= len(tape.of("epoch")):
        yield Finding(
            "accum-trailing-window", "warning",
            f"{lost} times gradients were cleared without a step at the end of an epoch: the last "
            "micro-batches are never used.",
            {"times": lost},
            "if (i + 1) % accum_steps == 0 or i + 1 == len(train_loader):\n    optimizer.step()",
        )  # fmt: skip


def schedule(session: Session) -> Iterator[Finding]:
    """The scheduler moves after the optimizer, in the unit in which its length is told."""
    scheduler = session.setup.scheduler
    if scheduler is None:
        raise NotChecked("no scheduler")
    loop = own_loop(session)
    tape = loop.tape
    ticks, steps = tape.of("schedule"), tape.of("step")
    unit = str(session.declared.get("scheduler_unit", "")).lower()
    fix = "optimizer.step()\nscheduler.step()  # in the unit in which T_max or step_size counts"
    if not ticks:
        if loop.unit == "step" and unit in ("batch", "update", "step", "iteration") and steps:
            yield Finding(
                "scheduler-misplaced", "error",
                f"The schedule counts in {unit}s and is never stepped in {len(steps)} updates.",
                {"updates": len(steps), "scheduler_steps": 0}, fix,
            )  # fmt: skip
        return
    first_tick = next(i for i, e in enumerate(tape.events) if e.kind == "schedule")
    first_step = next((i for i, e in enumerate(tape.events) if e.kind == "step"), None)
    if first_step is None or first_tick < first_step:
        yield Finding(
            "scheduler-misplaced", "error",
            "scheduler.step() runs before the first optimizer.step(): the first value of the "
            "schedule is skipped.",
            {"updates_before": 0}, fix,
        )  # fmt: skip
        return
    if len(ticks) >= 1.8 * len(steps) and len(steps) >= 2 and unit not in ("micro", "micro-batch"):
        yield Finding(
            "scheduler-misplaced", "warning",
            f"{len(ticks)} scheduler steps for {len(steps)} updates: it counts micro-batches.",
            {"scheduler_steps": len(ticks), "updates": len(steps)}, fix,
        )  # fmt: skip
        return
    per_batch = len(ticks) >= 0.8 * len(steps) and len(ticks) >= 4
    length = _epoch_length(session)
    if unit == "epoch" and per_batch and (length or 9) > 1:
        yield Finding(
            "scheduler-misplaced", "error",
            "The schedule counts in epochs and is stepped after every batch.",
            {"scheduler_steps": len(ticks), "updates": len(steps)}, fix,
        )  # fmt: skip
    elif per_batch and not unit and length and length > 1:
        yield from _too_short(scheduler, length, len(ticks), fix)


def _epoch_length(session: Session) -> int | None:
    try:
        return len(session.setup.train_loader)
    except TypeError:
        return None


def _too_short(scheduler: object, length: int, ticks: int, fix: str) -> Iterator[Finding]:
    """A schedule stepped by batch that has run out, or decayed away, within one epoch."""
    span, name = None, type(scheduler).__name__
    if name == "CosineAnnealingLR":
        span = scheduler.T_max
    elif name == "StepLR":
        span = scheduler.step_size
    elif name == "MultiStepLR":
        span = max(scheduler.milestones, default=None)
    elif name == "ExponentialLR" and 0 < scheduler.gamma < 1:
        span = math.log(1e-3) / math.log(scheduler.gamma)
    elif name in ("LinearLR", "PolynomialLR"):
        span = getattr(scheduler, "total_iters", None) if name == "PolynomialLR" else None
    if span is not None and span < length:
        yield Finding(
            "scheduler-misplaced", "warning",
            f"{name} is stepped after every batch and is through after {span:.3g} of the {length} "
            "batches of one epoch: its length was told in epochs.",
            {"length_of_schedule": float(span), "batches_per_epoch": length, "seen": ticks}, fix,
        )  # fmt: skip


def kept_graphs(session: Session) -> Iterator[Finding]:
    """No graph outlives its step."""
    loop = own_loop(session)
    backwards = loop.tape.of("backward")
    if len(backwards) < 12:
        raise NotChecked("fewer than 12 backwards")
    alive = loop.alive[-1] if loop.alive else 0
    if alive >= 0.6 * len(backwards):
        state = any(e.retained for e in backwards)
        yield Finding(
            "undetached-logging", "error",
            f"After {len(backwards)} steps {alive} graphs are still alive: somebody keeps loss or "
            "output tensors"
            + (", or carries a state from step to step without detach()." if state else "."),
            {"graphs_alive": alive, "steps": len(backwards)},
            "hidden = hidden.detach()" if state else "total_loss += loss.item()",
        )  # fmt: skip


def skipped(session: Session) -> Iterator[Finding]:
    """Batches with a non-finite loss are not passed over in silence."""
    loop = own_loop(session)
    if loop.unit != "step":
        raise NotChecked("needs train_step")
    tape = loop.tape
    bad = [i for i, value in enumerate(loop.losses) if not math.isfinite(value)]
    for event in tape.of("loss"):
        if event.value is not None and not math.isfinite(event.value) and event.graph:
            bad.append(event.call)
    stepped = {e.call for e in tape.of("step")}
    left_out = sorted({i for i in bad if i not in stepped})
    if left_out and stepped:
        yield Finding(
            "non-finite-skipped", "warning",
            f"{len(left_out)} of {tape.call} batches have a non-finite loss and are skipped "
            "without a word.",
            {"skipped": len(left_out), "calls": tape.call, "first": left_out[0]},
            'raise ValueError(f"loss {loss}: look at this batch first")',
        )  # fmt: skip


def thrown_away(session: Session) -> Iterator[Finding]:
    """Gradients are not cleared before the next batch when no step came between."""
    loop = own_loop(session)
    if loop.unit != "step" or len(session.optimizers) > 1:
        raise NotChecked("needs train_step with one optimizer")
    events = [e for e in loop.tape.events if e.kind in ("backward", "step")]
    if not loop.tape.of("step") or any(e.info.get("inside_step") for e in events):
        raise NotChecked("no step was seen, or backwards inside it")
    lost = sum(
        a.kind == b.kind == "backward" and a.call != b.call
        and norm(a.info.get("after", [])) > 0 and norm(b.before) == 0
        for a, b in pairwise(events)
    )  # fmt: skip
    backwards = len(loop.tape.of("backward"))
    if backwards >= 8 and lost >= 0.4 * backwards:
        yield Finding(
            "grads-cleared-before-step", "error",
            f"{lost} of {backwards} gradients were cleared before any step used them: the window "
            "is emptied at every micro-batch.",
            {"thrown_away": lost, "backwards": backwards, "steps": len(loop.tape.of("step"))},
            "if (i + 1) % accum_steps == 0:\n    optimizer.step()\n    optimizer.zero_grad()",
        )  # fmt: skip


def uphill(session: Session) -> Iterator[Finding]:
    """The loss that goes backward has the sign of the criterion."""
    tape = own_loop(session).tape
    if len(session.optimizers) > 1:
        raise NotChecked("more than one optimizer")
    if any(g.get("maximize") for o in session.optimizers for g in o.param_groups):
        raise NotChecked("the optimizer maximises on purpose")
    value, seen, negated = math.nan, 0, 0
    for event in tape.events:
        if event.kind == "loss" and event.graph and event.value is not None:
            value = event.value
        elif event.kind == "backward" and math.isfinite(value):
            seen += 1
            negated += value > 1e-6 and abs(event.loss + value) < 1e-5 * abs(value)
            value = math.nan
    if seen >= 8 and negated >= 0.95 * seen:
        yield Finding(
            "loss-negated", "warning",
            f"In {negated} of {seen} steps minus the loss went backward: the optimizer makes the "
            "loss larger.",
            {"negated": negated, "backwards": seen}, "loss.backward()  # no minus sign",
        )  # fmt: skip


def reseeded(session: Session) -> Iterator[Finding]:
    """Each step draws its own dropout masks."""
    loop = own_loop(session)
    states = loop.rng
    if loop.unit != "step" or len(states) < 12:
        raise NotChecked("needs train_step and 12 calls")
    awake = any(any(e.submodes.values()) for e in loop.tape.of("forward"))
    after = states[1:]
    if awake and states[0] != after[0] and len(set(after)) == 1:
        yield Finding(
            "rng-reseeded", "warning",
            "After every step the random number generator is in the same state: dropout draws "
            "the same mask each time.",
            {"distinct_states": len(set(after)), "steps": len(after)},
            "torch.manual_seed(seed)  # once, before the loop",
        )  # fmt: skip
