"""Calls of torch functions by user code: losses, activations, arithmetic that goes wrong.

A function mode sees every call, even through a name that was imported long before. What matters is
recorded on the tape: which loss got which outputs and targets, which units are alive, where uint8
values wrap around, where a column of outputs meets a row of numbers.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from course.debug.probes.columns import Columns, is_column
from course.debug.probes.normals import Normals
from course.debug.probes.totals import Totals
from course.state.nested import tensors_in

if TYPE_CHECKING:
    from course.debug.probes.tape import Tape

LOSSES = {
    F.cross_entropy: "cross_entropy",
    F.nll_loss: "nll_loss",
    F.mse_loss: "mse_loss",
    F.l1_loss: "l1_loss",
    F.smooth_l1_loss: "smooth_l1_loss",
    F.huber_loss: "huber_loss",
    F.binary_cross_entropy: "binary_cross_entropy",
    F.binary_cross_entropy_with_logits: "bce_with_logits",
    F.kl_div: "kl_div",
}
PAIRWISE = {"add", "sub", "rsub", "mul", "div", "true_divide", "eq", "ne", "lt", "le", "gt", "ge"}
"""Functions of two tensors that broadcast, by their names without underscores."""
RELUS = {F.relu, torch.relu, Tensor.relu, torch.relu_, Tensor.relu_, F.relu_}
UINT8_MATH = {
    Tensor.add: int.__add__, torch.add: int.__add__, Tensor.__add__: int.__add__,
    Tensor.__radd__: int.__add__, Tensor.mul: int.__mul__, torch.mul: int.__mul__,
    Tensor.__mul__: int.__mul__, Tensor.__rmul__: int.__mul__, Tensor.sub: int.__sub__,
    torch.sub: int.__sub__, Tensor.__sub__: int.__sub__, Tensor.__rsub__: lambda a, b: b - a,
    Tensor.__neg__: None, torch.neg: None, Tensor.neg: None,
    Tensor.add_: int.__add__, Tensor.__iadd__: int.__add__, Tensor.mul_: int.__mul__,
    Tensor.__imul__: int.__mul__, Tensor.sub_: int.__sub__, Tensor.__isub__: int.__sub__,
}  # fmt: skip


SIGNED = {
    F.cosine_embedding_loss: 2, F.margin_ranking_loss: 2, F.hinge_embedding_loss: 1,
    F.soft_margin_loss: 1,
}  # fmt: skip
"""Losses of two answers, 1 and -1, and the place of these among the arguments."""
RATES = {F.poisson_nll_loss, torch.poisson_nll_loss}
SUMS = {
    torch.add, Tensor.add, Tensor.__add__, Tensor.__radd__, Tensor.add_, Tensor.__iadd__,
    torch.sub, Tensor.sub, Tensor.__sub__, Tensor.__rsub__, Tensor.sub_, Tensor.__isub__,
}  # fmt: skip
TAKEN = {torch.sub, Tensor.sub, Tensor.__sub__, Tensor.sub_, Tensor.__isub__}
ADDED = SUMS - {Tensor.__radd__, Tensor.__rsub__}
"""Functions whose first argument is a total, to which the second is added or from which it is
taken."""
NOTS = {torch.bitwise_not, Tensor.bitwise_not, Tensor.__invert__, Tensor.bitwise_not_}
SEEN = {
    *LOSSES, *RELUS, *UINT8_MATH, *SIGNED, *RATES, *SUMS, *NOTS, F.ctc_loss,
    torch._foreach_clamp_min_, torch.normal, F.gaussian_nll_loss,
}  # fmt: skip
"""Functions that are looked at, whatever they give."""
RESHAPED = (
    "Squeeze", "Unsqueeze", "View", "Reshape", "UnsafeView", "Select", "Slice", "Clamp",
    "IndexBackward", "IndexSelect", "Permute", "Transpose", "TBackward", "Expand", "Clone",
)  # fmt: skip
"""Beginnings of the names of nodes of a graph that hand on numbers as they are."""
SQUEEZED = ("Softmax", "Sigmoid")
"""The same of what makes shares of scores."""
POSITIVE = ("Exp", "Softplus")
"""The same of what makes numbers positive, as rates are."""
MOST_RESHAPED = 8
"""Nodes in a row that are looked through."""


class Functions(TorchFunctionMode):
    """Sees every torch function that user code calls, and records on a tape what matters."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self.tape: Tape = weakref.proxy(tape)  # the tape holds this, and both go with it
        self.relu_alive: dict[str, Tensor] = {}
        """Units of each relu, in order of the calls of a forward, that were ever above 0."""
        self.relu_rows = 0
        self._relu_count = 0
        self._columns: list[Tensor] = []
        self._meant: set[int] = set()
        self._asked = Columns()
        self.totals = Totals()
        self.normals = Normals()
        self.deaf = False
        """An optimizer of torch's makes its step: thousands of calls, and none that matters."""
        self.called: set[Any] = set()
        """All functions that were called, except by an optimizer of torch's."""

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None):
        kwargs = kwargs or {}
        if self.deaf:
            return function(*args, **kwargs)
        self.called.add(function)
        if is_transformed():
            return function(*args, **kwargs)
        if function not in SEEN:
            result = function(*args, **kwargs)
            if isinstance(result, Tensor) and result.dim() == 2:
                self._see_table(function, args, kwargs, result)
            return result
        if function is torch._foreach_clamp_min_:  # how clip_grad_value_ starts
            self.tape.note("clip", before=self.tape.gradient(), after=[])
        wide = _wide(function, args)
        two = self.totals.before(args) if function in ADDED else None
        result = function(*args, **kwargs)
        if two is not None:
            self.totals.after(args, two, result, minus=function in TAKEN)
        self.see(function, args, kwargs, result)
        if isinstance(result, Tensor) and result.dim() == 2:
            self._see_table(function, args, kwargs, result)
        if wide is not None and isinstance(result, Tensor) and result.dtype == torch.uint8:
            wrapped = int((wide != result.long()).sum())
            if wrapped:
                self.tape.note("wrapped", count=wrapped, of=result.numel())
        return result

    def forward_begins(self) -> None:
        """The model is called."""
        self._relu_count = 0
        self._columns = []
        self._meant.clear()
        self.normals.clear()

    def forward_gave(self, output: Any) -> None:
        """The model has returned."""
        self._columns += [t.detach() for t in tensors_in(output) if is_column(t)]

    def see(self, function: Any, args: Any, kwargs: Any, result: Any) -> None:
        """A torch function was called by the user's code."""
        if self.normals.drawn and self.normals.is_priced(args):
            self.tape.note("log_prob")
        if function is torch.normal:
            self.normals.see(args, kwargs, result)
        elif function in LOSSES:
            inputs = kwargs.get("input", args[0] if args else None)
            targets = kwargs.get("target", args[1] if len(args) > 1 else None)
            if isinstance(inputs, Tensor) and isinstance(targets, Tensor):
                value = float(result.detach().mean()) if isinstance(result, Tensor) else None
                self.tape.note(
                    "loss", name=LOSSES[function], inputs=inputs.detach(), targets=targets.detach(),
                    value=value, graph=inputs.requires_grad, learned=targets.requires_grad,
                    reduction=kwargs.get("reduction", "mean"), weight=kwargs.get("weight"),
                    call_again=_again(function, args, kwargs),
                    squeezed=comes_from(inputs, SQUEEZED),
                )  # fmt: skip
                self.tape.mark(self.tape.events[-1], result)
        elif function in RATES and isinstance(args[0] if args else None, Tensor):
            log = kwargs.get("log_input", args[2] if len(args) > 2 else True)
            self.tape.note(
                "rates", logarithms=bool(log), made_positive=comes_from(args[0], POSITIVE)
            )
        elif function in SUMS:
            self._see_term(args, result)
        elif function in SIGNED:
            place = SIGNED[function]
            answers = kwargs.get("target", args[place] if len(args) > place else None)
            if isinstance(answers, Tensor):
                self.tape.note("signs", name=function.__name__, answers=answers.detach())
        elif function is F.ctc_loss and isinstance(args[0] if args else None, Tensor):
            self.tape.note("log_probs", name="ctc_loss", inputs=args[0].detach())
            self.tape.note("ctc", **_ctc_targets(*args, **kwargs))
        elif function in NOTS and isinstance(result, Tensor) and result.dtype != torch.bool:
            low, high = (int(v) for v in (~result).aminmax()) if result.numel() else (0, 0)
            self.tape.note("bitwise not", least=low, most=high, type=str(result.dtype))
        elif function in RELUS and isinstance(result, Tensor) and result.dim() > 1:
            self._see_relu(result.detach())
        if function in UINT8_MATH:
            self._see_uint8(UINT8_MATH[function], args, result)

    def _see_table(self, function: Any, args: Any, kwargs: Any, result: Tensor) -> None:
        """A function gave rows and columns."""
        tensors = [a for a in args if isinstance(a, Tensor)]
        if rows := self._asked.see(function, tensors, kwargs, result):
            self.tape.note("table of columns", rows=rows, function=function.__name__.strip("_"))
        if self._columns:
            self._see_column(function, tensors, result)

    def _see_column(self, function: Any, args: list[Tensor], result: Tensor) -> None:
        """What becomes of outputs [N, 1], element by element, until they meet [N]: a table."""
        name = getattr(function, "__name__", "").strip("_")
        if any(a.dim() == 1 for a in args) and len(args) == 1 and is_column(result):
            self._meant.add(id(result))  # a column that the author made of a row
        met = [a for a in args if is_column(a) and id(a) not in self._meant]
        if not any(shares_memory(a, self._columns) for a in met):
            return
        rows = len(self._columns[0])
        if is_column(result) and len(result) == rows:
            self._columns.append(result.detach())
        elif name in PAIRWISE and result.shape == (rows, rows) and any(a.dim() == 1 for a in args):
            self.tape.note("table", rows=rows, function=name, graph=result.requires_grad)

    def _see_term(self, args: Any, result: Any) -> None:
        """One number that has no graph is added to one that has."""
        two = [a for a in args[:2] if isinstance(a, Tensor)]
        terms = [a for a in two if not a.requires_grad]
        if len(two) != 2 or len(terms) != 1 or not isinstance(result, Tensor) or result.dim():
            return
        if result.grad_fn is not None:
            self.tape.note("term", value=terms[0].detach().clone(), reached=False)
            self.tape.mark_term(result)

    def _see_relu(self, result: Tensor) -> None:
        unit = result.flatten(2).amax(2) if result.dim() > 2 else result
        alive = (unit > 0).any(0)
        name = f"relu {self._relu_count} [{alive.numel()}]"
        self._relu_count += 1
        known = self.relu_alive.get(name)
        self.relu_alive[name] = alive if known is None else known | alive
        self.relu_rows += len(result)

    def _see_uint8(self, operation: Any, args: Any, result: Any) -> None:
        if not (isinstance(result, Tensor) and result.dtype == torch.uint8):
            return
        if operation is None:
            wrapped = int((args[0] != 0).sum()) if len(args) else 0
        else:
            return  # judged before the call
        if wrapped:
            self.tape.note("wrapped", count=wrapped, of=result.numel())


def comes_from(tensor: Tensor, names: str | tuple[str, ...]) -> bool:
    """The numbers come out of a function of one of these names, and were at most reshaped or chosen
    since."""
    node = tensor.grad_fn
    for _ in range(MOST_RESHAPED):
        if node is None or not node.name().startswith(RESHAPED):
            break
        node = node.next_functions[0][0]
    return node is not None and node.name().startswith(names)


def _ctc_targets(
    log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any, blank: int = 0,
    *_: Any, **__: Any,
) -> dict[str, Any]:  # fmt: skip
    """Signs that are to be read, without what lies behind a row's end, and the blank one."""
    lengths = torch.as_tensor(target_lengths).flatten()
    if targets.dim() == 2:
        real = torch.arange(targets.shape[1])[None] < lengths.cpu()[:, None]
        targets = targets.cpu()[real]
    return {"targets": targets.detach().cpu(), "blank": blank}


def _again(function: Any, args: Any, kwargs: Any) -> Callable | None:
    """The same loss as a function of outputs and targets; None where more came by position."""
    options = {k: v for k, v in kwargs.items() if k not in ("input", "target")}
    return partial(function, **options) if len(args) <= 2 else None


def _wide(function: Any, args: Any) -> Tensor | None:
    """The same arithmetic on uint8 tensors with wider integers; None for anything else."""
    operation = UINT8_MATH.get(function) if callable(function) else None
    if operation is None or len(args) < 2:
        return None
    if not any(isinstance(a, Tensor) and a.dtype == torch.uint8 for a in args[:2]):
        return None
    if any(isinstance(a, Tensor) and a.dtype != torch.uint8 for a in args[:2]):
        return None
    if any(isinstance(a, float) for a in args[:2]):
        return None
    a, b = (x.long() if isinstance(x, Tensor) else x for x in args[:2])
    if operation is int.__add__:
        return a + b
    if operation is int.__mul__:
        return a * b
    return a - b if operation is int.__sub__ else b - a


def is_transformed() -> bool:
    """vmap, grad or another transform of torch.func is running: its tensors hold no numbers yet."""
    return torch._C._functorch.maybe_current_level() is not None


def shares_memory(one: Any, others: list[Tensor]) -> bool:
    return isinstance(one, Tensor) and any(one.data_ptr() == other.data_ptr() for other in others)
