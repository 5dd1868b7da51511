"""Traced steps: the marks in the file, and nothing left behind."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest
from measure_models import job, net

torch = pytest.importorskip("torch")

from profiler_kit.loading import load  # noqa: E402
from profiler_kit.records import marks  # noqa: E402
from profiler_kit.worker.steps import Runner  # noqa: E402
from profiler_kit.worker.tracing import traced_steps  # noqa: E402


def runner(folder: Path, text: str, **words: object) -> Runner:
    return Runner(load(job(folder, text, **words).spec, device="cpu"))  # type: ignore[arg-type]


def marked(trace: Path) -> Counter[str]:
    """How often each of our marks stands in the trace."""
    data = trace.read_bytes()
    events = json.loads(gzip.decompress(data) if trace.suffix == ".gz" else data)["traceEvents"]
    return Counter(event["name"] for event in events if event.get("name", "").startswith("pk:") and event["ph"] == "X")


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_every_phase_and_module_of_every_step_is_marked(tmp_path: Path, name: str) -> None:
    traced_steps(runner(tmp_path, net()), 2, tmp_path / name)
    found = marked(tmp_path / name)
    assert {found[marks.phase(phase)] for phase in ("forward", "loss", "backward", "optimizer")} == {2}
    assert {found[marks.module(path)] for path in ("", "fc", "out")} == {2}
    assert [step for step in found if step.startswith(marks.STEP)] == [marks.step(1), marks.step(2)]  # 0 is its warm-up
    assert [path.name for path in tmp_path.glob("*trace*")] == [name]


def test_a_module_called_twice_is_marked_twice(tmp_path: Path) -> None:
    traced_steps(runner(tmp_path, net(result="self.out(self.fc(x) + self.fc(x))")), 1, tmp_path / "t.json")
    assert marked(tmp_path / "t.json")[marks.module("fc")] == 2


def test_modules_that_are_not_the_target_s_get_no_mark(tmp_path: Path) -> None:
    stranger = "self.out(nn.ReLU()(self.fc(x)))"
    traced_steps(runner(tmp_path, net(result=stranger), mode="infer"), 1, tmp_path / "t.json")
    found = marked(tmp_path / "t.json")
    assert {name for name in found if name.startswith(marks.MODULE)} == {
        marks.module(path) for path in ("", "fc", "out")
    }
    assert found[marks.phase("forward")] == 1
    assert found[marks.phase("loss")] == 0


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_step_that_raises_leaves_nothing_behind(tmp_path: Path, calls: int) -> None:
    original = torch.nn.Module.__call__
    of = runner(tmp_path, net(f"if self.calls == {calls}: raise ValueError('odd step')"))
    with pytest.raises(ValueError, match="odd step"):
        traced_steps(of, 2, tmp_path / "t.json")
    assert torch.nn.Module.__call__ is original
    assert not torch.autograd._profiler_enabled()
    assert list(tmp_path.glob("*t.json")) == []
    traced_steps(of, 1, tmp_path / "t.json")  # and the next one works
    assert marked(tmp_path / "t.json")[marks.module("fc")] == 1
