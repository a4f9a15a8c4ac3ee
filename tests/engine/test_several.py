"""Several optimizers in a step of one's own: the bits of the loop by hand, also after a kill."""

from __future__ import annotations

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import SGD, Adam, lr_scheduler
from torch.optim.lr_scheduler import StepLR

from course.engine import Callback, EngineError, Loss, NonFiniteError, Trainer, read_run

REAL = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)) + 2


def batches() -> list[torch.Tensor]:
    return list(REAL.split(8))


def parts():
    torch.manual_seed(0)
    generator, critic = nn.Linear(2, 3), nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    return (
        {"generator": generator, "critic": critic},
        {
            "generator": Adam(generator.parameters(), lr=0.01),
            "critic": Adam(critic.parameters(), lr=0.02),
        },
    )


def critic_loss(models, real, fake):
    yes, no = models["critic"](real), models["critic"](fake.detach())
    return F.softplus(-yes).mean() + F.softplus(no).mean()


def generator_loss(models, fake):
    return F.softplus(-models["critic"](fake)).mean()


def gan_step(step, real):
    fake = step.models["generator"](torch.randn(len(real), 2))
    cost = critic_loss(step.models, real, fake)
    step.descend("critic", cost)
    price = generator_loss(step.models, fake)
    step.descend("generator", price)
    return {"critic": cost, "generator": price}


def by_hand(epochs: int):
    models, optimizers = parts()
    schedules = [StepLR(optimizer, 1, 0.9) for optimizer in optimizers.values()]
    torch.manual_seed(7)
    losses = []
    for _ in range(epochs):
        for real in batches():
            fake = models["generator"](torch.randn(len(real), 2))
            optimizers["critic"].zero_grad()
            cost = critic_loss(models, real, fake)
            cost.backward()
            optimizers["critic"].step()
            optimizers["generator"].zero_grad()
            price = generator_loss(models, fake)
            price.backward()
            optimizers["generator"].step()
            losses.append((cost.item(), price.item()))
        for schedule in schedules:
            schedule.step()
    return models, losses


class Kill(Callback):
    def __init__(self, at: int) -> None:
        self.at = at

    def on_update_end(self, trainer):
        if trainer.progress.update == self.at:
            raise KeyboardInterrupt


def fit(directory=None, *, callbacks=(), resume=None, epochs=3, **options):
    models, optimizers = parts()
    scheduler = {name: StepLR(one, 1, 0.9) for name, one in optimizers.items()}
    trainer = Trainer(
        models, optimizer=optimizers, step=gan_step, scheduler=scheduler, seed=7, device="cpu",
        callbacks=callbacks, run_dir=directory, **options,
    )  # fmt: skip
    history = trainer.fit(
        batches(), epochs=epochs, resume=resume, checkpoint_every=1, progress=False
    )
    return models, history


def assert_same(ours, theirs):
    for name in theirs:
        for one, other in zip(ours[name].parameters(), theirs[name].parameters(), strict=True):
            assert torch.equal(one, other)


def test_a_gan_has_the_bits_of_its_loop_by_hand():
    models, history = fit()
    theirs, losses = by_hand(3)
    assert_same(models, theirs)
    last = torch.tensor(losses[-5:]).mean(0).tolist()
    assert history[-1]["train_critic"] == pytest.approx(last[0], rel=1e-6)
    assert history[-1]["train_generator"] == pytest.approx(last[1], rel=1e-6)
    assert history[-1]["train_loss"] == history[-1]["train_critic"]  # the first is what is watched


@pytest.mark.parametrize("at", [1, 5, 7, 14])
def test_a_killed_gan_goes_on_with_the_same_bits(tmp_path, at):
    whole, history = fit()
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run", callbacks=[Kill(at)])
    models, resumed = fit(tmp_path / "run", resume="auto")
    assert_same(models, whole)
    assert resumed[-1]["train_critic"] == pytest.approx(history[-1]["train_critic"], rel=1e-12)


def test_an_actor_critic_shares_one_model():
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.actor, self.value = nn.Linear(3, 2), nn.Linear(3, 1)

    def losses(net, state):
        gain = state.sum(1) - net.value(state).squeeze(1)
        action = net.actor(state).log_softmax(1)[:, 0]
        return gain.square().mean(), -(action * gain.detach()).mean()

    def step(step, state):
        value, policy = losses(step.models, state)
        step.descend("value", value, retain_graph=True)
        step.descend("actor", policy)
        return {"value": value, "policy": policy}

    def make():
        torch.manual_seed(0)
        net = Net()
        return net, {
            "value": SGD(net.value.parameters(), lr=0.1), "actor": SGD(net.actor.parameters(), lr=1)
        }  # fmt: skip

    net, optimizers = make()
    Trainer(net, optimizer=optimizers, step=step, device="cpu").fit(
        batches(), epochs=2, progress=False
    )
    theirs, own = make()
    for _ in range(2):
        for state in batches():
            value, policy = losses(theirs, state)
            for name, loss in (("value", value), ("actor", policy)):
                own[name].zero_grad()
                loss.backward()
                own[name].step()
    assert torch.equal(net.actor.weight, theirs.actor.weight)
    assert torch.equal(net.value.weight, theirs.value.weight)


def test_validation_clipping_and_the_record_know_all_of_them(tmp_path):
    def judged(models, real):
        return Loss(critic_loss(models, real, models["generator"](torch.zeros(len(real), 2))))

    models, optimizers = parts()
    trainer = Trainer(
        models, optimizer=optimizers, step=gan_step, loss_of=judged, max_norm=1e-9, device="cpu",
        run_dir=tmp_path / "run",
    )  # fmt: skip
    before = models["critic"][0].weight.detach().clone()
    history = trainer.fit(batches(), batches(), epochs=1, progress=False)
    assert history[-1]["val_loss"] > 0 and history[-1]["grad_norm"] > 1e-3
    moved = (models["critic"][0].weight - before).abs().max()
    assert 0 < moved < 0.2  # Adam divides by the clipped norm: still its usual step
    settings = read_run(tmp_path / "run").content["settings"]
    assert settings["optimizer"] == "generator: Adam, critic: Adam"
    assert settings["step"] == "gan_step"


def test_a_loss_that_is_not_finite_moves_nothing():
    def broken(step, real):
        step.descend("critic", step.models["critic"](real).mean() * float("nan"))

    models, optimizers = parts()
    before = models["critic"][0].weight.detach().clone()
    trainer = Trainer(models, optimizer=optimizers, step=broken, device="cpu")
    with pytest.raises(NonFiniteError):
        trainer.fit(batches(), epochs=1, progress=False)
    assert torch.equal(models["critic"][0].weight, before)


@pytest.mark.parametrize(("late", "error", "says"), [
    (lambda step, real: step.descend("generator", step.models["generator"](real).sum() * torch.nan),
     NonFiniteError, "the step of 'generator' was not taken.* critic had already stepped"),
    (lambda step, real: step.descend("generator", real.sum()), EngineError,
     "no graph.* critic had already stepped"),
    (lambda step, real: 1 / 0, ZeroDivisionError, "critic had already stepped"),
], ids=["nan", "refused", "raises"])  # fmt: skip
def test_what_had_moved_before_an_error_is_said(late, error, says):
    def step(step, real):
        step.descend("critic", step.models["critic"](real).mean())
        late(step, torch.randn(4, 2))

    models, optimizers = parts()
    before = models["critic"][0].weight.detach().clone()
    trainer = Trainer(models, optimizer=optimizers, step=step, device="cpu")
    with pytest.raises(error) as raised:
        trainer.fit(batches(), epochs=1, progress=False)
    said = " ".join([str(raised.value), *getattr(raised.value, "__notes__", [])])
    assert re.search(says, said) and "before this update" not in said
    assert not torch.equal(models["critic"][0].weight, before)


def rates_of(make, per, **plan):
    models, optimizers = parts()
    trainer = Trainer(
        models, optimizer=optimizers, step=gan_step, device="cpu", schedule_per=per,
        scheduler={name: make(optimizer) for name, optimizer in optimizers.items()},
    )  # fmt: skip
    return trainer.fit(batches(), progress=False, **plan).column("lr")


@pytest.mark.parametrize(("make", "per", "says"), [
    (lr_scheduler.ReduceLROnPlateau, "epoch", "ReduceLROnPlateau needs a metric"),
    (lambda o: StepLR(o, 1), "metric", "StepLR counts steps"),
    (lambda o: lr_scheduler.CosineAnnealingLR(o, 2), "update", "2 steps long"),
    (lambda o: lr_scheduler.OneCycleLR(o, 0.1, total_steps=5), "update", "5 steps long"),
    (lambda o: lr_scheduler.ReduceLROnPlateau(o, mode="max"), "metric", "mode='max' but fit"),
    (lambda o: 3, "epoch", "scheduler = 3: expected one of torch.optim.lr_scheduler"),
])  # fmt: skip
def test_each_of_several_schedulers_is_checked(make, per, says):
    with pytest.raises(EngineError, match=says):
        rates_of(make, per, epochs=3)


def test_several_schedulers_wait_on_a_plateau():
    def make(optimizer):
        return lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=100.0)

    first, *later = rates_of(make, "metric", epochs=3)
    assert later == pytest.approx([first / 10, first / 100])


@pytest.mark.parametrize(("step", "says"), [
    (lambda step, batch: torch.ones(()), "the step moved nothing"),
    (lambda step, batch: step.descend("nobody", batch.sum()),
     "no such part; choose from generator"),
    (lambda step, batch: step.descend("critic", batch.sum()), "the loss has no graph"),
    (lambda step, batch: step.descend("critic", step.models["critic"](batch).sum()),
     "the step returned None"),
], ids=["moves nothing", "unknown name", "no graph", "returns nothing"])  # fmt: skip
def test_a_step_that_cannot_work_says_so(step, says):
    models, optimizers = parts()
    trainer = Trainer(models, optimizer=optimizers, step=step, device="cpu")
    with pytest.raises(EngineError, match=says):
        trainer.fit(batches(), epochs=1, progress=False)


@pytest.mark.parametrize(("options", "says"), [
    ({"accum_steps": 2}, "one batch at a time"),
    ({"compile": True}, "compile the models yourself"),
    ({"step": nn.ReLU}, "step is the class ReLU"),
])  # fmt: skip
def test_what_a_step_of_ones_own_cannot_have(options, says):
    models, optimizers = parts()
    with pytest.raises(EngineError, match=says):
        Trainer(models, optimizer=optimizers, **{"step": gan_step, **options})


def test_several_without_a_step_and_validation_without_a_loss_are_refused():
    models, optimizers = parts()
    with pytest.raises(EngineError, match="need a step that defines the order"):
        Trainer(models["critic"], nn.MSELoss(), optimizers)
    with pytest.raises(EngineError, match="nothing defines how to validate"):
        Trainer(models, optimizer=optimizers, step=gan_step).fit(batches(), batches(), epochs=1)


def test_a_forward_after_descend_uses_the_new_weights_under_autocast_too():
    model, x = nn.Linear(4, 1, bias=False), torch.ones(8, 4)
    seen = []

    def step(step, _):
        loss = step.models["one"](x).float().mean()
        step.descend("one", loss)
        seen.append((step.models["one"](x).float().mean().item(), model.weight.sum().item()))
        return loss

    optimizer = {"one": SGD(model.parameters(), lr=0.1)}
    trainer = Trainer(
        {"one": model}, optimizer=optimizer, step=step, precision="bf16", device="cpu"
    )
    trainer.fit([x, x], epochs=1)
    for forward, truth in seen:
        assert forward == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_one_optimizer_may_descend_twice_in_a_step(precision):
    """As a WGAN's critic does; the slope of this loss is 0.25 everywhere."""
    model, x = nn.Linear(4, 1, bias=False), torch.full((8, 4), 0.25)
    nn.init.ones_(model.weight)

    def step(step, _):
        for _ in range(2):
            loss = step.models["one"](x).float().mean()
            step.descend("one", loss)
        return loss

    optimizer = {"one": SGD(model.parameters(), lr=0.5)}
    trainer = Trainer(
        {"one": model}, optimizer=optimizer, step=step, precision=precision, device="cpu"
    )
    trainer.fit([x, x, x], epochs=1)
    torch.testing.assert_close(model.weight.detach(), torch.full((1, 4), 1 - 6 * 0.5 * 0.25))


def test_models_that_come_in_eval_mode_are_trained_in_train_mode_and_a_teacher_is_not():
    parts = {
        "student": nn.Sequential(nn.Linear(2, 2), nn.Dropout()),
        "head": nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1)),
        "teacher": nn.Sequential(nn.Linear(2, 2), nn.Dropout()),
        "frozen": nn.Linear(2, 2).requires_grad_(False),
    }
    for part in parts.values():
        part.eval()
    parts["head"].train()
    parts["head"][1].eval()  # a layer frozen on purpose
    modes = []

    def step(step, batch):
        modes.append({name: part.training for name, part in step.models.items()})
        assert not step.models["head"][1].training
        loss = step.models["head"](step.models["student"](batch)).mean()
        step.descend("one", loss)
        return loss

    moves = [p for name in ("student", "head", "frozen") for p in parts[name].parameters()]
    trainer = Trainer(parts, optimizer={"one": SGD(moves, lr=0.1)}, step=step, device="cpu")
    trainer.fit([torch.randn(4, 2)], epochs=2)
    assert modes == [{"student": True, "head": True, "teacher": False, "frozen": False}] * 2
