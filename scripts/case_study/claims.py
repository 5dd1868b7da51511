"""The claims of the case study: their wording, their source and the function that judges each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scripts.case_study import cost_verdicts, flag_verdicts
from scripts.case_study.figures import Figures
from scripts.case_study.judgment import Judgment


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim. `letter` identifies it on the command line and on the page. `needs_cuda`: a CPU cannot judge any part of it."""

    letter: str
    title: str
    statement: str
    source: str
    judge_figures: Callable[[Figures], Judgment]
    needs_cuda: bool = False

    def judge(self, figures: Figures) -> Judgment:
        """Judge the claim by `figures`."""
        if self.needs_cuda and not figures.cuda:
            return Judgment(verdict="Needs CUDA")
        return self.judge_figures(figures)


ANSWER: Final = "the accepted answer to StackOverflow question 51124101"

CLAIMS: Final = (
    Claim(
        letter="a",
        title="The loss takes most of the step time",
        statement="Forward and backward are fast. Nearly all of the step time goes into computing the loss.",
        source=f"{ANSWER}, from time.time() around each phase",
        judge_figures=cost_verdicts.judge_loss,
    ),
    Claim(
        letter="b",
        title="V0 needs 630 million operations, V1 needs 270 million",
        statement="The small network is slow because it needs about 630 million operations. "
        "The large network needs about 270 million.",
        source=ANSWER,
        judge_figures=cost_verdicts.judge_operations,
    ),
    Claim(
        letter="c",
        title="V0 uses less memory",
        statement="The small network uses 1 GB. The large network uses 3 GB.",
        source="the question, from the GPU's memory use",
        judge_figures=cost_verdicts.judge_memory,
    ),
    Claim(
        letter="d",
        title="benchmark=True is much faster if the input shape is fixed",
        statement="If all inputs have one shape, cuDNN's algorithm search makes training much faster.",
        source=f"{ANSWER}, and most articles on torch.backends.cudnn.benchmark",
        judge_figures=flag_verdicts.judge_benchmark,
        needs_cuda=True,
    ),
    Claim(
        letter="e",
        title="benchmark=True makes training slower if shapes vary",
        statement="cuDNN repeats its algorithm search for each new input shape. "
        "Training with varying shapes therefore gets slower.",
        source="the same articles, and the PyTorch forum",
        judge_figures=flag_verdicts.judge_shapes,
        needs_cuda=True,
    ),
    Claim(
        letter="f",
        title="benchmark=True makes results irreproducible",
        statement="Timings decide which algorithm cuDNN uses. Results may therefore differ between runs.",
        source="PyTorch's notes on reproducibility, and the same articles",
        judge_figures=flag_verdicts.judge_reproducibility,
        needs_cuda=True,
    ),
    Claim(
        letter="g",
        title="deterministic=True makes training slower",
        statement="Deterministic algorithms are slower than the algorithms that they replace.",
        source="PyTorch's notes on reproducibility",
        judge_figures=flag_verdicts.judge_deterministic,
        needs_cuda=True,
    ),
    Claim(
        letter="h",
        title="enabled=False runs convolutions without cuDNN",
        statement="Without cuDNN, PyTorch runs convolutions in its own, slower kernels.",
        source="articles on torch.backends.cudnn",
        judge_figures=flag_verdicts.judge_fallback,
        needs_cuda=True,
    ),
    Claim(
        letter="i",
        title="A loop without synchronization does not measure the step",
        statement="time.time() around a loop does not measure the step time "
        "if the loop has no synchronization and no warm-up.",
        source="criticism of the same articles, whose loops also include the algorithm search",
        judge_figures=cost_verdicts.judge_naive,
    ),
)

LETTERS: Final = tuple(claim.letter for claim in CLAIMS)
