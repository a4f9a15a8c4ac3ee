"""The whole step as one graph: forward, loss, backward, clipping and the optimizer's update.

    Trainer(model, criterion, optimizer, compile="step")

`torch.compile(model)` makes graphs of the forward and the backward pass; the loss, the norm, the
clipping and the optimizer stay single operations between them. Here `torch.compile` gets one
function that does everything, so that an update is one call. A loss or gradient of inf or nan is
known only inside the graph, so the graph itself then keeps the old weights and the old state.

The first update of a run is a plain one: it checks batch, loss and criterion, and creates the
optimizer's state. Each batch shape gets its own graph, whose first step is a trial that is compared
with a plain backward pass. If anything does not fit, the plain step is taken and the reason given
once; a checkpoint remembers both, so that a resumed run takes the same steps.

Source: ledger C01, C07, F41; PyTorch documentation, "torch.compile" and "Compiled optimizers".
"""

from __future__ import annotations

import contextlib
import itertools
import operator
import re
import types
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim import optimizer as everybodys
from torch.utils._pytree import tree_flatten

from course.engine.clipping import clip_, parameters_of
from course.engine.distributed import num_ranks
from course.engine.loss_of import Loss, OwnLoss, PairLoss, examples_in
from course.engine.nonfinite import nonfinite_error
from course.engine.progress import StepReport
from course.engine.window import Batch, Weight
from course.state import kept, moved

if TYPE_CHECKING:
    from course.engine.trainer import Trainer

COMPILER: dict[str, Any] = {"backend": "inductor", "options": {"fallback_random": True}}
"""Random numbers as the plain step draws them, so that dropout drops the same."""
MOST_SHAPES = 4
"""Shapes of batches that get a graph, which takes seconds to minutes each: the full and the short
last batch, and two more. Sequences padded to the longest of their batch would have dozens."""
MOST_REMADE = 2
"""Times that graphs are made again because other tensors stand in the optimizer's state, as after
`load_state_dict`: once in a run is worth the seconds, once per epoch is not."""
CLOSE = {"fp32": 1e-3, "bf16": 5e-2}
"""How far, as a share of its norm, the trial's gradient may be from the plain one; the order of
summation alone moves it by 1e-6 under fp32, and by up to 2e-2 under bf16."""
Parts = tuple[Tensor, Weight | None, bool]
"""Value, weight and `sums` of a `Loss`; a plain tuple has fewer guards than a class of ours."""
Graph = Callable[[Any], tuple[Any, ...]]
"""Gives what an `Outcome` holds."""
_numbers = itertools.count()


class Outcome(NamedTuple):
    """What a graph gives back."""

    numbers: Tensor
    """[3], what the host is to know, in one: the loss, the gradients' norm, and 1 where either is
    inf or nan, so that nothing has moved."""
    weight: Weight | None
    sums: bool


class OneGraph:
    """Takes steps in one graph, as long as nothing prevents it."""

    def __init__(self, trainer: Trainer) -> None:
        self.model, self.optimizer = trainer.model, trainer.optimizer
        self.loss_of, self.precision = trainer.loss_of, trainer.precision
        self.device, self.max_norm = trainer.device, trainer.max_norm
        self.skips = trainer.plan.on_nonfinite == "skip"
        self.refused = ""
        """Why the plain step is taken; empty as long as it is not."""
        self.admitted: list[str] = []
        """Shapes of batches that get a graph."""
        self._graphs: dict[Any, Graph | None] = {}
        self._guarded: dict[Any, int] = {}
        """Calls still to come in which the guards are tried, by the key of the batches."""
        self._unguarded: Any = None
        """Made by `_without_guards` since other code than the engine's last ran."""
        self._cuts: dict[int, Any] = {}
        """Keys of batches that are cut from the same two tensors, by their number of rows."""
        self._used: list[Tensor] = []
        self._options = _Options([])
        self._state = _Remembered({})
        """What stands in the optimizer's state: the graphs move these tensors, and no others."""
        self._rates: list[float | Tensor] = []
        """The rates that the twin was told last."""
        self._counts: list[tuple[dict[str, Any], str]] = []
        """What the optimizer remembered on the CPU, and remembers on the device now."""
        self._ready = False
        """The last update was a graph's, so that everything stands as graphs need it."""
        self._remade = 0
        self._twin = self.optimizer
        """The optimizer as the graphs see it."""
        if reason := why_not(trainer):
            self.refuse(reason)

    def refuse(self, reason: str) -> None:
        """Take the plain step from now on, and say why."""
        self.refused = reason
        self.close()
        _say(f"{reason} The plain step is taken.")

    def close(self) -> None:
        """Let the optimizer count its steps where it counted before."""
        for state, name in self._counts:
            state[name] = state[name].cpu()
        self._counts = []

    def state_dict(self) -> dict[str, Any]:
        """The state that decides which steps are taken in a graph."""
        return {"refused": self.refused, "admitted": self.admitted, "remade": self._remade}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Decide as the run that is resumed did."""
        if state["refused"] and not self.refused:
            self.refuse(state["refused"])
        self.admitted = list(state["admitted"])
        self._remade = state.get("remade", 0)  # not yet in older checkpoints

    def take(
        self, micro_batches: Sequence[Batch], *, measure_norm: bool, alone: bool = False
    ) -> StepReport | None:
        """Take one step over a window of one batch; None if the plain step is to be taken.

        Args:
            alone: No code but the engine's has run since the last update, so that rates, options
                and state are those of then; the batch is on the device.

        Raises:
            NonFiniteError: Loss or gradient is inf or nan; the weights are untouched.
        """
        if self.refused:
            return None
        ready, self._ready = self._ready and alone, False
        if not ready:
            self._unguarded = None
            if not self._look():
                return None
        batch = micro_batches[0] if ready else moved(micro_batches[0], self.device)
        key = self._cuts.get(batch[0].shape[0]) if ready else None
        if key is None:
            key = _key_of(batch)
            if alone:
                self._cuts[batch[0].shape[0]] = key
        graph = self._graphs[key] if key in self._graphs else self._admit(key, batch)
        if graph is None:
            return None
        try:
            outcome = Outcome(*self._call(graph, key, batch, ready))
        except (
            torch._dynamo.exc.TorchDynamoException,
            torch._dynamo.exc.FailOnRecompileLimitHit,
        ) as error:
            self.refuse(_no_longer_true(graph, batch) or _in_words(error))
            return None
        self._ready = True
        return self._report(batch, outcome, measure_norm)

    def _call(self, graph: Graph, key: Any, batch: Any, ready: bool) -> tuple[Any, ...]:
        """Call a graph; without its guards, if they can only say what they said at the last update.

        Guards ask whether all that the graph was made for still holds. Between two updates of which
        only the engine knows, the step itself alone could change that, as a counter does in
        `forward`; the first calls of a graph, guarded each, have then met torch's limit.
        """
        if self._guarded[key] or not ready:
            self._guarded[key] = max(self._guarded[key] - 1, 0)
            return graph(batch)
        if self._unguarded is None:
            self._unguarded = _without_guards()
        with self._unguarded:
            return graph(batch)

    def _report(self, batch: Any, outcome: Outcome, measure_norm: bool) -> StepReport:
        numbers, weight, sums = outcome
        if numbers.is_cpu:
            value, norm, found = numbers.tolist()
            found = found > 0
        else:
            value, norm, found = numbers.unbind()
        if found is True and not self.skips:
            raise nonfinite_error(self.model, value, norm)
        if isinstance(self.loss_of, PairLoss):
            weigh, sums = self.loss_of.weigher
            weight = weigh(batch[1])
        elif weight is None:
            weight = examples_in(Loss(value), batch)
        wanted = measure_norm or self.max_norm is not None
        mean = value / weight if sums and (isinstance(weight, Tensor) or weight) else value
        return StepReport(mean, weight, norm if wanted else None, found)

    def _admit(self, key: Any, batch: Any) -> Graph | None:
        """A graph for batches of another shape, if there may be one more."""
        graph = None
        if key is None:
            self.refuse("compile='step': a batch holds more than tensors, which may change each "
                        "time.")  # fmt: skip
        elif (shapes := repr(_shapes_in(batch))) not in self.admitted and (
            len(self.admitted) == MOST_SHAPES
        ):
            _say(f"batches have more than {MOST_SHAPES} shapes; for the others the plain step is "
                 "taken. Pad them to a few lengths.")  # fmt: skip
        elif graph := self._make(batch):
            self.admitted = list(dict.fromkeys([*self.admitted, shapes]))
        self._graphs[key] = graph
        self._guarded[key] = torch._dynamo.config.recompile_limit + 1
        return graph

    def _make(self, batch: Any) -> Graph | None:
        """Compile, and let the graph do one step on trial; None, with the reason, if it fails."""
        changes = (self.model, self.optimizer, self.loss_of.criterion)
        with kept(*changes):
            value, grads = self._plain_backward(batch)
        if isinstance(self.loss_of, PairLoss) and self.loss_of.weigher is None:
            self.refuse("compile='step': how the criterion weights a batch is not known.")
            return None
        self._used = [p for p, grad in grads if grad is not None]
        for parameter, grad in grads:
            parameter.grad = None if grad is None else torch.zeros_like(parameter)
        self._options = _Options(self.optimizer.param_groups)
        if not self._graphs:
            self._counts += _counted_on(self.device, self.optimizer)
            self._twin = _twin_of(self.optimizer, self.device)
        graph = self._compiled()
        try:
            with kept(*changes), torch._dynamo.config.patch(trace_autograd_ops=True):
                self._get_ready()
                outcome = Outcome(*graph(batch))
                ours = [parameter.grad.clone() for parameter in self._used]
        except Exception as error:  # torch.compile raises dozens of kinds, and nothing has moved
            self.refuse(_in_words(error))
            return None
        away = _distance([outcome.numbers[0]], [value])
        if self.max_norm is None:  # else these are clipped
            theirs = [grad for _, grad in grads if grad is not None]
            away = max(away, _distance(ours, theirs))
        if away > CLOSE[self.precision.name]:
            self.refuse(
                f"compile='step': the graph's loss or gradient is {away:.1e} of its norm away from "
                "the plain one."
            )
            return None
        self._state = _Remembered(self.optimizer.state)
        return graph

    def _plain_backward(self, batch: Any) -> tuple[Tensor, list[tuple[Tensor, Tensor | None]]]:
        """Loss and gradients without a graph; by the way, the criterion's weighing is measured."""
        parameters = [p for p in parameters_of(self.optimizer) if p.requires_grad]
        with self.precision.autocast:
            value = self.loss_of(self.model, batch).value
        grads = torch.autograd.grad(value, parameters, allow_unused=True)
        return value.detach(), list(zip(parameters, grads, strict=True))

    def _look(self) -> bool:
        """See what code of others has changed since the last update; False for the plain step."""
        if not self._graphs:
            return True
        if self._options_moved() or (self._state_replaced() and self.refused):
            return False
        self._get_ready()
        return True

    def _get_ready(self) -> None:
        """Tell the graphs' optimizer today's rates, and give them gradients to write into."""
        for parameter in self._used:
            if parameter.grad is None:  # somebody has called zero_grad()
                parameter.grad = torch.zeros_like(parameter)
        rates = [group["lr"] for group in self.optimizer.param_groups]
        if not all(map(operator.is_, rates, self._rates)) or not self._rates:
            _tell_rates(self._twin, rates)
            self._rates = rates
        if "step" in self.optimizer.__dict__:
            self.optimizer._opt_called = True  # a schedule has put a counter round step()

    def _options_moved(self) -> bool:
        """Whether options besides the rate have changed, each value of which would be a graph."""
        groups = self.optimizer.param_groups
        if self._options.hold_in(groups):
            return False
        names = ", ".join(self._options.moved_in(groups))
        self.refuse(
            f"compile='step': {names} of the optimizer changes during the run. "
            "With cycle_momentum=False, OneCycleLR leaves the momentum unchanged."
        )
        return True

    def _state_replaced(self) -> bool:
        """Whether the optimizer remembers in other tensors than those that the graphs move;
        graphs are then made again."""
        states = self.optimizer.state
        if self._twin.state is states and self._state.stands_in(states):
            return False
        self._graphs.clear()
        self._remade += 1
        if self._remade > MOST_REMADE:
            self.refuse(
                "compile='step': tensors of the optimizer's state have been replaced "
                f"{self._remade} times. To reset momentum, fill them with zeros in place."
            )
        return True

    def _compiled(self) -> Graph:
        """The step as a function that `torch.compile` makes one graph of."""
        model, optimizer, max_norm = self.model, self._twin, self.max_norm
        cost_of, autocast = _cost_of(self.loss_of), _autocast_of(self.precision, self.device)
        update = type(optimizer).step.__wrapped__.__wrapped__
        used, parameters = self._used, parameters_of(optimizer)
        chosen = [*used, *_tensors_of(optimizer)]
        chosen += list(model.buffers()) if self.skips else []

        def step(batch: Any) -> tuple[Any, ...]:
            before = [tensor.detach().clone() for tensor in chosen]
            if autocast is None:
                loss, weight, sums = cost_of(model, batch)
            else:
                with torch.autocast(*autocast):
                    loss, weight, sums = cost_of(model, batch)
            grads = torch.autograd.grad(loss, used)
            value = loss.detach()
            with torch.no_grad():
                for parameter, grad in zip(used, grads, strict=True):
                    parameter.grad.copy_(grad)
                norm = _norm_of(used)
                found = ~(torch.isfinite(value) & torch.isfinite(norm))
                if max_norm is not None:
                    clip_(parameters, norm, max_norm)
                update(optimizer)
                for tensor, old in zip(chosen, before, strict=True):
                    tensor.copy_(torch.where(found, old, tensor))
            kind = torch.promote_types(value.dtype, torch.float32)
            return torch.stack([one.to(kind) for one in (value, norm, found)]), weight, sums

        return torch.compile(_alone(step), fullgraph=True, dynamic=False, **COMPILER)


def why_not(trainer: Trainer) -> str:
    """Why one graph cannot be used, found before anything is compiled; empty if it can."""
    for reason in _reasons(trainer):
        return f"compile='step': {reason}."
    return ""


def _reasons(trainer: Trainer) -> Iterator[str]:
    if trainer.own_step is not None:
        yield "your own step has its own order"
    if trainer.accum_steps > 1:
        yield f"accum_steps = {trainer.accum_steps} makes several backward passes per step"
    if trainer.precision.scaler is not None:
        yield "the gradient scaler of fp16 decides between backward and step"
    if num_ranks() > 1:
        yield f"{num_ranks()} processes average their gradients"
    if _carries_state(trainer.own_loss_of):
        yield "loss_of carries state from batch to batch"
    if not _is_torchs(trainer.optimizer):
        yield f"{type(trainer.optimizer).__name__} is not one of torch.optim"
    if _has_hooks(trainer.model, trainer.optimizer):
        yield "a hook is registered on model or optimizer"
    if not hasattr(torch._dynamo.config, "trace_autograd_ops"):
        yield f"torch {torch.__version__} does not trace a backward pass"


def _carries_state(loss_of: Any) -> bool:
    remembers = hasattr(loss_of, "start_pass") or hasattr(loss_of, "load_state_dict")
    return remembers and not isinstance(loss_of, nn.Module)


def _is_torchs(optimizer: Any) -> bool:
    step = getattr(type(optimizer), "step", None)
    inner = getattr(getattr(step, "__wrapped__", None), "__wrapped__", None)
    own = isinstance(optimizer, Optimizer) and type(optimizer).__module__.startswith("torch.optim")
    return own and inner is not None


def _has_hooks(model: nn.Module, optimizer: Any) -> bool:
    """Whether somebody listens: a graph would not call them, or only while it is made."""
    listening = (
        module
        for module in model.modules()
        if module._forward_hooks or module._forward_pre_hooks
        or module._backward_hooks or module._backward_pre_hooks
    )  # fmt: skip
    tensors = (p for p in model.parameters() if p._backward_hooks or p._post_accumulate_grad_hooks)
    step = optimizer.__dict__.get("step")
    return (
        any(True for _ in itertools.chain(listening, tensors))
        or (step is not None and not hasattr(step, "_wrapped_by_lr_sched"))
        or bool(optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks)
        or bool(everybodys._global_optimizer_pre_hooks or everybodys._global_optimizer_post_hooks)
    )


def _cost_of(loss_of: PairLoss | OwnLoss) -> Callable[[nn.Module, Any], Parts]:
    """What a batch costs, without the checks that the plain step has made."""
    if isinstance(loss_of, PairLoss):
        criterion = loss_of.criterion

        def cost(model: nn.Module, batch: Any) -> Parts:
            inputs, targets = batch
            return criterion(model(inputs), targets), None, False

        return cost
    function = loss_of.function

    def own_cost(model: nn.Module, batch: Any) -> Parts:
        loss = function(model, batch)
        if not isinstance(loss, Loss):
            return loss, None, False
        return loss.value, loss.weight, loss.sums

    return own_cost


def _autocast_of(precision: Any, device: torch.device) -> tuple[str, torch.dtype] | None:
    return (device.type, torch.bfloat16) if precision.name == "bf16" else None


def _counted_on(device: torch.device, optimizer: Optimizer) -> Iterator[tuple[dict[str, Any], str]]:
    """Move what an optimizer remembers on the CPU, its number of steps, to the device.

    Whether a step counts is known there only, since the loss or the gradient may be inf or nan.

    Returns:
        The states, and the names of what was moved.
    """
    for state in optimizer.state.values():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.device.type != device.type:
                state[name] = value.to(device)
                yield state, name


def _twin_of(optimizer: Optimizer, device: torch.device) -> Optimizer:
    """An optimizer of the same parameters and the same state, with options of its own.

    A graph takes rates as tensors, else each new rate would be a new graph; it counts steps on its
    device, and does without fused kernels, since it fuses anyway. Written into the groups of the
    user's optimizer and back, these would have all of the graph's guards tried again each time.
    """
    twin = object.__new__(type(optimizer))
    vars(twin).update(vars(optimizer))
    vars(twin).pop("step", None)  # where a schedule counts
    twin.param_groups = [_for_a_graph(group, device) for group in optimizer.param_groups]
    return twin


def _for_a_graph(group: dict[str, Any], device: torch.device) -> dict[str, Any]:
    rate = group["lr"]
    own = {"lr": rate if isinstance(rate, Tensor) else torch.tensor(rate, dtype=torch.float64)}
    if group.get("fused"):
        own["fused"] = False
    if device.type != "cpu":
        if "capturable" in group:  # it counts its steps on the device
            own["capturable"] = True
        if "foreach" in group:  # inductor fails to fuse lists of tensors with this backward pass
            own["foreach"] = False
    return group | own


def _tell_rates(twin: Optimizer, rates: Sequence[float | Tensor]) -> None:
    """Give a twin the rates of now."""
    for own, rate in zip(twin.param_groups, rates, strict=True):
        if isinstance(rate, Tensor):
            if own["lr"] is not rate:
                own["lr"] = rate
        elif own["lr"].item() != rate:
            own["lr"].fill_(rate)


def _norm_of(parameters: Sequence[Tensor]) -> Tensor:
    """Joint L2 norm of the gradients, in operators that fuse: `_foreach_norm` is called as it is,
    tensor by tensor, and took a fifth of a small net's update."""
    squares = [_wide(parameter.grad).square().sum() for parameter in parameters]
    return torch.stack(squares).sum().sqrt()


def _wide(grad: Tensor) -> Tensor:
    """Real numbers whose square fits: that of 300 is beyond fp16."""
    grad = grad.abs() if grad.is_complex() else grad
    return grad.float() if grad.dtype in (torch.float16, torch.bfloat16) else grad


def _tensors_of(optimizer: Optimizer) -> list[Tensor]:
    """What the optimizer remembers, as far as it is tensors."""
    states = optimizer.state.values()
    return [value for state in states for value in state.values() if isinstance(value, Tensor)]


class _Remembered:
    """Which tensors an optimizer remembers; numbers, which are others after each step, left out.

    Looked at before each update: a parameter is never looked up, since hashing a tensor is a call
    of Python's.
    """

    def __init__(self, states: Mapping[Any, dict[str, Any]]) -> None:
        values = [value for state in states.values() for value in state.values()]
        self._fixed = [value is None or isinstance(value, Tensor) for value in values]
        self._values = list(itertools.compress(values, self._fixed))

    def stands_in(self, states: Mapping[Any, dict[str, Any]]) -> bool:
        """Whether the same tensors stand in the same places."""
        now = [value for state in states.values() for value in state.values()]
        return len(now) == len(self._fixed) and all(
            map(operator.is_, itertools.compress(now, self._fixed), self._values)
        )


class _Options:
    """The options of an optimizer besides the rate, as they were; looked at before each update."""

    def __init__(self, groups: Sequence[dict[str, Any]]) -> None:
        self._groups = [_other_options(group) for group in groups]
        self._sizes = [(len(group), len(group["params"])) for group in groups]
        self._get = [
            operator.itemgetter(*(options.keys() - {"params"})) for options in self._groups
        ]
        self._values = [get(group) for get, group in zip(self._get, groups, strict=True)]

    def hold_in(self, groups: Sequence[dict[str, Any]]) -> bool:
        """Whether they are the same in these groups."""
        if len(groups) != len(self._sizes):
            return False
        kept = zip(groups, self._sizes, self._get, self._values, strict=True)
        try:
            return all(
                (len(group), len(group["params"])) == sizes and get(group) == values
                for group, sizes, get, values in kept
            )
        except KeyError:  # one has gone, and another come
            return False

    def moved_in(self, groups: Sequence[dict[str, Any]]) -> list[str]:
        """Names of those that differ."""
        now = [_other_options(group) for group in groups]
        pairs = list(zip(now, self._groups, strict=False))
        return sorted({n for a, b in pairs for n in a if a[n] != b.get(n)} or {"params"})


def _other_options(group: dict[str, Any]) -> dict[str, Any]:
    options = {name: value for name, value in group.items() if name != "lr"}
    return options | {"params": len(group["params"])}


def _key_of(batch: Any) -> Any:
    """The key of a batch's graph: `_shapes_in`, or for a pair of tensors the same cheaper."""
    if type(batch) in (tuple, list) and len(batch) == 2:
        a, b = batch
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return type(batch), a.shape, a.dtype, a.stride(), b.shape, b.dtype, b.stride()
    return _shapes_in(batch)


def _shapes_in(batch: Any) -> Any:
    """What two batches must share for one graph; None where they hold more than tensors."""
    pair = type(batch) in (tuple, list) and len(batch) == 2
    if pair and all(isinstance(part, Tensor) for part in batch):
        leaves, kind = batch, type(batch)
    else:
        leaves, kind = tree_flatten(batch)
        if not all(isinstance(leaf, Tensor) for leaf in leaves):
            return None
    return (str(kind), *((tuple(t.shape), t.dtype, t.stride()) for t in leaves))


def _distance(ours: Sequence[Tensor], theirs: Sequence[Tensor]) -> float:
    """Norm of the difference over the norm; 0 where both are nothing or not finite."""
    apart = torch.stack([(a - b).norm() for a, b in zip(ours, theirs, strict=True)]).norm()
    size = torch.stack([b.norm() for b in theirs]).norm()
    share = float(apart / size) if size else float(apart)
    return share if torch.isfinite(size) else 0.0


def _without_guards() -> Any:
    """A context in which graphs are called without trying their guards; outside of it, what stands
    now. Entered often, since making it takes as long as many guards."""
    context = torch.compiler.set_stance(skip_guard_eval_unsafe=True)  # and enters it
    context.__exit__(None, None, None)
    return context if context.prev.stance == "default" else contextlib.nullcontext()


def _alone(function: types.FunctionType) -> types.FunctionType:
    """The function with code of its own, since torch allows 8 graphs per code, of all runs."""
    code = function.__code__.replace(co_name=f"step_{next(_numbers)}")
    return types.FunctionType(code, function.__globals__, None, None, function.__closure__)


def _in_words(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"compile='step': torch.compile gave up ({type(error).__name__}: {lines[0][:160]})."


def _no_longer_true(graph: Graph, batch: Any) -> str:
    """Which guard of a graph fails, in words; empty if none does. Nothing is computed."""
    guards: list[str] = []
    with torch._dynamo.config.patch(error_on_recompile=True):
        try:
            graph(batch)
        except torch._dynamo.exc.RecompileError as error:
            guards = re.findall(r"^\s*- \d+/\d+: (.*?)\s*(?:#|$)", str(error), re.MULTILINE)
        except torch._dynamo.exc.TorchDynamoException:
            pass
    if not guards:
        return ""
    return (
        f"compile='step': the graph holds only as long as {guards[0]}, and that has changed. A "
        "number that `forward` counts up can be a tensor, filled in place."
    )


def _say(text: str) -> None:
    warnings.warn(text, stacklevel=2)
