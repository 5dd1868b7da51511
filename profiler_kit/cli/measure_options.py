"""The options of measuring: how, under which configurations, and what the laboratory is asked beyond them."""

from __future__ import annotations

import argparse

from profiler_kit.cli.values import positive, seconds, size
from profiler_kit.records.laboratory import LaboratoryQuestions


def measure_options(sub: argparse.ArgumentParser) -> None:
    """Adds the options that say how a target is measured."""
    group = sub.add_argument_group("measure")
    group.add_argument("--device", default="auto", metavar="DEV", help="auto (default), cuda, cuda:1, cpu")
    group.add_argument(
        "--configs", metavar="A,B",
        help="only these configurations, as default,benchmark+no-tf32 (default: all of cuDNN's that mean something here)",
    )  # fmt: skip
    group.add_argument(
        "--budget", type=seconds, default=60.0, metavar="TIME", dest="budget_s",
        help="time for steps, shared by all processes; starting them and the first steps come on top (default: 60s)",
    )  # fmt: skip
    group.add_argument("--steps", type=positive, metavar="N", help="timed steps in each process, whatever they take")
    group.add_argument(
        "--timeout", type=seconds, metavar="TIME",
        help="end a process that takes longer (default: 180 s and ten times its share of --budget)",
    )  # fmt: skip


def laboratory_options(sub: argparse.ArgumentParser) -> None:
    """Adds the options of the laboratory."""
    group = sub.add_argument_group("laboratory")
    group.add_argument(
        "--also", action="append", default=[], metavar="A,B",
        help="measure these configurations too: channels_last, amp_bf16, compile, cuda_graph, batch=2x, "
        "checkpoint=PATH, fused_optimizer, no_item, threads=N …; joined by + as benchmark+channels_last (repeatable)",
    )  # fmt: skip
    group.add_argument(
        "--try", action="store_true", dest="trials",
        help="run what the findings advise, before and after in fresh processes, and say what each gained",
    )  # fmt: skip
    group.add_argument(
        "--steps-planned", type=positive, metavar="N",
        help="how many steps you mean to train: does benchmark's search for algorithms pay by then?",
    )  # fmt: skip
    group.add_argument(
        "--shapes", metavar="A,B",
        help="run over changing input shapes, under default and benchmark: sizes as 192,224x256, whole shapes, "
        "a file with one a line, or auto",
    )  # fmt: skip
    group.add_argument(
        "--memory-limit", type=size, metavar="SIZE",
        help="run again under this cap, as 4GiB, what takes more: cuDNN then has fewer algorithms to choose from (CUDA)",
    )  # fmt: skip
    group.add_argument(
        "--counters", action="store_true",
        help="executed operations and DRAM bytes of each convolution by hardware counters (CUDA; needs Nsight Compute, ncu)",
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
