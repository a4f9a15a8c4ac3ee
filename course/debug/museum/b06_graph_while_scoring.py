"""B06: scoring without no_grad builds a graph for every batch, only to throw it away."""

import torch

from course.debug.museum.exhibit import Exhibit, ExhibitRun, digits


def make(bug):
    setup = digits()
    model = setup["model"]

    def evaluate():
        total, count = 0.0, 0
        model.eval()
        with torch.set_grad_enabled(bug):
            for inputs, targets in setup["val_loader"]:
                total += setup["loss_fn"](model(inputs), targets).item() * len(targets)
                count += len(targets)
        model.train()
        return {"val_loss": total / count}

    return setup | {"evaluate": evaluate}


def saved_bytes(run: ExhibitRun) -> float:
    """Bytes that one validation saves for a backward pass that never comes."""
    sizes = []

    def pack(tensor):
        sizes.append(tensor.numel() * tensor.element_size())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run.setup["evaluate"]()
    return float(sum(sizes))


EXHIBIT = Exhibit(
    id="B06", title="validation without no_grad()", names=("no-grad-missing",), make=make,
    symptom="bytes saved for backward by one validation", measure=saved_bytes,
    shows=lambda x: x > 0,
)  # fmt: skip
