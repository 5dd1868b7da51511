"""Random networks and the recorder of the prices of ops."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from waiting import AMPLE_S

from scripts.lab.price_networks import FAMILIES, REPEATED, family_of
from scripts.lab.price_networks.other import OPERATORS
from scripts.lab.price_networks.parts import Draw
from scripts.lab.record_prices import CallRecorder, Mode, Parsers, build_step, price_calls, read_trace, record

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.jobs
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_runs_a_step_without_data(family: str) -> None:
    model, step = build_step(family, Draw(f"{family}/G"), Mode("fp32", False, True, "sgd"), "meta")
    recorder = CallRecorder()
    with recorder:
        step()
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}
    assert len({op for op, _, _ in recorder.calls}) > 5


def test_the_same_seed_draws_the_same_network() -> None:
    shapes = []
    for seed in ("1", "1", "2"):
        with torch.device("meta"):
            model, _, _ = FAMILIES["resnet"](Draw(seed))
        shapes.append([parameter.shape for parameter in model.parameters()])
    assert shapes[0] == shapes[1] != shapes[2]


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_takes_images(operator: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert operator(torch.empty(2, 16, 8, 8, device="meta")).numel() > 0


def test_a_round_holds_every_family() -> None:
    length = sum(REPEATED.get(name, 1) for name in FAMILIES)
    rounds = [[family_of(start + each) for each in range(length)] for start in (0, length * 7)]
    assert set(rounds[0]) == set(FAMILIES)
    assert sorted(rounds[0]) == sorted(rounds[1])
    assert rounds[0] != rounds[1]


def write_trace(path: Path, durations: list[float], names: list[str], ranges: dict[str, tuple[float, float]]) -> Path:
    """A trace whose kernels are launched at 10, 20, ..., and start in the order of launches."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "ts": 0.0}]
    for index, (duration, name) in enumerate(zip(durations, names, strict=True), 1):
        link = {"correlation": index}
        launch = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 10.0 * index, "dur": 1.0, "args": link}
        kernel = {"cat": "kernel", "name": name, "ts": 100.0 * index, "dur": duration, "args": link}
        events += [kernel, launch]
    events += [
        {"cat": "user_annotation", "name": name, "ts": at[0], "dur": at[1] - at[0]} for name, at in ranges.items()
    ]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


CALLS = [("aten.mm", "a", "b"), ("aten.view", "b", "c"), ("aten.mm", "a", "b")]
RANGES = {"op#0": (9.0, 25.0), "op#1": (26.0, 27.0), "op#2": (29.0, 31.0), "Optimizer.step": (0.0, 90.0)}


def test_kernels_belong_to_the_op_that_launched_them(tmp_path: Path) -> None:
    names = ["gemm", "reduce", "gemm", "copy"]
    ranges = read_trace(write_trace(tmp_path / "ranges.json", [5.0, 7.0, 9.0, 11.0], names, RANGES))
    natural = read_trace(write_trace(tmp_path / "natural.json", [1.0, 2.0, 5.0, 4.0], names, {}))
    prices = price_calls(CALLS, ranges, natural)
    assert prices == {
        "kernel_ns": 12000,
        "natural": 1,
        "unowned_us": 4.0,
        "rows": [["aten.mm", "a", "b", 2, 4.0, 2, "gemm|reduce"], ["aten.view", "b", "c", 1, 0.0, 0, ""]],
    }


def test_other_kernels_have_no_natural_duration(tmp_path: Path) -> None:
    ranges = read_trace(write_trace(tmp_path / "ranges.json", [5.0, 7.0], ["gemm", "gemm"], RANGES))
    natural = read_trace(write_trace(tmp_path / "natural.json", [1.0, 2.0], ["gemm", "wgrad"], {}))
    prices = price_calls(CALLS, ranges, natural)
    assert (prices["natural"], prices["kernel_ns"]) == (0, 12000)
    assert [row[4] for row in prices["rows"]] == [6.0, 0.0]


def recorder_that_fails(number: int, folder: Path) -> None:
    """Write the numbers that run; hang at 3, die at 5, end at 7."""
    for each in range(number, 8):
        (folder / "beat").write_text(str(each))
        (folder / f"ran{each}").touch()
        if each == 3:
            os.utime(folder / "beat", (0, 0))  # as if it had hung for long
            time.sleep(600)
        if each == 5:
            os._exit(9)


@pytest.fixture
def parsers(tmp_path: Path) -> Iterator[Parsers]:
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        yield Parsers(pool, tmp_path, tmp_path / "out.jsonl.gz")


@pytest.mark.jobs
def test_a_hang_or_a_crash_costs_one_network(parsers: Parsers) -> None:
    starts = []

    def start(number: int) -> Any:
        starts.append(number)
        process = get_context("fork").Process(target=recorder_that_fails, args=(number, parsers.folder))
        process.start()
        return process

    following = record(start, parsers, 1, lambda: len(starts) == 3, AMPLE_S)
    assert (starts, following) == ([1, 4, 6], 8)
    assert sorted(each.name for each in parsers.folder.glob("ran*")) == [f"ran{each}" for each in range(1, 8)]


@pytest.mark.jobs
def test_a_recording_has_a_line_per_network(tmp_path: Path) -> None:
    out = tmp_path / "prices.jsonl.gz"
    command = [sys.executable, "-m", "scripts.lab.record_prices", "--device", "cpu", "--family", "products"]
    subprocess.run([*command, "--seconds", "0", "--first", "17", "--out", out], cwd=ROOT, check=True)
    (line,) = (json.loads(each) for each in gzip.decompress(out.read_bytes()).splitlines())
    assert (line["family"], line["seed"], len(line["step_ns"]), line["kernel_ns"]) == ("products", 17, 4, 0)
    assert line["mode"].keys() == {"p", "cl", "train", "opt"}
    assert line["host"] == {"torch": torch.__version__, "cudnn": None, "device": "cpu"}
    assert {"aten.randn", "aten.mul", "aten.mean"} <= {row[0] for row in line["rows"]}
    assert all(len(row) == 7 and row[3] >= 1 for row in line["rows"])


@pytest.mark.jobs
def test_a_trace_that_cannot_be_parsed_costs_one_line(parsers: Parsers, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("1.job", "{"), ("2.job", '{"facts": {"seed": 2}, "calls": []}')):
        (parsers.folder / name).mkdir()
        (parsers.folder / name / "job.json").write_text(text)
        for trace in ("ranges", "natural"):
            write_trace(parsers.folder / name / f"{trace}.json", [], [], {})
    parsers.collect()
    assert [json.loads(line)["seed"] for line in gzip.decompress(parsers.out.read_bytes()).splitlines()] == [2]
    assert (parsers.lines, len(capsys.readouterr().out.splitlines())) == (1, 1)
