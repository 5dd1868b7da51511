"""The grid of everything but convolutions: each case builds its tensors and says how to run forward, once.

A builder takes a device and the case's parameters; it returns the function to run and the leaves to differentiate for.
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
from scripts.lab.probe_runs import measured


def operators() -> dict[str, list[Case]]:
    """All groups by name; inside a group the order is shuffled, so that a cut loses no kind whole."""
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
    made = {name: list(make()) for name, make in groups.items()}
    made["repeatable"] = [
        Case(c.name, c.parameters, deterministic=True) for n in ("recurrent", "images") for c in made[n][::23]
    ]
    for name, cases in made.items():
        random.Random(name).shuffle(cases)
    return made


def walked(meter: Meter) -> list[str]:
    """What each case says that can't run on the meter's device; for a check of the grid without CUDA."""
    wrong = []
    for name, cases in operators().items():
        for case in cases:
            try:
                measured(case, meter)
            except FAILURES as error:
                wrong.append(f"{name} {case.name} {case.parameters}: {type(error).__name__}: {str(error)[:140]}")
    return wrong
