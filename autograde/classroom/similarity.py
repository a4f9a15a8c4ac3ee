"""Near-identical code: which answers are so similar that somebody should look at both.

    source -> tokens, without comments, docstrings, annotations and blanks
           -> names that the student chose become one and the same; torch's and Python's stay
           -> hashes of every GRAM tokens in a row -> winnowing keeps a few of them: fingerprints
    drop what the notebook gave to everybody and what much of the class wrote
    pair -> share of common fingerprints, over the cells that both answered
         -> which cells are almost whole anywhere in the other's notebook and files: code that moved

A pair is a question for a person, not a finding: two students who learned from the same page write
alike.

Source: Schleimer, Wilkerson, Aiken, "Winnowing: local algorithms for document fingerprinting",
SIGMOD 2003.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import io
import keyword
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import combinations

from autograde.syntax import tree_of

GRAM = 9
"""Tokens hashed together: about a line of code. Shorter runs are everybody's."""
WINDOW = 4
"""Of this many hashes in a row one is kept, so every common run of GRAM + WINDOW - 1 is seen."""
THRESHOLD = 0.8
"""Pairs at least this alike are shown."""
MIN_SHARED = 30
"""Fingerprints that must be common: about fifteen lines. Short right answers are all alike."""
ALIKE = 0.9
"""Cells at least this alike make a pair by themselves, if they hold MIN_SHARED together."""
COMMON_SHARE = 0.1
COMMON_AT_LEAST = 5
"""What more than a tenth of the class wrote (and more than five) says nothing about two of it."""
LEAST_CLASS = 2 * (COMMON_AT_LEAST + 1)
"""In a smaller class it cannot be told what is usual: six must write the same before it counts as
that, and six are then more than half of the class. Two who solved a task alike are a pair there."""
MAX_SOURCE = 100_000
"""Characters of a cell that are looked at."""

FURTHER = "further cells"
"""The name of all cells together that answer no exercise."""
NEXT_CELL = "\n\0\n"
"""What stands between cells that are joined: no Python, so that nobody's cell can hold it."""

Cells = Mapping[str, str]
"""A student's sources by grade_id (or another name that all students' cells share)."""


@dataclass(frozen=True)
class Token:
    """One normalised token, and the line it stands in."""

    text: str
    line: int


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two students whose code is near-identical."""

    first: str
    second: str
    score: float
    """Share of the fingerprints that both have, 0 to 1: over the cells that both answered, or over
    everything where the code stands in cells of other names."""
    shared: int
    """How many fingerprints that is."""
    cells: dict[str, float]
    """The share by cell, of those with any."""
    in_alike_cells: int
    """How many of the common fingerprints lie in cells that are near-identical."""
    moved: dict[tuple[str, str], float] = field(default_factory=dict)
    """Where code stands in the first student's cells and in the second's, if the names differ: the
    share of the smaller cell that is in the other one."""

    @property
    def places(self) -> list[tuple[str, str, str, float]]:
        """Where code is alike: what to call it, the first's cell, the second's, and the share."""
        found = [(cell, cell, cell, share) for cell, share in self.cells.items() if share > 0]
        return found + [
            (f"{cell} of {self.first} and {other} of {self.second}", cell, other, share)
            for (cell, other), share in self.moved.items()
        ]


def near_identical(
    students: Mapping[str, Cells],
    given: Iterable[str] = (),
    *,
    threshold: float = THRESHOLD,
    min_shared: int = MIN_SHARED,
) -> list[Pair]:
    """Find pairs of students with near-identical code, most similar first.

    Args:
        students: Each student's code cells.
        given: Sources that the notebook gave to everybody; what comes from there does not count.
        threshold: The least score, 0 to 1, of the whole notebook. Single cells that are almost the
            same also make a pair, so that a part that was copied is seen.
        min_shared: The least number of common fingerprints.
    """
    everybodys = {mark for source in given for mark in fingerprints(source)}
    marks = {
        student: {cell: fingerprints(source) - everybodys for cell, source in cells.items()}
        for student, cells in students.items()
    }
    counts = Counter(mark for cells in marks.values() for mark in set().union(*cells.values()))
    limit = max(COMMON_AT_LEAST, COMMON_SHARE * len(students))
    common = {mark for mark, count in counts.items() if count > limit}
    own = {
        student: {cell: found - common for cell, found in cells.items()}
        for student, cells in marks.items()
    }
    whole = {student: set().union(*cells.values()) for student, cells in own.items()}
    alike = []
    for a, b in _candidates(whole, min_shared):
        pair = _compare(a, own[a], b, own[b])
        by_name = pair.in_alike_cells >= min_shared or (
            pair.score >= threshold and pair.shared >= min_shared
        )
        if not by_name:
            pair = _compare_anywhere(pair, own[a], whole[a], own[b], whole[b])
        if by_name or pair.in_alike_cells >= min_shared or pair.score >= threshold:
            alike.append(pair)
    return sorted(alike, key=lambda pair: (-pair.score, -pair.shared, pair.first, pair.second))


def _candidates(whole: Mapping[str, set[int]], least: int) -> Iterator[tuple[str, str]]:
    """Pairs with enough in common, found without comparing everybody with everybody."""
    writers: dict[int, list[str]] = defaultdict(list)
    for student in sorted(whole):
        for mark in whole[student]:
            writers[mark].append(student)
    together = Counter(pair for who in writers.values() for pair in combinations(who, 2))
    return (pair for pair, count in together.items() if count >= least)


def _compare(a: str, of_a: Mapping[str, set[int]], b: str, of_b: Mapping[str, set[int]]) -> Pair:
    """Dice's share: twice what is common, over what there is, in cells that both answered."""
    cells, shared, total, alike = {}, 0, 0, 0
    for cell in of_a.keys() & of_b.keys():
        both, size = len(of_a[cell] & of_b[cell]), len(of_a[cell]) + len(of_b[cell])
        if of_a[cell] and of_b[cell]:
            cells[cell] = 2 * both / size
            shared, total = shared + both, total + size
            alike += both if cells[cell] >= ALIKE else 0
    return Pair(
        first=a,
        second=b,
        score=2 * shared / total if total else 0.0,
        shared=shared,
        cells=dict(sorted(cells.items())),
        in_alike_cells=alike,
    )


def _compare_anywhere(
    named: Pair,
    of_a: Mapping[str, set[int]],
    whole_a: set[int],
    of_b: Mapping[str, set[int]],
    whole_b: set[int],
) -> Pair:
    """The same over everything that two wrote, in whatever cell or file it stands.

    A cell is alike here if almost all of it is somewhere in the other's: what else stands around it
    there takes nothing away.
    """
    shared = whole_a & whole_b
    there = [cell for cell, marks in of_a.items() if _is_within(marks, whole_b)]
    here = [cell for cell, marks in of_b.items() if _is_within(marks, whole_a)]
    alike = [set().union(*(of_a[cell] for cell in there)) & whole_b]
    alike += [set().union(*(of_b[cell] for cell in here)) & whole_a]
    moved = {(cell, _where(of_a[cell], of_b)): of_a[cell] for cell in there}
    moved |= {(_where(of_b[cell], of_a), cell): of_b[cell] for cell in here}
    return replace(
        named,
        score=2 * len(shared) / (len(whole_a) + len(whole_b)),
        shared=len(shared),
        in_alike_cells=max(map(len, alike)),
        moved={
            (cell, other): len(of_a[cell] & of_b[other]) / len(marks)
            for (cell, other), marks in sorted(moved.items())
            if cell != other
        },
    )


def _is_within(marks: set[int], whole: set[int]) -> bool:
    return bool(marks) and len(marks & whole) >= ALIKE * len(marks)


def _where(marks: set[int], cells: Mapping[str, set[int]]) -> str:
    """The cell that holds most of them."""
    return max(sorted(cells), key=lambda cell: len(marks & cells[cell]))


@lru_cache(maxsize=2**14)
def fingerprints(source: str) -> set[int]:
    """A source's fingerprints: the smallest of every WINDOW hashes in a row.

    Cached because a class page needs each source twice; callers must not change the set.
    """
    grams = _grams(normalised(source))
    if len(grams) <= WINDOW:
        return set(grams[:1])
    return {min(grams[i : i + WINDOW]) for i in range(len(grams) - WINDOW + 1)}


def _grams(tokens: list[Token]) -> list[int]:
    """A hash of each GRAM tokens in a row."""
    words = [token.text for token in tokens]
    return [_hash(words[i : i + GRAM]) for i in range(len(words) - GRAM + 1)]


def _hash(words: list[str]) -> int:
    """The same in every process, unlike hash()."""
    return int.from_bytes(hashlib.blake2b("\0".join(words).encode(), digest_size=8).digest(), "big")


def matching_lines(first: str, second: str) -> tuple[set[int], set[int]]:
    """Lines of each source, from 1, that belong to a run of GRAM tokens that the other one has."""
    a, b = normalised(first), normalised(second)
    return _lines_within(a, set(_grams(b))), _lines_within(b, set(_grams(a)))


def _lines_within(tokens: list[Token], grams: set[int]) -> set[int]:
    runs = (i for i, gram in enumerate(_grams(tokens)) if gram in grams)
    return {token.line for i in runs for token in tokens[i : i + GRAM]}


def normalised(source: str) -> list[Token]:
    """The tokens that say what code does, independent of names and layout."""
    source = without_magics(source[:MAX_SOURCE])
    tree = parsed(source)
    mine = None if tree is None else _chosen_names(tree)
    idle = {} if tree is None else dict(_idle(tree))
    keywords = set() if tree is None else _keywords(tree)
    tokens: list[Token] = []
    after_dot, until = False, (0, 0)
    for kind, text, start in _tokens(source):
        until = max(until, idle.get(start, until))
        if start < until:
            continue
        word = text if start in keywords else _word(kind, text, mine, after_dot)
        after_dot = text == "."
        if word:
            tokens.append(Token(word, start[0]))
    return tokens


def _keywords(tree: ast.Module) -> set[tuple[int, int]]:
    """Where a call names an argument: `axis` of `max(axis=axis)` is not the student's to choose."""
    found = (node for node in ast.walk(tree) if isinstance(node, ast.keyword) and node.arg)
    return {(node.lineno, node.col_offset) for node in found}


SYNTAX = ("(", ")", ",", ";", ":", "->")
"""Says little, and much of it can be left out or put in."""


def _word(kind: int, text: str, mine: set[str] | None, after_dot: bool) -> str:
    """What a token counts as; empty if it does not count."""
    if kind == tokenize.NUMBER:
        return "0"
    if kind == tokenize.STRING:
        return "''"
    if kind == tokenize.NAME:
        kept = after_dot or keyword.iskeyword(text) or hasattr(builtins, text)
        if mine is not None:
            kept = (f".{text}" if after_dot else text) not in mine
        return text if kept else "name"
    if kind == tokenize.OP and text not in SYNTAX:
        return text
    return ""


def without_magics(source: str) -> str:
    """Replace notebook commands such as `%time` and `!ls` by empty lines: they are not Python."""
    lines = source.replace("\0", "").splitlines()
    return "\n".join("" if line.lstrip().startswith(("%", "!", "?")) else line for line in lines)


def parsed(source: str) -> ast.Module | None:
    """The syntax tree; None if it is not Python, or nested too deep."""
    try:
        return tree_of(source)
    except SyntaxError:
        return None


NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.ExceptHandler)


def _chosen_names(tree: ast.Module) -> set[str]:
    """Names that this code itself makes, and could have made others; `.name` for self.name."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, NAMED) and node.name:
            names.add(node.name)
        elif isinstance(node, ast.alias) and node.asname:
            names.add(node.asname)
        elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self":
            names |= {f".{node.attr}"} if isinstance(node.ctx, ast.Store) else set()
    return names


Place = tuple[int, int]


def _idle(tree: ast.Module) -> Iterator[tuple[Place, Place]]:
    """Where what does nothing begins and ends: docstrings, other bare constants, annotations."""
    for node in ast.walk(tree):
        parts: list[ast.expr | None] = []
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts.append(node.value)
        if isinstance(node, (ast.arg, ast.AnnAssign)):
            parts.append(node.annotation)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            parts.append(node.returns)
        for part in filter(None, parts):
            yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)


def _tokens(source: str) -> Iterator[tuple[int, str, tuple[int, int]]]:
    """Python's own tokens as far as they go, with an f-string as one string."""
    inside = 0
    starts = getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "TSTRING_START", -1)
    ends = getattr(tokenize, "FSTRING_END", -1), getattr(tokenize, "TSTRING_END", -1)
    text = source.encode("utf-8", "replace").decode()  # of half a character, Python 3.12 has none
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in starts:
                inside += 1
                if inside == 1:
                    yield tokenize.STRING, token.string, token.start
            elif token.type in ends:
                inside -= 1
            elif not inside:
                yield token.type, token.string, token.start
    except (tokenize.TokenError, SyntaxError, IndentationError):
        return
