"""03a.evaluate: mean loss and accuracy over a loader, with the model left as it came."""

from __future__ import annotations

import torch
from torch import nn

from autograde.bank.harness import (
    build_batches,
    draw_batches,
    draw_state,
    load_state,
    modes_of,
    state_of,
)
from autograde.exercise import (
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_number,
    seen,
)
from course.engine import evaluate as engine_evaluate

FEATURES, CLASSES = 4, 3
NORM = "1"
"""Name of the BatchNorm in the model."""


def _model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(FEATURES, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, CLASSES)
    )


def draw(source: Draw, part: str) -> Case:
    """Two full batches and a short one; the model in train or eval mode, or partly frozen."""
    size = source.integer(6, 9)
    state = draw_state(source, _model())
    batches = draw_batches(source, [size, size, source.integer(2, 3)], FEATURES, CLASSES)
    _make_accuracies_uneven(batches, state)
    modes = {"train": True, "frozen": False}
    if part == "mode" and source.index == 1:
        modes["train"] = False
    if part == "frozen":
        modes["frozen"] = True
    return {"state": state, "batches": batches, "modes": modes}


def _make_accuracies_uneven(batches, state) -> None:
    """Make the short batch all right, so that no mean of means is right by luck."""
    model = load_state(_model(), state, torch.device("cpu")).eval()
    with torch.no_grad():
        best = model(batches[-1]["inputs"]).argmax(dim=1)
        batches[-1]["targets"] = best
        first = model(batches[0]["inputs"]).argmax(dim=1)
        batches[0]["targets"][0] = (first[0] + 1) % CLASSES
        batches[0]["targets"][1] = first[1]


def run(function, case: Case, device: torch.device) -> Answer:
    """The returned numbers, and what the call left behind in the model."""
    model = load_state(_model(), case["state"], device).train(case["modes"]["train"])
    if case["modes"]["frozen"]:
        model.get_submodule(NORM).eval()
    graph = []
    model.register_forward_hook(lambda _module, _args, output: graph.append(output.requires_grad))
    batches = build_batches(case["batches"], device)
    returned = function(model, batches, nn.CrossEntropyLoss())
    if not isinstance(returned, dict) or not {"loss", "accuracy"} <= set(returned):
        raise AnswerError(
            "Return a dictionary with the keys 'loss' and 'accuracy'; " + seen(returned)
        )
    return {
        "loss": as_number(returned["loss"], "the mean loss"),
        "accuracy": as_number(returned["accuracy"], "the accuracy"),
        "state": state_of(model),
        "graph": any(graph),
        "grad_mode": torch.is_grad_enabled(),
        "requires_grad": {name: p.requires_grad for name, p in model.named_parameters()},
        "modes": modes_of(model),
    }


def reference(model, loader, criterion) -> dict[str, float]:
    """The engine's own."""
    return engine_evaluate(model, loader, criterion)


def _tally(model, loader, criterion, *, weigh=True) -> dict[str, float]:
    """Means over examples, or (`weigh=False`) over batches."""
    loss = correct = count = 0.0
    for inputs, targets in loader:
        logits = model(inputs)
        weight = len(targets) if weigh else 1
        loss += criterion(logits, targets).item() * weight
        correct += (logits.argmax(dim=1) == targets).float().mean().item() * weight
        count += weight
    return {"loss": loss / count, "accuracy": correct / count}


def _restoring(model, measure):
    """Evaluate with `measure`, every module's mode given back."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    with torch.no_grad():
        result = measure()
    for module, training in modes:
        module.training = training
    return result


def batch_means(model, loader, criterion):
    return _restoring(model, lambda: _tally(model, loader, criterion, weigh=False))


def no_eval_mode(model, loader, criterion):
    with torch.no_grad():
        return _tally(model, loader, criterion)


def graph_kept(model, loader, criterion):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    result = _tally(model, loader, criterion)
    for module, training in modes:
        module.training = training
    return result


def grad_mode_left_off(model, loader, criterion):
    torch.set_grad_enabled(False)
    return weighted_means(model, loader, criterion)


def parameters_left_frozen(model, loader, criterion):
    model.requires_grad_(False)
    return weighted_means(model, loader, criterion)


def left_in_eval(model, loader, criterion):
    model.eval()
    with torch.no_grad():
        return _tally(model, loader, criterion)


def always_train_after(model, loader, criterion):
    result = left_in_eval(model, loader, criterion)
    model.train()
    return result


def top_flag_only(model, loader, criterion):
    was_training = model.training
    result = left_in_eval(model, loader, criterion)
    model.train(was_training)
    return result


def last_batch_only(model, loader, criterion):
    return _restoring(model, lambda: _tally(model, loader[-1:], criterion))


def first_batch_only(model, loader, criterion):
    return _restoring(model, lambda: _tally(model, loader[:1], criterion))


def in_percent(model, loader, criterion):
    right = weighted_means(model, loader, criterion)
    return {"loss": right["loss"], "accuracy": 100 * right["accuracy"]}


def floor_division(model, loader, criterion):
    right = weighted_means(model, loader, criterion)
    return {"loss": right["loss"], "accuracy": right["accuracy"] // 1}  # all right, or 0


def not_divided(model, loader, criterion):
    def measure():
        means = _tally(model, loader, criterion)
        count = sum(len(targets) for _, targets in loader)
        return {name: value * count for name, value in means.items()}

    return _restoring(model, measure)


def divided_by_batches(model, loader, criterion):
    def measure():
        means = _tally(model, loader, criterion)
        count = sum(len(targets) for _, targets in loader) / len(loader)
        return {name: value * count for name, value in means.items()}

    return _restoring(model, measure)


def weighted_means(model, loader, criterion):
    return _restoring(model, lambda: _tally(model, loader, criterion))


def all_logits_at_once(model, loader, criterion):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    with torch.inference_mode():
        logits = torch.cat([model(inputs) for inputs, _ in loader])
        targets = torch.cat([targets for _, targets in loader])
        result = {
            "loss": criterion(logits, targets).item(),
            "accuracy": (logits.argmax(-1) == targets).double().mean().item(),
        }
    for module, mode in modes.items():
        module.train(mode) if not list(module.children()) else setattr(module, "training", mode)
    return result


@torch.no_grad()
def tensors_until_the_end(model, loader, criterion):
    training = [module for module in model.modules() if module.training]
    model.eval()
    loss, correct, count = torch.tensor(0.0), torch.tensor(0), 0
    for inputs, targets in loader:
        logits = model(inputs)
        loss = loss.to(logits.device) + criterion(logits, targets) * targets.numel()
        correct = correct.to(logits.device) + logits.argmax(1).eq(targets).sum()
        count += targets.numel()
    for module in training:
        module.training = True
    return {"accuracy": correct / count, "loss": loss / count, "num_examples": count}


EXERCISE = Exercise(
    id="03a.evaluate",
    title="evaluate a model",
    source='Training-loop chapter, "Evaluation"; ledger C03, C05, N55, F24, F25, F127, X07',
    minutes=15,
    signature="evaluate(model, loader, criterion)",
    parts=(
        Part("numbers", "mean loss and accuracy", points=1, fields=("loss", "accuracy")),
        Part(
            "still",
            "nothing moves and no graph is built",
            points=1,
            fields=("state", "graph", "grad_mode", "requires_grad"),
        ),
        Part("mode", "the model comes back in its mode", points=1, fields=("modes",)),
        Part("frozen", "a frozen BatchNorm stays frozen", points=1, fields=("modes",), hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "loss": "the mean loss",
        "accuracy": "the accuracy",
        "state": "after evaluating,",
        "graph": "whether a graph was built",
        "grad_mode": "after evaluating, torch.is_grad_enabled()",
        "requires_grad": "after evaluating, requires_grad of",
        "modes": "after evaluating, train mode of",
    },
    by_hand=(engine_evaluate,),
    wrong=(
        Wrong(
            "batch-means",
            batch_means,
            "That is the mean of the batches' means, in which a short last batch counts as much "
            "as a full one. Multiply each by its number of examples, divide by all examples.",
        ),
        Wrong(
            "no-eval-mode",
            no_eval_mode,
            "Dropout was on and BatchNorm learned from validation data: call model.eval() first. "
            "no_grad() does not do that.",
        ),
        Wrong(
            "graph-kept",
            graph_kept,
            "A graph was built for a backward() that never comes. Put "
            "the loop under torch.no_grad(); eval() does not do that.",
        ),
        Wrong(
            "grad-mode-left-off",
            grad_mode_left_off,
            "No graph was built, and none ever will be: set_grad_enabled(False) holds for all code "
            "after it, training too. `with torch.no_grad():` ends with its block.",
        ),
        Wrong(
            "parameters-left-frozen",
            parameters_left_frozen,
            "The parameters no longer ask for gradients, so the next epoch trains nothing. "
            "`with torch.no_grad():` builds no graph and changes no parameter.",
        ),
        Wrong(
            "left-in-eval",
            left_in_eval,
            "The model stays in eval mode, so the next epoch trains without dropout. Remember the "
            "mode it came in and give it back.",
        ),
        Wrong(
            "always-train-after",
            always_train_after,
            "The model always leaves in train mode, also when it came in eval. Remember the mode "
            "it came in instead.",
        ),
        Wrong(
            "top-flag-only",
            top_flag_only,
            "model.train(flag) sets every module, so a BatchNorm that was frozen in eval mode is "
            "thawed. Remember module.training for each of model.modules().",
        ),
        Wrong(
            "last-batch-only",
            last_batch_only,
            "Those are the last batch's numbers. Add up over the loop, divide after it.",
        ),
        Wrong(
            "first-batch-only",
            first_batch_only,
            "Those are the first batch's numbers: `return` stands inside the loop and ends it. Put "
            "it after the loop.",
        ),
        Wrong(
            "in-percent",
            in_percent,
            "That is the accuracy in percent. Give the share, between 0 and 1.",
        ),
        Wrong(
            "floor-division",
            floor_division,
            "The accuracy was rounded down to 0: // gives whole numbers. Divide with /.",
        ),
        Wrong(
            "not-divided",
            not_divided,
            "Those are sums over the examples. Divide them by the number of examples.",
        ),
        Wrong(
            "divided-by-batches",
            divided_by_batches,
            "Sums over examples were divided by the number of batches. What was multiplied by "
            "len(targets) must be divided by the number of examples.",
        ),
    ),
    right=(weighted_means, all_logits_at_once, tensors_until_the_end),
)
