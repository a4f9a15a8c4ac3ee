"""A second device where there is no GPU: an accelerator's manners, computed on the CPU.

    with second_device() as device, counted() as counts:
        Trainer(model, criterion, optimizer, device=device).fit(loader, epochs=1)
    assert counts.waits == 3

torch lets a backend be written in Python. This one keeps each tensor's numbers in a CPU tensor
(`inner`) behind another device's name. It does what breaks code on a real accelerator:

    mixing with CPU tensors is refused, in CUDA's words
    .numpy() and np.asarray() are refused
    `.to(device)` of a module makes new Parameter objects, as XLA's does
    it has random generators of its own
    every copy from or to the CPU, and every read of a number (.item(), float(), bool()), is counted

What it cannot show, and only tests marked `gpu` can: rounding of a GPU's kernels, streams and
asynchronous errors, pinned memory, memory counters, the whole of autocast's lists, a generator made
on the device, and `torch.load(..., map_location=device)`.

Where there is a GPU this device is not made, and what asks for it is skipped: torch would take it
for the machine's one accelerator, and then no backward pass on the GPU finds its streams.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from glob import glob
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._device import _device_constructors
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_leaves, tree_map

NAME = "second_device"


@dataclass
class Counts:
    """What crossed between the devices."""

    to_device: int = 0
    """Copies from the CPU."""
    to_cpu: int = 0
    """Copies to the CPU."""
    waits: int = 0
    """Reads of a number, for which a GPU's queue would have to run empty."""


COUNTS = Counts()


@contextmanager
def counted() -> Iterator[Counts]:
    """Count transfers and waits of the block."""
    global COUNTS
    before, COUNTS = COUNTS, Counts()
    try:
        yield COUNTS
    finally:
        COUNTS = before


class SecondTensor(Tensor):
    """A tensor on the second device; `inner` holds its numbers on the CPU."""

    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor) -> SecondTensor:
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device(NAME, 0),
            requires_grad=False,
        )
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, op, types, args=(), kwargs=None):
        return _run(op, args, kwargs or {})

    @property
    def data(self) -> Tensor:
        return Tensor.data.__get__(self)

    @data.setter
    def data(self, other: SecondTensor) -> None:
        Tensor.data.__set__(self, other)  # e.g. model.double(): the Parameter stays, of new numbers
        self.inner = other.inner

    def __getitem__(self, index: Any) -> Tensor:
        return super().__getitem__(_with_tensors(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_with_tensors(index), value)

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.inner.untyped_storage()  # where the numbers are, and how many bytes

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def tolist(self) -> Any:
        COUNTS.waits += 1
        return self.inner.detach().tolist()

    def numpy(self, *_args: object, **_kwargs: object):
        raise TypeError(
            f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        )

    def __array__(self, *_args: object, **_kwargs: object):
        return self.numpy()

    def __format__(self, spec: str) -> str:
        return self.item().__format__(spec) if self.dim() == 0 else super().__format__(spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) in memo:
            return memo[id(self)]
        copied = SecondTensor(self.inner.detach().clone()).requires_grad_(self.requires_grad)
        if isinstance(self, torch.nn.Parameter):
            copied = torch.nn.Parameter(copied, requires_grad=self.requires_grad)
        if self.grad is not None:
            copied.grad = self.grad.detach().clone()
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, _protocol: object) -> tuple[Any, ...]:
        return _rebuilt, (self.inner.detach(), self.requires_grad)

    def __repr__(self, **_kwargs: object) -> str:
        return f"tensor({self.inner!r}, device='{self.device}')"


WAITS = {
    *("aten::_local_scalar_dense", "aten::is_nonzero", "aten::equal"),  # read a number
    *("aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim"),  # read a size
}
"""Operators for which a GPU's queue has to run empty."""


def _run(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One operator: the same on the CPU, its results named as this device's."""
    name = op._schema.name
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    ours = [tensor for tensor in tensors if isinstance(tensor, SecondTensor)]
    if name == "aten::copy_":
        return _copied_into(*args[:2])
    goes_to = torch.device(kwargs["device"]).type if kwargs.get("device") is not None else None
    if name == "aten::_to_copy":
        goes_to = goes_to or NAME
        COUNTS.to_cpu += goes_to == "cpu" and bool(ours)
        COUNTS.to_device += goes_to == NAME and not ours
    else:
        _refuse_mixed(name, args, tensors)
    if ours and name in WAITS:
        COUNTS.waits += 1
    if goes_to is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    with _own_generator(op):
        result = op(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    if goes_to == "cpu":
        return result
    if torch.Tag.inplace_view in op.tags:  # e.g. transpose_: our own shape follows the inner one
        with no_dispatch():
            op(*args, **kwargs)
        return args[0]
    if name == PACKED:
        return SecondTensor(result[0]), result[1]
    known = {id(tensor.inner): tensor for tensor in ours}  # what an operator changed in place
    with _as_its_base(op, ours):
        return tree_map(lambda leaf: known.get(id(leaf), _named(leaf)), result)


def _as_its_base(op: Any, ours: list[SecondTensor]) -> AbstractContextManager[None]:
    """Under inference_mode a view of a tensor from outside is no inference tensor either."""
    if not torch.is_inference_mode_enabled() or all(tensor.is_inference() for tensor in ours):
        return nullcontext()
    is_view = any(
        a.alias_info is not None and not a.alias_info.is_write for a in op._schema.returns
    )
    return torch.inference_mode(False) if is_view else nullcontext()


PACKED = "aten::_pack_padded_sequence"
"""Takes lengths on the CPU, and its second result stays there."""


INDEXING = {"aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}
"""Indices may lie on the CPU, as CUDA allows: they are the second argument."""


def _with_tensors(index: Any) -> Any:
    """An index with tensors for lists, of which torch would make some itself, with an assert."""
    if isinstance(index, list):
        return torch.tensor(index, device="cpu")
    return tuple(map(_with_tensors, index)) if isinstance(index, tuple) else index


def _refuse_mixed(name: str, args: tuple[Any, ...], tensors: list[Tensor]) -> None:
    """As CUDA does; a CPU tensor that is a single number may take part."""
    ours = [tensor for tensor in tensors if isinstance(tensor, SecondTensor)]
    strangers = [t for t in tensors if not isinstance(t, SecondTensor) and t.dim() > 0]
    if name in INDEXING and isinstance(args[0], SecondTensor):
        strangers = [t for t in strangers if not any(t is index for index in args[1])]
    if ours and strangers and name != PACKED:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{ours[0].device} and {strangers[0].device}! (when checking arguments in method "
            f"{name})"
        )


def _copied_into(target: Tensor, source: Tensor) -> Tensor:
    COUNTS.to_device += isinstance(target, SecondTensor) and not isinstance(source, SecondTensor)
    COUNTS.to_cpu += isinstance(source, SecondTensor) and not isinstance(target, SecondTensor)
    _inner(target).copy_(_inner(source))
    return target


@contextmanager
def _own_generator(op: Any) -> Iterator[None]:
    """Operators that draw take this device's random numbers, not the CPU's."""
    if torch.Tag.nondeterministic_seeded not in op.tags:
        yield
        return
    of_the_cpu = torch.default_generator.get_state()
    torch.default_generator.set_state(GENERATOR.get_state())
    try:
        yield
    finally:
        GENERATOR.set_state(torch.default_generator.get_state())
        torch.default_generator.set_state(of_the_cpu)


def _inner(leaf: Any) -> Any:
    return leaf.inner if isinstance(leaf, SecondTensor) else leaf


def _named(leaf: Any) -> Any:
    return SecondTensor(leaf) if isinstance(leaf, Tensor) else leaf


GENERATOR = torch.Generator()


class _Backend:
    """What torch expects as `torch.second_device`, as `torch.cuda` is CUDA's."""

    is_there = False

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return self.is_there

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return int(self.is_there)

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed(self, seed: int) -> None:
        GENERATOR.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_rng_state(self, device: object = None) -> Tensor:
        return GENERATOR.get_state()

    def set_rng_state(self, state: Tensor, device: object = None) -> None:
        GENERATOR.set_state(state)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def synchronize(self, device: object = None) -> None:
        COUNTS.waits += 1


BACKEND = _Backend()


THERE_IS_A_GPU = bool(glob("/dev/nvidia[0-9]*"))
"""Not asked of CUDA, which is of no use any more in what is forked after the question."""


def skip_beside_a_gpu() -> None:
    """Skip a test where torch has an accelerator already."""
    if THERE_IS_A_GPU:
        import pytest  # processes that have this device for good do not need it

        pytest.skip("there is a GPU: torch takes one accelerator, and that would be the stand-in")


@cache
def register() -> None:
    """Once per process, for good: torch cannot take a backend back.

    Before the first backward: the threads that run it are made for the devices that are there.
    """
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    class Hook(torch._C._acc.PrivateUse1Hooks):
        def is_available(self) -> bool:
            return BACKEND.is_there

        def has_primary_context(self, _device: int) -> bool:
            return True

        def is_built(self) -> bool:
            return True

    _device_constructors()  # kept by torch: not what stands in for them in a block
    _setup_privateuseone_for_python_backend(NAME, BACKEND, Hook())
    library = torch.library.Library("_", "IMPL")
    library.fallback(lambda op, *args, **kwargs: _run(op, args, kwargs), "PrivateUse1")
    library.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    aten = torch.library.Library("aten", "IMPL")
    aten.impl("_thnn_fused_gru_cell", _gru_cell, "AutogradPrivateUse1")
    aten.impl("_thnn_fused_lstm_cell", _lstm_cell, "AutogradPrivateUse1")
    for name in GROWING:
        aten.impl(name, _made_whole(_overload(name)), "PrivateUse1")
    for name, dtype in AUTOCAST.items():
        aten.impl(name, _autocast_to(dtype, _overload(name)), "AutocastPrivateUse1")
    register.libraries = (library, aten)  # what they register goes with them
    torch.serialization.add_safe_globals([_rebuilt])


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


GROWING = ("arange", "arange.start", "arange.start_step", "range", "range.step", "eye", "eye.m")
"""What torch makes by growing an empty tensor: the one with the device's name would stay empty."""


def _made_whole(op: Any) -> Callable[..., Tensor]:
    def made(*args: Any, device: Any = None, pin_memory: Any = None, **kwargs: Any) -> Tensor:
        return SecondTensor(op(*args, device=torch.device("cpu"), **kwargs))

    return made


def _gru_cell(inputs, hidden, state, input_bias=None, hidden_bias=None):
    """The cell that accelerators fuse, in operators that differentiate by themselves."""
    inputs, hidden = _biased(inputs, input_bias), _biased(hidden, hidden_bias)
    (r_in, z_in, n_in), (r_h, z_h, n_h) = inputs.chunk(3, 1), hidden.chunk(3, 1)
    reset, update = (r_in + r_h).sigmoid(), (z_in + z_h).sigmoid()
    new = (n_in + reset * n_h).tanh()
    return (state - new) * update + new, inputs


def _lstm_cell(inputs, hidden, state, input_bias=None, hidden_bias=None):
    gates = _biased(inputs, input_bias) + _biased(hidden, hidden_bias)
    enter, forget, new, leave = gates.chunk(4, 1)
    state = forget.sigmoid() * state + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * state.tanh(), state, gates


def _biased(gates: Tensor, bias: Tensor | None) -> Tensor:
    return gates if bias is None else gates + bias


AUTOCAST: dict[str, torch.dtype | None] = {
    **dict.fromkeys(("linear", "matmul", "mm", "addmm", "bmm", "conv2d")),
    **dict.fromkeys(("cross_entropy_loss", "mse_loss", "log_softmax.int"), torch.float32),
}
"""What autocast computes in another precision: its own 16 bits (None), or 32. A GPU's list is
longer."""


def _autocast_to(dtype: torch.dtype | None, op: Any) -> Callable[..., Any]:
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)

    def cast(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            return leaf
        return leaf.to(dtype or torch.get_autocast_dtype(NAME))

    def under_autocast(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(keys):
            return op(*tree_map(cast, args), **tree_map(cast, kwargs))

    return under_autocast


@contextmanager
def second_device() -> Iterator[torch.device]:
    """The device, there inside the block and gone after it."""
    skip_beside_a_gpu()
    register()
    with ExitStack() as stack:
        for name in ("tensor", "as_tensor", "asarray"):
            made = _made_on_the_cpu(getattr(torch, name))
            stack.enter_context(mock.patch.object(torch, name, made))
        stack.enter_context(
            mock.patch.object(torch.accelerator, "synchronize", BACKEND.synchronize)
        )
        stack.enter_context(mock.patch.object(torch.Tensor, "pin_memory", _as_it_is))
        stack.enter_context(mock.patch.object(BACKEND, "is_there", True))
        yield torch.device(NAME, 0)


def _as_it_is(tensor: Tensor, *_args: object, **_kwargs: object) -> Tensor:
    """For a loader that pins its batches where there is an accelerator."""
    return tensor


def _made_on_the_cpu(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """For `torch.tensor(values, device=...)`, which an assert inside torch forbids as it is."""

    def made(*args: Any, device: Any = None, **kwargs: Any) -> Tensor:
        place = torch.empty(0).device if device is None else torch.device(device)  # or the default
        if place.type != NAME:
            return make(*args, device=device, **kwargs)
        grad = kwargs.pop("requires_grad", False)
        on_the_cpu = make(*args, device="cpu", **kwargs)
        return on_the_cpu.detach().to(place).requires_grad_(grad)

    return made


def _rebuilt(inner: Tensor, requires_grad: bool) -> Tensor:
    """What was saved from this device: on it again, or where `map_location` says."""
    wanted = getattr(torch.serialization._serialization_tls, "map_location", None)
    if wanted is not None and torch.device(wanted).type != NAME:
        return inner
    return SecondTensor(inner).requires_grad_(requires_grad)
