"""Real processes that fail in one configuration, one visit or one question only: the report says so, and the rest stands."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from simulated_clock import let_time_pass_once
from waiting import wait_for_end

torch = pytest.importorskip("torch")

from profiler_kit.cli import main  # noqa: E402
from profiler_kit.cli.output import REPORT_FILES  # noqa: E402
from profiler_kit.errors import INTERRUPTED, OK, KitError, UsageError  # noqa: E402
from profiler_kit.measurement import experiments, repetition, session, sweep  # noqa: E402
from profiler_kit.measurement import plan as configs  # noqa: E402
from profiler_kit.pipeline.analyze import all_failed, analyze_spec  # noqa: E402
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.experiments import ExperimentOptions  # noqa: E402
from profiler_kit.records.report import Finding, Report  # noqa: E402
from profiler_kit.records.runs import ConfigRun, Failure  # noqa: E402
from profiler_kit.records.samples import Interval  # noqa: E402
from profiler_kit.records.serde import loads_report  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402

pytestmark = pytest.mark.jobs

# The flags can be set on a CPU, where they change nothing: so a model can tell from them which configuration it is in.
# `visit` counts the processes of that configuration that came to their first step.
NET = """
import os, signal, time
from pathlib import Path
import torch
from torch import nn
HERE = Path(__file__).parent
def name():
    flags = torch.backends.cudnn
    if torch.are_deterministic_algorithms_enabled():
        return 'algorithms'
    words = [word for word, on in (('a', flags.benchmark), ('b', flags.deterministic), ('c', not flags.allow_tf32)) if on]
    return ''.join(words) or 'default'
def command():
    # the process that started this one, maybe through a server that forked it
    parent = os.getppid()
    if b'fork_server' in Path(f'/proc/{parent}/cmdline').read_bytes():
        parent = int(Path(f'/proc/{parent}/stat').read_text().rpartition(')')[2].split()[1])
    return parent
def ctrl_c():
    group = os.environ.get('OWN_GROUP')
    os.killpg(os.getpgid(command()), signal.SIGINT) if group else os.kill(command(), signal.SIGINT)
    time.sleep(300)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.calls = nn.Linear(4, 4), 0
    def forward(self, x):
        if x.device.type == 'cpu':
            self.calls += 1
            if self.calls == 1:
                with (HERE / 'visits').open('a') as file:
                    print(name(), os.getpid(), file=file)
            which, lines = name(), (HERE / 'visits').read_text().splitlines()
            visit = sum(line.split()[0] == which for line in lines)
            ACT
        return self.fc(x)
example_inputs = torch.zeros(8, 4)
"""
HANG = "if which == 'a': (HERE / 'hung').touch(); time.sleep(300)"
A = RunConfig(name="a", benchmark=True)
B = RunConfig(name="b", deterministic=True)
C = RunConfig(name="c", allow_tf32=False)
AB = RunConfig(name="ab", benchmark=True, deterministic=True)
DEFAULT = RunConfig(name="default", benchmark=False, deterministic=False, allow_tf32=True)
AGAIN = replace(DEFAULT, name="default (again)", repeat_of="default")


MeasuredBy = Callable[[Callable[..., Any]], None]


class Place:
    """A folder with a model in it, and what its processes left there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spec = TargetSpec(spec=str(folder / "net.py"), mode="infer")
        self.hung = folder / "hung"

    def write(self, act: str) -> None:
        (self.folder / "net.py").write_text(NET.replace("ACT", act))

    def visits(self) -> list[str]:
        """The configurations, in the order in which their processes came to the first step."""
        return [line.split()[0] for line in (self.folder / "visits").read_text().splitlines()]

    def assert_tidy(self, *files: str) -> None:
        """Every process has gone, no temporary folder stays, and the report's folder holds whole files alone."""
        for line in (self.folder / "visits").read_text().splitlines():
            wait_for_end(int(line.split()[1]))
        assert [path.name for path in (self.folder / "tmp").iterdir() if path.name.startswith("profiler_kit")] == []
        if (self.folder / "out").exists():
            written = {path.name for path in (self.folder / "out").iterdir()}
            assert written == {*REPORT_FILES, "traces"}
            assert all(re.fullmatch(r"[a-z_]+\.json\.gz", path.name) for path in (self.folder / "out/traces").iterdir())

    def report(self) -> Report:
        """The one that the command line wrote."""
        return loads_report((self.folder / "out" / "report.json").read_text(), "the report")


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts this process and those that it starts, also if the tests run in the background, where it is ignored."""
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, handler)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """An empty place; temporary folders are made in it, and what the CPU reaches is not measured."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("profiler_kit.pipeline.rooflines.with_measured_roofline", lambda report, device, say: report)
    return Place(tmp_path)


def planned(monkeypatch: pytest.MonkeyPatch, *first: RunConfig, optional: tuple[RunConfig, ...] = ()) -> None:
    """These configurations, wherever the test runs; `a` and `b` by name."""

    def plan(*args: Any, only: Any = None, **rest: Any) -> configs.Plan:
        if only is None:
            return configs.Plan(configs=first, notes=(), optional=optional)
        return configs.Plan(configs=tuple(one for one in (A, B) if one.name in only), notes=())

    monkeypatch.setattr(configs, "make_plan", plan)


def by_name(runs: tuple[ConfigRun, ...]) -> dict[str, ConfigRun]:
    return {run.config.name: run for run in runs}


def numbers(said: list[str]) -> list[tuple[int, int]]:
    """The progress, as n of N, each once."""
    found = [match.groups() for line in said if (match := re.match(r"\[(\d+)/(\d+)\]", line))]
    return list(dict.fromkeys((int(n), int(of)) for n, of in found))


def failure(run: ConfigRun) -> tuple[str, str]:
    assert run.failure is not None
    assert run.steps_ns == ()
    return run.failure.kind, run.failure.message


def test_what_fails_in_one_configuration_leaves_the_others(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in its first step, out of memory in one configuration only: the baseline, its repetition and the rest stand."""
    place.write(
        "if which == 'a': os.kill(os.getpid(), signal.SIGKILL)\n"
        "            if which == 'b': raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 9 GiB.')"
    )
    planned(monkeypatch, DEFAULT, A, B, AGAIN)
    said: list[str] = []
    report = analyze_spec(place.spec, device="cpu", steps=3, on_progress=said.append).report
    runs = by_name(report.runs)
    assert list(runs) == ["default", "a", "b", "default (again)"]
    assert failure(runs["a"])[0] == "out_of_memory"
    assert failure(runs["a"])[1].startswith("killed (SIGKILL)")
    assert failure(runs["b"])[0] == "out_of_memory"
    assert "CUDA out of memory. Tried to allocate 9 GiB." in failure(runs["b"])[1]
    assert [len(runs[name].steps_ns) for name in ("default", "default (again)")] == [3, 3]
    assert place.visits() == ["default", "a", "b", "default"]  # what failed on the way there is not visited again
    assert all_failed(report) is None
    told = [finding for finding in report.findings if finding.rule == "failed_runs"]
    assert len(told) == 2
    assert numbers(said) == [(1, 6), (2, 6), (3, 5), (4, 4)]
    place.assert_tidy()


def test_what_fails_in_one_visit_only(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the way there alone: a failed run. On the way back alone: a run that stands, whose repetition says why there is none."""
    place.write(
        "if which == 'a' and visit == 1: raise ValueError('only at first')\n"
        "            if which == 'b' and visit == 2: os.abort()"
    )
    planned(monkeypatch, DEFAULT, A, B)
    report = analyze_spec(place.spec, device="cpu", steps=3, budget_s=0.1).report
    runs = by_name(report.runs)
    assert "ValueError: only at first" in failure(runs["a"])[1]
    assert runs["b"].failure is None
    assert len(runs["b"].steps_ns) == 3
    again = runs["b"].repeat
    assert again is not None
    assert again.failure == "the process crashed (SIGABRT)"
    assert again.steps_ns == ()
    assert place.visits() == ["default", "a", "b", "b"]


def test_a_hang_in_one_configuration_takes_its_time_limit_and_no_more(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write(HANG)
    planned(monkeypatch, A, DEFAULT)
    let_time_pass_once(place.hung.exists, 400.0, monkeypatch)
    report = analyze_spec(place.spec, device="cpu", steps=3, timeout_s=400.0).report
    hung, stands = report.runs
    kind, message = failure(hung)
    assert kind == "timeout"
    assert "400 s" in message
    assert "--timeout" in message
    assert len(stands.steps_ns) == 3
    place.assert_tidy()


def test_an_optional_configuration_that_is_much_slower_is_ended(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asked for it: its time limit comes from the baseline, and the time it took is not there for the next one."""
    monkeypatch.setattr(session, "MIN_LIMIT_S", 4000.0)
    monkeypatch.setattr(session, "MAX_SLOWDOWN", 1.0)
    place.write(HANG)
    planned(monkeypatch, DEFAULT, optional=(A, B))
    let_time_pass_once(place.hung.exists, 4000.0, monkeypatch)
    report = analyze_spec(place.spec, device="cpu", steps=3, budget_s=8000.0, timeout_s=9000.0).report
    runs = by_name(report.runs)
    assert list(runs) == ["default", "a"]
    kind, message = failure(runs["a"])
    assert kind == "timeout"
    assert re.match(r'much slower than "default": .* \d+ s, .* \d+\.\d s\. .* --also ', message)
    (note,) = [note for note in map(str, report.notes) if "--budget" in note]
    assert note.startswith("Skipped ")
    assert ": b." in note


def test_optional_configurations_are_not_tried_beside_a_baseline_that_failed(
    place: Place, monkeypatch: pytest.MonkeyPatch, measured_by: MeasuredBy
) -> None:
    place.write("pass")
    failed = Failure(kind="error", message="no")
    measured_by(lambda spec, config, **_: ConfigRun(config=config, failure=failed))
    planned(monkeypatch, DEFAULT, optional=(A, B))
    report = analyze_spec(place.spec, device="cpu", steps=3).report
    assert [run.config.name for run in report.runs] == ["default"]
    assert any(note.startswith('Skipped because "default" failed: a, b') for note in map(str, report.notes))
    assert all_failed(report) is not None


def analyze(place: Place, *words: str) -> int:
    """The exit status of the command line, in this process."""
    argv = ["analyze", place.spec.spec, "--device", "cpu", "--mode", "infer", "--steps", "3", "--out", "out", "-q"]
    return main([*argv, *words])


def test_ctrl_c_during_the_sweep(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write("if which == 'a': ctrl_c()")
    planned(monkeypatch, DEFAULT, A, B, AGAIN)
    assert analyze(place) == INTERRUPTED
    runs = by_name(place.report().runs)
    assert len(runs["default"].steps_ns) == 3
    assert failure(runs["a"]) == ("interrupted", "interrupted")
    for name in ("b", "default (again)"):
        assert failure(runs[name])[0] == "interrupted"
        assert failure(runs[name])[1].startswith("not run")
    place.assert_tidy()


def test_ctrl_c_on_the_way_back_ends_the_command_as_on_a_terminal(tmp_path: Path) -> None:
    """The command line as a process of its own."""
    place = Place(tmp_path)
    place.write("if which == 'algorithms' and visit == 2: ctrl_c()")
    (tmp_path / "tmp").mkdir()
    words = (
        "analyze net.py --device cpu --mode infer --steps 3 --out out --configs default --also deterministic_algorithms"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "profiler_kit", *words.split(), "-f", "json"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp"), "OWN_GROUP": "1"},  # a terminal interrupts the whole group
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == INTERRUPTED, ended.stderr
    assert "interrupted: " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert place.visits() == ["default", "algorithms", "algorithms"]
    assert json.loads(ended.stdout) == json.loads((tmp_path / "out" / "report.json").read_text())
    first, other, again = place.report().runs
    assert (len(first.steps_ns), len(other.steps_ns)) == (3, 3)
    assert other.repeat is None
    assert failure(again)[0] == "interrupted"
    assert failure(again)[1].startswith("not run")
    place.assert_tidy()


def advising(*names: str) -> Callable[[Report], tuple[Finding, ...]]:
    def diagnose(report: Report, models: object = None) -> tuple[Finding, ...]:
        return (Finding(rule="r", severity="low", title="t", explanation="e", advice="a", evidence=(), tries=names),)

    return diagnose


def test_ctrl_c_during_trials(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write("if which == 'a': ctrl_c()")
    planned(monkeypatch, DEFAULT)
    monkeypatch.setattr("profiler_kit.diagnosis.diagnose", advising("a"))
    assert analyze(place, "--try") == INTERRUPTED
    report = place.report()
    assert [run.config.name for run in report.runs] == ["default"]
    assert len(report.runs[0].steps_ns) == 3
    assert any(note.startswith("Interrupted") and "1 of 4" in note for note in map(str, report.notes))
    assert [finding.trial for finding in report.findings] == [None]
    assert place.visits() == ["default", "default", "a"]
    place.assert_tidy()


def quick(spec: TargetSpec, config: RunConfig, **_: Any) -> ConfigRun:
    return ConfigRun(config=config, steps_ns=(9, 10, 11), step_ns=Interval(median=10, low=9, high=11), first_step_ns=50)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[str], None]]:
    """What each process that may use the device says its progress by: a stand-in for one can do so too."""
    heard: list[Callable[[str], None]] = []
    real = sweep.measure_visits

    def measure_visits(
        *args: Any, on_start: Callable[[Any], None], on_progress: Callable[..., None], **rest: Any
    ) -> Any:
        def started(visit: Any) -> None:
            on_start(visit)
            heard.append(partial(on_progress, visit))

        return real(*args, on_start=started, on_progress=on_progress, **rest)

    monkeypatch.setattr(sweep, "measure_visits", measure_visits)
    return heard


@pytest.mark.parametrize(("fails", "counted"), [(False, [(1, 6), (2, 6), (3, 6), (4, 6), (5, 6), (6, 6)]),
                                                (True, [(1, 6), (2, 6), (3, 5), (4, 5), (5, 5)])])  # fmt: skip
def test_progress_of_trials_counts_every_process(
    fails: bool,
    counted: list[tuple[int, int]],
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    measured_by: MeasuredBy,
    told: list[Callable[[str], None]],
) -> None:
    """There and back the orders of a known configuration are equal, and are two processes all the same."""
    place.write("pass")
    planned(monkeypatch, DEFAULT, B)
    monkeypatch.setattr("profiler_kit.diagnosis.diagnose", advising("a", "b"))

    def measured(spec: TargetSpec, config: RunConfig, **rest: Any) -> ConfigRun:
        told[-1]("first step")
        if fails and config == A:
            return ConfigRun(config=config, failure=Failure(kind="error", message="no"))
        return quick(spec, config, **rest)

    measured_by(measured)
    # two equal results are undecided: further passes would follow
    monkeypatch.setattr(repetition.FurtherPasses, "next_pass", lambda _: [])
    said: list[str] = []
    questions = ExperimentOptions(trials=True)
    report = analyze_spec(place.spec, device="cpu", steps=3, on_progress=said.append, experiments=questions).report
    assert numbers([line for line in said if "trial" not in line]) == [(1, 3), (2, 3), (3, 3)]
    assert numbers([line for line in said if "trial" in line]) == counted
    trial = report.findings[0].trial
    assert trial is not None
    assert (trial.config, trial.verdict) == ("a", "failed" if fails else "same")


def test_first_answers_come_before_the_last_process(
    place: Place, monkeypatch: pytest.MonkeyPatch, measured_by: MeasuredBy
) -> None:
    place.write("pass")
    planned(monkeypatch, DEFAULT, B, optional=(A,))
    events: list[str] = []

    def measured(spec: TargetSpec, config: RunConfig, **rest: Any) -> ConfigRun:
        events.append(config.name)
        return quick(spec, config, **rest)

    def on_answer(names: tuple[str, ...], sentences: tuple[str, ...]) -> None:
        assert "10 ns" in sentences[0]
        events.append(f"answer on {'+'.join(names)}")

    measured_by(measured)
    monkeypatch.setattr(repetition.FurtherPasses, "next_pass", lambda _: [])
    monkeypatch.setattr(session, "_has_time", lambda *_: True)
    analyze_spec(place.spec, device="cpu", steps=3, on_answer=on_answer)
    assert events == ["default", "answer on default", "b", "a", "answer on default+b+a", "a", "b"]


def test_quick_measures_two_configurations_for_a_short_time(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options: list[Any] = []

    def analyze_nothing(spec: TargetSpec, **given: Any) -> Any:
        options.append((given["configs"], given["budget_s"]))
        raise KitError("nothing to measure")

    monkeypatch.setattr("profiler_kit.pipeline.analyze.analyze_spec", analyze_nothing)
    place.write("pass")
    for words in ((), ("--quick",), ("--quick", "--budget", "5s")):
        analyze(place, *words)
    assert options == [(None, 60.0), (("default", "benchmark"), 10.0), (("default", "benchmark"), 5.0)]
    capsys.readouterr()
    assert analyze(place, "--quick", "--configs", "default") == 2
    assert "leave out --quick or --configs" in capsys.readouterr().err


def test_a_configuration_with_a_very_long_name_has_a_trace_file_all_the_same(
    place: Place, monkeypatch: pytest.MonkeyPatch, measured_by: MeasuredBy
) -> None:
    place.write("pass")
    files: list[str] = []

    def measured(spec: TargetSpec, config: RunConfig, *, trace: Path | None, **_: Any) -> ConfigRun:
        if trace is not None:
            trace.touch()
            files.append(trace.name)
        return quick(spec, config)

    measured_by(measured)
    long = "checkpoint=" + "ü." * 200
    planned(monkeypatch, DEFAULT, RunConfig(name=long), RunConfig(name=f"{long}x"))
    report = analyze_spec(place.spec, device="cpu", steps=3, traces=place.folder / "traces").report
    assert [run.failure for run in report.runs] == [None, None, None]
    assert len(set(files)) == 3


def test_questions_that_no_run_can_answer_are_told_why() -> None:
    failed = ConfigRun(config=DEFAULT, failure=Failure(kind="error", message="no"))
    here = session.Session(
        spec=TargetSpec(spec="net.py"), device="cuda", budget_s=1.0, on_progress=lambda _: None, runs=[failed],
        read_trace=lambda run, _: run, read_parts_trace=lambda run, _: run,
    )  # fmt: skip
    experiments.measure_with_memory_limit(here, 2**30, Path())
    (limit,) = here.notes
    assert "1 GiB" in limit
    assert here.runs == [failed]


def test_ctrl_c_while_shapes_change(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write("if x.shape[0] == 5: ctrl_c()")
    planned(monkeypatch, DEFAULT)
    assert analyze(place, "--shapes", "6x4,5x4") == INTERRUPTED
    report = place.report()
    assert len(report.runs[0].steps_ns) == 3
    assert report.schedules == ()
    assert any(note.startswith("Interrupted") and '"default"' in note for note in map(str, report.notes))
    place.assert_tidy()


def test_everything_asked_at_once_on_a_cpu(place: Place) -> None:
    """What means nothing here, or can't be done, is one sentence or one failed run each."""
    place.write("pass")
    words = (
        *("--configs", "default", "--also", "checkpoint=nowhere,cuda_graph,memory_limit=1GiB", "--also", "no_item"),
        *(
            "--mode",
            "train",
            "--shapes",
            "6x4",
            "--memory-limit",
            "1GiB",
            "--steps-planned",
            "100",
        ),
    )
    assert analyze(place, *words) == OK
    report = place.report()
    runs = by_name(report.runs)
    assert list(runs) == ["default", "checkpoint=nowhere", "default (again)"]
    assert failure(runs["checkpoint=nowhere"])[0] == "target"
    assert "nowhere" in failure(runs["checkpoint=nowhere"])[1]
    assert len(runs["default"].steps_ns) == len(runs["default (again)"].steps_ns) == 3
    for start in (
        "Skipped cuda_graph:",
        "Skipped memory_limit=1GiB:",
        "Skipped no_item:",
        "No runs with a memory limit of 1 GiB:",
    ):
        assert sum(note.startswith(start) for note in map(str, report.notes)) == 1, report.notes
    (schedule,) = report.schedules
    assert schedule.failure is None
    assert [step.shape for step in schedule.steps] == [(6, 4)] * 3
    place.assert_tidy()


def test_ctrl_c_while_the_findings_are_made_costs_no_measurement(
    place: Place, monkeypatch: pytest.MonkeyPatch, measured_by: MeasuredBy
) -> None:
    place.write("pass")
    measured_by(quick)
    planned(monkeypatch, DEFAULT)
    asked: list[Report] = []

    def diagnose(report: Report, models: object = None) -> tuple[Finding, ...]:
        asked.append(report)
        if len(asked) == 1:
            raise KeyboardInterrupt
        return ()

    monkeypatch.setattr("profiler_kit.diagnosis.diagnose", diagnose)
    assert analyze(place) == INTERRUPTED
    assert len(place.report().runs[0].steps_ns) == 3


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_measured(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.write("pass")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "traces")  # root may write anywhere
    with pytest.raises(UsageError, match="permission denied"):
        analyze_spec(place.spec, device="cpu", steps=3, traces=place.folder / "traces")
    assert not (place.folder / "visits").exists()
