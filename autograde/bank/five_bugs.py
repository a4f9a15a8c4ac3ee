"""01c.five-bugs: a script with five bugs, three loud ones and two silent ones."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn

from autograde.bank.harness import Watch
from autograde.exercise import Answer, Case, Draw, Exercise, Part, Wrong, as_numbers, kept
from autograde.kinds.fix import change_size, variant

GIVEN = """
def debug_script(layers, train_batches, val_batches, lr, epochs):
    class Classifier(nn.Module):
        def __init__(self):
            self.layers = list(layers)

        def forward(self, inputs):
            for layer in self.layers:
                inputs = layer(inputs)
            return inputs

    model = Classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    criterion = nn.MSELoss()
    val_losses = []
    for _ in range(epochs):
        model.train()
        for inputs, targets in train_batches:
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
        total, num_examples = 0.0, 0
        for inputs, targets in val_batches:
            total += criterion(model(inputs), targets).item() * len(targets)
            num_examples += len(targets)
        val_losses.append(total / num_examples)
    return val_losses
"""
MOST = 12
"""Lines that may differ: the five bugs take six, and `no_grad()` four more, which is welcome."""


def draw(source: Draw, part: str) -> Case:
    """Layers' weights and batches; only what the part asks about can be wrong."""
    features, hidden, classes = source.integer(3, 5), source.integer(4, 6), source.integer(3, 4)

    def batch(size: int) -> list:
        return [source.normal(size, features), source.integers(classes, size)]

    return {
        "first": source.normal(hidden, features),
        "last": source.normal(classes, hidden),
        "train": [batch(source.integer(5, 8)) for _ in range(3)],
        "val": [batch(source.integer(6, 8)), batch(2)],
        "norm": part == "validation",
        "eval_at_first": source.index == 1,  # the layers' mode, which reaches no list
        "lr": 0.0 if part in ("criterion", "validation") else source.uniform(0.1, 0.3),
        "epochs": source.integer(2, 3),
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The weights, the report, and in which mode validation batches went through."""
    widths = [(w.shape[1], w.shape[0]) for w in (case["first"], case["last"])]
    first, last = (nn.Linear(*width, bias=False, device=device) for width in widths)
    first.weight.data.copy_(case["first"])
    last.weight.data.copy_(case["last"])
    norm = nn.BatchNorm1d(first.out_features, device=device) if case["norm"] else nn.Identity()
    train, val = ([(x.to(device), y.to(device)) for x, y in case[k]] for k in ("train", "val"))
    watch = Watch(data=[tensor for pair in (*train, *val) for tensor in pair])
    seen: list[tuple[bool, bool]] = []
    known = {x.data_ptr() for x, _ in val}
    first.register_forward_pre_hook(
        lambda module, args: seen.append((args[0].data_ptr() in known, module.training))
    )
    layers = [layer.train(not case["eval_at_first"]) for layer in (first, norm, nn.Tanh(), last)]
    losses = function(layers, train, val, case["lr"], case["epochs"])
    said = kept(as_numbers, losses, "val_losses", "the validation losses, one per epoch")
    return {
        "epochs": len(said) if isinstance(said, list) else said,
        "passes": [len(seen), sum(is_val for is_val, _ in seen)],
        "weights": [first.weight.detach().cpu(), last.weight.detach().cpu()],
        "losses": said,
        "training": [training for is_val, training in seen if not is_val],
        "val_training": [training for is_val, training in seen if is_val],
        "disturbed": watch.changed(),
        "changed": change_size(GIVEN, function, most=MOST),
    }


INIT, LIST = "        def __init__(self):\n", "            self.layers = list(layers)\n"
SUPER = "            super().__init__()\n"
CLEAR, BACKWARD = "            optimizer.zero_grad()\n", "            loss.backward()\n"
STEP = "            optimizer.step()\n"
TOTAL = "        total, num_examples = 0.0, 0\n"
EVAL, OFF = "        model.eval()\n", "        with torch.no_grad():\n"
LOOP = """        for inputs, targets in val_batches:
            total += criterion(model(inputs), targets).item() * len(targets)
            num_examples += len(targets)
"""
INSIDE = "".join(f"    {line}\n" for line in LOOP.splitlines())
FIXED = GIVEN
for old, new in (
    (INIT, INIT + SUPER),
    (LIST, LIST.replace("list(", "nn.ModuleList(")),
    ("MSELoss", "CrossEntropyLoss"),
    (BACKWARD, CLEAR + BACKWARD),
    (TOTAL + LOOP, EVAL + TOTAL + OFF + INSIDE),
):
    assert FIXED.count(old) == 1, old
    FIXED = FIXED.replace(old, new)

fixed = partial(variant, FIXED, __file__)
reference = fixed()
no_super = fixed((SUPER, ""))
plain_list = fixed(("nn.ModuleList(layers)", "list(layers)"))
still_mse = fixed(("CrossEntropyLoss", "MSELoss"))
one_hot_mse = fixed(
    ("criterion = nn.CrossEntropyLoss()", "criterion = lambda y, t: nn.functional.mse_loss("
     "y, nn.functional.one_hot(t, y.shape[1]).float())"),
)  # fmt: skip
softmax_twice = fixed(("            return inputs\n", "            return inputs.softmax(dim=1)\n"))
summed = fixed(("CrossEntropyLoss()", 'CrossEntropyLoss(reduction="sum")'))
never_cleared = fixed((CLEAR, ""))
cleared_per_epoch = fixed(
    (CLEAR, ""),
    ("        model.train()\n", "        model.train()\n        optimizer.zero_grad()\n"),
)
cleared_late = fixed((CLEAR, ""), (STEP, CLEAR + STEP))
no_eval = fixed((EVAL, ""))
with_graph = fixed(("no_grad()", "enable_grad()"))
neither = fixed((EVAL, ""), ("no_grad()", "enable_grad()"))
stays_in_eval = fixed(("        model.train()\n", ""))
train_once = fixed(
    ("        model.train()\n", ""),
    ("    for _ in range(epochs):\n", "    model.train()\n    for _ in range(epochs):\n"),
)
eval_for_good = fixed(("        model.train()\n", EVAL), (EVAL + TOTAL, TOTAL))
divided_by_batches = fixed(("num_examples += len(targets)", "num_examples += 1"))
nll_of_logits = fixed(("CrossEntropyLoss", "NLLLoss"))
sizes_forgotten = fixed((" * len(targets)", ""))
batch_means = fixed((" * len(targets)", ""), ("num_examples += len(targets)", "num_examples += 1"))
half_registered = fixed(
    (LIST.replace("list(", "nn.ModuleList("), "            self.layers = layers\n"
     "            self.head = layers[-1]\n"),
)  # fmt: skip
last_layer_only = fixed(("SGD(model.parameters()", "SGD(layers[-1].parameters()"))
list_and_parameters = fixed(
    (LIST.replace("list(", "nn.ModuleList("), LIST),
    ("model.parameters()", "[p for layer in layers for p in layer.parameters()]"),
)
copies = fixed(("nn.ModuleList(layers)", "nn.ModuleList(__import__('copy').deepcopy(layers))"))
one_epoch = fixed(("    return val_losses\n", "        return val_losses\n"))

in_a_sequence = fixed(
    (LIST.replace("list(", "nn.ModuleList("), "            self.layers = nn.Sequential(*layers)\n"),
    (CLEAR + BACKWARD + STEP, BACKWARD + STEP + CLEAR),
)
with_inference_mode = fixed(
    ("no_grad()", "inference_mode()"), ("super().__init__()", "nn.Module.__init__(self)"),
    (EVAL, "        model.train(False)\n"),
)  # fmt: skip
cleared_by_the_model = fixed(
    (CLEAR, "            model.zero_grad()\n"),
    (EVAL + TOTAL, TOTAL + EVAL), ("nn.CrossEntropyLoss()", "nn.functional.cross_entropy"),
)  # fmt: skip
with_the_switch = fixed(
    (OFF + INSIDE, "        torch.set_grad_enabled(False)\n" + LOOP
     + "        torch.set_grad_enabled(True)\n"),
)  # fmt: skip
added_one_by_one = fixed(
    (LIST.replace("list(", "nn.ModuleList("), "            for i, layer in enumerate(layers):\n"
     "                self.add_module(str(i), layer)\n"),
    ("in self.layers:", "in self.children():"),
)  # fmt: skip


EXERCISE = Exercise(
    id="01c.five-bugs",
    title="five bugs, fixed one at a time",
    source="Module 2, lab 4",
    kind="fix",
    ledger=("X26", "F19", "B01", "B04", "B11", "B12"),
    minutes=20,
    difficulty=2,
    read=("B12", "B11", "B01", "B04", "F19"),
    hints=(
        "Fix only what the first symptom shows, then run again: the next one will appear by "
        "itself.",
        "Three are in how the model and its loss are built; the last two are in the two loops, "
        "and raise nothing.",
        "super().__init__(); nn.ModuleList(layers); nn.CrossEntropyLoss(); zero_grad() before "
        "backward(); model.eval() before the validation batches.",
    ),
    signature="debug_script(layers, train_batches, val_batches, lr, epochs)",
    parts=(
        Part("runs", "it runs to the end, with one loss per epoch", points=1,
             fields=("epochs", "passes")),
        Part("criterion", "a loss for class indices", points=1, fields=("losses",)),
        Part("updates", "the weights after the run", points=1, fields=("weights", "disturbed")),
        Part("validation", "validation in eval mode, training in train mode", points=1,
             fields=("training", "val_training")),
        Part("little", f"all of it right, with at most {MOST} lines changed", points=1,
             fields=("weights", "losses", "training", "val_training", "changed")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "epochs": "the number of validation losses",
        "passes": "batches through the model, and how many of them were validation batches:",
        "weights": "after the run, the weights of layer",
        "losses": "the validation losses:",
        "training": "train mode at each training batch:",
        "val_training": "train mode at each validation batch:",
        "changed": "the number of lines changed",
    },
    wrong=(
        Wrong("no-super", no_super,
              "The module has no place for its layers yet: call super().__init__() first in "
              "__init__.", raises="before Module.__init__|'Classifier' object has no attribute"),
        Wrong("plain-list", plain_list,
              "The optimizer was given no parameters: a plain list hides layers from "
              "parameters(). Use nn.ModuleList.", raises="empty parameter list"),
        Wrong("mse-for-classes", still_mse,
              "The loss raised: the two tensors that it was given differ in shape. For classes, "
              "nn.CrossEntropyLoss takes the logits and the class indices [B] as they are.",
              raises="size of tensor a|must match"),
        Wrong("one-hot-mse", one_hot_mse,
              "The loss is the squared distance to one-hot targets. It runs, but it is not the "
              "loss for a classifier: use nn.CrossEntropyLoss."),
        Wrong("softmax-twice", softmax_twice,
              "The model's outputs went through a softmax before the loss, which applies another "
              "one: return logits."),
        Wrong("summed", summed,
              "The criterion adds up the losses of a batch, so loss and gradient are too large by "
              "a factor of the batch size. Use the mean: nn.CrossEntropyLoss()."),
        Wrong("never-cleared", never_cleared,
              "Gradients from earlier batches were added to each step's. Call "
              "optimizer.zero_grad() before every backward()."),
        Wrong("cleared-per-epoch", cleared_per_epoch,
              "Gradients were cleared only once per epoch, so each step uses the sum over all "
              "batches so far. Clear before every backward()."),
        Wrong("cleared-too-late", cleared_late,
              "No weight moved. Is something cleared between backward() and step(), or is step() "
              "not called?"),
        Wrong("no-eval", no_eval,
              "Validation batches went through the model in train mode. Call model.eval() before "
              "them."),
        Wrong("no-eval", neither),
        Wrong("list-and-parameters", list_and_parameters,
              "The modes of the layers never changed, although the weights moved: train() and "
              "eval() of the model do not reach layers in a plain list. Use nn.ModuleList; then "
              "model.parameters() finds them, too."),
        Wrong("copies", copies,
              "The losses are right, but the layers that were passed in did not move: copies of "
              "them were trained. Put the layers themselves into the model."),
        Wrong("train-once", stays_in_eval),
        Wrong("train-once", train_once,
              "After the first validation the model trained in eval mode: model.train() belongs "
              "at the start of every epoch."),
        Wrong("eval-for-good", eval_for_good,
              "Every training batch went through the model in eval mode. model.train() belongs at "
              "the start of every epoch, and model.eval() before validation."),
        Wrong("divided-by-batches", divided_by_batches,
              "The validation losses were added up over the examples, and divided by the number "
              "of batches. Divide by the number of examples, as in the given lines."),
        Wrong("last-layer-only", last_layer_only),
        Wrong("last-layer-only", half_registered),
        Wrong("nll-of-logits", nll_of_logits,
              "NLLLoss takes log-probabilities, but it was given logits. nn.CrossEntropyLoss has "
              "the log-softmax inside."),
        Wrong("sizes-forgotten", sizes_forgotten,
              "The batches' mean losses were added up and divided by the number of examples. "
              "Weigh each by len(targets), as in the given lines."),
        Wrong("batch-means", batch_means,
              "The validation loss is the plain mean of the batches' means, so a short batch "
              "counts as much as a full one. Weigh each by len(targets), as in the given lines."),
        Wrong("one-epoch", one_epoch,
              "It stopped after one epoch. Is the return inside the loop over the epochs?"),
    ),
    right=(with_graph, in_a_sequence, with_inference_mode, cleared_by_the_model, with_the_switch,
           added_one_by_one),
)  # fmt: skip
