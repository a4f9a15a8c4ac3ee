"""03a.accumulate: one update from micro-batches, the same as from one joined batch."""

from __future__ import annotations

import torch

from autograde.bank.common_wrong import TRAINS, common
from autograde.bank.harness import (
    TRAINED,
    Graphs,
    Training,
    build_criterion,
    build_model,
    draw_training,
)
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number, kept
from course.engine import train_one_epoch, train_step


def draw(source: Draw, part: str) -> Case:
    """Micro-batches as the part asks for, one more of them in the second case."""
    size = source.integer(3, 5)
    more = [size] * source.index
    sizes = {
        "equal": [size, size, *more[:2]],
        "short": [size, *more, source.integer(1, 2)],
        "stale": [size, size],
        "loss": [size, *more, source.integer(1, 2)],
        "memory": [size, size, size],
        "many": [source.integer(1, 6), 1, source.integer(2, 6), 7],
    }[part]
    case = draw_training(source, sizes, vary=part == "equal", stale=part == "stale")
    groups = part == "stale" and source.index == 1  # only the second of the two has a gradient
    if groups:
        case["stale"] = [None, None, *case["stale"][2:]]
    return {**case, "optimizer": "groups"} if groups else case


MANY = 2.5
"""Times what one graph needs: two at once do no harm before the next."""


def run(function, case: Case, device: torch.device) -> Answer:
    """Weights after the call, the returned loss, and the sizes of the batches the model saw.

    `piled_up` tells whether autograd ever kept more than the graphs of two micro-batches, waiting
    for their backward(), or kept by one that retains them.
    """
    one = _graph_of_one(case)
    t = Training(case, device)
    with Graphs() as graphs:
        returned = function(t.model, t.batches, t.criterion, t.optimizer)
    held = "two or more" if graphs.most > MANY * one else "one at most"
    counted = graphs.most or graphs.in_torch_func
    if any(has_graph for _, has_graph in t.forwards) and not counted:
        held = "not known, as autograd was asked to keep them in another way"
    return {
        "weights": t.state(),
        "disturbed": t.changed(TRAINED - {"modes"}),
        "loss": kept(as_number, returned, "the mean loss of all examples"),
        "sizes": sorted(size for size, _ in t.forwards),
        "piled_up": held,
        "moved": "different from before" if t.moved() else "the same as before",
    }


def _graph_of_one(case: Case) -> int:
    """What autograd keeps for the largest micro-batch, in elements."""
    model = build_model(case)
    criterion = build_criterion(case, torch.device("cpu"), torch.get_default_dtype())
    largest = max(case["batches"], key=lambda batch: len(batch["targets"]))
    with Graphs() as graphs:
        criterion(model(largest["inputs"]), largest["targets"])
    return graphs.most


def reference(model, micro_batches, criterion, optimizer) -> float:
    """The engine's own step."""
    return train_step(model, micro_batches, criterion, optimizer).loss


def _share(micro_batches):
    num_examples = sum(len(targets) for _, targets in micro_batches)
    return lambda targets: len(targets) / num_examples


def _by_share(targets, micro_batches):
    return _share(micro_batches)(targets)


def _in_full(_targets, _micro_batches):
    return 1.0


def _updating(scale=_by_share, *, clear="before", step="after"):
    """The right mean loss with another update: what is wrong with the weights shows in them alone.

    Args:
        scale: The factor on a micro-batch's loss, from its targets and all micro-batches.
        clear: Where zero_grad() stands: before the loop, inside it, or nowhere.
        step: Where step() stands: after the loop, inside it, or nowhere.
    """

    def update(model, micro_batches, criterion, optimizer) -> float:
        share, total = _share(micro_batches), 0.0
        if clear == "before":
            optimizer.zero_grad()
        for inputs, targets in micro_batches:
            if clear == "inside":
                optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            (loss * scale(targets, micro_batches)).backward()
            if step == "inside":
                optimizer.step()
            total += loss.item() * share(targets)
        if step == "after":
            optimizer.step()
        return total

    return update


def _first_size(targets, micro_batches):
    return len(targets) / (len(micro_batches) * len(micro_batches[0][1]))


def _largest_size(targets, micro_batches):
    return len(targets) / (len(micro_batches) * max(len(y) for _, y in micro_batches))


not_divided = _updating(_in_full)
divided_by_k = _updating(lambda _, micro_batches: 1 / len(micro_batches))
divided_by_all = _updating(
    lambda _, micro_batches: 1 / sum(len(targets) for _, targets in micro_batches)
)
summed_over_examples = _updating(lambda targets, _: len(targets))
weighed_by_first_size = _updating(_first_size)
weighed_by_largest_size = _updating(_largest_size)
cleared_inside = _updating(clear="inside")
stepped_inside = _updating(_in_full, clear="inside", step="inside")
stepped_inside_by_share = _updating(clear="inside", step="inside")
stepped_inside_adding_up = _updating(step="inside")
stepped_inside_in_full = _updating(_in_full, step="inside")
never_stepped = _updating(step="")
not_cleared = _updating(clear="")


def _scaling_grads(scale):
    """Scales all of .grad after every micro-batch, by `scale(targets, micro_batches)`."""

    def wrong(model, micro_batches, criterion, optimizer):
        share, total = _share(micro_batches), 0.0
        optimizer.zero_grad()
        for inputs, targets in micro_batches:
            loss = criterion(model(inputs), targets)
            loss.backward()
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad *= scale(targets, micro_batches)
            total += loss.item() * share(targets)
        optimizer.step()
        return total

    return wrong


def first_group_cleared(model, micro_batches, criterion, optimizer):
    for parameter in optimizer.param_groups[0]["params"]:
        parameter.grad = None
    return not_cleared(model, micro_batches, criterion, optimizer)


def graphs_retained(model, micro_batches, criterion, optimizer):
    share, losses = _share(micro_batches), []
    optimizer.zero_grad()
    for inputs, targets in micro_batches:
        loss = criterion(model(inputs), targets) * share(targets)
        loss.backward(retain_graph=True)
        losses.append(loss)
    optimizer.step()
    return sum(losses).item()


def graphs_retained_and_dropped(model, micro_batches, criterion, optimizer):
    """Each graph is retained for nothing, and goes when its loss does."""
    share = _share(micro_batches)

    def learn(batch):
        outputs = model(batch[0])
        part = criterion(outputs, batch[1]).mul(share(batch[1]))
        torch.autograd.backward(part, retain_graph=True)
        return float(part)

    optimizer.zero_grad()
    values = [learn(batch) for batch in micro_batches]
    optimizer.step()
    return sum(values)


def eval_mode(model, micro_batches, criterion, optimizer):
    model.eval()
    return weighted_losses(model, micro_batches, criterion, optimizer)


def empties_the_list(model, micro_batches, criterion, optimizer):
    result = weighted_losses(model, list(micro_batches), criterion, optimizer)
    micro_batches.clear()
    return result


def without_hooks(model, micro_batches, criterion, optimizer):
    """All graphs at once, while the model has none of the hooks that would tell."""
    share, held = _share(micro_batches), (model._forward_pre_hooks, model._forward_hooks)
    before = [dict(hooks) for hooks in held]
    model._forward_pre_hooks.clear()
    for key in list(model._forward_hooks)[1:]:
        del model._forward_hooks[key]
    optimizer.zero_grad()
    losses = [
        criterion(model(inputs), targets) * share(targets) for inputs, targets in micro_batches
    ]
    sum(losses).backward()
    optimizer.step()
    for hooks, was in zip(held, before, strict=True):
        hooks.update(was)
    return sum(losses).item()


def joined(model, micro_batches, criterion, optimizer):
    inputs, targets = (torch.cat(parts) for parts in zip(*micro_batches, strict=True))
    optimizer.zero_grad()
    loss = criterion(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


def one_backward(model, micro_batches, criterion, optimizer):
    optimizer.zero_grad()
    share = _share(micro_batches)
    loss = sum(criterion(model(x), y) * share(y) for x, y in micro_batches)
    loss.backward()
    optimizer.step()
    return loss.item()


def _returning(what):
    """The right update; `what(losses, shares)` is returned."""

    def wrong(model, micro_batches, criterion, optimizer):
        share, losses = _share(micro_batches), []
        optimizer.zero_grad()
        for inputs, targets in micro_batches:
            loss = criterion(model(inputs), targets)
            (loss * share(targets)).backward()
            losses.append(loss.item())
        optimizer.step()
        return what(losses, [share(targets) for _, targets in micro_batches])

    return wrong


def weighted_losses(model, micro_batches, criterion, optimizer):
    share, total = _share(micro_batches), 0.0
    optimizer.zero_grad()
    for inputs, targets in micro_batches:
        loss = criterion(model(inputs), targets) * share(targets)
        loss.backward()
        total += loss.item()
    optimizer.step()
    return total


def sums_then_scaled_gradients(model, micro_batches, criterion, optimizer):
    num_examples, total = 0, 0.0
    optimizer.zero_grad(set_to_none=False)
    for inputs, targets in micro_batches:
        loss = criterion(model(inputs), targets) * len(targets)
        loss.backward()
        num_examples += len(targets)
        total = total + loss.detach()
    for parameter in model.parameters():
        parameter.grad /= num_examples
    optimizer.step()
    return total / num_examples


def gradients_added_by_hand(model, micro_batches, criterion, optimizer):
    parameters = list(model.parameters())
    sums = [torch.zeros_like(parameter) for parameter in parameters]
    sizes = [targets.shape[0] for _, targets in micro_batches]
    losses = []
    for (inputs, targets), size in zip(micro_batches, sizes, strict=True):
        loss = criterion(model(inputs), targets)
        for total, grad in zip(sums, torch.autograd.grad(loss, parameters), strict=True):
            total.add_(grad, alpha=size / sum(sizes))
        losses.append(float(loss) * size)
    for parameter, grad in zip(parameters, sums, strict=True):
        parameter.grad = grad
    optimizer.step()
    optimizer.zero_grad()
    return sum(losses) / sum(sizes)


def _of_the_shares(spoil):
    """The right update; `spoil(the right mean, micro_batches)` is returned."""

    def wrong(model, micro_batches, criterion, optimizer):
        return spoil(weighted_losses(model, micro_batches, criterion, optimizer), micro_batches)

    return wrong


EXERCISE = Exercise(
    id="03a.accumulate",
    title="accumulate gradients over micro-batches",
    source='Lecture 3, "Simulating a big batch"',
    ledger=("X05", "C06", "N19", "F43"),
    minutes=15,
    difficulty=2,
    read=("course.engine.train_step", "N19", "F43"),
    hints=(
        "backward() adds to .grad. What has to be done once per update, and what once per "
        "micro-batch?",
        "A mean over all examples is a weighted mean of the micro-batches' means. What is "
        "the weight of a short one?",
        "Count all examples first. In the loop: loss = criterion(model(inputs), targets) "
        "* len(targets) / num_examples, loss.backward(), total += loss.item(). "
        "zero_grad() before the loop, step() after it.",
    ),
    signature="accumulate(model, micro_batches, criterion, optimizer)",
    parts=(
        Part(
            "equal",
            "the update from equal micro-batches, with any criterion and optimizer",
            points=1,
            cases=3,
            fields=("weights", "disturbed"),
        ),
        Part(
            "short", "the update with a shorter last micro-batch", points=0.5, fields=("weights",)
        ),
        Part("stale", "gradients left over from an earlier step", points=0.5, fields=("weights",)),
        Part("loss", "the mean loss of all examples", points=0.5, cases=3, fields=("loss",)),
        Part(
            "memory",
            "one micro-batch at a time, and its graph",
            points=0.5,
            fields=("sizes", "piled_up", "moved"),
        ),
        Part("many", "micro-batches of any sizes", points=1, fields=("weights",), hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "weights": "after the step",
        "loss": "the returned loss",
        "sizes": "the sizes of the batches that the model was called on",
        "piled_up": "the number of earlier graphs still held when a micro-batch goes through",
        "moved": "after the call, the weights",
    },
    by_hand=(train_step, train_one_epoch),
    wrong=(
        Wrong(
            "not-divided",
            not_divided,
            "The weights moved as if each loss counted in full: with K equal micro-batches the "
            "gradient is K times too long. Multiply each loss by its share of the examples before "
            "backward().",
        ),
        Wrong(
            "divided-by-k",
            divided_by_k,
            "Dividing by K makes a short micro-batch count as much as a full one. Weight each loss "
            "by its share of the examples: len(targets) / num_examples.",
        ),
        Wrong(
            "summed-over-examples",
            summed_over_examples,
            "The weights moved by the sum over the examples, not by their mean. Divide by the "
            "number of all examples before step().",
        ),
        Wrong(
            "weighed-by-first-size",
            weighed_by_first_size,
            "The gradient was divided by K times the size of one micro-batch, the first or the "
            "largest. Count the examples of all micro-batches instead.",
        ),
        Wrong("weighed-by-first-size", weighed_by_largest_size),
        Wrong(
            "gradients-scaled-inside",
            _scaling_grads(_by_share),
            ".grad was scaled after every micro-batch, and holds the sum so far: the first "
            "gradients were scaled again each time. Scale each loss before backward(), or .grad "
            "once, after the loop.",
        ),
        Wrong("gradients-scaled-inside", _scaling_grads(lambda _, batches: 1 / len(batches))),
        Wrong(
            "cleared-inside",
            cleared_inside,
            "The weights moved by the last micro-batch's gradient alone. zero_grad() inside the "
            "loop erases the others: call it once, before the loop.",
        ),
        Wrong(
            "stepped-inside",
            stepped_inside,
            "That makes one update per micro-batch. Let the gradients add up in the loop and call "
            "optimizer.step() once, after it.",
        ),
        Wrong("stepped-inside", stepped_inside_by_share),
        Wrong("stepped-inside", stepped_inside_adding_up),
        Wrong("stepped-inside", stepped_inside_in_full),
        Wrong(
            "never-stepped",
            never_stepped,
            "No weight moved: is there a backward() for each micro-batch, and one "
            "optimizer.step() after them?",
        ),
        Wrong(
            "not-cleared",
            not_cleared,
            "Gradients of an earlier step are mixed in: backward() adds to .grad. Call "
            "optimizer.zero_grad() before the first micro-batch.",
        ),
        Wrong(
            "joined",
            joined,
            "The model was called on the big batch, which does not fit in memory. Send each "
            "micro-batch through on its own.",
        ),
        Wrong(
            "one-backward",
            one_backward,
            "The graphs of several micro-batches were held at once, which takes as much memory as "
            "the big batch. Call backward() on each loss in the loop: it frees the graph, unless "
            "retain_graph=True.",
        ),
        Wrong("one-backward", graphs_retained),
        Wrong("one-backward", without_hooks),
        Wrong(
            "first-group-cleared",
            first_group_cleared,
            "Gradients of an earlier step are mixed in, in the second of the optimizer's groups. "
            "optimizer.zero_grad() clears all of them.",
            sure=True,
        ),
        Wrong("empties-the-list", empties_the_list),
        Wrong("eval-mode", eval_mode),
        Wrong(
            "divided-by-all",
            divided_by_all,
            "Each micro-batch's mean was divided by the number of all examples, without being "
            "multiplied by its own number. Its share is len(targets) / num_examples.",
        ),
        Wrong(
            "shares-weighed-again",
            _of_the_shares(lambda total, micro_batches: total / len(micro_batches)),
            "The update is right. But the losses that went into it are already shares of the mean, "
            "and were weighted or divided once more for the report. Add them up as they are.",
        ),
        Wrong(
            "shares-weighed-again",
            _of_the_shares(lambda total, batches: total / sum(len(y) for _, y in batches)),
        ),
        Wrong(
            "shares-weighed-again",
            _returning(
                lambda losses, shares: sum(a * b * b for a, b in zip(losses, shares, strict=True))
            ),
        ),
        Wrong(
            "mean-of-means",
            _returning(lambda losses, _: sum(losses) / len(losses)),
            "The returned loss is the mean of the micro-batches' means, in which a short one "
            "counts as much as a full one. Weight each by len(targets) / num_examples here, too.",
        ),
        Wrong(
            "last-loss",
            _returning(lambda losses, _: losses[-1]),
            "The returned loss is that of the last micro-batch alone. Add up the weighted losses.",
        ),
        Wrong(
            "last-share",
            _returning(lambda losses, shares: losses[-1] * shares[-1]),
            "The returned loss is only the last micro-batch's share of the mean. Add up the "
            "shares.",
        ),
        Wrong(
            "sum-of-losses",
            _returning(lambda losses, _: sum(losses)),
            "The returned loss is the sum of the micro-batches' means. Multiply each by its share "
            "of the examples first.",
        ),
        *common(
            weighted_losses,
            *TRAINS,
            *("returns-graph", "first-batch-only", "last-batch-missing", "first-batch-missing"),
            alike={"global-optimizer": "never-stepped"},
        ),
    ),
    right=(
        weighted_losses,
        sums_then_scaled_gradients,
        gradients_added_by_hand,
        graphs_retained_and_dropped,
    ),
)
