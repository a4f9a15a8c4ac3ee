"""Relation on pairs of ids, e.g. users and items: what is learned of each holds in validation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import torch
from torch import Tensor

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import NEARLY_ALL, ZERO
from course.debug.relations.joining import read_by_the_model
from course.debug.relations.program import program_of
from course.state.nested import tensors_in

LEAST_ROWS, LEAST_EACH, MOST_IDS = 400, 5, 5000
"""Rows on each side, rows for each id in the mean, and ids of a kind."""
RANK, ROUNDS, RIDGE = 3, 8, 1.0
OWN, ACROSS = 0.6, 0.15
"""Correlation with what is told of pairs left out of training, and of those of validation, from
which the second is no matter of few rows (0.05 by chance for 400) or of a change of tastes."""
FOLDS = 5
"""One pair in so many is left out, to see what the others tell of it."""


def ids_mean_the_same(session: Session) -> Iterator[Finding]:
    """Factors of two columns of ids that tell new pairs of training tell those of validation.

    The ids of validation are known from training, and no pair is on both sides of the first trial.
    """
    program = program_of(session)
    leaves, read = list(tensors_in(program.batches[0])), read_by_the_model(session)
    ids = [n for n, t in enumerate(leaves) if n in read and t.dim() and t.numel() == len(t)
           and not t.is_floating_point() and t.dtype != torch.bool]  # fmt: skip
    rest = [n for n, t in enumerate(leaves) if n not in read and t.dim() and t.numel() == len(t)]
    if len(ids) < 2 or len(rest) != 1:
        raise NotChecked("no two columns of ids with one number to tell")
    sides = [_columns(epoch.batches, [*ids, *rest], len(leaves))
             for epoch in (session.epoch, session.val_epoch)]  # fmt: skip
    for a, b in combinations(range(len(ids)), 2):
        (u, i, r), (v, j, s) = ((side[a], side[b], side[-1]) for side in sides)
        if not _is_enough(u, v) or not _is_enough(i, j):
            continue
        pairs = u.long() * (int(i.max()) + 1) + i.long()
        left_out = _hashed(pairs) % FOLDS == 0
        own = _told((u, i, r), ~left_out, (u[left_out], i[left_out], r[left_out]))
        if own < OWN:
            continue
        across = _told((u, i, r), torch.ones_like(left_out), (v, j, s))
        if across < ACROSS:
            yield Finding(
                "labels-renamed", "error",
                f"Factors for two columns of ids, fitted to {len(r)} training rows, agree with the "
                f"targets of training pairs that were left out (correlation {own:.2f}), but not "
                f"with those of {len(s)} validation rows ({across:.2f}), whose ids are known: ids "
                "were numbered separately on each side, so that the same number means another.",
                {"told_in_training": own, "told_in_validation": across, "rows": len(s)},
                "codes = {name: n for n, name in enumerate(sorted(set(train_names)))}  # once\n"
                "val = [codes[name] for name in val_names]",
            )  # fmt: skip
            return


def _columns(batches: list, places: list[int], parts: int) -> list[Tensor]:
    leaves = [list(tensors_in(b)) for b in batches]
    if any(len(part) != parts for part in leaves):
        raise NotChecked("batches have different parts")
    columns = [torch.cat([part[n].detach().cpu().flatten() for part in leaves]) for n in places]
    if min(map(len, columns)) < LEAST_ROWS or len({len(c) for c in columns}) > 1:
        raise NotChecked(f"fewer than {LEAST_ROWS} rows on a side")
    if not bool(torch.isfinite(columns[-1]).all()) or float(columns[-1].double().std()) < ZERO:
        raise NotChecked("targets are all the same, or not finite")
    return [*columns[:-1], columns[-1].double()]


def _is_enough(ids: Tensor, others: Tensor) -> bool:
    """Ids come several times each, and those of validation are among them."""
    known = ids.unique()
    return (
        int(ids.min()) >= 0
        and 2 < len(known) <= MOST_IDS > int(ids.max())
        and len(ids) >= LEAST_EACH * len(known)
        and float(torch.isin(others, known).double().mean()) >= NEARLY_ALL
    )


def _hashed(pairs: Tensor) -> Tensor:
    """Numbers that follow no order of the ids, the same for the same pair."""
    return (pairs * 2654435761 % 2**32) // 2**16


def _told(rows: tuple[Tensor, ...], among: Tensor, others: tuple[Tensor, ...]) -> float:
    """Correlation of other rows' numbers with what factors of some rows say of them."""
    u, i, r = (t[among] for t in rows)
    mean = r.mean()
    users, items = (1 + int(torch.cat([a, b]).max()) for a, b in zip(rows[:2], others[:2],
                                                                     strict=True))  # fmt: skip
    own = torch.Generator().manual_seed(0)
    q = torch.randn(items, RANK + 2, generator=own).double()
    q[:, 0] = 1  # a level of each user, and below one of each item
    for _ in range(ROUNDS):
        p = _solved(u.long(), q[i.long()], r - mean, users)
        p[:, 1] = 1
        q = _solved(i.long(), p[u.long()], r - mean, items)
        q[:, 0] = 1
    p = _solved(u.long(), q[i.long()], r - mean, users)
    said = (p[others[0].long()] * q[others[1].long()]).sum(1)
    said, wanted = said - said.mean(), others[2] - others[2].mean()
    return float((said * wanted).sum() / (said.norm() * wanted.norm()).clamp_min(ZERO))


def _solved(ids: Tensor, x: Tensor, y: Tensor, number: int) -> Tensor:
    """A ridge for the rows of each id."""
    size = x.shape[1]
    a = torch.zeros(number, size, size).double()
    a.index_add_(0, ids, x[:, :, None] * x[:, None])
    b = torch.zeros(number, size).double().index_add_(0, ids, x * y[:, None])
    return torch.linalg.solve(a + RIDGE * torch.eye(size).double(), b)
