"""03g.load: a model that was saved elsewhere, loaded for use and checked against the original."""

from __future__ import annotations

import collections
import secrets
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module

from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong
from course.engine import checkpoint
from course.state import undisturbed

CLOSE = 1e-4
"""What the statement calls close; float32 on another machine is apart by a hundredth of it."""
OFF = 3e-4
"""By how much one output is off: three times CLOSE, and in a mean over six of them below it."""
LARGE = 500.0
"""Added to one output: a limit that grows with it, by torch's 1e-5 of it, lets OFF pass."""
CALLED: list[str] = []


HIGH, LOW, LAST = "first output 3e-4 too high", "first output 3e-4 too low", "last output 3e-4 off"
FAR = "output near 500 that is 3e-4 off"
NAN_COMPUTED, NAN_STORED, NANS = "weights of nan", "stored output of nan", "nan on both sides"
ROUNDED, CODE = "rounding differences alone", "code in it"
LACKS, LACKS_ALIKE, MORE = "missing weight", "missing weight that outputs hide", "weight too many"
SOUND = "no fault"
FAULTS = {
    "outputs": [],
    "frozen": [],
    "checked": [HIGH, LOW, LAST, FAR, NAN_COMPUTED, NAN_STORED, NANS, ROUNDED],
    "safe": [CODE, SOUND],
    "strict": [LACKS, LACKS_ALIKE, MORE, SOUND],
}
"""What is wrong with the files that a part asks about: `the file with ...`."""
VALUES = FAULTS["checked"]
"""Faults of the outputs, which the statement wants a ValueError for."""


def _note() -> dict:
    CALLED.append("the file's code")
    return {}


class Hostile:
    """Pickles as the call of a function: what a file from a stranger may hold."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _note, ()


def draw(source: Draw, part: str) -> Case:
    """An original with drawn weights; what is wrong with the file, if anything, by part."""
    settings = {"features": source.integer(2, 4), "hidden": source.integer(3, 6),
                "classes": source.integer(2, 5), "norm": source.index % 2 == 0}  # fmt: skip
    model = make_model(**settings)
    state = {name: source.normal(*value.shape).abs() + 0.2 if value.is_floating_point() else value
             for name, value in model.state_dict().items()}  # fmt: skip
    return {
        "settings": settings,
        "state": state,
        "inputs": source.normal(source.integer(3, 5), settings["features"]),
        "fresh": source.normal(source.integer(2, 4), settings["features"]),
        "faults": source.shuffled(FAULTS[part]),
    }


def make_model(features: int, hidden: int, classes: int, norm: bool) -> nn.Module:
    """Dropout always, BatchNorm by the settings: in train mode outputs are others."""
    middle = nn.BatchNorm1d(hidden) if norm else nn.LayerNorm(hidden)
    first = nn.Sequential(nn.Linear(features, hidden), middle, nn.ReLU(), nn.Dropout(0.5))
    return nn.Sequential(first, nn.Linear(hidden, classes))


def run(function, case: Case, device: torch.device) -> Answer:
    """Load a sound file, look at the model, then load the one that the case is about."""
    made: list[dict[str, Any]] = []

    def build(**settings: Any) -> nn.Module:
        made.append(settings)
        return make_model(**settings)

    document = _document(case["settings"], case["state"], case["inputs"])
    with tempfile.TemporaryDirectory(prefix="export-") as folder:
        sound = _written(folder, document)
        watch = Watch(data=[])
        model = _loaded(function, sound, build)
        answer = {"disturbed": watch.changed(frozenset({"random"})), **_looked_at(model, case)}
        answer["built"] = all(settings == case["settings"] for settings in made) and bool(made)
        CALLED.clear()
        said = {}
        for fault in case["faults"]:
            spoiled = _written(folder, _spoiled(document, fault))
            said[fault] = _raised(function, spoiled, build, fault)
        return {**answer, "said": said, "called": list(CALLED)}


def _written(folder: str, document: dict[str, Any]) -> Path:
    """A file whose name does not tell what is in it."""
    path = Path(folder) / f"{secrets.token_hex(4)}.pt"
    torch.save(document, path)
    return path


def _loaded(function, path: Path, build: Any) -> Any:
    """What comes of a sound file.

    Raises:
        AnswerError: It was refused, and its outputs were computed in train mode.
    """
    modes: list[bool] = []
    hook = module.register_module_forward_pre_hook(lambda one, _: modes.append(one.training))
    try:
        return function(path, build)
    except ValueError as error:
        if not any(modes):
            raise
        raise AnswerError(
            f"A good file was refused ({error}), because the compared outputs come from a "
            "model in train mode: call eval() before you compare."
        ) from None
    finally:
        hook.remove()


def _raised(function, path: Path, build: Any, fault: str) -> str:
    try:
        function(path, build)
    except Exception as error:
        if fault not in VALUES:
            return "refused"
        kind = "ValueError" if isinstance(error, ValueError) else type(error).__name__
        return f"refused by {kind}"
    return "accepted"


def _document(settings: dict, state: dict, inputs: torch.Tensor) -> dict[str, Any]:
    model = make_model(**settings)
    model.load_state_dict(state)
    with torch.no_grad():
        outputs = model.eval()(inputs)
    return {"settings": settings, "model": dict(model.state_dict()), "inputs": inputs,
            "outputs": outputs}  # fmt: skip


def _spoiled(document: dict[str, Any], fault: str) -> dict[str, Any]:
    state, outputs = dict(document["model"]), document["outputs"].clone()
    if fault == LACKS_ALIKE:  # the outputs cannot tell
        state["0.1.bias"] = torch.zeros_like(state["0.1.bias"])
        outputs = _document(document["settings"], state, document["inputs"])["outputs"]
        del state["0.1.bias"]
    if fault == HIGH:
        outputs[0, 0] += OFF
    elif fault == LOW:
        outputs[0, 0] -= OFF
    elif fault == LAST:
        outputs[-1, -1] += OFF
    elif fault == FAR:
        state["1.bias"] = state["1.bias"] + LARGE
        outputs += LARGE + OFF
    elif fault == NAN_STORED:
        outputs[-1, 0] = torch.nan
    elif fault in (NAN_COMPUTED, NANS):
        state["1.bias"] = torch.full_like(state["1.bias"], torch.nan)
        if fault == NANS:
            outputs.fill_(torch.nan)
    elif fault == ROUNDED:
        outputs *= 1 + 1e-6
    elif fault == LACKS:
        del state["1.bias"]
    elif fault == MORE:
        state["2.weight"] = torch.ones(2)
    extra = {"notes": Hostile()} if fault == CODE else {}
    return {**document, "model": state, "outputs": outputs, **extra}


def _looked_at(model: Any, case: Case) -> Answer:
    if not isinstance(model, nn.Module):
        raise AnswerError(f"Return the model; yours is a {type(model).__name__}.")
    with undisturbed():
        outputs = model(case["fresh"])
    graph = "with a graph" if outputs.requires_grad else "without a graph"
    return {
        "outputs": outputs.detach(),
        "modes": [part.training for part in model.modules()],
        "graph": graph,
    }


def reference(path, make_model):
    """With the course's comparison of names and shapes."""
    document = torch.load(path, map_location="cpu", weights_only=True)
    model = make_model(**document["settings"])
    checkpoint.fit_weights(model, document["model"], path)
    model.eval().requires_grad_(False)
    gap = (model(document["inputs"]) - document["outputs"]).abs().max()
    if not gap <= CLOSE:
        raise ValueError(f"{path}: outputs are apart by {gap:.2g}")
    return model


def loaded(
    path,
    make_model,
    *,
    safe=True,
    strict=True,
    loose=False,
    eval_mode=True,
    top_only=False,
    frozen=True,
    check="close",
    error=ValueError,
):
    """A right answer; other options leave something out."""
    document = torch.load(path, weights_only=safe)
    model = make_model(**document["settings"])
    found = model.load_state_dict(document["model"], strict=strict and not loose)
    if loose and found.unexpected_keys:
        raise error(f"too many: {found.unexpected_keys}")
    if eval_mode:
        model.eval()
    if top_only:
        model.train()
        model.training = False
    if frozen:
        for parameter in model.parameters():
            parameter.requires_grad = False
    with torch.no_grad():
        apart = (model(document["inputs"]) - document["outputs"]).abs()
    agree = {
        "close": bool((apart <= CLOSE).all()),
        "not greater": not bool((apart > CLOSE).any()),
        "mean": bool(apart.mean() <= CLOSE),
        "rtol": torch.allclose(model(document["inputs"]), document["outputs"], atol=CLOSE),
        "allclose": torch.allclose(model(document["inputs"]), document["outputs"]),
        "first row": bool((apart[0] <= CLOSE).all()),
        "nan alike": torch.allclose(
            model(document["inputs"]), document["outputs"], rtol=0, atol=CLOSE, equal_nan=True
        ),
        "ten times": bool((apart <= 10 * CLOSE).all()),
        "classes": bool(
            (model(document["inputs"]).argmax(1) == document["outputs"].argmax(1)).all()
        ),
        "thousandth": bool((apart <= CLOSE / 1000).all()),
        "equal": bool((apart == 0).all()),
        "signed": bool((document["outputs"] - model(document["inputs"]) <= CLOSE).all()),
        "other sign": bool((model(document["inputs"]) - document["outputs"] <= CLOSE).all()),
        "never": True,
    }[check]
    if not agree:
        raise error("the outputs differ from those of the original")
    return model


def but(**options):
    """The same with other options."""

    def load_for_use(path, make_model):
        return loaded(path, make_model, **options)

    return load_for_use


def fixed_settings(path, make_model):
    return loaded(path, lambda **_: make_model(features=3, hidden=4, classes=3, norm=True))


def train_mode_afterwards(path, make_model):
    return loaded(path, make_model).train()


def grad_switched_off(path, make_model):
    torch.set_grad_enabled(False)
    return loaded(path, make_model, frozen=False)


def with_assert(path, make_model):
    return but(error=AssertionError)(path, make_model)


def not_loaded(path, make_model):
    document = torch.load(path, weights_only=True)
    model = make_model(**document["settings"]).eval().requires_grad_(False)
    return model


def sound_or_none(path, make_model):
    try:
        return loaded(path, make_model)
    except Exception:
        return None


def function_only(path, make_model):
    model = loaded(path, make_model)
    return lambda inputs: model(inputs)


def with_allclose(path, make_model):
    file = torch.load(path, weights_only=True, map_location="cpu")
    model = make_model(**file["settings"]).requires_grad_(False).eval()
    model.load_state_dict(file["model"])
    if not torch.allclose(model(file["inputs"]), file["outputs"], rtol=0, atol=1e-4):
        raise ValueError("not the same model")
    return model


def with_testing(path, make_model):
    with open(path, "rb") as opened:
        file = collections.OrderedDict(torch.load(opened, weights_only=True))
    model = make_model(**dict(file["settings"]))
    model.load_state_dict(file["model"], strict=True)
    model = model.train(False)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with torch.inference_mode():
        outputs = model(file["inputs"])
    try:
        torch.testing.assert_close(outputs, file["outputs"], rtol=0.0, atol=1e-4)
    except AssertionError as error:
        raise ValueError(str(error)) from None
    return model


def own_error(path, make_model):
    class NotTheSameError(ValueError):
        pass

    try:
        return but(error=NotTheSameError)(path, make_model)
    except NotTheSameError as fault:
        raise ValueError(*fault.args) from fault


EXERCISE = Exercise(
    id="03g.load",
    title="load a model for use, and trust nothing",
    source='Engineering module, §4; Lecture 3, "Save / load correctly"',
    ledger=("C35", "B28", "B29", "F106", "F107"),
    minutes=12,
    difficulty=2,
    read=("F107", "B29", "course.engine.load_weights"),
    hints=(
        "Four things can be wrong with a file from elsewhere. Which of them raise by themselves?",
        "A model for use is in eval mode, builds no graph, and gives the outputs stored in the "
        "file.",
        "weights_only=True, make_model(**settings), load_state_dict, eval(), requires_grad_(False);"
        " then raise ValueError unless every difference is at most 1e-4.",
    ),
    signature="load_for_use(path, make_model)",
    parts=(
        Part("outputs", "the original's outputs on new inputs", points=1, cases=3,
             fields=("outputs", "built")),
        Part("frozen", "eval mode in every module, and no graph", points=1,
             fields=("modes", "graph", "disturbed", "outputs")),
        Part("checked", "wrong outputs are refused, rounding differences are not", points=1,
             fields=("said", "outputs")),
        Part("safe", "a file with code in it", points=1, fields=("called", "said", "outputs")),
        Part("strict", "missing weights, or too many", points=1, hidden=True,
             fields=("said", "outputs")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "outputs": "the model's outputs on new inputs",
        "built": "whether make_model got the settings from the file",
        "modes": "train mode of each module",
        "graph": "the outputs",
        "said": "of the files tried, the one with",
        "called": "what was called while loading",
    },
    by_hand=(checkpoint.load, checkpoint.load_weights),
    wrong=(
        Wrong("train-mode", but(eval_mode=False, check="never"),
              "The model is in train mode: dropout drops, and BatchNorm takes the batch's mean. "
              "Call eval() on it."),
        Wrong("train-mode", lambda path, make_model: train_mode_afterwards(path, make_model)),
        Wrong("inner-modules", but(top_only=True, check="never"),
              "The model itself is in eval mode, but modules inside it are in train mode. eval() "
              "switches all of them."),
        Wrong("keeps-a-graph", but(frozen=False),
              "The outputs hold a graph, which costs memory. Switch off requires_grad for every "
              "parameter."),
        Wrong("not-checked", but(check="never"),
              "Outputs that differ by 3e-4 were accepted, and so was nan. Compute the outputs "
              "again from the file's inputs: each may differ by at most 1e-4."),
        Wrong("nan-accepted", but(check="not greater"),
              "Outputs of nan were accepted. Every comparison with nan is False: raise unless the "
              "difference is at most the limit."),
        Wrong("nan-alike", but(check="nan alike"),
              "A file was accepted whose outputs are nan, like the model's own. equal_nan=True "
              "treats nan as equal to nan, but such outputs prove nothing.", sure=True),
        Wrong("first-row", but(check="first row"),
              "A wrong last output was accepted, but a wrong first one was not. Compare all "
              "outputs."),
        Wrong("mean-difference", but(check="mean"),
              "Files were accepted in which one output is off by 3e-4. Every output counts: "
              "compare the largest difference with 1e-4, not the mean."),
        Wrong("relative-limit", but(check="rtol"),
              "An output of about 500 was accepted although it is off by 3e-4. allclose adds 1e-5 "
              "times the value to its limit: with rtol=0 and atol=1e-4 the limit is just 1e-4."),
        Wrong("relative-limit", but(check="allclose")),
        Wrong("one-sided", but(check="signed"),
              "An output that is off in one direction was accepted. Compare the absolute "
              "difference."),
        Wrong("one-sided", but(check="other sign")),
        Wrong("equal-only", but(check="equal"),
              "A file was refused whose outputs differ only by rounding. Another machine sums in a "
              "different order: allow 1e-4."),
        Wrong("equal-only", but(check="thousandth")),
        Wrong("another-exception", with_assert,
              "Wrong outputs were refused, but not with a ValueError."),
        Wrong("unsafe", but(safe=False),
              "Loading called a function that the file names. Read it with weights_only=True.",
              sure=True),
        Wrong("classes-alone", but(check="classes"),
              "Files were accepted in which an output is off by 3e-4 but the predicted class is "
              "the same. Compare the numbers."),
        Wrong("wide-limit", but(check="ten times"),
              "Files were accepted in which an output is off by 3e-4. The limit is 1e-4."),
        Wrong("missing-accepted", but(loose=True),
              "A file was accepted that lacks a weight: the model kept its initial value, and the "
              "outputs do not show it. load_state_dict raises an error if you leave strict at its "
              "default.",
              sure=True),
        Wrong("not-strict", but(strict=False),
              "A file that lacks weights, or has too many, was accepted. load_state_dict raises an "
              "error if you leave strict at its default."),
        Wrong("fixed-settings", fixed_settings),
        Wrong("not-loaded", not_loaded),
        Wrong("grad-switched-off", grad_switched_off),
        Wrong("sound-or-none", sound_or_none),
        Wrong("function-only", function_only),
    ),
    right=(but(), with_allclose, with_testing, own_error),
    tolerance={torch.float32: (1e-4, 1e-5)},
)  # fmt: skip
