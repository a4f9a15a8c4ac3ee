"""03d.recompute: activation checkpointing, a block that is run again in backward."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import checkpoint
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from autograde.apart import by_itself
from autograde.bank.harness import Watch
from autograde.exercise import (
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    those_of,
)
from course.from_scratch.recompute import recomputed as reference

MAY = frozenset({"grads", "random"})
"""What forward and backward may change."""


def draw(source: Draw, part: str) -> Case:
    """A chain of one block or of three, with what the part asks about in it.

    Of one chain the second block is in eval mode; in the other the first block comes once more.
    """
    width, hidden = source.integer(2, 4), source.integer(5, 7)
    num_blocks = 3 if part == "chain" else 1
    order = [*range(num_blocks), *([0] if part == "chain" and source.index == 1 else [])]
    shapes = [(hidden, width), (hidden,), (width, hidden), (width,)]
    rows = source.integer(8, 9)  # more than any size of a weight, so that activations are told
    return {
        "blocks": [[source.normal(*shape) for shape in shapes] for _ in range(num_blocks)],
        "inputs": source.normal(rows, width),
        "slopes": source.normal(rows, width),
        "stale": [source.normal(*shape) for shape in shapes]
        if part in ("same", "chain") and source.index == 1
        else [],
        "asks": part != "first" and not (part == "chain" and source.index == 0),
        "order": order,
        "eval": [1] if part == "chain" and source.index == 0 else [],
        "frozen": part == "chain",
        "dropout": 0.5 if part in ("random", "chain") else 0.0,
        "dtype": "float64" if source.index == 1 else "float32",
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """Outputs, gradients, what was kept, how often each block ran, and the next random number.

    All of it is looked at in one run: one that looked at memory alone could be told apart.
    """
    dtype = getattr(torch, case["dtype"])
    blocks = _blocks(case, device, dtype)
    inputs = case["inputs"].to(device, dtype).requires_grad_(case["asks"])
    slopes = case["slopes"].to(device, dtype)
    runs = [0]
    for block in blocks:
        block.register_forward_hook(lambda *_: runs.__setitem__(0, runs[0] + 1))
    watch = Watch(blocks, data={"inputs": inputs, "the output's gradient": slopes})
    torch.default_generator.manual_seed(1 + len(slopes))
    torch.rand(1)  # so that the state is not the one that the same seed gives again
    gc.freeze()  # so that collecting looks at what is new alone, which takes no time
    try:
        with _Made() as made:
            outputs = 1 * inputs  # whose graph keeps neither factor
            marked = []
            for block in (blocks[place] for place in case["order"]):
                given, before = outputs, (outputs.requires_grad, outputs.detach().clone())
                outputs = _tensor(function(block, given))
                marked += _changed(given, *before)
            del given, before
        first, joined = runs[0], outputs.requires_grad
        answer = {"outputs": outputs.detach().clone().cpu()}
        loss = (outputs * slopes).sum()
        del outputs  # from here on only the graph holds inputs and outputs of blocks
        by_itself(gc.collect)  # what only a cycle of references holds is not kept
    finally:
        gc.unfreeze()
    free = {p.numel() for p in blocks.parameters()}  # copies of the weights may be kept
    keeps_more = joined and made.numbers(len(inputs), free) > len(case["order"]) * inputs.numel()
    between = _next_numbers()
    torch.rand(3)  # so that the state which one block leaves is not the one before backward()
    if joined:
        loss.backward()
    return answer | {
        "joined": joined,
        "inputs": _grad(inputs),
        "grads": [_grad(p) for p in blocks.parameters()],
        "runs": [first, runs[0]],
        "between": between,
        "after": torch.rand(2),
        "disturbed": sorted({*watch.changed(MAY), *marked}),
        "kept": keeps_more,
    }


def _changed(inputs: Tensor, asked: bool, values: Tensor) -> list[str]:
    """What a call has changed about the inputs of its block."""
    if inputs.requires_grad != asked:
        return ["requires_grad of its argument inputs"]
    return [] if torch.equal(inputs.detach(), values) else ["its argument inputs"]


def _next_numbers() -> Tensor:
    """The random numbers that come next, which are then still to come."""
    with torch.random.fork_rng(devices=[]):
        return torch.rand(2)


class Mask(nn.Module):
    """Dropout whose mask comes from the CPU's random numbers, on whichever device it is used."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        keep = torch.rand(x.shape, device="cpu") >= self.p
        return x * keep.to(x.device, x.dtype) / (1 - self.p)


class _Made(TorchDispatchMode):
    """Notes all tensors that are made under it, whoever keeps them, and keeps none itself."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and tensor.dtype != torch.uint8:  # not a random state
                storage = tensor.untyped_storage()
                self.sizes[StorageWeakRef(storage)] = storage.nbytes() // tensor.element_size()
        return made

    def numbers(self, least: int, free: set[int]) -> int:
        """How many numbers are still in memory, in tensors of at least that size and not free."""
        there = (size for ref, size in self.sizes.items() if not ref.expired())
        return sum(size for size in there if size >= least and size not in free)


def _blocks(case: Case, device: torch.device, dtype: torch.dtype) -> nn.ModuleList:
    """Linear, tanh, dropout, linear, with the case's weights and gradients left over."""
    blocks = nn.ModuleList()
    for values in case["blocks"]:
        hidden, width = values[0].shape
        drop = Mask(case["dropout"])
        block = nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), drop, nn.Linear(hidden, width))
        for parameter, value in zip(block.parameters(), values, strict=True):
            parameter.data.copy_(value)
        blocks.append(block)
    blocks.to(device, dtype)
    for place in case["eval"]:
        blocks[place].eval()
    if case["frozen"]:
        blocks[0][0].weight.requires_grad_(False)
    for parameter, grad in zip(blocks[0].parameters(), case["stale"], strict=False):
        parameter.grad = grad.to(device, dtype) if parameter.requires_grad else None
    return blocks


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    kind = type(value).__name__
    raise AnswerError(f"It returned a {kind}: return the block's output, one tensor.")


def _grad(tensor: Tensor) -> Tensor | None:
    return None if tensor.grad is None else tensor.grad.detach().cpu().clone()


def _again(block: nn.Module, inputs: Tensor, state: Tensor | None) -> Tensor:
    """The block's output with a graph, from a state of the random numbers if there is one."""
    if state is None:
        with torch.enable_grad():
            return block(inputs)
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.set_rng_state(state)
        return block(inputs)


def recomputing(
    *,
    arguments: Callable[[nn.Module], list[Tensor]] = lambda block: [
        p for p in block.parameters() if p.requires_grad
    ],
    before: Callable[[nn.Module], Any] = lambda block: None,
    state: Callable[[], Tensor | None] = torch.get_rng_state,
    again: Callable[..., Tensor] = _again,
    keep: Callable[..., tuple[Tensor, ...]] = lambda inputs, outputs: (inputs,),
    change: Callable[[Tensor, list], tuple] = lambda inputs, grads: (inputs, *grads),
) -> Callable[[nn.Module, Tensor], Tensor]:
    """A right answer; each argument is a place for one mistake.

    Args:
        arguments: What goes into the Function besides the inputs.
        before: Done to the block before forward.
        state: Taken before forward, and handed to `again`.
        again: Runs the block in backward.
        keep: What is saved for backward, from inputs and outputs.
        change: What backward returns, from the inputs' gradient and the arguments'.
    """

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, block, inputs, *parameters):
            before(block)
            ctx.block, ctx.state, ctx.parameters = block, state(), parameters
            outputs = block(inputs)
            ctx.save_for_backward(*keep(inputs, outputs))
            return outputs

        @staticmethod
        def backward(ctx, slope):
            inputs = ctx.saved_tensors[0].detach().requires_grad_()
            outputs = again(ctx.block, inputs, ctx.state)
            grads = torch.autograd.grad(outputs, [inputs, *ctx.parameters], slope)
            return None, *change(grads[0], list(grads[1:]))

    return lambda block, inputs: Twice.apply(block, inputs, *arguments(block))


plain_function = recomputing()
mask_drawn_again = recomputing(state=lambda: None)
doubled = recomputing(change=lambda inputs, grads: (inputs, *[2 * grad for grad in grads]))
inputs_without = recomputing(change=lambda _inputs, grads: (None, *grads))
outputs_kept = recomputing(keep=lambda inputs, outputs: (inputs, outputs.clone()))
inputs_copied = recomputing(keep=lambda inputs, _outputs: (inputs.clone(),))
in_eval_mode = recomputing(before=lambda block: block.eval())


def _rewound(block, inputs, state):
    torch.set_rng_state(state)
    with torch.enable_grad():
        return block(inputs)


def _seeded(block, inputs, _state):
    torch.manual_seed(0)
    with torch.enable_grad():
        return block(inputs)


def _without_mask(block, inputs, _state):
    mode = block.training
    try:
        with torch.enable_grad():
            return block.eval()(inputs)
    finally:
        block.train(mode)


def _in_train_mode(block, inputs, state):
    return _again(block.train(), inputs, state)


random_rewound = recomputing(again=_rewound)
in_train_mode = recomputing(again=_in_train_mode)


def _as_it_is_then(block, inputs, _state):
    """Random numbers are put back, and were never set to what they had been."""
    return _again(block, inputs, torch.get_rng_state())


drawn_on = recomputing(again=_as_it_is_then)
no_mask_again = recomputing(again=_without_mask)
seeded = recomputing(before=lambda _block: torch.manual_seed(0), again=_seeded)


def _seeded_again(block, inputs, _state):
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.manual_seed(torch.initial_seed())
        return block(inputs)


seeded_again = recomputing(
    before=lambda _block: torch.manual_seed(torch.initial_seed()), again=_seeded_again
)


class _OnTheBlock(torch.autograd.Function):
    """The state of the random numbers is an attribute of the block, the last call's alone."""

    @staticmethod
    def forward(ctx, block, inputs, *parameters):
        block.state = torch.get_rng_state()
        ctx.block, ctx.parameters = block, parameters
        ctx.save_for_backward(inputs)
        return block(inputs)

    @staticmethod
    def backward(ctx, slope):
        inputs = ctx.saved_tensors[0].detach().requires_grad_()
        outputs = _again(ctx.block, inputs, ctx.block.state)
        return None, *torch.autograd.grad(outputs, [inputs, *ctx.parameters], slope)


def state_on_the_block(block, inputs):
    asked = [p for p in block.parameters() if p.requires_grad]
    return _OnTheBlock.apply(block, inputs, *asked)


def everything_kept(block, inputs):
    return block(inputs)


def no_way_back(block, inputs):
    with torch.no_grad():
        return block(inputs)


def inputs_detached(block, inputs):
    return plain_function(block, inputs.detach())


class _Inside(torch.autograd.Function):
    """The inputs alone are its arguments; the parameters' gradients are added on the way."""

    @staticmethod
    def forward(ctx, block, inputs, *_joined):
        ctx.block, ctx.state = block, torch.get_rng_state()
        ctx.save_for_backward(inputs)
        return block(inputs)

    @staticmethod
    def backward(ctx, slope):
        (inputs,) = ctx.saved_tensors
        inputs = inputs.detach().requires_grad_()
        torch.autograd.backward(_again(ctx.block, inputs, ctx.state), slope)
        return None, inputs.grad, None


def inputs_alone(block, inputs):
    return _Inside.apply(block, inputs, torch.zeros(1))


class _OutputsNoted(_Inside):
    """Keeps the outputs as an attribute, where autograd does not see them."""

    @staticmethod
    def forward(ctx, block, inputs, *joined):
        ctx.outputs = _Inside.forward(ctx, block, inputs, *joined)
        return ctx.outputs.clone()


def outputs_noted(block, inputs):
    return _OutputsNoted.apply(block, inputs, torch.zeros(1, requires_grad=True))


class _ActivationsNoted(_Inside):
    """Keeps what every layer answers."""

    @staticmethod
    def forward(ctx, block, inputs, *joined):
        ctx.seen = []
        note = [m.register_forward_hook(lambda *a: ctx.seen.append(a[2])) for m in block.modules()]
        outputs = _Inside.forward(ctx, block, inputs, *joined)
        for hook in note:
            hook.remove()
        return outputs.clone()


def activations_noted(block, inputs):
    return _ActivationsNoted.apply(block, inputs, torch.zeros(1, requires_grad=True))


class _PutBack(_Inside):
    """Puts the random numbers back after the first run as well."""

    @staticmethod
    def forward(ctx, block, inputs, *joined):
        with torch.random.fork_rng(devices=[]):
            return _Inside.forward(ctx, block, inputs, *joined)


def put_back_at_once(block, inputs):
    return _PutBack.apply(block, inputs, torch.zeros(1, requires_grad=True))


class _Overwriting(_Inside):
    @staticmethod
    def backward(ctx, slope):
        for parameter in ctx.block.parameters():
            parameter.grad = None
        return _Inside.backward(ctx, slope)


class _StateTooLate(_Inside):
    @staticmethod
    def forward(ctx, block, inputs, *joined):
        outputs = _Inside.forward(ctx, block, inputs, *joined)
        ctx.state = torch.get_rng_state()
        return outputs


def state_too_late(block, inputs):
    return _StateTooLate.apply(block, inputs, torch.zeros(1, requires_grad=True))


class _AddedAndReturned(_Inside):
    """Returns as gradients what was added to .grad on the way, and is then added once more."""

    @staticmethod
    def backward(ctx, slope):
        _, inputs, _ = _Inside.backward(ctx, slope)
        return None, inputs, *[p.grad for p in ctx.block.parameters() if p.requires_grad]


def added_and_returned(block, inputs):
    asked = [p for p in block.parameters() if p.requires_grad]
    return _AddedAndReturned.apply(block, inputs, *asked)


def overwritten(block, inputs):
    return _Overwriting.apply(block, inputs, torch.zeros(1, requires_grad=True))


def twice_at_once(block, inputs):
    state = torch.get_rng_state()
    with torch.no_grad():
        outputs = block(inputs)
    again = _again(block, inputs, state)
    return again + (outputs - again).detach()


def parameters_handed_over(block, inputs):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inputs, *parameters):
            ctx.random = torch.get_rng_state()
            ctx.save_for_backward(inputs, *parameters)
            return block(inputs)

        @staticmethod
        def backward(ctx, slope):
            inputs, *parameters = ctx.saved_tensors
            inputs = inputs.detach().requires_grad_()
            with torch.random.fork_rng(devices=[]), torch.enable_grad():
                torch.set_rng_state(ctx.random)
                outputs = block(inputs)
            return torch.autograd.grad(outputs, [inputs, *parameters], slope)

    return Twice.apply(inputs, *[p for p in block.parameters() if p.requires_grad])


def with_a_dummy(block, inputs):
    """A number that asks for a gradient joins the inputs; the weights' are added on the way."""

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inputs, _dummy):
            ctx.inputs, ctx.random = inputs.detach(), torch.get_rng_state()
            return block(inputs)

        @staticmethod
        def backward(ctx, slope):
            now, inputs = torch.get_rng_state(), ctx.inputs.clone().requires_grad_()
            torch.set_rng_state(ctx.random)
            with torch.enable_grad():
                outputs = block(inputs)
            torch.set_rng_state(now)
            outputs.backward(slope)
            return inputs.grad, None

    return Twice.apply(inputs, torch.zeros((), requires_grad=True))


def by_hooks(block, inputs):
    """What autograd would save is counted instead, and made when the first of it is asked for."""
    random, packed, made = torch.get_rng_state(), [], []

    def pack(_tensor):
        packed.append(None)
        return len(packed) - 1

    def keep(tensor):
        made.append(tensor.detach())
        return len(made) - 1

    def unpack(number):
        if not made:
            hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda number: made[number])
            with torch.random.fork_rng(devices=[]), torch.enable_grad(), hooks:
                torch.set_rng_state(random)
                block(inputs.detach().requires_grad_(inputs.requires_grad))
        return made[number]

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return block(inputs)


class _InACopy(_Inside):
    @staticmethod
    def backward(ctx, slope):
        ctx.block = copy.deepcopy(ctx.block)
        return _Inside.backward(ctx, slope)


def on_a_copy(block, inputs):
    return _InACopy.apply(block, inputs, torch.zeros(1, requires_grad=True))


def marks_the_inputs(block, inputs):
    return inputs_alone(block, inputs.requires_grad_())


def slope_forgotten(block, inputs):
    outputs = parameters_handed_over(block, inputs)
    outputs.register_hook(torch.ones_like)
    return outputs


class _NotDetached(_Inside):
    """The second run starts from the saved inputs, with the graph that they have."""

    @staticmethod
    def backward(ctx, slope):
        (inputs,) = ctx.saved_tensors
        torch.autograd.backward(_again(ctx.block, inputs, ctx.state), slope)
        return None, None, None


def not_detached(block, inputs):
    return _NotDetached.apply(block, inputs, torch.zeros(1, requires_grad=True))


all_parameters = recomputing(arguments=lambda block: list(block.parameters()))


def with_functional_call(block, inputs):
    """The second run is a function of copies of the parameters."""
    names, values = zip(*block.named_parameters(), strict=True)

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, inputs, *values):
            ctx.save_for_backward(inputs, *values)
            ctx.random = torch.get_rng_state()
            return torch.func.functional_call(block, dict(zip(names, values, strict=True)), inputs)

        @staticmethod
        def backward(ctx, slope):
            asked = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=True)
            inputs, *values = [value.detach().requires_grad_(need) for value, need in asked]
            after = torch.get_rng_state()
            torch.set_rng_state(ctx.random)
            with torch.enable_grad():
                named = dict(zip(names, values, strict=True))
                outputs = torch.func.functional_call(block, named, inputs)
            torch.set_rng_state(after)
            outputs.backward(slope)
            return inputs.grad, *[value.grad for value in values]

    return Twice.apply(inputs, *values)


EXERCISE = Exercise(
    id="03d.recompute",
    title="run a block again in backward",
    source='Annotated-loop essay, "The forward pass"',
    ledger=("C30", "F51"),
    minutes=20,
    difficulty=3,
    read=("F51", "torch.autograd.Function"),
    hints=(
        "A torch.autograd.Function has a forward() without a graph and a backward() that you "
        "write. What must backward() be given so that it can recompute everything else?",
        "In backward(): with torch.enable_grad(), run the block on "
        "inputs.detach().requires_grad_(), then torch.autograd.grad(outputs, [inputs, "
        "*parameters], slope).",
        "Call Twice.apply(block, inputs, *parameters): one gradient is returned per argument, "
        "None for the block. Keep torch.get_rng_state(), and set it within "
        "torch.random.fork_rng(devices=[]).",
    ),
    signature="recomputed(block, inputs)",
    parts=(
        Part("same", "the output, and gradients added to what is there", points=1,
             fields=("outputs", "inputs", "grads", "kept", "disturbed")),
        Part("first", "inputs that need no gradient", points=1,
             fields=("joined", "inputs", "grads", "kept", "disturbed")),
        Part("kept", "only the inputs kept, the block run twice", points=1,
             fields=("joined", "kept", "runs")),
        Part("random", "dropout's mask, and the random numbers after it", points=1,
             fields=("outputs", "grads", "between", "after", "kept")),
        Part("chain", "three blocks, with a frozen weight", points=1, hidden=True,
             fields=("between", "outputs", "inputs", "grads", "after", "kept")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "outputs": "the output",
        "joined": "whether the output has a graph",
        "inputs": "the inputs' gradient",
        "grads": "after backward(), the gradient of parameter (counted from 0)",
        "kept": "whether more than the inputs was still in memory before backward()",
        "runs": "how often the block ran before backward() and altogether:",
        "between": "the next random number after recomputed(), before backward()",
        "after": "the next random number after backward()",
        "disturbed": "what else it changed",
    },
    by_hand=(
        checkpoint.checkpoint, checkpoint.checkpoint_sequential,
        checkpoint.CheckpointFunction.forward,
        checkpoint._checkpoint_hook.__init__, checkpoint._recomputation_hook.__init__,
        *those_of(checkpoint, "_checkpoint_impl", "_checkpoint_without_reentrant_generator",
                  "_checkpoint_without_reentrant_generator_impl"),
    ),
    wrong=(
        Wrong("everything-kept", everything_kept,
              "Autograd kept more than the inputs, and the block ran once. Run it without a graph, "
              "and again in backward().", sure=True),
        Wrong("no-way-back", no_way_back,
              "The output has no graph, whether or not the inputs need a gradient, so nothing "
              "flows back. A torch.autograd.Function lets you give it a backward() of your "
              "own.", sure=True),
        Wrong("inputs-alone", inputs_alone,
              "When the inputs need no gradient, as in the first block, the output has no graph, "
              "and the block's weights get no gradient. Pass the parameters to apply(), "
              "too.", sure=True),
        Wrong("inputs-without", inputs_without,
              "The weights have their gradients, but the inputs have none, so the block before "
              "this one would get nothing. Return one for the inputs, too.", sure=True),
        Wrong("inputs-without", inputs_detached),
        Wrong("mask-drawn-again", mask_drawn_again,
              "With dropout, the output comes from one mask and the gradients from another. Before "
              "the second run, set the random state to what it was before the first."),
        Wrong("random-rewound", random_rewound,
              "The gradients are right, but the next random number is one that was drawn before: "
              "backward() left the old random state behind. torch.random.fork_rng() restores the "
              "current one."),
        Wrong("seeded", seeded,
              "With dropout the output is already that of manual_seed(0), before backward(). Save "
              "the state as it is, torch.get_rng_state(), and set no seed."),
        Wrong("seeded-again", seeded_again,
              "With dropout the output is that of the same seed set again, so random numbers are "
              "repeated. Save the state as it is, torch.get_rng_state(), and set no seed."),
        Wrong("state-too-late", state_too_late,
              "With dropout the second run continued with the random state left by the first, and "
              "drew another mask. Save the state before the first run, and set it for the second."),
        Wrong("state-too-late", drawn_on),
        Wrong("no-mask-again", no_mask_again,
              "The output has a dropout mask, but the gradients have none: the second run was in "
              "eval mode. Run it in the same mode as the first, with the same random numbers."),
        Wrong("added-and-returned", added_and_returned,
              "A gradient that was there before counts twice: what was added to .grad in "
              "backward() was also returned, and so added again. Do only one of the two."),
        Wrong("doubled", doubled,
              "The weights' gradients are twice as long as they should be. Either return them from "
              "backward(), or let them be added to .grad inside it."),
        Wrong("overwritten", overwritten,
              "The gradients that were there before are gone. backward() adds to .grad.",
              sure=True),
        Wrong("weights-without", on_a_copy,
              "The inputs have their gradient, but the block's parameters got none. Did the second "
              "run use a copy, or were its gradients not returned?", sure=True),
        Wrong("slope-forgotten", slope_forgotten,
              "The gradients are those of the output's sum. backward() is given the gradient of "
              "the output: start from that."),
        Wrong("marks-the-inputs", marks_the_inputs,
              "Inputs that need no gradient got one. requires_grad_() changes the tensor that was "
              "passed in: call it on inputs.detach()."),
        Wrong("all-parameters", all_parameters,
              "The gradient of a tensor that requires none was asked for, e.g. of a frozen "
              "weight. Ask only for parameters whose requires_grad is True.",
              raises=r"^RuntimeError: One of the differentiated Tensors does not require grad",
              sure=True),
        Wrong("outputs-kept", outputs_kept,
              "The block ran again, and still more than its inputs was in memory until then: its "
              "outputs or activations, as saved tensors or as attributes of ctx. Keep the inputs, "
              "the parameters and the random state, and compute the rest again.", sure=True),
        Wrong("outputs-kept", outputs_noted, sure=True),
        Wrong("outputs-kept", activations_noted, sure=True),
        Wrong("put-back-at-once", put_back_at_once,
              "With dropout the next random number after recomputed() is one that its mask was "
              "made of: the old random state was put back after the first run. Leave the state as "
              "the first run leaves it, and restore it only after the second."),
        Wrong("in-eval-mode", in_eval_mode),
        Wrong("in-train-mode", in_train_mode),
        Wrong("state-on-the-block", state_on_the_block),
        Wrong("not-detached", not_detached,
              "backward() went through a graph that was already used. A saved input still belongs "
              "to the graph of the block before it: start the second run from "
              "inputs.detach().requires_grad_(), and return the gradient of that.",
              raises="^RuntimeError: Trying to backward through the graph a second time"),
        Wrong("twice-at-once", twice_at_once,
              "The block ran twice before backward(), and its activations were kept. The second "
              "run belongs in backward().", sure=True),
    ),
    right=(parameters_handed_over, with_a_dummy, by_hooks, with_functional_call, inputs_copied),
)  # fmt: skip
