"""Groups of kernels (on a CPU: operators) that several rules read: products, pointwise work, copies, conversions."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from profiler_kit.diagnosis.step_work import StepWork, Work, total_calls, total_ns
from profiler_kit.records.families import is_product_family

_TO_DEVICE: Final = re.compile(r"\AMemcpy HtoD|\ACopyHostToDevice", re.IGNORECASE)
_HALF: Final = ("f16", "bf16")
# cuBLAS's kernels for 16 bits on Hopper and later do not name the type otherwise.
_HALF_PRODUCT: Final = re.compile(r"nvjet(_sm\d+)?_(hsh|tst|hss|tss)_")
# Names of the copy kernels that convert between data types.
_CONVERSION_KERNEL: Final = re.compile(r"b?float16_copy|bfloat16tofloat32|LoadWithCast|convert_element_type")
_COMPILED_KERNEL: Final = re.compile(r"\Atriton_|cpp_fused")
_FILL: Final = re.compile(r"\Aaten::(fill_|zero_|zeros)\Z|FillFunctor|\AMemset")
_COPY_TO_TYPE: Final = "aten::_to_copy"
_COPY: Final = "aten::copy_"
# Families with few operations per value that they read: memory-bound on every device.
MEMORY_FAMILIES: Final = frozenset(
    {"norm", "pool", "pointwise", "reduce", "index", "cat/copy", "alloc", "memcpy/memset", "optimizer", "loss/softmax"}
)
# The dispatch of an operator takes 1 to 10 us on a CPU, whatever its size.
MAX_MEAN_NS: Final = 10_000
# A step of fewer operators is not slow because of their number.
MIN_SHORT_CALLS: Final = 50
# The gaps between the calls of operators and modules are of this length. Longer gaps are other Python code.
MAX_MEAN_GAP_NS: Final = 30_000


def is_product(work: Work) -> bool:
    """Return whether `work` multiplies and accumulates: convolutions, matrix products, attention, recurrent layers."""
    return is_product_family(work.family)


def is_eager_pointwise(work: Work) -> bool:
    """Return whether `work` is a pointwise operation that no compiler fused; fills read nothing and do not count."""
    return work.family == "pointwise" and _COMPILED_KERNEL.search(work.name) is None and not is_fill(work)


def is_fill(work: Work) -> bool:
    """Return whether `work` fills a tensor with one value."""
    return _FILL.search(work.name) is not None


def is_conversion(work: Work) -> bool:
    """Return whether the kernel `work` copies a tensor to another data type."""
    return _CONVERSION_KERNEL.search(work.name) is not None


def copies_to_device(name: str) -> bool:
    """Return whether the copy `name` between host and device is one to the device."""
    return _TO_DEVICE.match(name) is not None


def is_half_product(work: Work) -> bool:
    """Return whether the kernel `work` is a product in 16 bits."""
    return is_product(work) and (work.math in _HALF or _HALF_PRODUCT.search(work.name) is not None)


class ShortOperators(NamedTuple):
    """Operators of a CPU that are so short that their dispatch takes most of their time, and the gaps of Python between them.

    Those that make batches and those of the optimizer do not count. `calls`: per step, of all.
    """

    work: tuple[Work, ...] = ()
    calls: int = 0
    ns: int = 0
    gaps_ns: int = 0

    @property
    def total_ns(self) -> int:
        """The time of operators and gaps."""
        return self.ns + self.gaps_ns


def short_operators(work: StepWork) -> ShortOperators:
    """Return the short operators of a step on a CPU; nothing for a device, or where they are few."""
    short = work.select(lambda item: item.ns <= MAX_MEAN_NS * item.calls) if not work.on_device else ()
    calls, other_ns = total_calls(short) // work.steps, work.host_data_ns + work.phase_ns.get("optimizer", 0)
    if calls < MIN_SHORT_CALLS or (ns := total_ns(short) - other_ns) <= 0:
        return ShortOperators()
    gaps = [part for part in work.idle if part.cause == "python" and 0 < part.ns <= MAX_MEAN_GAP_NS * part.gaps]
    return ShortOperators(short, calls, ns, sum(part.ns for part in gaps if part.phase not in ("data", "optimizer")))


def pointwise_ns(work: StepWork) -> int:
    """Return the time of pointwise kernels outside the optimizer and host data loading; at least, as both may run others too."""
    total = total_ns(work.select(is_eager_pointwise))
    return max(0, total - _optimizer_ns(work) - work.host_data_ns)


def pointwise_calls(work: StepWork) -> int:
    """Return the number of pointwise kernels per step outside the optimizer; at least.

    On a device, every kernel of an optimizer may be pointwise. On a CPU, most of its operators are views and allocations, so
    the pointwise ones are estimated by their part of all operators.
    """
    calls = total_calls(work.select(is_eager_pointwise))
    in_optimizer = work.phase_calls.get("optimizer", 0)
    if not work.on_device:
        in_optimizer = round(in_optimizer * calls / max(1, total_calls(work.kernels)))
    return max(0, calls - in_optimizer) // work.steps


def conversion_ns(work: StepWork) -> int:
    """Return the time of copies to another data type.

    On a CPU, `aten::_to_copy` calls `aten::copy_`, which also runs for other reasons. Its time is divided by calls.
    """
    if work.on_device:
        return work.kernel_ns(is_conversion)
    to_copy = work.select(lambda item: item.name == _COPY_TO_TYPE)
    copies = work.select(lambda item: item.name == _COPY)
    calls, all_calls = sum(item.calls for item in to_copy), sum(item.calls for item in copies)
    copied_ns = round(total_ns(copies) * min(1.0, calls / all_calls)) if all_calls else 0
    return total_ns(to_copy) + copied_ns


def conversion_calls(work: StepWork) -> int:
    """Return the number of copies to another data type."""
    matches = is_conversion if work.on_device else (lambda item: item.name == _COPY_TO_TYPE)
    return sum(item.calls for item in work.kernels if matches(item))


def copies(work: StepWork) -> tuple[Work, ...]:
    """Return the kernels that copy a tensor without changing it, longest first; layout conversions do not count."""
    return work.select(
        lambda item: item.family == "cat/copy" and not is_conversion(item) and item.name != _COPY_TO_TYPE
    )


def copy_ns(work: StepWork) -> int:
    """Return the time of `copies`, without conversions to another data type."""
    converted = conversion_ns(work) if not work.on_device else 0
    return max(0, total_ns(copies(work)) - converted - work.host_data_ns)


def _optimizer_ns(work: StepWork) -> int:
    """Return the time of the optimizer in kernels whose names do not show it."""
    return max(0, work.phase_ns.get("optimizer", 0) - work.kernel_ns(lambda item: item.family == "optimizer"))
