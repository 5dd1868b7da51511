"""What libraries take beside the tensors an op returns, measured on a CUDA device over a broad grid of ops.

The memory simulation's scratch rules are written from, and tested against, what this writes::

    python -m scripts.lab.probe_scratch --out scratch.json.gz --seconds 280
    python -m scripts.lab.probe_scratch --models --out memory_models.json.gz --seconds 280

It needs nothing but torch. `--dry-run` lists the grid; `--device meta` walks it without CUDA (every figure is then 0).
Each figure is [peak over what was live, growth, bytes of the outputs, peak in allocated bytes]: scratch is the peak less
the growth. `ev` lists the allocations (+) and frees (-) inside the steady call; `plans` cuDNN's engines and workspaces
(with --engine-log). `slow_s` marks a case that was cut short because one of its calls took so long.

The grid runs in a child process (`probe_grid`) that appends to a journal beside the answer. This process watches it:
a case that takes too long is ended with the child, entered as an error, and a new child goes on behind it; so is a
case that crashed, or that cost the device. Groups stand side by side in the grid: a shorter run is an even sample.
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

CASE_S: Final = 8.0  # the longest that a case may take
START_S: Final = 90.0  # and a child, to import torch, load the libraries and measure what is taken once
TUNED_CASE_S: Final = 20.0  # trying out every engine takes its time
PROGRESS_S: Final = 10.0
SAVE_S: Final = 20.0


class Answer:
    """What the children wrote into the journal so far, as one document."""

    def __init__(self, path: Path, journal: Path) -> None:
        """Nothing is read yet."""
        self.path, self.journal = path, journal
        self.read_to = 0
        self.body: dict[str, Any] = {"rows": [], "errors": [], "micro": {}}

    def read(self) -> None:
        """Take in the journal's new whole lines."""
        if not self.journal.exists():
            return
        with self.journal.open("rb") as file:
            file.seek(self.read_to)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self.read_to += len(whole)
        for line in whole.splitlines():
            try:
                (kind, value), *_ = json.loads(line).items()
            except ValueError:  # a child that was ended while it wrote, with the next one's first line behind it
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
        """Write the document, replacing the last at once."""
        data = json.dumps(self.body, separators=(",", ":")).encode()
        beside = self.path.with_name(self.path.name + ".tmp")
        beside.write_bytes(gzip.compress(data, 6) if self.path.suffix == ".gz" else data)
        beside.replace(self.path)

    def told(self) -> str:
        """How far we are."""
        rows = self.body["rows"]
        slow = sum("slow_s" in json.dumps(row["is"]) for row in rows)
        return f"{len(rows)} cases, {slow} of them slow, {len(self.body['errors'])} errors"


class Watch:
    """The children, one after the other."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Clear what an earlier run left beside the answer."""
        options.out.parent.mkdir(parents=True, exist_ok=True)
        self.options = options
        self.journal = options.out.with_name(options.out.name + ".journal")
        self.position = options.out.with_name(options.out.name + ".at")
        self.journal.unlink(missing_ok=True)
        self.position.unlink(missing_ok=True)
        self.answer = Answer(options.out, self.journal)
        self.begun = time.time()
        self.printed = self.saved = self.begun

    def run(self) -> None:
        """Start children until the grid is walked or the time is up; then write the answer."""
        first, starts, failed_starts = 0, 0, 0
        while self.seconds_left() > 5 and failed_starts < 3:
            child = self.start(first)
            starts += 1
            said = self.watch(child)
            self.answer.read()
            if said is None:
                break
            at = self.tried()
            if at["group"] == "start":
                failed_starts += 1
            self.answer.body["errors"].append({**at, "error": said})
            print(f"{time.time() - self.begun:4.0f} s: case {at['i']} ({at['group']}): {said}", flush=True)
            first = max(first, int(at["i"]) + 1)
        self.answer.body.update(wall_s=round(time.time() - self.begun, 1), children=starts)
        self.answer.save()
        print(
            f"{self.answer.told()}, {self.answer.body['wall_s']:.0f} s, {self.options.out.stat().st_size / 1e6:.2f} MB"
        )
        for one in self.answer.body["errors"][:10]:
            print("  ", json.dumps(one)[:240])
        self.position.unlink(missing_ok=True)
        self.journal.unlink(missing_ok=True)

    def seconds_left(self) -> float:
        """Until the run is to end."""
        return float(self.options.seconds - (time.time() - self.begun))

    def start(self, first: int) -> subprocess.Popen[bytes]:
        """A child that goes on with case `first`."""
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
        command += ["--first", first, "--until", self.begun + options.seconds, "--most", options.most]
        command += ["--tuned-s", options.tuned_share * options.seconds, "--device", options.device]
        environment = dict(os.environ)
        if options.engine_log:  # cuDNN's frontend reads these once, when it is first used
            log = Path(tempfile.gettempdir()) / f"cudnn_plans_{os.getpid()}_{first}.log"
            environment |= {"CUDNN_FRONTEND_LOG_INFO": "1", "CUDNN_FRONTEND_LOG_FILE": str(log)}
        self.position.unlink(missing_ok=True)
        return subprocess.Popen([str(word) for word in command], env=environment, start_new_session=True)

    def watch(self, child: subprocess.Popen[bytes]) -> str | None:
        """Wait for the child; why its last case failed, or None where it did what it should."""
        started = time.time()
        while child.poll() is None:
            time.sleep(0.1)
            self.report()
            case_s = time.time() - (self.position.stat().st_mtime if self.position.exists() else started)
            most_s = START_S
            if self.position.exists() and (at := self.tried())["group"] != "start":
                most_s = TUNED_CASE_S if at["group"] == "tuned" else CASE_S
            overtime = self.seconds_left() < -3
            if case_s > most_s or overtime:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                return None if overtime else f"took more than {most_s:.0f} s and was ended"
        if child.returncode == 0:
            return None
        return f"the process ended with status {child.returncode}"

    def tried(self) -> dict[str, Any]:
        """The case that the child noted last."""
        if not self.position.exists():
            return {"i": -1, "group": "start"}
        told: dict[str, Any] = json.loads(self.position.read_text())
        return told

    def report(self) -> None:
        """Print how far we are and write the answer, if it is time."""
        now = time.time()
        if now - self.printed >= PROGRESS_S:
            self.printed = now
            self.answer.read()
            at = self.tried()
            print(f"{now - self.begun:4.0f} s: {self.answer.told()}, at case {at['i']} ({at['group']})", flush=True)
        if now - self.saved >= SAVE_S:
            self.saved = now
            self.answer.save()


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("scratch.json.gz"))
    parser.add_argument("--seconds", type=float, default=280.0, help="when to stop")
    parser.add_argument("--tuned-share", type=float, default=0.14, help="part of the time kept for cudnn.benchmark")
    parser.add_argument(
        "--models", action="store_true", help="measure the steps of scripts/bench/networks/models.py instead"
    )
    parser.add_argument("--only", default="", help="with --models: names, separated by commas")
    parser.add_argument("--most", type=int, default=1_000_000, help="at most so many cases")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dry-run", action="store_true", help="list the grid and stop")
    parser.add_argument("--engine-log", action=argparse.BooleanOptionalAction, default=False, help="read cuDNN's log")
    options = parser.parse_args(arguments)
    if options.models:
        from scripts.lab import probe_models  # needs torch, and its models take a while to define

        probe_models.run(options)
    elif options.dry_run:
        from scripts.lab import probe_grid  # needs torch

        probe_grid.listed()
    else:
        Watch(options).run()


if __name__ == "__main__":
    main()
