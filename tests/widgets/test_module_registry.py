"""What reaches a tensor, against modules written out by hand and another move: the meta device."""

import pytest
import torch
from torch import nn

from course.widgets.registry.state import BLOCKS, SCALES, Settings, frame


class Plain(nn.Module):
    """Nothing but `layer` is registered."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.scale = torch.rand(2)
        self.blocks = [nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)]

    def forward(self, inputs):
        hidden = self.layer(inputs) * self.scale
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


class Asking(Plain):
    def __init__(self):
        super().__init__()
        self.scale.requires_grad_(True)


class Trained(Plain):
    def __init__(self):
        super().__init__()
        del self.scale, self.blocks
        self.scale = nn.Parameter(torch.rand(2))
        self.blocks = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in range(2))


class Frozen(Trained):
    def __init__(self):
        super().__init__()
        self.scale.requires_grad_(False)


class Buffered(Plain):
    persistent = True

    def __init__(self):
        super().__init__()
        del self.scale
        self.register_buffer("scale", torch.rand(2), persistent=self.persistent)


class Passing(Buffered):
    persistent = False


CLASSES = {
    ("tensor", "list"): Plain,
    ("asking", "list"): Asking,
    ("parameter", "ModuleList"): Trained,
    ("frozen", "ModuleList"): Frozen,
    ("buffer", "list"): Buffered,
    ("passing", "list"): Passing,
}


@pytest.mark.parametrize(("scale", "blocks"), CLASSES)
def test_the_dots_are_what_torch_does_to_the_written_out_module(scale, blocks):
    torch.manual_seed(0)
    model = CLASSES[scale, blocks]()
    tensors = {"scale": model.scale, "blocks.0.weight": model.blocks[0].weight,
               "layer.weight": model.layer.weight}  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    before = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    model(torch.randn(5, 2)).sum().backward()
    grads = {name: tensor.grad is not None for name, tensor in tensors.items()}
    optimizer.step()
    stepped = {name: not torch.equal(before[name], tensor) for name, tensor in tensors.items()}
    optimizer.zero_grad()
    kept = {name for name, tensor in tensors.items() if tensor.grad is not None}
    assert kept == {name for name in tensors if grads[name] and not stepped[name]}
    saved = set(model.state_dict())
    model.to("meta")
    now = {"scale": model.scale, "blocks.0.weight": model.blocks[0].weight,
           "layer.weight": model.layer.weight}  # fmt: skip
    rows = {row["name"]: row for row in frame(Settings(scale=scale, blocks=blocks))["rows"]}
    for name in tensors:
        assert rows[name]["grad"] == grads[name], name
        assert rows[name]["stepped"] == stepped[name], name
        assert rows[name]["moved"] == now[name].is_meta, name
        assert rows[name]["saved"] == (name in saved), name
        assert rows[name]["parameter"] == (name in dict(model.named_parameters())), name


@pytest.mark.parametrize(("scale", "blocks"), CLASSES)
def test_the_listings_and_counts_are_torchs(scale, blocks):
    model, shown = CLASSES[scale, blocks](), frame(Settings(scale=scale, blocks=blocks))
    listed = {name: [list(p.shape), p.requires_grad] for name, p in model.named_parameters()}
    assert {name: [shape, asks] for name, shape, asks in shown["parameters"]} == listed
    assert {name for name, _ in shown["state_dict"]} == set(model.state_dict())
    count = sum(p.numel() for p in model.parameters())
    assert shown["numbers"]["parameters"] == count
    assert shown["numbers"]["used"] == 4 + 2 + 2 + 4 + 4


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("blocks", BLOCKS)
def test_the_lines_shown_make_a_module_with_the_listings_shown(scale, blocks):
    """The code on the page is run, so it cannot differ from what was measured."""
    shown = frame(Settings(scale=scale, blocks=blocks))
    words = {"nn": nn, "torch": torch, "linear": lambda: nn.Linear(2, 2, bias=False)}
    exec("\n".join(shown["code"]), words)
    model = words["Net"]()
    assert model(torch.randn(3, 2)).shape == (3, 2)
    assert {name for name, _ in shown["state_dict"]} == set(model.state_dict())
    assert [name for name, *_ in shown["parameters"]] == [n for n, _ in model.named_parameters()]


def test_a_step_changes_values_only_where_it_is_said_and_loading_brings_the_saved_ones_back():
    for scale in SCALES:
        moments = [frame(Settings(scale=scale, at=at))["tensors"] for at in range(1, 6)]
        rows = frame(Settings(scale=scale))["rows"]
        for i, row in enumerate(rows):
            built, _, stepped, moved, loaded = (moment[i] for moment in moments)
            assert (built["values"] != stepped["values"]) == row["stepped"]
            assert moved["values"] == stepped["values"]
            assert (loaded["values"] == stepped["values"]) == row["saved"]


def test_layers_in_a_list_break_the_forward_pass_after_a_move():
    said = {blocks: frame(Settings(blocks=blocks, at=4))["forward"] for blocks in BLOCKS}
    assert "RuntimeError" in said["list"] and "dtype" in said["dict"]
    assert said["ModuleList"] == said["ModuleDict"] == "runs in float64"
