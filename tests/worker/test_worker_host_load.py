"""The load of the host between two readings: from made-up counters, and beside a process on the same core."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import wait_until

pytest.importorskip("torch")

from profiler_kit.worker import host_load
from profiler_kit.worker.host_load import HostReading, load_between, read_host

SPIN = "while True: pass"


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders instead of /proc, the control group and /sys."""
    for name in ("PROC", "CGROUP", "CPUS"):
        monkeypatch.setattr(host_load, name, tmp_path / name)
        (tmp_path / name).mkdir()
    return tmp_path


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def fields(processor: int) -> str:
    return f"7 (a (b) c) S {' '.join(['1'] * 35)} {processor} 0"


def test_counters_of_linux_become_times(made_up: Path) -> None:
    tick = 10**9 // os.sysconf("SC_CLK_TCK")
    write(made_up / "PROC" / "stat", "cpu  1 2 4 1000 2000 8 16 32 64 128\ncpu0 1 1 1 1 1 1 1 1 1 1\n")
    write(made_up / "PROC" / "self" / "stat", fields(3))
    write(made_up / "PROC" / "self" / "task" / "11" / "schedstat", "500 70 3\n")
    write(made_up / "PROC" / "self" / "task" / "12" / "schedstat", "900 10 3\n")
    write(made_up / "PROC" / "pressure" / "cpu", "some avg10=0.08 avg60=0.79 avg300=1.44 total=30\nfull total=1\n")
    write(made_up / "CGROUP" / "cpu.stat", "usage_usec 9\nnr_throttled 4\nthrottled_usec 21\n")
    write(made_up / "CPUS" / "cpu3" / "cpufreq" / "scaling_cur_freq", "2400000\n")
    reading = read_host()
    assert reading.busy_ns == (1 + 2 + 4 + 8 + 16 + 32) * tick  # no idle time, no wait for a disk, guests only once
    assert reading.threads == {"11": (500, 70), "12": (900, 10)}
    assert reading.contended_ns == 30_000
    assert reading.throttled_ns == 21_000
    assert reading.clock_hz == 2_400_000_000


def test_the_pressure_and_the_limit_of_the_container_come_first(made_up: Path) -> None:
    write(made_up / "PROC" / "pressure" / "cpu", "some avg10=0 total=30\n")
    write(made_up / "CGROUP" / "cpu.pressure", "some avg10=0 total=5\n")
    write(made_up / "CGROUP" / "cpu" / "cpu.stat", "nr_periods 1\nthrottled_time 77\n")
    reading = read_host()
    assert reading.contended_ns == 5_000
    assert reading.throttled_ns == 77


def test_children_count_as_own_work(made_up: Path) -> None:
    own = os.getpid()
    write(made_up / "PROC" / str(own) / "task" / str(own) / "children", "41 \n")
    write(made_up / "PROC" / "41" / "task" / "41" / "children", "42")
    for number in (41, 42):
        write(made_up / "PROC" / str(number) / "stat", f"{number} (x) S {'0 ' * 10}3 4 5 6 {'0 ' * 30}")
    times = os.times()
    before_ns = time.process_time_ns() + round((times.children_user + times.children_system) * 1e9)
    own_ns = read_host().own_ns
    assert own_ns is not None
    tick = 10**9 // os.sysconf("SC_CLK_TCK")
    assert 0 <= own_ns - before_ns - 2 * 18 * tick < 2 * 10**9


def test_a_system_without_counters_reports_none(made_up: Path) -> None:
    (made_up / "PROC").rmdir()
    begin = read_host()
    load = load_between(begin, read_host())
    assert load.wall_ns > 0
    assert load.cores >= 1
    figures = (
        load.own_cpu_ns,
        load.other_cpu_ns,
        load.running_ns,
        load.waiting_ns,
        load.contended_ns,
        load.throttled_ns,
    )
    assert figures == (None,) * 6
    assert load.waiting_share is load.other_cores is load.contended_share is None


def test_damaged_counters_are_unknown(made_up: Path) -> None:
    write(made_up / "PROC" / "stat", "cpu 1 2\n")
    write(made_up / "PROC" / "self" / "stat", "7 (x")
    write(made_up / "PROC" / "self" / "task" / "11" / "schedstat", "\n")
    write(made_up / "PROC" / "pressure" / "cpu", "")
    write(made_up / "CGROUP" / "cpu.stat", "throttled_usec\n")
    reading = read_host()
    assert (reading.busy_ns, reading.contended_ns, reading.throttled_ns, reading.clock_hz) == (None,) * 4
    assert reading.threads == {}


def test_the_load_is_the_difference_of_two_readings() -> None:
    begin = HostReading(
        at_ns=0, busy_ns=100, own_ns=10, contended_ns=5, throttled_ns=1, clock_hz=2, threads={"1": (10, 20)}
    )
    end = HostReading(
        at_ns=50, busy_ns=180, own_ns=40, contended_ns=30, throttled_ns=1, clock_hz=3, threads={"1": (40, 30), "2": (5, 5)}
    )  # fmt: skip
    load = load_between(begin, end)
    assert (load.wall_ns, load.own_cpu_ns, load.other_cpu_ns) == (50, 30, 50)
    assert (load.running_ns, load.waiting_ns, load.contended_ns, load.throttled_ns) == (35, 15, 25, 0)
    assert (load.start_clock_hz, load.end_clock_hz) == (2, 3)
    assert load.waiting_share == 15 / 50
    assert load.other_cores == 1.0
    assert load.contended_share == 0.5


def test_a_container_that_counts_nothing_leaves_other_work_unknown() -> None:
    begin, end = HostReading(at_ns=0, busy_ns=0, own_ns=0), HostReading(at_ns=9, busy_ns=0, own_ns=5)
    assert load_between(begin, end).other_cpu_ns is None


@pytest.fixture
def shared_core() -> Iterator[None]:
    """This thread on one core, and a process that spins on the same."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with subprocess.Popen([sys.executable, "-c", SPIN], start_new_session=True) as spinning:
            yield
            spinning.kill()
    finally:
        os.sched_setaffinity(0, cores)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="needs the scheduler's statistics of Linux")
@pytest.mark.usefixtures("shared_core")
def test_running_on_a_core_and_waiting_for_it_are_seen() -> None:
    begin = read_host()

    def counted() -> bool:
        load = load_between(begin, read_host())
        return bool(load.running_ns and load.waiting_ns)

    wait_until(counted)  # the time limit of a test is long enough for the two to share the core
