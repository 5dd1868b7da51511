"""One rank of several: the peak of memory and the collectives, against PyTorch's own jobs and exact sums."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch_versions import needs_sharding_on_cpu  # noqa: E402
from waiting import free_port  # noqa: E402

from profiler_kit.cli import main  # noqa: E402
from profiler_kit.errors import UsageError  # noqa: E402
from profiler_kit.loading.sharding import sharding_units  # noqa: E402
from profiler_kit.memory.parallel import bucket_sizes  # noqa: E402
from profiler_kit.pipeline.count import count_spec  # noqa: E402
from profiler_kit.records.counts import ParallelEstimate  # noqa: E402
from profiler_kit.records.parallel import ParallelPlan  # noqa: E402
from profiler_kit.records.report import Report  # noqa: E402
from profiler_kit.records.serde import read_saved  # noqa: E402
from profiler_kit.records.target import TargetSpec  # noqa: E402

pytestmark = pytest.mark.jobs

ROOT = Path(__file__).resolve().parents[2]
WIDTH, BLOCKS, RANKS = 256, 6, 4
NET = f"""
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear({WIDTH}, {4 * WIDTH}, bias=False), nn.Linear({4 * WIDTH}, {WIDTH}, bias=False)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range({BLOCKS})])
        self.head = nn.Linear({WIDTH}, 8, bias=False)
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)

example_inputs = torch.randn(4, {WIDTH})
"""
BLOCK_BYTES = 4 * 2 * WIDTH * 4 * WIDTH
HEAD_BYTES = 4 * WIDTH * 8
ALL_BYTES = BLOCKS * BLOCK_BYTES + HEAD_BYTES
# Run by two real ranks: the collectives of the second step, by PyTorch's profiler.
REAL_JOB = """
import collections, json, os, sys
import torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.profiler import profile
sys.path.insert(0, ".")
from net import Net
dist.init_process_group("gloo")
model = Net()
if sys.argv[1] == "ddp":
    model = nn.parallel.DistributedDataParallel(model)
else:
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    with profile(record_shapes=True) as recorded:
        model(torch.randn(4, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
calls = collections.Counter(event.name for event in recorded.events() if event.name.startswith("c10d::"))
if dist.get_rank() == 0:
    print(json.dumps(calls), flush=True)
dist.barrier()
os._exit(0)  # gloo's threads sometimes abort the interpreter's regular exit
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    return tmp_path / "net.py"


def estimates(net: Path, *plans: ParallelPlan, optimizer: str = "sgd") -> tuple[ParallelEstimate, ...]:
    report = count_spec(TargetSpec(spec=str(net), optimizer=optimizer), parallel=plans)
    assert report.static is not None
    assert report.static.memory is not None
    return report.static.memory.parallel


FSDP2, DDP = ParallelPlan(strategy="fsdp2", ranks=RANKS), ParallelPlan(strategy="ddp", ranks=RANKS)


def test_collectives_are_those_of_the_parameters(net: Path) -> None:
    sharded, replicated = estimates(net, FSDP2, DDP)
    assert sharded.units == tuple(f"blocks.{i}" for i in range(BLOCKS))
    messages = {c.collective: (c.calls, c.message_bytes, c.sent_bytes) for c in sharded.communication}
    # forward gathers every unit and the root; backward gathers the units again, the root is still there
    gathered = ALL_BYTES + BLOCKS * BLOCK_BYTES
    assert messages["all-gather"][:2] == (2 * BLOCKS + 1, gathered)
    assert messages["all-gather"][2] == pytest.approx(gathered * (RANKS - 1) / RANKS, abs=20)
    assert messages["reduce-scatter"][:2] == (BLOCKS + 1, ALL_BYTES)
    (reduced,) = replicated.communication
    assert (reduced.collective, reduced.message_bytes) == ("all-reduce", ALL_BYTES)
    assert reduced.sent_bytes == 2 * ALL_BYTES * (RANKS - 1) // RANKS


def test_memory_is_that_of_the_shards(net: Path) -> None:
    sharded, replicated = estimates(net, FSDP2, DDP, optimizer="adamw")
    report = count_spec(TargetSpec(spec=str(net), optimizer="adamw"))
    assert report.static is not None
    assert report.static.memory is not None
    assert sharded.single_peak_bytes == replicated.single_peak_bytes == report.static.memory.peak_bytes
    assert report.static.memory.device is not None
    on_device = report.static.memory.device.allocated_bytes - report.static.memory.peak_bytes
    assert (sharded.device_peak_bytes or 0) - sharded.peak_bytes == on_device
    state = sharded.categories.optimizer_state or 0
    assert state == pytest.approx(2 * ALL_BYTES / RANKS, rel=0.01)
    assert (sharded.categories.parameters or 0) >= ALL_BYTES / RANKS
    assert sharded.peak_bytes < sharded.single_peak_bytes
    assert replicated.peak_bytes == replicated.single_peak_bytes + ALL_BYTES
    for estimate in (sharded, replicated):
        parts = estimate.categories
        assert estimate.peak_bytes == sum(
            value or 0
            for value in (
                parts.parameters,
                parts.gradients,
                parts.optimizer_state,
                parts.inputs,
                parts.saved_activations,
                parts.temporaries,
            )
        )


def test_the_output_is_held_over_the_step_as_in_a_script(net: Path) -> None:
    net.write_text(NET.replace(f"nn.Linear({WIDTH}, 8", f"nn.Linear({WIDTH}, 4096").replace("randn(4,", "randn(4096,"))
    report = count_spec(TargetSpec(spec=str(net), optimizer="sgd"))
    assert report.static is not None
    assert report.static.memory is not None
    (estimate,) = estimates(net, DDP)
    assert estimate.single_peak_bytes == pytest.approx(report.static.memory.peak_bytes, rel=0.01)


def run_ranks(script: Path, argument: str) -> str:
    """Run `script` on two ranks, and return the last line that rank 0 prints."""
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), argument],
            cwd=script.parent,
            stdout=subprocess.PIPE,
            text=True,
            env={
                **os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(2)
    ]  # fmt: skip
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return outputs[0].splitlines()[-1]


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
@pytest.mark.parametrize(("strategy", "names"), [
    ("ddp", {"c10d::allreduce_": "all-reduce"}),
    pytest.param(
        "fsdp2", {"c10d::_allgather_base_": "all-gather", "c10d::_reduce_scatter_base_": "reduce-scatter"},
        marks=needs_sharding_on_cpu),
])  # fmt: skip
def test_a_real_job_makes_as_many_calls(strategy: str, names: dict[str, str], net: Path) -> None:
    script = net.with_name("job.py")
    script.write_text(REAL_JOB)
    calls = Counter(eval(run_ranks(script, strategy)))
    plan = ParallelPlan(strategy="ddp" if strategy == "ddp" else "fsdp2", ranks=2)
    (estimate,) = estimates(net, plan)
    predicted = {communication.collective: communication.calls for communication in estimate.communication}
    assert {collective: calls[name] for name, collective in names.items()} == predicted


@pytest.mark.parametrize("plan", [DDP, FSDP2], ids=lambda p: p.strategy)
def test_frozen_parameters_have_no_gradients(plan: ParallelPlan, net: Path) -> None:
    net.write_text(NET.replace("        self.head =", "        self.blocks.requires_grad_(False)\n        self.head ="))
    (estimate,) = estimates(net, plan, optimizer="adamw")
    assert (estimate.categories.optimizer_state or 0) < BLOCK_BYTES
    assert (estimate.categories.gradients or 0) < BLOCK_BYTES


def test_units_are_blocks_and_not_nested() -> None:
    def block() -> nn.Module:
        return nn.TransformerEncoderLayer(8, 2, 16)

    stages = nn.Sequential(*[nn.Sequential(block(), block()) for _ in range(2)])
    assert sharding_units(stages) == ("0.0", "0.1", "1.0", "1.1")
    assert sharding_units(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))) == ()
    assert sharding_units(nn.TransformerEncoder(block(), 3)) == ("layers.0", "layers.1", "layers.2")


def test_buckets_fill_up() -> None:
    mib = 1024 * 1024
    assert bucket_sizes([]) == ()
    assert bucket_sizes([mib // 2, mib // 2, 10 * mib, 20 * mib, 3]) == (mib, 30 * mib, 3)


def test_the_command_shows_and_saves_it(net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.json"
    assert main(["count", str(net), "--parallel", "fsdp2=4", "--parallel", "ddp=4", "-q", "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Several ranks" in printed
    assert "fully_shard of blocks.0 to blocks.5 and the root." in printed
    report = read_saved(out)
    assert isinstance(report, Report)
    assert report.static is not None
    assert report.static.memory is not None
    assert [estimate.plan for estimate in report.static.memory.parallel] == [FSDP2, DDP]
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("text", ["fsdp2", "fsdp2=1", "pp=2", "ddp=x", "ddp=-4", "tp=2"])
def test_a_wrong_plan_is_one_message(text: str, net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", str(net), "--parallel", text]) == 2
    assert "ddp=N or fsdp2=N" in capsys.readouterr().err


def test_a_model_that_reads_values_is_one_message(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net.write_text(
        NET.replace(
            "        return self.head(x)",
            "        if x.sum().item() > 0:\n            x = x + 1\n        return self.head(x)",
        )
    )
    assert main(["count", str(net), "--parallel", "fsdp2=4", "-q"]) == 3
    printed = capsys.readouterr().err
    assert "its forward reads one" in printed
    assert "net.py:20" in printed
    assert "leave out --parallel" in printed


def test_inference_is_refused(net: Path) -> None:
    with pytest.raises(UsageError, match="training step"):
        count_spec(TargetSpec(spec=str(net), mode="infer"), parallel=[DDP])
