"""The server as a client starts it: each tool over stdin and stdout, models that print or crash, and how it ends."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp_types")
pytest.importorskip("torch")

import anyio
from mcp import Client, StdioServerParameters, stdio_client
from mcp_requests import Response, response_of
from waiting import AMPLE_S, wait_until

from profiler_kit.errors import BUDGET_BROKEN, INTERRUPTED, OK
from profiler_kit.process import child_environment

pytestmark = pytest.mark.jobs

NET = """
import os
from torch import nn, zeros

{before}
example_inputs = zeros(2, 4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, {width})

    def forward(self, x):
        {forward}
        return self.fc(x)
"""
PRINTS = 'print(\'{"jsonrpc": "2.0", "id": 1, "result": {}}\', flush=True); os.write(1, b"native\\n")'


def write(root: Path, name: str, *, before: str = "", forward: str = "pass", width: int = 4) -> None:
    (root / name).write_text(NET.format(before=before, forward=forward, width=width))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose last commit has a smaller model, and models that print, crash and hang."""
    folder = tmp_path_factory.mktemp("root")
    write(folder, "net.py")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q"], ["add", "net.py"], ["commit", "-q", "-m", "base"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    write(folder, "net.py", width=8)
    write(folder, "prints.py", before=PRINTS, forward=PRINTS)
    write(folder, "crashes.py", forward="os._exit(0)")
    write(folder, "hangs.py", forward="import time; print('here', flush=True); time.sleep(300)")
    return folder


def command(root: Path) -> list[str]:
    return [sys.executable, "-m", "profiler_kit", "mcp", "--root", str(root)]


def test_each_tool_over_stdio(root: Path) -> None:
    program, *words = command(root)
    parameters = StdioServerParameters(command=program, args=words, env=child_environment())

    async def session() -> list[Response]:
        async with Client(stdio_client(parameters)) as client:

            async def ask(name: str, **arguments: Any) -> Response:
                return response_of(await client.call_tool(name, arguments))

            counted = await ask("count", target="prints.py")
            crashed = await ask("count", target="crashes.py")
            checked = await ask("check", targets=["net.py"], base="HEAD", budget=["params=+10%"])
            compared = await ask("compare", a="prints.py", b="net.py")
            assert counted.answer is not None
            found = await ask("findings", report=str(Path(counted.answer["files"][0]).parent))
            trace = Path(__file__).resolve().parents[1] / "fixtures" / "traces" / "train.cpu.json.gz"
            (root / "trace.json.gz").write_bytes(trace.read_bytes())
            return [counted, crashed, checked, compared, found, await ask("inspect", traces=["trace.json.gz"])]

    counted, crashed, checked, compared, found, inspected = anyio.run(session)
    assert counted.answer is not None
    assert counted.record["static"]["params"] == 4 * 4 + 4
    log = next(Path(file) for file in counted.answer["files"] if file.endswith("log.txt"))
    assert "native" in log.read_text()
    assert crashed.answer is None
    assert "crashes.py" in crashed.text
    assert checked.answer is not None
    assert (checked.answer["exit_code"], "error" in checked.answer) == (BUDGET_BROKEN, False)
    assert [row["outcome"] for row in checked.record["budgets"]] == ["broken"]
    assert {row["metric"]: row["b"] for row in compared.record["metrics"]}["params"] == 4 * 8 + 8
    assert found.record["static"] == counted.record["static"]
    assert inspected.record["traces"][0]["clock"] == "host"


class Started:
    """A server that was started without the SDK's client, which would hide its process."""

    def __init__(self, root: Path) -> None:
        self.process = subprocess.Popen(
            command(root),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=child_environment(),
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.requests, self.responses = self.process.stdin, self.process.stdout
        self.send(
            "initialize",
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
            1,
        )
        assert json.loads(self.responses.readline())["id"] == 1
        self.send("notifications/initialized", {})

    def send(self, method: str, parameters: Mapping[str, Any], number: int | None = None) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": parameters} | ({"id": number} if number else {})
        self.requests.write(f"{json.dumps(message)}\n".encode())
        self.requests.flush()


@pytest.fixture
def server(root: Path) -> Iterator[Started]:
    started = Started(root)
    yield started
    started.process.kill()
    with started.process:  # closes the pipes
        pass


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text() if Path(f"/proc/{pid}").exists() else ""
    return [int(number) for number in text.split()]


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, None], ids=["SIGINT", "SIGTERM", "stdin"])
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_it_ends_with_its_commands(server: Started, root: Path, ending: signal.Signals | None, busy: bool) -> None:
    out = root / "profiler_kit_out" / "mcp"
    before = set(out.glob("*"))
    commands: list[int] = []
    if busy:
        server.send("tools/call", {"name": "count", "arguments": {"target": "hangs.py"}}, 2)
        wait_until(
            lambda: any("here" in log.read_text() for log in out.glob("count_*/log.txt") if log.parent not in before)
        )
        commands = children(server.process.pid)
        commands += [grandchild for pid in commands for grandchild in children(pid)]
        assert len(commands) >= 2
    if ending is not None:
        server.process.send_signal(ending)
    else:
        server.requests.close()
    assert server.process.wait(AMPLE_S) == (OK if ending is None else INTERRUPTED)
    assert server.process.stderr is not None
    assert server.process.stderr.read() == b""
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in commands))
    assert set(out.glob("*")) == before


def test_lines_that_are_no_requests_do_not_end_it(server: Started) -> None:
    for line in (b"\n", b"not json\n", b"\xff\xfe\n", b"[]\n", b'{"jsonrpc": "2.0", "id": 7, "method": "nothing"}\n'):
        server.requests.write(line)
    server.send("tools/list", {}, 8)
    numbers = []
    while 8 not in numbers:
        numbers.append(json.loads(server.responses.readline()).get("id"))
    assert server.process.poll() is None
