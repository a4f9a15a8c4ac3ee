"""What a trial student wrote, and what the check may and may not say about it."""

import numpy as np
import pytest
import torch

from autograde import bank, check
from tests.sampling import THOROUGH


def told(id, function, seed=0):
    """The message, its line breaks taken out."""
    return " ".join(check(id, function, seed=seed).message.split())


def mean_of_means_by_hand(model, micro_batches, criterion, optimizer):
    num_examples = sum(len(targets) for _, targets in micro_batches)
    t = 0.0
    optimizer.zero_grad()
    for inputs, targets in micro_batches:
        l = criterion(model(inputs), targets)  # noqa: E741
        (l * len(targets) / num_examples).backward()
        t += l.item()
    optimizer.step()
    return t / len(micro_batches)


def test_right_gradients_with_a_mean_of_means_are_not_called_too_long():
    said = told("03a.accumulate", mean_of_means_by_hand)
    assert "mean of the micro-batches' means" in said and "too long" not in said


def test_a_forgotten_backward_is_not_called_right_gradients():
    def no_backward(model, micro_batches, criterion, optimizer):
        num_examples = sum(len(targets) for _, targets in micro_batches)
        optimizer.zero_grad()
        losses = [criterion(model(x), y).item() * len(y) for x, y in micro_batches]
        optimizer.step()
        return sum(losses) / num_examples

    said = told("03a.accumulate", no_backward)
    assert "is there a backward()" in said and "gradients are right" not in said


def test_a_step_before_its_backward_is_not_called_missing_only():
    def backwards(model, batches, criterion, optimizer, steps):
        inputs, targets = next(b for b in batches if len(b[1].unique()) > 1)
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            optimizer.step()
            loss.backward()
            losses.append(loss.item())
        return losses

    said = told("03b.overfit-batch", backwards)
    assert "in this order" in said and "missing" not in said


def test_counting_different_labels_is_told_about_labels_not_that_all_was_sound():
    def counting(inputs, targets, num_classes):
        faults = []
        if len(inputs) != len(targets):
            faults.append("sizes")
        if targets.dtype != torch.long:
            faults.append("dtype")
        if not inputs.isfinite().all():
            faults.append("non-finite")
        if len(targets.unique()) > num_classes:
            faults.append("labels")
        return faults

    for seed in range(20):
        said = told("03b.inspect-batch", counting, seed)
        assert "counting the different labels" in said and "called sound" not in said


def mended(rates):
    """A right loop of 03b.early-freeze whose list of rates is made by `rates`."""

    def fixed_fit(model, loader, criterion, optimizer, scheduler, epochs):
        lrs = []
        for _ in range(epochs):
            lrs.append(scheduler.get_last_lr())
            for inputs, targets in loader:
                optimizer.zero_grad()
                criterion(model(inputs), targets).backward()
                optimizer.step()
            scheduler.step()
        return rates(lrs)

    return fixed_fit


def test_a_list_of_lists_of_rates_is_told_to_take_the_first():
    said = told("03b.early-freeze", mended(lambda lrs: lrs))
    assert "entry 0 of lrs is a list" in said and "take [0]" in said
    assert "✔ the weights after the run" in said and "Your function raised" not in said
    said = told("03b.early-freeze", mended(lambda lrs: torch.tensor(lrs)))
    assert "Return the list of the learning rates" in said


@pytest.mark.parametrize("make", [np.array, torch.tensor, tuple])
def test_numbers_may_come_in_a_list_a_tensor_or_an_array(make):
    assert check("03b.early-freeze", mended(lambda lrs: make([lr[0] for lr in lrs])), seed=0).passed
    right = bank.load("03b.overfit-batch").right[1]
    assert check("03b.overfit-batch", lambda *args: make(right(*args)), seed=0).passed


def test_a_number_as_text_is_no_number():
    def formatted(model, loader, criterion):
        right = bank.load("03a.evaluate").right[0](model, loader, criterion)
        return {name: f"{value:.9f}" for name, value in right.items()}

    result = check("03a.evaluate", formatted, parts="all", seed=0)
    assert result.points == 3 and "It returned the string '" in result.message


@pytest.mark.parametrize("id", ["03a.evaluate", "03b.next-intervention"])
def test_other_keys_than_asked_for_are_named(id):
    said = told(id, lambda *args: {"mean": 1.0, "acc": 1.0})
    assert "Return a dictionary with the keys" in said
    assert "yours has the keys 'mean', 'acc'." in said


def retained(model, loss):
    loss.backward(retain_graph=True)


def by_autograd_backward(model, loss):
    torch.autograd.backward([loss])


def by_autograd_grad(model, loss):
    for parameter, grad in zip(
        model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True
    ):
        parameter.grad = grad if parameter.grad is None else parameter.grad + grad


@pytest.mark.parametrize("backward", [retained, by_autograd_backward, by_autograd_grad])
@pytest.mark.parametrize("keep", [float, torch.Tensor.detach, torch.Tensor.item])
def test_one_backward_a_micro_batch_is_right_however_it_is_written(backward, keep):
    def accumulate(model, micro_batches, criterion, optimizer):
        num_examples = sum(len(targets) for _, targets in micro_batches)
        optimizer.zero_grad()
        total = 0.0
        for inputs, targets in micro_batches:
            loss = criterion(model(inputs), targets) * len(targets) / num_examples
            backward(model, loss)
            total += keep(loss)
        optimizer.step()
        return total

    result = check("03a.accumulate", accumulate, parts="all", seed=0)
    assert result.passed, result.message


def test_functional_gradients_are_right_too():
    def accumulate(model, micro_batches, criterion, optimizer):
        num_examples = sum(len(targets) for _, targets in micro_batches)
        parameters = {name: p.detach() for name, p in model.named_parameters()}

        def loss_of(parameters, inputs, targets):
            logits = torch.func.functional_call(model, parameters, (inputs,))
            return criterion(logits, targets) * len(targets) / num_examples

        optimizer.zero_grad()
        total = 0.0
        for inputs, targets in micro_batches:
            grads, loss = torch.func.grad_and_value(loss_of)(parameters, inputs, targets)
            total += loss.item()
            for name, parameter in model.named_parameters():
                grad = grads[name]
                parameter.grad = grad if parameter.grad is None else parameter.grad + grad
        optimizer.step()
        return total

    result = check("03a.accumulate", accumulate, parts="all", seed=0)
    assert result.passed, result.message


def test_int32_labels_are_a_fault_of_dtype_and_nothing_else():
    exercise = bank.load("03b.inspect-batch")
    targets = torch.tensor([0, 3, 1], dtype=torch.int32)
    assert exercise.reference(torch.zeros(3, 3), targets, 4) == ["dtype"]
    with pytest.raises(RuntimeError):  # torch itself as the witness
        torch.nn.functional.cross_entropy(torch.zeros(3, 4), targets)


@pytest.mark.parametrize("first", ["sizes", "dtype", "non-finite", "labels"])
@pytest.mark.parametrize("second", ["sizes", "dtype", "non-finite", "labels"])
def test_one_fault_must_not_hide_another(first, second):
    """Everywhere right, but `second` is not looked for where `first` was found."""

    def hiding(inputs, targets, num_classes):
        found = bank.load("03b.inspect-batch").right[0](inputs, targets, num_classes)
        return [name for name in found if name != second] if first in found else found

    for seed in range(5 if THOROUGH else 2):
        assert not check("03b.inspect-batch", hiding, seed=seed).passed


@pytest.mark.parametrize("round_down", [int, round])
def test_a_share_that_is_rounded_down_is_too_small(round_down):
    def rounding(groups, order, val_share):
        wanted, val = round_down(val_share * len(groups)), []
        for name in order:
            if len(val) >= wanted:
                break
            val += (groups == name).nonzero().flatten().tolist()
        return [i for i in range(len(groups)) if i not in val], sorted(val)

    for seed in range(20):
        assert "Validation is smaller" in told("03b.split-by-group", rounding, seed)


def test_a_share_compared_without_a_tolerance_is_right():
    def plain(groups, order, val_share):
        val = []
        for name in order:
            if len(val) >= val_share * len(groups):
                break
            val += (groups == name).nonzero().flatten().tolist()
        return [i for i in range(len(groups)) if i not in val], sorted(val)

    for seed in range(50):
        assert check("03b.split-by-group", plain, parts="all", seed=seed).passed
