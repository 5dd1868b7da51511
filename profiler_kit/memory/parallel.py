"""The memory and the communication of one rank of several, by running PyTorch's own sharding on tensors without data.

Nothing is sent: the process group is PyTorch's ``fake`` one, whose collectives return at once. FSDP2 shards the model, and
gathers and frees parameters as in a job. PyTorch's own tracker
(``torch.distributed._tools.mem_tracker``) records the bytes. The tensors are those of a CPU, so operators whose CUDA kernels save
other tensors (attention, dropout) differ from `memory.simulate`.

DistributedDataParallel keeps all parameters and adds buckets of the size of all gradients, which it sends as they fill.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence, ValuesView
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, Final

import torch
from torch import Tensor, distributed, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from profiler_kit.errors import KitError, TargetError, UsageError
from profiler_kit.loading import Target
from profiler_kit.loading.sharding import shard
from profiler_kit.loading.tensor_kinds import StepError, as_step_errors, explain_step_error, on_fake_tensors
from profiler_kit.meta.batch import tensors_in
from profiler_kit.records.counts import Communication, MemoryCategories, MemoryEstimate, ParallelEstimate
from profiler_kit.records.parallel import DEFAULT_BUCKET_MIB, ParallelPlan
from profiler_kit.user_code.locations import one_line_message, user_place
from profiler_kit.user_code.reachable import tensors_of
from profiler_kit.user_code.restoration import restored_objects

FIRST_BUCKET_BYTES: Final = 1024 * 1024  # of DistributedDataParallel, so that communication starts early
BUCKET_BYTES: Final = DEFAULT_BUCKET_MIB * 1024 * 1024
PLAIN: Final = (torch.Tensor, nn.Parameter)  # the types for which optimizers default to foreach
NEED_VALUES: Final = (DataDependentOutputException, DynamicOutputShapeException)
CATEGORIES: Final = {  # of PyTorch's tracker
    "PARAM": "parameters", "BUFFER": "parameters", "GRAD": "gradients", "OPT": "optimizer_state",
    "ACT": "saved_activations", "TEMP": "temporaries", "INP": "inputs", "OTH": "temporaries",
}  # fmt: skip
# Of PyTorch's operators: the collective, and the share of the message that a rank of a ring sends, over (ranks - 1) / ranks.
COLLECTIVES: Final = {
    "_allgather_base_": ("all-gather", 1), "allgather_": ("all-gather", 1), "allgather_into_tensor_coalesced_": ("all-gather", 1),
    "_reduce_scatter_base_": ("reduce-scatter", 1), "reduce_scatter_": ("reduce-scatter", 1),
    "reduce_scatter_tensor_coalesced_": ("reduce-scatter", 1),
    "allreduce_": ("all-reduce", 2), "allreduce_coalesced_": ("all-reduce", 2),
    "all_reduce": ("all-reduce", 2), "all_reduce_": ("all-reduce", 2), "all_reduce_coalesced": ("all-reduce", 2),
    "all_gather_into_tensor": ("all-gather", 1), "all_gather_into_tensor_out": ("all-gather", 1),
    "all_gather_into_tensor_coalesced": ("all-gather", 1), "reduce_scatter_tensor": ("reduce-scatter", 1),
    "reduce_scatter_tensor_coalesced": ("reduce-scatter", 1), "all_to_all_single": ("all-to-all", 1),
    "shard_dim_alltoall": ("all-to-all", 1),
}  # fmt: skip
NAMESPACES: Final = ("c10d", "_c10d_functional", "_dtensor")  # of process groups, and of DTensor
TENSORS_AND_WORK: Final = 2  # results of a collective
NOT_SENT: Final = ("wait_tensor", "_wrap_tensor_autograd")


def _sharded_types() -> tuple[type, ...]:
    if not distributed.is_available():
        return ()
    from torch.distributed.tensor import DTensor

    return (DTensor,)


SHARDED: Final = _sharded_types()  # the class of sharded tensors; none where torch is built without torch.distributed


def simulate_parallel(
    target: Target, plans: Sequence[ParallelPlan], alone: MemoryEstimate
) -> tuple[ParallelEstimate, ...]:
    """One rank's peak and communication in a training step of `target`, which is on the meta device, under each of `plans`.

    `alone`: the prediction for one device. Its workspace and rounding are taken for those of a rank.

    Raises:
        UsageError: this process is a rank of a job already, or the target does not train.
        TargetError: the model does not run on tensors without values, or FSDP2 refuses it.
    """
    if target.info.mode != "train":
        raise UsageError("--parallel predicts a training step", where="--mode infer", hint="use --mode train")
    on_device = alone.device.allocated_bytes - alone.peak_bytes if alone.device is not None else None
    estimates = []
    for plan in plans:
        if plan.strategy == "ddp":
            estimates.append(_replicated(target.model, plan, alone))
            continue
        with _fake_job(plan.ranks) as mesh:
            step = _step(target, mesh)
        estimates.append(
            ParallelEstimate(
                plan=plan,
                peak_bytes=sum(step.categories.values()),
                single_peak_bytes=alone.peak_bytes,
                categories=MemoryCategories(**step.categories),
                units=step.units,
                communication=_communication(step.messages, plan.ranks),
                parameter_bytes=step.parameter_bytes,
            )
        )
    if on_device is None:
        return tuple(estimates)
    return tuple(replace(estimate, device_peak_bytes=estimate.peak_bytes + on_device) for estimate in estimates)


def bucket_sizes(gradient_bytes: Sequence[int]) -> tuple[int, ...]:
    """The sizes of DistributedDataParallel's buckets for gradients in the order in which backward computes them."""
    sizes: list[int] = []
    filling, limit = 0, FIRST_BUCKET_BYTES
    for nbytes in gradient_bytes:
        filling += nbytes
        if filling >= limit:
            sizes.append(filling)
            filling, limit = 0, BUCKET_BYTES
    return (*sizes, filling) if filling else tuple(sizes)


def _replicated(model: nn.Module, plan: ParallelPlan, alone: MemoryEstimate) -> ParallelEstimate:
    """The estimate for DistributedDataParallel with its default options. Its buckets exist over the whole step."""
    gradients = [parameter.nbytes for parameter in model.parameters() if parameter.requires_grad]
    buckets = bucket_sizes(gradients[::-1])
    buffers = sum(buffer.nbytes for buffer in model.buffers())
    share = (plan.ranks - 1) / plan.ranks
    communication = [
        Communication(
            collective="all-reduce",
            calls=len(buckets),
            message_bytes=sum(buckets),
            sent_bytes=round(2 * share * sum(buckets)),
            forward_calls=0,
            backward_calls=len(buckets),
        )
    ]
    if buffers:  # rank 0 sends them before each forward pass; in a ring each rank but one passes them on
        sent = round(share * buffers)
        broadcast = Communication(
            collective="broadcast", calls=1, message_bytes=buffers, sent_bytes=sent, forward_calls=1, backward_calls=0
        )
        communication.append(broadcast)
    return ParallelEstimate(
        plan=plan,
        peak_bytes=alone.peak_bytes + sum(buckets),
        single_peak_bytes=alone.peak_bytes,
        categories=replace(alone.categories, gradients=(alone.categories.gradients or 0) + sum(buckets)),
        communication=tuple(communication),
        parameter_bytes=sum(parameter.nbytes for parameter in model.parameters()),
    )


@dataclass(frozen=True, slots=True)
class _Message:
    name: str
    phase: str
    nbytes: int


class _Messages(TorchDispatchMode):
    """Notes each collective that runs inside the block, with the phase of the step and the bytes of its full message."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sent: list[_Message] = []
        self.phase = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, SHARDED) for kind in types):
            return NotImplemented  # it runs its local operators and its collectives next
        result = func(*args, **(kwargs or {}))
        if not isinstance(func, OpOverload):
            return result
        name = func.overloadpacket.__name__
        if func.namespace in NAMESPACES and name not in NOT_SENT:
            # the larger side: the gathered result, or the input that is reduced and scattered
            self.sent.append(_Message(name, self.phase, max(_bytes(args), _bytes(result))))
        return result


class _CollectivesOfFakeTensors(TorchDispatchMode):
    """Returns the results of collectives of tensors without data, where torch has no kernels for them."""

    supports_higher_order_operators = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, SHARDED) for kind in types):
            return NotImplemented
        if func.namespace != "c10d" or len(func._schema.returns) != TENSORS_AND_WORK:
            return func(*args, **(kwargs or {}))
        group = next(arg for arg in args if isinstance(arg, torch.ScriptObject))
        with unset_fake_temporarily():
            work = torch.ops.c10d.barrier(torch.zeros(1), group, [], -1)
        return args[0], work


def _collectives() -> contextlib.AbstractContextManager[object]:
    if find_spec("torch.distributed._tools.fake_collectives") is not None:  # its kernels, which the tracker imports
        return contextlib.nullcontext()
    return _CollectivesOfFakeTensors()  # type: ignore[no-untyped-call]


class _PeaksOfTheStepAlone(WeakIdKeyDictionary):
    """The tracker's records of modules. It lists them after each operator to update peaks of modules, which nobody reads."""

    def values(self) -> ValuesView[Any]:
        return {}.values()


class _GradientHooks(WeakIdKeyDictionary):
    """The tracker's hooks on parameters. It registers one where it finds none, which PyTorch refuses for frozen parameters."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(key, default) if key.requires_grad else ()  # type: ignore[no-untyped-call]


def _bytes(value: object) -> int:
    return max((tensor.nbytes for tensor in tensors_in(value)), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A step of one rank: the bytes at its peak by category, its collectives, and what is sharded."""

    categories: dict[str, int]
    messages: tuple[_Message, ...]
    parameter_bytes: int
    units: tuple[str, ...] = ()


def _step(target: Target, mesh: Any) -> _Step:
    """A step of one rank of `mesh` with FSDP2."""
    try:
        from torch.distributed._tools.mem_tracker import MemTracker

        with on_fake_tensors(target) as fake, _collectives(), ExitStack() as stack:
            units = shard(fake.model, mesh)
            with as_step_errors("optimizer"):
                optimizer = fake.make_optimizer()
            for group in optimizer.param_groups:
                is_plain = all(type(parameter) in PLAIN for parameter in group["params"])
                if group.get("foreach", False) is None and not group.get("fused") and is_plain:
                    group["foreach"] = True  # as on CUDA; sharded parameters are updated one by one
            saved = stack.enter_context(restored_objects(*fake.user_objects()))
            # creates the optimizer's state; DTensor finds out the placement of an operator's results on full tensors, once
            _train(fake, optimizer)
            saved.restart()
            tracker = MemTracker()
            tracker.memory_tracking = _PeaksOfTheStepAlone()
            tracker._param_to_grad_hook_handles = _GradientHooks()
            tracker.track_external(
                fake.model, optimizer, *tensors_of(fake.batch.args, fake.batch.kwargs, fake.batch.labels)
            )
            with tracker, _Messages() as messages:
                _train(fake, optimizer, messages)
            return _Step(
                categories=_categories(tracker.get_tracker_snapshot("peak")),
                messages=tuple(messages.sent),
                parameter_bytes=sum(_local_bytes(parameter) for parameter in fake.model.parameters()),
                units=units,
            )
    except StepError as error:
        if isinstance(error.error, NEED_VALUES):
            raise TargetError(
                f"--parallel runs the model on tensors without values, and its {error.phase} reads one",
                where=user_place(error.error) or target.spec.spec,
                hint="leave out --parallel",
            ) from error.error
        raise explain_step_error(target, error) from error.error
    except KitError:
        raise
    except (
        AttributeError,
        ImportError,
        LookupError,
        NotImplementedError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        raise TargetError(
            f"PyTorch's own sharding or memory tracker refuses this model: {one_line_message(error)}",
            where=target.spec.spec,
            hint="leave out --parallel",
        ) from error


def _train(target: Target, optimizer: Any, messages: _Messages | None = None) -> None:
    messages = messages or _Messages()
    messages.phase = "forward"
    output, loss = _forward(target)
    messages.phase = "backward"
    with as_step_errors("backward"):
        loss.backward()
    messages.phase = "optimizer"
    with as_step_errors("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    del output  # a script holds it over the step, too


def _forward(target: Target) -> tuple[object, Tensor]:
    """The output of the model for the target's batch, and the loss."""
    with as_step_errors("forward"), target.autocast():
        output = target.model(*target.batch.args, **target.batch.kwargs)
    labels = target.labels_for(output)
    with as_step_errors("loss"), target.autocast():
        return output, target.loss(output, target.batch, labels)


def _local_bytes(parameter: Tensor) -> int:
    """The bytes of this rank's part of `parameter`."""
    if not isinstance(parameter, SHARDED):
        return parameter.nbytes
    sharded: Any = parameter
    return int(sharded.to_local().nbytes)


def _categories(peak: dict[Any, dict[Any, int]]) -> dict[str, int]:
    categories: dict[str, int] = {}
    for by_category in peak.values():
        for category, nbytes in by_category.items():
            name = CATEGORIES.get(getattr(category, "name", ""))  # without the total, whose key is a text
            if name is not None:
                categories[name] = categories.get(name, 0) + nbytes
    return categories


def _communication(messages: Sequence[_Message], ranks: int) -> tuple[Communication, ...]:
    by_collective: dict[str, list[_Message]] = {}
    for message in messages:
        by_collective.setdefault(_collective(message.name)[0], []).append(message)
    return tuple(
        Communication(
            collective=collective,
            calls=len(group),
            message_bytes=sum(message.nbytes for message in group),
            sent_bytes=sum(round(_collective(m.name)[1] * m.nbytes * (ranks - 1) / ranks) for m in group),
            forward_calls=sum(message.phase == "forward" for message in group),
            backward_calls=sum(message.phase == "backward" for message in group),
        )
        for collective, group in by_collective.items()
    )


def _collective(name: str) -> tuple[str, int]:
    return COLLECTIVES.get(name, (name.strip("_"), 1))


@contextlib.contextmanager
def _fake_job(ranks: int) -> Iterator[Any]:
    """The mesh of a job of `ranks` ranks in which nothing is sent. This process is rank 0."""
    if not distributed.is_available():
        raise TargetError(
            "this torch is built without torch.distributed", hint="use a build with it, or --parallel ddp=N"
        )
    if distributed.is_initialized():
        raise UsageError("this process is a rank of a job already", hint="predict outside of the job")
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        with _events_of_cpu_streams():
            yield init_device_mesh("cpu", (ranks,))
    finally:
        distributed.destroy_process_group()


@contextlib.contextmanager
def _events_of_cpu_streams() -> Iterator[None]:
    """Add the methods that ``fully_shard`` calls and streams of the CPU lack before torch 2.7; nothing runs at the same time."""
    stream: Any = torch.cpu.Stream
    missing = [name for name in ("record_event", "wait_event") if not hasattr(stream, name)]
    for name in missing:
        setattr(stream, name, lambda self, event=None: None)
    try:
        yield
    finally:
        for name in missing:
            delattr(stream, name)
