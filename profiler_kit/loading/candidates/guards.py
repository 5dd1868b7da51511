"""Whether a program reaches a call, from the ``if`` statements around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Final

from profiler_kit.loading.candidates.candidate import Candidate
from profiler_kit.loading.candidates.sites import CallSite
from profiler_kit.loading.program.slices import Place
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
            for place, test, expected in _tests(candidate.site):
                tests += 1
                if tests > _MAX_TESTS or not _holds(evaluator, place, test, expected):
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


def _tests(site: CallSite) -> Iterator[tuple[Place, ast.expr, bool]]:
    """(place, test, the value that reaches the call) of the ``if`` statements around `site`, the innermost first."""
    body = site.place.scopes[-1].body if site.place.scopes else site.document.tree.body
    around: list[tuple[ast.If, bool]] = []
    statements: list[ast.stmt] = list(body)
    while True:
        inside = next((s for s in statements if site.call in ast.walk(s)), None)
        if inside is None or inside is site.place.statement:
            break
        if isinstance(inside, ast.If):
            in_body = any(site.call in ast.walk(s) for s in inside.body)
            if "__name__" not in {n.id for n in ast.walk(inside.test) if isinstance(n, ast.Name)}:
                around.append((inside, in_body))
            statements = inside.body if in_body else inside.orelse
            continue
        blocks = [getattr(inside, field, []) for field in ("body", "orelse", "finalbody")]
        blocks += [handler.body for handler in getattr(inside, "handlers", [])]
        statements = next((b for b in blocks if any(site.call in ast.walk(s) for s in b)), [])
    for statement, expected in reversed(around):
        yield Place(document=site.document, scopes=site.place.scopes, statement=statement), statement.test, expected
