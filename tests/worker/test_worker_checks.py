"""Bits compared as bits, part by part, from the same start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from measure_models import job, net

torch = pytest.importorskip("torch")

from profiler_kit.loading import load  # noqa: E402
from profiler_kit.worker import checks  # noqa: E402
from profiler_kit.worker import pieces as pieces_of  # noqa: E402
from profiler_kit.worker.pieces import pieces, tensors  # noqa: E402
from profiler_kit.worker.steps import Runner  # noqa: E402

PLAIN = "self.out(self.fc(x).relu())"


def runner(folder: Path, text: str, **words: object) -> Runner:
    return Runner(load(job(folder, text, **words).spec, device="cpu"))  # type: ignore[arg-type]


def bits(folder: Path, text: str, **words: object) -> checks.Reproducibility:
    of = runner(folder, text, **words)
    return checks.compare_passes(of, checks.seeded_state(of))


def test_bits_come_from_the_start_however_far_the_model_was_trained(tmp_path: Path) -> None:
    fresh = runner(tmp_path, net())
    start = checks.seeded_state(fresh)
    first = checks.compare_passes(fresh, start)
    for _ in range(3):
        fresh.step()
    again = checks.compare_passes(fresh, start)
    assert first == again
    assert (first.outputs, first.loss, first.gradients, first.repeatable) == (True, True, True, True)


def test_the_start_is_a_copy(tmp_path: Path) -> None:
    of = runner(tmp_path, net(), optimizer="sgd")
    start = checks.seeded_state(of)
    before = {name: value.clone() for name, value in start.items()}
    of.step()
    assert all(torch.equal(start[name], before[name]) for name in before)


def test_one_pass_of_a_second_process_has_the_same_digests(tmp_path: Path) -> None:
    first = bits(tmp_path, net())
    of = runner(tmp_path, net())
    alone = checks.pass_digests(of, checks.seeded_state(of))
    assert (alone.output, alone.loss, alone.gradient) == (
        first.digests.output,
        first.digests.loss,
        first.digests.gradient,
    )
    assert len({alone.output, alone.loss, alone.gradient}) == 3
    assert all(parameter.grad is None for parameter in of.target.model.parameters())


def test_a_single_changed_bit_is_seen(tmp_path: Path) -> None:
    """-0.0 equals 0.0 as a number; as a result of the same program it is another one."""
    found = bits(tmp_path, net(result=f"{PLAIN} * 0.0 * (-1.0) ** self.calls"))
    assert found.outputs is False
    assert found.repeatable is False


def test_the_third_pass_counts(tmp_path: Path) -> None:
    """A race may give the same bits twice."""
    assert bits(tmp_path, net(result=f"{PLAIN} + (self.calls == 3)")).outputs is False


@pytest.mark.parametrize(
    ("result", "loss", "parts"),
    [
        (PLAIN, "out.sum() * (1 if next(calls) % 2 else -1)", (True, False, False)),
        (PLAIN, "out.sum() + out.sum().detach() * next(calls)", (True, False, True)),
        (f"torch.cat([{PLAIN}, torch.full((2, 1), float(self.calls))], 1)", "out[:, :3].sum()", (False, True, True)),
    ],
    ids=["loss and gradients", "the loss alone", "the output alone"],
)
def test_output_loss_and_gradients_are_compared_separately(
    tmp_path: Path, result: str, loss: str, parts: tuple[bool, bool, bool]
) -> None:
    text = net(result=result) + f"import itertools\ncalls = itertools.count()\ndef loss_fn(out): return {loss}\n"
    found = bits(tmp_path, text)
    assert (found.outputs, found.loss, found.gradients) == parts


@pytest.mark.parametrize(
    ("forward", "nan_in", "infinity_in"),
    [
        (PLAIN, (), ()),
        ("self.out(self.fc(x).relu()).sub(1e9).log()", ("outputs", "loss", "gradients"), ()),
        ("self.out(self.fc(x).relu()) * 1e30 * 1e30", ("loss", "gradients"), ("outputs",)),
        ("self.out(self.fc(x).relu() * 0).sqrt()", None, None),
    ],
)
def test_nan_and_infinity_are_found_by_part(
    tmp_path: Path, forward: str, nan_in: tuple[str, ...] | None, infinity_in: tuple[str, ...] | None
) -> None:
    of = runner(tmp_path, net(result=forward))
    digests = checks.pass_digests(of, checks.seeded_state(of))
    output, loss = of.forward_backward(of.target.batch)
    gradients = [parameter.grad for parameter in of.target.model.parameters()]
    parts = {"outputs": [output], "loss": [loss], "gradients": gradients}
    if nan_in is not None:
        assert (digests.nan_in, digests.infinity_in) == (nan_in, infinity_in)
    for name, values in parts.items():
        has_nan = any(bool(value.isnan().any()) for value in values)
        has_infinity = any(bool(value.isinf().any()) for value in values)
        assert (name in digests.nan_in, name in digests.infinity_in) == (has_nan, has_infinity and not has_nan)


def test_nan_repeats(tmp_path: Path) -> None:
    assert bits(tmp_path, net(result="self.out(self.fc(x)) * float('nan')")).outputs is True


def test_dropout_repeats_as_every_pass_has_the_same_seeds(tmp_path: Path) -> None:
    drawn = "nn.functional.dropout(self.out(self.fc(x)), 0.5) + __import__('random').random()"
    assert bits(tmp_path, net(result=drawn)).repeatable is True


def test_inference_has_an_output_and_no_more(tmp_path: Path) -> None:
    found = bits(tmp_path, net(), mode="infer")
    assert (found.outputs, found.loss, found.gradients, found.repeatable) == (True, None, None, True)
    assert (found.digests.loss, found.digests.gradient) == (None, None)


@pytest.mark.parametrize("dtype", ["int64", "bool", "uint8"])
def test_an_output_of_integers_is_compared_too(tmp_path: Path, dtype: str) -> None:
    same = bits(tmp_path, net(result=f"self.fc(x).argmax(1).to(torch.{dtype})"), mode="infer")
    assert (same.outputs, same.digests.output is not None) == (True, True)
    other = bits(tmp_path, net(result=f"(self.fc(x).argmax(1) * 0 + self.calls % 2).to(torch.{dtype})"), mode="infer")
    assert other.outputs is False


def test_an_output_without_tensors_is_neither(tmp_path: Path) -> None:
    found = bits(tmp_path, net(result="'done'"), mode="infer")
    assert (found.outputs, found.digests.output, found.repeatable) == (None, None, None)


@pytest.mark.parametrize("words", [{"amp": "bfloat16"}, {"dtype": "bfloat16"}, {"dtype": "float16"}], ids=str)
def test_narrow_types_are_compared_as_they_are(tmp_path: Path, words: dict[str, object]) -> None:
    found = bits(tmp_path, net(), **words)
    assert found.repeatable is True
    assert found.digests.output != bits(tmp_path, net()).digests.output


def test_sparse_gradients_are_compared(tmp_path: Path) -> None:
    text = (
        "import torch\nfrom torch import nn\nclass Net(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.table = nn.Embedding(9, 4, sparse=True)\n"
        "    def forward(self, ids):\n        return self.table(ids)\n"
        "example_inputs = torch.tensor([1, 2, 2, 8])\ndef loss_fn(out): return out.square().sum()\n"
    )
    found = bits(tmp_path, text, optimizer="sgd")
    assert (found.gradients, found.digests.gradient is not None) == (True, True)


def test_all_buffers_are_put_back(tmp_path: Path) -> None:
    """Also those that are not saved with the model, as a counter that a step reads."""
    running = net(
        result="nn.functional.batch_norm(self.fc(x), self.mean, self.var, training=True) + self.count.add_(1)"
    )
    running = running.replace(
        "nn.Linear(8, 3), 0\n",
        "nn.Linear(8, 3), 0\n        self.register_buffer('mean', torch.zeros(8)); self.register_buffer('var', torch.ones(8))\n"
        "        self.register_buffer('count', torch.zeros(()), persistent=False)\n",
    )
    of = runner(tmp_path, running)
    start = checks.seeded_state(of)
    first = checks.compare_passes(of, start)
    of.step()
    assert checks.compare_passes(of, start) == first
    assert first.repeatable is True


def laid_out(shape: tuple[int, ...]) -> list[torch.Tensor]:
    """The same numbers in several memory layouts."""
    plain = torch.arange(float(torch.Size(shape).numel())).reshape(shape)
    doubled = torch.stack([plain, plain], -1)[..., 0]
    return [plain, plain.transpose(0, -1).contiguous().transpose(0, -1), doubled]


@pytest.mark.parametrize("shape", [(1,), (7,), (2, 3, 4, 5), (1, 60), (60, 1), (3, 0, 2)], ids=str)
@pytest.mark.parametrize("most", [1, 4, 7, 1000])
def test_pieces_hold_every_element_once_in_order_for_any_layout(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], most: int
) -> None:
    monkeypatch.setattr(pieces_of, "PIECE_ELEMENTS", most)
    for tensor in laid_out(shape):
        found = list(pieces(tensor, tensor * 2))
        assert all(one.numel() <= most or one.numel() == 0 for one, _ in found)
        assert torch.equal(torch.cat([one for one, _ in found]), tensor.flatten())
        assert all(torch.equal(one * 2, two) for one, two in found)


def test_a_digest_does_not_depend_on_memory_layout_or_the_size_of_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = net(result="self.out(self.fc(x)).t().contiguous().t()")
    plain = bits(tmp_path, net(result="self.out(self.fc(x))"), mode="infer").digests.output
    assert bits(tmp_path, text, mode="infer").digests.output == plain
    monkeypatch.setattr(pieces_of, "PIECE_ELEMENTS", 2)
    assert bits(tmp_path, text, mode="infer").digests.output == plain


@dataclass
class Answer:
    logits: torch.Tensor
    note: str


def test_tensors_are_collected_from_any_output() -> None:
    one, two, three = torch.ones(1), torch.ones(2), torch.ones(3)
    nested = {"a": [one, (two, None, "text")], "b": Answer(logits=three, note="x")}
    assert [tensor.numel() for tensor in tensors(nested)] == [1, 2, 3]
    assert [t.dtype for t in tensors(torch.ones(2, dtype=torch.complex64).conj())] == [torch.float32]


def test_the_texts_state_the_number_of_passes() -> None:
    """Records, columns, rules and pages say "three passes"."""
    assert checks.PASSES == 3
