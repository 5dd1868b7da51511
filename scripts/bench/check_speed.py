"""Time `check` against its base and `count` of the same model, in alternating rounds in a temporary repository.

    python -m scripts.bench.check_speed [--rounds 5]

Prints the smallest and the median wall time, the CPU time, and the ratio of `check` to `count`: the floor, because `check` counts
both sides. The edit is a stem without its stride, and one of 1,000 layers.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DEEP: Final = """
import torch
from torch import nn

model = nn.Sequential(*[nn.Linear(64 if i != 500 else 64, 64) for i in range(1000)])
example_inputs = torch.zeros(8, 64)
"""


@dataclass(frozen=True, slots=True)
class Case:
    """A model and an edit of it: `old` becomes `new`."""

    name: str
    target: str
    text: str
    old: str
    new: str


def cases() -> list[Case]:
    """ResNet-50 and a network with 1,000 layers."""
    resnet = (ROOT / "models" / "resnet.py").read_text(encoding="utf-8")
    return [
        Case(
            "ResNet-50",
            "net.py:resnet50",
            resnet,
            "self.conv1 = conv(3, 64, 7, stride=2)",
            "self.conv1 = conv(3, 64, 7, stride=1)",
        ),
        Case(
            "1,000 layers", "net.py", DEEP, "nn.Linear(64 if i != 500 else 64, 64)", "nn.Linear(64, 64, bias=i != 500)"
        ),
    ]


def run(arguments: list[str], folder: Path) -> tuple[float, float]:
    """Wall and CPU seconds of a command, children included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "profiler_kit", *arguments, "-q"],
        cwd=folder,
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    wall_s = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        sys.exit(f"{' '.join(arguments)} failed:\n{done.stderr.decode()}")
    return wall_s, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def repository(case: Case, folder: Path) -> None:
    """A repository whose working tree differs from its only commit by the edit."""
    assert case.old in case.text, case.name
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    (folder / "net.py").write_text(case.text, encoding="utf-8")
    for words in (("init", "-q"), ("add", "net.py"), ("commit", "-qm", "base")):
        subprocess.run([*git, *words], cwd=folder, check=True)
    (folder / "net.py").write_text(case.text.replace(case.old, case.new), encoding="utf-8")


def main() -> int:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}, {rounds} rounds")
    print(f"{'':24}{'smallest':>10}{'median':>10}{'CPU':>10}")
    for case in cases():
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            repository(case, folder)
            commands = {
                "count": ["count", case.target],
                "check": ["check", case.target, "--budget", "flops=+10%", "--budget", "peak=+10%"],
            }
            for arguments in commands.values():
                run(arguments, folder)  # fills caches
            times = [{verb: run(arguments, folder) for verb, arguments in commands.items()} for _ in range(rounds)]
        for verb in commands:
            wall, cpu = zip(*(each[verb] for each in times), strict=True)
            seconds = (min(wall), statistics.median(wall), statistics.median(cpu))
            print(f"{case.name + ': ' + verb:24}" + "".join(f"{each:>8.2f} s" for each in seconds))
        ratios = [each["check"][0] / each["count"][0] for each in times]
        print(f"{'check / count':24}{min(ratios):>9.2f}x{statistics.median(ratios):>9.2f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
