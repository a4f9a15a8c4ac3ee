"""Relations on the weights kept as the best: they are a copy, and no worse than the last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from course.debug.probes.loop import own_loop
from course.debug.probes.modes import close, evaluation_of
from course.debug.probes.report import Finding
from course.debug.probes.session import STEPS, NotChecked, Session, as_list, as_metrics, clone
from course.debug.probes.tape import Event, Tape, is_own_memory
from course.debug.relations.direction import NOT, WORDS, chance
from course.debug.relations.plateau import LOWER
from course.debug.relations.program import program_of
from course.state.snapshot import reached

UNDONE = 0.5
"""Share of what a score had gained, from which going back to kept weights undoes the training: best
weights lose nothing by their own measure, and by another one little."""
LEAST_GAIN = 1e-3
"""Gain of a score, over its size, below which nothing was learned that could be undone."""


@dataclass
class Ended:
    """The author's loop after some steps, and one evaluation."""

    tape: Tape
    kept: list[Mapping] = field(default_factory=list)
    """States of the model in somebody's hands that share its memory."""
    after: dict[str, float] = field(default_factory=dict)
    before: dict[str, float] = field(default_factory=dict)
    """The same scores of the weights that were replaced when others were loaded at the end."""


def _ended(session: Session) -> Ended:
    """Made once: train(STEPS), which may keep the best at the end of an epoch, or two steps.

    Raises:
        NotChecked: There is no loop or no evaluate(), or one of them raises.
    """
    if session.setup.train_step is None and session.setup.train is None:
        raise NotChecked("no train_step or train")
    if session.setup.evaluate is None:
        raise NotChecked("no evaluate()")
    if "ended" not in session.memory:
        session.memory["ended"] = _run(session)
    return session.memory["ended"]


def _run(session: Session) -> Ended:
    living = dict(session.model.state_dict(keep_vars=True))
    ended = Ended(Tape(session.model, session.optimizers, session.setup.scheduler))
    with session.observe():
        try:
            with ended.tape.running():
                if session.setup.train is not None:
                    session.setup.train(STEPS)
                else:
                    for batch in program_of(session).batches[:2]:
                        session.setup.train_step(clone(batch))
            ended.after = as_metrics(session.setup.evaluate())
            own = {id(t) for t in living.values()}
            ended.kept = [
                thing for thing in reached(vars(session.setup))
                if isinstance(thing, Mapping) and _is_state_of(thing, living, own)
            ]  # fmt: skip
            if _loaded_last(ended.tape) is not None:
                session.model.load_state_dict(ended.tape.before_load)
                ended.before = as_metrics(session.setup.evaluate())
        except Exception as error:
            raise NotChecked(f"the loop raises {type(error).__name__}") from error
    return ended


def _is_state_of(thing: Mapping, living: dict[str, Tensor], own: set[int]) -> bool:
    """A state_dict in another's hands: the model's names, its memory, and detached tensors.

    All names, or those of the parameters alone, as averages are kept.
    """
    parameters = {name for name, tensor in living.items() if isinstance(tensor, nn.Parameter)}
    if set(thing) not in (set(living), parameters) or not thing:
        return False
    held = [thing[name] for name in thing if isinstance(thing[name], Tensor)]
    return (
        len(held) == len(thing)
        and not any(id(t) in own for t in held)
        and is_own_memory(thing, {name: living[name] for name in thing})
    )


def by_reference(session: Session) -> Iterator[Finding]:
    """The weights kept as the best do not move with the live ones."""
    ended = _ended(session)
    loaded = [e for e in ended.tape.of("load") if e.same_memory]
    if not ended.kept and not loaded:
        return
    tensors = len(ended.kept[0]) if ended.kept else len(list(loaded[0].module.state_dict()))
    what = (
        f"The model's weights are kept by name ({tensors} tensors) but share memory with the live "
        "ones: the best or the average that they should hold is always the last."
        if ended.kept
        else f"load_state_dict() gets the {tensors} tensors that the model already has: what was "
        "kept shares memory with the live weights, and nothing is restored."
    )
    yield Finding(
        "checkpoint-by-reference", "error", what,
        {"tensors": tensors, "loaded_from_itself": len(loaded)},
        "best = copy.deepcopy(model.state_dict())",
    )  # fmt: skip


def _loaded_last(tape: Tape) -> Event | None:
    """What brought weights into the model after the last step, if anything did."""
    events = [e for e in tape.events if e.kind in ("step", "load")]
    last = events[-1] if events else None
    return last if last is not None and last.kind == "load" and last.module is tape.model else None


def undone(session: Session) -> Iterator[Finding]:
    """Earlier weights restored at the end of training score no worse than those they replace.

    Weights that no step produced, e.g. an average, are not judged: after a few steps an average is
    still young.
    """
    if session.setup.train is None:
        raise NotChecked("no train(n_steps)")
    ended, seen = _ended(session), evaluation_of(session)
    load = _loaded_last(ended.tape)
    if load is None:
        raise NotChecked("no weights are loaded at the end of train()")
    if any(not close(v, seen.second.get(k, float("nan"))) for k, v in seen.first.items()):
        raise NotChecked("evaluate() does not repeat")
    moments = [own_loop(session).start, *(e.weights for e in ended.tape.of("stepped"))]
    if not any(all(map(torch.equal, m, load.weights)) for m in moments):
        raise NotChecked("the weights loaded are not from any step of the training")
    lost = {k: _lost(session, k, ended) for k in seen.first if _sign(k)}
    if lost and min(lost.values()) > 0 and max(lost.values()) > UNDONE:
        name = max(lost, key=lambda k: lost[k])
        yield Finding(
            "keeps-worse-weights", "error",
            f"train() ends by loading weights of an earlier step, which takes {name} back from "
            f"{ended.before[name]:.4g} to {ended.after[name]:.4g} (before training: "
            f"{seen.first[name]:.4g}): by this score the weights that were kept are not the best.",
            {"before_training": seen.first[name], "trained": ended.before[name],
             "ends_with": ended.after[name], "share_lost": lost[name]},
            'if score["loss"] < best:  # lower is better; for an accuracy: >\n    best, kept = '
            'score[\"loss\"], copy.deepcopy(model.state_dict())',
        )  # fmt: skip


def _sign(name: str) -> int:
    """1: better the higher; -1: better the lower; 0: not known, or of the training data."""
    name = name.lower()
    if "train" in name:
        return 0
    if any(w in name for w in WORDS) and not any(w in name for w in NOT):
        return 1
    return -1 if any(w in name for w in LOWER) else 0


def _lost(session: Session, name: str, ended: Ended) -> float:
    """Share of what a score had gained that loading has taken back; 0 where it gained nothing."""
    seen, sign = evaluation_of(session), _sign(name)
    start = seen.first[name]
    gained = sign * (ended.before.get(name, start) - start)
    least = max(chance(seen, start), LEAST_GAIN * abs(start)) if sign > 0 else (
        LEAST_GAIN * abs(start))  # fmt: skip
    if not gained > least:
        return 0.0
    return sign * (ended.before[name] - ended.after.get(name, start)) / gained


def target_network(session: Session) -> Iterator[Finding]:
    """What is declared as a target network's parameters is a copy, which no optimizer moves."""
    named = dict(session.model.named_parameters(remove_duplicate=False))
    said = [str(name) for name in as_list(session.declared.get("target_parameters"))]
    trained = {p.data_ptr(): p for o in session.optimizers for g in o.param_groups
               for p in g["params"] if p.numel()}  # fmt: skip
    known = [name for name in said if name in named]
    if not known:
        raise NotChecked("no target_parameters are declared")
    alias = [n for n in known if named[n].data_ptr() in trained]
    if alias:
        yield Finding(
            "checkpoint-by-reference", "error",
            f"{len(alias)} of {len(known)} parameters declared as the target network's lie where "
            f"those that the optimizer trains do ({alias[0]}): the target is the live network and "
            "moves with every step; copying weights into it does nothing.",
            {"shared": len(alias), "declared": len(known)},
            "self.target = copy.deepcopy(self.online).requires_grad_(False)",
        )  # fmt: skip
