"""Sweeps: tasks, the journal that survives a kill, failures as results, and the files of the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from waiting import is_written, wait_until

from profiler_kit.cli import main
from profiler_kit.errors import INTERRUPTED, OK, TARGET_FAILED, USAGE, ReportError, TargetError, UsageError
from profiler_kit.pipeline import sweep as sweeps
from profiler_kit.pipeline.sweep import JOURNAL, SweepOptions, run_sweep, sweep_tasks
from profiler_kit.pipeline.sweep_engines import TaskEnd
from profiler_kit.records.sweeps import Sweep, SweepTask

NET = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, WIDTH)
    def forward(self, x):
        return self.fc(x)
example_inputs = torch.ones(2, 4)
"""
COUNT = SweepOptions(verb="count")


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for width in range(1, 5):
        (tmp_path / f"net{width}.py").write_text(NET.replace("WIDTH", str(width)))
    return tmp_path


class Recorder:
    """An engine that answers at once, and remembers what it was asked."""

    def __init__(self, failing: Iterable[str] = (), interrupts_after: int | None = None) -> None:
        self.ran: list[str] = []
        self._failing = set(failing)
        self._interrupts_after = interrupts_after

    def run(self, tasks: Sequence[SweepTask]) -> Generator[tuple[SweepTask, TaskEnd], None, None]:
        for number, task in enumerate(tasks):
            if number == self._interrupts_after:
                raise KeyboardInterrupt
            self.ran.append(task.model)
            failure = "it broke" if task.model in self._failing else "no report here"
            yield task, TaskEnd(place="here", wall_ns=5, failure=failure if task.model in self._failing else "")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use(recorder: Recorder) -> Recorder:
        monkeypatch.setattr(sweeps, "_engine", lambda *_: recorder)
        return recorder

    return use


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / JOURNAL).read_text().splitlines()]


def test_tasks_are_models_times_batches_without_duplicates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("other.py", "net.py", "my net.py"):
        (tmp_path / name).touch()
    with pytest.raises(TargetError, match="no such file") as raised:
        sweep_tasks(["net.py", "othr.py"], SweepOptions(), "cuda")
    assert raised.value.hint == "profiler-kit sweep other.py"
    listed = tmp_path / "models.txt"
    listed.write_text("# comment\n\nnet.py -i 8,3  # inputs\n'my net.py:Net'\nother.py\n")
    options = SweepOptions(argv=("--mode", "infer"), configs=("default", "benchmark"), batches=(1, 8))
    tasks = sweep_tasks(["other.py", str(listed), "other.py"], options, "cuda")
    assert [(task.model, task.batch) for task in tasks] == [
        (model, batch) for model in ("other.py", "net.py", "my net.py:Net") for batch in (1, 8)
    ]
    shared = ("--mode", "infer", "--configs", "default,benchmark", "--batch", "8")
    assert tasks[3].argv == ("-i", "8,3", *shared)
    assert {task.device for task in tasks} == {"cuda"}
    assert len({task.key for task in tasks}) == 6


@pytest.mark.parametrize(
    ("models", "words"),
    [
        (["missing.txt"], "cannot read this list"),
        (["hf:*"], "a pattern needs a zoo"),
        (["empty.txt"], "no model"),
        (["quote.txt"], "quotation"),
    ],
)
def test_a_wrong_list_of_models_is_one_message(models: list[str], words: str, nets: Path) -> None:
    (nets / "empty.txt").write_text("# nothing\n")
    (nets / "quote.txt").write_text("net1.py\nnet2.py --kw 'a=1\n")
    with pytest.raises(UsageError, match=words):
        sweep_tasks(models, COUNT, "")


def test_a_wrong_option_in_a_list_has_its_line(nets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (nets / "models.txt").write_text("net1.py\nnet2.py --imput 3\n")
    assert main(["sweep", "models.txt", "--count"]) == 2
    assert "models.txt:2: unrecognized arguments: --imput" in capsys.readouterr().err


def test_a_second_call_runs_what_is_missing(nets: Path, engine: Any) -> None:
    first = engine(Recorder(failing=["net2.py"]))
    names = ["net1.py", "net2.py"]
    sweep, interrupted = run_sweep(names, nets / "out", COUNT)
    assert (first.ran, interrupted, sweep.planned) == (names, False, 2)
    assert [result.failure for result in sweep.results] == ["no report was written", "it broke"]
    second = engine(Recorder())
    sweep, _ = run_sweep([*names, "net3.py"], nets / "out", COUNT)
    assert second.ran == ["net3.py"]
    assert [result.task.model for result in sweep.results] == [*names, "net3.py"]
    third = engine(Recorder())
    run_sweep(names, nets / "out", SweepOptions(verb="count", retries_failed=True))
    assert third.ran == names
    assert len(lines(nets / "out")) == 5


def test_other_options_are_other_tasks(nets: Path, engine: Any) -> None:
    engine(Recorder())
    run_sweep(["net1.py"], nets / "out", COUNT)
    other = engine(Recorder())
    sweep, _ = run_sweep(["net1.py"], nets / "out", SweepOptions(verb="count", batches=(8,)))
    assert other.ran == ["net1.py"]
    assert [result.task.batch for result in sweep.results] == [8, None]


def test_ctrl_c_keeps_what_ended(nets: Path, engine: Any) -> None:
    engine(Recorder(interrupts_after=2))
    sweep, interrupted = run_sweep(["net1.py", "net2.py", "net3.py"], nets / "out", COUNT)
    assert interrupted
    assert (sweep.planned, len(sweep.results)) == (3, 2)
    assert len(lines(nets / "out")) == 2


def test_an_unfinished_line_is_removed_and_its_task_runs_again(nets: Path, engine: Any) -> None:
    engine(Recorder())
    run_sweep(["net1.py", "net2.py"], nets / "out", COUNT)
    journal = nets / "out" / JOURNAL
    journal.write_bytes(journal.read_bytes()[:-40])
    again = engine(Recorder())
    run_sweep(["net1.py", "net2.py"], nets / "out", COUNT)
    assert again.ran == ["net2.py"]
    assert [line["task"]["model"] for line in lines(nets / "out")] == ["net1.py", "net2.py"]


def test_a_foreign_line_is_named_and_kept(nets: Path, engine: Any) -> None:
    engine(Recorder())
    (nets / "out").mkdir()
    (nets / "out" / JOURNAL).write_text('{"loss": 3}\n')
    with pytest.raises(ReportError, match=f"{JOURNAL}:1"):
        run_sweep(["net1.py"], nets / "out", COUNT)
    assert (nets / "out" / JOURNAL).read_text() == '{"loss": 3}\n'


def test_two_sweeps_do_not_share_a_folder(nets: Path, engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("profiler_kit.pipeline.sweep.LOCK_S", 0.0)
    recorder = Recorder()

    def run(tasks: Sequence[SweepTask]) -> Generator[tuple[SweepTask, TaskEnd], None, None]:
        with pytest.raises(UsageError, match="another sweep"):
            run_sweep(["net1.py"], nets / "out", COUNT)
        yield from ()

    recorder.run = run  # type: ignore[method-assign]
    engine(recorder)
    run_sweep(["net1.py"], nets / "out", COUNT)


def test_devices_of_two_kinds_are_refused(nets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from profiler_kit.worker import environment

    monkeypatch.setattr(environment, "pick_device", lambda name: name)
    with pytest.raises(UsageError, match="several kinds"):
        run_sweep(["net1.py"], nets / "out", SweepOptions(devices=("cuda:0", "cpu")))


def test_a_card_needs_counting(nets: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", "net1.py", "--gpu", "h100"]) == USAGE


@pytest.mark.jobs
def test_counting_for_a_card_sorts_by_predicted_time(nets: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = "import torch\nfrom torch import nn\ndef build(): return nn.Linear({0}, {0}), torch.ones(4096, {0})\n"
    for name, width in (("large.py", 4096), ("small.py", 64)):
        (nets / name).write_text(model.format(width))
    assert main(["sweep", "large.py", "small.py", "--count", "--gpu", "h100", "--out", "out", "-q"]) == OK
    data = json.loads((nets / "out" / "sweep.json").read_text())
    large, small = data["results"]
    assert large["kernel_ns"] > small["kernel_ns"] > 0
    assert large["step_ns"] >= large["kernel_ns"]
    table = capfd.readouterr().out.partition("Models")[2]  # a line before it names the longest task
    assert table.index("small.py") < table.index("large.py")


@pytest.mark.jobs
def test_counting_writes_one_table_and_all_reports(nets: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (nets / "broken.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self): raise OSError('gone')\n"
    )
    assert (
        main(["sweep", "net1.py", "net2.py", "broken.py", "--count", "--batches", "2,8", "--out", "out", "-f", "json"])
        == OK
    )
    printed = capfd.readouterr()
    data = json.loads(printed.out)
    assert (data["kind"], data["planned"]) == ("sweep", 6)
    by_key = {(result["task"]["model"], result["task"]["batch"]): result for result in data["results"]}
    assert by_key["net2.py", 8]["macs"] == 8 * 4 * 2
    assert by_key["net2.py", 2]["params"] == 2 * 5
    assert "gone" in by_key["broken.py", 2]["failure"]
    for result in data["results"]:
        assert bool(result["report"]) == (not result["failure"])
        if result["report"]:
            assert main(["show", str(nets / "out" / result["report"]), "-q"]) == OK
    assert "[6/6]" in printed.err
    for name in ("sweep.html", "sweep.csv", "sweep.json", JOURNAL):
        assert (nets / "out" / name).stat().st_size
    capfd.readouterr()
    assert main(["show", "out/sweep.json"]) == OK
    assert "2 of them failed" in capfd.readouterr().out


@pytest.mark.jobs
def test_measuring_compares_configurations(nets: Path) -> None:
    words = ["--configs", "default,deterministic", "--mode", "infer", "--budget", "0.2s", "--devices", "cpu", "-q"]
    assert main(["sweep", "net3.py", *words, "--out", "out", "-f", "csv"]) == OK
    (result,) = lines(nets / "out")
    assert (result["failure"], result["device_name"] != "") == ("", True)
    runs = {run["config"]: run for run in result["runs"]}
    assert runs["default"]["ratio"] is None
    assert runs["default"]["examples_per_s"] == pytest.approx(2e9 / runs["default"]["step_ns"]["median"])
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    table = pandas.read_parquet(nets / "out" / "results.parquet")
    assert list(table["config"]) == [run["config"] for run in result["runs"]]
    assert table["step_ns"].iloc[0] == runs["default"]["step_ns"]["median"]


@pytest.mark.jobs
def test_a_killed_sweep_loses_only_what_was_running(nets: Path) -> None:
    names = [f"net{width}.py" for width in range(1, 5)]
    argv = [sys.executable, "-m", "profiler_kit", "sweep", *names, "--count", "--out", "out", "-q"]
    with subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ) as first:
        wait_until(lambda: is_written(nets / "out" / JOURNAL))
        first.send_signal(signal.SIGKILL)
    kept = [line["task"]["model"] for line in lines(nets / "out")]
    assert kept
    assert main([*argv[3:]]) == OK
    models = [line["task"]["model"] for line in lines(nets / "out")]
    assert models[: len(kept)] == kept
    assert sorted(models) == names


def test_ctrl_c_during_the_command_says_how_to_continue(
    nets: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], engine: Any
) -> None:
    engine(Recorder(interrupts_after=1))
    assert main(["sweep", "net1.py", "net2.py", "--count", "--out", "out"]) == INTERRUPTED
    assert "1 task left" in capsys.readouterr().err
    assert (nets / "out" / "sweep.html").exists()


def test_a_sweep_without_any_success_is_a_failure(nets: Path, capsys: pytest.CaptureFixture[str], engine: Any) -> None:
    engine(Recorder(failing=["net1.py", "net2.py"]))
    assert main(["sweep", "net1.py", "net2.py", "--count", "--out", "out", "-f", "json"]) == TARGET_FAILED
    shown = capsys.readouterr()
    assert [result["failure"] for result in json.loads(shown.out)["results"]] == ["it broke", "it broke"]
    assert "net1.py: " in shown.err
    assert "2 tasks" in shown.err


def test_a_full_disk_keeps_the_finished_task(
    nets: Path, capsys: pytest.CaptureFixture[str], engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine(Recorder())
    assert main(["sweep", "net1.py", "--count", "--out", "out", "-q"]) == TARGET_FAILED
    before = (nets / "out" / JOURNAL).read_bytes()
    second = engine(Recorder(failing=["net2.py"]))
    capsys.readouterr()
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", half_written)
        assert main(["sweep", "net1.py", "net2.py", "net3.py", "--count", "--out", "out", "-f", "json"]) == USAGE
    shown = capsys.readouterr()
    assert second.ran == ["net2.py"]
    assert [result["failure"] for result in json.loads(shown.out)["results"]] == ["no report was written", "it broke"]
    assert "No space left" in shown.err
    assert (nets / "out" / JOURNAL).read_bytes() == before


def half_written(descriptor: int, data: bytes) -> int:
    """A write to a disk that has room for half of `data`."""
    return os.writev(descriptor, [data[: len(data) // 2]])


def test_a_sweep_shows_itself(nets: Path, engine: Any) -> None:
    engine(Recorder(failing=["net1.py"]))
    sweep, _ = run_sweep(["net1.py"], nets / "out", COUNT)
    assert isinstance(sweep, Sweep)
    assert "it broke" in str(sweep)
