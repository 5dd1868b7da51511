"""What `inspect` writes beside its report."""

from __future__ import annotations

import csv
import gzip
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from profiler_kit.cli import main

FIXTURES = Path(__file__).parents[1] / "fixtures" / "traces"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("train.cuda.json.gz", "infer.cuda.json.gz"):
        shutil.copy(FIXTURES / name, tmp_path / name)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def left(here: Path) -> set[str]:
    return {str(path.relative_to(here)) for path in here.rglob("*") if path.is_file()} - {
        "train.cuda.json.gz",
        "infer.cuda.json.gz",
    }


def events(path: Path) -> list[dict[str, Any]]:
    data = path.read_bytes()
    plain = gzip.decompress(data) if path.suffix == ".gz" else data
    found: list[dict[str, Any]] = json.loads(plain)["traceEvents"]
    return found


def test_an_annotated_trace_zipped_by_its_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "train.cuda.json.gz", "--annotate", "a.json.gz"]) == 0
    assert main(["inspect", "train.cuda.json.gz", "--annotate", "a.json", "-q"]) == 0
    shown = capsys.readouterr()
    assert "wrote a.json.gz" in shown.err
    assert shown.out.count("train.cuda") >= 2  # the report, each time
    assert events(here / "a.json.gz") == events(here / "a.json")
    names = {e["args"]["name"] for e in events(here / "a.json") if e["name"] == "thread_name" and e["pid"] >= 10**9}
    assert {"device: phase", "device: module", "device: idle", "device: kernels"} <= names
    first = (here / "a.json.gz").read_bytes()
    assert main(["inspect", "train.cuda.json.gz", "--annotate", "a.json.gz", "-q"]) == 0
    assert (here / "a.json.gz").read_bytes() == first


def test_only_some_steps(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "train.cuda.json.gz", "--annotate", "all.json", "-q"]) == 0
    assert main(["inspect", "train.cuda.json.gz", "--annotate", "one.json", "--steps", "1"]) == 0
    assert "Cut to step 1." in capsys.readouterr().err
    assert 0 < len(events(here / "one.json")) < len(events(here / "all.json"))
    assert main(["inspect", "train.cuda.json.gz", "--annotate", "none.json", "--steps", "7:9"]) == 2
    shown = capsys.readouterr()
    assert "train.cuda.json.gz: no step from 7 to 9: the trace has steps 1 to" in shown.err
    assert shown.out == ""  # told before the report
    assert not (here / "none.json").exists()


def test_several_traces_go_into_a_folder(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", ".", "--annotate", "out", "--to", "csv", "--events", "out", "-q"]) == 0
    assert left(here) == {
        f"out/{name}.cuda.{what}" for name in ("train", "infer") for what in ("annotated.json.gz", "events.csv")
    }
    capsys.readouterr()
    assert main(["inspect", ".", "--annotate", "one.json.gz", "-q"]) == 2
    assert capsys.readouterr().out == ""
    assert not (here / "one.json.gz").exists()


def test_the_events_table_by_format_or_by_name(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "train.cuda.json.gz", "--to", "sqlite"]) == 0
    assert "wrote train.cuda.events.sqlite (" in capsys.readouterr().err
    assert main(["inspect", "train.cuda.json.gz", "--events", "out/e.csv", "-q"]) == 0
    assert main(["inspect", "train.cuda.json.gz", "--events", "out/e", "--to", "csv", "-q"]) == 0
    assert left(here) == {"train.cuda.events.sqlite", "out/e.csv", "out/e"}
    assert (here / "out/e").read_bytes() == (here / "out/e.csv").read_bytes()


def test_csv_on_stdout_in_place_of_the_report(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "train.cuda.json.gz", "--events", "-", "-q"]) == 0
    shown = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(shown.out, newline="")))
    assert len(rows) > 100
    assert {row["kind"] for row in rows} >= {"operator", "runtime", "kernel"}
    assert shown.err == ""
    assert left(here) == set()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--steps", "1:2"], "--annotate"),
        (["--max-mb", "5"], "--annotate"),
        (["--annotate", "x.json", "--steps", "5:3"], "5:3"),
        (["--annotate", "x.json", "--steps", "a"], "'a'"),
        (["--annotate", "x.json", "--max-mb", "0"], "--max-mb"),
        (["--annotate", "none/x.json"], "no such folder"),
        (["--annotate", "train.cuda.json.gz"], "train.cuda.json.gz: "),
        (["--events", "x.txt"], "x.txt"),
        (["--events", "x.csv", "--to", "sqlite"], "--to sqlite"),
        (["--events", "-", "--to", "sqlite"], "stdout"),
        (["--to", "xlsx"], "invalid choice"),
        (["--events", "none/x.csv"], "no such folder"),
    ],
)
def test_what_makes_no_sense_is_told_before_reading(
    here: Path, capsys: pytest.CaptureFixture[str], given: list[str], said: str
) -> None:
    try:
        code = main(["inspect", "train.cuda.json.gz", *given])
    except SystemExit as ended:
        code = int(ended.code or 0)
    shown = capsys.readouterr()
    assert code == 2
    assert said in shown.err
    assert shown.out == ""
    assert left(here) == set()


def test_a_file_is_whole_or_not_there(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from profiler_kit.traces import exports

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    (here / "train.cuda.events.sqlite").write_text("of yesterday")
    monkeypatch.setattr(exports, "WRITERS", {**exports.WRITERS, "sqlite": interrupted})
    main(["inspect", "train.cuda.json.gz", "--to", "sqlite", "-q"])
    assert (here / "train.cuda.events.sqlite").read_text() == "of yesterday"
    assert left(here) == {"train.cuda.events.sqlite"}
