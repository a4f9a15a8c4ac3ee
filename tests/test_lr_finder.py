"""The learning-rate finder: what it reads off a curve, and that it leaves no trace."""

import copy
import itertools
import json
import math
import pickle
import random
import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from course.data import load
from course.data.loading import InMemoryLoader
from course.lr_finder import RULES, LRCurve, LRFinderError, lr_find, running_mean

DIGITS = load("digits")


def model_of(device="cpu"):
    torch.manual_seed(0)
    layers = (nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 10))
    return nn.Sequential(nn.Flatten(), *layers).to(device)


def loader_of(seed=0, size=64):
    data = TensorDataset(DIGITS.train_inputs, DIGITS.train_targets)
    return DataLoader(data, size, shuffle=True, generator=torch.Generator().manual_seed(seed))


def everything(model, optimizer, loader, scheduler=None):
    """All that must come back, as bytes."""
    parts = [
        {n: t.clone() for n, t in model.state_dict().items()},
        {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()},
        [module.training for module in model.modules()],
        copy.deepcopy(optimizer.state_dict()),
        [group["params"][0] is next(model.parameters()) for group in optimizer.param_groups],
        loader.generator.get_state(),
        torch.get_rng_state(), np.random.get_state(), random.getstate(),
        scheduler and scheduler.state_dict(),
    ]  # fmt: skip
    return pickle.dumps([_plain(part) for part in parts])


def _plain(value):
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), tuple(value.shape), value.cpu().numpy().tobytes())
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items() if k != "_schedulers"}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return value


def warm(optimizer_class, **options):
    """A set-up in the middle of training: momenta, gradients, a schedule under way."""
    model, loader = model_of(), loader_of()
    optimizer = optimizer_class(model.parameters(), **options)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
    for inputs, targets in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    scheduler.step()
    model[2].eval()
    return model, loader, optimizer, scheduler


OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (torch.optim.Adam, {"lr": 1e-3}),
    (torch.optim.AdamW, {"lr": torch.tensor(1e-3)}),
    (torch.optim.RMSprop, {"lr": 1e-3}),
]


@pytest.mark.parametrize("optimizer_class,options", OPTIMIZERS)
def test_everything_is_left_bit_for_bit_as_it_was(optimizer_class, options):
    model, loader, optimizer, scheduler = warm(optimizer_class, **copy.deepcopy(options))
    before = everything(model, optimizer, loader, scheduler)
    lr_find(model, nn.CrossEntropyLoss(), optimizer, loader, steps=30)
    assert everything(model, optimizer, loader, scheduler) == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_everything_is_left_as_it_was_after_an_exception_too(error):
    model, loader, optimizer, scheduler = warm(torch.optim.Adam, lr=1e-3)
    before = everything(model, optimizer, loader, scheduler)
    calls = []

    def criterion(outputs, targets):
        calls.append(torch.rand(1))
        if len(calls) == 40:
            raise error("in the middle")
        return F.cross_entropy(outputs, targets)

    with pytest.raises(error, match="in the middle"):
        lr_find(model, criterion, optimizer, loader, steps=30)
    assert everything(model, optimizer, loader, scheduler) == before


def test_training_after_the_finder_ends_with_the_same_bits_as_without_it():
    def train(with_finder):
        model, loader, optimizer, scheduler = warm(torch.optim.Adam, lr=1e-3)
        if with_finder:
            lr_find(model, nn.CrossEntropyLoss(), optimizer, loader, steps=20)
        for inputs, targets in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
        return everything(model, optimizer, loader, scheduler)

    assert train(True) == train(False)


def test_data_and_lists_of_the_loader_come_back(device):
    inputs, targets = torch.randn(64, 3), torch.randint(0, 2, (64,))
    batches = [(inputs[i : i + 16], targets[i : i + 16]) for i in range(0, 64, 16)]
    model = nn.Linear(3, 2).to(device)
    kept = inputs.clone()
    lr_find(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1), batches)
    assert torch.equal(inputs, kept) and len(batches) == 4


class Noisy(torch.utils.data.Dataset):
    """Rows with fresh noise from the worker's own generator."""

    def __len__(self):
        return 32

    def __getitem__(self, row):
        return torch.randn(64), row % 10


def test_persistent_workers_go_on_as_if_nothing_had_been_swept():
    def second_epoch(with_finder):
        torch.manual_seed(0)
        order = torch.Generator().manual_seed(0)
        loader = DataLoader(Noisy(), 8, num_workers=1, persistent_workers=True, generator=order)
        model = nn.Linear(64, 10)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        list(loader)
        if with_finder:
            lr_find(model, nn.CrossEntropyLoss(), optimizer, loader, steps=5, sweeps=1)
        return torch.cat([inputs for inputs, _ in loader])

    assert torch.equal(second_epoch(True), second_epoch(False))


def test_every_object_is_still_itself_and_at_its_place():
    model, loader, optimizer, _ = warm(torch.optim.Adam, lr=1e-3)

    def identities():
        weights = [*model.parameters(), *model.buffers()]
        state = [value for of in optimizer.state.values() for value in of.values()]
        grads = [parameter.grad for parameter in model.parameters()]
        things = [*weights, *state, *grads, *optimizer.param_groups]
        return [id(thing) for thing in things], [weight.data_ptr() for weight in weights]

    before = identities()
    lr_find(model, nn.CrossEntropyLoss(), optimizer, loader, steps=20)
    assert identities() == before


def test_a_loader_that_counts_its_epochs_is_where_it_was():
    loader = InMemoryLoader(torch.randn(64, 64), torch.randint(0, 10, (64,)), 8, shuffle=True)
    next(iter(loader))
    list(loader)
    epoch, expected = loader.epoch, copy.deepcopy(loader)
    model = nn.Linear(64, 10)
    lr_find(model, nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), 0.1), loader)
    assert loader.epoch == epoch > 0
    for (ours, _), (theirs, _) in zip(loader, expected, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_layer_frozen_in_eval_mode_is_swept_so_as_the_trainer_trains_it(frozen, capsys):
    class Watched(nn.BatchNorm1d):
        def forward(self, inputs):
            print(self.training)  # a list would be given back as it was
            return super().forward(inputs)

    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), Watched(8), nn.Linear(8, 10))
    model[2].train(not frozen)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    lr_find(model, nn.CrossEntropyLoss(), optimizer, loader_of(), steps=5, sweeps=1)
    assert set(capsys.readouterr().out.split()) == {str(not frozen)}
    assert model[2].training is not frozen


def test_a_generator_is_refused_before_a_batch_is_drawn_from_it():
    batches = (batch for batch in loader_of())
    model = model_of()
    with pytest.raises(LRFinderError, match="generator, which can be read only once"):
        lr_find(model, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters()), batches)
    assert len(list(batches)) == len(loader_of())


def test_a_model_in_which_nothing_can_move_is_refused():
    model = model_of()
    optimizer = torch.optim.Adam(model.parameters())
    with pytest.raises(LRFinderError, match="requires_grad"):
        lr_find(model.requires_grad_(False), nn.CrossEntropyLoss(), optimizer, loader_of())
    with pytest.raises(LRFinderError, match="lazy parameters"):
        lr_find(nn.LazyLinear(10), nn.CrossEntropyLoss(), optimizer, loader_of())


def quadratic(curvature=2.0):
    """One weight, loss c/2 w², gradient descent: diverges exactly from lr = 2/c on."""

    class Weight(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.tensor(1.0))

        def forward(self, x):
            return self.w.expand(len(x))

    model = Weight()
    return model, lambda out, y: curvature / 2 * out.square().mean(), [(torch.zeros(4, 1),) * 2] * 3


def test_plain_sweep_on_a_quadratic_equals_the_closed_form():
    model, criterion, loader = quadratic()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    curve = lr_find(
        model, criterion, optimizer, loader, start=1e-3, end=0.5, steps=20, sweeps=1, hold=1
    )
    w, expected = 1.0, []
    for lr in curve.lrs:
        w -= lr * 2.0 * w
        expected.append(w**2)
    assert curve.lrs == pytest.approx(np.geomspace(1e-3, 0.5, 20).tolist())
    assert curve.losses == pytest.approx(expected, rel=1e-5)
    assert curve.start_loss == 1.0 and curve.stopped == "end"


def test_divergence_of_a_quadratic_is_seen_behind_two_over_the_curvature():
    model, criterion, loader = quadratic()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    curve = lr_find(model, criterion, optimizer, loader, start=1e-4, end=1e3)
    assert curve.stopped in ("diverged", "non-finite")
    assert 1.0 < curve.lrs[-1] < 100
    for rule in RULES:
        assert 1e-4 < curve.suggest(rule).lr < 1.0


def test_groups_keep_the_ratio_of_their_rates():
    model = nn.Linear(64, 10)
    groups = [{"params": [model.weight], "lr": 1e-2}, {"params": [model.bias], "lr": 1e-3}]
    optimizer, seen = torch.optim.SGD(groups), []

    def criterion(outputs, targets):
        seen.append([group["lr"] for group in optimizer.param_groups])
        return F.cross_entropy(outputs, targets)

    flat = [(x.flatten(1), y) for x, y in loader_of()]
    lr_find(model, criterion, optimizer, flat, steps=10)
    assert all(a == pytest.approx(10 * b) for a, b in seen)


def test_accumulation_makes_one_update_of_several_micro_batches():
    """Four micro-batches of 16 move the weights as one batch of 64 does."""
    data = [(x.flatten(1), y) for x, y in loader_of(size=64)][:20]
    small = [(a, b) for x, y in data for a, b in zip(x.split(16), y.split(16), strict=True)]
    curves = []
    for loader, accum in ((data, 1), (small, 4)):
        torch.manual_seed(0)
        model = nn.Linear(64, 10)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        curves.append(lr_find(model, nn.CrossEntropyLoss(), optimizer, loader, steps=20,
                              end=0.1, accum_steps=accum))  # fmt: skip
    assert curves[0].losses == pytest.approx(curves[1].losses, rel=1e-4)


def test_losses_may_be_measured_on_validation():
    model = model_of()
    train, val = DIGITS.loaders(64)
    optimizer = torch.optim.Adam(model.parameters())
    curve = lr_find(model, nn.CrossEntropyLoss(), optimizer, train, val_loader=val, steps=25,
                    sweeps=1, rule="decade")  # fmt: skip
    rough = [abs(b - a) for a, b in zip(curve.losses[:8], curve.losses[1:9], strict=True)]
    assert max(rough) < 0.05 and curve.suggestion.lr


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_suggestion_on_digits_trains_well(precision, device):
    model, loader = model_of(device), loader_of()
    optimizer = torch.optim.Adam(model.parameters())
    curve = lr_find(model, nn.CrossEntropyLoss(), optimizer, loader, precision=precision)
    assert 1e-3 < curve.suggestion.lr < 5e-2
    optimizer.param_groups[0]["lr"] = curve.suggestion.lr
    for inputs, targets in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
    assert loss < 0.6


def test_one_cycle_is_told_a_peak():
    model, loader = model_of(), loader_of()
    optimizer = torch.optim.AdamW(model.parameters())
    torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=100)
    curve = lr_find(model, nn.CrossEntropyLoss(), optimizer, loader)
    assert curve.peak == 1.9 and "one-cycle" in curve.notes[0]
    assert "for a peak" in curve.suggestion.reason


def two_rates():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for parameter in model.parameters():
            nn.init.uniform_(parameter, -0.1, 0.1)
    groups = [
        {"params": model[1].parameters(), "lr": 0.01},
        {"params": model[3].parameters(), "lr": 0.1},
    ]
    return model, torch.optim.SGD(groups, momentum=0.9)


def warm_up(update):
    return min(1.0, update / 10)


def step_in_a_hook(optimizer):
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up)
    optimizer.register_step_post_hook(lambda *_: schedule.step())
    return schedule


@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up),
        lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, [warm_up, lambda _: 1.0]),
        lambda optimizer: torch.optim.lr_scheduler.LinearLR(optimizer, 1e-6),
        step_in_a_hook,
    ],
    ids=["warm-up from 0", "of one group only", "nearly 0", "in a hook"],
)
def test_a_schedule_that_has_begun_changes_nothing_of_the_curve(schedule):
    """Ratios are those of the rates the author gave, not of the moment's, which may all be 0."""
    curves = []
    for make in (lambda _: None, schedule):
        model, optimizer = two_rates()
        made = make(optimizer)
        rates = [group["lr"] for group in optimizer.param_groups]
        count = made and made.last_epoch
        curves.append(
            lr_find(
                model, nn.CrossEntropyLoss(), optimizer, loader_of(),
                steps=25, sweeps=1, rule="decade",
            )
        )  # fmt: skip
        assert [group["lr"] for group in optimizer.param_groups] == rates
        assert (made and made.last_epoch) == count
    assert curves[0].losses == curves[1].losses and curves[0].suggestion == curves[1].suggestion


def test_groups_whose_rates_are_all_0_are_swept_alike_and_it_says_so():
    model, optimizer = two_rates()
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    curve = lr_find(model, nn.CrossEntropyLoss(), optimizer, loader_of(), sweeps=1, rule="decade")
    assert curve.suggestion.lr and "All 2 parameter groups have lr = 0" in str(curve)
    assert [group["lr"] for group in optimizer.param_groups] == [0.0, 0.0]


# What cannot work


def negative_cosine(outputs, targets):
    return -F.cosine_similarity(outputs, targets).mean()


def likelihood(outputs, targets):
    mean, log_var = outputs[:, :1], outputs[:, 1:2]
    return (log_var / 2 + (targets[:, :1] - mean).square() / log_var.exp() / 2).mean()


@pytest.mark.parametrize("criterion,width", [(negative_cosine, 8), (likelihood, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_a_loss_below_zero_is_swept_as_one_above_it(criterion, width, seed):
    """Shifted up by 20, the same loss has the same gradients and the same best rate."""
    torch.manual_seed(seed)
    x = torch.randn(103, 8)
    model = nn.Linear(8, width)
    model.weight.data *= 0.01 if criterion is likelihood else 1.0
    model.bias.data[1] -= 4.0 if criterion is likelihood else 0.0
    data = TensorDataset(x, 0.05 * x if criterion is likelihood else x)
    loader = DataLoader(data, 10, shuffle=True, generator=torch.Generator().manual_seed(seed))
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    plain, shifted = (
        lr_find(model, loss, optimizer, loader, rule="decade", sweeps=1, hold=1, steps=60)
        for loss in (criterion, lambda outputs, targets: 20 + criterion(outputs, targets))
    )
    assert abs(len(plain.lrs) - len(shifted.lrs)) <= 6 and len(plain.lrs) > 40
    assert plain.suggest("decade").lr is not None


def test_too_short_a_sweep_is_not_called_a_divergence():
    model = model_of()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    curve = lr_find(model, nn.CrossEntropyLoss(), optimizer, loader_of(), steps=2, end=1e-3)
    assert "only 2 rates were swept" in curve.suggestion.reason


def test_a_loader_of_one_batch_is_recycled_and_says_so():
    model = model_of()
    one = [next(iter(loader_of()))]
    curve = lr_find(model, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters()), one)
    assert curve.suggestion.lr and "one batch" in str(curve)


@pytest.mark.parametrize(
    "options,message",
    [
        ({"start": 1.0, "end": 0.1}, "0 < start < end"),
        ({"start": 0.0}, "0 < start < end"),
        ({"steps": 1}, "at least 2"),
        ({"smoothing": 1.0}, "up to below 1"),
        ({"diverge_at": 1.0}, "more than 1"),
        ({"rule": "best"}, "expected one of"),
        ({"sweeps": 0}, "at least 1"),
        ({"accum_steps": 0}, "accum_steps = 0"),
        ({"precision": "fp8"}, "precision = 'fp8'"),
        ({"steps": 3.5}, "steps = 3.5: expected a whole number"),
        ({"trial_steps": True}, "trial_steps = True: expected a whole number"),
        ({"start": "1e-5"}, "start = '1e-5': expected a number"),
        ({"optimizer": {"a": 1, "b": 2}}, "one sweep finds the rate of one optimizer"),
    ],
)
def test_arguments_out_of_range_are_refused(options, message):
    model = model_of()
    optimizer = torch.optim.Adam(model.parameters())
    loader = loader_of()
    before = everything(model, optimizer, loader)
    with pytest.raises(ValueError, match=message):
        lr_find(model, nn.CrossEntropyLoss(), loader=loader, **{"optimizer": optimizer, **options})
    assert everything(model, optimizer, loader) == before


@pytest.mark.parametrize(
    "loader,message", [([], "yields no batch"), (iter([(torch.randn(4, 64),
     torch.zeros(4).long())] * 3), "which can be read only once")],
)  # fmt: skip
def test_a_loader_that_cannot_be_read_is_named(loader, message):
    model = model_of()
    optimizer = torch.optim.Adam(model.parameters())
    with pytest.raises(LRFinderError, match=message):
        lr_find(model, nn.CrossEntropyLoss(), optimizer, loader)


def test_an_optimizer_that_searches_its_own_step_is_refused():
    model = model_of()
    with pytest.raises(LRFinderError, match="closure"):
        lr_find(model, nn.CrossEntropyLoss(), torch.optim.LBFGS(model.parameters()), loader_of())


def test_a_model_that_gives_nan_at_once_gets_no_suggestion_and_the_reason():
    model = model_of()
    criterion = lambda out, y: F.cross_entropy(out, y) * float("nan")  # noqa: E731
    curve = lr_find(model, criterion, torch.optim.Adam(model.parameters()), loader_of())
    assert curve.stopped == "non-finite" and curve.lrs == ()
    assert curve.suggestion.lr is None and "very first loss" in curve.suggestion.reason
    assert "no suggestion" in str(curve)
    curve.plot()


def test_a_curve_without_descent_gets_no_suggestion():
    model = model_of()
    other = torch.optim.Adam(model_of().parameters())  # moves another model's weights
    curve = lr_find(model, nn.CrossEntropyLoss(), other, loader_of(), end=1e-1)
    assert curve.suggestion.lr is None and "never falls" in curve.suggestion.reason


def test_loss_of_nan_in_the_middle_keeps_what_was_seen():
    model, criterion, loader = quadratic()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    limited = lambda out, y: (  # noqa: E731
        criterion(out, y) if optimizer.param_groups[0]["lr"] < 0.1 else out.sum() * float("nan")
    )
    curve = lr_find(model, limited, optimizer, loader, start=1e-4, end=10.0, steps=60)
    assert curve.stopped == "non-finite" and 0.02 < curve.lrs[-1] < 0.1
    assert all(math.isfinite(loss) for loss in curve.losses)


# What is read off a curve


def curve_of(losses, **options):
    lrs = np.geomspace(1e-7, 10, len(losses)).tolist()
    given = {"start_loss": losses[0], "smoothing": 0.0, "diverge_at": 4.0, "stopped": "diverged"}
    return LRCurve(tuple(lrs), tuple(losses), **(given | options))


def test_rules_on_a_drawn_curve():
    """A sigmoid descent in log lr, its middle at 1e-3, then an explosion from 1e-1 on."""
    logs = np.linspace(-7, 1, 401)
    losses = 2.0 - 1.5 / (1 + np.exp(-4 * (logs + 3))) + np.exp(6 * (logs + 0.6))
    curve = curve_of(losses.tolist())
    lowest = logs[losses.argmin()]
    assert math.log10(curve.suggest("decade").lr) == pytest.approx(lowest - 1, abs=0.02)
    assert math.log10(curve.suggest("steepest").lr) == pytest.approx(-3, abs=0.1)
    share = (2.0 - losses) / (2.0 - losses.min())
    expected = logs[
        (share <= 0.65).nonzero()[0][losses.argmin() > (share <= 0.65).nonzero()[0]].max()
    ]
    assert math.log10(curve.suggest("halfway").lr) == pytest.approx(expected, abs=0.03)
    assert lowest - 3 < math.log10(curve.suggest("valley").lr) < lowest


def test_the_running_mean_is_that_of_adam():
    values = torch.randn(50, dtype=torch.float64)
    beta, parameter = 0.9, torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([parameter], betas=(beta, 0.999))
    means = running_mean(values.tolist(), beta)
    for count, value in enumerate(values, start=1):
        parameter.grad = value.reshape(1).clone()
        optimizer.step()
        expected = optimizer.state[parameter]["exp_avg"].item() / (1 - beta**count)
        assert means[count - 1] == pytest.approx(expected, abs=1e-9)


def test_an_unknown_rule_lists_those_there_are():
    with pytest.raises(ValueError, match="decade, halfway, steepest, valley"):
        curve_of([3.0, 2.0, 1.0, 1.0, 5.0]).suggest("best")


FALL = [2.0] * 10 + [1.0] * 10


@pytest.mark.parametrize(
    ("losses", "chosen"),
    [
        ((0.9, 0.33, 0.31, 0.30, 0.5), 1),
        ((0.9, 0.4, 0.31, 0.30, 0.5), 2),
        ((0.9, 0.45, 0.40, 0.30, math.inf), 3),
        ((-1.0, -4.9, -4.99, -5.0, -2.0), 2),
    ],
)
def test_the_lowest_rate_that_trains_as_well_as_any_is_taken(losses, chosen):
    rates = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    curve = curve_of(FALL, rule="trials", trials=tuple(zip(rates, losses, strict=True)))
    assert curve.suggestion.lr == rates[chosen]
    lowest = losses[chosen] == min(losses)
    said = "has the lowest loss" if lowest else "is the lowest whose loss"
    assert f"{rates[chosen]:.1e} {said}" in curve.suggestion.reason


def test_where_every_trial_was_lost_nothing_is_suggested():
    curve = curve_of(FALL, rule="trials", trials=((1e-2, math.inf), (1e-1, math.inf)))
    assert curve.suggestion.lr is None and "every trial diverged" in curve.suggestion.reason
    assert json.loads(json.dumps(curve.to_json(), allow_nan=False))["trials"] == [
        [1e-2, None], [1e-1, None],
    ]  # fmt: skip


def test_the_rule_trials_needs_trials():
    with pytest.raises(ValueError, match="no rates were tried out"):
        curve_of(FALL).suggest("trials")


def test_a_trial_is_a_plain_run_from_the_same_weights_on_the_same_batches():
    model, loader = model_of(), loader_of(3)
    optimizer = torch.optim.Adam(model.parameters())
    random_state = torch.get_rng_state()
    curve = lr_find(model, nn.CrossEntropyLoss(), optimizer, loader, trial_steps=30, end=0.1)
    assert all(lr <= 0.1 for lr, _ in (*curve.trials, *curve.dropped))
    assert {len(curve.trials), len(curve.dropped)} == {3, 1}
    for lr, loss, steps, late in (
        *((*trial, 30, 7) for trial in curve.trials),
        *((*trial, 6, 1) for trial in curve.dropped),
    ):
        torch.set_rng_state(random_state)
        twin, losses = copy.deepcopy(model).train(), []
        plain, batches = torch.optim.Adam(twin.parameters(), lr=lr), loader_of(3)
        while len(losses) < steps:
            for inputs, targets in batches:
                plain.zero_grad()
                fault = F.cross_entropy(twin(inputs), targets)
                fault.backward()
                plain.step()
                losses.append(fault.item())
        assert loss == pytest.approx(sum(losses[steps - late : steps]) / late, rel=1e-5)


def test_the_default_says_what_it_costs_and_costs_at_most_300_updates(capsys):
    model, count = model_of(), itertools.count()  # a list would be put back
    optimizer = torch.optim.Adam(model.parameters())
    optimizer.register_step_post_hook(lambda *_: next(count) and None)
    lr_find(model, nn.CrossEntropyLoss(), optimizer, loader_of(), progress=True)
    said = re.search(
        r"at most (\d+) updates.* ([\d.]+) passes over the data", capsys.readouterr().out
    )
    assert 200 < next(count) <= int(said[1]) <= 300
    assert float(said[2]) == pytest.approx(int(said[1]) / len(loader_of()), abs=0.05)
    lr_find(model, nn.CrossEntropyLoss(), optimizer, loader_of(), steps=5, progress=False)
    assert not capsys.readouterr().out


def test_the_best_three_rates_are_tried_out_longer():
    model = model_of()
    optimizer = torch.optim.Adam(model.parameters())
    curve = lr_find(model, nn.CrossEntropyLoss(), optimizer, loader_of(), trial_steps=40)
    assert len(curve.trials) == 3 and len(curve.dropped) == 2
    assert curve.suggestion.lr in [lr for lr, _ in curve.trials]
    assert "5 rates tried out: 3 for 40 updates, 2 for 8." in curve.suggestion.reason
    assert all(early > min(loss for _, loss in curve.trials) for _, early in curve.dropped)
    plain = json.loads(json.dumps(curve.to_json(), allow_nan=False))
    assert plain["dropped"] == [list(trial) for trial in curve.dropped]


def test_a_best_rate_with_none_above_it_is_named():
    trials = (1e-2, 0.5), (1e-1, 0.4)
    alone = curve_of(FALL, rule="trials", trials=trials, trial_steps=58)
    assert "0.4 at 1.0e-01" in alone.suggestion.reason
    assert alone.suggestion.reason.endswith("No rate above the best was tried.")
    above = curve_of(FALL, rule="trials", trials=trials, trial_steps=58, dropped=((1.0, 0.9),))
    assert "above the best" not in above.suggestion.reason


def test_trials_are_judged_by_the_validation_loss_where_there_is_a_loader():
    """Of a model that is asked for other labels in validation, the trials' losses are those."""
    model, (_, val) = model_of(), DIGITS.loaders(64)
    optimizer = torch.optim.Adam(model.parameters())
    options = {"steps": 60, "start": 1e-4, "end": 0.3, "trial_steps": 5}
    other = [(inputs, (targets + 1) % 10) for inputs, targets in val]
    curves = [
        lr_find(model, nn.CrossEntropyLoss(), optimizer, loader_of(3), val_loader=loader, **options)
        for loader in (None, val, other)
    ]
    assert curves[0].losses == curves[1].losses == curves[2].losses
    rates, losses = zip(*(zip(*curve.trials, strict=True) for curve in curves), strict=True)
    assert rates[0] == rates[1] == rates[2]
    assert all(worse > better for better, worse in zip(losses[1], losses[2], strict=True))


def test_the_curve_goes_to_json_to_a_notebook_and_to_a_picture():
    model = model_of()
    curve = lr_find(model, nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters()), loader_of())
    plain = json.loads(json.dumps(curve.to_json(), allow_nan=False))
    assert plain["suggestions"]["decade"]["lr"] == curve.suggest("decade").lr
    assert "<b>trials</b>" in curve._repr_html_() and ">decade</td>" in curve._repr_html_()
    labels = [text.get_text() for text in curve.plot().axes[0].get_legend().get_texts()]
    assert {"lowest", "steepest", "smoothed", "tried out", "given up early"} <= set(labels)
