"""`run` with programs of several kinds: every bit is as without it, and the report is that of a session placed by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from training_programs import BATCH, COUNTS, PROGRAMS, SESSION

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.jobs

ROOT = Path(__file__).resolve().parents[2]
FILE = str(ROOT / "tests" / "training_programs.py")
RUN = (
    "-m", "profiler_kit", "run", "-q", "--skip", str(COUNTS["warmup"]),
    "--steps", str(COUNTS["steps"]), "--traced", str(COUNTS["traced"]),
)  # fmt: skip
STEPS = 200
RANKS = "two-ranks"
NEW_MODELS = ("copies", "folds", "functional-ensemble", "trained-before")  # a session sees calls of its own model
SEVERAL_MODELS = ("adversarial", "adversarial-blocks")  # a session takes one model, and does not count here
CALLS = """
import hashlib, sys, torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters())
calls = []
def step():
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(torch.ones(4, 8)), torch.ones(4, 2)).backward()
    optimizer.step()
for _ in range(40):
    step()
sys.setprofile(lambda frame, event, _: calls.append(event + frame.f_code.co_filename + frame.f_code.co_qualname))
step()
sys.setprofile(None)
print(len(calls), hashlib.sha256(repr(calls).encode()).hexdigest())
"""
LOSSES = {
    "gradients-by-hand": "l1",
    "penalty": "cross_entropy + own terms",
    "evaluated-copies": "cross_entropy",
    "inner-loop": "cross_entropy",
    "trained-before": "mse",
    "perturbed": "cross_entropy",
    "replay": "smooth_l1",
}
LAUNCHER = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def output(folder: Path, *words: str, session: Path | None = None) -> list[str]:
    """The lines that a program prints, in the order of ranks."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    if session is not None:
        environment[SESSION] = str(session)
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    return sorted(done.stdout.splitlines())


def alone(folder: Path, name: str, steps: int, session: Path | None = None) -> list[str]:
    return output(folder, *(LAUNCHER if name == RANKS else ()), FILE, name, str(steps), session=session)


def watched(folder: Path, name: str, steps: int) -> list[str]:
    return output(folder, *(LAUNCHER if name == RANKS else ()), *RUN, "--out", "out", FILE, name, str(steps))


def report_of(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "report.json").read_text())
    return report


@pytest.mark.fresh_process
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_bit_is_as_without_run(tmp_path: Path, name: str) -> None:
    lines = alone(tmp_path, name, STEPS)
    assert len(lines) == (2 if name == RANKS else 1)
    assert watched(tmp_path, name, STEPS) == lines
    report = report_of(tmp_path / "out")
    measured = report["runs"][0]
    assert (len(measured["steps_ns"]), measured["traced_steps"]) == (COUNTS["steps"], COUNTS["traced"])
    if name in LOSSES:
        assert (report["target"]["name"], report["target"]["loss"]) == ("Net", LOSSES[name])
    if name in NEW_MODELS:  # they are counted as the first one
        assert facts(report)["phases"] >= {"forward", "loss", "backward", "optimizer"}
        assert report["target"]["name"] == "Net"
        assert report["static"]["forward"]["macs"] == BATCH * (16 * 32 + 32 * 4)
        assert {"first", "last"} <= {module["path"] for module in measured["modules"]}
    if name == RANKS:
        ranks = json.loads((tmp_path / "out" / "ranks.json").read_text())
        assert [trace["rank"] for trace in ranks["traces"]] == [0, 1]
        assert {finding["rule"] for finding in ranks["findings"]} >= {"stragglers"}
        assert [straggler["rank"] for straggler in ranks["ranks"]["stragglers"]] == [1]


@pytest.mark.parametrize(
    "name", sorted({*PROGRAMS} - {*NEW_MODELS, "evaluation-first"})
)  # `run` records the loop of its other thread
def test_report_is_that_of_a_session_placed_by_hand(tmp_path: Path, name: str) -> None:
    watched(tmp_path, name, 40)
    alone(tmp_path, name, 40, session=tmp_path / "by_hand")
    found, by_hand = report_of(tmp_path / "out"), report_of(tmp_path / "by_hand")
    assert facts(found) == facts(by_hand)
    if name not in SEVERAL_MODELS:
        assert counts(found) == counts(by_hand)


def test_a_step_after_the_report_makes_the_same_calls(tmp_path: Path) -> None:
    """No hook is left: Python calls the same functions in the same order as without `run`."""
    code = tmp_path / "calls.py"
    code.write_text(CALLS)
    words = output(tmp_path, *RUN, "--out", "out", str(code))
    assert report_of(tmp_path / "out")["runs"][0]["traced_steps"] == COUNTS["traced"]
    assert words == output(tmp_path, str(code))
    assert int(words[0].split()[0]) > 50


def facts(report: dict[str, Any]) -> dict[str, Any]:
    """What the loop did."""
    measured = report["runs"][0]
    return {
        "phases": {phase["phase"] for phase in measured["phases"]},
        "steps": (measured["warmup_steps"], len(measured["steps_ns"]), measured["traced_steps"]),
        "mode": report["target"]["mode"],
        "optimizer": report["target"]["optimizer"],
    }


def counts(report: dict[str, Any]) -> dict[str, Any]:
    """The static counts, and the examples of a step."""
    static = report["static"]
    return {
        "params": static["params"],
        "forward": static["forward"],
        "inputs": [(i["shape"], i["dtype"]) for i in report["target"]["inputs"]],
        "examples": report["runs"][0]["samples"],
    }
