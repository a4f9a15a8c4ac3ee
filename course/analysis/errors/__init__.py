"""Error analysis: look at the mistakes, count them by bucket, fix the largest bucket first.

    errors = collect_errors(model, val_loader, n=100, tags_path="mistakes.json")
    errors.plot()                      # look
    errors.tag(17, "4↔9 confusion")    # by hand, saved in the file
    errors.assign({"blur": is_blurry}) # or by a function of the mistake
    errors.table()                     # count, share, most points to gain

Source: Lecture 3, "Error analysis" and "From bucket to action"; ledger N24, S19, T28; Ng's course.
"""

from course.analysis.errors.buckets import INTERVENTIONS, UNTAGGED, BucketRow, BucketTable
from course.analysis.errors.collect import collect_errors
from course.analysis.errors.mistakes import ErrorSet, Mistake

__all__ = [
    "INTERVENTIONS",
    "UNTAGGED",
    "BucketRow",
    "BucketTable",
    "ErrorSet",
    "Mistake",
    "collect_errors",
]
