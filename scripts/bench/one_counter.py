"""One counter on one network, in the process that `count` starts for it: its figures, its time, its memory."""

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

Work = Callable[[], object]
STATUS: Final = Path("/proc/self/status")
MOST_REAL_BYTES: Final = 1 << 30  # weights that are made for a counter that cannot count on meta tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one counter did with one network; times in ms of CPU, None for what it does not do.

    `forward_ratio`, `backward_ratio`: its figure over the truth. `prepare_ms` is what it makes of the model before it counts.
    `peak_bytes` is above what the imports and the count of one linear layer take. `note` tells what it could not do.
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


def measured(peer: Peer, network: str, repeats: int) -> Measured:
    """What `peer` does with a network of `networks.counted` on meta tensors; a note where it fails."""
    with contextlib.suppress(Exception):
        peer.forward(nn.Linear(2, 2, device="meta"), (torch.zeros(2, 2, device="meta"),))()  # what is imported late
    model, inputs = MODELS[network]()
    truth = 2 * true_macs(network, backward=False)
    model.eval()  # a forward pass alone is that of evaluation, and some counters set it so, for good
    before = resident_bytes()
    try:
        started = time.process_time()
        count = peer.forward(model, inputs)
        prepare_ms = (time.process_time() - started) * 1e3
        figure = count()
    except Exception as error:  # noqa: BLE001 whatever a counter raises is its answer
        return Measured(note=f"fails on meta tensors: {_told(error)}")
    peak = peak_bytes()
    with torch.no_grad():
        bare_ms, forward_ms = timed([lambda: model(*inputs), count], repeats)
    backward_ratio = bare_step_ms = step_ms = None
    if peer.step is not None:
        model.train()
        count_step = peer.step(model, inputs)
        backward_ratio = _backward_ratio(count_step(), network)
        bare_step_ms, step_ms = timed([lambda: bare_step(model, inputs), count_step], repeats)
    return Measured(
        forward_ratio=figure.forward / truth,
        backward_ratio=backward_ratio,
        prepare_ms=prepare_ms,
        forward_ms=forward_ms,
        bare_forward_ms=bare_ms,
        step_ms=step_ms,
        bare_step_ms=bare_step_ms,
        peak_bytes=None if before is None or peak is None else max(0, peak - before),
        note=_left_out(figure),
    )


def bare_step(model: nn.Module, inputs: Inputs) -> None:
    """The bare forward and backward pass: what any counter that runs the model must do at least, one would think."""
    first_tensor(model(*inputs)).sum().backward()
    model.zero_grad(set_to_none=True)


def timed(contenders: Sequence[Work], repeats: int) -> list[float]:
    """The median CPU time of each in ms, taken in turns after a first round that fills caches."""
    times: list[list[float]] = [[] for _ in contenders]
    for turn in range(repeats + 1):
        for taken, work in zip(times, contenders, strict=True):
            started = time.process_time()
            work()
            if turn:
                taken.append((time.process_time() - started) * 1e3)
    return [median(taken) for taken in times]


def resident_bytes() -> int | None:
    """Memory held now, its high-water mark set down to it; None where the system does not tell (elsewhere than on Linux)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status_bytes("VmRSS")


def peak_bytes() -> int | None:
    """The most memory held since `resident_bytes` was asked."""
    return _status_bytes("VmHWM")


def _status_bytes(field: str) -> int | None:
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), None)


def figure_on_the_cpu(peer: Peer, network: str) -> Measured:
    """The figure of `peer` for a network on real tensors, none where its weights would take too much.

    To be asked in a process of its own: what failed on meta tensors may have left torch patched.
    """
    model, inputs = MODELS[network]()
    if sum(parameter.nbytes for parameter in model.parameters()) > MOST_REAL_BYTES:
        return Measured(note="too large to be made for the CPU")
    real = model.to_empty(device="cpu").eval()
    given = tuple(torch.zeros(tensor.shape, dtype=tensor.dtype) for tensor in inputs)
    try:
        figure = peer.forward(real, given)()
    except Exception as error:  # noqa: BLE001 whatever a counter raises is its answer
        return Measured(note=f"fails on the CPU: {_told(error)}")
    ratio = figure.forward / (2 * true_macs(network, backward=False))
    return Measured(
        forward_ratio=ratio, note="; ".join(["its figure is from the CPU", *filter(None, [_left_out(figure)])])
    )


def _backward_ratio(figure: Figure, network: str) -> float | None:
    if figure.backward is None:
        return None
    truth = true_macs(network, backward=True) - true_macs(network, backward=False)
    return figure.backward / (2 * truth)


def _left_out(figure: Figure) -> str:
    return f"says that it leaves out {len(figure.left_out)} kinds of ops" if figure.left_out else ""


def _told(error: Exception) -> str:
    lines = str(error).strip().splitlines() or ["without a word"]
    return f"{type(error).__name__}: {lines[0][:80]}"
