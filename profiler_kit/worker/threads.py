"""Times the forward pass in a new thread: cuDNN's plans are cached per thread, so it chooses algorithms (or searches) again."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import torch

from profiler_kit.records.experiments import NewThread
from profiler_kit.worker import environment
from profiler_kit.worker.steps import Runner, is_steady

MIN_CALLS: Final = 3  # the steady time is a median
MAX_CALLS: Final = 20


def time_new_thread(runner: Runner) -> NewThread:
    """The duration of the first forward pass in a new thread, and the steady duration there, with synchronization.

    The main thread first runs until it is steady, so that process-wide state (loaded kernels, memory) exists. The new thread
    first runs cuDNN on another shape to create its handle. Exceptions of the model are raised.

    Source: PyTorch's plan cache is thread-local (aten/src/ATen/native/cudnn/Conv_v8.cpp).
    """
    _time_until_steady(runner)
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="time_new_thread") as pool:
        first_ns, *later_ns = pool.submit(_time_in_thread, runner).result()
    return NewThread(first_ns=first_ns, steady_ns=round(statistics.median(later_ns)))


def _time_in_thread(runner: Runner) -> list[int]:
    device = runner.target.device
    if device.type == "cuda":
        # the current device is a thread's own, as grad mode and autocast are
        torch.cuda.set_device(environment.index_of(device))
        environment.prewarm(device)
    return [_forward_ns(runner), *_time_until_steady(runner)]


def _time_until_steady(runner: Runner) -> list[int]:
    """Durations of forward passes until they are steady."""
    durations_ns: list[int] = []
    while len(durations_ns) < MIN_CALLS or (len(durations_ns) < MAX_CALLS and not is_steady(durations_ns)):
        durations_ns.append(_forward_ns(runner))
    return durations_ns


def _forward_ns(runner: Runner) -> int:
    runner.synchronize()
    begin_ns = time.perf_counter_ns()
    runner.forward(runner.target.batch)
    runner.synchronize()
    return time.perf_counter_ns() - begin_ns
