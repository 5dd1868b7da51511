"""Measurement of one convolution of the grid: the first call and a steady call of each pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import Tensor

from scripts.lab.probe_convolution import Conv
from scripts.lab.probe_device import DTYPES, SLOW_S, STUCK_S, EngineLog, Meter, library_flags, pointer

MASKS: Final = (("dgrad", [True, False, False]), ("wgrad", [False, True, False]), ("backward", [True, True, True]))


def operands(case: Conv, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Input, weight, bias and the gradient of the output."""
    dtype = DTYPES[case.dtype]
    shape = (case.cin, case.cout // case.g, *case.k) if case.t else (case.cout, case.cin // case.g, *case.k)
    x = torch.randn(case.n, case.cin, *case.size, device=device, dtype=dtype)
    w = torch.randn(shape, device=device, dtype=dtype) * 0.01
    dy = torch.randn(case.n, case.cout, *case.out_size(), device=device, dtype=dtype)
    if case.cl:
        layout = torch.channels_last if len(case.k) == 2 else torch.channels_last_3d
        x, w, dy = (v.contiguous(memory_format=layout) for v in (x, w, dy))
    return x, w, torch.randn(case.cout, device=device, dtype=dtype), dy


def measure_convolution(case: Conv, meter: Meter, log: EngineLog, *, benchmark: bool = False) -> dict[str, Any]:
    """First call, steady call, allocations and plans of forward, data gradient, weight gradient and the whole backward.

    A slow call ends the case: the row keeps the figures so far and gets `slow_s`.
    """
    row: dict[str, Any] = {}
    with torch.no_grad(), library_flags(case.dtype, deterministic=case.det, benchmark=benchmark):
        x, w, b, dy = operands(case, meter.device)
        input_pointers = frozenset(pointer(v) for v in (x, w, b, dy))
        shape = [list(case.s), list(case.p), list(case.d), case.t, list(case.op), case.g]
        for name, work in passes(x, w, b, dy, shape):
            try:
                log.plans()
                figures: dict[str, Any] = {"first": meter.call(work, input_pointers)}
                row[name] = figures
                plans = log.plans()
                if plans:
                    figures["plans"] = plans
                if meter.took_s <= STUCK_S:  # the first call may have loaded kernels
                    figures["steady"] = meter.call(work, input_pointers)
                if meter.took_s > SLOW_S:
                    figures["slow_s"] = round(meter.took_s, 3)
                    break
                figures["ev"] = meter.allocations(work)
                meter.wait()
            except RuntimeError as error:
                row[name] = {"error": f"{type(error).__name__}: {str(error)[:160]}"}
                meter.clean()
    return row


def passes(x: Tensor, w: Tensor, b: Tensor, dy: Tensor, shape: list[Any]) -> Iterator[tuple[str, Callable[[], object]]]:
    """The name of each pass and the function that runs it."""
    aten = torch.ops.aten
    yield "forward", lambda: aten.convolution(x, w, b, *shape)
    for name, mask in MASKS:

        def work(mask: list[bool] = mask) -> object:
            return aten.convolution_backward(dy, x, w, [b.shape[0]], *shape, mask)

        yield name, work
