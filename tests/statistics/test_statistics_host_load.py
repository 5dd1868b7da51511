"""Whether other work lengthened the steps of a run, and how much of a difference it may explain."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.experiments import HostLoad, Repeat
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.statistics.differences import Spread
from profiler_kit.statistics.host_load import disturbance_of, host_loads, load_allowance
from profiler_kit.statistics.noise import Noise, Sample

S = 10**9
QUIET = HostLoad(
    wall_ns=S, cores=2, machine_cores=2, other_cpu_ns=S // 100, running_ns=S, waiting_ns=S // 200, throttled_ns=0
)
BUSY = HostLoad(
    wall_ns=S, cores=2, machine_cores=2, other_cpu_ns=S, running_ns=S // 2, waiting_ns=S // 2, contended_ns=S
)


def run(load: HostLoad | None, second: HostLoad | None = None, step: int = 1000) -> ConfigRun:
    step_ns = Interval(median=step, low=step, high=step)
    repeat = Repeat(step_ns=step_ns, host_load=second)
    return ConfigRun(config=RunConfig(name="a"), step_ns=step_ns, host_load=load, repeat=repeat)


def test_a_run_without_readings_is_unknown() -> None:
    assert disturbance_of(run(None)) is None
    assert disturbance_of(run(HostLoad(wall_ns=S, cores=2))) is None
    assert host_loads(run(None, QUIET)) == (QUIET,)


def test_a_quiet_host_does_not_disturb() -> None:
    quiet = disturbance_of(run(QUIET, QUIET))
    assert quiet is not None
    assert not quiet.is_large
    assert not quiet.is_foreign
    assert quiet.contended_share is None


def test_waiting_disturbs_over_all_processes() -> None:
    found = disturbance_of(run(QUIET, BUSY))
    assert found is not None
    assert found.waiting_share == pytest.approx((S / 200 + S / 2) / (S + S / 200 + S))
    assert found.is_large
    assert found.is_foreign
    assert found.contended_share == 1.0
    own = replace(BUSY, other_cpu_ns=0)
    crowded = disturbance_of(run(own, own))
    assert crowded is not None
    assert crowded.is_large
    assert not crowded.is_foreign


def test_a_cpu_limit_disturbs() -> None:
    stopped = replace(QUIET, throttled_ns=S // 20)
    found = disturbance_of(run(stopped))
    assert found is not None
    assert found.throttled_share == 0.05
    assert found.is_large


def test_the_allowance_is_the_difference_of_the_waits() -> None:
    assert load_allowance(run(QUIET), run(None)) == 0.0
    assert load_allowance(run(BUSY, BUSY), run(BUSY, BUSY)) == 0.0
    assert load_allowance(run(BUSY, BUSY), run(None)) == pytest.approx(math.log(2))
    assert load_allowance(run(BUSY, BUSY), run(None)) == load_allowance(run(None), run(BUSY, BUSY))


def test_what_waiting_for_cores_explains_is_no_difference() -> None:
    noise = Noise(spreads={Sample.MEDIAN: Spread(squares=4 * 0.001**2, freedom=4)})
    slow, fast = run(BUSY, BUSY, step=1900), run(QUIET, QUIET, step=1000)
    disturbed = noise.difference(slow, fast)
    assert disturbed is not None
    assert disturbed.outcome == "same"
    free = noise.difference(replace(slow, host_load=None, repeat=fast.repeat), fast)
    assert free is not None
    clean = noise.difference(run(QUIET, QUIET, step=1900), fast)
    assert clean is not None
    assert clean.outcome == "better"
    far = noise.difference(run(BUSY, BUSY, step=2900), fast)
    assert far is not None
    assert far.outcome == "better"
