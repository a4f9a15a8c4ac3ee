"""The tape: what was called in which order, and what the gradients were at that moment.

While a tape runs, it records everything that a training loop does, whichever code does it: forward
passes (with mode and grad mode), `backward`, clearing, clipping, optimizer and scheduler steps,
batches fetched; `functions` records calls of torch functions. It changes nothing and removes every
hook when it ends.
"""

from __future__ import annotations

import contextlib
import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, distributions, nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.nn.utils import clip_grad
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader
from torch.utils.data import dataloader as loader_module

from course.debug.probes.functions import Functions, is_transformed, shares_memory
from course.state.nested import tensors_in

MAX_NUMBERS = 1_000_000
TORCHS = "torch.optim"
"""Modules of the optimizers in whose steps nothing is listened for."""
MAX_NODES = 20_000
"""Nodes of a graph that are walked to see which losses take part in it."""
LEAST_SAMPLED = 10
"""Numbers that sampling must leave of a parameter: of a smaller one every number is read."""


class Tag:
    """Tied to a graph node: alive as long as somebody keeps the graph."""

    __slots__ = ("__weakref__",)


@dataclass(eq=False)
class Event:
    """One call. `call` counts the user's callable that was running."""

    kind: str
    call: int
    info: dict[str, Any] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["info"][name]
        except KeyError:
            raise AttributeError(name) from None


class Tape:
    """Records what happens inside `with tape.running():`."""

    def __init__(self, model: nn.Module, optimizers: list[Any], scheduler: Any = None) -> None:
        self.model = model
        self.optimizers = list(optimizers)
        self.scheduler = scheduler
        self.events: list[Event] = []
        self.call = 0
        self.parts = {id(module): name for name, module in model.named_modules()}
        self.watched = _watched_parameters(model, optimizers)
        self.functions = Functions(self)
        self._depth = 0
        self._clock = self._ticks()
        self._waiting: list[Event] = []
        self._terms = False
        self._strides = _strides(self.watched)
        self._drawn: list[Tensor] = []
        self.other_networks: set[int] = set()
        """Modules with weights that were called and are no part of the model."""
        self.called_parts: set[int] = set()
        """Modules of the model that were called, with it or alone."""
        self.parts_alone: set[int] = set()
        """Modules of the model with weights that were called outside of a call of the model."""
        self._inside = 0
        self._open: list[Event] = []
        """Forwards of the model that have begun and not ended."""
        self._pulled_by: Event | None = None
        """The call of backward or of autograd.grad that is running."""
        self._begun = self._ended = 0
        """Forwards of the model."""
        self.calls_within: Counter[int] = Counter()
        """How often each part is called within the first of them, in the order in which the parts
        first return."""
        self.took_states = False
        """A state_dict was taken."""
        self.before_load: dict[str, Tensor] = {}
        """State of the model when weights were last loaded into it."""
        self._epoch = 0
        self._epoch_of: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    # What the loop's state is at a moment

    def gradient(self) -> list[Tensor | None]:
        """A sample of every watched parameter's gradient, None where there is none."""
        with torch._C.DisableTorchFunction():  # ours, which need not be listened to
            return [
                None if p.grad is None else _sample(p.grad, stride)
                for p, stride in zip(self.watched, self._strides, strict=True)
            ]

    def weights(self) -> list[Tensor]:
        """A sample of every watched parameter."""
        with torch._C.DisableTorchFunction():
            return [_sample(p, s) for p, s in zip(self.watched, self._strides, strict=True)]

    def of(self, kind: str) -> list[Event]:
        """Events of one kind, in order."""
        return [event for event in self.events if event.kind == kind]

    def in_call(self, call: int) -> list[Event]:
        """Events of one call of the user's callable, in order."""
        return [event for event in self.events if event.call == call]

    def note(self, kind: str, **info: Any) -> Event:
        event = Event(kind, self.call, info)
        self.events.append(event)
        return event

    # Listening

    @contextlib.contextmanager
    def running(self) -> Iterator[Tape]:
        """Listen while the block runs."""
        with contextlib.ExitStack() as stack:
            for handle in (
                register_module_forward_pre_hook(self._before_forward),
                register_module_forward_hook(self._after_forward),
                register_optimizer_step_pre_hook(self._before_step),
                register_optimizer_step_post_hook(self._after_step),
            ):
                stack.callback(handle.remove)
            for owner, name, wrapper in self._patches():
                stack.enter_context(patched(owner, name, wrapper))
            stack.enter_context(self.functions)
            self._clock = self._ticks()
            yield self
            self._see_ticks()

    def _patches(self) -> Iterator[tuple[Any, str, Callable]]:
        yield torch.autograd, "backward", self._backward
        yield torch.autograd, "grad", self._grad
        yield torch.optim.Optimizer, "zero_grad", self._noting("zero")
        yield nn.Module, "zero_grad", self._noting("zero")
        yield nn.Module, "load_state_dict", self._load
        yield nn.Module, "state_dict", self._state
        yield clip_grad, "_clip_grads_with_norm_", self._clip
        yield torch.amp.GradScaler, "unscale_", self._noting("unscale")
        yield distributions.Distribution, "sample", self._sample
        yield distributions.Normal, "sample", self._sample
        yield distributions.Normal, "log_prob", self._noting("log_prob")
        yield DataLoader, "__iter__", self._loader_iter
        yield loader_module._BaseDataLoaderIter, "__next__", self._fetch
        if self.scheduler is not None:
            yield self.scheduler, "step", self._scheduler_step

    def _noting(self, kind: str) -> Callable:
        def wrapper(original: Callable, *args: Any, **kwargs: Any) -> Any:
            self.note(kind)
            return original(*args, **kwargs)

        return wrapper

    def _grad(self, original: Callable, outputs: Any, inputs: Any, *args: Any, **kwargs: Any):
        graph = bool(kwargs.get("create_graph", args[2] if len(args) > 2 else False))
        weights = set() if graph else {id(p) for p in self.watched}
        event = self.note("autograd_grad", cut=not graph and all(
            t.is_leaf and id(t) not in weights for t in tensors_in(inputs)))  # fmt: skip
        with self._pulling(event):
            return original(outputs, inputs, *args, **kwargs)

    @contextlib.contextmanager
    def _pulling(self, event: Event) -> Iterator[None]:
        """Inside, gradients flow for this event's sake."""
        outer, self._pulled_by = self._pulled_by, event
        try:
            yield
        finally:
            self._pulled_by = outer

    def _listen_behind(self, forward: Event, outputs: Iterable[Tensor]) -> None:
        """Note by which calls of backward and autograd.grad a gradient comes to this forward."""
        pulls: list[Event] = forward.info.setdefault("pulls", [])

        def hear(*_: Any) -> None:
            event = self._pulled_by
            if event is not None and not any(event is known for known in pulls):
                pulls.append(event)

        for node in {t.grad_fn for t in outputs if t.grad_fn is not None}:
            node.register_prehook(hear)

    def _backward(self, original: Callable, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        tag = Tag()
        if roots[0].grad_fn is not None:
            roots[0].grad_fn.metadata["doctor"] = tag
        retain = kwargs.get("retain_graph", args[1] if len(args) > 1 else None)
        event = self.note(
            "backward",
            loss=float(sum(root.detach().double().sum() for root in roots)),
            before=self.gradient(),
            tag=weakref.ref(tag),
            inside_step=self._depth > 0,
            retained=bool(retain),
        )
        del tag
        self._see_unused(roots)
        with self._arriving() as arrived, self._pulling(event):
            result = original(tensors, *args, **kwargs)
        event.info |= {"after": self.gradient(), "arrived": arrived}
        return result

    def mark(self, event: Event, result: Any) -> None:
        """Put the event's number at the loss's node, so that backward can see what it reaches."""
        if isinstance(result, Tensor) and result.grad_fn is not None:
            result.grad_fn.metadata["doctor loss"] = len(self.events) - 1
            self._waiting.append(event)

    def mark_term(self, result: Tensor) -> None:
        """The same of a number that is added without a graph."""
        result.grad_fn.metadata["doctor term"] = len(self.events) - 1
        self._terms = True

    def _see_unused(self, roots: list[Tensor]) -> None:
        """Which of several losses computed since the last backward do not take part in this one.

        Only a reduced loss is looked for: elementwise ones are monitored as often as used.
        """
        waiting, self._waiting = self._waiting, []
        terms, self._terms = self._terms, False
        if len(waiting) < 2 and not terms:
            return
        todo, seen, reached = [r.grad_fn for r in roots if r.grad_fn is not None], set(), set()
        while todo and len(seen) < MAX_NODES:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            if (number := node.metadata.get("doctor loss")) is not None:
                reached.add(id(self.events[number]))
            if (number := node.metadata.get("doctor term")) is not None:
                self.events[number].info["reached"] = True
            todo += [following for following, _ in node.next_functions if following is not None]
        if len(seen) < MAX_NODES and len(waiting) > 1:
            for event in waiting:
                event.info["unused"] = id(event) not in reached

    @contextlib.contextmanager
    def _arriving(self) -> Iterator[set[int]]:
        """Ids of parameters whose hooks may take a gradient away before backward ends (a step
        inside backward), as far as one other than zero comes."""
        arrived: set[int] = set()

        def listener(parameter: Tensor) -> Callable[[Tensor], None]:
            def listen(gradient: Tensor) -> None:
                values = gradient._values() if gradient.is_sparse else gradient
                if bool((values != 0).any()):
                    arrived.add(id(parameter))

            return listen

        with contextlib.ExitStack() as stack:
            for parameter in self.watched:
                hooked = parameter._backward_hooks or parameter._post_accumulate_grad_hooks
                if hooked and parameter.requires_grad:
                    stack.callback(parameter.register_hook(listener(parameter)).remove)
            yield arrived

    def _clip(self, original: Callable, *args: Any, **kwargs: Any) -> Any:
        before = self.gradient()
        given = args[0] if args else kwargs["parameters"]
        handed = _with_gradient([given] if isinstance(given, Tensor) else given)
        result = original(*args, **kwargs)
        self.note("clip", before=before, after=self.gradient(), handed=handed)
        return result

    def _state(self, original: Callable, *args: Any, **kwargs: Any) -> Any:
        self.took_states = True
        return original(*args, **kwargs)

    def _load(self, original: Callable, module: nn.Module, state: Any, *args: Any, **kwargs: Any):
        """Weights are loaded; those of the model before are kept, of the last time alone."""
        own = module.state_dict(keep_vars=True)
        event = self.note("load", module=module, same_memory=is_own_memory(state, own))
        if module is self.model:
            self.before_load = {name: t.detach().clone() for name, t in own.items()
                                if isinstance(t, Tensor)}  # fmt: skip
        result = original(module, state, *args, **kwargs)
        if module is self.model:
            event.info["weights"] = self.weights()
        return result

    def _scheduler_step(self, original: Callable, *args: Any, **kwargs: Any) -> Any:
        self._see_ticks()
        self.note("schedule", value=args[0] if args else kwargs.get("metrics"))
        result = original(*args, **kwargs)
        self._clock = self._ticks()
        return result

    def _ticks(self) -> Any:
        return getattr(self.scheduler, "last_epoch", None)

    def _see_ticks(self) -> None:
        """A step of the schedule that was not heard, e.g. by a method taken from it before."""
        before, self._clock = self._clock, self._ticks()
        if before is not None and self._clock is not None and self._clock > before:
            self.note("schedule", value=None)

    def _sample(self, original: Callable, *args: Any, **kwargs: Any) -> Any:
        """A draw that could have carried a gradient; who gets it is seen where a part is called."""
        result = original(*args, **kwargs)
        law = args[0]
        parts = (getattr(law, name, None) for name in law.arg_constraints)
        learned = any(isinstance(p, Tensor) and p.requires_grad for p in parts)
        if law.has_rsample and learned and torch.is_grad_enabled():
            self._drawn.append(result.detach())
        return result

    def _loader_iter(self, original: Callable, loader: Any) -> Any:
        iterator = original(loader)
        self._epoch += 1
        self._epoch_of[iterator] = self._epoch
        self.note("epoch", loader=loader)
        return iterator

    def _fetch(self, original: Callable, iterator: Any) -> Any:
        batch = original(iterator)
        dataset = getattr(iterator, "_dataset", None)
        self.note("fetch", dataset=dataset, iterator=self._epoch_of.get(iterator, 0))
        return batch

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._see_ticks()
        self._depth += 1
        has_closure = len(args) > 1 or bool(kwargs.get("closure"))
        self.functions.deaf = not has_closure and type(optimizer).__module__.startswith(TORCHS)
        self.note(
            "step",
            optimizer=optimizer,
            gradient=self.gradient(),
            handed=_with_gradient(p for g in optimizer.param_groups for p in g["params"]),
            live={id(p) for p in self.watched if p.requires_grad},
            weights=self.weights(),
            lrs=[float(group["lr"]) for group in optimizer.param_groups if "lr" in group],
            has_closure=has_closure,
        )

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._depth -= 1
        self.functions.deaf = False
        self.note("stepped", optimizer=optimizer, weights=self.weights())

    def _before_forward(self, module: nn.Module, args: Any) -> None:
        self._begun += module is self.model
        if is_transformed():
            return
        if id(module) in self.parts:
            self.called_parts.add(id(module))
            alone = module is not self.model and not self._inside
            if alone and any(True for _ in module.parameters()):
                self.parts_alone.add(id(module))
        elif any(True for _ in module.parameters()):
            self.other_networks.add(id(module))
        if module is self.model:
            first = next((a for a in args if isinstance(a, Tensor)), None)
            self._drawn = []
            self._inside += 1
            self.functions.forward_begins()
            forward = self.note(
                "forward",
                training=module.training,
                submodes=_modes(module),
                grad=torch.is_grad_enabled(),
                inputs=None if first is None else first.detach(),
                first_tensor=next((t.detach() for t in tensors_in(args)), None),
                wants=first is not None and first.is_leaf and first.requires_grad,
                stats=_stats(first),
            )
            self._open.append(forward)
        elif self._drawn and any(shares_memory(a, self._drawn) for a in args):
            self.note("drawn into", part=self.parts.get(id(module), type(module).__name__))
        elif (drawn := self.functions.normals.read(args)) is not None:
            part = self.parts.get(id(module), type(module).__name__)
            self.functions.normals.follow(drawn, self.note("drawn into", part=part, by="normal"))

    def _after_forward(self, module: nn.Module, args: Any, output: Any) -> None:
        if module is self.model:
            self._ended += 1
        elif self._begun == 1 and not self._ended and id(module) in self.parts:
            self.calls_within[id(module)] += 1
        if module is self.model and not is_transformed():
            self._inside -= 1
            forward = self._open.pop() if self._open else None
            if forward is not None and forward.submodes and forward.grad:
                self._listen_behind(forward, tensors_in(output))
            first = next((o for o in tensors_in(output)), None)
            tag = Tag()
            if first is not None and first.grad_fn is not None:
                first.grad_fn.metadata["doctor"] = tag
                made = True
            else:
                made = False
            self.note(
                "output",
                tag=weakref.ref(tag) if made else (lambda: None),
                graph=made,
                output=None if first is None else first.detach(),
            )
            self.functions.forward_gave(output)


@contextlib.contextmanager
def patched(owner: Any, name: str, wrapper: Callable) -> Iterator[None]:
    """Replace owner.name by a wrapper of the original; the very same thing is put back."""
    own = vars(owner).get(name, _ABSENT)
    original = getattr(owner, name)
    if original is None:
        yield
        return

    def replacement(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    setattr(owner, name, replacement)
    try:
        yield
    finally:
        if own is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


_ABSENT = object()


def is_own_memory(state: Any, own: dict[str, Any]) -> bool:
    """A state's tensors with the model's names lie where the model's own do: it is no copy."""
    if not isinstance(state, Mapping):
        return False
    pairs = [(state[n], t) for n, t in own.items() if isinstance(state.get(n), Tensor)]
    pairs = [(a, b) for a, b in pairs if isinstance(b, Tensor) and b.numel()]
    return bool(pairs) and all(a.data_ptr() == b.data_ptr() for a, b in pairs)


def _watched_parameters(model: nn.Module, optimizers: list[Any]) -> list[Tensor]:
    held = [p for o in optimizers for group in o.param_groups for p in group["params"]]
    unique = {id(p): p for p in itertools.chain(model.parameters(), held)}
    return list(unique.values())


def _with_gradient(parameters: Iterable[Tensor]) -> set[int]:
    """Ids of those that have one."""
    return {id(p) for p in parameters if p.grad is not None}


def _strides(parameters: list[Tensor]) -> list[int]:
    total = sum(p.numel() for p in parameters)
    stride = max(1, total // MAX_NUMBERS)
    return [stride if p.numel() > LEAST_SAMPLED * stride else 1 for p in parameters]


def _sample(tensor: Tensor, stride: int) -> Tensor:
    values = tensor.detach()
    values = values.to_dense() if values.layout != torch.strided else values
    return values.flatten()[::stride].clone()


def _modes(module: nn.Module) -> dict[str, bool]:
    """Mode of each submodule that behaves differently in training."""
    return {name: part.training for name, part in module.named_modules() if changes_by_mode(part)}


def changes_by_mode(part: nn.Module) -> bool:
    """Dropout that drops, batch norm with running statistics, and layers with dropout inside."""
    if isinstance(part, nn.modules.batchnorm._NormBase):
        return part.track_running_stats
    rate = getattr(part, "p", None) if "Drop" in type(part).__name__ else None
    if rate is None:
        rate = getattr(part, "dropout", None)
    return isinstance(rate, (int, float)) and not isinstance(rate, bool) and rate > 0


def _stats(tensor: Tensor | None) -> dict[str, float] | None:
    if tensor is None or not tensor.is_floating_point() or tensor.numel() == 0:
        return None
    values = tensor.detach().float()
    return {
        "mean": float(values.mean()),
        "std": float(values.std(correction=0)),
        "max": float(values.abs().max()),
    }
