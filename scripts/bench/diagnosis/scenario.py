"""Scenarios of the diagnosis benchmark: programs with one planted cause, and the finding that an expert expects.

The held-out scenarios are the rows of `heldout.json`: their recordings exist, and their programs are in the history of
`heldout/` up to commit 9a0182c9. A visible scenario is a Python file in
tests/fixtures/diagnosis/programs/, beside the recordings, written like a user's training script:

- its docstring names the cause;
- ``CAUSE`` is a key of `CAUSES`, or "nothing";
- ``train(device)`` is a generator that yields after each step, where a user would write ``profiler.step()``; or the program is
  ``main(profiler)``, which calls ``profiler.step()`` after each of its steps and chooses its device itself;
- ``DEVICE`` is "cpu", "cuda" or "any" (default "any"): where the cause exists;
- ``STEPS`` (default 3) and ``WARMUP`` (default 3) are the numbers of recorded steps and of steps before them;
- ``FORMS`` (default "plain", "stacks") are the forms in which the cause shows: a trace without stacks ("plain"), with stacks
  and shapes ("stacks"), a report of ``profiler_kit analyze`` ("analyze");
- ``ANALYZE`` are the arguments of ``profiler_kit analyze`` for the form "analyze": the function or class of the file that makes
  the model, then options;
- ``ALSO`` (default ()) names causes that are true as well, so that findings about them are not wrong;
- ``RANKS`` (default 1) is the number of processes; ``train(device)`` may then use torch.distributed, which is initialized.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Literal

Part = Literal["visible", "heldout"]
PARTS: Final[tuple[Part, ...]] = ("visible", "heldout")
TRACE_FORMS: Final = ("plain", "stacks")
ANALYZE: Final = "analyze"
FORMS: Final = (*TRACE_FORMS, ANALYZE)
DEVICES: Final = ("cpu", "cuda", "any")
OPTIONS: Final = ("ALSO", "FORMS", "ANALYZE", "DEVICE", "RANKS", "STEPS", "WARMUP")
NOTHING: Final = "nothing"
HELDOUT: Final = Path(__file__).with_name("heldout.json")
PROGRAMS: Final = Path(__file__).resolve().parents[3] / "tests" / "fixtures" / "diagnosis" / "programs"

# For each cause, the rules whose finding names it.
CAUSES: Final[dict[str, frozenset[str]]] = {
    cause: frozenset(rules.split())
    for cause, rules in {
        "data": "data_bound",
        "sync": "sync_waits",
        "launch": "launch_bound host_overhead",
        "python": "host_overhead launch_bound",
        "threads": "thread_oversubscription",
        "optimizer": "optimizer_bound",
        "cold_start": "cold_start compile_time memory_allocation",
        "compile": "compile_time recompilation",
        "changing_shapes": "changing_shapes recompilation compile_time slow_preparation",
        "host_copies": "host_copies",
        "layer": "dominant_layer dominant_operator slow_algorithm",
        "attention": "attention_by_hand",
        "precision": "no_tensor_cores half_precision tf32_in_use float64",
        "float64": "float64",
        "autocast": "autocast_useless",
        "layout": "layout_overhead tensor_copies",
        "channels": "channels_multiple unaligned_products",
        "depthwise": "depthwise",
        "cudnn": "cudnn_off_by_accident not_on_cudnn cudnn_off_fallback",
        "embedding": "embedding_gradients",
        "pointwise": "pointwise_chain memory_bound",
        "copies": "tensor_copies layout_overhead",
        "loss": "loss_bound",
        "recompute": "recompute_share",
        "memory": "memory_allocation activations_peak workspace_peak startup_peak",
        "anomaly": "anomaly_mode",
        "communication": "communication_exposed small_buckets unused_parameters pipeline_bubbles",
        "straggler": "stragglers",
        "cpu_fallback": "cpu_fallback host_copies sync_waits",
        "place": "costly_place",
    }.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario: its file, and the cause that a diagnosis should name."""

    name: str
    part: Part
    cause: str
    text: str
    also: tuple[str, ...] = ()
    forms: tuple[str, ...] = TRACE_FORMS
    analyze: tuple[str, ...] = ()
    device: Literal["cpu", "cuda", "any"] = "any"
    ranks: int = 1
    steps: int = 3
    warmup: int = 3

    @property
    def module(self) -> ModuleType:
        """The program of a visible scenario. Importing it imports torch."""
        return _module_of(self.file)

    @property
    def file(self) -> Path:
        """The program's file."""
        return PROGRAMS / f"{self.name}.py"

    def runs_on(self, device: str) -> bool:
        """Whether the cause exists on `device`."""
        return self.device in ("any", device)

    @property
    def right(self) -> frozenset[str]:
        """The rules that name the planted cause."""
        return CAUSES.get(self.cause, frozenset())

    @property
    def accepted(self) -> frozenset[str]:
        """The rules that name a cause that is true."""
        return self.right.union(*(CAUSES[cause] for cause in self.also))


def scenarios(*parts: Part) -> Iterator[Scenario]:
    """The scenarios of `parts` in name order. Raises ValueError for a file that does not follow the form."""
    if not parts or "visible" in parts:
        yield from map(_program, sorted(PROGRAMS.glob("*.py")))
    if not parts or "heldout" in parts:
        for row in json.loads(HELDOUT.read_text(encoding="utf-8")):
            yield Scenario(**row | {"part": "heldout", "also": tuple(row["also"]), "forms": tuple(row["forms"])})


@cache
def _module_of(file: Path) -> ModuleType:
    name = f"diagnosis_programs_{file.stem}"  # as workers of a data loader find it
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"{file}: not a Python file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _program(file: Path) -> Scenario:
    name = file.stem
    values = vars(_module_of(file))
    options = {key.lower(): values[key] for key in OPTIONS if key in values}
    options |= {key: tuple(value) for key, value in options.items() if isinstance(value, (list, tuple))}
    scenario = Scenario(
        name=name, part="visible", cause=values.get("CAUSE", ""), text=(values["__doc__"] or "").strip(), **options
    )
    if problem := _problem(scenario, values):
        raise ValueError(f"{file}: {problem}")
    return scenario


def _problem(scenario: Scenario, values: dict[str, Any]) -> str:
    """The part of the file that does not follow the form, or ""."""
    if unknown := {scenario.cause, *scenario.also} - {*CAUSES, NOTHING}:
        return f"no such cause in CAUSES: {', '.join(sorted(unknown))}"
    if not scenario.text:
        return "no docstring"
    if not callable(values.get("train")):
        return "no function train(device)"
    if scenario.device not in DEVICES:
        return f"DEVICE is not one of {', '.join(DEVICES)}"
    if not scenario.forms or set(scenario.forms) - set(FORMS):
        return f"FORMS are not some of {', '.join(FORMS)}"
    if (ANALYZE in scenario.forms) != bool(scenario.analyze):
        return f"the form {ANALYZE} needs ANALYZE, and the reverse"
    if scenario.analyze and not callable(values.get(scenario.analyze[0])):
        return f"no function {scenario.analyze[0]}()"
    if min(scenario.ranks, scenario.steps) < 1 or scenario.warmup < 0:
        return "RANKS and STEPS are at least 1, WARMUP at least 0"
    return ""
