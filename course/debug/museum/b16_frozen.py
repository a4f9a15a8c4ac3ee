"""B16: a head frozen by mistake keeps its initial weights, while the loss still falls."""

from course.debug.museum.exhibit import Exhibit, digits, head_moved


def make(bug):
    setup = digits()
    head = setup["model"][-1]
    for parameter in head.parameters():
        parameter.requires_grad_(not bug)
    return setup | {"head_at_start": head.weight.detach().clone()}


EXHIBIT = Exhibit(
    id="B16", title="should train, but is frozen", names=("frozen-params",), make=make,
    symptom="largest change of a weight of the head", measure=head_moved,
    shows=lambda x: x == 0,
)  # fmt: skip
