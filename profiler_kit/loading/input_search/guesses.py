"""Results of a search for inputs."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.loading.input_search.facts import Facts
from profiler_kit.loading.input_search.outcomes import Failure
from profiler_kit.loading.inputs import InputText


@dataclass(frozen=True, kw_only=True)
class InputGuess:
    """Inputs that the search found to run, as ``-i`` texts, and the number of trials.

    `doubt` says why forward did not run to its end: it reads values, which tensors without data do not have, or takes long. The
    shapes fit up to there. It is empty if forward ran.
    `output_shapes` are the shapes of the tensors that forward returned.
    """

    texts: tuple[InputText, ...]
    doubt: str
    trials: int
    facts: Facts
    output_shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class NoGuess:
    """The failure that remained when the search ended, and the inputs with which forward got furthest.

    `is_unavoidable`: it is the same for all inputs that got so far, and its code looks at none.
    """

    texts: tuple[InputText, ...]
    failure: Failure | None
    trials: int
    is_unavoidable: bool = False
