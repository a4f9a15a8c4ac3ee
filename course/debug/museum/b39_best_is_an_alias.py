"""B39: state_dict() holds the living weights; the best kept in memory becomes the last."""

import copy

from course.debug.museum.exhibit import Exhibit, Run, digits, healthy_step


def make(bug):
    setup = digits()
    model = setup["model"]
    inner, best = healthy_step(setup), {"loss": float("inf"), "state": {}}

    def train_step(batch):
        loss = inner(batch)
        if loss < best["loss"]:
            state = model.state_dict()
            kept = {name: value.detach().clone() for name, value in state.items()}
            best.update(loss=loss, state=state if bug else copy.deepcopy(state), then=kept)
        return loss

    return setup | {"train_step": train_step, "best": best}


def best_moved(run: Run) -> float:
    """Largest change of a weight of the best since it was kept."""
    best = run.setup["best"]
    return max(
        float((best["state"][name] - then).abs().max()) for name, then in best["then"].items()
    )


EXHIBIT = Exhibit(
    id="B39", title="the best in memory is an alias", make=make,
    why_not="what a loop keeps for itself is not in the set-up; comparing the score of the best "
    "with the one it was kept for tells.",
    mend="best = copy.deepcopy(model.state_dict())",
    symptom="largest change of a weight of the best since it was kept", measure=best_moved,
    shows=lambda x: x > 0,
)  # fmt: skip
