"""Reproducibility and numerics of a configuration, from the seeded start: bits repeated, error against float64."""

from __future__ import annotations

import copy
import ctypes
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from profiler_kit.measure.steps import Runner
from profiler_kit.target import Batch
from profiler_kit.target.compiled import as_written

State = dict[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bits:
    """Whether two passes in this process gave the same bits, and hashes of the first for other processes to compare with."""

    outputs: bool
    gradients: bool | None
    output_digest: str
    gradient_digest: str | None


def seeded_state(runner: Runner) -> State:
    """A copy in host memory of the model's state, to be taken before the first step."""
    return {name: value.detach().to("cpu", copy=True) for name, value in runner.target.model.state_dict().items()}


def bits(runner: Runner, start: State) -> Bits:
    """Runs forward (and backward) twice from `start`, with no optimizer step, and compares every bit."""
    first = _pass(runner, start)
    second = _pass(runner, start)
    trains = runner.train
    return Bits(
        outputs=_same(first[0], second[0]),
        gradients=_same(first[1], second[1]) if trains else None,
        output_digest=_digest(first[0]),
        gradient_digest=_digest(first[1]) if trains else None,
    )


def error_against_float64(runner: Runner, start: State) -> float | None:
    """Largest |out - out64| over the largest |out64| from identical weights; None where there is no floating output.

    The float64 twin runs with benchmark off and as it is written: it is the yardstick, and tuning or compiling it would cost
    time and say nothing.
    """
    target = runner.target
    batch = _seeded(runner, start)
    with torch.no_grad(), target.autocast():
        narrow = [t.double() for t in _floats(target.runs(*batch.args, **batch.kwargs))]
    benchmark = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        _seeded(runner, start)
        twin = as_written(copy.deepcopy(target.model)).double()
        args = [_double(a) for a in batch.args]
        kwargs = {name: _double(value) for name, value in batch.kwargs.items()}
        with torch.no_grad():
            wide = list(_floats(twin(*args, **kwargs)))
    finally:
        torch.backends.cudnn.benchmark = benchmark
    if not wide or len(wide) != len(narrow):
        return None
    scale = max(float(w.abs().max()) for w in wide if w.numel())
    worst = max(float((n - w).abs().max()) for n, w in zip(narrow, wide, strict=True) if w.numel())
    return worst / scale if scale > 0 else None


def _seeded(runner: Runner, start: State) -> Batch:
    runner.target.model.load_state_dict(start)
    torch.manual_seed(runner.target.spec.seed)
    return runner.target.batch


def _pass(runner: Runner, start: State) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    batch = _seeded(runner, start)
    model = runner.target.model
    if not runner.train:
        with torch.no_grad(), runner.target.autocast():
            return [t.detach().cpu() for t in _floats(runner.target.runs(*batch.args, **batch.kwargs))], []
    model.zero_grad(set_to_none=True)
    output = runner.forward_backward(batch)
    gradients = [p.grad.detach().cpu() for p in model.parameters() if p.grad is not None]
    model.zero_grad(set_to_none=True)
    return [t.detach().cpu() for t in _floats(output)], gradients


def _floats(value: object) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _floats(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _floats(item)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _floats(getattr(value, name))


def _double(value: object) -> object:
    return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    # as bytes: a NaN equals itself and -0.0 is not 0.0
    return len(a) == len(b) and all(torch.equal(_as_bytes(x), _as_bytes(y)) for x, y in zip(a, b, strict=True))


def _digest(tensors: list[torch.Tensor]) -> str:
    hashed = hashlib.sha256()
    for tensor in tensors:
        flat = _as_bytes(tensor)
        hashed.update(ctypes.string_at(flat.data_ptr(), flat.numel()))
    return hashed.hexdigest()[:16]


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)
