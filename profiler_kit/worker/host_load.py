"""The load of the host: what this process, its children and everything else used between two readings.

Linux reports all of it in `/proc` and `/sys`; elsewhere only the CPU time of the process is known. A reading takes two
milliseconds. Children that end between two readings count with what they used, because their parent waits for them.

**Source**: Linux, Documentation/filesystems/proc.rst (stat), scheduler/sched-stats.rst (schedstat: time running, time waiting),
accounting/psi.rst (pressure), admin-guide/cgroup-v2.rst (cpu.stat).
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from profiler_kit.process import usable_cores
from profiler_kit.records.experiments import HostLoad

PROC: Final = Path("/proc")
CGROUP: Final = Path("/sys/fs/cgroup")
CPUS: Final = Path("/sys/devices/system/cpu")
# The fields of a line `cpu` in /proc/stat that are work. Guests are part of user; idle and iowait are not work.
_WORK_FIELDS: Final = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal
# Fields of /proc/PID/stat after the name, which may contain spaces: state is 0.
_CPU_TIMES, _PROCESSOR = slice(11, 15), 36


LOOPS: Final = 5
LOOP_LENGTH: Final = 5000  # takes 0.2 ms


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReading:
    """Counters of the host at one moment, in ns; None where the system has none."""

    at_ns: int
    busy_ns: int | None = None
    own_ns: int | None = None
    contended_ns: int | None = None
    throttled_ns: int | None = None
    clock_hz: int | None = None
    loop_ns: int | None = None  # the duration of a fixed piece of Python
    threads: dict[str, tuple[int, int]] = field(default_factory=dict)  # running and waiting time by thread


def read_host() -> HostReading:
    """The counters now, and the speed of the core."""
    loop_ns = _loop_ns()
    return HostReading(
        loop_ns=loop_ns,
        at_ns=time.perf_counter_ns(),
        busy_ns=_busy_ns(),
        own_ns=_own_ns(),
        contended_ns=_contended_ns(),
        throttled_ns=_throttled_ns(),
        clock_hz=_clock_hz(),
        threads=_thread_times(),
    )


def load_between(begin: HostReading, end: HostReading) -> HostLoad:
    """The load between two readings of this process."""
    own_ns = _difference(begin.own_ns, end.own_ns)
    busy_ns = _difference(begin.busy_ns, end.busy_ns)
    threads = [
        (running - begin.threads.get(thread, (0, 0))[0], waiting - begin.threads.get(thread, (0, 0))[1])
        for thread, (running, waiting) in end.threads.items()
    ]
    is_scheduled = bool(begin.threads and threads)
    return HostLoad(
        wall_ns=end.at_ns - begin.at_ns,
        cores=usable_cores(),
        machine_cores=os.cpu_count(),
        own_cpu_ns=own_ns,
        # ticks of both counters may differ by one, and a container may count its own work only
        other_cpu_ns=max(0, busy_ns - own_ns) if busy_ns and own_ns is not None else None,
        running_ns=sum(max(0, running) for running, _ in threads) if is_scheduled else None,
        waiting_ns=sum(max(0, waiting) for _, waiting in threads) if is_scheduled else None,
        contended_ns=_difference(begin.contended_ns, end.contended_ns),
        throttled_ns=_difference(begin.throttled_ns, end.throttled_ns),
        start_clock_hz=begin.clock_hz,
        end_clock_hz=end.clock_hz,
        start_loop_ns=begin.loop_ns,
        end_loop_ns=end.loop_ns,
    )


def _loop_ns() -> int:
    """The shortest of several runs of the same loop: interruptions lengthen some of them."""
    durations_ns = []
    for _ in range(LOOPS):
        begin_ns = time.perf_counter_ns()
        total = 0
        for number in range(LOOP_LENGTH):
            total += number
        durations_ns.append(time.perf_counter_ns() - begin_ns)
    return min(durations_ns)


def _difference(before: int | None, after: int | None) -> int | None:
    return max(0, after - before) if before is not None and after is not None else None


def _read_text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # another system, a container that hides it, or a thread that ended
        return None


def _tick_ns() -> int:
    return 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def _busy_ns() -> int | None:
    """The CPU time of everything on the machine; None if the system reports none."""
    words = (_read_text(PROC / "stat") or "").partition("\n")[0].split()
    if not words or words[0] != "cpu" or len(words) <= max(_WORK_FIELDS) + 1:
        return None
    return sum(int(words[1 + index]) for index in _WORK_FIELDS) * _tick_ns()


def _own_ns() -> int | None:
    """The CPU time of this process, of its living descendants, and of those that have ended and were waited for."""
    times = os.times()
    total_ns = time.process_time_ns() + round((times.children_user + times.children_system) * 1e9)
    ticks = 0
    for number in _descendants(os.getpid()):
        fields = _stat_fields(number)
        ticks += sum(map(int, fields[_CPU_TIMES])) if fields is not None else 0
    return total_ns + ticks * _tick_ns() if PROC.is_dir() else None


def _descendants(number: int) -> list[int]:
    """The living descendants of process `number`."""
    children: list[int] = []
    for file in (PROC / str(number) / "task").glob("*/children"):
        children += map(int, (_read_text(file) or "").split())
    return [*children, *(below for child in children for below in _descendants(child))]


def _stat_fields(number: int | str) -> list[str] | None:
    stat = _read_text(PROC / str(number) / "stat")
    fields = stat.rpartition(")")[2].split() if stat else []
    return fields if len(fields) > _PROCESSOR else None


def _thread_times() -> dict[str, tuple[int, int]]:
    """The time that each thread of this process ran, and waited for a core."""
    times = {}
    for folder in (PROC / "self" / "task").glob("*"):
        words = (_read_text(folder / "schedstat") or "").split()
        if len(words) >= 2:
            times[folder.name] = int(words[0]), int(words[1])
    return times


def _contended_ns() -> int | None:
    """The time in which any thread waited for a core: the total of `some` in the pressure of the container or machine."""
    for file in (CGROUP / "cpu.pressure", PROC / "pressure" / "cpu"):
        line = (_read_text(file) or "").partition("\n")[0]
        if line.startswith("some ") and "total=" in line:
            return int(line.rpartition("total=")[2]) * 1000
    return None


def _throttled_ns() -> int | None:
    """The time in which the CPU limit of the container stopped it (cgroup version 2, version 1)."""
    for file, name, unit_ns in (
        (CGROUP / "cpu.stat", "throttled_usec", 1000),
        (CGROUP / "cpu" / "cpu.stat", "throttled_time", 1),
    ):
        for line in (_read_text(file) or "").splitlines():
            word, _, number = line.partition(" ")
            if word == name and number.strip().isdigit():
                return int(number) * unit_ns
    return None


def _clock_hz() -> int | None:
    """The clock of the core that runs the main thread; None where cpufreq is not readable, as in most virtual machines."""
    fields = _stat_fields("self")
    if fields is None:
        return None
    text = _read_text(CPUS / f"cpu{fields[_PROCESSOR]}" / "cpufreq" / "scaling_cur_freq")
    return int(text) * 1000 if text and text.strip().isdigit() else None
