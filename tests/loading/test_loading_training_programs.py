"""Batch sizes, losses and optimizers of programs that reach the model over other files, methods and computed names."""

from __future__ import annotations

from pathlib import Path

import pytest

from profiler_kit.loading import Target, load
from profiler_kit.records.target import TargetSpec

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv = nn.Conv2d(3, classes, 3)
    def forward(self, x):
        return self.conv(x).mean((2, 3))
"""
LOOP = """
for images, labels in {loader}:
    optimizer.zero_grad()
    loss = {loss}
    loss.backward()
    optimizer.step()
"""
TRAIN = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader
from net import Net
parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=24)
args = parser.parse_args()
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load_net(**files: str) -> Target:
    """The model of ``net.py`` beside the files, whose names have ``_`` for the folder."""
    for name, text in {"net": NET, **files}.items():
        path = Path(f"{name.replace('_', '/')}.py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return load(TargetSpec(spec="net.py"), device="meta")


def loss_of(target: Target) -> str:
    assert target.objective is not None
    return target.objective.scripts[0].name


def batch_of(target: Target) -> int:
    return next(target.batch.tensors()).shape[0]


@pytest.mark.parametrize(
    "loaders",
    [
        "loader = DataLoader(files(), args.batch, shuffle=True)",
        "loader = DataLoader(files(), **{'batch_size': args.batch})",
        "val_loader = DataLoader(files(), batch_size=2)\nloader = DataLoader(files(), batch_size=args.batch)",
        "loader = make_loader(files(), args.batch + 8, batch_size=args.batch)",
    ],
)
def test_searched_inputs_get_the_batch_of_the_training_loader(loaders: str) -> None:
    target = load_net(
        train=TRAIN + loaders + LOOP.format(loader="loader", loss="nn.CrossEntropyLoss()(model(images), labels)")
    )
    assert batch_of(target) == 24
    assert target.spec.pinned is not None
    assert batch_of(load(target.spec, device="meta")) == 24


def test_an_example_of_a_readme_gets_the_batch_of_the_training_loader() -> None:
    Path("README.md").write_text("```python\nfrom net import Net\nNet()(torch.randn(1, 3, 20, 20))\n```\n")
    loader = "loader = DataLoader(files(), batch_size=args.batch)"
    target = load_net(train=TRAIN + loader + LOOP.format(loader="loader", loss="model(images).sum()"))
    assert [tuple(tensor.shape) for tensor in target.batch.tensors()] == [(24, 3, 20, 20)]


def test_a_first_dimension_that_forward_fixes_is_no_batch() -> None:
    net = NET.replace("return self", "assert len(x) == 1\n        return self")
    loader = "loader = DataLoader(files(), batch_size=args.batch)"
    target = load_net(net=net, train=TRAIN + loader + LOOP.format(loader="loader", loss="model(images).sum()"))
    assert batch_of(target) == 1


TABLE = "from net import Net\ndef build(name, classes):\n    if name == 'net':\n        return Net(classes)\n"
FROM_TABLE = TRAIN.replace("from net import Net", "from table import build").replace("Net()", "build('net', 4)")


def test_a_program_that_gets_the_model_from_a_table_of_another_file() -> None:
    step = LOOP.format(loader="DataLoader(files(), batch_size=args.batch)", loss="criterion(model(images), labels)")
    wrapped = "if args.batch > 100:\n    model = nn.DataParallel(model)\ncriterion = nn.MultiMarginLoss()\n"
    target = load_net(table=TABLE, train=FROM_TABLE + wrapped + step)
    assert (batch_of(target), loss_of(target), target.info.optimizer) == (24, "MultiMarginLoss", "SGD")


TRAINER = """
class Trainer:
    def __init__(self, model, optimizer, loader):
        self.model, self.optimizer, self.loader = model, optimizer, loader
    def fit(self, criterion):
        for images, labels in self.loader:
            self.step(images, labels, criterion)
    def step(self, images, labels, criterion):
        labels = labels.view(-1)
        loss = criterion(self.model(images), labels)
        loss.backward()
        self.optimizer.step()
"""


def test_the_step_of_a_trainer_in_another_file_and_the_criterion_that_its_method_passes() -> None:
    """The trainer does not import the model. The labels are a parameter of a method, whose value only a loop knows."""
    program = TRAIN.replace("from net", "from trainer import Trainer\nfrom net")
    calls = "Trainer(model, optimizer, DataLoader(files(), args.batch)).fit(nn.MultiMarginLoss())"
    fit = TRAINER.replace("fit(self, criterion)", "fit(self, criterion=torch.nn.MultiMarginLoss())")
    target = load_net(trainer="import torch\n" + fit, train=program + calls)
    assert target.objective is not None
    assert loss_of(target) == "MultiMarginLoss"
    assert target.objective.scripts[0].label_names == ("labels",)


def test_a_method_that_returns_the_model() -> None:
    program = TRAIN.partition("model = ")[0] + (
        "class Run:\n"
        "    def __init__(self):\n        self.model = self.make()\n"
        "    def make(self):\n        network = Net().cuda()\n        return network\n"
        "    def step(self, images, labels):\n"
        "        loss = nn.MultiMarginLoss()(self.model.forward(images), labels)\n        loss.backward()\n"
    )
    target = load_net(train=program)
    assert loss_of(target) == "MultiMarginLoss"


COMPUTED = """
import argparse
import importlib
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--model", default="{default}")
args = parser.parse_args()
module = importlib.import_module(args.model)
network = module.Net(7)
criterion = module.make_loss()
optimizer = torch.optim.RMSprop(network.parameters())
for images, labels in load():
    criterion(network(images), labels).backward()
"""
MAKES_LOSS = NET + "def make_loss():\n    return nn.MultiMarginLoss()\n"


@pytest.mark.parametrize(("default", "readme"), [("net", ""), ("other", "python train.py --model net\n")])
def test_a_program_that_imports_the_model_by_a_computed_name(default: str, readme: str) -> None:
    Path("README.md").write_text(readme)
    target = load_net(net=MAKES_LOSS, other=MAKES_LOSS, train=COMPUTED.format(default=default))
    assert (next(target.model.parameters()).shape[0], loss_of(target), target.info.optimizer) == (
        7,
        "MultiMarginLoss",
        "RMSprop",
    )


def test_a_program_that_imports_another_module_by_a_computed_name_is_no_evidence() -> None:
    target = load_net(net=MAKES_LOSS, other=MAKES_LOSS, train=COMPUTED.format(default="other"))
    assert target.info.optimizer == "adamw"


LIGHTNING = """
import pytorch_lightning as pl
from torch import nn
from net import Net

class Module(pl.LightningModule):
    def __init__(self, options={{"smooth": 0.2}}):
        super().__init__()
        self.model, self.options = Net(), options
    def forward(self, x):
        return self.model(x)
    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy({call}, y, label_smoothing=self.options["smooth"])
        self.log("loss", loss)
        return {result}
"""


@pytest.mark.parametrize("call", ["self.model(x)", "self(x)", "self.forward(x)"])
@pytest.mark.parametrize("result", ["loss", "{'loss': loss}"])
def test_the_step_of_a_lightning_module_around_the_model(call: str, result: str) -> None:
    target = load_net(train=LIGHTNING.format(call=call, result=result))
    assert loss_of(target) == "cross_entropy"
    assert target.objective is not None
    assert (target.objective.scripts[0].label_names, target.objective.scripts[0].text[-33:]) == (
        ("y",), 'label_smoothing=self.options["smooth"])'[-33:].replace('"', "'"),
    )  # fmt: skip
