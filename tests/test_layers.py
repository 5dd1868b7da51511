"""Who may import whom, as one table, checked over the syntax trees. There is no exception list."""

from __future__ import annotations

import ast
import functools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import profiler_kit

PACKAGE = Path(__file__).resolve().parent.parent / "profiler_kit"
GROUND = {"errors", "units", "_family", "temporary_files", "command_lines", "foreign"}

# room -> rooms it may import; a room may always import itself
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "_family": set(),
    "command_lines": set(),
    "temporary_files": set(),
    "foreign": set(),
    "_version": set(),
    "process": {"errors", "temporary_files"},
    "records": {"errors", "units", "command_lines"},
    "statistics": GROUND | {"records"},
    "devices": GROUND,
    "configurations": GROUND | {"records"},
    "user_code": GROUND | {"records"},
    "meta": GROUND | {"records", "devices", "user_code"},
    "loading": GROUND | {"records", "user_code", "meta"},
    "counting": GROUND | {"records", "devices", "user_code", "meta", "loading"},
    "memory": GROUND | {"records", "devices", "user_code", "meta", "loading"},
    "rendezvous": GROUND,
    "measurement": GROUND | {"process", "records", "statistics", "configurations", "rendezvous"},
    "worker": GROUND
    | {"process", "records", "statistics", "configurations", "user_code", "meta", "loading", "rendezvous"},
    "recording": GROUND | {"records", "user_code", "meta", "worker"},
    "traces": GROUND | {"records"},
    "attribution": GROUND | {"records", "traces"},
    "simulation": GROUND | {"records", "traces", "attribution"},
    "forecast": GROUND | {"records", "devices", "simulation"},
    "diagnosis": GROUND | {"records", "statistics", "devices", "configurations", "simulation"},
    "comparison": GROUND | {"records", "statistics"},
    "gate": GROUND | {"process", "records"},
    "report": GROUND | {"records", "statistics"},
    "render": GROUND | {"records", "report"},
    "display": GROUND | {"records", "report", "render"},
    "pipeline": GROUND
    | {
        "_version",
        "process",
        "records",
        "devices",
        "user_code",
        "meta",
        "loading",
        "counting",
        "memory",
        "forecast",
        "measurement",
        "worker",
        "recording",
        "rendezvous",
        "statistics",
        "traces",
        "attribution",
        "simulation",
        "diagnosis",
        "comparison",
        "gate",
    },
    "integrations": GROUND | {"process", "records", "display", "user_code", "recording", "pipeline"},
    "mcp_server": GROUND | {"_version", "process", "pipeline"},
    "cli": GROUND
    | {
        "_version",
        "process",
        "records",
        "devices",
        "configurations",
        "pipeline",
        "report",
        "render",
        "integrations",
        "mcp_server",
    },
    "__init__": {"_version", "pipeline", "records", "report", "counting", "comparison", "display", "integrations"},
    "__main__": {"cli"},
}
TORCH = {"user_code", "meta", "loading", "counting", "memory", "worker", "recording"}
COLUMNAR = {
    "traces",
    "attribution",
    "simulation",
    "forecast",
}  # whose data are numpy arrays; imported when they are read
HEAVY = {
    "torch",
    "pandas",
    "numpy",
    "fvcore",
    "tabulate",
    "rich",
    "matplotlib",
}  # never at the top of a file that --help reads
# Functions of these may import torch where they run, in the worker: what an axis does is one entry beside its name.
TORCH_IN_FUNCTIONS = {"configurations", "rendezvous"}
STARTS_PROCESSES = {"process"}
# processes of their own, with streams of their own
PRINTS = {
    "cli",
    "integrations",  # in the user's program, on stderr
    "worker/entry.py",
    "process/fork_server.py",  # a fork of it that only looks
    "process/parent.py",  # a child whose parent is gone
    "process/protocol.py",
}


def rooms() -> set[str]:
    found = {p.stem for p in PACKAGE.glob("*.py")}
    return found | {p.name for p in PACKAGE.iterdir() if p.is_dir() and any(p.glob("*.py"))}


def files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


@dataclass(frozen=True)
class Statement:
    """A statement or an exception handler. `is_lazy`: it runs when a function is called. `is_typing`: for type checkers."""

    node: ast.AST
    is_lazy: bool
    is_typing: bool


@functools.cache
def statements(path: Path) -> tuple[Statement, ...]:
    """The statements of `path`, also those in others. Expressions, most of a tree, are not visited."""
    visited: list[Statement] = []

    def visit(nodes: list[Any], is_lazy: bool, is_typing: bool) -> None:
        for node in nodes:
            visited.append(Statement(node, is_lazy, is_typing))
            is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            checks = isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
            for name in ("body", "orelse", "finalbody", "handlers", "cases"):
                inner = getattr(node, name, [])
                if isinstance(inner, list):
                    visit(inner, is_lazy or is_function, is_typing or (checks and name == "body"))

    visit(ast.parse(path.read_text()).body, is_lazy=False, is_typing=False)
    return tuple(visited)


@functools.cache
def imports(path: Path) -> list[tuple[str, bool, bool]]:
    """(module, at the top of the file, only for type checkers) of every import in `path`."""
    names: list[tuple[str, bool, bool]] = []
    for statement in statements(path):
        node, place = statement.node, (not statement.is_lazy, statement.is_typing)
        if isinstance(node, ast.Import):
            names += [(alias.name, *place) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            if node.module == "profiler_kit":
                names += [(f"profiler_kit.{alias.name}", *place) for alias in node.names]
            else:
                names.append((node.module, *place))
    return names


def module_of(path: Path) -> str:
    parts = ("profiler_kit", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_files() -> dict[str, set[str]]:
    """The files that each file imports, anywhere in it and for whatever reason. A name of a package is that package's file."""
    modules = {module_of(path): path for path in files()}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        graph[module] = set()
        for node in (statement.node for statement in statements(path)):
            names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            if isinstance(node, ast.ImportFrom):
                names = [
                    f"{node.module}.{name}" if f"{node.module}.{name}" in modules else str(node.module)
                    for name in names
                ]
            graph[module].update(name for name in names if name in modules and name != module)
    return graph


def test_no_circle() -> None:
    """No file imports, at its top, in a function or for types alone, one that leads back to it."""
    graph = imported_files()
    while leaves := [module for module, imported in graph.items() if not imported]:
        for leaf in leaves:
            del graph[leaf]
        for imported in graph.values():
            imported.difference_update(leaves)
    assert graph == {}, "these files are on a circle or lead to one"


def test_nothing_is_allowed_that_nobody_needs() -> None:
    """What is no common ground is in a room's row only while the room imports it."""
    used: dict[str, set[str]] = {room: set() for room in MAY_IMPORT}
    for path in files():
        for module, _, _ in imports(path):
            head, *rest = module.split(".")
            if head == "profiler_kit":
                used[room_of(path)].add(rest[0] if rest else "__init__")
    assert {
        room: allowed - GROUND - used[room] for room, allowed in MAY_IMPORT.items() if allowed - GROUND - used[room]
    } == {}


def test_every_room_is_in_the_table() -> None:
    assert rooms() == set(MAY_IMPORT)


def test_imports() -> None:
    problems = []
    for path in files():
        room = room_of(path)
        for module, top, typing_only in imports(path):
            head, *rest = module.split(".")
            if head == "profiler_kit":
                other = rest[0] if rest else "__init__"
                if other != room and other not in MAY_IMPORT[room]:
                    problems.append(f"{path}: {room} may not import {other}")
            if head == "torch" and not typing_only and not (room in TORCH or (room in TORCH_IN_FUNCTIONS and not top)):
                problems.append(f"{path}: {room} must work on a machine without torch")
            if head == "numpy" and room in COLUMNAR:
                continue
            if head in HEAVY and room not in TORCH and not typing_only and top:
                problems.append(f"{path}: import {head} inside the function that needs it")
            if head in ("subprocess", "multiprocessing") and room not in STARTS_PROCESSES:
                problems.append(f"{path}: {room}: only process/ starts processes")
    assert problems == []


def test_no_private_name_crosses_a_file() -> None:
    crossing = [
        f"{path}:{node.lineno}: {alias.name}"
        for path in files()
        for node in (statement.node for statement in statements(path))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("profiler_kit")
        for alias in node.names
        if not (node.module == "profiler_kit" and alias.name in MAY_IMPORT)  # a room, not a name inside one
        and alias.name.startswith("_")
        and not alias.name.startswith("__")
    ]
    assert crossing == []


def test_nothing_below_cli_prints_or_exits() -> None:
    calls = []
    for path in files():
        if room_of(path) in PRINTS or str(path.relative_to(PACKAGE)) in PRINTS or path.name == "__main__.py":
            continue
        text = path.read_text()
        if not re.search(r"\b(print|_?exit|quit)\(", text):  # most files need no tree of their expressions
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in ("print", "exit", "quit", "sys.exit", "os._exit"):
                    calls.append(f"{path}:{node.lineno}: {called}")
    assert calls == []


def test_records_reach_above_them_only_through_public_names() -> None:
    """Records resolve modules at run time in one file, their views, and there only public names of the package."""
    sources = {path: path.read_text() for path in files() if room_of(path) == "records"}
    dynamic = {path.name for path, text in sources.items() if re.search(r"sys\.modules|importlib|__import__", text)}
    assert dynamic == {"views.py"}
    names = set(re.findall(r'_public\("(\w+)"\)', sources[PACKAGE / "records" / "views.py"]))
    assert names
    assert names <= set(profiler_kit.__all__)


def test_no_broad_except() -> None:
    """A handler for everything may only re-raise or record what it caught, never pass over it."""
    handlers = [
        f"{path}:{node.lineno}: broad except that drops the error"
        for path in files()
        for node in (statement.node for statement in statements(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
        and node.name is None
        and not any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    ]
    assert handlers == []
