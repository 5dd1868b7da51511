"""The server in the process of the test: its tools, their answers, and errors that do not end it."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp_types")

import anyio
from mcp import Client, MCPError
from mcp_requests import Response, ask, calls_in, listed
from sample_reports import v0_cuda

from profiler_kit.errors import OK
from profiler_kit.mcp_server import server
from profiler_kit.mcp_server.answers import MAX_CHARS
from profiler_kit.records.serde import dumps, read_saved

TRACES = Path(__file__).resolve().parents[1] / "fixtures" / "traces"
FILES = ["report.json", "report.md", "report.html"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two traces, a report, a file that is neither, and a file named like a library."""
    folder = tmp_path_factory.mktemp("root")
    for name in ("train.cuda.json.gz", "infer.cuda.json.gz"):
        shutil.copy(TRACES / name, folder)
    (folder / "report.json").write_text(dumps(v0_cuda()))
    (folder / "broken.json.gz").write_bytes(b"\x1f\x8b not a trace")
    for library in ("numpy", "msgspec", "rich", "profiler_kit"):  # reading never runs code, also not by accident
        (folder / f"{library}.py").write_text("from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n")
    return folder


def files_of(response: Response) -> list[str]:
    assert response.answer is not None
    return [Path(file).name for file in response.answer["files"]]


def test_the_list_of_tools(root: Path) -> None:
    offered = {tool.name: tool for tool in listed(calls_in(root))}
    assert list(offered) == ["count", "inspect", "compare", "check", "findings"]
    assert [name for name, tool in offered.items() if tool.annotations.read_only_hint] == ["inspect", "findings"]
    assert offered["count"].input_schema["required"] == ["target"]
    assert sum(len(tool.model_dump_json()) for tool in offered.values()) < MAX_CHARS


def test_without_code_the_tools_that_run_it_are_left_out(root: Path) -> None:
    calls = calls_in(root, runs_code=False)
    offered = listed(calls)
    assert [tool.name for tool in offered] == ["inspect", "compare", "findings"]
    assert all(tool.annotations.read_only_hint for tool in offered)
    (root / "net.py").write_text("from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n")
    (root / "folder").mkdir()
    refused = ask(
        calls,
        ("count", {"target": "net.py"}),
        ("compare", {"a": "net.py", "b": "report.json"}),
        ("compare", {"a": "HEAD:net.py", "b": "report.json"}),
        ("compare", {"a": "main..HEAD.json", "b": "report.json"}),
        ("compare", {"a": "folder", "b": "folder"}),
    )
    assert [response.answer for response in refused] == [None] * len(refused)
    assert not (root / "net.ran").exists()
    assert ask(calls, ("compare", {"a": "report.json", "b": "report.json"}))[0].answer is not None


def test_answers_are_parts_of_the_files_that_they_name(root: Path) -> None:
    inspected, compared, found = ask(
        calls_in(root),
        ("inspect", {"traces": ["train.cuda.json.gz"]}),
        ("compare", {"a": "infer.cuda.json.gz", "b": "train.cuda.json.gz"}),
        ("findings", {"report": "."}),
    )
    for response in (inspected, compared, found):
        assert response.answer is not None, response.text
        assert response.answer["exit_code"] == OK
        assert files_of(response) == FILES
        assert json.loads(response.text) == response.answer
        assert len(json.dumps(response.record, ensure_ascii=False)) <= MAX_CHARS
        saved = json.loads(Path(response.answer["files"][0]).read_text())
        assert {name: saved[name] for name in response.record if isinstance(saved[name], (int, str))} == {
            name: value for name, value in response.record.items() if isinstance(value, (int, str))
        }
    (trace,) = inspected.record["traces"]
    assert trace["busy_ns"] + trace["idle_ns"] == trace["span_ns"]
    assert inspected.record["findings"][0]["evidence"]
    assert compared.record["span"]["a_ns"] > 0
    assert found.record["findings"][0]["rule"] == v0_cuda().findings[0].rule
    assert list(root.glob("*.ran")) == []


def test_one_finding(root: Path) -> None:
    (response,) = ask(calls_in(root), ("findings", {"report": "report.json", "finding": 2}))
    assert response.record["rule"] == v0_cuda().findings[1].rule
    assert response.answer is not None
    rows = Path(response.answer["files"][1]).read_text()
    assert "|" in rows  # the tables behind the finding


def test_errors_are_those_of_the_commands_and_the_server_goes_on(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    responses = ask(
        calls_in(root, out=out),
        ("inspect", {"traces": ["missing.json"]}),
        ("inspect", {"traces": ["broken.json.gz"]}),
        ("inspect", {"traces": ["/etc/passwd"]}),
        ("inspect", {}),
        ("findings", {"report": "report.json", "finding": 999}),
        ("findings", {"report": "train.cuda.json.gz"}),
        ("nothing", {}),
    )
    assert [response.answer for response in responses] == [None] * len(responses)
    for response in responses:
        assert response.text.startswith("error: ")
        assert "Traceback" not in response.text
        assert len(response.text.splitlines()) == 2, response.text
    assert list(out.iterdir()) == []  # nothing is left of calls without a result


def test_a_record_with_an_error_has_both(root: Path) -> None:
    (response,) = ask(calls_in(root), ("inspect", {"traces": ["train.cuda.json.gz", "broken.json.gz"]}))
    assert response.answer is not None
    assert response.answer["exit_code"] > 0
    assert response.answer["error"]["message"].startswith("broken.json.gz")
    assert len(response.record["traces"]) == 1
    assert files_of(response) == [*FILES, "log.txt"]


def test_each_call_has_a_folder_of_its_own(root: Path, tmp_path: Path) -> None:
    responses = ask(calls_in(root, out=tmp_path), *[("findings", {"report": "report.json"})] * 3)
    folders = {Path(response.answer["files"][0]).parent for response in responses if response.answer}
    assert folders == {tmp_path / f"findings_{number}" for number in (1, 2, 3)}
    assert all(read_saved(folder).kind == "report" for folder in folders)


def test_a_bug_is_an_error_of_its_request(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(call: Any) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(server, "_answer", fail)

        async def session() -> str:
            async with Client(server.build_server(calls_in(root))) as client:
                with pytest.raises(MCPError) as raised:
                    await client.call_tool("findings", {"report": "report.json"})
                patch.undo()
                assert not (await client.call_tool("findings", {"report": "report.json"})).is_error
                return str(raised.value)

        assert "Traceback" not in anyio.run(session)


def test_a_canceled_request_stops_its_command_and_leaves_nothing(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command waits for a pipe that nobody writes."""
    os.mkfifo(root / "pipe.json")
    calls = calls_in(root, out=tmp_path)
    call = calls.prepare("findings", {"report": "pipe.json"})

    async def canceled() -> bool:
        with anyio.move_on_after(0.5) as scope:
            await server._answer(call)
        return scope.cancel_called

    assert anyio.run(canceled)
    assert list(tmp_path.iterdir()) == []
    (root / "pipe.json").unlink()


def test_names_of_a_trace_that_are_no_text_do_not_end_the_server(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with gzip.open(TRACES / "train.cuda.json.gz", "rt") as file:
        (root / "halves.json").write_text(file.read().replace('"aten::', '"\\ud800aten::'))
    responses = ask(calls_in(root), ("inspect", {"traces": ["halves.json"]}), ("inspect", {"traces": ["missing.json"]}))
    assert all(response.text.encode() for response in responses)
    assert responses[0].record["traces"][0]["operators"]
    assert responses[1].text.startswith("error: missing.json: ")
