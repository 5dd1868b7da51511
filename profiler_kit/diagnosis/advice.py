"""Configurations that try a piece of advice: their names, whether they apply to the target, and the trials in a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.configurations.axis import ON
from profiler_kit.configurations.naming import with_name
from profiler_kit.devices.device import MIN_TF32_CAPABILITY
from profiler_kit.diagnosis.pairs import Flag, find_run, is_same_configuration, with_flag, without_setting
from profiler_kit.diagnosis.phrases import join_list
from profiler_kit.records.configs import NamedValue, RunConfig
from profiler_kit.records.report import Report, TraceReport, Trial
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent

_FLAG_WORDS: Final[dict[str, tuple[Flag, bool]]] = {
    "benchmark": ("benchmark", True),
    "deterministic": ("deterministic", True),
    "no-tf32": ("allow_tf32", False),
    "default": ("allow_tf32", True),
}
_TRAINING_SETTINGS: Final = ("fused_optimizer", "no_item", "checkpoint")
_IMAGE_DIMENSIONS: Final = (4, 5)  # NCHW and NCDHW: the tensors that have a channels-last layout


@dataclass(frozen=True, slots=True)
class AdviceTrials:
    """The configurations that try a piece of advice, and the trials of those that ran.

    `tries`: names of the configurations, in order of preference. `trial`: the best trial. `others`: the other trials.
    """

    tries: tuple[str, ...] = ()
    trial: Trial | None = None
    others: tuple[Trial, ...] = ()

    @property
    def config(self) -> str | None:
        """Name of the best trial's configuration, or the first of `tries` if none ran."""
        return self.trial.config if self.trial is not None else next(iter(self.tries), None)

    def sentence(self) -> str:
        """Return a sentence with the results of the other trials; empty without other trials."""
        outcomes = [f'"{trial.config}" ({outcome_text(trial)})' for trial in self.others]
        return f"Also tried: {join_list(outcomes)}." if outcomes else ""


NO_TRIALS: Final = AdviceTrials()
# Classes of torch.optim that are not spelled like a word.
_OPTIMIZER_CLASSES: Final = {
    name.lower(): name
    for name in ("AdamW", "SGD", "ASGD", "RAdam", "NAdam", "RMSprop", "LBFGS", "SparseAdam")
}  # fmt: skip


def optimizer_class(report: Report | TraceReport) -> str:
    """Return the class of the optimizer; empty without one, and for traces with several or none that names it."""
    if isinstance(report, TraceReport):
        names = {name for trace in report.traces for name in trace.optimizers}
        return names.pop() if len(names) == 1 else ""
    name = report.target.optimizer
    if not name:
        return ""
    return _OPTIMIZER_CLASSES.get(name.lower(), name if name[:1].isupper() else name.capitalize())


def outcome_text(trial: Trial) -> str:
    """Return the result of a trial in a few words: ``12.1 % less time``, ``no significant difference``."""
    if trial.verdict == "failed":
        return "failed"
    if trial.verdict == "unknown":
        return "unknown: one process a side"
    if trial.verdict == "same" or trial.gain_percent is None:
        return "no significant difference"
    per_example = " per example" if trial.per_example else ""
    saving = trial.gain_percent / 100.0
    return f"{percent(saving)} less time{per_example}" if saving > 0 else f"{percent(-saving)} more time{per_example}"


def find_trials(report: Report, run: ConfigRun, words: Sequence[str]) -> AdviceTrials:
    """Return the configurations that add one of `words` (``amp_bf16``, ``batch=2x``, ``benchmark``) to `run`, with trials.

    Words that do not apply to the target or the device are skipped, and so are configurations that failed.
    """
    noise = noise_of(report)
    names, trials = [], []
    for config in (with_option(run.config, word) for word in words if _applies(report, run, word)):
        measured_run = find_run(report, config)
        if is_same_configuration(config, run.config) or (measured_run is not None and measured_run.failure is not None):
            continue  # rule `failed_runs` reports a failure; the configuration would fail again
        names.append(measured_run.config.name if measured_run is not None else config.name)
        if (trial := sweep_trial(run, measured_run, noise)) is not None:
            trials.append(trial)
    rank = ("failed", "worse", "unknown", "same", "better")
    best = max(trials, key=lambda trial: (rank.index(trial.verdict), trial.gain_percent or 0.0), default=None)
    others = tuple(trial for trial in trials if trial is not best)
    return AdviceTrials(tries=tuple(dict.fromkeys(names)), trial=best, others=others)


def trials_of(report: Report | TraceReport, *words: str) -> AdviceTrials:
    """Return the configurations that add one of `words` to the baseline, with trials; none for traces."""
    run = report.baseline() if isinstance(report, Report) else None
    return find_trials(report, run, words) if isinstance(report, Report) and run is not None else NO_TRIALS


def with_option(config: RunConfig, word: str) -> RunConfig:
    """Return `config` with the flag or setting `word` added, and its new name: ``benchmark+channels_last``.

    ``default`` means that TF32 is allowed.
    """
    flag, on = _FLAG_WORDS.get(word, (None, True))
    if flag is not None:
        config = with_flag(config, flag, on)
    else:
        name, has_value, value = word.partition("=")
        setting = NamedValue(name=name, value=value if has_value else ON)
        settings = sorted([*without_setting(config, name).settings, setting], key=lambda item: item.name)
        config = replace(config, settings=tuple(settings))
    return with_name(config)


def _applies(report: Report, run: ConfigRun, word: str) -> bool:
    """Return whether `word` can change anything for the target on the run's device."""
    name, target = word.partition("=")[0], report.target
    device = run.environment.device if run.environment is not None else "cuda"
    if name in _FLAG_WORDS:
        return getattr(run.config, _FLAG_WORDS[name][0]) is not None
    if name == "channels_last":
        return not target.channels_last and any(len(item.shape) in _IMAGE_DIMENSIONS for item in target.inputs)
    if name == "amp_bf16":
        has_fast_bf16 = device != "cuda" or has_tensor_cores(run) is not False
        return target.amp is None and is_float32(report) and has_fast_bf16
    if name == "batch":
        return not target.has_loader  # the data loader sets the batch size
    if name == "cuda_graph":
        return device.startswith("cuda")
    return name not in _TRAINING_SETTINGS or target.mode == "train"


def is_float32(report: Report) -> bool:
    """Return whether the target computes in float32, by its dtype or else by its floating-point inputs."""
    target = report.target
    if target.amp is not None or target.dtype not in (None, "float32"):
        return False
    dtypes = [item.dtype for item in target.inputs if "float" in item.dtype or item.dtype == "double"]
    return all(dtype == "float32" for dtype in dtypes)


def has_tensor_cores(run: ConfigRun) -> bool | None:
    """Return whether the run's device has tensor cores for TF32 and bfloat16; None if its compute capability is unknown."""
    if run.environment is None or run.environment.capability is None:
        return None
    parts = run.environment.capability.split(".")
    return tuple(int(part) for part in parts[:2] if part.isdigit()) >= divmod(MIN_TF32_CAPABILITY, 10)
