"""What chapters call: exercises that check themselves, and the by-hand code of a strategy.

Exercises live in `playbook/exercises/chapter_NN.py`; the folder is the registry.
"""

import ast
import html
import importlib
import math
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from playbook.answers import read_answer
from playbook.code_as_html import code_as_html
from playbook.spec import Scenario
from playbook.spec.rules import choice
from playbook.strategies import runnable


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercise:
    """A question whose answer is a number that the library computes for the reader's scenario.

    Parameters
    ----------
    id
        Chapter and number, such as "00.1".
    example
        The scenario asked about unless the reader gives one.
    question, solution, working
        Text, number and worked text for a scenario.
    unit
        Unit of the answer, "" for a plain number.
    tolerance
        Relative error that still counts as right.
    hint
        What to think of, without numbers.
    mistakes
        Text for each known wrong answer, by what it gives for a scenario.
    """

    id: str
    example: Callable[[], Scenario]
    question: Callable[[Scenario], str]
    solution: Callable[[Scenario], float]
    working: Callable[[Scenario], str]
    hint: str
    unit: str = ""
    tolerance: float = 0.01
    mistakes: tuple[tuple[str, Callable[[Scenario], float]], ...] = ()

    def accepts(self, answer: float, scenario: Scenario) -> bool:
        """Tell whether an answer is the solution, within the tolerance."""
        return math.isclose(answer, self.solution(scenario), rel_tol=self.tolerance, abs_tol=1e-12)

    def hint_for(self, answer: float, scenario: Scenario) -> str:
        """Return what is known of a wrong answer, else the general hint."""
        for text, wrong in self.mistakes:
            if math.isclose(answer, wrong(scenario), rel_tol=self.tolerance, abs_tol=1e-12):
                return text
        return self.hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What became of an answer: right or wrong, a hint, the working; true if right."""

    id: str
    question: str
    right: bool
    answer: float | None
    hint: str
    working: str
    unit: str

    def __bool__(self) -> bool:
        return self.right

    @property
    def verdict(self) -> str:
        """One line: "right", "not yet" with the hint, or the question if there is no answer."""
        if self.answer is None:
            return f"{self.id}: {self.question}"
        given = f"{self.answer:.4g} {self.unit}".strip()
        return (
            f"{self.id}: {given} is right."
            if self.right
            else f"{self.id}: {given} is not it yet. {self.hint}"
        )

    def __repr__(self) -> str:
        return f"{self.verdict}\n{self.working}" if self.right else self.verdict

    def _repr_html_(self) -> str:
        mark = "" if self.answer is None else "✓ " if self.right else "✕ "
        lines = [f"<b>{mark}{html.escape(self.verdict)}</b>"]
        if self.answer is not None:
            working = html.escape(self.working)
            shown = working if self.right else f"<details><summary>the working</summary>{working}</details>"
            lines.append(shown)
        return "<br>".join(lines)


def check(number: str, answer: "float | str | None" = None, scenario: Scenario | None = None) -> Check:
    """Check an answer to an exercise.

    Parameters
    ----------
    number
        Chapter and number, such as "00.1".
    answer
        A number in the exercise's unit, or a text such as "3/19" or "295 GB"; None shows the question.
    scenario
        The reader's scenario; the exercise's example if None.

    Raises
    ------
    ValueError
        If there is no such exercise, or the answer is no number or has another unit.
    """
    exercise = find_exercise(number)
    asked = exercise.example() if scenario is None else scenario
    given = read_answer(answer, exercise.unit, f"exercise {exercise.id}")
    right = given is not None and exercise.accepts(given, asked)
    return Check(
        id=exercise.id,
        question=exercise.question(asked),
        right=right,
        answer=given,
        hint="" if right or given is None else exercise.hint_for(given, asked),
        working=exercise.working(asked),
        unit=exercise.unit,
    )


@cache
def exercises() -> dict[str, Exercise]:
    """Every exercise by id, from the files of `playbook/exercises`."""
    package = importlib.import_module("playbook.exercises")
    chapters = (
        info.name for info in pkgutil.iter_modules(package.__path__) if info.name.startswith("chapter_")
    )
    modules = (importlib.import_module(f"{package.__name__}.{chapter}") for chapter in sorted(chapters))
    return {exercise.id: exercise for module in modules for exercise in module.EXERCISES}


def find_exercise(number: str) -> Exercise:
    """Return an exercise by its id."""
    found = exercises().get(str(number).strip())
    if found is None:
        raise ValueError(f"there is no exercise {number!r}; exercises are {', '.join(exercises())}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """By-hand code of a strategy: its text, shown as code."""

    strategy: str
    text: str

    @property
    def lines(self) -> int:
        """Lines that are neither empty nor comment nor docstring."""
        return count_code_lines(self.text)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"# strategies/{self.strategy}/ranks.py: by hand, {self.lines} lines of code\n{self.text}"

    def _repr_markdown_(self) -> str:
        title = f"`strategies/{self.strategy}/ranks.py`, {self.lines} lines of code"
        return f"{title}\n\n```python\n{self.text}\n```"

    def _repr_html_(self) -> str:
        title = f"<code>strategies/{self.strategy}/ranks.py</code>, {self.lines} lines of code"
        return f"<p>{title}</p>{code_as_html(self.text)}"


def source(strategy: str) -> Source:
    """Return the by-hand code of a strategy, to read; torch is not imported.

    Raises
    ------
    ValueError
        If there is no such strategy.
    """
    name = choice("strategy", strategy, runnable())
    text = (files("playbook.strategies") / name / "ranks.py").read_text(encoding="utf-8")
    return Source(strategy=name, text=by_hand_part(text))


def by_hand_part(text: str) -> str:
    """Return the definitions that a file lists in `BY_HAND`, in that order."""
    lines, tree = text.splitlines(), ast.parse(text)
    definitions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    listed = next(filter(None, (assigned(node, "BY_HAND") for node in tree.body)), None)
    assert isinstance(listed, ast.Tuple), "ranks.py lists what a chapter shows in BY_HAND"
    shown = [definitions[name.id] for name in listed.elts if isinstance(name, ast.Name)]
    return "\n\n\n".join("\n".join(lines[first_line(node) - 1 : node.end_lineno]) for node in shown)


def assigned(node: ast.stmt, name: str) -> ast.expr | None:
    """Return what a statement assigns to a name, None if it does something else."""
    if not isinstance(node, ast.Assign):
        return None
    named = any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    return node.value if named else None


def first_line(node: ast.FunctionDef | ast.ClassDef) -> int:
    """Return the line that a definition begins on, decorators included."""
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])


def count_code_lines(text: str) -> int:
    """Count the lines of code: what is left without docstrings, comments and empty lines."""
    tree = ast.parse(text)
    documented = [
        n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(n)
    ]
    strings = {
        line for node in documented for line in range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)
    }
    lines = enumerate(text.splitlines(), start=1)
    return sum(
        1 for number, line in lines if number not in strings and line.strip() and line.strip()[0] != "#"
    )
