"""Functions that an exercise asks to write by hand refuse while the student's function runs.

    the reference, and what it is made of in `course`    the whole module, so also through a class
    `by_hand` of the exercise                            the same; of torch only those named, and
                                                         the functions of the modules named, and
                                                         torch's own of that name in Python (TWINS)
    functions made by `torch.compile`                    run as they are written, so that what they
                                                         call refuses

The code of the functions is exchanged for one that refuses, so that every name that somebody bound
to them is covered; afterwards they are as before. (Where a class is graded, the bank's right and
wrong functions refuse as well, for good: see `autograde.sandbox.stubs`.)
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, NoReturn

import torch
from torch._ops import OpOverload
from torch.library import Library

from autograde.exercise import Exercise, NotAllowedError


@contextmanager
def written_by_hand(exercise: Exercise) -> Iterator[None]:
    """While the student's function runs, the reference and similar functions refuse to answer."""
    functions = refusing(exercise)
    codes = [function.__code__ for function in functions]
    operators = operators_of(exercise)
    absent = modules_named(exercise) - sys.modules.keys()
    try:
        for function, code in zip(functions, codes, strict=True):
            function.__code__ = refusal(called(function), exercise.name, code.co_freevars)
        sys.modules.update(dict.fromkeys(absent))  # so that it is not imported meanwhile
        with without_operators(operators, exercise.name), as_written(exercise):
            yield
    finally:
        for name in absent:
            sys.modules.pop(name, None)
        for function, code in zip(functions, codes, strict=True):
            function.__code__ = code


@contextmanager
def as_written(exercise: Exercise) -> Iterator[None]:
    """Inside, what `torch.compile` has made of a function, perhaps earlier, is not used where
    something is to be written by hand: it calls none of the functions that it was made of."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    if compiler is None or not exercise.by_hand:
        yield
        return
    before = compiler._set_stance(compiler.DynamoStance("force_eager"))
    try:
        yield
    finally:
        compiler._set_stance(before)


OPERATORS = {
    "cross_entropy": ("cross_entropy_loss",),
    "nll_loss": ("nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward", "nll_loss2d_forward"),
    "batch_norm": (
        "batch_norm", "native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm",
        "_batch_norm_impl_index", "_batch_norm_with_update",
        "_batch_norm_with_update_functional", "_native_batch_norm_legit_functional",
        "_native_batch_norm_legit_no_training", "_batch_norm_no_update", "miopen_batch_norm",
        "batch_norm_update_stats", "batch_norm_stats", "batch_norm_elemt",
    ),
    "instance_norm": ("instance_norm",),
    "group_norm": ("group_norm", "native_group_norm"),
    "layer_norm": ("layer_norm", "native_layer_norm"),
    "rms_norm": ("rms_norm", "_fused_rms_norm"),
    "ctc_loss": ("ctc_loss", "_ctc_loss"),
    "dropout": ("dropout", "dropout_", "native_dropout", "_fused_dropout"),
    "dropout2d": ("feature_dropout", "feature_dropout_"),
    "alpha_dropout": ("alpha_dropout", "alpha_dropout_"),
    "softmax": ("softmax", "_softmax", "logsumexp"),
    "log_softmax": ("log_softmax", "_log_softmax"),
    "Adam.step": ("_fused_adam", "_fused_adam_", "_fused_adamw", "_fused_adamw_"),
    "feature_alpha_dropout": ("feature_alpha_dropout", "feature_alpha_dropout_"),
    "GradScaler.unscale_": (
        "_amp_foreach_non_finite_check_and_unscale",
        "_amp_foreach_non_finite_check_and_unscale_",
    ),
    "GradScaler.update": ("_amp_update_scale", "_amp_update_scale_"),
}  # fmt: skip
"""Operators of torch that do all that such a function does, without its code."""
BACKWARD = "_backward"
"""Stands in the names of the operators that autograd calls, and is the one that calls it."""


TWINS = ("torch._refs", "torch._refs.nn.functional", "torch._decomp.decompositions")
"""Where torch has the same operators written in Python."""


def operators_of(exercise: Exercise) -> set[str]:
    """Operators of torch that do all that an exercise asks to write, forward or backward."""
    named = {name for f in exercise.by_hand for name in OPERATORS.get(called_in_torch(f), ())}
    if without_autograd(exercise):
        named.add(BACKWARD)
    return named.union(*(_backward_operators().get(_stem(name), ()) for name in named))


@cache
def _backward_operators() -> dict[str, set[str]]:
    """Torch's operators for the way back, by the name of the way there. Autograd calls one only for
    an operator that has refused, so nothing that is written by hand needs it."""
    found: dict[str, set[str]] = {}
    for whole in torch._C._dispatch_get_all_op_names():
        package, _, overload = whole.partition("::")
        name = overload.partition(".")[0]
        if package == "aten" and BACKWARD in name:
            found.setdefault(_stem(name.partition(BACKWARD)[0]), set()).add(name)
    return found


def _stem(name: str) -> str:
    return name.removesuffix("_forward").strip("_")


@cache
def _twins_of(operators: frozenset[str], module: ModuleType) -> list[FunctionType]:
    named = (f for name, f in vars(module).items() if any(one in name for one in operators))
    return [inspect.unwrap(f) for f in named if type(inspect.unwrap(f)) is FunctionType]


HAVE_OPERATORS = ("torch.nn.functional", "torch.optim.adam", "torch.amp.grad_scaler")


def called_in_torch(function: Callable[..., Any]) -> str:
    """Name of a function of `torch.nn.functional`, or of a method of an optimizer or the scaler;
    empty for all others."""
    ours = getattr(function, "__module__", "") in HAVE_OPERATORS
    return function.__qualname__ if ours else ""


@contextmanager
def without_operators(operators: set[str], asked: str) -> Iterator[None]:
    """Inside, these operators refuse on every thread, whoever calls them: Python, TorchScript or
    C++. A mode would be asked on one thread alone, and can be turned off."""
    refusing = Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that a kernel was there: what a cell says on stderr
            for overload, key, refuse in _refusals(frozenset(operators), asked):  # costs its points
                refusing.impl(overload, refuse, key)
        yield
    finally:
        refusing._destroy()


@cache
def _refusals(operators: frozenset[str], asked: str) -> list[tuple[OpOverload, str, partial[Any]]]:
    packets = [(name, getattr(torch.ops.aten, name)) for name in sorted(operators)]
    return [
        (overload, key, partial(_refuse, name, asked))
        for name, packet in packets
        for overload in (getattr(packet, one) for one in packet.overloads())
        for key in (*DEVICE_KEYS, *filter(partial(_has_kernel, overload), OTHER_KEYS))
    ]


DEVICE_KEYS = ("CPU", "CUDA")
OTHER_KEYS = (
    *("CompositeImplicitAutograd", "CompositeExplicitAutograd", "NestedTensorCPU", "MkldnnCPU"),
    *("FuncTorchBatched", "FuncTorchBatchedDecomposition"),
)
"""Where else torch's dispatcher may find an operator's code."""


def _has_kernel(operator: OpOverload, key: str) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key)


def _refuse(name: str, asked: str, *_args: Any, **_kwargs: Any) -> NoReturn:
    raise NotAllowedError(why_not(name, asked))


def without_autograd(exercise: Exercise) -> bool:
    """Whether derivatives are to be written by hand."""
    return "torch.autograd" in modules_named(exercise)


def modules_named(exercise: Exercise) -> set[str]:
    """Modules of other packages whose functions must not be called."""
    return {one for one in exercise.by_hand if isinstance(one, str)}


def functions_named(exercise: Exercise) -> list[FunctionType]:
    """Single functions that must not be called besides the reference."""
    return [python_function(one) for one in exercise.by_hand if not isinstance(one, str)]


def functions_of_modules_named(exercise: Exercise) -> list[FunctionType]:
    """Functions of those named modules that are loaded by now, and of other packages methods."""
    there = [sys.modules[name] for name in sorted(modules_named(exercise) & sys.modules.keys())]
    return [function for module in there for function in _module_level(module)]


WITH_METHODS = ("torch.distributed.fsdp.sharded_grad_scaler",)
"""Modules of torch whose classes do what an exercise that names one asks for, and nothing else."""


@cache
def _module_level(module: ModuleType) -> list[FunctionType]:
    name = module.__name__
    methods = name in WITH_METHODS or not name.startswith("torch.")
    return [f for f in functions_of(module) if methods or f.__qualname__ == f.__name__]


_refusing: dict[str, list[FunctionType]] = {}


def refusing(exercise: Exercise) -> list[FunctionType]:
    """All functions that must not be called in an answer to this exercise."""
    found = functions_of_modules_named(exercise)
    if operators := frozenset(name.strip("_") for name in operators_of(exercise)):
        loaded = (sys.modules[name] for name in TWINS if name in sys.modules)
        found += [f for module in loaded for f in _twins_of(operators, module)]
    always = _always_refusing(exercise)
    if not found:
        return always
    return list(dict.fromkeys([*always, *(f for f in found if _can_refuse(f))]))


def _always_refusing(exercise: Exercise) -> list[FunctionType]:
    if exercise.id not in _refusing:
        modules = sorted(guarded_modules(exercise))
        found = [f for name in modules for f in functions_of(sys.modules[name])]
        found += [python_function(exercise.reference), *functions_named(exercise)]
        allowed = reached_by(exercise.run)
        kept = [f for f in found if f not in allowed and _can_refuse(f)]
        _refusing[exercise.id] = list(dict.fromkeys(kept))
    return _refusing[exercise.id]


def _can_refuse(function: FunctionType) -> bool:
    """Closures go on: they may be of another's making. A method that calls `super()` is none."""
    return set(function.__code__.co_freevars) <= {"__class__"}


def guarded_modules(exercise: Exercise) -> set[str]:
    """Modules of `course` that hold what the exercise asks to write by hand: those of the functions
    and classes that the reference is made of, itself or through the bank's own."""
    waiting: list[Any] = [exercise.reference, *functions_named(exercise)]
    found, seen = set(), set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or not isinstance(one, (type, FunctionType)):
            continue
        seen.add(id(one))
        inner = [*_plain_functions(vars(one).values() if isinstance(one, type) else [one])]
        home = one.__module__ if isinstance(one, type) else inner[0].__module__
        if home.startswith("course."):
            found.add(home)
        elif home.startswith("autograde.bank."):
            waiting += [named for function in inner for named in _named_in(function)]
    return {name for name in found if not f"{name}.".startswith(_allowed(exercise))}


def _allowed(exercise: Exercise) -> tuple[str, ...]:
    return tuple(f"{name}." for name in exercise.may_use)


def called(function: FunctionType) -> str:
    """What a student calls it: of torch's layers and optimizers, and of other packages, the class,
    not its method; so where a class of the course, or another of torch's, is made."""
    package, _, rest = function.__module__.partition(".")
    owner, dot, _ = function.__qualname__.rpartition(".")
    home = {"nn": "nn", "optim": "torch.optim"}.get(rest.partition(".")[0])
    if package == "torch" and home and dot:
        return f"{home}.{owner.lstrip('_')}"
    if dot and package not in ("torch", "course", "autograde"):
        return f"{package}.{owner}"
    if dot and package in ("course", "torch") and function.__name__ == "__init__":
        return owner.lstrip("_")
    return function.__name__.lstrip("_")


def functions_of(module: ModuleType) -> list[FunctionType]:
    """The functions and methods written in a module, below their decorators."""
    found: list[FunctionType] = []
    for value in list(vars(module).values()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            found += _plain_functions(vars(value).values())
        else:
            found += _plain_functions([value])
    return [f for f in dict.fromkeys(found) if f.__code__.co_filename == module.__file__]


def _plain_functions(values: Iterable[Any]) -> Iterator[FunctionType]:
    for value in values:
        if isinstance(value, property):
            yield from _plain_functions([value.fget, value.fset])
        elif isinstance(value, (staticmethod, classmethod)):
            yield from _plain_functions([value.__func__])
        elif isinstance(value, FunctionType):
            yield python_function(value)


def python_function(function: Callable[..., Any]) -> FunctionType:
    """The function below its decorators, e.g. below `no_grad`."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    assert isinstance(function, FunctionType), function
    return function


Calls = dict[FunctionType, list[FunctionType]]
"""The course functions that a function calls itself, by name."""


def reached_by(*functions: Callable[..., Any], calls: Calls | None = None) -> set[FunctionType]:
    """Functions and the course functions that they call, by name, directly or through others.

    Args:
        functions: Where it begins.
        calls: What was read of functions before, to be asked and added to: they share many.
    """
    calls = {} if calls is None else calls
    found: set[FunctionType] = set()
    waiting = [python_function(function) for function in functions]
    while waiting:
        function = waiting.pop()
        if function not in found:
            found.add(function)
            if function not in calls:
                calls[function] = list(_called_by(function))
            waiting += calls[function]
    return found


def _called_by(function: FunctionType) -> Iterator[FunctionType]:
    for value in _named_in(function):
        kind = isinstance(value, type)
        yield from _plain_functions(vars(value).values() if kind else [value])


def _named_in(function: FunctionType) -> list[Any]:
    """Functions and classes of ours whose names stand in a function's code, also after a module's,
    or are bound in its closure, and those that a dictionary, list, tuple, partial or object of such
    a name holds."""
    names = names_in(function.__code__)
    values = [function.__globals__.get(name) for name in names]
    values += [cell.cell_contents for cell in function.__closure__ or () if _is_full(cell)]
    values += _of_modules([one for one in values if isinstance(one, ModuleType)], names)
    return [inside for value in values for inside in _held(value) if _is_ours(inside)]


def _of_modules(modules: list[ModuleType], names: set[str]) -> list[Any]:
    """What these modules of ours, and those inside them, have under any of the names."""
    found: list[Any] = []
    waiting, seen = modules, set[int]()
    while waiting:
        module = waiting.pop()
        if id(module) not in seen and f"{module.__name__}.".startswith(OURS):
            inside = [vars(module)[name] for name in names & vars(module).keys()]
            waiting += [one for one in inside if isinstance(one, ModuleType)]
            found += inside
        seen.add(id(module))
    return found


def _is_ours(value: Any) -> bool:
    return str(getattr(value, "__module__", "")).startswith(OURS)


def _is_full(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:  # of a name that is bound later, or was deleted
        return False
    return True


OURS = ("course.", "autograde.bank.")


def _held(value: Any) -> Iterator[Any]:
    """What a container or an object of ours holds, at any depth."""
    waiting, seen = [value], set()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if isinstance(value, partial):
            waiting += [value.func, *value.args, *value.keywords.values()]
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, (list, tuple)):
            waiting += value
        elif _is_ours(value) and not isinstance(value, (type, FunctionType)):
            waiting += getattr(value, "__dict__", {}).values()


def names_in(code: CodeType) -> set[str]:
    """Names that a code looks up, and those that functions inside it do."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    return set(code.co_names).union(*map(names_in, inner))


@cache
def refusal(name: str, asked: str, free: tuple[str, ...] = ()) -> CodeType:
    """Code that only reports that it may not be called, with the free variables of the code whose
    place it takes."""
    text = why_not(name, asked)
    code = _refusing_code()
    consts = tuple(text if c == WHY else c for c in code.co_consts)
    return code.replace(co_consts=consts, co_freevars=free)


def why_not(name: str, asked: str) -> str:
    """What a refusal says."""
    return f"{name} does what this exercise asks you to write yourself: {asked} may not use it."


WHY = "why it refuses"
"""Stands in the code for the text of one refusal."""


@cache
def _refusing_code() -> CodeType:
    scope: dict[str, Any] = {}
    text = (
        "def refuse(*args, **kwargs):\n"
        "    from autograde.exercise import NotAllowedError\n"
        f"    raise NotAllowedError({WHY!r})"
    )
    exec(compile(text, __file__, "exec"), scope)  # by its file it is known to be ours
    return scope["refuse"].__code__
