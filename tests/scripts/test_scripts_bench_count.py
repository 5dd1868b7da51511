"""The networks counting is timed on: their sizes are the published ones, and speed changes no figure."""

from __future__ import annotations

from collections import Counter
from typing import get_args

import bench_count
import pytest
from bench_models import MODELS

from profiler_kit import counting
from profiler_kit.counting import count_target
from profiler_kit.counting.memo import Memo
from profiler_kit.counting.step import trace_step
from profiler_kit.records.counts import OpRecord

PARAMETERS = {"resnet50": 25_557_032, "vit_b_16": 86_567_656, "gpt2_small": 124_439_808, "llama_7b": 6_738_415_616}


def llama_macs() -> int:
    """Linear layers by the token, attention by the pair of tokens."""
    tokens, width, depth, hidden, vocabulary = 2048, 4096, 32, 11008, 32000
    linear = depth * (4 * width**2 + 3 * width * hidden) + vocabulary * width
    return tokens * linear + depth * 2 * tokens**2 * width


def tallied(ops: tuple[OpRecord, ...]) -> Counter[object]:
    """How often each call, by owner and phase."""
    tally: Counter[object] = Counter()
    for op in ops:
        tally[op[:-1]] += op.calls
    return tally


@pytest.mark.parametrize("phases", get_args(bench_count.Phases))
@pytest.mark.parametrize("name", MODELS)
def test_every_call_is_the_same_without_a_memo(
    name: str, phases: bench_count.Phases, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = bench_count.made(name, phases).target
    fast = trace_step(target, Memo())
    target.model.zero_grad(set_to_none=True)  # an existing gradient is added to, which is another op
    slow = trace_step(target, Memo(limit=0))
    target.model.zero_grad(set_to_none=True)
    assert tallied(fast.ops) == tallied(slow.ops)
    assert fast.calls == slow.calls
    assert fast.saved == slow.saved
    static = count_target(target)
    monkeypatch.setattr(counting, "memo_beside", lambda modes: Memo(limit=0))
    assert static == count_target(target)
    assert static.params == PARAMETERS[name]
    if name == "llama_7b":
        assert static.forward.macs == llama_macs()


def test_counting_takes_less_than_the_step_it_counts() -> None:
    """Half of it on a quiet machine; the bound leaves room for a busy one."""
    case = bench_count.made("gpt2_small", "forward+backward")
    bare, counted = bench_count.timed([bench_count.CONTENDERS[name](case) for name in ("bare", "kit")], 3)
    assert bare is not None
    assert counted is not None
    assert counted < 0.8 * bare


def test_a_contender_may_stay_out() -> None:
    figures = bench_count.timed([lambda: None, None], 1)
    assert figures[0] is not None
    assert figures[1] is None
