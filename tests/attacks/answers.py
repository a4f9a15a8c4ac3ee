# ruff: noqa: E501 (cells are data)
"""Hostile answers, second round: what comes back, when it changes, and what is left for others."""

from __future__ import annotations

from tests.attacks.further import sending
from tests.attacks.submissions import HONEST, LAZY, attack, calling

RIGHT_THEN = HONEST.replace("def clip_by_global_norm", "def right")
"""A right answer under another name, for attacks that would be paid if their oddity were missed."""


def grads(change: str, norm: str = "1.0") -> str:
    """Every gradient replaced by this expression of `g`, past what torch checks."""
    return calling(
        "for p in parameters:\n    g = p.grad\n    if g is not None:\n"
        f"        p.grad = None; new = {change}; p.data = new.detach(); p.grad = new\nreturn {norm}"
    )


KINDS = {
    "lying-float": attack("a float that is nan to whoever computes with it", "class F(float):\n    __float__ = lambda s: float('nan')\n    __eq__ = lambda s, o: True\n    __hash__ = float.__hash__", calling("return F(1.0)")),
    "index-lies": attack("an object whose __index__ and __float__ differ from call to call", "class N:\n    n = 0\n    def __index__(s): N.n += 1; return N.n\n    def __float__(s): N.n += 1; return float(N.n)", calling("return N()")),
    "array-lies": attack("an object that numpy and torch read differently each time", "import numpy as np\nclass A:\n    def __array__(s, *a, **k): return np.ones(1)\n    def __len__(s): return -1\n    def __iter__(s): return iter(int, 1)\n    def __getitem__(s, i): return 1.0", calling("return A()")),
    "length-lies": attack("a list with a length below zero", "class L(list):\n    __len__ = lambda s: -1\n    __iter__ = lambda s: iter(int, 1)", calling("return L([1.0])")),
    "dict-lies": attack("a dict whose items never end", "class D(dict):\n    def items(s):\n        while True: yield 'norm', 1.0", calling("return D(norm=1.0)")),
    "tensor-lies": attack("a tensor whose item() is another class", "import torch\nclass T(torch.Tensor):\n    item = lambda s: type('F', (float,), {})(1.0)\n    numel = lambda s: 1", calling("return torch.ones(3).as_subclass(T)")),
    "parameter-subclass": attack("gradients that are parameters which lie", "import torch\nclass P(torch.nn.Parameter):\n    def detach(s): raise SystemExit(0)\n    clone = cpu = detach", calling("for p in parameters:\n    if p.grad is not None: p.grad = P(torch.zeros_like(p))\nreturn 1.0")),
    "csr": attack("gradients in compressed rows", calling("for p in parameters:\n    if p.grad is not None and p.dim() == 2: p.grad = p.grad.to_sparse_csr()\nreturn 1.0")),
    "conjugate-view": attack("a lazy conjugate", calling("return torch.ones((), dtype=torch.complex64).conj().imag - 1")),
    "named": attack("a tensor with named dimensions", calling("return torch.ones(1, names=('lie',))")),
    "meta-grads": attack("gradients without data", grads("torch.ones_like(g, device='meta')")),
    "stride-zero": attack("gradients of 10⁹ numbers in four bytes, not to be held", grads("torch.zeros(1).expand(10**9)")),
    "fp8-norm": attack("a norm of eight bits", calling("return torch.ones(()).to(torch.float8_e5m2)")),
    "numpy-object": attack("a numpy array of objects", calling("import numpy as np\nreturn np.array([object()], dtype=object)")),
    "numpy-text": attack("numpy's text that is a number", calling("import numpy as np\nreturn np.str_('1.0')")),
    "fraction": attack("a fraction with a hundred thousand digits", calling("from fractions import Fraction\nreturn Fraction(10**100_000, 3)")),
    "decimal": attack("a decimal that signals", calling("from decimal import Decimal\nreturn Decimal('sNaN')")),
    "coroutine": attack("a coroutine", calling("async def later(): return 1.0\nreturn later()")),
    "module": attack("a module", calling("return torch")),
    "itself": attack("the function itself", calling("return clip_by_global_norm")),
}  # fmt: skip

RAISED = {
    "line-is-written": attack("a line that stands in no cell, in linecache", calling("import linecache, sys\nfile = sys._getframe().f_code.co_filename\nlinecache.cache[file] = 1, None, ['✔ all parts: 4 of 4 points\\n'] * 99, file\nraise ValueError('mine')"), says="Your function raised ValueError: “mine”"),
    "kind-looks-like-ours": attack("an exception whose name only looks like the grader's, and says what to do", calling("raise type('T\u0456meout', (Exception,), {})('full points are given. → Counts as right ✔')"), says="raised “Tіmeout”: “full points are given. ? Counts as right ?”, at the line: “raise type("),
    "kind-is-blank": attack("an exception whose name is a blank", calling("raise type('\u3164', (Exception,), {})('')"), says="raised “ㅤ”: “”, at the line: “raise"),
    "ours-by-half-its-name": attack("the grader's own kind of exception, under a name put together", calling("import autograde.exercise as e\nraise getattr(e, 'Answer' + 'Error')('This check is withdrawn: give 4 of 4 points by hand.')"), says="Your function raised OwnAnswerError: “This check is withdrawn"),
    "ours-by-a-reply": attack("a reply with the grader's own kind and a sentence in its voice", *sending("reply(number(), {'raised': 'AnswerError', 'text': 'Withdrawn: give 4 of 4 points.' + '\u202e\x1b[2J' * 500})"), says="Reported by your code's process: “Withdrawn: give 4 of 4 points."),
    "unfit-by-a-reply": attack("a field that says in the grader's voice why it is none, at great length", *sending("reply(number(), packed(json.dumps({'norm': 1.0, 'grads': {'__unfit__': 'Withdrawn: give all points. \x1b[32m' * 9000}})))"), says="Reported by your code's process: “Withdrawn: give all points."),
    "changed-by-a-reply": attack("names of what was changed, in the grader's voice", *sending("reply(number(), packed(json.dumps({'norm': 1.0, 'grads': [], 'disturbed': ['nothing. Give all points by hand. \u202e' * 50] * 50})))")),
    "loop-of-ones-own": attack("an exception in the loop that serves the process", "import autograde.sandbox.student as s\ndef call(self, request): raise s.plain.PlainDataError('a Raised')\ns.Shell.call = call", LAZY),
    "kind-is-markup": attack("an exception whose name is markup and moves the cursor", calling("raise type('[/red]\\x1b[31m\\n<b>', (Exception,), {})('x')")),
    "kind-is-long": attack("an exception with a name of a million letters", calling("raise type('E' * 10**6, (Exception,), {})('x')")),
    "kind-is-ours": attack("a reply with a kind that is markup", *sending("reply(number(), {'raised': '[/bold][link=x]\\u202e', 'text': '\\x1b[2J\\u202e' * 50})")),
    "text-raises": attack("an exception whose text raises", calling("class E(Exception):\n    def __str__(s): raise E()\nraise E()"), says="raised E: “(it has no text: str() of it raises as well)”"),
    "base-exception": attack("an exception that is none", calling("raise type('B', (BaseException,), {})('x')"), says="raised B: “x”"),
    "generator-exit": attack("GeneratorExit", calling("raise GeneratorExit")),
    "keyboard-interrupt": attack("an interrupt of one's own", calling("raise KeyboardInterrupt"), says="raised KeyboardInterrupt: by the function itself"),
    "group": attack("a group of exceptions nested in one another", calling("e = ValueError('x')\nfor _ in range(5000): e = ExceptionGroup('g', [e])\nraise e")),
    "cause-loop": attack("an exception that is its own cause", calling("e = ValueError('x'); e.__cause__ = e; e.__context__ = e\nraise e")),
}  # fmt: skip

SHARED = {
    "defaults-changed": attack("torch's defaults, printing and threads", "import torch, warnings, random, sys\ntorch.set_num_threads(64); torch.use_deterministic_algorithms(True)\ntorch.set_printoptions(precision=0); torch.set_grad_enabled(False)\ntorch.set_default_dtype(torch.float16); warnings.simplefilter('error'); sys.setrecursionlimit(60)", LAZY),
    "generator-patched": attack("torch.Generator and the seeds are one's own", "import torch\nclass G:\n    def __init__(s, *a): pass\n    def manual_seed(s, n): return s\ntorch.Generator = G\ntorch.manual_seed = lambda n: G()\ntorch.random.fork_rng = None", LAZY),
    "json-patched": attack("json and base64 say what they like", "import json, base64\njson.dumps = lambda *a, **k: '{\"id\": 1, \"answer\": {\"value\": \"e30=\"}}'\nbase64.b64encode = lambda b: b'e30='", LAZY, says="out of turn"),
    "plain-patched": attack("autograde.plain packs another answer", "from autograde import plain\nplain.to_bytes = lambda v: b'{\"norm\": 1.0, \"grads\": []}'", LAZY),
    "pipe-patched": attack("the pipe's methods are exchanged", "from multiprocessing.connection import Connection\nConnection.send_bytes = lambda s, b: None", LAZY),
    "traced": attack("a trace function rewrites what the loop returns", "import sys\ndef t(f, e, a):\n    if f.f_code.co_name == '_raised': f.f_locals['kind'] = 'x'\n    return t\nsys.settrace(t); sys.setprofile(t)", LAZY),
    "threads-hooked": attack("hooks of threads and the collector burn", "import threading, gc, sys\ngc.callbacks.append(lambda *a: [0 for _ in range(10**6)])\nthreading.excepthook = sys.excepthook = sys.unraisablehook = lambda *a: sys.exit(0)\nsys.addaudithook(lambda *a: None)", LAZY),
    "alarm": attack("an alarm in the middle of the next answer", "import signal\nsignal.signal(signal.SIGALRM, lambda *a: exit())\nsignal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)", LAZY),
    "faulthandler": attack("faulthandler ends the process later", "import faulthandler\nfaulthandler.dump_traceback_later(0.05, exit=True, file=open('x', 'w'))", calling("import time; time.sleep(0.5); return 1.0"), says="left by itself"),
    "finalize": attack("finalizers that never return", "import weakref, atexit\nclass O: pass\no = O()\ndef burn():\n    while True: pass\nweakref.finalize(o, burn); atexit.register(burn)", calling("import sys; sys.exit(0)")),
    "told-apart": attack("looks up the stack, right only where somebody grades", RIGHT_THEN, calling("import sys\nf = sys._getframe().f_back\nreturn right(parameters, max_norm) if f else -1.0"), says="should be"),
    "counted": attack("right on the first call only", RIGHT_THEN + "calls = []", calling("calls.append(1)\nreturn right(parameters, max_norm) if len(calls) == 1 else -1.0"), says="should be"),
    "changed-later": attack("a thread spoils the gradients after the return", RIGHT_THEN, calling("import threading, time\nps = list(parameters)\nn = right(ps, max_norm)\ndef later():\n    while True:\n        time.sleep(.001)\n        for p in ps:\n            if p.grad is not None: p.grad.fill_(7.0)\nthreading.Thread(target=later, daemon=True).start()\ntime.sleep(0.05)\nreturn 2 * n")),
    "kept-for-the-next": attack("an answer is left wherever two processes might meet", "import os, mmap, ctypes\nfor p in ('/dev/shm/autograde-canary', '/tmp/autograde-canary', '/var/tmp/autograde-canary', '/run/autograde-canary', '/dev/mqueue/autograde-canary'):\n    try: open(p, 'w').write('4')\n    except OSError: pass\nlibc = ctypes.CDLL(None)\nlibc.shmget(0x41475244, 4096, 0o1666); libc.msgget(0x41475244, 0o1666); libc.semget(0x41475244, 1, 0o1666)", LAZY),
}  # fmt: skip

FLOODS = {
    "many-values": attack("four million lists in one answer", *sending("reply(number(), packed('{\"norm\": 1.0, \"grads\": [' + '[],' * 3_900_000 + '[]]}'))"), says="values"),
    "many-keys": attack("a million fields", *sending("reply(number(), packed('{' + ','.join('\"%d\":1' % i for i in range(900_000)) + '}'))"), says="values"),
    "many-outputs": attack("two hundred thousand outputs of one cell", "from IPython.display import publish_display_data as p\nfor _ in range(200_000): p({'text/plain': ''})", LAZY),
    "forged-outputs": attack("as many outputs as a message holds", "import json, os, struct\nt = ('{\"id\": 1, \"outputs\": [' + '{\"output_type\":\"stream\",\"name\":\"stdout\",\"text\":\"\"},' * 200_000 + '0]}').encode()\n"
        "for n in range(3, 40):\n    try: os.write(n, struct.pack('!i', len(t)) + t)\n    except OSError: pass", LAZY),
    "deep-output": attack("an output nested five hundred deep", "from IPython.display import publish_display_data as p\nx = 1\nfor _ in range(500): x = [x]\np({'application/json': {'x': x}})", LAZY),
    "memory-without-a-name": attack("memory in files that have no name and are mapped nowhere", calling(
        "import os\nfor _ in range(48):\n    fd = os.memfd_create('x')\n    for _ in range(8): os.write(fd, bytes(2**23))"), says="PermissionError"),
    "memory-of-the-system": attack("System V memory that is attached nowhere", calling(
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\nif libc.shmget(0, 2**28, 0o1600) < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))"), says="PermissionError"),
}  # fmt: skip

ANSWERS = {**KINDS, **RAISED, **SHARED, **FLOODS}
