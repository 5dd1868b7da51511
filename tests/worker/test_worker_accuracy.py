"""The distance to float64: outputs and gradients, in whatever type they were computed."""

from __future__ import annotations

from pathlib import Path

import pytest
from measure_models import job, net

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from profiler_kit.loading import load  # noqa: E402
from profiler_kit.worker import accuracy, checks  # noqa: E402
from profiler_kit.worker import pieces as pieces_of  # noqa: E402
from profiler_kit.worker.accuracy import Errors  # noqa: E402
from profiler_kit.worker.steps import Runner  # noqa: E402

PLAIN = "self.out(self.fc(x).relu())"
NESTED = "{'logits': self.out(self.fc(x).relu()), 'hidden': [self.fc(x)]}"
LONG = 60_000_000_000


def runner(folder: Path, text: str, **words: object) -> Runner:
    return Runner(load(job(folder, text, **words).spec, device="cpu"))  # type: ignore[arg-type]


def errors(folder: Path, text: str, **words: object) -> Errors:
    of = runner(folder, text, **words)
    return accuracy.error_against_float64(of, checks.seeded_state(of), gradient_limit_ns=LONG)


@pytest.mark.parametrize("result", [PLAIN, NESTED], ids=["tensor", "nested"])
def test_the_error_is_small_in_float32_and_leaves_the_model_as_it_was(tmp_path: Path, result: str) -> None:
    of = runner(tmp_path, net(result=result), mode="infer")
    found = accuracy.error_against_float64(of, checks.seeded_state(of))
    assert found.max_relative is not None
    assert found.l2_relative is not None
    assert 0 < found.max_relative < 1e-6
    assert 0 < found.l2_relative < 1e-6
    assert (found.gradient_l2_relative, found.note) == (None, None)
    assert {parameter.dtype for parameter in of.target.model.parameters()} == {torch.float32}


def test_gradients_have_an_error_of_their_own(tmp_path: Path) -> None:
    single = errors(tmp_path, net())
    half = errors(tmp_path, net(), amp="bfloat16")
    assert single.gradient_l2_relative is not None
    assert half.gradient_l2_relative is not None
    assert 0 < single.gradient_l2_relative < 1e-5
    assert 1e-4 < half.gradient_l2_relative < 0.1
    assert single.note is None


def test_float64_has_no_error(tmp_path: Path) -> None:
    assert errors(tmp_path, net(), dtype="float64") == Errors(max_relative=0, l2_relative=0, gradient_l2_relative=0)


@pytest.mark.parametrize(
    "part",
    [
        "torch.arange(len(x), dtype=torch.float32)[:, None]",
        "x.long().float().mean(1, keepdim=True)",
        "torch.linspace(0, 1, len(x))[:, None]",
        "torch.tensor([0.1])",
        "(torch.arange(len(x))[:, None] * 0.1).exp()",
        "x.half().float().mean(1, keepdim=True)",
    ],
)
def test_parts_that_a_model_makes_in_a_type_of_its_own_are_float64_in_the_reference(tmp_path: Path, part: str) -> None:
    found = errors(
        tmp_path, net(result=f"self.out(self.fc(x + 0.1).relu()) + self.out(self.fc(({part}).expand(len(x), 4)))")
    )
    assert found.note is None
    assert found.max_relative is not None
    assert 0 < found.max_relative < 1e-2
    assert found.gradient_l2_relative is not None
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("words", [{"amp": "bfloat16"}, {"dtype": "bfloat16"}, {"dtype": "float16"}], ids=str)
def test_narrow_arithmetic_is_part_of_the_error(tmp_path: Path, words: dict[str, object]) -> None:
    found = errors(tmp_path, net(), **words)
    assert found.max_relative is not None
    assert found.l2_relative is not None
    assert 1e-5 < found.max_relative < 0.1
    assert 1e-5 < found.l2_relative < 0.1


def test_both_errors_match_their_definition(tmp_path: Path) -> None:
    """Two outputs, one of them off by a known amount where float32 computes it."""
    off = "torch.tensor([[3.0, 0.0, 0.0, 4.0]], dtype=x.dtype) + (x.dtype == torch.float32) * torch.tensor([0, 1.0, 0, 2.0])"
    found = errors(tmp_path, net(result=f"({off}, torch.zeros(2, dtype=x.dtype))"), mode="infer")
    assert found.max_relative == pytest.approx(2 / 4)
    assert found.l2_relative == pytest.approx((1 + 4) ** 0.5 / 5)


def test_pieces_make_no_difference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = errors(tmp_path, net(result=NESTED), mode="infer", amp="bfloat16")
    monkeypatch.setattr(pieces_of, "PIECE_ELEMENTS", 3)
    parts = errors(tmp_path, net(result=NESTED), mode="infer", amp="bfloat16")
    assert parts.max_relative == whole.max_relative
    assert parts.l2_relative == pytest.approx(whole.l2_relative)


def test_gradients_that_would_take_long_are_left_out(tmp_path: Path) -> None:
    of = runner(tmp_path, net())
    found = accuracy.error_against_float64(of, checks.seeded_state(of), gradient_limit_ns=0)
    assert found.max_relative is not None
    assert (found.gradient_l2_relative, found.note) == (None, None)


def test_a_loss_that_fails_in_float64_costs_the_gradients_error_alone(tmp_path: Path) -> None:
    text = net() + "def loss_fn(out):\n    assert out.dtype == torch.float32, 'float32 only'\n    return out.sum()\n"
    of = runner(tmp_path, text)
    found = accuracy.error_against_float64(of, checks.seeded_state(of), gradient_limit_ns=LONG)
    assert found.max_relative is not None
    assert found.gradient_l2_relative is None
    assert found.note is not None
    assert "float32 only" in found.note
    assert all(parameter.grad is None for parameter in of.target.model.parameters())


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("self.fc(x).argmax(1)", "no floating-point tensor"),
        (f"{PLAIN} * float('nan')", "NaN or infinity"),
        (f"{PLAIN} * (3e38 if x.dtype == torch.float32 else 1) * 3e38", "NaN or infinity"),
        ("torch.randn(2, 3, dtype=x.dtype)", "random numbers"),
    ],
    ids=["integers", "nan", "overflow", "noise"],
)
def test_a_missing_error_has_a_reason(tmp_path: Path, result: str, said: str) -> None:
    found = errors(tmp_path, net(result=result), mode="infer")
    assert (found.max_relative, found.l2_relative) == (None, None)
    assert found.note is not None
    assert said in found.note


DROPS = (
    "import torch\nfrom torch import nn\nclass Net(nn.Module):\n"
    "    def __init__(self):\n        super().__init__()\n"
    "        self.rnn = nn.LSTM(4, 8, num_layers=2, dropout=0.5, batch_first=True)\n"
    "        self.norm, self.drop, self.out = nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3)\n"
    "    def forward(self, x):\n"
    "        y = self.drop(self.norm(self.rnn(x)[0][:, -1]))\n"
    "        return self.out(nn.functional.dropout(y, 0.5, self.training))\n"
    "example_inputs = torch.linspace(-1, 1, 48).reshape(4, 3, 4)\n"
)


def test_dropout_is_off_while_the_error_is_measured_and_on_after(tmp_path: Path) -> None:
    of = runner(tmp_path, DROPS)
    found = accuracy.error_against_float64(of, checks.seeded_state(of), gradient_limit_ns=LONG)
    assert found.l2_relative is not None
    assert found.gradient_l2_relative is not None
    assert 0 < found.l2_relative < 1e-5
    assert 0 < found.gradient_l2_relative < 1e-4
    assert found.note is not None
    assert "dropout" in found.note
    modules = dict(of.target.model.named_modules())
    assert all(module.training for module in modules.values())
    recurrent = modules["rnn"]
    assert isinstance(recurrent, nn.LSTM)
    assert recurrent.dropout == 0.5


def test_a_model_that_runs_as_something_else_is_compared_as_it_runs(tmp_path: Path) -> None:
    """`runs` (compiled, captured) is what is measured; the float64 twin is of the model as it is written."""

    class Off(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = self.inner(x)
            return made * 1.5

    of = runner(tmp_path, net(), mode="infer")
    of.target.step_module = Off(of.target.model)
    found = accuracy.error_against_float64(of, checks.seeded_state(of))
    assert found.l2_relative == pytest.approx(0.5, rel=1e-5)


def test_flags_are_put_back(tmp_path: Path) -> None:
    of = runner(tmp_path, net("assert x.dtype == torch.float32"), mode="infer")
    kept = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        with pytest.raises(AssertionError):
            accuracy.error_against_float64(of, checks.seeded_state(of))
        assert torch.backends.cudnn.benchmark is True
    finally:
        torch.backends.cudnn.benchmark = kept
