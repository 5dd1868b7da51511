"""The forward pass in a new thread: it is another thread, its first pass is the first one, and modes hold there too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from measure_models import net
from simulated_clock import READING_NS, SimulatedClock

torch = pytest.importorskip("torch")

from profiler_kit.loading import load  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402
from profiler_kit.worker.steps import Runner  # noqa: E402
from profiler_kit.worker.threads import MIN_CALLS, time_new_thread  # noqa: E402

FIRST_S, STEADY_S = 0.05, 0.002


def runner(folder: Path, on_call: Callable[[], None], **words: object) -> Runner:
    (folder / "net.py").write_text(net())
    target = load(TargetSpec(spec=str(folder / "net.py"), **words), device="cpu")  # type: ignore[arg-type]
    target.model.register_forward_pre_hook(lambda *_: on_call())
    return Runner(target)


def test_per_thread_state_shows_in_the_first_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimulatedClock().install(monkeypatch)
    kept = threading.local()
    calls: list[int] = []

    def on_call() -> None:
        calls.append(threading.get_ident())
        if not hasattr(kept, "plan"):
            clock.sleep(FIRST_S)
            kept.plan = True
        clock.sleep(STEADY_S)

    found = time_new_thread(runner(tmp_path, on_call))
    assert found.first_ns == pytest.approx((FIRST_S + STEADY_S) * 1e9, abs=10 * READING_NS)
    assert found.steady_ns == pytest.approx(STEADY_S * 1e9, abs=10 * READING_NS)
    main, other = dict.fromkeys(calls)
    assert main == threading.get_ident()
    assert calls.count(main) >= MIN_CALLS
    assert calls.count(other) > MIN_CALLS
    assert calls == sorted(calls, key=lambda ident: ident != main)  # the main thread had it first


def test_grad_mode_and_autocast_hold_in_the_thread_and_are_as_before_after(tmp_path: Path) -> None:
    seen: set[tuple[bool, bool]] = set()
    time_new_thread(
        runner(tmp_path, lambda: seen.add((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"))), amp="bfloat16")
    )
    assert seen == {(False, True)}
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


def test_an_exception_in_the_thread_is_raised(tmp_path: Path) -> None:
    main = threading.get_ident()

    def on_call() -> None:
        if threading.get_ident() != main:
            raise ValueError("not in this thread")

    with pytest.raises(ValueError, match="not in this thread"):
        time_new_thread(runner(tmp_path, on_call))
    assert threading.active_count() < 50
