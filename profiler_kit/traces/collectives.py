"""What names say of collectives: which kernels, operators and ranges are some, and of which kind."""

from __future__ import annotations

import re
from typing import Final

# Kernels: of NCCL, RCCL, oneCCL, MSCCL++, HCCL, UCC; NVSHMEM's collectives; PyTorch's symmetric memory; vLLM's.
KERNEL: Final = re.compile(
    r"(?i)nccl|rccl|\boneccl|oneapi::ccl|mscclpp?::|nvshmem\w*(all|reduce|broadcast)|all_?reduce_kernel|one_shot_all_reduce|"
    r"two_shot_all_reduce|cross_device_reduce|hccl|\bucc_"
)
# Ranges that a backend's process group puts around a collective on the host: "nccl:all_reduce".
RANGE: Final = re.compile(r"\A(nccl|rccl|xccl|hccl|gloo|mpi|ucc):")
# Of these the backends whose own threads run it there.
HOST_RANGE: Final = re.compile(r"\A(gloo|mpi|ucc):")
_OPERATORS: Final = ("c10d::", "_c10d_functional::")
# What the profiler, NCCL's kernels, PyTorch's operators and annotations call them; the order matters: all_reduce is no reduce.
_KINDS: Final = tuple(
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
    return name.startswith(_OPERATORS) or RANGE.match(name) is not None


def collective_kind(name: str) -> str | None:
    """The kind of collective that `name` says, None where it says none."""
    return next((kind for kind, pattern in _KINDS if pattern.search(name)), None)


def element_bytes(dtype: str) -> int | None:
    """The size of an element of a message, whose type is written as C++ or Python calls it; None for an unknown one."""
    return _ELEMENT_BYTES.get(dtype.rpartition("::")[2].lower())
