"""`analyze` on several ranks: joining the job, the predicted peak of a rank, and the traces of all ranks."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_kit.errors import KitError, UsageError
from profiler_kit.foreign import installed_version
from profiler_kit.measurement.rank_runs import Ranks, serve_runs
from profiler_kit.measurement.worker_process import worker_forks
from profiler_kit.pipeline.memory_prediction import Counted, with_parallel
from profiler_kit.pipeline.packages import require_torch
from profiler_kit.process.protocol import ignore_progress
from profiler_kit.records.experiments import ExperimentOptions
from profiler_kit.records.notes import Note
from profiler_kit.records.parallel import ParallelPlan, Strategy
from profiler_kit.records.report import TraceReport
from profiler_kit.records.target import TargetSpec
from profiler_kit.rendezvous.meeting import EXAMPLE, find_launch, use_own_gpu

if TYPE_CHECKING:
    from profiler_kit.rendezvous.meeting import Meeting


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedJob:
    """This process as a rank of a job, on `device`. `ranks`: all ranks, which rank 0 alone knows."""

    meeting: Meeting
    plan: ParallelPlan
    device: str
    ranks: Ranks | None

    def serve(self, spec: TargetSpec) -> None:
        """As a rank other than 0: run what rank 0 announces, until the analysis ends."""
        with worker_forks(spec):
            serve_runs(self.meeting, self.plan, self.device, ignore_progress)


def check_alone() -> None:
    """Raise UsageError in a job of several ranks: each of them would do the same work."""
    launch = find_launch()
    if launch is not None and launch.ranks > 1:
        raise UsageError(
            f"this is rank {launch.rank} of {launch.ranks}, and each rank would do the same work",
            hint="add --parallel ddp or --parallel fsdp2, or start without torchrun",
        )


@contextlib.contextmanager
def join_job(
    strategy: Strategy, spec: TargetSpec, device: str, experiments: ExperimentOptions | None
) -> Iterator[JoinedJob]:
    """Join the job that torchrun has started as one of its ranks, each with a GPU of its own. Raises KitError."""
    launch = find_launch()
    if launch is None:
        raise UsageError("--parallel needs a job of several processes", hint=f"start it so: {EXAMPLE}")
    _check_options(spec, device, experiments)
    if device != "cpu":
        use_own_gpu(launch)
    require_torch()
    from profiler_kit.rendezvous import meeting as meetings
    from profiler_kit.worker import environment

    device = environment.pick_device(device)
    with meetings.join(launch) as meeting:
        meeting.introduce(device=device, torch=installed_version("torch") or "?", host=platform.node())
        plan = ParallelPlan(strategy=strategy, ranks=launch.ranks)
        ranks = None
        if launch.rank == 0:
            facts = meeting.introductions()
            meetings.check_same(facts)
            ranks = Ranks(meeting=meeting, plan=plan, hosts=tuple(fact["host"] for fact in facts))
        yield JoinedJob(meeting=meeting, plan=plan, device=device, ranks=ranks)


def _check_options(spec: TargetSpec, device: str, experiments: ExperimentOptions | None) -> None:
    if spec.mode != "train":
        raise UsageError("--parallel measures training", where="--mode infer", hint="use --mode train")
    if ":" in device:
        raise UsageError("each rank has a GPU of its own", where=f"--device {device}", hint="use --device cuda")
    options = experiments or ExperimentOptions()
    unsupported = {
        "--shapes": options.shapes is not None,
        "--memory-limit": options.memory_limit_bytes is not None,
    }
    for name, is_set in unsupported.items():
        if is_set:
            raise UsageError(f"{name} runs in one process", hint=f"leave out {name} or --parallel")


def counted_for_ranks(counted: Counted, plan: ParallelPlan) -> Counted:
    """`counted` for one rank of `plan`, with its predicted peak; a note where that cannot be predicted."""
    info = replace(counted.info, parallel=plan)
    static, by_kit, target = counted.static, counted.by_kit, counted.target
    if static is None or static.memory is None or target is None or plan.ranks < 2:
        return replace(counted, info=info)
    try:
        predicted = with_parallel(static, target, [plan])
    except KitError as error:
        note = f"The peak of one rank is not predicted: {error.message}."
        return replace(counted, info=replace(info, notes=(*info.notes, Note(text=note))))
    if by_kit is not None and by_kit.memory is not None and predicted.memory is not None:
        by_kit = replace(by_kit, memory=replace(by_kit.memory, parallel=predicted.memory.parallel))
    return replace(counted, info=info, static=predicted, by_kit=by_kit)


@lru_cache(maxsize=2)
def trace_report(traces: tuple[Path, ...]) -> TraceReport | None:
    """The comparison of the ranks by their `traces`; None where they cannot be read or compared."""
    from profiler_kit.pipeline.inspect import inspect

    try:
        report = inspect(traces, names={trace: f"traces/{trace.name}" for trace in traces}).report
    except KitError:
        return None
    return report if report.ranks is not None else None
