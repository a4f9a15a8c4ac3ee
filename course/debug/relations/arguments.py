"""Relation on a model of several inputs: each column of a batch is the same input on both sides."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.relations.program import MOST_KEPT, Program, far, program_of
from course.debug.relations.steps import SAME, Call
from course.state.nested import cloned, mapped, tensors_in

LEAST_CALLS = 2
"""Batches of a side in which a column has to reach the same input."""
SEEDS = 3
"""Seeds with which the first batches are stepped on before something is said: a step that turns
pairs around at random would have to leave all of them."""
Input = tuple[str, int]
"""An argument of the model, by its name, and a place among the tensors that it holds."""
Seats = dict[Any, list[Input]]


def as_in_training(session: Session) -> Iterator[Finding]:
    """Of a batch's columns, none changes places with another between training and evaluation.

    Columns go by their keys; in tuples, only if both loaders read one data set. Inputs that may be
    exchanged are told by the outputs, which stay the same or change their sign.
    """
    program, evaluate = program_of(session), session.setup.evaluate
    if evaluate is None:
        raise NotChecked("no evaluate()")
    if not session.val_epoch.batches:
        raise NotChecked("the val_loader is empty")
    first = program.first().calls
    if not first or len(_columns(session, program.batches[0])) < 2 or len(first[0].tensors) < 2:
        raise NotChecked("the model does not get two columns of a batch")
    known = program.batches[:MOST_KEPT]
    trained = _seats(session, known, [program.step(batch).calls for batch in known])
    if len(trained) < 2:
        raise NotChecked("no two columns of a batch reach the model as they are")
    held = session.val_epoch.batches[:MOST_KEPT]
    calls = _calls_of_evaluate(session)
    scored = _seats(session, held, [calls] * len(held))
    for p, q in combinations([place for place in trained if place in scored], 2):
        a, b = trained[p][0], trained[q][0]
        if a == b or (scored[q][0], scored[p][0]) != (a, b):
            continue
        if min(len(s) for seats in (trained, scored) for s in (seats[p], seats[q])) < LEAST_CALLS:
            continue
        moved = _change_if_turned(program, first[0], known[0], session, (p, q))
        again = [[call for seed in range(1, SEEDS) for call in program.step(one, seed=seed).calls]
                 for one in known]  # fmt: skip
        more = _seats(session, known, again)
        if moved > SAME and {*more.get(p, ())} == {a}:
            yield Finding(
                "covariate-shift", "error",
                f"In training {_name(p)} of the batch is the model's input {a[0]!r} "
                f"and {_name(q)} is {b[0]!r} ({len(trained[p])} batches), but in "
                f"evaluate() they are the other way round ({len(scored[p])} batches). Exchanged, "
                f"outputs differ by {moved:.2g} standard deviations: what is learned of one "
                "is asked of the other.",
                {"training": len(trained[p]), "evaluation": len(scored[p]),
                 "change_over_std": moved},
                f"model({a[0]}=batch[{p!r}], {b[0]}=batch[{q!r}])  # on "
                "both sides",
            )  # fmt: skip
            return


def _name(place: Any) -> str:
    return f"part {place}" if isinstance(place, int) else repr(place)


def _columns(session: Session, batch: Any) -> dict[Any, Tensor]:
    """The tensors of a flat batch, by what says their meaning on both sides."""
    if isinstance(batch, Mapping):
        given = dict(batch)
    elif isinstance(batch, (tuple, list)) and (hasattr(batch, "_fields") or _one_source(session)):
        given = dict(enumerate(batch))
    else:
        return {}
    return {place: t for place, t in given.items() if isinstance(t, Tensor) and t.dim()}


def _one_source(session: Session) -> bool:
    """Both loaders read one data set, of which each has a part."""
    found = []
    for loader in (session.setup.train_loader, session.setup.val_loader):
        data = getattr(loader, "dataset", None)
        while isinstance(data, torch.utils.data.Subset):
            data = data.dataset
        found.append(data)
    return found[0] is not None and found[0] is found[1]


def _seats(session: Session, batches: list[Any], calls: list[list[Call]]) -> Seats:
    """Where the columns of batches arrive; none that arrives in several places or is another's
    equal."""
    found: Seats = {}
    for batch, made in zip(batches, calls, strict=True):
        columns = _columns(session, batch)
        inputs = [_inputs(session, call) for call in made]
        for place, t in columns.items():
            twice = any(_equal(t, o) for p, o in columns.items() if p != place)
            if not twice:
                found.setdefault(place, []).extend(
                    key for given in inputs for key, g in given.items() if _equal(t, g)
                )
    return {place: keys for place, keys in found.items() if len(set(keys)) == 1}


def _inputs(session: Session, call: Call) -> dict[Input, Tensor]:
    try:
        bound = inspect.signature(session.model.forward).bind(*call.args, **call.kwargs)
    except (TypeError, ValueError) as error:
        raise NotChecked("the model's arguments have no names") from error
    return {(name, n): t for name, value in bound.arguments.items()
            for n, t in enumerate(tensors_in(value))}  # fmt: skip


def _equal(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.to(b.device, b.dtype), b)


def _calls_of_evaluate(session: Session) -> list[Call]:
    calls: list[Call] = []

    def listen(module: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        calls.append(Call(cloned(args), cloned(kwargs)))

    with session.observe():
        handle = session.model.register_forward_pre_hook(listen, with_kwargs=True)
        try:
            session.setup.evaluate()
        except Exception as error:
            raise NotChecked(f"evaluate() raises {type(error).__name__}") from error
        finally:
            handle.remove()
    return calls


def _change_if_turned(
    program: Program, call: Call, batch: Any, session: Session, places: tuple[Any, Any]
) -> float:
    """How much outputs change if two columns are exchanged, in standard deviations; 0 where only
    their sign does."""
    one, two = (_columns(session, batch)[place] for place in places)
    if one.shape != two.shape:
        raise NotChecked("the two inputs have different shapes")

    def turned(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return two.to(leaf) if _equal(one, leaf) else one.to(leaf) if _equal(two, leaf) else leaf

    before = program.replay(call)
    after = program.replay(Call(mapped(turned, call.args), mapped(turned, call.kwargs)))
    return min(far(before, after), far(before, [-t for t in after]))
