"""Steps that were timed on a busy host: the finding about it, and the findings that it withholds or weakens."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnose_cases import MS, around, cpu, report, v0
from traced_runs import with_traced

from profiler_kit.diagnosis import diagnose, verdict
from profiler_kit.records.configs import NamedValue, RunConfig
from profiler_kit.records.experiments import DeviceState, HostLoad, Repeat
from profiler_kit.records.parallel import RankRun
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import IdleTime

S = 10**9
QUIET = HostLoad(
    wall_ns=S,
    cores=2,
    machine_cores=2,
    own_cpu_ns=S,
    other_cpu_ns=S // 100,
    running_ns=S,
    waiting_ns=S // 500,
    throttled_ns=0,
)
BUSY = replace(
    QUIET, other_cpu_ns=16 * S // 10, running_ns=6 * S // 10, waiting_ns=4 * S // 10, contended_ns=9 * S // 10
)


def findings(source: Report, rule: str) -> list[Finding]:
    return [finding for finding in diagnose(source) if finding.rule == rule]


def loaded(load: HostLoad | None) -> Report:
    """A report of a CPU whose steps consist of Python for the most part."""
    source = cpu()
    run = source.runs[0]
    operators_ns = run.device_ns or 0
    slow = with_traced(
        run,
        step_ns=around(4 * operators_ns),
        span_ns=4 * operators_ns,
        idle=(IdleTime(cause="python", phase="forward", ns=3 * operators_ns, gaps=90),),
        host_load=load,
    )
    return replace(source, runs=(slow,))


def test_a_free_host_is_not_reported() -> None:
    for load in (None, QUIET):
        assert not findings(loaded(load), "busy_host")
        (overhead,) = findings(loaded(load), "host_overhead")
        assert overhead.severity == "high"


def test_foreign_load_is_reported_and_withholds_time_outside_operators() -> None:
    (finding,) = findings(loaded(BUSY), "busy_host")
    assert finding.severity == "medium"
    assert "other work used 1.6 of 2 cores" in finding.title
    assert "waited for a core for 40.0 %" in finding.title
    assert "90.0 % of the time" in finding.explanation
    assert not findings(loaded(BUSY), "host_overhead")


def test_own_threads_are_told_from_foreign_load() -> None:
    (finding,) = findings(loaded(replace(BUSY, other_cpu_ns=0)), "busy_host")
    assert finding.title.startswith("Too many threads")
    assert "set_num_threads" in finding.advice


def test_the_threads_of_other_ranks_on_the_machine_are_named() -> None:
    report = loaded(replace(BUSY, other_cpu_ns=0))
    ranks = tuple(
        RankRun(rank=rank, host=host, device_name="a CPU", step_ns=None) for rank, host in enumerate(("a", "a", "b"))
    )
    (finding,) = findings(replace(report, runs=tuple(replace(run, ranks=ranks) for run in report.runs)), "busy_host")
    assert "those of the 2 ranks on its machine" in finding.title
    assert "OMP_NUM_THREADS=1 for each rank" in finding.advice


def test_a_cpu_limit_is_reported() -> None:
    (finding,) = findings(loaded(replace(QUIET, throttled_ns=S // 3)), "busy_host")
    assert finding.title.startswith("Limited CPU")
    assert "33.3 %" in finding.title


def test_load_on_other_cores_is_a_note() -> None:
    (finding,) = findings(loaded(replace(QUIET, other_cpu_ns=S)), "busy_host")
    assert finding.severity == "low"
    assert findings(loaded(replace(QUIET, other_cpu_ns=S)), "host_overhead")
    short = replace(QUIET, wall_ns=10 * MS, other_cpu_ns=10 * MS)
    assert not findings(loaded(short), "busy_host")


def test_load_beside_another_configuration_is_low() -> None:
    source = v0()
    runs = (source.runs[0], replace(source.runs[1], host_load=BUSY), *source.runs[2:])
    (finding,) = findings(replace(source, runs=runs), "busy_host")
    assert finding.severity == "low"
    assert f'"{runs[1].config.name}"' in finding.explanation


def test_the_load_of_the_second_process_counts() -> None:
    source = loaded(QUIET)
    run = replace(source.runs[0], repeat=Repeat(step_ns=source.runs[0].step_ns, host_load=BUSY))
    assert findings(replace(source, runs=(run,)), "busy_host")


def launch_bound(load: HostLoad | None) -> Report:
    source = v0()
    run = source.runs[0]
    device_ns = run.device_ns or 0
    slow = with_traced(
        run,
        step_ns=around(3 * device_ns),
        span_ns=3 * device_ns,
        idle=(IdleTime(cause="op dispatch", phase="forward", ns=2 * device_ns, gaps=900),),
        host_load=load,
    )
    return report(slow)


def test_findings_about_the_host_are_weaker_on_a_busy_one() -> None:
    (clear,) = findings(launch_bound(QUIET), "launch_bound")
    (doubtful,) = findings(launch_bound(BUSY), "launch_bound")
    assert (clear.severity, doubtful.severity) == ("high", "medium")
    assert "waited for a core for 40.0 %" in doubtful.explanation
    assert "busy_host" not in clear.explanation


def threads(load: HostLoad | None) -> Report:
    """Half of the threads take a two-hundredth of the time, in both processes."""
    source = cpu()
    first = source.runs[0]
    slow = with_traced(
        first,
        step_ns=around(336 * MS),
        span_ns=336 * MS,
        host_load=load,
        repeat=Repeat(step_ns=around(330 * MS), host_load=load),
    )
    half = replace(
        slow,
        config=RunConfig(name="threads=1", settings=(NamedValue(name="threads", value="1"),)),
        step_ns=around(166 * MS // 100), repeat=Repeat(step_ns=around(17 * MS // 10)), host_load=QUIET,
    )  # fmt: skip
    return replace(source, runs=(slow, half))


def test_half_the_threads_beside_load_say_so() -> None:
    (finding,) = findings(threads(QUIET), "further_axes")
    assert "99.5 % less time" in finding.title
    assert finding.severity == "high"
    (doubtful,) = findings(threads(BUSY), "further_axes")
    assert doubtful.severity == "medium"
    assert "the gain is smaller on a free host" in doubtful.explanation
    assert doubtful.trial is not None
    assert "The host was busy" in doubtful.trial.note


def test_the_verdict_warns_of_a_busy_host_first() -> None:
    for load, warns in ((QUIET, False), (BUSY, True)):
        source = threads(load)
        sentences = verdict(replace(source, findings=diagnose(source))).sentences
        assert any(sentence.startswith("Read first: Busy host") for sentence in sentences) is warns


@pytest.mark.parametrize(("factor", "fires"), [(1.5, False), (29.0, True)])
def test_timed_steps_that_take_longer_than_traced_ones_withhold_time_outside_operators(
    factor: float, fires: bool
) -> None:
    """Without readings of the load, the two kinds of steps tell."""
    source = loaded(None)
    run = source.runs[0]
    assert run.span_ns is not None
    slow = replace(source, runs=(replace(run, step_ns=around(round(factor * run.span_ns))),))
    assert bool(findings(slow, "host_overhead")) is not fires
    unsteady = [finding for finding in findings(slow, "unsteady") if "timed steps" in finding.title]
    assert bool(unsteady) is fires
    if fires:
        assert "29x the traced ones" in unsteady[0].title


def with_clocks(core: tuple[int, int] | None, device: tuple[int, int] | None) -> Report:
    source = v0()
    run: ConfigRun = source.runs[0]
    if core is not None:
        run = replace(run, host_load=replace(QUIET, start_clock_hz=core[0], end_clock_hz=core[1]))
    else:
        run = replace(run, host_load=QUIET)
    if device is not None:
        run = replace(run, device_state=DeviceState(start_sm_clock_hz=device[0], sm_clock_hz=device[1]))
    return replace(source, runs=(run,))


def test_changing_clocks_are_reported() -> None:
    (core,) = findings(with_clocks((3 * S, 2 * S), None), "busy_host")
    assert "core fell by 33.3 %" in core.title
    (device,) = findings(with_clocks(None, (10 * S, 11 * S)), "busy_host")
    assert "device rose by 10.0 %" in device.title
    assert not findings(with_clocks((100, 95), (100, 98)), "busy_host")
