"""Computing without the compiler changes no number and leaves no trace in torch."""

import subprocess
import sys

import pytest


def run(code: str) -> None:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


STEP = (
    "import sys, torch\n"
    "from course.worked.startup import without_compiler\n"
    "def step():\n"
    "    w = torch.ones(2, requires_grad=True)\n"
    "    optimizer = torch.optim.SGD([w], lr=0.1)\n"
    "    w.square().sum().backward()\n"
    "    optimizer.step()\n"
    "    optimizer.zero_grad()\n"
    "    return w.tolist()\n"
)


@pytest.mark.slow
def test_an_optimizer_steps_without_importing_sympy_and_as_it_does_with_it():
    run(
        STEP + "with without_compiler():\n"
        "    light = step()\n"
        "assert 'sympy' not in sys.modules, 'the compiler was imported'\n"
        "assert 'torch._dynamo' not in sys.modules and '_dynamo' not in vars(torch)\n"
        "assert light == step() and 'sympy' in sys.modules\n"
        "assert hasattr(torch._dynamo, 'optimize')"
    )


@pytest.mark.slow
def test_the_methods_get_their_mark_back_when_the_compiler_comes_later():
    run(
        STEP + "with without_compiler():\n"
        "    step()\n"
        "plain = torch.optim.Optimizer.zero_grad.__wrapped__\n"
        "assert not hasattr(plain, '__dynamo_disable')\n"
        "step()\n"
        "assert plain.__dynamo_disable is not plain"
    )


@pytest.mark.slow
def test_whoever_needs_the_compiler_meanwhile_gets_the_real_one():
    run(
        STEP + "with without_compiler():\n"
        "    import torch._dynamo\n"
        "    torch._dynamo.reset()\n"
        "    assert sys.modules['torch._dynamo'].__file__\n"
        "assert sys.modules['torch._dynamo'].__file__ and torch._dynamo.optimize"
    )


@pytest.mark.slow
def test_a_module_inside_of_the_compiler_brings_it_too():
    run(
        STEP + "from course.worked.startup import put_off_compiler\n"
        "put_off_compiler()\n"
        "before = step()\n"
        "import torch._dynamo.config\n"
        "assert not hasattr(torch.optim.Optimizer.zero_grad.__wrapped__, '__dynamo_disable')\n"
        "assert torch._dynamo.config.cache_size_limit and torch._dynamo.__file__\n"
        "assert step() == before and put_off_compiler() is None"
    )


def test_an_exception_inside_leaves_no_stand_in_behind():
    run(
        STEP + "try:\n"
        "    with without_compiler():\n"
        "        raise KeyError\n"
        "except KeyError:\n"
        "    pass\n"
        "assert 'torch._dynamo' not in sys.modules and '_dynamo' not in vars(torch)"
    )


def test_the_command_never_imports_the_compiler():
    run(
        "import sys\n"
        "from course.worked import compute_all\n"
        "list(compute_all())\n"
        "heavy = {'sympy', 'torchvision', 'matplotlib', 'IPython'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
