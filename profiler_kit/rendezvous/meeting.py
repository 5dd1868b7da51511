"""Messages between the ranks of a job, over PyTorch's key-value store: runs from rank 0, results from the others.

The place of this process in a job comes from the environment variables of torchrun and other launchers.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from profiler_kit.errors import KitError, UsageError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass

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


CONNECT_S: Final = 120.0  # the other ranks import torch meanwhile, perhaps from a slow disk
POLL_S: Final = 0.2  # for the next run; the launcher ends this process if rank 0 is gone
PIECE_BYTES: Final = 4 << 20  # the store refuses messages of 8 MiB
END: Final = "end"
END_S: Final = 30.0  # to tell the others that no further run comes: on a busy machine, they stop a process meanwhile


class Announced(NamedTuple):
    """A run that rank 0 has announced: its number, its job as text, and its time limit."""

    number: int
    job: str
    limit_s: float


class Meeting:
    """The connection of one rank to the store of its job. Created by `join`."""

    def __init__(self, launch: Launch, store: Store) -> None:
        self.launch = launch
        self._store = store
        self._announced = 0

    @property
    def name(self) -> str:
        """The common prefix of this job's keys in the store."""
        return _name(self.launch)

    def introduce(self, **facts: str) -> None:
        """Tell rank 0 the `facts` about this rank."""
        self._store.set(f"rank/{self.launch.rank}", json.dumps(facts))

    def introductions(self) -> tuple[dict[str, str], ...]:
        """What each rank has told, by rank. Raises KitError if one does not come."""
        keys = [f"rank/{rank}" for rank in range(self.launch.ranks)]
        with _lost_as_errors():
            self._store.wait(keys, timedelta(seconds=CONNECT_S))
            return tuple(json.loads(self._store.get(key)) for key in keys)

    def announce(self, job: str, limit_s: float) -> int:
        """As rank 0: give all ranks a run; return its number."""
        self._announced += 1
        with _lost_as_errors():
            self._store.set(f"run/{self._announced}", json.dumps([job, limit_s]))
        return self._announced

    def end(self, *, waits: bool = False) -> None:
        """As rank 0: say that no further run comes. `waits`: until the others know, because the store ends with this process."""
        self._announced += 1
        others = [f"end/{rank}" for rank in range(1, self.launch.ranks)]
        until_s = time.monotonic() + (END_S if waits and others else 0.0)
        with contextlib.suppress(RuntimeError):  # the job is ending, and its store may be gone already
            self._store.set(f"run/{self._announced}", json.dumps([END, 0]))
            while time.monotonic() < until_s and not self._store.check(others):
                time.sleep(POLL_S)

    def next_run(self) -> Announced | None:
        """As another rank: wait for the next run; None after the last one."""
        self._announced += 1
        key = f"run/{self._announced}"
        with _lost_as_errors():
            while not self._store.check([key]):  # a wait with a time limit would print a warning at each end
                time.sleep(POLL_S)
            job, limit_s = json.loads(self._store.get(key))
        if job == END:
            with contextlib.suppress(RuntimeError):  # rank 0 does not wait forever
                self._store.set(f"end/{self.launch.rank}", "")
        return None if job == END else Announced(self._announced, job, limit_s)

    def stop(self, number: int) -> None:
        """Tell all ranks that run `number` has failed on this one."""
        with _lost_as_errors():
            self._store.set(f"stop/{number}", str(self.launch.rank))

    def is_stopped(self, number: int) -> bool:
        """Whether run `number` has failed on any rank."""
        with _lost_as_errors():
            return bool(self._store.check([f"stop/{number}"]))

    def send(self, number: int, result: str, trace: bytes) -> None:
        """As another rank: return the result of run `number`, and its trace (empty without one)."""
        mine = f"result/{number}/{self.launch.rank}"
        pieces = [trace[start : start + PIECE_BYTES] for start in range(0, len(trace), PIECE_BYTES)]
        with _lost_as_errors():
            for index, piece in enumerate(pieces):
                self._store.set(f"{mine}/{index}", piece)  # type: ignore[arg-type]  # a string of C++, so bytes are accepted
            self._store.set(mine, json.dumps([result, len(pieces)]))

    def receive(self, number: int, rank: int, limit_s: float) -> tuple[str, bytes] | None:
        """As rank 0: the result and the trace of `rank`; None if they do not come within `limit_s` seconds."""
        theirs = f"result/{number}/{rank}"
        with _lost_as_errors():
            try:
                self._store.wait([theirs], timedelta(seconds=max(limit_s, 0.001)))
            except RuntimeError as error:
                if not _is_timeout(error):
                    raise
                return None
            result, pieces = json.loads(self._store.get(theirs))
            keys = [f"{theirs}/{index}" for index in range(pieces)]
            trace = b"".join(bytes(self._store.get(key)) for key in keys)
            for key in keys:
                self._store.delete_key(key)  # they are large
        return result, trace


@contextlib.contextmanager
def join(launch: Launch) -> Iterator[Meeting]:
    """Connect to the job's store. As rank 0, leaving the block says that no further run comes. Raises KitError."""
    meeting = Meeting(launch, open_store(launch.address, launch.port, _name(launch), serves=_serves(launch)))
    waits = _serves(launch)
    try:
        yield meeting
    except BaseException as error:
        waits = waits and isinstance(error, Exception)  # Ctrl-C reaches the other ranks too, and they do not answer
        raise
    finally:
        if launch.rank == 0:
            meeting.end(waits=waits)


def open_store(address: str, port: int, prefix: str, *, serves: bool = False) -> Store:
    """The keys under `prefix` of the store at `address` and `port`. `serves`: this process serves it. Raises KitError."""
    from torch import distributed

    stores: Any = distributed  # the stubs of some versions lack its classes
    if not distributed.is_available():
        raise UsageError("this torch is built without torch.distributed", hint="install a build that has it")
    try:
        store = stores.TCPStore(
            address, port, None, serves, timeout=timedelta(seconds=CONNECT_S), wait_for_workers=False
        )
    except RuntimeError as error:
        raise KitError(
            f"the ranks cannot meet: {_first_line(error)}",
            where=f"{address}:{port}",
            hint="check MASTER_ADDR and MASTER_PORT, or let torchrun set them",
        ) from error
    prefixed: Store = stores.PrefixStore(prefix, store)
    return prefixed


def check_same(facts: Sequence[dict[str, str]]) -> None:
    """Raise UsageError if the ranks differ in a fact that must be the same everywhere, such as the type of their device."""
    for rank, other in enumerate(facts):
        for name, value in facts[0].items():
            if name != "host" and other.get(name) != value:
                raise UsageError(
                    f"rank 0 has {name} {value}, rank {rank} has {other.get(name)}",
                    hint="all ranks need the same kind of device and the same versions; --device cpu runs without GPUs",
                )


def _serves(launch: Launch) -> bool:
    return launch.rank == 0 and not launch.has_store


def _name(launch: Launch) -> str:
    return f"profiler_kit/{launch.label}"


@contextlib.contextmanager
def _lost_as_errors() -> Iterator[None]:
    """Raise the store's errors as KitError."""
    try:
        yield
    except RuntimeError as error:
        raise KitError(
            f"the connection to the other ranks is lost: {_first_line(error)}",
            hint="see the messages of the other ranks",
        ) from error


def _is_timeout(error: RuntimeError) -> bool:
    text = str(error).lower()
    return "timeout" in text or "timed out" in text


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
