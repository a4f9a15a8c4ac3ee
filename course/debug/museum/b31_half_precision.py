"""B31: in float16 a small gradient becomes zero, and earlier layers get no gradient.

The loss has a small weight, as one of several losses in a sum may have, and its gradients fall
below 6e-8, the smallest number of float16. The scaler multiplies the loss before backward and
divides the gradients before the step, so that nothing is lost in between. The learning rate makes
up for the small weight.
"""

import torch

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits

WEIGHT = 1e-6


def make(bug):
    setup = digits(lr=0.1 / WEIGHT)
    model, optimizer, whole = setup["model"], setup["optimizer"], setup["loss_fn"]
    setup["loss_fn"] = lambda outputs, targets: WEIGHT * whole(outputs.float(), targets)
    scaler = torch.amp.GradScaler("cpu", enabled=not bug)
    zeros = []

    def train_step(batch):
        inputs, targets = batch
        model.train()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.float16):
            outputs = model(inputs)
        loss = setup["loss_fn"](outputs, targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        grads = torch.cat([p.grad.flatten() for p in model.parameters()])
        zeros.append(float((grads == 0).float().mean()))
        scaler.step(optimizer)
        scaler.update()
        return loss.item() / WEIGHT

    return setup | {"train_step": train_step, "scaler": scaler, "zeros": zeros}


def share_of_zeros(run: ExhibitRun) -> float:
    return run.setup["zeros"][0]


EXHIBIT = Exhibit(
    id="B31", title="gradients lost in float16", names=("fp16-underflow",), make=make,
    symptom="share of gradients that are zero in the first step", measure=share_of_zeros,
    shows=lambda x: x > 0.5,
    trace=lambda run: run.setup["zeros"], trace_label="share of gradients that are zero",
    scaled="the loss is multiplied by 1e-6 and the learning rate by 1e6, so that float16 loses "
    "gradients within a short run on digits",
)  # fmt: skip
