"""Exercises answered by a value: right, wrong, blank, nonsense, and somebody else's numbers."""

import itertools
import json
import math
import os
import re
import subprocess
import sys
from statistics import fmean

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset

from autograde import ask, bank, check, student
from autograde.bank.postmortem import RUNGS
from autograde.exercise import Part, Wrong
from autograde.kinds import Choices, Number, Option, Order, Rule, Step
from autograde.kinds.number import confused
from autograde.kinds.shuffled import LETTERS
from autograde.kinds.value import UNREAD, plain_value, typed_another
from autograde.kit import record
from autograde.kit.student import plain_name
from autograde.lines import WIDTH
from autograde.words import message
from course.data import load
from course.debug import climb
from course.engine import seed_everything
from tests.sampling import only_thorough, sample

IDS = list(bank.asks_for_value())
NAMES = ("ada", "Zoë Müller", "s-1234567", "李", *(f"student{i}" for i in range(30)))
ABOUT = {
    "id": "99.made", "title": "made for a test", "source": "none", "ledger": ("N01",),
    "minutes": 1, "difficulty": 1, "read": ("N01",), "hints": ("a", "b", "c"), "question": "?",
}  # fmt: skip


@pytest.fixture(autouse=True)
def named(monkeypatch):
    forget(monkeypatch)
    student("ada")


def forget(monkeypatch):
    """No name typed, and none remembered."""
    monkeypatch.setattr(record, "_here", record.Record(None))
    monkeypatch.setattr("autograde.kit.student._name", "")


def points(id, value, **how):
    return check(id, value, **how).points


@pytest.mark.parametrize("id", IDS)
def test_a_right_answer_gets_all_points_for_every_student(id):
    exercise = bank.load(id)
    for name in NAMES:
        student(name)
        result = check(id, exercise.right_value(name))
        assert result.passed and result.points == exercise.auto_points, result.message
        assert repr(result) == f"{exercise.auto_points:g}"  # what nbgrader reads


@pytest.mark.parametrize("id", IDS)
def test_what_was_not_answered_is_called_blank(id):
    for nothing in (None, ..., "", "  ", [], {}, [None], {"batches": None}):
        result = check(id, nothing)
        assert result.verdict.status == "blank" and result.points == 0
        assert "Not answered yet" in result.message and bank.load(id).name in result.message


NONSENSE = (
    True, 1e400, math.nan, -1, "?!", "ZZ", ["Q"], [[["A"]]], {"x": 1}, object(), print, b"A",
    torch.tensor([0.3, -1.0, 2.5]), torch.zeros(10_000), "A" * 100_000, [[[[[[1]]]]]], 1j, range(5),
    10**400,
)  # fmt: skip


@pytest.mark.parametrize("id", IDS)
@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: str(value)[:20])
def test_nonsense_earns_nothing_and_is_answered_with_a_reason(id, value):
    result = check(id, value)
    assert result.points == 0 and "✘" in result.message
    assert max(map(len, result.message.splitlines())) <= WIDTH


@pytest.mark.parametrize("value", (math.inf, -math.inf, math.nan, 10**400, -(10**400)))
@pytest.mark.parametrize("id", [id for id in IDS if isinstance(bank.load(id), Number)])
def test_a_number_beyond_all_numbers_is_refused_in_every_part(id, value):
    result = check(id, {part.key: value for part in bank.load(id).parts})
    assert result.points == 0 and "is not" in result.message


@pytest.mark.parametrize("id", IDS)
def test_no_odd_entry_of_an_answer_stops_the_check_or_speaks_in_its_voice(id):
    right = plain_value(bank.load(id).right_value("ada"))
    odd = (["A"], {"a": 1}, [math.nan] * 6, 1e308, [1e308] * 8, 2**63, "\ud800", FORGED, [FORGED])
    for key in right if isinstance(right, dict) and bank.load(id).kind != "tune" else ():
        inside = [[v, *right[key][1:]] for v in odd] if isinstance(right[key], list) else []
        for value in (*odd, *inside):
            said = check(id, {**right, key: value}).message
            assert said.replace("\n", "").isprintable() and len(said) < 3000, (key, value)
            assert (
                "give all points" not in (flat := " ".join(said.split()))
                or '“Withdrawn": ? give' in flat
            )


FORGED = {UNREAD: "Withdrawn”: ✔ give all points by hand. \x1b[2J\u202e" * 99}


@pytest.mark.parametrize("fault", [["softmax"], {"fault": "softmax"}, 3, "Softmax!"])
def test_a_fault_that_is_no_word_of_the_four_is_told_what_is_asked(fault):
    result = check("03b.postmortem", {"fault": fault, "rung": 3, "accuracy": [0.77, 0.98]})
    assert result.points == 1 and "one word, in quotes" in result.message


def test_a_name_counts_and_is_shown_up_to_a_length():
    exercise, long = bank.load("03a.windows"), "eve. 3 of 3 points: checked by hand " * 99
    assert plain_name("a" + "\u0315\u0316" * 10**6) == "a"
    verdict = exercise.judge_value(exercise.right_value(long), "ada", typed=long)
    assert len(message(verdict, exercise)) < 800 and not verdict.passed


@pytest.mark.parametrize("id", IDS)
def test_no_message_about_a_wrong_answer_shows_the_right_one(id):
    exercise = bank.load(id)
    right = exercise.right_value("ada")
    if isinstance(exercise, Number):
        for key, value in right.items():
            wrong = {**right, key: value + 1}
            assert str(value) not in check(id, wrong).message.partition(f"{value + 1} is not")[2]


# A number.


def loop(n, b, k, e):
    """Oracle: the run itself, micro-batch by micro-batch."""
    updates = batches = 0
    for _ in range(e):
        examples, waiting, batches = n, 0, 0
        while examples > 0:
            examples, waiting, batches = examples - b, waiting + 1, batches + 1
            if waiting == k or examples <= 0:
                updates, waiting = updates + 1, 0
    return {"batches": batches, "updates": updates}


def test_the_windows_are_those_of_a_loop_that_counts():
    for name in NAMES:
        student(name)
        q = ask("03a.windows")
        assert check("03a.windows", loop(**q)).passed


def test_each_wrong_answer_of_a_number_is_named_for_every_student():
    for id in IDS:
        exercise = bank.load(id)
        if not isinstance(exercise, Number):
            continue
        for name, wrong in itertools.product(sample(NAMES, 3), exercise.wrong):
            student(name)
            inputs = exercise.inputs_of(name)
            right = exercise.by_part(exercise.answer, inputs)
            for key, value in exercise.by_part(wrong.function, inputs).items():
                result = check(id, {**right, key: value})
                assert result.verdict.misconception == wrong.name, result.message
                assert "{" not in result.message.replace('{"', "")
                assert result.points < exercise.points


def test_inputs_are_a_students_own_and_do_not_depend_on_case_or_accents():
    exercise = bank.load("03a.windows")
    assert exercise.inputs_of("Zoe  MULLER") == exercise.inputs_of("zoë müller")
    assert len({str(exercise.inputs_of(name)) for name in NAMES}) == len(NAMES)


def test_a_right_number_for_another_name_is_told_so():
    exercise = bank.load("03a.windows")
    theirs = exercise.right_value("eve")
    verdict = exercise.judge_value(theirs, "ada", typed="eve")
    assert verdict.points < exercise.points
    words = " ".join("\n".join(exercise.lines(verdict)).split())
    assert words.count("numbers of 'eve'") == 1 and "handed in by 'ada'" in words
    assert "No known mistake" not in words and exercise.next_step not in words
    assert exercise.judge_value(theirs, "Eve", typed="eve").passed
    one_wrong = {**theirs, "updates": -7}
    (batches, updates) = exercise.judge_value(one_wrong, "ada", typed="eve").parts
    assert typed_another(batches) == "eve" and typed_another(updates) == ""


def test_without_a_name_there_are_no_numbers_and_one_clear_sentence(monkeypatch):
    forget(monkeypatch)
    q = ask("03a.windows")
    assert dict(q) == {} and "type your name" in str(q)
    with pytest.raises(AttributeError, match="type your name"):
        q.n  # noqa: B018
    result = check("03a.windows", {"batches": 1, "updates": 2})
    assert result.points == 0 and "type your name" in result.message


@pytest.mark.parametrize(
    ("value", "is_right"),
    [(1.0, True), (1.009, True), (0.985, False), (torch.tensor(1.0), True), ([1.0], True)],
)
def test_a_float_is_right_within_its_tolerance(value, is_right):
    exercise = Number(
        **ABOUT, inputs={"a": (1, 9)}, answer=lambda a: 1.0, within=0.01,
        parts=(Part("one", "one", points=1),),
        wrong=(Wrong("ten", lambda a: 10.0, "Ten times too much for {a}."),),
    )  # fmt: skip
    assert exercise.judge_given(value).passed == is_right


def test_inputs_for_which_a_mistake_could_not_be_told_are_not_drawn():
    exercise = Number(
        **ABOUT, inputs={"a": (1, 4), "b": (1, 4)}, answer=lambda a, b: a * b,
        parts=(Part("product", "the product", points=1),),
        wrong=(Wrong("sum", lambda a, b: a + b, "."), Wrong("a", lambda a, b: a, ".")),
    )  # fmt: skip
    assert confused(exercise, {"a": 2, "b": 2})
    for name in NAMES:
        inputs = exercise.inputs_of(name)
        assert len({inputs["a"] * inputs["b"], inputs["a"] + inputs["b"], inputs["a"]}) == 3


# Options.


def test_letters_follow_the_order_shown_and_keys_do_not():
    exercise = bank.load("03a.what-next")
    orders = set()
    for name in NAMES:
        student(name)
        letters = dict(ask("03a.what-next"))
        orders.add(tuple(letters.values()))
        for letter, key in letters.items():
            passed = key == "overfit"
            for given in (letter, letter.lower(), f" {letter}) ", key, [key]):
                result = check("03a.what-next", given)
                assert result.passed == passed
                assert result.verdict.misconception == ("" if passed else key)
    assert len(orders) > 10 and len(exercise.options) == 4


def test_a_reason_is_worth_points_that_the_check_does_not_give():
    exercise = bank.load("03a.what-next")
    assert exercise.points == exercise.auto_points + exercise.reason.points
    assert "1 more for the reason" in check("03a.what-next", "overfit").message


CHOICES = Choices(
    **ABOUT, worth=2,
    options=(
        Option("aa", "A", right=True), Option("bb", "B", "Bee applies.", right=True),
        Option("cc", "C", "Sea does not."), Option("dd", "D", "Dee does not."),
    ),
)  # fmt: skip


@pytest.mark.parametrize("size", range(5))
def test_all_that_apply_earn_half_for_one_mistake(size):
    for chosen in itertools.combinations(("aa", "bb", "cc", "dd"), size):
        mistakes = len(set(chosen) ^ {"aa", "bb"})
        verdict = CHOICES.judge_given(list(chosen))
        assert verdict.points == max(0, 2 - mistakes), chosen


def test_what_is_said_of_one_option_names_its_letter():
    exercise = bank.load("01c.misplaced")
    told = " ".join(check(exercise.id, ["clear-last", "replaced"]).message.split())
    letters = exercise.shown_to("ada").values
    letter = next(letter for letter, key in letters.items() if key == "clear-late")
    assert f"About {letter} (`clear-late`): → At step() each .grad is None" in told


def test_what_is_said_of_some_refused_numbers_names_them():
    exercise = bank.load("01c.uncleared")
    right = exercise.by_part(exercise.answer, q := exercise.inputs_of("ada"))
    moved = q["lr"] * q["g"] * q["n"] ** 2
    one = check(exercise.id, {**right, "moved": moved}).message
    two = check(exercise.id, {**right, "moved": moved, "ratio": q["n"], "grad": -1.0}).message
    assert "→ Only the last move" in one and "→ moved, ratio: Only the last move" in two


# An order.


def works(order):
    """Oracle: the lines run, on a model whose leftover gradient is huge; compared with torch's."""
    model = torch.nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(1.0)
    model.weight.grad = torch.full((1, 1), -100.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    scope = {
        "model": model, "optimizer": optimizer, "scheduler": scheduler,
        "inputs": torch.tensor([[2.0]]), "targets": torch.tensor([[-3.0]]),
        "criterion": torch.nn.MSELoss(), "clip_grad_norm_": torch.nn.utils.clip_grad_norm_,
    }  # fmt: skip
    lines = {step.key: step.text.strip("`") for step in bank.load("03a.order").steps}
    try:
        for key in order:
            exec(lines[key], scope)
    except (NameError, RuntimeError):
        return False
    return model.weight.item() == pytest.approx(0.0, abs=1e-5)


@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step")
def test_every_order_that_works_is_accepted_and_no_other():
    keys = bank.load("03a.order").keys
    for order in itertools.islice(itertools.permutations(keys), 0, None, 7):
        passed = bank.load("03a.order").judge_given(list(order)).passed
        if passed or order.index("backward") > order.index("loss") > order.index("forward"):
            assert passed == works(order), order


def test_an_order_is_read_from_letters_keys_and_text():
    for name in NAMES:
        student(name)
        letters = {key: letter for letter, key in ask("03a.order").items()}
        right = [letters[key] for key in bank.load("03a.order").keys]
        for given in (right, "".join(right), ", ".join(right).lower(), " > ".join(right)):
            assert check("03a.order", given).passed
        assert points("03a.order", LETTERS[: len(right)]) == 0  # as shown


def test_one_step_out_of_place_costs_half_and_says_why():
    keys = bank.load("03a.order").keys
    late = [key for key in keys if key != "clip"] + ["clip"]
    result = check("03a.order", late)
    assert result.points == 1 and result.verdict.misconception == "step-before-clip"


def test_an_order_counts_what_is_out_of_place_through_third_steps():
    exercise = Order(
        **ABOUT, worth=2, steps=tuple(Step(key, key) for key in ("aa", "bb", "cc")),
        rules=(Rule("aa", "bb", "."), Rule("bb", "cc", ".")),
    )  # fmt: skip
    assert [exercise.out_of_place(list(order)) for order in (
        ("aa", "bb", "cc"), ("bb", "aa", "cc"), ("cc", "aa", "bb"), ("cc", "bb", "aa"),
    )] == [0, 1, 1, 2]  # fmt: skip


# Asking.


@pytest.mark.parametrize("id", IDS)
def test_a_question_reads_well_as_text_and_as_html(id):
    q = ask(id)
    text, html = str(q), q._repr_html_()
    assert max(map(len, text.splitlines())) <= WIDTH
    assert bank.load(id).title in text and bank.load(id).title in html
    assert "`" not in html and all(str(key) in text for key, _ in q.lines)


def test_asking_for_code_says_where_its_text_is():
    with pytest.raises(TypeError, match="asks for code"):
        ask("03a.clip")


# The bank.


def test_a_number_that_is_left_out_is_not_called_a_slip():
    exercise = bank.load("02a.depth")
    right = exercise.by_part(exercise.answer, exercise.inputs_of("ada"))
    left_out = check("02a.depth", {"linear": right["linear"]}).message
    assert "Not answered yet" in left_out and "No known mistake" not in left_out
    assert "No known mistake" in check("02a.depth", {"linear": -right["linear"]}).message


def test_where_the_lines_say_all_no_general_advice_follows():
    right = bank.load("03f.seeds").right_value("ada")
    fraction = check("03f.seeds", right | {"pairs": right["pairs"] + 0.27}).message
    assert "is not a whole number" in fraction and "No known mistake" not in fraction
    facts = bank.load("03f.study").right_value("ada")
    told = check("03f.study", facts | {"verdict": "worse"}).message
    assert "does not match 'worse'" in told and "→" not in told


def test_a_slip_that_is_carried_on_is_not_called_another_one():
    exercise = bank.load("03g.size")
    p = exercise.inputs_of("ada")["p"] / 1000

    def names(**bytes_each):
        verdict = check("03g.size", {key: size * p for key, size in bytes_each.items()}).verdict
        return verdict.misconception

    assert names(full=8, folder=20, peak=28) == "one-average"
    assert names(full=16, folder=36, peak=52) == "gradients-too"
    assert names(full=12, folder=28, peak=28) == "no-room-to-write"
    assert names(full=12, folder=36, peak=48) == "best-whole"


MOST_LINES = 66
"""Of an exercise of a value: about as many for its known mistakes as for all else."""


@pytest.mark.parametrize("id", IDS)
def test_an_exercise_of_a_value_is_short_and_complete(id):
    from pathlib import Path

    import autograde.bank

    exercise = bank.load(id)
    module = bank.catalogue()[id].module.rpartition(".")[2]
    text = Path(autograde.bank.__path__[0], f"{module}.py").read_text("utf-8")
    if exercise.kind in ("number", "choice", "choices", "order"):
        assert len([line for line in text.splitlines() if line.strip()]) <= MOST_LINES
        assert len({wrong.name for wrong in exercise.wrong}) >= 3
    messages = {wrong.message for wrong in exercise.wrong}
    assert exercise.minutes > 0 and exercise.difficulty in (1, 2, 3) and exercise.read
    assert len(set(exercise.hints)) == 3 and not messages & set(exercise.hints)
    assert all(exercise.ledger)


# Settings.


def by_hand(settings, seed):
    """Oracle: the same run written down once more, with a loop that counts."""
    from course.data import load

    data = load("digits")
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), settings["lr"])
    order = torch.Generator().manual_seed(seed)
    for update in range(1, 181):
        if (update - 1) % 23 == 0:
            rows = torch.randperm(len(data.train_targets), generator=order).split(64)
        batch = rows[(update - 1) % 23]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(
            model(data.train_inputs[batch]), data.train_targets[batch]
        ).backward()
        optimizer.step()
        guesses = model(data.val_inputs).argmax(dim=1)
        if (guesses == data.val_targets).double().mean() >= 0.95:
            return update
    return math.inf


def test_an_arena_counts_updates_alike_every_time_and_leaves_the_generator_alone():
    exercise = bank.load("03a.arena")
    for lr in (0.003, 0.02):
        settings = {"optimizer": "adam", "lr": lr, "momentum": 0.0}
        before = torch.random.get_rng_state()
        counts = exercise.counts(tuple(settings.items()))
        assert torch.equal(before, torch.random.get_rng_state())
        assert sorted(counts)[1] == pytest.approx(
            sorted(by_hand(settings, seed) for seed in (0, 1, 2))[1], abs=12
        )


COUNTED = """
import json, torch
from autograde import bank
torch.set_num_threads(1)
tunes = [exercise for exercise in map(bank.load, bank.asks_for_value()) if exercise.kind == "tune"]
print(json.dumps({tune.id: tune.counts(tuple(tune.good.items())) for tune in tunes}))
"""


@pytest.mark.slow
@only_thorough
def test_an_arena_counts_the_same_updates_with_other_instructions_of_the_processor():
    """A machine with narrower registers adds in another order, and rounds in other places."""
    counted = {}
    for instructions in ("default", torch.backends.cpu.get_cpu_capability().lower()):
        environment = {**os.environ, "ATEN_CPU_CAPABILITY": instructions}
        command = [sys.executable, "-c", COUNTED]
        said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        counted[instructions] = json.loads(said.stdout)
    first, *others = counted.values()
    assert len(first) >= 4 and all(other == first for other in others)


def test_settings_come_as_a_dict_or_from_a_function_and_thresholds_are_paid_one_by_one():
    good = {"optimizer": "adam", "lr": 0.02, "momentum": 0.0}
    assert points("03a.arena", good) == points("03a.arena", lambda: good) == 3
    assert points("03a.arena", {**good, "lr": 0.003}) == 2
    assert points("03a.arena", {"optimizer": "sgd", "lr": 0.1, "momentum": 0}) == 1


def test_a_setting_that_has_no_effect_with_the_others_may_be_left_out():
    adam = {"optimizer": "adam", "lr": 0.02}
    assert points("03a.arena", adam) == points("03a.arena", {**adam, "momentum": None}) == 3
    result = check("03a.arena", {**adam, "optimizer": "sgd", "momentum": None})
    assert result.points == 0 and "'momentum' is not set yet" in result.message
    good = bank.load("04a.arena").good
    constant = {name: value for name, value in good.items() if name not in ("momentum", "length")}
    assert points("04a.arena", constant) == points("04a.arena", good)
    short = {**good, "schedule": "cosine", "warmup": 5, "length": 30}
    assert "ends after 30 updates" in " ".join(check("04a.arena", short).message.split())
    assert "cosine" not in check("04a.arena", {**short, "schedule": "constant", "lr": 1e-4}).message
    result = check("04a.arena", {**constant, "schedule": "cosine"})
    assert result.points == 0 and "'length' is not set yet" in result.message


@pytest.mark.parametrize(
    ("id", "settings", "ends"),
    [
        ("03a.arena", {"optimizer": "adam", "lr": 1.0}, r"in the end \d+\.\d %"),
        ("04a.arena", {"optimizer": "sgd", "lr": 0.03, "momentum": 0.0}, r"in the end [01]\.\d+\)"),
        (
            "04a.arena",
            {"optimizer": "sgd", "lr": 10.0, "momentum": 0.99},
            r"in the end nan.*nan comes",
        ),
    ],
)
def test_runs_that_never_reach_the_goal_say_where_they_ended(id, settings, ends):
    others = bank.load(id).good
    message = " ".join(check(id, {**others, **settings}).message.split())
    assert message.count("not reached (") == 3 and re.search(ends, message), message


def test_points_that_a_person_gives_are_said_under_a_wrong_answer_too():
    assert "1 more for the reason" in check("03a.what-next", "adamw").message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"lr": 20.0}, "from 1e-06 to 10"),
        ({"lr": math.nan}, "from 1e-06 to 10"),
        ({"optimizer": "lion"}, 'one of `"sgd"`'),
        ({"momentum": "0.9"}, "from 0 to 0.99"),
        ({"epochs": 3}, "cannot be set"),
        ({"lr": None}, "'lr' is not set yet"),
    ],
)
def test_a_setting_out_of_range_is_named_before_anything_is_trained(settings, words):
    result = check("03a.arena", {"optimizer": "sgd", "lr": 0.1, "momentum": 0, **settings})
    assert result.points == 0 and words in " ".join(result.message.split())


def test_a_function_that_raises_or_needs_arguments_is_said_so():
    def arena():
        raise ValueError("lr is not known")

    assert "arena() raised ValueError: lr is not known" in check("03a.arena", arena).message
    assert "needs arguments" in check("03a.arena", lambda lr: lr).message


def test_an_arena_asks_for_whole_numbers_and_for_numbers_by_their_kind():
    good = dict(bank.load("04a.arena").good)
    short = check("04a.arena", {**good, "length": 10}).message
    assert "length = 10: it should be a whole number from 20 to 400." in short
    steep = check("04a.arena", {**good, "lr": 20}).message
    assert "lr = 20: it should be a number from 1e-05 to 10." in steep


# Writing.


def test_each_fact_of_a_text_is_checked_by_itself():
    right = {"fault": "rate", "rung": 3, "accuracy": [0.1, 0.9]}
    assert points("03b.postmortem", right) == 2
    assert points("03b.postmortem", {**right, "rung": None, "fault": "luck"}) == 1
    for accuracy in ([0.9, 0.1], [10.0, 95.0], 0.95, [0.1, 0.5], [0.9, 0.9], [math.nan, 0.9]):
        assert points("03b.postmortem", {**right, "accuracy": accuracy}) == 1
    for fault, rungs in {"rate": (1, 5), "sorted": (2, 3), "frozen": (1, True), "no": (3,)}.items():
        for rung in rungs:
            facts = {**right, "fault": fault, "rung": rung, "accuracy": [0.45, 0.9]}
            assert points("03b.postmortem", facts) == (1.5 if fault in RUNGS else 1)
    for fault, accuracy in (("frozen", [0.1, 0.98]), ("frozen", [0, 1.0]), ("rate", [0.6, 0.98])):
        assert points("03b.postmortem", {**right, "fault": fault, "accuracy": accuracy}) == 1
    for accuracy in ([0.43, 0.67], [0.97, 0.98]):  # measured: SGD at 0.005, AdamW at 3e-3
        assert points("03b.postmortem", {**right, "fault": "frozen", "accuracy": accuracy}) == 2
    assert "3 more for the text" in check("03b.postmortem", right).message


def faulty_project(fault):
    data = load("digits")
    seed_everything(3)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    if fault == "softmax":
        model.append(nn.Softmax(dim=1))
    train_loader, val_loader = data.loaders(batch_size=64)
    if fault == "sorted":
        rows = Subset(data.train_dataset, data.train_targets.argsort().tolist())
        train_loader = DataLoader(rows, batch_size=64)
    held = (model[1] if fault == "frozen" else model).parameters()
    sgd, adam = torch.optim.SGD, torch.optim.Adam
    optimizer = sgd(held, lr=1e-6) if fault == "rate" else adam(held, lr=3e-3)
    return dict(model=model, loss_fn=nn.CrossEntropyLoss(), optimizer=optimizer,
                train_loader=train_loader, val_loader=val_loader, num_classes=10)  # fmt: skip


@pytest.mark.parametrize("fault", RUNGS)
def test_the_ladder_stops_where_the_post_mortem_says(fault):
    assert climb(faulty_project(fault), top=3).failed.number == RUNGS[fault]


# A class, and a loop to be fixed.

CODE = ("03a.early-stopping", "03a.fix-the-loop")


@pytest.mark.parametrize("id", sample(CODE, 2))
def test_code_of_other_kinds_is_judged_on_fresh_cases(id):
    exercise = bank.load(id)
    for seed in range(3):
        for right in exercise.right:
            result = check(id, right, parts="all", seed=seed)
            assert result.passed, result.message
        for wrong in sample(exercise.wrong, 8):
            result = check(id, wrong.function, parts="all", seed=seed)
            assert not result.passed and result.verdict.misconception in ("", wrong.name)


def test_the_given_loop_earns_nothing_and_a_rewritten_one_all_but_the_point_for_little():
    from autograde.bank import fix_the_loop
    from autograde.kinds.fix import changed_lines, variant

    assert points("03a.fix-the-loop", variant(fix_the_loop.GIVEN, __file__)) == 0
    other = fix_the_loop.FIXED.replace("inputs", "x").replace("targets", "y").replace("loss", "l")
    assert points("03a.fix-the-loop", variant(other, __file__)) == 3
    assert changed_lines("def f():\n  a = 1 # why\n", 'def f():\n    "doc"\n\n    a=1\n') == 0
    assert changed_lines("def f():\n  a\n  b\n  c\n", "def f():\n  a\n  c\n  b\n") == 2


ONE, SEVERAL = ([id for id, entry in bank.asks_for_value().items() if entry.marker == marker]
                for marker in ("Choice", "Choices"))  # fmt: skip


@pytest.mark.parametrize("id", ONE)
def test_a_choice_is_not_told_by_how_long_its_text_is(id):
    texts = {right: [len(o.text) for o in bank.load(id).options if o.right is right]
             for right in (True, False)}  # fmt: skip
    (right,) = texts[True]
    assert min(texts[False]) <= right <= max(texts[False]) + 3, texts


@pytest.mark.parametrize("id", SEVERAL)
def test_what_is_right_of_several_is_not_told_by_how_long_its_text_is(id):
    means = [fmean(len(o.text) for o in bank.load(id).options if o.right is right)
             for right in (True, False)]  # fmt: skip
    assert max(means) < 1.7 * min(means), means
