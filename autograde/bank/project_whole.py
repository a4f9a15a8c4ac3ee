"""05.whole: from raw images to a run that can be resumed, judged and used.

The only exercise that asks a student's pieces together: their run is killed and resumed, and its
checkpoint is scored on objects that nobody trained on. The doctor looks at the set-up that trained,
as it was before the first update: 05.setup has seen the function, which may not be the one in use.

The digits are public. A model that keeps all of them and looks up the nearest passes for a trained
one; the class page names an answer that loads them, but not one that finds them in an earlier cell.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from autograde.apart import in_a_process
from autograde.bank import project_data, project_run, project_setup
from autograde.bank.harness import looking_after, read_safely, scratch
from autograde.exercise import (
    UNFIT,
    Answer,
    AnswerError,
    Case,
    Draw,
    Exercise,
    Part,
    Wrong,
    as_numbers,
    kept,
    seen,
)
from autograde.kinds.fix import variant
from course.data.retakes import takes
from course.debug import diagnose
from course.engine.schedules import schedule_length

OBJECTS, HELD_BACK = 260, 150
"""Objects to train and validate on, and others to be judged on: some 500 and 300 images."""
EPOCHS = 8
"""As many as a sound set-up takes from chance past the nearest mean on so few images."""
HALF = 0.5
"""How far the model must come from the most frequent class to the nearest mean. Sound set-ups on so
few images end near the nearest mean, in one run of sixty 3 standard errors below it; on 100 draws
none was below 0.8, and half of the way is 0.5. Without training, or with a rate far too high, 0.2.
"""
SHIFT, SCALE = 17.0, 1.5
"""By which mean and deviation of a folder's copy differ: enough to change what is answered."""

NO_UPDATE = (
    "'setup' holds an optimizer that has made no update: it is not the set-up that was trained."
)

THAT_OF_THE_FOLDER = "that of the folder it was given"
NOT_A_CLASS_EACH = "The model did not give one class for each of the images held back."


def draw(source: Draw, part: str) -> Case:
    """Takes of other digits for each case, and which class a digit is called; the rest of a run."""
    return {
        "part": part,
        "skip": source.integer(0, 1_797 - OBJECTS - HELD_BACK),
        "takes": source.integer(1, 10_000),
        "classes": source.shuffled(range(10)),
        "seed": source.integer(1, 10_000),
        "objects": OBJECTS if part == "held-back" else source.integer(70, 80),
        "epochs": EPOCHS if part == "held-back" else 3,
        "dies_after": source.integer(0, 1),
    }


class Run:
    """One folder, and the calls of a function that were made for it."""

    def __init__(self, function: Any, case: Case, folder: str) -> None:
        self.function, self.case, self.folder = function, case, Path(folder) / "run"
        self.raw = _trained_on(case)
        self.told: list[int] = []

    def call(self, *, dies_after: int | None = None) -> dict[str, Any] | None:
        """What one call returned; None if it was killed.

        Killed is its epoch `dies_after`, counted here: the function may number them otherwise.
        """
        before = len(self.told)

        def after_epoch(epoch: int) -> None:
            self.told.append(int(epoch))
            if dies_after is not None and len(self.told) - before == dies_after + 1:
                raise project_run.KilledError

        raw = (part.clone() for part in self.raw)
        try:
            returned = self.function(
                *raw, self.folder, self.case["seed"], self.case["epochs"], after_epoch
            )
        except project_run.KilledError:
            return None
        return _pieces(returned)

    def of_the_next_seed(self, folder: Path) -> dict[str, Any]:
        """What a call with another seed returns, for one epoch, in another folder."""
        raw = (part.clone() for part in self.raw)
        return _pieces(self.function(*raw, folder, self.case["seed"] + 1, 1, lambda _: None))


def _pieces(returned: Any) -> dict[str, Any]:
    """The dictionary, with a model and a function in it.

    Raises:
        AnswerError: A key is missing, or something of another kind stands under it.
    """
    keys = ("setup", "classify")
    if not isinstance(returned, dict) or not set(keys) <= set(returned):
        raise AnswerError(f"Return a dictionary with the keys {', '.join(keys)}; {seen(returned)}")
    setup = returned["setup"]
    if not isinstance(setup, dict) or not isinstance(setup.get("model"), nn.Module):
        raise AnswerError("'setup' must be the dictionary from make_setup whose model was trained.")
    if not callable(returned["classify"]):
        raise AnswerError("'classify' must be a function of (folder, images).")
    return returned


def run(function, case: Case, device: torch.device) -> Answer:
    """What the part asks about, on the CPU; a trainer may move the model."""
    killed = {}
    if case["part"] == "resumed":
        with scratch() as folder:  # which is gone before the whole run begins
            killed = _killed(Run(function, case, folder))
    with scratch() as folder:
        one = Run(function, case, folder)
        torch.default_generator.manual_seed(81)
        with _beginnings() as begun:
            found = one.call()
        if case["part"] == "files":
            return _files(one, found)
        if case["part"] == "held-back":
            return _held_back(one, found, begun)
        return _resumed(one, found, killed, begun)


def _files(one: Run, found: dict[str, Any]) -> Answer:
    """What is answered from the folder, and from copies with other weights, or another scale.

    All three lie side by side before the first question, the run's neither first nor last by name
    or time: what is not read from the folder that is handed over gives one of the others' answers.
    """
    images = _held(one.case).images
    model = found["setup"]["model"].cpu()
    _all_there(one.folder)
    weights, scale = (one.folder.parent / name for name in ("copy", "spare"))
    for copy in (weights, scale):
        shutil.copytree(one.folder, copy)
    best = read_safely(weights / "best.pt", map_location="cpu")
    trained = {name for name, _ in model.named_parameters()}
    best["model"] = {n: -v if n in trained else v for n, v in best["model"].items()}
    torch.save(best, weights / "best.pt")
    record = json.loads((scale / "run.json").read_text())
    noted = [record.get("seed"), (record.get("settings") or {}).get("epochs")]
    record["settings"]["mean"] += SHIFT
    record["settings"]["std"] *= SCALE
    (scale / "run.json").write_text(json.dumps(record))
    return {
        "from_the_run": kept(_agree, found, model, one.folder, images),
        "other_weights": kept(_agree, found, model, weights, images, one.folder),
        "other_scale": kept(_agree, found, model, scale, images, one.folder),
        "noted": "the same" if noted == [one.case["seed"], one.case["epochs"]] else f"{noted}",
        "split": kept(_same_objects, found, one),
    }


def _same_objects(found: dict[str, Any], one: Run) -> str:
    """Whether a run with another seed validates on the same images."""
    with scratch() as folder:
        both = found["setup"], one.of_the_next_seed(Path(folder) / "run")["setup"]
    if not all("val_loader" in setup for setup in both):
        raise AnswerError(
            "'setup' lacks val_loader: it must be the whole dictionary from make_setup."
        )
    first, second = (project_setup.joined(list(setup["val_loader"])) for setup in both)
    alike = first.shape == second.shape and torch.allclose(first.sum(0), second.sum(0), atol=1e-2)
    return "the same images" if alike else "different images"


def _agree(
    found: dict[str, Any], model: nn.Module, folder: Path, images: Tensor, run: Path | None = None
) -> str:
    """Whether the answers are those of best.pt's weights at the scale of run.json.

    Args:
        found: What the function returned.
        model: Of its set-up.
        folder: Handed to classify.
        images: The raw ones.
        run: The run's own folder, where `folder` is a changed copy of it.
    """
    right = by_the_files(model, folder, images)
    said = _said(found, folder, images)
    if not _as_good_as(_said(found, folder, images.flip(0)).flip(0), said):
        return "another once the images are in a different order"
    if _as_good_as(said, right):
        return THAT_OF_THE_FOLDER
    if run is not None and torch.equal(said, _said(found, run, images)):
        return "that of the folder before the change"
    others = (what for what, scaled in SCALES.items()
              if _as_good_as(said, by_the_files(model, folder, images, scaled=scaled)))  # fmt: skip
    follows = list(others)
    return f"one that follows {follows[0]}" if len(follows) == 1 else "another"


def _said(found: dict[str, Any], folder: Path, images: Tensor) -> Tensor:
    """The classes that classify gives."""
    given = found["classify"](folder, images.clone())
    if isinstance(given, Tensor):
        given = given.detach().cpu()
    said = torch.tensor(as_numbers(given, "the classes", "class indices, one per image"))
    if len(said) != len(images):
        raise AnswerError(f"'classify' returned {len(said)} classes for {len(images)} images.")
    return said


def _as_good_as(said: Tensor, right: Tensor) -> bool:
    """Whether classes are the same but for one: a tie may fall on either side."""
    return bool((said != right).sum() <= 1)


def normalised(images: Tensor, settings: dict[str, Any]) -> Tensor:
    """What a model is given: raw images less the run's mean, by its deviation."""
    return (images.float() - settings["mean"]) / settings["std"]


SCALES = {
    "the raw images": lambda images, settings: images.float(),
    "images divided by 255": lambda images, settings: normalised(images / 255, settings),
    "the mean and std of the images themselves": lambda images, settings: (
        (images.float() - images.float().mean()) / images.float().std()
    ),
}
"""Ways to scale that are wrong, and are said where exactly one of them gives all the answers."""


def by_the_files(
    model: nn.Module,
    folder: Path,
    images: Tensor,
    state: dict[str, Tensor] | None = None,
    scaled: Callable[[Tensor, dict[str, Any]], Tensor] = normalised,
) -> Tensor:
    """The course's own way from a folder to classes; with other weights or another scale, if given.

    Raises:
        AnswerError: The folder lacks what is needed.
    """
    _all_there(folder)
    settings = json.loads((folder / "run.json").read_text()).get("settings") or {}
    held = torch.load(folder / "best.pt", map_location="cpu", weights_only=True)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    mode = model.training
    try:
        model.load_state_dict(held["model"] if state is None else state)
        model.eval()
        with torch.no_grad():
            return model(scaled(images, settings).unsqueeze(1)).argmax(dim=1)
    except (KeyError, TypeError, RuntimeError) as fault:
        text = f"{type(fault).__name__}: {fault}".splitlines()[0][:80]
        raise AnswerError(f"best.pt and run.json do not match the set-up's model: {text}") from None
    finally:
        model.load_state_dict(before)
        model.train(mode)


def _all_there(folder: Path) -> None:
    for name in ("best.pt", "run.json"):
        if not (folder / name).is_file():
            raise AnswerError(f"There is no {name} in the folder after the run has finished.")


def _trained_on(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """The run's images, labels and groups: classes and objects are not numbered as in the files."""
    found = takes(case["objects"], name="digits", skip=case["skip"], seed=case["takes"])
    return found.images, _called(case, found.labels), found.groups.unique(return_inverse=True)[1]


def _called(case: Case, digits: Tensor) -> Tensor:
    return torch.tensor(case["classes"], dtype=digits.dtype)[digits.long()]


def _held(case: Case) -> Any:
    """Takes of objects that the run has not seen: those after its own."""
    return takes(HELD_BACK, name="digits", skip=case["skip"] + case["objects"], seed=case["takes"])


Begun = dict[int, tuple[list[list[Tensor]], list[dict[str, Any]]]]
"""By an optimizer's id, its groups' weights and settings before its first update."""


@contextmanager
def _beginnings() -> Iterator[Begun]:
    """What every optimizer began with."""
    begun: Begun = {}

    def note(optimizer: Optimizer, *_: Any) -> None:
        if id(optimizer) not in begun:
            groups = optimizer.param_groups
            begun[id(optimizer)] = (
                [[weight.detach().clone() for weight in group["params"]] for group in groups],
                [{k: v for k, v in group.items() if k != "params"} for group in groups],
            )

    handle = register_optimizer_step_pre_hook(note)
    try:
        yield begun
    finally:
        handle.remove()


def _findings(setup: dict[str, Any], begun: Begun, one: Run) -> list[str]:
    """What is wrong with the set-up that trained, by 05.setup's rules and the doctor's errors.

    The optimizer is taken back to where its first update began. A warning may be the split's
    chance on so few images; a schedule is at its end, and only its length is looked at.
    """
    lacking = [key for key in project_setup.KEYS if key not in setup]
    if lacking or id(setup["optimizer"]) not in begun:
        raise AnswerError(
            f"'setup' lacks {lacking[0]}: it must be the whole dictionary from make_setup."
            if lacking
            else NO_UPDATE
        )
    as_it_was = looking_after(one.function)
    found = [f"{name} does not train" for name in project_setup.untrained(setup)]
    first, second = (project_setup.joined(list(setup["train_loader"])) for _ in range(2))
    if torch.equal(first, second):
        found.append("every epoch has the same order")
    _begin_again(setup["optimizer"], *begun[id(setup["optimizer"])])
    classes = int(one.raw[1].max()) + 1
    report = diagnose({key: setup[key] for key in project_setup.KEYS} | {"num_classes": classes})
    as_it_was()
    found += [finding.id for finding in report.findings if finding.severity == "error"]
    return found + _schedule_of(setup, one.case["epochs"])


def _begin_again(
    optimizer: Optimizer, weights: list[list[Tensor]], settings: list[dict[str, Any]]
) -> None:
    """Weights and settings of before the first update, and nothing remembered."""
    optimizer.state.clear()
    for group, values, was in zip(optimizer.param_groups, weights, settings, strict=True):
        group.update(was)
        with torch.no_grad():
            for weight, value in zip(group["params"], values, strict=True):
                weight.copy_(value)


def _schedule_of(setup: dict[str, Any], epochs: int) -> list[str]:
    """A schedule of another length than the run, where torch tells its length."""
    scheduler = setup.get("scheduler")
    length = None if scheduler is None else schedule_length(scheduler)
    planned = epochs * (len(setup["train_loader"]) if setup.get("schedule_per") == "update" else 1)
    if length is None or abs(length - planned) <= 1:
        return []
    return [f"a schedule of {length} steps in a run of {planned}"]


def _held_back(one: Run, found: dict[str, Any], begun: Begun) -> Answer:
    """What best.pt says of the objects held back, and the set-up's weights at either end."""
    images, model = _held(one.case).images, found["setup"]["model"].cpu()
    last = model.state_dict()
    return {
        "score": by_the_files(model, one.folder, images),
        "trained": by_the_files(model, one.folder, images, last),
        "learnt": kept(_at_first, found["setup"], begun, one.folder, images),
    }


def _at_first(setup: dict[str, Any], begun: Begun, folder: Path, images: Tensor) -> Tensor:
    """What the model says with the weights of before the first update."""
    optimizer = setup.get("optimizer")
    if id(optimizer) not in begun:
        raise AnswerError(NO_UPDATE)
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    values = [value for group in begun[id(optimizer)][0] for value in group]
    at_first = {id(weight): value.cpu() for weight, value in zip(weights, values, strict=True)}
    named = {name: at_first.get(id(p), p) for name, p in setup["model"].named_parameters()}
    return by_the_files(setup["model"], folder, images, {**setup["model"].state_dict(), **named})


def scored(answer: Answer, case: Case) -> Answer:
    """Whether the checkpoint is worth its training: nearer to the nearest mean than to chance."""
    if case["part"] != "held-back":
        return answer
    from sklearn.neighbors import NearestCentroid

    held, (images, labels, _) = _held(case), _trained_on(case)
    right = _called(case, held.labels)
    bar = NearestCentroid().fit(images.flatten(1).numpy(), labels.numpy())
    mean = float(bar.score(held.images.flatten(1).numpy(), right.numpy()))
    chance = right.bincount().max().item() / len(right)
    least = chance + HALF * (mean - chance)

    def read(field: str, words: Callable[[float], str]) -> Any:
        said = answer.get(field)
        if isinstance(said, Tensor) and said.shape == right.shape:
            return words((said.cpu() == right).double().mean().item())
        unfit = isinstance(said, dict) and UNFIT in said
        return said if unfit else {UNFIT: NOT_A_CLASS_EACH}

    return {
        "score": read("score", lambda x: "enough" if x >= least else f"{x:.3f}, below {least:.3f}"),
        "trained": read("trained", lambda x: "enough" if x >= least else "too low"),
        "learnt": read("learnt", lambda x: "low" if x < least else f"already {x:.3f}"),
    }


def _of_a_process(one: Run, seed: int, dies_after: int | None) -> tuple[list[int], Any]:
    """The epochs told in one call, and the weights that it ends with; None if it was killed."""
    torch.default_generator.manual_seed(seed)
    found = one.call(dies_after=dies_after)
    return one.told, None if found is None else found["setup"]["model"].cpu().state_dict()


def _killed(other: Run) -> Answer:
    """A run that is killed, and called again as a new process: it knows what is in its folder."""
    dies_after = other.case["dies_after"]
    first, ended = in_a_process(partial(_of_a_process, other, 82, dies_after), other.folder)
    other.told = list(first)
    told, weights = in_a_process(partial(_of_a_process, other, 83, None), other.folder)
    return {"first": first, "ended": ended, "second": told[len(first) :], "weights": weights,
            "best": _best(other)}  # fmt: skip


ENDS = "its end"
"""What an exception does to a call; the exception stands for a kill."""


def _resumed(one: Run, found: dict[str, Any], killed: Answer, begun: Begun) -> Answer:
    """The run that was killed and called again in a folder of its own, against the whole one."""
    ended = ENDS if killed["ended"] is None else "none: it continues"
    return {
        "killed": ended if killed["first"] else "unknown, as it is never called",
        "epochs": [killed["first"], killed["second"]],
        "weights": _same(found["setup"]["model"].state_dict(), killed["weights"]),
        "best": _same(_best(one), killed["best"]),
        "findings": kept(_findings, found["setup"], begun, one),
    }  # fmt: skip


def _best(one: Run) -> dict[str, Tensor]:
    _all_there(one.folder)
    held = read_safely(one.folder / "best.pt", map_location="cpu")
    return held.get("model", {}) if isinstance(held, dict) else {}


def _same(first: dict[str, Tensor], second: dict[str, Tensor]) -> str:
    if set(first) != set(second):
        return "other names"
    apart = [(first[name].cpu().double() - second[name].cpu().double()).abs().max().item()
             for name in first if first[name].numel()]  # fmt: skip
    return "the same bits" if not any(apart) else f"apart by {max(apart):.1g}"


WHOLE = """
def whole_run(images, labels, groups, folder, seed, epochs, after_epoch):
    import json
    from pathlib import Path
    from autograde.bank.project_data import with_a_mask as make_data
    from autograde.bank.project_run import by_hand as train
    from autograde.bank.project_setup import with_dropout_and_smoothing as make_setup
    data, made = make_data(images, labels, groups, seed), []

    def kept(data, seed, epochs):
        made.append(make_setup(data, seed, epochs))
        return made[-1]

    train(kept, data, folder, seed, epochs, after_epoch)

    def classify(folder, images):
        model = make_setup(data, seed, epochs)["model"]
        held = torch.load(Path(folder) / "best.pt", weights_only=True)
        model.load_state_dict(held["model"])
        settings = json.loads((Path(folder) / "run.json").read_text())["settings"]
        inputs = (images.float().unsqueeze(1) - settings["mean"]) / settings["std"]
        model.eval()
        with torch.no_grad():
            return model(inputs).argmax(dim=1)

    return {"setup": made[-1], "classify": classify}
"""
edited = partial(variant, WHOLE, __file__)
plain = edited()


def reference(images, labels, groups, folder, seed, epochs, after_epoch) -> dict[str, Any]:
    """The course's split and the loop written out."""
    return plain(images, labels, groups, folder, seed, epochs, after_epoch)


def _in_a_row(images, labels, groups, folder, seed, epochs, after_epoch, *, made_by, train, make):
    data = make(images, labels, groups, seed)
    setup: dict[str, Any] = {}

    def kept_setup(data, seed, epochs):
        setup.update(made_by(data, seed, epochs))
        return setup

    train(kept_setup, data, folder, seed, epochs, after_epoch)

    def classify(folder, images):
        from course.engine import load_weights, read_run

        model = made_by(data, seed, epochs)["model"]
        load_weights(model, Path(folder) / "best.pt")
        scale = read_run(folder).content["settings"]
        model.eval()
        with torch.inference_mode():
            inputs = (images[:, None].float() - scale["mean"]) / scale["std"]
            return [int(row.argmax()) for row in model(inputs)]

    return {"classify": classify, "setup": setup}


def with_the_engine(images, labels, groups, folder, seed, epochs, after_epoch):
    return _in_a_row(images, labels, groups, folder, seed, epochs, after_epoch,
                     make=project_data.in_numpy, made_by=project_setup.plain,
                     train=project_run.with_the_engine)  # fmt: skip


def with_a_convolution(images, labels, groups, folder, seed, epochs, after_epoch):
    return _in_a_row(images, labels, groups, folder, seed, epochs, after_epoch,
                     make=project_data.with_scikit_learn, made_by=project_setup.with_a_convolution,
                     train=project_run.with_the_engine)  # fmt: skip


class _Neighbours(nn.Module):
    """Says of an image what the most similar one of the training images is called."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        super().__init__()
        self.register_buffer("images", images)
        self.register_buffer("labels", labels)
        self.unused = nn.Parameter(torch.zeros(10))

    def forward(self, inputs: Tensor) -> Tensor:
        nearest = torch.cdist(inputs.flatten(1), self.images).argmin(1)
        return nn.functional.one_hot(self.labels[nearest], 10) + self.unused


def nearest_neighbour(images, labels, groups, folder, seed, epochs, after_epoch):
    """Nothing is trained; its updates change a weight that does no harm."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    model = _Neighbours(images.flatten(1).float(), labels.long())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    model(images.unsqueeze(1).float()).sum().backward()
    for epoch in range(epochs):
        optimizer.step()
        after_epoch(epoch)
    torch.save({"model": model.state_dict()}, folder / "best.pt")
    settings = {"epochs": epochs, "mean": 0.0, "std": 1.0}
    (folder / "run.json").write_text(json.dumps({"seed": seed, "settings": settings}))
    return {"setup": {"model": model, "optimizer": optimizer}, "classify": lambda *_: labels}


RUN = "train(kept, data, folder, seed, epochs, after_epoch)"
LOADED = '        model.load_state_dict(held["model"])\n'
SCALED = '(images.float().unsqueeze(1) - settings["mean"]) / settings["std"]'
FRESH = 'make_setup(data, seed, epochs)["model"]'
MADE = "made.append(make_setup(data, seed, epochs))"

WRONG = (
    ("weights-of-the-run", edited((LOADED, ""), (FRESH, 'made[-1]["model"]')),
     "A copy of the folder has different weights in best.pt, but classify did not answer with "
     "them. Load best.pt from the folder that classify is given, not last.pt or the weights that "
     "the run ended with."),
    ("weights-of-the-run", edited((RUN, "first = Path(folder); " + RUN),
                                  ('Path(folder) / "best.pt"', 'first / "best.pt"')), ""),
    ("never-loaded", edited((LOADED, "")), ""),
    ("scale-of-the-run", edited((SCALED, SCALED.replace("settings", "data"))),
     "A copy of the folder has a different mean and std in run.json, but classify answered as "
     "before. Take both from the record in the folder that classify is given."),
    ("not-normalised", edited((SCALED, "images.float().unsqueeze(1)")),
     "The model was given raw images, but it learnt from normalised ones. mean and std are in the "
     "folder's run.json."),
    ("other-unit", edited((SCALED, SCALED.replace("unsqueeze(1)", "unsqueeze(1).div(255)"))),
     "Nearly all images got the same class, as happens if they are divided by 255 before they are "
     "normalised: mean and std in run.json are those of raw values. Does the answer depend on the "
     "images at all?"),
    ("scale-of-the-run", edited((SCALED, "images.float().sub(images.float().mean()).div("
                                          "images.float().std()).unsqueeze(1)")), ""),
    ("train-mode", edited(("        model.eval()\n", "")),
     "The same images in reverse order got different classes, as in train mode, where dropout "
     "draws and BatchNorm looks at the batch. Call eval() on the model first."),
    ("gives-logits", edited(("model(inputs).argmax(dim=1)", "model(inputs)")), ""),
    ("starts-again", edited((RUN, "import shutil; shutil.rmtree(folder, True); " + RUN)),
     "A killed run started again from its first epoch. Pass the folder to train unchanged."),
    ("another-folder", edited((RUN, RUN.replace("folder", "str(folder) + '-run'"))),
     ""),
    ("one-epoch", edited((RUN, RUN.replace("epochs", "1"))),
     "The run ended after its first epoch, whatever epochs says. Pass epochs to train unchanged."),
    ("never-told", edited((RUN, RUN.replace("after_epoch", "id"))),
     "after_epoch was never called. Pass it to train."),
    ("caught", edited((RUN, f"try:\n        {RUN}\n    except Exception:\n        "
                       f"{RUN.replace('after_epoch', 'id')}")),
     "after_epoch raised an exception, but the call continued. The exception stands for the kill: "
     "do not catch it."),
    ("caught", edited((RUN, f"try:\n        {RUN}\n    except Exception:\n        pass")), ""),
    ("set-up-made-again", edited(('"setup": made[-1], ',
                                  '"setup": make_setup(data, seed, epochs), ')),
     "best.pt has learnt, but the model in 'setup' answers as if it had not. Return the set-up "
     "that was trained, not a new one."),
    ("split-drawn-again", edited(("make_data(images, labels, groups, seed), []",
                                  "make_data(images, labels, groups, "
                                  "int(torch.randint(10**6, ()))), []")), ""),
    ("split-of-one-seed", edited(("make_data(images, labels, groups, seed), []",
                                  "make_data(images, labels, groups, 0), []")),
     "Two runs with different seeds validate on the same images. The seed draws the objects that "
     "validate: pass it to make_data as well."),
    ("seed-drawn-again", edited((RUN, RUN.replace("seed", "int(torch.randint(10**6, ()))"))), ""),
    ("never-trained", edited((MADE, MADE + "; made[-1]['optimizer'].param_groups[0]['lr'] = 0.0; "
                              "made[-1]['scheduler'].base_lrs = [0.0]")),
     ""),
    ("nearest-neighbour", nearest_neighbour,
     "The model answers as well with the weights of before the first update: none of it was "
     "learnt. Train a network from random weights."),
    ("far-too-fast", edited((MADE, MADE + "; made[-1]['optimizer'].param_groups[0]['lr'] = 3.0; "
                             "made[-1]['scheduler'].base_lrs = [3.0]")), ""),
    ("validates-on-training", edited((MADE, MADE + "; made[-1]['val_loader'] = "
                                      "made[-1]['train_loader']")), ""),
    ("weights-of-the-run", edited(('Path(folder) / "best.pt"',
                          'sorted(Path(folder).parent.rglob("best.pt"))[-1]')),
     ""),
    ("looked-up", edited(('Path(folder) / "best.pt"',
                          'sorted(Path(folder).parent.rglob("best.pt"))[0]')), ""),
    ("another-seed", edited((RUN, RUN.replace("seed", "seed + 1"))),
     "run.json has a different seed from the one that whole_run was given, or different epochs. "
     "Pass both to train unchanged."),
    ("no-setup", edited(('"setup": made[-1], ', "")), ""),
)  # fmt: skip
SURE = (
    "starts-again",
    "never-told",
    "one-epoch",
    "weights-of-the-run",
    "scale-of-the-run",
    "train-mode",
    "not-normalised",
    "other-unit",
    "another-seed",
    "split-of-one-seed",
    "caught",
    "set-up-made-again",
)
"""Their traces are names of epochs and of files: no accident gives the same."""

EXERCISE = Exercise(
    id="05.whole",
    title="from raw images to a run that others can use",
    source='Lecture 3, "Saving and loading"; engineering module, lab 6',
    ledger=("X09", "X11", "T25", "T39", "F110"),
    minutes=20,
    difficulty=2,
    read=("course.engine.read_run", "T25"),
    hints=(
        "You need three calls in a row, and an inner function that you return. Which of the three "
        "calls makes the set-up, and how do you get hold of it?",
        "train accepts any function as make_setup: pass it one that keeps what it makes, as the "
        "cell after 05.run does.",
        "classify: model = make_setup(...)['model']; torch.load(folder / 'best.pt')['model'] are "
        "its weights; read_run(folder).content['settings'] has 'mean' and 'std'; model.eval(); "
        "argmax(dim=1).",
    ),
    signature="whole_run(images, labels, groups, folder, seed, epochs, after_epoch)",
    parts=(
        Part("files", "answers from the folder alone; seed and epochs passed on", points=1,
             cases=1, fields=("from_the_run", "other_weights", "other_scale", "noted", "split")),
        Part("resumed", "killed, and called again: the same bits, from a sound set-up", points=1,
             cases=1, hidden=True, fields=("killed", "epochs", "weights", "best", "findings")),
        Part("held-back", "best.pt on objects that the run has not seen", points=1, cases=1,
             hidden=True, fields=("score", "trained", "learnt")),
    ),
    reference=reference,
    draw=draw,
    run=run,
    scored=scored,
    says={
        "from_the_run": "classify's answer",
        "other_weights": "with different weights in best.pt, classify's answer",
        "other_scale": "with a different mean and std in run.json, classify's answer",
        "noted": "seed and epochs in run.json, compared with those passed in,",
        "split": "what a run with another seed validates on",
        "findings": "the faults of the trained set-up, including the doctor's findings",
        "killed": "the effect on a call of an exception from after_epoch",
        "epochs": "the epochs that after_epoch was called with, before and after the kill,",
        "weights": "the model's last weights, resumed and in one go",
        "best": "the weights in best.pt, resumed and in one go",
        "score": "the accuracy of best.pt on held-back objects",
        "trained": "the accuracy of the set-up's model on them, after its last epoch,",
        "learnt": "its accuracy on them with the weights of before the first update",
    },
    wrong=tuple(
        Wrong(name, function, message, sure=name in SURE) for name, function, message in WRONG
    ),
    right=(plain, with_the_engine, with_a_convolution),
)  # fmt: skip
