"""Relations on padding: what follows the rows is neither read nor counted in the loss."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from course.debug.probes.report import Finding
from course.debug.probes.session import NotChecked, Session
from course.debug.probes.thresholds import PADDED_ROWS, TINY
from course.debug.relations.cut_short import Change, in_all, only_behind, with_and_without
from course.debug.relations.program import Program, changed, far, program_of
from course.debug.relations.steps import SAME, Call
from course.state.nested import tensors_in

PADDING_SHOWS = 0.1
"""Change of outputs of one row per example, in standard deviations over the rows, that counts."""
SHARPER = 3.0
"""Weights are made so much larger while padding is looked for: to a fresh model every token is the
same, so that also the padding costs what the rest costs."""
SHIFTED = 3.0
"""Spread of what is added to biases then, if outputs of other places do not read the padding: to
a model that knows no token from another, on average, padding still costs what words cost."""
PADDING_COSTS = 0.01
"""Relative change of the loss from which padding matters; convolutions over embedded padding,
which many text models accept, move it by less."""
MASKING = {Tensor.masked_fill, torch.masked_fill, Tensor.masked_fill_}
ATTENDING = {F.scaled_dot_product_attention, F.multi_head_attention_forward}
MASKS = ("attn_mask", "key_padding_mask")
HIDDEN = -1e4
"""Number that is added to scores, below which what it is added to is hidden."""
ALIKE_BEFORE = 0.05
"""Share of the steps before a row's end that are like those after it, from which these are no
padding, e.g. steps at which nothing happens."""


def behind(session: Session) -> Iterator[Finding]:
    """The loss of a batch is the same without the padding after its rows."""
    program = program_of(session)
    if any(isinstance(m, nn.modules.batchnorm._NormBase) for m in program.model.modules()):
        raise NotChecked("batch norm also reads the padding of a batch")
    batch = program.batches[0]
    pads = _padding_of(program, batch)
    pads = _behind_lengths(program, batch) if pads is None else in_all(pads, batch)
    long, short, cut = with_and_without(pads)

    def costs(shift: float) -> tuple[float, float]:
        def sharpen() -> None:
            own = torch.Generator().manual_seed(0)
            for p in program.model.parameters():
                if p.dim() > 1:
                    p.mul_(SHARPER)
                else:
                    p.add_(shift * torch.randn(p.shape, generator=own).to(p))

        return tuple(program.steady_loss(changed(batch, c), sharpen) for c in (long, short))

    moved = _pooled_change(program, long, short)
    try:
        whole, less = costs(0.0)
    except NotChecked:
        if moved <= PADDING_SHOWS:
            raise
        whole = less = math.nan
    change = _relative(whole, less)
    stays = moved <= PADDING_SHOWS and _positions_stay(program, batch, long, short)
    if stays and change <= PADDING_COSTS:
        with contextlib.suppress(NotChecked):
            whole, less = costs(SHIFTED)
            change = _relative(whole, less)
    if change > PADDING_COSTS or moved > PADDING_SHOWS:
        yield Finding(
            "padding-in-the-loss" if stays else "padding-not-masked", "warning",
            f"The same rows without {cut} positions of padding after them "
            + (f"have a loss of {less:.4g} instead of {whole:.4g}" if change > PADDING_COSTS else
               f"have outputs that differ by {moved:.2g} standard deviations")
            + (", but the outputs at the other positions are the same: the loss counts padding."
               if stays else ": padding is read by the model or counted by the loss."),
            {"loss_with_padding": whole, "loss_without": less, "outputs_over_std": moved,
             "positions": cut},
            "F.cross_entropy(logits, targets.masked_fill(~mask, -100))  # in the loss\n"
            "h = (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)  # in a mean",
        )  # fmt: skip


def embedded(session: Session) -> Iterator[Finding]:
    """If a program masks, and rows cannot be cut, the embedding of padding makes no difference.

    Convolutions read past a row's end even if the padding is masked after them.
    """
    program = program_of(session)
    if any(isinstance(m, nn.modules.conv._ConvNd) for m in program.model.modules()):
        raise NotChecked("convolutions read the padding next to a row's end")
    batch = program.batches[0]
    pads = _padding_of(program, batch)
    long, short, _ = with_and_without(pads)
    with contextlib.suppress(NotChecked):
        program.step(changed(batch, short))
        raise NotChecked("already checked with shorter rows")
    ids = [t for t in tensors_in(batch) if t.shape == pads.shape and not t.is_floating_point()]
    signs = {int(v) for t in ids for v in t[pads].unique()}
    tables = [m for m in program.model.modules() if isinstance(m, nn.Embedding)]
    if len(ids) != 1 or len(signs) != 1 or (ids[0] == min(signs))[~pads].any() or not tables:
        raise NotChecked("padding is not a single embedded token")
    mode = _Masked(pads)
    program.step(batch, within=mode)
    if not mode.seen:
        raise NotChecked("no mask is the padding's")

    def move(by: float) -> Callable[[], None]:
        def moved() -> None:
            own = torch.Generator().manual_seed(0)
            for table in (m for m in tables if m.num_embeddings > int(ids[0].max())):
                noise = torch.randn(table.embedding_dim, generator=own).to(table.weight)
                table.weight[min(signs)] += by * noise

        return moved

    whole, other = (program.steady_loss(changed(batch, long), move(by)) for by in (0.0, SHARPER))
    change = abs(other - whole) / max(abs(whole), TINY)
    if change > PADDING_SHOWS:
        yield Finding(
            "padding-not-masked", "warning",
            f"The loss is {other:.4g} instead of {whole:.4g} if the padding token ({min(signs)}) "
            "has a different embedding: there is a mask, but the padding is read. The mask may be "
            "the wrong way round.",
            {"loss": whole, "loss_with_other_padding": other, "token": min(signs)},
            "scores = scores.masked_fill(~keep[:, None, :], -torch.inf)  # keep = tokens != pad",
        )  # fmt: skip


class _Masked(TorchFunctionMode):
    """Whether something is masked in a step by what is padding, or by what is none.

    Args:
        pads: [B, T], True where a batch is padded.
    """

    def __init__(self, pads: Tensor) -> None:
        super().__init__()
        self.pads = pads.cpu()
        self.seen = False

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        masks = [kwargs.get(name) for name in MASKS if function in ATTENDING]
        if function in MASKING and args[0].is_floating_point():  # and no labels
            masks = [kwargs.get("mask", args[1] if len(args) > 1 else None)]
        elif function is F.scaled_dot_product_attention and len(args) > 3:
            masks.append(args[3])
        self.seen = self.seen or any(self._is_padding(m) for m in masks if isinstance(m, Tensor))
        return function(*args, **kwargs)

    def _is_padding(self, mask: Tensor) -> bool:
        """What the last query of each row may see, or may not: also in a mask that is causal."""
        length = mask.shape[-1] if mask.dim() > 1 else 0
        pads = self.pads[:, :length]
        if pads.shape[1] != length or not length or len(mask) % len(pads) or not pads.any():
            return False
        hidden = mask.detach().cpu()
        if hidden.is_floating_point():
            hidden = hidden < HIDDEN
        hidden = hidden.reshape(len(pads), -1, length)[:, -1] != 0
        return torch.equal(hidden, pads) or torch.equal(hidden, ~pads)


def _relative(whole: float, less: float) -> float:
    return 0.0 if math.isnan(whole) else abs(less - whole) / max(abs(whole), 1e-6)


def _pooled_change(program: Program, whole: Change, short: Change) -> float:
    """How much outputs with one row per example change without the padding, in deviations."""
    try:
        call = program.call()
        before = program.replay(Call(*changed((call.args, call.kwargs), whole)))
        after = program.replay(Call(*changed((call.args, call.kwargs), short)))
    except NotChecked:
        return 0.0
    pooled = [(a, b) for a, b in zip(before, after, strict=False) if a.shape == b.shape]
    return far([a for a, _ in pooled], [b for _, b in pooled])


def _positions_stay(program: Program, batch: Any, whole: Change, short: Change) -> bool:
    """There are outputs for each position, and those of positions that are kept do not change."""
    try:
        calls = [program.step(changed(batch, change)).calls for change in (whole, short)]
        if [len(made) for made in calls] != [1, 1]:
            return False
        before, after = (program.replay(made[0]) for made in calls)
    except NotChecked:
        return False
    both = [(a[:, : b.shape[1]], b) for a, b in zip(before, after, strict=False)
            if a.dim() > 1 and b.dim() > 1 and a.shape[1] > b.shape[1]]  # fmt: skip
    return bool(both) and far([a for a, _ in both], [b for _, b in both]) < SAME


def _may_end(program: Program) -> bool:
    """Batches are as long as their longest row, or there is an answer for each position: the sign
    of the end is then one of what is read or foretold, also where it serves as padding."""
    ids = [[t for t in tensors_in(b) if t.dim() == 2] for b in program.batches]
    lengths = {t.shape[1] for found in ids for t in found[:1]}
    with contextlib.suppress(NotChecked):
        return len(lengths) > 1 or any(t.dim() > 2 for t in program.replay(program.call()))
    return len(lengths) > 1


def _padding_of(program: Program, batch: Any) -> Tensor | None:
    """Where rows are padded [B, T]: by a mask in the batch, or by one value behind the ids, of
    which the first, where each row has one and rows may end with it, is no padding. In labels it
    is one if it has the same place in what the model reads."""
    may_end = _may_end(program)
    found = [t for t in tensors_in(batch) if t.dim() == 2 and t.shape[1] >= 4 and len(t) >= 4]
    whole = [t for t in found if not t.is_floating_point() or set(t.unique().tolist()) <= {0, 1}]
    for t in whole:
        if set(t.unique().tolist()) == {0, 1}:
            behind = ~t.bool() if t[:, 0].all() else t.bool() if not t[:, 0].any() else None
            if behind is not None and only_behind(behind):
                return behind
    for t in whole:
        ends = t[:, -1]
        value, counts = ends.unique(return_counts=True)
        padding = t == value[counts.argmax()]
        often = float(counts.max()) > PADDED_ROWS * len(t)
        if may_end and padding[:, -1].all():  # the longest row too ends with it
            padding &= padding.cumsum(1) > 1
        if often and t.unique().numel() > 4 and only_behind(padding):
            given = [o for o in whole if o.shape == t.shape and _is_read(o, program)]
            if _is_read(t, program) or all(_ends_alike(o, padding) for o in given):
                return padding
    return None


def _behind_lengths(program: Program, batch: Any) -> Tensor | None:
    """Where steps [B, T, ...] of numbers are padded, if a column of the batch says how long each
    row is: all steps from there on are alike, and hardly any before are the same. Where there is
    an output for each step, those behind the end may be asked to say so."""
    outputs = program.replay(program.call())
    leaves = list(tensors_in(batch))
    lengths = [t for t in leaves if t.dim() == 1 and not t.is_floating_point() and len(t) >= 4]
    for steps in (t for t in leaves if t.dim() > 2 and t.is_floating_point() and t.shape[1] >= 4):
        if any(o.shape[:2] == steps.shape[:2] for o in outputs):
            continue
        for n in (t for t in lengths if len(t) == len(steps)):
            places = torch.arange(steps.shape[1], device=n.device)
            pads = (places >= n[:, None]).to(steps.device)
            if not 1 <= int(n.min()) < int(n.max()) <= steps.shape[1] or not only_behind(pads):
                continue
            alike = (steps.flatten(2) == steps[pads][0].flatten()).all(2)
            if bool(alike[pads].all()) and float(alike[~pads].double().mean()) < ALIKE_BEFORE:
                return pads
    return None


def _is_read(t: Tensor, program: Program) -> bool:
    """The model gets it in a step, whole or without its last column."""
    given = [g for call in program.first().calls for g in call.tensors if g.dim() == 2]
    return any(
        g.shape[0] == t.shape[0] and t.shape[1] - g.shape[1] in (0, 1)
        and torch.equal(g.cpu().to(t.dtype), t[:, : g.shape[1]].cpu())
        for g in given
    )  # fmt: skip


def _ends_alike(t: Tensor, padding: Tensor) -> bool:
    """What stands where the padding is stands nowhere else but right before it."""
    values = t[padding].unique()
    return len(values) == 1 and only_behind(t == values[0])
