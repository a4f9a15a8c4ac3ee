"""B07: loss tensors are kept for the log, and each keeps its graph."""

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits


def make(bug):
    setup, kept = digits(), []

    def train_step(batch):
        inputs, targets = batch
        setup["model"].train()
        setup["optimizer"].zero_grad()
        loss = setup["loss_fn"](setup["model"](inputs), targets)
        loss.backward()
        setup["optimizer"].step()
        kept.append(loss if bug else loss.detach())
        return loss.item()

    return setup | {"train_step": train_step, "kept": kept}


def graphs(run: ExhibitRun) -> float:
    return float(sum(loss.grad_fn is not None for loss in run.setup["kept"]))


EXHIBIT = Exhibit(
    id="B07", title="graph tensors kept for the log", names=("undetached-logging",), make=make,
    symptom="graphs still held after 150 steps", measure=graphs, shows=lambda x: x > 100,
)  # fmt: skip
