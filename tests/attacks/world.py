"""What an attack could damage: a class, a listener, processes; and whether it did."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from autograde.sandbox.isolation import FIRST_UID

ENDS_S = 120
"""Seconds in which the run of an attack has ended, or nothing ends it: alone none takes more than
15, but four processes of tests share two cores."""
LEFT_BEHIND = ("/dev/shm/autograde-canary", "/tmp/autograde-canary")


@dataclass
class World:
    """A class directory and listeners, looked at before and after."""

    folder: Path
    listeners: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        tcp = socket.create_server(("127.0.0.1", 0))
        local = socket.socket(socket.AF_UNIX)
        self.socket_name = f"autograde-{os.getpid()}-{id(self)}"
        local.bind(f"\0{self.socket_name}")
        local.listen()
        self.listeners = [tcp, local]
        for listener in self.listeners:
            listener.setblocking(False)
        self.before = self.state()

    def filled(self, cell: str) -> str:
        """A cell with this world's names put in."""
        names = {
            "@CLASS@": str(self.folder),
            "@PORT@": str(self.listeners[0].getsockname()[1]),
            "@SOCKET@": self.socket_name,
            "@PID@": str(os.getpid()),
        }
        for name, value in names.items():
            cell = cell.replace(name, value)
        return cell

    def state(self) -> dict[str, str]:
        """Every file of the class directory, by a hash of what it holds."""
        files = (path for path in sorted(self.folder.rglob("*")) if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def damage(self) -> list[str]:
        """What has changed, arrived or stayed behind; a line each."""
        found = [path for path, was in self.before.items() if self.state().get(path) != was]
        found += [path for path in self.state() if path not in self.before]
        found += [path for path in LEFT_BEHIND if os.path.exists(path)]
        for listener in self.listeners:
            try:
                listener.accept()[0].close()
                found.append(f"a connection arrived at {listener.getsockname()!r}")
            except BlockingIOError:
                pass
        return found

    def close(self) -> None:
        """Close the listeners."""
        for listener in self.listeners:
            listener.close()


def processes_of(keeper: int) -> list[int]:
    """Processes of the student whose keeper had this number, told by their user: by root only."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if path.stat().st_uid == FIRST_UID + keeper:
                found.append(int(path.name))
        except OSError:
            continue
    return found


def small_class(folder: Path) -> Path:
    """A directory that looks like a class: source, submissions, configuration, gradebook."""
    from tests.attacks.submissions import HONEST

    for path, text in {
        "source/03a/03a.ipynb": json.dumps({"cells": [{"source": [HONEST]}]}),
        "submitted/ada/03a/03a.ipynb": "ada's work",
        "nbgrader_config.py": "c = get_config()\n",
    }.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    with sqlite3.connect(folder / "gradebook.db") as gradebook:
        gradebook.execute("create table grade (student, auto_score)")
        gradebook.execute("insert into grade values ('ada', 3)")
    return folder
