"""B05: after the first validation the model stays in eval mode, and dropout is off for good."""

import torch

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits


def make(bug):
    setup = digits()
    model = setup["model"]
    asleep = []

    def evaluate():
        total, count = 0.0, 0
        model.eval()
        with torch.no_grad():
            for inputs, targets in setup["val_loader"]:
                total += setup["loss_fn"](model(inputs), targets).item() * len(targets)
                count += len(targets)
        return {"val_loss": total / count}

    def train_step(batch):
        inputs, targets = batch
        if not bug:
            model.train()
        asleep.append(float(not model.training))
        setup["optimizer"].zero_grad()
        loss = setup["loss_fn"](model(inputs), targets)
        loss.backward()
        setup["optimizer"].step()
        if len(asleep) % 20 == 0:
            evaluate()
        return loss.item()

    return setup | {"train_step": train_step, "evaluate": evaluate, "asleep": asleep}


def share_asleep(run: ExhibitRun) -> float:
    return sum(run.setup["asleep"]) / len(run.setup["asleep"])


EXHIBIT = Exhibit(
    id="B05", title="never switched back to train "
                    "mode", names=("eval-mode-in-training",), make=make,
    symptom="share of training steps made in eval mode", measure=share_asleep,
    shows=lambda x: x > 0.5,
    trace=lambda run: run.setup["asleep"], trace_label="1: the step is made in eval mode",
)  # fmt: skip
