"""The ES modules under Node: their pure functions, and every bundle as the browser gets it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import course.widgets as widgets

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if found is None and os.environ.get("CI"):
        pytest.fail("no Node is installed. On Debian: apt-get install nodejs")
    if found is None:
        pytest.skip("no Node is installed. On Debian: apt-get install nodejs")
    return found


def test_pure_functions_of_the_modules(node):
    files = sorted(str(path) for path in (ROOT / "tests" / "widgets" / "js").glob("*.test.mjs"))
    result = subprocess.run([node, "--test", *files], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


@pytest.mark.parametrize("id", list(widgets.catalogue()))
def test_a_bundle_is_one_module_with_one_default(node, id, tmp_path):
    from course.widgets.base.bundle import bundle

    text = bundle(ROOT / "course" / "widgets" / id / "widget.js")
    assert "import " not in text and text.count("export ") == 1
    path = tmp_path / "bundle.mjs"
    code = "import w from './bundle.mjs'; if (typeof w.render !== 'function') process.exit(3)"
    path.write_text(text)
    (tmp_path / "use.mjs").write_text(code)
    subprocess.run([node, "use.mjs"], check=True, cwd=tmp_path, timeout=60)
    own = (ROOT / "course" / "widgets" / id / "widget.js").stat().st_size
    assert own <= 10_000, f"{id}/widget.js has {own} bytes"
