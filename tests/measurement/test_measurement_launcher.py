"""Runs in separate processes: their results, and every way in which a process can fail."""

from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import measure_models
import pytest
from measure_models import job, net
from simulated_clock import let_time_pass_once
from waiting import is_written

torch = pytest.importorskip("torch")

from profiler_kit.records.configs import RunConfig  # noqa: E402
from profiler_kit.records.runs import ConfigRun  # noqa: E402
from profiler_kit.records.serde import from_json, to_json  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402
from profiler_kit.worker.run import Gate, run_job  # noqa: E402

CONFIG = RunConfig(name="default")


def measure(folder: Path, text: str, **rest: object) -> ConfigRun:
    (folder / "net.py").write_text(text)
    spec = TargetSpec(spec=str(folder / "net.py"))
    return measure_models.measure(spec, CONFIG, device="cpu", budget_s=2.0, **rest)  # type: ignore[arg-type]


@pytest.mark.fresh_process
def test_output_of_the_model_does_not_disturb_a_run(tmp_path: Path) -> None:
    """Output of Python, of a program, and written to the file descriptor: none may disturb the progress."""
    noisy = "print('x' * 100_000, end=''); os.write(1, b'pk:progress:forged'); os.system('echo pk:progress:shouted')"
    said: list[str] = []
    trace = tmp_path / "traces" / "default.json.gz"
    trace.parent.mkdir()
    done = measure(tmp_path, net(f"if self.calls < 3: {noisy}"), trace=trace, on_progress=said.append)
    assert done.failure is None
    assert done.repeatable is True
    assert [trace] == list(trace.parent.iterdir())
    assert done.trace == str(trace)
    assert said[0].startswith("loading ")
    assert "first step" in said
    assert not any("forged" in line or "shouted" in line or "xxx" in line for line in said)
    # another process, the same seed: the same bits
    here = run_job(job(tmp_path, net(), budget_s=8.0), lambda _: None)
    assert here.output_digest is not None
    assert (done.output_digest, done.gradient_digest) == (here.output_digest, here.gradient_digest)


ENDINGS = {
    "_exit": ("os._exit(3)", "crash", "the process ended with exit status 3 and no result"),
    "abort": ("os.abort()", "crash", "the process crashed (SIGABRT)"),
    "killed": ("os.kill(os.getpid(), 9)", "out_of_memory", "killed (SIGKILL)"),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_process_that_ends_badly_is_a_failed_run(name: str, tmp_path: Path) -> None:
    action, kind, said = ENDINGS[name]
    trace = tmp_path / "trace.json.gz"
    last_words = "print('last words', file=sys.stderr, flush=True)"
    done = measure(tmp_path, net(f"if self.calls == 3: {last_words}; {action}"), trace=trace)
    assert done.failure is not None
    assert done.failure.kind == kind
    assert done.failure.message.startswith(said)
    assert "last words" in done.failure.log_tail
    assert done.steps_ns == ()
    assert not trace.exists()


def test_a_hang_is_terminated_and_the_message_names_the_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = tmp_path / "pid"
    hang = f"print(os.getpid(), file=open({str(pid)!r}, 'w'), flush=True); time.sleep(300)"
    let_time_pass_once(lambda: is_written(pid), 800.0, monkeypatch)
    done = measure(tmp_path, net(hang), timeout_s=800.0)
    assert done.failure is not None
    assert done.failure.kind == "timeout"
    assert "800 s" in done.failure.message
    assert "--timeout" in done.failure.message
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


def test_a_trace_that_cannot_be_written_is_a_note(tmp_path: Path) -> None:
    done = measure(tmp_path, net(), trace=tmp_path / "nowhere" / "trace.json.gz", checks=False, steps=1)
    assert len(done.steps_ns) == 1
    assert (done.trace, done.traced_steps) == (None, 0)
    (note,) = [note for note in done.notes if "trace" in note]
    assert note.startswith("No times by layer")
    assert note.endswith("nowhere/trace.json.gz: No such file or directory")


def test_a_process_without_a_parent_exits_before_it_uses_the_device(tmp_path: Path) -> None:
    waiting = replace(job(tmp_path, net("open(__file__ + '.ran', 'w')")), waits=True)
    done = run_job(waiting, lambda _: None, Gate(io.BytesIO(b"")))
    assert done.failure is not None
    assert "parent process" in done.failure.message
    assert not (tmp_path / "net.py.ran").exists()


@pytest.mark.parametrize(
    "spec",
    [
        TargetSpec(spec="net.py"),
        TargetSpec(
            spec="pkg.nets:build",
            inputs=("ids=8,128:int64[0:50257]", "mask=8,128:bool"),
            kwargs=("width=64", "name='Grüße'"),
            mode="infer",
            loss="mse",
            optimizer="sgd",
            dtype="bfloat16",
            amp="float16",
            channels_last=True,
            batch=4,
            seed=7,
            import_timeout_s=2.5,
            allow_guess=False,
        ),
    ],
    ids=["plain", "full"],
)
def test_a_target_reaches_the_worker_as_it_was_written(spec: TargetSpec) -> None:
    assert from_json(TargetSpec, to_json(spec)) == spec
