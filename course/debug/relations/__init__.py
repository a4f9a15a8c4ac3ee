"""What must be true of any training program, whatever its batches, models and losses look like."""

from course.debug.relations import data, loss, model, scoring, weights

RELATIONS = (
    data.stored, data.wrapped, data.same_item, data.one_pass, data.same_batch,
    loss.broadcast, loss.own_target, loss.shares, loss.class_weights,
    model.state, model.rows, model.future, model.padding,
    weights.silent, weights.by_reference, weights.average,
    scoring.accuracy,
)  # fmt: skip

__all__ = ["RELATIONS"]
