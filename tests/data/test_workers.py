"""Workers are really killed, in each way in which they die, and the error names the cause."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import time

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from course.data.loading import make_loader
from course.data.workers import GuardedLoader, WorkerDiedError, workers_explained


class Deadly(Dataset):
    """Example 12 of 32 ends its process."""

    def __init__(self, how: str, at: int = 12) -> None:
        self.how, self.at = how, at

    def __getitem__(self, index):
        if index == self.at and self.how != "lives":
            if self.how == "hangs":
                time.sleep(60)
            if self.how == "raises":
                raise KeyError("no such label")
            if self.how == "exits":
                os._exit(3)
            if self.how == "leaves":
                sys.exit(4)
            signal.signal(getattr(signal, self.how), signal.SIG_DFL) if self.how != "SIGKILL" else 0
            os.kill(os.getpid(), getattr(signal, self.how))
        return torch.tensor(index), torch.tensor(0)

    def __len__(self):
        return 32


@pytest.mark.parametrize(("how", "body_s", "cause", "remedy"), [
    ("SIGKILL", 0.0, "died of SIGKILL.*memory ran out", "fewer workers"),
    ("SIGKILL", 0.2, "died of SIGKILL.*memory ran out", "fewer workers"),
    ("SIGBUS", 0.2, "died of SIGBUS.*shared memory", "shm-size"),
    ("SIGSEGV", 0.2, "died of SIGSEGV.*native code", "faulthandler"),
    ("SIGABRT", 0.2, "died of SIGABRT.*native code", "faulthandler"),
    ("SIGTERM", 0.2, "died of SIGTERM.*told to end", "the job's time and memory limits"),
    ("exits", 0.2, "exit code 3.*called exit", "num_workers=0"),
    ("leaves", 0.0, "exit code 4.*called exit", "num_workers=0"),
])  # fmt: skip
def test_a_worker_that_dies_is_explained(how, body_s, cause, remedy):
    """Whether the batch is waited for or the loop's body is at work when it dies."""
    loader = make_loader(Deadly(how), 4, num_workers=2)
    explained = pytest.raises(WorkerDiedError, match=rf"(?s)a worker of 2 \(pid \d+\).*{cause}")
    with explained as caught, workers_explained(loader):
        for _ in loader:
            time.sleep(body_s)
    assert remedy in str(caught.value) and caught.value.__cause__ is not None


@pytest.mark.parametrize("how", ["SIGKILL", "exits"])
def test_a_plain_dataloader_is_explained_from_torchs_words(how):
    loader = DataLoader(Deadly(how), 4, num_workers=1)
    explained = pytest.raises(WorkerDiedError, match=r"SIGKILL.*memory ran out|exit code 3")
    with explained, workers_explained():
        for _ in loader:
            time.sleep(0.1)


def test_a_broken_connection_is_explained_before_torch_hears_of_it():
    """On a single core the signal often comes last; then it must not raise a second time."""
    loader = DataLoader(Deadly("SIGKILL"), 4, num_workers=1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    try:
        explained = pytest.raises(WorkerDiedError, match=r"\(pid \d+\).*SIGKILL.*memory")
        with explained, workers_explained(loader):
            list(loader)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    assert len(list(make_loader(Deadly("lives"), 4, num_workers=1))) == 8


@pytest.mark.slow
def test_a_worker_that_never_answers_is_named():
    loader = make_loader(Deadly("hangs"), 4, num_workers=1, timeout=1)
    with pytest.raises(WorkerDiedError, match=r"no batch within the timeout of 1 s.*network disk"):
        list(loader)


def test_an_error_of_the_data_set_passes_through():
    with pytest.raises(KeyError, match="no such label"):
        list(make_loader(Deadly("raises"), 4, num_workers=1))
    for error in (RuntimeError("shapes differ"), FileNotFoundError("no checkpoint"), ValueError()):
        with pytest.raises(type(error)) as caught, workers_explained(DataLoader([1, 2])):
            raise error
        assert caught.value is error


@pytest.mark.parametrize("options", [
    {}, {"num_workers": 1}, {"num_workers": 2, "persistent_workers": True},
])  # fmt: skip
def test_workers_that_live_give_the_same_batches(options):
    loader = make_loader(Deadly("lives"), 5, **options)
    expected = list(range(32))
    for _ in range(2):
        assert torch.cat([numbers for numbers, _ in loader]).tolist() == expected
    assert len(loader) == 7
    next(iter(loader))  # a pass that is left early leaves nothing behind
    assert torch.cat([numbers for numbers, _ in loader]).tolist() == expected


def test_a_guarded_loader_can_be_pickled_in_mid_pass():
    loader = GuardedLoader(Deadly("lives"), 4, num_workers=1)
    batches = iter(loader)
    next(batches)
    again = pickle.loads(pickle.dumps(loader))
    assert len(list(again)) == 8
