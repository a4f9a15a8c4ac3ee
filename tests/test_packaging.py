"""The lock, environment.yml and pyproject.toml say the same; importing the course is light."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def lock_pins() -> dict[tuple[str, str], str]:
    """Version by (name, marker)."""
    found = {}
    for line in LOCK.splitlines():
        if re.match(r"^[A-Za-z0-9]", line):
            requirement = Requirement(line.rstrip("\\ "))
            (version,) = [spec.version for spec in requirement.specifier]
            found[canonicalize_name(requirement.name), str(requirement.marker or "")] = version
    return found


def test_every_dependency_of_the_project_is_pinned_within_its_range():
    wanted = PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]
    pins = lock_pins()
    for text in wanted:
        requirement = Requirement(text)
        versions = [
            v for (name, _), v in pins.items() if name == canonicalize_name(requirement.name)
        ]
        assert versions, f"{text} is not in requirements.lock; run make lock"
        assert all(requirement.specifier.contains(version) for version in versions), text


def test_environment_yml_pins_what_the_lock_pins():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
    (pip_part,) = [part["pip"] for part in environment["dependencies"] if isinstance(part, dict)]
    assert pip_part[-1] == "-e ."
    requirements = [Requirement(text) for text in pip_part[:-1]]
    ours = {
        (canonicalize_name(r.name), str(r.marker or "")): next(iter(r.specifier)).version
        for r in requirements
    }
    assert ours == lock_pins()


def test_the_lock_has_hashes_and_no_index_addresses():
    assert "--index" not in LOCK and "://" not in LOCK and "--find-links" not in LOCK
    blocks = re.split(r"\n(?=[A-Za-z0-9])", LOCK)
    assert all("--hash=sha256:" in block for block in blocks if "==" in block)


def test_torch_and_torchvision_are_pinned_together():
    pins = {name: version for (name, _), version in lock_pins().items()}
    import torch
    import torchvision

    assert torch.__version__.split("+")[0] == pins["torch"]
    assert torchvision.__version__.split("+")[0] == pins["torchvision"]


@pytest.mark.parametrize(
    "module",
    ["course", "course.data", "course.engine", "course.worked", "course.widgets", "autograde"],
)
def test_importing_loads_no_pictures_and_no_widgets(module):
    code = (
        f"import sys, {module}\n"
        "heavy = {'torchvision', 'matplotlib', 'ipywidgets', 'anywidget', 'tensorboard'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=ROOT)


def test_import_course_and_autograde_do_not_import_torch():
    code = "import sys, course.widgets, autograde; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=ROOT)


def test_no_import_runs_upward():
    """The floors of the house: a module imports from its own floor or from below."""
    floors = {
        "catalogue": 0, "report": 0, "pages": 0, "tables": 0, "released": 0, "view": 0,
        "whole": 0,
        "ledger": 0, "state": 0, "plots": 0, "from_scratch": 0, "data": 1, "engine": 2,
        "lr_finder": 3, "analysis": 3, "debug": 4, "worked": 5, "claims": 5, "widgets": 5, "cli": 6,
    }  # fmt: skip
    upward = []
    for path in (ROOT / "course").rglob("*.py"):
        room = path.relative_to(ROOT / "course").parts[0].removesuffix(".py")
        text = path.read_text("utf-8")
        if "from autograde" in text or "import autograde" in text:
            upward.append(f"{path.name} imports autograde")
        for target in re.findall(r"^\s*(?:from|import) course\.(\w+)", text, flags=re.MULTILINE):
            if room in floors and floors.get(target, 0) > floors[room]:
                upward.append(f"{path.relative_to(ROOT)} imports course.{target}")
    assert not upward


def test_every_target_of_the_makefile_is_in_its_help():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, flags=re.MULTILINE)[1].split())
    command = ["make", "--no-print-directory", "help"]
    outside_make = {name: value for name, value in os.environ.items() if "MAKE" not in name}
    result = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, env=outside_make
    )
    assert targets == {line.split()[0] for line in result.stdout.splitlines()}


def test_ci_runs_the_readmes_test_command():
    assert "make test" in (ROOT / ".ci" / "run").read_text("utf-8")
    assert "make test" in (ROOT / "README.md").read_text("utf-8")


def test_every_jupyter_server_of_this_environment_loads_the_content_policy():
    """`make setup` puts it there: an editable install leaves data files out."""
    from jupyter_server.extension.config import ExtensionConfigManager

    found = Path(sys.prefix) / "etc" / "jupyter"
    extensions = ExtensionConfigManager(read_config_path=[str(found)]).get_jpserver_extensions()
    assert extensions.get("autograde.classroom.server_guard"), f"run make setup; {found} lacks it"
