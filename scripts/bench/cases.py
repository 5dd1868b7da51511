"""Run any FLOP counter on the hand-derived cases of the test suite, tests/counting/cases_*.py.

Only cases with multiply-adds are used. For other operations, each counter has a convention of its own.
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
MAX_EXCESS_SHARE: Final = 0.15  # some counters add biases and activations, a large share at these small shapes

Outcome = Literal["exact", "close", "wrong, reports missing ops", "wrong", "refused"]
OUTCOMES: Final[tuple[Outcome, ...]] = ("exact", "close", "wrong, reports missing ops", "wrong", "refused")


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one counter on one case.

    `ratio` is the counter's figure divided by the true count. The `backward` fields are None if it counts forward only.
    """

    case: str
    forward: Outcome
    ratio: float | None
    backward: Outcome | None = None
    backward_ratio: float | None = None
    reason: str = ""


class WrappedFunction(nn.Module):
    """A function as a model. Modules that the function uses are registered, so that counters with module hooks see them."""

    def __init__(self, function: Callable[..., Any], constants: list[Any], tree: TreeSpec) -> None:
        super().__init__()
        self._function, self._constants, self._tree = function, constants, tree
        self.parts = nn.ModuleList({id(part): part for part in _modules((function, *constants))}.values())
        if not any(True for _ in self.parameters()):
            self.empty = nn.Parameter(torch.empty(0))  # some counters read the device of the first parameter

    def forward(self, *tensors: Tensor) -> Any:
        """Call the function with `tensors` and its constant arguments."""
        remaining = iter(tensors)
        return self._function(
            *tree_unflatten([next(remaining) if value is None else value for value in self._constants], self._tree)
        )


def wrap_function(function: Callable[..., Any], *args: Any) -> tuple[WrappedFunction, Inputs]:
    """Return a model that calls `function`, and the tensors among `args` as its inputs."""
    leaves, tree = tree_flatten(args)
    constants = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    return WrappedFunction(bind_late(function), constants, tree), tuple(
        leaf for leaf in leaves if isinstance(leaf, Tensor)
    )


def bind_late(function: Any) -> Any:
    """Return a callable that looks up `function` by name at each call, because some counters patch torch's functions."""
    if isinstance(function, partial):
        return partial(bind_late(function.func), *function.args, **function.keywords)
    location = _LOCATIONS.get(id(function))
    return function if location is None else _LateBound(*location)


class _LateBound:
    def __init__(self, module: Any, name: str) -> None:
        self._module, self._name = module, name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._module, self._name)(*args, **kwargs)

    def __deepcopy__(self, memo: object) -> _LateBound:
        return self  # Python modules cannot be copied


# id of a torch function -> (module, name), collected before any counter patches torch
_LOCATIONS: Final = {
    id(value): (module, name)
    for module in (torch, F, torch.linalg, torch.fft)
    for name, value in vars(module).items()
    if callable(value) and not isinstance(value, type)
}


def _modules(values: Any) -> Iterator[nn.Module]:
    """Yield the modules that functions use: as arguments, in a partial or in a closure."""
    for value in values:
        if isinstance(value, nn.Module):
            yield value
        elif isinstance(value, partial):
            yield from _modules((value.func, *value.args, *value.keywords.values()))
        elif isinstance(value, FunctionType):
            yield from _modules(cell.cell_contents for cell in value.__closure__ or ())


def load_cases() -> dict[str, Any]:
    """Load the cases with multiply-adds. The keys are ``family: name``."""
    folder = str(Path(__file__).resolve().parents[2] / "tests" / "counting")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    tables = {family: importlib.import_module(f"cases_{family}") for family in FAMILIES}
    for table in tables.values():
        for name, value in [*vars(table).items()]:
            setattr(table, name, bind_late(value))
    return {f"{family}: {case.name}": case for family, table in tables.items() for case in table.CASES if case.macs}


def run_cases(peer: Peer, device: str) -> Iterator[Answer]:
    """Run `peer` on every case. A case that does not support `device` runs on its first supported device."""
    tensor_factory = importlib.import_module("case_table").On
    for name, case in load_cases().items():
        case_device = device if device in case.devices else case.devices[0]
        yield _run_case(peer, name, case, partial(_build, case, tensor_factory(case_device)))


def _build(case: Any, tensor_factory: Any) -> tuple[WrappedFunction, Inputs]:
    return wrap_function(*case.build(tensor_factory))


def _run_case(peer: Peer, name: str, case: Any, build: Callable[[], tuple[WrappedFunction, Inputs]]) -> Answer:
    figure = _count(peer.forward, build)
    if isinstance(figure, str):
        answer = Answer(name, "refused", None, reason=figure)
    else:
        ratio = figure.forward / (2 * case.macs)
        answer = Answer(name, _classify(ratio, figure), ratio, reason=", ".join(figure.missing_ops))
    if peer.step is None or not case.backward:
        return answer
    step = _count(peer.step, build)
    if isinstance(step, str) or step.backward is None:
        return replace(answer, backward="refused", reason=answer.reason or str(step))
    ratio = step.backward / (2 * case.backward)
    return replace(answer, backward=_classify(ratio, step), backward_ratio=ratio)


def _count(count: PeerCounter, build: Callable[[], tuple[WrappedFunction, Inputs]]) -> Figure | str:
    """Return the figure, or the first line of the error."""
    try:
        return count(*build())()
    except (Exception, SystemExit) as error:  # noqa: BLE001 -- any error of a counter is a result
        text = str(error).strip() or "no error message"
        return f"{'' if isinstance(error, RefusedError) else type(error).__name__ + ': '}{text.splitlines()[0]}"


def _classify(ratio: float, figure: Figure) -> Outcome:
    if ratio == 1.0:
        return "exact"
    if 1.0 < ratio <= 1.0 + MAX_EXCESS_SHARE:
        return "close"
    return "wrong, reports missing ops" if figure.missing_ops else "wrong"
