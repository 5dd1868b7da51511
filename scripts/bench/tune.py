"""`tune` beside settings that are timed by hand, for ten networks, each in processes of its own.

    python -m scripts.bench.tune --out hand.jsonl --only resnet50,vgg16       # about 80 s for each network on a GPU
    python -m scripts.bench.tune --aa --out aa.jsonl --budget 20              # changes without an effect: how many are accepted?
    python -m scripts.bench.tune table hand.jsonl                             # the rows of docs/tutorial_tune.md
    python -m scripts.bench.tune --device cpu --small --out trial.jsonl

Writes a JSON line for each network as it ends. `scripts.bench.tune_by_hand` runs right after each search, and times the
answers of `tune` again. `--first` and `--count` choose networks by number; `--seconds` ends a call before a network that
may not fit.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
OWN: Final = "scripts/bench/tuned_networks"
PLACEBO: Final = """
from profiler_kit.configurations.axis import EVERYWHERE, SAME_RESULTS, Axis, Change

AXES = (
    Axis(name="placebo", values="N", bare="", parse_value=str, doc="nothing", devices=EVERYWHERE,
         change=Change(line="", numerics=SAME_RESULTS)),
)
"""
PLACEBOS: Final = 20
PROGRESS: Final = re.compile(r" +\d+ s  ")
REST_S: Final = 40.0  # which a search may take beyond its budget, before it is a failure


@dataclass(frozen=True, slots=True)
class Network:
    """A model file with the number of examples in a step."""

    target: str
    batch: int


NETWORKS: Final = {
    "cifar-1": Network(f"{OWN}/cifar_resnet.py:ResNet18", 1),
    "cifar-128": Network(f"{OWN}/cifar_resnet.py:ResNet18", 128),
    "resnet50": Network("models/resnet.py:resnet50", 64),
    "vgg16": Network("models/vgg.py:VGG16", 32),
    "vit": Network(f"{OWN}/vit.py:ViT", 32),
    "gpt": Network("models/transformer.py:GPT", 8),
    "unet": Network("models/unet.py:UNet", 8),
    "tagger": Network(f"{OWN}/tagger.py:Tagger", 64),
    "diffusion": Network(f"{OWN}/diffusion.py:DiffusionUNet", 32),
    "recommender": Network(f"{OWN}/recommender.py:Recommender", 2048),
}
SMALL: Final = {"recommender": 64}
SMALLEST: Final = 2


def main() -> None:
    """Measure, or print the table."""
    if sys.argv[1:2] == ["table"]:
        print(
            "\n".join(
                table([json.loads(line) for file in sys.argv[2:] for line in Path(file).read_text().splitlines()])
            )
        )
        return
    options = _parser().parse_args()
    deadline_s = time.monotonic() + options.seconds
    needed_s = options.budget + options.hand * (not options.aa)
    with tempfile.TemporaryDirectory() as folder:
        package = _with_placebos(Path(folder)) if options.aa else ROOT
        for name in _chosen(options):
            if time.monotonic() + needed_s > deadline_s:
                print(f"no time left for {name}", file=sys.stderr)
                continue
            row = {"network": name, "batch": _batch(name, options), **_row(name, options, Path(folder), package)}
            line = json.dumps(row)
            print(line, flush=True)
            if options.out is not None:
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of networks, as A,B")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=len(NETWORKS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="batches that a CPU can run")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of each search")
    parser.add_argument("--hand", type=float, default=15.0, help="seconds by hand")
    parser.add_argument("--seconds", type=float, default=540.0, help="time of the whole call")
    parser.add_argument("--aa", action="store_true", help="search among changes that have no effect")
    parser.add_argument("--changes", default="", help="search these changes only")
    parser.add_argument("--out", type=Path, help="append the lines to this file")
    parser.add_argument("--keep", type=Path, help="keep the results of tune in this folder")
    return parser


def _chosen(options: argparse.Namespace) -> list[str]:
    names = options.only.split(",") if options.only else list(NETWORKS)
    return names[options.first : options.first + options.count]


def _batch(name: str, options: argparse.Namespace) -> int:
    batch = NETWORKS[name].batch
    return min(batch, SMALL.get(name, SMALLEST)) if options.small else batch


def _with_placebos(folder: Path) -> Path:
    """A copy of the package, in `folder`, whose changes include some without an effect."""
    shutil.copytree(ROOT / "profiler_kit", folder / "profiler_kit")
    (folder / "profiler_kit/configurations/axes/placebo.py").write_text(PLACEBO, encoding="utf-8")
    return folder


def _row(name: str, options: argparse.Namespace, folder: Path, package: Path) -> dict[str, Any]:
    """The figures of a network. A failure is a row, too."""
    changes = [f"placebo={number}" for number in range(PLACEBOS)] if options.aa else options.changes.split(",")
    start_s = time.monotonic()
    row: dict[str, Any] = _tuned(name, options, folder, package, list(filter(None, changes)))
    row["wall_s"] = time.monotonic() - start_s
    if not options.aa and "error" not in row:
        sets = [answer["changes"] for answer in row["answers"].values()]
        row["by_hand"] = list(_by_hand(name, options, sets))
    return row


def _tuned(
    name: str, options: argparse.Namespace, folder: Path, package: Path, changes: Sequence[str]
) -> dict[str, Any]:
    """What `tune` finds, by its command line."""
    file = (options.keep or folder) / f"tune_{name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    words = [
        "--goal",
        "time",
        "--batch",
        str(_batch(name, options)),
        "--device",
        options.device,
        "--budget",
        f"{options.budget}s",
    ]
    words += ["--changes", ",".join(changes)] if changes else []
    command = [sys.executable, "-m", "profiler_kit", "tune", str(ROOT / NETWORKS[name].target), *words, "-o", str(file)]
    paths = [str(package), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    limit_s = options.budget + REST_S
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}
    done, output = _finished(command, limit_s, environment)
    if done != 0 or not file.exists():
        return {"error": f"exit {done}: {output[-500:]}"}
    progress = [line.strip() for line in output.splitlines() if PROGRESS.match(line)]
    return {**_figures(json.loads(file.read_text(encoding="utf-8"))), "progress": progress}


def _finished(command: Sequence[str], limit_s: float, environment: dict[str, str]) -> tuple[int | None, str]:
    """The exit status (None after `limit_s`) and the output of `command`, which runs outside of any package."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit_s,
            env=environment,
            cwd=tempfile.gettempdir(),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return None, str(error)
    return done.returncode, done.stdout + done.stderr


def _figures(tuning: dict[str, Any]) -> dict[str, Any]:
    """The part of a result of `tune` that is compared, and the reasons of its search."""
    answers = {"same": tuning, "reduced": tuning["reduced"]}
    fields = ("change", "base", "outcome", "reason", "expected", "ratio", "max_relative_error")
    environment = tuning["environment"]
    return {
        "device": environment["device_name"],
        "torch": environment["torch"],
        "outcome": tuning["outcome"],
        "step_ns": (tuning["baseline"]["step_ns"] or {}).get("median"),
        "answers": {name: _answer(answer) for name, answer in answers.items() if answer and answer["changes"]},
        "accepted": sum(attempt["outcome"] == "accepted" for attempt in tuning["attempts"]),
        "compared": sum(attempt["gain"] is not None for attempt in tuning["attempts"]),
        "attempts": [{field: attempt[field] for field in fields} for attempt in tuning["attempts"]],
        "reachable": tuning["reachable"],
        "processes": tuning["processes"],
        "tune_s": tuning["wall_ns"] * 1e-9,
        "notes": tuning["notes"],
    }


def _answer(answer: dict[str, Any]) -> dict[str, Any]:
    gain = answer["gain"] or {}
    figures = {name: gain.get(name) for name in ("ratio", "low", "high")}
    return {"changes": answer["changes"], "outcome": answer["outcome"], **figures}


def _by_hand(name: str, options: argparse.Namespace, sets: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
    """The lines of `tune_by_hand`, which also tries `sets`."""
    network = NETWORKS[name]
    script = ROOT / "scripts/bench/tune_by_hand.py"
    command = [sys.executable, str(script), str(ROOT / network.target), "--batch", str(_batch(name, options))]
    command += ["--device", options.device, "--seconds", str(options.hand), "--also", *map(",".join, sets)]
    done, output = _finished(
        command, 2 * options.hand + REST_S, {**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    )
    for line in output.splitlines():
        if line.startswith("{"):
            yield json.loads(line)
    if done != 0:
        yield {"settings": None, "error": f"exit {done}: {output[-500:]}"}


# --- the table


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The rows of the page: of the answers with the precision of the step, and with less."""
    head = "| network | batch | answer | `tune` | its gain | again, by hand | best by hand | its gain | share | time |"
    return [head, "|---|--:|---|---|--:|--:|---|--:|--:|--:|", *(line for row in rows for line in _lines(row))]


def _lines(row: dict[str, Any]) -> Iterator[str]:
    place = f"| {row['network']} | {row['batch']}"
    if "error" in row:
        yield f"{place} | failed: {row['error'].splitlines()[-1] if row['error'] else ''} | | | | | | | |"
        return
    if "by_hand" not in row:
        yield f"{place} | {row['accepted']} of {row['compared']} accepted | | | | | | | {row['tune_s']:.0f} s |"
        return
    for kind in ("same", "reduced"):
        yield f"{place} | {kind} | {' | '.join(_cells(row, kind))} | {row['tune_s']:.0f} s |"


def _cells(row: dict[str, Any], kind: str) -> list[str]:
    """What `tune` found, what that gains when it is timed again, the best set by hand, and the share of its gain."""
    timed = [line for line in row["by_hand"] if line.get("ratio")] or [{"settings": [], "ratio": 1.0}]
    best = min(
        (line for line in timed if kind == "reduced" or not is_reduced(line["settings"])),
        key=lambda line: line["ratio"],
    )
    gain = 1 - best["ratio"]
    answers = row["answers"]
    answer = answers.get(kind) or answers.get("same")
    is_valid = answer is not None and answer["outcome"] == "better"
    found = 1 - answer["ratio"] if is_valid and answer["ratio"] else 0.0
    again = next((line for line in timed if answer and set(line["settings"]) == set(answer["changes"])), None)
    names = [_names(answer["changes"] if is_valid else ()), _names(best["settings"])]
    interval = (
        f"{_percent(found)} ({_number(1 - answer['high'])} to {_percent(1 - answer['low'])})" if is_valid else "-"
    )
    repeated = _percent(1 - again["ratio"]) if again is not None else "-"
    share = f"{found / gain:.2f}" if gain > 0.01 else "-"
    return [names[0], interval, repeated, names[1], _percent(gain), share]


def is_reduced(settings: Sequence[str]) -> bool:
    """Whether settings compute with fewer bits."""
    return any(word.startswith(("amp_", "matmul_tf32", "dtype")) for word in settings)


def _names(settings: Sequence[str]) -> str:
    return ", ".join(f"`{word}`" for word in settings) or "nothing"


def _percent(share: float) -> str:
    return f"{_number(share)} %"


def _number(share: float) -> str:
    return f"{100 * share:.1f}"


if __name__ == "__main__":
    main()
