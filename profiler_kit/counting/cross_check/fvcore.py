"""The kit's count beside fvcore's `FlopCountAnalysis`, over forward, which is all that it traces."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_flatten, tree_unflatten

from profiler_kit.counting.conventions import Convention, Note, by_name
from profiler_kit.counting.conventions.fvcore import PREFIX, label, watching
from profiler_kit.counting.cross_check.tally import (
    UNEXPLAINED,
    UNKNOWN_TO_KIT,
    Pair,
    build_check,
    failed,
    layers,
    not_followed,
    unexplained_row,
    version_of,
)
from profiler_kit.counting.function_calls import FunctionCalls
from profiler_kit.counting.memo import memo_beside
from profiler_kit.counting.operands import OpFacts
from profiler_kit.counting.step import trace_step
from profiler_kit.counting.watch import output_tensors
from profiler_kit.errors import KitError
from profiler_kit.loading import Target
from profiler_kit.loading.kinds import StepError, free_bytes
from profiler_kit.loading.place import first_line
from profiler_kit.loading.restore import unchanged
from profiler_kit.records.counts import CountPhase, CrossCheck

PEER: Final = "fvcore"
INSTALL: Final = "pip install fvcore, for its own figures beside what its handles give"

NORMS: Final = (
    "fvcore adds 4 or 5 per element of a norm (in evaluation 1 or 2) to its MACs; the kit counts them as FLOPs alone"
)
ELEMENTS: Final = (
    "fvcore adds 1 or 4 per element of upsampling and adaptive pooling to its MACs; the kit counts them as FLOPs alone"
)
BROADCAST: Final = "fvcore does not repeat an operand that is broadcast"
EINSUM: Final = "fvcore takes NumPy's estimate of the best order, told with four digits"
PADDING: Final = "fvcore has no handle for a convolution whose padding is a word (same, valid), and counts nothing"
CUSTOM: Final = "a custom autograd function is one op in fvcore's trace, without a handle: it counts nothing"
NO_HANDLE: Final = "fvcore has no handle for this op, and counts nothing"
COMPLEX: Final = "a complex MAC is four real ones; fvcore takes it for one"
OUTSIDE: Final = "it ran outside any call that fvcore's trace shows as an op, as in a scripted module"
OTHERWISE: Final = "fvcore's handle counts otherwise"
NOT_EXPLAINED: Final = "fvcore itself says this much more or less than its handles over the calls that ran"


@dataclass(slots=True)
class _Pair(Pair):
    is_complex: bool = False


class _Calls:
    """MACs of every call of a function, by the module that makes it: the kit's of the ops inside, and fvcore's of the call."""

    def __init__(self) -> None:
        self.pairs: dict[tuple[str, str], _Pair] = {}
        self._calls: FunctionCalls | None = None

    def convention(self) -> Convention:
        """The kit's convention, with this looking on."""
        return replace(by_name("kit"), watching=self._watching, seen=self._seen)

    def _watching(self, note: Note) -> AbstractContextManager[object]:
        @contextmanager
        def watched() -> Iterator[None]:
            with watching(note) as self._calls:
                yield
            self._calls = None

        return watched()

    def _seen(self, facts: OpFacts, owner: str | int, phase: CountPhase) -> None:
        if phase != "forward" or self._calls is None:
            return
        whole = facts.op.startswith(PREFIX)
        name = facts.op.removeprefix(PREFIX) if whole else self._name(facts)
        pair = self.pairs.setdefault((name, str(owner)), _Pair())
        macs = facts.cost.macs if facts.cost is not None else 0
        if whole:
            pair.peer_macs += macs
            pair.calls += 1
            return
        pair.kit_macs += macs
        pair.known = pair.known and facts.cost is not None
        pair.is_complex = pair.is_complex or any("complex" in spec.dtype for spec in facts.inputs)

    def _name(self, facts: OpFacts) -> str:
        running = self._calls.running if self._calls is not None else None
        return label(running) if running is not None else facts.op


def cross_check(target: Target, forward_macs: int) -> CrossCheck:
    """The forward pass of `target` by the kit and by fvcore, which needs real tensors: it runs on a copy on the CPU.

    `forward_macs`: what the kit has counted for it.
    Where that is too large, or fvcore is not installed, the rows are what its handles give.
    """
    calls = _Calls()
    version = version_of("fvcore")
    try:
        with unchanged(target.model, inputs=output_tensors([target.batch.args, target.batch.kwargs])):
            trace = trace_step(target, memo_beside(_get_current_dispatch_mode_stack()), calls.convention())
    except (KitError, StepError) as error:  # the step itself has run before
        return not_followed(PEER, version, ("forward",), forward_macs, error)
    rows: Iterator[tuple[str, str, CountPhase, _Pair, str]] = (
        (op, path, "forward", pair, _reason(op, pair)) for (op, path), pair in calls.pairs.items()
    )
    paths = tuple(dict.fromkeys(call.path for call in trace.calls))
    check = build_check(PEER, version, ("forward",), rows, paths)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what it imports
            from fvcore.nn import FlopCountAnalysis
    except ImportError:
        return failed(check, "fvcore is not installed", INSTALL)
    too_large = _too_large(target)
    if too_large:
        return failed(check, too_large, "take a smaller batch or configuration")
    try:
        with _disable_current_modes():  # the count may run on fake tensors
            real = target
            if target.again is not None:
                real = target.again("cpu")
    except KitError as error:
        return failed(
            check,
            f"the model could not be built a second time, with the real tensors that fvcore needs: {error.message}",
        )
    try:
        with _disable_current_modes():
            found = _analysed(FlopCountAnalysis, real)
        return _told(check, found, paths)
    except Exception as error:  # noqa: BLE001 whatever it ends in is what it says of this model
        return failed(check, f"fvcore could not trace the model: {first_line(error)}")


def _too_large(target: Target) -> str:
    """Why the model cannot run on the CPU; empty where it can."""
    if target.device.type == "cpu":
        return ""
    if target.again is None:
        return "fvcore needs real tensors, and the model has none: it was given on meta"
    needs = sum(tensor.nbytes for tensor in target.model.parameters())
    if needs > free_bytes():
        return f"fvcore needs real tensors, and the weights alone would take {needs / 1e9:.1f} GB"
    return ""


class _OfTensors(nn.Module):
    """The target's model as a function of tensors alone, which is what can be traced, to the tensors that it returns."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.model = target.model
        self._values, self._form = tree_flatten((target.batch.args, dict(target.batch.kwargs)))
        self.tensors = tuple(value for value in self._values if isinstance(value, Tensor))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """The distinct tensors in what the model returns."""
        given = iter(tensors)
        values = [next(given) if isinstance(value, Tensor) else value for value in self._values]
        args, kwargs = tree_unflatten(values, self._form)
        return tuple(output_tensors(self.model(*args, **kwargs)))


def _analysed(analysis: Any, real: Target) -> Any:
    """fvcore's analysis of the model, already run: quietly, with gradients as it does, and the model left as it was."""
    whole = _OfTensors(real)
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with unchanged(real.model), warnings.catch_warnings(), torch.enable_grad(), real.autocast():
            warnings.simplefilter("ignore")
            found = analysis(whole, whole.tensors)
            found.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
            found.total()
    finally:
        logging.disable(before)
    return found


def _told(check: CrossCheck, analysis: Any, paths: tuple[str, ...]) -> CrossCheck:
    by_handles: Counter[str] = Counter()
    for row in check.rows:
        by_handles[row.op] += row.peer_macs
    by_peer = Counter({name: int(macs) for name, macs in analysis.by_operator().items()})
    rest = {name: by_peer[name] - by_handles[name] for name in (*by_handles, *by_peer)}
    left = tuple(unexplained_row(f"{name} {UNEXPLAINED}", macs, NOT_EXPLAINED) for name, macs in rest.items() if macs)
    by_path = {path: int(analysis.total(f"model.{path}" if path else "model")) for path in paths}
    silent = ", ".join(
        f"{name.removeprefix('aten::')} ({calls:,})" for name, calls in sorted(analysis.unsupported_ops().items())
    )
    return replace(
        check,
        peer_macs=int(analysis.total()),
        rows=(*check.rows, *left),
        layers=layers(check.rows, paths, by_path),
        notes=(f"fvcore says that it does not count, by calls: {silent}",) if silent else (),
    )


def _reason(op: str, pair: _Pair) -> str:
    """Why fvcore's figure of calls of `op` is not the kit's; empty where it is."""
    if pair.kit_macs == pair.peer_macs:
        return ""
    if not pair.known:
        return UNKNOWN_TO_KIT
    if op in ("batch_norm", "layer_norm", "group_norm", "instance_norm"):
        return NORMS
    if op in ("upsample_nearest2d", "upsample_bilinear2d", "adaptive_avg_pool2d", "grid_sampler"):
        return ELEMENTS
    if not pair.peer_macs and op.startswith("aten."):
        return OUTSIDE
    if not pair.peer_macs:
        return PADDING if op == "conv" else CUSTOM if op.startswith("PythonOp.") else NO_HANDLE
    if pair.is_complex:
        return COMPLEX
    if op == "einsum":
        return EINSUM
    if op == "matmul" and pair.peer_macs < pair.kit_macs:
        return BROADCAST
    return OTHERWISE
