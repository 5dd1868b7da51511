"""The claims of the case study: what is said, who says it, and which function judges it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scripts.case_study import judges_flags, judges_where
from scripts.case_study.figures import Figures
from scripts.case_study.judgement import Judgement


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim: its letter, what is said, who says it, and the function that judges it."""

    letter: str
    title: str
    said: str
    source: str
    judge: Callable[[Figures], Judgement]


ANSWER: Final = "the accepted answer to StackOverflow question 51124101"

CLAIMS: Final = (
    Claim(
        letter="a",
        title="The loss takes the time",
        said="The slow step is neither forward nor backward: nearly all of it is spent computing the loss.",
        source=f"{ANSWER}, from time.time() around each phase",
        judge=judges_where.judge_loss,
    ),
    Claim(
        letter="b",
        title="V0 does 630 million operations, V1 270 million",
        said="The small network is slow because it does about 630 million operations, the large one about 270 million.",
        source=ANSWER,
        judge=judges_where.judge_operations,
    ),
    Claim(
        letter="c",
        title="V0 uses less memory",
        said="The small network needs 1 GB where the large one needs 3 GB.",
        source="the question itself, read off the GPU's memory use",
        judge=judges_where.judge_memory,
    ),
    Claim(
        letter="d",
        title="benchmark=True is markedly faster at a fixed shape",
        said="With inputs of one shape, letting cuDNN time its algorithms makes training markedly faster.",
        source=f"{ANSWER}, and most articles on torch.backends.cudnn.benchmark",
        judge=judges_flags.judge_benchmark,
    ),
    Claim(
        letter="e",
        title="benchmark=True hurts when shapes vary",
        said="Each new input shape is timed anew, so with varying shapes training gets slower.",
        source="the same articles, and the PyTorch forum",
        judge=judges_flags.judge_shapes,
    ),
    Claim(
        letter="f",
        title="Results are not reproducible with benchmark=True",
        said="The timing decides which algorithm runs, so results may differ from run to run.",
        source="PyTorch's notes on reproducibility, and the same articles",
        judge=judges_flags.judge_reproducibility,
    ),
    Claim(
        letter="g",
        title="deterministic=True costs speed",
        said="Deterministic algorithms are slower than the ones they replace.",
        source="PyTorch's notes on reproducibility",
        judge=judges_flags.judge_deterministic,
    ),
    Claim(
        letter="h",
        title="enabled=False falls back",
        said="Without cuDNN the convolutions run in PyTorch's own, slower kernels.",
        source="articles on torch.backends.cudnn",
        judge=judges_flags.judge_fallback,
    ),
    Claim(
        letter="i",
        title="The naive timing loop measures something else",
        said="time.time() around a loop, with no synchronisation and no warm-up, does not measure the step.",
        source="said against the articles, whose figures come from such a loop with the tuning inside it",
        judge=judges_where.judge_naive,
    ),
)

LETTERS: Final = tuple(claim.letter for claim in CLAIMS)
