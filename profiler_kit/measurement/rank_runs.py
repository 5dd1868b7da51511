"""Runs on all ranks of a job: rank 0 announces them and collects the results, the other ranks start their processes.

A process that fails on one rank leaves the others in a collective that never ends, so each rank watches for failures of the
others while its own process runs.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from profiler_kit import process
from profiler_kit.errors import KitError
from profiler_kit.measurement.visits import Visit
from profiler_kit.measurement.worker_process import failure_of, read_result, spawn_worker
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.experiments import HostLoad
from profiler_kit.records.jobs import RunJob
from profiler_kit.records.parallel import Member, ParallelPlan, RankRun
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.serde import dumps, from_json
from profiler_kit.rendezvous.meeting import Meeting
from profiler_kit.temporary_files import replacement, temporary_folder

POLL_S: Final = 0.25
# From the end of one rank's process to that of another one, which writes and sends a trace.
RESULT_S: Final = 60.0
TRACE: Final = "trace.json.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The ranks of a job, for rank 0. `hosts`: the machine of each."""

    meeting: Meeting
    plan: ParallelPlan
    hosts: tuple[str, ...]

    def announce(self, job: RunJob, limit_s: float) -> RankedRun:
        """Give `job` to all ranks; the result has the job of this rank's own process."""
        job = replace(job, checks=False, parts_trace=None)
        number = self.meeting.announce(dumps(replace(job, waits=False)), limit_s)
        return RankedRun(self, number, replace(job, member=member_of(self.meeting, self.plan, number)))


class RankedRun:
    """A run that all ranks have started. Created by `Ranks.announce`. `job`: that of rank 0."""

    def __init__(self, ranks: Ranks, number: int, job: RunJob) -> None:
        self.job = job
        self._ranks = ranks
        self._number = number
        self._is_over = False

    def result(self, child: process.Child, visit: Visit, folder: Path) -> ConfigRun:
        """The run of rank 0 with the figures of all ranks, once all have finished; or the first cause of a failure."""
        meeting = self._ranks.meeting
        own = run_watched(child, self.job, folder, meeting, self._number, visit.limit_s, late=visit.late)
        runs = [own]
        traces = [visit.trace if own.trace is not None else None]
        for rank in range(1, self._ranks.plan.ranks):
            received = meeting.receive(self._number, rank, RESULT_S)
            if received is None:
                meeting.stop(self._number)
                message = f"no result within {RESULT_S:g} s after rank 0"
                runs.append(ConfigRun(config=visit.config, failure=Failure(kind="timeout", message=message)))
                continue
            runs.append(from_json(ConfigRun, json.loads(received[0]), f"the result of rank {rank}"))
            traces.append(_write_trace(visit.trace, rank, received[1]))
        self._is_over = True
        failure = first_cause([run.failure for run in runs])
        if failure is not None:
            return ConfigRun(config=visit.config, environment=own.environment, failure=failure)
        hosts = self._ranks.hosts
        ranked = zip(runs, traces, hosts, strict=True)
        return replace(
            own,
            ranks=tuple(_rank_run(rank, *figures) for rank, figures in enumerate(ranked)),
            host_load=load_of_ranks([run.host_load for run, host in zip(runs, hosts, strict=True) if host == hosts[0]]),
        )

    def close(self) -> None:
        """Stop the run on all ranks if its result was not collected, for example because of Ctrl-C."""
        if not self._is_over:
            with contextlib.suppress(KitError):  # the job is ending
                self._ranks.meeting.stop(self._number)


def serve_runs(meeting: Meeting, plan: ParallelPlan, device: str, on_progress: OnProgress) -> None:
    """As a rank other than 0: run what rank 0 announces, in fresh processes, until it says that no further run comes."""
    while (announced := meeting.next_run()) is not None:
        job = from_json(RunJob, json.loads(announced.job), "the job of rank 0")
        with temporary_folder("worker") as folder:
            job = replace(
                job,
                device=device,
                trace=str(folder / TRACE) if job.trace is not None else None,
                member=member_of(meeting, plan, announced.number),
            )
            try:
                with spawn_worker("run", job, folder, on_progress=on_progress) as child:
                    run = run_watched(child, job, folder, meeting, announced.number, announced.limit_s)
            except (KitError, OSError) as error:  # too many processes, or a full disk
                meeting.stop(announced.number)
                message = f"the process could not be started: {error}"
                run = ConfigRun(config=job.config, failure=Failure(kind="error", message=message))
            trace = (folder / TRACE).read_bytes() if run.trace is not None else b""
            meeting.send(announced.number, dumps(run), trace)


def member_of(meeting: Meeting, plan: ParallelPlan, number: int) -> Member:
    """The place of this rank's process in run `number`."""
    launch = meeting.launch
    return Member(
        plan=plan, rank=launch.rank, address=launch.address, port=launch.port, meeting=f"{meeting.name}/group/{number}"
    )


def run_watched(
    child: process.Child,
    job: RunJob,
    folder: Path,
    meeting: Meeting,
    number: int,
    limit_s: float,
    *,
    late: str | None = None,
) -> ConfigRun:
    """The run of `child`, which is stopped after `limit_s` seconds, or when run `number` has failed on another rank."""
    until_s = time.monotonic() + limit_s
    is_stopped = False
    while not child.exits_within(POLL_S) and time.monotonic() < until_s and not is_stopped:
        is_stopped = meeting.is_stopped(number)
    outcome = child.finish(0)
    run = read_result(folder, ConfigRun)
    if run is None and is_stopped and outcome.timed_out:
        stopped = Failure(kind="crash", code="stopped", message="stopped, because another rank failed")
        return ConfigRun(config=job.config, failure=stopped)
    if run is None:
        run = ConfigRun(config=job.config, failure=failure_of(outcome, limit_s, late=late))
    if run.failure is not None:
        meeting.stop(number)
    return run


def first_cause(failures: Sequence[Failure | None]) -> Failure | None:
    """The failure, by rank, that caused the others, with its rank; None without a failure.

    A rank that waited for a lost one fails too, with a message of its communication library.
    """
    failed = [(rank, failure) for rank, failure in enumerate(failures) if failure is not None]
    if not failed:
        return None
    if len(failed) == len(failures) and len({failure.message for _, failure in failed}) == 1:
        return failed[0][1]  # it concerns all ranks, such as a wrong shape

    def is_effect(failure: Failure) -> int:
        return 2 if failure.code == "stopped" else int(failure.code == "lost_peer")

    rank, cause = min(failed, key=lambda entry: (is_effect(entry[1]), entry[1].kind == "timeout", entry[0]))
    return replace(cause, message=f"rank {rank}: {cause.message}")


def load_of_ranks(loads: Sequence[HostLoad | None]) -> HostLoad | None:
    """The load of rank 0, first in `loads` of one machine, with the CPU time of its other ranks as own, not as other work."""
    own = loads[0]
    others_ns = sum(load.own_cpu_ns or 0 for load in loads[1:] if load is not None)
    if own is None or own.own_cpu_ns is None or own.other_cpu_ns is None:
        return own
    return replace(own, own_cpu_ns=own.own_cpu_ns + others_ns, other_cpu_ns=max(0, own.other_cpu_ns - others_ns))


def rank_trace(trace: Path, rank: int) -> Path:
    """The file of another rank's trace, beside `trace` of rank 0."""
    return trace.with_name(f"{_stem(trace)}.rank{rank}.json.gz")


def rank_traces(trace: Path) -> tuple[Path, ...]:
    """The existing files of other ranks' traces beside `trace`."""
    name = re.compile(re.escape(_stem(trace)) + r"\.rank[0-9]+\.json\.gz")
    try:
        return tuple(file for file in trace.parent.iterdir() if name.fullmatch(file.name))
    except OSError:
        return ()


def _stem(trace: Path) -> str:
    return trace.name.removesuffix(".json.gz")


def _write_trace(trace: Path | None, rank: int, content: bytes) -> Path | None:
    """Write the trace of `rank` beside that of rank 0; None without one, or where it cannot be written."""
    if trace is None or not content:
        return None
    file = rank_trace(trace, rank)
    try:
        with replacement(file) as partial:
            partial.write_bytes(content)
    except OSError:
        return None  # rank 0 writes into the same folder, and the note on its trace says why
    return file


def _rank_run(rank: int, run: ConfigRun, trace: Path | None, host: str) -> RankRun:
    return RankRun(
        rank=rank,
        host=host,
        device_name=run.environment.device_name if run.environment is not None else "",
        step_ns=run.step_ns,
        peak_allocated_bytes=run.peak_allocated_bytes,
        peak_reserved_bytes=run.peak_reserved_bytes,
        peak_rss_bytes=run.peak_rss_bytes,
        trace=str(trace) if trace is not None else None,
    )
