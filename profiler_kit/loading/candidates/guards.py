"""Whether a program reaches a call, from the ``if`` statements around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profiler_kit.loading.candidates.candidate import Candidate
from profiler_kit.loading.scripts.execution import Evaluator

_MAX_CALLS: Final = 24  # checked for one target; later ones count as reached


def reached_first(candidates: Sequence[Candidate], evaluator: Evaluator) -> list[Candidate]:
    """`candidates` with calls that no program reaches after the others of the same evidence.

    ``if args.model == "rnn": net = RNN() else: net = Transformer()`` builds one of the two, by the default of the argument.
    """
    ordered: list[Candidate] = []
    postponed: list[Candidate] = []
    checked = 0
    is_decided = False
    for index, candidate in enumerate(candidates):
        if index and candidate.evidence != candidates[index - 1].evidence:
            ordered += postponed
            postponed = []
            is_decided = False
        is_reached = True
        if candidate.site is not None and not candidate.is_model and not is_decided:
            checked += 1
            is_reached = checked > _MAX_CALLS or evaluator.reaches(candidate.site.place)
            is_decided = is_reached  # the order of later ones does not matter
        (ordered if is_reached else postponed).append(candidate)
    return ordered + postponed
