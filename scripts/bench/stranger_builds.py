"""Build the expected models by hand and count their parameters, without profiler_kit.

    python -m scripts.bench.stranger_builds --folder CHECKOUTS [--only TEXT]

A file's definitions (imports, classes, functions and constants) run; then the `build` text of each expected model runs with
them. Prints each class and parameter count, and whether strangers.json has the same. Each file runs in a process of its own.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import io
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

from scripts.bench.stranger_expectations import ExpectedFile, read_expectations

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
PURE_CALLS = ("partial", "namedtuple", "dict", "tuple", "list", "range")


def definitions_of(folder: Path, path: str) -> dict[str, Any]:
    """Return the names that the definitions of a file bind. A definition that fails is left out."""
    file = folder / path
    package = ".".join(Path(path).parent.parts) if (file.parent / "__init__.py").exists() else ""
    module = types.ModuleType(f"{package}.{file.stem}".lstrip("."))
    module.__package__, module.__file__ = package, str(file)
    namespace = module.__dict__
    sys.path[:0] = [str(folder), str(file.parent)]
    os.chdir(folder)
    if package:
        with contextlib.suppress(Exception):
            importlib.import_module(package)
    sys.modules[module.__name__] = module  # dataclasses look their module up
    for statement in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(statement, DEFINITIONS) or (isinstance(statement, ast.Assign) and _is_constant(statement.value)):
            code = compile(ast.Module([statement], []), str(file), "exec")
            with contextlib.suppress(Exception, SystemExit):
                exec(code, namespace)  # noqa: S102 - the purpose of this script
    return namespace


def build(text: str, namespace: dict[str, Any]) -> Any:
    """Run `text` and return the value of its last expression."""
    *statements, last = ast.parse(text).body
    exec(compile(ast.Module(statements, []), "<build>", "exec"), namespace)  # noqa: S102 - as above
    assert isinstance(last, ast.Expr), text
    return eval(compile(ast.Expression(last.value), "<build>", "eval"), namespace)  # noqa: S307 - as above


def _is_constant(value: ast.expr) -> bool:
    calls = [node for node in ast.walk(value) if isinstance(node, ast.Call)]
    return all(isinstance(call.func, ast.Name) and call.func.id in PURE_CALLS for call in calls)


def print_builds(folder: Path, file: ExpectedFile) -> None:
    """Build each expected model of `file` and print one line for it."""
    for model in file.models:
        if not model.build:
            continue
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                module = build(model.build, definitions_of(folder, file.path))
        except Exception as error:  # noqa: BLE001 - any failure of a stranger's code is one line of the result
            print(f"FAILED {file.path}: {model.build}: {type(error).__name__}: {error}")
            continue
        parameters = sum(parameter.numel() for parameter in module.parameters())
        same = type(module).__name__ == model.class_name and parameters == model.parameters
        print(f"{'ok' if same else 'DIFFERS'} {file.path}: {model.build}: {type(module).__name__} {parameters}")


def main() -> int:
    """Build the models of all files that match; one process per file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, required=True, metavar="DIR", help="folder with checkouts of the repositories"
    )
    parser.add_argument("--only", default="", metavar="TEXT", help="files whose repository and path contain this text")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for repository in read_expectations():
        checkouts = [options.folder / name for name in repository.folder_names if (options.folder / name).is_dir()]
        for file in repository.files:
            identity = f"{repository.name}/{file.path}"
            if not checkouts or not any(model.build for model in file.models):
                continue
            if options.one and options.only == identity:
                print_builds(checkouts[0].resolve(), file)
            elif not options.one and options.only in identity:
                command = [sys.executable, "-m", "scripts.bench.stranger_builds", "--one", "--only", identity]
                subprocess.run([*command, "--folder", str(options.folder)], check=False)
    return 0


if __name__ == "__main__":
    sys.exit(main())
