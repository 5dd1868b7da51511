"""The default convention: contractions as MACs, other arithmetic as FLOPs, for every op that runs."""

from __future__ import annotations

from profiler_kit.counting.conventions import Convention

CONVENTION = Convention(
    name="kit",
    sentence="A MAC (multiply-add) is 2 FLOPs. Each element that a pointwise op writes or a reduction reads is 1.",
    unit="2 FLOPs per MAC",
    counts="contractions as MACs; pointwise ops, reductions, norms and pooling as FLOPs without MACs",
    backward="executed ops; recomputed work is a separate phase",
    use="the work of this step on the device; rooflines",
)
