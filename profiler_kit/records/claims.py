"""The parts of a step that a finding explains, as values: work, idle time, a place of the program, the memory peak."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from profiler_kit.records.counts import is_inside
from profiler_kit.records.traces import IDLE_CAUSES, IdleCause

Pool = Literal["busy", "idle", "host", "site", "peak"]
Kind = Literal[
    "",
    "cause",
    "wait",
    "long",
    "phase",
    "module",
    "kernel",
    "function",
    "call",
    "operator",
    "loop",
    "row",
    "repeated",
    "gradient",
    "core",
    "cpu",
]

POOLS: Final[tuple[Pool, ...]] = get_args(Pool)
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

# Idle time in which the device waits for the host, not for another device or stream.
HOST_CAUSES: Final = frozenset(IDLE_CAUSES) - {"communication", "another stream"}
# Idle time that goes with the host's waits for the device: without them, the host launches ahead.
WAIT_CAUSES: Final = frozenset[str](("synchronization", "op dispatch", "python", "launch latency"))


@dataclass(frozen=True, slots=True)
class Claim:
    """One part of a step. ``str(claim)`` is ``busy:module:conv1``, ``idle:python``, ``peak``.

    - `pool`: ``busy``, work; ``idle``, idle time; ``host``, idle time in which the device waits for the host; ``site``, all work,
      launches and waits of one place of the program; ``peak``, peak memory.
    - `kind`, `name`: the part of it: the host's waits for the device; gaps of a cause that are longer than those between
      launches; the cause of idle time; a phase, a module with its children, or a kernel; a function, a call with all that it
      calls, an operator, a phase or a module alone as the place. Empty for all of it.
    """

    pool: Pool
    kind: Kind = ""
    name: str = ""

    def __str__(self) -> str:
        kind = "" if self.kind == "cause" else f"{self.kind}:"
        return f"{self.pool}:{kind}{self.name}" if self.kind else self.pool

    def covers(self, kind: Kind, name: str) -> bool:
        """Return whether the cause, phase, module ... called `name` is a part of the claim."""
        if kind == "cause":
            if self.pool == "host":
                return name in (WAIT_CAUSES if self.kind == "wait" else HOST_CAUSES) and self.name in ("", name)
            return self.pool == "idle" and self.name in ("", name)
        if self.pool not in ("busy", "site") or (self.kind and kind != self.kind):
            return False
        return (
            not self.kind
            or self.name == name
            or (self.pool == "busy" and kind == "module" and is_inside(name, self.name))
        )


BUSY: Final = Claim("busy")
IDLE: Final = Claim("idle")
HOST: Final = Claim("host")
PEAK: Final = Claim("peak")
WAITS: Final = Claim("host", "wait")


def idle_claims(*causes: IdleCause) -> tuple[Claim, ...]:
    """Return a claim on the idle time of each cause."""
    return tuple(Claim("idle", "cause", cause) for cause in causes)


def long_claims(*causes: IdleCause) -> tuple[Claim, ...]:
    """Return a claim on the long gaps of each cause: those of calls that are not launches."""
    return tuple(Claim("host", "long", cause) for cause in causes)


def phase_claims(*phases: str) -> tuple[Claim, ...]:
    """Return a claim on the work of each phase."""
    return tuple(Claim("busy", "phase", phase) for phase in phases)


def module_claims(paths: Iterable[str]) -> tuple[Claim, ...]:
    """Return a claim on the work of each module, with its children."""
    return tuple(Claim("busy", "module", path) for path in paths)


def kernel_claims(names: Iterable[str]) -> tuple[Claim, ...]:
    """Return a claim on each kernel."""
    return tuple(Claim("busy", "kernel", name) for name in names)


def claim_of_text(text: str) -> Claim:
    """Return the claim whose text an older report holds; one that covers nothing for a text of unknown form."""
    first, _, part = text.partition(":")
    second, _, name = part.partition(":")
    pool = next((pool for pool in POOLS if pool == first), None)
    kind = next((kind for kind in KINDS if kind == second), KINDS[0])
    if pool is None or pool == "idle":
        return Claim("idle", "cause", part or text) if text != "idle" else IDLE
    return Claim(pool, kind, name)
