# ruff: noqa: E501 (cells are data)
"""Locked away, honest work still earns what it is worth; and dying costs only what came after."""

import numpy as np
import pytest

from autograde.referee import judge
from autograde.sandbox.session import StudentSession
from autograde.words import message
from tests.attacks.submissions import HONEST, calling
from tests.attacks.test_attacks import CLIP, LIMITS, graded

CELLS = {
    "plain": (HONEST,),
    "with-warnings": (HONEST + "\nimport warnings\nwarnings.warn('careful')\nprint('0')",),
    "with-a-figure": ("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()", HONEST),
    "with-loader-workers": (
        "import torch\nfrom torch.utils.data import DataLoader, TensorDataset\n"
        "loader = DataLoader(TensorDataset(torch.arange(8)), batch_size=4, num_workers=2)\n"
        "assert sum(b[0].sum().item() for b in loader) == 28",
        HONEST,
    ),
    "with-temporary-files": (
        "import tempfile, torch, os\nwith tempfile.TemporaryDirectory() as d:\n"
        "    torch.save(torch.ones(3), d + '/x.pt')\n    assert torch.load(d + '/x.pt').sum() == 3\n"
        "open('notes.txt', 'w').write('x')\nassert os.path.exists('notes.txt')",
        HONEST,
    ),
    "with-two-threads": (
        "import torch\ntorch.set_num_threads(2)\na = torch.ones(600, 600)\n"
        "assert (a @ a)[0, 0] == 600\nassert torch.ones(10**6).sum() == 10**6\n"
        "import os\nassert len(os.listdir('/proc/self/task')) == 1  # two would wait for one core",
        HONEST,
    ),
    "with-commands": (
        "!echo hello\nnames = !ls\nassert names == []",
        "%pip install no-such-package",
        HONEST,
    ),
    "with-a-file-of-ones-own": (
        "%%writefile helper.py\n" + HONEST,
        "from helper import clip_by_global_norm",
    ),
    "with-short-classes-and-libraries": (
        "import torch, torchmetrics, torch.distributed.fsdp\nfrom torch import Tensor, nn\n"
        "class Mine(nn.Module):\n    'Doubles.'\n"
        "    def forward(self, input: Tensor) -> Tensor: return 2 * input\n"
        "class Twice(torch.autograd.Function):\n    @staticmethod\n"
        "    def forward(ctx, x): return 2 * x\n    @staticmethod\n"
        "    def backward(ctx, g): return 2 * g",
        HONEST,
    ),
    "with-a-subprocess": (
        "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', 'print(6 * 7)'], "
        "capture_output=True, text=True, check=True).stdout)",
        HONEST,
    ),
    "with-the-engine": (
        "import torch\nfrom course.engine import Trainer, evaluate, clip_by_global_norm as theirs\n"
        "m = torch.nn.Linear(2, 2)\nloader = [(torch.ones(4, 2), torch.zeros(4).long())]\n"
        "o = torch.optim.SGD(m.parameters(), lr=0.1)\nc = torch.nn.CrossEntropyLoss()\n"
        "Trainer(m, c, o, max_norm=1.0).fit(loader, loader, epochs=1)\nevaluate(m, loader, c)\n"
        "theirs(m.parameters(), 1.0)",
        HONEST,
    ),
    "with-a-class": (
        calling("return Clipper(max_norm)(parameters)"),
        HONEST.replace("def clip_by_global_norm", "def helper")
        + "\nclass Clipper:\n    def __init__(self, ceiling): self.ceiling = ceiling\n"
        "    def __call__(self, parameters): return helper(parameters, self.ceiling)",
    ),
}


@pytest.mark.parametrize("name", CELLS)
def test_an_honest_answer_keeps_its_points_and_its_cells_run(name):
    verdict, outputs = graded(CELLS[name])
    errors = [o for cell in outputs for o in cell if o["output_type"] == "error"]
    assert errors == [] and verdict.points == 4


def test_a_right_submission_that_dies_keeps_what_it_had_answered():
    with StudentSession(limits=LIMITS) as session:
        session.run(HONEST)

        def ask(case):
            return session.ask(CLIP.id, CLIP.name, case)

        before = judge(CLIP, ask, seed=1)
        session.run("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\nos._exit(1)")
        after = judge(CLIP, ask, seed=1)
    assert (before.points, after.points) == (3, 0)


def test_what_a_submission_brings_along_is_there_and_bounded(tmp_path):
    (tmp_path / "data.csv").write_text("1,2")
    with (tmp_path / "big.bin").open("wb") as big:
        big.truncate(LIMITS.file_bytes + 1)
    (tmp_path / "link").symlink_to("/etc/passwd")
    (tmp_path / "folder").symlink_to("/etc")
    with StudentSession(tmp_path, LIMITS) as session:
        (output,) = session.run("import os; print(sorted(n for n in os.listdir() if n[0] != '.'))")
    assert output["text"] == "['data.csv']\n"


def test_a_file_beside_the_notebook_is_imported_and_stands_for_no_package(tmp_path):
    (tmp_path / "helper.py").write_text(HONEST)
    (tmp_path / "numpy.py").write_text("__version__ = 'mine'")
    cells = ["from helper import clip_by_global_norm", "import numpy; print(numpy.__version__)"]
    verdict, (_, (shown,)) = graded(cells, tmp_path)
    assert verdict.points == 4 and shown["text"].strip() == np.__version__
    (tmp_path / "helper.py").write_text(calling("raise ValueError('mine')"))
    verdict, _ = graded(cells[:1], tmp_path)
    said = " ".join(message(verdict, CLIP).split())
    assert "raised ValueError: “mine”, at the line: “raise ValueError('mine')”" in said
