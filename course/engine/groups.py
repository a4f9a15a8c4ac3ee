"""Parameter groups: a different rate for the new head, and weight decay only where it helps.

    optimizer = torch.optim.AdamW(
        parameter_groups(model, head=model.head, lr=1e-4, head_lr=1e-3, weight_decay=0.05)
    )

Weight decay is meant for matrices and kernels. A bias, or the gain of a normalisation, has one
dimension and shifts or scales: pulling it to 0 defeats the purpose of the layer.

Source: Engineering module, §4; Loshchilov and Hutter, "Decoupled weight decay regularization"
(2019); ledger T17, X54.
"""

from __future__ import annotations

from typing import Any

from torch import nn


def parameter_groups(
    model: nn.Module,
    *,
    lr: float,
    weight_decay: float,
    head: nn.Module | None = None,
    head_lr: float | None = None,
) -> list[dict[str, Any]]:
    """Groups for an optimizer in place of `model.parameters()`: up to four, none empty.

    Args:
        model: Its frozen parameters (requires_grad False) are left out.
        lr: Learning rate of the parameters outside `head`.
        weight_decay: For parameters with two or more dimensions; the others have 0.
        head: A module inside the model with its own learning rate; a tensor that it shares with the
            rest of the model counts as the head's.
        head_lr: The head's learning rate; `lr` if it is not given.

    Each parameter is in one group, even if two modules share it.
    """
    in_head = {id(parameter) for parameter in (head.parameters() if head is not None else ())}
    found: dict[tuple[float, float], list[nn.Parameter]] = {}
    for parameter in model.parameters():  # each once
        if parameter.requires_grad:
            rate = head_lr if id(parameter) in in_head and head_lr is not None else lr
            decay = weight_decay if parameter.ndim >= 2 else 0.0
            found.setdefault((rate, decay), []).append(parameter)
    return [
        {"params": parameters, "lr": rate, "weight_decay": decay}
        for (rate, decay), parameters in found.items()
    ]
