"""The engine: the training loop in the lecture's order, exact and resumable.

Trainer(model, criterion, optimizer).fit(train_loader, val_loader, epochs=10) -> History
"""

from course.engine.callbacks import Callback, ProgressBar
from course.engine.clipping import clip_by_global_norm, clip_by_value, clip_per_layer
from course.engine.errors import CheckpointError, EngineError, NonFiniteError
from course.engine.evaluation import evaluate
from course.engine.history import History
from course.engine.seeding import seed_everything
from course.engine.trainer import StepReport, Trainer, train_one_epoch, train_step
from course.engine.window import Window, windows

__all__ = [
    "Callback",
    "CheckpointError",
    "EngineError",
    "History",
    "NonFiniteError",
    "ProgressBar",
    "StepReport",
    "Trainer",
    "Window",
    "clip_by_global_norm",
    "clip_by_value",
    "clip_per_layer",
    "evaluate",
    "seed_everything",
    "train_one_epoch",
    "train_step",
    "windows",
]
