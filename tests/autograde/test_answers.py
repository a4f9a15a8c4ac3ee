"""What a message says of an exception: whole sentences or words, and the line that raised it."""

import pytest
import torch

from autograde import bank
from autograde.answers import MOST_TEXT, answer_of, shortened

SENTENCE = "The tensor has no graph, so nothing can flow back through it. "


def test_a_short_text_stays_as_it_is():
    assert shortened("x" * MOST_TEXT) == "x" * MOST_TEXT


def test_a_long_text_is_cut_after_a_sentence():
    text = SENTENCE * 9
    cut = shortened(text)
    assert cut.endswith("through it.") and text.startswith(cut) and 200 < len(cut) <= MOST_TEXT


def test_a_long_sentence_is_cut_after_a_word():
    text = "Short. " + "word " * 200
    cut = shortened(text)
    assert cut.endswith(" word…") and len(cut) <= MOST_TEXT
    assert text.startswith(cut.removesuffix("…"))


def test_a_text_without_spaces_is_cut_anyway():
    assert len(shortened("x" * 10_000)) <= MOST_TEXT


@pytest.mark.parametrize("text", ["It fails", "It fails."])
def test_the_line_follows_without_a_full_stop_before_the_comma(text):
    def clip(parameters, max_norm):
        raise RuntimeError(text)

    exercise = bank.load("03a.clip")
    part = exercise.parts[0]
    raised = answer_of(exercise, clip, exercise.cases(part, 0)[0])
    assert raised.text == "It fails, at the line: raise RuntimeError(text)"


def not_here(graph, inputs):
    raise AssertionError("a compiler was asked")


@torch.compile(backend=not_here)
def made_before(gradients):
    return torch.stack([g.norm() for g in gradients]).norm()


@pytest.mark.parametrize("when", ["before the call", "in the call"])
def test_what_torch_compile_makes_runs_uncompiled_in_an_answer(when):
    """A first call may take half a minute, for a loop that is as right without."""

    def clip(parameters, max_norm):
        gradients = [p.grad for p in parameters if p.grad is not None]
        plain = made_before.__wrapped__
        norm = made_before if when == "before the call" else torch.compile(backend=not_here)(plain)
        return norm(gradients)

    exercise = bank.load("03a.clip")
    answer = answer_of(exercise, clip, exercise.cases(exercise.parts[0], 0)[0])
    assert answer["norm"] > 0
    with pytest.raises(Exception, match="a compiler was asked"):
        made_before([torch.ones(2)])
