"""Operators outside the layers of a network: sorting, indexing, gradients of embeddings, the loss, recomputation."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from profiler_kit.diagnosis.facts import counts_of
from profiler_kit.diagnosis.family_advice import OUTSIDE_LAYERS
from profiler_kit.diagnosis.phrases import join_list, layer_name
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, Work, total_calls, total_ns, work_claims
from profiler_kit.diagnosis.work_groups import is_fill
from profiler_kit.records.claims import module_claims, phase_claims
from profiler_kit.records.counts import LOSS_PATH
from profiler_kit.records.families import family_name, is_contraction
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import ShapedOperator
from profiler_kit.units import text

MAX_NAME_LENGTH: Final = 60  # kernel names have thousands of characters


def _dominant_kind(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    """Return the kernels (on a CPU: operators) of the family with most time."""
    by_family: defaultdict[str, list[Work]] = defaultdict(list)
    for item in work.select(lambda item: item.family in OUTSIDE_LAYERS):
        by_family[item.family].append(item)
    if not by_family:
        return None
    family, kernels = max(by_family.items(), key=lambda pair: total_ns(pair[1]))
    ns = max(0, total_ns(kernels) - work.host_data_ns)
    operators = work.select(lambda item: item.family == family, operators=True) or tuple(kernels)
    parts = [f"{item.name[:MAX_NAME_LENGTH]} {text(item.ns, 'ns')}" for item in operators[:3]]
    return StepPart(
        ns=ns,
        what=f"{family_name(family).capitalize()} ({_shortened(operators[0].name)}) take",
        sentences=(
            f"They take {text(ns, 'ns')} of {work.clock_name} {work.per_step}"
            f"{', without data loading' if work.host_data_ns else ''}. In all, there are "
            f"{total_calls(operators) // work.steps:,} calls{work.facts.each}: {join_list(parts)}.",
        ),
        advice=OUTSIDE_LAYERS[family],
        measures=((family_name(family), ns, "ns"),),
        claims=work_claims(work, kernels),
    )


def _shortened(name: str) -> str:
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[:MAX_NAME_LENGTH]}..."


DOMINANT_OPERATOR = step_rule(
    "dominant_operator",
    _dominant_kind,
    Shares(0.25, high=0.50),  # a network mostly multiplies; other work of this size is worth a look at its source line
    """
Fires on operations of one kind that are not the layers of a network: sorting and scans, indexing, Fourier transforms,
interpolation, random numbers, reductions, pooling.

Convolutions, matrix products, attention, normalization, pointwise operations, copies, the loss and the optimizer have their own
rules. On a CPU, operators that make batches do not count (rule `data_bound`): their time is subtracted, so the share is a lower
bound. The finding ranks after those that say at which place of the program most of this work is, or why.
""",
    topic="place",
)


# The optimizer's time counts where at least half of the parameters are in embedding tables.
MIN_PARAMS_SHARE: Final = 0.5
# Without counts: the fill writes the gradient once, and an optimizer reads and writes each parameter, its gradient and its state
# in at most 25 passes. A slower optimizer updates more than the tables.
MAX_PASSES: Final = 25
# More fills than this for each embedding are those of other gradients, or of zero_grad with set_to_none=False.
MAX_FILLS_PER_TABLE: Final = 6
_EMBEDDING_OPERATOR: Final = re.compile(
    r"embedding(_bag)?(_dense)?_backward|EmbeddingBackward|embedding_bag_dense_backward"
)
_EMBEDDING_KERNEL: Final = re.compile(
    r"embedding_(bag_)?backward|EmbeddingBag_updateGradInput|compute_grad_weight|sum_and_scatter"
)


def _embedding_gradients(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    """Return the cost of dense embedding gradients; None without such work."""
    names, static = _EMBEDDING_KERNEL if work.on_device else _EMBEDDING_OPERATOR, counts_of(report)
    kernels = work.select(lambda item: names.search(item.name) is not None)
    if not kernels:
        return None
    # each table has a fill and few others; kernels with more calls fill the gradients of something else
    fills = work.select(lambda item: is_fill(item) and item.calls <= MAX_FILLS_PER_TABLE * total_calls(kernels))
    tables = [node for node in static.modules if "Embedding" in node.class_name] if static is not None else []
    backward_ns, optimizer_ns = total_ns(kernels) + total_ns(fills), work.phase_ns.get("optimizer", 0)
    if static is not None and static.params > 0:
        owns_parameters = sum(node.params for node in tables) >= MIN_PARAMS_SHARE * static.params
    else:
        owns_parameters = optimizer_ns <= MAX_PASSES * total_ns(fills)
    optimizer_ns = optimizer_ns if owns_parameters else 0
    paths = tuple(node.path for node in tables)
    of_tables = f" of {join_list([layer_name(path) for path in paths])}" if paths else ""
    optimizer = f", and the optimizer takes {text(optimizer_ns, 'ns')}" if optimizer_ns else ""
    return StepPart(
        ns=backward_ns + optimizer_ns,
        what="Dense embedding gradients take",
        sentences=(
            f"The backward pass of embeddings{of_tables} takes {text(backward_ns, 'ns')} {work.per_step}, with the fill of the "
            f"gradient{optimizer}.",
            "The gradient is as large as the table, although a batch uses few of its rows.",
        ),
        advice="Use sparse gradients, with torch.optim.SparseAdam or SGD: {code}. Otherwise use a smaller table: fewer rows "
        "(hashing), or fewer features and a projection.",
        code="torch.nn.Embedding(rows, features, sparse=True)",
        measures=(("backward of embeddings", backward_ns, "ns"), ("time of the optimizer", optimizer_ns or None, "ns")),
        paths=paths,
        claims=(*(phase_claims("optimizer") if optimizer_ns else ()), *work_claims(work, (*kernels, *fills))),
    )


EMBEDDING_GRADIENTS = step_rule(
    "embedding_gradients",
    _embedding_gradients,
    Shares(0.10, high=0.50),  # the backward pass of an embedding adds a few rows; more is the fill of a large table
    f"""
Fires on the backward pass of embeddings.

The gradient of an embedding is as large as its table: backward fills it with zeros and adds a few rows, and the optimizer then
reads and writes the whole table. With `sparse=True`, both touch the rows of the batch only. The fills are part of the time, and
so is the optimizer where at least half of the parameters are in tables: by the counts of a report, or in a trace because the
optimizer takes at most {MAX_PASSES} times as long as the fills.
""",
)

_LOSS_WORK: Final = re.compile(r"log_?softmax|nll_loss|cross_entropy|_loss(_|\Z|\d)")  # of names in lower case


def _loss(report: Report | TraceReport, work: StepWork) -> StepPart:
    kernels = work.select(lambda item: _LOSS_WORK.search(item.name.lower()) is not None)
    # The phase ends before backward, and the names do not show all of the loss: the larger one is a lower bound.
    backward_ns = total_ns([item for item in kernels if "backward" in item.name.lower()])
    operators = [item for item in work.trace.shapes if _LOSS_WORK.search(item.name.lower()) is not None]
    ns = max(
        work.phase_ns.get("loss", 0) + backward_ns,
        work.module_ns.get(LOSS_PATH, 0),
        total_ns(kernels),
        sum(item.kernel_ns for item in operators) if work.on_device else 0,
    )
    output_ns = _output_layer_ns(work, operators)
    return StepPart(
        ns=ns,
        what="The loss takes",
        sentences=(
            f"The loss takes {text(ns, 'ns')} of {work.clock_name} {work.per_step}, with the part of its backward pass whose "
            "names show it.",
            "It reads and writes the outputs of the model several times, usually for a softmax over many classes.",
            f"The layer that computes these outputs takes {text(output_ns, 'ns')} more." if output_ns else "",
        ),
        advice="Compute outputs and loss only where they count, without masked, padded or ignored positions. Compile the loss, "
        "so that it reads the outputs once: {code}. With many classes, compute it in chunks of the batch, or use fewer classes "
        "per example (sampled or adaptive softmax).",
        code="loss_fn = torch.compile(loss_fn)",
        measures=(("time of the loss", ns, "ns"), ("time of the output layer", output_ns or None, "ns")),
        claims=(*phase_claims("loss"), *module_claims([LOSS_PATH]), *work_claims(work, kernels)),
    )


def _output_layer_ns(work: StepWork, losses: Sequence[ShapedOperator]) -> int:
    """Return the time of the products whose weight has as many rows as the inputs of a loss have classes; 0 if unknown."""
    classes = {loss.shapes[0][-1] for loss in losses if loss.shapes and loss.shapes[0]}
    layers = [item for item in work.trace.shapes if is_contraction(item.family) and len(item.shapes) > 1]
    return sum(item.kernel_ns for item in layers if classes & {*item.shapes[1][:1]})


LOSS_BOUND = step_rule(
    "loss_bound",
    _loss,
    Shares(0.20, high=0.50),  # a loss reads the outputs a few times; here they are as expensive as the model
    """
Fires on the loss, in device time (on a CPU: operator time), with its backward pass where the names show it.

This is real work, usually a softmax over many classes. Rule `wrong_phase` covers a loss that only waits for the device.
""",
    keeps=0.5,  # computing the softmax once instead of twice, or in a smaller type
)


def _recomputation(report: Report | TraceReport, work: StepWork) -> StepPart:
    recompute_ns, forward_ns = work.phase_ns.get("recompute", 0), work.phase_ns.get("forward", 0)
    return StepPart(
        ns=recompute_ns,
        what="Activation checkpointing: recomputation takes",
        sentences=(
            f"Backward repeats {text(recompute_ns, 'ns')} of forward work {work.per_step}.",
            f"The forward pass takes {text(forward_ns, 'ns')}." if forward_ns else "",
        ),
        advice="If memory allows, checkpoint fewer modules: those that save much and compute little (normalization, "
        "activations, attention scores) instead of whole blocks. profiler-kit count --checkpoint PATH predicts the memory.",
        measures=(("recomputation", recompute_ns, "ns"),),
        claims=phase_claims("recompute"),
    )


RECOMPUTE_SHARE = step_rule(
    "recompute_share",
    _recomputation,
    Shares(0.05, medium=0.15),  # less is a low price for memory; checkpointing all modules takes a fifth to a third
    """
Fires on the recomputation of activations in backward (activation checkpointing).

Recomputation saves memory. A trace does not show whether the memory is needed.
""",
)
