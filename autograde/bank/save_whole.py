"""03g.save: a checkpoint that is written whole or not at all."""

from __future__ import annotations

import errno
import io
import os
import pickle
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from autograde.bank.harness import read_safely
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, kept
from course.analysis.instants import PROBE, Probe, instants
from course.engine import checkpoint

OTHERS = {"best.pt": "the best epoch", "epoch-3.pt": "a third epoch", "run.json": "{}"}
"""What else lies in the folder, by name, with its content."""


def draw(source: Draw, part: str) -> Case:
    """Two states with tensors, numbers and texts; the second is saved over the first."""
    return {
        "states": [_state(source, epoch) for epoch in (1, 2)],
        "name": source.choice(["last.pt", "run-7", "best.weights.pt"]),
        "there": part != "content" or source.index > 0,
        "part": part,
        "as_torch": part == "failed" and source.index > 0,
    }


def _state(source: Draw, epoch: int) -> dict[str, Any]:
    return {
        "model": {"weight": source.normal(source.integer(2, 4), 3), "steps": torch.tensor(epoch)},
        "optimizer": {"lr": source.uniform(0.1, 0.9), "betas": [0.9, 0.99], "name": "Adam"},
        "epoch": epoch + source.integer(0, 5),
    }


def run(function, case: Case, device: torch.device) -> Answer:
    """Save once and once more in a folder of its own, and look at it in the way of the part."""
    first, second = case["states"]
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as folder, _watched_os() as renames:
        path = Path(folder) / case["name"]
        for other, content in OTHERS.items():
            (path.parent / other).write_text(content)
        if case["part"] == "failed":
            function(dict(first), path)
        elif case["there"]:
            torch.save(first, path)
        look = {"whole": _watch, "failed": _fail_as_torch if case["as_torch"] else _fail,
                "killed": _kill}  # fmt: skip
        seen = look.get(case["part"], _plain)(function, second, path)
        left = {"read": kept(_read, path), "files": _different(path)}
        return {
            "synced": "missing, as there is no rename",
            "folder": "missing, as there is no rename",
            **renames.get(path, {}),
            **left,
            **seen,
        }


def _different(path: Path) -> str:
    """Which files besides the checkpoint are new, changed or missing."""
    now = {file.name: file.read_bytes() for file in path.parent.iterdir() if file != path}
    before = {name: content.encode() for name, content in OTHERS.items()}
    found = [f"{name} (new)" for name in sorted(now.keys() - before.keys())]
    found += [
        f"{name} ({'changed' if name in now else 'missing'})"
        for name in before
        if now.get(name) != before[name]
    ]
    return ", ".join(found) or "nothing"


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise AnswerError("After save(state, path) there is no file at the path.")
    try:
        state = read_safely(path)
    except Exception as error:
        kind = type(error).__name__
        raise AnswerError(
            f"torch.load(path, weights_only=True) raises {kind}: there is no complete checkpoint."
        ) from None
    if isinstance(state, dict):
        state.pop(PROBE, None)
        return state
    raise AnswerError(f"The file holds a {type(state).__name__}; a state is a dictionary.")


def _plain(function, state: dict, path: Path) -> Answer:
    function(dict(state), path)
    return {}


def _watch(function, state: dict, path: Path) -> Answer:
    return {"seen": instants(function, dict(state), path)}


def _fail(function, state: dict, path: Path, *, as_torch: bool = False) -> Answer:
    """The disk is full in the middle of writing: what is raised, and what is left.

    Python's files raise an OSError then, torch's own writer a RuntimeError.
    """

    def full() -> None:
        if as_torch:
            raise RuntimeError("PytorchStreamWriter failed writing file data.pkl")
        raise OSError(errno.ENOSPC, "No space left on device")

    try:
        function({**state, PROBE: Probe(full)}, path)
    except Exception:
        return {"raised": "an exception"}
    return {"raised": "nothing"}


def _fail_as_torch(function, state: dict, path: Path) -> Answer:
    return _fail(function, state, path, as_torch=True)


def _kill(function, state: dict, path: Path) -> Answer:
    """What lies in the folder at a kill is put back after it; then the next run saves."""
    left: dict[Path, bytes] = {}

    def kill() -> None:
        left.update({file: file.read_bytes() for file in path.parent.iterdir()})
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        function({**state, PROBE: Probe(kill)}, path)
    for file, content in left.items():
        file.write_bytes(content)
    function(dict(state), path)
    return {}


@contextmanager
def _watched_os() -> Iterator[dict[Path, dict[str, str]]]:
    """By path that a file was renamed to: from which folder, and whether it was synced by then.

    Nothing is really synced: a disk may take long, and we only ask when it was asked.
    """
    synced: dict[int, int] = {}
    seen: dict[Path, dict[str, str]] = {}

    def fsync(file: Any) -> None:
        about = os.fstat(file if isinstance(file, int) else file.fileno())
        synced[about.st_ino] = about.st_size

    def watched(rename: Any) -> Any:
        def renamed(source: Any, target: Any, **options: Any) -> None:
            about, target = os.stat(source), Path(target)
            size = synced.get(about.st_ino)
            early = "not before the rename" if size is None else "before its bytes were all there"
            here = Path(source).absolute().parent == target.absolute().parent
            rename(source, target, **options)
            seen[target] = {
                "synced": "before the rename" if size == about.st_size else early,
                "folder": "the folder of path" if here else "another folder",
            }

        return renamed

    with (
        mock.patch.object(os, "fsync", fsync),
        mock.patch.object(os, "fdatasync", fsync, create=True),
        mock.patch.object(os, "replace", watched(os.replace)),
        mock.patch.object(os, "rename", watched(os.rename)),
    ):
        yield seen


def reference(state, path):
    """The course's own writer."""
    checkpoint.write_whole(state, path)


def save(state, path, name=".partial"):
    """A right answer; the wrong ones leave something out."""
    partial = path.with_name(path.name + name)
    try:
        with open(partial, "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def without_flush(state, path):
    """torch.save has already passed Python's buffer on to the system."""
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def in_memory_first(state, path):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    new = f"{path}.new"
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, buffer.getvalue())
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(new, path)


def with_a_random_name(state, path):
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        try:
            torch.save(state, file)
            file.flush()
            os.fsync(file)
        except BaseException:
            os.remove(file.name)
            raise
    shutil.move(file.name, path)


def synced_afterwards_by_name(state, path):
    partial = Path(str(path) + "~")
    try:
        torch.save(state, str(partial))
        with open(partial, "rb+") as file:
            os.fsync(file.fileno())
    except Exception:
        if partial.exists():
            partial.unlink()
        raise
    partial.replace(path)


def direct(state, path):
    torch.save(state, path)


def direct_with_sync(state, path):
    with open(path, "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def bytes_into_the_file(state, path):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    path.write_bytes(buffer.getvalue())


def by_a_thread(state, path):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    writing = threading.Thread(target=lambda: path.write_bytes(buffer.getvalue()))
    writing.start()
    writing.join()


def removed_first(state, path):
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        path.unlink(missing_ok=True)
        os.rename(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def old_moved_away(state, path):
    old = path.with_name(path.name + ".old")
    if path.exists():
        os.replace(path, old)
    try:
        save(state, path)
    except Exception:
        if old.exists():
            os.replace(old, path)
        raise
    old.unlink(missing_ok=True)


def copied(state, path):
    partial = path.with_name(path.name + ".partial")
    try:
        torch.save(state, partial)
        shutil.copyfile(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def not_synced(state, path):
    partial = path.with_name(path.name + ".partial")
    try:
        torch.save(state, partial)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def synced_too_late(state, path):
    not_synced(state, path)
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def synced_too_early(state, path):
    partial = path.with_name(path.name + ".partial")
    try:
        with open(partial, "wb") as file:
            os.fsync(file.fileno())
            torch.save(state, file)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def not_flushed(state, path):
    buffer, partial = io.BytesIO(), path.with_name(path.name + ".partial")
    torch.save(state, buffer)
    try:
        with open(partial, "wb") as file:
            file.write(buffer.getvalue())
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def elsewhere(state, path):
    with tempfile.NamedTemporaryFile(delete=False) as file:
        try:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        except Exception:
            os.remove(file.name)
            raise
    shutil.move(file.name, path)


NAMES = (
    lambda path: path.with_name(path.name + ".partial"),
    lambda path: path.with_name(path.name + ".tmp"),
    lambda path: path.with_suffix(".tmp"),
    lambda path: path.with_suffix(path.suffix + ".tmp"),
)
"""What students call the new file; a message names the one that is left."""


def part_left(name):
    """Never cleans up."""

    def wrong(state, path):
        partial = name(path)
        with open(partial, "wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        os.replace(partial, path)

    return wrong


def part_left_by_torch(name):
    """Cleans up after an OSError alone."""

    def wrong(state, path):
        partial = name(path)
        try:
            with open(partial, "wb") as file:
                torch.save(state, file)
                os.fsync(file.fileno())
            os.replace(partial, path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise

    return wrong


def swallowed(state, path):
    with suppress(OSError):
        save(state, path)


def all_swallowed(state, path):
    with suppress(Exception):
        save(state, path)


def old_removed_on_failure(state, path):
    try:
        save(state, path)
    except OSError:
        path.unlink(missing_ok=True)
        raise


def backup_left(state, path):
    if path.exists():
        shutil.copyfile(path, path.with_name(path.name + ".backup"))
    save(state, path)


def new_file_only(state, path):
    partial = path.with_name(path.name + ".partial")
    file = open(partial, "xb")  # noqa: SIM115
    try:
        torch.save(state, file)
        os.fsync(file.fileno())
        file.close()
        os.replace(partial, path)
    finally:
        file.close()
        partial.unlink(missing_ok=True)


def never_renamed(state, path):
    with open(path.with_name(path.name + ".partial"), "wb") as file:
        torch.save(state, file)
        os.fsync(file.fileno())


def only_if_new(state, path):
    if not path.exists():
        save(state, path)


def model_alone(state, path):
    save({"model": state["model"], PROBE: state.get(PROBE)}, path)


def pickled(state, path):
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(pickle.dumps({k: v for k, v in state.items() if k != PROBE}, protocol=2))
    os.replace(partial, path)


def everything_else_removed(state, path):
    save(state, path)
    for file in path.parent.iterdir():
        if file != path:
            file.unlink()


def all_checkpoints_removed(state, path):
    for file in path.parent.glob("*.p*"):
        if file != path:
            file.unlink()
    save(state, path)


def under_a_name_in_use(state, path):
    partial = path.with_name("best.pt")
    try:
        with open(partial, "wb") as file:
            torch.save(state, file)
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def wrapped(state, path):
    save({"state": state}, path)


EXERCISE = Exercise(
    id="03g.save",
    title="whole, or not at all",
    source="Training-loop chapter, c7, component 1",
    ledger=("C10", "T34"),
    minutes=15,
    difficulty=2,
    read=("course.engine.checkpoint", "C10"),
    hints=(
        "Which single system operation replaces one file by another?",
        "Write a file with another name in path.parent. What must be true before it gets the final "
        "name, and what should happen to it if writing fails?",
        "open(partial, 'wb'), torch.save into it, os.fsync(file.fileno()); after the with, "
        "os.replace(partial, path); all in try ... finally partial.unlink(missing_ok=True).",
    ),
    signature="save(state, path)",
    parts=(
        Part("content", "the state, in a new file and over an old one", points=1,
             fields=("read", "files")),
        Part("whole", "at every instant, the old file or the new one", points=2,
             fields=("seen", "read")),
        Part("failed", "a disk that is full in the middle", points=1,
             fields=("read", "raised", "files")),
        Part("disk", "bytes on the disk before the rename, from the same folder", points=1,
             fields=("synced", "folder", "read")),
        Part("killed", "a partial file left by a killed process", points=1, hidden=True,
             fields=("read",)),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={
        "read": "the state loaded again",
        "files": "what is different in the folder afterwards, besides the checkpoint,",
        "seen": "what is at the path over time",
        "raised": "what save() raises on a full disk",
        "synced": "os.fsync of the whole new file",
        "folder": "the folder in which the new file was written",
    },
    by_hand=(checkpoint.save, checkpoint.write_whole, checkpoint.save_last),
    wrong=(
        Wrong("written-into", direct,
              "For a while there was an incomplete file at the path: it already had its final name "
              "while it was being filled, so a kill leaves neither state. Fill a different file, "
              "then let os.replace give it the name."),
        Wrong("written-into", direct_with_sync),
        Wrong("written-into", bytes_into_the_file),
        Wrong("written-into", by_a_thread),
        Wrong("written-into", copied),
        Wrong("gap", removed_first,
              "For an instant there was no file at the path: the old one was gone before the new "
              "one had its name. os.replace does both at once."),
        Wrong("gap", old_moved_away),
        Wrong("not-synced", not_synced,
              "The new file got its name before its bytes were synced to the disk: after a power "
              "cut the name can exist without its bytes. Call os.fsync once the whole file is "
              "written, and before the rename."),
        Wrong("not-synced", synced_too_late),
        Wrong("synced-too-early", synced_too_early,
              "os.fsync came before all bytes of the new file were with the system: they were "
              "written later, or were still in Python's buffer. After the last write(), call "
              "file.flush() and then os.fsync()."),
        Wrong("synced-too-early", not_flushed),
        Wrong("elsewhere", elsewhere,
              "The new file came from another folder. From another disk a rename is a copy, or an "
              "error: write the file into path.parent."),
        Wrong("part-left", part_left(NAMES[0]),
              "After a failed write, part of the new file is still in the folder. Remove it before "
              "the exception reaches the caller.", sure=True),
        *(Wrong("part-left", part_left(name), sure=True) for name in NAMES[1:]),
        Wrong("part-left-by-torch", part_left_by_torch(NAMES[0]),
              "Part of the new file is left in the folder after a RuntimeError, which torch.save "
              "may raise on a full disk; after an OSError it was removed. Clean up in `finally`.",
              sure=True),
        *(Wrong("part-left-by-torch", part_left_by_torch(name), sure=True) for name in NAMES[1:]),
        Wrong("swallowed", swallowed,
              "The disk was full, but save() returned as if all was well. Clean up, but let the "
              "exception reach the caller.", sure=True),
        Wrong("swallowed", all_swallowed, sure=True),
        Wrong("old-removed", old_removed_on_failure,
              "After a failed write, the old checkpoint is gone too. It is all that is left, so do "
              "not touch it.", sure=True),
        Wrong("backup-left", backup_left,
              "Another file from saving is left in the folder. Once the new checkpoint has its "
              "name, nothing else is needed.", sure=True),
        Wrong("new-file-only", new_file_only,
              "The file left by a killed process was in the way. Open the new file in a mode that "
              "allows this: 'wb', not 'xb'.", raises="FileExistsError"),
        Wrong("never-renamed", never_renamed),
        Wrong("only-if-new", only_if_new),
        Wrong("model-alone", model_alone),
        Wrong("pickled", pickled),
        Wrong("others-removed", everything_else_removed,
              "Other files in the folder are gone. Touch only the path and the new file, and give "
              "the new file a name that nothing else has: path.name with an extra "
              "ending.", sure=True),
        Wrong("others-removed", all_checkpoints_removed, sure=True),
        Wrong("others-removed", under_a_name_in_use, sure=True),
        Wrong("wrapped", wrapped),
    ),
    right=(save, without_flush, in_memory_first, with_a_random_name, synced_afterwards_by_name),
)  # fmt: skip
