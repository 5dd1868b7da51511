"""One process as a rank of a job: its process group, DistributedDataParallel and FSDP2 around the model, common decisions."""

from __future__ import annotations

import contextlib
from typing import Any, Final

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from profiler_kit.configurations.naming import axes_by_name
from profiler_kit.errors import TargetError
from profiler_kit.loading import Target
from profiler_kit.loading.sharding import shard
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.parallel import Member
from profiler_kit.rendezvous.meeting import open_store
from profiler_kit.user_code.locations import one_line_message

BACKENDS: Final = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}
_joined: Final[
    list[Member]
] = []  # the place of this process; a model's file may start a process group of its own instead


def join_job(member: Member, device: torch.device) -> None:
    """Make this process the rank that `member` describes. Raises KitError."""
    if distributed.is_initialized():
        raise TargetError(
            "the model's file starts a process group of its own", hint="start it in the script's main part only"
        )
    backend = BACKENDS.get(device.type)
    if backend is None:
        raise TargetError(f"several ranks do not run on {device.type}", hint="use --device cpu or cuda")
    store = open_store(member.address, member.port, member.meeting)
    distributed.init_process_group(backend, store=store, rank=member.rank, world_size=member.plan.ranks)
    _joined.append(member)


def sharded(target: Target) -> Target:
    """`target` with its model sharded over all ranks by FSDP2, in place. Raises TargetError if FSDP2 refuses the model."""
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh(target.device.type, (distributed.get_world_size(),))
    with _as_target_error("FSDP2", target):
        shard(target.model, mesh)
    return target


def replicated(target: Target, config: RunConfig) -> DistributedDataParallel:
    """The module of a step of `target` in DistributedDataParallel, with the options of `config`. Raises TargetError."""
    axes, options = axes_by_name(), dict[str, Any]()
    for item in config.settings:
        if (replicas := axes[item.name].replicas) is not None:
            options |= replicas(item.value)
    with _as_target_error("DistributedDataParallel", target):
        return DistributedDataParallel(target.step_module, **options)


def from_rank_0(*values: int) -> tuple[int, ...]:
    """The `values` of rank 0, so that all ranks run the same steps; `values` themselves outside of a job."""
    if not _joined:
        return values
    shared = torch.tensor(values, dtype=torch.int64)
    distributed.broadcast(shared, 0)
    return tuple(shared.tolist())


@contextlib.contextmanager
def _as_target_error(name: str, target: Target) -> Any:
    try:
        yield
    except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise TargetError(f"{name} refuses the model: {one_line_message(error)}", where=target.spec.spec) from error
