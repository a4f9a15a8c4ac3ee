"""01c.check-workspace: are the packages there, and new enough? A check that can fail."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError

import torch

from autograde.bank.common_wrong import common
from autograde.bank.harness import Watch
from autograde.exercise import Answer, AnswerError, Case, Draw, Exercise, Part, Wrong, kept
from autograde.kinds.fix import variant
from course.debug.workspace import problems

NAMES = ("torch", "numpy", "pillow", "rich", "tqdm", "dask")


def draw(source: Draw, part: str) -> Case:
    """What is needed, and what is installed; of both, only what the part asks about is hard."""
    major, minor = source.integer(2, 4), source.integer(3, 7)
    good, old = f"{major}.{minor + 1}", f"{major}.{minor - 1}"
    least = f"{major}.{minor}"
    installed: dict[str, str] = {}
    needs = dict.fromkeys(source.shuffled(NAMES), least)
    for place, name in enumerate(needs):
        installed[name] = (good, least, f"{major + 1}.0", good, good, least)[place]
    names = list(needs)
    if part == "missing":  # two gone, one of them first or last; in the third case none
        gone = [(0, 3), (2, 5), ()][source.index]
        installed = {n: v for n, v in installed.items() if names.index(n) not in gone}
    if part == "old":
        hard = {1: old, 4: f"{major - 1}.{minor + 2}"}
        installed |= {names[place]: text for place, text in hard.items()}
        needs[names[5]] = f"{least}.0" if source.index else least  # the same version
    if part == "digits":  # 2.10 against 2.9, and 10.0 against 9.5: as texts the other way round
        needs |= {names[0]: f"{major}.9", names[1]: f"{major}.1{minor}", names[2]: "9.5"}
        installed |= {names[0]: f"{major}.1{minor}", names[1]: f"{major}.9", names[2]: "10.0"}
        needs[names[3]], installed[names[3]] = f"{major}.{minor}.12", f"{major}.{minor}.2"
        needs[names[4]], installed[names[4]] = f"{major}.1", f"{major - 1}.150"
    if part == "forms":
        installed |= {names[0]: f"{least}.0+cpu", names[1]: f"{old}.9+cu12.8", names[3]: least}
        needs[names[3]] = f"{least}.0"
        installed[names[4]], needs[names[4]] = least, f"{least}.3"
        zero = ".0" * source.index
        installed[names[2]], needs[names[2]] = f"{least}{zero}+cu12.8", f"{least}.5"
        whole = (str(major), f"{major}.0.0")
        installed[names[5]], needs[names[5]] = whole if source.index else whole[::-1]
    return {"needs": needs, "installed": installed}


class Installed:
    """The function `version_of`, which shows what it knows where a case is printed."""

    def __init__(self, look_up: Callable[[str], str], known: str) -> None:
        self._look_up, self._known = look_up, known

    def __call__(self, name: str) -> str:
        return self._look_up(name)

    def __repr__(self) -> str:
        return f"a function, for which {self._known} are installed"


def run(function, case: Case, device: torch.device) -> Answer:
    """What was returned, and whether what was handed over is as it was."""
    needs, versions, asked = dict(case["needs"]), case["installed"], []

    def look_up(name: str) -> str:
        asked.append(name)
        if name in versions:
            return versions[name]
        raise PackageNotFoundError(name)

    watch = Watch(data={"needs": needs})
    known = ", ".join(f"{name} {version}" for name, version in versions.items())
    found = kept(as_problems, function(needs, Installed(look_up, known)))
    return {"called": bool(asked), "problems": found, "disturbed": watch.changed()}


def as_problems(returned: object) -> dict[str, str]:
    """The problems by name, in alphabetical order: the order is free."""
    if not isinstance(returned, dict):
        kind = type(returned).__name__
        raise AnswerError(f"It returned a {kind}; return a dictionary of the problems by name.")
    for name, problem in returned.items():
        if not isinstance(name, str) or not isinstance(problem, str):
            raise AnswerError("Names and problems are strings: {'torch': 'too old'}.")
    return dict(sorted(returned.items()))


def reference(needs, version_of) -> dict[str, str]:
    """The course's own."""
    return problems(needs, version_of)


SCRIPT = """
def check_workspace(needs, version_of):
    def numbers(release):
        parts = [int(part) for part in release.split("+")[0].split(".")]
        return parts + [0] * (4 - len(parts))

    found = {}
    for name, least in needs.items():
        try:
            installed = version_of(name)
        except Exception:
            found[name] = "missing"
            continue
        if numbers(installed) < numbers(least):
            found[name] = "too old"
    return found
"""
COMPARED = "numbers(installed) < numbers(least)"
CAUGHT = '            found[name] = "missing"\n'
PADDED = " + [0] * (4 - len(parts))"
CUT = '.split("+")[0]'

slip = partial(variant, SCRIPT, __file__)
as_texts = slip((COMPARED, "installed < least"))
numbers_as_texts = slip(("int(part)", "part"), ("[0] *", '["0"] *'))
as_floats = slip((COMPARED, 'float(".".join(installed.split("+")[0].split(".")[:2])) < '
                  'float(".".join(least.split(".")[:2]))'))  # fmt: skip
major_only = slip((COMPARED, "numbers(installed)[0] < numbers(least)[0]"))
minor_only = slip((COMPARED, "numbers(installed)[1] < numbers(least)[1]"))
two_numbers = slip((COMPARED, "numbers(installed)[:2] < numbers(least)[:2]"))
any_number = slip((COMPARED, "any(a < b for a, b in zip(numbers(installed), numbers(least)))"))
two_numbers_unpadded = slip((PADDED, ""), (COMPARED, "numbers(installed)[:2] < numbers(least)[:2]"))
any_number_unpadded = slip(
    (PADDED, ""), (COMPARED, "any(a < b for a, b in zip(numbers(installed), numbers(least)))")
)
not_padded = slip((PADDED, ""))
suffix_kept = slip((CUT, ""))
digits_joined = slip((COMPARED, 'int(installed.split("+")[0].replace(".", "")) < '
                      'int(least.replace(".", ""))'))  # fmt: skip
in_hundreds = slip((PADDED, PADDED + "\n\n    def joined(release):\n"
                    "        first, second, third, _ = numbers(release)\n"
                    "        return (first * 100 + second) * 100 + third"),
                   (COMPARED, "joined(installed) < joined(least)"))  # fmt: skip
SHORTER = "next((a < b for a, b in zip(numbers(installed), numbers(least)) if a != b), False)"
shorter_decides = slip((PADDED, ""), (COMPARED, SHORTER))
none_if_fine = slip(("    return found\n", "    return found or None\n"))
DIGITS = 'int("".join(filter(str.isdigit, part)) or 0)'
suffix_as_number = slip(("int(part)", DIGITS), (CUT, '.replace("+", ".")'))
suffix_cut_late = slip((CUT, ""), ("int(part)", 'int(part.split("+")[0])'))
suffix_joined = slip(("int(part)", DIGITS), (CUT, ""))
capitals = slip(('"missing"', '"Missing"'))
equal_is_too_old = slip(("< numbers", "<= numbers"))
must_be_equal = slip(("< numbers", "!= numbers"))
turned_round = slip(("< numbers", "> numbers"))
never_missing = slip((CAUGHT, ""))
missing_is_old = slip(('"missing"', '"too old"'))
old_is_missing = slip(('"too old"', '"missing"'))
stops_at_the_first = slip(("            continue\n", "            return found\n"))
not_caught = slip(("except Exception", "except ImportWarning"))
always_well = slip(("    return found\n", "    return {}\n"))
all_of_them = slip(('            found[name] = "too old"\n',
                    '            found[name] = "too old"\n        else:\n'
                    '            found[name] = "ok"\n'))  # fmt: skip
whether = slip(("    return found\n", "    return not found\n"))
names_only = slip(("    return found\n", "    return list(found)\n"))
a_sentence = slip(('"too old"', 'f"{name} is too old"'))


ITS_OWN = ("version_of(name)", "version(name)"), ("    found = {}\n",
    "    from importlib.metadata import version\n\n    found = {}\n")  # fmt: skip
own_lookup = slip(*ITS_OWN)


def with_a_regular_expression(needs, version_of):
    import re
    from itertools import zip_longest

    def is_older(a, b):
        pairs = (re.match(r"[\d.]+", text)[0].split(".") for text in (a, b))
        for left, right in zip_longest(*pairs, fillvalue="0"):
            if int(left) != int(right):
                return int(left) < int(right)
        return False

    result = {}
    for name in needs:
        try:
            if is_older(version_of(name), needs[name]):
                result[name] = "too old"
        except PackageNotFoundError:
            result[name] = "missing"
    return result


def with_packaging(needs, version_of):
    from packaging.version import Version

    def judged(name):
        try:
            return "too old" if Version(version_of(name)) < Version(needs[name]) else ""
        except ImportError:
            return "missing"

    return {name: said for name in sorted(needs) if (said := judged(name))}


def first_problem_alone(needs, version_of):
    for name in needs:
        if found := with_packaging({name: needs[name]}, version_of):
            return found
    return {}


def with_one_number(needs, version_of):
    def number(text):
        parts = [*map(int, text.partition("+")[0].split(".")), 0, 0, 0]
        return (parts[0] * 1000 + parts[1]) * 1000 + parts[2]

    installed = {}
    for name in needs:
        try:
            installed[name] = number(version_of(name))
        except PackageNotFoundError:
            installed[name] = None
    gone = {name: "missing" for name, has in installed.items() if has is None}
    older = [n for n, has in installed.items() if has is not None and has < number(needs[n])]
    return {**dict.fromkeys(older, "too old"), **gone}


EXERCISE = Exercise(
    id="01c.check-workspace",
    title="a workspace check that can fail",
    source="Module 2, lab 1",
    ledger=("X23",),
    minutes=12,
    difficulty=1,
    read=("course.debug.workspace",),
    hints=(
        "For each package, ask three questions: is it there, is it new enough, what do I report?",
        "Catch the exception only around version_of. Compare versions as lists of numbers: [2, "
        "10] is more than [2, 9], but as strings it is the other way round.",
        "Cut at the '+', split at the dots, int() each part, pad with zeros to three numbers: "
        "lists of equal length compare as versions do.",
    ),
    signature="check_workspace(needs, version_of)",
    parts=(
        Part("missing", "packages that are not there", points=1, cases=3),
        Part("old", "packages that are too old", points=1),
        Part("digits", "versions with two-digit numbers", points=1),
        Part("forms", "2.11 and 2.11.0, and what follows a +", points=1, hidden=True),
    ),
    reference=reference,
    draw=draw,
    run=run,
    says={"called": "whether version_of was called:", "problems": "the problems found:"},
    wrong=(
        Wrong("as-texts", as_texts,
              "Versions were compared as strings, character by character, where 2.10 comes before "
              "2.9. Compare their numbers."),
        Wrong("as-texts", numbers_as_texts),
        Wrong("as-floats", as_floats,
              "Versions were compared as decimal numbers, where 2.10 is 2.1. Compare number by "
              "number."),
        Wrong("major-only", major_only,
              "Only the first number was compared: 2.1 passed for 2.11."),
        Wrong("minor-only", minor_only,
              "Only the second number was compared, but the first one decides before it."),
        Wrong("two-numbers", two_numbers,
              "Only two numbers were compared: 2.3.2 passed for 2.3.12."),
        Wrong("any-number", any_number,
              "A version counted as too old if any of its numbers was smaller, but 3.0 is newer "
              "than 2.11. The first number that differs decides."),
        Wrong("two-numbers", two_numbers_unpadded),
        Wrong("any-number", any_number_unpadded),
        Wrong("not-padded", not_padded,
              "2.11 was called older than 2.11.0: a shorter list of numbers counts as smaller. "
              "Pad with zeros."),
        Wrong("suffix-kept", suffix_kept,
              "What follows the + is not part of the number: cut 2.11.0+cpu at the +.",
              raises="invalid literal for int|ValueError"),
        Wrong("suffix-counted", suffix_as_number,
              "What follows the + counted as part of the version: 2.11+cu128 passed for 2.11.5. "
              "Cut at the + first.", sure=True),
        Wrong("suffix-counted", suffix_joined, sure=True),
        Wrong("suffix-counted", suffix_cut_late, sure=True),
        Wrong("shorter-decides", shorter_decides,
              "2.11 passed for 2.11.3: only as many numbers were compared as the shorter version "
              "has. A missing number is 0.", sure=True),
        Wrong("digits-joined", in_hundreds,
              "2.150 passed for 3.1: the numbers were joined into one, in which a long one spills "
              "into the place before it. Compare lists, number by number.", sure=True),
        Wrong("digits-joined", digits_joined, sure=True),
        Wrong("none-if-fine", none_if_fine,
              "When nothing was wrong, it returned None. Return the dictionary, which is then "
              "empty.", sure=True),
        Wrong("equal-is-too-old", equal_is_too_old,
              "A version equal to the lowest one that will do was called too old."),
        Wrong("must-be-equal", must_be_equal,
              "Newer versions were called too old. `needs` gives the lowest one that will do."),
        Wrong("turned-round", turned_round,
              "Newer versions were called too old, and older ones were not: the comparison is the "
              "wrong way round."),
        Wrong("never-missing", never_missing,
              "A package that is not there was not reported. A check that cannot fail proves "
              "nothing.", sure=True),
        Wrong("missing-is-old", missing_is_old,
              "A package that is not there was called too old. Report it as 'missing'."),
        Wrong("old-is-missing", old_is_missing,
              "A package that is too old was called missing."),
        Wrong("stops-at-the-first", stops_at_the_first,
              "What came after the first missing package was not checked. Continue to the end."),
        Wrong("first-problem-alone", first_problem_alone,
              "Only the first problem was returned. Is there a return inside the loop?"),
        Wrong("not-caught", not_caught,
              "version_of raised, as it does for a package that is not there, and nothing caught "
              "it. Put try and except around the call.", raises="^PackageNotFoundError"),
        Wrong("always-well", always_well,
              "It returned {} although something was wrong. Return what was found.", sure=True),
        Wrong("all-of-them", all_of_them,
              "Packages that are fine were in the result. Only problems belong there."),
        Wrong("own-lookup", own_lookup,
              "version_of was never called: the answer is about the packages of the machine that "
              "it ran on. Call version_of(name), which is passed in.", sure=True),
        Wrong("capitals", capitals),
        Wrong("whether", whether),
        Wrong("names-only", names_only),
        Wrong("a-sentence", a_sentence),
        *common(with_one_number, "returns-none", "returns-text"),
    ),
    right=(with_a_regular_expression, with_packaging, with_one_number),
)  # fmt: skip
