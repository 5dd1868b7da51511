"""The place of this process in a job, from the environment variables of torchrun and other launchers."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final

from profiler_kit.errors import UsageError

VISIBLE: Final = "CUDA_VISIBLE_DEVICES"
EXAMPLE: Final = "torchrun --nproc-per-node=2 -m profiler_kit analyze my_model.py --parallel ddp"
_VARIABLES: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The rank of this process, the number of ranks, and where they meet.

    `local_rank`: the rank among those of this machine. `has_store`: the launcher serves the store at `address` and `port`;
    otherwise rank 0 does. `label`: differs between jobs and restarts that meet at the same place.
    """

    rank: int
    ranks: int
    local_rank: int
    address: str
    port: int
    has_store: bool
    label: str


def find_launch(environment: Mapping[str, str] = os.environ) -> Launch | None:
    """The launch that `environment` describes; None outside of a job. Raises UsageError for a value that is not a number."""
    if any(name not in environment for name in _VARIABLES):
        return None
    try:
        rank, ranks, port = (int(environment[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        local_rank = int(environment.get("LOCAL_RANK", rank))
    except ValueError as error:
        raise UsageError(
            f"RANK, WORLD_SIZE, LOCAL_RANK or MASTER_PORT: {error}", hint=f"start it so: {EXAMPLE}"
        ) from error
    return Launch(
        rank=rank,
        ranks=ranks,
        local_rank=local_rank,
        address=environment["MASTER_ADDR"],
        port=port,
        has_store=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
        label="/".join(environment.get(f"TORCHELASTIC_{name}", "0") for name in ("RUN_ID", "RESTART_COUNT")),
    )


def use_own_gpu(launch: Launch, environment: MutableMapping[str, str] = os.environ) -> None:
    """Make the GPU of `launch` the only one that this process and its workers see. Call it before torch uses a device.

    Raises UsageError if the environment shows fewer GPUs than this machine has ranks.
    """
    visible = environment.get(VISIBLE)
    if visible is None:
        environment[VISIBLE] = str(launch.local_rank)
        return
    devices = [name.strip() for name in visible.split(",") if name.strip()]
    if not devices:
        return  # without a GPU
    if launch.local_rank >= len(devices):
        raise UsageError(
            f"rank {launch.local_rank} of this machine has no GPU of its own",
            where=f"{VISIBLE}={visible}",
            hint=f"start at most {len(devices)} ranks per machine, or run them on --device cpu",
        )
    environment[VISIBLE] = devices[launch.local_rank]
