"""01a.saliency: which pixels a class's score depends on, without disturbing the model."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, kept
from course.analysis import saliency as course_saliency


def draw(source: Draw, part: str) -> Case:
    """A small network, images of one or three channels, labels that are not the top.

    With dropout or a BatchNorm, unless only the numbers are asked about; then a batch of one, too.

    The model comes in train mode with one module in eval, inside of another; half of the parameters
    have a gradient, and some or all may be frozen.
    """
    channels = 3 if part == "channels" else 1
    size = [channels, source.integer(2, 3), source.integer(3, 4)]
    pixels, hidden, classes = size[0] * size[1] * size[2], source.integer(3, 4), 4
    batch = 1 if (part, source.index) == ("score", 1) else source.integer(2, 3)
    return {
        "images": source.normal(batch, *size),
        "labels": source.integers(classes, batch),
        "weights": [source.normal(hidden, pixels, scale=0.6), source.normal(classes, hidden)],
        "stale": source.normal(classes, hidden),
        "dropout": part != "score" and source.index % 2 == 0,
        "norm": part != "score" and source.index % 2 == 1,
        "training": part != "score",
        "no_grad": part == "quiet",
        "frozen": {"quiet": "all", "modes": ("none", "some")[source.index % 2]}.get(part, "none"),
        "dtype": "float64" if source.index == 1 else "float32",
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """The map, and what is different afterwards."""
    dtype = getattr(torch, case["dtype"])
    first, second = (nn.Linear(w.shape[1], w.shape[0], bias=False) for w in case["weights"])
    for layer, weight in zip((first, second), case["weights"], strict=True):
        layer.weight.data.copy_(weight)
    dropout = nn.Dropout(0.5 if case["dropout"] else 0.0)
    noted = nn.BatchNorm1d(len(first.weight)) if case["norm"] else dropout
    inner = nn.Sequential(first, nn.Tanh())
    model = nn.Sequential(nn.Flatten(), inner, noted, second)
    model.to(device, dtype).train(case["training"])
    inner[1].eval()
    model.requires_grad_(case["frozen"] != "all")
    first.requires_grad_(case["frozen"] == "none")
    second.weight.grad = case["stale"].to(device, dtype)
    images, labels = case["images"].to(device, dtype), case["labels"].to(device)
    modes: list[bool] = []
    noted.register_forward_pre_hook(lambda module, _args: modes.append(module.training))
    with torch.set_grad_enabled(not case["no_grad"]):
        watch = Watch(model, data={"images": images, "labels": labels})
        made = function(model, images, labels)
        disturbed = watch.changed()
    if images.grad is not None:
        disturbed.append(".grad of the images")
    mode = " and ".join({True: "train", False: "eval"}[seen] for seen in sorted(set(modes)))
    return {"mode": mode, "map": kept(_as_map, made), "disturbed": disturbed}


def _as_map(made: object) -> Tensor:
    if not isinstance(made, Tensor):
        raise AnswerError(f"It returned a {type(made).__name__}; return the map, a tensor.")
    if made.requires_grad:
        raise AnswerError("It returned a tensor that still holds its graph: use detach().")
    return made.detach().cpu().clone()


def reference(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The course's own."""
    return course_saliency.saliency(model, images, labels)


def chosen(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.gather(1, labels[:, None]).sum()


def steepest(slopes: Tensor) -> Tensor:
    return slopes.abs().amax(dim=1)


def made_of(score=chosen, reduce=steepest, *, evaluate=True, restore=True, enable=True):
    """A right answer, or with one thing changed a wrong one."""

    def saliency(model, images, labels):
        modes = [(module, module.training) for module in model.modules()]
        if evaluate:
            model.eval()
        with torch.set_grad_enabled(enable or torch.is_grad_enabled()):
            pixels = images.clone().requires_grad_()
            (slopes,) = torch.autograd.grad(score(model(pixels), labels), pixels)
        if restore:
            for module, training in modes:
                module.training = training
        elif restore is None:
            model.train()
        return reduce(slopes)

    return saliency


plain = made_of()
of_the_loss = made_of(lambda z, y: nn.functional.cross_entropy(z, y, reduction="sum"))
of_the_mean_loss = made_of(nn.functional.cross_entropy)
all_labels_for_each = made_of(lambda z, y: z[:, y].sum())
of_the_probability = made_of(lambda z, y: chosen(z.softmax(1), y))
of_the_log_probability = made_of(lambda z, y: chosen(z.log_softmax(1), y))
of_the_winner = made_of(lambda z, y: z.amax(dim=1).sum())
of_all_classes = made_of(lambda z, y: z.sum())
averaged = made_of(lambda z, y: chosen(z, y) / len(y))
with_its_sign = made_of(reduce=lambda s: s.amax(dim=1))
mean_of_channels = made_of(reduce=lambda s: s.abs().mean(dim=1))
sum_of_channels = made_of(reduce=lambda s: s.abs().sum(dim=1))
length_of_channels = made_of(reduce=lambda s: s.norm(dim=1))
abs_after_the_sum = made_of(reduce=lambda s: s.sum(dim=1).abs())
abs_after_the_maximum = made_of(reduce=lambda s: s.amax(dim=1).abs())
squared = made_of(reduce=lambda s: s.square().amax(dim=1))
first_label_for_all = made_of(lambda z, y: z[:, y[0]].sum())
first_channel = made_of(reduce=lambda s: s.abs()[:, 0])
dimension_kept = made_of(reduce=lambda s: s.abs().amax(dim=1, keepdim=True))
channels_kept = made_of(reduce=lambda s: s.abs())
in_train_mode = made_of(evaluate=False)
left_in_eval = made_of(restore=False)
all_in_train = made_of(restore=None)
needs_recording = made_of(enable=False)


def fills_the_parameters(model, images, labels):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    with torch.enable_grad():
        pixels = images.clone().requires_grad_()
        chosen(model(pixels), labels).backward()
    for module, training in modes:
        module.training = training
    return steepest(pixels.grad)


def backward_on_the_images(model, images, labels):
    model.eval()
    images.requires_grad_()
    chosen(model(images), labels).backward()
    return steepest(images.grad)


def modes_of_the_children(model, images, labels):
    modes = [(module, module.training) for module in (model, *model.children())]
    found = left_in_eval(model, images, labels)
    for module, training in modes:
        module.train(training)
    return found


def frozen_as_the_first(model, images, labels):
    trained = next(model.parameters()).requires_grad
    model.requires_grad_(False)
    found = plain(model, images, labels)
    model.requires_grad_(trained)
    return found


def clears_the_parameters(model, images, labels):
    found = fills_the_parameters(model, images, labels)
    model.zero_grad()
    return found


def marks_the_images(model, images, labels):
    images.requires_grad_()
    found = plain(model, images, labels)
    return found


def marks_and_fills_the_images(model, images, labels):
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    with torch.enable_grad():
        images.requires_grad_()
        chosen(model(images.clone()), labels).backward(inputs=[images])
    images.requires_grad_(False)
    for module, training in modes:
        module.training = training
    return steepest(images.grad)


def thaws_the_parameters(model, images, labels):
    model.requires_grad_(False)
    found = plain(model, images, labels)
    model.requires_grad_(True)
    return found


def only_the_dropout(model, images, labels):
    modes = [(module, module.training) for module in model.modules()]
    for module, _ in modes:
        module.training = module.training and not isinstance(module, nn.Dropout)
    found = in_train_mode(model, images, labels)
    for module, training in modes:
        module.training = training
    return found


def squeezed(model, images, labels):
    return plain(model, images, labels).squeeze()


def scaled_to_one(model, images, labels):
    found = plain(model, images, labels)
    return found / found.amax(dim=(1, 2), keepdim=True)


def times_the_pixel(model, images, labels):
    def weigh(slopes):
        return steepest(slopes * images)

    return made_of(reduce=weigh)(model, images, labels)


def image_by_image(model, images, labels):
    modes = {module: module.training for module in model.modules()}
    model.eval()
    maps = []
    with torch.enable_grad():
        for image, label in zip(images, labels, strict=True):
            pixels = image[None].detach().clone().requires_grad_()
            score = model(pixels)[0, label]
            maps.append(torch.autograd.grad(score, pixels)[0][0].abs().max(dim=0).values)
    for module, training in modes.items():
        module.training = training
    return torch.stack(maps)


def with_backward_to_the_images_alone(model, images, labels):
    modes = [module.training for module in model.modules()]
    for module in model.modules():
        module.training = False
    with torch.enable_grad():
        pixels = images.detach().clone()
        pixels.requires_grad = True
        logits = model(pixels)
        rows = torch.arange(len(labels), device=labels.device)
        logits[rows, labels].sum().backward(inputs=[pixels])
    for module, training in zip(model.modules(), modes, strict=True):
        module.training = training
    return pixels.grad.abs().max(dim=1).values


EXERCISE = Exercise(
    id="01a.saliency",
    title="what the answer depends on",
    source='Annotated-loop essay, "The backward pass"; Module 2, "Autograd"',
    ledger=("T38", "T06", "T16", "X60"),
    minutes=15,
    difficulty=3,
    read=("course.analysis.saliency", "F36", "F24"),
    hints=(
        "Which number do you differentiate, and with respect to what? It is not a loss, and not a "
        "weight.",
        "torch.autograd.grad(score, pixels) returns the slopes and fills no .grad. In eval mode "
        "images do not mix, so the batch's scores may be summed.",
        "Remember every module's mode; model.eval(); with torch.enable_grad(): pixels = "
        "images.detach().clone().requires_grad_(), logits.gather(1, labels[:, None]).sum(), grad; "
        "then restore the modes, and return slopes.abs().amax(dim=1).",
    ),
    signature="saliency(model, images, labels)",
    parts=(
        Part("score", "the label's logit, one channel", points=1, cases=3, fields=("map",)),
        Part("channels", "three channels", points=1, fields=("map",)),
        Part("modes", "a model in train mode, and everything as it was", points=1),
        Part("quiet", "called under no_grad, with frozen parameters", points=1, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"map": "the map", "mode": "the mode of the dropout or BatchNorm during the call"},
    by_hand=(course_saliency.saliency,),
    wrong=(
        Wrong(
            "of-the-loss",
            of_the_loss,
            "Those are slopes of the loss. Saliency asks for the label's own logit.",
        ),
        Wrong("of-the-loss", of_the_mean_loss),
        Wrong("of-the-loss", of_the_log_probability),
        Wrong(
            "all-labels-for-each",
            all_labels_for_each,
            "Every image was asked for the labels of all images: logits[:, labels] is [B, B]. For "
            "one logit per image use gather(), or index with [arange, labels].",
        ),
        Wrong(
            "of-the-probability",
            of_the_probability,
            "Those are slopes of the probability, which depends on the other logits too. Take the "
            "label's logit as the model returns it.",
        ),
        Wrong(
            "of-the-winner",
            of_the_winner,
            "Those are slopes of the largest logit. Take the label's, even where the model is "
            "wrong.",
        ),
        Wrong(
            "of-all-classes",
            of_all_classes,
            "Those are slopes of all the logits added up. Pick the label's: gather, or index "
            "with [arange, labels].",
        ),
        Wrong(
            "averaged",
            averaged,
            "Everything is too small by a factor of the batch size: sum the scores, because a "
            "mean divides every image's slopes.",
        ),
        Wrong(
            "with-its-sign",
            with_its_sign,
            "The sign is still there. A pixel that lowers the score matters just as much: abs() "
            "first.",
        ),
        Wrong(
            "mean-of-channels",
            mean_of_channels,
            "The channels were averaged. The steepest of them counts.",
        ),
        Wrong(
            "sum-of-channels",
            sum_of_channels,
            "The channels were added up. The steepest of them counts.",
        ),
        Wrong(
            "abs-after-the-sum",
            abs_after_the_sum,
            "The channels' slopes were added up before abs(), so opposite signs cancelled. abs() "
            "first; then the steepest channel counts: amax(dim=1).",
        ),
        Wrong(
            "length-of-channels",
            length_of_channels,
            "That is the norm over the channels. The steepest of them counts.",
        ),
        Wrong(
            "times-the-pixel",
            times_the_pixel,
            "The slopes were multiplied by the pixels. Only the slope is asked for.",
        ),
        Wrong(
            "abs-after-the-maximum",
            abs_after_the_maximum,
            "The maximum over the channels came before abs(), so a channel with a steep negative "
            "slope was passed over. abs() first.",
        ),
        Wrong("squared", squared, "The slopes were squared. Their magnitude is asked for: abs()."),
        Wrong(
            "first-label-for-all",
            first_label_for_all,
            "Every image was asked for the first image's label. Each has its own: gather, or index "
            "with [arange, labels].",
        ),
        Wrong(
            "scaled-to-one",
            scaled_to_one,
            "Each map was divided by its largest slope. Return the slopes themselves.",
        ),
        Wrong(
            "first-channel",
            first_channel,
            "Only the first channel was looked at. The steepest of them counts: amax(dim=1).",
        ),
        Wrong(
            "dimension-kept",
            dimension_kept,
            "The map still has a dimension for the channels, [B, 1, H, W]. Leave out keepdim.",
            sure=True,
        ),
        Wrong(
            "squeezed",
            squeezed,
            "A batch of one lost its first dimension: squeeze() removes every dimension of size "
            "1. amax(dim=1) removes only the channels.",
            sure=True,
        ),
        Wrong("channels-kept", channels_kept),
        Wrong(
            "in-train-mode",
            in_train_mode,
            "The model was called in train mode, in which dropout drops random units and "
            "BatchNorm mixes the images of a batch. Call model.eval() before it.",
            sure=True,
        ),
        Wrong(
            "only-the-dropout",
            only_the_dropout,
            "The dropout was in eval mode, but a BatchNorm was left in train mode. model.eval() "
            "reaches every module.",
            sure=True,
        ),
        Wrong(
            "left-in-eval",
            left_in_eval,
            "The model came in train mode and was left in eval mode. Restore the mode that each "
            "module had.",
        ),
        Wrong(
            "all-in-train",
            all_in_train,
            "train() put every module into train mode, but one had come in eval mode. Remember "
            "each module's own mode.",
        ),
        Wrong("all-in-train", modes_of_the_children),
        Wrong(
            "fills-the-parameters",
            fills_the_parameters,
            "backward() has added to the parameters' .grad. torch.autograd.grad(score, pixels) "
            "leaves it alone.",
        ),
        Wrong(
            "backward-on-the-images",
            backward_on_the_images,
            "backward() filled .grad of the parameters and of the images themselves, and the model "
            "stayed in eval mode. Under torch.enable_grad(), take torch.autograd.grad(score, "
            "pixels) of a copy of the images; then restore each module's mode.",
            raises="does not require grad",
        ),
        Wrong(
            "clears-the-parameters",
            clears_the_parameters,
            "The gradients that the parameters had are gone: zero_grad() clears more than what "
            "your backward() added. torch.autograd.grad(score, pixels) touches none of them.",
            sure=True,
        ),
        Wrong(
            "marks-the-images",
            marks_the_images,
            "The images that were passed in now require a gradient, or have one. Set "
            "requires_grad on a copy of them: images.detach().clone().requires_grad_().",
            sure=True,
        ),
        Wrong("marks-the-images", marks_and_fills_the_images, sure=True),
        Wrong(
            "thaws-the-parameters",
            thaws_the_parameters,
            "Parameters that came frozen now require a gradient. torch.autograd.grad(score, "
            "pixels) does not need any parameter to be frozen or unfrozen: leave them alone.",
            sure=True,
        ),
        Wrong("frozen-as-the-first", frozen_as_the_first),
        Wrong(
            "needs-recording",
            needs_recording,
            "Under no_grad nothing was recorded, so there was nothing to differentiate. Use `with "
            "torch.enable_grad():` inside.",
            raises="does not require grad",
        ),
    ),
    right=(plain, image_by_image, with_backward_to_the_images_alone),
)
