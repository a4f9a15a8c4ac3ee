"""`compile="step"`: the plain step's numbers, the same bits after a resume, else a reason.

Torch's backend `eager` runs the traced step operation by operation: what is tested here is what is
traced. One test, marked slow, makes machine code of it.
"""

import pytest
import torch
import torch._inductor.config as inductor
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR
from torch.utils.data import DataLoader, TensorDataset

from course.data.loading import InMemoryLoader
from course.engine import Callback, Loss, NonFiniteError, Trainer, one_graph
from course.engine.one_graph import OneGraph

SPREAD = 10 ** torch.linspace(-1, 1, 3)
X = torch.randn(20, 5, generator=torch.Generator().manual_seed(1))
Y = (X[:, :3] * SPREAD).argmax(1)


@pytest.fixture
def traced(monkeypatch):
    """Trace, and make no machine code."""
    monkeypatch.setattr(one_graph, "COMPILER", {"backend": "eager"})


def weights_of(model):
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def make(compile, optimizer=SGD, schedule=None, hidden=4, **options):
    torch.manual_seed(0)
    layers = (nn.Linear(5, hidden), nn.Dropout(0.2), nn.ReLU(), nn.Linear(hidden, 3))
    model = nn.Sequential(*layers)
    moves = optimizer(model.parameters(), lr=0.1)
    scheduler = schedule(moves) if schedule else None
    if "loss_of" not in options and "step" not in options:
        options["criterion"] = nn.CrossEntropyLoss()
    return Trainer(
        model, optimizer=moves, compile=compile, scheduler=scheduler, schedule_per="update",
        check_schedule=False, device="cpu", seed=0, **options,
    )  # fmt: skip


def train(trainer, inputs=X, batch_size=5, updates=6, **options):
    loader = DataLoader(TensorDataset(inputs, Y), batch_size, shuffle=True)
    trainer.fit(loader, max_updates=updates, progress=False, **options)
    return trainer


def falling(optimizer):
    return CosineAnnealingLR(optimizer, 6)


def test_a_graph_moves_the_weights_as_the_plain_step_and_resumes_to_the_same_bits(traced, tmp_path):
    """Under a schedule, clipped, with dropout."""

    def run(compile, where=None, updates=6, **more):
        trainer = make(compile, with_momentum, falling, max_norm=0.3, run_dir=where)
        return train(trainer, batch_size=10, updates=updates, log_every=1, **more)

    plain, graph = run(False), run("step", tmp_path / "a")
    assert (graph.one_graph.refused, len(graph.one_graph.admitted)) == ("", 1)
    torch.testing.assert_close(weights_of(graph.model), weights_of(plain.model))
    assert graph.history[-1]["grad_norm"] == pytest.approx(plain.history[-1]["grad_norm"], rel=1e-4)
    assert graph.optimizer.param_groups[0]["lr"] == plain.optimizer.param_groups[0]["lr"]

    run("step", tmp_path / "b", updates=3)
    resumed = run("step", tmp_path / "b", resume="auto")
    assert torch.equal(weights_of(resumed.model), weights_of(graph.model))
    saved = torch.load(tmp_path / "a" / "last.pt", weights_only=True)
    assert list(saved["model"]) == list(plain.model.state_dict())
    assert type(saved["optimizer"]["param_groups"][0]["lr"]) is float


def with_momentum(parameters, lr):
    return SGD(parameters, lr, momentum=0.9)


class Breaking:
    """A loader whose third batch holds a nan."""

    def __iter__(self):
        for number in range(4):
            inputs = X[number * 5 : number * 5 + 5].clone()
            inputs[0, 0] = float("nan") if number == 2 else inputs[0, 0]
            yield inputs, Y[number * 5 : number * 5 + 5]


def test_a_graph_leaves_weights_and_momentum_alone_where_the_loss_is_not_finite(traced):
    trainers = [make(compile, with_momentum) for compile in ("step", "step", False)]
    with pytest.raises(NonFiniteError, match=r"batch 2.*step not taken"):
        trainers[0].fit(Breaking(), epochs=1, progress=False)
    for trainer in trainers[1:]:
        trainer.fit(Breaking(), epochs=1, progress=False, on_nonfinite="skip")
        assert trainer.history[-1]["skipped"] == 1 and trainer.progress.update == 3
    assert trainers[1].one_graph.refused == ""
    assert torch.isfinite(weights_of(trainers[0].model)).all()
    ours, theirs = (trainer.optimizer.state_dict()["state"] for trainer in trainers[1:])
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(weights_of(trainer.model) for trainer in trainers[1:]))


def own_loss(model, batch):
    inputs, targets = batch
    return Loss(nn.functional.cross_entropy(model(inputs), targets), len(targets))


def own_step(step, batch):
    loss = own_loss(step.models, batch).value
    step.descend("optimizer", loss)
    return loss


class Carrying:
    """A `loss_of` with a state of its own."""

    def __call__(self, model, batch):
        return own_loss(model, batch)

    def start_pass(self):
        pass


class Mine(SGD):
    """An optimizer of the user's own."""


def hooked(**options):
    trainer = make(**options)
    trainer.model[0].register_forward_hook(lambda *_: None)
    return trainer


CANNOT = {
    "your own step": (make, {"step": own_step}),
    "accum_steps = 2": (make, {"accum_steps": 2}),
    "gradient scaler of fp16": (make, {"precision": "fp16"}),
    "loss_of carries state": (make, {"loss_of": Carrying()}),
    "Mine is not one of torch.optim": (make, {"optimizer": Mine}),
    "a hook is registered": (hooked, {}),
}


@pytest.mark.parametrize("reason", CANNOT)
def test_what_does_not_fit_is_said_once_and_the_plain_step_is_taken(reason):
    maker, options = CANNOT[reason]
    with pytest.warns(UserWarning, match=f"compile='step': .*{reason}.*plain step") as said:
        trainer = train(maker(compile="step", **options))
    assert sum("compile='step'" in str(warning.message) for warning in said) == 1
    plain = train(maker(compile=False, **options))
    assert torch.equal(weights_of(trainer.model), weights_of(plain.model))


def test_options_that_change_with_every_update_end_the_graph(traced):
    def cycle(optimizer):
        return OneCycleLR(optimizer, 0.1, 6)

    with pytest.warns(UserWarning, match=r"momentum of the optimizer.*cycle_momentum=False"):
        trainer = train(make("step", with_momentum, cycle))
    plain = train(make(False, with_momentum, cycle))
    torch.testing.assert_close(weights_of(trainer.model), weights_of(plain.model))


def test_more_shapes_than_graphs_take_the_plain_step(traced, monkeypatch):
    monkeypatch.setattr(one_graph, "MOST_SHAPES", 1)
    with pytest.warns(UserWarning, match="more than 1 shapes; for the others the plain step"):
        trainer = train(make("step"), batch_size=14)
    assert len(trainer.one_graph.admitted) == 1 and not trainer.one_graph.refused
    plain = train(make(False), batch_size=14)
    torch.testing.assert_close(weights_of(trainer.model), weights_of(plain.model))


def test_a_graph_that_computes_something_else_is_refused(traced, monkeypatch):
    """The trial compares with the plain backward pass, whatever the reason for a difference."""

    def faulty(model, batch):
        loss = own_loss(model, batch)
        return loss.value * 1.01, loss.weight, loss.sums

    monkeypatch.setattr(one_graph, "_cost_of", lambda loss_of: faulty)
    with pytest.warns(UserWarning, match=r"the graph's loss or gradient is 1.0e-02 of its norm"):
        trainer = train(make("step"))
    assert torch.equal(weights_of(trainer.model), weights_of(train(make(False)).model))


class At(Callback):
    """Does something to the optimizer after the third update."""

    def __init__(self, act):
        self.act = act

    def on_update_end(self, trainer):
        if trainer.progress.update == 3:
            self.act(trainer.optimizer)


def forget(optimizer):
    """Zero momentum, as from a checkpoint of the start: the old tensors are nobody's now."""
    state = optimizer.state_dict()
    state["state"] = {n: {"momentum_buffer": torch.zeros_like(one["momentum_buffer"])}
                      for n, one in state["state"].items()}  # fmt: skip
    optimizer.load_state_dict(state)


def zeroed(optimizer):
    """Other tensors in the same state."""
    for state in optimizer.state.values():
        state["momentum_buffer"] = torch.zeros_like(state["momentum_buffer"])


def dropped(optimizer):
    for state in optimizer.state.values():
        state["momentum_buffer"] = None


@pytest.mark.parametrize("change", [forget, zeroed, dropped])
def test_a_state_that_is_replaced_on_the_way_is_the_one_that_moves(traced, change):
    plain, graph = (
        train(make(compile, with_momentum, callbacks=[At(change)]), batch_size=10)
        for compile in (False, "step")
    )
    assert (graph.one_graph.refused, len(graph.one_graph.admitted)) == ("", 1)
    torch.testing.assert_close(weights_of(graph.model), weights_of(plain.model))
    ours, theirs = (trainer.optimizer.state_dict()["state"] for trainer in (graph, plain))
    torch.testing.assert_close(ours, theirs)


def halved(optimizer):
    optimizer.param_groups[0]["lr"] /= 2


def in_hook(name):
    """Batches cut from memory, and the change in a hook of this name, at its second call."""
    calls = []

    class Hooked(Callback):
        pass

    def hook(self, trainer, *_line):
        calls.append(name)
        if len(calls) == 2:
            for change in (halved, zeroed):
                change(trainer.optimizer)

    setattr(Hooked, name, hook)
    return [Hooked()]


class Meddling(InMemoryLoader):
    """A loader of the user's own, which has its hands on the optimizer."""

    optimizer = None

    def __iter__(self):
        for index, batch in enumerate(super().__iter__()):
            if index == 1:
                halved(self.optimizer)
                zeroed(self.optimizer)
            yield batch


@pytest.mark.parametrize("by", ["on_update_end", "on_log", "on_epoch_start", "loader", "nobody"])
def test_what_others_change_between_updates_is_seen_also_where_batches_are_cut_from_memory(
    traced, monkeypatch, by
):
    """Without such code nothing is looked at between two updates of an epoch."""
    looked = []
    look = OneGraph._look
    monkeypatch.setattr(OneGraph, "_look", lambda self: looked.append(1) or look(self))
    ended = []
    for compile in (False, "step"):
        trainer = make(compile, with_momentum, callbacks=in_hook(by) if "on_" in by else ())
        loader = (Meddling if by == "loader" else InMemoryLoader)(X, Y, 5)
        loader.optimizer = trainer.optimizer
        trainer.fit(loader, epochs=2, log_every=2, progress=False)
        ended.append(weights_of(trainer.model))
    assert trainer.one_graph.refused == ""
    torch.testing.assert_close(*ended)
    epochs, updates = 2, 2 * len(loader) - 1  # the first update of all is a plain one
    assert len(looked) == (epochs if by in ("on_epoch_start", "nobody") else updates)


class Remembering(nn.Linear):
    """A layer that keeps a number of Python's from call to call, and scales by it."""

    def __init__(self, after):
        super().__init__(5, 3)
        self.after, self.number = after, 0

    def forward(self, inputs):
        scale = 1 / (1 + self.number)
        self.number = self.after(self.number)
        return super().forward(inputs) * scale


@pytest.mark.parametrize(
    "after, settles",
    [
        (lambda number: number, True),
        (lambda number: 7, True),
        (lambda number: 1 - number, False),
        (lambda number: number + 1, False),
    ],
    ids=["kept", "filled once", "by turns", "counts"],
)
@pytest.mark.filterwarnings("ignore:compile='step'")
def test_what_a_model_remembers_is_seen_also_where_guards_are_no_longer_tried(
    traced, monkeypatch, after, settles
):
    unguarded = []
    without = one_graph._without_guards
    monkeypatch.setattr(one_graph, "_without_guards", lambda: unguarded.append(1) or without())
    ended = []
    for compile in (False, "step"):
        torch.manual_seed(0)
        model = Remembering(after)
        moves = SGD(model.parameters(), lr=0.1)
        trainer = Trainer(model, nn.CrossEntropyLoss(), moves, compile=compile, device="cpu")
        trainer.fit(InMemoryLoader(X.repeat(10, 1), Y.repeat(10), 5), epochs=2, progress=False)
        ended.append(weights_of(model))
    torch.testing.assert_close(*ended)
    assert ("as long as model.number == " in trainer.one_graph.refused) != settles
    assert bool(unguarded) == settles
    assert torch._dynamo.eval_frame._stance.skip_guard_eval_unsafe is False


def test_a_stance_of_the_users_stays(traced, monkeypatch):
    """`force_eager` between two epochs, and the default one again."""
    stances = []

    class Sets(Callback):
        def on_epoch_start(self, trainer):
            stances.append(torch._dynamo.eval_frame._stance.stance)
            torch.compiler.set_stance("force_eager" if len(stances) == 2 else "default")

    trainer = make("step", callbacks=[Sets()])
    try:
        trainer.fit(InMemoryLoader(X.repeat(10, 1), Y.repeat(10), 5), epochs=4, progress=False)
    finally:
        torch.compiler.set_stance("default")
    assert stances == ["default", "default", "force_eager", "default"]


def test_a_state_that_is_replaced_again_and_again_ends_the_graph(traced):
    class Each(Callback):
        def on_update_end(self, trainer):
            zeroed(trainer.optimizer)

    with pytest.warns(UserWarning, match="have been replaced 3 times"):
        graph = train(make("step", with_momentum, callbacks=[Each()]), batch_size=10)
    plain = train(make(False, with_momentum, callbacks=[Each()]), batch_size=10)
    torch.testing.assert_close(weights_of(graph.model), weights_of(plain.model))


CHANGES = {
    "momentum": lambda optimizer: optimizer.param_groups[0].update(momentum=0.5),
    "params": lambda optimizer: optimizer.add_param_group({"params": [nn.Parameter(Y.float())]}),
}


@pytest.mark.parametrize("option", CHANGES)
def test_options_that_change_on_the_way_are_refused_also_before_a_new_shape(traced, option):
    """The fourth update has a batch of a shape that has no graph yet."""
    trainers = [make(step, with_momentum, callbacks=[At(CHANGES[option])])
                for step in (False, "step")]  # fmt: skip
    train(trainers[0], batch_size=6)
    with pytest.warns(UserWarning, match=f"{option} of the optimizer changes during the run"):
        train(trainers[1], batch_size=6)
    torch.testing.assert_close(*(weights_of(trainer.model) for trainer in trainers))


def test_the_norm_of_small_floats_is_the_wide_ones():
    """Each square would be beyond fp16; the oracle is torch's own norm in double precision."""
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.complex64):
        parameters = [nn.Parameter(torch.zeros(n, dtype=dtype)) for n in (3, 4)]
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, 300.0)
        assert one_graph._norm_of(parameters).item() == pytest.approx(300 * 7**0.5)


@pytest.mark.slow
def test_without_a_working_compiler_the_reason_is_said():
    """torch wants a C++ compiler for the CPU; nothing is changed by the attempt."""
    changes = {"cpp.cxx": (None, "no-such-compiler"), "force_disable_caches": True}
    with (
        inductor.patch(changes),
        pytest.warns(UserWarning, match="compile='step': torch.compile gave up"),
    ):
        trainer = train(make("step", hidden=5))
    assert torch.equal(weights_of(trainer.model), weights_of(train(make(False, hidden=5)).model))


def test_other_words_than_step_are_refused():
    with pytest.raises(ValueError, match="compile = 'all': expected True, False or 'step'"):
        make("all")


@pytest.mark.slow
def test_machine_code_of_the_whole_step_gives_the_plain_steps_numbers():
    trainer, plain = (train(make(compile, AdamW, falling)) for compile in ("step", False))
    assert trainer.one_graph.refused == ""
    torch.testing.assert_close(weights_of(trainer.model), weights_of(plain.model))


ON_A_GPU = {
    "SGD": lambda parameters: SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "AdamW, fused": lambda parameters: AdamW(parameters, lr=0.01, fused=True),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01),
}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu_the_graph_takes_the_plain_steps_and_counts_them_there(name):
    def run(compile):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))
        optimizer = ON_A_GPU[name](model.parameters())
        trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, compile=compile, max_norm=1.0,
                          device="cuda", seed=0)  # fmt: skip
        return train(trainer)

    trainer, plain = run("step"), run(False)
    assert trainer.one_graph.refused == ""
    torch.testing.assert_close(weights_of(trainer.model), weights_of(plain.model))
    theirs, ours = (
        [v.cpu() for s in t.optimizer.state.values() for v in s.values() if v.dim() == 0]
        for t in (plain, trainer)
    )
    assert ours == theirs and trainer.history[-1]["train_loss"] > 0


def test_an_optimizer_counts_on_the_device_as_long_as_graphs_do(device):
    model = nn.Linear(3, 2).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(4, 3, device=device)).sum().backward()
    optimizer.step()
    moved = list(one_graph._counted_on(device, optimizer))
    steps = [state["step"] for state in optimizer.state.values()]
    assert len(moved) == (0 if device.type == "cpu" else 2)
    assert {step.device.type for step in steps} == {device.type} and float(steps[0]) == 1


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.Adagrad])
def test_the_graphs_optimizer_is_the_users_but_for_what_a_graph_needs(optimizer, device):
    own = optimizer([nn.Parameter(torch.ones(2, device=device))], lr=0.1)
    (group,) = one_graph._twin_of(own, device).param_groups
    there = device.type != "cpu" and optimizer is torch.optim.Adam
    assert group.get("capturable", False) is there and group["lr"].item() == 0.1
    assert own.param_groups[0]["lr"] == 0.1 and not own.param_groups[0].get("capturable")
