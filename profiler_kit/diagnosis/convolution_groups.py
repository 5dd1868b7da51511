"""Convolutions of a step by their sizes, from the counts of a report or the shapes of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from profiler_kit.diagnosis.convolution import convolution_of
from profiler_kit.diagnosis.step_work import StepWork
from profiler_kit.records.counts import StaticCount

_OPERATORS = ("aten::conv1d", "aten::conv2d", "aten::conv3d", "aten::convolution")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedConvolution:
    """One convolution layer (in a trace: all with the same shapes) and its time, backward included.

    `path`: its module; empty in a trace.
    """

    path: str
    channels_in: int
    channels_out: int
    groups: int
    kernel: tuple[int, ...]
    ns: int

    @property
    def is_depthwise(self) -> bool:
        """Whether each group has one input channel, so that channels do not mix."""
        return self.groups > 1 and self.groups == self.channels_in


def timed_convolutions(work: StepWork, static: StaticCount | None) -> tuple[TimedConvolution, ...]:
    """Return the convolutions of `work` with their times, longest first."""
    timed = list(_by_modules(work, static)) if static is not None else list(_by_shapes(work))
    return tuple(sorted(timed, key=lambda item: -item.ns))


def _by_modules(work: StepWork, static: StaticCount) -> Iterator[TimedConvolution]:
    for node in static.modules:
        layer = convolution_of(node)
        if layer is not None and (ns := work.module_ns.get(node.path, 0)):
            yield TimedConvolution(
                path=node.path,
                channels_in=layer.channels_in,
                channels_out=layer.channels_out,
                groups=layer.groups,
                kernel=layer.kernel,
                ns=ns,
            )


def _by_shapes(work: StepWork) -> Iterator[TimedConvolution]:
    for operator in work.trace.shapes:
        if operator.name not in _OPERATORS or len(operator.shapes) < 2:
            continue
        data, weight = operator.shapes[:2]
        if len(data) == len(weight) >= 3 and weight[1] and data[1] % weight[1] == 0:
            yield TimedConvolution(
                path="",
                channels_in=data[1],
                channels_out=weight[0],
                groups=data[1] // weight[1],
                kernel=weight[2:],
                ns=operator.kernel_ns,
            )
