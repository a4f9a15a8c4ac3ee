"""The graph explorer against closed forms, finite differences, and torch asked in another way."""

import pytest
import torch

from course import worked
from course.widgets.graph.backward import MOST_NODES
from course.widgets.graph.expressions import EXPRESSIONS
from course.widgets.graph.state import SECOND, Settings, frame

NODES = {"product": 4, "square": 5, "twice": 3, "layers": 8, "branch": 4}
"""Nodes of the graph, counted on paper: one per operation, one per leaf that asks."""
SCALES = (-1.0, 0.5, 1.0, 2.0)


def boxes(**settings) -> dict[str, dict]:
    return {box["name"]: box for box in frame(Settings(**settings))["boxes"]}


def grads(**settings) -> dict[str, object]:
    return {name: box["grad"] for name, box in boxes(**settings).items()}


def by_differences(name: str, scale: float, wanted: str, h: float = 1e-6) -> float:
    """The slope of the loss with respect to one scalar leaf, without any backward."""
    expression = EXPRESSIONS[name]
    first = next(iter(expression.leaves))
    start = {n: v * (scale if n == first else 1) for n, v in expression.leaves.items()}
    ends = []
    for step in (-h, h):
        moved = start | {wanted: start[wanted] + step}
        leaves = {n: torch.tensor(v, dtype=torch.float64) for n, v in moved.items()}
        ends.append(expression.function(**leaves)["loss"].item())
    return (ends[1] - ends[0]) / (2 * h)


@pytest.mark.parametrize(("id", "expression"), [("N14", "product"), ("N16", "layers")])
def test_after_one_backward_the_leaves_hold_the_lectures_gradients(id, expression):
    printed = {step.what: step.rebuilt for step in worked.compute(id).steps}
    found = grads(expression=expression, done=NODES[expression])
    weights = {"product": ("a", "b"), "layers": ("w1", "w2")}[expression]
    assert [found[name] for name in weights] == [printed[f"dL/d{name}"] for name in weights]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("expression", ["product", "square", "twice", "layers"])
def test_gradients_are_the_slopes_that_finite_differences_find(expression, scale):
    of = frame(Settings(expression=expression, data=True))["of"]
    found = boxes(expression=expression, scale=scale, data=True, done=of)
    for name in EXPRESSIONS[expression].leaves:
        slope = by_differences(expression, scale, name)
        assert found[name]["grad"] == pytest.approx(slope, abs=1e-5), name


def test_the_branch_that_the_data_take_gives_the_gradient_and_the_other_is_not_there():
    above, below = boxes(expression="branch", done=4), boxes(expression="branch", scale=-1, done=3)
    assert above["x"]["grad"] == [1.0, 2.0] and below["x"]["grad"] == [-0.5, -0.5]
    assert {"s", "t"} <= set(above) and "u" not in above
    assert "u" in below and not {"s", "t"} & set(below)
    assert not above["m"]["reached"] and above["m"]["arrived"] is None


@pytest.mark.parametrize("expression", list(EXPRESSIONS))
@pytest.mark.parametrize("data", [False, True])
def test_every_node_is_handed_all_before_it_runs_and_what_is_handed_is_what_is_received(
    expression, data
):
    of = frame(Settings(expression=expression, data=data))["of"]
    assert data or of == NODES[expression]
    for done in range(1, of + 1):
        shown = frame(Settings(expression=expression, data=data, done=done))
        box = next(one for one in shown["boxes"] if one["running"])
        assert shown["event"]["number"] == done and box["arrived"] == shown["event"]["received"]
        waiting = {e["to"] for e in shown["edges"] if e["from"] == box["name"] and e["taped"]}
        assert all(one["ran"] for one in shown["boxes"] if one["name"] in waiting)


@pytest.mark.parametrize("expression", list(EXPRESSIONS))
def test_the_edges_drawn_are_those_of_the_graph(expression):
    leaves = {
        name: torch.tensor(value, requires_grad=True)
        for name, value in EXPRESSIONS[expression].leaves.items()
    }
    made = EXPRESSIONS[expression].function(**leaves)
    names = {one.grad_fn: name for name, one in made.items() if one.grad_fn}
    torchs = {
        (names.get(node) or next(n for n, v in leaves.items() if v is node.variable), made_name)
        for one, made_name in names.items()
        for node, _ in one.next_functions
        if node is not None and made_name != "m"
    }
    drawn = frame(Settings(expression=expression, data=True))["edges"]
    assert {(e["from"], e["to"]) for e in drawn if e["taped"]} == torchs


@pytest.mark.parametrize("data", [False, True])
@pytest.mark.parametrize("expression", ["product", "square", "twice", "layers"])
def test_saved_are_the_tensors_that_a_hook_sees_saved(expression, data):
    leaves = {
        name: torch.tensor(value, requires_grad=data or name not in EXPRESSIONS[expression].data)
        for name, value in EXPRESSIONS[expression].leaves.items()
    }
    seen = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: seen.append(t.item()), lambda t: t):
        EXPRESSIONS[expression].function(**leaves)
    found = boxes(expression=expression, data=data, done=0)
    saved = [found[name]["value"] for box in found.values() for name in box["saved"]]
    assert sorted(saved) == pytest.approx(sorted(seen))


def test_a_sum_saves_nothing_and_a_node_that_has_run_is_freed_unless_the_graph_is_kept():
    before, after = boxes(expression="product", done=2), boxes(expression="product", done=3)
    assert before["loss"]["saved"] == [] and before["c"]["saved"] == ["x"]
    assert after["c"]["saved"] is None
    assert boxes(expression="product", done=3, again="kept")["c"]["saved"] == ["x"]


@pytest.mark.parametrize("expression", list(EXPRESSIONS))
def test_a_second_backward_adds_unless_grad_is_cleared_and_operations_get_none(expression):
    of = NODES[expression]
    once = grads(expression=expression, done=of)
    for again in ("new", "kept"):
        twice = grads(expression=expression, done=2 * of, again=again)
        for name, one in once.items():
            double = None if one is None else (2 * torch.tensor(one)).tolist()
            assert twice[name] == double, (name, again)
    assert grads(expression=expression, done=2 * of, again="cleared") == once
    operations = set(once) - set(EXPRESSIONS[expression].leaves)
    assert all(once[name] is None for name in operations)


def test_retain_grad_keeps_the_gradient_of_results_too():
    found = boxes(expression="layers", done=8, retain=True)
    assert all(one["grad"] == one["arrived"] for one in found.values() if one["reached"])


def test_through_a_freed_graph_the_sums_still_run_before_a_node_without_its_tensors_raises():
    shown = frame(Settings(expression="product", done=MOST_NODES, again="freed"))
    assert shown["event"]["error"].startswith("Trying to backward through the graph a second time")
    assert shown["event"]["name"] == "c" and shown["event"]["number"] == 3
    found = {box["name"]: box["grad"] for box in shown["boxes"]}
    assert (found["a"], found["b"]) == (3.0, 2.0)  # b has already been added to


@pytest.mark.parametrize("again", list(SECOND))
@pytest.mark.parametrize("scale", [-1.0, 1.0])
@pytest.mark.parametrize("expression", list(EXPRESSIONS))
def test_the_marked_line_made_the_tensor_whose_node_runs(expression, scale, again):
    for done in range(MOST_NODES + 1):
        shown = frame(Settings(expression=expression, scale=scale, again=again, done=done))
        if done == 0:
            assert shown["line"] is None
            continue
        line, name = shown["code"][shown["line"]], shown["event"]["name"]
        assert line.split("=")[0].strip() == name
        if expression == "branch" and name == "loss":
            assert ("-0.5" in line) == (scale < 0)
