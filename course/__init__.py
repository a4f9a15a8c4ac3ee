"""A course companion on training deep networks; its rooms are the stations of the lecture's road.

    course.data -> course.engine -> course.lr_finder, course.analysis -> course.debug
    -> course.worked, course.claims, course.widgets

Importing `course` computes nothing and loads no torchvision, matplotlib or ipywidgets.
"""

__version__ = "0.1.0"
