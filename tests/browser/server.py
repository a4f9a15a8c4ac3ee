"""Jupyter servers of the tests' own on loopback: started, waited for, stopped."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

FORMGRADER = "nbgrader.server_extensions.formgrader"
GUARD = "autograde.classroom.server_guard"
START_S = 120


@contextmanager
def serving(folder: Path, home: Path, extensions: list[str], look_at: str) -> Iterator[str]:
    """The address of a class directory's server, as an instructor starts it.

    Args:
        folder: The class directory.
        home: A folder for its settings and its log.
        extensions: Names of Jupyter server extensions to load.
        look_at: Path of the page that must answer before it counts as started.
    """
    loaded = f"--ServerApp.jpserver_extensions={dict.fromkeys(extensions, True)}"
    with started(folder, home, ["jupyter_server", loaded], {}, look_at) as address:
        yield address


@contextmanager
def started(
    folder: Path, home: Path, words: Sequence[str], environment: dict[str, str], look_at: str
) -> Iterator[str]:
    """The address of a Jupyter program (`python -m WORDS`) that serves `folder`; then it is ended.

    Its settings, its data and its log live in `home`.
    """
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    environment = {
        **{k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")},
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
        **environment,
    }
    program, *others = words
    command = [
        *(sys.executable, "-m", program, "--no-browser", "--allow-root"),
        *("--ip=127.0.0.1", f"--port={port}", "--ServerApp.port_retries=0"),
        *("--IdentityProvider.token=", "--ServerApp.password="),
        *(f"--ServerApp.root_dir={folder}", *others),
    ]
    log = home / f"{program}.log"
    with log.open("w") as opened:
        server = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=opened, stderr=opened
        )
    try:
        _wait_for(f"http://127.0.0.1:{port}{look_at}", server, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _wait_for(address: str, server: subprocess.Popen, log: Path) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            direct.open(address, timeout=20).close()
            return
        except urllib.error.HTTPError as answered:
            pytest.fail(f"{address} answers {answered.code}:\n{log.read_text()[-3000:]}")
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the Jupyter server did not come up:\n{log.read_text()[-3000:]}")
