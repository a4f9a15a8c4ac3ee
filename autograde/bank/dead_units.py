"""02a.dead-units: which ReLU units give 0 for every example, without disturbing the model."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor, nn

from autograde.bank.common_wrong import common
from autograde.bank.harness import Passes, Watch
from autograde.exercise import (
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_index,
    kept,
)
from course.debug import signals

SMALL = 1e-6
"""Factor of all activations that leaves every unit as it was, and is below any threshold's size."""
MANY = 40
"""Batches, at least, of the second case of several: as in an epoch, and with the last one a unit
fires that gave 0 in all before."""


def one_pass(batches: list[tuple[Tensor, Tensor]]) -> Passes:
    """A loader that gives its batches once."""
    left = [batches]

    def begin() -> Iterator[tuple[Tensor, Tensor]]:
        if not left:
            raise AnswerError(
                "The loader was gone through a second time, and a call may do so once: look at all "
                "ReLUs in one pass."
            )
        return iter(left.pop())

    return Passes(begin)


class PlusOne(nn.Module):
    """Works in place: where a ReLU gave 0 is a 1 afterwards."""

    def forward(self, x: Tensor) -> Tensor:
        return x.add_(1)


def draw(source: Draw, part: str) -> Case:
    """Dead, rare, common and always-on units in drawn numbers, by their biases.

    A rare unit fires for one example alone, so it looks dead in every other batch.
    """
    width, inputs = source.integer(6, 8), 3
    num_batches = 3 if part in ("batches", "quiet") else 1
    if part == "batches" and source.index == 1:
        num_batches = source.integer(MANY, MANY + 5)
    sizes = [source.integer(2, 4) for _ in range(num_batches)]
    if part == "batches":
        sizes[1] = 1
    case = {
        "images": part == "images",
        "sizes": sizes,
        "x": [source.normal(size, inputs, *((2, 3) if part == "images" else ())) for size in sizes],
        "weight": [source.normal(width, inputs), source.normal(width, width)],
        "dead": [0 if part == "named" else 1 + source.index % 2, source.integer(3, 4)],
        "stale": source.normal(width, inputs),
        "rare": [1, 1] if part != "one" else [0, 0],
        "rows": [source.integer(0, sizes[0] - 1), source.integer(0, sizes[-1] - 1)],
        "norm": part == "quiet",
        "dropout": part == "quiet",
        "nested": part in ("quiet", "named"),
        "inplace": source.index % 2 == 1,
        "dtype": "float64" if source.index % 2 else "float32",
        "no_relu": part == "named" and source.index == 1,
        "itself": part == "named" and source.index == 2,
        "leaky": part == "quiet",
        "one_pass": part == "batches" and source.index == 1,
        "recording": part != "quiet" or source.index == 0,
        "scaled": part == "one",
    }
    return _no_batch_alone(case) if part == "batches" else case


def _no_batch_alone(case: Case) -> Case:
    """Two rare units of the first layer, of which no batch sees both fire.

    One's weights are the other's with the sign changed: where one is largest, the other is least.
    """
    weight, rows, rare = case["weight"][0], torch.cat(case["x"]), case["dead"][0]
    weight[rare + 1] = -weight[rare]
    for place, wanted in ((0, weight[rare]), (-1, weight[rare + 1])):
        largest = int((rows @ wanted).argmax())
        order = list(range(len(rows)))
        order[place], order[largest] = order[largest], order[place]
        rows = rows[order]
    return {**case, "x": list(rows.split(case["sizes"])), "rare": [2, 1]}


def build(case: Case, xs: list[torch.Tensor]) -> nn.Module:
    """Two ReLUs behind layers whose biases put each unit where the case wants it; or one alone."""
    if case["itself"]:
        return nn.ReLU()
    width, inputs = case["weight"][0].shape
    conv = case["images"]
    layers = [nn.Conv2d(a, width, 1) if conv else nn.Linear(a, width) for a in (inputs, width)]
    gates = [nn.Tanh() if case["no_relu"] else nn.ReLU(case["inplace"]) for _ in layers]
    first = [layers[0], gates[0]]
    if case["norm"]:
        first = [layers[0], nn.BatchNorm1d(width), gates[0]]
    drop = [nn.Dropout(0.9)] if case["dropout"] else []
    second = [*drop, layers[1], gates[1]]
    body = [*first, *second]
    if case["nested"]:  # the Identity: or both ReLUs would have the same last part of a name
        body = [*first, nn.Sequential(nn.Identity(), *second)]
    body += [PlusOne(), nn.LeakyReLU()] if case["leaky"] else []
    model = nn.Sequential(*body).to(xs[0]).eval()
    signal = xs
    for number, (layer, gate) in enumerate(zip(layers, gates, strict=True)):
        weight = case["weight"][number]
        layer.weight.data.copy_(weight.view(layer.weight.shape))
        layer.bias.data.zero_()
        rows = case["rows"] if number == 0 else case["rows"][::-1]
        signal = _place(layer, case, number, signal, rows)
        signal = [gate(s.clone()) for s in signal]
    return model


@torch.no_grad()
def _place(layer: nn.Module, case: Case, number: int, xs: list, rows: list[int]) -> list:
    """Set the biases, from what the units give without; the layer's outputs on all batches."""
    found = [layer(x) for x in xs]
    flat = torch.cat([f.movedim(1, -1).flatten(0, -2) for f in found])
    dead, rare = case["dead"][number], case["rare"][number]
    top = flat.sort(dim=0, descending=True).values
    for unit in range(flat.shape[1]):
        if unit < dead:
            bias = -top[0, unit] - 0.1 * (1 + unit % 2)
        elif unit < dead + rare and len(top) > 1:  # one number alone is above 0
            bias = -(top[0, unit] + top[1, unit]) / 2
        elif unit == dead + rare:  # never 0
            bias = -top[-1, unit] + 0.1
        else:
            bias = -(top[len(top) // 2, unit] + top[(len(top) - 1) // 2, unit]) / 2 + 1e-3
        layer.bias[unit] = bias
    return [layer(x) for x in xs]


def run(function, case: Case, device: torch.device) -> Answer:
    """The counts, and what is different afterwards."""
    dtype = getattr(torch, case["dtype"])
    model = build(case, [x.to(dtype) for x in case["x"]]).to(device)
    xs = [x.to(device, dtype) for x in case["x"]]
    loader = [(x, torch.zeros(len(x), dtype=torch.long, device=device)) for x in xs]
    model.train()
    if not case["itself"]:
        model[0].eval()
        model[0].weight.grad = case["stale"].to(xs[0]).view(model[0].weight.shape)
        model[1].register_forward_hook(lambda *seen: None)  # somebody else's
    in_place = _in_place(model)
    fresh = [(x.clone(), y) for x, y in loader]
    with torch.set_grad_enabled(case["recording"]):
        watch = Watch(model, data=[t for pair in loader for t in pair])
        found = function(model, one_pass(loader) if case["one_pass"] else loader)
        disturbed = watch.changed()
    disturbed += ["whether a ReLU works in place"] * (_in_place(model) != in_place)
    return {"names": kept(_names, found), "dead": kept(_counts, found), "disturbed": disturbed,
            "scaled": _scaled(function, case, fresh, found),
            "counted": _is_counted(found)}  # fmt: skip


def _in_place(model: nn.Module) -> list[bool]:
    return [module.inplace for module in model.modules() if isinstance(module, nn.ReLU)]


def _scaled(function, case: Case, loader: list, found: object) -> str:
    """Whether the counts stay where every activation is a millionth of what it was."""
    if not case["scaled"]:
        return "not asked"
    model = build(case, [x.cpu() for x, _ in loader]).to(loader[0][0].device)
    layers = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    for parameter in (layers[0].weight, *(layer.bias for layer in layers)):
        parameter.data *= SMALL
    return "the same" if kept(_counts, function(model, loader)) == kept(_counts, found) else "other"


def _names(found: object) -> list[str]:
    if not isinstance(found, dict):
        raise AnswerError(f"It returned a {type(found).__name__}; return a dictionary.")
    return sorted(map(str, found))


def _counts(found: object) -> list[int]:
    _names(found)
    return [as_index(value, f"the count of {name!r}") for name, value in sorted(found.items())]


def _is_counted(found: object) -> bool:
    """Whether a count is above 0: names with a 0 each are had without looking. What is no count at
    all costs other parts."""
    try:
        return any(_counts(found))
    except AnswerError:
        return True


def reference(model: nn.Module, loader) -> dict[str, int]:
    """The course's own."""
    return signals.dead_units(model, loader)


def over(output):
    return [dim for dim in range(output.dim()) if dim != 1]


def never(output):
    return (output == 0).all(dim=0) if output.dim() == 2 else (output == 0).all(3).all(2).all(0)


def made_of(*, alive=lambda o: ~never(o), join=torch.logical_or, count=lambda alive: ~alive,
            mode=nn.Module.eval, restore=True, remove=True, kinds=nn.ReLU, before=False,
            within=nn.Module.named_modules):  # fmt: skip
    """A right answer, or with one thing changed a wrong one."""

    def dead_units(model, loader):
        fired, hooks = {}, []

        def look(name):
            def hook(module, args, output):
                now = alive(args[0] if before else output)
                fired[name] = join(fired[name], now) if name in fired else now

            return hook

        for name, module in within(model):
            if isinstance(module, kinds):
                hooks.append(module.register_forward_hook(look(name)))
        modes = [(module, module.training) for module in model.modules()]
        mode(model)
        with torch.no_grad():
            for inputs, _ in loader:
                model(inputs)
        for hook in hooks:
            if remove:
                hook.remove()
        for module, training in modes:
            if restore:
                module.training = training
            elif restore is None:
                module.training = True
        # not `alive` for `units`: from Python 3.12 on, a comprehension takes hook()'s name from it
        return {name: int(count(units).sum()) for name, units in fired.items()}

    return dead_units


plain = made_of()
in_any_batch = made_of(join=torch.logical_and)
in_the_last_batch = made_of(join=lambda old, new: new)
in_the_first_batch = made_of(join=lambda old, new: old)
alive_counted = made_of(count=lambda alive: alive)
entries_counted = made_of(alive=lambda o: (o == 0).sum(over(o)), join=torch.add, count=lambda n: n)
positions_zero = made_of(
    alive=lambda o: (o > 0).any(0).flatten(1).all(1) if o.dim() > 2 else ~never(o)
)
one_position_zero = made_of(
    alive=lambda o: (o.flatten(2) > 0).all(2).any(0) if o.dim() > 2 else ~never(o)
)
ever_zero = made_of(alive=lambda o: ~(o == 0).sum(over(o)).bool(), join=torch.logical_and)
zero_fires = made_of(alive=lambda o: (o >= 0).sum(over(o)) > 0)
all_of_an_example = made_of(
    alive=lambda o: (o.flatten(2).sum(2) if o.dim() > 2 else o).any(1),
    join=lambda a, b: torch.cat([a, b]),
)
dead_examples = made_of(
    alive=lambda o: (o.flatten(1) > 0).any(1),
    join=lambda a, b: torch.cat([a, b]),
)
by_position = made_of(alive=lambda o: (o > 0).any(0))
last_batch_by_position = made_of(alive=lambda o: (o > 0).any(0), join=lambda old, new: new)
last_batch_by_position_in_train = made_of(
    alive=lambda o: (o > 0).any(0), join=lambda old, new: new, mode=lambda m: None
)
in_one_image = made_of(
    alive=lambda o: (o.flatten(2) > 0).any(2).all(0) if o.dim() > 2 else ~never(o)
)
small_mean = made_of(alive=lambda o: o.double().mean(over(o)) > 0.1)
small_largest = made_of(alive=lambda o: (o > 0.01).sum(over(o)) > 0)
tiny_largest = made_of(alive=lambda o: (o > 1e-5).sum(over(o)) > 0)
in_train_mode = made_of(mode=lambda m: None)
all_in_train_mode = made_of(mode=nn.Module.train)
left_in_eval = made_of(restore=False)
left_in_train = made_of(restore=None)
hooks_left = made_of(remove=False)
leaky_too = made_of(kinds=(nn.ReLU, nn.LeakyReLU))
top_level_only = made_of(within=nn.Module.named_children)
linear_watched = made_of(kinds=(nn.Linear, nn.Conv2d))
all_layers = made_of(kinds=(nn.ReLU, nn.Linear, nn.Conv2d, nn.Tanh))
what_comes_in = made_of(alive=lambda o: (o != 0).sum(over(o)) > 0, before=True)


within_alone = made_of(within=lambda m: (pair for pair in m.named_modules() if pair[0]))
without_in_place = made_of(
    within=lambda m: (pair for pair in m.named_modules() if not getattr(pair[1], "inplace", False))
)


def counted_too_late(model, loader):
    """Keeps what the hooks saw, and looks at it once all layers have run."""
    given, handles = {}, []
    for name, module in model.named_modules():
        if isinstance(module, nn.ReLU):

            def hook(module, args, output, name=name):
                given.setdefault(name, []).append(output)

            handles.append(module.register_forward_hook(hook))
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    with torch.no_grad():
        for inputs, _ in loader:
            model(inputs)
    for handle in handles:
        handle.remove()
    for module, training in modes:
        module.training = training
    return {
        name: int(torch.stack([never(output) for output in outputs]).all(dim=0).sum())
        for name, outputs in given.items()
    }


def last_hook_left(model, loader):
    found = plain(model, loader)
    relus = [module for module in model.modules() if isinstance(module, nn.ReLU)]
    if relus:
        relus[-1].register_forward_hook(lambda *seen: None)
    return found


def in_place_switched_off(model, loader):
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            module.inplace = False
    return plain(model, loader)


def not_looked_at(model, loader):
    return {name: 0 for name, module in model.named_modules() if isinstance(module, nn.ReLU)}


def last_part_of_the_name(model, loader):
    return {name.rpartition(".")[2]: n for name, n in plain(model, loader).items()}


def a_share(model, loader):
    units = {}
    hook = nn.modules.module.register_module_forward_hook(
        lambda m, a, o: units.update({id(m): o.shape[1]}) if isinstance(m, nn.ReLU) else None
    )
    found = plain(model, loader)
    hook.remove()
    widths = list(units.values())
    return {name: n / w for (name, n), w in zip(found.items(), widths, strict=True)}


def which_units(model, loader):
    return {name: list(range(count)) for name, count in plain(model, loader).items()}


def added_up(model, loader):
    return sum(plain(model, loader).values())


def numbered(model, loader):
    return dict(enumerate(plain(model, loader).values()))


def late_name(join):
    """Hooks that read the name when they run."""

    def dead_units(model, loader):
        fired, hooks = {}, []
        for name, module in model.named_modules():
            if isinstance(module, nn.ReLU):

                def hook(module, args, output):
                    now = ~never(output)
                    fired[name] = join(fired[name], now) if name in fired else now  # noqa: B023

                hooks.append(module.register_forward_hook(hook))
        modes = [(module, module.training) for module in model.modules()]
        model.eval()
        with torch.no_grad():
            for inputs, _ in loader:
                model(inputs)
        for hook in hooks:
            hook.remove()
        for module, training in modes:
            module.training = training
        return {name: int((~alive).sum()) for name, alive in fired.items()}

    return dead_units


def zero_left_out(model, loader):
    return {name: count for name, count in plain(model, loader).items() if count}


def per_batch_added(model, loader):
    total = {}
    for batch in loader:
        for name, count in plain(model, [batch]).items():
            total[name] = total.get(name, 0) + count
    return total


def fewest_per_batch(model, loader):
    fewest = {}
    for batch in loader:
        for name, count in plain(model, [batch]).items():
            fewest[name] = min(fewest.get(name, count), count)
    return fewest


def in_the_first_three_batches(model, loader):
    return plain(model, islice(loader, 3))


def hooks_cleared(model, loader):
    found = plain(model, loader)
    for module in model.modules():
        module._forward_hooks.clear()
    return found


def a_pass_per_relu(model, loader):
    relus = [name for name, module in model.named_modules() if isinstance(module, nn.ReLU)]
    return {name: plain(model, loader)[name] for name in relus}


def with_grads_on(model, loader):
    found = plain(model, loader)
    torch.set_grad_enabled(True)
    return found


def with_largest_values(model, loader):
    largest = {}
    relus = {module: name for name, module in model.named_modules() if isinstance(module, nn.ReLU)}

    def hook(module, args, output):
        flat = output.detach().transpose(0, 1).flatten(1).max(dim=1).values
        name = relus[module]
        largest[name] = torch.maximum(largest.get(name, flat), flat)

    handles = [module.register_forward_hook(hook) for module in relus]
    modes = {module: module.training for module in model.modules()}
    try:
        model.eval()
        with torch.inference_mode():
            for inputs, _ in loader:
                model(inputs)
    finally:
        for handle in handles:
            handle.remove()
        for module, mode in modes.items():
            module.training = mode
    return {name: (values <= 0).sum().item() for name, values in largest.items()}


def all_outputs_kept(model, loader):
    names = [name for name, module in model.named_modules() if type(module) is nn.ReLU]
    outputs = {name: [] for name in names}
    handles = [
        model.get_submodule(name).register_forward_hook(
            lambda module, args, output, name=name: outputs[name].append(output.clone())
        )
        for name in names
    ]
    before = [module.training for module in model.modules()]
    for module in model.modules():
        module.training = False
    with torch.no_grad():
        for batch in loader:
            model(batch[0])
    for handle in handles:
        handle.remove()
    for module, training in zip(model.modules(), before, strict=True):
        module.training = training
    dead = {}
    for name in names:
        joined = torch.cat(outputs[name])
        joined = joined.movedim(1, -1).reshape(-1, joined.shape[1])
        dead[name] = sum(bool((column == 0).all()) for column in joined.T)
    return dead


EXERCISE = Exercise(
    id="02a.dead-units",
    title="count the dead units",
    source='Lecture 3, "Debug checklist · why won\'t loss go down? · part 2"',
    ledger=("B20", "F81", "T22"),
    minutes=15,
    difficulty=3,
    read=("course.debug.signals.dead_units", "F81", "F22"),
    hints=(
        "A forward hook sees what a module returns. After module.register_forward_hook(hook), "
        "each forward pass calls hook(module, args, output). Registering returns a handle with "
        "remove().",
        "One batch in which a unit fires is enough. What has to be remembered from batch to batch?",
        "Per ReLU keep alive = alive | (output > 0).any over all dimensions but 1; count ~alive "
        "at the end. Around that: remember the modes, eval(), no_grad(), remove the handles, "
        "restore the modes.",
    ),
    signature="dead_units(model, loader)",
    parts=(
        Part("one", "one batch of rows", points=1, fields=("scaled", "dead")),
        Part("batches", "several batches", points=1, fields=("dead",)),
        Part("images", "images: a unit is a channel", points=1, fields=("dead",)),
        Part("quiet", "dropout, BatchNorm, different modes; everything as it was", points=1,
             fields=("dead", "disturbed")),
        Part("named", "the names; a model without a ReLU", points=1, hidden=True, cases=3,
             fields=("names", "counted")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "dead": "the counts, in the order of the names,",
        "names": "the names",
        "counted": "whether any count is above 0",
        "scaled": "the counts where all activations are a millionth of what they were",
    },
    wrong=(
        Wrong("in-any-batch", in_any_batch,
              "A unit was counted that gives 0 throughout one batch but fires in another. Dead "
              "means 0 for every example in all batches."),
        Wrong("in-the-last-batch", in_the_last_batch,
              "Those are the counts of the last batch. Remember over all batches "
              "which units have fired."),
        Wrong("in-the-first-batch", in_the_first_batch,
              "Those are the counts of the first batch. Remember over all batches "
              "which units have fired."),
        Wrong("in-the-first-three-batches", in_the_first_three_batches),
        Wrong("fewest-per-batch", fewest_per_batch,
              "That is the smallest count of any batch, but two batches may have different dead "
              "units. Combine which units have fired, then count."),
        Wrong("per-batch-added", per_batch_added,
              "The counts of the batches were added up: a dead unit counted once per batch."),
        Wrong("alive-counted", alive_counted, "Those are the units that fire. Count the others."),
        Wrong("entries-counted", entries_counted,
              "That counts zeros. A unit counts once, and only if it is 0 for every example."),
        Wrong("ever-zero", ever_zero,
              "A unit was counted that is 0 for one example. For any one example about half of "
              "the units are 0: dead means 0 for every example."),
        Wrong("nothing-dead", zero_fires,
              "No unit was counted, though some give 0 for every example. Ask of each unit, over "
              "the examples (dim=0), whether any output of the ReLU is > 0. Over dim=1 that is "
              "asked of each example, and >= 0 is always true.",
              sure=True),
        Wrong("nothing-dead", dead_examples),
        Wrong("nothing-dead", all_of_an_example),
        Wrong("nothing-dead", linear_watched),
        Wrong("nothing-dead", not_looked_at),
        Wrong("by-position", by_position,
              "Positions of an image were counted. A unit is a channel, dead if it is 0 at all of "
              "its positions."),
        Wrong("last-batch-by-position", last_batch_by_position,
              "Those are counts of the last batch alone, and for images each position was "
              "counted. A unit is a channel, dead if it is 0 everywhere in all batches."),
        Wrong("last-batch-by-position", last_batch_by_position_in_train),
        Wrong("any-position", positions_zero,
              "A channel was counted that fires at some positions and is 0 at others. Dead means "
              "0 at every position of every example."),
        Wrong("any-position", one_position_zero),
        Wrong("in-one-image", in_one_image),
        Wrong("threshold", small_mean,
              "The counts change when all activations are made smaller, though the same units "
              "fire: a size was compared with a threshold. Ask where the output is > 0, example "
              "by example."),
        Wrong("threshold", small_largest),
        Wrong("threshold", tiny_largest, sure=True),
        Wrong("in-train-mode", in_train_mode,
              "The counts are those of train mode, where dropout and the batch's own statistics "
              "decide. Call model.eval() first.", sure=True),
        Wrong("in-train-mode", all_in_train_mode),
        Wrong("left-in-eval", left_in_eval,
              "The model was left in eval mode. Restore each module's own mode."),
        Wrong("left-in-train", left_in_train,
              "A module that was in eval mode is now in train mode. Note each "
              "module's mode, and restore it.", sure=True),
        Wrong("hooks-left", hooks_left,
              "One of your hooks is still there. Call remove() on every handle.", sure=True),
        Wrong("hooks-left", last_hook_left, sure=True),
        Wrong("hooks-cleared", hooks_cleared,
              "A hook that was there before is gone. Remove only your own, by their handles.",
              sure=True),
        Wrong("in-place-switched-off", in_place_switched_off,
              "ReLUs that worked in place no longer do. Leave `inplace` as it is: a "
              "hook on a ReLU sees its output either way.", sure=True),
        Wrong("counted-too-late", counted_too_late,
              "The outputs were looked at after a later layer had changed them in place. Look in "
              "the hook, or keep a clone.", sure=True),
        Wrong("grads-switched-on", with_grads_on),
        Wrong("leaky-too", leaky_too,
              "A LeakyReLU was counted. It is not an nn.ReLU, and it passes a "
              "gradient where its input is negative: isinstance(module, nn.ReLU) "
              "tells them apart.", sure=True),
        Wrong("a-pass-per-relu", a_pass_per_relu),
        Wrong("top-level-only", top_level_only,
              "A ReLU inside another module is missing. named_modules() visits all depths."),
        Wrong("all-layers", all_layers),
        Wrong("what-comes-in", what_comes_in),
        Wrong("a-share", a_share),
        Wrong("which-units", which_units),
        Wrong("added-up", added_up),
        Wrong("numbered", numbered,
              "The ReLUs were numbered. The key is the name of each in named_modules().",
              sure=True),
        Wrong("last-part-of-the-name", last_part_of_the_name,
              "A ReLU inside another module came under the last part of its name. Two "
              "may share that: use the whole name from named_modules().", sure=True),
        Wrong("without-the-model-itself", within_alone,
              "A model that is itself a ReLU gave {}. named_modules() begins with the model, under "
              "the name ''.", sure=True),
        Wrong("without-in-place", without_in_place,
              "ReLUs that work in place are missing. Hooks see their outputs, too.",
              sure=True),
        Wrong("one-name-for-all", late_name(torch.logical_or),
              "All counts came under the last name: a hook defined in a loop reads "
              "`name` only when it runs. Bind it: def hook(module, args, output, "
              "name=name).", sure=True),
        Wrong("one-name-for-all", late_name(lambda old, new: new)),
        Wrong("zero-left-out", zero_left_out,
              "A ReLU without a dead unit is missing. Its count is 0.", sure=True),
        *common(plain, "global-batches", "returns-none", "changes-data", "changes-grad-mode",
                "fills-grads", "clears-grads"),
    ),
    right=(plain, with_largest_values, all_outputs_kept),
)  # fmt: skip
