"""The order of the stages: what is kept when one of them fails or is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from profiler_kit import counting  # noqa: E402
from profiler_kit.errors import TargetError, UsageError  # noqa: E402
from profiler_kit.measurement import plan as configs  # noqa: E402
from profiler_kit.pipeline.analyze import all_failed, analyze_spec  # noqa: E402
from profiler_kit.pipeline.count import count, count_spec  # noqa: E402
from profiler_kit.pipeline.memory_prediction import Counted  # noqa: E402
from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.experiments import ExperimentOptions  # noqa: E402
from profiler_kit.records.runs import ConfigRun, Failure  # noqa: E402
from profiler_kit.records.samples import Interval  # noqa: E402
from profiler_kit.records.serde import dumps, loads_report  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402

NET = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
    def forward(self, x):
        return self.fc(x)
example_inputs = torch.zeros(2, 4)
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TargetSpec:
    (tmp_path / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    return TargetSpec(spec="net.py")


class Measured:
    """Stands for the processes: gives samples, and at the configurations in `at` does what it is told."""

    def __init__(self, at: dict[str, BaseException | Failure]) -> None:
        self.at = at
        self.asked: list[str] = []
        self.again: list[str] = []

    def __call__(self, spec: TargetSpec, config: RunConfig, *, again: bool = False, **_: Any) -> ConfigRun:
        (self.again if again else self.asked).append(config.name)
        done = self.at.get(config.name)
        if isinstance(done, BaseException):
            raise done
        if done is not None:
            return ConfigRun(config=config, failure=done)
        interval = Interval(median=10, low=9, high=11)
        return ConfigRun(config=config, steps_ns=(9, 10, 11), step_ns=interval, first_step_ns=50)


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """Three configurations, wherever the test runs."""
    names = ("default", "benchmark", "deterministic")
    plan = configs.Plan(configs=tuple(RunConfig(name=name) for name in names), notes=())
    monkeypatch.setattr(configs, "make_plan", lambda *_, **__: plan)
    return names  # type: ignore[return-value]


MeasuredBy = Callable[[Callable[..., Any]], None]


def stand_in(measured_by: MeasuredBy, **at: BaseException | Failure) -> Measured:
    measured = Measured(at)
    measured_by(measured)
    return measured


def test_ctrl_c_keeps_what_was_measured(spec: TargetSpec, three: tuple[str, ...], measured_by: MeasuredBy) -> None:
    measured = stand_in(measured_by, benchmark=KeyboardInterrupt())
    done = analyze_spec(spec, device="cpu")
    assert done.interrupted
    assert measured.asked == ["default", "benchmark"]
    first, second, third = done.report.runs
    assert (first.failure, first.steps_ns) == (None, (9, 10, 11))
    assert second.failure is not None
    assert (second.failure.kind, second.failure.message) == ("interrupted", "interrupted")
    assert third.failure is not None
    assert third.failure.kind == "interrupted"
    assert third.failure.message.startswith("not run")
    assert [run.config.name for run in done.report.runs] == list(three)
    assert loads_report(dumps(done.report), "again") == done.report
    assert all_failed(done.report) is None


def test_ctrl_c_while_a_trace_is_read_keeps_the_run_it_is_of(
    spec: TargetSpec, three: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, measured_by: MeasuredBy
) -> None:
    measured = stand_in(measured_by)

    def traced(*args: Any, **rest: Any) -> ConfigRun:
        return replace(measured(*args, **rest), trace="there")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    measured_by(traced)
    monkeypatch.setattr("profiler_kit.traces.reader.read", interrupted)
    done = analyze_spec(spec, device="cpu")
    assert done.interrupted
    kinds = [run.failure.kind if run.failure else None for run in done.report.runs]
    assert kinds == [None, "interrupted", "interrupted"]
    assert done.report.runs[0].steps_ns == (9, 10, 11)


def test_a_failed_configuration_does_not_stop_the_others(
    spec: TargetSpec, three: tuple[str, ...], measured_by: MeasuredBy
) -> None:
    failure = Failure(kind="crash", message="the process crashed (SIGABRT)")
    measured = stand_in(measured_by, default=failure)
    report = analyze_spec(spec, device="cpu").report
    assert tuple(measured.asked) == three
    assert [run.failure for run in report.runs] == [failure, None, None]
    assert all_failed(report) is None
    assert "failed_runs" in {finding.rule for finding in report.findings}


def test_where_all_fail_the_first_reason_is_the_error(
    spec: TargetSpec, three: tuple[str, ...], measured_by: MeasuredBy
) -> None:
    first = Failure(kind="target", message="net.py:8: shape mismatch", hint="this shape runs")
    rest = Failure(kind="error", message="no", log_tail="a traceback")
    stand_in(measured_by, default=first, benchmark=rest, deterministic=rest)
    error = all_failed(analyze_spec(spec, device="cpu").report)
    assert isinstance(error, TargetError)
    assert "net.py:8: shape mismatch" in error.message
    assert error.hint == "this shape runs"


def test_an_old_trace_is_not_taken_for_a_new_one(spec: TargetSpec, tmp_path: Path, measured_by: MeasuredBy) -> None:
    stand_in(measured_by, default=Failure(kind="crash", message="x"))
    old = tmp_path / "traces" / "default.json.gz"
    old.parent.mkdir()
    old.write_text("an earlier run's")
    report = analyze_spec(spec, device="cpu", traces=old.parent).report
    assert report.runs[0].trace is None
    assert not old.exists()


def test_a_count_that_breaks_by_our_own_fault_leaves_the_measurements(
    spec: TargetSpec, monkeypatch: pytest.MonkeyPatch, measured_by: MeasuredBy
) -> None:
    line = compile("raise KeyError('fold')", counting.__file__, "exec")  # of this package, not of the model

    def broken(*_: object, **options: object) -> None:
        exec(line)

    stand_in(measured_by)
    monkeypatch.setattr("profiler_kit.counting.count_by_conventions", broken)
    report = analyze_spec(spec, device="cpu").report
    assert report.static is None
    assert report.runs[0].failure is None
    note = str(report.target.notes[-1])
    assert note.startswith("Not counted")
    assert "KeyError: 'fold'" in note
    assert f"{Path(counting.__file__).name}:" in note
    with pytest.raises(KeyError):  # where there is nothing else to give, the bug itself is
        count_spec(spec)


def test_a_model_that_needs_values_is_measured_and_says_why_it_is_not_counted(
    spec: TargetSpec, monkeypatch: pytest.MonkeyPatch, measured_by: MeasuredBy
) -> None:
    from profiler_kit.loading import NeedsDataError

    def needs(*_: object, **options: object) -> None:
        raise NeedsDataError(
            "data-dependent control flow (.item()) cannot run on meta", where="net.py:8", hint="--device"
        )

    stand_in(measured_by)
    monkeypatch.setattr("profiler_kit.counting.count_by_conventions", needs)
    report = analyze_spec(spec, device="cpu").report
    assert report.static is None
    note = str(report.target.notes[-1])
    assert note.startswith("Not counted")
    assert "net.py:8: data-dependent control flow (.item()) cannot run on meta" in note
    assert report.runs[0].failure is None


def test_what_is_wrong_with_the_target_is_raised_before_anything_is_measured(
    spec: TargetSpec, measured_by: MeasuredBy
) -> None:
    measured = stand_in(measured_by)
    with pytest.raises(TargetError, match="shape mismatch in fc"):
        analyze_spec(replace(spec, inputs=("2,5",)), device="cpu")
    with pytest.raises(UsageError, match="no such device"):
        analyze_spec(spec, device="tpu")
    assert measured.asked == []


def test_a_model_whose_flow_depends_on_values_is_counted_with_real_compute(tmp_path: Path) -> None:
    file = tmp_path / "branching.py"
    # what a layer computes has no values but on real tensors
    file.write_text(
        NET.replace("return self.fc(x)", "return self.fc(x) * (2 if self.fc(x).detach().numpy().any() else 3)")
    )
    report = count_spec(TargetSpec(spec=str(file)))
    assert report.static is not None
    assert report.static.device == "cpu"
    assert report.static.forward.macs == 2 * 2 * 4 * 4
    assert "counted on the CPU" in report.static.notes[0]


@pytest.mark.filterwarnings("ignore")  # torch's own, about scripting
def test_a_scripted_model_is_counted_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measured_by: MeasuredBy
) -> None:
    (tmp_path / "net.py").write_text(NET + "model = torch.jit.script(Net())\n")
    monkeypatch.chdir(tmp_path)
    stand_in(measured_by)
    spec = TargetSpec(spec="net.py:model")
    for report in (count_spec(spec), analyze_spec(spec, device="cpu").report):
        assert report.static is not None
        assert report.static.forward.macs == 2 * 4 * 4
        assert any("scripted modules" in note for note in map(str, report.target.notes))


def test_the_report_names_the_loss_that_was_taken_and_the_torch_that_counted(
    spec: TargetSpec, measured_by: MeasuredBy
) -> None:
    stand_in(measured_by)
    for report in (count_spec(spec), analyze_spec(spec, device="cpu").report):
        assert report.target.loss == "cross_entropy"
        assert report.static is not None
        assert report.static.torch == torch.__version__


def test_counting_a_model_in_hand_leaves_it_alone() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)).eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    report = count(model, torch.zeros(2, 4))
    assert report.static is not None
    assert report.static.forward.macs == 32
    assert report.target.loss != "auto"
    assert not model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_exits_and_memory_of_a_model_in_hand_are_told() -> None:
    class Quits(torch.nn.Linear):
        def forward(self, input: Any) -> Any:  # noqa: A002 torch's own name
            raise SystemExit(3)

    with pytest.raises(TargetError, match=r"the model called sys.exit\(3\)"):
        count(Quits(4, 4), torch.zeros(2, 4))


def test_what_is_predicted_for_the_runs_stands_in_the_report(
    spec: TargetSpec, three: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, measured_by: MeasuredBy
) -> None:
    def with_note(runs: list[ConfigRun], counted: Counted, device: str) -> list[ConfigRun]:
        assert counted.target is not None
        assert device == "cpu"
        return [replace(run, notes=(f"predicted after {len(runs)}",)) for run in runs]

    stand_in(measured_by)
    monkeypatch.setattr("profiler_kit.pipeline.analyze.with_measured_workspaces", with_note)
    report = analyze_spec(spec, device="cpu").report
    assert [run.notes for run in report.runs] == [("predicted after 3",)] * 3


def test_ctrl_c_while_runs_are_predicted_keeps_them(
    spec: TargetSpec, three: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, measured_by: MeasuredBy
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    stand_in(measured_by)
    monkeypatch.setattr("profiler_kit.pipeline.analyze.with_measured_workspaces", interrupted)
    done = analyze_spec(spec, device="cpu")
    assert done.interrupted
    assert [run.failure for run in done.report.runs] == [None, None, None]


def test_a_schedule_that_makes_no_sense_is_told_before_anything_is_measured(
    spec: TargetSpec, measured_by: MeasuredBy
) -> None:
    measured = stand_in(measured_by)
    with pytest.raises(UsageError, match="sixty"):
        analyze_spec(spec, device="cpu", experiments=ExperimentOptions(shapes="sixty"))
    assert measured.asked == []
