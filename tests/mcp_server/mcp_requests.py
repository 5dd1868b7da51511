"""Requests to a server in the process of the test, by the client of the SDK."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
from mcp import Client

from profiler_kit.cli.commands.mcp import tools
from profiler_kit.mcp_server.access import Access
from profiler_kit.mcp_server.calls import Calls
from profiler_kit.mcp_server.server import build_server

Request = tuple[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """The answer of a call, or the text of its error."""

    answer: dict[str, Any] | None
    text: str

    @property
    def record(self) -> dict[str, Any]:
        assert self.answer is not None, self.text
        return self.answer["report"]


def calls_in(root: Path, *, out: Path | None = None, runs_code: bool = True) -> Calls:
    return Calls(tools=tools(), access=Access(roots=(root,)), out=out or root / "out", runs_code=runs_code)


def ask(calls: Calls, *requests: Request) -> list[Response]:
    """The responses to `requests`, which are sent at the same time."""
    responses: dict[int, Response] = {}

    async def request(client: Client, number: int, name: str, arguments: Mapping[str, Any]) -> None:
        responses[number] = response_of(await client.call_tool(name, dict(arguments)))

    async def session() -> None:
        async with Client(build_server(calls)) as client, anyio.create_task_group() as tasks:
            for number, (name, arguments) in enumerate(requests):
                tasks.start_soon(request, client, number, name, arguments)

    anyio.run(session)
    return [responses[number] for number in range(len(requests))]


def response_of(result: Any) -> Response:
    assert result.is_error == (result.structured_content is None)
    (content,) = result.content
    return Response(answer=result.structured_content, text=content.text)


def listed(calls: Calls) -> Sequence[Any]:
    """The tools of the server."""

    async def session() -> Sequence[Any]:
        async with Client(build_server(calls)) as client:
            return (await client.list_tools()).tools

    return anyio.run(session)
