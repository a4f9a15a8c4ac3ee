"""`check` as a student meets it, and the referee behind it."""

import importlib
import re
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import sympy
import torch
import torchvision
from scipy.special import _logsumexp
from sklearn.calibration import calibration_curve
from sklearn.neural_network._stochastic_optimizers import AdamOptimizer
from torch._decomp import decompositions
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.utils import checkpoint
from torchmetrics.functional.classification import multiclass_calibration_error

from autograde import bank, check
from autograde.bank import script_best, script_regressor
from autograde.by_hand import written_by_hand
from autograde.check import Result
from autograde.compare import Difference
from autograde.exercise import NotAllowedError
from autograde.kinds import fix
from autograde.lines import WIDTH
from autograde.referee import RefereeFault, judge
from autograde.words import difference_in_words
from course.catalogue import UnknownIdError
from course.engine import clip_by_global_norm as reference
from tests.sampling import sample

GOOD = bank.load("03a.clip").right[0]


def test_a_right_answer_is_worth_its_points_and_says_what_is_still_hidden():
    result = check("03a.clip", GOOD)
    assert result.passed and result.points == 3
    assert repr(result) == "3"  # what nbgrader reads
    assert "1 more when it is graded" in result.message


def test_hidden_parts_are_paid_by_themselves():
    result = check("03a.clip", GOOD, parts="hidden")
    assert result.passed and result.points == 1 == result.verdict.max_points


def test_a_wrong_answer_raises_nothing_and_earns_the_parts_it_got_right():
    result = check("03a.clip", bank.load("03a.clip").wrong[1].function)
    assert 0 < result.points < 3 and not result.passed
    assert "clipping by norm keeps it" in " ".join(result.message.lower().split())


def test_prints_and_warnings_neither_show_nor_count(capfd):
    def noisy(parameters, max_norm):
        print("0")
        warnings.warn("deprecated", stacklevel=1)
        print("error", file=sys.stderr)
        return GOOD(parameters, max_norm)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check("03a.clip", noisy).points == 3
    assert capfd.readouterr() == ("", "")


def test_a_model_that_raises_later_is_not_the_function_that_raised():
    result = check("03g.load", lambda path, make_model: torch.nn.Linear(784, 10))
    assert "The model raised RuntimeError" in result.message
    assert "when the check called the model" in " ".join(result.message.split())
    assert "Your function raised" not in result.message


def test_an_exception_is_told_with_its_text():
    result = check("03a.clip", lambda parameters, max_norm: parameters[0].grad / "x")
    assert result.points == 0
    assert "Your function raised TypeError" in result.message


def test_an_unknown_exercise_names_the_nearest():
    with pytest.raises(UnknownIdError, match=r"03a\.accumulate"):
        check("03a.acumulate", GOOD)


def test_a_result_instead_of_a_function_is_refused():
    with pytest.raises(TypeError, match="itself, not called"):
        check("03a.clip", 3.0)


def test_the_message_is_escaped_in_a_notebook():
    def answer(parameters, max_norm):
        raise ValueError("<script>alert(1)</script>")

    html = check("03a.clip", answer)._repr_html_()
    assert "<script>" not in html and "&lt;script&gt;" in html


def test_seeds_repeat_a_verdict():
    wrong = bank.load("03a.accumulate").wrong[1].function
    assert (
        check("03a.accumulate", wrong, seed=5).message
        == check("03a.accumulate", wrong, seed=5).message
    )


def test_cases_are_fresh_each_time():
    assert check("03a.clip", GOOD).verdict.seed != check("03a.clip", GOOD).verdict.seed


def test_an_answer_remembered_from_another_case_earns_nothing():
    seen = []

    def remember(parameters, max_norm):
        parameters = list(parameters)
        if not seen:
            seen.append(GOOD(parameters, max_norm))
        return seen[0]

    assert check("03a.clip", remember, parts="all").points < 2


def test_functions_to_be_written_by_hand_refuse_under_every_name_and_come_back():
    exercise = bank.load("03a.clip")
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.grad = torch.tensor([3.0, 4.0])
    another_name = reference
    with written_by_hand(exercise):
        for function in (another_name, torch.nn.utils.clip_grad_norm_):
            with pytest.raises(Exception, match="asks you to write"):
                function([parameter], 1.0)
    assert another_name([parameter], 1.0) == pytest.approx(5.0)


LOGITS, TARGETS, ONES = torch.zeros(2, 3), torch.zeros(2).long(), torch.ones(2, 3, 4)
LEAF = torch.ones(2, requires_grad=True)
SUM = LEAF.sum()
OPERATORS = {
    # ruff: noqa: E501 (calls are data)
    "cross_entropy_loss": ("01b.cross-entropy", lambda: torch._C._nn.cross_entropy_loss(LOGITS, TARGETS)),
    "nll_loss": ("01b.cross-entropy", lambda: torch.ops.aten.nll_loss(LOGITS, TARGETS)),
    "overload": ("01b.cross-entropy", lambda: torch.ops.aten.nll_loss_forward.default(LOGITS, TARGETS, None, 1, -100)),
    "batch_norm": ("02a.batch-norm", lambda: torch.native_batch_norm(ONES, None, None, None, None, True, 0.1, 1e-5)),
    "group_norm": ("02a.group-norm", lambda: torch.group_norm(ONES, 1)),
    "dropout": ("02a.dropout", lambda: torch.native_dropout(ONES, 0.5, True)),
    "softmax": ("01b.softmax", lambda: torch._C._VariableFunctions.softmax(LOGITS, 1)),
    "logsumexp": ("01b.softmax", lambda: torch.ops.aten.logsumexp(LOGITS, [1])),
    "in_python": ("01b.cross-entropy", lambda: decompositions.nll_loss_forward(LOGITS, TARGETS, None, 1, -100)),
    "in_python_too": ("02a.group-norm", lambda: torch._refs.native_group_norm(ONES, None, None, 2, 3, 4, 1, 1e-5)),
    "layer_norm": ("02a.batch-norm", lambda: torch.layer_norm(ONES, (4,))),
    "rms_norm": ("02a.batch-norm", lambda: torch.nn.functional.rms_norm(ONES, (4,))),
    "ctc_loss": ("01b.cross-entropy", lambda: torch.ctc_loss(torch.zeros(1, 2, 3), TARGETS[:, None] + 1, TARGETS + 1, TARGETS + 1)),
    "backward": ("01b.cross-entropy", lambda: torch.ops.aten.nll_loss_backward(torch.ones(()), LOGITS, TARGETS, None, 1, -100, torch.ones(()))),
    "backward_of_native": ("02a.dropout", lambda: torch.ops.aten.native_dropout_backward(ONES, ONES > 0, 2.0)),
    "backward_data": ("01b.softmax", lambda: torch.ops.aten._softmax_backward_data(LOGITS, LOGITS, 1, torch.float32)),
    "engine": ("01c.step-by-hand", lambda: torch.ops.aten._backward(SUM, [LEAF], retain_graph=True)),
    "scale": ("03d.loss-scaler", lambda: torch._amp_update_scale_(torch.ones(1), torch.zeros(1).int(), torch.zeros(1), 2.0, 0.5, 5)),
    "feature_dropout": ("02a.dropout", lambda: torch.feature_dropout(ONES, 0.5, True)),
}  # fmt: skip


def on_a_thread(call):
    with ThreadPoolExecutor(1) as one:
        return one.submit(call).result()


def with_modes_off(call):
    with torch._C.DisableTorchFunction(), torch.no_grad():
        return call()


@pytest.mark.parametrize(("id", "call"), OPERATORS.values(), ids=OPERATORS)
@pytest.mark.parametrize("way", [on_a_thread, with_modes_off])
def test_operators_refuse_on_any_thread_and_without_modes(id, call, way):
    way(call)
    with written_by_hand(bank.load(id)), pytest.raises(NotAllowedError, match="asks you to write"):
        way(call)
    way(call)


WEIGHT = torch.ones(2)
MODULES = {
    "01c.step-by-hand": lambda: torch.func.jacfwd(torch.sum)(WEIGHT),
    "01a.tape": lambda: torch.autograd.forward_ad.enter_dual_level(),
    "03d.recompute": lambda: checkpoint.CheckpointFunction.apply(torch.sum, False, WEIGHT),
    "04a.adamw": lambda: sys.modules["torch.optim.adam"].adam(
        [],
        [],
        [],
        [],
        [],
        [],
        beta1=0.9,
        beta2=0.99,
        lr=1.0,
        weight_decay=0.0,
        eps=1e-8,
        amsgrad=False,
        maximize=False,
    ),
    "02a.dropout": lambda: torchvision.ops.stochastic_depth(WEIGHT, 0.5, "row"),
    "03e.calibration-error": lambda: multiclass_calibration_error(torch.eye(2), torch.arange(2), 2),
}


@pytest.mark.parametrize("id", MODULES)
def test_the_rest_of_a_module_that_does_the_work_refuses_as_well(id):
    with written_by_hand(bank.load(id)), pytest.raises(NotAllowedError, match="asks you to write"):
        MODULES[id]()
    if id != "01a.tape":  # which would leave a level open
        MODULES[id]()


def _sparse_adam():
    p = torch.nn.Parameter(torch.ones(2, 1))
    p.grad = torch.ones(2, 1).to_sparse()
    torch.optim.SparseAdam([p]).step()


def _functional_nadam():
    settings = {"beta1": 0.9, "beta2": 0.99, "lr": 1.0, "weight_decay": 0.0, "eps": 1e-8}
    settings |= {"momentum_decay": 0.0}
    sys.modules["torch.optim.nadam"].nadam([], [], [], [], [], [], **settings)


def _linear_cross_entropy():
    if not hasattr(torch.nn, "LinearCrossEntropyOptions"):
        pytest.skip("this torch has no linear_cross_entropy")
    options = torch.nn.LinearCrossEntropyOptions()
    torch.nn.functional.linear_cross_entropy(LOGITS, torch.eye(3), TARGETS, options=options)


def _curried():
    """Torch's checkpointing bound to its settings; where it has no such form, as it is."""
    try:
        return checkpoint.checkpoint(use_reentrant=False, early_stop=False)
    except TypeError:
        return lambda block: lambda x: checkpoint.checkpoint(block, x, use_reentrant=False)


CURRIED = _curried()
SIBLINGS = {
    "SparseAdam": ("04a.adam", _sparse_adam),
    "AdamOptimizer": ("04a.adam", lambda: AdamOptimizer([np.ones(1)])),
    "sympy": ("01a.tape", lambda: sympy.Symbol("x").diff()),
    "sympy-polynomial": ("01a.tape", lambda: sympy.Poly("x").diff()),
    "Conv1d": ("01b.linear", lambda: torch.nn.Conv1d(1, 1, 1)),
    "checkpoint-made-before": ("03d.recompute", lambda: CURRIED(torch.sum)(WEIGHT)),
    "logsumexp": ("01b.softmax", lambda: _logsumexp.log_softmax(np.zeros((1, 2)), axis=1)),
    "calibration_curve": ("03e.calibration-error", lambda: calibration_curve([0, 1], [0.2, 0.8])),
    "nadam": ("04a.adam", lambda: _functional_nadam()),
    "ShardedGradScaler": ("03d.loss-scaler", lambda: ShardedGradScaler("cpu", enabled=False)),
    "linear_cross_entropy": ("01b.cross-entropy", lambda: _linear_cross_entropy()),
    "GradScaler": ("03d.loss-scaler", lambda: torch.amp.GradScaler("cpu", enabled=False).update()),
}


@pytest.mark.parametrize(("id", "call"), SIBLINGS.values(), ids=SIBLINGS)
def test_what_does_the_same_under_another_name_refuses(id, call):
    call()
    with written_by_hand(bank.load(id)), pytest.raises(NotAllowedError, match="asks you to write"):
        call()
    call()


def test_a_module_of_another_package_that_is_not_loaded_is_not_loaded_meanwhile(monkeypatch):
    name = "sklearn.utils.extmath"
    monkeypatch.delitem(sys.modules, name, raising=False)
    with written_by_hand(bank.load("01b.softmax")), pytest.raises(ImportError):
        importlib.import_module(name)
    assert importlib.import_module(name).softmax(np.zeros((1, 2)))[0, 0] == 0.5


def test_operators_refuse_in_torchscript():
    with warnings.catch_warnings(action="ignore"):  # it is deprecated
        scripted = torch.jit.script(torch.nn.functional.cross_entropy)
    exercise = bank.load("01b.cross-entropy")
    with written_by_hand(exercise), pytest.raises(RuntimeError, match="asks you to write"):
        scripted(LOGITS, TARGETS)
    scripted(LOGITS, TARGETS)


def test_a_compiled_function_is_not_used_where_it_stands_for_one_that_refuses():
    loss = torch.nn.functional.cross_entropy
    compiled = torch.compile(loss, backend="aot_eager_decomp_partition")
    before = compiled(LOGITS, TARGETS)
    exercise = bank.load("01b.cross-entropy")
    with written_by_hand(exercise), pytest.raises(NotAllowedError, match="asks you to write"):
        compiled(LOGITS, TARGETS)
    with written_by_hand(exercise):
        assert torch.compile(torch.neg, backend="eager", fullgraph=True)(WEIGHT)[0] == -1
    assert compiled(LOGITS, TARGETS) == before


@pytest.mark.parametrize(("id", "call"), OPERATORS.values(), ids=OPERATORS)
def test_what_torch_has_below_such_a_function_refuses_as_well(id, call):
    call()
    with written_by_hand(bank.load(id)), pytest.raises(NotAllowedError, match="asks you to write"):
        call()
    call()


def test_a_reference_that_fails_is_the_referees_fault_not_a_zero():
    import dataclasses

    def broken(parameters, max_norm):
        raise RuntimeError("out of order")

    exercise = dataclasses.replace(bank.load("03a.clip"), reference=broken)
    right = bank.load("03a.clip")

    def ask(case):
        return right.run(GOOD, case, torch.device("cpu"))

    with pytest.raises(RefereeFault, match="out of order"):
        judge(exercise, ask, seed=0)


def test_a_result_is_what_a_notebook_shows():
    assert isinstance(check("03a.clip", GOOD), Result)


def test_importing_autograde_is_fast_and_a_check_needs_no_nbgrader():
    code = (
        "import sys\n"
        "from autograde import check, bank\n"
        "check('03a.clip', bank.load('03a.clip').right[0])\n"
        "assert not {'nbgrader', 'nbconvert', 'jupytext', 'IPython'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_two_mistakes_at_once_are_both_named():
    def careless(model, loader, criterion):
        model.eval()
        losses, accuracies = [], []
        with torch.no_grad():
            for inputs, targets in loader:
                logits = model(inputs)
                losses.append(criterion(logits, targets).item())
                accuracies.append((logits.argmax(1) == targets).float().mean().item())
        count = len(losses)
        return {"loss": sum(losses) / count, "accuracy": sum(accuracies) / count}

    result = check("03a.evaluate", careless)
    assert result.verdict.misconception == "batch-means, left-in-eval"
    assert result.points == 1


def test_of_a_fix_that_no_known_mistake_explains_the_changed_lines_are_shown(monkeypatch):
    compared = []
    given = fix.changes
    monkeypatch.setattr(fix, "changes", lambda *args: compared.append(args) or given(*args))
    mean, half = ".square().mean()", ".square().mean() / 2"
    unknown = check("03h.regressor", script_regressor.fixed((mean, half)), seed=1)
    assert unknown.verdict.status == "wrong"
    assert "      + outputs = model(inputs).squeeze(1)\n" in unknown.message
    assert unknown.message.endswith("+ loss = (outputs - scaled).square().mean() / 2")
    known = check("03h.regressor", script_regressor.summed, seed=1)
    right = check("03h.regressor", script_regressor.flattened, seed=1)
    assert known.verdict.misconception == "summed" and right.passed
    assert "Your changes" not in known.message + right.message
    assert len(compared) == 1, "the texts were compared where nothing of it is shown"


def test_of_a_fix_a_long_changed_line_is_shown_whole():
    mean, long = ".square().mean()", ".square().mean() * (1 - 0.5) * (1 + 0.5) * (2 - 0.25) * 3"
    message = check("03h.regressor", script_regressor.fixed((mean, long)), seed=1).message
    *_, first, last = message.splitlines()
    assert first.startswith("      + loss = ") and last.startswith("            ")
    whole = " ".join((first.strip(), last.strip()))
    assert whole == f"+ loss = (outputs - scaled){long}"
    assert max(map(len, message.splitlines())) <= WIDTH


def test_of_a_fix_a_line_that_moved_into_the_loop_is_shown_as_changed():
    load = "    model.load_state_dict(best_state)\n"
    inside = script_best.fixed((load, ""), (script_best.KEPT, script_best.KEPT + "    " + load))
    listed = fix.changes(bank.load("03h.best"), inside)
    assert "- model.load_state_dict(best_state)" in listed
    assert "+     model.load_state_dict(best_state)" in listed


def test_the_same_fault_in_every_part_is_said_once():
    message = " ".join(check("03a.evaluate", lambda *args: None).message.split())
    assert message.count("you returned a NoneType") == 1
    message = " ".join(check("03a.clip", lambda parameters: None).message.split())
    assert message.count("cannot be called as clip_by_global_norm(parameters, max_norm)") == 1
    assert "Fix that first" in message and "✔" not in message


def test_what_a_notebook_set_in_torch_costs_a_right_answer_nothing():
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
    torch.set_default_device("meta")
    try:
        for id in sample(bank.asks_for_code(), 5):
            result = check(id, bank.load(id).right[0], parts="all")
            assert result.passed, result.message
        assert torch.get_default_dtype() == torch.float64 and not torch.is_grad_enabled()
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
        torch.set_default_device(None)


def test_an_error_of_torchs_own_that_is_called_not_implemented_is_no_blank():
    """torch 2.15 raises NotImplementedError for a mean of bools."""

    def dumb_baseline(train_targets, val_targets):
        raise NotImplementedError("mean(): could not infer output dtype")

    result = check("03b.baseline", dumb_baseline)
    assert result.verdict.status == "raised NotImplementedError"
    assert "Not answered yet" not in result.message and "could not infer" in result.message


def test_lists_of_unlike_length_are_told_apart_by_their_length():
    def overfit_one_batch(model, batches, criterion, optimizer, steps):
        return [0.123456789] * (steps + 7)

    text = " ".join(check("03b.overfit-batch", overfit_one_batch).message.split())
    assert re.search(
        r"should be a list of (\d+) entries, but yours is a list of (\d+) entries\.", text
    )


@pytest.mark.parametrize(
    ("says", "where", "expected", "text"),
    [
        ("the targets at", "", "shape [14]", "the targets should have shape [14], but yours has"),
        ("in the inputs, entry", "", "shape [14]", "the inputs should have shape [14], but yours"),
        ("in the inputs, entry", "[0]", "2", "in the inputs, entry [0] should be 2, but yours is"),
        ("copies(), by side, at", "[1]", "2", "copies(), by side, at [1] should be 2, but yours"),
        ("the losses:", "", "[1, 2]", "the losses: expected [1, 2], but got 3."),
        ("the weights", "", "those of 2", "the weights should be those of 2, but yours are 3."),
    ],
)
def test_a_field_that_is_wrong_as_a_whole_has_no_place(says, where, expected, text):
    got = "shape [12]" if expected.startswith("shape") else "3"
    told = difference_in_words(
        Difference("x", where, expected, got), SimpleNamespace(says={"x": says})
    )
    assert told.startswith(text), told


def test_a_bucket_that_is_missing_is_said_plainly():
    def bucket_table(sample, num_mistakes, num_examples):
        return bank.load("03f.buckets").right[0](sample, num_mistakes, num_examples)[:1]

    text = " ".join(check("03f.buckets", bucket_table).message.split())
    assert re.search(r"the ceiling should be given for \[.*, but yours is given for \[", text)


def test_a_class_instead_of_a_function_is_refused():
    with pytest.raises(TypeError, match="it needs a function: def clip_by_global_norm"):
        check("03a.clip", dict)


def test_other_names_of_the_arguments_are_the_students_to_choose():
    def clip(tensors, ceiling, eps=1e-6):
        return GOOD(tensors, ceiling)

    assert check("03a.clip", clip).passed
    assert check("03a.clip", lambda *everything: GOOD(*everything)).passed
