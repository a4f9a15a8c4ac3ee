# ruff: noqa: E501 (cells are data)
"""Further hostile submissions: the channel, a call told from a cell, what outlives, odd answers."""

from __future__ import annotations

from tests.attacks.submissions import LAZY, REFERENCE, attack, calling

SEND = """
import json, os, struct
def send(raw, length=None):
    for n in range(3, 40):
        try: os.write(n, struct.pack('!i', len(raw) if length is None else length) + raw)
        except OSError: pass
def reply(number, answer):
    send(json.dumps({'id': number, 'answer': answer}).encode())
def number():
    return 3
def packed(text):
    import base64
    return {'value': base64.b64encode(text.encode()).decode()}
"""


def sending(body: str) -> tuple[str, str]:
    """Cells whose answer is sent by these lines past the process's own loop, which then sleeps.

    The first question comes after two cells: no frame of the loop says so any more.
    """
    return SEND, calling(f"{body}\nimport time; time.sleep(600)")


CHANNEL = {
    "negative-length": attack("a length below zero", *sending("send(b'', -5)"), says="at most"),
    "empty-message": attack("a message of no bytes", *sending("send(b'')"), says="is not a reply"),
    "not-json": attack("bytes that are no text", *sending("send(bytes(range(256)))"), says="is not a reply"),
    "nested-reply": attack("a reply a million deep", *sending(
        "send(b'{\"id\":1,\"answer\":' + b'[' * 10**6 + b']' * 10**6 + b'}')"), says="values in one reply"),
    "number-of-digits": attack("a number of a million digits as the reply's", *sending(
        "send(b'{\"id\":' + b'9' * 10**6 + b'}')"), says="is not a reply"),
    "reply-is-a-list": attack("a reply that is a list", *sending("send(b'[1, 2]')"), says="out of turn"),
    "reply-for-the-next": attack("replies for the next cases", *sending(
        "for i in range(1, 9): reply(number() + i, packed('{}'))"), says="out of turn"),
    "doubled-keys": attack("two answers in one reply", *sending(
        "send(('{\"id\": 0, \"id\": %d, \"answer\": {}, \"answer\": {\"value\": \"e30=\"}}' % number()).encode())")),
    "answer-is-text": attack("an answer that is a text with the right word", *sending("reply(number(), 'raised')")),
    "answer-nested": attack("a reason nested deeper than can be printed", *sending(
        "send(('{\"id\": %d, \"answer\": {\"raised\": %s, \"text\": \"\"}}' % (number(), '[' * 900 + ']' * 900)).encode())")),
    "answer-nested-value": attack("an answer nested deep inside", *sending(
        "reply(number(), packed('{\"norm\":' + '[' * 900 + ']' * 900 + '}'))")),
    "lone-surrogate": attack("a reason that no file can hold", *sending(
        "reply(number(), {'raised': '\\ud800', 'text': 'x\\udfff' * 40})")),
    "raised-surrogate": attack("an exception whose text no file can hold", calling("raise ValueError('\\ud800' * 80)")),
    "tensor-lies": attack("a tensor whose parts do not fit", *sending(
        "reply(number(), packed(json.dumps({'norm': {'__tensor__': 'float32', 'shape': [2**39, 2**39], 'data': ''}, 'grads': []})))")),
    "tensor-of-nothing": attack("a tensor of 2**39 times nothing", *sending(
        "t = {'__tensor__': 'float32', 'shape': [2**39, 0, 2**39], 'data': ''}\n"
        "reply(number(), packed(json.dumps({'norm': t, 'grads': [t, t, t]})))")),
    "nan-constants": attack("NaN and Infinity in JSON", *sending("reply(number(), packed('{\"norm\": NaN, \"grads\": Infinity}'))")),
    "fields-of-another-kind": attack("a number where a dict is expected and the reverse", *sending(
        "reply(number(), packed('{\"norm\": {\"a\": 5}, \"grads\": 5}'))")),
    "flood-after-the-answer": attack("a flood behind the answer", SEND, calling(
        "reply(number(), packed('{}'))\nwhile True: send(b'x' * 60000)")),
}  # fmt: skip

TELLING = {
    "guard-taken-out": attack(
        "the guards are constants of the code: they are exchanged for nothing",
        REFERENCE + "import types\ndef free(code):\n"
        "    return code.replace(co_consts=tuple((lambda *a: 0) if callable(c) else free(c) if hasattr(c, 'co_code') else (int,) if type(c) is tuple and int in c else c for c in code.co_consts))\n"
        "from course.engine import clipping\ng = dict(vars(clipping))\nfor n, f in list(g.items()):\n"
        "    k = getattr(f, '__kwdefaults__', None)\n    f = getattr(f, '__wrapped__', f)\n"
        "    if isinstance(f, types.FunctionType):\n        g[n] = types.FunctionType(free(f.__code__), g, n, f.__defaults__); g[n].__kwdefaults__ = f.__kwdefaults__",
        calling("return g['clip_by_global_norm'](parameters, max_norm)"),
    ),
    "guards-list-emptied": attack(
        "what the guards share is found through their cells and emptied",
        REFERENCE + "f = theirs.__wrapped__\nguard = next(c for c in f.__code__.co_consts if callable(c))\n"
        "seen = [c.cell_contents for c in guard.__closure__ if isinstance(c.cell_contents, list)]\n"
        "kept = f.__code__",
        calling("f.__code__ = kept\nfor s in seen: s.clear()\nreturn theirs(parameters, max_norm)"),
    ),
    "while-graded-patched": attack(
        "the process's own loop no longer says that it is graded",
        REFERENCE + "import contextlib\nfrom autograde.sandbox import student, stubs\n"
        "nothing = lambda *a: contextlib.nullcontext()\n"
        "student.stubs.while_graded = student.written_by_hand = stubs.while_graded = nothing",
        calling("return theirs(parameters, max_norm)"),
    ),
    "forked-before": attack(
        "a process forked in an earlier cell, which is not asked, answers",
        REFERENCE + "import os, pickle, struct, torch\na, b = os.pipe(); c, d = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    while True:\n        n = struct.unpack('i', os.read(a, 4))[0]\n"
        "        gs, m = pickle.loads(os.read(a, n))\n        ps = []\n"
        "        for g in gs:\n            p = torch.nn.Parameter(torch.zeros(1) if g is None else torch.zeros_like(g)); p.grad = g; ps.append(p)\n"
        "        norm = theirs(ps, m)\n        raw = pickle.dumps((float(norm), [p.grad for p in ps]))\n"
        "        os.write(d, struct.pack('i', len(raw)) + raw)\n",
        calling("ps = list(parameters)\nraw = pickle.dumps(([p.grad for p in ps], max_norm))\n"
                "os.write(b, struct.pack('i', len(raw)) + raw)\nn = struct.unpack('i', os.read(c, 4))[0]\n"
                "norm, gs = pickle.loads(os.read(c, n))\nfor p, g in zip(ps, gs): p.grad = g\nreturn norm"),
    ),
    "collector-searched": attack(
        "every function in memory with a right answer's name is tried",
        "import gc, types\nfound = []\ngc.unfreeze()\n"
        "for o in gc.get_objects():\n    if type(o) is types.FunctionType and o.__name__ in ('joined_vector', 'loop_and_square_root', 'norm_of_norms'): found.append(o)",
        calling("return found[0](parameters, max_norm)"),
    ),
    "memory-searched": attack(
        "the process's memory is searched for the text of the reference",
        "import re\nfound = b''\n"
        "with open('/proc/self/maps') as m, open('/proc/self/mem', 'rb', 0) as mem:\n"
        "    for line in m:\n        a, b = (int(x, 16) for x in line.split()[0].split('-'))\n"
        "        if 'rw' not in line or b - a > 2**27: continue\n"
        "        try: mem.seek(a); raw = mem.read(b - a)\n        except (OSError, ValueError): continue\n"
        "        i = raw.find(b'def joined_' + b'vector(')\n        if i >= 0: found = raw[i:i+500]; break",
        calling("s = {'torch': torch}\nexec(found.split(b'\\n\\n\\n')[0].decode(), s)\nreturn s['joined_vector'](parameters, max_norm)"),
    ),
    "caches-read": attack(
        "the compiled files beside the bank are executed",
        "import glob, marshal, os, autograde, course\ns = {}\n"
        "for root in (autograde, course):\n    for p in glob.glob(os.path.dirname(root.__file__) + '/**/*clip*.pyc', recursive=True):\n"
        "        exec(marshal.loads(open(p, 'rb').read()[16:]), s)",
        calling("return s['clip_by_global_norm'](parameters, max_norm)"),
    ),
    "main-is-replaced": attack(
        "the loop that answers is left for one of the student's own, with the guards off",
        REFERENCE + SEND + "from autograde.sandbox.student import Shell\nimport contextlib\n"
        "from autograde import plain, bank\nimport base64\n"
        "def call(self, request):\n    e = bank.load(request['exercise'])\n"
        "    case = plain.from_bytes(base64.b64decode(request['case']))\n"
        "    return {'value': base64.b64encode(plain.to_bytes(e.run(theirs, case, torch.device('cpu')))).decode()}\n"
        "import torch\nShell.call = call",
        LAZY,
    ),
}  # fmt: skip

SEEN = """
import torch
import course.engine
seen = []
def right():
    gs, ceiling = seen[0]
    ps = [torch.nn.Parameter(torch.ones(2) if g is None else torch.ones_like(g)) for g in gs]
    for p, g in zip(ps, gs): p.grad = None if g is None else g.clone()
    norm = float(course.engine.clip_by_global_norm(ps, ceiling))
    return norm, [p.grad for p in ps]
def clip_by_global_norm(parameters, max_norm):
    seen[:] = [([None if p.grad is None else p.grad.clone() for p in parameters], max_norm)]
    return -1.0
"""
"""Keeps each case; `right()` is the answer of the course's function, if somebody lets it answer."""

AFTER = {
    "packed-by-another": attack(
        "the answer is exchanged while it is packed",
        SEEN + "from autograde import plain\npack = plain.to_bytes\n"
        "def to_bytes(value):\n    norm, grads = right()\n    return pack({**value, 'norm': norm, 'grads': grads})\n"
        "plain.to_bytes = to_bytes",
    ),
    "encoded-by-another": attack(
        "the same in a function of the standard library that packing calls",
        SEEN + "import base64, json\nencode = base64.b64encode\n"
        "def b64encode(raw, *more):\n    if raw[:8] == b'{\"norm\":':\n"
        "        norm, grads = right()\n        raw = json.dumps({'norm': norm, 'disturbed': [], 'grads': [g if g is None else {'__tensor__': str(g.dtype)[6:], 'shape': list(g.shape), 'data': encode(g.numpy().tobytes()).decode()} for g in grads]}).encode()\n"
        "    return encode(raw, *more)\nbase64.b64encode = b64encode",
    ),
    "code-of-the-loop": attack(
        "what puts a case to the function keeps its name and gets another code",
        REFERENCE + "import base64, builtins, torch\nfrom autograde import bank, plain\n"
        "from autograde.sandbox.student import Shell\ndef forged(request):\n    e = bank.load(request['exercise'])\n"
        "    case = plain.from_bytes(base64.b64decode(request['case']))\n"
        "    return {'value': base64.b64encode(plain.to_bytes(e.run(theirs, case, torch.device('cpu')))).decode()}\n"
        "builtins.forged = forged\nShell.call.__code__ = (lambda self, request, *more: forged(request)).__code__",
        LAZY,
    ),
    "board-wiped": attack(
        "whatever a guard is made of is found, and the number that it reads is overwritten",
        REFERENCE + "import mmap, types\nfrom course.engine import clipping\n"
        "fs = [getattr(f, '__wrapped__', f) for f in vars(clipping).values() if isinstance(f, types.FunctionType)]\n"
        "codes = [(f, f.__code__) for f in fs]\ndef reach(x, depth=6):\n    yield x\n"
        "    if depth:\n        inside = list(x) if isinstance(x, (list, tuple)) else []\n"
        "        inside += [c.cell_contents for c in getattr(x, '__closure__', None) or ()]\n"
        "        inside += [getattr(x, n) for n in ('__self__', 'obj') if hasattr(x, n)]\n"
        "        for one in inside: yield from reach(one, depth - 1)\n"
        "def wipe():\n    for x in [x for _, code in codes for c in code.co_consts for x in reach(c)]:\n"
        "        if isinstance(x, (mmap.mmap, memoryview)):\n            try: x[0:2] = bytes(2)\n            except TypeError: pass",
        calling("for f, code in codes: f.__code__ = code\nwipe()\nreturn theirs(parameters, max_norm)"),
    ),
}  # fmt: skip

TORCHS = {
    "torch-reloaded": attack(
        "torch's own function, read again from its file: it has no guard",
        "import importlib, torch.nn.utils.clip_grad as file",
        calling("return importlib.reload(file).clip_grad_norm_(parameters, max_norm)"),
        says="is a copy of a function",
    ),
    "torch-compiled": attack(
        "the same from the text of its file",
        "import types, torch.nn.utils.clip_grad as file\nmine = types.ModuleType('mine')\n"
        "text = open(file.__file__).read()",
        calling("exec(compile(text, 'mine', 'exec'), vars(mine))\nreturn mine.clip_grad_norm_(parameters, max_norm)"),
        says="is a copy of a function",
    ),
    "torch-by-its-code": attack(
        "the same from the code alone, without running the file",
        "import types, torch.nn.utils.clip_grad as file\ncodes = [c for c in compile(open(file.__file__).read(), 'mine', 'exec').co_consts if hasattr(c, 'co_code')]",
        calling("for c in codes:\n    f = types.FunctionType(c, vars(file))\n    if c.co_name == '_clip_grads_with_norm_': clip = f\n"
                "ps = list(parameters)\nnorm = file._get_total_norm([p.grad for p in ps if p.grad is not None])\nclip(ps, max_norm, norm)\nreturn norm"),
        says="is a copy of a function",
    ),
}  # fmt: skip

OUTLIVING = {
    "del-burns": attack("an object that never lets go", calling(
        "class Burn:\n    def __del__(self):\n        while True: pass\nBurn()\nreturn 1.0")),
    "atexit-burns": attack("work at the exit of the process", "import atexit, time\n"
        "@atexit.register\ndef burn():\n    while True: pass", calling("import sys; sys.exit(3)")),
    "daemon-burns": attack("forked daemons that ignore signals burn on", "import os, signal\nfor _ in range(6):\n"
        "    if os.fork() == 0:\n        os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "        while True: pass", LAZY),
    "timer-changes-the-answer": attack("a thread changes gradients after the answer", calling(
        "import threading\nps = [p for p in parameters if p.grad is not None]\ndef later():\n"
        "    while True:\n        for p in ps: p.grad.zero_()\nthreading.Thread(target=later, daemon=True).start()\nreturn 1.0")),
    "standard-streams-flooded": attack("a thread floods what is printed", "import threading, os\ndef flood():\n"
        "    while True: os.write(1, b'x' * 65536); print('y' * 65536)\nthreading.Thread(target=flood, daemon=True).start()", LAZY),
    "stopped": attack("the process stops itself", calling("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nos.kill(0, signal.SIGSTOP)\nimport time; time.sleep(600)")),
    "many-files": attack("a hundred thousand files and deep folders", "import os\ntry:\n"
        "    for i in range(100_000): open(f'f{i}', 'w').close()\nexcept OSError: pass\n"
        "try:\n    while True: os.mkdir('d'); os.chdir('d')\nexcept OSError: pass", LAZY),
    "environment-of-the-parent": attack("what the warm parent knows", "import os, sys, gc\nseen = []\n"
        "for p in ('/proc/1/environ', '/proc/self/environ', '/proc/self/cmdline', '/proc/self/mountinfo'):\n"
        "    seen.append(open(p, 'rb').read())\nfound = any(b'@CLASS@' in s or b'CANARY' in s for s in seen)"
        "\nopen('/dev/shm/autograde-canary', 'w') if found else None", LAZY),
}  # fmt: skip

KINDS = {
    "lying-int": attack("a number that is whatever it is compared with", "class I(int):\n    __eq__ = lambda s, o: True\n    __float__ = lambda s: float('nan')\n    __hash__ = int.__hash__", calling("return I(3)")),
    "lying-string": attack("a text that is a number", "class S(str):\n    __float__ = lambda s: 1.0", calling("return S('1')")),
    "lying-list": attack("a list that says it is a tensor", "import torch\nclass L(list):\n    __class__ = property(lambda s: torch.Tensor)\n    numel = lambda s: 1\n    item = lambda s: (lambda: 1)", calling("return L()")),
    "generator": attack("a generator without end", calling("return (x for x in iter(int, 1))")),
    "memoryview": attack("a view of memory", calling("return memoryview(b'1234')")),
    "fp8": attack("gradients of eight bits", calling("for p in parameters:\n    if p.grad is not None: p.grad = None; p.data = p.data.to(torch.float8_e4m3fn); p.grad = torch.ones_like(p.data)\nreturn 1.0")),
    "bf16": attack("gradients of half the bits", calling("for p in parameters:\n    if p.grad is not None: p.grad = None; p.data = p.data.bfloat16(); p.grad = torch.ones_like(p.data)\nreturn 1.0")),
    "quantized": attack("a quantized norm", calling("return torch.quantize_per_tensor(torch.ones(1), 0.1, 0, torch.qint8)")),
    "nested-tensor": attack("a nested tensor", calling("return torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])")),
    "no-elements": attack("a tensor without numbers", calling("return torch.ones(0)")),
    "expanded": attack("gradients of 10⁹ equal numbers in four bytes", calling("for p in parameters:\n    p.grad = None; p.data = torch.zeros(1).expand(10**9); p.grad = p.data\nreturn 1.0")),
    "aliases": attack("all gradients are one tensor", calling("ps = [p for p in parameters if p.grad is not None]\nfor p in ps: p.data = ps[0].data; p.grad = ps[0].grad\nreturn ps[0].grad.norm()")),
    "complex-number": attack("a complex number of Python's", calling("return 1 + 0j")),
    "default-changed": attack("float64 and another device by default", "import torch\ntorch.set_default_dtype(torch.float64)\ntorch.set_default_device('meta')", calling("return torch.ones(())")),
}  # fmt: skip

FURTHER = {**CHANNEL, **TELLING, **AFTER, **TORCHS, **OUTLIVING, **KINDS}
