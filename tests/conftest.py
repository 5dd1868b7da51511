"""Fixtures for every room: sample reports."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from sample_reports import RECORDED, SAMPLES, count_only, failed, v0_cpu, v0_cuda

from profiler_kit.records.report import Report


@pytest.fixture
def v0_report() -> Report:
    """V0 on an H100 under nine configurations, one of which failed, and a repetition of the baseline."""
    return v0_cuda()


@pytest.fixture
def v0_cpu_report() -> Report:
    """V0 on a CPU: one configuration, operator time."""
    return v0_cpu()


@pytest.fixture
def count_only_report() -> Report:
    """V0, counted and not run."""
    return count_only()


@pytest.fixture
def failed_report() -> Report:
    """V0, counted; every run failed."""
    return failed()


@pytest.fixture(params=sorted(SAMPLES | RECORDED))
def any_report(request: pytest.FixtureRequest) -> Report:
    """Each sample in turn."""
    make: Callable[[], Report] = (SAMPLES | RECORDED)[request.param]
    return make()
