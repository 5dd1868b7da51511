"""The kit's own convention: contractions as MACs, everything else that computes as FLOPs, of all that runs."""

from __future__ import annotations

from profiler_kit.counting.conventions import Convention

CONVENTION = Convention(
    name="kit",
    sentence="A MAC (multiply-add) is 2 FLOPs; an element that a pointwise op writes or a reduction reads is 1.",
    unit="2 FLOPs per MAC",
    counts="contractions, and pointwise work, reductions, norms and pooling as FLOPs without MACs",
    backward="executed and counted op by op; recomputed work in a phase of its own",
    use="what this step asks of the device; roofline bounds",
)
