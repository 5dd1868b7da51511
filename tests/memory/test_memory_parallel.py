"""One rank of several: the peak of memory and the collectives, against PyTorch's own jobs and exact sums."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch_versions import needs_sharding_on_cpu  # noqa: E402

from profiler_kit.cli import main  # noqa: E402
from profiler_kit.errors import TargetError, UsageError  # noqa: E402
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

LLAMA = """
import torch
import torch.nn.functional as F
from torch import nn

class Attention(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.size = heads, groups, width // heads
        self.wq, self.wo = nn.Linear(width, width), nn.Linear(width, width)
        self.wk, self.wv = nn.Linear(width, groups * self.size), nn.Linear(width, groups * self.size)
        {norms}
    def forward(self, x):
        batch, length, _ = x.shape
        q = {query_norm}(self.wq(x).view(batch, length, self.n_heads, self.size)).transpose(1, 2)
        k = {key_norm}(self.wk(x).view(batch, length, self.n_kv_heads, self.size)).transpose(1, 2)
        v = self.wv(x).view(batch, length, self.n_kv_heads, self.size).transpose(1, 2)
        k, v = (t.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(mixed.transpose(1, 2).reshape(batch, length, -1))

class Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = nn.Linear(base.in_features, 4, bias=False), nn.Linear(4, base.out_features, bias=False)
    def forward(self, x):
        return self.base(x) + self.up(self.down(x))

class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w1, self.w3 = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.w2 = nn.Linear(3 * width, width)
    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))

class Block(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.attention, self.feed_forward = Attention(width, heads, groups), FeedForward(width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))

class Llama(nn.Module):
    def __init__(self, width=64, heads=8, groups=4, blocks=3):
        super().__init__()
        self.embedding, self.norm, self.output = nn.Embedding(100, width), nn.LayerNorm(width), nn.Linear(width, 100)
        self.layers = nn.ModuleList([Block(width, heads, groups) for _ in range(blocks)])
    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))

get_model = Llama
example_inputs = torch.randint(0, 100, (2, 16))
def loss_fn(output, tokens):
    return F.cross_entropy(output.flatten(0, 1), tokens.flatten())
"""
# Run by two real ranks, for each model: the losses of three steps without and with the predicted plan, the parameters of a rank,
# and the collectives of the last step.
REAL_TENSOR_JOB = """
import contextlib, copy, importlib, json, os, sys
import torch, torch.distributed as dist
from fnmatch import fnmatchcase
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import *
from torch.profiler import profile
sys.path.insert(0, ".")
dist.init_process_group("gloo")
ranks = dist.get_world_size()
mesh = init_device_mesh("cpu", (ranks,))
NOT_SENT = ("_c10d_functional::wait_tensor", "_c10d_functional::_wrap_tensor_autograd")

def matches(path, pattern):
    names, parts = path.split("."), pattern.split(".")
    return len(names) == len(parts) and all(map(fnmatchcase, names, parts))

def losses(net, model, inputs):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    found = []
    for step in range(3):
        with profile(record_shapes=True) if step == 2 else contextlib.nullcontext() as recorded:
            loss = net.loss_fn(model(inputs), inputs)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        found.append(loss.item())
    calls = [e for e in recorded.events() if e.name.startswith("_c10d_functional::") and e.name not in NOT_SENT]
    return found, [(call.name, 4 * torch.Size(call.input_shapes[0]).numel()) for call in calls]

def shard(model, plan):
    modules = dict(model.named_modules())
    for pattern in plan["reordered"]:  # each rank gets its part of query, key and value
        for layer in [layer for path, layer in modules.items() if matches(path, pattern)]:
            for parameter in layer.parameters():
                rows = parameter.data.unflatten(0, (3, ranks, -1)).transpose(0, 1)
                parameter.data = rows.reshape(parameter.shape).contiguous()
    for pattern, value in plan["divided"]:
        pattern, _, name = pattern.rpartition(".")
        for module in [module for path, module in modules.items() if matches(path, pattern)]:
            assert getattr(module, name) == value
            setattr(module, name, value // ranks)
    styles = {pattern: eval(f"{style}({arguments})") for pattern, style, arguments in plan["sharded"]}
    parallelize_module(model, mesh, styles)
    for assignment in plan["tied"]:
        path, other = (side.removesuffix(".weight") for side in assignment.split(" = "))
        model.get_submodule(path).weight = model.get_submodule(other).weight

results = {}
for name, plan in json.load(open(sys.argv[1])).items():
    torch.manual_seed(0)  # the module creates the inputs
    net = importlib.import_module(name)
    inputs = net.example_inputs() if callable(net.example_inputs) else net.example_inputs
    model = net.get_model()
    alone, _ = losses(net, copy.deepcopy(model), inputs)
    shard(model, plan)
    sharded, calls = losses(net, model, inputs)
    parameters = sum((p.to_local() if isinstance(p, DTensor) else p).nbytes for p in model.parameters())
    results[name] = [alone, sharded, calls, parameters]
if dist.get_rank() == 0:
    print(json.dumps(results), flush=True)
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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
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


FUSED = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm, self.to_qkv = heads, nn.LayerNorm(width), nn.Linear(width, 3 * width, bias=False)
        self.to_out = nn.Sequential(nn.Linear(width, width), nn.Dropout(0.0))
    def forward(self, x):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.to_qkv(self.norm(x)).chunk(3, dim=-1))
        weights = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).softmax(dim=-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))

class Net(nn.Module):
    def __init__(self, width=64, heads=4):
        super().__init__()
        self.layers = nn.ModuleList([nn.ModuleList([
            Attention(width, heads), nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 128), nn.GELU(), nn.Linear(128, width)),
        ]) for _ in range(2)])
    def forward(self, x):
        for attention, feed_forward in self.layers:
            x = attention(x) + x
            x = feed_forward(x) + x
        return x

get_model = Net
example_inputs = torch.randn(2, 16, 64, generator=torch.Generator().manual_seed(1))
def loss_fn(output, x):
    return (output - x.roll(1, 1)).square().mean()
"""
TENSOR_NETS = {
    "llama": LLAMA.format(norms="", query_norm="", key_norm=""),
    "normed": LLAMA.format(
        norms="self.q_norm, self.k_norm = nn.RMSNorm(self.size), nn.RMSNorm(self.size)",
        query_norm="self.q_norm",
        key_norm="self.k_norm",
    ),
    "adapted": LLAMA.format(norms="self.wq, self.wv = Adapter(self.wq), Adapter(self.wv)", query_norm="", key_norm=""),
    "fused": FUSED,
    "transformer": (ROOT / "models" / "transformer.py")
    .read_text()
    .replace("(8, CONTEXT)", "(2, 16)")
    .replace("depth: int = 6", "depth: int = 2")
    + "\nget_model = GPT\n",
}


FUNCTIONAL = {  # the collective, and its full message over the input of a rank of two
    "_c10d_functional::all_reduce": ("all-reduce", 1),
    "_c10d_functional::all_gather_into_tensor": ("all-gather", 2),
}


@pytest.fixture(scope="module")
def tensor_estimates(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, ParallelEstimate]]:
    """The predictions for two ranks, and the folder of the models."""
    folder = tmp_path_factory.mktemp("nets")
    predicted = {}
    for name, text in TENSOR_NETS.items():
        (folder / f"{name}.py").write_text(text)
        (predicted[name],) = estimates(folder / f"{name}.py", ParallelPlan(strategy="tp", ranks=2))
    return folder, predicted


@pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="needs gloo")
@pytest.mark.skipif(torch.__version__ < (2, 11), reason="needs torch 2.11: older ones apply patterns to wrong modules")
def test_a_real_job_trains_by_the_plan_of_tensor_parallelism(
    tensor_estimates: tuple[Path, dict[str, ParallelEstimate]],
) -> None:
    folder, predicted = tensor_estimates
    saved = {}
    for name, estimate in predicted.items():
        plan = estimate.tensor_plan
        assert plan is not None
        saved[name] = {
            "sharded": [(entry.pattern, entry.style, entry.arguments) for entry in plan.sharded],
            "divided": [(entry.pattern, entry.value) for entry in plan.divided],
            "reordered": plan.reordered,
            "tied": plan.tied,
        }
    (folder / "plans.json").write_text(json.dumps(saved))
    (folder / "job.py").write_text(REAL_TENSOR_JOB)
    results = json.loads(run_ranks(folder / "job.py", "plans.json"))
    for name, (alone, sharded, calls, parameter_bytes) in results.items():
        assert sharded == pytest.approx(alone, rel=1e-5), name
        assert len({round(loss, 6) for loss in alone}) == len(alone)  # the steps train
        messages: dict[str, list[int]] = {}
        for call, nbytes in calls:
            kind, share = FUNCTIONAL[call]
            messages.setdefault(kind, []).append(share * nbytes)
        assert {c.collective: (c.calls, c.message_bytes) for c in predicted[name].communication} == {
            kind: (len(sizes), sum(sizes)) for kind, sizes in messages.items()
        }, name
        assert predicted[name].parameter_bytes == parameter_bytes, name
    assert results.keys() == TENSOR_NETS.keys()


def test_each_block_reduces_twice_in_forward_and_twice_in_backward(
    tensor_estimates: tuple[Path, dict[str, ParallelEstimate]],
) -> None:
    estimate = tensor_estimates[1]["llama"]
    reduced, gathered = estimate.communication
    # and one of the embedding in forward, one of the output layer in backward
    assert (reduced.forward_calls, reduced.backward_calls) == (2 * 3 + 1, 2 * 3 + 1)
    assert reduced.message_bytes == 14 * 4 * 2 * 16 * 64  # batch, length, width
    assert (gathered.collective, gathered.calls, gathered.message_bytes) == ("all-gather", 1, 4 * 2 * 16 * 100)
    plan = estimate.tensor_plan
    assert plan is not None
    assert {entry.pattern: entry.style for entry in plan.sharded} == {
        "embedding": "RowwiseParallel",
        "output": "ColwiseParallel",
        "layers.*.attention": "PrepareModuleInput",
        "layers.*.attention.wq": "ColwiseParallel",
        "layers.*.attention.wk": "ColwiseParallel",
        "layers.*.attention.wv": "ColwiseParallel",
        "layers.*.attention.wo": "RowwiseParallel",
        "layers.*.feed_forward": "PrepareModuleInput",
        "layers.*.feed_forward.w1": "ColwiseParallel",
        "layers.*.feed_forward.w3": "ColwiseParallel",
        "layers.*.feed_forward.w2": "RowwiseParallel",
    }
    assert [(entry.pattern, entry.value) for entry in plan.divided] == [
        ("layers.*.attention.n_heads", 8),
        ("layers.*.attention.n_kv_heads", 4),
    ]
    assert plan.replicated == ()
    assert plan.largest == 4
    assert estimate.categories.optimizer_state is not None
    assert estimate.peak_bytes < estimate.single_peak_bytes


def test_what_stays_replicated_has_a_reason(tensor_estimates: tuple[Path, dict[str, ParallelEstimate]]) -> None:
    plan = tensor_estimates[1]["transformer"].tensor_plan
    assert plan is not None
    assert {entry.pattern for entry in plan.sharded} == {"blocks.*.mlp.0", "blocks.*.mlp.2", "tokens", "head"}
    assert plan.tied == ("head.weight = tokens.weight",)
    attention, rest = plan.replicated
    assert attention.paths[:2] == ("blocks.0.attn.qkv", "blocks.0.attn.proj")
    assert attention.where is not None  # the line of the view of all heads
    assert "transformer.py:20" in attention.where
    assert rest.paths == ("positions",)
    assert tensor_estimates[1]["fused"].tensor_plan is not None
    assert tensor_estimates[1]["fused"].tensor_plan.reordered == ("layers.*.0.to_qkv",)


MIDDLES = {
    "softmax": "torch.softmax(hidden, dim=-1)",
    "mean": "hidden - hidden.mean(dim=-1, keepdim=True)",
    "parameter": "hidden * self.scale",
    "view": "hidden.view(-1, 1024).relu()",
}


@pytest.mark.parametrize(("middle", "reason"), [
    ("softmax", "softmax computes over the dimension"), ("mean", "mean computes over the dimension"),
    ("parameter", "the parameter blocks.0.scale is used"), ("view", "needs their full width"),
])  # fmt: skip
def test_a_pair_that_would_compute_something_else_is_not_sharded(middle: str, reason: str, net: Path) -> None:
    text = NET.replace("torch.relu(self.up(x))", "self.middle(self.up(x))").replace(
        "    def forward(self, x):\n        return x +",
        f"        self.scale = nn.Parameter(torch.ones({4 * WIDTH}))\n"
        f"    def middle(self, hidden):\n        return {MIDDLES[middle]}\n"
        "    def forward(self, x):\n        return x +",
    )
    net.write_text(text)
    with pytest.raises(TargetError, match=reason) as raised:
        estimates(net, ParallelPlan(strategy="tp", ranks=2))
    assert raised.value.hint == "use --parallel fsdp2=2, which shards any model"
    net.write_text(text.replace(MIDDLES[middle], "torch.relu(hidden)"))
    (estimate,) = estimates(net, ParallelPlan(strategy="tp", ranks=2))
    assert estimate.tensor_plan is not None
    assert [entry.modules for entry in estimate.tensor_plan.sharded] == [BLOCKS, BLOCKS]


def test_a_shared_block_is_sharded_once(net: Path) -> None:
    net.write_text(NET.replace(f"[Block() for _ in range({BLOCKS})]", f"[Block()] * {BLOCKS}"))
    (estimate,) = estimates(net, ParallelPlan(strategy="tp", ranks=2))
    plan = estimate.tensor_plan
    assert plan is not None
    assert [(entry.pattern, entry.modules) for entry in plan.sharded] == [("blocks.*.up", 1), ("blocks.*.down", 1)]
    assert estimate.parameter_bytes == BLOCK_BYTES // 2 + HEAD_BYTES
    assert estimate.communication[0].calls == 2 * BLOCKS - 1  # nothing needs the gradient of the input


@pytest.mark.parametrize("plan", [DDP, FSDP2, ParallelPlan(strategy="tp", ranks=RANKS)], ids=lambda p: p.strategy)
def test_frozen_parameters_have_no_gradients(plan: ParallelPlan, net: Path) -> None:
    net.write_text(NET.replace("        self.head =", "        self.blocks.requires_grad_(False)\n        self.head ="))
    (estimate,) = estimates(net, plan, optimizer="adamw")
    assert (estimate.categories.optimizer_state or 0) < BLOCK_BYTES
    assert (estimate.categories.gradients or 0) < BLOCK_BYTES
    if plan.strategy == "tp":
        assert estimate.parameter_bytes == BLOCKS * BLOCK_BYTES // RANKS + HEAD_BYTES


def test_layers_outside_of_the_graph_are_one_message(net: Path) -> None:
    net.write_text(
        NET.replace("            x = block(x)", "            x = checkpoint(block, x, use_reentrant=True)").replace(
            "from torch import nn", "from torch import nn\nfrom torch.utils.checkpoint import checkpoint"
        )
    )
    with pytest.raises(TargetError, match="run without one") as raised:
        estimates(net, ParallelPlan(strategy="tp", ranks=2))
    assert "use_reentrant=False" in str(raised.value.hint)


def test_a_model_without_pairs_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", str(ROOT / "models" / "mnist_cnn.py"), "--parallel", "tp=2", "-q"]) == 3
    printed = capsys.readouterr().err
    assert "nothing in this model can be sharded by tensor parallelism" in printed
    assert "use --parallel fsdp2=2" in printed


def test_the_ranks_must_divide_the_width(net: Path) -> None:
    with pytest.raises(TargetError, match="3 ranks do not divide 1024 features") as raised:
        estimates(net, ParallelPlan(strategy="tp", ranks=3))
    assert raised.value.hint == "use --parallel tp=1024"


def test_heads_that_the_ranks_do_not_divide_stay_replicated(tmp_path: Path) -> None:
    (tmp_path / "llama.py").write_text(TENSOR_NETS["llama"])
    (estimate,) = estimates(tmp_path / "llama.py", ParallelPlan(strategy="tp", ranks=8))
    plan = estimate.tensor_plan
    assert plan is not None
    assert {entry.pattern for entry in plan.sharded if entry.style != "PrepareModuleInput"} == {
        "layers.*.feed_forward.w1",
        "layers.*.feed_forward.w2",
        "layers.*.feed_forward.w3",
    }
    assert [replicated.reason for replicated in plan.replicated] == [
        "8 ranks do not divide 4 heads; the largest number that does is 4",
        "8 ranks do not divide a vocabulary of 100",
    ]


def test_weights_that_no_style_shards_are_named(tmp_path: Path) -> None:
    (tmp_path / "encoder.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def get_model():\n"
        "    return nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)\n"
        "example_inputs = torch.randn(2, 8, 64)\n"
    )
    (estimate,) = estimates(tmp_path / "encoder.py", ParallelPlan(strategy="tp", ranks=2))
    plan = estimate.tensor_plan
    assert plan is not None
    assert [entry.pattern for entry in plan.sharded] == ["layers.*.linear1", "layers.*.linear2"]
    (attention,) = plan.replicated
    assert attention.paths == ("layers.0.self_attn", "layers.1.self_attn")
    assert "MultiheadAttention" in attention.reason


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
    assert main(["count", str(net), "--parallel", "fsdp2=4,ddp=4", "--parallel", "tp=4", "-q", "-o", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Several ranks" in printed
    assert "fully_shard of blocks.0 to blocks.5 and the root." in printed
    report = read_saved(out)
    assert isinstance(report, Report)
    assert report.static is not None
    assert report.static.memory is not None
    tensor = ParallelPlan(strategy="tp", ranks=4)
    assert [estimate.plan for estimate in report.static.memory.parallel] == [FSDP2, DDP, tensor]
    plan = report.static.memory.parallel[-1].tensor_plan
    assert plan is not None
    for entry in plan.sharded:
        assert (entry.pattern, entry.modules) in (("blocks.*.up", BLOCKS), ("blocks.*.down", BLOCKS))
        assert entry.pattern in printed
    assert "replicated: head" in printed
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize("text", ["fsdp2", "fsdp2=1", "pp=2", "ddp=x", "ddp=-4", "tp=2,fsdp2"])
def test_a_wrong_plan_is_one_message(text: str, net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["count", str(net), "--parallel", text]) == 2
    assert "ddp=N, fsdp2=N or tp=N" in capsys.readouterr().err


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
