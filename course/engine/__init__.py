"""The engine: the training loop in the lecture's order, exact and resumable.

    Trainer(model, criterion, optimizer).fit(train_loader, val_loader, epochs=10) -> History

Read `trainer.py` first; every station of the loop has its own module.
"""

from course.engine.averaging import EMA, SWA, WeightAverage
from course.engine.callbacks import Callback, ProgressBar, TensorBoard
from course.engine.checkpoint import load_weights
from course.engine.clipping import clip_by_global_norm, clip_by_value, clip_per_layer, grad_norm
from course.engine.distributed import num_ranks, process_group, rank
from course.engine.errors import CheckpointError, DeviceError, EngineError, NonFiniteError
from course.engine.evaluation import evaluate
from course.engine.history import History
from course.engine.loss_of import Loss, LossOf
from course.engine.placement import choose_device
from course.engine.progress import StepReport
from course.engine.runs import Run, compare, read_run, read_runs
from course.engine.schedules import one_cycle, plateau, step_decay, warmup_cosine
from course.engine.several import Step
from course.engine.step import train_one_epoch, train_step
from course.engine.stopping import EarlyStopping, KeepBest
from course.engine.trainer import Trainer
from course.engine.window import Window, windows
from course.state import (
    evaluation_mode,
    rng_state,
    seed_everything,
    set_rng_state,
    undisturbed,
)

__all__ = [
    "EMA",
    "SWA",
    "Callback",
    "CheckpointError",
    "DeviceError",
    "EarlyStopping",
    "EngineError",
    "History",
    "KeepBest",
    "Loss",
    "LossOf",
    "NonFiniteError",
    "ProgressBar",
    "Run",
    "Step",
    "StepReport",
    "TensorBoard",
    "Trainer",
    "WeightAverage",
    "Window",
    "choose_device",
    "clip_by_global_norm",
    "clip_by_value",
    "clip_per_layer",
    "compare",
    "evaluate",
    "evaluation_mode",
    "grad_norm",
    "load_weights",
    "num_ranks",
    "one_cycle",
    "plateau",
    "process_group",
    "rank",
    "read_run",
    "read_runs",
    "rng_state",
    "seed_everything",
    "set_rng_state",
    "step_decay",
    "train_one_epoch",
    "train_step",
    "undisturbed",
    "warmup_cosine",
    "windows",
]
