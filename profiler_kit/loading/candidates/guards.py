"""Whether a program reaches a call, from the ``if`` statements around it."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from profiler_kit.loading.candidates.candidate import Candidate
from profiler_kit.loading.program.places import Place, conditions
from profiler_kit.loading.scripts.execution import EvaluationError, Evaluator

_MAX_TESTS: Final = 24  # evaluated for one target; later calls count as reached


def reached_first(candidates: Sequence[Candidate], evaluator: Evaluator) -> list[Candidate]:
    """`candidates` with calls that no program reaches after the others of the same evidence.

    ``if args.model == "rnn": net = RNN() else: net = Transformer()`` builds one of the two, by the default of the argument.
    """
    ordered: list[Candidate] = []
    postponed: list[Candidate] = []
    tests = 0
    is_decided = False
    for index, candidate in enumerate(candidates):
        if index and candidate.evidence != candidates[index - 1].evidence:
            ordered += postponed
            postponed = []
            is_decided = False
        is_reached = True
        if candidate.site is not None and not candidate.is_model and not is_decided:
            place = candidate.site.place
            for statement, expected in conditions(place.document.tree, place.statement):
                tests += 1
                if tests > _MAX_TESTS or not _holds(
                    evaluator, replace(place, statement=statement), statement.test, expected
                ):
                    is_reached = tests > _MAX_TESTS
                    break
            is_decided = is_reached  # the order of later ones does not matter
        (ordered if is_reached else postponed).append(candidate)
    return ordered + postponed


def _holds(evaluator: Evaluator, place: Place, test: ast.expr, expected: bool) -> bool:
    try:
        return bool(evaluator.value(place, test)) is expected
    except (EvaluationError, TypeError, ValueError):
        return True  # unknown
