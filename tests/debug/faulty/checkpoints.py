"""Bugs of saving and loading: by reference, without a part, in another mode, as foreign types."""

import copy

from tests.debug.faulty.kit import pair, parts, plain, torch, whole


def kept(s):
    """What a whole checkpoint holds."""
    state = {"model": s["model"].state_dict(), "optimizer": s["optimizer"].state_dict()}
    if s.get("scheduler") is not None:
        state["scheduler"] = s["scheduler"].state_dict()
    return state


def restore(s, state, without=()):
    for name, value in state.items():
        if name not in without:
            s[name].load_state_dict(value)


@pair("checkpoint-by-reference", style=["mlp", "cnn"])
def best_is_an_alias(bug, style):
    s = whole(parts(style))
    own = s["model"]
    return s | {
        "save": lambda: own.state_dict() if bug else copy.deepcopy(own.state_dict()),
        "load": own.load_state_dict,
    }


@pair("checkpoint-incomplete", what=["Adam", "momentum", "scheduler"])
def a_part_is_left_out(bug, what):
    words = {"momentum": 0.9} if what == "momentum" else {}
    s = parts("mlp", 0.01, "Adam" if what == "Adam" else "SGD", words=words)
    inner = plain(s)
    if what == "scheduler":
        s["scheduler"] = torch.optim.lr_scheduler.ExponentialLR(s["optimizer"], 0.999)
        s["declared"] = {"scheduler_unit": "batch"}

    def train_step(batch):
        loss = inner(batch)
        if what == "scheduler":
            s["scheduler"].step()
        return loss

    left = ("scheduler",) if what == "scheduler" else ("optimizer",)
    return s | {
        "train_step": train_step,
        "save": lambda: copy.deepcopy(kept(s)),
        "load": lambda state: restore(s, state, left if bug else ()),
    }


@pair("checkpoint-incomplete")
def only_parameters_are_saved(bug):
    """Batch norm's running statistics are no parameters."""
    s = parts("cnn")
    model = s["model"]

    def save(path):
        of = dict(model.named_parameters()) if bug else model.state_dict()
        torch.save({"model": of, "optimizer": s["optimizer"].state_dict()}, path)

    def load(path):
        state = torch.load(path, weights_only=True)
        model.load_state_dict(state["model"], strict=not bug)
        s["optimizer"].load_state_dict(state["optimizer"])

    return whole(s) | {"save": save, "load": load}


@pair("checkpoint-incomplete")
def names_that_do_not_fit(bug):
    """A prefix of a wrapper in every name, and strict=False that says nothing."""
    s = whole(parts("mlp"))
    model = s["model"]
    prefix = "module." if bug else ""

    def save():
        return {prefix + k: v.clone() for k, v in model.state_dict().items()}

    def load(state):
        model.load_state_dict(state, strict=False)

    return s | {"save": save, "load": load}


@pair("checkpoint-changes-model", when=["save", "load"])
def left_in_eval_mode(bug, when):
    s = parts("mlp")
    model, inner = s["model"], s["optimizer"]

    def train_step(batch):
        inner.zero_grad()
        loss = s["loss_fn"](model(batch[0]), batch[1])
        loss.backward()
        inner.step()
        return loss.item()

    def save():
        was = model.training
        model.eval()
        state = copy.deepcopy(kept(s))
        model.train(was if not (bug and when == "save") else False)
        return state

    def load(state):
        restore(s, state)
        if bug and when == "load":
            model.eval()

    return s | {"train_step": train_step, "save": save, "load": load}


@pair("checkpoint-refused")
def foreign_types_in_the_file(bug):
    from pathlib import PurePosixPath

    s = whole(parts("mlp"))

    def save(path):
        folder = PurePosixPath("runs/first")
        torch.save(kept(s) | {"folder": folder if bug else str(folder)}, path)

    def load(path):
        state = torch.load(path, weights_only=False)
        restore(s, {k: v for k, v in state.items() if k != "folder"})

    return s | {"save": save, "load": load}


@pair("checkpoint-incomplete")
def optimizer_made_anew(bug):
    """load() builds another Adam with empty memory, and the step uses that one."""
    s = parts("mlp", 0.01, "Adam")
    now = {"optimizer": s["optimizer"]}

    def train_step(batch):
        s["model"].train()
        now["optimizer"].zero_grad()
        loss = s["loss_fn"](s["model"](batch[0]), batch[1])
        loss.backward()
        now["optimizer"].step()
        return loss.item()

    def load(state):
        s["model"].load_state_dict(state["model"])
        now["optimizer"] = torch.optim.Adam(s["model"].parameters(), 0.01)
        if not bug:
            now["optimizer"].load_state_dict(state["optimizer"])

    return s | {"train_step": train_step, "save": lambda: copy.deepcopy(kept(s)), "load": load}
