"""Bits compared as bits, from the same start, and the distance to float64."""

from __future__ import annotations

from pathlib import Path

import pytest
from measure_models import job, net

torch = pytest.importorskip("torch")

from profiler_kit.measure import checks  # noqa: E402
from profiler_kit.measure.steps import Runner  # noqa: E402
from profiler_kit.target import load  # noqa: E402

DICT = "{'logits': self.out(self.fc(x).relu()), 'hidden': [self.fc(x)]}"


def runner(folder: Path, text: str, **words: object) -> Runner:
    return Runner(load(job(folder, text, **words).spec, device="cpu"))  # type: ignore[arg-type]


def test_bits_come_from_the_start_however_far_the_model_was_trained(tmp_path: Path) -> None:
    fresh = runner(tmp_path, net())
    start = checks.seeded_state(fresh)
    first = checks.bits(fresh, start)
    for _ in range(3):
        fresh.step()
    again = checks.bits(fresh, start)
    assert first == again
    assert (first.outputs, first.gradients) == (True, True)


def test_the_start_is_a_copy(tmp_path: Path) -> None:
    of = runner(tmp_path, net(), optimizer="sgd")
    start = checks.seeded_state(of)
    before = {name: value.clone() for name, value in start.items()}
    of.step()
    assert all(torch.equal(start[name], before[name]) for name in before)


def test_a_single_changed_bit_is_seen(tmp_path: Path) -> None:
    """-0.0 equals 0.0 as a number; as a result of the same program it is another one."""
    signed = "self.out(self.fc(x)) * 0.0 * (-1.0) ** self.calls"
    found = checks.bits(of := runner(tmp_path, net(result=signed)), checks.seeded_state(of))
    assert found.outputs is False


def test_nan_repeats(tmp_path: Path) -> None:
    of = runner(tmp_path, net(result="self.out(self.fc(x)) * float('nan')"))
    assert checks.bits(of, checks.seeded_state(of)).outputs is True


def test_buffers_are_put_back_too(tmp_path: Path) -> None:
    running = net(result="nn.functional.batch_norm(self.fc(x), self.mean, self.var, training=True)").replace(
        "nn.Linear(8, 3), 0\n",
        "nn.Linear(8, 3), 0\n        self.register_buffer('mean', torch.zeros(8)); self.register_buffer('var', torch.ones(8))\n",
    )
    of = runner(tmp_path, running)
    start = checks.seeded_state(of)
    first = checks.bits(of, start)
    of.step()
    assert checks.bits(of, start) == first


@pytest.mark.parametrize("result", ["self.out(self.fc(x))", DICT], ids=["tensor", "nested"])
def test_the_error_is_small_in_float32_and_leaves_the_model_as_it_was(tmp_path: Path, result: str) -> None:
    of = runner(tmp_path, net(result=result), mode="infer")
    error = checks.error_against_float64(of, checks.seeded_state(of))
    assert error is not None
    assert 0 <= error < 1e-6
    assert {parameter.dtype for parameter in of.target.model.parameters()} == {torch.float32}


def test_float64_has_no_error(tmp_path: Path) -> None:
    of = runner(tmp_path, net(), dtype="float64", mode="infer")
    assert checks.error_against_float64(of, checks.seeded_state(of)) == 0


def test_autocast_is_part_of_the_error(tmp_path: Path) -> None:
    of = runner(tmp_path, net(), amp="bfloat16")
    error = checks.error_against_float64(of, checks.seeded_state(of))
    assert error is not None
    assert 1e-4 < error < 0.1


def test_flags_are_put_back(tmp_path: Path) -> None:
    of = runner(tmp_path, net("assert x.dtype == torch.float32"), mode="infer")
    kept = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        with pytest.raises(AssertionError):
            checks.error_against_float64(of, checks.seeded_state(of))
        assert torch.backends.cudnn.benchmark is True
    finally:
        torch.backends.cudnn.benchmark = kept
