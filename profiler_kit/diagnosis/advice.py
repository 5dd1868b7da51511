"""Advice that is a configuration: what it is called, whether it means anything here, and which runs try it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.devices.device import FIRST_WITH_TF32
from profiler_kit.diagnosis.pairs import run_of, same_choice
from profiler_kit.diagnosis.words import listing
from profiler_kit.records.configs import NamedValue, RunConfig
from profiler_kit.records.report import Report, Trial
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import Noise
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent

ON: Final = "on"  # the value of a setting that is a switch
_FLAG_WORDS: Final = ("benchmark", "deterministic", "no-tf32", "default")
_TRAINING: Final = ("fused_optimizer", "no_item", "checkpoint")
_IMAGES: Final = (4, 5)  # dimensions of what has channels to put last


@dataclass(frozen=True, slots=True)
class Attempt:
    """Configurations that try a piece of advice: `tries` by name, in order of preference; what came of those that ran.

    `config` is the one that gained most of those that ran, else the first; `trial` is its.
    """

    tries: tuple[str, ...] = ()
    config: str | None = None
    trial: Trial | None = None
    others: tuple[Trial, ...] = ()

    def sentence(self) -> str:
        """What came of the others that ran, in words; empty without any."""
        said = [f'"{one.config}" ({outcome(one)})' for one in self.others]
        return f"Also tried: {listing(said)}." if said else ""


def outcome(tried: Trial) -> str:
    """What came of a trial, in a few words: ``12.1 % less time``, ``no sure difference``."""
    if tried.verdict == "failed":
        return "failed"
    if tried.verdict == "same" or tried.gain_percent is None:
        return "no sure difference"
    each = " per example" if tried.per_example else ""
    share = tried.gain_percent / 100.0
    return f"{percent(share)} less time{each}" if share > 0 else f"{percent(-share)} more time{each}"


def attempt(report: Report, run: ConfigRun, words: Sequence[str], noise: Noise) -> Attempt:
    """How `words` of advice (``amp_bf16``, ``batch=2x``, ``benchmark``) are tried beside `run`, those that mean something."""
    wanted = [changed(run.config, word) for word in words if not _pointless(report, run, word)]
    names, tried = [], []
    for config in wanted:
        found = run_of(report, config)
        if same_choice(config, run.config) or (found is not None and found.failure is not None):
            continue  # what failed has a finding of its own, and would fail again
        names.append(found.config.name if found is not None else config.name)
        one = sweep_trial(run, found, noise)
        if one is not None:
            tried.append(one)
    best = max(tried, key=_worth, default=None)
    return Attempt(
        tries=tuple(dict.fromkeys(names)),
        config=best.config if best is not None else next(iter(names), None),
        trial=best,
        others=tuple(one for one in tried if one is not best),
    )


def _worth(tried: Trial) -> tuple[int, float]:
    rank = {"better": 3, "same": 2, "worse": 1, "failed": 0}
    return rank[tried.verdict], tried.gain_percent or 0.0


def changed(config: RunConfig, word: str) -> RunConfig:
    """`config` with one word of a configuration's name on top, named as such configurations are: ``benchmark+channels_last``.

    ``default`` stands for TF32 allowed, which is what the default does.
    """
    match word:
        case "benchmark":
            config = replace(config, benchmark=True)
        case "deterministic":
            config = replace(config, deterministic=True)
        case "no-tf32":
            config = replace(config, allow_tf32=False)
        case "default":
            config = replace(config, allow_tf32=True)
        case _:
            name, has_value, value = word.partition("=")
            others = [item for item in config.settings if item.name != name]
            item = NamedValue(name=name, value=value if has_value else ON)
            config = replace(config, settings=tuple(sorted([*others, item], key=lambda one: one.name)))
    return replace(config, name="+".join(_words(config)) or "default")


def _words(config: RunConfig) -> Iterator[str]:
    if config.enabled is False:
        yield "cudnn-off"
    else:
        flags = (config.benchmark is True, config.deterministic is True, config.allow_tf32 is False)
        yield from (word for word, on in zip(_FLAG_WORDS, flags, strict=False) if on)
    for item in config.settings:
        for value in item.value.split(","):
            yield item.name if value == ON else f"{item.name}={value}"


def _pointless(report: Report, run: ConfigRun, word: str) -> bool:
    """Whether `word` means nothing for the target, or on the run's device."""
    name, target = word.partition("=")[0], report.target
    device = run.environment.device if run.environment is not None else "cuda"
    if name in ("benchmark", "deterministic") and getattr(run.config, name) is None:
        return True
    if name in ("no-tf32", "default") and run.config.allow_tf32 is None:
        return True
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
    capability = run.environment.capability if run.environment is not None else None
    if capability is None:
        return None
    parts = capability.split(".")
    return tuple(int(part) for part in parts[:2] if part.isdigit()) >= divmod(FIRST_WITH_TF32, 10)
