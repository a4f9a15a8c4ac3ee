"""B02: gradients are cleared between backward and step, so no weight ever moves."""

from course.debug.museum.exhibit import Exhibit, digits, final_loss


def make(bug):
    setup = digits()

    def train_step(batch):
        inputs, targets = batch
        setup["model"].train()
        if not bug:
            setup["optimizer"].zero_grad()
        loss = setup["loss_fn"](setup["model"](inputs), targets)
        loss.backward()
        if bug:
            setup["optimizer"].zero_grad()
        setup["optimizer"].step()
        return loss.item()

    return setup | {"train_step": train_step}


EXHIBIT = Exhibit(
    id="B02", title="zero_grad() between backward() and step()",
    names=("grads-cleared-before-step",), make=make, symptom="loss after 150 steps",
    measure=final_loss, shows=lambda x: x > 2.0,
)  # fmt: skip
