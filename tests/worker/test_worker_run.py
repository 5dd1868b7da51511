"""One run, done in this process on a CPU: what it measures, how long it takes, and how it fails."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from measure_models import INPUTS, job, net
from simulated_clock import SimulatedClock

torch = pytest.importorskip("torch")

from profiler_kit.pipeline.run_traces import attribute_run_trace  # noqa: E402
from profiler_kit.records.runs import ConfigRun  # noqa: E402
from profiler_kit.records.serde import dumps  # noqa: E402
from profiler_kit.worker import steps  # noqa: E402
from profiler_kit.worker.run import TRACED_STEPS, run_job  # noqa: E402

AMPLE_S = 600.0  # for a hundred steps, which take a tenth of a second: the budget does not decide what is measured


@dataclass(frozen=True)
class Done:
    run: ConfigRun
    said: tuple[str, ...]
    trace: Path


def run(folder: Path, text: str, **rest: object) -> Done:
    said: list[str] = []
    given = job(folder, text, **rest)  # type: ignore[arg-type]
    done = run_job(given, said.append)
    dumps(done)  # whatever it holds can be written
    return Done(done, tuple(said), folder / "trace.json.gz")


def good(folder: Path, text: str, **rest: object) -> ConfigRun:
    done = run(folder, text, **rest).run
    assert done.failure is None, done.failure
    return done


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Done:
    return run(tmp_path_factory.mktemp("trained"), net(), trace=True, budget_s=AMPLE_S)


def test_a_training_run_has_every_figure_a_cpu_can_give(trained: Done) -> None:
    done = trained.run
    assert done.failure is None
    assert done.first_step_ns is not None
    assert done.first_step_ns > 0
    assert done.step_ns is not None
    assert done.step_ns.low <= done.step_ns.median <= done.step_ns.high
    assert len(done.steps_ns) >= steps.MIN_STEPS
    assert min(done.steps_ns) > 0
    assert 1 <= done.warmup_steps <= steps.MAX_WARMUP_STEPS
    assert (done.clock, done.traced) == (None, None)  # the trace is attributed later
    assert done.peak_rss_bytes is not None
    assert done.peak_rss_bytes > 1_000_000
    assert done.peak_allocated_bytes is None
    assert done.environment is not None
    assert (done.environment.device, done.environment.torch) == ("cpu", torch.__version__)
    assert done.notes == ()


def test_the_phases_come_in_the_step_s_order_with_the_clocks_there_are(trained: Done) -> None:
    phases = trained.run.phases
    assert [timing.phase for timing in phases] == ["forward", "loss", "backward", "optimizer"]
    assert all(timing.stopwatch_ns for timing in phases)
    assert all(timing.event_ns is None for timing in phases)


def test_progress_is_reported_in_order(trained: Done) -> None:
    doing = [
        "loading",
        "first step",
        "warm-up step 1",
        "timed steps",
        "traced steps",
        "reproducibility",
        "error against",
    ]
    places = [next(i for i, said in enumerate(trained.said) if what in said) for what in doing]
    assert places == sorted(places)
    assert f"{len(trained.run.steps_ns)} timed steps of about" in " ".join(trained.said)


def test_the_traced_steps_attributions_add_up_exactly(trained: Done) -> None:
    assert trained.run.traced_steps == TRACED_STEPS
    found, annotation, *_ = attribute_run_trace(trained.run, trained.trace)
    assert (found.clock, found.traced_steps, found.notes) == ("operator", TRACED_STEPS, trained.run.notes)
    assert found.device_ns is not None
    assert found.device_ns + sum(part.ns for part in found.idle) == found.span_ns
    assert annotation.spans
    owners = {(layer.path, layer.phase) for layer in found.modules}
    assert {("fc", "forward"), ("fc", "backward"), ("out", "forward"), ("out", "backward")} <= owners
    assert {layer.path for layer in found.modules} <= {"", "fc", "out", "(loss)", "(optimizer)"}
    assert [path.name for path in trained.trace.parent.glob("*trace*")] == ["trace.json.gz"]


def test_float32_repeats_and_is_nearly_float64(trained: Done) -> None:
    done = trained.run
    assert done.repeatable is True
    assert (done.repeatable_outputs, done.repeatable_gradients) == (True, True)
    assert done.max_relative_error is not None
    assert 0 <= done.max_relative_error < 1e-5


def test_inference_has_no_loss_backward_or_optimizer(tmp_path: Path) -> None:
    done = run(tmp_path, net(), mode="infer", budget_s=AMPLE_S, trace=True)
    assert done.run.failure is None
    assert [timing.phase for timing in done.run.phases if timing.phase != "other"] == ["forward"]
    assert (done.run.repeatable_outputs, done.run.repeatable_gradients) == (True, None)
    assert done.run.gradient_digest is None
    assert {layer.phase for layer in attribute_run_trace(done.run, done.trace)[0].modules} <= {"forward", "other"}


def test_a_loader_makes_data_and_transfer_phases(tmp_path: Path) -> None:
    loader = "train_loader = [(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long)) for _ in range(3)]\n"
    done = run(tmp_path, net(after=loader), budget_s=AMPLE_S, trace=True)
    assert done.run.failure is None
    assert [timing.phase for timing in done.run.phases] == [
        "data", "transfer", "forward", "loss", "backward", "optimizer",
    ]  # fmt: skip
    assert len(done.run.steps_ns) > 3  # the loader begins anew


def test_steps_are_as_many_as_asked_for(tmp_path: Path) -> None:
    assert len(good(tmp_path, net(), steps=7).steps_ns) == 7
    assert len(good(tmp_path, net(), steps=1).steps_ns) == 1


def test_a_slow_step_is_measured_a_few_times_and_the_budget_is_nearly_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_s, budget_s = 15.0, 120.0
    SimulatedClock().install(monkeypatch)
    mark = f"os.close(os.open(f'{tmp_path}/call{{self.calls}}', os.O_CREAT))"
    text = net(f"time.sleep({step_s}); {mark}")
    done = run(tmp_path, text, budget_s=budget_s, trace=True)
    assert done.run.failure is None
    assert len(done.run.steps_ns) >= steps.MIN_STEPS
    assert min(done.run.steps_ns) >= step_s * 1e9
    calls = len(list(tmp_path.glob("call*")))
    assert calls >= len(done.run.steps_ns) + done.run.warmup_steps + 1
    assert calls * step_s <= 2 * budget_s
    assert any("--budget" in note for note in done.run.notes)


def test_the_same_seed_gives_the_same_bits_and_another_one_others(tmp_path: Path, trained: Done) -> None:
    again = good(tmp_path, net(), budget_s=AMPLE_S)
    other = good(tmp_path, net(), budget_s=AMPLE_S, seed=1)
    assert again.output_digest is not None
    assert again.gradient_digest is not None
    assert (again.output_digest, again.gradient_digest) == (trained.run.output_digest, trained.run.gradient_digest)
    assert other.output_digest != again.output_digest
    assert other.gradient_digest != again.gradient_digest


def test_noise_that_no_seed_reaches_is_not_repeatable(tmp_path: Path) -> None:
    noise = "self.out(self.fc(x).relu() + torch.rand(8, generator=NOISE if x.device.type == 'cpu' else None, device=x.device))"
    done = good(
        tmp_path, net(result=noise, after=INPUTS + "NOISE = torch.Generator()\nNOISE.seed()\n"), budget_s=AMPLE_S
    )
    assert done.repeatable is False
    assert done.repeatable_outputs is False


def test_seeded_dropout_is_repeatable(tmp_path: Path) -> None:
    done = good(tmp_path, net(result="self.out(nn.functional.dropout(self.fc(x), 0.5))"), budget_s=AMPLE_S)
    assert done.repeatable is True


def test_bfloat16_is_farther_from_float64(tmp_path: Path, trained: Done) -> None:
    done = good(tmp_path, net(), budget_s=AMPLE_S, dtype="bfloat16")
    assert done.max_relative_error is not None
    assert trained.run.max_relative_error is not None
    assert done.max_relative_error > 100 * trained.run.max_relative_error
    assert done.max_relative_error < 0.1


# what the model does on a CPU -> the failure's kind and words
FAILURES = {
    "the third step raises": ("if self.calls == 3: raise ValueError('odd step')", "error", "ValueError: odd step"),
    "the first step raises": ("raise LookupError('no table')", "error", "LookupError: no table"),
    "an empty message": ("if self.calls == 2: raise ZeroDivisionError", "error", "ZeroDivisionError"),
    "sys.exit": ("sys.exit(0)", "error", "the model called sys.exit(0)"),
    "no memory": ("if self.calls == 2: raise MemoryError('no room')", "out_of_memory", "MemoryError: no room"),
    "the allocator fails": (
        "if self.calls == 2: raise RuntimeError(\"[enforce fail] DefaultCPUAllocator: can't allocate memory: 8 bytes\")",
        "out_of_memory",
        "RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory",
    ),
    "an allocation nobody can make": ("torch.empty(1 << 60)", "out_of_memory", "RuntimeError"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILURES)
def test_a_failing_step_is_a_failed_run_with_its_place(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    action, kind, said = FAILURES[name]
    done = run(tmp_path, net(action)).run
    assert done.failure is not None
    assert done.failure.kind == kind
    assert done.failure.message.startswith(f"net.py:11: {said}")
    assert "net.py" in done.failure.log_tail
    assert (done.steps_ns, done.step_ns, done.environment) == ((), None, None)


def test_a_wrong_shape_has_the_same_message_as_in_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(tmp_path, net("x = x[:, :3]")).run
    assert done.failure is not None
    assert done.failure.kind == "target"
    assert "net.py:12: shape mismatch in fc (Linear): got 2x3, needs 2x4" in done.failure.message
    assert done.failure.hint
    assert done.failure.hint not in done.failure.message


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("Expected to have finished reduction. `find_unused_parameters=True` enables it", "unused_parameters"),
        ("[gloo/transport/tcp/pair.cc:534] Connection closed by peer", "lost_peer"),
        ("mat1 and mat2", ""),
    ],
)
def test_the_messages_of_torch_become_codes(tmp_path: Path, message: str, code: str) -> None:
    done = run(tmp_path, net(f"raise RuntimeError({message!r})")).run
    assert done.failure is not None
    assert done.failure.code == code


def test_a_loader_that_breaks_later_is_a_failed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loader = (
        "class Broken:\n"
        "    def __iter__(self):\n"
        "        yield torch.zeros(2, 4)\n"
        "        raise OSError('no more data')\n"
        "train_loader = Broken()\n"
    )
    done = run(tmp_path, net(after=loader)).run
    assert done.failure is not None
    assert done.failure.kind == "target"
    assert done.failure.message.startswith("net.py:16: train_loader raised OSError: no more data")


def test_a_loss_that_is_not_a_number_is_a_result(tmp_path: Path) -> None:
    done = good(tmp_path, net(result="self.out(self.fc(x)) * float('nan')"), budget_s=AMPLE_S)
    assert len(done.steps_ns) >= steps.MIN_STEPS
    assert done.repeatable is True  # as bits
    assert done.max_relative_error is None


def test_an_infinite_error_is_a_note(tmp_path: Path) -> None:
    """float16 overflows where float64 does not."""
    done = good(tmp_path, net(result="self.out(self.fc(x) * 60000 * 60000)"), budget_s=AMPLE_S, dtype="float16")
    assert done.max_relative_error is None
    assert "NaN or infinity" in done.error_note


def test_samples_stand_when_the_traced_steps_fail(tmp_path: Path) -> None:
    original = torch.nn.Module.__call__
    watched = "if torch.autograd._profiler_enabled(): raise ValueError('I am watched')"
    done = run(tmp_path, net(watched), budget_s=AMPLE_S, trace=True)
    assert done.run.failure is None
    assert len(done.run.steps_ns) >= steps.MIN_STEPS
    assert (done.run.trace, done.run.traced_steps) == (None, 0)
    assert any("the traced steps raised ValueError: I am watched" in note for note in done.run.notes)
    assert list(tmp_path.glob("*trace*")) == []
    assert torch.nn.Module.__call__ is original
    assert done.run.repeatable is True


def test_samples_stand_when_float64_fails(tmp_path: Path) -> None:
    narrow = "assert x.dtype == torch.float32, 'float32 only'"
    done = good(tmp_path, net(narrow), budget_s=AMPLE_S)
    assert done.repeatable is True
    assert done.max_relative_error is None
    assert "AssertionError" in done.error_note
