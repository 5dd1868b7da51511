"""The processes of a measurement as progress, and the estimate of the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from profiler_kit.measurement import sweep
from profiler_kit.measurement.plan import Plan
from profiler_kit.measurement.session import Session, measure_interleaved, measure_plan
from profiler_kit.measurement.visits import Condition, Round, Visit
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.progress import ProcessStart
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.target import TargetSpec

A, B, C = (RunConfig(name=name) for name in ("a", "b", "c"))
AGAIN = RunConfig(name="a (again)", repeat_of="a")


@pytest.fixture
def starts() -> list[ProcessStart | None]:
    """The progress that the session reported."""
    return []


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, float]], None]:
    """Replaces processes: a first one takes the given seconds, the second one half of that; 0 fails."""

    def replace_processes(took_s: dict[str, float]) -> None:
        def measure_visits(
            spec: TargetSpec,
            visits: Iterable[Visit | Round | Condition],
            *,
            on_start: Callable[[Visit], None],
            **_: Any,
        ) -> Iterator[sweep.FinishedVisit]:
            for visit in visits:
                if not isinstance(visit, Visit):
                    continue
                on_start(visit)
                seconds = took_s[visit.config.name] / (2 if visit.again else 1)
                failure = Failure(kind="error", message="no") if not seconds else None
                run = ConfigRun(config=visit.config, failure=failure, needed_ns=1)
                yield sweep.FinishedVisit(visit=visit, run=run, took_s=seconds, parts_trace=None)

        monkeypatch.setattr(sweep, "measure_visits", measure_visits)

    return replace_processes


def session(starts: list[ProcessStart | None]) -> Session:
    return Session(
        spec=TargetSpec(spec="net.py"),
        device="cuda",
        budget_s=1000.0,
        on_progress=lambda _: None,
        read_trace=lambda run, _: run,
        read_parts_trace=lambda run, _: run,
        on_process=starts.append,
    )


def rows(starts: list[ProcessStart | None]) -> list[tuple[str, float | None, bool] | None]:
    return [
        start
        and (
            f"{start.number}/{start.count} {start.name}",
            None if start.left_ns is None else round(start.left_ns * 1e-9, 3),
            start.is_bound,
        )
        for start in starts
    ]


def test_the_time_left_comes_from_measured_processes(
    tmp_path: Path, starts: list[ProcessStart | None], measure: Callable[[dict[str, float]], None]
) -> None:
    measure({"a": 20, "b": 10, "c": 30, "a (again)": 20})
    measuring = session(starts)
    measure_plan(measuring, Plan(configs=(A, B, C, AGAIN), notes=()), tmp_path)
    assert rows(starts) == [
        ("1/6 a", None, False),  # nothing is known yet
        ("2/6 b", 100.0, True),  # five processes; at most the 20 s of the first one
        ("3/6 c", 15 + 15 + 10 + 15, True),  # c and the repetition: the mean; second processes: their first ones
        ("4/6 c, again", 30 + 10 + 20, True),
        ("5/6 b, again", 5 + 20, False),  # second processes take half
        ("6/6 a (again)", 20, False),
        None,
    ]
    starts.clear()
    measure_interleaved(measuring, [A, B], tmp_path, purpose="trial")
    assert rows(starts)[0] == ("1/4 trial a, again", 10 + 5 + 10 + 5, False)


def test_failures_and_skipped_configurations_give_no_estimate(
    tmp_path: Path, starts: list[ProcessStart | None], measure: Callable[[dict[str, float]], None]
) -> None:
    measure({"a": 10, "b": 0, "c": 20})
    measure_plan(session(starts), Plan(configs=(A, B), notes=(), optional=(C,)), tmp_path)
    assert rows(starts) == [
        ("1/5 a", None, False),
        ("2/5 b", 10 + 10 + 2 * 10, True),  # c is optional: it may not run
        ("3/4 c", 10 + 10, True),
        ("4/4 c, again", 20, True),
        None,
    ]
    starts.clear()
    measure({"a": 0, "b": 20})
    measure_plan(session(starts), Plan(configs=(A, B), notes=()), tmp_path)
    assert rows(starts)[:2] == [("1/3 a", None, False), ("2/3 b", None, False)]
