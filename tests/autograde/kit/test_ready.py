"""`ready(...)`: whether a cell may use what an exercise asks for, and what it says if not."""

import pytest

from autograde import ready


def stub(inputs):
    # YOUR CODE HERE
    raise NotImplementedError()


def done(inputs):
    return inputs


def choosy(mode):
    if mode != "mean":
        raise NotImplementedError()
    return mode


class HalfDone:
    def __init__(self, scale):
        self.scale = scale

    def step(self):
        # YOUR CODE HERE
        raise NotImplementedError()


class Done:
    scale = 1.0

    def step(self):
        return self.scale


@pytest.mark.parametrize("answers", [(done,), (Done,), (done, Done), (len,), (choosy,)])
def test_what_is_written_is_used_without_a_word(answers, capsys):
    assert ready(*answers)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("answers", "names"),
    [((stub,), "stub"), ((HalfDone,), "HalfDone"), ((done, stub, HalfDone), "stub and HalfDone")],
)
def test_a_cell_names_what_it_waits_for(answers, names, capsys):
    assert not ready(*answers)
    assert f"This cell needs your {names}:" in " ".join(capsys.readouterr().out.split())
