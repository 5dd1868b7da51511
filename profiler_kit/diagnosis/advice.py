"""Advice that is a configuration: what it is called, whether it means anything here, and which runs try it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.devices.device import FIRST_WITH_TF32
from profiler_kit.diagnosis.pairs import Flag, run_of, same_choice, with_flag, without
from profiler_kit.diagnosis.words import listing
from profiler_kit.records.configs import NamedValue, RunConfig
from profiler_kit.records.report import Report, Trial
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent

ON: Final = "on"  # the value of a setting that is a switch
_FLAG_WORDS: Final[dict[str, tuple[Flag, bool]]] = {
    "benchmark": ("benchmark", True),
    "deterministic": ("deterministic", True),
    "no-tf32": ("allow_tf32", False),
    "default": ("allow_tf32", True),
}
_TRAINING: Final = ("fused_optimizer", "no_item", "checkpoint")
_IMAGES: Final = (4, 5)  # dimensions of what has channels to put last


@dataclass(frozen=True, slots=True)
class Attempt:
    """Configurations that try a piece of advice: `tries` by name, in order of preference; what came of those that ran.

    `trial` is of the one that gained most of those that ran.
    """

    tries: tuple[str, ...] = ()
    trial: Trial | None = None
    others: tuple[Trial, ...] = ()

    @property
    def config(self) -> str | None:
        """The configuration of the trial, else the first that would try it."""
        return self.trial.config if self.trial is not None else next(iter(self.tries), None)

    def sentence(self) -> str:
        """What came of the others that ran, in words; empty without any."""
        outcomes = [f'"{trial.config}" ({outcome(trial)})' for trial in self.others]
        return f"Also tried: {listing(outcomes)}." if outcomes else ""


UNTRIED: Final = Attempt()


def outcome(tried: Trial) -> str:
    """What came of a trial, in a few words: ``12.1 % less time``, ``no sure difference``."""
    if tried.verdict == "failed":
        return "failed"
    if tried.verdict == "same" or tried.gain_percent is None:
        return "no sure difference"
    each = " per example" if tried.per_example else ""
    share = tried.gain_percent / 100.0
    return f"{percent(share)} less time{each}" if share > 0 else f"{percent(-share)} more time{each}"


def attempt(report: Report, run: ConfigRun, words: Sequence[str]) -> Attempt:
    """How `words` of advice (``amp_bf16``, ``batch=2x``, ``benchmark``) are tried beside `run`, those that mean something."""
    noise = noise_of(report)
    names, trials = [], []
    for config in (changed(run.config, word) for word in words if not _pointless(report, run, word)):
        swept = run_of(report, config)
        if same_choice(config, run.config) or (swept is not None and swept.failure is not None):
            continue  # what failed has a finding of its own, and would fail again
        names.append(swept.config.name if swept is not None else config.name)
        if (trial := sweep_trial(run, swept, noise)) is not None:
            trials.append(trial)
    rank = ("failed", "worse", "same", "better")
    best = max(trials, key=lambda trial: (rank.index(trial.verdict), trial.gain_percent or 0.0), default=None)
    others = tuple(trial for trial in trials if trial is not best)
    return Attempt(tries=tuple(dict.fromkeys(names)), trial=best, others=others)


def changed(config: RunConfig, word: str) -> RunConfig:
    """`config` with one word of a configuration's name on top, named as such configurations are: ``benchmark+channels_last``.

    ``default`` stands for TF32 allowed, which is what the default does.
    """
    flag, on = _FLAG_WORDS.get(word, (None, True))
    if flag is not None:
        config = with_flag(config, flag, on)
    else:
        name, has_value, value = word.partition("=")
        setting = NamedValue(name=name, value=value if has_value else ON)
        settings = sorted([*without(config, name).settings, setting], key=lambda item: item.name)
        config = replace(config, settings=tuple(settings))
    return replace(config, name="+".join(_words(config)) or "default")


def _words(config: RunConfig) -> Iterator[str]:
    if config.enabled is False:
        yield "cudnn-off"
    else:
        yield from (
            word for word, (flag, on) in _FLAG_WORDS.items() if word != "default" and getattr(config, flag) is on
        )
    for item in config.settings:
        for value in item.value.split(","):
            yield item.name if value == ON else f"{item.name}={value}"


def _pointless(report: Report, run: ConfigRun, word: str) -> bool:
    """Whether `word` means nothing for the target, or on the run's device."""
    name, target = word.partition("=")[0], report.target
    device = run.environment.device if run.environment is not None else "cuda"
    if name in _FLAG_WORDS:
        return getattr(run.config, _FLAG_WORDS[name][0]) is None
    if name == "channels_last":
        return target.channels_last or not any(len(given.shape) in _IMAGES for given in target.inputs)
    if name == "amp_bf16":
        return target.amp is not None or not is_float32(report) or (device == "cuda" and has_tensor_cores(run) is False)
    if name == "batch":
        return target.has_loader  # which decides how large its batches are
    if name == "cuda_graph":
        return not device.startswith("cuda")
    return name in _TRAINING and target.mode != "train"


def is_float32(report: Report) -> bool:
    """Whether the target computes in float32: by its dtype, else by its inputs of floating point."""
    target = report.target
    if target.amp is not None or target.dtype not in (None, "float32"):
        return False
    floating = [given.dtype for given in target.inputs if "float" in given.dtype or given.dtype == "double"]
    return all(dtype == "float32" for dtype in floating)


def has_tensor_cores(run: ConfigRun) -> bool | None:
    """Whether the run's device has tensor cores for TF32 and bfloat16; None where its capability is not known."""
    if run.environment is None or run.environment.capability is None:
        return None
    parts = run.environment.capability.split(".")
    return tuple(int(part) for part in parts[:2] if part.isdigit()) >= divmod(FIRST_WITH_TF32, 10)
