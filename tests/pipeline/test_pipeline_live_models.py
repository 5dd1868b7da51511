"""``profiler_kit.analyze(model, inputs)`` from a script, from code without a file, and with errors."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import profiler_kit
from profiler_kit.errors import TargetError, UsageError
from profiler_kit.pipeline.python_options import python_text
from profiler_kit.records.report import Report

pytestmark = pytest.mark.jobs

X = torch.randn(4, 8)
SCRIPT = """
    import signal
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored if the tests run in the background
    import torch
    import profiler_kit
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 4)
            self.activation = lambda x: x.tanh()

        def forward(self, x):
            return self.activation(self.fc(x))

    def distance(output, labels):
        return (output - labels).square().mean()

    net = Net()
    print(profiler_kit.analyze(
        net, torch.randn(4, 8), labels=torch.zeros(4, 4), loss_fn=distance,
        optimizer=torch.optim.Adagrad(net.parameters(), lr=0.5), configs=["default"], budget_s=2, steps=3, device="cpu",
    ).runs[0].failure)
"""


def measured(model: Any, inputs: Any = X, **options: Any) -> Report:
    return profiler_kit.analyze(model, inputs, device="cpu", configs=["default"], budget_s=2, steps=3, **options)


def script(folder: Path, text: str) -> list[str]:
    file = folder / "script.py"
    file.write_text(textwrap.dedent(text))
    return [sys.executable, str(file)]


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("profiler_kit"))


def test_a_script_measures_its_own_model_once(tmp_path: Path) -> None:
    """The script has no ``__main__`` guard, so running it again would start more measurements."""
    (tmp_path / "tmp").mkdir()
    child = subprocess.run(
        script(tmp_path, SCRIPT),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
    )
    assert child.stdout.splitlines() == ["None"], child.stderr
    assert leftovers(tmp_path / "tmp") == []


def test_the_report_is_that_of_the_model() -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(
        "from torch import nn\nclass Cell(nn.Linear):\n    def forward(self, x): return super().forward(x) * 2",
        namespace,
    )
    net = namespace["Cell"](8, 8).eval()
    weight = net.weight.detach().clone()
    report = measured(net, optimizer=torch.optim.SGD(net.parameters(), lr=0.5))
    assert (report.target.spec, report.target.name, report.target.inputs_from) == ("Cell", "Cell", "caller")
    assert (report.target.optimizer, report.target.mode) == ("SGD", "train")
    assert [(run.config.name, run.failure, len(run.steps_ns)) for run in report.runs] == [("default", None, 3)]
    assert report.static is not None
    assert report.static.forward.macs == 4 * 8 * 8 == profiler_kit.count(net, X).static.forward.macs
    assert torch.equal(net.weight, weight)
    assert not net.training
    assert not any("--" in note for note in map(str, (*report.notes, *report.target.notes)))


class Failing(nn.Linear):
    def __init__(self, end: str) -> None:
        super().__init__(8, 8)
        self.end = end

    def forward(self, x: Tensor) -> Tensor:
        if not x.is_meta:
            if self.end == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if self.end == "hang":
                time.sleep(300)
            raise torch.OutOfMemoryError("out of memory")
        return super().forward(x)


@pytest.mark.parametrize(("end", "kind"), [("kill", "out_of_memory"), ("hang", "timeout"), ("memory", "out_of_memory")])
def test_a_process_that_ends_early_is_a_failed_run(end: str, kind: str) -> None:
    report = measured(Failing(end), timeout_s=4 if end == "hang" else None)
    failure = report.runs[0].failure
    assert failure is not None
    assert failure.kind == kind
    assert "--" not in failure.message
    assert not any("--" in finding.advice for finding in report.findings)


def test_ctrl_c_leaves_no_file_and_no_process(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    text = SCRIPT.replace("return self.activation", "import time; x.is_meta or time.sleep(300); return self.activation")
    text = text.replace("budget_s=2,", "budget_s=2, on_progress=lambda line: print(line, flush=True),").replace(
        ".failure", ".failure.kind"
    )
    with subprocess.Popen(
        script(tmp_path, text), stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    ) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if "first step" in line:
                break
        assert leftovers(tmp_path / "tmp")
        child.send_signal(signal.SIGINT)
        output = child.stdout.read()
    assert output.splitlines()[-1] == "interrupted"
    assert leftovers(tmp_path / "tmp") == []


def test_errors_speak_of_arguments() -> None:
    frozen = nn.Linear(8, 8).requires_grad_(False)
    with pytest.raises(TargetError, match="no trainable parameters") as caught:
        measured(frozen)
    assert caught.value.hint == "profiler_kit.analyze(model, inputs, mode='infer')"
    with pytest.raises(TargetError, match="shape mismatch") as caught:
        profiler_kit.count(nn.Linear(8, 8), torch.zeros(4, 9))
    assert caught.value.hint == "this shape works: profiler_kit.count(model, torch.randn(4, 8))"
    with pytest.raises(UsageError, match="unknown optimizer 'fast'"):
        measured(nn.Linear(8, 8), optimizer="fast")
    with pytest.raises(UsageError, match="loss_fn and labels need a model"):
        profiler_kit.analyze("my_model.py", loss_fn=lambda output: output.sum())


def test_a_lock_is_refused_before_anything_is_measured() -> None:
    import threading

    net = nn.Linear(8, 8)
    net.lock = threading.Lock()  # type: ignore[assignment]
    lines: list[str] = []
    with pytest.raises(TargetError, match=r"model\.lock is a lock"):
        measured(net, on_progress=lines.append)
    assert lines == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("use --mode infer", "use mode='infer'"),
        ("fix it, or use --optimizer adamw", "fix it, or use optimizer='adamw'"),
        (
            "Raise --budget, or name them in --also.",
            "Raise budget_s, or name them in experiments=ExperimentOptions(also=...).",
        ),
        ("a longer --budget gives", "a longer budget_s gives"),
        ("(--budget 3s): x", "(budget_s=3): x"),
        ("because of --device cpu.", "because of device='cpu'."),
        ("a smaller batch (--batch)", "a smaller batch (batch)"),
        ("analyze with --channels-last.", "analyze with channels_last=True."),
        ("profiler-kit count --fits predicts", "profiler-kit count --fits predicts"),
    ],
)
def test_python_text(text: str, expected: str) -> None:
    assert python_text(text) == expected
