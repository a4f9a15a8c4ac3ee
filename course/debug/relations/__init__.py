"""What must be true of any training program, whatever its batches, models and losses look like."""

from course.debug.relations import (
    apart,
    asleep,
    averages,
    curve,
    data,
    direction,
    epochs,
    evaluated,
    handed,
    joining,
    kept,
    loss,
    model,
    networks,
    parts,
    passes,
    policy,
    reach,
    resumed,
    rows,
    scoring,
    sides,
    targets,
    weights,
)

RELATIONS = (
    data.stored, data.wrapped, data.same_item, data.one_pass, data.same_batch,
    loss.broadcast, loss.own_target, loss.shares, loss.class_weights, loss.pos_weight, loss.itself,
    loss.terms,
    model.state, model.rows, model.future, model.padding,
    joining.together, joining.alone, sides.windows, sides.target_seen, sides.moved_alike,
    handed.table, handed.log_probabilities, handed.clipped, handed.drawn,
    handed.rates,
    rows.masked, targets.positions, targets.merged, reach.within, reach.constant,
    networks.left_over, networks.opposed, parts.weighed, apart.trained, apart.priced,
    curve.straight, policy.baseline, passes.another_order,
    evaluated.told_loss, asleep.nothing_dropped, epochs.most_drawn, epochs.same_names,
    weights.silent, weights.cleared, weights.moves, kept.by_reference, kept.undone, resumed.best,
    averages.average, averages.whole, averages.statistics,
    scoring.accuracy, scoring.ignored, direction.follows,
    rows.order, targets.own_label, handed.plateau, evaluated.left, evaluated.rebatched,
)  # fmt: skip

__all__ = ["RELATIONS"]
