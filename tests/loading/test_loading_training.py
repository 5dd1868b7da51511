"""Losses, made-up labels, optimizers and loaders."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.loading import Target, from_model, load
from profiler_kit.loading.training_step.losses import CHOICES
from profiler_kit.loading.training_step.optimizers import OPTIMIZERS
from profiler_kit.records.target import TargetSpec

HEAD = "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load_text(folder: Path, text: str, *inputs: str, device: str = "cpu", **words: object) -> Target:
    (folder / "net.py").write_text(HEAD + text)
    return load(TargetSpec(spec="net.py", inputs=inputs, **words), device=device)  # type: ignore[arg-type]


def step(target: Target) -> tuple[Tensor, tuple[Tensor, ...]]:
    """(loss, labels) of one whole training step."""
    output = target.model(*target.batch.args, **target.batch.kwargs)
    labels = target.labels_for(output)
    loss = target.loss(output, target.batch, labels)
    loss.backward()  # type: ignore[no-untyped-call]
    target.make_optimizer().step()
    return loss.detach(), labels


@pytest.mark.parametrize(
    ("model", "inputs", "loss", "labels"),
    [
        ("nn.Linear(4, 5)", "3,4", "cross_entropy", (3,)),
        ("nn.Conv2d(3, 2, 1)", "2,3,6,7", "cross_entropy", (2, 6, 7)),
        ("nn.Conv1d(3, 4, 1)", "2,3,9", "cross_entropy", (2, 9)),
        ("nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 9))", "2,7:int64", "cross_entropy", (2, 7)),
        ("nn.Linear(4, 1)", "3,4", "sum", None),
        ("nn.LSTM(4, 5)", "7,2,4", "cross_entropy", (7, 5)),
    ],
)
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_the_default_loss_fits_the_output(
    folder: Path, model: str, inputs: str, loss: str, labels: tuple[int, ...] | None, device: str
) -> None:
    target = load_text(folder, f"model = {model}\n", inputs, device=device)
    assert target.info.loss == "auto"
    _, made = step(target)
    assert [tuple(label.shape) for label in made] == ([] if labels is None else [labels])
    assert target.info.loss == loss
    assert any(note.startswith(f"loss: {loss} ") and "no loss_fn" in note for note in map(str, target.info.notes))
    assert any(note.startswith("optimizer: adamw") for note in map(str, target.info.notes))


def test_language_model_labels_lie_in_the_vocabulary(folder: Path) -> None:
    target = load_text(folder, "model = nn.Sequential(nn.Embedding(300, 4), nn.Linear(4, 300))\n", "4,64:int64")
    _, (label,) = step(target)
    assert 200 < label.max() < 300
    assert any("300 classes of the last dimension" in note for note in map(str, target.info.notes))


def test_an_output_that_brings_its_loss_needs_no_labels(folder: Path) -> None:
    text = (
        "class Out:\n    def __init__(self, loss, logits):\n        self.loss, self.logits = loss, logits\n"
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(3, 4)\n"
        "    def forward(self, x):\n        y = self.fc(x)\n        return {}\n"
    )
    for returned in ("Out(y.mean(), y)", "{'loss': y.mean(), 'logits': y}"):
        target = load_text(folder, text.format(returned), "2,3")
        loss, labels = step(target)
        assert labels == ()
        assert target.info.loss == "output.loss"
        assert loss.dim() == 0
    without = load_text(folder, text.format("Out(None, y)"), "2,3")
    _, (label,) = step(without)
    assert label.shape == (2,)
    assert without.info.loss == "cross_entropy"


def test_a_scalar_that_begins_a_tuple_is_the_loss(folder: Path) -> None:
    """As models of transformers return it with return_dict=False."""
    text = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(3, 4)\n"
        "    def forward(self, x):\n        y = self.fc(x)\n        return {}\n"
    )
    for device in ("meta", "cpu"):
        target = load_text(folder, text.format("y.square().mean(), y"), "2,3", device=device)
        output = target.model(*target.batch.args)
        assert target.labels_for(output) == ()
        assert target.loss(output, target.batch, ()) is output[0]
        assert target.info.loss == "output[0]"
        assert any("output[0]" in note for note in map(str, target.info.notes))
    other = load_text(folder, text.format("torch.ones(()), y"), "2,3")  # a scalar that nothing can be trained towards
    _, labels = step(other)
    assert [tuple(label.shape) for label in labels] == []
    assert other.info.loss == "sum"


def test_made_up_labels_are_made_once_and_alike_everywhere(folder: Path) -> None:
    first, second = (load_text(folder, "model = nn.Linear(4, 50)\n", "8,4") for _ in range(2))
    output = first.model(*first.batch.args)
    assert first.labels_for(output)[0] is first.labels_for(output)[0]
    torch.manual_seed(17)
    assert torch.equal(first.labels_for(output)[0], second.labels_for(output)[0])


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_every_named_loss_trains(folder: Path, name: str, device: str) -> None:
    model = "nn.Sequential(nn.Linear(4, 5), nn.Sigmoid())" if name == "bce" else "nn.Linear(4, 5)"  # probabilities
    target = load_text(folder, f"model = {model}\n", "3,4", device=device, loss=name)
    loss, _ = step(target)
    assert loss.device.type == device
    assert target.info.loss == name
    assert device == "meta" or torch.isfinite(loss)


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_named_optimizer_steps(folder: Path, name: str) -> None:
    target = load_text(folder, "model = nn.Linear(4, 5)\n", "3,4", optimizer=name)
    before = target.model.weight.detach().clone()
    step(target)
    assert not torch.equal(before, target.model.weight)
    assert torch.isfinite(target.model.weight).all()


@pytest.mark.parametrize("arguments", ["output, x", "output", "output, *inputs", "output, x, y=None"])
def test_the_files_loss_gets_as_many_inputs_as_it_takes(folder: Path, arguments: str) -> None:
    text = f"model = nn.Linear(4, 5)\ndef loss_fn({arguments}):\n    return output.pow(2).mean()\n"
    target = load_text(folder, text, "3,4")
    loss, labels = step(target)
    assert target.info.loss == "loss_fn"
    assert labels == ()
    assert loss > 0


def test_an_option_wins_over_the_file(folder: Path) -> None:
    text = "model = nn.Linear(4, 5)\ndef loss_fn(o, x):\n    1 / 0\ndef configure_optimizer(m):\n    1 / 0\n"
    target = load_text(folder, text, "3,4", loss="sum", optimizer="sgd")
    step(target)
    assert (target.info.loss, target.info.optimizer) == ("sum", "sgd")


@pytest.mark.parametrize("criterion", ["CrossEntropyLoss", "MSELoss", "BCEWithLogitsLoss", "SmoothL1Loss"])
def test_a_stock_criterion_gets_labels_it_can_compare(folder: Path, criterion: str) -> None:
    target = load_text(folder, f"model = nn.Linear(4, 5)\nloss_fn = nn.{criterion}()\n", "3,4")
    loss, labels = step(target)
    assert target.info.loss == criterion
    assert len(labels) == 1
    assert torch.isfinite(loss)


def test_a_criterion_with_weights_follows_the_model_to_meta(folder: Path) -> None:
    target = load_text(
        folder, "model = nn.Linear(4, 5)\nloss_fn = nn.CrossEntropyLoss(weight=torch.ones(5))\n", "3,4", device="meta"
    )
    assert step(target)[0].device.type == "meta"


def test_the_files_optimizer_is_named_when_made(folder: Path) -> None:
    text = (
        "model = nn.Linear(4, 5)\ndef configure_optimizer(model):\n    return torch.optim.RMSprop(model.parameters())\n"
    )
    target = load_text(folder, text, "3,4")
    assert target.info.optimizer == "configure_optimizer"
    assert isinstance(target.make_optimizer(), torch.optim.RMSprop)
    assert target.info.optimizer == "RMSprop"


def test_frozen_parameters_are_not_optimised(folder: Path) -> None:
    target = load_text(
        folder, "model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 5))\nmodel[0].requires_grad_(False)\n", "3,4"
    )
    assert sum(len(group["params"]) for group in target.make_optimizer().param_groups) == 2


def test_infer_mode_has_no_loss_and_no_optimizer(folder: Path) -> None:
    target = load_text(folder, "model = nn.Sequential(nn.Linear(4, 4), nn.Dropout())\n", "3,4", mode="infer")
    assert (target.info.loss, target.info.optimizer, target.model.training) == (None, None, False)
    output = target.model(*target.batch.args)
    assert target.labels_for(output) == ()
    with pytest.raises(TargetError):
        target.loss(output, target.batch, ())
    with pytest.raises(TargetError):
        target.make_optimizer()


NET = (
    "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(4, 5)\n"
    "    def forward(self, {}):\n        return self.fc(x)\n"
    "X, Y, Z = torch.ones(3, 4), torch.tensor([0, 1, 2]), torch.zeros(3, 5)\n"
)


@pytest.mark.parametrize(
    ("parameters", "value", "args", "kwargs", "labels"),
    [
        ("x", "(X, Y)", 1, (), 1),
        ("x", "[X, Y, Z]", 1, (), 2),
        ("x", "X", 1, (), 0),
        ("x", "(X,)", 1, (), 0),
        ("x, m", "(X, Z, Y)", 2, (), 1),
        ("x, m=None", "(X, Y)", 1, (), 1),
        ("x=None, m=None", "(X, Y)", 1, (), 1),
        ("x", "{'x': X, 'labels': Y}", 0, ("x",), 1),
        ("x, m=None", "{'x': X, 'm': Z, 'y': Y}", 0, ("x", "m"), 1),
        ("x, **rest", "{'x': X, 'more': Z, 'labels': Y}", 0, ("x", "more"), 1),
    ],
)
def test_batches_of_every_kind(
    folder: Path, parameters: str, value: str, args: int, kwargs: tuple[str, ...], labels: int
) -> None:
    target = load_text(folder, NET.format(parameters) + f"train_loader = [{value}, {value}]\n")
    assert target.loader is not None
    for batch in (target.batch, *target.loader()):
        assert (len(batch.args), tuple(batch.kwargs), len(batch.labels)) == (args, kwargs, labels)
    assert target.info.has_loader
    assert target.info.inputs_from == "loader"
    step(target)
    assert target.info.loss == ("mse" if value == "(X, Z)" else "cross_entropy")


@pytest.mark.parametrize(("label", "loss"), [("Y", "cross_entropy"), ("Z", "mse"), ("torch.ones(3)", "sum")])
def test_the_default_loss_follows_the_batchs_labels(folder: Path, label: str, loss: str) -> None:
    target = load_text(folder, NET.format("x") + f"train_loader = [(X, {label})]\n")
    _, labels = step(target)
    assert target.info.loss == loss
    assert labels is target.batch.labels


def test_the_files_loss_gets_the_batchs_labels(folder: Path) -> None:
    text = (
        NET.format("x")
        + "train_loader = [(X, Y)]\ndef loss_fn(output, labels):\n    return F.cross_entropy(output, labels)\n"
    )
    target = load_text(folder, text)
    loss, labels = step(target)
    assert torch.equal(labels[0], torch.tensor([0, 1, 2]))
    assert loss > 0


@pytest.mark.parametrize("name", ["get_loader", "make_loader", "train_loader"])
def test_a_loader_function_may_give_a_generator(folder: Path, name: str) -> None:
    target = load_text(folder, NET.format("x") + f"def {name}():\n    for _ in range(3):\n        yield X, Y\n")
    assert target.loader is not None
    assert len(list(target.loader())) == len(list(target.loader())) == 3


def test_a_shuffling_loader_gives_every_process_the_same_first_batch(folder: Path) -> None:
    text = NET.format("x") + (
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "def make_loader():\n    data = TensorDataset(torch.arange(400.).reshape(100, 4), torch.zeros(100, dtype=torch.long))\n"
        "    return DataLoader(data, batch_size=5, shuffle=True)\n"
    )
    first, second = load_text(folder, text), load_text(folder, text)
    assert torch.equal(first.batch.args[0], second.batch.args[0])
    assert first.batch.args[0].shape == (5, 4)


def test_a_loader_function_that_needs_arguments_is_not_the_targets_loader(folder: Path) -> None:
    target = load_text(folder, NET.format("x") + "def get_loader(path):\n    1 / 0\n", "3,4")
    assert target.loader is None
    assert not any("get_loader" in note for note in map(str, target.info.notes))


def test_one_batch_starts_no_workers(folder: Path) -> None:
    text = NET.format("x") + (
        "from torch.utils.data import DataLoader, Dataset, get_worker_info\n"
        "class Data(Dataset):\n    def __len__(self):\n        return 4\n"
        "    def __getitem__(self, i):\n        return torch.full((4,), float(get_worker_info() is not None)), 1\n"
        "train_loader = DataLoader(Data(), batch_size=2, num_workers=1)\n"
    )
    target = load_text(folder, text)
    assert not target.batch.args[0].any()
    assert target.loader is not None
    assert all(batch.args[0].all() for batch in target.loader())  # a pass over the loader is the user's own again


def test_given_inputs_put_the_loader_aside_and_say_so(folder: Path) -> None:
    text = NET.format("x") + "train_loader = [(X, Y)]\n"
    for target in (load_text(folder, text, "7,4"), load_text(folder, text, batch=7)):
        assert target.loader is None
        assert target.info.inputs[0].shape == (7, 4)
        assert not target.info.has_loader
        assert any("train_loader" in note for note in map(str, target.info.notes))


def test_to_device_moves_casts_and_formats(folder: Path) -> None:
    text = "model = nn.Conv2d(3, 2, 1)\ntrain_loader = [(torch.ones(2, 3, 4, 4), torch.zeros(2, 4, 4, dtype=torch.long))]\n"
    target = load_text(folder, text, device="meta", dtype="bfloat16", channels_last=True)
    assert target.loader is not None
    host = next(iter(target.loader()))
    assert host.args[0].device.type == "cpu"
    moved = target.to_device(host)
    assert (moved.args[0].device.type, moved.args[0].dtype) == ("meta", torch.bfloat16)
    assert moved.args[0].is_contiguous(memory_format=torch.channels_last)
    assert (moved.labels[0].device.type, moved.labels[0].dtype) == ("meta", torch.int64)


def net() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 36, 5))


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_the_callers_model_is_never_changed(device: str) -> None:
    model = net().eval()
    model(torch.ones(2, 3, 8, 8)).sum().backward()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    grads = [p.grad for p in model.parameters()]
    target = from_model(model, torch.ones(2, 3, 8, 8), device=device, dtype="float64", channels_last=True)
    step(target)
    assert not model.training
    assert target.model.training
    assert all(torch.equal(before[name], t) and t.dtype == before[name].dtype for name, t in model.state_dict().items())
    assert model[0].weight.is_contiguous()
    assert all(p.grad is g for p, g in zip(model.parameters(), grads, strict=True))
    assert {p.device.type for p in model.parameters()} == {"cpu"}
    assert target.paths()[id(target.model[1])] == "1"
    assert target.info.inputs_from == "caller"


def test_a_meta_copy_keeps_what_the_model_is_made_of() -> None:
    model = net()
    tied = nn.Linear(5, 5)
    tied.weight = nn.Parameter(model[3].weight[:, :5].detach().clone(), requires_grad=False)
    model.append(tied)
    model.append(tied)
    model[0].weight.no_decay = True  # type: ignore[attr-defined]
    model[0].cache = torch.ones(2, requires_grad=True) * 2
    copied = from_model(model, torch.ones(2, 3, 8, 8)).model
    assert isinstance(copied, nn.Sequential)
    assert copied[4] is copied[5]
    assert not copied[4].weight.requires_grad
    assert copied[0].weight.no_decay
    assert copied[0].cache.device.type == "meta"
    assert [n for n, _ in copied.named_parameters()] == [n for n, _ in model.named_parameters()]
    assert {t.device.type for t in copied.state_dict().values()} == {"meta"}


def test_a_meta_copy_takes_no_memory() -> None:
    huge = nn.Linear(1, 1, device="meta")
    huge.weight = nn.Parameter(torch.ones(1).expand(200_000, 200_000))  # 160 GB if anything copied it
    target = from_model(huge, torch.ones(1, 200_000), mode="infer")
    assert target.model(*target.batch.args).shape == (1, 200_000)


def test_a_model_with_a_loss_and_labels() -> None:
    model, x, y = nn.Linear(3, 4), torch.ones(2, 3), torch.tensor([0, 3])
    target = from_model(model, (x,), labels=y, loss_fn=nn.functional.cross_entropy, optimizer="sgd", device="cpu")
    loss, labels = step(target)
    assert torch.equal(labels[0], y)
    assert torch.allclose(loss, nn.functional.cross_entropy(model(x), y))


def test_paths_name_a_shared_module_once() -> None:
    shared = nn.Linear(3, 3)
    target = from_model(nn.Sequential(shared, shared), torch.ones(1, 3))
    assert sorted(target.paths().values()) == ["", "0"]
