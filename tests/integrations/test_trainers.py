"""The callbacks, in the trainers that they are written for. Each test is skipped without its package."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, TensorDataset

COUNTS: dict[str, Any] = {"warmup": 3, "steps": 4, "traced": 2, "quiet": True}


@pytest.mark.parametrize("accumulated", [1, 2])
def test_lightning(tmp_path: Path, accumulated: int) -> None:
    lightning = pytest.importorskip("lightning")
    from profiler_kit.integrations.lightning import ProfilerKit

    class Module(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 4))

        def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
            x, y = batch
            return functional.cross_entropy(self.net(x), y)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    callback = ProfilerKit(tmp_path / "out", **COUNTS)
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", callbacks=[callback], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, accumulate_grad_batches=accumulated,
        default_root_dir=tmp_path,
    )  # fmt: skip
    data = TensorDataset(torch.randn(100, 3, 2, 2), torch.zeros(100, dtype=torch.int64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(Module(), DataLoader(data, batch_size=4))
    assert callback.session is not None
    report = callback.session.report
    assert report is not None
    assert report.target.optimizer == "AdamW"
    assert report.static is not None
    assert report.static.forward.macs == 4 * (12 * 8 + 8 * 4)
    run = report.runs[0]
    assert [p.phase for p in run.phases] == ["data", "forward", "loss", "backward", "optimizer", "other"]
    assert run.samples == 4 * accumulated
    assert {layer.path for layer in run.modules} >= {"1", "3", "(optimizer)"}


class Tokens(Dataset[dict[str, Any]]):
    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"input_ids": torch.zeros(16, dtype=torch.int64), "labels": index % 3}


def test_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from profiler_kit.integrations.transformers import ProfilerKit

    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, num_labels=3
    )
    callback = ProfilerKit(tmp_path / "out", **COUNTS)
    arguments = transformers.TrainingArguments(
        str(tmp_path / "trainer"), per_device_train_batch_size=4, max_steps=14, report_to=[], use_cpu=True,
        save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    model = transformers.BertForSequenceClassification(config)
    transformers.Trainer(model=model, args=arguments, train_dataset=Tokens(), callbacks=[callback]).train()
    assert callback.session is not None
    report = callback.session.report
    assert report is not None
    assert report.static is not None
    assert report.static.memory is not None
    assert report.target.optimizer == "AdamW"
    assert "bert.encoder.layer.0.attention.self" in {layer.path for layer in report.runs[0].modules}


def test_accelerate(tmp_path: Path) -> None:
    accelerate = pytest.importorskip("accelerate")
    import profiler_kit

    accelerator = accelerate.Accelerator(cpu=True)
    model = nn.Sequential(nn.Linear(12, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = DataLoader(TensorDataset(torch.randn(60, 12)), batch_size=4)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    with profiler_kit.session(model, tmp_path, **COUNTS) as s:
        for (x,) in data:
            loss = model(x).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            s.step()
    assert s.report is not None
    assert {"data", "forward", "backward", "optimizer"} <= {p.phase for p in s.report.runs[0].phases}
