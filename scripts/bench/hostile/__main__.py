"""Runs the hostile files and environments, and prints what ended without a verdict.

Status 0 needs a complete report, status 1 a verdict. No traceback of the tool, no process left, no hang.
"""

from __future__ import annotations

import argparse
import atexit
import collections
import concurrent.futures
import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import profiler_kit
from scripts.bench.hostile.environments import MODEL, Environment, environments
from scripts.bench.hostile.models import HostileModel, hostile_models

PACKAGE_PARENT: Final = Path(profiler_kit.__file__).resolve().parents[1]
LIMIT_S: Final = 180.0
TIMEOUT: Final = "--timeout 20s"
OUR_FRAME: Final = re.compile(r'File "[^"]*/profiler_kit/[^"]+", line \d+')
# PYTHONIOENCODING=utf-16 is obeyed, and read here without its zero bytes
KEYS: Final = {"count": "static", "check": "verdict", "compare": "schema"}
STATUSES: Final = (0, 1, 2, 3, 4, 130)


@dataclass(frozen=True, slots=True)
class Ended:
    """One run: what was run, how it ended, and what is wrong with that."""

    name: str
    command: str
    status: int
    seconds: float
    faults: tuple[str, ...]
    last_line: str


def main(argv: Sequence[str] | None = None) -> int:
    """Run the cases and print a table of the faults; status 1 if there is any."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.hostile", description=__doc__)
    parser.add_argument("kind", choices=("models", "environments"))
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, nargs="+", default=[1])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--preloaded", action="store_true", help="models: fork each command from a process that has torch"
    )
    parser.add_argument("--only", default="", help="run the cases whose name contains this text")
    parser.add_argument("--keep", type=Path, help="write the output of cases with faults into this folder")
    options = parser.parse_args(argv)
    rounds = tuple(options.rounds)
    cases: list[HostileModel | Environment]
    if options.kind == "models":
        cases = list(hostile_models(options.count, options.seed, rounds))
    else:
        cases = list(environments(options.count, options.seed, rounds))
    with (
        tempfile.TemporaryDirectory(prefix="hostile_") as folder,
        concurrent.futures.ProcessPoolExecutor(
            options.jobs, initializer=_preload if options.preloaded else None
        ) as pool,
    ):
        root = Path(folder)
        base = _base_report(root)
        jobs = []
        for number, case in enumerate(cases):
            if options.only in _name(case):
                jobs.append(pool.submit(_run_case, case, number, root / str(number), base, options.keep))
        ended = []
        for job in concurrent.futures.as_completed(jobs):
            ended.append(job.result())
            if ended[-1].faults:
                print(_line(ended[-1]), flush=True)
    _print_table(ended)
    return int(any(run.faults for run in ended))


def _name(case: HostileModel | Environment) -> str:
    return f"{case.act} in {case.place}" if isinstance(case, HostileModel) else case.name


def _base_report(root: Path) -> Path:
    """A saved report of the correct model, as the base of checks."""
    (root / "base").mkdir()
    (root / "base" / "net.py").write_text(MODEL)
    command = [sys.executable, "-m", "profiler_kit", "count", "net.py", "-q", "-f", "json"]
    done = subprocess.run(
        command,
        cwd=root / "base",
        env={**os.environ, "PYTHONPATH": str(PACKAGE_PARENT)},
        capture_output=True,
        check=True,
    )
    report = root / "base" / "report.json"
    report.write_bytes(done.stdout)
    return report


def _run_case(case: HostileModel | Environment, number: int, folder: Path, base: Path, keep: Path | None) -> Ended:
    folder.mkdir()
    verb = ("count", "check", "count", "compare")[number % 4]
    words = {
        "count": "count {} -q -f json",
        "check": f"check {{}} --base {base} --budget flops=+10% -q -f json",
        "compare": f"compare {{}} {base} --static -q -f json",
    }[verb] + f" {TIMEOUT}"
    if isinstance(case, HostileModel):
        (folder / "net.py").write_text(case.source)
        environment = Environment("")
        words = words.format("net.py")
        if number % 8 >= 4:
            words += " --no-slice" if number % 16 >= 8 else " -i 2,8"
    else:
        (folder / "net.py").write_text(MODEL)
        environment = case
        for name, text in case.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        words = words.format(case.words)
    return _run(_name(case), verb, words, environment, folder, keep)


def _run(name: str, verb: str, words: str, environment: Environment, folder: Path, keep: Path | None) -> Ended:
    mark = uuid.uuid4().hex
    variables = {**os.environ, "HOSTILE": mark, "PYTHONPATH": str(PACKAGE_PARENT)}
    for key, value in environment.variables.items():
        if value is None:
            variables.pop(key, None)
        elif key == "PYTHONPATH":
            variables[key] = f"{value}{os.pathsep}{PACKAGE_PARENT}"
        else:
            variables[key] = value
    has_stdout = ">" not in environment.redirection.replace("2>", "") and "|" not in environment.redirection
    report = folder / "hostile_report.json"
    if not has_stdout and verb != "check":
        words += f" -o {report}"
    command = f"{shlex.quote(sys.executable)} -m profiler_kit {words} {environment.redirection}"
    out, err = folder.with_suffix(".out"), folder.with_suffix(".err")
    start_s = time.monotonic()
    with out.open("wb") as stdout, err.open("wb") as stderr:
        if _is_preloaded:
            pid = _forked(words.split(), folder, variables, stdout.fileno(), stderr.fileno())
        else:
            pid = subprocess.Popen(
                ["/bin/bash", "-c", f"{environment.before}; {command}"],
                cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
            ).pid  # fmt: skip
        code = _wait(pid, LIMIT_S)
        hangs = code is None
        status = code if code is not None else -signal.SIGKILL
    seconds = time.monotonic() - start_s
    left = [other for other in _marked(mark, pid) if not _is_of_shell(other, environment)]
    for other in _marked(mark, pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(other, signal.SIGKILL)
    text = out.read_text(errors="replace") if has_stdout or not report.exists() else report.read_text(errors="replace")
    log = err.read_text(errors="replace")
    faults = [] if environment.not_judged else list(_faults(verb, status, text, log, has_stdout=has_stdout))
    faults += [f"{len(left)} processes left"] * bool(left) + ["hang"] * hangs
    last_line = next((line for line in reversed(log.splitlines()) if line.startswith("error:")), "")
    if faults and keep is not None:
        keep.mkdir(exist_ok=True)
        stem = re.sub(r"\W+", "_", name)[:60]
        (keep / f"{stem}.txt").write_text(f"{command}\nstatus {status}\n{log[-20000:]}\n--- stdout\n{text[-2000:]}")
        if (folder / "net.py").exists() and os.access(folder / "net.py", os.R_OK):
            shutil.copy(folder / "net.py", keep / f"{stem}.py")
    return Ended(name, words, status, seconds, tuple(faults), last_line)


_is_preloaded = False


def _preload() -> None:
    """Import torch and the stages, in a process that forks commands."""
    global _is_preloaded
    import profiler_kit.cli
    import profiler_kit.counting
    import profiler_kit.loading
    import profiler_kit.memory
    import profiler_kit.pipeline.check
    import profiler_kit.pipeline.compare  # noqa: F401

    _is_preloaded = True


def _forked(words: list[str], folder: Path, variables: dict[str, str], stdout: int, stderr: int) -> int:
    """The id of a fork that runs the command line `words` in `folder`."""
    pid = os.fork()
    if pid:
        return pid
    try:
        atexit._clear()  # those of this benchmark, such as the one that removes its folder
        os.setsid()
        for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), stdout, stderr)):
            os.dup2(stream, number)
        os.closerange(3, 100)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(variables)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        sys.argv = ["profiler-kit", *words]
        from profiler_kit.cli import entry

        entry()
    except SystemExit as error:
        sys.stdout.flush()
        os._exit(error.code if isinstance(error.code, int) else 1)
    finally:
        os._exit(99)


def _wait(pid: int, limit_s: float) -> int | None:
    """The exit code of the child `pid`; None if it was killed after `limit_s` seconds."""
    until_s = time.monotonic() + limit_s
    while time.monotonic() < until_s:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _faults(verb: str, status: int, text: str, log: str, *, has_stdout: bool) -> list[str]:
    faults = []
    try:
        has_report = KEYS[verb] in json.loads(text.replace("\0", "").lstrip("\ufffd"))  # also UTF-16
    except (ValueError, TypeError):
        has_report = False
    if status in (0, 1) and not has_report and (has_stdout or verb != "check"):
        faults.append(f"status {status} without a report")
    if status not in STATUSES:
        faults.append(f"status {status}")
    if status not in (0, 1, 4) and text.strip() and has_stdout and verb != "check":
        faults.append(f"output with status {status}")
    if "internal error" in log:
        faults.append("internal error")
    if any(OUR_FRAME.search(part.partition("\n\n")[0]) for part in log.split("Traceback (most recent call last)")[1:]):
        faults.append("traceback of the tool")
    if len(re.findall("^error: ", log, re.MULTILINE)) > 1:
        faults.append("error printed more than once")
    if status in (2, 3, 4) and not log.strip():
        faults.append(f"status {status} without a word")
    return faults


def _marked(mark: str, session: int) -> list[int]:
    """The processes whose environment has the mark of this run, or that belong to its session."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, its_session = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:4]
            is_marked = mark.encode() in (folder / "environ").read_bytes()
        except OSError:
            continue
        if state != "Z" and (is_marked or int(its_session) == session):
            pids.append(int(folder.name))
    return pids


def _is_of_shell(pid: int, environment: Environment) -> bool:
    """Whether the shell of the environment, not the tool, has started the process."""
    try:
        program = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return True
    return program in environment.before.split() or program.endswith("bash")


def _line(run: Ended) -> str:
    return f"{', '.join(run.faults)}: {run.name} [{run.command}] status {run.status}, {run.seconds:.0f} s  {run.last_line[:150]}"


def _print_table(ended: list[Ended]) -> None:
    counts = collections.Counter(fault for run in ended for fault in run.faults)
    statuses = collections.Counter(run.status for run in ended)
    print(f"\n{len(ended)} runs, {sum(bool(run.faults) for run in ended)} with a fault")
    for fault, number in counts.most_common():
        print(f"  {number:4} {fault}")
    print("  status: " + ", ".join(f"{status}: {number}" for status, number in sorted(statuses.items())))


if __name__ == "__main__":
    sys.exit(main())
