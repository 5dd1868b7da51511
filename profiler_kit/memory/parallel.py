"""The memory and the communication of one rank of several, by running PyTorch's own FSDP2 on tensors without data.

Nothing is sent: the process group is PyTorch's ``fake`` one, whose collectives return at once. FSDP2 shards the model, and
gathers and frees parameters as in a job. PyTorch's own tracker (``torch.distributed._tools.mem_tracker``) records the bytes. The
tensors are those of a CPU, so operators whose CUDA kernels save other tensors (attention, dropout) differ from `memory.simulate`.

DistributedDataParallel keeps all parameters and adds buckets of the size of all gradients, which it sends as they fill.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch import distributed, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.errors import KitError, TargetError, UsageError
from profiler_kit.loading import Target
from profiler_kit.loading.batch import tensors_in
from profiler_kit.loading.sharding import shard
from profiler_kit.loading.tensor_kinds import StepError, as_step_errors, explain_step_error, on_fake_tensors
from profiler_kit.loading.user_locations import one_line_message, user_place
from profiler_kit.records.counts import Communication, MemoryCategories, ParallelEstimate
from profiler_kit.records.parallel import DEFAULT_BUCKET_MIB, ParallelPlan

# The first creates the optimizer's state. DTensor finds out the placement of an operator's results on tensors of full size, once.
UNTRACKED_STEPS: Final = 2
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
}  # fmt: skip


def simulate_parallel(target: Target, plans: Sequence[ParallelPlan]) -> tuple[ParallelEstimate, ...]:
    """One rank's peak and communication in a training step of `target`, which is on the meta device, under each of `plans`.

    Raises:
        UsageError: this process is a rank of a job already, or the target does not train.
        TargetError: the model does not run on tensors without values, or FSDP2 refuses it.
    """
    if target.info.mode != "train":
        raise UsageError("--parallel predicts a training step", where="--mode infer", hint="use --mode train")
    single, _, _ = _step(target, None)
    estimates = []
    for plan in plans:
        if plan.strategy == "ddp":
            estimates.append(_replicated(target.model, plan, single))
            continue
        with _fake_job(plan.ranks) as mesh:
            sharded, messages, units = _step(target, mesh)
        estimates.append(
            ParallelEstimate(
                plan=plan,
                peak_bytes=sum(sharded.values()),
                single_peak_bytes=sum(single.values()),
                categories=MemoryCategories(**sharded),
                units=units,
                communication=_communication(messages, plan.ranks),
            )
        )
    return tuple(estimates)


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


def _replicated(model: nn.Module, plan: ParallelPlan, single: dict[str, int]) -> ParallelEstimate:
    """The estimate for DistributedDataParallel with its default options."""
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
        )
    ]
    if buffers:  # rank 0 sends them before each forward pass; in a ring each rank but one passes them on
        sent = round(share * buffers)
        communication.append(Communication(collective="broadcast", calls=1, message_bytes=buffers, sent_bytes=sent))
    categories = {**single, "gradients": single.get("gradients", 0) + sum(buckets)}
    return ParallelEstimate(
        plan=plan,
        peak_bytes=sum(categories.values()),
        single_peak_bytes=sum(single.values()),
        categories=MemoryCategories(**categories),
        communication=tuple(communication),
    )


class _Messages(TorchDispatchMode):
    """Notes each collective that runs inside the block, with the bytes of its full message."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sent: list[tuple[str, int]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            sizes = [tensor.nbytes for tensor in tensors_in(args)]
            self.sent.append((func.overloadpacket.__name__, max(sizes, default=0)))
        return func(*args, **(kwargs or {}))


def _step(target: Target, mesh: Any) -> tuple[dict[str, int], list[tuple[str, int]], tuple[str, ...]]:
    """The bytes at the peak of a step by category, its collectives, and the sharded units. `mesh` None shards nothing."""
    try:
        from torch.distributed._tools.mem_tracker import MemTracker

        with on_fake_tensors(target) as fake:
            units = shard(fake.model, mesh) if mesh is not None else ()
            with as_step_errors("optimizer"):
                optimizer = fake.make_optimizer()
            for group in optimizer.param_groups:
                is_plain = all(type(parameter) in PLAIN for parameter in group["params"])
                if group.get("foreach", False) is None and not group.get("fused") and is_plain:
                    group["foreach"] = True  # as on CUDA; sharded parameters are updated one by one
            for _ in range(UNTRACKED_STEPS):
                _train(fake, optimizer)
            tracker = MemTracker()
            tracker.track_external(
                fake.model, optimizer, *tensors_in([fake.batch.args, fake.batch.kwargs, fake.batch.labels])
            )
            with tracker, _Messages() as messages:
                _train(fake, optimizer)
            peak = tracker.get_tracker_snapshot("peak")
            return _categories(peak), list(messages.sent), units
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
            f"PyTorch's own FSDP2 or memory tracker refuses this model: {one_line_message(error)}",
            where=target.spec.spec,
            hint="leave out --parallel",
        ) from error


def _train(target: Target, optimizer: Any) -> None:
    with as_step_errors("forward"), target.autocast():
        output = target.model(*target.batch.args, **target.batch.kwargs)
    labels = target.labels_for(output)
    with as_step_errors("loss"), target.autocast():
        loss = target.loss(output, target.batch, labels)
    with as_step_errors("backward"):
        loss.backward()
    with as_step_errors("optimizer"):
        optimizer.step()
        optimizer.zero_grad()


def _categories(peak: dict[Any, dict[Any, int]]) -> dict[str, int]:
    categories: dict[str, int] = {}
    for by_category in peak.values():
        for category, nbytes in by_category.items():
            name = CATEGORIES.get(getattr(category, "name", ""))  # without the total, whose key is a text
            if name is not None:
                categories[name] = categories.get(name, 0) + nbytes
    return categories


def _communication(messages: Sequence[tuple[str, int]], ranks: int) -> tuple[Communication, ...]:
    found: dict[str, Communication] = {}
    for name, nbytes in messages:
        collective, rounds = COLLECTIVES.get(name, (name.strip("_"), 1))
        before = found.get(collective, Communication(collective=collective, calls=0, message_bytes=0, sent_bytes=0))
        found[collective] = Communication(
            collective=collective,
            calls=before.calls + 1,
            message_bytes=before.message_bytes + nbytes,
            sent_bytes=before.sent_bytes + round(rounds * nbytes * (ranks - 1) / ranks),
        )
    return tuple(found.values())


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
        yield init_device_mesh("cpu", (ranks,))
    finally:
        distributed.destroy_process_group()
