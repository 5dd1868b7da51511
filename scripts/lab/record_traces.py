"""Record the small traces of the tests. All of them take less than 2 minutes and 4 MB, on a CPU or a GPU::

    python -m scripts.lab.record_traces                                # both sets on the CPU, into tests/fixtures/traces
    python -m scripts.lab.record_traces --device cuda                  # the same networks on a CUDA device
    python -m scripts.lab.record_traces --set strangers --case eager   # one case of one set (repeatable)

There are two sets. `marked`: steps with the package's own marks, as `analyze` traces them. `strangers`: an ordinary training loop
under torch.profiler (with stacks and shapes), each with a file of the ground truth: the sizes of each module.

Names of the machine, its user and its files are removed, and `reduce_trace` shrinks the second set. Everything else is
unchanged output of torch.profiler.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from profiler_kit.loading import from_model
from profiler_kit.records.target import Mode
from profiler_kit.worker.steps import Runner
from profiler_kit.worker.tracing import traced_steps
from scripts.lab import width_networks

STEPS: Final = 2
FOLDER: Final = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "traces"
SETS: Final = ("marked", "strangers")


class Widths(nn.Module):
    """A network whose layers have distinct widths, so that shapes identify the module of a kernel.

    `redo`: None saves the block's activations; otherwise the block is checkpointed, with this value of `use_reentrant`.
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


def record_marked(name: str, device: str, folder: Path) -> list[Path]:
    """Trace the case called `name` on `device` with the package's marks. Returns the written files."""
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
    runner.step()  # keeps one-time work out of the traced steps
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch) / "trace.json"
        traced_steps(runner, STEPS, raw)
        text = raw.read_text()
    path = folder / f"{name}.{device}.json.gz"
    return [write_trace(path, text)]


def record_plain_loop(name: str, device: str, folder: Path) -> list[Path]:
    """Trace a plain training loop of the case called `name` on `device`. Returns the trace and its ground truth."""
    torch.manual_seed(0)
    network = width_networks.CASES[name]().to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    loader = torch.utils.data.DataLoader(width_networks.Examples(), batch_size=width_networks.BATCH)
    called: Any = torch.compile(network) if name == "compiled" else network

    def step(batch: list[Tensor]) -> float:
        images, words, labels = (each.to(device) for each in batch)
        optimizer.zero_grad()
        loss = criterion(called(images, words), labels)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    with width_networks.watch_modules(network, criterion) as watch:
        images, words, labels = (each.to(device) for each in next(iter(loader)))
        criterion(network(images, words), labels).backward()
    for _, batch in zip(range(3), loader, strict=False):
        step(batch)  # compiles, searches algorithms, allocates: keeps one-time work out of the traced steps
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=STEPS, repeat=1)
    with torch.profiler.profile(
        activities=activities, schedule=schedule, with_stack=True, record_shapes=True, acc_events=True
    ) as profiler:
        for index, batch in enumerate(loader):
            step(batch)
            if index == STEPS:
                break
            profiler.step()
        if device == "cuda":
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as scratch:
        raw = Path(scratch) / "trace.json"
        profiler.export_chrome_trace(str(raw))
        text = raw.read_text()
    modules = watch.truth()
    for owner, shapes in width_networks.OWN_WORK.items():
        modules[owner]["activations"] = shapes
    truth = {
        "kind": "trace_truth",
        "schema": 1,
        "torch": torch.__version__,
        "device": device,
        "steps": STEPS,
        "modules": modules,
    }
    beside = folder / f"{name}.{device}.truth.json"
    beside.write_text(json.dumps(truth, separators=(",", ":")) + "\n")
    return [write_trace(folder / f"{name}.{device}.json.gz", reduce_trace(text)), beside]


def write_trace(path: Path, text: str) -> Path:
    """Write the trace to `path` and return `path`. The same trace gives the same bytes."""
    path.write_bytes(gzip.compress(anonymous(text).encode(), mtime=0))
    return path


FOLDERS: Final = r"(?:site|dist)-packages|lib/python[\d.]+|torchinductor_\w+|tests|scripts(?:/\w+)*"
# Python calls inside torch's internals, of which every loop has thousands, and builtin functions.
WITHIN_TORCH: Final = (
    r"weakref|typing|abc|contextlib|torch/(?:_jit_internal|_tensor|_ops|_utils|_dynamo|compiler|overrides|utils/checkpoint"
    r"|utils/_contextlib|autograd/grad_mode|autograd/function|autograd/graph|nn/modules/module|nn/functional)"
)
CALL: Final = (  # one complete event
    rf'  \{{\n\s*"ph": "X",\s*"cat": "python_function",\s*"name": "(?:<built-in|{WITHIN_TORCH})[^{{}}]*\{{[^{{}}]*\}}\s*\}},\n'
)


def anonymous(text: str) -> str:
    """Remove the names of the machine and of the files' folders from the trace."""
    text = re.sub(r'("(?:host_name|traceName|trace_id)"\s*:\s*)"[^"]*"', r'\1""', text)
    # a function's file, starting from its package: no personal folders
    text = re.sub(rf'"(?:[^"\s(]*/)?(?:{FOLDERS})/([^"]*\(\d+\): )', r'"\1', text)
    return re.sub(r'"/(?:[^"\s]*/)?([^"/\s]+)"', r'"\1"', text)  # other files: only their names


def reduce_trace(text: str) -> str:
    """Remove large events that do not help attribution: calls of torch's internals, and strides."""
    return re.sub(r'"Input Strides": .*?, (?="Input Dims")', "", re.sub(CALL, "", text))


def main() -> None:
    """Record the selected traces."""
    line = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    line.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    line.add_argument(
        "--out",
        type=Path,
        default=FOLDER,
        metavar="DIR",
        help="output folder; the set `strangers` is written into its subfolder",
    )
    line.add_argument("--set", action="append", choices=SETS, help="only this set (repeatable)")
    line.add_argument("--case", action="append", metavar="NAME", help="only this case (repeatable)")
    options = line.parse_args()
    torch.set_num_threads(1)
    for each in options.set or SETS:
        folder = options.out if each == "marked" else options.out / each
        folder.mkdir(parents=True, exist_ok=True)
        names, record = (CASES, record_marked) if each == "marked" else (width_networks.CASES, record_plain_loop)
        for name in names:
            if options.case is None or name in options.case:
                for path in record(name, options.device, folder):
                    print(f"{path}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
