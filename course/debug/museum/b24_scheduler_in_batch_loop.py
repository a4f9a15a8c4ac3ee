"""B24: a schedule meant for epochs is stepped every batch, and the rate is soon near zero (N27)."""

import torch

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits, healthy_step


def make(bug):
    setup = digits()
    setup["scheduler"] = torch.optim.lr_scheduler.StepLR(setup["optimizer"], 5, gamma=0.1)
    inner, rates = healthy_step(setup), []
    length = len(setup["train_loader"])

    def train_step(batch):
        rates.append(setup["optimizer"].param_groups[0]["lr"])
        loss = inner(batch)
        if bug or len(rates) % length == 0:
            setup["scheduler"].step()
        return loss

    return setup | {"train_step": train_step, "rates": rates}


def last_rate(run: ExhibitRun) -> float:
    return run.setup["rates"][-1]


EXHIBIT = Exhibit(
    id="B24", title="per-epoch schedule stepped every batch", names=("scheduler-misplaced",),
    make=make, symptom="learning rate after 150 steps", measure=last_rate,
    shows=lambda x: x < 1e-6,
    trace=lambda run: run.setup["rates"], trace_label="learning rate",
)  # fmt: skip
