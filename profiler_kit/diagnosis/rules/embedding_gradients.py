"""Dense gradients of embedding tables, which cost as much as the whole table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.phrases import join_list, join_sentences, layer_name, limit_percent
from profiler_kit.diagnosis.rule import Rule, evidence_of
from profiler_kit.diagnosis.step_work import StepWork, Work, step_works, total_calls, total_ns, work_claims, worst_step
from profiler_kit.diagnosis.work_groups import is_fill
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingGradients:
    """The time of embedding backward with its fills, that of the optimizer if it belongs to it, and its share of the step."""

    kernels: tuple[Work, ...]
    backward_ns: int
    optimizer_ns: int
    share: float
    paths: tuple[str, ...] = ()


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of embedding gradients."""
    static = report.static if isinstance(report, Report) else None
    if (
        worst := worst_step(
            step_works(report), lambda work: embedding_gradients(work, static), lambda match: match.share
        )
    ) is None:
        return
    work, match = worst.step, worst.match
    optimizer = f", and the optimizer takes {text(match.optimizer_ns, 'ns')}" if match.optimizer_ns else ""
    tables = f" of {join_list([layer_name(path) for path in match.paths])}" if match.paths else ""
    yield RULE.finding(
        severity="high" if match.share >= LARGE_SHARE else "medium",
        title=f"Dense embedding gradients take {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}The backward pass of embeddings{tables} takes {text(match.backward_ns, 'ns')} "
            f"{work.per_step}, with the fill of the gradient{optimizer}.",
            "The gradient is as large as the table, although a batch uses few of its rows.",
            worst.others_sentence(),
        ),
        advice="Use sparse gradients, with torch.optim.SparseAdam or SGD: {code}. Otherwise use a smaller table: fewer rows "
        "(hashing), or fewer features and a projection.",
        code="torch.nn.Embedding(rows, features, sparse=True)",
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name="backward of embeddings", value=match.backward_ns, unit="ns", where=work.name),
            *evidence_of(work.name, ("time of the optimizer", match.optimizer_ns or None, "ns")),
        ),
        paths=match.paths,
        weight=match.share,
        # Kernels have no phase, so their claims would count again what the optimizer's phase contains.
        claims=(
            *(("busy:phase:optimizer",) if match.optimizer_ns else ()),
            *(
                ("busy:phase:backward",)
                if match.optimizer_ns and "backward" in work.phase_ns
                else work_claims(work, match.kernels)
            ),
        ),
    )


def embedding_gradients(work: StepWork, static: StaticCount | None = None) -> EmbeddingGradients | None:
    """Return the cost of dense embedding gradients; None below the limit, or without such work."""
    names = _BACKWARD_KERNEL if work.on_device else _BACKWARD_OPERATOR
    kernels = work.select(lambda item: names.search(item.name) is not None)
    if not kernels:
        return None
    fills = work.select(is_fill)
    tables = [node for node in static.modules if "Embedding" in node.class_name] if static is not None else []
    params = static.params if static is not None else 0
    # each table has a fill and few others; a gradient of something else has the rest
    is_table_fill = max((item.calls for item in fills), default=0) <= MAX_FILLS_PER_TABLE * total_calls(kernels)
    fills = fills if is_table_fill else ()
    optimizer_ns = work.phase_ns.get("optimizer", 0)
    if params > 0:
        owns_parameters = sum(node.params for node in tables) >= MIN_PARAMS_SHARE * params
    else:
        owns_parameters = is_table_fill and optimizer_ns <= MAX_PASSES * total_ns(fills)
    optimizer_ns = optimizer_ns if owns_parameters else 0
    backward_ns = total_ns(kernels) + total_ns(fills)
    share = work.share(backward_ns + optimizer_ns)
    if share < MIN_SHARE:
        return None
    return EmbeddingGradients(
        kernels=(*kernels, *fills),
        backward_ns=backward_ns,
        optimizer_ns=optimizer_ns,
        share=share,
        paths=tuple(node.path for node in tables),
    )


RULE = Rule("embedding_gradients", DOC, check, "cause", "both")
