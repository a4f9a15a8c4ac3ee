"""Everything a student's process will need, imported and touched once in a warm parent.

The standard library's fork server imports this module when it starts; every student process is then
a fork of it and begins in milliseconds instead of the seconds that `import torch` takes. One thread
only: a parent that ever ran an operation on two threads makes its children's hang.
"""

import atexit
import gc
import importlib

import torch
from torch import nn

import autograde.bank
from autograde.sandbox import stubs

MODULES = (
    "IPython.core.interactiveshell",
    "autograde.sandbox.student",
    "autograde.referee",
    "course.data",
    "course.engine",
    "course.worked.show",
    "matplotlib.backends.backend_agg",
    "matplotlib.pyplot",
    "matplotlib_inline.backend_inline",
    "sklearn.datasets",
)


def touch_lazy_parts() -> None:
    """First uses load much: an optimizer pulls in torch's compiler, an exercise its module."""
    torch.set_num_threads(1)
    for module in MODULES:
        importlib.import_module(module)
    for entry in autograde.bank.catalogue().values():
        entry.load()
    for optimizer_class in (torch.optim.SGD, torch.optim.Adam):
        model = nn.Linear(2, 2)
        optimizer = optimizer_class(model.parameters(), lr=0.1)
        nn.functional.cross_entropy(model(torch.ones(1, 2)), torch.zeros(1).long()).backward()
        optimizer.step()


touch_lazy_parts()
stubs.leave_only_questions()
stubs.covered()
gc.collect()
gc.freeze()  # the collector leaves inherited objects alone, so that their pages stay shared
atexit.register(gc.unfreeze)
