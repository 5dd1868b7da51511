"""Losses that a model returns, and labels that turn them on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from profiler_kit.errors import TargetError, UsageError
from profiler_kit.loading import Target, from_model, load
from profiler_kit.loading.training_step.output_losses import is_output_path, loss_in_output, select_loss
from profiler_kit.records.target import TargetSpec

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
NET = (
    "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(3, 4)\n"
    "    def forward(self, x):\n        y = self.fc(x)\n        return {}\n"
)
LANGUAGE_MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(30, 8), nn.Linear(8, 30)
    def forward(self, idx, targets=None):
        x = self.emb(idx)
        if targets is None:
            return self.head(x[:, [-1], :]), None
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, 30), targets.view(-1), ignore_index=-1)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load_text(text: str, *inputs: str, device: str = "meta", **options: object) -> Target:
    Path("net.py").write_text(HEAD + text)
    return load(TargetSpec(spec="net.py", inputs=inputs, **options), device=device)  # type: ignore[arg-type]


def loss_of(target: Target) -> Tensor:
    output = target.model(*target.batch.args, **target.batch.kwargs)
    labels = target.labels_for(output)
    return target.loss(output, target.batch, labels)


@dataclass
class Output:
    logits: Tensor
    loss: Tensor


def scalar() -> Tensor:
    return torch.ones((), requires_grad=True) * 2


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ((torch.ones(2), scalar()), "output[1]"),
        ([scalar(), torch.ones(2)], "output[0]"),
        ({"loss": scalar(), "other_loss": scalar()}, "output.loss"),
        ({"logits": torch.ones(2), "my loss": scalar()}, "output[my loss]"),
        ({"total_loss": scalar(), "loss_a": scalar()}, "output.total_loss"),
        ({"loss_a": scalar(), "loss_b": scalar(), "scale": scalar()}, "output.loss_a + output.loss_b"),
        ((torch.ones(2), {"aux": scalar()}), "output[1].aux"),
        (Output(torch.ones(2), scalar()), "output.loss"),
        ((torch.ones(2), scalar(), scalar()), "output[1]"),
        (scalar(), "output"),
    ],
)
def test_a_scalar_anywhere_in_the_output_is_the_loss(output: object, name: str) -> None:
    loss = loss_in_output(output)
    assert loss is not None
    assert loss.name == name
    assert is_output_path(name)
    assert torch.equal(select_loss(output, name), loss.value)


@pytest.mark.parametrize("output", [torch.ones(2), (torch.ones(2), torch.ones(())), {"count": torch.tensor(3)}, None])
def test_a_scalar_without_a_gradient_is_no_loss(output: object) -> None:
    assert loss_in_output(output) is None


def test_the_loss_of_a_tuple_is_not_computed_twice() -> None:
    target = load_text(NET.format("y, y.square().mean()"), "2,3")
    loss = loss_of(target)
    assert target.info.loss == "output[1]"
    assert loss.grad_fn is not None
    assert "mean" in type(loss.grad_fn).__name__.lower()
    assert any(note == "loss: output[1] (the output contains its loss)" for note in map(str, target.info.notes))


def test_other_scalars_are_listed_with_their_option() -> None:
    target = load_text(NET.format("y, y.mean(), y.sum()"), "2,3")
    loss_of(target)
    (note,) = (note for note in map(str, target.info.notes) if note.startswith("loss: "))
    assert note == "loss: output[1] (the output contains its loss; other scalars: --loss 'output[2]')"


@pytest.mark.parametrize(
    ("returned", "option"),
    [
        ("y, y.mean(), y.sum()", "output[2]"),
        ("{'logits': y, 'aux': y.sum()}", "output[aux]"),
        ("{'logits': y, 'aux': y.sum()}", "output.aux"),
        ("{'a': y.mean(), 'b': y.sum()}", "output.a + output.b"),
    ],
)
def test_an_option_selects_a_loss_of_the_output(returned: str, option: str) -> None:
    target = load_text(NET.format(returned), "2,3", loss=option, device="cpu")
    assert loss_of(target).dim() == 0
    assert target.info.loss == option


@pytest.mark.parametrize("option", ["output[0]", "output[5]", "output.loss"])
def test_an_option_that_selects_no_scalar_names_one_that_does(option: str) -> None:
    target = load_text(NET.format("y, y.mean()"), "2,3", loss=option)
    with pytest.raises(TargetError) as caught:
        loss_of(target)
    assert caught.value.hint == "use --loss 'output[1]'"


@pytest.mark.parametrize("option", ["output[", "outputs", "output..loss", "output+", "loss"])
def test_other_texts_are_unknown_losses(option: str) -> None:
    with pytest.raises(UsageError, match="unknown --loss"):
        load_text(NET.format("y"), "2,3", loss=option)


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_labels_are_supplied_if_they_turn_the_loss_on(device: str) -> None:
    target = load_text(LANGUAGE_MODEL, "2,5:int64", device=device)
    assert [(item.name, item.shape, item.dtype) for item in target.info.inputs] == [
        ("idx", (2, 5), "int64"),
        ("targets", (2, 5), "int64"),
    ]
    assert loss_of(target).dim() == 0
    assert target.info.loss == "output[1]"
    note = "labels: random targets=2,5:int64[0:30], so that the model returns its loss"
    assert note in map(str, target.info.notes)
    if device == "cpu":
        assert int(target.batch.kwargs["targets"].max()) > 2


def test_the_same_labels_everywhere() -> None:
    first, second = (load_text(LANGUAGE_MODEL, "2,5:int64", device="cpu") for _ in range(2))
    assert torch.equal(first.batch.kwargs["targets"], second.batch.kwargs["targets"])
    assert not torch.equal(first.batch.kwargs["targets"], first.batch.args[0])


@pytest.mark.parametrize(
    ("words", "inputs"), [({"mode": "infer"}, 1), ({"loss": "sum"}, 1), ({"loss": "output[1]"}, 2), ({}, 2)]
)
def test_labels_are_supplied_only_for_the_loss_of_the_model(words: dict[str, str], inputs: int) -> None:
    assert len(load_text(LANGUAGE_MODEL, "2,5:int64", **words).info.inputs) == inputs


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        ("F.cross_entropy(y, labels)", "labels=2:int64[0:4]"),
        ("F.mse_loss(y, labels)", "labels=2,4"),
        ("F.binary_cross_entropy(y.sigmoid(), labels)", "labels=2,4[0:1]"),
        ("F.mse_loss(y, F.one_hot(labels, 4).float())", "labels=2:int64[0:4]"),
        ("F.cross_entropy(y, labels.view(-1).long())", "labels=2:int64[0:4]"),
    ],
)
def test_labels_have_the_kind_that_the_loss_needs(loss: str, text: str) -> None:
    net = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(3, 4)\n"
        "    def forward(self, x, labels=None):\n        y = self.fc(x)\n        if labels is None:\n            return y\n"
        f"        return {loss}, y\n"
    )
    target = load_text(net, "2,3", device="cpu")
    assert any(note.startswith(f"labels: random {text}, ") for note in map(str, target.info.notes))
    assert torch.isfinite(loss_of(target))


def test_a_label_parameter_that_returns_no_loss_is_left_alone() -> None:
    net = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(3, 4)\n"
        "    def forward(self, x, y=None):\n        out = self.fc(x)\n        return out if y is None else out + 1\n"
    )
    target = load_text(net, "2,3")
    assert [item.name for item in target.info.inputs] == ["x"]


def test_the_labels_of_a_loader_turn_the_loss_on() -> None:
    text = LANGUAGE_MODEL + "train_loader = [(torch.ones(2, 5).long(), torch.full((2, 5), 7))] * 2\n"
    target = load_text(text, device="cpu")
    assert target.loader is not None
    for batch in (target.batch, *target.loader()):
        assert batch.labels == ()
        assert int(batch.kwargs["targets"].min()) == 7
    loss_of(target)
    assert target.info.loss == "output[1]"


def test_a_model_from_python_gets_labels_too() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 4)

        def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
            logits = self.fc(x)
            return (
                {"logits": logits}
                if labels is None
                else {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}
            )

    target = from_model(Net(), torch.ones(2, 3))
    loss_of(target)
    assert target.info.loss == "output.loss"
