"""Child processes: `child` runs one command to completion, `slots` several at a time, `pool` runs a function over many items,
`forks` saves imports.

No other package of profiler_kit starts processes.
"""

from profiler_kit.process.child import (
    TAIL_LINES,
    Child,
    Outcome,
    child_environment,
    own_command,
    run,
    start_child,
)
from profiler_kit.process.forks import forking, separate_forks
from profiler_kit.process.parent import exit_with_parent
from profiler_kit.process.pool import in_processes, processes_in_memory, usable_cores, workers_for
from profiler_kit.process.slots import SlotCommand, run_in_slots

__all__ = [
    "TAIL_LINES",
    "Child",
    "Outcome",
    "SlotCommand",
    "child_environment",
    "exit_with_parent",
    "forking",
    "in_processes",
    "own_command",
    "processes_in_memory",
    "run",
    "run_in_slots",
    "separate_forks",
    "start_child",
    "usable_cores",
    "workers_for",
]
