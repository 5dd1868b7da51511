"""GPU tests of `tune`: the pasted lines train on CUDA, and a launch-bound network becomes faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from profiler_kit.cli import main  # noqa: E402
from profiler_kit.configurations.naming import parse_config  # noqa: E402
from profiler_kit.configurations.script_lines import code_blocks  # noqa: E402
from profiler_kit.measurement import plan as configs  # noqa: E402
from profiler_kit.records.serde import read_saved  # noqa: E402
from profiler_kit.records.target import InputInfo, TargetInfo  # noqa: E402
from profiler_kit.records.tuning import Tuning  # noqa: E402

INFO = TargetInfo(
    spec="net.py",
    name="Net",
    inputs=(InputInfo(name="x", shape=(8, 3, 32, 32), dtype="float32"),),
    mode="train",
    loss="cross_entropy",
    optimizer="SGD",
)
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        width, layers = 3, []
        for _ in range(12):
            layers += [nn.Conv2d(width, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
            width = 16
        self.body, self.head = nn.Sequential(*layers), nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))

def example_inputs():
    return torch.randn(8, 3, 32, 32)
"""


def trained(changes: tuple[str, ...], steps: int = 30) -> list[float]:
    """The losses of a script with the lines of `changes` pasted at their places."""
    config = parse_config("+".join(changes), configs.make_plan("cudnn").configs[0])
    blocks = {block.place: block.code for block in code_blocks(changes, config, INFO, device="cuda", rows=8)}
    names: dict[str, Any] = {"torch": torch, "loss_fn": torch.nn.functional.cross_entropy}
    torch.manual_seed(0)
    exec(NET, names)
    exec(blocks.get("start", ""), names)
    names["model"] = names["Net"]().cuda()
    names["inputs"], names["labels"] = torch.randn(8, 3, 32, 32).cuda(), torch.arange(8).cuda()
    exec(blocks.get("model", ""), names)
    names["optimizer"] = torch.optim.SGD(names["model"].parameters(), lr=0.05)
    exec(blocks.get("optimizer", "").replace("=True)  # and", "=True, lr=0.05)  # and"), names)
    plain = "loss = loss_fn(model(inputs), labels)\nloss.backward()\noptimizer.step()\noptimizer.zero_grad(set_to_none=True)"
    losses = []
    for _ in range(steps):
        exec(blocks.get("loop", plain), names)
        losses.append(float(names["loss"]))
    return losses


@pytest.mark.parametrize(
    "changes",
    [
        ("benchmark", "matmul_tf32", "benchmark_limit=0"),
        ("amp_bf16", "channels_last"),
        ("amp_fp16", "channels_last"),
        ("cuda_graph",),
        ("cuda_graph", "amp_bf16", "channels_last", "fused_optimizer"),
        ("cuda_graph=step",),
        ("cuda_graph=step", "amp_bf16", "channels_last", "fused_optimizer", "no_item"),
        ("compile", "amp_bf16"),
        ("fused_optimizer", "no_item"),
        ("checkpoint=body",),
    ],
)
def test_the_lines_train_on_cuda(changes: tuple[str, ...]) -> None:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    flags = cudnn.benchmark, cudnn.benchmark_limit, matmul.allow_tf32
    try:
        losses = trained(changes)
    finally:
        cudnn.benchmark, cudnn.benchmark_limit, matmul.allow_tf32 = flags
    assert losses[-1] < 0.8 * losses[0]


def test_a_launch_bound_network_becomes_faster(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(NET)
    words = ["--changes", "cuda_graph,fused_optimizer", "--budget", "3m", "-q", "-o", str(tmp_path / "tuned.json")]
    assert main(["tune", str(file), *words]) == 0
    tuning = read_saved(tmp_path / "tuned.json")
    assert isinstance(tuning, Tuning)
    assert tuning.outcome == "better"
    assert "cuda_graph" in tuning.changes
    assert tuning.gain is not None
    assert tuning.gain.ratio < 0.8
    assert tuning.baseline.peak_bytes is not None


def test_memory_is_saved_by_recomputation(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text(NET.replace("8, 3, 32, 32", "64, 3, 128, 128"))
    words = ["--goal", "memory", "--max-slowdown", "60%", "--budget", "3m", "-q", "-o", str(tmp_path / "tuned.json")]
    assert main(["tune", str(file), "--changes", "checkpoint=body,amp_bf16", *words]) == 0
    tuning = read_saved(tmp_path / "tuned.json")
    assert isinstance(tuning, Tuning)
    assert tuning.gain is not None
    assert tuning.gain.ratio < 0.8
