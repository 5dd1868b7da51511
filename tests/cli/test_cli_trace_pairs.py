"""`compare` of two traces, and `inspect` of several ranks, as they are typed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from cli_files import call

from profiler_kit.errors import NOT_COMPARABLE, OK, USAGE

FIXTURES = Path(__file__).parents[1] / "fixtures" / "traces"
RANKS = sorted(str(path) for path in (FIXTURES / "ranks").glob("rank*.json.gz"))


def test_two_traces_are_compared_in_every_format(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = call(["compare", *RANKS, "-o", str(tmp_path / "c.json"), "-o", str(tmp_path / "c.csv")], capfd)
    assert done.code == OK
    assert done.out.startswith("rank0 and rank1\n")
    assert "The work in operators takes" in re.sub(r"\s+", " ", done.out)
    written = json.loads((tmp_path / "c.json").read_text())
    parts = sum(row["b_ns"] - row["a_ns"] for row in (*written["phases"], *written["causes"]))
    assert parts == written["span"]["b_ns"] - written["span"]["a_ns"]
    assert (tmp_path / "c.csv").read_text().startswith("table,name,phase,a_ns,b_ns,change_ns")


def test_what_inspect_saved_is_compared_like_the_trace(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = tmp_path / "rank0.json"
    assert call(["inspect", RANKS[0], "-o", str(saved), "-q"], capfd).code == OK
    again = call(["compare", str(saved), RANKS[1], "-f", "json", "-q"], capfd)
    assert again.code == OK
    assert again.out == call(["compare", *RANKS, "-f", "json", "-q"], capfd).out


def test_a_folder_with_one_trace_stands_for_it(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for number, path in enumerate(RANKS):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        (folder / "trace.json.gz").write_bytes(Path(path).read_bytes())
    done = call(["compare", str(tmp_path / "run0"), str(tmp_path / "run1"), "-q"], capfd)
    assert done.code == OK
    assert done.out.startswith("run0 and run1\n")


@pytest.mark.parametrize("order", [1, -1])
def test_a_trace_beside_something_else_is_refused_in_one_sentence(
    order: int, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    model = tmp_path / "net.py"
    model.write_text("x = 1\n")
    for other in (model, FIXTURES.parent / "reports" / "v0_cpu.json"):
        done = call(["compare", *[RANKS[0], str(other)][::order]], capfd)
        assert done.code == USAGE
        assert str(RANKS[0]) in done.err
        assert str(other) in done.err
        assert done.err.count("\n") == 2


def test_a_folder_of_ranks_is_no_single_trace(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for path in RANKS:
        (tmp_path / Path(path).name).write_bytes(Path(path).read_bytes())
    done = call(["compare", str(tmp_path), RANKS[0], "-q"], capfd)
    assert done.code == USAGE
    assert "2 traces" in done.err


def test_two_folders_of_ranks_are_compared_by_their_means(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    runs = [str(FIXTURES / "ranks_cuda"), str(tmp_path / "saved.json")]
    assert call(["inspect", str(FIXTURES / "ranks_cuda_small"), "-o", runs[1], "-q"], capfd).code == OK
    done = call(["compare", *runs, "-f", "json", "-q"], capfd)
    assert done.code == OK
    compared = json.loads(done.out)
    spans = [one["span_ns"] for one in json.loads(Path(runs[1]).read_text())["traces"]]
    assert compared["span"]["b_ns"] == sum(spans) // 2
    assert (compared["a"]["ranks"], compared["a"]["steps"]) == (2, 4)
    assert sum(row["a_ns"] for row in (*compared["phases"], *compared["causes"])) == compared["span"]["a_ns"]
    shown = call(["compare", *runs, "-q"], capfd)
    assert shown.out.startswith("ranks_cuda and saved\nThe runs differ in kind: ")
    assert "\nMean of 2 ranks. Over 4 steps each, " in shown.out
    assert "means over ranks 0, 1" in re.sub(r"\s+", " ", shown.out)


def test_traces_that_are_no_ranks_are_not_taken_together(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name in ("train", "infer"):
        (tmp_path / f"{name}.json.gz").write_bytes((FIXTURES / f"{name}.cuda.json.gz").read_bytes())
    done = call(["compare", str(tmp_path), str(FIXTURES / "ranks_cuda"), "-q"], capfd)
    assert done.code == USAGE
    assert "2 traces" in done.err


def test_a_host_and_a_device_are_not_comparable(capfd: pytest.CaptureFixture[str]) -> None:
    done = call(["compare", RANKS[0], str(FIXTURES / "train.cuda.json.gz"), "-q"], capfd)
    assert done.code == NOT_COMPARABLE
    assert "share no clock" in done.err


def test_ranks_stand_beside_each_other_with_the_one_that_is_waited_for(capfd: pytest.CaptureFixture[str]) -> None:
    done = call(["inspect", *RANKS, "-q"], capfd)
    said = re.sub(r"\s+", " ", done.out)
    assert "Rank 1 is 4.524 ms late in each step" in said
    assert "4.275 ms more in forward (aten::mm)" in said
    assert said.count("4.524 ms") >= 2  # in the table's sentence and in the finding
    rows = call(["inspect", *RANKS, "--by", "rank", "-f", "csv", "-q"], capfd).out.splitlines()
    assert rows[0].startswith("rank,file,steps,step_ns,compute_ns")
    assert len(rows) == 3
