"""The grid of all ops except convolutions.

A builder takes a device and the case's parameters. It returns the function that runs forward and the leaves that need gradients.
"""

from __future__ import annotations

import random

from scripts.lab.probe_case import Case
from scripts.lab.probe_device import FAILURES, Meter
from scripts.lab.probe_function_cases import (
    images_cases,
    lookups_cases,
    losses_cases,
    orders_cases,
    reductions_cases,
    steps_cases,
)
from scripts.lab.probe_layer_cases import attentions_cases, norms_cases, products_cases, recurrent_cases
from scripts.lab.probe_runs import measure_case


def operators() -> dict[str, list[Case]]:
    """All groups by name. Each group is shuffled, so that a shortened run still covers every kind."""
    groups = {
        "recurrent": recurrent_cases,
        "products": products_cases,
        "attentions": attentions_cases,
        "norms": norms_cases,
        "lookups": lookups_cases,
        "reductions": reductions_cases,
        "losses": losses_cases,
        "orders": orders_cases,
        "images": images_cases,
        "steps": steps_cases,
    }
    cases_by_group = {name: list(make()) for name, make in groups.items()}
    cases_by_group["repeatable"] = [
        Case(c.name, c.parameters, deterministic=True) for n in ("recurrent", "images") for c in cases_by_group[n][::23]
    ]
    for name, cases in cases_by_group.items():
        random.Random(name).shuffle(cases)
    return cases_by_group


def failing_cases(meter: Meter) -> list[str]:
    """The cases that fail on the meter's device, with their errors; checks the grid without CUDA."""
    failures = []
    for name, cases in operators().items():
        for case in cases:
            try:
                measure_case(case, meter)
            except FAILURES as error:
                failures.append(f"{name} {case.name} {case.parameters}: {type(error).__name__}: {str(error)[:140]}")
    return failures
