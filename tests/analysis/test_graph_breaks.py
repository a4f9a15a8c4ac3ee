"""Graph breaks are what torch.compile says of a function: one graph, or more and why."""

import logging

import torch

from course.analysis.graph_breaks import compile_here, fits_one_graph, graph_breaks

INPUTS = torch.arange(6.0).view(2, 3) - 2


def by_value(x):
    x = x * 2
    if x.sum() > 0:
        return x + 1
    return x - 1


def by_shape(x):
    x = x * 2
    return x + 1 if x.shape[0] > 1 else x - 1


def read(x):
    x = x * 2
    return x * x.tolist()[0][0]


def test_a_value_breaks_the_graph_and_a_shape_does_not():
    whole, broken = graph_breaks(by_shape, INPUTS), graph_breaks(by_value, INPUTS)
    assert (whole.graphs, whole.reasons) == (1, ()) and str(whole) == "1 graph"
    assert broken.graphs == 2 and len(broken.reasons) == 1 and "\n" not in broken.reasons[0]
    assert str(broken).startswith("2 graphs; ")


def test_one_graph_is_what_fullgraph_accepts():
    assert [fits_one_graph(f, INPUTS) for f in (by_shape, by_value, read)] == [True, False, False]


def test_nothing_is_logged_and_the_logger_is_as_before(caplog):
    logger = logging.getLogger("torch._dynamo")
    before = logger.level
    with caplog.at_level(logging.WARNING):
        assert graph_breaks(read, INPUTS).graphs == 2
    assert not caplog.records and logger.level == before


def test_what_is_compiled_here_answers_as_before():
    compiled, backend, first_s = compile_here(by_shape, INPUTS)
    assert torch.equal(compiled(INPUTS), by_shape(INPUTS)) and first_s > 0
    assert backend in ("eager", "inductor")


def test_without_a_working_compiler_the_graph_is_only_traced(monkeypatch):
    real, broken = torch.compile, {"inductor"}

    def without_compiler(function, backend):
        if backend in broken:
            raise_it = RuntimeError("no C++ compiler")
            return lambda *_: (_ for _ in ()).throw(raise_it)
        return real(function, backend=backend)

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch, "compile", without_compiler)
    assert compile_here(by_shape, INPUTS)[1] == "eager"
    broken.add("eager")
    assert compile_here(by_shape, INPUTS)[:2] == (by_shape, "none")
