"""Two steps put into nbgrader's autograding, through its configurable preprocessor lists.

RestoreCells puts back graded cells that a student deleted. RefereedExecute takes the place of stock
Execute: the student's cells run in a process of their own, and each graded cell of `check(...)`
calls is answered by the referee here, which never runs student code. Everything else stays stock.
"""

from __future__ import annotations

import copy
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader import utils
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Bool, Float, Unicode
from traitlets.config import Config

from autograde import bank
from autograde.authoring import CheckCall, check_calls
from autograde.check import as_html, message
from autograde.referee import Verdict, judge, new_seed
from autograde.sandbox.isolation import Isolation
from autograde.sandbox.session import StudentSession
from autograde.sandbox.student import Limits


class RestoreCells(NbGraderPreprocessor):
    """Make a submission's graded cells those of the assignment, whatever became of them.

    A cell counts under the grade_id that the assignment gave it, the last one where there are
    several; points and flags are the assignment's; missing check cells and written answers are put
    back in their order. (Stock DeduplicateIds leaves what stock CheckCellMetadata refuses.)
    """

    source = Unicode(help="The class directory's source notebook").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """Settle the metadata, then insert missing cells after those that stand before them."""
        source = nbformat.read(self.source, as_version=4)
        place = self._settle_metadata(nb, source)
        after = -1
        for cell in source.cells:
            id = _grade_id(cell)
            if id in place:
                after = place[id]
            elif utils.is_grade(cell):
                self.log.warning("Cell '%s' was missing: put back", id)
                after += 1
                nb.cells.insert(after, _without_answer(cell))
                place = {key: i + (i >= after) for key, i in place.items()} | {id: after}
        return nb, resources

    def _settle_metadata(self, nb: NotebookNode, source: NotebookNode) -> dict[str, int]:
        """The assignment's metadata for the last cell of each grade_id; none for other cells."""
        known = {
            _grade_id(cell): cell.metadata.nbgrader for cell in source.cells if _grade_id(cell)
        }
        place: dict[str, int] = {}
        for i, cell in reversed(list(enumerate(nb.cells))):
            id = _grade_id(cell)
            cell.metadata.pop("nbgrader", None)
            if id in known and id not in place:
                cell.metadata["nbgrader"] = copy.deepcopy(known[id])
                place[id] = i
        return place


def _grade_id(cell: NotebookNode) -> str | None:
    metadata = cell.metadata.get("nbgrader")
    return metadata.get("grade_id") if isinstance(metadata, dict) else None


def _without_answer(cell: NotebookNode) -> NotebookNode:
    cell = copy.deepcopy(cell)
    if utils.is_solution(cell):  # a written answer: empty, not ours
        cell.source = "YOUR ANSWER HERE"
    return cell


class RefereedExecute(NbGraderPreprocessor):
    """Run the student's cells in their own process; let the referee answer the check cells."""

    submissions = Unicode(help="The class directory's folder of submissions").tag(config=True)
    verdicts = Unicode(help="File for the reasons behind the points, as JSON").tag(config=True)
    cell_s = Float(60.0, help="Wall time of one cell").tag(config=True)
    answer_s = Float(10.0, help="Wall time of one call by the referee").tag(config=True)
    notebook_s = Float(300.0, help="Wall time of a whole notebook").tag(config=True)
    trusted = Bool(False, help="Run submissions with this user's own rights").tag(config=True)
    hidden = Unicode(help="The class directory, which no submission may see").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: dict) -> tuple[NotebookNode, dict]:
        """Fill in every code cell's outputs and write the verdicts."""
        submission = Path(self.submissions) if self.submissions else None
        limits = Limits(cell_s=self.cell_s, answer_s=self.answer_s, notebook_s=self.notebook_s)
        seed, records = new_seed(), []
        hidden = (Path(self.hidden),) if self.hidden else ()
        isolation = Isolation(trusted=self.trusted, hidden=hidden)
        with StudentSession(submission, limits, isolation) as session:
            for count, cell in enumerate((c for c in nb.cells if c.cell_type == "code"), start=1):
                if utils.is_grade(cell) and not utils.is_solution(cell):
                    verdict = self._referee(session, cell, seed)
                    cell.outputs = [_shown(verdict)]
                    records.append(_record(cell, verdict))
                else:
                    cell.outputs = [_output(plain) for plain in session.run(cell.source)]
                cell.execution_count = count
        if self.verdicts:
            path = Path(self.verdicts)
            path.parent.mkdir(parents=True, exist_ok=True)
            document = {"seed": seed, "ended": session.ended, "checks": records}
            path.write_text(json.dumps(document, indent=2, ensure_ascii=False), "utf-8")
        return nb, resources

    def _referee(self, session: StudentSession, cell: NotebookNode, seed: int) -> Verdict:
        """The verdict of a check cell: of its last call, as nbgrader reads a cell's last value."""
        calls = check_calls(cell.source)
        assert calls, f"{_grade_id(cell)}: release lets only check(...) calls be graded"
        return self._answer(session, calls[-1], seed)

    def _answer(self, session: StudentSession, call: CheckCall, seed: int) -> Verdict:
        exercise = bank.load(call.exercise_id)

        def ask(case: dict[str, Any]) -> Any:
            return session.ask(exercise.id, call.function, case)

        return judge(exercise, ask, seed=seed, parts=call.parts)


def _shown(verdict: Verdict) -> NotebookNode:
    """A check's result as `check` shows it: points for nbgrader, a message for people."""
    text = message(verdict, bank.load(verdict.exercise_id))
    data = {"text/plain": f"{verdict.points:g}", "text/html": as_html(text, verdict.passed)}
    return nbformat.v4.new_output("execute_result", data=data, execution_count=None)


def _record(cell: NotebookNode, verdict: Verdict) -> dict[str, Any]:
    return {
        "grade_id": _grade_id(cell),
        "exercise": verdict.exercise_id,
        "points": verdict.points,
        "max_points": verdict.max_points,
        "status": verdict.status,
        "misconception": verdict.misconception,
        "message": message(verdict, bank.load(verdict.exercise_id)),
        "parts": {result.part.key: result.passed for result in verdict.parts},
    }


def _output(plain: dict[str, Any]) -> NotebookNode:
    """What a student's process reported, as an output of a notebook; anything odd as text."""
    kind = plain.pop("output_type", "")
    try:
        output = nbformat.v4.new_output(kind, **plain)
        nbformat.validate(output, "output", version=4)
    except Exception:
        text = f"(an output of kind {kind!r} that no notebook can hold)"[:200]
        return nbformat.v4.new_output("stream", name="stdout", text=text)
    return output


def refereed(
    config: Config,
    folder: Path,
    assignment: str,
    student: str,
    limits: Limits,
    *,
    trusted: bool = False,
) -> Config:
    """The config of a class directory with the two steps put in, for one submission."""
    from nbgrader.converters import Autograde
    from nbgrader.preprocessors import DeduplicateIds, Execute

    def stock(name: str) -> list:
        return list(Autograde.class_traits()[name].default())

    sanitize, execute = stock("sanitize_preprocessors"), stock("autograde_preprocessors")
    sanitize[sanitize.index(DeduplicateIds)] = RestoreCells
    execute[execute.index(Execute)] = RefereedExecute
    config.Autograde.sanitize_preprocessors = sanitize
    config.Autograde.autograde_preprocessors = execute
    config.RestoreCells.source = str(folder / "source" / assignment / f"{assignment}.ipynb")
    config.RefereedExecute.submissions = str(folder / "submitted" / student / assignment)
    config.RefereedExecute.verdicts = str(verdict_path(folder, assignment, student))
    config.RefereedExecute.hidden = str(folder)
    config.RefereedExecute.trusted = trusted
    for name, value in asdict(limits).items():
        if name.endswith("_s"):
            config.RefereedExecute[name] = value
    return config


def verdict_path(folder: Path, assignment: str, student: str) -> Path:
    """Where the reasons behind a student's points are kept."""
    return folder / "verdicts" / assignment / f"{student}.json"
