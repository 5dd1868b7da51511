"""What a run of a program showed: written into its report, and found again when the program is loaded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler_kit.errors import KitError, UsageError
from profiler_kit.records.seen import SeenModel, SeenRun, file_digest
from profiler_kit.records.serde import from_json

if TYPE_CHECKING:
    from torch import nn

    from profiler_kit.recording.loss_terms import Terms
    from profiler_kit.recording.observations import Observations
    from profiler_kit.recording.origins import Origins

OWN_TERMS: Final = "own terms"  # of a loss: what the loop computes by other operators than losses
REPORTS: Final = Path("profiler_kit_out")  # of `run` and `analyze`, by the name of the program


def seen_run(
    program: Path,
    arguments: Sequence[str],
    models: Sequence[nn.Module],
    observed: Observations,
    origins: Origins,
    losses: Sequence[Terms],
) -> SeenRun:
    """What the steps in `observed` show about the script `program`, which calls `models` and has these `losses`."""
    from profiler_kit.loading.evidence.recorded_run import texts_of_call
    from profiler_kit.loading.training_step.losses import LOSSES
    from profiler_kit.loading.training_step.optimizers import name_of
    from profiler_kit.recording.modules import parameters_of

    call = observed.arguments if len(models) == 1 else None
    amp = observed.arguments.amp if observed.arguments is not None else None
    return SeenRun(
        program=str(program),
        digest=file_digest(program.read_bytes()),
        arguments=tuple(arguments),
        models=tuple(
            SeenModel(
                class_name=type(model).__name__,
                params=sum(parameter.numel() for parameter in parameters_of(model)),
                built_at=origins.built_at(model),
            )
            for model in models
        ),
        inputs=texts_of_call(models[0], call.args, call.kwargs) if call is not None else (),
        mode="train" if observed.has_backward else "infer",
        loss=name if (name := loss_name(losses)) in LOSSES else None,
        optimizer=name_of(observed.optimizer) if observed.optimizer is not None else None,
        amp=str(amp).removeprefix("torch.") if amp is not None else None,
    )


def loss_name(losses: Sequence[Terms]) -> str | None:
    """The terms of each of `losses`, ``bce + own terms, mse``; None where the loop computes all of it by itself."""
    from profiler_kit.loading.training_step.losses import name_of_function

    named = [[name_of_function(term) for term in terms if term is not None] for terms in losses]
    if not any(named):
        return None
    texts = [" + ".join([*names, *([OWN_TERMS] * (None in terms))]) for names, terms in zip(named, losses, strict=True)]
    return ", ".join(texts)


def find_run(target: str, report: Path | None = None) -> SeenRun | None:
    """The run of the script that the text `target` names: that in `report`, or where `run` writes it; None without one.

    A `report` that was given may be of a script of the same name, such as that of another revision.

    Raises UsageError if there is no run of such a script in `report`.
    """
    if report is None:
        return _own_run(target)[1]
    seen = _run_in(report)
    if seen is None or Path(seen.program).name != _script(target).name:
        raise UsageError(
            f"no report of a run of {_script(target).name}",
            where=str(report),
            hint="give the report.json that run has written for it, or none",
        )
    return seen


def run_report(target: str) -> Path | None:
    """The full path of the report that `run` has written for the script of `target`, or that `analyze` made of it."""
    file, seen = _own_run(target)
    return file.absolute() if seen is not None else None


def _own_run(target: str) -> tuple[Path, SeenRun | None]:
    """The file in which `run` reports on the script of `target`, and the run of this script in it; None without one."""
    script = _script(target)
    file = REPORTS / script.stem / "report.json"
    seen = _run_in(file) if script.suffix == ".py" else None
    return file, seen if seen is not None and Path(seen.program) == script.resolve() else None


def _script(target: str) -> Path:
    return Path(target if Path(target).exists() or ":" not in target else target.rpartition(":")[0])


def _run_in(file: Path) -> SeenRun | None:
    """The run in a report; None if there is none, whatever the file is."""
    try:
        content = json.loads(file.read_bytes())
        return from_json(SeenRun, content["target"]["seen"], str(file))
    except (OSError, ValueError, KeyError, TypeError, RecursionError, KitError):
        return None
