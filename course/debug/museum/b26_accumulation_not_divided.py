"""B26: gradients of four batches are summed, not divided, so updates are four times too large."""

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits

PARTS = 4


def make(bug):
    setup = digits(lr=0.02)
    weight, made, moved = setup["model"][1].weight, [], []

    def train_step(batch):
        inputs, targets = batch
        setup["model"].train()
        loss = setup["loss_fn"](setup["model"](inputs), targets)
        (loss if bug else loss / PARTS).backward()
        made.append(1)
        if len(made) % PARTS == 0:
            before = weight.detach().clone()
            setup["optimizer"].step()
            setup["optimizer"].zero_grad()
            moved.append(float((weight.detach() - before).norm()))
        return loss.item()

    return setup | {"train_step": train_step, "declared": {"accumulate": PARTS}, "moved": moved}


def first_update(run: ExhibitRun) -> float:
    return run.setup["moved"][0]


EXHIBIT = Exhibit(
    id="B26", title="accumulated, but not divided", names=("accum-not-divided",), make=make,
    symptom="norm of the first layer's first update", measure=first_update,
    shows=lambda x: x > 0.02,
    trace=lambda run: run.setup["moved"], trace_label="norm of each update",
)  # fmt: skip
