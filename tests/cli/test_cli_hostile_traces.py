"""Odd and hostile input of `inspect`: long names, odd paths, standard input, impossible times."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli_files import call

from profiler_kit.errors import OK, USAGE
from profiler_kit.render._fit import display_width
from profiler_kit.traces.kernels import classify
from profiler_kit.traces.rows import MAX_NAME_CHARS

WIDTH = 100


def trace_text(operator: str = "aten::mm", kernel: str = "sgemm", shapes: int = 2, **top: Any) -> str:
    """The text of a trace with twenty operators, one kernel each."""
    events: list[dict[str, Any]] = []
    for i in range(20):
        common = {"ph": "X", "pid": 1, "tid": 1, "ts": i * 100}
        events += [
            {**common, "cat": "cpu_op", "name": operator, "dur": 50, "args": {"Input Dims": [[64, 64]] * shapes}},
            {**common, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": i * 100 + 10, "dur": 5,
             "args": {"correlation": i}},
            {"ph": "X", "cat": "kernel", "name": kernel, "pid": 0, "tid": 7, "ts": i * 100 + 20, "dur": 30,
             "args": {"correlation": i, "device": 0, "stream": 7}},
        ]  # fmt: skip
    return json.dumps({"traceEvents": events, **top})


def test_no_line_is_wider_than_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wide.json"
    devices = [{"name": "D" * 3000}]
    file.write_text(trace_text("aten::" + "カ" * 800, "void " + "k" * 1446, shapes=300, deviceProperties=devices))
    result = call(["inspect", str(file), "--detail", "-q"], capfd)
    assert result.code == OK
    assert max(map(display_width, result.out.splitlines())) <= WIDTH
    assert "64x64, 64x64" in result.out


def test_names_of_megabytes_are_cut_before_anything_reads_them(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "long.json"
    document = json.loads(trace_text())
    for event, letter in zip(document["traceEvents"], "xyz", strict=False):
        event["name"] += letter * 10_000_000
    file.write_text(json.dumps(document))
    start = time.process_time()
    result = call(["inspect", str(file), "--detail", "-q"], capfd)
    assert result.code == OK
    assert time.process_time() - start < 10  # minutes, if the whole names are searched
    assert f"Names longer than {MAX_NAME_CHARS:,} characters were cut: 3." in result.out


def test_names_that_differ_in_a_counter_are_classified_once() -> None:
    start = time.process_time()
    families = {classify(f"triton_poi_fused_add_{i}").family for i in range(100_000)}
    assert families == {"pointwise"}
    assert time.process_time() - start < 3
    assert classify("sm80_xmma_fprop_tensor16x8x16816_123456").tensor_core
    assert classify("volta_h16816gemm_4096").math == "f16"


def test_standard_input_is_a_trace(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def redirect(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    redirect(trace_text())
    annotated = tmp_path / "annotated.json"
    result = call(["inspect", "-", "-f", "json", "-q", "--annotate", str(annotated)], capfd)
    assert result.code == OK
    assert [trace["file"] for trace in json.loads(result.out)["traces"]] == ["stdin"]
    assert json.loads(annotated.read_text())["traceEvents"]
    redirect('{"a": 1}')
    result = call(["inspect", "-", "-q"], capfd)
    assert result.err.startswith("error: stdin: not a trace")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a" * 5000, "File name too long"),
        ("a/" * 2500, "File name too long"),
        ("missing.json", "no such file"),
        ("nul\0l", "null"),
    ],
)
def test_a_path_that_is_none_gets_one_sentence(path: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    result = call(["inspect", path, "-q"], capfd)
    assert result.code == USAGE
    assert message in result.err
    assert len(result.err.splitlines()) == 2
    assert len(result.err) < 500


def test_a_pipe_gets_one_sentence_and_is_not_waited_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    result = call(["inspect", str(tmp_path / "pipe"), "-q"], capfd)
    assert result.code == USAGE
    assert "standard input" in result.err


def test_a_time_that_cannot_be_is_not_read_and_the_first_lines_say_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(trace_text())
    far = {"ph": "X", "cat": "kernel", "name": "far", "pid": 0, "tid": 7, "ts": 1e15, "dur": 3,
           "args": {"device": 0, "stream": 7}}  # fmt: skip
    document["traceEvents"].append(far)
    file = tmp_path / "far.json"
    file.write_text(json.dumps(document))
    result = call(["inspect", str(file), "-q"], capfd)
    assert result.code == OK
    assert "1 of 21 device events could not be read" in " ".join(result.out.split()[:40])


def test_an_annotated_trace_is_json(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.json"
    file.write_text(trace_text())
    for name in ("x.html", "x"):
        result = call(["inspect", str(file), "--annotate", str(tmp_path / name), "-q"], capfd)
        assert result.code == USAGE
        assert "an annotated trace is JSON" in result.err
        assert not (tmp_path / name).exists()
