"""What every student's process will need, imported and touched once in a warm parent.

The standard library's fork server imports this module when it starts; every student process is then
a fork of it and begins in milliseconds instead of the seconds that `import torch` takes. One thread
only: a parent that ever ran an operation on two threads makes its children's hang.

What takes long and few need is left for those who need it: torch's compiler, scikit-learn, the
fonts of a figure. For a whole class `warm_for_many` loads that as well.
"""

import gc

gc.disable()  # until all is loaded: it would look at every object of torch's some ten times

import atexit  # noqa: E402
import importlib  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from collections.abc import Iterator  # noqa: E402
from contextlib import contextmanager  # noqa: E402
from unittest import mock  # noqa: E402

import torch  # noqa: E402
from torch import nn  # noqa: E402

import autograde.bank  # noqa: E402
from autograde import apart  # noqa: E402
from autograde.kinds import fix  # noqa: E402
from autograde.sandbox import control_group, own, recorded, stubs, student, view  # noqa: E402
from autograde.sandbox.parent import without_address_grammar  # noqa: E402
from course.worked.startup import put_off_compiler  # noqa: E402

MODULES = (
    *dict.fromkeys(autograde.HOMES.values()),
    "IPython.core.interactiveshell",
    "autograde.referee",
    "course.released",
    "course.data",
    "course.engine",
    "course.worked.show",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "nbformat",
    "torch.utils._device",
)


def touch_lazy_parts() -> None:
    """First uses load much: an exercise its module, an optimizer the compiler."""
    torch.set_num_threads(1)
    put_off_compiler()  # else the first optimizer would import it
    with without_address_grammar():
        for module in MODULES:
            importlib.import_module(module)
        nbformat = sys.modules["nbformat"]
        nbformat.validate(nbformat.v4.new_notebook())  # compiles the schema, for the graders
    sys.modules["course.data"].load("digits")  # whose text takes 0.03 s to read
    for optimizer_class in (torch.optim.SGD, torch.optim.Adam):
        model = nn.Linear(2, 2)
        optimizer = optimizer_class(model.parameters(), lr=0.1)
        nn.functional.cross_entropy(model(torch.ones(1, 2)), torch.zeros(1).long()).backward()
        optimizer.step()


def load_questions() -> None:
    """All exercises, without their answers."""
    fix.answers_wanted = False
    if not any(name.startswith("autograde.bank.") for name in sys.modules):
        gc.freeze()  # among what is there nobody need look for answers
    for entry in autograde.bank.catalogue().values():
        entry.load()
    stubs.leave_only_questions()


@contextmanager
def no_gpu_asked() -> Iterator[None]:
    """As on a machine without one: CUDA that was asked once is of no use in any fork.

    To look for a GPU by its driver's list would do; but then an optimizer's first step asks the GPU
    itself whether a graph is being recorded.
    """
    with (
        mock.patch.object(torch.cuda, "is_available", lambda: False),
        mock.patch.object(torch.accelerator, "is_available", lambda: False),
        mock.patch.object(torch.accelerator, "current_accelerator", lambda check_available=0: None),
    ):
        yield


with no_gpu_asked():
    touch_lazy_parts()
apart.registered_for_forks()
load_questions()
control_group.places()
view.readings()
student.ready_shell().run("1")
own.prepare()
recorded.prepare()
gc.freeze()  # the collector leaves inherited objects alone, so that their pages stay shared
gc.enable()
atexit.register(os._exit, 0)  # to take torch apart piece by piece would last a second
