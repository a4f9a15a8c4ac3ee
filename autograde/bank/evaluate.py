"""03a.evaluate: mean loss and accuracy over a loader, with the model left as it came."""

from __future__ import annotations

import copy

import torch
from torch import nn

from autograde.bank.common_wrong import MEASURES, common
from autograde.bank.harness import Graphs, Training, build_model, draw_training, modules_in
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_number, kept_entries
from course.engine import evaluate as engine_evaluate


def draw(source: Draw, part: str) -> Case:
    """Full batches and a short one; the model in train or eval mode, or partly frozen.

    The third case of `mode` is partly frozen, too, as the statement says.
    """
    size = source.integer(4, 8)
    case = draw_training(
        source,
        [size, size, source.integer(2, 3)],  # BatchNorm takes no batch of one in train mode
        vary=part == "numbers",
        norm=True,
        dropout=True,
        stale=True,
        held=part == "still",
        loader="DataLoader" if source.index == 1 else "list",
    )
    _make_accuracies_uneven(case)
    train = not (part == "mode" and source.index % 2)
    frozen = part == "frozen" or (part == "mode" and source.index == 2)
    off = part == "still" and source.index == 1
    return {**case, "train": train, "frozen": frozen, "no_grad": off}


def _make_accuracies_uneven(case: Case) -> None:
    """Make the short batch all right, so that no mean of means is right by luck."""
    model = build_model(case).eval()
    model.load_state_dict(case["state"])
    first, *_, last = case["batches"]
    with torch.no_grad():
        last["targets"] = model(last["inputs"]).argmax(dim=1)
        best = model(first["inputs"]).argmax(dim=1)
    first["targets"][0] = (best[0] + 1) % case["layers"][-1]
    first["targets"][1] = best[1]


def run(function, case: Case, device: torch.device) -> Answer:
    """The returned numbers, and what the call left behind."""
    t = Training(case, device, train=case["train"])
    if case["frozen"]:
        next(m for m in t.model.modules() if isinstance(m, nn.BatchNorm1d)).eval()
    with torch.set_grad_enabled(not case["no_grad"]), Graphs() as graphs:
        t.remember()
        returned = function(t.model, t.loader, t.criterion)
        disturbed = t.changed(frozenset({"modes"}))
    built = any(has_graph for _, has_graph in t.forwards)
    wanted = {"loss": (as_number, "the mean loss"), "accuracy": (as_number, "the accuracy")}
    return {
        **kept_entries(returned, wanted),
        "seen": "called on every example" if t.all_seen() else "not called on every example",
        "in_train": _modes_met(t.in_train),
        "graph": "with a graph" if graphs.most or built else "without a graph",
        "disturbed": disturbed,
        "modes": {
            f"module {name}" if name else "the model": "train" if m.training else "eval"
            for name, m in modules_in(t.model)
        },
    }


def _modes_met(in_train: list[bool]) -> str:
    """The modes of the modules, from whether each batch met one in train mode."""
    if not any(in_train):
        return "eval"
    return f"train for at least one module{'' if all(in_train) else ', at some batches'}"


def reference(model, loader, criterion) -> dict[str, float]:
    """The engine's own."""
    return engine_evaluate(model, loader, criterion)


def _tally(model, loader, criterion) -> dict[str, float]:
    loss = correct = count = 0.0
    for inputs, targets in loader:
        logits = model(inputs)
        loss += criterion(logits, targets).item() * len(targets)
        correct += (logits.argmax(dim=1) == targets).sum().item()
        count += len(targets)
    return {"loss": loss / count, "accuracy": correct / count}


def graph_kept(model, loader, criterion):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    result = _tally(model, loader, criterion)
    for module, training in modes:
        module.training = training
    return result


def eval_forgotten(model, loader, criterion):
    with torch.no_grad():
        return _tally(model, loader, criterion)


def means_over_examples(model, loader, criterion):
    sizes = sum(len(targets) for _, targets in loader) / len(loader)
    right = weighted_means(model, loader, criterion)
    means = [weighted_means(model, [batch], criterion)["loss"] for batch in loader]
    return {**right, "loss": sum(means) / (sizes * len(loader))}


def grad_mode_left_off(model, loader, criterion):
    torch.set_grad_enabled(False)
    return weighted_means(model, loader, criterion)


def grad_mode_left_on(model, loader, criterion):
    torch.set_grad_enabled(False)
    result = weighted_means(model, loader, criterion)
    torch.set_grad_enabled(True)
    return result


def thaws_what_was_frozen(model, loader, criterion):
    model.requires_grad_(False)
    result = weighted_means(model, loader, criterion)
    model.requires_grad_(True)
    return result


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


def modes_of_the_children(model, loader, criterion):
    children = [(child, child.training) for child in (model, *model.children())]
    result = left_in_eval(model, loader, criterion)
    for child, training in children:
        child.train(training)
    return result


def in_percent(model, loader, criterion):
    right = weighted_means(model, loader, criterion)
    return {"loss": right["loss"], "accuracy": 100 * right["accuracy"]}


def floor_division(model, loader, criterion):
    right = weighted_means(model, loader, criterion)
    return {"loss": right["loss"], "accuracy": right["accuracy"] // 1}  # all right, or 0


def not_divided(model, loader, criterion):
    count = sum(len(targets) for _, targets in loader)
    return {key: n * count for key, n in weighted_means(model, loader, criterion).items()}


def divided_by_batches(model, loader, criterion):
    count = sum(len(targets) for _, targets in loader) / len(loader)
    return {key: n * count for key, n in weighted_means(model, loader, criterion).items()}


def _with(**spoiled):
    """A right answer but for one entry, made of the right one and the loader."""

    def evaluate(model, loader, criterion):
        right = weighted_means(model, loader, criterion)
        return right | {key: spoil(right[key], loader) for key, spoil in spoiled.items()}

    return evaluate


def _examples(loader):
    return sum(len(targets) for _, targets in loader)


def _by_full_batches(value, loader):
    return value * _examples(loader) / (len(loader) * len(next(iter(loader))[1]))


accuracy_not_divided = _with(accuracy=lambda value, loader: value * _examples(loader))
loss_not_divided = _with(loss=lambda value, loader: value * _examples(loader))
accuracy_by_batches = _with(accuracy=lambda v, loader: v * _examples(loader) / len(loader))
loss_by_batches = _with(loss=lambda v, loader: v * _examples(loader) / len(loader))
error_rate = _with(accuracy=lambda value, _: 1 - value)
as_if_all_were_full = _with(accuracy=_by_full_batches, loss=_by_full_batches)
asks_for_its_data_set = _with(loss=lambda value, loader: value * len(loader.dataset))
asks_for_its_batch_size = _with(loss=lambda value, loader: value * loader.batch_size)


def last_of(key):
    """A right answer but for one entry, which is set in the loop where it should be added to."""

    def evaluate(model, loader, criterion):
        batches = list(loader)
        last = weighted_means(model, batches[-1:], criterion)[key]
        share = len(batches[-1][1]) / _examples(batches)
        return weighted_means(model, batches, criterion) | {key: last * share}

    return evaluate


accuracy_set, loss_set = map(last_of, ("accuracy", "loss"))


def accuracies_over_examples(model, loader, criterion):
    batches = list(loader)
    shares = [weighted_means(model, [batch], criterion)["accuracy"] for batch in batches]
    right = weighted_means(model, batches, criterion)
    return right | {"accuracy": sum(shares) / _examples(batches)}


def softmax_first(model, loader, criterion):
    return weighted_means(model, loader, lambda z, y: criterion(z.softmax(dim=1), y))


def train_mode_again(model, loader, criterion):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()

    def batches():
        for batch in loader:
            yield batch
            model.train()

    with torch.no_grad():
        result = _tally(model, batches(), criterion)
    for module, training in modes:
        module.training = training
    return result


def weighted_means(model, loader, criterion):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    with torch.no_grad():
        result = _tally(model, loader, criterion)
    for module, training in modes:
        module.training = training
    return result


def mean_of_batches_in(key):
    """A right answer but for one entry, which is a mean over batches."""

    def evaluate(model, loader, criterion):
        batches = list(loader)
        each = [weighted_means(model, [batch], criterion)[key] for batch in batches]
        return {**weighted_means(model, batches, criterion), key: sum(each) / len(each)}

    return evaluate


accuracy_of_batches, loss_of_batches = map(mean_of_batches_in, ("accuracy", "loss"))


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


def on_a_copy(model, loader, criterion):
    twin = copy.deepcopy(model).eval()
    with torch.inference_mode():
        return _tally(twin, loader, criterion)


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
    source='Training-loop chapter, "Evaluation"',
    ledger=("C03", "C05", "N55", "F24", "F25", "F127", "X07"),
    minutes=15,
    difficulty=2,
    read=("course.engine.evaluate", "N55", "F24", "F25"),
    hints=(
        "Ask yourself two things: what do the layers do while you measure, and what is different "
        "about the model afterwards?",
        "model.eval() and torch.no_grad() are two switches, and each module has its own flag, "
        "module.training.",
        "Remember [(m, m.training) for m in model.modules()], call model.eval(), sum loss * "
        "len(targets) and the number of correct predictions under torch.no_grad(), then set each "
        "m.training back.",
    ),
    signature="evaluate(model, loader, criterion)",
    parts=(
        Part(
            "numbers",
            "mean loss and accuracy, with any criterion",
            points=1,
            cases=3,
            fields=("in_train", "loss", "accuracy"),
        ),
        Part(
            "still",
            "no graph is built; weights, gradients and data stay the same",
            points=1,
            fields=("graph", "disturbed", "seen"),
        ),
        Part(
            "mode",
            "each module is left in the mode it arrived in",
            points=1,
            cases=4,
            fields=("modes", "seen"),
        ),
        Part(
            "frozen",
            "a frozen BatchNorm stays frozen",
            points=1,
            fields=("modes", "seen"),
            hidden=True,
        ),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "loss": "the mean loss",
        "accuracy": "the accuracy",
        "in_train": "the modules' mode during the forward passes",
        "graph": "a forward pass",
        "modes": "after evaluating, the mode of",
        "seen": "the model",
    },
    by_hand=(engine_evaluate,),
    wrong=(
        Wrong(
            "graph-kept",
            graph_kept,
            "Every forward pass built a graph that is never used. Put the loop under "
            "torch.no_grad(); eval() does not do that.",
            sure=True,
        ),
        Wrong(
            "eval-forgotten",
            eval_forgotten,
            "The batches went through the model in train mode: dropout was on, and BatchNorm used "
            "each batch's own statistics and updated its running ones. Call model.eval() first.",
        ),
        Wrong(
            "means-over-examples",
            means_over_examples,
            "The batch means were added up and divided by the number of examples. Multiply each "
            "batch's mean by its size first.",
        ),
        Wrong("grad-mode-left-off", grad_mode_left_off),
        Wrong(
            "grad-mode-left-on",
            grad_mode_left_on,
            "torch's grad mode was off before the call and is on after it. `with torch.no_grad():` "
            "restores it to what it was.",
            sure=True,
        ),
        Wrong(
            "thaws-what-was-frozen",
            thaws_what_was_frozen,
            "A parameter arrived with requires_grad False and now has True. torch.no_grad() "
            "prevents a graph without touching any parameter.",
            sure=True,
        ),
        Wrong(
            "left-in-eval",
            left_in_eval,
            "The model was left in eval mode, so the next epoch would train without dropout. "
            "Remember the mode it arrived in and restore it.",
        ),
        Wrong(
            "always-train-after",
            always_train_after,
            "The model is always left in train mode, even when it arrived in eval mode. Remember "
            "the mode it arrived in, and restore it.",
        ),
        Wrong(
            "top-flag-only",
            top_flag_only,
            "model.train(flag) sets every module, so a BatchNorm that was frozen in eval mode is "
            "thawed. Remember module.training for each of model.modules().",
        ),
        Wrong("top-flag-only", modes_of_the_children),
        Wrong(
            "in-percent",
            in_percent,
            "That is the accuracy in percent. Return the fraction, between 0 and 1.",
        ),
        Wrong(
            "accuracy-of-batches",
            accuracy_of_batches,
            "The loss is over all examples, the accuracy a mean over batches, in which a short one "
            "counts as much as the others. Count the correct predictions, and divide by the number "
            "of examples.",
        ),
        Wrong(
            "loss-of-batches",
            loss_of_batches,
            "The accuracy is over all examples, the loss a mean over batches, in which a short one "
            "counts as much as the others. Multiply each batch's loss by len(targets) first.",
        ),
        Wrong("floor-division", floor_division),
        Wrong(
            "accuracy-set",
            accuracy_set,
            "Only the last batch's correct predictions were counted, and divided by the number of "
            "all examples. Add up over the loop: +=, not =.",
        ),
        Wrong(
            "loss-set",
            loss_set,
            "Only the last batch's loss was counted, and divided by the number of all examples. "
            "Add up over the loop: +=, not =.",
        ),
        Wrong(
            "accuracy-not-divided",
            accuracy_not_divided,
            "That is the number of correct predictions. Divide it by the number of examples.",
        ),
        Wrong(
            "loss-not-divided",
            loss_not_divided,
            "The loss is a sum over the examples. Divide it by their number.",
        ),
        Wrong(
            "accuracy-by-batches",
            accuracy_by_batches,
            "The number of correct predictions was divided by the number of batches. Divide it by "
            "the number of examples.",
        ),
        Wrong(
            "loss-by-batches",
            loss_by_batches,
            "The loss, a sum over the examples, was divided by the number of batches. Divide it by "
            "the number of examples.",
        ),
        Wrong(
            "accuracies-over-examples",
            accuracies_over_examples,
            "The accuracies of the batches were added up and divided by the number of examples. "
            "Add up the correct predictions themselves: sum(), not mean().",
        ),
        Wrong(
            "error-rate",
            error_rate,
            "That is the fraction of wrong predictions. Return that of the correct ones.",
        ),
        Wrong(
            "as-if-all-were-full",
            as_if_all_were_full,
            "The sums over the examples were divided as if every batch were as long as the first. "
            "The last is shorter: add up len(targets) in the loop.",
        ),
        Wrong(
            "asks-the-list",
            asks_for_its_data_set,
            "The loader was a plain list, which lacks the attributes of a DataLoader. Count the "
            "examples in the loop: num_examples += len(targets).",
            raises="^AttributeError: 'list' object has no attribute '(dataset|batch_size)'",
        ),
        Wrong(
            "asks-the-list",
            asks_for_its_batch_size,
            raises="^AttributeError: 'list' object has no attribute '(dataset|batch_size)'",
        ),
        Wrong(
            "softmax-first",
            softmax_first,
            "The criterion was given softmax(logits). cross_entropy applies softmax itself, and "
            "another criterion may expect logits too: pass it the model's output as it is.",
        ),
        Wrong(
            "train-mode-again",
            train_mode_again,
            "The first batch went through the model in eval mode, later ones in train mode. Put "
            "the modes back after the loop, not in it.",
        ),
        Wrong(
            "not-divided",
            not_divided,
            "Those are sums over the examples. Divide them by the number of examples.",
        ),
        Wrong(
            "divided-by-batches",
            divided_by_batches,
            "Sums over examples were divided by the number of batches. If each batch's mean is "
            "multiplied by len(targets), divide by the number of examples.",
        ),
        *common(
            weighted_means,
            *MEASURES,
            *("own-criterion", "batch-means", "sum-of-means"),
            *("first-batch-only", "last-batch-only", "last-batch-missing", "first-batch-missing"),
        ),
    ),
    right=(weighted_means, all_logits_at_once, tensors_until_the_end, on_a_copy),
)
