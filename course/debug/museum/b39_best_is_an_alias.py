"""B39: state_dict() refers to the live weights, so the best kept in memory becomes the last."""

import copy

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits, healthy_step


def make(bug):
    setup = digits()
    model = setup["model"]
    inner, best = healthy_step(setup), {"loss": float("inf"), "state": {}}

    def train_step(batch):
        loss = inner(batch)
        if loss < best["loss"]:
            best.update(loss=loss, state=save(), then=copy.deepcopy(model.state_dict()))
        return loss

    def save():
        return model.state_dict() if bug else copy.deepcopy(model.state_dict())

    return setup | {"train_step": train_step, "best": best,
                    "save": save, "load": model.load_state_dict}  # fmt: skip


def best_moved(run: ExhibitRun) -> float:
    """Largest change of a weight in the kept best state since it was kept."""
    best = run.setup["best"]
    return max(
        float((best["state"][name] - then).abs().max()) for name, then in best["then"].items()
    )


EXHIBIT = Exhibit(
    id="B39", title="the best in memory is an alias", make=make,
    names=("checkpoint-by-reference",),
    mend="best = copy.deepcopy(model.state_dict())",
    symptom="largest change of a weight in the kept best state since it was "
            "kept", measure=best_moved,
    shows=lambda x: x > 0,
)  # fmt: skip
