"""The wheel in an empty environment: desk, check and progress from another directory."""

import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
import venv
import zipfile
from contextlib import closing
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built by setuptools from a copy of what the repository tracks."""
    folder = tmp_path_factory.mktemp("build")
    for name in ("course", "autograde", "notebooks"):
        skipped = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
        shutil.copytree(ROOT / name, folder / name, ignore=skipped)
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    code = "from setuptools import build_meta; print(build_meta.build_wheel('dist'))"
    run([sys.executable, "-c", code], cwd=folder)
    (built,) = (folder / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """An environment that holds this wheel alone, and sees the packages that are locked."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=False)
    made = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    site = Path(run([made, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip())
    (site / "locked.pth").write_text(sysconfig.get_path("purelib"))
    # what `pip install --no-deps` does with a pure wheel, entry points aside; pip is not at hand
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site)
    return made


def run(command, **how) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, **how)
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """Jupyter's own files in a new place; JupyterLab's page where the locked packages have it."""
    home, shared = tmp_path_factory.mktemp("home"), Path(sys.prefix) / "share" / "jupyter"
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "SYSTEMROOT")}
    return kept | {
        "HOME": str(home), "IPYTHONDIR": str(home / "ipython"), "OMP_NUM_THREADS": "1",
        "JUPYTER_CONFIG_DIR": str(home / "config"), "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"), "JUPYTER_PATH": str(shared),
        "JUPYTERLAB_DIR": str(shared / "lab"), "MPLCONFIGDIR": str(home / "matplotlib"),
    }  # fmt: skip


def test_the_wheel_holds_released_notebooks_and_no_solutions(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    released = {Path(name).name for name in names if name.endswith(".ipynb")}
    assert released == {path.name for path in (ROOT / "notebooks").glob("*.ipynb")} != set()
    assert not [name for name in names if "notebooks/source" in name]
    assert not [n for n in names if n.endswith(".py") and n.split("/")[0] not in PACKAGES]
    assert any(name.endswith("kit/about/03a-training-recipe.toml") for name in names)


PACKAGES = ("course", "autograde")


def test_course_lab_serves_the_desk_from_another_directory(python, environment, tmp_path):
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    desk, log = tmp_path / "my notebooks", tmp_path / "log"
    command = [python, "-m", "course.cli", "lab", desk, "--no-browser", f"--port={port}"]
    with log.open("w") as opened:
        lab = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=opened, stderr=opened)
    try:
        assert "released" not in wait_for(f"http://127.0.0.1:{port}/api", lab, log)
        token = re.search(r"token=(\w+)", log.read_text())[1]
        page = wait_for(f"http://127.0.0.1:{port}/lab?token={token}", lab, log)
    finally:
        lab.terminate()
        lab.wait(30)
    assert (desk / "notebooks" / "03a-training-recipe.ipynb").exists()
    assert (desk / "course" / "engine" / "trainer.py").exists() and not (desk / "source").exists()
    assert f"Your notebooks are in {desk / 'notebooks'}" in log.read_text()
    disabled = re.search(r'"disabledExtensions": \[(.*?)\]', page)[1]
    assert "nbgrader:create-assignment" in disabled and ":announcements" in disabled


def wait_for(address: str, lab: subprocess.Popen, log: Path) -> str:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + 120
    while lab.poll() is None and time.monotonic() < deadline:
        try:
            with direct.open(address, timeout=10) as answer:
                return answer.read().decode()
        except OSError:
            time.sleep(0.3)
    pytest.fail(f"JupyterLab did not come up:\n{log.read_text()[-3000:]}")


RIGHT = """\
def clip(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = sum(float(g.pow(2).sum()) for g in grads) ** 0.5
    for grad in grads:
        grad.mul_(min(1.0, max_norm / (norm + 1e-6)))
    return norm
"""
CELLS = (
    "from autograde import check, guess, hint, progress, reveal, student\nstudent('ada')",
    "guess('03a.first-loss', 2.3)\nhint('03a.clip')",
    f"{RIGHT}\nresult = check('03a.clip', clip)\nprint(result.message)",
    "reveal('03a.first-loss', 2.31)\nprint(repr(progress()))",
    "import course; print(course.__file__)",
)


def test_a_notebook_checks_and_remembers_from_another_directory(python, environment, tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    nbformat.write(notebook, tmp_path / "own.ipynb")
    code = (
        "import nbformat; from nbclient import NotebookClient as Client\n"
        "notebook = nbformat.read('own.ipynb', 4)\n"
        "Client(notebook, timeout=200, kernel_name='python3').execute(cwd='.')\n"
        "nbformat.write(notebook, 'own.ipynb')"
    )
    run([python, "-c", code], cwd=tmp_path, env=environment)
    said = [
        "".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)
        for cell in nbformat.read(tmp_path / "own.ipynb", 4).cells
    ]
    assert "Guess recorded: 2.3 nats." in said[1] and "Hint 1 of 3" in said[1]
    assert "3 of 3 points" in said[2]
    assert "You guessed 2.3 nats, it is 2.31 nats: close." in " ".join(said[3].split())
    assert "3 of " in said[3] and "1 of 1 close" in said[3] and str(python.parent.parent) in said[4]
    lines = (tmp_path / "course-progress.jsonl").read_text().splitlines()
    assert len(lines) == 5
