"""The command `check`: the pre-merge gate. Compares static figures with a base and applies budgets."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_kit.cli import output
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import (
    TARGET_HELP,
    add_convention_options,
    add_device_option,
    add_output_options,
    add_target_options,
    add_timeout_option,
    limit_command,
    target_spec,
)
from profiler_kit.cli.progress import Progress
from profiler_kit.command_lines import kit_command
from profiler_kit.errors import KitError, UsageError

if TYPE_CHECKING:
    from profiler_kit.pipeline.check import CheckTarget, Settings, TargetSettings
    from profiler_kit.records.check import Budget, CheckResult, CheckResults
    from profiler_kit.records.target import TargetSpec


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of targets, base, budgets and output."""
    parser.add_argument(
        "targets",
        metavar="TARGET",
        nargs="*",
        help="names of targets in pyproject.toml (default: all of them), or: " + TARGET_HELP,
    )
    group = parser.add_argument_group("base")
    group.add_argument(
        "--base",
        metavar="REV",
        help="git revision or report.json to compare with (default: merge base with the main branch)",
    )
    group.add_argument(
        "--base-target", metavar="TARGET", help="the target at the base, if its file or class was renamed"
    )
    group.add_argument(
        "--base-input",
        action="append",
        default=[],
        metavar="SPEC",
        help="input at the base, instead of -i (repeatable)",
    )
    group.add_argument(
        "--base-kw", action="append", default=[], metavar="K=V",
        help="constructor argument at the base, instead of --kw (repeatable)",
    )  # fmt: skip
    parser.add_argument(
        "--budget", action="append", default=[], metavar="METRIC=LIMIT",
        help="limit of a metric, for example flops=+10%% (relative to the base), params=26M or params@encoder.*=20M for a "
        "part of the model (repeatable)",
    )  # fmt: skip
    parser.add_argument(
        "--accept", metavar="REASON",
        help="raise broken budgets in pyproject.toml to the values of this change, with the reason as a comment, and check "
        "again",
    )  # fmt: skip
    policies = ("allow", "warn", "error")
    parser.add_argument(
        "--new", choices=policies, help="verdict on a target that the base does not have (default: allow)"
    )
    parser.add_argument("--deleted", choices=policies, help="verdict on a target that was deleted (default: warn)")
    add_target_options(parser)
    parser.add_argument("--gpu", metavar="NAME", help="predict peak memory and step time for this device, such as A100")
    parser.add_argument(
        "--time", action="store_true",
        help="also measure the step of both sides in interleaved fresh processes, for budgets on step_time",
    )  # fmt: skip
    add_device_option(parser)
    add_timeout_option(parser)
    add_convention_options(parser, strict=True)
    add_output_options(parser)


def run(options: argparse.Namespace) -> int:
    """Check the targets against their budgets and return the exit status of the verdict."""
    if len(options.targets) == 1 and not options.time:
        limit_command(options)
    output.check_options(options, inputs=[*options.targets, options.base or "", *options.input], kind="check")
    if options.accept is not None:
        from profiler_kit.pipeline.budget_files import require_acceptable

        require_acceptable(options.accept, Path.cwd())
    with output.redirect_stdout_to_stderr(), Progress(quiet=options.quiet) as progress:
        targets, results = _check(options, progress)
        if options.accept is not None and _accept(options, targets, results):
            _, results = _check(options, progress)
    return _show(results, options)


def report_failure(options: argparse.Namespace, error: KitError) -> None:
    """Write the result of a check whose process ended: its target could not be counted. Raises KitError."""
    from profiler_kit.pipeline.check import unfinished_check

    _show(unfinished_check(_targets(options)[0], error), options)


def _show(results: CheckResults, options: argparse.Namespace) -> int:
    from profiler_kit.report.check import check_document, checks_document

    if len(results.results) > 1:
        output.emit(checks_document(results), options)
        return results.exit_code
    (result,) = results.results
    output.emit(check_document(result), options)
    if result.status == "failed":
        raise _error(result)
    return result.exit_code


def _import_report() -> None:
    import profiler_kit.report.check  # noqa: F401


def _check(options: argparse.Namespace, progress: Progress) -> tuple[list[CheckTarget], CheckResults]:
    """The targets of the command line or of pyproject.toml, and their results."""
    from profiler_kit.pipeline.check import check_targets, timer

    targets, settings = _targets(options)
    results = check_targets(
        targets,
        folder=Path.cwd(),
        settings=settings,
        base=options.base,
        strict=options.strict,
        convention=options.convention,
        time_sides=timer(options.device, progress.show) if options.time else None,
        while_waiting=_import_report,
        timeout_s=options.timeout,
        on_progress=progress.show,
    )
    configured = settings.targets
    names = options.targets or list(configured)
    accepted = tuple(
        _with_command(options, name if name in configured else None, target, result)
        for name, target, result in zip(names, targets, results.results, strict=True)
    )
    return targets, replace(results, results=accepted)


def _targets(options: argparse.Namespace) -> tuple[list[CheckTarget], Settings]:
    """The targets of the command line or of pyproject.toml, and the settings."""
    from profiler_kit.pipeline.check import parse_budgets, settings_for

    names = [output.folder_name(target) for target in options.targets]
    settings = settings_for(Path.cwd(), names)
    settings = replace(settings, new=options.new or settings.new, deleted=options.deleted or settings.deleted)
    limits = parse_budgets(options.budget)
    configured = settings.targets
    selected = options.targets or _all_targets(list(configured), settings.file_name)
    targets = [
        _configured_target(options, configured[text], settings.budgets(text, limits))
        if text in configured
        else _target(options, text, settings.budgets(output.folder_name(text), limits))
        for text in selected
    ]
    return targets, settings


def _with_command(
    options: argparse.Namespace, name: str | None, target: CheckTarget, result: CheckResult
) -> CheckResult:
    """`result` with the command that accepts its broken budgets, or with a note why there is none.

    `name` is that of a target of pyproject.toml, which has the options of its table.
    """
    from profiler_kit.pipeline.budget_files import accept
    from profiler_kit.pipeline.check import next_command, raised_options

    if not any(row.outcome == "broken" for row in result.budgets):
        return result
    try:
        is_in_file = accept([(result, target.budgets)], "REASON", Path.cwd(), writes=False) is not None
    except UsageError as error:
        return replace(result, notes=(*result.notes, f"How to accept: {error.message}: {error.hint}."))
    budgets, strict = raised_options(options.budget, options.strict, result.budgets)
    words = ("check", "", *_words(options, budgets, strict), *(("--accept", "REASON") if is_in_file else ()))
    if name is not None:
        return replace(result, accept=kit_command(*(word or name for word in words)))
    return replace(result, accept=next_command(replace(target.spec, command=words)))


def _words(options: argparse.Namespace, budgets: Sequence[str], strict: bool) -> list[str]:
    """The options of the command line, without those of the target and of the output, with other `budgets` and `strict`."""
    from profiler_kit.records.counts import DEFAULT_CONVENTION

    words = []
    defaults = {"base_input": [], "base_kw": [], "device": "auto", "convention": DEFAULT_CONVENTION}
    for name in ("base", "base_target", "base_input", "base_kw", "new", "deleted", "gpu", "device", "convention"):
        value = getattr(options, name)
        if value != defaults.get(name):
            for each in value if isinstance(value, list) else [value]:
                words += [f"--{name.replace('_', '-')}", each]
    words += [word for budget in budgets for word in ("--budget", budget)]
    flags = {"--time": options.time, "--strict": strict}
    return [*words, *(flag for flag, is_set in flags.items() if is_set)]


def _accept(options: argparse.Namespace, targets: list[CheckTarget], results: CheckResults) -> bool:
    """Raise the broken budgets; whether there were any. Raises UsageError."""
    from profiler_kit.pipeline.budget_files import accept

    pairs = [(result, target.budgets) for target, result in zip(targets, results.results, strict=True)]
    change = accept(pairs, options.accept, Path.cwd())
    if change is None:
        return False
    output.print_note(f"{change.file_name}: accepted\n" + "\n".join(change.lines), options)
    return True


def _error(result: CheckResult) -> KitError:
    """The error of a side that could not be counted, after the requested files are written."""
    error = KitError(result.reason, hint=result.hint or None)
    error.exit_code = result.exit_code
    return error


def _all_targets(names: list[str], file_name: str) -> list[str]:
    if not names:
        raise UsageError(
            "no target",
            hint=f"name one: check models/net.py; or define [tool.profiler-kit.targets.NAME] in {file_name}",
        )
    return names


def _target(options: argparse.Namespace, text: str, budgets: tuple[Budget, ...]) -> CheckTarget:
    """The target `text` of the command line, with the options of the command line."""
    from profiler_kit.pipeline.check import CheckTarget

    spec = _spec(options, text, options)
    # hints on the base have the words of this side, and then those of the base
    words = _words(
        argparse.Namespace(**{**vars(options), "base_input": [], "base_kw": []}), options.budget, options.strict
    )
    base_spec = replace(
        spec,
        inputs=tuple(options.base_input) or spec.inputs,
        kwargs=tuple(options.base_kw) or spec.kwargs,
        command=("check", "", *words, *spec.input_words()),
    )
    # a separate process counts the base
    common = [*_convention_words(options), *_run_words(text, options.from_run)]
    sides = [(*side.option_words(), *common) for side in (spec, base_spec)]
    return CheckTarget(
        name=output.folder_name(text),
        spec=spec,
        options=sides[0],
        budgets=budgets,
        base_target=options.base_target,
        base_options=sides[1] if sides[0] != sides[1] else None,
        base_spec=base_spec,
        gpu=options.gpu,
    )


def _configured_target(
    options: argparse.Namespace, settings: TargetSettings, budgets: tuple[Budget, ...]
) -> CheckTarget:
    """A target of pyproject.toml, with the options of its table."""
    from profiler_kit.pipeline.check import CheckTarget

    parser = argparse.ArgumentParser(exit_on_error=False, add_help=False)
    add_target_options(parser)
    try:
        parsed = parser.parse_args(list(settings.options))
    except argparse.ArgumentError as error:
        raise UsageError(
            str(error), where=f"[tool.profiler-kit.targets.{settings.name}]", hint="correct the value in pyproject.toml"
        ) from error
    run_words = _run_words(settings.target, parsed.from_run)
    return CheckTarget(
        name=settings.name,
        spec=_spec(parsed, settings.target, options),
        options=(*settings.options, *run_words),
        budgets=budgets,
        base_target=settings.base_target,
        base_options=(*settings.base_options, *run_words) if settings.base_options is not None else None,
        gpu=options.gpu or settings.gpu,
    )


def _spec(target_options: argparse.Namespace, text: str, options: argparse.Namespace) -> TargetSpec:
    command = ("check", "", *_words(options, options.budget, options.strict))
    return target_spec(target_options, text, allow_guess=False, command=command)


def _run_words(text: str, from_run: str | None) -> list[str]:
    """The option that gives both sides of the target `text` the same run of its script, or none, wherever they are counted."""
    from profiler_kit.pipeline.seen_runs import run_report

    return ["--from-run", from_run or str(run_report(text) or "none")]


def _convention_words(options: argparse.Namespace) -> list[str]:
    from profiler_kit.records.counts import DEFAULT_CONVENTION

    return ["--convention", options.convention] if options.convention != DEFAULT_CONVENTION else []


COMMAND = Command(
    name="check",
    summary="compare with a git revision and apply budgets, as a pre-merge gate",
    examples=("check my_model.py --base main --budget flops=+10%",),
    add_options=add_options,
    run=run,
    report_failure=report_failure,
)
