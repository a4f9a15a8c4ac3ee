"""B41: the checkpoint is chosen by the test set, and its score there is reported.

Every label of validation and test is drawn at random, so no network can do better than one in ten:
whatever is reported above the mean of all checkpoints comes from choosing alone. One draw of labels
says little about that, so 200 are judged side by side and their gains averaged.
"""

import torch

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits, healthy_step

DRAWINGS = 200


def make(bug):
    setup = digits()
    pictures = setup["val_loader"].dataset.tensors[0]
    labels = torch.randint(10, (DRAWINGS, len(pictures)))
    inner, scores = healthy_step(setup), []

    def train_step(batch):
        loss = inner(batch)
        right = (predicted(setup["model"], pictures) == labels).float()
        scores.append((right[:, ::2].mean(1), right[:, 1::2].mean(1)))  # validation, test
        return loss

    return setup | {"train_step": train_step, "scores": scores, "by_test": bug}


def predicted(model, pictures):
    model.eval()
    with torch.no_grad():
        return model(pictures).argmax(1)


def gain_so_far(run: ExhibitRun) -> list[float]:
    """After each step: reported accuracy of the best so far, minus the mean of all so far."""
    val, test = (torch.stack(part) for part in zip(*run.setup["scores"], strict=True))
    chosen_by = test if run.setup["by_test"] else val
    gains = []
    for seen in range(1, len(test) + 1):
        best = chosen_by[:seen].argmax(0, keepdim=True)
        gains.append(float((test[:seen].gather(0, best) - test[:seen].mean(0)).mean()))
    return gains


def gain(run: ExhibitRun) -> float:
    return gain_so_far(run)[-1]


EXHIBIT = Exhibit(
    id="B41", title="checkpoint chosen on the test set", make=make,
    why_not="a set-up does not say which part of the data chooses; three parts, the third of them "
    "read once, rule it out.",
    mend="best = min(checkpoints, key=lambda c: c.val_loss)  # the test set is read once, after",
    symptom="reported accuracy above the mean of all checkpoints", measure=gain,
    shows=lambda x: x > 0.02,
    trace=gain_so_far, trace_label="reported accuracy above the mean",
)  # fmt: skip
