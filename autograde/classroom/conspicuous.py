"""Code that a person should read: it reaches into the interpreter, or copies the course's own.

When a class is graded, points rest only on answers. But an answer may come from the course's own
code: pasted, or called past the guards of the student's process. Both leave traces in what was
handed in. As with near-identical code, a trace is a question for a person, not a finding.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial

from autograde import bank
from autograde.by_hand import guarded_modules
from autograde.class_dir import few
from autograde.classroom.names import MAX_SHOWN
from autograde.classroom.similarity import (
    MAX_SOURCE,
    MIN_SHARED,
    NEXT_CELL,
    Cells,
    fingerprints,
    parsed,
)
from autograde.kinds.handed_on import lines_elsewhere
from autograde.reported import on_a_line, quoted
from autograde.syntax import MAX_DEPTH, TooDeepError, code_of_cell

INSIDES = frozenset(
    {
        *("__code__", "__self__", "__globals__", "__builtins__", "__subclasses__"),
        *("co_consts", "co_code", "cell_contents", "f_locals", "f_globals", "f_back"),
        *("_getframe", "_current_frames", "get_objects", "get_referrers", "get_referents"),
        *("meta_path", "settrace", "setprofile", "addaudithook", "input_transformers_post"),
        *("input_transformers_cleanup", "ast_transformers", "prefilter_manager"),
        *("run_cell", "run_cell_async", "run_code", "safe_execfile", "safe_execfile_ipy"),
        *("autocall", "getprofile"),
        *("fork", "_exit", "healthy_step", "right_value"),
        *("_C", "_VF", "_refs", "_decomp", "_execution_engine", "decompose"),
        *("set_stance", "_set_stance", "eval_frame", "load_library", "compile_fx", "closs"),
        *("run_backward", "make_fx", "aot_compile", "aot_function", "aot_module"),
        *("aoti_load_package", "aoti_compile_and_package"),
    }
)
"""Attributes that an answer to an exercise has no use for. A `__closure__` alone shows nothing."""
TEXTS_RUN = {"exec": 1, "compile": 2}
"""What runs a text as code, and from how many arguments on: torch.compile is another."""
MODULES = frozenset(
    {
        *("ctypes", "gc", "marshal", "dis", "socket", "subprocess", "multiprocessing", "_thread"),
        *("builtins", "__main__", "autograde.sandbox", "autograde.referee", "autograde.bank"),
        *("autograde.answers", "autograde.apart", "autograde.questions", "autograde.recogniser"),
        *("autograde.by_hand", "autograde.plain", "course.debug.museum.exhibit"),
        *("torch.fx", "torch.export", "torch.utils.cpp_extension", "cffi", "numpy.ctypeslib"),
        *("functorch", "onnxruntime", "onnx.reference"),
    }
)
IN_QUOTES = INSIDES - {"fork"} | MODULES
"""The same for getattr and importlib; DataLoader takes a "fork"."""
EVERYDAY_PRIVATE = (
    *("_utils", "_dynamo", "_inductor", "_foreach_", "_assert", "_pytree", "_replace", "_asdict"),
    *("_typing", "_version"),
)
"""How private names of packages begin that honest notebooks use; so are classes, as `_LRScheduler`,
and what is in INSIDES is judged there."""
EVERYDAY = {
    "builtins": {"print", "input", "open", "sum", "max", "min", "range", "round", "len"},
    "gc": {"collect", "disable", "enable", "freeze"},
    "multiprocessing": {
        "Pool",
        "cpu_count",
        "current_process",
        "freeze_support",
        "set_start_method",
    },
    "socket": {"gethostname"},
    "subprocess": {"PIPE", "DEVNULL", "STDOUT", "CalledProcessError", "TimeoutExpired"},
    "dis": set[str](),
    "functorch": {
        *("vmap", "grad", "grad_and_value", "vjp", "jvp", "jacrev", "jacfwd", "hessian"),
        *("make_functional", "make_functional_with_buffers", "combine_state_for_ensemble"),
    },
}
"""What honest notebooks use of such a module. One that is imported and left alone shows nothing."""
TELLS_OF_THE_MACHINE = ("nvidia-smi", "nvcc --version", "lscpu", "git rev-parse", "git describe")
"""How commands begin that tell what a run was made with."""
SHORT = 80
"""Characters of a text up to which it may be run where it stands: it is read like the rest."""
BORROWED = frozenset({"NotAllowedError", "AnswerError"})
"""What the kit raises: an exception of this name would be read as its word. (Those that the grader
itself gives are told apart where they arrive.)"""
SAYS_OF_A_FUNCTION = (
    *("co_name", "co_qualname", "co_varnames", "co_firstlineno", "co_flags", "co_nlocals"),
    *("co_argcount", "co_posonlyargcount", "co_kwonlyargcount"),
)
"""Of a function's code: its name, its arguments and its line, and nothing of what it does."""
A_COMPILED_PATTERN = 2
"""Arguments that re.compile takes at most; what compiles a text as code has more."""
HELD_BACK = {"05.whole": ("load_digits", "raw_images", "takes", "fetch_openml")}
"""What loads the examples that an answer is judged on: they are public, and can be looked up."""
LOOKED_FOR = INSIDES | MODULES | BORROWED | {*TEXTS_RUN, "sys.modules"}
MOST_WITHIN = 20
"""How often `%time` and the like may stand within one another in a cell."""
MOST_NAMED = 20
"""Names that one line of the class page has room for."""
MOSTLY = 0.6
"""Share of a cell's fingerprints that must be the course's, besides MIN_SHARED of them."""


def insides(cells: Cells) -> list[str]:
    """Parts of the interpreter, the system or the grader that a student's code names, sorted."""
    return _insides([tree for source in cells.values() for tree in _read(source)[0]])


def _read(source: str) -> tuple[list[ast.Module], str]:
    """The trees of a source's cells; and why some of it was not read, where it may be code that
    runs: what is not Python does not."""
    trees, why = [], ""
    for cell in source.split(NEXT_CELL):
        if len(cell) > MAX_SOURCE:
            why = f"is longer than {MAX_SOURCE:,} characters"
        try:
            trees += code_of_cell(cell[:MAX_SOURCE], MOST_WITHIN)
        except TooDeepError:
            why = f"is nested more than {MAX_DEPTH} deep"
    return trees, why


def _insides(trees: list[ast.Module]) -> list[str]:
    trees = trees + [text for tree in trees for text in _short_texts_run(tree).values()]
    imported = {bound: whole for tree in trees for bound, whole in _imported(tree)}
    own = _of_own_objects(trees)
    names = {name for tree in trees for name in _named(tree, own, imported)}
    names |= {name for tree in trees for name in _by_a_path(tree, imported)}
    names |= _written_and_imported(trees)
    return sorted(name for name in names if not _is_everyday(name, trees))


def courses_own(cells: Cells, exercises: Iterable[str]) -> list[tuple[str, str, float]]:
    """Find cells that are mostly the course's own code.

    Args:
        cells: A student's sources.
        exercises: Ids of the exercises of the assignment.

    Returns:
        (cell, module of the course, share of the cell's fingerprints), most alike first.
    """
    found = []
    modules = sorted({name for exercise in exercises for name in _modules_of(exercise)})
    for cell, source in cells.items():
        marks = fingerprints(source)
        for module in modules:
            both = len(marks & _marks_of(module))
            if both >= MIN_SHARED and both >= MOSTLY * len(marks):
                found.append((cell, module, both / len(marks)))
    return sorted(found, key=lambda one: -one[2])


def words_for(cells: Cells, exercises: Iterable[str]) -> list[str]:
    """A sentence for each trace in a student's code."""
    words = [
        f"{share:.0%} of {cell} reads like the course's own {module}"
        for cell, module, share in courses_own(cells, exercises)
    ]
    read = {cell: _read(source) for cell, source in cells.items()}
    words += [f"code in {cell} {why}, and was not read" for cell, (_, why) in read.items() if why]
    if names := _insides([tree for trees, _ in read.values() for tree in trees]):
        words.append(
            "its code names parts of the interpreter or the system that an answer rarely needs: "
            + few(sorted(names, key=_is_made_up), most=MOST_NAMED)
        )
    words += _fixed_elsewhere({cell: trees for cell, (trees, _) in read.items()}, exercises)
    words += [
        f"its cell {cell} loads images that {exercise} is judged on: {', '.join(loads)}"
        for exercise, cell in ((one, _cell_of(one)) for one in exercises)
        if (loads := _loads(cells.get(cell, ""), HELD_BACK.get(exercise, ())))
    ]
    return words


def _loads(source: str, loaders: Iterable[str]) -> list[str]:
    trees = _read(source)[0]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    named = {whole.rpartition(".")[2] for tree in trees for _, whole in _imported(tree)}
    named |= {node.id for node in nodes if isinstance(node, ast.Name)}
    named |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return sorted(named.intersection(loaders))


def _fixed_elsewhere(
    read: Mapping[str, list[ast.Module]], exercises: Iterable[str]
) -> Iterator[str]:
    """Loops to fix that hand their work to functions whose lines are not counted."""
    about, around = bank.asks_for_code(), [tree for trees in read.values() for tree in trees]
    asked = [about[id].load() for id in exercises if id in about]
    others = {exercise.name for exercise in asked if exercise.kind != "fix"}
    for exercise in (exercise for exercise in asked if exercise.kind == "fix"):
        if found := lines_elsewhere(exercise, around, others):
            yield (
                f"its {exercise.name} calls what the given one does not, {sum(found.values())} "
                "lines in all, which are not counted as changed (calls in a lambda or a "
                "comprehension included): "
                + few([_shown(name) for name in sorted(found)], most=MOST_NAMED)
            )


def _cell_of(exercise: str) -> str:
    """The name of the cell that answers an exercise."""
    return exercise.partition(".")[2]


@cache
def _modules_of(exercise: str) -> frozenset[str]:
    about: Mapping[str, object] = bank.asks_for_code()
    return frozenset(guarded_modules(bank.load(exercise))) if exercise in about else frozenset()


@cache
def _marks_of(module: str) -> frozenset[int]:
    return frozenset(fingerprints(inspect.getsource(sys.modules[module])))


def _named(tree: ast.Module, own: set[ast.AST], imported: Mapping[str, str]) -> Iterator[str]:
    """Names that are looked for.

    Args:
        own: Attributes that the code itself defines.
        imported: What each name stands for that an import binds.
    """
    asked, everyday = _asked_if_main(tree), _ones_own_name(tree) | own
    short = _short_texts_run(tree) | dict.fromkeys(_patterns_compiled(tree, imported))
    set_here = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and _is_set(n)}

    def named_only(name: str) -> bool:
        """Whether a pattern asks for a private name that nothing here sets."""
        return _is_private(name) and name not in set_here

    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in INSIDES and node not in everyday:
            yield node.attr
        elif isinstance(node, ast.ClassDef) and node.name in BORROWED:
            yield node.name
        elif isinstance(node, ast.MatchClass):
            yield from (name for name in node.kwd_attrs if name in INSIDES or named_only(name))
        elif (isinstance(node, ast.Constant) and node.value in BORROWED) or (
            isinstance(node, ast.Constant) and node not in asked and _is_in_quotes(node.value)
        ):
            yield f'the text "{node.value}"'
        elif isinstance(node, PUT_TOGETHER) and _is_in_quotes(_joined(node)):
            yield f'the text "{_joined(node)}", put together'
        elif _is_looked_up(node):
            yield "sys.modules"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node not in short and len(node.args) >= TEXTS_RUN.get(
                node.func.id, len(node.args) + 1
            ):
                yield node.func.id
        elif isinstance(node, ast.Import):
            yield from map(_shown, filter(_is_inside, (alias.name for alias in node.names)))
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            yield from list(map(_shown, filter(_is_inside, whole)))[:1]


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each name that an import binds, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _by_a_path(tree: ast.Module, imported: Mapping[str, str]) -> Iterator[str]:
    """What is reached by attributes of something imported: a module of the grader, a private name
    of a package, the file of one of its modules."""
    for _, whole in _imported(tree):
        parts = whole.split(".")
        if any(map(_is_private, parts)) or not INSIDES.isdisjoint(parts):
            yield _shown(whole)
    for node, whole in _paths(tree, imported).items():
        if not isinstance(node, ast.Name):
            last = whole.rpartition(".")[2]
            of_ours = whole in MODULES and whole.startswith(("autograde.", "torch."))
            of_others = _is_private(last) and INSIDES.isdisjoint(whole.split("."))
            a_text = last == "__file__" and whole.count(".") > 1
            if of_ours or of_others or a_text:
                yield _shown(whole)


def _paths(tree: ast.Module, imported: Mapping[str, str]) -> dict[ast.AST, str]:
    """`autograde.bank` for `autograde.bank` and for `a.bank` after `import autograde as a`, and for
    `getattr(a, "bank")` and `vars(a)["bank"]`."""
    found: dict[ast.AST, str] = {}
    for node in reversed(list(ast.walk(tree))):  # what stands inside another one comes first
        if isinstance(node, ast.Name) and node.id in imported:
            found[node] = imported[node.id]
        elif isinstance(node, ast.Attribute) and node.value in found:
            found[node] = f"{found[node.value]}.{node.attr}"
        match node:
            case ast.Call(ast.Name("getattr"), [of, ast.Constant(str(name)), *_]) | ast.Subscript(
                ast.Call(ast.Name("vars"), [of]) | ast.Attribute(of, "__dict__"),
                ast.Constant(str(name)),
            ) if of in found:
                found[node] = f"{found[of]}.{name}"
    return found


def _is_set(node: ast.Attribute) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_in_quotes(text: object) -> bool:
    """Whether a text is one that is looked for, or the dotted name of what is inside such a
    module."""
    if type(text) is not str or text in IN_QUOTES or not DOTTED.fullmatch(text):
        return type(text) is str and text in IN_QUOTES
    return _is_inside(text) or not INSIDES.isdisjoint(text.split("."))


DOTTED = re.compile(r"(torch|functorch|autograde)(\.\w{1,80}){1,20}")


def _is_made_up(name: str) -> bool:
    """Whether a name is not one that is looked for: of these a student can write any number."""
    return not name.startswith('the text "') and name not in LOOKED_FOR


def _shown(name: str) -> str:
    """A dotted name, which may be a student's own: in quotes unless it is like any other."""
    usual = name.isascii() and len(name) <= MAX_SHOWN
    return name if usual else quoted(on_a_line(name, MAX_SHOWN))


def _is_private(name: str) -> bool:
    return name[:1] == "_" and name[1:2].islower() and not name.startswith(EVERYDAY_PRIVATE)


def _written_and_imported(trees: list[ast.Module]) -> set[str]:
    """Modules that the code imports and whose files it names, as who has written them would: what
    is in them was not handed in, unless all that is written stands there as it is."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    calls = [n for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)]
    written = [call.args[:1] for call in calls if call.func.attr in ("write", "write_text")]
    if written and all(isinstance(text, ast.Constant) for (text,) in filter(None, written)):
        return set()
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    files = {text.rpartition("/")[2] for text in texts if text.endswith(".py")}
    modules = {a.name for n in nodes if isinstance(n, ast.Import) for a in n.names}
    modules |= {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module} | texts
    found = {quoted(on_a_line(file, MAX_SHOWN)) for file in files if file[:-3] in modules}
    return {f"{file}, which its code imports" for file in found}


def _ones_own_name(tree: ast.Module) -> set[ast.AST]:
    """`_getframe` where it tells how the running function is called, or its line, and no more."""
    found: set[ast.AST] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ast.Attribute(ast.Call(asks), "f_code"), "co_name") | ast.Attribute(
                ast.Call(asks), "f_lineno"
            ):
                found.add(asks)
            case ast.Attribute(ast.Attribute(_, "__code__") as code, says) if (
                says in SAYS_OF_A_FUNCTION and isinstance(code.ctx, ast.Load)
            ):
                found.add(code)
    return found


def _of_own_objects(trees: list[ast.Module]) -> set[ast.AST]:
    """Attributes that somebody's own class defines, of `self` or of an object of such a class: a
    method `decompose` is the student's to name. So is `__self__` of a list's method a list.

    A name with an underscore in front is Python's or torch's whoever defines it.
    """
    nodes = [node for tree in trees for node in ast.walk(tree)]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    defined = {name for one in classes for name in _defined_in(one) if name[:1] != "_"}
    made, of_lists = _bound_to(nodes, {one.name for one in classes})
    methods = {node for one in classes for node in ast.walk(one)}
    found: set[ast.AST] = set()
    for node in nodes:
        match node:
            case ast.Attribute(ast.Name("self" | "cls"), name) if (
                name in defined and node in methods
            ):
                found.add(node)
            case ast.Attribute(ast.Name(of) | ast.Call(ast.Name(of)), name) if (
                name in defined and of in made
            ):
                found.add(node)
            case ast.Attribute(ast.Name(of), "__self__") if of in of_lists:
                found.add(node)
            case ast.Attribute(ast.Attribute(value), "__self__") if isinstance(value, WRITTEN_OUT):
                found.add(node)
    return found


WRITTEN_OUT = (ast.List, ast.Dict, ast.Set, ast.Tuple, ast.Constant)


def _defined_in(one: ast.ClassDef) -> Iterator[str]:
    """Names of a class's methods and fields, and what they set of `self`."""
    for node in ast.walk(one):
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name):
                yield name
            case ast.Attribute(ast.Name("self"), name, ast.Store()):
                yield name
            case ast.AnnAssign(ast.Name(name)):
                yield name
    for node in one.body:
        match node:
            case ast.Assign([ast.Name(name)]):
                yield name


def _bound_to(nodes: list[ast.AST], classes: set[str]) -> tuple[set[str], set[str]]:
    """Names that stand for one's own classes and their objects and nothing else, and those that
    stand for methods of what is written out, as `[].append`."""
    bindings = Counter(node.id for node in nodes if _binds(node))
    bindings += Counter(node.arg for node in nodes if isinstance(node, ast.arg))
    imports = (
        alias for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for alias in n.names
    )
    bindings += Counter(alias.asname or alias.name.partition(".")[0] for alias in imports)
    functions = (n for n in nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    bindings += Counter(node.name for node in functions)
    made, methods = Counter[str](), Counter[str]()
    for node in nodes:
        match node:
            case ast.Assign([ast.Name(name)], ast.Call(ast.Name(of))) if of in classes:
                made[name] += 1
            case ast.Assign([ast.Name(name)], ast.Attribute(value)) if isinstance(
                value, WRITTEN_OUT
            ):
                methods[name] += 1
    only = [{n for n, count in of.items() if count == bindings[n]} for of in (made, methods)]
    return only[0] | {name for name in classes if not bindings[name]}, only[1]


def _binds(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)


def _patterns_compiled(tree: ast.Module, imported: Mapping[str, str]) -> Iterator[ast.AST]:
    """Calls of re.compile, or torch's, after `from re import compile`."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name("compile"), texts, named) if (
                imported.get("compile") in ("re.compile", "torch.compile")
                and len(texts) + len(named) <= A_COMPILED_PATTERN
            ):
                yield node


def _short_texts_run(tree: ast.Module) -> dict[ast.AST, ast.Module]:
    """Calls that run a short text that stands there, with its code."""
    found = {}
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Name("exec"), [ast.Constant(str(text)), *_]) if len(text) <= SHORT:
                if (code := parsed(text)) is not None:
                    found[node] = code
    return found


PUT_TOGETHER = (ast.BinOp, ast.JoinedStr, ast.Call, ast.Subscript)
METHODS = ("lower", "upper", "swapcase", "casefold", "strip", "replace", "join", "removeprefix",
           "removesuffix", "format")  # fmt: skip
"""What makes one text of others."""
OTHER_PLACES = {"%": re.compile(r"%(?!s)"), "format": re.compile(r"\{(?!\d?\})")}
"""Places in a template for anything but a text as it is, such as one of a width."""
LONGEST_NAME = 200
"""Characters of a text that may be a name, so that making it takes no time."""


def _joined(node: ast.AST, pieces: int = 20) -> str | None:
    """A text that is written in pieces, a few: `"auto" + "grade"`, `f"{'auto'}grade"`,
    `"%sgrade" % "auto"`, `"AUTO".lower()`, `"otua"[::-1]`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and pieces:
        left, right = _joined(node.left, pieces - 1), _joined(node.right, pieces - 1)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.JoinedStr) and len(node.values) <= pieces:
        parts = [_joined(part, pieces - 1) for part in node.values]
        return None if None in parts else "".join(parts)
    if isinstance(node, ast.FormattedValue) and node.conversion == -1 and not node.format_spec:
        return _joined(node.value, pieces - 1) if pieces else None
    if isinstance(node, ast.BinOp | ast.Call | ast.Subscript) and pieces:
        return _made_of(partial(_computed, node, pieces - 1))
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return node.value if is_text else None


def _computed(node: ast.AST, pieces: int) -> str:
    """A text that an operator, a method or a slice makes of others.

    Raises:
        TypeError: Not of texts that stand there.
        ValueError, LookupError: Python cannot make it.
    """
    match node:
        case ast.BinOp(of, ast.Mod(), filled):
            template = _short(of, pieces)
            if not OTHER_PLACES["%"].search(template):
                return template % tuple(_all_joined(filled, pieces))
        case ast.Call(ast.Attribute(of, name), parts, []) if name in METHODS:
            text = _short(of, pieces)
            listed = [isinstance(part, ast.List | ast.Tuple) for part in parts]
            read = [_all_joined(part, pieces) for part in parts]
            given = [all if whole else all[0] for all, whole in zip(read, listed, strict=True)]
            if name != "format" or not OTHER_PLACES["format"].search(text):
                return getattr(text, name)(*given)
        case ast.Subscript(of, ast.Slice(start, end, step)):
            bounds = [one and ast.literal_eval(one) for one in (start, end, step)]
            return _short(of, pieces)[slice(*bounds)]
    raise TypeError


def _short(node: ast.AST, pieces: int) -> str:
    text = _joined(node, pieces)
    if text is None or len(text) > LONGEST_NAME:
        raise TypeError
    return text


def _all_joined(node: ast.AST, pieces: int) -> list[str]:
    """The texts of a list or a tuple, or the one text."""
    parts = node.elts if isinstance(node, ast.List | ast.Tuple) else [node]
    if len(parts) > pieces:
        raise TypeError
    return [_short(part, pieces) for part in parts]


def _made_of(make: Callable[[], str]) -> str | None:
    """A text, if Python can make it and it is no longer than a name."""
    try:
        text = make()
    except (TypeError, ValueError, LookupError):
        return None
    return text if len(text) <= LONGEST_NAME else None


def _is_looked_up(node: ast.AST) -> bool:
    """`sys.modules[...]` under a name that is not written there; `__name__` is one's own."""
    match node:
        case ast.Subscript(ast.Attribute(ast.Name("sys"), "modules"), under):
            own = isinstance(under, ast.Name) and under.id == "__name__"
            return not own and _joined(under) is None
    return False


def _asked_if_main(tree: ast.Module) -> set[ast.AST]:
    """The constants of `if __name__ == "__main__":`, as ends every script."""
    asks = (node for node in ast.walk(tree) if isinstance(node, ast.Compare))
    sides = ([ask.left, *ask.comparators] for ask in asks)
    return {
        part
        for pair in sides
        if any(isinstance(side, ast.Name) and side.id == "__name__" for side in pair)
        for part in pair
        if isinstance(part, ast.Constant)
    }


def _is_everyday(module: str, trees: list[ast.Module]) -> bool:
    """Whether everything that the code does with a module is what honest notebooks do with it."""
    if module not in EVERYDAY:
        return False
    nodes = [node for tree in trees for node in ast.walk(tree)]
    uses, names = EVERYDAY[module], set()
    for node in nodes:
        if isinstance(node, ast.Constant) and node.value == module:
            return False
        if isinstance(node, ast.ImportFrom) and node.module == module:
            if not {alias.name for alias in node.names} <= uses:
                return False
        elif isinstance(node, ast.Import):
            names |= {alias.asname or alias.name for alias in node.names if alias.name == module}
    plain = {
        node.value
        for node in nodes
        if isinstance(node, ast.Attribute) and node.attr in uses and isinstance(node.ctx, ast.Load)
    }
    plain |= _of_ones_own_functions(nodes) if module == "dis" else set()
    plain |= _about_the_machine(nodes) if module == "subprocess" else set()
    return not any(
        isinstance(node, ast.Name) and node.id in names and node not in plain for node in nodes
    )


def _of_ones_own_functions(nodes: list[ast.AST]) -> set[ast.AST]:
    """The module in `dis.dis(f)`, where the code defines f."""
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    found: set[ast.AST] = set()
    for node in nodes:
        match node:
            case ast.Call(ast.Attribute(module, "dis"), [ast.Name(name)]) if name in own:
                found.add(module)
    return found


def _about_the_machine(nodes: list[ast.AST]) -> set[ast.AST]:
    """The module in `subprocess.run(["nvidia-smi"])` and the like."""
    found: set[ast.AST] = set()
    for node in nodes:
        match node:
            case ast.Call(
                ast.Attribute(module, "run" | "check_output" | "getoutput"), [command, *_]
            ):
                words = command.elts if isinstance(command, ast.List) else [command]
                texts = [getattr(word, "value", None) for word in words]
                if all(isinstance(text, str) for text in texts) and _is_plain(" ".join(texts)):
                    found.add(module)
    return found


def _is_plain(command: str) -> bool:
    """Whether it tells of the machine, and starts nothing else."""
    only = not set(command) & set(";&|`$()<>\n")
    return only and any(f"{command} ".startswith(f"{one} ") for one in TELLS_OF_THE_MACHINE)


def _is_inside(module: str) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:n]) in MODULES for n in range(1, len(parts) + 1))
