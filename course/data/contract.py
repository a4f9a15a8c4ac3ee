"""The batch contract: what a batch must look like before a model or loss sees it.

Most faults of a data pipeline are silent: a Linear takes one example without its batch dimension
(F11), one-hot floats give a loss (F08), pixels of 0 to 255 train badly instead of failing (F14).
So the contract is checked, and each breach says what was seen, what is required, and the first fix.

Breaches carry the class ids of `course.debug.diagnose` where there is one, so that a finding of the
doctor and a breach of the contract have the same name.

Source: Lecture 1, "The batch contract"; Lecture 2, "Dtypes" and "Loss-target pairs"; ledger C20,
T02-T05, F07-F14, B09, B21, B34.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from course.tables import code, html_table

Task = Literal["classification", "binary", "multilabel", "regression"]
Layout = Literal["BCHW", "BHWC"]
IMAGE_CHANNELS = (1, 3, 4)
LONGEST_IMAGE = 3
"""Sides that differ by more than this factor are taken for channels and a map, not for an image."""
INPUT_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
REDUCED = ("float8", "float4", "uint16", "uint32", "uint64")
"""Kinds of numbers that torch stores and hardly computes with: looked at as float64."""


@dataclass(frozen=True)
class Breach:
    """One way in which a batch breaks the contract."""

    id: str
    """Class of the fault, such as `one-hot-labels`."""
    field: str
    """`batch`, `inputs` or `targets`."""
    seen: str
    """What the batch holds."""
    contract: str
    """What it should hold."""
    fix: str
    """The first thing to try, as code."""

    def __str__(self) -> str:
        return f"{self.id}: {self.field}: {self.seen}; {self.contract}. Try: {self.fix}"


class ContractError(ValueError):
    """A batch breaks the contract; `breaches` lists every way in which it does."""

    def __init__(self, breaches: Sequence[Breach]) -> None:
        self.breaches = tuple(breaches)
        super().__init__("the batch breaks its contract:\n" + "\n".join(map(str, breaches)))


class BatchReport(Sequence[Breach]):
    """The breaches of one batch, in the order in which to fix them; empty for a correct batch."""

    def __init__(self, breaches: Sequence[Breach] = ()) -> None:
        self.breaches = tuple(breaches)

    @property
    def ok(self) -> bool:
        """Whether the batch keeps the contract."""
        return not self.breaches

    @property
    def ids(self) -> list[str]:
        """The class id of each breach."""
        return [breach.id for breach in self.breaches]

    def raise_if_broken(self) -> None:
        """Raise if the batch breaks the contract.

        Raises:
            ContractError: The batch has breaches; the message lists them all.
        """
        if self.breaches:
            raise ContractError(self.breaches)

    def __len__(self) -> int:
        return len(self.breaches)

    def __getitem__(self, index: Any) -> Any:
        return self.breaches[index]

    def __iter__(self) -> Iterator[Breach]:
        return iter(self.breaches)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BatchReport) and self.breaches == other.breaches

    def __hash__(self) -> int:
        return hash(self.breaches)

    def __repr__(self) -> str:
        return "\n".join(map(str, self.breaches)) or "The batch keeps its contract."

    def _repr_html_(self) -> str:
        if self.ok:
            return "<p>The batch keeps its contract.</p>"
        rows = ((b.id, b.field, b.seen, b.contract, code(b.fix)) for b in self.breaches)
        return html_table(("breach", "in", "seen", "contract", "fix"), rows)


def check_batch(
    batch: Any,
    *,
    task: Task = "classification",
    num_classes: int | None = None,
    ndim: int | None = None,
    value_range: tuple[float, float] | None = None,
    ignore_index: int = -100,
    input_dtype: torch.dtype | None = None,
    class_probabilities: bool = False,
    layout: Layout | None = None,
) -> BatchReport:
    """Check a batch against the contract of its task.

    On an accelerator this waits for the batch to arrive: check the first batches, not every one.

    Args:
        batch: A pair (inputs [B, ...], targets [B, ...]), as a loader yields it.
        task: `classification`: class indices [B] or [B, ...], dtype long (uint8 [B] passes, as
            torch's cross-entropy takes it). `binary`: floats in [0, 1], [B] or [B, 1].
            `multilabel`: floats in [0, 1], [B, L]. `regression`: floats.
        num_classes: C (or L), if known: indices must lie in 0 .. C - 1.
        ndim: Number of dimensions of the inputs, including the batch's: 4 for images, 2 for rows of
            features.
        value_range: Smallest and largest input value. Without it, only inputs on the scale of raw
            pixels are reported as un-normalised (standard deviation over 10 and a value beyond 30).
        ignore_index: Target that the loss ignores.
        input_dtype: Declare a dtype other than float32, bfloat16 or float16; `torch.long` says that
            the inputs are token ids, which have no scale.
        class_probabilities: Declare that classification targets are probabilities [B, C], as after
            mixup.
        layout: Declare the order of the dimensions of [B, ., ., .] inputs. Without it, inputs such
            as [8, 30, 17, 3] are taken for images with their channels last, although they may be 30
            maps of 17 × 3: the shape alone cannot tell. With `BCHW`, nothing is guessed; with
            `BHWC`, images with channels first are a breach.

    Returns:
        The breaches; none for a correct batch.

    Raises:
        ValueError: `task` or `layout` is unknown.

    Source: Lecture 1, "The batch contract"; ledger C20, T04, T05.
    """
    if task not in get_args(Task):
        raise ValueError(f"task = {task!r}: no such task. Choose from {', '.join(get_args(Task))}.")
    if layout not in (None, *get_args(Layout)):
        raise ValueError(f"layout = {layout!r}: choose from {', '.join(get_args(Layout))} or None.")
    if not _is_pair(batch):
        parts = len(batch) if isinstance(batch, tuple | list) else "no"
        return BatchReport([_not_a_pair(f"a {type(batch).__name__}, {parts} parts")])
    inputs, targets = batch
    if breaches := list(_values_there(inputs, targets)):
        return BatchReport(breaches)
    if breaches := list(_size(inputs, targets, ndim)):
        return BatchReport(breaches)  # what follows would only repeat these
    breaches = [*_layout(inputs, layout), *_input_values(inputs, value_range, input_dtype)]
    if targets.is_floating_point() and not bool(torch.isfinite(targets).all()):
        breaches.append(_non_finite("targets", targets))
    elif task == "classification" and class_probabilities:
        breaches += _probabilities(targets, num_classes)
    elif task == "classification":
        breaches += _indices(inputs, targets, num_classes, ignore_index)
    else:
        breaches += _float_targets(targets, task, num_classes)
    return BatchReport(breaches)


def _is_pair(batch: Any) -> bool:
    pair = isinstance(batch, tuple | list) and len(batch) == 2
    return pair and all(isinstance(part, Tensor) for part in batch)


def _not_a_pair(seen: str) -> Breach:
    return Breach(
        "not-a-pair", "batch", seen, "a batch is a pair of tensors (inputs, targets)",
        "return inputs, targets  # both tensors, in __getitem__ or collate_fn",
    )  # fmt: skip


def _shape(tensor: Tensor) -> str:
    if tensor.is_nested:
        return f"[{tensor.size(0)}, ragged]"
    return str(list(tensor.shape))


def _values_there(inputs: Tensor, targets: Tensor) -> Iterator[Breach]:
    """Both parts hold numbers that can be read; the targets one by one."""
    for field, part in (("inputs", inputs), ("targets", targets)):
        if part.is_meta:
            yield Breach(
                "no-values", field, f"{_shape(part)} on the device meta",
                "a batch holds numbers; a meta tensor has only a shape",
                "torch.device('cpu') instead of 'meta' where the data set is created",
            )  # fmt: skip
    if targets.is_nested or targets.layout != torch.strided:
        yield Breach(
            "wrong-label-dtype", "targets", f"layout {targets.layout}"
            + (", nested" if targets.is_nested else ""),
            "targets are a plain, dense tensor", "targets.to_dense()",
        )  # fmt: skip


def _numbers(tensor: Tensor) -> Tensor:
    """A tensor's numbers in a kind that has a minimum; of a sparse one those that are there."""
    if tensor.is_nested:
        tensor = torch.cat([part.reshape(-1) for part in tensor.unbind()])
    elif tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce().values()
    elif tensor.layout != torch.strided:
        tensor = tensor.values()
    return tensor.double() if str(tensor.dtype)[6:].startswith(REDUCED) else tensor


def _size(inputs: Tensor, targets: Tensor, ndim: int | None) -> Iterator[Breach]:
    """Both parts hold the same number of examples, at least one, in their first dimension."""
    if inputs.is_nested:  # sequences of their own length each
        if inputs.size(0) != len(targets):
            yield _not_as_many(inputs.size(0), len(targets))
        return
    missing = inputs.dim() == 0 or targets.dim() == 0 or inputs.dim() + 1 == ndim
    if missing or (len(targets) == 1 and len(inputs) > 1 and inputs.dim() in (1, 3)):
        yield Breach(
            "missing-batch-dimension", "inputs" if inputs.dim() else "batch",
            f"inputs {_shape(inputs)}, targets {_shape(targets)}",
            "the first dimension counts the examples, even if there is only one",
            "inputs.unsqueeze(0), targets.reshape(1)",
        )  # fmt: skip
    elif ndim is not None and inputs.dim() != ndim:
        yield Breach(
            "wrong-input-shape", "inputs", f"{inputs.dim()} dimensions, {_shape(inputs)}",
            f"{ndim} dimensions were declared",
            "inputs.flatten(1)" if inputs.dim() > ndim else "inputs.unsqueeze(1)",
        )  # fmt: skip
    elif len(inputs) != len(targets):
        yield _not_as_many(len(inputs), len(targets))
    elif inputs.numel() == 0 or targets.numel() == 0:
        yield Breach(
            "empty-batch", "batch", f"inputs {_shape(inputs)}, targets {_shape(targets)}",
            "a batch holds at least one example, and an example at least one value",
            "DataLoader(dataset, batch_size)  # and look at len(dataset)",
        )  # fmt: skip


def _not_as_many(inputs: int, targets: int) -> Breach:
    return Breach(
        "size-mismatch", "batch", f"{inputs} inputs and {targets} targets",
        "each input has one target", "print(inputs.shape, targets.shape)  # in collate_fn",
    )  # fmt: skip


def _layout(inputs: Tensor, declared: Layout | None) -> Iterator[Breach]:
    """Images come as [B, C, H, W], or as declared. Sides of 8 or more that do not differ too much
    keep small and long feature maps out of this."""
    if inputs.dim() != 4 or declared == "BCHW":
        return
    _, first, middle, last = inputs.shape
    if declared is None and last in IMAGE_CHANNELS and _like_sides(first, middle):
        yield Breach(
            "channels-last", "inputs", f"{_shape(inputs)} reads as [B, H, W, C]",
            "images are [B, C, H, W]",
            "inputs.permute(0, 3, 1, 2).contiguous()  # or declare it: layout='BCHW'",
        )  # fmt: skip
    if (
        declared == "BHWC"
        and first in IMAGE_CHANNELS
        and last not in IMAGE_CHANNELS
        and _like_sides(middle, last)
    ):
        yield Breach(
            "channels-first", "inputs", f"{_shape(inputs)} reads as [B, C, H, W]",
            "[B, H, W, C] was declared", "inputs.permute(0, 2, 3, 1)",
        )  # fmt: skip


def _like_sides(height: int, width: int) -> bool:
    return min(height, width) >= 8 and max(height, width) <= LONGEST_IMAGE * min(height, width)


def _input_values(
    inputs: Tensor, value_range: tuple[float, float] | None, declared: torch.dtype | None
) -> Iterator[Breach]:
    wanted = INPUT_DTYPES if declared is None else (declared,)
    if inputs.dtype not in wanted:
        raw = inputs.dtype == torch.uint8
        yield Breach(
            "uint8-arithmetic" if raw else "wrong-input-dtype", "inputs", str(inputs.dtype),
            "inputs are " + (str(declared) if declared else "torch.float32 (or half precision)"),
            "inputs.float() / 255" if raw
            else f"inputs.to({declared or torch.float32})",
        )  # fmt: skip
        if not inputs.is_floating_point():
            return  # raw bytes lie in 0-255 by nature: one message is enough
    if inputs.is_complex() or inputs.dtype == torch.bool:
        return
    inputs = _numbers(inputs)
    if not inputs.numel():  # a sparse tensor of zeros only
        return
    if inputs.is_floating_point() and not bool(torch.isfinite(inputs).all()):
        yield _non_finite("inputs", inputs)
        return
    low, high = inputs.min().item(), inputs.max().item()
    if value_range is not None:
        inside = value_range[0] <= low and high <= value_range[1]
        expected = f"values lie in {value_range[0]:g} .. {value_range[1]:g}"
    else:
        inside = not inputs.is_floating_point() or _is_mild(inputs, max(-low, high))
        expected = "values are centred, of standard deviation about 1"
    if not inside:
        yield Breach(
            "range-not-normalised", "inputs", f"values from {low:.4g} to {high:.4g}", expected,
            "(inputs - mean) / std  # mean and std of the training part",
        )  # fmt: skip


def _is_mild(inputs: Tensor, largest: float) -> bool:
    return largest <= 30 or inputs.float().std(correction=0).item() <= 10


def _non_finite(field: str, values: Tensor) -> Breach:
    num = int((~torch.isfinite(values)).sum())
    return Breach(
        "non-finite-values", field, f"{num} of {values.numel()} values are nan or inf",
        "all values are finite", f"rows = ~torch.isfinite({field}).flatten(1).all(1)"
        if values.dim() > 1 else f"rows = ~torch.isfinite({field})",
    )  # fmt: skip


def _indices(
    inputs: Tensor, targets: Tensor, num_classes: int | None, ignore_index: int
) -> Iterator[Breach]:
    contract = "targets are class indices [B], dtype long"
    if _is_one_hot(inputs, targets, num_classes):
        yield Breach(
            "one-hot-labels", "targets", f"one-hot rows {_shape(targets)}, {targets.dtype}",
            contract, "targets.argmax(1)",
        )  # fmt: skip
        return
    if targets.dim() == 2 and targets.shape[1] == 1 and inputs.shape[1:2] != (1,):
        yield Breach(
            "wrong-label-shape", "targets", _shape(targets), contract, "targets.squeeze(1)"
        )
    if not _takes_as_indices(targets):
        soft = targets.is_floating_point() and targets.dim() == 2 and targets.shape[1] > 1
        only = "; cross_entropy takes uint8 only as [B]" if targets.dtype is torch.uint8 else ""
        yield Breach(
            "wrong-label-dtype", "targets", f"{targets.dtype} {_shape(targets)}", contract + only,
            "check_batch(..., class_probabilities=True)  # if that is intended" if soft
            else "targets.real.long()" if targets.is_complex() else "targets.long()",
        )  # fmt: skip
        if soft or targets.is_complex():
            return
    # As long: uint8 would take an ignore_index of -100 for 156.
    targets = targets.long() if targets.dtype is torch.uint8 else _numbers(targets)
    counted = targets[targets != ignore_index]
    if counted.numel() == 0:
        yield Breach(
            "all-targets-ignored", "targets", f"every target is {ignore_index}",
            "at least one target counts, or the mean loss is 0 / 0 = nan",
            "drop examples without labels before batching",
        )  # fmt: skip
        return
    low, high = counted.min().item(), counted.max().item()
    if low < 0 or (num_classes is not None and high >= num_classes):
        top = "C - 1" if num_classes is None else num_classes - 1
        yield Breach(
            "label-out-of-range", "targets", f"labels from {low:g} to {high:g}",
            f"labels lie in 0 .. {top}" + (f", or are {ignore_index}" if low < 0 else ""),
            "targets - 1  # if counted from 1" if low == 1 and high == num_classes
            else "unique = targets.unique()  # which label is not a class?",
        )  # fmt: skip


def _takes_as_indices(targets: Tensor) -> bool:
    """Whether torch's cross-entropy reads these as class indices (F07).

    It takes long in any shape. It takes uint8 too, for one label an example: a map of them [B, ...]
    raises `expected scalar type Long but found Byte`. It takes no other whole numbers.
    """
    one_each = targets.dim() == 1 or targets.shape[1:].numel() == 1  # [B, 1] is a breach by itself
    return targets.dtype is torch.long or (targets.dtype is torch.uint8 and one_each)


def _is_one_hot(inputs: Tensor, targets: Tensor, num_classes: int | None) -> bool:
    """Rows of zeros with a single one. Integer labels per position, [B, T], may look so by chance:
    they are taken for labels where the inputs have a T too."""
    if targets.dim() != 2 or targets.shape[1] < 2 or targets.shape[1] != (
        num_classes or targets.shape[1]
    ):  # fmt: skip
        return False
    per_position = inputs.dim() == 3 or not inputs.is_floating_point()
    if not targets.is_floating_point() and per_position and inputs.shape[:2] == targets.shape:
        return False
    ones = targets == 1
    return bool((ones | (targets == 0)).all()) and bool((ones.sum(1) == 1).all())


def _probabilities(targets: Tensor, num_classes: int | None) -> Iterator[Breach]:
    contract = f"class probabilities [B, {num_classes or 'C'}], rows sum to 1"
    if not targets.is_floating_point():
        yield Breach(
            "wrong-label-dtype", "targets", str(targets.dtype), contract, "targets.float()"
        )
    elif targets.dim() < 2 or targets.shape[1] != (num_classes or targets.shape[1]):
        yield Breach(
            "wrong-label-shape", "targets", _shape(targets), contract,
            "F.one_hot(targets, num_classes).float()",
        )  # fmt: skip
    else:
        off = (targets.float().sum(1) - 1).abs().max().item()
        if off > 0.02 or targets.min() < 0:  # 0.02: bfloat16 rows of a few hundred classes
            yield Breach(
                "label-out-of-range", "targets",
                f"a row sum is {off:.3g} off 1, the smallest value is {targets.min():.3g}",
                contract, "targets / targets.sum(1, keepdim=True)",
            )  # fmt: skip


def _float_targets(targets: Tensor, task: str, num_classes: int | None) -> Iterator[Breach]:
    """Targets of a loss that wants the logits' own shape and dtype (F12, F13)."""
    contract = {
        "binary": "targets are floats [B] or [B, 1] in 0 .. 1, of the logits' shape",
        "multilabel": f"targets are floats [B, {num_classes or 'L'}] in 0 .. 1",
        "regression": "targets are floats, of the outputs' shape",
    }[task]
    if targets.dtype not in INPUT_DTYPES:
        yield Breach(
            "wrong-label-dtype", "targets", str(targets.dtype), contract,
            "targets.real.float()" if targets.is_complex() else "targets.float()",
        )  # fmt: skip
    if task == "regression" or targets.is_complex():
        return
    targets = _numbers(targets)
    if task == "binary" and (targets.dim() > 2 or targets.shape[1:].numel() != 1):
        one_hot = targets.dim() == 2 and bool(((targets == 1).sum(1) == 1).all())
        yield Breach(
            "one-hot-labels" if one_hot else "wrong-label-shape", "targets", _shape(targets),
            contract, "targets[:, 1].float()",
        )  # fmt: skip
    if task == "multilabel" and (
        targets.dim() != 2 or targets.shape[1] != (num_classes or targets.shape[1])
    ):
        yield Breach(
            "wrong-label-shape", "targets", _shape(targets), contract,
            "targets = torch.zeros(B, L); targets[row, labels] = 1.0",
        )  # fmt: skip
    low, high = targets.min().item(), targets.max().item()
    if low < 0 or high > 1:
        yield Breach(
            "label-out-of-range", "targets", f"values from {low:.4g} to {high:.4g}", contract,
            "(targets > 0).float()  # for labels -1 and 1",
        )  # fmt: skip
