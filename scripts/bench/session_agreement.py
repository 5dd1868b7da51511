"""Whether a session in a loop sees what `analyze` measures: ``python -m scripts.bench.session_agreement``.

The same network, inputs and optimizer in `analyze` (default configuration), in a plain loop, in Lightning and in the Trainer
of transformers. Prints each phase's time and its ratio to `analyze`. Trainers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import warnings
from typing import Any

import torch
from torch import nn
from torch.nn import functional

import profiler_kit
from profiler_kit.integrations.session import LoopSession
from profiler_kit.records.report import Report

PHASES = ("forward", "loss", "backward", "optimizer")
COUNTS: dict[str, Any] = {"warmup": 15, "steps": 30, "traced": 3, "quiet": True}
STEPS = 55


class Net(nn.Module):
    """A residual network, large enough that its step is not noise."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()) for _ in range(6)
        )
        self.head = nn.Linear(width, 10)

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor | None = None) -> Any:
        """Logits; with labels, a dict that holds the loss too, as models of transformers return."""
        x = self.stem(pixels)
        for block in self.blocks:
            x = x + block(x)
        logits = self.head(x.mean((2, 3)))
        return logits if labels is None else {"loss": functional.cross_entropy(logits, labels), "logits": logits}


def plain(model: nn.Module, x: torch.Tensor, y: torch.Tensor, out: str) -> LoopSession:
    """A session in a loop that does what `analyze` does in a step."""
    optimizer = torch.optim.AdamW(model.parameters())
    with profiler_kit.session(model, out, loss_fn=functional.cross_entropy, labels=y, **COUNTS) as session:
        for _ in range(STEPS):
            loss = functional.cross_entropy(model(x), y)
            with session.phase("loss"):
                loss.item()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            session.step()
    return session


def in_lightning(model: nn.Module, x: torch.Tensor, y: torch.Tensor, out: str) -> LoopSession | None:
    """The same in a Lightning trainer."""
    lightning: Any = importlib.import_module("lightning")
    callback = importlib.import_module("profiler_kit.integrations.lightning").ProfilerKit(out, **COUNTS)

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            loss = functional.cross_entropy(self.net(x), y)
            loss.item()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters())

    trainer = lightning.Trainer(
        max_steps=STEPS, accelerator="auto", devices=1, callbacks=[callback], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=out,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(STEPS))))
    session: LoopSession | None = callback.session
    return session


def in_transformers(model: nn.Module, x: torch.Tensor, y: torch.Tensor, out: str) -> LoopSession | None:
    """The same in the Trainer of transformers, which computes the loss in the model."""
    transformers: Any = importlib.import_module("transformers")
    callback = importlib.import_module("profiler_kit.integrations.transformers").ProfilerKit(out, **COUNTS)
    arguments = transformers.TrainingArguments(
        out, max_steps=STEPS, per_device_train_batch_size=1, report_to=[], save_strategy="no", disable_tqdm=True,
        use_cpu=not x.is_cuda, remove_unused_columns=False, max_grad_norm=0.0, logging_strategy="no",
        dataloader_pin_memory=False,
    )  # fmt: skip

    def collate(_: Any) -> dict[str, torch.Tensor]:
        return {"pixels": x, "labels": y}

    optimizer = torch.optim.AdamW(model.parameters())
    transformers.Trainer(
        model=model, args=arguments, train_dataset=list(range(STEPS)), callbacks=[callback], data_collator=collate,
        optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)),
    ).train()  # fmt: skip
    session: LoopSession | None = callback.session
    return session


def show(name: str, report: Report, reference: Report) -> None:
    """Print the step and the phases of `report` beside those of `reference`."""
    run, base = report.runs[0], reference.runs[0]
    assert run.step_ns is not None
    assert base.step_ns is not None
    rows = [("step", run.step_ns.median, base.step_ns.median)]
    for phase in PHASES:
        times = [next((p for p in r.phases if p.phase == phase), None) for r in (run, base)]
        a, b = ((p.event_ns or p.stopwatch_ns) if p is not None else None for p in times)
        if a and b:
            rows.append((phase, a, b))
    text = "  ".join(f"{label} {a / 1e6:.3f} ms ({a / b:.3f})" for label, a, b in rows)
    counts = [_counts(r) for r in (report, reference)]
    same = counts[0] == counts[1] and bool(counts[0])
    print(f"{name:13} {text}  counts {'equal' if same else 'differ'}")


def _counts(report: Report) -> list[tuple[str, int, int]]:
    """FLOPs of each module, without the loss, which trainers do not pass to the session."""
    modules = report.static.modules if report.static is not None else ()
    return [(m.path, m.forward.flops, m.backward.flops) for m in modules if m.path != "(loss)"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeat", type=int, default=2)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    cuda = options.device == "cuda"
    width, batch, size = (128, 64, 64) if cuda else (16, 4, 24)
    loops = [("plain loop", plain, None), ("Lightning", in_lightning, "lightning"),
             ("transformers", in_transformers, "transformers")]  # fmt: skip
    for _ in range(options.repeat):
        x = torch.randn(batch, 3, size, size, device=options.device)
        y = torch.zeros(batch, dtype=torch.int64, device=options.device)
        model = Net(width).to(options.device)
        reference = profiler_kit.analyze(
            model, x, labels=y, loss_fn=functional.cross_entropy, optimizer=torch.optim.AdamW(model.parameters()),
            device=options.device, configs=["default"], budget_s=20,
        )  # fmt: skip
        show("analyze", reference, reference)
        for name, loop, package in loops:
            if package is not None and importlib.util.find_spec(package) is None:
                continue
            with tempfile.TemporaryDirectory() as out:
                session = loop(Net(width).to(options.device), x, y, out)
            if session is not None and session.report is not None:
                show(name, session.report, reference)


if __name__ == "__main__":
    main()
