"""Names in a trace: steps, modules' calls, autograd's nodes, optimizers, loaders, wrappers, collectives.

`operators` has the names of operators, `kernels` those of kernels; `dialect` how the file spells categories and arguments.

Source: torch/profiler/profiler.py, torch/optim/optimizer.py, torch/utils/data/dataloader.py, torch/csrc/autograd/engine.cpp.
"""

from __future__ import annotations

import re
from typing import Final

STEP_PREFIX: Final = "ProfilerStep#"
MODULE_PREFIX: Final = "nn.Module: "
NODE_PREFIX: Final = "autograd::engine::evaluate_function: "
ACCUMULATE: Final = "torch::autograd::AccumulateGrad"
OPTIMIZER_STEP: Final = "Optimizer.step#"
OPTIMIZER_ZERO: Final = "Optimizer.zero_grad#"
LOADER_PREFIX: Final = "enumerate(DataLoader)#"
GRAPH_PREFIX: Final = "## Call CompiledFxGraph "
# TorchScript makes its one node for a stretch of the graph before it runs the stretch's ops: those carry the next number.
TORCHSCRIPT: Final = "torch::jit::"

# Copies from the host, as CUPTI, roctracer and oneAPI name them.
HOST_TO_DEVICE: Final = re.compile(r"HtoD|HostToDevice|Host -> Device")

_NODE_OF: Final = re.compile(r"(?:.*: )?(\w+?)(?:Backward\w*)?\Z")


def accumulates(name: str) -> bool:
    """Whether a node of this name adds a gradient to a leaf: such nodes belong to no forward op."""
    return name.endswith(ACCUMULATE)


def node_agrees(node: str, operator: str) -> bool:
    """Whether the node's name is made of the operator's: ``MulBackward0`` of ``aten::mul``."""
    match = _NODE_OF.match(node)
    return match is not None and match.group(1).lower() in operator.replace("_", "").lower()


# ---- collectives


# Kernels: of NCCL, RCCL, oneCCL, MSCCL++, HCCL, UCC; NVSHMEM's collectives; PyTorch's symmetric memory; vLLM's.
COLLECTIVE_KERNEL: Final = re.compile(
    r"(?i)nccl|rccl|\boneccl|oneapi::ccl|mscclpp?::|nvshmem\w*(all|reduce|broadcast)|all_?reduce_kernel|one_shot_all_reduce|"
    r"two_shot_all_reduce|cross_device_reduce|hccl|\bucc_"
)
# Ranges that a backend's process group puts around a collective on the host: "nccl:all_reduce".
COLLECTIVE_RANGE: Final = re.compile(r"\A(nccl|rccl|xccl|hccl|gloo|mpi|ucc):")
# Of these the backends whose own threads run it there.
HOST_COLLECTIVE_RANGE: Final = re.compile(r"\A(gloo|mpi|ucc):")
_COLLECTIVE_OPERATORS: Final = ("c10d::", "_c10d_functional::")
# What the profiler, NCCL's kernels, PyTorch's operators and annotations call them; the order matters: all_reduce is no reduce.
_COLLECTIVE_KINDS: Final = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        ("all_reduce", r"all_?reduce"),
        ("all_gather", r"all_?gather"),
        ("reduce_scatter", r"reduce_?scatter"),
        ("all_to_all", r"all_?to_?all"),
        ("broadcast", r"broadcast"),
        ("barrier", r"barrier"),
        ("gather", r"gather"),
        ("scatter", r"scatter"),
        ("reduce", r"reduce"),
        ("send_recv", r"send|recv|batch_?isend"),
    )
)
_ELEMENT_BYTES: Final = {
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "half": 2, "bfloat16": 2,
    "short": 2, "float16": 2, "int": 4, "float": 4, "float32": 4, "int32": 4, "long": 8, "double": 8, "int64": 8, "float64": 8,
    "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip


def calls_collective(name: str) -> bool:
    """Whether an operator or a range on the host of this name is a collective's, or launches one."""
    return name.startswith(_COLLECTIVE_OPERATORS) or COLLECTIVE_RANGE.match(name) is not None


def collective_kind(name: str) -> str | None:
    """The kind of collective that `name` says, None where it says none."""
    return next((kind for kind, pattern in _COLLECTIVE_KINDS if pattern.search(name)), None)


def element_bytes(dtype: str) -> int | None:
    """The size of an element of a message, whose type is written as C++ or Python calls it; None for an unknown one."""
    return _ELEMENT_BYTES.get(dtype.rpartition("::")[2].lower())
