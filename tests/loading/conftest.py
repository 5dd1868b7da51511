"""A repository that tests fill with files."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_clock import SimulatedClock


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str]], None]:
    """A function that writes files into a repository that is the working directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".git").mkdir()

    def create(files: dict[str, str]) -> None:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)

    return create


@pytest.fixture
def sleeping_passes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """`time.sleep` of a model's file takes no time and lets it pass: the timer of time limits rings after each."""
    SimulatedClock(on_sleep=lambda: signal.raise_signal(signal.SIGALRM)).install(monkeypatch)
