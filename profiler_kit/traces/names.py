"""Names in a trace: steps, module calls, autograd nodes, optimizers, loaders, wrappers, collectives, operators.

`kernels` holds the names of kernels, `dialect` the spelling of categories and arguments.

Source: torch/profiler/profiler.py, torch/optim/optimizer.py, torch/utils/data/dataloader.py,
torch/csrc/autograd/engine.cpp.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

STEP_PREFIX: Final = "ProfilerStep#"
MODULE_PREFIX: Final = "nn.Module: "
NODE_PREFIX: Final = "autograd::engine::evaluate_function: "
ACCUMULATE: Final = "torch::autograd::AccumulateGrad"
OPTIMIZER_STEP: Final = "Optimizer.step#"
OPTIMIZER_ZERO: Final = "Optimizer.zero_grad#"
LOADER_PREFIX: Final = "enumerate(DataLoader)#"
GRAPH_PREFIX: Final = "## Call CompiledFxGraph "
# TorchScript creates one node for a section of the graph before it runs the operators of that section. They carry the
# next number.
TORCHSCRIPT: Final = "torch::jit::"

# Copies from the host, as named by CUPTI, roctracer and oneAPI.
HOST_TO_DEVICE: Final = re.compile(r"HtoD|HostToDevice|Host -> Device")

_NODE_OF: Final = re.compile(r"(?:.*: )?(\w+?)(?:Backward\w*)?\Z")


def accumulates(name: str) -> bool:
    """Return whether a node of this name accumulates a gradient. Such a node belongs to no forward operator."""
    return name.endswith(ACCUMULATE)


def node_agrees(node: str, operator: str) -> bool:
    """Return whether the node's name is derived from the operator's: ``MulBackward0`` and ``aten::mul``."""
    match = _NODE_OF.match(node)
    return match is not None and match.group(1).lower() in operator.replace("_", "").lower()


# ---- collectives


# Kernels of NCCL, RCCL, oneCCL, MSCCL++, HCCL, UCC; NVSHMEM's collectives; PyTorch's symmetric memory; vLLM's.
COLLECTIVE_KERNEL: Final = re.compile(
    r"(?i)nccl|rccl|\boneccl|oneapi::ccl|mscclpp?::|nvshmem\w*(all|reduce|broadcast)|all_?reduce_kernel|one_shot_all_reduce|"
    r"two_shot_all_reduce|cross_device_reduce|hccl|\bucc_"
)
# Ranges that a process group records around a collective on the host: "nccl:all_reduce".
COLLECTIVE_RANGE: Final = re.compile(r"\A(nccl|rccl|xccl|hccl|gloo|mpi|ucc):")
# The backends that run collectives on the host.
HOST_COLLECTIVE_RANGE: Final = re.compile(r"\A(gloo|mpi|ucc):")
_COLLECTIVE_OPERATORS: Final = ("c10d::", "_c10d_functional::")
# Spellings of the profiler, of NCCL's kernels, and of PyTorch's operators and annotations. The order matters:
# all_reduce also matches reduce.
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
# What `record_param_comms` of a process group encloses is the launch of a collective.
_COLLECTIVE_RECORD: Final = "record_param_comms"
_ELEMENT_BYTES: Final = {
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "half": 2, "bfloat16": 2,
    "short": 2, "float16": 2, "int": 4, "float": 4, "float32": 4, "int32": 4, "long": 8, "double": 8, "int64": 8, "float64": 8,
    "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip


def is_collective_kernel(name: str) -> bool:
    """Return whether a kernel of this name runs a collective."""
    name = name.lower()
    # Every match of the pattern contains one of these parts. The search for them takes a tenth of its time.
    may_match = "ccl" in name or "reduce" in name or "nvshmem" in name or "ucc_" in name
    return may_match and COLLECTIVE_KERNEL.search(name) is not None


def calls_collective(name: str) -> bool:
    """Return whether a host operator or range of this name is a collective, or launches one."""
    return name.startswith(_COLLECTIVE_OPERATORS) or COLLECTIVE_RANGE.match(name) is not None


@lru_cache(maxsize=1 << 12)
def collective_kind(name: str) -> str | None:
    """Return the kind of collective that `name` states, or None."""
    return next((kind for kind, pattern in _COLLECTIVE_KINDS if pattern.search(name)), None)


def element_bytes(dtype: str) -> int | None:
    """Return the size of an element of a message, whose type has its C++ or Python name; None if unknown."""
    return _ELEMENT_BYTES.get(dtype.rpartition("::")[2].lower())


# ---- operators by family: on a CPU they are classified like kernels


_NAMESPACE: Final = re.compile(r"\A(aten|prims|quantized|torchvision|mkldnn|mkldnn_prepacked|xnnpack)::")
_ENGINE: Final = re.compile(
    r"\A(autograd|torch::autograd)::|\A[A-Za-z]\w*Backward\d*\Z"
)  # the engine's own bookkeeping
_BARE: Final = frozenset({"detach"})  # autograd's C++ detach, recorded without a namespace

# Names that contain the pattern. The first match counts.
_CONTAINS: Final = tuple(
    (family, re.compile(pattern))
    for family, pattern in (
        ("conv", r"conv(?!ert)"),
        ("attention", r"scaled_dot_product|(flash|efficient|cudnn|overrideable)_attention|multi_head_attention"),
        ("optimizer", r"\A(_foreach_|_fused_(adam|sgd|adagrad))"),
        ("norm", r"(batch|layer|group|instance|rms)_norm|weight_norm|local_response_norm"),
        ("pool", r"pool"),
        ("loss/softmax", r"softmax|softmin|_loss|cross_entropy|kl_div|\Amse|\Actc"),
        ("rnn", r"lstm|\Agru|_gru|rnn"),
        ("index", r"index|gather|scatter|embedding|\Amasked_|\Atake|nonzero|\Aput_|bucketize|one_hot"),
        ("sort/scan", r"sort|topk|kthvalue|unique|\Acum(sum|prod|max|min)"),
        ("random", r"dropout|bernoulli|\A(rand|normal|uniform|multinomial|exponential)"),
        ("interpolate", r"upsample|interpolate|grid_sampl"),
    )
)

# Then whole names, without leading or trailing underscores. A ``*`` at the end of a word matches any suffix.
_WORDS: Final = {
    "gemm": "addmm mm bmm addbmm baddbmm matmul linear linear_backward mv addmv dot vdot inner outer ger addr einsum "
    "bilinear trilinear scaled_mm grouped_mm int_mm addmm_activation mkldnn_linear mkldnn_linear_backward*",
    "cat/copy": "copy to_copy to clone contiguous "
    "select_backward slice_backward diagonal_backward unfold_backward "
    "cat concat stack pin_memory repeat repeat_interleave pad constant_pad_nd "
    "reflection_pad* replication_pad* flip roll tril triu type_as",
    "sync": "item local_scalar_dense is_nonzero equal",  # on a device, these wait for it
    "view": "view* reshape* unsafe_view t transpose permute as_strided expand expand_as squeeze unsqueeze select slice narrow "
    "detach flatten unflatten split* unsafe_split chunk unbind alias movedim swapaxes numpy_T mT resolve_conj resolve_neg "
    "lift_fresh diagonal real imag conj broadcast_to unfold set result_type can_cast",
    "alloc": "empty* new_* resize* zeros* ones* full* arange linspace scalar_tensor tensor eye efficientzerotensor",
    "reduce": "sum* mean nansum prod max min amax amin aminmax argmax argmin norm linalg_vector_norm linalg_norm "
    "frobenius_norm var std var_mean std_mean any all logsumexp count_nonzero median",
    "pointwise": "add sub rsub mul div rdiv true_divide floor_divide remainder fmod neg abs sign sgn exp* log* sqrt rsqrt square "
    "pow reciprocal clamp* threshold* relu* leaky_relu* prelu* rrelu* elu* selu celu gelu* silu* mish* hardtanh* "
    "hardswish* hardsigmoid* sigmoid* tanh* glu* softplus* softshrink* hardshrink* sin cos tan asin acos atan atan2 "
    "sinh cosh erf* floor ceil round trunc frac lerp addcmul addcdiv where eq ne lt le gt ge minimum maximum fmax "
    "fmin logical_* bitwise_* isnan isinf isneginf isposinf isfinite nan_to_num fill zero polar complex hypot xlogy amp_*",
}


def _compiled(words: str) -> re.Pattern[str]:
    return re.compile("(?:" + "|".join(re.escape(word).replace(r"\*", r"\w*") for word in words.split()) + r")\Z")


_IS_WORD: Final = tuple((family, _compiled(words)) for family, words in _WORDS.items())


def is_operator(name: str) -> bool:
    """Return whether `name` is that of an operator or an autograd node, not of a kernel."""
    return bool(_NAMESPACE.match(name) or _ENGINE.match(name)) or name in _BARE


def operator_family(name: str) -> str:
    """Return the family of the operator called `name` (``aten::addmm`` → ``gemm``); ``other`` if unknown."""
    if _ENGINE.match(name):
        return "autograd"
    if calls_collective(name) or name == _COLLECTIVE_RECORD:
        return "comm"
    plain = _NAMESPACE.sub("", name)
    for value, pattern in _CONTAINS:
        if pattern.search(plain):
            return value
    bare = plain.strip("_")
    return next((value for value, pattern in _IS_WORD if pattern.match(bare)), "other")


def operator_families() -> frozenset[str]:
    """Return all families that `operator_family` can return."""
    return frozenset({"autograd", "comm", "other", *(value for value, _ in (*_CONTAINS, *_IS_WORD))})
