"""What a student's code asks the interpreter for beyond what an answer needs: the grader is told.

Python shows a function's callers, a thread's frames and all objects to whoever asks. Each way to a
first frame raises an audit event, under whatever name it is asked for, and no hook can be taken off
again. Frames of one's own are everybody's: what is told is that frames of the check could be read.
The grader hears of it on the pipe that it needs anyway, before the code that asks goes on.
"""

from __future__ import annotations

import _lsprof
import collections
import dataclasses
import enum
import inspect
import logging
import os
import site
import stat
import sys
import sysconfig
import threading
import traceback
import typing
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, MethodType
from typing import Any

import course
from autograde.by_hand import written_by_hand
from autograde.exercise import Exercise
from autograde.sandbox import beside, programs, recorded

FRAMES, OBJECTS, TRACED = "frames", "objects", "traced"
THREADS, CHANGED, ANSWERS = "threads", "changed", "answers"
PROGRAM, RECORDED, WOKEN, BESIDE = "program", "recorded", "woken", "beside"
TRIED, UNREAD, UNCOUNTED = "tried", "unread", "uncounted"
MOST_CHECKS = 20
"""Checks of one number, option or order while a notebook runs. More is how an answer is searched
for; a cell that checks what was found does so once or twice."""
WORDS = {
    FRAMES: "its code asked Python for frames through which the check's own variables can be read",
    OBJECTS: "its code asked the garbage collector for objects, which also finds the check's own",
    TRACED: "its code had Python call it at each line, call or event, which shows the check's "
    "variables",
    THREADS: "a thread that its code had started was still running after a function had returned",
    ANSWERS: "its code asked the bank for an exercise, which holds the right answer",
    TRIED: f"its cells checked the answer to one question more than {MOST_CHECKS} times, so "
    "that it may have been found by trying",
    CHANGED: "functions or classes by which its answer is looked at were replaced meanwhile",
    PROGRAM: "another program was started while one of its functions was called, and what that "
    "computes is not seen",
    RECORDED: "a function that torch had recorded (TorchScript, torch.fx) was called where it was "
    "to be written by hand, and what is recorded in it is not seen",
    BESIDE: "another thread ran while functions of its code that must do without torch were "
    "called, and what is computed there is not seen",
    UNREAD: "it ran code from an archive, from a compiled file or from one whose name does not end "
    "in .py, none of which is read",
    UNCOUNTED: "while its loop to fix was called, its code started a thread or a process, or had "
    "Python's calls counted otherwise, so that not all that ran is known",
    WOKEN: "a process that an earlier cell had started was stopped while a function was called, "
    "but ran or ended meanwhile",
}
"""Sentences for a person who reads the code, by what is told."""
EVENTS = {
    "sys._getframe": FRAMES, "sys._current_frames": FRAMES, "sys._current_exceptions": FRAMES,
    "object.__getattr__": FRAMES, "gc.get_objects": OBJECTS, "gc.get_referrers": OBJECTS,
    "gc.get_referents": OBJECTS, "sys.settrace": TRACED, "sys.addaudithook": TRACED,
    "exec": UNREAD, "marshal.loads": UNREAD,
}  # fmt: skip
PROFILES = {"sys.setprofile", "sys.monitoring.register_callback"}
"""What has Python call a function at each call: of cProfile's, one in C."""
LOOKS_AWAY = {*PROFILES, *beside.STARTED, "os.fork"}
"""After what it is not seen which code a loop to fix runs."""
HIDDEN = {
    "_xxsubinterpreters", "_xxinterpchannels", "_interpreters", "_interpchannels",
    "_interpqueues", "_testcapi", "_testlimitedcapi", "_testinternalcapi", "_testmultiphase",
    "_testsinglephase", "_testbuffer",
}  # fmt: skip
"""What makes further interpreters, in which nothing refuses, and Python's tests of itself."""
NOT_HERE = "{}: further interpreters and the tests of Python itself cannot be loaded here"
NO_INTERPRETERS = "a further interpreter cannot be started here"
ASKED_FOR = "autograde.exercise"
"""Event of our own: an exercise that is answered by a value, whose id it is, is handed over, and
whether to other functions than ours."""
LEAD_TO_FRAMES = {"tb_frame": "tb_frame", "gi_frame": "gi_code", "cr_frame": "cr_code",
                  "ag_frame": "ag_code"}  # fmt: skip
CHECK = str(Path(__file__).parent.parent)
CHECKING = str(Path(__file__).parent.parent / "check.py")
HANDING = tuple(str(Path(__file__).with_name(name)) for name in ("stubs.py", "sealed.py"))
OURS = (CHECK, str(Path(course.__file__).parent))
LIBRARIES = (*OURS, "<frozen", *sysconfig.get_paths().values(), *site.getsitepackages())
"""Where code that is not a student's comes from."""
STANDARD = tuple(sysconfig.get_paths()[kind] for kind in ("stdlib", "platstdlib"))
PACKAGES = tuple({*site.getsitepackages(), *map(sysconfig.get_path, ("purelib", "platlib"))})
DOCTEST = os.path.join(STANDARD[0], "doctest.py")
LOADERS = ("<frozen importlib._bootstrap_external>", "<frozen zipimport>")
"""What Python imports modules with."""
LOOK_UP_NAMES = (
    collections.__file__, dataclasses.__file__, enum.__file__, typing.__file__, warnings.__file__,
)  # fmt: skip
"""Modules that ask for a frame and hand on no more of it than a name."""

Tell = Callable[[str], None]


def is_students(code: CodeType) -> bool:
    """Whether code is from elsewhere than a library."""
    return not code.co_filename.startswith(LIBRARIES)


def shows_the_check(frame: FrameType | None) -> bool:
    """Whether a frame leads to one of the check."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(CHECK):
            return True
        frame = frame.f_back
    return False


def is_students_thread(frame: FrameType | None) -> bool:
    """Whether a thread runs a student's code, or was left with nothing but `threading` to run."""
    files = []
    while frame is not None:
        if is_students(frame.f_code):
            return True
        files.append(frame.f_code.co_filename)
        frame = frame.f_back
    return all(file == threading.__file__ for file in files)


def install(tell: Tell, codes_are: dict[str, bool], calling: dict[str, Exercise]) -> None:
    """From now on, in this process and its forks.

    Args:
        tell: Tells the grader.
        codes_are: Where it is noted that a function was given another code, or may have been: to
            look at all of them after each call would take long.
        calling: Holds the exercise whose function is being called, if one is.
    """
    codes_are["watched"] = True
    programs.install()
    recorded.install(calling, partial(tell, RECORDED))
    sys.addaudithook(_hook(tell, codes_are, calling))


def _hook(
    tell: Tell, codes_are: dict[str, bool], calling: dict[str, Exercise]
) -> Callable[[str, tuple[Any, ...]], None]:
    kind_of, lead, frame_at, me = (
        EVENTS.get,
        dict(LEAD_TO_FRAMES),
        sys._getframe,
        threading.get_ident,
    )
    asks, is_checks, looking, home_of = _asks, _is_checks, set[int](), _handed_to
    checked, checking, most, kit = collections.Counter[str](), CHECKING, MOST_CHECKS, CHECK
    puts_back_itself = inspect.unwrap(written_by_hand).__code__
    starts, is_program, by_hand = programs.EVENTS, programs.looked_at(), _by_hand
    why, refused = programs.WHY, PermissionError
    profiles, profiled = PROFILES, _profiled()
    of_threads, ran_beside = beside.EVENTS, beside.looked_at()
    hidden, not_here = HIDDEN, ModuleNotFoundError
    is_unread = _from_what_is_not_read()
    looks_away, is_to_fix = LOOKS_AWAY, _is_to_fix

    def look(event: str, args: tuple[Any, ...]) -> None:
        if event in looks_away and calling and me() not in looking:
            looking.add(me())
            if is_to_fix(calling) and asks(frame_at(1)):
                tell(UNCOUNTED)
            looking.discard(me())
        if event == "object.__setattr__":
            looking.add(me())  # to ask for a frame is an event, too
            codes_are["touched"] |= frame_at(1).f_code is not puts_back_itself
            looking.discard(me())
            return
        if event == ASKED_FOR:
            looking.add(me())
            handed_to = home_of(frame_at(1))
            if args[1] or not handed_to.startswith(kit):
                tell(ANSWERS)
            checked[args[0]] += handed_to == checking
            if checked[args[0]] > most:
                tell(TRIED)
            looking.discard(me())
            return
        if event in starts and calling:
            looking.add(me())
            try:
                told, is_refused = is_program(frame_at(1), by_hand(calling), args)
                if told:
                    tell(PROGRAM)
            finally:
                looking.discard(me())
            if is_refused:
                raise refused(why)
            return
        if event == "import":
            if args[0].rpartition(".")[2] in hidden:
                raise not_here(NOT_HERE.format(args[0]))
            return
        if event == "cpython.PyInterpreterState_New":
            raise refused(NO_INTERPRETERS)
        if event in of_threads:
            looking.add(me())
            if ran_beside(event, args[:1] == (True,)):
                tell(BESIDE)
            looking.discard(me())
            return
        if event in profiles:
            looking.add(me())
            if profiled(frame_at(1), args, bool(calling)):
                tell(TRACED)
            looking.discard(me())
            return
        kind = kind_of(event)
        if kind is None or (event == "object.__getattr__" and args[1] not in lead):
            return
        if me() in looking:
            return
        looking.add(me())
        try:
            if kind is UNREAD:
                if is_unread(event, args, frame_at(1)):
                    tell(UNREAD)
            elif asks(frame := frame_at(1)) and (
                kind is not FRAMES or event[:11] == "sys._curren" or is_checks(frame, event, args)
            ):
                tell(kind)
        finally:
            looking.discard(me())

    return look


def _from_what_is_not_read() -> Callable[[str, tuple[Any, ...], FrameType | None], bool]:
    """What says whether code that is about to run, or was loaded compiled, comes from a file that
    surely nobody reads: an archive, one of torch.package, a compiled file, or a text that is no
    `.py`. What has no file, as a cell, a doctest or the class of a namedtuple, says nothing."""
    about, is_file, is_code, loaders = os.stat, stat.S_ISREG, CodeType, LOADERS
    libraries, in_torchs_archive = (*LIBRARIES, sys.prefix, sys.base_prefix), "<torch_package_"

    def is_from_elsewhere(path: str) -> bool:
        if path[:1] == "<":
            return path.startswith(in_torchs_archive)
        if not path or path.startswith(libraries):
            return False
        try:
            return is_file(about(path).st_mode) and path[-3:] != ".py"
        except NotADirectoryError:  # data.zip/module.py
            return True
        except (OSError, ValueError):  # a name that somebody made up
            return False

    def look(event: str, args: tuple[Any, ...], frame: FrameType | None) -> bool:
        if event == "exec":
            return type(args[0]) is is_code and is_from_elsewhere(args[0].co_filename)
        if frame is None or frame.f_code.co_filename not in loaders:
            return False
        known = frame.f_locals
        if frame.f_code.co_name == "_compile_bytecode" and known.get("source_path") is None:
            path = known.get("bytecode_path")
        elif frame.f_code.co_name == "_unmarshal_code":
            path = known.get("pathname")
        else:
            return False
        return type(path) is str and not path.startswith(libraries)

    return look


def _profiled() -> Callable[[FrameType | None, tuple[Any, ...], bool], bool]:
    """What says of an event in PROFILES whether Python calls a student's function at each call, so
    that it can see the check. cProfile, also torch's, calls functions in C.

    A function that is set is not told of by the event. It is looked at when the next one takes its
    place: at the latest when the check goes on, see `stacks`. Where nothing takes its place it
    counts at once: in another thread, or with the check's own frames below.
    """
    now_set, main, me, shows, asks = (
        sys.getprofile, threading.get_ident(), threading.get_ident, shows_the_check, _asks,
    )  # fmt: skip
    from_a_thread, by_cprofile, is_ours = threading.__file__, _lsprof.Profiler, _is_ours

    def look(frame: FrameType | None, args: tuple[Any, ...], is_called: bool) -> bool:
        if args:  # of sys.monitoring
            by_c = args[0] is None or isinstance(getattr(args[0], "__self__", None), by_cprofile)
            return not by_c and asks(frame)
        if is_called and callable(now_set()):
            return True
        if me() != main:
            at_bottom = frame is not None and frame.f_code.co_filename == from_a_thread
            if at_bottom and is_ours(threading.getprofile()):  # `further`
                return False
            return is_called and (at_bottom or asks(frame))
        return asks(frame) and shows(frame)

    return look


def _is_ours(method: Any) -> bool:
    return type(method) is MethodType and method.__code__.co_filename.startswith(CHECK)


def _by_hand(calling: dict[str, Exercise]) -> bool:
    return any(exercise.by_hand for exercise in calling.values())


def _is_to_fix(calling: dict[str, Exercise]) -> bool:
    return any(exercise.kind == "fix" for exercise in calling.values())


def _handed_to(frame: FrameType | None) -> str:
    """The file of what an exercise is handed to: of `ask`, `check` or the like, or another."""
    while frame is not None and frame.f_code.co_filename in HANDING:
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


def _asks(frame: FrameType | None) -> bool:
    """Whether a student's code asks, itself or through a library that may hand frames on.

    The standard library may, however deep it asks for them, and so may IPython; of other packages
    one that is called directly.
    """
    packages = 0
    while frame is not None and not is_students(frame.f_code):
        file = frame.f_code.co_filename
        if _keeps_to_itself(frame, file) or file.startswith(OURS):
            return False
        is_standard = file.startswith((*STANDARD, "<frozen")) and not file.startswith(PACKAGES)
        packages += not is_standard and f"{os.sep}IPython{os.sep}" not in file
        if packages > 1:
            return False
        frame = frame.f_back
    return frame is not None


def _keeps_to_itself(frame: FrameType | None, file: str) -> bool:
    """Whether a function of the standard library hands on no frame that it asks for."""
    if file == traceback.__file__:  # it prints them, with or without their variables, or walks
        prints = False
        while frame is not None and frame.f_code.co_filename == file:
            if frame.f_locals.get("capture_locals"):
                return False
            prints = prints or frame.f_code.co_name[:5] != "walk_"
            frame = frame.f_back
        return prints
    if file == logging.__file__:  # it looks for the line of a message
        return frame.f_code.co_name not in ("currentframe", "<lambda>")
    if file == DOCTEST:  # it sets again what called Python before: nothing, as a rule
        return frame.f_locals.get("save_trace", frame) is None
    return file in LOOK_UP_NAMES


def _is_checks(frame: FrameType | None, event: str, args: tuple[Any, ...]) -> bool:
    """Whether what is asked for leads to a frame of the check."""
    if event == "object.__getattr__":
        owner, name = args
        if name == "tb_frame":
            while owner is not None:
                if owner.tb_frame.f_code.co_filename.startswith(CHECK):
                    return True
                owner = owner.tb_next
        elif getattr(owner, LEAD_TO_FRAMES[name]).co_filename.startswith(CHECK):
            return True
    return shows_the_check(frame)
