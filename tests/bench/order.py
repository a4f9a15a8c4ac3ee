"""Can two statements meet? Where they cannot, their order is free, and swapping them is no mistake.

Careful rather than clever: a statement counts as calculating only if all that it calls is known to
read alone, and what is not known may change anything.
"""

from __future__ import annotations

import ast
import builtins
import re

KNOWN = """
abs all any bool dict divmod enumerate float frozenset int isinstance len list max min range
reversed round set sorted str sum tuple type zip hasattr getattr items keys values get count index
split strip partition startswith endswith join deepcopy Path Counter defaultdict deque amax amin
arange argmax argmin argsort as_tensor astype array bincount cat clone concatenate cos cpu cumprod
cumsum detach device diag dim dot double dtype einsum empty_like eq exp eye flatten full full_like
gather ge gt half isfinite isinf isnan item le linspace log log1p log_softmax logsumexp long lt
matmul mean mm ne nonzero norm numel numpy one_hot ones ones_like outer permute pow prod relu
repeat reshape rsqrt sigmoid sin size Size softmax sqrt square squeeze stack std t tensor to
tolist topk transpose type_as unbind unique unsqueeze var view where zeros zeros_like
named_parameters parameters modules named_modules named_buffers buffers children get_submodule
state_dict Generator
"""
READING = frozenset(KNOWN.split())
"""Functions and methods, by their last name, that change nothing and draw nothing."""
FILLING = ("append", "extend", "add")
"""Methods that change only what they are called on."""
COMMON = frozenset(dir(builtins)) | {"torch", "nn", "np", "math"}
"""Names that nobody sets."""


def cannot_meet(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether two neighbouring statements may stand in either order."""
    reads, sets = (read_by(first), read_by(second)), (set_by(first), set_by(second))
    if meet(sets[0], reads[1] | sets[1]) or meet(sets[1], reads[0]):
        return False
    if leaves(first) or leaves(second):
        return False
    if clears(first, second) or clears(second, first):
        return True
    blind = any(calculates(one) and not read_by(one) for one in (first, second))
    return blind or (calculates(first) and calculates(second))


def clears(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether one clears the gradients, and the other has nothing to do with them."""
    text = ast.unparse(second)
    return re.fullmatch(r"\w+\.zero_grad\(.*\)", ast.unparse(first)) is not None and not re.search(
        r"grad|backward|step|fit|train", text
    )


def meet(names: set[str], others: set[str]) -> bool:
    """Whether two sets have a name in common; `self` alone may be any of its attributes."""
    whole = any("self" in one and any(n.startswith("self.") for n in two)
                for one, two in ((names, others), (others, names)))  # fmt: skip
    return whole or bool(names & others)


def set_by(statement: ast.stmt) -> set[str]:
    """Names that it binds, and objects of which it sets or fills a part."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    found = set()
    for node in ast.walk(statement):
        if isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)):
            found |= {root(node)} if not isinstance(node, (ast.Tuple, ast.List)) else set()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {(one.asname or one.name).partition(".")[0] for one in node.names}
        if _is_filling(node):
            found |= {root(node.func.value)}
    return found


def root(node: ast.AST) -> str:
    """`a` of `a.b[c]`, `self.a` of `self.a.b`, of anything else a question mark."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
            return f"self.{node.attr}"
        node = node.value
    return node.id if isinstance(node, ast.Name) else "?"


def read_by(statement: ast.stmt) -> set[str]:
    """Names that it looks at when it runs; of a definition, those of decorators and defaults."""
    nodes: list[ast.AST] = [statement]
    if isinstance(statement, ast.FunctionDef):
        defaults = [*statement.args.defaults, *filter(None, statement.args.kw_defaults)]
        nodes = [*statement.decorator_list, *defaults]
    return {name for top in nodes for name in _names(top)} - COMMON


def _names(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Call) and root(node.func).startswith("self.") and not _is_filling(node):
        return {"self"}.union(*map(_names, ast.iter_child_nodes(node)))
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self":
        return {root(node)} if isinstance(node.ctx, ast.Load) else set()
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    return set().union(*map(_names, ast.iter_child_nodes(node)))


def leaves(statement: ast.stmt) -> bool:
    """Whether the next statement may not be reached."""
    ways = (ast.Return, ast.Raise, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Assert)
    inside = [] if isinstance(statement, ast.FunctionDef) else ast.walk(statement)
    return any(isinstance(node, ways) for node in inside)


def calculates(statement: ast.stmt) -> bool:
    """Whether it only reads, and binds or fills names: no call that may change or draw more."""
    if isinstance(statement, (ast.FunctionDef, ast.Import, ast.ImportFrom, ast.Pass)):
        return True
    if isinstance(statement, ast.If):
        inside = [*statement.body, *statement.orelse]
        return all(map(_only_reads, ast.walk(statement.test))) and all(map(calculates, inside))
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AnnAssign, ast.AugAssign)):
        targets = [statement.target]
    else:
        targets = []
        if not isinstance(statement, ast.Expr):
            return False
    return all(map(_is_plain, targets)) and all(map(_only_reads, ast.walk(statement)))


def _is_plain(target: ast.expr) -> bool:
    """A name, an attribute of self, or several of them."""
    if isinstance(target, (ast.Tuple, ast.List)):
        return all(map(_is_plain, target.elts))
    return isinstance(target, ast.Name) or (
        isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    )


def _only_reads(node: ast.AST) -> bool:
    if isinstance(node, (ast.NamedExpr, ast.Await)):
        return False
    if not isinstance(node, ast.Call) or _is_filling(node):
        return True
    called = node.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in READING


def _is_filling(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in FILLING
        and root(node.func) != "?"
        and root(node.func) not in COMMON
    )
