"""Which outputs of a model may be moved alone: of shares, say, no weights make one larger and leave
the others as they are.

A relation that changes outputs asks what the loss would be elsewhere. It may say so only of places
that some weights reach.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from course.debug.probes.functions import MOST_RESHAPED, RESHAPED
from course.debug.relations.program import Program, without_fastpath
from course.state.nested import cloned, tensors_in

ENDED = ("Sigmoid", "Tanh", "Hardtanh", "Hardsigmoid", "Softmax", "LogSoftmax", "LogSigmoid",
         "Clamp", "SinBackward", "CosBackward")  # fmt: skip
"""Beginnings of the names of nodes of a graph that give numbers between ends."""
POSITIVE = ("ExpBackward", "Softplus", "Relu", "Pow", "Abs", "Elu")
"""The same of what gives numbers on one side of an end."""
SCALED = ("MulBackward", "DivBackward", "AddBackward", "SubBackward", "NegBackward")
"""The same of what moves or stretches numbers, where nothing else with a graph enters."""
LAST = 2**64 - 1
"""Axis -1, as a node keeps it."""
TIED = 1e-3
"""Part that an output has in a sum which no weight changes, from which it is tied to the others:
rounding makes it a millionth."""
ROUNDED = 1e-10
"""Part of the largest square of a sum's slope, below which it is rounding's."""


def is_free(program: Program, leaf: int, column: int, by: float) -> bool:
    """Some weights may move this column of the outputs by so much, and none of the others.

    They cannot where the column comes out of a function that has an end there, or where its slopes
    in the weights are a sum of those of other columns, as of shares that add up to 1.

    Args:
        program: Its model is called as in the first step, in eval mode.
        leaf: Number of the tensor among those of floats that the model gives.
        column: Place on its last axis.
        by: How far it is to be moved.
    """
    call = program.call()
    with program.session.observe(), torch.enable_grad(), without_fastpath():
        program.model.eval()
        given = program.model(*cloned(call.args), **cloned(call.kwargs))
        parts = [t for t in tensors_in(given) if t.is_floating_point()]
        part = parts[leaf]
        if not part.requires_grad:
            return False
        values = part.detach()[..., column] if part.dim() > 1 else part.detach()
        ends = _has_an_end(part, column, values, by)
        return not ends and not _is_tied(program, parts, leaf, column)


def _has_an_end(part: Tensor, column: int, values: Tensor, by: float) -> bool:
    """The column comes out of a function that gives no numbers so far away."""
    node, is_reshaped = part.grad_fn, False
    for _ in range(MOST_RESHAPED):
        if node is None or node.name().startswith(ENDED):
            return node is not None
        if node.name().startswith(POSITIVE):
            return by < 0 <= float(values.min()) or float(values.max()) <= 0 < by
        ways = [way for way, _ in node.next_functions if way is not None]
        if node.name().startswith("Cat") and not is_reshaped:
            node, column = _piece(node, column, part.dim())
        elif len(ways) == 1 and node.name().startswith((*RESHAPED, *SCALED)):
            is_reshaped |= node.name().startswith(RESHAPED)
            node = ways[0]
        else:
            return False
    return False


def _piece(node: Any, column: int, dims: int) -> tuple[Any, int]:
    """Of tensors that were joined, the one in which a column of the last axis lies, and where; the
    first of those that were joined along another axis."""
    pieces = [way for way, _ in node.next_functions]
    if node._saved_dim not in (dims - 1, LAST):
        return pieces[0], column
    for piece in pieces:
        if piece is None:  # of a width that is not known
            break
        width = piece._input_metadata[0].shape[-1]
        if column < width:
            return piece, column
        column -= width
    return None, column


def _is_tied(program: Program, parts: list[Tensor], leaf: int, column: int) -> bool:
    """In the first row, some sum of the columns in which this one takes part has no slope in any
    weight."""
    weights = [p for p in program.model.parameters() if p.requires_grad]
    rows = [t.reshape(-1, t.shape[-1])[0] if t.dim() > 1 else t[:1] for t in parts]
    slopes = [_slopes(number, weights) for row in rows for number in row]
    products = sum(_products([s[n] for s in slopes]) for n in range(len(weights)))
    place = sum(len(row) for row in rows[:leaf]) + column
    moves = products.diag() > 0
    if not moves[place]:
        return True
    sizes = products.diag()[moves].sqrt()
    values, ways = torch.linalg.eigh(products[moves][:, moves] / sizes / sizes[:, None])
    tied = ways[int(moves[:place].sum()), values < ROUNDED * values[-1]]
    return float(tied.norm()) > TIED


def _slopes(number: Tensor, weights: list[Tensor]) -> list[Tensor]:
    if not number.requires_grad:
        return [torch.zeros_like(w) for w in weights]
    return torch.autograd.grad(number, weights, retain_graph=True, materialize_grads=True)


def _products(slopes: list[Tensor]) -> Tensor:
    """Of each two columns' slopes in one tensor of weights."""
    flat = torch.stack([s.flatten() for s in slopes]).double().cpu()
    return flat @ flat.T
