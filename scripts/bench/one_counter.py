"""Measure one counter on one network: figures, time and memory. `count` starts a process for each counter."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import torch
from torch import nn

from scripts.bench.networks.counted import MODELS, true_macs
from scripts.bench.peers import Figure, Inputs, Peer, first_tensor

Callback = Callable[[], object]
STATUS: Final = Path("/proc/self/status")
MAX_CPU_BYTES: Final = 1 << 30  # size limit of real weights, for counters that do not support meta tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Figures, times and memory of one counter on one network. None marks an unsupported measurement.

    Units: times are ms of CPU time. `forward_ratio` and `backward_ratio` are the counter's figure / true count.
    `prepare_ms` is its preparation before counting. `peak_bytes` excludes imports and the count of one linear layer.
    `note` describes failures and ops that the counter reports as missing.
    """

    forward_ratio: float | None = None
    backward_ratio: float | None = None
    prepare_ms: float | None = None
    forward_ms: float | None = None
    bare_forward_ms: float | None = None
    step_ms: float | None = None
    bare_step_ms: float | None = None
    peak_bytes: int | None = None
    note: str = ""


def measure(peer: Peer, network: str, repeats: int) -> Measurement:
    """Measure `peer` on a network of `networks.counted` on meta tensors; return only a note if it fails."""
    with contextlib.suppress(Exception):
        peer.forward(nn.Linear(2, 2, device="meta"), (torch.zeros(2, 2, device="meta"),))()  # trigger late imports
    model, inputs = MODELS[network]()
    true_flops = 2 * true_macs(network, backward=False)
    model.eval()  # forward is counted in evaluation mode; some counters switch to it and do not switch back
    before_bytes = reset_peak()
    try:
        started = time.process_time()
        count = peer.forward(model, inputs)
        prepare_ms = (time.process_time() - started) * 1e3
        figure = count()
    except Exception as error:  # noqa: BLE001 -- any error of a counter is a result
        return Measurement(note=f"fails on meta tensors: {_error_line(error)}")
    peak = peak_bytes()
    with torch.no_grad():
        bare_ms, forward_ms = time_alternating([lambda: model(*inputs), count], repeats)
    backward_ratio = bare_step_ms = step_ms = None
    if peer.step is not None:
        model.train()
        count_step = peer.step(model, inputs)
        backward_ratio = _backward_ratio(count_step(), network)
        bare_step_ms, step_ms = time_alternating([lambda: bare_step(model, inputs), count_step], repeats)
    return Measurement(
        forward_ratio=figure.forward / true_flops,
        backward_ratio=backward_ratio,
        prepare_ms=prepare_ms,
        forward_ms=forward_ms,
        bare_forward_ms=bare_ms,
        step_ms=step_ms,
        bare_step_ms=bare_step_ms,
        peak_bytes=None if before_bytes is None or peak is None else max(0, peak - before_bytes),
        note=_missing_ops_note(figure),
    )


def bare_step(model: nn.Module, inputs: Inputs) -> None:
    """Run a bare forward and backward pass, the baseline for counters that run the model."""
    first_tensor(model(*inputs)).sum().backward()
    model.zero_grad(set_to_none=True)


def time_alternating(callbacks: Sequence[Callback], repeats: int) -> list[float]:
    """Return the median CPU time of each callback in ms. The callbacks alternate; the first round fills caches."""
    times: list[list[float]] = [[] for _ in callbacks]
    for number in range(repeats + 1):
        for times_ms, callback in zip(times, callbacks, strict=True):
            started = time.process_time()
            callback()
            if number:
                times_ms.append((time.process_time() - started) * 1e3)
    return [median(times_ms) for times_ms in times]


def reset_peak() -> int | None:
    """Reset the peak of resident memory and return the current value; None on systems other than Linux."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status_bytes("VmRSS")


def peak_bytes() -> int | None:
    """Return the peak of resident memory since `reset_peak`."""
    return _status_bytes("VmHWM")


def _status_bytes(field: str) -> int | None:
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), None)


def count_on_cpu(peer: Peer, network: str) -> Measurement:
    """Count a network with `peer` on real CPU tensors; return only a note if its weights exceed `MAX_CPU_BYTES`.

    Call this in a fresh process: a counter that failed on meta tensors may leave torch patched.
    """
    model, inputs = MODELS[network]()
    if sum(parameter.nbytes for parameter in model.parameters()) > MAX_CPU_BYTES:
        return Measurement(note="too large for the CPU")
    cpu_model = model.to_empty(device="cpu").eval()
    cpu_inputs = tuple(torch.zeros(tensor.shape, dtype=tensor.dtype) for tensor in inputs)
    try:
        figure = peer.forward(cpu_model, cpu_inputs)()
    except Exception as error:  # noqa: BLE001 -- any error of a counter is a result
        return Measurement(note=f"fails on the CPU: {_error_line(error)}")
    ratio = figure.forward / (2 * true_macs(network, backward=False))
    return Measurement(
        forward_ratio=ratio, note="; ".join(["counted on the CPU", *filter(None, [_missing_ops_note(figure)])])
    )


def _backward_ratio(figure: Figure, network: str) -> float | None:
    if figure.backward is None:
        return None
    true_backward_macs = true_macs(network, backward=True) - true_macs(network, backward=False)
    return figure.backward / (2 * true_backward_macs)


def _missing_ops_note(figure: Figure) -> str:
    return f"reports {len(figure.missing_ops)} kinds of ops as missing" if figure.missing_ops else ""


def _error_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or ["no error message"]
    return f"{type(error).__name__}: {lines[0][:80]}"
