"""What exercises about training share: cases that vary in everything, and what was left behind.

`draw_training` draws a case, `Training` builds from it what a function is handed, and looks at what
the call did to it. A whole exercise:

    def draw(source: Draw, part: str) -> Case:
        sizes = [source.integer(3, 5), source.integer(1, 2)]
        return draw_training(source, sizes, vary=part == "weights")

    def run(function, case: Case, device: torch.device) -> Answer:
        t = Training(case, device)
        returned = function(t.model, t.loader, t.criterion, t.optimizer)
        return {
            "weights": t.state(),
            "loss": kept(as_number, returned, "the mean loss"),
            "disturbed": t.changed(TRAINED),
        }

    def reference(model, loader, criterion, optimizer) -> float:
        return engine.train_one_epoch(model, loader, criterion, optimizer)

    EXERCISE = Exercise(
        id="03x.example", signature="train(model, loader, criterion, optimizer)", ...,
        parts=(
            Part("weights", "the weights, with any loss and optimizer", points=1, cases=3,
                 fields=("weights", "disturbed")),
            Part("loss", "the mean loss", points=1, fields=("loss",)),
        ),
        wrong=(
            Wrong("not-cleared", not_cleared, "Gradients of ... Call zero_grad() per batch."),
            *common(plain_loop, "own-criterion", "own-optimizer", "batch-means"),
        ),
        right=(plain_loop, another_loop, a_third),
    )

With `vary`, each case of the part has another loss, optimizer, number of classes, depth and dtype,
so that an answer which ignores what it is handed fails there, and only there. `kept` turns a
returned value of the wrong kind into a mistake of its own field. `changed` is one complete list.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import disable_saved_tensors_hooks, saved_tensors_hooks
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.data import DataLoader

from autograde.exercise import AnswerError, Case, Draw, NotAllowedError, as_number
from autograde.sandbox.beside import WITHOUT_TORCH
from autograde.sandbox.left_behind import remove

Batch = tuple[Tensor, Tensor]

PLAIN = {"criterion": "plain", "optimizer": "sgd", "classes": (2, 4), "dtype": "float32"}
"""What a case is like that does not vary."""
VARIED = (
    {"criterion": "smoothing", "optimizer": "momentum", "classes": (3, 5), "dtype": "float32"},
    {"criterion": "focal", "optimizer": "adam", "classes": (11, 13), "dtype": "float32"},
    {"criterion": "function", "optimizer": "groups", "classes": (2, 4), "dtype": "float64"},
)
"""What the first, second, third case is like where everything varies."""
UNEVEN = ("weights", "focal", "ignore")
"""Losses in their place where nothing is averaged over batches: class weights, an index ignored."""


def draw_training(
    draw: Draw,
    sizes: Sequence[int],
    *,
    vary: bool = False,
    across_batches: bool = True,
    norm: bool = False,
    dropout: bool = False,
    loader: str = "list",
    stale: bool = False,
    held: bool = False,
    widths: Sequence[int] = (),
) -> Case:
    """A model with weights, batches, a loss function and an optimizer, as plain data.

    Args:
        draw: Where numbers come from.
        sizes: Examples in each batch.
        vary: Whether loss, optimizer, number of classes, depth and dtype go through `VARIED`.
        across_batches: Whether the exercise averages losses over batches, which class weights and
            ignored labels would make ambiguous.
        norm: Whether the model has a BatchNorm.
        dropout: Whether it has a dropout.
        loader: `list` or `DataLoader` (then all sizes but the last are equal).
        stale: Whether an earlier step has left gradients; half of the parameters have None.
        held: Whether the first layer's bias is frozen, which nobody may thaw.
        widths: Of the hidden layers; drawn, and small, if there are none.
    """
    like = dict(VARIED[draw.index % len(VARIED)] if vary else PLAIN)
    if vary and not across_batches:
        like["criterion"] = UNEVEN[draw.index % len(UNEVEN)]
    classes = draw.integer(*like.pop("classes"))
    features = draw.integer(2, 4)
    widths = widths or [draw.integer(2, 6) for _ in range(1 + vary * draw.index % 2)]
    case = {
        **like,
        "layers": [features, *widths, classes],
        "norm": norm,
        "dropout": dropout,
        "loader": loader,
        "held": held,
        "batches": draw_batches(draw, sizes, features, classes),
        "lr": draw.uniform(0.1, 0.4),
        "class_weights": [0.5 + draw.integer(0, 4) / 2 for _ in range(classes)],
    }
    model = build_model(case)
    case["state"] = draw_state(draw, model)
    shapes = [p.shape for p in model.parameters()]
    case["stale"] = [draw.normal(*s) if i % 2 == 0 else None for i, s in enumerate(shapes)]
    if not stale:
        case["stale"] = []
    return case


def draw_batches(
    draw: Draw, sizes: Sequence[int], features: int, classes: int
) -> list[dict[str, Tensor]]:
    """Batches of inputs [B, features] and class indices [B] as plain data.

    The first holds two classes if it can, and not only class 0, which a loss may ignore.
    """
    batches = []
    for size in sizes:
        targets = draw.integers(classes, size)
        targets[0] = classes - 1
        batches.append({"inputs": draw.normal(size, features), "targets": targets})
    return batches


def draw_state(draw: Draw, model: nn.Module) -> dict[str, Tensor]:
    """A state_dict of the model's shapes with drawn numbers; running variances are positive."""
    state = {}
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            drawn = draw.normal(*value.shape, scale=0.7)
            state[name] = drawn.abs() + 0.5 if name.endswith("running_var") else drawn
        else:
            state[name] = torch.zeros_like(value)
    return state


class Training:
    """What a function is handed, and what the call did to it.

    Attributes:
        model, criterion, optimizer: Built from the case; the model is in train mode.
        batches: A list of pairs of inputs and targets.
        loader: The same as the case's kind of loader.
        forwards: Of each forward pass: the number of examples, and whether it built a graph.
        modes: Of modules at forward passes: True if one was in train mode, False if one in eval.
        in_train: Of each forward pass: whether a module was in train mode.
    """

    def __init__(self, case: Case, device: torch.device, *, train: bool = True) -> None:
        dtype = getattr(torch, case["dtype"])
        self.model = build_model(case)
        self.model.load_state_dict(case["state"])
        self.model.to(device, dtype).train(train)
        for parameter, grad in zip(self.model.parameters(), case["stale"], strict=False):
            parameter.grad = None if grad is None else grad.to(device, dtype)
        self.batches: list[Batch] = [
            (batch["inputs"].to(device, dtype), batch["targets"].to(device))
            for batch in case["batches"]
        ]
        if case["held"]:
            next(p for p in self.model.parameters() if p.ndim == 1).requires_grad_(False)
        self.loader = build_loader(case["loader"], self.batches)
        self.criterion = build_criterion(case, device, dtype)
        self.optimizer = build_optimizer(case["optimizer"], self.model, case["lr"])
        self.forwards: list[tuple[int, bool]] = []
        self.modes: set[bool] = set()
        self.in_train: list[bool] = []
        self.drawn_from = case["dropout"]
        self._note_forwards()
        self.remember()

    def remember(self) -> None:
        """Take things as they are now for what `changed` compares with: after a scheduler, say."""
        handed = {f"the {name} of batch {number}": tensor
                  for number, pair in enumerate(self.batches)
                  for name, tensor in zip(("inputs", "targets"), pair, strict=True)}  # fmt: skip
        self.watch = Watch(
            self.model, self.optimizer, {**handed, "the list of batches": self.batches}
        )

    def _note_forwards(self) -> None:
        """Note what the model is called on, also by `model.forward(x)`, which has no hooks of its
        own: at each module, by plain functions, which also a copy of the model keeps."""
        met, modes, forwards, in_train = set[bool](), self.modes, self.forwards, self.in_train

        def entered(module: nn.Module, _args: tuple[Tensor, ...]) -> None:
            met.add(module.training)
            modes.add(module.training)

        def ended(_layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
            forwards.append((len(args[0]), output.requires_grad))
            in_train.append(True in met)
            met.clear()

        *_, last = modules = [module for _, module in modules_in(self.model)]
        for module in modules:
            module.register_forward_pre_hook(entered)
        last.register_forward_hook(ended)

    def changed(self, may: frozenset[str] = frozenset()) -> list[str]:
        """What the call changed, apart from what it may; random numbers only where some are due."""
        return self.watch.changed(may if self.drawn_from else may - {"random"})

    def moved(self) -> bool:
        """Whether any weight is another than before."""
        return "weights" in self.watch.kinds_changed(frozenset({"random"}))

    def state(self) -> dict[str, Tensor]:
        """The model's weights and buffers as an answer."""
        modules = dict(modules_in(self.model))
        held = (*_held_by(modules, "_parameters"), *_held_by(modules, "_buffers"))
        with plain_tensors():
            return {name: value.detach().cpu().clone() for name, value in held}

    def all_seen(self) -> bool:
        """Whether the model was called on at least as many examples as there are."""
        return sum(size for size, _ in self.forwards) >= sum(len(y) for _, y in self.batches)


def build_model(case: Case) -> nn.Module:
    """Linear layers with tanh between them; BatchNorm and dropout where the case says so.

    Those two make blocks, so that the children of the model are not all of its modules.
    """
    *widths, classes = case["layers"]
    blocks: list[nn.Module] = []
    for wide, narrow in pairwise(widths):
        layers: list[nn.Module] = [nn.Linear(wide, narrow)]
        layers += [nn.BatchNorm1d(narrow)] if case["norm"] else []
        layers += [nn.Tanh()]
        layers += [nn.Dropout(0.5)] if case["dropout"] else []
        blocks += [nn.Sequential(*layers)] if case["norm"] or case["dropout"] else layers
    return nn.Sequential(*blocks, nn.Linear(widths[-1], classes))


class Focal(nn.Module):
    """A mean-reduced loss that is not in torch: sure answers count less."""

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        loss = F.cross_entropy(logits, targets, reduction="none")
        return ((1 - torch.exp(-loss)).square() * loss).mean()


_load = torch.load


def read_safely(file: Any, **more: Any) -> Any:
    """`torch.load(file, weights_only=True)`, by torch's own, whatever a notebook gave that name."""
    return _load(file, weights_only=True, **more)


MEMORY = Path("/dev/shm")
"""Where Linux keeps files in memory."""


@contextmanager
def scratch() -> Iterator[str]:
    """A temporary folder, in memory where that can be: fsync waits tens of ms on a busy disk.

    Afterwards it is gone, whatever has become of `shutil` and `tempfile`.
    """
    where = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory("", "check-", where, ignore_cleanup_errors=True) as folder:
        try:
            yield folder
        finally:
            remove(Path(folder))


def half_margin(logits: Tensor, targets: Tensor) -> Tensor:
    """A mean-reduced loss that is a plain function."""
    return 0.5 * F.multi_margin_loss(logits, targets, p=2)


def build_criterion(
    case: Case, device: torch.device, dtype: torch.dtype
) -> Callable[[Tensor, Tensor], Tensor]:
    """The case's loss of logits [B, C] and class indices [B], a mean over the batch."""
    kind = case["criterion"]
    if kind == "function":
        return half_margin
    if kind == "focal":
        return Focal()
    if kind == "smoothing":
        return nn.CrossEntropyLoss(label_smoothing=0.2)
    if kind == "weights":
        weights = torch.tensor(case["class_weights"], device=device, dtype=dtype)
        return nn.CrossEntropyLoss(weight=weights)
    return nn.CrossEntropyLoss(ignore_index=0 if kind == "ignore" else -100)


def build_optimizer(kind: str, model: nn.Module, lr: float) -> torch.optim.Optimizer:
    """An optimizer over the model's parameters.

    Adam's eps is large: with the usual one a gradient of 1e-9, which another order of summation
    makes of 0, would be a whole step.
    """
    parameters = list(model.parameters())
    if kind == "groups":
        half = len(parameters) // 2
        rest = {"params": parameters[half:], "lr": lr / 4, "weight_decay": 0.1}
        return torch.optim.SGD([{"params": parameters[:half]}, rest], lr=lr, momentum=0.5)
    if kind == "adam":
        return torch.optim.Adam(parameters, lr=lr / 4, eps=0.01)
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9 if kind == "momentum" else 0.0)


def build_loader(kind: str, batches: list[Batch]) -> Any:
    """The batches themselves, or a DataLoader, which has no positions, only an order."""
    if kind == "list":
        return batches
    rows = [(x, y) for inputs, targets in batches for x, y in zip(inputs, targets, strict=True)]
    own = torch.Generator()  # or else each pass would draw from the global one
    return DataLoader(rows, batch_size=len(batches[0][1]), generator=own)


class Graphs:
    """What autograd keeps for backward passes, of whatever was computed inside, by elements:

    with Graphs() as graphs:
        ...
    graphs.most     the largest number at any time
    """

    def __init__(self) -> None:
        self.now = self.most = 0
        self.in_torch_func = False
        """Whether graphs were made there, which are not counted."""
        self._hooks = saved_tensors_hooks(self._kept, self._given_back)
        self._torch_func = mock.patch.object(
            torch.autograd.graph, "disable_saved_tensors_hooks", self._disabled
        )

    def __enter__(self) -> Graphs:
        self._torch_func.start()
        self._hooks.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._hooks.__exit__(*raised)
        self._torch_func.stop()

    def _disabled(self, message: str) -> AbstractContextManager[None]:
        """torch.func, whose graphs end with each call, cannot have hooks: they are put aside."""
        if sys._getframe(1).f_globals.get("__name__") == "torch._functorch.vmap":
            return self._aside(message)
        return disable_saved_tensors_hooks(message)

    @contextmanager
    def _aside(self, message: str) -> Iterator[None]:
        self.in_torch_func = True
        self._hooks.__exit__()
        try:
            with disable_saved_tensors_hooks(message):
                yield
        finally:
            self._hooks.__enter__()

    def _kept(self, tensor: Tensor) -> _Kept:
        self.now += tensor.numel()
        self.most = max(self.most, self.now)
        return _Kept(self, tensor.detach(), tensor._version)  # the graph itself would never go

    def _given_back(self, kept: _Kept) -> Tensor:
        if kept.tensor._version != kept.version:  # which torch does not look at where hooks are
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an "
                "inplace operation"
            )
        return kept.tensor


class _Kept:
    __slots__ = ("graphs", "tensor", "version")

    def __init__(self, graphs: Graphs, tensor: Tensor, version: int) -> None:
        self.graphs, self.tensor, self.version = graphs, tensor, version

    def __del__(self) -> None:
        self.graphs.now -= self.tensor.numel()


class Passes:
    """A loader that holds a plain function alone: what the check notes is no attribute of it."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self._begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self._begin()


class Counted(Passes):
    """The same with a length."""

    def __init__(self, begin: Callable[[], Iterator[Any]], count: int) -> None:
        super().__init__(begin)
        self._count = count

    def __len__(self) -> int:
        return self._count


def plainly(method: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function that calls a method: a bound one leads to its object by `__self__`."""

    def called(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    called.__name__ = method.__name__
    return called


def looking_after(function: Callable[..., Any]) -> Callable[[], None]:
    """What puts back what an answer is looked at with, to be called where code of a student's has
    run since their function returned: a loss, say. Taken before that; it does nothing on a laptop.
    """
    return getattr(function, "as_it_was", lambda: None)


TRAINED = frozenset({"weights", "buffers", "grads", "modes", "moments", "random"})
"""What training may change. Not: the learning rate, requires_grad, the data, hooks, torch."""


PYTHONS = "the state of Python's random numbers"
DRAWS_WHEN_IMPORTED = "sklearn.metrics"
"""Its first import in a process moves Python's generator, which is no fault of who imports it."""


class Watch:
    """Remembers how things are; `changed` says what is different later. One complete list:

        weights         parameters of the model             buffers    running means and the like
        grads           .grad, None told from zeros         modes      train or eval, each module
        requires_grad   of each parameter                   hooks      of each module
        moments         the optimizer's state               options    its lr and all of its groups
        data            tensors and lists handed over       random     torch, NumPy, Python
        torch           grad mode, default dtype
        classes         of the model, its modules and parameters, the optimizer, tensors handed over

    It asks none of them: what they say of themselves, a call may have changed.

    Args:
        model: None where an exercise has none.
        optimizer: The same.
        data: Tensors and lists that were handed over, by their arguments' names, or by what a
            message calls them; a sequence where they have none.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        data: Mapping[str, Any] | Sequence[Any] = (),
    ) -> None:
        self.model, self.optimizer, self.data = model, optimizer, data
        self.drawn_by_import = DRAWS_WHEN_IMPORTED not in sys.modules
        _seed_unusually()
        self.before = self._seen(_copied)

    def changed(self, may: frozenset[str] = frozenset()) -> list[str]:
        """What differs from before, one text per kind of thing, apart from the kinds in `may`."""
        return list(self.kinds_changed(may).values())

    def kinds_changed(self, may: frozenset[str] = frozenset()) -> dict[str, str]:
        """The kinds of things that differ from before, those in `may` left out; the first of each
        kind in words."""
        now, found = self._seen(_to_compare, may), {}
        for kind, name in dict.fromkeys((*self.before, *now)):
            if kind in may or kind in found:
                continue
            if name == PYTHONS and self.drawn_by_import and DRAWS_WHEN_IMPORTED in sys.modules:
                continue
            old, new = self.before.get((kind, name)), now.get((kind, name))
            if not _same(old, new):
                found[kind] = name + _from_to(old, new)
        return found

    def _seen(
        self, taken: Callable[[Any], Any], may: frozenset[str] = frozenset()
    ) -> dict[tuple[str, str], Any]:
        with plain_tensors():
            return dict(self._look(taken, may))

    def _look(
        self, taken: Callable[[Any], Any], may: frozenset[str]
    ) -> Iterator[tuple[tuple[str, str], Any]]:
        """((kind, name in words), value as it is taken) of everything, or all but `random`."""
        if self.model is not None:
            modules = dict(modules_in(self.model))
            for name, parameter in _held_by(modules, "_parameters"):
                yield ("weights", f"the weights {name}"), taken(parameter)
                yield ("grads", f"the gradient of {name}"), taken(parameter.grad)
                yield ("requires_grad", f"requires_grad of {name}"), parameter.requires_grad
                yield ("classes", f"the class of {name}"), type(parameter)
            for name, buffer in _held_by(modules, "_buffers"):
                yield ("buffers", f"the buffer {name}"), taken(buffer)
            for name, module in modules.items():
                name = f"module {name}" if name else "the model"
                mode = "train" if attributes_of(module)["training"] else "eval"
                yield ("modes", f"the mode of {name}"), mode
                yield ("hooks", f"the hooks of {name}"), _number_of_hooks(module)
                yield ("classes", f"the class of {name}"), type(module)
        if self.optimizer is not None:
            groups = self.optimizer.param_groups
            kinds = {type(one) for one in (self.optimizer, self.optimizer.state, groups, *groups)}
            yield ("classes", "the class of the optimizer or its groups"), kinds
            for number, group in enumerate(self.optimizer.param_groups):
                for key, value in group.items():
                    what = f"{key} of the optimizer's group {number}"
                    value = [id(p) for p in value] if key == "params" else value
                    yield ("options", what), value
            for number, state in enumerate(self.optimizer.state.values()):
                for key, value in state.items():
                    yield ("moments", f"the optimizer's {key} {number}"), taken(value)
        for what, value in self._handed():
            yield ("data", what), taken(value)
            yield ("classes", f"the class of {what}"), type(value)
            if isinstance(value, Tensor) and value.is_floating_point():
                yield ("data", f"requires_grad of {what}"), value.requires_grad
        if "random" not in may:
            yield ("random", "the state of torch's random numbers"), GENERATOR.get_state()
            yield ("random", PYTHONS), hash(random.getstate())
            yield ("random", "the state of NumPy's random numbers"), _state_of_numpy()
        yield ("torch", "torch.is_grad_enabled()"), torch.is_grad_enabled()
        yield ("torch", "torch.get_default_dtype()"), torch.get_default_dtype()

    def _handed(self) -> Iterator[tuple[str, Any]]:
        """What was handed over, and how a message calls it."""
        if isinstance(self.data, Mapping):
            for name, value in self.data.items():
                yield f"its argument {name}" if name.isidentifier() else name, value
            return
        for number, value in enumerate(self.data):
            yield f"what it was handed ({_named(value)}, number {number})", value


UNUSUAL = 73_091
"""A seed that nobody writes: a function that seeds by itself leaves another state."""


def _seed_unusually() -> None:
    torch.default_generator.manual_seed(UNUSUAL)
    random.seed(UNUSUAL)
    np.random.seed(UNUSUAL)


def _named(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    return f"a {type(value).__name__}"


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, list) and value and isinstance(value[0], (tuple, list)):
        return [id(item) for item in value]  # pairs of tensors, which are looked at by themselves
    return type(value)(value) if isinstance(value, (list, dict)) else value


def _to_compare(value: Any) -> Any:
    """As `_copied` has it, but of a tensor no copy, since it is compared at once."""
    return value.detach() if isinstance(value, Tensor) else _copied(value)


_numpys_generator, _UsualNumpy = np.random.get_bit_generator, np.random.MT19937
_StateOfNumpy = ctypes.c_char * (4 * 624 + 4)
"""The 624 words that NumPy's usual generator draws from, and its place in them."""


def _state_of_numpy() -> Any:
    """What `np.random.get_state()` says; that copies word by word, which takes 50 times as long."""
    generator = _numpys_generator()
    if type(generator) is _UsualNumpy:
        return _StateOfNumpy.from_address(generator.ctypes.state_address).raw
    return type(generator), repr(generator.state)


def _same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        alike = a.dtype == b.dtype and a.shape == b.shape
        return alike and (torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all()))
    return a == b


def _from_to(old: Any, new: Any) -> str:
    """How a short value changed; empty for tensors and the like."""
    if isinstance(old, (bool, float, str, torch.dtype)) and isinstance(new, type(old)):
        old, new = (f"{v:.4g}" if isinstance(v, float) else v for v in (old, new))
        return f" ({old}, now {new})"
    if isinstance(old, Tensor) and new is None:
        return " (None now)"
    return ""


def _number_of_hooks(module: nn.Module) -> int:
    held = attributes_of(module).items()
    return sum([dict.__len__(value) for name, value in held if name[-6:] == "_hooks"])


GENERATOR = torch.default_generator
attributes_of = vars(nn.Module)["__dict__"].__get__
"""A module's attributes, also if it, or a class that it was given, says that it has others."""


def modules_in(model: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """As its `named_modules` says if nobody has replaced that; a module met twice comes twice."""
    yield name, model
    for key, module in dict.items(attributes_of(model)["_modules"]):
        if module is not None:
            yield from modules_in(module, f"{name}.{key}" if name else key)


def _held_by(modules: Mapping[str, nn.Module], kind: str) -> Iterator[tuple[str, Tensor]]:
    """Parameters or buffers of modules, each once, under the first of its names."""
    seen: set[int] = set()
    for name, module in modules.items():
        for key, value in dict.items(attributes_of(module)[kind]):
            if value is not None and id(value) not in seen:
                seen.add(id(value))
                yield f"{name}.{key}" if name else key, value


plain_tensors = torch._C.DisableTorchFunctionSubclass
"""Inside, a tensor's own class takes no part in what torch does with it."""


def borrowed(returned: Any, handed: Mapping[str, Any]) -> list[str]:
    """What was handed over and lies in the memory of what came back, by name.

    Args:
        returned: Tensors and arrays, in lists or dictionaries.
        handed: Tensors or arrays, or lists of them, by the name that a message gives them.
    """
    given = {_place(tensor) for tensor in _in(returned)} - {0}
    return [name for name, value in handed.items() if given & {_place(t) for t in _in(value)}]


def _in(value: Any) -> Iterator[Tensor | np.ndarray]:
    """The tensors and arrays of a nested value."""
    if isinstance(value, (Tensor, np.ndarray)):
        yield value
    elif isinstance(value, (Mapping, list, tuple)):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _in(one)


def _place(value: Tensor | np.ndarray) -> int:
    """Where the memory of a tensor or array begins; 0 for an empty one."""
    if isinstance(value, Tensor):
        return value.untyped_storage().data_ptr()
    while isinstance(value.base, np.ndarray):
        value = value.base
    base = value.base if isinstance(value.base, Tensor) else None
    return _place(base) if base is not None else value.ctypes.data * bool(value.size)


class numpy_only(TorchFunctionMode):
    """Within it torch refuses: an exercise that says "in NumPy" means it.

    Args:
        instead: How the exercise asks for it.
    """

    def __init__(self, instead: str = "in NumPy") -> None:
        super().__init__()
        self.instead = instead

    def __enter__(self) -> numpy_only:
        """Torch refuses in this thread; where a class is graded, other threads are counted."""
        sys.audit(WITHOUT_TORCH, True)
        return super().__enter__()

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)
        sys.audit(WITHOUT_TORCH, False)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "torch")
        raise NotAllowedError(f"torch's {name} was called: write it {self.instead}, without torch.")


def numpy_loss(value: float, grad: np.ndarray, inputs: Tensor) -> Tensor:
    """A loss computed in NumPy as a tensor, through which the gradient from NumPy flows back."""
    slope = torch.as_tensor(grad, dtype=inputs.dtype, device=inputs.device)
    at = torch.tensor(value, dtype=inputs.dtype, device=inputs.device)
    return at + (slope * (inputs - inputs.detach())).sum()


def as_loss(value: Any, what: str) -> float:
    """A loss that was returned: a float, or one element of a tensor, with or without its graph.

    Raises:
        AnswerError: It is something else.
    """
    return as_number(value.detach() if isinstance(value, Tensor) else value, what)


def form_of(loss: Any) -> str:
    """Dtype and number of dimensions of a returned loss, in words; a plain number has neither."""
    if not isinstance(loss, Tensor):
        return "a plain number"
    dimensions = "1 dimension" if loss.ndim == 1 else f"{loss.ndim} dimensions"
    return f"a {str(loss.dtype).removeprefix('torch.')} tensor with {dimensions}"


def slopes_of(returned: Any, inputs: Tensor) -> Tensor:
    """What flows back from a returned loss into the inputs.

    Raises:
        AnswerError: The loss holds no graph, or the inputs are not on it.
    """
    if not isinstance(returned, Tensor):
        raise AnswerError(f"It returned a {type(returned).__name__}: backward() needs a tensor.")
    if returned.numel() != 1:
        raise AnswerError(f"A tensor of shape {list(returned.shape)} came; a loss is one number.")
    if not returned.requires_grad:
        raise AnswerError("The loss has no graph: no gradient can flow back to the weights.")
    (slopes,) = torch.autograd.grad(returned.sum(), inputs, allow_unused=True)
    if slopes is None:
        raise AnswerError("The loss does not depend on the logits: nothing flowed back to them.")
    return slopes.detach().cpu()
