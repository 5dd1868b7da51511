"""Records the small traces that the tests of attribution read, with the package's own marks.

    python scripts/record_traces.py                  # on the CPU, into tests/fixtures/traces
    python scripts/record_traces.py --device cuda    # the same networks on a CUDA device

Names of the machine and of its files are taken out; the rest is as torch.profiler wrote it.
"""

from __future__ import annotations

import argparse
import gzip
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the checkout, where the package is not installed

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from profiler_kit.measure.steps import Runner
from profiler_kit.measure.tracing import traced_steps
from profiler_kit.records.target import Mode
from profiler_kit.target import from_model

STEPS: Final = 2
FOLDER: Final = Path(__file__).resolve().parents[1] / "tests" / "fixtures" / "traces"


class Widths(nn.Module):
    """A network whose layers all have widths of their own, so that a kernel's owner can be told from its shapes.

    `redo`: how the block's activations are had again in backward: kept, or computed anew by either kind of checkpoint.
    """

    def __init__(self, redo: bool | None = None) -> None:
        super().__init__()
        self.redo_reentrant = redo
        self.stem = nn.Conv2d(3, 5, 3, padding=1)
        self.block = nn.Sequential(nn.Conv2d(5, 7, 3, padding=1), nn.BatchNorm2d(7), nn.ReLU())
        self.head = nn.Linear(7, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of images `x`."""
        x = F.relu(self.stem(x))
        x = (
            self.block(x)
            if self.redo_reentrant is None
            else checkpoint(self.block, x, use_reentrant=self.redo_reentrant)
        )
        logits: Tensor = self.head(F.max_pool2d(x, 2).mean((2, 3)))
        return logits


CASES: Final[dict[str, tuple[Callable[[], nn.Module], Mode]]] = {
    "train": (Widths, "train"),
    "checkpoint": (lambda: Widths(redo=False), "train"),
    "checkpoint_reentrant": (lambda: Widths(redo=True), "train"),
    "infer": (Widths, "infer"),
}


def record(name: str, device: str, folder: Path) -> Path:
    """Traces the case called `name` on `device`; returns the file written."""
    build, mode = CASES[name]
    torch.manual_seed(0)
    images = torch.randn(2, 3, 8, 8)
    target = from_model(
        build(),
        (images,),
        labels=(torch.tensor([1, 2]),),
        loss_fn=F.cross_entropy,
        optimizer="sgd",
        mode=mode,
        device=device,
    )
    runner = Runner(target)
    runner.step()  # what a process does once is in no step
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch) / "trace.json"
        traced_steps(runner, STEPS, raw)
        text = raw.read_text()
    path = folder / f"{name}.{device}.json.gz"
    path.write_bytes(gzip.compress(anonymous(text).encode(), mtime=0))
    return path


def anonymous(text: str) -> str:
    """The trace without the names of the machine and of the file it was first written to."""
    return re.sub(r'("(?:host_name|traceName)"\s*:\s*)"[^"]*"', r'\1""', text)


def main() -> None:
    """Records all cases."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    line.add_argument("--out", type=Path, default=FOLDER, metavar="DIR")
    line.add_argument("--case", action="append", choices=tuple(CASES), help="only this one (repeatable)")
    asked = line.parse_args()
    torch.set_num_threads(1)
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.case or CASES:
        path = record(name, asked.device, asked.out)
        print(f"{path}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
