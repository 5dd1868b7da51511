"""What the messages of torch, NumPy and Python say about a failed forward pass: the only place that reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

from profiler_kit.user_code.boundary import error_text

Problem = Literal[
    "copies_meta", "reads_values", "no_meta_kernel", "cuda_only", "missing_device", "device_mix", "device_assert",
    "needs_bfloat16", "single_row", "wrong_call", "missing_argument", "shapes", "same_sizes", "too_small", "one_item_more",
    "needs_integers", "needs_floats", "needs_bools", "needs_number", "needs_array", "needs_list", "needs_flag", "needs_none",
    "needs_sequence", "needs_tuple",
    "hooks_refused",
]  # fmt: skip
_PATTERNS: Final[dict[Problem, str]] = {
    "copies_meta": r"out of meta tensor",
    # the lengths of a packed sequence: "1D meta Long tensor"
    "reads_values": r"[Mm]eta tensors?\b|\dD meta\b|meta device|data-(in)?dependent",
    # attention of jagged tensors asks for the autocast of the tensors' device, and meta has none
    "no_meta_kernel": r"SparseMeta|SparseCsrMeta|fake impl|NestedTensorImpl|unknown device type for autocast",
    # kernels for tensors on other devices: Triton launches, checks in extensions, custom ops
    "cuda_only": r"cannot be accessed from Triton|active drivers|need to be on CUDA"
    r"|must be (a )?(CUDA|cuda) tensors?|must be on (the )?(GPU|CUDA|cuda)"
    r"|Expected a 'cuda' device|no backend-specific|with arguments from the '(CPU|Meta)' backend",
    # code that asks for a device which this machine or this run does not have
    "missing_device": r"not compiled with \w+ enabled|without CUDA support|not linked with support for|[Nn]o NVIDIA driver"
    r"|No CUDA GPUs|Cannot access accelerator|requires CUDA support|requires a CUDA|dummy base class|'_(cuda|xpu)_\w+'"
    r"|cannot pin|NVTX functions not installed|without MPS backend|Cannot get \w+ generator"
    r"|type torch\.cuda\.\w+ not available|from the '(CUDA|XPU|MPS)' backend|Device index must not be negative"
    r"|unsupported scalarType|autocast device_type|invalid type: 'torch\.meta\.",
    "device_mix": r"expected device|(on|at) the same device",
    "device_assert": r"device-side assert",
    "needs_bfloat16": r"Expected inputs of BF16 type",
    "single_row": r"more than 1 value per channel",
    "wrong_call": r"\(\) (takes|missing|got) .*(positional|keyword|multiple values)",
    "missing_argument": r"missing \d+ required",
    "shapes": r"(?i)shape|size|dimension|channels|must match|same reduction dim|stack expects|inconsistent tensor",
    "same_sizes": r"(?i)same size|same shape|batch_size|must match",
    "too_small": r"Kernel size can't be greater|too small|[Pp]adding size should be less|smaller than kernel"
    r"|negative dimension|non-negative|invalid shape dimension|Trying to create tensor with negative|must be greater"
    r"|should be at least",
    "one_item_more": r"(tuple|list) index out of range",
    "needs_integers": r"(?i)indices'? to have one of|used as indices must be|Expected dtype int64|index tensor"
    r"|expected.*\blong\b.*\bbut got|Expected tensor for argument #1 'indices'|must be long|dtype of indices|IntTensor"
    r"|one_hot is only",
    "needs_floats": r"(?i)same dtype|should be the same|scalar type|not implemented for|long int !=|Floating"
    r"|floating point|bool tensor is not supported|can only be of floating|Input dtype",
    "needs_bools": r"boolean masks?|bool(ean)? (tensor|mask)s?|bitwise_not|BoolTensor|dtype bool|torch\.bool",
    "needs_number": r"interpreted as an integer|must be (tuple of )?ints?|must be Number|not Tensor|unhashable"
    r"|can't be used as an integer|only integer tensors",
    "needs_array": r"numpy|ndarray|\bnp\.|\b(Long|Float|Int|Double)Tensor\(|from_numpy|TensorOptions",
    "needs_list": r"must be tuple of Tensors|expects? a (list|tuple|sequence) of|argument 'tensors'|unpack"
    r"|index \d+ is out of bounds",
    "needs_sequence": r"(?i)has no len\(\)|not iterable|not subscriptable|non-iterable|non-sequence"
    r"|\b(tuple|list|sequence|iterable)\b",
    "needs_tuple": r"tuple",
    "needs_flag": r"ambiguous",
    "hooks_refused": r"saved tensor hooks",  # of torch.func derivatives
    "needs_none": r"(?s)Tensor.*has no attribute|has no attribute.*Tensor",
}  # fmt: skip
# (the received number of dimensions, the needed one); of two needed ones, the last
_RANKS: Final = re.compile(
    r"expected (?:\S+ to be )?(\d)-?D(?:[^0-9]{1,14}(\d)-?D)?.*?(?:got|received) (?:a )?(\d)-?D",
    re.IGNORECASE | re.DOTALL,
)
_OUT_OF_RANGE: Final = re.compile(
    r"Dimension out of range \(expected to be in range of \[-?\d+, (-?\d+)\], but got (-?\d+)\)"
)
_PATTERN: Final = re.compile(r'pattern "([^"]+->[^"]+)"')  # of einops


def reports(error: BaseException | str, *problems: Problem) -> bool:
    """Whether the message of `error`, or a line of code, has one of `problems`."""
    text = error if isinstance(error, str) else error_text(error)
    return any(re.search(_PATTERNS[problem], text) for problem in problems)


def ranks(error: Exception) -> Iterator[tuple[int, int]]:
    """The numbers of dimensions that the message of `error` states: (received, needed)."""
    if (expected := _RANKS.search(error_text(error))) is not None:
        yield int(expected[3]), int(expected[2] or expected[1])
    if (out_of_range := _OUT_OF_RANGE.search(error_text(error))) is not None:
        highest, index = int(out_of_range[1]), int(out_of_range[2])
        yield highest + 1, index + 1 if index >= 0 else -index


def einops_pattern(error: Exception) -> str | None:
    """The pattern of einops that the message of `error` names; None without one."""
    pattern = _PATTERN.search(error_text(error))
    return pattern[1] if pattern is not None else None


def unpacked_count(error: Exception) -> int:
    """The number of items that the code unpacks: 3 in ``not enough values to unpack (expected 3, got 2)``; 0 for others."""
    count = re.search(r"values to unpack \(expected (\d+)", error_text(error))
    return int(count[1]) if count is not None else 0


def item_count(error: Exception) -> int:
    """The number of items that the code reads, by their index or their names; 2 if the message does not say it."""
    index = re.search(r"index (\d+) is out of bounds", error_text(error))
    return int(index[1]) + 1 if index is not None else unpacked_count(error) or 2


def numbers(error: Exception) -> list[int]:
    """The whole numbers of at most five digits in the message of `error`."""
    return [int(word) for word in re.findall(r"(?<![\w.])\d{1,5}(?![\w.])", error_text(error))]
