"""A run killed at any moment and resumed ends with the same bits as one that was never killed."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

sys.path.insert(0, str(Path(__file__).parent))
import tiny_job
from tiny_job import assert_same_bits

from course.data.sampling import ResumableBatchSampler
from course.engine import (
    SWA,
    Callback,
    CheckpointError,
    EngineError,
    Trainer,
    checkpoint,
    load_weights,
)
from tests.sampling import THOROUGH, sample

# Children are forked from a process that has loaded torch and done nothing: starting one is quick.
FORKSERVER = multiprocessing.get_context("forkserver")
FORKSERVER.set_forkserver_preload(["tiny_job"])


@pytest.fixture(scope="module", autouse=True)
def _where_the_job_is() -> None:
    with pytest.MonkeyPatch.context() as patch:  # the fork server looks for its preload there
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        FORKSERVER.Process(target=int).start()
        yield


def child(*arguments) -> multiprocessing.Process:
    process = FORKSERVER.Process(target=tiny_job.run, args=arguments)
    process.start()
    return process


def kill(pid: int) -> None:
    """Kill -9 and wait till it is gone; join() would wait for its workers too, for seconds."""
    try:
        while True:
            os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
    except ProcessLookupError:
        return


def finish(*arguments) -> None:
    process = child(*arguments)
    process.join(60)
    assert process.exitcode == 0


def until_first_checkpoint(run_dir: Path) -> float:
    """When there was one; to start a process takes longer than all its updates."""
    deadline = time.perf_counter() + 60
    while checkpoint.find(run_dir) is None:
        assert time.perf_counter() < deadline
        time.sleep(0.002)
    return time.perf_counter()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict:
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    finish(str(run_dir), 0)
    return tiny_job.outcome(run_dir)


class BreakAt(Callback):
    """Breaks the run off after an update, as a crash would."""

    def __init__(self, update: int) -> None:
        self.update = update

    def on_update_end(self, trainer: Trainer) -> None:
        if trainer.progress.update == self.update:
            raise KeyboardInterrupt


def broken_and_resumed(run_dir: Path, at: int, *, kind: str = "ours", num_workers: int = 0) -> dict:
    options = {"epochs": tiny_job.EPOCHS, "checkpoint_every": 2, "progress": False}
    trainer = tiny_job.make_trainer(run_dir)
    trainer.callbacks.append(BreakAt(at))
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(*tiny_job.make_loaders(num_workers, kind=kind), **options)
    torch.manual_seed(random.randrange(2**32))  # whatever was drawn in between must not matter
    trainer = tiny_job.make_trainer(run_dir)
    trainer.fit(*tiny_job.make_loaders(num_workers, kind=kind), resume="auto", **options)
    return tiny_job.outcome(run_dir)


@pytest.mark.parametrize("at", range(1, tiny_job.UPDATES + 1))
def test_a_run_broken_off_after_any_update_ends_with_the_same_bits(at, tmp_path, undisturbed):
    assert_same_bits(broken_and_resumed(tmp_path / "run", at), undisturbed)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("kind", ["plain", "own generator"])
def test_a_plain_dataloader_with_unkeyed_augmentation_resumes_too(kind, num_workers, tmp_path):
    """It is played again from the start of its epoch."""
    options = {"epochs": tiny_job.EPOCHS, "checkpoint_every": 2, "progress": False}
    trainer = tiny_job.make_trainer(tmp_path / "whole")
    trainer.fit(*tiny_job.make_loaders(num_workers, kind=kind), **options)
    expected = tiny_job.outcome(tmp_path / "whole")
    for at in (3, 4, 7):
        run_dir = tmp_path / str(at)
        found = broken_and_resumed(run_dir, at, kind=kind, num_workers=num_workers)
        assert_same_bits(found, expected)


def test_the_number_of_workers_changes_no_bit(tmp_path, undisturbed):
    finish(str(tmp_path / "run"), 2)
    assert_same_bits(tiny_job.outcome(tmp_path / "run"), undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_workers", "kills"), [(0, 20), (2, 10)] if THOROUGH else [(0, 4), (2, 4)]
)
def test_a_process_killed_at_random_instants_ends_with_the_same_bits(
    num_workers, kills, tmp_path, undisturbed
):
    """Kill -9 at random instants, each in a run of its own, then resume."""
    delay_s = 0.0005
    process = child(str(tmp_path / "timed"), num_workers, delay_s)
    first_s = until_first_checkpoint(tmp_path / "timed")
    process.join(60)
    saving_s = time.perf_counter() - first_s
    instants = random.Random(0)
    places = set()
    for number in range(kills):
        run_dir = tmp_path / str(number)
        process = child(str(run_dir), num_workers, delay_s)
        if number % 4:  # the others before there is anything to go on from
            until_first_checkpoint(run_dir)
        time.sleep(instants.uniform(0, 0.95) * saving_s)
        kill(process.pid)
        where = checkpoint.find(run_dir)
        places.add(checkpoint.load(where)["progress"]["update"] if where else 0)
        finish(str(run_dir), num_workers)
        assert_same_bits(tiny_job.outcome(run_dir), undisturbed)
    assert len(places) > kills / 4  # the instants were spread over the run


MOMENTS = [
    ("half written", 4),
    ("before fsync", 7),
    *[("before rename", n) for n in sample(range(2, 18), 5)],
]


@pytest.mark.parametrize(("moment", "count"), MOMENTS)
def test_a_process_killed_while_saving_loses_nothing(moment, count, tmp_path, undisturbed):
    run_dir = tmp_path / "run"
    process = child(str(run_dir), 0, 0.0, (moment, count))
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    if (where := checkpoint.find(run_dir)) is not None:
        checkpoint.load(where)  # whole, whatever the moment
    assert where is not None or count <= 3  # the first save is the only one without an earlier
    finish(str(run_dir), 0)
    assert_same_bits(tiny_job.outcome(run_dir), undisturbed)


def test_the_log_of_a_resumed_run_has_each_line_once(tmp_path):
    broken_and_resumed(tmp_path / "run", 7)
    log = (tmp_path / "run" / "metrics.jsonl").read_text()
    lines = [json.loads(line) for line in log.splitlines()]
    epochs = [line["epoch"] for line in lines if line["kind"] == "epoch"]
    assert epochs == [1, 2, 3, 4]
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert [entry["update"] for entry in record["resumed"]] == [6]
    assert record["status"] == "finished" and record["updates"] == tiny_job.UPDATES


def test_a_run_ended_by_max_updates_goes_on_to_more(tmp_path, undisturbed):
    trainer = tiny_job.make_trainer(tmp_path / "run")
    part = trainer.fit(
        *tiny_job.make_loaders(0), epochs=tiny_job.EPOCHS, max_updates=6, progress=False
    )
    assert [line["updates"] for line in part] == [4, 6]
    trainer = tiny_job.make_trainer(tmp_path / "run")
    trainer.fit(*tiny_job.make_loaders(0), epochs=tiny_job.EPOCHS, resume="auto", progress=False)
    found = tiny_job.outcome(tmp_path / "run")
    assert_same_bits(found["last"]["model"], undisturbed["last"]["model"])
    assert [line["updates"] for line in trainer.history] == [4, 6, 8, 12, 16]


def test_a_finished_run_resumed_does_nothing(tmp_path):
    for _ in range(2):
        trainer = tiny_job.make_trainer(tmp_path / "run")
        loaders = tiny_job.make_loaders(0)
        trainer.fit(*loaders, epochs=tiny_job.EPOCHS, resume="auto", progress=False)
    assert len(trainer.history) == tiny_job.EPOCHS


@pytest.fixture
def finished(tmp_path) -> Path:
    trainer = tiny_job.make_trainer(tmp_path / "run")
    trainer.fit(*tiny_job.make_loaders(0), epochs=tiny_job.EPOCHS, progress=False)
    return tmp_path / "run"


def resume(where: Path | str, **options) -> Trainer:
    trainer = tiny_job.make_trainer(None, **options)
    trainer.fit(*tiny_job.make_loaders(0), epochs=tiny_job.EPOCHS, resume=where, progress=False)
    return trainer


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.99])
def test_a_cut_off_file_is_named_and_the_previous_one_offered(keep, finished):
    last = finished / "last.pt"
    content = last.read_bytes()
    last.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(
        CheckpointError, match=r"last\.pt: truncated.*previous\.pt: resume from that"
    ):
        resume(finished)
    trainer = resume(finished / "previous.pt")
    assert len(trainer.history) == tiny_job.EPOCHS


def test_a_foreign_file_is_told_apart(finished):
    torch.save({"weights": torch.zeros(3)}, finished / "last.pt")
    with pytest.raises(CheckpointError, match="not written by this engine"):
        resume(finished)
    (finished / "last.pt").write_text("hello")
    with pytest.raises(CheckpointError, match="truncated, damaged or not a checkpoint"):
        resume(finished)


def test_code_in_a_checkpoint_is_not_run(finished, tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "run-by-pickle",))

    torch.save({"format": checkpoint.FORMAT, "evil": Evil()}, finished / "last.pt")
    with pytest.raises(CheckpointError):
        resume(finished)
    assert not (tmp_path / "run-by-pickle").exists()


def test_a_newer_format_is_refused(finished):
    state = torch.load(finished / "last.pt", weights_only=True)
    torch.save(state | {"version": 99}, finished / "last.pt")
    with pytest.raises(CheckpointError, match="version 99"):
        resume(finished)


def test_another_optimizer_is_refused(finished):
    with pytest.raises(CheckpointError, match="optimizer was Adam there but is SGD here"):
        resume(finished, optimizer="SGD")


def test_another_model_is_refused_and_untouched(finished):
    model = torch.nn.Sequential(torch.nn.Linear(6, 16))
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(
        CheckpointError, match=r"a different model: 3\.weight is \[3, 16\] in the file"
    ):
        load_weights(model, finished / "best.pt")
    assert_same_bits([p.detach() for p in model.parameters()], [p.detach() for p in before])


def test_weights_alone_are_not_resumed_from(finished):
    with pytest.raises(CheckpointError, match="holds only weights"):
        resume(finished / "best.pt")


def test_nothing_to_resume_from(tmp_path):
    with pytest.raises(CheckpointError, match="no checkpoint to resume from"):
        resume(tmp_path / "nowhere")


def test_best_holds_the_best_epochs_weights(finished):
    trainer = tiny_job.make_trainer(None)
    best = load_weights(trainer.model, finished / "best.pt")
    history = torch.load(finished / "last.pt", weights_only=True)["history"]
    assert best == min(history["epochs"], key=lambda line: line["val_loss"])


def test_what_weights_only_would_refuse_is_refused_when_saving(tmp_path):
    with pytest.raises(CheckpointError, match=r"state\['a'\].* is a complex"):
        checkpoint.save({"a": [1, 1j]}, tmp_path / "x.pt")
    assert list(tmp_path.iterdir()) == []


def test_a_fresh_run_keeps_an_earlier_one_beside_it(finished):
    before = (finished / "run.json").read_text()
    trainer = tiny_job.make_trainer(finished)
    trainer.fit(*tiny_job.make_loaders(0), epochs=tiny_job.EPOCHS, progress=False)
    assert (finished.with_name("run-1") / "run.json").read_text() == before


def test_the_sampler_enters_any_epoch_at_any_batch():
    sampler = ResumableBatchSampler(10, 3, seed=1)
    whole = list(sampler), list(sampler)
    sampler.set_position(1, 2)
    assert list(sampler) == whole[1][2:]


class OneBadRow(torch.utils.data.Dataset):
    """Row 11 is narrower than the others, until it is repaired."""

    def __init__(self, *, bad: bool) -> None:
        self.bad = bad

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int):
        row = torch.full((4,), float(index))
        return row[:3] if self.bad and index == 11 else row, index % 2


def fit_then_validate(directory, *, bad, val=None):
    torch.manual_seed(0)
    model, average = torch.nn.Linear(4, 2), SWA(1)
    trainer = Trainer(
        model, torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.1),
        run_dir=directory, callbacks=[average], device="cpu", seed=0,
    )  # fmt: skip
    train = DataLoader(OneBadRow(bad=False), 4, shuffle=True)
    generator = torch.Generator().manual_seed(5)
    rows = RandomSampler(OneBadRow(bad=False), generator=generator)
    val = val or DataLoader(OneBadRow(bad=bad), 1, sampler=rows)
    history = trainer.fit(train, val, epochs=2, resume="auto", progress=False)
    return history.column("val_loss"), average.model.weight, average.averaged.n_averaged


def test_a_validation_that_fails_loses_no_epoch(tmp_path):
    expected = fit_then_validate(None, bad=False)
    with pytest.raises(RuntimeError) as caught:
        fit_then_validate(tmp_path / "run", bad=True)
    notes = "\n".join(caught.value.__notes__)
    assert re.search(r"batch \d+ \(from 0\) of the pass\nvalidation after epoch 1\n.*resume", notes)
    assert checkpoint.load(tmp_path / "run" / "last.pt")["progress"]["update"] == 4
    losses, weight, num = fit_then_validate(tmp_path / "run", bad=False)
    assert losses == expected[0] and torch.equal(weight, expected[1]) and num == expected[2] == 2


def test_every_validation_label_is_looked_at_before_the_first_update():
    inputs, labels = torch.zeros(16, 4), torch.arange(16) % 2
    labels[-1] = 7
    val = DataLoader(TensorDataset(inputs, labels), 4)
    with pytest.raises(
        EngineError, match=r"batch 0 .*: validation labels run from 0 to 7, but the"
    ):
        fit_then_validate(None, bad=False, val=val)
