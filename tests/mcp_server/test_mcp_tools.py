"""Tools derived from the options of commands: their schemas, and the command lines of calls."""

from __future__ import annotations

from typing import Any

import pytest

from profiler_kit.cli.commands.mcp import tools
from profiler_kit.cli.parser import build_parser
from profiler_kit.errors import UsageError
from profiler_kit.mcp_server.tools import TOOLS, Tool

BY_NAME = {tool.name: tool for tool in tools()}
RUN_CODE = {"count", "compare", "check"}


def parsed(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The options that the command gets from a call."""
    tool = BY_NAME[name]
    options, positional = tool.command(tool.texts(arguments))
    words = [tool.settings.verb, *options, "--", *positional]
    return vars(build_parser(words).parse_args(words))


@pytest.mark.parametrize("tool", BY_NAME.values(), ids=lambda tool: tool.name)
def test_each_argument_is_described_in_a_schema(tool: Tool) -> None:
    schema = tool.schema()
    assert list(schema["properties"]) == list(tool.settings.arguments)
    assert set(schema["required"]) <= set(schema["properties"])
    assert all(value["description"] and "%%" not in value["description"] for value in schema["properties"].values())
    validator = pytest.importorskip("jsonschema").Draft202012Validator
    validator.check_schema(schema)
    assert validator(schema).is_valid(dict.fromkeys(schema["required"], "x")) == (tool.name != "inspect")


def test_the_tools_and_whether_they_run_code() -> None:
    assert list(BY_NAME) == ["count", "inspect", "compare", "check", "findings"]
    assert {tool.name for tool in BY_NAME.values() if tool.runs_user_code} == RUN_CODE
    texts = {tool.trust for tool in BY_NAME.values() if tool.runs_user_code}
    assert len(texts) == 1
    assert all((next(iter(texts)) in tool.description) == (tool.name in RUN_CODE) for tool in BY_NAME.values())


def test_arguments_become_options() -> None:
    options = parsed("count", {"target": "net.py:Net", "input": ["8,3,8,8", "m=8"], "kw": "width=4", "batch": 16,
                               "channels_last": True, "gpu": "h100", "mode": "infer", "what_if": ["amp"]})  # fmt: skip
    assert (options["target"], options["input"], options["kw"]) == ("net.py:Net", ["8,3,8,8", "m=8"], ["width=4"])
    assert (options["batch"], options["channels_last"], options["mode"]) == ((16,), True, "infer")
    assert options["gpu"] == "h100"
    assert len(options["what_if"]) == 2
    both = parsed("compare", {"b": "b.json", "a": "a.json"})
    assert (both["a"], both["b"], both["static"]) == ("a.json", "b.json", True)
    assert parsed("inspect", {"traces": ["r0.json", "r1.json"]})["traces"] == ["r0.json", "r1.json"]
    assert parsed("check", {"budget": ["flops=+10%"]})["targets"] == []
    assert parsed("findings", {"report": "r", "finding": 2})["finding"] == 2
    assert parsed("count", {"target": "net.py", "channels_last": False, "gpu": None})["channels_last"] is False


@pytest.mark.parametrize("name", [settings.name for settings in TOOLS])
def test_a_value_is_never_an_option(name: str) -> None:
    """Otherwise a client could name another output, and so write outside of the folder of the server."""
    tool = BY_NAME[name]
    texts = [argument for argument, action in tool.actions.items() if action.nargs != 0 and not action.choices]
    for argument in texts:
        try:
            options = parsed(name, {**dict.fromkeys(tool.schema()["required"], "x"), argument: "--output=/tmp/x.json"})
        except UsageError:  # a number, for example
            continue
        assert options["output"] == []
        assert "--output=/tmp/x.json" in str(options[argument])


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"target": ""},
        {"target": [[]]},
        {"target": ["a.py", "b.py"]},
        {"target": "net.py", "output": ["x.json"]},
        {"target": {"a": 1}},
        {"target": "a\0b"},
    ],
    ids=["missing", "empty", "nothing", "several", "unknown", "object", "null"],
)
def test_wrong_arguments_are_usage_errors(arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        BY_NAME["count"].texts(arguments)
    assert refused.value.hint
