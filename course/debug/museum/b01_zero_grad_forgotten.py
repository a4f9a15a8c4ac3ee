"""B01: gradients are never cleared, so each step uses the sum of all before it."""

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits, norms


def make(bug):
    setup = digits()

    def train_step(batch):
        inputs, targets = batch
        setup["model"].train()
        if not bug:
            setup["optimizer"].zero_grad()
        loss = setup["loss_fn"](setup["model"](inputs), targets)
        loss.backward()
        setup["optimizer"].step()
        return loss.item()

    return setup | {"train_step": train_step}


def growth(run: ExhibitRun) -> float:
    return max(run.grad_norms) / run.grad_norms[0]


EXHIBIT = Exhibit(
    id="B01", title="zero_grad() forgotten", names=("missing-zero-grad",), make=make,
    symptom="largest gradient norm over the first", measure=growth, shows=lambda x: x > 8,
    trace=norms, trace_label="gradient norm",
)  # fmt: skip
