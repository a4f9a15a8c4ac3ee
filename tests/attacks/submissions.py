# ruff: noqa: E501 (cells are data)
"""Hostile and cheating submissions, as small data: a name, what is tried, the cells.

Each has to answer 03a.clip with `clip_by_global_norm` and knows no right answer: whatever it earns
it has not earned honestly. In a cell, @CLASS@ stands for the class directory, @PORT@ for a listener
on this machine, @SOCKET@ for one with a name of its own, @PID@ for the grader's process.
"""

from __future__ import annotations

from dataclasses import dataclass, field

LAZY = "def clip_by_global_norm(parameters, max_norm):\n    return -1.0\n"
"""Wrong on every case; the cells around it try to make it count."""
HONEST = """
import torch
def clip_by_global_norm(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    norm = torch.stack([g.norm() for g in grads]).norm()
    for g in grads:
        g.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0))
    return norm
"""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One submission."""

    tries: str
    cells: tuple[str, ...]
    says: str = ""
    """Words that the verdict must hold: the clear reason."""
    files: dict[str, str] = field(default_factory=dict)
    """Further files of the submission."""


def attack(tries: str, *cells: str, says: str = "", **files: str) -> Attack:
    """Shorthand; a file is given as `torch_py="text"`."""
    named = {name.replace("_py", ".py"): text for name, text in files.items()}
    return Attack(tries=tries, cells=cells, says=says, files=named)


def calling(body: str) -> str:
    """A cell whose answer is made by these lines."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    return f"import torch\ndef clip_by_global_norm(parameters, max_norm):\n{lines}"


REFUSED = "asks you to write"
REFERENCE = "from course.engine import clip_by_global_norm as theirs\n"

CHECKS = {
    "patched-allclose": attack(
        "torch's and numpy's comparisons always agree",
        "import torch, numpy as np\nfor m in (torch, torch.testing, np, np.testing):\n"
        "    for n in ('allclose','isclose','equal','eq','assert_close','assert_allclose'):\n"
        "        if hasattr(m, n): setattr(m, n, lambda *a, **k: True)",
        LAZY,
        says="should be",
    ),
    "patched-tensor-methods": attack(
        "tensors compare equal and differ nowhere",
        "import torch\ntorch.Tensor.any = lambda self, *a: False\n"
        "torch.Tensor.__eq__ = lambda a, b: True\ntorch.Tensor.__ne__ = lambda a, b: False",
        LAZY,
    ),
    "patched-builtins": attack(
        "all, any, isinstance and abs lie",
        LAZY,
        "import builtins\nbuiltins.all = lambda x: True\nbuiltins.abs = lambda x: 0",
        says="should be",
    ),
    "equals-everything": attack(
        "an object that equals and converts to everything",
        "class Yes(float):\n    __eq__ = lambda s, o: True\n    __ne__ = lambda s, o: False\n"
        "    __hash__ = float.__hash__\n    __sub__ = __rsub__ = lambda s, o: 0.0\n"
        "    __abs__ = lambda s: 0.0\n    __float__ = lambda s: s",
        calling("return Yes(1.0)"),
    ),
    "torch-function": attack(
        "a tensor subclass answers every operation",
        "import torch\nclass Yes(torch.Tensor):\n    @classmethod\n"
        "    def __torch_function__(cls, f, t, a=(), k=None): return True",
        calling("return torch.ones(()).as_subclass(Yes)"),
    ),
    "subclass-grads": attack(
        "gradients become subclasses that lie",
        "import torch\nclass Liar(torch.Tensor): pass",
        calling(
            "for p in parameters:\n    p.grad = torch.zeros_like(p).as_subclass(Liar)\nreturn 1.0"
        ),
    ),
    "check-replaced": attack(
        "check is redefined and in sys.modules",
        "import sys, types\nclass R:\n    points, passed = 1, True\n    def __repr__(s): return '1'\n"
        "check = lambda *a, **k: R()\nimport autograde\nautograde.check = check\n"
        "m = types.ModuleType('autograde.check'); m.check = check\nsys.modules['autograde.check'] = m",
        LAZY,
    ),
    "referee-patched": attack(
        "judge and comparison are replaced",
        "import autograde.referee as r, autograde.compare as c\n"
        "c.first_difference = r.first_difference = lambda *a, **k: None\n"
        "r._judge_part = lambda e, p, *a: r.PartResult(p, True)",
        LAZY,
        says="should be",
    ),
    "import-hook": attack(
        "an import hook hands out a forged autograde",
        "import sys, importlib.abc, importlib.util\nclass H(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None): return None\n"
        "sys.meta_path.insert(0, H())\n"
        "for n in [n for n in sys.modules if n.startswith('autograde')]: del sys.modules[n]",
        LAZY,
    ),
    "input-transformer": attack(
        "IPython rewrites check cells into a number",
        "ip = get_ipython()\nip.input_transformers_post.append(\n"
        "    lambda ls: ['1\\n'] if any('check(' in l for l in ls) else ls)",
        LAZY,
    ),
    "ast-transformer": attack(
        "an AST transformer replaces calls of check",
        "import ast\nclass T(ast.NodeTransformer):\n    def visit_Call(self, n):\n"
        "        return ast.Constant(1) if getattr(n.func, 'id', '') == 'check' else n\n"
        "get_ipython().ast_transformers.append(T())",
        LAZY,
    ),
    "run-cell-patched": attack(
        "the shell's run_cell answers by itself",
        "ip = get_ipython()\ntype(ip).run_cell = lambda self, *a, **k: 1",
        LAZY,
    ),
    "events": attack(
        "an event handler prints points after each cell",
        "get_ipython().events.register('post_run_cell', lambda *a: display(1))",
        LAZY,
    ),
    "displayhook": attack(
        "the display hook turns every result into 1",
        "import sys\nip = get_ipython()\n"
        "ip.display_formatter.formatters['text/plain'].for_type(object, lambda o, p, c: p.text('1'))\n"
        "sys.displayhook = lambda v: print(1)",
        LAZY,
    ),
    "later-cell": attack(
        "a later cell redefines the answer for the checker only",
        LAZY,
        "clip_by_global_norm = type('F', (), {'__call__': lambda s, *a: -1, 'points': 4})()",
    ),
    "magics": attack(
        "a magic of one's own, and shell escapes",
        "%alias_magic check time\n!echo 1 > points.txt\n%env POINTS=1",
        LAZY,
    ),
}

ANSWERS_SOUGHT = {
    "frames": attack(
        "frames up the stack are searched for the expected answer",
        calling(
            "import sys\nf = sys._getframe()\nwhile f:\n    for n, v in f.f_locals.items():\n"
            "        if 'expected' in n or n in ('right', 'reference', 'oracle'): return v\n"
            "    f = f.f_back\nreturn -1.0"
        ),
    ),
    "gc": attack(
        "the collector's objects are searched for the reference",
        calling(
            "import gc, types\nfor o in gc.get_objects():\n"
            "    if isinstance(o, types.FunctionType) and 'clip' in o.__name__ and (\n"
            "            o.__module__.startswith(('course', 'autograde'))):\n"
            "        try: return o(parameters, max_norm)\n        except Exception: pass\nreturn -1.0"
        ),
    ),
    "reference-imported": attack(
        "the course's function is called", REFERENCE, calling("return theirs(parameters, max_norm)"),
        says=REFUSED,
    ),
    "reference-is-the-answer": attack(
        "the course's function is the answer",
        "from course.engine import clip_by_global_norm",
        says=REFUSED,
    ),
    "reference-code-copied": attack(
        "a copy of its code made in an earlier cell",
        REFERENCE + "import types\nf = theirs.__wrapped__\n"
        "mine = types.FunctionType(f.__code__, dict(f.__globals__))\nmine.__kwdefaults__ = {'eps': 1e-6}",
        calling("return mine(parameters, max_norm)"),
        says=REFUSED,
    ),
    "helpers-code-copied": attack(
        "its helpers' code is copied instead",
        "import types\nfrom course.engine import clipping\ng = dict(vars(clipping))\nfor n, f in list(g.items()):\n"
        "    f = getattr(f, '__wrapped__', f)\n"
        "    if isinstance(f, types.FunctionType): g[n] = types.FunctionType(f.__code__, g, n)",
        calling("gs = g['_grads'](parameters)\nn = g['_joint_norm'](gs)\n"
                "g['_scale_'](gs, n, max_norm)\nreturn n"),
        says=REFUSED,
    ),
    "code-put-back": attack(
        "the function's own code is kept and put back inside the call",
        REFERENCE + "kept = theirs.__wrapped__.__code__",
        calling("theirs.__wrapped__.__code__ = kept\nreturn theirs(parameters, max_norm)"),
        says=REFUSED,
    ),
    "reload": attack(
        "the module is loaded anew",
        "import importlib, course.engine.clipping as c",
        calling("importlib.reload(c)\nreturn c.clip_by_global_norm(parameters, max_norm)"),
    ),
    "fresh-import": attack(
        "the module is forgotten and imported again, in an earlier cell",
        "import sys\ndel sys.modules['course.engine.clipping']\nimport course.engine.clipping as c",
        calling("return c.clip_by_global_norm(parameters, max_norm)"),
    ),
    "source-read": attack(
        "the reference's text is read and executed",
        "import course.engine.clipping as c\ns = {}\nexec(open(c.__file__).read(), s)",
        calling("return s['clip_by_global_norm'](parameters, max_norm)"),
    ),
    "inspect": attack(
        "inspect and linecache give the text",
        "import inspect, course.engine.clipping as c\ns = {}\nexec(inspect.getsource(c), s)",
        calling("return s['clip_by_global_norm'](parameters, max_norm)"),
    ),
    "bank-right": attack(
        "the bank's right answers are called",
        "from autograde import bank\ne = bank.load('03a.clip')",
        calling("from autograde.bank import clip\n"
                "f = e.right[0] if e.right else clip.joined_vector\nreturn f(parameters, max_norm)"),
        says="has no attribute 'joined_vector'",
    ),
    "bank-source": attack(
        "the bank's files are read",
        "import glob, os, autograde.bank as b\nfound = glob.glob(os.path.dirname(b.__file__) + '/*.py')\n"
        "s = {}\nexec(open([f for f in found if 'clip' in f][0]).read(), s)",
        calling("return s['joined_vector'](parameters, max_norm)"),
    ),
    "by-hand-patched": attack(
        "the refusal itself is taken away",
        REFERENCE + "import contextlib, autograde.referee as r, autograde.by_hand as b\n"
        "r.written_by_hand = b.written_by_hand = lambda e: contextlib.nullcontext()\n"
        "b.refusing = lambda e: []\nb._refusing.clear()",
        calling("return theirs(parameters, max_norm)"),
        says=REFUSED,
    ),
    "torchs-own": attack(
        "torch's function does the work",
        calling("return torch.nn.utils.clip_grad_norm_(parameters, max_norm)"),
        says=REFUSED,
    ),
    "torchs-own-copied": attack(
        "a copy of torch's code does",
        "import torch, types\nf = torch.nn.utils.clip_grad_norm_.__wrapped__\n"
        "mine = types.FunctionType(f.__code__, f.__globals__)",
        calling("return mine(parameters, max_norm, 2.0, False, None)"),
        says=REFUSED,
    ),
    "trainer": attack(
        "an engine's step clips on the way",
        "from course.engine import trainer, clipping",
        calling("ps = list(parameters)\nn = clipping.grad_norm(ps)\n"
                "clipping.clip_(ps, n, max_norm)\nreturn n"),
        says=REFUSED,
    ),
    "source-notebook": attack(
        "the solution is read from the class directory",
        "import json, glob\np = glob.glob('@CLASS@/source/*/*.ipynb')[0]\ns = {'torch': __import__('torch')}\n"
        "exec([''.join(c['source']) for c in json.load(open(p))['cells'] "
        "if 'def clip_by' in ''.join(c['source'])][0], s)",
        calling("return s['clip_by_global_norm'](parameters, max_norm)"),
    ),
    "other-submission": attack(
        "another student's answer is read",
        "import glob\nprint(open(glob.glob('@CLASS@/submitted/*/*/*.ipynb')[0]).read())", LAZY
    ),
    "environment": attack(
        "secrets are looked for in environments",
        "import os\nfor p in ('self', '1', '@PID@'):\n    try: print(open(f'/proc/{p}/environ').read())\n"
        "    except OSError as e: print(e)\nassert 'AUTOGRADE_CANARY' not in os.environ",
        LAZY,
    ),
}  # fmt: skip

HARM = {
    "gradebook": attack(
        "the gradebook is written",
        "import sqlite3\nc = sqlite3.connect('@CLASS@/gradebook.db')\n"
        "c.execute('update grade set auto_score = 300'); c.commit()",
        LAZY,
    ),
    "nbgrader-api": attack(
        "nbgrader's own API is asked for points",
        "from nbgrader.api import Gradebook\nwith Gradebook('sqlite:///@CLASS@/gradebook.db') as g:\n"
        "    for s in g.students:\n        g.remove_student(s.id)",
        LAZY,
    ),
    "submissions-deleted": attack(
        "all submissions are deleted",
        "import shutil\nshutil.rmtree('@CLASS@/submitted', ignore_errors=True)", LAZY
    ),
    "config-rewritten": attack(
        "nbgrader_config.py is rewritten, to run next time",
        "open('@CLASS@/nbgrader_config.py', 'a').write('import os')", LAZY
    ),
    "package-infected": attack(
        "our own package is changed for the next submission",
        "import autograde.plain as p, course as c, sys\n"
        "for f in (p.__file__, c.__file__, sys.prefix + '/lib/sitecustomize.py'):\n"
        "    try: open(f, 'a').write('#')\n    except OSError as e: print(e)",
        LAZY,
    ),
    "traversal": attack(
        "a path that climbs out of the folder",
        "print(open('../../../../../../../../../..' + '@CLASS@/gradebook.db', 'rb').read()[:9])", LAZY
    ),
    "startup-file": attack(
        "an IPython start-up file for the next one",
        "import os\np = os.path.expanduser('~/.ipython/profile_default/startup')\n"
        "os.makedirs(p, exist_ok=True)\nopen(p + '/00.py', 'w').write('clip_by_global_norm = 1')",
        LAZY,
    ),
    "shared-memory": attack(
        "a file is left in shared memory and /tmp",
        "for p in ('/dev/shm/autograde-canary', '/tmp/autograde-canary'): open(p, 'w').write('x')",
        LAZY,
    ),
    "torch-py": attack(
        "a torch.py lies beside the notebook",
        "import sys\nsys.path.insert(0, '.')\nimport torch", LAZY,
        torch_py="class T:\n    pass\ndef allclose(*a): return True\n",
    ),
    "loopback": attack(
        "a listener on this machine is reached",
        "import socket\nsocket.create_connection(('127.0.0.1', @PORT@), 2).send(b'x')", LAZY
    ),
    "outside": attack(
        "the network is reached, by TCP, UDP and raw",
        "import socket\nfor kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):\n"
        "    try: socket.socket(socket.AF_INET, kind).connect(('127.0.0.1', @PORT@)); print('out')\n"
        "    except OSError as e: print(e)",
        LAZY,
    ),
    "abstract-socket": attack(
        "a local socket outside is reached",
        "import socket\ns = socket.socket(socket.AF_UNIX)\ns.connect('\\0@SOCKET@')\ns.send(b'x')", LAZY
    ),
    "grader-killed": attack(
        "the grader and everybody else is killed",
        "import os, signal\nfor p in (@PID@, os.getppid(), -1):\n"
        "    try: os.kill(p, signal.SIGKILL)\n    except OSError as e: print(e)",
        LAZY,
    ),
    "processes-read": attack(
        "other processes are listed and read",
        "import os\nseen = [p for p in os.listdir('/proc') if p.isdigit() and int(p) != os.getpid()]\n"
        "assert not seen, seen",
        LAZY,
    ),
    "ptrace": attack(
        "memory of another process is read",
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.ptrace(16, @PID@, 0, 0), libc.process_vm_readv(@PID@, 0, 0, 0, 0, 0))",
        LAZY,
    ),
    "namespaces": attack(
        "new namespaces and mounts",
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "assert libc.unshare(0x10000000) and libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)",
        LAZY,
    ),
    "outlives": attack(
        "a background process writes to the gradebook afterwards",
        "import os, time\nfor _ in range(5):\n    if os.fork() == 0:\n        os.setsid()\n"
        "        if os.fork() == 0:\n            time.sleep(600)\n            os._exit(0)\n"
        "        os._exit(0)",
        LAZY,
    ),
    "fork-bomb": attack(
        "processes without end",
        "import os\ntry:\n    while True:\n        if os.fork() == 0:\n            import time; time.sleep(600)\n"
        "except OSError as e: print(e)",
        LAZY,
    ),
    "thread-bomb": attack(
        "threads without end",
        "import threading, time\ntry:\n    while True: threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
        "except RuntimeError as e: print(e)",
        LAZY,
    ),
    "memory-bomb": attack(
        "memory without end", "kept = []\nwhile True: kept.append(bytearray(2**26))", LAZY
    ),
    "memory-by-many": attack(
        "several processes use the memory of one each",
        "import os, time\nfor _ in range(10):\n    if os.fork() == 0:\n        x = b'x' * (300 * 2**20)\n"
        "        time.sleep(600)\ntime.sleep(11)",
        LAZY,
        says="memory",
    ),
    "disk-bomb": attack(
        "files without end",
        "i = 0\nwhile True:\n    open(f'{i}.bin', 'wb').write(bytes(2**24)); i += 1", LAZY
    ),
    "output-bomb": attack(
        "output without end", "for _ in range(60): print('x' * 10**6)", LAZY
    ),
}  # fmt: skip

STUCK = {
    "endless-loop": attack("a loop without end", calling("while True: pass"), says="no answer within"),
    "endless-cell": attack("a cell without end", "while True: pass", LAZY),
    "ignores-interrupts": attack(
        "a loop that heeds no interrupt",
        "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)",
        calling("import time\ntime.sleep(600)"),
        says="did not react",
    ),
    "recursion": attack("recursion without end", calling("return clip_by_global_norm(0, 0)")),
    "os-exit": attack("the process leaves", calling("import os\nos._exit(0)"), says="left by itself"),
    "sys-exit": attack("SystemExit from the answer", calling("raise SystemExit(0)")),
    "killed-itself": attack("the process kills itself",
        calling("import ctypes\nctypes.string_at(0)"), says="left by itself"),
    "half-a-message": attack(
        "the pipe gets the start of a message, and nothing more",
        calling("import os, struct, time\nfor n in range(3, 40):\n"
                "    try: os.write(n, struct.pack('!i', 1000) + b'x')\n    except OSError: pass\n"
                "time.sleep(600)"),
    ),
    "huge-message": attack(
        "the pipe gets the length of a huge message",
        calling("import os, struct, time\nfor n in range(3, 40):\n"
                "    try: os.write(n, struct.pack('!i', 2**31 - 1))\n    except OSError: pass\n"
                "time.sleep(600)"),
        says="at most",
    ),
    "forged-reply": attack(
        "the pipe gets a reply made up",
        calling("import os, struct, json\nfor n in range(3, 40):\n  for i in range(40):\n"
                "    t = json.dumps({'id': i, 'answer': {'value': 'e30='}}).encode()\n"
                "    try: os.write(n, struct.pack('!i', len(t)) + t)\n    except OSError: pass\n"
                "return 1.0"),
    ),
    "pipe-closed": attack("every descriptor is closed",
        calling("import os\nos.closerange(0, 99)\nreturn 1.0")),
}  # fmt: skip

ODD_ANSWERS = {
    "nan": attack("nan everywhere", calling(
        "for p in parameters:\n    if p.grad is not None: p.grad.fill_(float('nan'))\nreturn float('nan')")),
    "giant-tensor": attack("a gradient of 10¹⁰ numbers", calling(
        "for p in parameters: p.grad = None; p.data = torch.zeros(1).expand(10**10); p.grad = p.data\nreturn 1.0")),
    "giant-number": attack("a number of a million digits", calling("return 10 ** 1_000_000")),
    "wrong-shape": attack("a norm for each parameter", calling("return torch.ones(7)")),
    "sparse": attack("sparse gradients", calling(
        "for p in parameters:\n    if p.grad is not None: p.grad = p.grad.to_sparse()\nreturn 1.0")),
    "complex": attack("a complex norm", calling("return torch.ones((), dtype=torch.complex64)")),
    "meta": attack("a tensor without data", calling("return torch.ones((), device='meta')")),
    "text": attack("text", calling("return '4 points'")),
    "pickle": attack("an object that runs a command when unpickled",
        "class P:\n    def __reduce__(s): return (exec, (\"open('@CLASS@/x','w')\",))",
        calling("return P()")),
    "deep": attack("a list nested a hundred thousand deep", calling(
        "x = []\nfor _ in range(100_000): x = [x]\nreturn x")),
    "raises-ours": attack("an exception of our own type", calling(
        "from autograde.exercise import AnswerError\nraise AnswerError('4 of 4 points')")),
    "forged-output": attack("points are printed and displayed", LAZY,
        "from IPython.display import publish_display_data as p\np({'text/plain': '300'})\n"
        "print('03a.clip: 4 of 4 points')\n300"),
}  # fmt: skip

ATTACKS = {**CHECKS, **ANSWERS_SOUGHT, **HARM, **STUCK, **ODD_ANSWERS}
