"""Lightning modules: the training step runs as forward, with a batch of the structure that the code reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from profiler_kit.counting import count_target
from profiler_kit.loading import Target, load
from profiler_kit.records.target import TargetSpec

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
import absent_package.pytorch as pl
from absent_package import LightningModule
from absent_package.data import Images
"""
NET = """
class Net(pl.LightningModule):
    def __init__(self, width=6, classes=4):
        super().__init__()
        self.save_hyperparameters()
        self.layer = nn.Linear(self.hparams.width, self.hparams["classes"])
        self.calls = 0
    def forward(self, x):
        return self.layer(x)
    def training_step(self, batch, batch_idx):
{body}
    def configure_optimizers(self):
        return {{"optimizer": torch.optim.SGD(self.parameters(), lr=0.5), "monitor": "loss"}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def load_step(*body: str, more: str = "", device: str = "cpu", **options: Any) -> Target:
    lines = "\n".join(f"        {line}" for line in body)
    Path("net.py").write_text(HEAD + NET.format(body=lines) + more)
    return load(TargetSpec(spec="net.py:Net", **options), device=device)


def shapes(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return (*value.shape, value.dtype.is_floating_point)
    if isinstance(value, (tuple, list)):
        return tuple(map(shapes, value))
    return {key: shapes(item) for key, item in (value if isinstance(value, dict) else vars(value)).items()}


def value_of(target: Target) -> float:
    """The loss of one step on the CPU."""
    output = target.model(*target.batch.args, **target.batch.kwargs)
    loss = target.loss(output, target.batch, ())
    loss.backward()  # type: ignore[no-untyped-call]
    target.make_optimizer().step()
    return float(loss.detach())


X, Y, LIKE = (1, 6, True), (1, False), (1, 4, True)


@pytest.mark.parametrize(
    ("body", "batch"),
    [
        (("x, y = batch", "return F.cross_entropy(self(x), y)"), (X, Y)),
        (("(x, again), y = batch", "return F.cross_entropy(self(x) + self(again), y)"), ((X, X), Y)),
        (("return F.mse_loss(self(batch[0]), batch[1])",), (X, LIKE)),
        (("return {'loss': F.cross_entropy(self(batch['image']), batch['label'])}",), {"image": X, "label": Y}),
        (("return F.cross_entropy(self.forward(batch.x), batch.y)",), {"x": X, "y": Y}),
        (("return self(batch).sum()",), X),
        (("x, _ = batch", "return self(x).mean()"), (X, Y)),
        (("return self.common_step(batch, 'train')",), (X, Y)),
    ],
)
def test_the_batch_has_the_structure_that_the_step_reads(body: tuple[str, ...], batch: object) -> None:
    more = """
    def common_step(self, data, stage):
        x, y = data
        loss = F.cross_entropy(self(x), y)
        self.log(f"{stage}_loss", loss)
        return loss
"""
    target = load_step(*body, more=more)
    assert shapes(target.batch.args[0]) == batch
    assert abs(value_of(target)) > 0
    assert target.info.optimizer == "SGD"
    assert any(note.startswith("step: training_step(batch, batch_idx)") for note in map(str, target.info.notes))


def test_the_step_is_counted_with_its_loss() -> None:
    target = load_step("x, y = batch", "return F.cross_entropy(self(x), y)", device="meta", batch=8)
    static = count_target(target)
    assert static.forward.macs == 8 * 6 * 4
    assert target.info.loss == "output"
    assert [module.path for module in static.modules][:2] == ["", "layer"]
    assert static.modules[0].class_name == "Net"


def test_the_trainer_and_the_logger_record_nothing() -> None:
    target = load_step(
        "x, y = batch",
        "self.logger.experiment.add_scalar('a', 1.0, self.global_step)",
        "self.log_dict({'a': 1.0})",
        "if self.trainer.is_global_zero and self.current_epoch % 10 == 9 and self.trainer.max_epochs > 3:",
        "    raise RuntimeError('not in the first step')",
        "return F.cross_entropy(self(x), y)",
    )
    assert value_of(target) > 0


def test_a_model_can_define_only_its_training_step() -> None:
    Path("net.py").write_text(
        HEAD
        + """
class Auto(LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(784, 3)
        self.decoder = nn.Linear(3, 784)
    def training_step(self, batch, batch_idx):
        x, y = batch
        x = x.view(x.size(0), -1)
        return F.mse_loss(self.decoder(self.encoder(x)), x)
"""
    )
    target = load(TargetSpec(spec="net.py"), device="cpu")
    assert target.batch.args[0][0].shape == (1, 784)
    assert count_target(load(TargetSpec(spec="net.py"))).forward.macs == 2 * 784 * 3


def test_the_data_set_of_the_script_gives_the_batch() -> None:
    more = """
if __name__ == "__main__":
    data = torch.utils.data.DataLoader(datasets.MNIST("."), batch_size=16)
    pl.Trainer().fit(Net(784, 10), data)
"""
    target = load_step("x, y = batch", "return F.cross_entropy(self(x.flatten(1)), y)", more=more)
    assert shapes(target.batch.args[0]) == ((16, 1, 28, 28, True), (16, False))
    assert target.info.inputs_from == "data_set"


def test_a_loader_of_the_file_gives_the_batch() -> None:
    more = """
def train_loader():
    return [(torch.ones(3, 6), torch.zeros(3, dtype=torch.long))] * 2
"""
    target = load_step("x, y = batch", "return F.cross_entropy(self(x), y)", more=more)
    assert shapes(target.batch.args[0]) == ((3, 6, True), (3, False))
    assert value_of(target) > 0
    assert target.loader is not None


def test_a_step_that_does_not_run_leaves_forward() -> None:
    target = load_step("optimizer = self.optimizers()", "raise RuntimeError('manual')")
    assert [tuple(tensor.shape) for tensor in target.batch.tensors()] == [(1, 6)]


def test_forward_is_counted_without_the_step_in_infer_mode() -> None:
    target = load_step("x, y = batch", "return F.cross_entropy(self(x), y)", mode="infer")
    assert [tuple(tensor.shape) for tensor in target.batch.tensors()] == [(1, 6)]
