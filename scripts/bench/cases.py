"""The hand-derived cases of the test suite, put to any counter: tests/counting/cases_*.py.

Only cases that multiply and add are put: for the rest, each counter has a convention of its own.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, Final, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from scripts.bench.peers import Counter as PeerCounter
from scripts.bench.peers import Figure, Inputs, Peer, RefusedError

FAMILIES: Final = ("products", "convolution", "attention", "recurrent", "other")
MORE: Final = 0.15  # what biases and activations may add, which some counters count: the shapes are small

Outcome = Literal["exact", "close", "wrong, and says so", "wrong", "refused"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("exact", "close", "wrong, and says so", "wrong", "refused")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a counter made of one case: its figure over the truth, and which outcome that is; of backward too, or None."""

    case: str
    forward: Outcome
    ratio: float | None
    backward: Outcome | None = None
    backward_ratio: float | None = None
    why: str = ""


class Wrapped(nn.Module):
    """A function as a model, without its tensors; modules that it holds are found by counters that hook modules."""

    def __init__(self, function: Callable[..., Any], others: list[Any], form: TreeSpec) -> None:
        super().__init__()
        self._function, self._others, self._form = function, others, form
        self.parts = nn.ModuleList({id(part): part for part in _modules((function, *others))}.values())
        if not any(True for _ in self.parameters()):
            self.nothing = nn.Parameter(torch.empty(0))  # some counters ask the first parameter for its device

    def forward(self, *tensors: Tensor) -> Any:
        """The function of `tensors`, and of its other arguments as they are."""
        given = iter(tensors)
        return self._function(
            *tree_unflatten([next(given) if one is None else one for one in self._others], self._form)
        )


def wrapped(function: Callable[..., Any], *args: Any) -> tuple[Wrapped, Inputs]:
    """A function and its arguments as a model and its tensors."""
    leaves, form = tree_flatten(args)
    others = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return Wrapped(late(function), others, form), tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))


def late(function: Any) -> Any:
    """`function`, looked up by its name when it is called: counters that replace torch's functions do so between the two."""
    if isinstance(function, partial):
        return partial(late(function.func), *function.args, **function.keywords)
    home = _HOMES.get(id(function))
    return function if home is None else _Late(*home)


class _Late:
    def __init__(self, module: Any, name: str) -> None:
        self._module, self._name = module, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._module, self._name)(*args, **kwargs)

    def __deepcopy__(self, memo: object) -> _Late:
        return self  # it holds a module of Python's


# torch's functions, by id, as they are before any counter is imported
_HOMES: Final = {
    id(value): (module, name)
    for module in (torch, F, torch.linalg, torch.fft)
    for name, value in vars(module).items()
    if callable(value) and not isinstance(value, type)
}


def _modules(values: Any) -> Iterator[nn.Module]:
    """The modules that functions hold: as arguments, bound to a partial, or closed over."""
    for value in values:
        if isinstance(value, nn.Module):
            yield value
        elif isinstance(value, partial):
            yield from _modules((value.func, *value.args, *value.keywords.values()))
        elif isinstance(value, FunctionType):
            yield from _modules(cell.cell_contents for cell in value.__closure__ or ())


def library() -> dict[str, Any]:
    """The cases that have multiply-adds, by family and name."""
    folder = str(Path(__file__).resolve().parents[2] / "tests" / "counting")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    tables = {family: importlib.import_module(f"cases_{family}") for family in FAMILIES}
    for table in tables.values():
        for name, value in [*vars(table).items()]:
            setattr(table, name, late(value))
    return {f"{family}: {one.name}": one for family, table in tables.items() for one in table.CASES if one.macs}


def answers(peer: Peer, device: str) -> Iterator[Answer]:
    """What `peer` makes of every case that can run on `device`; of those that cannot, on the other."""
    cases = library()
    made_on = importlib.import_module("case_table").On
    for name, one in cases.items():
        here = device if device in one.devices else one.devices[0]
        yield _answer(peer, name, one, partial(_built, one, made_on(here)))


def _built(one: Any, on: Any) -> tuple[Wrapped, Inputs]:
    return wrapped(*one.build(on))


def _answer(peer: Peer, name: str, one: Any, build: Callable[[], tuple[Wrapped, Inputs]]) -> Answer:
    figure = _asked(peer.forward, build)
    if isinstance(figure, str):
        answer = Answer(name, "refused", None, why=figure)
    else:
        ratio = figure.forward / (2 * one.macs)
        answer = Answer(name, _judged(ratio, figure), ratio, why=", ".join(figure.left_out))
    if peer.step is None or not one.backward:
        return answer
    step = _asked(peer.step, build)
    if isinstance(step, str) or step.backward is None:
        return replace(answer, backward="refused", why=answer.why or str(step))
    ratio = step.backward / (2 * one.backward)
    return replace(answer, backward=_judged(ratio, step), backward_ratio=ratio)


def _asked(count: PeerCounter, build: Callable[[], tuple[Wrapped, Inputs]]) -> Figure | str:
    """The figure, or the first line of what was raised instead."""
    try:
        return count(*build())()
    except (Exception, SystemExit) as error:  # noqa: BLE001 whatever a counter raises is its answer
        text = str(error).strip() or "without a word"
        return f"{'' if isinstance(error, RefusedError) else type(error).__name__ + ': '}{text.splitlines()[0]}"


def _judged(ratio: float, figure: Figure) -> Outcome:
    if ratio == 1.0:
        return "exact"
    if 1.0 < ratio <= 1.0 + MORE:
        return "close"
    return "wrong, and says so" if figure.left_out else "wrong"
