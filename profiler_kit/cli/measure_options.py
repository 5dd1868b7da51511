"""The options of measuring: how, under which configurations, and what the laboratory is asked beyond them."""

from __future__ import annotations

import argparse

from profiler_kit.cli.values import positive, seconds, size
from profiler_kit.records.laboratory import LaboratoryQuestions


def measure_options(sub: argparse.ArgumentParser) -> None:
    """Adds the options that say how a target is measured."""
    group = sub.add_argument_group("measure")
    group.add_argument("--device", default="auto", metavar="DEV", help="auto (default), cuda, cuda:1, cpu")
    group.add_argument("--configs", metavar="A,B", help="only these cuDNN configurations, as default,benchmark")
    group.add_argument(
        "--budget", type=seconds, default=60.0, metavar="TIME", dest="budget_s",
        help="time for steps over all configurations, start-up and tuning excluded (default: 60s)",
    )  # fmt: skip
    group.add_argument("--steps", type=positive, metavar="N", help="timed steps per configuration, instead of --budget")
    group.add_argument("--timeout", type=seconds, metavar="TIME", help="end a configuration's process after this time")


def laboratory_options(sub: argparse.ArgumentParser) -> None:
    """Adds the options of the laboratory."""
    group = sub.add_argument_group("laboratory")
    group.add_argument(
        "--also", action="append", default=[], metavar="A,B",
        help="further configurations: channels_last, amp_bf16, compile, cuda_graph, batch=2x, checkpoint=PATH, "
        "fused_optimizer, no_item, threads=N …; joined by + as benchmark+channels_last (repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--try", action="store_true", dest="trials",
        help="run what the findings advise, before and after in fresh processes, and say what it gained",
    )  # fmt: skip
    group.add_argument(
        "--steps-planned", type=positive, metavar="N", help="how long you mean to train: does tuning pay by then?"
    )
    group.add_argument(
        "--shapes", metavar="A,B",
        help="a schedule of changing input shapes, as 192,224x256, a file with one a line, or auto",
    )  # fmt: skip
    group.add_argument(
        "--memory-limit", type=size, metavar="SIZE",
        help="measure again under this cap, as 4GiB, what does not fit into it: algorithms change",
    )  # fmt: skip
    group.add_argument(
        "--counters", action="store_true",
        help="executed operations and DRAM bytes of each convolution by hardware counters (needs Nsight Compute, ncu)",
    )  # fmt: skip


def laboratory_questions(given: argparse.Namespace) -> LaboratoryQuestions | None:
    """What is asked of the laboratory; None for nothing."""
    also = tuple(name.strip() for text in given.also for name in text.split(",") if name.strip())
    asked = LaboratoryQuestions(
        also=also,
        trials=given.trials,
        steps_planned=given.steps_planned,
        shapes=given.shapes,
        memory_limit_bytes=given.memory_limit,
        counters=given.counters,
    )
    return None if asked == LaboratoryQuestions() else asked
