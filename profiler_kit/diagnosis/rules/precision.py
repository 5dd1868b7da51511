"""The arithmetic of a step: products without tensor cores, in TF32 instead of bfloat16, work in float64, conversions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.devices.registry import peaks_of
from profiler_kit.diagnosis.advice import has_tensor_cores, is_float32, outcome_text, trials_of
from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.idle_time import LAUNCH_CLAIMS, launch_idle_ns
from profiler_kit.diagnosis.phrases import Advice, advise, factor_text, join_list, layers_sentence, limit_percent
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import MIN_BUSY_SHARE, StepWork, Work, total_calls, total_ns, work_claims
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.diagnosis.work_groups import (
    conversion_calls,
    conversion_ns,
    is_conversion,
    is_half_product,
    is_product,
)
from profiler_kit.records.claims import kernel_claims
from profiler_kit.records.families import REDUCED_OPERATION_FAMILIES, is_contraction, is_convolution
from profiler_kit.records.report import Evidence, Report, TraceReport, Trial
from profiler_kit.statistics.noise import MIN_USEFUL_SAVING
from profiler_kit.units import percent, text

# Tensor cores make such kernels up to eight times faster. From a tenth of the device time on, the gain is noticeable.
MIN_FP32_SHARE: Final = 0.10
# Starting a kernel and reading its operands takes some microseconds, in any arithmetic.
MIN_KERNEL_NS: Final = 10_000
# A product of a matrix and a vector reads each value once: the bandwidth limits it, not the arithmetic.
_MATRIX_VECTOR: Final = re.compile("gemv|dot_kernel", re.IGNORECASE)


def _fp32(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    kernels = _fp32_kernels(report, step)
    fp32_ns, attention_ns = total_ns(kernels), total_ns(kernel for kernel in kernels if _is_attention(kernel))
    convolution_ns = _convolution_ns(step, kernels)
    if not fp32_ns or fp32_ns < MIN_FP32_SHARE * step.busy_ns:
        return None
    names = {kernel.name for kernel in kernels}
    paths = tuple(step.layers(lambda kernel: kernel.name in names))
    # the setting for the larger part first
    settings = ("default", "matmul_tf32") if 2 * convolution_ns >= fp32_ns else ("matmul_tf32", "default")
    words = [word for word in settings if word == "default" or fp32_ns > convolution_ns]
    trials = trials_of(report, *words, "amp_bf16")
    is_attention = 2 * attention_ns >= fp32_ns
    return StepPart(
        ns=fp32_ns,
        what="Attention in float32, beside products in 16 bits, takes"
        if is_attention
        else "Tensor cores unused: float32 convolutions and matrix products take",
        sentences=(
            f"Kernels of plain float32 arithmetic take {text(fp32_ns, 'ns')} {step.per_step}{_convolution_part(convolution_ns)}.",
            layers_sentence(paths),
            _fp32_peaks(report),
            trials.sentence(),
        ),
        advice=_ATTENTION_ADVICE
        if is_attention
        else _fp32_advice(0 if step.kernel_ns(_is_tf32_convolution) else convolution_ns, fp32_ns - convolution_ns),
        measures=(("time of float32 kernels", fp32_ns, "ns"), ("time of float32 convolutions", convolution_ns, "ns")),
        paths=paths,
        trials=trials,
        claims=kernel_claims(kernel.name for kernel in kernels),
    )


_ATTENTION_ADVICE: Final = advise(
    "Pass queries, keys and values in 16 bits to scaled_dot_product_attention: {code}. Look for a call outside autocast, and for "
    "operations before it that return float32, such as rotary embeddings and norms.",
    "q, k, v = (x.to(torch.bfloat16) for x in (q, k, v))",
)


def _convolution_ns(step: StepWork, kernels: Sequence[Work]) -> int:
    """The time of those `kernels` that compute convolutions.

    A convolution also runs as a matrix product or an FFT, with kernels that are named so: what no operator of products launched,
    at most the time of the operators of convolutions. Kernels without a launch in the trace have no operator.
    """
    named_ns = total_ns(kernel for kernel in kernels if is_convolution(kernel.family))
    if not step.operators:
        return named_ns
    convolutions = step.select(lambda operator: operator.family == "conv", operators=True)
    products = step.select(lambda operator: operator.family != "conv" and is_product(operator), operators=True)
    other_ns = total_ns(kernels) - named_ns - total_ns(products)
    return named_ns + max(0, min(other_ns, total_ns(convolutions) - named_ns))


def _convolution_part(convolution_ns: int) -> str:
    return f", {text(convolution_ns, 'ns')} of it in convolutions" if convolution_ns else ""


def _is_fp32_product(kernel: Work) -> bool:
    if kernel.math != "fp32" or _MATRIX_VECTOR.search(kernel.name) or kernel.ns < MIN_KERNEL_NS * kernel.calls:
        return False
    return is_contraction(kernel.family) or _is_attention(kernel)


def _is_attention(kernel: Work) -> bool:
    return kernel.family.startswith("attention")


def _is_tf32_convolution(kernel: Work) -> bool:
    return kernel.math == "tf32" and is_convolution(kernel.family)


def _fp32_peaks(report: Report | TraceReport) -> str:
    """Return a sentence with the peaks of the report's device; of a trace, one that states that it has tensor cores."""
    line = report.roofline_of(report.baseline()) if isinstance(report, Report) else None
    fp32, tf32 = (line.roof.peak("fp32"), line.roof.peak("tf32")) if line is not None else (None, None)
    factor = ratio(tf32, fp32)
    if factor is None:
        return "The device has tensor cores for TF32 and bfloat16."
    return (
        f"The peak of this device is {text(fp32, 'flops/s')} in float32 and {text(tf32, 'flops/s')} in TF32, "
        f"{factor_text(factor)} as much."
    )


def _fp32_advice(convolution_ns: int, product_ns: int) -> Advice:
    """Return the settings that make convolutions and matrix products use tensor cores, that for more time first.

    `convolution_ns`: 0 if convolutions may use TF32 already.
    """
    times = (
        ("torch.backends.cudnn.allow_tf32 = True", "convolutions", convolution_ns),
        ("torch.set_float32_matmul_precision('high')", "matrix products", product_ns),
    )
    settings = [(code, work) for code, work, ns in sorted(times, key=lambda item: -item[2]) if ns > 0]
    options = [*(f"{code} ({work})" for code, work in settings), "torch.autocast to bfloat16 (all layers)"]
    code = settings[0][0] if settings else ""
    return Advice(f"If the error is acceptable, use tensor cores: {', or '.join(options)}.", code)


def _fp32_kernels(report: Report | TraceReport, step: StepWork) -> tuple[Work, ...]:
    """Return the kernels that could use tensor cores; none where the device or the types rule it out."""
    if not step.is_mostly_busy or not _may_use_tensor_cores(report, step):
        return ()
    # where the setting for convolutions is on, cuDNN chose float32 for their shapes
    allows_tf32 = isinstance(report, TraceReport) and step.kernel_ns(_is_tf32_convolution) > 0
    # no setting makes attention use TF32, and a program without 16 bits may need float32
    has_half = step.kernel_ns(is_half_product) > 0
    return step.select(
        lambda kernel: (
            _is_fp32_product(kernel)
            and not (allows_tf32 and is_convolution(kernel.family))
            and (has_half or not _is_attention(kernel))
        )
    )


def _may_use_tensor_cores(report: Report | TraceReport, step: StepWork) -> bool:
    if isinstance(report, Report):
        run = report.baseline()
        is_cudnn_on = run is not None and run.config.enabled is not False
        has_type = is_float32(report) or step.kernel_ns(is_half_product) > 0
        return run is not None and is_cudnn_on and has_type and has_tensor_cores(run) is True
    peaks = [peaks_of(name) for name in step.trace.devices]
    by_datasheet = any(row is not None and row.tf32 is not None for row in peaks)
    by_kernels = any(kernel.math in ("tf32", "bf16") for kernel in step.kernels)
    return (by_datasheet or by_kernels) and not step.facts.lacks("float32")


NO_TENSOR_CORES = step_rule(
    "no_tensor_cores",
    _fp32,
    Shares(0.0, medium=0.20, high=1 / 3),  # below a fifth of the step, other changes usually save more
    f"""
Fires if kernels of convolutions and matrix products in plain float32 arithmetic (without tensor cores, by their names) take at
least {limit_percent(MIN_FP32_SHARE)} of the device time, and the device is busy for at least {limit_percent(MIN_BUSY_SHARE)} of
the step. So does attention in float32 beside products in 16 bits. The target of a report must compute in float32 or have products
in 16 bits, and the device must have compute capability 8.0 or later. Kernels that
take less than {MIN_KERNEL_NS // 1000} us on average do not count, and neither do products of a matrix and a vector: other costs
than arithmetic limit them.

The finding gives the measured peaks of both kinds of arithmetic, if the report has them. TF32 and bfloat16 are less accurate:
rule `tf32_in_use` and the trial give the error.

The device of a trace has tensor cores by its name in the table of datasheets, or because other kernels of the trace use them.
There, convolutions do not count where others use TF32: the setting is on, and cuDNN chose float32 for their shapes.
""",
    states_share=False,
    keeps=0.25,  # TF32 reaches some four times the rate of float32 (peaks: 7.4 times on an H100); bytes stay the same
)

# Below a fifth of the step, twice the speed of its products saves less than a tenth of it.
MIN_TF32_SHARE: Final = 0.20


def _half_precision(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    tf32, bf16, source = _half_peaks(report, step)
    if not tf32 or not bf16 or bf16 <= tf32 or not step.is_mostly_busy:
        return None
    kernels, trials = step.select(_is_tf32_product), trials_of(report, "amp_bf16")
    ns, whole = total_ns(kernels), step.facts.whole
    forecast = _half_forecast(report)
    saving = step.share(ns) * (1.0 - tf32 / bf16) if forecast is None else forecast.saving * step.share(step.busy_ns)
    is_useful = saving >= MIN_USEFUL_SAVING
    if step.share(ns) < MIN_TF32_SHARE or (isinstance(report, TraceReport) and not is_useful):
        return None
    may_help = trials.trial is None or trials.trial.verdict == "better"
    return StepPart(
        share=saving,
        share_name="saving",
        most="low" if may_help and is_useful else "info",
        title=_half_title(saving, trials.trial, whole, "computed from the peaks" if forecast is None else "predicted"),
        sentences=(
            f"Convolutions and matrix products in TF32 take {text(ns, 'ns')} of {text(step.span_ns, 'ns')}.",
            f"The device's peak is {text(tf32, 'flops/s')} in TF32 and {text(bf16, 'flops/s')} in bfloat16, "
            f"{factor_text(bf16 / tf32)} as high.",
            f"With this speedup they save {percent(saving)} of the {whole}. This is computed, not measured: conversions cost "
            "extra time, and smaller tensors save some."
            if forecast is None
            else forecast.sentence(),
        ),
        advice=_half_advice(facts_of(report)),
        measures=(("time of TF32 products", ns, "ns"),),
        evidence=(
            Evidence(name="bfloat16 peak over TF32 peak", value=bf16 / tf32, unit="ratio", where=source),
            *(forecast.evidence() if forecast is not None else ()),
        ),
        trials=trials,
        computed=True,
        claims=kernel_claims(kernel.name for kernel in kernels if may_help),
    )


@dataclass(frozen=True, slots=True)
class _HalfForecast:
    """The predicted kernel times of the step as it is and under bfloat16 autocast."""

    device: str
    now_ns: int
    half_ns: int

    @property
    def saving(self) -> float:
        """The saved share of the kernel time."""
        return max(0.0, 1.0 - self.half_ns / self.now_ns)

    def sentence(self) -> str:
        """What was predicted."""
        return (
            f"From recorded calls of the same ops on {self.device}, all kernels of the step are predicted to take "
            f"{text(self.half_ns, 'ns')} under bfloat16 autocast and {text(self.now_ns, 'ns')} without it."
        )

    def evidence(self) -> Iterator[Evidence]:
        """Both times."""
        for name, ns in (("predicted kernels", self.now_ns), ("predicted kernels in bfloat16", self.half_ns)):
            yield Evidence(name=name, value=ns, unit="ns", where=self.device)


def _half_forecast(report: Report | TraceReport) -> _HalfForecast | None:
    static = report.static if isinstance(report, Report) else None
    forecast = static.forecast if static is not None else None
    half = forecast.with_setting("amp_bf16") if forecast is not None else None
    if forecast is None or half is None or not forecast.kernel_ns.median:
        return None
    return _HalfForecast(forecast.device, forecast.kernel_ns.median, half.median)


def _half_peaks(report: Report | TraceReport, step: StepWork) -> tuple[float | None, float | None, str]:
    """Return the peaks in TF32 and bfloat16 and their source; None where unknown, or where autocast cannot help the target."""
    if isinstance(report, Report):
        line = report.roofline_of(report.baseline())
        if line is None or not is_float32(report) or not trials_of(report, "amp_bf16").tries:
            return None, None, ""
        return line.roof.peak("tf32"), line.roof.peak("bf16"), line.roof.hardware
    peaks = next((row for name in step.trace.devices if (row := peaks_of(name)) is not None), None)
    return (peaks.tf32, peaks.bf16, "datasheet") if peaks is not None else (None, None, "")


def _is_tf32_product(kernel: Work) -> bool:
    return kernel.math == "tf32" and is_contraction(kernel.family) and kernel.family not in REDUCED_OPERATION_FAMILIES


def _half_advice(facts: Facts) -> Advice:
    place, check = ("forward and loss", "the quality of the training") if facts.trains else ("the model", "its outputs")
    autocast = "torch.autocast(device_type='cuda', dtype=torch.bfloat16)"
    return advise(f"Try {{code}} around {place}. Check {check}: bfloat16 has 8 bits of precision.", autocast)


def _half_title(saving: float, trial: Trial | None, whole: str, source: str) -> str:
    if trial is None or trial.verdict == "failed":
        return f"bfloat16 autocast would save {percent(saving)} of the {whole} ({source}, not measured)"
    return f"bfloat16 autocast: {outcome_text(trial)} in a trial ({percent(saving)} less time {source})"


HALF_PRECISION = step_rule(
    "half_precision",
    _half_precision,
    Shares(0.0),
    f"""
Fires when convolutions and matrix products in TF32 take at least {limit_percent(MIN_TF32_SHARE)} of the step, and the
device's peak in bfloat16 is higher than in TF32.

- `low`: autocast would save at least {limit_percent(MIN_USEFUL_SAVING)} of the step, and no trial contradicts it.
- `info`: it would save less, or the trial found no gain.

Where the kernels of the step could be predicted ([forecast](forecast.md)), the saving is the difference of the predicted kernel
times with and without autocast. Otherwise it assumes that these kernels speed up as the peaks do, without the conversions that
autocast adds and the bytes that it saves. Both are **computed, not measured**, so the trial may find more or less.

The peaks of a trace's device are those of its datasheet. The device must be busy for at least {limit_percent(MIN_BUSY_SHARE)} of
the step.
""",
    topic="remedy",
)

BYTES_PER_VALUE: Final = 8
# Names of optimizer and random kernels contain "double" for scalar arguments.
_OTHER_FAMILIES: Final = ("optimizer", "random", "comm", "memcpy/memset")
_FLOAT64_KERNEL: Final = re.compile(r"dgemm|dcudnn|f(?<![a-z]f)64|<double")


HALF_OF_BYTES: Final = 0.5  # of a type of half the size


def _float64(report: Report | TraceReport, work: StepWork) -> StepPart:
    tensors = tuple(_float64_tensors(report)) if isinstance(report, Report) else ()
    kernels = _float64_work(work, are_parameters="the parameters" in tensors)
    ns = total_ns(kernels)
    return StepPart(
        ns=ns,
        what="Work in float64 takes",
        sentences=(
            f"It takes {text(ns, 'ns')} of {work.clock_name} {work.per_step}.",
            f"In float64: {join_list(tensors)}." if tensors else "",
            "float32 moves half of the bytes, and can use tensor cores or wider vector instructions.",
        ),
        advice="Use float32: `{code}`, torch.from_numpy(array).float(). Look for .double(), dtype=torch.float64, NumPy "
        "scalars in arithmetic, and torch.set_default_dtype.",
        code="model = model.float(); inputs = inputs.float()",
        measures=(("time in float64", ns, "ns"),),
        claims=work_claims(work, kernels),
        keeps=_left_of_float64(work, kernels),
    )


def _left_of_float64(work: StepWork, kernels: Sequence[Work]) -> float:
    """Return the part of the time of `kernels` that smaller types leave: half of the bytes, products at the rate of the others.

    In float64, cards for computing reach the rate of float32 without tensor cores at best, and other cards much less.
    """
    peaks = next((row for name in work.trace.devices if (row := peaks_of(name)) is not None), None)
    rated = Counter[str]()
    for kernel in work.select(is_product):
        rated["bf16" if is_half_product(kernel) else kernel.math or ""] += kernel.ns
    rates = (
        [peaks.for_math(math) or peaks.fp32 for math, _ in rated.most_common() if math != "f64"]
        if peaks is not None
        else []
    )
    part = min(HALF_OF_BYTES, peaks.fp32 / rates[0]) if peaks is not None and rates else HALF_OF_BYTES
    products_ns = total_ns(kernel for kernel in kernels if is_product(kernel))
    ns = total_ns(kernels)
    return (products_ns * part + (ns - products_ns) * HALF_OF_BYTES) / ns if ns else 0.0


def _float64_tensors(report: Report) -> Iterator[str]:
    static = report.static
    if static is not None and static.params and static.param_bytes >= BYTES_PER_VALUE * static.params:
        yield "the parameters"
    yield from (f"input {item.name}" for item in report.target.inputs if item.dtype in ("float64", "double"))


def _float64_work(work: StepWork, *, are_parameters: bool) -> tuple[Work, ...]:
    if work.on_device:
        kernels = work.select(lambda item: item.family not in _OTHER_FAMILIES and _is_float64_kernel(item))
        return () if work.facts.lacks("float64") else kernels
    if are_parameters:
        return work.select(lambda _: True)  # operators on a CPU do not show their type
    typed = work.select(lambda item: item.float64_ns > 0 and item.family not in _OTHER_FAMILIES)
    return tuple(replace(item, ns=item.float64_ns) for item in typed)


def _is_float64_kernel(kernel: Work) -> bool:
    return kernel.math == "f64" or bool(_FLOAT64_KERNEL.search(kernel.name))


FLOAT64 = step_rule(
    "float64",
    _float64,
    Shares(0.10, high=1 / 3),  # float32 halves the bytes at least: a tenth of the step then saves a twentieth
    """
Fires on work in float64.

Networks are trained in 32 bits and less. float64 doubles the bytes, runs without the fast tensor cores, and on many devices has
1/32 of the float32 peak. It usually enters by accident: NumPy arrays, `torch.tensor` of a NumPy scalar, `.double()`, or
`torch.set_default_dtype`. On a device, the names of kernels show it; a trace with `record_shapes=True` in which no operator reads
float64 does not have it, whatever the names. On a CPU, the types of parameters and inputs of a report show it, and those of a
trace with `record_shapes=True`.

The saving is half of the time: half of the bytes. Products save more where the others of the step have a higher peak.
""",
)

# The peak in 16 bits is twice the peak in TF32, so 16 bits save at most about the time that the products still take.
MIN_CONVERSION_FACTOR: Final = 1.0
# Autocast converts the three inputs of a product, and the inputs and results of the layers between two products.
MAX_CALLS_PER_PRODUCT: Final = 10


def _conversions(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    ns, products = conversion_ns(work), work.select(is_half_product if work.on_device else is_product)
    calls, product_calls, products_ns = conversion_calls(work), total_calls(products), total_ns(products)
    if not products or ns < MIN_CONVERSION_FACTOR * products_ns:
        return None
    if calls < product_calls or (not work.on_device and calls > MAX_CALLS_PER_PRODUCT * product_calls):
        return None
    factor = (
        f"{factor_text(ns / products_ns)} as long as the convolutions and matrix products ({text(products_ns, 'ns')})"
    )
    kernels = work.select(lambda item: is_conversion(item) or (not work.on_device and item.family == "cat/copy"))
    return StepPart(
        ns=ns,
        what="Conversions between data types take",
        sentences=(
            f"Conversions take {text(ns, 'ns')} {work.per_step}, {factor}.",
            "Where the products would use TF32 otherwise, lower precision cannot save more than they cost.",
        ),
        advice="Keep tensors in one type from product to product: weights in 16 bits with {code}, and no operations between that "
        "return float32, such as a softmax, a norm or a sum written out. Check the quality. Where the layers are small, leave "
        f"autocast out: torch.autocast(device_type='{work.device_type}', enabled=False).",
        code="model.to(torch.bfloat16)",
        measures=(("time of conversions", ns, "ns"), ("time of products", products_ns, "ns")),
        weight=work.share(ns + launch_idle_ns(work, kernels)),
        claims=(*work_claims(work, kernels), *LAUNCH_CLAIMS),
    )


AUTOCAST_USELESS = step_rule(
    "autocast_useless",
    _conversions,
    Shares(0.10, medium=0.20),  # more than autocast converts in a network of usual layer sizes
    f"""
Fires if conversions between data types take at least as long as the convolutions and matrix products in 16 bits.

Autocast converts the inputs and weights of each product. Tensor cores are twice as fast in 16 bits as in TF32, so the products
save at most the time that they take in 16 bits. If the conversions take as long, nothing is gained: the layers are too small.
Names of kernels show conversions; on a CPU, calls of `_to_copy` do, and all products count. Without products in 16 bits, or with
fewer conversions than products, the conversions have another reason; so have more than {MAX_CALLS_PER_PRODUCT} for each product
on a CPU, such as the step counters of an optimizer. The finding explains the idle time before the launches of conversions too.
""",
    states_share=False,
)
