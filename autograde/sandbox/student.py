"""The student's process: it runs the cells of one submission and calls its functions on cases.

Messages on a pipe tell it what to do, and what it sends back is plain data. Nothing it says is
trusted: outputs of its cells are shown, answers to cases are judged by the referee in another
process.
"""

from __future__ import annotations

import base64
import importlib
import json
import multiprocessing
import os
import resource
import signal
import sys
from collections.abc import Callable
from functools import cache, partial, wraps
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from types import ModuleType
from typing import Any

from autograde import bank, plain
from autograde.answers import Raised, answer_of
from autograde.apart import forking
from autograde.by_hand import written_by_hand
from autograde.exercise import AnswerError
from autograde.kinds.fix import CODE, RAN, code_of
from autograde.kinds.value import called, plain_value
from autograde.kit.student import current
from autograde.quiet import quiet
from autograde.sandbox import own, reaching, recorded, signals, stacks, stubs, view
from autograde.sandbox.bounds import limit_growth
from autograde.sandbox.channel import sender
from autograde.sandbox.further import Further
from autograde.sandbox.isolation import Isolation, lock_away
from autograde.sandbox.limits import Limits

MAX_OUTPUT = 200_000
"""Characters of one cell's outputs that are kept."""


def serve(
    pipe: Connection,
    folder: str,
    limits: Limits,
    isolation: Isolation,
    device: str = "cpu",
    board: Connection | None = None,
) -> None:
    """Answer messages until the pipe closes. Runs in a fork of the warm parent; in one that is not
    warm, as where other code has had a fork server started, all is loaded first, in seconds.

    The first message goes out unasked: {"ready": true}, or {"fault": why the process could not be
    locked away}; in the second case nothing else happens.

    Args:
        pipe: Messages as JSON bytes: {"id", "do": "run", "source"} or {"id", "do": "call",
            "exercise", "function", "case"} or {"id", "do": "value", "name"}.
        folder: The submission's private working directory.
        limits: What is counted is set here; time is kept by the other side.
        isolation: Whether the process is locked away.
        device: Where answers are computed.
        board: The reading end of the grader's `Board`.
    """
    importlib.import_module("autograde.sandbox.warm")
    try:
        if board is not None:
            stubs.look_at(board.fileno())
            board.close()
        _settle(Path(folder), limits, isolation, pipe.fileno())
        if device.startswith("cuda"):
            _share_gpu(device)
    except OSError as refused:
        pipe.send_bytes(json.dumps({"fault": str(refused)}).encode())
        return
    shell = ready_shell()
    shell.move_to(Path(folder) / ".ipython")
    shell.device = device
    put_back, alone = own.taken()
    places, others = view.writable(Path(folder)), tuple[str, ...]()
    if isolation.trusted:  # where Python and torch keep what is for a moment
        places, others = (folder,), (*places, gettempdir())
    send, told = sender(pipe.fileno()), set[str]()
    tell = _telling(send, told)
    not_kept = signals.keep_beside_students_code(alone)
    means = own.Means(put_back, alone, tell, not_kept, pipe.fileno(), places, others)
    calling = recorded.taken()
    reaching.install(tell, put_back.codes_are, calling)
    answer = Shell.call
    keep_from, let_come = signals.interrupts()
    send(b'{"ready": true}')
    while True:
        try:
            let_come()
            message = pipe.recv_bytes()
        except (EOFError, OSError):
            return
        except KeyboardInterrupt:  # an interrupt that came after the work was done
            continue
        request = json.loads(message)
        reply: dict[str, Any] = {"id": request["id"]}
        try:
            if request["do"] == "run":
                reply["outputs"] = shell.run(request["source"], alone)
            elif request["do"] == "value":
                reply["answer"] = alone(shell.value_of, (request["name"],))
            else:
                put_back(request["exercise"])
                calling["now"] = bank.load(request["exercise"])
                reply["answer"] = answer(shell, request, means)
        except KeyboardInterrupt:
            reply["interrupted"] = True
        except SystemExit as leaving:
            reply["answer"] = {"raised": "SystemExit", "text": str(leaving)}
        except BaseException as fault:  # no Exception, or one whose text raises another
            reply["answer"] = about = _raised(type(fault).__name__, _text_of(fault))
            reply["outputs"] = [
                {
                    "output_type": "error",
                    "ename": about["raised"],
                    "evalue": about["text"],
                    "traceback": [],
                }
            ]
        keep_from()  # a second interrupt must not break the reply
        calling.clear()
        send(json.dumps({**reply, "noted": sorted(told)}).encode())


def _telling(send: Callable[[bytes], None], told: set[str]) -> reaching.Tell:
    """Tells the grader, once each, what it is to know before anything else comes; every reply says
    it again, as a pipe can be led elsewhere for a moment."""
    notes = {what: json.dumps({"noted": what}).encode() for what in reaching.WORDS}

    def tell(what: str) -> None:
        if what not in told:
            told.add(what)
            send(notes[what])

    return tell


def _settle(folder: Path, limits: Limits, isolation: Isolation, pipe: int) -> None:
    """A session of its own, a bare environment, a private folder, no terminal, locked away."""
    stubs.leave_only_questions()
    stubs.refuse_copies()
    covered = stubs.covered()
    os.setsid()
    _close_inherited(pipe)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stacks.show_no_stacks()
    for name in stacks.modules_of_greenlets():
        del sys.modules[name]  # whose file is covered: a stack's parent has the frames of the check
    kept = {
        name: os.environ[name] for name in ("PATH", "LANG", "COURSE_DATA") if name in os.environ
    }
    os.environ.clear()
    os.environ.update(
        kept,
        HOME=str(folder),
        USER="student",
        MPLCONFIGDIR=str(folder / ".matplotlib"),
        MPLBACKEND="module://matplotlib_inline.backend_inline",
        NBGRADER_EXECUTION="autograde",  # as stock nbgrader says: the kit then keeps no progress
        OMP_NUM_THREADS="1",
        OMP_THREAD_LIMIT="1",
        PIP_NO_INDEX="1",  # there is no network: %pip says at once what is missing
    )
    sys.argv = ["notebook"]
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)
    if not isolation.trusted:
        lock_away(folder, isolation, limits, pipe, covered)
    os.chdir(folder)
    sys.path.append(str(folder))  # last: a numpy.py beside the notebook is not NumPy
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_CPU, int(limits.notebook_s) + 10),
    ):
        resource.setrlimit(kind, (value, value))
    limit_growth(limits.memory_bytes, for_good=True)
    _run_as_written()
    _reseed()


GPU_SHARE = 0.5
"""Of a GPU's memory; the other half is the referee's, and what CUDA itself takes of both."""


def _share_gpu(device: str) -> None:
    """Bound this process's part of a GPU's memory.

    Raises:
        OSError: It cannot use the GPU at all.
    """
    import torch

    try:
        torch.cuda.set_per_process_memory_fraction(GPU_SHARE, torch.device(device))
    except RuntimeError as fault:
        why = str(fault).partition("\n")[0]
        raise OSError(f"in there, device {device!r} cannot be used: {why}") from None


def _close_inherited(pipe: int) -> None:
    """Close every descriptor but the pipe: through the others one could reach the warm parent.

    Objects of the parent (matplotlib keeps its font files open) still hold the numbers and close
    them some day, which would hit whatever has the number by then. So /dev/null takes their place.
    """
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for inherited in map(int, os.listdir("/dev/fd")):  # one is the listing's own, closed by now
        if inherited > 2 and inherited not in (pipe, nowhere):
            os.dup2(nowhere, inherited, inheritable=False)
    os.close(nowhere)
    resource_tracker._resource_tracker._fd = None  # a worker process starts one of its own
    resource_tracker._resource_tracker._pid = None
    own = multiprocessing.current_process()._config
    own["daemon"] = False  # a DataLoader may have workers
    own["authkey"] = os.urandom(32)
    own.pop("tempdir", None)
    if sys.platform.startswith("linux"):  # warm, like everything here
        multiprocessing.set_start_method("fork", force=True)


def _run_as_written() -> None:
    """Here `torch.compile` gives what runs as it was written: torch's compiler cannot read the
    functions that hold guards, and may find no C++ compiler."""
    import torch

    usual = torch.compile

    @wraps(usual)
    def compile(*args: Any, **kwargs: Any) -> Any:
        torch.compiler.set_stance("force_eager")
        return usual(*args, **kwargs)

    torch.compile = compile


def _reseed() -> None:
    import random

    import numpy
    import torch

    torch.default_generator.seed()  # torch.seed() also notes down the stack, for CUDA
    numpy.random.seed()
    random.seed()


@cache
def ready_shell() -> Shell:
    """The process's one shell; the warm parent makes it, so that a fork finds it made."""
    return Shell()


class Shell:
    """IPython without a kernel: magics, displays and figures work as in a notebook."""

    def __init__(self) -> None:
        from IPython.core.displayhook import DisplayHook
        from IPython.core.interactiveshell import InteractiveShell
        from matplotlib import pyplot
        from traitlets.config import Config

        class ShownResult(DisplayHook):
            """A cell's last value is published like any display."""

            def __call__(hook, result: Any = None) -> None:
                if result is not None and not self.hushed:
                    data, metadata = hook.compute_format_data(result)
                    hook.shell.display_pub.publish(data, metadata)

        class QuietShell(InteractiveShell):
            """Keeps tracebacks instead of printing them; draws figures without a gui."""

            displayhook_class = ShownResult

            def enable_gui(self, gui: str | None = None) -> None:
                pass

            def _showtraceback(shell, _type: object, _value: object, lines: list[str]) -> None:
                self.traceback = list(lines)

        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        main = sys.modules["__main__"] = ModuleType("__main__")
        with TemporaryDirectory() as nowhere:
            os.environ["IPYTHONDIR"] = nowhere
            self.shell = QuietShell.instance(config=config, user_module=main)
        self.shell.run_line_magic("matplotlib", "inline")
        pyplot.uninstall_repl_displayhook()  # else each figure is drawn twice, and shown once
        self.traceback: list[str] = []
        self.device = "cpu"
        """Where answers are computed."""
        self.hushed = False
        """The cell ends in a semicolon: its value is not shown."""

    def move_to(self, folder: Path) -> None:
        """Keep what IPython keeps, as `%cd` its places, in a folder."""
        from IPython.core.profiledir import ProfileDir

        self.shell.ipython_dir = os.environ["IPYTHONDIR"] = str(folder)
        self.shell.profile_dir = ProfileDir.create_profile_dir_by_name(str(folder), "default")

    def run(self, source: str, alone: stacks.Alone = stacks.as_usual) -> list[dict[str, Any]]:
        """Run a cell; its outputs as a notebook stores them. For `alone` see `own`."""
        from IPython.utils.capture import capture_output

        self.hushed = source.rstrip().endswith(";")
        with capture_output() as captured:
            result = alone(self.shell.run_cell, (source,), {"store_history": False})
        outputs: list[dict[str, Any]] = []
        for name, text in (("stdout", captured.stdout), ("stderr", captured.stderr)):
            if text:
                outputs.append({"output_type": "stream", "name": name, "text": _cut(text)})
        for rich in captured.outputs:
            data = {kind: value for kind, value in rich.data.items() if _is_small(value)}
            outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
        fault = result.error_before_exec or result.error_in_exec
        if fault is not None:
            if isinstance(fault, KeyboardInterrupt):
                raise fault
            outputs.append(
                {
                    "output_type": "error",
                    "ename": type(fault).__name__,
                    "evalue": _cut(str(fault)),
                    "traceback": [_cut(line) for line in self.traceback],
                }
            )
        return outputs

    def named(self, name: str) -> Any:
        """What a notebook has given a name to."""
        return self.shell.user_ns.get(name)

    def value_of(self, name: str) -> dict[str, str]:
        """A variable as plain data, with the name typed in the notebook."""
        try:
            with quiet():
                value = called(self.named(name))
            given = {"value": plain_value(value), "typed": current()}
            return {"value": base64.b64encode(plain.to_bytes(given)).decode()}
        except AnswerError as fault:
            return _raised("AnswerError", str(fault))
        except plain.PlainDataError as fault:
            return _raised("AnswerError", f"This value cannot be an answer: {fault}")

    def call(self, request: dict[str, Any], means: own.Means) -> Any:
        """Put a case to a function of the student's; the answer, or what was raised.

        Args:
            request: The message.
            means: See `own`.
        """
        import torch

        exercise = bank.load(request["exercise"])
        function = means.alone(self.named, (request["function"],))
        if not callable(function):
            return _raised("NameError", not_defined(request["function"]))
        if inside := stubs.stands_inside():
            return _raised("NotAllowedError", begun(inside, request["function"]))
        try:
            with own.without_modes():
                case = plain.from_bytes(base64.b64decode(request["case"]))
                further = Further(function, means.tell) if exercise.kind == "fix" else None
                seen = further.watching(means.alone) if further else means.alone
                as_it_is = own.looked_at_as_it_is(function, exercise, means._replace(alone=seen))
                apart = forking(
                    not self.device.startswith("cuda"),
                    means.pipe,
                    means.places,
                    means.alone,
                    partial(_before_a_fork, means),
                    means.others,
                )
                with quiet(), written_by_hand(exercise), apart, as_it_is as asked:
                    where = torch.device(self.device)
                    answer = answer_of(exercise, asked, case, device=where)
                if means.put_back(request["exercise"]):
                    means.tell(reaching.CHANGED)
                if isinstance(answer, Raised):
                    return _raised(answer.kind, answer.text)
                if further:
                    answer = {**answer, CODE: code_of(function), RAN: further.found()}
                return {"value": base64.b64encode(plain.to_bytes(answer)).decode()}
        except plain.PlainDataError as fault:
            return _raised("AnswerError", f"What was returned cannot be an answer: {fault}")


def _before_a_fork(means: own.Means) -> None:
    """Also after it: a thread that runs here could hand on what a process leaves."""
    means.put_back(own.FILES, whole=False)
    if own.threads_running():
        means.tell(reaching.THREADS)


def begun(inside: str, function: str) -> str:
    """What is said where a thread is in the course's own code while that refuses."""
    return (
        f"A thread that was started earlier is still inside the course's own {inside}, which does "
        f"what this exercise asks you to write: {function} was not called. End the thread first."
    )


def not_defined(function: str) -> str:
    """What is said where a function has no value that could be called."""
    return f"{function} is not defined above: its cell is missing, below, or raised."


def _text_of(fault: BaseException) -> str:
    try:
        return str(fault)
    except BaseException:
        return "(it has no text: str() of it raises as well)"


def _raised(kind: str, text: str) -> dict[str, str]:
    """What a function raised, as plain data."""
    return {"raised": _cut(kind, 200), "text": _cut(text, 2000)}


def _cut(text: str, limit: int = MAX_OUTPUT) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n... {len(text) - limit:,} more characters were printed."


def _is_small(value: Any) -> bool:
    return isinstance(value, (str, dict, list)) and len(str(value)) <= 10 * MAX_OUTPUT
