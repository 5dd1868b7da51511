"""The server: the SDK of the protocol on one side, calls of tools on the other. The only file that imports the SDK."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any, Final, cast

import anyio
import anyio.to_thread
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp_types import Tool as ProtocolTool

from profiler_kit._version import VERSION
from profiler_kit.errors import KitError
from profiler_kit.mcp_server.calls import Call, Calls
from profiler_kit.process import usable_cores

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
POLL_S: Final = 0.05  # between two looks at a command
READ_S: Final = 0.001  # to read its output, in each look


class _Lines:
    """The lines of stdin. Waiting for one does not keep a server alive that ends by a signal, as a file of the SDK does."""

    def __aiter__(self) -> _Lines:
        return self

    async def __anext__(self) -> str:
        line: bytes = await anyio.to_thread.run_sync(sys.stdin.buffer.readline, abandon_on_cancel=True)
        if not line:
            raise StopAsyncIteration
        return line.decode(errors="replace")


def serve(calls: Calls) -> bool:
    """Answer requests on stdin until it ends, or until a signal. Whether it was a signal. Responses go to stdout."""
    interrupted: bool = anyio.run(_serve, build_server(calls))
    return interrupted


async def _serve(server: Server[Any]) -> bool:
    interrupted = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_cancel_on_signal, tasks.cancel_scope)
        async with stdio_server(cast("anyio.AsyncFile[str]", _Lines())) as (requests, responses):
            await server.run(requests, responses, server.create_initialization_options())
        interrupted = False
        tasks.cancel_scope.cancel()
    return interrupted


async def _cancel_on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(*SIGNALS) as signals:
        async for _ in signals:
            scope.cancel()


def build_server(calls: Calls) -> Server[Any]:
    """The server of `calls`. As many of them run at the same time as there are cores."""
    cores = anyio.CapacityLimiter(usable_cores())

    async def list_tools(context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=_tools(calls))

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        try:
            async with cores:
                answer = await _answer(calls.prepare(params.name, params.arguments or {}))
        except KitError as error:
            return CallToolResult(content=[TextContent(text=f"error: {error}")], is_error=True)
        text = json.dumps(answer, ensure_ascii=False)
        return CallToolResult(content=[TextContent(text=text)], structured_content=answer)

    return Server("profiler_kit", version=VERSION, on_list_tools=list_tools, on_call_tool=call_tool)


async def _answer(call: Call) -> dict[str, Any]:
    """The answer of `call`. A request that is canceled stops its command."""
    with call.start() as child:
        while not child.exits_within(READ_S):
            await anyio.sleep(POLL_S)
        return call.answer(child.finish())


def _tools(calls: Calls) -> list[ProtocolTool]:
    return [
        ProtocolTool(
            name=tool.name,
            description=tool.description,
            input_schema=tool.schema(),
            annotations=ToolAnnotations(read_only_hint=not (tool.runs_user_code and calls.runs_code)),
        )
        for tool in calls.offered()
    ]
