"""Measure the workspace that libraries allocate beyond an op's outputs, on a CUDA device over a broad grid of ops.

The workspace rules of the memory simulation are derived from these files and tested against them::

    python -m scripts.lab.probe_scratch --out scratch.json.gz --seconds 280
    python -m scripts.lab.probe_scratch --models --out memory_models.json.gz --seconds 280

It needs only torch. `--dry-run` lists the grid. `--device meta` runs it without CUDA; every figure is then 0.

Each figure is [peak above live bytes, growth, bytes of the outputs, peak of allocated bytes]; the workspace is the peak minus
the growth. `ev` lists the allocations (+) and frees (-) inside the steady call. `plans` lists cuDNN's engines and workspaces
(with --engine-log). `slow_s` marks a case that ended early because of a slow call.

The grid runs in a child process (`probe_grid`) that appends to a journal beside the output file. This process monitors it. If a
case takes too long, crashes or loses the device, it is recorded as an error, and a new child continues with the next case.
Groups are interleaved in the grid, so a shorter run is an even sample.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

CASE_S: Final = 8.0  # time limit of a case
START_S: Final = 90.0  # time limit of a child's start: import torch, load the libraries, measure one-time allocations
TUNED_CASE_S: Final = 20.0  # time limit with cudnn.benchmark, which tries all engines
PROGRESS_S: Final = 10.0
SAVE_S: Final = 20.0


class Answer:
    """The contents of the journal so far, as one document."""

    def __init__(self, path: Path, journal: Path) -> None:
        """Start with an empty document."""
        self.path, self.journal = path, journal
        self.read_to = 0
        self.body: dict[str, Any] = {"rows": [], "errors": [], "micro": {}}

    def read(self) -> None:
        """Read the journal's new complete lines."""
        if not self.journal.exists():
            return
        with self.journal.open("rb") as file:
            file.seek(self.read_to)
            data = file.read()
        complete_lines = data[: data.rfind(b"\n") + 1]
        self.read_to += len(complete_lines)
        for line in complete_lines.splitlines():
            try:
                (kind, value), *_ = json.loads(line).items()
            except ValueError:  # a child was killed while it wrote, and the next child's first line follows
                self.body["errors"].append({"error": f"unreadable line of {len(line)} bytes"})
                continue
            if kind == "row":
                self.body["rows"].append(value)
            elif kind == "error":
                self.body["errors"].append(value)
            elif kind in ("head", "done"):
                self.body.update(value)
            else:
                self.body[kind] = value

    def save(self) -> None:
        """Write the document atomically."""
        data = json.dumps(self.body, separators=(",", ":")).encode()
        beside = self.path.with_name(self.path.name + ".tmp")
        beside.write_bytes(gzip.compress(data, 6) if self.path.suffix == ".gz" else data)
        beside.replace(self.path)

    def progress(self) -> str:
        """The number of cases so far."""
        rows = self.body["rows"]
        slow = sum("slow_s" in json.dumps(row["is"]) for row in rows)
        return f"{len(rows)} cases, {slow} of them slow, {len(self.body['errors'])} errors"


class Watch:
    """Runs the children one after the other."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Delete the files of an earlier run."""
        options.out.parent.mkdir(parents=True, exist_ok=True)
        self.options = options
        self.journal = options.out.with_name(options.out.name + ".journal")
        self.position = options.out.with_name(options.out.name + ".at")
        self.journal.unlink(missing_ok=True)
        self.position.unlink(missing_ok=True)
        self.answer = Answer(options.out, self.journal)
        self.started = time.time()
        self.printed = self.saved = self.started

    def run(self) -> None:
        """Start children until the grid is done or the time is over; then write the output."""
        first, start_count, failed_starts = 0, 0, 0
        while self.seconds_left() > 5 and failed_starts < 3:
            child = self.start(first)
            start_count += 1
            failure = self.watch(child)
            self.answer.read()
            if failure is None:
                break
            at = self.current_case()
            if at["group"] == "start":
                failed_starts += 1
            self.answer.body["errors"].append({**at, "error": failure})
            print(f"{time.time() - self.started:4.0f} s: case {at['i']} ({at['group']}): {failure}", flush=True)
            first = max(first, int(at["i"]) + 1)
        self.answer.body.update(wall_s=round(time.time() - self.started, 1), children=start_count)
        self.answer.save()
        print(
            f"{self.answer.progress()}, {self.answer.body['wall_s']:.0f} s, {self.options.out.stat().st_size / 1e6:.2f} MB"
        )
        for error_entry in self.answer.body["errors"][:10]:
            print("  ", json.dumps(error_entry)[:240])
        self.position.unlink(missing_ok=True)
        self.journal.unlink(missing_ok=True)

    def seconds_left(self) -> float:
        """Seconds until the end of the run."""
        return float(self.options.seconds - (time.time() - self.started))

    def start(self, first: int) -> subprocess.Popen[bytes]:
        """Start a child that continues with case `first`."""
        options = self.options
        command = [
            sys.executable,
            "-m",
            "scripts.lab.probe_grid",
            "--journal",
            self.journal,
            "--position",
            self.position,
        ]
        command += ["--first", first, "--until", self.started + options.seconds, "--most", options.most]
        command += ["--tuned-s", options.tuned_share * options.seconds, "--device", options.device]
        environment = dict(os.environ)
        if options.engine_log:  # cuDNN's frontend reads these once, at its first use
            log = Path(tempfile.gettempdir()) / f"cudnn_plans_{os.getpid()}_{first}.log"
            environment |= {"CUDNN_FRONTEND_LOG_INFO": "1", "CUDNN_FRONTEND_LOG_FILE": str(log)}
        self.position.unlink(missing_ok=True)
        return subprocess.Popen([str(word) for word in command], env=environment, start_new_session=True)

    def watch(self, child: subprocess.Popen[bytes]) -> str | None:
        """Wait for the child. Return why its last case failed, or None if it succeeded."""
        started = time.time()
        while child.poll() is None:
            time.sleep(0.1)
            self.report()
            case_s = time.time() - (self.position.stat().st_mtime if self.position.exists() else started)
            most_s = START_S
            if self.position.exists() and (at := self.current_case())["group"] != "start":
                most_s = TUNED_CASE_S if at["group"] == "tuned" else CASE_S
            overtime = self.seconds_left() < -3
            if case_s > most_s or overtime:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                return None if overtime else f"killed after {most_s:.0f} s"
        if child.returncode == 0:
            return None
        return f"the process ended with status {child.returncode}"

    def current_case(self) -> dict[str, Any]:
        """The last case that the child recorded."""
        if not self.position.exists():
            return {"i": -1, "group": "start"}
        progress: dict[str, Any] = json.loads(self.position.read_text())
        return progress

    def report(self) -> None:
        """Print the progress and write the output at regular intervals."""
        now = time.time()
        if now - self.printed >= PROGRESS_S:
            self.printed = now
            self.answer.read()
            at = self.current_case()
            print(
                f"{now - self.started:4.0f} s: {self.answer.progress()}, at case {at['i']} ({at['group']})", flush=True
            )
        if now - self.saved >= SAVE_S:
            self.saved = now
            self.answer.save()


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("scratch.json.gz"))
    parser.add_argument("--seconds", type=float, default=280.0, help="time limit")
    parser.add_argument("--tuned-share", type=float, default=0.14, help="part of the time for cudnn.benchmark")
    parser.add_argument(
        "--models", action="store_true", help="measure the steps of scripts/bench/networks/models.py instead"
    )
    parser.add_argument("--only", default="", help="with --models: model names, separated by commas")
    parser.add_argument("--most", type=int, default=1_000_000, help="maximum number of cases")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dry-run", action="store_true", help="list the grid and stop")
    parser.add_argument("--engine-log", action=argparse.BooleanOptionalAction, default=False, help="read cuDNN's log")
    options = parser.parse_args(arguments)
    if options.models:
        from scripts.lab import probe_models  # needs torch; its models are slow to define

        probe_models.run(options)
    elif options.dry_run:
        from scripts.lab import probe_grid  # needs torch

        probe_grid.print_grid()
    else:
        Watch(options).run()


if __name__ == "__main__":
    main()
