"""Replays the commands in messages: a hint must lead somewhere.

`record` collects every KitError with a hint that is constructed inside its block, and every command that the package builds
with `profiler_kit.command_lines`, with the command that was tried. `check` runs each ``profiler-kit`` command. A command must
succeed, or differ from the command that was tried and fail in another way. A ``python`` command must show the error, so it must
fail. Packages are not installed; their names and extras are checked. The suite replays commands at the end of the test that
produced them, while its files exist. After complete runs of both of its parts it fails for each function of the package that
builds a command and whose commands were never replayed (`builder_sites`).

In a hint a command ends at the end of the text or before ", or ", "; " or ")". A command with "..." has a blank that the user
must fill in: only its options are checked.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

import profiler_kit
from profiler_kit import command_lines
from profiler_kit.errors import KitError
from profiler_kit.records.target import TargetSpec

PROGRAM: Final = "profiler-kit "
BLANK: Final = "..."
LIMIT_S: Final = 30.0
PACKAGE: Final = Path(profiler_kit.__file__).resolve().parent
_BUILDERS: Final = (PACKAGE / "command_lines.py", PACKAGE / "loading" / "command.py")
_BUILDER_NAMES: Final = frozenset(
    {"kit_command", "file_command", "import_command", "install_command", "git_command", "next_command", "bare_command"}
)
_END: Final = re.compile(r", or |; |\)")
_WORD: Final = r"(?:'[^']*'|\S+)"
_PREFIX: Final = re.compile(
    rf"(?:cd (?P<folder>{_WORD}) && |touch (?P<file>{_WORD}) && |PYTHONPATH=(?P<path>{_WORD}) )$"
)
_REQUIREMENT: Final = re.compile(r"--no-deps|[A-Za-z0-9](?:[\w.-]*[A-Za-z0-9])?(?:\[(?P<extra>\w+)\])?")
_VARIABLE: Final = re.compile(r"'[^']*'|[\w./-]+\.(?:py|json|gz)\b(?::\w+)?|\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """A hint, the `message` of its error, and where it comes from.

    - `site`: file and function of the package that constructed the error.
    - `commands`: the exact texts of the commands that the package built for this hint, where known, and the functions that
      built them.
    - `tried`: the command line or the target spec that led to the error; None if neither is on the stack.
    """

    text: str
    message: str
    site: str
    folder: Path
    commands: Mapping[str, str]
    tried: Sequence[str] | TargetSpec | None

    @property
    def shape(self) -> tuple[str, str]:
        """Site and text without names and numbers: hints of one shape are replayed once."""
        return self.site, _VARIABLE.sub("_", self.text)


@dataclass(slots=True)
class Recorder:
    """The hints of a block. `is_active` is False while hints are replayed."""

    hints: list[Hint] = field(default_factory=list)
    commands: list[Hint] = field(default_factory=list)
    is_active: bool = True

    @property
    def texts(self) -> list[Hint]:
        """The hints, and the commands that are in none of them, such as those of notes."""
        in_hints = {text for hint in self.hints for text in hint.commands}
        return [*self.hints, *(command for command in self.commands if command.text not in in_hints)]


@contextlib.contextmanager
def record() -> Iterator[Recorder]:
    """Record the hints of the errors that are constructed inside the block."""
    recorder = Recorder()
    construct = KitError.__init__
    join = shlex.join

    def recording(self: KitError, message: str, *, hint: str | None = None, where: str | None = None) -> None:
        construct(self, message, hint=hint, where=where)
        if recorder.is_active and hint is not None:
            commands = {command.text: command.site for command in recorder.commands if command.text in hint}
            if commands or PROGRAM in hint:
                frame = inspect.currentframe()
                recorder.hints.append(
                    Hint(
                        text=hint, message=message, site=_site(frame), folder=Path.cwd(), tried=_tried(frame),
                        commands=commands,
                    )
                )  # fmt: skip

    class RecordingShlex:
        """`shlex` of `command_lines`, which joins the words of every command."""

        @staticmethod
        def join(words: Iterable[str]) -> str:
            text = join(words)
            if recorder.is_active:
                frame = inspect.currentframe()
                site = _site(frame)
                recorder.commands.append(
                    Hint(
                        text=text, message="", site=site, folder=Path.cwd(), tried=_tried(frame), commands={text: site}
                    )
                )
            return text

    original_shlex = command_lines.shlex
    KitError.__init__ = recording  # type: ignore[method-assign]
    command_lines.shlex = RecordingShlex  # type: ignore[assignment]
    try:
        yield recorder
    finally:
        KitError.__init__ = construct  # type: ignore[method-assign]
        command_lines.shlex = original_shlex


def _site(frame: FrameType | None) -> str:
    while frame is not None:
        file = Path(frame.f_code.co_filename)
        is_inner = (
            frame.f_code.co_name.startswith("<") and frame.f_code.co_name != "<module>"
        )  # a generator or a lambda
        if PACKAGE in file.parents and file not in _BUILDERS and not is_inner:
            return f"{file.relative_to(PACKAGE)}:{frame.f_code.co_name}"
        frame = frame.f_back
    return "tests"


def _tried(frame: FrameType | None) -> Sequence[str] | TargetSpec | None:
    """The command line, or the spec of the outermost `load`."""
    spec: TargetSpec | None = None
    while frame is not None:
        place = (Path(frame.f_code.co_filename).name, frame.f_code.co_name)
        if place == ("__init__.py", "_run") and "arguments" in frame.f_locals:
            return tuple(frame.f_locals["arguments"])
        if frame.f_code.co_name in ("load", "open_source", "count_spec"):
            local = frame.f_locals.get("spec")
            spec = local if isinstance(local, TargetSpec) else spec
        frame = frame.f_back
    return spec


def check(hints: Iterable[Hint]) -> list[str]:
    """Replay the commands of `hints`; returns what is wrong, one text per command."""
    return [
        f"{hint.site}: {problem}\n  error: {hint.message}\n  hint: {hint.text}"
        for hint in hints
        for problem in _problems(hint)
    ]


def _problems(hint: Hint) -> Iterator[str]:
    for prefix, command in _commands(hint):
        words = shlex.split(command)
        if words[0] == sys.executable:
            yield from _python_problems(words[1:], command, hint)
            continue
        if words[0] == "git":  # which may need a network; 129 is the status of the help of a command that exists
            verb = next(word for word in words[1:] if not word.startswith(("-", ".", "/")) and "/" not in word)
            if subprocess.run(["git", verb, "-h"], capture_output=True).returncode != 129:
                yield f"git has no such command: {command}"
            continue
        words = words[1:]
        if "--help" in words or not words:
            continue
        if not prefix and _canonical(words) in (_canonical_tried(hint.tried), None):
            invalid = _canonical(words) is None
            if invalid or hint.message:
                yield f"not a valid command: {command}" if invalid else f"the hint repeats the command: {command}"
            continue
        if BLANK in command or not _can_run_here(words):
            continue
        failure = _replay(words, prefix, hint)
        if failure is not None and _normalized(failure) == _normalized(hint.message):
            yield f"fails in the same way: {command}"


def _python_problems(words: Sequence[str], command: str, hint: Hint) -> Iterator[str]:
    """What is wrong with the command ``PYTHON WORDS``, which installs packages or shows an error."""
    if words[:3] == ["-m", "pip", "install"]:
        for word in words[3:]:
            match = _REQUIREMENT.fullmatch(word)
            if match is None or (match["extra"] or "") not in ("", *_extras()):
                yield f"not a package: {word} in {command}"
        return
    ended = subprocess.run([sys.executable, *words], cwd=hint.folder, capture_output=True, stdin=subprocess.DEVNULL)
    if ended.returncode == 0 or b'File "<string>"' in ended.stderr.splitlines()[-3:]:
        yield f"does not show the error: {command}"


@functools.cache
def _extras() -> tuple[str, ...]:
    return tuple(tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"])


@functools.cache
def builder_sites() -> frozenset[str]:
    """The functions of the package that build a command, as in `Hint.commands`."""
    return frozenset(
        f"{file.relative_to(PACKAGE)}:{name}"
        for file in PACKAGE.rglob("*.py")
        if file not in _BUILDERS
        for name in _builders(ast.parse(file.read_text(encoding="utf-8")), "<module>")
    )


def _builders(tree: ast.AST, function: str) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _BUILDER_NAMES:
            yield function
        yield from _builders(node, node.name if isinstance(node, ast.FunctionDef) else function)


def _commands(hint: Hint) -> Iterator[tuple[re.Match[str] | None, str]]:
    """Each command of the hint, with the shell words before it that change the folder or the path."""
    starts = sorted(
        {match.start() for text in (PROGRAM, *hint.commands) for match in re.finditer(re.escape(text), hint.text)}
    )
    end = 0
    for start in starts:
        if start < end:
            continue
        tail = hint.text[start:]
        exact = [text for text in hint.commands if tail.startswith(text)]
        stop = _END.search(tail)
        command = max(exact, key=len) if exact else tail[: stop.start()] if stop else tail
        yield _PREFIX.search(hint.text[:start]), command
        end = start + len(command)


def _parse(words: Sequence[str]) -> Any:
    """The options of a command line; None if it is invalid."""
    from profiler_kit.cli.parser import build_parser

    try:
        return build_parser(words).parse_args(words)
    except KitError:
        return None


def _spec(options: Any) -> TargetSpec:
    from profiler_kit.cli.options import target_spec

    return replace(target_spec(options), command=("count", ""))


def _canonical(words: Sequence[str]) -> object:
    """The words of a command without what does not change its result; None for an invalid command."""
    options = _parse(words)
    if options is None:
        return None
    if options.verb in ("count", "analyze"):
        device = getattr(options, "device", "auto")
        return _spec(options), None if device == "auto" else device
    return tuple(word for word in words if word not in ("-q", "--quiet"))


def _canonical_tried(tried: Sequence[str] | TargetSpec | None) -> object:
    if isinstance(tried, TargetSpec):
        return replace(tried, command=("count", ""), import_timeout_s=TargetSpec(spec="").import_timeout_s), None
    return _canonical(tried) if tried is not None else ()


def _can_run_here(words: Sequence[str]) -> bool:
    import torch

    return torch.cuda.is_available() or not any("cuda" in word for word in words)


def _replay(words: Sequence[str], prefix: re.Match[str] | None, hint: Hint) -> str | None:
    """Run the command in this process; the message of its failure, None if it succeeds."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(_in_folder(hint.folder))
        groups = prefix.groupdict() if prefix is not None else {}
        groups = {name: shlex.split(word)[0] for name, word in groups.items() if word}
        if "folder" in groups:
            os.chdir(groups["folder"])
        if "file" in groups:
            Path(groups["file"]).touch()
        if "path" in groups:
            sys.path.insert(0, str(Path(groups["path"]).resolve()))
        stack.enter_context(_time_limit())
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        try:
            return _run(words)
        except KitError as error:
            return error.message
        except (Exception, SystemExit) as error:  # noqa: BLE001 the user's code may raise anything
            return f"internal error: {type(error).__name__}: {error}"


def _run(words: Sequence[str]) -> str | None:
    """Run the command; a target is only loaded and counted, or run once on the CPU, because measuring takes long."""
    from profiler_kit.cli import main
    from profiler_kit.loading import load
    from profiler_kit.pipeline.count import count_spec

    options = _parse(words)
    if options.verb == "run":  # the program owns its process
        ended = subprocess.run([sys.executable, "-m", "profiler_kit", *words], capture_output=True, timeout=LIMIT_S)
        return None if ended.returncode == 0 else ended.stderr.decode()
    if options.verb not in ("count", "analyze"):
        if options.verb == "compare" and any(".py" in word for word in words):
            words = [*words, *({"--static"} - set(words))]
        stderr = io.StringIO()
        with contextlib.redirect_stderr(stderr):
            status = main([*words, "-q"] if "-q" not in words and options.verb != "env" else list(words))
        text = stderr.getvalue().removeprefix("error: ").partition("\nhint: ")[0]
        return None if status == 0 else text or f"exit status {status}"
    spec = replace(_spec(options), import_timeout_s=LIMIT_S)
    if getattr(options, "device", "auto") == "auto":
        count_spec(spec)
        return None
    target = load(spec, device=options.device)
    target.model(*target.batch.args, **target.batch.kwargs)
    return None


@contextlib.contextmanager
def _in_folder(folder: Path) -> Iterator[None]:
    """Run the block in `folder`, and restore the working directory and the module path."""
    before, path = Path.cwd(), list(sys.path)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        sys.path[:] = path


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """Raise TimeoutError after `LIMIT_S`; a running timer, such as that of the test, continues afterwards."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"the command of a hint did not end within {LIMIT_S:g} s")

    handler = signal.signal(signal.SIGALRM, interrupt)
    start_s = time.monotonic()
    earlier_s, interval_s = signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if earlier_s:
            signal.setitimer(signal.ITIMER_REAL, max(earlier_s - (time.monotonic() - start_s), 1e-3), interval_s)


def _normalized(message: str) -> str:
    return re.sub(r"\s+", " ", message).strip().lower()
