"""Errors of importing a target: endless imports, missing packages, relative imports, syntax errors."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from profiler_kit.command_lines import file_command, git_command, import_command, install_command
from profiler_kit.errors import TargetError
from profiler_kit.loading.command import next_command
from profiler_kit.loading.progress import report_progress
from profiler_kit.loading.scripts.placeholders import UnavailableError
from profiler_kit.records.target import TargetSpec
from profiler_kit.user_code.boundary import EscapedError
from profiler_kit.user_code.locations import display_path, is_user_code, one_line_message, user_place
from profiler_kit.user_code.time_limit import Stack, TimeLimitError, time_limit

_GUARD = 'if __name__ == "__main__":'
# modules whose package has another name
_INSTALLED_AS = {
    "cv2": "opencv-python",
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "yaml": "pyyaml",
}


@contextlib.contextmanager
def watchdog(spec: TargetSpec, file: Path | None, act: str = "import") -> Iterator[None]:
    """Stop the block after ``spec.import_timeout_s`` with a TargetError that names the current line.

    `act` is a verb, such as ``import`` or ``build``. A block that takes long reports its line as progress. Works in the main
    thread only.
    """

    def report(stack: Stack) -> None:
        line = _running_line(stack, file)
        report_progress(f"{act}ing {f'{display_path(line[0])}:{line[1]}' if line else spec.spec} ...")

    limit = None  # until another limit, which may end first, lets this one begin
    try:
        with time_limit(spec.import_timeout_s, report) as limit:
            yield
    except TimeLimitError as error:
        if error.limit is not limit:
            raise
        line = _running_line(limit.stack, file)
        raise TargetError(
            f"{act} still running after {limit.seconds:g} s" + (f" at line {line[1]} (training loop?)" if line else ""),
            where=f"{display_path(line[0])}:{line[1]}" if line else spec.spec,
            hint=_script_hint(spec, "loop"),
        ) from error


def _running_line(stack: Stack, file: Path | None) -> tuple[str, int] | None:
    """(file, line) of the top-level statement of `file` that is running; otherwise of the innermost line of user code."""
    in_file = [line for line in stack if file is not None and line[0] == str(file)]
    return in_file[-1] if in_file else next((line for line in stack if is_user_code(line[0])), None)


def import_failure(spec: TargetSpec, file: Path | None, error: BaseException) -> TargetError:
    """A TargetError that explains why importing the target raised `error`."""
    where = user_place(error) or spec.spec
    # else a call of the model raised it, or Python shows no frames
    is_import = (file is not None or isinstance(error, UnavailableError)) and not isinstance(error, EscapedError)
    if file is None and spec.spec.partition(":")[0].endswith(".py"):
        file = Path(spec.spec.partition(":")[0])
    if isinstance(error, UnavailableError):
        where, unavailable = error.where, error
        if error.cause is None:
            return TargetError(
                f"{error.name} is not available: {error.reason}",
                where=where,
                hint="add --no-slice, which runs the whole file",
            )
        error = unavailable.cause or error
    if isinstance(error, SystemExit):
        return TargetError(
            f"the import called sys.exit({'' if error.code is None else repr(error.code)})",
            where=where,
            hint=_script_hint(spec, "script code"),
        )
    if isinstance(error, SyntaxError):
        place = f"{display_path(error.filename)}:{error.lineno}" if error.filename else where
        return TargetError(f"syntax error: {error.msg}", where=place, hint="fix the syntax of this line")
    if isinstance(error, ImportError) and "relative import" in str(error) and file is not None:
        return _relative(spec, file, error, where)
    if isinstance(error, ModuleNotFoundError) and error.name:
        return missing_module(spec, file, error.name, where, f"import failed: No module named {error.name!r}")
    return TargetError(
        f"import failed: {one_line_message(error)}",
        where=where,
        hint=f"fix it; for all frames, run {_import_command(file, spec)}" if is_import else "fix it",
    )


def _script_hint(spec: TargetSpec, code: str) -> str:
    if not spec.sliced:
        return f"skip it, without --no-slice: {next_command(replace(spec, sliced=True))}"
    return f"move the {code} under {_GUARD}"


def _import_command(file: Path | None, spec: TargetSpec) -> str:
    location = spec.spec.partition(":")[0]
    if file is None and not location.endswith(".py"):
        return import_command(location)
    return file_command(Path(display_path(file or location)))


def _relative(spec: TargetSpec, file: Path, error: ImportError, where: str) -> TargetError:
    if "beyond top-level" in str(error):
        top = file.parent
        while (top.parent / "__init__.py").is_file():
            top = top.parent
        return TargetError(
            f"relative import beyond the package {top.name!r}",
            where=where,
            hint=f"touch {shlex.quote(display_path(top.parent / '__init__.py'))} && {next_command(spec)}",
        )
    package = file.parent
    attr = f":{spec.spec.rpartition(':')[2]}" if ":" in spec.spec else ":Net"
    cd = "" if package.parent == Path.cwd() else f"cd {shlex.quote(display_path(package.parent))} && "
    return TargetError(
        f"relative import, but {file.name} was not imported as part of the package {package.name!r}",
        where=where,
        hint=cd + next_command(spec, target=f"{package.name}.{file.stem}{attr}"),
    )


def _is_empty(folder: Path) -> bool:
    return not folder.is_dir() or not any(folder.iterdir())


def _submodule(folder: Path, name: str) -> str | None:
    """The path of the empty git submodule in the repository at `folder` whose folder is called `name`; None without one."""
    modules = folder / ".gitmodules"
    if not modules.is_file():
        return None
    lines = modules.read_text(encoding="utf-8", errors="replace").splitlines()
    paths = (line.partition("=")[2].strip() for line in lines if line.strip().startswith("path"))
    return next((path for path in paths if Path(path).name == name and _is_empty(folder / path)), None)


def missing_module(spec: TargetSpec, file: Path | None, name: str, where: str, message: str) -> TargetError:
    """The error `message` about the module `name`, which is not installed, with a hint: where it is, or how to install it."""
    top = name.split(".")[0]
    if file is None and spec.spec.split(":")[0].split(".")[0] == top:
        return TargetError(
            message,
            where=spec.spec,
            hint=f"run the command in the folder that contains {top!r}, or give the path of the file",
        )
    folders = [] if file is None else list(file.parents)[:6]
    for folder in folders:
        submodule = _submodule(folder, top)
        if submodule is not None:
            fetch = git_command("-C", display_path(folder), "submodule", "update", "--init", submodule)
            return TargetError(message, where=where, hint=f"fetch the submodule: {fetch}")
        # a name that the repository has must never be installed: a package index may have somebody else's of that name
        if "." in name and (folder / top).is_dir():
            return TargetError(
                message,
                where=where,
                hint=f"change the import: {display_path(folder / top)} has no {name.partition('.')[2]!r}",
            )
        if folder == folders[0]:
            continue
        if (folder / f"{top}.py").is_file() or (folder / top).is_dir():
            return TargetError(
                message,
                where=where,
                hint=f"set the path of its folder: PYTHONPATH={shlex.quote(display_path(folder))} {next_command(spec)}",
            )
    package = _INSTALLED_AS.get(top, top)
    return TargetError(message, where=where, hint=f"install it in this environment: {install_command(package)}")
