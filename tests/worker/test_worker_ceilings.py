"""Peaks of a device: one real measurement, the cache, and every way in which caching or measuring can fail."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from waiting import AMPLE_S

torch = pytest.importorskip("torch")

from profiler_kit import process  # noqa: E402
from profiler_kit.measurement import ceiling_store  # noqa: E402
from profiler_kit.pipeline.rooflines import ceilings_of  # noqa: E402
from profiler_kit.records import machine as machine_records  # noqa: E402
from profiler_kit.records.machine import Ceilings, MathRate  # noqa: E402
from profiler_kit.records.serde import dumps  # noqa: E402
from profiler_kit.worker import ceilings  # noqa: E402

FOUND = Ceilings(
    device="cpu", device_name="a CPU", torch="2.13.0", driver=None, threads=1,
    rates=(MathRate(math="fp32", flops_per_s=1e11, size=512, repeats=9, spread_percent=0.5),),
    bandwidth_bytes_per_s=2e10, copy_bytes=2**27, bandwidth_spread_percent=0.1, duration_ns=5,
)  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Ceilings]:
    """Stands in for the process: it writes the last of this list as its result."""
    results = [FOUND]

    class Child:
        def finish(self, timeout_s: float) -> process.Outcome:
            return process.Outcome(
                returncode=0, signal_name=None, timed_out=False, duration_ns=1, stdout="", stdout_cut=False, log_tail=""
            )

    @contextlib.contextmanager
    def started(argv: list[str], **_: object) -> Iterator[Child]:
        Path(argv[-1]).with_name("result.json").write_text(dumps(results[-1]))
        yield Child()

    monkeypatch.setattr(process, "start_child", started)
    return results


def kept(cache: Path) -> list[Path]:
    return [path for path in cache.rglob("*") if path.is_file()]


@pytest.mark.fresh_process
def test_a_process_measures_this_cpu(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceiling_store, "CPU_BUDGET_S", 0.3)
    monkeypatch.setattr(machine_records, "MAX_SPREAD_PERCENT", 1e9)  # other tests may use the machine
    said: list[str] = []
    found, notes = ceilings_of("cpu", on_progress=said.append)
    assert notes == ()
    assert found is not None
    assert [rate.math for rate in found.rates] == ["fp32", "bf16"]
    assert all(1e8 < rate.flops_per_s < 1e16 and rate.repeats >= 3 for rate in found.rates)
    assert found.bandwidth_bytes_per_s is not None
    assert 1e8 < found.bandwidth_bytes_per_s < 1e14
    assert found.torch == torch.__version__
    assert "peaks" in said[0]
    again, _ = ceilings_of("cpu", on_progress=said.append)
    assert again == found
    assert len(said) == 1


def test_a_measurement_that_fails_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    def mm(*_: object, **__: object) -> None:
        raise RuntimeError("no kernel\nat some place")

    monkeypatch.setattr(torch, "mm", mm)
    found = ceilings.measure("cpu", budget_s=0.05)
    assert found.rates == ()
    assert found.bandwidth_bytes_per_s is not None
    assert [note.split(":")[0] for note in found.notes] == ["fp32 was not measured", "bf16 was not measured"]
    assert "no kernel" in found.notes[0]
    assert "at some place" not in found.notes[0]


def test_kept_until_asked_for_fresh_ones(cache: Path, measured: list[Ceilings]) -> None:
    assert ceilings_of("cpu") == (FOUND, ())
    measured.append(replace(FOUND, duration_ns=6))
    assert ceilings_of("cpu") == (FOUND, ())
    assert ceilings_of("cpu", fresh=True)[0] == measured[-1]
    assert ceilings_of("cpu")[0] == measured[-1]
    assert len(kept(cache)) == 1


def test_torch_threads_and_switches_are_part_of_the_key(
    cache: Path, measured: list[Ceilings], monkeypatch: pytest.MonkeyPatch
) -> None:
    ceilings_of("cpu")
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    ceilings_of("cpu")
    monkeypatch.setattr(torch, "get_num_threads", lambda: 77)
    ceilings_of("cpu")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    ceilings_of("cpu")
    assert len(kept(cache)) == 4


@pytest.mark.parametrize("what", ["rate", "copy"])
def test_unsteady_peaks_are_a_note_and_not_cached(what: str, cache: Path, measured: list[Ceilings]) -> None:
    rate = replace(FOUND.rates[0], spread_percent=37.6)
    busy = replace(FOUND, rates=(rate,)) if what == "rate" else replace(FOUND, bandwidth_spread_percent=37.6)
    measured.append(busy)
    found, (note,) = ceilings_of("cpu")
    assert found == busy
    assert "38 %" in note
    assert "profiler-kit env" in note
    assert kept(cache) == []
    measured.append(FOUND)
    assert ceilings_of("cpu") == (FOUND, ())


def damaged(change: Callable[[Any], object]) -> Callable[[str], str]:
    def text(whole: str) -> str:
        data = json.loads(whole)
        change(data)
        return json.dumps(data)

    return text


DAMAGE: dict[str, Callable[[str], str]] = {
    "cut": lambda whole: whole[: len(whole) // 2],
    "empty": lambda _: "",
    "no object": lambda _: "[1]",
    "deep": lambda _: "[" * 100_000,
    "another key": damaged(lambda data: data.update(key=["x"])),
    "a zero": damaged(lambda data: data["ceilings"].update(bandwidth_bytes_per_s=0)),
    "negative": damaged(lambda data: data["ceilings"]["rates"][0].update(flops_per_s=-1.0)),
    "not a number": damaged(lambda data: data["ceilings"]["rates"][0].update(flops_per_s=float("nan"))),
    "infinite": damaged(lambda data: data["ceilings"].update(bandwidth_bytes_per_s=float("inf"))),
    "text": damaged(lambda data: data["ceilings"].update(rates="fast")),
    "missing": damaged(lambda data: data["ceilings"].pop("rates")),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_is_measured_and_written_again(how: str, cache: Path, measured: list[Ceilings]) -> None:
    ceilings_of("cpu")
    (file,) = kept(cache)
    whole = file.read_text()
    file.write_text(DAMAGE[how](whole))
    said: list[str] = []
    assert ceilings_of("cpu", on_progress=said.append) == (FOUND, ())
    assert len(said) == 1
    assert file.read_text() == whole


def test_a_folder_that_cannot_be_written_is_a_note(cache: Path, measured: list[Ceilings]) -> None:
    cache.write_text("a file where the folder should be")
    found, (note,) = ceilings_of("cpu")
    assert found == FOUND
    assert str(cache) in note
    assert "Not a directory" in note


def test_a_full_disk_leaves_no_half_file(
    cache: Path, measured: list[Ceilings], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    found, (note,) = ceilings_of("cpu")
    assert found == FOUND
    assert "No space left on device" in note
    assert kept(cache) == []


def test_a_user_without_a_home_measures_each_time(measured: list[Ceilings], monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setenv("XDG_CACHE_HOME", "relative/ones/do/not/count")
    monkeypatch.setattr(Path, "home", homeless)
    found, (note,) = ceilings_of("cpu")
    assert found == FOUND
    assert "$XDG_CACHE_HOME" in note
    assert ceiling_store.cache_folder() is None


def test_the_cache_folder_follows_the_xdg_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert ceiling_store.cache_folder() == tmp_path / "profiler_kit"
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    for other in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", other)
        assert ceiling_store.cache_folder() == tmp_path / "home" / ".cache" / "profiler_kit"


ENDINGS = {
    "error": ("echo 'first words' >&2; echo 'CUDA error: last words' >&2; exit 3", "exit status 3: CUDA error: last words"),
    "silent": ("exit 4", "exit status 4"),
    "killed": ("kill -9 $$", "SIGKILL"),
    "hang": ("sleep 60", "0.5 s"),
}  # fmt: skip


@pytest.mark.parametrize("how", ENDINGS)
def test_a_process_that_ends_badly_is_a_note(
    how: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, said = ENDINGS[how]
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    found, (note,) = ceilings_of("cpu", limit_s=0.5 if how == "hang" else AMPLE_S)
    assert found is None
    assert note.startswith("The device's peaks could not be measured: ")
    assert said in note
    assert kept(cache) == []


def test_a_missing_program_is_a_note(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    found, (note,) = ceilings_of("cpu")
    assert found is None
    assert "/no/such/python" in note
