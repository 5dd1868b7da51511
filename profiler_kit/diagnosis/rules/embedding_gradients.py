"""Dense gradients of embedding tables, which cost as much as the whole table."""

from __future__ import annotations

import re
from typing import Final

from profiler_kit.diagnosis.facts import counts_of
from profiler_kit.diagnosis.phrases import join_list, layer_name, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, total_calls, total_ns, work_claims
from profiler_kit.diagnosis.work_groups import is_fill
from profiler_kit.records.claims import phase_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import percent, text

# The backward pass of an embedding adds a few rows. More than a tenth of the step is the fill of a large table.
MIN_SHARE: Final = 0.10
# Half of the step and more: the table decides its length.
LARGE_SHARE: Final = 0.50
# The optimizer's time counts where at least half of the parameters are in embedding tables.
MIN_PARAMS_SHARE: Final = 0.5
# Without counts: the fill writes the gradient once, and an optimizer reads and writes each parameter, its gradient and its state
# in at most 25 passes. A slower optimizer updates more than the tables.
MAX_PASSES: Final = 25
# More fills than this for each embedding are those of other gradients: of slices, or of zero_grad with set_to_none=False.
MAX_FILLS_PER_TABLE: Final = 6

_BACKWARD_OPERATOR: Final = re.compile(
    r"embedding(_bag)?(_dense)?_backward|EmbeddingBackward|embedding_bag_dense_backward"
)
_BACKWARD_KERNEL: Final = re.compile(
    r"embedding_(bag_)?backward|EmbeddingBag_updateGradInput|compute_grad_weight|sum_and_scatter"
)

DOC = f"""
Fires if the backward pass of embeddings takes at least {limit_percent(MIN_SHARE)} of the step. `high` from
{limit_percent(LARGE_SHARE)} on, `medium` below.

The gradient of an embedding is as large as its table: backward fills it with zeros and adds a few rows, and the optimizer then
reads and writes the whole table. With `sparse=True`, both touch the rows of the batch only. The fills are part of the time, and
so is the optimizer where at least half of the parameters are in tables: by the counts of a report, or in a trace because the
optimizer takes at most {MAX_PASSES} times as long as the fills.
"""


def _embedding_gradients(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    """Return the cost of dense embedding gradients; None below the limit, or without such work."""
    names, static = _BACKWARD_KERNEL if work.on_device else _BACKWARD_OPERATOR, counts_of(report)
    kernels = work.select(lambda item: names.search(item.name) is not None)
    if not kernels:
        return None
    fills = work.select(is_fill)
    # each table has a fill and few others; a gradient of something else has the rest
    if max((item.calls for item in fills), default=0) > MAX_FILLS_PER_TABLE * total_calls(kernels):
        fills = ()
    tables = [node for node in static.modules if "Embedding" in node.class_name] if static is not None else []
    backward_ns, optimizer_ns = total_ns(kernels) + total_ns(fills), work.phase_ns.get("optimizer", 0)
    if static is not None and static.params > 0:
        owns_parameters = sum(node.params for node in tables) >= MIN_PARAMS_SHARE * static.params
    else:
        owns_parameters = optimizer_ns <= MAX_PASSES * total_ns(fills)
    optimizer_ns = optimizer_ns if owns_parameters else 0
    share, paths = work.share(backward_ns + optimizer_ns), tuple(node.path for node in tables)
    if share < MIN_SHARE:
        return None
    of_tables = f" of {join_list([layer_name(path) for path in paths])}" if paths else ""
    optimizer = f", and the optimizer takes {text(optimizer_ns, 'ns')}" if optimizer_ns else ""
    return StepPart(
        share=share,
        severity=severity_of(share, high=LARGE_SHARE),
        title=f"Dense embedding gradients take {percent(share)} of the {work.facts.whole}",
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
        # Kernels have no phase, so their claims would count again what the optimizer's phase contains.
        claims=phase_claims("optimizer", "backward")
        if optimizer_ns and "backward" in work.phase_ns
        else (*(phase_claims("optimizer") if optimizer_ns else ()), *work_claims(work, (*kernels, *fills))),
    )


RULE = step_rule("embedding_gradients", DOC, _embedding_gradients)
